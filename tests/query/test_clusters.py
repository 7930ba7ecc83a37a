"""Results over sampled entities: what may be missing, and what nothing bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decaysketch.query.clusters import Clusters, Reach, tail_factor

REACH = Reach(exact=False, probability=0.25, complete=40)


def clusters(exact: int, sampled: int, reach: Reach = REACH) -> Clusters:
    """One piece for each entity: some that no hash has chosen, others with probability 1/4."""
    count = exact + sampled
    bands = np.repeat([0, 2], [exact, sampled])
    p = np.repeat([1.0, 0.25], [exact, sampled])
    return Clusters(np.arange(count), bands, p, reach)


def test_exact_pieces_show_how_large_a_missing_one_may_be() -> None:
    """A few entities in sixty add 1,000 times as much, and no sampled one did."""
    amounts = np.full(100, 1.0)
    usual = clusters(60, 40).total(amounts, confidence=0.95)
    amounts[0] = 1_000.0
    found = clusters(60, 40).total(amounts, confidence=0.95)
    assert usual.caveats == ()
    assert found.caveats == ("few-series",)
    assert found.upper - found.value > 4_000.0 > 50 * (usual.upper - usual.value)
    assert found.lower >= found.value - (usual.value - usual.lower) * 1.01


def test_without_a_piece_the_amount_of_one_bounds_the_total() -> None:
    nothing = clusters(0, 0)
    counted = nothing.total(np.zeros(0), confidence=0.95, unit=1.0)
    assert (counted.value, counted.lower) == (0.0, 0.0)
    assert 4.0 < counted.upper < 40.0
    assert nothing.total(np.zeros(0), confidence=0.95).upper == math.inf


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_share_that_all_entities_have_may_differ_for_another(value: float) -> None:
    masses = np.ones(40)
    found = clusters(0, 40).ratio(value * masses, masses, confidence=0.95, bounds=(0.0, 1.0))
    assert found.value == value
    assert 0.01 < found.upper - found.lower < 0.2
    assert not found.exact


def test_nothing_bounds_a_ratio_that_all_entities_have() -> None:
    masses = np.arange(1.0, 41.0)
    found = clusters(0, 40).ratio(0.1 * masses, masses, confidence=0.95)
    assert (found.lower, found.upper) == (-math.inf, math.inf)
    assert "equal-values" in found.caveats
    known = clusters(40, 0, Reach(True, 1.0, 40)).ratio(0.1 * masses, masses, confidence=0.95)
    assert known.exact
    assert known.lower == known.upper == pytest.approx(0.1)


RARE = 0.025 / 64


@pytest.mark.parametrize(
    ("index", "factor"),
    [(3.0, 1.5 * (1 - RARE ** (2 / 3))), (1.5, 3 * (1 - RARE ** (1 / 3))), (1.0, -math.log(RARE)),
     (0.5, 1 / RARE - 1)],
)  # fmt: skip
def test_a_tail_shows_how_large_a_missing_entity_may_be(index: float, factor: float) -> None:
    """The largest 20 of 400 sizes give the index back."""
    sizes = ((np.arange(400) + 0.5) / 400) ** (-1 / index)
    sizes[:20] = sizes[20] * np.exp((20 - np.arange(20)) * 2 / 21 / index)
    found = tail_factor(np.append(sizes, [0.0, -1.0]), 1 / 64, 0.95)
    assert found == pytest.approx(factor, rel=1e-9)


def test_equal_sizes_and_few_sizes_have_no_tail() -> None:
    assert tail_factor(np.ones(50), 1 / 64, 0.95) == pytest.approx(1 - RARE)
    assert tail_factor(np.array([1.0, 1e9, 1e18]), 1 / 64, 0.95) == 1.0


def test_totals_of_a_heavy_tail_are_within_their_intervals() -> None:
    """1,500 entities with Pareto 1.5 amounts, each sampled with probability 1/16, 400 times. With
    the largest hit seen as the largest possible one, 86 % of the intervals hold the total.
    """
    draw, held, p = np.random.default_rng(5), 0, 1 / 16
    for _ in range(400):
        amounts = draw.pareto(1.5, 1_500) + 0.1
        seen = amounts[draw.random(1_500) < p]
        many = len(seen)
        found = Clusters(
            np.arange(many), np.full(many, 4), np.full(many, p), Reach(False, p, many)
        ).total(seen, confidence=0.95)
        held += found.lower <= amounts.sum() <= found.upper
    assert held / 400 > 0.9
