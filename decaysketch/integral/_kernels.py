"""Numba kernels of the integral sketch: expiry events, filter, compaction. int64 throughout.

What the rows are is said in ``state.py``, what the bag is in ``rows.py``. All kernels need columns
that were validated. Derivations:

(1) Events. The first hits of all levels are record minima of the progression of an observation's
    hash values (``minhit/_kernels.py``, derivation 3). One walk notes, as bits of a mask, which
    rows of the table of down steps were taken; each bit is then one record, or a run of them. A
    record (value x, position j) is the first hit of the levels from the one above the top level of
    the record before it up to its own top level: an *event* (lo, hi, step), all of whose levels
    share the expiry. Long runs are crossed by division, one record for each level at the most.
(2) Steps. The expiry age of a first hit j is ages[s] for the first step s with f(w, s) <= j. Where
    f(w, s) is w num[s] // den[s] that is num[s] / den[s] < (j + 1) / w. The leading bits of this
    ratio select a step that is never too late (``tables.py``), and comparisons move on from there.
    They compare both sides rounded to float64: for weights up to 2^25 different fractions stay
    different. Above, integers are compared at last, by products below 2^62. Where f is a table of
    values the step is found by binary search.
(3) Watermarks. Expiries fall as the level rises, and so do watermarks; hence an event is of use if
    and only if its expiry is later than the watermark of its highest level. The cut of each level
    is found by counting: a histogram of expiries for each level, of which an event adds one at
    lo and takes one away above hi, so that running sums over the levels complete it. Where expiries
    span more than a histogram has buckets, the bucket of each cut is counted again more finely.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, int64, njit, types, uint32, uint64
from numba.extending import intrinsic

from decaysketch.core._sort_kernels import _bit_length
from decaysketch.minhit._kernels import (
    BLOCK,
    REPEATABLE,
    _to_float,
    _to_int,
    _wide_to_float,
    hash_block,
    level_block,
    mix_block,
    walk_block,
)

JIT: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

MASK_BITS = 62  # rows of the table of steps that a mask can note
STEP_BITS = 20  # an event is step << 12 | lo << 6 | hi, an unsigned 32-bit word
MAX_ROWS = 1 << 26
CHUNK = 256

# Records that are worked on at a time: so many that their scratch stays in the second-level cache.
FLAT = 2048
MOST_RECORDS = 320  # of one observation: _CROSSED for each bit of a mask, and one for each level
_CROSSED = 4  # runs longer than this are crossed by division

_HISTOGRAM_BITS = 12
NEVER = (1 << 63) - 1  # later than every clock


@intrinsic
def _lowest_bit(typing_context: Any, bits: Any) -> Any:
    """Number of the lowest bit set; there is one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@njit(inline="always")
def _level_of(x, p, top):
    level = int64(0)
    while level < top and x < (p >> (level + int64(1))):
        level += int64(1)
    return level


# --------------------------------------------------------------------------------------- the walk


@njit(**JIT)
def _walk(x, remaining, mask, count, steps):
    """Walk x[:count] down to the minima, as ``walk_block`` does; note the steps taken in mask."""
    longest = int64(0)
    for k in range(count):
        longest = max(longest, remaining[k])
        mask[k] = int64(0)
    for s in range(steps.shape[0]):
        bit = int64(1) << int64(s)
        if steps[s, 0] == int64(REPEATABLE):
            q, d = steps[s, 1], steps[s, 2]
            if steps[s, 3] > longest:
                break
            if q > longest:
                continue
            for k in range(count):
                value, rest, bits = x[k], remaining[k], mask[k]
                take = (value >= d) & (rest >= q)
                x[k] = value - d if take else value
                remaining[k] = rest - q if take else rest
                mask[k] = bits | bit if take else bits
        else:
            q0, d0, e, qe, length = steps[s, 1], steps[s, 2], steps[s, 3], steps[s, 4], steps[s, 5]
            if q0 + qe > longest:
                break
            lowest = d0 - length * e
            one_over_e = 1.0 / float64(e)
            for k in range(count):
                value, rest, bits = x[k], remaining[k], mask[k]
                inside = (value >= lowest) & (value < d0)
                gap = d0 - value if inside else e
                n = _to_int(_wide_to_float(gap) * one_over_e)  # to nearest: never above the ceiling
                n = n + int64(1) if n * e < gap else n
                q = q0 + n * qe
                take = inside & (q <= rest)
                x[k] = value - (d0 - n * e) if take else value
                remaining[k] = rest - q if take else rest
                mask[k] = bits | bit if take else bits


