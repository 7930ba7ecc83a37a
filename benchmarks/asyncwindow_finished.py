"""Asynchronous windows once the log is in: answers, unions, bytes, memory, and errors.

Sums and medians of the longest window, by both estimators, beside the exact ones of
``sorted_window.py``. A *first* answer comes after a batch, a *next* one after nothing new.
"""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, get_args

import decaysketch as ds
from benchmarks.asyncwindow_log import SAMPLERS, Holder, Kind, Log, Mode
from benchmarks.report import Comparison, Table
from benchmarks.sorted_window import SortedWindow
from benchmarks.timing import Timing, processor_seconds_of, summary

__all__ = ["measure"]

_BATCH = 10_000
_ESTIMATORS = ("stratified", "single-level")
_ASKED = [f"{order} {name}" for name in _ESTIMATORS for order in ("first", "next")]


def _peak_bytes(build: Callable[[], object]) -> int:
    """What building allocates at the most, working memory of the thread included."""

    def run() -> int:
        tracemalloc.start()
        try:
            build()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with ThreadPoolExecutor(1) as fresh:  # scratch memory is of a thread: it starts anew
        return fresh.submit(run).result()


def _parts(log: Log, make: Callable[[], Holder]) -> tuple[Holder, Holder]:
    """Two that took every other batch."""
    parts = make(), make()
    for turn, row in enumerate(range(0, len(log), _BATCH)):
        log.feed(parts[turn % 2], row, min(len(log), row + _BATCH), _BATCH)
    for part in parts:
        part.advance(log.now)
        if not isinstance(part, SortedWindow):
            part.state()
    return parts


def _union(parts: tuple[Any, Any]) -> object:
    first = parts[0]
    if isinstance(first, SortedWindow):
        both = SortedWindow(first.width, sums=first.sums)
        for part in parts:
            both.merge(part)
        return both
    return ds.merge(parts).state()


