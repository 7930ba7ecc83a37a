"""Many keys in one stream together, for :mod:`decaysketch.contract.many`.

The rows for all keys are in one bag (``rows_by_key.py``). Bytes and digests for all sketches are
written and read at once (``many.py``). It supports sketches with one repetition, one
objective and numeric values.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.contract.many import HeldByKey, Many, ManyKeys, Merged
from decaysketch.contract.snapshot import Tally
from decaysketch.core.observations import encode_values
from decaysketch.core.params import SketchParams
from decaysketch.querytime.many import (
    ManySketches,
    decode_many,
    digest_many,
    encode_many,
    joined_marks,
)
from decaysketch.querytime.rows_by_key import BYTES_OF_A_ROW, RowsByKey, state_of
from decaysketch.querytime.sketch import DecaySketch

__all__ = ["many_keys"]

BoolArray = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


def many_keys(params: SketchParams) -> ManyKeys | None:
    """Return the joint handling for sketches with these parameters, or None if unsupported."""
    numbers = params.value_type in ("int64", "float64")
    return _ManyKeys(params) if params.samples == 1 and numbers else None


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


class _Held(HeldByKey):
    def __init__(self, params: SketchParams, memory_bytes: int | None) -> None:
        limit = None if memory_bytes is None else memory_bytes // (2 * BYTES_OF_A_ROW)
        self._params, self._rows = params, RowsByKey(params, limit)

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
