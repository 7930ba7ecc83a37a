"""Connections that stay open: their places, and the events sent on them.

The number of places is bounded, and one key has a quarter of them at most. A connection ends when
its client does not read for ``READER_S``. After every ``BEAT_S`` without an event the server sends
a comment, so that proxies see a live connection. After ``LIFETIME_S`` it ends, and the
client reconnects.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

from fastapi.responses import StreamingResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import Message, Send

from api.errors import ServiceError
from api.http.caller import UnauthenticatedError
from api.http.refusals import TooManyLiveClientsError
from api.journal.log import StorageError
from decaysketch.errors import DecaySketchError

__all__ = [
    "BEAT_S",
    "COMMENT",
    "LIFETIME_S",
    "READER_S",
    "REASONS_TO_END",
    "RETRY",
    "EventResponse",
    "Places",
    "event",
    "happens",
]

BEAT_S = 15.0
LIFETIME_S = 3600.0
READER_S = 30.0
COMMENT = ":\n\n"

_RETRY_MS = 3000
RETRY = f"retry: {_RETRY_MS}\n\n"

_KEY_SHARE = 4  # one key has at most this part of the places

#: Reasons for the end of an event stream. The last message of a connection gives one.
REASONS_TO_END = (
    ServiceError,
    UnauthenticatedError,
    DecaySketchError,
    StorageError,
    SQLAlchemyError,
)


class Places:
    """Places for connections that stay open.

    Args:
        most: number of places.
        counted: called when a place becomes occupied (1) or free (-1).

    Attributes:
        taken: number of taken places.
        taken_by: the same, by the prefix of the key.
    """

    def __init__(self, most: int, counted: Callable[[int], None]) -> None:
        self._most = most
        self._counted = counted
        self.taken = 0
        self.taken_by: Counter[str | None] = Counter()

    @contextmanager
    def place(self, key: str | None) -> Iterator[None]:
        """Take a place as long as the context lasts.

        Args:
            key: the prefix of the key, if the request had one.

        Raises:
            TooManyLiveClientsError: all places are occupied, or all places for this key.
        """
        if self.taken >= self._most:
            raise TooManyLiveClientsError(self._most, _RETRY_MS // 1000)
        most = max(1, self._most // _KEY_SHARE)
        if key is not None and self.taken_by[key] >= most:
            raise TooManyLiveClientsError(most, _RETRY_MS // 1000, of_key=True)
        self.taken += 1
        self.taken_by[key] += 1
        self._counted(1)
        try:
            yield
        finally:
            self._counted(-1)
            self.taken -= 1
            self.taken_by[key] -= 1
            if not self.taken_by[key]:
                del self.taken_by[key]


class _SlowReaderError(Exception):
    """The client does not read the sent data."""


class EventResponse(StreamingResponse):
    """Server-sent events. Ends, and with it the connection, if the client does not read.

    Args:
        events: the events to send, each as :func:`event` returns it.
    """

    def __init__(self, events: AsyncIterator[str]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(READER_S):
                    await send(message)
            except TimeoutError:
                raise _SlowReaderError from None

        with suppress(_SlowReaderError):
            await super().stream_response(send_in_time)


async def happens(occasion: asyncio.Event, within_s: float) -> bool:
    """Return whether something happens within so many seconds."""
    try:
        async with asyncio.timeout(within_s):
            return await occasion.wait()
    except TimeoutError:
        return False


def event(kind: str, data: bytes, name: str | None = None) -> str:
    """Return an event. Its data, JSON without white space, is one line."""
    identity = "" if name is None else f"id: {name}\n"
    return f"event: {kind}\n{identity}data: {data.decode()}\n\n"
