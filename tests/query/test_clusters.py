"""Results over sampled entities: what may be missing, and what nothing bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decaysketch.query.clusters import Clusters, Reach

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
