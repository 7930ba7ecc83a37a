"""Where section 6 of the paper is wrong in print: each printed form fails, the built one does not.

Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams", VLDB
Journal 24 (2015). The printed forms are written out here, as small as they are.
"""

from __future__ import annotations

import numpy as np
import pytest

from decaysketch.monitor.safe import SelfJoinZone
from quality.papers.geometric import NormBounds
from quality.papers.geometric_items import outside

THETA, SITES = 0.15, 16


@pytest.fixture
def before() -> np.ndarray:
    return np.random.default_rng(0).poisson(20, (SITES, 2, 21)).astype(np.float64)


@pytest.fixture
def after(before: np.ndarray) -> np.ndarray:
    return np.maximum(before + np.random.default_rng(1).normal(0, 1.0, before.shape), 0.0)


def test_e1_bounds_of_an_average_are_not_divided_by_n_again(
    before: np.ndarray, after: np.ndarray
) -> None:
    zone = SelfJoinZone([before.mean(axis=0)], THETA)
    moved = np.linalg.norm(after - before, axis=2).mean(axis=0)
    change = np.linalg.norm(after.mean(axis=0) - before.mean(axis=0), axis=1)
    assert (change <= moved).all()
    norms = np.array(zone.norms)
    assert (norms / SITES - moved).min() < zone.inner / SITES  # printed: a violation
    assert (norms - moved).min() >= zone.inner  # and none there is


def test_e2_what_rose_is_counted_from_the_sites_own_reference() -> None:
    rng = np.random.default_rng(2)
    sites = rng.poisson(20, (SITES, 2, 21)) * rng.gamma(1, 1, (SITES, 1, 1))
    zone = SelfJoinZone([sites.mean(axis=0)], THETA)
    printed = np.linalg.norm(np.maximum(sites, sites) - sites.mean(axis=0), axis=2).mean(axis=0)
    assert (np.array(zone.norms) + printed).min() > zone.outer  # with nothing moved
    for site in sites:
        follower = NormBounds(zone).follow(site.ravel().tolist())
        assert not follower.x().any()
        assert follower.is_inside()


def test_e3_what_rises_may_leave_the_upper_bound_and_what_falls_the_lower_one() -> None:
    zone = SelfJoinZone([[[10.0, 10.0]]], THETA)
    far = np.array([[[2 * zone.outer], [0.0]]])
    assert not NormBounds(zone).is_inside(far)
    assert zone.norms[0] - far[0, 0, 0] <= zone.outer  # printed: Qu bounds N - d, and sees nothing
    assert not NormBounds(zone).is_inside(far[:, ::-1])


def test_e4_the_upper_condition_bounds_the_other_side() -> None:
    zone = SelfJoinZone([[[10.0, 10.0]]], THETA)
    now = zone.high * 0.999
    assert zone.value >= (1 - THETA) * now
    growth = 100 * zone.value  # printed: f(t0) <= (1 + theta) f(t), which any growth keeps
    assert zone.value <= (1 + THETA) * growth
    assert growth > zone.high


def test_e5_the_nearest_point_is_one_of_row_norms() -> None:
    zone = SelfJoinZone([[[10.0, 10.0], [12.0, 12.0]]], THETA)
    assert len(zone.norms) == 2
    point = np.maximum(zone.norms, zone.outer)
    assert point.shape == (2,)
    assert np.maximum(zone.estimate, zone.outer).shape != point.shape


def test_e6_an_item_just_below_the_threshold_is_no_violation() -> None:
    threshold, count = 100.0, 90.0
    assert threshold * (1 - THETA) <= count < threshold  # printed: it violates, with nothing moved
    u = [count / SITES] * 3
    low, high = (threshold * (1 + sign * THETA) / SITES for sign in (-1, 1))
    assert not outside(u, u, low, high, frequent=False)
    assert not outside(u, u, low, high, frequent=True)


def test_e7_two_million_microseconds_are_not_half_an_hour() -> None:
    window_us = 2_000_000
    assert window_us / 1e6 < 33 * 60
    assert round(window_us / 1e3 / 60) == 33  # were they milliseconds


def test_e8_an_error_over_the_square_of_all_events_is_no_error_relative_to_the_answer() -> None:
    counts = np.ones((1, 1, 1_000))
    f, said = SelfJoinZone.of(counts), 100.0 * SelfJoinZone.of(counts)
    assert abs(said - f) / counts.sum() ** 2 < THETA
    assert abs(said - f) / f > THETA


def test_g1_slack_refers_to_what_was_reported() -> None:
    reported, moved = np.array([3.0, -1.0]), np.array([5.0, -1.0])  # at the reply, and by now
    mean = reported.mean()
    assert (moved + (mean - reported)).sum() == pytest.approx(moved.sum())
    assert (moved + (mean - moved)).sum() != pytest.approx(moved.sum())


def test_g2_a_reference_of_shared_cells_moves_without_the_item() -> None:
    threshold = 100.0
    cells = {"x": 99.0 / SITES, "z": 1.0}  # both in one cell: a look at z sets it to 101
    assert SITES * cells["x"] < threshold
    shared = 101.0 / SITES
    assert SITES * shared >= threshold  # printed: x is frequent, though nobody looked at it


def test_g3_an_item_never_seen_has_the_same_plane() -> None:
    high = 100.0 * (1 + THETA) / SITES
    nothing = [0.0, 0.0, 0.0]
    assert not outside([high * 0.9] * 3, nothing, 0.0, high, frequent=False)
    assert outside([high * 1.1] * 3, nothing, 0.0, high, frequent=False)
    assert outside([high * 3.1, 0.0, high], nothing, 0.0, high, frequent=False)  # a noisy row


def test_g4_the_best_row_alone_is_a_bound_too() -> None:
    zone = SelfJoinZone([[[10.0, 10.0], [10.5, 10.5]]], THETA)
    room = zone.outer - zone.norms[zone.row]
    plane, row = NormBounds(zone), NormBounds(zone, "best row")
    for share, inside in ((0.99, True), (1.01, False)):
        both = np.array([[[share * room] * 2, [0.0, 0.0]]])
        assert row.is_inside(both) is inside
    assert plane.is_inside(np.array([[[0.5 * room] * 2, [0.0, 0.0]]]))
