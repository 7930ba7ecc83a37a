"""Programs that the demonstration starts: slow ones are waited for, what they made is kept."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delivery_logs import delivery_log

from decaysketch import SketchParams
from decaysketch.families import recipe_of
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import ColumnMapping, KeyedBuilder
from demo import service
from demo.service import Aggregator, ProgramFailedError, build_with_spark, running_aggregator

PARAMS = SketchParams(max_weight=1, id_bits=40, capacity=50, seed=5, time_unit="us")
MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value"
)

SLOW = """
    import http.server, pathlib, sys, time
    print("reading the database: row 5 of 9", flush=True)
    while not pathlib.Path("enough").exists():
        time.sleep(0.05)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
    port = int(sys.argv[sys.argv.index("--port") + 1])
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
BROKEN = """
    import sys
    print("the disk is gone", flush=True)
    sys.exit(3)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose ``api`` is another program; any limit that there may be is short."""
    folder = tmp_path / "project"
    (folder / "api").mkdir(parents=True)
    (folder / "api" / "__init__.py").touch()
    monkeypatch.setattr(service, "PROJECT", folder)
    monkeypatch.setattr(service, "START_LIMIT_S", 0.5, raising=False)
    monkeypatch.setattr(service, "TELL_EVERY_S", 0.2, raising=False)
    return folder


def program(project: Path, text: str) -> None:
    (project / "api" / "__main__.py").write_text(textwrap.dedent(text))


def test_an_aggregator_that_takes_long_to_start_is_waited_for_and_tells_what_it_does(
    project: Path, tmp_path: Path
) -> None:
    program(project, SLOW)
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if sum("reading" in each for each in told) >= 5:  # a second at least, and it waits
            (project / "enough").touch()

    with running_aggregator(tmp_path / "out", tell) as aggregator:
        assert isinstance(aggregator, Aggregator)
    assert "reading the database: row 5 of 9" in told[-1]


def test_one_that_ends_is_told_at_once_with_what_it_said_and_how_to_go_on(
    project: Path, tmp_path: Path
) -> None:
    program(project, BROKEN)
    with (
        pytest.raises(ProgramFailedError) as failed,
        running_aggregator(tmp_path / "out"),
    ):
        pass
    for part in ("ended with status 3", "the disk is gone", f"is kept in {tmp_path / 'out'}"):
        assert part in str(failed.value)
    assert "the same command once more goes on from there" in str(failed.value)


def test_the_real_one_says_what_it_does_from_its_first_second(tmp_path: Path) -> None:
    with running_aggregator(tmp_path):
        pass
    lines = (tmp_path / "aggregator.log").read_text().splitlines()
    assert "starting, over" in lines[0]


# -------------------------------------------------------------------------------------- the build


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What was asked of Spark; a table is written in its place."""
    asked: list[Sequence[str]] = []

    def run(module: Sequence[str], *, show: bool) -> None:
        asked.append(module)
        log, out = Path(module[1]), Path(module[module.index("--out") + 1])
        builder = KeyedBuilder(recipe_of(PARAMS), MAPPING, ("path",))
        builder.add(pq.read_table(log))
        rows = pa.Table.from_batches(builder.batches())
        SketchTable.write(out, rows, recipe_of(PARAMS), ["path"], overwrite=True)

    monkeypatch.setattr(service, "_run", run)
    return asked


def test_what_was_built_is_taken_by_the_next_run(
    tmp_path: Path, builds: list[Sequence[str]]
) -> None:
    log, out = tmp_path / "log.parquet", tmp_path / "out"
    pq.write_table(delivery_log(300), log)
    for _ in range(2):
        build_with_spark(log, out, PARAMS, weighted=False)
    assert len(builds) == 1
    os.utime(log, (1, 1))  # simulated anew, and the same
    build_with_spark(log, out, PARAMS, weighted=False)
    assert len(builds) == 1


@pytest.mark.parametrize("changed", ["log", "settings", "weights", "sketches", "record"])
def test_nothing_is_taken_that_is_of_something_else(
    changed: str, tmp_path: Path, builds: list[Sequence[str]]
) -> None:
    log, out, params, weighted = tmp_path / "log.parquet", tmp_path / "out", PARAMS, False
    pq.write_table(delivery_log(300), log)
    build_with_spark(log, out, params, weighted=weighted)
    match changed:
        case "log":
            pq.write_table(delivery_log(300, seed=2), log)
        case "settings":
            params = SketchParams(max_weight=1, id_bits=40, capacity=50, seed=6, time_unit="us")
        case "weights":
            weighted = True
        case "sketches":
            for path in sorted((out / "sketches").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        case "record":
            (out / "sketches-of.json").write_text("{")
    build_with_spark(log, out, params, weighted=weighted)
    assert len(builds) == 2


def test_a_build_that_fails_leaves_nothing_to_go_on_from(
    tmp_path: Path, builds: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = tmp_path / "log.parquet", tmp_path / "out"
    pq.write_table(delivery_log(300), log)
    build_with_spark(log, out, PARAMS, weighted=False)

    def fail(module: Sequence[str], *, show: bool) -> None:
        raise ProgramFailedError("no")

    with monkeypatch.context() as patched:
        patched.setattr(service, "_run", fail)
        pq.write_table(delivery_log(300, seed=2), log)
        with pytest.raises(ProgramFailedError):
            build_with_spark(log, out, PARAMS, weighted=False)
    pq.write_table(delivery_log(300), log)
    build_with_spark(log, out, PARAMS, weighted=False)
    assert len(builds) == 2
