"""Work besides requests: computations on a few threads, and periodic work in tasks.

:class:`Threads` runs CPU-bound work, so that the event loop stays free.

:class:`Background` runs one round after the other, for as long as the process serves. A round that
raises ends nothing but itself. It is logged with its traceback and counted, and after
a pause the next round begins. Until one ends well the process does not report that it is ready.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ParamSpec, Protocol, TypeVar

from api.service.observer import Observer

__all__ = ["Background", "Compute", "Precedence", "Threads", "pause_s", "pools"]

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_S = 0.03


class Compute(Protocol):
    """Runs a function and waits for its result without blocking other work."""

    async def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


class Precedence:
    """Urgent work goes before work that can wait a moment, as long as both get their share.

    Work that gives way begins up to 30 ms later. For as long as it was delayed it is not delayed
    again: however much goes first, half of the time is left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = threading.Event()
        self._free.set()
        self._first = 0  # so many go first now
        self._held_since = self._not_before = 0.0

    @contextmanager
    def first(self) -> Iterator[None]:
        """Go first, as long as the context lasts."""
        with self._lock:
            now = time.monotonic()
            self._first += 1
            if self._free.is_set() and now >= self._not_before:
                self._held_since = now
                self._free.clear()
        try:
            yield
        finally:
            with self._lock:
                self._first -= 1
                if not self._first:
                    self._let_go()

    def give_way(self) -> None:
        """Wait for work that goes first, or until it has delayed this work for long enough."""
        if self._free.is_set():
            return
        with self._lock:
            left = self._held_since + _LONGEST_S - time.monotonic()
        if not self._free.wait(max(0.0, left)):
            with self._lock:
                self._let_go()

    def _let_go(self) -> None:
        if not self._free.is_set():
            now = time.monotonic()
            self._not_before = now + (now - self._held_since)
            self._free.set()


class Threads:
    """A pool of threads. The library's kernels do not hold the interpreter's lock.

    Args:
        count: number of threads.
        name: prefix of the thread names.
        first: the work in this pool gives way to work that goes first there.
        ahead: the work in this pool goes first there, and other work gives way to it.
    """

    def __init__(
        self,
        count: int,
        name: str = "compute",
        *,
        first: Precedence | None = None,
        ahead: Precedence | None = None,
    ) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._first, self._ahead = first, ahead

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.going_first():
            return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function as soon as a thread is free."""

        def run() -> T:
            if self._first is not None:
                self._first.give_way()
            return function(*args, **kwargs)

        return self._pool.submit(run)

    def going_first(self) -> AbstractContextManager[None]:
        """Precede work that gives way to the work here, from the moment it waits for a thread."""
        return nullcontext() if self._ahead is None else self._ahead.first()

    def close(self) -> None:
        """Wait for running work. Accept nothing more."""
        self._pool.shutdown()


def pools(count: int) -> tuple[Threads, Threads]:
    """Return threads for posts, ``count`` in number, and threads for queries, which go first. No
    query waits behind earlier posts, and a core is left for the posts.
    """
    precedence = Precedence()
    posts = Threads(count, first=precedence)
    return posts, Threads(max(1, count - 1), "queries", ahead=precedence)


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
