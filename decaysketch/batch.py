"""Arrow tables in, one sketch for each key out: what a batch engine runs, with no engine in it.

A delivery log says for each row *when* the thing happened, *what* identifies it, *how much* it
weighs and measures, and which way this copy came. :class:`ColumnMapping` names those columns,
:class:`KeyedBuilder` folds tables into one sketch per key (per path, per source, ...), and
:func:`merge_blobs` joins sketches that are bytes already. A sketch does not depend on order,
partition or duplication, so the parts may be cut anywhere and built anywhere.

What is built follows from what it is built with (:mod:`decaysketch.families`): ``SketchParams``
give a :class:`~decaysketch.DecaySketch`, ``SumParams`` and ``MedianParams`` the samplers of
:mod:`decaysketch.asyncwindow`, and ``recipe_of(SketchParams(...), decay)`` a sketch of one integral
decay.

:func:`partial_builder`, :func:`file_builder` and :func:`group_merger` make the functions that
Spark runs in its executors (``mapInArrow``, and ``applyInArrow`` in its iterator form). They are
made here and not in the driver's program because an executor has this library and may not have the
program.

What becomes of a row
    A null value is a missing value: counted, and absent from value aggregates; to a sampler, which
    has no others, such a row is no element. A null time is replaced by the fallback time. Any other
    null, and any number out of its range, is an :class:`~decaysketch.errors.ObservationError` that
    names the table's column and row, and nothing of that table is taken.
Clock
    It is part of the state of a sketch that has one, and it never goes back. So it is not guessed
    from the rows, where one time that runs ahead would make the sketch forget everything, and where
    keys would differ in it: every sketch is told the ``now`` that the caller gives, or nothing.

The only module of the library that needs pyarrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from decaysketch import families
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler, element_keys
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.families import Params, Recipe, Sketch
from decaysketch.observations import (
    TIME_LIMIT,
    check_range,
    encode_values,
    observation_ids,
    prepare,
)
from decaysketch.params import SketchParams
from decaysketch.sketch import DecaySketch
from decaysketch.time_units import NANOSECONDS

__all__ = [
    "RESULT_FIELDS",
    "ColumnMapping",
    "FileSplit",
    "KeyedBuilder",
    "file_builder",
    "group_merger",
    "key_fields",
    "merge_blobs",
    "partial_builder",
    "sketches_by_key",
    "warm_up",
]

Key = tuple[Any, ...]
BuiltWith = Params | Recipe[Any]
S = TypeVar("S", bound=Sketch)
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: What stands beside the key columns in a table of sketches: three counts of the deliveries that
#: were read, and the sketch.
RESULT_FIELDS = (
    pa.field("rows", pa.int64()),
    pa.field("missing_values", pa.int64()),
    pa.field("fallback_times", pa.int64()),
    pa.field("sketch", pa.binary()),
    pa.field("digest", pa.string()),
)
_COUNTS = ("rows", "missing_values", "fallback_times")

_EXACT_IN_FLOAT = 1 << 53
_ROWS_AT_A_TIME = 1 << 18  # rows read from a file before they are folded in
_SKETCHES_AT_A_TIME = 64  # sketches decoded, or handed on, at once


class LogColumns(NamedTuple):
    """Rows of a log in a sketch's terms; ``missing`` values and ``fallback`` times are marked."""

    columns: dict[str, npt.NDArray[Any]]  # arguments of the sketch's ``update``
    missing: BoolArray
    fallback: BoolArray
    left_out: BoolArray | None  # rows that are not for the sketch; None: there are none

    def update(self, sketch: Sketch, rows: Any) -> tuple[int, int, int]:
        """Feed some of the rows, a slice or indices; counts as in :data:`RESULT_FIELDS`."""
        fallback, missing = self.fallback[rows], self.missing[rows]
        taken = rows
        if self.left_out is not None:
            taken = np.arange(len(self.missing))[rows][~self.left_out[rows]]
        sketch.update(**{name: column[taken] for name, column in self.columns.items()})
        return len(missing), int(missing.sum()), int(fallback.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """Which columns of a log mean what.

    Args:
        time: when the thing happened: integers, whole floats, timestamps (without a zone: UTC) or
            dates. Where null, ``fallback_time`` counts.
        ids: the columns that together identify the thing, such as (source, sequence number):
            integers, text or bytes. Never a column that differs between copies. A sampler needs
            none.
        source: who sent it: integers, text or bytes. With ``sequence`` the name of an element, for
            samplers only.
        sequence: integers by which a source numbers what it sends.
        value: the measured number; null is a missing value. None: every value is missing. A sampler
            needs it.
        weight: integers 0..max_weight. None: every weight is 1. A sampler takes none.
        fallback_time: a time for rows whose ``time`` is null, such as the arrival.
        time_unit: unit of times that are plain numbers ("ns", "us", "ms", "s", "min", "h", "d");
            None: the stream's own. Where the stream's unit is coarser, times are rounded down.
    """

    time: str
    ids: tuple[str, ...] = ()
    source: str | None = None
    sequence: str | None = None
    value: str | None = None
    weight: str | None = None
    fallback_time: str | None = None
    time_unit: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.ids, str):
            raise ParameterError(f"ids is {self.ids!r}; expected a tuple of column names")
        if self.time_unit is not None and self.time_unit not in NANOSECONDS:
            raise ParameterError(
                f"time_unit is {self.time_unit!r}; expected one of {', '.join(NANOSECONDS)}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        named = (
            self.time, self.fallback_time, *self.ids, self.source, self.sequence, self.value,
            self.weight,
        )  # fmt: skip
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def check(self, params: Params) -> None:
        """Refuse to read for a sketch that needs what is not named, or has no use for what is.

        Raises:
            ParameterError: without ids for ``SketchParams``; without source, sequence or value, or
                with a weight, for the parameters of a sampler.
        """
        _LAYOUTS[type(params)].check(self)

    def read(self, table: pa.Table, params: Params) -> LogColumns:
        """What a table says, as columns that ``update`` of a sketch takes, already validated.

        Raises:
            ObservationError: a row is refused (see the module docstring).
            ParameterError: a column is not in the table, or times cannot be converted; see also
                :meth:`check`.
        """
        self.check(params)
        layout = _LAYOUTS[type(params)]
        timestamps, fallback = self._times(table, params)
        try:
            return layout.read(self, table, params, timestamps, fallback)
        except ObservationError as fault:
            names = {"values": self.value, "weights": self.weight, "timestamps": self.time}
            names.update((f"key column {k}", name) for k, name in enumerate(layout.keys(self)))
            name = names.get(fault.column) or fault.column
            message = str(fault).replace(fault.column, name, 1)
            raise ObservationError(message, column=name, row=fault.row, value=fault.value) from None

    def _times(self, table: pa.Table, params: Params) -> tuple[Int64Array, BoolArray]:
        column = _column(table, self.time)
        fallback = _nulls(column)
        if self.fallback_time is None or not fallback.any():
            return self._ticks(column, self.time, params), fallback
        other = _column(table, self.fallback_time)
        absent = fallback & _nulls(other)
        if absent.any():
            row = int(absent.argmax())
            raise ObservationError(
                f"{self.time}[{row}] is null, and so is {self.fallback_time}[{row}]",
                column=self.time, row=row,
            )  # fmt: skip
        both = [
            self._ticks(_without_gaps(c), name, params)
            for c, name in ((column, self.time), (other, self.fallback_time))
        ]
        return np.where(fallback, both[1], both[0]), fallback

    def _ticks(self, column: pa.Array, name: str, params: Params) -> Int64Array:
        """A column of times in the stream's unit."""
        kind = column.type
        if pa.types.is_date(kind):
            column = column.cast(pa.timestamp("ms"))
        if pa.types.is_timestamp(column.type):
            unit = column.type.unit
            column = column.cast(pa.int64())
        else:
            unit = self.time_unit or params.time_unit
        ticks = _integers(column, name)
        if unit == params.time_unit:
            return ticks
        if params.time_unit not in NANOSECONDS or unit not in NANOSECONDS:
            raise ParameterError(
                f"{name} is of type {kind} in unit {unit!r} and cannot be converted to the "
                f"stream's unit {params.time_unit!r}; known are {', '.join(NANOSECONDS)}"
            )
        have, want = NANOSECONDS[unit], NANOSECONDS[params.time_unit]
        if have < want:
            return ticks // np.int64(want // have)
        factor = have // want
        excessive = (ticks > TIME_LIMIT // factor) | (ticks < -(TIME_LIMIT // factor))
        if excessive.any():
            row = int(excessive.argmax())
            raise ObservationError(
                f"{name}[{row}] is {ticks[row]} {unit}; expected at most 2^62 {params.time_unit} "
                "in magnitude", column=name, row=row, value=int(ticks[row]),
            )  # fmt: skip
        return ticks * np.int64(factor)


# ------------------------------------------------------------------------- by what rows are known


class _Layout(ABC):
    """How the rows of a log become arguments of a sketch's ``update``."""

    @abstractmethod
    def check(self, mapping: ColumnMapping) -> None:
        """Refuse a mapping that does not suit."""

    @abstractmethod
    def keys(self, mapping: ColumnMapping) -> tuple[str | None, ...]:
        """The columns that are hashed, in order."""

    @abstractmethod
    def read(
        self,
        mapping: ColumnMapping,
        table: pa.Table,
        params: Any,
        timestamps: Int64Array,
        fallback: BoolArray,
    ) -> LogColumns:
        """Columns, validated as a whole: none of their parts will be refused."""


class _Observations(_Layout):
    """A row is known by its ids, and weighs."""

    def check(self, mapping: ColumnMapping) -> None:
        if not mapping.ids:
            raise ParameterError(
                f"ids is {mapping.ids!r}; expected the columns that identify an observation"
            )

    def keys(self, mapping: ColumnMapping) -> tuple[str | None, ...]:
        return mapping.ids

    def read(
        self,
        mapping: ColumnMapping,
        table: pa.Table,
        params: SketchParams,
        timestamps: Int64Array,
        fallback: BoolArray,
    ) -> LogColumns:
        rows = table.num_rows
        ids = observation_ids(
            *(_id_column(_column(table, name), name) for name in mapping.ids), params=params
        )
        values, missing = np.zeros(rows, params.value_type), np.ones(rows, dtype=bool)
        if mapping.value is not None:
            column = _column(table, mapping.value)
            missing = _nulls(column)
            values = _numbers(column, mapping.value, params)
        if missing.any():
            values = np.ma.MaskedArray(values, mask=missing)
        weights = np.ones(rows, dtype=np.int64)
        if mapping.weight is not None:
            weights = _integers(_column(table, mapping.weight), mapping.weight)
        prepare(params, values, weights, timestamps, ids)
        columns = {"values": values, "weights": weights, "timestamps": timestamps, "ids": ids}
        return LogColumns(columns, missing, fallback, None)


class _Elements(_Layout):
    """A row is known by its source and its number there; one without a value is no element."""

    def check(self, mapping: ColumnMapping) -> None:
        if mapping.source is None or mapping.sequence is None:
            raise ParameterError(
                f"source is {mapping.source!r} and sequence is {mapping.sequence!r}; expected a "
                "column each: elements that a sampler numbers itself would count again whenever "
                "they are read again"
            )
        if mapping.value is None:
            raise ParameterError("value is None; expected a column: a sampler samples values")
        if mapping.weight is not None:
            raise ParameterError(f"weight is {mapping.weight!r}; expected None: elements have none")

    def keys(self, mapping: ColumnMapping) -> tuple[str | None, ...]:
        return (mapping.source,)

    def read(
        self,
        mapping: ColumnMapping,
        table: pa.Table,
        params: SumParams | MedianParams,
        timestamps: Int64Array,
        fallback: BoolArray,
    ) -> LogColumns:
        assert mapping.source is not None
        assert mapping.sequence is not None
        assert mapping.value is not None
        source = _id_column(_column(table, mapping.source), mapping.source)
        sequence = _integers(_column(table, mapping.sequence), mapping.sequence)
        column = _column(table, mapping.value)
        missing = _nulls(column)
        values = _numbers(column, mapping.value, params)
        check_range("timestamps", timestamps, -TIME_LIMIT, TIME_LIMIT, "2^62")
        value_keys = encode_values(values, params.value_type)
        if isinstance(params, SumParams):
            check_range("values", value_keys, 0, params.max_sum, "max_sum")
        element_keys(params, source, sequence)  # refuses what is no name
        columns = {
            "values": values, "timestamps": timestamps, "sequence": sequence, "source": source
        }  # fmt: skip
        return LogColumns(columns, missing, fallback, missing if missing.any() else None)


_LAYOUTS: dict[type[Any], _Layout] = {
    SketchParams: _Observations(),
    SumParams: _Elements(),
    MedianParams: _Elements(),
}


# ------------------------------------------------------------------------------ columns to arrays


def _column(table: pa.Table, name: str) -> pa.Array:
    """One column in one piece, out of its dictionary where it is in one."""
    if name not in table.column_names:
        raise ParameterError(f"no column {name!r}; there are {', '.join(table.column_names)}")
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # an empty one, or more text than one array can hold
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _nulls(column: pa.Array) -> BoolArray:
    if not column.null_count:
        return np.zeros(len(column), dtype=bool)
    mask: BoolArray = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def _without_gaps(column: pa.Array) -> pa.Array:
    """Anything of the column's own where it is null: those rows are masked or replaced later."""
    if not column.null_count:
        return column
    present = column.drop_null()
    if not len(present):
        return pa.array(np.zeros(len(column), dtype=np.int64))
    return column.fill_null(present[0])


def _refuse_nulls(column: pa.Array, name: str) -> None:
    if column.null_count:
        row = int(_nulls(column).argmax())
        raise ObservationError(f"{name}[{row}] is null", column=name, row=row)


def _integers(column: pa.Array, name: str) -> Int64Array:
    """A column without nulls as int64: integers, or numbers that are integers.

    Text formats and data frames turn integers into floats where a column has gaps; a float that is
    exactly an integer is taken for it.
    """
    _refuse_nulls(column, name)
    kind = column.type
    if pa.types.is_null(kind):  # of no rows
        return np.empty(0, dtype=np.int64)
    if pa.types.is_floating(kind):
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            bad = ~((np.abs(numbers) <= _EXACT_IN_FLOAT) & (numbers == np.rint(numbers)))
        if bad.any():
            row = int(bad.argmax())
            raise ObservationError(
                f"{name}[{row}] is {numbers[row]}; expected an integer",
                column=name, row=row, value=float(numbers[row]),
            )  # fmt: skip
        integers: Int64Array = numbers.astype(np.int64)
        return integers
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise ObservationError(f"{name} is of type {kind}; expected integers", column=name)
    return _cast(column, pa.int64(), name)


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> npt.NDArray[Any]:
    """An exact conversion, or an error that names the column."""
    try:
        array: npt.NDArray[Any] = column.cast(kind).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as fault:
        raise ObservationError(f"{name} cannot be read as {kind}: {fault}", column=name) from None
    return array


def _numbers(column: pa.Array, name: str, params: Params) -> npt.NDArray[Any]:
    """Values; anything where null. Whether they suit the stream's value type is checked later."""
    column = _without_gaps(column)
    kind = column.type
    if pa.types.is_floating(kind):
        return _cast(column, pa.float64(), name)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _cast(column, pa.int64(), name)
    if pa.types.is_decimal(kind):
        return _cast(column, pa.from_numpy_dtype(params.value_type), name)
    if not len(column):  # a column of no rows may have no type
        return np.empty(0, dtype=params.value_type)
    raise ObservationError(f"{name} is of type {kind}; expected numbers", column=name)


def _id_column(column: pa.Array, name: str) -> npt.NDArray[Any]:
    """A key column without nulls, as integers, or as objects that are str or bytes."""
    _refuse_nulls(column, name)
    kind = column.type
    if pa.types.is_timestamp(kind):  # the unit is the file format's affair, not the key's
        return _cast(column.cast(pa.timestamp("ns", kind.tz)), pa.int64(), name)
    if pa.types.is_integer(kind):
        keys: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return keys
    if _is_text(kind) or _is_binary(kind):
        # By way of a dictionary: each distinct key becomes a Python object once.
        encoded = column.dictionary_encode()
        distinct = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
        objects: npt.NDArray[Any] = distinct[encoded.indices.to_numpy(zero_copy_only=False)]
        return objects
    return _integers(column, name)


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_binary(kind: pa.DataType) -> bool:
    return (
        kind in (pa.binary(), pa.large_binary(), pa.binary_view())
        or pa.types.is_fixed_size_binary(kind) is True
    )


# ------------------------------------------------------------------------------------ one per key


def key_fields(schema: pa.Schema, keys: Sequence[str]) -> list[pa.Field]:
    """The key columns of the result for a log of this schema, by their plain types.

    Raises:
        ParameterError: a column that is not there, whose type cannot be grouped by, or whose name
            the result needs for itself.
    """
    taken = {field.name for field in RESULT_FIELDS}
    fields = []
    for name in keys:
        if name not in schema.names:
            raise ParameterError(f"no column {name!r}; there are {', '.join(schema.names)}")
        if name in taken:
            raise ParameterError(f"cannot group by a column that is called {name!r}; rename it")
        fields.append(pa.field(name, _plain_type(name, schema.field(name).type)))
    return fields


def _plain_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type that stands for a key whichever way the log was read."""
    if pa.types.is_dictionary(kind):
        return _plain_type(name, kind.value_type)
    if pa.types.is_integer(kind):
        return pa.int64()
    if _is_text(kind):
        return pa.string()
    if _is_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        return kind
    raise ParameterError(
        f"cannot group by {name!r}, which is of type {kind}; expected integers, text, bytes, "
        "booleans, dates or timestamps"
    )


class KeyedBuilder:
    """Folds tables of a log into one sketch for each distinct key.

    Args:
        params: parameters of every sketch, which say what kind of sketch it is, or a recipe; see
            :func:`decaysketch.families.recipe_of`.
        mapping: what the log's columns mean.
        keys: columns to group by; none: one sketch of everything, under the key ``()``. A null is
            a key like any other.
        now: the time that every sketch is told; None: none of them is told the time. Sketches that
            were told different times merge to the one of a build that is told the latest.

    Raises:
        ParameterError: the parameters, the mapping and ``now`` do not belong together.

    Attributes:
        recipe: what every sketch is built by.
        sketches: the sketches by key, a tuple of one Python object for each key column.
        counts: beside each sketch ``[rows, missing_values, fallback_times]`` of the deliveries
            that were read (copies included: these are counts of work, not of observations).
    """

    def __init__(
        self,
        params: BuiltWith,
        mapping: ColumnMapping,
        keys: Sequence[str] = (),
        *,
        now: int | None = None,
    ) -> None:
        self.recipe = families.recipe_of(params)
        self.recipe.empty(now)  # what cannot be built is refused before there are rows
        mapping.check(self.recipe.params)
        self.mapping = mapping
        self.keys = tuple(keys)
        self.now = now
        self.sketches: dict[Key, Sketch] = {}
        self.counts: dict[Key, Int64Array] = {}
        self._fields: list[pa.Field] = []

    @property
    def columns(self) -> list[str]:
        """The columns of the log that are read."""
        return list(dict.fromkeys((*self.mapping.columns, *self.keys)))

    def add(self, table: pa.Table | pa.RecordBatch) -> None:
        """Fold a table in. O(rows log keys) plus the updates.

        Raises:
            ObservationError: a row is refused; nothing of the table is taken.
            ParameterError: a column is missing or cannot serve.
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        self._fields = key_fields(table.schema, self.keys)
        log = self.mapping.read(table, self.recipe.params)
        for key, rows in self._groups(table):
            if key not in self.sketches:
                self.sketches[key] = self.recipe.empty(self.now)
                self.counts[key] = np.zeros(len(_COUNTS), dtype=np.int64)
            self.counts[key] += log.update(self.sketches[key], rows)

    def _groups(self, table: pa.Table) -> Iterator[tuple[Key, Any]]:
        """Each distinct key with its rows, in their order: a slice, or an array of indices."""
        if not table.num_rows:
            return
        columns = [_column(table, field.name).cast(field.type) for field in self._fields]
        codes = np.zeros(table.num_rows, dtype=np.int64)
        for column in columns:
            encoded = column.dictionary_encode(null_encoding="encode")
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            codes = np.unique(codes, return_inverse=True)[1]
        counts = np.bincount(codes)
        # A stable sort of 16-bit integers is a radix sort.
        narrow = np.uint16 if len(counts) <= 1 << 16 else np.int64
        order = np.argsort(codes.astype(narrow), kind="stable")
        ends = np.cumsum(counts)
        last_rows = pa.array(order[ends - 1])
        parts = [column.take(last_rows).to_pylist() for column in columns]
        keys = list(zip(*parts, strict=True)) if parts else [()]
        for key, end, count in zip(keys, ends, counts, strict=True):
            yield key, slice(None) if len(keys) == 1 else order[end - count : end]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The sketches as rows: the key columns, then :data:`RESULT_FIELDS`."""
        schema = pa.schema([*self._fields, *RESULT_FIELDS])
        items = iter(self.sketches.items())
        while some := list(islice(items, _SKETCHES_AT_A_TIME)):
            rows = [
                (*key, *self.counts[key].tolist(), sketch.to_bytes(), sketch.digest())
                for key, sketch in some
            ]
            columns = zip(*rows, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
            )


@overload
def sketches_by_key(
    table: pa.Table | pa.RecordBatch, params: SketchParams, mapping: ColumnMapping,
    keys: Sequence[str] = ...,
) -> dict[Key, DecaySketch]: ...  # fmt: skip


@overload
def sketches_by_key(
    table: pa.Table | pa.RecordBatch, params: SumParams, mapping: ColumnMapping,
    keys: Sequence[str] = ..., *, now: int | None = ...,
) -> dict[Key, SumSampler]: ...  # fmt: skip


@overload
def sketches_by_key(
    table: pa.Table | pa.RecordBatch, params: MedianParams, mapping: ColumnMapping,
    keys: Sequence[str] = ..., *, now: int | None = ...,
) -> dict[Key, MedianSampler]: ...  # fmt: skip


@overload
def sketches_by_key(
    table: pa.Table | pa.RecordBatch, params: Recipe[S], mapping: ColumnMapping,
    keys: Sequence[str] = ..., *, now: int | None = ...,
) -> dict[Key, S]: ...  # fmt: skip


def sketches_by_key(
    table: pa.Table | pa.RecordBatch,
    params: BuiltWith,
    mapping: ColumnMapping,
    keys: Sequence[str] = (),
    *,
    now: int | None = None,
) -> Any:
    """One sketch for each distinct key of a table.

    Args:
        table: a delivery log, in any order, with any number of copies.
        params, mapping, keys, now: see :class:`KeyedBuilder`.

    Returns:
        The sketches by key: a tuple with one entry for each key column.

    Raises:
        ObservationError, ParameterError: see :class:`KeyedBuilder` and :meth:`KeyedBuilder.add`.
    """
    builder = KeyedBuilder(params, mapping, keys, now=now)
    builder.add(table)
    return builder.sketches


def merge_blobs(
    blobs: Iterable[bytes], *, recipe: Recipe[Any] | None = None, id_key: bytes | None = None
) -> bytes:
    """Merge sketches that are bytes, of any one family; at most 64 are decoded at a time.

    Args:
        blobs: at least one, all with their parameters in them.
        recipe: what they were built by, where that is known; it must be where their decay is a
            table.
        id_key: the stream's secret, where it has one and there is no ``recipe``, which holds it.

    Raises:
        CorruptSketchError: one of them is damaged.
        IncompatibleSketchError: two of them do not belong together.
        ParameterError: there are none, or ``recipe`` and ``id_key`` are both given.
    """
    if recipe is not None and id_key is not None:
        raise ParameterError("give recipe or id_key, not both: a recipe holds its key")
    decode = partial(families.decode, id_key=id_key) if recipe is None else recipe.decode
    merged = _merged(blobs, decode)
    if merged is None:
        raise ParameterError("expected at least one sketch to merge")
    return merged.to_bytes()


def _merged(blobs: Iterable[bytes], decode: Callable[[bytes], Sketch]) -> Sketch | None:
    remaining = iter(blobs)
    merged: Sketch | None = None
    while some := list(islice(remaining, _SKETCHES_AT_A_TIME)):
        sketches = list(map(decode, some))
        merged = families.merge(sketches if merged is None else [merged, *sketches])
    return merged


# ----------------------------------------------------------------------- functions for an engine


def partial_builder(
    params: BuiltWith,
    mapping: ColumnMapping,
    keys: Sequence[str] = (),
    *,
    now: int | None = None,
) -> BatchFunction:
    """A function from batches of a log to partial sketches, one for each key in those batches."""

    def build_partials(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = KeyedBuilder(params, mapping, keys, now=now)
        for batch in batches:
            builder.add(batch)
        yield from builder.batches()

    return build_partials


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A run of row groups of one Parquet file: the unit of work of :func:`file_builder`."""

    path: str
    row_groups: tuple[int, ...]
    first_row: int


def file_builder(
    splits: Sequence[FileSplit],
    params: BuiltWith,
    mapping: ColumnMapping,
    keys: Sequence[str] = (),
    *,
    now: int | None = None,
) -> BatchFunction:
    """A function from numbers of splits (column ``id``) to partial sketches of what they hold.

    The rows go from the file straight into the sketches: an engine that would read them, only to
    hand them on, is spared the trouble. The files must be readable where the function runs.
    """

    def build_partials(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = KeyedBuilder(params, mapping, keys, now=now)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                _add_split(builder, splits[number])
        yield from builder.batches()

    return build_partials


def _add_split(builder: KeyedBuilder, split: FileSplit) -> None:
    with pq.ParquetFile(split.path) as file:
        for name in builder.columns:
            if name not in file.schema_arrow.names:
                raise ParameterError(
                    f"{split.path} has no column {name!r}; it has "
                    f"{', '.join(file.schema_arrow.names)}"
                )
        first_row = split.first_row
        for batch in file.iter_batches(
            _ROWS_AT_A_TIME, row_groups=list(split.row_groups), columns=builder.columns
        ):
            try:
                builder.add(batch)
            except ObservationError as fault:
                place = f"{split.path}, rows from {first_row}: "
                raise ObservationError(
                    place + str(fault), column=fault.column, row=fault.row, value=fault.value
                ) from None
            first_row += batch.num_rows


def group_merger(keys: Sequence[str] = (), recipe: Recipe[Any] | None = None) -> BatchFunction:
    """A function from the partial sketches of ONE key to that key's sketch.

    Args:
        keys: the key columns.
        recipe: see :func:`merge_blobs`.
    """
    decode = families.decode if recipe is None else recipe.decode
    key_names = list(keys)

    def merge_group(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = np.zeros(len(_COUNTS), dtype=np.int64)
        key: list[pa.Array] = []
        schema = pa.schema([])

        def blobs() -> Iterator[bytes]:
            nonlocal key, schema
            for batch in batches:
                key = [batch.column(name).slice(0, 1) for name in key_names]
                schema = pa.schema([*(batch.schema.field(n) for n in key_names), *RESULT_FIELDS])
                for position, name in enumerate(_COUNTS):
                    counts[position] += sum(batch.column(name).to_pylist())
                yield from batch.column("sketch").to_pylist()

        sketch = _merged(blobs(), decode)
        if sketch is None:
            return
        result = [pa.array([count]) for count in counts.tolist()]
        result += [pa.array([sketch.to_bytes()], pa.binary()), pa.array([sketch.digest()])]
        yield pa.RecordBatch.from_arrays([*key, *result], schema=schema)

    return merge_group


def warm_up(*built_with: BuiltWith) -> None:
    """Compile what building and merging needs, so that it lies in numba's cache.

    numba's cache on disk is not made for several processes that fill it at once: call this in one
    process before workers that share the cache start.

    Args:
        built_with: what sketches will be built with or are merged of; nothing: ``DecaySketch``es.
    """
    rows = np.arange(64)
    mapping = ColumnMapping(
        time="row", ids=("row",), source="row", sequence="row", value="value"
    )  # fmt: skip
    for given in built_with or (SketchParams(max_weight=1),):
        recipe = families.recipe_of(given)
        recipe = replace(recipe, params=recipe.params.with_capacity(4))  # type: ignore[type-var]
        table = pa.table({"row": rows, "value": np.ones(64, recipe.params.value_type)})
        [sketch] = sketches_by_key(table, recipe, mapping).values()
        merge_blobs([sketch.to_bytes(), sketch.to_bytes()], recipe=recipe)
