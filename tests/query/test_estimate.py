"""Estimates, and the mathematics of intervals against closed forms and their own definitions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special
from scipy.special import chdtri, ndtri

import decaysketch as ds
from decaysketch.core.special import gammaincinv
from decaysketch.query.ensemble import median_estimate
from decaysketch.query.estimate import (
    Interval,
    check_confidence,
    contrast,
    part_interval,
    share_interval,
)

ESTIMATE = ds.Estimate(10.0, 8.0, 13.0, 1.25, 0.95, False, 42, 1e-9)


def part(
    sampled: Any, variance: Any, step: Any, exact: Any = 0.0, certain: Any = 0.0,
    thinning: float = 1.0, confidence: float = 0.95,
) -> Interval:  # fmt: skip
    return part_interval(exact, sampled, variance, step, thinning, certain, confidence)


# ---------------------------------------------------------------------------------------- estimate


def test_an_estimate_is_a_number_a_text_and_a_dictionary() -> None:
    assert float(ESTIMATE) == 10.0
    assert repr(ESTIMATE) == "Estimate(10, 95 % in [8, 13], 42 rows)"
    fields = json.loads(json.dumps(ESTIMATE.to_dict()))
    assert ds.Estimate(**fields) == ESTIMATE
    exact = ds.Estimate(10.0, 10.0, 10.0, 0.0, 0.95, True, 42, 0.0)
    assert repr(exact) == "Estimate(10, exact, 42 rows)"
    with pytest.raises(AttributeError):
        ESTIMATE.value = 3.0  # type: ignore[misc]


def test_a_sure_upper_end_is_there_where_there_is_one() -> None:
    assert ESTIMATE.sure_upper is None
    assert "sure_upper" not in ESTIMATE.to_dict()
    surely = replace(ESTIMATE, sure_upper=20.0)
    fields = json.loads(json.dumps(surely.to_dict()))
    assert fields["sure_upper"] == 20.0
    assert ds.Estimate(**fields) == surely
    assert repr(surely) == "Estimate(10, 95 % in [8, 13], surely at most 20, 42 rows)"
    assert surely.over(3).sure_upper == 160.0
    faint = surely.over(-1080)
    assert faint.sure_upper is not None
    assert faint.sure_upper >= 5e-324  # rounded up where it is no normal float64
    assert "faded" in faint.caveats
    assert ESTIMATE.over(3).sure_upper is None
    assert median_estimate([surely, replace(surely, sure_upper=15.0), ESTIMATE]).sure_upper == 15.0


def test_what_is_not_finite_is_none_in_the_dictionary() -> None:
    fields = ds.Estimate(math.nan, -math.inf, math.inf, math.inf, 0.9, False, 0, 0.0).to_dict()
    assert [fields[name] for name in ("value", "lower", "upper", "stderr")] == [None] * 4
    json.dumps(fields, allow_nan=False)


@pytest.mark.parametrize("bad", [0, 1, 95, -0.5, math.nan, "0.95", None, True])
def test_a_confidence_is_strictly_between_0_and_1(bad: Any) -> None:
    with pytest.raises(ds.ParameterError, match=r"confidence is .*; expected a number between"):
        check_confidence(bad)
    assert check_confidence(np.float64(0.5)) == 0.5


# ------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize("hits", [1, 2, 10, 400])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_hits_of_one_size_have_jeffreys_interval_of_a_poisson_mean(
    hits: int, confidence: float
) -> None:
    size = 7.0
    interval = part(hits * size, hits * size**2, size, confidence=confidence)
    tail = (1 - confidence) / 2
    # chdtri(n, y): the y-th upper quantile of chi-square; half of chi-square(2n) is gamma(n)
    assert interval.lower == pytest.approx(size * chdtri(2 * hits + 1, 1 - tail) / 2)
    assert interval.upper == pytest.approx(size * chdtri(2 * hits + 1, tail) / 2)


def test_no_hit_is_never_zero_plus_or_minus_zero() -> None:
    interval = part(0.0, 0.0, 3.0)
    assert (interval.value, interval.lower) == (0.0, 0.0)
    assert interval.upper == pytest.approx(3.0 * chdtri(1, 0.025) / 2)


def test_nothing_sampled_is_exact() -> None:
    assert [float(end) for end in part(0.0, 0.0, 0.0, exact=5.0)] == [5.0, 5.0, 5.0]


def test_the_exact_part_is_added_and_the_certain_part_is_a_lower_bound() -> None:
    plain, shifted = part(20.0, 50.0, 4.0), part(20.0, 50.0, 4.0, exact=100.0)
    for ours, theirs in zip(shifted, plain, strict=True):
        assert ours == pytest.approx(100.0 + theirs)
    assert part(20.0, 50.0, 4.0, certain=15.0).lower == 15.0
    assert part(20.0, 50.0, 4.0, certain=1.0).lower == plain.lower


amounts = st.floats(0.0, 1e12)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(amounts, amounts, st.floats(1e-6, 1e9), st.floats(0.5, 1.0))
def test_a_part_lies_in_its_interval_and_wider_confidence_is_wider(
    sampled: float, ratio: float, step: float, thinning: float
) -> None:
    variance = sampled * min(ratio, step)
    narrow, wide = (
        part(sampled, variance, step, thinning=thinning, confidence=c) for c in (0.5, 0.99)
    )
    assert 0 <= wide.lower <= narrow.lower <= sampled <= narrow.upper <= wide.upper


def test_with_many_hits_the_interval_is_the_normal_one() -> None:
    interval = part(1e6, 2e6, 1.0)
    margin = ndtri(0.975) * math.sqrt(2e6)
    assert interval.lower == pytest.approx(1e6 - margin, abs=0.01 * margin)
    assert interval.upper == pytest.approx(1e6 + margin, abs=0.01 * margin)


# --------------------------------------------------------------------------- contrasts and shares


def test_a_contrast_combines_the_distances_that_move_it_the_same_way() -> None:
    found = contrast(Interval(10.0, 7.0, 14.0), Interval(4.0, 2.0, 8.0))
    assert found.value == 6.0
    assert found.lower == pytest.approx(6.0 - math.hypot(3.0, 4.0))
    assert found.upper == pytest.approx(6.0 + math.hypot(4.0, 2.0))
    alone = Interval(10.0, 7.0, 14.0)
    assert contrast(alone, Interval(0.0, 0.0, 0.0)) == alone


parts = st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1)).map(
    lambda three: Interval(three[0], three[0] * three[2], three[0] + three[1])
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(parts, parts)
def test_the_ends_of_a_share_are_where_the_contrast_just_holds_0(a: Interval, c: Interval) -> None:
    total = a.value + c.value
    assume(total >= 1e-3)
    found = share_interval(a, c)
    assert 0.0 <= found.lower <= found.value <= found.upper <= 1.0
    for q, end in ((found.lower, "upper"), (found.upper, "lower")):
        scaled_a = Interval(*((1 - q) * end_ for end_ in a))
        scaled_c = Interval(*(q * end_ for end_ in c))
        # At the upper end of q the contrast (1 - q) A - q C is as low as it may be, and reversed.
        other = "upper" if end == "lower" else "lower"
        at_end = getattr(contrast(scaled_a, scaled_c), other)
        scale = total + a.upper + c.upper
        assert abs(at_end) <= 1e-6 * scale


@settings(max_examples=200, deadline=None, derandomize=True)
@given(parts, parts)
def test_a_share_and_its_rest_mirror_each_other(a: Interval, c: Interval) -> None:
    assume(a.value + c.value >= 1e-3)
    one, other = share_interval(a, c), share_interval(c, a)
    assert one.lower == pytest.approx(1 - other.upper, abs=1e-9)
    assert one.upper == pytest.approx(1 - other.lower, abs=1e-9)


def test_shares_by_hand() -> None:
    exact = share_interval(Interval(3.0, 3.0, 3.0), Interval(1.0, 1.0, 1.0))
    assert [float(end) for end in exact] == [0.75, 0.75, 0.75]
    nothing = share_interval(Interval(0.0, 0.0, 2.0), Interval(10.0, 8.0, 12.0))
    assert nothing.value == nothing.lower == 0.0
    assert 0.1 < nothing.upper < 0.25
    columns = share_interval(
        Interval(np.array([0.0, 3.0]), np.array([0.0, 1.0]), np.array([1.0, 5.0])),
        Interval(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0])),
    )
    assert np.isnan(columns.value[0])
    assert (columns.lower[0], columns.upper[0]) == (0.0, 1.0)
    assert columns.value[1] == 0.75


@pytest.mark.parametrize("level", [1e-9, 2.5e-5, 0.025, 0.5, 0.975, 1 - 2.5e-5, 1 - 1e-9])
def test_gamma_quantiles_of_many_shapes_are_those_of_scipy(level: float) -> None:
    """From shapes of half a hit to those of a million, and those that have no quantile."""
    shapes = np.exp(np.random.default_rng(1).uniform(np.log(0.3), np.log(1e4), 2_000))
    found, expected = gammaincinv(shapes, level), special.gammaincinv(shapes, level)
    assert np.abs(found / expected - 1.0).max() < 1e-9
    odd = np.array([0.0, np.nan] * 40)
    assert np.array_equal(gammaincinv(odd, level), special.gammaincinv(odd, level), equal_nan=True)
