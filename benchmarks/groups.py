"""Group tables against the same aggregate asked group by group, in one run.

    python -m benchmarks.groups [--rows 90000] [--groups 1000]

Prints processor milliseconds, the median of several runs: the mean of all groups at once, the same
with a filter, the count, and the mean of each group by itself (of a tenth of the groups, scaled).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import decaysketch as ds

_RUNS = 15
_OF_EACH = 10  # every so many groups are asked by themselves


def _sketch(rows: int, groups: int) -> ds.DecaySketch:
    """A sketch that retains about so many rows, most of them sampled, of so many groups."""
    rng = np.random.default_rng(1)
    capacity = 24_000
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=48, capacity=capacity, seed=3))
    fed = 16 * rows
    values = rng.integers(0, groups, fed) + np.round(rng.random(fed), 3)
    for start in range(0, fed, 100_000):
        part = slice(start, start + 100_000)
        ids = np.arange(fed)[part]
        sketch.update(values[part], 1, ids, ids)
    return sketch


def _milliseconds(run: Callable[[], Any]) -> float:
    run()
    times = []
    for _ in range(_RUNS):
        begun = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - begun))
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=90_000)
    parser.add_argument("--groups", type=int, default=1_000)
    asked = parser.parse_args()
    view: Any = _sketch(asked.rows, asked.groups).at("none")
    key = "v // 1"
    table = view.by(key).ask("mean")
    print(f"{view.rows} retained rows, {len(table)} groups; processor ms, median of {_RUNS}")
    grouped = view.by(key)
    grouped.ask("count")
    print(f"mean of all groups, keys known      {_milliseconds(lambda: grouped.ask('mean')):8.2f}")
    print(f"count of all groups, keys known     {_milliseconds(lambda: grouped.ask('count')):8.2f}")
    print(
        f"mean with its keys                  "
        f"{_milliseconds(lambda: view.by(key).ask('mean')):8.2f}"
    )
    where = "v % 1 < 0.9 and age >= 0"
    filtered = _milliseconds(lambda: view.given(where=where).by(key).ask("mean"))
    print(f"mean with its keys and a filter     {filtered:8.2f}")
    some = range(0, asked.groups, asked.groups // _OF_EACH)
    begun = time.process_time()
    for group in some:
        view.given(where=f"v // 1 == {group}").ask("mean")
    each = 1e3 * (time.process_time() - begun) / len(some)
    print(f"mean of each group by itself        {each * asked.groups:8.2f}")


if __name__ == "__main__":
    main()
