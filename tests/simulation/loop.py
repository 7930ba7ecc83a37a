"""A deterministic asyncio event loop over virtual time.

Nothing here waits: when no callback is ready the clock jumps to the next timer. There are no
threads, no sockets and no system clock, so a run is a function of its seed. Callbacks run in the
order asyncio promises; what varies from seed to seed are the lengths of the sleeps.

A :class:`Process` is what can be killed: every task started under it, and theirs, stops for ever at
the ``await`` at which it is, as if the machine had vanished. None of their ``finally`` blocks runs
while the run goes on; at its end they are cancelled, when nothing that they do has an effect.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

__all__ = ["DeadlockError", "Loop", "Process", "StubbornTaskError"]

T = TypeVar("T")

_current: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
_BURIAL_STEPS = 10_000  # rounds of the loop after which a cancelled task counts as one that refuses


class DeadlockError(RuntimeError):
    """Nothing can happen any more, or not within the time given."""


class StubbornTaskError(RuntimeError):
    """A task went on after it was cancelled."""


class Process:
    """Tasks that live and die together."""

    def __init__(self, loop: Loop, name: str) -> None:
        self.name = name
        self.alive = True
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Process {self.name}{'' if self.alive else ', dead'}>"

    @staticmethod
    def current() -> Process | None:
        """The process of the running task."""
        return _current.get()

    def start(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine in this process."""
        context = contextvars.copy_context()
        context.run(_current.set, self)
        return self._loop.create_task(coroutine, name=name or self.name, context=context)

    def kill(self) -> None:
        """Stop every task of this process for ever, where it is."""
        self.alive = False
        self._loop.park(self)


class _Clock:
    """Stands for a selector: waiting for input is moving the clock to the next timer."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> list[Any]:
        if timeout_s is None:
            self._loop.refuse_to_hang()
        elif timeout_s > 0:
            self._loop.skip_to_timer()
        return []


class Loop(asyncio.base_events.BaseEventLoop):
    """See the module.

    Args:
        limit_s: virtual time after which the run is given up.
    """

    # Of asyncio, and not in its type stubs.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, limit_s: float = 3600.0) -> None:
        super().__init__()
        self._selector = _Clock(self)
        self._clock_resolution = 1e-9
        self._now_s = 0.0
        self._limit_s = limit_s
        self._tasks: list[asyncio.Task[Any]] = []
        self._dead: set[Process] = set()
        self._parked: list[asyncio.Handle] = []  # callbacks of dead processes
        self._nothing = asyncio.Handle(lambda: None, (), self)
        self._nothing.cancel()
        self.set_task_factory(self._make_task)

    def process(self, name: str) -> Process:
        """A new process."""
        return Process(self, name)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of ``main``, lay everything else to rest, and close.

        Raises:
            DeadlockError: it has no end.
            StubbornTaskError: what was left goes on after it was cancelled.
            Exception: what ``main`` raised, or else what some task raised and nobody looked at.
        """
        try:
            result = self.run_until_complete(main)
            self._raise_unseen()
            self._bury()
            return result
        except BaseException:
            with suppress(Exception):
                self._bury()
            raise
        finally:
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if task.done() and not task.cancelled():
                    task.exception()  # seen: asyncio does not report it once more
            self.close()

    def call_detached(self, delay_s: float, function: Any, *arguments: Any) -> None:
        """Call a function later, whatever becomes of the running process."""
        context = contextvars.copy_context()
        context.run(_current.set, None)
        self.call_later(delay_s, function, *arguments, context=context)

    def park(self, process: Process) -> None:
        """Keep back what is scheduled for a dead process."""
        self._dead.add(process)
        for index, handle in enumerate(self._ready):
            if _process_of(handle) is process:
                self._parked.append(handle)
                self._ready[index] = self._nothing  # asyncio has counted them
        kept = []
        for timer in self._scheduled:
            if _process_of(timer) is process:
                timer._scheduled = False  # type: ignore[attr-defined]
                self._parked.append(timer)
            else:
                kept.append(timer)
        heapq.heapify(kept)
        self._scheduled[:] = kept

    def refuse_to_hang(self) -> NoReturn:
        """Nothing is left that could run."""
        waiting = sorted({task.get_name() for task in self._tasks if not task.done()})
        raise DeadlockError(f"every task waits and there is no timer: {', '.join(waiting)}")

    def skip_to_timer(self) -> None:
        """Move the clock to the next timer."""
        self._now_s = max(self._now_s, self._scheduled[0].when())
        if self._now_s > self._limit_s:
            raise DeadlockError(f"not at its end after {self._limit_s:g} s of virtual time")

    def _make_task(
        self, _loop: Any, coroutine: Any, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=self, context=context)
        self._tasks.append(task)
        return task

    def _bury(self) -> None:
        self._dead.clear()
        self._ready.extend(self._parked)
        self._parked.clear()
        for task in self._tasks:
            if not task.done():
                task.cancel()
        for _ in range(_BURIAL_STEPS):
            if all(task.done() for task in self._tasks):
                return
            self.call_soon(self.stop)
            self.run_forever()
            if not self._ready and self._scheduled:
                self._now_s = max(self._now_s, self._scheduled[0].when())
        left = sorted({task.get_name() for task in self._tasks if not task.done()})
        raise StubbornTaskError(f"still going on after being cancelled: {', '.join(left)}")

    def _raise_unseen(self) -> None:
        for task in self._tasks:
            if task._log_traceback and (error := task.exception()):
                raise error

    # What asyncio calls.

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._dead and _process_of(handle) in self._dead:
            self._parked.append(handle)
        else:
            self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if self._dead and _process_of(timer) in self._dead:
            self._parked.append(timer)
        else:
            heapq.heappush(self._scheduled, timer)
            timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError(f"{function} was to run on a thread; there is none in a simulation")

    def _process_events(self, _events: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _process_of(handle: asyncio.Handle) -> Process | None:
    return handle._context.get(_current)  # type: ignore[attr-defined,no-any-return]
