"""One text, the same result: in Python, Arrow functions of SQL, DuckDB, polars and the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import decaysketch as ds
import decaysketch.duckdb
import decaysketch.polars
from decaysketch.cli import app
from decaysketch.query.frames import rows_of
from decaysketch.query.query_syntax import query_of
from decaysketch.query.tables import GroupTable
from decaysketch.tables.sql import query_syntax
from decaysketch.tables.sql.queries import FunctionError

ROWS, START = 4_000, 1_780_000_000
NOW = START + 60 * ROWS
DECAY = "exponential(half_life=12h)"
HEADS = (
    "sum()", "sum(v)", "count()", "rate()", "total(v * 2)", "mean(v)", "variance(v)", "stddev(v)",
    "median(v)", "quantile(v, 0.5)", "quantile(v, 0.1, 0.9)", "rank(v, 2)", "cdf(v, 1, 2)",
    "selectivity(v > 1 and w > 1)", "selectivity(at_least=1, at_most=2)",
    "heavy_hitters(v // 1, 0.05)", "group_by(v // 1, limit=5)", "histogram(v, 0, 1, 2)",
    "ratio(v, w)", "covariance(v, age)", "correlation(v, min(age, 86400))",
    "regression(v, age, v > 1)",
)  # fmt: skip
MODIFIERS = (
    "",
    " where v > 0.5 and hour(time, 'Europe/Paris') < 18",
    " by w where v > 0.5 weight exp(-age / 86400) order key",
    " by bucket(time, '12h'), v is null limit 3",
)
COMPARED = (
    " where w == 1 versus w == 2", " by w where v > 1 versus v < 1 how ratio order key",
    " by hour(time) // 12 versus w == 2 weight exp(-age / 86400)",
)  # fmt: skip


def build() -> ds.DecaySketch:
    rng = np.random.default_rng(4)
    params = ds.SketchParams(max_weight=3, id_bits=40, capacity=400, time_unit="s")
    sketch = ds.DecaySketch(params)
    values = np.ma.masked_array(rng.lognormal(0, 1, ROWS), rng.random(ROWS) < 0.1)
    times = START + 60 * np.arange(ROWS)
    sketch.update(values, rng.integers(1, 4, ROWS), times, np.arange(ROWS))
    return sketch


SKETCH = build()
BLOB = SKETCH.to_bytes()


def expected(text: str) -> list[dict[str, Any]]:
    """Rows of the library."""
    question, arguments, modifiers = query_of(text)
    found = SKETCH.at(DECAY, NOW).modified(modifiers).ask(question, **arguments)
    if not isinstance(found, GroupTable):
        return [{"by": {}, **row} for row in rows_of(question, found, arguments)]
    return [
        {"by": group.by, **row}
        for group in found
        for row in rows_of(question, group.answer, arguments)
    ]


def texts() -> list[str]:
    found = [head + more for head in HEADS for more in MODIFIERS]
    compared = (head for head in HEADS if query_of(head).question.compared)
    found += [head + more for head in compared for more in COMPARED]
    return [text for text in found if not (text.startswith("rate") and "weight" in text)]


def by(row: dict[str, Any]) -> Any:
    return row["by"].items()


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """As SQL has them: NULL for NaN, keys as texts."""
    return [
        (
            [(key, json.dumps(value) if value is not None else None) for key, value in by(row)],
            *(None if np.isnan(row[end]) else row[end] for end in ("value", "lower", "upper")),
            row["exact"], row["rows"], row["caveats"].split(), row.get("changed"),
        )
        for row in rows
    ]  # fmt: skip


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        ([(each["key"], each["value"]) for each in row["by"]], row["value"], row["lower"],
         row["upper"], row["exact"], row["rows"], row["caveats"], row["changed"])
        for row in rows
    ]  # fmt: skip


def test_sql_has_the_rows_of_the_library() -> None:
    asked = texts()
    columns = [pa.array([BLOB] * len(asked)), pa.array([DECAY] * len(asked)),
               pa.array([NOW] * len(asked)), pa.array(asked)]  # fmt: skip
    found = query_syntax.answer((), columns, {}).to_pylist()
    for text, rows in zip(asked, found, strict=True):
        assert shown(rows) == plain(expected(text)), text
    assert any(row["small"] for rows in found for row in rows)
    assert {row["changed"] for rows in found for row in rows} == {None, True, False}
    connection = duckdb.connect()
    decaysketch.duckdb.register(connection)
    table = pa.table({"sketch": columns[0], "decay": columns[1], "now": columns[2], "query": asked})
    connection.register("asked", table)
    in_duckdb = connection.sql(
        "SELECT decayed_query(sketch, decay, now, query) FROM asked"
    ).fetchall()
    assert [shown(rows) for (rows,) in in_duckdb] == [shown(rows) for rows in found]
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    in_polars = frame.select(
        pl.col("sketch").sketch.decayed_query(pl.col("decay"), "now", pl.col("query"))  # type: ignore[attr-defined]
    )["sketch"].to_list()
    assert [shown(rows) for rows in in_polars] == [shown(rows) for rows in found]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("mean(v) where x > 1", "'x' at character 0"),
        ("meen(v)", "did you mean 'mean\\(v\\)'"),
        ("max()", "has no max"),
        ("mean(v) by time", None),
    ],
)
def test_sql_names_what_cannot_be_read(query: str, said: str | None) -> None:
    columns = [pa.array([BLOB]), pa.array([DECAY]), pa.array([NOW]), pa.array([query])]
    if said is None:
        assert len(query_syntax.answer((), columns, {}).to_pylist()[0]) > 100
        return
    with pytest.raises(FunctionError, match="decayed_query: row 0 of its batch"):
        query_syntax.answer((), columns, {})
    with pytest.raises(FunctionError, match=said):
        query_syntax.answer((), columns, {})


def test_null_gives_null() -> None:
    given = [pa.array([BLOB, None]), pa.array([None, DECAY], pa.string()), pa.array([NOW, NOW]),
             pa.array(["mean", "mean"])]  # fmt: skip
    assert query_syntax.answer((), given, {}).to_pylist() == [None, None]


def test_the_program_has_the_rows_of_the_library(tmp_path: Path) -> None:
    file = tmp_path / "f.sketch"
    file.write_bytes(BLOB)
    asked = texts()
    command = ["query", str(file), *asked, "--decay", DECAY, "--now", str(NOW), "--json"]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)["answers"]
    rows = [row for text in asked for row in expected(text)]
    assert len(found) == len(rows)
    for one, row in zip(found, rows, strict=True):
        assert one.get("by", {}) == row["by"]
        assert one["value"] == (None if np.isnan(row["value"]) else row["value"])
        assert one["rows"] == row["rows"]
        assert one.get("changed") == row.get("changed")
    table = CliRunner().invoke(app, [*command[:2], "mean(v) by w", "--decay", DECAY])
    assert "w = 3" in table.stdout


@pytest.mark.parametrize("query", ["mean(v) where x > 1", "mean(v) by", "mean(v) by hr(time)"])
def test_the_program_names_what_cannot_be_read(tmp_path: Path, query: str) -> None:
    file = tmp_path / "f.sketch"
    file.write_bytes(BLOB)
    run = CliRunner().invoke(app, ["query", str(file), query])
    assert run.exit_code != 0
    assert "Traceback" not in run.output


def test_a_frame_has_a_row_for_each_group() -> None:
    frame = SKETCH.mean(DECAY, now=NOW, by=["w", "bucket(time, '12h')"], order="key").to_frame()
    assert list(frame.columns[:3]) == ["w", "bucket(time, '12h')", "value"]
    assert str(frame["bucket(time, '12h')"].dtype).startswith("datetime64")
    several = SKETCH.histogram([0, 1, 2], DECAY, now=NOW, by="w").to_frame()
    assert len(several) == 3 * 4
    assert {"low", "high", "of", "small"} <= {*several.columns}
