"""Who asks for what may be new is told after a look that began later; names of nobody share one."""

from __future__ import annotations

import asyncio

from api.monitors.coalesced_reads import Looks

PAUSE_S = 0.05


def test_what_was_written_before_the_question_is_found() -> None:
    written: set[str] = set()
    known: set[str] = set()

    async def look() -> None:
        seen = set(written)
        await asyncio.sleep(0)
        known.update(seen)

    async def run() -> None:
        looks = Looks("rows", look, PAUSE_S)
        await looks.now()
        written.add("a")
        assert "a" not in known
        await looks.later()
        assert "a" in known

    asyncio.run(run())


def test_those_who_wait_share_a_look_and_a_pause_lies_before_it() -> None:
    began: list[float] = []

    async def look() -> None:
        began.append(asyncio.get_running_loop().time())

    async def run() -> None:
        looks = Looks("rows", look, PAUSE_S)
        await looks.now()
        await asyncio.gather(*(looks.later() for _ in range(100)))
        assert len(began) == 2
        assert began[1] - began[0] >= PAUSE_S * 0.99
        assert looks.age_s < asyncio.get_running_loop().time()

    asyncio.run(run())


def test_a_look_that_fails_is_told_to_all_who_share_it() -> None:
    made: list[int] = []

    async def look() -> None:
        made.append(1)
        if len(made) == 1:
            raise OSError("out of reach")

    async def run() -> None:
        looks = Looks("rows", look, PAUSE_S)
        results = await asyncio.gather(*(looks.later() for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in results] == [OSError] * 3
        assert len(made) == 1
        await looks.later()
        assert len(made) == 2

    asyncio.run(run())
