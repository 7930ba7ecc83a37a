"""Answers of the integral sketch: exact where nothing was discarded, algorithm 6, unbiased."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from integral import cases
from support.examples import cases as families_cases

import decaysketch as ds
from decaysketch.core import hashing
from decaysketch.decay import integral
from decaysketch.errors import ParameterError

LAW = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
OF = ds.SketchParams(max_weight=100, id_bits=20, capacity=50, value_type="int64")
DECAYS = [
    integral.exponential(rate=0.02),
    integral.polynomial(1),
    integral.window(60),
    integral.table(np.maximum(np.subtract.outer(np.arange(101), np.arange(101)), 0)),
]


def stream(seed: int, rows: int = 2000, span: int = 200) -> tuple[Any, ...]:
    """Columns (values, weights, times, ids) of distinct observations."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(1 << OF.id_bits, rows, replace=False)
    weights = rng.integers(1, OF.max_weight + 1, rows)
    times = rng.integers(0, span, rows)
    return rng.integers(0, 10, rows), weights, times, ids


def selected(of: ds.SketchParams, id_: int, length: int, level: int) -> int:
    """RangeSample, by looking at every integer."""
    mixed = int(hashing.mix_ids(of, np.array([id_]))[0])
    first = of.max_weight * mixed
    a, b, p = of.multipliers[0], of.offsets[0], of.prime
    return sum((a * (first + j) + b) % p < p >> level for j in range(length))


@LAW
@given(families_cases("integral"), st.integers(0, 500))
def test_algorithm_6_by_brute_force(case: Any, later: int) -> None:
    of, decay, rows, told = case.params, case.recipe.decay, case.rows, case.told
    if of.max_weight > 999:
        return  # too many integers to look at
    sketch = cases.fed(of, decay, rows, told)
    wanted = cases.expected(of, decay, rows, told)
    now = min(max([*told, 0]) + later, 1 << 62)
    complete = [i for i, mark in enumerate(wanted.watermarks) if mark <= now]
    if not complete:
        with pytest.raises(ds.UnanswerableQueryError):
            sketch.sample(now=now)
        return
    level = complete[0]
    # Every observation of the stream, kept or not: what level l has discarded no longer counts.
    total = 0
    for row in wanted.expiries:
        if row.time <= now:
            left = int(decay(row.weight, min(now - row.time, (1 << 63) - 1)))
            total += selected(of, row.id, left, level)
    sample = sketch.sample(now=now, estimator="level")
    assert int(sample.hits.sum()) == total
    assert sample.masses.sum() == pytest.approx(total / of.level_probabilities[level])
    assert sample.exact == (level == 0)


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
def test_exact_where_nothing_was_discarded(decay: integral.IntegralDecay) -> None:
    values, weights, times, ids = stream(1)
    sketch = ds.IntegralDecaySketch(OF.with_capacity(5000), decay)
    sketch.update(values, weights, times, ids, now=100)
    for now in (100, 150, 230):
        seen = times <= now
        left = np.where(seen, decay(weights, np.maximum(now - times, 0)), 0)
        answer = sketch.sum(now=now)
        assert answer.exact
        assert answer.value == answer.lower == answer.upper == left.sum()
        assert sketch.count(now=now).value == pytest.approx((left / weights).sum())
        assert sketch.total(now=now).value == pytest.approx((values * left / weights).sum())
        assert sketch.mean(now=now).value == pytest.approx((values * left).sum() / left.sum())
        share = left[values == 3].sum() / left.sum()
        assert sketch.selectivity(lambda v, w: v == 3, now=now).value == pytest.approx(share)
        groups = {group.value: group.sum.value for group in sketch.group_by(now=now)}
        assert groups == {v: left[values == v].sum() for v in np.unique(values[left > 0])}
        for estimator in ("stratified", "level"):
            assert sketch.sample(now=now, estimator=estimator).masses.sum() == left.sum()  # type: ignore[arg-type]


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
def test_estimates_are_unbiased_and_strata_vary_less(decay: integral.IntegralDecay) -> None:
    """300 hash functions over one stream; the bound is four standard errors of the mean."""
    values, weights, times, ids = stream(2)
    now = 200
    left = decay(weights, now - times)
    truths = {"sum": left.sum(), "three": left[values == 3].sum(), "count": (left / weights).sum()}
    errors: dict[tuple[str, str], list[float]] = {}
    covered = []
    for seed in range(300):
        sketch = ds.IntegralDecaySketch(replace(OF, seed=seed), decay)
        sketch.update(values, weights, times, ids, now=now)
        for estimator in ("stratified", "level"):
            sample = sketch.sample(now=now, estimator=estimator)  # type: ignore[arg-type]
            found = {
                "sum": sample.masses.sum(),
                "three": sample.masses[sample.values == 3].sum(),
                "count": (sample.masses / sample.weights).sum(),
            }
            for name, value in found.items():
                errors.setdefault((estimator, name), []).append(value / truths[name] - 1)
        answer = sketch.sum(now=now)
        covered.append(answer.lower <= truths["sum"] <= answer.upper)
    for key, column in errors.items():
        assert abs(np.mean(column)) < 4 * np.std(column) / np.sqrt(len(column)), key
    for name in truths:
        assert np.std(errors["stratified", name]) < np.std(errors["level", name])
    assert np.mean(covered) > 0.9


