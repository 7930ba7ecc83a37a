"""Estimated rows beside those that Spark counts: the example of the page, run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_example_prints_rows_that_are_within_their_intervals(
    session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- statistics: run by the tests -->", "<!-- end of statistics -->"
    marked = text.partition(begin)[2].partition(end)[0]
    (snippet,) = re.findall(r"```python\n(.*?)```", marked, flags=re.DOTALL)
    exec(compile(snippet, "docs/spark.md", "exec"), {"spark": session})
    lines = capsys.readouterr().out.splitlines()
    said = re.findall(r"```text\n(.*?)```", marked, flags=re.DOTALL)
    assert lines == said[0].splitlines()
    assert len(lines) == 5
    for line in lines:
        found = re.fullmatch(r".+: (\d+) \((\d+) to (\d+)\), (\d+)", line)
        assert found is not None, line
        estimated, lower, upper, actual = map(int, found.groups())
        assert lower <= actual <= upper
        assert estimated == pytest.approx(actual, rel=0.1, abs=100)
