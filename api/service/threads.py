"""Work outside the event loop: threads, a fair queue in front of them, and periodic tasks.

:class:`Threads` runs CPU-bound work, so that the event loop stays free.

:class:`Background` runs one round after the other, for as long as the process serves. A round that
raises ends nothing but itself. It is logged with its traceback and counted, and after
a pause the next round begins. Until one ends well the process does not report that it is ready.

The fair queue is :class:`Turns`. Callers with many requests do not delay callers with few.
Requested work is done in short pieces on a few threads. A piece is a time slice. Callers have their
time slices one after another, regardless of their order of arrival and request count: between two
time slices of one caller, every other waiting caller has one. The work that one caller may have
under way at a time is bounded, and so is the work of all callers together. Beyond that the server
rejects a request at once (429), and does not keep it waiting behind others by the same caller. When
a time slice comes and the client has left, the request ends without it.

A caller is a key, or an address where the request has no key. All methods are called on the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from typing import ParamSpec, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

from api.errors import TooMuchAskedError
from api.resources import LARGE_ROWS, LONG_UNDER_WAY
from api.service.budget import charging
from api.service.observer import Observer
from api.settings import Settings
from decaysketch.ingest.readings import Steps

__all__ = [
    "TURN_S",
    "Background",
    "Compute",
    "Lanes",
    "LeftError",
    "Pauses",
    "Precedence",
    "Threads",
    "Turns",
    "by_steps",
    "in_turns",
    "lanes_of",
    "never",
    "pause_s",
    "pools",
    "turns_of",
]

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


# ---------------------------------------------------------------------------------- the fair queue

TURN_S = 0.05
"""Approximate length of a time slice. Longer work comes again."""

_DECAYS, _DECAYS_OF_CALLER = 16, 4
_UNBOUNDED = 1 << 62  # posts are bounded by their rows in flight
_STRETCH_S = 0.005
_LOOK_S = 0.25


def never() -> bool:
    """Return False, for work without a client, or with one that cannot be watched."""
    return False


class Turns:
    """A fair queue in front of threads.

    Args:
        threads: run the time slices.
        name: the queue's name, for metrics.
        of_caller: most requests per caller at a time.
        in_all: most requests by all callers at a time.
        observer: receives the number of waiting time slices, and rejections.
        spare: so many time slices are handed to the threads before they are free.
    """

    def __init__(
        self,
        threads: Threads,
        name: str,
        *,
        of_caller: int,
        in_all: int,
        observer: Observer,
        spare: int = 0,
    ) -> None:
        self._threads = threads
        self._name = name
        self._of_caller, self._in_all = of_caller, in_all
        self._observer = observer
        self._free = threads.count + spare
        self._under_way: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Return the number of time slices that wait for a thread."""
        return sum(map(len, self._waiting.values()))

    @contextmanager
    def asked(self, caller: str, has_left: Callable[[], bool] = never) -> Iterator[Compute]:
        """Enter one request of a caller, and return the way to run its time slices.

        Args:
            caller: the caller that is charged.
            has_left: whether its client has left. Called on the event loop before each time slice.

        Raises:
            TooMuchAskedError: as much is under way as may be.
            LeftError: from a time slice. The client has left before it.
        """
        for of, under_way, most in (
            ("caller", self._under_way[caller], self._of_caller),
            ("all", self._under_way.total(), self._in_all),
        ):
            if under_way >= most:
                self._observer.rejected(self._name, of)
                raise TooMuchAskedError(self._name, most, of_caller=of == "caller")
        self._under_way[caller] += 1
        try:
            yield self.by(caller, has_left)
        finally:
            self._under_way[caller] -= 1
            if not self._under_way[caller]:
                del self._under_way[caller]

    def by(self, caller: str, has_left: Callable[[], bool] = never) -> Compute:
        """Return the way to run time slices that count for no request. See :meth:`asked`."""
        return partial(self._turn, caller, has_left)

    async def _turn(
        self,
        caller: str,
        has_left: Callable[[], bool],
        function: Callable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._next)

        with self._threads.going_first():
            await self._come_to_turn(caller)
            try:
                if has_left():
                    raise LeftError
                running = self._threads.submit(_charged, caller, function, *args, **kwargs)
            except BaseException:
                self._next()
                raise
            # The thread is busy until it ends, even if the caller has gone.
            running.add_done_callback(ended)
            return await asyncio.wrap_future(running)

    async def _come_to_turn(self, caller: str) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._observer.waiting(self._name, 1)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()  # the time slice has begun; pass it to the next one
            else:
                self._leave(caller, turn)
            raise
        finally:
            self._observer.waiting(self._name, -1)

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(caller, deque())
        with suppress(ValueError):  # it came, too late
            queue.remove(turn)
            if not queue:
                del self._waiting[caller]

    def _next(self) -> None:
        """Give the free thread to the caller that has waited longest for a time slice."""
        while self._waiting:
            caller, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[caller] = queue
            if not turn.done():  # it is, where who waited was cancelled
                turn.set_result(None)
                return
        self._free += 1


