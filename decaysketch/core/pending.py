"""Single observations, gathered until there are enough of them to fold in together.

A kernel call costs some microseconds, however few rows it is given. So observations that come one
by one, as plain numbers, are validated here and wait in four small arrays; whoever reads the sketch
folds them in first.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import SketchParams

__all__ = ["ENOUGH", "PendingRows"]

ENOUGH = 512  # observations, to be folded in together
_LARGEST_FLOAT = float(np.finfo(np.float64).max)
_EXACT_IN_FLOAT = 1 << 53

Int64Array = npt.NDArray[np.int64]


class PendingRows:
    """Validated observations of one stream, none of weight 0."""

    __slots__ = (
        "_float_values", "_id_limit", "_ids", "_max_weight", "_times", "_value_limit", "_values",
        "_weights",
    )  # fmt: skip

    def __init__(self, params: SketchParams) -> None:
        self._max_weight = params.max_weight
        self._id_limit = 1 << params.id_bits
        self._float_values = params.value_type == "float64"
        self._value_limit = _EXACT_IN_FLOAT if self._float_values else (1 << 63) - 1
        self.clear()

    def clear(self) -> None:
        """Forget all of them, once they were folded in."""
        self._values = array("d" if self._float_values else "q")
        self._weights = array("q")
        self._times = array("q")
        self._ids = array("q")

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
            ids = self._ids
            ids.append(id_)
            self._values.append(value)
            self._weights.append(weight)
            self._times.append(timestamp)
            return len(ids)
        return 0

    def __len__(self) -> int:
        return len(self._ids)

    def columns(self) -> tuple[npt.NDArray[Any], Int64Array, Int64Array, Int64Array]:
        """Values, weights, timestamps and ids, as arrays that share memory with the buffers."""
        values = np.frombuffer(self._values, np.float64 if self._float_values else np.int64)
        weights, times, ids = (
            np.frombuffer(column, np.int64) for column in (self._weights, self._times, self._ids)
        )
        return values, weights, times, ids
