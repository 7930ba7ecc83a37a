"""Do the intervals hold the truth as often as they say, and are they as narrow as they can be?

    python -m quality.intervals [--pairs N] [--jobs N] [--capacity N]
                                [--part ids|aggregates|hard|contrasts|devices]
                                [--part unchanged|sparse|power]

Prints studies. Each *pair* is a hash seed of its own and a stream of its own, both fixed by
the number of the pair, so that a figure can be run again and was not chosen.

``ids``: the 95 % interval of ``sum`` for structured and random ids, with ids mixed and, to show why
they are, not mixed; by weights and capacity, under four decays. ``aggregates``: every aggregate
under several decays. ``hard``: streams that a small sample cannot know, and how often an answer
says so (``caveats`` of an estimate). ``contrasts``: ranges, rates, two moments compared, and the
joint intervals of histograms and distribution functions. ``devices``: distinct ones that were
active, those that were silent, the mean of what each said last. ``unchanged``, ``sparse`` and
``power``: see :mod:`quality.changing`. Of each cell: coverage, how often
the truth was below and above, worst ``|z|`` (error over standard error), and the mean width of the
intervals over 2 x 1.96 x RMSE, which is 1 for a normal interval of known standard error.

By default 2,000 pairs of a cell, so that the standard error of a coverage is half a point: about an
hour and a half on two cores. Below each study stand the cells whose coverage is more than
1.5 points, and more than three standard errors, from what was aimed at.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import decaysketch as ds
from decaysketch.decay.area import area
from decaysketch.query import aggregates as query
from decaysketch.query.difference import Moment, compare
from quality import changing
from quality.tallies import (
    CONFIDENCE,
    FAR,
    Cell,
    Study,
    Tallies,
    Tally,
    covered,
    print_far,
    silent_coverage,
)

PAIRS = 2000  # of each cell
PAIRS_IN_TASK = 20

IDS = ("consecutive", "sensor", "random")
WEIGHTS = ("1", "1..999", "999")
CAPACITIES = (100, 800)  # of the study of ids
ROWS = {20: 8_000, 100: 20_000, 800: 20_000, 24_000: 150_000}  # of a stream, by capacity


class Stream(NamedTuple):
    """Distinct observations, one per time unit, oldest first."""

    values: Any  # float64, NaN where missing
    weights: Any
    times: Any
    ids: Any


def make_stream(rng: np.random.Generator, rows: int, ids: str, weights: str, values: str) -> Stream:
    """A stream of observations by named laws."""
    times = np.arange(rows)
    if ids == "consecutive":
        id_column = 1_000_000 + times
    elif ids == "sensor":  # 200 sensors report in random order: sensor * 10^6 + sequence number
        sensors = rng.integers(0, 200, rows)
        order = np.argsort(sensors, kind="stable")
        ranked = np.arange(rows) - np.searchsorted(sensors[order], sensors[order])
        sequence = np.empty(rows, dtype=np.int64)
        sequence[order] = ranked
        id_column = sensors * 1_000_000 + sequence
    else:
        # Distinct: an observation is its (id, weight).
        id_column = (rng.integers(0, 1 << 22, rows) << 18) + rng.permutation(rows)
    if weights == "1..999":
        weight_column = rng.integers(1, 1000, rows)
    else:
        weight_column = np.full(rows, int(weights))
    if values == "sensor":  # a slow cycle, noise, rounding to a tenth; one in twenty is missing
        missing = rng.random(rows) < 0.05
        cycle = 20 + 5 * np.sin(times / 700.0) + rng.normal(0, 2, rows)
        value_column = np.where(missing, np.nan, np.round(cycle, 1))
    elif values == "skewed":
        off = rng.random(rows) < 0.08  # a reading of 0; all others are different
        value_column = np.where(off, 0.0, rng.lognormal(0, 1, rows))
    else:
        value_column = np.zeros(rows)
    return Stream(value_column, weight_column, times, id_column)


def decays(capacity: int) -> dict[str, ds.Decay]:
    """Decays whose weight lies at different multiples of what level 0 holds."""
    return {
        "none": ds.decay.none(),
        "window 1.5": ds.decay.window(1.5 * capacity),
        "window 6": ds.decay.window(6 * capacity),
        "half-life 0.5": ds.decay.exponential(half_life=0.5 * capacity),
        "half-life 3": ds.decay.exponential(half_life=3 * capacity),
        "polynomial 1": ds.decay.polynomial(1, scale=capacity / 10),
    }


def build(stream: Stream, capacity: int, seed: int, id_mix: str) -> ds.DecaySketch:
    params = ds.SketchParams(
        max_weight=999,
        id_bits=40,
        capacity=capacity,
        seed=seed,
        id_mix=id_mix,  # type: ignore[arg-type]
    )
    sketch = ds.DecaySketch(params)
    missing = np.isnan(stream.values)
    values = np.ma.masked_array(stream.values, missing) if missing.any() else stream.values
    sketch.update(values, stream.weights, stream.times, stream.ids)
    return sketch


# --------------------------------------------------------------------------------------- study: ids


def ids_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the first study."""
    ids, weights, capacity, id_mix = cell
    # The same streams and seeds whether or not ids are mixed.
    rng = np.random.default_rng([1, IDS.index(ids), WEIGHTS.index(weights), int(capacity), pair])
    stream = make_stream(rng, ROWS[int(capacity)], ids, weights, "none")
    sketch = build(stream, int(capacity), int(rng.integers(1 << 63)), id_mix)
    now = len(stream.times) - 1
    for name, decay in decays(int(capacity)).items():
        truth = float(np.sum(decay(now - stream.times) * stream.weights))
        tallies.setdefault((*cell, name), Tally()).note(sketch.sum(decay, now=now), truth)


