"""Single rows, gathered until there are enough to merge together.

A kernel call costs some microseconds, for any number of rows. So rows that arrive one by one, as
plain numbers, are validated on arrival and wait in four small arrays. Every reader of the sketch
merges them first.
"""

from __future__ import annotations

from array import array
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from decaysketch.core._native import SingleRows
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import SketchParams

__all__ = ["ENOUGH", "Pending", "PendingRows", "Waiting"]

ENOUGH = 512  # rows, to be folded in together


class Waiting(Protocol):
    """Rows that were validated one by one."""

    def __len__(self) -> int: ...

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the columns, to be merged before anything is added."""

    def clear(self) -> None:
        """Forget all rows, after they were merged."""


class Pending:
    """Validated rows, in one array for each column.

    Args:
        kinds: type code for each column.

    Attributes:
        arrays: one array for each column. To add a row, append one number to each.
    """

    __slots__ = ("_kinds", "arrays")

    def __init__(self, kinds: str) -> None:
        self._kinds = kinds
        self.clear()

    def clear(self) -> None:
        """Forget all rows, after they were merged."""
        self.arrays: tuple[array[Any], ...] = tuple(array(kind) for kind in self._kinds)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the columns, as arrays that share memory with the buffers."""
        return tuple(np.frombuffer(column, column.typecode) for column in self.arrays)


class PendingRows(SingleRows):
    """Observations in one stream, none with weight 0: values, weights, timestamps and ids."""

    def __init__(self, params: SketchParams) -> None:
        super().__init__(
            floats=params.value_type == "float64",
            max_weight=params.max_weight,
            last_id=(1 << params.id_bits) - 1,
            time_limit=TIME_LIMIT,
        )
