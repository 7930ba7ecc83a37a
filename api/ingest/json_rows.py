"""Observations as JSON: one document, or an object on each line.

The standard library reads it, because it lets us see what a faster reader hides: names that an
object has twice, and integers of any length, which are refused before they cost anything. Nothing
is guessed: a number in quotes, a fraction where an integer is meant or a field that nobody knows
refuses its row.

What a body would become is weighed before it is parsed (:mod:`api.ingest.json_weight`), a document
as a whole and lines one by one: an array in an array costs the parser ten times what a number does.
Of rows that are refused no more is kept than somebody is told of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from api.errors import Fault, InvalidRequestError, TooManyRowsError
from api.ingest.columns import (
    EXACT_IN_FLOAT,
    FIELDS,
    INT64_LIMIT,
    MAX_KEY_PARTS,
    REFUSALS_LISTED,
    Form,
    Key,
    Raw,
    Refusal,
    fault_of_key,
)
from api.ingest.json_weight import parts

__all__ = ["MAX_LINE_BYTES", "MAX_LINE_PARTS", "read_json", "read_lines"]

MAX_LINE_BYTES = 1 << 16
MAX_LINE_PARTS = 64
"""Brackets and commas of a line; an observation has 8 at most."""

_LONGEST_INTEGER = 20  # characters; longer ones are beyond 64 bits
_ABSENT = object()
_NAMES = frozenset(FIELDS)


class _Repeated(dict[str, Any]):
    """An object that has a name twice."""


class _Unreadable(str):
    """Why a line is no observation."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _Repeated(fields)


def _integer(digits: str) -> int | float:
    """Beyond 64 bits as a float, which is no integer and close enough to be told apart."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def _parse(text: str) -> Any:
    """What JSON says.

    Raises:
        ValueError: not JSON, or nested too deeply; the message says where.
    """
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(body: bytes, form: Form) -> Raw:
    """Read ``{"observations": [{...}, ...]}``.

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
        document = _parse(body.decode("utf-8"))
    except ValueError as error:  # an error of decoding among them
        raise InvalidRequestError(
            f"the body is not JSON: {error}", [Fault(field="body", reason=f"not JSON: {error}")]
        ) from None
    if type(document) is not dict or document.keys() != {"observations"}:
        raise InvalidRequestError(
            'the body is no object with the one field "observations"',
            [Fault(field="body", reason='expected {"observations": [...]}', value=document)],
        )
    rows = document["observations"]
    if not isinstance(rows, list):
        raise InvalidRequestError(
            "observations is no array",
            [Fault(field="observations", reason="expected an array", value=rows)],
        )
    if len(rows) > form.max_rows:
        raise TooManyRowsError(len(rows), form.max_rows)
    return _columns(rows, form)


def read_lines(body: bytes, form: Form) -> Raw:
    """Read an object from each line; empty lines do not count.

    A line that is not JSON, longer than MAX_LINE_BYTES, or of more parts than MAX_LINE_PARTS,
    refuses that row alone.

    Raises:
        TooManyRowsError: more lines than one post may have observations.
    """
    lines = body.count(b"\n") + (not body.endswith(b"\n"))
    if lines > form.max_rows:
        raise TooManyRowsError(lines, form.max_rows)
    return _columns(_lines(body), form)


def _lines(body: bytes) -> Iterator[Any]:
    start = 0
    while start < len(body):
        stop = body.find(b"\n", start)
        stop = len(body) if stop < 0 else stop
        if stop - start > MAX_LINE_BYTES:
            yield _Unreadable(f"a line of {stop - start} bytes; at most {MAX_LINE_BYTES} are read")
        elif line := body[start:stop].strip():
            yield _of_line(line)
        start = stop + 1


def _of_line(line: bytes) -> Any:
    if (found := parts(line, MAX_LINE_PARTS)) > MAX_LINE_PARTS:
        return _Unreadable(f"{found} brackets and commas; at most {MAX_LINE_PARTS} are read")
    try:
        return _parse(line.decode("utf-8"))
    except ValueError as error:
        return _Unreadable(f"not JSON: {error}")


