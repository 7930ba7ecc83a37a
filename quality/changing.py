"""Do intervals and comparisons hold for sparse, spiky and scale-changing streams?

Three studies for ``python -m quality.intervals --part ...``:

``unchanged``: two moments of a stream that repeats itself, so every difference is exactly 0. Counts
how often a comparison says ``changed``. ``sparse``: coverage of every aggregate, of a stream in the
families ``decay``, ``integral``, ``sum`` and ``median``, and how often a result misses its level
without a caveat. ``power``: the smallest change that half of the comparisons see.

Flags and spikes are as rare as they can be for a capacity: eight or eighty of them in a window of
four capacities. Each pair has its own hash and its own stream, seeded by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.query import aggregates as query
from decaysketch.query.difference import Moment, compare
from quality.tallies import CONFIDENCE, Cell, Study, Tallies, Tally, covered, silent_coverage

__all__ = ["CHANGING", "STREAMS"]

CAPACITIES = (100, 800, 19_208)
WINDOW = 4  # capacities
MAX_WEIGHT = 1_000

STREAMS = {
    "normal": "50, standard deviation 10",
    "negative": "-50, standard deviation 10",
    "flags, 8": "1 or 0, about 8 ones in a window",
    "flags, 80": "1 or 0, about 80 ones in a window",
    "negative flags, 8": "-1 or 0",
    "signed, 8": "1, -1 or 0",
    "spikes, 8": "1,000 or about 5, about 8 spikes in a window",
    "spikes, 1/60": "1,000 or about 5, one in 60",
    "zeros": "0, one in ten exponential",
    "weights 1..999": "normal values",
    "weights 1, then 10": "normal values; the scale changes once",
    "weights 1, then 100": "the same",
    "weights 1, then 1000": "the same",
    "weights 3, then 900": "the same",
    "weights 1000, then 1": "the same",
}
RANK_AT = {"negative": -50.0, "zeros": 0.0, "spikes, 8": 100.0, "spikes, 1/60": 100.0}
"""Where ranks are compared: 0.5 for flags, 50 for other values."""


class Stream(NamedTuple):
    """One observation per time unit, oldest first."""

    values: Any
    weights: Any
    times: Any
    ids: Any

    @property
    def max_weight(self) -> int:
        return 1 if int(self.weights.max()) == 1 else MAX_WEIGHT


def values_of(rng: np.random.Generator, name: str, capacity: int, rows: int) -> Any:
    """Values by name."""
    share = (8 if name.endswith(", 8") else 80) / (WINDOW * capacity)
    if "flags" in name:
        return (-1.0 if name.startswith("negative") else 1.0) * (rng.random(rows) < share)
    if name.startswith("signed"):
        return rng.choice([-1.0, 1.0], rows) * (rng.random(rows) < share)
    if name.startswith("spikes"):
        share = 1 / 60 if name.endswith("1/60") else share
        return np.where(rng.random(rows) < share, 1_000.0, rng.normal(5.0, 1.0, rows))
    if name == "zeros":
        return np.where(rng.random(rows) < 0.9, 0.0, rng.exponential(10.0, rows))
    return rng.normal(-50.0 if name == "negative" else 50.0, 10.0, rows)


def stream_of(
    rng: np.random.Generator, name: str, capacity: int, rows: int, *, period: int, turn: int
) -> Stream:
    """A stream by name.

    Args:
        rng: the source of everything.
        name: of :data:`STREAMS`.
        capacity: of the sketch.
        rows: of the stream.
        period: after so many rows values and weights repeat, except for a scale that changes.
        turn: the row at which the scale of the weights changes.
    """
    weights = np.ones(rows, np.int64)
    if name == "weights 1..999":
        weights = np.resize(rng.integers(1, 1_000, period), rows)
    elif name.startswith("weights"):
        before, after = map(int, name.removeprefix("weights ").split(", then "))
        weights = np.where(np.arange(rows) < turn, before, after)
    values = np.resize(values_of(rng, name, capacity, period), rows)
    ids = rng.permutation(1 << max(16, rows.bit_length()))[:rows].astype(np.int64) * 9_973
    return Stream(values, weights, np.arange(rows), ids)


def sketch_of(stream: Stream, capacity: int, seed: int) -> ds.DecaySketch:
    params = ds.SketchParams(max_weight=stream.max_weight, id_bits=40, capacity=capacity, seed=seed)
    sketch = ds.DecaySketch(params)
    sketch.update(*stream)
    return sketch


def cells() -> Iterator[Cell]:
    for name, capacity in product(STREAMS, CAPACITIES):
        yield name, str(capacity)


# -------------------------------------------------------------------------------- study: unchanged

COMPARED = ("count", "rate", "sum", "total", "mean", "rank")
LAGS = {"shared": 1, "apart": WINDOW}
"""Capacities between the two moments. The windows share three quarters, or nothing."""


def unchanged_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the first study."""
    name, capacity = cell[0], int(cell[1])
    rng = np.random.default_rng([21, list(STREAMS).index(name), capacity, pair])
    rows = (10 if capacity > 800 else 20) * capacity
    turn = rows - WINDOW * capacity  # the two windows that are apart have one scale each
    stream = stream_of(rng, name, capacity, rows, period=capacity, turn=turn)
    held = sketch_of(stream, capacity, int(rng.integers(1 << 62))).snapshot()
    window = ds.decay.window(WINDOW * capacity - 1)
    at = RANK_AT.get(name, 0.5 if stream.values.max() <= 1.0 else 50.0)
    for lag, capacities in LAGS.items():
        moments = Moment(window, rows - 1), Moment(window, rows - 1 - capacities * capacity)
        (drawn,) = held.pairs(*moments)
        for aggregate in COMPARED:
            if aggregate == "sum" and "then" in name:
                continue  # which did change
            value = at if aggregate == "rank" else None
            found = compare(drawn, aggregate, *moments, value=value)
            tallies.setdefault((*cell, lag, aggregate), Tally()).note(found, 0.0)


