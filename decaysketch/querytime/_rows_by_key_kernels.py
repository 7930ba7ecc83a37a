"""Numba kernels of many sketches at once: group rows, build key by key.

A row that is not later than the watermark of its level, in the sketch of its key, may be turned
away where it comes in: that is most of them, once the sketches are full, if the latest came first.
The others become records of five int64 numbers: the number of the key beside the level (where that
is known), value key, weight, time and id. They are moved twice, whole: into at most
``MAX_PARTITIONS`` ranges of keys, and inside a range to their key by a counting sort. Then the rows
of a key lie together, and its state (``state.py``) is built with scratch memory that all keys
share:

* at most ``capacity`` rows and no watermark yet: nothing can be discarded, only copies are dropped;
* otherwise the kernels of a single sketch do it: levels, order by time, compaction.

What is kept is written back over the records, which never takes more room than was read.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, uint32, uint64

from decaysketch.core._sort_kernels import (
    MAX_ROWS,
    ROW_BITS,
    TABLE_FULL,
    radix_sort,
    sort_by_time,
)
from decaysketch.minhit import _kernels as minhit_kernels
from decaysketch.querytime import _kernels as rows_kernels

JIT = {"cache": True, "nogil": True, "error_model": "numpy"}

FIELDS = 5  # numbers of a record
TAG, VALUE, WEIGHT, TIME, ID = range(FIELDS)
KEY_BITS = 32  # of a tag: the number of the key; above it the level, and one more, if known
UNKNOWN, TURNED_AWAY = -1, -2  # for a level
MAX_PARTITIONS = 512
NO_WATERMARK = -(1 << 63)

_FEW = 12  # rows that are compared or sorted one by one
_PACKED_ROWS = 4096  # up to so many rows the digits of a sort are fitted to them


# --------------------------------------------------------------------------------------- grouping


@njit(inline="always")
def _key_of(tag):
    return tag & ((int64(1) << int64(KEY_BITS)) - int64(1))


@njit(**JIT)
def find_levels(
    codes, weights, times, ids, id_bits, mix, a1, b, p, top, steps, mark_offsets, marks, levels
):
    """levels[k] = the top level of row k, or TURNED_AWAY where that has a watermark that the row is
    not later than, or the weight is 0.

    ``mark_offsets`` and ``marks`` are the watermarks that are set, of each key that was there at
    the last compaction. Returns how many rows are not turned away.
    """
    block = int64(minhit_kernels.BLOCK)
    x, remaining = np.empty(block, np.int64), np.empty(block, np.int64)
    known = int64(mark_offsets.shape[0]) - int64(1)
    taken = int64(0)
    for start in range(0, codes.shape[0], block):
        count = min(block, codes.shape[0] - start)
        minhit_kernels.minimum_block(
            ids, weights, start, count, id_bits, mix, a1, b, p, steps, x, remaining
        )
        minhit_kernels.level_block(x, count, p, top, remaining)
        for k in range(count):
            row = start + k
            code, level = int64(codes[row]), remaining[k]
            later = weights[row] > int64(0)
            if code < known:
                mark = mark_offsets[code] + level
                if mark < mark_offsets[code + int64(1)]:
                    later &= times[row] > marks[mark]
            levels[row] = level if later else int64(TURNED_AWAY)
            taken += int64(1) if later else int64(0)
    return taken


@njit(inline="always")
def _is_taken(weights, levels, k):
    return weights[k] > int64(0) and (len(levels) == 0 or int64(levels[k]) != int64(TURNED_AWAY))


@njit(**JIT)
def count_partitions(codes, weights, levels, shift, counts):
    """counts[p] += rows taken of keys with number >> shift == p; see :func:`scatter`."""
    for k in range(codes.shape[0]):
        counts[int64(codes[k]) >> shift] += int64(1) if _is_taken(weights, levels, k) else int64(0)


@njit(**JIT)
def scatter(codes, values, weights, times, ids, levels, shift, positions, records):
    """Write the rows of weight above 0 that were not turned away to their partitions. ``levels``:
    int8[n], or empty where none is known."""
    for k in range(codes.shape[0]):
        if _is_taken(weights, levels, k):
            code = int64(codes[k])
            at = positions[code >> shift]
            positions[code >> shift] = at + int64(1)
            level = int64(levels[k]) if len(levels) > 0 else int64(UNKNOWN)
            records[at, TAG] = code | ((level + int64(1)) << int64(KEY_BITS))
            records[at, VALUE] = values[k]
            records[at, WEIGHT] = weights[k]
            records[at, TIME] = times[k]
            records[at, ID] = ids[k]


@njit(**JIT)
def count_record_partitions(source, shift, counts):
    """:func:`count_partitions` of records."""
    for k in range(source.shape[0]):
        counts[_key_of(source[k, TAG]) >> shift] += int64(1)


@njit(**JIT)
def scatter_records(source, shift, positions, records):
    """:func:`scatter` of records."""
    for k in range(source.shape[0]):
        partition = _key_of(source[k, TAG]) >> shift
        at = positions[partition]
        positions[partition] = at + int64(1)
        for field in range(FIELDS):
            records[at, field] = source[k, field]


# ----------------------------------------------------------------------------------- state by key


@njit(**JIT)
def _latest_copies(values, weights, times, ids, n, max_weight, salt, table):
    """Keep one row for each (id, weight), the largest by (time, value), in front; their number."""
    kept = int64(0)
    if n <= int64(_FEW):
        for k in range(n):
            copy = int64(0)
            while copy < kept and not (ids[copy] == ids[k] and weights[copy] == weights[k]):
                copy += int64(1)
            if copy == kept:
                values[kept], weights[kept], times[kept], ids[kept] = (
                    values[k], weights[k], times[k], ids[k]
                )  # fmt: skip
                kept += int64(1)
            elif times[k] > times[copy] or (times[k] == times[copy] and values[k] > values[copy]):
                times[copy], values[copy] = times[k], values[k]
        return kept
    bits = int64(5)
    while (int64(1) << bits) < int64(2) * n:
        bits += int64(1)
    size = int64(1) << bits
    mask = size - int64(1)
    shift = uint64(int64(64) - bits)
    table[:size] = uint32(0)
    for k in range(n):
        id_, weight = ids[k], weights[k]
        slot = int64((uint64(id_ * max_weight + weight - int64(1)) * salt) >> shift)
        copy = int64(table[slot]) - int64(1)
        while copy >= int64(0) and not (ids[copy] == id_ and weights[copy] == weight):
            slot = (slot + int64(1)) & mask
            copy = int64(table[slot]) - int64(1)
        if copy < int64(0):
            values[kept], weights[kept], times[kept], ids[kept] = values[k], weight, times[k], id_
            kept += int64(1)
            table[slot] = uint32(kept)
        elif times[k] > times[copy] or (times[k] == times[copy] and values[k] > values[copy]):
            times[copy], values[copy] = times[k], values[k]
    return kept


@njit(**JIT)
def _sort_by_time(times, levels, n, keys, words, keys2, words2):
    """``sort_by_time``, with digits that suit a few rows."""
    if n > int64(_PACKED_ROWS):
        return sort_by_time(times, levels, n, keys, words, keys2, words2)
    newest = times[0]
    for k in range(n):
        newest = max(newest, times[k])
    widest = uint64(0)
    for k in range(n):
        keys[k] = uint64(newest) - uint64(times[k])
        widest |= keys[k]
        words[k] = uint32(k) | (uint32(levels[k]) << uint32(ROW_BITS))
    if n <= int64(_FEW):
        for k in range(int64(1), n):
            key, word = keys[k], words[k]
            position = k
            while position > int64(0) and keys[position - int64(1)] > key:
                keys[position] = keys[position - int64(1)]
                words[position] = words[position - int64(1)]
                position -= int64(1)
            keys[position] = key
            words[position] = word
        return False, newest
    bits = int64(0)
    while bits < int64(64) and (widest >> uint64(bits)) != uint64(0):
        bits += int64(1)
    return radix_sort(keys, words, keys2, words2, n, bits), newest


@njit(**JIT)
def _first_table_bits(n, capacity):
    """Bits of an identity table for what ``n`` rows are expected to leave."""
    expected = float(capacity)
    size = float(capacity)
    while size * 2.0 < float(n):
        expected += 0.5 * float(capacity)
        size *= 2.0
    slots = int64(1.6 * min(expected + float(capacity), float(n))) + int64(64)
    bits = int64(6)
    while (int64(1) << bits) < slots:
        bits += int64(1)
    return bits


@njit(**JIT)
def build(
    records, partitions, shift, key_count, capacity, max_weight,
    id_bits, mix, a1, b, p, top, steps,
    mark_offsets, marks_before, salt, largest_partition, largest_key,
    key_offsets, new_mark_offsets, new_marks,
):  # fmt: skip
    """The state of every key, from records in partitions, written over them.

    Args:
        records: int64[n, FIELDS]; partition ``z`` is ``partitions[z]:partitions[z + 1]``.
        mark_offsets, marks_before: the watermarks that are set, of each key, before.
        largest_partition, largest_key: rows of them.
        key_offsets: int64[key_count + 1], out: key ``k`` has the records
            ``key_offsets[k]:key_offsets[k + 1]``.
        new_mark_offsets, new_marks: out: watermarks afterwards.

    Returns:
        Number of records kept.
    """
    values = np.empty(largest_partition, np.int64)
    weights = np.empty(largest_partition, np.int64)
    times = np.empty(largest_partition, np.int64)
    ids = np.empty(largest_partition, np.int64)
    levels = np.empty(largest_partition, np.int8)
    keys, keys2 = np.empty(largest_key, np.uint64), np.empty(largest_key, np.uint64)
    words, words2 = np.empty(largest_key, np.uint32), np.empty(largest_key, np.uint32)
    out_values, out_weights = np.empty(largest_key, np.int64), np.empty(largest_key, np.int64)
    out_times, out_ids = np.empty(largest_key, np.int64), np.empty(largest_key, np.int64)
    out_levels = np.empty(largest_key, np.int8)
    slots = int64(256)
    while slots < int64(4) * largest_key + int64(256):
        slots *= int64(2)
    table = np.empty(slots, np.uint32)
    marks = np.empty(top + int64(1), np.int64)
    width = int64(1) << shift
    starts = np.empty(width + int64(1), np.int64)
    at = np.empty(width, np.int64)
    out = int64(0)
    mark_out = int64(0)
    key_offsets[0] = int64(0)
    new_mark_offsets[0] = int64(0)
    for z in range(partitions.shape[0] - 1):
        first_key = int64(z) << shift
        keys_here = min(width, key_count - first_key)
        starts[: keys_here + int64(1)] = int64(0)
        for r in range(partitions[z], partitions[z + 1]):
            starts[_key_of(records[r, TAG]) - first_key + int64(1)] += int64(1)
        for k in range(keys_here):
            at[k] = starts[k]
            starts[k + 1] += starts[k]
        for r in range(partitions[z], partitions[z + 1]):
            key = _key_of(records[r, TAG]) - first_key
            place = at[key]
            at[key] = place + int64(1)
            values[place] = records[r, VALUE]
            weights[place] = records[r, WEIGHT]
            times[place] = records[r, TIME]
            ids[place] = records[r, ID]
            levels[place] = (records[r, TAG] >> int64(KEY_BITS)) - int64(1)
        for k in range(keys_here):
            code = first_key + k
            start = starts[k]
            n = starts[k + 1] - start
            had_marks = mark_offsets[code + 1] - mark_offsets[code]
            v, w, t, d = values[start:], weights[start:], times[start:], ids[start:]
            lev = levels[start : start + n]
            if n <= capacity and had_marks == int64(0):
                kept = _latest_copies(v, w, t, d, n, max_weight, salt, table)
                lev[:kept] = int64(UNKNOWN)
            else:
                marks[:] = int64(NO_WATERMARK)
                for m in range(had_marks):
                    marks[m] = marks_before[mark_offsets[code] + m]
                known = True
                for r in range(n):
                    known &= lev[r] >= int64(0)
                if not known:
                    minhit_kernels.top_levels(d[:n], w[:n], id_bits, mix, a1, b, p, top, steps, lev)
                    if had_marks > int64(0):
                        n = rows_kernels.drop_cut(v, w, t, d, lev, int64(0), n, marks)
                kept = int64(0)
                if n > int64(0):
                    swapped, newest = _sort_by_time(t, lev, n, keys, words, keys2, words2)
                    bits = _first_table_bits(n, capacity)
                    while True:
                        kept, _ = rows_kernels.compact(
                            v, w, d, keys2 if swapped else keys, words2 if swapped else words, n,
                            newest, capacity, max_weight, marks, salt,
                            out_values, out_weights, out_times, out_ids, out_levels, table, bits,
                        )  # fmt: skip
                        if kept != int64(TABLE_FULL):
                            break
                        bits += int64(1)
                v, w, t, d = out_values, out_weights, out_times, out_ids
                lev = out_levels
                for m in range(top + int64(1)):
                    if marks[m] != int64(NO_WATERMARK):
                        new_marks[mark_out] = marks[m]
                        mark_out += int64(1)
            for r in range(kept):
                records[out, TAG] = code | ((int64(lev[r]) + int64(1)) << int64(KEY_BITS))
                records[out, VALUE] = v[r]
                records[out, WEIGHT] = w[r]
                records[out, TIME] = t[r]
                records[out, ID] = d[r]
                out += int64(1)
            key_offsets[code + 1] = out
            new_mark_offsets[code + 1] = mark_out
    return out


@njit(**JIT)
def canonical_rows(records, offsets, max_weight, largest_key, times, ids, weights, values):
    """Columns of the records of each key, ordered by (time, id, weight), all descending.

    Args:
        records: int64[n, FIELDS], key by key.
        offsets: int64[keys + 1] into them, from 0.
        largest_key: rows of the largest key.
        times, ids, weights, values: int64[n], out.
    """
    levels = np.zeros(largest_key, np.int8)
    t, d, w = (
        np.empty(largest_key, np.int64), np.empty(largest_key, np.int64),
        np.empty(largest_key, np.int64),
    )  # fmt: skip
    rows = np.empty(largest_key, np.int64)
    keys, keys2 = np.empty(largest_key, np.uint64), np.empty(largest_key, np.uint64)
    words, words2 = np.empty(largest_key, np.uint32), np.empty(largest_key, np.uint32)
    order = np.empty(largest_key, np.int64)
    row_mask = uint32(MAX_ROWS - 1)
    for k in range(offsets.shape[0] - 1):
        start = offsets[k]
        n = offsets[k + 1] - start
        if n == int64(0):
            continue
        ordered = True
        for r in range(n):
            rows[r] = start + r
            t[r] = records[start + r, TIME]
            ordered &= r == int64(0) or t[r] <= t[r - int64(1)]
        if not ordered:
            swapped, _ = _sort_by_time(t, levels, n, keys, words, keys2, words2)
            for r in range(n):
                rows[r] = start + int64((words2[r] if swapped else words[r]) & row_mask)
        for r in range(n):
            t[r] = records[rows[r], TIME]
            d[r] = records[rows[r], ID]
            w[r] = records[rows[r], WEIGHT]
        rows_kernels.canonical_order(t, d, w, n, max_weight, keys, words, keys2, words2, order)
        for r in range(n):
            row = rows[order[r]]
            times[start + r] = t[order[r]]
            ids[start + r] = d[order[r]]
            weights[start + r] = w[order[r]]
            values[start + r] = records[row, VALUE]
