"""The program, as a person runs it: files in, files and answers out, one line where it fails."""

from __future__ import annotations

import dataclasses
import gzip
import inspect
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from client.faults import Aggregator
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.cli import app
from decaysketch.cli.build import build, file_name
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.families import FAMILIES, decode, recipe_of
from decaysketch.tables import ColumnMapping, sketches_by_key
from quality.ports import free_port

PARAMS = ds.SketchParams(max_weight=9, id_bits=40, capacity=100, seed=5, time_unit="s")
OPTIONS = [
    "--max-weight", "9", "--id-bits", "40", "--capacity", "100", "--seed", "5", "--weight-column",
    "weight",
]  # fmt: skip
MAPPING = ColumnMapping(time="time", ids=("id",), value="value", weight="weight")


def log(rows: int = 1000) -> pa.Table:
    """Readings, some of them several times."""
    draw = np.random.default_rng(1)
    copies = draw.integers(0, rows, rows)
    return pa.table(
        {
            "time": draw.integers(0, 5_000, rows),
            "id": [f"m-{k}" for k in range(rows)],
            "value": np.round(draw.normal(20, 5, rows), 1),
            "weight": draw.integers(1, 10, rows),
            "path": [("north", "south", "a/b.c")[k] for k in draw.integers(0, 3, rows)],
            "source": [f"t-{k}" for k in draw.integers(0, 3, rows)],
            "sequence": draw.integers(0, 500, rows),
        }
    ).take(copies)


def write(table: pa.Table, path: Path) -> Path:
    suffixes = path.suffixes
    if suffixes[0] == ".parquet":
        pq.write_table(table, path, row_group_size=300)
    elif suffixes[0] == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif suffixes[0] == ".arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, 300)
    elif suffixes[0] == ".arrows":
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, 300)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
        path.write_bytes(gzip.compress(lines) if suffixes[-1] == ".gz" else lines)
    return path


