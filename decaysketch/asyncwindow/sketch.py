"""SumSampler and MedianSampler: sums, counts and quantiles over any recent window of a stream.

Contents
    Each level 0..M keeps the most recent ``capacity`` elements among those that the level's coins
    select, each element once. See ``state.py`` for the definition.
Guarantees
    You choose a window of width w <= W when you query. The probability is below ``delta`` that a
    sum is off by more than ``epsilon`` of itself, or a quantile's rank by more than ``epsilon`` of
    the elements (Theorems 1 and 2, with the capacities of ``params.py`` and the estimator
    "single-level"). A window with at most ``capacity`` elements gives exact results (Lemmas 4 and
    14), as long as no elements are later than the window. Elements arrive in any order, however
    late within W. Every result has an interval.
    The state, and its bytes, are a function of the parameters, the set of accepted elements and the
    clock: samplers merge without loss (Lemma 23), in any tree.
Duplicates
    Elements with explicit sequence numbers are recognised: adding one again, anywhere, changes
    nothing. The sampler numbers elements without them on arrival. It then counts every row that it
    receives, and is *not* duplicate-insensitive.
Paper
    Xu, Tirthapura and Busch, "Sketching asynchronous data streams over sliding windows". Departures
    are described in the modules that make them: storage and ties in ``state.py``, coins in
    ``coins.py``, capacities in ``params.py``, estimates in ``estimators.py``.
Limits
    A sampler is not safe to use from two threads at once.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow import coins, estimators, selection, wire
from decaysketch.asyncwindow.estimators import Estimator, Strata
from decaysketch.asyncwindow.params import MedianParams, SumParams
from decaysketch.asyncwindow.rows import RetainedElements
from decaysketch.asyncwindow.snapshot import WindowSnapshot
from decaysketch.asyncwindow.state import WindowState
from decaysketch.contract.sketch import ENOUGH, Pending, Sketch, Stats
from decaysketch.core.observations import (
    MISSING_KEY,
    TIME_LIMIT,
    check_integer_time,
    check_time,
    check_within,
    encode_values,
    integer_column,
)
from decaysketch.core.plausible_times import span, told
from decaysketch.core.row_check import TIMES, Identified, Limit, compare
from decaysketch.core.time_units import Instant, in_units
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.decay.read import decay_in
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.query.catalog import (
    Asked,
    AskedOfValues,
    AskedOfWeights,
    How,
    SampleView,
    View,
    questions_of,
)
from decaysketch.query.dispatch import check_how
from decaysketch.query.estimate import check_confidence
from decaysketch.query.sample import Sample
from decaysketch.query.shapes import Question

__all__ = ["MedianSampler", "Source", "SumSampler", "WindowStats"]

Source = str | int | bytes
P = TypeVar("P", SumParams, MedianParams)
A = TypeVar("A")
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_NAMES = (str, bytes, int)  # types of the name of a source
_WORDS_KEPT = 1024
_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStats(Stats):
    """Counts of accepted and stored rows; see :class:`~decaysketch.contract.sketch.Stats`.

    Attributes:
        late: accepted rows older than any window by the clock at their arrival.
        zero: accepted rows with value 0 in a sum, which contribute nothing.
        keys_with_several_values: stored keys with more than one value. In a sum each counts as
            several elements. In most streams a message has one value.
    """

    late: int
    zero: int
    keys_with_several_values: int


class Sampler(Asked, Sketch, Generic[P]):
    """Common parts of both samplers. Use :class:`SumSampler` or :class:`MedianSampler`."""

    snapshot_type = WindowSnapshot

    _params_type: ClassVar[type[Any]]
    _bags: tuple[RetainedElements]

    if TYPE_CHECKING:

        @property
        def params(self) -> P: ...

        def snapshot(self) -> WindowSnapshot: ...

    def __init__(self, params: P, *, source: Source | None = None, next_number: int = 0) -> None:
        """See the class.

        Raises:
            ParameterError: parameters of another kind, or an invalid number.
        """
        if not isinstance(params, self._params_type):
            raise ParameterError(
                f"params are {params!r}; a {type(self).__name__} takes {self._params_type.__name__}"
            )
        if isinstance(next_number, bool) or not isinstance(next_number, int) or next_number < 0:
            raise ParameterError(f"next_number is {next_number!r}; expected an integer >= 0")
        self._bags = (RetainedElements(params),)
        self._source = secrets.token_bytes(16) if source is None else source
        self._own_word = coins.source_words(params, self._source)
        self._own_word_number = int(self._own_word[0])
        self._words: dict[Source, UInt64Array] = {}  # of the sources seen lately
        self._next_number = next_number
        self._late = self._zero = 0
        self._highest = params.bound  # of a value, in a sum
        self._pending = Pending("qqQQ" if params.value_type == "int64" else "dqQQ")
        self._changed()

    def _empty(self) -> Self:
        return type(self)(self.params)

    @property
    def _rows(self) -> RetainedElements:
        return self._bags[0]

    @property
    def source(self) -> Source:
        """Source name for elements without sequence numbers."""
        return self._source

    @property
    def next_number(self) -> int:
        """Number for the next element that arrives without one."""
        return self._next_number

    def _changed(self) -> None:
        super()._changed()
        self._view: WindowState | None = None  # of the rows as they are, once asked for
        self._strata: Strata | None = None

    # ------------------------------------------------------------------------------------- update

    @abstractmethod
    def _is_plain(self, value: Any) -> bool:
        """Whether a single value has the stream's type and needs no conversion."""

    @abstractmethod
    def _value_keys(self, values: npt.ArrayLike) -> Int64Array:
        """Value keys of a column, validated."""

    def update(
        self,
        values: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        sequence: npt.ArrayLike | None = None,
        *,
        source: Any = None,
        not_after: Instant | None = None,
    ) -> None:
        """Add elements: columns, or one element as plain numbers.

        ``sequence`` and ``source`` together identify an element permanently. With them, any order
        and any repetition gives the same state, here or in a sampler that is merged with this one.
        Without them the sampler numbers the rows on arrival, under its own ``source``. It then
        counts every row that it receives, and is *not* duplicate-insensitive.

        Args:
            values: see the class.
            timestamps: integers in the stream's ``time_unit``, at most 2^62 in magnitude, in any
                order. Rows older than the largest window by the clock are discarded and counted.
            sequence: integers that number a source's elements.
            source: name of the source (integer, text or bytes), or a column of names.
            not_after: reject, and count, rows with a later timestamp. Otherwise rows from a clock
                that runs ahead would occupy places in the samples.

        Raises:
            ObservationError: the first row that is out of bounds, or columns with unequal lengths
                or a wrong type. Nothing in the batch was accepted.
            ParameterError: ``sequence`` without ``source`` or the other way round, or ``not_after``
                is not a time.

        Complexity: amortised O(1) per row.
        """
        if self.looks_at_times:
            self._look_at(timestamps)
        if (sequence is None) != (source is None):
            given, missing = ("sequence", "source") if source is None else ("source", "sequence")
            raise ParameterError(f"{given} without {missing}: give both or neither")
        if (
            type(timestamps) is int
            and -TIME_LIMIT <= timestamps <= TIME_LIMIT
            and not_after is None
            and (sequence is None or (type(sequence) is int and type(source) in _NAMES))
            and self._is_plain(values)
        ):
            if sequence is None:
                word, number = self._own_word_number, self._next_number
                self._next_number += 1
            else:
                word, number = int(self._word_of(source)[0]), sequence
            of_values, of_times, of_words, of_numbers = self._pending.arrays
            of_values.append(values)
            of_times.append(timestamps)
            of_words.append(word)
            of_numbers.append(number & _MASK)
            if len(of_times) >= ENOUGH:
                self._flush()
            return
        self._update_columns(values, timestamps, sequence, source, not_after)

    def _word_of(self, source: Source) -> UInt64Array:
        word = self._words.get(source)
        if word is None:
            if len(self._words) >= _WORDS_KEPT:
                self._words.clear()
            word = self._words[source] = coins.source_words(self.params, source)
        return word

    def _update_columns(
        self,
        values: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        sequence: npt.ArrayLike | None,
        source: Any,
        not_after: Instant | None,
    ) -> None:
        if not_after is None and self._admit_fast(values, timestamps, sequence, source):
            return
        if not_after is not None:
            not_after = check_integer_time(
                "not_after", in_units(not_after, self.params.time_unit, name="not_after")
            )
        times = integer_column("timestamps", timestamps)
        check_within("timestamps", times, TIMES)
        value_keys = self._value_keys(values)
        if sequence is None:
            words = self._own_word
            numbers = np.arange(len(times), dtype=np.uint64) + np.uint64(self._next_number & _MASK)
        else:
            words = coins.source_words(self.params, source)
            numbers = coins.sequence_numbers(sequence)
        unequal = {"values": len(value_keys), "sequence": len(numbers)}
        if len(words) != 1:
            unequal["source"] = len(words)
        for name, length in unequal.items():
            if length != len(times):
                raise ObservationError(
                    f"columns have unequal lengths: {name} has {length} rows, timestamps has "
                    f"{len(times)}",
                    column=name,
                )
        self._next_number += len(times) if sequence is None else 0
        self._fed += len(times)
        if not_after is not None:
            in_time = times <= not_after
            self._too_late += len(times) - int(np.count_nonzero(in_time))
            value_keys, times, numbers = value_keys[in_time], times[in_time], numbers[in_time]
            words = words if len(words) == 1 else words[in_time]
        taken = self._admit(value_keys, times, words, numbers)
        assert taken, "columns are validated above"

    def verdicts(
        self,
        values: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        sequence: npt.ArrayLike,
        *,
        source: Any,
    ) -> npt.NDArray[np.int8]:
        """Return the row status that :meth:`update` would give each of these named elements.
        Nothing changes.

        Returns:
            int8[n]: a :class:`~decaysketch.core.row_check.Verdict` per row. A row that no
            window reaches by the clock, or with value 0 in a sum, is below the watermark.

        Raises:
            ObservationError: as :meth:`update`.

        Complexity: that of merging a sampler of the batch.
        """
        before, merged = self.state(), self.copy()
        merged.update(values, timestamps, sequence, source=source)
        times = integer_column("timestamps", timestamps)
        keys = coins.element_keys(self.params, source, sequence).view(np.int64)
        batch = self._identified(keys, self._value_keys(values), times)
        old, new = (
            self._identified(state.keys.view(np.int64), state.value_keys, state.times)
            for state in (before, merged.state())
        )
        return compare(old, new, batch)

    def _identified(self, keys: Int64Array, values: Int64Array, times: Int64Array) -> Identified:
        """The value is part of the identity in a sum alone."""
        return Identified(keys, values if self.params.weighted else times * 0, times, values)

    def _admit_fast(self, values: Any, timestamps: Any, sequence: Any, source: Any) -> bool:
        """Accept arrays that need no conversion. Return False, with nothing accepted, for all
        others.
        """
        if not (
            type(values) is type(timestamps) is np.ndarray
            and values.dtype == self.params.value_type
            and timestamps.dtype == _INT64
            and timestamps.ndim == 1
            and values.shape == timestamps.shape
            and values.flags.c_contiguous
            and timestamps.flags.c_contiguous
        ):
            return False
        words = self._own_word
        if sequence is not None:
            if not (
                type(sequence) is np.ndarray
                and sequence.dtype in (_INT64, _UINT64)
                and sequence.shape == timestamps.shape
                and sequence.flags.c_contiguous
                and type(source) in _NAMES
            ):
                return False
            words = self._word_of(source)
        if not self._admit(values, timestamps, words, sequence):
            return False  # the slow path finds the row at fault
        self._next_number += len(timestamps) if sequence is None else 0
        self._fed += len(timestamps)
        return True

    def _admit(
        self,
        values: npt.NDArray[Any],
        times: Int64Array,
        words: UInt64Array,
        numbers: npt.NDArray[Any] | None,
    ) -> bool:
        """Accept columns. Return False, with nothing accepted, if a row is out of bounds."""
        if not len(times):
            return True
        counted = self._rows.admit(values, times, words, numbers, self._next_number & _MASK)
        if counted is None:
            return False
        self._zero += counted[0]
        self._late += counted[1]
        self._changed()
        return True

    def _fold(self, *columns: Any) -> None:
        taken = self._admit(*columns)
        assert taken, "single elements are validated when they are given"

    def advance(self, now: Instant) -> None:
        """Move the clock on, and drop everything that no window with width ``max_window`` can reach
        any more.

        An earlier time than the clock has no effect. Without ``max_window`` the clock is stored,
        and nothing is dropped. The clock is part of the state: the same elements at another clock
        are another state.

        Raises:
            ParameterError: ``now`` is not an integer time.
        """
        clock = check_time("now", in_units(now, self.params.time_unit))
        self._flush()
        self._rows.advance(clock)
        self._changed()

    # --------------------------------------------------------------------------- state and bytes

    def state(self) -> WindowState:
        """The canonical state. O(rows) after a change, else O(1)."""
        return self.snapshot().state

    def _freeze(self) -> WindowSnapshot:
        return WindowSnapshot(self._rows.state(), type(self).from_state)

    @classmethod
    def from_state(
        cls, state: WindowState, *, source: Source | None = None, next_number: int = 0
    ) -> Self:
        """Return a sampler with a given state.

        Args:
            state: a result of :meth:`state`.
            source, next_number: to continue numbering elements where another sampler stopped.
                Without them it numbers under a new random name, so that no two samplers give
                different elements one name.
        """
        sampler = cls(cast(P, state.params), source=source, next_number=next_number)
        sampler._bags = (RetainedElements.from_state(state),)
        sampler._snapshot = WindowSnapshot(state, cls.from_state)
        return sampler

    @classmethod
    def from_bytes(
        cls,
        blob: bytes | bytearray | memoryview,
        *,
        params: P | None = None,
        source: Source | None = None,
        next_number: int = 0,
    ) -> Self:
        """Read a sampler. Nothing in the bytes is trusted.

        Args:
            blob: bytes from :meth:`to_bytes`.
            params: the expected parameters, if known.
            source, next_number: see :meth:`from_state`.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sampler with other parameters than ``params``.
        """
        kind = cls._params_type.kind
        state = wire.decode(blob, kind=kind, params=params)
        return cls.from_state(state, source=source, next_number=next_number)

    def stats(self) -> WindowStats:
        state = self.state()
        return WindowStats(
            **self._counted(),
            late=self._late,
            zero=self._zero,
            keys_with_several_values=len(state) - len(np.unique(state.keys)),
        )

    def _summary(self) -> dict[str, Any]:
        params, view = self.params, self._current()
        fields: dict[str, Any] = {"rows": f"{len(view):,}", "capacity": f"{params.capacity:,}"}
        if len(view):
            oldest, newest = int(view.times[-1]), int(view.times[0])
            fields["times"] = span(params.time_unit, oldest, newest)
        if view.complete_since[0] != NO_WATERMARK:
            fields["exact after"] = told(params.time_unit, int(view.complete_since[0]))
        fields["levels"] = params.levels + 1
        fields["max_window"] = params.max_window
        fields["clock"] = told(params.time_unit, self.clock)
        fields["seed"] = params.seed
        return fields

    # -------------------------------------------------------------------------------------- query

    def _current(self) -> WindowState:
        """The stored elements, by time."""
        self._flush()
        if self._view is None:
            kept = self._snapshot
            self._view = self._rows.by_time() if kept is None else self.snapshot().state
        return self._view

    def sample(
        self,
        decay: Decay | str | None,
        *,
        now: Instant | None = None,
        estimator: Estimator = "stratified",
    ) -> Sample:
        """Return the weighted sample that every query reads. The state does not change.

        Args:
            decay: weight by age. ``decay.window(w)`` is the paper's window [now - w, now]. Its
                support may not exceed ``max_window``.
            now: time of the query, an integer or a moment (:func:`decaysketch.instant`), which may
                lie in the past. Later elements are not counted. None: the latest known time.
            estimator: "stratified" reads each element at the smallest level that is complete at its
                own time. "single-level" is SumQuery and MedianQuery, for windows. See
                :mod:`decaysketch.asyncwindow.estimators`.

        Raises:
            UnanswerableQueryError: the sampler has discarded, at every level, elements with weight
                under the decay.
            ParameterError: ``now`` is not an integer time, ``decay`` is not a decay or reaches too
                far back, or the estimator is unknown.
        """
        if estimator not in get_args(Estimator):
            raise ParameterError(
                f"estimator is {estimator!r}; expected one of {', '.join(get_args(Estimator))}"
            )
        view = self._current()
        given, time = self._asked(decay, now)
        if estimator == "single-level":
            return estimators.single_level(view, given, time)
        if self._strata is None:
            self._strata = estimators.strata_of(view)
        return estimators.stratified(view, given, time, strata=self._strata)

    def _asked(self, decay: Any, now: Any) -> tuple[Any, Any]:
        unit = self.params.time_unit
        now = self.snapshot().latest if now is None else in_units(now, unit)
        return decay_in(decay, unit), now

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        estimator: Estimator = "stratified",
    ) -> View:
        """Return a view for queries under a decay, at a time. Arguments and errors are as for
        :meth:`sample`.
        """
        return SampleView([self.sample(decay, now=now, estimator=estimator)])


