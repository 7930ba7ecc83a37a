"""Periodic background work: one round after the other, for as long as the process serves.

A round that raises ends nothing but itself. It is logged with its traceback and counted, and after
a pause the next round begins. Until one ends well the process does not report that it is ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from api.service.observer import Observer

__all__ = ["Background", "pause_s"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


def pause_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row."""
    return float(min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 16), _LONGEST_PAUSE_S))


class Background:
    """Tasks of one event loop.

    Args:
        observer: listens to failures.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._tasks: list[asyncio.Task[None]] = []
        self._failures: dict[str, int] = {}  # in a row, of tasks that fail now

    def run(self, name: str, one_round: Callable[[], Awaitable[None]]) -> None:
        """Start a task.

        Args:
            name: for people and counters.
            one_round: called repeatedly. It waits for something each time.
        """
        task = asyncio.create_task(self._rounds(name, one_round), name=name)
        task.add_done_callback(_report_end)
        self._tasks.append(task)

    def failed(self, name: str, error: Exception, what: str) -> None:
        """Log and count a failure within a task. The task goes on."""
        _log.error("%s has failed: %s; it will be tried again", name, what, exc_info=error)
        self._observer.failed(name)

    @property
    def running(self) -> bool:
        """Return whether every task is there."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def failing(self) -> list[str]:
        """Return the names of the tasks whose last round failed."""
        return sorted(self._failures)

    async def close(self) -> None:
        """End them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _rounds(self, name: str, one_round: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await one_round()
            except Exception as error:
                self._failures[name] = self._failures.get(name, 0) + 1
                self.failed(name, error, f"{type(error).__name__}, {self._failures[name]} in a row")
                await asyncio.sleep(pause_s(self._failures[name]))
            else:
                self._failures.pop(name, None)


def _report_end(task: asyncio.Task[None]) -> None:
    """Report that a task has ended. No task ends by itself, and without it this process is not
    ready.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("a task has ended; this process must be restarted", exc_info=error)