def run(*arguments: Any, status: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result


def run_json(*arguments: Any) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def failure(*arguments: Any) -> str:
    """The one line of a failure."""
    line = run(*arguments, status=1).stderr
    assert line.startswith("error: ")
    assert line.count("\n") == 1
    return str(line).strip()


@pytest.fixture
def built(tmp_path: Path) -> Path:
    out = tmp_path / "all.sketch"
    run("build", write(log(), tmp_path / "log.parquet"), "--out", out, *OPTIONS)
    return out


# -------------------------------------------------------------------------------------------- build


@pytest.mark.parametrize(
    "name", ["log.parquet", "log.csv", "log.ndjson", "log.jsonl.gz", "log.arrow", "log.arrows"]
)
def test_every_format_gives_the_same_sketch(tmp_path: Path, name: str) -> None:
    out = tmp_path / "all.sketch"
    result = run_json("build", write(log(), tmp_path / name), "--out", out, *OPTIONS)
    [expected] = sketches_by_key(log(), PARAMS, MAPPING).values()
    assert out.read_bytes() == expected.to_bytes()
    [written] = result["sketches"]
    assert written == {
        "key": [], "file": str(out), "rows": 1000, "held": len(expected),
        "bytes": len(out.read_bytes()), "digest": expected.digest(),
    }  # fmt: skip


def dates(scale: int) -> pa.Table:
    """A log of the fourteenth of November 2023, in 1 / scale seconds."""
    times = (1_700_000_000 + np.arange(100)) * scale
    ids = pa.array([f"m-{k}" for k in range(100)])
    return log(100).set_column(0, "event_us", pa.array(times)).set_column(1, "id", ids)


def test_times_of_another_unit_are_warned_of_wherever_they_are_met(tmp_path: Path) -> None:
    source, out = write(dates(10**6), tmp_path / "log.parquet"), tmp_path / "a.sketch"
    building = ("build", source, "--out", out, "--time-column", "event_us", *OPTIONS)
    refused = failure(*building)
    assert "in us it would be 2023-11-14" in refused
    assert "give the unit with --column-unit, or accept them with --any-time" in refused
    assert not out.exists()
    result = run(*building, "--any-time")
    assert result.stderr.count("warning:") == 1
    assert "in us it would be 2023-11-14" in result.stderr
    for command in (("inspect", out), ("merge", out, "--out", tmp_path / "b.sketch")):
        result = run(*command)
        assert "contains times that are probably not in s" in result.stderr
    result = run("query", out, "count", "--decay", "window(60)", "--now", 1_700_000_099)
    assert "the sketch contains times that are probably not in s" in result.stderr


def test_questions_of_another_unit_are_warned_of(tmp_path: Path) -> None:
    source, out = write(dates(1), tmp_path / "log.parquet"), tmp_path / "a.sketch"
    result = run("build", source, "--out", out, "--time-column", "event_us", *OPTIONS)
    assert "warning" not in result.stderr  # whatever the name says: they are dates in seconds
    assert "2023-11-14 22:13:20 UTC" in run("inspect", out).stdout
    asked = ("query", out, "count", "--decay", "window(60)")
    result = run(*asked)
    assert "warning" not in result.stderr
    assert "2023-11-14" in result.stdout
    result = run(*asked, "--now", 1_700_000_099_000, "--json")
    assert "now is probably not in s" in result.stderr
    said = json.loads(result.stdout)
    [warning] = said["warnings"]
    assert "in ms it would be 2023-11-14" in warning
    assert said["now_date"] is None


def test_columns_whose_names_say_another_unit_are_warned_of(tmp_path: Path) -> None:
    table = log().rename_columns(["event_ms", *log().column_names[1:]])
    source, out = write(table, tmp_path / "log.csv"), tmp_path / "a.sketch"
    asked = ("build", source, "--out", out, "--time-column", "event_ms", *OPTIONS)
    assert "the column's name ends like one in ms" in run(*asked).stderr
    result = run(*asked, "--overwrite", "--column-unit", "ms")
    assert "warning" not in result.stderr


def test_every_parameter_of_every_family_is_an_option(tmp_path: Path) -> None:
    options = inspect.signature(build).parameters
    for family in FAMILIES.values():
        assert {option.name for option in family.options} <= options.keys()
    source, out = write(log(50), tmp_path / "log.parquet"), tmp_path / "a.sketch"
    run("build", source, "--out", out, *OPTIONS, "--copies", "3", "--id-mix", "keyed")
    assert decode(out.read_bytes()).params == dataclasses.replace(PARAMS, copies=3)


def test_several_files_and_copies_of_them_give_the_same_sketch(tmp_path: Path, built: Path) -> None:
    parts = [
        write(log()[:700], tmp_path / "a.csv"), write(log()[300:], tmp_path / "b.parquet")
    ]  # fmt: skip
    out = tmp_path / "again.sketch"
    run("build", *parts, parts[0], "--out", out, *OPTIONS)
    assert out.read_bytes() == built.read_bytes()


def test_one_sketch_for_each_key(tmp_path: Path, built: Path) -> None:
    out = tmp_path / "by"
    arguments = ("build", tmp_path / "log.parquet", "--out", out, "--by", "path", *OPTIONS)
    assert "north" in run(*arguments).stdout
    expected = sketches_by_key(log(), PARAMS, MAPPING, ["path"])
    index = json.loads((out / "index.json").read_text())
    found = {tuple(each["key"]): Path(each["file"]).read_bytes() for each in index["sketches"]}
    assert found == {key: sketch.to_bytes() for key, sketch in expected.items()}
    assert (out / "a%2Fb%2Ec.sketch").exists()
    assert "exists" in failure(*arguments)
    merged = tmp_path / "merged.sketch"
    assert run_json("merge", out, "--out", merged)["merged"] == 3
    assert merged.read_bytes() == built.read_bytes()
    run(*arguments, "--overwrite")


def test_overwriting_leaves_what_others_wrote(tmp_path: Path) -> None:
    out = tmp_path / "by"
    run("build", write(log(), tmp_path / "a.csv"), "--out", out, "--by", "path", *OPTIONS)
    (out / "mine.sketch").write_bytes(b"mine")
    few = log().filter(pa.compute.equal(log()["path"], "north"))
    again = ("build", write(few, tmp_path / "b.csv"), "--out", out, "--by", "path", *OPTIONS)
    run(*again, "--overwrite")
    assert sorted(path.name for path in out.iterdir()) == [
        "index.json", "mine.sketch", "north.sketch"
    ]  # fmt: skip
    (out / "report.csv").write_bytes(b"mine")
    (out / "index.json").write_text(json.dumps({"sketches": [{"file": "report.csv"}]}))
    run(*again, "--overwrite")
    assert (out / "report.csv").read_bytes() == b"mine"


def test_a_uri_is_not_taken_for_a_folder(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    where = ("--out", "s3://bucket/x")
    for command in (("build", "log.parquet", "--by", "path", *OPTIONS), ("merge", built)):
        assert "s3:/bucket/x is a URI" in failure(*command, *where)
    assert sorted(tmp_path.iterdir()) == before


def test_overwriting_that_fails_leaves_what_was_there(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write_bytes = built.read_bytes(), Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        write_bytes(path, content[:10])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", half)
    log_file = built.with_name("log.parquet")
    for command in (("build", log_file, *OPTIONS), ("merge", built)):
        assert "no space left" in failure(*command, "--out", built, "--overwrite")
    assert built.read_bytes() == before
    assert sorted(path.name for path in built.parent.iterdir()) == ["all.sketch", "log.parquet"]


def test_file_names_tell_keys_apart() -> None:
    keys = [("a,b",), ("a", "b"), (None,), ("",), ("%null",), (".",), ("..",), (1,), (b"\1",)]
    names = [file_name(key) for key in keys]
    assert len(set(names)) == len(keys)
    assert all("/" not in name and not name.startswith(".") for name in names)
    assert len(file_name(("x" * 1000,))) < 100


def test_parameters_from_a_file(tmp_path: Path, built: Path) -> None:
    for content in (PARAMS.to_dict(), recipe_of(PARAMS).to_dict()):
        params, out = tmp_path / "params.json", tmp_path / "other.sketch"
        params.write_text(json.dumps(content))
        run(
            "build", tmp_path / "log.parquet", "--out", out, "--params", params,
            "--weight-column", "weight", "--overwrite",
        )  # fmt: skip
        assert out.read_bytes() == built.read_bytes()


def test_a_file_of_parameters_is_not_contradicted(tmp_path: Path) -> None:
    path, params = write(log(50), tmp_path / "log.csv"), tmp_path / "params.json"
    recipe = recipe_of(PARAMS, ds.decay.integral.window(900))
    params.write_text(json.dumps(recipe.to_dict()))
    asked = ("build", path, "--out", tmp_path / "x.sketch", "--params", params)
    for options, message in {
        ("--seed", 5): "--seed cannot be combined with --params",
        ("--family", "sum"): "--family is 'sum'; {params} is of family 'integral'",
        ("--decay", '{"kind": "none"}'): "--decay does not apply: {params} has the decay",
    }.items():
        assert message.format(params=params) in failure(*asked, *options)
    decay = tmp_path / "decay.json"
    decay.write_text(json.dumps(recipe.to_dict()["decay"]))
    params.write_text(json.dumps({"params": PARAMS.to_dict()}))
    assert "--decay does not apply to the family decay" in failure(*asked, "--decay", decay)
    params.write_text(json.dumps(PARAMS.to_dict()))
    run(*asked, "--family", "integral", "--decay", decay, "--weight-column", "weight")
    [expected] = sketches_by_key(log(50), recipe, MAPPING).values()
    assert (tmp_path / "x.sketch").read_bytes() == expected.to_bytes()


def test_other_families(tmp_path: Path) -> None:
    path, out = write(log(), tmp_path / "log.parquet"), tmp_path / "x.sketch"
    fixed = "window(15min)"
    run(
        "build",
        path,
        "--out",
        out,
        *OPTIONS,
        "--family",
        "integral",
        "--decay",
        fixed,
        "--now",
        4800,
    )
    recipe = recipe_of(PARAMS, ds.decay.integral.window(900))
    [expected] = sketches_by_key(log(), recipe, MAPPING, now=4800).values()
    assert out.read_bytes() == expected.to_bytes()
    assert run_json("query", out, "sum")["answers"][0]["decay"] == "its own"
    assert "so --from and --to do not apply" in failure("query", out, "sum", "--from", 1, "--to", 5)
    assert "only sketches with a decay per query" in failure("query", out, "sum", "--versus-ago", 5)
    elements = ColumnMapping(time="time", source="source", sequence="sequence", value="value")
    run(
        "build", path, "--out", out, "--family", "median", "--max-count", 10**6,
        "--max-window", 5000, "--capacity", 100, "--overwrite",
    )  # fmt: skip
    median = MedianParams(max_count=10**6, max_window=5000, capacity=100)
    [sampler] = sketches_by_key(log(), median, elements).values()
    assert out.read_bytes() == sampler.to_bytes()
    [answer] = run_json("query", out, "median", "--decay", "window(15min)", "--now", 4900)[
        "answers"
    ]
    truth = sampler.quantile(0.5, ds.decay.window(900), now=4900)
    assert answer["value"] == truth.value
    run(
        "build", path, "--out", out, "--family", "sum", "--max-sum", 10**6, "--max-window", 5000,
        "--capacity", 100, "--value-column", "weight", "--overwrite",
    )  # fmt: skip
    facts = run_json("inspect", out)[0]
    assert facts["family"] == "sum"
    assert facts["params"] == SumParams(max_sum=10**6, max_window=5000, capacity=100).to_dict()
    assert "expected one of sum, count, rate, " in failure("query", out, "mean")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--id-columns", "nothing"], "log.csv has no column 'nothing'; it has time, id, value"),
        (["--format", "parquet"], "log.csv cannot be read as parquet"),
        (["--format", "xml"], "--format is 'xml'; expected one of parquet, csv, ndjson, arrow"),
        (["--max-sum", "5"], "--max-sum does not apply to the family decay"),
        (["--family", "x"], "--family is 'x'; expected one of decay, integral, sum, median"),
        (["--family", "median"], "capacity is missing"),
        (["--max-weight", "5"], "weight[0] is 9; expected 0 to 5 (max_weight)"),
        (["--decay", "none"], "--decay does not apply to the family decay"),
        (["--family", "integral", "--decay", "{"], "decay '{' is not JSON"),
        (["--family", "integral", "--decay", "no.json"], "'no.json'; expected a decay, or a file"),
        (["--family", "integral", "--decay", "w+" * 300], "characters; expected at most 500"),
        (["--family", "integral", "--decay", "window(5 parsec)"], "'parsec' at character 9"),
        (["--capacity", "0"], "capacity is 0"),
        (["--from-server", "http://127.0.0.1:1", "s"], "--from-server gives all parameters"),
    ],
)
def test_build_refuses_in_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    table = log(50).set_column(3, "weight", pa.array([9] * 50))
    path, out = write(table, tmp_path / "log.csv"), tmp_path / "x.sketch"
    base = [] if "median" in options else ["--max-weight", "9", "--weight-column", "weight"]
    assert message in failure("build", path, "--out", out, *base, *options)
    assert not out.exists()


def test_build_refuses_a_file_that_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("?")
    assert "has no known suffix" in failure("build", tmp_path / "log", "--out", tmp_path / "x")
    assert "No such file" in failure("build", tmp_path / "no.csv", "--out", tmp_path / "x")
    (tmp_path / "bad.parquet").write_text("?")
    assert "cannot be read as parquet" in failure(
        "build", tmp_path / "bad.parquet", "--out", tmp_path / "x"
    )


# ------------------------------------------------------------------------- query, inspect and merge


def test_several_questions_are_answered_in_order_and_by_name(built: Path) -> None:
    sketch = ds.DecaySketch.from_bytes(built.read_bytes())
    decay, now = ds.decay.exponential(half_life=3600), 4_800
    answers = run_json(
        "query", built, "mean", "quantile:0.5,0.9", "rank:20", "selectivity:v > 20 and w >= 2",
        "--decay", "exponential(half_life=1h)", "--now", now, "--confidence", 0.9,
    )["answers"]  # fmt: skip
    assert [each["aggregate"] for each in answers] == [
        "mean", "quantile 0.5", "quantile 0.9", "rank:20", "selectivity:v > 20 and w >= 2"
    ]  # fmt: skip
    assert answers[0]["upper"] == sketch.mean(decay, now=now, confidence=0.9).upper


def test_query_under_several_decays(built: Path) -> None:
    sketch = ds.DecaySketch.from_bytes(built.read_bytes())
    given = ["none", "window(1min)", '{"kind": "polynomial", "exponent": 1.5, "scale": 60}']
    arguments = [part for text in given for part in ("--decay", text)]
    result = run_json("query", built, "count", *arguments, "--decay-expression", "1/(1 + x/60)")
    newest = sketch.stats().newest
    assert result["now"] == newest
    decays = [
        ds.decay.none(), ds.decay.window(60), ds.decay.polynomial(1.5, scale=60),
        ds.decay.expression("1/(1 + x/60)"),
    ]  # fmt: skip
    assert [each["value"] for each in result["answers"]] == [
        sketch.count(decay, now=newest).value for decay in decays
    ]
    assert [each["decay"] for each in result["answers"]] == [*given, "1/(1 + x/60)"]


def test_the_old_spelling_of_a_decay_is_read_with_a_warning(built: Path) -> None:
    old, new = "polynomial:exponent=1,scale=60", "polynomial(exponent=1,scale=60)"
    result = run("query", built, "count", "--decay", old, "--json")
    assert result.stderr.count("old form") == 1
    assert new in result.stderr
    [answer] = json.loads(result.stdout)["answers"]
    again = run("query", built, "count", "--decay", new, "--json")
    assert "warning" not in again.stderr
    assert json.loads(again.stdout)["answers"] == [answer | {"decay": new}]


def test_query_by_value(built: Path) -> None:
    sketch = ds.DecaySketch.from_bytes(built.read_bytes())
    now = sketch.stats().newest
    answers = run_json("query", built, "heavy_hitters:0.02", "group_by")["answers"]
    hitters = sketch.heavy_hitters(0.02, ds.decay.none(), now=now)
    groups = sketch.group_by(ds.decay.none(), now=now)
    assert len(groups) > 20
    assert [each["value_of"] for each in answers] == [h.value for h in hitters] + [
        g.value for g in groups for _ in range(2)
    ]
    assert answers[-1]["value"] == groups[-1].count.value
    table = run("query", built, "group_by").stdout
    assert f"{2 * len(groups) - 40:,} more rows" in " ".join(table.split())
    assert len(re.findall(r"│ (?:sum|count) of ", table)) == 40


def test_query_as_a_table_marks_what_is_exact(built: Path) -> None:
    lines = run("query", built, "count", "--decay", "window(5)").stdout.splitlines()
    [row] = [line for line in lines if line.startswith("│ count")]
    assert "yes" in row
    assert any("95 % intervals" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mode"], "aggregate is 'mode'; expected one of sum, count"),
        (["sum:3"], "it takes no argument, not '3'"),
        (["quantile"], "it takes q after a colon, as in quantile:0.1,0.5,0.9"),
        (["rank:x"], "aggregate 'rank:x': could not convert string to float"),
        (["selectivity:__import__('os')"], "aggregate"),
        (
            ["sum", "--now", "noon"],
            "--now is 'noon'; expected an integer of the stream's unit, or a moment",
        ),
        (["sum", "--decay", "window(60"], "the decay has its end at character 9"),
        (["sum", "--decay", "window:width=x"], "'x' at character 13; expected a number"),
        (["sum", "--decay", "rot:rate=1"], "decay 'rot(rate=1)' is none of window, exponential"),
        (["sum", "--decay-expression", "x"], "x"),
        (["sum", "--confidence", "2"], "confidence is 2"),
    ],
)
def test_query_refuses_in_one_line(built: Path, arguments: list[str], message: str) -> None:
    assert message in failure("query", built, *arguments)


