"""A line of the log, and a count, for every request.

The line is written when the response has ended: id, method, template of the route (never the path,
and never the query string), status, duration, bytes, the public prefix of the key, the stream if it
has the form of a name. No body, no secret and no header is ever written, and the line is never
long.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import schemas
from api.http.middleware import stand_outside
from api.logs import REQUEST_ID

__all__ = ["RequestLog", "install"]

_requests = logging.getLogger("api.requests")
_QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds, for ever
_OF_A_STREAM = "/v1/streams/{name}"
_METHOD_LENGTH = 20
_STREAM = re.compile(schemas.STREAM)


def install(app: FastAPI) -> None:
    """Write a line for every request, and count it. Add this last, outside all other layers."""
    stand_outside(app, RequestLog)


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
