"""The rows of many sketches at once, held as one bag: what a key costs is its rows.

A ``DecaySketch`` for each key is right where keys are few. Here the rows of all keys lie together,
those that came in beside those that the last compaction kept, and are compacted together once they
are a few times as many. What is not later than the watermarks of its sketch is turned away before.
Laziness changes no state: whoever reads compacts first.

A key with ten rows takes some 500 bytes; working memory of a compaction is about 150 bytes a row.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.minhit import plan
from decaysketch.querytime import _rows_by_key_kernels as _kernels
from decaysketch.querytime.many import ManySketches
from decaysketch.querytime.state import SketchState

__all__ = ["BYTES_OF_A_ROW", "RowsByKey", "state_of"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

BYTES_OF_A_ROW = 160  # of the bag, at the height of a compaction
_BAG_FACTOR = 3  # rows held for each that the last compaction kept
_SMALLEST_LIMIT = 1 << 21
# The first time the bag is compacted earlier, since no row is turned away before, as long as that
# discards much.
_FIRST_LIMIT = 1 << 19
_FILL_FACTOR = 3  # rows held for each of the capacity of all sketches
# Rows in the order of time are all later than every watermark: where fewer are turned away, nobody
# looks again until the next compaction.
_WORTH_LOOKING = 0.75
_ROWS_AT_A_TIME = 1 << 22
_LARGEST_LIMIT = 1 << 25  # a row number has to fit the kernels' words

_SALT = np.uint64(secrets.randbits(64) | 1)  # keys tables that are fed from the network


class _Chunk(NamedTuple):
    codes: Int32Array
    values: Int64Array
    weights: Int64Array
    times: Int64Array
    ids: Int64Array
    levels: npt.NDArray[np.int8]  # empty: not known

    def each(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> _Chunk:
        """Of every column something else."""
        columns: tuple[npt.NDArray[Any], ...] = self
        return _Chunk(*map(change, columns))


def _read_only(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One kernel signature, whoever owns the memory."""
    view = np.ascontiguousarray(column).view()
    view.setflags(write=False)
    return view


_NO_LEVELS = np.empty(0, np.int8)


