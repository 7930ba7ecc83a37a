"""``python -m benchmarks.coverage``: what coverage of many sources costs, next to theta sketches.

Times are processor time of one core, best and median. "all pairs" is a cold start: rows of every
source are matched, gathered and every pair is summed, with an interval for the pairs that are
returned. ``numpy.sort`` of as many int64 stands in the same row.

Theta sketches (DataSketches) of about the same bytes count overlaps, differences and Jaccard of all
time. Errors are RMS over seeds of the hash, on the same drawn messages.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import datasketches
import numpy as np
from rich.console import Console

import decaysketch as ds
from benchmarks import machine
from benchmarks.report import Section, Table, show
from benchmarks.timing import processor_seconds_of, summary

__all__ = ["main"]

NOW = 1_700_000_000_000 + 10**9
LIMIT = 1000  # pairs returned


def sources(
    groups: int, of_group: int, messages: int, heard: float, capacity: int
) -> dict[str, ds.Snapshot]:
    """Sources by group: those of one group hear parts of the same messages."""
    rng = np.random.default_rng(1)
    params = ds.SketchParams(capacity=capacity, seed=3, time_unit="ms")
    made: dict[str, ds.Snapshot] = {}
    for group in range(groups):
        times = np.sort(NOW - rng.integers(0, 10**9, messages))
        ids = rng.integers(0, 1 << 40, messages)
        for source in range(of_group):
            rows = np.flatnonzero(rng.random(messages) < heard)
            sketch = ds.DecaySketch(params)
            sketch.update(None, 1, times[rows], ids[rows])
            made[f"{group:03d}-{source:02d}"] = sketch.snapshot()
    return made


CASES = {
    "12 x 24,000, 87 % heard": (1, 12, 400_000, 0.87, 24_000),
    "12 x 24,000, 10 % heard": (1, 12, 4_000_000, 0.10, 24_000),
    "1,000 x 800, groups of 20": (50, 20, 6_000, 0.5, 800),
    "10,000 x 100, groups of 20": (500, 20, 2_000, 0.4, 100),
}


def _times(repetitions: int) -> Iterator[tuple[Any, ...]]:
    for name, shape in CASES.items():
        given = sources(*shape)
        decay = ds.decay.exponential(half_life=10**8)

        def all_pairs(given: dict[str, ds.Snapshot] = given, decay: ds.Decay = decay) -> list[Any]:
            view = ds.SourceSet(given, guard=0).at(decay, NOW)
            return view.overlaps(limit=LIMIT)

        match = ds.SourceSet(given, guard=0).joints(range(len(given)))[0].match
        numbers = np.random.default_rng(2).integers(0, 1 << 60, match.rows)
        ours = summary([processor_seconds_of(all_pairs) for _ in range(repetitions)])
        sort = summary(
            [processor_seconds_of(partial(np.sort, numbers)) for _ in range(repetitions)]
        )
        yield (
            name, f"{match.rows:,}", f"{len(match):,}",
            f"{1e3 * ours.best:.0f} ({1e3 * ours.median:.0f})", f"{1e3 * sort.best:.0f}",
        )  # fmt: skip


def _errors(seeds: int) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(4)
    n = 120_000
    for label, rates in (("most is in both", (0.8, 0.7)), ("5 % is in both", (0.52, 0.53))):
        heard = rng.random((n, 2)) < rates
        if label.startswith("5"):
            both = heard.all(axis=1) & (rng.random(n) < 0.8)
            heard[both, rng.integers(0, 2, int(both.sum()))] = False
        times = np.sort(rng.integers(0, 10**9, n))
        ids = [np.flatnonzero(heard[:, source]) for source in range(2)]
        both, alone = heard.all(axis=1).sum(), (heard[:, 0] & ~heard[:, 1]).sum()
        truths = {"overlap": both, "a - b": alone, "Jaccard": both / heard.any(axis=1).sum()}
        errors: dict[str, dict[str, list[float]]] = {
            who: {name: [] for name in truths} for who in ("ours", "theta")
        }
        size: dict[str, list[int]] = {"ours": [], "theta": []}
        for seed in range(seeds):
            for who, asked in (("ours", _ours), ("theta", _theta)):
                found, held = asked(ids, times, seed)
                size[who].append(held)
                for name, truth in truths.items():
                    errors[who][name].append(found[name] / truth - 1.0)
        for name in truths:
            rms = {
                who: float(np.sqrt(np.mean(np.square(each[name])))) for who, each in errors.items()
            }
            yield (
                label, name, f"{np.mean(size['ours']):,.0f}", f"{np.mean(size['theta']):,.0f}",
                f"{rms['ours']:.3f}", f"{rms['theta']:.3f}",
            )  # fmt: skip


Results = tuple[dict[str, float], int]


def _ours(ids: list[Any], times: Any, seed: int) -> Results:
    params = ds.SketchParams(capacity=700, seed=seed, time_unit="ms")
    given = {}
    for name, rows in zip("ab", ids, strict=True):
        given[name] = ds.DecaySketch(params)
        given[name].looks_at_times = False
        given[name].update(None, 1, times[rows], rows)
    view = ds.SourceSet(given, guard=0).at("none")
    found = {
        "overlap": view.count("a & b").value,
        "a - b": view.count("a - b").value,
        "Jaccard": view.share("a & b", of="a | b").value,
    }
    return found, len(given["a"].to_bytes())


def _theta(ids: list[Any], _times: Any, seed: int) -> Results:
    made = []
    for rows in ids:
        sketch = datasketches.update_theta_sketch(10, seed=9001 + seed)
        for each in rows.tolist():
            sketch.update(each)
        made.append(sketch.compact())
    intersection = datasketches.theta_intersection(seed=9001 + seed)
    for sketch in made:
        intersection.update(sketch)
    left = datasketches.theta_a_not_b(seed=9001 + seed).compute(*made)
    similarity = datasketches.theta_jaccard_similarity.jaccard(*made, 9001 + seed)
    found = {
        "overlap": intersection.get_result().get_estimate(),
        "a - b": left.get_estimate(),
        "Jaccard": similarity[1],
    }
    return found, len(made[0].serialize())


def measure(repetitions: int, seeds: int) -> Section:
    """Times, and errors next to theta sketches."""
    times = (
        "sources",
        "rows",
        "messages",
        "all pairs: ms, best (median)",
        "numpy.sort of the rows",
    )
    errors = ("messages", "result", "bytes a source: ours", "theta", "RMS error: ours", "theta")
    return Section(
        "Coverage",
        f"Sketches in memory, half-life; {LIMIT:,} pairs are returned with their intervals. Theta "
        "sketches have no window, no decay, no value and no id to look up.",
        [
            Table(
                "From the sketches of all sources to all pairs", times, list(_times(repetitions))
            ),
            Table("One number of all time at equal bytes", errors, list(_errors(seeds)), labels=2),
        ],
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and print, with machine and versions."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    options.add_argument("--repetitions", type=int, default=4)
    options.add_argument("--seeds", type=int, default=20)
    given = options.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    machine.one_core()
    console.print("\n".join(machine.describe()) + "\n", highlight=False)
    show(measure(given.repetitions, given.seeds), console)


if __name__ == "__main__":
    main()
