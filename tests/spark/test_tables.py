"""The stored table: versions, killed writers, two writers, runs, partitions, other engines."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delivery_logs import delivery_log
from pyarrow import fs

import decaysketch as ds
from decaysketch.asyncwindow import SumParams
from decaysketch.cli import tables as cli_tables
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError
from decaysketch.families import Recipe, recipe_of
from decaysketch.spark import _log, _storage
from decaysketch.spark._names import quoted
from decaysketch.spark._storage import Storage
from decaysketch.spark.tables import SketchTable, TableBusyError, TableError
from decaysketch.tables import RESULT_FIELDS, ColumnMapping, KeyedBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARAMS = ds.SketchParams(max_weight=9, id_bits=40, capacity=100, seed=5, time_unit="us")
RECIPE = recipe_of(PARAMS)
MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value",
    weight="weight",
)  # fmt: skip


def built(*logs: pa.Table, by: Iterable[str] = ("path",), recipe: Recipe = RECIPE) -> pa.Table:
    """One row a key of all logs together, in order of keys."""
    builder = KeyedBuilder(recipe, MAPPING, tuple(by))
    for log in logs:
        builder.add(log)
    table = pa.Table.from_batches(builder.batches())
    return table.sort_by([(name, "ascending") for name in by]) if by else table


def log(seed: int, rows: int = 600) -> pa.Table:
    return delivery_log(rows, seed=seed)


def files_in(path: Path) -> set[str]:
    """What stands in a table's folder, but for what Spark writes beside rows."""
    return {
        str(each.relative_to(path).parent if each.suffix == ".parquet" else each.relative_to(path))
        for each in path.rglob("*")
        if each.is_file() and "_SUCCESS" not in each.name and each.suffix != ".crc"
    }


