"""Looks at what the database has, one at a time.

Whoever asks for something that this process does not know may ask for what another one has only
just written, and is told only after a look that began later. Names that nobody has must not cost a
look each: those who wait share one, and it begins a pause after the last.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

__all__ = ["Looks"]


class Looks:
    """Whose looks ``look`` makes.

    Args:
        look: finds out what there is.
        pause_s: between two looks of those who ask for what is not known.
    """

    def __init__(self, look: Callable[[], Awaitable[None]], pause_s: float) -> None:
        self._look, self._pause_s = look, pause_s
        self._began_s = -math.inf
        self._fault: Exception | None = None
        self._one = asyncio.Lock()

    @property
    def age_s(self) -> float:
        """Since the last one began."""
        return asyncio.get_running_loop().time() - self._began_s

    async def now(self) -> None:
        """One more."""
        async with self._one:
            await self._begin()

    async def later(self) -> None:
        """One that began after this was called, of whoever it is.

        Raises:
            Exception: what that look has raised.
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
