"""Threads for posts and threads for questions, and which of them go first."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from api.service import threads
from api.service.threads import Precedence, pools


@pytest.mark.parametrize(("threads", "at_once"), [(1, 1), (2, 1), (3, 2)])
def test_questions_have_threads_of_their_own(threads: int, at_once: int) -> None:
    running: set[int] = set()
    most: list[int] = []
    begun, together = threading.Event(), threading.Barrier(at_once)

    def busy(number: int) -> str:
        running.add(number)
        begun.set()
        if 0 <= number < at_once:  # the first ones wait for one another
            together.wait(300)
        most.append(len(running))
        time.sleep(0.02)
        running.remove(number)
        return threading.current_thread().name

    async def scene() -> None:
        posts, questions = pools(threads)
        gone = asyncio.create_task(questions(busy, -1))
        await asyncio.to_thread(begun.wait)
        gone.cancel()  # the thread goes on, and is not free
        names = await asyncio.gather(*(questions(busy, number) for number in range(5)))
        assert all(name.startswith("queries") for name in names)
        posts.close()
        questions.close()

    asyncio.run(scene())
    assert max(most) == at_once


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, once set; and precedence for as long as ten seconds."""
    now = [100.0]
    monkeypatch.setattr(threads.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(threads, "_LONGEST_S", 10.0)
    return now


def _giving_way(precedence: Precedence) -> threading.Event:
    """Somebody who gives way; the event says that he has gone on."""
    gone_on = threading.Event()

    def work() -> None:
        precedence.give_way()
        gone_on.set()

    threading.Thread(target=work).start()
    return gone_on


def test_work_waits_for_all_that_goes_first(clock: list[float]) -> None:
    precedence = Precedence()
    with precedence.first():
        gone_on = _giving_way(precedence)
        with precedence.first():
            pass
        assert not gone_on.wait(0.05)
    assert gone_on.wait(300)


def test_work_is_held_up_for_a_moment_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_LONGEST_S", 0.01)
    precedence = Precedence()
    with precedence.first():
        assert _giving_way(precedence).wait(300)


def test_who_was_held_up_is_not_held_up_again_for_as_long(clock: list[float]) -> None:
    precedence = Precedence()
    with precedence.first():
        clock[0] += 4
    clock[0] += 3
    with precedence.first():
        assert _giving_way(precedence).wait(300)
    clock[0] += 1
    with precedence.first():
        gone_on = _giving_way(precedence)
        assert not gone_on.wait(0.05)
    assert gone_on.wait(300)


def test_posts_give_way_to_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_LONGEST_S", 600.0)  # however slow the machine is

    async def scene() -> list[str]:
        posts, questions = pools(2)
        done: list[str] = []
        answering = asyncio.create_task(questions(_slow, done, "question"))
        await asyncio.sleep(0)
        await asyncio.gather(answering, posts(done.append, "post"))
        posts.close()
        questions.close()
        return done

    def _slow(done: list[str], what: str) -> None:
        time.sleep(0.01)
        done.append(what)

    assert asyncio.run(scene()) == ["question", "post"]
