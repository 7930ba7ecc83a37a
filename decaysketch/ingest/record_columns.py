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
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
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
    "Cells",
    "ColumnSources",
    "ColumnValues",
    "Dictionary",
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
_LAYOUT_BYTES, _TEXT_BYTES = 200, 120  # without texts; of a text's entries in a dictionary
_MOST_TEXTS = 1 << 17  # of a dictionary, before the next one begins
Int64Array = npt.NDArray[np.int64]

_EXACT = 1 << 53
_INT64_LIMIT = 1 << 63
_UNDECLARED = "undeclared"


def drop(into: Dropped, column: str, reason: str, count: int = 1) -> None:
    """Count dropped values. Column names beyond the first ones share the empty name. O(1)."""
    key = column[:MAX_LABEL_BYTES], reason
    if key not in into and len(into) >= _NAMES_KEPT:
        key = "", reason
    into[key] += count


Cells: TypeAlias = "tuple[npt.NDArray[np.int64] | None, npt.NDArray[Any] | Sequence[Any]]"
"""Rows, and the values of one column in them. Rows None: all."""


class Dictionary:
    """Numbers for the texts that series have in their columns.

    It only grows, so that a :class:`Layout` stays valid while it exists. Safe to use in several
    threads.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._ranks = np.empty(0, np.int64)
        self._lock = threading.Lock()

    def number(self, text: str) -> int:
        """Return the number of a text. O(1)."""
        with self._lock:
            found = self._numbers.setdefault(text, len(self.texts))
            if found == len(self.texts):
                self.texts.append(text)
            return found

    def rising(self, numbers: Int64Array) -> Int64Array:
        """Return distinct numbers in the order of their texts. O(numbers log numbers), and at times
        O(texts log texts), amortised over the new texts.
        """
        if not len(numbers):
            return numbers
        with self._lock:
            new = len(self.texts) - len(self._ranks)
            if 8 * new > len(self.texts):
                order = sorted(range(len(self.texts)), key=self.texts.__getitem__)
                self._ranks = np.empty(len(order), np.int64)
                self._ranks[order] = np.arange(len(order))
            ranks = self._ranks
        if int(numbers.max()) < len(ranks):
            return numbers[np.argsort(ranks[numbers])]
        return np.array(sorted(numbers.tolist(), key=self.texts.__getitem__), np.int64)


class Layout(NamedTuple):
    """The columns that a series fills.

    Attributes:
        dictionary: has the texts in ``packed``.
        packed: int64 for each declared column: the key of the value that all readings share, a
            text's number, or ``MISSING_KEY``.
        value: the column that a reading's value fills. Empty: none.
        dropped: column, reason and count of values that each reading drops.
        bytes: memory, about.
    """

    dictionary: Dictionary
    packed: bytes
    value: str = ""
    dropped: tuple[tuple[str, str, int], ...] = ()
    bytes: int = 0


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
        self._dictionary = Dictionary()
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
        if len(self._dictionary.texts) > _MOST_TEXTS:
            self._dictionary = Dictionary()
        dictionary = self._dictionary
        keys = [MISSING_KEY] * len(self.types)
        size = _LAYOUT_BYTES + 8 * len(keys)
        dropped: Counter[tuple[str, str]] = Counter()
        for source, numbers in self.of_source.items():
            given = own.get(source) or labels.get(source)
            if given is None or (self.missing and given in self.missing):
                continue
            for number in numbers:
                name, kind = self.types[number]
                constant, reason = _fitted(given, kind, number_of)
                if reason:
                    dropped[name, reason] += 1
                elif kind == "text" and constant is not None:
                    known = len(dictionary.texts)
                    keys[number] = dictionary.number(constant)
                    if len(dictionary.texts) > known:  # other series may share it
                        size += _TEXT_BYTES + sys.getsizeof(constant)
                elif constant is not None:
                    keys[number] = int(_keys([constant], name, kind, dropped)[0])
        if self.open:
            dropped += self.undeclared(labels)
        filled = self.of_source.get(value, ()) if value else ()
        return Layout(
            dictionary,
            np.array(keys, np.int64).tobytes(),
            self.types[filled[0]][0] if filled else "",
            tuple((name, reason, count) for (name, reason), count in dropped.items()),
            size + _DROPPED_BYTES * len(dropped),
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
    codes: Int64Array,
    layouts: Sequence[Layout],
    cells: Mapping[str, Sequence[Cells]],
    dropped: Dropped,
) -> Records:
    """Return all columns, for readings by series. O(rows * columns).

    Args:
        types: declared columns.
        codes: series by row.
        layouts: columns by series.
        cells: rows and values by column, for values that differ within a series.
        dropped: receives counts by column and reason.
    """
    _count_constants(codes, layouts, dropped)
    dictionary, shared = _shared_keys(layouts, types)
    columns = []
    for number, (name, kind) in enumerate(types):
        given = _joined(cells.get(name, ()))
        if kind != "text" and len(given) == 1 and len(given[0][1]) == len(codes):
            rows, values = given[0]
            keys = _keys(values, name, kind, dropped)
            if rows is not None:
                keys[rows] = keys.copy()
        else:
            keys = shared[:, number][codes]
        if kind == "text":
            columns.append(_text_column(dictionary, keys, given, name, dropped))
            continue
        if len(given) > 1 or (given and len(given[0][1]) < len(codes)):
            for rows, values in given:
                keys[slice(None) if rows is None else rows] = _keys(values, name, kind, dropped)
        columns.append(Record(keys))
    return Records(types, tuple(columns))


def _shared_keys(layouts: Sequence[Layout], types: ColumnTypes) -> tuple[Dictionary, Int64Array]:
    """Return the keys that the readings of each series share, int64[series, columns], and the
    dictionary with their texts.
    """
    if not layouts:
        return Dictionary(), np.empty((0, len(types)), np.int64)
    # Not zip(*layouts): an iterator per series would start the garbage collector.
    packed = b"".join(map(attrgetter("packed"), layouts))
    of_series = [*map(attrgetter("dictionary"), layouts)]
    keys = np.frombuffer(packed, np.int64).reshape(len(layouts), len(types))
    dictionaries = dict(zip(map(id, of_series), of_series, strict=True))
    if len(dictionaries) < 2:
        return of_series[0], keys
    # The dictionary was full, and some of the series have the next one.
    joint, keys = Dictionary(), keys.copy()
    texts = np.flatnonzero([kind == "text" for _, kind in types])
    for each in dictionaries.values():
        rows = np.flatnonzero([layout.dictionary is each for layout in layouts])
        number = np.array([*map(joint.number, each.texts[:]), MISSING_KEY], np.int64)
        some = np.ix_(rows, texts)
        keys[some] = number[np.maximum(keys[some], -1)]
    return joint, keys


def _text_column(
    dictionary: Dictionary,
    keys: Int64Array,
    given: Sequence[Cells],
    name: str,
    dropped: Dropped,
) -> Record:
    """Return a column with the texts of its rows, rising if no cells are given."""
    used = np.zeros(int(keys.max(initial=-1)) + 2, np.bool_)
    used[np.maximum(keys, -1)] = True  # null at the end
    order = dictionary.rising(np.flatnonzero(used[:-1]))
    rank = np.full(len(used), MISSING_KEY, np.int64)
    rank[order] = np.arange(len(order))
    keys = rank[np.maximum(keys, -1)]
    texts = [dictionary.texts[number] for number in order.tolist()]
    if not given:
        return Record(keys, tuple(texts))
    numbers: dict[Any, int] = {None: MISSING_KEY}
    numbers |= dict(zip(texts, range(len(texts)), strict=True))
    for rows, values in given:
        fitted = _slowly(values, "text", name, dropped)
        for each in dict.fromkeys(fitted):
            numbers.setdefault(each, len(numbers) - 1)
        found = np.fromiter(map(numbers.__getitem__, fitted), np.int64, len(fitted))
        keys[slice(None) if rows is None else rows] = found
    del numbers[None]
    return Record(keys, list(numbers))


def _keys(values: Any, name: str, kind: ColumnType, dropped: Dropped) -> Int64Array:
    """Return keys for values that are no texts."""
    column = _column(values, kind, name, dropped)
    return encode_records({name: column}, ((name, kind),), len(values)).columns[0].keys


def _joined(given: Sequence[Cells]) -> Sequence[Cells]:
    """Return the cells of a column as one pair, if all are numbers of one type."""
    if len({each.dtype if isinstance(each, np.ndarray) else None for _, each in given}) != 1:
        return given
    rows, values = zip(*given, strict=True)
    if len(given) == 1 or any(each is None for each in rows) or not hasattr(values[0], "dtype"):
        return given
    return [(np.concatenate(rows), np.concatenate(values))]


def _count_constants(codes: Int64Array, layouts: Sequence[Layout], dropped: Dropped) -> None:
    if not any(map(attrgetter("dropped"), layouts)):
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


def _column(
    values: npt.NDArray[Any] | Sequence[Any],
    kind: ColumnType,
    name: str,
    dropped: Dropped,
    numbers: Sequence[Callable[[str], Any]] | None = None,
) -> Any:
    """Return values as a column. ``numbers`` read texts that are numbers, by row."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "f" and kind == "float64":
            return _finite(values, name, dropped)
        values = values.tolist()
    types = set(map(type, values))
    if kind == "float64" and types <= {float, type(None)}:
        return _finite(np.array(values, np.float64), name, dropped)
    if types == {int} and kind in ("float64", "int64"):
        limit = _EXACT if kind == "float64" else _INT64_LIMIT - 1
        if -limit <= min(values) and max(values) <= limit:
            return np.array(values, kind)
    fitted = _slowly(values, kind, name, dropped, numbers)
    return fitted if kind == "text" else _numbers(fitted, kind)


def _finite(values: npt.NDArray[np.float64], name: str, dropped: Dropped) -> Any:
    if (infinite := np.isinf(values)).any():
        drop(dropped, name, "not-finite", int(infinite.sum()))
        values = np.where(infinite, np.nan, values)
    return values


def _slowly(
    values: npt.NDArray[Any] | Sequence[Any],
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
