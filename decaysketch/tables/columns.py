"""Columns of Arrow tables as the arrays that sketches accept. Other entries are rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.arrays import Column
from decaysketch.core.hashing import MAX_KEY_BYTES, EncodedKeys, RepeatedKeys
from decaysketch.core.labels import EncodedLabels, fault_of_label
from decaysketch.core.row_check import EXACT_IN_FLOAT, NO_INTEGER
from decaysketch.core.text_values import PLAIN, Numerals
from decaysketch.errors import ParameterError
from decaysketch.tables.rejections import Refusals
from decaysketch.tables.texts import numbers as numbers_of_texts

__all__ = [
    "Entry",
    "as_text",
    "column_of",
    "decoded",
    "holds_text",
    "id_column",
    "in_plain_text",
    "integers_of",
    "is_binary",
    "is_text",
    "kind_of_keys",
    "labels_of",
    "nulls_of",
    "numbers_of",
    "refuse_nulls",
    "source_column",
    "without_gaps",
]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Entry = Any  # of a column, as Arrow makes an object of it


def column_of(table: pa.Table, name: str) -> pa.Array:
    """Return one column in one piece, decoded if it is a dictionary."""
    if name not in table.column_names:
        raise ParameterError(f"no column {name!r}; there are {', '.join(table.column_names)}")
    if table.column_names.count(name) > 1:
        raise ParameterError(f"there are two columns {name!r}; rename one of them")
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # an empty one, or more text than one array can hold
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    column = decoded(column)
    views = column.type in (pa.string_view(), pa.binary_view())
    return in_plain_text(column) if views else column


def decoded(column: pa.Array) -> pa.Array:
    """Return a dictionary's entries, and any other column as it is. O(rows)."""
    if not pa.types.is_dictionary(column.type):
        return column
    if column.type.value_type in (pa.string_view(), pa.binary_view()):  # which Arrow cannot decode
        texts = in_plain_text(column.dictionary)
        column = pa.DictionaryArray.from_arrays(column.indices, texts)
    return column.dictionary_decode()


def as_text(column: pa.Array, name: str) -> pa.Array:
    """Return integers or text as text.

    Raises:
        ParameterError: the column has another type.
    """
    if not (is_text(column.type) or pa.types.is_integer(column.type)):
        raise ParameterError(
            f"column {name!r} is of type {column.type}; expected integers or text to be taken as "
            "text"
        )
    return column.cast(pa.string())


def nulls_of(column: pa.Array) -> BoolArray:
    """Return the mask of nulls in a column."""
    if not column.null_count:
        return np.zeros(len(column), dtype=bool)
    mask: BoolArray = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def without_gaps(column: pa.Array) -> pa.Array:
    """Replace nulls with a harmless entry. Those rows are masked, replaced or rejected."""
    if not column.null_count:
        return column
    kind = column.type
    if pa.types.is_null(kind):
        return pa.array(np.zeros(len(column), dtype=np.int64))
    if is_text(kind):
        return column.fill_null(pa.scalar("", kind))
    if is_binary(kind):
        width = kind.byte_width if pa.types.is_fixed_size_binary(kind) else 0
        return column.fill_null(pa.scalar(bytes(width), kind))
    if pa.types.is_decimal(kind):
        return column.fill_null(pa.scalar(0, kind))
    whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    return column.fill_null(pa.scalar(0, whole).cast(kind))


def refuse_nulls(column: pa.Array, name: str, refusals: Refusals) -> pa.Array:
    """Return the column without nulls, and reject their rows."""
    if not column.null_count:
        return column
    refusals.refuse(nulls_of(column), name, lambda row: ("is missing", None))
    return without_gaps(column)


def integers_of(
    column: pa.Array, name: str, refusals: Refusals, numerals: Numerals = PLAIN
) -> Int64Array:
    """Return a column as int64: integers, or numbers and texts that are integers. Nulls are
    rejected.

    Text formats and data frames turn integers into floats if a column has gaps. A float that is
    exactly an integer is accepted as one.
    """
    if is_text(column.type):
        column = numbers_of_texts(column, name, numerals, refusals, integers=True)
    column = refuse_nulls(column, name, refusals)
    kind = column.type
    if pa.types.is_null(kind):  # of no rows
        return np.empty(0, dtype=np.int64)
    if pa.types.is_floating(kind):
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            bad = ~((np.abs(numbers) <= EXACT_IN_FLOAT) & (numbers == np.rint(numbers)))
        if bad.any():
            refusals.refuse(bad, name, lambda row: (NO_INTEGER, float(numbers[row]), "an integer"))
            return np.where(bad, 0.0, numbers).astype(np.int64)
        integers: Int64Array = numbers.astype(np.int64)
        return integers
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        refusals.refuse_column(name, f"is of type {kind}; expected integers")
        return np.zeros(len(column), np.int64)
    return _cast(column, pa.int64(), name, refusals)


