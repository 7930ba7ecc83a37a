"""The id of the current request, for the log and for questions about a response."""

from __future__ import annotations

import itertools
import re
import secrets

__all__ = ["HEADER", "accepted_or_new"]

HEADER = "X-Request-Id"

# Unique, not secret: a draw from the system for each request would cost more than the log line.
_PROCESS = secrets.token_hex(6)
_NUMBERS = itertools.count(1)

_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def accepted_or_new(given: str | None) -> str:
    """Return the id from the client or a proxy if it is safe in a log, else a new one."""
    if given is not None and _WELL_FORMED.fullmatch(given):
        return given
    return f"{_PROCESS}-{next(_NUMBERS):x}"
