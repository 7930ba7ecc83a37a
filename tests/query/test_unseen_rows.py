"""The largest coefficient over sampled bands, compared with that of every single time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from decaysketch import decay
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.decay import Decay
from decaysketch.query import _unseen_native as native
from decaysketch.query.unseen_rows import Grid, Reach, _largest_of_chance

BANDS = Reach(np.array([501, 201, -400]), np.array([700, 500, 200]), np.array([2.0, 4.0, 8.0]))
STEPS: dict[str, Decay] = {
    "none": decay.none(),
    "window": decay.window(333),
    "steps": decay.piecewise([(10, 1), (150, 0.4), (430, 0.1)], beyond=0.02),
}
DECAYS = STEPS | {
    "half-life": decay.exponential(half_life=50),
    "long half-life": decay.exponential(half_life=5_000),
    "polynomial": decay.polynomial(2, scale=10),
    "expression": decay.expression("max(0, 1 - x/600) + exp(-x/7)"),
}


def weights(given: Decay, now: int) -> Callable[[Any], Any]:
    return lambda times: np.where(times <= now, given(np.maximum(now - times, 0)), 0.0)


def both(*sides: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda times: np.array([side(times) for side in sides])


@pytest.mark.parametrize("then", [700, 690, 450, 100])
@pytest.mark.parametrize("second", DECAYS)
@pytest.mark.parametrize("first", DECAYS)
def test_the_largest_is_that_of_all_times(first: str, second: str, then: int) -> None:
    """To 3 % of the larger side, and exactly where both decays are steps."""
    one, other = weights(DECAYS[first], 700), weights(DECAYS[second], then)
    (grid,) = Grid.over([BANDS.cut(700).cut(then)], both(one, other))
    times = np.arange(-400, 701)
    hits = np.repeat(BANDS.hits[::-1], (BANDS.last - BANDS.first + 1)[::-1])
    for alpha, beta in ((1.0, 1.0), (-1.0, -1.0), (1.0, 0.3), (-1.0, -2.5)):
        a, b = alpha * one(times) * hits, beta * other(times) * hits
        largest = float((a - b).max(initial=0.0))
        slack = 0.03 * max(np.abs(a).max(), np.abs(b).max())
        if first in STEPS and second in STEPS:
            slack = 1e-12
        assert largest - slack <= grid.ends(alpha, beta)[0] <= largest + 1e-12


def test_bands_may_reach_over_all_times() -> None:
    whole = Reach(np.array([-TIME_LIMIT]), np.array([TIME_LIMIT]), np.array([3.0]))
    now = TIME_LIMIT
    sides = weights(decay.window(5), now), weights(decay.window(4), now - 3)
    (grid,) = Grid.over([whole.cut(now).cut(now - 3)], both(*sides))
    assert grid.ends(1.0, 1.0) == (3.0, 3.0)
    assert len(grid.hits) < 1_000


def test_without_a_sampled_band_no_hit_is_missing() -> None:
    nothing = Reach(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    sides = weights(decay.none(), 9), weights(decay.none(), 5)
    (grid,) = Grid.over([nothing.cut(9)], both(*sides))
    assert grid.ends(1.0, 0.0) == (0.0, 0.0)


def test_hits_of_several_hash_functions_count_as_their_average() -> None:
    pooled = Reach.pooled([BANDS, BANDS])
    sides = weights(decay.window(99), 700), weights(decay.window(99), 300)
    (grid,) = Grid.over([pooled.cut(300)], both(*sides))
    assert grid.ends(1.0, 0.0)[0] == 1.0
    assert grid.ends(0.0, -1.0)[0] == 2.0


def test_a_weight_beyond_a_float_tells_nothing() -> None:
    huge = Grid(np.array([1.0]), np.array([np.inf]), np.array([np.inf]))
    assert huge.ends(1.0, 1.0) == (np.inf, np.inf)


def test_a_mask_of_times_cuts_the_bands() -> None:
    found = BANDS.within(150, 300)
    assert found.first.tolist() == [201, 150]
    assert found.last.tolist() == [300, 200]
    assert found.hits.tolist() == [4.0, 8.0]
    assert len(BANDS.within(800, None).hits) == 0
    assert all((a == b).all() for a, b in zip(BANDS.within(None, None), BANDS, strict=True))


@pytest.mark.parametrize("begin", [-2_000, -TIME_LIMIT])
def test_gaps_are_those_of_times_however_early_a_band_begins(begin: int) -> None:
    """A float64 does not tell times apart that are far from the first."""
    rng = np.random.default_rng(5)
    times = np.delete(np.arange(10_000), slice(6_000, 6_500))
    rows = np.sort(rng.choice(times, 2_000, replace=False))
    band = Reach(np.array([begin]), np.array([9_999]), np.array([5.0]))
    found = band.gaps(rows, 1.0)
    lengths = found.last - found.first + 1
    assert sorted(lengths)[-1 - (begin == -TIME_LIMIT)] >= 500
    assert len(lengths) <= 3


def test_widths_are_those_of_every_band() -> None:
    rng = np.random.default_rng(8)
    first = np.array([501, 201, -400, -TIME_LIMIT, 650, 300])
    last = np.array([700, 500, 200, -401, 710, 300])  # some bands overlap, as in a pool
    for rows in (0, 1, 300):
        times, seen = np.unique(rng.integers(-450, 720, rows)), rng.random(6)
        until = np.clip(np.append(times, TIME_LIMIT)[:, None], first - 1, last)
        expected = np.diff(until, axis=0, prepend=first[None, :] - 1) @ seen
        assert native.widths(times, first, last, seen) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gaps", [0, 3, 60])
def test_the_largest_gap_of_chance(gaps: int) -> None:
    """Chance explains a gap up to ``log(k + 1) + 4`` times the mean of the shorter ones."""
    rng = np.random.default_rng(gaps)
    widths = np.concatenate([rng.exponential(1.0, 1_000), rng.uniform(5e3, 1e9, gaps)])
    rising = np.sort(widths)
    bound = (np.log(len(widths)) + 4.0) / (len(widths) - 1)
    usual = rising[rising <= bound * (np.cumsum(rising) - rising)]
    assert usual.max() == rising[999]
    assert _largest_of_chance(rng.permutation(widths)) == usual.max()
    assert _largest_of_chance(np.array([7.0])) == 0.0
