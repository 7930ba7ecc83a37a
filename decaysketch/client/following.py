"""The events of a stream's monitors, brought to a sensor: a connection that is made again.

Only asyncio can be told to stop waiting for bytes, so a sensor that has threads gives one to a loop
of its own. Events are what makes an alert quick, and nothing rests on them: where they cannot be
had the sensor hears the same from answers.
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
    """Bring events for as long as the task lives."""
    while True:
        try:
            why = await _follow_once(core, client, connect_s)
        except Exception as fault:  # whatever a transport has: there are no events
            why = f"{type(fault).__name__}: {fault}"
        await asyncio.sleep(await asyncio.to_thread(core.parted, why))


async def _follow_once(core: Core, client: httpx2.AsyncClient, connect_s: float) -> str:
    """Until there are no more; why."""
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
    """A loop in a thread.

    Args:
        core: of the sensor.
        make_client: a client of its own.
        connect_s: patience for a connection.
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
        """Come to an end; it is waited for so long."""
        self._begun.wait(timeout_s)
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)
        self.join(timeout_s)
