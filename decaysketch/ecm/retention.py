"""The ranks that cells keep: a function of the number of ones they saw, and of nothing else.

A wave with q slots keeps, for every level l, the last q odd multiples of ``2^l`` up to n. An
exponential histogram with B slots keeps at level i the multiples ``j 2^i`` with ``2 n_{i+1} < j <=
n_i``, where ``n_0 = n`` and ``n_{i+1} = max(0, (n_i - B + 1) >> 1)``.

With a rank r either keeps every number that remains when the lowest ones among its binary digits
are removed: for each l, the newest rank up to r that ``2^l`` divides. (In a wave, such a
rank of order o is less than ``2^o`` below r, which lies in the last ``2 q 2^(o-1)`` ranks. In a
histogram, the last rank of a level i is the end of its multiples of ``2^i``, so the newest rank up
to r that ``2^l`` divides lies at a level up to l.) :func:`chained` finds these.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from decaysketch.ecm.sizing import Kind

__all__ = ["chained", "digits", "kept_after", "kept_ranks"]

Int64Array = npt.NDArray[np.int64]


def kept_after(kind: Kind, slots: int, n: Int64Array, rank: Int64Array) -> Int64Array:
    """How many ranks above a given one each cell keeps. O(cells log n).

    Args:
        kind: kind of the cells.
        slots: q or B.
        n: int64[cells], ones per cell, below 2^62.
        rank: int64[cells], 0 to ``n``.
    """
    counts = np.zeros(len(n), np.int64)
    for level, cells, last, kept in _levels(kind, slots, n):
        up_to = rank[cells] >> level  # multiples of 2^level
        newer = last - (((up_to + 1) >> 1) - 1 if kind == "wave" else up_to)
        counts[cells] += np.clip(newer, 0, kept)
    return counts


def chained(ranks: Int64Array, head: Int64Array) -> npt.NDArray[np.bool_]:
    """Whether ranks remain when the lowest ones in ``head``, which is no smaller, are removed.

    Args:
        ranks: int64[m], above 0.
        head: int64[m].
    """
    found: npt.NDArray[np.bool_] = head - ranks < (ranks & -ranks)
    return found


def digits(ranks: Int64Array) -> Int64Array:
    """The number of ones in each rank's binary digits: the length of its chain."""
    rows = np.ascontiguousarray(ranks).view(np.uint8).reshape(-1, 8)
    counts: Int64Array = np.unpackbits(rows, axis=1).sum(axis=1, dtype=np.int64)
    return counts


def kept_ranks(kind: Kind, slots: int, n: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The ranks that each cell keeps, newest first.

    Args:
        kind, slots, n: as :func:`kept_after`.

    Returns:
        (ranks int64[kept], offsets int64[cells + 1]). O(kept log kept).
    """
    cells, ranks = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for level, live, last, kept in _levels(kind, slots, n):
        behind = np.arange(int(kept.sum()), dtype=np.int64)
        behind -= np.repeat(np.cumsum(kept) - kept, kept)
        multiple = np.repeat(last, kept) - behind
        ranks.append((2 * multiple + 1 if kind == "wave" else multiple) << level)
        cells.append(np.repeat(live, kept))
    cell, rank = np.concatenate(cells), np.concatenate(ranks)
    offsets = np.zeros(len(n) + 1, np.int64)
    np.cumsum(np.bincount(cell, minlength=len(n)), out=offsets[1:])
    return rank[np.lexsort((-rank, cell))], offsets


def _levels(
    kind: Kind, slots: int, n: Int64Array
) -> Iterator[tuple[int, npt.NDArray[np.intp], Int64Array, Int64Array]]:
    """For each level, finest first: (level, cells that reach it, number of the newest rank, how
    many are kept down from that).
    """
    cells = np.flatnonzero(n)
    left, level = n[cells], 0
    while len(cells):
        if kind == "wave":
            odd = (left + 1) >> 1  # odd multiples of 2^level
            yield level, cells, odd - 1, np.minimum(odd, slots)
            left = left >> 1
        else:
            above = np.maximum(left - slots + 1, 0) >> 1
            yield level, cells, left, left - 2 * above
            left = above
        some = left > 0
        cells, left, level = cells[some], left[some], level + 1
