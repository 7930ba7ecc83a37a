"""The rows for many sketches at once, stored as one bag. A key costs only its rows.

A ``DecaySketch`` for each key is suitable for few keys. Here the rows for all keys are stored
together: the new rows, next to the rows that the last compaction kept. They are compacted together
once the new ones are a few times as many. Rows not later than their sketch's watermarks are dropped
first. Deferred compaction changes no state, because every reader compacts first.

A key with ten rows takes some 350 bytes. With the working memory for compactions, a row takes about
130.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.duplicates import far_apart
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.minhit import plan
from decaysketch.querytime._rows_by_key_native import RECORD_FIELDS, ByKey
from decaysketch.querytime._rows_by_key_native import count as count_records
from decaysketch.querytime._rows_by_key_native import scatter as scatter_records
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
# Rows in time order are all later than every watermark. If a check drops few rows, the next check
# waits for the next compaction.
_WORTH_LOOKING = 0.75
_ROWS_AT_A_TIME = 1 << 22
_LARGEST_LIMIT = 1 << 25  # a row number has to fit the kernels' words

_MAX_PARTITIONS = 512

_SALT = secrets.randbits(64) | 1  # keys tables that are fed from the network


class _States(NamedTuple):
    """States of keys after compaction. Key ``k`` has the records ``offsets[k]`` to ``offsets[k +
    1]``, and the watermarks that are set, from level 0 up.
    """

    records: Int64Array  # [rows, RECORD_FIELDS], which the kernels alone read
    offsets: Int64Array
    mark_offsets: Int64Array
    marks: Int64Array


def _no_records(rows: int) -> Int64Array:
    return np.empty((rows, RECORD_FIELDS), np.int64)


class RowsByKey:
    """Rows and watermarks for many keys, numbered from 0, under one hash function.

    Args:
        params: parameters of every sketch, with one repetition.
        limit: rows at which a bag with few rows is compacted. None: two millions.
        records: whether rows have columns. See :mod:`~decaysketch.querytime.records_by_key`.
    """

    def __init__(
        self, params: SketchParams, limit: int | None = None, *, records: bool = False
    ) -> None:
        self.params = params
        self._kernels = ByKey(
            plan(params).native,
            max_weight=params.max_weight,
            capacity=params.capacity,
            levels=params.levels + 1,
            salt=_SALT,
            far=far_apart(params.time_unit),
            records=records,
        )
        self._smallest_limit = min(limit or _SMALLEST_LIMIT, _SMALLEST_LIMIT)
        self._incoming = _no_records(0)  # with room for more than there are
        self._came = 0
        self._turns_away = False  # whether to look for rows that are not later than a watermark
        none, start = np.empty(0, np.int64), np.zeros(1, np.int64)
        self._kept = _States(_no_records(0), start, start, none)
        self._spare = _no_records(0)  # memory for the next states: touching new memory is dear
        self._sorted = _no_records(0)  # and for records that came, by partitions
        self._keys = 0
        self._replaced = np.zeros(0, np.int64)

    @property
    def rows(self) -> int:
        """Stored rows, including superfluous ones."""
        return len(self._kept.records) + self._came

    def add(
        self,
        keys: int,
        codes: Int32Array,
        values: Int64Array,
        weights: Int64Array,
        times: Int64Array,
        ids: Int64Array,
    ) -> None:
        """Store validated rows.

        Args:
            keys: the current number of keys.
            codes: the key number for each row.
            values: value keys, see :mod:`decaysketch.core.observations`.
            weights, times, ids: the arguments of a sketch's update.
        """
        self._keys = keys
        for first in range(0, len(codes), _ROWS_AT_A_TIME):
            rows = slice(first, first + _ROWS_AT_A_TIME)
            self._take(codes[rows], values[rows], weights[rows], times[rows], ids[rows])
            if self.rows > self._limit():
                self.compact()

    def _take(
        self,
        codes: Int32Array,
        values: Int64Array,
        weights: Int64Array,
        times: Int64Array,
        ids: Int64Array,
    ) -> None:
        needed = self._came + len(codes)
        if needed > len(self._incoming):
            grown = _no_records(max(needed, min(2 * len(self._incoming), self._limit())))
            grown[: self._came] = self._incoming[: self._came]
            self._incoming = grown
        look = self._kept if self._turns_away else None
        values, weights, times, ids = map(np.ascontiguousarray, (values, weights, times, ids))
        free = self._incoming[self._came :]
        taken = self._kernels.take(codes, values, weights, times, ids, free, look)
        self._came += taken
        if self._turns_away:
            self._turns_away = taken <= _WORTH_LOOKING * len(codes)

    def _limit(self) -> int:
        smallest = self._smallest_limit
        if not len(self._kept.marks):
            full = _FILL_FACTOR * self.params.capacity * self._keys
            smallest = min(max(_FIRST_LIMIT, full), smallest)
        return min(max(smallest, _BAG_FACTOR * len(self._kept.records)), _LARGEST_LIMIT)

    def raise_marks(self, offsets: Int64Array, marks: Int64Array) -> None:
        """Start with the watermarks of sketches whose rows are added. Call it before all other
        methods.

        Args:
            offsets: int64[keys + 1].
            marks: the set watermarks of each key, from level 0 up.
        """
        self._keys = len(offsets) - 1
        self._kept = _States(_no_records(0), np.zeros_like(offsets), offsets, marks)
        self._turns_away = bool(len(marks))

    def compact(self) -> None:
        """Bring every key to its state. O(rows stored + keys)."""
        if len(self._kept.offsets) == self._keys + 1 and not self._came:
            return
        self._replaced = self.replaced
        before = self._kept._replace(
            offsets=_padded(self._kept.offsets, self._keys + 1),
            mark_offsets=_padded(self._kept.mark_offsets, self._keys + 1),
        )
        self._kept = before
        if not self._came:
            return
        shift = 0
        while self._keys - 1 >> shift >= _MAX_PARTITIONS:
            shift += 1
        count = (self._keys - 1 >> shift) + 1
        incoming, partitions = self._by_partition(shift, count)
        ends = before.offsets[np.minimum(np.arange(count + 1) << shift, self._keys)]
        largest = int((np.diff(partitions) + np.diff(ends)).max())
        rows = self.rows
        marked = int((np.diff(before.mark_offsets) > 0).sum())
        marked = min(self._keys, marked + rows // (self.params.capacity + 1))
        offsets, mark_offsets = np.empty((2, self._keys + 1), np.int64)
        marks = np.empty(marked * (self.params.levels + 1), np.int64)
        records, self._spare = self._spare, _no_records(0)
        if len(records) < rows:
            records = _no_records(rows)
        after = _States(records, offsets, mark_offsets, marks)
        self._build(before, incoming, partitions, shift, largest, after, self._replaced)
        self._came = 0
        self._spare = before.records if before.records.base is None else before.records.base
        self._kept = after._replace(
            records=records[: offsets[-1]], marks=marks[: mark_offsets[-1]].copy()
        )
        self._turns_away = bool(len(self._kept.marks))

    def _build(self, *arguments: Any) -> None:
        """Bring every key to its state. See ``ByKey.build``."""
        self._kernels.build(*arguments)

    def _by_partition(self, shift: int, count: int) -> tuple[Int64Array, Int64Array]:
        """Return the new records, in partitions by their keys, and each partition's start."""
        came = self._incoming[: self._came]
        if count == 1:
            return came, np.array([0, len(came)], np.int64)
        counts = np.zeros(count, np.int64)
        count_records(came, shift, counts)
        partitions = np.concatenate([[0], np.cumsum(counts)])
        if len(self._sorted) < len(came):
            self._sorted = _no_records(len(self._incoming))
        scatter_records(came, shift, partitions[:-1].copy(), self._sorted)
        return self._sorted, partitions

    def sketches(self, start: int, stop: int) -> ManySketches:
        """Return canonical states for the keys ``start`` to ``stop - 1``. See :meth:`compact`."""
        self.compact()
        offsets = self._kept.offsets[start : stop + 1]
        mark_offsets = self._kept.mark_offsets[start : stop + 1]
        records = self._kept.records[offsets[0] : offsets[-1]]
        marks = self._kept.marks[mark_offsets[0] : mark_offsets[-1]]
        chosen = _States(records, offsets - offsets[0], mark_offsets - mark_offsets[0], marks)
        times, ids, weights, values = (np.empty(len(records), np.int64) for _ in range(4))
        largest = int(np.diff(offsets).max(initial=0))
        self._kernels.write(chosen, largest, times, ids, weights, values)
        return ManySketches(chosen.offsets, times, ids, weights, values, chosen.mark_offsets, marks)

    def ranges(self, rows: int, keys: int) -> list[tuple[int, int]]:
        """Return key number ranges with about this maximum of rows, or keys. See ``compact``."""
        self.compact()
        found, start = [], 0
        while start < self._keys:
            stop = int(
                np.searchsorted(self._kept.offsets, self._kept.offsets[start] + rows, side="right")
            )
            stop = max(start + 1, min(stop - 1, start + keys, self._keys))
            found.append((start, stop))
            start = stop
        return found

    @property
    def replaced(self) -> Int64Array:
        """int64[keys]: readings that a later reading with their id replaced, far away in time, in
        the compactions so far. See :mod:`decaysketch.core.duplicates`.
        """
        counts = np.zeros(self._keys, np.int64)
        counts[: len(self._replaced)] = self._replaced
        return counts

    @property
    def nbytes(self) -> int:
        """Bytes of memory at the peak of the next compaction."""
        per_key = self._keys * 24
        return self.rows * BYTES_OF_A_ROW + self._kept.marks.nbytes + per_key


def _padded(offsets: Int64Array, length: int) -> Int64Array:
    padded = np.full(length, offsets[-1], np.int64)
    padded[: len(offsets)] = offsets
    return padded


def state_of(params: SketchParams, sketches: ManySketches, number: int) -> SketchState:
    """Return one sketch's canonical state."""
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
