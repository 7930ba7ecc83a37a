"""Ranges of times and comparisons, in DuckDB and in polars, against the library's own answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import decaysketch as ds
import decaysketch.duckdb
import decaysketch.polars  # for its namespaces
from decaysketch.tables.sql import time_ranges
from decaysketch.tables.sql.queries import FunctionError
from tests.sql.given import FIXED, NOW, PARAMS, columns

SMALL = PARAMS.with_capacity(30)  # so that nothing is exact
HOUR, LATE = "window(40)", "exponential(half_life=20s)"


@pytest.fixture(scope="module")
def sketch() -> ds.DecaySketch:
    made = ds.DecaySketch(SMALL)
    made.update(**columns())
    return made


@pytest.fixture(scope="module")
def connection() -> Any:
    connection = duckdb.connect()
    decaysketch.duckdb.register(connection)
    return connection


def ends(estimate: ds.Estimate) -> dict[str, Any]:
    names = ("value", "lower", "upper", "exact", "rows")
    return {name: getattr(estimate, name) for name in names} | {"caveats": [*estimate.caveats]}


BETWEEN = [
    ("count", lambda part: part.count()),
    ("mean", lambda part: part.mean()),
    ("rate", lambda part: part.rate()),
    ("stddev", lambda part: part.stddev()),
    ("quantile:0.9", lambda part: part.quantile(0.9)),
    ("rank:30", lambda part: part.rank(30)),
    ("selectivity:v > 30 and w > 1", lambda part: part.selectivity("v > 30 and w > 1")),
]


@pytest.mark.parametrize(("aggregate", "ask"), BETWEEN)
def test_a_range_is_answered_as_by_the_library(
    sketch: ds.DecaySketch, connection: Any, aggregate: str, ask: Any
) -> None:
    expected = ends(ask(sketch.between(1_050, 1_090)))
    blob = sketch.to_bytes()
    [[found]] = connection.execute(
        "SELECT decayed_between($1, $2, 1050, 1090)", [blob, aggregate]
    ).fetchall()
    assert found == expected
    frame = pl.DataFrame({"sketch": [blob], "since": [1_050]})
    until = datetime.fromtimestamp(1_090, UTC)
    named = frame.select(pl.col("sketch").sketch.decayed_between(aggregate, "since", until))
    assert named.to_series().to_list() == [expected]
    assert frame["sketch"].sketch.decayed_between(aggregate, 1_050, 1_090).to_list() == [expected]


@pytest.mark.parametrize(
    ("aggregate", "how"),
    [("count", "difference"), ("count", "ratio"), ("mean", "difference"), ("rank:30", "difference"),
     ("rate", "ratio")],
)  # fmt: skip
def test_two_moments_are_compared_as_by_the_library(
    sketch: ds.DecaySketch, connection: Any, aggregate: str, how: Any
) -> None:
    name, _, value = aggregate.partition(":")
    more = {"value": int(value)} if value else {}
    compared = sketch.compare(
        name, now=(HOUR, NOW), then=(LATE, NOW - 30), how=how, confidence=0.9, **more
    )
    expected = ends(compared) | {"changed": compared.changed}
    blob = sketch.to_bytes()
    [[found]] = connection.execute(
        "SELECT decayed_compare($1, $2, $3, 1100, $4, 1070, $5, 0.9)",
        [blob, aggregate, HOUR, LATE, how],
    ).fetchall()
    assert found == expected
    series = pl.Series([blob]).sketch.decayed_compare(
        aggregate, HOUR, NOW, ds.decay.parse(LATE, "s"), NOW - 30, how=how, confidence=0.9
    )
    assert series.to_list() == [expected]


def test_a_null_gives_a_null(sketch: ds.DecaySketch, connection: Any) -> None:
    blob = sketch.to_bytes()
    whole = [blob, "count", "none", 1100, "none", 1050]
    for place in range(len(whole)):
        given = [*whole[:place], None, *whole[place + 1 :]]
        places = ", ".join(f"${k + 1}" for k in range(len(given)))
        [[found]] = connection.execute(f"SELECT decayed_compare({places})", given).fetchall()
        assert found is None
    assert connection.execute(
        "SELECT decayed_between($1, 'mean', NULL, 1100)", [blob]
    ).fetchall() == [(None,)]


def test_modifiers_restrict_both_moments(sketch: ds.DecaySketch) -> None:
    blob = sketch.to_bytes()
    text = "mean(v * 2) where v > 1 versus v > 2"
    given = [blob, text, "window(50)", 1_100, "window(50)", 1_050]
    columns = [pa.array([each]) for each in given]
    (found,) = time_ranges.answer(time_ranges.COMPARE, (), columns, {}).to_pylist()
    moments: dict[str, Any] = {"now": ("window(50)", 1_100), "then": ("window(50)", 1_050)}
    expected = sketch.compare("mean", of="v * 2", where="v > 1", versus="v > 2", **moments)
    assert (found["value"], found["upper"]) == (expected.value, expected.upper)
    columns = [pa.array([each]) for each in (blob, "count where v > 1", 1_000, 1_100)]
    (found,) = time_ranges.answer(time_ranges.BETWEEN, (), columns, {}).to_pylist()
    assert found["value"] == sketch.between(1_000, 1_100).count(where="v > 1").value


def refused(function: str, *given: Any, expected: str) -> None:
    with pytest.raises(FunctionError, match=expected):
        time_ranges.answer(function, (), [pa.array([each]) for each in given], {})


def test_what_cannot_be_asked_is_refused_by_name(sketch: ds.DecaySketch) -> None:
    blob = sketch.to_bytes()
    fixed = FIXED.empty().to_bytes()
    between, compare = time_ranges.BETWEEN, time_ranges.COMPARE
    refused(between, blob, "mode", 1, 2, expected="aggregate is 'mode'; expected one of sum")
    refused(between, blob, "rank", 1, 2, expected="aggregate 'rank': it takes value after a colon")
    refused(between, blob, "mean:3", 1, 2, expected="it takes no argument, not '3'")
    refused(between, blob, "mean", 2, 2, expected=r"range is \[2, 2\)")
    refused(between, blob, "heavy_hitters:0.1", 1_000, 1_100, expected="more than one estimate")
    refused(between, blob, "quantile:0.1,0.9", 1_000, 1_100, expected="more than one estimate")
    refused(between, blob, "max", 1, 2, expected="the family 'decay' has no max")
    refused(between, fixed, "mean", 1, 2, expected="was fixed when it was built")
    refused(between, b"x", "mean", 1, 2, expected="CorruptSketchError")
    refused(between, blob, "mean", 1.5, 2, expected="start is 1.5; expected an integer time")
    refused(between, blob, "mean", "a", 2, expected="start is of type string; expected integers")
    refused(between, blob, "mean", 1, expected="stop is missing")
    moment = ("none", 1_100, "none", 1_050)
    refused(compare, blob, "median", *moment, expected="median cannot be compared")
    refused(compare, blob, "count", *moment, "sum", expected="how is 'sum'")
    refused(compare, blob, "count", *moment, "ratio", 2.0, expected="confidence is 2")
