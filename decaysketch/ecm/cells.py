"""The counters of one layer: cells that know how many ones they counted from any time on.

A cell counts ones, each at a time, which arrive in time order, and keeps the times of some. *Which*
is a function of their number n alone (defined in ``cells.h`` and, with plain integers, in
:mod:`decaysketch.ecm.reference`). So a cell's state is a function of the multiset of times.
Batches, and the order among events with one time, cannot matter. With p1 the newest kept rank
before ``start`` and p2 the oldest one from it on, guaranteed bounds on the ones at ``start`` or
later are

    lo = n - p2 + 1 <= count <= hi = n - p1

    (hi - lo) / (hi + lo) < 1 / (2 q)  in a wave of q slots,  < 1 / (2 B - 1)  in a histogram of B

for every past start: nothing expires, and no window is fixed when cells are made. After
Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams" (VLDB
Journal 24, 2015), sections 3 to 5. These bounds are new, and smaller than theirs.

*Memory*: 4 bytes per time while a layer's times span less than 2^32 units, then 8, and 8 bytes per
cell. Levels are added as the largest cell needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from decaysketch.ecm import _native
from decaysketch.ecm.hashing import columns, minimum
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.sizing import Kind, cell_error

__all__ = ["LIMIT", "Cells", "compact", "minimum"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Float64Array = npt.NDArray[np.float64]

LIMIT = _native.LIMIT  # the ones of a layer are fewer

_NARROW = np.iinfo(np.uint32).max
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Cells:
    """A layer's cells, updated in time order. Not thread-safe.

    Attributes:
        layer, kind, seed: which keys are counted where, and how times are kept: "wave" or "eh".
        clock: time of the last event, None before the first.
        first: time of the first event, None before it.
        seen: number of counted ones, the sum of weights.
    """

    def __init__(self, layer: Layer, kind: Kind, seed: int) -> None:
        """Start without events.

        Raises:
            ParameterError, ValueError: another kind, or a shape that :class:`Layer` does not allow.
        """
        self.layer = layer
        self.kind: Kind = kind
        self.seed = seed
        self.clock: int | None = None
        self.first: int | None = None
        self.seen = 0
        self._error = cell_error(kind, layer.slots)
        self._columns = columns(layer, seed)
        self._n = np.zeros(layer.cells, np.int64)
        self._most = 0  # no cell has more
        self._lists: _native.Lists | None = None
        self._hold(np.zeros((1, layer.cells, layer.slots), np.uint32), 0)

    # ------------------------------------------------------------------------------------- memory

    def _hold(self, times: npt.NDArray[np.uint32] | Int64Array, base: int) -> None:
        """Store times in this array from now on."""
        self._times, self._base = times, base
        self._room = _room(self.kind, len(times), self.layer.slots)
        self._counters = _native.Counters(self._n, times, base, self.kind == "eh")

    def _make_room(self, heaviest: int) -> None:
        """Add levels for cells with this number of ones."""
        levels = len(self._times)
        while _room(self.kind, levels, self.layer.slots) < heaviest:
            levels += 1
        if levels > len(self._times):
            times = np.zeros((levels, *self._times.shape[1:]), self._times.dtype)
            times[: len(self._times)] = self._times
            self._hold(times, self._base)

    def _reach(self, first: int, last: int) -> None:
        """Make space for times from the first one up to another."""
        if self._times.dtype != np.uint32:
            return
        if self.first is None:
            self._hold(self._times, first - 1)
        if last - self._base > _NARROW:
            self._hold(self._times + np.int64(self._base), 0)

    @property
    def nbytes(self) -> int:
        """Bytes of counters and times."""
        return self._n.nbytes + self._times.nbytes

    def copy(self) -> Self:
        """Return an independent copy. O(cells levels slots)."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._n = self._n.copy()
        other._hold(self._times.copy(), self._base)
        return other

    def __getstate__(self) -> tuple[object, ...]:
        made = (self.layer, self.kind, self.seed)
        return *made, self.n, self.kept()[1], self.first, self.clock

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.__dict__.update(self.restore(*state).__dict__)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------- updates

    def update(
        self, words: UInt64Array, times: Int64Array, weights: Int64Array | None = None
    ) -> None:
        """Count events. O(m depth), and O(cells slots log n) for large batches.

        Args:
            words: uint64[m], keys.
            times: int64[m], within 2^62 of 0, not falling, the first not before :attr:`clock`.
            weights: int64[m], at least 1. None: 1 each. An event with weight k is k ones. The order
                of times and the signs of weights are not checked.

        Raises:
            ValueError: columns with unequal lengths, more ones than :data:`LIMIT`, or a word
                without a column. Nothing was counted then.
        """
        count = len(words)
        if count == 0:
            return
        total = count if weights is None else _native.total(weights)
        if self.seen + total >= LIMIT:
            raise ValueError(
                f"weights add {total} to the {self.seen} that were counted; expected less than "
                f"2^62 = {LIMIT} together"
            )
        first, last = int(times[0]), int(times[-1])
        if self._most + total > self._room:
            self._most = _native.heaviest(self._columns, self._counters, words, weights)
            self._make_room(self._most)
        else:
            self._most += total
        self._reach(first, last)
        _native.update(
            self._columns, self._counters, words, times, weights, self._is_grouped(count, weights)
        )
        if self.first is None:
            self.first = first
        self.clock = last
        self.seen += total
        self._lists = None

    def _is_grouped(self, count: int, weights: Int64Array | None) -> bool:
        """Whether it is faster to order a batch by cell first. A one is a single store in a wave,
        but some merges in a histogram, and a weight is many stores in either.
        """
        width = self.layer.width
        if width == 1:  # in order as it is
            return True
        if weights is not None:
            return 4 * count >= width
        return self.kind == "eh" and count >= 12 * width

    # -------------------------------------------------------------------------------------- windows

    @property
    def n(self) -> Int64Array:
        """Current ones per cell: int64[depth, width], read-only."""
        n = self._n.reshape(self.layer.depth, self.layer.width)
        n.setflags(write=False)
        return n

    def grid(self, start: int) -> tuple[Int64Array, Int64Array]:
        """Guaranteed bounds ``lo`` and ``hi`` on the ones at ``start`` or later.

        Returns:
            (lo, hi), int64[depth, width] each. O(cells log n).
        """
        shape = self.layer.depth, self.layer.width
        if self.first is None or self.clock is None or start > self.clock:
            return np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        if start <= self.first:
            return self._n.reshape(shape).copy(), self._n.reshape(shape).copy()
        lo, hi = np.empty((2, self.layer.cells), np.int64)
        _native.grid(self._counters, start, lo, hi)
        return lo.reshape(shape), hi.reshape(shape)

    def values(self, start: int) -> Float64Array:
        """Ones at ``start`` or later, each cell off by at most its relative error.

        It assumes that ones between two kept ranks are spread evenly over the time between. The
        result is clipped to ``[(1 - error) hi, (1 + error) lo]``, where it is within the error for
        any truth.

        Returns:
            float64[depth, width]. O(cells log n).
        """
        shape = self.layer.depth, self.layer.width
        if self.first is None or self.clock is None or start > self.clock:
            return np.zeros(shape)
        if start <= self.first:
            return self._n.reshape(shape).astype(np.float64)
        out = np.empty(self.layer.cells)
        _native.values(self._counters, start, self.first, self._error, out)
        return out.reshape(shape)

    def each(self, words: UInt64Array, starts: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Bounds on each key's count, with its own window: the minimum over its rows.

        Args:
            words: uint64[m], keys.
            starts: int64[m]. Ones at ``starts[k]`` or later count for ``words[k]``.

        Returns:
            (lo, hi), int64[m] each: the key has at most ``hi``. O(m depth log n), and once
            after an update O(cells slots log n).

        Raises:
            ValueError: columns with unequal lengths, or a word without a column.
        """
        lo, hi = np.zeros((2, len(words)), np.int64)
        first = 0 if self.first is None else self.first
        _native.each(self._columns, self._n, self._listed(), words, starts, first, lo, hi)
        return lo, hi

    def decayed(
        self, weight_of_age: Callable[[Int64Array], Float64Array], now: int
    ) -> tuple[Float64Array, Float64Array]:
        """Guaranteed bounds ``lo`` and ``hi`` on the decayed ones at ``now``, except for rounding.

        A cell's relative error is that of a window, since a decayed count is an integral over
        windows (Cohen and Strauss, "Maintaining time-decaying stream aggregates", 2006). That holds
        at the clock or later. Before it, ones after ``now`` have no weight.

        Args:
            weight_of_age: non-increasing, from int64 ages of 0 and more to float64.
            now: time of the query.

        Returns:
            (lo, hi), float64[depth, width] each. O(cells slots log n).
        """
        lo, hi = np.zeros((2, self.layer.cells))
        if self.first is not None:
            lists = self._listed()
            times = np.append(lists.times, self.first)
            ages = now - np.maximum(times, max(now - _HIGHEST, _LOWEST))
            weights = weight_of_age(np.maximum(ages, 0))
            oldest = float(weights[-1])
            _native.decayed(lists, weights[:-1], now, self.first, oldest, lo, hi)
        shape = self.layer.depth, self.layer.width
        return lo.reshape(shape), hi.reshape(shape)

    # ---------------------------------------------------------------------------------------- state

    @staticmethod
    def kept_counts(layer: Layer, kind: Kind, n: Int64Array) -> Int64Array:
        """How many times cells with this number of ones keep: int64, in the shape of ``n``.

        Raises:
            ValueError: a number that is negative or not below :data:`LIMIT`.
        """
        counts = np.empty(n.size, np.int64)
        _native.kept(np.ascontiguousarray(n).ravel(), layer.slots, kind == "eh", counts)
        return counts.reshape(n.shape)

    def kept(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The kept ranks and times, newest first in each cell.

        Returns:
            (ranks int64[r], times int64[r], offsets int64[cells + 1]), read-only. Those for cell
            ``row * width + column`` begin at its offset. O(cells slots log n), once an update.
        """
        lists = self._listed()
        return lists.ranks, lists.times, lists.offsets

    def _listed(self) -> _native.Lists:
        if self._lists is None:
            count = int(self.kept_counts(self.layer, self.kind, self._n).sum())
            ranks, times = np.empty((2, count), np.int64)
            offsets = np.empty(self.layer.cells + 1, np.int64)
            _native.write(self._counters, ranks, times, offsets)
            for column in (ranks, times, offsets):
                column.setflags(write=False)
            self._lists = _native.Lists(ranks, times, offsets)
        return self._lists

    @classmethod
    def restore(
        cls, layer: Layer, kind: Kind, seed: int, n: Int64Array, times: Int64Array,
        first: int | None, clock: int | None,
    ) -> Self:  # fmt: skip
        """Build cells that keep these times: the inverse of :meth:`kept`. The ranks follow from
        ``n``.

        Args:
            layer, kind, seed: as in the cells.
            n: int64[depth, width], ones per cell.
            times: int64[r], for all cells, newest first in each.
            first, clock: times of the first and the last event, None if there is none.

        Raises:
            ValueError: numbers that are negative, too large, or have different sums per row;
                another number of times than such cells keep; times that are out of order, before
                ``first`` or after ``clock``.
        """
        cells = cls(layer, kind, seed)
        if n.shape != (layer.depth, layer.width):
            raise ValueError(f"n has shape {n.shape}; expected {(layer.depth, layer.width)}")
        counts = cls.kept_counts(layer, kind, n)
        sums = [_native.total(row) for row in np.ascontiguousarray(n)]
        if min(sums) != max(sums) or sums[0] >= LIMIT:
            raise ValueError(
                f"rows count from {min(sums)} to {max(sums)} ones; expected one number below 2^62"
            )
        if int(counts.sum()) != len(times):
            raise ValueError(f"{len(times)} times; cells of these n keep {int(counts.sum())}")
        if sums[0] == 0:
            return cells
        if first is None or clock is None or first > clock:
            raise ValueError(f"{sums[0]} ones from {first} to {clock}")
        cells._n[:] = n.ravel()
        cells._most = int(n.max())
        cells._make_room(cells._most)
        cells._reach(first, clock)
        cells.first, cells.clock, cells.seen = first, clock, sums[0]
        if not _native.restore(cells._counters, times, counts.ravel(), first, clock):
            raise ValueError(f"times of a cell rise, or are not from {first} to {clock}")
        return cells


def _room(kind: Kind, levels: int, slots: int) -> int:
    """The maximum number of ones in a cell that needs no more than this number of levels."""
    return min(LIMIT, (1 << levels) - 1 if kind == "wave" else (slots << levels) - slots)


def compact(cells: Sequence[Cells], slots: int, steps: int = 0) -> Cells:
    """Build one layer of cells from several: order-preserving aggregation (section 5.1).

    The result's counts are within ``(1 + merge_error) (1 + cell_error) - 1`` of the truth, with
    :func:`~decaysketch.ecm.sizing.merge_error` for the slots of the cells and
    :func:`~decaysketch.ecm.sizing.cell_error` for its own. The cells' own errors are
    included. It is symmetric in the cells, and any number of cells adds one level of errors. So
    merging once is better than merging pairwise. Adding the cells' grids adds no error at all.

    Args:
        cells: at least one, alike except for slots.
        slots: slots of the result.
        steps: 0 for the paper's two ends of each gap, or the number of times over which a gap's
            free ones are spread. 8 makes hierarchies with several levels better, at the same factor
            in cost.

    Returns:
        Cells that can count further. O(kept log(number of cells)) for each one.

    Raises:
        ValueError: no cells; different layers, kinds or seeds; more ones than :data:`LIMIT`.
    """
    if not cells:
        raise ValueError("no cells to compact")
    shapes = [(each.layer._replace(slots=0), each.kind, each.seed) for each in cells]
    for shape in shapes:
        if shape != shapes[0]:
            raise ValueError(f"cells of {shape} and of {shapes[0]}")
    layer, kind, seed = cells[0].layer._replace(slots=slots), cells[0].kind, cells[0].seed
    seen = sum(each.seen for each in cells)
    if seen >= LIMIT:
        raise ValueError(f"cells counted {seen} together; expected less than 2^62 = {LIMIT}")
    whole = Cells(layer, kind, seed)
    live = [each for each in cells if each.first is not None and each.clock is not None]
    if not live:
        return whole
    first = min(each.first for each in live if each.first is not None)
    clock = max(each.clock for each in live if each.clock is not None)
    for each in live:
        whole._n += each._n
    whole._most = int(whole._n.max())
    whole._make_room(whole._most)
    whole._reach(first, clock)
    whole.first, whole.clock, whole.seen = first, clock, seen
    _native.compact(
        whole._counters,
        [
            (each._n, each._listed(), each.first, _inaccuracy(kind, each.layer.slots))
            for each in live
        ],
        steps,
    )
    return whole


def _inaccuracy(kind: Kind, slots: int) -> int:
    """1 over :func:`~decaysketch.ecm.sizing.merge_error`, an integer."""
    return 2 * slots if kind == "wave" else slots + 1
