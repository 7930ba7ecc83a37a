"""Turns: who asks much waits behind nobody but himself."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from api.errors import TooMuchAskedError
from api.service import threads as fair_queue
from api.service.observer import Observer
from api.service.threads import LeftError, Pauses, Threads, Turns, in_turns


class Watching(Observer):
    def __init__(self) -> None:
        self.depth: Counter[str] = Counter()
        self.away: list[tuple[str, str]] = []

    def waiting(self, queue: str, change: int) -> None:
        self.depth[queue] += change

    def rejected(self, queue: str, of: str) -> None:
        self.away.append((queue, of))


class Hall:
    """Turns on one thread, which is held until :meth:`open`."""

    def __init__(self, **limits: int) -> None:
        self.observer = Watching()
        self.threads = Threads(1, "hall")
        limits = {"of_caller": 100, "in_all": 200} | limits
        self.turns = Turns(self.threads, "questions", observer=self.observer, **limits)
        self.had: list[str] = []
        self.open_door = threading.Event()

    async def held(self) -> asyncio.Task[None]:
        """A turn that lasts until the door is opened."""
        begun = threading.Event()

        def hold() -> None:
            begun.set()
            self.open_door.wait()

        task = asyncio.create_task(self.turns.by("porter")(hold))
        await asyncio.to_thread(begun.wait)
        return task

    def ask(self, caller: str, count: int = 1, pieces: int = 1) -> list[asyncio.Task[None]]:
        """Requests, each of so many turns."""

        async def one() -> None:
            with self.turns.asked(caller) as compute:
                for _ in range(pieces):
                    await compute(self.had.append, caller)

        return [asyncio.create_task(one()) for _ in range(count)]


def scene(of: Callable[[Hall], Coroutine[Any, Any, None]], **limits: int) -> Hall:
    async def played() -> Hall:
        hall = Hall(**limits)
        try:
            await of(hall)
        finally:
            hall.open_door.set()
            hall.threads.close()
        return hall

    return asyncio.run(played())


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_one_question_of_another_caller_waits_for_one_turn_and_not_for_forty_eight() -> None:
    async def of(hall: Hall) -> None:
        holding = await hall.held()
        greedy = hall.ask("greedy", count=48, pieces=5)
        await _settled()
        modest = hall.ask("modest")
        await _settled()
        hall.open_door.set()
        await asyncio.gather(holding, *greedy, *modest)

    hall = scene(of)
    assert hall.had.index("modest") <= 1
    assert Counter(hall.had) == {"greedy": 240, "modest": 1}
    assert hall.observer.depth == {"questions": 0}


def test_callers_have_turns_one_after_another_however_much_each_asks() -> None:
    async def of(hall: Hall) -> None:
        holding = await hall.held()
        tasks = hall.ask("a", 6) + hall.ask("b", 3) + hall.ask("c", 2)
        await _settled()
        assert hall.turns.waiting == hall.observer.depth["questions"] == 11
        hall.open_door.set()
        await asyncio.gather(holding, *tasks)

    assert "".join(scene(of).had) == "abcabcabaaa"


def test_who_comes_again_stands_behind_who_waits() -> None:
    async def of(hall: Hall) -> None:
        holding = await hall.held()
        tasks = hall.ask("a", pieces=3) + hall.ask("b", pieces=3)
        await _settled()
        hall.open_door.set()
        await asyncio.gather(holding, *tasks)

    assert "".join(scene(of).had) == "ababab"


def test_beyond_what_a_caller_may_have_under_way_a_request_is_refused_at_once() -> None:
    async def of(hall: Hall) -> None:
        holding = await hall.held()
        tasks = hall.ask("a", 2)
        await _settled()
        with pytest.raises(TooMuchAskedError, match="2 requests of this caller"):
            await hall.ask("a")[0]
        tasks += hall.ask("b")
        await _settled()
        with pytest.raises(TooMuchAskedError, match="3 requests are"):
            await hall.ask("c")[0]
        hall.open_door.set()
        await asyncio.gather(holding, *tasks)
        await asyncio.gather(*hall.ask("a", 2))  # they have ended

    hall = scene(of, of_caller=2, in_all=3)
    assert hall.observer.away == [("questions", "caller"), ("questions", "all")]
    assert "".join(hall.had) == "abaaa"


def test_who_leaves_while_he_waits_takes_no_turn() -> None:
    async def of(hall: Hall) -> None:
        holding = await hall.held()
        gone, stays = hall.ask("a"), hall.ask("b")
        await _settled()
        gone[0].cancel()
        await _settled()
        assert hall.turns.waiting == 1
        hall.open_door.set()
        await asyncio.gather(holding, *stays)
        await asyncio.gather(*hall.ask("a"))

    hall = scene(of)
    assert hall.had == ["b", "a"]
    assert hall.observer.depth == {"questions": 0}


def test_a_turn_that_comes_to_somebody_who_leaves_is_passed_on() -> None:
    async def of(hall: Hall) -> None:
        holding = await hall.held()
        gone, stays = hall.ask("a"), hall.ask("b")
        await _settled()
        hall.turns._next()  # a's, and a is not told yet
        gone[0].cancel()
        await _settled()
        hall.open_door.set()
        await asyncio.gather(holding, *stays)

    assert scene(of).had == ["b"]


def test_a_thread_whose_caller_has_left_is_not_free() -> None:
    async def of(hall: Hall) -> None:
        holding = await hall.held()
        holding.cancel()
        (waits,) = hall.ask("a")
        await _settled()
        assert hall.turns.waiting == 1
        assert hall.had == []
        hall.open_door.set()
        await waits

    assert scene(of).had == ["a"]


def test_an_error_ends_the_turn_and_is_told() -> None:
    async def of(hall: Hall) -> None:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await hall.turns.by("a")(lambda: 1 / 0)
        await asyncio.gather(*hall.ask("a"))

    assert scene(of).had == ["a"]


def test_a_client_that_has_left_gets_no_time_slice() -> None:
    """The slice goes to the next caller at once."""
    left: list[None] = []

    async def of(hall: Hall) -> None:
        async def leaves() -> None:
            with hall.turns.asked("a", lambda: bool(left)) as compute:
                while True:
                    await compute(hall.had.append, "a")
                    left.append(None)

        holding = await hall.held()
        gone, stays = asyncio.create_task(leaves()), hall.ask("b", pieces=3)
        await _settled()
        hall.open_door.set()
        with pytest.raises(LeftError):
            await gone
        await asyncio.gather(holding, *stays)

    assert "".join(scene(of).had) == "abbb"


class TestInTurns:
    async def _direct(self, function: Callable[..., Any], *args: Any) -> Any:
        self.turns_had = getattr(self, "turns_had", 0) + 1
        return function(*args)

    def test_each_turn_does_what_there_is_time_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]

        def steps() -> Any:
            for number in range(10):
                now[0] += fair_queue.TURN_S / 2.5
                yield number

        monkeypatch.setattr(fair_queue.time, "monotonic", lambda: now[0])
        assert asyncio.run(in_turns(self._direct, steps())) == list(range(10))
        assert self.turns_had == 4


class TestPauses:
    def test_half_of_the_time_is_left_to_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        worked, slept = [0.0], []
        monkeypatch.setattr(fair_queue.time, "thread_time", lambda: worked[0])
        monkeypatch.setattr(fair_queue.time, "sleep", slept.append)
        pauses = Pauses()
        for _ in range(1000):
            worked[0] += 0.001
            pauses()
        assert sum(slept) == pytest.approx(1.0, abs=0.01)
        assert max(slept) < 0.01

    def test_it_ends_when_the_client_has_left(self) -> None:
        gone = asyncio.Event()
        working = threading.Event()

        def work(pauses: Pauses) -> None:
            while True:
                working.set()
                pauses()

        async def played() -> None:
            pauses = Pauses()
            async with pauses.until(gone.is_set):
                running = asyncio.create_task(asyncio.to_thread(work, pauses))
                await asyncio.to_thread(working.wait)
                gone.set()
                with pytest.raises(LeftError):
                    await running

        asyncio.run(played())
