"""A file that grows, read to its end again and again. Lines are messages.

The spool stores a *place* in a small file: the file that was read and the byte offset. The bridge
writes it only after the readings are on disk. So a process that dies in between reads some lines
again and skips none. Their readings change nothing then. If a file is renamed and a new one begins,
the bridge first reads the old file to its end. It finds the old file by a name that begins with the
name before. Then it reads the files that were written later, one after the other. It reads a
truncated file from its beginning, and does not read compressed files.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from decaysketch.client.files import write_whole
from decaysketch.errors import DecaySketchError
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.documents import Message

__all__ = ["Tail", "place_of"]

_log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_HEAD = 1024  # first bytes that identify a file, because inode numbers are reused


class Place(NamedTuple):
    """The position up to which a file was read.

    Attributes:
        inode: its number.
        offset: of the first unread byte.
        head: SHA-256 of its first bytes, as many as were read and ``_HEAD`` at most, in hex.
    """

    inode: int
    offset: int
    head: str


def place_of(spool: Path, path: Path) -> Path:
    """Return the path at which the place of a file is stored."""
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    return spool / f"tail-{name}.json"


class Tail:
    """Reads a file and its successors.

    Args:
        path: of the file. It need not exist yet.
        place: file that stores the place.
        topic: of its messages.
        max_line_bytes: the beginning of a longer line represents it.

    Raises:
        DecaySketchError: the place is not one.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, place: Path, topic: str, max_line_bytes: int) -> None:
        self._path = path
        self._place_file = place
        self._topic = topic
        self._most = max_line_bytes
        self._file: BinaryIO | None = None
        self._inode = 0
        self._offset = 0  # behind the last whole line that was handed out
        self._rest = b""  # bytes read after it
        self._skips = False  # whether the rest of an overlong line is skipped
        self._resume(_read_place(place))

    # ------------------------------------------------------------------------------------ opening

    def _resume(self, place: Place | None) -> None:
        if place is None:
            return
        for path in self._files():
            with suppress(FileNotFoundError):
                file = path.open("rb")
                if os.fstat(file.fileno()).st_ino == place.inode and _is_of(file, place):
                    self._take(file, place.offset)
                    return
                file.close()
        _log.warning("%s is missing, read up to byte %d: later lines are not read",
                     self._path, place.offset)  # fmt: skip

    def _files(self) -> list[Path]:
        """Return the file and its renamed predecessors, ordered by last write."""
        found = []
        for path in self._path.parent.glob(f"{glob.escape(self._path.name)}*"):
            with suppress(FileNotFoundError):
                if path.suffix not in _COMPRESSED:
                    found.append((path.stat().st_mtime_ns, path == self._path, path))
        return [path for _, _, path in sorted(found)]

    def _take(self, file: BinaryIO, offset: int = 0) -> None:
        if self._file is not None:
            self._file.close()
        file.seek(offset)
        self._file, self._offset, self._rest, self._skips = file, offset, b"", False
        self._inode = os.fstat(file.fileno()).st_ino

    def _open(self) -> bool:
        """Open the file. Return whether there is one."""
        if self._file is None:
            with suppress(FileNotFoundError):
                self._take(self._path.open("rb"))
        return self._file is not None

    # ------------------------------------------------------------------------------------ reading

    def read(self, most: int) -> list[Arrived]:
        """Return up to so many messages that exist now. Return none if the file has no more for
        now.

        Raises:
            OSError: it cannot be read.
        """
        if not self._open():
            return []
        got = list(self._lines(most))
        if got or not self._moved():
            return got
        return list(self._lines(most))

    def _lines(self, most: int) -> Iterator[Arrived]:
        assert self._file is not None
        while most > 0:
            line, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._offset += len(line) + 1
                self._rest = rest
                if not self._skips and line.strip():
                    most -= 1
                    yield self._message(line)
                self._skips = False
                continue
            if len(self._rest) > self._most:
                most -= not self._skips
                if not self._skips:
                    yield self._message(self._rest)
                self._offset += len(self._rest)
                self._rest, self._skips = b"", True
            chunk = self._file.read(_CHUNK)
            if not chunk:
                return
            self._rest += chunk

    def _message(self, line: bytes) -> Arrived:
        return Arrived(Message(line[: self._most + 1].strip(), self._topic, time.time_ns()))

    def _moved(self) -> bool:
        """Continue with the file that replaced the present one, if there is one. An unfinished last
        line of the present file counts as a line.
        """
        assert self._file is not None
        try:
            found = self._path.stat()
        except FileNotFoundError:  # between two of them
            return False
        if found.st_ino == self._inode:
            if found.st_size >= self._offset + len(self._rest):
                return False
            _log.warning("%s was truncated from %d bytes to %d: it is read from its beginning",
                         self._path, self._offset, found.st_size)  # fmt: skip
            self._take(self._path.open("rb"))
            return True
        if self._rest and not self._skips:
            self._rest += b"\n"
            return True
        written = os.fstat(self._file.fileno()).st_mtime_ns
        for path in self._files():
            with suppress(FileNotFoundError):
                file = path.open("rb")
                told = os.fstat(file.fileno())
                if told.st_ino != self._inode and (
                    path == self._path or told.st_mtime_ns > written
                ):
                    self._take(file)
                    return True
                file.close()
        return False

    # --------------------------------------------------------------------------------- the place

    def keep_place(self) -> None:
        """Save the place, so that returned messages are not returned again. It is on disk when this
        returns.

        Raises:
            OSError: a disk error.
        """
        if self._file is None:
            return
        place = Place(self._inode, self._offset, _head(self._file, self._offset))
        self._place_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._place_file, json.dumps(place._asdict()).encode("ascii"))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _head(file: BinaryIO, offset: int) -> str:
    """Hash the bytes before an offset. The position in the file does not change."""
    at = file.tell()
    file.seek(0)
    head = file.read(min(offset, _HEAD))
    file.seek(at)
    return hashlib.sha256(head).hexdigest()


def _is_of(file: BinaryIO, place: Place) -> bool:
    """Return whether the file begins as the file of the place did. A shorter one was truncated."""
    return _head(file, place.offset) == place.head


def _read_place(path: Path) -> Place | None:
    try:
        form = json.loads(path.read_bytes())
        place = Place(**form)
        if type(place.inode) is int and type(place.offset) is int and type(place.head) is str:
            return place
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        pass
    raise DecaySketchError(
        f"{path} has no valid position in a file; move it away to read the file again"
    )
