"""The layers that a response passes on its way out, outermost first.

- ``RequestLog``: a line of the log, and a count, when the response has ended. The line has id,
  method, template of the route (never the path, and never the query string), status, duration,
  bytes, the public prefix of the key, the stream if it has the form of a name. No body, no secret
  and no header is ever written, and the line is never long.
- ``HeadRequests``: HEAD by RFC 9110, the response to GET without the content. No route handles
  HEAD. The request goes in as GET, through the same guards and to the same headers (length and
  entity tag among them), and only the head of the response goes out. An endless response, such as
  live results, ends with its head: at its first piece the route learns that no client reads. The
  service description does not list HEAD.
- ``Envelope``: the request id and the security headers for browsers, on every response, including
  internal errors. It sends no traceback.
- ``Responses``: a response leaves no faster than the client reads, within a budget for each key.
  The server receives a body in pieces, each when the previous one has left this process
  (:mod:`api.http.head_timeout` closes connections that take no bytes for a while). Until then all
  of it counts. Otherwise a client that reads nothing could keep a response in memory for as long as
  it likes, at the price of a line. Event streams have no length and are sent as they come.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import schemas
from api.http.problems import answer_to
from api.http.refusals import ResponsesInFlightError
from api.logs import REQUEST_ID
from api.service.budget import Shares

__all__ = [
    "HEADER",
    "PIECE_BYTES",
    "Envelope",
    "HeadRequests",
    "RequestLog",
    "Responses",
    "accepted_or_new",
    "header_of",
]

HEADER = "X-Request-Id"

# Unique, not secret: a draw from the system for each request would cost more than the log line.
_PROCESS = secrets.token_hex(6)
_NUMBERS = itertools.count(1)

_ID_NAME = HEADER.lower().encode("ascii")

_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def accepted_or_new(given: str | None) -> str:
    """Return the id from the client or a proxy if it is safe in a log, else a new one."""
    if given is not None and _WELL_FORMED.fullmatch(given):
        return given
    return f"{_PROCESS}-{next(_NUMBERS):x}"


def header_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the first header with a name, as Starlette's ``Headers`` do. They decode all names,
    and this is done several times for each request.
    """
    for each, value in headers:
        if each == name:
            return value.decode("latin-1")
    return None


_requests = logging.getLogger("api.requests")
_QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})  # polled every few seconds
_OF_A_STREAM = "/v1/streams/{name}"
_METHOD_LENGTH = 20
_STREAM = re.compile(schemas.STREAM)


class RequestLog:
    """One line and one count per request, by ``app.state.metrics``."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status, received_bytes, sent_bytes = 0, 0, 0

        async def counting_receive() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            return message

        async def counting_send(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, counting_receive, counting_send)
        except Exception:
            status = status or HTTPStatus.INTERNAL_SERVER_ERROR.value
            raise
        finally:
            # Until its task has ended: the server may still have to say something.
            REQUEST_ID.set(scope.get("state", {}).get("request_id"))
            _record(scope, status, time.perf_counter() - began, received_bytes, sent_bytes)


def _record(scope: Scope, status: int, seconds: float, received: int, sent: int) -> None:
    """Write the line. Status 0: the client left before there was a response."""
    route = getattr(scope.get("route"), "path", "")
    scope["app"].state.metrics.requested(scope["method"], route, status, seconds, received, sent)
    level = logging.DEBUG if route in _QUIET_ROUTES and status < 400 else logging.INFO
    if not _requests.isEnabledFor(level):
        return
    caller = scope.get("state", {}).get("caller")
    fields = {
        "method": scope["method"][:_METHOD_LENGTH],
        "route": route or None,
        "status": status,
        "duration_ms": round(1000 * seconds, 3),
        "received_bytes": received,
        "sent_bytes": sent,
        "key": getattr(caller, "prefix", None),
        "stream": _stream(route, scope.get("path_params", {})),
    }
    said = {name: value for name, value in fields.items() if value is not None}
    # As ``log`` does, which looks first from where it was called.
    record = _requests.makeRecord(
        _requests.name, level, __file__, 0, "request", (), None, extra={"fields": said}
    )
    _requests.handle(record)


def _stream(route: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the stream in the path, if it can be one: a client may request any path."""
    name = parameters.get("name", "")
    is_one = route.startswith(_OF_A_STREAM) and _STREAM.fullmatch(name)
    return name if is_one else None


