"""Figure 5: errors against memory at one site, of points and self-joins, as in section 7.2.

Windows are powers of ten back from the last event that hold 100 events or more. Of each, one point
query is asked for every key in it, and one self-join. Errors are those of the paper:
``|f^ - f| / ||a||`` and ``|F2^ - F2| / ||a||^2``; their mean over keys and windows, and the
largest. Sizes are by theorems 1 and 2 as they are printed, delta = 0.15; ECM-RW's by theorem 3 with
as large a sample as makes its errors as rare (see
:class:`~decaysketch.ecm.randomized.RandomizedParams`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch, RandomizedSketch, sizing
from decaysketch.ecm.matrix import Estimator
from decaysketch.ecm.randomized import RandomizedParams
from decaysketch.ecm.sizing import Kind, Query
from quality.ecm.logs import Log
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.draw import COLOURS, INK, MARKERS, Page
from quality.figures.report import Report, Table

__all__ = [
    "DELTA",
    "EPSILONS",
    "KINDS",
    "Errors",
    "build",
    "join_errors",
    "params_of",
    "point_errors",
    "produce",
    "set_logarithmic",
]

EPSILONS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
DELTA: Final = 0.15
KINDS: Final[tuple[Kind, ...]] = ("eh", "wave")
ESTIMATORS: Final[tuple[Estimator, ...]] = ("minimum", "debiased")
_RANDOMIZED_FROM: Final = 0.15  # smaller epsilons take hundreds of megabytes
_MOST_RANDOMIZED: Final = 3_000_000  # events
_QUERIES: Final[tuple[Query, ...]] = ("point", "inner")
_NAMES: Final = {"point": "point queries", "inner": "self-joins"}


class Errors(NamedTuple):
    """Mean and largest error over keys and windows."""

    mean: float
    largest: float


class Measured(NamedTuple):
    """One sketch of one log, or the means of several seeds."""

    log: str
    kind: Literal["wave", "eh", "rw"]
    epsilon: float
    query: Query
    estimator: Estimator
    seed: int
    errors: Errors
    memory: int
    wire: int


def params_of(epsilon: float, kind: Kind, query: Query = "point", seed: int = 1) -> ECMParams:
    """By theorem 1 or 2 as printed; one lane, as all logs are in order."""
    size = sizing.theorem_size(epsilon, DELTA, kind=kind, query=query)
    return ECMParams(*size, kind=kind, seed=seed, lanes=1)


def build(log: Log, params: ECMParams) -> ECMSketch:
    """The sketch of all events."""
    sketch = ECMSketch(params, source=log.name, epoch=1)
    sketch.update(log.keys, log.times)
    return sketch


def point_errors(
    sketch: ECMSketch | ECMCollection | RandomizedSketch, log: Log, estimator: Estimator
) -> Errors:
    """Of every key of every window."""
    means, largest = [], 0.0
    for window in log.windows:
        exact = log.exact(window)
        keys = np.flatnonzero(exact)
        if isinstance(sketch, RandomizedSketch):
            found = sketch.counts(keys, window, now=log.now)
        else:
            found = sketch.key_count(
                keys, ds.decay.window(window), now=log.now, estimator=estimator
            ).value
        errors = np.abs(found - exact[keys]) / exact.sum()
        means.append(errors.mean())
        largest = max(largest, float(errors.max()))
    return Errors(float(np.mean(means)), largest)


def join_errors(sketch: ECMSketch | ECMCollection, log: Log, estimator: Estimator) -> Errors:
    """Of the self-join of every window."""
    errors = []
    for window in log.windows:
        exact = log.exact(window).astype(np.float64)
        found = sketch.self_join(ds.decay.window(window), now=log.now, estimator=estimator).value
        errors.append(abs(found - float(exact @ exact)) / exact.sum() ** 2)
    return Errors(float(np.mean(errors)), float(np.max(errors)))


def measure(log: Log, kind: Kind, epsilon: float, query: Query, seed: int) -> list[Measured]:
    """One sketch, both estimators."""
    sketch = build(log, params_of(epsilon, kind, query, seed))
    wire, memory = len(sketch.to_bytes()), sketch.nbytes
    found = []
    for estimator in ESTIMATORS:
        of = point_errors if query == "point" else join_errors
        errors = of(sketch, log, estimator)
        found.append(
            Measured(log.name, kind, epsilon, query, estimator, seed, errors, memory, wire)
        )
    return found


def measure_randomized(log: Log, epsilon: float, seed: int) -> list[Measured]:
    """The paper's sketch of randomized waves."""
    sketch = RandomizedSketch(RandomizedParams.for_accuracy(epsilon, DELTA, seed=seed))
    sketch.update(log.keys, log.times, np.arange(len(log.keys)))
    errors = point_errors(sketch, log, "minimum")
    return [Measured(log.name, "rw", epsilon, "point", "minimum", seed, errors, sketch.nbytes, 0)]


