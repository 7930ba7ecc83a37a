"""Shared parts for monitor, top-k list and query definitions: capacity checks, and rejections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from api.errors import Fault, InvalidRequestError
from api.journal.storage import Reader

__all__ = ["check_room", "refused"]


async def check_room(
    rx: Reader,
    table: sa.Table,
    stream: tuple[int, str],
    most: tuple[int, int],
    error: Callable[[str, int, int], Exception],
) -> None:
    """Check whether one more row fits.

    Args:
        table: with a column ``stream_id``.
        stream: its id and name.
        most: rows per stream, and in all.
        error: made from the place with too many rows, their number, and the limit.

    Raises:
        Exception: that error.
    """
    count = sa.select(sa.func.count()).select_from(table)
    mine = count.where(table.c.stream_id == stream[0])
    for where, few, here in zip(
        (f"stream {stream[1]!r} has", "there are"), most, (mine, count), strict=True
    ):
        (there,) = (await rx.select(here))[0]
        if there >= few:
            raise error(where, there, few)


def refused(field: str, reason: str, value: Any, expected: Any = None) -> InvalidRequestError:
    """Return an error about a forbidden part of a definition."""
    fault = Fault(field=field, reason=reason, value=value, expected=expected)
    return InvalidRequestError(f"{field}: {reason}", [fault])
