"""What hits count, and its variance: against every start of a progression on small primes."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import minhit
from decaysketch.query import hash_variance


@st.composite
def small_hashes(draw: st.DrawFn) -> tuple[int, int, int]:
    """(p, a, level): a prime, a multiplier, also one that clumps, and a level."""
    p = sympy.prime(draw(st.integers(5, 150)))
    a = draw(st.one_of(st.integers(1, p - 1), st.sampled_from([1, 2, p - 1, p // 2])))
    return p, a, draw(st.integers(1, 7))


def all_hits(p: int, a: int, limit: int, weight: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Hits of the progression of ``weight`` terms from each start 0..p - 1."""
    terms = (np.arange(p)[:, None] + a * np.arange(weight)[None, :]) % p
    return (terms < limit).sum(axis=1)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(small_hashes(), st.integers(0, 400))
def test_close_returns_are_all_of_them_in_order(hash_: tuple[int, int, int], longest: int) -> None:
    p, a, level = hash_
    limit, longest = p >> level, min(longest, p - 1)
    expected = [
        (d, min(a * d % p, p - a * d % p))
        for d in range(1, longest + 1)
        if min(a * d % p, p - a * d % p) < limit
    ]
    found = hash_variance.close_returns(p, a, limit, longest, 10**6)
    assert list(zip(*found, strict=True)) == expected
    few = hash_variance.close_returns(p, a, limit, longest, 3)
    assert list(zip(*few, strict=True)) == expected[:3]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(small_hashes(), st.integers(1, 60))
def test_the_variance_is_that_over_all_starts(hash_: tuple[int, int, int], weight: int) -> None:
    p, a, level = hash_
    weight, limit = min(weight, p - 1), p >> level
    known = hash_variance._returns(p, a, level, weight)
    if weight <= known.reach:
        hits = all_hits(p, a, limit, weight)
        expected = np.array([weight * limit / p])
        found = hash_variance._variance(known, np.array([weight]), expected)[0]
        assert found == pytest.approx(hits.var(), abs=1e-9)


