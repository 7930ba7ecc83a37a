"""A sensor without its network: what it keeps, sends and says, and that a crash at any moment loses
nothing that was synced."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client.faults import SUM, element, whole_sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decaysketch import DecaySketch, IntegralDecaySketch, SketchParams, decay
from decaysketch.asyncwindow import SumSampler
from decaysketch.client.core import Core, Request, Wait
from decaysketch.client.delivery import Answer
from decaysketch.client.errors import ClientError, SpoolFullError, StreamUnknownError
from decaysketch.client.policy import Policy
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.families import merge, recipe_of

PARAMS = SketchParams(max_weight=1, id_bits=40, capacity=10_000, seed=3)
RECIPE = recipe_of(PARAMS)
CORRUPT = "urn:decaysketch:problem:corrupt-sketch"
EAGER = Policy(flush_rows=10**9, flush_age_s=10**9, backoff_s=1, max_backoff_s=60)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Server:
    """What an aggregator does with posts, by the contract."""

    def __init__(self, recipe: Any = RECIPE) -> None:
        self.recipe = recipe
        self.sketches: list[Any] = []
        self.ledger: dict[tuple[int, int], bytes] = {}
        self.bodies: list[bytes] = []

    def answer(self, request: Request) -> Answer:
        if request.delta is None:
            return answered(200, {"name": "s", **self.recipe.to_dict(), "rows": 0})
        assert request.content is not None
        assert request.path == "/v1/streams/s/sketches"
        self.bodies.append(request.content)
        if "first" in request.params:
            interval = int(request.params["first"]), int(request.params["next"])
            if self.ledger.get(interval, request.content) != request.content or any(
                first < interval[1] and interval[0] < end and (first, end) != interval
                for first, end in self.ledger
            ):
                return answered(409, {"type": "urn:decaysketch:problem:interval-conflict"})
            self.ledger[interval] = request.content
        self.sketches.append(self.recipe.decode(request.content))
        return answered(200, {"stream": "s", "source": "a", "token": f"s:1:{len(self.bodies)}"})

    def merged(self) -> Any:
        return merge(self.sketches) if self.sketches else self.recipe.empty()


def answered(status: int, fields: dict[str, Any], **headers: str) -> Answer:
    return Answer(status, headers, json.dumps(fields).encode())


def core(spool: Path, policy: Policy = EAGER, **options: Any) -> Core:
    chosen = {"clock": Clock(), "randomness": random.Random(1), "recipe": RECIPE} | options
    return Core("s", "a", spool, policy, **chosen)


def feed(one: Core, ids: Any, **options: Any) -> int:
    ids = np.asarray(ids)
    columns = {"values": ids * 1.0, "weights": 1, "timestamps": ids % 97, "ids": ids}
    return one.update(columns | options, named_by="ids")


def built(ids: Any) -> DecaySketch:
    sketch = DecaySketch(PARAMS)
    ids = np.array(sorted(ids), dtype=np.int64)
    sketch.update(ids * 1.0, 1, ids % 97, ids)
    return sketch


def deliver(one: Core, server: Server) -> None:
    """Everything that may be sent now."""
    one.hurry()
    while isinstance(step := one.next_step(), Request):
        one.settle(step, server.answer(step))


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


# ------------------------------------------------------------------------------------------- laws


class Crash(BaseException):
    """The process is gone."""


WRITES = ("fsync", "replace", "rename", "unlink", "ftruncate", "pwrite")


class Disk:
    """The calls that change files; the one of a given number is the last of the process."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: float = float("inf")
        self.before = True
        for name in WRITES:
            patch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 and self.before:
                raise Crash
            result = call(*arguments, **options)
            if self.left == 0:
                raise Crash
            return result

        return watched


STEPS = st.one_of(
    st.tuples(st.just("update"), st.integers(0, 40)),
    st.tuples(st.sampled_from(["sync", "seal", "deliver", "answer lost", "restart"]), st.just(0)),
    st.tuples(st.sampled_from(["crash before", "crash after"]), st.integers(1, 25)),
)
LAWS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=60,
)