@dataclass
class _Finished:
    """One kind of answer: how it is had, what it costs, what is held for it."""

    labels: list[str]
    make: Callable[[], Holder]
    questions: dict[str, Callable[[Any], float]]  # by estimator
    error: Callable[[float], float]

    def prepare(self, log: Log) -> None:
        last = max(1, min(_BATCH, len(log) // 2))
        self.before = self.make()  # all but the last batch
        log.feed(self.before, 0, len(log) - last, _BATCH)
        for ask in self.questions.values():
            ask(self.before)  # the exact window has the prefix sums of what it was asked before
        full = copy.deepcopy(self.before)
        log.feed(full, len(log) - last, len(log), last)
        self.rows = len(full)
        self.bytes = full.nbytes if isinstance(full, SortedWindow) else len(full.to_bytes())
        self.errors = {name: self.error(ask(full)) for name, ask in self.questions.items()}
        self.parts, self.last = _parts(log, self.make), last
        self.peak = _peak_bytes(lambda: log.feed(self.make(), 0, len(log), _BATCH))
        self.seconds: dict[str, list[float]] = {"union": []}
        for name in self.questions:
            self.seconds |= {f"first {name}": [], f"next {name}": []}

    def repeat(self, log: Log) -> None:
        for name, ask in self.questions.items():
            holder = copy.deepcopy(self.before)
            log.feed(holder, len(log) - self.last, len(log), self.last)
            for order in ("first", "next"):
                seconds = processor_seconds_of(lambda a=ask, h=holder: a(h))  # type: ignore[misc]
                self.seconds[f"{order} {name}"].append(seconds)
        self.seconds["union"].append(processor_seconds_of(lambda: _union(self.parts)))

    def timing(self, name: str) -> Timing:
        return summary(self.seconds[name])

    def cell(self, name: str) -> str:
        if name not in self.seconds:
            return ""
        timing = self.timing(name)
        return f"{timing.best * 1e3:.3g} ({timing.median * 1e3:.3g})"


def _finished_of(log: Log) -> dict[tuple[Kind, str], _Finished]:
    """Every way to answer, the exact one of each kind first."""
    window, now, width = ds.decay.window(log.width), log.now, log.width
    exact = SortedWindow(width, sums=True)
    log.feed(exact, 0, len(log), _BATCH)
    truth = exact.sum(width, now)

    def error_of_sum(answer: float) -> float:
        return abs(answer / truth - 1)

    def error_of_median(answer: float) -> float:
        """By how much the rank misses one half; a value that many share has a range of ranks."""
        low, high = (exact.share_up_to(int(v), width, now) for v in (answer - 1, answer))
        return max(low - 0.5, 0.5 - high, 0.0)

    def question(kind: Kind, estimator: str) -> Callable[[Any], float]:
        def ask(sampler: Any) -> float:
            answer = getattr(sampler, kind)(window, now=now, estimator=estimator)
            return float(answer.value)

        return ask

    errors: dict[Kind, Callable[[float], float]] = {"sum": error_of_sum, "median": error_of_median}
    found: dict[tuple[Kind, str], _Finished] = {}
    for kind, error in errors.items():
        found[kind, "exact"] = _Finished(
            [kind, "exact"],
            lambda k=kind: SortedWindow(width, sums=k == "sum"),  # type: ignore[misc]
            {"stratified": lambda held, k=kind: getattr(held, k)(width, now)},  # type: ignore[misc]
            error,
        )
        for mode in get_args(Mode):
            found[kind, mode] = _Finished(
                [kind, mode],
                lambda k=kind, m=mode: log.sampler(k, m),  # type: ignore[misc]
                {name: question(kind, name) for name in _ESTIMATORS},
                error,
            )
    return found


def measure(log: Log, repetitions: int) -> tuple[list[Table], list[Comparison]]:
    """Milliseconds of answers and unions, and what is held."""
    found = _finished_of(log)
    for finished in found.values():
        finished.prepare(log)
        finished.repeat(log)  # compile
        for times in finished.seconds.values():
            times.clear()
    for _ in range(repetitions):
        for finished in found.values():
            finished.repeat(log)

    timed = Table(
        "Asynchronous windows: answers and unions, milliseconds, best (median)",
        ("", "capacity", *_ASKED, "union of 2"),
        [
            [*finished.labels, *(finished.cell(name) for name in (*_ASKED, "union"))]
            for finished in found.values()
        ],
        labels=2,
        notes=[
            "The window is W, the longest one. A first answer comes after a batch, a next one "
            "after nothing new. The exact window has one way to answer."
        ],
    )
    return [timed, _held(found)], _compared(found)


def _held(found: dict[tuple[Kind, str], _Finished]) -> Table:
    return Table(
        "Asynchronous windows: what is held, and the error of this one run",
        (
            "", "capacity", "elements", "bytes", "bytes an element", "peak memory, MB",
            *(f"error, {name}" for name in _ESTIMATORS),
        ),
        [
            [
                *f.labels, f"{f.rows:,}", f"{f.bytes:,}", f"{f.bytes / max(1, f.rows):.1f}",
                f"{f.peak / 1e6:.1f}",
                *(f"{f.errors[e]:.2%}" if e in f.errors else "" for e in _ESTIMATORS),
            ]
            for f in found.values()
        ],
        labels=2,
        notes=[
            "Bytes are encoded bytes, and for the exact window its columns in memory. Peak memory "
            "is the largest allocation while the log is ingested. The error is relative for a sum. "
            "For a median it is the distance between its rank and one half."
        ],
    )  # fmt: skip


def _compared(found: dict[tuple[Kind, str], _Finished]) -> list[Comparison]:
    comparisons = []
    for kind, mode in SAMPLERS:
        ours, theirs = found[kind, mode], found[kind, "exact"]
        task = f"asynchronous {kind}, {mode}: "
        pairs: list[tuple[str, str, float, float]] = [
            ("the next answer", "seconds", ours.timing("next stratified").best,
             theirs.timing("next stratified").best),
            ("the first answer", "seconds", ours.timing("first stratified").best,
             theirs.timing("first stratified").best),
            ("union of two", "seconds", ours.timing("union").best, theirs.timing("union").best),
            ("bytes kept", "bytes", ours.bytes, theirs.bytes),
            ("peak memory", "bytes", ours.peak, theirs.peak),
        ]  # fmt: skip
        comparisons += [
            Comparison(task + what, "exact sorted window", unit, our, their, "less")
            for what, unit, our, their in pairs
        ]
    return comparisons
