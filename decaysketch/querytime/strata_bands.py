"""The stratified estimator for a sketch with strata.

Each stratum has its own bands (:mod:`decaysketch.querytime.stratified`). A retained observation
counts once, in its band, with the probability of the band's level. An observation lies in one
stratum, so sums over strata are unbiased and their variances add.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.text.expression import Column
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.query.bands import Bands
from decaysketch.query.hash_variance import weighed
from decaysketch.query.sample import (
    Aged,
    Fading,
    Observed,
    Origin,
    Redraw,
    Sample,
    Values,
    check_answerable,
    read,
    values_among,
)
from decaysketch.query.strata import Strata, Within
from decaysketch.query.unseen_rows import Reach
from decaysketch.querytime.strata_state import StrataState, level_of_mark

__all__ = ["StrataBands", "bands_of_strata", "draw_strata"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class _Times(NamedTuple):
    """Rows by time, latest first."""

    times: Int64Array

    def __len__(self) -> int:
        return len(self.times)


class SampledBands(NamedTuple):
    """Sampled bands in strata.

    Attributes:
        stratum: intp[b], each band's stratum.
        level: int64[b], its level.
        newest, oldest, probabilities: see :class:`~decaysketch.query.bands.Bands`.
    """

    stratum: npt.NDArray[np.intp]
    level: Int64Array
    newest: Int64Array
    oldest: Int64Array
    probabilities: Float64Array

    @classmethod
    def of(cls, state: StrataState) -> SampledBands:
        """Return a state's sampled bands, newest first."""
        offsets, newest = state.mark_offsets, state.marks
        stratum = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        level = 1 + level_of_mark(offsets)
        oldest = np.append(newest[1:], NO_WATERMARK)
        oldest[offsets[1:][np.diff(offsets) > 0] - 1] = NO_WATERMARK
        there = np.flatnonzero((level <= state.params.levels) & (oldest < newest))
        there = there[np.argsort(-newest[there], kind="stable")]
        level = level[there]
        return cls(
            stratum[there], level, newest[there], oldest[there],
            state.params.level_probabilities[level],
        )  # fmt: skip

    def take(self, rows: npt.NDArray[Any]) -> SampledBands:
        """Return some bands."""
        return SampledBands(
            self.stratum[rows], self.level[rows], self.newest[rows], self.oldest[rows],
            self.probabilities[rows],
        )  # fmt: skip

    def united(self) -> SampledBands:
        """Return bands that cover the same times at each level, without regard to strata, newest
        first. The largest hit in any time range stays the same.
        """
        parts = []
        for level in np.unique(self.level):
            newest, oldest = (column[self.level == level] for column in (self.newest, self.oldest))
            reached = np.minimum.accumulate(oldest)
            first = np.concatenate([[True], newest[1:] < reached[:-1]])
            last = np.append(first[1:], True)
            parts.append((np.full(first.sum(), level), newest[first], reached[last]))
        if not parts:
            return self
        level, newest, oldest = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(-newest, kind="stable")
        by_level = dict(zip(self.level.tolist(), self.probabilities.tolist(), strict=True))
        probabilities = np.array([by_level[each] for each in level.tolist()])
        none = np.zeros(len(level), np.intp)
        return SampledBands(none, level, newest, oldest, probabilities).take(order)


@dataclass(frozen=True, eq=False)
class StrataBands:
    """The sample data that depends on a state alone. Rows come in *reading order*: first the
    rows in exact bands, latest first, then the others, latest first.

    Attributes:
        state: the state.
        rows: intp[n], each row's number in the state.
        exact: row count in exact bands.
        times, weights, levels, hits, units, spread, jumps: see :class:`~decaysketch.query.Bands`,
            in reading order.
        values: each row's value.
        collision_bias: see :class:`~decaysketch.query.estimate.Estimate`.
        sampled: the sampled bands.
    """

    state: StrataState
    rows: npt.NDArray[np.intp]
    exact: int
    times: Int64Array
    weights: Int64Array
    levels: npt.NDArray[np.int8]
    hits: Int64Array
    units: Float64Array
    spread: Float64Array
    jumps: Float64Array
    values: Values
    collision_bias: float
    sampled: SampledBands

    @cached_property
    def united(self) -> Bands:
        """The bands in all strata as for one sketch, for the largest hits."""
        return self.bands(self.sampled)

    def bands(self, sampled: SampledBands) -> Bands:
        """Return sampled bands as for one sketch, for the largest hits."""
        united, none = sampled.united(), np.empty(0)
        return Bands(
            levels=self.levels, hits=self.hits, units=none, spread=none, jumps=none,
            newest=united.newest, oldest=united.oldest, probabilities=united.probabilities,
            observations=0.0, values=self.values,
        )  # fmt: skip

    @cached_property
    def keys(self) -> dict[str, Column]:
        """The stratum columns, as expressions read them."""
        strata = self.state.strata
        return {
            name: Column(np.maximum(each.keys, -1), _nulls(each.keys), each.texts)
            for (name, _), each in zip(strata.types, strata.columns, strict=True)
        }


def _nulls(keys: Int64Array) -> BoolArray | None:
    null = keys == MISSING_KEY
    return null if null.any() else None


