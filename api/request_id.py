"""The id of the request being served, for the log and for whoever asks about an answer."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

__all__ = ["HEADER", "REQUEST_ID", "accepted_or_new"]

HEADER = "X-Request-Id"

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Set for as long as a request is served, in every task and thread that it starts."""

_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def accepted_or_new(given: str | None) -> str:
    """The id that the client or a proxy gave, if it can do no harm in a log; else a new one."""
    if given is not None and _WELL_FORMED.fullmatch(given):
        return given
    return secrets.token_hex(8)
