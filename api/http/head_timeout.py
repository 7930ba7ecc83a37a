"""HTTP/1.1 with a time limit for the head of a request, which uvicorn has none of.

A client that connects and says nothing, or sends its headers a byte at a time, would hold a
connection for ever. The body has its own limit, in ``middleware``; between two requests of a
connection ``timeout_keep_alive`` of uvicorn holds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEAD_TIMEOUT_S", "TimedProtocol"]

HEAD_TIMEOUT_S = 10.0


class TimedProtocol(H11Protocol):
    """Closes a connection whose request head is not complete ``HEAD_TIMEOUT_S`` after it could have
    begun."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._head_timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._close_if_no_head)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_if_no_head(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and self._is_idle:
            self.transport.close()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete
