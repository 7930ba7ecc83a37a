"""Whether samples of series equal their definition, and how fast they are built.

    python -m quality.series_state definition [BUILDS]
    python -m quality.series_state rate [REPETITIONS]

``definition`` draws sets of rows (entities with several series, weights, starts, missing values,
times that repeat, values that disagree) and parameters (capacity, resolution). It feeds parts that
overlap, in any order and any batches, merges them by random trees, some through their bytes, and
compares the rows and watermarks with :mod:`decaysketch.series.reference`, which works by sets. All
results must have the same bytes, too.

``rate`` feeds 3 million counter rows from 20,000 series in batches of 10,000, and prints rows a
second over the elements a second that ``numpy.sort`` sorts of 10,000 float64. Both are measured in
each repetition, in processor time. It prints the median.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.core.observations import MISSING_KEY, encode_values
from decaysketch.series import NO_START, SeriesParams, SeriesSketch, reference

__all__ = ["build_of", "definition", "main", "rate"]

_MAX_WEIGHT: Final = 9
_BATCH: Final = 10_000
_SERIES: Final = 20_000
_BATCHES: Final = 300


def _rows(draw: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Rows as columns. Ids below 2^16 are entities and series."""
    rows = int(draw.integers(0, 400))
    entities = draw.integers(0, draw.integers(1, 60), rows)
    times = draw.integers(-50, draw.integers(-49, 900), rows)
    values = draw.integers(-3, 4, rows).astype(np.float64)
    values[draw.random(rows) < 0.1] = np.nan
    starts = np.where(draw.random(rows) < 0.3, times - draw.integers(0, 9, rows), NO_START)
    return {
        "entities": entities, "ids": entities * 4 + draw.integers(0, 3, rows), "times": times,
        "weights": draw.integers(0, _MAX_WEIGHT + 1, rows), "values": values, "starts": starts,
    }  # fmt: skip


def _part(
    params: SeriesParams, columns: dict[str, npt.NDArray[Any]], draw: np.random.Generator
) -> SeriesSketch:
    """Feed rows in a random order and in batches of random length, some of them twice."""
    sketch = SeriesSketch(params)
    order = draw.permutation(len(columns["times"]))
    order = np.append(order, draw.choice(order, len(order) // 3)) if len(order) else order
    while len(order):
        size = int(draw.integers(1, len(order) + 1))
        given = {name: column[order[:size]] for name, column in columns.items()}
        sketch.update(
            np.ma.masked_invalid(given["values"]), given["weights"], given["times"], given["ids"],
            entities=given["entities"], starts=given["starts"],
        )  # fmt: skip
        order = order[size:]
    return sketch


def build_of(seed: int) -> tuple[SeriesSketch, SeriesSketch, Any, Any]:
    """Return a merged build, one in a single part, and the rows and watermarks by definition."""
    draw = np.random.default_rng(seed)
    params = SeriesParams(
        capacity=int(draw.integers(1, 40)), resolution=int(draw.choice([1, 1, 3, 20])), seed=seed,
        id_bits=16, max_weight=_MAX_WEIGHT,
    )  # fmt: skip
    columns = _rows(draw)
    rows = len(columns["times"])
    owners = draw.integers(0, 4, rows)
    parts = [
        _part(params, {name: each[chosen] for name, each in columns.items()}, draw)
        for part in range(4)
        for chosen in [(owners == part) | (draw.random(rows) < 0.3)]
    ]
    while len(parts) > 1:
        one, other = (parts.pop(int(draw.integers(len(parts)))) for _ in range(2))
        merged = ds.merge([one, other, one][: int(draw.integers(2, 4))])
        if draw.random() < 0.3:
            merged = SeriesSketch.from_bytes(merged.to_bytes())
        parts.append(merged)
    keys = encode_values(np.nan_to_num(columns["values"]), "float64")
    keys = np.where(np.isnan(columns["values"]), MISSING_KEY, keys)
    named = (columns[name].tolist() for name in ("entities", "weights", "ids", "times", "starts"))
    listed = [reference.Row(*row) for row in zip(*named, keys.tolist(), strict=True)]
    defined = reference.state(listed, params.capacity, params.resolution, params.sampling_words)
    return parts[0], _part(params, columns, draw), *defined


def definition(builds: int) -> int:
    """Print how many random builds differ from the definition. Return the exit status."""
    differ = 0
    for seed in range(builds):
        merged, single, rows, marks = build_of(seed)
        state = merged.state()
        found = [
            reference.Row(*row) for row in zip(*(c.tolist() for c in state.columns), strict=True)
        ]
        same = found == rows and state.watermarks.tolist() == marks
        differ += not (same and merged.to_bytes() == single.to_bytes())
    print(f"{builds:,} random builds, {differ} differ from the definition")
    return int(differ > 0)


def rate(repetitions: int) -> int:
    """Print the update rate over that of a sort. Return 0."""
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 1 << 40, _SERIES)
    print("| rows | capacity | M rows/s | over numpy.sort |")
    print("|---|---|---|---|")
    for label, resolution in (("scrapes", 1), ("scrapes, resolution 1 min", 60_000)):
        for capacity in (2_000, 20_000, 100_000):
            measured = [_once(ids, capacity, resolution) for _ in range(repetitions)]
            speed, ratio = (statistics.median(each) for each in zip(*measured, strict=True))
            print(f"| {label} | {capacity:,} | {speed / 1e6:.1f} | {ratio:.2f} |", flush=True)
    return 0


def _once(ids: npt.NDArray[np.int64], capacity: int, resolution: int) -> tuple[float, float]:
    """Return rows a second, and their ratio to sorted elements a second."""
    sketch = SeriesSketch(
        SeriesParams(capacity=capacity, resolution=resolution, id_bits=40, time_unit="ms")
    )
    each = _SERIES // _BATCH
    numbers, seconds, sorting = np.random.default_rng(1).random(_BATCH), 0.0, 0.0
    for batch in range(_BATCHES):
        tick, part = divmod(batch, each)
        chosen = ids[part * _BATCH : (part + 1) * _BATCH]
        times = np.full(_BATCH, 1_760_000_000_000 + 15_000 * tick)
        values = np.full(_BATCH, float(tick))
        started = time.process_time()
        sketch.update(values, 1, times, chosen)
        middle = time.process_time()
        np.sort(numbers)
        seconds, sorting = seconds + middle - started, sorting + time.process_time() - middle
    rows = _BATCHES * _BATCH
    return rows / seconds, sorting / seconds


def main(arguments: list[str] | None = None) -> int:
    """Run one study. Return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    studies: dict[str, tuple[Callable[[int], int], int]] = {
        "definition": (definition, 2_300), "rate": (rate, 5)
    }  # fmt: skip
    study = given[0] if given else "definition"
    if study not in studies:
        print(f"study is {study!r}; expected definition or rate")
        return 2
    run, usual = studies[study]
    return run(int(given[1]) if len(given) > 1 else usual)


if __name__ == "__main__":
    sys.exit(main())
