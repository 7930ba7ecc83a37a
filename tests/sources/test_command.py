"""``decaysketch coverage``: the numbers of the library, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources.streams import drawn
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.cli import app
from decaysketch.sources.report import UNHEARD_NOTE, report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("sketches")
    stream = drawn(np.random.default_rng(2), 2000, (0.9, 0.3, 0.05))
    for name, sketch in stream.sketches(80, time_unit="frames").items():
        (made / f"{name}.sketch").write_bytes(sketch.to_bytes())
    return made


def opened(folder: Path) -> ds.SourceSet:
    return ds.SourceSet({path.stem: path.read_bytes() for path in folder.glob("*.sketch")})


def run(*arguments: Any, status: int = 0) -> Any:
    result = CliRunner().invoke(app, ["coverage", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


def test_everything_is_that_of_the_library(folder: Path) -> None:
    found = json.loads(run(folder, "--decay", "window(30000)", "--json").stdout)
    expected = report(opened(folder).at("window(30000)"))
    assert found == json.loads(json.dumps(expected))
    assert found["unheard"]["note"] == UNHEARD_NOTE


def test_tables_show_the_range_of_unheard_messages_with_its_caveat(folder: Path) -> None:
    shown = " ".join(run(folder).stdout.split())
    for words in ("heard by none", "It is no packet loss", "fewest sources", "a & b"):
        assert words in shown


def test_long_tables_say_how_much_they_leave_out(tmp_path: Path) -> None:
    """Of 24 sources, each with messages of its own, none that two of them share."""
    for source in range(24):
        sketch = ds.DecaySketch(ds.SketchParams(capacity=50, seed=1))
        sketch.update(
            None, 1, 10 * np.arange(5) + 1_700_000_000 + source, 100 * source + np.arange(5)
        )
        (tmp_path / f"{source}.sketch").write_bytes(sketch.to_bytes())
    shown = " ".join(run(tmp_path).stdout.split())
    for words in ("and 15 more", "4 more rows with --json", "276 pairs share no message"):
        assert words in shown
    message = "set has '3' at character 0; expected a source (in quotes if"
    assert message in " ".join(run(tmp_path, "--set", "3", status=1).stderr.split())


def test_one_set_has_a_count_a_share_and_ids(folder: Path) -> None:
    command = [folder / "a.sketch", f"second={folder / 'b.sketch'}", "--set", "second - a"]
    found = json.loads(run(*command, "--of", "second", "--missing", 2, "--json").stdout)
    view = ds.SourceSet(
        {"a": (folder / "a.sketch").read_bytes(), "second": (folder / "b.sketch").read_bytes()}
    ).at("none")
    assert found["count"] == view.count("second - a").to_dict()
    assert found["share"] == view.share("second - a", of="second").to_dict()
    assert [each["id"] for each in found["missing"]] == [
        each.id for each in view.missing("second - a", 2)
    ]
    run(*command)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "a &"], "set has its end"),
        (["--set", "z"], "no source 'z'"),
        (["--guard", "soon"], "guard is 'soon'"),
        (["--decay", "nothing"], "decay"),
    ],
)
def test_what_cannot_be_read_is_one_line(folder: Path, arguments: list[str], message: str) -> None:
    line = run(folder, *arguments, status=1).stderr
    assert line.startswith("error: ")
    assert message in line
    assert line.count("\n") == 1


def test_two_files_of_one_source_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "a.sketch"
    other.write_bytes((folder / "a.sketch").read_bytes())
    assert "source 'a' has two files" in run(folder / "a.sketch", other, status=1).stderr
