"""The meaning of a log's columns, and its rows as arguments for a sketch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.arrays import Column
from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.hashing import HashedKeys
from decaysketch.core.labels import EncodedLabels
from decaysketch.core.log_columns import FIELDS, check_arguments
from decaysketch.core.observations import observation_ids
from decaysketch.core.params import SketchParams
from decaysketch.core.plausible_times import dated, doubt, unit_in_name
from decaysketch.core.row_check import TIME_LIMIT, TIMES, Limit
from decaysketch.core.text_values import PLAIN, Numerals, check_time_format, zone_of
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ObservationError, OtherUnitError, ParameterError
from decaysketch.families import BuiltWith, Params, Recipe, Sketch, recipe_of
from decaysketch.tables.columns import (
    as_text,
    column_of,
    holds_text,
    id_column,
    integers_of,
    is_text,
    labels_of,
    nulls_of,
    numbers_of,
    refuse_nulls,
    source_column,
    without_gaps,
)
from decaysketch.tables.filters import RowFilter
from decaysketch.tables.records import records_of_table, refuse_long
from decaysketch.tables.rejections import Refusals
from decaysketch.tables.row_sources import Sites, by_code, read_sites
from decaysketch.tables.texts import (
    TimeTexts,
    cast_clean,
    local_to_utc,
    texts_of_floats,
)
from decaysketch.tables.texts import numbers as numbers_of_texts
from decaysketch.tables.texts import ticks as ticks_of_texts

__all__ = [
    "ColumnMapping",
    "LogColumns",
    "declared_columns",
    "doubt_of_log",
    "refuse_other_unit",
    "zoneless",
]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

NO_START = -(1 << 63)
"""The start of a counter that names none."""

_EVENTS = Limit(0, TIME_LIMIT - 1, "0 to 2^62 - 1")  # weights of one event
_TUPLES = ("ids", "key", "entity")
_WORDS = "keys"  # the argument of ``update`` whose column is of hashes


class LogColumns(NamedTuple):
    """Log rows as arguments for a sketch.

    Attributes:
        table: the rows that were read, without rows that the filter excludes.
        columns: arguments for the sketch's ``update``. Rejected rows have invalid entries. Keys are
            hashed.
        sites: the sites of rows, if there is a column with them.
        missing: bool, rows without a value.
        fallback: bool, rows with the fallback time.
        refusals: rejected rows.
        elements: whether the sketch ignores a row without a value.
    """

    table: pa.Table
    columns: dict[str, Column]
    missing: BoolArray
    fallback: BoolArray
    refusals: Refusals
    elements: bool
    sites: Sites | None = None

    @property
    def refused(self) -> BoolArray:
        return self.refusals.rejected

    @property
    def zoneless(self) -> BoolArray:
        """bool, rows with a time that has no zone and was read as UTC."""
        return self.refusals.zoneless & ~self.refused

    @property
    def left_out(self) -> BoolArray:
        """The rows that go to no sketch."""
        return self.refused | self.missing if self.elements else self.refused

    def update(self, sketch: Sketch, rows: slice | Int64Array, **options: Any) -> None:
        """Feed some rows, a slice or indices. Options are as for ``update``."""
        left_out = self.left_out
        taken = rows
        if left_out.any():
            taken = np.arange(len(left_out))[rows][~left_out[rows]]
        if self.sites is None:
            self._feed(sketch, taken, options)
            return
        codes = self.sites.codes[taken]
        for code, some in by_code(codes):
            of_site = some if isinstance(taken, slice) else taken[some]
            self._feed(sketch, of_site, options | {"source": self.sites.names[code]})

    def _feed(self, sketch: Sketch, rows: slice | Int64Array, options: dict[str, Any]) -> None:
        given: dict[str, Any] = {name: column[rows] for name, column in self.columns.items()}
        if _WORDS in given:
            given[_WORDS] = HashedKeys(given[_WORDS])
        sketch.update(**given, **options)


def _column(option: str, doc: str, default: Any = None) -> Any:
    """Return a field with the option that programs generate from it."""
    return field(default=default, metadata={"option": option, "doc": doc})


Cast = Literal["text", "int64"]
"""The type that a column is converted to before it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """The meaning of a log's columns, for every interface that builds sketches.

    Data frames, DuckDB, polars and Spark accept it as ``mapping``, or its fields as keywords
    (:class:`decaysketch.core.log_columns.LogColumnArguments`). Programs generate their options from
    it.

    Args:
        time: time of the event: integers, integral floats, timestamps (without a zone: UTC) or
            dates. ``fallback_time`` replaces a null.
        ids: the columns that together identify the event, such as (source, sequence number):
            integers, text or bytes. Never a column that differs between duplicates. A sampler needs
            none. In a family of series they identify the entity.
        entity: in a family of series, the columns that together identify the sampled device. None:
            each series is a device.
        start: in a family of series, the time at which a counter began, or null.
        key: the columns that together are the key of the counted events: integers, text or bytes.
            Only for families that count keys. Single events have no name there.
        source: the source: integers, text or bytes. With ``sequence`` the name of a sampler's
            element. If rows are counted for a site, the site: integers from 0, or text. None: all
            rows have one site.
        sequence: the integers that a source gives its elements as numbers.
        value: the measured number, or the label. Null is a missing value. None: every value is
            missing. A sampler needs it, and a key has none.
        columns: the declared columns of a stream, or the attributes of its series, each with the
            log's column that fills it: a mapping ``{"temp": "t_degc"}``, or names if they are
            equal. Declared columns without one are null. None at all: each is filled from the
            column with its name.
        weight: integers 0..max_weight, or one number for all rows. None: every weight is 1. A
            sampler accepts none. For key events any integers from 0.
        fallback_time: a time for rows without ``time``, such as the arrival.
        time_unit: unit for times that are plain numbers ("ns", "us", "ms", "s", "min", "h", "d").
            None: the stream's own. If the stream's unit is coarser, times are rounded down.
        time_zone: for timestamps and texts that name no zone ("Europe/Berlin", "+02:00"). None:
            they are read as UTC, and marked in :attr:`LogColumns.zoneless`.
        time_format: for texts, as in ``strptime``. None: ISO 8601, ``31.01.2026 12:00``, or a
            number in ``time_unit``.
        decimal, thousands: format for numbers that are texts. See
            :class:`decaysketch.core.text_values.Numerals`.
        casts: columns to convert before they are read, with "text" or "int64". Ids 12 and "12" are
            two names. A text that is no integer rejects its row.
        torn: a column with the text of each line that is no row, null elsewhere, such as Spark's
            ``_corrupt_record``. These rows are rejected.
    """

    time: str = field(metadata={"option": "time_column", "doc": "The time of the event."})
    ids: tuple[str, ...] = _column(
        "id_columns",
        "Columns that together identify an observation, with commas; in the same order for all "
        "sketches that are merged.",
        (),
    )
    entity: tuple[str, ...] = _column(
        "entity_columns",
        "In the family series: columns that together identify the sampled device, with commas.",
        (),
    )
    start: str | None = _column(
        "start_column", "In the family series: the time at which a counter began to count."
    )
    key: tuple[str, ...] = _column(
        "key_columns", "Columns that together are the key, if keys are counted.", ()
    )
    source: str | None = _column(
        "source_column", "The source of the element, if sources number elements."
    )
    sequence: str | None = _column(
        "sequence_column", "Integers by which a source numbers its elements."
    )
    value: str | None = _column(
        "value_column", "The measured number, or label; '' for none, as with --columns."
    )
    columns: tuple[tuple[str, str], ...] = _column(
        "columns",
        "Columns of a stream with columns, with commas: 'temp, site'; with types 'temp float64, "
        "site text'; from columns with other names 'temp=t_degc'; or '*' for all others.",
        (),
    )
    weight: str | int | None = _column(
        "weight_column", "Integer weights; every weight is 1 if not given."
    )
    fallback_time: str | None = _column("fallback_time_column", "Replaces a null time.")
    time_unit: str | None = _column(
        "column_unit", "Unit of times that are plain numbers; the stream's if not given."
    )
    time_zone: str | None = _column(
        "time_zone",
        "Zone of times that name none, such as Europe/Berlin or +02:00; UTC, with a warning, if "
        "not given.",
    )
    time_format: str | None = _column(
        "time_format",
        "Format of times as text, for strptime, such as '%d/%m/%Y %H:%M:%S'; ISO 8601 or "
        "31.01.2026 12:00 if not given.",
    )
    decimal: str = _column(
        "decimal", "The decimal mark of numbers as text; detected if it is certain.", "."
    )
    thousands: str = _column("thousands", "The thousands mark of numbers as text; likewise.", "")
    casts: tuple[tuple[str, Cast], ...] = _column(
        "text_columns",
        "Columns that are read as text, with commas: CSV cells as written, so that 012 is not 12.",
        (),
    )
    torn: str | None = None

    def __post_init__(self) -> None:
        for name in _TUPLES:
            if isinstance(given := getattr(self, name), str):
                raise ParameterError(f"{name} is {given!r}; expected a tuple of column names")
        object.__setattr__(self, "columns", _pairs("columns", self.columns))
        object.__setattr__(self, "casts", _pairs("casts", self.casts))
        for column, kind in self.casts:
            if kind not in get_args(Cast):
                raise ParameterError(
                    f"casts has {kind!r} for {column!r}; expected {' or '.join(get_args(Cast))}"
                )
        if self.time_unit is not None and self.time_unit not in NANOSECONDS:
            raise ParameterError(
                f"time_unit is {self.time_unit!r}; expected one of {', '.join(NANOSECONDS)}"
            )
        if self.time_zone is not None:
            zone_of(self.time_zone)
        if self.time_format is not None:
            check_time_format(self.time_format)
        self._numerals.check()

    @property
    def _numerals(self) -> Numerals:
        return Numerals(self.decimal, self.thousands)

    @classmethod
    def of(cls, mapping: ColumnMapping | None, arguments: Mapping[str, Any]) -> ColumnMapping:
        """Return a mapping from the arguments of a data frame or an engine.

        Args:
            mapping: the mapping. None: from ``arguments``.
            arguments: see :class:`decaysketch.core.log_columns.LogColumnArguments`.

        Raises:
            ParameterError: both are given, or an argument is unknown or missing.
        """
        if mapping is not None:
            if arguments:
                listed = ", ".join(arguments)
                raise ParameterError(f"mapping is given, and so is {listed}; expected one of them")
            return mapping
        check_arguments(arguments)
        named = {FIELDS.get(name, name): given for name, given in arguments.items()}
        for name in _TUPLES:
            if isinstance(given := named.get(name), str):
                named[name] = (given,)
        return cls(**named | {name: tuple(named.get(name, ())) for name in _TUPLES})

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Self:
        """Build from the output of ``dataclasses.asdict``, also as JSON, which has lists for
        tuples.

        Raises:
            ParameterError: not an object with fields, or a field that is unknown, missing or
                outside of its domain.
        """
        try:
            given = {name: form.get(name, ()) for name in _TUPLES}
            lists = {
                name: each if isinstance(each, str) else tuple(each) for name, each in given.items()
            }
            return cls(**{**form, **lists})
        except (TypeError, AttributeError) as fault:
            raise ParameterError(
                f"mapping is {form!r}; expected the fields of a ColumnMapping: {fault}"
            ) from None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        weight = self.weight if isinstance(self.weight, str) else None
        named = (
            self.time, self.fallback_time, *self.ids, *self.entity, self.start, *self.key,
            self.source, self.sequence, self.value, *(column for _, column in self.columns), weight,
            self.torn,
        )  # fmt: skip
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def complete(self, params: BuiltWith, there: Collection[str] | None = None) -> ColumnMapping:
        """Return the same with the declared columns of a stream, if it has some and none are named.

        Args:
            params: the sketch's parameters, or its sketch configuration.
            there: the log's columns. Declared columns that are not among them are null. None: the
                log has to have them all.

        Raises:
            ParameterError: the log has none of them.
        """
        declared = [name for name, _ in declared_columns(recipe_of(params).params)]
        if not declared or self.columns:
            return self
        found = [name for name in declared if there is None or name in there]
        if not found:
            raise ParameterError(
                f"no declared column is in the log: the stream has {', '.join(declared)}, and the "
                f"log {', '.join(there or ())}; columns={{'{declared[0]}': ...}} names its column"
            )
        return replace(self, columns=tuple((name, name) for name in found))

    @property
    def naming(self) -> tuple[str, ...]:
        """The columns with entries that are hashed or name the source. Their types matter."""
        source = () if self.source is None else (self.source,)
        return (*self.ids, *self.entity, *self.key, *source)

    def typed_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return a log's schema with :attr:`casts` applied."""
        casts = dict(self.casts)
        return pa.schema([field.with_type(_cast_type(field, casts)) for field in schema])

    def _typed(self, table: pa.Table, refusals: Refusals) -> pa.Table:
        for name, kind in self.casts:
            if name not in table.column_names:
                continue
            place, column = table.column_names.index(name), column_of(table, name)
            if kind == "text":
                table = table.set_column(place, name, as_text(column, name))
            elif is_text(column.type):
                column = numbers_of_texts(column, name, PLAIN, refusals, integers=True)
                table = table.set_column(place, name, column)
        return table

    def check(self, params: BuiltWith) -> None:
        """Reject a sketch that needs a column without a name here, or cannot use one with a name.

        Its family's :class:`~decaysketch.contract.family.Input` defines the required columns.

        Raises:
            ParameterError: ids, or source and sequence, are missing and name rows. A key is missing
                and keys are counted, or there is a key and they are not. A value is missing and
                required. Or there is a value or weight, and rows have none.
        """
        kind = recipe_of(params).kind.input
        if kind.named_by != "key" and self.key:
            raise ParameterError(f"key is {self.key!r}; expected none: the sketch counts no keys")
        if kind.named_by == "ids":
            if not self.ids:
                raise ParameterError(
                    "no column is named as id; expected the columns that identify an observation, "
                    "such as the device and its counter"
                )
        elif kind.named_by == "key":
            if not self.key or self.ids or self.sequence is not None:
                raise ParameterError(
                    f"key is {self.key!r}, ids is {self.ids!r} and sequence is {self.sequence!r}; "
                    "expected the columns of the key that is counted, and nothing that names an "
                    "event"
                )
        elif self.source is None or self.sequence is None:
            raise ParameterError(
                f"source is {self.source!r} and sequence is {self.sequence!r}; expected a "
                "column each: elements that a sampler numbers itself would count again whenever "
                "they are read again"
            )
        for name in ("entity", "start"):
            if (given := getattr(self, name)) and not kind.series:
                raise ParameterError(
                    f"{name} is {given!r}; expected none: only the family 'series' has it"
                )
        self._check_values(recipe_of(params).params)
        if kind.value == "required" and self.value is None:
            raise ParameterError("value is None; expected a column: a sampler samples values")
        if kind.value == "none" and self.value is not None:
            raise ParameterError(f"value is {self.value!r}; expected None: events have none")
        if kind.weight_bound is None and not kind.weighted and self.weight is not None:
            raise ParameterError(f"weight is {self.weight!r}; expected None: elements have none")

    def _check_values(self, params: Params) -> None:
        declared = dict(declared_columns(params))
        if getattr(params, "columns", ()) and self.value is not None:
            raise ParameterError(
                f"value is {self.value!r}; expected None: the stream has the columns "
                f"{', '.join(declared)}"
            )
        for name, _ in self.columns:
            if name not in declared:
                raise ParameterError(
                    f"columns has {name!r}; the stream has "
                    + (f"the columns {', '.join(declared)}" if declared else "no columns")
                )

    def read(
        self,
        table: pa.Table,
        params: BuiltWith,
        *,
        only: RowFilter | None = None,
        refused: Literal["raise", "count"] = "raise",
    ) -> LogColumns:
        """Return a table as validated columns that a sketch's ``update`` accepts.

        Args:
            table: log rows.
            params: the sketch's parameters, or its sketch configuration.
            only: the rows to read. Others are not even checked for faults.
            refused: "raise" for the first rejected row, or "count" them all.

        Raises:
            ObservationError: a row is rejected (see :mod:`decaysketch.tables`).
            ParameterError: a column is not in the table, or times cannot be converted. See also
                :meth:`check`.
        """
        recipe = recipe_of(params)
        self.check(recipe)
        places = None
        if only is not None:
            table, places = self._chosen(table, recipe.params, only)
        refusals = Refusals(table.num_rows, places, raises=refused == "raise")
        self._refuse_torn(table, refusals)
        table = self._typed(table, refusals)
        timestamps, fallback = self._times(table, recipe.params, refusals)
        columns, missing = self._observations(table, recipe, refusals)
        refusals.within(timestamps, self.time, TIMES)
        columns["timestamps"] = timestamps
        kind, sites = recipe.kind.input, None
        if kind.sited and self.source is not None:
            sites = read_sites(table, self.source, refusals)
        elements = kind.value == "required"
        return LogColumns(table, columns, missing, fallback, refusals, elements, sites)

    def _refuse_torn(self, table: pa.Table, refusals: Refusals) -> None:
        if self.torn is None:
            return
        lines = column_of(table, self.torn)
        refusals.refuse(
            ~nulls_of(lines), self.torn,
            lambda row: (
                f"does not fit the heading or schema: {lines[row].as_py()!r:.120}",
                lines[row].as_py(),
            ),
        )  # fmt: skip

    def _observations(
        self, table: pa.Table, recipe: Recipe, refusals: Refusals
    ) -> tuple[dict[str, Column], BoolArray]:
        """Return the arguments for ``update`` except the times, and the mask of missing values."""
        params, kind, rows = recipe.params, recipe.kind.input, table.num_rows
        columns: dict[str, Column] = {}
        if kind.named_by == "ids":
            keys = (id_column(table, name, refusals) for name in self.ids)
            assert isinstance(params, SketchParams)  # as ``named_by`` says
            columns["ids"] = observation_ids(*keys, params=params)
            if kind.series:
                columns |= self._of_series(table, params, refusals)
        elif kind.named_by == "key":
            columns[_WORDS] = self._words(table, params, refusals)
        elif self.source is not None and self.sequence is not None:  # which :meth:`check` has seen
            columns["source"] = source_column(table, self.source, refusals)
            numbers = column_of(table, self.sequence)
            columns["sequence"] = integers_of(numbers, self.sequence, refusals, self._numerals)
        values: Any = np.zeros(rows, params.value_dtype)
        missing = np.ones(rows, dtype=bool)
        labelled = params.value_type == "label"
        if labelled:
            values = EncodedLabels((), np.full(rows, -1, np.int64))
            if self.value is not None:
                values = labels_of(table, self.value, refusals)
                missing = (values.numbers < 0) & ~refusals.rejected
        elif self.value is not None:
            column = column_of(table, self.value)
            if is_text(column.type):
                whole = params.value_type == "int64"
                column = numbers_of_texts(
                    column, self.value, self._numerals, refusals, integers=whole
                )
            missing = nulls_of(column)
            values = numbers_of(column, self.value, params.value_type, refusals)
            _refuse_outside(values, kind.value_bound, self.value, params, refusals)
        if declared := declared_columns(params):
            records: Any = records_of_table(table, self.columns, declared, self._numerals, refusals)
            if getattr(params, "attributes", ()):
                refuse_long(records, refusals)
                columns["attributes"] = records
            else:
                values, missing = records, np.zeros(rows, dtype=bool)
        if kind.value == "none":  # so none is missing
            missing = np.zeros(rows, dtype=bool)
        else:
            # Else such rows are left out, or labels say so themselves.
            if kind.value == "optional" and missing.any() and not labelled:
                values = np.ma.MaskedArray(values, mask=missing)
            columns["values"] = values
        if kind.weighted and self.weight is not None:
            weights = self._weights(table, self.weight, refusals)
            columns["weights"] = _refuse_negative(weights, self._weight_name, refusals)
        if kind.weight_bound is not None:
            columns["weights"] = np.ones(rows, dtype=np.int64)
            if self.weight is not None:
                weights = self._weights(table, self.weight, refusals)
                _refuse_outside(weights, kind.weight_bound, self._weight_name, params, refusals)
                columns["weights"] = weights
        return columns, missing

    def _of_series(
        self, table: pa.Table, params: SketchParams, refusals: Refusals
    ) -> dict[str, Column]:
        """Return the arguments for ``update`` that only series have."""
        columns: dict[str, Any] = {}
        if self.entity:
            keys = (id_column(table, name, refusals) for name in self.entity)
            columns["entities"] = observation_ids(*keys, params=params)
        if self.start is not None:
            starts, none = self._starts(column_of(table, self.start), params, refusals)
            times, _ = self._times(table, params, Refusals(table.num_rows, raises=False))
            refusals.refuse(
                ~none & (starts > times), self.start,
                lambda row: (f"is {starts[row]}, after the time, {times[row]}", int(starts[row])),
            )  # fmt: skip
            columns["starts"] = np.where(none, NO_START, starts)
        return columns

    def _starts(
        self, column: pa.Array, params: SketchParams, refusals: Refusals
    ) -> tuple[Int64Array, BoolArray]:
        """Return starts, and a mask for rows without one: null, or an empty cell."""
        assert self.start is not None
        if is_text(column.type):
            empty = pc.equal(pc.utf8_trim_whitespace(column), "")
            column = pc.if_else(empty, pa.scalar(None, column.type), column)
        none = nulls_of(column)
        if none.all():
            return np.zeros(len(column), np.int64), none
        filled = column.fill_null(column.drop_null()[0])  # any time, for it is not read
        return self._ticks(filled, self.start, params, refusals), none

    @property
    def _weight_name(self) -> str:
        return self.weight if isinstance(self.weight, str) else "weight"

    def _weights(self, table: pa.Table, name: str | int, refusals: Refusals) -> Int64Array:
        if isinstance(name, int):
            return np.full(table.num_rows, name, np.int64)
        return integers_of(column_of(table, name), name, refusals, self._numerals)

    def _words(self, table: pa.Table, params: Params, refusals: Refusals) -> UInt64Array:
        """Return the words that represent keys in counts. 0 for rejected ones."""
        keys = [id_column(table, name, refusals) for name in self.key]
        given: Any = tuple(keys) if len(keys) > 1 else keys[0]
        named = ", ".join(self.key)
        try:
            return words_of(params, given)
        except ObservationError as fault:
            if isinstance(given, tuple) or not isinstance(given, np.ndarray):
                refusals.refuse_column(named, f"cannot be keys: {fault}")
                return np.zeros(table.num_rows, np.uint64)
        faults: dict[int, str] = {}
        _find_faults(params, given, 0, faults)
        bad = np.zeros(table.num_rows, dtype=bool)
        bad[list(faults)] = True
        refusals.refuse(bad, named, lambda row: (faults[row], given[row].item()))
        words = np.zeros(table.num_rows, np.uint64)
        words[~bad] = words_of(params, given[~bad])
        return words

    def _chosen(
        self, table: pa.Table, params: Params, only: RowFilter
    ) -> tuple[pa.Table, Int64Array | None]:
        """Return the rows that a filter accepts, and their row numbers in the table."""
        places: Int64Array | None = None
        if only.where:
            mask = only.mask(table)
            if not mask.all():
                table, places = table.filter(pa.array(mask)), np.flatnonzero(mask)
        if only.since is not None or only.until is not None:
            unreadable = Refusals(table.num_rows, raises=False)
            times, _ = self._times(table, params, unreadable)
            mask = ~unreadable.rejected
            if only.since is not None:
                mask &= times >= only.since
            if only.until is not None:
                mask &= times < only.until
            if not mask.all():
                chosen = np.flatnonzero(mask)
                table = table.filter(pa.array(mask))
                places = chosen if places is None else places[chosen]
        return table, places

    def _times(
        self, table: pa.Table, params: Params, refusals: Refusals
    ) -> tuple[Int64Array, BoolArray]:
        column = column_of(table, self.time)
        fallback = nulls_of(column)
        if self.fallback_time is None or not fallback.any():
            return self._ticks(column, self.time, params, refusals), fallback
        other = column_of(table, self.fallback_time)
        refusals.refuse(
            fallback & nulls_of(other), self.time,
            lambda row: (f"is null, and so is {self.fallback_time}[{refusals.place(row)}]", None),
        )  # fmt: skip
        # What is not needed is not looked at: a row must not depend on those beside it.
        other = pc.if_else(pa.array(fallback), other, pa.scalar(None, other.type))
        own = self._ticks(without_gaps(column), self.time, params, refusals)
        of_own = refusals.zoneless & ~fallback
        refusals.zoneless[:] = False
        instead = self._ticks(without_gaps(other), self.fallback_time, params, refusals)
        np.copyto(refusals.zoneless, of_own, where=~fallback)
        return np.where(fallback, instead, own), fallback

    def ticks(self, column: pa.Array, params: Params) -> Int64Array:
        """Return times from a column of this log without nulls, such as the limits of a part, in
        the stream's unit.

        Raises:
            ObservationError: an invalid time.
            ParameterError: the units cannot be converted.
        """
        return self._ticks(column, self.time, params, Refusals(len(column), raises=True))

    def _ticks(self, column: pa.Array, name: str, params: Params, refusals: Refusals) -> Int64Array:
        """Return a time column in the stream's unit."""
        kind = column.type
        unit = self.time_unit or params.time_unit
        clocked = {unit, params.time_unit} <= NANOSECONDS.keys()
        zone = None if self.time_zone is None else zone_of(self.time_zone)
        if pa.types.is_date(kind):
            column = column.cast(pa.timestamp("ms"))
            unit, column = "ms", column.cast(pa.int64())
        elif pa.types.is_timestamp(kind):
            column = self._in_utc(column, name, zone, refusals)
            unit, column = kind.unit, column.cast(pa.int64())
        elif clocked and (
            is_text(kind) or (pa.types.is_floating(kind) and unit != params.time_unit)
        ):
            how = TimeTexts(unit, params.time_unit, zone, self.time_format)
            column = refuse_nulls(column, name, refusals)
            clean = None if self.time_format else cast_clean(column, integers=True)
            if clean is None:
                texts = column if is_text(kind) else texts_of_floats(column)
                return ticks_of_texts(texts, name, how, refusals)
            column = clean
        ticks = integers_of(column, name, refusals)
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
            given = ticks
            refusals.refuse(
                excessive, name,
                lambda row: (
                    f"is {given[row]} {unit}; expected at most 2^62 {params.time_unit} in "
                    "magnitude",
                    int(given[row]),
                ),
            )  # fmt: skip
            ticks = np.where(excessive, 0, ticks)
        return ticks * np.int64(factor)

    def _in_utc(
        self, column: pa.Array, name: str, zone: tzinfo | None, refusals: Refusals
    ) -> pa.Array:
        """Return timestamps in UTC. Timestamps without a zone are in the mapping's zone, or
        counted.
        """
        if column.type.tz is not None:
            return column
        if zone is None:
            refusals.zoneless |= ~nulls_of(column)
            return column
        moments, there = local_to_utc(column, zone)
        refusals.refuse(
            ~there, name,
            lambda row: (f"is {column[row]}, which clocks in {self.time_zone} skip", None),
        )  # fmt: skip
        return moments


