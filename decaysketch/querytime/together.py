"""Many keys in one stream together, for :mod:`decaysketch.contract.many`.

The rows for all keys are in one bag (``rows_by_key.py``). Bytes and digests for all sketches are
written and read at once (``many.py``). It supports sketches with one repetition, one
objective, and numeric values or columns. Sketches with columns are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.contract.many import HeldByKey, Many, ManyKeys, Merged
from decaysketch.contract.snapshot import Tally
from decaysketch.core.observations import encode_values
from decaysketch.core.params import SketchParams
from decaysketch.core.records import Records, RecordsOfEach, concatenated
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.core.withdrawals import revised
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError
from decaysketch.querytime import wire
from decaysketch.querytime.many import (
    ManySketches,
    decode_many,
    digest_many,
    encode_many,
    encode_many_records,
    ends_of,
    joined_marks,
)
from decaysketch.querytime.records_by_key import RecordsByKey
from decaysketch.querytime.rows_by_key import BYTES_OF_A_ROW, RowsByKey, state_of
from decaysketch.querytime.sketch import DecaySketch
from decaysketch.querytime.state import SketchState

__all__ = ["many_keys"]

BoolArray = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


def many_keys(params: SketchParams) -> ManyKeys | None:
    """Return the joint handling for sketches with these parameters, or None if unsupported."""
    if params.samples != 1 or params.strata:
        return None
    if params.columns:
        return _ManyRecordKeys(params)
    return _ManyKeys(params) if params.value_type in ("int64", "float64") else None


class _Many(Many):
    def __init__(self, params: SketchParams, states: ManySketches) -> None:
        self._params, self._states = params, states

    def encode(self) -> tuple[Bytes, Int64Array]:
        return encode_many(self._params, self._states)

    def digests(self) -> list[str]:
        return digest_many(self._params, self._states)

    def tallies(self) -> list[Tally]:
        times, discarded = self._states.times, np.diff(self._states.mark_offsets) > 0
        found = []
        for number, (start, stop) in enumerate(pairwise(self._states.offsets.tolist())):
            if start == stop or discarded[number]:
                found.append(self.sketch(number).snapshot().tally())
            else:  # the latest comes first
                held, oldest, newest = stop - start, int(times[stop - 1]), int(times[start])
                found.append(Tally(held, held, True, oldest, newest))
        return found

    def sketch(self, number: int) -> DecaySketch:
        return DecaySketch.from_state(state_of(self._params, self._states, number))


class _ManyRecords(_Many):
    """Sketches with columns.

    Args:
        params: shared parameters.
        states: their states. Value keys are places in ``own``.
        own: the columns.
    """

    def __init__(self, params: SketchParams, states: ManySketches, own: Records) -> None:
        super().__init__(params, states)
        self._records = RecordsOfEach.of(own[states.value_keys], states.offsets)

    def encode(self) -> tuple[Bytes, Int64Array]:
        return encode_many_records(self._params, self._states, self._records)

    def digests(self) -> list[str]:
        return digest_many(self._params, self._states, self._records)

    def sketch(self, number: int) -> DecaySketch:
        state = state_of(self._params, self._states, number)
        rows = np.arange(len(state), dtype=np.int64)
        records = self._records.of_one(number)
        return DecaySketch.from_state(replace(state, value_keys=rows, records=records))


class _Held(HeldByKey):
    def __init__(self, params: SketchParams, memory_bytes: int | None) -> None:
        self._params = params
        limit = None if memory_bytes is None else memory_bytes // (2 * BYTES_OF_A_ROW)
        self._rows = self._bag(limit)

    def _bag(self, limit: int | None) -> RowsByKey:
        return RowsByKey(self._params, limit)

    def add(
        self,
        keys: int,
        codes: Int32Array,
        columns: Mapping[str, npt.NDArray[Any]],
        left_out: BoolArray,
    ) -> None:
        weights = columns["weights"]
        if left_out.any():
            weights = np.where(left_out, 0, weights)
        values = encode_values(columns["values"], self._params.value_type)
        self._rows.add(keys, codes, values, weights, columns["timestamps"], columns["ids"])

    def compact(self) -> None:
        self._rows.compact()

    @property
    def held(self) -> int:
        self._rows.compact()
        return self._rows.rows

    @property
    def replaced(self) -> Int64Array:
        self._rows.compact()
        return self._rows.replaced

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def ranges(self, rows: int, keys: int) -> list[tuple[int, int]]:
        return self._rows.ranges(rows, keys)

    def sketches(self, start: int, stop: int) -> Many:
        return _Many(self._params, self._rows.sketches(start, stop))


class _RecordsHeld(_Held):
    _rows: RecordsByKey

    def _bag(self, limit: int | None) -> RecordsByKey:
        return RecordsByKey(self._params, limit)

    def add(
        self, keys: int, codes: Int32Array, columns: Mapping[str, Any], left_out: BoolArray
    ) -> None:
        weights = columns["weights"]
        if left_out.any():
            weights = np.where(left_out, 0, weights)
        records = revised(self._params, columns["values"])
        self._rows.add_records(
            keys, codes, records, weights, columns["timestamps"], columns["ids"]
        )  # fmt: skip
        self._rows.sweep()

    def sketches(self, start: int, stop: int) -> Many:
        return _many_records(self._rows, start, stop)


def _many_records(rows: RecordsByKey, start: int, stop: int) -> _ManyRecords:
    states, own = rows.sketches(start, stop), rows.own_records()
    assert own is not None, "columns that are no strata"
    return _ManyRecords(rows.params, states, own)


class _ManyRecordKeys(ManyKeys):
    def __init__(self, params: SketchParams) -> None:
        self._params, self._none = params, DecaySketch(params).state()

    def hold(self, memory_bytes: int | None) -> HeldByKey:
        return _RecordsHeld(self._params, memory_bytes)

    def merge(self, data: Bytes, offsets: Int64Array, keys: Int32Array, count: int) -> Merged:
        states, done = [], np.ones(count, np.bool_)
        for key, (start, stop) in zip(keys.tolist(), pairwise(offsets.tolist()), strict=True):
            state = self._read(bytes(data[start:stop]))
            done[key] &= state is not None
            states.append(self._none if state is None else state)
        rows = RecordsByKey(self._params)
        sketches, own = _end_to_end(states)
        rows.raise_marks(*joined_marks(self._params, sketches, keys, count))
        codes = np.repeat(keys, np.diff(sketches.offsets))
        rows.add_records(count, codes, own, sketches.weights, sketches.times, sketches.ids)
        return Merged(_many_records(rows, 0, count), done, rows.replaced)

    def _read(self, blob: bytes) -> SketchState | None:
        """Return a sketch's state, None if it is not one of these."""
        try:
            (state,) = wire.decode(blob, params=self._params)
        except (CorruptSketchError, IncompatibleSketchError):
            return None
        return state if state.params == self._params else None


