"""Bytes per retained observation. Sizes are part of the format: they are the same everywhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from wire.states import state_of_columns, web_log

from decaysketch.core.params import SketchParams
from decaysketch.querytime import wire

PARAMS = SketchParams(max_weight=999, id_bits=40, capacity=2000)


def random_ids(rows: int) -> npt.NDArray[np.int64]:
    random = np.random.default_rng(40)
    ids = np.unique(random.integers(0, 2**40, 2 * rows))
    return random.permutation(ids)[:rows]


def bytes_per_row(values: npt.ArrayLike, ids: npt.NDArray[np.int64] | None = None) -> float:
    _, weights, times, log_ids = web_log(150_000, 1)
    state = state_of_columns(PARAMS, values, weights, times, log_ids if ids is None else ids)
    assert 5_000 < len(state) < 20_000
    return len(wire.encode(state)) / len(state)


def test_ids_that_follow_time_take_about_four_bytes_a_row() -> None:
    values, *_ = web_log(150_000, 1)
    assert bytes_per_row(values) < 4.3


def test_random_ids_take_their_bits_and_two_and_a_half_bytes() -> None:
    values, *_ = web_log(150_000, 1)
    assert bytes_per_row(values, random_ids(len(values))) < 40 / 8 + 2.55


def test_values_of_two_decimals_cost_what_their_integers_do() -> None:
    values, *_ = web_log(150_000, 1)
    assert bytes_per_row(values / 100) - bytes_per_row(values) < 0.05


def test_no_values_cost_nothing() -> None:
    values, *_ = web_log(150_000, 1)
    assert bytes_per_row([None] * len(values)) < bytes_per_row(values) - 1


@pytest.mark.parametrize(("rows", "limit"), [(0, 25), (1, 42), (10, 120)])
def test_small_sketches_are_small(rows: int, limit: int) -> None:
    """By fingerprint, random 40-bit ids, weights to 999, integer values within a minute."""
    values, weights, times, _ = (column[:rows] for column in web_log(20_000, 2))
    state = state_of_columns(PARAMS, values, weights, times, random_ids(10)[:rows])
    blob = wire.encode(state, embed_params=False)
    assert len(blob) <= limit
    assert len(wire.encode(state)) - len(blob) <= 16
