"""Table 4, figures 6 and 7: one sketch from those of many sites, as in section 7.3.1.

Each event goes to a site at random. What the root knows is then either

* the *sum* of the sites' cells, kept apart (ours),
* one *flat* order-preserving merge of all sites (ours), or
* a *tree* of merges of two, as in the paper,

beside *one site* that saw everything. Collisions of keys are the same in all of them, and most of
the error of the paper's estimate; so the errors of cells are given, too. The network carries each
sketch that is sent, as bytes: S of them for a sum or a flat merge, ``2 (S - 1)`` for a tree. Errors
are as in figure 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
from decaysketch.ecm.matrix import Estimator
from decaysketch.ecm.sizing import Kind, Query
from quality.ecm.accuracy import (
    DELTA,
    EPSILONS,
    KINDS,
    build,
    join_errors,
    params_of,
    point_errors,
    set_logarithmic,
)
from quality.ecm.logs import Log
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.draw import COLOURS, INK, MARKERS, Page
from quality.figures.report import Report, Table

__all__ = ["SITES", "produce_figure_6", "produce_figure_7"]

Way = Literal["one site", "sum", "flat", "tree"]

SITES: Final = tuple(2**i for i in range(1, 9))
_WAYS: Final[tuple[Way, ...]] = get_args(Way)
_QUERIES: Final[tuple[Query, ...]] = ("point", "inner")
_ESTIMATORS: Final[tuple[Estimator, ...]] = ("minimum", "debiased")
_NAMES: Final = {"point": "point queries", "inner": "self-joins"}
_KINDS: Final = {"eh": "exponential histograms", "wave": "waves"}


class Measured(NamedTuple):
    """What one root answers.

    Attributes:
        log, kind, epsilon, query, sites, seed: of the sketches, and of who saw what.
        way: how it came to what it knows.
        estimator: of its answers.
        error: mean, as in figure 5.
        cells: mean relative error of the cells themselves, which collisions of keys are no part of.
        network: bytes that were sent.
        slack: relative error that merging may have added to a cell.
    """

    log: str
    kind: Kind
    epsilon: float
    query: Query
    sites: int
    seed: int
    way: Way
    estimator: Estimator
    error: float
    cells: float
    network: int
    slack: float


def measure(
    log: Log, kind: Kind, epsilon: float, query: Query, sites: int, seed: int
) -> list[Measured]:
    """All ways of one network."""
    params = params_of(epsilon, kind, query, seed)
    parts = _split(log, params, sites, seed)
    sizes = sum(len(part.to_bytes()) for part in parts)
    together = ECMCollection(params.with_capacity(max(sites, 2)), parts)
    flat = together.compact()
    tree, sent = _tree(params, parts)
    ways: dict[Way, tuple[ECMSketch | ECMCollection, int]] = {
        "one site": (build(log, params), 0),
        "sum": (together, sizes),
        "flat": (flat, sizes),
        "tree": (tree, sent),
    }
    of = point_errors if query == "point" else join_errors
    return [
        Measured(
            log.name, kind, epsilon, query, sites, seed, way, estimator,
            of(root, log, estimator).mean, _cell_error(root, log), network, _slack(root),
        )
        for way, (root, network) in ways.items()
        for estimator in _ESTIMATORS
    ]  # fmt: skip


def _split(log: Log, params: ECMParams, sites: int, seed: int) -> list[ECMSketch]:
    """A sketch of each site."""
    where = np.random.default_rng([7, seed]).integers(0, sites, len(log.keys))
    order = np.argsort(where, kind="stable")
    cuts = np.searchsorted(where[order], np.arange(sites + 1))
    sketches = []
    for site in range(sites):
        mine = order[cuts[site] : cuts[site + 1]]
        sketch = ECMSketch(params, source=site, epoch=1)
        sketch.update(log.keys[mine], log.times[mine])
        sketches.append(sketch)
    return sketches


def _tree(params: ECMParams, sketches: Sequence[ECMSketch]) -> tuple[ECMSketch, int]:
    """The root of merges of two, and bytes sent."""
    level, sent = list(sketches), 0
    while len(level) > 1:
        above = []
        for at in range(0, len(level), 2):
            pair = level[at : at + 2]
            sent += sum(len(sketch.to_bytes()) for sketch in pair)
            above.append(ECMCollection(params, pair).compact(source=at // 2, epoch=len(level)))
        level = above
    return level[0], sent


def _cell_error(root: ECMSketch | ECMCollection, log: Log) -> float:
    """Mean over cells that hold anything, and over windows."""
    keys = np.arange(int(log.keys.max()) + 1)
    errors = []
    for window in log.windows:
        leaf = root.grid(ds.decay.window(window), now=log.now).leaf
        exact = log.exact(window)
        columns = leaf.columns(root.params.words_of(keys))
        true = np.array([np.bincount(row, exact, leaf.layer.width) for row in columns])
        some = true > 0
        errors.append(float((np.abs(leaf.value - true)[some] / true[some]).mean()))
    return float(np.mean(errors))


def _slack(root: ECMSketch | ECMCollection) -> float:
    return max(state.slack for state in root.snapshot().entries.values())


def produce_figure_6(
    logs: Sequence[Log], seeds: int, jobs: int, folder: Path, epsilons: Sequence[float] = EPSILONS
) -> list[Report]:
    """Table 4 and figure 6: 16 sites, all epsilons. A page for each log."""
    reports = []
    for log in logs:
        tasks = [
            (log, kind, epsilon, query, 16, seed)
            for kind in KINDS
            for epsilon in epsilons
            for query in _QUERIES
            for seed in range(seeds)
        ]
        parts = pool.run(f"figure 6, {log.name}", measure, tasks, jobs)
        reports.append(_page_6(log, [each for part in parts for each in part], seeds, folder))
    return reports


def produce_figure_7(
    logs: Sequence[Log], seeds: int, jobs: int, folder: Path, sites: Sequence[int] = SITES
) -> list[Report]:
    """Figure 7: epsilon = delta = 0.15, 2 to 256 sites. A page for each log."""
    reports = []
    for log in logs:
        tasks = [
            (log, kind, DELTA, query, each, seed)
            for kind in KINDS
            for each in sites
            for query in _QUERIES
            for seed in range(seeds)
        ]
        parts = pool.run(f"figure 7, {log.name}", measure, tasks, jobs)
        reports.append(_page_7(log, [each for part in parts for each in part], seeds, folder))
    return reports


# --------------------------------------------------------------------------------------- the pages


def _mean(measured: Iterable[Measured], name: str = "error") -> float:
    return float(np.mean([getattr(m, name) for m in measured]))


def _of(measured: list[Measured], **fields: object) -> list[Measured]:
    """Those with these fields; by default of the paper's estimator."""
    wanted = {"estimator": "minimum"} | fields
    return [m for m in measured if all(getattr(m, name) == v for name, v in wanted.items())]


