"""Tables of sketches by Spark: the bytes of one process for any cut, and nothing lost unseen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delivery_logs import delivery_log, real_log

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe, recipe_of
from decaysketch.spark import pushdown
from decaysketch.spark.build import detect_format, merge_table, refusal_table, sketch_table
from decaysketch.spark.splits import find_files, parquet_tasks
from decaysketch.tables import (
    RESULT_FIELDS,
    ColumnMapping,
    KeyedBuilder,
    RowFilter,
    merge_blobs,
    parse_where,
    sketches_by_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value",
    time_unit="us",
)  # fmt: skip
PARAMS = ds.SketchParams(max_weight=1, id_bits=48, capacity=40, seed=9, time_unit="us")
RESULT_NAMES = [field.name for field in RESULT_FIELDS]
REAL_LOGS = ("ble_set2", "lorawan_tourperret", "ooo_umts_d1", "wifi_two_receivers")
KINDS: dict[str, tuple[Recipe, ColumnMapping]] = {
    "integral": (recipe_of(PARAMS, ds.decay.integral.exponential(half_life=10**9)), MAPPING),
    "sum": (
        recipe_of(SumParams(max_sum=10**6, capacity=30, seed=3, time_unit="us")),
        ColumnMapping(
            time="arrival_us", source="source", sequence="msg", value="weight", time_unit="us"
        ),
    ),
    "median": (
        recipe_of(MedianParams(max_count=10**6, capacity=30, seed=3, time_unit="us")),
        ColumnMapping(
            time="arrival_us", source="source", sequence="msg", value="value", time_unit="us"
        ),
    ),
}  # fmt: skip


def expected(
    log: pa.Table, by: Sequence[str], recipe: Any = PARAMS, mapping: ColumnMapping = MAPPING
) -> dict[tuple[Any, ...], bytes]:
    """The bytes that one process makes of a log."""
    sketches = sketches_by_key(log, recipe, mapping, by)
    return {key: sketch.to_bytes() for key, sketch in sketches.items()}


def blobs(table: DataFrame, by: Sequence[str]) -> dict[tuple[Any, ...], bytes]:
    rows = table.toArrow().to_pylist()
    found = {tuple(row[name] for name in by): row["sketch"] for row in rows}
    assert len(found) == len(rows)  # one row a key
    return found


def totals(table: DataFrame) -> dict[str, int]:
    rows = table.toArrow().to_pylist()
    return {name: sum(row[name] for row in rows) for name in RESULT_NAMES[:4]}


@pytest.fixture(scope="module")
def log() -> pa.Table:
    return delivery_log(3_000)


@pytest.fixture(scope="module")
def folder(log: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log in three files of several row groups, in the order of arrival."""
    folder = tmp_path_factory.mktemp("log")
    for number in range(3):
        part = log.slice(number * 1_000, 1_000)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=130)
    (folder / "_SUCCESS").touch()
    return folder


class TestTasks:
    """Every row group is read by one task, and tasks are of about the same size."""

    @pytest.mark.parametrize("tasks", [1, 2, 5, 24, 500])
    def test_cut(self, folder: Path, tasks: int) -> None:
        files = find_files(folder)
        assert files is not None
        parts = parquet_tasks(files, PARAMS, MAPPING, cores=2, tasks=tasks)
        assert parts is not None
        read = [(split.path, group) for split in parts.splits for group in split.row_groups]
        groups = [(file.path, number) for file in files for number in range(8)]
        assert read == groups
        assert parts.rows == 3_000
        assert len(parts) == min(tasks, 24)
        assert parts.starts[0] == 0
        assert parts.starts[-1] == len(parts.splits)
        assert all(a < b for a, b in zip(parts.starts, parts.starts[1:], strict=False))
        for split in parts.splits:
            assert split.first_row == 130 * split.row_groups[0]

    def test_tasks_grow_with_the_log_not_with_the_cores_alone(self) -> None:
        from decaysketch.spark.splits import _task_count

        rows = [0, 10**6, 10**7, 10**8, 10**9]
        assert [_task_count(n, cores=2) for n in rows] == [2, 2, 2, 6, 30]
        assert [_task_count(n, cores=64) for n in rows] == [64, 64, 64, 64, 128]

    def test_row_groups_without_a_wanted_row_are_left_out(self, folder: Path) -> None:
        files = find_files(folder)
        assert files is not None
        only = RowFilter(where=parse_where("arrival_us < 0"))
        parts = parquet_tasks(files, PARAMS, MAPPING, only, cores=2)
        assert parts is not None
        assert (len(parts), parts.rows, parts.pruned_rows) == (0, 0, 3_000)

    def test_files_by_uri_and_of_several_folders(self, folder: Path, tmp_path: Path) -> None:
        there = find_files(folder)
        assert there is not None
        assert [file.parts for file in there] == [(f"part-{k}.parquet",) for k in range(3)]
        assert find_files(folder.as_uri()) == there
        assert find_files([folder, str(folder / "part-1.parquet")]) == [*there, there[1]]
        assert find_files("abc://somewhere/log") is None  # Spark may know
        with pytest.raises(FileNotFoundError, match="does not exist"):
            find_files(tmp_path / "nothing")

    def test_a_delta_table_is_not_a_folder_of_parquet(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "_delta_log").mkdir()
        (tmp_path / "_delta_log" / "0.json").write_text("{}")
        with pytest.raises(ds.ParameterError, match="Delta table"):
            detect_format(tmp_path)


