"""A log's content: its files, the separately stored parts, and whether a part has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyarrow import fs

from decaysketch.cli.output import CommandError, human_bytes
from decaysketch.spark.splits import LogFile, find_files, is_uri

__all__ = ["FINGERPRINTS", "Fingerprint", "Input", "changes", "inputs"]

#: How a change is noticed: by names, sizes and times of files, or by all that is in them.
Fingerprint = Literal["stat", "content"]
FINGERPRINTS: tuple[Fingerprint, ...] = ("stat", "content")

_READ_AT_A_TIME = 1 << 20


@dataclass(frozen=True, slots=True)
class Input:
    """A part of a log, or the complete log.

    Attributes:
        label: the entry's name in the log's folder. "" for the complete log.
        files: its files.
        fingerprint: JSON-ready. Equal as long as nothing has changed.
    """

    label: str
    files: tuple[LogFile, ...]
    fingerprint: dict[str, Any]

    @property
    def size(self) -> int:
        """Its files' bytes."""
        return sum(file.size_bytes for file in self.files)


def inputs(log: str, *, apart: bool = False, by: Fingerprint = "stat") -> dict[str, Input]:
    """Return a log's parts, by label.

    Args:
        log: a file or a folder, as a path or URI.
        apart: each entry of the folder is a part, a file or a folder with its content.
        by: the way to detect a change.

    Raises:
        CommandError: its files cannot be listed here.
        FileNotFoundError: it does not exist.
    """
    files = find_files(log)
    if files is None:
        raise CommandError(
            f"{log} is on a file system that only Spark can read; expected another one"
        )
    found: dict[str, list[LogFile]] = {} if apart else {"": []}
    for file in files:
        found.setdefault(file.parts[0] if apart else "", []).append(file)
    return {
        label: Input(label, tuple(listed), _fingerprint(listed, by))
        for label, listed in sorted(found.items())
    }


def _fingerprint(files: Sequence[LogFile], by: Fingerprint) -> dict[str, Any]:
    digest = hashlib.sha256()
    for file in files:
        state = file.modified_ns if by == "stat" else _content_digest(file.path)
        digest.update(f"{'/'.join(file.parts)}\0{file.size_bytes}\0{state}\0".encode())
    return {
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
        "of": by,
        "sha256": digest.hexdigest(),
    }


def _content_digest(path: str) -> str:
    system, name = fs.FileSystem.from_uri(path) if is_uri(path) else (fs.LocalFileSystem(), path)
    digest = hashlib.sha256()
    with system.open_input_stream(name) as stream:
        while part := stream.read(_READ_AT_A_TIME):
            digest.update(part)
    return digest.hexdigest()


def changes(
    before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Input]
) -> dict[str, tuple[str, str]]:
    """Return each label's change, "added", "changed" or "removed", and the evidence for it."""
    found = {label: ("removed", "it no longer exists") for label in before if label not in now}
    for label, part in now.items():
        if label not in before:
            found[label] = ("added", f"{len(part.files):,} files, {human_bytes(part.size)}")
        elif before[label] != part.fingerprint:
            found[label] = ("changed", _difference(before[label], part.fingerprint))
    return dict(sorted(found.items()))


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    parts = []
    if before["files"] != now["files"]:
        parts.append(f"{now['files']:,} files, were {before['files']:,}")
    if before["bytes"] != now["bytes"]:
        parts.append(f"{human_bytes(now['bytes'])}, were {human_bytes(before['bytes'])}")
    other = "other content" if now["of"] == "content" else "written since"
    return "; ".join(parts) or f"the same size, {other}"
