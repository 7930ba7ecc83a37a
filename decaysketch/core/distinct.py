"""Distinct int64 numbers, numbered by an open-addressed hash table."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from decaysketch.core import _native

__all__ = ["Distinct"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_FIRST_SLOTS = 1024
_SALT = secrets.randbits(64) | 1  # the table is fed from the network


class Distinct:
    """Distinct int64 numbers, numbered 0, 1, ... in order of first appearance.

    Attributes:
        distinct: int64[m], m >= ``count``: the numbers met so far, in order.
        count: how many there are.
        null: the number for the null, -1 before it was met.
    """

    def __init__(self) -> None:
        self.count = 0
        self.null = -1
        self.distinct = np.empty(0, np.int64)
        self._allocate(_FIRST_SLOTS)

    def _allocate(self, slots: int) -> None:
        self._slots = np.zeros((slots, 2), np.int64)
        distinct = np.empty(slots // 2, np.int64)  # half of the slots stay free
        distinct[: self.count] = self.distinct[: self.count]
        self.distinct = distinct

    def _grow(self) -> None:
        self._allocate(4 * len(self._slots))
        _native.fill_table(self._slots, _SALT, self.distinct, self.count, self.null)

    def number(self, keys: Int64Array) -> Int32Array:
        """Return the number for each key. Amortised O(1) each."""
        codes = np.empty(len(keys), np.int32)
        keys = np.ascontiguousarray(keys)
        start = 0
        while True:
            self.count, start = _native.number_keys(
                keys, start, self._slots, _SALT, self.distinct, self.count, codes
            )
            if start == len(keys):
                return codes
            self._grow()

    def number_null(self) -> int:
        """Return the number for the null."""
        if self.null < 0:
            if self.count == len(self.distinct):
                self._grow()
            self.null = self.count
            self.distinct[self.count] = 0
            self.count += 1
        return self.null

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes + self.distinct.nbytes