def _columns(items: Iterable[Any], form: Form) -> Raw:
    read = _Reader(form)
    rows = 0
    for row, item in enumerate(items):
        fault = read.take(row, item)
        if fault is not None:
            told = len(read.refusals) < REFUSALS_LISTED
            read.refusals.append(Refusal(row, *fault) if told else Refusal(row, *fault[:2]))
        rows = row + 1
    positions, values, weights, times, ids = (
        zip(*read.taken, strict=True) if read.taken else [()] * 5
    )
    missing = np.array([value is None for value in values], dtype=bool)
    return Raw(
        rows,
        np.array(positions, dtype=np.int64),
        np.array(
            [0 if value is None else value for value in values] if missing.any() else values,
            dtype=np.int64 if form.integers else np.float64,
        ),
        missing,
        np.array(weights, dtype=np.int64),
        np.array(times, dtype=np.int64),
        np.array(ids, dtype=np.int64),
        read.keys,
        read.refusals,
    )


_Fault = tuple[Any, ...]  # field, reason, value, expected


class _Reader:
    """Takes rows one by one, of the right types."""

    def __init__(self, form: Form) -> None:
        self._integers = form.integers
        self._takes_keys = form.takes_keys
        self.taken: list[tuple[int, int | float | None, int, int, int]] = []
        self.keys: dict[int, Key] = {}
        self.refusals: list[Refusal] = []

    def take(self, row: int, item: Any) -> _Fault | None:
        """Append a row, or say what is wrong with it."""
        if type(item) is not dict or not _NAMES.issuperset(item):
            return _fault_of_object(item)
        value, weight = item.get("value"), item.get("weight", 1)
        time, id_ = item.get("time", _ABSENT), item.get("id", _ABSENT)
        if value is not None and (fault := self._fault_of_value(value)):
            return fault
        if not _is_int64(weight):
            return _fault_of_integer("weight", weight)
        if not _is_int64(time):
            return _fault_of_integer("time", time)
        if not _is_int64(id_):
            if not self._takes_keys:
                return _fault_of_integer("id", id_)
            if fault := _fault_of_id(id_):
                return fault
            self.keys[len(self.taken)] = tuple(id_) if type(id_) is list else (id_,)
            id_ = 0
        self.taken.append((row, value, weight, time, id_))
        return None

    def _fault_of_value(self, value: Any) -> _Fault | None:
        if type(value) is float and not self._integers:
            return None
        if type(value) is int:
            if not self._integers and not -EXACT_IN_FLOAT <= value <= EXACT_IN_FLOAT:
                return "value", "not exact as float64", value, "at most 2^53 in magnitude"
            if not -INT64_LIMIT <= value < INT64_LIMIT:
                return "value", "beyond 64 bits", value
            return None
        if type(value) is not float:
            return "value", "no number", value, "a number or null"
        return "value", "no integer", value, "an integer or null, value_type is int64"


def _is_int64(number: Any) -> bool:
    return type(number) is int and -INT64_LIMIT <= number < INT64_LIMIT


def _fault_of_object(item: Any) -> _Fault:
    if isinstance(item, _Unreadable):
        return "observation", str(item)
    if isinstance(item, _Repeated):
        return "observation", "a name is there twice", dict(item)
    if not isinstance(item, dict):
        return "observation", "no object", item, f"an object of {', '.join(FIELDS)}"
    unknown = next(name for name in item if name not in _NAMES)
    return "observation", "unknown field", unknown, f"one of {', '.join(FIELDS)}"


def _fault_of_integer(name: str, number: Any) -> _Fault:
    if number is _ABSENT:
        return name, "missing"
    if type(number) is int:
        return name, "beyond 64 bits", number
    return name, "no integer", number, "an integer"


def _fault_of_id(id_: Any) -> _Fault | None:
    """What is wrong with an id that is no integer of 64 bits."""
    parts = id_ if type(id_) is list else [id_]
    if type(id_) in (int, float) or id_ is _ABSENT:
        return _fault_of_integer("id", id_)
    if not 1 <= len(parts) <= MAX_KEY_PARTS or not all(type(part) in (str, int) for part in parts):
        return (
            "id", "no id", id_,
            f"an integer, text, or an array of 1 to {MAX_KEY_PARTS} of them",
        )  # fmt: skip
    reason = fault_of_key(tuple(parts))
    return ("id", reason, id_) if reason else None