def ids_cells() -> Iterator[Cell]:
    for id_mix, capacity, weights, ids in product(("keyed", "none"), CAPACITIES, WEIGHTS, IDS):
        yield ids, weights, str(capacity), id_mix


def print_ids(tallies: Tallies) -> None:
    names = list(decays(100))
    for id_mix in ("keyed", "none"):
        title = "ids mixed (the default)" if id_mix == "keyed" else "ids NOT mixed (id_mix='none')"
        print(f"\nsum, {title}: coverage of the 95 % interval, %  |  all decays together")
        print(
            f"{'capacity':>8} {'weights':>7} {'ids':>12}"
            + "".join(f"{name:>14}" for name in names)
            + f"  |{'coverage':>9}{'worst |z|':>11}{'width':>7}"
        )
        for capacity, weights, ids in product(CAPACITIES, WEIGHTS, IDS):
            cells = [tallies[(ids, weights, str(capacity), id_mix, name)] for name in names]
            coverage = [tally.coverage for tally in cells]
            print(
                f"{capacity:>8} {weights:>7} {ids:>12}"
                + "".join(f"{100 * share:>14.1f}" for share in coverage)
                + f"  |{100 * float(np.mean(coverage)):>9.2f}"
                + f"{max(tally.worst_z for tally in cells):>11.1f}"
                + f"{float(np.mean([tally.relative_width for tally in cells])):>7.2f}"
            )
    print_far({cell: tally for cell, tally in tallies.items() if cell[3] == "keyed"})


# -------------------------------------------------------------------------------- study: aggregates


def light(values: Any, weights: Any) -> Any:
    """A predicate on both columns."""
    return (values > 18) & (weights < 500)


