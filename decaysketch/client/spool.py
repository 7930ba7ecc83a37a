"""The spool: the directory with all data that are not acknowledged yet. It survives kill -9.

    lock                              locked (flock), like the folder, by the only process that
                                      uses the spool.
    sensor.json                       stream, source, sketch configuration, and the number after
                                      the last sampler element in deltas that are gone
    sensor.copy.json                  a copy, in case the other file cannot be read
    monitors.json                     the site's incarnation, and the monitors that it knows
    open.log                          observations that are synced and not in a delta yet
    deltas/<number>[.<first>.<next>]  deltas that wait to be posted, each one sketch as bytes
    rejected/                         deltas that the server rejected, each with its problem
    damaged/                          data that could not be read, each with the reason

A file appears whole or not at all: it is written under a temporary name, synced, renamed, and its
directory synced. The log is the exception: records (:mod:`decaysketch.client.delta`) are appended,
and an incomplete record was never synced. A delta may exist twice, as itself and merged with
others, or also in the log. Sketches tolerate this, and numbers distinguish intervals.

Only the owner may read the files, because they contain observations.

One process uses a folder, even if a cleanup job removes the lock file. Two ``flock`` locks are
held: one on the folder itself, which cannot be deleted while it has content, and one on a file
``lock`` in it, for file systems such as NFS that do not lock folders and for earlier releases. A
deleted file no longer excludes later processes, because the name leads to a new file. So the lock
is valid only while the name leads to it. This is checked when the lock is acquired and before every
write.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decaysketch.client.delta import Gap, Interval, LogRecord, pack, scan
from decaysketch.client.errors import SpoolInUseError
from decaysketch.client.files import OWNER_ALONE, TEMPORARY, sync_directory, write_whole
from decaysketch.client.metadata import card_bytes, parse_card, parse_form

__all__ = [
    "CARD",
    "CARD_COPY",
    "FolderLock",
    "Gap",
    "Interval",
    "LogRecord",
    "Spool",
    "SpooledDelta",
    "is_at",
    "parse_name",
]

_TRIES = 16  # another process may delete the file between opening and locking


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
            f"spool {self._path} is in use by another sensor; expected one sensor per spool"
        )

    def check(self) -> str | None:
        """Verify the lock. Return a description of the damage if it could be repaired.

        Raises:
            SpoolInUseError: another process has it, or the folder was replaced.
        """
        if not is_at(self._folder, self._path):
            raise SpoolInUseError(
                f"spool {self._path} was moved or removed while a sensor uses it; expected it to "
                "stay"
            )
        if is_at(self._file, self._name):
            return None
        file = self._lock_file()
        os.close(self._file)
        self._file = file
        return f"{self._name} was removed while it was locked, and is created and locked again"

    def release(self) -> None:
        """Release the lock."""
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1


CARD, CARD_COPY = "sensor.json", "sensor.copy.json"
_MONITORS = "monitors.json"
_FOLDERS = ("deltas", "rejected", "damaged")
_NUMBERED = re.compile(r"(?:log-|sensor-|sensor\.copy-|monitors-)?([0-9]{1,18})(?![0-9])")
_OWNER_ALONE_FOLDER = 0o700


@dataclass(frozen=True, slots=True)
class SpooledDelta:
    """A delta on disk."""

    number: int
    size: int
    interval: Interval | None

    @property
    def name(self) -> str:
        """Its file name. Names sort by number."""
        if self.interval is None:
            return f"{self.number:012d}"
        return f"{self.number:012d}.{self.interval.first}.{self.interval.next}"


class Spool:
    """A directory opened by one process. Not thread-safe.

    Args:
        directory: created if it does not exist.
        note: called with one sentence for each repaired fault.

    Raises:
        SpoolInUseError: another process has it open. Writing methods also raise it, if they find
            out later.
        OSError: it cannot be created or read.

    Attributes:
        deltas: the deltas that wait to be posted, oldest first.
        size: bytes in all files except the lock, ``sensor.json`` and notes.
        log_size: the log's share of them.
        rejected: number of deltas in ``rejected/``.
        damaged: number of files in ``damaged/``.
    """

    def __init__(
        self, directory: str | os.PathLike[str], note: Callable[[str], None] = lambda _: None
    ) -> None:
        self.directory = Path(directory)
        self._note = note
        _make_folder(self.directory)
        self._lock = FolderLock(self.directory)
        self._log = -1
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.deltas: list[SpooledDelta] = []
        self._make_folders()
        self.measure_set_aside()
        self._next_number = self._first_number()
        for leftover in self.directory.rglob(f"*{TEMPORARY}"):
            leftover.unlink()  # never renamed, so never counted as taken
        for path in sorted((self.directory / "deltas").iterdir()):
            if (delta := parse_name(path)) is None:
                kept = path.name
                if (self.directory / "damaged" / kept).exists():
                    kept = f"{kept}-{self._take_number()}"
                self._set_aside(path, kept, "damaged", {"reason": "not the name of a delta"})
                self._note(f"{path} is not the name of a delta; it is in damaged/")
            else:
                self.deltas.append(delta)
        self._waiting_size = sum(delta.size for delta in self.deltas)
        self._open_log()
        self.log_size = os.fstat(self._log).st_size
        self._keep_others_out()
        sync_directory(self.directory)

    def _first_number(self) -> int:
        """Return a number after all numbers in file names. Files that were moved aside keep
        theirs.
        """
        numbers = [
            int(found[1])
            for folder in _FOLDERS
            for path in (self.directory / folder).iterdir()
            if (found := _NUMBERED.match(path.name)) is not None
        ]
        return max(numbers, default=0) + 1

    def _make_folders(self) -> None:
        for name in _FOLDERS:
            folder = self.directory / name
            if not folder.is_dir():
                folder.mkdir(_OWNER_ALONE_FOLDER)
                sync_directory(self.directory)

    def _keep_others_out(self) -> None:
        """Remove other users' permissions on files, which earlier releases granted. The folder
        itself keeps its own.
        """
        modes = dict.fromkeys((CARD, CARD_COPY, "open.log"), OWNER_ALONE)
        for name, mode in {**modes, **dict.fromkeys(_FOLDERS, _OWNER_ALONE_FOLDER)}.items():
            path = self.directory / name
            try:
                if path.stat().st_mode & 0o077:
                    path.chmod(mode)
            except FileNotFoundError:
                continue
            except PermissionError:
                self._note(f"other users can read {path}, and it belongs to another user")

    def _open_log(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._log = os.open(self.directory / "open.log", flags, OWNER_ALONE)

    def close(self) -> None:
        """Release it for another sensor."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        self._lock.release()

    def check(self) -> None:
        """Check before each change that no other process has it, and that its folders exist.

        Cleanup jobs delete idle files: the lock, and empty folders.
        """
        if (mended := self._lock.check()) is not None:
            self._note(mended)
        self._make_folders()

    @property
    def size(self) -> int:
        return self._waiting_size + self._set_aside_size + self.log_size

    def measure_set_aside(self) -> None:
        """Measure ``rejected/`` and ``damaged/``. People may have cleared them."""
        sizes: dict[str, list[int]] = {}
        for folder in ("rejected", "damaged"):
            files = (self.directory / folder).iterdir()
            sizes[folder] = [path.stat().st_size for path in files if path.suffix != ".json"]
        self.rejected, self.damaged = len(sizes["rejected"]), len(sizes["damaged"])
        self._set_aside_size = sum(sizes["rejected"]) + sum(sizes["damaged"])

    # ------------------------------------------------------------------------------------ the card

    def read_card(self) -> dict[str, Any] | None:
        """Return the content of ``sensor.json``, or of its copy if that cannot be read. None:
        neither can be read.

        An unreadable file is moved aside and reported to ``note``.
        """
        main, copy = self._try_card(CARD, parse_card), self._try_card(CARD_COPY, parse_card)
        if main is None and copy is not None:
            self._note(f"{CARD} is restored from its copy {CARD_COPY}")
        return copy if main is None else main

    def _try_card(
        self, name: str, parse: Callable[[bytes], dict[str, Any]]
    ) -> dict[str, Any] | None:
        path = self.directory / name
        try:
            return parse(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as fault:
            kept = f"{path.stem}-{self._take_number()}"
            self._set_aside(path, kept, "damaged", {"reason": f"{name} is damaged: {fault}"})
            sync_directory(self.directory)
            self._note(f"{name} was damaged ({fault}); it is in damaged/")
            return None

    def write_card(self, card: Mapping[str, Any]) -> None:
        """Replace ``sensor.json`` and its copy, durably.

        The copy is first, so that it is never behind.
        """
        self.check()
        for name in (CARD_COPY, CARD):
            write_whole(self.directory / name, card_bytes(card))

    def read_monitors(self) -> dict[str, Any] | None:
        """Return the content of ``monitors.json``. None if it does not exist or cannot be read."""
        return self._try_card(_MONITORS, parse_form)

    def write_monitors(self, form: Mapping[str, Any]) -> None:
        """Replace ``monitors.json``, durably."""
        self.check()
        write_whole(self.directory / _MONITORS, card_bytes(form))

    # ------------------------------------------------------------------------------------- the log

    def append(self, record: LogRecord) -> None:
        """Append to the log. The data are on disk when this returns."""
        self.check()
        self._restore_log()
        entry = pack(record)
        os.ftruncate(self._log, self.log_size)  # remove the rest of a failed append
        written = 0
        while written < len(entry):
            written += os.pwrite(self._log, entry[written:], self.log_size + written)
        os.fsync(self._log)
        self.log_size += len(entry)

    def _restore_log(self) -> None:
        """Write the log again if another program deleted it. It is open, so its bytes are still
        available.
        """
        path = self.directory / "open.log"
        if is_at(self._log, path):
            return
        write_whole(path, self._log_content())
        os.close(self._log)
        self._open_log()
        self._note(f"another program removed {path}; the sensor wrote it again with its content")

    def _log_content(self) -> bytes:
        parts, place = [], 0
        while place < self.log_size and (part := os.pread(self._log, self.log_size - place, place)):
            parts.append(part)
            place += len(part)
        return b"".join(parts)

    def read_log(self) -> tuple[list[LogRecord], list[Gap]]:
        """Return the sound records, and the other pieces. Each of these is moved aside."""
        content = self._log_content()
        records, gaps = scan(content)
        for gap in gaps:
            reason = f"bytes {gap.start} to {gap.end} of the log's {len(content)} are unreadable"
            name = f"log-{self._take_number()}"
            self._keep(name, content[gap.start : gap.end], "damaged", {"reason": reason})
        return records, gaps

    def peek_log(self) -> list[LogRecord]:
        """Return its sound records. Nothing is moved aside."""
        return scan(self._log_content())[0]

    def clear_log(self) -> None:
        """Empty the log: all its data are in deltas."""
        self.check()
        os.ftruncate(self._log, 0)
        self.log_size = 0
        os.fsync(self._log)

    # ---------------------------------------------------------------------------------- the deltas

    def add(self, blob: bytes, interval: Interval | None = None) -> SpooledDelta:
        """Store a delta. It is on disk when this returns."""
        self.check()
        delta = SpooledDelta(self._take_number(), len(blob), interval)
        path = self._path(delta)
        try:
            write_whole(path, blob)
        except OSError:
            path.unlink(missing_ok=True)  # nothing refers to it before the next start
            raise
        self.deltas.append(delta)
        self._waiting_size += delta.size
        return delta

    def read(self, delta: SpooledDelta) -> bytes:
        """Return a delta's bytes."""
        return self._path(delta).read_bytes()

    def remove(self, delta: SpooledDelta) -> None:
        """Delete a delta that was acknowledged, or is part of another one."""
        self.check()
        self._path(delta).unlink(missing_ok=True)
        self._forget(delta)

    def reject(self, delta: SpooledDelta, problem: Mapping[str, Any]) -> None:
        """Move a delta aside that the server rejected."""
        self._set_delta_aside(delta, "rejected", problem)

    def set_damaged(self, delta: SpooledDelta, reason: str) -> None:
        """Move a delta aside that cannot be read."""
        self._set_delta_aside(delta, "damaged", {"reason": reason})

    def keep_damaged(self, blob: bytes, reason: str, interval: Interval | None = None) -> None:
        """Move a log record aside that contains no sketch for the stream."""
        name = f"log-{self._take_number()}"
        self._keep(name, pack(LogRecord(blob, interval)), "damaged", {"reason": reason})

    def discard_set_aside(self, folder: str, name: str) -> None:
        """Delete a file that was moved aside, and its note: its data were recovered."""
        self.check()
        path = self.directory / folder / name
        path.unlink(missing_ok=True)
        path.with_name(f"{name}.json").unlink(missing_ok=True)
        self.measure_set_aside()

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _path(self, delta: SpooledDelta) -> Path:
        return self.directory / "deltas" / delta.name

    def _keep(self, name: str, blob: bytes, folder: str, note: Mapping[str, Any]) -> None:
        self.check()
        self._write_note(folder, name, note)
        write_whole(self.directory / folder / name, blob)
        self._count(folder, len(blob))

    def _set_delta_aside(self, delta: SpooledDelta, folder: str, note: Mapping[str, Any]) -> None:
        self.check()
        path = self._path(delta)
        self._set_aside(path, f"{delta.name}.sketch", folder, note)
        self._forget(delta)
        sync_directory(path.parent)

    def _set_aside(self, path: Path, name: str, folder: str, note: Mapping[str, Any]) -> None:
        self._write_note(folder, name, note)
        size = path.stat().st_size
        path.rename(self.directory / folder / name)
        sync_directory(self.directory / folder)
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
        write_whole(self.directory / folder / f"{name}.json", content)


def parse_name(path: Path) -> SpooledDelta | None:
    """Return the delta for a file with this name. None if it is not a delta's name."""
    parts = path.name.removesuffix(".sketch").split(".")
    if len(parts) not in (1, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts]
    interval = Interval(*numbers[1:]) if len(numbers) == 3 else None
    return SpooledDelta(numbers[0], path.stat().st_size, interval)


def _make_folder(path: Path) -> None:
    """Create a folder and its parents durably: a power cut does not remove them."""
    made = []
    for folder in (path, *path.parents):
        if folder.exists():
            break
        made.append(folder)
    for folder in reversed(made):
        folder.mkdir(_OWNER_ALONE_FOLDER if folder == path else 0o777, exist_ok=True)
        sync_directory(folder.parent)
