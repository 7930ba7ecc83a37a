"""Sources of sketches for one integral decay: histories, numbers and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sources.streams import Heard, drawn

import decaysketch as ds
from decaysketch.decay import integral
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.integral.joint import joint_of, matches
from decaysketch.sources.joint import UNBOUNDED

DECAY = integral.exponential(half_life=400)


def sketches(
    stream: Heard, capacities: Any, *, now: int | None = None, **params: Any
) -> dict[str, ds.IntegralDecaySketch]:
    made = {}
    for source, name in enumerate(stream.names):
        rows = np.flatnonzero(stream.heard[:, source])
        capacity = capacities if isinstance(capacities, int) else int(capacities[source])
        made[name] = ds.IntegralDecaySketch(ds.SketchParams(capacity=capacity, **params), DECAY)
        made[name].update(None, stream.weights[rows], stream.times[rows, source], rows)
        if now is not None:
            made[name].advance(now)
    return made


def truth(stream: Heard, mask: Any, now: int) -> float:
    """The decayed weight of some messages: integers that are left."""
    rows = np.flatnonzero(mask & stream.heard.any(axis=1) & (stream.latest <= now))
    heaviest = int(stream.weights.max())
    table = DECAY.steps(heaviest)
    steps = np.searchsorted(table.ages, now - stream.latest[rows], side="right") - 1
    return float(table.at(stream.weights[rows], steps).sum())


def test_no_history_is_wrong_with_a_guard_and_some_are_without() -> None:
    rows, mistakes = {"none": 0, "known": 0, "unbounded": 0}, {}
    mistakes = dict.fromkeys(rows, 0)
    for trial in range(100):
        rng = np.random.default_rng(trial)
        n, k, lag = int(rng.integers(20, 400)), int(rng.integers(2, 6)), int(rng.integers(1, 60))
        heaviest = int(rng.choice([2, 9]))
        stream = drawn(rng, n, rng.uniform(0.1, 0.9, k), span=1000, lag=lag, max_weight=heaviest)
        made = sketches(stream, rng.integers(2, 40, k), seed=trial, max_weight=heaviest)
        (match,) = matches([each.snapshot() for each in made.values()])
        for name, guard in (("none", 0), ("known", lag), ("unbounded", UNBOUNDED)):
            found = joint_of(match, np.full(k, guard, np.int64), 0)
            held = np.stack([found.heard(source) for source in range(k)], axis=1)
            rows[name] += len(found)
            wrong = (held != stream.heard[found.columns.ids]).any(axis=1)
            mistakes[name] += int(wrong.sum())
            assert found.columns.times.tolist() == stream.latest[found.columns.ids].tolist()
    assert mistakes["known"] == mistakes["unbounded"] == 0
    assert min(rows.values()) > 500
    assert mistakes["none"] > 20  # the enumeration can fail


@pytest.mark.parametrize("expression", ["a", "a & b", "a - b", "any", "exactly(2)"])
def test_sums_are_exact_where_nothing_was_discarded(expression: str) -> None:
    rng = np.random.default_rng(1)
    stream = drawn(rng, 500, (0.8, 0.4, 0.1), span=1000, max_weight=9)
    view = ds.SourceSet(sketches(stream, 2000, max_weight=9)).at(None, 1000)
    h = dict(zip("abc", stream.heard.T, strict=True))
    degrees = stream.heard.sum(axis=1)
    masks = {
        "a": h["a"], "a & b": h["a"] & h["b"], "a - b": h["a"] & ~h["b"], "any": degrees > 0,
        "exactly(2)": degrees == 2,
    }  # fmt: skip
    found = view.where(expression).ask("sum")
    assert found.exact
    assert found.value == truth(stream, masks[expression], 1000)
    assert view.given(set=expression).ask("sum") == found


def test_estimates_are_unbiased_and_intervals_hold() -> None:
    rng = np.random.default_rng(3)
    stream = drawn(rng, 2000, (0.8, 0.4), span=1000, max_weight=9)
    alone = stream.heard[:, 0] & ~stream.heard[:, 1]
    expected, errors, held = truth(stream, alone, 1000), [], 0
    for seed in range(60):
        made = sketches(stream, (60, 90), seed=seed, max_weight=9)
        found = ds.SourceSet(made).at(None, 1000).where("a - b").ask("sum")
        errors.append(found.value - expected)
        held += found.lower <= expected <= found.upper
    assert abs(np.mean(errors)) < 4.0 * np.std(errors) / np.sqrt(len(errors))
    assert held >= 50  # of 60 at 95 %: a chance of 1e-4


def test_everything_is_reported() -> None:
    rng = np.random.default_rng(3)
    stream = drawn(rng, 2000, (0.8, 0.4, 0.2), span=1000, max_weight=9)
    view = ds.SourceSet(sketches(stream, 90, max_weight=9)).at(None, 1000)
    overlaps = view.overlaps()
    assert [(each.source, each.other) for each in overlaps] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert {each.source for each in view.exclusive()} == {"a", "b", "c"}
    table = view.by(["source", "other"]).ask("share")
    assert len(table) == 6
    assert view.cover(0.9)[0].source == "a"
    assert view.unheard().at_least >= 0.0
    assert len(view.missing("a - b", 5)) == 5
    assert view.silences() == []


def test_what_a_fixed_decay_cannot_be_asked_is_refused() -> None:
    rng = np.random.default_rng(3)
    made = sketches(drawn(rng, 50, (0.8, 0.4), span=1000, max_weight=9), 90, max_weight=9)
    sources = ds.SourceSet(made)
    with pytest.raises(ParameterError, match="fixed"):
        sources.at("window(5)", 1000)
    with pytest.raises(ParameterError, match="fixed"):
        sources.at(None, 1000).versus("a", then=("none", 500))
    made["b"] = ds.IntegralDecaySketch(made["b"].params, integral.exponential(half_life=5))
    with pytest.raises(IncompatibleSketchError, match="decay"):
        ds.SourceSet(made)
