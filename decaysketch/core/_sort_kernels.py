"""Numba kernels that put rows in order of time, for every family that keeps the latest. int64.

A radix sort of (newest - time), 64 bits, beside a 32-bit word that packs the row number and its
level. Wide spans (microseconds over months) only cost more passes.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, uint32, uint64

JIT = {"cache": True, "nogil": True, "error_model": "numpy"}

ROW_BITS = 26  # row number within a word of the sort; the level is above it
MAX_ROWS = 1 << ROW_BITS
CHUNK = 256  # rows that are looked at together
DIGIT_BITS = 11
TABLE_FULL = -1  # what is returned where a table of identities has no room


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