class SumSampler(AskedOfWeights, Sampler[SumParams]):
    """Sums of positive integers over any recent window (SumInit, SumProcess, SumQuery, Union).

    Basic counting is the sum of ones: pass the value 1.

    Args:
        params: build parameters. Every sampler in one stream shares them (capacity may differ).
        source: source name for elements without sequence numbers, different for
            every sampler in a stream. Random if None.
        next_number: the number of the first such element. With the same ``source``, element n of a
            log that is read again gets the same coins.

    Values are integers 0..max_sum. 0 is a no-op. Identity is (source, sequence number, value),
    represented by its latest duplicate.

    Example:
        >>> import decaysketch as ds
        >>> from decaysketch.asyncwindow import SumParams, SumSampler
        >>> params = SumParams.for_accuracy(0.05, 0.05, max_sum=10**9, max_window=3600)
        >>> sampler = SumSampler(params)
        >>> sampler.update([40, 2, 40], [160, 100, 160], [1, 0, 1], source="meter-7")
        >>> sampler.sum(ds.decay.window(60), now=160)
        Estimate(42, exact, 2 rows)
    """

    questions = questions_of("weights", "chosen decay")
    _params_type = SumParams

    def _is_plain(self, value: Any) -> bool:
        return type(value) is int and 0 <= value <= self._highest

    def _value_keys(self, values: npt.ArrayLike) -> Int64Array:
        column = integer_column("values", values)
        check_within("values", column, Limit.named(0, self.params.max_sum, "max_sum"))
        return column