def bands_of_strata(state: StrataState) -> StrataBands:
    """Return a state's bands. O(n log n)."""
    params = state.params
    levels = _levels(state)
    order = np.concatenate([np.flatnonzero(levels == 0), np.flatnonzero(levels)])
    exact = int(np.count_nonzero(levels == 0))
    levels, weights, ids = levels[order], state.weights[order], state.ids[order]
    hits = minhit.range_samples(params, ids, weights, levels, copy=0)
    jumps = 1.0 / params.level_probabilities[levels]
    units, spread = hits * jumps, np.zeros(len(order))
    for level in np.unique(levels[exact:]).tolist():
        at = exact + np.flatnonzero(levels[exact:] == level)
        units[at], spread[at], jumps[at] = weighed(params, level, weights[at], hits[at])
    observations = np.bincount(state.stratum[order], units / weights, len(state.strata))
    total = float(observations.sum())
    pairs = float((observations**2).sum()) / total if total > 0.0 else 0.0
    values = values_among(state.value_keys[order], params.value_type, None, state.records)
    return StrataBands(
        state, order, exact, state.times[order], weights, levels, hits, units, spread, jumps,
        values, pairs / 2.0 ** (params.id_bits + 1), SampledBands.of(state),
    )  # fmt: skip


def _levels(state: StrataState) -> npt.NDArray[np.int8]:
    """Return each row's band level: the lowest complete level in its stratum at its time."""
    starts, counts = state.mark_offsets[:-1], np.diff(state.mark_offsets)
    levels = np.zeros(len(state), np.int8)
    rows = np.flatnonzero(counts[state.stratum] > 0)
    level = 0
    while len(rows):
        stratum = state.stratum[rows]
        rows = rows[state.times[rows] <= state.marks[starts[stratum] + level]]
        level += 1
        levels[rows] = level
        rows = rows[counts[state.stratum[rows]] > level]
    return levels


class _Hits(NamedTuple):
    """See :class:`~decaysketch.query.strata.Hits`."""

    bands: StrataBands
    fading: Fading

    def by_stratum(self, first: int | None, last: int | None) -> tuple[Float64Array, Float64Array]:
        sampled, size = self.bands.sampled, len(self.bands.state.strata)
        newest = np.minimum(
            sampled.newest, self.fading.now if last is None else min(last, self.fading.now)
        )
        reached = sampled.oldest < newest
        if first is not None:
            reached &= newest >= first
        hits = self.fading(newest[reached]) / sampled.probabilities[reached]
        stratum = sampled.stratum[reached]
        steps, thinning = np.zeros(size), np.ones(size)
        np.maximum.at(steps, stratum, hits)
        largest = (hits > 0.0) & (hits == steps[stratum])
        thinning[stratum[largest]] = 1.0 - 0.5 * sampled.probabilities[reached][largest]
        return steps, thinning

    def _of(self, active: BoolArray | None) -> Bands:
        if active is None:
            return self.bands.united
        return self.bands.bands(self.bands.sampled.take(active[self.bands.sampled.stratum]))

    def within(self, active: BoolArray | None) -> Within:
        found: list[Bands] = []

        def within(first: Int64Array, last: Int64Array) -> tuple[Float64Array, Float64Array]:
            if not found:
                found.append(self._of(active))
            return found[0].largest_hits(self.fading, first, last)

        return within

    def reach(self, active: BoolArray | None) -> Reach:
        return self._of(active).reach(self.fading)


def draw_strata(
    state: StrataState, decay: Decay | None, now: int, *, bands: StrataBands,
    newest: int | None = None,
) -> Sample:  # fmt: skip
    """Return the sample from all strata. Arguments, errors and complexity are as in
    :func:`~decaysketch.querytime.stratified.draw`.
    """
    fading = check_answerable(state, decay, now, newest)
    parts = slice(0, bands.exact), slice(bands.exact, None)
    aged = [Aged.of(_Times(bands.times[part]), fading) for part in parts]
    near, far = (each.rows for each in aged)
    runs = [near, slice(bands.exact + far.start, bands.exact + far.stop)]
    decayed = np.concatenate([each.decayed for each in aged])
    index = bands.rows
    step, thinning = bands.united.largest_hit(fading)
    exact = near.stop - near.start if step > 0.0 else len(decayed)
    variances = decayed * decayed * read(bands.spread, runs)

    observed = Observed(
        lambda: state.value_keys[read(index, runs)], lambda: read(bands.times, runs),
        lambda: state.ids[read(index, runs)], lambda: read(bands.levels, runs),
        lambda: read(bands.hits, runs),
    )  # fmt: skip
    hits = _Hits(bands, fading)
    return Sample(
        params=state.params, decay=fading.decay, now=fading.now, observed=observed,
        weights=read(bands.weights, runs), decayed=decayed,
        masses=decayed * read(bands.units, runs), variances=variances,
        jumps=decayed * read(bands.jumps, runs), exact_rows=exact, known_rows=exact, step=step,
        thinning=thinning, collision_bias=bands.collision_bias, origin=Origin(bands.values, runs),
        magnitude=fading.magnitude,
        redraw=Redraw.of(
            lambda: _everything(state, bands, fading),
            lambda time: draw_strata(state, decay, now, bands=bands, newest=time),
        ),
        hits_within=hits.within(None), complete_after=int(state.watermarks[0]),
        later=bands.weights[: near.start], records=state.records,
        reach=lambda: hits.reach(None), weighted=state.params.max_weight > 1,
        strata=Strata(bands.keys, len(state.strata), fading.now, hits),
    )  # fmt: skip


def _everything(state: StrataState, bands: StrataBands, fading: Fading) -> Sample:
    """Return all rows with weight 1 each, for any decay and query time."""
    ones, rows = np.ones(len(state)), bands.rows
    return Sample(
        params=state.params, decay=fading.decay, now=fading.now,
        observed=Observed(
            state.value_keys[rows], state.times[rows], state.ids[rows], bands.levels, bands.hits
        ),
        weights=bands.weights, decayed=ones, masses=ones, variances=ones, jumps=ones,
        exact_rows=bands.exact, known_rows=bands.exact, step=0.0, thinning=1.0,
        collision_bias=0.0, records=state.records,
    )  # fmt: skip
