"""What can be asked of cells under one decay and at one time: each question as a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from decaysketch.answers.estimate import Estimate
from decaysketch.ecm import dyadic, joins, points
from decaysketch.ecm.dyadic import MOST_KEYS, HeavyKeys
from decaysketch.ecm.grids import Estimator, Grid
from decaysketch.ecm.points import Counts

__all__ = ["View"]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The questions of a grid. Immutable; to be read from any thread.

    Keys are words: hashed, or of a sketch with ``key_bits`` the integers themselves.

    Attributes:
        grid: the counters of one decay and time.
    """

    grid: Grid

    @property
    def now(self) -> int:
        """The time that is asked about."""
        return self.grid.now

    @property
    def verified(self) -> Literal["proof", "grid"]:
        """How it is known that the decay falls: proved, or looked at on a grid of ages."""
        return self.grid.verified

    def counts(
        self,
        words: npt.NDArray[np.uint64],
        *,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
    ) -> Counts:
        """See :func:`decaysketch.ecm.points.counts`."""
        return points.counts(self.grid, words, confidence=confidence, estimator=estimator)

    def count(
        self, word: int, *, confidence: float = 0.95, estimator: Estimator = "debiased"
    ) -> Estimate:
        """See :func:`decaysketch.ecm.points.count`."""
        return points.count(self.grid, word, confidence=confidence, estimator=estimator)

    def total(self, *, confidence: float = 0.95) -> Estimate:
        """See :func:`decaysketch.ecm.points.total`."""
        return points.total(self.grid, confidence=confidence)

    def share(
        self, word: int, *, confidence: float = 0.95, estimator: Estimator = "debiased"
    ) -> Estimate:
        """See :func:`decaysketch.ecm.points.share`."""
        return points.share(self.grid, word, confidence=confidence, estimator=estimator)

    def self_join(self, *, confidence: float = 0.95, estimator: Estimator = "debiased") -> Estimate:
        """See :func:`decaysketch.ecm.joins.self_join`."""
        return joins.self_join(self.grid, confidence=confidence, estimator=estimator)

    def inner(
        self, other: View, *, confidence: float = 0.95, estimator: Estimator = "debiased"
    ) -> Estimate:
        """See :func:`decaysketch.ecm.joins.inner`."""
        return joins.inner(self.grid, other.grid, confidence=confidence, estimator=estimator)

    def heavy_hitters(
        self,
        phi: float | None = None,
        *,
        threshold: float | None = None,
        confidence: float = 0.95,
        estimator: Estimator = "debiased",
        most: int = MOST_KEYS,
    ) -> HeavyKeys:
        """See :func:`decaysketch.ecm.dyadic.heavy_hitters`."""
        return dyadic.heavy_hitters(
            self.grid, phi, threshold=threshold, confidence=confidence, estimator=estimator,
            most=most,
        )  # fmt: skip

    def range_count(self, low: int, high: int, *, confidence: float = 0.95) -> Estimate:
        """See :func:`decaysketch.ecm.dyadic.range_count`."""
        return dyadic.range_count(self.grid, low, high, confidence=confidence)

    def rank(self, key: int, *, confidence: float = 0.95) -> Estimate:
        """See :func:`decaysketch.ecm.dyadic.rank`."""
        return dyadic.rank(self.grid, key, confidence=confidence)

    def quantile(self, q: float, *, confidence: float = 0.95) -> Estimate:
        """See :func:`decaysketch.ecm.dyadic.quantile`."""
        return dyadic.quantile(self.grid, q, confidence=confidence)
