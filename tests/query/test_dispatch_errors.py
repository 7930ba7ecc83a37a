"""What a question does not take is refused, and not answered as if it had not been said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler
from decaysketch.extremes import ExtremesParams, ExtremesSketch
from decaysketch.query.query_syntax import query_of
from decaysketch.series import SeriesParams, SeriesSketch

ROWS = np.arange(20)


def _decay() -> ds.DecaySketch:
    sketch = ds.DecaySketch(ds.SketchParams(capacity=100, seed=1))
    sketch.update(ROWS * 1.0, 1, ROWS, ROWS)
    return sketch


def _extremes() -> ExtremesSketch:
    sketch = ExtremesSketch(ExtremesParams())
    sketch.update(ROWS * 1.0, 1, ROWS, ROWS)
    return sketch


def _series() -> SeriesSketch:
    sketch = SeriesSketch(SeriesParams())
    sketch.update(ROWS * 1.0, 1, ROWS, ROWS)
    return sketch


@pytest.mark.parametrize("name", ["noww", "confidnce", "verses", "copies"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda **how: _decay().mean("none", **how),
        lambda **how: _decay().quantile(0.5, "none", **how),
        lambda **how: _decay().between(1, 9).count(**how),
        lambda **how: _extremes().max("window(5)", **how),
        lambda **how: _series().increase("window(5)", **how),
    ],
)
def test_a_word_that_is_misspelt(ask: Any, name: str) -> None:
    with pytest.raises(ds.ParameterError, match=f"has no argument '{name}'"):
        ask(**{name: 3})


def test_of_a_selection_of_one_level() -> None:
    sampler = MedianSampler(MedianParams(max_count=100, capacity=50, max_window=50), source="a")
    sampler.update(ROWS * 1.0, ROWS)
    for estimator in ("single-level", "stratified"):
        with pytest.raises(ds.ParameterError, match="has no argument 'confidnce'"):
            sampler.median("window(10)", estimator=estimator, confidnce=0.9)  # type: ignore[call-arg]


def test_a_query_of_another_family_names_it() -> None:
    sketch: Any = _decay()
    with pytest.raises(AttributeError, match=r"no attribute 'max': max needs .*family 'extremes'"):
        sketch.max("none")
    with pytest.raises(AttributeError, match=r"no attribute 'maxx'$"):
        sketch.maxx("none")
    with pytest.raises(ds.ParameterError, match=r"expected max\(\), which needs .*'extremes'"):
        query_of("max(temp)")
