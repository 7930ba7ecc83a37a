"""Family 1, sketches with strata on the wire.

After the capacity come the row count, the newest time and the number of strata. The stratum columns
follow as a table, rising (``core/codec/records.py``), and each stratum's packed byte length. Then
each stratum stands as in its own sketch: watermarks, row count, first time, packed rows without
values. Last come the other columns for all rows, in the same order.

Each stratum must pass the checks for a sketch (:mod:`decaysketch.querytime.wire`). So the length
bounds time and memory for any bytes, and equal states have equal bytes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec import _native as codec
from decaysketch.core.codec import reading, writing
from decaysketch.core.codec.reading import CHECKSUM_BYTES, Reader, refuse
from decaysketch.core.codec.records import encode_records, read_records
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import DEFAULT_STRATA, SketchParams
from decaysketch.core.records import Records
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.core.withdrawals import fault_of_revisions
from decaysketch.errors import CorruptSketchError
from decaysketch.querytime import _wire_native as _native
from decaysketch.querytime.many import ManySketches, decode_many, ends_of
from decaysketch.querytime.state import FAMILY
from decaysketch.querytime.strata_state import (
    StrataState,
    by_stratum,
    no_strata,
    plain_params,
    strata_state,
)

__all__ = ["encode_strata", "peek_strata", "read_strata"]

Int64Array = npt.NDArray[np.int64]

_LEAST_BYTES = 2  # per stratum: its watermark count and row count


def encode_strata(state: StrataState, *, embed_params: bool) -> bytes:
    """Return a state's bytes. O(rows * columns)."""
    body = writing.begin(FAMILY, state.params, embed_params=embed_params)
    writing.put_rows(body, state.times)
    writing.put_varint(body, len(state.strata))
    sketches, order = by_stratum(state)
    bodies, offsets = _bodies(sketches)
    parts: list[bytes | bytearray] = [body]
    if len(state.strata):
        parts += [
            encode_records([state.strata]),
            codec.pack_values(np.diff(offsets), False),
            bodies,
        ]
    if len(state.strata) and state.own_records is not None:
        parts.append(encode_records([state.own_records[order].canonical()]))
    return writing.seal(*parts)


def _bodies(sketches: ManySketches) -> tuple[bytes, Int64Array]:
    """Return the strata as sketches without header and checksum, end to end, and their bounds."""
    out = np.empty(_native.room(*sketches, prefix_bytes=1), np.uint8)
    ends = np.empty(len(sketches.offsets), np.int64)
    _native.encode(*sketches, prefix=b"\0", floats=False, out=out, out_offsets=ends)
    kept = np.ones(int(ends[-1]), np.bool_)
    kept[ends[:-1]] = False
    for byte in range(CHECKSUM_BYTES):
        kept[ends[1:] - 1 - byte] = False
    return out[: ends[-1]][kept].tobytes(), ends - np.arange(len(ends)) * (1 + CHECKSUM_BYTES)


def peek_strata(reader: Reader, blob: bytes, capacity: int) -> tuple[int, int | None, int]:
    """Return the row count, the newest time and the strata count, from a reader behind the
    capacity. Raise for numbers that these bytes cannot have.
    """
    rows, newest = reader.rows()
    strata = reader.varint("number of strata")
    left = len(reader.body) - reader.at
    if strata * _LEAST_BYTES > left:
        refuse(f"{strata} strata in {left} bytes; a stratum takes {_LEAST_BYTES} at the least")
    reading.check_row_count(rows, capacity, 64 * max(strata, 1), blob)
    return rows, newest, strata


def read_strata(
    blob: bytes, params: SketchParams, at: int, counts: tuple[int, int | None, int],
    *, plausible: bool,
) -> tuple[StrataState, int]:  # fmt: skip
    """Read a state from byte ``at`` in a sealed blob, behind the strata count. Return it and
    the offset after it.
    """
    rows, newest, strata = counts
    keys, lengths, at = _read_strata_table(blob, params, at, strata)
    stop = len(blob) - CHECKSUM_BYTES
    if int(lengths.sum()) > stop - at:
        refuse(f"strata take {int(lengths.sum())} bytes; {stop - at} are left")
    sketches = _read_bodies(blob, params, at, lengths, keys, plausible=plausible)
    at += int(lengths.sum())
    found = len(sketches.times)
    latest = int(sketches.times.max()) if found else None
    if (found, latest) != (rows, newest):
        refuse(f"{rows} rows, the newest at {newest}; the strata have {found} and {latest}")
    own = None
    if strata and params.own_columns:
        (own,), at = read_records(blob, at, params.own_columns, [found])
        if fault := fault_of_revisions(replace(params, strata=(), max_strata=DEFAULT_STRATA), own):
            refuse(fault)
    numbered = sketches._replace(value_keys=np.arange(found, dtype=np.int64))
    return strata_state(params, numbered, keys, own), at