def commit_name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def changed_commit(path: Path, version: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what a commit says about the table."""
    file = path / commit_name(version)
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            state = json.loads(action["commitInfo"]["decaysketch"])
            change(state)
            action["commitInfo"]["decaysketch"] = json.dumps(state)
    file.write_text("\n".join(map(json.dumps, actions)))


class TestVersions:
    def test_a_table_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        rows = built(log(1))
        written = SketchTable.write(tmp_path / "t", rows, RECIPE, ["path"], notes={"log": "one"})
        opened = SketchTable.open(tmp_path / "t")
        assert opened == written
        assert opened.read() == rows
        assert (opened.version, opened.by, opened.recipe) == (0, ("path",), RECIPE)
        sizes = [len(blob) for blob in rows.column("sketch").to_pylist()]
        assert opened.counts == {
            "sketches": 5, "rows": 600, "refused": 0, "sketch_bytes": sum(sizes), "replaced": 0,
            "undated": 0, "zoneless": 0,
            "missing_values": sum(rows.column("missing_values").to_pylist()),
            "fallback_times": sum(rows.column("fallback_times").to_pylist()),
        }  # fmt: skip
        assert opened.summary["log"] == "one"
        assert opened.summary["params"] == PARAMS.to_dict()
        assert [s.key for s in opened.sketches()] == [(path,) for path in range(5)]
        assert next(opened.sketches()).blob == rows.column("sketch")[0].as_py()

    def test_a_version_that_was_opened_stays_as_it_is(self, tmp_path: Path) -> None:
        first = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"], keep=2)
        second = first.replace(built(log(2)), {"n": 2})
        assert first.read() == built(log(1))
        assert second.read() == built(log(2))
        third = second.replace(built(log(3)))
        assert second.read() == built(log(2))
        assert SketchTable.open(tmp_path / "t") == third
        with pytest.raises(FileNotFoundError):
            first.read()
        assert files_in(tmp_path / "t") == {
            ".lock", *(commit_name(number) for number in range(3)),
            *(run.folder for t in (second, third) for run in t.content.runs),
        }  # fmt: skip

    def test_what_is_there_is_not_overwritten_unasked(self, tmp_path: Path) -> None:
        SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        with pytest.raises(TableError, match="already contains a table of sketches"):
            SketchTable.write(tmp_path / "t", built(log(2)), RECIPE, ["path"])
        with pytest.raises(TableError, match="already contains a table of sketches"):
            SketchTable.create(tmp_path / "t", RECIPE)
        other = recipe_of(ds.SketchParams(max_weight=9, capacity=9, time_unit="us"))
        rows = built(log(2), by=(), recipe=other)
        replaced = SketchTable.write(tmp_path / "t", rows, other, overwrite=True)
        assert (replaced.version, replaced.by, replaced.read()) == (1, (), rows)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.txt").touch()
        for path in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
            with pytest.raises(TableError, match="not a table"):
                SketchTable.write(path, rows, other, overwrite=True)
        with pytest.raises(TableError, match="not a table of sketches"):
            SketchTable.open(tmp_path / "nowhere")
        assert not SketchTable.exists(tmp_path / "nowhere")

    @pytest.mark.parametrize(
        "name",
        ["data/log.parquet", "data/raw/x", "_delta_log/notes.txt", "_delta_log/v1.json", "data",
         "versions/notes.txt", "versions/v1.json", "part-0.parquet", "sketches", ".lock/x"],
    )  # fmt: skip
    def test_a_folder_with_like_names_is_not_ours(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "d" / name).parent.mkdir(parents=True)
        (tmp_path / "d" / name).write_text("mine")
        with pytest.raises(TableError, match="not a table"):
            SketchTable.exists(tmp_path / "d")
        with pytest.raises(TableError, match="not a table"):
            SketchTable.write(tmp_path / "d", built(log(1)), RECIPE, ["path"], overwrite=True)
        assert (tmp_path / "d" / name).read_text() == "mine"

    def test_what_is_not_ours_is_never_removed(self, tmp_path: Path) -> None:
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"], keep=1)
        foreign = ("data/log.parquet", "data/raw/x", "_delta_log/notes.txt", "versions/.part",
                   "sketches/mine.sketch")  # fmt: skip
        for name in foreign:
            (tmp_path / "t" / name).parent.mkdir(exist_ok=True)
            (tmp_path / "t" / name).write_text("mine")
        table.replace(built(log(2))).append(built(log(3)))
        assert {name for name in foreign if (tmp_path / "t" / name).exists()} == set(foreign)

    def test_what_cannot_be_read_is_overwritten_where_asked(self, tmp_path: Path) -> None:
        path = tmp_path / "t"
        SketchTable.write(path, built(log(1)), RECIPE, ["path"])
        (path / commit_name(0)).write_text("{}")
        with pytest.raises(TableError, match="already"):
            SketchTable.write(path, built(log(2)), RECIPE, ["path"])
        table = SketchTable.write(path, built(log(2)), RECIPE, ["path"], overwrite=True)
        assert (table.read(), SketchTable.open(path)) == (built(log(2)), table)
        assert files_in(path) == {".lock", commit_name(0), table.added[0].folder}

    def test_a_table_without_a_delta_log_is_refused_and_overwritten(self, tmp_path: Path) -> None:
        path, data = tmp_path / "t", tmp_path / "t" / "data" / "0000000001-00000000"
        data.mkdir(parents=True)
        (path / "versions").mkdir()
        for file in (path / "versions" / "0000000001.json", data / "part-0.parquet"):
            file.touch()
        with pytest.raises(TableError, match="build it again with overwrite"):
            SketchTable.open(path)
        with pytest.raises(TableError, match="already"):
            SketchTable.write(path, built(log(1)), RECIPE, ["path"])
        with pytest.raises(TableError, match="lack the columns"):
            SketchTable.write(path, log(1), RECIPE, ["path"], overwrite=True)
        assert (data / "part-0.parquet").exists()
        table = SketchTable.write(path, built(log(1)), RECIPE, ["path"], overwrite=True)
        assert SketchTable.open(path).read() == built(log(1))
        assert files_in(path) == {".lock", commit_name(0), table.added[0].folder}
        assert not data.exists()

    @pytest.mark.parametrize(
        "folder", ["../x", "data/../x", "/etc", "data/a/../../x", "data/x", "", 7, None]
    )
    def test_a_version_names_files_of_the_table_only(self, tmp_path: Path, folder: Any) -> None:
        SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])

        def change(state: dict[str, Any]) -> None:
            state["partitions"][""]["runs"][0]["folder"] = folder

        changed_commit(tmp_path / "t", 0, change)
        with pytest.raises(TableError, match="cannot be read"):
            SketchTable.open(tmp_path / "t")

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"partitions": []}', "[]", "7"])
    def test_hostile_versions(self, tmp_path: Path, text: str) -> None:
        SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        file = tmp_path / "t" / commit_name(0)
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        actions[0]["commitInfo"]["decaysketch"] = text
        file.write_text("\n".join(map(json.dumps, actions)))
        with pytest.raises(TableError, match="cannot be read"):
            SketchTable.open(tmp_path / "t")

    def test_keys_of_every_type_and_nulls(self, tmp_path: Path) -> None:
        moment = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
        keys = {
            "i": pa.array([None, 7], pa.int64()),
            "s": pa.array([None, "a/b"], pa.string()),
            "b": pa.array([None, b"\x00"], pa.binary()),
            "t": pa.array([None, moment], pa.timestamp("us", "UTC")),
            "d": pa.array([None, moment.date()], pa.date32()),
            "f": pa.array([None, True], pa.bool_()),
        }
        rows = built(log(1)).slice(0, 2).drop_columns(["path"])
        for name, column in keys.items():
            rows = rows.append_column(name, column)
        table = SketchTable.write(tmp_path / "t", rows, RECIPE, list(keys))
        assert SketchTable.open(tmp_path / "t").read().select(list(keys)) == pa.table(keys)
        assert [each.key for each in table.sketches()][1][3] == moment

    def test_instants_of_int96_are_not_nanoseconds(self, tmp_path: Path) -> None:
        """Spark may be set to write them; in nanoseconds the year 9999 is another one."""
        far = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
        rows = built(log(1), by=()).append_column("t", pa.array([far], pa.timestamp("us", "UTC")))
        table = SketchTable.write(tmp_path / "t", rows, RECIPE, ["t"])
        file = tmp_path / "t" / table.added[0].files[0].path
        pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
        assert [each.key for each in table.sketches()] == [(far,)]
        [(batch, named, faults)] = cli_tables.batches(file, "parquet", cli_tables.Reading(["t"]))
        for each in (batch, named):
            assert each.column("t").cast(pa.int64()).to_pylist() == [253_402_214_400_000_000]
        assert not faults

    @pytest.mark.parametrize("by", [["path", "Path"], ["Rows"], ["DIGEST"]])
    def test_names_that_differ_by_case_only(self, tmp_path: Path, by: list[str]) -> None:
        with pytest.raises(TableError, match="rename one"):
            SketchTable.create(tmp_path / "t", RECIPE, by)
        assert not (tmp_path / "t").exists()

    def test_sketches_come_one_by_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = built(log(1))
        keys = pa.array([3, None, 9, -1, 4], pa.int64())
        rows = rows.set_column(0, "path", keys)
        table = SketchTable.write(tmp_path / "t", rows, RECIPE, ["path"])
        # What it gives is one table, and a column of bytes of more than 2 GB cannot be taken from.
        monkeypatch.delattr(SketchTable, "read")
        blobs = dict(zip(keys.to_pylist(), rows.column("sketch").to_pylist(), strict=True))
        found = [(each.key[0], each.blob) for each in table.sketches()]
        assert found == [(key, blobs[key]) for key in (None, -1, 3, 4, 9)]
        one = SketchTable.write(tmp_path / "one", built(log(1), by=()), RECIPE)
        assert [(each.key, each.rows) for each in one.sketches()] == [((), 600)]

    def test_rows_that_do_not_belong(self, tmp_path: Path) -> None:
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        with pytest.raises(TableError, match="lack the columns path"):
            table.replace(built(log(1), by=()))
        text = built(log(1)).set_column(0, "path", pa.array(list("abcde")))
        with pytest.raises(TableError, match=r"has keys .*int64.*; rows to be stored .*string"):
            table.append(text)
        sums = recipe_of(SumParams(max_sum=99, capacity=9, time_unit="us"))
        sampler = sums.empty()
        rows = built(log(1)).slice(0, 1)
        place = rows.schema.get_field_index("sketch")
        for blob, fault in ((sampler.to_bytes(), IncompatibleSketchError), (None, TableError)):
            bad = rows.set_column(place, "sketch", pa.array([blob], pa.binary()))
            with pytest.raises(fault, match=r"family|missing"):
                table.append(bad)
        other = ds.DecaySketch(ds.SketchParams(max_weight=9, capacity=9, time_unit="us", seed=6))
        for blob, refusal in (
            (other.to_bytes(), IncompatibleSketchError), (b"junk" * 20, CorruptSketchError),
            (b"", CorruptSketchError),
        ):  # fmt: skip
            blobs = [*built(log(1)).column("sketch").to_pylist()[:4], blob]
            bad = built(log(1)).set_column(place, "sketch", pa.array(blobs, pa.binary()))
            with pytest.raises(refusal):
                table.append(bad)
        with pytest.raises(TableError, match="10 rows to be stored have 5 different keys"):
            table.append(pa.concat_tables([built(log(1)), built(log(2))]))
        one = built(log(1), by=())
        with pytest.raises(TableError, match="2 rows to be stored have 1 different keys"):
            SketchTable.write(tmp_path / "one", pa.concat_tables([one, one]), RECIPE)
        assert SketchTable.open(tmp_path / "t") == table


class TestCrashes:
    """Where a writer ends, at whatever step, the version before is there."""

    @pytest.mark.parametrize("step", ["make", "create", "keep", "change", "after change"])
    @pytest.mark.parametrize("work", ["replace", "append"])
    def test_at_every_step(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, work: str
    ) -> None:
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"], keep=1)
        name = step.removeprefix("after ")
        place: Any = _log if name == "change" else Storage
        own: Callable[..., Any] = getattr(place, name)

        class Killed(BaseException):
            """Nothing catches it."""

        def killed(*arguments: Any, **named: Any) -> Any:
            if step.startswith("after"):
                own(*arguments, **named)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(place, name, killed)
            with pytest.raises(Killed):
                getattr(table, work)(built(log(2)))
        published = step == "after change"
        found = SketchTable.open(tmp_path / "t")
        wanted = [log(2)] if work == "replace" else [log(1), log(2)]
        assert found.version == published
        assert found.read() == built(*wanted if published else [log(1)])
        final = found.replace(built(log(3)))
        assert final.read() == built(log(3))
        folders = {name for name in files_in(tmp_path / "t") if name.startswith("data")}
        assert folders == {final.added[0].folder}

    def test_a_commit_that_did_not_appear_is_removed(self, tmp_path: Path) -> None:
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        (tmp_path / "t" / f"{commit_name(1)}#1").write_text('{"commitInfo": ')
        (tmp_path / "t" / "data" / "0000000001-00000000").mkdir()
        assert SketchTable.open(tmp_path / "t") == table
        table.append(built(log(2)))
        assert not list((tmp_path / "t" / "_delta_log").glob("*#*"))
        assert not (tmp_path / "t" / "data" / "0000000001-00000000").exists()

    def test_between_the_two_commits_of_the_first_rows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Killed(BaseException):
            """Nothing catches it."""

        def killed(*_: Any, **__: Any) -> None:
            raise Killed

        table = SketchTable.create(tmp_path / "t", RECIPE, ["path"])
        with monkeypatch.context() as patch:
            patch.setattr(deltalake.DeltaTable, "create_write_transaction", killed)
            with pytest.raises(Killed):
                table.append(built(log(1)), applied=("q", 0))
        found = SketchTable.open(tmp_path / "t")
        assert (found.read().num_rows, found.applied("q")) == (0, None)
        after = found.append(built(log(1)), applied=("q", 0))
        assert (after.read(), SketchTable.open(tmp_path / "t")) == (built(log(1)), after)
        assert len(list((tmp_path / "t" / "data").iterdir())) == 1

    def test_only_a_draft_of_the_first_commit_is_no_table(self, tmp_path: Path) -> None:
        (tmp_path / "t" / "_delta_log").mkdir(parents=True)
        (tmp_path / "t" / f"{commit_name(0)}#1").write_text("{")
        assert not SketchTable.exists(tmp_path / "t")
        SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        assert SketchTable.open(tmp_path / "t").read() == built(log(1))

    @pytest.mark.parametrize("kept", [0, 50, 0.5, -1], ids=str)
    def test_a_commit_that_a_power_failure_cut_off(self, tmp_path: Path, kept: float) -> None:
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        table.append(built(log(2)), applied=("q", 1))
        file = tmp_path / "t" / commit_name(1)
        text = file.read_bytes()
        file.write_bytes(text[: int(kept * len(text)) if isinstance(kept, float) else kept])
        assert SketchTable.open(tmp_path / "t") == table
        after = SketchTable.open(tmp_path / "t").append(built(log(2)), applied=("q", 1))
        assert (after.version, after.counts["rows"]) == (1, 1_200)
        assert SketchTable.open(tmp_path / "t").read() == built(log(1), log(2))


def test_names_of_columns_are_quoted() -> None:
    assert [quoted(name) for name in ("a", "a.b", "a`b`")] == ["`a`", "`a.b`", "`a``b```"]


class TestStorage:
    def test_every_folder_on_the_way_to_a_file_is_on_the_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done: list[str] = []
        monkeypatch.setattr(
            _storage,
            "_synchronize",
            lambda path: done.append(str(Path(path).relative_to(tmp_path))),
        )
        table = SketchTable.write(tmp_path / "a" / "t", built(log(1)), RECIPE, ["path"])
        [file] = table.added[0].files
        rows = [f"a/t/{file.path}", f"a/t/{table.added[0].folder}", "a/t/data", "a/t"]
        at = done.index(rows[0])
        assert done[at : at + 4] == rows
        assert set(done[:at]) >= {".", "a", "a/t"}  # where the first names were made
        assert done[-3:] == [f"a/t/{commit_name(0)}", "a/t/_delta_log", "a/t"]
        done.clear()
        table.append(built(log(2)))
        assert not {".", "a"} & set(done)  # may not be ours to read

    def test_what_has_no_age_is_no_leftover(self, tmp_path: Path) -> None:
        """Folders of object stores have no times; theirs are those of the files in them."""
        storage = Storage(tmp_path)
        storage.local = False
        folder = fs.FileInfo(str(tmp_path / "f"), type=fs.FileType.Directory)
        assert not storage.is_leftover(folder)
        (tmp_path / "f" / "deep").mkdir(parents=True)
        two_days_ago = time.time() - 2 * 86_400
        for name in ("a", "deep/b"):
            (tmp_path / "f" / name).touch()
            os.utime(tmp_path / "f" / name, (two_days_ago, two_days_ago))
        os.utime(tmp_path / "f" / "deep", (two_days_ago, two_days_ago))
        assert storage.is_leftover(folder)
        (tmp_path / "f" / "deep" / "b").touch()
        assert not storage.is_leftover(folder)


HOLDING_A_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


class TestTwoWriters:
    def test_the_second_is_told_and_a_killed_one_leaves_no_lock(self, tmp_path: Path) -> None:
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        other = subprocess.Popen(
            [sys.executable, "-c", HOLDING_A_LOCK, tmp_path / "t" / ".lock"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(TableBusyError, match="another program is writing"):
            table.append(built(log(2)))
        assert table.read() == built(log(1))
        other.kill()
        other.communicate()
        assert table.append(built(log(2)), wait_s=5.0).version == 1

    def test_what_was_made_of_an_old_version_does_not_replace_a_newer(self, tmp_path: Path) -> None:
        old = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        new = old.append(built(log(2)))
        for work in (
            lambda: old.replace(built(log(3))),
            lambda: old.replace_partitions({"a": (built(log(3)), None)}),
        ):
            with pytest.raises(TableBusyError, match="at version 1; this is version 0"):
                work()
        assert SketchTable.open(tmp_path / "t") == new
        assert old.append(built(log(3))).read() == built(log(1), log(2), log(3))  # it loses nothing
        other = recipe_of(ds.SketchParams(max_weight=9, capacity=9, time_unit="us"))
        SketchTable.write(
            tmp_path / "t", built(log(1), recipe=other), other, ["path"], overwrite=True
        )
        with pytest.raises(TableError, match="replaced by a table of other sketches"):
            old.append(built(log(3)))

    @pytest.mark.parametrize("first", [True, False])
    def test_without_locks_the_one_that_is_later_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
    ) -> None:
        """An object store, as far as this module knows: deltalake's own file system."""
        monkeypatch.setattr(_storage, "_is_local", lambda _: False)
        path = tmp_path / "t"
        path.mkdir()
        table = SketchTable.create(path, RECIPE, ["path"])
        if not first:
            table = table.append(built(log(1)))
        assert not table.storage.local
        assert not (path / ".lock").exists()
        change = _log.change

        def late(*arguments: Any, **named: Any) -> int:
            monkeypatch.setattr(_log, "change", change)
            table.append(built(log(2)))
            return change(*arguments, **named)

        monkeypatch.setattr(_log, "change", late)
        with pytest.raises(TableBusyError, match="another program made a version"):
            table.append(built(log(3)))
        latest = SketchTable.open(path)
        assert latest.read() == (built(log(2)) if first else built(log(1), log(2)))
        assert latest.replace(built(log(3))).read() == built(log(3))

    def test_of_two_that_create_a_table_one_succeeds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_storage, "_is_local", lambda _: False)
        (tmp_path / "t").mkdir()
        create = _log.create

        def late(*arguments: Any, **named: Any) -> int:
            monkeypatch.setattr(_log, "create", create)
            SketchTable.write(tmp_path / "t", built(log(2)), RECIPE, ["path"])
            return create(*arguments, **named)

        monkeypatch.setattr(_log, "create", late)
        with pytest.raises(TableBusyError):
            SketchTable.create(tmp_path / "t", RECIPE, ["path"])
        assert SketchTable.open(tmp_path / "t").read() == built(log(2))


