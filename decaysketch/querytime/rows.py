"""The rows that a sketch stores between batches: a bag (``core/bags.py``) of observations.

Rows that the last compaction kept may be in canonical order, not only in time order. Then a few
new rows are merged into them, and all are in order again. Kernels and memory are native
(``rows.c``). This module handles complete sketches.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import islice, repeat
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.bags import MAX_ROWS, roomy
from decaysketch.core.duplicates import far_apart
from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT, Observations
from decaysketch.core.params import SketchParams
from decaysketch.core.records import MAX_TEXTS, Record, Records, with_used_texts
from decaysketch.core.row_check import Batch, Compared, Identified, Verdict, VerdictArray
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.minhit import plan
from decaysketch.querytime._native import RecordRows, Rows, release_scratch
from decaysketch.querytime.state import SketchState
from decaysketch.querytime.strata_rows import RetainedStrata
from decaysketch.querytime.strata_state import StrataState

__all__ = [
    "Retained",
    "RetainedRecords",
    "RetainedRows",
    "columns_of",
    "compared_in_place",
    "most_favourable",
    "release_scratch",
    "rows_like",
    "rows_of",
    "weighted_rows",
]

_FACTOR = 4  # a larger bag compacts less often, a smaller one stays in the cache
_SMALLEST_LIMIT = 16_384  # rows; a bag of fewer is not compacted to make room
_MERGE_LIMIT = 1 << 18  # rows gathered from many sketches before they are compacted together
_RECORDS_AT_ONCE = 1 << 14  # rows with columns that are admitted before the next compaction
_SPARE_TEXTS = 1_000  # texts without a row, before they are swept
_BYTES_BESIDE_TEXT = 100  # of memory that a text takes in addition to its object

Int64Array = npt.NDArray[np.int64]
Columns = tuple[Int64Array, Int64Array, Int64Array, Int64Array, npt.NDArray[np.int8]]

# Keys the identity table; drawn for each process because the table is fed from the network.
_TABLE_SALT = secrets.randbits(64) | 1


def columns_of(state: SketchState, levels: npt.NDArray[np.int8] | None = None) -> Columns:
    """Return a state's columns, or with other levels, in the form that kernels take."""
    levels = state.levels if levels is None else levels
    return state.value_keys, state.weights, state.times, state.ids, levels