class Device:
    """Runs steps; a crash is followed by a new process on the same spool."""

    def __init__(self, spool: Path, disk: Disk, **options: Any) -> None:
        self.spool, self.disk, self.options = spool, disk, options
        self.server = Server(options.get("recipe", RECIPE))
        self.fed: set[int] = set()
        self.given: set[int] = set()  # to this process
        self.synced: set[int] = set()
        self.core = core(spool, **options)

    def run(self, steps: list[tuple[str, int]]) -> None:
        for name, number in steps:
            try:
                self._step(name, number)
            except Crash:
                self._start_again()
        self.disk.left = float("inf")
        self._start_again()
        deliver(self.core, self.server)
        status = self.core.status()
        assert status.done
        assert (status.rejected, status.damaged) == (0, 0)
        self.core.close()

    def _start_again(self) -> None:
        self.core.store.spool.close()
        self.disk.left = float("inf")
        self.given = set()
        self.core = core(self.spool, **self.options)

    def _step(self, name: str, number: int) -> None:
        match name:
            case "update":
                self._update(number)
            case "sync":
                self.core.sync()
                self.synced |= self.given
            case "seal":
                self.core.seal()
                self.synced |= self.given
            case "deliver":
                deliver(self.core, self.server)
            case "answer lost":
                self.core.hurry()
                step = self.core.next_step()
                if isinstance(step, Request):
                    self.server.answer(step)
                    self.core.settle(step, ConnectionResetError("gone"))
            case "restart":
                raise Crash
            case "crash before" | "crash after":
                self.disk.left, self.disk.before = number, name == "crash before"

    def _update(self, number: int) -> None:
        ids = range(7 * number, 7 * number + 10)  # some were in another update
        feed(self.core, ids)
        self.fed |= set(ids)
        self.given |= set(ids)


class NumberingDevice(Device):
    """Feeds element after element, from the number on that the spool says."""

    def _update(self, number: int) -> None:
        for _ in range(number):
            place = self.core.status().next_number
            assert place is not None
            value, time = element(place)
            self.core.update({"values": value, "timestamps": time}, named_by="sequence")
            self.fed.add(place)
            self.given.add(place)

    def _start_again(self) -> None:
        super()._start_again()
        self.fed = set(range(self.core.status().next_number or 0))
        assert self.synced <= self.fed


