"""Samples restricted to rows of a mask: no bound is lost, and faint rows keep their weight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import decaysketch as ds
from decaysketch import decay
from decaysketch.errors import ParameterError
from decaysketch.query import aggregates
from decaysketch.query.sample import Sample, changed, pool

ROWS = 4000


def build(*, capacity: int = 200, copies: int = 1, max_weight: int = 9) -> ds.DecaySketch:
    rng = np.random.default_rng(5)
    params = ds.SketchParams(max_weight=max_weight, id_bits=40, capacity=capacity, copies=copies)
    sketch = ds.DecaySketch(params)
    values = np.ma.masked_array(rng.lognormal(0, 1, ROWS), rng.random(ROWS) < 0.1)
    weights = rng.integers(1, max_weight + 1, ROWS)
    sketch.update(values, weights, np.arange(ROWS), rng.permutation(9 * ROWS)[:ROWS])
    return sketch


def large(sample: Sample) -> npt.NDArray[np.bool_]:
    return np.asarray(sample.values > 1.5) & ~sample.missing


def test_all_rows_are_the_sample_itself() -> None:
    sample = build().sample("exponential(half_life=900)")
    same = sample.only(lambda s: np.ones(len(s), np.bool_))
    for question in (
        aggregates.count,
        aggregates.sum,
        aggregates.mean,
        aggregates.stddev,
        aggregates.total,
    ):
        assert question(same) == question(sample), question
    assert aggregates.quantile(same, [0.1, 0.9]) == aggregates.quantile(sample, [0.1, 0.9])


def test_a_mask_and_its_rest_make_up_the_whole() -> None:
    sample = build(copies=3).sample("exponential(half_life=900)")
    parts = [sample.only(large), sample.only(lambda s: ~large(s))]
    for question in (aggregates.count, aggregates.sum, aggregates.total):
        whole = question(sample).value
        assert sum(question(part).value for part in parts) == pytest.approx(whole, rel=1e-12)
    for part in parts:
        assert part.only(large).values.tolist() == part.values[large(part)].tolist()


def test_the_order_of_values_is_that_of_the_rows_of_the_mask() -> None:
    sample = build().sample("none")
    part = sample.only(large).only(lambda s: s.weights > 3)
    values, columns = part.valued
    expected = np.unique(values, return_inverse=True)
    assert part.ranking.values.tolist() == expected[0].tolist()
    assert part.ranking.group.tolist() == expected[1].tolist()
    assert columns.weights.min() > 3


def test_a_mask_without_rows_leaves_what_was_not_retained_possible() -> None:
    sample = build().sample("none")
    none = sample.only(lambda s: np.zeros(len(s), np.bool_))
    found = aggregates.count(none)
    assert (found.value, found.lower, found.exact, found.rows) == (0.0, 0.0, False, 0)
    assert sample.step < found.upper < 10 * sample.step
    assert math.isnan(aggregates.mean(none).value)
    share = aggregates.selectivity(none, lambda v, w: v > 0)
    assert (share.lower, share.upper) == (0.0, 1.0)


def test_only_bands_that_meet_the_times_of_a_mask_count() -> None:
    sketch = build()
    sample = sketch.sample("none")
    complete = sketch.snapshot().complete_since[0]
    assert complete is not None
    recent = sample.only(lambda s: s.times > complete, first=complete + 1)
    assert aggregates.count(recent).exact
    assert aggregates.count(recent).value == ROWS - 1 - complete
    assert not aggregates.count(sample.only(lambda s: s.times > complete)).exact
    old = sample.only(lambda s: s.times < ROWS // 4, last=ROWS // 4 - 1)
    assert 0.0 < old.step <= sample.step
    middle = sample.only(
        lambda s: (s.times > complete - 50) & (s.times <= complete), first=complete - 49,
        last=complete,
    )  # fmt: skip
    assert 0.0 < middle.step < sample.step
    found = aggregates.count(middle, confidence=0.999)
    assert found.lower <= 50 <= found.upper


@pytest.mark.parametrize("copies", [1, 3])
def test_rows_that_faded_long_ago_are_scaled_for_themselves(copies: int) -> None:
    params = ds.SketchParams(max_weight=1, id_bits=40, capacity=100, copies=copies)
    sketch = ds.DecaySketch(params)
    ids = np.arange(100)
    sketch.update(np.where(ids < 50, 1.0, 2.0), 1, np.where(ids < 50, ids, 9000 + ids), ids)
    halving = decay.exponential(half_life=1)  # squares of the older half are no float64
    old = sketch.sample(halving).only(lambda s: s.values == 1.0)
    alone = sketch.sample(halving, now=49)
    assert aggregates.mean(old).value == 1.0
    assert aggregates.count(old).value == 0.0  # 2^-9050: as a float64
    assert "faded" in aggregates.count(old).caveats
    assert len(old) == 50
    assert old.decayed.max() == pytest.approx(alone.decayed.max())
    shares = aggregates.histogram(old, [0.5, 1.0, 1.5])
    assert shares.bins[1].share.value == 1.0


def test_weights_later_than_the_query_are_those_of_the_mask() -> None:
    sketch = build(max_weight=50)
    sample = sketch.sample("none", now=ROWS - 50)
    assert sample.later is not None
    heavy = sample.only(lambda s: s.weights > 25)
    assert heavy.later is not None
    assert 0 < len(heavy.later) < len(sample.later)
    assert heavy.later.min() > 25
    as_array = sample.only(sample.weights > 25)
    assert as_array.later is None
    assert aggregates.count(as_array).value == aggregates.count(heavy).value


def test_copies_are_restricted_before_they_are_pooled() -> None:
    sketch = build(copies=3)
    snapshot: Any = sketch.snapshot()
    samples = snapshot.samples(decay.none(), ROWS)
    first = pool(changed(samples, lambda s: s.only(large(s))))
    last = pool(samples).only(large)
    assert aggregates.count(first) == aggregates.count(last)
    assert aggregates.mean(first) == aggregates.mean(last)


@pytest.mark.parametrize("rows", [[True], np.zeros(3, np.bool_), 1.0])
def test_a_mask_of_another_shape_is_rejected(rows: Any) -> None:
    with pytest.raises(ParameterError, match="truth value for each of"):
        build().sample("none").only(rows)
