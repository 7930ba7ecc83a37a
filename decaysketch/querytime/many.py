"""Family 1, many sketches in one stream at once: the bytes from ``wire.py``, digests, and back.

For some hundred thousand small sketches the cost is not their rows but the Python work per
sketch. Here kernels write all sketches into one buffer and read them from one, and Python adds the
checksum and the digest. Reading accepts only sketches that are certainly flawless, in the one form
that :func:`encode_many` writes. All others are left to ``wire.decode``, which either reads them or
reports the fault.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.codec.reading import CHECKSUM_BYTES, Rows
from decaysketch.core.codec.records import EachPart, joined_parts, parts_of_each
from decaysketch.core.codec.writing import begin
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import SketchParams
from decaysketch.core.records import RecordsOfEach
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime import _wire_native as _native
from decaysketch.querytime.state import FAMILY, stream_of

__all__ = [
    "ManySketches",
    "decode_many",
    "digest_many",
    "encode_many",
    "encode_many_records",
    "ends_of",
    "joined_marks",
]

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_MOST_ROWS = 1 << 23  # decoded at once; they take 32 bytes each


class ManySketches(NamedTuple):
    """Canonical states of sketches in one stream with one repetition, end to end.

    Attributes:
        offsets: int64[sketches + 1], the rows of each.
        times, ids, weights, value_keys: int64[rows], each sketch in canonical order.
        mark_offsets: int64[sketches + 1], the watermarks of each.
        marks: int64, the set watermarks, from level 0 up.
    """

    offsets: Int64Array
    times: Int64Array
    ids: Int64Array
    weights: Int64Array
    value_keys: Int64Array
    mark_offsets: Int64Array
    marks: Int64Array


def encode_many(params: SketchParams, sketches: ManySketches) -> tuple[Bytes, Int64Array]:
    """Return the bytes for every sketch, with the parameters in them, as ``wire.encode`` writes
    them.

    Args:
        params: shared parameters, with one repetition.
        sketches: their states.

    Returns:
        (buffer, offsets int64[sketches + 1] into it). About 1 us a sketch and 6 ns a row.
    """
    prefix = bytes(begin(FAMILY, params, embed_params=True))
    out = np.empty(_native.room(*sketches, prefix_bytes=len(prefix)), np.uint8)
    out_offsets = np.empty(len(sketches.offsets), np.int64)
    _native.encode(
        *sketches, prefix=prefix, floats=params.value_type == "float64", out=out,
        out_offsets=out_offsets,
    )  # fmt: skip
    _seal(out, out_offsets)
    return out[: out_offsets[-1]], out_offsets


def encode_many_records(
    params: SketchParams, sketches: ManySketches, records: RecordsOfEach
) -> tuple[Bytes, Int64Array]:
    """Do the same for sketches with columns.

    Args:
        params: shared parameters.
        sketches: their states. Value keys are ignored.
        records: their columns, row by row.
    """
    nothing = np.full(len(sketches.times), MISSING_KEY, np.int64)
    bare = sketches._replace(value_keys=nothing)
    prefix = bytes(begin(FAMILY, params, embed_params=True))
    rows = np.empty(_native.room(*bare, prefix_bytes=len(prefix)), np.uint8)
    ends = np.empty(len(bare.offsets), np.int64)
    _native.encode(*bare, prefix=prefix, floats=False, out=rows, out_offsets=ends)
    # The columns are between the rows and the checksum.
    first = EachPart(rows, ends[:-1], ends[1:] - CHECKSUM_BYTES)
    last = EachPart(rows, ends[1:] - CHECKSUM_BYTES, ends[1:])
    out, offsets = joined_parts([first, *parts_of_each(records), last])
    _seal(out, offsets)
    return out, offsets


def _seal(out: Bytes, offsets: Int64Array) -> None:
    view, ends = out.data, offsets.tolist()
    checksums = np.array(
        [zlib.crc32(view[start : stop - CHECKSUM_BYTES]) for start, stop in pairwise(ends)],
        "<u4",
    )
    places = offsets[1:, None] - CHECKSUM_BYTES + np.arange(CHECKSUM_BYTES)
    out[places] = checksums.view(np.uint8).reshape(-1, CHECKSUM_BYTES)


def digest_many(
    params: SketchParams, sketches: ManySketches, records: RecordsOfEach | None = None
) -> list[str]:
    """Return the digest for every sketch, as ``state.digest_of`` gives it. About 1 us a sketch.

    Args:
        params: shared parameters.
        sketches: their states.
        records: their columns, which replace their value keys.
    """
    levels = params.levels + 1
    sizes = 1 + levels + 4 * np.diff(sketches.offsets)
    inputs = np.empty(int(sizes.sum()), np.int64)
    _native.digest_inputs(*sketches, levels=levels, out=inputs)
    base = hashlib.sha256(params.fingerprint)
    base.update(params.capacity.to_bytes(8, "little"))
    view = inputs.astype("<i8", copy=False).view(np.uint8).data
    ends = [0, *(8 * np.cumsum(sizes)).tolist()]
    columns: Iterable[Iterable[Any]] = repeat(()) if records is None else records.digest_parts()
    values = 0 if records is None else 8 * np.diff(sketches.offsets)  # which columns replace
    stops = (np.array(ends[1:]) - values).tolist()
    digests = []
    for start, stop, more in zip(ends, stops, columns, strict=False):
        digest = base.copy()
        digest.update(view[start:stop])
        for part in more:
            digest.update(part)
        digests.append(digest.hexdigest())
    return digests


def decode_many(
    params: SketchParams, data: Bytes, offsets: Int64Array
) -> tuple[ManySketches, npt.NDArray[np.bool_]]:
    """Read sketches of one stream from one buffer, as far as they are simple.

    Args:
        params: expected parameters of all sketches, capacity included.
        data: the bytes.
        offsets: int64[sketches + 1] into them.

    Returns: (sketches, read): sketches with ``read`` are checked as ``wire.decode`` checks them.
        The others were only checked for the reason that they are not simple, and have no rows.
    """
    prefix = bytes(begin(FAMILY, params, embed_params=True))
    count = len(offsets) - 1
    rows, first_times, columns_at = (np.empty(count, np.int64) for _ in range(3))
    mark_offsets, marks = np.empty(count + 1, np.int64), np.empty(len(data), np.int64)
    _native.read_heads(
        data, offsets, prefix=prefix, top=params.levels, rows=rows, first_times=first_times,
        columns_at=columns_at, mark_offsets=mark_offsets, marks=marks,
    )  # fmt: skip
    marks = marks[: mark_offsets[-1]].copy()
    _check_sums(data, offsets, rows)
    rows[rows > params.capacity * (params.levels + 1)] = -1
    rows[np.cumsum(np.maximum(rows, 0)) > _MOST_ROWS] = -1  # rows may share a byte: decode singly
    columns = Rows.room(int(np.maximum(rows, 0).sum()))
    out_offsets = np.empty(count + 1, np.int64)
    _native.read_many(
        stream_of(params), data, offsets, rows=rows, first_times=first_times,
        columns_at=columns_at, mark_offsets=mark_offsets, marks=marks,
        times=columns.times, ids=columns.ids, weights=columns.weights, values=columns.value_keys,
        out_offsets=out_offsets,
    )  # fmt: skip
    read = rows >= 0
    kept = np.diff(mark_offsets) * read
    if not read.all():
        marks = marks[np.repeat(read, np.diff(mark_offsets))]
    mark_offsets = np.concatenate([[0], np.cumsum(kept)])
    total = int(out_offsets[-1])
    times, ids, weights, values = (column[:total] for column in columns)
    sketches = ManySketches(out_offsets, times, ids, weights, values, mark_offsets, marks)
    return sketches, read


def ends_of(lengths: list[int]) -> Int64Array:
    """Return offsets of parts with these lengths, end to end."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def joined_marks(
    params: SketchParams, sketches: ManySketches, keys: npt.NDArray[np.int32], count: int
) -> tuple[Int64Array, Int64Array]:
    """Return each key's latest watermarks over its sketches.

    Args:
        params: parameters of the sketches.
        sketches: their states.
        keys: int32[sketches], the key number of each, below ``count``.
        count: the number of keys.

    Returns:
        (offsets int64[count + 1], marks), as in :class:`ManySketches`.
    """
    if not len(sketches.marks):
        return np.zeros(count + 1, np.int64), sketches.marks
    joined = np.full((count, params.levels + 1), NO_WATERMARK, np.int64)
    _native.join_marks(keys, sketches.mark_offsets, sketches.marks, joined)
    found = joined != NO_WATERMARK
    return np.concatenate([[0], np.cumsum(found.sum(axis=1))]), joined[found]


def _check_sums(data: Bytes, offsets: Int64Array, rows: Int64Array) -> None:
    """Set -1 rows where the checksum does not match the bytes."""
    simple = np.flatnonzero(rows >= 0)
    places = offsets[simple + 1][:, None] - CHECKSUM_BYTES + np.arange(CHECKSUM_BYTES)
    stored = np.ascontiguousarray(data[places]).view("<u4").reshape(-1)
    view, starts, stops = data.data, offsets[simple].tolist(), offsets[simple + 1].tolist()
    computed = np.array(
        [
            zlib.crc32(view[start : stop - CHECKSUM_BYTES])
            for start, stop in zip(starts, stops, strict=True)
        ],
        np.uint32,
    )
    rows[simple[stored != computed]] = -1
