"""Table 3: updates and point queries a second, of the public classes, on one core.

Batches of 10,000 events; all keys of the longest window asked at once. The fastest of many slices
is given, beside that of ``numpy.sort`` of 10,000 numbers in the same run and the paper's rates
(Java, one core of an Intel Xeon E5-2450). Benchmarks of the kernels are in ``benchmarks``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

import decaysketch as ds
from decaysketch.ecm import ECMSketch, RandomizedSketch
from decaysketch.ecm.randomized import RandomizedParams
from quality.ecm.accuracy import DELTA, params_of
from quality.ecm.logs import Log
from quality.figures.report import Report, Table

__all__ = ["best", "produce", "sort_rate"]

EPSILON: Final = 0.1
_BATCH: Final = 10_000
_EVENTS: Final = 1_000_000
_RANDOMIZED_BATCH: Final = 200_000
# Table 3: updates and queries a second, (wc'98, caida).
_PAPER: Final = {
    "eh": ((4_343_095, 5_344_982), (1_641_935, 2_377_502)),
    "wave": ((6_067_130, 6_205_999), (1_850_909, 3_827_267)),
    "rw": ((70_468, 72_778), (11_905, 15_108)),
}
_NAMES: Final = {
    "eh": "exponential histograms",
    "wave": "deterministic waves",
    "rw": "randomized waves",
}


def produce(logs: Sequence[Log], folder: Path) -> Report:
    """Time all kinds on all logs, one after the other."""
    rows, raw = [], []
    for log in logs:
        part = log.head(_EVENTS)
        sort = sort_rate()
        for kind in _PAPER:
            update, query = _randomized(part) if kind == "rw" else _counted(part, kind)
            paper = _PAPER[kind]
            rows.append(
                [
                    f"{log.name}, {_NAMES[kind]}",
                    f"{update / 1e6:.2f}",
                    f"{update / sort:.3f}",
                    f"{np.mean(paper[0]) / 1e6:.2f}",
                    f"{query / 1e6:.2f}",
                    f"{query / sort:.3f}",
                    f"{np.mean(paper[1]) / 1e6:.2f}",
                ]
            )
            raw.append([log.name, kind, update, query, sort])
    headings = ["log, cells", "updates M/s", "/ sort", "paper M/s", "queries M/s", "/ sort",
                "paper M/s"]  # fmt: skip
    report = Report(
        "ecm-table-3",
        "Table 3: updates and point queries a second",
        f"epsilon = {EPSILON}, delta = {DELTA}; {_EVENTS:,} events of each log in batches of "
        f"{_BATCH:,} ({_RANDOMIZED_BATCH:,} of randomized waves, which are plain NumPy), keys "
        "hashed and events checked; every key of the longest window asked at once; fastest slice, "
        f"and its ratio to numpy.sort of {_BATCH:,} numbers. The paper's are means over its logs, "
        "on another machine.",
        tables=[Table("Rates", headings, rows)],
        claims=[],
        headings=["log", "kind", "updates", "queries", "sort"],
        raw=raw,
    )
    report.write(folder)
    return report


def _counted(log: Log, kind: str) -> tuple[float, float]:
    sketch = ECMSketch(params_of(EPSILON, "eh" if kind == "eh" else "wave"), source=0, epoch=1)
    update = best(
        partial(sketch.update, log.keys[at : at + _BATCH], log.times[at : at + _BATCH])
        for at in range(0, len(log.keys) - _BATCH + 1, _BATCH)
    )
    keys, decay = np.flatnonzero(log.exact(log.window)), ds.decay.window(log.window)
    query = best((lambda: sketch.key_count(keys, decay).value) for _ in range(50))
    return _BATCH / update, len(keys) / query


def _randomized(log: Log) -> tuple[float, float]:
    sketch = RandomizedSketch(RandomizedParams.for_accuracy(EPSILON, DELTA))
    ids, size = np.arange(len(log.keys)), min(_RANDOMIZED_BATCH, len(log.keys))
    update = best(
        partial(sketch.update, *(column[at : at + size] for column in (log.keys, log.times, ids)))
        for at in range(0, min(len(ids), 3 * size) - size + 1, size)
    )
    keys = np.flatnonzero(log.exact(log.window))
    query = best((lambda: sketch.counts(keys, log.window)) for _ in range(5))
    return size / update, len(keys) / query


def best(calls: Iterable[Callable[[], object]]) -> float:
    """Seconds of the fastest of these."""
    fastest = float("inf")
    for call in calls:
        began = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def sort_rate() -> float:
    rng = np.random.default_rng(0)
    columns = [rng.random(_BATCH) for _ in range(50)]
    return _BATCH / best(partial(np.sort, column) for column in columns)
