"""Readings that a later reading with the same id replaced.

Among the rows with one id the latest represents the id, which is right for duplicates and
corrections. An id may repeat for another reading (a counter that restarts, a replaced device, an id
without the counter). Then the later reading replaces the earlier one, and nothing in the state
shows that a reading is gone. Compaction sees it: it meets both rows and drops one of them.

Two rows with one id and weight are *different readings* if

* their times lie more than a minute apart and their values differ (a duplicate that each receiver
  stamps itself has one value), or
* their times lie more than a day apart, with any values.

Sketches count the rows dropped for this reason in ``stats().replaced``. The count belongs to one
object and to the work it did. It is not part of the state. A row that comes again after it was
replaced counts again. A row below a watermark is dropped before a row is compared with it. So the
count is a sample of the lost readings, and it is 0 if nothing is wrong. Counting costs one
comparison for each duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence

from decaysketch.core.time_units import NANOSECONDS

__all__ = ["REMEDY", "far_apart", "replaced_readings"]

_OTHER_NS = 60 * 1_000_000_000
_ANY_NS = 86_400 * 1_000_000_000
_NEVER = (1 << 64) - 1
_FEW = 0.01  # of the rows held, which may be corrections

#: What tells readings of one id apart.
REMEDY = (
    "add to the id what tells them apart: a counter of boots or sessions, or the time where "
    "duplicates have one time"
)


def far_apart(unit: str) -> tuple[int, int]:
    """Return how far apart the times of different readings with one id lie, in a unit.

    Args:
        unit: the stream's unit. A unit without a wall clock gives no limit.

    Returns:
        (with another value, with any value): both are exceeded.

    Example:
        >>> far_apart("s"), far_apart("h")
        ((60, 86400), (0, 24))
    """
    size = NANOSECONDS.get(unit)
    return (_NEVER, _NEVER) if size is None else (_OTHER_NS // size, _ANY_NS // size)


def replaced_readings(
    replaced: int, held: int, names: Sequence[str] = (), *, read: bool = False
) -> str | None:
    """Return the sentence for replaced readings. None: they are few.

    Args:
        replaced: as in ``stats().replaced``.
        held: remaining rows.
        read: whether ``held`` counts the rows that were read instead, with their duplicates.
        names: the columns or paths in the id.

    Example:
        >>> replaced_readings(5, 1000) is None
        True
    """
    if replaced <= _FEW * held:
        return None
    of = f" (of {', '.join(map(repr, names))})" if names else ""
    readings = "1 reading was" if replaced == 1 else f"{replaced:,} readings were"
    rest = f"of {held:,} rows" if read else f"{held:,} are left"
    return (
        f"{readings} replaced by a later one of the same id{of}, more than a minute away with "
        f"another value or more than a day away; {rest}. The id comes again, as after a counter "
        f"restarted: {REMEDY}"
    )
