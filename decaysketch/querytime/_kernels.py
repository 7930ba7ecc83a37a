"""Numba kernels of the retained rows: sort by time, compact, canonical order. int64 throughout.

A sketch holds a bag of rows (value key, weight, time, id, level): what the last compaction kept,
and what arrived since and is later than the watermark of its level. Compaction computes the state
that ``state.py`` defines:

(1) Order all rows by time, latest first (``core/_sort_kernels.py``).
(2) Walk from the latest row on, with the lowest level that is still complete. A row below it is
    dropped by a branch-free filter over chunks, before anything of it is read. The others are
    looked up by identity (id, weight) among the rows already kept: the first copy met is the latest
    one; of copies with equal time the larger value wins.
(3) After each run of equal times: while more than ``capacity`` rows of the lowest complete level or
    above are kept, its watermark is that time and the next level becomes the lowest complete one.
(4) Drop the rows at a cut that fell below the watermark of their level.

Where the rows that were kept stand in canonical order, and fewer came since, the newcomers alone
are sorted and looked up, and the two runs are merged (:func:`merge_newcomers`): a pass over the
sketch costs little more than copying it.

The identity table is open-addressed, sized for the rows that survive and not for those that come
in, and keyed by a random odd multiplier of this process: it is fed from the network, and never
enters the bytes.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, uint32, uint64

from decaysketch.core._sort_kernels import (
    CHUNK,
    JIT,
    MAX_ROWS,
    ROW_BITS,
    TABLE_FULL,
    _bit_length,
    radix_sort,
)

_INSERTION_SORT = 12
_FILTER_BITS = 3  # 2^3 bits for each slot of the table


@njit(inline="always")
def _raise_marks(marks, kept, complete, lowest, capacity, now):
    """Step (3), where a run of equal times ended; returns (complete, lowest)."""
    while lowest < int64(marks.shape[0]) and complete > capacity:
        marks[lowest] = now
        complete -= kept[lowest]
        lowest += int64(1)
    return complete, lowest


@njit(inline="always")
def _pass_marks(marks, kept, complete, lowest, now):
    """Leave the levels that are not complete at a time; returns (complete, lowest)."""
    while lowest < int64(marks.shape[0]) and marks[lowest] >= now:
        complete -= kept[lowest]
        lowest += int64(1)
    return complete, lowest


@njit(inline="always")
def drop_cut(values, weights, times, ids, levels, start, stop, marks):
    """Step (4), in place, of rows start..stop - 1; returns the end of those that are left."""
    left = start
    for k in range(start, stop):
        values[left] = values[k]
        weights[left] = weights[k]
        times[left] = times[k]
        ids[left] = ids[k]
        levels[left] = levels[k]
        left += int64(1) if times[k] > marks[int64(levels[k])] else int64(0)
    return left


@njit(**JIT)
def compact(
    values, weights, ids, keys, words, n, newest, capacity, max_weight, marks, salt,
    out_values, out_weights, out_times, out_ids, out_levels, table, table_bits,
):  # fmt: skip
    """Steps (2) to (4) over rows sorted by :func:`sort_by_time`.

    ``marks`` are the watermarks 0..M, raised in place. Returns the number of rows kept, or
    TABLE_FULL (then nothing of the output is valid, but ``marks`` are: they were only raised where
    that is right for every table size) and a number that keeps the table's prefetch alive.
    """
    levels_count = int64(marks.shape[0])
    table_size = int64(1) << table_bits
    table[:table_size] = uint32(0)
    slot_shift = uint64(int64(64) - table_bits)
    slot_mask = table_size - int64(1)
    most_inserted = table_size - (table_size >> int64(2))
    row_bits = uint64(_bit_length(uint64(n + int64(1))))
    row_mask = (uint64(1) << row_bits) - uint64(1)
    tag_mask = uint64(0xFFFFFFFF) ^ row_mask
    word_mask = uint32(MAX_ROWS - 1)

    chunk_key = np.empty(CHUNK, np.uint64)
    chunk_row = np.empty(CHUNK, np.int64)
    chunk_level = np.empty(CHUNK, np.int64)
    chunk_hash = np.empty(CHUNK, np.uint64)
    kept = np.zeros(levels_count + int64(1), np.int64)  # rows kept, by top level
    complete = int64(0)  # rows kept of level >= lowest
    lowest = int64(0)  # lowest level that has discarded nothing down to the current time
    out = int64(0)
    inserted = int64(0)
    prefetch = uint32(0)
    now = newest
    now_key = uint64(0)

    start = int64(0)
    while start < n and lowest < levels_count:
        stop = min(start + int64(CHUNK), n)
        found = int64(0)
        for k in range(start, stop):
            word = words[k]
            level = int64(word >> uint32(ROW_BITS))
            chunk_key[found] = keys[k]
            chunk_row[found] = int64(word & word_mask)
            chunk_level[found] = level
            found += int64(1) if level >= lowest else int64(0)
        start = stop
        for c in range(found):
            row = chunk_row[c]
            identity = ids[row] * max_weight + weights[row] - int64(1)
            hashed = uint64(identity) * salt
            chunk_hash[c] = hashed
            prefetch ^= table[int64(hashed >> slot_shift)]
        for c in range(found):
            if chunk_key[c] != now_key:  # a run of equal times ended
                complete, lowest = _raise_marks(marks, kept, complete, lowest, capacity, now)
                now_key = chunk_key[c]
                now = int64(uint64(newest) - now_key)
            complete, lowest = _pass_marks(marks, kept, complete, lowest, now)
            level = chunk_level[c]
            if level < lowest:
                continue
            row = chunk_row[c]
            id_, weight = ids[row], weights[row]
            hashed = chunk_hash[c]
            tag = hashed & tag_mask
            slot = int64(hashed >> slot_shift)
            entry = uint64(table[slot])
            copy = int64(-1)
            while entry != uint64(0):
                if (entry & tag_mask) == tag:
                    candidate = int64(entry & row_mask) - int64(1)
                    if out_ids[candidate] == id_ and out_weights[candidate] == weight:
                        copy = candidate
                        break
                slot = (slot + int64(1)) & slot_mask
                entry = uint64(table[slot])
            if copy >= int64(0):
                if out_times[copy] == now and values[row] > out_values[copy]:
                    out_values[copy] = values[row]
                continue
            out_values[out] = values[row]
            out_weights[out] = weight
            out_times[out] = now
            out_ids[out] = id_
            out_levels[out] = level
            out += int64(1)
            table[slot] = uint32(tag | uint64(out))
            inserted += int64(1)
            if inserted > most_inserted:
                return int64(TABLE_FULL), prefetch
            kept[level] += int64(1)
            complete += int64(1)
    complete, lowest = _raise_marks(marks, kept, complete, lowest, capacity, now)
    survivors = drop_cut(
        out_values, out_weights, out_times, out_ids, out_levels, int64(0), out, marks
    )
    return survivors, prefetch


@njit(inline="always")
def _compare(time, id_, weight, other_time, other_id, other_weight):
    """1 if a row comes before another in canonical order, -1 if after, 0 if they are copies."""
    if time != other_time:
        return int64(1) if time > other_time else int64(-1)
    if id_ != other_id:
        return int64(1) if id_ > other_id else int64(-1)
    if weight != other_weight:
        return int64(1) if weight > other_weight else int64(-1)
    return int64(0)


@njit(**JIT)
def merge_newcomers(
    values, weights, times, ids, levels, n,
    new_values, new_weights, new_times, new_ids, new_levels, order,
    capacity, max_weight, marks, salt,
    out_values, out_weights, out_times, out_ids, out_levels, table, table_bits,
):  # fmt: skip
    """Steps (2) to (4) over two runs in canonical order: n rows of a state, and newcomers.

    ``order`` are the numbers of the newcomers in that order; both it and ``new_values`` are
    overwritten. Their identities have at most half of the table. Returns the number of rows kept,
    in canonical order.
    """
    table_size = int64(1) << table_bits
    table[:table_size] = uint32(0)
    slot_shift = uint64(int64(64) - table_bits)
    slot_mask = table_size - int64(1)
    # A bit for each hash that is there: it is rarely set for a row that has no copy.
    bit_shift = slot_shift - uint64(_FILTER_BITS)
    present = np.zeros(table_size >> int64(6 - _FILTER_BITS), np.uint64)
    size = int64(0)  # newcomers without copies among themselves
    for k in range(len(order)):
        row = order[k]
        identity = new_ids[row] * max_weight + new_weights[row] - int64(1)
        hashed = uint64(identity) * salt
        bit = hashed >> bit_shift
        present[int64(bit >> uint64(6))] |= uint64(1) << (bit & uint64(63))
        slot = int64(hashed >> slot_shift)
        copy = int64(-1)
        while table[slot] != uint32(0):
            candidate = order[int64(table[slot]) - int64(1)]
            if new_ids[candidate] == new_ids[row] and new_weights[candidate] == new_weights[row]:
                copy = candidate
                break
            slot = (slot + int64(1)) & slot_mask
        if copy < int64(0):
            order[size] = row
            size += int64(1)
            table[slot] = uint32(size)
        elif new_times[copy] == new_times[row]:
            new_values[copy] = max(new_values[copy], new_values[row])

    kept = np.zeros(marks.shape[0] + 1, np.int64)  # rows kept, by top level
    complete = int64(0)  # rows kept of level >= lowest
    lowest = int64(0)  # lowest level that has discarded nothing down to the current time
    out, run = int64(0), int64(0)  # rows written, and those before the current time
    i, j = int64(0), int64(0)
    now = times[0] if n > int64(0) else int64(0)
    while lowest < int64(marks.shape[0]) and (i < n or j < size):
        row = int64(-1)  # of the newcomer that comes next
        first = int64(1)  # 1: the next row of the state comes before, -1: after, 0: it is a copy
        if j < size:
            row = order[j]
            if row < int64(0):  # there is a later copy in the state
                j += int64(1)
                continue
            first = (
                int64(-1)
                if i == n
                else _compare(
                    times[i], ids[i], weights[i], new_times[row], new_ids[row], new_weights[row]
                )
            )
        if first > int64(0):
            value, weight, time, id_, level = values[i], weights[i], times[i], ids[i], levels[i]
            i += int64(1)
            hashed = uint64(id_ * max_weight + weight - int64(1)) * salt
            bit = hashed >> bit_shift
            is_there = (present[int64(bit >> uint64(6))] >> (bit & uint64(63))) & uint64(1)
            slot = int64(hashed >> slot_shift)
            copy = int64(-1)
            while is_there and table[slot] != uint32(0):
                position = int64(table[slot]) - int64(1)
                candidate = order[position]
                if (
                    candidate >= int64(0)
                    and new_ids[candidate] == id_
                    and new_weights[candidate] == weight
                ):
                    copy = position
                    break
                slot = (slot + int64(1)) & slot_mask
            if copy >= j:
                order[copy] = int64(-1)
            elif copy >= int64(0):
                continue
        else:
            value, weight, time = new_values[row], new_weights[row], new_times[row]
            id_, level = new_ids[row], new_levels[row]
            j += int64(1)
            if first == int64(0):
                value = max(value, values[i])
                i += int64(1)
        if time != now:  # a run of equal times ended
            if complete > capacity:
                complete, lowest = _raise_marks(marks, kept, complete, lowest, capacity, now)
                out = drop_cut(
                    out_values, out_weights, out_times, out_ids, out_levels, run, out, marks
                )
            now = time
            run = out
        complete, lowest = _pass_marks(marks, kept, complete, lowest, now)
        if int64(level) < lowest:
            continue
        out_values[out] = value
        out_weights[out] = weight
        out_times[out] = time
        out_ids[out] = id_
        out_levels[out] = level
        out += int64(1)
        kept[int64(level)] += int64(1)
        complete += int64(1)
    complete, lowest = _raise_marks(marks, kept, complete, lowest, capacity, now)
    return drop_cut(out_values, out_weights, out_times, out_ids, out_levels, run, out, marks)


@njit(**JIT)
def canonical_order(times, ids, weights, n, max_weight, keys, words, keys2, words2, order):
    """order[:n] = rows by (time, id, weight), all descending; times are descending already.

    Sorts inside runs of equal times only, and of these only what is not in order: by insertion
    where a run is short, else by radix on the identity id * max_weight + weight - 1, which is below
    2^57. O(n) for any input.
    """
    start = int64(0)
    while start < n:
        stop = start + int64(1)
        while stop < n and times[stop] == times[start]:
            stop += int64(1)
        size = stop - start
        largest = uint64(0)
        falling = True
        for k in range(size):
            identity = uint64(ids[start + k] * max_weight + weights[start + k] - int64(1))
            falling = falling and (k == int64(0) or identity <= keys[k - int64(1)])
            keys[k] = identity
            words[k] = uint32(start + k)
            largest = max(largest, identity)
        if falling:
            for k in range(start, stop):
                order[k] = k
        elif size <= int64(_INSERTION_SORT):
            for k in range(int64(1), size):
                key, word = keys[k], words[k]
                position = k
                while position > int64(0) and keys[position - int64(1)] < key:
                    keys[position] = keys[position - int64(1)]
                    words[position] = words[position - int64(1)]
                    position -= int64(1)
                keys[position] = key
                words[position] = word
            for k in range(size):
                order[start + k] = int64(words[k])
        else:
            for k in range(size):
                keys[k] = largest - keys[k]
            smallest = uint64(0)
            for k in range(size):
                smallest = max(smallest, keys[k])
            swapped = radix_sort(keys, words, keys2, words2, size, _bit_length(smallest))
            for k in range(size):
                order[start + k] = int64(words2[k]) if swapped else int64(words[k])
        start = stop


@njit(**JIT)
def append_later(
    values, weights, times, ids, levels, n, marks, later,
    to_values, to_weights, to_times, to_ids, to_levels, at,
):  # fmt: skip
    """Append the rows later than the watermark of their level; returns the new number of rows.
    Those looked for first, since they are few once a sketch is full; ``later`` takes n numbers."""
    found = int64(0)
    for k in range(n):
        later[found] = k
        found += int64(1) if times[k] > marks[int64(levels[k])] else int64(0)
    for f in range(found):
        k = later[f]
        to_values[at] = values[k]
        to_weights[at] = weights[k]
        to_times[at] = times[k]
        to_ids[at] = ids[k]
        to_levels[at] = levels[k]
        at += int64(1)
    return at


@njit(**JIT)
def known_hits(
    times, ids, weights, levels, old_times, old_ids, old_weights, old_levels, old_hits,
    hits, unknown,
):  # fmt: skip
    """hits[k] of the rows that an older state has at the same level; rows of both in canonical
    order. Returns how many it has not: their numbers are the first of ``unknown``."""
    missing = int64(0)
    j, end = int64(0), int64(len(old_times))
    for k in range(len(times)):
        while j < end and (
            old_times[j] > times[k]
            or (
                old_times[j] == times[k]
                and (old_ids[j] > ids[k] or (old_ids[j] == ids[k] and old_weights[j] > weights[k]))
            )
        ):
            j += int64(1)
        if (
            j < end
            and old_times[j] == times[k]
            and old_ids[j] == ids[k]
            and old_weights[j] == weights[k]
            and old_levels[j] == levels[k]
        ):
            hits[k] = old_hits[j]
        else:
            unknown[missing] = k
            missing += int64(1)
    return missing
