"""Files that are on stable storage when the call returns, readable by the owner only."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["OWNER_ALONE", "TEMPORARY", "sync_directory", "write_whole"]

OWNER_ALONE = 0o600
TEMPORARY = ".tmp"
"""Ending of a file's name until the file is complete."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely, or leave the previous one. Nobody else may read it.

    Raises:
        OSError: the disk failed.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, OWNER_ALONE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs its bytes
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Write a directory's names to stable storage.

    Raises:
        OSError: the disk failed.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
