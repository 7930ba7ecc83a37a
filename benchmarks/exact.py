"""Beside an exact answer: polars and DuckDB take the latest copy of everything, then sum.

They hold every row and need one pass over all of them for an answer; the sketch takes the rows as
they come and needs none. Each contender runs in a fresh process, so that its memory is its own; the
rows are in that process, in its own form, before the clock starts.

    python -m benchmarks.exact CONTENDER FILE THREADS

is how the benchmark runs itself in such a process; it prints JSON.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import decaysketch as ds
from benchmarks import machine
from benchmarks.report import Comparison, Section, Table
from benchmarks.streams import Int64Array, Stream, web_log
from benchmarks.timing import Timing, clock, seconds_of, summary
from benchmarks.updates import feed

__all__ = ["measure"]

CAPACITY = 24_000
HALF_LIFE = 1_000
BATCH = 10_000
PASSES = 3  # of one process; the first also pays for what is set up once
_ROW_BYTES = 32  # four int64


class Columns(NamedTuple):
    values: Int64Array
    weights: Int64Array
    timestamps: Int64Array
    ids: Int64Array


def _polars(columns: Columns, now: int, threads: int) -> Callable[[], float]:
    import polars as pl

    if pl.thread_pool_size() != threads:
        raise RuntimeError(f"polars has {pl.thread_pool_size()} threads; expected {threads}")
    frame = pl.DataFrame(columns._asdict())
    age = now - pl.col("timestamps").cast(pl.Float64)
    decayed = pl.col("weights") * (age * (-math.log(2) / HALF_LIFE)).exp()
    query = frame.lazy().group_by("ids", "weights").agg(pl.col("timestamps").max())
    query = query.select(decayed.sum())
    return lambda: float(query.collect().item())


def _duckdb(columns: Columns, now: int, threads: int) -> Callable[[], float]:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"set threads = {threads}")
    log = dict(columns._asdict())
    connection.register("log", log)
    connection.execute("create table copies as select * from log")
    connection.unregister("log")
    query = (
        "select sum(weights * exp((timestamps - ?) * ln(2) / ?)) from "
        "(select ids, weights, max(timestamps) as timestamps from copies group by ids, weights)"
    )

    def answer() -> float:
        row = connection.execute(query, [now, HALF_LIFE]).fetchone()
        assert row is not None
        return float(row[0])

    return answer


_DECAY = ds.decay.exponential(half_life=HALF_LIFE)


def _params() -> ds.SketchParams:
    return web_log(1).params.with_capacity(CAPACITY)


def _sketch(columns: Columns, now: int, threads: int) -> Callable[[], float]:
    def answer() -> float:
        sketch = ds.DecaySketch(_params())
        for start in range(0, len(columns.ids), BATCH):
            sketch.update(*(column[start : start + BATCH] for column in columns))
        return sketch.sum(_DECAY, now=now).value

    first = ds.DecaySketch(_params())  # compile, or load what was compiled before
    for _ in range(20):
        first.update(*(column[:BATCH] for column in columns))
    first.sum(_DECAY, now=now)
    return answer


CONTENDERS = {"polars": _polars, "duckdb": _duckdb, "decaysketch": _sketch}


def _child(contender: str, file: str, threads: int) -> None:
    if threads > 1:
        machine.all_cores()
    columns = Columns(*np.load(file))
    now = int(columns.timestamps.max())
    answer = CONTENDERS[contender](columns, now, threads)
    if contender == "duckdb":
        del columns  # it holds a table of its own
    with machine.watch_memory() as memory:
        seconds = [seconds_of(answer)]
    seconds += [seconds_of(answer) for _ in range(PASSES - 1)]
    print(json.dumps({"seconds": seconds, "answer": answer(), "peak": memory.peak}))


def _run(contender: str, threads: int, file: Path) -> dict[str, Any]:
    environment = dict(os.environ, POLARS_MAX_THREADS=str(threads))
    command = [sys.executable, "-m", "benchmarks.exact", contender, str(file), str(threads)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, Any] = json.loads(printed.stdout)
    return result


@dataclass(frozen=True)
class _Result:
    """What one contender did, in all of its runs."""

    contender: str
    threads: int
    timing: Timing
    again: Timing  # an answer once there was one
    peak: int | None
    answer: float

    @property
    def ours(self) -> bool:
        return self.contender == "decaysketch"


def _table(results: list[_Result], rows: int, size: int) -> Table:
    truth = next((result.answer for result in results if not result.ours), None)
    table = []
    for r in results:
        error = "unknown" if truth is None else f"{abs(r.answer / truth - 1):.2%}"
        table.append((
            r.contender, str(r.threads), f"{r.timing.best:.2f} ({r.timing.median:.2f})",
            f"{rows / r.timing.best / 1e6:.1f}", f"{r.again.best:.2g}",
            "unknown" if r.peak is None else f"{r.peak / 1e6:.0f}",
            f"{size if r.ours else rows * _ROW_BYTES:,}", error if r.ours else "exact",
        ))  # fmt: skip
    return Table(
        "One decayed sum",
        (
            "", "threads", "seconds, best (median)", "M rows/s", "next answer, seconds",
            "peak memory, MB", "bytes kept", "error",
        ),
        table,
        notes=[
            "Peak memory is the memory that the first answer adds to a process with the rows. A "
            "next answer, under any decay and at any time, reads only the sketch. The rivals read "
            "all rows again."
        ],
    )  # fmt: skip


def _comparisons(results: list[_Result], rows: int, size: int) -> list[Comparison]:
    ours = next(result for result in results if result.ours)
    found = [Comparison("bytes kept", "all rows", "bytes", size, rows * _ROW_BYTES, "less")]
    for r in results:
        if r.ours:
            continue
        rival = f"{r.contender}, {r.threads} thread{'s' if r.threads > 1 else ''}"
        pairs = [
            ("one decayed sum of rows in memory", "seconds", ours.timing.best, r.timing.best),
            ("the next decayed sum", "seconds", ours.again.best, r.again.best),
        ]
        if ours.peak and r.peak:
            pairs.append(("peak memory of one decayed sum", "bytes", ours.peak, r.peak))
        found += [
            Comparison(task, rival, unit, our, their, "less") for task, unit, our, their in pairs
        ]
    return found


def _answer_again(stream: Stream) -> tuple[Timing, int]:
    """Seconds of a sketch's further answers, and its bytes."""
    sketch = ds.DecaySketch(_params())
    feed(sketch, stream, 0, len(stream.ids), BATCH)
    now = int(stream.timestamps.max())
    sketch.sum(_DECAY, now=now)
    return clock(lambda: sketch.sum(_DECAY, now=now), 5), len(sketch.to_bytes())


