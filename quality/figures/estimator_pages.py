"""The estimators side by side: report and picture of the paired ratios."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from quality.figures.claims import Claim, Figure, rmse
from quality.figures.draw import INK, MUTED, Page
from quality.figures.estimators import CAPACITIES, DECAYS, WEIGHTS, Cell, ratio
from quality.figures.report import Report, Table

__all__ = ["estimator_page"]

_TITLE = "RMSE of the stratified estimator over that of Cohen and Strauss's"


def estimator_page(name: str, errors: dict[Cell, Any], folder: Path) -> Report:
    """Report and picture of all cells."""
    trials = len(next(iter(errors.values())))
    setting = (
        f"Decayed sum of weights; {trials} pairs in each of {len(errors)} cells, each a stream and "
        "a hash seed of its own; ages of decays in units of the capacity"
    )
    ratios = {cell: ratio(pairs) for cell, pairs in errors.items()}
    _draw(folder / f"{name}.png", setting, ratios)
    # An exact tie has no standard error and no excess.
    excess = {c: (r.value - 1) / r.stderr if r.stderr > 0 else 0.0 for c, r in ratios.items()}
    worst = max(excess, key=lambda cell: excess[cell])
    above = sum(1 for z in excess.values() if z > 2)
    logarithms = [math.log(figure.value) for figure in ratios.values() if figure.value > 0]
    report = Report(
        name,
        _TITLE,
        setting + ".",
        tables=[_table(capacity, errors, ratios) for capacity in CAPACITIES],
        claims=[
            Claim(
                f"the ratio is at most 1 + 2 standard errors in every cell (ours); {above} cells "
                f"are not; (ratio - 1) / standard error of the worst, {worst.decay}, weights "
                f"{worst.weights}, capacity {worst.capacity:,}",
                Figure(excess[worst], 0.0),
                2.0,
                "at most",
            ),
            Claim(
                "geometric mean of the ratios over the cells",
                Figure(math.exp(float(np.mean(logarithms))), _stderr_of_mean(ratios)),
                1.0,
                "at most",
            ),
        ],
        headings=["weights", "capacity", "decay", "trial", "stratified", "cohen-strauss"],
        raw=[
            [cell.weights, cell.capacity, cell.decay, trial, f"{ours:.6g}", f"{theirs:.6g}"]
            for cell, pairs in errors.items()
            for trial, (ours, theirs) in enumerate(pairs)
        ],
    )
    report.write(folder)
    return report


def _stderr_of_mean(ratios: dict[Cell, Figure]) -> float:
    """Of the geometric mean, as if the cells of one stream rose and fell together."""
    relative = [figure.stderr / figure.value for figure in ratios.values() if figure.value > 0]
    streams = len(WEIGHTS) * len(CAPACITIES)
    return float(np.mean(relative)) / math.sqrt(streams)


def _table(capacity: int, errors: dict[Cell, Any], ratios: dict[Cell, Figure]) -> Table:
    rows = []
    for weights in WEIGHTS:
        cells = [Cell(weights, capacity, decay) for decay in DECAYS]
        rows.append([weights, *(f"{ratios[c].value:.3f} ± {ratios[c].stderr:.3f}" for c in cells)])
        stratified = [100 * rmse(errors[c][:, 0]).value for c in cells]
        rows.append(["  its RMSE, %", *(f"{size:.2f}" for size in stratified)])
    return Table(f"capacity {capacity:,}: ratio of RMSE", ["weights", *DECAYS], rows)


def _draw(path: Path, setting: str, ratios: dict[Cell, Figure]) -> None:
    lines = [(capacity, weights) for capacity in CAPACITIES for weights in WEIGHTS]
    cells = [[Cell(weights, capacity, decay) for decay in DECAYS] for capacity, weights in lines]
    values = np.array([[ratios[cell].value for cell in row] for row in cells])
    with Page(path, _TITLE, setting, 1, height=8.2, left=0.15, bottom=0.95) as (figure, (axes,)):
        # Blue below 1, red above, white at 1.
        image = axes.imshow(
            np.log2(values), cmap=mpl.colormaps["RdBu_r"], vmin=-2, vmax=2, aspect="auto"
        )
        for i, row in enumerate(cells):
            for j, cell in enumerate(row):
                ratio_here = ratios[cell]
                dark = abs(math.log2(ratio_here.value)) > 1.2 if ratio_here.value > 0 else False
                axes.text(
                    j, i, f"{ratio_here.value:.2f} ± {ratio_here.stderr:.2f}", ha="center",
                    va="center", fontsize=9, color="white" if dark else INK,
                )  # fmt: skip
        axes.set_xticks(range(len(DECAYS)), DECAYS)
        axes.set_yticks(range(len(lines)), [f"{weights}" for _, weights in lines])
        axes.xaxis.tick_top()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for group, capacity in enumerate(CAPACITIES):
            middle = group * len(WEIGHTS) + (len(WEIGHTS) - 1) / 2
            axes.annotate(
                f"capacity\n{capacity:,}", (-0.105, middle), xycoords=("axes fraction", "data"),
                ha="center", va="center", color=MUTED, annotation_clip=False,
            )  # fmt: skip
            if group:
                axes.axhline(group * len(WEIGHTS) - 0.5, color=INK, linewidth=1)
        bar = figure.add_axes((0.15, 0.055, 0.35, 0.018))
        colours = figure.colorbar(image, cax=bar, orientation="horizontal")
        colours.set_ticks([-2, -1, 0, 1, 2], labels=["1/4", "1/2", "1", "2", "4"])
        figure.text(
            0.51, 0.063, "ratio ± standard error; rows are weights; below 1 (blue) the stratified "
            "one is better", fontsize=9.5, color=MUTED, va="center",
        )  # fmt: skip
