"""Which figures there are, and what each needs to be measured.

Figures that read the same trials share them: the accuracy of one decay over one stream is measured
once, whichever of 4.2 to 4.5 are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quality import sources
from quality.figures import accuracy, estimators, space, speed
from quality.figures.accuracy import Errors
from quality.figures.accuracy_pages import selectivity_page, sum_page
from quality.figures.decays import EXPONENTIAL, POLYNOMIAL, WINDOW, PaperDecay
from quality.figures.estimator_pages import estimator_page
from quality.figures.report import Report
from quality.figures.space_pages import space_page
from quality.figures.speed_pages import degree_page, factor_page
from quality.stream import FULL_ROWS

__all__ = ["FIGURES", "FULL", "SHORT", "Size", "produce"]

FIGURES: Final = {
    "figure-4.2": "relative error of the decayed sum against C, three decays",
    "figure-4.3": "additive error of selectivity against C, exponential decay",
    "figure-4.4": "the same, polynomial decay",
    "figure-4.5": "the same, sliding window",
    "figure-4.6": "space against C: entries, rows, bytes",
    "figure-4.7": "update speed against C and epsilon",
    "figure-4.8": "update speed against the degree of decay",
    "estimators": "RMSE of the stratified estimator over that of Cohen and Strauss's",
}
_SELECTIVITY: Final = {
    "figure-4.3": EXPONENTIAL,
    "figure-4.4": POLYNOMIAL,
    "figure-4.5": WINDOW,
}
_ACCURACY: Final = ("figure-4.2", *_SELECTIVITY)


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        rows: elements of the simulated stream.
        seeds: hash seeds of each accuracy figure on it.
        log_seeds: the same, on each real log.
        space_seeds: of the space figure.
        speed_rows: elements of the stream that is timed.
        repetitions: of each timing.
        trials: pairs of each cell of the estimators.
    """

    rows: int
    seeds: int
    log_seeds: int
    space_seeds: int
    speed_rows: int
    repetitions: int
    trials: int


SHORT: Final = Size(
    rows=400_000,
    seeds=100,
    log_seeds=25,
    space_seeds=4,
    speed_rows=400_000,
    repetitions=5,
    trials=80,
)
FULL: Final = Size(
    rows=FULL_ROWS,
    seeds=100,
    log_seeds=400,
    space_seeds=6,
    speed_rows=4_000_000,
    repetitions=9,
    trials=2_000,
)


def produce(
    names: Sequence[str],
    size: Size,
    *,
    jobs: int,
    folder: Path,
    scratch: Path,
    say: Callable[[str], None],
) -> list[Report]:
    """Measure, draw and write the named figures.

    Args:
        names: keys of ``FIGURES``.
        size: how much.
        jobs: processes; what is timed always runs in one.
        folder: where reports and pictures go.
        scratch: an empty folder for prepared streams.
        say: is told what is skipped.
    """
    reports: list[Report] = []
    wanted = [name for name in FIGURES if name in names]
    # Speeds first, before the pool has warmed the machine.
    if {"figure-4.7", "figure-4.8"} & set(wanted):
        timed = sources.simulated(scratch / "speed", size.speed_rows)
        if "figure-4.7" in wanted:
            by_factor = speed.measure(
                timed, [*speed.BY_FACTOR, *speed.BY_EPSILON], size.repetitions
            )
            reports.append(factor_page("figure-4.7", by_factor, folder))
        if "figure-4.8" in wanted:
            by_degree = speed.measure(timed, speed.BY_DEGREE, size.repetitions)
            reports.append(degree_page("figure-4.8", by_degree, folder))
    if set(wanted) & {*_ACCURACY, "figure-4.6"}:
        simulated = sources.simulated(scratch / "whole", size.rows)
        if set(wanted) & set(_ACCURACY):
            decays = _decays(wanted)
            measured = [accuracy.measure(simulated, decays, size.seeds, jobs)]
            for name in sources.LOGS:
                source = sources.log(scratch / "logs", name)
                if source is None:
                    say(f"{name}: the real log is not on this machine, skipped")
                else:
                    measured.append(accuracy.measure(source, decays, size.log_seeds, jobs))
            reports += _accuracy_pages(wanted, measured, folder)
        if "figure-4.6" in wanted:
            part = sources.simulated(scratch / "part", size.rows // 4)
            shorter, whole = space.measure([part, simulated], size.space_seeds, jobs)
            reports.append(space_page("figure-4.6", whole, shorter, folder))
    if "estimators" in wanted:
        errors = estimators.measure(size.trials, jobs)
        reports.append(estimator_page("estimators", errors, folder))
    return sorted(reports, key=lambda report: report.name)


def _decays(wanted: Sequence[str]) -> list[PaperDecay]:
    """Those that the wanted figures are about."""
    if "figure-4.2" in wanted:
        return list(_SELECTIVITY.values())
    return [decay for name, decay in _SELECTIVITY.items() if name in wanted]


def _accuracy_pages(
    wanted: Sequence[str], measured: Sequence[list[Errors]], folder: Path
) -> list[Report]:
    """Figures 4.2 to 4.5; names of those of a real log end in its name."""
    reports = []
    for number, results in enumerate(measured):
        end = f"-{results[0].source.name}" if number else ""
        if "figure-4.2" in wanted:
            reports.append(sum_page(f"figure-4.2{end}", results, folder))
        for name, decay in _SELECTIVITY.items():
            if name in wanted:
                errors = next(errors for errors in results if errors.decay == decay)
                label = name.removeprefix("figure-")
                reports.append(selectivity_page(f"{name}{end}", label, errors, folder))
    return reports
