"""The current time, in the time unit of a stream.

Only the units known here have a wall clock. For a stream that counts in another unit (frames,
"ticks") only its sources know the time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from decaysketch.core.time_units import NANOSECONDS

__all__ = ["now_in", "now_ns", "utc"]


def now_ns() -> int:
    """Return the clock of this machine: nanoseconds since 1970-01-01 UTC."""
    return time.time_ns()


def now_in(unit: str, ns: int) -> int | None:
    """Return a time in whole units, rounded down.

    Args:
        unit: ``time_unit`` of a stream.
        ns: nanoseconds since 1970.

    Returns:
        None where the unit has no wall clock.

    Example:
        >>> now_in("ms", 1_700_000_000_123_456_789), now_in("frames", 0)
        (1700000000123, None)
    """
    size = NANOSECONDS.get(unit)
    return None if size is None else ns // size


def utc(time_us: int) -> datetime:
    """Return a time in microseconds since 1970, in the form that JSON responses use."""
    return datetime.fromtimestamp(time_us / 1e6, tz=UTC)
