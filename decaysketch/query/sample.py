"""The weighted sample that every query reads: retained observations, each with its mass.

A mass estimates an observation's decayed weight: decay times RangeSample over the level's
probability. RangeSample is how many of its integers the level selects. Sums over masses estimate
decayed sums. An estimator chooses the levels and how they are joined
(:mod:`~decaysketch.querytime.stratified`, :mod:`~decaysketch.querytime.cohen_strauss`, and the
integral sketch's estimators). Queries see only a :class:`Sample`. Variances come with the
masses. See ``docs/estimators.md``.

Long after the newest observation, decay weights are below the float64 range, and their squares well
before them. So weights are divided by a power of two, one for a sample (:class:`Fading`). Ratios
use the divided weights, and sums are multiplied again.

Several samples from one stream under independent hashes make one: :func:`pool`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from decaysketch.core.distinct import Distinct
from decaysketch.core.labels import Labels, values_of
from decaysketch.core.observations import TIME_LIMIT, check_time
from decaysketch.core.ranges import are_ranges, decoded
from decaysketch.core.records import Records
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.decay.functions import check_decay
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query.strata import Strata
from decaysketch.query.unseen_rows import Reach

__all__ = [
    "CROWDED",
    "FAINT",
    "Aged",
    "Change",
    "Columns",
    "Cumulative",
    "EndOfRange",
    "Fading",
    "HitsWithin",
    "Observed",
    "Origin",
    "PerObservation",
    "Ranking",
    "Redraw",
    "Sample",
    "Values",
    "changed",
    "check_answerable",
    "masses_by",
    "pool",
    "read",
    "values_among",
]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Column = TypeVar("Column", bound=npt.NDArray[Any])

#: Expected share of collisions, n / 2^(id_bits + 1), of ids that fill a quarter of their space.
CROWDED = 0.125

FAINT = 2.0**-160  # relative to a weight of 1

_FEW_OF = 16  # of so many rows, one is read by itself


# ------------------------------------------------------------------------- input of the estimators


class Timed(Protocol):
    """Rows by time, latest first, as the state of every sampling family stores them."""

    @property
    def times(self) -> Int64Array: ...


class Held(Timed, Protocol):
    """The stored and discarded parts of a state, as far as estimators need them."""

    @property
    def params(self) -> Any:
        """Parameters. Estimators read the ``time_unit``."""

    @property
    def watermarks(self) -> Int64Array: ...


class Valued(Protocol):
    """Parameters, as far as a sample reads them."""

    @property
    def value_type(self) -> str:
        """Type of the values."""


class _Values(NamedTuple):
    """Parameters for values that a query computes."""

    value_type: str


class Fading(NamedTuple):
    """Decay weights at a time, over a power of two."""

    decay: Decay
    now: int
    reference: int  # the age whose weight is near 1, where weights are that small or large
    magnitude: int  # binary logarithm of their common divisor, usually 0

    @classmethod
    def of(cls, decay: Decay, now: int, newest: int) -> Fading:
        """Scale the weights so that a time not later than ``now`` has a weight near 1."""
        reference = now - newest
        return cls(decay, now, reference, decay.magnitude(reference))

    def __call__(self, times: Int64Array) -> Float64Array:
        """Return weights for times, latest first, none later than the reference."""
        ages: npt.NDArray[Any] = np.int64(self.now) - times
        if ages.size and ages[-1] < 0:  # an age of 2^63 has wrapped around
            ages = ages.view(np.uint64)
        return self.decay.scaled(ages, self.reference) if self.magnitude else self.decay(ages)

    def at(self, times: Int64Array) -> Float64Array:
        """Return the same for times in any order. O(n), unless an age reaches 2^63."""
        if self.now == TIME_LIMIT and len(times) > 1 and int(times.min()) == -TIME_LIMIT:
            order = np.argsort(-times, kind="stable")
            weights = np.empty(len(times))
            weights[order] = self(times[order])
            return weights
        return self(times)


def check_answerable(
    state: Held, decay: Decay | None, now: int, newest: int | None = None
) -> Fading:
    """Return a query's decay weights, if the state can answer it.

    Args:
        state: the state. Its times and watermarks are read.
        decay: weight by age.
        now: query time.
        newest: the time whose weight is to be near 1. Default: the newest possible time of anything
            counted, stored or not.

    Raises:
        ParameterError: ``now`` is no time, or ``decay`` no decay.
        UnanswerableQueryError: observations that the decay gives weight to were discarded at every
            level.
    """
    decay = check_decay(decay)
    now = check_time("now", now)
    fading = Fading.of(decay, now, _newest(state, now) if newest is None else newest)
    coarsest = int(state.watermarks[-1])
    if coarsest != NO_WATERMARK:
        coarsest = min(coarsest, now)
        if fading(np.array([coarsest]))[0] > 0:
            raise UnanswerableQueryError(
                f"at time {now}, {decay!r} gives weight to observations of time {coarsest}, but "
                f"those up to time {coarsest} ({state.params.time_unit}) were discarded at every "
                "level"
            )
    return fading


def _newest(state: Held, now: int) -> int:
    """Return the newest time, up to ``now``, at which an observation is stored or may be
    missing.
    """
    discarded = int(state.watermarks.max())
    if discarded >= now:
        return now
    times = state.times
    row = len(times) - int(times[::-1].searchsorted(now, side="right"))
    known = [int(times[row])] if row < len(times) else []
    known += [discarded] if discarded != NO_WATERMARK else []
    return max(known, default=now)


class Aged(NamedTuple):
    """The state rows that a decay gives weight to, and these weights ``g(now - t)``."""

    rows: slice
    decayed: Float64Array

    @classmethod
    def of(cls, state: Timed, fading: Fading) -> Aged:
        """Return a state's rows at a time. O(n).

        Raises:
            ParameterError: weights that are not finite, negative, or rising with the age.
        """
        decay = fading.decay
        start, stop = reach(state, fading)
        decayed = fading(state.times[start:stop])
        if len(decayed) and not 0.0 <= decayed[-1] <= decayed[0] < np.inf:
            raise ParameterError(
                f"{decay!r} gives weights from {decayed[0]} to {decayed[-1]} as ages rise; "
                "expected finite numbers >= 0 that do not rise"
            )
        if len(decayed) and not decayed[-1] > 0:  # as where an exponential underflows
            positive = np.flatnonzero(decayed > 0)
            stop = start + (int(positive[-1]) + 1 if len(positive) else 0)
            decayed = decayed[: stop - start]
        return cls(slice(start, stop), decayed)


def reach(state: Timed, fading: Fading) -> tuple[int, int]:
    """Return the first of a state's rows that may have weight, and one past the last. O(log n)."""
    decay, now = fading.decay, fading.now
    ascending = state.times[::-1]
    newest = now - fading.reference  # newest time that counts
    stop = len(ascending)
    start = stop - int(ascending.searchsorted(newest, side="right"))
    if decay.support < 2.0 * TIME_LIMIT:  # rows older than this have no weight
        oldest = max(now - int(decay.support), -TIME_LIMIT)
        stop = max(start, stop - int(ascending.searchsorted(oldest, side="left")))
    return start, stop


