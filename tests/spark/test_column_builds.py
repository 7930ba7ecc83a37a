"""Streams with columns in Spark: every way to build gives the bytes of every other interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.rows import for_each

from decaysketch.spark import functions as F  # noqa: N812
from decaysketch.spark import register
from decaysketch.spark.build import sketch_table
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import ColumnMapping
from spark_jobs import build
from tests.spark.test_programs import run
from tests.tables.test_column_builds import (
    INFERRED,
    LOG,
    MAPPING,
    PARAMS,
    RENAMED,
    expected,
    hourly_means,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_program(format: str, columns: str) -> Callable[[SparkSession, Path], bytes]:
    def built(session: SparkSession, folder: Path) -> bytes:
        log, out = written(folder, format), folder / f"{format}-{len(columns)}"
        options = ["--time-column", "at", "--id-columns", "dev,n", "--columns", columns]
        options += ["--time-unit", "s", "--column-unit", "s", "--accuracy", "2%", "--by", ""]
        kind = ["--format", "json"] if format == "ndjson" else []
        status, said = run(build.main, log, "--out", out, *options, *kind)
        assert status == 0, said
        [row] = SketchTable.open(out).sketches()
        return bytes(row.blob)

    return built


def by_table(session: SparkSession, _: Path) -> bytes:
    [row] = sketch_table(session, session.createDataFrame(LOG), PARAMS, MAPPING).collect()
    return bytes(row.sketch)


def by_function(*given: Any) -> Callable[[SparkSession, Path], bytes]:
    def built(session: SparkSession, _: Path) -> bytes:
        log = session.createDataFrame(LOG)
        [row] = log.groupBy().agg(F.sketch_build(PARAMS, *given).alias("s")).collect()
        return bytes(row.s)

    return built


def by_sql(session: SparkSession, _: Path) -> bytes:
    register(session, {"fleet": PARAMS})
    session.createDataFrame(LOG).createOrReplaceTempView("log_of_columns")
    query = """SELECT sketch_build('fleet', struct(t_degc AS temp, site, fw, ok), 1, at, dev, n) s
               FROM log_of_columns"""
    [row] = session.sql(query).collect()
    return bytes(row.s)


BUILDS: dict[str, Callable[[SparkSession, Path], bytes]] = {
    "program, CSV": by_program("csv", RENAMED),
    "program, Parquet, inferred": by_program("parquet", INFERRED),
    "program, NDJSON": by_program("ndjson", RENAMED),
    "sketch_table": by_table,
    "sketch_build by a mapping": by_function(MAPPING),
    "sketch_build by columns": by_function(dict(MAPPING.columns), "at", ["dev", "n"]),
    "SQL": by_sql,
}


@pytest.mark.usefixtures("shared_session")
@for_each("name", BUILDS)
def test_every_build_gives_the_same_bytes(name: str, session: SparkSession, tmp_path: Path) -> None:
    assert BUILDS[name](session, tmp_path) == expected().to_bytes()


HOURLY = f"""
    SELECT r.by[0].value AS site, r.by[1].value AS hour, r.value, r.rows
    FROM (SELECT explode(decayed_query(sketch, 'none', {LOG["at"][-1]}, '{{query}}')) AS r
          FROM (SELECT sketch_merge(sketch) AS sketch FROM sketches_of_columns))
"""


def test_a_table_for_each_site_and_hour(session: SparkSession) -> None:
    """From one table with a sketch for each firmware, as the documentation shows it."""
    register(session)
    mapping = ColumnMapping(time="at", ids=("dev", "n"), columns=dict(MAPPING.columns))
    sketches = sketch_table(session, session.createDataFrame(LOG), PARAMS, mapping, ["fw"])
    sketches.createOrReplaceTempView("sketches_of_columns")
    query = HOURLY.format(query="mean(temp) by site, bucket(time, ''1h'') where ok")
    rows = session.sql(query.replace("''", "\\'")).collect()
    assert hourly_means() == pytest.approx({(row.site, row.hour): row.value for row in rows})


def test_a_struct_is_expected_where_the_stream_has_columns(session: SparkSession) -> None:
    log = session.createDataFrame(LOG)
    built = log.groupBy().agg(F.sketch_build(PARAMS, "t_degc", "at", ["dev", "n"]).alias("s"))
    with pytest.raises(Exception, match="expected a struct of the stream's columns"):
        built.collect()
