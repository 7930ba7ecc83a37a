"""Distinct int64 numbers, numbered by an open-addressed hash table."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from decaysketch.core import _distinct_kernels as kernels

__all__ = ["Distinct", "warm_up"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_FIRST_BITS = 10
_SALT = np.uint64(secrets.randbits(64) | 1)  # the table is fed from the network


class Distinct:
    """Distinct int64 numbers, numbered 0, 1, ... in order of first appearance.

    Attributes:
        distinct: int64[m], m >= ``count``: the numbers that were met, by number.
        count: how many there are.
        null: the number of the null, -1 before it was met.
    """

    def __init__(self) -> None:
        self._allocate(_FIRST_BITS)
        self.distinct = np.empty(1 << (_FIRST_BITS - 1), np.int64)
        self.count = 0
        self.null = -1

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.empty(1 << bits, np.int64)
        self._codes = np.full(1 << bits, -1, np.int32)

    def _grow(self) -> None:
        self._allocate(self._bits + 2)
        grown = np.empty(1 << (self._bits - 1), np.int64)
        grown[: self.count] = self.distinct[: self.count]
        self.distinct = grown
        kernels.fill_table(grown, self.count, self.null, self._keys, self._codes, self._bits, _SALT)

    def number(self, keys: Int64Array) -> Int32Array:
        """The number of each key. Amortised O(1) each."""
        codes = np.empty(len(keys), np.int32)
        keys = np.ascontiguousarray(keys).view()
        keys.setflags(write=False)
        start = 0
        while True:
            self.count, start = kernels.number_keys(
                keys, start, self._keys, self._codes, self._bits, _SALT, self.distinct, self.count,
                codes,
            )  # fmt: skip
            if start == len(keys):
                return codes
            self._grow()

    def number_null(self) -> int:
        """The number of the null."""
        if self.null < 0:
            if self.count == len(self.distinct):
                self._grow()
            self.null = self.count
            self.distinct[self.count] = 0
            self.count += 1
        return self.null

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._codes.nbytes + self.distinct.nbytes


def warm_up() -> None:
    """Compile, or load from the cache, what numbering needs; more than the first table takes."""
    Distinct().number(np.arange(1 << _FIRST_BITS))