class RowsByKey:
    """Rows and watermarks of many keys, numbered from 0, under one hash function.

    Args:
        params: parameters of every sketch; of one copy.
        limit: rows at which the bag is compacted, where it holds few; None: two millions.
    """

    def __init__(self, params: SketchParams, limit: int | None = None) -> None:
        self.params = params
        p = plan(params)
        self._hash = (p.id_bits, p.mix, p.start_multiplier, p.offset, p.prime, p.top, p.steps)
        self._smallest_limit = min(limit or _SMALLEST_LIMIT, _SMALLEST_LIMIT)
        self._chunks: list[_Chunk] = []
        self._incoming = 0
        self._turns_away = False  # whether to look for rows that are not later than a watermark
        self._kept = np.empty((0, _kernels.FIELDS), np.int64)  # records, key by key
        self._spare = np.empty((0, _kernels.FIELDS), np.int64)  # memory for the next compaction
        self._offsets = np.zeros(1, np.int64)
        self._mark_offsets = np.zeros(1, np.int64)
        self._marks = np.empty(0, np.int64)
        self._keys = 0

    @property
    def rows(self) -> int:
        """Rows held, superfluous ones included."""
        return len(self._kept) + self._incoming

    def add(
        self,
        keys: int,
        codes: Int32Array,
        values: Int64Array,
        weights: Int64Array,
        times: Int64Array,
        ids: Int64Array,
    ) -> None:
        """Take validated rows; the arrays are kept, and must not change afterwards.

        Args:
            keys: how many keys there are by now.
            codes: the number of the key of each row.
            values: value keys; see :mod:`decaysketch.core.observations`.
            weights, times, ids: as of a sketch's update.
        """
        self._keys = keys
        if len(codes) > _ROWS_AT_A_TIME:  # so that the rows of no key exceed ``MAX_ROWS``
            for first in range(0, len(codes), _ROWS_AT_A_TIME):
                part = slice(first, first + _ROWS_AT_A_TIME)
                self.add(keys, codes[part], values[part], weights[part], times[part], ids[part])
            return
        if not len(codes):
            return
        chunk = _Chunk(codes, values, weights, times, ids, _NO_LEVELS).each(_read_only)
        taken = len(codes)
        if self._turns_away:
            chunk, taken = self._admitted(chunk)
        self._chunks.append(chunk)
        self._incoming += taken
        if self.rows > self._limit():
            self.compact()

    def _admitted(self, chunk: _Chunk) -> tuple[_Chunk, int]:
        """Without the rows that are not later than the watermarks of the last compaction; and how
        many are left."""
        levels = np.empty(len(chunk.codes), np.int8)
        taken = _kernels.find_levels(
            chunk.codes, chunk.weights, chunk.times, chunk.ids, *self._hash, self._mark_offsets,
            self._marks, levels,
        )  # fmt: skip
        chunk = chunk._replace(levels=levels)
        self._turns_away = taken <= _WORTH_LOOKING * len(levels)
        if 2 * taken < len(levels):
            rows = np.flatnonzero(levels != _kernels.TURNED_AWAY)
            chunk = chunk.each(lambda column: column[rows])
        return chunk.each(_read_only), taken

    def _limit(self) -> int:
        smallest = self._smallest_limit
        if not len(self._marks):
            full = _FILL_FACTOR * self.params.capacity * self._keys
            smallest = min(max(_FIRST_LIMIT, full), smallest)
        return min(max(smallest, _BAG_FACTOR * len(self._kept)), _LARGEST_LIMIT)

    def raise_marks(self, offsets: Int64Array, marks: Int64Array) -> None:
        """Start with the watermarks of sketches whose rows are added; first of all.

        Args:
            offsets: int64[keys + 1].
            marks: those that are set, of each key, from level 0 up.
        """
        self._keys = len(offsets) - 1
        self._mark_offsets, self._marks = offsets, marks
        self._turns_away = bool(len(marks))

    def compact(self) -> None:
        """Bring every key to its state. O(rows held + keys)."""
        if len(self._offsets) == self._keys + 1 and not self._chunks:
            return
        self._offsets = _padded(self._offsets, self._keys + 1)
        self._mark_offsets = _padded(self._mark_offsets, self._keys + 1)
        if not self._chunks:
            return
        shift = 0
        while self._keys - 1 >> shift >= _kernels.MAX_PARTITIONS:
            shift += 1
        counts = np.zeros((self._keys - 1 >> shift) + 1, np.int64)
        for chunk in self._chunks:
            _kernels.count_partitions(chunk.codes, chunk.weights, chunk.levels, shift, counts)
        _kernels.count_record_partitions(self._kept, shift, counts)
        partitions = np.concatenate([[0], np.cumsum(counts)])
        positions = partitions[:-1].copy()
        records = self._records(int(partitions[-1]))
        _kernels.scatter_records(self._kept, shift, positions, records)
        largest = np.diff(self._offsets)
        self._kept = records[:0]
        while self._chunks:
            chunk = self._chunks.pop()
            _kernels.scatter(*chunk, shift, positions, records)
            largest += np.bincount(chunk.codes, minlength=self._keys)
        self._incoming = 0
        largest_key = int(largest.max(initial=0))
        levels = self.params.levels + 1
        overflowing = int((largest > self.params.capacity).sum())
        before = int((np.diff(self._mark_offsets) > 0).sum())
        marks = np.empty(min(self._keys, overflowing + before) * levels, np.int64)
        offsets, mark_offsets = (np.empty(self._keys + 1, np.int64) for _ in range(2))
        kept = _kernels.build(
            records, partitions, shift, self._keys, self.params.capacity, self.params.max_weight,
            *self._hash, self._mark_offsets, self._marks, _SALT, int(counts.max(initial=0)),
            largest_key, offsets, mark_offsets, marks,
        )  # fmt: skip
        if 2 * kept > len(records):
            self._kept = records[:kept]
        else:
            self._kept, self._spare = records[:kept].copy(), records
        self._offsets, self._mark_offsets = offsets, mark_offsets
        self._marks = marks[: mark_offsets[-1]].copy()
        self._turns_away = bool(len(self._marks))

    def _records(self, rows: int) -> Int64Array:
        """Memory that is there already: the system takes as long to give it as filling it takes."""
        spare, self._spare = self._spare, np.empty((0, _kernels.FIELDS), np.int64)
        if len(spare) < rows:
            return np.empty((rows, _kernels.FIELDS), np.int64)
        return spare[:rows]

    def sketches(self, start: int, stop: int) -> ManySketches:
        """Canonical states of the keys numbered ``start`` to ``stop - 1``; see :meth:`compact`."""
        self.compact()
        offsets = self._offsets[start : stop + 1]
        mark_offsets = self._mark_offsets[start : stop + 1]
        records = self._kept[offsets[0] : offsets[-1]]
        marks = self._marks[mark_offsets[0] : mark_offsets[-1]]
        offsets, mark_offsets = offsets - offsets[0], mark_offsets - mark_offsets[0]
        times, ids, weights, values = (np.empty(len(records), np.int64) for _ in range(4))
        largest = int(np.diff(offsets).max(initial=0))
        _kernels.canonical_rows(
            records, offsets, self.params.max_weight, largest, times, ids, weights, values
        )
        return ManySketches(offsets, times, ids, weights, values, mark_offsets, marks)

    def ranges(self, rows: int, keys: int) -> list[tuple[int, int]]:
        """Ranges of key numbers that hold about so many rows, or keys, at most; see ``compact``."""
        self.compact()
        found, start = [], 0
        while start < self._keys:
            stop = int(np.searchsorted(self._offsets, self._offsets[start] + rows, side="right"))
            stop = max(start + 1, min(stop - 1, start + keys, self._keys))
            found.append((start, stop))
            start = stop
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of memory, at the height of the next compaction."""
        per_key = self._keys * 16
        return self.rows * BYTES_OF_A_ROW + self._marks.nbytes + per_key


def _padded(offsets: Int64Array, length: int) -> Int64Array:
    padded = np.full(length, offsets[-1], np.int64)
    padded[: len(offsets)] = offsets
    return padded


def state_of(params: SketchParams, sketches: ManySketches, number: int) -> SketchState:
    """The canonical state of one of the sketches."""
    rows = slice(*sketches.offsets[number : number + 2])
    marks = sketches.marks[slice(*sketches.mark_offsets[number : number + 2])]
    watermarks = np.full(params.levels + 1, NO_WATERMARK, dtype=np.int64)
    watermarks[: len(marks)] = marks
    values, weights, times, ids = (
        column[rows].copy()
        for column in (sketches.value_keys, sketches.weights, sketches.times, sketches.ids)
    )
    levels = minhit.top_levels(params, ids, weights, copy=0)
    return SketchState(params, values, weights, times, ids, levels, watermarks)
