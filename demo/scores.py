"""Do the intervals hold the truth, and are they as wide as the errors and no wider?

Errors and widths are relative to the truth, so that counts, means and quantiles can be averaged.
Two things are read together: the share of intervals that hold the truth (aim: the confidence), and
their width against 2 x 1.96 x RMSE, the width that normal errors of the measured size would need.
Near 1 the intervals are as wide as the errors; far above it they hold the truth only by being wide.

Answers of very different precision are pooled: an hour long ago, the whole log now. Then the mean
width lies below the root mean square width, as any mean does, and RMSE is of the second kind. So
both are given; and where every question was put to several independent sketches, the fairest
figure is: the mean width of each question against the RMSE of that question, averaged.

The answers of one log come from one hash function and are dependent: they lean the same way at
neighbouring times. Independent seeds show more, see ``replicas``.

An error is relative only where there is something to divide by: a count of at least one message, a
mean of at least a hundredth of the values' mean magnitude. Elsewhere it is shown as a difference,
and is in the share that holds but not in widths, errors and ratios.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from demo.exact import Distribution
from demo.questions import QUANTILES, Cell

__all__ = ["Answer", "Reading", "Score", "Truth", "score", "score_by_aggregate", "truths"]

NORMAL_95: Final = 1.959963984540054

ONE: Final = 1.0  # message, or unit of weight: the least count that errors are relative to
SMALL: Final = 0.01  # of the values' magnitude: least magnitude for relative errors of values

ENOUGH_FOR_RMSE: Final = 10  # answers to one question by independent sketches
LOOSE: Final = 10.0  # width of an interval, relative to the truth

# Sums of up to a million decayed weights in another order agree to about this, relatively.
ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Truth:
    """An exact answer: one number, or for quantiles at a tie the two neighbours.

    Attributes:
        low, high: the two.
        floor: the least magnitude to which an error may be relative.
    """

    low: float
    high: float
    floor: float = 0.0

    @property
    def value(self) -> float:
        return self.low

    def met_by(self, estimate: float) -> bool:
        """Equality up to rounding."""
        return self.low - self._slack <= estimate <= self.high + self._slack

    def within(self, lower: float, upper: float) -> bool:
        return lower <= self.high + self._slack and upper >= self.low - self._slack

    @property
    def _slack(self) -> float:
        return ROUNDING * max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Reading:
    """A sketch's results."""

    value: float
    lower: float
    upper: float
    exact: bool


@dataclass(frozen=True)
class Answer:
    """One estimate, the exact result, and the result with every duplicate counted."""

    cell: Cell
    aggregate: str
    reading: Reading
    truth: Truth
    naive: float

    @property
    def relative(self) -> bool:
        """Whether there is something to divide an error by."""
        return abs(self.truth.value) >= self.truth.floor and self.truth.value != 0

    @property
    def difference(self) -> float:
        """Estimate - truth."""
        nearest = min(max(self.reading.value, self.truth.low), self.truth.high)
        return self.reading.value - nearest

    @property
    def error(self) -> float:
        """Estimate / truth - 1; nan where there is nothing to divide by, as of the next two."""
        return self.difference / self.truth.value if self.relative else math.nan

    @property
    def width(self) -> float:
        """Of the interval, relative to the truth."""
        whole = self.reading.upper - self.reading.lower
        return whole / abs(self.truth.value) if self.relative else math.nan

    @property
    def naive_difference(self) -> float:
        """Naive answer - truth."""
        return self.naive - self.truth.value

    @property
    def naive_error(self) -> float:
        """Naive answer / truth - 1."""
        return self.naive_difference / self.truth.value if self.relative else math.nan

    @property
    def holds(self) -> bool:
        return self.truth.within(self.reading.lower, self.reading.upper)

    @property
    def claim_broken(self) -> bool:
        """It called itself exact and is not."""
        return self.reading.exact and not self.truth.met_by(self.reading.value)


