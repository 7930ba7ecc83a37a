"""The rows of a sketch and their kernels, at sizes and times where every path is taken."""

from __future__ import annotations

from typing import Any

import definition
import numpy as np
import pytest
from support.examples import small_bags

import decaysketch as ds
from decaysketch import minhit
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.querytime.rows import RetainedRows
from decaysketch.querytime.state import SketchState

PARAMS = ds.SketchParams(max_weight=30, id_bits=16, capacity=150, seed=3, value_type="int64")
ROWS = 40_000  # more than a bag takes before it is compacted


def _geometric(rng: np.random.Generator, n: int) -> Any:
    return np.int64(1) << rng.integers(0, 62, n)


def _lone_ends(rng: np.random.Generator, n: int) -> Any:
    times = rng.integers(0, 3_000, n)
    times[:2] = -TIME_LIMIT, TIME_LIMIT
    return times


def _clusters(rng: np.random.Generator, n: int) -> Any:
    return rng.choice([-TIME_LIMIT, 0, TIME_LIMIT - 5_000], n) + rng.integers(0, 5_000, n)


TIMES = {
    "one time": lambda rng, n: np.full(n, 7),
    "two times": lambda rng, n: rng.integers(0, 2, n),
    "seconds": lambda rng, n: np.sort(rng.integers(0, 300, n)),
    "latest first": lambda rng, n: np.arange(n)[::-1],
    "microseconds": lambda rng, n: np.sort(rng.integers(0, 10**15, n)),
    "the whole range": lambda rng, n: rng.integers(-TIME_LIMIT, TIME_LIMIT, n, endpoint=True),
    "powers of two": _geometric,
    "lone first and last": _lone_ends,
    "far apart": _clusters,
}


def stream(times: Any, seed: int) -> tuple[Any, ...]:
    """Columns, about a half of whose rows are copies."""
    rng = np.random.default_rng(seed)
    n = len(times)
    ids = rng.integers(0, 1 << PARAMS.id_bits, n)
    return rng.integers(-9, 10, n), rng.integers(0, 3, n), times, ids


def check(state: SketchState, columns: tuple[Any, ...]) -> None:
    """That it is the state by definition."""
    weighted = columns[1] > 0
    ids, weights = columns[3][weighted], columns[1][weighted]
    tops = minhit.top_levels(PARAMS, ids, weights).tolist()
    of = dict(zip(zip(ids.tolist(), weights.tolist(), strict=True), tops, strict=True))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    wanted = definition.state(
        rows, lambda id_, weight: of[id_, weight], PARAMS.capacity, PARAMS.levels
    )
    held = (state.value_keys, state.weights, state.times, state.ids)
    assert [*zip(*(c.tolist() for c in held), strict=True)] == [tuple(r) for r in wanted.rows]
    assert tuple(state.levels.tolist()) == wanted.levels
    assert tuple(state.watermarks.tolist()) == wanted.watermarks


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("batch", [700, ROWS])
def test_any_times_give_the_defined_state(times: Any, batch: int) -> None:
    columns = stream(times(np.random.default_rng(1), ROWS), 2)
    sketch = ds.DecaySketch(PARAMS)
    for start in range(0, ROWS, batch):
        sketch.update(*(column[start : start + batch] for column in columns))
    check(sketch.state(), columns)


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_newcomers_that_are_merged_give_the_defined_state(times: Any) -> None:
    """Once it was read, a sketch stays in order: few newcomers are merged into it."""
    columns = stream(times(np.random.default_rng(4), 3_000), 5)
    sketch = ds.DecaySketch(PARAMS)
    for start in range(0, 3_000, 60):
        sketch.update(*(column[start : start + 60] for column in columns))
        if start % 120 == 0 and start > 600:
            sketch.snapshot()
        if start % 1_200 == 0:
            check(sketch.state(), tuple(column[: start + 60] for column in columns))
    check(sketch.state(), columns)


@pytest.mark.parametrize("of_states", [False, True])
def test_merged_bags_that_overflow_give_the_defined_state(of_states: bool) -> None:
    columns = stream(np.random.default_rng(6).integers(0, 2_000, 9_000), 7)
    with small_bags():
        merged = ds.DecaySketch(PARAMS)
        parts = [ds.DecaySketch(PARAMS) for _ in range(9)]
        for number, part in enumerate(parts):
            part.update(*(column[number::9] for column in columns))
        merged.merge(*(part.snapshot() if of_states else part for part in parts))
        merged.merge(merged)
    check(merged.state(), columns)


@pytest.mark.parametrize("bad", [0, 29_999, 59_999])
@pytest.mark.parametrize("column", range(4))
def test_a_bad_row_of_a_batch_that_overflows_the_bag_leaves_nothing_behind(
    bad: int, column: int
) -> None:
    """Rows are checked as they are admitted, from the last one on."""
    columns = stream(np.arange(60_000), 8)
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(*(c[:500] for c in columns))
    before, faulty = sketch.to_bytes(), [c.copy() for c in columns]
    faulty[column][bad] = [-(1 << 63), PARAMS.max_weight + 1, TIME_LIMIT + 1, -1][column]
    with pytest.raises(ds.ObservationError, match=rf"\[{bad}\]"):
        sketch.update(*faulty)
    assert sketch.to_bytes() == before
    sketch.update(*columns)
    check(sketch.state(), columns)


def test_columns_that_need_conversion_are_left_to_the_caller() -> None:
    rows = RetainedRows(PARAMS)
    column = np.ones(6, np.int64)
    for odd in (
        column.astype(np.int32), column.astype(np.float64), column[::2], column[:5],
        column.reshape(2, 3), column.view(np.ma.MaskedArray), column.tolist(), None,
    ):  # fmt: skip
        for place in range(4):
            given: list[Any] = [column] * 4
            given[place] = odd
            assert rows.admit(*given) == -1
    assert len(rows) == 0
    assert rows.admit(*[column] * 4) == 0
    assert len(rows) == 1


def test_a_state_with_levels_that_there_are_not_is_refused() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(*stream(np.arange(10), 9))
    state = sketch.state()
    for level in (-1, PARAMS.levels + 1):
        levels = np.full(len(state), level, np.int8)
        broken = SketchState(
            PARAMS, state.value_keys, state.weights, state.times, state.ids, levels,
            state.watermarks,
        )  # fmt: skip
        with pytest.raises(ValueError, match="level"):
            RetainedRows.from_state(broken)


def test_stats_of_a_sketch_with_a_single_level() -> None:
    """One integer alone: there is nothing to sample."""
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=0, capacity=1))
    sketch.update(None, 1, [5, 6], [0, 0])
    assert sketch.params.levels == 0
    assert sketch.stats().complete_since == (None,)
    assert sketch.stats().warnings == ()
