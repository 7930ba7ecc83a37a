"""What the demonstration prints and draws."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from demo.picture import Track, draw
from demo.questions import Cell, Decay
from demo.report import HeavyHitter, PathBytes, Report, number, percent, size
from demo.scores import Answer, Reading, Truth, score_by_aggregate

ANSWER = Answer(
    cell=Cell(Decay("window", 3600 * 10**6), 1_740_960_000_000_000),
    aggregate="count",
    reading=Reading(98_765.4, 90_000.0, 120_000.0, exact=False),
    truth=Truth(100_000.0, 100_000.0),
    naive=1_000_000.0,
)
EXACT = Reading(98_765.4, 90_000.0, 99_000.0, exact=True)


@pytest.fixture
def printed() -> tuple[Report, io.StringIO]:
    out = io.StringIO()
    return Report(Console(file=out, highlight=False, width=80)), out


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567.8, "1,234,568"),
        (98765.4, "98,765"),
        (14.0731, "14.07"),
        (-0.012341, "-0.01234"),
        (math.inf, "inf"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_percent_and_size() -> None:
    assert percent(0.01234) == "+1.23 %"
    assert percent(9.3612, 1) == "+936.1 %"
    assert percent(0.95, 1, sign=False) == "95.0 %"
    assert percent(math.nan) == "-"
    assert size(999) == "999 B"
    assert size(62_100) == "62.1 kB"
    assert size(1.838e7) == "18.38 MB"
    assert size(2.5e10) == "25 GB"


def test_answers_print_without_wrapping(printed: tuple[Report, io.StringIO]) -> None:
    report, out = printed
    report.answers([ANSWER, replace(ANSWER, aggregate="mean", reading=EXACT)])
    lines = [line for line in out.getvalue().splitlines() if "count" in line]
    assert len(lines) == 1
    for part in ("window 1 h", "2025-03-03 00:00:00", "98,765", "-1.23 %", "1,000,000", "+900.0 %"):
        assert part in lines[0]
    (mean,) = [line for line in out.getvalue().splitlines() if "mean" in line]
    assert "98,765*" in mean
    assert "99,000 !" in mean


def test_scores_and_bytes_print_a_last_line_for_all(printed: tuple[Report, io.StringIO]) -> None:
    report, out = printed
    report.scores(score_by_aggregate([ANSWER, ANSWER]))
    report.bytes_by_path([PathBytes(f"g{k}", 10 + k, 1e6, 10_000) for k in range(20)], limit=3)
    report.heavy_hitters([HeavyHitter(21.5, True, EXACT, 0.031, 0.05)] * 13)
    text = out.getvalue()
    assert "100.0 %" in text
    assert "17 more" in text
    assert "200 kB" in text
    assert "and 1 more" in text


def test_a_step_says_how_long_it_took(printed: tuple[Report, io.StringIO]) -> None:
    report, out = printed
    with report.step("Working") as advance:
        advance(0.5)
    assert out.getvalue().startswith("✓ Working 0.")


def test_the_picture_survives_gaps_and_single_points(tmp_path: Path) -> None:
    gap = [1.0, math.nan, 3.0]
    track = Track("window 1 h", gap, gap, gap, [1.0, 0.0, 3.0], [2.0, 0.0, 6.0])
    path = tmp_path / "deep" / "picture.png"
    draw(
        path,
        title="Title",
        subtitle="Subtitle",
        value_label="value",
        times_us=[10**15, 10**15 + 10**9, 10**15 + 2 * 10**9],
        window=track,
        faded=track,
        quantiles=[track],
    )
    assert path.read_bytes().startswith(b"\x89PNG")
