"""Events of keys, counted by site: the same bytes however the log lies and is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.families import recipe_of
from decaysketch.spark.build import sketch_table
from decaysketch.spark.streaming import merge_into
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import BuiltWith, ColumnMapping, epoch_of, sketches_by_key
from spark_jobs.merge import merge_all
from spark_jobs.pipeline import build, rebuild
from spark_jobs.spec import BuildSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARAMS = ECMParams(width=55, depth=3, slots=10, key_bits=8, fanout_bits=4, hold=50)
PAGES = ColumnMapping(time="time", fallback_time="arrival", key=("page",), source="host")
EVER = ds.decay.none()


def log(rows: int = 4_000, seed: int = 1) -> pa.Table:
    """In no order."""
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 10_000, rows)
    return pa.table(
        {
            "time": pa.array(times, mask=rng.random(rows) < 0.1),
            "arrival": times + rng.integers(0, 40, rows),
            "page": rng.zipf(1.5, rows) % 256,
            "host": rng.choice(["north", "south", "west"], rows),
            "town": rng.choice(["x", "y", None], rows),
        }
    )


def expected(table: pa.Table, by: list[str], **options: Any) -> dict[tuple[Any, ...], bytes]:
    """The same in this process."""
    sketches = sketches_by_key(table, PARAMS, PAGES, by, **options)
    return {key: sketch.to_bytes() for key, sketch in sketches.items()}


def collected(table: DataFrame, by: list[str]) -> dict[tuple[Any, ...], bytes]:
    rows = table.toArrow().to_pylist()
    found = {tuple(row[name] for name in by): row["sketch"] for row in rows}
    assert len(found) == len(rows)
    return found


def stored(table: SketchTable) -> dict[tuple[Any, ...], bytes]:
    return {sketch.key: sketch.blob for sketch in table.sketches()}


class TestBuild:
    @pytest.mark.parametrize("by", [[], ["town"], ["town", "host"]], ids=str)
    def test_equals_one_process_however_the_log_is_cut(
        self, session: SparkSession, tmp_path: Path, by: list[str]
    ) -> None:
        table = log()
        pq.write_table(table, tmp_path / "log.parquet", row_group_size=300)
        want = expected(table, by)
        shuffled = table.take(np.random.default_rng(5).permutation(len(table)))
        before = session.conf.get("spark.sql.shuffle.partitions")
        try:
            for source, partitions in (
                (tmp_path / "log.parquet", 3),
                (session.createDataFrame(shuffled).repartition(7), 11),
                (session.createDataFrame(table).coalesce(1), 1),
            ):
                session.conf.set("spark.sql.shuffle.partitions", partitions)
                assert collected(sketch_table(session, source, PARAMS, PAGES, by), by) == want
        finally:
            session.conf.set("spark.sql.shuffle.partitions", before)

    def test_many_keys_in_little_memory(self, session: SparkSession) -> None:
        rows = 60_000
        rng = np.random.default_rng(3)
        table = pa.table(
            {
                "time": rng.integers(0, 1000, rows),
                "page": rng.integers(0, 9, rows),
                "host": rng.integers(0, 2, rows),
                "town": rng.integers(0, 1500, rows),
            }
        )
        mapping = ColumnMapping(time="time", key=("page",), source="host")
        built = sketch_table(
            session, session.createDataFrame(table), PARAMS, mapping, ["town"], memory_bytes=1 << 20
        )
        found = collected(built, ["town"])
        want = sketches_by_key(table, PARAMS, mapping, ["town"])
        assert found == {key: sketch.to_bytes() for key, sketch in want.items()}

    def test_a_rerun_merges_to_the_same_and_other_epochs_add(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        table = log()
        pq.write_table(table, tmp_path / "log.parquet")
        built = []
        for number, epoch in enumerate((0, 0, 9)):
            spec = BuildSpec(
                log=str(tmp_path / "log.parquet"), mapping=PAGES, by=("town",), epoch=epoch
            )
            built.append(build(session, spec, tmp_path / f"t{number}", recipe_of(PARAMS)))
        assert stored(built[0]) == stored(built[1]) == expected(table, ["town"])
        assert built[0].summary["copies"] is None
        assert built[0].summary["rows"] == len(table)
        once = ds.decode(merge_all(session, [_of_town(session, built[0], tmp_path / "once")]))
        assert once.seen == sum(row["town"] == "x" for row in table.to_pylist())

    def test_parts_that_are_kept_apart_have_epochs_of_their_own(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        (tmp_path / "log").mkdir()
        days = [log(900, seed) for seed in range(2)]
        for number, day in enumerate(days):
            pq.write_table(day, tmp_path / "log" / f"{number}.parquet")
        spec = BuildSpec(log=str(tmp_path / "log"), mapping=PAGES, by=("town",), apart=True)
        build(session, spec, tmp_path / "t", recipe_of(PARAMS))
        days[1] = log(1100, 7)
        pq.write_table(days[1], tmp_path / "log" / "1.parquet")
        rebuilt = rebuild(session, SketchTable.open(tmp_path / "t"))
        assert list(rebuilt.done) == ["1.parquet"]
        want: dict[Any, ECMCollection] = {}
        for number, day in enumerate(days):
            epoch = epoch_of("part", f"{number}.parquet")
            for key, sketch in sketches_by_key(day, PARAMS, PAGES, ["town"], epoch=epoch).items():
                want.setdefault(key, ECMCollection(PARAMS)).merge(sketch)
        assert stored(rebuilt.table) == {key: sketch.to_bytes() for key, sketch in want.items()}


def _of_town(session: SparkSession, table: SketchTable, out: Path) -> SketchTable:
    rows = table.stored(session).where("town = 'x'")
    return SketchTable.write(out, rows, table.recipe, table.by)


class TestStreams:
    def test_every_batch_counts_once_however_often_it_runs(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        params: BuiltWith = PARAMS
        merge = merge_into(tmp_path / "t", params, PAGES, ["town"], query="q", most_runs=2)
        logs = [log(700, seed) for seed in range(4)]
        for number in (0, 1, 1, 2, 2, 3):
            merge(session.createDataFrame(logs[number]), number)
        want: dict[Any, ECMCollection] = {}
        for number, each in enumerate(logs):
            epoch = epoch_of("q", number)
            for key, sketch in sketches_by_key(each, PARAMS, PAGES, ["town"], epoch=epoch).items():
                want.setdefault(key, ECMCollection(PARAMS)).merge(sketch)
        table = SketchTable.open(tmp_path / "t")
        assert stored(table) == {key: sketch.to_bytes() for key, sketch in want.items()}
        assert sum(each.rows for each in table.sketches()) == 2_800


@pytest.fixture(scope="module")
def sql(session: SparkSession) -> SparkSession:
    from decaysketch.spark import register

    register(session, {"pages": PARAMS})
    session.createDataFrame(log()).createOrReplaceTempView("visits")
    session.sql(
        """
        CREATE OR REPLACE TEMP VIEW towns AS
        SELECT town, sketch_build('pages', NULL, NULL, coalesce(time, arrival), host, page)
            AS sketch FROM visits GROUP BY town
        """
    )
    return session


class TestSQL:
    def test_builds_what_a_build_gives(self, sql: SparkSession) -> None:
        rows = {(row.town,): bytes(row.sketch) for row in sql.table("towns").collect()}
        visits = log()
        for (town,), blob in rows.items():  # which group it is of, an aggregate is not told
            mask = pa.array([each == town for each in visits.column("town").to_pylist()])
            assert blob == expected(visits.filter(mask), [])[()]
        [whole] = sql.sql(
            "SELECT sketch_merge(sketch) AS sketch FROM towns WHERE town IS NULL"
        ).collect()
        assert bytes(whole.sketch) == rows[None,]

    def test_one_site_in_two_groups_does_not_merge(self, sql: SparkSession) -> None:
        from pyspark.errors import PySparkException

        with pytest.raises(PySparkException, match=r"sketch_merge: ConflictingSketchError"):
            sql.sql("SELECT sketch_merge(sketch) FROM towns").collect()

    def test_asks_of_keys(self, sql: SparkSession) -> None:
        [row] = sql.sql(
            """
            SELECT key_count(sketch, 1, 'window(3000)', 10000L) AS one,
                key_counts(sketch, array(1, 2), 'none', 10000L) AS two,
                key_share(sketch, 1, 'none', 10000L) AS share,
                key_total_value(sketch, 'none', 10000L) AS total,
                self_join(sketch, 'none', 10000L) AS skew,
                heavy_keys(sketch, 0.1, 'none', 10000L) AS heavy,
                key_quantile(sketch, 0.5, 'none', 10000L) AS middle,
                key_range(sketch, array(0, 3), 'none', 10000L) AS low,
                key_rank(sketch, 3, 'none', 10000L) AS rank,
                sketch
            FROM towns WHERE town = 'x'
            """
        ).collect()
        sketch = ECMCollection.from_bytes(bytes(row.sketch))
        now = 10_000
        one = sketch.key_count(1, ds.decay.window(3000), now=now)
        assert (row.one.value, row.one.lower, row.one.upper) == (one.value, one.lower, one.upper)
        assert row.one.sure_upper == one.sure_upper
        two = sketch.key_count([1, 2], EVER, now=now)
        assert [each.value for each in row.two] == two.value.tolist()
        assert [each.sure_upper for each in row.two] == two.sure_upper.tolist()
        assert row.share.value == sketch.key_share(1, EVER, now=now).value
        assert row.total == sketch.key_total(EVER, now=now).value
        assert row.skew.value == sketch.self_join(EVER, now=now).value
        heavy = sketch.heavy_keys(0.1, EVER, now=now)
        assert [each.key for each in row.heavy.heavy_keys] == [each.key for each in heavy]
        assert [each["count"] for each in row.heavy.heavy_keys] == [
            each.count.value for each in heavy
        ]
        assert row.heavy.threshold == heavy.threshold
        assert row.middle.value == sketch.key_quantile(0.5, EVER, now=now).value
        assert row.low.value == sketch.key_range(0, 3, EVER, now=now).value
        assert row.rank.value == sketch.key_rank(3, EVER, now=now).value

    def test_joins_two_streams(self, sql: SparkSession) -> None:
        [row] = sql.sql(
            """
            SELECT inner_product(a.sketch, b.sketch, 'window(5000)', 10000L) AS pairs,
                inner_product_value(a.sketch, b.sketch, 'window(5000)', 10000L) AS value,
                inner_product(a.sketch, NULL, 'none', 10000L) AS none,
                a.sketch AS mine, b.sketch AS theirs
            FROM towns a, towns b WHERE a.town = 'x' AND b.town = 'y'
            """
        ).collect()
        mine, theirs = (ECMCollection.from_bytes(bytes(each)) for each in (row.mine, row.theirs))
        found = mine.inner_product(theirs, ds.decay.window(5000), now=10_000)
        assert (row.pairs.value, row.pairs.upper) == (found.value, found.upper)
        assert row.pairs.sure_upper == found.sure_upper
        assert (row.value, row.none) == (found.value, None)

    def test_keys_are_of_every_kind(self, session: SparkSession) -> None:
        from pyspark.sql import functions as sql

        from decaysketch.spark import functions as F  # noqa: N812

        params = ECMParams(width=30, depth=3, slots=5)
        rows = [("JFK", "LAX", 1), ("JFK", "LAX", 2), ("SFO", "LAX", 2)]
        flights = session.createDataFrame(rows, "origin string, destination string, time long")
        one, two = (  # one after the other: see the limits of the engine
            flights.agg(F.sketch_build(params, None, "time", ids)).head()[0]
            for ids in ([sql.lit(0), "origin"], [sql.lit("tower"), "origin", "destination"])
        )
        both = session.createDataFrame([(bytes(one), bytes(two))], "one binary, two binary")
        key = sql.struct(sql.lit("JFK"), sql.lit("LAX"))
        [row] = both.select(
            F.key_count_value("one", "JFK", "none", 2).alias("one"),
            F.key_count_value("two", key, "none", 2).alias("two"),
            F.key_counts_value("one", ["JFK", "SFO", "none"], "none", 2).alias("three"),
            F.sketch_info("two").alias("info"),
        ).collect()
        assert (row.one, row.two, row.three) == (2.0, 2.0, [2.0, 1.0, 0.0])
        assert (row.info.family, row.info.oldest, row.info.newest) == ("ecm", 1, 2)
        assert json.loads(row.info.params) == params.to_dict()