def declared_columns(params: Params) -> ColumnTypes:
    """Return a stream's columns, or its series' attributes, which are texts."""
    attributes: tuple[str, ...] = getattr(params, "attributes", ())
    columns: ColumnTypes = getattr(params, "columns", ())
    return columns or tuple((name, "text") for name in attributes)


def _pairs(name: str, given: Any) -> tuple[tuple[str, Any], ...]:
    """Return a mapping, pairs, or names that stand for themselves as pairs."""
    if isinstance(given, str):
        given = [each.strip() for each in given.split(",") if each.strip()]
    listed = list(given.items()) if isinstance(given, Mapping) else list(given)
    pairs = [(each, each) if isinstance(each, str) else tuple(each) for each in listed]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(each, str) and each for each in pair):
            raise ParameterError(f"{name} has {pair!r:.80}; expected a name and a column")
    if len({first for first, _ in pairs}) < len(pairs):
        raise ParameterError(f"{name} is {given!r:.200}; expected each name once")
    return tuple(pairs)


def _cast_type(found: pa.Field, casts: Mapping[str, Cast]) -> pa.DataType:
    cast = casts.get(found.name)
    if cast == "text":
        return pa.string()
    return pa.int64() if cast == "int64" and holds_text(found.type) else found.type


_FEW = 0.01  # of the rows at either end, whose clocks may be anything


