"""Numbers and times as text: one text has one meaning, or one reason why it has none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import for_each

from decaysketch.core.plausible_times import dated, of_another_clock
from decaysketch.core.row_check import undated
from decaysketch.core.text_values import (
    MISSING,
    Numerals,
    TextError,
    check_time_format,
    epoch_nanoseconds,
    integer_of,
    looks_numeric,
    moment_of,
    number_of,
    zone_of,
)
from decaysketch.errors import ParameterError

COMMA, SPACED, SWISS, ENGLISH = (
    Numerals(","), Numerals(",", " "), Numerals(".", "'"), Numerals(".", ",")
)  # fmt: skip
GERMAN = Numerals(",", ".")


@for_each(
    "text, numerals, number",
    [
        ("21.5", Numerals(), 21.5), (" 00.693 ", Numerals(), 0.693), ("007", Numerals(), 7),
        ("+3", Numerals(), 3), ("-1e3", Numerals(), -1000.0), (".5", Numerals(), 0.5),
        ("20,5", COMMA, 20.5), ("1234", COMMA, 1234), ("1 234,5", SPACED, 1234.5),
        ("1\u202f234,5", SPACED, 1234.5), ("1\u00a0234", SPACED, 1234), ("1'234.5", SWISS, 1234.5),
        ("1,234,567.8", ENGLISH, 1234567.8), ("12,34,567", ENGLISH, 1234567),
        ("1.234,5", GERMAN, 1234.5), ("999", ENGLISH, 999),
        ("9007199254740993", Numerals(), 2**53 + 1),
    ],
)  # fmt: skip
def test_a_number(text: str, numerals: Numerals, number: float) -> None:
    found = number_of(text, numerals)
    assert found == number
    assert type(found) is type(number)


@for_each(
    "text, numerals",
    [
        ("", Numerals()), ("20,5", Numerals()), ("0x1F", Numerals()), ("inf", Numerals()),
        ("1554.N0N", Numerals()), ("1_000", Numerals()), ("1,5", ENGLISH), ("1,23,4", ENGLISH),
        ("1.5", COMMA), ("1.5", GERMAN), ("--1", Numerals()), ("1 2", Numerals()),
        ("21 C", Numerals()),
        ("1e999", Numerals()), ("9" * 500, Numerals()), ("\u0661", Numerals()), ("1,2,3", COMMA),
    ],
)  # fmt: skip
def test_no_number(text: str, numerals: Numerals) -> None:
    with pytest.raises(TextError):
        number_of(text, numerals)


@given(st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_is_read_as_python_writes_it(number: float) -> None:
    assert number_of(repr(number)) == number


@given(st.integers(-(10**15), 10**15), st.sampled_from([ENGLISH, SWISS, SPACED, GERMAN]))
def test_thousands_are_read_as_they_are_written(number: int, numerals: Numerals) -> None:
    assert number_of(f"{number:,}".replace(",", numerals.thousands), numerals) == number


def test_integers_of_columns_with_gaps() -> None:
    assert [integer_of(each) for each in ("12.0", "12", "1e3")] == [12, 12, 1000]
    for text in ("12.5", "1e300", "x"):
        with pytest.raises(TextError):
            integer_of(text)


@pytest.mark.parametrize("given", [("", ""), (".", "."), (".", "x"), (",", ",")])
def test_marks_that_cannot_be_read(given: tuple[str, str]) -> None:
    with pytest.raises(ParameterError):
        Numerals(*given).check()


def test_texts_that_look_like_numbers() -> None:
    numeric = ("20,5", "1.234,50 €", "21 °C", "12V", "404", "12 %", "2026-01-31", "31.1.2026 10:00")
    labels = (
        "2xx",
        "10.0.0.1",
        "1.2.3",
        "on",
        "d-7",
        "A4",
        "",
        "-",
        "n/a",
        "5G",
        "3D",
        "E42",
        "x" * 500,
    )
    assert all(map(looks_numeric, numeric))
    assert not any(map(looks_numeric, labels))
    assert not any(map(looks_numeric, MISSING))


# ------------------------------------------------------------------------------------------- times

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
AT_NS = int(AT.timestamp()) * 10**9


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00Z", "2026-01-31 12:00:00 UTC", "2026-01-31T13:00:00+01:00",
        "2026-01-31 13:00:00 +0100", "20260131T120000Z", "2026-01-31T12:00:00.000000000Z",
        " 2026-01-31T06:00-06:00 ", "2026-01-31T12:00:00,000Z", "2026-01-31t12:00:00z",
    ],
)  # fmt: skip
def test_a_moment_with_its_zone(text: str) -> None:
    assert moment_of(text, zone_of("Asia/Tokyo")) == (AT_NS, True, False)


@pytest.mark.parametrize(
    "text", ["2026-01-31 13:00", "31.01.2026 13:00:00", "31.1.2026 13:00", "2026/1/31 13:00:00.000"]
)
def test_a_moment_without_zone(text: str) -> None:
    assert moment_of(text, zone_of("Europe/Berlin")) == (AT_NS, True, False)
    assert moment_of(text) == (AT_NS + 3600 * 10**9, False, False)
    assert moment_of(text, zone_of("UTC")) == (AT_NS + 3600 * 10**9, True, False)


def test_digits_below_the_microsecond_are_kept() -> None:
    assert moment_of("2026-01-31T12:00:00.1234567899Z").ns == AT_NS + 123_456_789


def test_a_format_says_what_comes_first() -> None:
    for format, text in (
        ("%d/%m/%Y %H:%M", "31/01/2026 12:00"),
        ("%m/%d/%Y %I %p", "01/31/2026 12 PM"),
    ):
        assert moment_of(text, format=check_time_format(format)).ns == AT_NS
        with pytest.raises(TextError, match="time"):
            moment_of(text)
    with pytest.raises(TextError):
        moment_of("2026-01-31T12:00:00Z", format="%d/%m/%Y")
    for format in ("", "no directive", "%H:%M", "%Q", 5):
        with pytest.raises(ParameterError):
            check_time_format(format)  # type: ignore[arg-type]


@for_each(
    "text", ["", "unknown", "2026-13-01", "2026-02-30 10:00", "1780000000", "12:00", "x" * 500,
             "0000-01-01", "2026-01-31T12:00:00+99:00", "2026-01-31T25:00:00"],
)  # fmt: skip
def test_no_moment(text: str) -> None:
    with pytest.raises(TextError):
        moment_of(text)


def test_hours_that_a_clock_shows_twice_or_skips() -> None:
    berlin = zone_of("Europe/Berlin")
    earlier = moment_of("2026-10-25 02:30:00", berlin)
    assert earlier.twice
    assert earlier.ns == moment_of("2026-10-25T02:30:00+02:00").ns
    with pytest.raises(TextError, match="skip"):
        moment_of("2026-03-29 02:30:00", berlin)


@given(st.datetimes(datetime(1950, 1, 1), datetime(2090, 1, 1)))
def test_local_times_are_those_of_the_zone(local: datetime) -> None:
    zone = zone_of("America/New_York")
    aware = local.replace(tzinfo=zone)
    back = aware.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
    if back != local:
        with pytest.raises(TextError):
            moment_of(local.isoformat(), zone)
        return
    since = aware.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert moment_of(local.isoformat(), zone).ns == since // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    "name", ["", "Mars/Base", "../etc/passwd", "+25:00", "+01:75", "x" * 200, 3]
)
def test_no_zone(name: str) -> None:
    with pytest.raises(ParameterError, match="time_zone"):
        zone_of(name)


def test_numbers_since_1970_are_exact() -> None:
    assert epoch_nanoseconds(12, "s") == 12 * 10**9
    assert epoch_nanoseconds("1780000000.123456789", "s") == 1_780_000_000_123_456_789
    assert epoch_nanoseconds(1.663830962276e12, "ms") == 1_663_830_962_276_000_000
    assert epoch_nanoseconds("-0.5", "us") == -500
    for text in ("1e9999", "x", ""):
        with pytest.raises(TextError):
            epoch_nanoseconds(text, "s")


# -------------------------------------------------------------------- clocks that were not set


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "min", "h", "d"])
def test_undated_is_what_has_no_date(unit: str) -> None:
    size = int(epoch_nanoseconds(1, unit))
    edges = [
        at * 10**9 // size + step for at in (631_152_000, 4_102_444_800) for step in (-1, 0, 1)
    ]
    times = np.array([*edges, 0, -5, 1_780_000_000 * 10**9 // size])
    assert undated(unit, times).tolist() == [dated(unit, int(each)) is None for each in times]


def test_a_clock_that_was_not_set_is_told_beside_others() -> None:
    assert not undated("ticks", np.array([0, 5])).any()
    assert of_another_clock("s", 10, 0) is None
    assert of_another_clock("s", 10, 10, (0, 9)) is None  # a beginning of its own
    assert "3 of 10 times lie" in (of_another_clock("s", 10, 3, (0, 86_400)) or "")