class TestEqualsOneProcess:
    @pytest.mark.parametrize("tasks", [1, 7])
    @pytest.mark.parametrize("by", [[], ["path"], ["path", "source"]], ids=str)
    def test_by_any_key_and_number_of_tasks(
        self, session: SparkSession, log: pa.Table, folder: Path, by: list[str], tasks: int
    ) -> None:
        table = sketch_table(session, folder, PARAMS, MAPPING, by, tasks=tasks)
        assert table.columns == [*by, *RESULT_NAMES]
        assert blobs(table, by) == expected(log, by)

    @pytest.mark.parametrize("parts", [1, 5])
    def test_from_a_dataframe(
        self, session: SparkSession, log: pa.Table, folder: Path, parts: int
    ) -> None:
        rows = session.createDataFrame(log).repartition(parts)
        table = sketch_table(session, rows, PARAMS, MAPPING, ["path"])
        assert blobs(table, ["path"]) == expected(log, ["path"])
        assert totals(table) == totals(sketch_table(session, folder, PARAMS, MAPPING))

    @pytest.mark.parametrize("kind", KINDS)
    def test_other_families(
        self, session: SparkSession, log: pa.Table, folder: Path, kind: str
    ) -> None:
        recipe, mapping = KINDS[kind]
        table = sketch_table(session, folder, recipe, mapping, ["path"], tasks=3)
        assert blobs(table, ["path"]) == expected(log, ["path"], recipe, mapping)

    @pytest.mark.parametrize("name", REAL_LOGS)
    def test_real_logs(self, session: SparkSession, name: str, tmp_path: Path) -> None:
        path = real_log(name)
        rows = pq.read_table(path)
        pq.write_table(rows, tmp_path / "log.parquet", row_group_size=-(-len(rows) // 12))
        want = expected(rows, ["path"])
        for tasks in (1, 5, 12):
            table = sketch_table(
                session, tmp_path / "log.parquet", PARAMS, MAPPING, ["path"], tasks=tasks
            )
            assert blobs(table, ["path"]) == want, tasks
        table = sketch_table(session, path, PARAMS, MAPPING, ["path"], read_in_workers=False)
        assert blobs(table, ["path"]) == want

    def test_ranges_that_overlap_and_runs_repeated(
        self, session: SparkSession, log: pa.Table, folder: Path
    ) -> None:
        both = [folder, folder / "part-1.parquet"]
        once = sketch_table(session, folder, PARAMS, MAPPING, ["path"])
        twice = sketch_table(session, both, PARAMS, MAPPING, ["path"])
        assert blobs(twice, ["path"]) == blobs(once, ["path"]) == expected(log, ["path"])
        again = merge_table(once.unionAll(twice).unionAll(once), ["path"], recipe_of(PARAMS))
        assert blobs(again, ["path"]) == expected(log, ["path"])
        assert totals(again)["rows"] == 2 * 3_000 + 4_000  # of work, not of observations

    def test_a_log_without_rows(self, session: SparkSession, log: pa.Table, tmp_path: Path) -> None:
        pq.write_table(log.slice(0, 0), tmp_path / "log.parquet")
        for by in ([], ["path"]):
            for here in (True, False):
                table = sketch_table(
                    session, tmp_path / "log.parquet", PARAMS, MAPPING, by, read_in_workers=here
                )
                assert blobs(table, by) == {}


class TestKeys:
    def test_many_keys(self, session: SparkSession, tmp_path: Path) -> None:
        keys, each = 3_000, 4
        number = np.arange(keys * each)
        log = pa.table(
            {
                "event_us": number, "arrival_us": number, "source": number % keys,
                "msg": number // keys, "value": number * 0.5,
            }
        )  # fmt: skip
        pq.write_table(log, tmp_path / "log.parquet", row_group_size=2_500)
        table = sketch_table(
            session, tmp_path / "log.parquet", PARAMS, MAPPING, ["source"], tasks=4
        )
        assert blobs(table, ["source"]) == expected(log, ["source"])

    def test_a_task_that_is_full_hands_on_and_goes_on(
        self, session: SparkSession, log: pa.Table, tmp_path: Path
    ) -> None:
        copies = 6
        for number in range(copies):
            pq.write_table(pa.concat_tables([log] * 4), tmp_path / f"{number}.parquet")
        table = sketch_table(
            session, tmp_path, PARAMS, MAPPING, ["source"], tasks=1, memory_bytes=1 << 20
        )
        assert blobs(table, ["source"]) == expected(log, ["source"])
        assert totals(table)["rows"] == 4 * copies * log.num_rows

    @pytest.mark.parametrize("by", [[], ["path"]], ids=str)
    def test_a_skewed_key_is_merged_in_a_tree(
        self, session: SparkSession, log: pa.Table, folder: Path, by: list[str]
    ) -> None:
        table = sketch_table(session, folder, PARAMS, MAPPING, by, tasks=24, salts=3)
        assert table.columns == [*by, *RESULT_NAMES]
        assert blobs(table, by) == expected(log, by)
        assert totals(table)["rows"] == 3_000

    def test_keys_that_spark_takes_for_equal(self, session: SparkSession, log: pa.Table) -> None:
        [(_, sketch)] = sketches_by_key(log, PARAMS, MAPPING).items()
        rows = [(name, 1, *[0] * 6, sketch.to_bytes(), sketch.digest()) for name in "aAaAaA"]
        table = session.createDataFrame(rows, ["site", *RESULT_NAMES])
        for kind in ("UTF8_LCASE", "UTF8_BINARY"):
            collated = table.selectExpr(f"collate(site, '{kind}') AS site", *RESULT_NAMES)
            merged = merge_table(collated, ["site"], recipe_of(PARAMS)).toArrow().to_pylist()
            assert sorted((row["site"], row["rows"]) for row in merged) == [("A", 3), ("a", 3)]
        numbers = table.selectExpr("double(0) AS site", *RESULT_NAMES)
        with pytest.raises(ParameterError, match="cannot merge by 'site', which is of type double"):
            merge_table(numbers, ["site"], recipe_of(PARAMS))

    def test_null_is_a_key(self, session: SparkSession, log: pa.Table, tmp_path: Path) -> None:
        path = pa.array([None if p == 3 else f"gw {p}" for p in log["path"].to_pylist()])
        holes = log.set_column(log.schema.get_field_index("path"), "path", path)
        pq.write_table(holes, tmp_path / "log.parquet", row_group_size=400)
        for here in (True, False):
            table = sketch_table(
                session, tmp_path / "log.parquet", PARAMS, MAPPING, ["path"], read_in_workers=here
            )
            found = blobs(table, ["path"])
            assert (None,) in found
            assert found == expected(holes, ["path"])

    def test_merged_is_what_the_library_merges(self, session: SparkSession, folder: Path) -> None:
        table = sketch_table(session, folder, PARAMS, MAPPING, ["source", "path"])
        rows = table.toArrow().to_pylist()
        merged = merge_table(table, ["path"], recipe_of(PARAMS))
        for (path,), blob in blobs(merged, ["path"]).items():
            assert blob == merge_blobs(row["sketch"] for row in rows if row["path"] == path)


class TestFilters:
    @pytest.mark.parametrize("here", [True, False], ids=["path route", "DataFrame"])
    @pytest.mark.parametrize(
        "only",
        [
            RowFilter(where=parse_where("path != 3 AND weight >= 2")),
            RowFilter(since=1_700_000_200_000_000, until=1_700_000_600_000_000),
            RowFilter(since=1_700_000_400_000_000, where=parse_where("value is not null")),
        ],
        ids=["where", "times", "both"],
    )
    def test_like_a_log_of_those_rows(
        self, session: SparkSession, log: pa.Table, folder: Path, here: bool, only: RowFilter
    ) -> None:
        builder = KeyedBuilder(PARAMS, MAPPING, ["path"], only=only)
        builder.add(log)
        want = {key: sketch.to_bytes() for key, sketch in builder.sketches.items()}
        table = sketch_table(
            session, folder, PARAMS, MAPPING, ["path"], only=only, read_in_workers=here
        )
        assert blobs(table, ["path"]) == want
        taken = sum(int(counts[0]) for counts in builder.counts.values())
        assert 0 < taken < 3_000
        assert totals(table)["rows"] == taken

    @pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.int64()], ids=str)
    def test_spark_reads_only_what_may_be_taken(
        self, session: SparkSession, log: pa.Table, tmp_path: Path, kind: pa.DataType
    ) -> None:
        params = ds.SketchParams(max_weight=9, id_bits=48, capacity=40, seed=3, time_unit="min")
        mapping = ColumnMapping(
            time="event_us", fallback_time="arrival_us", ids=("source", "msg"), time_unit="us"
        )
        times = [1_700_000_000_000_000 + 700_000 * k for k in range(log.num_rows)]
        start = min(times) // 60_000_000
        event = pa.array([None if k % 5 == 0 else t for k, t in enumerate(times)], pa.int64())
        names = log.column_names
        rows = log.set_column(names.index("event_us"), "event_us", event.cast(kind))
        arrival = pa.array([t + 90_000_000 for t in times])
        rows = rows.set_column(names.index("arrival_us"), "arrival_us", arrival)
        pq.write_table(rows, tmp_path / "log.parquet")
        only = RowFilter(since=start + 3, until=start + 9, where=parse_where("path != 3"))
        builder = KeyedBuilder(params, mapping, ["path"], only=only)
        builder.add(rows)
        table = sketch_table(
            session, tmp_path, params, mapping, ["path"], only=only, read_in_workers=False
        )
        assert blobs(table, ["path"]) == {
            key: sketch.to_bytes() for key, sketch in builder.sketches.items()
        }
        assert 0 < totals(table)["rows"] < log.num_rows
        frame = pushdown.where(session.read.parquet(str(tmp_path)), params, mapping, only)
        fallback = (start + 3) * 60_000_000
        assert frame.where(f"event_us is null and arrival_us < {fallback}").isEmpty()
        assert frame.where("path = 3").isEmpty()