def truths(
    distribution: Distribution, *, weighted: bool, keep_zero: bool = False
) -> dict[str, Truth]:
    """Every aggregate whose truth is defined, by its name.

    Args:
        distribution: the exact distribution.
        weighted: with ``sum``, which equals ``count`` where all weights are 1.
        keep_zero: with truths of 0, to which no error is relative.
    """
    found = {"count": Truth(distribution.count, distribution.count, ONE)}
    if weighted:
        found["sum"] = Truth(distribution.sum, distribution.sum, ONE)
    if distribution.weight_of_values > 0:
        magnitude = SMALL * distribution.mean_magnitude
        found["total"] = Truth(
            distribution.total, distribution.total, SMALL * distribution.total_magnitude
        )
        found["mean"] = Truth(distribution.mean, distribution.mean, magnitude)
        for q in QUANTILES:
            found[f"q{q:g}"] = Truth(*distribution.quantile(q), magnitude)
    return {n: t for n, t in found.items() if keep_zero or 0 not in (t.low, t.high)}


@dataclass(frozen=True)
class Score:
    """Figures over a set of answers; widths and errors are relative to the truth.

    Attributes:
        name: of the set.
        answers, exact, holding: how many there are, call themselves exact, hold the truth.
        indivisible: how many answers have nothing to divide an error by; they are in ``holding``
            and in nothing that follows.
        loose: number of intervals that are infinite or wider than ten times the result, because
            too few rows were seen. ``mean_width``, ``rms_width`` and ``rmse`` skip them, because a
            single one would dominate.
        worst, worst_half_width: the largest error, and half the width of that answer's interval.
        by_question: mean over questions of mean width / (2 x 1.96 x RMSE of that question); nan
            where questions were not asked often enough for an RMSE of their own.
        naive_error: mean error of counting every copy.
    """

    name: str
    answers: int
    exact: int
    holding: int
    indivisible: int
    loose: int
    mean_width: float
    rms_width: float
    rmse: float
    worst: float
    worst_half_width: float
    by_question: float
    naive_error: float

    @property
    def share(self) -> float:
        return self.holding / self.answers

    @property
    def expected_width(self) -> float:
        return 2 * NORMAL_95 * self.rmse

    @property
    def mean_ratio(self) -> float:
        """Mean width in units of 2 x 1.96 x RMSE; nan where nothing errs."""
        return self.mean_width / self.expected_width if self.rmse > 0 else math.nan

    @property
    def rms_ratio(self) -> float:
        """Root mean square width in the same units."""
        return self.rms_width / self.expected_width if self.rmse > 0 else math.nan


def score(name: str, answers: Sequence[Answer]) -> Score:
    """Pool the answers."""
    if not answers:
        raise ValueError(f"nothing to score for {name!r}")
    relative = [a for a in answers if a.relative]
    firm = [a for a in relative if a.width <= LOOSE]
    worst = max(relative, key=lambda a: abs(a.error), default=answers[0])
    return Score(
        name=name,
        answers=len(answers),
        exact=sum(a.reading.exact for a in answers),
        holding=sum(a.holds for a in answers),
        indivisible=len(answers) - len(relative),
        loose=len(relative) - len(firm),
        mean_width=_mean(a.width for a in firm),
        rms_width=math.sqrt(_mean(a.width**2 for a in firm)),
        rmse=math.sqrt(_mean(a.error**2 for a in firm)),
        worst=worst.error,
        worst_half_width=worst.width / 2,
        by_question=_by_question(firm),
        naive_error=_mean(a.naive_error for a in relative),
    )


def _mean(numbers: Iterable[float]) -> float:
    listed = list(numbers)
    return math.fsum(listed) / len(listed) if listed else math.nan


def _by_question(answers: Sequence[Answer]) -> float:
    questions: dict[tuple[Cell, str], list[Answer]] = {}
    for answer in answers:
        questions.setdefault((answer.cell, answer.aggregate), []).append(answer)
    ratios = []
    for same in questions.values():
        rmse = math.sqrt(_mean(a.error**2 for a in same))
        if len(same) >= ENOUGH_FOR_RMSE and rmse > 0:
            ratios.append(_mean(a.width for a in same) / (2 * NORMAL_95 * rmse))
    return _mean(ratios)


def score_by_aggregate(answers: Iterable[Answer]) -> list[Score]:
    """A score for each aggregate, in order of first appearance, and one for all."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.aggregate, []).append(answer)
    everything = [answer for group in groups.values() for answer in group]
    return [*(score(name, group) for name, group in groups.items()), score("all", everything)]
