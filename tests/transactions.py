"""Transactions that stay open while a test does other work.

The product gives a transaction as one function. Here its statements come one by one, and each runs
where the function runs: on the transaction's thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from simulation.database import Client

from api.journal import threads
from api.journal.sql import SqlStorage

__all__ = ["Statements", "reading", "writing"]

T = TypeVar("T")


class Statements:
    """A transaction. It has the methods of a reader or writer, as coroutines."""

    def __init__(self, run: Callable[[Callable[[Any], Any]], Any]) -> None:
        self._run = run

    async def do(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function of the transaction."""
        result: T = await self._run(lambda tx: function(tx, *arguments, **named))
        return result

    async def snapshots(self, after: int) -> list[Any]:
        """Return all of them."""
        return await self.do(lambda tx: [each for some in tx.snapshots(after) for each in some])

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            return await self._run(lambda tx: getattr(tx, name)(*arguments))

        return call


def reading(storage: SqlStorage | Client) -> AbstractAsyncContextManager[Statements]:
    """Begin to read."""
    return _steps(storage)


def writing(storage: SqlStorage | Client) -> AbstractAsyncContextManager[Statements]:
    """Begin to write. Commit at the end, or take everything back after an exception."""
    if isinstance(storage, Client):
        return _steps(storage, writes=True)
    return _on_thread(storage)


@asynccontextmanager
async def _steps(storage: SqlStorage | Client, writes: bool = False) -> AsyncIterator[Statements]:
    steps = storage.steps(1.0) if isinstance(storage, Client) and writes else storage.steps()
    async with steps as step:
        yield Statements(step)


class _UndoneError(Exception):
    """The test has raised an exception within the transaction."""


def _fail(_tx: Any) -> None:
    raise _UndoneError


@asynccontextmanager
async def _on_thread(storage: SqlStorage) -> AsyncIterator[Statements]:
    loop = asyncio.get_running_loop()
    given: SimpleQueue[tuple[Callable[[Any], Any], asyncio.Future[Any]] | None] = SimpleQueue()

    def serve(tx: Any) -> None:
        while True:
            threads._here.call.asked_at = math.inf  # the test is silent, not the database
            if (step := given.get()) is None:
                return
            function, future = step
            loop.call_soon_threadsafe(_settle, future, function(tx))

    transaction = asyncio.create_task(storage.write(serve))

    async def run(function: Callable[[Any], Any]) -> Any:
        future = loop.create_future()
        given.put((function, future))
        await asyncio.wait([future, transaction], return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            transaction.result()  # raises: it has ended
        return future.result()

    try:
        yield Statements(run)
    except asyncio.CancelledError:
        transaction.cancel()
        await asyncio.gather(transaction, return_exceptions=True)
        raise
    except BaseException:
        given.put((_fail, loop.create_future()))
        await asyncio.wait([transaction])
        raise
    else:
        given.put(None)
        await transaction
    finally:
        given.put(None)
        transaction.cancel()
        await asyncio.gather(transaction, return_exceptions=True)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.cancelled():
        future.set_result(result)
