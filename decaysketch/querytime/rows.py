"""The rows a sketch holds, between batches: a bag (``core/bags.py``) of observations.

Rows that the last compaction kept may stand in canonical order, not only in that of time; then a
few newcomers are merged into them, and all are in order again. Kernels and memory are native
(``rows.c``): here is what becomes of whole sketches.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.bags import MAX_ROWS, roomy
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import SketchParams
from decaysketch.core.replaced import far_apart
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import ParameterError
from decaysketch.minhit import plan
from decaysketch.querytime._native import Rows, release_scratch
from decaysketch.querytime.state import SketchState

__all__ = ["RetainedRows", "columns_of", "release_scratch"]

_FACTOR = 4  # a larger bag compacts less often, a smaller one stays in the cache
_SMALLEST_LIMIT = 16_384  # rows; a bag of fewer is not compacted to make room
_MERGE_LIMIT = 1 << 18  # rows gathered from many sketches before they are compacted together

Int64Array = npt.NDArray[np.int64]
Columns = tuple[Int64Array, Int64Array, Int64Array, Int64Array, npt.NDArray[np.int8]]

# Keys the identity table; drawn for each process because the table is fed from the network.
_TABLE_SALT = secrets.randbits(64) | 1


def columns_of(state: SketchState, levels: npt.NDArray[np.int8] | None = None) -> Columns:
    """The columns of a state, or with other levels, as kernels take them."""
    levels = state.levels if levels is None else levels
    return state.value_keys, state.weights, state.times, state.ids, levels


class RetainedRows(Rows):
    """Rows and watermarks under one hash function. Not safe to use from two threads at once.

    Args:
        params: parameters of the sketch.
        copy: which of their hash functions.
    """

    clock = NO_WATERMARK  # there is none

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
        )
        self.params, self.copy = params, copy

    @classmethod
    def from_state(cls, state: SketchState) -> Self:
        """Rows that hold exactly a canonical state."""
        rows = cls(state.params, state.copy)
        rows.reserve(len(state))
        rows.raise_marks(state.watermarks)
        rows.append_columns(*columns_of(state), settled=True)
        return rows

    def state(self) -> SketchState:
        """The canonical state, copied out. O(rows)."""
        return SketchState(self.params, *self.columns(), self.watermarks, self.copy)

    def trim(self) -> None:
        """Compact, and give back the room that no row takes. O(rows) where there is any."""
        self.shrink(roomy(len(self)))

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""
        self.params = self.params.with_capacity(capacity)
        self.set_capacity(capacity)

    def absorb(self, others: Iterable[RetainedRows | SketchState]) -> None:
        """Take what other bags or states hold, and the higher watermark of each level.

        The joined watermarks are right before a row is looked at: a row not later than the
        watermark of its level in any of the sketches is not in their merged state.
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
                self.append_columns(*columns_of(other))
            else:
                self.append(other)
            incoming -= rows

    def _make_room_to_append(self, rows: int, incoming: int) -> None:
        """Room for so many rows; at most for all that are coming.

        Raises:
            ParameterError: more rows than kernels can number.
        """
        together = self.gathered + rows
        if together > MAX_ROWS:
            raise ParameterError(
                f"merging takes {together} rows at once; expected at most {MAX_ROWS}: take a "
                "smaller capacity"
            )
        if together > self.room:
            most = max(self._merge_limit(), together)
            self.reserve(min(max(self.gathered + incoming, 2 * self.room), most, MAX_ROWS))

    def _merge_limit(self) -> int:
        """Rows at which the bag is compacted before another one is appended to it."""
        return max(_MERGE_LIMIT, _FACTOR * self.kept)