def test_a_range_is_asked_about_as_the_library_does(built: Path) -> None:
    sketch = ds.DecaySketch.from_bytes(built.read_bytes())
    of = sketch.between(1_000, 2_500)
    ends = ("--from", "1000", "--to", "1970-01-01T00:41:40Z")
    found = run_json("query", built, "rate", "mean", "quantile:0.5", *ends)
    want = [of.rate(), of.mean(), of.quantile(0.5)]
    assert [each["upper"] for each in found["answers"]] == [each.upper for each in want]
    assert (found["from"], found["to"], found["now"]) == (1_000, 2_500, 2_499)
    table = run("query", built, "count", *ends).stdout
    assert "from 1000 s, before 2500 s" in table


def test_two_moments_are_compared_as_the_library_does(built: Path) -> None:
    sketch = ds.DecaySketch.from_bytes(built.read_bytes())
    asked = ("query", built, "mean", "rank:20", "--decay", "window(10min)", "--now", 4_800)
    found = run_json(*asked, "--versus-ago", "20min")
    moments = {"now": ("window(600)", 4_800), "then": ("window(600)", 3_600)}
    want = [sketch.compare("mean", **moments), sketch.compare("rank", value=20, **moments)]
    assert [(each["value"], each["upper"], each["changed"]) for each in found["answers"]] == [
        (each.value, each.upper, each.changed) for each in want
    ]
    assert found["versus"] == {"now": 3_600, "now_date": None}
    assert found["how"] == "difference"
    other = ("--versus-now", 3_600, "--versus-decay", "window(2min)", "--how", "ratio")
    [ratio] = run_json(*asked[:2], "count", *asked[4:], *other)["answers"]
    then = ("window(120)", 3_600)
    assert (
        ratio["value"] == sketch.compare("count", now=moments["now"], then=then, how="ratio").value
    )
    table = " ".join(run(*asked[:2], "count", *asked[4:], *other).stdout.split())
    assert "changed" in table
    assert "4800 s over that of 3600 s under window(2min)" in table
    assert "│ yes" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["median", "--versus-ago", "1h"], "Compare the rank of a fixed value"),
        (["sum", "--versus-ago", "5", "--how", "times"], "how is 'times'; expected one of"),
        (["sum", "--versus-ago", "-5"], "--versus-ago is '-5'; expected a length of time"),
        (["sum", "--versus-ago", "1ms"], "--versus-ago is '1ms'; expected a length of time"),
        (["sum", "--versus-ago", "soon"], "--versus-ago is 'soon'; expected a length of time"),
        (["sum", "--versus-now", "soon"], "--versus-now is 'soon'; expected an integer"),
        (["sum", "--versus-ago", "5", "--versus-now", "5"], "give one of --versus-now and"),
        (["sum", "--versus-decay", "none"], "give one of --versus-now and --versus-ago"),
        (["sum", "--how", "ratio"], "give one of --versus-now and --versus-ago"),
        (["sum", "--from", "5"], "give --to as well"),
        (["sum", "--to", "5"], "give --from as well"),
        (["sum", "--from", "6", "--to", "6"], "range is [6, 6); expected an end after"),
        (["sum", "--from", "1", "--to", "6", "--now", "7"], "give no decay, no time"),
        (["sum", "--from", "1", "--to", "6", "--decay", "none"], "give no decay, no time"),
        (["sum", "--from", "1", "--to", "6", "--versus-ago", "1"], "give no decay, no time"),
    ],
)
def test_moments_are_refused_in_one_line(built: Path, arguments: list[str], message: str) -> None:
    assert message in failure("query", built, *arguments)


