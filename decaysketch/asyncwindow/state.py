"""The canonical state of an asynchronous sampler: a stated function of its input.

An *element* is a value with a timestamp, from one source and with one sequence number. Source and
number make its 64-bit key. Its *identity* is the key for a median and (key, value) for a sum.
Duplicates with one identity, in any order of arrival, are one element, represented by the latest:
the maximum by (timestamp, value). The identity fixes the coins, and with them the *top level*
(``coins.py``). For a sum the top level depends on the value. That is why the value is part of the
identity there.

Level ``i`` below ``L = params.first_nested`` counts the elements with top level ``i`` (as
SumProcess does), level ``i >= L`` all elements with top level ``i`` or above (as MedianProcess
does, with L = 0). Let ``c`` be the *clock*, the latest time the sampler was advanced to, W the
largest window, and ``floor = c - W - 1`` the latest time that no window can reach any more. Then

* ``watermarks[i]`` is the larger of ``floor`` and the largest time T such that more than ``alpha``
  elements counted at level ``i`` have time >= T, or ``NO_WATERMARK`` if there is neither.
* An element with top level ``l`` is kept if and only if its time exceeds ``watermarks[l]``.

So the kept elements counted at level ``i`` that are later than ``watermarks[i]`` are exactly the
paper's sample ``S_i`` with all ties at a cut discarded together, and each element is stored once.
From L on watermarks do not rise with the level. Hence an element in any sample is also in the
sample of its top level.

Why this can be computed from the kept elements, in any order, with any duplication and by any merge
tree:

* Adding a duplicate adds an element or moves one to a later time. It never changes a top level.
  Hence, for every T, the number of elements in a level with time >= T only grows, and so does the
  watermark.
* All elements later than the watermark are kept, and a larger watermark depends on these alone. A
  rejected duplicate, not later than the watermark, changes neither.
* The clock only grows, and a merge uses the maximum.

The state after a merge is that of one sampler with both inputs. (With the key alone as the identity
in a sum this fails: a later duplicate with another value would take an element away from a level
whose watermark it had raised, and discarded elements cannot come back.)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow.params import MedianParams, SumParams
from decaysketch.core.watermarks import NO_WATERMARK

__all__ = ["NO_CLOCK", "WindowState"]

Int64Array = npt.NDArray[np.int64]

NO_CLOCK = NO_WATERMARK  # earlier than every time


@dataclass(frozen=True, slots=True, eq=False)
class WindowState:
    """Rows, watermarks and clock. Rows are ordered by time, then key, then value, all descending.

    Attributes:
        params: parameters, with the capacity in force.
        clock: the latest time that the sampler was advanced to, or ``NO_CLOCK``.
        value_keys: int64[n]; see :mod:`decaysketch.core.observations`. The values themselves for a
            sum.
        times: int64[n].
        keys: uint64[n], of (source, sequence number).
        levels: int8[n], the top level of each row.
        watermarks: int64[M + 1]. ``NO_WATERMARK`` if nothing was discarded.

    All arrays are read-only.
    """

    params: SumParams | MedianParams
    clock: int
    value_keys: Int64Array
    times: Int64Array
    keys: npt.NDArray[np.uint64]
    levels: npt.NDArray[np.int8]
    watermarks: Int64Array

    def __post_init__(self) -> None:
        for name in ("value_keys", "times", "keys", "levels", "watermarks"):
            getattr(self, name).setflags(write=False)

    def __reduce__(self) -> tuple[type[WindowState], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field) for field in self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def floor(self) -> int:
        """The latest time that no window can reach any more, or ``NO_WATERMARK`` without a
        clock.
        """
        return floor_of(self.params, self.clock)

    @property
    def complete_since(self) -> Int64Array:
        """int64[M + 1], for each level the latest watermark among it and all above: everything
        later that reaches the level is kept. Non-increasing.
        """
        return np.maximum.accumulate(self.watermarks[::-1])[::-1]

    def digest(self) -> str:
        """SHA-256 of parameters, clock, watermarks and rows, in hex: equal for equal samplers."""
        digest = hashlib.sha256(self.params.fingerprint)
        digest.update(self.params.capacity.to_bytes(8, "little"))
        digest.update(self.clock.to_bytes(8, "little", signed=True))
        for column in (self.watermarks, self.times, self.keys.view(np.int64), self.value_keys):
            digest.update(column.astype("<i8", copy=False).tobytes())
        return digest.hexdigest()


def floor_of(params: SumParams | MedianParams, clock: int) -> int:
    """``clock - W - 1``, or ``NO_WATERMARK`` if there is no clock or no largest window."""
    if clock == NO_CLOCK or params.max_window is None:
        return NO_WATERMARK
    return max(clock - params.max_window - 1, NO_WATERMARK + 1)
