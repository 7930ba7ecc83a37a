"""A session in SQL alone: build from a table, store, read back, merge by ROLLUP, ask, compare.

The log is one of deliveries: copies by several paths, late ones, missing values and event times.
Exact SQL over the same log counts each message once, by its latest copy, in every grouping set.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import decaysketch as ds
from decaysketch.spark import register
from tests.delivery_logs import delivery_log

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Key = tuple[Any, Any]

NOW_MS = 1_700_002_000_000
ROOMY = ds.SketchParams(max_weight=7, id_bits=48, capacity=2_000, seed=5, time_unit="ms")
TIGHT = ROOMY.with_capacity(150)

# Each decay as the functions take it, and as an expression of SQL in the age x (in ms).
DECAYS = {
    "window": ("window(20min)", "if(x <= 1200000, 1, 0)"),
    "half-life": ("exponential(half_life=5min)", "pow(2D, -x / 300000)"),
    "expression": ("1/(1 + log(1 + x/60000))", "1 / (1 + ln(1 + x / 60000))"),
}

EXACT = """
    WITH latest AS (
        SELECT path, region, source, msg, weight,
               max(struct(unix_millis(at) AS t, value AS v)) AS m, 'all' AS one
        FROM deliveries GROUP BY source, msg, weight, ROLLUP(path, region)
    ), aged AS (
        SELECT path, region, DOUBLE(weight) AS weight, DOUBLE(m.v) AS v, DOUBLE({now} - m.t) AS x
        FROM latest WHERE m.t <= {now}
    ), decayed AS (SELECT *, weight * {decay} AS mass, {decay} AS g FROM aged),
    ranked AS (
        SELECT *, sum(if(v IS NULL, 0, mass)) OVER (
                      PARTITION BY path, region ORDER BY v NULLS FIRST
                      RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS below,
                  sum(if(v IS NULL, 0, mass)) OVER (PARTITION BY path, region) AS whole
        FROM decayed
    )
    SELECT path, region, sum(mass), sum(g), sum(v * g), sum(v * mass) / max(whole),
           min(if(v IS NOT NULL AND below >= 0.5 * whole, v, NULL)),
           sum(if(v > 20, mass, 0)) / max(whole)
    FROM ranked GROUP BY path, region ORDER BY path, region
"""
ASKED = """
    SELECT path, region, {answers} FROM merged ORDER BY path, region
"""
ANSWERS = (  # with a confidence at which every interval of the few that are compared should hold
    "decayed_sum(sketch, '{decay}', {now}, 0.9999) AS sum",
    "decayed_count(sketch, '{decay}', {now}, 0.9999) AS count",
    "decayed_total(sketch, '{decay}', {now}, 0.9999) AS total",
    "decayed_mean(sketch, '{decay}', {now}, 0.9999) AS mean",
    "decayed_quantile(sketch, 0.5, '{decay}', {now}, 0.9999) AS median",
    "selectivity(sketch, 'v > 20', '{decay}', {now}, 0.9999) AS warm",
)


@pytest.fixture(scope="module")
def stored(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Sketches by path and region, built by SQL, stored as Parquet and read back as views."""
    folder = tmp_path_factory.mktemp("sql")
    register(session, {"roomy": ROOMY, "tight": TIGHT})
    session.createDataFrame(delivery_log().to_pandas()).createOrReplaceTempView("log")
    session.sql("""
        CREATE OR REPLACE TEMPORARY VIEW deliveries AS
        SELECT CAST(path AS STRING) AS path, source % 2 AS region, CAST(source AS INT) AS source,
               msg, CAST(weight AS DECIMAL(9, 0)) AS weight,
               CAST(nullif(value, 'NaN') AS DECIMAL(12, 2)) AS value,
               timestamp_micros(CAST(coalesce(nanvl(event_us, NULL), arrival_us) AS BIGINT)) AS at
        FROM log
    """)
    for stream in ("roomy", "tight"):
        place = folder / stream
        _store(session, stream, place)
        session.read.parquet(str(place)).createOrReplaceTempView(f"sketches_{stream}")
    return session


def _store(session: SparkSession, stream: str, place: Path) -> None:
    session.sql(f"""
        INSERT OVERWRITE DIRECTORY '{place.as_uri()}' USING parquet
        SELECT path, region, sketch_build('{stream}', value, weight, at, source, msg) AS sketch
        FROM deliveries GROUP BY path, region
    """)


def by_key(rows: list[Row]) -> dict[Key, tuple[Any, ...]]:
    return {(row[0], row[1]): tuple(row[2:]) for row in rows}


def exact(session: SparkSession, decay: str) -> dict[Key, tuple[Any, ...]]:
    return by_key(session.sql(EXACT.format(now=NOW_MS, decay=f"({decay})")).collect())


def asked(session: SparkSession, stream: str) -> dict[str, dict[Key, tuple[Any, ...]]]:
    """All questions of all decays, of the sketches of every path and region, merged by ROLLUP."""
    session.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW merged AS
        SELECT path, region, sketch_merge(sketch) AS sketch
        FROM sketches_{stream} GROUP BY ROLLUP(path, region)
    """)
    answers = [
        answer.format(decay=text, now=NOW_MS) + f"_{number}"
        for number, (text, _) in enumerate(DECAYS.values())
        for answer in ANSWERS
    ]
    found = by_key(session.sql(ASKED.format(answers=", ".join(answers))).collect())
    size = len(ANSWERS)
    return {
        name: {key: row[number * size : (number + 1) * size] for key, row in found.items()}
        for number, name in enumerate(DECAYS)
    }


class TestSession:
    def test_equals_exact_sql_where_nothing_was_sampled(self, stored: SparkSession) -> None:
        answers = asked(stored, "roomy")
        for name, (_, decay) in DECAYS.items():
            truths = exact(stored, decay)
            assert answers[name].keys() == truths.keys()
            assert len(truths) == 16  # 5 paths of 2 regions, 5 paths, everything
            for key, truth in truths.items():
                for found, true in zip(answers[name][key], truth, strict=True):
                    assert found.exact
                    assert found.value == pytest.approx(true, rel=1e-9), (name, key)

    def test_intervals_hold_exact_sql_where_something_was(self, stored: SparkSession) -> None:
        answers = asked(stored, "tight")
        held = whole = sampled = 0
        for name, (_, decay) in DECAYS.items():
            for key, truth in exact(stored, decay).items():
                for found, true in zip(answers[name][key], truth, strict=True):
                    slack = 1e-9 * abs(true)
                    held += found.lower - slack <= true <= found.upper + slack
                    whole += 1
                    sampled += not found.exact
        assert whole == 3 * 16 * 6
        assert sampled > whole / 3
        assert held == whole

    def test_a_copy_by_another_path_counts_once_in_the_rollup(self, stored: SparkSession) -> None:
        [row] = stored.sql(f"""
            SELECT sum(if(region IS NOT NULL, n, 0)) AS apart, max(n) AS together
            FROM (SELECT region, decayed_count_value(sketch, 'none', {NOW_MS}) AS n FROM (
                SELECT path, region, sketch_merge(sketch) AS sketch
                FROM sketches_roomy GROUP BY ROLLUP(path, region)))
        """).collect()
        [messages] = stored.sql("SELECT count(DISTINCT source, msg) FROM deliveries").collect()[0]
        assert row.together == messages
        assert row.apart > 2 * messages

    def test_stored_bytes_are_those_of_the_library(self, stored: SparkSession) -> None:
        sketch = ds.DecaySketch(ROOMY)
        rows = stored.sql("""
            SELECT CAST(value AS DOUBLE) AS v, CAST(weight AS INT) AS w, unix_millis(at) AS t,
                   source, msg
            FROM deliveries WHERE path = '2' AND region = 1
        """).toPandas()
        values = [None if v != v else v for v in rows.v]
        ids = ds.observation_ids(rows.source.to_numpy(), rows.msg.to_numpy(), params=ROOMY)
        sketch.update(values, rows.w.to_numpy(), rows.t.to_numpy(), ids)
        [found] = stored.sql(
            "SELECT sketch FROM sketches_roomy WHERE path = '2' AND region = 1"
        ).collect()
        assert bytes(found.sketch) == sketch.to_bytes()


class TestPlaces:
    """Where functions stand in a statement."""

    def test_view_join_having_and_order(self, stored: SparkSession) -> None:
        stored.sql(
            f"""
            CREATE OR REPLACE TEMPORARY VIEW dashboard AS
            SELECT path, decayed_mean(sketch_merge(sketch), 'window(1h)', {NOW_MS}) AS mean
            FROM sketches_roomy GROUP BY path
            HAVING decayed_count_value(sketch_merge(sketch), 'none', {NOW_MS}) > 10
        """
        )
        rows = stored.sql("""
            SELECT name, d.mean.value AS mean FROM dashboard d
            JOIN VALUES ('0', 'north'), ('3', 'south') AS g(path, name) ON d.path = g.path
            WHERE d.mean.exact ORDER BY mean DESC
        """).collect()
        assert {row.name for row in rows} == {"north", "south"}
        assert rows[0].mean > rows[1].mean

    def test_decay_and_time_may_be_columns(self, stored: SparkSession) -> None:
        rows = stored.sql(f"""
            SELECT minutes, decayed_count_value(
                       sketch, concat('window(', minutes, 'min)'), at + INTERVAL 1 MINUTE
                   ) AS n
            FROM (SELECT sketch_merge(sketch) AS sketch FROM sketches_roomy)
            CROSS JOIN VALUES (15), (20), (60) AS widths(minutes)
            CROSS JOIN (SELECT timestamp_millis({NOW_MS}) AS at)
            ORDER BY minutes
        """).collect()
        counts = [row.n for row in rows]
        assert counts == sorted(counts)
        assert counts[0] > 0
        truth = stored.sql(f"""
            SELECT count(*) FROM (
                SELECT max(unix_millis(at)) AS t FROM deliveries GROUP BY source, msg
            ) WHERE {NOW_MS} + 60000 - t BETWEEN 0 AND 1200000
        """).collect()[0][0]
        assert counts[1] == truth

    def test_heavy_hitters_explode_into_rows(self, stored: SparkSession) -> None:
        rows = stored.sql(f"""
            SELECT h.item, h.share FROM (
                SELECT explode(heavy_hitters(sketch_merge(sketch), 0.004, 'none', {NOW_MS})) AS h
                FROM sketches_roomy)
        """).collect()
        truths = stored.sql("""
            SELECT CAST(m.v AS DOUBLE) AS item, sum(weight) / max(whole) AS share FROM (
                SELECT weight, m, sum(weight) OVER () AS whole FROM (
                    SELECT weight, max(struct(unix_millis(at) AS t, value AS v)) AS m
                    FROM deliveries GROUP BY source, msg, weight)
                WHERE m.v IS NOT NULL)
            GROUP BY m.v HAVING sum(weight) / max(whole) > 0.004
        """).collect()
        assert len(rows) == len(truths) > 0
        assert {row.item: row.share for row in rows} == pytest.approx(
            {row.item: float(row.share) for row in truths}
        )
