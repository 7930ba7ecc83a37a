"""Thresholds per group: states from a sketch, and which groups have one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.families import recipe_of
from decaysketch.monitor import Account, Alert, GroupsRead, Monitor, State, Threshold, Tracked
from decaysketch.monitor.groups import read_groups, step

TIME = 1_790_000_000
SITES = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
TEMPS = np.concatenate([np.linspace(0, 59, 60), np.full(30, 50.0), np.full(10, 80.0)])
COLUMNS: Any = "temp float64, site text, ok bool"
PARAMS = ds.SketchParams(time_unit="s", id_bits=40, seed=3, columns=COLUMNS)


def sketched(capacity: int = 1000) -> ds.DecaySketch:
    sketch = ds.DecaySketch(replace(PARAMS, capacity=capacity))
    rows: Any = {"temp": TEMPS, "site": SITES, "ok": [k % 2 == 0 for k in range(100)]}
    sketch.update(rows, 1, [TIME] * 100, range(100))
    return sketch


def monitor(**spec: Any) -> Monitor:
    form = {"decay": "window(1h)", "by": ["site"], **spec}
    recipe = recipe_of(PARAMS)
    threshold = Threshold.from_dict(form, time_unit="s")
    assert Threshold.from_dict(threshold.to_dict()) == threshold
    return Monitor.of("m", 1, threshold, recipe)


def read(of: Monitor, *tracked: str, sites: Any = None, age: int = 1, capacity: int = 1000) -> Any:
    view = sketched(capacity).at(of.spec.decay, TIME + age)
    keys = [json.dumps({"site": site}) for site in tracked]
    return read_groups(of, view, keys, sites or {}, 0.0)


def verdicts(found: GroupsRead) -> dict[str, str]:
    return {json.loads(key)["site"]: state.verdict for key, state in found.states.items()}


@for_each(
    "spec, firing",
    [
        ({"question": "count", "above": 30}, "ab"),
        ({"question": "count", "below": 30}, "bc"),
        ({"question": "sum", "above": 31}, "a"),
        ({"question": "rate", "above": 30 / 3600}, "ab"),
        ({"question": "total", "of": "temp", "above": 1500}, "ab"),
        ({"question": "mean", "of": "temp", "above": 50}, "bc"),
        ({"question": "mean", "of": "temp", "below": 30}, "a"),
        ({"question": "mean", "of": "temp > 40", "above": 0.5}, "bc"),
        ({"question": "rank", "of": "temp", "value": 50, "above": 0.99}, "b"),
        ({"question": "quantile", "of": "temp", "q": 0.5, "above": 50}, "bc"),
        ({"question": "median", "of": "temp", "below": 50}, "ab"),
        ({"question": "stddev", "of": "temp", "above": 10}, "a"),
        ({"question": "variance", "of": "temp", "below": 1}, "bc"),
        ({"question": "count", "where": "ok and temp > 40", "above": 15}, "b"),
    ],
)
def test_each_group_of_each_aggregate_has_the_state_of_its_rows(
    spec: dict[str, Any], firing: str
) -> None:
    found = read(monitor(**spec))
    assert "".join(sorted(k for k, v in verdicts(found).items() if v == "firing")) == firing
    assert {*verdicts(found).values()} <= {"calm", "firing"}
    assert (found.total, found.firing) == (3, len(firing))
    assert verdicts(found) == verdicts(read(monitor(**spec), "a", "b"))


def test_a_sampled_group_near_the_threshold_is_uncertain_and_a_far_one_is_not() -> None:
    found = verdicts(read(monitor(question="count", above=28), capacity=48))
    assert found["b"] == "uncertain"
    assert verdicts(read(monitor(question="count", above=10**6), capacity=48)) == dict.fromkeys(
        "abc", "calm"
    )


@pytest.mark.parametrize(
    ("spec", "capacity", "expected"),
    [
        ({"question": "count", "above": 5}, 1000, ("calm", 0.0, 0.0)),
        ({"question": "count", "below": 5}, 1000, ("firing", 0.0, 0.0)),
        ({"question": "rate", "below": 1}, 1000, ("firing", 0.0, 0.0)),
        ({"question": "total", "of": "temp", "below": -5}, 1000, ("calm", 0.0, 0.0)),
        ({"question": "mean", "of": "temp", "above": 5}, 1000, ("calm", None, None)),
        ({"question": "median", "of": "temp", "below": 5}, 1000, ("calm", None, None)),
        ({"question": "sum", "below": 5}, 48, ("uncertain", 0.0, None)),
    ],
)
def test_a_group_without_rows_has_count_zero_and_no_mean(
    spec: dict[str, Any], capacity: int, expected: tuple[Any, ...]
) -> None:
    found = read(monitor(**spec), "a", "gone", capacity=capacity)
    state = found.states['{"site": "gone"}']
    assert (state.verdict, state.value, state.upper) == expected
    assert '{"site": "gone"}' not in found.rows


def test_a_sampled_count_of_a_group_without_rows_is_bounded() -> None:
    found = read(monitor(question="count", below=5), "gone", capacity=48)
    state = found.states['{"site": "gone"}']
    assert state.verdict == "uncertain"
    assert 0.0 < state.upper < 100.0


def test_a_source_that_holds_rows_back_makes_every_group_uncertain() -> None:
    of = monitor(question="count", above=5)
    found = read(of, "a", sites={"gw": Account()})
    assert {*verdicts(found).values()} == {"uncertain"}
    assert (found.silent, found.firing) == (("gw",), 0)


# --------------------------------------------------------------------------------------- step


def of(verdict: str, value: float = 0.0) -> State:
    return State(verdict, None, value, value, value, 5.0, 0.0)  # type: ignore[arg-type]


def seen(**values: float) -> GroupsRead:
    """An evaluation of ``above=5``: each group by its value, none has space yet."""
    states = {key: of("firing" if value >= 5 else "calm", value) for key, value in values.items()}
    order = sorted(values, key=lambda key: (values[key] < 5, -values[key]))
    return GroupsRead(states, dict.fromkeys(values, 1), tuple(order), len(values))


def stepped(before: dict[str, Tracked], read: GroupsRead, now: float, **spec: Any) -> Any:
    groups = {"groups": 2, **spec}
    threshold = Threshold("count", above=5, by=("site",), decay=ds.decay.none(), **groups)
    fresh = tuple(key for key in read.candidates if key not in before)
    states = {**dict.fromkeys(before, of("calm")), **read.states}
    return step(before, replace(read, candidates=fresh, states=states), threshold, now)


def test_a_group_that_fires_takes_the_place_of_one_that_does_not() -> None:
    first, _ = stepped({}, seen(a=1, b=3, c=2), 0.0)
    assert sorted(first) == ["b", "c"]  # the two that are closest
    second, left = stepped(first, seen(a=9, b=3, c=2), 1.0)
    assert (sorted(second), sorted(left)) == (["a", "b"], ["c"])
    assert second["a"].alert == Alert("firing", 1.0)
    third, left = stepped(second, seen(a=9, b=3, c=2, d=7, e=6), 2.0)
    assert (sorted(third), sorted(left)) == (["a", "d"], ["b"])
    fourth, left = stepped(third, seen(a=9, d=7, e=8, f=20), 3.0)
    assert (fourth, left) == (third, {})  # both fire, and stay


def test_a_group_without_rows_gives_its_place_first_and_is_dropped_in_time() -> None:
    first, _ = stepped({}, seen(a=4, b=1), 0.0)
    second, _ = stepped(first, seen(b=1), 1.0)
    assert (second["a"].gone, second["b"].gone) == (1.0, None)
    assert sorted(stepped(second, seen(b=1, c=8), 2.0).groups) == ["b", "c"]
    back, _ = stepped(second, seen(a=4, b=1), 2.0)
    assert back["a"].gone is None
    still, left = stepped(second, seen(b=1), 86_400.0)
    assert (sorted(still), left) == (["a", "b"], {})
    later, left = stepped(second, seen(b=1), 86_401.0)
    assert (sorted(later), sorted(left)) == (["b"], ["a"])


def test_a_lower_limit_drops_what_does_not_fire() -> None:
    first, _ = stepped({}, seen(a=9, b=8, c=1, d=2), 0.0, groups=4)
    second, left = stepped(first, seen(a=9, b=8, c=1, d=2), 1.0, groups=1)
    assert (sorted(second), sorted(left)) == (["a", "b"], ["c", "d"])


def test_an_alert_waits_and_goes_on_as_the_spec_says() -> None:
    spec = {"for_s": 2.0, "keep_firing_s": 3.0, "webhook": "http://x/"}
    groups: dict[str, Tracked] = {}
    phases = []
    for now, value in ((0.0, 9), (1.0, 9), (2.0, 9), (3.0, 1), (5.0, 1), (6.0, 1)):
        groups, _ = stepped(groups, seen(a=value), now, **spec)
        phases.append((groups["a"].alert.phase, groups["a"].sequence))
    inactive = [("pending", 0), ("pending", 0)]
    assert phases == [*inactive, ("firing", 1), ("firing", 1), ("firing", 1), ("inactive", 2)]
    assert Tracked.from_dict(json.loads(json.dumps(groups["a"].to_dict()))) == groups["a"]