def _charged(caller: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    with charging(caller):
        return function(*args, **kwargs)


class Lanes:
    """Where posts are read and built: long ones on a thread of their own, each lane in time slices
    by caller, so that no caller occupies a lane. A half-read post takes memory. So one long post
    per caller is under way at a time, and LONG_UNDER_WAY in all.

    Args:
        usual, long: a fair queue each.
    """

    def __init__(self, usual: Turns, long: Turns) -> None:
        self._usual, self._long = usual, long
        self._under_way = asyncio.Semaphore(LONG_UNDER_WAY)
        self._own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lane(self, caller: str, rows: int) -> AsyncIterator[Compute]:
        """Return the lane for one post that takes as long as so many sketch rows."""
        if rows < LARGE_ROWS:
            yield self._usual.by(caller)
            return
        own = self._own.setdefault(caller, asyncio.Lock())
        async with own, self._under_way:
            yield self._long.by(caller)


def lanes_of(usual: Threads, long: Threads, observer: Observer) -> Lanes:
    """Return lanes on threads that have other work as well. Usual posts take a millisecond, so one
    post waits in front of the threads.
    """
    lanes = (
        Turns(threads, name, of_caller=_UNBOUNDED, in_all=_UNBOUNDED, observer=observer, spare=n)
        for threads, name, n in ((usual, "posts", 1), (long, "long_posts", 0))
    )
    return Lanes(*lanes)


def turns_of(
    questions: Threads, decays: Threads, settings: Settings, observer: Observer
) -> tuple[Turns, Turns]:
    """Return time slices for queries, and for the decays of new streams. Computing a decay takes
    the interpreter's lock for long: one at a time.
    """
    asking = Turns(
        questions,
        "questions",
        of_caller=settings.questions_per_caller,
        in_all=settings.questions,
        observer=observer,
        spare=1,
    )
    computing = Turns(
        decays, "decays", of_caller=_DECAYS_OF_CALLER, in_all=_DECAYS, observer=observer
    )
    return asking, computing


async def in_turns(compute: Compute, steps: Iterator[T]) -> list[T]:
    """Return the result of every step, with a few steps in each time slice."""
    done: list[T] = []
    while await compute(_some, steps, done):
        pass
    return done


def _some(steps: Iterator[T], done: list[T]) -> bool:
    """Return whether there may be more after a time slice."""
    end = time.monotonic() + TURN_S
    for each in steps:
        done.append(each)
        if time.monotonic() > end:
            return True
    return False


async def by_steps(compute: Compute, steps: Steps[T]) -> T:
    """Run long work in steps and return its result. Each time slice runs as many steps as fit
    ``TURN_S``. Cancelling it ends the work with the time slice that is under way.
    """
    while True:
        ended, found = await compute(_slice, steps)
        if ended:
            return cast(T, found)


def _slice(steps: Steps[T]) -> tuple[bool, T | None]:
    """Return whether the work has ended after a time slice, and its result."""
    end = time.monotonic() + TURN_S
    try:
        while True:
            next(steps)
            if time.monotonic() > end:
                return False, None
    except StopIteration as stop:
        return True, stop.value


class LeftError(Exception):
    """No client waits for the result any more."""


class Pauses:
    """For long work that holds the interpreter's lock: half the time is left to other work, and it
    ends when the client has left. The thread that works calls it repeatedly.

    Raises:
        LeftError: the client has left.
    """

    def __init__(self) -> None:
        self.left = False
        self._began_s: float | None = None

    def __call__(self) -> None:
        if self.left:
            raise LeftError
        if self._began_s is None:
            self._began_s = time.thread_time()
        if (worked_s := time.thread_time() - self._began_s) >= _STRETCH_S:
            time.sleep(worked_s)
            self._began_s = time.thread_time()

    @asynccontextmanager
    async def until(self, has_left: Callable[[], bool]) -> AsyncIterator[None]:
        """Check repeatedly whether the client has left, as long as the context lasts."""
        looking = asyncio.create_task(self._look(has_left))
        try:
            yield
        finally:
            self.left = True  # results of running work have no reader
            looking.cancel()

    async def _look(self, has_left: Callable[[], bool]) -> None:
        while not has_left():
            await asyncio.sleep(_LOOK_S)
        self.left = True
