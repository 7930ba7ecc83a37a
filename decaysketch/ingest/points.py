"""Readings of time series, by columns, because there are many readings and few series.

Each has the key ``(series, field, number)``. The series and the field are stored once for all of
their readings, and hashed once. The number is the time, or the number of the period.

If a mapping fills columns, a reading may have several fields. Its key has no field then if the
protocol names several in one line. Columns that all readings of a series share are stored once.

Readers add single readings, or arrays (:meth:`Points.extend`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from decaysketch.core.ranges import Range
from decaysketch.ingest.batch import Batch
from decaysketch.ingest.record_columns import Cells, Layout

__all__ = ["Integers", "PointColumns", "Points", "Values", "codes_of"]

K = TypeVar("K", bound=Hashable)

Int64Array = npt.NDArray[np.int64]
Integers = Int64Array | list[int]
"""An array, or a list if a number is beyond 64 bits."""
Value = float | int | str | Range | None
Values = npt.NDArray[Any] | list[Value] | None
"""An array (float64 or int64), a list if there are other values, or None if no row has one."""


class PointColumns(NamedTuple):
    """A body's readings.

    Attributes:
        codes: series and field, as a number.
        numbers: the last key part, within 64 bits for any time.
        times_ns: since 1970-01-01 UTC; any integer.
        values: a number, a range of numbers, or a label; None: the observation has no value.
        weights: integers.
        places: position in the body, a number that begins at 1.
    """

    codes: Int64Array
    numbers: Integers
    times_ns: Integers
    values: Values
    weights: Integers
    places: Int64Array


@dataclass(eq=False)
class Points(Batch):
    """A body's rows for one stream, as a parser finds them: by series, with times in nanoseconds.

    :func:`~decaysketch.ingest.columns.points_to_columns` adds a batch's columns, in the stream's
    unit. Before that only ``rows`` and ``told`` mean anything. There ``told.readings`` is empty.

    Attributes:
        series, fields: the two texts of a key, by code. No field if it is empty.
        layouts: with declared columns: those that a series fills, by code.
        cells: with declared columns: rows and values, by column, in addition to ``values``.
        form: the format, if its texts contain labels (:mod:`decaysketch.ingest.series_rows`).
        entity: labels that name the entity. Empty: each series is one.
        starts_ns: by reading, when its counter began to count.
    """

    series: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    cells: dict[str, list[Cells]] = field(default_factory=dict)
    form: str = ""
    entity: tuple[str, ...] = ()
    starts_ns: dict[int, int] = field(default_factory=dict)
    _single: list[tuple[Any, ...]] = field(default_factory=list)
    _parts: list[PointColumns] = field(default_factory=list)
    _listed: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Points):
            return NotImplemented
        mine, theirs = (
            (each.told, each.series, each.fields, each.form, each.entity, each.starts_ns,
             [each.listed(name) for name in PointColumns._fields])
            for each in (self, other)
        )  # fmt: skip
        return mine == theirs

    def enter(self, series: str, name: str, layout: Layout | None = None) -> int:
        """Return a code for a new pair, with the columns that its readings share."""
        self.series.append(series)
        self.fields.append(name)
        if layout is not None:
            self.layouts.append(layout)
        return len(self.series) - 1

    def enter_all(
        self, series: Sequence[str], names: Iterable[str], layouts: Iterable[Layout | None]
    ) -> range:
        """Do the same for many new pairs. Return their codes."""
        begin = len(self.series)
        self.series.extend(series)
        self.fields.extend(names)
        self.layouts.extend(each for each in layouts if each is not None)
        return range(begin, len(self.series))

    def add(
        self, code: int, number: int, time_ns: int, value: Any, weight: int, place: int
    ) -> None:
        """Add a reading."""
        self._single.append((code, number, time_ns, value, weight, place))
        self.rows += 1

    def extend(
        self,
        codes: Int64Array,
        numbers: Int64Array,
        times_ns: Int64Array,
        values: Values,
        places: Int64Array,
    ) -> None:
        """Add many readings with the weight 1."""
        self._seal()
        if isinstance(values, list) and set(map(type, values)) == {float}:
            values = np.array(values, np.float64)
        weights = np.ones(len(codes), np.int64)
        self._parts.append(PointColumns(codes, numbers, times_ns, values, weights, places))
        self.rows += len(codes)

    def fill(self, begin: int, columns: Sequence[str], values: Iterable[Any]) -> None:
        """Add column values to some rows, the first one at ``begin``."""
        for name, each in zip(columns, values, strict=True):
            rows = np.arange(begin, begin + len(each), dtype=np.int64)
            self.cells.setdefault(name, []).append((rows, each))

    def key(self, row: int) -> tuple[str | int, ...]:
        """Return the key of a reading: ``observation_ids(*key)`` is its id."""
        code = self.listed("codes")[row]
        field = (self.fields[code],) if self.fields[code] else ()
        return self.series[code], *field, self.listed("numbers")[row]

    # ------------------------------------------------------------------------------------ columns

    def readings(self) -> PointColumns:
        """Return all readings. O(readings) if some were added since the last call, else O(1)."""
        self._seal()
        if not self._parts:
            empty = np.empty(0, np.int64)
            return PointColumns(empty, empty, empty, empty, empty, empty)
        if len(self._parts) > 1:
            found: list[Any] = [
                _joined_values(self._parts)
                if name == "values"
                else _joined([getattr(part, name) for part in self._parts])
                for name in PointColumns._fields
            ]
            self._parts = [PointColumns(*found)]
        return self._parts[0]

    def listed(self, name: str) -> list[Any]:
        """Return all readings' entries in a column, by its name in :class:`PointColumns`, as a
        list. O(readings) likewise.
        """
        found = self._listed.get(name)
        if found is None or len(found) != self.rows:
            column = getattr(self.readings(), name)
            found = [None] * self.rows if column is None else _as_list(column)
            self._listed[name] = found
        return found

    def cells_by_column(self) -> dict[str, list[Cells]]:
        """Return rows and values by column. O(readings)."""
        found = dict(self.cells)
        filled = [each.value for each in self.layouts]
        names = {name: place for place, name in enumerate(dict.fromkeys(filled)) if name}
        if not names:
            return found
        columns = self.readings()
        values = [None] * self.rows if columns.values is None else columns.values
        if len(names) == 1 and all(filled):
            return found | {name: [(None, values)] for name in names}
        of_code = np.array([names.get(name, -1) for name in filled], np.int64)[columns.codes]
        for name, number in names.items():
            rows = np.flatnonzero(of_code == number)
            found[name] = [*found.get(name, ()), (rows, _taken(values, rows))]
        return found

    def sort(self) -> None:
        """Order the readings by place, if a reader added them in another order.
        O(readings log readings).
        """
        found = self.readings()
        places = found.places
        if not (places[1:] < places[:-1]).any():
            return
        order = np.argsort(places, kind="stable")
        self._listed = {}
        self._parts = [PointColumns(*(_taken(column, order) for column in found))]
        if self.starts_ns:
            row = np.argsort(order).tolist()
            self.starts_ns = {row[old]: start for old, start in self.starts_ns.items()}

    def _seal(self) -> None:
        """Make a part from the single readings."""
        if not self._single:
            return
        columns = map(list, zip(*self._single, strict=True))
        codes, numbers, times_ns, values, weights, places = columns
        self._single = []
        kinds = set(map(type, values))
        if kinds == {float}:
            of_values: Values = np.array(values, np.float64)
        else:
            of_values = None if kinds == {type(None)} else values
        self._parts.append(PointColumns(
            np.array(codes, np.int64), _integers(numbers), _integers(times_ns), of_values,
            _integers(weights), np.array(places, np.int64),
        ))  # fmt: skip


def codes_of(
    keys: Sequence[K], known: dict[K, int], enter: Callable[[list[K]], Iterable[int]]
) -> Int64Array:
    """Return the code of each key. ``enter`` returns codes for new ones, which become known.

    Args:
        keys: distinct.
    """
    found = [*map(known.get, keys)]
    if None in found:
        new = [key for key, code in zip(keys, found, strict=True) if code is None]
        known.update(zip(new, enter(new), strict=True))
        found = [*map(known.__getitem__, keys)]
    return np.array(found, np.int64)


def _integers(numbers: list[int]) -> Integers:
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return numbers


def _joined(parts: Sequence[Any]) -> Any:
    if all(isinstance(each, np.ndarray) for each in parts):
        return np.concatenate(parts)
    return [item for each in parts for item in _as_list(each)]


def _joined_values(parts: Sequence[PointColumns]) -> Values:
    values: list[Any] = [each.values for each in parts]
    if all(each is None for each in values):
        return None
    kinds = {each.dtype.kind if isinstance(each, np.ndarray) else "" for each in values}
    if len(kinds) == 1 and kinds != {""}:
        return np.concatenate(values)
    return [
        item
        for part, each in zip(parts, values, strict=True)
        for item in (repeat(None, len(part.codes)) if each is None else _as_list(each))
    ]


def _as_list(column: Any) -> list[Any]:
    return list(column.tolist() if isinstance(column, np.ndarray) else column)


def _taken(column: Any, order: npt.NDArray[np.intp]) -> Any:
    if column is None or isinstance(column, np.ndarray):
        return None if column is None else column[order]
    return [column[row] for row in order.tolist()]