class _Retained(Rows):
    """Rows and watermarks under one hash function. Not safe to use from two threads at once.

    Args:
        params: parameters of the sketch.
        copy: number of the hash function.
    """

    clock = NO_WATERMARK  # there is none

    @staticmethod
    def _more(params: SketchParams) -> dict[str, Any]:
        """Return more arguments for the native rows."""
        return {}

    def __init__(self, params: SketchParams, copy: int = 0) -> None:
        super().__init__(
            plan(params, copy).native,
            max_weight=params.max_weight,
            id_bits=params.id_bits,
            time_limit=TIME_LIMIT,
            floats=params.value_type == "float64",
            capacity=params.capacity,
            levels=params.levels + 1,
            salt=_TABLE_SALT,
            factor=_FACTOR,
            smallest_limit=_SMALLEST_LIMIT,
            far=far_apart(params.time_unit),
            **self._more(params),
        )
        self.params, self.copy = params, copy

    @classmethod
    def from_state(cls, state: SketchState) -> Self:
        """Return rows that contain exactly a canonical state."""
        rows = cls(state.params, state.copy)
        rows.reserve(len(state))
        rows.raise_marks(state.watermarks)
        rows._append_state(state, settled=True)
        return rows

    def _append_state(self, state: SketchState, *, settled: bool = False) -> None:
        self.append_columns(*columns_of(state), settled=settled)

    def state(self) -> SketchState:
        """Return a copy of the canonical state. O(rows)."""
        return SketchState(self.params, *self.columns(), self.watermarks, self.copy)

    def trim(self) -> None:
        """Compact, and release unused memory. O(rows) if there is any."""
        self.shrink(roomy(len(self)))

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity. The result equals a sketch built with it."""
        self.params = self.params.with_capacity(capacity)
        self.set_capacity(capacity)

    def absorb(self, others: Iterable[RetainedRows | SketchState]) -> None:
        """Add the rows in other bags or states, and take the higher watermark for each level.

        The joined watermarks are correct before the first row is checked. A row not later than its
        level's watermark in any of the sketches is not in their merged state.
        """
        given = [(other, len(other)) for other in others]  # compacts
        for other, _ in given:
            self.raise_marks(other.watermarks)
        incoming = sum(rows for _, rows in given)
        for other, rows in given:
            if self.gathered + rows > self._merge_limit():
                self.compact()
            self._make_room_to_append(rows, incoming)
            if isinstance(other, SketchState):
                self._append_state(other)
            else:
                self.append(other)
            incoming -= rows

    def _make_room_to_append(self, rows: int, incoming: int) -> None:
        """Reserve memory for this number of rows, at most for all new rows.

        Raises:
            ParameterError: more rows than kernels can number.
        """
        together = self.gathered + rows
        if together > MAX_ROWS:
            raise ParameterError(
                f"merging takes {together} rows at once; expected at most {MAX_ROWS}: use a "
                "smaller capacity"
            )
        if together > self.room:
            most = max(self._merge_limit(), together)
            self.reserve(min(max(self.gathered + incoming, 2 * self.room), most, MAX_ROWS))

    def _merge_limit(self) -> int:
        """Row count at which the bag is compacted before another one is appended to it."""
        return max(_MERGE_LIMIT, _FACTOR * self.kept)


class RetainedRows(_Retained):
    """Rows that have one value."""


class RetainedRecords(_Retained, RecordRows):
    """Rows with columns.

    Each text column has its own dictionary: number by text. Numbers never enter a state or bytes.
    Once many texts have no row, compaction drops them and numbers the others again. Texts are
    ordered once, when they are new to a compaction, and a state only drops those without a row.
    """

    def __init__(self, params: SketchParams, copy: int = 0) -> None:
        self._texts: list[dict[str, int] | None] = [
            {} if kind == "text" else None for _, kind in params.columns
        ]
        self._ranked = [0] * len(params.columns)  # texts that have a rank
        self._rising: list[tuple[str, ...]] = [()] * len(params.columns)  # these, by rank
        self._measured = [(0, 0)] * len(params.columns)  # texts, and the bytes that they take
        self._mapped: list[_Mapped | None] = [None] * len(params.columns)
        super().__init__(params, copy)
        self._ranks: list[Int64Array | None] = [None] * len(params.columns)

    @staticmethod
    def _more(params: SketchParams) -> dict[str, Any]:
        return {"columns": len(params.columns)}

    @property
    def nbytes(self) -> int:
        for number, known in enumerate(self._texts):
            texts, size = self._measured[number]
            if known is not None and len(known) > texts:
                size += sum(map(sys.getsizeof, islice(known, texts, None)))
                self._measured[number] = len(known), size
        texts = sum(count * _BYTES_BESIDE_TEXT + size for count, size in self._measured)
        return super().nbytes + texts

    # ------------------------------------------------------------------------------------ input

    def admit_records(
        self, records: Records, weights: Int64Array, times: Int64Array, ids: Int64Array
    ) -> None:
        """Admit valid rows, in parts: a compaction may renumber texts, so it must not run between
        numbering texts and storing a part's rows. It then has dictionaries of its own.
        """
        maps, numbered = self._batch_maps(records.columns), list(self._texts)
        for stop in range(len(ids), 0, -_RECORDS_AT_ONCE):  # the last rows are mostly the latest
            part = slice(max(stop - _RECORDS_AT_ONCE, 0), stop)
            count = part.stop - part.start
            self.expect(count)
            if any(known is not each for known, each in zip(numbered, self._texts, strict=True)):
                maps, numbered = self._batch_maps(records.columns), list(self._texts)
            first = self.gathered
            self.admit(
                np.arange(count, dtype=np.int64), weights[part], times[part], ids[part],
                checked=True,
            )  # fmt: skip
            self.take(first, [each.keys[part] for each in records.columns], maps)

    def _maps(self, columns: Sequence[Record]) -> list[Int64Array | None]:
        """Return this dictionary's number for each text in the other one, by column."""
        return [
            None if known is None else _numbers(known, column.texts)
            for known, column in zip(self._texts, columns, strict=True)
        ]

    def _batch_maps(self, columns: Sequence[Record]) -> list[Int64Array | None]:
        """Return the same for a batch. Often its texts are those of the batch before, see
        :class:`~decaysketch.core.records.Dictionaries`.
        """
        maps: list[Int64Array | None] = []
        for number, (known, column) in enumerate(zip(self._texts, columns, strict=True)):
            last, texts = self._mapped[number], column.texts
            if known is None:
                maps.append(None)
            elif last is not None and last.known is known and last.texts is texts:
                maps.append(last.numbers)
            else:
                maps.append(found := _numbers(known, texts))
                if isinstance(texts, tuple):  # which never changes
                    self._mapped[number] = _Mapped(known, texts, found)
        return maps

    def check_texts(self, records: Records) -> None:
        """Reject a batch that would make a dictionary too large.

        Raises:
            ObservationError: with the column and both numbers.
        """
        for known, column, (name, _) in zip(
            self._texts, records.columns, self.params.columns, strict=True
        ):
            if known is None or len(known) + len(column.texts) <= MAX_TEXTS:
                continue
            self.compact()
            more = sum(text not in known for text in column.texts)
            if len(known) + more > MAX_TEXTS:
                raise ObservationError(
                    f"column {name!r} has {more} new texts, and the sketch stores {len(known)}; "
                    f"expected at most 2^20 = {MAX_TEXTS}: leave the column out, or give it fewer "
                    "distinct texts",
                    column=name,
                )

    # ------------------------------------------------------------------------------- compaction

    def compact(self) -> None:
        self._rank()
        super().compact()
        for number, known in enumerate(self._texts):
            if known is not None and len(known) > 2 * self.gathered + _SPARE_TEXTS:
                self._sweep(number, known)

    def _rank(self) -> None:
        """Give the new texts their rank."""
        sizes = [0 if known is None else len(known) for known in self._texts]
        if sizes == self._ranked:
            return
        for number, known in enumerate(self._texts):
            if known is not None and sizes[number] != self._ranked[number]:
                rising = tuple(sorted(known))
                ranks = np.empty(len(rising), np.int64)
                ranks[_numbers(known, rising)] = np.arange(len(rising))
                self._rising[number], self._ranks[number] = rising, ranks
        self._ranked = sizes
        self.set_ranks(self._ranks)

    def _sweep(self, number: int, known: dict[str, int]) -> None:
        """Drop the texts that no row has. O(rows + texts), amortised over the texts that came."""
        keys = self.keys_of(number)
        used = np.unique(keys[keys >= 0])
        again = np.zeros(len(known), np.int64)
        again[used] = np.arange(len(used))
        texts = list(known)
        self.set_keys(number, np.where(keys < 0, keys, again[keys]))
        self._texts[number] = {texts[place]: k for k, place in enumerate(used.tolist())}
        self._measured[number] = 0, 0
        self._ranked[number] = -1
        self._rank()

    # ------------------------------------------------------------------------------------ state

    def append(self, other: Rows) -> None:
        assert isinstance(other, RetainedRecords)
        first = self.gathered
        super().append(other)
        maps = [
            None if known is None else _numbers(known, theirs or ())
            for known, theirs in zip(self._texts, other._texts, strict=True)
        ]
        self.take_from(first, other, maps)

    def _append_state(self, state: SketchState, *, settled: bool = False) -> None:
        assert state.records is not None
        first = self.gathered
        super()._append_state(state, settled=settled)
        columns = state.records.columns
        self.take(first, [each.keys for each in columns], self._maps(columns))

    def state(self) -> SketchState:
        columns = self.columns()
        records = Records(self.params.columns, tuple(map(self._record, range(len(self._texts)))))
        return SketchState(self.params, *columns, self.watermarks, self.copy, records=records)

    def _record(self, number: int) -> Record:
        """Return a column, canonical. The rows are compacted."""
        keys, ranks = self.keys_of(number), self._ranks[number]
        if ranks is None:
            return Record(keys)
        by_rank = np.append(ranks, MISSING_KEY)[np.maximum(keys, -1)]
        return with_used_texts(by_rank, self._rising[number])