def print_unchanged(tallies: Tallies) -> None:
    print("\nnothing changed: comparisons that say `changed`, % (those without a caveat, %)")
    for capacity, lag in product(CAPACITIES, LAGS):
        if ("normal", str(capacity), lag, "count") not in tallies:
            continue
        pairs = tallies["normal", str(capacity), lag, "count"].pairs
        print(f"\ncapacity {capacity}, windows {lag}, {pairs} pairs")
        print(f"{'':>22}" + "".join(f"{name:>14}" for name in COMPARED))
        for name in STREAMS:
            found = [tallies.get((name, str(capacity), lag, each)) for each in COMPARED]
            print(f"{name:>22}" + "".join(map(_wrongly, found)))
    worst = sorted((1.0 - tally.coverage, cell) for cell, tally in tallies.items())
    print("\nmost often: " + "; ".join(f"{100 * s:.1f} % {', '.join(c)}" for s, c in worst[:-6:-1]))


def _wrongly(tally: Tally | None) -> str:
    if tally is None:
        return f"{'-':>14}"
    silent = f"({100 * tally.silent_misses / tally.pairs:.1f})"
    return f"{100 * (1.0 - tally.coverage):>7.1f} {silent:<6}"


# ----------------------------------------------------------------------------------- study: sparse

Answers = Iterable[tuple[str, ds.Estimate, float]]


