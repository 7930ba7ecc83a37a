"""Response parts by RFC 9110: one byte range, or the complete response.

Table readers request some bytes first and all afterwards, in separate requests (polars, DuckDB and
object stores do). The server returns a part only if the response has a strong entity tag. It
ignores a header that it cannot read, or with several ranges, as the standard allows.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from starlette.exceptions import HTTPException

__all__ = ["part_of"]

_RANGE = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})")


def part_of(body: bytes, asked: str | None, if_range: str | None, tag: str) -> slice | None:
    """Return the bytes that a request asks for, or None for all.

    Args:
        body: the complete response.
        asked: ``Range``.
        if_range: ``If-Range``: return a part only if the response matches.
        tag: the response's entity tag.

    Raises:
        HTTPException: 416. The range begins after the last byte.
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
