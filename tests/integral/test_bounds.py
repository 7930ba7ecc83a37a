"""What a sample of the rows lets compaction leave out changes no state, where the sample is right
and where it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import decaysketch as ds
from decaysketch.decay import integral
from decaysketch.integral.rows import IntegralRows

ROWS, BATCH = 200_000, 4_000
PARAMS = ds.SketchParams(max_weight=999, id_bits=40, capacity=1_500, seed=3, value_type="int64")
DECAYS = [integral.exponential(rate=0.01), integral.polynomial(1), integral.window(2_000)]

Columns = tuple[npt.NDArray[np.int64], ...]


def calm(draw: np.random.Generator) -> Columns:
    times = np.arange(ROWS) // 100 + draw.integers(0, 50, ROWS)
    return np.arange(ROWS), draw.integers(1, 1_000, ROWS), times, np.arange(ROWS) * 7


def copies_begin(draw: np.random.Generator) -> Columns:
    """From the middle on there are nine copies of each row: the sample shows nine times as many."""
    row = np.arange(ROWS)
    row[ROWS // 2 :] = ROWS // 2 + np.arange(ROWS // 2) // 9
    return tuple(column[row] for column in calm(draw))


def copies_of_old_rows(draw: np.random.Generator) -> Columns:
    row = np.arange(ROWS)
    row[ROWS // 2 :] = draw.integers(0, ROWS // 2, ROWS // 2)
    values, weights, times, ids = (column[row] for column in calm(draw))
    return values, weights, times + draw.integers(0, 9, ROWS), ids


def heavy_at_last(draw: np.random.Generator) -> Columns:
    values, weights, times, ids = calm(draw)
    return values, np.where(np.arange(ROWS) < ROWS // 2, 1, weights), times, ids


def from_the_last_to_the_first(draw: np.random.Generator) -> Columns:
    return tuple(column[::-1].copy() for column in calm(draw))


def at_one_time(draw: np.random.Generator) -> Columns:
    values, weights, times, ids = calm(draw)
    return values, weights, times * 0, ids


@pytest.mark.parametrize("decay", DECAYS, ids=str)
@pytest.mark.parametrize(
    "stream",
    [
        calm,
        copies_begin,
        copies_of_old_rows,
        heavy_at_last,
        from_the_last_to_the_first,
        at_one_time,
    ],
)
def test_the_state_is_that_of_one_compaction_of_everything(
    stream: Callable[[np.random.Generator], Columns],
    decay: integral.IntegralDecay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = stream(np.random.default_rng(1))
    fed = ds.IntegralDecaySketch(PARAMS, decay)
    for start in range(0, ROWS, BATCH):
        fed.update(*(column[start : start + BATCH] for column in columns))
    compacted: list[Any] = []
    drop = IntegralRows._drop
    monkeypatch.setattr(IntegralRows, "_drop", lambda rows: (compacted.append(rows), drop(rows)))
    monkeypatch.setattr(IntegralRows, "factor", ROWS)
    monkeypatch.setattr("decaysketch.core.bags._SMALLEST_LIMIT", 2 * ROWS)
    whole = ds.IntegralDecaySketch(PARAMS, decay)
    whole.update(*columns)
    assert whole.to_bytes() == fed.to_bytes()
    assert [id(rows) for rows in compacted].count(id(compacted[0])) == 1