@njit(**JIT)
def _single_records(
    u, mask, lengths, weights, times, start, row, count, steps,
    values, positions, rows, row_weights, row_times,
):  # fmt: skip
    """:func:`_records` for a table in which every row is one step."""
    k = int64(0)
    while row < count and k + int64(MOST_RECORDS) <= int64(FLAT):
        x, j, bits = u[row], int64(0), mask[row]
        w, t = weights[start + row], times[start + row]
        stop = k + (int64(1) if lengths[row] > int64(0) else int64(0))
        values[k] = x
        positions[k] = j
        rows[k] = row
        row_weights[k] = w
        row_times[k] = t
        k = stop
        while bits != int64(0):
            s = _lowest_bit(bits)
            bits &= bits - int64(1)
            x -= steps[s, 2]
            j += steps[s, 1]
            values[k] = x
            positions[k] = j
            rows[k] = row
            row_weights[k] = w
            row_times[k] = t
            k += int64(1)
        row += int64(1)
    return row, k


@njit(**JIT)
def _records(
    u, mask, lengths, weights, times, start, row, count, steps, p, top,
    values, positions, rows, row_weights, row_times,
):  # fmt: skip
    """Records of the rows [row, count) of a block, in order, while there is room for them.

    Beside the value and position of each stand the row, its weight and its time. Returns (first row
    not done, number of records).
    """
    k = int64(0)
    while row < count and k + int64(MOST_RECORDS) <= int64(FLAT):
        if lengths[row] <= int64(0):
            row += int64(1)
            continue
        begin = k
        x, j = u[row], int64(0)
        values[k], positions[k] = x, j
        k += int64(1)
        bits = mask[row]
        while bits != int64(0):
            s = _lowest_bit(bits)
            bits &= bits - int64(1)
            if steps[s, 0] != int64(REPEATABLE):  # the one step of a group that is possible
                d0, e = steps[s, 2], steps[s, 3]
                n = (d0 - x + e - int64(1)) // e
                x -= d0 - n * e
                j += steps[s, 1] + n * steps[s, 4]
                values[k], positions[k] = x, j
                k += int64(1)
                continue
            q = steps[s, 3]
            repeats = steps[s, 1] // q
            d = steps[s, 2] // repeats
            if repeats <= int64(_CROSSED):
                for _ in range(repeats):
                    x -= d
                    j += q
                    values[k], positions[k] = x, j
                    k += int64(1)
                continue
            # A long run: the first record of it that is selected at the next level, and so on.
            last = x - repeats * d
            level = _level_of(x, p, top)
            while level < top and last < (p >> (level + int64(1))):
                n = (x - (p >> (level + int64(1)))) // d + int64(1)
                values[k], positions[k] = x - n * d, j + n * q
                level = _level_of(values[k], p, top)
                k += int64(1)
            x = last
            j += repeats * q
        for r in range(begin, k):
            rows[r] = row
            row_weights[r] = weights[start + row]
            row_times[r] = times[start + row]
        row += int64(1)
    return row, k


# -------------------------------------------------------------------------------------- the steps


@njit(**JIT)
def _ratios(positions, weights, count, ratios):
    for k in range(count):
        ratios[k] = _to_float(positions[k] + int64(1)) / _to_float(weights[k])


@njit(**JIT)
def _steps_of_ratios(ratios, count, rounded, guesses, halvings, shift, first, out):
    """out[k] = first step with rounded[step] < ratios[k], see (2)."""
    bits = ratios.view(np.int64)
    for k in range(count):
        s = guesses[(bits[k] >> shift) - first]
        out[k] = s + int64(1) if rounded[s] >= ratios[k] else s
    half = int64(1) << halvings
    while half > int64(1):  # the rest, where an interval of ratios has more than two steps
        half >>= int64(1)
        for k in range(count):
            s = out[k]
            out[k] = s + half if rounded[s + half - int64(1)] >= ratios[k] else s


@njit(**JIT)
def _correct_steps(weights, positions, count, numerators, denominators, out):
    """Move the steps, found by rounded numbers, to where integers have them."""
    for k in range(count):
        w, j1, s = weights[k], positions[k] + int64(1), out[k]
        while w * numerators[s] >= j1 * denominators[s]:
            s += int64(1)
        while s > int64(0) and w * numerators[s - int64(1)] < j1 * denominators[s - int64(1)]:
            s -= int64(1)
        out[k] = s


