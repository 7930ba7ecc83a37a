"""Lines that are observations beyond doubt, read by msgspec: in a tenth of the time.

msgspec reads JSON into the fields and types that are named here and refuses all else. It takes less
than :mod:`api.ingest.json_rows` does, such as no half of a surrogate pair; what it takes has the
same values there, but for two things, which are looked for: a name that an object has twice, which
shows in the number of quotes, and an integer that is no float64. A line that is not plain is left
to be read with care.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from api.ingest.columns import EXACT_IN_FLOAT, INT64_LIMIT, MAX_KEY_PARTS, Form, Key, fault_of_key

__all__ = ["Plain", "plain_reader"]

#: Value, weight, time, and id or key.
Plain = tuple[int | float | None, int, int, int | Key]

_Int64 = Annotated[int, Meta(ge=-INT64_LIMIT, le=INT64_LIMIT - 1)]
_Parts = Annotated[list[_Int64 | str], Meta(min_length=1, max_length=MAX_KEY_PARTS)]
_Value = TypeVar("_Value")
_Id = TypeVar("_Id")


class _Row(msgspec.Struct, Generic[_Value, _Id], forbid_unknown_fields=True, gc=False):
    time: _Int64
    id: _Id
    value: _Value | UnsetType | None = UNSET
    weight: _Int64 | UnsetType = UNSET


# By whether values are integers, and whether an id may be a key.
_KINDS: dict[tuple[bool, bool], Any] = {
    (False, False): _Row[float, _Int64],
    (False, True): _Row[float, _Int64 | str | _Parts],
    (True, False): _Row[_Int64, _Int64],
    (True, True): _Row[_Int64, _Int64 | str | _Parts],
}


def plain_reader(form: Form) -> Callable[[bytes], Plain | None]:
    """What reads a line without its end; None of one that is not plain. O(length)."""
    kind: type[_Row[Any, Any]] = _KINDS[form.integers, form.takes_keys]
    decode = msgspec.json.Decoder(kind).decode

    def read(line: bytes) -> Plain | None:
        try:
            row = decode(line)
        except ValueError:  # of msgspec, or bytes that are no text
            return None
        value, weight, id_ = row.value, row.weight, row.id
        quotes = 4
        if value is UNSET:
            value = None
        else:
            quotes += 2
            if type(value) is float and not -EXACT_IN_FLOAT < value < EXACT_IN_FLOAT:
                return None  # it may have been an integer
        if weight is UNSET:
            weight = 1
        else:
            quotes += 2
        if type(id_) is not int:
            id_ = (id_,) if type(id_) is str else tuple(id_)
            quotes += 2 * sum(type(part) is str for part in id_)
            if fault_of_key(id_):
                return None
        if line.count(b'"') != quotes:  # a name comes twice, or a quote stands in a text
            return None
        return value, weight, row.time, id_

    return read
