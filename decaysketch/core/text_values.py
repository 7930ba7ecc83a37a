"""Numbers and times that are written as text, read by one rule.

CSV has nothing but text, JSON often has numbers in quotes, and a data frame column becomes text as
soon as one cell is odd. Every reader in the library (files, data frames, Spark, messages, HTTP)
parses such a text here, so that one text has one meaning on every interface.

Numbers
    Digits with one decimal mark, a sign and an exponent: ``21.5``, ``00.693``, ``-3``, ``1e3``. A
    :class:`Numerals` declares another decimal mark and a thousands separator. The separator must
    part groups with three digits (two in India, except for the last), so that ``1,5`` is never 15.
    Hexadecimal digits, ``inf`` and ``nan`` are no numbers.
Times
    ISO 8601 and RFC 3339 with ``T`` or a space, ``2026/01/31``, and ``31.01.2026``, which is the
    day first wherever it is written. Any other order of day and month needs a ``strptime`` format.
    Digits below the nanosecond are cut off.
Zones
    A time without a zone is read in the ``zone`` of the caller. If the caller has none, the time
    is read as UTC and :attr:`Moment.zoned` is False. A reader of columns then warns once. A reader
    of messages rejects the message, because nothing can take it back later. A local time that a
    clock shows twice is the earlier one. A local time that a clock skips is no time.
Missing
    :data:`MISSING` are the texts that programs write where there is no number.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from typing import NamedTuple

from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ParameterError

__all__ = [
    "MISSING",
    "PLAIN",
    "Moment",
    "Numerals",
    "SkippedTimeError",
    "TextError",
    "check_time_format",
    "epoch_nanoseconds",
    "integer_of",
    "looks_numeric",
    "moment_of",
    "moment_of_local",
    "number_of",
    "whole_of",
    "zone_of",
]

#: Texts that stand where a number is missing.
MISSING = frozenset(
    ("", "NA", "N/A", "n/a", "#N/A", "#NA", "NULL", "null", "NaN", "nan", "-nan", "None")
)

_LONGEST = 400  # characters
_EXACT_IN_FLOAT = 1 << 53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL = datetime(1970, 1, 1)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{2,3})*,[0-9]{3}(\.[0-9]*)?")
_ALIKE = {" ": " \u00a0\u202f\u2009", "'": "'\u2019"}  # separators that differ in print only
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
_ZONE_AT_END = re.compile(r"\s*(Z|z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}|[+-][0-9]{2})$")
_FRACTION = re.compile(r"(:[0-9]{2})[.,]([0-9]{1,18})")
_DAY_FIRST = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})(.*)", re.S)
_SLASHES = re.compile(r"([0-9]{4})/([0-9]{1,2})/([0-9]{1,2})(.*)", re.S)
_ISO = re.compile(r"[0-9]{4}-?(?:[0-9]{2}|W)")
_UNITS = (
    r"%|‰|°|°C|°F|[CFKVAWtsghmlL]|[mk][VAWsmg]|MW|[kM]?Wh|[kMG]?Hz|[hk]?Pa|m?bar|psi|cm|m[23²³]|ml|mL|"
    r"min|dBm?|lx|pp[mb]|rpm|€|\$|£|EUR|USD|[kKMG]?B"
)
_MARK = "[., '’_\u00a0\u202f\u2009]"
_WHOLE = rf"([0-9]+|[0-9]{{1,3}}({_MARK}[0-9]{{2,3}})*{_MARK}[0-9]{{3}})"
_NUMERIC = re.compile(
    rf"[+-]?[€$£]?\s?({_WHOLE}([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?\s?({_UNITS})?"
)
_DATE = re.compile(
    r"([0-9]{4}([-/.])[0-9]{1,2}\2[0-9]{1,2}|[0-9]{1,2}([-/.])[0-9]{1,2}\3[0-9]{4})"
    r"([T ][0-9:.,]+.{0,7})?"
)


class TextError(ValueError):
    """A text is no number or no time. The sentence continues "is '...'"."""


class SkippedTimeError(TextError):
    """A local time does not exist, because clocks skip it."""


class Numerals(NamedTuple):
    """The notation of numbers.

    Attributes:
        decimal: the decimal mark, "." or ",".
        thousands: the thousands separator. Empty: there is none. A space matches the no-break and
            thin spaces too.
    """

    decimal: str = "."
    thousands: str = ""

    def check(self) -> None:
        """Reject marks that could be read in two ways.

        Raises:
            ParameterError: a mark is invalid, or both are equal.
        """
        if self.decimal not in (".", ","):
            raise ParameterError(f"decimal is {self.decimal!r}; expected '.' or ','")
        if self.thousands not in ("", ".", ",", " ", "'", "_"):
            raise ParameterError(
                f"thousands is {self.thousands!r}; expected '', '.', ',', ' ', \"'\" or '_'"
            )
        if self.thousands == self.decimal:
            raise ParameterError(
                f"thousands and decimal are both {self.decimal!r}; expected two different marks"
            )


#: Numbers with a point and without thousands.
PLAIN = Numerals()


def _plain(text: str, numerals: Numerals) -> str:
    """Return a number with a point and no separators.

    Raises:
        TextError: the text is no number.
    """
    if len(text) > _LONGEST:
        raise TextError(f"has {len(text)} characters; expected a number of at most {_LONGEST}")
    found = text.strip()
    if numerals.thousands:
        for each in _ALIKE.get(numerals.thousands, numerals.thousands):
            found = found.replace(each, "\0")
    if numerals.decimal == ",":
        if "." in found:  # no mark of such numbers
            raise TextError(f"is {text!r:.120}; expected a number with a decimal comma")
        found = found.replace(",", ".")
    if "\0" in found:
        if not _GROUPED.fullmatch(found.replace(",", "x").replace("\0", ",")):
            raise TextError(
                f"is {text!r:.120}; expected a number with {numerals.thousands!r} between thousands"
            )
        found = found.replace("\0", "")
    if not _NUMBER.fullmatch(found):
        raise TextError(f"is {text!r:.120}; expected a number")
    return found


def number_of(text: str, numerals: Numerals = PLAIN) -> int | float:
    """A number: an integer where digits alone are written, else the nearest float64.

    Args:
        text: with spaces around it or not.
        numerals: how numbers are written.

    Raises:
        TextError: no number, or one beyond float64.

    Example:
        >>> number_of("00.693"), number_of("1 234,5", Numerals(",", " ")), number_of("007")
        (0.693, 1234.5, 7)
    """
    plain = _plain(text, numerals)
    if plain.lstrip("+-").isdigit():
        return int(plain)
    number = float(plain)
    if number in (float("inf"), float("-inf")):
        raise TextError(f"is {text!r:.120}; expected a number that float64 can hold")
    return number


def integer_of(text: str, numerals: Numerals = PLAIN) -> int:
    """Return a number that is an integer. ``12.0`` is one, because programs write it where a column
    has gaps.

    Raises:
        TextError: no integer.

    Example:
        >>> integer_of("12.0"), integer_of(" 7 ")
        (12, 7)
    """
    try:
        number = number_of(text, numerals)
    except TextError:
        number = 0.5  # none either
    whole = number if isinstance(number, int) else whole_of(number)
    if whole is None:
        raise TextError(f"is {text!r:.120}; expected an integer")
    return whole


def whole_of(number: float) -> int | None:
    """Return a float as its exact integer, or None if it is no integer, or beyond 2^53."""
    exact = number.is_integer() and abs(number) <= _EXACT_IN_FLOAT
    return int(number) if exact else None


def looks_numeric(text: str) -> bool:
    """Return whether a text is a number in some dialect, with or without a unit behind it, or a
    time.

    A value column of such texts is not one of labels unless the caller says so.

    Example:
        >>> [looks_numeric(each) for each in ("20,5", "1.234,50 €", "21 °C", "2xx", "10.0.0.1")]
        [True, True, True, False, False]
    """
    if len(text) > _LONGEST or not any(each.isdigit() for each in text):
        return False
    text = text.strip()
    return _NUMERIC.fullmatch(text) is not None or _DATE.fullmatch(text) is not None


# ------------------------------------------------------------------------------------------- times


class Moment(NamedTuple):
    """A time that a text names.

    Attributes:
        ns: nanoseconds since 1970-01-01 UTC, rounded down.
        zoned: whether the text or the caller named the zone. If not, it was read as UTC.
        twice: whether the zone's clock showed this local time twice. It is then the earlier one.
    """

    ns: int
    zoned: bool = True
    twice: bool = False


def zone_of(name: str) -> tzinfo:
    """A time zone by its name: "Europe/Berlin", "UTC", or an offset such as "+02:00".

    Raises:
        ParameterError: there is no such zone.

    Example:
        >>> zone_of("+02:00")
        datetime.timezone(datetime.timedelta(seconds=7200))
    """
    if isinstance(name, str):
        if name.upper() in ("UTC", "Z"):
            return UTC
        if offset := _OFFSET.fullmatch(name):
            minutes = int(offset[2]) * 60 + int(offset[3])
            if minutes < 24 * 60 and int(offset[3]) < 60:
                return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
        elif re.fullmatch(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*", name) and len(name) <= 100:
            from zoneinfo import ZoneInfo  # few programs need it

            try:
                return ZoneInfo(name)
            except (KeyError, OSError, ValueError):
                pass
    raise ParameterError(
        f"time_zone is {name!r:.120}; expected a name such as 'Europe/Berlin', 'UTC', or an offset "
        "such as '+02:00'"
    )


def check_time_format(given: str) -> str:
    """Return a ``strptime`` format unchanged.

    Raises:
        ParameterError: it has no date in it, or an unknown directive.
    """
    try:
        datetime.strptime(datetime(2026, 1, 31, 12).strftime(given), given)
    except (ValueError, TypeError, re.error):
        sound = False
    else:
        sound = any(each in given for each in ("%Y", "%y", "%c", "%x", "%G"))
    if not sound:
        raise ParameterError(
            f"time_format is {given!r:.120}; expected a date in directives of strptime, such as "
            "'%d/%m/%Y %H:%M:%S'"
        )
    return given


def moment_of(text: str, zone: tzinfo | None = None, format: str | None = None) -> Moment:
    """The moment that a text names.

    Args:
        text: ISO 8601, RFC 3339, "31.01.2026 12:00", or of ``format``.
        zone: the zone for a text that names none. None: UTC, and ``zoned`` is False.
        format: for ``strptime``, already checked. Then nothing else is a time.

    Raises:
        TextError: no time, or one that the clock of the zone skips.

    Example:
        >>> moment_of("2026-01-01T01:00:00+01:00"), moment_of("31.01.2026 12:00").zoned
        (Moment(ns=1767225600000000000, zoned=True, twice=False), False)
    """
    if len(text) > _LONGEST:
        raise TextError(f"has {len(text)} characters; expected a time")
    found = text.strip()
    if format is not None:
        try:
            local = datetime.strptime(found, format)
        except ValueError:
            raise TextError(f"is {text!r:.120}; expected a time such as {format!r} has") from None
        below = 0
    else:
        local, below = _read_iso(text, found)
    if local.tzinfo is not None:
        return Moment(_since(local - _EPOCH, below))
    return moment_of_local(local, zone, below)


def moment_of_local(local: datetime, zone: tzinfo | None, below_ns: int = 0) -> Moment:
    """Return the moment at which the clocks in a zone show a time.

    Args:
        local: without a zone.
        zone: None: UTC, and ``zoned`` is False.
        below_ns: nanoseconds below the microsecond.

    Raises:
        SkippedTimeError: the clocks skip it.
        TextError: it is before the year 1 or after 9999 in UTC.
    """
    since = _since(local - _EPOCH_LOCAL, below_ns)
    if zone is None or zone is UTC:
        return Moment(since, zone is not None)
    first = local.replace(tzinfo=zone, fold=0)
    try:
        earlier, later = (_offset(first.replace(fold=fold)) for fold in (0, 1))
        utc = local - earlier
    except OverflowError:
        raise TextError(f"is {local.isoformat()}; expected the years 1 to 9999") from None
    if earlier < later:  # a gap: the offset before is the smaller one
        raise SkippedTimeError(
            f"is {local.isoformat()}, which clocks in {zone} skip; expected an existing time"
        )
    return Moment(_since(utc - _EPOCH_LOCAL, below_ns), True, earlier > later)


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None, "it has a zone"
    return offset


def _since(since: timedelta, below_ns: int) -> int:
    seconds = since.days * 86_400 + since.seconds
    return (seconds * 1_000_000 + since.microseconds) * 1000 + below_ns


def _read_iso(text: str, found: str) -> tuple[datetime, int]:
    """The time of a text without a format, and its nanoseconds below the microsecond."""
    if dotted := _DAY_FIRST.fullmatch(found):
        found = f"{dotted[3]}-{dotted[2]:0>2}-{dotted[1]:0>2}{dotted[4]}"
    elif slashed := _SLASHES.fullmatch(found):
        found = f"{slashed[1]}-{slashed[2]:0>2}-{slashed[3]:0>2}{slashed[4]}"
    below = 0
    if fraction := _FRACTION.search(found):
        digits = fraction[2].ljust(9, "0")
        below = int(digits[6:9])
        found = f"{found[: fraction.end(1)]}.{digits[:6]}{found[fraction.end() :]}"
    zone = _ZONE_AT_END.search(found)
    if zone is not None and ":" in found[: zone.start()]:  # a date has a "-" of its own
        named = zone[1].upper()
        found = found[: zone.start()] + ("+00:00" if named in ("Z", "UTC", "GMT") else named)
    try:
        if not _ISO.match(found):
            raise ValueError
        return datetime.fromisoformat(found), below
    except ValueError:
        raise TextError(f"is {text!r:.120}; {_expected(text)}") from None


def _expected(text: str) -> str:
    if re.match(r"\s*[0-9]{1,2}[/-][0-9]{1,2}[/-][0-9]{2,4}", text):
        return (
            "expected a time such as '2026-01-31T12:00:00Z'; a time_format such as '%d/%m/%Y "
            "%H:%M:%S' states whether the day or the month comes first"
        )
    return "expected a time such as '2026-01-31T12:00:00Z', or a time_format"


def epoch_nanoseconds(number: int | float | str, unit: str) -> int:
    """Nanoseconds since 1970-01-01 UTC of a number of a unit, as the decimal that was written.

    Args:
        number: finite. A text is read as by :func:`number_of`.
        unit: with a wall clock.

    Raises:
        TextError: a text that is no number.

    Example:
        >>> epoch_nanoseconds("1.663830962276e+12", "ms"), epoch_nanoseconds(0.25, "us")
        (1663830962276000000, 250)
    """
    if isinstance(number, int):
        return number * NANOSECONDS[unit]
    written = _plain(number, PLAIN) if isinstance(number, str) else repr(number)
    exponent = written.lower().partition("e")[2]
    if exponent and abs(int(exponent)) > 30:  # before an integer of so many digits is made
        raise TextError(f"is {number!r:.120}; expected a number of {unit}")
    return int(Fraction(written) * NANOSECONDS[unit] // 1)
