"""Run CPU-bound work on a few threads, so that the event loop stays free."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ParamSpec, Protocol, TypeVar

__all__ = ["Compute", "Precedence", "Threads", "pools"]

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
        count: how many.
        name: of the threads.
        first: work that goes before the work here.
        ahead: work that the work here precedes.
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
