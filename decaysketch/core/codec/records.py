"""Observation columns on the wire, after the rows.

First come the texts: for each text column its text count, then each text, rising: how many bytes it
shares with the one before, how many others follow, and these. Then come, for each repetition and
column, one byte for the form and the packed column (``bitpack.c``), padded to a byte. Text keys are
positions among the texts, and truth values are 0 and 1.

======  ===============================================================================
form 0  the value keys
form 1  ``float64`` only: every value is a float32, and the keys are for the shortest decimal
        that rounds to it. Written if it takes fewer bytes
======  ===============================================================================

The reader encodes each column again and compares bytes. So each state has one encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import _native
from decaysketch.core.codec.reading import CHECKSUM_BYTES, Reader, refuse, text_of
from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.labels import MAX_LABEL_BYTES
from decaysketch.core.observations import (
    MISSING_KEY,
    decode_values,
    encode_values,
    float_keys,
    no_floats,
)
from decaysketch.core.records import (
    MAX_TEXTS,
    Record,
    Records,
    RecordsOfEach,
    TextsOfEach,
    concatenated,
)

__all__ = ["EachPart", "encode_records", "joined_parts", "parts_of_each", "read_records"]

Bytes = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

_KEYS, _FLOAT32 = 0, 1
_DECIMALS = 9  # enough for any float32


# ----------------------------------------------------------------------------------------- writing


def encode_records(parts: Sequence[Records]) -> bytes:
    """Encode the columns for all repetitions. O(rows * columns)."""
    joint = concatenated(parts)
    body = bytearray()
    for (_, kind), column in zip(joint.types, joint.columns, strict=True):
        if kind == "text":
            count = len(column.texts)
            alone = TextsOfEach(column.texts, np.arange(count), np.array([0, count]))
            body += _front_coded(alone)[0]
    start = 0
    for part in parts:
        stop = start + len(part)
        for (_, kind), column in zip(joint.types, joint.columns, strict=True):
            body += _packed(column.keys[start:stop], kind)
        start = stop
    return bytes(body)


def _front_coded(texts: TextsOfEach) -> tuple[bytes, Int64Array]:
    """Return the texts of each sketch end to end, and offsets into the bytes."""
    joined = "".join(texts.texts)
    each: Sequence[str | bytes] = texts.texts
    if not joined.isascii():
        each = [*map(str.encode, texts.texts)]
    bounds = np.zeros(len(each) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, each), np.int64, len(each)), out=bounds[1:])
    ends = np.empty(len(texts.offsets), np.int64)
    coded = _native.front_code(joined.encode(), bounds, texts.numbers, texts.offsets, ends)
    return coded, ends


def _shared(a: bytes, b: bytes) -> int:
    """Return how many first bytes are equal. O(bytes)."""
    most = min(len(a), len(b))
    differ = int.from_bytes(a[:most]) ^ int.from_bytes(b[:most])
    return most - (differ.bit_length() + 7 >> 3)


def _packed(keys: Int64Array, kind: str) -> bytes:
    if not len(keys):
        return b""
    keys = np.ascontiguousarray(keys)
    if kind != "float64":
        return bytes([_KEYS]) + _native.pack_values(keys, False)
    plain: bytes = _native.pack_values(keys, True)
    found = _shortest_decimals(keys)
    if found.single.all() and found.differs.any():
        shorter: bytes = _native.pack_values(found.keys, True)
        if len(shorter) < len(plain):
            return bytes([_FLOAT32]) + shorter
    return bytes([_KEYS]) + plain


class _Decimals(NamedTuple):
    """Decimals with the fewest digits that round to float32 numbers.

    Attributes:
        keys: their keys. Other numbers keep theirs.
        single: which numbers are float32 numbers, or missing.
        differs: which of them are no such decimals.
    """

    keys: Int64Array
    single: npt.NDArray[np.bool_]
    differs: npt.NDArray[np.bool_]


def _shortest_decimals(keys: Int64Array) -> _Decimals:
    values, missing = decode_values(keys, "float64")
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    is_single = missing | (single.astype(np.float64) == values)
    found, left = values.copy(), np.flatnonzero(is_single & ~missing)
    for decimals in range(_DECIMALS + 1):
        power = 10.0**decimals
        near = np.rint(values[left] * power) / power
        good = near.astype(np.float32) == single[left]
        found[left[good]] = near[good]
        left = left[~good]
        if not len(left):
            break
    differs = (found != values) & ~missing
    found_keys = keys.copy()
    if differs.any():
        found_keys[differs] = encode_values(found[differs], "float64")
    return _Decimals(found_keys, is_single, differs)


# --------------------------------------------------------------------------- writing many sketches


class EachPart(NamedTuple):
    """Some bytes of each of many sketches: the bytes, and where they start and stop."""

    data: Bytes
    starts: Int64Array
    stops: Int64Array


def parts_of_each(records: RecordsOfEach) -> list[EachPart]:
    """Return the columns of many sketches, in parts. :func:`encode_records`
    returns the same parts for a single sketch, joined. O(rows * columns).
    """
    kinds = [kind for _, kind in records.types]
    parts = []
    for texts in records.texts:
        if texts is not None:
            coded, ends = _front_coded(texts)
            parts.append(EachPart(np.frombuffer(coded, np.uint8), ends[:-1], ends[1:]))
    for keys, kind in zip(records.keys, kinds, strict=True):
        parts += _packed_parts(np.ascontiguousarray(keys), records.offsets, kind)
    return parts


def joined_parts(parts: Sequence[EachPart]) -> tuple[Bytes, Int64Array]:
    """Return the parts of each sketch one after the other: bytes end to end, and offsets."""
    sizes = sum((part.stops - part.starts for part in parts), np.zeros(1, np.int64))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    out, at = np.empty(int(offsets[-1]), np.uint8), offsets[:-1].copy()
    for part in parts:
        _native.append_each(part.data, part.starts, part.stops, out, at)
    return out, offsets


def _packed_parts(keys: Int64Array, offsets: Int64Array, kind: str) -> list[EachPart]:
    """Return the forms and the packed keys, as :func:`_packed`."""
    plain = _packed_each(keys, offsets, floats=kind == "float64")
    form = np.zeros(len(offsets) - 1, np.uint8)
    chosen = [plain]
    if kind == "float64":
        which = np.repeat(np.arange(len(form)), np.diff(offsets))
        found = _shortest_decimals(keys)
        shown = np.bincount(which[~found.single], minlength=len(form)) == 0
        shown &= np.bincount(which[found.differs], minlength=len(form)) > 0
        if shown.any():
            other = np.where(shown[which], found.keys, keys)
            decimal = _packed_each(other, offsets, floats=True)
            shown &= decimal.stops - decimal.starts < plain.stops - plain.starts
            form[shown] = _FLOAT32
            chosen = [
                plain._replace(stops=np.where(shown, plain.starts, plain.stops)),
                decimal._replace(stops=np.where(shown, decimal.stops, decimal.starts)),
            ]
    some = np.diff(offsets) > 0  # a sketch without rows has no form either
    place = np.arange(len(form), dtype=np.int64)
    return [EachPart(form, place, place + some), *chosen]


def _packed_each(keys: Int64Array, offsets: Int64Array, *, floats: bool) -> EachPart:
    out, ends = np.empty(_native.each_room(offsets), np.uint8), np.empty(len(offsets), np.int64)
    _native.pack_each(keys, offsets, floats, out, ends)
    return EachPart(out, ends[:-1], ends[1:])


# ----------------------------------------------------------------------------------------- reading


def read_records(
    blob: bytes, at: int, types: ColumnTypes, rows: Sequence[int]
) -> tuple[list[Records], int]:
    """Read the columns for all repetitions from byte ``at`` in a sealed blob. Return them, each
    canonical, and the offset after them.

    Args:
        types: declared columns.
        rows: row count for each repetition, bounded by the row bytes.
    """
    reader = Reader(memoryview(blob)[:-CHECKSUM_BYTES], at)
    most = min(sum(rows), MAX_TEXTS)
    texts = [_read_texts(reader, name, most) if kind == "text" else () for name, kind in types]
    parts = []
    for count in rows:
        columns = []
        for (name, kind), known in zip(types, texts, strict=True):
            columns.append(Record(_read_column(blob, reader, name, kind, count, known), known))
        parts.append(Records(types, tuple(columns)))
    _check_all_used(types, texts, parts)
    return [part.canonical() for part in parts], reader.at


def _read_texts(reader: Reader, name: str, most: int) -> tuple[str, ...]:
    count = reader.varint(f"number of texts of column {name!r}")
    if count > most:
        refuse(f"column {name!r} has {count} texts; there are {most} rows")
    found, before = [], b""
    for number in range(count):
        field = f"text {number} of column {name!r}"
        shared = reader.varint(f"shared bytes of {field}")
        more = reader.varint(f"other bytes of {field}")
        if shared > len(before) or shared + more > MAX_LABEL_BYTES:
            refuse(
                f"{field} has {shared} bytes of {len(before)} and {more} others; expected at most "
                f"{MAX_LABEL_BYTES}"
            )
        text = before[:shared] + reader.take(more, field)
        if number and text <= before:
            refuse(f"{field} is {text[:40]!r} after {before[:40]!r}; expected texts that rise")
        if shared != _shared(before, text):
            refuse(f"{field} shares {_shared(before, text)} bytes; {shared} are given")
        found.append(text_of(text, field))
        before = text
    return tuple(found)


def _read_column(
    blob: bytes, reader: Reader, name: str, kind: str, count: int, texts: Sequence[str]
) -> Int64Array:
    keys = np.empty(count, np.int64)
    if not count:
        return keys
    start = reader.at
    form = reader.byte(f"form of column {name!r}")
    if form > (_FLOAT32 if kind == "float64" else _KEYS):
        refuse(f"form of column {name!r} is {form}; expected 0, or 1 for float64")
    end = _native.read_values(blob, reader.at, len(blob) - CHECKSUM_BYTES, kind == "float64", keys)
    if end < 0:
        refuse(f"column {name!r} at byte {reader.at} is not as {count} rows are packed")
    reader.at = end
    there = keys != MISSING_KEY
    if kind == "float64":
        _check_floats(keys, there, name)
        if form == _FLOAT32:
            values, _ = decode_values(keys, kind)
            with np.errstate(over="ignore"):
                keys = np.where(there, float_keys(values.astype(np.float32)), keys)
            _check_floats(keys, there, name)
    elif kind != "int64":
        most = len(texts) if kind == "text" else 2
        if there.any() and not 0 <= int(keys[there].min()) <= int(keys.max()) < most:
            refuse(f"column {name!r} has a key beyond {most}")
    if _packed(keys, kind) != blob[start:end]:
        refuse(f"column {name!r} is not canonical: encoding it again gives other bytes")
    return keys


def _check_floats(keys: Int64Array, there: npt.NDArray[np.bool_], name: str) -> None:
    if (no_floats(keys) & there).any():
        refuse(f"column {name!r} has a key of no finite float64, -0.0 excepted")


def _check_all_used(
    types: ColumnTypes, texts: Sequence[Sequence[str]], parts: Sequence[Records]
) -> None:
    """Reject a text without a row."""
    for number, (name, kind) in enumerate(types):
        if kind != "text":
            continue
        used = np.zeros(len(texts[number]) + 1, np.bool_)
        for part in parts:
            used[np.maximum(part.columns[number].keys, -1)] = True
        if not used[:-1].all():
            refuse(f"text {int(np.argmin(used))} of column {name!r} has no row")
