"""A folder that several programs read and one writes.

Guarantees
    On a local file system, files and names that :meth:`Storage.keep` received are on the disk.
Writers
    On a local file system a writer holds the lock of the operating system (``flock``), which ends
    with the process in every case. Elsewhere there is no lock, and the table's log lets one writer
    of each version succeed.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

__all__ = ["LOCK", "Storage"]

LOCK = ".lock"
_POLL_S = 0.05
_STALE_S = 86_400.0  # unfinished files of other machines are left over after this time


class Storage:
    """One folder.

    Args:
        place: a local path, or a URI that Spark and deltalake know (``hdfs://``, ``s3a://``, ...).
        options: deltalake's options for the file system of a URI, such as credentials.

    Attributes:
        name: ``place``, for messages.
        options: as given.
        local: whether the guarantees for local file systems hold. Not on Windows.
    """

    def __init__(
        self, place: str | os.PathLike[str], options: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.options = os.fspath(place), dict(options or {})
        self._fs: fs.FileSystem
        if _is_local(self.name):
            self._root = str(Path(self.name.removeprefix("file://")).absolute())
            self._uri, self._fs = f"file://{self._root}", fs.LocalFileSystem()
            self.local = sys.platform != "win32"
        else:
            self._root, self._uri, self.local = "", self.name.rstrip("/"), False
            self._fs = fs.PyFileSystem(DeltaStorageHandler(self._uri, self.options))

    def __repr__(self) -> str:
        return f"Storage({self.name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Storage):
            return NotImplemented
        return self._uri == other._uri

    def __hash__(self) -> int:
        return hash(self._uri)

    @property
    def delta_uri(self) -> str:
        """The name under which deltalake opens the folder."""
        return self._uri if self._root == "" else self._root

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    # ------------------------------------------------------------------------------------- read

    def entries(self, folder: str = "") -> dict[str, fs.FileInfo]:
        """Return the entries of a folder, by name. Empty if there is no folder."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        return {info.base_name: info for info in self._fs.get_file_info(selector)}

    def is_file(self) -> bool:
        """Return whether there is a file instead of the folder."""
        return bool(self._fs.get_file_info(self._root).type == fs.FileType.File)

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._fs.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read())

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for random access."""
        return self._fs.open_input_file(self._path(name))

    def uri(self, name: str) -> str:
        """Return the URI under which Spark writes this name."""
        return f"{self._uri}/{name}"

    def pattern(self, name: str) -> str:
        """Return the URI under which Spark reads this name. To its readers ``*``, brackets and
        braces are patterns.
        """
        return re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", self.uri(name))

    # ------------------------------------------------------------------------------------ write

    def make(self, folder: str = "") -> None:
        """Make a folder and its parents. On a local file system they are then on the disk."""
        path, missing = Path(self._path(folder)), []
        if self.local:
            missing = [each for each in (path, *path.parents) if not each.exists()]
        self._fs.create_dir(self._path(folder), recursive=True)
        for each in missing:
            _synchronize(str(each.parent))

    def create(self, name: str) -> pa.NativeFile:
        """Open a new file for writing."""
        return self._fs.open_output_stream(self._path(name))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        kind = self._fs.get_file_info(self._path(name)).type
        if kind == fs.FileType.Directory:
            self._fs.delete_dir(self._path(name))
        elif kind == fs.FileType.File:
            self._fs.delete_file(self._path(name))

    def keep(self, *names: str) -> None:
        """Sync files and their names to the disk, if the file system is local."""
        if self.local:
            for name in names:
                _synchronize(self._path(name))
            self._keep_folders(names)

    def _keep_folders(self, names: Sequence[str]) -> None:
        """Sync names to the disk, including the names of their parent folders."""
        folders = {""}
        for name in names:
            parts = name.split("/")
            folders |= {"/".join(parts[:count]) for count in range(1, len(parts))}
        for folder in sorted(folders, reverse=True):
            _synchronize(self._path(folder))

    def is_leftover(self, info: fs.FileInfo) -> bool:
        """Return whether an unfinished entry has no writer any more. Call it while holding the
        lock.

        On a local file system the lock excludes writers, so every such entry is a leftover.
        Elsewhere an old entry is a leftover, and an entry with unknown age is not.
        """
        if self.local:
            return True
        found = [info]
        if info.mtime_ns is None:  # a folder of an object store is as old as its youngest file
            selector = fs.FileSelector(info.path, recursive=True, allow_not_found=True)
            found = self._fs.get_file_info(selector)
        times = [each.mtime_ns for each in found if each.mtime_ns is not None]
        return bool(times) and max(times) < (time.time() - _STALE_S) * 1e9

    @contextmanager
    def lock(self, wait_s: float = 0.0) -> Iterator[None]:
        """Exclude other writers, on a local file system.

        Raises:
            BlockingIOError: another one was active for ``wait_s`` seconds.
        """
        if not self.local:
            yield
            return
        import fcntl  # Windows has none

        deadline = time.monotonic() + wait_s
        handle = os.open(self._path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(_POLL_S)
            yield
        finally:
            os.close(handle)


def _is_local(name: str) -> bool:
    return "://" not in name or name.startswith("file:")


def _synchronize(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
