"""Bounds of ratios: the least and the largest ratio that the test accepts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import decaysketch as ds
from decaysketch.query import comparisons
from decaysketch.query.estimate import Interval
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.ratio_bounds import bounds

Column = npt.NDArray[np.float64]
NONE = np.empty((0, 1))


def found(
    lower: Callable[[Column], Column], upper: Callable[[Column], Column],
    jumps: npt.ArrayLike = NONE,
) -> tuple[float, float]:  # fmt: skip
    """The bounds of a ratio of 1, from an interval's ends as functions of r."""
    both = bounds(
        np.ones(1), lambda r: Interval(1.0 - r, lower(r), upper(r)), np.ones(1, np.bool_),
        np.asarray(jumps, np.float64).reshape(-1, 1),
    )  # fmt: skip
    return float(both.lower[0]), float(both.upper[0])


def test_a_single_crossing() -> None:
    assert found(lambda r: 0.5 - r, lambda r: 3.0 - r) == pytest.approx((0.5, 3.0), rel=1e-12)
    curved = found(lambda r: 0.25 - r * r, lambda r: 300.0 - r**3)
    assert curved == pytest.approx((0.5, 300.0 ** (1 / 3)), rel=1e-12)


def test_ends_that_rounding_moved_past_0_give_the_ratio() -> None:
    """The search had no sign change then, and returned half the ratio."""
    lower, upper = (lambda r: 1.0 - r + 1e-16), (lambda r: 1.0 - r - 1e-16)
    assert found(lower, upper) == (1.0, 1.0)


def test_the_outermost_of_several_crossings() -> None:
    def lower(r: Column) -> Column:  # 0 at 0.4, up at 0.5, 0 again at 0.8
        return np.where(r < 0.5, 0.4 - r, 0.8 - r)

    def upper(r: Column) -> Column:  # 0 at 2, up at 5, 0 again at 6
        return np.where(r < 5.0, 2.0 - r, 6.0 - r)

    jumps = [0.1, 0.5, 0.9, 5.0, 30.0]
    assert found(lower, upper, jumps) == pytest.approx((0.4, 6.0), rel=1e-9)


def test_a_denominator_that_may_be_0_gives_no_upper_bound() -> None:
    def upper(r: Column) -> Column:  # below 0 from 3 to 7
        return (r - 3.0) * (r - 7.0)

    assert found(lambda r: 0.5 - r, upper)[1] == np.inf
    assert found(lambda r: -1.0 - r, lambda r: 1.0 + 0.0 * r) == (0.0, np.inf)


def test_no_ratio_outside_the_bounds_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 small groups, 60 ratios on either side. In one, the lower end crosses 0 three times."""
    searched: list[tuple[Column, Any, npt.NDArray[np.bool_], Interval]] = []

    def spied(ratio: Any, ends_at: Any, some: Any, jumps: Any = None) -> Interval:
        ends = bounds(ratio, ends_at, some, jumps)
        searched.append((ratio, ends_at, some, ends))
        return ends

    monkeypatch.setattr(comparisons, "bounds", spied)
    rng = np.random.default_rng(88)
    rows = 3_000
    host = np.array([f"h{k:02d}" for k in range(30)], object)
    host = host[np.minimum(rng.zipf(1.4, rows), 29)]
    columns: Any = {"host": host, "y": rng.lognormal(1.0, 1.0, rows), "z": rng.integers(0, 4, rows)}
    params = ds.SketchParams(
        max_weight=1000, id_bits=40, capacity=200, columns="host text, y float64, z int64"
    )
    sketch = ds.DecaySketch(params)
    weights = np.minimum(rng.zipf(1.3, rows), 1000)
    sketch.update(columns, weights, np.sort(rng.integers(0, rows, rows)), np.arange(rows))
    view = sketch.at("exponential(half_life=1500)")
    for parts in ((None, "z == 3"), ("z == 1", "z >= 0")):
        asked = Modifiers(of="y", by=("host",), where=parts[0], versus=parts[1], how="ratio")
        view.modified(asked).ask("mean")
    assert len(searched) == 2
    for (ratio, ends_at, some, ends), part in itertools.product(searched, np.linspace(0, 1, 60)):
        with np.errstate(all="ignore"):
            below, above = part * ends.lower, ends.upper / np.maximum(part, 1e-9)
            outside = some & (below < ends.lower * (1.0 - 1e-6))
            assert not np.any(outside & (ends_at(below).lower <= 0.0))
            outside = some & np.isfinite(above) & (above > ends.upper * (1.0 + 1e-6))
            assert not np.any(outside & (ends_at(above).upper >= 0.0))
        assert np.all((ends.lower <= ratio) | ~some)
        assert np.all((ends.upper >= ratio) | ~some)
