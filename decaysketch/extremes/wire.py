"""Family 6: extremes. The shared header is followed by the rows, and nothing else.

Rows are packed as in family 1 (``core/codec/sections.py``), with the value's key instead of the
id. No two rows in a state have one value, since among equal values the latest rules out the others.
About 10 bytes a row.

Guarantees of decoding
    For any bytes, :func:`decode` returns a state that an honest builder could have reached
    or raises :class:`~decaysketch.errors.CorruptSketchError`, in time and memory proportional to
    their length. The state is built again from its rows, and no row may be missing then.
"""

from __future__ import annotations

from dataclasses import fields as fields_of

import numpy as np

from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.reading import CopyHeader, Header, Rows, refuse
from decaysketch.core.codec.sections import check_canonical, decode_rows, first_out_of_order
from decaysketch.core.codec.writing import encode_rows
from decaysketch.core.observations import MISSING_KEY, no_floats
from decaysketch.core.params import SketchParams
from decaysketch.errors import CorruptSketchError, ParameterError
from decaysketch.extremes.params import ExtremesParams
from decaysketch.extremes.rows import Staircases
from decaysketch.extremes.state import MOST_SPANS, ExtremesState

__all__ = ["FAMILY", "decode", "encode", "peek"]

FAMILY = 6

_PACKED = "int64"  # as which the columns are packed; values stand where ids do


def encode(state: ExtremesState, *, embed_params: bool = True) -> bytes:
    """Bytes of a state; equal states have equal bytes.

    Args:
        state: any state.
        embed_params: False names the parameters by their fingerprint alone.

    Returns:
        Version 1 bytes. O(rows).
    """
    body = writing.begin(FAMILY, state.params, embed_params=embed_params)
    writing.put_rows(body, state.times)
    return writing.seal(body, encode_rows(_rows_of(state), _PACKED))


def _rows_of(state: ExtremesState) -> Rows:
    ones, nothing = np.ones(len(state), np.int64), np.full(len(state), MISSING_KEY, np.int64)
    return Rows(state.times, state.value_keys, ones, nothing)


def peek(blob: bytes | bytearray | memoryview) -> Header:
    """Read the header and verify the checksum, without decoding rows.

    Raises:
        CorruptSketchError: see :func:`decode`.
        TypeError: not bytes at all.
    """
    blob = reading.as_bytes(blob)
    header = _read_header(reading.open_blob(blob, FAMILY))
    _check_rows_fit(header, blob)
    return header


def _read_header(opening: reading.Opening) -> Header:
    if opening.copies != 1:
        refuse(f"number of copies is {opening.copies}; expected 1, of extremes")
    return Header.behind(opening, [CopyHeader((), *opening.reader.rows())])


def _check_rows_fit(header: Header, blob: bytes) -> None:
    reading.check_row_count(header.rows, header.capacity, 2 * MOST_SPANS, blob)


def decode(
    blob: bytes | bytearray | memoryview,
    *,
    params: ExtremesParams | None = None,
    id_key: bytes | None = None,
) -> ExtremesState:
    """Return the state that :func:`encode` wrote.

    Args:
        blob: the bytes. Nothing in them is trusted.
        params: the expected parameters. Required if the bytes carry a fingerprint only. The
            capacity is taken from the bytes.
        id_key: the stream's secret, if it has one and ``params`` is None.

    Raises:
        CorruptSketchError: the bytes are not ones that an honest builder could have written.
        IncompatibleSketchError: the bytes have other parameters than ``params``, or
            another ``id_key``, or need one of them and it is missing.
        ParameterError: both ``params`` and ``id_key`` given.
    """
    blob = reading.as_bytes(blob)
    opening = reading.open_blob(blob, FAMILY)
    header = _read_header(opening)
    found = _of_extremes(reading.params_of(opening, params, id_key))
    _check_rows_fit(header, blob)
    (copy,) = header.copies
    rows, end = decode_rows(blob, header.columns_at, copy.rows, copy.newest, _PACKED)
    _check(found, rows)
    check_canonical(blob, header.columns_at, end, rows, _PACKED)
    reading.skip_optional_sections(blob, header.optional_flags, end)
    state = ExtremesState(found, rows.times, rows.ids)
    again = len(Staircases.from_state(state))
    if again != len(state):
        refuse(f"{len(state)} rows, of which {again} are a high or a low; expected all of them")
    return state


def _of_extremes(params: SketchParams) -> ExtremesParams:
    if isinstance(params, ExtremesParams):
        return params
    try:
        return ExtremesParams(
            **{each.name: getattr(params, each.name) for each in fields_of(params)}
        )
    except ParameterError as fault:
        raise CorruptSketchError(f"parameters: {fault}") from None


def _check(params: ExtremesParams, rows: Rows) -> None:
    """Check ranges and strict order."""
    row = first_out_of_order(rows)
    if row >= 0:
        refuse(f"row {row} is not after row {row - 1} in the order of (time, value)")
    if len(rows.times):
        reading.check_time(int(rows.times[-1]), f"time of row {len(rows.times) - 1}")
    keys = rows.ids
    bad = (rows.weights != 1) | (rows.value_keys != MISSING_KEY) | (keys == MISSING_KEY)
    if params.value_type == "float64":
        bad |= no_floats(keys)
    if bad.any():
        row = int(bad.argmax())
        refuse(f"row {row} has value key {int(keys[row])}; expected that of a finite value")
