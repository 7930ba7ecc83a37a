"""The caller that a request is charged to, and whether the client still waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from api.access.keys import Caller
from api.access.rates import address_of
from api.http.refusals import ClientLeftError

__all__ = ["as_long_as_connected", "asker", "caller_of"]


def caller_of(request: Request) -> Caller | None:
    """Return the authenticated caller, or None if there is none."""
    caller: Caller | None = request.scope.get("state", {}).get("caller")
    return caller


def asker(request: Request) -> str:
    """Return the caller that a request is charged to: its key, or its address where it has no
    key.
    """
    caller = caller_of(request)
    if caller is not None and caller.prefix is not None:
        return f"key {caller.prefix}"
    return address_of("unknown" if request.client is None else request.client.host)


@asynccontextmanager
async def as_long_as_connected(request: Request) -> AsyncIterator[None]:
    """Cancel the work in this context as soon as the client leaves. The body must have been read.

    Raises:
        ClientLeftError: the client has left.
    """
    task = asyncio.current_task()
    assert task is not None
    left = False

    async def watch() -> None:
        nonlocal left
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if left and not task.uncancel():
            raise ClientLeftError from None
        raise
    finally:
        watching.cancel()