class _ToldError(Exception):
    """The head is sent. No client reads the pieces that the route would send now."""


class HeadRequests:
    """Answers HEAD with the head of the response to GET. ``app`` receives GET.

    Outer layers, such as the log, see HEAD: this class restores the request's method.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        told = False

        async def send_as_head(message: Message) -> None:
            scope["method"] = "HEAD"  # which the server looks at
            try:
                await send(message)
            finally:
                scope["method"] = "GET"

        async def send_head(message: Message) -> None:
            nonlocal told
            if message["type"] == "http.response.start":
                await send_as_head(message)
            elif message["type"] == "http.response.body" and not told:
                told = True
                await send_as_head({"type": "http.response.body", "body": b"", "more_body": False})
            if message.get("more_body"):
                raise _ToldError

        # A range means nothing to HEAD: it asks for the head of the whole.
        scope["headers"] = [each for each in scope["headers"] if each[0] != b"range"]
        scope["method"] = "GET"
        try:
            await self.app(scope, receive, send_head)
        except _ToldError:
            pass
        finally:
            scope["method"] = "HEAD"


PIECE_BYTES = 16 * 1024
"""A shorter body is sent at once and not counted."""


_SECURITY_HEADERS = Headers(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'",
        "Cache-Control": "no-store",
        "Cross-Origin-Embedder-Policy": "require-corp",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
).raw


class Envelope:
    """The request id, and security headers where the response has none."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, partial(_send_in_short, send))
            return
        request_id = accepted_or_new(header_of(scope["headers"], _ID_NAME))
        header = _ID_NAME, request_id.encode("ascii")
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = message.get("headers", ())
                given = {name for name, _ in headers}
                message["headers"] = [
                    *(each for each in headers if each[0] != _ID_NAME),
                    header,
                    *(each for each in _SECURITY_HEADERS if each[0] not in given),
                ]
            await send(message)

        scope.setdefault("state", {})["request_id"] = request_id
        token = REQUEST_ID.set(request_id)
        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if not started:
                await answer_to(error)(scope, receive, send_with_headers)
            raise  # for the log of the server
        finally:
            REQUEST_ID.reset(token)


async def _send_in_short(send: Send, message: Message) -> None:
    """Hide a failed start, which is in the log, from the server in front."""
    if message["type"] == "lifespan.startup.failed":
        message = {"type": message["type"]}  # without the traceback
    await send(message)


class Responses:
    """Bounds all response bytes that are being sent, and the bytes per key.

    Args:
        app: the next layer.
        limit_bytes: most bytes together. A response that is alone may be longer.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self.app = app
        self.shares = Shares(limit_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        caller = getattr(scope.get("state", {}).get("caller"), "prefix", None)
        held = 0
        is_refused = False

        async def send_in_pieces(message: Message) -> None:
            nonlocal held, is_refused
            if is_refused:
                return
            if message["type"] == "http.response.start":
                length = int(header_of(message.get("headers", ()), b"content-length") or 0)
                if length > PIECE_BYTES and not self.shares.fits(caller, length):
                    is_refused = True
                    refusal = answer_to(ResponsesInFlightError(self.shares.limit))
                    await refusal(scope, receive, send)
                    return
                if length > PIECE_BYTES:
                    held = length
                    self.shares.change(caller, held)
            elif message["type"] == "http.response.body" and held:
                await _send_pieces(message, send)
                return
            await send(message)

        try:
            await self.app(scope, receive, send_in_pieces)
        finally:
            if held:
                self.shares.change(caller, -held)


async def _send_pieces(message: Message, send: Send) -> None:
    """Send a body. The last message, which is empty, waits until all earlier ones have left."""
    body = message.get("body", b"")
    for begin in range(0, len(body), PIECE_BYTES):
        piece = body[begin : begin + PIECE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    if not message.get("more_body", False):
        await send({"type": "http.response.body", "body": b"", "more_body": False})
