"""Bytes of a sketch, written: header, parameters, numbers, watermarks, rows, labels, checksum.

:func:`begin` and :func:`seal` frame the bytes of a family. :mod:`decaysketch.core.codec.reading`
reads them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import _native
from decaysketch.core.codec.reading import (
    CHECKSUM,
    COLUMN_TYPES,
    FIXED,
    ID_MIXES,
    MAGIC,
    PARAMS_IN_FULL,
    RECORD,
    REVISION,
    SEVERAL_COPIES,
    STRATA,
    TWO_OBJECTIVES,
    VALUE_TYPES,
    VERSION,
    Rows,
)
from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.labels import Labels
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK

__all__ = [
    "begin",
    "by_name",
    "encode_labels",
    "encode_rows",
    "put_clock",
    "put_rows",
    "put_signed_varint",
    "put_varint",
    "put_watermarks",
    "ranks_of",
    "seal",
]

Int64Array = npt.NDArray[np.int64]


def begin(family: int, params: SketchParams, *, embed_params: bool) -> bytearray:
    """Return the fixed header, embedded parameters, capacity and repetition count."""
    several = params.copies > 1
    required = (PARAMS_IN_FULL if embed_params else 0) | (SEVERAL_COPIES if several else 0)
    if len(params.objectives) > 1:
        required |= TWO_OBJECTIVES
    if params.strata:
        required |= STRATA
    body = bytearray(FIXED.pack(MAGIC, VERSION, family, required, 0, params.fingerprint))
    if embed_params:
        _put_params(body, params)
    put_varint(body, params.capacity)
    if several:
        body.append(params.copies)
    return body


def seal(*parts: bytes | bytearray) -> bytes:
    """Join the parts of a body and append their checksum."""
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join((*parts, CHECKSUM.pack(checksum)))


def _put_params(body: bytearray, params: SketchParams) -> None:
    secret = params.id_key is not None
    value_type = 0 if params.columns else VALUE_TYPES.index(params.value_type)
    choices = (
        value_type & 1
        | value_type >> 1 << 3
        | (RECORD if params.columns else 0)
        | (REVISION if params.revision is not None else 0)
        | ID_MIXES.index(params.id_mix) << 1
        | int(secret) << 2
    )
    unit = params.time_unit.encode("ascii")
    body += bytes((params.id_bits, params.copies, choices))
    body += params.seed.to_bytes(8, "little")
    body.append(len(unit))
    body += unit
    put_varint(body, params.max_weight)
    if secret:
        body += params.key_check
    if params.columns:
        _put_column_types(body, by_name(params.columns))
    if params.revision is not None:
        put_varint(body, _number_of(params, params.revision))
    if params.strata:
        _put_strata(body, params)


def put_varint(body: bytearray, number: int) -> None:
    """Encode unsigned LEB128: seven bits per byte, low bits first, high bit set if more bytes
    follow.
    """
    while number > 0x7F:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


def put_signed_varint(body: bytearray, number: int) -> None:
    """Encode the zigzag varint: 0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    put_varint(body, number << 1 if number >= 0 else ~(number << 1))


def put_watermarks(body: bytearray, watermarks: Sequence[int]) -> None:
    """Encode the watermarks that are set, from level 0 up. They never rise with the level."""
    put_varint(body, len(watermarks))
    if watermarks:
        put_signed_varint(body, watermarks[0])
    for before, after in pairwise(watermarks):
        put_varint(body, before - after)


def put_clock(body: bytearray, clock: int) -> None:
    """Encode whether a sketch has a clock, and its time. ``NO_WATERMARK`` means none."""
    body.append(clock != NO_WATERMARK)
    if clock != NO_WATERMARK:
        put_signed_varint(body, clock)


def put_rows(body: bytearray, times: npt.NDArray[np.int64]) -> None:
    """Encode the row count and the time of the first row."""
    put_varint(body, len(times))
    if len(times):
        put_signed_varint(body, int(times[0]))


def _put_column_types(body: bytearray, types: ColumnTypes) -> None:
    """Encode how many columns are declared, then for each the name and one byte for the type."""
    put_varint(body, len(types))
    for name, kind in types:
        encoded = name.encode()
        put_varint(body, len(encoded))
        body += encoded
        body.append(COLUMN_TYPES.index(kind))


def by_name(types: ColumnTypes) -> ColumnTypes:
    """Return columns as they are written, names rising."""
    return tuple(sorted(types, key=lambda pair: pair[0].encode()))


def _number_of(params: SketchParams, name: str) -> int:
    """Return a column's number in the parameters."""
    return [known for known, _ in by_name(params.columns)].index(name)


def _put_strata(body: bytearray, params: SketchParams) -> None:
    """Encode the strata limit, then how many columns the strata have, and each column's number."""
    put_varint(body, params.max_strata)
    put_varint(body, len(params.strata))
    for name in params.strata:
        put_varint(body, _number_of(params, name))


def encode_rows(rows: Rows, value_type: str, *, divides: bool = True) -> bytes:
    """Encode the packed columns, padded to a byte. O(rows), about 6 ns per row.

    Args:
        divides: whether times are divided by their common divisor. Older bytes have no divisors.
    """
    return _native.pack_rows(*rows, value_type == "float64", divides)


def encode_labels(labels: Labels) -> bytes:
    """Encode the labels that follow the rows."""
    body = bytearray()
    put_varint(body, len(labels))
    for label in labels.texts:
        text = label.encode()
        put_varint(body, len(text))
        body += text
    return bytes(body)


def ranks_of(labels: Labels, value_keys: Int64Array) -> Int64Array:
    """Convert value keys to ranks."""
    missing = value_keys == MISSING_KEY
    ranks = labels.places(value_keys).astype(np.int64, copy=False)
    return np.where(missing, np.int64(MISSING_KEY), ranks)
