"""Kernels of family 1: many sketches written into one buffer, and read from one.

They trust what they encode and nothing that they decode: whatever is not flawless gets -1 rows, and
``wire.decode`` says why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, njit, uint8, uint32, uint64

from decaysketch.codec import bitpack as _bitpack
from decaysketch.codec.fields import CHECKSUM_BYTES
from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.minhit import _kernels as minhit_kernels

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_BEYOND_DOUBT = 29  # 2^-29 is more than ``wire._IMPLAUSIBLE``
_LARGEST_FLOAT_KEY = int(np.float64(np.finfo(np.float64).max).view(np.int64))


@njit(inline="always")
def _put_varint(out: Bytes, at: int, number: Any) -> int:
    while number > uint64(0x7F):
        out[at] = uint8(number & uint64(0x7F) | uint64(0x80))
        number >>= uint64(7)
        at += 1
    out[at] = uint8(number)
    return at + 1


@njit(inline="always")
def _zigzag(number: Any) -> Any:
    return uint64((number << int64(1)) ^ (number >> int64(63)))


@njit(**_bitpack.JIT)
def encode(
    prefix: Bytes, offsets: Int64Array, times: Int64Array, ids: Int64Array, weights: Int64Array,
    value_keys: Int64Array, mark_offsets: Int64Array, marks: Int64Array, floats: bool,
    words: npt.NDArray[np.uint64], out: Bytes, out_offsets: Int64Array,
) -> None:  # fmt: skip
    """Bodies of all sketches, each with room for its checksum behind it."""
    at = 0
    out_offsets[0] = 0
    for s in range(len(offsets) - 1):
        start, stop = offsets[s], offsets[s + 1]
        out[at : at + len(prefix)] = prefix
        at += len(prefix)
        first, last = mark_offsets[s], mark_offsets[s + 1]
        at = _put_varint(out, at, uint64(last - first))
        for m in range(first, last):
            if m == first:
                at = _put_varint(out, at, _zigzag(marks[m]))
            else:
                at = _put_varint(out, at, uint64(marks[m - 1] - marks[m]))
        at = _put_varint(out, at, uint64(stop - start))
        if stop > start:
            at = _put_varint(out, at, _zigzag(times[start]))
            bits = _bitpack.encode_columns(
                times[start:stop], ids[start:stop], weights[start:stop], value_keys[start:stop],
                floats, words,
            )  # fmt: skip
            size = (bits + 7) >> 3
            for byte in range(size):
                out[at + byte] = uint8(words[byte >> 3] >> uint64((byte & 7) << 3))
            words[: (bits >> 6) + 2] = uint64(0)
            at += size
        at += CHECKSUM_BYTES
        out_offsets[s + 1] = at


@njit(**_bitpack.JIT)
def digest_inputs(
    offsets: Int64Array, times: Int64Array, ids: Int64Array, weights: Int64Array,
    value_keys: Int64Array, mark_offsets: Int64Array, marks: Int64Array, levels: int,
    out: Int64Array,
) -> None:  # fmt: skip
    """What ``state.digest_of`` hashes behind the parameters, of all sketches, end to end."""
    at = 0
    for s in range(len(offsets) - 1):
        start, stop = offsets[s], offsets[s + 1]
        n = stop - start
        out[at] = n
        at += 1
        set_ = mark_offsets[s + 1] - mark_offsets[s]
        for level in range(levels):
            out[at + level] = marks[mark_offsets[s] + level] if level < set_ else NO_WATERMARK
        at += levels
        for r in range(n):
            out[at + r] = times[start + r]
            out[at + n + r] = ids[start + r]
            out[at + 2 * n + r] = weights[start + r]
            out[at + 3 * n + r] = value_keys[start + r]
        at += 4 * n


@njit(inline="always")
def _read_varint(data: Bytes, at: int, stop: int) -> tuple[Any, int]:
    """(number, position behind it), or position -1 where it is not in its shortest form."""
    number = uint64(0)
    for k in range(9):  # 63 bits; a longer one is not for this kernel
        if at + k >= stop:
            break
        byte = data[at + k]
        number |= uint64(byte & uint8(0x7F)) << uint64(7 * k)
        if byte < uint8(0x80):
            if byte == uint8(0) and k > 0:
                break
            return number, at + k + 1
    return uint64(0), -1


@njit(**_bitpack.JIT)
def read_heads(
    data: Bytes, offsets: Int64Array, prefix: Bytes, top: int,
    rows: Int64Array, newest: Int64Array, columns_at: Int64Array,
    mark_offsets: Int64Array, marks: Int64Array,
) -> None:  # fmt: skip
    """What stands in front of the columns of each sketch; -1 rows where it is not simple.

    ``marks`` has room for one of each byte of ``data``.
    """
    p = len(prefix)
    limit = uint64(TIME_LIMIT)
    mark_out = 0
    mark_offsets[0] = 0
    for s in range(len(offsets) - 1):
        rows[s] = -1
        mark_offsets[s + 1] = mark_out
        start, stop = offsets[s], offsets[s + 1] - CHECKSUM_BYTES
        if stop - start < p + 2:
            continue
        same = True
        for k in range(p):
            same &= data[start + k] == prefix[k]
        if not same:
            continue
        count, at = _read_varint(data, start + p, stop)
        if at < 0 or count > uint64(top):  # a mark of the coarsest level is for the careful reader
            continue
        mark = int64(0)
        end = mark_out
        for m in range(int64(count)):
            word, at = _read_varint(data, at, stop)
            if at < 0:
                break
            if m == 0:
                mark = int64(word >> uint64(1)) ^ -int64(word & uint64(1))
                if mark > int64(TIME_LIMIT) or mark < -int64(TIME_LIMIT):
                    at = -1
                    break
            else:
                if word > uint64(mark) + limit:
                    at = -1
                    break
                mark -= int64(word)
            marks[end] = mark
            end += 1
        if at < 0:
            continue
        number, at = _read_varint(data, at, stop)
        # Two rows take a bit at the least, see ``_bitpack.scan_columns``.
        if at < 0 or number > uint64(8 * (stop - start)):
            continue
        newest[s] = 0
        if number > uint64(0):
            word, at = _read_varint(data, at, stop)
            if at < 0:
                continue
            newest[s] = int64(word >> uint64(1)) ^ -int64(word & uint64(1))
        rows[s] = int64(number)
        columns_at[s] = at
        mark_out = end
        mark_offsets[s + 1] = mark_out


@njit(**_bitpack.JIT)
def _rows_are_good(
    t: Int64Array, d: Int64Array, w: Int64Array, v: Int64Array, floats: bool, id_limit: int,
    max_weight: int, table: npt.NDArray[np.uint32], salt: Any,
) -> bool:  # fmt: skip
    """What ``_rows.check_rows`` asks for."""
    n = len(t)
    largest = int64(_LARGEST_FLOAT_KEY)
    good = _bitpack.first_out_of_order(t, d, w) < 0
    good &= t[0] <= TIME_LIMIT and t[n - 1] >= -TIME_LIMIT
    for r in range(n):
        good &= d[r] >= 0 and d[r] < id_limit and w[r] >= 1 and w[r] <= max_weight
        if floats and v[r] != MISSING_KEY:
            good &= v[r] <= largest and v[r] >= ~largest and v[r] != int64(-1)
    if not good:
        return False
    bits_of_table = 4
    while (1 << bits_of_table) < 2 * n:
        bits_of_table += 1
    mask = (1 << bits_of_table) - 1
    table[: mask + 1] = uint32(0)
    for r in range(n):  # no (id, weight) twice
        hashed = uint64(d[r] * max_weight + w[r]) * salt
        slot = int64(hashed >> uint64(64 - bits_of_table))
        while table[slot] != uint32(0):
            other = int64(table[slot]) - 1
            good &= not (d[other] == d[r] and w[other] == w[r])
            slot = (slot + 1) & mask
        table[slot] = uint32(r + 1)
    return good


@njit(**_bitpack.JIT)
def _marks_are_good(
    t: Int64Array, levels: npt.NDArray[np.int8], marks: Int64Array, capacity: int, top: int,
    by_level: Int64Array,
) -> bool:  # fmt: skip
    """What ``wire._check_watermarks`` asks for, doubtful cases left to it."""
    n = len(t)
    by_level[:] = 0
    counted = 0
    for r in range(n):
        level = int64(levels[r])
        if level < len(marks) and t[r] <= marks[level]:
            return False
    for i in range(len(marks) + 1):
        while counted < n and (i == len(marks) or t[counted] > marks[i]):
            by_level[int64(levels[counted])] += 1
            counted += 1
        later = 0
        for level in range(i, top + 1):
            later += by_level[level]
        if later > capacity:
            return False
        falls = i + 1 >= len(marks) or marks[i + 1] < (marks[i] if i < len(marks) else 0)
        if i < len(marks) and falls:
            overflowing = capacity + 1 - later
            tied = 0
            while counted + tied < n and t[counted + tied] == marks[i]:
                tied += 1
            # No one of them goes up with a chance of 2^-overflowing or more.
            if tied < overflowing and overflowing > _BEYOND_DOUBT:
                return False
    return True


@njit(**_bitpack.JIT)
def decode(
    data: Bytes, offsets: Int64Array, rows: Int64Array, newest: Int64Array, columns_at: Int64Array,
    mark_offsets: Int64Array, marks: Int64Array,
    floats: bool, max_weight: int, capacity: int,
    id_bits: int, mix: Int64Array, a1: int, b: int, p: int, top: int, steps: Int64Array,
    words: npt.NDArray[np.uint64], again: npt.NDArray[np.uint64], out_offsets: Int64Array,
    times: Int64Array, ids: Int64Array, weights: Int64Array, value_keys: Int64Array,
    table: npt.NDArray[np.uint32], levels: npt.NDArray[np.int8], salt: Any,
) -> None:  # fmt: skip
    """Columns of the sketches with ``rows >= 0``; -1 rows where one of them is not flawless."""
    out = 0
    out_offsets[0] = 0
    id_limit = int64(1) << int64(id_bits)
    by_level = np.empty(top + 1, np.int64)
    for s in range(len(rows)):
        n = rows[s]
        out_offsets[s + 1] = out
        if n < 0:
            continue
        own_marks = marks[mark_offsets[s] : mark_offsets[s + 1]]
        first, stop = columns_at[s], offsets[s + 1] - CHECKSUM_BYTES
        if n == 0:
            if first != stop or len(own_marks) > 0:
                rows[s] = -1
            continue
        rows[s] = -1  # until it is seen to be good
        size = stop - first
        used = (size + 7) >> 3
        words[: used + _bitpack.SPARE_WORDS] = uint64(0)
        whole = size >> 3
        words[:whole] = data[first : first + 8 * whole].view(np.uint64)
        for byte in range(8 * whole, size):
            words[byte >> 3] |= uint64(data[first + byte]) << uint64((byte & 7) << 3)
        outcome, bits = _bitpack.scan_columns(words, 8 * size, n, floats)
        if outcome[0] != _bitpack.OK or (bits + 7) >> 3 != size:
            continue
        t, d, w, v = (
            times[out : out + n], ids[out : out + n], weights[out : out + n],
            value_keys[out : out + n],
        )  # fmt: skip
        _bitpack.decode_columns(words, newest[s], floats, t, d, w, v)
        if not _rows_are_good(t, d, w, v, floats, id_limit, max_weight, table, salt):
            continue
        if len(own_marks) > 0:
            minhit_kernels.top_levels(d, w, id_bits, mix, a1, b, p, top, steps, levels)
            if not _marks_are_good(t, levels, own_marks, capacity, top, by_level):
                continue
        elif n > capacity:
            continue
        end = _bitpack.encode_columns(t, d, w, v, floats, again)
        good = (end + 7) >> 3 == size
        for k in range((end >> 6) + 2):
            if k < used + _bitpack.SPARE_WORDS:
                good &= again[k] == words[k]
            again[k] = uint64(0)
        if good:
            rows[s] = n
            out += n
            out_offsets[s + 1] = out


@njit(**_bitpack.JIT)
def join_marks(
    keys: npt.NDArray[np.int32], mark_offsets: Int64Array, marks: Int64Array, joined: Any
) -> None:
    """joined[k, i] = the latest watermark of level i of the sketches of key k."""
    for s in range(len(keys)):
        for m in range(mark_offsets[s], mark_offsets[s + 1]):
            level = m - mark_offsets[s]
            joined[keys[s], level] = max(joined[keys[s], level], marks[m])
