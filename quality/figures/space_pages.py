"""Figure 4.6 from measured sizes: report and picture."""

from __future__ import annotations

from pathlib import Path

from matplotlib.ticker import FuncFormatter, LogLocator

from quality.figures.accuracy import EPSILON, FACTORS, capacity_of
from quality.figures.claims import Claim, Figure, mean
from quality.figures.draw import COLOURS, MARKERS, Page
from quality.figures.report import Report, Table
from quality.figures.space import CASES, GENERAL, MEASURES, QUERY_TIME, Case, Space

__all__ = ["space_page"]

_TITLE = "Figure 4.6: space against C"
_LABELS = ("entries over all levels", "rows, each stored once", "bytes on the wire")


def space_page(name: str, whole: Space, part: Space, folder: Path) -> Report:
    """Report and picture.

    Args:
        name: of the files.
        whole: sizes over the stream.
        part: sizes over a shorter one.
        folder: where to.
    """
    source, unit = whole.source, whole.source.unit
    seeds = len(whole.sizes[GENERAL])
    setting = (
        f"{source.title}, {source.rows:,} elements, {source.distinct:,} distinct; ε = {EPSILON}; "
        f"mean of {seeds} hash seeds"
    )
    _draw(folder / f"{name}.png", setting, whole)
    report = Report(
        name,
        _TITLE,
        f"{setting}. Standard errors are those of the mean.",
        tables=[_table(whole, column) for column in range(len(MEASURES))],
        claims=_claims(whole, part),
        headings=["elements", "case", "C", "capacity", "seed", *MEASURES],
        raw=[
            [space.source.rows, case.label(unit), factor, capacity_of(factor), seed, *map(int, row)]
            for space in (part, whole)
            for case in CASES
            for seed, rows in enumerate(space.sizes[case])
            for factor, row in zip(FACTORS, rows, strict=True)
        ],
    )
    report.write(folder)
    return report


def _table(space: Space, column: int) -> Table:
    return Table(
        _LABELS[column],
        ["sketch", *(f"C = {factor}" for factor in FACTORS)],
        [
            [
                case.label(space.source.unit),
                *(
                    f"{figure.value:,.0f} ± {figure.stderr:,.0f}"
                    for figure in map(mean, space.sizes[case][:, :, column].T)
                ),
            ]
            for case in CASES
        ],
    )


def _claims(whole: Space, part: Space) -> list[Claim]:
    entries, size = MEASURES.index("entries"), MEASURES.index("bytes")
    small, middle = FACTORS.index(2), FACTORS.index(20)
    general = whole.sizes[GENERAL]
    claims = [
        Claim(
            "25-hour window: C = 2 takes far fewer entries than C = 60 (paper); ratio to 2 / 60",
            _scaled(mean(general[:, small, entries] / general[:, -1, entries]), 30),
            3.0,
            "at most",
        )
    ]
    for position, limit in ((small, 10_000), (middle, 100_000)):
        claims.append(
            Claim(
                f"general sketch: about {limit // 1000} kB at C = {FACTORS[position]} (paper; "
                "bound: half as much again); our query-time sketch, bytes on the wire",
                mean(whole.sizes[QUERY_TIME][:, position, size]),
                1.5 * limit,
                "at most",
            )
        )
    for case in CASES[:3]:
        ratios = (general[:, :, entries] / whole.sizes[case][:, :, entries]).min(axis=1)
        claims.append(
            Claim(
                f"25-hour window: more entries than {case.label(whole.source.unit)} at every C "
                "(paper); least ratio over C",
                mean(ratios),
                1.0,
                "at least",
            )
        )
    growth = part.source.rows / whole.source.rows
    for case, text in ((CASES[0], CASES[0].label(whole.source.unit)), (GENERAL, "25-hour window")):
        here, there = whole.sizes[case], part.sizes[case]
        claims.append(
            Claim(
                f"{text}: entries at C = 2 do not grow with the input (paper); "
                f"{whole.source.rows:,} elements over {part.source.rows:,}",
                mean(here[:, small, entries] / there[:, small, entries]),
                # Linear growth would be 1 / growth; levels are added with its logarithm.
                1 + 0.5 * (1 / growth - 1),
                "at most",
            )
        )
    stored = whole.sizes[QUERY_TIME]
    claims.append(
        Claim(
            "query-time sketch: rows stored once are fewer than entries over levels (ours); ratio "
            "at C = 20",
            mean(stored[:, middle, MEASURES.index("rows")] / stored[:, middle, entries]),
            1.0,
            "at most",
        )
    )
    return claims


def _scaled(figure: Figure, factor: float) -> Figure:
    return Figure(figure.value * factor, figure.stderr * factor)


# ------------------------------------------------------------------------------------- the picture


def _draw(path: Path, setting: str, space: Space) -> None:
    with Page(path, _TITLE, setting, len(MEASURES)) as (figure, all_axes):
        capacities = [capacity_of(factor) for factor in FACTORS]
        for column, axes in enumerate(all_axes):
            axes.set_title(_LABELS[column])
            for case, colour, marker in zip(CASES, COLOURS, MARKERS, strict=True):
                axes.plot(
                    capacities,
                    space.sizes[case][:, :, column].mean(axis=0),
                    color=colour,
                    marker=marker,
                    markersize=5,
                    linewidth=1.6,
                    linestyle=_dash(case),
                    label=case.label(space.source.unit),
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.set_xticks(capacities, [str(factor) for factor in FACTORS])
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
            axes.set_xlabel("C")
        figure.legend(
            *all_axes[0].get_legend_handles_labels(), loc="upper left",
            bbox_to_anchor=(0.006, 0.885), ncols=len(CASES), fontsize=9, columnspacing=1.2,
        )  # fmt: skip


def _dash(case: Case) -> str:
    return "--" if case == QUERY_TIME else "-"


def _thousands(number: float, _position: object) -> str:
    return f"{number / 1000:,g} k" if number >= 1000 else f"{number:g}"
