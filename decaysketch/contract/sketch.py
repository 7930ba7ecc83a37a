"""Operations of every sketch, in all families. The queries come with the family's questions.

A family defines how rows enter, the bags that store them and their snapshot. The rest is here.
Rows that come one by one, as plain numbers, are validated on arrival and wait until the next read,
because a kernel call costs some microseconds for any number of rows. Bags are merged, shrunk and
trimmed (:mod:`decaysketch.core.bags`). Reads use a snapshot, which is kept until something changes.
A family that stores its rows in something other than bags overrides the methods that use them:
``params``, ``clock``, ``nbytes``, ``trim``, ``_take`` (or ``_absorb``), ``_lower_capacity``,
``_flush`` and the length.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar, Protocol, Self, Unpack

import numpy as np
import numpy.typing as npt

from decaysketch.contract.snapshot import Snapshot, State
from decaysketch.core._native import SingleRows
from decaysketch.core.bags import Retained
from decaysketch.core.labels import LabelBook, Labels
from decaysketch.core.log_columns import LogColumnArguments
from decaysketch.core.observations import TIME_LIMIT, check_time
from decaysketch.core.params import BuildParams, Differences, SketchParams, check_shrinks
from decaysketch.core.plausible_times import doubt
from decaysketch.core.row_check import Compared
from decaysketch.core.time_units import Instant, in_units
from decaysketch.core.view import Summarized
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.errors import IncompatibleSketchError, TimeUnitWarning
from decaysketch.query.catalog import Views
from decaysketch.query.pair_view import PairView

__all__ = ["ENOUGH", "Held", "Pending", "PendingRows", "Sketch", "Stats", "Waiting"]

ENOUGH = 512  # single rows, to be merged together


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Figures about ingested and stored rows.

    Attributes:
        fed: rows given to ``update`` on this object (copies, merges, pickles and bytes start again
            at 0).
        too_late: the number of these that were rejected because their time was after ``not_after``.
        rows: observations stored, by all hash functions together.
        clock: the latest time reported to the sketch, or None.
        oldest, newest: earliest and latest stored time, or None.
        complete_since: for each level, the watermark. For an integral decay it is the earliest time
            of a query that the level answers. Otherwise everything that reaches the level after
            this time is stored. None if nothing was discarded and no clock was reported.
        left_out: rows in data frames that ``drop_nulls`` skipped, on this object as for ``fed``.
        replaced: readings that a later reading with the same id replaced although they are none of
            its duplicates, on this object as for ``fed``. See :mod:`decaysketch.core.duplicates`.
    """

    fed: int
    too_late: int
    rows: int
    clock: int | None
    oldest: int | None
    newest: int | None
    complete_since: tuple[int | None, ...]
    left_out: int = 0
    replaced: int = 0