def test_what_was_seen_is_a_lower_bound() -> None:
    values, weights, times, ids = stream(3)
    sketch = ds.IntegralDecaySketch(OF, DECAYS[0])
    sketch.update(values, weights, times, ids, now=200)
    sample = sketch.sample(now=200)
    left = {i: DECAYS[0](w, 200 - t) for i, w, t in zip(ids, weights, times, strict=True)}
    seen = np.round(sample.decayed * sample.weights).astype(int)
    for id_ in np.unique(sample.ids):
        assert 0 < seen[sample.ids == id_].sum() <= left[id_]
    exact = sample.ids[: sample.exact_rows]
    assert (sample.levels[: sample.exact_rows] == 0).all()
    assert (sample.levels[sample.exact_rows :] > 0).all()
    assert (sample.variances[: sample.exact_rows] == 0).all()
    assert len(np.unique(exact)) == len(exact)


def test_what_cannot_be_answered() -> None:
    sketch = ds.IntegralDecaySketch(OF, integral.window(60))
    values, weights, times, ids = stream(4)
    sketch.update(values, weights, times, ids, now=150)
    with pytest.raises(ds.UnanswerableQueryError, match="now is 149, the clock is at 150"):
        sketch.sum(now=149)
    with pytest.raises(ds.ParameterError, match=r"now is 1\.5"):
        sketch.sum(now=1.5)  # type: ignore[arg-type]
    with pytest.raises(ds.ParameterError, match="at most 2\\^62"):
        sketch.sum(now=1 << 63)
    with pytest.raises(ds.ParameterError, match="now is True"):
        sketch.advance(True)
    with pytest.raises(ds.ParameterError, match="at most 2\\^62"):
        sketch.update(values, weights, times, ids, now=1 << 63)
    with pytest.raises(ds.ParameterError, match="expected one of stratified, level"):
        sketch.sample(now=150, estimator="best")  # type: ignore[arg-type]
    narrow = ds.SketchParams(max_weight=9, id_bits=0, capacity=1)
    full = ds.IntegralDecaySketch(narrow, integral.window(60))
    full.update(None, [7, 8, 9], [10, 10, 10], [0, 0, 0])  # one id of three weights, at every level
    with pytest.raises(ds.UnanswerableQueryError, match="expire as late as 71"):
        full.sum(now=20)
    assert full.sum(now=71).value == 0


def test_observations_of_the_future_are_kept_and_not_counted() -> None:
    sketch = ds.IntegralDecaySketch(OF, integral.window(60))
    sketch.update([1, 2], [10, 20], [100, 300], [5, 6], now=120)
    assert sketch.sum(now=150).value == 10
    assert sketch.sum(now=300).value == 20
    assert len(sketch) == 2


def test_what_was_taken_in_is_counted() -> None:
    sketch = ds.IntegralDecaySketch(OF, integral.window(60))
    sketch.update(
        [1, 2, 3, 4], [0, 5, 5, 5], [0, 30, 90, 200], [1, 2, 3, 4], now=100, not_after=150
    )
    stats = sketch.stats()
    assert (stats.fed, stats.zero_weight, stats.too_late, stats.already_expired) == (4, 1, 1, 1)
    assert (stats.rows, stats.clock, stats.oldest, stats.newest) == (1, 100, 90, 90)
    assert stats.complete_since == (100,) * (OF.levels + 1)
    assert "window(60)" in repr(sketch)
    assert "<table>" in sketch._repr_html_()


def test_what_cannot_be_built() -> None:
    with pytest.raises(ds.ParameterError, match="expected an integral decay"):
        ds.IntegralDecaySketch(OF, ds.decay.window(60))  # type: ignore[arg-type]
    with pytest.raises(ds.ParameterError, match="copies is 2; expected 1"):
        ds.IntegralDecaySketch(replace(OF, copies=2), integral.window(60))
    with pytest.raises(ds.ParameterError, match="can only shrink"):
        ds.IntegralDecaySketch(OF, integral.window(60)).resize(51)


def test_two_parts_are_compared_and_two_moments_are_refused() -> None:
    rng = np.random.default_rng(3)
    n, now = 900, 900
    decay = ds.decay.integral.exponential(half_life=300)
    values, weights = rng.normal(10.0, 2.0, n), rng.integers(1, 40, n)
    parts = {"where": "v > 10", "versus": "v <= 10"}
    held = 0
    for seed, capacity in ((0, 5000), *((seed, 100) for seed in range(20))):
        params = ds.SketchParams(max_weight=40, capacity=capacity, seed=seed)
        sketch = ds.IntegralDecaySketch(params, decay)
        sketch.update(values, weights, np.arange(n), np.arange(n))
        found = sketch.compare("sum", now=now, **parts)
        table = decay.steps(40)
        steps = np.searchsorted(table.ages, now - np.arange(n), side="right") - 1
        left = np.asarray(table.at(weights, steps), np.float64)
        truth = float(left[values > 10].sum() - left[values <= 10].sum())
        if capacity == 5000:
            assert found.exact
            assert found.value == truth
            mean = sketch.compare("mean", now=now, how="ratio", **parts)
            assert repr(mean) == repr(sketch.mean(now=now, how="ratio", **parts))
        else:
            held += found.lower <= truth <= found.upper
    assert held >= 16  # of 20 at 95 %: fewer by chance in 3 of 1,000
    with pytest.raises(ParameterError, match=r"then is .*expired since"):
        sketch.compare("sum", then=("none", 5), **parts)
    with pytest.raises(ParameterError, match="compare has no versus"):
        sketch.compare("sum")
