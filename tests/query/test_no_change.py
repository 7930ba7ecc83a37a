"""Where nothing changed a comparison says so, and its interval is no wider than it need be.

Statistical tests run fixed seeds. Each says with which probability a correct library would fail it
on fresh seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decaysketch as ds

CAPACITY = 100
WIDTH = 4 * CAPACITY
ROWS = 25 * CAPACITY
NOW = ROWS - 1
VALUES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "a flag": lambda rng, n: (rng.random(n) < 0.02) * 1.0,
    "a flag below 0": lambda rng, n: (rng.random(n) < 0.02) * -1.0,
    "a flag of either sign": lambda rng, n: (rng.random(n) < 0.02) * rng.choice([-1.0, 1.0], n),
    "rare large values": lambda rng, n: np.where(rng.random(n) < 1 / 60, 1_000.0, 5.0),
    "mostly 0": lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.exponential(10, n)),
    "normal": lambda rng, n: rng.normal(50, 10, n),
}


def periodic(values: str, ago: int, seed: int, *, copies: int = 1) -> ds.DecaySketch:
    """A stream that repeats itself after ``ago``, so that windows so far apart are equal."""
    rng = np.random.default_rng([21, seed])
    params = ds.SketchParams(
        max_weight=1, id_bits=40, capacity=CAPACITY, seed=int(rng.integers(2**62)), copies=copies
    )
    built = ds.DecaySketch(params)
    column = np.resize(VALUES[values](rng, ago), ROWS)
    built.update(column, 1, np.arange(ROWS), rng.permutation(1 << 15)[:ROWS] * 31_337)
    return built


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(
    ("how", "copies", "combine"),
    [("difference", 1, "average"), ("difference", 3, "median"), ("ratio", 1, "average")],
)
@pytest.mark.parametrize("ago", [CAPACITY, WIDTH + 1], ids=["shared", "apart"])
def test_no_change_is_seen_in_a_total_of_sparse_values(
    values: str, how: Any, copies: int, combine: Any, ago: int
) -> None:
    """Of 100, 15 or more would be seen with probability 1.4e-4, if 5 % were: one of 32 cells on
    fresh seeds with probability below 1 in 200. Where a hit was as large as the mean, 20 to 66 of
    100 were."""
    if how == "ratio" and VALUES[values](np.random.default_rng(1), 1_000).min() < 0.0:
        pytest.skip("a ratio is one of totals that cannot be negative")
    window = f"window({WIDTH})"
    seen = 0
    for seed in range(100 if how == "difference" else 40):
        built = periodic(values, ago, seed, copies=copies)
        found = built.compare(
            "total", now=(window, NOW), then=(window, NOW - ago), how=how, combine=combine
        )
        seen += bool(found.changed)
    assert seen <= (14 if how == "difference" else 8)


@pytest.mark.parametrize("aggregate", ["count", "total"])
def test_a_part_that_is_held_whole_makes_no_interval_wide(aggregate: Any) -> None:
    """The window now has lost rows that were sampled, and gained rows that are all held. Of these
    none can be missing, however light they are. Where one was allowed for, intervals were 7 to 17
    times as wide as the error."""
    widths, errors = [], []
    for seed in range(60):
        rng = np.random.default_rng([22, seed])
        rows, weights = np.arange(ROWS), rng.integers(1, 1_000, ROWS)
        values = rng.normal(50, 10, ROWS)
        params = ds.SketchParams(max_weight=999, id_bits=40, capacity=CAPACITY, seed=seed)
        built = ds.DecaySketch(params)
        built.update(values, weights, rows, rng.permutation(1 << 15)[:ROWS] * 31_337)
        window, ago = f"window({WIDTH})", CAPACITY
        found = built.compare(aggregate, now=(window, NOW), then=(window, NOW - ago))
        f = values if aggregate == "total" else np.ones(ROWS)
        truth = f[NOW - ago + 1 :].sum() - f[NOW - ago - WIDTH : NOW - WIDTH].sum()
        errors.append(found.value - truth)
        widths.append(found.upper - found.lower)
    rmse = float(np.sqrt(np.mean(np.square(errors))))
    assert np.median(widths) < 2.5 * 2 * 1.96 * rmse


def test_where_all_that_is_newer_is_held_only_what_was_lost_is_uncertain() -> None:
    """Under a half-life the count now has rows that the count of then has not. All of these are
    held: the difference is as sure as what remains of the older ones."""
    built = periodic("normal", CAPACITY, 1)
    decay, now, then = "exponential(half_life=8)", NOW + 16, NOW - 24  # silent for two half-lives
    found = built.compare("count", now=(decay, now), then=(decay, then))
    times = np.arange(ROWS)
    of_then = np.where(times <= then, 0.5 ** (np.maximum(then - times, 0) / 8), 0.0)
    truth = float((0.5 ** ((now - times) / 8)).sum() - of_then.sum())
    assert truth < -8.0
    assert found.lower <= truth <= found.upper
    assert found.changed
    assert found.upper - found.lower < 0.5


def test_values_that_were_all_0_tell_nothing_of_others() -> None:
    params = ds.SketchParams(max_weight=1, id_bits=40, capacity=CAPACITY)
    built = ds.DecaySketch(params)
    built.update(np.zeros(ROWS), 1, np.arange(ROWS), np.arange(ROWS))
    window = f"window({WIDTH})"
    found = built.compare("total", now=(window, NOW), then=(window, NOW - WIDTH))
    assert (found.value, found.lower, found.upper) == (0.0, -np.inf, np.inf)
    assert found.changed is False
