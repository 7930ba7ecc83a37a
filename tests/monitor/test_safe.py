"""Safe functions: convex, below 0 only where the answer holds, incremental as from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from decaysketch.errors import ParameterError
from decaysketch.monitor.safe import InnerProductZone, SelfJoinZone, Zone

ZONES = [SelfJoinZone, InnerProductZone]


def zone_of(kind: type[Zone], rng: np.random.Generator, theta: float = 0.2) -> Zone:
    return kind(rng.poisson(20, (kind.matrices, 3, 9)) + rng.random((kind.matrices, 3, 9)), theta)


@pytest.mark.parametrize("kind", ZONES)
@pytest.mark.parametrize("seed", range(20))
def test_below_zero_the_answer_is_within_theta(kind: type[Zone], seed: int) -> None:
    rng = np.random.default_rng(seed)
    zone = zone_of(kind, rng)
    inside = 0
    for size in rng.uniform(0.0, 6.0, 60):
        drift = np.maximum(rng.normal(0.0, size, zone.shape), -zone.estimate)
        if zone.phi(drift) <= 0.0:
            inside += 1
            f = zone.of(zone.estimate + drift)
            assert abs(zone.value - f) <= zone.theta * f * (1 + 1e-9)
    assert inside
    assert zone.rest < 0.0


@pytest.mark.parametrize("kind", ZONES)
@pytest.mark.parametrize("seed", range(10))
def test_phi_is_convex(kind: type[Zone], seed: int) -> None:
    rng = np.random.default_rng(seed)
    zone = zone_of(kind, rng)
    for _ in range(20):
        a, b = rng.normal(0.0, 8.0, (2, *zone.shape))
        share = rng.random()
        between = zone.phi(share * a + (1 - share) * b)
        assert between <= share * zone.phi(a) + (1 - share) * zone.phi(b) + 1e-9


@pytest.mark.parametrize("kind", ZONES)
@pytest.mark.parametrize("seed", range(10))
def test_incremental_is_from_scratch(kind: type[Zone], seed: int) -> None:
    rng = np.random.default_rng(seed)
    zone = zone_of(kind, rng)
    start = rng.poisson(20, zone.estimate.size).astype(np.float64)
    values, drift = start.copy(), zone.follow(start.tolist())
    for _ in range(300):
        cell = int(rng.integers(len(values)))
        values[cell] = max(0.0, values[cell] + rng.normal(0.0, 2.0))
        drift.put(cell, float(values[cell]))
    moved = (values - start).reshape(zone.shape)
    assert drift.phi() == pytest.approx(zone.phi(moved), abs=1e-9)
    assert drift.moved() == pytest.approx(moved)


def test_the_inner_product_of_a_stream_with_itself_is_its_self_join() -> None:
    rng = np.random.default_rng(3)
    e, drift = rng.poisson(20, (2, 9)), rng.normal(0, 2, (2, 9))
    one, two = SelfJoinZone([e], 0.2), InnerProductZone([e, e], 0.2)
    assert two.value == one.value
    assert two.phi([drift, drift]) == pytest.approx(one.phi([drift]))


def test_local_estimates_sum_up_to_no_more_than_the_merged_one() -> None:
    rng = np.random.default_rng(4)
    cells = rng.poisson(5, (8, 3, 50))
    assert (cells.min(axis=1).sum(axis=0) <= cells.sum(axis=0).min(axis=0)).all()


@pytest.mark.parametrize("theta", [0.0, 1.0, -0.1, float("nan"), True, "0.1"])
def test_no_theta(theta: object) -> None:
    with pytest.raises(ParameterError, match="theta is"):
        SelfJoinZone([[[1.0]]], theta)  # type: ignore[arg-type]


@pytest.mark.parametrize("estimate", [[[[1.0]], [[1.0]]], [[[-1.0]]], [[[float("inf")]]], []])
def test_no_estimate(estimate: object) -> None:
    with pytest.raises(ParameterError, match="estimate"):
        SelfJoinZone(estimate, 0.1)  # type: ignore[arg-type]