class _Mapped(NamedTuple):
    """The texts of a batch's column, and their numbers in this dictionary."""

    known: dict[str, int]
    texts: tuple[str, ...]
    numbers: Int64Array


def _numbers(known: dict[str, int], texts: Collection[str]) -> Int64Array:
    """Return the number of each text, the next one for each that has none."""
    if not known:
        known.update(zip(texts, range(len(texts)), strict=True))
        if len(known) == len(texts):
            return np.arange(len(texts))
        known.clear()  # a text is there twice
    numbers = np.fromiter(map(known.get, texts, repeat(-1)), np.int64, len(texts))
    if numbers.min(initial=0) < 0:
        numbers[:] = [known.setdefault(text, len(known)) for text in texts]
    return numbers


Retained = RetainedRows | RetainedRecords | RetainedStrata


def rows_like(params: SketchParams, copy: int = 0) -> Retained:
    """Return empty rows for a sketch's parameters."""
    if params.strata:
        return RetainedStrata(params)
    return RetainedRecords(params, copy) if params.columns else RetainedRows(params, copy)


def rows_of(state: SketchState) -> Retained:
    """Return rows that contain exactly a canonical state."""
    if isinstance(state, StrataState):
        return RetainedStrata.from_state(state)
    return (RetainedRecords if state.params.columns else RetainedRows).from_state(state)