@njit(**JIT)
def _steps_of_values(weights, positions, count, values, out):
    """The same for a table of values: the first step s with values[w, s] <= position."""
    for k in range(count):
        w, j = weights[k], positions[k]
        low, high = int64(0), int64(values.shape[1] - 1)
        while low < high:
            middle = (low + high) >> int64(1)
            if values[w, middle] <= j:
                high = middle
            else:
                low = middle + int64(1)
        out[k] = low


# ---------------------------------------------------------------------------------------- admission


@njit(**JIT)
def _initial_lengths(weights, start, count, numerators, denominators, table, lengths):
    """lengths[k] = f(weight, 0) of row start + k."""
    if table.shape[0]:
        for k in range(count):
            lengths[k] = table[weights[start + k], 0]
    elif numerators[0] == denominators[0]:
        for k in range(count):
            lengths[k] = weights[start + k]
    else:
        for k in range(count):
            lengths[k] = weights[start + k] * numerators[0] // denominators[0]


@njit(**JIT)
def _append_single(
    value_keys, weights, times, ids, start, count, lengths, levels, age, clock, marks, taken,
    to_values, to_weights, to_times, to_ids, to_first, to_events, held, events,
):  # fmt: skip
    """Append rows of a decay of one step: all levels share the expiry, one event says it.

    ``levels`` are top levels. Returns (rows held, events held, rows expired at the clock).
    """
    alive, expired = int64(0), int64(0)
    for k in range(count):
        taken[alive] = k
        expiry = times[start + k] + age
        present = lengths[k] > int64(0)
        expired += int64(1) if present & (expiry <= clock) else int64(0)
        alive += int64(1) if present & (expiry > marks[levels[k]]) else int64(0)
    for c in range(alive):
        source = start + taken[c]
        to_values[held] = value_keys[source]
        to_weights[held] = weights[source]
        to_times[held] = times[source]
        to_ids[held] = ids[source]
        to_events[events] = uint32((int64(1) << int64(12)) | levels[taken[c]])
        held += int64(1)
        events += int64(1)
        to_first[held] = events
    return held, events, expired


@njit(**JIT)
def _lowest_levels(rows, levels, count, lows):
    """Lowest level of each record; above its highest where it is the first hit of no level."""
    lows[0] = int64(0)
    for k in range(1, count):
        same = rows[k] == rows[k - 1]
        lows[k] = levels[k - 1] + int64(1) if same else int64(0)


@njit(inline="always")
def _judge(times, lows, levels, steps, count, ages, clock, marks, words, alive):
    """Words of events, and whether watermarks leave them alive; number of rows expired by now."""
    expired = int64(0)
    for k in range(count):
        level, low, step = levels[k], lows[k], steps[k]
        expiry = times[k] + ages[step]
        alive[k] = int64(1) if (expiry > marks[level]) & (low <= level) else int64(0)
        expired += int64(1) if (low == int64(0)) & (expiry <= clock) else int64(0)
        words[k] = uint32((step << int64(12)) | (low << int64(6)) | level)
    return expired


