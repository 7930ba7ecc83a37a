"""The deterministic loop: virtual time, processes that die, and what is left at the end."""

from __future__ import annotations

import asyncio
import time

import pytest
from simulation.loop import DeadlockError, Loop, Process, StubbornTaskError


def test_the_clock_jumps_to_the_next_timer() -> None:
    loop, seen = Loop(), []

    async def sleeper(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        seen.append((delay_s, loop.time()))

    async def main() -> float:
        await asyncio.gather(sleeper(900.0), sleeper(0.5), sleeper(30.0))
        return loop.time()

    began = time.monotonic()
    assert loop.run(main()) == 900.0
    assert seen == [(0.5, 0.5), (30.0, 30.0), (900.0, 900.0)]
    assert time.monotonic() - began < 300


def test_where_nothing_can_happen_any_more_it_says_who_waits() -> None:
    loop = Loop()

    async def main() -> None:
        await loop.process("client").start(_forever(), "post 7")

    with pytest.raises(DeadlockError, match=r"no timer: Task-[0-9]+, post 7"):
        loop.run(main())


def test_a_run_without_end_is_given_up() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(DeadlockError, match="after 10 s of virtual time"):
        Loop(limit_s=10).run(main())


def test_a_killed_process_stops_where_it_is_and_its_children_with_it() -> None:
    loop, seen = Loop(), []

    async def child() -> None:
        await asyncio.sleep(2)
        seen.append("child")

    async def parent(gate: asyncio.Future[None]) -> None:
        task = asyncio.create_task(child())
        try:
            await gate
            seen.append("parent")
        finally:
            seen.append(f"finally at {loop.time():g}")
            task.cancel()

    async def main() -> None:
        process, gate = loop.process("replica"), loop.create_future()
        process.start(parent(gate))
        await asyncio.sleep(1)
        process.kill()
        gate.set_result(None)  # comes too late
        await asyncio.sleep(4)
        assert seen == []
        seen.append("end")

    loop.run(main())
    assert seen == ["end", "finally at 5"]


def test_callbacks_that_were_ready_when_it_died_do_not_run() -> None:
    loop, seen = Loop(), []

    async def step(name: str) -> None:
        seen.append(name)

    async def main() -> None:
        one, other = loop.process("one"), loop.process("other")
        loop.call_soon(one.kill)
        one.start(step("one"))
        other.start(step("other"))
        await asyncio.sleep(1)
        assert seen == ["other"]
        assert (one.alive, other.alive) == (False, True)

    loop.run(main())


def test_tasks_know_their_process() -> None:
    loop = Loop()

    async def name() -> str:
        process = Process.current()
        return process.name if process else "none"

    async def main() -> list[str]:
        nested = loop.process("a").start(_awaited(name))
        return [await name(), await nested, await loop.process("b").start(name())]

    assert loop.run(main()) == ["none", "a", "b"]


def test_an_error_that_nobody_looked_at_ends_the_run() -> None:
    loop = Loop()

    async def failing() -> None:
        raise ValueError("lost")

    async def main() -> None:
        loop.process("replica").start(failing())
        await asyncio.sleep(1)

    with pytest.raises(ValueError, match="lost"):
        loop.run(main())


def test_a_task_that_refuses_to_end_is_named() -> None:
    loop = Loop()

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        loop.process("replica").start(stubborn(), "follower")

    with pytest.raises(StubbornTaskError, match="follower"):
        loop.run(main())


def test_there_are_no_threads() -> None:
    async def main() -> None:
        await asyncio.to_thread(len, "")

    with pytest.raises(RuntimeError, match="there is none in a simulation"):
        Loop().run(main())


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


async def _awaited(function: object) -> str:
    task: asyncio.Task[str] = asyncio.create_task(function())  # type: ignore[operator]
    return await task
