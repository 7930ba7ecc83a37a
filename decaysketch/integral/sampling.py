"""Weighted samples of an integral sketch: by one level, as in the paper, or stratified.

At the time ``now`` an observation with time ``t`` has weight ``f(w, now - t)``: this many of its
integers are left. Consider the integers that level ``i`` selects among those left at its watermark
``t_i``. All of them are known, since their observations expire at that level later than ``t_i``.

**Level** (algorithms 6 and 7 of Cormode, Tirthapura and Xu). Take the lowest level ``l`` with
``t_l <= now``. An observation's mass is RS over ``p_l``, where RS counts its remaining integers
that the level selects.

**Stratified** (default). Watermarks above ``l`` lie after ``now``, but the integers that are left
then are left now as well. So an observation's integers fall into strata: those left at ``t_0``,
which level 0 knows completely, those left at ``t_1`` and not at ``t_0``, and so on down to those
left at ``now``. Stratum ``i`` is counted at level ``i``, over ``p_i``, the largest probability with
which it is known in full. Level ``l`` alone counts every stratum at ``p_l``. Both are unbiased for
the same reason, and the strata vary less. An entry of the sample is an observation in a stratum.

Watermarks are adaptive: a level's watermark depends on the same hash values that are counted above
it. Under ideal hashing the count over the probability is a martingale over the levels. The levels
below alone decide which level counts a stratum, so estimates stay unbiased. Under the pairwise
independence that theorem 3.11 assumes this is no theorem.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.observations import check_time
from decaysketch.core.params import SketchParams
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.integral import _native
from decaysketch.integral.state import NO_CLOCK, IntegralState
from decaysketch.integral.tables import integral_plan
from decaysketch.query.hash_variance import hit_spread, weighed
from decaysketch.query.sample import Observed, Sample

__all__ = ["Estimator", "draw"]

Int64Array = npt.NDArray[np.int64]

Estimator = Literal["stratified", "level"]

_NEVER = np.int64((1 << 63) - 1)  # later than every clock


def draw(state: IntegralState, now: int, estimator: Estimator = "stratified") -> Sample:
    """Draw the sample of a state at a time.

    Args:
        state: the sketch's state.
        now: time of the query, not before the clock. Later observations are not counted.
        estimator: "stratified", or "level" as in the paper.

    Raises:
        ParameterError: ``now`` is not a time, or the estimator is unknown.
        UnanswerableQueryError: a time before the clock, or one at which no level is complete.

    Complexity: O(strata n log max_weight).
    """
    if estimator not in get_args(Estimator):
        raise ParameterError(
            f"estimator is {estimator!r}; expected one of {', '.join(get_args(Estimator))}"
        )
    now = _answerable(state, now)
    params, marks = state.params, state.watermarks
    lowest = int(np.argmax(marks <= now))
    if estimator == "level":
        strata = [(lowest, now)]
    else:  # where a watermark equals the one before, no integer expires between them
        ends = np.maximum(marks[: lowest + 1], now)
        before = np.concatenate([[_NEVER], ends[:-1]])
        falls = np.flatnonzero(ends < before)
        strata = [(level, int(ends[level])) for level in falls.tolist()]

    start = len(state) - int(np.searchsorted(state.times[::-1], now, side="right"))
    parts = _Strata(state, start)
    for level, until in strata:
        parts.add(level, until)
    coarsest = strata[-1][0]
    probability = float(params.level_probabilities[coarsest])
    return parts.sample(
        now,
        as_printed=estimator == "level",
        step=1.0 / probability if coarsest else 0.0,
        thinning=1.0 - 0.5 * probability if coarsest else 1.0,
    )


def _answerable(state: IntegralState, now: int) -> int:
    now = check_time("now", now)
    unit = state.params.time_unit
    if state.clock != NO_CLOCK and now < state.clock:
        raise UnanswerableQueryError(
            f"now is {now}, the clock is at {state.clock} ({unit}): rows that expired by then are "
            "dropped"
        )
    if int(state.watermarks[-1]) > now:
        raise UnanswerableQueryError(
            f"at time {now}, observations that expire as late as {int(state.watermarks[-1])} "
            f"({unit}) were discarded at every level"
        )
    return now


class _Strata:
    """Sample entries, gathered stratum by stratum."""

    def __init__(self, state: IntegralState, start: int) -> None:
        self.state = state
        self.start = start  # rows before it are later than the query
        n = len(state) - start
        self.seen = np.zeros(n, dtype=np.int64)  # integers of each row in the strata so far
        self.scratch = [np.empty(n + 1, dtype=np.int64) for _ in range(3)]
        self.rows: list[Int64Array] = []
        self.levels: list[int] = []
        self.lengths: list[Int64Array] = []  # integers of an entry's range
        self.hits: list[Int64Array] = []  # rows that the level selects

    def add(self, level: int, until: int) -> None:
        """Add the stratum with the integers left at a time, counted at a level."""
        state = self.state
        found = _native.stratum(
            integral_plan(state.params, state.decay).decay, state.weights[self.start :],
            state.times[self.start :], until, self.seen, *self.scratch,
        )  # fmt: skip
        rows, lows, highs = (column[:found].copy() for column in self.scratch)
        rows += self.start
        lengths = highs - lows
        if level == 0:
            hits = lengths
        else:
            ids = state.ids[rows]
            hits = _selected(state.params, ids, highs, level)
            later = np.flatnonzero(lows)
            hits[later] -= _selected(state.params, ids[later], lows[later], level)
            seen = np.flatnonzero(hits)
            rows, lengths, hits = rows[seen], lengths[seen], hits[seen]
        self.rows.append(rows)
        self.levels.append(level)
        self.lengths.append(lengths)
        self.hits.append(hits)

    def sample(self, now: int, *, as_printed: bool, step: float, thinning: float) -> Sample:
        """Return the sample of all added strata. ``as_printed``: every mass is ``RS / p``."""
        state = self.state
        probabilities = state.params.level_probabilities
        sizes = [len(rows) for rows in self.rows]
        rows, hits = np.concatenate(self.rows), np.concatenate(self.hits)
        jumps = np.repeat(1.0 / probabilities[self.levels], sizes)
        masses, variances = hits * jumps, np.zeros(len(hits))
        ends = np.cumsum(sizes)
        for level, lengths, last in zip(self.levels, self.lengths, ends.tolist(), strict=True):
            if not level:
                continue
            part = slice(last - len(lengths), last)
            if as_printed:
                variances[part] = hit_spread(state.params, level, lengths, hits[part])
            else:
                masses[part], variances[part], jumps[part] = weighed(
                    state.params, level, lengths, hits[part]
                )
        weights = state.weights[rows]
        left = self.seen[rows - self.start]  # f(w, now - t)
        observations = float(np.sum(masses / left))
        exact_rows = sizes[0] if self.levels[0] == 0 else 0
        return Sample(
            params=state.params,
            decay=state.decay,
            now=now,
            observed=Observed(
                value_keys=state.value_keys[rows],
                times=state.times[rows],
                ids=state.ids[rows],
                levels=np.repeat(np.array(self.levels, dtype=np.int8), sizes),
                hits=hits,
            ),
            weights=weights,
            decayed=np.concatenate(self.lengths) / weights,
            masses=masses,
            variances=variances,
            jumps=jumps,
            exact_rows=exact_rows,
            known_rows=exact_rows,
            step=step,
            thinning=thinning,
            collision_bias=observations / 2.0 ** (state.params.id_bits + 1),
            labels=state.labels,
            weighted=state.params.max_weight > 1,
        )


def _selected(params: SketchParams, ids: Int64Array, lengths: Int64Array, level: int) -> Int64Array:
    """Count how many of each id's first ``lengths`` integers a level selects (RangeSample)."""
    return minhit.range_samples(params, ids, lengths, level)
