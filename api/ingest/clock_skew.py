"""Times that lie in the future are refused: a clock that runs ahead would hold its place for long.

The latest observations are what a sketch keeps, so one post dated next year would crowd out all
others until next year; and a clock or watermark of next year would make it forget everything.

A clock is held to more than a time is. An observation that is dated a little ahead waits until its
time has come and takes nothing from anybody; a clock that is a little ahead makes the whole stream
forget what is not due yet, whoever posted it. So of a stream that forgets by a clock, one may lie
ahead by ``CLOCK_SHARE`` of the time in which it forgets: of the largest window of a sampler, of the
age at which an integral decay has halved the largest weight. What lies between that and the skew
that is allowed is refused for now and not for good: when its time has come it is taken as it is.
Nothing is lost by that, since what a clock that runs ahead dates is not counted before then either.

To take it at once with an earlier clock would be no better: what its sender has forgotten by the
later one is missing from it, and answers would say that they are complete.
"""

from __future__ import annotations

from api.errors import ClockAheadError, ClockEarlyError
from api.service.clock import now_in
from decaysketch import Snapshot
from decaysketch.core.time_units import NANOSECONDS

__all__ = ["CLOCK_SHARE", "check_times", "clock_lead_s", "latest_time"]

CLOCK_SHARE = 0.05

_NS = 1_000_000_000


def latest_time(unit: str, max_clock_skew_s: float | None, now_ns: int) -> int | None:
    """Return the latest accepted time: now and the allowed skew, in whole units.

    Args:
        unit: the stream's ``time_unit``.
        max_clock_skew_s: seconds; None allows any.
        now_ns: the clock of this machine, nanoseconds since 1970.

    Returns:
        None where any time is accepted: nothing is forbidden, or the unit has no wall clock.
    """
    if max_clock_skew_s is None:
        return None
    return now_in(unit, now_ns + round(max_clock_skew_s * 1e9))


def clock_lead_s(snapshot: Snapshot, max_clock_skew_s: float | None) -> float | None:
    """Return how many seconds the clock of a sketch may lie ahead of this machine's.

    Args:
        snapshot: of the stream, or posted to it.
        max_clock_skew_s: that a time may lie ahead; None allows any.

    Returns:
        At most ``max_clock_skew_s``; None where any clock is accepted.
    """
    size_ns = NANOSECONDS.get(snapshot.params.time_unit)
    if max_clock_skew_s is None or size_ns is None:
        return None
    if snapshot.horizon is None:
        return max_clock_skew_s
    return min(max_clock_skew_s, CLOCK_SHARE * snapshot.horizon * size_ns / _NS)


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
        ClockEarlyError: the clock alone is ahead, and by less than that.
    """
    limit = latest_time(snapshot.params.time_unit, max_clock_skew_s, now_ns)
    if limit is None or max_clock_skew_s is None:
        return
    times = {
        "newest": snapshot.newest,
        "watermarks": max((m for m in snapshot.complete_since if m is not None), default=None),
        "clock": snapshot.clock,
    }
    allowed = {"newest": limit, "watermarks": limit + snapshot.reach, "clock": limit}
    late = {name: time for name, time in times.items() if time is not None and time > allowed[name]}
    if late:
        raise ClockAheadError(stream, limit, max_clock_skew_s, late, snapshot.params.time_unit)
    if snapshot.clock is not None:
        _check_clock(snapshot, snapshot.clock, stream, max_clock_skew_s, now_ns)


def _check_clock(
    snapshot: Snapshot, clock: int, stream: str, max_clock_skew_s: float, now_ns: int
) -> None:
    size_ns = NANOSECONDS[snapshot.params.time_unit]
    if clock * size_ns <= now_ns:  # as nearly always: how far it may lie ahead does not matter
        return
    lead_s = clock_lead_s(snapshot, max_clock_skew_s)
    assert lead_s is not None
    reached_ns = now_ns + round(lead_s * _NS)
    if clock * size_ns > reached_ns:
        wait_s = -((reached_ns - clock * size_ns) // _NS)
        raise ClockEarlyError(stream, clock, reached_ns // size_ns, lead_s, wait_s)
