"""Checks of a post before it is committed: its times, its interval, and warnings.

**Times in the future are rejected.** A clock that runs ahead would keep its place for long. A
sketch keeps the latest observations. So one post dated next year would crowd out all others until
next year. A clock or watermark dated next year would make it forget everything.

The rule for clocks is stricter than the rule for times. An observation dated a little ahead waits
until its time has come, and harms no other observation. A clock that is a little ahead makes the
complete stream forget rows that are not due yet, from every source. So in a stream that forgets by
a clock, a clock may lie ahead by at most ``CLOCK_SHARE`` times the forgetting time. This is a
sampler's largest window, or the age at which an integral decay has halved the largest weight. A
clock between that limit and the allowed skew is rejected only for now: when its time has come, the
server accepts it unchanged. This loses nothing, since observations dated by a clock that runs ahead
are not counted before then either. Accepting it at once with an earlier clock would be no better.
The rows that its sender has forgotten by the later clock are missing, and results would claim to be
complete.

**The interval that a post declares** uses up its numbers for ever. So an interval that claims too
many, by mistake or on purpose, silences its source. Two bounds apply:

* ``next - first`` is at most ``max_interval``: more elements than one sketch is ever fed.
* A sketch without any watermark has discarded nothing: each number that it was fed is a row, except
  for zero elements in a sum, elements rejected by ``not_after``, and duplicates. So at most
  ``UNSHOWN`` numbers in an interval may lack a row.

A sketch with watermarks shows no more than that: its clock may have expired any number of elements,
and a sampler over 10^9 elements keeps about as many rows as one over 10^6. The numbers of its rows
are not checked: their names are hashed together with the sampler's own name.

**Warnings** report suspicious posts that are accepted: mappings that rename stored readings, and
observations that look like duplicates of one another.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from api.errors import ClockAheadError, ClockEarlyError, Fault, InvalidRequestError
from api.journal.log import Interval
from api.service.streams import latest_time
from decaysketch import Snapshot
from decaysketch.core.plausible_times import doubt
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.mapping import Map

__all__ = [
    "CLOCK_SHARE",
    "UNSHOWN",
    "check_interval",
    "check_length",
    "check_times",
    "clock_lead_s",
    "doubts_of_columns",
    "doubts_of_copies",
    "doubts_of_ids",
    "doubts_of_maps",
    "doubts_of_sketches",
    "doubts_of_unit",
    "doubts_of_views",
    "interval_of",
]

CLOCK_SHARE = 0.05

_NS = 1_000_000_000


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
        max_clock_skew_s, now_ns: see :func:`~api.service.streams.latest_time`.

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


UNSHOWN = 1 << 20  # a Sensor posts after 10,000 rows, or as many as one update brings


def interval_of(first: int | None, one_past: int | None) -> Interval | None:
    """Return a request's interval, or None where it has none.

    Raises:
        InvalidRequestError: a bound is missing, or the interval contains no number.
    """
    if first is None and one_past is None:
        return None
    for name, other, given in (("first", "next", first), ("next", "first", one_past)):
        if given is None:
            raise InvalidRequestError(
                f"{other} is given and {name} is not: an interval is given by both",
                [Fault(field=name, reason=f"missing, beside {other}")],
            )
    assert first is not None
    assert one_past is not None
    if first >= one_past:
        raise InvalidRequestError(
            f"the interval [{first}, {one_past}) is empty",
            [Fault(field="next", reason=f"expected more than first, {first}", value=one_past)],
        )
    return Interval(first, one_past)


def check_length(interval: Interval, max_interval: int) -> None:
    """Reject an interval with more numbers.

    Raises:
        InvalidRequestError: naming the number count and its limit.
    """
    if interval.next - interval.first > max_interval:
        _refuse(interval, max_interval, f"expected at most {max_interval} (max_interval)")


def check_interval(interval: Interval, sketch: Snapshot, *, max_interval: int) -> None:
    """Reject an interval that does not fit the sketch posted with it.

    Args:
        interval: the declared interval.
        sketch: the posted sketch.
        max_interval: maximum number count.

    Raises:
        InvalidRequestError: naming the number count and its limit.
    """
    check_length(interval, max_interval)
    numbers = interval.next - interval.first
    if numbers - len(sketch) > UNSHOWN and all(mark is None for mark in sketch.complete_since):
        most = len(sketch) + UNSHOWN
        why = (
            f"the sketch has {len(sketch)} rows and no watermark, so it has discarded nothing: "
            f"expected at most {most}"
        )
        _refuse(interval, most, why)


def _refuse(interval: Interval, most: int, why: str) -> None:
    raise InvalidRequestError(
        f"the interval [{interval.first}, {interval.next}) has {interval.next - interval.first} "
        f"numbers; {why}",
        [
            Fault(
                field="next",
                reason="too far past first",
                value=interval.next,
                expected=f"at most {interval.first + most}",
            )
        ],
    )


_CALLED = {
    "nsec": "ns", "nanos": "ns", "nanoseconds": "ns", "usec": "us", "micros": "us", "µs": "us",
    "microseconds": "us", "msec": "ms", "millis": "ms", "milliseconds": "ms", "sec": "s",
    "secs": "s", "second": "s", "seconds": "s", "mins": "min", "minute": "min", "minutes": "min",
    "hr": "h", "hour": "h", "hours": "h", "day": "d", "days": "d",
}  # fmt: skip
_MANY = 10  # observations


def doubts_of_columns(unit: str, times: npt.NDArray[np.int64]) -> list[str]:
    """Return warnings about accepted observations."""
    if not len(times):
        return []
    return _said(unit, int(times.min()), int(times.max()))


def doubts_of_sketches(unit: str, sketches: Iterable[Snapshot]) -> list[str]:
    """Return warnings about the content of sketches, all together."""
    spans = [(each.oldest, each.newest) for each in sketches]
    oldest = min((first for first, _ in spans if first is not None), default=None)
    newest = max((last for _, last in spans if last is not None), default=None)
    return _said(unit, oldest, newest)


def doubts_of_views(rows: int, reason: str) -> list[str]:
    """Return a warning that a derived stream did not accept so many rows.

    Args:
        rows: so many.
        reason: the reason for the last ones.
    """
    if not rows:
        return []
    return [
        f"{rows} rows of its input stream were not accepted since the server started: {reason}. "
        "Devices may be missing here"
    ]


def doubts_of_copies(disagreeing: int) -> list[str]:
    """Return a warning about observations that share identity and time with another one, and have
    another value.
    """
    if not disagreeing:
        return []
    which = "1 observation has" if disagreeing == 1 else f"{disagreeing} observations have"
    return [
        f"{which} the id and the time of another one, and another value: these are no copies, and "
        "of an id and a time the largest value alone stays; does what names them leave out what "
        "tells them apart, such as the tag of a machine?"
    ]


def doubts_of_ids(moments: int, identities: int) -> list[str]:
    """Return a warning about a body whose observations have few ids, at many times."""
    if moments < _MANY or moments <= 2 * identities:
        return []
    return [
        f"observations of {moments} different times have {identities} "
        f"id{'s' * (identities != 1)}, and only the latest of each id counts: an id must name a "
        'message, such as ["device", 17], not the device'
    ]


def doubts_of_unit(unit: str) -> list[str]:
    """Return a warning about a time unit without a clock whose name resembles a unit with one."""
    if unit in NANOSECONDS or (meant := _CALLED.get(unit.lower())) is None:
        return []
    return [
        f"time_unit is {unit!r}, which has no clock: lengths such as 1h are invalid, and every "
        f"query needs a now; did you mean {meant!r}?"
    ]


def doubts_of_maps(before: Mappings, now: Mappings) -> list[str]:
    """Return a warning about new mappings that give accepted readings other ids."""
    gone = [each for each in before.map if each not in now.map]
    said = []
    for place, each in enumerate(now.map):
        if each in before.map:
            continue
        same = [other for other in gone if _read_alike(each, other)]
        if same and not any(_same(each, other, each.named_by) for other in same):
            changed = [name for name in each.named_by if not _same(each, same[0], (name,))]
            said.append(
                f"map[{place}] has another {' and '.join(changed)}, of which ids are made: what "
                "the stream holds is counted again if it is sent again; delete the stream and "
                "post anew, or post what is new only"
            )
    return said


def _read_alike(one: Map, other: Map) -> bool:
    """Return whether two mappings read some readings in common. A mapping that fills columns may
    read every measurement or metric.
    """
    if one.columns is None or other.columns is None:
        return _same(one, other, ("format", *one.reads))
    wide = None in (getattr(one, "series_name", ""), getattr(other, "series_name", ""))
    return _same(one, other, ("format",)) and (wide or _same(one, other, one.reads))


def _same(one: Map, other: Map, names: Iterable[str]) -> bool:
    return all(getattr(one, name, None) == getattr(other, name, None) for name in names)


def _said(unit: str, oldest: int | None, newest: int | None) -> list[str]:
    found = doubt(unit, oldest, newest)
    return [] if found is None else [f"times are probably not in {unit}: {found}"]
