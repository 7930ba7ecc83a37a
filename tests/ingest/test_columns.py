"""Readings as columns: units, ids and what is refused on the way."""

from __future__ import annotations

from typing import Any

import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Form, check, check_takes_readings, to_columns
from decaysketch.ingest.readings import Reading

PARAMS = ds.SketchParams(max_weight=10, id_bits=48, seed=7, time_unit="ms")


def form_of(**changed: Any) -> Form:
    fields = {"max_weight": 10, "id_bits": 48, "seed": 7, "time_unit": "ms"} | changed
    return Form(recipe_of(ds.SketchParams(**fields)), "gw", 10_000, 1000)


def test_readings_are_rows_by_the_ids_that_a_sensor_computes() -> None:
    readings = [
        Reading(("t-1", 1, "v"), 20.5, 1_999_999),
        Reading((7, "v"), None, -1, 3),
        Reading(("t-1", 2, "v"), 4, 2_000_000),
    ]
    batch = check(to_columns(readings, form_of()), form_of())
    assert not batch.refusals
    values, weights, times, ids = batch.columns
    assert values.tolist() == [20.5, None, 4.0]
    assert weights.tolist() == [1, 3, 1]
    assert times.tolist() == [1, -1, 2]  # rounded down
    expected = [ds.observation_ids(*each.key, params=PARAMS)[0] for each in readings]
    assert ids.tolist() == expected


@for_each(
    "reading, integers, field, reason",
    [
        (Reading(("a",), 1 << 53 | 1, 0), False, "value", "not exact as float64"),
        (Reading(("a",), float("nan"), 0), False, "value", "not finite"),
        (Reading(("a",), 1.5, 0), True, "value", "no integer"),
        (Reading(("a",), float("inf"), 0), True, "value", "no integer"),
        (Reading(("a",), 1e30, 0), True, "value", "beyond 64 bits"),
        (Reading(("a",), 1 << 63, 0), True, "value", "beyond 64 bits"),
        (Reading(("a",), 1, 0, 1 << 70), False, "weight", "beyond 64 bits"),
        (Reading(("a",), 1, 0, 11), False, "weight", "out of bounds"),
        (Reading(("a",), 1, 1 << 63), False, "time", "beyond 64 bits"),
        (Reading(("a",), 1, 10_001_000_000), False, "time", "too far in the future"),
        (Reading(("a", 1 << 63), 1, 0), False, "id", "beyond 64 bits"),
        (Reading(("a", "x" * 100_000), 1, 0), False, "id", "100000 bytes long"),
    ],
)
def test_what_is_wrong_refuses_its_reading_alone(
    reading: Reading, integers: bool, field: str, reason: str
) -> None:
    form = form_of(value_type="int64" if integers else "float64")
    good = [Reading(("g", number), 1, 0) for number in range(2)]
    batch = check(to_columns([good[0], reading, good[1]], form), form)
    (refusal,) = batch.refusals
    assert (refusal.row, refusal.field) == (1, field)
    assert reason in refusal.reason
    assert batch.positions.tolist() == [0, 2]


def test_whole_floats_are_integers_where_values_are() -> None:
    form = form_of(value_type="int64")
    batch = check(to_columns([Reading(("a",), 21.0, 0), Reading(("b",), None, 0)], form), form)
    assert batch.columns.values.tolist() == [21, None]


def test_nothing_becomes_no_rows() -> None:
    assert check(to_columns([], form_of()), form_of()).rows == 0


def test_streams_whose_rows_have_no_ids_or_no_clock_take_no_readings() -> None:
    check_takes_readings(recipe_of(PARAMS))
    with pytest.raises(ds.ParameterError, match="time_unit is 'ticks', which has no wall clock"):
        check_takes_readings(recipe_of(ds.SketchParams(max_weight=1, time_unit="ticks")))
    ecm = ds.families.FAMILIES["ecm"].example
    with pytest.raises(
        ds.ParameterError, match="family is 'ecm', and its rows are identified by key"
    ):
        check_takes_readings(ecm)
