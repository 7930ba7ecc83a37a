"""Responses that are sent no faster than the client reads, within a budget for each key.

The server receives a body in pieces, each when the previous one has left this process
(:mod:`api.http.head_timeout` closes connections that take no bytes for a while). Until then all of
it counts. Otherwise a client that reads nothing could keep a response in memory for as long as it
likes, at the price of a line. Event streams have no length and are sent as they come.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.problems import answer_to
from api.http.refusals import ResponsesInFlightError
from api.service.shares import Shares

__all__ = ["PIECE_BYTES", "Responses"]

PIECE_BYTES = 16 * 1024
"""A shorter body is sent at once and not counted."""


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
                length = int(Headers(raw=message.get("headers", [])).get("content-length", 0))
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
            self.shares.change(caller, -held)


async def _send_pieces(message: Message, send: Send) -> None:
    """Send a body. The last message, which is empty, waits until all earlier ones have left."""
    body = message.get("body", b"")
    for begin in range(0, len(body), PIECE_BYTES):
        piece = body[begin : begin + PIECE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    if not message.get("more_body", False):
        await send({"type": "http.response.body", "body": b"", "more_body": False})
