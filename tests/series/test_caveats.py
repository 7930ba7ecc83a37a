"""A result that may mislead says so on every interface, and a build of few series advises."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import decaysketch as ds
import decaysketch.duckdb as in_duckdb
import decaysketch.polars as in_polars
from decaysketch import tables
from decaysketch.cli import app
from decaysketch.query.estimate import CAVEATS
from decaysketch.series import SeriesParams, SeriesSketch
from decaysketch.tables.sql import aggregates, queries, query_syntax

NOW, DECAY = 1_000, "window(900)"
PARAMS = SeriesParams(capacity=200)
DEVICES = np.repeat(np.arange(5), 1_000)
FEW = pd.DataFrame(
    {"time": np.tile(np.arange(1_000), 5), "device": DEVICES, "value": np.tile(np.arange(1e3), 5)}
)


def few() -> SeriesSketch:
    """Five devices, of which the sketch retains none from the beginning of the window on."""
    sketch = SeriesSketch(PARAMS)
    sketch.update(FEW["value"].to_numpy(), 1, FEW["time"].to_numpy(), FEW["device"].to_numpy())
    return sketch


def restarting() -> SeriesSketch:
    """Thirty counters, each scraped every 10 s by one collector, with a restart each 4 scrapes."""
    sketch = SeriesSketch(SeriesParams())
    for series in range(30):
        times = np.arange(series % 10, 1_000, 10)
        sketch.update(times % 40 * 1.0, 1, times, np.full(len(times), series))
    return sketch


MADE = {"few-series": few, "hidden-restarts": restarting}


def of_python(sketch: SeriesSketch, _folder: Path) -> Any:
    assert sketch.increase_rate(DECAY, now=NOW).caveats == sketch.increase(DECAY, now=NOW).caveats
    return sketch.increase(DECAY, now=NOW).caveats


def columns_of(sketch: SeriesSketch) -> list[pa.Array]:
    return [pa.array([sketch.to_bytes()]), pa.array([DECAY]), pa.array([NOW])]


def of_spark(sketch: SeriesSketch, _folder: Path) -> Any:
    """The functions that Spark calls with batches."""
    columns = columns_of(sketch)
    [text] = query_syntax.answer((), [*columns, pa.array(["increase"])], {}).to_pylist()
    [found] = queries.answer("decayed_increase", (), columns, {}).to_pylist()
    assert text[0]["caveats"] == found["caveats"]
    return found["caveats"]


def of_duckdb(sketch: SeriesSketch, _folder: Path) -> Any:
    connection = duckdb.connect()
    in_duckdb.register(connection)
    connection.register("t", pa.table({"s": [sketch.to_bytes()]}))
    asked = f"decayed_increase(s, '{DECAY}', {NOW})"
    [(found,)] = connection.sql(f"SELECT {asked} FROM t").fetchall()
    return found["caveats"]


def of_polars(sketch: SeriesSketch, _folder: Path) -> Any:
    frame = pl.DataFrame({"s": [sketch.to_bytes()]})
    asked = pl.col("s").sketch.decayed_increase(DECAY, NOW)  # type: ignore[attr-defined]
    return frame.select(asked)["s"].to_list()[0]["caveats"]


def of_command(sketch: SeriesSketch, folder: Path) -> Any:
    file = folder / "s.sketch"
    file.write_bytes(sketch.to_bytes())
    command = ["query", str(file), "increase", "--decay", DECAY, "--now", str(NOW)]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "1000"})
    ran = CliRunner().invoke(app, [*command, "--json"])
    assert (shown.exit_code, ran.exit_code) == (0, 0), ran.output
    [found] = json.loads(ran.stdout)["answers"]
    assert all(CAVEATS[name] in " ".join(shown.stdout.split()) for name in found["caveats"])
    return found["caveats"]


INTERFACES: list[Callable[[SeriesSketch, Path], Any]] = [
    of_python, of_spark, of_duckdb, of_polars, of_command
]  # fmt: skip


@pytest.mark.parametrize("caveat", MADE)
@pytest.mark.parametrize("ask", INTERFACES, ids=lambda ask: ask.__name__)
def test_every_interface_has_the_caveat(
    ask: Callable[[SeriesSketch, Path], Any], caveat: str, tmp_path: Path
) -> None:
    assert list(ask(MADE[caveat](), tmp_path)) == [caveat]


def test_no_caveat_without_a_reason() -> None:
    """Pairs of collectors with clocks up to 45 s apart, and counters that restart seldom."""
    for ahead in (0, 2, 28, 45):
        sketch = SeriesSketch(SeriesParams())
        for series in range(10):
            for skew in (0, ahead):
                times = np.arange(series % 15, 3_600, 15)
                shown = (times % 1_800) * (1.0 + series)
                sketch.update(shown, 1, times + skew, np.full(len(times), series))
        found = sketch.increase("window(1800)", now=3_600)
        assert found.caveats == ()
        assert found.value == pytest.approx(55 * 1_800, rel=0.02)


def test_starts_and_no_guard_hide_nothing() -> None:
    sketch, started = restarting(), SeriesSketch(SeriesParams())
    for series in range(30):
        times = np.arange(series % 10, 1_000, 10)
        started.update(
            times % 40 * 1.0, 1, times, np.full(len(times), series), starts=times - times % 40
        )
    assert sketch.increase(DECAY, now=NOW, guard=0).caveats == ()
    assert started.increase(DECAY, now=NOW).caveats == ()


def advice_of_frame(_folder: Path) -> str:
    with pytest.warns(ds.FewSeriesWarning) as said:
        SeriesSketch.from_frame(FEW, time="time", value="value", id="device", params=PARAMS)
    return str(said[0].message)


def advice_of_duckdb(_folder: Path) -> str:
    relation = duckdb.connect().from_df(FEW)
    with pytest.warns(ds.FewSeriesWarning) as said:
        in_duckdb.build(relation, PARAMS, time="time", value="value", id="device")
    return str(said[0].message)


def advice_of_polars(_folder: Path) -> str:
    frame = pl.from_pandas(FEW.assign(site="s"))
    with pytest.warns(ds.FewSeriesWarning) as said:
        in_polars.build(frame, PARAMS, time="time", value="value", id="device", by="site")
    return str(said[0].message)


def advice_of_sql(_folder: Path) -> str:
    columns = FEW["value"], np.ones(len(FEW), np.int64), FEW["time"], FEW["device"]
    batch = tuple(pa.array(each) for each in columns)
    built = aggregates.build_counted("f", ds.families.recipe_of(PARAMS), None, iter([batch]))
    assert built is not None
    [said] = built["warnings"]
    return str(said)


def advice_of_command(folder: Path) -> str:
    FEW.to_parquet(folder / "log.parquet")
    command = ["build", str(folder / "log.parquet"), "--family", "series", "--id-columns", "device",
               "--capacity", "200", "--time-unit", "s", "--any-time",
               "--out", str(folder / "log.sketch"), "--json"]  # fmt: skip
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    return str(json.loads(ran.stdout)["advice"])


def advice_of_keyed_command(folder: Path) -> str:
    FEW.assign(site="s").to_parquet(folder / "log.parquet")
    command = ["build", str(folder / "log.parquet"), "--family", "series", "--id-columns", "device",
               "--by", "site", "--capacity", "200", "--time-unit", "s", "--any-time",
               "--out", str(folder / "table.parquet")]  # fmt: skip
    ran = CliRunner().invoke(app, command, env={"COLUMNS": "1000"})
    assert ran.exit_code == 0, ran.output
    return ran.output


def advice_of_spark(_folder: Path) -> str:
    """The last step of a build by Spark, in this process."""
    recipe = ds.families.recipe_of(PARAMS)
    builder = tables.KeyedBuilder(
        recipe, tables.ColumnMapping(time="time", ids=("device",), value="value")
    )
    builder.add(pa.Table.from_pandas(FEW))
    [merged] = tables.partition_merger((), recipe, tally=True)(builder.batches())
    return str(merged.to_pylist()[0]["__advice"])


ADVISED = [
    advice_of_frame, advice_of_duckdb, advice_of_polars, advice_of_sql, advice_of_command,
    advice_of_keyed_command, advice_of_spark,
]  # fmt: skip


@pytest.mark.parametrize("build", ADVISED, ids=lambda build: build.__name__)
def test_every_build_of_few_series_advises(build: Callable[[Path], str], tmp_path: Path) -> None:
    assert "choose a resolution, such as 10 s" in build(tmp_path)
    assert "choose a resolution" in str(few().stats().advice)
    assert "choose a resolution" in repr(few())