def produce(
    logs: Sequence[Log],
    seeds: int,
    jobs: int,
    folder: Path,
    epsilons: Sequence[float] = EPSILONS,
) -> list[Report]:
    """A page for each log, of so many hash seeds; one of them of ECM-RW, which takes long."""
    reports = []
    for log in logs:
        tasks = [
            (log, kind, epsilon, query, seed)
            for kind in KINDS
            for epsilon in epsilons
            for query in _QUERIES
            for seed in range(seeds)
        ]
        parts = pool.run(f"figure 5, {log.name}", measure, tasks, jobs)
        if len(log.keys) <= _MOST_RANDOMIZED:
            wide = [(log, epsilon, 0) for epsilon in epsilons if epsilon >= _RANDOMIZED_FROM]
            parts += pool.run(f"figure 5, {log.name}, rw", measure_randomized, wide, jobs)
        reports.append(_page(log, [each for part in parts for each in part], seeds, folder))
    return reports


def _means(measured: list[Measured]) -> list[Measured]:
    """Over seeds: the mean of the means, and of the largest errors."""
    groups: dict[tuple[object, ...], list[Measured]] = {}
    for each in measured:
        groups.setdefault(each[:5], []).append(each)
    return [
        part[0]._replace(
            errors=Errors(
                float(np.mean([m.errors.mean for m in part])),
                float(np.mean([m.errors.largest for m in part])),
            ),
            memory=round(np.mean([m.memory for m in part])),
            wire=round(np.mean([m.wire for m in part])),
        )
        for part in groups.values()
    ]


# ---------------------------------------------------------------------------------------- the page


def _page(log: Log, trials: list[Measured], seeds: int, folder: Path) -> Report:
    measured = _means(trials)
    name = f"ecm-figure-5-{log.name}"
    setting = (
        f"{log.title}, {len(log.keys):,} events, {len(np.unique(log.keys)):,} keys; windows of "
        f"{log.windows[0]:,} to {log.window:,} {log.unit}; delta = {DELTA}; {seeds} hash seeds"
    )
    title = "Figure 5: errors against memory at one site"
    tried = ", one of ECM-RW" if any(m.kind == "rw" for m in measured) else ""
    _draw(folder / f"{name}.png", title, setting, measured)
    report = Report(
        name,
        f"{title}: {log.name}",
        f"{setting}{tried}; sizes by theorems 1 to 3. Errors are relative to all events of "
        "the window (self-joins: to its square); mean and largest over windows and, for points, "
        "keys, each averaged over seeds. 'minimum' is the paper's estimator. Memory is what is "
        "allocated, the total's own cell included.",
        tables=[_table(measured, query) for query in _QUERIES],
        claims=_claims(measured),
        headings=["log", "kind", "epsilon", "query", "estimator", "seed", "mean", "largest",
                  "memory", "wire"],
        raw=[[*m[:6], *m.errors, m.memory, m.wire] for m in trials],
    )  # fmt: skip
    report.write(folder)
    return report


