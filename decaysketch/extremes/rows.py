"""The highs and lows that a sketch stores between batches.

Each is a staircase (``staircase.c``): one for values, one for values turned upside down. Rows that
a later row rules out are dropped when it arrives. Spans are reduced to a single step each once
there are twice as many steps as the last time, and when the state is read. This laziness changes no
state.
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

_SMALLEST_LIMIT = 4_096  # steps: below this, only steps that later rows rule out are dropped
_BLOCK = 1 << 13  # rows added at a time
_FEWEST = 64  # first capacity in steps

_INT64 = np.dtype(np.int64)


class _Scratch(threading.local):
    """Working memory, grown geometrically, one per thread."""

    def __init__(self) -> None:
        self.columns = np.empty((2, 0), np.int64)

    def room(self, rows: int) -> npt.NDArray[np.int64]:
        """Return two columns with at least this number of rows."""
        if rows > self.columns.shape[1]:
            self.columns = np.empty((2, max(rows, self.columns.shape[1] * 3 // 2)), np.int64)
        return self.columns

    def release(self) -> None:
        """Release the calling thread's working memory. It is allocated again when needed."""
        self.__init__()  # type: ignore[misc]


_scratch = _Scratch()
release_scratch = _scratch.release


class Staircase:
    """Steps with rising times and falling keys.

    Args:
        turned: keys are value keys with all bits turned, so that the smallest is the largest.
    """

    def __init__(self, turned: bool) -> None:
        self.turned = turned
        self._times = self._keys = np.empty(0, np.int64)
        self._held = self._thinned = 0

    @property
    def times(self) -> Int64Array:
        """The steps' times: a view, until a row is added."""
        return self._times[: self._held]

    @property
    def keys(self) -> Int64Array:
        """The steps' keys, turned or not: a view, until a row is added."""
        return self._keys[: self._held]

    @property
    def value_keys(self) -> Int64Array:
        """The steps' keys, in the form that values have."""
        return ~self.keys if self.turned else self.keys

    @property
    def nbytes(self) -> int:
        return self._times.nbytes + self._keys.nbytes

    def take(self, times: Int64Array, keys: Int64Array, turned: bool, spans: int) -> None:
        """Add rows with times that do not fall.

        Args:
            times, keys: int64[n], contiguous.
            turned: whether to turn the keys.
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
        """Keep one step per span. O(steps)."""
        if self._held:
            newest = int(self._times[self._held - 1])
            self._held = _native.thin(self._times, self._keys, self._held, newest, spans)
        self._thinned = self._held

    def trim(self) -> None:
        """Release the memory that no step uses."""
        if len(self._times) > roomy(self._held):
            self._reserve(self._held)

    def _reserve(self, room: int) -> None:
        times, keys = np.empty((2, room), np.int64)
        times[: self._held], keys[: self._held] = self.times, self.keys
        self._times, self._keys = times, keys


class Staircases:
    """Highs and lows. Not safe to use from two threads at once.

    Args:
        params: the sketch's parameters.
    """

    clock = NO_WATERMARK
    replaced = 0  # rows have no ids here, so none replaces another

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
        """Build from a canonical state."""
        held = cls(state.params)
        held.take(state.times[::-1].copy(), state.value_keys[::-1].copy(), in_order=True)
        held.thin()
        return held

    def admit(self, values: Any, weights: Any, times: Any, ids: Any) -> bool:
        """Accept columns that need no conversion. Return False, with nothing accepted, for all
        others, and if a row is out of bounds, has no value or no weight.
        """
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
        """Accept validated rows. If they are in order, their times do not fall."""
        if not in_order:
            order = times.argsort(kind="stable")
            times, keys = times[order], keys[order]
        for stairs in (self.highs, self.lows):
            stairs.take(times, keys, stairs.turned, self.params.capacity)

    def absorb(self, others: Iterable[Self]) -> None:
        """Add all rows of others. O(steps of all)."""
        for other in others:
            for ours, theirs in ((self.highs, other.highs), (self.lows, other.lows)):
                ours.take(theirs.times, theirs.keys, False, self.params.capacity)

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""
        self.params = self.params.with_capacity(capacity)

    def thin(self) -> None:
        """Drop all rows that the state does not contain. O(steps)."""
        for stairs in (self.highs, self.lows):
            stairs.thin(self.params.capacity)

    def state(self) -> ExtremesState:
        """The canonical state. O(steps log steps)."""
        self.thin()
        times = np.concatenate([self.highs.times, self.lows.times])
        keys = np.concatenate([self.highs.value_keys, self.lows.value_keys])
        order = np.lexsort((keys, times))[::-1]
        times, keys = times[order], keys[order]
        fresh = np.ones(len(order), np.bool_)  # a step in both appears once
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
    """Whether it is an int64 column as long as the times, as kernels require."""
    return (
        type(column) is np.ndarray
        and column.dtype == _INT64
        and column.shape == times.shape
        and bool(column.flags.c_contiguous)
    )
