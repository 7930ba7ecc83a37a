"""Reject times in the future: a clock that runs ahead would keep its place for long.

A sketch keeps the latest observations. So one post dated next year would crowd out all others until
next year. A clock or watermark dated next year would make it forget everything.

The rule for clocks is stricter than the rule for times. An observation dated a little ahead waits
until its time has come, and harms no other observation. A clock that is a little ahead makes the
complete stream forget rows that are not due yet, from every source. So in a stream that forgets by
a clock, a clock may lie ahead by at most ``CLOCK_SHARE`` times the forgetting time. This is a
sampler's largest window, or the age at which an integral decay has halved the largest weight. A
clock between that limit and the allowed skew is rejected only for now: when its time has come, the
server accepts it unchanged. This loses nothing, since observations dated by a clock that runs ahead
are not counted before then either.

Accepting it at once with an earlier clock would be no better. The rows that its sender has
forgotten by the later clock are missing, and results would claim to be complete.
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
        max_clock_skew_s: seconds. None allows any.
        now_ns: this machine's clock, in nanoseconds since 1970.

    Returns:
        None where any time is accepted: nothing is forbidden, or the unit has no wall clock.
    """
    if max_clock_skew_s is None:
        return None
    return now_in(unit, now_ns + round(max_clock_skew_s * 1e9))


def clock_lead_s(snapshot: Snapshot, max_clock_skew_s: float | None) -> float | None:
    """Return how many seconds a sketch's clock may lie ahead of this machine's.

    Args:
        snapshot: the stream's snapshot, or one posted to it.
        max_clock_skew_s: seconds that a time may lie ahead. None allows any.

    Returns:
        At most ``max_clock_skew_s``. None where any clock is accepted.
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
    """Reject a sketch with observations, watermarks or a clock in the future.

    A watermark in an integral sketch is the time at which an observation expires. It may lie ahead
    by as much as the decay reaches.

    Args:
        snapshot: the posted sketch.
        stream: the stream name.
        max_clock_skew_s, now_ns: see :func:`latest_time`.

    Raises:
        ClockAheadError: naming each such time and the latest accepted time.
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