def test_query_of_nothing_needs_a_time(tmp_path: Path) -> None:
    empty = tmp_path / "empty.sketch"
    empty.write_bytes(ds.DecaySketch(PARAMS).to_bytes())
    assert "is empty" in failure("query", empty, "count")
    [answer] = run_json("query", empty, "count", "mean", "--now", 5)["answers"][:1]
    assert answer["value"] == 0


def test_inspect(built: Path) -> None:
    sketch = ds.DecaySketch.from_bytes(built.read_bytes())
    [facts] = run_json("inspect", built)
    stats, size = sketch.stats(), built.stat().st_size
    assert facts == {
        "file": str(built), "family": "decay", "params": PARAMS.to_dict(),
        "fingerprint": PARAMS.fingerprint.hex(), "rows": stats.rows,
        "levels": len(stats.complete_since), "watermarks": list(stats.complete_since),
        "oldest": stats.oldest, "newest": stats.newest, "clock": None, "bytes": size,
        "bytes_per_row": round(size / stats.rows, 2), "digest": sketch.digest(),
    }  # fmt: skip
    assert sketch.digest()[:20] in run("inspect", built).stdout


def test_damaged_and_unlike_sketches(tmp_path: Path, built: Path) -> None:
    damaged, other = tmp_path / "damaged.sketch", tmp_path / "other.sketch"
    damaged.write_bytes(built.read_bytes()[:-1])
    assert f"{damaged}: " in failure("inspect", damaged)
    other.write_bytes(ds.DecaySketch(ds.SketchParams(max_weight=3)).to_bytes())
    out = tmp_path / "merged.sketch"
    assert "max_weight" in failure("merge", built, other, "--out", out)
    (tmp_path / "nothing").mkdir()
    assert "no sketch files" in failure("merge", tmp_path / "nothing", "--out", out)
    assert not out.exists()


