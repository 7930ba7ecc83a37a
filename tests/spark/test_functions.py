"""SQL functions over sketches in a session of Spark."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import decaysketch as ds
from decaysketch import families
from decaysketch.errors import ParameterError
from decaysketch.spark import functions, register
from decaysketch.spark import functions as F  # noqa: N812
from decaysketch.tables.sql import queries
from decaysketch.tables.sql.queries import FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from tests.sql.given import FIXED, NOW, PARAMS, ROWS, SECRET, SUMS, columns

ROOT = Path(__file__).resolve().parents[2]


class TestNames:
    def test_every_question_has_both_forms(self) -> None:
        for name in FUNCTIONS:
            for called in (name, f"{name}_value"):
                assert called in functions.__all__
                function = getattr(functions, called)
                assert function.__name__ == called
                assert "now:" in function.__doc__
                assert ("argument:" in function.__doc__) == (FUNCTIONS[name].argument is not None)


# ------------------------------------------------------------------------------------ in a session


@pytest.fixture(scope="module")
def sql(session: SparkSession) -> SparkSession:
    register(session, {"temps": PARAMS, "secret": SECRET, "fixed": FIXED, "sums": SUMS})
    session.sql("""
        CREATE OR REPLACE TEMPORARY VIEW readings AS
        SELECT CONCAT('d', id % 3) AS device, id AS number, id * 1.5 AS value,
               CAST(1 + id % 4 AS DECIMAL(5, 0)) AS weight, timestamp_seconds(1000 + id) AS at
        FROM range(100)
    """)
    session.sql("""
        SELECT device, sketch_build('temps', value, weight, at, device, number) AS sketch
        FROM readings GROUP BY device
    """).localCheckpoint().createOrReplaceTempView("sketches")
    return session


class TestDataFrames:
    def test_build_merge_and_ask(self, sql: SparkSession) -> None:
        from pyspark.sql import functions as sf

        built = (
            sql.table("readings")
            .groupBy("device")
            .agg(
                F.sketch_build(PARAMS, "value", "at", ["device", "number"], weight="weight").alias(
                    "s"
                )
            )
        )
        expected = {row.device: row.sketch for row in sql.table("sketches").collect()}
        rows = built.select(
            "device",
            "s",
            F.decayed_sum("s", ds.decay.window(3600), NOW).alias("sum"),
            F.decayed_quantiles_value("s", [0.1, 0.9], "none", sf.lit(NOW)).alias("quantiles"),
            F.selectivity_value(
                "s",
                "v > 30",
                ds.decay.expression("exp(-x/60)"),
                datetime(1970, 1, 1, 0, 18, 20, tzinfo=UTC),
            ).alias("warm"),
            F.decayed_mean("s", "none", NOW, confidence=0.5).value.alias("mean"),
            F.sketch_info("s").rows.alias("rows"),
        ).collect()
        for row in rows:
            assert row.s == expected[row.device]
            found = families.decode(bytes(row.s))
            assert isinstance(found, ds.DecaySketch)
            assert row["sum"].value == found.sum(ds.decay.window(3600), now=NOW).value
            assert row.quantiles == [
                each.value for each in found.quantile([0.1, 0.9], ds.decay.none(), now=NOW)
            ]
            share = found.selectivity(
                lambda v, w: v > 30, ds.decay.expression("exp(-x/60)"), now=NOW
            )
            assert row.warm == pytest.approx(share.value)
            assert row.mean == found.mean(ds.decay.none(), now=NOW).value
            assert row.rows == len(found)
        merged = built.agg(F.sketch_merge("s").alias("s"))
        [[count, same]] = merged.select(
            F.decayed_count_value("s", "none", NOW), sf.col("s") == F.sketch_union("s", "s")
        ).collect()
        assert (count, same) == (ROWS, True)

    def test_rows_without_a_time_are_left_out_and_counted(self, sql: SparkSession) -> None:
        from pyspark.sql import functions as sf

        gappy = sql.table("readings").withColumn("at", sf.expr("if(number < 7, NULL, at)"))
        gappy.createOrReplaceTempView("gappy")
        rows = sql.sql("""
            SELECT device, (b).sketch AS sketch, b.rows, b.refused, b.first_refusal
            FROM (SELECT device, sketch_build_counted('temps', value, weight, at, device, number)
                         AS b FROM gappy GROUP BY device)
        """).collect()
        assert sum(row.rows for row in rows) == ROWS - 7
        assert sum(row.refused for row in rows) == 7
        assert all(row.first_refusal.endswith("is missing") for row in rows)
        whole = sql.sql("""
            SELECT device, sketch_build('temps', value, weight, at, device, number) AS sketch
            FROM gappy WHERE at IS NOT NULL GROUP BY device
        """).collect()
        assert {row.device: row.sketch for row in rows} == {r.device: r.sketch for r in whole}
        ids = ["device", "number"]
        for column in (
            F.sketch_build(PARAMS, "value", "at", ids, weight="weight", refused="count"),
            F.sketch_build_counted(PARAMS, "value", "at", ids, weight="weight"),
        ):
            found = gappy.groupBy("device").agg(column.alias("b")).select("device", "b.*").collect()
            assert {r.device: (r.sketch, r.refused) for r in found} == {
                row.device: (row.sketch, row.refused) for row in rows
            }
        [nothing] = sql.sql("""
            SELECT (SELECT sketch_build_counted('temps', value, NULL, at, number)
                    FROM gappy WHERE number < 0) AS b
        """).collect()
        assert nothing.b is None
        with pytest.raises(ParameterError, match="refused is 'drop'; expected 'raise' or 'count'"):
            F.sketch_build(PARAMS, "value", "at", ids, refused="drop")  # type: ignore[arg-type]

    def test_other_families_and_secrets(self, sql: SparkSession) -> None:
        fixed = FIXED.empty()
        fixed.update(**columns())
        expected = {
            "decayed_mean_value(sketch_build('fixed', value, weight, {0}), NULL, 1100)": fixed.mean(
                now=NOW
            ).value,
            "decayed_sum_value(sketch_build('sums', number, NULL, {0}), 'window(2h)', 1100)": 4950,
            "decayed_count_value(sketch_build('secret', 1, NULL, {0}), 'none', now => 1100)": ROWS,
        }
        for asked, answer in expected.items():
            statement = (
                f"SELECT {asked.format('at, substr(device, 2) :: INT, number')} FROM readings"
            )
            [[found]] = sql.sql(statement).collect()
            assert found == pytest.approx(answer), asked

    @pytest.mark.parametrize("ansi", ["true", "false"])
    def test_ansi_mode_changes_nothing(self, sql: SparkSession, ansi: str) -> None:
        sql.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            [row] = sql.sql("""
                SELECT decayed_rank_value(sketch, 30, 'none', 1100) AS whole,
                       decayed_rank_value(sketch, 30BD, 'none', 1100L) AS decimal,
                       decayed_sum_value(sketch, 'none', NULL) AS null,
                       CAST(decayed_sum(sketch, 'none', 1100).value AS DECIMAL(9, 1)) AS sum
                FROM sketches WHERE device = 'd0'
            """).collect()
        finally:
            sql.conf.unset("spark.sql.ansi.enabled")
        assert row.whole == row.decimal > 0
        assert row.null is None
        assert row["sum"] == 85

    def test_ranges_and_comparisons(self, sql: SparkSession) -> None:
        rows = sql.sql("""
            SELECT sketch, decayed_between(sketch, 'mean', 1010, timestamp_seconds(1060)) AS part,
                   decayed_compare(sketch, 'count', 'window(20)', 1090, 'window(20)', 1040,
                                   how => 'ratio') AS changed
            FROM sketches
        """).collect()
        columns = sql.table("sketches").select(
            F.decayed_between("sketch", "mean", 1_010, 1_060).alias("part"),
            F.decayed_compare(
                "sketch", "count", ds.decay.window(20), 1_090, "window(20)", 1_040, how="ratio"
            ).alias("changed"),
        )
        assert [row[1:] for row in rows] == [tuple(row) for row in columns.collect()]
        for row in rows:
            sketch = ds.DecaySketch.from_bytes(bytes(row.sketch))
            mean = sketch.between(1_010, 1_060).mean()
            moments = {"now": ("window(20)", 1_090), "then": ("window(20)", 1_040)}
            ratio = sketch.compare("count", **moments, how="ratio")
            assert (row.part.value, row.part.exact) == (mean.value, mean.exact)
            assert (row.changed.value, row.changed.changed) == (ratio.value, ratio.changed)

    def test_every_function_answers_in_sql(self, sql: SparkSession) -> None:
        """All of such a sketch in one SELECT, from the examples of the table; those of keys are
        asked in ``test_sites.py``."""

        def literal(form: queries.Form) -> str:
            leading = form.question.leading
            assert leading is not None
            return written(leading.example[0] if form.one else leading.example)

        def written(example: object) -> str:
            if isinstance(example, list):
                return f"array({', '.join(map(written, example))})"
            return f"'{example}'" if isinstance(example, str) else str(example)

        calls = {
            called: f"{called}(sketch, "
            + (f"{literal(form)}, " if form.argument is not None else "")
            + "'window(1h)', 1100)"
            for name, form in FUNCTIONS.items()
            if form.question.name in ds.DecaySketch.questions and not form.labels
            for called in (name, f"{name}_value")
        }
        [row] = sql.sql(
            f"SELECT {', '.join(f'{call} AS {called}' for called, call in calls.items())}, sketch "
            "FROM sketches WHERE device = 'd0'"
        ).collect()
        sketch = ds.DecaySketch.from_bytes(bytes(row.sketch))
        assert all(row[called] is not None for called in calls)
        view = sketch.at(ds.decay.window(3_600), NOW)
        histogram = view.ask("histogram", edges=[0, 10, 20, 30])
        assert [each.share for each in row.decayed_histogram.bins] == [
            each.share.value for each in histogram.bins
        ]
        assert row.decayed_histogram.above.value == row.decayed_histogram_value.above
        assert row.decayed_histogram.above.value == histogram.above.value
        last = sketch.last(ds.decay.window(3_600), now=NOW)
        assert (row.decayed_last.value, row.decayed_last.time) == last
        assert row.decayed_rate_value == view.ask("rate").value


class TestLimits:
    """What the engine cannot do, with the error it gives, and what to do instead."""

    def fails(self, sql: SparkSession, statement: str, reason: str) -> None:
        with pytest.raises(Exception, match=reason):
            sql.sql(statement).collect()

    def test_errors_name_the_function_and_the_reason(self, sql: SparkSession) -> None:
        self.fails(
            sql,
            "SELECT decayed_mean(CAST('abc' AS BINARY), 'none', 1)",
            "FunctionError: decayed_mean: row 0 of its batch: CorruptSketchError",
        )
        self.fails(
            sql,
            "SELECT sketch_build('temps', value, 11, at, number) FROM readings",
            r"sketch_build: batch 0 .*ObservationError: weight\[0\] is 11; expected 0 to 10",
        )

    def test_one_aggregate_of_a_select(self, sql: SparkSession) -> None:
        self.fails(
            sql,
            "SELECT sketch_merge(sketch), sketch_merge(substr(sketch, 1)) FROM sketches",
            "One GROUPED_AGG_ARROW_ITER UDF expected here",
        )
        [row] = sql.sql("""
            SELECT sketch_union(collect_list(sketch))
                   = sketch_union(collect_list(substr(sketch, 1))) AS same
            FROM sketches
        """).collect()
        assert row.same

    def test_two_global_aggregates_of_one_table(self, sql: SparkSession) -> None:
        two = """
            SELECT octet_length(a.s) = octet_length(b.s) AS same
            FROM (SELECT {0} sketch_build('temps', value, weight, at, number) AS s
                  FROM readings {1}) a
            CROSS JOIN (SELECT {0} sketch_build('temps', value, NULL, at, number) AS s
                        FROM readings {1}) b
        """
        self.fails(sql, two.format("", ""), "aggBufferAttributes should not be called")
        [row] = sql.sql(two.format("number < 0 AS k,", "GROUP BY k")).collect()
        assert not row.same
        rule = "org.apache.spark.sql.execution.planmerging.MergeSubplans"
        sql.conf.set("spark.sql.optimizer.excludedRules", rule)
        try:
            assert sql.sql(two.format("", "")).collect() == [row]
        finally:
            sql.conf.unset("spark.sql.optimizer.excludedRules")

    def test_beside_native_aggregates(self, sql: SparkSession) -> None:
        self.fails(
            sql,
            "SELECT sketch_merge(sketch), count(*) FROM sketches",
            "INVALID_PANDAS_UDF_PLACEMENT",
        )
        [row] = sql.sql("""
            SELECT count(*) AS n, decayed_count_value(
                sketch_union(collect_list(sketch)), 'none', 1100) AS rows FROM sketches
        """).collect()
        assert (row.n, row.rows) == (3, ROWS)

    @pytest.mark.parametrize(
        ("call", "clause"),
        [
            ("sketch_merge(sketch) FILTER (WHERE device = 'd1')", "FILTER CLAUSE"),
            ("sketch_merge(DISTINCT sketch)", "DISTINCT"),
        ],
    )
    def test_filter_and_distinct(self, sql: SparkSession, call: str, clause: str) -> None:
        reason = f"FUNCTION_WITH_UNSUPPORTED_SYNTAX.* does not support {clause}"
        self.fails(sql, f"SELECT {call} FROM sketches", reason)
        [row] = sql.sql("""
            SELECT sketch_union(collect_list(sketch) FILTER (WHERE device = 'd1')) = (
                       SELECT sketch_merge(if(device = 'd1', sketch, NULL)) FROM sketches) AS same
            FROM sketches
        """).collect()
        assert row.same

    def test_windows(self, sql: SparkSession) -> None:
        self.fails(
            sql,
            "SELECT sketch_merge(sketch) OVER (ORDER BY device) FROM sketches",
            "INTERNAL_ERROR",
        )
        rows = sql.sql("""
            SELECT decayed_count_value(sketch_union(collect_list(sketch) OVER (ORDER BY device)),
                                       'none', 1100) AS n
            FROM sketches ORDER BY n
        """).collect()
        assert [row.n for row in rows] == [34, 67, 100]

    def test_named_arguments_of_aggregates(self, sql: SparkSession) -> None:
        self.fails(
            sql,
            "SELECT sketch_build(stream => 'temps', value => value, id => number) FROM readings",
            "has positional arguments only",
        )

    def test_a_global_aggregate_over_nothing(self, sql: SparkSession) -> None:
        assert sql.sql("SELECT sketch_merge(sketch) FROM sketches WHERE false").collect() == []
        for statement in (
            "SELECT (SELECT sketch_merge(sketch) FROM sketches WHERE false) AS s",
            "SELECT sketch_union(collect_list(sketch)) AS s FROM sketches WHERE false",
        ):
            [row] = sql.sql(statement).collect()
            assert row.s is None

    def test_permanent_views(self, sql: SparkSession) -> None:
        self.fails(
            sql,
            "CREATE VIEW kept AS SELECT decayed_sum(CAST(NULL AS BINARY), 'none', 1) AS s",
            "INVALID_TEMP_OBJ_REFERENCE",
        )

    def test_outer_joins_on_an_answer(self, sql: SparkSession) -> None:
        on = "decayed_rank_value(a.sketch, octet_length(b.sketch), 'none', 1100) > 0"
        joined = "SELECT a.device FROM sketches a {} JOIN sketches b ON " + on
        self.fails(sql, joined.format("LEFT"), "PYTHON_UDF_IN_ON_CLAUSE")
        assert len(sql.sql(joined.format("INNER")).collect()) == 9

    def test_pivot(self, sql: SparkSession) -> None:
        self.fails(
            sql,
            "SELECT * FROM sketches PIVOT (sketch_merge(sketch) FOR device IN ('d0', 'd1'))",
            "PANDAS_UDAF_IN_PIVOT",
        )
        [row] = sql.sql("""
            SELECT sketch_union(d0) = (SELECT sketch FROM sketches WHERE device = 'd0') AS same
            FROM sketches PIVOT (collect_list(sketch) FOR device IN ('d0', 'd1'))
        """).collect()
        assert row.same


class TestDocument:
    def test_names_every_function_and_errors_that_are_tested(self) -> None:
        text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
        section = text[text.index("## SQL functions") : text.index("## Streaming")]
        for name in {name.removesuffix("_value") for name in functions.__all__}:
            assert f"`{name}" in section or f"`F.{name}" in section, name
        errors = set(re.findall(r"`[^`|]*?([A-Z]{3,}_[A-Z_]{5,})", section))
        tested = inspect.getsource(TestLimits)
        assert len(errors) == 7
        assert {error for error in errors if error not in tested} == set()


CONNECT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from spark_jobs.java import ensure_java
ensure_java()
from pyspark.sql import SparkSession
import decaysketch as ds
from decaysketch.spark import functions as F, register

spark = SparkSession.builder.remote("local[1]").getOrCreate()
params = ds.SketchParams(max_weight=1, id_bits=48, capacity=500)
register(spark, {"temps": params})
log = spark.sql("SELECT id % 3 AS k, id, id * 1.5 AS v FROM range(60) UNION ALL SELECT 0, 1, 1.5")
log.createOrReplaceTempView("log")
by_sql = spark.sql("SELECT sketch_build('temps', v, NULL, id, id) AS s FROM log GROUP BY k")
by_frame = log.groupBy("k").agg(F.sketch_build(params, "v", "id", "id").alias("s"))
counts = [
    frame.agg(F.sketch_merge("s").alias("s"))
    .select(F.decayed_count_value("s", ds.decay.window(100), 60)).first()[0]
    for frame in (by_sql, by_frame)
]
try:
    spark.sql("SELECT decayed_sum(X'00', 'none', 1)").collect()
except Exception as fault:
    named = "decayed_sum: row 0 of its batch: CorruptSketchError" in str(fault)
print("answers", type(spark).__module__, counts, named)
"""


@pytest.mark.spark
@pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs grpcio, not installed")
def test_under_spark_connect() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONNECT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
    )
    assert "answers pyspark.sql.connect.session [60.0, 60.0] True" in done.stdout