# ----------------------------------------------------------------------------------------- status


def compared_in_place(bags: Sequence[RetainedRows], batch: Observations) -> Compared:
    """Return the status for each row in a batch that is offered to a sketch without columns, and
    whether it shares identities. Reads the stored rows in place, from one bag for each repetition.
    O(rows stored + rows of the batch). See :func:`decaysketch.querytime.verdicts.compared`.
    """
    weighted, rows = weighted_rows(batch)
    if not len(rows.ids):
        return Compared(np.full(len(weighted), Verdict.BELOW_WATERMARK, np.int8), False)
    identities = rows.ids * np.int64(bags[0].params.max_weight) + (rows.weights - 1)
    one = np.zeros(1, np.int64)  # the second column of all rows
    judged = Batch(Identified(
        identities, np.broadcast_to(one, len(identities)), rows.timestamps, rows.value_keys
    ))  # fmt: skip
    found, shares = [], judged.repeats
    for bag in bags:
        levels = bag.top_levels(rows.ids, rows.weights)
        held, times, keys, held_levels = bag.in_place()
        state = Identified(held, np.broadcast_to(one, len(held)), times, keys)
        found.append(
            judged.judge_by_marks(levels, state, held_levels, bag.watermarks, bag.params.capacity)
        )
        shares |= judged.known > 0
    return Compared(most_favourable(found, weighted), shares)


def weighted_rows(batch: Observations) -> tuple[npt.NDArray[np.bool_], Observations]:
    """Return where the weight is not 0, and these rows."""
    weighted = batch.weights > 0
    if weighted.all():
        return weighted, batch
    return weighted, Observations(*(column[weighted] for column in batch))


def most_favourable(found: Sequence[VerdictArray], weighted: npt.NDArray[np.bool_]) -> VerdictArray:
    """Return each row's most favourable status among the repetitions."""
    best = found[0] if len(found) == 1 else np.minimum.reduce(found)
    if len(best) == len(weighted):
        return best
    verdicts = np.full(len(weighted), Verdict.BELOW_WATERMARK, np.int8)
    verdicts[weighted] = best
    return verdicts
