"""The fewest sources that hear a share of all messages, greedily.

Each step selects the source that adds the largest mass of messages that no source before it heard.
It reaches at least ``1 - 1/e`` of the best choice with as many sources (Nemhauser, Wolsey and
Fisher 1978). A sample is too optimistic about a choice that was made on it. Therefore each half of
the rows, by a mixed id bit that no level uses, evaluates the choice that the other half made.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["greedy", "half_of"]

Float64Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.integer]

_HALF = np.uint64(0x9E3779B97F4A7C15)


def half_of(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return bool[n], a half of the ids, independent of the levels."""
    mixed = ids.astype(np.uint64) ^ _HALF
    for shift, factor in ((27, 0x3C79AC492BA7B653), (33, 0x1C69B3F74AC4AE35)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    found: npt.NDArray[np.bool_] = ((mixed >> np.uint64(40)) & np.uint64(1)).astype(np.bool_)
    return found


def greedy(masses: Float64Array, rows: Sequence[Rows], most: int) -> list[tuple[int, float]]:
    """Return sources in selection order, each with the mass that it adds.

    Args:
        masses: float64[n], of each row. 0 where it does not count.
        rows: for each source, the rows that it heard.
        most: the maximum number. The result is shorter if no further source adds anything.

    Complexity: gains only fall, so a gain is computed again when it comes up: O(incidences) each
    time, in practice a few times (lazy greedy, Minoux 1978).
    """
    left = masses.copy()
    gains = [(-float(left[each].sum()), source) for source, each in enumerate(rows)]
    heapq.heapify(gains)
    taken: list[tuple[int, float]] = []
    while gains and len(taken) < most:
        _, source = heapq.heappop(gains)
        gain = float(left[rows[source]].sum())
        if gains and -gain > gains[0][0]:
            heapq.heappush(gains, (-gain, source))
            continue
        if not gain > 0.0:
            break
        taken.append((source, gain))
        left[rows[source]] = 0.0
    return taken
