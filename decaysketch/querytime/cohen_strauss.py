"""The Cohen-Strauss estimator: any decay as a combination of sliding windows.

Section 4.2 in Cormode, Tirthapura and Xu writes a decayed sum as a sum over the starts ``b`` of
sliding windows, each estimated from the lowest level that is complete for it. With the breakpoints
``b_1 < b_2 < ...``, the stored times *and* the watermarks (where the level switches), it is

    g(c - b_1) V(b_1) + sum over j > 1 of [g(c - b_j) - g(c - b_{j-1})] V(b_j),

where ``V(b)`` is the estimate for the window that starts at ``b``. (Formula 4.2 as printed has the
sign and the index wrong, and omits the watermarks.) Over the starts in the band
``(t_i, t_{i-1}]`` the differences telescope. An observation at time ``t`` that level ``i`` selects
counts there with ``A_i - G_i``. Here ``A_i = g(c - min(t, t_{i-1}))`` and ``G_i = g(c - t_i)``, 0
where nothing was discarded. So its mass is

    sum over the levels i from that of its band up of (A_i - G_i) RS_i / p_i.

The mass is linear in the values next to the masses, so every aggregate follows, as from the
stratified sample. Its variance is the sum over ``(A_i^2 - G_i^2) Var(RS_i / p_i)``. Both are
derived in ``docs/estimators.md``. An observation is read at about two levels, so this costs more
than :mod:`decaysketch.querytime.stratified`, and its variance is never less. It is here because it
is the paper's estimator, and as a check.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.query.bands import Bands
from decaysketch.query.hash_variance import hit_spread
from decaysketch.query.sample import Aged, Origin, Sample, Values, check_answerable
from decaysketch.querytime.state import SketchState
from decaysketch.querytime.stratified import assemble, bands_of

__all__ = ["Ladder", "Rung", "draw", "ladder_of"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class Rung(NamedTuple):
    """A complete sample from one level: rows later than its watermark that it selects.

    Attributes:
        inverse: ``1 / p`` of the level.
        newest: window starts later than this belong to a lower level, ``t_{i-1}``.
        oldest: the watermark, ``t_i``, or ``NO_WATERMARK``.
        rows: intp[m], rows of the state.
        units: float64[m], ``RS / p``.
        spread: float64[m], unbiased estimates of their variances.
    """

    inverse: float
    newest: int
    oldest: int
    rows: npt.NDArray[np.intp]
    units: Float64Array
    spread: Float64Array


class Ladder(NamedTuple):
    """The sample data that depends on the state alone: worth keeping between queries."""

    bands: Bands
    rungs: tuple[Rung, ...]
    values: Values  # of each row of the state


def ladder_of(state: SketchState, *, bands: Bands | None = None) -> Ladder:
    """Return the hits for every observation at every level that is complete for it. O(n log
    max_weight).
    """
    params, marks = state.params, state.watermarks
    ends = len(state) - np.searchsorted(state.times[::-1], marks, side="right")
    rungs = []
    for level, mark in enumerate(marks):
        newest = int(marks[level - 1]) if level else np.iinfo(np.int64).max
        if int(mark) == newest:
            continue  # no window starts here
        rows = np.flatnonzero(state.levels[: ends[level]] >= level)
        weights = state.weights[rows]
        hits = minhit.range_samples(
            params, state.ids[rows], weights, np.int8(level), copy=state.copy
        )
        inverse = 1.0 / float(params.level_probabilities[level])
        units = hits * np.float64(inverse)
        spread = np.zeros(len(rows))
        if level:
            spread = hit_spread(params, level, weights, hits, copy=state.copy)
        rungs.append(Rung(inverse, newest, int(mark), rows, units, spread))
        if mark == NO_WATERMARK:
            break
    bands = bands_of(state) if bands is None else bands
    values = bands.values
    if bands.reading is not None:  # they are in another order
        values = Values(state.value_keys, params.value_type, state.labels)
    return Ladder(bands, tuple(rungs), values)


def draw(
    state: SketchState,
    decay: Decay | None,
    now: int,
    *,
    ladder: Ladder | None = None,
    newest: int | None = None,
) -> Sample:
    """Return the sample from a state under a decay, at a time.

    Arguments and errors are as in :func:`decaysketch.querytime.stratified.draw`. ``ladder`` is
    ``ladder_of(state)``, if it was kept.

    Complexity: O(n), plus :func:`ladder_of` if ``ladder`` is None.
    """
    fading = check_answerable(state, decay, now, newest)
    now = fading.now
    ladder = ladder_of(state) if ladder is None else ladder
    bands, rungs, values = ladder
    aged, decayed = Aged.of(state, fading)
    masses, variances, jumps = (np.zeros(len(decayed)) for _ in range(3))
    for rung in rungs:
        if rung.oldest >= now:
            continue  # its windows start after now
        first, last = np.searchsorted(rung.rows, (aged.start, aged.stop))
        rows = rung.rows[first:last] - aged.start
        beyond = 0.0  # G_i
        if rung.oldest != NO_WATERMARK:
            beyond = float(fading(np.array([rung.oldest]))[0])
        within = decayed[rows]  # A_i
        if rung.newest < now:  # those later than t_{i-1} count from there on
            within = np.minimum(within, fading(np.array([rung.newest]))[0])
        masses[rows] += (within - beyond) * rung.units[first:last]
        variances[rows] += (within * within - beyond * beyond) * rung.spread[first:last]
        jumps[rows] += (within - beyond) * rung.inverse
    return assemble(
        state, bands, fading, aged, decayed, masses=masses, variances=variances, jumps=jumps,
        weights=state.weights[aged], exact_rows=None, origin=Origin(values, [aged]),
        draw=lambda newest: draw(state, decay, now, ladder=ladder, newest=newest),
    )  # fmt: skip
