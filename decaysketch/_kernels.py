"""Numba kernels of the retained rows: sort by time, compact, canonical order. int64 throughout.

A sketch holds a bag of rows (value key, weight, time, id, level): what the last compaction kept,
and what arrived since and is later than the watermark of its level. Compaction computes the state
that ``state.py`` defines:

(1) Order all rows by time, latest first: a radix sort of (newest - time), 64 bits, beside a 32-bit
    word that packs the row number and its level. Wide spans (microseconds over months) only cost
    more passes.
(2) Walk from the latest row on, with the lowest level that is still complete. A row below it is
    dropped by a branch-free filter over chunks, before anything of it is read. The others are
    looked up by identity (id, weight) among the rows already kept: the first copy met is the latest
    one; of copies with equal time the larger value wins.
(3) After each run of equal times: while more than ``capacity`` rows of the lowest complete level or
    above are kept, its watermark is that time and the next level becomes the lowest complete one.
(4) Drop the rows at a cut that fell below the watermark of their level.

The identity table is open-addressed, sized for the rows that survive and not for those that come
in, and keyed by a random odd multiplier of this process: it is fed from the network, and never
enters the bytes.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, uint32, uint64

JIT = {"cache": True, "nogil": True, "error_model": "numpy"}

ROW_BITS = 26  # row number within a word of the sort; the level is above it
MAX_ROWS = 1 << ROW_BITS
CHUNK = 256
DIGIT_BITS = 11
TABLE_FULL = -1
_INSERTION_SORT = 12


@njit(inline="always")
def _bit_length(x):
    bits = int64(0)
    while bits < int64(64) and (x >> uint64(bits)) != uint64(0):
        bits += int64(1)
    return bits


@njit(**JIT)
def radix_sort(keys, words, keys2, words2, n, used_bits):
    """Sort (keys, words)[:n] by the low ``used_bits`` of the uint64 keys, stably, ascending.

    Returns True where the result is in (keys2, words2).
    """
    if used_bits == int64(0) or n < int64(2):
        return False
    digit_bits = min(int64(DIGIT_BITS), max(int64(4), _bit_length(uint64(n))))
    passes = (used_bits + digit_bits - int64(1)) // digit_bits
    digit_bits = (used_bits + passes - int64(1)) // passes
    size = int64(1) << digit_bits
    mask = uint64(size - int64(1))
    counts = np.zeros((passes, size), np.int64)
    for k in range(n):
        key = keys[k]
        for d in range(passes):
            counts[d, int64((key >> uint64(d * digit_bits)) & mask)] += int64(1)
    swapped = False
    for d in range(passes):
        shift = uint64(d * digit_bits)
        count = counts[d]
        if count[int64((keys[0] >> shift) & mask)] == n:
            continue  # this digit is the same everywhere
        position = int64(0)
        for digit in range(size):
            here = count[digit]
            count[digit] = position
            position += here
        for k in range(n):
            key = keys[k]
            digit = int64((key >> shift) & mask)
            position = count[digit]
            count[digit] = position + int64(1)
            keys2[position] = key
            words2[position] = words[k]
        keys, keys2 = keys2, keys
        words, words2 = words2, words
        swapped = not swapped
    return swapped


@njit(**JIT)
def radix_sort_packed(packed, packed2, n, used_bits):
    """Sort packed[:n] by ``used_bits`` bits from bit 32 up, stably, ascending; True where the
    result is in packed2."""
    passes = (used_bits + int64(DIGIT_BITS) - int64(1)) // int64(DIGIT_BITS)
    if passes == int64(0):
        return False
    digit_bits = (used_bits + passes - int64(1)) // passes
    size = int64(1) << digit_bits
    mask = uint64(size - int64(1))
    counts = np.zeros((passes, size), np.int64)
    for k in range(n):
        key = packed[k] >> uint64(32)
        for d in range(passes):
            counts[d, int64((key >> uint64(d * digit_bits)) & mask)] += int64(1)
    for d in range(passes):
        shift = uint64(int64(32) + d * digit_bits)
        count = counts[d]
        position = int64(0)
        for digit in range(size):
            here = count[digit]
            count[digit] = position
            position += here
        for k in range(n):
            entry = packed[k]
            digit = int64((entry >> shift) & mask)
            position = count[digit]
            count[digit] = position + int64(1)
            packed2[position] = entry
        packed, packed2 = packed2, packed
    return passes % int64(2) == int64(1)


@njit(**JIT)
def sort_by_time(times, levels, n, keys, words, keys2, words2):
    """Latest first: keys = newest - time, words = level << ROW_BITS | row.

    Returns (True where the result is in keys2 and words2, newest). Spans below 2^32 are sorted as
    one packed word a row, which halves the memory traffic.
    """
    newest, oldest = times[0], times[0]
    for k in range(n):
        newest = max(newest, times[k])
        oldest = min(oldest, times[k])
    span_bits = _bit_length(uint64(newest) - uint64(oldest))
    if span_bits <= int64(32):
        for k in range(n):
            key = uint64(newest) - uint64(times[k])
            word = uint64(k) | (uint64(levels[k]) << uint64(ROW_BITS))
            keys[k] = (key << uint64(32)) | word
        swapped = radix_sort_packed(keys, keys2, n, span_bits)
        if swapped:
            for k in range(n):
                words2[k] = uint32(keys2[k])
                keys2[k] >>= uint64(32)
        else:
            for k in range(n):
                words[k] = uint32(keys[k])
                keys[k] >>= uint64(32)
        return swapped, newest
    for k in range(n):
        keys[k] = uint64(newest) - uint64(times[k])
        words[k] = uint32(k) | (uint32(levels[k]) << uint32(ROW_BITS))
    return radix_sort(keys, words, keys2, words2, n, span_bits), newest


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
                while lowest < levels_count and complete > capacity:
                    marks[lowest] = now
                    complete -= kept[lowest]
                    lowest += int64(1)
                now_key = chunk_key[c]
                now = int64(uint64(newest) - now_key)
            while lowest < levels_count and marks[lowest] >= now:
                complete -= kept[lowest]
                lowest += int64(1)
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
    while lowest < levels_count and complete > capacity:
        marks[lowest] = now
        complete -= kept[lowest]
        lowest += int64(1)

    survivors = int64(0)
    for k in range(out):
        out_values[survivors] = out_values[k]
        out_weights[survivors] = out_weights[k]
        out_times[survivors] = out_times[k]
        out_ids[survivors] = out_ids[k]
        out_levels[survivors] = out_levels[k]
        survivors += int64(1) if out_times[k] > marks[int64(out_levels[k])] else int64(0)
    return survivors, prefetch


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
    values, weights, times, ids, levels, n, marks,
    to_values, to_weights, to_times, to_ids, to_levels, at,
):  # fmt: skip
    """Append the rows later than the watermark of their level; returns the new number of rows."""
    for k in range(n):
        to_values[at] = values[k]
        to_weights[at] = weights[k]
        to_times[at] = times[k]
        to_ids[at] = ids[k]
        to_levels[at] = levels[k]
        at += int64(1) if times[k] > marks[int64(levels[k])] else int64(0)
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
