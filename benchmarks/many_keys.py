"""``python -m benchmarks.many_keys``: one sketch for each of many keys, built and merged at once.

Rates are processor time of one core, beside ``numpy.argsort`` of the key column in the same
repetition: what a grouping by sorting would cost before it has built anything.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from rich.console import Console

import decaysketch as ds
from benchmarks import machine
from benchmarks.report import Section, Table, show
from benchmarks.timing import processor_seconds_of, summary
from decaysketch.tables import ColumnMapping, KeyedBuilder, partition_merger

__all__ = ["main", "measure"]

KEYS = (1, 1_000, 100_000, 1_000_000)
CAPACITY = 80
_BATCH = 1 << 18  # rows of a table, as a Parquet reader hands them on
_PARTIALS = 3  # of each key, where they are merged
_MAPPING = ColumnMapping(time="time", ids=("id",), value="value", weight="weight")
_PARAMS = ds.SketchParams(max_weight=999, id_bits=40, capacity=CAPACITY)


@dataclass
class _Case:
    """What was measured for one number of keys, one entry for each repetition."""

    build: list[float]
    write: list[float]
    merge: list[float]
    argsort: list[float]


def log_of(rows: int, keys: int, seed: int = 1) -> pa.Table:
    """A log whose times rise roughly, with random ids, weights below 1,000 and decimal values."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "time": np.arange(rows) + rng.integers(0, 1_000, rows),
            "id": rng.integers(0, 1 << 40, rows),
            "key": rng.integers(0, keys, rows) * 1_000_003 + 17,
            "value": np.round(rng.normal(20, 5, rows), 1),
            "weight": rng.integers(1, 1_000, rows),
        }
    )


def _fold(log: pa.Table) -> KeyedBuilder:
    builder = KeyedBuilder(_PARAMS, _MAPPING, ["key"])
    for batch in log.to_batches(_BATCH):
        builder.add(batch)
    return builder


def _built(log: pa.Table) -> KeyedBuilder:
    """A builder that has handed on its sketches; to do so again costs the bytes alone."""
    builder = _fold(log)
    list(builder.batches())
    return builder


def _partials(log: pa.Table) -> list[pa.RecordBatch]:
    """Sketches of ``_PARTIALS`` parts of a log, in the order of their keys."""
    size = -(-log.num_rows // _PARTIALS)
    parts = [
        batch
        for start in range(0, log.num_rows, size)
        for batch in _fold(log.slice(start, size)).batches()
    ]
    table = pa.Table.from_batches(parts).sort_by("key")
    batches: list[pa.RecordBatch] = table.to_batches(10_000)
    return batches


def _measure(rows: int, keys: int, repetitions: int) -> tuple[_Case, int]:
    log = log_of(rows, keys)
    key = log["key"].to_numpy()
    found = _Case([], [], [], [])
    partials = _partials(log)
    for _ in range(repetitions):
        found.argsort.append(processor_seconds_of(lambda: np.argsort(key)))
        builders: list[KeyedBuilder] = []
        found.build.append(processor_seconds_of(lambda b=builders: b.append(_built(log))))  # type: ignore[misc]
        found.write.append(processor_seconds_of(lambda b=builders: list(b[0].batches())))  # type: ignore[misc]
        merge = partition_merger(["key"])
        found.merge.append(processor_seconds_of(lambda m=merge: list(m(iter(partials)))))  # type: ignore[misc]
    return found, len(np.unique(key))


def measure(rows: int, repetitions: int) -> Section:
    """Build, write and merge by number of keys."""
    _partials(log_of(min(rows, 50_000), 100))  # compile
    list(partition_merger(["key"])(iter(_partials(log_of(5_000, 100)))))
    table = []
    for keys in KEYS:
        found, distinct = _measure(rows, keys, repetitions)
        build, write, merge, argsort = (
            summary(seconds) for seconds in (found.build, found.write, found.merge, found.argsort)
        )
        ratio = np.median(np.array(found.argsort) / np.array(found.build))
        table.append(
            [
                f"{distinct:,}",
                f"{rows / build.best / 1e6:.1f} ({rows / build.median / 1e6:.1f})",
                f"x{ratio:.2f}",
                f"{rows / argsort.best / 1e6:.1f}",
                f"{write.best / distinct * 1e6:,.1f}",
                f"{merge.best / distinct * 1e6:,.1f}",
            ]
        )
    return Section(
        "Many keys",
        f"A log of {rows:,} rows with five columns, from Arrow tables of {_BATCH:,} rows; capacity "
        f"{CAPACITY}. Reading, hashing of ids and numbering of keys are within.",
        [
            Table(
                "One sketch for each key",
                (
                    "keys",
                    "rows to bytes: million rows a second, best (median)",
                    "ratio to numpy.argsort of the key",
                    "argsort: million rows a second",
                    "of that bytes and digest: microseconds a key",
                    f"merge of {_PARTIALS} parts: microseconds a key",
                ),
                table,
            )
        ],
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and print, with machine and versions."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.many_keys", description=__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--repetitions", type=int, default=3)
    given = options.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    machine.one_core()
    console.print("\n".join(machine.describe()) + "\n", highlight=False)
    show(measure(given.rows, given.repetitions), console)


if __name__ == "__main__":
    main()
