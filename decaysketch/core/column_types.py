"""Declared columns of a stream: names and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from decaysketch.errors import ParameterError

__all__ = ["MAX_COLUMNS", "MAX_COLUMN_NAME_BYTES", "ColumnType", "ColumnTypes", "read_column_types"]

ColumnType = Literal["float64", "int64", "bool", "text"]

ColumnTypes: TypeAlias = "tuple[tuple[str, ColumnType], ...]"
"""Each column's name and type, sorted by name."""

MAX_COLUMNS = 32
MAX_COLUMN_NAME_BYTES = 128

_TAKEN = {
    "w": "the weight of an observation",
    "time": "the time of an observation",
    "age": "the age of an observation",
}


def read_column_types(given: Any) -> ColumnTypes:
    """Return declared columns, names rising.

    Args:
        given: types by name, pairs of name and type, or one text such as ``"host text, temp
            float64"``.

    Raises:
        ParameterError: a name or type is invalid, a name occurs twice, or there are more than
            :data:`MAX_COLUMNS`.
    """
    pairs = _pairs_of(given)
    if len(pairs) > MAX_COLUMNS:
        raise ParameterError(f"columns has {len(pairs)} columns; expected at most {MAX_COLUMNS}")
    found: dict[str, ColumnType] = {}
    for name, kind in pairs:
        _check_name(name)
        if kind not in get_args(ColumnType):
            raise ParameterError(
                f"columns has type {kind!r:.80} for {name!r}; expected one of "
                f"{', '.join(get_args(ColumnType))}"
            )
        if name in found:
            raise ParameterError(f"columns has {name!r} twice; expected each name once")
        found[name] = kind
    return tuple(sorted(found.items(), key=lambda pair: pair[0].encode()))


def _pairs_of(given: Any) -> list[tuple[Any, Any]]:
    if isinstance(given, str):
        given = [tuple(part.rsplit(maxsplit=1)) for part in given.split(",") if part.strip()]
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, Iterable):
        raise ParameterError(f"columns is {given!r:.80}; expected types by name")
    found = [tuple(pair) if isinstance(pair, list | tuple) else (pair,) for pair in pairs]
    for pair in found:
        if len(pair) != 2:
            raise ParameterError(
                f"columns has {pair!r:.80}; expected a name and a type, such as 'temp float64'"
            )
    return [(pair[0].strip() if isinstance(pair[0], str) else pair[0], pair[1]) for pair in found]


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ParameterError(f"columns has the name {name!r:.80}; expected a printable text")
    if len(name.encode()) > MAX_COLUMN_NAME_BYTES:
        raise ParameterError(
            f"columns has a name of {len(name.encode())} bytes, {name[:40]!r}...; expected at most "
            f"{MAX_COLUMN_NAME_BYTES}"
        )
    if name in _TAKEN:
        raise ParameterError(
            f"columns has the name {name!r}, which queries use for {_TAKEN[name]}; give the column "
            "another name"
        )
