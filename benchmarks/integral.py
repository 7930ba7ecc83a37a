"""The sketch of one integral decay: updates beside numpy.sort, queries, merges, bytes.

The clock is told with every batch, as its latest timestamp, since that is what lets the sketch
forget. As in ``updates.py``, updates are timed on a sketch that is full already, in processor time,
and the ratio to ``numpy.sort`` of the same timestamps is taken inside each repetition.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np

import decaysketch as ds
from benchmarks.report import Section, Table
from benchmarks.streams import Stream
from benchmarks.timing import processor_seconds_of, summary
from benchmarks.updates import BATCHES, CAPACITIES, feed_singly, plain_rows, rate_and_ratio
from decaysketch.integral import wire
from decaysketch.query import aggregates

__all__ = ["DECAYS", "feed", "feed_singly_told", "measure"]

DECAYS = {
    "exponential(rate=0.01)": ds.decay.integral.exponential(rate=0.01),
    "polynomial(1)": ds.decay.integral.polynomial(1),
    "window(200)": ds.decay.integral.window(200),
}
_TOLD, _GATHERED = 4_000, 100_000  # single updates that are timed, with and without the clock
_PARTS = 8

_Case = tuple[str, int]  # a decay and a capacity
_CASES = [(decay, capacity) for decay in DECAYS for capacity in CAPACITIES]


def feed(sketch: ds.IntegralDecaySketch, stream: Stream, start: int, stop: int, batch: int) -> None:
    """Update in batches; the clock is the latest timestamp of each."""
    for row in range(start, stop, batch):
        columns = stream.rows(row, min(stop, row + batch))
        sketch.update(*columns, now=int(columns[2].max()))


def feed_singly_told(sketch: ds.IntegralDecaySketch, rows: list[tuple[int, int, int, int]]) -> None:
    """Update with one observation at a time; the clock is its timestamp."""
    for value, weight, timestamp, id_ in rows:
        sketch.update(value, weight, timestamp, id_, now=timestamp)


def _filled(stream: Stream, case: _Case, rows: int) -> ds.IntegralDecaySketch:
    decay, capacity = case
    sketch = ds.IntegralDecaySketch(stream.params.with_capacity(capacity), DECAYS[decay])
    feed(sketch, stream, 0, rows, 100_000)
    return sketch


def _labels(case: _Case) -> list[str]:
    return [case[0], f"{case[1]:,}"]


def _in_batches(stream: Stream, repetitions: int) -> Table:
    total = len(stream.ids)
    warm = total // 3
    rates: dict[tuple[_Case, int], list[float]] = {(c, b): [] for c in _CASES for b in BATCHES}
    ratios: dict[tuple[_Case, int], list[float]] = {key: [] for key in rates}
    sorts = []
    for _ in range(repetitions):
        for case, batch in rates:
            stop = total if batch >= 1_000 else warm + (total - warm) // 10
            times = stream.timestamps[warm:stop]
            sort_rate = len(times) / processor_seconds_of(lambda t=times: np.sort(t))  # type: ignore[misc]
            sketch = _filled(stream, case, warm)
            seconds = processor_seconds_of(
                lambda s=sketch, e=stop, b=batch: feed(s, stream, warm, e, b)  # type: ignore[misc]
            )
            rate = (stop - warm) / seconds
            rates[case, batch].append(rate)
            ratios[case, batch].append(rate / sort_rate)
            sorts.append(sort_rate)
    return Table(
        "Integral decays in batches: million rows a second, best (median) x ratio to numpy.sort",
        ("decay", "capacity", *(f"batch {batch:,}" for batch in BATCHES)),
        [
            _labels(case) + [rate_and_ratio(rates[case, b], ratios[case, b]) for b in BATCHES]
            for case in _CASES
        ],
        labels=2,
        notes=[
            f"numpy.sort of the same timestamps: best {max(sorts) / 1e6:.1f}, median "
            f"{statistics.median(sorts) / 1e6:.1f} million a second."
        ],
    )


def _one_by_one(stream: Stream, repetitions: int) -> Table:
    warm = len(stream.ids) // 3
    gathered = plain_rows(stream, warm, warm + min(warm, _GATHERED))
    told = gathered[:_TOLD]
    seconds: dict[_Case, tuple[list[float], list[float]]] = {case: ([], []) for case in _CASES}
    full = {case: _filled(stream, case, warm) for case in _CASES}
    for _ in range(repetitions):
        for case in _CASES:
            for times, rows, way in zip(
                seconds[case], (gathered, told), (feed_singly, feed_singly_told), strict=True
            ):
                sketch = full[case].copy()
                took = processor_seconds_of(lambda s=sketch, r=rows, w=way: w(s, r))  # type: ignore[misc]
                times.append(took / len(rows))
    return Table(
        "Single updates, plain Python numbers: nanoseconds each, amortised, best (median)",
        ("decay", "capacity", "clock left alone", "clock told with each"),
        [
            _labels(case)
            + [f"{min(t) * 1e9:.0f} ({statistics.median(t) * 1e9:.0f})" for t in seconds[case]]
            for case in _CASES
        ],
        labels=2,
        notes=[
            "If you pass no time, the sketch collects single observations and merges them "
            "together. If you pass a time, it merges at once."
        ],
    )


def _parts(stream: Stream, case: _Case) -> list[ds.IntegralDecaySketch]:
    """Sketches of gateways that heard overlapping parts, at one clock."""
    parts = [_filled(stream, case, 0) for _ in range(_PARTS)]
    length = len(stream.ids)
    for row in range(0, length, 10_000):
        for turn in (0, 1):
            part = parts[(row // 10_000 + turn) % _PARTS]
            feed(part, stream, row, min(length, row + 10_000), 10_000)
    now = int(stream.timestamps.max())
    for part in parts:
        part.advance(now)
        part.state()
    return parts


def _finished_actions(
    stream: Stream, case: _Case
) -> tuple[ds.IntegralDecaySketch, dict[str, Callable[[], object]]]:
    sketch, parts = _filled(stream, case, len(stream.ids)), _parts(stream, case)
    now = int(stream.timestamps.max())
    sketch.advance(now)
    state, blob, decay = sketch.state(), sketch.to_bytes(), sketch.decay
    fresh = ds.IntegralDecaySketch.from_state
    return sketch, {
        "merge 2": lambda: ds.merge(parts[:2]).state(),
        f"merge {_PARTS}": lambda: ds.merge(parts).state(),
        "first sum": lambda: fresh(state).sum(now=now),
        "sum, warm": lambda: sketch.sum(now=now),
        "sum by level": lambda: aggregates.sum(sketch.sample(now=now, estimator="level")),
        "encode": lambda: wire.encode(state),
        "decode": lambda: wire.decode(blob, decay=decay),
    }


def _finished(stream: Stream, repetitions: int) -> Table:
    rows = []
    names: list[str] = []
    for case in _CASES:
        sketch, actions = _finished_actions(stream, case)
        names = list(actions)
        seconds: dict[str, list[float]] = {name: [] for name in actions}
        for action in actions.values():
            action()
        for _ in range(repetitions):
            for name, action in actions.items():
                seconds[name].append(processor_seconds_of(action))
        timings = [summary(times) for times in seconds.values()]
        size = len(sketch.to_bytes())
        rows.append([
            *_labels(case), f"{len(sketch):,}",
            *(f"{t.best * 1e3:.2f} ({t.median * 1e3:.2f})" for t in timings),
            f"{size:,}", f"{size / max(1, len(sketch)):.2f}",
        ])  # fmt: skip
    return Table(
        "Integral decays, finished: milliseconds, best (median); bytes",
        ("decay", "capacity", "rows", *names, "bytes", "bytes a row"),
        rows,
        labels=2,
        notes=[
            "Queries are at the clock. The first sum draws the stratified sample, and later ones "
            "share it. By level, the paper's estimator, each query draws a sample."
        ],
    )


def measure(stream: Stream, repetitions: int) -> Section:
    """Updates by decay, capacity and batch size; then merges, queries and bytes."""
    for decay in DECAYS:
        _filled(stream, (decay, CAPACITIES[0]), min(len(stream.ids), 200_000))  # compile
    return Section(
        "One integral decay",
        f"IntegralDecaySketch on the web-log stream, {len(stream.ids):,} rows. The first third "
        "fills the sketch before the clock starts, and every batch passes the time. All figures "
        "are in processor time. Merges combine sketches that received overlapping parts.",
        [
            _in_batches(stream, repetitions),
            _one_by_one(stream, repetitions),
            _finished(stream, 2 * repetitions),
        ],
    )
