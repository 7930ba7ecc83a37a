"""Estimated rows of predicates and joins, beside counted ones; who cannot say, says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from families import CASES

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.errors import IncompatibleSketchError, ParameterError, UnanswerableQueryError
from decaysketch.statistics import Statistics

ROWS = 4_000
TIMES = np.arange(ROWS)
LATEST = ROWS - 1
VALUED = TIMES % 10 != 0
PARAMS = ds.SketchParams(max_weight=9, id_bits=40, capacity=400, seed=7)
KEYS = ECMParams(width=60, depth=3, slots=8, key_bits=10, fanout_bits=2, seed=3)
VALUES = np.random.default_rng(1).integers(0, 50, ROWS).astype(np.float64)
LEFT, RIGHT = (np.random.default_rng(seed).zipf(1.4, ROWS) % 1_000 for seed in (2, 3))


@pytest.fixture(scope="module")
def readings() -> ds.DecaySketch:
    """Every row came twice, and one in ten has no value."""
    sketch = ds.DecaySketch(PARAMS)
    ids = ds.observation_ids(TIMES, params=PARAMS)
    for rows in (~VALUED, VALUED, VALUED, ~VALUED):
        values = VALUES[rows] if rows is VALUED else None
        sketch.update(values, 1 + TIMES[rows] % 3, TIMES[rows], ids[rows])
    return sketch


def visits(keys: Any, params: ECMParams = KEYS) -> ECMCollection:
    collection = ECMCollection(params)
    collection.update(keys, np.arange(len(keys)), source="tap", epoch=1)
    return collection


def test_rows_of_a_predicate_are_distinct_rows_that_have_a_value(readings: ds.DecaySketch) -> None:
    found = Statistics.of(readings, confidence=0.999)
    cases = [
        (found.where("v > 30"), VALUES > 30),
        (found.where(lambda values, _: values > 30), VALUES > 30),
        (found.range(10, 19), (VALUES >= 10) & (VALUES <= 19)),
        (found.equal(7), VALUES == 7),
        (found.where("v > 100"), VALUES > 100),
    ]
    for selection, holds in cases:
        true = np.count_nonzero(holds & VALUED)
        assert selection.rows.lower <= true <= selection.rows.upper
        share = true / np.count_nonzero(VALUED)
        assert selection.selectivity.lower <= share <= selection.selectivity.upper
    assert found.rows().lower <= ROWS <= found.rows().upper


def test_where_rows_weigh_alike_the_selectivity_is_that_of_the_question() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(VALUES, 1, TIMES, ds.observation_ids(TIMES, params=PARAMS))
    asked = sketch.selectivity("v > 30", ds.decay.window(999), now=LATEST)
    found = Statistics.of(sketch, ds.decay.window(999)).where("v > 30").selectivity
    assert found.value == pytest.approx(asked.value, rel=1e-12)
    assert (found.lower, found.upper) == pytest.approx((asked.lower, asked.upper), rel=0.02)


def test_of_keys_ends_are_sure_and_joins_are_counted() -> None:
    left, right = (Statistics.of(visits(keys)) for keys in (LEFT, RIGHT))
    counts, others = (np.bincount(keys, minlength=1_000) for keys in (LEFT, RIGHT))
    for key in (1, 2, 900):
        selection = left.equal(key)
        assert selection.rows.sure_upper is not None
        assert counts[key] <= selection.rows.sure_upper
        assert selection.selectivity.sure_upper is not None
        assert counts[key] / ROWS <= selection.selectivity.sure_upper
    band = left.range(2, 9).rows
    assert counts[2:10].sum() <= (band.sure_upper or 0.0)
    joined, true = left.join(right), int(counts @ others)
    assert joined.rows.sure_upper is not None
    assert true <= joined.rows.sure_upper
    assert joined.rows.value == pytest.approx(true, rel=0.2)
    assert joined.selectivity.value == pytest.approx(true / ROWS**2, rel=0.2)
    assert left.rows().value == ROWS


def test_without_a_decay_all_that_can_be_asked_for_counts() -> None:
    horizon = ECMParams(width=60, depth=3, slots=8, horizon=100, key_bits=10, seed=3)
    assert Statistics.of(visits(LEFT, horizon)).rows().upper < ROWS
    assert Statistics.of(visits(LEFT), ds.decay.window(9), LATEST).rows().value == 10
    assert Statistics.of(visits(LEFT).snapshot()).rows().value == ROWS
    assert Statistics.of(ds.DecaySketch(PARAMS)).rows().value == 0
    nothing = Statistics.of(ECMCollection(KEYS)).equal(1)
    assert nothing.rows.value == 0
    assert np.isnan(nothing.selectivity.value)


@pytest.mark.parametrize("name", CASES)
def test_every_family_says_what_it_can_and_names_what_it_cannot(name: str) -> None:
    sketch = CASES[name].build(3, 0)
    questions = type(sketch).questions
    for held in (sketch, sketch.snapshot()):
        found = Statistics.of(held)
        assert found.questions == questions
        if {"count", "key_total"} & set(questions):
            assert found.rows().value > 0
        else:
            with pytest.raises(ParameterError, match="rows needs the query 'count'"):
                found.rows()
        asked = {
            "total": lambda found=found: found.where("v > 1"),
            "inner_product": lambda found=found: found.join(found),
        }
        for question, ask in asked.items():
            if question in questions:
                assert ask().rows.value >= 0
            else:
                with pytest.raises(ParameterError, match="this sketch supports "):
                    ask()


def test_what_cannot_be_asked_is_refused(readings: ds.DecaySketch) -> None:
    found, keys = Statistics.of(readings), Statistics.of(visits(LEFT))
    for ask in (
        lambda: found.equal("seven"),
        lambda: found.where("v >"),
        lambda: found.where(lambda values, _: values),
        lambda: found.join(keys),
        lambda: keys.join(found),
        lambda: keys.range(9, 2),
        lambda: Statistics.of(readings, confidence=1.0),
    ):
        with pytest.raises(ParameterError):
            ask()
    other = ECMParams(width=60, depth=3, slots=8, key_bits=10, fanout_bits=2, seed=4)
    with pytest.raises(IncompatibleSketchError):
        keys.join(Statistics.of(visits(RIGHT, other)))
    small = visits(LEFT, ECMParams(width=60, depth=3, slots=8, horizon=100, seed=3))
    with pytest.raises(UnanswerableQueryError):
        Statistics.of(small, ds.decay.window(100), 50)
