"""A stream's declared columns, read from Arrow columns. An invalid cell rejects only its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.column_types import ColumnType, ColumnTypes, read_column_types
from decaysketch.core.labels import MAX_LABEL_BYTES
from decaysketch.core.records import Records, encode_records
from decaysketch.core.text_values import Numerals
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.tables.columns import (
    column_of,
    holds_text,
    in_plain_text,
    is_text,
    labels_of,
    nulls_of,
    numbers_of,
)
from decaysketch.tables.rejections import Refusals
from decaysketch.tables.texts import holds_numbers, numbers

__all__ = [
    "ALL",
    "read_columns",
    "records_of_table",
    "refuse_long",
    "types_of",
]

Pairs = Sequence[tuple[str, str]]


def refuse_long(attributes: Records, refusals: Refusals) -> None:
    """Reject rows whose attributes have more than 1,024 bytes together."""
    sizes = np.zeros(len(attributes), np.int64)
    for column in attributes.columns:
        of_text = np.array([*(len(text.encode()) for text in column.texts), 0], np.int64)
        sizes += of_text[np.maximum(column.keys, -1)]
    names = ", ".join(name for name, _ in attributes.types)
    refusals.refuse(
        sizes > MAX_LABEL_BYTES, names,
        lambda row: (f"have {sizes[row]} bytes together; expected at most {MAX_LABEL_BYTES}", None),
    )  # fmt: skip


def records_of_table(
    table: pa.Table, pairs: Pairs, declared: ColumnTypes, numerals: Numerals, refusals: Refusals
) -> Records:
    """Return the declared columns of a table. O(rows * columns).

    Args:
        table: log rows.
        pairs: declared names, each with the column that fills it. Others are null.
        declared: the stream's columns.
        numerals: the format of numbers that are texts.
        refusals: receives rows with a cell that its type does not allow.
    """
    named = dict(pairs)
    given = {
        name: _read(table, named[name], name, kind, numerals, refusals)
        for name, kind in declared
        if name in named
    }
    try:
        return encode_records(given, declared, table.num_rows)
    except ObservationError as fault:  # of a complete column, such as too many texts
        if refusals.raises:
            raise
        refusals.refuse_column(named.get(fault.column, fault.column), str(fault))
        return encode_records({}, declared, table.num_rows)


def _read(
    table: pa.Table, source: str, name: str, kind: ColumnType, numerals: Numerals,
    refusals: Refusals,
) -> Any:  # fmt: skip
    if kind == "text":
        expected = f"expected text (column {name!r} is declared as text)"
        return labels_of(table, source, refusals, expected)
    column = column_of(table, source)
    if pa.types.is_null(column.type):
        return None
    if kind == "bool":
        return _truths(column, source, refusals)
    if is_text(column.type):
        column = numbers(column, source, numerals, refusals, integers=kind == "int64")
    missing = nulls_of(column)
    if pa.types.is_floating(column.type):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            missing = missing | nan.fill_null(False).to_numpy(zero_copy_only=False)
            column = pc.if_else(pa.array(missing), pa.scalar(None, column.type), column)
    found = numbers_of(column, source, kind, refusals, f"column {name!r} as int64")
    return np.ma.MaskedArray(found, missing) if missing.any() else found


def _truths(column: pa.Array, name: str, refusals: Refusals) -> npt.NDArray[Any]:
    """Return a column of truth values: of that type, or the texts true, false, 1 and 0."""
    missing = nulls_of(column)
    if is_text(column.type):
        texts = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
        missing = missing | pc.equal(texts, "").fill_null(False).to_numpy(zero_copy_only=False)
        known = pc.is_in(texts, pa.array(["true", "false", "1", "0"])).to_numpy(
            zero_copy_only=False
        )
        refusals.refuse(
            ~known & ~missing, name,
            lambda row: (f"is {column[row].as_py()!r:.80}; expected true or false", None),
        )  # fmt: skip
        column = pc.is_in(texts, pa.array(["true", "1"]))
    elif not pa.types.is_boolean(column.type):
        refusals.refuse_column(name, f"is of type {column.type}; expected true or false", ~missing)
        return np.ma.MaskedArray(np.zeros(len(column), np.bool_), True)
    found = column.fill_null(False).to_numpy(zero_copy_only=False)
    return np.ma.MaskedArray(found, missing)


# ------------------------------------------------------------------------------------- declarations

ALL = "*"
_TYPES = ("float64", "int64", "bool", "text")


def read_columns(given: str) -> tuple[dict[str, str], dict[str, str]]:
    """Parse columns as programs accept them: ``temp=t_degc float64, site text``.

    Returns:
        The log's column for each name, and the types of those that have one.

    Raises:
        ParameterError: an empty or repeated name.
    """
    pairs: dict[str, str] = {}
    types: dict[str, str] = {}
    for part in given.split(",") if given.strip() else ():
        text, _, kind = part.strip().rpartition(" ")
        if kind not in _TYPES or not text.strip():
            text, kind = part, ""
        name, mark, column = (each.strip() for each in text.partition("="))
        if not name or (mark and not column):
            raise ParameterError(f"columns is {given!r}; expected names with commas between them")
        if name in pairs:
            raise ParameterError(f"columns has {name!r} twice; expected each name once")
        pairs[name] = column or name
        if kind:
            types[name] = kind
    return pairs, types


def types_of(
    table: pa.Table, pairs: Mapping[str, str], given: Mapping[str, str], untyped: Numerals | None
) -> ColumnTypes:
    """Return a declaration for columns, from their types and first entries.

    Numbers are float64, so that one log in several formats has one declaration. Declare int64 where
    you need integers above 2^53.

    Args:
        table: some rows of the log.
        pairs: names, each with its column.
        given: types that are declared.
        untyped: the format of numbers, if the table has texts alone (CSV). None: a text is a text.

    Raises:
        ParameterError: a column is missing, of a type that no column can have, or has no entry that
            shows one.
    """
    found = {}
    for name, source in pairs.items():
        found[name] = given.get(name) or _type_of(column_of(table, source), source, untyped)
    return read_column_types(found)


def _type_of(column: pa.Array, name: str, untyped: Numerals | None) -> ColumnType:
    kind = column.type
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float64"
    if holds_text(kind) and (untyped is None or column.null_count < len(column)):
        return "text" if untyped is None else _type_of_texts(in_plain_text(column), untyped)
    if pa.types.is_null(kind) or holds_text(kind):
        raise ParameterError(
            f"column {name!r} has no entries among the first rows that show its type; declare it, "
            f"as in '{name} text'"
        )
    raise ParameterError(
        f"column {name!r} is of type {kind}; expected numbers, texts or truth values: name the "
        "columns that you need"
    )


def _type_of_texts(texts: pa.Array, numerals: Numerals) -> ColumnType:
    said = pc.utf8_lower(texts.drop_null())
    if pc.all(pc.is_in(said, pa.array(["true", "false"], said.type))).as_py():
        return "bool"
    return "float64" if holds_numbers(texts, numerals) else "text"
