"""Samples from an asynchronous sampler for queries, by two estimators.

An element that reaches level ``i`` with probability ``p = min(1, v / 2^i)`` and is seen there
contributes ``v / p = max(v, 2^i)`` to a sum (v = 1 for a median), and ``1 / p`` to a count. Values
of ``2^i`` and more are seen with certainty: they are exact at every level up to i.

``single-level`` is SumQuery and MedianQuery (Xu, Tirthapura and Busch, sections 2.2 and 3.1): all
    elements in the window are read at level ``l'``, the smallest one such that every watermark from
    ``l'`` on is before the window. Theorems 1 and 2 are about this. Section 2.5 prints that levels
    ``l' + 1 .. L`` are read. Correct is ``l' .. L``, else half the sample would be missing. Windows
    only.
``stratified`` reads each element at the smallest level that is complete at its own time, so recent
    parts of a window are exact and older ones sampled as finely as possible. Every term has the
    same expectation as above, for any fixed watermarks. It works for every decay, because
    each element counts with the decay at its own age (the same result as the reduction of a
    decayed sum to its windows, each at its best level). See ``docs/estimators.md`` for intervals.

Watermarks are random, and depend on the same coins. Theorems 1 and 2 account for that by the union
over levels. For ``stratified`` it is measured (``python -m quality.asyncwindow``), not a theorem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow.state import WindowState
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.decay import Decay
from decaysketch.decay.functions import NoDecay, Window, check_decay
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query.bands import Bands
from decaysketch.query.sample import Aged, Fading, Observed, Sample, Values, check_answerable

__all__ = [
    "Estimator",
    "Strata",
    "check_support",
    "query_level",
    "single_level",
    "strata_of",
    "stratified",
    "window_rows",
]

Estimator = Literal["stratified", "single-level"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
_EMPTY = np.empty(0)


class _Part(NamedTuple):
    """Rows by time, latest first: either rows seen with certainty, or sampled rows."""

    times: Int64Array
    value_keys: Int64Array
    keys: npt.NDArray[np.uint64]
    levels: npt.NDArray[np.int8]  # at which they are read: 0 where certain

    @classmethod
    def of(cls, state: WindowState, rows: Any, levels: npt.NDArray[np.int8]) -> _Part:
        return cls(state.times[rows], state.value_keys[rows], state.keys[rows], levels)

    def taken(self, rows: slice) -> _Part:
        return _Part(self.times[rows], self.value_keys[rows], self.keys[rows], self.levels[rows])

    def weights(self, weighted: bool) -> Int64Array:
        return self.value_keys if weighted else np.ones(len(self.times), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """The part of a stratified sample that depends on the state alone, cached between queries.

    Attributes:
        certain: elements that are exact where they are read.
        sampled: the other elements.
        bands: the sampled bands. Their row columns are not used.
    """

    certain: _Part
    sampled: _Part
    bands: Bands


def check_support(state: WindowState, decay: Decay | None) -> Decay:
    """Return the decay. Reject a decay that reaches further back than the largest window.

    Raises:
        ParameterError: it does, or it is not a decay.
    """
    decay = check_decay(decay)
    params = state.params
    if params.max_window is not None and decay.support > params.max_window:
        raise ParameterError(
            f"{decay!r} gives weight to ages up to {decay.support:g}; this sampler was built for "
            f"windows up to max_window = {params.max_window} ({params.time_unit})"
        )
    return decay


def strata_of(state: WindowState) -> Strata:
    """Return a state's bands, and its rows at the levels of their bands. O(n)."""
    since = state.complete_since
    # Times fall along the rows and `since` falls along the levels: bands are runs of rows.
    ends = len(state) - np.searchsorted(state.times[::-1], since, side="right")
    band = np.repeat(np.arange(len(since), dtype=np.int8), np.diff(ends, prepend=0))
    reached = state.levels[: len(band)] >= band
    certain = band == 0
    if state.params.weighted:
        certain |= state.value_keys[: len(band)] >= np.left_shift(np.int64(1), band)
    # Below the level of its band an element was put into another sample than those to be read.
    sure = np.flatnonzero(certain & reached)
    chance = np.flatnonzero(reached & ~certain)
    probabilities = np.ldexp(1.0, -np.arange(len(since)))
    sampled = 1 + np.flatnonzero(since[1:] < since[:-1])
    bands = Bands(
        levels=np.empty(0, np.int8), hits=np.empty(0, np.int64), units=_EMPTY, spread=_EMPTY,
        jumps=_EMPTY, newest=since[sampled - 1], oldest=since[sampled],
        probabilities=probabilities[sampled], observations=0.0,
        values=Values(np.empty(0, np.int64), "int64"),
    )  # fmt: skip
    return Strata(
        _Part.of(state, sure, np.zeros(len(sure), np.int8)),
        _Part.of(state, chance, band[chance]),
        bands,
    )


