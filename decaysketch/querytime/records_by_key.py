"""Rows with columns for many sketches, stored as one bag.

A row's columns form a *payload*, value keys side by side. The row's value is its payload number.
First come the rows that the last compaction kept, then new rows. Kernels
permute rows. After a compaction the payloads that are left are gathered once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import SketchParams
from decaysketch.core.records import Record, Records
from decaysketch.core.text_numbers import TextNumbers
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime._rows_by_key_native import Payloads
from decaysketch.querytime.rows_by_key import RowsByKey, _no_records, _padded

__all__ = ["RecordsByKey"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_VALUE = 1  # a record's field with its value
_SPARE_TEXTS = 1_000  # texts without a row, before they are swept


class RecordsByKey(RowsByKey):
    """Rows with columns and watermarks for many keys, numbered from 0.

    Args:
        params: shared parameters. Stratum columns belong to no row.
        limit: see :class:`RowsByKey`.
    """

    def __init__(self, params: SketchParams, limit: int | None = None) -> None:
        super().__init__(params, limit, records=True)
        self.types = params.own_columns
        self._texts = [TextNumbers() if kind == "text" else None for _, kind in self.types]
        self._payloads = np.empty((0, len(self.types)), np.int64)
        self._source: tuple[Sequence[Int64Array], Sequence[Int64Array | None]] = ((), ())

    @property
    def nbytes(self) -> int:
        """Memory bytes at the peak of the next compaction."""
        texts = sum(each.nbytes for each in self._texts if each is not None)
        return super().nbytes + 2 * self._payloads.nbytes + texts

    def unknown_texts(self, column: int, texts: Sequence[str]) -> tuple[int, int]:
        """Return how many texts a column stores, and how many of the given ones are new."""
        known = self._texts[column]
        assert known is not None
        return len(known), known.unknown(texts)

    # ------------------------------------------------------------------------------------ input

    def add_records(
        self, keys: int, codes: Int32Array, own: Records | None, weights: Int64Array,
        times: Int64Array, ids: Int64Array,
    ) -> None:  # fmt: skip
        """Store validated rows.

        Args:
            keys: the current key count.
            codes: the key number for each row.
            own: the rows' columns without stratum columns. None: there are none.
            weights, times, ids: arguments of a sketch's update.
        """
        columns = () if own is None else own.columns
        maps = [
            None if known is None else known.numbered(column.texts)
            for known, column in zip(self._texts, columns, strict=True)
        ]
        self._source = [column.keys for column in columns], maps
        numbers = np.arange(len(codes), dtype=np.int64)
        self.add(keys, codes, numbers, weights, times, ids)
        self._source = (), ()

    def _take(
        self, codes: Int32Array, values: Int64Array, weights: Int64Array, times: Int64Array,
        ids: Int64Array,
    ) -> None:  # fmt: skip
        first = self._came
        super()._take(codes, values, weights, times, ids)
        came = self._incoming[first : self._came]
        start = len(self._kept.records) + first
        stop = start + len(came)
        self._reserve(stop)
        rows = came[:, _VALUE].copy()
        for number, (keys, texts) in enumerate(zip(*self._source, strict=True)):
            found = keys[rows]
            if texts is not None:
                found = np.append(texts, MISSING_KEY)[np.maximum(found, -1)]
            self._payloads[start:stop, number] = found
        came[:, _VALUE] = np.arange(start, stop)

    def _reserve(self, room: int) -> None:
        if room > len(self._payloads):
            used = len(self._kept.records) + self._came
            grown = np.empty((max(room, min(2 * room, self._limit())), len(self.types)), np.int64)
            grown[: min(used, len(self._payloads))] = self._payloads[:used]
            self._payloads = grown

    def raise_marks_of(self, keys: Int64Array, offsets: Int64Array, marks: Int64Array) -> None:
        """Raise the watermarks for some keys, before rows from other sketches are added.

        Args:
            keys: distinct key numbers, all below the current key count.
            offsets: int64[keys + 1] into the watermarks.
            marks: the set watermarks, from level 0 up.
        """
        if not len(marks):
            return
        kept = self._kept
        kept = kept._replace(
            offsets=_padded(kept.offsets, self._keys + 1),
            mark_offsets=_padded(kept.mark_offsets, self._keys + 1),
        )
        some = np.flatnonzero(np.diff(offsets))
        keys, theirs = keys[some], self._dense(offsets, marks, some)
        ours = self._dense(kept.mark_offsets, kept.marks, keys)
        joined = np.maximum(ours, theirs)
        raised = (joined != ours).any(axis=1)
        keys, joined = keys[raised], joined[raised]
        if not len(keys):
            return
        self._kept = kept._replace(**_replaced_marks(kept, keys, joined))
        self._turns_away = True
        # A key without new rows is not built again, so add one of its rows a second time.
        touched = keys[kept.offsets[keys + 1] > kept.offsets[keys]]
        self._append(kept.records[kept.offsets[touched]])

    def expect_keys(self, keys: int) -> None:
        """Set the current key count."""
        self._keys = keys

    def _dense(self, offsets: Int64Array, marks: Int64Array, keys: npt.NDArray[Any]) -> Int64Array:
        counts = np.diff(offsets)[keys]
        found = np.full((len(keys), self.params.levels + 1), NO_WATERMARK, np.int64)
        inside = np.arange(found.shape[1]) < counts[:, None]
        places = offsets[:-1][keys][:, None] + np.arange(found.shape[1])
        found[inside] = marks[places[inside]]
        return found

    def _append(self, records: Int64Array) -> None:
        needed = self._came + len(records)
        if needed > len(self._incoming):
            grown = _no_records(max(needed, 2 * len(self._incoming)))
            grown[: self._came] = self._incoming[: self._came]
            self._incoming = grown
        self._incoming[self._came : needed] = records
        self._came = needed

    # ------------------------------------------------------------------------------- compaction

    def _build(self, *arguments: Any) -> None:
        *_, after, _replaced = arguments
        ranks = [None if each is None else each.ranks() for each in self._texts]
        self._kernels.build(*arguments, payloads=Payloads(self._payloads, ranks))  # type: ignore[misc]
        left = after.records[: after.offsets[-1]]
        self._payloads = self._payloads[left[:, _VALUE]]
        left[:, _VALUE] = np.arange(len(left))

    def sweep(self) -> None:
        """Drop the texts that no row has, once they may be many. Call it between batches."""
        for number, known in enumerate(self._texts):
            if known is None or len(known) <= 2 * self.rows + _SPARE_TEXTS:
                continue
            self.compact()
            keys = self._payloads[: len(self._kept.records), number]
            used = np.unique(keys[keys >= 0])
            renumbered = np.append(known.keep(used), MISSING_KEY)
            keys[:] = renumbered[np.maximum(keys, -1)]

    # ------------------------------------------------------------------------------------ state

    def own_records(self) -> Records | None:
        """Return the rows' columns after a compaction, in value order."""
        if not self.types:
            return None
        rows = len(self._kept.records)
        return Records(
            self.types,
            tuple(
                Record(
                    np.ascontiguousarray(self._payloads[:rows, number]),
                    () if known is None else known.texts,
                )
                for number, known in enumerate(self._texts)
            ),
        )


def _replaced_marks(kept: Any, keys: Int64Array, joined: Int64Array) -> dict[str, Int64Array]:
    """Return the watermarks for all keys, replaced for some keys."""
    there = joined != NO_WATERMARK
    counts = np.diff(kept.mark_offsets)
    old = counts.copy()
    counts[keys] = there.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    marks = np.empty(int(offsets[-1]), np.int64)
    replaced = np.zeros(len(counts), np.bool_)
    replaced[keys] = True
    marks[~np.repeat(replaced, counts)] = kept.marks[~np.repeat(replaced, old)]
    order = np.argsort(keys)
    marks[np.repeat(replaced, counts)] = joined[order][there[order]]
    return {"mark_offsets": offsets, "marks": marks}
