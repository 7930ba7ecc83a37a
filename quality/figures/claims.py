"""Figures with their standard errors, and whether they bear a claim out.

A claim *holds* where the figure is on its side of the bound by two standard errors or more, *does
not hold* where it is on the other side by more than as many, and is *open* in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["Claim", "Figure", "jackknife", "mean", "rmse", "rmse_ratio", "rmse_slope", "share"]

_ENOUGH = 2.0  # standard errors


@dataclass(frozen=True)
class Figure:
    """A measured number and its standard error."""

    value: float
    stderr: float


@dataclass(frozen=True)
class Claim:
    """A figure against a bound.

    Attributes:
        text: what is claimed, and by whom.
        figure: what was measured; a standard error of 0 is that of a plain count.
        bound: of the claim.
        side: whether the figure should be "at least" or "at most" the bound.
        percent: print as percentages.
    """

    text: str
    figure: Figure
    bound: float
    side: Literal["at least", "at most"]
    percent: bool = False

    @property
    def verdict(self) -> str:
        margin = self.figure.value - self.bound
        if self.side == "at most":
            margin = -margin
        needed = _ENOUGH * self.figure.stderr  # nan where it is not known: open
        if margin >= needed:
            return "holds"
        return "does not hold" if margin < -needed else "open"

    def __str__(self) -> str:
        scale, sign = (100, " %") if self.percent else (1, "")
        value, stderr = scale * self.figure.value, scale * self.figure.stderr
        places = _places(stderr, value)
        error = f" ± {stderr:,.{places}f}" if stderr > 0 else ""
        bound = f"{scale * self.bound:,.2f}".rstrip("0").rstrip(".")
        return (
            f"{self.text}: {value:,.{places}f}{error}{sign}; "
            f"claimed {self.side} {bound}{sign}: {self.verdict}"
        )


def _places(stderr: float, value: float) -> int:
    """Decimals that show two digits of the standard error."""
    size = stderr if stderr > 0 else abs(value) / 100
    return min(6, max(0, 1 - math.floor(math.log10(size)))) if size > 0 else 1


def mean(column: Any) -> Figure:
    """Mean of independent numbers; one alone has a standard error of nan."""
    column = np.asarray(column, dtype=np.float64)
    if len(column) < 2:
        return Figure(float(column.mean()), math.nan)
    return Figure(float(column.mean()), float(column.std(ddof=1)) / math.sqrt(len(column)))


def share(hits: Any) -> Figure:
    """Share of trials that hit.

    The standard error is that of a share with one more hit and one more miss: near 0 and 1, where
    the plain formula says 0, it still says something.
    """
    hits = np.asarray(hits, dtype=bool)
    n, k = len(hits), int(hits.sum())
    smoothed = (k + 1) / (n + 2)
    return Figure(k / n, math.sqrt(smoothed * (1 - smoothed) / (n + 2)))


def rmse(errors: Any) -> Figure:
    """Root mean square of independent errors, by the delta method."""
    squares = np.square(np.asarray(errors, dtype=np.float64))
    root = math.sqrt(float(squares.mean()))
    if len(squares) < 2 or root == 0:
        return Figure(root, math.nan if len(squares) < 2 else 0.0)
    return Figure(root, float(squares.std(ddof=1)) / math.sqrt(len(squares)) / (2 * root))


def rmse_ratio(errors: Any, others: Any) -> Figure:
    """RMSE of ``errors`` over that of ``others``, paired, by the delta method.

    1 with no error where both are 0: two exact answers are equally good.
    """
    ours = np.square(np.asarray(errors, dtype=np.float64))
    theirs = np.square(np.asarray(others, dtype=np.float64))
    a, b = float(ours.mean()), float(theirs.mean())
    if a == b == 0:
        return Figure(1.0, 0.0)
    if b == 0:
        return Figure(math.inf, math.nan)
    ratio = math.sqrt(a / b)
    if a == 0:
        return Figure(0.0, 0.0)
    logarithms = (ours / a - theirs / b) / 2
    return Figure(ratio, ratio * float(logarithms.std(ddof=1)) / math.sqrt(len(ours)))


def rmse_slope(errors: Any, factors: Any) -> Figure:
    """Slope of log RMSE against log factor, over the columns of ``errors`` (trials x factors).

    The columns come from the same seeds and are not independent: by the jackknife over trials.
    """
    logarithms = np.log(np.asarray(factors, dtype=np.float64))
    centred = logarithms - logarithms.mean()

    def slope(squares: Any) -> float:
        return float(centred @ np.log(squares.mean(axis=0)) / 2 / (centred @ centred))

    return jackknife(slope, np.square(np.asarray(errors, dtype=np.float64)))


def jackknife(statistic: Callable[[Any], float], trials: Any) -> Figure:
    """A statistic of independent rows, with the leave-one-out standard error."""
    n = len(trials)
    kept = ~np.eye(n, dtype=bool)
    left_out = np.array([statistic(trials[rows]) for rows in kept])
    spread = (n - 1) / n * float(np.square(left_out - left_out.mean()).sum())
    return Figure(statistic(trials), math.sqrt(spread))