# --------------------------------------------------------------------------------------- the sample

#: Rows of a state: a run of them, or their numbers.
Run: TypeAlias = "slice | npt.NDArray[np.intp]"


def masses_by(group: npt.NDArray[np.intp], masses: Float64Array, size: int) -> Float64Array:
    """Return mass sums by group number, in row order."""
    return np.bincount(group, masses, size).astype(np.float64, copy=False)  # integers where empty


def read(column: Column, runs: Sequence[Run]) -> Column:
    """Return column runs, one after the other. A single run is the column itself, without a
    copy.
    """
    if len(runs) == 1:
        return cast(Column, column[runs[0]])
    return cast(Column, np.concatenate([column[run] for run in runs]))


class Columns(NamedTuple):
    """Columns for all rows in a sample, or for its rows that have a value. See :class:`Sample`."""

    weights: Int64Array
    decayed: Float64Array
    masses: Float64Array
    variances: Float64Array
    jumps: Float64Array  # mass of a single hit, g / p
    exact: int  # the masses of this many first rows are known
    whole: int  # and of these so many first ones are all that there were of their times

    @property
    def counted(self) -> Columns:
        """The same rows, each with weight 1. Their masses estimate decayed counts."""
        w = self.weights.astype(np.float64)
        return self._replace(
            weights=np.ones_like(self.weights), masses=self.masses / w,
            variances=self.variances / (w * w), jumps=self.jumps / w,
        )  # fmt: skip

    def take(self, rows: npt.NDArray[np.bool_]) -> Columns:
        """Return some of the rows."""
        return Columns(
            self.weights[rows], self.decayed[rows], self.masses[rows], self.variances[rows],
            self.jumps[rows], int(np.count_nonzero(rows[: self.exact])),
            int(np.count_nonzero(rows[: self.whole])),
        )  # fmt: skip


EndOfRange: TypeAlias = Literal["low", "middle", "high"]