class MedianSampler(AskedOfValues, Sampler[MedianParams]):
    """Median and other quantiles over any recent window (MedianProcess, MedianQuery, Union).

    Args:
        params: build parameters. Every sampler in one stream shares them (capacity may differ).
        source: source name for elements without sequence numbers, different for
            every sampler in a stream. Random if None.
        next_number: the number of the first such element. With the same ``source``, element n of a
            log that is read again gets the same coins.

    Values are numbers in the stream's ``value_type``. Identity is (source, sequence number),
    represented by its latest duplicate, the maximum by (timestamp, value).

    Example:
        >>> import decaysketch as ds
        >>> from decaysketch.asyncwindow import MedianParams, MedianSampler
        >>> params = MedianParams.for_accuracy(0.05, 0.05, max_count=10**6, max_window=3600)
        >>> sampler = MedianSampler(params)
        >>> sampler.update([21.5, 19.0, 35.0], [160, 100, 130])
        >>> sampler.median(ds.decay.window(60), now=160)
        Estimate(21.5, exact, 3 rows)
    """

    questions = questions_of("values", "numbers", "chosen decay")
    _params_type = MedianParams

    def _is_plain(self, value: Any) -> bool:
        if self.params.value_type == "int64":
            return type(value) is int and MISSING_KEY < value < 1 << 63
        return type(value) is float and abs(value) < float("inf")  # NaN is not either

    def _value_keys(self, values: npt.ArrayLike) -> Int64Array:
        keys = encode_values(values, self.params.value_type)
        if len(keys) and int(keys.min()) == MISSING_KEY:
            row = int(keys.argmin())
            raise ObservationError(f"values[{row}] is missing", column="values", row=row)
        return keys

    def _ask(self, question: Question[A], decay: Any, now: Any, how: How, **arguments: Any) -> A:
        """Select quantiles instead of sorting if the estimator is "single-level", where elements
        have equal weight: O(rows).
        """
        if how.get("estimator") != "single-level" or question.name not in ("median", "quantile"):
            return super()._ask(question, decay, now, how, **arguments)
        check_how(question, how, How.__annotations__)
        wanted = np.atleast_1d(np.asarray(arguments.get("q", 0.5), dtype=np.float64))
        if wanted.ndim != 1 or not np.all((wanted >= 0.0) & (wanted <= 1.0)):
            raise ParameterError(f"q is {wanted.tolist()!r}; expected numbers from 0 to 1")
        view = self._current()
        decay, now = self._asked(decay, now)
        level, start = estimators.query_level(view, decay, now)
        rows = estimators.window_rows(view, start, int(now), level)
        found: Any = selection.quantiles(
            view.value_keys[rows], self.params.value_type, level, wanted.tolist(),
            check_confidence(how.get("confidence", 0.95)),
        )  # fmt: skip
        answer: A = found if question.name == "quantile" else found[0]
        return answer
