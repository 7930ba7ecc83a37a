"""Rows per second: in batches, beside numpy.sort of the same timestamps, and one by one.

Updates are timed, in processor time, on a sketch that is full already. The ratio to ``numpy.sort``
is taken inside each repetition, so that a change of the machine's speed cancels.
"""

from __future__ import annotations

import statistics

import numpy as np

import decaysketch as ds
from benchmarks.report import Section, Table
from benchmarks.streams import Stream
from benchmarks.timing import clock, processor_seconds_of

__all__ = [
    "BATCHES", "CAPACITIES", "DECAY", "feed", "feed_singly", "filled", "measure", "plain_rows",
    "rate_and_ratio",
]  # fmt: skip

CAPACITIES = (800, 8_000, 24_000)
BATCHES = (100, 1_000, 10_000, 100_000)
DECAY = ds.decay.exponential(half_life=1_000)


def feed(sketch: ds.DecaySketch, stream: Stream, start: int, stop: int, batch: int) -> None:
    """Update with the rows of a stream, in batches."""
    for row in range(start, stop, batch):
        sketch.update(*stream.rows(row, min(stop, row + batch)))


def feed_singly(
    sketch: ds.DecaySketch | ds.IntegralDecaySketch, rows: list[tuple[int, int, int, int]]
) -> None:
    """Update with one observation at a time, as plain Python numbers."""
    update = sketch.update
    for value, weight, timestamp, id_ in rows:
        update(value, weight, timestamp, id_)


def plain_rows(stream: Stream, start: int, stop: int) -> list[tuple[int, int, int, int]]:
    """Rows of a stream as tuples of Python numbers."""
    return list(zip(*(column.tolist() for column in stream.rows(start, stop)), strict=True))


def filled(stream: Stream, capacity: int, rows: int) -> ds.DecaySketch:
    """A sketch of the first rows of a stream."""
    sketch = ds.DecaySketch(stream.params.with_capacity(capacity))
    feed(sketch, stream, 0, rows, 100_000)
    return sketch


def rate_and_ratio(rates: list[float], ratios: list[float]) -> str:
    """Cell of a table: best and median rate, in millions, and the median ratio."""
    return (
        f"{max(rates) / 1e6:.1f} ({statistics.median(rates) / 1e6:.1f}) "
        f"x{statistics.median(ratios):.2f}"
    )


def _in_batches(stream: Stream, repetitions: int) -> Table:
    total = len(stream.ids)
    warm = total // 3
    work = [(c, b) for c in CAPACITIES for b in BATCHES]
    rates: dict[tuple[int, int], list[float]] = {key: [] for key in work}
    ratios: dict[tuple[int, int], list[float]] = {key: [] for key in work}
    sorts = []
    for _ in range(repetitions):
        for capacity, batch in work:
            stop = total if batch >= 1_000 else warm + (total - warm) // 5
            times = stream.timestamps[warm:stop]
            sort_rate = len(times) / processor_seconds_of(lambda t=times: np.sort(t))  # type: ignore[misc]
            sketch = filled(stream, capacity, warm)
            seconds = processor_seconds_of(
                lambda s=sketch, e=stop, b=batch: feed(s, stream, warm, e, b)  # type: ignore[misc]
            )
            rate = (stop - warm) / seconds
            rates[capacity, batch].append(rate)
            ratios[capacity, batch].append(rate / sort_rate)
            sorts.append(sort_rate)
    rows = [
        [f"{capacity:,}"]
        + [rate_and_ratio(rates[capacity, b], ratios[capacity, b]) for b in BATCHES]
        for capacity in CAPACITIES
    ]
    return Table(
        "Updates in batches: million rows a second, best (median) x ratio to numpy.sort",
        ("capacity", *(f"batch {batch:,}" for batch in BATCHES)),
        rows,
        notes=[
            f"numpy.sort of the same timestamps: best {max(sorts) / 1e6:.1f}, median "
            f"{statistics.median(sorts) / 1e6:.1f} million a second."
        ],
    )


def _one_by_one(stream: Stream, repetitions: int) -> Table:
    warm = len(stream.ids) // 3
    singles = plain_rows(stream, warm, warm + min(warm, 200_000))
    rows = []
    for capacity in CAPACITIES:
        sketch = filled(stream, capacity, warm)
        timing = clock(lambda s=sketch: feed_singly(s, singles), repetitions)  # type: ignore[misc]
        rows.append(
            [f"{capacity:,}", *(f"{seconds / len(singles) * 1e9:.0f}" for seconds in timing)]
        )
    return Table(
        "Single updates, plain Python numbers: nanoseconds each, amortised",
        ("capacity", "best", "median"),
        rows,
    )


def measure(stream: Stream, repetitions: int) -> Section:
    """Updates by batch size and capacity."""
    distinct = len(np.unique(stream.ids)) / len(stream.ids)
    filled(stream, CAPACITIES[0], min(len(stream.ids), 200_000)).sum(DECAY, now=0)  # compile
    return Section(
        "Updates",
        f"The web-log stream, {len(stream.ids):,} rows, {distinct:.1%} distinct. The first "
        "third fills the sketch before the clock starts. Batches are in processor time.",
        [_in_batches(stream, repetitions), _one_by_one(stream, repetitions)],
    )
