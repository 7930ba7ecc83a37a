"""Ports for servers of studies and tests that run at the same time."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

__all__ = ["free_port"]

# Below those that a system gives to whoever asks for any, connections among them.
_FIRST, _LAST = 20_000, 32_000


def free_port() -> int:
    """A port of loopback on which nobody listens, and which no other process is told soon.

    A port that the system chose and that was let go of is one that the system may choose again
    before the server it was meant for listens there: what is meant for one server reaches another.
    """
    path = Path(tempfile.gettempdir()) / f"decaysketch-port-{os.getuid()}"
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or _FIRST)
        while not _is_free(port):
            port = _next(port)
        file.truncate(0)
        file.write(str(_next(port)))
    return port


def _next(port: int) -> int:
    return port + 1 if port < _LAST else _FIRST


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
