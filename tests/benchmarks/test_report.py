"""The benchmarks run from end to end on tiny streams, and become a document."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import decaysketch as ds
from benchmarks import __main__ as command
from benchmarks import error, exact, machine, paper, report, rivals, streams
from benchmarks.asyncwindow_log import Log
from benchmarks.report import Comparison, Section, Table
from benchmarks.sorted_window import SortedWindow


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    """The command keeps its process on one core: give the others back."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    if allowed is not None:
        os.sched_setaffinity(0, allowed)


class TestComparison:
    def test_less_of_a_cost_is_better(self) -> None:
        assert Comparison("t", "r", "seconds", 2.0, 6.0, "less").advantage == 3.0

    def test_more_of_a_rate_is_better(self) -> None:
        assert Comparison("t", "r", "rows a second", 2.0, 6.0, "more").advantage == 1 / 3

    def test_a_rival_without_error_wins(self) -> None:
        assert Comparison("t", "r", "RMSE", 0.1, 0.0, "less").advantage == 0


class TestDocument:
    def test_opens_with_what_is_lost_worst_first(self) -> None:
        section = Section(
            "One", "About it.",
            [Table("A table", ("name", "figure"), [("a|b", "1")], notes=["A note."])],
            [
                Comparison("won", "r", "s", 1.0, 2.0, "less"),
                Comparison("lost a little", "r", "s", 2.0, 1.0, "less"),
                Comparison("lost a lot", "r", "s", 9.0, 0.0, "less"),
            ],
            skipped=["this: no such thing here"],
        )  # fmt: skip
        text = report.document([section], ["a machine"], "the command")
        parts = ["the command", "a machine", "## What we lose at", "lost a lot", "∞",
                 "lost a little", "## What we win", "won", "## One", "About it.", "### A table",
                 r"a\|b", "A note.", "Skipped: this: no such thing here"]  # fmt: skip
        places = [text.index(part) for part in parts]
        assert places == sorted(places)

    def test_says_where_there_was_nothing_to_compare(self) -> None:
        assert report.document([], [], "c").count("None in the sections that were run.") == 2


class TestCommand:
    def test_writes_the_document_of_a_tiny_run(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(error, "ROWS", 5_000)
        monkeypatch.setattr(rivals, "PLAIN_ROWS", 5_000)
        file = tmp_path / "performance.md"
        command.main([
            "--only", "updates,integral,asyncwindow,paper,exact,rivals,error", "--rows", "6000",
            "--exact-rows", "20000", "--repetitions", "1", "--seeds", "2", "--write", str(file),
        ])  # fmt: skip
        text = file.read_text(encoding="utf-8")
        titles = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
        assert titles[:2] == ["What we lose at", "What we win"]
        assert titles[2:] == [
            "Updates", "One integral decay", "Asynchronous windows",
            "Beside the paper's program in C++", "Beside exact dedupe-and-sum",
            "Beside Apache DataSketches", "Error at equal bytes: windowed and decayed sums",
        ]  # fmt: skip
        (picture,) = re.findall(r"!\[.*\]\((.*)\)", text)
        assert 0 < (tmp_path / picture).stat().st_size < 60_000
        printed = capsys.readouterr().out
        assert all(title in printed for title in titles[2:])

    def test_refuses_unknown_sections_and_folders(self, tmp_path: Path) -> None:
        for arguments in (["--only", "nothing"], ["--write", str(tmp_path / "no" / "file.md")]):
            with pytest.raises(SystemExit):
                command.main(arguments)


class TestWhatIsMissing:
    def test_packages_are_named_and_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "installed", lambda name: None)
        stream = streams.web_log(1_000)
        assert rivals.measure(stream, 1, 1).skipped == ["datasketches: not installed"]
        assert error.measure(1).skipped == ["datasketches: not installed"]
        section = exact.measure(2_000, 1)
        assert section.skipped == ["polars: not installed", "duckdb: not installed"]
        assert len(section.tables[0].rows) == 1

    def test_a_compiler_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "compiler", lambda: None)
        section = paper.measure(streams.web_log(1_000), 1)
        assert not section.tables
        assert any("no C++ compiler here" in line for line in section.skipped)


class TestExact:
    @pytest.mark.parametrize("contender", ["polars", "duckdb", "decaysketch"])
    def test_contenders_agree_on_a_stream_that_the_sketch_holds(self, contender: str) -> None:
        pytest.importorskip(contender)
        if contender == "polars":
            import polars

            threads = polars.thread_pool_size()
        else:
            threads = 1
        stream = streams.web_log(3_000)  # below the capacity: all are exact
        columns = exact.Columns(*stream[1:])
        now = int(stream.timestamps.max())
        _, rows = np.unique(stream.ids, return_index=True)  # copies agree in this stream
        ages = now - stream.timestamps[rows]
        truth = np.sum(stream.weights[rows] * np.exp2(-ages / exact.HALF_LIFE))
        answer = exact.CONTENDERS[contender](columns, now, threads)()
        assert answer == pytest.approx(truth, rel=1e-12)


