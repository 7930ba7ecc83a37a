"""Counts of keys, each in a window of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ecm.events import SMALL, Event, built, feed

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
from decaysketch.errors import ObservationError, ParameterError, UnanswerableQueryError

PARAMS = ECMParams(width=60, depth=3, slots=5, seed=4)


def log(rows: int = 5_000) -> tuple[Any, Any, Any]:
    """Keys, times and weights; every third event late, by up to 400."""
    rng = np.random.default_rng(3)
    times = np.sort(rng.integers(0, 50_000, rows)) - rng.integers(0, 400, rows) * (
        rng.random(rows) < 0.3
    )
    return rng.zipf(1.4, rows) % 500, times, rng.integers(1, 4, rows)


def asked(now: int) -> tuple[Any, Any, Any]:
    """Keys, widths, and how much each key counts in its window."""
    rng = np.random.default_rng(9)
    keys, times, weights = log()
    names = rng.integers(0, 500, 400)
    widths = np.exp(rng.uniform(0, np.log(60_000), 400)).astype(np.int64)
    inside = (times >= now - widths[:, None]) & (times <= now)
    return names, widths, (inside & (keys == names[:, None])) @ weights


def one_by_one(sketch: ECMSketch | ECMCollection, keys: Any, widths: Any, now: int) -> Any:
    found = [
        sketch.key_count(int(key), ds.decay.window(int(width)), now=now, estimator="minimum")
        for key, width in zip(keys, widths, strict=True)
    ]
    return [np.array([getattr(each, name) for each in found]) for name in ("lower", "sure_upper")]


@pytest.mark.parametrize("kind", ["wave", "eh"])
def test_ends_are_those_of_the_grid_of_each_window(kind: Any) -> None:
    params = replace(PARAMS, kind=kind)
    keys, times, weights = log()
    sketch = ECMSketch(params, source=0, epoch=0)
    sketch.update(keys, times, weights)  # in one piece, so in one lane
    now = int(times.max()) + 30
    names, widths, truth = asked(now)
    found = sketch.key_count_each(names, widths, now=now)
    lower, upper = one_by_one(sketch, names, widths, now)
    np.testing.assert_allclose(found.sure_upper, upper, rtol=1e-9)
    # One total for all rows of the grid, the least ends here: the bound is the same.
    np.testing.assert_allclose(found.lower, np.minimum(lower, found.value), rtol=1e-9)
    assert (truth <= found.sure_upper).all()
    assert np.mean(found.lower <= truth) >= 0.95
    assert (found.lower <= found.value).all()
    assert (found.value <= found.upper).all()
    (alone,) = sketch.key_count_each(int(names[0]), int(widths[0]), now=now)
    assert alone == found[0]
    assert alone.rows == params.depth
    some = found[widths > 100]
    assert some.lower.tolist() == found.lower[widths > 100].tolist()


def test_lanes_sources_what_is_held_back_and_what_was_late_add() -> None:
    keys, times, weights = log()
    collection = ECMCollection(PARAMS)
    for number in range(3):
        site = ECMSketch(replace(PARAMS, hold=150), source=number, epoch=0)
        for start in range(number * 10, len(keys), 30):
            part = slice(start, start + 10)
            site.update(keys[part], times[part], weights[part])
        assert site.stats().held
        assert len(site.stats().lanes) > 1
        collection = ECMCollection(site.params) if not number else collection
        collection.merge(site)
    now = collection.clock
    assert now is not None
    names, widths, truth = asked(now)
    found = collection.key_count_each(names, widths)
    _, upper = one_by_one(collection, names, widths, now)
    # The least of each lane, added: no more than the least of what lanes add up to.
    assert (found.sure_upper <= upper * (1 + 1e-9)).all()
    assert (found.sure_upper < upper * (1 - 1e-9)).any()
    missing = collection.snapshot().too_late
    assert (truth <= found.sure_upper).all()
    assert (found.lower <= truth).mean() >= 0.95
    assert (found.sure_upper >= missing).all()
    some = collection.key_count_each(names, widths, sources=[1])
    assert (some.value <= found.value).all()
    compacted = collection.compact()
    merged = compacted.key_count_each(names, widths, now=now)
    assert compacted.state().slack > 0
    assert (truth <= merged.sure_upper).all()


def test_what_is_held_back_is_counted_exactly() -> None:
    sketch = built(replace(SMALL, hold=100), [Event(1, 100), Event(2, 95), Event(1, 91, 5)])
    found = sketch.key_count_each([1, 1, 1, 2, 2, 3], [0, 8, 9, 4, 5, 100])
    assert found.value.tolist() == found.upper.tolist() == [1, 1, 6, 0, 1, 0]
    assert found.lower.tolist() == found.value.tolist()


def test_weight_at_another_time_widens_lower_ends() -> None:
    sketch = ECMSketch(replace(SMALL, width=4096, lanes=1), source=0, epoch=0)
    feed(sketch, [Event(1, 100, 50)])
    sketch.update([1], [10], [7], late="now")
    found = sketch.key_count_each([1], [0])
    assert (found.lower[0], found.sure_upper[0]) == (pytest.approx(50, abs=1), 57)


def test_windows_may_be_as_long_as_times_allow() -> None:
    far = 1 << 62
    sketch = built(SMALL, [Event(1, 1 - far), Event(1, far)])
    found = sketch.key_count_each([1, 1, 1], [0, far, 2**63 - 1])
    assert found.upper.tolist() == [1, 1, 2]
    assert len(sketch.key_count_each(np.zeros(0, int), [])) == 0
    assert ECMSketch(SMALL).key_count_each(["a"], 5).upper.tolist() == [0]


@pytest.mark.parametrize(
    ("keys", "windows", "options", "error", "words"),
    [
        ([1, 2], [1, 2, 3], {}, ParameterError, "windows has 3 widths; .* 2 keys"),
        ([1, 2], [1, -2], {}, ObservationError, r"windows\[1\] is -2; expected 0"),
        ([1, 2], [1, 2.5], {}, ObservationError, "windows has dtype float64"),
        ([1], [51], {}, ParameterError, "horizon is 50"),
        ([1], [5], {"now": 199}, UnanswerableQueryError, "now is 199; expected at least 200"),
        ([1], [5], {"confidence": 1}, ParameterError, "confidence is 1"),
        ([1], [5], {"sources": ["x"]}, ParameterError, "'x', which there is none of"),
    ],
)
def test_what_is_no_window_is_refused(
    keys: Any, windows: Any, options: Any, error: type[Exception], words: str
) -> None:
    sketch = built(replace(SMALL, horizon=50), [Event(1, 100), Event(1, 200)])
    with pytest.raises(error, match=words):
        sketch.key_count_each(keys, windows, **options)
