"""Alerts are told at least once, in their order, whoever dies in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from databases import Database, database
from transactions import writing

from api.journal.sql import SqlStorage
from api.monitors import outbox
from api.monitors.outbox import Alert, Outbox
from api.monitors.webhooks import WebhookError
from api.service.observer import Observer

__all__ = ["database"]

pytestmark = pytest.mark.anyio

HOUR_US = 3_600_000_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Process:
    """One of several over a database: what it has sent, and a clock that only tests move."""

    def __init__(self, storage: SqlStorage, clock: list[int], counted: Counter[bool]) -> None:
        self.storage = storage
        self.sent: list[str] = []
        self.refuses: set[str] = set()
        self.holds: asyncio.Event | None = None

        class Counting(Observer):
            def webhook_failed(self, *, given_up: bool) -> None:
                counted[given_up] += 1

        self.outbox = Outbox(
            storage,
            self.send,
            now_us=lambda: clock[0],
            give_up_s=7200,
            observer=Counting(),
        )

    async def send(self, url: str, body: bytes, now_s: int) -> None:
        self.sent.append(body.decode())
        if self.holds is not None and "slow" in url:
            await self.holds.wait()
        if url in self.refuses:
            raise WebhookError("answered with 500")

    async def put(self, *alerts: tuple[str, int, str]) -> None:
        async with writing(self.storage) as tx:
            for name, sequence, url in alerts:
                body = f"{name}.{sequence}".encode()
                await tx.do(outbox.insert, Alert(name, sequence, url, body), 0)

    async def work(self, rounds: int = 5) -> list[str]:
        """What it sends until nothing is due."""
        begun = len(self.sent)
        for _ in range(rounds):
            await self.outbox.begin()
            await self.outbox.idle()
        return self.sent[begun:]


Run = Callable[[], Awaitable[Process]]


@pytest.fixture
def clock() -> list[int]:
    return [0]


@pytest.fixture
def failures() -> Counter[bool]:
    return Counter()


@pytest.fixture
async def run(database: Database, clock: list[int], failures: Counter[bool]) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:

        async def start() -> Process:
            storage = await SqlStorage.open(database.url)
            stack.push_async_callback(storage.close)
            process = Process(storage, clock, failures)
            stack.push_async_callback(process.outbox.close)
            return process

        yield start


HOOK, SLOW = "https://ops.example/hook", "https://slow.example/hook"


async def test_two_processes_send_one(run: Run) -> None:
    one, other = await run(), await run()
    await one.put(("a", 1, HOOK), ("b", 1, HOOK))
    await asyncio.gather(one.work(), other.work())
    assert sorted(one.sent + other.sent) == ["a.1", "b.1"]


async def test_what_was_taken_by_who_died_is_sent_by_another(run: Run, clock: list[int]) -> None:
    one = await run()
    one.holds = asyncio.Event()
    await one.put(("a", 1, SLOW))
    await one.outbox.begin()
    while not one.sent:
        await asyncio.sleep(0.01)
    await one.outbox.close()  # in the middle of the request
    other = await run()
    assert await other.work() == []  # it may still be answered
    clock[0] += 31_000_000
    assert await other.work() == ["a.1"]
    clock[0] += HOUR_US
    assert await other.work() == []


async def test_those_of_one_alert_keep_their_order_and_hold_up_no_other(
    run: Run, clock: list[int], failures: Counter[bool]
) -> None:
    one = await run()
    one.refuses = {"https://ops.example/broken"}
    await one.put(("a", 1, "https://ops.example/broken"), ("a", 2, HOOK), ("b", 1, HOOK))
    assert await one.work() == ["a.1", "b.1"]
    assert failures == {False: 1}
    waits = []
    for _ in range(3):
        since = clock[0]
        while not (sent := await one.work(1)):
            clock[0] += 250_000
        assert sent == ["a.1"]
        waits.append((clock[0] - since) / 1e6)
    for wait, longest in zip(waits, (2, 4, 8), strict=True):  # doubled, a little by chance
        assert longest / 2 <= wait <= longest + 0.25
    clock[0] += 20_000_000
    one.refuses = set()
    assert await one.work() == ["a.1", "a.2"]


async def test_a_slow_receiver_holds_up_nobody_else(run: Run) -> None:
    one = await run()
    one.holds = asyncio.Event()
    await one.put(("a", 1, SLOW), ("b", 1, SLOW), ("c", 1, HOOK), ("d", 1, HOOK))
    while len(one.sent) < 3:
        await one.outbox.begin()
        await asyncio.sleep(0.01)
    assert sorted(one.sent) == ["a.1", "c.1", "d.1"]  # of the slow one there is one at a time
    one.holds.set()
    await one.outbox.idle()
    assert await one.work() == ["b.1"]


async def test_what_is_too_old_or_too_much_is_given_up(
    run: Run, clock: list[int], failures: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_WAITING", 3)
    one = await run()
    await one.put(*(("a", number, HOOK) for number in range(1, 6)))
    assert (await one.work(1)) == ["a.3"]  # the oldest of those that are kept
    clock[0] = 3 * HOUR_US
    assert await one.work(3) == []
    assert failures == {True: 2}


async def test_the_outbox_is_watched(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_LOOK_S", 3600.0)
    one = await run()
    await one.put(("a", 1, HOOK))
    one.outbox.wake()
    async with asyncio.timeout(300):
        await one.outbox.watch()
    await one.outbox.idle()
    assert one.sent == ["a.1"]


def test_bodies_are_not_shown() -> None:
    shown: Any = repr(Alert("a", 1, HOOK, b"secret"))
    assert "secret" not in shown
