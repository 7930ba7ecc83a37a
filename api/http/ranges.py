"""Parts of an answer, as RFC 9110 has them: one range of bytes, or the whole.

Readers of tables ask for some bytes first and for all afterwards, in requests of their own (polars,
DuckDB and object stores do). A part is given of what has a strong entity tag; a header that cannot
be read, or names several ranges, is ignored, as the standard allows.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from starlette.exceptions import HTTPException

__all__ = ["part_of"]

_RANGE = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})")


def part_of(body: bytes, asked: str | None, if_range: str | None, tag: str) -> slice | None:
    """The bytes that a request asks for; None: all of them.

    Args:
        body: the whole answer.
        asked: ``Range``.
        if_range: ``If-Range``: only of what this names.
        tag: entity tag of the answer.

    Raises:
        HTTPException: 416; the range begins after the last byte.
    """
    found = None if asked is None else _RANGE.fullmatch(asked.strip())
    if found is None or (if_range is not None and if_range.strip() != tag):
        return None
    first, last = found.groups()
    if not first and not last:
        return None
    length = len(body)
    start = int(first) if first else max(0, length - int(last))
    stop = min(length, int(last) + 1) if first and last else length
    if first and last and int(last) < int(first):
        return None  # no range at all
    if start >= stop:
        raise HTTPException(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            f"the range {asked!r} begins after the last of {length} bytes",
            {"Content-Range": f"bytes */{length}", "Accept-Ranges": "bytes"},
        )
    return slice(start, stop)
