"""Sketches built by Spark are those of one process, byte for byte, however a log is cut."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from delivery_logs import delivery_log, real_log

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.cli.output import CommandError
from decaysketch.families import recipe_of
from decaysketch.series import SeriesParams, SeriesSketch
from decaysketch.spark._names import quoted
from decaysketch.spark.build import sketch_table
from decaysketch.spark.tables import SketchTable, TableError
from decaysketch.tables import BuiltWith, ColumnMapping, sketches_by_key
from spark_jobs.build import _details
from spark_jobs.compact import Truncation, compact
from spark_jobs.merge import merge_all, merge_per_key
from spark_jobs.pipeline import build as build_spec
from spark_jobs.spec import BuildSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAPPING = ColumnMapping(
    time="event_us",
    fallback_time="arrival_us",
    ids=("source", "msg"),
    value="value",
    time_unit="us",
)
PARAMS = ds.SketchParams(max_weight=1, id_bits=48, capacity=100, seed=9, time_unit="us")


def expected(log: pa.Table, by: Sequence[str]) -> dict[tuple[object, ...], bytes]:
    """The same in this process."""
    sketches = sketches_by_key(log, PARAMS, MAPPING, by)
    return {key: sketch.to_bytes() for key, sketch in sketches.items()}


def build(
    session: SparkSession,
    log: Path,
    out: Path,
    params: BuiltWith = PARAMS,
    mapping: ColumnMapping = MAPPING,
    by: Sequence[str] = (),
    *,
    overwrite: bool = False,
    **options: Any,
) -> SketchTable:
    spec = BuildSpec(log=str(log), mapping=mapping, by=tuple(by), **options)
    return build_spec(session, spec, out, recipe_of(params), overwrite=overwrite)


def blobs(folder: SketchTable) -> dict[tuple[object, ...], bytes]:
    return {sketch.key: sketch.blob for sketch in folder.sketches()}


def collected(table: DataFrame, by: list[str]) -> dict[tuple[object, ...], bytes]:
    rows = table.toArrow().to_pylist()
    return {tuple(row[name] for name in by): row["sketch"] for row in rows}


def write_csv(table: pa.Table, path: Path) -> None:
    pa_csv.write_csv(table, path)


def write_json(table: pa.Table, path: Path) -> None:
    rows = ({k: v for k, v in row.items() if v is not None} for row in table.to_pylist())
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")


@pytest.fixture(scope="module")
def log() -> pa.Table:
    return delivery_log(3_000)


class TestBuild:
    @pytest.mark.parametrize("by", [[], ["path"], ["source", "path"]], ids=str)
    def test_equals_one_process_by_any_key(
        self, session: SparkSession, log: pa.Table, tmp_path: Path, by: list[str]
    ) -> None:
        pq.write_table(log, tmp_path / "log.parquet", row_group_size=500)
        folder = build(session, tmp_path / "log.parquet", tmp_path / "out", PARAMS, MAPPING, by)
        assert blobs(folder) == expected(log, by)
        again = SketchTable.open(tmp_path / "out")
        assert again.recipe.params == PARAMS
        assert again.by == tuple(by)
        assert again.summary["rows"] == 3_000
        assert again.summary["missing_values"] == log["value"].null_count
        assert again.summary["fallback_times"] == log["event_us"].null_count
        assert again.summary["sketch_bytes"] == sum(map(len, blobs(folder).values()))
        assert again.summary["log_bytes"] == (tmp_path / "log.parquet").stat().st_size
        for sketch in again.sketches():
            assert sketch.digest == ds.DecaySketch.from_bytes(sketch.blob).digest()

    @pytest.mark.parametrize("text_keys", [False, True], ids=["integers", "text"])
    def test_formats_agree(self, session: SparkSession, tmp_path: Path, text_keys: bool) -> None:
        log = delivery_log(1_000, text_keys=text_keys)
        pq.write_table(log, tmp_path / "log.parquet")
        write_csv(log, tmp_path / "log.csv")
        write_json(log, tmp_path / "log.jsonl")
        want = expected(log, ["path"])
        for name in ("log.parquet", "log.csv", "log.jsonl"):
            table = sketch_table(session, tmp_path / name, PARAMS, MAPPING, ["path"])
            assert collected(table, ["path"]) == want, name
        table = sketch_table(
            session, tmp_path / "log.parquet", PARAMS, MAPPING, ["path"], read_in_workers=False
        )
        assert collected(table, ["path"]) == want

    @pytest.mark.parametrize("files", [1, 7])
    def test_any_number_of_files_with_rows_repeated(
        self, session: SparkSession, log: pa.Table, tmp_path: Path, files: int
    ) -> None:
        folder = tmp_path / "log"
        folder.mkdir()
        (folder / "_notes.txt").write_text("not a part of the log")
        twice = pa.concat_tables([log, log.slice(0, 1_000)])
        size = -(-len(twice) // files)
        for number in range(files):
            part = twice.slice(number * size, size)
            pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=333)
        table = sketch_table(session, folder, PARAMS, MAPPING, ["path"])
        assert collected(table, ["path"]) == expected(log, ["path"])

    def test_partition_tables(self, session: SparkSession, log: pa.Table, tmp_path: Path) -> None:
        pq.write_to_dataset(log, tmp_path / "log", partition_cols=["path"])
        table = sketch_table(session, tmp_path / "log", PARAMS, MAPPING, ["path"])
        assert collected(table, ["path"]) == expected(log, ["path"])

    def test_timestamps_and_null_keys(
        self, session: SparkSession, log: pa.Table, tmp_path: Path
    ) -> None:
        event = log["event_us"].cast(pa.timestamp("us", "UTC"))
        arrival = log["arrival_us"].cast(pa.timestamp("us", "UTC"))
        holes = pa.array([None if p == 3 else p for p in log["path"].to_pylist()])
        stamped = (
            log.set_column(0, "arrival_us", arrival)
            .set_column(1, "event_us", event)
            .set_column(4, "path", holes)
        )
        pq.write_table(stamped, tmp_path / "log.parquet")
        want = expected(log.set_column(4, "path", holes), ["path"])
        assert (None,) in want
        for read_in_workers in (True, False):
            table = sketch_table(
                session, tmp_path / "log.parquet", PARAMS, MAPPING, ["path"],
                read_in_workers=read_in_workers,
            )  # fmt: skip
            assert collected(table, ["path"]) == want

    def test_a_log_without_rows(self, session: SparkSession, log: pa.Table, tmp_path: Path) -> None:
        pq.write_table(log.slice(0, 0), tmp_path / "log.parquet")
        folder = build(session, tmp_path / "log.parquet", tmp_path / "out", PARAMS, MAPPING)
        assert list(folder.sketches()) == []
        assert folder.summary["copies"] == folder.summary["held"] == 0
        assert folder.summary["rows"] == folder.summary["sketches"] == 0

    def test_a_text_format_may_be_given_a_schema(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        text = "arrival_us,event_us,source,msg,path,value\n5,,0012,1,a,1.5\n6,6,12,1,a,2.5\n"
        (tmp_path / "log.csv").write_text(text)
        inferred = sketch_table(session, tmp_path / "log.csv", PARAMS, MAPPING)
        [blob] = collected(inferred, []).values()
        assert len(ds.DecaySketch.from_bytes(blob)) == 1
        schema = (
            "arrival_us BIGINT, event_us BIGINT, source STRING, msg INT, path STRING, value DOUBLE"
        )
        typed = sketch_table(session, tmp_path / "log.csv", PARAMS, MAPPING, schema=schema)
        [blob] = collected(typed, []).values()
        assert len(ds.DecaySketch.from_bytes(blob)) == 2

    @pytest.mark.parametrize("name", ["lorawan_tourperret", "wifi_two_receivers", "ble_set2"])
    def test_real_logs(self, session: SparkSession, name: str) -> None:
        path = real_log(name)
        table = sketch_table(session, path, PARAMS, MAPPING, ["path"])
        assert collected(table, ["path"]) == expected(pq.read_table(path), ["path"])


class TestWhatIsCounted:
    def test_copies_are_counted_where_sketches_hold_everything(
        self, session: SparkSession, log: pa.Table, tmp_path: Path
    ) -> None:
        log = log.rename_columns({"path": "exact"})  # a key may be called anything
        pq.write_table(log, tmp_path / "log.parquet", row_group_size=500)
        whole = dataclasses.replace(PARAMS, capacity=2_000)
        said = build(session, tmp_path / "log.parquet", tmp_path / "a", whole, by=["exact"]).summary
        distinct = log.group_by(["exact", "source", "msg"]).aggregate([])
        assert (said["held"], said["copies"]) == (len(distinct), 3_000 - len(distinct))
        assert (said["copies_exact"], said["filtered"]) == (True, 0)
        said = build(session, tmp_path / "log.parquet", tmp_path / "b", by=["exact"]).summary
        # Rows less an estimate: a number whose error is not shown with it is not shown.
        assert (said["copies_exact"], said["copies"]) == (False, None)
        assert said["held"] < len(distinct)

    def test_few_series_are_reported(self, session: SparkSession, tmp_path: Path) -> None:
        times = list(range(1_000)) * 5
        devices = [device for device in range(5) for _ in range(1_000)]
        log = pa.table({"t": times, "id": devices, "v": [float(time) for time in times]})
        pq.write_table(log, tmp_path / "log.parquet")
        params, mapping = (
            SeriesParams(capacity=200),
            ColumnMapping(time="t", ids=("id",), value="v"),
        )
        table = build(session, tmp_path / "log.parquet", tmp_path / "a", params, mapping)
        [stored] = table.sketches()
        sketch = SeriesSketch.from_bytes(stored.blob)
        assert sketch.stats().advice in table.summary["warnings"]

    def test_times_of_another_unit_are_doubted(self, session: SparkSession, tmp_path: Path) -> None:
        log = delivery_log(300)
        since = 1_700_000_000_000_000
        times = pa.array(range(since, since + 300 * 10**6, 10**6))
        log = log.set_column(log.column_names.index("event_us"), "event_us", times)
        pq.write_table(log, tmp_path / "log.parquet")
        said = build(session, tmp_path / "log.parquet", tmp_path / "a").summary
        assert (said["oldest"], said["newest"]) == (since, since + 299 * 10**6)
        assert not [each for each in said["warnings"] if "probably not" in each]
        shown = "times 1700000000000000..1700000299000000 us (2023-11-14 22:13:20 to 22:18:19 UTC)"
        assert shown in _details(said)
        mapping = dataclasses.replace(MAPPING, time_unit="s")  # and the sketch's are in us
        seconds = dataclasses.replace(PARAMS, time_unit="s")
        wrong = build(session, tmp_path / "log.parquet", tmp_path / "b", seconds, mapping).summary
        warning = wrong["warnings"][0]
        assert "times are probably not in s" in warning
        assert "in us it would be 2023-11-14" in warning
        assert f"warning: {warning}" in _details(wrong)

    @pytest.mark.parametrize(
        ("params", "exact"),
        [
            (SumParams(max_sum=10_000, capacity=2_000, time_unit="us"), False),
            (SumParams(max_sum=10_000, capacity=20, max_window=60, time_unit="us"), False),
            (MedianParams(max_count=10_000, capacity=2_000, time_unit="us"), True),
            (recipe_of(PARAMS, ds.decay.integral.exponential(half_life=60)), False),
        ],
        ids=["sum", "sum of a window", "median", "integral"],
    )
    def test_other_families_count_what_they_can(
        self, session: SparkSession, log: pa.Table, tmp_path: Path, params: Any,
        exact: bool,
    ) -> None:  # fmt: skip
        pq.write_table(log, tmp_path / "log.parquet")
        mapping = dataclasses.replace(MAPPING, value="weight", source="source", sequence="msg")
        said = build(session, tmp_path / "log.parquet", tmp_path / "a", params, mapping).summary
        messages = len(log.group_by(["source", "msg"]).aggregate([]))
        assert said["copies_exact"] == exact
        assert said["copies"] == (3_000 - messages if exact else None)

    @pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
    def test_rows_that_are_filtered_out(
        self, session: SparkSession, log: pa.Table, tmp_path: Path, name: str
    ) -> None:
        if name == "log.csv":
            write_csv(log, tmp_path / name)
        else:
            pq.write_table(log, tmp_path / name, row_group_size=300)
        since, until = (int(log["arrival_us"][row].as_py()) for row in (500, 2_500))
        table = build(
            session, tmp_path / name, tmp_path / "a", by=["path"], since=since, until=until,
            where="path != 3 and weight >= 2",
        )  # fmt: skip
        time = pc.coalesce(log["event_us"], log["arrival_us"])
        taken = log.filter(
            pc.and_(
                pc.and_(pc.greater_equal(time, since), pc.less(time, until)),
                pc.and_(pc.not_equal(log["path"], 3), pc.greater_equal(log["weight"], 2)),
            )
        )
        assert 0 < len(taken) < 2_000
        assert blobs(table) == expected(taken, ["path"])
        assert table.summary["rows"] == len(taken)
        assert table.summary["filtered"] == 3_000 - len(taken)

    def test_overlapping_ranges_run_twice_and_merged_are_one_build(
        self, session: SparkSession, log: pa.Table, tmp_path: Path
    ) -> None:
        pq.write_table(log, tmp_path / "log.parquet", row_group_size=300)
        times = [int(log["arrival_us"][row].as_py()) for row in (900, 2_000)]
        ranges: list[dict[str, Any]] = [{"until": times[1]}, {"since": times[0]}]
        tables = [
            build(session, tmp_path / "log.parquet", tmp_path / str(n), by=["path"], **part)
            for n, part in enumerate([*ranges, ranges[0]])
        ]
        assert sum(table.summary["rows"] for table in tables[:2]) > 3_000
        merged = merge_per_key(session, tables, tmp_path / "merged")
        assert blobs(merged) == expected(log, ["path"])


class TestQuarantine:
    @pytest.fixture
    def faulty(self, log: pa.Table) -> pa.Table:
        """Values that are infinite in rows 77 and 2,222, and a message of nobody in row 80."""
        values = log["value"].to_pylist()
        values[77] = values[2_222] = float("inf")
        sources: list[int | None] = log["source"].to_pylist()
        sources[80] = None
        return log.set_column(5, "value", pa.array(values)).set_column(
            2, "source", pa.array(sources, pa.int32())
        )

    @pytest.mark.parametrize("read_in_workers", [True, False])
    def test_bad_rows_are_set_aside_with_the_reason(
        self, session: SparkSession, faulty: pa.Table, tmp_path: Path, read_in_workers: bool
    ) -> None:
        pq.write_table(faulty, tmp_path / "log.parquet", row_group_size=500)
        out, aside = tmp_path / "out", tmp_path / "aside"
        options: dict[str, Any] = {"quarantine": str(aside), "read_in_workers": read_in_workers}
        table = build(session, tmp_path / "log.parquet", out, by=["path"], **options)
        good = pa.concat_tables([faulty[:77], faulty[78:80], faulty[81:2_222], faulty[2_223:]])
        assert blobs(table) == expected(good, ["path"])
        assert (table.summary["refused"], table.summary["rows"]) == (3, 2_997)
        rows = sorted(pq.read_table(aside).to_pylist(), key=lambda row: str(row["record"]))
        assert sorted(row["column"] for row in rows) == ["source", "value", "value"]
        assert sum("expected a finite number" in row["reason"] for row in rows) == 2
        if read_in_workers:
            assert sorted(row["row"] for row in rows) == [77, 80, 2_222]
            assert {row["place"] for row in rows} == {str(tmp_path / "log.parquet")}
        records = [json.loads(row["record"]) for row in rows]
        messages = {faulty["msg"][row].as_py() for row in (77, 80, 2_222)}
        assert {record["msg"] for record in records} == messages
        # Once the log is sound the quarantine is gone.
        pq.write_table(good, tmp_path / "log.parquet")
        table = build(
            session, tmp_path / "log.parquet", out, by=["path"], overwrite=True, **options
        )
        assert (table.summary["refused"], aside.exists()) == (0, False)


class TestRefusals:
    def test_what_is_there_is_not_overwritten_unasked(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        log, out = tmp_path / "log.parquet", tmp_path / "out"
        pq.write_table(delivery_log(90), log)
        build(session, log, out)
        with pytest.raises(TableError, match="already"):
            build(session, log, out)
        build(session, log, out, overwrite=True)
        (out / "thesis.txt").write_text("not ours")
        with pytest.raises(TableError, match="not a table"):
            build(session, log, out, overwrite=True)
        assert (out / "thesis.txt").exists()

    def test_a_failure_leaves_what_was_there(self, session: SparkSession, tmp_path: Path) -> None:
        log, out = tmp_path / "log.parquet", tmp_path / "out"
        pq.write_table(delivery_log(90), log)
        before = blobs(build(session, log, out))
        faulty = dataclasses.replace(MAPPING, weight="weight")  # up to 7, where 1 is the most
        with pytest.raises(Exception, match=r"weight\[\d+\] is \d; expected 0 to 1"):
            build(session, log, out, PARAMS, faulty, overwrite=True)
        assert blobs(SketchTable.open(out)) == before

    def test_a_column_that_is_not_there(self, session: SparkSession, tmp_path: Path) -> None:
        write_csv(delivery_log(30).drop_columns(["msg"]), tmp_path / "log.csv")
        with pytest.raises(ds.ParameterError, match="no column 'msg'; it has arrival_us"):
            build(session, tmp_path / "log.csv", tmp_path / "out")
        write_csv(delivery_log(30), tmp_path / "log.csv")
        with pytest.raises(ds.ParameterError, match="no column 'gateway'"):
            build(session, tmp_path / "log.csv", tmp_path / "out", by=["gateway"])

    def test_a_log_that_is_not_there_or_not_known(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError, match="does not exist"):
            build(session, tmp_path / "log.parquet", tmp_path / "out")
        (tmp_path / "log.xls").write_text("")
        with pytest.raises(ds.ParameterError, match=r"\.xls.*--format"):
            build(session, tmp_path / "log.xls", tmp_path / "out")


@pytest.fixture(scope="module")
def tables(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[SketchTable]:
    """Two parts of one log that overlap, built apart."""
    root = tmp_path_factory.mktemp("merge")
    log = delivery_log(2_000)
    tables = []
    for name, part in {"a": log.slice(0, 1_200), "b": log.slice(800)}.items():
        pq.write_table(part, root / f"{name}.parquet")
        tables.append(build(session, root / f"{name}.parquet", root / name, by=["path"]))
    return tables


class TestMerge:
    def test_into_one(self, session: SparkSession, tables: list[SketchTable]) -> None:
        assert merge_all(session, tables) == expected(delivery_log(2_000), [])[()]

    def test_key_by_key(
        self, session: SparkSession, tables: list[SketchTable], tmp_path: Path
    ) -> None:
        merged = merge_per_key(session, tables, tmp_path / "merged")
        assert blobs(merged) == expected(delivery_log(2_000), ["path"])
        assert merged.summary["rows"] == 2_400  # deliveries read, the overlap twice
        assert SketchTable.open(tmp_path / "merged").by == ("path",)

    def test_other_parameters_or_keys_are_refused(
        self, session: SparkSession, tables: list[SketchTable], tmp_path: Path
    ) -> None:
        pq.write_table(delivery_log(90), tmp_path / "log.parquet")
        other = ds.SketchParams(max_weight=1, id_bits=47, seed=10, time_unit="us")
        odd = build(session, tmp_path / "log.parquet", tmp_path / "odd", other, MAPPING, ["path"])
        with pytest.raises(ds.IncompatibleSketchError) as caught:
            merge_all(session, [tables[0], odd])
        assert caught.value.fields == {"id_bits": (48, 47), "seed": (9, 10)}
        whole = build(session, tmp_path / "log.parquet", tmp_path / "whole", PARAMS, MAPPING)
        with pytest.raises(CommandError, match="omit --per-key"):
            merge_per_key(session, [tables[0], whole], tmp_path / "merged")

    def test_keys_of_other_types_are_refused(
        self, session: SparkSession, tables: list[SketchTable], tmp_path: Path
    ) -> None:
        pq.write_table(delivery_log(90, text_keys=True), tmp_path / "log.parquet")
        text = build(session, tmp_path / "log.parquet", tmp_path / "text", by=["path"])
        with pytest.raises(CommandError, match=r"types bigint, and those of .*text of string"):
            merge_per_key(session, [tables[0], text], tmp_path / "merged")

    def test_nothing_cannot_be_merged(self, session: SparkSession, tmp_path: Path) -> None:
        empty = SketchTable.create(tmp_path / "empty", recipe_of(PARAMS))
        with pytest.raises(CommandError, match="hold no sketches"):
            merge_all(session, [empty])


HOUR_US = 3_600_000_000


def hourly(log: pa.Table, unit: str) -> pa.Table:
    """The log with its time, cut down, in three types of columns."""
    time = pc.coalesce(log["event_us"], log["arrival_us"])
    # Stretched, so that a few days are in it.
    time = pc.add(pc.multiply(pc.subtract(time, 1_700_000_000_000_000), 200), 1_700_000_000_000_000)
    stamp = pc.floor_temporal(time.cast(pa.timestamp("us", "UTC")), unit=unit)
    width = HOUR_US if unit == "hour" else 24 * HOUR_US
    number = pc.multiply(pc.divide(time, width), width)
    text = pc.strftime(stamp, "%Y-%m-%dT%H" if unit == "hour" else "%Y-%m-%d")
    return log.append_column(unit, stamp).append_column("n", number).append_column("text", text)


class TestCompact:
    def test_units_are_those_of_utc(self, session: SparkSession) -> None:
        """Whatever the session's zone is, and whatever hours that skips or has twice."""
        texts = [
            "1969-12-31T23:59:59.999999", "1950-02-28T12:34:56.5", "2026-03-08T02:30:30",
            "2026-03-08T07:30:00", "2026-11-01T05:45:00", "2026-11-01T06:45:00",
            "2024-02-29T03:00:00", "9999-12-31T23:00:01",
        ]  # fmt: skip
        walls = pa.array([dt.datetime.fromisoformat(text) for text in texts], pa.timestamp("us"))
        name = "t `.*"
        zone = session.conf.get("spark.sql.session.timeZone")
        assert zone is not None
        session.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            for kind, end in (("timestamp", "Z"), ("timestamp_ntz", "")):
                rows = session.createDataFrame(pa.table({"text": [text + end for text in texts]}))
                rows = rows.selectExpr(f"CAST(text AS {kind}) AS {quoted(name)}")
                units = ("minute", "hour", "day", "week", "month", "quarter", "year")
                cuts = [Truncation(name, unit, unit).of(rows).alias(unit) for unit in units]
                found = rows.select(*cuts).toArrow().combine_chunks()
                for unit in units:
                    expected = pc.floor_temporal(walls, unit=unit)
                    assert found.column(unit).cast(pa.int64()).to_pylist() == (
                        expected.cast(pa.int64()).to_pylist()
                    ), (kind, unit)
        finally:
            session.conf.set("spark.sql.session.timeZone", zone)

    def test_hours_into_days_are_what_a_build_by_day_gives(
        self, session: SparkSession, log: pa.Table, tmp_path: Path
    ) -> None:
        log = log.slice(0, 1_500)
        keys = {"hour": ["path", "hour", "n", "text"], "day": ["path", "day", "n", "text"]}
        for unit, by in keys.items():
            pq.write_table(hourly(log, unit), tmp_path / f"{unit}.parquet")
            build(session, tmp_path / f"{unit}.parquet", tmp_path / unit, by=by)
        fine, days = (SketchTable.open(tmp_path / unit) for unit in keys)
        cuts = [Truncation.parse(t) for t in ("hour:day:day", f"n:{24 * HOUR_US}", "text:10")]
        compacted = compact(session, fine, tmp_path / "compacted", cuts)
        assert blobs(compacted) == blobs(days)
        assert compacted.by == days.by
        assert compacted.counts["sketches"] < fine.counts["sketches"]
        assert compacted.counts["rows"] == 1_500
        by_path = compact(session, fine, tmp_path / "paths", drop=["hour", "n", "text"])
        assert blobs(by_path) == expected(log, ["path"])

    def test_faults_are_named(
        self, session: SparkSession, tables: list[SketchTable], tmp_path: Path
    ) -> None:
        for text in ("path", "path:day:x:y", "path:", "path:fortnight", "path:0"):
            with pytest.raises(CommandError, match="--truncate"):
                Truncation.parse(text)
        for cuts, drop, message in [
            (["room:day"], [], "no key 'room'; it has path"),
            (["path:5"], ["path"], "'path' is named more than once"),
            (["path:day"], [], "path is of type bigint, which cannot be cut to day"),
        ]:
            with pytest.raises(CommandError, match=message):
                compact(
                    session, tables[0], tmp_path / "x", [Truncation.parse(c) for c in cuts], drop
                )
