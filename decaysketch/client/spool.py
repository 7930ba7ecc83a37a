"""The spool: the directory that holds what was not acknowledged yet, and survives kill -9.

    lock                              held (flock), as the folder is, by the one process that uses
                                      the spool; see :mod:`decaysketch.client.folder_lock`
    sensor.json                       stream, source, recipe, and the number after a sampler's last
                                      element that was in a delta which is gone
    sensor.copy.json                  the same, for the day that the other cannot be read
    monitors.json                     the incarnation of the site, and the monitors that it knows
    open.log                          observations that were synced and not yet made a delta
    deltas/<number>[.<first>.<next>]  deltas that wait to be posted, each the bytes of one sketch
    rejected/                         deltas that the server refused, each beside its problem
    damaged/                          what could not be read, each beside the reason

A file appears whole or not at all: it is written under a temporary name, synced, renamed, and its
directory synced. The log is the exception: records (:mod:`decaysketch.client.record`) are appended,
and one that was cut short was never synced. Deltas may be there twice, as themselves and merged
with others, or in the log: sketches do not mind, and intervals are told apart by their numbers.

Files are for their owner alone: what was observed is in them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decaysketch.client.files import OWNER_ALONE, TEMPORARY, sync_directory, write_whole
from decaysketch.client.folder_lock import FolderLock, is_at
from decaysketch.client.metadata import card_bytes, parse_card, parse_form
from decaysketch.client.record import Gap, Interval, LogRecord, pack, scan

__all__ = [
    "CARD",
    "CARD_COPY",
    "Gap",
    "Interval",
    "LogRecord",
    "Spool",
    "SpooledDelta",
    "parse_name",
]

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
        """Its file name; sorts by number."""
        if self.interval is None:
            return f"{self.number:012d}"
        return f"{self.number:012d}.{self.interval.first}.{self.interval.next}"


class Spool:
    """A directory opened by one process. Not thread-safe.

    Args:
        directory: made if it is not there.
        note: told of what was found wrong and mended, in a sentence.

    Raises:
        SpoolInUseError: somebody else has it open. So does whatever writes, where that is found
            out later.
        OSError: it cannot be made or read.

    Attributes:
        deltas: what waits to be posted, oldest first.
        size: bytes of all files but the lock, ``sensor.json`` and notes.
        log_size: of these, the log's.
        rejected: how many deltas are in ``rejected/``.
        damaged: how many things are in ``damaged/``.
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
        """After all that are in a name: what was set aside keeps its own."""
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
        """Earlier releases let them read. The folder itself is as it was made, or was given."""
        modes = dict.fromkeys((CARD, CARD_COPY, "open.log"), OWNER_ALONE)
        for name, mode in {**modes, **dict.fromkeys(_FOLDERS, _OWNER_ALONE_FOLDER)}.items():
            path = self.directory / name
            try:
                if path.stat().st_mode & 0o077:
                    path.chmod(mode)
            except FileNotFoundError:
                continue
            except PermissionError:
                self._note(f"others may read {path}, which belongs to another user")

    def _open_log(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._log = os.open(self.directory / "open.log", flags, OWNER_ALONE)

    def close(self) -> None:
        """Let another sensor have it."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        self._lock.release()

    def check(self) -> None:
        """Make sure that nobody else has it, and that its folders are there; before each change.

        Cleaners of old files delete what is idle: the lock, and folders that are empty.
        """
        if (mended := self._lock.check()) is not None:
            self._note(mended)
        self._make_folders()

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
        """What ``sensor.json`` says, or its copy where that cannot be read; None: neither does.

        What cannot be read is set aside, and told to ``note``.
        """
        main, copy = self._try_card(CARD, parse_card), self._try_card(CARD_COPY, parse_card)
        if main is None and copy is not None:
            self._note(f"{CARD} is taken from {CARD_COPY}, which says the same")
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
        """What ``monitors.json`` says; None where it is not there, or cannot be read."""
        return self._try_card(_MONITORS, parse_form)

    def write_monitors(self, form: Mapping[str, Any]) -> None:
        """Replace ``monitors.json``, durably."""
        self.check()
        write_whole(self.directory / _MONITORS, card_bytes(form))

    # ------------------------------------------------------------------------------------- the log

    def append(self, record: LogRecord) -> None:
        """Add to the log; on disk when this returns."""
        self.check()
        self._restore_log()
        entry = pack(record)
        os.ftruncate(self._log, self.log_size)  # what an append that failed has left
        written = 0
        while written < len(entry):
            written += os.pwrite(self._log, entry[written:], self.log_size + written)
        os.fsync(self._log)
        self.log_size += len(entry)

    def _restore_log(self) -> None:
        """Write the log anew where somebody deleted it: it is open, so its bytes are to be had."""
        path = self.directory / "open.log"
        if is_at(self._log, path):
            return
        write_whole(path, self._log_content())
        os.close(self._log)
        self._open_log()
        self._note(f"{path} was removed by somebody else; it is there again, with what it held")

    def _log_content(self) -> bytes:
        parts, place = [], 0
        while place < self.log_size and (part := os.pread(self._log, self.log_size - place, place)):
            parts.append(part)
            place += len(part)
        return b"".join(parts)

    def read_log(self) -> tuple[list[LogRecord], list[Gap]]:
        """The sound records, and what else is in it, each piece of which is set aside."""
        content = self._log_content()
        records, gaps = scan(content)
        for gap in gaps:
            reason = f"bytes {gap.start} to {gap.end} of the log's {len(content)} are unreadable"
            name = f"log-{self._take_number()}"
            self._keep(name, content[gap.start : gap.end], "damaged", {"reason": reason})
        return records, gaps

    def peek_log(self) -> list[LogRecord]:
        """Its sound records; nothing is set aside."""
        return scan(self._log_content())[0]

    def clear_log(self) -> None:
        """Empty the log: all of it is in deltas."""
        self.check()
        os.ftruncate(self._log, 0)
        self.log_size = 0
        os.fsync(self._log)

    # ---------------------------------------------------------------------------------- the deltas

    def add(self, blob: bytes, interval: Interval | None = None) -> SpooledDelta:
        """Keep a delta; on disk when this returns."""
        self.check()
        delta = SpooledDelta(self._take_number(), len(blob), interval)
        path = self._path(delta)
        try:
            write_whole(path, blob)
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
        self.check()
        self._path(delta).unlink(missing_ok=True)
        self._forget(delta)

    def reject(self, delta: SpooledDelta, problem: Mapping[str, Any]) -> None:
        """Set a delta aside that the server refused."""
        self._set_delta_aside(delta, "rejected", problem)

    def set_damaged(self, delta: SpooledDelta, reason: str) -> None:
        """Set a delta aside that cannot be read."""
        self._set_delta_aside(delta, "damaged", {"reason": reason})

    def keep_damaged(self, blob: bytes, reason: str, interval: Interval | None = None) -> None:
        """Keep a record of the log that holds no sketch of the stream."""
        name = f"log-{self._take_number()}"
        self._keep(name, pack(LogRecord(blob, interval)), "damaged", {"reason": reason})

    def discard_set_aside(self, folder: str, name: str) -> None:
        """Delete what was set aside, and its note: it was recovered."""
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
    """The delta that a file of this name holds; None where it is not the name of one."""
    parts = path.name.removesuffix(".sketch").split(".")
    if len(parts) not in (1, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts]
    interval = Interval(*numbers[1:]) if len(numbers) == 3 else None
    return SpooledDelta(numbers[0], path.stat().st_size, interval)


def _make_folder(path: Path) -> None:
    """A folder, and those above it, which a power cut does not take away again."""
    made = []
    for folder in (path, *path.parents):
        if folder.exists():
            break
        made.append(folder)
    for folder in reversed(made):
        folder.mkdir(_OWNER_ALONE_FOLDER if folder == path else 0o777, exist_ok=True)
        sync_directory(folder.parent)
