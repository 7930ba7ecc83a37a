"""Time units with a wall clock, and every notation for a time length and a moment.

Sketches count in integers with one unit. People write ``"1h30m"`` and ``datetime``.
:func:`duration` and :func:`instant` convert these into numbers in the unit, exactly or not at all.
They are the only functions that do so. A stream may use any other unit as well. Then there is
nothing to convert.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from decaysketch.errors import ParameterError

__all__ = [
    "LENGTHS",
    "NANOSECONDS",
    "Instant",
    "Length",
    "check_clocked",
    "decimal_of",
    "duration",
    "in_units",
    "instant",
    "is_length",
    "length_meant",
    "length_of",
    "moment_before",
    "now_in",
    "spelled",
    "unit_meant",
]

_S = 1_000_000_000

#: Nanoseconds of each unit; times count from 1970-01-01 UTC.
NANOSECONDS: Mapping[str, int] = MappingProxyType(
    {
        "ns": 1,
        "us": 1_000,
        "ms": 1_000_000,
        "s": _S,
        "min": 60 * _S,
        "m": 60 * _S,
        "h": 3600 * _S,
        "d": 86_400 * _S,
    }
)

#: Nanoseconds of each unit of a length of time: no stream counts in weeks.
LENGTHS: Mapping[str, int] = MappingProxyType({**NANOSECONDS, "w": 7 * 86_400 * _S})

Length = int | float | str | timedelta | np.timedelta64
"""A number in the stream's units, or a length with its own unit."""

Instant = int | str | datetime | np.datetime64
"""A number in the stream's units since its beginning, or an object that names a moment."""

_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s|min|m|h|d|w)\s*")
_WORDS = {
    "hour": "h", "hr": "h", "minute": "min", "min": "min", "second": "s", "sec": "s", "day": "d",
    "week": "w", "wk": "w", "millisecond": "ms", "msec": "ms", "milli": "ms", "microsecond": "us",
    "usec": "us", "micro": "us", "nanosecond": "ns", "nsec": "ns", "nano": "ns",
}  # fmt: skip
_WORDED = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]{2,12})\s*")
_LONGEST = 100  # characters of a text
_MOST = 10**300  # units, beyond every stream
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(?<=[.,])[0-9]{6}([0-9]+)")  # digits of a second that datetime drops


def is_length(given: object) -> bool:
    """Return whether the argument is, or tries to be, a time length with its own unit."""
    return isinstance(given, str | timedelta | np.timedelta64)


def length_of(name: str, given: Any) -> Fraction:
    """Return the nanoseconds in a time length with its own unit.

    Raises:
        ParameterError: it is no time length, or it is negative.
    """
    found: Fraction | None = None
    if isinstance(given, timedelta):  # of pandas as well, which counts nanoseconds
        seconds = given.days * 86_400 + given.seconds
        below = given.microseconds * 1000 + int(getattr(given, "nanoseconds", 0))
        if seconds == seconds:  # not NaT
            found = Fraction(seconds * _S + below)
    elif isinstance(given, np.timedelta64):
        found = _ticks(given)
    elif isinstance(given, str) and len(given) <= _LONGEST:
        found = _parts(given)
    if found is None or found < 0:
        raise ParameterError(
            f"{name} is {given!r:.120}; expected a length of time such as '90s' or '1h30m' "
            f"({', '.join(LENGTHS)}), or a timedelta"
            f"{length_meant(given) if isinstance(given, str) and len(given) <= _LONGEST else ''}"
        )
    return found


def _parts(text: str) -> Fraction | None:
    """Return the sum of parts such as "1h" and "30m"."""
    found, at = Fraction(0), 0
    while part := _PART.match(text, at):
        found += Fraction(part[1]) * LENGTHS[part[2].replace("µ", "u")]
        at = part.end()
    return found if at and at == len(text) else None


def _ticks(given: np.timedelta64 | np.datetime64) -> Fraction | None:
    """Return the nanoseconds in a NumPy count, or None for NaT, months and years."""
    unit, count = np.datetime_data(given.dtype)
    size = LENGTHS.get({"D": "d", "W": "w"}.get(unit, unit))
    if np.isnat(given) or size is None:
        return None
    return Fraction(int(given.astype(np.int64)) * count * size)


def decimal_of(length: Fraction) -> int | float | None:
    """Return a unit count as an integer if it is one, else as the float written the same way, or
    None if there is none.
    """
    if length.denominator == 1:
        return int(length)
    decimal = float(length) if abs(length) < _MOST else 0.0
    return decimal if Fraction(repr(decimal)) == length else None


def check_clocked(name: str, given: object, unit: str) -> int:
    """Return the nanoseconds in a stream's unit, for a conversion into it.

    Raises:
        ParameterError: the unit has no wall clock.
    """
    size = NANOSECONDS.get(unit)
    if size is None:
        raise ParameterError(
            f"{name} is {given!r:.120}, and the stream's unit {unit!r} cannot be converted to; "
            f"give a number of {unit}, or build with one of {', '.join(NANOSECONDS)}"
        )
    return size