class Held(Views, Summarized):
    """Reads from a snapshot, which is kept until something changes: bytes, digests, copies.

    Equal objects have the same state under the same parameters. Copies and pickles have the state
    alone: their count of fed rows starts again.
    """

    _snapshot: Snapshot | None = None  # of the present rows, made by the first query
    _before: Snapshot | None = None  # the last one, if the next one can reuse its results

    @property
    @abstractmethod
    def params(self) -> BuildParams:
        """Build parameters. ``params.capacity`` is the capacity in force."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """Make an object with a state, which must come from such an object."""

    @abstractmethod
    def _flush(self) -> None:
        """Merge the single rows gathered so far. They were validated one by one."""

    @abstractmethod
    def _freeze(self) -> Snapshot:
        """Return a snapshot of the current state."""

    @abstractmethod
    def _is_like(self, other: object) -> bool:
        """Return whether it may be equal."""

    def _changed(self) -> None:
        """Note that the state differs from the snapshot."""
        if self._snapshot is not None and self._snapshot.was_read:
            self._before = self._snapshot
        self._snapshot = None

    def snapshot(self) -> Snapshot:
        """Return the current state, immutable, safe to read from any thread. O(rows) after a
        change, else O(1).
        """
        self._flush()
        if self._snapshot is None:
            self._snapshot, self._before = self._freeze(), None
        return self._snapshot

    def moment(self, at: Instant) -> int:
        return check_time("time", in_units(at, self.params.time_unit, name="time"))

    def against(
        self,
        now: tuple[Decay | str, Instant | None],
        then: tuple[Decay | str, Instant | timedelta | None],
    ) -> PairView:
        return self.snapshot().against(now, then)

    def to_bytes(self) -> bytes:
        """Canonical bytes: equal states give equal bytes on every platform."""
        return self.snapshot().to_bytes()

    def digest(self) -> str:
        """SHA-256 of the state, in hex: equal for equal states in every wire version."""
        return self.snapshot().digest

    def copy(self) -> Self:
        """Return an independent sketch with the same state."""
        return type(self).from_state(self.snapshot().held)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Callable[[State], Self], tuple[State]]:
        return type(self).from_state, (self.snapshot().held,)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same state under the same parameters."""
        if not (isinstance(other, Held) and self._is_like(other)):
            return NotImplemented
        return bool(self.params == other.params) and self.digest() == other.digest()

    __hash__ = None  # type: ignore[assignment]  # mutable


