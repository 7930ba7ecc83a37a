"""Series from data frames, engines and files: starts, entities and attributes by column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import decaysketch as ds
import decaysketch.duckdb as engine
import decaysketch.polars  # the expressions of polars
from decaysketch.cli import app
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.families import decode, recipe_of
from decaysketch.series import NO_START, SeriesParams, SeriesSketch
from decaysketch.tables.sql import aggregates
from decaysketch.tables.sql.queries import FunctionError

PARAMS = SeriesParams(attributes="job, region")
ROWS = 60
FRAME = pd.DataFrame({
    "at": [100 + 10 * (k // 3) for k in range(ROWS)],
    "device": [f"d{k % 3}" for k in range(ROWS)],
    "host": ["h"] * ROWS,
    "n": [float(k // 3) for k in range(ROWS)],
    "begun": pd.array([90 if k % 2 else None for k in range(ROWS)], dtype="Int64"),
    "job": [f"j{k % 2}" for k in range(ROWS)],
    "region": [None if k % 5 else "eu" for k in range(ROWS)],
})  # fmt: skip
COLUMNS: Any = {"time": "at", "value": "n", "id": "device", "entity": "host", "start": "begun"}


def expected() -> SeriesSketch:
    sketch = SeriesSketch(PARAMS)
    sketch.update(
        FRAME["n"].to_numpy(), 1, FRAME["at"].to_numpy(),
        ds.observation_ids(FRAME["device"].tolist(), params=PARAMS),
        entities=ds.observation_ids(FRAME["host"].tolist(), params=PARAMS),
        starts=[NO_START if pd.isna(each) else int(each) for each in FRAME["begun"]],
        attributes={name: FRAME[name].tolist() for name in ("job", "region")},
    )  # fmt: skip
    return sketch


def by_frame(frame: Any) -> Any:
    return SeriesSketch.from_frame(frame, params=PARAMS, **COLUMNS)


def by_duckdb(_frame: Any) -> Any:
    table = engine.build(duckdb.connect().from_df(FRAME), PARAMS, **COLUMNS)
    return decode(table["sketch"][0].as_py())


def by_polars(_frame: Any) -> Any:
    table = decaysketch.polars.build(pl.from_pandas(FRAME), PARAMS, **COLUMNS)
    return decode(table["sketch"][0])


def by_sql(_frame: Any) -> Any:
    """The arguments of ``sketch_build`` in SQL: value, weight, time, id."""
    named = {"value": "n", "start": "begun", "entity": "host", "job": "job", "region": "region"}
    table = pa.Table.from_pandas(FRAME)
    columns = [table[column].combine_chunks() for column in named.values()]
    value = pa.StructArray.from_arrays(columns, list(named))
    time, device = (table[name].combine_chunks() for name in ("at", "device"))
    batch = (value, pa.nulls(ROWS), time, device)
    blob = aggregates.build("sketch_build", recipe_of(PARAMS), None, iter([batch]))
    assert blob is not None
    return decode(blob)


def test_sql_names_the_fields_of_a_value() -> None:
    value = pa.array([{"value": 1.0, "zone": "a"}])
    batch = (value, pa.nulls(1), pa.array([1]), pa.array(["d"]))
    with pytest.raises(FunctionError, match="'zone'; expected some of value, start, entity, job"):
        aggregates.build("sketch_build", recipe_of(PARAMS), None, iter([batch]))


def by_command(path: Path) -> Any:
    out = path.with_suffix(".sketch")
    command = [
        "build", str(path), "--family", "series", "--attributes", "job,region", "--id-columns",
        "device", "--entity-columns", "host", "--start-column", "begun", "--time-column", "at",
        "--value-column", "n", "--time-unit", "s", "--any-time", "--out", str(out),
    ]  # fmt: skip
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, (ran.output, ran.exc_info)
    asked = ["query", str(out), "increase by job", "--decay", "window(300s)", "--now", "300",
             "--json"]  # fmt: skip
    ran = CliRunner().invoke(app, asked)
    assert ran.exit_code == 0, (ran.output, ran.exc_info)
    assert "j1" in ran.stdout
    return decode(out.read_bytes())


@pytest.mark.parametrize(
    "build",
    [
        lambda _path: by_frame(FRAME),
        lambda _path: by_frame(pl.from_pandas(FRAME)),
        lambda _path: by_duckdb(FRAME),
        lambda _path: by_polars(FRAME),
        lambda _path: by_sql(FRAME),
        lambda path: (FRAME.to_parquet(path / "log.parquet"), by_command(path / "log.parquet"))[1],
        lambda path: (FRAME.to_csv(path / "log.csv", index=False), by_command(path / "log.csv"))[1],
    ],
    ids=["pandas", "polars", "duckdb", "polars build", "sql", "parquet", "csv"],
)
def test_every_build_gives_the_same_sketch(build: Callable[[Path], Any], tmp_path: Path) -> None:
    found = build(tmp_path)
    if "csv" in str(list(tmp_path.iterdir())):  # in which an empty text is no null
        assert found.increase("window(300)", now=300) == expected().increase("window(300)", now=300)
        return
    assert found == expected()


@pytest.mark.parametrize(
    ("changed", "columns", "message"),
    [
        ({"begun": 900}, {}, r"begun\[0\] is 900, after the time, 100"),
        ({"job": "x" * 1025}, {}, "1025"),
        ({"job": "x" * 600, "region": "y" * 600}, {}, "have 1200 bytes together"),
        ({}, {"entity": "nope"}, "no column 'nope'"),
        ({}, {"columns": {"zone": "job"}}, "columns has 'zone'; the stream has the columns job"),
    ],
)
def test_bad_columns_are_named(changed: Any, columns: Any, message: str) -> None:
    with pytest.raises((ObservationError, ParameterError), match=message):
        SeriesSketch.from_frame(FRAME.assign(**changed), params=PARAMS, **COLUMNS | columns)


def test_other_families_have_no_starts() -> None:
    with pytest.raises(ParameterError, match="start is 'begun'; expected none"):
        ds.DecaySketch.from_frame(
            FRAME, time="at", value="n", id="device", start="begun", column_unit="s",
            params=ds.SketchParams(),
        )  # fmt: skip
