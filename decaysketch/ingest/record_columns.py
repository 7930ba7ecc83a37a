"""Message values as columns in a record stream.

A mapping with ``columns`` makes one observation from a line, a sample, a data point or a message.
Its ``columns`` are ``"*"`` (every declared column, by its own name), a list of names, or sources by
column name. A column that a message does not have is null.

A value that its column cannot contain becomes null too, and is counted by column and reason. The
other columns of its row stay.

============== =====================================================================================
reason         value
============== =====================================================================================
``type``       another type: a text in a truth column, a fraction in an ``int64`` column
``not-finite`` an infinity. NaN is null and is not counted
``range``      an integer that float64 or int64 cannot represent
``too-long``   a text with more than 1,024 bytes
``undeclared`` a value whose name is no declared column, if a mapping reads ``"*"``
``too-many``   values beyond the first :data:`MAX_MEMBERS` members of an object
============== =====================================================================================

A text that is a number fills a number column, because protocols write numbers in quotes.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from decaysketch.core.column_types import ColumnType, ColumnTypes
from decaysketch.core.labels import MAX_LABEL_BYTES, fault_of_label
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.records import Record, Records, encode_records
from decaysketch.core.text_values import TextError, number_of
from decaysketch.errors import ParameterError

__all__ = [
    "EVERY",
    "MAX_MEMBERS",
    "MEASUREMENT",
    "METRIC",
    "ColumnSources",
    "ColumnValues",
    "Dropped",
    "Filling",
    "Layout",
    "columns_of",
    "drop",
    "records_of",
]

METRIC, MEASUREMENT = "metric", "measurement"
"""Sources that name a series."""
EVERY = "*"
"""As ``columns`` of a mapping: every declared column, by its name."""
MAX_MEMBERS = 256
"""Members of an object that a mapping reads with ``.*``."""

ColumnSources: TypeAlias = "str | tuple[str, ...] | Mapping[str, str]"
Dropped: TypeAlias = "Counter[tuple[str, str]]"
"""Number of dropped values by column name and reason."""

_NAMES_KEPT = 40  # of dropped columns in a body, and 20 of a series
_NAMES_OF_A_SERIES = 20
_DROPPED_BYTES = 250  # with its name
_EXACT = 1 << 53
_INT64_LIMIT = 1 << 63
_UNDECLARED = "undeclared"


def drop(into: Dropped, column: str, reason: str, count: int = 1) -> None:
    """Count dropped values. Column names beyond the first ones share the empty name. O(1)."""
    key = column[:MAX_LABEL_BYTES], reason
    if key not in into and len(into) >= _NAMES_KEPT:
        key = "", reason
    into[key] += count


class Layout(NamedTuple):
    """The columns that a series fills.

    Attributes:
        constants: for each declared column the value that all readings share, or None.
        value: the column that a reading's value fills. Empty: none.
        dropped: column, reason and count of values that each reading drops.
    """

    constants: tuple[Any, ...]
    value: str = ""
    dropped: tuple[tuple[str, str, int], ...] = ()

    @property
    def bytes(self) -> int:
        """Memory, about."""
        texts = [each for each in self.constants if each is not None]
        return 200 + 8 * len(self.constants) + sum(map(sys.getsizeof, texts)) + _DROPPED_BYTES * (
            len(self.dropped)
        )  # fmt: skip


class Filling:
    """A mapping's ``columns``, compiled for a stream's declared columns.

    Args:
        columns: as the mapping has them.
        types: declared columns.
        missing: values that mean "no value".

    Raises:
        ParameterError: a column is not declared.

    Attributes:
        types: declared columns.
        of_source: numbers of the columns that a source fills, by source.
        open: whether a source without a column counts as dropped.
    """

    def __init__(
        self, columns: ColumnSources, types: ColumnTypes, missing: tuple[Any, ...] = ()
    ) -> None:
        self.types = types
        self.open = columns == EVERY
        self.missing = missing
        number = {name: place for place, (name, _) in enumerate(types)}
        sources = columns if isinstance(columns, Mapping) else dict.fromkeys(
            number if columns == EVERY else columns
        )  # fmt: skip
        self.of_source: dict[str, tuple[int, ...]] = {}
        for name, source in sources.items():
            if name not in number:
                raise ParameterError(_undeclared(name, types))
            source = name if source is None else source
            self.of_source[source] = (*self.of_source.get(source, ()), number[name])

    def layout(
        self, labels: Mapping[str, Any], own: Mapping[str, str], *, value: str = ""
    ) -> Layout:
        """Return the columns that a series fills. O(columns), and O(labels) for ``"*"``.

        Args:
            labels: values that all of its readings share, by source.
            own: the same, by protocol names, such as ``metric``.
            value: source name for a reading's value. Empty: there is none.
        """
        constants: list[Any] = [None] * len(self.types)
        dropped: Counter[tuple[str, str]] = Counter()
        for source, numbers in self.of_source.items():
            given = own.get(source) or labels.get(source)
            if given is None or (self.missing and given in self.missing):
                continue
            for number in numbers:
                name, kind = self.types[number]
                constants[number], reason = _fitted(given, kind, number_of)
                if reason:
                    dropped[name, reason] += 1
        if self.open:
            dropped += self.undeclared(labels)
        filled = self.of_source.get(value, ()) if value else ()
        return Layout(
            tuple(constants),
            self.types[filled[0]][0] if filled else "",
            tuple((name, reason, count) for (name, reason), count in dropped.items()),
        )

    def undeclared(self, names: Iterable[str]) -> Counter[tuple[str, str]]:
        """Count names without a column, the first ones by name."""
        unknown = [name for name in names if name not in self.of_source]
        found = Counter((name[:100], _UNDECLARED) for name in unknown[:_NAMES_OF_A_SERIES])
        if rest := len(unknown) - _NAMES_OF_A_SERIES:
            found["", _UNDECLARED] = max(rest, 0)
        return +found


def _undeclared(name: str, types: ColumnTypes) -> str:
    known = [each for each, _ in types]
    near = difflib.get_close_matches(name, known, 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(f"{each} ({kind})" for each, kind in types)
    return f"columns has {name!r:.80}; the stream declares {listed}{hint}"


class ColumnValues(NamedTuple):
    """A reading that fills columns.

    Attributes:
        values: by column name.
        number: reads a number that is written as text. Raises TextError: it is none.
        beyond: values that were not read, because there are too many.
    """

    values: Mapping[str, Any]
    number: Callable[[str], Any]
    beyond: int = 0


# ------------------------------------------------------------------------------------- conversion


def _fitted(given: Any, kind: ColumnType, number: Callable[[str], Any]) -> tuple[Any, str]:
    """Return a value as its column has it, and the reason if it is dropped."""
    type_ = type(given)
    if given is None or given != given:
        return None, ""
    if kind == "text":
        if type_ is not str:
            return None, "type"
        fault = fault_of_label(given)
        return (given, "") if fault is None else (None, _reason_of_text(given))
    if kind == "bool":
        return (given, "") if type_ is bool else (None, "type")
    if type_ is str:
        try:
            given = number(given)
        except TextError:
            return None, "type"
        type_ = type(given)
    if type_ is float:
        if not math.isfinite(given):
            return None, "not-finite"
        if kind == "float64":
            return given, ""
        is_whole = given.is_integer() and abs(given) <= _EXACT
        return (int(given), "") if is_whole else (None, "type")
    if type_ is not int:
        return None, "" if given is None else "type"
    if kind == "float64":
        return (given, "") if abs(given) <= _EXACT else (None, "range")
    return (given, "") if abs(given) < _INT64_LIMIT else (None, "range")


def _reason_of_text(given: str) -> str:
    return "too-long" if len(given.encode("utf-8", "replace")) > MAX_LABEL_BYTES else "type"


def records_of(
    types: ColumnTypes,
    codes: npt.NDArray[np.int64],
    layouts: Sequence[Layout],
    cells: Mapping[str, tuple[Any, Sequence[Any]]],
    dropped: Dropped,
) -> Records:
    """Return all columns, for readings by series. O(rows * columns).

    Args:
        types: declared columns.
        codes: series by row.
        layouts: columns by series.
        cells: rows and values by column, for values that differ within a series. Rows None: all.
        dropped: receives counts by column and reason.
    """
    _count_constants(codes, layouts, dropped)
    given: dict[str, Any] = {}
    for number, (name, kind) in enumerate(types):
        rows, values = cells.get(name, ([], ()))
        if kind != "text" and len(values) == len(codes):
            given[name] = _column(values, kind, name, dropped)
            if rows is not None:
                order = np.asarray(rows, np.int64)
                given[name][order] = given[name].copy()
            continue
        constants = [each.constants[number] for each in layouts]
        if kind == "text":
            given[name] = _texts(constants, codes, rows, values, name, dropped)
            continue
        column = _numbers(constants, kind)[codes]
        if len(values):
            column[np.asarray(rows, np.int64)] = _column(values, kind, name, dropped)
        given[name] = column
    return encode_records(given, types, len(codes))


def _count_constants(
    codes: npt.NDArray[np.int64], layouts: Sequence[Layout], dropped: Dropped
) -> None:
    if not any(each.dropped for each in layouts):
        return
    rows = np.bincount(codes, minlength=len(layouts)).tolist()
    together: Counter[tuple[tuple[str, str, int], ...]] = Counter()
    for each, count in zip(layouts, rows, strict=True):
        together[each.dropped] += count
    for parts, count in together.items():
        for name, reason, each_time in parts:
            if count:
                drop(dropped, name, reason, each_time * count)


def _numbers(values: Sequence[Any], kind: ColumnType) -> Any:
    """Return values that fit as an array. Null is NaN or masked."""
    if kind == "float64":
        return np.array(values, np.float64)
    data = np.array([each or 0 for each in values], np.bool_ if kind == "bool" else np.int64)
    return np.ma.MaskedArray(data, [each is None for each in values])


def _texts(
    constants: Sequence[Any],
    codes: npt.NDArray[np.int64],
    rows: Sequence[int] | None,
    values: Sequence[Any],
    name: str,
    dropped: Dropped,
) -> Record:
    distinct = dict.fromkeys(constants)
    distinct.pop(None, None)
    number: dict[Any, int] = {None: -1, **dict(zip(distinct, range(len(distinct)), strict=True))}
    numbers = np.fromiter(map(number.__getitem__, constants), np.int64, len(constants))[codes]
    if len(values):
        fitted = _slowly(values, "text", name, dropped)
        for each in dict.fromkeys(fitted):
            number.setdefault(each, len(number) - 1)
        found = np.fromiter(map(number.__getitem__, fitted), np.int64, len(fitted))
        numbers[slice(None) if rows is None else np.asarray(rows, np.int64)] = found
    del number[None]
    return Record(np.where(numbers < 0, np.int64(MISSING_KEY), numbers), list(number))


def _column(
    values: Sequence[Any],
    kind: ColumnType,
    name: str,
    dropped: Dropped,
    numbers: Sequence[Callable[[str], Any]] | None = None,
) -> Any:
    """Return values as a column. ``numbers`` read texts that are numbers, by row."""
    types = set(map(type, values))
    if kind == "float64" and types <= {float, type(None)}:
        array = np.array(values, np.float64)
        if (infinite := np.isinf(array)).any():
            drop(dropped, name, "not-finite", int(infinite.sum()))
            array[infinite] = np.nan
        return array
    if types == {int} and kind in ("float64", "int64"):
        limit = _EXACT if kind == "float64" else _INT64_LIMIT - 1
        if -limit <= min(values) and max(values) <= limit:
            return np.array(values, kind)
    fitted = _slowly(values, kind, name, dropped, numbers)
    return fitted if kind == "text" else _numbers(fitted, kind)


def _slowly(
    values: Sequence[Any],
    kind: ColumnType,
    name: str,
    dropped: Dropped,
    numbers: Sequence[Callable[[str], Any]] | None = None,
) -> list[Any]:
    """Return each value as its column has it, and count the dropped ones."""
    found = []
    for row, given in enumerate(values):
        value, reason = _fitted(given, kind, number_of if numbers is None else numbers[row])
        if reason:
            drop(dropped, name, reason)
        found.append(value)
    return found


def columns_of(readings: Sequence[ColumnValues], types: ColumnTypes, dropped: Dropped) -> Records:
    """Return all columns, for readings from messages. O(rows * columns).

    Args:
        readings: one for each row.
        types: declared columns.
        dropped: receives counts by column and reason.
    """
    known = dict(types)
    for each in readings:
        if each.beyond:
            drop(dropped, "", "too-many", each.beyond)
        for name in each.values:
            if name not in known:
                drop(dropped, name[:100], _UNDECLARED)
    numbers = [each.number for each in readings]
    given: dict[str, Any] = {}
    for name, kind in types:
        values = [each.values.get(name) for each in readings]
        given[name] = _column(values, kind, name, dropped, numbers)
    return encode_records(given, types, len(readings))