def sparse_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the second study."""
    name, capacity = cell[0], int(cell[1])
    rng = np.random.default_rng([22, list(STREAMS).index(name), capacity, pair])
    rows = (12 if capacity > 100 else 25) * capacity
    stream = stream_of(rng, name, capacity, rows, period=rows, turn=rows // 2)
    sketch = sketch_of(stream, capacity, int(rng.integers(1 << 62)))
    at = RANK_AT.get(name, 0.5 if stream.values.max() <= 1.0 else 50.0)
    newest = rows - 1
    half_life = ds.decay.exponential(half_life=3 * capacity)
    ages = newest - stream.times
    first, stop = newest - 9 * capacity, newest - 6 * capacity
    inside = (stream.times >= first) & (stream.times < stop)
    (old,) = sketch.snapshot().samples(ds.decay.window(stop - 1 - first), stop - 1)
    found: dict[str, Answers] = {
        "none": answers(sketch.sample(ds.decay.none(), now=newest), stream, at, np.ones(rows)),
        "half-life 3": answers(sketch.sample(half_life, now=newest), stream, at, half_life(ages)),
        "range": answers(old, stream, at, inside * 1.0),
        "integral": of_integral(stream, capacity, at, int(rng.integers(1 << 62))),
        "samplers": of_samplers(stream, capacity, int(rng.integers(1 << 62))),
    }
    for where, each in found.items():
        for aggregate, estimate, truth in each:
            tallies.setdefault((*cell, where, aggregate), Tally()).note(estimate, truth)


def answers(sample: ds.Sample, stream: Stream, at: float, g: Any) -> Answers:
    """(aggregate, estimate, truth) of every aggregate under decay weights."""
    v, mass = stream.values, g * stream.weights
    weight = float(mass.sum())
    mean = float((mass * v).sum()) / weight
    yield "sum", query.sum(sample), weight
    yield "count", query.count(sample), float(g.sum())
    yield "total", query.total(sample), float((g * v).sum())
    yield "mean", query.mean(sample), mean
    yield "variance", query.variance(sample), float((mass * (v - mean) ** 2).sum()) / weight
    yield "rank", query.rank(sample, at), float(mass[v <= at].sum()) / weight
    order = np.argsort(v, kind="stable")
    ranks = np.cumsum(mass[order])
    truth = float(v[order][np.searchsorted(ranks, 0.5 * weight)])
    yield "median", query.quantile(sample, 0.5), truth


def of_integral(stream: Stream, capacity: int, at: float, seed: int) -> Answers:
    """The aggregates of an integral sketch under its own decay, a window."""
    params = ds.SketchParams(max_weight=stream.max_weight, id_bits=40, capacity=capacity, seed=seed)
    decay = ds.decay.integral.window(WINDOW * capacity)
    sketch = ds.IntegralDecaySketch(params, decay)
    sketch.update(*stream)
    now = int(stream.times[-1])
    (sample,) = sketch.snapshot().samples(None, now)
    g = decay(np.ones(len(stream.times), np.int64), now - stream.times).astype(np.float64)
    return answers(sample, stream, at, g)


def of_samplers(stream: Stream, capacity: int, seed: int) -> Answers:
    """Sums of the weights, and the median and ranks of the values, in a window."""
    now, width = int(stream.times[-1]), WINDOW * capacity - 1
    decay, inside = ds.decay.window(width), stream.times >= now - width
    sums = SumSampler(SumParams(max_sum=1 << 40, capacity=capacity, seed=seed))
    sums.update(stream.weights, stream.times, stream.times, source="s")
    yield "sum", sums.sum(decay, now=now), float(stream.weights[inside].sum())
    yield "count", sums.count(decay, now=now), float(inside.sum())
    counts = MedianParams(max_count=1 << 24, capacity=capacity, seed=seed)
    ranked = MedianSampler(counts)
    ranked.update(stream.values, stream.times, stream.times, source="s")
    v = np.sort(stream.values[inside])
    yield "total", ranked.total(decay, now=now), float(v.sum())
    yield "mean", ranked.mean(decay, now=now), float(v.mean())
    yield "median", ranked.quantile(0.5, decay, now=now), float(v[(len(v) + 1) // 2 - 1])


def print_sparse(tallies: Tallies) -> None:
    aggregates = list(dict.fromkeys(cell[-1] for cell in tallies))
    print("\ncoverage of the 95 % interval, % (results without a caveat, %; coverage of these)")
    for where in dict.fromkeys(cell[2] for cell in tallies):
        for capacity in CAPACITIES:
            if ("normal", str(capacity), where, "count") not in tallies:
                continue
            print(f"\n{where}, capacity {capacity}")
            print(f"{'':>22}" + "".join(f"{name:>22}" for name in aggregates))
            for name in STREAMS:
                row = [tallies.get((name, str(capacity), where, each)) for each in aggregates]
                print(f"{name:>22}" + "".join(f"{covered(t) if t else '-':>22}" for t in row))
    everything = sum(tally.pairs for tally in tallies.values())
    missed = sum(tally.silent_misses for tally in tallies.values())
    beyond = {
        cell: tally.silent_misses / tally.pairs - (1.0 - CONFIDENCE)
        for cell, tally in tallies.items()
    }
    pairs = next(iter(tallies.values())).pairs
    error = (CONFIDENCE * (1.0 - CONFIDENCE) / pairs) ** 0.5
    bound = max(0.01, 3.0 * error)
    far = sorted(((share, cell) for cell, share in beyond.items() if share >= bound), reverse=True)
    print(f"\n{100 * missed / everything:.2f} % of {everything:,} results miss without a caveat")
    print(
        f"{len(far)} of {len(tallies)} cells miss silently {100 * bound:.1f} points or more beyond "
        f"the level (standard error of a cell {100 * error:.1f})"
    )
    for share, cell in far:
        tally = tallies[cell]
        silent, held = 100 * tally.silent / tally.pairs, 100 * silent_coverage(tally)
        print(
            f"  {', '.join(cell)}: {100 * share:.1f} points beyond; silent {silent:.0f} %, of "
            f"which {held:.1f} % hold"
        )


# ------------------------------------------------------------------------------------ study: power

CHANGES = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0)
POWERS = {
    ("normal", "total"): "the values grow",
    ("flags, 80", "total"): "flags come more often",
    ("spikes, 1/60", "total"): "spikes come more often",
    ("normal", "count"): "rows come more often",
    ("weights 1..999", "count"): "rows come more often",
    ("normal", "mean"): "the values grow",
    ("flags, 80", "mean"): "flags come more often",
}


def power_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the third study: a window against the one before it, which had less."""
    name, aggregate, capacity = cell[0], cell[1], int(cell[2])
    place = list(POWERS).index((name, aggregate))
    window = ds.decay.window(WINDOW * capacity - 1)
    for change in CHANGES:
        rng = np.random.default_rng([23, place, capacity, pair])
        sketch, now = grown(rng, name, aggregate, capacity, change)
        found = sketch.compare(aggregate, now=(window, now), then=(window, now - WINDOW * capacity))
        tallies.setdefault((*cell, str(change)), Tally()).note(found, 0.0)


