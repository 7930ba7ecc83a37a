"""Do the asynchronous samplers keep their promise, and what does it cost?

    python -m quality.asyncwindow [--runs N] [--mode proven|practical] [--part promise|space]
                                 [--epsilon E ...]

``promise``: sums (SumSampler), the median and the 0.1 and 0.9 quantiles (MedianSampler), all
sized for an epsilon (0.05, or those that are asked for) and delta = 0.05, are asked about windows
from 10 seconds to W. A *run* has a stream and coins of its own, both fixed by its number, and one
of three orders of arrival: reversed, shuffled, or in time with every fifth block of ten minutes
hours late. The clock advances as elements arrive. Of each order, answer and estimator: how often
the error was above epsilon (to be below delta in every window), the window where that was worst,
the largest error, and how often the 95 % interval held the truth. Errors are relative for sums, of
the rank for quantiles.

``space``: bytes of a SumSampler, a MedianSampler and a DecaySketch of like capacity over the same
streams, the root mean square errors of what they answer, and from both the bytes that an error of
1 % would take, as errors fall with the root of the size.

By default 500 runs of each order and 100 of space: about an hour on one core.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

EPSILON = 0.05  # unless others are asked for
DELTA = 0.05
ORDERS = ("reversed", "shuffled", "bursts")
VALUES = ("1", "1..999", "Pareto")
QUANTILES = (0.1, 0.5, 0.9)
MAX_WINDOW = 20_000  # seconds, W
SPAN = 30_000  # of a stream
WINDOWS = (10, 60, 600, 3_600, 10_000, MAX_WINDOW)
ROWS = {"proven": 900_000, "practical": 120_000}
BATCH = 10_000


class Stream(NamedTuple):
    """Elements in the order of their arrival."""

    values: Any  # int64, positive
    times: Any
    numbers: Any


def make_stream(rng: np.random.Generator, rows: int, law: str, order: str) -> Stream:
    """Elements of a stream by named laws."""
    times = np.sort(rng.integers(0, SPAN, rows))
    if law == "Pareto":
        values = np.minimum(1.0 / rng.random(rows), 1e6).astype(np.int64)
    else:
        values = rng.integers(1, 1000, rows) if law == "1..999" else np.ones(rows, np.int64)
    numbers = np.arange(rows)
    if order == "reversed":
        arrival = numbers[::-1]
    elif order == "shuffled":
        arrival = rng.permutation(rows)
    else:
        block = times // 600
        late = np.where(
            block % 5 == int(rng.integers(5)), rng.integers(3_600, 18_000, 51)[block], 0
        )
        arrival = np.argsort(times + late, kind="stable")
    return Stream(values[arrival], times[arrival], numbers[arrival])


def fill(sampler: SumSampler | MedianSampler, stream: Stream) -> int:
    """Feed a stream in batches, the clock moving on; the rows that came too late are not counted
    as part of the truth: they are those that no window at the end can reach."""
    clock = 0
    for start in range(0, len(stream.times), BATCH):
        rows = slice(start, start + BATCH)
        sampler.update(stream.values[rows], stream.times[rows], stream.numbers[rows], source="s")
        clock = max(clock, int(stream.times[rows].max()))
        sampler.advance(clock)
    return clock


class Answer(NamedTuple):
    """One answer beside the truth."""

    what: str
    window: int
    error: float
    covered: bool


def answers(
    law: str, order: str, mode: Any, epsilon: float, run: int
) -> Iterator[tuple[str, Answer]]:
    """All answers of a run, by estimator."""
    rng = np.random.default_rng([20260, VALUES.index(law), ORDERS.index(order), run])
    stream = make_stream(rng, ROWS[mode], law, order)
    size = {"max_window": MAX_WINDOW, "mode": mode, "seed": int(rng.integers(1 << 62))}
    sums = SumSampler(SumParams.for_accuracy(epsilon, DELTA, max_sum=1 << 40, **size))
    ranks = MedianSampler(
        MedianParams.for_accuracy(epsilon, DELTA, max_count=1 << 24, value_type="int64", **size)
    )
    now = fill(sums, stream)
    fill(ranks, stream)
    for width in WINDOWS:
        inside = np.sort(stream.values[stream.times >= now - width])
        decay = ds.decay.window(width)
        for estimator in ("single-level", "stratified"):
            how: dict[str, Any] = {"now": now, "estimator": estimator}
            found, true = sums.sum(decay, **how), int(inside.sum())
            covered = found.lower <= true <= found.upper
            yield estimator, Answer("sum", width, abs(found.value / true - 1.0), covered)
            for q, found in zip(QUANTILES, ranks.quantile(QUANTILES, decay, **how), strict=True):
                # Values tie: any rank between those of the first and last of them is the answer's.
                low, high = (
                    np.searchsorted(inside, found.value, side) / len(inside)
                    for side in ("left", "right")
                )
                error = max(0.0, float(low) - q, q - float(high))
                value = inside[max(0, int(np.ceil(q * len(inside))) - 1)]
                covered = bool(found.lower <= value <= found.upper)
                yield estimator, Answer(f"quantile {q}", width, error, covered)


def promise(runs: int, mode: str, epsilon: float) -> bool:
    """Print the study; whether every fraction of failures is below delta."""
    print(
        f"\nepsilon = {epsilon}, delta = {DELTA}, {mode}, {runs} runs of each order; "
        f"windows {WINDOWS}"
    )
    print("order     estimator     answer        fails   worst window  largest error  coverage")
    kept = True
    for order in ORDERS:
        found: dict[tuple[str, str], dict[int, list[Answer]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for run in range(runs):
            for estimator, answer in answers(VALUES[run % len(VALUES)], order, mode, epsilon, run):
                found[estimator, answer.what][answer.window].append(answer)
        for (estimator, what), by_window in found.items():
            fails = {w: np.mean([a.error > epsilon for a in each]) for w, each in by_window.items()}
            worst = max(fails, key=lambda w: fails[w])
            everything = [a for each in by_window.values() for a in each]
            kept &= bool(fails[worst] < DELTA)
            print(
                f"{order:9} {estimator:13} {what:13} {fails[worst]:.4f}  {worst:12}  "
                f"{max(a.error for a in everything):13.4f}  "
                f"{np.mean([a.covered for a in everything]):8.4f}"
            )
    return kept


def space(runs: int) -> None:
    """Print bytes and errors of samplers and sketch over the same streams."""
    capacity, rows, now = 1_500, 150_000, SPAN - 1
    decay = ds.decay.window(MAX_WINDOW)
    print(f"\nspace: capacity {capacity}, {rows} elements, window {MAX_WINDOW}, {runs} runs")
    print("values   sketch         answer      bytes   RMS error   bytes for 1 %")
    for law in VALUES:
        errors: dict[tuple[str, str], list[float]] = defaultdict(list)
        size: dict[str, list[int]] = defaultdict(list)
        for run in range(runs):
            rng = np.random.default_rng([20261, VALUES.index(law), run])
            stream = make_stream(rng, rows, law, "shuffled")
            inside = np.sort(stream.values[stream.times >= now - MAX_WINDOW])
            seed = int(rng.integers(1 << 62))
            sums = SumSampler(SumParams(max_sum=1 << 40, capacity=capacity, seed=seed))
            ranks = MedianSampler(
                MedianParams(max_count=1 << 24, capacity=capacity, seed=seed, value_type="int64")
            )
            sketch = ds.DecaySketch(
                ds.SketchParams(
                    max_weight=1_000_000, id_bits=36, capacity=capacity, seed=seed,
                    value_type="int64",
                )
            )  # fmt: skip
            sums.update(stream.values, stream.times, stream.numbers, source="s")
            ranks.update(stream.values, stream.times, stream.numbers, source="s")
            ids = stream.numbers * 0x9E3779B9 % (1 << 36)  # distinct, in no order
            sketch.update(stream.values, stream.values, stream.times, ids)
            total = float(inside.sum())
            for name, held in (("SumSampler", sums), ("DecaySketch", sketch)):
                found = held.sum(decay, now=now).value
                errors[name, "sum"].append(found / total - 1.0)
                found = held.count(decay, now=now).value
                errors[name, "count"].append(found / len(inside) - 1.0)
                size[name].append(len(held.to_bytes()))
            found = ranks.count(decay, now=now).value
            errors["MedianSampler", "count"].append(found / len(inside) - 1.0)
            middle = inside[len(inside) // 2]
            rank = ranks.rank(float(middle), decay, now=now).value
            errors["MedianSampler", "rank"].append(
                rank - np.searchsorted(inside, middle, "right") / len(inside)
            )
            size["MedianSampler"].append(len(ranks.to_bytes()))
        for (name, what), each in errors.items():
            rms = float(np.sqrt(np.mean(np.square(each))))
            length = float(np.mean(size[name]))
            print(
                f"{law:8} {name:14} {what:7} {length:9.0f}   {rms:9.4f}   "
                f"{length * (rms / 0.01) ** 2:13.0f}"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 1 where a promise was not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.asyncwindow", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--runs", type=int, help="of each order (500), or of space (100)")
    parser.add_argument("--mode", choices=("proven", "practical"), help="default: both")
    parser.add_argument("--part", choices=("promise", "space"), help="default: both")
    parser.add_argument(
        "--epsilon", type=float, nargs="+", default=[EPSILON], help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    print(f"numpy {np.__version__}, decaysketch {ds.__version__}, {platform.platform()}")
    started, kept = time.perf_counter(), True
    if options.part != "space":
        for mode in ROWS if options.mode is None else (options.mode,):
            for epsilon in options.epsilon:
                kept &= promise(options.runs or 500, mode, epsilon)
    if options.part != "promise":
        space(options.runs or 100)
    print(f"\n{time.perf_counter() - started:.0f} s")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
