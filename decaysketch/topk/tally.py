"""Tally: exact counts for one source's items under a decay, as of any time.

It stores every event that still has weight under the decay, as columns. So it takes memory for each
event, and its counts are exact, as a certificate requires. Sketches take less memory and estimate.
From their counts a hub makes a certain list of estimates, which is another thing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import check_time, check_within, integer_column
from decaysketch.core.row_check import TIMES
from decaysketch.decay import Decay
from decaysketch.errors import ObservationError
from decaysketch.topk.messages import check_item
from decaysketch.topk.ranking import Item

__all__ = ["Tally"]

Int64Array = npt.NDArray[np.int64]


class Tally:
    """Item counts at one source.

    Args:
        decay: the weight of an event by age. ``decay.window(width)`` counts the window's events.

    Example:
        >>> import decaysketch as ds
        >>> tally = Tally(ds.decay.window(60))
        >>> tally.update(["ada", "bob", "ada"], [100, 130, 150])
        >>> tally.at(160), tally.at(200)
        ({'ada': 2, 'bob': 1}, {'ada': 1})
    """

    def __init__(self, decay: Decay) -> None:
        self.decay = decay
        self._codes: dict[Item, int] = {}
        self._items: list[Item] = []
        self._parts: list[tuple[Int64Array, Int64Array]] = []  # codes and times

    def __len__(self) -> int:
        """Number of stored events."""
        return sum(len(times) for _, times in self._parts)

    def update(self, items: Sequence[Item], timestamps: npt.ArrayLike) -> None:
        """Count events, in any order.

        Args:
            items: integers within 2^53, or texts.
            timestamps: int64[n], within 2^62.

        Raises:
            ParameterError, ObservationError: invalid items or times. Nothing was accepted. O(n).
        """
        times = integer_column("timestamps", timestamps)
        check_within("timestamps", times, TIMES)
        named = items.tolist() if isinstance(items, np.ndarray) else list(items)
        if len(named) != len(times):
            raise ObservationError(
                f"columns have unequal lengths: items has {len(named)} rows, timestamps has "
                f"{len(times)}",
                column="items",
            )
        for item in set(named):
            check_item(item)
        for item in named:
            if item not in self._codes:
                self._codes[item] = len(self._items)
                self._items.append(item)
        codes = np.fromiter((self._codes[item] for item in named), np.int64, len(named))
        self._parts.append((codes, times))

    def at(self, as_of: int) -> dict[Item, int | float]:
        """Return counts as of a time, for items that have any. They are integers if the decay's
        weights are.

        Events after that time are not counted. So a past time is permitted as long as no event that
        it needs was dropped. O(events).
        """
        as_of = check_time("as_of", as_of)
        codes, times = self._columns()
        inside = times <= as_of
        weights = self.decay(as_of - times[inside])
        totals = np.bincount(codes[inside], weights, len(self._items))
        if (weights == np.floor(weights)).all():
            totals = totals.astype(np.int64)
        found = np.flatnonzero(totals)
        return {
            self._items[code]: count
            for code, count in zip(found.tolist(), totals[found].tolist(), strict=True)
        }

    def advance(self, now: int) -> None:
        """Drop the events without weight at ``now`` or later. O(events)."""
        now = check_time("now", now)
        codes, times = self._columns()
        kept = now - times <= self.decay.support
        found, codes = np.unique(codes[kept], return_inverse=True)
        self._items = [self._items[code] for code in found.tolist()]
        self._codes = {item: code for code, item in enumerate(self._items)}
        self._parts = [(codes, times[kept])]

    def _columns(self) -> tuple[Int64Array, Int64Array]:
        if not self._parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        codes, times = map(np.concatenate, zip(*self._parts, strict=True))
        self._parts = [(codes, times)]
        return codes, times
