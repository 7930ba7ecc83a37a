"""Links that lose, delay, reorder and repeat, and requests over them.

A request is a coroutine function of a server. It runs in the server's process, each time that it
arrives; the answer travels back, or does not. Who asked waits for a while and asks again, maybe
another server: then the first request may still be under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

from simulation.loop import Loop, Process

__all__ = ["LONGEST_S", "Link", "NoAnswerError", "Server", "Weather"]

LONGEST_S = 0.8  # that a message is under way
T = TypeVar("T")
S = TypeVar("S")


class NoAnswerError(Exception):
    """Nobody answered in time. What was asked for may or may not happen, even later."""


@dataclass
class Weather:
    """How bad the links are. Times are seconds."""

    loss: float = 0.0
    repeat: float = 0.0
    straggle: float = 0.0  # a message takes twenty times as long
    delay_s: float = 0.005
    patience_s: float = 0.5


class Server(Generic[S]):
    """What can be asked while its process lives and it has something to serve."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None
        self.service: S | None = None
        self._requests: list[asyncio.Task[None]] = []

    def take(self, request: Coroutine[Any, Any, None], name: str) -> None:
        """Begin with a request."""
        assert self.process is not None
        self._requests = [each for each in self._requests if not each.done()]
        self._requests.append(self.process.start(request, name))

    def start_over(self, process: Process) -> None:
        """A new process begins, which has no requests yet."""
        self.process, self.service = process, None
        self._requests.clear()

    @property
    def waiting(self) -> list[str]:
        """Names of the requests that it has not come to an end with."""
        return sorted(each.get_name() for each in self._requests if not each.done())

    @property
    def serves(self) -> bool:
        """Whether it would take a request now."""
        return self.service is not None and self.process is not None and self.process.alive


class Link:
    """The way of one client to all servers.

    Args:
        loop: whose time it is.
        draw: the only source of chance.
        weather: may be changed while the run goes on.
    """

    def __init__(self, loop: Loop, draw: Random, weather: Weather) -> None:
        self.weather = weather
        self._loop = loop
        self._draw = draw

    async def ask(
        self, server: Server[S], request: Callable[[S], Awaitable[T]], name: str = "request"
    ) -> T:
        """Send a request, maybe several times by mistake, and wait for the first answer.

        Raises:
            NoAnswerError: none came in time, or nobody serves.
            Exception: what the request raised.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        copies = 2 if self._happens(self.weather.repeat) else 1
        for _ in range(copies):
            if not self._happens(self.weather.loss):
                self._later(self._arrive, server, request, answer, name)
        try:
            async with asyncio.timeout(self.weather.patience_s):
                return await answer
        except TimeoutError:
            raise NoAnswerError(f"{server.name} did not answer {name}") from None

    def _arrive(
        self,
        server: Server[S],
        request: Callable[[S], Awaitable[T]],
        answer: asyncio.Future[T],
        name: str,
    ) -> None:
        if not server.serves:
            self._later(_fail, answer, NoAnswerError(f"{server.name} refused the connection"))
            return
        assert server.service is not None
        server.take(self._serve(server.service, request, answer), name)

    async def _serve(
        self, service: S, request: Callable[[S], Awaitable[T]], answer: asyncio.Future[T]
    ) -> None:
        try:
            result = await request(service)
        except Exception as error:
            if not self._happens(self.weather.loss):
                self._later(_fail, answer, error)
        else:
            if not self._happens(self.weather.loss):
                self._later(_succeed, answer, result)

    def _later(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after the delay of one message, whatever becomes of the sender."""
        delay_s = self._draw.expovariate(1.0) * self.weather.delay_s
        if self._happens(self.weather.straggle):
            delay_s *= 20
        delay_s = min(delay_s, LONGEST_S)
        self._loop.call_detached(delay_s, function, *arguments)

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._draw.random() < probability


def _succeed(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
