"""Where work of the processor runs: on a few threads, so that the event loop stays free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

__all__ = ["Compute", "Threads"]

P = ParamSpec("P")
T = TypeVar("T")


class Compute(Protocol):
    """Runs a function and waits for its result without holding up anything else."""

    async def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


class Threads:
    """A pool of threads; the library's kernels do not hold the interpreter's lock.

    Args:
        count: how many.
        name: of the threads.
    """

    def __init__(self, count: int, name: str = "compute") -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Wait for what runs; take nothing more."""
        self._pool.shutdown()