@pytest.mark.parametrize("weight", [1, 7, 999])
@pytest.mark.parametrize("level", [1, 4, 9])
@pytest.mark.parametrize("most", [4096, 2])
def test_estimates_of_the_variance_are_right_on_average(
    weight: int, level: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 40,000 ids of one hash; with ``most=2`` long lists are given up: hits serve instead."""
    monkeypatch.setattr(hash_variance, "_MOST_RETURNS", most)
    hash_variance._returns.cache_clear()
    params = ds.SketchParams(max_weight=999, id_bits=30, seed=11)
    ids = np.arange(40_000)
    weights = np.full(len(ids), weight)
    hits = minhit.range_samples(params, ids, weights, np.full(len(ids), level))
    estimates = hash_variance.hit_spread(params, level, weights, hits)
    p = params.level_probabilities[level]
    truth = np.var(hits) / p**2
    # Both sides are means over 40,000 observations: within 6 standard errors of each other.
    squares = (hits / p - weight) ** 2
    error = np.hypot(squares.std(), estimates.std()) / np.sqrt(len(ids))
    assert abs(estimates.mean() - truth) <= 6 * error + 1e-9
    assert estimates.mean() == pytest.approx(squares.mean(), abs=6 * error + 1e-9)
    hash_variance._returns.cache_clear()


def test_a_table_and_a_search_give_the_same() -> None:
    params = ds.SketchParams(max_weight=1 << 20, id_bits=30, seed=5)
    weights = np.array([1, 5, 4000, 4095, 4096])
    hits = np.array([1, 2, 1, 3, 1])
    level = 12
    looked_up = hash_variance.hit_spread(params, level, weights, hits)
    searched = hash_variance.hit_spread(
        params, level, np.append(weights, 5000), np.append(hits, 1)
    )[:-1]
    np.testing.assert_allclose(looked_up, searched, rtol=1e-12)


def test_a_clumped_progression_has_the_variance_of_clumps() -> None:
    # a = 1: a progression is a run, selected whole or not at all where it is short.
    p, level, weight = 10_007, 4, 50
    known = hash_variance._returns(p, 1, level, weight)
    expected = np.array([weight * (p >> level) / p])
    found = hash_variance._variance(known, np.array([weight]), expected)[0]
    assert found == pytest.approx(all_hits(p, 1, p >> level, weight).var(), rel=1e-9)
    assert found > 0.9 * weight * expected[0] * (1 - (p >> level) / p)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(small_hashes(), st.integers(1, 700))
def test_the_probability_of_a_miss_is_that_over_all_starts(
    hash_: tuple[int, int, int], weight: int
) -> None:
    p, a, level = hash_
    weight, limit = min(weight, p - 1), p >> level
    gaps, shares = hash_variance._gaps(p, a, limit)
    assert sum(gap * share for gap, share in zip(gaps, shares, strict=True)) == pytest.approx(
        1.0 if limit else 0.0
    )
    missed = sum(s * max(gap - weight, 0) for gap, s in zip(gaps, shares, strict=True))
    if limit:
        assert missed == pytest.approx((all_hits(p, a, limit, weight) == 0).mean(), abs=1e-12)


HEAVY = [(999, 1), (999, 3), (100_000, 3), (100_000, 8), ((1 << 20) - 1, 5), (3_000, 5)]


@pytest.mark.parametrize(("weight", "level"), HEAVY)
@pytest.mark.parametrize("most", [4096, 2])
def test_what_is_counted_is_right_on_average_and_no_variance_is_negative(
    weight: int, level: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 20,000 ids of one hash. Means are within 6 standard errors of what they estimate."""
    monkeypatch.setattr(hash_variance, "_MOST_RETURNS", most)
    hash_variance._returns.cache_clear()
    params = ds.SketchParams(max_weight=1 << 20, id_bits=30, seed=12)
    ids = np.arange(20_000)
    weights = np.full(len(ids), weight)
    hits = minhit.range_samples(params, ids, weights, np.full(len(ids), level))
    seen = hits > 0
    counted, estimates = np.zeros(len(ids)), np.zeros(len(ids))
    counted[seen], estimates[seen], jumps = hash_variance.weighed(
        params, level, weights[seen], hits[seen]
    )
    p = params.level_probabilities[level]
    assert (estimates >= 0).all()
    assert (jumps >= 0).all()
    assert counted.mean() == pytest.approx(weight, abs=6 * counted.std() / 140 + 1e-6 * weight)
    squares = (counted - weight) ** 2
    error = 6 * np.hypot(squares.std(), estimates.std()) / 140 + 1e-9 * weight**2
    assert estimates.mean() == pytest.approx(squares.mean(), abs=error)
    # The paper's RS / p, which the other estimators use.
    printed = hash_variance.hit_spread(params, level, weights, hits)
    assert (printed >= 0).all()
    squares = (hits / p - weight) ** 2
    error = 6 * np.hypot(squares.std(), printed.std()) / 140 + 1e-9 * weight**2
    assert printed.mean() == pytest.approx(squares.mean(), abs=error)
    assert squares.mean() >= (counted - weight).var() - error
    hash_variance._returns.cache_clear()


def test_the_weight_of_what_no_hash_can_miss_is_known() -> None:
    params = ds.SketchParams(max_weight=1 << 20, id_bits=30, seed=5)
    level, weights = 4, np.array([1 << 20, 1_000_000, 12_345])
    gaps, _ = hash_variance._gaps(params.prime, params.multipliers[0], params.prime >> level)
    assert max(gaps) < weights.min()
    hits = minhit.range_samples(params, np.arange(3), weights, np.full(3, level))
    counted, variances, _ = hash_variance.weighed(params, level, weights, hits)
    assert counted.tolist() == weights.tolist()
    assert variances.tolist() == [0, 0, 0]
