"""The highs and lows that a sketch holds, between batches.

Each is a staircase (``staircase.c``): one of values, one of values turned upside down. What every
later row rules out is dropped when it comes; that a span keeps a single step is seen to once there
are twice as many as the last time, and by whoever reads the state. Laziness changes no state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.bags import roomy
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.extremes import _native
from decaysketch.extremes.params import ExtremesParams
from decaysketch.extremes.state import ExtremesState

__all__ = ["Staircase", "Staircases", "release_scratch"]

Int64Array = npt.NDArray[np.int64]

_SMALLEST_LIMIT = 4_096  # steps; of fewer no more is dropped than later rows rule out
_BLOCK = 1 << 13  # rows that are taken at once
_FEWEST = 64  # steps that there is room for at first

_INT64 = np.dtype(np.int64)


class _Scratch(threading.local):
    """Working memory, grown geometrically, one for each thread."""

    def __init__(self) -> None:
        self.columns = np.empty((2, 0), np.int64)

    def room(self, rows: int) -> npt.NDArray[np.int64]:
        """Two columns of so many rows or more."""
        if rows > self.columns.shape[1]:
            self.columns = np.empty((2, max(rows, self.columns.shape[1] * 3 // 2)), np.int64)
        return self.columns

    def release(self) -> None:
        """Give back that of the calling thread; it is made anew when it is needed."""
        self.__init__()  # type: ignore[misc]


_scratch = _Scratch()
release_scratch = _scratch.release


class Staircase:
    """Steps of rising times and falling keys.

    Args:
        turned: keys are those of values with all bits turned, so that the least is the largest.
    """

    def __init__(self, turned: bool) -> None:
        self.turned = turned
        self._times = self._keys = np.empty(0, np.int64)
        self._held = self._thinned = 0

    @property
    def times(self) -> Int64Array:
        """Of the steps: a view, until something is taken."""
        return self._times[: self._held]

    @property
    def keys(self) -> Int64Array:
        """Of the steps, turned or not: a view, until something is taken."""
        return self._keys[: self._held]

    @property
    def value_keys(self) -> Int64Array:
        """Of the steps, as values have them."""
        return ~self.keys if self.turned else self.keys

    @property
    def nbytes(self) -> int:
        return self._times.nbytes + self._keys.nbytes

    def take(self, times: Int64Array, keys: Int64Array, turned: bool, spans: int) -> None:
        """Take rows whose times do not fall.

        Args:
            times, keys: int64[n], contiguous.
            turned: whether the keys are to be turned.
            spans: the capacity.

        Complexity: amortised O(n), and O(steps later than the first of the rows).
        """
        for start in range(0, len(times), _BLOCK):
            rows = slice(start, start + _BLOCK)
            self._climb(times[rows], keys[rows], turned, spans)

    def _climb(self, times: Int64Array, keys: Int64Array, turned: bool, spans: int) -> None:
        together = self._held + len(times)
        if together > max(_SMALLEST_LIMIT, 2 * self._thinned):
            self.thin(spans)
            together = self._held + len(times)
        if together > len(self._times):
            self._reserve(max(_FEWEST, together, 2 * self._held))
        spare = _scratch.room(together)
        self._held = _native.climb(
            self._times, self._keys, self._held, times, keys, turned, spare[0], spare[1]
        )

    def thin(self, spans: int) -> None:
        """Keep one step of each span. O(steps)."""
        if self._held:
            newest = int(self._times[self._held - 1])
            self._held = _native.thin(self._times, self._keys, self._held, newest, spans)
        self._thinned = self._held

    def trim(self) -> None:
        """Give back the room that no step takes."""
        if len(self._times) > roomy(self._held):
            self._reserve(self._held)

    def _reserve(self, room: int) -> None:
        times, keys = np.empty((2, room), np.int64)
        times[: self._held], keys[: self._held] = self.times, self.keys
        self._times, self._keys = times, keys


class Staircases:
    """Highs and lows. Not safe to use from two threads at once.

    Args:
        params: parameters of the sketch.
    """

    clock = NO_WATERMARK
    replaced = 0  # an extreme stays, whatever its id is

    def __init__(self, params: ExtremesParams) -> None:
        self.params = params
        self.highs, self.lows = Staircase(turned=False), Staircase(turned=True)
        self._floats = params.value_type == "float64"
        self._limits = _native.Limits(
            max_weight=params.max_weight,
            last_id=(1 << params.id_bits) - 1,
            time_limit=TIME_LIMIT,
        )

    @classmethod
    def from_state(cls, state: ExtremesState) -> Self:
        """Those that a canonical state has."""
        held = cls(state.params)
        held.take(state.times[::-1].copy(), state.value_keys[::-1].copy(), in_order=True)
        held.thin()
        return held

    def admit(self, values: Any, weights: Any, times: Any, ids: Any) -> bool:
        """Take columns that need no conversion; False, with nothing taken, for all others, and
        where a row is out of bounds, has no value or no weight."""
        kinds = (type(values), type(times))
        if kinds != (np.ndarray, np.ndarray) or times.dtype != _INT64 or times.ndim != 1:
            return False
        if values.dtype != self.params.value_dtype or values.shape != times.shape:
            return False
        if type(weights) is int and 1 <= weights <= self.params.max_weight:
            weights = None
        elif not _is_plain(weights, times):
            return False
        if ids is not None and not _is_plain(ids, times):
            return False
        if not (values.flags.c_contiguous and times.flags.c_contiguous):
            return False
        keys = np.empty(len(times), np.int64)
        outcome = _native.read(
            self._limits, values.view(np.int64), self._floats, weights, times, ids, keys
        )
        if outcome == _native.REFUSED:
            return False
        self.take(times, keys, in_order=outcome == _native.IN_ORDER)
        return True

    def take(self, times: Int64Array, keys: Int64Array, *, in_order: bool) -> None:
        """Take validated rows, whose times do not fall where they are in order."""
        if not in_order:
            order = times.argsort(kind="stable")
            times, keys = times[order], keys[order]
        for stairs in (self.highs, self.lows):
            stairs.take(times, keys, stairs.turned, self.params.capacity)

    def absorb(self, others: Iterable[Self]) -> None:
        """Take what others hold. O(steps of all)."""
        for other in others:
            for ours, theirs in ((self.highs, other.highs), (self.lows, other.lows)):
                ours.take(theirs.times, theirs.keys, False, self.params.capacity)

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""
        self.params = self.params.with_capacity(capacity)

    def thin(self) -> None:
        """Drop all that the state does not hold. O(steps)."""
        for stairs in (self.highs, self.lows):
            stairs.thin(self.params.capacity)

    def state(self) -> ExtremesState:
        """The canonical state. O(steps log steps)."""
        self.thin()
        times = np.concatenate([self.highs.times, self.lows.times])
        keys = np.concatenate([self.highs.value_keys, self.lows.value_keys])
        order = np.lexsort((keys, times))[::-1]
        times, keys = times[order], keys[order]
        fresh = np.ones(len(order), np.bool_)  # what is both is there once
        fresh[1:] = (times[1:] != times[:-1]) | (keys[1:] != keys[:-1])
        return ExtremesState(self.params, times[fresh], keys[fresh])

    def __len__(self) -> int:
        return len(self.state())

    @property
    def nbytes(self) -> int:
        return self.highs.nbytes + self.lows.nbytes

    def trim(self) -> None:
        self.thin()
        for stairs in (self.highs, self.lows):
            stairs.trim()


def _is_plain(column: Any, times: Int64Array) -> bool:
    """Whether it is a column of int64 beside that of times, as kernels take it."""
    return (
        type(column) is np.ndarray
        and column.dtype == _INT64
        and column.shape == times.shape
        and bool(column.flags.c_contiguous)
    )
