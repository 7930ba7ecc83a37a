"""The meaning of a log's columns, for every interface that builds sketches from logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

import pyarrow as pa

from decaysketch.core.log_columns import FIELDS, check_arguments
from decaysketch.core.text_values import Numerals, check_time_format, zone_of
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ParameterError
from decaysketch.families import BuiltWith, Params, recipe_of
from decaysketch.tables.columns import (
    holds_text,
)
from decaysketch.tables.filters import RowFilter
from decaysketch.tables.log_reader import LogColumns, LogReader, declared_columns

__all__ = ["ColumnMapping"]


_TUPLES = ("ids", "key", "entity")


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
        "Columns that together identify an observation, with commas. Use the same order for all "
        "sketches that you merge.",
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
        "source_column", "The source of an element, if sources number elements."
    )
    sequence: str | None = _column(
        "sequence_column", "The sequence numbers of a source's elements."
    )
    value: str | None = _column(
        "value_column", "The measured number or label. '' for none, as in a stream with --columns."
    )
    columns: tuple[tuple[str, str], ...] = _column(
        "columns",
        "Columns of a stream with columns, with commas: 'temp, site'; with types 'temp float64, "
        "site text'; from columns with other names 'temp=t_degc'; or '*' for all others.",
        (),
    )
    weight: str | int | None = _column(
        "weight_column", "Integer weights. Default: every weight is 1."
    )
    fallback_time: str | None = _column("fallback_time_column", "Replaces a null time.")
    time_unit: str | None = _column(
        "column_unit", "Unit of times that are plain numbers. Default: the stream's unit."
    )
    time_zone: str | None = _column(
        "time_zone",
        "Zone of times without one, such as Europe/Berlin or +02:00. Default: UTC, with a warning.",
    )
    time_format: str | None = _column(
        "time_format",
        "Format of times as text, for strptime, such as '%d/%m/%Y %H:%M:%S'. Default: ISO 8601 or "
        "31.01.2026 12:00.",
    )
    decimal: str = _column(
        "decimal", "The decimal mark of numbers as text. Default: detected if unambiguous.", "."
    )
    thousands: str = _column(
        "thousands", "The thousands mark of numbers as text. Default: detected if unambiguous.", ""
    )
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
        self.numerals.check()

    @property
    def numerals(self) -> Numerals:
        """The format of numbers that are texts."""
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
                    "expected the columns of the counted key, and no columns that identify an "
                    "event"
                )
        elif self.source is None or self.sequence is None:
            raise ParameterError(
                f"source is {self.source!r} and sequence is {self.sequence!r}; expected a column "
                "each: elements without numbers from their source would count again at each read"
            )
        for name in ("entity", "start"):
            if (given := getattr(self, name)) and not kind.series:
                raise ParameterError(
                    f"{name} is {given!r}; expected none: only the family 'series' has it"
                )
        self._check_values(recipe_of(params).params)
        if kind.value == "required" and self.value is None:
            raise ParameterError(
                "value is None; expected a column, because a sampler samples values"
            )
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
        return LogReader(self, table, recipe, only, raises=refused == "raise").read()


def _pairs(name: str, given: Any) -> tuple[tuple[str, Any], ...]:
    """Return a mapping, pairs, or names as pairs. A name alone is paired with itself."""
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