def aggregates_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the second study."""
    values, weights, capacity = cell
    rng = np.random.default_rng([2, WEIGHTS.index(weights), int(capacity), len(values), pair])
    stream = make_stream(rng, ROWS[int(capacity)], "sensor", weights, values)
    sketch = build(stream, int(capacity), int(rng.integers(1 << 63)), "keyed")
    now = len(stream.times) - 1
    present = ~np.isnan(stream.values)
    order = np.flatnonzero(present)[np.argsort(stream.values[present], kind="stable")]
    for name, decay in decays(int(capacity)).items():
        sample = sketch.sample(decay, now=now)
        for aggregate, estimate, truth in answers(sample, stream, order, decay(now - stream.times)):
            tallies.setdefault((*cell, name, aggregate), Tally()).note(estimate, truth)


def answers(
    sample: ds.Sample, stream: Stream, order: Any, g: Any
) -> Iterable[tuple[str, ds.Estimate, float]]:
    """(aggregate, estimate, truth) of every aggregate; ``order`` sorts by value those that have
    one."""
    decayed = g * stream.weights
    yield "sum", query.sum(sample), float(decayed.sum())
    yield "count", query.count(sample), float(g.sum())
    v, w, g, d = (column[order] for column in (stream.values, stream.weights, g, decayed))
    weight = float(d.sum())
    yield "total", query.total(sample), float((g * v).sum())
    signed = query.total(sample, lambda values, weights: weights * (values - 20.0))
    yield "total (signed)", signed, float((d * (v - 20.0)).sum())
    mean = float((d * v).sum()) / weight
    yield "mean", query.mean(sample), mean
    yield "variance", query.variance(sample), float((d * (v - mean) ** 2).sum()) / weight
    ranks = np.cumsum(d)
    quantiles = (0.1, 0.5, 0.9, 0.99)
    for q, estimate in zip(quantiles, query.quantile(sample, quantiles), strict=True):
        yield f"quantile {q}", estimate, float(v[np.searchsorted(ranks, q * weight)])
    middle = float(v[len(v) // 2])
    yield "rank", query.rank(sample, middle), float(d[v <= middle].sum()) / weight
    share = float(d[light(v, w)].sum()) / weight
    yield "selectivity", query.selectivity(sample, light), share
    # A frequent value, chosen by the stream and not by the sample.
    starts = np.flatnonzero(np.diff(v, prepend=-np.inf))
    masses = np.add.reduceat(d, starts)
    common, mass = v[starts[masses.argmax()]], float(masses.max())
    frequency = query.selectivity(sample, lambda values, weights: values == common)
    yield "frequency", frequency, mass / weight
    group = query.total(sample, lambda values, weights: weights * (values == common))
    yield "group sum", group, mass


def aggregates_cells() -> Iterator[Cell]:
    for capacity, values, weights in product(ROWS, ("sensor", "skewed"), ("1", "1..999")):
        yield values, weights, str(capacity)


def print_aggregates(tallies: Tallies) -> None:
    names = list(decays(100))
    aggregates = list(dict.fromkeys(key[-1] for key in tallies))
    for cell in aggregates_cells():
        values, weights, capacity = cell
        if (*cell, names[0], aggregates[0]) not in tallies:
            continue  # another capacity was asked for
        print(
            f"\ncapacity {capacity}, values {values!r}, weights {weights}: coverage of the 95 % "
            "interval, % (mean width / (2 x 1.96 x RMSE))"
        )
        print(f"{'':>15}" + "".join(f"{name:>16}" for name in names) + f"{'all':>8}")
        for aggregate in aggregates:
            cells = [tallies[(*cell, name, aggregate)] for name in names]
            print(
                f"{aggregate:>15}"
                + "".join(
                    f"{100 * tally.coverage:>9.1f} ({tally.relative_width:4.2f})" for tally in cells
                )
                + f"{100 * float(np.mean([tally.coverage for tally in cells])):>8.1f}"
            )
    print_far(tallies)


# -------------------------------------------------------------------------------------- study: hard

HARD = {
    "heavy": "12 weights of 10^5, the rest 1",
    "log-uniform 10": "weights 1..2^10, equally many to an octave",
    "log-uniform 20": "weights 1..2^20, equally many to an octave",
    "log-uniform 30": "weights 1..2^30, equally many to an octave",
    "spiky": "weights 1; values 5, one in 300 of them 1,000",
    "old": "weights 1..999, asked 5,000 half-lives later where there are half-lives",
}
HARD_CAPACITIES = (40, 100, 800)


def hard_stream(rng: np.random.Generator, name: str, rows: int) -> Stream:
    """One of the streams that are hard to know from a sample."""
    weights = np.ones(rows, dtype=np.int64)
    values = rng.normal(20.0, 3.0, rows)
    if name == "heavy":
        weights[rng.choice(rows, 12, replace=False)] = 100_000
    elif name.startswith("log-uniform"):
        weights = np.floor(2.0 ** (int(name.split()[1]) * rng.random(rows))).astype(np.int64)
    elif name == "spiky":
        values = np.where(rng.random(rows) < 1 / 300, 1_000.0, 5.0)
    else:
        weights = rng.integers(1, 1_000, rows)
    return Stream(values, weights, np.arange(rows), rng.choice(1 << 24, rows, replace=False))


def hard_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the third study."""
    name, capacity = cell[0], int(cell[1])
    rng = np.random.default_rng([3, list(HARD).index(name), capacity, pair])
    stream = hard_stream(rng, name, 25 * capacity)
    params = ds.SketchParams(
        max_weight=1 << 30 if name == "log-uniform 30" else 1 << 20,
        id_bits=24,
        capacity=capacity,
        seed=int(rng.integers(1 << 63)),
    )
    sketch = ds.DecaySketch(params)
    sketch.update(*stream)
    half_life = 3 * capacity
    newest = len(stream.times) - 1
    order = np.argsort(stream.values, kind="stable")
    for decay_name in ("none", "half-life 3"):
        fading = decay_name != "none"
        decay = ds.decay.exponential(half_life=half_life) if fading else ds.decay.none()
        # Relative weights are those of the newest time, which is exact where the decay has faded.
        later = 5_000 * half_life if fading and name == "old" else 0
        sample = sketch.sample(decay, now=newest + later)
        weights = decay(newest - stream.times)
        for aggregate, estimate, truth in answers(sample, stream, order, weights):
            if later and aggregate in ("sum", "count", "total", "total (signed)", "group sum"):
                truth = 0.0  # as a float64
            tallies.setdefault((*cell, decay_name, aggregate), Tally()).note(estimate, truth)