class TestOtherPrograms:
    def test_any_engine_reads_the_rows(self, tmp_path: Path) -> None:
        rows = built(log(1))
        SketchTable.create(tmp_path / "t", RECIPE, ["path"]).append(rows)
        delta = deltalake.DeltaTable(tmp_path / "t")
        names = rows.column_names
        dataset = delta.to_pyarrow_dataset()
        assert dataset.to_table(names).sort_by("path") == rows
        assert pl.read_delta(str(tmp_path / "t")).select(names).sort("path").rows() == [
            tuple(row.values()) for row in rows.to_pylist()
        ]
        found = duckdb.from_arrow(dataset).aggregate("sum(rows), count(DISTINCT digest)")
        assert found.fetchall() == [(600, 5)]

    def test_maintenance_by_others_keeps_it_and_changes_are_noticed(self, tmp_path: Path) -> None:
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"])
        table = table.append(built(log(2)), applied=("q", 3))
        delta = deltalake.DeltaTable(tmp_path / "t")
        delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
        delta.alter.set_table_description("sketches")
        delta.create_checkpoint()
        opened = SketchTable.open(tmp_path / "t")
        assert opened.version > table.version
        assert (opened.content, opened.applied("q")) == (table.content, 3)
        assert opened.append(built(log(3))).read() == built(log(1), log(2), log(3))
        deltalake.DeltaTable(tmp_path / "t").optimize.compact()
        with pytest.raises(TableError, match="another program changed the files"):
            SketchTable.open(tmp_path / "t")

    def test_another_delta_table_is_none_of_sketches(self, tmp_path: Path) -> None:
        deltalake.write_deltalake(tmp_path / "t", pa.table({"x": [1]}))
        with pytest.raises(TableError, match="not a table of sketches"):
            SketchTable.open(tmp_path / "t")
        with pytest.raises(TableError, match="not a table of sketches"):
            SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"], overwrite=True)


