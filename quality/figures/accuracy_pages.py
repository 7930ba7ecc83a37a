"""Figures 4.2 to 4.5 from measured errors: report and picture of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from quality.figures.accuracy import EPSILON, FACTORS, Errors, capacity_of
from quality.figures.claims import Claim, Figure, rmse, rmse_ratio, rmse_slope, share
from quality.figures.draw import INK, MUTED, Page, series_colour
from quality.figures.report import Report, Table, percent, plain
from quality.figures.sketches import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["selectivity_page", "sum_page"]

_TWO_THIRDS: Final = 2 / 3

LABELS: Final[dict[Series, str]] = {
    "paper": "integral sketch, one level (the paper's)",
    "integral": "integral sketch, stratified",
    "query-time": "query-time sketch",
}
_SHIFTS: Final = {"paper": -0.27, "integral": 0.0, "query-time": 0.27}  # of dots, in steps of C


class Panel(NamedTuple):
    """One column of errors, for each series float64[seeds, C]."""

    label: str
    errors: dict[Any, Any]


def sum_page(name: str, measured: Sequence[Errors], folder: Path) -> Report:
    """Figure 4.2: relative error of the decayed sum, one panel for each decay."""
    panels = [
        Panel(
            errors.decay.label(errors.source.unit),
            {series: column[:, :, 0] for series, column in errors.errors.items()},
        )
        for errors in measured
    ]
    sums = ", ".join(f"{errors.decay.kind} {errors.exact[0]:,.0f}" for errors in measured)
    return _page(
        name,
        "Figure 4.2: relative error of the decayed sum against C",
        "relative error",
        f"Decayed sums, rounded down: {sums}.",
        measured[0],
        panels,
        enough=2,
        folder=folder,
    )


def selectivity_page(name: str, number: str, errors: Errors, folder: Path) -> Report:
    """Figures 4.3, 4.4 and 4.5: additive error of selectivity, one panel for each predicate."""
    decay = errors.decay.label(errors.source.unit)
    panels = [
        Panel(
            f"P{i}: {predicate}",
            {series: column[:, :, i] for series, column in errors.errors.items()},
        )
        for i, predicate in enumerate(errors.source.predicates, start=1)
    ]
    shares = ", ".join(
        f"{panel.label}: {100 * selectivity:.1f} %"
        for panel, selectivity in zip(panels, errors.exact[1:], strict=True)
    )
    return _page(
        name,
        f"Figure {number}: additive error of selectivity against C, {decay}",
        "additive error",
        f"Selectivities: {shares}.",
        errors,
        panels,
        enough=1,
        folder=folder,
    )


def _page(
    name: str,
    title: str,
    measure: str,
    facts: str,
    errors: Errors,
    panels: Sequence[Panel],
    *,
    enough: int,
    folder: Path,
) -> Report:
    source = errors.source
    stream = (
        f"{source.title}, {source.rows:,} elements, {source.distinct:,} distinct "
        f"({100 * source.distinct / source.rows:.1f} %); ε = {EPSILON}; {errors.seeds} hash seeds"
    )
    _draw(folder / f"{name}.png", title, stream, measure, panels)
    report = Report(
        name,
        title,
        f"{stream}; query at the end of the stream. {facts}",
        tables=[_table(panel, measure) for panel in panels],
        claims=[claim for panel in panels for claim in _claims(panel, measure, enough)],
        headings=["panel", "series", "C", "capacity", "seed", measure],
        raw=[
            [panel.label, series, factor, capacity_of(factor), seed, f"{error:.6g}"]
            for panel in panels
            for series in LABELS
            for column, factor in enumerate(FACTORS)
            for seed, error in enumerate(panel.errors[series][:, column])
        ],
    )
    report.write(folder)
    return report


def _table(panel: Panel, measure: str) -> Table:
    rows = []
    for series in LABELS:
        for column, factor in enumerate(FACTORS):
            errors = panel.errors[series][:, column]
            size = rmse(errors)
            scaled = capacity_of(factor) ** 0.5
            rows.append(
                [
                    series,
                    str(factor),
                    f"{capacity_of(factor):,}",
                    percent(Figure(float(errors.mean()), float(errors.std()) / len(errors) ** 0.5)),
                    percent(size, 3),
                    plain(Figure(size.value * scaled, size.stderr * scaled)),
                    percent(share(np.abs(errors) <= EPSILON), 1),
                ]
            )
    within = f"within ±{100 * EPSILON:.0f} %, %"
    return Table(
        f"{panel.label}: {measure}",
        ["series", "C", "τ", "mean, %", "RMSE, %", "RMSE √τ", within],
        rows,
    )


def _claims(panel: Panel, measure: str, enough: int) -> list[Claim]:
    claims = []
    column = FACTORS.index(enough)
    for series in LABELS:
        errors = panel.errors[series]
        claims.append(
            Claim(
                f"{panel.label}, {series}: at C = {enough} the {measure} is within "
                f"±{100 * EPSILON:.0f} % with probability ≥ 2/3 (paper)",
                share(np.abs(errors[:, column]) <= EPSILON),
                _TWO_THIRDS,
                "at least",
                percent=True,
            )
        )
        if (np.square(errors).mean(axis=0) > 0).all():
            claims.append(
                Claim(
                    f"{panel.label}, {series}: a larger C is more accurate (paper); slope of log "
                    "RMSE against log C (-1/2 where RMSE √τ is constant)",
                    rmse_slope(errors, FACTORS),
                    0.0,
                    "at most",
                )
            )
    for ours, theirs, text in (
        ("integral", "paper", "the stratified estimate has no larger RMSE than the paper's"),
        (
            "query-time",
            "integral",
            "the query-time sketch, built without the decay, has no larger RMSE than the integral "
            "one, both stratified",
        ),
    ):
        claims.append(
            Claim(
                f"{panel.label}, C = {enough}: {text}; paired ratio (ours)",
                rmse_ratio(panel.errors[ours][:, column], panel.errors[theirs][:, column]),
                1.0,
                "at most",
            )
        )
    return claims


# ------------------------------------------------------------------------------------- the picture


def _draw(path: Path, title: str, setting: str, measure: str, panels: Sequence[Panel]) -> None:
    with Page(path, title, setting, len(panels), share_y=True) as (figure, all_axes):
        for axes, panel in zip(all_axes, panels, strict=True):
            axes.set_title(panel.label)
            for series in LABELS:
                _dots(axes, panel.errors[series], series_colour(series), _SHIFTS[series])
            for level in (-EPSILON, EPSILON):
                axes.axhline(100 * level, color=INK, linewidth=1, linestyle=(0, (5, 3)))
            axes.axhline(0, color=MUTED, linewidth=0.8)
            labels = [f"{factor}\n{capacity_of(factor):,}" for factor in FACTORS]
            axes.set_xticks(range(len(FACTORS)), labels)
            axes.grid(visible=False, axis="x")
            axes.set_xlabel("C, and τ = C / ε² below it")
        all_axes[0].set_ylabel(f"{measure}, %")
        largest = max(np.abs(panel.errors[series]).max() for panel in panels for series in LABELS)
        limit = 105 * max(float(largest), EPSILON)
        all_axes[0].set_ylim(-limit, limit)
        handles = [
            *(
                Line2D(
                    [], [], color=series_colour(series), marker="o", linestyle="", markersize=5,
                    label=LABELS[series],
                )
                for series in LABELS
            ),
            Patch(facecolor="none", edgecolor=INK, label="box: ± RMSE"),
            Line2D([], [], color=INK, linestyle=(0, (5, 3)), label="± ε"),
        ]  # fmt: skip
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.006, 0.885), ncols=len(handles),
            fontsize=9.5,
        )  # fmt: skip


def _dots(axes: Axes, errors: Any, colour: str, shift: float) -> None:
    seeds = len(errors)
    # Evenly spread in an order that has nothing to do with the seeds' errors: no dot hides another.
    spread = ((np.arange(seeds) * 0.618034) % 1 - 0.5) * 0.2
    size = 9 if seeds <= 100 else 4
    for position in range(errors.shape[1]):
        column = 100 * errors[:, position]
        centre = position + shift
        axes.scatter(centre + spread, column, s=size, color=colour, alpha=0.35, linewidths=0)
        half = float(np.sqrt(np.square(column).mean()))
        axes.bar(
            centre, 2 * half, width=0.25, bottom=-half, facecolor="none",
            edgecolor=colour, linewidth=1.4,
        )  # fmt: skip
