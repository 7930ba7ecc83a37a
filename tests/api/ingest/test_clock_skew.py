"""Sketches from the future are refused, and those that only look like it are not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from families import CASES, MEDIAN, SUM
from fastapi.testclient import TestClient
from service import NOW, PARAMS, build, problem

import decaysketch as ds
from api.errors import ClockAheadError, ClockEarlyError
from api.ingest.checks import CLOCK_SHARE, check_times, clock_lead_s
from api.service.streams import latest_time
from decaysketch import Snapshot
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

NOW_NS = NOW * 1_000_000_000


def check(snapshot: Snapshot, skew_s: float | None = 60) -> dict[str, tuple[Any, Any]]:
    """What is refused: {field: (value, expected)}."""
    try:
        check_times(snapshot, stream="s", max_clock_skew_s=skew_s, now_ns=NOW_NS)
    except ClockAheadError as error:
        return {fault.field: (fault.value, fault.expected) for fault in error.faults}
    return {}


def of_time(newest: int, **params: Any) -> Snapshot:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=20, **params))
    sketch.update(None, 1, [0, newest], [1, 2])
    return sketch.snapshot()


class TestTheLatestTime:
    @pytest.mark.parametrize(
        ("unit", "expected"),
        [("s", NOW + 90), ("ms", (NOW + 90) * 1000), ("min", (NOW + 90) // 60), ("d", 1)],
    )
    def test_is_now_and_the_skew_in_whole_units(self, unit: str, expected: int) -> None:
        assert latest_time(unit, 90, NOW_NS) == expected

    def test_is_any_where_nobody_knows_or_nothing_is_forbidden(self) -> None:
        assert latest_time("frames", 90, NOW_NS) is None
        assert latest_time("s", None, NOW_NS) is None


class TestASketch:
    def test_up_to_the_skew_is_taken(self) -> None:
        assert check(of_time(NOW + 60)) == {}
        assert check(of_time(NOW + 61)) == {"newest": (NOW + 61, NOW + 60)}
        assert check(of_time(NOW + 61), None) == {}
        assert check(of_time(NOW * 99, time_unit="frames")) == {}
        assert check(of_time(-5)) == {}

    def test_of_several_hash_functions_by_the_latest_of_all(self) -> None:
        late = of_time(NOW + 61, copies=5, capacity=1)
        assert check(late)["newest"] == (NOW + 61, NOW + 60)

    def test_of_nothing_has_no_time(self) -> None:
        for case in CASES.values():
            snapshot = ds.families.recipe_from_dict(case.creation).empty().snapshot()
            assert snapshot.newest is None
            assert check(snapshot) == {}

    def test_of_every_family_is_taken_as_it_is_built(self) -> None:
        for case in CASES.values():
            snapshot = case.build(3, 0).snapshot()
            assert snapshot.newest is not None
            assert NOW - 4_500 < snapshot.newest <= NOW
            assert check(snapshot, 0) == {}

    @pytest.mark.parametrize("sampler", [SumSampler(SUM), MedianSampler(MEDIAN)])
    def test_told_a_time_of_the_future_is_refused(self, sampler: Any) -> None:
        sampler.update([1], [NOW])
        sampler.advance(NOW + 61)
        assert check(sampler.snapshot()) == {"clock": (NOW + 61, NOW + 60)}

    def test_with_watermarks_of_the_future_is_refused(self) -> None:
        params = ds.SketchParams(max_weight=1, id_bits=20, capacity=10)
        sketch = ds.DecaySketch(params)
        sketch.update(None, 1, [NOW + 100 + k for k in range(100)], list(range(100)))
        assert check(sketch.snapshot()).keys() == {"newest", "watermarks"}


class TestAnIntegralSketch:
    def sketch(self, newest: int, width: int = 1_000) -> ds.IntegralDecaySketch:
        params = ds.SketchParams(max_weight=1, id_bits=20, capacity=10)
        sketch = ds.IntegralDecaySketch(params, ds.decay.integral.window(width))
        sketch.update(None, 1, [newest - k for k in range(100)], list(range(100)))
        return sketch

    def test_may_have_watermarks_as_far_ahead_as_its_decay_reaches(self) -> None:
        snapshot = self.sketch(NOW + 60).snapshot()
        ahead = snapshot.complete_since[0]
        assert ahead is not None
        assert ahead > NOW + 1_000
        assert check(snapshot) == {}

    def test_may_not_be_ahead_itself(self) -> None:
        sketch = self.sketch(NOW + 90)
        found = check(sketch.snapshot())
        assert found.keys() == {"newest", "watermarks"}
        assert found["newest"] == (NOW + 90, NOW + 60)
        sketch = self.sketch(NOW - 500)
        sketch.advance(NOW + 70)
        assert check(sketch.snapshot()).keys() == {"clock"}

    def test_that_never_forgets_has_no_such_bound(self) -> None:
        assert check(self.sketch(NOW, (1 << 62) - 2).snapshot()) == {}


class TestPosting:
    def post(self, client: TestClient, sketch: Any, name: str = "s") -> Any:
        return client.post(
            f"/v1/streams/{name}/sketches?source=gateway-3",
            content=sketch.to_bytes(),
            headers={"content-type": "application/octet-stream"},
        )

    def late(self, ahead_s: int) -> ds.DecaySketch:
        sketch = build(1)
        sketch.update(1.0, 1, int(time.time()) + ahead_s, 1 << 30)
        return sketch

    def test_from_the_future_is_refused_and_nothing_changes(self, stream: TestClient) -> None:
        content = problem(self.post(stream, self.late(3600)), 422, "clock-ahead")
        [fault] = content["errors"]
        assert fault["field"] == "newest"
        assert fault["value"] > fault["expected"]
        assert str(fault["value"]) in content["detail"]
        assert stream.get("/v1/streams/s").json()["posts"] == 0
        assert self.post(stream, self.late(200)).status_code == 200

    def test_is_taken_where_the_stream_or_the_server_allows_it(
        self, start: Callable[..., TestClient]
    ) -> None:
        client = start(max_clock_skew_s=None)
        for name, skew in (("any", {}), ("hour", {"max_clock_skew_s": 7200})):
            form = {"params": PARAMS.to_dict(), **skew}
            assert client.put(f"/v1/streams/{name}", json=form).status_code == 201
        for name in ("any", "hour"):
            assert self.post(client, self.late(3600), name).status_code == 200
        assert self.post(client, self.late(9000), "any").status_code == 200
        problem(self.post(client, self.late(9000), "hour"), 422, "clock-ahead")


WINDOW_S = 60
CLOCKED: dict[str, Callable[[str], Any]] = {
    "sum": lambda unit: SumSampler(
        SumParams(max_sum=10**6, capacity=60, max_window=WINDOW_S, time_unit=unit), source="a"
    ),
    "median": lambda unit: MedianSampler(
        MedianParams(max_count=10**6, capacity=60, max_window=WINDOW_S, time_unit=unit), source="a"
    ),
    "integral": lambda unit: ds.IntegralDecaySketch(
        ds.SketchParams(max_weight=9, id_bits=20, capacity=60, time_unit=unit),
        ds.decay.integral.window(WINDOW_S - 1),
    ),
}


def clocked(family: str, clock: int, times: Sequence[int] = (), unit: str = "s") -> Any:
    """A sketch of a window of a minute, told a time."""
    sketch = CLOCKED[family](unit)
    if times and family == "integral":
        sketch.update(None, 1, list(times), list(range(len(times))))
    elif times:
        sketch.update([1] * len(times), list(times))
    sketch.advance(clock)
    return sketch


@pytest.mark.parametrize("family", CLOCKED)
class TestAClockThatIsAhead:
    def create(self, client: TestClient, family: str) -> None:
        recipe = ds.families.recipe_of(*self.built_with(family))
        assert client.put("/v1/streams/s", json=recipe.to_dict()).status_code == 201

    def built_with(self, family: str) -> tuple[Any, ...]:
        sketch = CLOCKED[family]("s")
        return (sketch.params, sketch.decay) if family == "integral" else (sketch.params,)

    def post(self, client: TestClient, sketch: Any, source: str) -> Any:
        return client.post(
            f"/v1/streams/s/sketches?source={source}",
            content=sketch.to_bytes(),
            headers={"content-type": "application/octet-stream"},
        )

    def count(self, client: TestClient, family: str, **when: int) -> Any:
        """Of the whole window, as of the clock of the server."""
        chosen = {} if family == "integral" else {"decay": {"kind": "window", "width": WINDOW_S}}
        query = {"aggregate": "count", **chosen, **when}
        return client.post("/v1/streams/s/query", json={"queries": [query]})

    @pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
    def test_expires_nothing_of_another_source(self, client: TestClient, family: str) -> None:
        """Far inside the skew that is allowed, and far beyond the window."""
        self.create(client, family)
        now = int(time.time())
        honest = clocked(family, now - 1, [now - age for age in range(0, 40, 4)])
        assert self.post(client, honest, "honest").status_code == 200
        refused = self.post(client, clocked(family, now + 295), "fast")
        content = problem(refused, 429, "clock-ahead")
        (fault,) = content["errors"]
        assert (fault["field"], fault["value"]) == ("clock", now + 295)
        assert 0 < int(refused.headers["Retry-After"]) <= 295
        for when in ({}, {"now": now}):
            answer = self.count(client, family, **when)
            assert answer.status_code == 200, answer.text
            assert answer.json()["answers"][0]["estimate"]["value"] == 10
        refusals = 'decaysketch_refused_total{reason="clock-ahead",stream="s"} 1.0'
        assert refusals in client.get("/metrics").text

    def test_of_a_share_of_the_window_is_taken_and_every_window_is_answered(
        self, client: TestClient, family: str
    ) -> None:
        self.create(client, family)
        now = int(time.time())
        honest = clocked(family, now - 1, [now - age for age in range(0, 40, 4)])
        assert self.post(client, honest, "honest").status_code == 200
        assert self.post(client, clocked(family, now + 2), "fast").status_code == 200
        answer = self.count(client, family)
        assert answer.status_code == 200, answer.text
        (given,) = answer.json()["answers"]
        assert given["now"] >= now + 2  # as of the clock, where that is ahead
        assert given["estimate"]["value"] == 10

    def test_is_taken_as_it_is_when_its_time_has_come(self, family: str) -> None:
        for unit, size_ns in (("ms", 10**6), ("s", 10**9), ("h", 3600 * 10**9)):
            ahead = (NOW_NS + 290 * 10**9) // size_ns
            snapshot = clocked(family, ahead, unit=unit).snapshot()
            lead_s = clock_lead_s(snapshot, 300)
            assert lead_s == pytest.approx(min(300, CLOCK_SHARE * WINDOW_S * size_ns / 10**9))

            def take(after_s: int, snapshot: Snapshot = snapshot) -> None:
                now_ns = NOW_NS + after_s * 10**9
                check_times(snapshot, stream="s", max_clock_skew_s=300, now_ns=now_ns)

            if unit == "h":  # of a window of days the skew is the bound
                take(0)
                continue
            with pytest.raises(ClockEarlyError) as early:
                take(0)
            wait_s = early.value.wait_s
            with pytest.raises(ClockEarlyError):
                take(wait_s - 1)
            take(wait_s)

    def test_is_not_looked_at_where_nobody_knows_the_time(self, family: str) -> None:
        snapshot = clocked(family, NOW * 99, unit="frames").snapshot()
        assert clock_lead_s(snapshot, 300) is None
        assert check(snapshot) == {}

    def test_by_how_much_it_may_be_is_part_of_the_state(
        self, client: TestClient, family: str
    ) -> None:
        self.create(client, family)
        state = client.get("/v1/streams/s").json()
        assert state["max_clock_skew_s"] == 300
        assert state["max_clock_lead_s"] == pytest.approx(CLOCK_SHARE * WINDOW_S)


def test_raw_observations_bring_no_clock(client: TestClient) -> None:
    """So what is dated ahead, within the skew, makes no window forget anything."""
    params = CLOCKED["sum"]("s").params
    created = client.put("/v1/streams/s", json={"family": "sum", "params": params.to_dict()})
    assert created.status_code == 201
    now = int(time.time())
    rows = [{"value": 1, "time": now - age, "id": age} for age in (0, 59)]
    rows.append({"value": 1, "time": now + 290, "id": 60})
    answer = client.post("/v1/streams/s/observations?source=a", json={"observations": rows})
    assert answer.json()["retained"] == 3
    query = {"aggregate": "count", "decay": {"kind": "window", "width": WINDOW_S}, "now": now}
    (given,) = client.post("/v1/streams/s/query", json={"queries": [query]}).json()["answers"]
    assert given["estimate"]["value"] == 2
    assert client.get("/v1/streams/s").json()["clock"] is None
