"""The clock that is wrong is the first line, whatever else the log holds."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from demo.case import Case
from demo.clocks import clocks
from demo.questions import ask_about, middle_of
from demo.report import Report, late_text
from demo.simulate import SimulationPlan, simulate

DAY_US = 86_400_000_000
BEHIND_US = 936 * DAY_US


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """Of six gateways the clock of number 3 stands 936 days behind."""
    simulated = simulate(SimulationPlan(sensors=30, gateways=6, days=3)).log
    stamp = pl.when(pl.col("path") == 3).then(pl.col("event_us") - BEHIND_US)
    return simulated.with_columns(event_us=stamp.otherwise("event_us")).with_columns(
        time=pl.coalesce("event_us", "arrival_us")
    )


def test_lateness_by_path_names_the_clock_that_is_behind(log: pl.DataFrame) -> None:
    first, *others = clocks(log)
    own = log.filter(pl.col("path") == 3)
    lateness = (own["arrival_us"] - own["event_us"]).drop_nulls()
    assert first.path == "3"
    assert first.suspect
    assert (first.rows, first.unstamped) == (len(own), own["event_us"].null_count())
    assert first.median == lateness.median()
    assert first.worst == lateness.max()
    assert first.against is not None
    assert first.against == pytest.approx(-BEHIND_US, rel=1e-3)
    assert {clock.path for clock in others} == {"0", "1", "2", "4", "5"}
    assert not any(clock.suspect for clock in others)
    assert sum(clock.rows for clock in (first, *others)) == len(log)


def test_a_path_that_delivers_late_agrees_with_the_copies_of_others(log: pl.DataFrame) -> None:
    late = log.with_columns(
        event_us=pl.col("event_us") + pl.when(pl.col("path") == 3).then(BEHIND_US).otherwise(0),
        arrival_us=pl.col("arrival_us") + pl.when(pl.col("path") == 1).then(DAY_US).otherwise(0),
    )
    first, second, *_ = clocks(late)
    assert (first.path, first.suspect, second.suspect) == ("1", True, False)
    assert first.median is not None
    assert first.median >= DAY_US * 0.99
    assert first.against is not None
    assert abs(first.against) < 60_000_000


def test_a_clock_that_is_ahead_is_late_by_less_than_nothing(log: pl.DataFrame) -> None:
    ahead = log.with_columns(
        event_us=pl.col("event_us")
        + pl.when(pl.col("path") == 3).then(BEHIND_US + DAY_US).otherwise(0)
    )
    first = clocks(ahead)[0]
    assert (first.path, first.suspect) == ("3", True)
    assert late_text(first.median).startswith("-")


def test_without_stamps_or_arrivals_nothing_is_made_up(log: pl.DataFrame) -> None:
    for absent in ("event_us", "arrival_us"):
        for clock in clocks(log.with_columns(pl.lit(None, dtype=pl.Int64).alias(absent))):
            assert (clock.median, clock.worst) == (None, None)
            assert (clock.against is None) == (absent == "event_us")


def test_the_table_shows_the_worst_first_and_says_what_it_leaves_out(log: pl.DataFrame) -> None:
    out = io.StringIO()
    Report(Console(file=out, highlight=False, width=80)).clocks(clocks(log), limit=2)
    text = out.getvalue()
    lines = [line.split() for line in text.splitlines()]
    found = next(line for line in lines if line[:1] == ["3"])
    assert found[2:4] == ["936", "d"]
    assert found[-4:] == ["look", "at", "this", "one"]
    assert "and 4 more, none of them worse" in text


def test_one_clock_far_behind_does_not_stretch_what_is_asked(log: pl.DataFrame) -> None:
    whole = log.filter(pl.col("path") != 3)["time"]
    first, last = middle_of(log["time"])
    assert (first, last) == (whole.min(), whole.max())
    asked = ask_about(log["time"])
    assert [cell.decay for cell in asked] == [cell.decay for cell in ask_about(whole)]
    assert min(cell.now_us for cell in asked) >= first


def test_nor_does_one_of_three_that_stamps_most_messages_alone(tmp_path: Path) -> None:
    simulated = simulate(SimulationPlan(sensors=12, gateways=3, days=2)).log
    behind = pl.when(pl.col("path") == 2).then(BEHIND_US).otherwise(0)
    log = simulated.with_columns(event_us=pl.col("event_us") - behind)
    log.write_parquet(tmp_path / "log.parquet")
    case = Case.read(tmp_path / "log.parquet", times=4)
    others = simulated.filter(pl.col("path") != 2)
    assert case.middle_us[0] >= others["event_us"].min()
    assert case.middle_us[1] <= others["event_us"].max()
    before, after = case.outside
    assert before > 0.1 * len(case.exact)
    assert after < 0.01 * len(case.exact)
    assert min(cell.now_us for cell in case.truths) >= case.middle_us[0]


def test_of_an_ordinary_log_nothing_is_cut(log: pl.DataFrame) -> None:
    times = log.filter(pl.col("path") != 3)["time"]
    assert middle_of(times) == (times.min(), times.max())
    assert middle_of(pl.Series([7])) == (7, 7)
    assert middle_of(pl.Series([7] * 99 + [10**15])) == (7, 7)
