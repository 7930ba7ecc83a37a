"""Numba kernels of the batch engine: counts of deliveries by key."""

from __future__ import annotations

from numba import int64, njit

JIT = {"cache": True, "nogil": True, "error_model": "numpy"}


@njit(**JIT)
def count_by_key(codes, missing, fallback, refused, counts):
    """Add to counts[key] the rows taken, those among them without value or time, those refused."""
    for k in range(codes.shape[0]):
        code = codes[k]
        if refused[k]:
            counts[code, 3] += int64(1)
        else:
            counts[code, 0] += int64(1)
            counts[code, 1] += int64(missing[k])
            counts[code, 2] += int64(fallback[k])