def duration(given: Length, unit: str, *, name: str = "duration") -> int | float:
    """Return a time length as a number in a stream's units.

    Args:
        given: a number, as it is. Or "1h30m", "90s" (units as in :data:`LENGTHS`), a ``timedelta``
            from Python or pandas, or ``numpy.timedelta64``.
        unit: of the stream.
        name: for errors.

    Raises:
        ParameterError: no time length, a unit that cannot be converted, or a number in the stream's
            units without an exact decimal.

    Example:
        >>> duration("1h30m", "s"), duration("90s", "min"), duration(7, "ticks")
        (5400, 1.5, 7)
    """
    if not is_length(given):  # a timedelta64 is an integer as well, to NumPy
        if isinstance(given, bool) or not isinstance(given, int | float | np.integer | np.floating):
            length_of(name, given)
        number: int | float = given.item() if isinstance(given, np.generic) else given  # type: ignore[assignment]
        return number
    nanoseconds = length_of(name, given)
    length = nanoseconds / check_clocked(name, given, unit)
    number_of = decimal_of(length)
    if number_of is None:
        raise ParameterError(
            f"{name} is {given!r}; expected a decimal number of the stream's unit {unit!r}; it is "
            f"{length} of them"
        )
    return number_of


def unit_meant(word: str) -> str | None:
    """Return the unit that an English word names. None: no unit.

    Example:
        >>> unit_meant("hours"), unit_meant("hr"), unit_meant("parsec")
        ('h', 'h', None)
    """
    return _WORDS.get(word.lower().removesuffix("s"))


def length_meant(text: str) -> str:
    """Return an addition to a message that rejects a time length: its correct notation, empty if
    that is unclear.

    Example:
        >>> length_meant("1 hour")
        "; did you mean '1h'?"
    """
    found = _WORDED.fullmatch(text)
    unit = None if found is None else unit_meant(found[2])
    return "" if found is None or unit is None else f"; did you mean '{found[1]}{unit}'?"


def spelled(nanoseconds: Fraction) -> str:
    """Return a time length as the shortest text with whole units that has this length.

    Example:
        >>> spelled(Fraction(5_400_000_000_000)), spelled(Fraction(0)), spelled(Fraction(1, 2))
        ('1h30m', '0s', '0.5ns')
    """
    rest, parts = nanoseconds, []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        whole, rest = divmod(rest, LENGTHS[unit])
        if whole:
            parts.append(f"{whole}{unit}")
    if rest:
        parts.append(f"{decimal_of(rest)}ns")
    return "".join(parts) or "0s"


def instant(given: Instant, unit: str, *, name: str = "now") -> int:
    """Return a moment as a number in a stream's units, rounded down as clocks are.

    Args:
        given: an integer, as it is. A ``datetime`` with a time zone, or pandas' ``Timestamp`` with
            one. ``numpy.datetime64``, which is UTC. Or an ISO text with a zone.
        unit: of the stream.
        name: for errors.

    Raises:
        ParameterError: no moment, one without a zone, or a unit that cannot be converted.

    Example:
        >>> instant("2026-01-01T01:00:00+01:00", "ms"), instant(12, "ticks")
        (1767225600000, 12)
    """
    if isinstance(given, int | np.integer) and not isinstance(given, bool | np.timedelta64):
        return int(given)
    found: Fraction | None = None
    if isinstance(given, np.datetime64):
        found = _ticks(given)
    elif isinstance(given, datetime):
        found = _since_epoch(name, given)
    elif isinstance(given, str) and len(given) <= _LONGEST:
        found = _iso(name, given)
    if found is None:
        raise ParameterError(
            f"{name} is {given!r:.120}; expected an integer of the stream's unit, or a moment such "
            "as '2026-01-31T12:00:00+00:00' or a datetime with a time zone"
        )
    return int(found // check_clocked(name, given, unit))


def moment_before(
    given: Instant | timedelta | np.timedelta64 | None, later: int, unit: str, *, name: str
) -> Any:
    """Return a moment as :func:`in_units` does, or the moment that lies a time length before
    another.

    Raises:
        ParameterError: as :func:`instant`.

    Example:
        >>> moment_before("1h", 9000, "s", name="then"), moment_before(7, 9000, "s", name="then")
        (5400, 7)
    """
    ago = isinstance(given, timedelta | np.timedelta64) or (
        isinstance(given, str) and len(given) <= _LONGEST and _parts(given) is not None
    )
    if not ago:
        return in_units(given, unit, name=name)
    return math.floor(later - length_of(name, given) / check_clocked(name, given, unit))


def now_in(unit: str, ns: int) -> int | None:
    """Return a time in whole units, rounded down.

    Args:
        unit: unit of the result.
        ns: nanoseconds since 1970.

    Returns:
        None where the unit has no wall clock: it is not in :data:`NANOSECONDS`.

    Example:
        >>> now_in("ms", 1_700_000_000_123_456_789), now_in("frames", 0)
        (1700000000123, None)
    """
    size = NANOSECONDS.get(unit)
    return None if size is None else ns // size


def in_units(given: Any, unit: str, *, name: str = "now") -> Any:
    """Convert a moment as :func:`instant` does. Return other values unchanged, for others to
    check.
    """
    spells = isinstance(given, str | datetime | np.datetime64)
    return instant(given, unit, name=name) if spells else given


def _since_epoch(name: str, given: datetime) -> Fraction | None:
    if given != given:  # pandas' NaT
        return None
    if given.tzinfo is None or given.utcoffset() is None:
        raise ParameterError(
            f"{name} is {given.isoformat()}, which has no time zone; expected one, such as "
            f"{given.isoformat()}+00:00 for UTC"
        )
    since = given - _EPOCH
    below = since.microseconds * 1000 + int(getattr(since, "nanoseconds", 0))
    return Fraction((since.days * 86_400 + since.seconds) * _S + below)


def _iso(name: str, text: str) -> Fraction | None:
    finer = _FRACTION.search(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    found = _since_epoch(name, moment)
    if found is not None and finer is not None:
        found += Fraction(int(finer[1]), 10 ** len(finer[1])) * 1000
    return found
