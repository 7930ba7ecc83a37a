"""Answers at any age: decay weights, and their squares well before them, leave the range of floats.

What is asked long after the newest observation is a ratio of weights that are all tiny, and a sum
that is too small for a float. The first is answered as at any other time; the second says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import decay
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.decay import integral
from decaysketch.query import aggregates

ROWS, CAPACITY = 400, 25
ASKS: dict[str, Callable[[ds.Sample], Any]] = {
    "sum": aggregates.sum,
    "count": aggregates.count,
    "total": aggregates.total,
    "signed": lambda sample: aggregates.total(sample, lambda v, w: w * v - 3.0),
    "held": lambda sample: aggregates.total(sample, lambda v, w: v > 0),
    "mean": aggregates.mean,
    "variance": aggregates.variance,
    "rank": lambda sample: aggregates.rank(sample, 0.5),
    "selectivity": lambda sample: aggregates.selectivity(sample, lambda v, w: v > 1),
    "quantile": lambda sample: aggregates.quantile(sample, [0.0, 0.05, 0.5, 1.0]),
    "heavy_hitters": lambda sample: aggregates.heavy_hitters(sample, 0.02),
    "group_by": lambda sample: aggregates.group_by(sample, limit=5),
}
SHARES = {"rank", "selectivity", "heavy_hitters"}


@cache
def columns(kind: str) -> tuple[Any, ...]:
    """(values, weights, times, ids); the newest tenth has no value where ``kind`` says so."""
    rng = np.random.default_rng([3, len(kind)])
    missing = np.zeros(ROWS, np.bool_)
    if kind == "valueless at the end":
        missing[-ROWS // 10 :] = True
    values = np.round(rng.normal(0, 2, ROWS), 1)
    if kind == "constant":
        values = np.full(ROWS, 2.5)
    weights = rng.integers(1, 1000, ROWS)
    return np.ma.masked_array(values, missing), weights, np.arange(ROWS), rng.permutation(ROWS * 9)


@cache
def sketch(kind: str, capacity: int, copies: int) -> ds.DecaySketch:
    params = ds.SketchParams(
        max_weight=999, id_bits=30, capacity=capacity, copies=copies, seed=len(kind)
    )
    built = ds.DecaySketch(params)
    values, weights, times, ids = columns(kind)
    built.update(values, weights, times, ids[:ROWS])
    return built


def estimates(answer: Any) -> Iterator[ds.Estimate]:
    if isinstance(answer, ds.Estimate):
        yield answer
    elif isinstance(answer, aggregates.HeavyHitter):
        yield answer.frequency
    elif isinstance(answer, aggregates.Group):
        yield from (answer.sum, answer.count)
    else:
        for each in answer:
            yield from estimates(each)


def check(name: str, answer: Any) -> None:
    """What holds of every answer."""
    for found in estimates(answer):
        if not math.isnan(found.value):
            assert found.lower <= found.value <= found.upper, (name, found)
        assert not any(map(math.isnan, (found.lower, found.upper, found.stderr)))
        if not found.exact and name != "quantile":  # those of values on a grid may be certain
            # No width without a reason: that of rounding, where recent rows weigh all but nothing
            # less than everything.
            negligible = found.stderr <= 1e-12 * abs(found.value)
            assert found.lower < found.upper or negligible, (name, found)
            assert found.stderr > 0, (name, found)
        if name in SHARES:
            assert 0.0 <= found.lower <= found.upper <= 1.0, (name, found)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(["plain", "valueless at the end", "constant"]),
    st.sampled_from([CAPACITY, 2 * ROWS]),
    st.sampled_from([1, 3]),
    st.sampled_from(["stratified", "cohen-strauss"]),
    st.floats(0.001, 500),
    st.floats(0, 5_000),
    st.sampled_from(["exponential", "rate", "expression", "polynomial", "steps", "window"]),
)
def test_every_aggregate_answers_at_every_age(
    kind: str,
    capacity: int,
    copies: int,
    estimator: Any,
    half_life: float,
    half_lives: float,
    law: str,
) -> None:
    decays: dict[str, Callable[[], ds.Decay]] = {
        "exponential": lambda: decay.exponential(half_life=half_life),
        "rate": lambda: decay.exponential(rate=math.log(2) / half_life),
        "expression": lambda: decay.expression("exp(-x/4)"),
        "polynomial": lambda: decay.polynomial(1 + half_lives, scale=half_life),
        "steps": lambda: decay.piecewise([(20, 1e300), (300, 1e-300)], beyond=5e-324),
        "window": lambda: decay.window(100 * half_life),
    }
    built, now = sketch(kind, capacity, copies), ROWS - 1 + int(half_life * half_lives)
    decay_ = decays[law]()
    sample = built.sample(decay_, now=now, estimator=estimator)
    for name, ask in ASKS.items():
        check(name, ask(sample))
    for combine in ("average", "median") if copies > 1 else ():
        check("sum", built.sum(decay_, now=now, combine=combine))
        check("mean", built.mean(decay_, now=now, combine=combine))
        check("rank", built.rank(0.5, decay_, now=now, combine=combine))


@pytest.mark.parametrize("half_lives", [0, 100, 540, 700, 1_000, 1_075, 5_000])
@pytest.mark.parametrize("kind", ["plain", "valueless at the end"])
@pytest.mark.parametrize("capacity", [CAPACITY, 2 * ROWS])
def test_a_ratio_of_faded_weights_is_that_of_fresh_ones(
    half_lives: int, kind: str, capacity: int
) -> None:
    """Under an exponential decay time passes without a change of what is relative."""
    built = sketch(kind, capacity, 1)
    half_life, newest = 32.0, ROWS - 1
    law = decay.exponential(half_life=half_life)
    fresh = built.sample(law, now=newest)
    faded = built.sample(law, now=newest + int(half_lives * half_life))
    for name in ("mean", "variance", "rank", "selectivity", "quantile", "heavy_hitters"):
        pairs = zip(estimates(ASKS[name](fresh)), estimates(ASKS[name](faded)), strict=True)
        for before, after in pairs:
            for field in ("value", "lower", "upper", "stderr"):
                there, here = getattr(before, field), getattr(after, field)
                assert here == pytest.approx(there, rel=1e-9, abs=1e-12), (name, field)
            assert (after.exact, after.rows) == (before.exact, before.rows)


def test_what_has_values_may_be_thousands_of_half_lives_older_than_what_has_none() -> None:
    """A mean by hand: of two readings, one half-life apart, long before a heartbeat."""
    built = ds.DecaySketch(ds.SketchParams(max_weight=1, capacity=10))
    values = np.ma.masked_array([1.0, 4.0, 0.0], [False, False, True])
    built.update(values, 1, [0, 10, 40_000], [1, 2, 3])
    law = decay.exponential(half_life=10)
    found = built.mean(law, now=40_000)
    assert found.exact
    assert found.value == pytest.approx((1.0 * 1 + 4.0 * 2) / 3)
    assert built.rank(1.0, law, now=40_000).value == pytest.approx(1 / 3)
    assert built.count(law, now=40_000).value == 1.0
    assert built.total(law, now=40_000).value == 0.0


def test_polynomial_weights_are_right_where_they_are_no_floats() -> None:
    """g(x) = (1 + x)^-200 at 10^4 and 10^4 + 100: as a ratio, in logarithms."""
    built = ds.DecaySketch(ds.SketchParams(max_weight=1, capacity=10))
    built.update([0.0, 1.0], 1, [0, 100], [1, 2])
    law = decay.polynomial(200)
    assert law([10_000])[0] == 0.0
    weight = math.exp(-200 * math.log(10_101 / 10_001))
    found = built.mean(law, now=10_100)
    assert found.value == pytest.approx(1 / (1 + weight), rel=1e-12)


@pytest.mark.parametrize("half_lives", [1_070, 1_080, 5_000])
def test_a_sum_too_small_for_a_float_is_zero_and_not_exact(half_lives: int) -> None:
    built = ds.DecaySketch(ds.SketchParams(max_weight=1, capacity=10))
    built.update([1.0, 2.0], 1, [0, 1], [1, 2])
    law = decay.exponential(half_life=1)
    for found in (built.sum(law, now=half_lives), built.count(law, now=half_lives)):
        assert not found.exact
        assert "faded" in found.caveats
        assert 0.0 <= found.lower <= found.value <= found.upper
        # 2^(1 - T) + 2^-T, in units of the least float
        assert found.upper / 5e-324 >= 3 * 2.0 ** (1074 - half_lives)
        assert found.upper <= 2.0**-1067


def test_a_sum_of_small_floats_is_exact_where_they_are_normal() -> None:
    built = ds.DecaySketch(ds.SketchParams(max_weight=1, capacity=10))
    built.update([1.0, 2.0], 1, [0, 1], [1, 2])
    found = built.sum(decay.exponential(half_life=1), now=1_000)
    assert found.exact
    assert found.value == 3 * 2.0**-1000


def test_huge_weights_are_no_worse_than_tiny_ones() -> None:
    built = sketch("plain", CAPACITY, 1)
    small, huge = decay.piecewise([(200, 1.0)]), decay.piecewise([(200, 2.0**1000)])
    one, other = (built.sample(each, now=ROWS) for each in (small, huge))
    assert aggregates.mean(other) == aggregates.mean(one)
    assert aggregates.sum(other).upper == aggregates.sum(one).upper * 2.0**1000


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 100_000), st.sampled_from(["exponential", "window", "polynomial"]))
def test_an_integral_sketch_answers_at_every_age(later: int, law: str) -> None:
    decays = {
        "exponential": integral.exponential(rate=0.02),
        "window": integral.window(60),
        "polynomial": integral.polynomial(1),
    }
    of = ds.SketchParams(max_weight=999, id_bits=30, capacity=CAPACITY)
    built = ds.IntegralDecaySketch(of, decays[law])
    values, weights, times, ids = columns("plain")
    built.update(values, weights, times, ids[:ROWS])
    for estimator in ("stratified", "level"):
        sample = built.sample(now=ROWS + later, estimator=estimator)
        for name, ask in ASKS.items():
            check(name, ask(sample))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(0.01, 100), st.floats(0, 5_000), st.booleans())
def test_samplers_answer_at_every_age(half_life: float, half_lives: float, median: bool) -> None:
    rng = np.random.default_rng(8)
    law = decay.exponential(half_life=half_life)
    now = ROWS - 1 + int(half_life * half_lives)
    if median:
        sampler: Any = MedianSampler(MedianParams(max_count=1 << 20, capacity=CAPACITY))
        sampler.update(rng.integers(-9, 9, ROWS), np.arange(ROWS), np.arange(ROWS), source="a")
    else:
        sampler = SumSampler(SumParams(max_sum=1 << 30, capacity=CAPACITY))
        sampler.update(rng.integers(1, 1000, ROWS), np.arange(ROWS), np.arange(ROWS), source="a")
    sample = sampler.sample(law, now=now)
    for name, ask in ASKS.items():
        check(name, ask(sample))