def hard_cells() -> Iterator[Cell]:
    for name, capacity in product(HARD, HARD_CAPACITIES):
        yield name, str(capacity)


def print_hard(tallies: Tallies) -> None:
    shown = ("sum", "count", "total", "mean", "variance", "quantile 0.5", "rank")
    for name, law in HARD.items():
        print(
            f"\n{name} ({law}): coverage of the 95 % interval, % "
            "(answers without a caveat, %; coverage of these)"
        )
        columns = list(product(HARD_CAPACITIES, ("none", "half-life 3")))
        print(f"{'':>13}" + "".join(f"{f'{c} {d}':>22}" for c, d in columns) + f"{'|z|':>8}")
        for aggregate in shown:
            cells = [tallies[(name, str(c), d, aggregate)] for c, d in columns]
            print(f"{aggregate:>13}" + "".join(map(covered, cells)) + _worst(cells))
    missing = [
        (cell, tally)
        for cell, tally in tallies.items()
        if tally.silent >= 0.5 * tally.pairs and silent_coverage(tally) < CONFIDENCE - 3 * FAR
    ]
    print(f"\n{len(missing)} cells in which answers without a caveat miss 4.5 points or more")
    for cell, tally in missing:
        print("  " + ", ".join(cell) + f": {100 * silent_coverage(tally):.1f} %")


def _worst(cells: list[Tally]) -> str:
    worst = max(tally.worst_z for tally in cells)
    return f"{worst:>8.1f}" if worst < 1e6 else f"{'-':>8}"  # a standard error of 0: see quantiles


