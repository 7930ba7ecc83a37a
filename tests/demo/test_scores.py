"""The maths of the report."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from demo.questions import Cell, Decay
from demo.scores import Answer, Reading, Truth, score, score_by_aggregate


def answer(
    value: float = 110.0,
    lower: float = 90.0,
    upper: float = 120.0,
    *,
    exact: bool = False,
    truth: tuple[float, float] = (100.0, 100.0),
) -> Answer:
    return Answer(
        cell=Cell(Decay("none"), 0),
        aggregate="count",
        reading=Reading(value, lower, upper, exact),
        truth=Truth(*truth),
        naive=1000.0,
    )


def test_errors_and_widths_are_relative_to_the_truth() -> None:
    assert answer().error == pytest.approx(0.1)
    assert answer().width == pytest.approx(0.3)
    assert answer().naive_error == pytest.approx(9.0)
    negative = answer(-110.0, -120.0, -90.0, truth=(-100.0, -100.0))
    assert negative.error == pytest.approx(0.1)
    assert negative.width == pytest.approx(0.3)
    assert negative.holds


def test_an_interval_holds_its_ends_and_both_neighbours_of_a_tie() -> None:
    assert answer(truth=(120.0, 120.0)).holds
    assert not answer(truth=(120.1, 120.1)).holds
    assert answer(120.0, 120.0, 120.0, truth=(80.0, 120.0)).holds
    assert answer(120.0, truth=(80.0, 120.0)).error == 0


def test_an_exact_answer_must_be_exact() -> None:
    assert not answer().claim_broken
    assert answer(exact=True).claim_broken
    assert not answer(100.0 * (1 + 1e-12), exact=True).claim_broken
    assert answer(100.0 * (1 + 1e-6), exact=True).claim_broken


def test_honest_normal_intervals_score_95_percent_and_a_ratio_of_one() -> None:
    rng = np.random.default_rng(0)
    answers = [answer(100 + e, 100 + e - 1.96, 100 + e + 1.96) for e in rng.normal(size=20_000)]
    result = score("normal", answers)
    assert result.share == pytest.approx(0.95, abs=0.005)
    assert result.mean_ratio == pytest.approx(1.0, abs=0.02)
    assert result.rms_ratio == pytest.approx(1.0, abs=0.02)
    assert result.by_question == pytest.approx(1.0, abs=0.02)
    assert result.rmse == pytest.approx(0.01, rel=0.02)
    assert abs(result.worst) < 0.06


def test_scores_come_by_aggregate_and_for_all() -> None:
    exact = replace(answer(100.0, 100.0, 100.0, exact=True), aggregate="mean")
    count, mean, everything = score_by_aggregate([answer(), exact, answer()])
    assert (count.name, count.answers, count.exact, count.holding) == ("count", 2, 0, 2)
    assert (mean.name, mean.answers, mean.exact) == ("mean", 1, 1)
    assert math.isnan(mean.mean_ratio)
    assert math.isnan(mean.by_question)
    assert (everything.name, everything.answers) == ("all", 3)
    assert everything.naive_error == pytest.approx(9.0)
    with pytest.raises(ValueError, match="nothing to score"):
        score("nothing", [])


def test_unequal_precision_is_pooled_by_mean_square_or_question_by_question() -> None:
    rng = np.random.default_rng(1)
    answers = [
        replace(
            answer(100 + e, 100 + e - 1.96 * scale, 100 + e + 1.96 * scale),
            cell=Cell(Decay("none"), scale),
        )
        for scale in (1, 9)
        for e in rng.normal(0, scale, 5_000)
    ]
    result = score("two scales", answers)
    assert result.mean_ratio == pytest.approx(5 / math.sqrt(41), rel=0.03)
    assert result.rms_ratio == pytest.approx(1.0, abs=0.03)
    assert result.by_question == pytest.approx(1.0, abs=0.03)


def test_loose_intervals_hold_but_do_not_swallow_the_mean_width() -> None:
    result = score("q0.9", [answer(), answer(upper=math.inf), answer(upper=1e9)])
    assert (result.loose, result.holding) == (2, 3)
    assert result.mean_width == pytest.approx(0.3)
