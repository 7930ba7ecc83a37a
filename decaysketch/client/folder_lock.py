"""One process per folder, even if a cleanup job removes the lock file.

Two ``flock`` locks are held: one on the folder itself, which cannot be deleted while it has
content, and one on a file ``lock`` in it, for file systems such as NFS that do not lock folders and
for earlier releases. A deleted file no longer excludes later processes, because the name leads to a
new file. So the lock is valid only while the name leads to it. This is checked when the lock is
acquired and before every write.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from decaysketch.client.errors import SpoolInUseError

__all__ = ["FolderLock", "is_at"]

_TRIES = 16  # whoever deletes the file between opening and locking does not do so for ever


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether a name leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


class FolderLock:
    """Held from the start until :meth:`release`. Not thread-safe.

    Raises:
        SpoolInUseError: another process has it.
        OSError: the folder cannot be opened or written.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._name = folder, folder / "lock"
        self._file = -1
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock_folder()
            self._file = self._lock_file()
        except BaseException:
            self.release()
            raise

    def _lock_folder(self) -> None:
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use() from None
        except OSError:
            pass  # not on this file system; the file is locked all the same

    def _lock_file(self) -> int:
        for _ in range(_TRIES):
            file = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                raise self._in_use() from None
            if is_at(file, self._name):
                return file
            os.close(file)
        raise self._in_use()

    def _in_use(self) -> SpoolInUseError:
        return SpoolInUseError(
            f"spool {self._path} is in use by another sensor; expected one sensor a spool"
        )

    def check(self) -> str | None:
        """Verify the lock. Return a description of the damage if it could be repaired.

        Raises:
            SpoolInUseError: another process has it, or the folder was replaced.
        """
        if not is_at(self._folder, self._path):
            raise SpoolInUseError(
                f"spool {self._path} is not the folder that was opened: somebody moved or removed "
                "it; expected it to stay while a sensor uses it"
            )
        if is_at(self._file, self._name):
            return None
        file = self._lock_file()
        os.close(self._file)
        self._file = file
        return f"{self._name} was removed while it was locked; it is there again, and locked"

    def release(self) -> None:
        """Release the lock."""
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1
