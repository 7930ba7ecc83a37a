"""``faults``: many seeds of :mod:`quality.monitor.network`, and the mistakes that are planted."""

from __future__ import annotations

import argparse
import platform
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import decaysketch as ds
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.report import Report, Table
from quality.monitor.network import PLANTED, Outcome, run

__all__ = ["claims_of", "first_breach", "main", "produce"]

_MOST: Final = 200  # seeds in which a planted mistake must show


def first_breach(planted: str, seeds: int = _MOST) -> tuple[int, str] | None:
    """The first seed that finds a planted mistake, and what it says; None where none does."""
    for seed in range(seeds):
        if breaches := run(seed, planted).breaches:
            return seed, breaches[0]
    return None


def produce(seeds: int, jobs: int, folder: Path) -> Report:
    """Runs of the seeds 0, 1, 2, ...: what was broken, and what they were about."""
    outcomes = pool.run("faults", run, [(seed,) for seed in range(seeds)], jobs)
    found = {planted: first_breach(planted) for planted in PLANTED}
    report = Report(
        "monitor-faults",
        "Monitors over a network that fails",
        f"{seeds:,} runs of 30 s in virtual time: 2 to 4 sites with copies, a drawn monitor, loss "
        "and repetition up to 50 %, reordering, crashes, a cut, clocks that are wrong, a late and "
        "a revoked site. A breach is a promise that was not kept.",
        [_breaches(outcomes), _about(outcomes), _planted(found)],
        claims_of(sum(bool(each.breaches) for each in outcomes), found, _MOST),
        ["seed", "rows", "reports", "posts", "calm", "firing", "uncertain", "lag_s", "breaches"],
        [
            [seed, o.rows, o.reports, o.posts, *o.verdicts.values(), o.lag_s, "; ".join(o.breaches)]
            for seed, o in enumerate(outcomes)
        ],
    )
    report.write(folder)
    return report


def claims_of(broken: int, found: Mapping[str, object], seeds: int) -> list[Claim]:
    """That no run broke a promise, and that every planted mistake was found.

    Args:
        broken: runs with a breach.
        found: for each planted mistake the first breach, or None.
        seeds: runs with each mistake, at most.
    """
    return [
        Claim("runs with a breach", Figure(float(broken), 0.0), 0.0, "at most"),
        Claim(
            f"planted mistakes found within {seeds} seeds, of {len(found)}",
            Figure(float(sum(each is not None for each in found.values())), 0.0),
            float(len(found)),
            "at least",
        ),
    ]


def _breaches(outcomes: list[Outcome]) -> Table:
    kinds = Counter(text.rpartition(" at ")[0] for outcome in outcomes for text in outcome.breaches)
    rows = [[what, f"{count:,}"] for what, count in kinds.most_common()] or [["none", "0"]]
    return Table("Breaches", ["promise", "runs"], rows)


def _about(outcomes: list[Outcome]) -> Table:
    checks = Counter[str]()
    for each in outcomes:
        checks.update(each.verdicts)
    rows = [
        ["rows, copies included", f"{sum(each.rows for each in outcomes):,}"],
        ["reports", f"{sum(each.reports for each in outcomes):,}"],
        ["of these with rows", f"{sum(each.posts for each in outcomes):,}"],
        *([f"states that were {verdict}", f"{count:,}"] for verdict, count in checks.items()),
        ["longest calm beyond the line, s", f"{max(each.lag_s for each in outcomes):.2f}"],
    ]
    return Table("What the runs were about", ["", "all runs"], rows)


def _planted(found: dict[str, tuple[int, str] | None]) -> Table:
    rows = [
        [f"{name}: {PLANTED[name]}", *(("-", "not found") if at is None else (str(at[0]), at[1]))]
        for name, at in found.items()
    ]
    return Table("Planted mistakes", ["mistake", "found by seed", "as"], rows)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor faults", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=300, help="runs (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; expected 1 or more")
    began = time.perf_counter()
    report = produce(options.seeds, options.jobs, options.out)
    print(report)
    print(
        f"decaysketch {ds.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}; {time.perf_counter() - began:.0f} s; tables in {options.out}"
    )
    return int(any(claim.verdict == "does not hold" for claim in report.claims))
