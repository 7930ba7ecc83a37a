"""A sensor whose disk fails, whose process ends at the worst moment, and whose posts are refused:
nothing that was synced is lost, and whatever can be delivered is."""

from __future__ import annotations

import os
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client.faults import SUM, element, whole_sum
from client.test_core import (
    EAGER,
    RECIPE,
    Clock,
    Server,
    answered,
    built,
    core,
    deliver,
    feed,
    spool,
)

from decaysketch import SketchParams
from decaysketch.client import spool as spool_module
from decaysketch.client.clock import AggregatorClock
from decaysketch.client.core import Core, Request, Wait
from decaysketch.client.delivery import Answer
from decaysketch.client.errors import StreamUnknownError
from decaysketch.client.policy import Policy
from decaysketch.errors import ObservationError
from decaysketch.families import recipe_of

__all__ = ["spool"]  # the fixture

NUMBERED: dict[str, Any] = {"recipe": recipe_of(SUM), "numbered": True}
OLD = Policy(flush_rows=10**9, flush_age_s=5, backoff_s=1, max_backoff_s=60)


def number_some(one: Core, count: int) -> None:
    for _ in range(count):
        place = one.store.next_number
        assert place is not None
        value, time = element(place)
        one.update({"values": value, "timestamps": time}, named_by="sequence")


def killed(one: Core) -> None:
    one.store.spool.close()


def full(*_: Any) -> None:
    raise OSError("no space left")


def found(one: Core, server: Server) -> None:
    look = one.look()
    one.settle(look, server.answer(look))


# -------------------------------------------------------------------------------------- numbers