# --------------------------------------------------------------------------------- study: contrasts

CONTRAST_WEIGHTS = {
    "1": "equal weights",
    "1..999": "weights 1..999",
    "heavy": "weights 1..2^20, equally many to an octave",
}
CONTRAST_CAPACITIES = (100, 800)
_EDGES = (14.0, 16.0, 18.0, 20.0, 22.0, 24.0, 26.0)
_HOUR = 3_600


def contrast_stream(rng: np.random.Generator, weights: str) -> Stream:
    """A slow cycle and noise, over 20,000 times."""
    rows = 20_000
    times = np.sort(rng.integers(0, rows, rows))
    values = 20.0 + 2.0 * np.sin(times / 3_000.0) + rng.normal(0.0, 3.0, rows)
    drawn = {
        "1": np.ones(rows, np.int64),
        "1..999": rng.integers(1, 1_000, rows),
        "heavy": np.floor(2.0 ** (20 * rng.random(rows))).astype(np.int64),
    }
    return Stream(values, drawn[weights], times, np.arange(rows))


def contrasts_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the fourth study."""
    weights, capacity = cell[0], int(cell[1])
    rng = np.random.default_rng([4, list(CONTRAST_WEIGHTS).index(weights), capacity, pair])
    stream = contrast_stream(rng, weights)
    params = ds.SketchParams(
        max_weight=1 if weights == "1" else 1 << 20,
        id_bits=24,
        capacity=capacity,
        seed=int(rng.integers(1 << 63)),
    )
    sketch = ds.DecaySketch(params)
    sketch.update(*stream)
    for name, found in contrasts(sketch.snapshot(), stream):
        tally = tallies.setdefault((*cell, name), Tally())
        if len(found) == 1:
            tally.note(*found[0])
        else:  # joint intervals: one miss is a miss of all
            tally.note(*min(found, key=_room))


def _room(found: tuple[ds.Estimate, float]) -> float:
    """How far within the interval the truth lies; below 0 where it does not."""
    estimate, truth = found
    return min(truth - estimate.lower, estimate.upper - truth)


def contrasts(held: Any, stream: Stream) -> Iterator[tuple[str, list[tuple[ds.Estimate, float]]]]:
    """(name, what was estimated and the truth) of each; several where they are held together."""
    now = int(stream.times.max())
    v, w, t = stream.values, stream.weights, stream.times
    flag = v > 26.0

    def under(moment: Moment) -> Any:
        decay, at = moment
        counted = t <= at
        return np.where(counted, decay(np.where(counted, at - t, 0)), 0.0)

    hour, fading = ds.decay.window(_HOUR - 1), ds.decay.exponential(half_life=_HOUR / 3)
    pairs = {
        "apart": (Moment(hour, now), Moment(hour, now - _HOUR)),
        "shared": (Moment(hour, now), Moment(hour, now - _HOUR // 3)),
        "fading": (Moment(fading, now), Moment(fading, now - _HOUR)),
    }
    for name, moments in pairs.items():
        (pair,) = held.pairs(*moments)
        a, b = map(under, moments)
        spans = [area(moment.decay) for moment in moments]
        low = v <= 20.0
        totals = ((a * v).sum(), (b * v).sum())
        means = [float((g * w * v).sum() / (g * w).sum()) for g in (a, b)]
        ranks = [float((g * w * low).sum() / (g * w).sum()) for g in (a, b)]
        rare = [float((g * w * flag).sum() / (g * w).sum()) for g in (a, b)]
        truths = {
            ("count", "difference"): a.sum() - b.sum(),
            ("sum", "difference"): float((a * w).sum() - (b * w).sum()),
            ("total", "difference"): totals[0] - totals[1],
            ("mean", "difference"): means[0] - means[1],
            ("rate", "difference"): a.sum() / spans[0] - b.sum() / spans[1],
            ("rank", "difference"): ranks[0] - ranks[1],
            ("rank of 26", "difference"): rare[1] - rare[0],
            ("count", "ratio"): a.sum() / b.sum(),
            ("sum", "ratio"): float((a * w).sum() / (b * w).sum()),
        }
        for (aggregate, how), truth in truths.items():
            question, _, at = aggregate.partition(" of ")
            value = (float(at) if at else 20.0) if question == "rank" else None
            found = compare(pair, question, *moments, how, value=value)  # type: ignore[arg-type]
            yield f"{how} of {aggregate}, {name}", [(found, float(truth))]
    inside = (t >= 12_000) & (t < 16_000)
    (sample,) = held.samples(ds.decay.window(3_999), 15_999)
    yield "count between", [(query.count(sample), float(inside.sum()))]
    mean = float((w * v)[inside].sum() / w[inside].sum())
    yield "mean between", [(query.mean(sample), mean)]
    (sample,) = held.samples(ds.decay.window(2 * _HOUR), now)
    inside = t >= now - 2 * _HOUR
    yield "rate", [(query.rate(sample), float(inside.sum()) / (2 * _HOUR))]
    decayed, whole = np.where(inside, w, 0), float(w[inside].sum())
    bounds = [-np.inf, *_EDGES, np.inf]
    counts = np.histogram(v, bounds, weights=decayed)[0] / whole
    drawn = query.histogram(sample, _EDGES)
    shares = [drawn.below, *(each.share for each in drawn.bins), drawn.above]
    yield "histogram, all bins", list(zip(shares, counts.tolist(), strict=True))
    order = np.argsort(v)
    shares_up_to = np.concatenate([[0.0], np.cumsum(decayed[order]) / whole])
    for points in (_EDGES, tuple(np.linspace(10.0, 30.0, 100).tolist())):
        truths_at = shares_up_to[np.searchsorted(v[order], points, side="right")]
        ends = query.cdf(sample, points)
        yield f"cdf, all {len(points)} points", list(zip(ends, truths_at.tolist(), strict=True))


def contrasts_cells() -> Iterator[Cell]:
    for weights, capacity in product(CONTRAST_WEIGHTS, CONTRAST_CAPACITIES):
        yield weights, str(capacity)


def print_of(cells: Callable[[], Iterator[Cell]]) -> Callable[[Tallies], None]:
    """A row for each answer, a column for each cell of a study."""

    def shown(tallies: Tallies) -> None:
        columns = list(cells())
        names = list(dict.fromkeys(cell[-1] for cell in tallies))
        print("\ncoverage of the 95 % interval, % (answers without a caveat, %; coverage of these)")
        print(f"{'':>32}" + "".join(f"{f'{kind}, {c}':>20}" for kind, c in columns))
        for name in names:
            found = [tallies[(*cell, name)] for cell in columns]
            print(f"{name:>32}" + "".join(f"{covered(tally):>20}" for tally in found))
        print_far(tallies)

    return shown


# ----------------------------------------------------------------------------------- study: devices

DEVICE_STREAMS = {
    "equal": "every device speaks as often",
    "skewed": "as 1 / rank",
    "bursts": "each for a while, and then never again",
}
_DEVICES, _SPAN = 8_000, 86_400
_LOOKED_BACK = (600, _HOUR, 6 * _HOUR)


def device_readings(rng: np.random.Generator, law: str) -> tuple[Any, Any]:
    """Devices and times of 30,000 readings of a day."""
    rows = 30_000
    times = np.sort(rng.integers(0, _SPAN, rows))
    if law == "equal":
        return rng.integers(0, _DEVICES, rows), times
    if law == "skewed":
        shares = 1.0 / np.arange(1, _DEVICES + 1)
        return rng.choice(_DEVICES, rows, p=shares / shares.sum()), times
    ends = np.sort(rng.integers(0, _SPAN, _DEVICES))
    near = np.searchsorted(ends, times).clip(0, _DEVICES - 1)
    return (near + rng.integers(0, 40, rows)).clip(0, _DEVICES - 1), times


def devices_pair(cell: Cell, pair: int, tallies: Tallies) -> None:
    """One pair of the study of devices: a sketch whose ids are the devices."""
    law, capacity = cell[0], int(cell[1])
    rng = np.random.default_rng([5, list(DEVICE_STREAMS).index(law), capacity, pair])
    device, times = device_readings(rng, law)
    params = ds.SketchParams(capacity=capacity, seed=int(rng.integers(1 << 63)))
    sketch = ds.DecaySketch(params)
    values = rng.normal(20.0, 3.0, len(times)) + device % 7
    sketch.update(values, 1, times, ds.observation_ids(device, params=params))
    devices = ds.Devices(sketch)
    last = np.full(_DEVICES, -1)
    order = np.lexsort((values, times))
    last[device[order]] = order  # the latest reading, by time and then by value, is written last
    last = last[last >= 0]
    heard, said = times[last], values[last]
    now = int(times.max())
    for width in _LOOKED_BACK:
        spoke = heard >= now - width
        found = {
            "active": (devices.active(width), spoke.sum()),
            "silent": (devices.silent_count(width), (~spoke).sum()),
            "mean of": (devices.mean(width), said[spoke].mean()),
        }
        for name, (estimate, truth) in found.items():
            key = (*cell, f"{name}, {width} s")
            tallies.setdefault(key, Tally()).note(estimate, float(truth))


def devices_cells() -> Iterator[Cell]:
    for law, capacity in product(DEVICE_STREAMS, CONTRAST_CAPACITIES):
        yield law, str(capacity)


# ------------------------------------------------------------------------------------------ running

STUDIES: dict[str, tuple[Study, Callable[[], Iterator[Cell]], Callable[[Tallies], None]]] = {
    "ids": (ids_pair, ids_cells, print_ids),
    "aggregates": (aggregates_pair, aggregates_cells, print_aggregates),
    "hard": (hard_pair, hard_cells, print_hard),
    "contrasts": (contrasts_pair, contrasts_cells, print_of(contrasts_cells)),
    "devices": (devices_pair, devices_cells, print_of(devices_cells)),
    **changing.CHANGING,
}


def run_task(study: str, cell: Cell, first: int, last: int) -> Tallies:
    """Pairs first..last - 1 of a cell."""
    tallies: Tallies = {}
    for pair in range(first, last):
        STUDIES[study][0](cell, pair, tallies)
    return tallies


def run(study: str, pairs: int, jobs: int, capacity: int | None = None) -> Tallies:
    """All cells of a study, or those of one capacity."""
    tasks = [
        (study, cell, first, min(first + PAIRS_IN_TASK, pairs))
        for cell in STUDIES[study][1]()
        if capacity is None or str(capacity) in cell
        for first in range(0, pairs, PAIRS_IN_TASK)
    ]
    total: Tallies = {}
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_task, *task) for task in tasks]
        for done, future in enumerate(futures, start=1):
            for key, tally in future.result().items():
                total.setdefault(key, Tally()).add(tally)
            if sys.stderr.isatty():
                print(f"\r{study}: {done} of {len(tasks)} tasks", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of each cell (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--part", choices=sorted(STUDIES), help="one study only")
    parser.add_argument("--capacity", type=int, help="cells of this capacity only")
    options = parser.parse_args()
    warnings.simplefilter("error")
    print(
        f"decaysketch {ds.__version__}, NumPy {np.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}"
    )
    for study in [options.part] if options.part else ["ids", "aggregates"]:
        start = time.perf_counter()
        STUDIES[study][2](run(study, options.pairs, options.jobs, options.capacity))
        print(
            f"\n{study}: {options.pairs:,} pairs of each cell; "
            f"{time.perf_counter() - start:.0f} s with {options.jobs} processes"
        )


if __name__ == "__main__":
    main()
