"""The stratified estimator: each observation counts once, in the band with its time.

For times in the band ``(t_i, t_{i-1}]`` between two watermarks, ``i`` is the lowest level that has
discarded nothing. A retained observation counts once, in its band, with the mass
``g(now - t) RS / p_i``, so mass sums estimate decayed sums without bias. In the band for level 0,
the level that selects everything, masses are exact.

It departs from the reduction in Cormode, Tirthapura and Xu, section 4.2
(:mod:`decaysketch.querytime.cohen_strauss`), which sums estimates for nested sliding windows. It is
unbiased for the same reason, has less variance, and is one pass over the rows. Derivations are in
``docs/estimators.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.decay import Decay
from decaysketch.query.bands import Bands, Reading, SampledBands
from decaysketch.query.hash_variance import weighed
from decaysketch.query.sample import (
    Aged,
    Fading,
    Observed,
    Origin,
    PerObservation,
    Redraw,
    Sample,
    check_answerable,
    read,
    values_among,
)
from decaysketch.querytime._native import known_hits
from decaysketch.querytime.rows import columns_of
from decaysketch.querytime.state import SketchState

__all__ = ["RowEstimates", "assemble", "bands_from", "bands_of", "draw", "estimates_of"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class RowEstimates(NamedTuple):
    """Estimates for the rows of a state, in its order. See :class:`Bands`."""

    levels: npt.NDArray[np.int8]
    hits: Int64Array
    units: Float64Array
    spread: Float64Array
    jumps: Float64Array


def bands_of(state: SketchState, *, earlier: tuple[SketchState, Bands] | None = None) -> Bands:
    """Return a state's bands and hits. O(n log max_weight).

    Args:
        state: the sketch state.
        earlier: an earlier state under the same hash. Rows in both cost O(1).
    """
    return bands_from(state, estimates_of(state, earlier=earlier))


def estimates_of(
    state: SketchState, *, earlier: tuple[SketchState, Bands] | None = None
) -> RowEstimates:
    """Return what each row of a state represents. Arguments as in :func:`bands_of`."""
    params, marks = state.params, state.watermarks
    # Times fall along the rows and watermarks fall along the levels: bands are runs of rows.
    # ends[i] = rows later than t_i, which is where the band of level i ends.
    ends = len(state) - np.searchsorted(state.times[::-1], marks, side="right")
    sizes = np.diff(ends, prepend=0)
    levels = np.repeat(np.arange(len(marks), dtype=np.int8), sizes)
    hits = _hits(state, levels, earlier)
    jumps = np.repeat(1.0 / params.level_probabilities, sizes)
    units = hits * jumps
    spread = np.zeros(len(state))
    for level in np.flatnonzero(sizes[1:]) + 1:
        rows = slice(ends[level - 1], ends[level])
        units[rows], spread[rows], jumps[rows] = weighed(
            params, int(level), state.weights[rows], hits[rows], copy=state.copy
        )
    return RowEstimates(levels, hits, units, spread, jumps)


def bands_from(
    state: SketchState, found: RowEstimates, *, by_count: SampledBands | None = None
) -> Bands:
    """Return a state's bands from the estimates of its rows. ``by_count`` is as in
    :class:`Bands`.
    """
    params = state.params
    levels, hits, units, spread, jumps = found
    sampled = SampledBands.of(state.watermarks, params.level_probabilities)
    exact = int(levels.searchsorted(np.int8(1)))
    observations = float(np.sum(units / state.weights))
    value_keys, reading = state.value_keys, Reading.of(state.weights, spread, exact)
    if reading is not None:
        value_keys = value_keys[reading.rows]
        units, spread, jumps = (column[reading.rows] for column in (units, spread, jumps))
    return Bands(
        levels=levels,
        hits=hits,
        units=units,
        spread=spread,
        jumps=jumps,
        newest=sampled.newest,
        oldest=sampled.oldest,
        probabilities=sampled.probabilities,
        observations=observations,
        values=values_among(value_keys, params.value_type, state.labels, state.records),
        reading=reading,
        by_count=by_count,
    )


def _hits(
    state: SketchState, levels: npt.NDArray[np.int8], earlier: tuple[SketchState, Bands] | None
) -> Int64Array:
    if earlier is None:
        return minhit.range_samples(state.params, state.ids, state.weights, levels, copy=state.copy)
    old, known = earlier
    hits, unknown = np.empty(len(state), np.int64), np.empty(len(state), np.int64)
    count = known_hits(
        columns_of(state, levels), columns_of(old, known.levels), known.hits, hits, unknown
    )
    rows = unknown[:count]
    hits[rows] = minhit.range_samples(
        state.params, state.ids[rows], state.weights[rows], levels[rows], copy=state.copy
    )
    return hits


def draw(
    state: SketchState,
    decay: Decay | None,
    now: int,
    *,
    bands: Bands | None = None,
    newest: int | None = None,
) -> Sample:
    """Return the sample from a state under a decay, at a time.

    Args:
        state: the sketch state.
        decay: weight by age.
        now: query time. Later observations are not counted.
        bands: ``bands_of(state)``, if it was kept.
        newest: the time of the newest observation that matters. Default: the newest of all.

    Raises:
        ParameterError: ``now`` is no time, or ``decay`` is no decay or does not fall with age.
        UnanswerableQueryError: observations that the decay gives weight to were discarded at every
            level.

    Complexity: O(n), plus :func:`bands_of` if ``bands`` is None.
    """
    fading = check_answerable(state, decay, now, newest)
    bands = bands_of(state) if bands is None else bands
    rows, decayed = Aged.of(state, fading)
    exact = known = int(bands.levels[rows].searchsorted(np.int8(1)))
    weights, runs, reading = state.weights[rows], [rows], bands.reading
    if reading is not None:
        runs = reading.runs(rows)
        known = min(runs[0].stop, reading.known) - runs[0].start
        weights = read(reading.weights, runs)
        if len(decayed) and decayed[0] != decayed[-1]:  # they fall: else all are equal
            index = read(reading.rows, runs)
            index = index - rows.start if rows.start else index
            decayed = decayed.take(index, mode="clip")  # all are inside: no second look
    variances = decayed * decayed
    variances *= read(bands.spread, runs)
    return assemble(
        state, bands, fading, rows, decayed, masses=decayed * read(bands.units, runs),
        variances=variances, jumps=decayed * read(bands.jumps, runs), weights=weights,
        exact_rows=exact, known_rows=known, later=_later(state, bands, rows),
        origin=Origin(bands.values, runs),
        order=None if reading is None else lambda: read(reading.rows, runs),
        draw=lambda newest: draw(state, decay, now, bands=bands, newest=newest),
    )  # fmt: skip


def _later(state: SketchState, bands: Bands, rows: slice) -> Int64Array:
    """Return the weights in the rows before these, as far as the rows are complete at their
    times.
    """
    return state.weights[: min(rows.start, int(bands.levels.searchsorted(np.int8(1))))]


def assemble(
    state: SketchState, bands: Bands, fading: Fading, rows: slice, decayed: Float64Array,
    *, masses: Float64Array, variances: Float64Array, jumps: Float64Array, weights: Int64Array,
    exact_rows: int | None, known_rows: int = 0, later: Int64Array | None = None, origin: Origin,
    order: Callable[[], npt.NDArray[np.intp]] | None = None, draw: Callable[[int], Sample],
) -> Sample:  # fmt: skip
    """Return a sample from state rows.

    Args:
        state, bands: the sketch state and its bands.
        fading: decay weights of the query.
        rows: the rows that have weight.
        decayed, masses, variances, jumps, weights: columns of the sample.
        exact_rows, known_rows: attributes of the sample. None if all are exact or none is.
        later: attribute of the sample. None if unknown.
        origin: the position of the values.
        order: returns the rows in column order, if that differs.
        draw: draws the same sample, scaled for another newest time.
    """
    step, thinning = bands.largest_hit(fading)

    def everything() -> Sample:
        return _everything(state, bands, fading)

    @cache
    def index() -> slice | npt.NDArray[np.intp]:
        return rows if order is None else order()

    observed = Observed(
        lambda: state.value_keys[index()], lambda: state.times[index()], lambda: state.ids[index()],
        lambda: bands.levels[index()], lambda: bands.hits[index()],
    )  # fmt: skip
    if exact_rows is None:
        exact_rows = known_rows = 0 if step > 0 else len(decayed)
    return Sample(
        params=state.params,
        decay=fading.decay,
        now=fading.now,
        observed=observed,
        weights=weights,
        decayed=decayed,
        masses=masses,
        variances=variances,
        jumps=jumps,
        exact_rows=exact_rows,
        known_rows=known_rows,
        step=step,
        thinning=thinning,
        collision_bias=bands.observations / 2.0 ** (state.params.id_bits + 1),
        origin=origin,
        magnitude=fading.magnitude,
        redraw=Redraw.of(everything, draw),
        hits_within=lambda first, last: bands.largest_hits(fading, first, last),
        complete_after=int(state.watermarks[0]),
        later=later,
        labels=state.labels,
        records=state.records,
        reach=lambda: bands.reach(fading),
        weighted=state.params.max_weight > 1,
        per_observation=_per_observation(bands.by_count, fading),
    )


def _per_observation(bands: SampledBands | None, fading: Fading) -> PerObservation | None:
    if bands is None:
        return None
    return PerObservation(
        *bands.largest_hit(fading),
        lambda first, last: bands.largest_hits(fading, first, last),
        lambda: bands.reach(fading),
    )


def _everything(state: SketchState, bands: Bands, fading: Fading) -> Sample:
    """Return all state rows with weight 1 each, for any decay and query time."""
    ones = np.ones(len(state))
    exact = int(bands.levels.searchsorted(np.int8(1)))
    return Sample(
        params=state.params, decay=fading.decay, now=fading.now,
        observed=Observed(state.value_keys, state.times, state.ids, bands.levels, bands.hits),
        weights=state.weights, decayed=ones, masses=ones, variances=ones, jumps=ones,
        exact_rows=exact, known_rows=exact, step=0.0, thinning=1.0, collision_bias=0.0,
        labels=state.labels, records=state.records,
    )  # fmt: skip
