"""Observations as JSON: one document, or an object on each line.

The standard library reads it (:mod:`decaysketch.ingest.json_text`). Nothing is guessed: a number in
quotes, a fraction instead of an integer, or an unknown field, rejects its row. A faster reader
reads unambiguous lines, to the same rows (:mod:`api.ingest.plain_rows`).

A body's parsed size is weighed before it is parsed (:mod:`api.ingest.json_weight`), a document in
one go and lines one by one: a nested array costs the parser ten times as much as a number. It keeps
only the rejected rows that the response reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from api.errors import Fault, InvalidRequestError, TooManyRowsError
from api.ingest.json_weight import parts
from api.ingest.plain_rows import Plain, plain_reader
from api.schemas import MAX_KEY_PARTS
from decaysketch.core.labels import fault_of_label
from decaysketch.core.row_check import (
    BEYOND_64_BITS,
    MISSING,
    NO_INTEGER,
    NO_NUMBER,
    NOT_EXACT,
    Refusal,
)
from decaysketch.core.text_values import (
    SkippedTimeError,
    TextError,
    moment_of,
    number_of,
)
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.batch import SeriesFields
from decaysketch.ingest.columns import (
    EXACT_IN_FLOAT,
    INT64_LIMIT,
    REFUSALS_LISTED,
    Batch,
    Form,
    Key,
    fault_of_key,
    value_column,
)
from decaysketch.ingest.json_text import Repeated, parse, without_mark
from decaysketch.ingest.readings import Steps, finished
from decaysketch.ingest.series_rows import NO_START, text_column

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_LINE_PARTS",
    "json_steps",
    "line_steps",
    "read_json",
    "read_lines",
]

MAX_LINE_BYTES = 1 << 16
MAX_LINE_PARTS = 64
"""Maximum brackets and commas in a line. An observation has 8 at most."""

_BYTES_TOGETHER = 48 << 10
_ROWS_TOGETHER = 4096
_ABSENT = object()


class _Unreadable(str):
    """The reason why a line is no observation."""


def read_json(body: bytes, form: Form) -> Batch:
    """The same as :func:`json_steps`, without a pause."""
    return finished(json_steps(body, form))


def read_lines(body: bytes, form: Form) -> Batch:
    """The same as :func:`line_steps`, without a pause."""
    return finished(line_steps(body, form))


def json_steps(body: bytes, form: Form) -> Steps[Batch]:
    """Read ``{"observations": [{...}, ...]}``: at once, then thousands of rows a step.

    Raises:
        InvalidRequestError: not JSON, or not such an object.
        TooManyRowsError: more observations than one post may have.
    """
    # An observation has at most an object and an array, its id. Nothing else runs while the parser
    # makes millions of small ones.
    containers = body.count(b"{") + body.count(b"[")
    if containers > 2 * form.max_rows + 2:
        raise TooManyRowsError(containers // 2, form.max_rows)
    try:
        document = parse(without_mark(body).decode("utf-8"))
    except ValueError as error:  # an error of decoding among them
        raise InvalidRequestError(
            f"the body is not JSON: {error}", [Fault(field="body", reason=f"not JSON: {error}")]
        ) from None
    if type(document) is not dict or document.keys() != {"observations"}:
        raise InvalidRequestError(
            'the body is not an object with the one field "observations"',
            [Fault(field="body", reason='expected {"observations": [...]}', value=document)],
        )
    rows = document["observations"]
    if not isinstance(rows, list):
        raise InvalidRequestError(
            "observations is not an array",
            [Fault(field="observations", reason="expected an array", value=rows)],
        )
    if len(rows) > form.max_rows:
        raise TooManyRowsError(len(rows), form.max_rows)
    read = _Reader(form)
    for number, row in enumerate(rows):
        if number % _ROWS_TOGETHER == 0:
            yield
        read.take(row)
    return read.raw()


def line_steps(body: bytes, form: Form) -> Steps[Batch]:
    """Read an object from each line, some KB per step. Empty lines do not count.

    A line that is not JSON, longer than MAX_LINE_BYTES, or with more parts than MAX_LINE_PARTS,
    rejects that row alone.

    Raises:
        TooManyRowsError: more lines than one post may have observations.
    """
    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    if lines > form.max_rows:
        raise TooManyRowsError(lines, form.max_rows)
    read = _Reader(form)
    read_plain = plain_reader(form)
    for text in _portions(body.removesuffix(b"\n")):
        yield
        plain = read_plain(text) if len(text) <= MAX_LINE_BYTES else None
        if plain is not None:
            read.extend(plain)
            continue
        some = text.split(b"\n")
        if len(text) <= MAX_LINE_BYTES:
            some = list(map(bytes.strip, some))
        _read_some([line for line in some if line], read, read_plain)
    return read.raw()


def _portions(body: bytes) -> Iterator[bytes]:
    """Yield complete lines to read together, up to so many bytes. A longer line comes alone."""
    begin = 0
    while begin < len(body):
        end = begin + _BYTES_TOGETHER
        if end < len(body):
            end = body.rfind(b"\n", begin, end)
            end = body.find(b"\n", begin) if end < 0 else end
        text = body[begin:] if end < 0 else body[begin:end]
        begin += len(text) + 1
        yield text


def _read_some(
    lines: list[bytes], read: _Reader, read_plain: Callable[[bytes], Plain | None]
) -> None:
    """Read lines by halves, to isolate a line that is not plain."""
    if not lines:
        return
    fits = max(map(len, lines)) <= MAX_LINE_BYTES
    plain = read_plain(b"\n".join(lines)) if fits else None
    if plain is not None:
        read.extend(plain)
    elif len(lines) == 1:
        _read_one(lines[0], read)
    else:
        half = len(lines) // 2
        _read_some(lines[:half], read, read_plain)
        _read_some(lines[half:], read, read_plain)


def _read_one(line: bytes, read: _Reader) -> None:
    if len(line) > MAX_LINE_BYTES:
        too_long = f"a line of {len(line)} bytes; expected at most {MAX_LINE_BYTES}"
        read.take(_Unreadable(too_long))
    elif line := line.strip():
        read.take(_of_line(line))


def _of_line(line: bytes) -> Any:
    if (found := parts(line, MAX_LINE_PARTS)) > MAX_LINE_PARTS:
        return _Unreadable(f"{found} brackets and commas; expected at most {MAX_LINE_PARTS}")
    try:
        return parse(without_mark(line).decode("utf-8"))
    except ValueError as error:
        return _Unreadable(f"not JSON: {error}")


_Fault = tuple[Any, ...]  # field, reason, value, expected


class _Reader:
    """Accepts rows with the right types one by one, in order."""

    def __init__(self, form: Form) -> None:
        self._form, self._integers, self._labels = form, form.integers, form.labels
        self._takes_keys, self._columns = form.takes_keys, dict(form.columns)
        self._value = "columns" if form.columns else "value"
        self._fields = form.fields
        self._names = frozenset(form.fields)
        self._identity = form.fields[-1]
        self._rows = 0
        self._positions: list[int] = []
        self._values: list[int | float | str | None] = []
        self._weights: list[int] = []
        self._times: list[int] = []
        self._ids: list[int] = []
        self._keys: dict[int, Key] = {}
        self._series = _SeriesFieldsReader(form) if form.names_series else None
        self._refusals: list[Refusal] = []

    def extend(self, rows: Plain) -> None:
        """Append rows that are known to be good."""
        begin, count = len(self._ids), len(rows.ids)
        self._keys.update((begin + place, key) for place, key in rows.keys.items())
        self._positions.extend(range(self._rows, self._rows + count))
        self._values += rows.values
        self._weights += rows.weights
        self._times += rows.times
        self._ids += rows.ids
        self._rows += count

    def add(self, value: int | float | str | None, weight: int, time: int, id_: int | Key) -> None:
        """Append a row that is known to be good."""
        if isinstance(id_, tuple):
            self._keys[len(self._ids)] = id_
            id_ = 0
        self._positions.append(self._rows)
        self._values.append(value)
        self._weights.append(weight)
        self._times.append(time)
        self._ids.append(id_)
        self._rows += 1

    def take(self, item: Any) -> None:
        """Append a row, or record its fault."""
        fault = self._try(item)
        if fault is not None:
            told = len(self._refusals) < REFUSALS_LISTED
            self._refusals.append(Refusal(self._rows, *(fault if told else fault[:2])))
            self._rows += 1

    def raw(self) -> Batch:
        """Return the rows as columns."""
        missing = np.zeros(len(self._values), dtype=bool)
        values: list[Any] = self._values
        if self._columns:
            values = [{} if value is None else value for value in values]
        elif None in values:
            missing[:] = [value is None for value in values]
            nothing: Any = "" if self._labels else 0
            values = [nothing if value is None else value for value in values]
        return Batch(
            self._rows,
            np.array(self._positions, dtype=np.int64),
            value_column(values, self._form),
            missing,
            np.array(self._weights, dtype=np.int64),
            np.array(self._times, dtype=np.int64),
            np.array(self._ids, dtype=np.int64),
            self._keys,
            self._refusals,
            of_series=None if self._series is None else self._series.fields(len(self._values)),
        )

    def _try(self, item: Any) -> _Fault | None:
        """Append a row, or return its fault."""
        if type(item) is not dict or not self._names.issuperset(item):
            return _fault_of_object(item, self._fields)
        if self._series is not None and (fault := self._series.fault_of(item)):
            return fault
        value, weight = item.get(self._value), item.get("weight", 1)
        time, id_ = item.get("time", _ABSENT), item.get(self._identity, _ABSENT)
        if value is not None and (fault := self._fault_of_value(value)):
            return fault
        if not _is_int64(weight):
            return _fault_of_integer("weight", weight)
        if type(time) is str and self._form.params.time_unit in NANOSECONDS:
            try:
                time = _moment(time, self._form)
            except SkippedTimeError as error:
                return "time", str(error), time
            except TextError:
                return "time", NO_INTEGER, time, f"an integer, or a time such as {_SUCH}"
            except _NoZoneError as error:
                return "time", str(error), time, f"a time such as {_SUCH}"
        if not _is_int64(time):
            return _fault_of_integer("time", time)
        if not _is_int64(id_):
            if not self._takes_keys:
                return _fault_of_integer(self._identity, id_)
            if fault := _fault_of_id(self._identity, id_):
                return fault
            id_ = tuple(id_) if type(id_) is list else (id_,)
        if self._series is not None:
            self._series.add(len(self._ids), item)
        self.add(value, weight, time, id_)
        return None

    def _fault_of_value(self, value: Any) -> _Fault | None:
        if self._columns:
            return _fault_of_columns(value, self._columns)
        if self._labels:
            if type(value) is str:
                return None
            return "value", "no text", value, "a text or null, value_type is label"
        if type(value) is float and not self._integers:
            return None
        if type(value) is int:
            if not self._integers and not -EXACT_IN_FLOAT <= value <= EXACT_IN_FLOAT:
                return "value", NOT_EXACT, value, "at most 2^53 in magnitude"
            if not -INT64_LIMIT <= value < INT64_LIMIT:
                return "value", BEYOND_64_BITS, value
            return None
        if type(value) is not float:
            reason = "a number in quotes" if _is_quoted(value) else NO_NUMBER
            return "value", reason, value, "a number without quotes, or null"
        return "value", NO_INTEGER, value, "an integer or null, value_type is int64"


class _SeriesFieldsReader:
    """The fields that only rows of series have."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._names = dict.fromkeys(form.attributes)
        self._starts: dict[int, int] = {}
        self._found = SeriesFields()
        self._texts: dict[str, dict[int, str]] = {name: {} for name in self._names}

    def fault_of(self, item: Mapping[str, Any]) -> _Fault | None:
        """Return the first fault in a row's fields."""
        start, entity = item.get("start"), item.get("entity")
        if start is not None and not _is_int64(start):
            return _fault_of_integer("start", start)
        if entity is not None and not _is_int64(entity):
            if not self._form.takes_keys:
                return _fault_of_integer("entity", entity)
            if fault := _fault_of_id("entity", entity):
                return fault
        return self._fault_of_attributes(item.get("attributes"))

    def _fault_of_attributes(self, given: Any) -> _Fault | None:
        if given is None:
            return None
        if type(given) is not dict:
            return "attributes", "no object", given, "an object of texts"
        for name, text in given.items():
            if name not in self._names:
                known = ", ".join(self._names) or "none: the stream declares no attributes"
                return "attributes", "unknown attribute", name, known
            if text is not None and (fault := fault_of_label(text)):
                return f"attributes.{name}", fault, text, "a text or null"
        return None

    def add(self, place: int, item: Mapping[str, Any]) -> None:
        """Add a sound row's fields."""
        start, entity = item.get("start"), item.get("entity")
        if start is not None:
            self._starts[place] = start
        if type(entity) is int:
            self._found.entity_ids[place] = entity
        elif entity is not None:
            self._found.entity_keys[place] = tuple(entity) if type(entity) is list else (entity,)
        for name, text in (item.get("attributes") or {}).items():
            if text is not None:
                self._texts[name][place] = text

    def fields(self, rows: int) -> SeriesFields:
        """Return the columns of all rows."""
        found = self._found
        if self._starts:
            found.starts = np.full(rows, NO_START, np.int64)
            found.starts[list(self._starts)] = list(self._starts.values())
        if any(self._texts.values()):
            found.attributes = {name: text_column(of, rows) for name, of in self._texts.items()}
        return found