def _setting(log: Log, seeds: int) -> str:
    return (
        f"{log.title}, {len(log.keys):,} events to sites at random; windows of "
        f"{log.windows[0]:,} to {log.window:,} {log.unit}; delta = {DELTA}; {seeds} seeds"
    )


def _report(
    name: str, title: str, log: Log, setting: str, tables: list[Table], claims: list[Claim],
    measured: list[Measured], folder: Path,
) -> Report:  # fmt: skip
    report = Report(
        f"{name}-{log.name}",
        f"{title}: {log.name}",
        f"{setting}. Mean errors, averaged over seeds, of the paper's estimator, the minimum; "
        "numbers of all seeds and of the debiased one are in the CSV file. Sizes by theorems 1 "
        "and 2 as printed.",
        tables=tables,
        claims=claims,
        headings=list(Measured._fields),
        raw=measured,
    )
    report.write(folder)
    return report


def _page_6(log: Log, measured: list[Measured], seeds: int, folder: Path) -> Report:
    title = "Table 4 and figure 6: 16 sites"
    setting = _setting(log, seeds)
    epsilons = sorted({m.epsilon for m in measured})
    tables = []
    for query in _QUERIES:
        rows = []
        for kind in KINDS:
            for epsilon in epsilons:
                part = _of(measured, kind=kind, epsilon=epsilon, query=query)
                by = {way: _mean(_of(part, way=way)) for way in _WAYS}
                sent = {way: _mean(_of(part, way=way), "network") / 1024 for way in _WAYS}
                rows.append(
                    [
                        f"{kind}, epsilon {epsilon}",
                        *(f"{by[way]:.5f}" for way in _WAYS),
                        *(f"{by[way] / by['one site']:.3f}" for way in _WAYS[1:]),
                        f"{sent['sum']:,.0f}",
                        f"{sent['tree']:,.0f}",
                    ]
                )
        headings = ["sketch", *_WAYS, *(f"{way} : one" for way in _WAYS[1:]), "KB, sum or flat",
                    "KB, tree"]  # fmt: skip
        tables.append(Table(_NAMES[query], headings, rows))
    tables.append(_cell_table(measured, "epsilon", epsilons))
    _draw_6(folder / f"ecm-figure-6-{log.name}.png", title, setting, measured)
    return _report(
        "ecm-figure-6", title, log, setting, tables, _claims_6(measured), measured, folder
    )


