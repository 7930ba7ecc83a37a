"""Times that lie in the future are refused: a clock that runs ahead would hold its place for long.

The latest observations are what a sketch keeps, so one post dated next year would crowd out all
others until next year; and a clock or watermark of next year would make it forget everything.
"""

from __future__ import annotations

from api.clock import now_in
from api.errors import ClockAheadError
from api.families import Snapshot

__all__ = ["check_times", "latest_time"]


def latest_time(unit: str, max_clock_skew_s: float | None, now_ns: int) -> int | None:
    """The latest time that is taken: now and the skew that is allowed, in whole units.

    Args:
        unit: the stream's ``time_unit``.
        max_clock_skew_s: seconds; None allows any.
        now_ns: the clock of this machine, nanoseconds since 1970.

    Returns:
        None where any time is taken: nothing is forbidden, or the unit has no wall clock.
    """
    if max_clock_skew_s is None:
        return None
    return now_in(unit, now_ns + round(max_clock_skew_s * 1e9))


def check_times(
    snapshot: Snapshot, *, stream: str, max_clock_skew_s: float | None, now_ns: int
) -> None:
    """Refuse a sketch whose observations, watermarks or clock lie in the future.

    A watermark of an integral sketch is the time at which an observation expires: it may lie ahead
    by as much as the decay reaches.

    Args:
        snapshot: what was posted.
        stream: name of the stream.
        max_clock_skew_s, now_ns: see :func:`latest_time`.

    Raises:
        ClockAheadError: naming each of these times and the latest that is taken.
    """
    limit = latest_time(snapshot.params.time_unit, max_clock_skew_s, now_ns)
    if limit is None or max_clock_skew_s is None:
        return
    times = {
        "newest": snapshot.newest,
        "watermarks": max((mark for mark in snapshot.watermarks if mark is not None), default=None),
        "clock": snapshot.clock,
    }
    allowed = {"newest": limit, "watermarks": limit + snapshot.reach, "clock": limit}
    late = {name: time for name, time in times.items() if time is not None and time > allowed[name]}
    if late:
        raise ClockAheadError(stream, limit, max_clock_skew_s, late)