@njit(**JIT)
def admit(
    value_keys, weights, times, ids, start, stop,
    id_bits, mix, a1, b, p, top, steps,
    ages, numerators, denominators, table, rounded, guesses, halvings, shift, first, wide,
    clock, marks,
    to_values, to_weights, to_times, to_ids, to_first, to_events, held, events,
):  # fmt: skip
    """Append the rows of [start, stop), and their events, that some watermark leaves alive.

    Takes blocks while there is room for one: the arrays end where room does. Rows of weight 0, or
    of initial weight 0, are passed over. ``to_first[k]`` is where the events of row k begin;
    ``to_first[held]`` is where the next ones will. Returns (first row not done, rows held, events
    held, rows that were expired at the clock).
    """
    fractions = table.shape[0] == int64(0)
    single = ages.shape[0] == int64(2)  # one step: the observation expires at once
    unrolled = True
    for s in range(steps.shape[0]):
        unrolled &= (steps[s, 0] == int64(REPEATABLE)) & (steps[s, 1] == steps[s, 3])
    # Allocated here, not passed: the compiler then knows that they overlap nothing.
    u, x = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    remaining, mask = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    lengths, ends = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    flat_x, flat_j = np.empty(FLAT, np.int64), np.empty(FLAT, np.int64)
    flat_row, flat_level = np.empty(FLAT, np.int64), np.empty(FLAT, np.int64)
    flat_step, flat_low = np.empty(FLAT, np.int64), np.empty(FLAT, np.int64)
    flat_w, flat_t = np.empty(FLAT, np.int64), np.empty(FLAT, np.int64)
    ratios = np.empty(FLAT, np.float64)
    words, alive = np.empty(FLAT, np.uint32), np.empty(FLAT, np.int64)
    expired = int64(0)
    while (
        start < stop
        and held + int64(BLOCK) < to_first.shape[0]
        and events + int64(FLAT) <= to_events.shape[0]
    ):
        count = min(int64(BLOCK), stop - start)
        mix_block(ids, start, count, id_bits, mix, u)
        hash_block(u, count, id_bits, a1, b, p)
        _initial_lengths(weights, start, count, numerators, denominators, table, lengths)
        for k in range(count):
            remaining[k] = lengths[k] - int64(1)
            x[k] = u[k]
        if single:
            walk_block(x, remaining, count, steps)
            level_block(x, count, p, top, flat_level)
            held, events, gone = _append_single(
                value_keys, weights, times, ids, start, count, lengths, flat_level, ages[1], clock,
                marks, x, to_values, to_weights, to_times, to_ids, to_first, to_events,
                held, events,
            )  # fmt: skip
            expired += gone
            start += count
            continue
        _walk(x, remaining, mask, count, steps)
        row = int64(0)
        while row < count and events + int64(FLAT) <= to_events.shape[0]:
            begin = row
            if unrolled:
                row, records = _single_records(
                    u, mask, lengths, weights, times, start, row, count, steps,
                    flat_x, flat_j, flat_row, flat_w, flat_t,
                )  # fmt: skip
            else:
                row, records = _records(
                    u, mask, lengths, weights, times, start, row, count, steps, p, top,
                    flat_x, flat_j, flat_row, flat_w, flat_t,
                )  # fmt: skip
            level_block(flat_x, records, p, top, flat_level)
            _lowest_levels(flat_row, flat_level, records, flat_low)
            if fractions:
                _ratios(flat_j, flat_w, records, ratios)
                _steps_of_ratios(
                    ratios, records, rounded, guesses, halvings, shift, first, flat_step
                )
                if wide:
                    _correct_steps(flat_w, flat_j, records, numerators, denominators, flat_step)
            else:
                _steps_of_values(flat_w, flat_j, records, table, flat_step)
            expired += _judge(
                flat_t, flat_low, flat_level, flat_step, records, ages, clock, marks, words, alive
            )
            for k in range(begin, row):
                ends[k] = int64(0)
            for k in range(records):
                to_events[events] = words[k]
                events += alive[k]
                ends[flat_row[k]] = events
            end = to_first[held]
            for k in range(begin, row):
                source = start + k
                to_values[held] = value_keys[source]
                to_weights[held] = weights[source]
                to_times[held] = times[source]
                to_ids[held] = ids[source]
                held += int64(1) if ends[k] > end else int64(0)
                end = max(end, ends[k])
                to_first[held] = end
        if row < count:  # no room for the events of the rest
            start += row
            break
        start += count
    return start, held, events, expired


# --------------------------------------------------------------------------------------- compaction


@njit(**JIT)
def mark_copies(values, weights, times, ids, n, max_weight, salt, table, table_bits, dead):
    """dead[k] = 1 for every row that is not the latest copy of its (id, weight) among [0, n).

    The identity table holds row numbers beside a tag of the hash; 2^table_bits > n.
    """
    table[: int64(1) << table_bits] = uint32(0)
    slot_shift = uint64(int64(64) - table_bits)
    slot_mask = (int64(1) << table_bits) - int64(1)
    row_bits = uint64(_bit_length(uint64(n + int64(1))))
    row_mask = (uint64(1) << row_bits) - uint64(1)
    tag_mask = uint64(0xFFFFFFFF) ^ row_mask
    hashes = np.empty(CHUNK, np.uint64)
    touched = uint32(0)
    for start in range(int64(0), n, int64(CHUNK)):
        stop = min(start + int64(CHUNK), n)
        for k in range(start, stop):
            identity = ids[k] * max_weight + weights[k] - int64(1)
            hashed = uint64(identity) * salt
            hashes[k - start] = hashed
            touched ^= table[int64(hashed >> slot_shift)]  # brings it into the cache
            dead[k] = 0
        for k in range(start, stop):
            hashed = hashes[k - start]
            tag = hashed & tag_mask
            slot = int64(hashed >> slot_shift)
            entry = uint64(table[slot])
            while entry != uint64(0):
                if (entry & tag_mask) == tag:
                    other = int64(entry & row_mask) - int64(1)
                    if ids[other] == ids[k] and weights[other] == weights[k]:
                        later = times[k] > times[other]
                        later |= (times[k] == times[other]) & (values[k] > values[other])
                        dead[other if later else k] = 1
                        if later:
                            table[slot] = uint32(tag | uint64(k + int64(1)))
                        break
                slot = (slot + int64(1)) & slot_mask
                entry = uint64(table[slot])
            if entry == uint64(0):
                table[slot] = uint32(tag | uint64(k + int64(1)))
    return touched


