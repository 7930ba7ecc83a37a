"""The demonstration as a whole, on small logs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from service import LOCAL
from starlette.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from decaysketch import SketchParams
from demo import replicas
from demo.case import Case
from demo.questions import Cell, Decay
from demo.reading import Columns
from demo.report import Report
from demo.service import STREAM, Aggregator, ProgramFailedError, hitters, readings
from demo.simulate import SimulationPlan, simulate
from demo.walkthrough import Options, run
from spark_jobs.java import JavaNotFoundError, find_java_home

PLAN = SimulationPlan(sensors=12, gateways=3, days=2)
PARAMS = SketchParams(max_weight=60, id_bits=50, capacity=200, seed=3, time_unit="us")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("demo") / "log.parquet"
    simulate(PLAN).log.write_parquet(path)
    return Case.read(path, times=4)


@pytest.fixture
def aggregator(tmp_path: Path) -> Iterator[Aggregator]:
    settings = Settings(data=str(tmp_path / "journal.sqlite3"))
    with TestClient(create_app(settings), base_url=LOCAL) as client:
        client.put(f"/v1/streams/{STREAM}", json={"params": PARAMS.to_dict()})
        yield Aggregator(client)


def test_http_answers_as_the_library_does(case: Case, aggregator: Aggregator) -> None:
    sketch = replicas.build(case.log, PARAMS)
    assert aggregator.post("everything", sketch.to_bytes())
    assert not aggregator.post("everything", sketch.to_bytes())
    assert aggregator.merged_sketch() == sketch.to_bytes()
    for cell, expected in case.truths.items():
        assert {"count", "sum", "mean", "q0.5"} <= expected.keys()
        over_http = readings(expected, aggregator.ask(cell, expected))
        assert over_http == replicas.ask_sketch(sketch, cell, expected)


def test_a_refusal_shows_what_the_aggregator_said(aggregator: Aggregator) -> None:
    with pytest.raises(ProgramFailedError, match=r"422.*not a sketch|422.*truncated|422"):
        aggregator.post("everything", b"no sketch")


def test_heavy_hitters_are_read_from_the_answer(case: Case, aggregator: Aggregator) -> None:
    aggregator.post("everything", replicas.build(case.log, PARAMS).to_bytes())
    cell = Cell(Decay("none"), int(case.exact.times_us[-1]))
    found = hitters(aggregator.heavy_hitters(cell, 0.01))
    exact = case.exact.at(cell)
    assert found
    for value, share in found:
        assert 0.01 < share.value < 0.1
        assert abs(share.value - exact.share_of(value)) < 0.05


def test_a_large_sketch_answers_exactly_and_seeds_agree(case: Case) -> None:
    large = replace(PARAMS, capacity=100_000)
    by_seed = list(replicas.replicate(case.log, large, case.truths, [1, 2]))
    summary = replicas.summarise(by_seed)
    assert summary.shares == [1.0, 1.0]
    assert summary.broken == 0
    assert summary.share_error == 0.0
    everything = summary.scores[-1]
    assert everything.exact == everything.answers == 2 * sum(map(len, case.truths.values()))


def test_intervals_of_a_small_sketch_mostly_hold(case: Case) -> None:
    summary = replicas.summarise(list(replicas.replicate(case.log, PARAMS, case.truths, range(30))))
    assert 0.9 < summary.scores[-1].share < 0.995
    assert summary.broken == 0


def _needs_java() -> None:
    try:
        find_java_home()
    except JavaNotFoundError as fault:
        pytest.skip(str(fault))


def _done(options: Options) -> str:
    printed = io.StringIO()
    status = run(options, Report(Console(file=printed, highlight=False)))
    assert status == 0, printed.getvalue()
    text = (options.out / "report.txt").read_text(encoding="utf-8")
    assert text.startswith("\nThe question\n")
    assert "\nevery promise kept\nthe answer as a picture: " in text
    return printed.getvalue()


@pytest.mark.spark
def test_the_whole_job_on_a_csv_with_holes_and_a_clock_that_is_years_behind(tmp_path: Path) -> None:
    """In no order, without weights."""
    _needs_java()
    behind = pl.when(pl.col("path") == 2).then(936 * 86_400_000_000).otherwise(0)
    stamp = pl.from_epoch(pl.col("event_us") - behind, time_unit="us")
    log = (
        simulate(PLAN)
        .log.with_row_index()
        .select(
            ts=stamp.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00"),
            came=pl.col("arrival_us") / 1e6,
            device=pl.format("é-{}", "source"),
            seq=pl.when(pl.col("index") % 500 == 3).then(None).otherwise("msg"),
            gateway=pl.format("[roof] {}", "path"),
            temp="value",
        )
        .sample(fraction=1.0, shuffle=True, seed=1)
    )
    log.write_csv(tmp_path / "given.csv")
    options = Options(
        log=tmp_path / "given.csv", out=tmp_path / "out", capacity=100, seeds=2, times=4,
        columns=Columns(
            time="ts", fallback_time="came", ids=("device", "seq"), path="gateway", value="temp",
            unit="s",
        ),
    )  # fmt: skip
    text = _done(options)
    for part in ("byte for byte the same", "intervals that hold"):
        assert part in text
    answers = pl.read_csv(options.out / "answers.csv")
    assert answers["holds"].mean() > 0.8  # type: ignore[operator]
    refused = log["seq"].null_count()
    assert f"Quarantine: {refused:,} rows that cannot be counted, and are not" in text
    assert pl.read_parquet(options.out / "quarantine" / "refused.parquet").height == refused
    kept = log.filter((pl.col("gateway") == "[roof] 2") & pl.col("seq").is_not_null()).height
    [line] = [line for line in text.splitlines() if "look at this one" in line]
    assert line.split()[:3] == ["[roof]", "2", f"{kept:,}"]
    first = pl.read_csv(options.out / "clocks.csv").row(0, named=True)
    assert (first["path"], first["suspect"]) == ("[roof] 2", True)
    assert first["median_us"] > 935 * 86_400e6
    assert " d before all others" in text


@pytest.mark.spark
def test_the_whole_job_on_a_single_row_of_one_clock(tmp_path: Path) -> None:
    _needs_java()
    simulate(PLAN).log.head(1).with_columns(
        arrival_us=pl.coalesce("event_us", "arrival_us"),
        event_us=pl.lit(None, dtype=pl.Int64),
        path=pl.lit("roof/2"),
    ).write_parquet(tmp_path / "one.parquet")
    options = Options(log=tmp_path / "one.parquet", out=tmp_path / "out", seeds=1, times=4)
    text = _done(options)
    assert "1 of 1 sources" in text
    assert "roof%2F2" in text
    assert (options.out / "one.png").exists()
