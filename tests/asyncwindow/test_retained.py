"""The bag and its kernels at sizes where every path is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asyncwindow import elements

from decaysketch.asyncwindow import MedianParams, SumParams, SumSampler, _native
from decaysketch.asyncwindow import rows as retained
from decaysketch.core import bags
from decaysketch.families import merge
from quality.examples import Row

PARAMS = [
    SumParams(max_sum=1 << 20, capacity=200, seed=1),
    SumParams(max_sum=1 << 20, capacity=200, seed=1, eager_from_level=3),
    MedianParams(max_count=1 << 20, capacity=200, seed=1, value_type="int64"),
]


def stream(n: int, span: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(1, 100, n), rng.integers(-span, span + 1, n), np.arange(n)


def described(params: Any, columns: tuple[Any, ...]) -> elements.Definition:
    values, times, numbers = (column.tolist() for column in columns)
    rows = [
        Row(value, value, time, ("s", number))
        for value, time, number in zip(values, times, numbers, strict=True)
    ]
    return elements.definition(params, rows)


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("span", [0, 3, 40, 10_000, 1 << 33, 1 << 62])
def test_long_streams_give_the_defined_state(params: Any, span: int) -> None:
    columns = stream(40_000, span)
    sampler: Any = elements.sampler_of(params)
    for start in range(0, 40_000, 777):
        sampler.update(*(c[start : start + 777] for c in columns), source="s")
    assert elements.described(sampler.state()) == described(params, columns)


@pytest.mark.parametrize("params", PARAMS)
def test_many_copies_make_more_rows_be_looked_at(params: Any) -> None:
    values, times, numbers = stream(10_000, 10_000)
    once: Any = elements.sampler_of(params)
    once.update(values, times, numbers, source="s")
    copies: Any = elements.sampler_of(params)
    order = np.random.default_rng(1).permutation(np.repeat(numbers, 8))
    copies.update(values[order], times[order], numbers[order], source="s")
    assert copies.to_bytes() == once.to_bytes()
    assert copies._rows._spare > retained._SPARE


@pytest.mark.parametrize("params", PARAMS)
def test_conflicting_copies_of_many_ties(params: Any) -> None:
    """Runs of equal times longer than an insertion sort, keys with several values and times."""
    rng = np.random.default_rng(2)
    n = 20_000
    columns = rng.integers(1, 5, n), rng.integers(0, 6, n), rng.integers(0, 900, n)
    sampler: Any = elements.sampler_of(params.with_capacity(400))
    sampler.update(*columns, source="s")
    assert elements.described(sampler.state()) == described(sampler.params, columns)


@pytest.mark.parametrize("params", PARAMS)
def test_merging_more_than_fits_at_once(params: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bags, "_MERGE_LIMIT", 3_000)
    columns = stream(40_000, 10_000)
    parts = []
    for i in range(23):
        part: Any = elements.sampler_of(params)
        part.update(*(c[i::23] for c in columns), source="s")
        parts.append(part)
    whole: Any = elements.sampler_of(params)
    whole.update(*columns, source="s")
    assert merge(parts).to_bytes() == whole.to_bytes()


def test_a_small_sampler_stays_small() -> None:
    sampler = SumSampler(PARAMS[0])  # type: ignore[arg-type]
    sampler.update(1, 1)
    assert len(sampler) == 1
    assert len(sampler._rows._bag.keys) <= 2 * (bags.FIRST_ROOM + 512)


@pytest.mark.parametrize("span", [0, 5, 40])
def test_equal_times_stay_in_the_order_of_arrival(span: int) -> None:
    """What queries read has no other order of ties, however often it was compacted in between."""
    params = MedianParams(max_count=1 << 20, capacity=50_000, seed=1, value_type="int64")
    values, times, numbers = stream(30_000, span)
    sampler: Any = elements.sampler_of(params)
    for start in range(0, 30_000, 1_000):
        part = slice(start, start + 1_000)
        sampler.update(values[part], times[part], numbers[part], source="s")
        sampler._rows.compact()
    view = sampler._rows.by_time()
    order = np.argsort(-times, kind="stable")
    assert view.times.tolist() == times[order].tolist()
    assert view.value_keys.tolist() == values[order].tolist()


def columns_of(rows: int) -> tuple[Any, ...]:
    return tuple(np.zeros(rows, kind) for kind in "qqQb")


def test_kernels_refuse_columns_of_other_lengths() -> None:
    stream_ = _native.Stream(
        weighted=False, lowest=-9, highest=9, time_limit=9, levels=2, first_nested=0
    )
    one, two, marks = np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(3, np.int64)
    word, words = np.zeros(1, np.uint64), np.zeros(3, np.uint64)
    with pytest.raises(ValueError, match="columns of 1 and 2 rows"):
        _native.in_bounds(stream_, one, False, two, word, None, 0)
    with pytest.raises(ValueError, match="columns of 2 and 3 rows"):
        _native.in_bounds(stream_, two, False, two, words, None, 0)
    with pytest.raises(ValueError, match="columns of 3 and 2 rows"):
        _native.append(stream_, *columns_of(1), 1, two, *columns_of(2), 0)
    with pytest.raises(ValueError, match="2 rows in columns of 1"):
        _native.append(stream_, *columns_of(1), 1, marks, *columns_of(1), 0)
    with pytest.raises(ValueError, match=r"levels 0\.\.2, nested from 3 on"):
        _native.Stream(weighted=False, lowest=-9, highest=9, time_limit=9, levels=2, first_nested=3)
