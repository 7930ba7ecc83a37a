"""Whose work a request is."""

from __future__ import annotations

from fastapi import Request

from api.access.keys import Caller
from api.access.rates import address_of

__all__ = ["asker"]


def asker(request: Request) -> str:
    """Who answers for what a request takes: its key, or where it shows none its address."""
    caller: Caller | None = request.scope.get("state", {}).get("caller")
    if caller is not None and caller.prefix is not None:
        return f"key {caller.prefix}"
    return address_of("unknown" if request.client is None else request.client.host)