class Sketch(Held):
    """A mergeable summary of the observations of a stream. Not safe to use from two threads."""

    #: Whether the next times are checked, with a warning if they are probably in another unit. Only
    #: the first times of a sketch built by hand are. Builds by a recipe check for themselves.
    looks_at_times = True

    #: Class of the snapshots. Sketches of one such class and one class of parameters merge.
    snapshot_type: ClassVar[type[Snapshot]]

    _bags: Sequence[Retained]  # the stored rows, one bag for each hash function
    _pending: Waiting  # rows that were validated one by one
    _labels: LabelBook | None = None  # codes and labels, if values are labels
    #: Data frame rows that were dropped, not rejected, because a required value is missing.
    left_out = 0

    _fed = _too_late = 0  # rows given to ``update``, and those of them after ``not_after``

    # --------------------------------------------------------------------- of each family its own
    # Columns and options are those of the family, by its own names and types: so ``Any``.

    @abstractmethod
    def update(self, *columns: Any, **options: Any) -> None:
        """Ingest observations: columns, or one observation as plain numbers."""

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        mapping: Any = None,
        *,
        params: BuildParams | None = None,
        accuracy: float | str | None = None,
        time_unit: str = "auto",
        decay: Any = None,
        drop_nulls: bool = False,
        check_units: bool = True,
        **columns: Unpack[LogColumnArguments],
    ) -> Self:
        """Make a sketch from a data frame: pandas (2.2 or newer), polars, DuckDB, Arrow, ibis, or
        anything else with ``__arrow_c_stream__``. Needs pyarrow (``decaysketch[frames]``).

        The same observations give the same bytes, from any library and in any types: text,
        categories, integers of any width, booleans, decimals, timestamps in any unit.

        Args:
            frame: in any order, with any number of duplicates.
            mapping: the meaning of its columns, a :class:`decaysketch.tables.ColumnMapping`. None:
                from the keywords.
            params: build parameters. Without them weights are 1, values are labels if the column is
                of text, ``columns`` are declared by their types, and ``accuracy`` and ``time_unit``
                give the rest. Sketches that are to be merged need equal ones, so pass them.
            accuracy: of a sum, in 19 of 20 results, as 0.05 or "5%". 2 % unless given.
            time_unit: of the sketch. "auto" is the unit of the time column, by its type.
            decay: if the family fixes one.
            drop_nulls: skip rows without a time, or without a part of their id.
                ``stats().left_out`` counts them.
            check_units: reject integers that are unlikely times in their unit (except for a few).
            columns: the columns by their meaning: ``time``, ``value``, ``id`` and others
                (:class:`decaysketch.core.log_columns.LogColumnArguments`). Null, NaN, NA and NaT
                are missing values. If the stream has declared columns and ``columns`` is not given,
                the data frame's columns with their names are read, and others are null.

        Raises:
            ObservationError: the first row that cannot be stored, and the remedy.
            ParameterError: a column does not exist, or parameters do not belong together.
            OtherUnitError: the times are dates in another unit.
            ModuleNotFoundError: pyarrow is not installed.

        Warns:
            DisagreeingCopiesWarning: among rows with equal ids more than one in a hundred have one
                time and differ, or lie far apart. For each id the latest alone counts.
            TimeZoneWarning: times name no zone, and no ``time_zone`` was given.
            UnlikelyClockWarning: some times lie outside the years 1990 to 2099, others inside.
            NewestOnlyWarning: a fixed decay makes weights 0 after the newest instant.

        Complexity: O(rows log max_weight), and a copy of the named columns.
        """
        made: Self = _frames().build(
            cls, frame, params=params, accuracy=accuracy, time_unit=time_unit, decay=decay,
            mapping=mapping, arguments=columns, drop_nulls=drop_nulls, check_units=check_units,
        )  # fmt: skip
        return made

    def update_frame(
        self,
        frame: Any,
        mapping: Any = None,
        *,
        drop_nulls: bool = False,
        check_units: bool = True,
        **columns: Unpack[LogColumnArguments],
    ) -> None:
        """Ingest a data frame, or nothing if a row is rejected. See :meth:`from_frame`."""
        _frames().feed(
            self, frame, mapping=mapping, arguments=columns, drop_nulls=drop_nulls,
            check_units=check_units,
        )  # fmt: skip

    def to_arrow(self, decay: Decay | str | None = None, now: Instant | None = None) -> Any:
        """Return the weighted sample as an Arrow table: the value or columns, ``weight``, ``time``,
        ``mass``, ``variance``, ``jump`` and ``exact``. See
        :func:`decaysketch.tables.samples.sample_table`. Needs pyarrow.

        ``sum(mass * x) / sum(mass)`` is the decayed mean in any engine. It has no interval, and
        ``count(*)`` counts stored rows. The methods of the sketch have intervals.

        Args:
            decay: a decay, or its text. None if the sketch has a fixed one.
            now: query time, in the stream's unit or a moment. None: the latest time.

        Raises:
            ParameterError: the family stores no rows for samples, or an invalid decay or time.
            UnanswerableQueryError: rows with weight were discarded.
        """
        return import_module("decaysketch.tables.samples").sample_table(self, decay, now)

    @abstractmethod
    def verdicts(self, *columns: Any, **options: Any) -> npt.NDArray[np.int8]:
        """Return the status that :meth:`update` would give to each row. Changes nothing.

        Returns:
            int8[n]: a :class:`~decaysketch.core.row_check.Verdict` for each row.
        """

    def compared(self, *columns: Any, **options: Any) -> Compared | None:
        """Return :meth:`verdicts` without a snapshot, and whether rows share identities. None: the
        sketch cannot do it without one.
        """
        return None

    def _look_at(self, timestamps: Any) -> None:
        """Warn if the times in the first batch are unlikely in the stream's unit."""
        self.looks_at_times = False
        times = np.asarray(timestamps)
        if times.dtype.kind not in "iu" or not times.size:
            return
        unit = self.params.time_unit
        if found := doubt(unit, int(times.min()), int(times.max())):
            warnings.warn(
                f"the times are probably not in {unit}: {found}", TimeUnitWarning, stacklevel=3
            )

    @abstractmethod
    def stats(self) -> Stats:
        """Return figures about ingested and stored rows. O(rows)."""

    @abstractmethod
    def _empty(self) -> Self:
        """Return an empty sketch with the same stream and capacity."""

    def copy(self) -> Self:
        """Return an independent sketch with the same state."""
        made = super().copy()
        made.looks_at_times = self.looks_at_times
        return made

    def _codes(self, values: Any) -> Any:
        """Return the codes of labels, which are known from now on. Return other values
        unchanged.
        """
        if self._labels is None:
            return values
        self._let_labels_go()
        return self._labels.read(values)

    @property
    def _collisions(self) -> int:
        return 0 if self._labels is None else self._labels.collisions

    def _know(self, labels: Labels | None) -> None:
        """Of a state that it holds now."""
        if self._labels is not None:
            self._labels.join([] if labels is None else [labels])

    def _let_labels_go(self) -> None:
        """Forget labels that no row has, once they may be many. Amortised O(1) for each label."""
        assert self._labels is not None
        if self._labels.crowded:
            self._keep_labels()

    def _keep_labels(self) -> None:
        """Forget labels that no row has. O(rows)."""
        held = self.snapshot()
        if self._labels is not None and held.labels is not None:
            self._labels.keep(held.labels, len(held))

    @abstractmethod
    def _fold(self, *columns: Any) -> None:
        """Put pending rows into the bags."""

    def _differences(self, other: Sketch | Snapshot) -> Differences:
        """Return every difference that prevents a merge, as ``{name: (ours, theirs)}``."""
        if other.params.fingerprint == self.params.fingerprint:
            return {}
        differences: Differences = self.params.differences(other.params)
        return differences

    # ----------------------------------------------------------------------------- properties

    @property
    def params(self) -> BuildParams:
        """Build parameters. ``params.capacity`` is the capacity in force."""
        params: BuildParams = self._bags[0].params
        return params

    @property
    def clock(self) -> int | None:
        """The latest time reported to the sketch. None before the first, and without a clock."""
        clock = self._bags[0].clock
        return None if clock == NO_WATERMARK else clock

    def __len__(self) -> int:
        """Number of stored rows, for all hash functions together. O(rows) after a change, else
        O(1).
        """
        self._flush()
        return sum(map(len, self._bags))

    @property
    def replaced(self) -> int:
        """Readings that a later one of the same id replaced, far away in time; as of
        :class:`Stats`. O(rows) after a change, else O(1)."""
        self._flush()
        return max((bag.replaced for bag in self._bags), default=0)

    def _flush(self) -> None:
        """Merge the single rows gathered so far. They were validated one by one."""
        if self._pending:
            columns = self._pending.columns()
            self._fold(*columns)
            self._fed += len(columns[0])
            self._pending.clear()  # last: should folding in fail, they can be folded in again

    def _counted(self) -> dict[str, Any]:  # keywords of ``Stats``
        """The figures of every family, by their names in :class:`Stats`."""
        held = self.snapshot()
        return {
            "fed": self._fed, "too_late": self._too_late, "rows": len(held), "clock": held.clock,
            "oldest": held.oldest, "newest": held.newest, "complete_since": held.complete_since,
            "left_out": self.left_out, "replaced": self.replaced,
        }  # fmt: skip

    # -------------------------------------------------------------------------------------- merge

    def merge(self, *others: Self | Snapshot) -> None:
        """Merge everything that ``others``, or the originals of snapshots, saw. The others are
        unchanged.

        The state becomes that of a single sketch fed with all inputs and all clocks, with the
        smallest capacity. A sketch with 5 % accuracy makes one with 2 % coarse, and nothing undoes
        this. See ``params.capacity``. Data that was fed to several sketches counts once.

        Raises:
            IncompatibleSketchError: with every difference. This sketch is unchanged.
            TypeError: one of them is no sketch in this family.

        Complexity: amortised O(rows of the others).
        """
        for other in others:
            if not self._takes(other):
                name = type(self).__name__
                article = "an" if name[0] in "AEIO" else "a"
                raise TypeError(f"cannot merge a {type(other).__name__} into {article} {name}")
            if differences := self._differences(other):
                raise IncompatibleSketchError(differences)
        self._flush()
        capacity = min(each.params.capacity for each in (self, *others))
        if self._labels is not None:
            self._let_labels_go()
            self._labels.join([_labels_of(each) for each in others])
        self._take(others, capacity)
        self._changed()

    def _take(self, others: Sequence[Sketch | Snapshot], capacity: int) -> None:
        if capacity < self.params.capacity:
            self._lower_capacity(capacity)
        self._absorb(others)

    def _absorb(self, others: Sequence[Sketch | Snapshot]) -> None:
        for bag, *theirs in zip(self._bags, *map(_bags_of, others), strict=True):
            bag.absorb(theirs)

    def __or__(self, other: Self) -> Self:
        """Return a new sketch with the data from both. Neither is changed."""
        if not (isinstance(other, Held) and self._takes(other)):
            return NotImplemented
        merged = self._empty()
        merged.merge(self, other)
        return merged

    def _takes(self, other: object) -> bool:
        """Return whether it can be merged into this one, as far as its kind is concerned."""
        return self._is_like(other)

    def _is_like(self, other: object) -> bool:
        """Return whether it is a sketch in this family, or a snapshot of one."""
        if not isinstance(other, Sketch | Snapshot):
            return False
        kind = other.snapshot_type if isinstance(other, Sketch) else type(other)
        return kind is self.snapshot_type and type(other.params) is type(self.params)

    def resize(self, capacity: int) -> None:
        """Shrink to a smaller capacity: the state that building with it would have given.

        Raises:
            ParameterError: the capacity is larger than the present one. Discarded rows cannot
                return.
        """
        check_shrinks(capacity, self.params.capacity)
        self._flush()
        self._lower_capacity(capacity)
        self._changed()

    def _lower_capacity(self, capacity: int) -> None:
        for bag in self._bags:
            bag.lower_capacity(capacity)

    # ------------------------------------------------------------------------------------- memory

    @property
    def nbytes(self) -> int:
        """Bytes for the rows, including spare capacity, and for labels. A snapshot is extra."""
        labels = 0 if self._labels is None else self._labels.nbytes
        return sum(bag.nbytes for bag in self._bags) + labels

    def trim(self) -> None:
        """Free memory that no row needs: spare capacity, the snapshot and cached query results.
        Changes no state. O(rows).
        """
        self._flush()
        if self._labels is not None:
            self._keep_labels()
        for bag in self._bags:
            bag.trim()
        self._changed()
        self._before = None


