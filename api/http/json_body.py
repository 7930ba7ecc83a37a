"""JSON bodies: weighed before they are parsed, parsed beside the event loop, and once.

The parser holds the interpreter's lock from the first byte to the last, and makes of three bytes,
``{},``, an object of 64. So a text is weighed first: what it would become has about as many values
as it has brackets and commas outside of texts, and to count those takes a nanosecond a byte and no
memory. What has more of them than any sound request is refused unparsed.

Routes of :class:`JsonRoute` have a request whose ``json()`` does that; whoever asks again (the
guard that looks for streams, FastAPI, the reader of queries) is given what was parsed before. Raw
observations are read elsewhere (``ingest``), row by row, and weighed there with :func:`parts`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import numpy as np
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

__all__ = ["MOST_PARTS", "JsonRoute", "TooManyPartsError", "not_json", "parse", "parts"]

MOST_PARTS = 100_000
"""Brackets and commas of a body. A request at every limit of its lists has 70,000: 20,000 shares of
quantiles, 5,000 steps of decays, 2,000 queries of ten fields, 10,000 times, 1,000 sources."""

_AT_ONCE_BYTES = 16 << 10  # parsed in 0.3 ms at worst: to hand it to a thread takes as long
_MARKS = b"[{,"
_QUOTE = b'"'
_OTHERS = bytes(set(range(256)) - {*_MARKS, *_QUOTE})


class TooManyPartsError(HTTPException):
    """A body would become more than any request is. (An HTTPException, as for all bodies.)"""

    def __init__(self, found: int, most: int) -> None:
        super().__init__(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has {found} brackets and commas; at most {most} are read",
        )


def parts(text: bytes, enough: int) -> int:
    """Opening brackets and commas outside of the texts of a JSON text: it has no more values than
    these and one. Where there are at most ``enough`` of them with those inside of texts, it is that
    number. O(n) time and memory whatever the bytes are; of what the parser would not come to,
    behind a fault, any number may be counted."""
    found = text.count(b"[") + text.count(b"{") + text.count(b",")
    if found <= enough or _QUOTE not in text:
        return found
    return _outside_of_texts(text)


def _outside_of_texts(text: bytes) -> int:
    """Marks behind an even number of quotes, once those that are escaped are out of the way."""
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    marks = np.frombuffer(plain, np.uint8)
    quotes = marks == ord(_QUOTE)
    inside = np.logical_xor.accumulate(quotes)
    return int(np.count_nonzero(~(quotes | inside)))


def parse(text: bytes, most_parts: int = MOST_PARTS) -> Any:
    """What JSON in UTF-8 says.

    Raises:
        TooManyPartsError: it would become more than ``most_parts`` values.
        json.JSONDecodeError: it is none; the message and the place say why.
    """
    if (found := parts(text, most_parts)) > most_parts:
        raise TooManyPartsError(found, most_parts)
    try:
        return json.loads(text.decode("utf-8-sig"))
    except json.JSONDecodeError:
        raise
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError("not UTF-8", "", error.start) from None
    except (RecursionError, ValueError):
        raise json.JSONDecodeError("too deep, or a number too long", "", 0) from None


def not_json(error: json.JSONDecodeError) -> RequestValidationError:
    """As FastAPI says it of a body that it asks for itself."""
    fault = {"type": "json_invalid", "loc": ("body", error.pos), "msg": ""}
    return RequestValidationError([{**fault, "ctx": {"error": error.msg}}])


class _ReadOnce(Request):
    """A request whose ``json()`` parses its body once, whoever asks and however it ends."""

    _outcome: tuple[Any, Exception | None] | None = None

    async def json(self) -> Any:
        if self._outcome is None:
            body = await self.body()
            at_once = len(body) <= _AT_ONCE_BYTES
            self._outcome = _try(body) if at_once else await asyncio.to_thread(_try, body)
        value, error = self._outcome
        if error is not None:
            raise error
        return value


def _try(body: bytes) -> tuple[Any, Exception | None]:
    try:
        return parse(body), None
    except (json.JSONDecodeError, TooManyPartsError) as error:
        return None, error


class JsonRoute(APIRoute):
    """A route that takes JSON: its request is parsed once, and never on the event loop if it is
    long."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_ReadOnce(request.scope, request.receive))

        return handle
