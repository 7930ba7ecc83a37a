"""Numba kernels of the verdicts: copies of a batch, what a state holds of them, what it will hold.

An identity is a pair of int64: (id, weight) of an observation, (key, value) of an element.

(1) ``group_copies`` numbers the identities of a batch and finds the latest copy of each, the
    maximum by (time, value); of equal copies the first.
(2) ``find_held`` looks up the rows of a state among these identities. The table holds the batch and
    not the state, because a state has many rows where a batch often has one.
(3) ``raise_marks`` finds the watermarks of the merged state: it walks the rows of the state and the
    batch's new copies together, latest first, as compaction does (``_kernels.py``, steps (2) and
    (3)), and needs no table: it is told which rows of the state a later copy replaces.

The table is open-addressed and keyed by two random odd multipliers of this process: it is fed from
the network.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, uint8, uint32, uint64

from decaysketch.core._sort_kernels import CHUNK, JIT, ROW_BITS, _bit_length

NONE = -1


@njit(inline="always")
def _is_later(time, value, other_time, other_value):
    return (time > other_time) | ((time == other_time) & (value > other_value))


@njit(**JIT)
def group_copies(first, second, times, values, salt, salt2, table, table_bits, group, latest):
    """group[k] = number of the identity of row k, latest[g] = first row of the latest copy of g.

    ``table`` is zeros, uint32[2^table_bits], with more slots than there are rows. Returns the
    number of identities.
    """
    n = int64(first.shape[0])
    shift = uint64(int64(64) - table_bits)
    slot_mask = (int64(1) << table_bits) - int64(1)
    row_bits = uint64(_bit_length(uint64(n + int64(1))))
    row_mask = (uint64(1) << row_bits) - uint64(1)
    tag_mask = uint64(0xFFFFFFFF) ^ row_mask
    groups = int64(0)
    for k in range(n):
        hashed = uint64(first[k]) * salt + uint64(second[k]) * salt2
        tag = hashed & tag_mask
        slot = int64(hashed >> shift)
        entry = uint64(table[slot])
        found = int64(NONE)
        while entry != uint64(0):
            if (entry & tag_mask) == tag:
                candidate = int64(entry & row_mask) - int64(1)
                row = latest[candidate]
                if first[row] == first[k] and second[row] == second[k]:
                    found = candidate
                    break
            slot = (slot + int64(1)) & slot_mask
            entry = uint64(table[slot])
        if found == int64(NONE):
            found = groups
            latest[found] = k
            groups += int64(1)
            table[slot] = uint32(tag | uint64(groups))
        else:
            row = latest[found]
            if _is_later(times[k], values[k], times[row], values[row]):
                latest[found] = k
        group[k] = found
    return groups


@njit(**JIT)
def find_held(
    held_first, held_second, first, second, latest, salt, salt2, table, table_bits, held
):  # fmt: skip
    """held[g] = row of the state that has identity g, left alone where there is none.

    Most rows meet an empty slot: they are passed over without a branch.
    """
    n = int64(first.shape[0])
    shift = uint64(int64(64) - table_bits)
    slot_mask = (int64(1) << table_bits) - int64(1)
    row_mask = (uint64(1) << uint64(_bit_length(uint64(n + int64(1))))) - uint64(1)
    tag_mask = uint64(0xFFFFFFFF) ^ row_mask
    chunk_row, chunk_hash = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.uint64)
    for start in range(int64(0), int64(held_first.shape[0]), int64(CHUNK)):
        found = int64(0)
        for k in range(start, min(start + int64(CHUNK), int64(held_first.shape[0]))):
            hashed = uint64(held_first[k]) * salt + uint64(held_second[k]) * salt2
            chunk_row[found] = k
            chunk_hash[found] = hashed
            found += int64(1) if table[int64(hashed >> shift)] != uint32(0) else int64(0)
        for c in range(found):
            k, hashed = chunk_row[c], chunk_hash[c]
            slot = int64(hashed >> shift)
            entry = uint64(table[slot])
            while entry != uint64(0):
                if (entry & tag_mask) == (hashed & tag_mask):
                    candidate = int64(entry & row_mask) - int64(1)
                    row = latest[candidate]
                    if first[row] == held_first[k] and second[row] == held_second[k]:
                        held[candidate] = k
                        break
                slot = (slot + int64(1)) & slot_mask
                entry = uint64(table[slot])


@njit(**JIT)
def find_new(
    times, values, levels, latest, groups, held, held_times, held_values, marks, replaced,
    new_times, new_levels,
):  # fmt: skip
    """Collect the latest copies that are later than what is held and than their watermark.

    Marks in ``replaced`` the rows of the state that they take the place of. Returns their number.
    """
    count = int64(0)
    for g in range(groups):
        row = latest[g]
        if times[row] <= marks[int64(levels[row])]:
            continue
        there = held[g]
        if there >= int64(0):
            if not _is_later(times[row], values[row], held_times[there], held_values[there]):
                continue
            replaced[there] = uint8(1)
        new_times[count] = times[row]
        new_levels[count] = levels[row]
        count += int64(1)
    return count


@njit(**JIT)
def raise_marks(
    held_times, held_levels, replaced, new_keys, new_words, new_count, newest, capacity, marks, kept
):  # fmt: skip
    """Raise ``marks`` to the watermarks of the merged state, as far as the new copies can tell.

    The walk ends below the oldest new copy: what a watermark may rise to there is earlier than all
    of them.

    Args:
        held_times, held_levels: rows of the state, latest first.
        replaced: 1 for those that a later copy replaces.
        new_keys, new_words: new copies, as ``sort_by_time`` orders them below ``newest``.
        kept: zeros, int64[M + 2].
    """
    levels_count = int64(marks.shape[0])
    n = int64(held_times.shape[0])
    complete = int64(0)
    lowest = int64(0)
    old, new = int64(0), int64(0)
    oldest = int64(uint64(newest) - new_keys[new_count - int64(1)])
    now = int64(0)
    started = False
    while lowest < levels_count:
        while old < n and replaced[old] == uint8(1):
            old += int64(1)
        if new == new_count and (old == n or held_times[old] < oldest):
            break
        new_time = int64(uint64(newest) - new_keys[new]) if new < new_count else int64(0)
        if new == new_count or (old < n and held_times[old] >= new_time):
            time, level = held_times[old], int64(held_levels[old])
            old += int64(1)
        else:
            time, level = new_time, int64(new_words[new] >> uint32(ROW_BITS))
            new += int64(1)
        if started and time != now:
            while lowest < levels_count and complete > capacity:
                marks[lowest] = now
                complete -= kept[lowest]
                lowest += int64(1)
        started = True
        now = time
        while lowest < levels_count and marks[lowest] >= now:
            complete -= kept[lowest]
            lowest += int64(1)
        if level >= lowest:
            kept[level] += int64(1)
            complete += int64(1)
    while lowest < levels_count and complete > capacity:
        marks[lowest] = now
        complete -= kept[lowest]
        lowest += int64(1)


@njit(**JIT)
def judge_by_marks(
    times, values, levels, group, latest, held, held_times, held_values, marks, verdicts
):  # fmt: skip
    """The verdict of each row, where a copy stays if it is later than the watermark of its level.

    0 retained, 1 already retained, 2 below the watermark.
    """
    for k in range(times.shape[0]):
        g = group[k]
        row, there = latest[g], held[g]
        is_new = times[row] > marks[int64(levels[row])]
        if there >= int64(0):
            is_new &= _is_later(times[row], values[row], held_times[there], held_values[there])
        has = is_new
        if there >= int64(0):
            has |= not _is_later(times[k], values[k], held_times[there], held_values[there])
        verdicts[k] = int64(0) if is_new & (row == k) else int64(1) if has else int64(2)


@njit(**JIT)
def judge_by_states(
    times, values, group, latest, before, before_times, before_values, after, after_times,
    after_values, verdicts,
):  # fmt: skip
    """The verdict of each row, where the merged state is known."""
    for k in range(times.shape[0]):
        g = group[k]
        row, old, new = latest[g], before[g], after[g]
        is_new = False
        has = False
        if new >= int64(0):
            is_new = (after_times[new] == times[row]) & (after_values[new] == values[row])
            has = not _is_later(times[k], values[k], after_times[new], after_values[new])
        if old >= int64(0):
            is_new &= _is_later(times[row], values[row], before_times[old], before_values[old])
            has |= not _is_later(times[k], values[k], before_times[old], before_values[old])
        verdicts[k] = int64(0) if is_new & (row == k) else int64(1) if has else int64(2)
