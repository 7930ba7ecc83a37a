"""The arithmetic of standard errors and verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quality.figures.claims import (
    Claim,
    Figure,
    jackknife,
    mean,
    rmse,
    rmse_ratio,
    rmse_slope,
    share,
)


def test_mean_has_the_usual_standard_error() -> None:
    figure = mean([1.0, 2.0, 3.0, 6.0])
    assert figure.value == 3.0
    assert figure.stderr == pytest.approx(math.sqrt(14 / 3 / 4))
    assert math.isnan(mean([1.0]).stderr)


def test_share_says_something_where_all_hit() -> None:
    assert share([True] * 98).stderr == pytest.approx(math.sqrt(0.99 * 0.01 / 100))
    figure = share([True] * 300 + [False] * 100)
    assert figure.value == 0.75
    assert figure.stderr == pytest.approx(math.sqrt(0.75 * 0.25 / 400), rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_rmse_and_its_error_are_those_of_normal_errors(seed: int) -> None:
    """RMSE of n normal errors of size s: s, with standard error s / sqrt(2 n)."""
    errors = np.random.default_rng(seed).normal(0, 3, 4_000)
    figure = rmse(errors)
    assert figure.stderr == pytest.approx(3 / math.sqrt(8_000), rel=0.1)
    assert abs(figure.value - 3) < 4 * figure.stderr


def test_rmse_of_exact_answers_is_nought() -> None:
    assert rmse(np.zeros(5)) == Figure(0.0, 0.0)


def test_ratio_is_paired() -> None:
    """Errors that go together: their ratio is known far better than either."""
    rng = np.random.default_rng(1)
    shared = rng.normal(0, 1, 500)
    figure = rmse_ratio(2 * shared, shared)
    assert figure.value == pytest.approx(2)
    assert figure.stderr == pytest.approx(0, abs=1e-12)
    alone = rmse_ratio(rng.normal(0, 2, 500), shared)
    assert alone.stderr == pytest.approx(alone.value * math.sqrt(1 / 500), rel=0.2)


def test_ratio_agrees_with_the_jackknife() -> None:
    rng = np.random.default_rng(2)
    pairs = rng.normal(0, 1, (400, 2)) + rng.normal(0, 1, (400, 1))

    def statistic(rows: np.ndarray) -> float:
        return math.sqrt(float((rows[:, 0] ** 2).mean() / (rows[:, 1] ** 2).mean()))

    ours, theirs = rmse_ratio(pairs[:, 0], pairs[:, 1]), jackknife(statistic, pairs)
    assert ours.value == pytest.approx(theirs.value)
    assert ours.stderr == pytest.approx(theirs.stderr, rel=0.02)


@pytest.mark.parametrize(
    ("errors", "others", "ratio"),
    [([0, 0], [0, 0], 1.0), ([0, 0], [1, 2], 0.0), ([1, 2], [0, 0], math.inf)],
)
def test_ratio_of_exact_answers(errors: list[int], others: list[int], ratio: float) -> None:
    assert rmse_ratio(errors, others).value == ratio


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    column = np.random.default_rng(3).random(50)
    figure = jackknife(lambda rows: float(rows.mean()), column)
    assert figure.stderr == pytest.approx(mean(column).stderr)


def test_slope_finds_the_power() -> None:
    factors = (1, 2, 5, 20)
    errors = np.random.default_rng(4).normal(0, 1, (300, 4)) / np.sqrt(factors)
    figure = rmse_slope(errors, factors)
    assert abs(figure.value + 0.5) < 4 * figure.stderr
    assert 0 < figure.stderr < 0.05


@pytest.mark.parametrize(
    ("value", "stderr", "side", "verdict"),
    [
        (0.80, 0.05, "at least", "holds"),
        (0.75, 0.05, "at least", "open"),
        (0.60, 0.05, "at least", "open"),
        (0.50, 0.05, "at least", "does not hold"),
        (0.50, 0.05, "at most", "holds"),
        (0.80, 0.05, "at most", "does not hold"),
        (0.70, 0.00, "at least", "holds"),
        (0.70, 0.00, "at most", "holds"),
        (0.71, math.nan, "at least", "open"),
    ],
)
def test_verdict_needs_two_standard_errors(
    value: float, stderr: float, side: str, verdict: str
) -> None:
    claim = Claim("text", Figure(value, stderr), 0.7, side)
    assert claim.verdict == verdict


def test_claim_reads_as_a_sentence() -> None:
    claim = Claim("within ±5 %", Figure(0.975, 0.004), 2 / 3, "at least", percent=True)
    assert str(claim) == "within ±5 %: 97.50 ± 0.40 %; claimed at least 66.67 %: holds"
    assert str(Claim("cells", Figure(0, 0), 0.5, "at most")) == (
        "cells: 0.0; claimed at most 0.5: holds"
    )
