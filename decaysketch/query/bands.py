"""Bands of time: the sample data that depends on the state alone, for the stratified estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT
from decaysketch.query.sample import Fading, Values
from decaysketch.query.unseen_rows import Reach

__all__ = ["Bands", "SampledBands"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class Reading(NamedTuple):
    """A row order for a state: rows with fixed masses come first."""

    rows: npt.NDArray[np.intp]  # either part in the order of the state
    known: int  # rows of the first part
    weights: Int64Array  # in this order

    @classmethod
    def of(cls, weights: Int64Array, spread: Float64Array, exact: int) -> Reading | None:
        """Order by the row variances. None if only the first, exact rows have none."""
        known = np.flatnonzero(spread == 0.0)
        if len(known) == exact:
            return None
        rows = np.concatenate([known, np.flatnonzero(spread != 0.0)])
        return cls(rows, len(known), weights[rows])

    def runs(self, rows: slice) -> list[slice]:
        """Return the position of a state row run."""
        if rows.start == 0 and rows.stop == len(self.rows):
            return [rows]
        ends = [rows.start, rows.stop]
        first, last = np.searchsorted(self.rows[: self.known], ends).tolist()
        start, stop = (self.known + np.searchsorted(self.rows[self.known :], ends)).tolist()
        if start == stop:
            return [slice(first, last)]
        if last == start:
            return [slice(first, stop)]
        return [slice(first, last), slice(start, stop)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SampledBands:
    """The bands of a sample in which a hash has chosen rows.

    Attributes:
        newest: int64[b], the newest possible time of each sampled band, newest first.
        oldest: int64[b], its watermark: times of the band are later.
        probabilities: float64[b], ``p`` of its level.
    """

    newest: Int64Array
    oldest: Int64Array
    probabilities: Float64Array

    @classmethod
    def of(cls, watermarks: Int64Array, probabilities: Float64Array) -> SampledBands:
        """Return the bands between watermarks.

        Args:
            watermarks: int64[M + 1], by level.
            probabilities: float64[M + 1], by level.
        """
        sampled = 1 + np.flatnonzero(watermarks[1:] < watermarks[:-1])
        return SampledBands(
            newest=watermarks[sampled - 1], oldest=watermarks[sampled],
            probabilities=probabilities[sampled],
        )  # fmt: skip

    def largest_hit(self, fading: Fading) -> tuple[float, float]:
        """Return the largest mass ``g / p`` that a hit has in the sampled bands that a decay
        reaches, with or without rows, and ``1 - p / 2`` for that band. Return (0, 1) if it reaches
        none.
        """
        newest = np.minimum(self.newest, fading.now)
        reached = self.oldest < newest
        steps = fading(newest[reached]) / self.probabilities[reached]
        if not steps.max(initial=0.0) > 0.0:
            return 0.0, 1.0
        return float(steps.max()), 1.0 - 0.5 * float(self.probabilities[reached][steps.argmax()])

    def reach(self, fading: Fading) -> Reach:
        """Return the sampled bands that a decay reaches, with or without rows."""
        newest = np.minimum(self.newest, fading.now)
        support = fading.decay.support
        begins = (
            max(fading.now - int(support), -TIME_LIMIT) if support < TIME_LIMIT else -TIME_LIMIT
        )
        oldest = np.maximum(self.oldest, begins - 1) + 1
        reached = oldest <= newest
        return Reach(oldest[reached], newest[reached], 1.0 / self.probabilities[reached])

    def largest_hits(
        self, fading: Fading, first: Int64Array, last: Int64Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return the same as :meth:`largest_hit`, over the bands that meet time ranges.

        Args:
            fading: decay weights of the query.
            first, last: int64[k], the bounds of each range.

        Complexity: O(bands * k).
        """
        newest = np.minimum(np.minimum(self.newest, fading.now)[:, None], last)
        reached = (self.oldest[:, None] < newest) & (newest >= first)
        times, places = np.unique(-newest[reached], return_inverse=True)  # latest first
        steps = np.zeros(newest.shape)
        steps[reached] = fading(-times)[places]
        steps /= self.probabilities[:, None]
        if not len(steps):
            return np.zeros(len(first)), np.ones(len(first))
        largest = steps.max(axis=0)
        thinning = 1.0 - 0.5 * self.probabilities[steps.argmax(axis=0)]
        return largest, np.where(largest > 0.0, thinning, 1.0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bands(SampledBands):
    """The sample data that depends on the state alone, and is worth keeping between queries.

    Attributes:
        levels: int8[n], the level of each row's band.
        hits: int64[n], RangeSample of each row at that level (RS), at least 1.
        reading: the order of the columns below, known masses first. None if that is the state's
            order.
        units: float64[n], estimates of the weights, see :mod:`decaysketch.query.hash_variance`.
        spread: float64[n], unbiased estimates of their variances.
        jumps: float64[n], the increase of the estimate with one more hit.
        values: the value of each row.
        observations: estimated number of distinct observations that the sketch was fed, at all
            times.
        by_count: the bands of the sample by count, if a sketch has two objectives.
    """

    levels: npt.NDArray[np.int8]
    hits: Int64Array
    units: Float64Array
    spread: Float64Array
    jumps: Float64Array
    observations: float
    values: Values
    reading: Reading | None = None
    by_count: SampledBands | None = None
