"""Figures 4.7 and 4.8 from measured speeds: reports and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quality.figures.accuracy import EPSILON, FACTORS, capacity_of
from quality.figures.claims import Claim, Figure, mean
from quality.figures.decays import EXPONENTIAL, POLYNOMIAL, WINDOW, PaperDecay
from quality.figures.draw import COLOURS, INK, MARKERS, Page
from quality.figures.report import Report, Table
from quality.figures.speed import (
    DEGREE_FACTOR,
    EPSILON_FACTOR,
    EPSILONS,
    FAMILIES,
    Case,
    Speeds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["degree_page", "factor_page"]

_PAPER_RATE: Final = 10_000  # "in the order of 10,000 updates per second"
_QUERY_TIME: Final = "query-time sketch"
_LINES: Final = (EXPONENTIAL, POLYNOMIAL, WINDOW)
_ANY: Final = len(_LINES)  # number of the line of the query-time sketch
_QUARTILES: Final = (0.25, 0.5, 0.75)
_CAVEAT: Final = (
    "Millions of elements in a second of processor time: median (quartiles). Speeds are of this "
    "machine; claims are judged by ratios within a repetition."
)


def factor_page(name: str, speeds: Speeds, folder: Path) -> Report:
    """Figure 4.7: speed against C and against epsilon."""
    by_factor = [capacity_of(factor) for factor in FACTORS]
    by_epsilon = [capacity_of(EPSILON_FACTOR, epsilon) for epsilon in EPSILONS]
    title = "Figure 4.7: update speed against C and ε"
    panels = (
        ("(a) by C", "C", [str(factor) for factor in FACTORS], by_factor, f"ε = {EPSILON}"),
        (
            "(b) by ε", "ε", [f"{epsilon:g}" for epsilon in EPSILONS], by_epsilon,
            f"C = {EPSILON_FACTOR}",
        ),
    )  # fmt: skip
    setting = _setting(speeds)
    with Page(folder / f"{name}.png", title, setting, 2, share_y=True) as (figure, all_axes):
        for axes, (heading, label, ticks, capacities, fixed) in zip(all_axes, panels, strict=True):
            axes.set_title(f"{heading}, {fixed}")
            for number, line in enumerate((*_LINES, None)):
                rates = [_rates(speeds, line, capacity) for capacity in capacities]
                _line(axes, rates, number, _label(line, speeds))
            axes.set_xticks(
                range(len(capacities)),
                [f"{tick}\n{tau:,}" for tick, tau in zip(ticks, capacities, strict=True)],
            )
            axes.set_xlabel(f"{label}, and τ = C / ε² below it")
        _finish(figure, all_axes)
    tables = [
        Table(
            f"{heading}, {fixed}",
            ["sketch", *(f"{label} = {tick}" for tick in ticks)],
            [
                [
                    _label(line, speeds),
                    *(_cell(_rates(speeds, line, capacity)) for capacity in capacities),
                ]
                for line in (*_LINES, None)
            ],
        )
        for heading, label, ticks, capacities, fixed in panels
    ]
    report = Report(
        name,
        title,
        f"{setting}. {_CAVEAT}",
        tables=tables,
        claims=_factor_claims(speeds),
        headings=_HEADINGS,
        raw=_raw(speeds),
    )
    report.write(folder)
    return report


def _factor_claims(speeds: Speeds) -> list[Claim]:
    small, large = capacity_of(2), capacity_of(60)
    claims = []
    for line in (*_LINES, None):
        label = _label(line, speeds)
        claims.append(
            Claim(
                f"{label}: at C = 60 at least the paper's {_PAPER_RATE:,} elements a second; times "
                "as many",
                mean(_rates(speeds, line, large) / _PAPER_RATE),
                1.0,
                "at least",
            )
        )
        claims.append(
            Claim(
                f"{label}: C = 2 is more than twice as fast as C = 60 (paper)",
                mean(_rates(speeds, line, small) / _rates(speeds, line, large)),
                2.0,
                "at least",
            )
        )
        finest, coarsest = (
            capacity_of(EPSILON_FACTOR, epsilon) for epsilon in (EPSILONS[0], EPSILONS[-1])
        )
        claims.append(
            Claim(
                f"{label}: a smaller ε is slower (paper); ε = {EPSILONS[0]} over {EPSILONS[-1]}",
                mean(_rates(speeds, line, finest) / _rates(speeds, line, coarsest)),
                1.0,
                "at most",
            )
        )
    for faster, slower in ((POLYNOMIAL, EXPONENTIAL), (EXPONENTIAL, WINDOW)):
        claims.append(
            Claim(
                f"at C = 60 {faster.kind} decay is faster than {slower.kind} (paper)",
                mean(_rates(speeds, faster, large) / _rates(speeds, slower, large)),
                1.0,
                "at least",
            )
        )
    return claims


def degree_page(name: str, speeds: Speeds, folder: Path) -> Report:
    """Figure 4.8: speed against the degree of decay."""
    title = "Figure 4.8: update speed against the degree of decay"
    capacity = capacity_of(DEGREE_FACTOR)
    setting = f"{_setting(speeds)}; C = {DEGREE_FACTOR}, ε = {EPSILON}, τ = {capacity:,}"
    labels = ("β, per s", "α", "W, s")
    with Page(folder / f"{name}.png", title, setting, 3, share_y=True) as (figure, all_axes):
        for number, (axes, family, label) in enumerate(
            zip(all_axes, FAMILIES, labels, strict=True)
        ):
            axes.set_title(f"{family[0].kind} decay")
            rates = [_rates(speeds, decay, capacity) for decay in family]
            _line(axes, rates, number, "integral sketch of this decay")
            low, middle, high = np.quantile(_rates(speeds, None, capacity), _QUARTILES) / 1e6
            axes.axhspan(low, high, color=INK, alpha=0.1, linewidth=0)
            axes.axhline(
                middle, color=INK, linestyle="--", label="query-time sketch, which knows no decay"
            )
            axes.set_xticks(range(len(family)), [f"{decay.degree:g}" for decay in family])
            axes.set_xlabel(label)
            axes.legend(loc="lower right", fontsize=9)
        _finish(figure, all_axes, legend=False)
    tables = [
        Table(
            f"{family[0].kind} decay",
            ["sketch", *(f"{decay.degree:g}" for decay in family)],
            [["integral", *(_cell(_rates(speeds, decay, capacity)) for decay in family)]],
        )
        for family in FAMILIES
    ]
    tables.append(
        Table("any decay", ["sketch", ""], [[_QUERY_TIME, _cell(_rates(speeds, None, capacity))]])
    )
    claims = [
        Claim(
            f"{family[0].kind}: a faster decay is faster to update (paper); degree "
            f"{family[-1].degree:g} over {family[0].degree:g}",
            _ratio(speeds, family[-1], family[0], capacity),
            1.0,
            "at least",
        )
        for family in FAMILIES[:2]
    ]
    widths = FAMILIES[2]
    for side, bound in (("at least", 0.8), ("at most", 1.25)):
        claims.append(
            Claim(
                f"window: the width makes no significant difference (paper); W = "
                f"{widths[-1].degree:g} over {widths[0].degree:g}",
                _ratio(speeds, widths[-1], widths[0], capacity),
                bound,
                side,  # type: ignore[arg-type]
            )
        )
    report = Report(name, title, f"{setting}. {_CAVEAT}", tables, claims, _HEADINGS, _raw(speeds))
    report.write(folder)
    return report


# ---------------------------------------------------------------------------------- what both share

_HEADINGS: Final = ["sketch", "decay", "degree", "capacity", "repetition", "elements a second"]


def _raw(speeds: Speeds) -> list[list[object]]:
    return [
        [case.kind, case.decay.kind, case.decay.degree, case.capacity, repetition, round(rate)]
        for case, rates in speeds.rates.items()
        for repetition, rate in enumerate(rates)
    ]


def _rates(speeds: Speeds, decay: PaperDecay | None, capacity: int) -> Any:
    """Of the integral sketch of a decay, or of the query-time sketch."""
    if decay is None:
        return speeds.rates[Case("query-time", EXPONENTIAL, capacity)]
    return speeds.rates[Case("integral", decay, capacity)]


def _ratio(speeds: Speeds, ours: PaperDecay, theirs: PaperDecay, capacity: int) -> Figure:
    return mean(_rates(speeds, ours, capacity) / _rates(speeds, theirs, capacity))


def _label(decay: PaperDecay | None, speeds: Speeds) -> str:
    return _QUERY_TIME if decay is None else decay.label(speeds.source.unit)


def _setting(speeds: Speeds) -> str:
    repetitions = len(next(iter(speeds.rates.values())))
    return (
        f"{speeds.source.title}, {speeds.source.rows:,} elements; {repetitions} repetitions; "
        f"numpy.sort of the times: {np.median(speeds.sorts) / 1e6:.0f} M/s"
    )


def _cell(rates: Any) -> str:
    low, middle, high = np.quantile(rates, _QUARTILES) / 1e6
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _line(axes: Axes, rates: Any, number: int, label: str) -> None:
    """Medians with their quartiles, at 0, 1, 2, ...; drawn a little apart from other lines."""
    low, middle, high = np.quantile(np.array(rates), _QUARTILES, axis=1) / 1e6
    positions = np.arange(len(middle)) + 0.04 * (number - 1.5)
    axes.errorbar(
        positions, middle, [middle - low, high - middle], color=_colour(number),
        marker=MARKERS[number], markersize=5, linewidth=1.6, capsize=3, elinewidth=1,
        linestyle="--" if number == _ANY else "-", label=label,
    )  # fmt: skip


def _colour(number: int) -> str:
    return INK if number == _ANY else COLOURS[number]


def _finish(figure: Any, all_axes: Sequence[Axes], *, legend: bool = True) -> None:
    all_axes[0].set_ylim(bottom=0)
    all_axes[0].set_ylabel("million elements a second, median and quartiles")
    for axes in all_axes:
        axes.grid(visible=False, axis="x")
    if legend:
        figure.legend(
            *all_axes[0].get_legend_handles_labels(), loc="upper left",
            bbox_to_anchor=(0.006, 0.885), ncols=4, fontsize=9.5,
        )  # fmt: skip
