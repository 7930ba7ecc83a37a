"""What is done with finished sketches: merges, queries, bytes."""

from __future__ import annotations

from collections.abc import Callable

import decaysketch as ds
from benchmarks import streams
from benchmarks.report import Section, Table
from benchmarks.streams import Stream
from benchmarks.timing import clock
from benchmarks.updates import CAPACITIES, DECAY, filled

__all__ = ["measure"]


def _merges_and_queries(stream: Stream, repetitions: int) -> Table:
    length = len(stream.ids)
    now = int(stream.timestamps.max())
    rows = []
    for capacity in CAPACITIES:
        parts = [ds.DecaySketch(stream.params.with_capacity(capacity)) for _ in range(64)]
        for row in range(0, length, 10_000):  # gateways that heard overlapping parts
            for turn in (0, 1):
                part = parts[(row // 10_000 + turn) % 64]
                part.update(*stream.rows(row, min(length, row + 10_000)))
        sketch = filled(stream, capacity, length)
        state = sketch.state()
        blob = sketch.to_bytes()
        for part in parts:
            part.state()
        actions: list[Callable[[], object]] = [
            lambda p=parts: ds.merge(p[:2]).state(),  # type: ignore[misc]
            lambda p=parts: ds.merge(p).state(),  # type: ignore[misc]
            lambda s=state: ds.DecaySketch.from_state(s).sum(DECAY, now=now),  # type: ignore[misc]
            lambda s=sketch: s.sum(DECAY, now=now),  # type: ignore[misc]
            lambda s=sketch: s.quantile([0.1, 0.5, 0.9], DECAY, now=now),  # type: ignore[misc]
            lambda s=state: ds.wire.encode(s),  # type: ignore[misc]
            lambda b=blob: ds.wire.decode(b),  # type: ignore[misc]
        ]
        timings = []
        for action in actions:
            action()
            timings.append(clock(action, repetitions))
        rows.append(
            [f"{capacity:,}", f"{len(sketch):,}"]
            + [f"{t.best * 1e3:.2f} ({t.median * 1e3:.2f})" for t in timings]
        )
    return Table(
        "Merges, queries and bytes: milliseconds, best (median)",
        (
            "capacity", "rows", "merge 2", "merge 64", "first query", "sum, warm",
            "quantiles, warm", "encode", "decode",
        ),
        rows,
    )  # fmt: skip


def _bytes_of_rows(stream: Stream) -> tuple[Table, list[str]]:
    length = len(stream.ids)
    measured = {
        "web log (section 5.1)": stream,
        "random 40-bit ids": streams.random_ids(length),
        "Wi-Fi log, seconds": streams.wifi(),
    }
    rows, skipped = [], []
    for name, log in measured.items():
        if log is None:
            skipped.append(f"{name}: its file is not here")
            continue
        for capacity in (800, 24_000):
            sketch = filled(log, capacity, len(log.ids))
            size = len(sketch.to_bytes())
            rows.append((
                name, f"{capacity:,}", f"{len(sketch):,}", f"{size:,}",
                f"{size / len(sketch):.2f}", f"{log.params.id_bits / 8 + 2.5:.2f}",
            ))  # fmt: skip
    ten = streams.random_ids(1_000)
    tiny = ds.DecaySketch(ten.params)
    tiny.update(*ten.rows(0, 10))
    for embedded in (False, True):
        size = len(tiny.to_bytes(embed_params=embedded))
        label = "with" if embedded else "without"
        rows.append(
            (f"10 rows, {label} parameters", "24,000", "10", f"{size}", f"{size / 10:.1f}", "")
        )
    columns = ("stream", "capacity", "rows", "bytes", "bytes a row", "id bits / 8 + 2.5")
    return Table("Bytes for each retained observation, parameters embedded", columns, rows), skipped


def measure(stream: Stream, repetitions: int) -> Section:
    """Merges, queries, encoding, decoding, and bytes of a row."""
    sizes, skipped = _bytes_of_rows(stream)
    return Section(
        "Merges, queries and bytes",
        "Merges combine sketches that received overlapping parts. A first query also computes the "
        "sample that later ones share. The last column of the bytes is the aim of the design.",
        [_merges_and_queries(stream, 2 * repetitions), sizes],
        skipped=skipped,
    )
