"""Receive the events of a stream's monitors over a connection that reopens.

Only asyncio can stop waiting for bytes, so a threaded client runs an event loop for it. Events make
alerts fast, but no guarantee rests on them. Without events, a client learns the same from
responses.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import httpx2

from decaysketch.client.core import Core

__all__ = ["LONGEST_EVENT_BYTES", "SILENT_S", "Follower", "follow"]

SILENT_S = 45.0  # three times as long as the server leaves such a connection without a byte
LONGEST_EVENT_BYTES = 256 * 1024  # a definition lists its sites
_OK = 200


async def follow(core: Core, client: httpx2.AsyncClient, connect_s: float) -> None:
    """Receive events for as long as the task lives."""
    while True:
        try:
            why = await _follow_once(core, client, connect_s)
        except Exception as fault:  # any transport error: there are no events
            why = f"{type(fault).__name__}: {fault}"
        await asyncio.sleep(await asyncio.to_thread(core.parted, why))


async def _follow_once(core: Core, client: httpx2.AsyncClient, connect_s: float) -> str:
    """Receive events until the connection ends. Return the reason."""
    request = core.follow()
    async with client.stream(
        request.method, request.path, params=request.params,
        headers={"accept": "text/event-stream"},
        timeout=httpx2.Timeout(SILENT_S, connect=connect_s),
    ) as response:  # fmt: skip
        if response.status_code != _OK:
            return f"{response.status_code}"
        source = httpx2.EventSource(response, max_event_size=LONGEST_EVENT_BYTES)
        async for event in source:
            await asyncio.to_thread(core.heard, event.event, event.data)
    return "the connection has ended"


class Follower(threading.Thread):
    """An event loop in a thread.

    Args:
        core: the client's core.
        make_client: creates its own HTTP client.
        connect_s: seconds to wait for a connection.
    """

    def __init__(
        self, core: Core, make_client: Callable[[], httpx2.AsyncClient], connect_s: float
    ) -> None:
        super().__init__(name=f"decaysketch events {core.source}", daemon=True)
        self._core, self._make_client, self._connect_s = core, make_client, connect_s
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        """See :func:`follow`."""
        with suppress(asyncio.CancelledError):
            asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        async with self._make_client() as client:
            await follow(self._core, client, self._connect_s)

    def stop(self, timeout_s: float) -> None:
        """Stop, and wait for this many seconds."""
        self._begun.wait(timeout_s)
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)
        self.join(timeout_s)
