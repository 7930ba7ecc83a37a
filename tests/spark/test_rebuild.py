"""Rebuilds replace what has changed and nothing else; a job that is killed costs nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import typer
from delivery_logs import delivery_log
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.cli.output import CommandError
from decaysketch.families import Recipe, recipe_of
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import ColumnMapping, sketches_by_key
from spark_jobs import rebuild as program
from spark_jobs.pipeline import build, rebuild
from spark_jobs.spec import BuildSpec, time_in_units

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value",
    time_unit="us",
)  # fmt: skip
PARAMS = ds.SketchParams(max_weight=1, id_bits=48, capacity=100, seed=9, time_unit="us")
RECIPE = recipe_of(PARAMS)


def blobs(table: SketchTable) -> dict[tuple[Any, ...], bytes]:
    return {sketch.key: sketch.blob for sketch in table.sketches()}


def expected(*parts: pa.Table, recipe: Recipe = RECIPE) -> dict[tuple[Any, ...], bytes]:
    log = pa.concat_tables(parts)
    mapping = dataclasses.replace(MAPPING, source="source", sequence="msg")
    if recipe.family in ("sum", "median"):
        mapping = dataclasses.replace(mapping, value="weight", ids=())
    found = sketches_by_key(log, recipe, mapping, ["path"])
    return {key: sketch.to_bytes() for key, sketch in found.items()}


def spec_of(log: Path, **options: Any) -> BuildSpec:
    return BuildSpec(log=str(log), mapping=MAPPING, by=("path",), apart=True, **options)


@pytest.fixture
def parts() -> dict[str, pa.Table]:
    log = delivery_log(1_500)
    return {"a": log[:600], "b": log[500:1_000], "c": log[1_000:]}


def write(folder: Path, **parts: pa.Table) -> Path:
    folder.mkdir(exist_ok=True)
    for name, part in parts.items():
        pq.write_table(part, folder / f"{name}.parquet")
    return folder


class TestRebuild:
    def test_only_what_changed_is_built_again(
        self, session: SparkSession, tmp_path: Path, parts: dict[str, pa.Table]
    ) -> None:
        log = write(tmp_path / "log", **parts)
        table = build(session, spec_of(log), tmp_path / "out", RECIPE)
        assert blobs(table) == expected(*parts.values())
        same = rebuild(session, table)
        assert (same.done, same.kept, same.table.version) == ({}, 3, table.version)

        runs = {label: partition.runs for label, partition in table.partitions.items()}
        fewer = parts["b"].filter(pc.not_equal(parts["b"]["source"], 7))  # a correction
        write(log, b=fewer, d=parts["a"].slice(0, 50))
        (log / "c.parquet").unlink()
        (log / "_notes").write_text("no part of the log")
        changed = rebuild(session, SketchTable.open(tmp_path / "out"))
        assert {label: what for label, (what, _) in changed.done.items()} == {
            "b.parquet": "changed", "c.parquet": "removed", "d.parquet": "added"
        }  # fmt: skip
        assert " B, were " in changed.done["b.parquet"][1]
        assert changed.kept == 1
        assert blobs(changed.table) == expected(parts["a"], fewer, parts["a"].slice(0, 50))
        assert changed.table.partitions["a.parquet"].runs == runs["a.parquet"]
        assert changed.table.summary["rows"] == 600 + len(fewer) + 50
        assert set(changed.table.summary["parts"]) == {f"{name}.parquet" for name in "abd"}

        everything = rebuild(session, changed.table, everything=True)
        assert {what for what, _ in everything.done.values()} == {"asked for"}
        assert blobs(everything.table) == blobs(changed.table)
        assert everything.table.partitions["a.parquet"].runs != runs["a.parquet"]

    def test_folders_that_carry_a_column(
        self, session: SparkSession, tmp_path: Path, parts: dict[str, pa.Table]
    ) -> None:
        log = tmp_path / "an odd [log] of {a} day, 100%"
        for path in (0, 1):
            only = parts["a"].filter(pc.equal(parts["a"]["path"], path)).drop_columns("path")
            (log / f"path={path}" / "more").mkdir(parents=True)
            pq.write_table(only, log / f"path={path}" / "more" / "x.parquet")
        table = build(session, spec_of(log), tmp_path / "out", RECIPE)
        want = expected(parts["a"])
        assert blobs(table) == {(path,): want[(path,)] for path in (0, 1)}
        only = parts["a"].filter(pc.equal(parts["a"]["path"], 4)).drop_columns("path")
        (log / "path=4").mkdir()
        pq.write_table(only, log / "path=4" / "x.parquet")
        changed = rebuild(session, table)
        assert changed.done == {"path=4": ("added", changed.done["path=4"][1])}
        assert blobs(changed.table) == {(path,): want[(path,)] for path in (0, 1, 4)}

    def test_a_table_of_a_whole_log_and_text_by_content(
        self, session: SparkSession, tmp_path: Path, parts: dict[str, pa.Table]
    ) -> None:
        import pyarrow.csv as pa_csv

        log = tmp_path / "log.csv"
        pa_csv.write_csv(parts["a"], log)
        spec = dataclasses.replace(spec_of(log, fingerprint="content"), apart=False)
        table = build(session, spec, tmp_path / "out", RECIPE)
        os.utime(log, (1, 1))
        assert rebuild(session, table).done == {}
        pa_csv.write_csv(parts["b"], log)
        changed = rebuild(session, table)
        assert changed.done[""][0] == "changed"
        assert blobs(changed.table) == expected(parts["b"])

    @pytest.mark.parametrize(
        "recipe",
        [
            recipe_of(PARAMS, ds.decay.integral.exponential(half_life=60_000_000)),
            recipe_of(SumParams(max_sum=10_000, capacity=50, time_unit="us")),
            recipe_of(MedianParams(max_count=1_000, capacity=50, time_unit="us")),
        ],
        ids=lambda recipe: recipe.family,
    )
    def test_other_families(
        self, session: SparkSession, tmp_path: Path, parts: dict[str, pa.Table],
        recipe: Recipe,
    ) -> None:  # fmt: skip
        log = write(tmp_path / "log", a=parts["a"], b=parts["b"])
        spec = spec_of(log)
        if recipe.family in ("sum", "median"):
            mapping = dataclasses.replace(
                MAPPING, ids=(), source="source", sequence="msg", value="weight"
            )
            spec = dataclasses.replace(spec, mapping=mapping)
        table = build(session, spec, tmp_path / "out", recipe)
        write(log, b=parts["c"])
        changed = rebuild(session, table)
        assert blobs(changed.table) == expected(parts["a"], parts["c"], recipe=recipe)

    def test_the_quarantine_follows(
        self, session: SparkSession, tmp_path: Path, parts: dict[str, pa.Table]
    ) -> None:
        def spoiled(part: pa.Table, row: int) -> pa.Table:
            values = part["value"].to_pylist()
            values[row] = float("nan")
            return part.set_column(5, "value", pa.array(values, pa.float64()))

        log = write(tmp_path / "log", a=spoiled(parts["a"], 5), b=spoiled(parts["b"], 6))
        aside = tmp_path / "aside"
        table = build(session, spec_of(log, quarantine=str(aside)), tmp_path / "out", RECIPE)

        def places() -> set[tuple[str, int]]:
            rows = pq.read_table(aside).to_pylist()
            return {(row["partition"], row["row"]) for row in rows}

        assert places() == {("a.parquet", 5), ("b.parquet", 6)}
        write(log, b=spoiled(parts["b"], 9), c=parts["c"])
        table = rebuild(session, table).table
        assert places() == {("a.parquet", 5), ("b.parquet", 9)}
        assert table.summary["refused"] == 2
        (log / "a.parquet").unlink()
        rebuild(session, table)
        assert places() == {("b.parquet", 9)}

    def test_a_table_of_another_program_is_refused(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        table = SketchTable.create(tmp_path / "t", RECIPE)
        with pytest.raises(CommandError, match="does not name its log"):
            rebuild(session, table)


@pytest.mark.usefixtures("shared_session")
def test_the_program_reports(
    session: SparkSession, tmp_path: Path, parts: dict[str, pa.Table]
) -> None:
    app = typer.Typer()
    app.command()(program.main)

    def run(*arguments: object) -> Any:
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == 0, result.stderr
        return result

    log = write(tmp_path / "log", a=parts["a"])
    build(session, spec_of(log), tmp_path / "out", RECIPE)
    write(log, b=parts["b"])
    told = json.loads(run(tmp_path / "out", "--json").stdout)
    assert told["done"]["b.parquet"]["what"] == "added"
    assert (told["kept"], told["rows"]) == (1, 1_100)
    assert "0 inputs done, 2 unchanged" in " ".join(run(tmp_path / "out").stderr.split())
    assert "as all are" in run(tmp_path / "out", "--all").stderr


@pytest.mark.parametrize(
    ("text", "unit", "time"),
    [
        ("17", "us", 17),
        ("1970-01-02", "d", 1),
        ("1970-01-01T01:00", "us", 3_600_000_000),
        ("1970-01-01T01:00+01:00", "s", 0),
        ("1969-12-31", "h", -24),
        ("2026-01-31T06:00:00.000001", "ns", 1_769_839_200_000_001_000),
    ],
)
def test_times_may_be_dates(text: str, unit: str, time: int) -> None:
    assert time_in_units("--since", text, unit) == time


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("soon", "us", "expected an integer, or a date"),
        ("1970-01-01T01:00", "d", "not an integer of 'd'"),
        ("1970-01-01", "beat", "'beat' has no calendar"),
    ],
)
def test_times_that_are_none(text: str, unit: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        time_in_units("--since", text, unit)


def test_a_spec_survives_json() -> None:
    spec = BuildSpec(
        log="/log", mapping=MAPPING, by=("path", "day"), since=5, where="a = 1", schema="a INT"
    )
    assert BuildSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.spark
def test_a_build_that_is_killed_leaves_what_was_there_and_runs_again(
    session: SparkSession, tmp_path: Path, parts: dict[str, pa.Table]
) -> None:
    """``kill -9`` of the driver and of everything that it started, between two parts of a log."""
    log, out = write(tmp_path / "log", **parts), tmp_path / "out"
    before = build(session, spec_of(log), out, RECIPE)
    write(log, c=parts["a"])
    process = subprocess.Popen(
        [
            sys.executable, "-m", "spark_jobs.build", log, "--out", out, "--by", "path",
            "--capacity", "100", "--seed", "9", "--apart", "--overwrite",
        ],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip

    def next_version() -> list[Path]:
        found = (out / "data").glob(f"{before.version + 1:010d}-*")
        return [folder for folder in found if (folder / "_SUCCESS").exists()]

    deadline = time.monotonic() + 1800
    while not next_version():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    after, unfinished = SketchTable.open(out), next_version()
    assert after.version == before.version
    assert 1 <= len(unfinished) < len(parts)
    assert blobs(after) == expected(*parts.values())
    again = build(session, spec_of(log), out, RECIPE, overwrite=True)
    assert blobs(again) == expected(parts["a"], parts["b"], parts["a"])
    assert not any(folder.exists() for folder in unfinished)
