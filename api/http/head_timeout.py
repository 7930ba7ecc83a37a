"""HTTP/1.1 with limits that uvicorn lacks: a time and a length for the head of a request, and a
time for a client that does not read.

A client that connects and sends nothing, or sends its headers a byte at a time, would occupy a
connection for ever. A client that sends endless headers would fill the memory. The body has its own
limits, in ``middleware``.

Sent data waits in this process for the client to read it. The next message waits until all of it
has left. The server closes a connection that takes no byte for ``READER_S``.

Between two requests a connection is kept for longer than periodic clients wait, such as Prometheus
and writers. A connection that closes just as the next request is sent causes an error in the
client's log, and a repeated post. Clients that keep many idle connections gain nothing: beyond a
few connections each is kept as briefly as uvicorn does it.

A client may close its side of the connection after its request, and wait for the response (shell
scripts with ``nc``, some embedded clients). A client that left looks the same at first. So the
response may be sent within ``HALF_CLOSED_S``. After that time the client counts as gone.

While the server inflates a long body, the remaining bytes wait in the kernel, and the connection's
end behind them. So :meth:`TimedProtocol.has_left` reads the end from the kernel, before each
inflated piece and each time slice.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = [
    "FEW_CONNECTIONS",
    "HALF_CLOSED_S",
    "HEAD_TIMEOUT_S",
    "KEPT_AMONG_MANY_S",
    "KEPT_S",
    "MAX_HEAD_BYTES",
    "READER_S",
    "TimedProtocol",
]

HEAD_TIMEOUT_S = 10.0
KEPT_S = 75.0
"""Seconds that a connection is kept between two requests. Prometheus requests each minute, and
nginx keeps its connections for a minute."""
FEW_CONNECTIONS = 256
"""Connections in one worker up to which each is kept for so long. A process has 1,024 files by
default."""
KEPT_AMONG_MANY_S = 5.0
HALF_CLOSED_S = 0.5
"""Seconds for the response to a client that closed its side, from the last byte of its body."""
MAX_HEAD_BYTES = 256 * 1024
"""The server reads no more of a head beyond this. A query in a URL has 16,000 characters with up to
12 bytes each."""

READER_S = 30.0
"""Longest time in which a client reads nothing although data wait for it."""

_LONGEST_PARSED = (1 << 16) - 1  # of an address, by httptools


class TimedProtocol(HttpToolsProtocol):
    """Closes a connection whose request head is not complete ``HEAD_TIMEOUT_S`` after it could have
    begun, or after ``MAX_HEAD_BYTES`` and the bytes read with them.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    _awaits_head = True  # of the first request, or the next one
    _head_begun = _request_ended = False
    _head_bytes = 0
    _ended_at = 0.0  # time of the last byte of a request
    _closes_soon = False  # the client closed its side

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # any waiting byte is over the limit
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        self._request_ended = False
        super().data_received(data)
        # Empty lines, of which no head begins, are waiting for one as well.
        if self._awaits_head and (self._head_begun or not self._request_ended):
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(
                    f"The request head is too long; expected at most {MAX_HEAD_BYTES} bytes."
                )
            elif self._head_timer is None:
                self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_begun = True

    def on_headers_complete(self) -> None:
        query = b""
        if len(self.url) > _LONGEST_PARSED:
            self.url, _, query = self.url.partition(b"?")
        super().on_headers_complete()
        if query:
            self.scope["query_string"] = query
        self.scope["state"]["has_left"] = self.has_left
        self._awaits_head = self._head_begun = False
        self._head_bytes = 0
        self._stop_timer()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._awaits_head = self._request_ended = True
        self._ended_at = self.loop.time()

    def on_response_complete(self) -> None:
        few = len(self.connections) <= FEW_CONNECTIONS
        self.timeout_keep_alive = KEPT_S if few else KEPT_AMONG_MANY_S  # type: ignore[assignment]
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_reader_timer()

    def _watch_reader(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(READER_S, self._cut_off_if_unread, waiting)

    def _cut_off_if_unread(self, waiting: int) -> None:
        if self.transport.get_write_buffer_size() < waiting:
            self._watch_reader()
        else:
            self.transport.abort()  # to close it would wait for the client once more

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def eof_received(self) -> bool | None:  # type: ignore[override]
        cycle = self.cycle
        if cycle is None or cycle.response_started or cycle.more_body or self.pipeline:
            return None
        cycle.keep_alive = False
        self._close_at(self._ended_at + HALF_CLOSED_S)
        return True

    def has_left(self) -> bool:
        """Return whether the client counts as gone. Costs a system call. Not thread-safe."""
        if not self._closes_soon and _has_closed_its_side(self.transport):
            self._close_at(self.loop.time() + HALF_CLOSED_S)
        return bool(self.transport.is_closing())

    def _close_at(self, time: float) -> None:
        if not self._closes_soon:
            self._closes_soon = True
            self.loop.call_at(time, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reader_timer()
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._close_if_no_head)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_if_no_head(self) -> None:
        if self._is_idle:
            self._head_timer = None
            self.transport.close()
        else:  # the answer to a request before is under way
            self._start_timer()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete


def _has_closed_its_side(transport: asyncio.Transport) -> bool:
    """Return whether the kernel has the end of the client's bytes, even behind unread ones. False
    on systems without such a report, where the server sees the end once it has read all bytes.
    """
    if _CLOSED is None or transport.is_closing():
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), _CLOSED)
    return bool(poll.poll(0))


_CLOSED: int | None = getattr(select, "POLLRDHUP", None)  # Linux
