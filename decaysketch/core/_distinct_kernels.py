"""Numba kernels of the hash table that numbers distinct int64 numbers."""

from __future__ import annotations

from numba import int32, int64, njit, uint64

JIT = {"cache": True, "nogil": True, "error_model": "numpy"}


@njit(**JIT)
def number_keys(keys, start, table_keys, table_codes, bits, salt, distinct, count, codes):
    """codes[k] = the number of keys[k], for k >= start: 0, 1, ... in order of first appearance.

    ``table_keys`` and ``table_codes`` (-1: free) are an open-addressed table of ``2^bits`` slots,
    ``distinct`` the keys by number. Returns (keys known, next row): stops before the table is more
    than half full.
    """
    shift = uint64(int64(64) - bits)
    mask = (int64(1) << bits) - int64(1)
    most = int64(1) << (bits - int64(1))
    n = keys.shape[0]
    k = start
    while k < n:
        key = keys[k]
        slot = int64((uint64(key) * salt) >> shift)
        code = table_codes[slot]
        while code >= int32(0) and table_keys[slot] != key:
            slot = (slot + int64(1)) & mask
            code = table_codes[slot]
        if code < int32(0):
            if count >= most:
                break
            table_keys[slot] = key
            table_codes[slot] = int32(count)
            distinct[count] = key
            code = int32(count)
            count += int64(1)
        codes[k] = code
        k += int64(1)
    return count, k


@njit(**JIT)
def fill_table(distinct, count, left_out, table_keys, table_codes, bits, salt):
    """Put the first ``count`` keys into an empty table, but for the one numbered ``left_out``."""
    shift = uint64(int64(64) - bits)
    mask = (int64(1) << bits) - int64(1)
    for code in range(count):
        if code == left_out:
            continue
        slot = int64((uint64(distinct[code]) * salt) >> shift)
        while table_codes[slot] >= int32(0):
            slot = (slot + int64(1)) & mask
        table_keys[slot] = distinct[code]
        table_codes[slot] = int32(code)