def _end_to_end(states: Sequence[SketchState]) -> tuple[ManySketches, Records]:
    """Return states one after the other, and their columns."""
    marks = [each.watermarks[each.watermarks != NO_WATERMARK] for each in states]
    own = concatenated([each.records for each in states if each.records is not None])
    times, ids, weights = (
        np.concatenate([getattr(each, name) for each in states])
        for name in ("times", "ids", "weights")
    )
    sketches = ManySketches(
        ends_of([len(each) for each in states]), times, ids, weights,
        np.arange(len(times), dtype=np.int64), ends_of(list(map(len, marks))),
        np.concatenate(marks),
    )  # fmt: skip
    return sketches, own


class _ManyKeys(ManyKeys):
    def __init__(self, params: SketchParams) -> None:
        self._params = params

    def hold(self, memory_bytes: int | None) -> HeldByKey:
        return _Held(self._params, memory_bytes)

    def merge(self, data: Bytes, offsets: Int64Array, keys: Int32Array, count: int) -> Merged:
        decoded, read = decode_many(self._params, data, offsets)
        done = np.ones(count, dtype=bool)
        done[keys[~read]] = False
        rows = RowsByKey(self._params)
        rows.raise_marks(*joined_marks(self._params, decoded, keys, count))
        codes = np.repeat(keys, np.diff(decoded.offsets))
        rows.add(count, codes, decoded.value_keys, decoded.weights, decoded.times, decoded.ids)
        return Merged(_Many(self._params, rows.sketches(0, count)), done, rows.replaced)
