"""``python -m benchmarks``: updates, merges, queries, bytes; every rate beside numpy.sort.

Everything runs on one core. Repetitions of what is compared are interleaved, and the best of them
is reported together with the median: on a machine that others use as well, the best is the nearer
to what the code costs. The ratio to ``numpy.sort`` of the same timestamps is taken inside each
repetition.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import decaysketch as ds
from benchmarks import streams

CAPACITIES = (800, 8_000, 24_000)
BATCHES = (100, 1_000, 10_000, 100_000)
WARM_ROWS = 1_000_000  # the sketch is full before the clock starts
DECAY = ds.decay.exponential(half_life=1_000)

console = Console()


class Timing(NamedTuple):
    """Seconds of one call: best and median of the repetitions."""

    best: float
    median: float


def clock(action: Callable[[], object], repetitions: int) -> Timing:
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return Timing(min(seconds), statistics.median(seconds))


def describe_machine() -> None:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "scipy"))
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    console.print(
        f"{cpu}, {os.cpu_count()} cores (one used), {platform.system()} {platform.machine()}, "
        f"load {loads}\nPython {platform.python_version()}, {packages}, "
        f"decaysketch {version('decaysketch')}"
    )


def filled(stream: streams.Stream, capacity: int, rows: int = WARM_ROWS) -> ds.DecaySketch:
    sketch = ds.DecaySketch(stream.params.with_capacity(capacity))
    for start in range(0, rows, 100_000):
        sketch.update(*stream.rows(start, min(rows, start + 100_000)))
    return sketch


def batch_updates(stream: streams.Stream, repetitions: int) -> None:
    """Rows per second by capacity and batch size, in rows that arrive at a full sketch."""
    total = len(stream.ids)
    work = [(c, b) for c in CAPACITIES for b in BATCHES]
    rates: dict[tuple[int, int], list[float]] = {key: [] for key in work}
    ratios: dict[tuple[int, int], list[float]] = {key: [] for key in work}
    sorts = []
    for _ in track(range(repetitions), "updates in batches", console=console, transient=True):
        for capacity, batch in work:
            stop = total if batch >= 1_000 else min(total, WARM_ROWS + 400_000)
            timestamps = stream.timestamps[WARM_ROWS:stop].copy()
            start = time.perf_counter()
            np.sort(timestamps)
            sort_rate = len(timestamps) / (time.perf_counter() - start)
            sketch = filled(stream, capacity)
            start = time.perf_counter()
            for row in range(WARM_ROWS, stop, batch):
                sketch.update(*stream.rows(row, min(stop, row + batch)))
            rate = (stop - WARM_ROWS) / (time.perf_counter() - start)
            rates[capacity, batch].append(rate)
            ratios[capacity, batch].append(rate / sort_rate)
            sorts.append(sort_rate)
    table = Table(
        title="Updates in batches: million rows a second, best (median); ratio to numpy.sort"
    )
    table.add_column("capacity", justify="right")
    for batch in BATCHES:
        table.add_column(f"batch {batch:,}", justify="right")
    for capacity in CAPACITIES:
        table.add_row(
            f"{capacity:,}",
            *(
                f"{max(rates[capacity, b]) / 1e6:.1f} "
                f"({statistics.median(rates[capacity, b]) / 1e6:.1f}) "
                f"x{statistics.median(ratios[capacity, b]):.2f}"
                for b in BATCHES
            ),
        )
    console.print(table)
    console.print(
        f"numpy.sort of the same timestamps: best {max(sorts) / 1e6:.1f}, median "
        f"{statistics.median(sorts) / 1e6:.1f} million a second\n"
    )


def single_updates(stream: streams.Stream, repetitions: int) -> None:
    table = Table(title="Single updates, plain Python numbers (nanoseconds each)")
    for name in ("capacity", "amortised, best", "median"):
        table.add_column(name, justify="right")
    rows = list(
        zip(*(c.tolist() for c in stream.rows(WARM_ROWS, WARM_ROWS + 200_000)), strict=True)
    )
    for capacity in CAPACITIES:
        sketch = filled(stream, capacity)

        def feed(sketch: ds.DecaySketch = sketch) -> None:
            update = sketch.update
            for value, weight, timestamp, id_ in rows:
                update(value, weight, timestamp, id_)

        timing = clock(feed, repetitions)
        table.add_row(f"{capacity:,}", *(f"{seconds / len(rows) * 1e9:.0f}" for seconds in timing))
    console.print(table)


def merges_queries_bytes(stream: streams.Stream, repetitions: int) -> None:
    """What is done with finished sketches, in milliseconds."""
    table = Table(title="Merges, queries and bytes: milliseconds, best (median)")
    for name in (
        "capacity", "rows", "merge 2", "merge 64", "first query", "sum, warm", "quantiles, warm",
        "encode", "decode",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    now = int(stream.timestamps.max())
    for capacity in track(CAPACITIES, "merges and queries", console=console, transient=True):
        parts = [ds.DecaySketch(stream.params.with_capacity(capacity)) for _ in range(64)]
        length = len(stream.ids)
        for row in range(0, length, 10_000):  # gateways that heard overlapping parts
            for turn in (0, 1):
                part = parts[(row // 10_000 + turn) % 64]
                part.update(*stream.rows(row, min(length, row + 10_000)))
        sketch = filled(stream, capacity, length)
        state = sketch.state()
        blob = sketch.to_bytes()
        for part in parts:
            part.state()

        def first_query(state: ds.SketchState = state) -> None:
            ds.DecaySketch.from_state(state).sum(DECAY, now=now)

        def quantiles(sketch: ds.DecaySketch = sketch) -> None:
            sketch.quantile([0.1, 0.5, 0.9], DECAY, now=now)

        actions: list[Callable[[], object]] = [
            lambda parts=parts: ds.merge(parts[:2]).state(),  # type: ignore[misc]
            lambda parts=parts: ds.merge(parts).state(),  # type: ignore[misc]
            first_query,
            lambda sketch=sketch: sketch.sum(DECAY, now=now),  # type: ignore[misc]
            quantiles,
            lambda state=state: ds.wire.encode(state),  # type: ignore[misc]
            lambda blob=blob: ds.wire.decode(blob),  # type: ignore[misc]
        ]
        timings = []
        for action in actions:
            action()
            timings.append(clock(action, repetitions))
        table.add_row(
            f"{capacity:,}",
            f"{len(sketch):,}",
            *(f"{t.best * 1e3:.2f} ({t.median * 1e3:.2f})" for t in timings),
        )
    console.print(table)


def retained_bytes(rows: int) -> None:
    """Bytes of a sketch for each observation it retains."""
    table = Table(title="Bytes for each retained observation, parameters embedded")
    for name in ("stream", "capacity", "rows", "bytes", "bytes a row", "id bits / 8 + 2.5"):
        table.add_column(name, justify="left" if name == "stream" else "right")
    wifi = streams.wifi()
    measured = {
        "web log (section 5.1)": streams.web_log(rows),
        "random 40-bit ids": streams.random_ids(rows),
        "Wi-Fi log, seconds": wifi,
    }
    for name, stream in measured.items():
        if stream is None:
            table.add_row(name, "skipped: no ../shared/data here")
            continue
        for capacity in (800, 24_000):
            sketch = filled(stream, capacity, len(stream.ids))
            size = len(sketch.to_bytes())
            table.add_row(
                name, f"{capacity:,}", f"{len(sketch):,}", f"{size:,}",
                f"{size / len(sketch):.2f}", f"{stream.params.id_bits / 8 + 2.5:.2f}",
            )  # fmt: skip
    tiny = ds.DecaySketch(streams.random_ids(1_000).params)
    tiny.update(*streams.random_ids(1_000).rows(0, 10))
    for embedded in (False, True):
        size = len(tiny.to_bytes(embed_params=embedded))
        label = "with" if embedded else "without"
        table.add_row(f"10 rows, {label} parameters", "24,000", "10", f"{size}", f"{size / 10:.1f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the web-log stream")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    describe_machine()
    stream = streams.web_log(arguments.rows)
    distinct = len(np.unique(stream.ids)) / len(stream.ids)
    console.print(f"web-log stream: {arguments.rows:,} rows, {distinct:.1%} distinct\n")
    filled(stream, CAPACITIES[0]).sum(DECAY, now=0)  # compile, or load what was compiled before
    batch_updates(stream, arguments.repetitions)
    single_updates(stream, arguments.repetitions)
    merges_queries_bytes(stream, arguments.repetitions * 2)
    retained_bytes(arguments.rows)


if __name__ == "__main__":
    main()