def test_numbers_given_while_a_delta_is_written_survive_a_crash(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last that is in a delta is one thing, the next to be given another."""
    one = core(spool, **NUMBERED)
    number_some(one, 10)
    add = one.store.spool.add

    def add_while_fed(*arguments: Any) -> Any:
        kept = add(*arguments)
        number_some(one, 10)
        return kept

    monkeypatch.setattr(one.store.spool, "add", add_while_fed)
    one.seal()
    monkeypatch.undo()
    one.sync()
    assert (one.status().synced_rows, one.status().next_number) == (10, 20)
    killed(one)
    again, server = core(spool, **NUMBERED), Server(NUMBERED["recipe"])
    assert again.status().next_number == 20
    deliver(again, server)
    assert list(server.ledger) == [(0, 10), (10, 20)]
    assert server.merged().to_bytes() == whole_sum("a", 20).to_bytes()


def test_numbers_outlive_the_deltas_that_had_them(spool: Path) -> None:
    one, server = core(spool, **NUMBERED), Server(NUMBERED["recipe"])
    number_some(one, 7)
    one.seal()
    deliver(one, server)
    killed(one)
    assert core(spool, **NUMBERED).status().next_number == 7


@pytest.mark.parametrize("name", ["write_card", "clear_log", "add"])
def test_intervals_never_overlap_whatever_the_disk_refused(
    spool: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one, server = core(spool, **NUMBERED), Server(NUMBERED["recipe"])
    number_some(one, 5)
    one.sync()
    number_some(one, 5)
    with monkeypatch.context() as patch:
        patch.setattr(one.store.spool, name, full)
        try:
            one.seal()
        except OSError:
            assert name != "write_card"  # is not written then
        deliver(one, server)
    number_some(one, 10)
    one.seal()
    deliver(one, server)
    assert sorted(server.ledger)[-1][1] == 20
    assert sum(end - first for first, end in server.ledger) == 20
    assert (one.status().done, one.status().rejected) == (True, 0)


def test_delta_stays_until_its_numbers_are_kept(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, server = core(spool, **NUMBERED), Server(NUMBERED["recipe"])
    number_some(one, 5)
    one.seal()
    with monkeypatch.context() as patch:
        patch.setattr(one.store.spool, "write_card", full)
        deliver(one, server)
        assert one.status().pending_deltas == 1
    deliver(one, server)
    assert (one.status().done, list(server.ledger)) == (True, [(0, 5)])


# ------------------------------------------------------------------------------------- the disk


def test_full_disk_does_not_stop_delivery(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is delivered frees it; sealing alone backs off."""
    clock, server = Clock(), Server()
    one = core(spool, OLD, clock=clock)
    for first in (0, 10):
        feed(one, range(first, first + 10))
        one.seal()
    feed(one, range(20, 30))
    clock.now += 5
    with monkeypatch.context() as patch:
        patch.setattr(spool_module, "write_whole", full)
        deliver(one, server)
        assert server.merged() == built(range(20))
        status = one.status()
        assert (status.pending_deltas, status.unsynced_rows) == (0, 10)
        step = one.next_step()
        assert isinstance(step, Wait)
        assert step.seconds is not None
        assert 0 < step.seconds <= 1
    clock.now += 1
    deliver(one, server)
    assert server.merged() == built(range(30))


def test_disk_that_is_full_at_the_first_start(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = core(spool, recipe=None)
    with monkeypatch.context() as patch:
        patch.setattr(spool_module, "write_whole", full)
        found(one, Server())
        with pytest.raises(StreamUnknownError, match="no space left"):
            feed(one, [1])
        assert isinstance(one.next_step(), Wait)
    found(one, Server())
    assert feed(one, [1]) == 1


def test_delta_that_cannot_be_read_now_does_not_hold_up_the_others(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, server, events = Clock(), Server(), []
    one = core(spool, clock=clock, on_event=lambda event: events.append(event.kind))
    for first in (0, 10, 20):
        feed(one, range(first, first + 10))
        one.seal()
    bad, read = one.store.spool.deltas[1], one.store.spool.read

    def failing(delta: Any) -> bytes:
        if delta == bad:
            raise OSError("input/output error")
        return read(delta)

    with monkeypatch.context() as patch:
        patch.setattr(one.store.spool, "read", failing)
        deliver(one, server)
        assert one.next_step() == Wait(60)
    assert events == ["held", "acknowledged"]
    assert server.merged() == built([*range(10), *range(20, 30)])
    assert (one.status().pending_deltas, one.status().held) == (1, 1)
    clock.now += 60
    deliver(one, server)
    assert server.merged() == built(range(30))
    assert (one.status().done, one.status().held) == (True, 0)


def test_delta_whose_file_is_gone_is_told(spool: Path) -> None:
    events: list[Any] = []
    one, server = core(spool, on_event=events.append), Server()
    for first in (0, 10):
        feed(one, range(first, first + 10))
        one.seal()
    min((spool / "deltas").iterdir()).unlink()
    deliver(one, server)
    assert [event.kind for event in events] == ["damaged", "acknowledged"]
    assert "another program removed its file" in events[0].detail
    assert server.merged() == built(range(10, 20))
    assert one.status().done


def test_adopting_keeps_what_is_given_meanwhile(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = core(spool)
    feed(one, range(10))
    other = recipe_of(SketchParams(max_weight=1, id_bits=40, capacity=20_000, seed=4))
    server = Server(other)
    found(one, server)
    reject = one.store.spool.reject

    def reject_while_fed(*arguments: Any) -> None:
        reject(*arguments)
        feed(one, range(100, 103))

    monkeypatch.setattr(one.store.spool, "reject", reject_while_fed)
    assert one.adopt() == 1
    assert one.status().unsynced_rows == 3
    one.seal()
    deliver(one, server)
    assert sorted(server.merged().state().ids.tolist()) == [100, 101, 102]


def test_adopting_on_a_full_disk_changes_nothing(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = core(spool)
    feed(one, range(10))
    found(one, Server(recipe_of(SketchParams(max_weight=1, id_bits=40, capacity=20_000, seed=4))))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            one.adopt()
    status = one.status()
    assert (one.recipe, status.unsynced_rows, status.rejected) == (RECIPE, 10, 0)
    assert one.adopt() == 1


def test_room_that_people_made_is_found(spool: Path) -> None:
    size = len(built(range(100)).to_bytes())
    one, server = core(spool, Policy(flush_age_s=10**9, max_spool_bytes=size)), Server()
    feed(one, range(100))
    one.seal()
    found(one, server)
    step = one.next_step()
    assert isinstance(step, Request)
    problem = {"type": "urn:decaysketch:problem:corrupt-sketch", "detail": "no"}
    one.settle(step, answered(422, problem))
    for path in (spool / "rejected").iterdir():
        path.unlink()
    assert feed(one, [1]) == 1


# --------------------------------------------------------------------------- what is not taken now


def test_times_ahead_of_the_aggregator_wait_by_themselves(spool: Path) -> None:
    """They are not merged with others, which would wait as well."""
    clock, server = Clock(), Server()
    one = core(spool, clock=clock)
    feed(one, range(10))
    one.seal()
    found(one, server)
    step = one.next_step()
    assert isinstance(step, Request)
    one.settle(step, answered(422, {"type": "urn:decaysketch:problem:clock-ahead"}))
    seal = one.seal()
    for first in (10, 20):
        feed(one, range(first, first + 10))
        seal = one.seal()
    deliver(one, server)
    assert server.bodies == [built(range(10, 30)).to_bytes()]
    assert one.settled(seal)
    assert (one.status().held, one.status().done, one.status().rejected) == (1, False, 0)
    assert one.next_step() == Wait(60)
    clock.now += 60
    deliver(one, server)
    assert server.merged() == built(range(30))


def test_posts_that_are_too_long_are_made_no_longer(spool: Path) -> None:
    size = len(built(range(1000)).to_bytes())
    one, server = core(spool), Server()
    for first in (0, 1000, 2000, 3000):
        feed(one, range(first, first + 1000))
        one.seal()
    found(one, server)
    step = one.next_step()
    assert isinstance(step, Request)
    assert step.content is not None
    assert len(step.content) > 3 * size
    one.settle(step, answered(413, {}))
    for first in range(4000, 10_000, 1000):
        feed(one, range(first, first + 1000))
        one.seal()
    deliver(one, server)
    assert max(map(len, server.bodies)) <= len(step.content) / 2
    assert server.merged() == built(range(4000, 10_000))
    assert one.status().held == 1


@pytest.mark.parametrize("status", [400, 407, 415, 421, 451])
def test_nothing_is_given_up_for_a_stranger(spool: Path, status: int) -> None:
    clock, server = Clock(), Server()
    one = core(spool, clock=clock)
    feed(one, range(10))
    one.seal()
    found(one, server)
    step = one.next_step()
    assert isinstance(step, Request)
    one.settle(step, Answer(status, {}, b"<html>"))
    assert (one.paused, one.status().rejected) == (f"{status}: no detail", 0)
    clock.now += 60
    deliver(one, server)
    assert server.merged() == built(range(10))


def test_times_past_what_the_stream_admits_are_refused_at_once(spool: Path) -> None:
    one, now = core(spool), 1_700_000_000
    look = one.look()
    said = {"name": "s", **RECIPE.to_dict(), "max_clock_skew_s": 300.0}
    one.settle(look, answered(200, said, date=formatdate(now, usegmt=True)))
    columns: dict[str, Any] = {"values": [1.0, 1.0], "weights": 1, "ids": [1, 2]}
    late = columns | {"timestamps": np.array([now, now + 10_000])}
    with pytest.raises(ObservationError, match=rf"timestamps\[1\] is {now + 10_000}; .*skew_s"):
        one.update(late, named_by="ids")
    assert one.status().done
    assert one.update(late | {"not_after": now}, named_by="ids") == 2
    assert one.update(columns | {"timestamps": [now, now + 300]}, named_by="ids") == 2


def test_what_is_early_is_kept_and_taken_when_its_time_has_come(spool: Path) -> None:
    """By itself: merged with what is given later it would have a later clock, and never be due."""
    clock, server = Clock(), Server()
    one = core(spool, clock=clock)
    feed(one, range(10))
    one.seal()
    found(one, server)
    early = {"type": "urn:decaysketch:problem:clock-ahead", "detail": "clock is 9"}
    step = one.next_step()
    assert isinstance(step, Request)
    one.settle(step, answered(429, early, **{"retry-after": "12"}))
    feed(one, range(10, 20))
    one.seal()
    deliver(one, server)  # the others go on
    assert server.merged() == built(range(10, 20))
    assert (one.paused, one.status().rejected, one.status().held) == (None, 0, 1)
    wait = one.next_step()
    assert isinstance(wait, Wait)
    assert wait.seconds == pytest.approx(12)
    clock.now += 12
    deliver(one, server)
    assert server.merged() == built(range(20))
    assert one.status().done


def test_sketches_are_told_no_time_that_the_aggregator_would_not_take(spool: Path) -> None:
    """Of a device whose clock is ahead: what it posts is taken at once, and forgets a little later
    than the device would have."""
    recipe, now = recipe_of(SUM), 1_700_000_000
    one = core(spool, recipe=recipe)
    one.store.aggregator_clock = AggregatorClock(steady=lambda: 0.0, wall=lambda: 0.0)
    limits = {"max_clock_skew_s": 300.0, "max_clock_lead_s": 3.0}
    said = {"name": "s", **recipe.to_dict(), **limits}
    one.settle(one.look(), answered(200, said, date=formatdate(now, usegmt=True)))
    one.advance(now + 1)
    assert one.store._fresh.sketch.clock == now + 1
    one.advance(now + 250)
    assert one.store._fresh.sketch.clock == now + 3
    with pytest.raises(ObservationError, match="now is"):
        one.advance(now + 3_000)


def test_error_that_nobody_foresaw_is_waited_out(spool: Path) -> None:
    one = core(spool)
    step = one.stumbled(ZeroDivisionError("x"))
    assert step.seconds is not None
    assert 0 <= step.seconds <= EAGER.backoff_s
    assert one.status().last_error == "ZeroDivisionError: x"
