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
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.observations import TIME_LIMIT, decode_values
from decaysketch.state import NO_WATERMARK, SketchState

__all__ = ["Bands", "Sample", "bands_of", "draw"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """What of a sample depends on the state alone: worth keeping between queries.

    Attributes:
        levels: int8[n], the level of each row's band.
        hits: int64[n], RangeSample of each row at that level (RS), at least 1.
        units: float64[n], ``RS / p``: estimates of the weights.
        spread: float64[n], ``RS (RS - w p) / p^2``: unbiased estimates of their variances.
        newest: int64[b], for each band that is sampled, newest first: its newest possible time.
        oldest: int64[b], its watermark: times of the band are later.
        inverse: float64[b], ``1 / p`` of its level.
        observations: estimated number of distinct observations that the sketch was fed, at all
            times.
    """

    levels: npt.NDArray[np.int8]
    hits: Int64Array
    units: Float64Array
    spread: Float64Array
    newest: Int64Array
    oldest: Int64Array
    inverse: Float64Array
    observations: float


def bands_of(state: SketchState) -> Bands:
    """Bands and hits of a state. O(n log max_weight)."""
    probabilities = state.params.level_probabilities
    marks = state.watermarks
    # Times fall along the rows and watermarks fall along the levels: bands are runs of rows.
    # ends[i] = rows later than t_i, which is where the band of level i ends.
    ends = len(state) - np.searchsorted(state.times[::-1], marks, side="right")
    sizes = np.diff(ends, prepend=0)
    levels = np.repeat(np.arange(len(marks), dtype=np.int8), sizes)
    hits = minhit.range_samples(state.params, state.ids, state.weights, levels)
    p = np.repeat(probabilities, sizes)
    units = hits / p
    spread = units * (units - state.weights)
    sampled = 1 + np.flatnonzero(marks[1:] < marks[:-1])
    return Bands(
        levels=levels,
        hits=hits,
        units=units,
        spread=spread,
        newest=marks[sampled - 1],
        oldest=marks[sampled],
        inverse=1.0 / probabilities[sampled],
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
        ParameterError: ``now`` is no time, or ``decay`` no decay.
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
            f"at time {now}, {decay!r} gives weight to observations up to time "
            f"{min(coarsest, now)}, but every level has discarded those up to time {coarsest} "
            f"({state.params.time_unit})"
        )
    return Sample(state, bands_of(state) if bands is None else bands, decay, now)


def _weights(decay: Decay, now: int, times: Int64Array) -> Float64Array:
    """Decay weights at ``now`` of times that are not later."""
    ages: npt.NDArray[Any] = np.int64(now) - times
    if ages.size and ages.min() < 0:  # an age of 2^63 has wrapped around
        ages = ages.view(np.uint64)
    return decay(ages)


class Sample:
    """Observations with masses; sums over them estimate decayed sums.

    All columns have one entry for each retained observation that the decay gives weight to, in
    canonical order (time, then id, then weight, all descending), and are read-only.

    Attributes:
        decay, now: what was asked.
        weights, times, ids: int64[n], as they were fed.
        levels: int8[n], the level of the band; level 0 is exact.
        hits: int64[n], selected integers at that level (RS).
        decayed: float64[n], decay weights ``g(now - t)``.
        masses: float64[n], estimated decayed weights ``g RS / p``.
        variances: float64[n], unbiased estimates of the variances of the masses,
            ``g^2 RS (RS - w p) / p^2``: 0 at level 0; single ones may be negative.
        step: the largest ``g / p`` of the sampled bands that the decay reaches, whether or not
            they hold rows: the mass that one more hit may add. 0 where none is reached.
        exact: no sampled band is reached: masses are the decayed weights themselves.
        collision_bias: see :class:`~decaysketch.estimate.Estimate`.
    """

    def __init__(self, state: SketchState, bands: Bands, decay: Decay, now: int) -> None:
        self.decay = decay
        self.now = now
        times = state.times[::-1]  # ascending
        stop = len(times) - int(np.searchsorted(times, now, side="right"))
        start, stop = stop, len(times)
        support = decay.support
        if support < 2.0 * TIME_LIMIT:  # rows older than this cannot have weight
            stop -= int(np.searchsorted(times, max(now - int(support), -TIME_LIMIT), side="left"))
            stop = max(start, stop)
        decayed = _weights(decay, now, state.times[start:stop])
        if decayed.size and not decayed[-1] > 0:
            positive = np.flatnonzero(decayed > 0)
            decayed = decayed[: positive[-1] + 1 if positive.size else 0]
            stop = start + len(decayed)
        rows = slice(start, stop)
        self._state, self._rows = state, rows
        self.weights = state.weights[rows]
        self.times = state.times[rows]
        self.ids = state.ids[rows]
        self.levels = bands.levels[rows]
        self.hits = bands.hits[rows]
        self.decayed = decayed
        self.masses = decayed * bands.units[rows]
        self.variances = decayed * decayed
        self.variances *= bands.spread[rows]
        for column in (self.levels, self.hits, self.decayed, self.masses, self.variances):
            column.setflags(write=False)
        self.sampled_from = int(np.searchsorted(self.levels, 1))  # rows before it are exact
        newest = np.minimum(bands.newest, now)
        reached = bands.oldest < newest
        steps = _weights(decay, now, newest[reached]) * bands.inverse[reached]
        self.step = float(steps.max(initial=0.0))
        self.exact = not self.step > 0
        self.collision_bias = bands.observations / 2.0 ** (state.params.id_bits + 1)

    def __len__(self) -> int:
        return len(self.masses)

    def __repr__(self) -> str:
        kind = "exact" if self.exact else f"{self.sampled_from} of them exact"
        return f"Sample({len(self)} rows, {kind}, {self.decay!r}, now={self.now})"

    @cached_property
    def _decoded(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        return decode_values(
            self._state.value_keys[self._rows], self._state.params.value_type
        )

    @property
    def values(self) -> npt.NDArray[Any]:
        """Values, int64 or float64; 0 where missing."""
        return self._decoded[0]

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where there is no value."""
        return self._decoded[1]
