"""Times of another unit are told from those that are small, and each road says so."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch import asyncwindow
from decaysketch.core.plausible_times import (
    dated,
    doubt,
    doubts_of_query,
    likely_unit,
    span,
    told,
    unit_in_name,
)
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import OtherUnitError
from decaysketch.families import recipe_of
from decaysketch.tables import ColumnMapping, KeyedBuilder, sketches_by_key

S = 1_700_000_000
SCALES = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST, PAST = 631_152_000, 4_102_444_800  # 1990 and 2100, in seconds


@pytest.mark.parametrize("unit", SCALES)
@pytest.mark.parametrize("given_", SCALES)
def test_the_likely_unit_is_the_one_of_the_present(unit: str, given_: str) -> None:
    time = S * SCALES[given_]
    found = doubt(unit, time - 5, time)
    if unit == given_:
        assert found is None
        return
    assert found is not None
    assert found.likely == given_
    assert f"in {given_} it would be 2023-11-14 22:13:" in str(found)


@pytest.mark.parametrize("unit", ["min", "h", "d"])
def test_coarse_units_are_doubted_too(unit: str) -> None:
    assert doubt(unit, S, S) is not None
    assert doubt(unit, S * 10**9 // NANOSECONDS[unit], S * 10**9 // NANOSECONDS[unit]) is None


@given(st.sampled_from(sorted(NANOSECONDS)), st.integers(0, 10**6), st.integers(0, 10**6))
def test_small_times_are_never_doubted(unit: str, one: int, other: int) -> None:
    """Simulations and streams that count from their own beginning."""
    assert doubt(unit, min(one, other), max(one, other)) is None
    if NANOSECONDS[unit] <= NANOSECONDS["min"]:  # a million hours after 1970 is a date
        assert doubts_of_query(unit, min(one, other), max(one, other), [one, other]) == []


@given(st.sampled_from(sorted(SCALES)), st.integers(FIRST, PAST - 1), st.integers(0, 10**6))
def test_dates_are_never_doubted_in_their_unit(unit: str, second: int, before: int) -> None:
    newest = second * SCALES[unit]
    assert doubt(unit, max(newest - before, FIRST * SCALES[unit]), newest) is None
    assert likely_unit(unit, newest) is None
    shown = dated(unit, newest)
    assert shown is not None
    assert (
        datetime.strptime(shown, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC).timestamp() == second
    )


def test_a_stream_that_began_at_zero_may_run_for_long() -> None:
    assert doubt("ms", 0, S) is None
    assert doubt("ms", S - 10, S) is not None  # of which none is near its beginning
    assert doubt("ms", S, S * 1000) is not None  # some device sends seconds
    assert doubt("s", 5, S * 1000) is not None


def test_units_without_a_clock_are_never_doubted() -> None:
    assert doubt("frames", S * 1000, S * 1000) is None
    assert doubt("s", None, None) is None
    assert doubts_of_query("frames", 0, 5, [S]) == []
    assert (told("frames", S), span("frames", 1, S)) == (f"{S} frames", f"1..{S} frames")


@pytest.mark.parametrize(
    ("newest", "now", "message"),
    [
        (S * 1000, S, "the sketch contains times that are probably not in s"),
        (S, S * 1000, "now is probably not in s: .* in ms it would be 2023"),
        (10**5, S, r"now is 1700000000 s \(2023-.*\) and the newest observation is of 100000 s"),
        (S, 10**5, r"now is 100000 s and the newest observation is of 1700000000 s \(2023"),
    ],
)
def test_questions_that_can_only_be_answered_by_nothing(
    newest: int, now: int, message: str
) -> None:
    [said] = doubts_of_query("s", newest - 9, newest, [now])
    assert re.search(message, said)


def test_questions_about_sound_times_are_not_doubted() -> None:
    assert doubts_of_query("s", S - 9, S, [S, S + 10**6]) == []
    assert doubts_of_query("s", -(10**9), -(5 * 10**8), [S]) == []  # 1938 to 1954, asked about now
    assert doubts_of_query("s", None, None, [S]) == []


@for_each(
    "name, unit",
    [
        ("event_us", "us"), ("t.ms", "ms"), ("seconds", "s"), ("at_NS", "ns"), ("a_millis", "ms"),
        ("time", None), ("times", None), ("status", None), ("gps", None), ("items", None),
    ],
)  # fmt: skip
def test_units_in_names_of_columns(name: str, unit: str | None) -> None:
    assert unit_in_name(name) == unit


# -------------------------------------------------------------------------------------- in batches

PARAMS = ds.SketchParams(max_weight=1, id_bits=40, capacity=50, time_unit="s")


def log(times: Any, name: str = "time") -> pa.Table:
    return pa.table({name: times, "id": np.arange(len(times))})


def built(table: pa.Table, name: str = "time", **options: Any) -> ds.DecaySketch:
    mapping = ColumnMapping(time=name, ids=("id",), **options)
    return sketches_by_key(table, PARAMS, mapping)[()]


def test_a_batch_of_another_unit_is_warned_of_once() -> None:
    builder = KeyedBuilder(PARAMS, ColumnMapping(time="time", ids=("id",)))
    with pytest.warns(ds.TimeUnitWarning, match="in ms it would be 2023-11-14") as said:
        builder.add(log([S * 1000, S * 1000 + 5]))
    assert len(said) == 1
    assert said[0].filename == __file__
    builder.add(log([S * 1000, S * 1000 + 5]))  # a warning would be an error here
    assert len(builder.sketches[()]) == 2  # they are taken all the same
    assert builder.doubt is not None


def test_advice_is_about_the_numbers_as_they_stand() -> None:
    """The column is read in ms and holds us; the sketch is of seconds."""
    with pytest.warns(
        ds.TimeUnitWarning, match="probably not in ms: .*; in us it would be 2023-11-14"
    ):
        built(log([S * 10**6]), time_unit="ms")


def test_a_column_whose_name_says_another_unit_is_warned_of() -> None:
    with pytest.warns(
        ds.TimeUnitWarning, match="read in s, but the column's name ends like one in ms"
    ):
        built(log([5, 10**6], "event_ms"), "event_ms")


def test_sound_batches_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built(log([S, S + 5]))
        built(log([S, S + 5], "sent_us"), "sent_us")  # they are dates in s, whatever the name says
        built(log([5, 10**6], "event_s"), "event_s")
        built(log([5, 10**6], "event_ms"), "event_ms", time_unit="ms")
        built(log([S * 1000], "event_ms"), "event_ms", time_unit="ms")
        built(log(pa.array([S * 1000], pa.timestamp("ms")), "event_us"), "event_us")
        KeyedBuilder(PARAMS, ColumnMapping(time="time", ids=("id",))).add(log([]))


@pytest.mark.parametrize("single", [True, False])
def test_a_sketch_that_is_fed_by_hand_says_it_of_its_first_times(single: bool) -> None:
    times, ids = (S * 1000, 1) if single else ([S * 1000, 5], [1, 2])
    sketch = ds.DecaySketch(PARAMS)
    with pytest.warns(ds.TimeUnitWarning, match="in ms it would be 2023-11-14") as said:
        sketch.update(None, 1, times, ids)
    assert len(said) == 1
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sketch.update(None, 1, times, ids)
        recipe_of(PARAMS).empty().update(None, 1, times, ids)
        sketch.copy().update(None, 1, times, ids)


def test_a_builder_that_checks_refuses_and_takes_nothing() -> None:
    mapping = ColumnMapping(time="time", ids=("id",))
    builder = KeyedBuilder(PARAMS, mapping, check_units=True)
    with pytest.raises(OtherUnitError, match="in ms it would be 2023-11-14"):
        builder.add(log([S * 1000, S * 1000 + 5]))
    assert not builder.sketches
    builder.add(log([S, S + 5]))
    assert len(builder.sketches[()]) == 2


# ---------------------------------------------------------------------------------------- as dates


def test_sketches_show_their_times_as_dates() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(None, 1, [S, S + 3600], [1, 2])
    fixed = ds.IntegralDecaySketch(PARAMS, ds.decay.integral.window(10**6))
    fixed.update(None, 1, [S, S + 3600], [1, 2], now=S + 3600)
    sampler = asyncwindow.SumSampler(asyncwindow.SumParams(max_sum=100, capacity=9, time_unit="s"))
    sampler.update([1, 2], [S, S + 3600])
    times = f"times={S}..{S + 3600} s (2023-11-14 22:13:20 to 23:13:20 UTC)"
    for each in (sketch, fixed, sampler):
        assert times in repr(each)
        assert "2023-11-14 22:13:20 to 23:13:20 UTC" in each._repr_html_()
    assert f"clock={S + 3600} s (2023-11-14 23:13:20 UTC)" in repr(fixed)
    small = ds.DecaySketch(PARAMS)
    small.update(None, 1, [1, 5], [1, 2])
    assert "times=1..5 s," in repr(small)