class TestSortedWindow:
    @pytest.mark.parametrize("batch", [1, 7, 300])
    def test_holds_what_the_last_window_holds(self, batch: int) -> None:
        rng = np.random.default_rng(batch)
        times = np.arange(6_000) // 3 - rng.integers(0, 40, 6_000)  # late by up to 40
        values = rng.integers(-50, 1_000, 6_000)
        held, width = SortedWindow(100, sums=True), 100
        for row in range(0, len(times), batch):
            seen = slice(0, row + batch)
            held.update(values[row : row + batch], times[row : row + batch])
            now = int(times[seen].max())
            held.advance(now)
            if row % (13 * batch):
                continue  # several batches between two questions
            for ask in (width, width // 2):
                inside = values[seen][(times[seen] >= now - ask) & (times[seen] <= now)]
                assert held.sum(ask, now) == inside.sum()
                middle = np.sort(inside)[(len(inside) - 1) // 2]
                assert held.median(ask, now) == middle
                assert held.share_up_to(int(middle), ask, now) == np.mean(inside <= middle)
        assert len(held) == np.count_nonzero(times >= times.max() - width)

    def test_takes_in_another_one(self) -> None:
        rng = np.random.default_rng(1)
        times, values = rng.integers(0, 500, (2, 4_000))
        whole, half, other = (SortedWindow(500, sums=True) for _ in range(3))
        whole.update(values, times)
        half.update(values[::2], times[::2])
        other.update(values[1::2], times[1::2])
        half.merge(other)
        for width in (0, 30, 499):
            assert half.sum(width, 499) == whole.sum(width, 499)
            assert half.median(width, 499) == whole.median(width, 499)
        assert half.nbytes == whole.nbytes == 24 * 4_000


def test_samplers_that_hold_all_agree_with_the_sorted_window() -> None:
    log = Log.of(streams.web_log(3_000))
    exact = SortedWindow(log.width, sums=True)
    log.feed(exact, 0, len(log), 100)
    window = ds.decay.window(log.width)
    for kind in ("sum", "median"):
        sampler = log.sampler(kind, "proven")
        log.feed(sampler, 0, len(log), 100)
        answer = getattr(sampler, kind)(window, now=log.now)
        assert answer.value == getattr(exact, kind)(log.width, log.now)
        assert len(sampler) == len(exact)


class TestError:
    def test_root_mean_square(self) -> None:
        errors = error.RootMeanSquare()
        for value in (0.03, -0.04, 0.05):
            errors.add(value)
        squares = np.array([9, 16, 25]) * 1e-4
        assert errors.value == pytest.approx(np.sqrt(squares.mean()))
        spread = squares.std(ddof=1) / np.sqrt(3)
        assert errors.stderr == pytest.approx(spread / (2 * errors.value))  # delta method
        assert f"{errors:%}" == "4.08 ± 0.6 %"

    def test_rounding_alone_is_exact(self) -> None:
        errors = error.RootMeanSquare()
        errors.add(1e-15)
        errors.add(0.0)
        assert f"{errors:%}" == "exact"

    def test_fit_gives_the_largest_capacity_within_the_bytes(self) -> None:
        def build(capacity: int) -> ds.DecaySketch:
            sketch = ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=30, capacity=capacity))
            sketch.update(None, 5, np.arange(5_000), np.arange(5_000))
            return sketch

        sketch = build(1_000)
        capacity = error.fit(sketch, 1_000)
        assert sketch == build(capacity)
        assert len(build(capacity).to_bytes()) <= 1_000 < len(build(capacity + 1).to_bytes())

    def test_the_tuple_sketch_keeps_the_latest_copy(self) -> None:
        datasketches = pytest.importorskip("datasketches")
        sketch = datasketches.update_tuple_sketch(error.LatestTuple(), 5)
        for time in (4, 9, 2):
            sketch.update(1, (time, 7))
        packed = error.PackedBytes("<II")
        compact = datasketches.compact_tuple_sketch.deserialize(
            sketch.compact().serialize(packed), packed
        )
        assert [summary for _, summary in compact] == [(9, 7)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells peaks of memory")
def test_memory_of_a_block_is_its_peak() -> None:
    with machine.watch_memory() as memory:
        held = np.ones(20_000_000, np.uint8)
        del held
    if memory.peak is None:
        pytest.skip("this system does not let a process start its peak anew")
    assert 15e6 < memory.peak < 60e6