class TestRuns:
    def test_read_merges_and_counts_add_up(self, tmp_path: Path) -> None:
        table = SketchTable.create(tmp_path / "t", RECIPE, ["path"])
        assert table.read() == pa.schema(RESULT_FIELDS).empty_table()
        for seed in (1, 2, 2):
            table = table.append(built(log(seed)))
        merged, once = table.read(), built(log(1), log(2))
        assert merged.select(["path", "sketch", "digest"]) == once.select(
            ["path", "sketch", "digest"]
        )
        assert table.counts["rows"] == sum(merged.column("rows").to_pylist()) == 1_800
        assert [run.counts["rows"] for run in table.added] == [600]
        empty = table.append(built(log(1)).slice(0, 0), applied=("q", 4))
        assert (empty.read(), empty.added, empty.applied("q")) == (merged, [], 4)

    def test_what_was_applied_meanwhile_counts_once(self, tmp_path: Path) -> None:
        """Two drivers run a batch of one query: both have looked before either of them writes."""
        SketchTable.create(tmp_path / "t", RECIPE, ["path"])
        first, second = (SketchTable.open(tmp_path / "t") for _ in range(2))
        rows = built(log(1))
        first.append(rows, applied=("q", 5))
        for again in (rows, rows.drop_columns(["refused"]), rows.to_reader()):
            table = second.append(again, applied=("q", 5))
        assert (table.counts["rows"], table.applied("q")) == (600, 5)
        assert table.append(rows, applied=("q", 4)).counts["rows"] == 600
        assert table.append(rows, applied=("q", 6)).counts["rows"] == 1_200

    def test_what_a_table_says_stays_where_it_grows(self, tmp_path: Path) -> None:
        said = {"build": {"log": "x"}, "seconds": 1}
        table = SketchTable.write(tmp_path / "t", built(log(1)), RECIPE, ["path"], notes=said)
        table = table.append(built(log(2)), {"seconds": 2})
        assert table.content.notes == {"build": {"log": "x"}, "seconds": 2}
        assert table.replace(built(log(3)), {"n": 1}).content.notes == {"n": 1}

    def test_a_secret_is_not_stored_and_needed_to_merge(self, tmp_path: Path) -> None:
        secret = bytes(range(32))
        keyed = recipe_of(ds.SketchParams(max_weight=9, capacity=50, time_unit="us", id_key=secret))
        rows = built(log(1), recipe=keyed)
        table = SketchTable.write(tmp_path / "t", rows, keyed, ["path"])
        table.append(rows)
        assert secret.hex() not in repr(table)
        for number in range(2):
            assert secret.hex() not in (tmp_path / "t" / commit_name(number)).read_text()
        with pytest.raises(ParameterError, match="secret"):
            SketchTable.open(tmp_path / "t").read()
        opened = SketchTable.open(tmp_path / "t", id_key=secret)
        assert opened.read().column("sketch") == rows.column("sketch")


