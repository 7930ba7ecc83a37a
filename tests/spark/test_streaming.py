"""Streams merged into a table: late rows, batches that run again, and processes that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import decaysketch as ds
from decaysketch.errors import IncompatibleSketchError
from decaysketch.families import recipe_of
from decaysketch.spark.streaming import merge_into, merge_rows, runs_to_merge
from decaysketch.spark.tables import SketchTable, TableError
from decaysketch.tables import KeyedBuilder
from quality.streaming import BY, MAPPING, PARAMS, Study, log_file, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGE = PARAMS.with_capacity(100_000)  # holds every row of these logs


def built(*logs: pa.Table, params: ds.SketchParams = PARAMS) -> dict[Any, tuple[int, bytes]]:
    """Rows that were read and the sketch, by key, of one build of all logs."""
    builder = KeyedBuilder(recipe_of(params), MAPPING, BY)
    for log in logs:
        builder.add(log)
    rows = pa.Table.from_batches(builder.batches()).to_pylist()
    return {row["path"]: (row["rows"], row["sketch"]) for row in rows}


def stored(path: Path) -> dict[Any, tuple[int, bytes]]:
    return {
        key: (rows, blob)
        for (key,), rows, blob in (
            (each.key, each.rows, each.blob) for each in SketchTable.open(path).sketches()
        )
    }


class TestBatches:
    def test_rows_that_are_30_days_late_count_right(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        merge = merge_into(tmp_path / "t", LARGE, MAPPING, BY, query="q")
        logs = [log_file(number) for number in range(2)]
        for number, log in enumerate(logs):
            merge(session.createDataFrame(log), number)
        table = stored(tmp_path / "t")
        assert table == built(*logs, params=LARGE)
        days_ago = 29 * 86_400_000_000
        everything = pa.concat_tables(logs).to_pandas().drop_duplicates(["path", "source", "msg"])
        late = everything[everything["event_us"] < everything["event_us"].max() - days_ago]
        assert len(late) > 300
        for key, (_, blob) in table.items():
            sketch = ds.DecaySketch.from_bytes(blob)
            now = int(everything["event_us"].max()) - days_ago
            count = sketch.count(ds.decay.none(), now=now)
            same = late["path"].isna() if key is None else late["path"] == key
            assert (count.exact, count.value) == (True, int(same.sum()))

    def test_a_batch_that_runs_again_counts_once(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        given: list[tuple[int, int]] = []
        ends = [False, True, False, False]

        def then(rows: DataFrame, batch: int) -> None:
            given.append((batch, rows.count()))
            if ends.pop(0):
                raise ConnectionError("the query ends here")

        merge = merge_into(tmp_path / "t", PARAMS, MAPPING, BY, query="q", also=[then])
        logs = [log_file(number) for number in range(2)]
        first, second = (session.createDataFrame(log) for log in logs)
        merge(first, 0)
        with pytest.raises(ConnectionError):
            merge(second, 1)
        merge(second, 1)
        assert stored(tmp_path / "t") == built(*logs)
        assert SketchTable.open(tmp_path / "t").applied("q") == 1
        merge(first.limit(0), 2)  # adds no run, and nothing is handed on
        assert SketchTable.open(tmp_path / "t").applied("q") == 2
        assert given == [(0, 4), (1, 4), (1, 4)]
        # Another query is another reader of the log: what it reads is read once more.
        other = merge_into(tmp_path / "t", PARAMS, MAPPING, BY, query="other")
        other(first, 0)
        twice = stored(tmp_path / "t")
        assert sum(rows for rows, _ in twice.values()) == 3 * 2_000
        assert {key: blob for key, (_, blob) in twice.items()} == {
            key: blob for key, (_, blob) in built(*logs).items()
        }

    def test_a_name_is_needed_where_there_is_no_query(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        merge = merge_into(tmp_path / "t", PARAMS, MAPPING, BY)
        with pytest.raises(TableError, match="give merge_into a name"):
            merge(session.createDataFrame(log_file(0).slice(0, 1)), 0)

    def test_a_table_of_other_sketches_is_refused(self, tmp_path: Path) -> None:
        merge_into(tmp_path / "t", PARAMS, MAPPING, BY)
        merge_into(tmp_path / "t", PARAMS, MAPPING, BY)
        other = ds.SketchParams(max_weight=9, id_bits=40, capacity=300, seed=18, time_unit="us")
        with pytest.raises(IncompatibleSketchError, match="seed"):
            merge_into(tmp_path / "t", other, MAPPING, BY)
        with pytest.raises(TableError, match=r"for each \('path',\); expected \(\)"):
            merge_into(tmp_path / "t", PARAMS, MAPPING)
        with pytest.raises(TableError, match="most_runs is 0"):
            merge_into(tmp_path / "t", PARAMS, MAPPING, BY, most_runs=0)


class TestSinks:
    def test_one_that_fails_keeps_no_table_from_being_compacted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without Spark: rows are Arrow's, and what Spark would do is written down."""
        done: list[Any] = []
        append = SketchTable.append

        def sink(_: Any, batch: int) -> None:
            done.append(f"sink {batch}")
            raise ConnectionError("no aggregator")

        class Rows:
            sparkSession = None  # noqa: N815
            builder = KeyedBuilder(recipe_of(PARAMS), MAPPING, BY)
            builder.add(log_file(0))
            table = pa.Table.from_batches(builder.batches())

        monkeypatch.setattr(
            SketchTable, "append", lambda self, rows, *a, **k: append(self, rows.table, *a, **k)
        )
        monkeypatch.setattr(SketchTable, "stored", lambda *_: None)
        monkeypatch.setattr(
            SketchTable, "compact", lambda *_, last, **__: done.append(f"merge {last}")
        )
        merge: Any = merge_rows(
            tmp_path / "t", recipe_of(PARAMS), BY, query="q", also=[sink], most_runs=1
        )
        for batch in range(2):
            with pytest.raises(ConnectionError):
                merge(Rows(), batch)
        assert done == ["sink 0", "sink 1", "merge 2"]