class TestRefused:
    @pytest.mark.parametrize("here", [True, False], ids=["path route", "DataFrame"])
    def test_counted_and_listed(
        self, session: SparkSession, log: pa.Table, tmp_path: Path, here: bool
    ) -> None:
        weights = log["weight"].to_numpy().copy()
        weights[:] = 1
        weights[[5, 700, 2_999]] = 9
        faulty = log.set_column(log.schema.get_field_index("weight"), "weight", pa.array(weights))
        path = tmp_path / "log.parquet"
        pq.write_table(faulty, path, row_group_size=500)
        mapping = ColumnMapping(
            time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value",
            weight="weight", time_unit="us",
        )  # fmt: skip
        with pytest.raises(Exception, match=r"weight\[\d+\] is 9; expected 0 to 1"):
            sketch_table(session, path, PARAMS, mapping, read_in_workers=here).collect()
        table = sketch_table(
            session, path, PARAMS, mapping, ["path"], refused="count", read_in_workers=here
        )
        assert totals(table)["refused"] == 3
        kept = faulty.filter(pa.array(weights == 1))
        assert blobs(table, ["path"]) == expected(kept, ["path"], PARAMS, mapping)
        listed = refusal_table(session, path, PARAMS, mapping, read_in_workers=here)
        rows = listed.toArrow().to_pylist()
        assert [row["column"] for row in rows] == ["weight"] * 3
        assert all('"weight": 9' in row["record"] for row in rows)
        if here:
            assert sorted(row["row"] for row in rows) == [5, 700, 2_999]
            assert {row["place"] for row in rows} == {str(path)}

    def test_a_column_that_is_not_there(self, session: SparkSession, folder: Path) -> None:
        for here in (True, False):
            with pytest.raises(ds.ParameterError, match="no column 'gateway'"):
                sketch_table(session, folder, PARAMS, MAPPING, ["gateway"], read_in_workers=here)