def _cell_table(measured: list[Measured], name: str, values: Sequence[float]) -> Table:
    rows = []
    for kind in KINDS:
        for value in values:
            part = _of(measured, kind=kind, query="point", **{name: value})
            by = {way: _mean(_of(part, way=way), "cells") for way in _WAYS}
            rows.append(
                [
                    f"{kind}, {name} {value}",
                    *(f"{by[way]:.5f}" for way in _WAYS),
                    *(f"{by[way] / by['one site']:.3f}" for way in _WAYS[1:]),
                ]
            )
    headings = ["sketch", *_WAYS, *(f"{way} : one" for way in _WAYS[1:])]
    return Table("cells of point queries: mean relative error", headings, rows)


def _ratio(measured: list[Measured], way: Way, name: str = "error", **fields: object) -> Figure:
    """Mean error over that of one site, all that these fields leave taken together."""
    part = _of(measured, **fields)
    ratio = _mean(_of(part, way=way), name) / _mean(_of(part, way="one site"), name)
    seeds = sorted({m.seed for m in part})
    each = [
        _mean(_of(part, way=way, seed=seed), name)
        / _mean(_of(part, way="one site", seed=seed), name)
        for seed in seeds
    ]
    deviation = float(np.std(each, ddof=1)) / math.sqrt(len(seeds)) if len(seeds) > 1 else math.nan
    return Figure(ratio, deviation)


def _claims_6(measured: list[Measured]) -> list[Claim]:
    claims = []
    for query, bound in (("point", 1.18), ("inner", 1.09)):
        claims.append(
            Claim(
                f"tree of 16, {_NAMES[query]}, histograms: error over that of one site (paper's "
                "largest on its logs)",
                _ratio(measured, "tree", kind="eh", query=query),
                bound,
                "at most",
            )
        )
    return claims + _own_claims(measured, "16")


def _own_claims(measured: list[Measured], sites: str) -> list[Claim]:
    """A sum by its cells: cells that err low hide collisions, so by the paper's estimate trees come
    out better than one site, and sums, which err least, worse by half a percent where collisions
    are all of the error. A flat merge by its answers."""
    sums = [
        Claim(
            f"sum of {sites}, {_KINDS[kind]}: error of cells over that of one site (ours)",
            _ratio(measured, "sum", "cells", kind=kind, query="point"),
            1.0,
            "at most",
        )
        for kind in KINDS
    ]
    return sums + [
        Claim(
            f"flat of {sites}, {_NAMES[query]}, {_KINDS[kind]}: error over that of one site (ours)",
            _ratio(measured, "flat", kind=kind, query=query),
            1.05,
            "at most",
        )
        for query in _QUERIES
        for kind in KINDS
    ]


def _draw_6(path: Path, title: str, setting: str, measured: list[Measured]) -> None:
    with Page(path, title, setting, 2) as (figure, all_axes):
        for query, axes in zip(_QUERIES, all_axes, strict=True):
            axes.set_title(f"{_NAMES[query]}: waves (solid), histograms (dashed)")
            for way, colour, marker in zip(_WAYS[1:], COLOURS, MARKERS, strict=False):
                for kind, style in (("wave", "-"), ("eh", "--")):
                    part = _of(measured, kind=kind, query=query, way=way)
                    epsilons = sorted({m.epsilon for m in part})
                    groups = [_of(part, epsilon=epsilon) for epsilon in epsilons]
                    x = [_mean(group, "network") / 1024 for group in groups]
                    y = [_mean(group) for group in groups]
                    axes.plot(
                        x, y, color=colour, marker=marker, markersize=4.5, linewidth=1.5,
                        linestyle=style, label=way if kind == "wave" else None,
                    )  # fmt: skip
                    if (way, kind) == ("tree", "wave"):
                        for epsilon, at, height in zip(epsilons, x, y, strict=True):
                            axes.annotate(
                                f"{epsilon}", (at, height), textcoords="offset points",
                                xytext=(6, 4), fontsize=7.5, color=INK,
                            )  # fmt: skip
            set_logarithmic(axes)
            axes.set_xlabel("sent in all, KB (numbers at points: epsilon)")
        all_axes[0].set_ylabel("mean error / events of the window")
        all_axes[1].set_ylabel("mean error / their square")
        figure.legend(
            *all_axes[0].get_legend_handles_labels(), loc="upper left",
            bbox_to_anchor=(0.006, 0.885), ncols=3, fontsize=9, columnspacing=1.2,
        )  # fmt: skip