class TestRunsToMerge:
    @pytest.mark.parametrize(
        ("sizes", "count"),
        [
            ([], 0),
            ([1, 1, 1], 0),
            ([1, 1, 1, 1], 4),
            ([100, 1, 1, 1], 3),
            ([100, 6, 1, 1, 1], 4),
            ([100, 7, 1, 1, 1], 3),
            ([1000, 100, 10, 1], 0),
        ],
    )
    def test_which(self, sizes: list[int], count: int) -> None:
        assert runs_to_merge(sizes, 3) == count

    @pytest.mark.parametrize("most", [1, 3, 8])
    def test_few_runs_and_little_is_rewritten(self, most: int) -> None:
        sizes: list[int] = []
        rewritten = 0
        batches = 2_000
        for _ in range(batches):
            sizes.append(1)
            if count := runs_to_merge(sizes, most):
                merged = sum(sizes[-count:])
                rewritten += merged
                sizes[-count:] = [merged]
            assert len(sizes) <= max(most, 2 + np.log(batches) / np.log(3))
        assert sum(sizes) == batches
        assert rewritten < batches * np.log(batches) / np.log(1.5)


class TestKilled:
    def test_a_query_that_is_killed_goes_on_where_it_was(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        """One of the kills of ``python -m quality.streaming``."""
        study = Study(tmp_path, seed=1)
        study.kill_once("writing")
        study.finish(session)
        assert study.outcome.unfinished == 1
        assert study.outcome.rows == 5 * 2_000
        assert study.outcome.last_batch == 4

    def test_compaction_keeps_up(self, session: SparkSession, tmp_path: Path) -> None:
        study = Study(tmp_path, seed=2)
        study.add_files(6)
        study.finish(session)
        query = start(session, tmp_path, to_the_end=True)
        query.awaitTermination()
        table = SketchTable.open(tmp_path / "table")
        assert table.applied(query.id) == 5
        assert len(table.content.runs) <= 3
        folders = {f"data/{path.name}" for path in (tmp_path / "table" / "data").iterdir()}
        assert folders == {run.folder for run in table.content.runs} | table.content.retired.keys()
