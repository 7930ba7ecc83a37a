"""The rows that a sketch with strata stores between batches.

All strata share one bag (:mod:`decaysketch.querytime.records_by_key`), so a stratum costs only its
rows. Strata are numbered in arrival order. Numbers never enter a state or bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import SketchParams
from decaysketch.core.records import MAX_TEXTS, Record, Records
from decaysketch.core.strata import Stratum, check_strata, strata_of
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import ObservationError
from decaysketch.querytime.records_by_key import RecordsByKey
from decaysketch.querytime.strata_state import (
    StrataState,
    columns_of,
    no_strata,
    strata_state,
)

__all__ = ["RetainedStrata"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class RetainedStrata:
    """Rows and watermarks for all strata. Not safe to use from two threads at once.

    Args:
        params: sketch parameters.
    """

    clock = NO_WATERMARK  # there is none

    def __init__(self, params: SketchParams) -> None:
        self.params = params
        self._numbers: dict[Stratum, int] = {}
        self._rows = RecordsByKey(params)
        self._replaced = 0  # counted at an earlier capacity

    @classmethod
    def from_state(cls, state: StrataState) -> RetainedStrata:
        """Return rows that contain exactly a canonical state."""
        found = cls(state.params)
        found._numbers = {state.names(k): k for k in range(len(state.strata))}
        found._rows.raise_marks(state.mark_offsets, state.marks)
        found._add_state(state, np.arange(len(state.strata)))
        return found

    # ------------------------------------------------------------------------------------ input

    def check_texts(self, records: Records) -> None:
        """Reject a batch with too many strata, or one that would make a dictionary too large.

        Raises:
            ObservationError: with the column, the row, and both numbers.
        """
        # A batch has no more strata than rows, or text combinations. Most need no second check.
        more = 1
        for name in self.params.strata:
            more *= len(records.column(name).texts) + 1
        if len(self._numbers) + min(more, len(records)) > self.params.max_strata:
            check_strata(self.params, self._numbers, records)
        for number, (name, kind) in enumerate(self.params.own_columns):
            texts = records.column(name).texts
            if kind != "text" or len(texts) <= MAX_TEXTS // 2:
                continue
            self._rows.sweep()
            held, more = self._rows.unknown_texts(number, texts)
            if held + more > MAX_TEXTS:
                raise ObservationError(
                    f"column {name!r} has {more} new texts, and the sketch stores {held}; expected "
                    f"at most 2^20 = {MAX_TEXTS}: leave the column out, or give it fewer distinct "
                    "texts",
                    column=name,
                )

    def admit_records(
        self, records: Records, weights: Int64Array, times: Int64Array, ids: Int64Array
    ) -> None:
        """Admit rows in bounds."""
        if not len(ids):
            return
        named = strata_of([records.column(name) for name in self.params.strata])
        numbers = self._number(named.names)
        types = self.params.own_columns
        own = columns_of(records, types) if types else None
        self._rows.add_records(
            len(self._numbers), numbers[named.codes], own, weights, times, ids
        )  # fmt: skip
        self._rows.sweep()

    def _number(self, names: list[Stratum]) -> Int32Array:
        known = self._numbers
        try:
            return np.fromiter(map(known.__getitem__, names), np.int32, len(names))
        except KeyError:  # a new stratum
            return np.array([known.setdefault(name, len(known)) for name in names], np.int32)

    def _add_state(self, state: StrataState, numbers: npt.NDArray[np.integer]) -> None:
        codes = numbers.astype(np.int32)[state.stratum]
        self._rows.add_records(
            len(self._numbers), codes, state.own_records, state.weights, state.times, state.ids
        )  # fmt: skip

    def absorb(self, others: Iterable[RetainedStrata | StrataState]) -> None:
        """Add the rows in other bags or states, and each stratum's higher watermarks.

        The joined watermarks are correct before the first row is checked, as in one sketch.
        """
        states = [each if isinstance(each, StrataState) else each.state() for each in others]
        numbered = [
            self._number([state.names(k) for k in range(len(state.strata))]) for state in states
        ]
        self._rows.expect_keys(len(self._numbers))
        for state, numbers in zip(states, numbered, strict=True):
            self._rows.raise_marks_of(
                numbers.astype(np.int64), state.mark_offsets, state.marks
            )  # fmt: skip
        for state, numbers in zip(states, numbered, strict=True):
            self._add_state(state, numbers)
        self._rows.sweep()

    # ------------------------------------------------------------------------------------ state

    def state(self) -> StrataState:
        """Return the canonical state. O(rows * columns)."""
        count = len(self._numbers)
        self._rows.expect_keys(count)
        sketches = self._rows.sketches(0, count)
        return strata_state(self.params, sketches, self._strata(), self._rows.own_records())

    def _strata(self) -> Records:
        none = no_strata(self.params)
        columns = []
        for parts in zip(*self._numbers, strict=True):
            place: dict[str | None, int] = {}
            for text in parts:
                place.setdefault(text, len(place) - (None in place))
            place[None] = MISSING_KEY
            keys = np.array([place[text] for text in parts], np.int64)
            columns.append(Record(keys, tuple(text for text in place if text is not None)))
        return Records(none.types, tuple(columns)) if columns else none

    def __len__(self) -> int:
        self._rows.expect_keys(len(self._numbers))
        self._rows.compact()
        return self._rows.rows

    @property
    def replaced(self) -> int:
        """Readings that a later reading with their id replaced, far away in time."""
        len(self)
        return self._replaced + int(self._rows.replaced.sum())

    @property
    def nbytes(self) -> int:
        """Memory bytes at the peak of the next compaction."""
        return self._rows.nbytes + len(self._numbers) * 200

    def trim(self) -> None:
        """Release unused memory. O(rows)."""
        self._restore(self.state())

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity. The result equals a sketch built with it."""
        state = self.state()
        self.params = self.params.with_capacity(capacity)
        self._restore(state)

    def _restore(self, state: StrataState) -> None:
        replaced = self.replaced
        made = RetainedStrata(self.params)
        made._numbers = {state.names(k): k for k in range(len(state.strata))}
        made._rows.raise_marks(state.mark_offsets, state.marks)
        made._add_state(state, np.arange(len(state.strata)))
        made._rows.compact()
        self._numbers, self._rows, self._replaced = made._numbers, made._rows, replaced
