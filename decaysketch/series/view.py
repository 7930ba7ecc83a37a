"""Queries to a sample of series under one decay and at one time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT
from decaysketch.decay import Decay
from decaysketch.decay.area import area, integral
from decaysketch.errors import ParameterError
from decaysketch.query.aggregates import Predicate, span_of
from decaysketch.query.cluster_relations import TwoColumns
from decaysketch.query.clusters import FEW, Clusters, Reach, over_entities, scaled_down
from decaysketch.query.estimate import Estimate
from decaysketch.query.series import SeriesView
from decaysketch.query.series_groups import SeriesTable
from decaysketch.series.joins import as_of, check_joinable
from decaysketch.series.pieces import FAR, Increases, Pieces, after
from decaysketch.series.restarts import LARGEST_SHARE
from decaysketch.series.state import SeriesState

__all__ = ["FEW", "PieceView"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_SHARE = (0.0, 1.0)
_HUGE_EXPONENT = 200  # from which the cube of a value times a length may overflow
_ALL_BUT = 0.01  # of the weight of a decay, beyond its reach
_SEGMENTS = 128  # of the history, among which the reach is found
_DRAW_S = 2e-5  # processor seconds, measured
_READ_S = 4e-4
_ROW_S = 2e-7
_JOINED_ROW_S = 6e-7


@dataclass(frozen=True, slots=True, eq=False)
class PieceView(SeriesView):
    """Pieces under one decay. Immutable, any thread may read it.

    Attributes:
        state: the retained rows.
        pieces: the same rows with their successors.
        decay, asked: decay and time in the query.
    """

    state: SeriesState
    pieces: Pieces
    decay: Decay
    asked: int

    @property
    def now(self) -> int:
        return self.asked

    @property
    def verified(self) -> Literal["proof", "grid"]:
        return "grid" if getattr(self.decay, "verified", None) == "grid" else "proof"

    @property
    def drawn_s(self) -> float:
        return _DRAW_S

    @property
    def read_s(self) -> float:
        return _READ_S + _ROW_S * len(self.state)

    def joined_s(self, rows: int) -> float:
        return _READ_S + _JOINED_ROW_S * (len(self.state) + rows)

    # ---------------------------------------------------------------------------- parts of series

    @property
    def attributes(self) -> Sequence[str]:
        return self.state.params.attributes

    @property
    def time_unit(self) -> str:
        return self.state.params.time_unit

    @property
    def entities(self) -> int:
        return self.pieces.count

    @property
    def least_probability(self) -> float:
        return self._reach(0.0).probability

    def series_table(self) -> SeriesTable:
        assert self.state.attributes is not None
        return SeriesTable(self.state.attributes, self.asked)

    def of_series(self, chosen: BoolArray) -> PieceView:
        state = self.state.of_series(chosen)
        return replace(self, state=state, pieces=Pieces(state))

    # ------------------------------------------------------------------------------- selected rows

    @property
    def _past(self) -> BoolArray:
        """Rows that are not later than the query."""
        found: BoolArray = self.pieces.times <= self.asked
        return found

    @property
    def _closed(self) -> BoolArray:
        """Rows whose successor is not later than the query."""
        found: BoolArray = ~self.pieces.last & (self.pieces.nexts <= self.asked)
        return found

    def _ages(self, times: Int64Array) -> Float64Array:
        """Ages at the query, at most 2^63. No time is later than it."""
        return (np.int64(self.asked) - times).view(np.uint64).astype(np.float64)

    def _nearest(self, times: Int64Array) -> int:
        """Age at the latest time. Weights are relative to the weight at that age, so old ones do
        not vanish."""
        if not len(times):
            return 0
        return max(self.asked - int(times.max()), 0)

    def _weights(self, times: Int64Array) -> Float64Array:
        """Weights at times up to the query, relative to the latest."""
        found = self.decay.scaled(self._ages(times), self._nearest(times))
        return np.asarray(found, np.float64)

    def _covered(self, begins: Int64Array, ends: Int64Array, nearest: int) -> Float64Array:
        """Integral of the decay from one time to another, up to the query, relative to the weight
        at an age."""
        begins, ends = np.minimum(begins, self.asked), np.minimum(ends, self.asked)
        young, old = self._ages(ends), self._ages(begins)
        return integral(self.decay, young, np.maximum(old, young), nearest)

    def _reach(self, back: float) -> Reach:
        """Reach of a query that looks so long behind the decay."""
        pieces = self.pieces
        lost = pieces.count / 2.0 ** (self.state.params.id_bits + 1)
        band = self._reach_band(back)
        if band is None:
            return Reach(True, 1.0, pieces.count, lost)
        least = float(pieces.weights.min(initial=1.0))
        complete = int(np.count_nonzero(pieces.levels >= band))
        return Reach(False, min(1.0, math.ldexp(least, -band)), complete, lost)

    def _reach_band(self, back: float) -> int | None:
        """The band from which entities are complete there. None if nothing was discarded."""
        pieces = self.pieces
        if pieces.complete_since(self.asked - self.decay.support - back):
            return None
        since = self._nearly_all - (back if math.isfinite(back) else 0.0)
        time = np.array([max(int(max(since, -float(TIME_LIMIT))), -TIME_LIMIT)], np.int64)
        return int(pieces.bands(time)[0])

    def _complete(self, back: float) -> Int64Array:
        """Ids for entities that are complete there."""
        return self.pieces.ids[self.pieces.levels >= (self._reach_band(back) or 0)]

    def _joint_reach(self, other: PieceView, back: float) -> Reach:
        """Reach for a join."""
        ours, theirs = self._reach(back), other._reach(back)
        ids, others = self._complete(back), other._complete(back)
        first = np.diff(ids, prepend=-1) != 0  # an id with several weights is there several times
        both = first & (np.searchsorted(others, ids, "right") > np.searchsorted(others, ids))
        return Reach(
            ours.exact and theirs.exact, min(ours.probability, theirs.probability),
            int(np.count_nonzero(both)), max(ours.lost, theirs.lost),
        )  # fmt: skip

    @property
    def _nearly_all(self) -> float:
        """The time before which the decay has 1 % of its weight, within the retained times.

        If every entity has lost rows, nothing shows when the stream began. Then the times before
        the oldest row count as well, and no entity is complete there.
        """
        times = self.pieces.times
        oldest = float(self.asked - int(times.min(initial=self.asked)))
        span = max(min(oldest, self.decay.support), 1.0)
        edges = np.append(0.0, np.geomspace(min(1.0, span / 2.0), span, _SEGMENTS))
        mass = np.cumsum(integral(self.decay, edges[:-1], edges[1:]))
        if not self.pieces.shows_beginning and mass[-1] < (1.0 - _ALL_BUT) * area(self.decay):
            return -float(TIME_LIMIT)
        place = int(np.searchsorted(mass, (1.0 - _ALL_BUT) * mass[-1]))
        return self.asked - float(edges[min(place + 1, _SEGMENTS)])

    def _clusters(self, rows: Any, since: Int64Array, back: float) -> tuple[BoolArray, Clusters]:
        """The rows to read among some, and their clusters. Each needs its entity from a time on."""
        pieces = self.pieces
        bands = pieces.bands(since)
        read = pieces.levels[pieces.entity[rows]] >= bands
        chosen = rows[read]
        found = Clusters(
            pieces.entity[chosen], bands[read], pieces.of_band(chosen, bands[read]),
            self._reach(back),
        )  # fmt: skip
        return read, found

    def _total(
        self,
        rows: Any,
        since: Int64Array,
        amounts: Float64Array,
        nearest: int,
        *,
        confidence: float,
        back: float = math.inf,
        unit: float = math.inf,
    ) -> Estimate:
        """Sum amounts that are relative to the weight at an age.

        Args:
            rows, amounts: row and amount per piece.
            since: time from which a piece needs its entity.
            nearest: the age.
            confidence: for the interval.
            back: how long before the decay's reach that time may be.
            unit: the largest possible amount of a piece.
        """
        read, clusters = self._clusters(rows, since, back)
        found = clusters.total(amounts[read], confidence=confidence, unit=unit)
        return found.over(self.decay.magnitude(nearest))

    def _ratio(
        self,
        rows: Any,
        amounts: Float64Array,
        masses: Float64Array,
        confidence: float,
        bounds: tuple[float, float] = (-math.inf, math.inf),
        back: float = 0.0,
    ) -> Estimate:
        read, clusters = self._clusters(rows, self.pieces.times[rows], back)
        return clusters.ratio(amounts[read], masses[read], confidence=confidence, bounds=bounds)

    # ----------------------------------------------------------------------------------- counters

    def increase(self, *, wrap: float | None, guard: float | None, confidence: float) -> Estimate:
        counted, rows, amounts, nearest = self._counted(wrap, guard)
        since = counted.begins[rows] - counted.back
        lowered, magnitude = scaled_down(amounts, _HUGE_EXPONENT)
        found = self._total(counted.rows[rows], since, lowered, nearest, confidence=confidence)
        return self._with_restarts(found.over(magnitude), counted, amounts, nearest)

    def _with_restarts(
        self, found: Estimate, counted: Increases, amounts: Float64Array, nearest: int
    ) -> Estimate:
        """Return the estimate, with a caveat if the guard may hide much of the increase."""
        past = counted.hidden_at <= self.asked
        weights = self.decay.scaled(self._ages(counted.hidden_at[past]), nearest)
        both, _ = scaled_down(np.concatenate([counted.hidden[past], amounts]), _HUGE_EXPONENT)
        hidden, shown = both[: len(weights)] @ weights, both[len(weights) :].sum()
        if float(hidden) <= LARGEST_SHARE * float(shown):
            return found
        return replace(found, caveats=(*found.caveats, "hidden-restarts"))

    def increase_rate(
        self, *, wrap: float | None, guard: float | None, confidence: float
    ) -> Estimate:
        length = span_of(self.decay)
        found = self.increase(wrap=wrap, guard=guard, confidence=confidence)
        names = ("value", "lower", "upper", "stderr")
        return replace(found, **{name: getattr(found, name) / length for name in names})

    def _counted(
        self, wrap: float | None, guard: float | None
    ) -> tuple[Increases, npt.NDArray[np.intp], Float64Array, int]:
        """Increases, the indexes of those that began by now, their weighted amounts, and the age
        that these are relative to. A counter counts as if it had risen evenly, so windows add
        up."""
        guarded = self.pieces.guard(None if guard is None else int(guard))
        counted = self.pieces.increases(guarded, wrap)
        rows = np.flatnonzero((counted.begins <= self.asked) & (counted.amounts > 0.0))
        begins, ends = counted.begins[rows], counted.ends[rows]
        nearest = self._nearest(ends)
        length = (ends - begins).view(np.uint64).astype(np.float64)
        share = self._covered(begins, ends, nearest) / np.where(length > 0.0, length, 1.0)
        at_once = length <= 0.0
        share[at_once] = self.decay.scaled(self._ages(ends[at_once]), nearest)
        return counted, rows, counted.amounts[rows] * share, nearest

    # ------------------------------------------------------------------------- gauges and states

    def time_average(self, validity: float | None, *, linear: bool, confidence: float) -> Estimate:
        rows, masses, _ = self._valid(validity)
        values, magnitude = scaled_down(self.pieces.values, _HUGE_EXPONENT)
        held = self._middles(rows, values, validity) if linear else values[rows]
        found = self._ratio(rows, held * masses, masses, confidence, back=_length(validity))
        return found.over(magnitude)

    def _valid(self, validity: float | None) -> tuple[npt.NDArray[np.intp], Float64Array, int]:
        """Rows with a value, their valid time, and the age that it is relative to."""
        pieces = self.pieces
        rows = np.flatnonzero(self._past & ~pieces.missing)
        ends = pieces.nexts[rows]
        if validity is not None:
            ends = np.minimum(ends, after(pieces.times[rows], validity))
        nearest = self._nearest(ends)
        return rows, self._covered(pieces.times[rows], ends, nearest), nearest

    def _middles(
        self, rows: npt.NDArray[np.intp], values: Float64Array, validity: float | None
    ) -> Float64Array:
        """Between a value and the next one, where that comes while it is valid."""
        pieces = self.pieces
        after = np.minimum(rows + 1, max(len(pieces.times) - 1, 0))
        joined = self._closed[rows] & ~pieces.missing[after]
        if validity is not None:
            joined &= pieces.lengths[rows] <= validity
        return np.where(joined, 0.5 * (values[rows] + values[after]), values[rows])

    def time_in_state(
        self, predicate: Predicate, *, validity: float | None, confidence: float
    ) -> Estimate:
        rows, masses, _ = self._valid(validity)
        inside = self._holds(predicate, rows)
        return self._ratio(
            rows, np.where(inside, masses, 0.0), masses, confidence, _SHARE, _length(validity)
        )

    def state_time(
        self, predicate: Predicate, *, validity: float | None, confidence: float
    ) -> Estimate:
        rows, masses, nearest = self._valid(validity)
        amounts = np.where(self._holds(predicate, rows), masses, 0.0)
        return self._total(
            rows, self.pieces.times[rows], amounts, nearest, confidence=confidence,
            back=_length(validity),
        )  # fmt: skip

    def _holds(self, predicate: Predicate, rows: npt.NDArray[np.intp]) -> BoolArray:
        values = self.pieces.values[rows]
        weights = self.state.weights[rows]
        for column in (values, weights):
            column.setflags(write=False)
        inside = np.asarray(predicate(values, weights))
        if inside.shape != values.shape or inside.dtype != np.bool_:
            raise ParameterError(
                f"predicate gave {inside.dtype} of shape {inside.shape}; "
                f"expected a truth value for each of {len(values)} rows"
            )
        return inside

    def transitions(self, *, validity: float | None, confidence: float) -> Estimate:
        pieces = self.pieces
        rows = np.flatnonzero(self._closed & ~pieces.missing)
        rows = rows[~pieces.missing[rows + 1]]
        changed = self.state.value_keys[rows] != self.state.value_keys[rows + 1]
        if validity is not None:
            changed &= pieces.lengths[rows] <= validity
        rows = rows[changed]
        return self._ended(rows, confidence)

    def _ended(self, rows: npt.NDArray[np.intp], confidence: float) -> Estimate:
        """Number of pieces by the weight at their end. They may begin long before it."""
        ends = self.pieces.nexts[rows]
        return self._total(
            rows, self.pieces.times[rows], self._weights(ends), self._nearest(ends),
            confidence=confidence, unit=1.0,
        )  # fmt: skip

    def gaps(self, longer_than: float, *, confidence: float) -> Estimate:
        pieces = self.pieces
        rows = np.flatnonzero(self._closed)
        rows = rows[pieces.lengths[rows] > longer_than]
        return self._ended(rows, confidence)

    def availability(self, validity: float, *, forget: float | None, confidence: float) -> Estimate:
        pieces = self.pieces
        rows = np.flatnonzero(self._past)
        times, ends = pieces.times[rows], pieces.nexts[rows]
        valid = np.minimum(ends, after(times, validity))
        if forget is not None:
            ends = np.minimum(ends, after(times, max(forget, validity)))
        nearest = self._nearest(ends)
        covered = np.where(pieces.missing[rows], 0.0, self._covered(times, valid, nearest))
        lived = self._covered(times, ends, nearest)
        back = math.inf if forget is None else max(forget, validity)
        return self._ratio(rows, covered, lived, confidence, _SHARE, back)

    def interval_quantile(self, q: float, *, confidence: float) -> Estimate:
        pieces = self.pieces
        rows = np.flatnonzero(self._closed)
        lengths = pieces.lengths[rows].astype(np.float64)
        masses = self._weights(pieces.nexts[rows])
        read, clusters = self._clusters(rows, pieces.times[rows], math.inf)
        return clusters.quantile(lengths[read], masses[read], q, confidence=confidence)

    # -------------------------------------------------------------------------------------- joins

    def time_correlation(
        self, other: Any, *, validity: float | None, confidence: float
    ) -> Estimate:
        return self._joint(other, validity).correlation(confidence)

    def time_covariance(self, other: Any, *, validity: float | None, confidence: float) -> Estimate:
        return self._joint(other, validity).covariance(confidence)

    def time_slope(self, other: Any, *, validity: float | None, confidence: float) -> Estimate:
        return self._joint(other, validity).slope(confidence)

    def _joint(self, other: Any, validity: float | None) -> TwoColumns:
        """Values that this stream and another have at the same time, by their valid time."""
        theirs = other.at(self.decay, self.asked) if hasattr(other, "at") else other
        if not isinstance(theirs, PieceView):
            raise ParameterError(
                f"other is {other!r:.80}; expected a sketch of the family 'series', or its view"
            )
        check_joinable(self.state.params, theirs.state.params)
        found = as_of(self.pieces, theirs.pieces, self.asked, validity)
        masses = self._covered(found.begins, found.ends, self._nearest(found.ends))
        seen = masses > 0.0
        bands = found.bands[seen]
        reach = self._joint_reach(theirs, _length(validity))
        clusters = Clusters(found.entities[seen], bands, np.ldexp(1.0, -bands), reach)
        return TwoColumns.of(clusters, found.x[seen], found.y[seen], masses[seen])

    # ----------------------------------------------------------------------------------- sessions

    def sessions(self, gap: float, *, confidence: float) -> Estimate:
        rows, _ = self._sessions(gap)
        return self._begun(rows, confidence, gap)

    def _begun(self, rows: npt.NDArray[np.intp], confidence: float, back: float = 0.0) -> Estimate:
        """Number of rows, by their weight."""
        times = self.pieces.times[rows]
        return self._total(
            rows, self.pieces.before(int(back))[rows], self._weights(times), self._nearest(times),
            confidence=confidence, back=back, unit=1.0,
        )  # fmt: skip

    def session_length(self, gap: float, *, q: float | None, confidence: float) -> Estimate:
        rows, lengths = self._sessions(gap)
        masses = self._weights(self.pieces.times[rows])
        since = self.pieces.before(int(gap))[rows]
        read, clusters = self._clusters(rows, since, gap)
        lengths, masses = lengths[read], masses[read]
        if q is None:
            bounds = (0.0, math.inf)
            return clusters.ratio(lengths * masses, masses, confidence=confidence, bounds=bounds)
        return clusters.quantile(lengths, masses, q, confidence=confidence)

    def _sessions(self, gap: float) -> tuple[npt.NDArray[np.intp], Float64Array]:
        """Rows that begin a session, and its length. Its rows are all retained."""
        pieces = self.pieces
        rows = np.flatnonzero(self._past & (pieces.silences > gap))
        if not len(rows):
            return rows, np.zeros(0)
        ends = np.where(self._past, pieces.times, -FAR)
        latest = np.maximum.reduceat(ends, rows)
        return rows, (latest - pieces.times[rows]).view(np.uint64).astype(np.float64)

    # ------------------------------------------------------------------------------------- series

    def _latest(self) -> npt.NDArray[np.intp]:
        """The latest row of each series."""
        return np.flatnonzero(self._past & ~self._closed)

    def series_count(self, *, confidence: float) -> Estimate:
        rows = self._latest()
        return self._begun(rows, confidence)

    def silent_series(self, silence: float, *, confidence: float) -> Estimate:
        rows = self._latest()
        rows = rows[self._ages(self.pieces.times[rows]) > silence]
        return self._begun(rows, confidence)

    def average_quantile(self, q: float, *, validity: float | None, confidence: float) -> Estimate:
        rows, masses, _ = self._valid(validity)
        values, magnitude = scaled_down(self.pieces.values, _HUGE_EXPONENT)
        found = self._over_series(
            q, rows, values[rows] * masses, masses, _length(validity), confidence
        )
        return found.over(magnitude)

    def increase_quantile(
        self, q: float, *, wrap: float | None, guard: float | None, confidence: float
    ) -> Estimate:
        counted, rows, amounts, nearest = self._counted(wrap, guard)
        lowered, magnitude = scaled_down(amounts, _HUGE_EXPONENT)
        found = self._over_series(
            q, counted.rows[rows], lowered, None, float(counted.back), confidence
        )
        return self._with_restarts(found.over(magnitude), counted, amounts, nearest)

    def _over_series(
        self,
        q: float,
        rows: npt.NDArray[np.intp],
        amounts: Float64Array,
        masses: Float64Array | None,
        back: float,
        confidence: float,
    ) -> Estimate:
        """Quantile over series. The value is the amount, over the mass if there is one."""
        if not math.isfinite(self.decay.support):
            raise ParameterError(f"decay is {self.decay!r}; a quantile over series needs a window")
        pieces, since = self.pieces, self.asked - self.decay.support
        since -= back if math.isfinite(back) else 0.0
        begin = np.array([max(int(since), -TIME_LIMIT)], np.int64)
        band = pieces.bands(begin)
        read = pieces.levels[pieces.entity[rows]] >= band[0]
        series = np.cumsum(self.state.begins)[rows][read]
        number, firsts, of = np.unique(series, return_index=True, return_inverse=True)
        values: Float64Array = np.bincount(of, amounts[read], len(number)).astype(np.float64)
        p = pieces.of_band(rows[read][firsts], np.repeat(band, len(number)))
        if masses is not None:
            held = np.bincount(of, masses[read], len(number))
            values, p = (values / np.where(held > 0.0, held, 1.0))[held > 0.0], p[held > 0.0]
        reach = self._reach(back)
        return over_entities(values, float(p.min(initial=1.0)), q, reach, confidence=confidence)


def _length(validity: float | None) -> float:
    return math.inf if validity is None else validity