@LAWS
@given(st.lists(STEPS, max_size=25))
def test_whatever_was_synced_arrives_once(tmp_path_factory: Any, steps: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        device = Device(tmp_path_factory.mktemp("device") / "spool", Disk(patch))
        device.run(steps)
    merged = device.server.merged()
    arrived = set(merged.state().ids.tolist())
    assert device.synced <= arrived <= device.fed
    assert merged.to_bytes() == built(arrived).to_bytes()


@LAWS
@given(st.lists(STEPS, max_size=25))
def test_numbered_elements_arrive_once(tmp_path_factory: Any, steps: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        device = NumberingDevice(
            tmp_path_factory.mktemp("device") / "spool", Disk(patch),
            recipe=recipe_of(SUM), numbered=True,
        )  # fmt: skip
        device.run(steps)
    taken = [number for interval in device.server.ledger for number in range(*interval)]
    assert sorted(taken) == list(range(len(taken)))
    assert device.synced <= set(taken) <= device.fed
    if taken:
        assert device.server.merged().to_bytes() == whole_sum("a", len(taken)).to_bytes()


# ------------------------------------------------------------------------------- when to send what


def test_deltas_are_of_what_is_not_acknowledged(spool: Path) -> None:
    one, server = core(spool), Server()
    for first in (0, 100):
        feed(one, range(first, first + 100))
        one.seal()
        deliver(one, server)
    assert server.bodies == [built(range(100)).to_bytes(), built(range(100, 200)).to_bytes()]
    status = one.status()
    assert (status.posts, status.posted_bytes) == (2, sum(map(len, server.bodies)))
    assert (status.last_token, status.last_error, status.done) == ("s:1:2", None, True)


def test_deltas_are_made_by_rows_bytes_and_age(spool: Path) -> None:
    clock = Clock()
    policy = Policy(flush_rows=100, flush_bytes=1000, flush_age_s=5)
    one = core(spool, policy, clock=clock)
    feed(one, range(10))
    assert one.next_step() == Wait(5)
    clock.now += 4
    feed(one, range(10, 20))
    assert one.next_step() == Wait(1)
    clock.now += 1
    assert isinstance(one.next_step(), Request)  # old
    assert one.status().pending_deltas == 1
    feed(one, range(20, 120))
    one.next_step()
    assert one.status().synced_rows == one.status().unsynced_rows == 0  # many
    one.close()
    guess = core(spool / "other", Policy(flush_rows=10**6, flush_bytes=1600, flush_age_s=5))
    woken: list[int] = []
    guess.wake = lambda: woken.append(guess.status().unsynced_rows)
    for first in range(0, 150, 25):
        feed(guess, range(first, first + 25))
    assert woken == [25, 100, 125, 150]  # the first, for its age; then 16 bytes a row were enough


def test_what_waits_is_merged_before_it_is_sent(spool: Path) -> None:
    """Absence costs the bytes of one sketch, not of every delta."""
    one, server = core(spool), Server()
    for number in range(200):
        feed(one, range(10 * number, 10 * number + 10))
        one.seal()
        assert one.status().pending_deltas <= 17
    deliver(one, server)
    assert server.bodies == [built(range(2000)).to_bytes()]


def test_merged_only_as_far_as_a_post_may_be_long(spool: Path) -> None:
    size = len(built(range(1000)).to_bytes())
    one = core(spool, Policy(flush_rows=10**9, flush_age_s=10**9, max_post_bytes=int(3.5 * size)))
    server = Server()
    for number in range(6):
        feed(one, range(1000 * number, 1000 * number + 1000))
        one.seal()
    deliver(one, server)
    assert len(server.bodies) == 2
    assert max(map(len, server.bodies)) <= 3.5 * size
    assert server.merged() == built(range(6000))


def test_numbered_deltas_are_sent_as_they_first_were(spool: Path) -> None:
    one, server = core(spool, recipe=recipe_of(SUM), numbered=True), Server(recipe_of(SUM))
    blobs = []
    for first in (0, 30):
        sampler = SumSampler(SUM, source="a", next_number=first)
        for number in range(first, first + 30):
            value, time = element(number)
            sampler.update(value, time)
            one.update({"values": value, "timestamps": time}, named_by="sequence")
        blobs.append(sampler.to_bytes())
        one.seal()
    one.close()
    again = core(spool, recipe=recipe_of(SUM), numbered=True)
    assert again.status().next_number == 60
    deliver(again, server)
    assert server.ledger == {(0, 30): blobs[0], (30, 60): blobs[1]}


def test_clock_of_a_fixed_decay_arrives(spool: Path) -> None:
    recipe = recipe_of(PARAMS, decay.integral.window(50))
    one, server = core(spool, recipe=recipe), Server(recipe)
    feed(one, range(60, 90), now=96)
    one.seal()
    deliver(one, server)
    one.advance(130)
    one.close()
    again = core(spool, recipe=recipe)
    deliver(again, server)
    expected = IntegralDecaySketch(PARAMS, decay.integral.window(50))
    ids = np.arange(60, 90)
    expected.update(ids * 1.0, 1, ids % 97, ids, now=130)
    assert server.merged().to_bytes() == expected.to_bytes()


def test_waits_longer_after_each_failure_and_as_long_as_it_is_told(spool: Path) -> None:
    clock, server = Clock(), Server()
    one = core(spool, clock=clock)
    feed(one, range(10))
    one.seal()
    look = one.next_step()
    assert isinstance(look, Request)
    one.settle(look, ConnectionRefusedError("nobody there"))
    waits = one.next_step()
    assert isinstance(waits, Wait)
    assert 0 < waits.seconds <= 1
    assert one.status().last_error == "ConnectionRefusedError: nobody there"
    clock.now += waits.seconds
    one.settle(look, server.answer(look))
    post = one.next_step()
    assert isinstance(post, Request)
    one.settle(post, answered(429, {"detail": "slowly"}, **{"retry-after": "40"}))
    one.hurry()  # not before the time that the server named
    told = one.next_step()
    assert isinstance(told, Wait)
    assert told.seconds == pytest.approx(40)
    clock.now += 40
    deliver(one, server)
    assert one.status().done
    assert one.status().failed_bytes == len(server.bodies[0])


def test_one_delta_that_fails_does_not_hold_up_the_others(spool: Path) -> None:
    one, server = core(spool, recipe=recipe_of(SUM), numbered=True), Server(recipe_of(SUM))
    for _ in range(2):
        one.update({"values": [1, 2], "timestamps": [5, 6]}, named_by="sequence")
        one.seal()
    look = one.next_step()
    assert isinstance(look, Request)
    one.settle(look, server.answer(look))
    first = one.next_step()
    assert isinstance(first, Request)
    one.settle(first, answered(500, {}))
    one.hurry()
    second = one.next_step()
    assert isinstance(second, Request)
    assert (first.params["first"], second.params["first"]) == ("0", "2")


# ------------------------------------------------------------------------------ what is not taken


def test_refused_delta_is_set_aside_with_the_problem(spool: Path) -> None:
    events: list[Any] = []
    one, server = core(spool, on_event=events.append), Server()
    feed(one, range(10))
    one.seal()
    look = one.next_step()
    assert isinstance(look, Request)
    one.settle(look, server.answer(look))
    post = one.next_step()
    assert isinstance(post, Request)
    one.settle(
        post, answered(422, {"type": CORRUPT, "detail": "the checksum is wrong", "errors": [1]})
    )
    assert [event.kind for event in events] == ["rejected"]
    status = one.status()
    assert (status.rejected, status.done) == (1, True)
    assert status.last_error == "422: the checksum is wrong"
    [body] = (spool / "rejected").glob("*.sketch")
    assert body.read_bytes() == post.content
    note = json.loads(Path(f"{body}.json").read_text())
    assert note == {
        "type": CORRUPT, "detail": "the checksum is wrong", "errors": [1], "status": 422
    }  # fmt: skip


def test_stream_that_was_created_again(spool: Path) -> None:
    """Nothing is sent and nothing is lost, until someone decides."""
    clock = Clock()
    one = core(spool, clock=clock)
    feed(one, range(10))
    one.seal()
    other = recipe_of(SketchParams(max_weight=1, id_bits=40, capacity=20_000, seed=4))
    server = Server(other)
    deliver(one, server)
    status = one.status()
    assert status.paused is not None
    assert "created again with other parameters (seed: 3 -> 4)" in status.paused
    assert (status.pending_deltas, server.bodies) == (1, [])
    feed(one, range(10, 20))  # still by the old parameters
    assert one.adopt() == 2
    assert one.recipe == other
    assert one.status().rejected == 2
    feed(one, range(5))
    one.seal()
    deliver(one, server)
    assert len(server.merged()) == 5
    one.close()
    assert core(spool, recipe=None).recipe == other


def test_stream_that_comes_back_is_served_again(spool: Path) -> None:
    clock, server = Clock(), Server()
    one = core(spool, clock=clock)
    feed(one, range(10))
    one.seal()
    look = one.next_step()
    assert isinstance(look, Request)
    one.settle(look, answered(404, {"detail": "there is no stream 's'"}))
    assert one.paused == "404: there is no stream 's'"
    assert one.next_step() == Wait(60)
    clock.now += 60
    deliver(one, server)
    assert one.status().done
    assert one.paused is None


def test_larger_capacity_of_the_stream_is_a_difference_a_smaller_one_is_none(spool: Path) -> None:
    one = core(spool)
    look = one.look()
    for capacity, differs in ((5_000, False), (20_000, True)):
        one.settle(look, Server(recipe_of(PARAMS.with_capacity(capacity))).answer(look))
        assert (one.paused is not None) is differs


def test_delta_that_is_damaged_is_set_aside(spool: Path) -> None:
    events: list[Any] = []
    one, server = core(spool, on_event=events.append), Server()
    for first in (0, 10):
        feed(one, range(first, first + 10))
        one.seal()
    path = sorted((spool / "deltas").iterdir())[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    deliver(one, server)
    assert [event.kind for event in events] == ["damaged", "acknowledged"]
    assert server.merged() == built(range(10, 20))
    assert one.status().damaged == 1
    [kept] = (spool / "damaged").glob("*.sketch")
    assert kept.read_bytes() == content


def test_full_spool_refuses_and_takes_again(spool: Path) -> None:
    policy = Policy(flush_rows=10**9, flush_age_s=10**9, max_spool_bytes=100)
    one, server = core(spool, policy), Server()
    feed(one, range(100))
    one.seal()
    with pytest.raises(SpoolFullError, match=r"expected less than 100 \(max_spool_bytes\)"):
        feed(one, [100])
    deliver(one, server)
    feed(one, [100])
    one.seal()
    deliver(one, server)
    assert server.merged() == built(range(101))


def test_disk_that_fails_loses_nothing(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Clock(), Server()
    one = core(spool, Policy(flush_rows=5, max_backoff_s=1), clock=clock)

    def fail(_: int) -> None:
        raise OSError("no space left")

    feed(one, range(10))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space left"):
            one.sync()
        assert isinstance(one.next_step(), Wait)
        assert one.status().last_error == "the spool cannot be written: OSError: no space left"
        feed(one, range(10, 20))
        assert one.status().unsynced_rows == 20
    clock.now += 1
    deliver(one, server)
    assert server.merged() == built(range(20))


def test_bad_rows_are_refused_and_nothing_of_them_is_taken(spool: Path) -> None:
    one = core(spool)
    with pytest.raises(ObservationError, match=r"ids\[1\]"):
        feed(one, [1, -1])
    assert one.status().done


def test_families_are_fed_by_their_own_names(tmp_path: Path) -> None:
    elements = {"values": 1, "timestamps": 5}
    with pytest.raises(ClientError, match="of family 'decay'; feed it by update"):
        core(tmp_path / "a").update(elements, named_by="sequence")
    with pytest.raises(ClientError, match="'decay', which has no clock"):
        core(tmp_path / "b").advance(5)
    with pytest.raises(ClientError, match="numbered is True, which is for the families sum"):
        core(tmp_path / "c", numbered=True)
    sums = core(tmp_path / "d", recipe=recipe_of(SUM))
    with pytest.raises(ClientError, match="of family 'sum'; feed it by update_elements"):
        feed(sums, [1])
    with pytest.raises(ClientError, match="sequence is missing"):
        sums.update(dict(elements), named_by="sequence")
    assert sums.update({**elements, "sequence": 7}, named_by="sequence") == 1
    numbering = core(tmp_path / "e", recipe=recipe_of(SUM), numbered=True)
    with pytest.raises(ClientError, match="sequence is given"):
        numbering.update({**elements, "sequence": 7}, named_by="sequence")


def test_spool_is_of_one_stream_and_source(spool: Path) -> None:
    core(spool).close()
    for stream, source, named in (("t", "a", "stream 's'"), ("s", "b", "source 'a'")):
        with pytest.raises(ClientError, match=f"is of {named}"):
            Core(stream, source, spool, EAGER)
    other = recipe_of(SketchParams(max_weight=2))
    with pytest.raises(ClientError, match="another sketch configuration"):
        core(spool, recipe=other)
    core(spool, recipe=None).close()  # and none of these kept it locked


def test_closed_and_unknown(spool: Path) -> None:
    unknown = core(spool / "other", recipe=None)
    with pytest.raises(StreamUnknownError, match="start the sensor first"):
        feed(unknown, [1])
    look = unknown.look()
    unknown.settle(look, answered(404, {"detail": "there is no stream 's'"}))
    with pytest.raises(StreamUnknownError, match="404: there is no stream 's'"):
        feed(unknown, [1])
    unknown.settle(look, Server().answer(look))
    assert feed(unknown, [1]) == 1
    unknown.close()
    unknown.close()
    assert unknown.next_step() is None
    with pytest.raises(ClientError, match="closed"):
        feed(unknown, [1])


@pytest.mark.parametrize("name", list(vars(Policy())))
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} is 0; expected more than 0"):
        Policy(**{name: 0})


def test_listener_that_fails_stops_nothing(spool: Path, caplog: pytest.LogCaptureFixture) -> None:
    def listener(event: Any) -> None:
        raise RuntimeError("no")

    one, server = core(spool, on_event=listener), Server()
    feed(one, [1])
    one.seal()
    deliver(one, server)
    assert one.status().done
    assert "on_event failed" in caplog.text
