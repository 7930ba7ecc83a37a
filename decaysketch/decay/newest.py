"""Check whether a decay gives weight only to the newest instant among some times.

That is a likely error: the decay's length was given in another unit than the times, such as seconds
when the times are microseconds, or integer weights were not scaled up enough to fade.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.plausible_times import dated
from decaysketch.core.time_units import NANOSECONDS, spelled

__all__ = ["left_out_by_age"]

_NOTHING = 2.0**-20  # of the weight of the newest instant: no answer shows it


def left_out_by_age(
    weights_at: Callable[[npt.NDArray[np.int64]], Any],
    times: npt.NDArray[np.int64],
    now: int,
    unit: str,
) -> str | None:
    """Report that only the newest instant has weight, and how much older the next instant is.

    Return None if other instants have weight, if there are none, or if the newest has none either.

    Args:
        weights_at: the decay's weights at ages.
        times: latest first. Times after ``now`` are ignored.
        now: time at which the weights apply.
        unit: unit of the times. Times that are not dates in it are ignored.

    Complexity: O(log rows).

    Example:
        >>> times = np.array([1_767_225_660, 1_767_225_600])
        >>> left_out_by_age(lambda ages: ages <= 5, times, 1_767_225_660, "s")
        'only the newest instant has weight, and the next one is 1m older'
        >>> left_out_by_age(lambda ages: ages <= 60, times, 1_767_225_660, "s")
    """
    first = bisect_left(times, -now, key=lambda time: -int(time))
    if first == len(times) or dated(unit, newest := int(times[first])) is None:
        return None
    after = bisect_right(times, -newest, first, key=lambda time: -int(time))
    if after == len(times):
        return None
    before = int(times[after])
    one, other = weights_at(np.array([now - newest, now - before])).tolist()
    if other > one * _NOTHING or not one:
        return None
    older = spelled(Fraction((newest - before) * NANOSECONDS[unit]))
    return f"only the newest instant has weight, and the next one is {older} older"