def refuse_other_unit(
    log: LogColumns, mapping: ColumnMapping, schema: pa.Schema, params: Params
) -> None:
    """Reject a log whose plain numbers are unlikely times in their unit, except few at either end.

    Args:
        log, mapping, schema, params: as in :func:`doubt_of_log`.

    Raises:
        OtherUnitError: they are dates in another unit.
    """
    if found := doubt_of_log(log, mapping, schema, params, but=_FEW):
        raise OtherUnitError(found)


def doubt_of_log(
    log: LogColumns,
    mapping: ColumnMapping,
    schema: pa.Schema,
    params: Params,
    *,
    but: float | None = None,
) -> str | None:
    """Return the reason why a log's times are unlikely in their unit. None: no fault.

    The numbers themselves show it or, if they are not dates, the name of their column.

    Args:
        log: the columns that the mapping read.
        mapping: the mapping that read it.
        schema: the log's schema.
        params: the sketch's parameters.
        but: a share of the numbers at either end to ignore. Then column types and names are ignored
            too.
    """
    times = log.columns["timestamps"][~log.refused]
    if not len(times):
        return None
    oldest, newest = int(times.min()), int(times.max())
    if but is not None:
        inner = np.quantile(times, [but, 1.0 - but], method="inverted_cdf")
        oldest, newest = (int(each) for each in inner)
    unit, kind = params.time_unit, schema.field(mapping.time).type
    numbers = not (pa.types.is_timestamp(kind) or pa.types.is_date(kind))
    if numbers and mapping.time_unit not in (None, unit):  # as they stand in the column
        read_in = str(mapping.time_unit)
        have, want = NANOSECONDS[read_in], NANOSECONDS[unit]
        oldest, newest, unit = oldest * want // have, newest * want // have, read_in
    if but is not None and not numbers:
        return None
    source = f"the times of column {mapping.time!r}"
    if (found := doubt(unit, oldest, newest)) is not None:
        return f"{source} are hardly in {unit}: {found}"
    named = unit_in_name(mapping.time) if numbers and but is None else None
    if named in (None, unit) or mapping.time_unit is not None or dated(unit, newest) is not None:
        return None
    return f"{source} are read in {unit}, and its name ends like that of one in {named}"


