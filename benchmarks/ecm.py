"""Cells of the ECM-sketch: events, point queries and grids, each beside numpy.sort in the same run.

Layers have the width, depth and slots of the paper's split (theorem 1) for an error epsilon, with
three rows. They have counted a Zipf stream before the clock starts. Times are in processor time;
the ratio to ``numpy.sort`` of 10,000 float64 is taken inside each repetition, so that a change of
the machine's speed cancels. What the paper's Java programs did on their machine is in its table 3.
Other ways to count keys are in ``ecm_rivals.py``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from benchmarks import ecm_rivals
from benchmarks.ecm_rivals import Events
from benchmarks.report import Comparison, Section, Table
from benchmarks.timing import processor_seconds_of
from benchmarks.updates import rate_and_ratio
from decaysketch.ecm.cells import Cells, compact, minimum
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.sizing import Kind, slots_for

__all__ = ["measure"]

EPSILONS = (0.05, 0.1, 0.25)
EVENTS = 1_000_000
SPAN = 500_000  # of their times
WINDOW = SPAN // 2
SITES = 16
SLICE_S = 0.02  # of one measurement
MOST_WEIGHT = 1_000
PAPER = {"wave": 6_205_999, "eh": 5_344_982}  # updates a second, the best of table 3
SEED = 1

Rates = dict[tuple[str, ...], tuple[list[float], list[float]]]  # with the ratios to sorting


class _Stream(NamedTuple):
    words: npt.NDArray[np.uint64]
    times: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @classmethod
    def make(cls) -> _Stream:
        rng = np.random.default_rng(SEED)
        words = rng.zipf(1.2, EVENTS).astype(np.uint64)
        return cls(
            words & np.uint64(0xFFFFFFFF),
            np.sort(rng.integers(1, SPAN, EVENTS)),
            rng.integers(1, MOST_WEIGHT + 1, EVENTS),
            rng.integers(1, SPAN, EVENTS),
        )


def _layer(kind: Kind, epsilon: float) -> Layer:
    return Layer(
        shift=0, width=math.ceil(math.e * (1 + epsilon) / epsilon), depth=3,
        slots=slots_for(kind, epsilon), hashed=True,
    )  # fmt: skip


def _filled(stream: _Stream, kind: Kind, epsilon: float) -> Cells:
    cells = Cells(_layer(kind, epsilon), kind, SEED)
    for start in range(0, EVENTS, 50_000):
        part = slice(start, start + 50_000)
        cells.update(stream.words[part], stream.times[part])
    return cells


def _rate(action: Callable[[], object], count: int) -> float:
    """Things a second, of an action that does so many, over about a slice of time."""
    once = processor_seconds_of(action)
    times = max(1, int(SLICE_S / max(once, 1e-6)))

    def again() -> None:
        for _ in range(times):
            action()

    return count * times / processor_seconds_of(again)


class _Task(NamedTuple):
    """One cell of a table."""

    table: str
    column: str
    row: tuple[str, str]
    size: int  # things done by one call
    action: Callable[[], object]


def _update(cells: Cells, stream: _Stream, batch: int, weighted: bool) -> Callable[[], object]:
    """Counts one batch at the clock, again and again."""
    cells = cells.copy()
    assert cells.clock is not None
    times = np.full(batch, cells.clock) + np.arange(batch) // 4
    weights = stream.weights[:batch].copy() if weighted else None
    words = stream.words[:batch].copy()
    return lambda: cells.update(words, times, weights)


def _fresh(cells: Cells, question: Callable[[Cells], object]) -> Callable[[], object]:
    """Asks cells that were just changed, so that nothing is cached."""
    cells = cells.copy()
    word, time = np.zeros(1, np.uint64), np.array([cells.clock])

    def ask() -> None:
        cells.update(word, time)
        question(cells)

    return ask


def _halving(ages: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.exp2(ages / -1e5)


def _tasks(stream: _Stream, kind: Kind, epsilon: float) -> list[_Task]:
    cells = _filled(stream, kind, epsilon)
    row = kind, f"{epsilon:g}"
    start = SPAN - WINDOW
    grid = cells.values(start)
    tasks = [
        _Task("updates", f"batch {batch:,}{', weighted' * weighted}", row, batch,
              _update(cells, stream, batch, weighted))
        for weighted, batch in ((False, 10_000), (False, 1_000), (True, 10_000))
    ]  # fmt: skip
    for keys in (100_000, 5_000):
        words, starts = stream.words[:keys].copy(), stream.starts[:keys].copy()
        same = partial(minimum, grid, words, cells.layer, SEED)
        own = partial(cells.each, words, starts)
        tasks += [
            _Task("queries", f"one window, {keys:,} keys", row, keys, same),
            _Task("queries", f"a window a key, {keys:,} keys", row, keys, own),
        ]
    many = [cells.copy() for _ in range(SITES)]
    for name, question in (
        ("bounds of a window", lambda cells: cells.grid(start)),
        ("values of a window", lambda cells: cells.values(start)),
        ("bounds of a decay", lambda cells: cells.decayed(_halving, SPAN)),
    ):
        tasks.append(_Task("grids", name, row, 1, _fresh(cells, question)))
    merge = partial(compact, many, cells.layer.slots)
    return [*tasks, _Task("grids", f"compact {SITES}", row, 1, merge)]


def _measured(tasks: list[_Task], repetitions: int) -> tuple[Rates, list[float]]:
    numbers = np.random.default_rng(SEED).random(10_000)
    rates: Rates = {}
    sorts = []
    for _ in range(repetitions):
        for task in tasks:
            sort_rate = _rate(lambda: np.sort(numbers), len(numbers))
            rate = _rate(task.action, task.size)
            found = rates.setdefault((task.table, task.column, *task.row), ([], []))
            found[0].append(rate)
            found[1].append(rate / sort_rate)
            sorts.append(sort_rate)
    return rates, sorts


def _table(
    name: str, title: str, tasks: list[_Task], shown: Callable[[tuple[str, ...]], str]
) -> Table:
    columns = list(dict.fromkeys(task.column for task in tasks if task.table == name))
    rows = list(dict.fromkeys(task.row for task in tasks))
    return Table(
        title,
        ("cells", "epsilon", *columns),
        [[*row, *(shown((name, column, *row)) for column in columns)] for row in rows],
        labels=2,
    )


def measure(repetitions: int) -> Section:
    """Updates, point queries and grids of both kinds of cells."""
    stream = _Stream.make()
    tasks = [
        task
        for epsilon in EPSILONS
        for kind in get_args(Kind)
        for task in _tasks(stream, kind, epsilon)
    ]
    rates, sorts = _measured(tasks, 3 * repetitions)

    def rate(key: tuple[str, ...]) -> str:
        return rate_and_ratio(*rates[key])

    def microseconds(key: tuple[str, ...]) -> str:
        found = rates[key][0]
        return f"{1e6 / max(found):,.0f} ({1e6 / statistics.median(found):,.0f})"

    comparisons = [
        Comparison(
            f"ECM cells, {kind}, epsilon {epsilon:g}: events in batches of 10,000",
            "the paper's Java program on its own machine", "events a second",
            max(rates["updates", "batch 10,000", kind, f"{epsilon:g}"][0]), PAPER[kind], "more",
        )
        for epsilon in EPSILONS
        for kind in get_args(Kind)
    ]  # fmt: skip
    section = Section(
        "The ECM-sketch",
        f"Three rows of cells, with the width for epsilon, that have counted {EVENTS:,} events "
        f"from a Zipf stream (exponent 1.2). Weights are from 1 to {MOST_WEIGHT:,}. One window: "
        "the values of all cells are computed already, and each key uses the smallest in its rows. "
        "A window a key: bounds, from stored times that are listed once per update. Grids are "
        "queried just after an update. Processor time. The paper's rates are the best in its table "
        "3, for any epsilon.",
        [
            _table(
                "updates",
                "Events: million a second, best (median) x ratio to numpy.sort", tasks, rate,
            ),
            _table(
                "queries",
                "Point queries: million keys a second, best (median) x ratio to numpy.sort",
                tasks, rate,
            ),
            _table("grids", "All cells: microseconds, best (median)", tasks, microseconds),
            Table(
                "What numpy.sort of 10,000 float64 did between them: million a second",
                ("", "best", "median"),
                [["sort", f"{max(sorts) / 1e6:.0f}", f"{statistics.median(sorts) / 1e6:.0f}"]],
            ),
        ],
        comparisons,
    )  # fmt: skip
    ecm_rivals.add(section, Events(stream.words, stream.times, WINDOW), repetitions)
    return section
