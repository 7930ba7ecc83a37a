"""The samplers of asynchronous windows, beside an exact window and the paper's procedures.

All take the same elements in the same order and are told the clock with each batch. *Exact* is
``sorted_window.py``, which keeps every element of the last W; *reference* is the paper in plain
Python, one element at a time, which is no rival but the definition. Times are in processor time; in
each repetition, all are timed in turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from benchmarks import asyncwindow_finished
from benchmarks.asyncwindow_log import (
    DELTA,
    EPSILON,
    SAMPLERS,
    SOURCE,
    Holder,
    Kind,
    Log,
    Numbering,
)
from benchmarks.report import Comparison, Section, Table
from benchmarks.sorted_window import SortedWindow
from benchmarks.streams import Stream
from benchmarks.timing import processor_seconds_of
from benchmarks.updates import BATCHES
from decaysketch.asyncwindow import element_keys, reference

__all__ = ["measure"]

_SINGLES = 50_000
_REFERENCE_ROWS = 10_000


@dataclass(frozen=True)
class _Contender:
    """What takes the elements: a sampler of some kind and capacity, or the exact window."""

    kind: str
    mode: str
    numbering: Numbering
    make: Callable[[], Holder]

    @property
    def labels(self) -> list[str]:
        if self.kind == "exact":
            return ["exact", "", ""]
        return [self.kind, self.mode, self.numbering]


def _contenders(log: Log) -> list[_Contender]:
    samplers = [
        _Contender(kind, mode, numbering, lambda k=kind, m=mode: log.sampler(k, m))  # type: ignore[misc]
        for kind, mode in SAMPLERS
        for numbering in get_args(Numbering)
    ]
    return [*samplers, _Contender("exact", "", "own", lambda: SortedWindow(log.width, sums=True))]


def _updates(log: Log, repetitions: int) -> tuple[list[Table], list[Comparison]]:
    warm = len(log) // 3
    work = [(c, batch) for batch in BATCHES for c in _contenders(log)]
    rates: dict[tuple[str, ...], list[float]] = {}
    for _ in range(repetitions):
        for contender, batch in work:
            stop = len(log) if batch >= 1_000 else warm + (len(log) - warm) // 5
            holder = contender.make()
            log.feed(holder, 0, warm, 100_000, contender.numbering)
            seconds = processor_seconds_of(
                lambda h=holder, c=contender, b=batch, e=stop: log.feed(h, warm, e, b, c.numbering)  # type: ignore[misc]
            )
            found = rates.setdefault((*contender.labels, str(batch)), [])
            found.append((stop - warm) / seconds)
    labels = [contender.labels for contender in _contenders(log)]
    table = Table(
        "Asynchronous windows in batches: million elements a second, best (median)",
        ("", "capacity", "numbers", *(f"batch {batch:,}" for batch in BATCHES)),
        [
            label + [
                f"{max(found) / 1e6:.1f} ({statistics.median(found) / 1e6:.1f})"
                for batch in BATCHES
                for found in [rates[(*label, str(batch))]]
            ]
            for label in labels
        ],
        labels=3,
        notes=[
            'Numbers are the sequence numbers of elements: "explicit", so that duplicates are '
            'recognised, or the sampler\'s "own". The exact window recognises no duplicates.'
        ],
    )  # fmt: skip
    comparisons = [
        Comparison(
            f"asynchronous {kind}, {mode}: updates in batches of {batch:,}",
            "exact sorted window", "elements a second",
            max(rates[kind, mode, "explicit", str(batch)]),
            max(rates["exact", "", "", str(batch)]), "more",
        )
        for kind, mode in SAMPLERS
        for batch in (100, 10_000)
    ]  # fmt: skip
    return [table], comparisons


def _reference_rate(log: Log, kind: Kind) -> float:
    """Elements a second of the paper's procedure, once its samples are full enough to discard."""
    rows = min(_REFERENCE_ROWS, len(log) // 2)
    params = log.sampler(kind, "practical").params
    nested = None if kind == "sum" else 0
    sketch = reference.sum_init(
        params.levels, params.capacity, max_window=params.max_window, eager_from_level=nested
    )
    process = reference.sum_process if kind == "sum" else reference.median_process
    keys = element_keys(params, SOURCE, log.sequence[: 2 * rows]).tolist()
    elements = list(
        zip(log.values[: 2 * rows].tolist(), log.times[: 2 * rows].tolist(), keys, strict=True)
    )

    def feed(start: int) -> None:
        for element in elements[start : start + rows]:
            process(sketch, *element)

    feed(0)
    return rows / processor_seconds_of(lambda: feed(rows))


def _one_by_one(log: Log, repetitions: int) -> tuple[list[Table], list[Comparison]]:
    warm = len(log) // 3
    part = slice(warm, warm + min(warm, _SINGLES))
    elements = list(
        zip(*(c[part].tolist() for c in (log.values, log.times, log.sequence)), strict=True)
    )

    def explicit(update: Callable[..., None]) -> None:
        for value, time, number in elements:
            update(value, time, number, source=SOURCE)

    def own(update: Callable[..., None]) -> None:
        for value, time, _ in elements:
            update(value, time)

    kinds: tuple[Kind, ...] = get_args(Kind)
    rates: dict[str, list[list[float]]] = {kind: [[], [], []] for kind in kinds}
    for _ in range(repetitions):
        for kind in kinds:
            for found, way in zip(rates[kind], (explicit, own), strict=False):
                sampler = log.sampler(kind, "practical")
                log.feed(sampler, 0, warm, 100_000)
                seconds = processor_seconds_of(lambda w=way, s=sampler: w(s.update))  # type: ignore[misc]
                found.append(len(elements) / seconds)
            rates[kind][2].append(_reference_rate(log, kind))
    table = Table(
        "Asynchronous windows one by one: thousand elements a second, best (median)",
        ("", "explicit numbers", "own numbers", "reference"),
        [
            [kind, *(f"{max(r) / 1e3:.0f} ({statistics.median(r) / 1e3:.0f})" for r in rates[kind])]
            for kind in kinds
        ],
        notes=[
            "Plain Python numbers, practical capacity. The reference is the paper's procedure in "
            "plain Python, which is given the keys of its elements."
        ],
    )
    comparisons = [
        Comparison(
            f"asynchronous {kind}, practical: updates one by one", "the paper in plain Python",
            "elements a second", max(rates[kind][0]), max(rates[kind][2]), "more",
        )
        for kind in kinds
    ]  # fmt: skip
    return [table], comparisons


def measure(stream: Stream, repetitions: int) -> Section:
    """Updates, single updates, answers, unions and memory of both samplers."""
    log = Log.of(stream)
    for kind in get_args(Kind):
        for numbering in get_args(Numbering):
            warm = log.sampler(kind, "practical")
            log.feed(warm, 0, min(len(log), 200_000), 10_000, numbering)  # compile
            warm.state()
    section = Section(
        "Asynchronous windows",
        f"SumSampler and MedianSampler on {len(log):,} distinct elements, with values and times "
        "from the web log. A window of width W contains about a third. The first third is ingested "
        f"before the clock starts. Capacities give an error of {EPSILON} with probability "
        f'{1 - DELTA:g}: "proven" by the theorems, "practical" by a normal law. The exact window '
        "keeps every element within W, sorted by time, and recognises no duplicates. Each batch "
        "passes the time. Figures are processor time, and contenders run alternately.",
    )
    for part in (
        _updates(log, repetitions),
        _one_by_one(log, repetitions),
        asyncwindow_finished.measure(log, 2 * repetitions),
    ):
        section.tables += part[0]
        section.comparisons += part[1]
    return section
