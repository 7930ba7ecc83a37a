"""Lengths of time and moments: every spelling gives one number of a stream's units, or is refused
with what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch import decay
from decaysketch.core.time_units import NANOSECONDS, length_of, spelled
from decaysketch.ecm import ECMCollection, ECMParams

HOUR_AND_A_HALF: list[Any] = [
    "1h30m", " 1 h 30 min ", "1.5h", "90m", "5400s", timedelta(hours=1.5), pd.Timedelta("90min"),
    np.timedelta64(90, "m"), np.timedelta64(5_400_000, "ms"),
]  # fmt: skip
NOON = 1_767_225_600  # 2026-01-01T00:00Z
MOMENTS: list[Any] = [
    "2026-01-01T00:00:00Z", "2026-01-01T01:00:00.0000000+01:00", np.datetime64("2026-01-01"),
    datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    pd.Timestamp("2026-01-01", tz="UTC"), np.datetime64("2026-01-01T00:00:00", "ns"),
]  # fmt: skip


@pytest.mark.parametrize("length", HOUR_AND_A_HALF)
def test_a_length_of_time_has_many_spellings(length: Any) -> None:
    assert ds.duration(length, "s") == 5400
    assert ds.duration(length, "h") == 1.5
    asked = decay.window(length)
    assert asked == decay.window("1h30m")
    assert asked.bound("s") == decay.window(5400)
    assert decay.from_dict(asked.to_dict()) == asked
    assert decay.parse(str(asked), "min") == asked.bound("min") == decay.window(90)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_moment_has_many_spellings(moment: Any) -> None:
    assert ds.instant(moment, "s") == NOON
    assert ds.instant(moment, "ns") == NOON * 10**9
    assert ds.instant(moment, "d") == NOON // 86_400


def test_numbers_are_of_the_streams_unit_whatever_it_is() -> None:
    assert ds.duration(np.int64(7), "ticks") == 7
    assert ds.duration(0.5, "ticks") == 0.5
    assert ds.instant(np.int64(7), "ticks") == 7
    assert ds.instant("1969-12-31T23:59:59.999999999Z", "s") == -1  # down, as clocks go
    assert ds.instant("1970-01-01T00:00:00.123456789Z", "ns") == 123_456_789
    assert ds.instant(pd.Timestamp(1_234, unit="ns", tz="UTC"), "ns") == 1_234


@for_each(
    "length, named",
    [
        ("-3h", "'90s' or '1h30m'"), ("", "'90s'"), ("1 fortnight", "'90s'"), ("1h 5", "'90s'"),
        ("5mins", "'90s'"), ("1" * 200 + "h", "'90s'"), (timedelta(hours=-1), "timedelta"),
        (pd.NaT, "length"), (np.timedelta64("NaT"), "length"), (np.timedelta64(1, "M"), "length"),
        (True, "True"), (None, "None"), ([], "length"),
    ],
)  # fmt: skip
def test_what_is_no_length_of_time_is_refused(length: Any, named: str) -> None:
    with pytest.raises(ds.ParameterError, match=r"width is .*expected") as refused:
        ds.duration(length, "s", name="width")
    assert named in str(refused.value)


@for_each(
    "moment, named",
    [
        (datetime(2026, 1, 1), "such as 2026-01-01T00:00:00+00:00 for UTC"),
        ("2026-01-01", "such as 2026-01-01T00:00:00+00:00 for UTC"),
        (pd.Timestamp("2026-01-01"), "no time zone"), (pd.NaT, "expected"), ("noon", "expected"),
        (np.datetime64("NaT"), "expected"), (True, "True"), (1.5, "1.5"), (None, "None"),
        (np.timedelta64(1, "s"), "expected an integer"), ("2" * 200, "expected"),
    ],
)  # fmt: skip
def test_what_is_no_moment_is_refused(moment: Any, named: str) -> None:
    with pytest.raises(ds.ParameterError, match="now is") as refused:
        ds.instant(moment, "s")
    assert named in str(refused.value)


def test_units_without_a_clock_cannot_be_converted_to() -> None:
    for convert, given_ in ((ds.duration, "1h"), (ds.instant, "2026-01-01T00:00Z")):
        with pytest.raises(ds.ParameterError, match=r"'ticks' cannot be converted to; give a num"):
            convert(given_, "ticks")  # type: ignore[operator]
    with pytest.raises(ds.ParameterError, match="'h'; it is 1/60 of them"):
        ds.duration("1min", "h")


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(0, 10**20),
    unit=st.sampled_from(sorted(NANOSECONDS)),
    share=st.sampled_from([1, 2, 10, 1000]),
)
def test_what_is_spelled_reads_the_same(count: int, unit: str, share: int) -> None:
    length = Fraction(count * NANOSECONDS[unit], share)
    assert length_of("it", spelled(length)) == length


# ------------------------------------------------------------------------------- deferred decays


DEFERRED: list[tuple[Any, Any]] = [
    (decay.exponential(half_life="1min"), decay.exponential(half_life=60)),
    (decay.polynomial(2, scale="1m"), decay.polynomial(2, scale=60)),
    (decay.piecewise([("1min", 1), ("1h", 0.5)], 0.1), decay.piecewise([(60, 1), (3600, 0.5)], .1)),
    (decay.piecewise([("1min", 1), (3600, 0.5)]), decay.piecewise([(60, 1), (3600, 0.5)])),
]  # fmt: skip


@pytest.mark.parametrize(("deferred", "plain"), DEFERRED)
def test_a_deferred_decay_is_bound_by_the_sketch_that_is_asked(deferred: Any, plain: Any) -> None:
    assert deferred.bound("s") == plain == plain.bound("s")
    assert decay.parse(str(deferred), "s") == decay.parse(deferred.to_dict(), "s") == plain
    with pytest.raises(ds.ParameterError, match="the stream's unit is not known here"):
        deferred([0])
    with pytest.raises(ds.ParameterError, match=r"bound\('s'\)"):
        _ = deferred.support


def test_deferred_decays_are_refused_where_they_are_made() -> None:
    with pytest.raises(ds.ParameterError, match="half_life is 0"):
        decay.exponential(half_life="0s")
    with pytest.raises(ds.ParameterError, match="expected one of them"):
        decay.exponential(rate=1, half_life="1s")
    with pytest.raises(ds.ParameterError, match="expected more than"):
        decay.piecewise([("1h", 1), ("1min", 0.5)])
    with pytest.raises(ds.ParameterError, match=r"steps\[1\] age is"):
        decay.piecewise([("1h", 1), ("soon", 0.5)])
    with pytest.raises(ds.ParameterError) as told:
        decay.piecewise([("2h", 1), ("1h", 0.5)])
    assert str(told.value).startswith("piecewise(steps=[(2h, 1), (1h, 0.5)]")  # as was written


def _families() -> list[Any]:
    params = ds.SketchParams(max_weight=1, capacity=10)
    plain = ds.DecaySketch(params)
    fixed = ds.IntegralDecaySketch(params, "window('2min')")
    sampler = ds.asyncwindow.SumSampler(ds.asyncwindow.SumParams(max_sum=100, capacity=5))
    events = ECMCollection(ECMParams(width=8, depth=2, slots=8))
    for sketch in (plain, fixed):
        sketch.update([1.0, 2.0], 1, [NOON - 90, NOON], [1, 2], not_after="2026-01-01T00:00Z")
    sampler.update([1, 2], [NOON - 90, NOON], not_after=np.datetime64("2026-01-01"))
    events.update(["a", "a"], [NOON - 90, NOON], not_after="2026-01-01T00:00Z")
    return [plain, fixed, sampler, events]


def test_every_family_reads_moments_and_texts_and_says_which_time_it_took() -> None:
    plain, fixed, sampler, events = _families()
    minute = decay.window("1min")
    for now in (NOON, "2026-01-01T00:00Z", np.datetime64("2026-01-01")):
        for asked in (minute, "window(1min)", {"kind": "window", "width": "60s"}):
            assert plain.count(asked, now=now).value == 1
            assert sampler.sum(asked, now=now).value == 2
            assert events.key_total(asked, now=now).value == 1
        assert fixed.count(now=now).value == 2
    later = "2026-01-01T00:00:45Z"
    assert plain.count(minute, now=later).value == 1
    assert fixed.count(now=later).value == 1
    for answer in (
        plain.count(minute), plain.total("window(1min)"), sampler.sum(minute), fixed.count(),
        events.key_total(minute), plain.heavy_hitters(0.5, minute)[0].frequency,
        plain.quantile([0.5], minute)[0],
    ):  # fmt: skip
        assert answer.now == NOON
        assert f"now={NOON}" in repr(answer)
        assert "now" not in answer.to_dict()
    assert plain.count(minute, now=NOON).now is None
    assert plain.snapshot().sample(minute).now == NOON
    fixed.advance("2026-01-01T00:10Z")
    assert fixed.count().now == NOON + 600
    with pytest.raises(ds.ParameterError, match="now is not given, and the sketch is empty"):
        ds.DecaySketch(plain.params).count(minute)
    with pytest.raises(ds.ParameterError, match="no time zone"):
        plain.update([1.0], 1, [NOON], [3], not_after="2026-01-01")
    with pytest.raises(ds.ParameterError, match="'ticks' cannot be converted"):
        ds.DecaySketch(ds.SketchParams(max_weight=1, time_unit="ticks")).at(minute, 5)