def _cast(column: pa.Array, kind: pa.DataType, name: str, refusals: Refusals) -> Column:
    """Convert exactly. Reject entries that cannot be converted."""
    try:
        array: Column = column.cast(kind).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as fault:
        if refusals.raises:
            refusals.refuse_column(name, f"cannot be read as {kind}: {fault}")
        faults: dict[int, str] = {}
        _find_faults(column, kind, 0, faults)
        bad = np.zeros(len(column), dtype=bool)
        bad[list(faults)] = True
        refusals.refuse(
            bad, name, lambda row: (f"cannot be read as {kind}: {faults[row]}", column[row].as_py())
        )
        good = pc.if_else(pa.array(bad), pa.scalar(None, column.type), column)
        array = without_gaps(good).cast(kind).to_numpy(zero_copy_only=False)
    return array


def _find_faults(column: pa.Array, kind: pa.DataType, start: int, faults: dict[int, str]) -> None:
    """Find rows that cannot be cast, by halving: O(faults log rows) casts."""
    try:
        column.cast(kind)
    except pa.ArrowInvalid as fault:
        if len(column) == 1:
            faults[start] = str(fault)
            return
        half = len(column) // 2
        _find_faults(column[:half], kind, start, faults)
        _find_faults(column[half:], kind, start + half, faults)


def numbers_of(
    column: pa.Array, name: str, kind_of_values: str, refusals: Refusals,
    wider: str = "value_type='int64'",
) -> Column:  # fmt: skip
    """Return numbers as float64 or int64, without -2^63 and non-finite numbers. Entries at nulls
    are arbitrary.

    Floats are never accepted as integers. Integers are accepted as floats if they are exact.
    ``wider`` is the declaration that accepts larger integers, for errors.
    """
    dtype: Literal["int64", "float64"] = "float64" if kind_of_values == "float64" else "int64"
    present = ~nulls_of(column) if column.null_count else None
    column = without_gaps(column)
    kind = column.type
    if not len(column):  # a column of no rows may have no type
        return np.empty(0, dtype=dtype)
    if pa.types.is_floating(kind):
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if dtype == "int64":
            refusals.refuse_column(
                name,
                f"has dtype float64, such as {numbers.flat[0]!r}; expected integers (the stream's "
                "value_type is 'int64')",
                present,
            )
            return np.zeros(len(column), np.int64)
        return _finite(numbers, name, refusals)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        integers = _cast(column, pa.int64(), name, refusals)
        return _values_of_integers(integers, name, dtype, refusals, wider)
    if pa.types.is_decimal(kind):
        if dtype == "float64":
            # By way of text, to the nearest float64: Arrow's own cast is off by a last bit.
            column = column.cast(pa.string())
        values = _cast(column, pa.from_numpy_dtype(dtype), name, refusals)
        if dtype == "float64":
            return _finite(values, name, refusals)
        return _values_of_integers(values, name, dtype, refusals, wider)
    refusals.refuse_column(name, f"is of type {kind}; expected numbers", present)
    return np.zeros(len(column), dtype)


def labels_of(
    table: pa.Table, name: str, refusals: Refusals,
    expected: str = "expected text (the stream's value_type is 'label')",
) -> EncodedLabels:  # fmt: skip
    """Return a text column as labels, each stored once. None where it is null."""
    column = _encoded_text(table, name)
    if column is None:
        plain = column_of(table, name)
        if not is_text(plain.type):
            plain = in_plain_text(plain)
        if pa.types.is_null(plain.type):
            return EncodedLabels((), np.full(len(plain), -1, np.int64))
        if not is_text(plain.type):
            refusals.refuse_column(
                name,
                f"is of type {plain.type}; {expected}",
                ~nulls_of(plain),
            )  # fmt: skip
            return EncodedLabels((), np.full(len(plain), -1, np.int64))
        column = plain.dictionary_encode()
    elif not is_text(column.type.value_type):
        refusals.refuse_column(name, "is of bytes; expected text", ~nulls_of(column))
        return EncodedLabels((), np.full(len(column), -1, np.int64))
    numbers = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    texts = in_plain_text(column.dictionary).to_pylist()
    faults = {place: fault for place, text in enumerate(texts) if (fault := fault_of_label(text))}
    if faults:
        bad = np.isin(numbers, list(faults))
        refusals.refuse(
            bad, name, lambda row: (faults[int(numbers[row])], texts[int(numbers[row])][:40])
        )
        kept = ["" if place in faults else text for place, text in enumerate(texts)]
        return EncodedLabels(kept, np.where(bad, -1, numbers))
    return EncodedLabels(texts, numbers)


def _finite(numbers: Column, name: str, refusals: Refusals) -> Column:
    finite = np.isfinite(numbers)
    if finite.all():
        return numbers
    refusals.finite(numbers, name)
    return np.where(finite, numbers, 0.0)


def _values_of_integers(
    integers: Int64Array, name: str, kind: str, refusals: Refusals, wider: str
) -> Column:
    if kind == "int64":
        bad = refusals.not_reserved(integers, name)
        return integers if bad is None else np.where(bad, 0, integers)
    refusals.exact(integers, name, wider)
    return integers.astype(np.float64)