def _frames() -> Any:
    """Import the data frame reader by name at first use. It stands above all families, and needs a
    library that sketches do not need.
    """
    return import_module("decaysketch.tables.frames")


def _labels_of(sketch: Sketch | Snapshot) -> Any:
    return sketch.labels if isinstance(sketch, Snapshot) else sketch._labels


def _bags_of(sketch: Sketch | Snapshot) -> Sequence[Any]:
    if isinstance(sketch, Snapshot):
        return sketch.bags()
    sketch._flush()
    return sketch._bags


# ------------------------------------------------------------------------------------ single rows


class Waiting(Protocol):
    """Rows that were validated one by one."""

    def __len__(self) -> int: ...

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the columns, to be merged before anything is added."""

    def clear(self) -> None:
        """Forget all rows, after they were merged."""


class Pending:
    """Validated rows, in one array for each column.

    Args:
        kinds: type code for each column.

    Attributes:
        arrays: one array for each column. To add a row, append one number to each.
    """

    __slots__ = ("_kinds", "arrays")

    def __init__(self, kinds: str) -> None:
        self._kinds = kinds
        self.clear()

    def clear(self) -> None:
        """Forget all rows, after they were merged."""
        self.arrays: tuple[array[Any], ...] = tuple(array(kind) for kind in self._kinds)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the columns, as arrays that share memory with the buffers."""
        return tuple(np.frombuffer(column, column.typecode) for column in self.arrays)


class PendingRows(SingleRows):
    """Observations in one stream, none with weight 0: values, weights, timestamps and ids."""

    def __init__(self, params: SketchParams) -> None:
        super().__init__(
            floats=params.value_type == "float64",
            max_weight=params.max_weight,
            last_id=(1 << params.id_bits) - 1,
            time_limit=TIME_LIMIT,
        )