def grown(
    rng: np.random.Generator, name: str, aggregate: str, capacity: int, change: float
) -> tuple[ds.DecaySketch, int]:
    """A sketch of a stream whose last window has so many times as much."""
    rows = 12 * capacity
    turn = rows - WINDOW * capacity
    stream = stream_of(rng, name, capacity, rows, period=rows, turn=turn)
    late = stream.times >= turn
    if aggregate == "count":
        kept = late | (rng.random(rows) < 1.0 / change)
        stream = Stream(*(column[kept] for column in stream))
    elif name == "normal":
        stream = stream._replace(values=np.where(late, stream.values * change, stream.values))
    else:
        common = np.median(stream.values)
        kept = late | (rng.random(rows) < 1.0 / change)
        stream = stream._replace(values=np.where(kept, stream.values, common))
    return sketch_of(stream, capacity, int(rng.integers(1 << 62))), rows - 1


def power_cells() -> Iterator[Cell]:
    for (name, aggregate), capacity in product(POWERS, CAPACITIES):
        yield name, aggregate, str(capacity)


def print_power(tallies: Tallies) -> None:
    print("\nthe smallest change, in times, that half of the comparisons see (its share, %)")
    print(f"{'':>38}" + "".join(f"{f'capacity {c}':>18}" for c in CAPACITIES))
    for (name, aggregate), law in POWERS.items():
        shown = []
        for capacity in map(str, CAPACITIES):
            seen = [
                (each, 1.0 - tallies[name, aggregate, capacity, str(each)].coverage)
                for each in CHANGES
                if (name, aggregate, capacity, str(each)) in tallies
            ]
            first = next((f"{c:g} ({100 * s:.0f})" for c, s in seen if s >= 0.5), "none")
            shown.append(first if seen else "-")
        print(f"{f'{aggregate} of {name}: {law}':>38}" + "".join(f"{s:>18}" for s in shown))


CHANGING: dict[str, tuple[Study, Any, Any]] = {
    "unchanged": (unchanged_pair, cells, print_unchanged),
    "sparse": (sparse_pair, cells, print_sparse),
    "power": (power_pair, power_cells, print_power),
}