def zoneless(time: str) -> str:
    """Return the warning for times without a zone, if no zone was given."""
    return f"times without a time zone in column {time!r} are read as UTC"


def words_of(params: Params, keys: Any) -> UInt64Array:
    """Return the words that represent keys in counts, for parameters in a family that counts
    keys.
    """
    words: UInt64Array = params.words_of(keys)  # type: ignore[attr-defined]  # as ``named_by`` says
    return words


def _find_faults(params: Params, keys: Column, start: int, faults: dict[int, str]) -> None:
    """Find invalid keys, by halving: O(faults log rows) calls."""
    try:
        words_of(params, keys)
    except ObservationError as fault:
        if len(keys) == 1:
            faults[start] = str(fault).partition(" ")[2]  # behind the name of the row
            return
        half = len(keys) // 2
        _find_faults(params, keys[:half], start, faults)
        _find_faults(params, keys[half:], start + half, faults)


def _refuse_negative(weights: Int64Array, name: str, refusals: Refusals) -> Int64Array:
    """Return weights that no parameter bounds. 0 for rejected ones."""
    bad = refusals.within(weights, name, _EVENTS)
    return weights if bad is None else np.where(bad, 0, weights)


def _refuse_outside(
    numbers: Column, limit: str | None, name: str, params: Params, refusals: Refusals
) -> None:
    """Reject entries outside 0 to the parameter with this name. Without one, do nothing."""
    if limit is None:
        return
    refusals.within(numbers, name, Limit.named(0, params.to_dict()[limit], limit))