class TestPartitions:
    def test_a_changed_one_is_replaced_and_the_others_stay(self, tmp_path: Path) -> None:
        table = SketchTable.create(tmp_path / "t", RECIPE, ["path"])
        table = table.replace_partitions(
            {f"day {n}": (built(log(n)), {"files": {"x": [n, n]}}) for n in (1, 2, 3)}
        )
        assert table.read() == built(log(1), log(2), log(3))
        assert table.fingerprints["day 2"] == {"files": {"x": [2, 2]}}
        corrected = log(2).slice(0, 200)
        later = table.replace_partitions(
            {"day 2": (built(corrected), {"files": {"x": [9, 9]}})}, remove=["day 3"]
        )
        assert later.read() == built(log(1), corrected)
        assert later.read(["day 2"]) == built(corrected)
        assert sorted(later.fingerprints) == ["day 1", "day 2"]
        assert later.partitions["day 1"] == table.partitions["day 1"]
        assert SketchTable.open(tmp_path / "t") == later
        with pytest.raises(TableError, match="no partition 'day 3'"):
            later.replace_partitions({}, remove=["day 3"])
        added = later.append(built(log(4)), partition="day 2")
        assert added.read(["day 2"]) == built(corrected, log(4))


class TestWithSpark:
    def test_writes_merges_and_compacts(self, session: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "a [table] {x} of 100 %, *"
        table = SketchTable.create(path, RECIPE, ["path"], keep=1)
        with pytest.raises(TableError, match="no rows yet"):
            table.dataframe(session)
        for seed in (1, 2):
            table = table.append(session.createDataFrame(built(log(seed))))
        once = built(log(1), log(2))
        columns = once.column_names

        def rows_of(table: SketchTable) -> pa.Table:
            found = table.dataframe(session).select(*columns).toArrow().cast(once.schema)
            return found.sort_by("path")

        assert rows_of(table) == once
        assert table.stored(session).count() == 10
        for _ in range(2):
            table = table.append(built(log(1)), {"build": "b"})
        compact = table.compact(session, last=2, notes={"n": 1})
        assert [run.counts["rows"] for run in compact.content.runs] == [600, 600, 1_200]
        assert compact.content.notes == {"build": "b", "n": 1}
        compact = compact.compact(session)
        assert len(compact.content.runs) == 1
        assert compact.content.notes == {"build": "b", "n": 1}
        assert compact.read().column("sketch") == once.column("sketch")
        assert compact.compact(session) == compact
        assert sum(compact.read().column("rows").to_pylist()) == 2_400
        again = compact.append(session.createDataFrame(built(log(2))), applied=("q", 0))
        again = again.append(session.createDataFrame(built(log(2))), applied=("q", 0))
        assert again.counts["rows"] == 3_000

    def test_instants_keep_their_zone(self, session: SparkSession, tmp_path: Path) -> None:
        hours = [dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in range(5)]
        rows = built(log(1)).drop_columns(["path"])
        rows = rows.append_column("hour", pa.array(hours, pa.timestamp("us", "UTC")))
        table = SketchTable.write(tmp_path / "t", session.createDataFrame(rows), RECIPE, ["hour"])
        assert [each.key for each in table.sketches()] == [(hour,) for hour in hours]
        table = table.append(rows)
        assert [each.key for each in table.sketches()] == [(hour,) for hour in hours]
        assert table.dataframe(session).count() == 5
        assert table.stored(session).schema["hour"].dataType.simpleString() == "timestamp"
        rows = pl.read_delta(str(tmp_path / "t")).select("hour", "sketch").unique()
        assert rows.sort("hour").rows() == [(each.key[0], each.blob) for each in table.sketches()]
