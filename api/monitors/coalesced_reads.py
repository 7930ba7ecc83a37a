"""Polls of the database, one at a time.

A request for an unknown item may concern one that another process has only just written. It is
answered only after a poll that began later. Unknown names must not cost a poll each: waiting
requests share one, and it begins a pause after the last.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from api.journal.log import StorageError
from api.logs import Seldom

__all__ = ["Looks"]

_log = logging.getLogger(__name__)


class Looks:
    """The polls that ``look`` makes.

    Args:
        what: name of the state, for log lines.
        look: reads the present state.
        pause_s: between two polls for unknown items.
    """

    def __init__(self, what: str, look: Callable[[], Awaitable[None]], pause_s: float) -> None:
        self._what, self._look, self._pause_s = what, look, pause_s
        self._failing = Seldom(_log)
        self._began_s = -math.inf
        self._fault: Exception | None = None
        self._one = asyncio.Lock()

    @property
    def age_s(self) -> float:
        """Return the seconds since the last poll began."""
        return asyncio.get_running_loop().time() - self._began_s

    async def now(self) -> None:
        """Poll once more."""
        async with self._one:
            await self._begin()

    async def watch(self) -> None:
        """Poll once more. An unreachable database is logged, not raised."""
        try:
            await self.now()
        except StorageError as error:
            self._failing.say(logging.ERROR, "cannot read %s: %s", self._what, error)
        else:
            self._failing.over()

    async def later(self) -> None:
        """Wait for a poll that began after this call, by any caller.

        Raises:
            Exception: any exception of that poll.
        """
        asked_s = asyncio.get_running_loop().time()
        await asyncio.sleep(self._pause_s - self.age_s)
        async with self._one:
            if self._began_s <= asked_s:
                await self._begin()
            elif self._fault is not None:
                raise self._fault

    async def _begin(self) -> None:
        self._began_s, self._fault = asyncio.get_running_loop().time(), None
        try:
            await self._look()
        except Exception as fault:
            self._fault = fault
            raise