def _table(measured: list[Measured], query: Query) -> Table:
    rows = []
    for kind in (*KINDS, "rw"):
        part = [m for m in measured if (m.kind, m.query) == (kind, query)]
        for epsilon in sorted({m.epsilon for m in part}):
            by = {m.estimator: m for m in part if m.epsilon == epsilon}
            paper, ours = by["minimum"], by.get("debiased")
            rows.append(
                [
                    f"{kind}, epsilon {epsilon}",
                    f"{paper.memory / 1024:,.1f}",
                    f"{paper.wire / 1024:,.1f}" if paper.wire else "-",
                    *(f"{error:.5f}" for error in paper.errors),
                    *(f"{error:.5f}" for error in (ours.errors if ours else ())),
                    *([] if ours else ["-", "-"]),
                    f"{paper.errors.mean / ours.errors.mean:.1f}" if ours else "-",
                ]
            )
    headings = ["sketch", "KB held", "KB sent", "minimum: mean", "largest", "debiased: mean",
                "largest", "closer by"]  # fmt: skip
    return Table(_NAMES[query], headings, rows)


def _claims(measured: list[Measured]) -> list[Claim]:
    claims = []
    for query in _QUERIES:
        part = [m for m in measured if m.query == query and m.estimator == "minimum"]
        exact = [m for m in part if m.kind != "rw"]
        claims.append(
            Claim(
                f"{_NAMES[query]}: mean error of the minimum below epsilon (paper); largest ratio",
                Figure(max(m.errors.mean / m.epsilon for m in exact), 0.0),
                1.0,
                "at most",
            )
        )
        ours = [m for m in measured if m.query == query and m.estimator == "debiased"]
        claims.append(
            Claim(
                f"{_NAMES[query]}: mean error debiased over that of the minimum (ours), all sizes",
                Figure(_sum(ours) / _sum(exact), 0.0),
                1.0,
                "at most",
            )
        )
    rw = [m for m in measured if m.kind == "rw"]
    if rw:
        waves = {m.epsilon: m for m in measured if (m.kind, m.query) == ("wave", "point")}
        claims.append(
            Claim(
                "ECM-RW takes an order of magnitude more memory or more (paper: two to three); "
                "least ratio to the wave",
                Figure(min(m.memory / waves[m.epsilon].memory for m in rw), 0.0),
                10.0,
                "at least",
            )
        )
    return claims


def _sum(measured: list[Measured]) -> float:
    return sum(m.errors.mean for m in measured)


def set_logarithmic(axes: Any) -> None:
    """Both axes on a log scale, with plain numbers at 1, 2 and 5 of each power of ten."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,g}"))


_LINES: Final[tuple[tuple[str, Estimator, str], ...]] = (
    ("eh", "minimum", "histogram, minimum (the paper's)"),
    ("wave", "minimum", "wave, minimum (the paper's)"),
    ("wave", "debiased", "wave, debiased (ours)"),
    ("rw", "minimum", "randomized wave"),
)


def _draw(path: Path, title: str, setting: str, measured: list[Measured]) -> None:
    with Page(path, title, setting, 2) as (figure, all_axes):
        for query, axes in zip(_QUERIES, all_axes, strict=True):
            axes.set_title(f"{_NAMES[query]}: mean (solid) and largest error (dashed)")
            for (kind, estimator, label), colour, marker in zip(
                _LINES, COLOURS, MARKERS, strict=False
            ):
                part = [
                    m
                    for m in measured
                    if (m.kind, m.estimator, m.query) == (kind, estimator, query)
                ]
                if not part:
                    continue
                part.sort(key=lambda m: m.epsilon)
                memory = [m.memory / 1024 for m in part]
                for number, style in enumerate(("-", "--")):
                    axes.plot(
                        memory, [m.errors[number] for m in part], color=colour, linestyle=style,
                        marker=marker, markersize=4.5, linewidth=1.5,
                        label=None if number else label,
                    )  # fmt: skip
                if (kind, estimator) == ("wave", "minimum"):
                    for m, x in zip(part, memory, strict=True):
                        axes.annotate(
                            f"{m.epsilon}", (x, m.errors.mean), textcoords="offset points",
                            xytext=(0, 6), ha="center", fontsize=7.5, color=INK,
                        )  # fmt: skip
            set_logarithmic(axes)
            axes.set_xlabel("memory, KB (numbers at points: epsilon)")
        all_axes[0].set_ylabel("error / events of the window")
        all_axes[1].set_ylabel("error / their square")
        figure.legend(
            *all_axes[0].get_legend_handles_labels(), loc="upper left",
            bbox_to_anchor=(0.006, 0.885), ncols=len(_LINES), fontsize=9, columnspacing=1.2,
        )  # fmt: skip
