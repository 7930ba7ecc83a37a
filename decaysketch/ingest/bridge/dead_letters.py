"""Dead letters: unreadable messages, each with its reason, on disk before the broker forgets it.

The broker would send an unreadable message again for ever, and the session would stop. So the
bridge writes it to ``dead.ndjson`` in a folder, as a line of JSON, syncs it, and only then
acknowledges it. At a size limit, the bridge ends the file and begins another. When all files have
reached their limit, it writes nothing more, and so acknowledges nothing more.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from decaysketch.client import SpoolFullError
from decaysketch.client.files import sync_directory
from decaysketch.ingest.documents import Message

__all__ = ["DeadLetters", "letter_of"]

_NAME = "dead.ndjson"
_FILE_BYTES = 16 << 20


class DeadLetters:
    """A folder of dead letters, created on first use."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def keep(self, letters: Iterable[tuple[Message, list[str]]]) -> None:
        """Write messages with their reasons. They are on disk when this returns.

        Raises:
            SpoolFullError: there is no space for them; nothing was written.
            OSError: a disk error.
        """
        text = b"".join(_line(message, reasons) for message, reasons in letters)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = sum(path.stat().st_size for path in self._folder.glob("*.ndjson"))
        if held + len(text) > self._max_bytes:
            raise SpoolFullError(
                f"{self._folder} holds {held} bytes of dead letters, and {len(text)} more are to "
                f"be stored; at most {self._max_bytes} are: replay them, or move them away"
            )
        path = self._folder / _NAME
        if path.exists() and path.stat().st_size > _FILE_BYTES:
            path.rename(self._folder / f"dead-{path.stat().st_mtime_ns}.ndjson")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _write(descriptor, _broken_off(path) + text)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self._folder)


def _broken_off(path: Path) -> bytes:
    """Return the bytes that end a line that a crash left half written."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return b""
        file.seek(size - 1)
        return b"" if file.read(1) == b"\n" else b"\n"


def _write(descriptor: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _line(message: Message, reasons: list[str]) -> bytes:
    letter: dict[str, Any] = {"topic": message.topic, "reasons": reasons[:20]}
    if message.arrival_ns is not None:
        letter["arrival_ns"] = message.arrival_ns
    try:
        letter["payload"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        letter["payload_base64"] = base64.b64encode(message.body).decode("ascii")
    return json.dumps(letter).encode("ascii") + b"\n"


def letter_of(line: bytes) -> Message | None:
    """Return the message in a line of dead letters. None: the line is something else."""
    try:
        letter = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if type(letter) is not dict or "reasons" not in letter or type(letter.get("topic")) is not str:
        return None
    arrival_ns = letter.get("arrival_ns")
    if arrival_ns is not None and type(arrival_ns) is not int:
        return None
    if type(text := letter.get("payload")) is str:
        return Message(text.encode("utf-8", "surrogatepass"), letter["topic"], arrival_ns)
    try:
        return Message(base64.b64decode(letter["payload_base64"]), letter["topic"], arrival_ns)
    except (KeyError, TypeError, ValueError):
        return None
