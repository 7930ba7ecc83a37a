"""A file that grows, read to where it ends, again and again: lines are messages.

What was read is kept in a *place*, a small file in the spool: which file it was and up to which
byte, written only after what was read is on disk as well. So a process that dies in between reads
some lines again, whose readings change nothing, and none is left out. A file that was renamed and
begun anew is read to its end first, and found again under its new name, which begins with the old
one; then those follow that were written to later, one after the other. One that was cut back is
read from its beginning, and one that was compressed is not read.
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

from decaysketch.bridge.translating import Arrived
from decaysketch.client.files import write_whole
from decaysketch.errors import DecaySketchError
from decaysketch.ingest.documents import Message

__all__ = ["Tail", "place_of"]

_log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_HEAD = 1024  # bytes by which a file is known, beside its number: numbers are given again


class Place(NamedTuple):
    """Up to where a file was read.

    Attributes:
        inode: its number.
        offset: of the first byte that was not read.
        head: SHA-256 of its first bytes, as many as were read and ``_HEAD`` at most, in hex.
    """

    inode: int
    offset: int
    head: str


def place_of(spool: Path, path: Path) -> Path:
    """Where the place of a file is kept."""
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    return spool / f"tail-{name}.json"


class Tail:
    """Reads a file, and those that take its place.

    Args:
        path: of the file, which need not be there yet.
        place: file in which the place is kept.
        topic: of its messages.
        max_line_bytes: of a longer line the beginning stands for it.

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
        self._rest = b""  # what was read behind it
        self._skips = False  # to the end of a line that is too long
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
        _log.warning("%s, read up to byte %d, is gone: what it had behind that is not read",
                     self._path, place.offset)  # fmt: skip

    def _files(self) -> list[Path]:
        """The file and those that were renamed from it, the one first that was written to first."""
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
        """Whether there is a file to read."""
        if self._file is None:
            with suppress(FileNotFoundError):
                self._take(self._path.open("rb"))
        return self._file is not None

    # ------------------------------------------------------------------------------------ reading

    def read(self, most: int) -> list[Arrived]:
        """Up to so many messages that are there now; none where the file has no more for now.

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
        """Go on with the file that stands in the place of the one that was read, if there is one:
        what that had in its last line, without an end, is a line."""
        assert self._file is not None
        try:
            found = self._path.stat()
        except FileNotFoundError:  # between two of them
            return False
        if found.st_ino == self._inode:
            if found.st_size >= self._offset + len(self._rest):
                return False
            _log.warning("%s was cut back from %d bytes to %d: it is read from its beginning",
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
        """Have what was handed out not handed out again; on disk when this returns.

        Raises:
            OSError: the disk refused.
        """
        if self._file is None:
            return
        place = Place(self._inode, self._offset, _head(self._file, self._offset))
        self._place_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._place_file, json.dumps(place._asdict()).encode("ascii"))

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _head(file: BinaryIO, offset: int) -> str:
    """Of the bytes before an offset; where the file stands is where it stood."""
    at = file.tell()
    file.seek(0)
    head = file.read(min(offset, _HEAD))
    file.seek(at)
    return hashlib.sha256(head).hexdigest()


def _is_of(file: BinaryIO, place: Place) -> bool:
    """Whether it begins as the file of the place did; one that is shorter now was cut back."""
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
        f"{path} does not say up to where a file was read; move it away to read it anew"
    )