@njit(**JIT)
def raise_marks(times, first, events, n, dead, ages, capacity, marks):
    """Raise marks[i] to the largest expiry that more than ``capacity`` events of level i reach.

    Only events of live rows, later than the watermark as it is, count. See (3).
    """
    top = int64(marks.shape[0] - 1)
    earliest, latest = int64(NEVER), int64(-NEVER)
    for k in range(n):
        if not dead[k]:
            earliest = min(earliest, times[k])
            latest = max(latest, times[k])
    if earliest > latest:
        return
    base = max(earliest + ages[1], marks[top] + int64(1))
    latest = latest + ages[ages.shape[0] - 1]
    if latest < base:
        return
    shift = max(int64(0), _bit_length(uint64(latest) - uint64(base)) - int64(_HISTOGRAM_BITS))
    buckets = int64((uint64(latest) - uint64(base)) >> uint64(shift)) + int64(1)
    counts = np.zeros((top + int64(2), buckets), np.int32)
    for k in range(n):
        if not dead[k]:
            time = times[k]
            for c in range(first[k], first[k + 1]):
                event = int64(events[c])
                high = event & int64(63)
                expiry = time + ages[event >> int64(12)]
                if expiry > marks[high]:
                    bucket = int64((uint64(expiry) - uint64(base)) >> uint64(shift))
                    counts[(event >> int64(6)) & int64(63), bucket] += 1
                    counts[high + int64(1), bucket] -= 1
    for level in range(1, top + int64(1)):
        for bucket in range(buckets):
            counts[level, bucket] += counts[level - 1, bucket]
    lows = np.empty(top + int64(1), np.int64)  # where the bucket of a cut begins
    above = np.full(top + int64(1), -1, np.int64)  # events later than it; -1: nothing to resolve
    unresolved = False
    for level in range(top + int64(1)):
        lowest = int64(0)
        if marks[level] >= base:
            lowest = int64((uint64(marks[level]) + uint64(1) - uint64(base)) >> uint64(shift))
        reached = int64(0)
        for bucket in range(buckets - int64(1), lowest - int64(1), int64(-1)):
            here = int64(counts[level, bucket])
            reached += here
            if reached > capacity:
                if shift == int64(0):
                    marks[level] = base + bucket
                else:
                    lows[level] = int64(uint64(base) + (uint64(bucket) << uint64(shift)))
                    above[level] = reached - here
                    unresolved = True
                break
    while unresolved:
        unresolved = _refine(
            times, first, events, n, dead, ages, capacity, marks, lows, above, shift
        )
        shift = max(int64(0), shift - int64(_HISTOGRAM_BITS))


@njit(**JIT)
def _refine(times, first, events, n, dead, ages, capacity, marks, lows, above, shift):
    """Count the buckets of the cuts, each 2^shift wide, more finely; False once all are known."""
    top = int64(marks.shape[0] - 1)
    finer = max(int64(0), shift - int64(_HISTOGRAM_BITS))
    buckets = int64(1) << (shift - finer)
    counts = np.zeros((top + int64(1), buckets), np.int32)
    for k in range(n):
        if not dead[k]:
            time = times[k]
            for c in range(first[k], first[k + 1]):
                event = int64(events[c])
                expiry = time + ages[event >> int64(12)]
                low, high = (event >> int64(6)) & int64(63), event & int64(63)
                for level in range(low, high + int64(1)):
                    counted = above[level] >= int64(0) and expiry > marks[level]
                    if counted and expiry >= lows[level]:
                        offset = uint64(expiry) - uint64(lows[level])
                        if (offset >> uint64(shift)) == uint64(0):
                            counts[level, int64(offset >> uint64(finer))] += 1
    unresolved = False
    for level in range(top + int64(1)):
        if above[level] < int64(0):
            continue
        reached = above[level]
        above[level] = int64(-1)  # unless more than the capacity is reached: then marks stay
        for bucket in range(buckets - int64(1), int64(-1), int64(-1)):
            here = int64(counts[level, bucket])
            reached += here
            if reached > capacity:
                lows[level] = int64(uint64(lows[level]) + (uint64(bucket) << uint64(finer)))
                if finer == int64(0):
                    marks[level] = lows[level]
                else:
                    above[level] = reached - here
                    unresolved = True
                break
    return unresolved


