"""Sketches built by Spark are those of one process, byte for byte, however a log is cut."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from delivery_logs import delivery_log, real_log

import decaysketch as ds
from decaysketch.batch import ColumnMapping, sketches_by_key
from spark_jobs import logs
from spark_jobs.build import build, sketch_table
from spark_jobs.console import JobError
from spark_jobs.merge import merge_all, merge_per_key
from spark_jobs.tables import SketchFolder

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


def expected(log: pa.Table, by: list[str]) -> dict[tuple[object, ...], bytes]:
    """The same in this process."""
    sketches = sketches_by_key(log, PARAMS, MAPPING, by)
    return {key: sketch.to_bytes() for key, sketch in sketches.items()}


def blobs(folder: SketchFolder) -> dict[tuple[object, ...], bytes]:
    return {sketch.key: sketch.blob for sketch in folder.read()}


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
        again = SketchFolder.open(tmp_path / "out")
        assert again.recipe().params == PARAMS
        assert again.by == by
        assert again.summary["rows"] == 3_000
        assert again.summary["missing_values"] == log["value"].null_count
        assert again.summary["fallback_times"] == log["event_us"].null_count
        assert again.summary["sketch_bytes"] == sum(map(len, blobs(folder).values()))
        assert again.summary["log_bytes"] == (tmp_path / "log.parquet").stat().st_size
        for sketch in again.read():
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

    def test_partition_folders(self, session: SparkSession, log: pa.Table, tmp_path: Path) -> None:
        pq.write_to_dataset(log, tmp_path / "log", partition_cols=["path"])
        assert logs.parquet_splits(tmp_path / "log", 4) is None
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
        assert folder.read() == []
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


class TestRefusals:
    def test_what_is_there_is_not_overwritten_unasked(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        log, out = tmp_path / "log.parquet", tmp_path / "out"
        pq.write_table(delivery_log(90), log)
        build(session, log, out, PARAMS, MAPPING)
        with pytest.raises(JobError, match="--overwrite"):
            build(session, log, out, PARAMS, MAPPING)
        build(session, log, out, PARAMS, MAPPING, overwrite=True)
        (out / "thesis.txt").write_text("not ours")
        with pytest.raises(JobError, match=r"not empty$"):
            build(session, log, out, PARAMS, MAPPING, overwrite=True)
        assert (out / "thesis.txt").exists()

    def test_a_failure_leaves_what_was_there(self, session: SparkSession, tmp_path: Path) -> None:
        log, out = tmp_path / "log.parquet", tmp_path / "out"
        pq.write_table(delivery_log(90), log)
        before = blobs(build(session, log, out, PARAMS, MAPPING))
        faulty = dataclasses.replace(MAPPING, weight="weight")  # up to 7, where 1 is the most
        with pytest.raises(Exception, match=r"weight\[\d+\] is \d; expected 0 to 1"):
            build(session, log, out, PARAMS, faulty, overwrite=True)
        assert blobs(SketchFolder.open(out)) == before
        assert {path.name for path in tmp_path.iterdir()} == {"log.parquet", "out"}

    def test_a_column_that_is_not_there(self, session: SparkSession, tmp_path: Path) -> None:
        write_csv(delivery_log(30).drop_columns(["msg"]), tmp_path / "log.csv")
        with pytest.raises(JobError, match="no column 'msg'; it has arrival_us"):
            sketch_table(session, tmp_path / "log.csv", PARAMS, MAPPING)
        with pytest.raises(ds.ParameterError, match="no column 'gateway'"):
            sketch_table(session, tmp_path / "log.csv", PARAMS, MAPPING, ["gateway"])

    def test_a_log_that_is_not_there_or_not_known(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        with pytest.raises(JobError, match="does not exist"):
            sketch_table(session, tmp_path / "log.parquet", PARAMS, MAPPING)
        (tmp_path / "log.xls").write_text("")
        with pytest.raises(JobError, match=r"\.xls.*--format"):
            sketch_table(session, tmp_path / "log.xls", PARAMS, MAPPING)


@pytest.fixture(scope="module")
def folders(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[SketchFolder]:
    """Two parts of one log that overlap, built apart."""
    root = tmp_path_factory.mktemp("merge")
    log = delivery_log(2_000)
    folders = []
    for name, part in {"a": log.slice(0, 1_200), "b": log.slice(800)}.items():
        pq.write_table(part, root / f"{name}.parquet")
        folders.append(
            build(session, root / f"{name}.parquet", root / name, PARAMS, MAPPING, ["path"])
        )
    return folders


class TestMerge:
    def test_into_one(self, session: SparkSession, folders: list[SketchFolder]) -> None:
        assert merge_all(session, folders) == expected(delivery_log(2_000), [])[()]

    def test_key_by_key(
        self, session: SparkSession, folders: list[SketchFolder], tmp_path: Path
    ) -> None:
        merged = merge_per_key(session, folders, tmp_path / "merged")
        assert blobs(merged) == expected(delivery_log(2_000), ["path"])
        assert merged.summary["rows"] == 2_400  # deliveries read, the overlap twice
        assert SketchFolder.open(tmp_path / "merged").by == ["path"]

    def test_other_parameters_or_keys_are_refused(
        self, session: SparkSession, folders: list[SketchFolder], tmp_path: Path
    ) -> None:
        pq.write_table(delivery_log(90), tmp_path / "log.parquet")
        other = ds.SketchParams(max_weight=1, id_bits=47, seed=10, time_unit="us")
        odd = build(session, tmp_path / "log.parquet", tmp_path / "odd", other, MAPPING, ["path"])
        with pytest.raises(ds.IncompatibleSketchError) as caught:
            merge_all(session, [folders[0], odd])
        assert caught.value.fields == {"id_bits": (48, 47), "seed": (9, 10)}
        whole = build(session, tmp_path / "log.parquet", tmp_path / "whole", PARAMS, MAPPING)
        with pytest.raises(JobError, match="leave out --per-key"):
            merge_per_key(session, [folders[0], whole], tmp_path / "merged")