def _page_7(log: Log, measured: list[Measured], seeds: int, folder: Path) -> Report:
    title = "Figure 7: 2 to 256 sites"
    setting = f"epsilon = delta = {DELTA}; " + _setting(log, seeds).replace(
        f"delta = {DELTA}; ", ""
    )
    sites = sorted({m.sites for m in measured})
    tables = []
    for query in _QUERIES:
        rows = []
        for kind in KINDS:
            for each in sites:
                part = _of(measured, kind=kind, sites=each, query=query)
                by = {way: _mean(_of(part, way=way)) for way in _WAYS}
                rows.append(
                    [
                        f"{kind}, {each} sites",
                        *(f"{by[way]:.5f}" for way in _WAYS),
                        *(f"{by[way] / by['one site']:.3f}" for way in _WAYS[1:]),
                        f"{_mean(_of(part, way='sum'), 'network') / 1024:,.0f}",
                        f"{_mean(_of(part, way='tree'), 'network') / 1024:,.0f}",
                        f"{_mean(_of(part, way='tree'), 'slack'):.2f}",
                    ]
                )
        headings = ["sketch", *_WAYS, *(f"{way} : one" for way in _WAYS[1:]), "KB, sum or flat",
                    "KB, tree", "slack, tree"]  # fmt: skip
        tables.append(Table(_NAMES[query], headings, rows))
    tables.append(_cell_table(measured, "sites", sites))
    claims = _own_claims(measured, f"{sites[0]} to {sites[-1]}")
    _draw_7(
        folder / f"ecm-figure-7-{log.name}.png",
        f"{title}; waves solid, histograms dashed",
        setting,
        measured,
    )
    return _report("ecm-figure-7", title, log, setting, tables, claims, measured, folder)


def _draw_7(path: Path, title: str, setting: str, measured: list[Measured]) -> None:
    with Page(path, title, setting, 3) as (figure, all_axes):
        sites = sorted({m.sites for m in measured})
        for axes, name in zip(all_axes, (*_QUERIES, "network"), strict=True):
            axes.set_title("sent, for points" if name == "network" else f"{_NAMES[name]}: error")
            query = "point" if name == "network" else name
            for way, colour, marker in zip(_WAYS, (INK, *COLOURS), MARKERS, strict=False):
                if name == "network" and way in ("one site", "flat"):
                    continue
                for kind, style in (("wave", "-"), ("eh", "--")):
                    part = _of(measured, kind=kind, query=query, way=way)
                    field = "network" if name == "network" else "error"
                    y = [_mean(_of(part, sites=each), field) for each in sites]
                    axes.plot(
                        sites, np.array(y) / (1024 if name == "network" else 1), color=colour,
                        marker=marker, markersize=4, linewidth=1.4, linestyle=style,
                        label=way if kind == "wave" else None,
                    )  # fmt: skip
            axes.set_xscale("log")
            if name == "network":
                axes.set_yscale("log")
                axes.set_ylabel("KB (a flat merge as a sum)")
            else:
                axes.set_ylim(bottom=0)
            axes.minorticks_off()
            axes.set_xticks(sites, [str(each) for each in sites], fontsize=8)
            axes.set_xlabel("sites")
        figure.legend(
            *all_axes[0].get_legend_handles_labels(), loc="upper left",
            bbox_to_anchor=(0.006, 0.885), ncols=4, fontsize=9, columnspacing=1.2,
        )  # fmt: skip
