"""Key columns: the cell in each row that counts a key.

``x = mix64(word >> shift)``, and in row r with w columns the column is
``floor(w floor(((a_r x + b_r) mod 2^64) / 2^32) / 2^32)``: multiply-add-shift, with a_r odd
(Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic
without primes", STACS 1996). The seed determines the constants, different for each shift and
row. In a layer that is not hashed the column is ``word >> shift``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from decaysketch.core import hashing
from decaysketch.ecm import _native
from decaysketch.ecm.levels import Layer

__all__ = ["MOST_ROWS", "columns", "columns_of", "minimum", "rows_of"]

UInt64Array = npt.NDArray[np.uint64]
Number = TypeVar("Number", np.int64, np.float64)

MOST_ROWS = _native.MOST_ROWS  # depth of a layer

# Streams of derived words, beside those of ``core.hashing`` and of the samplers: never reuse one.
PURPOSE_ROW_MULTIPLIER = 17
PURPOSE_ROW_OFFSET = 18


def rows_of(layer: Layer, seed: int) -> tuple[UInt64Array, UInt64Array]:
    """Constants ``(a, b)`` for a layer's rows: uint64[depth] each."""
    indices = [layer.shift * MOST_ROWS + row for row in range(layer.depth)]
    a = [hashing.derive(seed, PURPOSE_ROW_MULTIPLIER, index) | 1 for index in indices]
    b = [hashing.derive(seed, PURPOSE_ROW_OFFSET, index) for index in indices]
    return np.array(a, np.uint64), np.array(b, np.uint64)


@lru_cache(maxsize=1024)
def columns(layer: Layer, seed: int) -> _native.Columns:
    """Return the layer data that kernels need.

    Raises:
        ValueError: :class:`Layer` does not allow its shape.
    """
    a, b = rows_of(layer, seed)
    return _native.Columns(a, b, layer.width, layer.shift, layer.hashed)


def columns_of(words: UInt64Array, layer: Layer, seed: int) -> npt.NDArray[np.uint32]:
    """Return each word's column in each row: uint32[depth, m]. O(m depth).

    Args:
        words: uint64[m].
        layer, seed: which cells.

    Raises:
        ValueError: a prefix that is not hashed has no column.
    """
    out = np.empty((layer.depth, len(words)), np.uint32)
    _native.columns(columns(layer, seed), words, out)
    return out


def minimum(
    grid: npt.NDArray[Number], words: UInt64Array, layer: Layer, seed: int
) -> npt.NDArray[Number]:
    """Return the smallest value among each word's cells (the paper's point query, section 4.1).

    Args:
        grid: int64 or float64 [depth, width].
        words: uint64[m].
        layer, seed: whose grid it is.

    Returns:
        [m], with the type of the grid. O(m depth).

    Raises:
        ValueError: a grid with another shape, or a prefix that is not hashed and has no column.
    """
    out = np.empty(len(words), grid.dtype)
    kernel: Any = _native.minimum if grid.dtype == np.float64 else _native.minimum_of_counts
    kernel(columns(layer, seed), np.ascontiguousarray(grid), words, out)
    return out
