"""Calendar fields for times, in UTC or in a named time zone.

Fields are arithmetic on days and seconds. A zone adds its offset, read from the zone database once
per 512-day block: day by day, and where two days differ, by bisection down to the second. Times
before 1900 or after 2199 use the offset from the nearest of these years, so that reading takes
bounded time for any times in a stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ParameterError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = ["FIELDS", "check_zone", "dates", "seconds_of"]

Int64Array = npt.NDArray[np.int64]

_S = 1_000_000_000
_DAY = 86_400
_BLOCK = 512 * _DAY
_FIRST, _LAST = -2_208_988_800, 7_258_118_399  # 1900-01-01 and 2199-12-31, in seconds
_FARTHEST = 1 << 45  # seconds: a million years
_NEAR = 1 << 16  # days
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,3}")


def check_zone(name: str) -> str:
    """Return the name of a time zone.

    Raises:
        ParameterError: the zone database does not have it.
    """
    _zone(name)
    return name


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # few programs need it

    # A name is a path below the database, so only valid names are looked up.
    try:
        if len(name) <= 64 and _NAME.fullmatch(name):
            return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        pass
    raise ParameterError(
        f"the IANA database has no time zone {name!r:.80} (on a system without the database: "
        "pip install tzdata)"
    )


@lru_cache(maxsize=1024)
def _block(name: str, number: int) -> tuple[Int64Array, Int64Array]:
    """Return the seconds at which a zone's offset changes within a block, including the block's
    first second, and the offsets.
    """
    zone = _zone(name)

    def offset(second: int) -> int:
        there = datetime.fromtimestamp(second, UTC).astimezone(zone).utcoffset()
        return 0 if there is None else int(there.total_seconds())

    first = number * _BLOCK
    starts, offsets = [first], [offset(first)]
    for day in range(first + _DAY, first + _BLOCK + 1, _DAY):
        if (found := offset(day)) == offsets[-1]:
            continue
        low, high = day - _DAY, day
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == offsets[-1] else (low, middle)
        starts.append(high)
        offsets.append(found)
    return np.array(starts), np.array(offsets)


def seconds_of(times: Int64Array, unit: str, zone: str | None) -> Int64Array:
    """Return seconds since 1970-01-01 on a zone's clock, rounded down.

    Args:
        times: int64[n], in a stream's unit.
        unit: a key in :data:`~decaysketch.core.time_units.NANOSECONDS`.
        zone: its name. None: UTC.

    Complexity: O(n log changes), and a thousandth of a second once per zone and 512 days.
    """
    size = NANOSECONDS[unit]
    if size < _S:
        seconds = times // (_S // size)
    else:
        seconds = np.clip(times, -_FARTHEST, _FARTHEST) * (size // _S)
    if zone is None or not len(seconds):
        return seconds
    clipped = np.clip(seconds, _FIRST, _LAST)
    low, high = int(clipped.min()) // _BLOCK, int(clipped.max()) // _BLOCK
    blocks = [_block(zone, number) for number in range(low, high + 1)]
    starts, offsets = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return np.asarray(seconds + offsets[np.searchsorted(starts, clipped, side="right") - 1])


def _month(seconds: Int64Array) -> Int64Array:
    days = (seconds // _DAY).astype("datetime64[D]")
    return days.astype("datetime64[M]").astype(np.int64) % 12 + 1


#: Fields of seconds of a clock, by the name of their function: integers.
FIELDS: Mapping[str, Callable[[Int64Array], Int64Array]] = {
    "hour": lambda seconds: seconds // 3600 % 24,
    "minute": lambda seconds: seconds // 60 % 60,
    "weekday": lambda seconds: (seconds // _DAY + 3) % 7,  # Monday is 0
    "month": _month,
}


def dates(seconds: Int64Array) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Return the days for seconds on a clock: a day number for each, and the days as
    ``2026-01-31``, rising.
    """
    days = seconds // _DAY
    first = int(days.min()) if len(days) else 0
    if len(days) and int(days.max()) - first < _NEAR:  # no sort
        present = np.zeros(int(days.max()) - first + 1, np.bool_)
        present[days - first] = True
        numbers = (np.cumsum(present) - 1)[days - first]
        days = np.flatnonzero(present) + first
    else:
        days, numbers = np.unique(days, return_inverse=True)
    texts = np.datetime_as_string(days.astype("datetime64[D]"), unit="D")
    return numbers.astype(np.intp, copy=False), texts.tolist()