def test_secret_ids(tmp_path: Path) -> None:
    path, key, out = write(log(), tmp_path / "log.csv"), tmp_path / "key", tmp_path / "x.sketch"
    key.write_text("00" * 16)
    run("build", path, "--out", out, *OPTIONS, "--id-key-file", key)
    secret = ds.SketchParams(max_weight=9, id_bits=40, capacity=100, seed=5, id_key=bytes(16))
    [expected] = sketches_by_key(log(), secret, MAPPING).values()
    assert out.read_bytes() == expected.to_bytes()
    assert "key" in failure("inspect", out)
    assert run_json("inspect", out, "--id-key-file", key)[0]["rows"] == len(expected)
    key.write_text("zz")
    assert "hexadecimal" in failure("inspect", out, "--id-key-file", key)


# --------------------------------------------------------------------------------------- the server


def test_with_a_server(
    served: Aggregator, tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    post = httpx2.Client.post

    def recorded(client: httpx2.Client, url: str, **arguments: Any) -> httpx2.Response:
        asked.update(arguments)
        return post(client, url, **arguments)

    served.create("s", params=PARAMS.to_dict())
    out = tmp_path / "other.sketch"
    run(
        "build", tmp_path / "log.parquet", "--out", out, "--from-server", served.url, "s",
        "--weight-column", "weight",
    )  # fmt: skip
    assert out.read_bytes() == built.read_bytes()
    posted = served.client.post(
        "/v1/streams/s/sketches?source=a", content=out.read_bytes(),
        headers={"content-type": "application/octet-stream"},
    )  # fmt: skip
    assert posted.status_code == 200
    for each in served.client.get("/v1/streams").json()["streams"]:  # of other tests
        if each["name"] != "s":
            assert served.client.delete(f"/v1/streams/{each['name']}").status_code == 204
    # However slow the machine is.
    slow = ("--timeout-s", 300, "--max-latency-s", 600, "--max-clock-s", 600)
    result = run_json("serve-check", served.url, *slow)
    assert result["ok"]
    assert [check["name"] for check in result["checks"]] == [
        "health", "ready", "streams", "query", "clock"
    ]  # fmt: skip
    assert "stream 's', 200 after" in result["checks"][3]["detail"]
    monkeypatch.setattr(httpx2.Client, "post", recorded)
    run("serve-check", served.url, *slow)
    [query] = asked["json"]["queries"]
    assert query["now"] == ds.DecaySketch.from_bytes(out.read_bytes()).stats().newest
    monkeypatch.undo()
    refused = ("--out", tmp_path / "y", "--from-server", served.url, "t")
    assert "404: there is no stream 't'" in failure("build", tmp_path / "log.parquet", *refused)
    assert run("serve-check", served.url, "--max-latency-s", 0, status=1)


def test_neither_a_key_nor_a_password_is_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes("hunter2\n\xe9".encode())
    asked = ("build", "x.csv", "--out", tmp_path / "y", "--api-key-file", tmp_path / "key")
    told = failure(*asked, "--from-server", "http://127.0.0.1:9", "s")
    assert "key contains no API key" in told.replace("\n", "")
    told += failure(*asked[:4], "--from-server", "http://me:hunter2@127.0.0.1:9", "s")
    assert "hunter2" not in told


def test_without_a_server() -> None:
    result = CliRunner().invoke(app, ["serve-check", f"http://127.0.0.1:{free_port()}", "--json"])
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    assert not content["ok"]
    assert {check["ok"] for check in content["checks"]} == {False}


class TestKeys:
    """Events of keys, of a family that counts by site."""

    OPTIONS = ("--family", "ecm", "--width", "60", "--depth", "3", "--slots", "10")
    PARAMS = ECMParams(width=60, depth=3, slots=10)

    def visits(self) -> pa.Table:
        draw = np.random.default_rng(4)
        pages = np.array(["/", "/a", "/b", "12"])
        return pa.table(
            {
                "time": draw.integers(0, 5_000, 900),
                "key": pages[draw.integers(0, 4, 900)],
                "town": draw.choice(["x", "y"], 900),
                "site": draw.choice(["north", "south"], 900),
            }
        )

    def built(self, tmp_path: Path, name: str, *options: str) -> Path:
        log = write(self.visits(), tmp_path / "visits.parquet")
        out = tmp_path / name
        run("build", str(log), "--out", str(out), *self.OPTIONS, *options)
        return out

    def test_are_built_as_by_the_library(self, tmp_path: Path) -> None:
        out = self.built(tmp_path, "all.sketch", "--site-column", "site")
        mapping = ColumnMapping(time="time", key=("key",), source="site")
        [want] = sketches_by_key(self.visits(), self.PARAMS, mapping).values()
        assert out.read_bytes() == want.to_bytes()
        tuples = self.built(tmp_path, "pairs.sketch", "--key-columns", "town,key", "--site", "hub")
        found = ECMCollection.from_bytes(tuples.read_bytes())
        assert list(found.entries) == [("hub", 0)]
        [of_x] = ask(tuples, 'key_count:[["x", "/a"]]')
        rows = self.visits().to_pylist()
        assert of_x["sure_upper"] >= sum((row["town"], row["key"]) == ("x", "/a") for row in rows)

    def test_are_asked_for(self, tmp_path: Path) -> None:
        out = self.built(tmp_path, "all.sketch")
        sketch = ECMCollection.from_bytes(out.read_bytes())
        counts = ask(out, "key_count:/,/a", 'key_count:["12"]', "key_count:12", "key_total")
        ever = ds.decay.none()
        want = [sketch.key_count(key, ever).value for key in ("/", "/a", "12", 12)]
        assert [each["value"] for each in counts] == [*want, 900]
        assert [each.get("key") for each in counts] == ["/", "/a", "12", 12, None]
        assert want[2] > 100 > want[3]
        joined, itself = ask(out, f"inner_product:{out}", "self_join")
        assert joined["value"] == sketch.inner_product(sketch, ever).value
        assert itself["value"] == sketch.self_join(ever).value
        shown = run("query", out, "key_count:/", "self_join").stdout
        assert "surely at" in shown

    def test_the_heavy_ones_are_those_of_the_library(self, tmp_path: Path) -> None:
        sketch = ECMCollection(dataclasses.replace(self.PARAMS, key_bits=8))
        sketch.update([5] * 30 + [*range(20)], range(50), source="a", epoch=0)
        out = tmp_path / "numbers.sketch"
        out.write_bytes(sketch.to_bytes())
        found = ask(out, "heavy_keys:0.5")
        want = sketch.heavy_keys(0.5, ds.decay.none())
        assert [(each["key"], each["value"]) for each in found] == [
            (each.key, each.count.value) for each in want
        ]
        assert [each.key for each in want] == [5]

    def test_of_sites_merge_once_and_parts_by_epoch(self, tmp_path: Path) -> None:
        sites = [self.built(tmp_path, f"{name}.sketch", "--site", name) for name in ("n", "s")]
        later = self.built(tmp_path, "later.sketch", "--site", "n", "--epoch", "1")
        merged = tmp_path / "merged.sketch"
        run("merge", *map(str, [*sites, later, sites[0]]), "--out", str(merged))
        found = ECMCollection.from_bytes(merged.read_bytes())
        assert list(found.entries) == [("n", 0), ("n", 1), ("s", 0)]
        assert found.seen == 3 * 900
        [facts] = run_json("inspect", merged)
        assert (facts["family"], facts["sites"]) == ("ecm", ["n", "s"])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--epoch", "1", "--family", "decay", "--max-weight", "1"], "does not count by site"),
            (["--site-column", "site", "--site", "n"], "expected one of them"),
            (
                ["--site-column", "site", "--family", "decay", "--max-weight", "1"],
                "the family decay does not count by site",
            ),
            (["--key-columns", ""], "expected the columns of the counted key"),
            (["--weight-column", "town"], "expected an integer"),
        ],
    )
    def test_are_refused_in_one_line(
        self, tmp_path: Path, options: list[str], message: str
    ) -> None:
        log = write(self.visits(), tmp_path / "visits.parquet")
        own = [] if "--family" in options else self.OPTIONS
        said = failure("build", log, "--out", tmp_path / "x", *own, *options)
        assert message in said


