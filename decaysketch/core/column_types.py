"""Declared columns of a stream: names and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from decaysketch.errors import ParameterError

__all__ = [
    "MAX_COLUMNS",
    "MAX_COLUMN_NAME_BYTES",
    "MAX_STRATUM_COLUMNS",
    "ColumnType",
    "ColumnTypes",
    "ColumnsField",
    "StrataField",
    "read_column_types",
    "read_strata",
    "revision_first",
]

ColumnType = Literal["float64", "int64", "bool", "text"]

ColumnTypes: TypeAlias = "tuple[tuple[str, ColumnType], ...]"
"""Each column's name and type, sorted by name."""

if TYPE_CHECKING:
    # A parameter accepts more types than it is stored as. Type checkers read them from here.

    class ColumnsField:
        """Declared columns."""

        def __get__(self, instance: object, owner: object = None) -> ColumnTypes: ...
        def __set__(
            self, instance: object, value: str | Mapping[str, str] | Sequence[Sequence[str]]
        ) -> None: ...

    class StrataField:
        """Stratum columns."""

        def __get__(self, instance: object, owner: object = None) -> tuple[str, ...]: ...
        def __set__(self, instance: object, value: str | Sequence[str]) -> None: ...

else:
    ColumnsField, StrataField = ColumnTypes, tuple[str, ...]

MAX_COLUMNS = 32
MAX_COLUMN_NAME_BYTES = 128
MAX_STRATUM_COLUMNS = 2

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


def revision_first(name: Any, columns: ColumnTypes) -> ColumnTypes:
    """Return columns in the order that compares duplicates: the revision first.

    Raises:
        ParameterError: it is no declared int64 column.
    """
    if name is None:
        return columns
    kind = dict(columns).get(name) if isinstance(name, str) else None
    if kind != "int64":
        raise ParameterError(
            f"revision is {name!r:.80}, which is {kind or 'no column'}; expected an int64 column"
        )
    return tuple(sorted(columns, key=lambda pair: (pair[0] != name, pair[0].encode())))


def read_strata(given: Any, columns: ColumnTypes) -> tuple[str, ...]:
    """Return the stratum columns, names rising.

    Args:
        given: one or two text column names: a sequence, or one text, split at commas.
        columns: the declared columns.

    Raises:
        ParameterError: a name is no declared text column, or occurs twice, or there are three.
    """
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",") if name.strip()]
    if not isinstance(given, list | tuple):
        raise ParameterError(f"strata is {given!r:.80}; expected one or two text column names")
    kinds = dict(columns)
    for name in given:
        if not isinstance(name, str) or kinds.get(name) != "text":
            kind = kinds.get(name, "no column") if isinstance(name, str) else "no name"
            texts = ", ".join(known for known, kind in columns if kind == "text") or "none"
            raise ParameterError(
                f"strata has {name!r:.80}, which is {kind}; expected text columns, and there is "
                f"{texts}"
            )
    if len(given) > MAX_STRATUM_COLUMNS or len(set(given)) < len(given):
        raise ParameterError(
            f"strata is {', '.join(given):.200}; expected at most {MAX_STRATUM_COLUMNS} columns, "
            "each once"
        )
    return tuple(name for name, _ in columns if name in given)


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
