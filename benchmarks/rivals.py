"""Beside Apache DataSketches: rates and bytes, and the tasks that those sketches are made for.

None of them knows time, and only some ignore copies. Theta, HLL and CPC count distinct ids. KLL
gives quantiles of all that it is fed, copies included. A tuple sketch keeps a uniform sample of
distinct ids, each with a summary; with (weight, time) as the summary anyone can build a windowed or
decayed sum on it, which ``error.py`` compares with ours.

Two tables: updates and bytes; and, at equal bytes, the error of distinct counts without decay and
of quantiles without decay and copies, where the rivals need no more than they keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import decaysketch as ds
from benchmarks import machine
from benchmarks.error import LatestTuple, PackedBytes, RootMeanSquare, fit
from benchmarks.report import Comparison, Section, Table
from benchmarks.streams import Stream
from benchmarks.timing import summary
from benchmarks.updates import feed, feed_singly, filled, plain_rows

__all__ = ["measure"]

CAPACITY = 4_096
LG_K = 12  # theta and tuple: 2^12 ids, as many as ours keeps of one level
KLL_K = 800
BATCH = 10_000
PLAIN_ROWS = 100_000  # distinct observations of the study without decay
QUANTILES = np.linspace(0.05, 0.95, 19)


def _builders(stream: Stream) -> dict[str, tuple[int, Callable[[], Any]]]:
    """By name, how many rows are fed, and what builds a sketch of them."""
    import datasketches

    warm = len(stream.ids) // 3
    many, few = min(len(stream.ids) - warm, 1_000_000), min(warm, 200_000)
    singles = plain_rows(stream, warm, warm + few)
    values = stream.values[warm : warm + many].astype(np.float64)

    def theta() -> Any:
        sketch = datasketches.update_theta_sketch(LG_K)
        for _, _, _, id_ in singles:
            sketch.update(id_)
        return sketch.compact().serialize()

    def hll() -> Any:
        sketch = datasketches.hll_sketch(LG_K, datasketches.tgt_hll_type.HLL_4)
        for _, _, _, id_ in singles:
            sketch.update(id_)
        return sketch.serialize_compact()

    def pairs() -> Any:
        sketch = datasketches.update_tuple_sketch(LatestTuple(), LG_K)
        for _, weight, timestamp, id_ in singles:
            sketch.update(id_, (timestamp, weight))
        return sketch.compact().serialize(PackedBytes("<II"))

    def kll() -> Any:
        sketch = datasketches.kll_doubles_sketch(KLL_K)
        for start in range(0, many, BATCH):
            sketch.update(values[start : start + BATCH])
        return sketch.serialize()

    full = filled(stream, CAPACITY, warm)

    def ours() -> Any:
        sketch = full.copy()
        feed(sketch, stream, warm, warm + many, BATCH)
        return sketch.to_bytes()

    def ours_singly() -> Any:
        sketch = full.copy()
        feed_singly(sketch, singles)
        return sketch.to_bytes()

    return {
        "decaysketch, batches": (many, ours),
        "decaysketch, one by one": (few, ours_singly),
        "theta, one by one": (few, theta),
        "HLL_4, one by one": (few, hll),
        "tuple of (weight, time), one by one": (few, pairs),
        "KLL, batches": (many, kll),
    }


_ANSWERS = {
    "decaysketch, batches": "any decay, without copies",
    "decaysketch, one by one": "any decay, without copies",
    "theta, one by one": "distinct count of all time",
    "HLL_4, one by one": "distinct count of all time",
    "tuple of (weight, time), one by one": "sums of any decay, from a uniform sample",
    "KLL, batches": "quantiles of all time, copies counted",
}


def _rates(section: Section, stream: Stream, repetitions: int) -> None:
    builders = _builders(stream)
    seconds: dict[str, list[float]] = {name: [] for name in builders}
    size: dict[str, int] = {}
    for _ in range(repetitions):
        for name, (_, build) in builders.items():
            start = time.process_time()
            size[name] = len(build())
            seconds[name].append(time.process_time() - start)
    timings = {name: summary(times) for name, times in seconds.items()}
    rates = {name: builders[name][0] / timing.best for name, timing in timings.items()}
    section.tables.append(
        Table(
            "Updates and bytes",
            ("sketch", "answers", "M updates/s", "rows fed", "bytes"),
            [
                (
                    name, _ANSWERS[name], f"{rates[name] / 1e6:.2f}",
                    f"{builders[name][0]:,}", f"{size[name]:,}",
                )
                for name in timings
            ],
            labels=2,
            notes=[
                f"Capacity {CAPACITY:,}, theta, HLL and tuple 2^{LG_K}, KLL k = {KLL_K}. Best of "
                f"{repetitions}, processor time. Ours starts full, and the time includes encoding."
            ],
        )
    )  # fmt: skip
    ours = {way: rates[f"decaysketch, {way}"] for way in ("batches", "one by one")}
    for name in timings:
        rival, way = name.rsplit(", ", 1)
        if rival != "decaysketch":
            section.comparisons.append(
                Comparison(
                    f"updates, {way} (rival: {_ANSWERS[name]})", rival, "rows a second",
                    ours[way], rates[name], "more",
                )
            )  # fmt: skip


def _distinct_counts(section: Section, seeds: int) -> None:
    """Distinct count of all time: what theta, HLL and CPC are made for."""
    import datasketches

    # Theirs keep the seed that they come with: every stream has random ids of its own, and CPC of
    # datasketches 5.2.0 is wrong by most of the count with some other seeds, such as 8.
    def theta(ids: list[int]) -> tuple[float, bytes]:
        sketch = datasketches.update_theta_sketch(LG_K)
        for id_ in ids:
            sketch.update(id_)
        sketch.trim()
        return sketch.get_estimate(), sketch.compact().serialize()

    def hll(ids: list[int]) -> tuple[float, bytes]:
        sketch = datasketches.hll_sketch(LG_K, datasketches.tgt_hll_type.HLL_4)
        for id_ in ids:
            sketch.update(id_)
        return sketch.get_estimate(), sketch.serialize_compact()

    def cpc(ids: list[int]) -> tuple[float, bytes]:
        sketch = datasketches.cpc_sketch(LG_K)
        for id_ in ids:
            sketch.update(id_)
        return sketch.get_estimate(), sketch.serialize()

    rows: list[tuple[str, ...]] = []
    for name, build in {"theta": theta, "HLL_4": hll, "CPC": cpc}.items():
        capacity = 0
        errors, ours = RootMeanSquare(), RootMeanSquare()
        for seed in range(seeds):
            ids = _plain_ids(seed)
            answer, blob = build(ids.tolist())
            sketch = _plain_sketch(seed, ids, None, capacity or CAPACITY)
            if not capacity:
                capacity = fit(sketch, len(blob))
                bytes_ = (len(blob), len(sketch.to_bytes()))
            errors.add(answer / PLAIN_ROWS - 1)
            ours.add(sketch.count(ds.decay.none(), now=PLAIN_ROWS).value / PLAIN_ROWS - 1)
        rows.append((
            f"distinct count: {name}", f"{bytes_[0]:,}", f"{errors:%}", f"{bytes_[1]:,}",
            f"{ours:%}", f"{errors.value / ours.value:.2f}",
        ))  # fmt: skip
        section.comparisons.append(
            Comparison(
                "distinct count of all time at equal bytes", name, "RMSE",
                ours.value, errors.value, "less",
            )
        )  # fmt: skip
    rows.append(_quantile_row(section, seeds))
    section.tables.append(
        Table(
            "At equal bytes, where no decay is asked for",
            ("task", "rival's bytes", "rival's RMSE", "our bytes", "our RMSE", "theirs / ours"),
            rows,
            notes=[
                f"{PLAIN_ROWS:,} distinct observations of weight 1, random ids, {seeds} seeds. "
                "RMSE is the root mean square error, relative for counts and in rank for "
                "quantiles, ± its standard error. Our capacity is the largest whose bytes do not "
                "exceed the rival's."
            ],
        )
    )


def _plain_ids(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return np.unique(rng.integers(0, 1 << 32, PLAIN_ROWS + 1_000))[:PLAIN_ROWS]


def _plain_sketch(seed: int, ids: Any, values: Any, capacity: int) -> ds.DecaySketch:
    params = ds.SketchParams(max_weight=1, id_bits=32, seed=seed, capacity=capacity)
    sketch = ds.DecaySketch(params)
    sketch.update(values, 1, np.arange(PLAIN_ROWS), ids)
    return sketch


def _quantile_row(section: Section, seeds: int) -> tuple[str, ...]:
    """Quantiles of everything, no copies: what KLL is made for."""
    import datasketches

    capacity = 0
    errors, ours = RootMeanSquare(), RootMeanSquare()
    for seed in range(seeds):
        values = np.random.default_rng(seed).lognormal(size=PLAIN_ROWS)
        kll = datasketches.kll_doubles_sketch(KLL_K)
        kll.update(values)
        sketch = _plain_sketch(seed, _plain_ids(seed), values, capacity or CAPACITY)
        if not capacity:
            blob = kll.serialize()
            capacity = fit(sketch, len(blob))
            bytes_ = (len(blob), len(sketch.to_bytes()))
        ordered = np.sort(values)
        answers = sketch.quantile(QUANTILES.tolist(), ds.decay.none(), now=PLAIN_ROWS)
        for collected, given in (
            (errors, np.array(kll.get_quantiles(QUANTILES))),
            (ours, np.array([answer.value for answer in answers])),
        ):
            ranks = np.searchsorted(ordered, given, side="right") / PLAIN_ROWS
            collected.add(float(np.sqrt(np.mean((ranks - QUANTILES) ** 2))))
    section.comparisons.append(
        Comparison(
            "quantiles of all time without copies at equal bytes", "KLL", "RMSE of the rank",
            ours.value, errors.value, "less",
        )
    )  # fmt: skip
    return (
        "quantiles: KLL", f"{bytes_[0]:,}", f"{errors:%}", f"{bytes_[1]:,}", f"{ours:%}",
        f"{errors.value / ours.value:.2f}",
    )  # fmt: skip


def measure(stream: Stream, repetitions: int, seeds: int) -> Section:
    """Rates, bytes and error of the datasketches library on its own tasks."""
    section = Section(
        "Beside Apache DataSketches",
        "None of its sketches knows time. The first table names the queries that each one answers. "
        "The Python package accepts theta, HLL and tuple updates one at a time.",
    )
    if machine.installed("datasketches") is None:
        section.skipped.append("datasketches: not installed")
        return section
    _rates(section, stream, repetitions)
    _distinct_counts(section, seeds)
    return section