def ask(sketch: Path, *aggregates: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run_json("query", sketch, *aggregates)["answers"]
    return found


def test_a_build_says_that_the_log_is_as_small(tmp_path: Path) -> None:
    source, out = write(log(5_000), tmp_path / "log.parquet"), tmp_path / "a.sketch"
    built = ("build", source, "--out", out, "--max-weight", "9", "--weight-column", "weight")
    held = run_json(*built)
    assert decode(out.read_bytes()).params == ds.SketchParams(max_weight=9)
    size = re.escape(
        "nothing discarded: the log, each once, is as small; --accuracy 5% would give "
    )
    assert re.fullmatch(rf"[\d,]+ observations, {size}[\d,.]+ \w+", held["advice"])
    shown = " ".join(run(*built, "--overwrite").stdout.split())
    assert "nothing discarded: the log, each once" in shown
    assert "advice" not in run_json(*built, "--overwrite", "--capacity", "100")
    run(*built, "--overwrite", "--accuracy", "10%")
    assert decode(out.read_bytes()).params.capacity == 769
    folder = tmp_path / "by"
    run("build", source, "--out", folder, *built[4:], "--by", "source")
    assert decode(next(folder.glob("*.sketch")).read_bytes()).params.capacity == 3_074
    for given, said in (
        (("--accuracy", "2"), "accuracy is '2'; expected such as '2%' or 0.02"),
        (("--accuracy", "2%", "--capacity", "9"), "--accuracy cannot be combined with --capacity"),
        (("--accuracy", "2%", "--params", source), "--accuracy cannot be combined with --params"),
    ):
        assert said in failure(*built, "--overwrite", *given)
    of_sums = ("build", source, "--out", out, "--overwrite", "--family", "sum", "--accuracy", "2%")
    assert "--accuracy does not apply to the family sum" in failure(*of_sums)


class TestLabels:
    """A column of text is one of labels."""

    TABLE = pa.table(
        {
            "time": [100, 101, 102, 103], "id": [1, 2, 3, 4], "value": ["E42", "E7", None, "E42"],
            "site": ["a", "b", "a", "a"],
        }
    )  # fmt: skip

    @pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.ndjson"])
    def test_of_every_format(self, tmp_path: Path, name: str) -> None:
        out = tmp_path / "all.sketch"
        run("build", write(self.TABLE, tmp_path / name), "--out", out)
        found = decode(out.read_bytes())
        assert found.params.value_type == "label"
        expected = ds.DecaySketch(found.params)
        ids = ds.observation_ids([1, 2, 3, 4], params=found.params)
        expected.update(["E42", "E7", None, "E42"], 1, [100, 101, 102, 103], ids)
        assert found == expected

    @pytest.mark.parametrize(
        ("odd", "said"),
        [
            ("oops", "value[3] is 'oops'; expected a number"),
            ("4,5", "value[3] is '4,5'; expected a number"),
        ],
    )
    def test_numbers_with_a_word_among_them_are_no_labels(
        self, tmp_path: Path, odd: str, said: str
    ) -> None:
        rows = 20
        texts = [odd if row == 3 else str(row / 8) for row in range(rows)]
        table = pa.table({"time": range(rows), "id": range(rows), "value": texts})
        path, out = write(table, tmp_path / "log.parquet"), tmp_path / "all.sketch"
        refused = failure("build", path, "--out", out, "--any-time")
        assert said in refused
        assert "--value-type label" in refused
        run("build", path, "--out", out, "--any-time", "--value-type", "label")
        assert decode(out.read_bytes()).params.value_type == "label"

    def test_by_key_and_asked(self, tmp_path: Path) -> None:
        path, out = write(self.TABLE, tmp_path / "log.parquet"), tmp_path / "sites"
        run("build", path, "--by", "site", "--out", out)
        asked = ("query", out / "a.sketch", "heavy_hitters:0.1", "last", "--decay", "none")
        first, last = run_json(*asked)["answers"]
        assert (first["aggregate"], first["value_of"], first["value"]) == ("share of E42", "E42", 1)
        assert (last["value"], last["time"]) == ("E42", 103)
        assert "E42 at 103" in run(*asked).stdout
        refused = failure("query", out / "a.sketch", "mean", "--decay", "none")
        assert "mean needs numbers, and these values are texts" in refused
        said = failure("build", path, "--value-type", "float64", "--out", tmp_path / "x.sketch")
        assert "value[0] is 'E42'; expected a number" in said


def test_what_is_no_sketch_and_what_is_not_there_are_named(built: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "table.csv", tmp_path / "merged.sketch"
    log.write_text("time,id\n1,2\n")
    assert f"error: {log}: the first bytes are b'time'" in failure(
        "merge", built, log, "--out", out
    )
    missing = tmp_path / "missing.csv"
    for command in (("build", missing, "--out", out), ("query", missing, "sum")):
        assert f"error: {missing}: No such file or directory" in failure(*command)
    nowhere = tmp_path / "nowhere" / "all.sketch"
    assert f"error: {nowhere}: No such file or directory" in failure(
        "merge", built, "--out", nowhere
    )