def measure(rows: int, repetitions: int) -> Section:
    """Seconds, memory and bytes of one exact decayed sum, beside the sketch's."""
    section = Section(
        "Beside exact dedupe-and-sum",
        f"One decayed sum over {rows:,} rows from the web log, latest duplicate per (id, weight), "
        f"exponential decay. The sketch is built from nothing, in batches of {BATCH:,} at capacity "
        f"{CAPACITY:,}, then queried. The rivals store the rows as their own columns before the "
        "clock starts.",
    )
    stream = web_log(rows)
    cores = os.cpu_count() or 1
    entrants = [("decaysketch", 1)]
    for name in ("polars", "duckdb"):
        if machine.installed(name) is None:
            section.skipped.append(f"{name}: not installed")
            continue
        entrants += [(name, 1)] + ([(name, cores)] if cores > 1 else [])
    seconds: dict[tuple[str, int], list[float]] = {entrant: [] for entrant in entrants}
    last: dict[tuple[str, int], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npy"
        np.save(file, np.stack(stream[1:]))
        for _ in range(repetitions):
            for entrant in entrants:
                last[entrant] = _run(*entrant, file)
                seconds[entrant] += last[entrant]["seconds"]
    again, size = _answer_again(stream)
    results = []
    for (name, threads), times in seconds.items():
        timing = summary(times)
        given = last[name, threads]
        results.append(
            _Result(
                name, threads, timing, again if name == "decaysketch" else timing,
                given["peak"], given["answer"],
            )
        )  # fmt: skip
    section.tables.append(_table(results, rows, size))
    section.comparisons = _comparisons(results, rows, size)
    return section


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
