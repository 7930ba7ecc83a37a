"""How many rows a sketch holds: the claim of its docstring."""

from __future__ import annotations

import math

import numpy as np
import pytest

import decaysketch as ds


@pytest.mark.parametrize("weight", [1, 999])
@pytest.mark.parametrize("capacity", [100, 1_000])
def test_rows_grow_with_the_logarithm_of_the_stream(capacity: int, weight: int) -> None:
    """Level l keeps the rows of top level l alone, half of the last ``capacity`` it selects, so the
    number of rows is within a tenth of the formula and seven of its standard deviations (below
    ``sqrt(rows)``), for seeds fixed here."""
    params = ds.SketchParams(max_weight=999, id_bits=30, capacity=capacity, seed=11)
    sketch = ds.DecaySketch(params)
    observations = 200_000
    for start in range(0, observations, 10_000):
        ids = np.arange(start, start + 10_000)
        sketch.update(None, weight, ids, ids)
    expected = capacity * (1 + math.log2(observations / capacity) / 2)
    assert abs(len(sketch) - expected) < 0.1 * expected + 7 * math.sqrt(expected)
    assert len(sketch) <= (params.levels + 1) * capacity


def test_a_stream_that_outgrows_its_ids_says_so() -> None:
    params = ds.SketchParams(expected=1_000, capacity=400)
    sketch = ds.DecaySketch(params)
    for count, advised in ((1_000, False), (60_000, True)):
        ids = ds.observation_ids(np.arange(count), params=params)
        sketch.update(None, 1, np.arange(count), ids)
        advice = sketch.stats().advice or ""
        assert ("collisions" in advice) == advised, advice
    bias = sketch.at("none").ask("count").collision_bias
    assert f"lose {bias:.1%}" in advice
