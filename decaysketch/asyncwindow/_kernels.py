"""Numba kernels of the asynchronous samplers: keys, levels, admission, compaction.

All integers are int64, keys and hashes uint64.

Levels (:func:`_level`). ``x 2^i < v 2^53`` with 53-bit integers x and v. As float64 both are exact,
x = m_x 2^e_x and v = m_v 2^e_v with significands in [1, 2), so the largest ``i`` is
``53 + e_v - e_x`` where ``m_x < m_v``, else one less. The bits of a float64 are exponent above
significand, so that is ``53 + floor((bits(v) - bits(x) - 1) / 2^52)``: no division, no logarithm.
x = 0 has bits 0 and lands above every level.

A sampler holds a bag of rows (value key, time, key, level): what the last compaction kept, and what
arrived since and is later than the watermark of its level. Compaction computes the state that
``state.py`` defines:

(0) Most rows of a full bag are beyond the capacity. A histogram of ages by level shows from which
    age on more than ``capacity`` rows of a level are later, with some to spare for copies; older
    rows of that level are left out from the start (:func:`choose`). That is right if the level does
    get a watermark at or after them, which is checked at the end (:func:`right_to_leave_out`); else
    the copies were too many, and all rows are taken.
(1) Order the rows by time, latest first.
(2) Walk from the latest row on. A level is *open* while times are later than its watermark. Rows of
    closed levels are dropped by a branch-free filter over chunks, before anything of them is read.
    The others are looked up by identity among the rows already kept: the first copy met is the
    latest one; of copies with equal time the larger value wins.
(3) After each run of equal times: a level that counts more than ``capacity`` kept rows gets that
    time as its watermark and is closed. From ``first_nested`` on a level counts all rows above as
    well, so levels close one after the other, and their watermarks do not rise.
(4) Drop the rows at a cut that fell to the watermark of their level.

The identity table is open-addressed and keyed by random odd multipliers of this process: it is fed
from the network, and never enters the bytes.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int64, njit, uint32, uint64

from decaysketch.core._sort_kernels import ROW_BITS, TABLE_FULL, radix_sort, radix_sort_packed
from decaysketch.core.hashing import mix64_word
from decaysketch.minhit._kernels import _float_to_bits

JIT = {"cache": True, "nogil": True, "error_model": "numpy"}

BLOCK = 512  # rows per block: the scratch of a block stays in the first-level cache
CHUNK = 256
COIN_BITS = 53
BUCKET_BITS = 10
BUCKETS = 1 << BUCKET_BITS  # of ages, in the histogram
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ROW_MASK = (1 << ROW_BITS) - 1
_INSERTION_SORT = 12
_MAGNITUDE = np.int64(np.iinfo(np.int64).max)
_NEGATIVE_ZERO = np.int64(np.iinfo(np.int64).min)  # bits of -0.0
_INFINITY = np.int64(0x7FF0000000000000)  # bits of the least magnitude that is not finite


@njit(inline="always")
def _level(value_bits, key, levels):
    """Top level of an element; ``value_bits`` are those of float64(v)."""
    coin_bits = _float_to_bits(float64(int64(key >> uint64(64 - COIN_BITS))))
    return min(levels, int64(COIN_BITS) + ((value_bits - coin_bits - int64(1)) >> int64(52)))


@njit(**JIT)
def mix_keys(words, sequence, keys):
    """keys[k] = mix64(S + (n + 1) GAMMA); one word serves all rows."""
    if words.shape[0] == 1:
        word = words[0] + _GAMMA
        for k in range(keys.shape[0]):
            keys[k] = mix64_word(word + sequence[k] * _GAMMA)
    else:
        for k in range(keys.shape[0]):
            keys[k] = mix64_word(words[k] + _GAMMA + sequence[k] * _GAMMA)


@njit(**JIT)
def top_levels(values, keys, weighted, levels, out):
    """Levels of a column; values are at least 1 where they are weights."""
    one = _float_to_bits(1.0)
    for k in range(keys.shape[0]):
        out[k] = _level(_float_to_bits(float64(values[k])) if weighted else one, keys[k], levels)


@njit(**JIT)
def check(values, times, n, float_bits, lowest, highest, time_limit, floor):
    """(whether every row is in bounds, rows of value 0, rows not later than the floor)."""
    good = True
    zeros = int64(0)
    late = int64(0)
    for k in range(n):
        good &= (times[k] <= time_limit) & (times[k] >= -time_limit)
        late += int64(1) if times[k] <= floor else int64(0)
    if float_bits:
        for k in range(n):
            good &= (values[k] & _MAGNITUDE) < _INFINITY
    else:
        for k in range(n):
            good &= (values[k] >= lowest) & (values[k] <= highest)
            zeros += int64(1) if values[k] == int64(0) else int64(0)
    return good, zeros, late


@njit(**JIT)
def admit(
    values, times, words, sequence, first_number, start, n, float_bits, weighted, marks,
    to_values, to_times, to_keys, to_levels, at, room,
):  # fmt: skip
    """Append rows from ``start`` on that are later than the watermark of their level, while there
    is room for a block. All that belongs to a block stays in the cache: no columns are made.

    Values are value keys, or the bits of float64 (``float_bits``). Rows are numbered by
    ``sequence``, or from ``first_number`` on where that is empty; one word serves all rows. Rows of
    weight 0 are left out. Returns (row to go on from, new number of rows in the bag).
    """
    levels = int64(marks.shape[0] - 1)
    one_word = words.shape[0] == 1
    numbered = sequence.shape[0] > 0
    least = int64(1) if weighted else np.iinfo(np.int64).min
    one = _float_to_bits(1.0)
    key = np.empty(BLOCK, np.uint64)
    level = np.empty(BLOCK, np.int64)
    while start < n and at + int64(BLOCK) <= room:
        count = min(int64(BLOCK), n - start)
        if numbered:
            for k in range(count):
                key[k] = uint64(sequence[start + k])
        else:
            for k in range(count):
                key[k] = first_number + uint64(start + k)
        if one_word:
            for k in range(count):
                key[k] = mix64_word(words[0] + _GAMMA + key[k] * _GAMMA)
        else:
            for k in range(count):
                key[k] = mix64_word(words[start + k] + _GAMMA + key[k] * _GAMMA)
        if weighted:
            for k in range(count):
                found = _level(_float_to_bits(float64(values[start + k])), key[k], levels)
                level[k] = max(int64(0), found)  # a weight of 0 has none
        else:
            for k in range(count):
                level[k] = _level(one, key[k], levels)
        for k in range(count):
            time, value = times[start + k], values[start + k]
            if float_bits:  # see observations.py: -0.0 becomes 0.0, and keys order as values do
                value = int64(0) if value == _NEGATIVE_ZERO else value
                value ^= (value >> int64(63)) & _MAGNITUDE
            to_values[at] = value
            to_times[at] = time
            to_keys[at] = key[k]
            to_levels[at] = level[k]
            at += int64(1) if (time > marks[level[k]]) & (value >= least) else int64(0)
        start += count
    return start, at


@njit(**JIT)
def admit_checked(
    values, times, n, float_bits, lowest, highest, time_limit, floor,
    words, sequence, first_number, weighted, marks,
    to_values, to_times, to_keys, to_levels, at, room,
):  # fmt: skip
    """:func:`check`, and :func:`admit` where all rows are in bounds; what both return."""
    good, zeros, late = check(values, times, n, float_bits, lowest, highest, time_limit, floor)
    start = int64(0)
    if good:
        start, at = admit(
            values, times, words, sequence, first_number, start, n, float_bits, weighted, marks,
            to_values, to_times, to_keys, to_levels, at, room,
        )  # fmt: skip
    return good, zeros, late, start, at


@njit(**JIT)
def append_later(
    values, times, keys, levels, n, marks, to_values, to_times, to_keys, to_levels, at
):
    """Append the rows later than the watermark of their level; returns the new number of rows."""
    for k in range(n):
        to_values[at] = values[k]
        to_times[at] = times[k]
        to_keys[at] = keys[k]
        to_levels[at] = levels[k]
        at += int64(1) if times[k] > marks[int64(levels[k])] else int64(0)
    return at


@njit(**JIT)
def choose(times, levels, n, capacity, first_nested, count_levels, cuts):
    """Step (0): rows of level i older than ``cuts[i]`` need not be looked at.

    ``cuts`` (int64[M + 1]) are ages, -1 where all rows do; ``capacity`` has some to spare. Nothing
    is left out of few rows. Returns (newest time, bits of the largest age).
    """
    newest, oldest = times[0], times[0]
    for k in range(n):
        newest = max(newest, times[k])
        oldest = min(oldest, times[k])
    span_bits = int64(0)
    while span_bits < int64(64) and (uint64(newest) - uint64(oldest)) >> uint64(span_bits):
        span_bits += int64(1)
    cuts[:] = int64(-1)
    if n <= int64(2) * capacity:
        return newest, span_bits
    shift = uint64(max(int64(0), span_bits - int64(BUCKET_BITS)))
    counts = np.zeros((count_levels, BUCKETS), np.int64)
    for k in range(n):
        age = uint64(newest) - uint64(times[k])
        counts[int64(levels[k]), int64(age >> shift)] += int64(1)
    for i in range(count_levels - int64(2), first_nested - int64(1), int64(-1)):
        for bucket in range(BUCKETS):  # from first_nested on, a level counts what is above it
            counts[i, bucket] += counts[i + int64(1), bucket]
    for i in range(count_levels):
        later = int64(0)
        for bucket in range(BUCKETS - 1):  # the last one goes to the end: nothing is left out
            later += counts[i, bucket]
            if later > capacity:
                cuts[i] = int64(((uint64(bucket) + uint64(1)) << shift) - uint64(1))
                break
    return newest, span_bits


@njit(**JIT)
def order(times, levels, n, newest, span_bits, cuts, ages, words, ages2, words2):
    """Step (1): ages = newest - time, rising; words = level << ROW_BITS | row.

    Returns (whether the result is in ages2 and words2, number of rows). Spans below 2^32 are sorted
    as one packed word a row, which halves the memory traffic.
    """
    last = np.empty(cuts.shape[0], np.uint64)
    for i in range(cuts.shape[0]):
        last[i] = ~uint64(0) if cuts[i] < int64(0) else uint64(cuts[i])
    found = int64(0)
    if span_bits > int64(32):
        for k in range(n):
            age, level = uint64(newest) - uint64(times[k]), int64(levels[k])
            ages[found] = age
            words[found] = uint32(k) | (uint32(level) << uint32(ROW_BITS))
            found += int64(1) if age <= last[level] else int64(0)
        return radix_sort(ages, words, ages2, words2, found, span_bits), found
    for k in range(n):
        age, level = uint64(newest) - uint64(times[k]), int64(levels[k])
        ages[found] = (age << uint64(32)) | uint64(k) | (uint64(level) << uint64(ROW_BITS))
        found += int64(1) if age <= last[level] else int64(0)
    swapped = radix_sort_packed(ages, ages2, found, span_bits)
    if swapped:
        for k in range(found):
            words2[k] = uint32(ages2[k])
            ages2[k] >>= uint64(32)
    else:
        for k in range(found):
            words[k] = uint32(ages[k])
            ages[k] >>= uint64(32)
    return swapped, found


@njit(**JIT)
def right_to_leave_out(newest, cuts, marks):
    """Whether every level of which rows were left out has a watermark at or after them."""
    for i in range(cuts.shape[0]):
        if cuts[i] >= int64(0):
            latest_left_out = uint64(newest) - uint64(cuts[i]) - uint64(1)
            if marks[i] < int64(latest_left_out):
                return False
    return True


@njit(**JIT)
def compact(
    values, keys, ages, words, n, newest, capacity, first_nested, weighted, marks, salt, value_salt,
    kept_ages, kept_words, out_values, out_times, out_keys, out_levels, table, table_bits,
):  # fmt: skip
    """Steps (2) to (4) over rows sorted by :func:`order`.

    ``marks`` are the watermarks 0..M, raised in place; ``kept_ages`` and ``kept_words`` are scratch
    for n rows. The walk lists the rows to keep; their columns are gathered one by one at the end.

    Returns the number of rows kept, or TABLE_FULL (then nothing of the output is valid, but
    ``marks`` are: they were only raised where that is right for every table size) and a number that
    keeps the table's prefetch alive.
    """
    count_levels = int64(marks.shape[0])
    table_size = int64(1) << table_bits
    table[:table_size] = uint32(0)
    slot_shift = uint64(int64(64) - table_bits)
    slot_mask = table_size - int64(1)
    most_inserted = table_size - (table_size >> int64(2))
    row_bits = uint64(0)
    while (uint64(n + int64(1)) >> row_bits) != uint64(0):
        row_bits += uint64(1)
    row_mask = (uint64(1) << row_bits) - uint64(1)
    tag_mask = uint64(0xFFFFFFFF) ^ row_mask
    word_mask = uint32(_ROW_MASK)

    chunk_age = np.empty(CHUNK, np.uint64)
    chunk_word = np.empty(CHUNK, np.uint32)
    chunk_hash = np.empty(CHUNK, np.uint64)
    is_open = np.ones(count_levels, np.int64)
    open_levels = count_levels
    next_closing = marks.max()  # times later than this close no further level
    kept = np.zeros(count_levels, np.int64)  # rows kept, by top level
    lowest = first_nested  # lowest open level of those that count what is above
    nested = int64(0)  # rows kept of top level >= lowest
    crowded = False  # some level counts more than its capacity
    out = int64(0)
    prefetch = uint32(0)
    now = newest
    now_age = uint64(0)
    run_starts = True

    start = int64(0)
    while start < n and open_levels > int64(0):
        stop = min(start + int64(CHUNK), n)
        found = int64(0)
        for k in range(start, stop):
            chunk_age[found] = ages[k]
            chunk_word[found] = words[k]
            found += is_open[int64(words[k] >> uint32(ROW_BITS))]
        start = stop
        for c in range(found):
            row = int64(chunk_word[c] & word_mask)
            hashed = keys[row] * salt
            if weighted:
                hashed += uint64(values[row]) * value_salt
            chunk_hash[c] = hashed
            prefetch ^= table[int64(hashed >> slot_shift)]
        for c in range(found):
            if chunk_age[c] != now_age:  # a run of equal times ended
                if crowded:
                    crowded = False
                    for i in range(first_nested):
                        if is_open[i] == int64(1) and kept[i] > capacity:
                            marks[i] = now
                            is_open[i] = int64(0)
                            open_levels -= int64(1)
                    while lowest < count_levels and nested > capacity:
                        marks[lowest] = now
                        nested -= kept[lowest]
                        is_open[lowest] = int64(0)
                        open_levels -= int64(1)
                        lowest += int64(1)
                now_age = chunk_age[c]
                now = int64(uint64(newest) - now_age)
                run_starts = True
            if run_starts:
                run_starts = False
                if now <= next_closing:
                    next_closing = np.iinfo(np.int64).min
                    for i in range(count_levels):
                        if is_open[i] == int64(1):
                            if marks[i] >= now:
                                is_open[i] = int64(0)
                                open_levels -= int64(1)
                            else:
                                next_closing = max(next_closing, marks[i])
                    while lowest < count_levels and is_open[lowest] == int64(0):
                        nested -= kept[lowest]
                        lowest += int64(1)
            word = chunk_word[c]
            level = int64(word >> uint32(ROW_BITS))
            if is_open[level] == int64(0):
                continue
            hashed = chunk_hash[c]
            tag = hashed & tag_mask
            slot = int64(hashed >> slot_shift)
            entry = uint64(table[slot])
            copy = int64(-1)
            while entry != uint64(0):
                if (entry & tag_mask) == tag:
                    row = int64(word & word_mask)
                    other = int64(kept_words[int64(entry & row_mask) - int64(1)] & word_mask)
                    if keys[other] == keys[row] and (not weighted or values[other] == values[row]):
                        copy = int64(entry & row_mask) - int64(1)
                        break
                slot = (slot + int64(1)) & slot_mask
                entry = uint64(table[slot])
            if copy >= int64(0):
                row, other = int64(word & word_mask), int64(kept_words[copy] & word_mask)
                if kept_ages[copy] == now_age and values[row] > values[other]:
                    kept_words[copy] = word
                continue
            kept_ages[out] = now_age
            kept_words[out] = word
            out += int64(1)
            if out > most_inserted:
                return int64(TABLE_FULL), prefetch
            table[slot] = uint32(tag | uint64(out))
            kept[level] += int64(1)
            if level >= first_nested:
                nested += int64(1)
                crowded |= nested > capacity
            else:
                crowded |= kept[level] > capacity
    if crowded:
        for i in range(first_nested):
            if is_open[i] == int64(1) and kept[i] > capacity:
                marks[i] = now
        while lowest < count_levels and nested > capacity:
            marks[lowest] = now
            nested -= kept[lowest]
            lowest += int64(1)

    survivors = int64(0)
    for k in range(out):
        level = int64(kept_words[k] >> uint32(ROW_BITS))
        time = int64(uint64(newest) - kept_ages[k])
        out_times[survivors] = time
        out_levels[survivors] = level
        kept_words[survivors] = kept_words[k]
        survivors += int64(1) if time > marks[level] else int64(0)
    for k in range(survivors):
        out_keys[k] = keys[int64(kept_words[k] & word_mask)]
    for k in range(survivors):
        out_values[k] = values[int64(kept_words[k] & word_mask)]
    return survivors, prefetch


@njit(**JIT)
def canonical_order(values, times, keys, n, weighted, first, words, second, words2, order):
    """order[:n] = rows by (time, key, value), all descending; times are descending already.

    Sorts inside runs of equal times only: by insertion where a run is short, else by radix. A key
    has several values only where they are part of the identity. O(n) for any input.
    """
    start = int64(0)
    while start < n:
        stop = start + int64(1)
        while stop < n and times[stop] == times[start]:
            stop += int64(1)
        size = stop - start
        if size <= int64(_INSERTION_SORT):
            for k in range(start, stop):
                key, value = keys[k], values[k]
                place = k
                while place > start:
                    before = order[place - int64(1)]
                    if keys[before] > key or (keys[before] == key and values[before] >= value):
                        break
                    order[place] = before
                    place -= int64(1)
                order[place] = k
        else:
            for k in range(size):
                order[start + k] = start + k
            for by_key in range(int64(0) if weighted else int64(1), int64(2)):
                for k in range(size):
                    row = order[start + k]
                    first[k] = ~keys[row] if by_key == int64(1) else ~uint64(values[row])
                    words[k] = uint32(row)
                swapped = radix_sort(first, words, second, words2, size, int64(64))
                for k in range(size):
                    order[start + k] = int64(words2[k]) if swapped else int64(words[k])
        start = stop
