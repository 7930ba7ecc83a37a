"""The weighted sample that every query reads: each retained observation once, with its mass.

For times in the band ``(t_i, t_{i-1}]`` between two watermarks, ``i`` is the lowest level that has
discarded nothing. Each retained observation counts once, in the band of its time, with the mass
``g(now - t) RS / p_i``: decay times RangeSample, the number of its integers that level ``i``
selects, over the probability of the level. Sums of masses estimate decayed sums without bias; see
``docs/estimators.md``. In the band of level 0, which selects everything, masses are exact.

This is the *stratified* estimator. It departs from the reduction of section 4.2 of Cormode,
Tirthapura and Xu, which sums estimates of sliding windows one inside the other: it is unbiased for
the same reason, has less variance, and is one pass over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.observations import TIME_LIMIT, decode_values
from decaysketch.spread import hit_spread
from decaysketch.state import NO_WATERMARK, SketchState

__all__ = [
    "Bands",
    "Columns",
    "Cumulative",
    "Ranking",
    "Sample",
    "bands_of",
    "draw",
    "masses_by",
]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """What of a sample depends on the state alone: worth keeping between queries.

    Attributes:
        levels: int8[n], the level of each row's band.
        hits: int64[n], RangeSample of each row at that level (RS), at least 1.
        inverse: float64[n], ``1 / p`` of that level.
        units: float64[n], ``RS / p``: estimates of the weights.
        spread: float64[n], unbiased estimates of their variances; see :mod:`decaysketch.spread`.
        newest: int64[b], for each band that is sampled, newest first: its newest possible time.
        oldest: int64[b], its watermark: times of the band are later.
        probabilities: float64[b], ``p`` of its level.
        observations: estimated number of distinct observations that the sketch was fed, at all
            times.
    """

    levels: npt.NDArray[np.int8]
    hits: Int64Array
    inverse: Float64Array
    units: Float64Array
    spread: Float64Array
    newest: Int64Array
    oldest: Int64Array
    probabilities: Float64Array
    observations: float


def bands_of(state: SketchState) -> Bands:
    """Bands and hits of a state. O(n log max_weight)."""
    params, marks = state.params, state.watermarks
    probabilities = params.level_probabilities
    # Times fall along the rows and watermarks fall along the levels: bands are runs of rows.
    # ends[i] = rows later than t_i, which is where the band of level i ends.
    ends = len(state) - np.searchsorted(state.times[::-1], marks, side="right")
    sizes = np.diff(ends, prepend=0)
    levels = np.repeat(np.arange(len(marks), dtype=np.int8), sizes)
    hits = minhit.range_samples(params, state.ids, state.weights, levels)
    inverse = np.repeat(1.0 / probabilities, sizes)
    units = hits * inverse
    spread = np.zeros(len(state))
    for level in np.flatnonzero(sizes[1:]) + 1:
        rows = slice(ends[level - 1], ends[level])
        spread[rows] = hit_spread(params, int(level), state.weights[rows], hits[rows])
    sampled = 1 + np.flatnonzero(marks[1:] < marks[:-1])
    return Bands(
        levels=levels,
        hits=hits,
        inverse=inverse,
        units=units,
        spread=spread,
        newest=marks[sampled - 1],
        oldest=marks[sampled],
        probabilities=probabilities[sampled],
        observations=float(np.sum(units / state.weights)),
    )


def draw(state: SketchState, decay: Decay, now: int, *, bands: Bands | None = None) -> Sample:
    """The sample of a state under a decay, at a time.

    Args:
        state: what the sketch holds.
        decay: weight by age.
        now: time of the query; later observations are not counted.
        bands: ``bands_of(state)``, where it was kept.

    Raises:
        ParameterError: ``now`` is no time, or ``decay`` no decay or none that falls with age.
        UnanswerableQueryError: observations that the decay gives weight to were discarded at every
            level.

    Complexity: O(n), plus that of :func:`bands_of` where ``bands`` is None.
    """
    if not isinstance(decay, Decay):
        raise ParameterError(f"decay is {decay!r}; expected a Decay, such as decay.window(3600)")
    if isinstance(now, bool) or not isinstance(now, (int, np.integer)):
        raise ParameterError(f"now is {now!r}; expected an integer time")
    if not -TIME_LIMIT <= now <= TIME_LIMIT:
        raise ParameterError(f"now is {now!r}; expected at most 2^62 in magnitude")
    now = int(now)
    coarsest = int(state.watermarks[-1])
    if coarsest != NO_WATERMARK and _weights(decay, now, np.array([min(coarsest, now)]))[0] > 0:
        raise UnanswerableQueryError(
            f"at time {now}, {decay!r} gives weight to observations of time "
            f"{min(coarsest, now)}, but those up to time {coarsest} ({state.params.time_unit}) "
            "were discarded at every level"
        )
    return Sample(state, bands_of(state) if bands is None else bands, decay, now)


def _weights(decay: Decay, now: int, times: Int64Array) -> Float64Array:
    """Decay weights at ``now`` of times that are not later."""
    ages: npt.NDArray[Any] = np.int64(now) - times
    if ages.size and ages.min() < 0:  # an age of 2^63 has wrapped around
        ages = ages.view(np.uint64)
    return decay(ages)


def masses_by(group: npt.NDArray[np.intp], masses: Float64Array, size: int) -> Float64Array:
    """Sums of masses by the number of their group, in the order of the rows."""
    return np.bincount(group, masses, size).astype(np.float64, copy=False)  # integers where empty


class Columns(NamedTuple):
    """Columns of a sample, or of those rows of it that have a value; see :class:`Sample`."""

    weights: Int64Array
    decayed: Float64Array
    masses: Float64Array
    variances: Float64Array
    jumps: Float64Array  # mass of a single hit, g / p
    exact: int  # this many first rows are exact

    def take(self, rows: npt.NDArray[np.bool_]) -> Columns:
        """Some of the rows."""
        return Columns(
            self.weights[rows], self.decayed[rows], self.masses[rows], self.variances[rows],
            self.jumps[rows], int(np.count_nonzero(rows[: self.exact])),
        )  # fmt: skip


class Ranking(NamedTuple):
    """Masses by distinct value, values rising; rows without a value are left out."""

    values: npt.NDArray[Any]
    group: npt.NDArray[np.intp]  # of each valued row, the number of its value
    exact: Float64Array  # exact mass of each value
    sampled: Float64Array
    variance: Float64Array  # of the sampled mass


class Cumulative(NamedTuple):
    """Masses of the first k distinct values, for k = 0, 1, ..."""

    mass: Float64Array
    exact: Float64Array
    sampled: Float64Array
    variance: Float64Array


class Sample:
    """Observations with masses; sums over them estimate decayed sums.

    All columns have one entry for each retained observation that the decay gives weight to, in
    canonical order (time, then id, then weight, all descending). Those of the exact band come
    first.

    Attributes:
        decay, now: what was asked.
        weights, times, ids: int64[n], as they were fed.
        levels: int8[n], the level of the band; level 0 is exact.
        hits: int64[n], selected integers at that level (RS).
        decayed: float64[n], decay weights ``g(now - t)``.
        masses: float64[n], estimated decayed weights ``g RS / p``.
        variances: float64[n], unbiased estimates of the variances of the masses; 0 at level 0.
        step: the largest ``g / p`` of the sampled bands that the decay reaches, whether or not
            they hold rows: the mass that one more hit may add. 0 where none is reached.
        thinning: ``1 - p / 2`` of that band.
        exact: no sampled band is reached: masses are the decayed weights themselves.
        collision_bias: see :class:`~decaysketch.estimate.Estimate`.
    """

    def __init__(self, state: SketchState, bands: Bands, decay: Decay, now: int) -> None:
        self.decay = decay
        self.now = now
        ascending = state.times[::-1]
        start = len(state) - int(np.searchsorted(ascending, now, side="right"))
        stop = len(state)
        if decay.support < 2.0 * TIME_LIMIT:  # rows older than this have no weight
            oldest = max(now - int(decay.support), -TIME_LIMIT)
            stop = max(start, stop - int(np.searchsorted(ascending, oldest, side="left")))
        decayed = _weights(decay, now, state.times[start:stop])
        if len(decayed) and not 0.0 <= decayed[-1] <= decayed[0] < np.inf:
            raise ParameterError(
                f"{decay!r} gives weights from {decayed[0]} to {decayed[-1]} as ages rise; "
                "expected finite numbers >= 0 that do not rise"
            )
        if len(decayed) and not decayed[-1] > 0:  # as where an exponential underflows
            positive = np.flatnonzero(decayed > 0)
            stop = start + (int(positive[-1]) + 1 if len(positive) else 0)
            decayed = decayed[: stop - start]
        rows = slice(start, stop)
        self._state, self._rows = state, rows
        self._inverse = bands.inverse[rows]
        self.weights = state.weights[rows]
        self.times = state.times[rows]
        self.ids = state.ids[rows]
        self.levels = bands.levels[rows]
        self.hits = bands.hits[rows]
        self.decayed = decayed
        self.masses = decayed * bands.units[rows]
        self.variances = decayed * decayed
        self.variances *= bands.spread[rows]
        newest = np.minimum(bands.newest, now)
        reached = bands.oldest < newest
        steps = _weights(decay, now, newest[reached]) / bands.probabilities[reached]
        self.step = float(steps.max(initial=0.0))
        self.exact = not self.step > 0
        self.thinning = 1.0
        if not self.exact:
            self.thinning = 1.0 - 0.5 * float(bands.probabilities[reached][steps.argmax()])
        self.collision_bias = bands.observations / 2.0 ** (state.params.id_bits + 1)

    def __len__(self) -> int:
        return len(self.masses)

    def __repr__(self) -> str:
        kind = "exact" if self.exact else f"{self.columns.exact} of them exact"
        return f"Sample({len(self)} rows, {kind}, {self.decay!r}, now={self.now})"

    @cached_property
    def columns(self) -> Columns:
        """All rows."""
        return Columns(
            self.weights, self.decayed, self.masses, self.variances,
            jumps=self.decayed * self._inverse,
            exact=int(np.searchsorted(self.levels, 1)),
        )  # fmt: skip

    @cached_property
    def _decoded(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        return decode_values(self._state.value_keys[self._rows], self._state.params.value_type)

    @property
    def values(self) -> npt.NDArray[Any]:
        """Values, int64 or float64; 0 where missing."""
        return self._decoded[0]

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where there is no value."""
        return self._decoded[1]

    @cached_property
    def valued(self) -> tuple[npt.NDArray[Any], Columns]:
        """Values, and the columns beside them, of the rows that have one."""
        values, missing = self._decoded
        if not missing.any():
            return values, self.columns
        return values[~missing], self.columns.take(~missing)

    @cached_property
    def ranking(self) -> Ranking:
        """Masses by distinct value. O(n log n), once for a sample."""
        values, columns = self.valued
        distinct, group = np.unique(values, return_inverse=True)
        size, exact = len(distinct), columns.exact
        return Ranking(
            distinct,
            group,
            exact=masses_by(group[:exact], columns.masses[:exact], size),
            sampled=masses_by(group[exact:], columns.masses[exact:], size),
            variance=masses_by(group[exact:], columns.variances[exact:], size),
        )

    @cached_property
    def cumulative(self) -> Cumulative:
        """Masses of the values up to each distinct one."""
        ranking = self.ranking
        exact, sampled, variance = (
            np.concatenate([[0.0], np.cumsum(column)])
            for column in (ranking.exact, ranking.sampled, ranking.variance)
        )
        return Cumulative(exact + sampled, exact, sampled, variance)