def id_column(
    table: pa.Table, name: str, refusals: Refusals
) -> Column | EncodedKeys | RepeatedKeys:
    """Return a key column as integers, or as text or bytes, each stored once if the column is a
    dictionary. Nulls are rejected.
    """
    repeated = _encoded_text(table, name)
    if repeated is not None:
        return _repeated_keys(repeated, name, refusals)
    column = in_plain_text(column_of(table, name))
    column = refuse_nulls(column, name, refusals)
    kind = column.type
    if pa.types.is_timestamp(kind):  # the unit is the file format's affair, not the key's
        nanoseconds = pa.timestamp("ns", kind.tz)
        return _cast(column, nanoseconds, name, refusals).astype(np.int64)
    if pa.types.is_integer(kind):
        integers: Column = column.to_numpy(zero_copy_only=False)
        return integers
    if not (is_text(kind) or is_binary(kind)):
        return integers_of(column, name, refusals)
    keys, lengths = _encoded_keys(column)
    _refuse_long(lengths, lambda row: column[row].as_py(), name, refusals)
    return keys


def kind_of_keys(kind: pa.DataType) -> str:
    """Return the key kind for a column type. Keys of two kinds are never equal, for example 12 and
    "12".
    """
    if pa.types.is_dictionary(kind):
        return kind_of_keys(kind.value_type)
    if is_text(kind) or isinstance(kind, pa.UuidType):
        return "text"
    if is_binary(kind):
        return "bytes"
    return "timestamps" if pa.types.is_timestamp(kind) else "integers"


def source_column(table: pa.Table, name: str, refusals: Refusals) -> Column:
    """Return a key column with few distinct entries, as integers or Python objects. Nulls are
    rejected.
    """
    keys = id_column(table, name, refusals)
    if isinstance(keys, EncodedKeys):
        column = in_plain_text(column_of(table, name)).dictionary_encode()
        keys = _repeated_keys(column, name, Refusals(len(column), raises=False))
    if isinstance(keys, RepeatedKeys):
        objects: Column = keys.entries.to_objects()[keys.codes]
        return objects
    return keys


def _repeated_keys(column: pa.DictionaryArray, name: str, refusals: Refusals) -> RepeatedKeys:
    refusals.refuse(nulls_of(column), name, lambda row: ("is missing", None))
    keys, lengths = _encoded_keys(in_plain_text(column.dictionary))
    empty = len(keys)  # an entry for the nulls
    codes = column.indices.cast(pa.int64()).fill_null(empty).to_numpy(zero_copy_only=False)
    keys = replace(keys, offsets=np.append(keys.offsets, keys.offsets[-1:]))
    lengths = np.append(lengths, 0)
    _refuse_long(lengths[codes], lambda row: column[row].as_py(), name, refusals)
    return RepeatedKeys(keys, codes)


def in_plain_text(column: pa.Array) -> pa.Array:
    """Return text and bytes in Arrow's layout with int64 offsets. UUIDs become their usual text,
    the same key as in ``observation_ids``.
    """
    if isinstance(column.type, pa.UuidType):
        texts = [each and str(UUID(bytes=each)) for each in column.storage.to_pylist()]
        return pa.array(texts, pa.large_string())
    if is_text(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if is_binary(column.type) else column


def _encoded_keys(column: pa.Array) -> tuple[EncodedKeys, Int64Array]:
    """Return text or bytes without nulls as they lie in memory, and the byte count of each. Too
    long ones get none.
    """
    kind = str if is_text(column.type) else bytes
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
    long = lengths > MAX_KEY_BYTES
    if long.any():
        column = pc.if_else(pa.array(long), pa.scalar(kind(), column.type), column)
    offsets = np.zeros(1, np.int64)
    _, starts, data = column.buffers()
    if len(column):
        offsets = np.frombuffer(starts, np.int64, len(column) + 1, 8 * column.offset)
    return EncodedKeys(kind, offsets, np.frombuffer(data or b"", np.uint8)), lengths


def _refuse_long(
    lengths: Int64Array, key: Callable[[int], str | bytes], name: str, refusals: Refusals
) -> None:
    refusals.refuse(
        lengths > MAX_KEY_BYTES, name,
        lambda row: (
            f"is a key of {lengths[row]} bytes; at most {MAX_KEY_BYTES} are allowed", key(row)[:32]
        ),
    )  # fmt: skip


def _encoded_text(table: pa.Table, name: str) -> pa.DictionaryArray | None:
    """Return a text or bytes column that is a dictionary already, in one piece."""
    if name not in table.column_names:
        return None  # which is refused elsewhere
    kind = table.schema.field(name).type
    if not pa.types.is_dictionary(kind):
        return None
    if not (is_text(kind.value_type) or is_binary(kind.value_type)):
        return None
    column = table.column(name).combine_chunks()
    if not isinstance(column, pa.DictionaryArray) or column.dictionary.null_count:
        return None
    return column


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a text type."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def holds_text(kind: pa.DataType) -> bool:
    """Return whether the entries of a column type are text, in a dictionary or not."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type is a bytes type."""
    return (
        kind in (pa.binary(), pa.large_binary(), pa.binary_view())
        or pa.types.is_fixed_size_binary(kind) is True
    )
