"""How accurate samples of series are: bias, coverage of intervals, and two collectors.

    python -m quality.series coverage [HASHES]
    python -m quality.series collectors [DRAWS]
    python -m quality.series weights [HASHES]
    python -m quality.series joins [HASHES]
    python -m quality.series sizes

``coverage`` asks eight queries under three decays of three populations and of a small fleet, at
three capacities, and compares every interval with the result of all rows. Populations: *even*,
*heavy* (Pareto 1.5 rates, very unequal numbers of rows), *bursty* (sessions, late series), and
*few* (24 series of 2,000 rows). It prints the mean error, the share of intervals that hold the
truth, and how many of those that do not hold it say ``few-series``.

``collectors`` draws 200 counters that two collectors scrape every 15 s for two hours, with missed
scrapes, an outage, late rows and resets, and compares the increase of the last hour with that of
the counters themselves, for clocks that agree, that are 2 s apart, and where one is 28 s behind.

``joins`` compares the correlation, covariance and slope of two gauges of 3,000 devices, read at
different times, with the result of all rows: where all devices have as many rows, where row
counts are log-normal and a third of the devices is in one stream alone, and where one of the levels
has a heavy tail.

``weights`` compares equal sampling with declared weights, for Pareto rates. ``sizes`` prints bytes
a row. Seeds are 0, 1, 2, ...: nothing was chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.query.estimate import Estimate
from decaysketch.series import SeriesParams, SeriesSketch

__all__ = ["JOINS", "Stream", "collected", "covered", "joined", "main", "paired", "population"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

HORIZON: Final = 43_200
VALIDITY: Final = 1_800
GAP: Final = 900
CAPACITIES: Final = (500, 3_000, 12_000)
POPULATIONS: Final = ("even", "heavy", "bursty", "few")
DECAYS: Final = ("window(15000)", "exponential(half_life=5000)", "polynomial(2, scale=6000)")
ALL: Final = 1 << 20  # a capacity that retains every row


@dataclass(frozen=True)
class Stream:
    """Rows of a population: series, time, and what a counter, a gauge and a state show."""

    ids: Int64Array
    times: Int64Array
    counters: Float64Array
    gauges: Float64Array
    states: Float64Array

    def sketch(self, values: Float64Array, capacity: int, seed: int, **more: Any) -> SeriesSketch:
        """A sketch of one of the columns."""
        weights = more.pop("weights", 1)
        params = SeriesParams(capacity=capacity, seed=seed, id_bits=32, **more)
        sketch = SeriesSketch(params)
        sketch.update(values, weights, self.times, self.ids)
        return sketch


def population(
    kind: str, series: int = 1_500, mean_rows: int = 40, seed: int = 11
) -> tuple[Stream, Float64Array]:
    """A population, and the rates of its counters."""
    if kind == "few":
        kind, series, mean_rows = "even", 24, 2_000
    draw = np.random.default_rng(seed)
    columns: list[tuple[Any, ...]] = []
    rates = np.zeros(series)
    for number in range(series):
        times = np.unique(_times(kind, mean_rows, draw).astype(np.int64))
        times = times[(times >= 0) & (times < HORIZON)]
        rates[number] = draw.pareto(1.5) + 0.1 if kind == "heavy" else draw.lognormal(0, 0.7)
        resets = np.sort(draw.uniform(0, HORIZON, draw.poisson(1.0)))
        since = np.concatenate([[0], resets])[np.searchsorted(resets, times, side="right")]
        noise = np.cumsum(draw.normal(0, 0.3, len(times)))
        scale = draw.lognormal(0, 0.5) if kind == "heavy" else 1.0
        gauge = draw.normal(20, 4) * scale + noise
        state = (np.cumsum(draw.random(len(times)) < 0.15) + draw.integers(0, 3)) % 3
        counter = np.floor(rates[number] * (times - since))
        columns.append((np.full(len(times), number), times, counter, gauge, state.astype(float)))
    return Stream(*(np.concatenate(each) for each in zip(*columns, strict=True))), rates


def _times(kind: str, mean_rows: int, draw: np.random.Generator) -> Float64Array:
    if kind == "heavy":
        rows = max(3, int(mean_rows / np.exp(0.72) * draw.lognormal(0, 1.2)))
        return np.sort(draw.uniform(0, HORIZON, rows))
    if kind == "bursty":
        bursts = [
            draw.uniform(0, HORIZON)
            + np.cumsum(draw.exponential(60, draw.poisson(mean_rows / 2) + 1))
            for _ in range(draw.integers(1, 4))
        ]
        return np.concatenate(bursts)
    step = HORIZON / mean_rows
    times = np.arange(draw.uniform(0, step), HORIZON, step)
    times = times + draw.uniform(-0.2, 0.2, len(times)) * step
    return times[draw.random(len(times)) > 0.08]


# ---------------------------------------------------------------------------------------- coverage


@dataclass
class Cell:
    """What became of one query: errors relative to the truth, and intervals."""

    errors: list[float] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    flagged: list[bool] = field(default_factory=list)

    def add(self, found: Estimate, truth: float) -> None:
        slack = 1e-9 * abs(truth)
        self.errors.append((found.value - truth) / (truth or 1.0))
        self.held.append(found.lower - slack <= truth <= found.upper + slack)
        self.flagged.append("few-series" in found.caveats)

    @property
    def figures(self) -> tuple[float, float, float, float, float, float]:
        """Covered, flagged, covered of those not flagged, silent misses, rms error, mean error."""
        held, flagged = np.array(self.held), np.array(self.flagged)
        errors = np.array(self.errors)
        unflagged = float(held[~flagged].mean()) if (~flagged).any() else float("nan")
        return (
            float(held.mean()), float(flagged.mean()), unflagged,
            float((~held & ~flagged).mean()), float(np.sqrt((errors**2).mean())),
            float(errors.mean()),
        )  # fmt: skip


_Query = Callable[[Any, str], Estimate]

QUERIES: Final[dict[str, tuple[str, _Query]]] = {
    "increase": ("counters", lambda sketch, decay: sketch.increase(decay, guard=0)),
    "time-weighted mean": ("gauges", lambda sketch, decay: sketch.time_average(VALIDITY, decay)),
    "time in state": (
        "states",
        lambda sketch, decay: sketch.time_in_state("v == 2", decay, validity=VALIDITY),
    ),
    "transitions": ("states", lambda sketch, decay: sketch.transitions(decay)),
    "availability": ("gauges", lambda sketch, decay: sketch.availability(VALIDITY, decay)),
    "interval p90": ("gauges", lambda sketch, decay: sketch.interval_quantile(0.9, decay)),
    "sessions": ("gauges", lambda sketch, decay: sketch.sessions(GAP, decay)),
    "p90 over series": (
        "gauges",
        lambda sketch, decay: sketch.average_quantile(0.9, decay, validity=VALIDITY),
    ),
}


def covered(
    kind: str, hashes: int, capacities: tuple[int, ...] = CAPACITIES
) -> Iterator[tuple[int, str, str, Cell]]:
    """Capacity, query, decay and what became of it, of a population."""
    stream, _ = population(kind)
    whole = {name: stream.sketch(getattr(stream, name), ALL, 0) for name in _COLUMNS}
    asked = [
        (query, decay)
        for query in QUERIES
        for decay in (DECAYS if query != "p90 over series" else DECAYS[:1])
    ]
    truths = {
        (query, decay): QUERIES[query][1](whole[QUERIES[query][0]], decay).value
        for query, decay in asked
    }
    for capacity in capacities:
        cells: dict[tuple[str, str], Cell] = {}
        for seed in range(hashes):
            sketches = {
                name: stream.sketch(getattr(stream, name), capacity, 1_000 + seed)
                for name in _COLUMNS
            }
            for query, decay in asked:
                column, ask = QUERIES[query]
                found = ask(sketches[column], decay)
                cells.setdefault((query, decay), Cell()).add(found, truths[query, decay])
        for (query, decay), cell in cells.items():
            yield capacity, query, decay, cell


_COLUMNS: Final = ("counters", "gauges", "states")


def coverage(hashes: int, kinds: tuple[str, ...] = POPULATIONS) -> int:
    """Print a row for each population, capacity, query and decay, then a summary."""
    print(
        "| population | capacity | query | decay | covered | flagged | silent misses | rms | bias |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    cells: dict[tuple[str, int], dict[tuple[str, str], Cell]] = {}
    for kind in kinds:
        for capacity, query, decay, cell in covered(kind, hashes):
            cells.setdefault((kind, capacity), {})[query, decay] = cell
            held, flagged, _, missed, error, bias = cell.figures
            print(
                f"| {kind} | {capacity:,} | {query} | {decay} | {held:.3f} | {flagged:.2f} | "
                f"{missed:.3f} | {error:.3f} | {bias:+.4f} |",
                flush=True,
            )
    _summarize(cells)
    return 0


def _summarize(cells: dict[tuple[str, int], dict[tuple[str, str], Cell]]) -> None:
    """Print coverage by population and capacity, and the root mean square error under a window."""
    shown = ("increase", "time-weighted mean", "transitions", "availability", "sessions")
    print(f"\n| population | capacity | covered | least | flagged | covered, not flagged | "
          f"{' | '.join(f'rms, {each}' for each in shown)} |")  # fmt: skip
    print("|---" * (6 + len(shown)) + "|")
    every = [cell for some in cells.values() for cell in some.values()]
    for (kind, capacity), some in cells.items():
        held = [np.mean(cell.held) for cell in some.values()]
        errors = [f"{some[query, DECAYS[0]].figures[4]:.3f}" for query in shown]
        flagged = np.concatenate([cell.flagged for cell in some.values()])
        print(f"| {kind} | {capacity:,} | {np.mean(held):.3f} | {min(held):.3f} | "
              f"{flagged.mean():.2f} | {_unflagged(list(some.values()))} | "
              f"{' | '.join(errors)} |")  # fmt: skip
    means = [float(np.mean(cell.held)) for cell in every]
    silent = [cell.figures[3] for cell in every]
    low = [cell for cell, mean in zip(every, means, strict=True) if mean < 0.92]
    print(f"{len(means)} cells, mean coverage {np.mean(means):.3f}, below .92 are {len(low)}, of "
          f"whose results {np.mean([cell.figures[1] for cell in low] or [0]):.2f} are flagged; "
          f"results that are not flagged cover {_unflagged(every)}, so silent misses are "
          f"{np.mean(silent):.3f}, in the worst cell {max(silent):.3f}")  # fmt: skip


def _unflagged(cells: list[Cell]) -> str:
    """Coverage of the results that are not flagged."""
    held = np.concatenate([cell.held for cell in cells])
    chosen = ~np.concatenate([cell.flagged for cell in cells])
    return f"{held[chosen].mean():.3f}" if chosen.any() else "-"


# -------------------------------------------------------------------------------------- collectors


def collected(
    draw: np.random.Generator, skew: float, counters: int = 200, seconds: int = 7_200
) -> tuple[npt.NDArray[np.float64], float]:
    """Rows (counter, collector, time in ms as stamped, value), and the sum of the rates."""
    rows: list[Any] = []
    total = 0.0
    for number in range(counters):
        rate = draw.lognormal(0, 0.7)
        total += rate
        resets = np.sort(draw.uniform(0, seconds, draw.poisson(1.0)))
        begins = np.concatenate([[0.0], resets])
        for collector in (0, 1):
            times = np.arange(draw.uniform(0, 15), seconds, 15)
            taken = draw.random(len(times)) > 0.08
            if collector:
                taken &= times > draw.uniform(0, 0.2) * seconds
            down = draw.uniform(0.3, 0.8) * seconds
            taken &= ~((times > down) & (times < down + 600 * (draw.random() < 0.3)))
            times = times[taken]
            since = begins[np.searchsorted(resets, times, side="right")]
            stamps = np.round((times + skew * collector) * 1_000)
            shown = np.floor(rate * (times - since))
            rows.append(
                np.column_stack(
                    [np.full(len(times), number), np.full(len(times), collector), stamps, shown]
                )
            )
    return np.concatenate(rows), total


def collectors(draws: int) -> int:
    """Print the increase of the last hour over the truth, for each way to keep the rows."""
    now, window = 7_200_000, "window(3600000)"
    ways: dict[str, tuple[int, int, float | None]] = {
        "all rows, every fall a reset": (ALL, 1, 0),
        "all rows": (ALL, 1, None),
        "all rows, resolution 1 min": (ALL, 60_000, None),
        "capacity 5,000": (5_000, 1, None),
        "capacity 20,000": (20_000, 1, None),
        "capacity 5,000, resolution 1 min": (5_000, 60_000, None),
    }
    print("| clocks | kept | result / truth | rms error | rows | covered | flagged |")
    print("|---|---|---|---|---|---|---|")
    for label, skew in (("agree", 0.0), ("2 s apart", 2.0), ("one 28 s behind", 28.0)):
        found: dict[str, list[tuple[float, int, bool, bool]]] = {}
        for seed in range(draws):
            rows, rates = collected(np.random.default_rng(seed), skew)
            truth = rates * 3_600
            for way, (capacity, resolution, guard) in ways.items():
                params = SeriesParams(
                    capacity=capacity, resolution=resolution, seed=seed, time_unit="ms", id_bits=32
                )
                parts = []
                for collector in (0, 1):
                    own = rows[rows[:, 1] == collector]
                    sketch = SeriesSketch(params)
                    sketch.update(own[:, 3], 1, own[:, 2].astype(int), own[:, 0].astype(int))
                    parts.append(sketch)
                merged = ds.merge([*parts, parts[0]])
                given = merged.increase(window, now=now, guard=guard)
                held = given.lower <= truth <= given.upper
                few = "few-series" in given.caveats
                found.setdefault(way, []).append((given.value / truth, len(merged), held, few))
        for way, each in found.items():
            ratio, kept, held_, few_ = (np.array(column) for column in zip(*each, strict=True))
            print(
                f"| {label} | {way} | {ratio.mean():.3f} | "
                f"{np.sqrt(((ratio - 1) ** 2).mean()):.3f} | {kept.mean():,.0f} | "
                f"{held_.mean():.2f} | {few_.mean():.2f} |",
                flush=True,
            )
    return 0


# ------------------------------------------------------------------------------------------- joins

JOINS: Final = ("time_correlation", "time_covariance", "time_slope")


def paired(kind: str, devices: int = 3_000, seed: int = 3) -> tuple[Stream, Stream]:
    """Two gauges of the same devices, which rise and fall together, read at different times.

    Args:
        kind: "even", "uneven", or "tail", where one level is Pareto 1.5.
        devices: their number.
        seed: of the draws.
    """
    draw = np.random.default_rng(seed)
    level = draw.normal(20, 3, devices)
    if kind == "tail":
        level = 20 + 3 * draw.pareto(1.5, devices)
    wave = np.cumsum(draw.normal(0, 1, (devices, 30)), 1)
    against = -0.7 * wave + np.cumsum(draw.normal(0, 0.5, (devices, 30)), 1)
    sides = (
        (1_000, level, wave), (1_500, 60 - level + draw.normal(0, 2, devices), against)
    )  # fmt: skip
    found = []
    for step, base, course in sides:
        counts = np.full(devices, HORIZON // step)
        if kind == "uneven":
            counts = np.maximum(counts * draw.lognormal(-0.72, 1.2, devices), 2).astype(int)
            counts[draw.permutation(devices)[: devices // 6]] = 0
        ids = np.repeat(np.arange(devices), counts)
        rows = np.unique(ids * HORIZON + draw.integers(0, HORIZON, len(ids)))
        ids, times = rows // HORIZON, rows % HORIZON
        values = np.empty(len(ids))
        for device in range(devices):
            own = slice(*np.searchsorted(ids, [device, device + 1]))
            knots = np.linspace(0, HORIZON, 30)
            values[own] = base[device] + np.interp(times[own], knots, course[device])
        found.append(Stream(ids, times, values, values, values))
    return found[0], found[1]


def joined(
    kind: str, hashes: int, capacities: tuple[int, ...] = (500, 2_000), devices: int = 3_000
) -> Iterator[tuple[int, str, float, Cell]]:
    """Capacity, query, truth and what became of it."""
    one, other = paired(kind, devices)
    decay = "exponential(half_life=8000)"
    whole = [each.sketch(each.gauges, ALL, 0) for each in (one, other)]
    truths = {name: getattr(whole[0], name)(whole[1], decay, now=HORIZON).value for name in JOINS}
    for capacity in capacities:
        cells = {name: Cell() for name in JOINS}
        for seed in range(hashes):
            ours, theirs = (each.sketch(each.gauges, capacity, seed) for each in (one, other))
            for name in JOINS:
                found = getattr(ours, name)(theirs, decay, now=HORIZON)
                cells[name].add(found, truths[name])
        for name, cell in cells.items():
            yield capacity, name, truths[name], cell


def joins(hashes: int) -> int:
    """Print a row for each population, capacity and query of two streams."""
    print("| population | capacity | query | result of all rows | covered | flagged | "
          "silent misses | rms error | bias |")  # fmt: skip
    print("|---" * 9 + "|")
    for kind in ("even", "uneven", "tail"):
        for capacity, name, truth, cell in joined(kind, hashes):
            held, flagged, _, missed, error, bias = cell.figures
            print(
                f"| {kind} | {capacity:,} | {name} | {truth:.3f} | {held:.3f} | {flagged:.2f} | "
                f"{missed:.3f} | {error * abs(truth):.3f} | {bias * truth:+.4f} |",
                flush=True,
            )
    return 0


# ------------------------------------------------------------------------------- weights and sizes


def weights(hashes: int) -> int:
    """Print the error of two queries with equal sampling and with declared weights."""
    stream, _ = population("even", series=3_000)
    draw = np.random.default_rng(2)
    rates = draw.pareto(1.5, 3_000) + 0.1
    resets = [np.sort(draw.uniform(0, HORIZON, draw.poisson(1.0))) for _ in range(3_000)]
    since = np.array([
        np.concatenate([[0.0], resets[number]])[
            np.searchsorted(resets[number], time, side="right")
        ]
        for number, time in zip(stream.ids.tolist(), stream.times.tolist(), strict=True)
    ])  # fmt: skip
    counters = np.floor(rates[stream.ids] * (stream.times - since))
    stream = replace(stream, counters=counters)
    decay = "exponential(half_life=5000)"
    whole = stream.sketch(counters, ALL, 0)
    level = stream.sketch(stream.gauges, ALL, 0)
    truths = whole.increase(decay, guard=0).value, level.time_average(VALIDITY, decay).value
    print("| capacity | weight | rms of the increase | rms of the time-weighted mean |")
    print("|---|---|---|---|")
    for capacity in (1_000, 4_000):
        for label, declared in _declared(rates, draw):
            errors = []
            for seed in range(hashes):
                more = {"weights": declared[stream.ids], "max_weight": 1 << 20}
                ours = stream.sketch(counters, capacity, seed, **more)
                gauges = stream.sketch(stream.gauges, capacity, seed, **more)
                found = (
                    ours.increase(decay, guard=0).value,
                    gauges.time_average(VALIDITY, decay).value,
                )
                errors.append([one / truth - 1 for one, truth in zip(found, truths, strict=True)])
            rms = np.sqrt((np.array(errors) ** 2).mean(axis=0))
            print(f"| {capacity:,} | {label} | {rms[0]:.3f} | {rms[1]:.3f} |", flush=True)
    return 0


def _declared(rates: Float64Array, draw: np.random.Generator) -> Iterator[tuple[str, Int64Array]]:
    yield "equal", np.ones(len(rates), np.int64)
    for sigma in (0.0, 0.7, 1.5):
        guessed = rates * draw.lognormal(0, sigma, len(rates))
        powers = np.clip(np.round(np.log2(guessed / guessed.min())), 0, 20).astype(np.int64)
        yield f"rate, wrong by sigma {sigma}", np.int64(1) << powers


def sizes() -> int:
    """Print bytes a row of counters that are scraped every 15 s, and of the populations."""
    draw = np.random.default_rng(0)
    number = np.repeat(np.arange(500), 400)
    times = 1_760_000_000_000 + np.tile(np.arange(400) * 15_000, 500)
    times = times + np.repeat(draw.integers(0, 15_000, 500), 400) + draw.integers(-20, 21, 200_000)
    rises = np.round(draw.lognormal(3, 1, 500))[number] + draw.integers(0, 4, 200_000)
    counts = np.cumsum(rises.reshape(500, 400), axis=1).ravel()
    print("| rows | B a row |")
    print("|---|---|")
    sketch = SeriesSketch(SeriesParams(capacity=ALL, time_unit="ms", id_bits=56))
    sketch.update(counts, 1, times, draw.integers(0, 1 << 56, 500)[number])
    print(f"| counters every 15 s, ms | {len(sketch.to_bytes()) / len(sketch):.2f} |")
    for kind in POPULATIONS:
        stream, _ = population(kind)
        for name, values in (
            ("counters", stream.counters),
            ("gauges, 1 decimal", np.round(stream.gauges, 1)),
            ("states", stream.states),
        ):
            kept = stream.sketch(values, ALL, 0)
            print(f"| {kind}, {name} | {len(kept.to_bytes()) / len(kept):.2f} |")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run one study; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    study, count = (given[0] if given else "coverage"), int(given[1]) if len(given) > 1 else 40
    if study == "sizes":
        return sizes()
    studies: dict[str, Callable[[int], int]] = {
        "coverage": coverage, "collectors": collectors, "weights": weights, "joins": joins
    }  # fmt: skip
    if study not in studies:
        print(f"study is {study!r}; expected coverage, collectors, weights, joins or sizes")
        return 2
    return studies[study](count)


if __name__ == "__main__":
    sys.exit(main())
