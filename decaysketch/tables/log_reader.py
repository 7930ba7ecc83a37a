"""The rows of a log as arguments for a sketch, read by a mapping and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.arrays import Column
from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.hashing import HashedKeys
from decaysketch.core.labels import EncodedLabels
from decaysketch.core.observations import observation_ids
from decaysketch.core.params import SketchParams
from decaysketch.core.row_check import TIME_LIMIT, TIMES, Limit
from decaysketch.core.text_values import PLAIN
from decaysketch.errors import ObservationError
from decaysketch.families import Params, Recipe, Sketch
from decaysketch.tables.columns import (
    as_text,
    column_of,
    id_column,
    integers_of,
    is_text,
    labels_of,
    nulls_of,
    numbers_of,
    source_column,
)
from decaysketch.tables.filters import RowFilter
from decaysketch.tables.log_times import ticks_of, times_of
from decaysketch.tables.records import records_of_table, refuse_long
from decaysketch.tables.rejections import Refusals
from decaysketch.tables.row_sources import Sites, by_code, read_sites
from decaysketch.tables.texts import numbers as numbers_of_texts

if TYPE_CHECKING:
    from decaysketch.tables.mapping import ColumnMapping

__all__ = ["LogColumns", "LogReader", "declared_columns"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

NO_START = -(1 << 63)
"""The start of a counter that names none."""

_WORDS = "keys"  # the argument of ``update`` whose column is of hashes
_EVENTS = Limit(0, TIME_LIMIT - 1, "0 to 2^62 - 1")  # weights of one event


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


class LogReader:
    """Reads one table by a mapping.

    Args:
        mapping: the meaning of the columns, checked for the sketch.
        table: log rows.
        recipe: the sketch configuration.
        only: the rows to read. Others are not even checked for faults.
        raises: whether the first rejected row raises.
    """

    def __init__(
        self,
        mapping: ColumnMapping,
        table: pa.Table,
        recipe: Recipe,
        only: RowFilter | None,
        *,
        raises: bool,
    ) -> None:
        places = None
        if only is not None:
            table, places = _chosen(mapping, table, recipe.params, only)
        self.mapping, self.table = mapping, table
        self.params, self.kind = recipe.params, recipe.kind.input
        self.refusals = Refusals(table.num_rows, places, raises=raises)

    def read(self) -> LogColumns:
        """Return the columns that a sketch's ``update`` accepts. O(rows)."""
        mapping, refusals = self.mapping, self.refusals
        self._refuse_torn()
        self.table = table = self._cast()
        timestamps, fallback = times_of(mapping, table, self.params, refusals)
        columns, missing = self._observations()
        refusals.within(timestamps, mapping.time, TIMES)
        columns["timestamps"] = timestamps
        sites = None
        if self.kind.sited and mapping.source is not None:
            sites = read_sites(table, mapping.source, refusals)
        elements = self.kind.value == "required"
        return LogColumns(table, columns, missing, fallback, refusals, elements, sites)

    def _refuse_torn(self) -> None:
        if self.mapping.torn is None:
            return
        lines = column_of(self.table, self.mapping.torn)
        self.refusals.refuse(
            ~nulls_of(lines), self.mapping.torn,
            lambda row: (
                f"does not fit the heading or schema: {lines[row].as_py()!r:.120}",
                lines[row].as_py(),
            ),
        )  # fmt: skip

    def _cast(self) -> pa.Table:
        """Return the table with its columns cast."""
        table = self.table
        for name, kind in self.mapping.casts:
            if name not in table.column_names:
                continue
            place, column = table.column_names.index(name), column_of(table, name)
            if kind == "text":
                table = table.set_column(place, name, as_text(column, name))
            elif is_text(column.type):
                column = numbers_of_texts(column, name, PLAIN, self.refusals, integers=True)
                table = table.set_column(place, name, column)
        return table

    def _observations(self) -> tuple[dict[str, Column], BoolArray]:
        """Return the arguments for ``update`` except the times, and the mask of missing values."""
        columns = self._names()
        values, missing = self._values()
        if declared := declared_columns(self.params):
            named, numerals = self.mapping.columns, self.mapping.numerals
            records: Any = records_of_table(self.table, named, declared, numerals, self.refusals)
            if getattr(self.params, "attributes", ()):
                refuse_long(records, self.refusals)
                columns["attributes"] = records
            else:
                values, missing = records, np.zeros(len(missing), dtype=bool)
        if self.kind.value != "none":
            columns["values"] = values
        if self.kind.weighted or self.kind.weight_bound is not None:
            columns |= self._weights()
        return columns, missing

    def _names(self) -> dict[str, Column]:
        """Return the arguments for ``update`` that name a row."""
        table, refusals, mapping = self.table, self.refusals, self.mapping
        if self.kind.named_by == "key":
            return {_WORDS: self._words()}
        if self.kind.named_by == "ids":
            keys = (id_column(table, name, refusals) for name in mapping.ids)
            assert isinstance(self.params, SketchParams)  # as ``named_by`` says
            columns = {"ids": observation_ids(*keys, params=self.params)}
            return columns | self._of_series(self.params) if self.kind.series else columns
        assert mapping.source is not None  # which :meth:`ColumnMapping.check` has seen
        assert mapping.sequence is not None
        numbers = column_of(table, mapping.sequence)
        return {
            "source": source_column(table, mapping.source, refusals),
            "sequence": integers_of(numbers, mapping.sequence, refusals, mapping.numerals),
        }

    def _values(self) -> tuple[Any, BoolArray]:
        """Return values, and the mask of missing ones."""
        params, name, rows = self.params, self.mapping.value, self.table.num_rows
        labelled = params.value_type == "label"
        values: Any = np.zeros(rows, params.value_dtype)
        missing = np.ones(rows, dtype=bool)
        if name is not None and labelled:
            values = labels_of(self.table, name, self.refusals)
            missing = (values.numbers < 0) & ~self.refusals.rejected
        elif name is not None:
            values, missing = self._numbers(name)
        elif labelled:
            values = EncodedLabels((), np.full(rows, -1, np.int64))
        if self.kind.value == "none":  # so none is missing
            missing = np.zeros(rows, dtype=bool)
        elif self.kind.value == "optional" and missing.any() and not labelled:
            # Other families drop such rows, and labels mark missing values themselves.
            values = np.ma.MaskedArray(values, mask=missing)
        return values, missing

    def _numbers(self, name: str) -> tuple[Column, BoolArray]:
        """Return a column of numbers, within their limit, and the mask of missing ones."""
        column, kind = column_of(self.table, name), self.params.value_type
        if is_text(column.type):
            numerals, whole = self.mapping.numerals, kind == "int64"
            column = numbers_of_texts(column, name, numerals, self.refusals, integers=whole)
        values = numbers_of(column, name, kind, self.refusals)
        if (bound := self.kind.value_bound) is not None:
            self.refusals.within(values, name, _limit(self.params, bound))
        return values, nulls_of(column)

    def _weights(self) -> dict[str, Column]:
        """Return the weights, within their limit, or nothing where the family has none."""
        weight = self.mapping.weight
        if weight is None:
            rows = self.table.num_rows
            return {} if self.kind.weight_bound is None else {"weights": np.ones(rows, np.int64)}
        name = weight if isinstance(weight, str) else "weight"
        if isinstance(weight, int):
            weights = np.full(self.table.num_rows, weight, np.int64)
        else:
            column, numerals = column_of(self.table, weight), self.mapping.numerals
            weights = integers_of(column, name, self.refusals, numerals)
        bad = self.refusals.within(weights, name, self._weight_limit)
        return {"weights": weights if bad is None else np.where(bad, 0, weights)}

    @property
    def _weight_limit(self) -> Limit:
        bound = self.kind.weight_bound
        return _EVENTS if bound is None else _limit(self.params, bound)

    def _of_series(self, params: SketchParams) -> dict[str, Column]:
        """Return the arguments for ``update`` that only series have."""
        table, refusals = self.table, self.refusals
        columns: dict[str, Any] = {}
        if self.mapping.entity:
            keys = (id_column(table, name, refusals) for name in self.mapping.entity)
            columns["entities"] = observation_ids(*keys, params=params)
        if self.mapping.start is not None:
            starts, none = self._starts(column_of(table, self.mapping.start))
            times, _ = times_of(self.mapping, table, params, Refusals(table.num_rows, raises=False))
            refusals.refuse(
                ~none & (starts > times), self.mapping.start,
                lambda row: (f"is {starts[row]}, after the time, {times[row]}", int(starts[row])),
            )  # fmt: skip
            columns["starts"] = np.where(none, NO_START, starts)
        return columns

    def _starts(self, column: pa.Array) -> tuple[Int64Array, BoolArray]:
        """Return starts, and a mask for rows without one: null, or an empty cell."""
        assert self.mapping.start is not None
        if is_text(column.type):
            empty = pc.equal(pc.utf8_trim_whitespace(column), "")
            column = pc.if_else(empty, pa.scalar(None, column.type), column)
        none = nulls_of(column)
        if none.all():
            return np.zeros(len(column), np.int64), none
        filled = column.fill_null(column.drop_null()[0])  # any time, for it is not read
        return ticks_of(self.mapping, filled, self.mapping.start, self.params, self.refusals), none

    def _words(self) -> UInt64Array:
        """Return the words that represent keys in counts. 0 for rejected ones."""
        table, params, refusals = self.table, self.params, self.refusals
        keys = [id_column(table, name, refusals) for name in self.mapping.key]
        given: Any = tuple(keys) if len(keys) > 1 else keys[0]
        named = ", ".join(self.mapping.key)
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
    mapping: ColumnMapping, table: pa.Table, params: Params, only: RowFilter
) -> tuple[pa.Table, Int64Array | None]:
    """Return the rows that a filter accepts, and their row numbers in the table."""
    places: Int64Array | None = None
    if only.where:
        mask = only.mask(table)
        if not mask.all():
            table, places = table.filter(pa.array(mask)), np.flatnonzero(mask)
    if only.since is not None or only.until is not None:
        unreadable = Refusals(table.num_rows, raises=False)
        times, _ = times_of(mapping, table, params, unreadable)
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


def declared_columns(params: Params) -> ColumnTypes:
    """Return a stream's columns, or its series' attributes, which are texts."""
    attributes: tuple[str, ...] = getattr(params, "attributes", ())
    columns: ColumnTypes = getattr(params, "columns", ())
    return columns or tuple((name, "text") for name in attributes)


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


def _limit(params: Params, bound: str) -> Limit:
    """Return the limit 0 to the parameter with this name."""
    return Limit.named(0, params.to_dict()[bound], bound)
