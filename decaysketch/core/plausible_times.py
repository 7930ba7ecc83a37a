"""Check whether integers are times in their declared unit.

Milliseconds in a stream with seconds are valid integers. Every sketch accepts them, and every
window that ends now contains none of them, exactly. They can be detected because they are no dates.
A time is *dated* if it lies in the years 1990 to 2100, counted from 1970 in its unit. A time that
is not dated, and would be dated in another unit among ns, us, ms and s, is suspicious.

Small times are not suspicious: streams that are simulated, or count from their own beginning, have
them. Suspicious are

    a time past 2100 that would be dated in a finer unit, and
    the oldest among some times, before 1990, that would be dated in a coarser unit: a stream that
    counts from its own beginning has times near 0 as well.

The dates in the four units lie 1000 times apart, so at most one unit fits. No clock is read, so the
same times always give the same result.

A decay that gives weight only to the newest instant is suspicious as well
(:func:`left_out_by_age`): its length was given in another unit than the times, such as seconds when
the times are microseconds, or integer weights were not scaled up enough to fade.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.row_check import SINCE_NS, UNTIL_NS
from decaysketch.core.time_units import NANOSECONDS, spelled

__all__ = [
    "Doubt",
    "dated",
    "doubt",
    "doubts_of_query",
    "in_another_unit",
    "is_dated",
    "left_out_by_age",
    "likely_unit",
    "of_another_clock",
    "span",
    "told",
    "unit_in_name",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING_NS = 315_576_000 * 1_000_000_000  # ten years
_LIKELY = ("s", "ms", "us", "ns")
_NOTHING = 2.0**-20  # of the weight of the newest instant: no answer shows it
_UNIT_AT_END = re.compile(r"(?:^|[_.\- ])(ns|us|ms|s|sec|secs|seconds|millis|micros|nanos)$", re.I)
_SPELLED = {
    "sec": "s", "secs": "s", "seconds": "s", "millis": "ms", "micros": "us", "nanos": "ns"
}  # fmt: skip


def _nanoseconds(unit: str, time: int) -> int | None:
    size = NANOSECONDS.get(unit)
    return None if size is None else int(time) * size


def _is_dated(unit: str, time: int) -> bool:
    at = _nanoseconds(unit, time)
    return at is not None and SINCE_NS <= at < UNTIL_NS


def dated(unit: str, time: int) -> str | None:
    """Return a time as a date, to the second. None if the unit has no wall clock or the time is not
    dated.

    Example:
        >>> dated("ms", 1_700_000_000_000), dated("s", 12)
        ('2023-11-14 22:13:20 UTC', None)
    """
    at = _nanoseconds(unit, time)
    if at is None or not SINCE_NS <= at < UNTIL_NS:
        return None
    moment = _EPOCH + timedelta(seconds=at // 1_000_000_000)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def of_another_clock(
    unit: str, rows: int, outside: int, ends: tuple[int, int] | None = None
) -> str | None:
    """Return a warning if some times are dates and others are not: those come from a clock that
    was not set.

    If no time is a date, the times count from a beginning of their own (a simulation), and there
    is nothing to warn about.

    Args:
        unit: the times' unit.
        rows, outside: how many times there were, and how many are ``row_check.undated``.
        ends: the oldest and the newest of these, if they are known.

    Returns:
        The warning, or None.

    Example:
        >>> print(of_another_clock("s", 10, 1, (0, 0)))
        1 of 10 times lies outside the years 1990 to 2099 (0 s): probably a clock was not set
    """
    if not outside or outside == rows:
        return None
    which = ""
    if ends is not None:
        which = f" ({' to '.join(str(each) for each in dict.fromkeys(ends))} {unit})"
    lie = "lies" if outside == 1 else "lie"
    return (
        f"{outside:,} of {rows:,} times {lie} outside the years 1990 to 2099{which}: probably a "
        "clock was not set"
    )


def is_dated(time_ns: int) -> bool:
    """Return whether nanoseconds since 1970 lie in the years 1990 to 2100."""
    return SINCE_NS <= time_ns < UNTIL_NS


def told(unit: str, time: int | None) -> str:
    """Return a time for people to read: the integer, its unit and, if it is dated, the date.

    Example:
        >>> told("s", 1_700_000_000), told("s", 12)
        ('1700000000 s (2023-11-14 22:13:20 UTC)', '12 s')
    """
    if time is None:
        return "None"
    date = dated(unit, time)
    return f"{time} {unit}" if date is None else f"{time} {unit} ({date})"


def span(unit: str, oldest: int | None, newest: int | None) -> str:
    """Return a time span for people to read.

    Example:
        >>> span("s", 1_700_000_000, 1_700_003_600), span("s", 12, 40)
        ('1700000000..1700003600 s (2023-11-14 22:13:20 to 23:13:20 UTC)', '12..40 s')
    """
    text = f"{oldest}..{newest} {unit}"
    if oldest is None or newest is None:
        return text
    first, last = dated(unit, oldest), dated(unit, newest)
    if first is None or last is None:
        return text
    last = last.removeprefix(first[:11])  # the day, where it is the same
    return f"{text} ({first.removesuffix(' UTC')} to {last})"


def likely_unit(unit: str, time: int) -> str | None:
    """Return the unit in which a time would be dated if it is not dated in its own, or None."""
    if unit not in NANOSECONDS or _is_dated(unit, time):
        return None
    return next((other for other in _LIKELY if _is_dated(other, time)), None)


def in_another_unit(unit: str, time: int) -> str:
    """Return an addition to a message that rejects a time, empty if no other unit fits.

    Example:
        >>> in_another_unit("s", 1_700_000_000_000)
        '; in ms it would be 2023-11-14 22:13:20 UTC'
    """
    likely = likely_unit(unit, time)
    return "" if likely is None else f"; in {likely} it would be {dated(likely, time)}"


class Doubt(NamedTuple):
    """A time that is unlikely in its unit.

    Attributes:
        time: the integer.
        unit: the declared unit.
        likely: the unit in which it would be a date.
    """

    time: int
    unit: str
    likely: str

    def __str__(self) -> str:
        other = in_another_unit(self.unit, self.time)
        return f"{self.time} {self.unit} is {self._reading()}{other}"

    def _reading(self) -> str:
        at = _nanoseconds(self.unit, self.time)
        assert at is not None
        year = 1970 + at // (31_556_952 * 1_000_000_000)
        return f"in the year {year:,}" if year > 9999 else f"in {year}"


def doubt(unit: str, oldest: int | None, newest: int | None) -> Doubt | None:
    """Return the warning about some times, by the module's rule.

    Args:
        unit: their declared unit. There is no warning if it has no wall clock.
        oldest, newest: the extreme times. None if there are no times.

    Example:
        >>> print(doubt("s", 1_699_990_000_000, 1_700_000_000_000))
        1700000000000 s is in the year 55,840; in ms it would be 2023-11-14 22:13:20 UTC
        >>> print(doubt("ms", 0, 1_700_000_000))
        None
    """
    size = NANOSECONDS.get(unit)
    if size is None or oldest is None or newest is None:
        return None
    for time, is_off in ((newest, newest * size >= UNTIL_NS), (oldest, oldest * size < SINCE_NS)):
        likely = likely_unit(unit, time) if is_off else None
        if likely is not None:
            return Doubt(int(time), unit, likely)
    return None


def doubts_of_query(
    unit: str, oldest: int | None, newest: int | None, nows: Iterable[int]
) -> list[str]:
    """Return the reasons why results are unlikely to fit the query, one sentence each.

    Args:
        unit: the sketch's time unit.
        oldest, newest: stored observations. None if there are none.
        nows: the query times.
    """
    found = []
    if (held := doubt(unit, oldest, newest)) is not None:
        found.append(f"the sketch contains times that are probably not in {unit}: {held}")
    nows = list(nows)
    if not nows:
        return found
    first, last = min(nows), max(nows)
    if (asked := doubt(unit, first, last)) is not None:
        found.append(f"now is probably not in {unit}: {asked}")
    elif held is None and newest is not None and unit in NANOSECONDS:
        for now in (last, first):
            if _of_two_clocks(unit, now, newest) or _of_two_clocks(unit, newest, now):
                found.append(
                    f"now is {told(unit, now)} and the newest observation is of "
                    f"{told(unit, newest)}: they are probably from different clocks"
                )
                break
    return found


def _of_two_clocks(unit: str, one: int, other: int) -> bool:
    """Return whether one time is a date, and the other counts from its own beginning."""
    at = _nanoseconds(unit, other)
    return at is not None and abs(at) < _BEGINNING_NS and _is_dated(unit, one)


def unit_in_name(name: str) -> str | None:
    """Return the unit at the end of a column's name, such as us in ``event_us``. None: no unit.

    Example:
        >>> unit_in_name("event_us"), unit_in_name("sent_millis"), unit_in_name("times")
        ('us', 'ms', None)
    """
    found = _UNIT_AT_END.search(name)
    if found is None:
        return None
    word = found[1].lower()
    return _SPELLED.get(word, word)


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
    ascending, size = times[::-1], len(times)
    first = size - int(ascending.searchsorted(now, side="right"))
    if first == size or not _is_dated(unit, newest := int(times[first])):
        return None
    after = size - int(ascending.searchsorted(newest))
    if after == size:
        return None
    before = int(times[after])
    one, other = weights_at(np.array([now - newest, now - before])).tolist()
    if other > one * _NOTHING or not one:
        return None
    older = spelled(Fraction((newest - before) * NANOSECONDS[unit]))
    return f"only the newest instant has weight, and the next one is {older} older"