@njit(**JIT)
def held_by_level(times, first, events, n, ages, marks, later, tied):
    """Of every level, rows that expire later than its watermark, and rows that expire exactly then
    both at that level and at the next, which keeps them. Only events that are alive are stored."""
    for k in range(n):
        high_before = int64(-1)
        for c in range(first[k], first[k + int64(1)]):
            event = int64(events[c])
            expiry = times[k] + ages[event >> int64(12)]
            low, high = (event >> int64(6)) & int64(63), event & int64(63)
            for level in range(low, high + int64(1)):
                later[level] += int64(1) if expiry > marks[level] else int64(0)
            # Where the event before is stored up to level i, the row expires later than t_i there.
            start = low if high_before == low - int64(1) else max(low - int64(1), int64(0))
            for level in range(start, high):
                tied[level] += int64(1) if expiry == marks[level] else int64(0)
            high_before = high


@njit(**JIT)
def squeeze(values, weights, times, ids, first, events, n, dead, ages, marks):
    """Drop dead rows, events that are not alive, and rows without any; in place.

    Returns (rows held, events held).
    """
    held = int64(0)
    kept = int64(0)
    stop = first[0]
    for k in range(n):
        start, stop = stop, first[k + int64(1)]
        before = kept
        if not dead[k]:
            time = times[k]
            for c in range(start, stop):
                event = events[c]
                expiry = time + ages[int64(event) >> int64(12)]
                events[kept] = event
                kept += int64(1) if expiry > marks[int64(event) & int64(63)] else int64(0)
        values[held] = values[k]
        weights[held] = weights[k]
        times[held] = times[k]
        ids[held] = ids[k]
        held += int64(1) if kept > before else int64(0)
        first[held] = kept
    return held, kept


@njit(**JIT)
def append_alive(
    values, weights, times, ids, first, events, n, ages, marks,
    to_values, to_weights, to_times, to_ids, to_first, to_events, held, kept,
):  # fmt: skip
    """Append the rows and events of another bag that the watermarks leave alive."""
    for k in range(n):
        before = kept
        for c in range(first[k], first[k + int64(1)]):
            event = events[c]
            expiry = times[k] + ages[int64(event) >> int64(12)]
            to_events[kept] = event
            kept += int64(1) if expiry > marks[int64(event) & int64(63)] else int64(0)
        to_values[held] = values[k]
        to_weights[held] = weights[k]
        to_times[held] = times[k]
        to_ids[held] = ids[k]
        held += int64(1) if kept > before else int64(0)
        to_first[held] = kept
    return held, kept


# ------------------------------------------------------------------------------------------ queries


@njit(**JIT)
def stratum(
    weights, times, n, until, ages, numerators, denominators, table, seen, rows, lows, highs
):
    """Integers of each observation that are left at the time ``until`` and were not seen before.

    ``seen[k]`` of an observation's integers were seen, and is raised. Times are <= ``until``.
    Returns the number of observations that have any; ``rows`` says which, the integers are those
    from ``lows`` to before ``highs``.
    """
    last = int64(ages.shape[0] - 1)
    found = int64(0)
    for k in range(n):
        age = uint64(until) - uint64(times[k])
        if age >= uint64(ages[last]):
            continue
        low, high = int64(0), last  # f is constant from ages[low] to before ages[high]
        while high - low > int64(1):
            middle = (low + high) >> int64(1)
            if uint64(ages[middle]) <= age:
                low = middle
            else:
                high = middle
        w = weights[k]
        left = table[w, low] if table.shape[0] else w * numerators[low] // denominators[low]
        rows[found] = k
        lows[found] = seen[k]
        highs[found] = left
        found += int64(1) if left > seen[k] else int64(0)
        seen[k] = max(seen[k], left)
    return found
