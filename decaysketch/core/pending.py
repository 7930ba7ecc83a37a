"""Single rows, gathered until there are enough of them to fold in together.

A kernel call costs some microseconds, however few rows it is given. So rows that come one by one,
as plain numbers, are validated when they come and wait in four small arrays; whoever reads the
sketch folds them in first.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import SketchParams

__all__ = ["ENOUGH", "Pending", "PendingRows"]

ENOUGH = 512  # rows, to be folded in together
_LARGEST_FLOAT = float(np.finfo(np.float64).max)
_EXACT_IN_FLOAT = 1 << 53


class Pending:
    """Validated rows, in one array for each column.

    Args:
        kinds: type code of each column.

    Attributes:
        arrays: to append a row to, number by number.
    """

    __slots__ = ("_kinds", "arrays")

    def __init__(self, kinds: str) -> None:
        self._kinds = kinds
        self.clear()

    def clear(self) -> None:
        """Forget all of them, once they were folded in."""
        self.arrays: tuple[array[Any], ...] = tuple(array(kind) for kind in self._kinds)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """The columns, as arrays that share memory with the buffers."""
        return tuple(np.frombuffer(column, column.typecode) for column in self.arrays)


class PendingRows(Pending):
    """Observations of one stream, none of weight 0: values, weights, timestamps and ids."""

    __slots__ = ("_float_values", "_id_limit", "_max_weight", "_value_limit")

    def __init__(self, params: SketchParams) -> None:
        self._max_weight = params.max_weight
        self._id_limit = 1 << params.id_bits
        self._float_values = params.value_type == "float64"
        self._value_limit = _EXACT_IN_FLOAT if self._float_values else (1 << 63) - 1
        super().__init__("dqqq" if self._float_values else "qqqq")

    def take(self, value: Any, weight: Any, timestamp: Any, id_: Any) -> int:
        """Gather an observation of plain numbers; 0, with nothing taken, for anything else.

        Returns:
            How many there are now; from :data:`ENOUGH` on they should be folded in.
        """
        kind = type(value)
        if (
            type(id_) is int
            and type(weight) is int
            and type(timestamp) is int
            and 0 <= id_ < self._id_limit
            and 0 < weight <= self._max_weight
            and -TIME_LIMIT <= timestamp <= TIME_LIMIT
            and (
                (kind is float and self._float_values and abs(value) <= _LARGEST_FLOAT)
                or (kind is int and -self._value_limit <= value <= self._value_limit)
            )
        ):
            values, weights, timestamps, ids = self.arrays
            values.append(value)
            weights.append(weight)
            timestamps.append(timestamp)
            ids.append(id_)
            return len(ids)
        return 0
