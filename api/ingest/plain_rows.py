"""Read unambiguous lines with msgspec, many at a time, in a tenth of the time.

msgspec reads JSON into the fields and types named here, and rejects everything else. It accepts
less than :mod:`api.ingest.json_rows`, for example no half surrogate pair. The lines that it accepts
have the same values there, with two exceptions that are checked: a name that an object has twice,
visible in the number of quotes, and an integer that is no float64. Quotes are counted over all
lines together, since no line has fewer than its fields need. If a line is not plain, the caller
reads these lines separately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.schemas import MAX_KEY_PARTS
from decaysketch.ingest.columns import EXACT_IN_FLOAT, INT64_LIMIT, Form, Key, fault_of_key

__all__ = ["Plain", "plain_reader"]


class Plain(NamedTuple):
    """Columns of rows that are known to be good."""

    values: list[int | float | str | None]
    weights: list[int]
    times: list[int]
    ids: list[int]
    keys: dict[int, Key]  # by place in the columns, of those whose id is a key


_Int64 = Annotated[int, Meta(ge=-INT64_LIMIT, le=INT64_LIMIT - 1)]
_Parts = Annotated[list[_Int64 | str], Meta(min_length=1, max_length=MAX_KEY_PARTS)]
_Value = TypeVar("_Value")
_Id = TypeVar("_Id")


class _Row(msgspec.Struct, Generic[_Value, _Id], forbid_unknown_fields=True, gc=False):
    time: _Int64
    id: _Id
    value: _Value | UnsetType | None = UNSET
    weight: _Int64 | UnsetType = UNSET


class _Event(msgspec.Struct, Generic[_Id], forbid_unknown_fields=True, gc=False):
    time: _Int64
    id: _Id = msgspec.field(name="key")
    weight: _Int64 | UnsetType = UNSET

    @property
    def value(self) -> UnsetType:
        return UNSET


_EVENTS: dict[bool, Any] = {False: _Event[_Int64], True: _Event[_Int64 | str | _Parts]}

# By the type of values, and whether an id may be a key.
_KINDS: dict[tuple[str, bool], Any] = {
    ("float64", False): _Row[float, _Int64],
    ("float64", True): _Row[float, _Int64 | str | _Parts],
    ("int64", False): _Row[_Int64, _Int64],
    ("int64", True): _Row[_Int64, _Int64 | str | _Parts],
    ("label", True): _Row[str, _Int64 | str | _Parts],
}


def plain_reader(form: Form) -> Callable[[bytes], Plain | None]:
    """Return a function that reads lines, the last one without its line end. It returns None
    unless all lines are plain. O(length).
    """
    if form.columns or form.attributes:
        return lambda _text: None
    kind: type[_Row[Any, Any]] = (
        _EVENTS[form.takes_keys]
        if form.counts_keys
        else _KINDS[form.params.value_type, form.takes_keys]
    )
    decode = msgspec.json.Decoder(kind).decode_lines

    def read(text: bytes) -> Plain | None:
        try:
            rows = decode(text)
        except ValueError:  # of msgspec, or bytes that are no text
            return None
        # Each line ends where an object does, so has one at the least, and none has two. (In no
        # string is there an end of a line: it is a control character.) The last one, too: an
        # empty line at the end would make up for two objects in another.
        ends = text.count(b"\n")
        if text.count(b"}\n") != ends or text[-1:] != b"}" or len(rows) != ends + 1:
            return None
        values, given_values = _given([row.value for row in rows], None)
        weights, given_weights = _given([row.weight for row in rows], 1)
        if not (form.integers or form.labels) and not _are_exact(values):
            return None
        ids, keys = _identities([row.id for row in rows])
        if any(map(fault_of_key, keys.values())):
            return None
        texts = sum(type(part) is str for key in keys.values() for part in key)
        if form.labels:
            texts += sum(value is not None for value in values)
        if text.count(b'"') != 2 * (2 * len(rows) + given_values + given_weights + texts):
            return None  # a name comes twice, or a quote stands in a text
        return Plain(values, weights, [row.time for row in rows], ids, keys)

    return read


def _given(column: list[Any], otherwise: Any) -> tuple[list[Any], int]:
    """Return a column with the replacement value for absent fields, and the number of present
    ones.
    """
    if UnsetType not in set(map(type, column)):
        return column, len(column)
    given = [otherwise if each is UNSET else each for each in column]
    return given, sum(each is not UNSET for each in column)


def _are_exact(values: list[float | None]) -> bool:
    """Return whether no value may have been an integer that float64 cannot represent."""
    given = [each for each in values if each is not None]
    return not given or (min(given) > -EXACT_IN_FLOAT and max(given) < EXACT_IN_FLOAT)


def _identities(ids: list[Any]) -> tuple[list[int], dict[int, Key]]:
    """Return the integers, and the keys of the others."""
    if set(map(type, ids)) == {int}:
        return ids, {}
    keys: dict[int, Key] = {
        place: (each,) if type(each) is str else tuple(each)
        for place, each in enumerate(ids)
        if type(each) is not int
    }
    return [0 if place in keys else each for place, each in enumerate(ids)], keys