def _is_quoted(value: Any) -> bool:
    """Return whether a value is a text that is a number."""
    if type(value) is not str or len(value) > _LONGEST_NUMBER:
        return False
    try:
        number_of(value)
    except TextError:
        return False
    return True


_LONGEST_NUMBER = 100  # characters
_SUCH = "2026-01-31T12:00:00Z"


class _NoZoneError(Exception):
    """A time has no zone."""


def _moment(text: str, form: Form) -> int:
    """Return a time that was written as a text, in the stream's unit, rounded down.

    Raises:
        TextError: it is no time.
        _NoZoneError: neither the text nor the request names a zone.
    """
    found = moment_of(text, form.zone)
    if not found.zoned:
        raise _NoZoneError("has no zone; name it, or set time_zone of the request")
    return found.ns // NANOSECONDS[form.params.time_unit]


def _is_int64(number: Any) -> bool:
    return type(number) is int and -INT64_LIMIT <= number < INT64_LIMIT


def _fault_of_object(item: Any, fields: tuple[str, ...]) -> _Fault:
    if isinstance(item, _Unreadable):
        return "observation", str(item)
    if isinstance(item, Repeated):
        return "observation", "a name is repeated", dict(item)
    if not isinstance(item, dict):
        return "observation", "no object", item, f"an object of {', '.join(fields)}"
    unknown = next(name for name in item if name not in fields)
    return "observation", "unknown field", unknown, f"one of {', '.join(fields)}"


