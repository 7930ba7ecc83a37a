"""Recorded messages through the mappings of a bridge: dead letters, or lines that are messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from decaysketch.ingest.bridge.dead_letters import letter_of
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.documents import Message

__all__ = ["batches", "files_of"]


def files_of(path: Path) -> list[Path]:
    """Return a file, or all ``*.ndjson`` of a folder, in name order."""
    return sorted(path.glob("*.ndjson")) if path.is_dir() else [path]


def batches(path: Path, topic: str, size: int) -> Iterator[list[Arrived]]:
    """Yield the messages of a file.

    Args:
        path: a file of lines; each is a dead letter, or else the body of a message.
        topic: for messages that name none.
        size: messages in one batch.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as lines:
        messages = (_message(line.strip(), topic) for line in lines if line.strip())
        while batch := list(islice(messages, size)):
            yield batch


def _message(line: bytes, topic: str) -> Arrived:
    letter = letter_of(line)
    return Arrived(Message(line, topic) if letter is None else letter)