class Values:
    """A column of value keys, decoded and sorted at the first request.

    A state's column serves every sample from the state, under any decay and at any time. Sorting it
    takes O(n + m log m) for m distinct values. Finding the order of a sample in it takes O(n).

    Args:
        keys: int64[n], see :mod:`decaysketch.core.observations`.
        value_type: value type of the stream.
        labels: the labels of the keys, if values are labels.
        bound: the number that represents a range: its middle, lower or upper bound.
        named: returns another number column of the same rows, by name. None: there is none.
    """

    def __init__(
        self, keys: Int64Array, value_type: str, labels: Labels | None = None,
        bound: EndOfRange = "middle", named: Callable[[str], Values] | None = None,
    ) -> None:  # fmt: skip
        self._keys, self._value_type, self._labels = keys, value_type, labels
        self._bound = bound
        self.named = named

    def _are_few(self, runs: Sequence[Run]) -> bool:
        """Whether it costs less to read these rows than to prepare all for later queries."""
        rows = sum(len(range(len(self._keys))[r]) if isinstance(r, slice) else len(r) for r in runs)
        return rows * _FEW_OF < len(self._keys)

    def read(self, runs: Sequence[Run]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return the values of row runs, 0 where missing, and where they are missing."""
        if self._are_few(runs) and "decoded" not in self.__dict__:
            return self._values(self.keys(runs))
        values, missing = (read(column, runs) for column in self.decoded)
        return values, missing

    def keys(self, runs: Sequence[Run]) -> Int64Array:
        """Return the value keys of row runs."""
        return read(self._keys, runs)

    @property
    def value_type(self) -> str:
        """Value type of the column."""
        return self._value_type

    @cached_property
    def ranged(self) -> npt.NDArray[np.bool_] | None:
        """bool[n], true for values that are ranges. None if there are none."""
        if self._value_type != "float64" or not len(self._keys):
            return None
        found = are_ranges(self._keys)
        return found if found.any() else None

    def at(self, bound: EndOfRange) -> Values:
        """Return the same column with other numbers for ranges. O(1)."""
        if self.ranged is None or bound == self._bound:
            return self
        return Values(self._keys, self._value_type, bound=bound)

    def _values(self, keys: Int64Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        values, missing = values_of(keys, self._value_type, self._labels)
        if self._bound != "middle":
            ranged = are_ranges(keys)
            found = decoded(keys[ranged])
            values[ranged] = found.lows if self._bound == "low" else found.highs
        return values, missing

    @cached_property
    def decoded(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Values, 0 where missing, and where they are missing. Read-only."""
        values, missing = self._values(self._keys)
        values.setflags(write=False)
        missing.setflags(write=False)
        return values, missing

    @cached_property
    def _order(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        """Return the distinct values in key order, which is their own order, and the value number
        for each row. Only the distinct values are sorted.
        """
        keys = Distinct()
        numbers = keys.number(self._keys)
        found = keys.distinct[: keys.count]
        order = np.argsort(found)
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        values, _ = self._values(found[order])
        if self.ranged is not None:  # keys of ranges have no order, and their numbers may be equal
            values, same = np.unique(values, return_inverse=True)
            place = same[place]
        return values, place[numbers]

    def distinct(
        self, runs: Sequence[Run], valued: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        """Return the rising distinct values in row runs, without missing ones, and the value number
        for each row that has one. As ``np.unique(..., return_inverse=True)``.
        """
        if self._are_few(runs) and "_order" not in self.__dict__:
            keys = self.keys(runs)[valued]
            return Values(keys, self._value_type, self._labels, self._bound).distinct(
                [slice(None)], np.ones(len(keys), np.bool_)
            )
        distinct, number = self._order
        group = read(number, runs)
        if not valued.all():
            group = group[valued]
        present = np.zeros(len(distinct), dtype=np.bool_)
        present[group] = True
        if present.all():
            return distinct, group
        return distinct[present], (np.cumsum(present) - 1)[group]


class Unnamed(Values):
    """The values for rows with columns, as long as no column is named."""

    def __init__(self, records: Records, named: Callable[[str], Values]) -> None:
        self._records, self.named = records, named

    @cached_property
    def ranged(self) -> None:
        return None

    def read(self, runs: Sequence[Run]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        return self.decoded

    @cached_property
    def decoded(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        raise ParameterError(
            "this aggregate is computed from a column, and the stream has several; name one with "
            f"of: {', '.join(f'{name} ({kind})' for name, kind in self._records.types)}"
        )

    def distinct(
        self, runs: Sequence[Run], valued: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        raise AssertionError(self.decoded)  # the text names the missing part


def values_among(
    keys: Int64Array, value_type: str, labels: Labels | None, records: Records | None
) -> Values:
    """Return row values: their keys, or if rows have columns the only number column.

    Args:
        keys: int64[n], value keys, or row numbers in ``records``.
        value_type, labels: type and labels in the stream.
        records: the columns.
    """
    if records is None:
        return Values(keys, value_type, labels)
    numbers = [name for name, kind in records.types if kind in ("float64", "int64")]
    known: dict[str, Values] = {}

    def named(name: str) -> Values:
        if name not in known:
            column, kind = records.column(name).keys[keys], dict(records.types)[name]
            known[name] = Values(column, kind, named=named)
        return known[name]

    return named(numbers[0]) if len(numbers) == 1 else Unnamed(records, named)


class Ranking(NamedTuple):
    """Masses by distinct value, values rising, without rows that have no value."""

    values: npt.NDArray[Any]
    group: npt.NDArray[np.intp]  # of each valued row, the number of its value
    exact: Float64Array  # exact mass of each value
    sampled: Float64Array
    variance: Float64Array  # of the sampled mass


Entry = TypeVar("Entry", bound=np.generic)
Lazy: TypeAlias = "npt.NDArray[Entry] | Callable[[], npt.NDArray[Entry]]"


class Origin(NamedTuple):
    """The origin of sample rows: runs of state rows, in some order."""

    values: Values
    runs: Sequence[Run]

    def take(self, rows: npt.NDArray[np.intp]) -> Origin:
        """Return the origin of some rows."""
        first = self.runs[0]
        if isinstance(first, slice) and first.start is None:  # every row
            return Origin(self.values, [rows])
        parts = [np.arange(r.start, r.stop) if isinstance(r, slice) else r for r in self.runs]
        return Origin(self.values, [np.concatenate(parts)[rows]])


class Observed:
    """The identity of each sample row, and where it was read. Most queries read one or two columns.

    Args:
        value_keys, times, ids, levels, hits: see :class:`Sample`. A column may be a function that
            returns it. It is called once, when the column is read.
    """

    __slots__ = ("_columns",)

    def __init__(
        self,
        value_keys: Lazy[np.int64],
        times: Lazy[np.int64],
        ids: Lazy[np.int64],
        levels: Lazy[np.int8],
        hits: Lazy[np.int64],
    ) -> None:
        self._columns: dict[str, Lazy[Any]] = {
            "value_keys": value_keys, "times": times, "ids": ids, "levels": levels, "hits": hits,
        }  # fmt: skip

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column by its name."""
        found = self._columns[name]
        if callable(found):
            found = self._columns[name] = found()
        return found

    def changed(self, change: Callable[[str], Callable[[], npt.NDArray[Any]]]) -> Observed:
        """Return other columns, each from a function for its name."""
        return Observed(**{name: change(name) for name in self._columns})

    def take(self, rows: npt.NDArray[np.intp]) -> Observed:
        """Return the identity of some rows."""
        return self.changed(lambda name: lambda: self.column(name)[rows])

    def valued(self, value_keys: Lazy[np.int64]) -> Observed:
        """Return the same rows with other values."""
        return Observed(**self._columns | {"value_keys": value_keys})


HitsWithin: TypeAlias = "Callable[[Int64Array, Int64Array], tuple[Float64Array, Float64Array]]"


class PerObservation(NamedTuple):
    """The largest hits of one observation, in a sketch that also has a sample by count.

    Attributes:
        step, thinning, hits_within, reach: as in :class:`Sample`, for weights of 1.
    """

    step: float
    thinning: float
    hits_within: HitsWithin | None
    reach: Callable[[], Reach]

    def times(self, by: float) -> PerObservation:
        """Return the same hits, each times a factor."""
        return self._replace(step=self.step * by, hits_within=_scaled(self.hits_within, by))

    def within(self, first: int | None, last: int | None) -> PerObservation:
        """Return the largest hits in the times ``first..last``. None: no bound."""
        step, thinning, reach = self.step, self.thinning, self.reach
        if self.hits_within is not None and step > 0.0:
            step, thinning = _within(self.hits_within, first, last)
        return PerObservation(step, thinning, self.hits_within, lambda: reach().within(first, last))


Change: TypeAlias = "Callable[[Sample], Sample]"
"""A sample made of another, by a rule that any sample of the same sketch can be given to."""


@dataclass(frozen=True, eq=False)
class Redraw:
    """How to draw a sample again, scaled for another time.

    Attributes:
        newest: returns the newest row time up to the query time, on request only among rows with a
            value. None if there is no such row.
        later: returns the rows later than the query, exact ones first.
        draw: returns the sample with weights scaled for a time.
        changed: returns the same functions for samples that a rule changes.
    """

    newest: Callable[[bool], int | None]
    later: Callable[[], Sample]
    draw: Callable[[int], Sample]
    changed: Callable[[Change], Redraw]

    @classmethod
    def of(cls, everything: Callable[[], Sample], draw: Callable[[int], Sample]) -> Redraw:
        """Return it for one state.

        Args:
            everything: all rows in the state, under any decay. First come, as exact rows, the
                rows that are complete at their times.
            draw: returns the sample with weights scaled for a time.
        """

        def newest(valued: bool) -> int | None:
            sample = everything()
            counted = sample.times <= sample.now
            if valued:
                counted &= ~sample.missing
            return int(sample.times[counted].max()) if counted.any() else None

        def later() -> Sample:
            sample = everything()
            return _masked(sample, sample.times > sample.now, None, None)

        def changed(change: Change) -> Redraw:
            return cls.of(lambda: change(everything()), lambda time: draw(time).apply(change))

        return cls(newest, later, draw, changed)

    @classmethod
    def of_all(cls, redraws: Sequence[Redraw]) -> Redraw:
        """Return it for a sample pool."""

        def newest(valued: bool) -> int | None:
            times = [redraw.newest(valued) for redraw in redraws]
            return max((time for time in times if time is not None), default=None)

        return cls(
            newest,
            redraws[0].later,
            lambda time: pool([redraw.draw(time) for redraw in redraws]),
            lambda change: cls.of_all([redraw.changed(change) for redraw in redraws]),
        )


class Cumulative(NamedTuple):
    """Cumulative masses: entry k is the mass of the k smallest distinct values, k = 0, 1, ..."""

    mass: Float64Array
    exact: Float64Array
    sampled: Float64Array
    variance: Float64Array


@dataclass(frozen=True, eq=False, repr=False)
class Sample:
    """Observations with masses. Sums over the masses estimate decayed sums.

    Columns have one entry for each retained observation that the decay gives weight to (for each
    observation and band, if an estimator reads an observation at several levels). Exact entries
    come first. In a stratified sample, other entries with known masses follow. Everything decayed
    is over ``2^magnitude``.

    Attributes:
        params: parameters of the sketch.
        decay, now: decay and time of the query.
        weights: int64[n], as they were fed.
        decayed: float64[n], decayed share of the weight: ``decayed * weights`` was really seen.
        masses: float64[n], estimated decayed weights.
        variances: float64[n], unbiased variance estimates for the masses. 0 where exact.
        jumps: float64[n], mass of a single hit.
        observed: identity of these observations: ``value_keys``, ``times``, ``ids``, ``levels`` and
            ``hits``.
        exact_rows: number of first entries that are exact: their masses are the decayed weights,
            and there were no others at their times.
        known_rows: number of first entries that are known not to vary, ``exact_rows`` or more.
        step: the mass that one more hit may add, over all sampled bands that the decay reaches,
            with or without rows. 0 if it reaches none.
        thinning: ``1 - p / 2`` of that band.
        collision_bias: see :class:`~decaysketch.query.estimate.Estimate`.
        origin: the position of the rows in their state, if they are runs of its rows.
        magnitude: binary logarithm of the divisor of decay weights. See :class:`Fading`.
        redraw: how to scale them otherwise, if the estimator offers that.
        later: int64[m], weights of observations later than ``now``, from times that are complete.
            Like exact rows, they show which weights exist. None if unknown.
        complete_after: everything later than this, as far as it counts, is among the exact entries.
            By default nothing is promised.
        labels: labels of the values, if these are labels.
        records: the columns, if the stream has columns. Value keys are row numbers in them.
        hits_within: returns ``step`` and ``thinning`` over the sampled bands that meet time ranges,
            given their first and last times, int64[k]. None if the estimator does not offer that.
        noted: caveats of every result that come from how the sample was changed.
        reach: the sampled bands that the decay reaches. None if the estimator has none.
        whole: for a restricted sample, returns the complete one, where few rows borrow the tail of
            their column. None for any other sample.
        weighted: whether observations may have other weights than 1. True if unknown.
        strata: the strata of the stream, each with bands of its own. None if there are none.
        bound: the number that represents a value that is a range.
        per_observation: the largest hits of sums over observations, if the sketch has a sample by
            count in addition. None: they follow from ``step`` and the weights.
    """

    params: Valued
    decay: object
    now: int
    observed: Observed
    weights: Int64Array
    decayed: Float64Array
    masses: Float64Array
    variances: Float64Array
    jumps: Float64Array
    exact_rows: int
    known_rows: int
    step: float
    thinning: float
    collision_bias: float
    origin: Origin | None = None
    magnitude: int = 0
    redraw: Redraw | None = None
    later: Int64Array | None = None
    complete_after: int = TIME_LIMIT
    labels: Labels | None = None
    records: Records | None = None
    hits_within: HitsWithin | None = None
    noted: tuple[str, ...] = ()
    reach: Callable[[], Reach] | None = None
    whole: Callable[[], Sample] | None = None
    weighted: bool = True
    bound: EndOfRange = "middle"
    per_observation: PerObservation | None = None

    @cached_property
    def counted(self) -> Sample:
        """The sample to read for sums over observations, such as counts and totals of values.

        With a sample by count, weights are 1 and no hit adds more than one observation of that
        sample. Otherwise it is the sample itself.
        """
        return self if self.per_observation is None else self.apply(_counted)

    strata: Strata | None = None

    @property
    def exact(self) -> bool:
        """No sampled band is reached: masses are the decayed weights themselves."""
        return not self.step > 0

    @property
    def verified(self) -> Literal["proof", "grid"]:
        """How the falling decay was verified: by proof, or on a grid of ages."""
        return "grid" if getattr(self.decay, "verified", None) == "grid" else "proof"

    @cached_property
    def caveats(self) -> tuple[str, ...]:
        """The caveats that every result has. See :data:`~decaysketch.query.estimate.CAVEATS`."""
        crowded = not self.exact and self.collision_bias > CROWDED
        grid = self.verified == "grid"
        return ("crowded-ids",) * crowded + ("decay-on-grid",) * grid + self.noted

    def __len__(self) -> int:
        return len(self.masses)

    def __repr__(self) -> str:
        kind = "exact" if self.exact else f"{self.exact_rows} of them exact"
        return f"Sample({len(self)} rows, {kind}, {self.decay!r}, now={self.now})"

    @property
    def value_keys(self) -> Int64Array:
        """int64[n], see :mod:`decaysketch.core.observations`."""
        return self.observed.column("value_keys")

    @property
    def times(self) -> Int64Array:
        """int64[n], as they were fed."""
        return self.observed.column("times")

    @property
    def ids(self) -> Int64Array:
        """int64[n], as they were fed."""
        return self.observed.column("ids")

    @property
    def levels(self) -> npt.NDArray[np.int8]:
        """int8[n], the lowest level that was read. Level 0 selects everything."""
        return self.observed.column("levels")

    @property
    def hits(self) -> Int64Array:
        """int64[n], selected integers at that level (RS)."""
        return self.observed.column("hits")

    @cached_property
    def _certain_first(self) -> tuple[npt.NDArray[np.intp], int] | None:
        """Return a row order with fixed masses first, and how many they are. None if these are the
        first ``known_rows``, or nothing was sampled.
        """
        if self.exact or self.variances[self.known_rows :].min(initial=1.0) > 0.0:
            return None
        certain = self.variances == 0.0
        certain[: self.known_rows] = True
        count = int(np.count_nonzero(certain))
        return np.concatenate([np.flatnonzero(certain), np.flatnonzero(~certain)]), count

    @cached_property
    def columns(self) -> Columns:
        """All rows, with known masses first."""
        columns = Columns(
            self.weights, self.decayed, self.masses, self.variances, self.jumps,
            self.known_rows, self.exact_rows,
        )  # fmt: skip
        if self._certain_first is None:
            return columns
        order, count = self._certain_first
        return Columns(
            self.weights[order], self.decayed[order], self.masses[order], self.variances[order],
            self.jumps[order], count, self.exact_rows,
        )  # fmt: skip

    @cached_property
    def _source(self) -> Origin:
        source = self.origin
        if source is None:
            kind = self.params.value_type
            values = values_among(self.value_keys, kind, self.labels, self.records)
            source = Origin(values, [slice(None)])
        return source._replace(values=source.values.at(self.bound))

    @cached_property
    def ranged(self) -> bool:
        """Whether a row's value is a range, and counts as its middle."""
        if self.bound != "middle":
            return False
        ranged = self._source.values.ranged
        return ranged is not None and bool(read(ranged, self._source.runs).any())

    def at_bound(self, bound: EndOfRange) -> Sample:
        """Return the same sample with every range at its lower or its upper bound."""
        return self.apply(lambda sample: replace(sample, bound=bound))

    @cached_property
    def _decoded(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        return self._source.values.read(self._source.runs)

    @property
    def values(self) -> npt.NDArray[Any]:
        """Values, int64 or float64, labels as objects. 0, or empty, where missing."""
        return self._decoded[0]

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where there is no value."""
        return self._decoded[1]

    @cached_property
    def valued(self) -> tuple[npt.NDArray[Any], Columns]:
        """Values for the rows that have one, and the columns next to them. As in ``columns``, known
        masses come first.
        """
        values, missing = self._decoded
        if self._certain_first is not None:
            order, _ = self._certain_first
            values, missing = values[order], missing[order]
        if not missing.any():
            return values, self.columns
        return values[~missing], self.columns.take(~missing)

    def beside(self, column: Column, *, valued: bool) -> Column:
        """Return a sample column in ``columns`` order or, for the rows that have a value, in
        ``valued`` order.
        """
        missing = self.missing if valued else None
        if self._certain_first is not None:
            order, _ = self._certain_first
            column = cast(Column, column[order])
            missing = None if missing is None else missing[order]
        if missing is None or not missing.any():
            return column
        return cast(Column, column[~missing])

    @cached_property
    def ranking(self) -> Ranking:
        """Masses by distinct value, computed once for a sample. O(n + m log m) for m distinct
        values, or O(n) if the value order of its state is known.
        """
        _, columns = self.valued
        distinct, group = self._source.values.distinct(self._source.runs, ~self.missing)
        if self._certain_first is not None:
            numbers = np.empty(len(self), dtype=np.intp)
            numbers[~self.missing] = group
            order, _ = self._certain_first
            group = numbers[order][~self.missing[order]]
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
        """Masses up to each distinct value."""
        ranking = self.ranking
        exact, sampled, variance = (
            np.concatenate([[0.0], np.cumsum(column)])
            for column in (ranking.exact, ranking.sampled, ranking.variance)
        )
        return Cumulative(exact + sampled, exact, sampled, variance)

    @property
    def of_values(self) -> Sample:
        """Return the same sample, scaled for the newest row with a value, if that is so much older
        than the newest row that its squared weights would be lost.
        """
        return self if self._redrawn is None else self._redrawn

    @cached_property
    def _redrawn(self) -> Sample | None:
        # None for the sample itself: one that held itself would keep its columns until a collection
        # of garbage, and the next query would write on fresh pages, which costs more than it does.
        if self.redraw is None or self._has_weighty_value():
            return None
        found = _drawn_again([self], valued=True)
        return None if found is None else found[0]

    def _has_weighty_value(self) -> bool:
        if len(self):
            first = int(self.missing.argmin())  # a row with a value, where there is one
            if self.decayed[first] >= FAINT and not self.missing[first]:
                return True  # as nearly always
        return bool(np.max(self.decayed, initial=0.0, where=~self.missing) >= FAINT)

    def rescaled(self, magnitude: int) -> Sample:
        """Return the same sample over another power of two."""
        by = self.magnitude - magnitude
        if not by:
            return self
        return replace(
            self,
            magnitude=magnitude,
            decayed=np.ldexp(self.decayed, by),
            masses=np.ldexp(self.masses, by),
            variances=np.ldexp(self.variances, 2 * by),
            jumps=np.ldexp(self.jumps, by),
            step=float(np.ldexp(self.step, by)),
            hits_within=_scaled(self.hits_within, float(np.ldexp(1.0, by))),
            per_observation=self._hits_times(float(np.ldexp(1.0, by))),
        )

    def _hits_times(self, by: float) -> PerObservation | None:
        return None if self.per_observation is None else self.per_observation.times(by)

    def only(
        self,
        rows: npt.NDArray[np.bool_] | Callable[[Sample], npt.NDArray[np.bool_]],
        *,
        first: int | None = None,
        last: int | None = None,
        strata: npt.NDArray[np.bool_] | None = None,
    ) -> Sample:
        """Return the rows in a mask, as a sample of the stream's observations that the mask
        selects.

        ``step`` stays as it is. The mask may select an observation that was not retained, so a
        count without rows has an upper bound. If the mask selects only the times ``first..last``,
        only the sampled bands that meet them count for it. If none does, the result is exact.

        Args:
            rows: bool[n], or a function that returns it for a sample. A function is called again
                for the rows of a sample scaled for another time.
            first, last: the mask selects no row, and could select none, at another time.
            strata: nor in another stratum than these: bool[strata]. None: in any.

        Raises:
            ParameterError: the mask has another shape or type.

        Complexity: O(n), plus the function.
        """
        if callable(rows):
            rule = rows
            return changed(
                [self], lambda sample: _masked(sample, rule(sample), first, last, strata)
            )[0]
        return replace(_masked(self, rows, first, last, strata), redraw=None, later=None)

    def valued_by(
        self, value_keys: Int64Array, value_type: str, labels: Labels | None = None
    ) -> Sample:
        """Return the same rows with other values.

        Args:
            value_keys: int64[n], keys of the values. See :mod:`decaysketch.core.observations`.
            value_type: their type.
            labels: their labels, if they are labels.
        """
        observed = self.observed.valued(value_keys)
        return replace(
            self, params=_Values(value_type), observed=observed, origin=None, labels=labels,
            records=None,
        )  # fmt: skip

    def valued_by_column(self, name: str) -> Sample:
        """Return the same rows with the values of a number column, decoded and sorted once for all
        samples of a state.
        """
        source = self._source
        assert source.values.named is not None, "of a stream with columns"
        values = source.values.named(name)
        return replace(
            self, params=_Values(values.value_type), labels=None, records=None,
            origin=Origin(values, source.runs),
            observed=self.observed.valued(lambda: values.keys(source.runs)),
        )  # fmt: skip

    def weighed(self, factor: Float64Array, step: float, thinning: float) -> Sample:
        """Return the same rows, each with its mass times a factor.

        Args:
            factor: float64[n], at least 0.
            step, thinning: attributes of the result.
        """
        # Hits per observation grow at most with the largest factor.
        most = float(factor.max(initial=0.0)) if len(factor) else 1.0
        return replace(
            self,
            per_observation=self._hits_times(most),
            decayed=self.decayed * factor,
            masses=self.masses * factor,
            variances=self.variances * (factor * factor),
            jumps=self.jumps * factor,
            step=step,
            thinning=thinning,
            hits_within=None,
            strata=None,
        )

    def apply(self, change: Change) -> Sample:
        """Return the sample as a rule changes it. :func:`changed` also scales it for its rows."""
        found = change(self)
        if self.redraw is None:
            return replace(found, redraw=None, later=None)
        redraw = self.redraw.changed(change)
        later = self.later
        if later is not None and len(later):
            rows = redraw.later()
            later = rows.weights[: rows.exact_rows]
        return replace(found, redraw=redraw, later=later)


def changed(samples: Sequence[Sample], change: Change) -> list[Sample]:
    """Return the samples for one query, one per hash function, as a rule changes them.

    If the remaining rows are so old that their squared weights would be lost, all samples are drawn
    again, scaled for the newest remaining row.
    """
    found = [sample.apply(change) for sample in samples]
    if any(float(np.max(sample.decayed, initial=0.0)) >= FAINT for sample in found):
        return found
    again = _drawn_again(found, valued=False)
    return found if again is None else again


def _drawn_again(samples: Sequence[Sample], *, valued: bool) -> list[Sample] | None:
    """Return samples scaled for their newest row. Return None if there is none, or if an
    observation that may be missing is so much newer that it weighs more than all rows together.
    """
    redraws = [sample.redraw for sample in samples if sample.redraw is not None]
    times = [redraw.newest(valued) for redraw in redraws]
    newest = max((time for time in times if time is not None), default=None)
    if newest is None or len(redraws) < len(samples):
        return None
    again = [redraw.draw(newest) for redraw in redraws]
    if not any(map(len, again)) or max(sample.step for sample in again) > 1.0 / FAINT:
        return None
    return again


def _scaled(hits_within: HitsWithin | None, by: float) -> HitsWithin | None:
    if hits_within is None:
        return None
    base = hits_within

    def scaled(first: Int64Array, last: Int64Array) -> tuple[Float64Array, Float64Array]:
        steps, thinning = base(first, last)
        return steps * by, thinning

    return scaled


def _masked(
    sample: Sample, rows: npt.NDArray[np.bool_], first: int | None, last: int | None,
    active: npt.NDArray[np.bool_] | None = None,
) -> Sample:  # fmt: skip
    """See :meth:`Sample.only`."""
    mask = np.asarray(rows)
    if mask.shape != (len(sample),) or mask.dtype != np.bool_:
        raise ParameterError(
            f"rows is {mask.dtype} of shape {mask.shape}; expected a truth value for each of "
            f"{len(sample)} rows"
        )
    index = np.flatnonzero(mask)
    exact, known = index.searchsorted([sample.exact_rows, sample.known_rows]).tolist()
    step, thinning, per = sample.step, sample.thinning, sample.per_observation
    strata, reach, hits_within = sample.strata, sample.reach, sample.hits_within
    if strata is not None and step > 0.0:
        strata = strata.restricted(first, last, active)
        step, thinning = strata.largest()
        hits_within, of_strata = strata.hits.within(strata.active), strata
        reach = lambda: of_strata.hits.reach(of_strata.active)  # noqa: E731
    elif (first is not None or last is not None) and hits_within is not None and step > 0.0:
        step, thinning = _within(hits_within, first, last)
    if sample.step > 0.0 and not step > 0.0:  # no sampled band meets these times, or strata
        exact = known = len(index)
    columns = ("weights", "decayed", "masses", "variances", "jumps")
    taken: dict[str, Any] = {name: getattr(sample, name)[index] for name in columns}
    return replace(
        sample,
        **taken,
        observed=sample.observed.take(index),
        origin=None if sample.origin is None else sample.origin.take(index),
        exact_rows=exact,
        known_rows=known,
        step=step,
        thinning=thinning,
        hits_within=hits_within,
        strata=strata,
        reach=None if reach is None else lambda: reach().within(first, last),
        per_observation=None if per is None else per.within(first, last),
    )


def _within(hits_within: HitsWithin, first: int | None, last: int | None) -> tuple[float, float]:
    ends = (-TIME_LIMIT if first is None else first, TIME_LIMIT if last is None else last)
    steps, thinnings = hits_within(*(np.array([end]) for end in ends))
    return float(steps[0]), float(thinnings[0])


def _counted(sample: Sample) -> Sample:
    """See :attr:`Sample.counted`."""
    found = sample.per_observation
    if found is None:
        return sample
    w = sample.weights.astype(np.float64)
    return replace(
        sample,
        weights=np.ones_like(sample.weights),
        masses=sample.masses / w,
        variances=sample.variances / (w * w),
        jumps=sample.jumps / w,
        step=found.step,
        thinning=found.thinning,
        hits_within=found.hits_within,
        reach=found.reach,
        weighted=False,
        per_observation=None,
        whole=None if sample.whole is None else _counted_whole(sample.whole),
    )


def _counted_whole(whole: Callable[[], Sample]) -> Callable[[], Sample]:
    return lambda: whole().counted


def pool(samples: Sequence[Sample]) -> Sample:
    """Pool several samples from the same stream under independent hashes: their average.

    Exact rows are exact in each sample, and the same, so they enter once. Sampled masses count 1 /
    k each. Sums over the result therefore average the sums over the samples, with a k-th of the
    variance.

    Args:
        samples: with one decay, at one time, with equal exact rows, at least one.
    """
    k = len(samples)
    if k == 1:
        return samples[0]
    magnitude = max(sample.magnitude for sample in samples)
    samples = [sample.rescaled(magnitude) for sample in samples]
    first = samples[0]
    exact = first.exact_rows

    def joined(name: str, scale: float = 1.0) -> Any:
        parts = [getattr(sample, name)[sample.exact_rows :] for sample in samples]
        sampled = np.concatenate(parts)
        return np.concatenate(
            [getattr(first, name)[:exact], sampled * scale if scale < 1 else sampled]
        )

    largest = max(samples, key=lambda sample: sample.step)
    reaches = [sample.reach for sample in samples if sample.reach is not None]
    redraws = [sample.redraw for sample in samples if sample.redraw is not None]
    return Sample(
        params=first.params,
        decay=first.decay,
        now=first.now,
        observed=first.observed.changed(lambda name: lambda: joined(name)),
        weights=joined("weights"),
        decayed=joined("decayed", 1.0 / k),
        masses=joined("masses", 1.0 / k),
        variances=joined("variances", 1.0 / (k * k)),
        jumps=joined("jumps", 1.0 / k),
        exact_rows=exact,
        known_rows=exact,
        step=largest.step / k,
        thinning=largest.thinning,
        collision_bias=first.collision_bias,
        magnitude=magnitude,
        redraw=Redraw.of_all(redraws) if len(redraws) == k else None,
        hits_within=_largest_within(samples),
        noted=first.noted,
        whole=None if first.whole is None else lambda: pool(_wholes(samples)),
        later=first.later,
        complete_after=min(sample.complete_after for sample in samples),
        labels=first.labels,
        records=first.records,
        weighted=first.weighted,
        bound=first.bound,
        reach=(lambda: Reach.pooled([reach() for reach in reaches])) if len(reaches) == k else None,
    )


def _wholes(samples: Sequence[Sample]) -> list[Sample]:
    return [sample if sample.whole is None else sample.whole() for sample in samples]


def _largest_within(samples: Sequence[Sample]) -> HitsWithin | None:
    """Return the largest hits of any sample in a pool."""
    given = [sample.hits_within for sample in samples]
    each = [within for within in given if within is not None]
    if len(each) < len(given):
        return None

    def largest(first: Int64Array, last: Int64Array) -> tuple[Float64Array, Float64Array]:
        found = [within(first, last) for within in each]
        steps = np.array([steps for steps, _ in found])
        thinning = np.array([thinning for _, thinning in found])
        place = steps.argmax(axis=0), np.arange(len(first))
        return steps[place] / len(each), thinning[place]

    return largest
