"""CSV logs in the dialects that the command line reads: Spark gives the same sketches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decaysketch.spark.tables import SketchTable
from spark_jobs import build
from tests.client.test_files_as_people_have_them import CASES, COLUMNS, written
from tests.spark.test_programs import run

READ = [
    "a line end in quotes", "a separator at the end of rows", "comments above the heading",
    "decimal commas", "missing numbers", "times without a zone", "day first", "UTF-16",
    "Latin-1 in a name", "another name twice", "numbers in quotes", "labels", "quoted cells",
]  # fmt: skip
ASIDE = [
    "hexadecimal digits", "an odd id after a megabyte", "a torn row after a megabyte",
    "a broken line after a megabyte",
]  # fmt: skip
ENDS = {
    "titles above the heading": "has its heading in line 3, and Spark expects it in the first line",
    "an odd id ends it with a way out": "seq[",
    "a column that is missing": "has no column 'v'; it has dev",
    "one name twice": "has two columns 'v'",
    "empty": "is empty; expected a heading",
    "binary": "is not text: byte 0 is 0",
    "a torn row after a megabyte": "does not fit the heading or schema: 'z,1,1780000000'",
    "a broken line ends it": """does not fit the heading or schema: '{"dev": '""",
    "numbers with a unit": "'20.5 °C', which looks like a num",
}


def built(folder: Path, name: str, *more: str) -> tuple[int, str]:
    case = CASES[name]
    path = written(folder, case)
    options = [*COLUMNS, "s", "--column-unit", "s", "--capacity", "50000", *case.options]
    return run(build.main, path, "--by", "", "--out", folder / "t", *options, *more)


@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize("name", [*READ, *ASIDE])
def test_a_file_gives_its_numbers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    more = ("--quarantine", str(tmp_path / "bad")) if name in ASIDE else ()
    status, told = built(tmp_path, name, *more)
    assert status == 0, told
    table = SketchTable.open(tmp_path / "t")
    [row] = table.sketches()
    sketch: Any = table.recipe.decode(row.blob)
    assert sketch.count("none").value == case.expected[0]
    labels = sketch.params.value_type == "label"
    assert labels or sketch.total("none").value == case.expected[1]
    assert case.oldest is None or sketch.stats().oldest == case.oldest
    assert ("warning" in told) == bool(case.warned)
    assert case.warned in told
    assert table.counts["refused"] == (case.quarantined or 0)


@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize("name", ENDS)
def test_a_file_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    status, told = built(tmp_path, name)
    assert status == 1
    assert ENDS[name] in told
    assert not SketchTable.exists(tmp_path / "t")


@pytest.mark.usefixtures("shared_session")
def test_files_whose_columns_have_another_order_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "1.csv").write_text("dev,seq,ts,v\na,1,1780000000,20.5\n")
    (log / "2.csv").write_text("dev,seq,v,ts\na,2,21.5,1780000060\n")
    options = (*COLUMNS, "s", "--column-unit", "s")
    status, told = run(build.main, log, "--by", "", "--out", tmp_path / "t", *options)
    assert status == 1
    assert "2.csv has utf-8, separator ',', columns dev, seq, v, ts; expected as in" in told
