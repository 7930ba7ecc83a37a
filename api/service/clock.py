"""What time it is, in the unit that a stream counts in.

Only units that are known here have a wall clock; of a stream that counts in anything else (frames,
"ticks") nobody but its senders knows the time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from decaysketch.core.time_units import NANOSECONDS

__all__ = ["now_in", "now_ns", "utc"]


def now_ns() -> int:
    """The clock of this machine: nanoseconds since 1970-01-01 UTC."""
    return time.time_ns()


def now_in(unit: str, ns: int) -> int | None:
    """A time in whole units, rounded down.

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
    """A time in microseconds since 1970, as JSON is told it."""
    return datetime.fromtimestamp(time_us / 1e6, tz=UTC)
