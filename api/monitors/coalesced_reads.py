"""Polls of the database, one at a time.

A request for an unknown item may concern one that another process has only just written. It is
answered only after a poll that began later. Unknown names must not cost a poll each: waiting
requests share one, and it begins a pause after the last.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

__all__ = ["Looks"]


class Looks:
    """The polls that ``look`` makes.

    Args:
        look: reads the present state.
        pause_s: between two polls for unknown items.
    """

    def __init__(self, look: Callable[[], Awaitable[None]], pause_s: float) -> None:
        self._look, self._pause_s = look, pause_s
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