def _fault_of_integer(name: str, number: Any) -> _Fault:
    if number is _ABSENT:
        return name, MISSING
    if type(number) is int:
        return name, BEYOND_64_BITS, number
    return name, NO_INTEGER, number, "an integer"


def _fault_of_id(name: str, id_: Any) -> _Fault | None:
    """Return the fault of an id or key that is not a 64-bit integer."""
    parts = id_ if type(id_) is list else [id_]
    if type(id_) in (int, float) or id_ is _ABSENT:
        return _fault_of_integer(name, id_)
    if not 1 <= len(parts) <= MAX_KEY_PARTS or not all(type(part) in (str, int) for part in parts):
        return (
            name, f"no {name}", id_,
            f"an integer, text, or an array of 1 to {MAX_KEY_PARTS} of them",
        )  # fmt: skip
    reason = fault_of_key(tuple(parts))
    return (name, reason, id_) if reason else None


def _fault_of_columns(columns: Any, types: Mapping[str, str]) -> tuple[Any, ...] | None:
    """Return the first fault in a row's columns: field, reason, value and expected form."""
    if not isinstance(columns, dict):
        return "columns", "no object", columns, "an object of columns"
    for name, value in columns.items():
        kind = types.get(name)
        if kind is None:
            return "columns", "unknown column", name, f"one of {', '.join(types)}"
        if value is not None and not _SUITS[kind](value):
            return f"columns.{name}", _NOT[kind], value, f"{_SAID[kind]} or null"
    return None


def _is_exact(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and -EXACT_IN_FLOAT <= value <= EXACT_IN_FLOAT


_SUITS: Mapping[str, Callable[[Any], bool]] = {
    "float64": _is_exact,
    "int64": lambda value: type(value) is int and -INT64_LIMIT < value < INT64_LIMIT,
    "bool": lambda value: type(value) is bool,
    "text": lambda value: fault_of_label(value) is None,
}
_NOT = {
    "float64": "no exact float64", "int64": "not a 64-bit integer", "bool": "no truth value",
    "text": "not a text of at most 1,024 bytes",
}  # fmt: skip
_SAID = {
    "float64": "a finite number", "int64": "an integer above -2^63", "bool": "true, false",
    "text": "a text",
}  # fmt: skip
