"""Group tables against the same aggregate asked group by group, in one run.

    python -m benchmarks.groups [--rows 90000] [--groups 1000] [--compared 100]

Prints processor milliseconds, the median of several runs. First the mean of all groups at once, the
same with a filter, and the count. Then regressions and comparisons of two parts for fewer groups,
with their ratio to the table of means. The last column asks a tenth of the groups by themselves,
scaled to all.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import decaysketch as ds
from decaysketch.query.modifiers import Modifiers

_RUNS = 15
_OF_EACH = 10  # every so many groups are asked by themselves
_CAPACITY = 24_000
_DECAY = "exponential(half_life=100000)"


def _sketch(rows: int, groups: int) -> ds.DecaySketch:
    """A sketch that retains about so many rows, most of them sampled, of so many groups."""
    rng = np.random.default_rng(1)
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=48, capacity=_CAPACITY, seed=3))
    fed = 16 * rows
    values = rng.integers(0, groups, fed) + np.round(rng.random(fed), 3)
    for start in range(0, fed, 100_000):
        part = slice(start, start + 100_000)
        ids = np.arange(fed)[part]
        sketch.update(values[part], 1, ids, ids)
    return sketch


def _fleet(groups: int, rows: int = 400_000) -> ds.DecaySketch:
    """A sketch with columns: a host as group, two numbers, and a part of each row."""
    rng = np.random.default_rng(1)
    hosts = np.array([f"h{k:03d}" for k in range(groups)], object)
    columns: Any = {"host": hosts[rng.integers(0, groups, rows)]}
    columns["x"] = rng.lognormal(0.0, 1.0, rows)
    columns["y"] = 3.0 + 2.0 * columns["x"] + np.abs(rng.normal(0.0, 2.0, rows))
    columns["part"] = rng.integers(0, 2, rows)
    sketch = ds.DecaySketch(
        ds.SketchParams(
            max_weight=1, id_bits=48, capacity=_CAPACITY,
            columns="host text, x float64, y float64, part int64",
        )
    )  # fmt: skip
    times, ids = np.sort(rng.integers(0, rows, rows)), np.arange(rows)
    sketch.update(columns, 1, times, ids)
    return sketch


def _milliseconds(run: Callable[[], Any], runs: int = _RUNS) -> float:
    run()
    times = []
    for _ in range(runs):
        begun = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - begun))
    return statistics.median(times)


_COMPARED: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("mean", "mean", {"of": "y"}, {}),
    ("ratio of two columns", "ratio", {}, {"columns": ["y", "x"]}),
    ("correlation", "correlation", {}, {"columns": ["x", "y"]}),
    ("regression, one slope", "regression", {}, {"columns": ["y", "x"]}),
    ("difference of means", "mean", {"of": "y", "versus": "part == 0", "how": "difference"}, {}),
    ("ratio of means, separate parts", "mean", {"of": "y", "versus": "part == 0", "how": "ratio"},
     {}),
    ("ratio of means, common rows", "mean", {"of": "y", "versus": "part >= 0", "how": "ratio"}, {}),
    ("ratio of counts, common rows", "count", {"versus": "part >= 0", "how": "ratio"}, {}),
)  # fmt: skip


def _compared(groups: int) -> None:
    view: Any = _fleet(groups).at(_DECAY)
    print(f"{view.rows} retained rows, {groups} groups            ms   of mean   one by one")
    mean = None
    for title, aggregate, modifiers, given in _COMPARED:
        where = "part == 1" if "versus" in modifiers else None

        def asked(
            aggregate: str = aggregate, modifiers: Any = modifiers, given: Any = given,
            where: str | None = where,
        ) -> None:  # fmt: skip
            chosen = Modifiers(**modifiers, by=("host",), where=where)
            view.modified(chosen).ask(aggregate, **given)

        at_once = _milliseconds(asked, 7)
        mean = mean or at_once
        some = range(0, groups, _OF_EACH)
        begun = time.process_time()
        for group in some:
            host = f"host == 'h{group:03d}'"
            own = {
                name: f"({text}) and {host}"
                for name, text in (("where", where), ("versus", modifiers.get("versus"))) if text
            }  # fmt: skip
            view.modified(Modifiers(**{"where": host} | modifiers | own)).ask(aggregate, **given)
        each = 1e3 * (time.process_time() - begun) / len(some)
        print(f"{title:32s} {at_once:8.1f} {at_once / mean:9.2f} {each * groups:12.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=90_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--compared", type=int, default=100)
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
    _compared(asked.compared)


if __name__ == "__main__":
    main()
