"""Posts have time slices by caller, and none goes on for a client that has left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import Request

from api.http.caller import as_long_as_connected
from api.http.refusals import ClientLeftError
from api.routes.ingest import held
from api.service import threads as fair_queue
from api.service.budget import LARGE_ROWS, Memory
from api.service.metrics import Metrics
from api.service.observer import Observer
from api.service.threads import Threads, by_steps, lanes_of
from decaysketch.ingest.readings import Steps, finished

pytestmark = pytest.mark.anyio


@pytest.fixture
def threads() -> Iterator[Threads]:
    pool = Threads(1)
    yield pool
    pool.close()


def noted(name: str, steps: int, done: list[str]) -> Steps[str]:
    for _ in range(steps):
        done.append(name)
        time.sleep(0.001)
        yield
    return name


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):  # for what hangs
        while not holds():
            await asyncio.sleep(0.001)


async def test_callers_have_slices_in_turn(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_queue, "TURN_S", 0.0)  # a step each
    lanes = lanes_of(threads, threads, Observer())
    done: list[str] = []

    async def work(name: str, steps: int) -> str:
        async with lanes.lane(name, 1 << 20) as compute:
            return await by_steps(compute, noted(name, steps, done))

    tasks = [asyncio.ensure_future(work("much", 50)) for _ in range(8)]
    await until(lambda: bool(done))
    begun = len(done)
    assert await work("little", 20) == "little"
    # Between two slices of the one, everybody else has one; and one that came before.
    assert len(done) - begun <= 3 * 20 + 10
    assert await asyncio.gather(*tasks) == ["much"] * 8


async def test_what_waits_is_a_metric(threads: Threads) -> None:
    metrics, held = Metrics(), threading.Event()
    lanes = lanes_of(threads, threads, metrics)

    async def work(caller: str, rows: int) -> None:
        async with lanes.lane(caller, rows) as compute:
            await compute(held.wait)

    tasks = [asyncio.ensure_future(work(c, rows)) for c in "abcd" for rows in (1, 1 << 20)]
    expected = {"questions": 0, "decays": 0, "posts": 2, "long_posts": 3}
    await until(lambda: {n: g._value.get() for n, g in metrics._waiting.items()} == expected)
    held.set()
    await asyncio.gather(*tasks)
    assert [gauge._value.get() for gauge in metrics._waiting.values()] == [0, 0, 0, 0]


async def test_few_long_posts_are_half_read_at_a_time(threads: Threads) -> None:
    """One of each caller, and LONG_UNDER_WAY of all."""
    lanes, begun, end = lanes_of(threads, threads, Observer()), list[str](), asyncio.Event()

    async def work(caller: str) -> None:
        async with lanes.lane(caller, 1 << 20):
            begun.append(caller)
            await end.wait()

    tasks = [asyncio.ensure_future(work(caller)) for caller in "aaabcdefghijk"]
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == list("abcdefgh")
    async with lanes.lane("a", 1):  # a short one waits for nobody
        end.set()
    await asyncio.gather(*tasks)
    assert sorted(begun) == sorted("aaabcdefghijk")


def leaving(after: asyncio.Event) -> Request:
    async def receive() -> Any:
        await after.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


async def test_work_ends_when_the_client_leaves(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_queue, "TURN_S", 0.0)
    lanes = lanes_of(threads, threads, Observer())
    leave, done = asyncio.Event(), list[str]()
    asyncio.get_running_loop().call_later(0.02, leave.set)
    with pytest.raises(ClientLeftError):
        async with as_long_as_connected(leaving(leave)), lanes.lane("k", 1) as compute:
            await by_steps(compute, noted("k", 1_000_000, done))
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    stood = len(done)
    await threads(lambda: None)  # what was under way has ended
    assert len(done) <= stood + 1


async def test_who_waits_for_a_slice_leaves_as_well(threads: Threads) -> None:
    lanes, held, leave = lanes_of(threads, threads, Observer()), threading.Event(), asyncio.Event()

    async def hold() -> None:
        async with lanes.lane("h", 1) as compute:
            await compute(held.wait)

    holding = [asyncio.ensure_future(hold()) for _ in range(4)]
    leave.set()
    with pytest.raises(ClientLeftError):
        async with as_long_as_connected(leaving(leave)), lanes.lane("k", 1) as compute:
            await by_steps(compute, noted("k", 5, []))
    held.set()
    await asyncio.gather(*holding)


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        async with as_long_as_connected(leaving(asyncio.Event())):
            await asyncio.sleep(60)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_step_that_may_not_merge_yet_leaves_its_thread(threads: Threads) -> None:
    """It runs once the merge of many rows that was under way has ended, and no other before."""
    memory, done = Memory(), list[str]()
    hold = memory.flight.hold(LARGE_ROWS)
    steps = held(noted("k", 2, done), memory, hold)
    with memory.merging(LARGE_ROWS):
        await threads(next, steps)
        await threads(next, steps)
        assert done == []
        assert memory.flight.rows == 0
        few = held(noted("f", 2, done), memory, memory.flight.hold(1))
        assert await threads(finished, few) == "f"
    assert await threads(finished, steps) == "k"
    assert done == ["f", "f", "k", "k"]
