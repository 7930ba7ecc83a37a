"""What ``decaysketch build`` takes for the name of a row, and what becomes of rows at fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.cli import app
from decaysketch.core.sizing import accuracy_of
from decaysketch.families import decode

SUCH = "'2026-01-31T12:00:00Z', or a time_format"
PARAMS = ds.SketchParams(time_unit="s")
COLUMNS = ("--id-columns", "meter,seq", "--time-column", "at")


def run(*arguments: Any, status: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result


def rows_of(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["meter,seq,at,value", *rows]) + "\n")
    return path


def sketch_of(*rows: tuple[Any, int, int, float]) -> ds.DecaySketch:
    meters, numbers, times, values = map(list, zip(*rows, strict=True))
    sketch = ds.DecaySketch(PARAMS)
    ids = ds.observation_ids(meters, numbers, params=PARAMS)
    sketch.update(values, 1, times, ids)
    return sketch


class TestTypesOfIds:
    """12 and "12" are two ids, and a file of CSV does not say which it has."""

    def test_one_log_of_two_types_is_refused_with_both(self, tmp_path: Path) -> None:
        first = rows_of(tmp_path / "a.csv", "12,1,100,2.0")
        second = rows_of(tmp_path / "b.csv", "12,1,100,2.0", "x7,1,100,3.0")
        out = tmp_path / "all.sketch"
        said = run("build", first, second, "--out", out, *COLUMNS, status=1).stderr
        assert f"{second}: column 'meter' holds text, and held integers before" in said
        assert "--text-columns meter" in said
        assert not out.exists()
        run("build", first, second, "--out", out, *COLUMNS, "--text-columns", "meter")
        expected = sketch_of(("12", 1, 100, 2.0), ("x7", 1, 100, 3.0))
        assert decode(out.read_bytes()) == expected

    def test_parquet_of_two_types(self, tmp_path: Path) -> None:
        paths = []
        for name, meters in (("a", [12]), ("b", ["12"])):
            table = pa.table({"meter": meters, "seq": [1], "at": [100], "value": [2.0]})
            paths.append(tmp_path / f"{name}.parquet")
            pyarrow.parquet.write_table(table, paths[-1])
        out = tmp_path / "all.sketch"
        said = run("build", *paths, "--out", out, *COLUMNS, status=1).stderr
        assert f"{paths[1]}: column 'meter' holds text, and held integers before" in said
        run("build", *paths, "--out", out, *COLUMNS, "--text-columns", "meter")
        assert decode(out.read_bytes()) == sketch_of(("12", 1, 100, 2.0))

    def test_what_is_not_how_its_integer_is_written(self, tmp_path: Path) -> None:
        path, out = rows_of(tmp_path / "a.csv", "7,1,100,2", "012,1,100,3"), tmp_path / "a.sketch"
        said = run("build", path, "--out", out, *COLUMNS).stderr
        assert "column 'meter' is read as integers, and '012' as 12; --text-columns meter" in said
        assert decode(out.read_bytes()) == sketch_of((7, 1, 100, 2.0), (12, 1, 100, 3.0))
        build = ("build", path, "--out", out, *COLUMNS, "--overwrite", "--text-columns", "meter")
        again = run(*build, "--json")
        assert again.stderr == ""
        assert json.loads(again.stdout)["columns"] == {"meter": "text", "seq": "integers"}
        assert decode(out.read_bytes()) == sketch_of(("7", 1, 100, 2.0), ("012", 1, 100, 3.0))

    def test_others_are_not_taken_as_text(self, tmp_path: Path) -> None:
        path, out = rows_of(tmp_path / "a.csv", "7,1,100,2"), tmp_path / "a.sketch"
        build = ("build", path, "--out", out, *COLUMNS, "--text-columns", "value")
        said = run(*build, status=1).stderr
        assert "--text-columns has 'value'; expected columns of ids or keys" in said
        assert said.strip().endswith("or keys: meter, seq")
        table = pa.table({"meter": [1.5], "seq": [1], "at": [100], "value": [2.0]})
        pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
        build = ("build", tmp_path / "b.parquet", "--out", out, *COLUMNS, "--text-columns", "meter")
        assert "column 'meter' is of type double" in run(*build, status=1).stderr


def test_an_id_that_lacks_a_column_is_said(tmp_path: Path) -> None:
    rows = [f"{n % 3},{n},{100 + n},{n % 7}" for n in range(300)]
    path, out = rows_of(tmp_path / "a.csv", *rows, *rows), tmp_path / "a.sketch"
    assert run("build", path, "--out", out, *COLUMNS).stderr == ""
    build = ("build", path, "--out", out, "--time-column", "at", "--overwrite")
    said = run(*build, "--id-columns", "meter").stderr
    assert f"warning: {path}: 300 different readings have 3 ids (of 'meter')" in said
    assert len(decode(out.read_bytes())) == 3
    by_key = run(*build, "--out", tmp_path / "by", "--id-columns", "seq", "--by", "meter")
    assert by_key.stderr == ""


class TestQuarantine:
    """One row that cannot be taken ends the build, or is kept with its reason."""

    ROWS = ("a,1,100,2.0", "a,,100,3.0", "a,2,,4.0", ",3,100,5.0", "a,4,101,6.0")

    def test_the_row_is_named_with_a_way_out(self, tmp_path: Path) -> None:
        path, out = rows_of(tmp_path / "a.csv", *self.ROWS), tmp_path / "a.sketch"
        said = run("build", path, "--out", out, *COLUMNS, status=1).stderr
        assert f"{path}: at[2] is missing; --quarantine FILE" in said
        assert not out.exists()

    def test_rows_are_kept_counted_and_the_others_taken(self, tmp_path: Path) -> None:
        paths = [rows_of(tmp_path / f"{name}.csv", *self.ROWS) for name in "ab"]
        out, kept = tmp_path / "a.sketch", tmp_path / "kept.ndjson"
        build = ("build", *paths, "--out", out, *COLUMNS, "--quarantine", kept)
        assert json.loads(run(*build, "--json").stdout)["refused"] == 6
        found = [json.loads(line) for line in kept.read_text().splitlines()]
        reasons = [(1, "seq", "is missing"), (2, "at", "is missing"), (3, "meter", "is missing")]
        assert [(row["place"], row["row"], row["column"], row["reason"]) for row in found] == [
            (str(path), *each) for path in paths for each in reasons
        ]
        assert found[0]["record"] == {"meter": "a", "seq": None, "at": "100", "value": "3.0"}
        assert decode(out.read_bytes()) == sketch_of(("a", 1, 100, 2.0), ("a", 4, 101, 6.0))
        out.unlink()
        assert f"{kept} exists" in run(*build, status=1).stderr

    @pytest.mark.parametrize("long", [False, True])
    def test_a_word_among_numbers_is_one_row(self, tmp_path: Path, long: bool) -> None:
        good = [f"a,{n},{100 + n},{n % 5}.5" for n in range(100_000 if long else 20)]
        path = tmp_path / "a.csv"
        bad = ["a,-1,100,broken", "a,-2,soon,1.5", "a,-3,100,inf", "a,-4", "a,-5,100,1,2"]
        rows_of(path, *good, *bad, "a,-6,300000,n/a", "a,-7,300001, +2 ")
        out, kept = tmp_path / "a.sketch", tmp_path / "kept.ndjson"
        build = ("build", path, "--out", out, *COLUMNS)
        if not long:
            said = run(*build, "--value-type", "float64", status=1).stderr
            assert "a row with 2 cells, and the heading has 4: a,-4" in said
        told = run(*build, "--quarantine", kept, "--json", "--any-time", "--value-type", "float64")
        assert json.loads(told.stdout)["refused"] == 5
        found = [json.loads(line) for line in kept.read_text().splitlines()]
        others = "does not have the fields of the heading"
        reasons = {(each["column"], each["reason"]) for each in found}
        assert reasons == {
            ("value", "is 'broken'; expected a number"),
            ("at", "is 'soon'; expected a time such as " + SUCH),
            ("value", "is 'inf'; expected a number"), (None, others),
        }  # fmt: skip
        assert [each["record"] for each in found if each["column"] is None] == bad[-2:]
        sound = [("a", n, 100 + n, n % 5 + 0.5) for n in range(len(good))]
        expected = sketch_of(*sound, ("a", -7, 300_001, 2.0))
        ids = ds.observation_ids(["a"], [-6], params=PARAMS)
        expected.update(None, 1, [300_000], ids)
        assert decode(out.read_bytes()) == expected

    def test_a_word_is_named_where_rows_are_not_kept(self, tmp_path: Path) -> None:
        path = rows_of(tmp_path / "a.csv", "a,1,100,2.0", "a,2,100,oops", "a,3,100,1.0")
        build = ("build", path, "--out", tmp_path / "x", *COLUMNS)
        for more in ((), ("--value-type", "float64")):
            said = run(*build, *more, status=1).stderr
            assert f"{path}: value[1] is 'oops'; expected a number; --quarantine FILE" in said

    def test_a_file_of_which_all_is_refused_is_said(self, tmp_path: Path) -> None:
        bad = rows_of(tmp_path / "a.csv", "a,1,soon,2.0", "a,2,late,2.0")
        good = rows_of(tmp_path / "b.csv", "a,1,100,2.0")
        build = ("build", bad, good, "--out", tmp_path / "x", *COLUMNS)
        said = run(*build, "--quarantine", tmp_path / "kept").stderr
        assert f"warning: {bad}: all of its rows were rejected, 2" in said

    def test_a_build_that_fails_leaves_the_quarantine_as_it_was(self, tmp_path: Path) -> None:
        good = rows_of(tmp_path / "a.csv", *self.ROWS)
        bad = tmp_path / "b.csv"
        bad.write_text("other\n1\n")
        kept = tmp_path / "kept.ndjson"
        kept.write_text("before\n")
        build = ("build", good, bad, "--out", tmp_path / "x", *COLUMNS, "--quarantine", kept)
        assert "no column" in run(*build, "--overwrite", status=1).stderr
        assert kept.read_text() == "before\n"
        assert sorted(each.name for each in tmp_path.iterdir()) == ["a.csv", "b.csv", "kept.ndjson"]


class TestShareOfDuplicates:
    """A log with few duplicates is served as well by a plain aggregate, and ``build`` says so."""

    @pytest.mark.parametrize(
        ("copies", "options", "share", "advised"),
        [
            (0, (), 0.0, False),  # nothing is discarded, so there is no error to compare
            (50, (), 0.0476, False),
            (50, ("--capacity", "100"), 0.0476, True),
            (5_000, ("--capacity", "100"), 0.8333, False),
        ],
    )
    def test_the_figures_of_the_log_decide(
        self, tmp_path: Path, copies: int, options: tuple[str, ...], share: float, advised: bool
    ) -> None:
        rows = [f"a,{n},{100 + n},{n % 5}" for n in range(1_000)]
        log = rows_of(tmp_path / "a.csv", *rows, *(rows * 5)[:copies])
        build = ("build", log, "--out", tmp_path / "x", *COLUMNS, *options)
        found = json.loads(run(*build, "--json").stdout)["duplicates"]
        points = (1 - found) * accuracy_of(100) if options else 1e-4
        assert abs(found - share) <= points
        said = " ".join(run(*build, "--overwrite").stdout.split())
        assert f"{100 * found:.1f} % of {len(rows) + copies:,} rows are duplicates" in said
        assert (f"within {100 * points:.1f} points" in said) == bool(options)
        assert ("a plain aggregate is as close" in said) == advised


class TestFolders:
    def test_every_file_of_a_folder_is_read(self, tmp_path: Path) -> None:
        day = tmp_path / "landing" / "2026-01"
        day.mkdir(parents=True)
        (day / "_SUCCESS").touch()
        (day / ".part.crc").touch()
        rows_of(day / "a.csv", "7,1,100,2")
        rows_of(day.parent / "b.csv", "7,2,100,3")
        out = tmp_path / "a.sketch"
        run("build", day.parent, "--out", out, *COLUMNS)
        assert decode(out.read_bytes()) == sketch_of((7, 1, 100, 2.0), (7, 2, 100, 3.0))

    def test_parts_of_a_path_that_have_a_name_are_columns(self, tmp_path: Path) -> None:
        landing, out = tmp_path / "landing", tmp_path / "a.sketch"
        for meter, name in ((7, "a.csv"), (8, "b.parquet")):
            folder = landing / f"meter={meter}" / "day=2026-01-31"
            folder.mkdir(parents=True)
            table = pa.table({"seq": [1], "at": [100], "value": [2.0]})
            if name.endswith("csv"):
                (folder / name).write_text("seq,at,value\n1,100,2.0\n")
            else:
                pyarrow.parquet.write_table(table, folder / name)
        run("build", landing, "--out", out, *COLUMNS)
        assert decode(out.read_bytes()) == sketch_of((7, 1, 100, 2.0), (8, 1, 100, 2.0))
        run("build", landing, "--out", tmp_path / "by", "--by", "day", *COLUMNS)
        assert (tmp_path / "by" / "2026-01-31.sketch").exists()

    def test_nothing_in_it_is_passed_over_in_silence(self, tmp_path: Path) -> None:
        landing, out = tmp_path / "landing", tmp_path / "a.sketch"
        landing.mkdir()
        assert f"no files in {landing}" in run("build", landing, "--out", out, status=1).stderr
        rows_of(landing / "a.csv", "7,1,100,2")
        (landing / "read.me").touch()
        said = run("build", landing, "--out", out, status=1).stderr
        assert f"{landing / 'read.me'} has no known suffix" in said

    def test_a_folder_is_not_asked(self, tmp_path: Path) -> None:
        said = run("query", tmp_path, "sum", status=1).stderr
        assert f"{tmp_path} is a folder; name a sketch in it, or merge them first" in said


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("p95",), "did you mean 'quantile(0.95)'?"),
        (("quantile(0.95, v)",), "did you mean 'quantile(v, 0.95)'?"),
        (("avg",), "did you mean 'mean'?"),
        (("max",), "max needs a sketch built with --family extremes"),
        (("mean", "--now", "now"), "latest is the newest stored time"),
    ],
)
def test_what_was_meant_is_said(tmp_path: Path, asked: tuple[str, ...], said: str) -> None:
    out = tmp_path / "a.sketch"
    out.write_bytes(sketch_of((7, 1, 100, 2.0)).to_bytes())
    assert said in run("query", out, *asked, status=1).stderr
