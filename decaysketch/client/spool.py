"""The spool: the directory that holds what was not acknowledged yet, and survives kill -9.

    lock                              held (flock) by the one process that uses the spool
    sensor.json                       stream, source, recipe, and the number after a sampler's last
                                      element that was in a delta which is gone
    open.log                          observations that were synced and not yet made a delta
    deltas/<number>[.<first>.<next>]  deltas that wait to be posted, each the bytes of one sketch
    rejected/                         deltas that the server refused, each beside its problem
    damaged/                          what could not be read, each beside the reason

A file appears whole or not at all: it is written under a temporary name, synced, renamed, and its
directory synced. The log is the exception: records are appended, ``[u32 length | u32 crc32 | i64
first | i64 next | sketch bytes]`` (little-endian, the length is that of the sketch bytes, first =
next = -1 without an interval), and one that was cut short was never synced. Deltas may be there
twice, as themselves and merged with others, or in the log: sketches do not mind, and intervals are
told apart by their numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from decaysketch.client.errors import ClientError, SpoolInUseError

__all__ = ["Interval", "LogRecord", "Spool", "SpooledDelta"]

_RECORD = struct.Struct("<IIqq")
_TEMPORARY = ".tmp"


class Interval(NamedTuple):
    """The numbers ``first .. next - 1`` of a source."""

    first: int
    next: int


class LogRecord(NamedTuple):
    """What one sync appended to the log."""

    blob: bytes
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class SpooledDelta:
    """A delta on disk."""

    number: int
    size: int
    interval: Interval | None

    @property
    def name(self) -> str:
        """Its file name; sorts by number."""
        if self.interval is None:
            return f"{self.number:012d}"
        return f"{self.number:012d}.{self.interval.first}.{self.interval.next}"


class Spool:
    """A directory opened by one process. Not thread-safe.

    Args:
        directory: made if it is not there.

    Raises:
        SpoolInUseError: somebody else has it open.
        OSError: it cannot be made or read.

    Attributes:
        deltas: what waits to be posted, oldest first.
        size: bytes of all files but the lock, ``sensor.json`` and notes.
        log_size: of these, the log's.
        rejected: how many deltas are in ``rejected/``.
        damaged: how many things are in ``damaged/``.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        for name in ("deltas", "rejected", "damaged"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise SpoolInUseError(
                f"spool {self.directory} is in use by another sensor; expected one sensor a spool"
            ) from None
        self._log = -1
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.deltas: list[SpooledDelta] = []
        self.measure_set_aside()
        for leftover in self.directory.rglob(f"*{_TEMPORARY}"):
            leftover.unlink()  # never renamed, so never counted as taken
        for path in sorted((self.directory / "deltas").iterdir()):
            if (delta := _parse_name(path)) is None:
                self._set_aside(path, path.name, "damaged", {"reason": "not the name of a delta"})
            else:
                self.deltas.append(delta)
        # A rejected delta may keep its number as a name, so numbers go on after those too.
        numbers = [delta.number for delta in self.deltas]
        for folder in ("rejected", "damaged"):
            numbers += [
                found.number
                for path in (self.directory / folder).iterdir()
                if (found := _parse_name(path)) is not None
            ]
        self._next_number = max(numbers, default=0) + 1
        self._waiting_size = sum(delta.size for delta in self.deltas)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._log = os.open(self.directory / "open.log", flags, 0o600)
        self.log_size = os.fstat(self._log).st_size
        _sync_directory(self.directory)

    def close(self) -> None:
        """Let another sensor have it."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def size(self) -> int:
        return self._waiting_size + self._set_aside_size + self.log_size

    def measure_set_aside(self) -> None:
        """Look at what is in ``rejected/`` and ``damaged/``, which people may have cleared."""
        sizes: dict[str, list[int]] = {}
        for folder in ("rejected", "damaged"):
            files = (self.directory / folder).iterdir()
            sizes[folder] = [path.stat().st_size for path in files if path.suffix != ".json"]
        self.rejected, self.damaged = len(sizes["rejected"]), len(sizes["damaged"])
        self._set_aside_size = sum(sizes["rejected"]) + sum(sizes["damaged"])

    # ------------------------------------------------------------------------------------ the card

    def read_card(self) -> dict[str, Any] | None:
        """What ``sensor.json`` says; None in a new spool.

        Raises:
            ClientError: it is not what :meth:`write_card` wrote.
        """
        path = self.directory / "sensor.json"
        try:
            card = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as fault:
            raise ClientError(f"{path} is damaged: {fault}") from None
        if not isinstance(card, dict):
            raise ClientError(f"{path} is damaged: it holds {card!r}; expected an object")
        return card

    def write_card(self, card: Mapping[str, Any]) -> None:
        """Replace ``sensor.json``, durably."""
        _write(self.directory / "sensor.json", json.dumps(card, indent=1).encode())

    # ------------------------------------------------------------------------------------- the log

    def append(self, record: LogRecord) -> None:
        """Add to the log; on disk when this returns."""
        first, end = record.interval or (-1, -1)
        head = struct.pack("<qq", first, end)
        check = zlib.crc32(record.blob, zlib.crc32(head))
        entry = struct.pack("<II", len(record.blob), check) + head + record.blob
        os.ftruncate(self._log, self.log_size)  # what an append that failed has left
        written = 0
        while written < len(entry):
            written += os.pwrite(self._log, entry[written:], self.log_size + written)
        os.fsync(self._log)
        self.log_size += len(entry)

    def read_log(self) -> tuple[list[LogRecord], bool]:
        """The sound records, and whether there was anything after them, which is set aside."""
        content = os.pread(self._log, self.log_size, 0)
        records, place = [], 0
        while place < len(content):
            start = place + _RECORD.size
            if start > len(content):
                break
            length, check, first, end = _RECORD.unpack_from(content, place)
            blob = content[start : start + length]
            if (
                len(blob) < length
                or zlib.crc32(blob, zlib.crc32(content[place + 8 : start])) != check
            ):
                break
            records.append(LogRecord(blob, None if end < 0 else Interval(first, end)))
            place = start + length
        if place == len(content):
            return records, False
        reason = f"the log is unreadable from byte {place} of {len(content)} on"
        self._keep(f"log-{self._take_number()}", content[place:], "damaged", {"reason": reason})
        return records, True

    def clear_log(self) -> None:
        """Empty the log: all of it is in deltas."""
        os.ftruncate(self._log, 0)
        self.log_size = 0
        os.fsync(self._log)

    # ---------------------------------------------------------------------------------- the deltas

    def add(self, blob: bytes, interval: Interval | None = None) -> SpooledDelta:
        """Keep a delta; on disk when this returns."""
        delta = SpooledDelta(self._take_number(), len(blob), interval)
        path = self._path(delta)
        try:
            _write(path, blob)
        except OSError:
            path.unlink(missing_ok=True)  # nobody would know of it, until the next start
            raise
        self.deltas.append(delta)
        self._waiting_size += delta.size
        return delta

    def read(self, delta: SpooledDelta) -> bytes:
        """The bytes of a delta."""
        return self._path(delta).read_bytes()

    def remove(self, delta: SpooledDelta) -> None:
        """Forget a delta: it was acknowledged, or is part of another one."""
        self._path(delta).unlink(missing_ok=True)
        self._forget(delta)

    def reject(self, delta: SpooledDelta, problem: Mapping[str, Any]) -> None:
        """Set a delta aside that the server refused."""
        self._set_delta_aside(delta, "rejected", problem)

    def set_damaged(self, delta: SpooledDelta, reason: str) -> None:
        """Set a delta aside that cannot be read."""
        self._set_delta_aside(delta, "damaged", {"reason": reason})

    def keep_damaged(self, blob: bytes, reason: str) -> None:
        """Keep bytes of the log that are no sketch."""
        self._keep(f"log-{self._take_number()}", blob, "damaged", {"reason": reason})

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _path(self, delta: SpooledDelta) -> Path:
        return self.directory / "deltas" / delta.name

    def _keep(self, name: str, blob: bytes, folder: str, note: Mapping[str, Any]) -> None:
        self._write_note(folder, name, note)
        _write(self.directory / folder / name, blob)
        self._count(folder, len(blob))

    def _set_delta_aside(self, delta: SpooledDelta, folder: str, note: Mapping[str, Any]) -> None:
        path = self._path(delta)
        self._set_aside(path, f"{delta.name}.sketch", folder, note)
        self._forget(delta)
        _sync_directory(path.parent)
        _sync_directory(self.directory / folder)

    def _set_aside(self, path: Path, name: str, folder: str, note: Mapping[str, Any]) -> None:
        self._write_note(folder, name, note)
        size = path.stat().st_size
        path.rename(self.directory / folder / name)
        self._count(folder, size)

    def _forget(self, delta: SpooledDelta) -> None:
        self.deltas.remove(delta)
        self._waiting_size -= delta.size

    def _count(self, folder: str, size: int) -> None:
        self._set_aside_size += size
        if folder == "rejected":
            self.rejected += 1
        else:
            self.damaged += 1

    def _write_note(self, folder: str, name: str, note: Mapping[str, Any]) -> None:
        content = json.dumps(note, indent=1).encode()
        _write(self.directory / folder / f"{name}.json", content)


def _parse_name(path: Path) -> SpooledDelta | None:
    parts = path.name.removesuffix(".sketch").split(".")
    if len(parts) not in (1, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts]
    interval = Interval(*numbers[1:]) if len(numbers) == 3 else None
    return SpooledDelta(numbers[0], path.stat().st_size, interval)


def _write(path: Path, content: bytes) -> None:
    """A file that is there whole, or as it was before."""
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs its bytes
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
