"""The noise that other keys add to a key's cell, estimated from the cells themselves.

A row hashes keys independently of their counts. So the noise in one key's cell is exchangeable with
the contents of the row's other cells: it is above all but ``c`` of ``w`` cells with a chance of at
most ``(1 + c) / (w + 1)``. Rows are independent. For one key, let ``#_j(T)`` be the number of cells
in row ``j`` above ``T``. Then the smallest noise in its cells is above ``T`` with a chance of at
most ``prod_j (1 + #_j(T)) / (w + 1)``: :func:`most` is the smallest such ``T``. The noise in row
``j`` is below its ``k``-th smallest cell with a chance of at most ``k / (w + 1)``: :func:`least`.
This assumes nothing about the stream. If a stream's cells are alike, its noise is known almost
exactly. Markov's inequality (Papapetrou, Garofalakis and Deligiannakis 2015, theorem 1) only shows
that the smallest noise is at most ``c ||a|| / w`` except with a chance of ``c^-d``, :func:`markov`.

All arrays here belong to one layer, with rising rows: ``np.sort(cells, axis=1)``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from decaysketch.query.estimate import first_true

__all__ = ["least", "markov", "most", "spread"]

Float64Array = npt.NDArray[np.float64]

_POINTS = 1024  # of the distribution of the noise, for its standard error


def most(ranked: Float64Array, chance: float) -> float:
    """Return the value that the smallest noise in a key's cells exceeds with at most this chance.

    Args:
        ranked: float64[d, w], each row rising.
        chance: above 0.

    Returns:
        The smallest cell ``T`` that the rows allow. Infinite if ``(w + 1)^-d`` is above the
        chance, so that no cell is large enough. O(d log(d w) log w), and a sort.
    """
    depth, width = ranked.shape
    if (width + 1.0) ** -depth > chance:
        return math.inf
    cells = np.sort(ranked, axis=None)

    def reaches(k: int) -> bool:
        return _chance_above(ranked, float(cells[k])) <= chance

    return float(cells[first_true(0, cells.size - 1, reaches)])


def _chance_above(ranked: Float64Array, bound: float) -> float:
    width = ranked.shape[1]
    chance = 1.0
    for row in ranked:
        chance *= (1 + width - int(row.searchsorted(bound, side="right"))) / (width + 1)
    return chance


def least(ranked: Float64Array, chance: float) -> Float64Array:
    """Return the values below which a key's noise falls, in any of its rows, with at most this
    chance.

    Args:
        ranked: float64[d, w], each row rising.
        chance: for all rows together.

    Returns:
        float64[d], per row. 0 if a row has too few cells: ``w + 1 < d / chance``.
    """
    depth, width = ranked.shape
    k = min(math.floor(chance / depth * (width + 1)), width)
    return ranked[:, k - 1].copy() if k else np.zeros(depth)


def markov(depth: int, width: int, chance: float) -> float:
    """The share of ``||a||`` that a key's smallest noise exceeds with at most this chance."""
    return float(chance ** (-1.0 / depth) / width)


def spread(ranked: Float64Array, centre: float) -> float:
    """Root mean square of the smallest noise less ``centre``, with noise drawn as the cells are.

    O(d log w) for each of up to 1,024 points in the distribution.
    """
    width = ranked.shape[1]
    cells = np.sort(ranked, axis=None)
    cells = cells[:: max(1, cells.size // _POINTS)]
    above = np.ones(len(cells))
    for row in ranked:
        above *= 1.0 - row.searchsorted(cells, side="right") / width
    chances = -np.diff(above, prepend=1.0)
    return math.sqrt(float(chances @ (cells - centre) ** 2))