def _read_strata_table(
    blob: bytes, params: SketchParams, at: int, strata: int
) -> tuple[Records, Int64Array, int]:
    """Return the stratum columns and each stratum's length."""
    none = no_strata(params)
    if not strata:
        return none, np.empty(0, np.int64), at
    (keys,), at = read_records(blob, at, none.types, [strata])
    ranks = np.stack([column.keys for column in keys.columns])
    before, after = ranks[:, :-1], ranks[:, 1:]
    differs = before != after
    first = differs.argmax(axis=0), np.arange(strata - 1)
    if not (differs.any(axis=0) & (after[first] > before[first])).all():
        refuse("stratum keys do not rise")
    lengths = np.empty(strata, np.int64)
    end = codec.read_values(blob, at, len(blob) - CHECKSUM_BYTES, False, lengths)
    if end < 0 or codec.pack_values(lengths, False) != blob[at:end]:
        refuse(f"lengths at byte {at} are not packed as for {strata} strata")
    if int(lengths.min()) < _LEAST_BYTES or int(lengths.max()) > len(blob):
        refuse(f"a stratum takes {_LEAST_BYTES} bytes or more, and all bytes at most")
    return keys, lengths, end


def _read_bodies(
    blob: bytes, params: SketchParams, at: int, lengths: Int64Array, keys: Records,
    *, plausible: bool,
) -> ManySketches:  # fmt: skip
    """Read the strata: together where they are simple, else one by one."""
    plain = plain_params(params)
    prefix = bytes(writing.begin(FAMILY, plain, embed_params=True))
    ends = at + np.concatenate([[0], np.cumsum(lengths)])
    sealed = [writing.seal(prefix, blob[start:stop]) for start, stop in pairwise(ends.tolist())]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in sealed])]).astype(np.int64)
    if not sealed:
        none = np.empty(0, np.int64)
        return ManySketches(offsets, none, none, none, none, offsets, none)
    data = np.frombuffer(b"".join(sealed), np.uint8)
    sketches, read = decode_many(plain, data, offsets)
    if not read.all():
        sketches = _with_care(plain, sketches, read, sealed, keys, plausible=plausible)
    if (sketches.value_keys != MISSING_KEY).any():
        refuse("a row has a value, and the stream has columns; expected none")
    return sketches


def _with_care(
    plain: SketchParams, sketches: ManySketches, read: npt.NDArray[np.bool_],
    sealed: list[bytes], keys: Records, *, plausible: bool,
) -> ManySketches:  # fmt: skip
    """Return the strata with those that are not simple read one after the other. The error names
    the first check that fails, and the stratum.
    """
    from decaysketch.querytime import wire  # which reads strata by this module

    rows: list[list[Int64Array]] = []
    marks: list[Int64Array] = []
    ends, mark_ends = sketches.offsets.tolist(), sketches.mark_offsets.tolist()
    bounds = zip(pairwise(ends), pairwise(mark_ends), strict=True)
    for number, ((start, stop), (first, last)) in enumerate(bounds):
        if read[number]:
            rows.append([column[start:stop] for column in sketches[1:5]])
            marks.append(sketches.marks[first:last])
            continue
        try:
            (state,) = wire.decode(sealed[number], params=plain, check_plausible=plausible)
        except CorruptSketchError as fault:
            raise CorruptSketchError(f"stratum {number}: {fault}") from None
        rows.append([state.times, state.ids, state.weights, state.value_keys])
        marks.append(state.watermarks[state.watermarks != NO_WATERMARK])
    times, ids, weights, values = (np.concatenate(column) for column in zip(*rows, strict=True))
    return ManySketches(
        ends_of([len(each[0]) for each in rows]), times, ids, weights, values,
        ends_of(list(map(len, marks))), np.concatenate(marks),
    )  # fmt: skip