def stratified(state: WindowState, decay: Decay | None, now: int, *, strata: Strata) -> Sample:
    """Return a state's sample under a decay, at a time.

    Args:
        state: the sampler's state. Rows ordered by time are enough.
        decay: weight by age.
        now: time of the query. Later elements are not counted.
        strata: ``strata_of(state)``.

    Raises:
        ParameterError: ``now`` is not a time, or ``decay`` is not a decay, rises with age, or
            reaches further back than the largest window.
        UnanswerableQueryError: elements with weight under the decay were discarded at every
            level.

    Complexity: O(n).
    """
    check_support(state, decay)
    fading = check_answerable(state, decay, now)
    step, thinning = strata.bands.largest_hit(fading)
    parts, decays = [], []
    for part in (strata.certain, strata.sampled):
        rows, decayed = Aged.of(_Timed(part.times), fading)
        parts.append(part.taken(rows))
        decays.append(decayed)
    sample = _sample(state, fading, parts, decays, step, thinning)
    bands = strata.bands
    return replace(
        sample, hits_within=lambda first, last: bands.largest_hits(fading, first, last),
        reach=lambda: bands.reach(fading),
    )  # fmt: skip


class _Timed:
    """The part of a state that ``Aged`` reads."""

    def __init__(self, times: Int64Array) -> None:
        self.times = times

    def __len__(self) -> int:
        return len(self.times)


def query_level(state: WindowState, decay: Decay | None, now: int) -> tuple[int, int]:
    """Return ``l'`` and the start of the window: step 1 of SumQuery.

    Raises:
        ParameterError, UnanswerableQueryError: see :func:`single_level`.
    """
    check_support(state, decay)
    now = check_answerable(state, decay, now).now
    if isinstance(decay, Window):
        start = max(now - int(min(decay.width, 2 * TIME_LIMIT)), -TIME_LIMIT)
    elif isinstance(decay, NoDecay):
        start = -TIME_LIMIT
    else:
        raise ParameterError(f"single-level answers windows, not {decay!r}; use 'stratified'")
    since = state.complete_since
    level = int(np.count_nonzero(since >= start))
    if level == len(since):
        raise UnanswerableQueryError(
            f"the window starts at time {start}, but elements up to time {int(since[-1])} "
            f"({state.params.time_unit}) were discarded at every level"
        )
    return level, start


def window_rows(state: WindowState, start: int, now: int, level: int) -> slice | Int64Array:
    """Rows of the window that reach a level."""
    ascending = state.times[::-1]
    stop = len(state) - int(np.searchsorted(ascending, start, side="left"))
    first = len(state) - int(np.searchsorted(ascending, now, side="right"))
    if level == 0:
        return slice(first, stop)
    return first + np.flatnonzero(state.levels[first:stop] >= level)


def single_level(state: WindowState, decay: Decay | None, now: int) -> Sample:
    """Return the sample of a window, all of it at one level: SumQuery and MedianQuery.

    Raises:
        ParameterError: as :func:`stratified`, or a decay that is not a window.
        UnanswerableQueryError: as :func:`stratified` (the procedures' "algorithm fails").
    """
    decay = check_support(state, decay)
    level, start = query_level(state, decay, now)
    rows = window_rows(state, start, now, level)
    values = state.value_keys[rows]
    if level == 0:
        certain = np.ones(len(values), np.bool_)
    elif state.params.weighted:
        certain = values >= (1 << level)
    else:
        certain = np.zeros(len(values), np.bool_)
    index = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    sure, chance = index[certain], index[~certain]
    parts = [
        _Part.of(state, sure, np.zeros(len(sure), np.int8)),
        _Part.of(state, chance, np.full(len(chance), level, np.int8)),
    ]
    ones = [np.ones(len(part.times)) for part in parts]
    step, thinning = (2.0**level, 1.0 - 0.5 / 2.0**level) if level else (0.0, 1.0)
    return _sample(state, Fading(decay, int(now), 0, 0), parts, ones, step, thinning)


def _sample(
    state: WindowState, fading: Fading, parts: Sequence[_Part],
    decays: Sequence[Float64Array], step: float, thinning: float,
) -> Sample:  # fmt: skip
    """Return certain elements, exact, and then the sampled ones: one hit with mass 2^i each."""
    params = state.params
    (certain, sampled), (sure, chance) = parts, decays
    weights = [part.weights(params.weighted) for part in parts]
    inverse = np.ldexp(1.0, sampled.levels)
    jumps = chance * inverse
    # A mass g 2^i is seen with probability v / 2^i: its variance is g^2 2^i (2^i - v), once seen.
    variances = chance * jumps * (inverse - weights[1])
    nothing = np.zeros(len(sure))
    return Sample(
        params=params,
        decay=fading.decay,
        now=fading.now,
        observed=Observed(
            value_keys=np.concatenate([certain.value_keys, sampled.value_keys]),
            times=np.concatenate([certain.times, sampled.times]),
            ids=np.concatenate([certain.keys, sampled.keys]).view(np.int64),
            levels=np.concatenate([certain.levels, sampled.levels]),
            hits=np.concatenate([weights[0], np.ones(len(chance), np.int64)]),
        ),
        weights=np.concatenate(weights),
        decayed=np.concatenate([sure, chance]),
        masses=np.concatenate([sure * weights[0], jumps]),
        variances=np.concatenate([nothing, variances]),
        jumps=np.concatenate([sure, jumps]),
        exact_rows=len(sure),
        known_rows=len(sure),
        step=step,
        thinning=thinning,
        collision_bias=0.0,  # keys of 64 bits
        magnitude=fading.magnitude,
        complete_after=int(state.complete_since[0]),
        weighted=params.weighted,
    )
