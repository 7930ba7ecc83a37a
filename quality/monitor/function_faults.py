"""``function-faults``: many seeds of :mod:`quality.monitor.function_network` for each kind."""

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
from quality.figures.report import Report, Table
from quality.monitor.faults import claims_of
from quality.monitor.function_network import KINDS, PLANTED, FunctionOutcome, run

__all__ = ["first_breach", "main", "produce"]

_MOST: Final = 200  # seeds in which a planted mistake must show
_BATCH: Final = 50
_COUNTED: Final = ("arrivals", "exchanges", "vouched", "posted", "kills")

Outcomes = Mapping[str, list[FunctionOutcome]]


def batch_of(kind: str, start: int, count: int) -> list[FunctionOutcome]:
    """Some runs, by their seeds."""
    return [run(kind, seed) for seed in range(start, start + count)]


def first_breach(planted: str, seeds: int = _MOST) -> tuple[str, int, str] | None:
    """The first kind and seed that find a planted mistake, and the breach. None if none does."""
    for seed in range(seeds):
        for kind in KINDS:
            if breaches := run(kind, seed, planted).breaches:
                return kind, seed, breaches[0]
    return None


def produce(seeds: int, jobs: int, folder: Path, first: int = 0) -> Report:
    """Run so many seeds of each kind, from ``first`` on. Report broken promises."""
    tasks = [
        (kind, first + start, min(_BATCH, seeds - start))
        for kind in KINDS
        for start in range(0, seeds, _BATCH)
    ]
    outcomes: dict[str, list[FunctionOutcome]] = {kind: [] for kind in KINDS}
    for (kind, *_), found in zip(tasks, pool.run("functions", batch_of, tasks, jobs), strict=True):
        outcomes[kind] += found
    most = min(_MOST, seeds)
    planted = {each: first_breach(each, most) for each in PLANTED}
    broken = sum(bool(each.breaches) for of in outcomes.values() for each in of)
    report = Report(
        "function-faults",
        "Functions across sources over a network that fails",
        f"{seeds:,} runs for each kind from seed {first:,}: 1 to 4 sources, a window, loss up "
        "to 50 %, late and repeated messages, crashes of sources, killed processes of the service, "
        "definitions that are replaced, and posts where messages cost more. A breach is a promise "
        "that was not kept.",
        [_breaches(outcomes), _about(outcomes), _planted(planted)],
        claims_of(broken, planted, most),
        ["kind", "seed", *_COUNTED, "breaches"],
        [
            [kind, seed, *(getattr(each, name) for name in _COUNTED), "; ".join(each.breaches)]
            for kind, of in outcomes.items()
            for seed, each in enumerate(of, first)
        ],
    )
    report.write(folder)
    return report


def _breaches(outcomes: Outcomes) -> Table:
    kinds = Counter(
        (kind, text.rpartition(" at ")[0])
        for kind, of in outcomes.items()
        for each in of
        for text in each.breaches
    )
    rows = [[*what, f"{count:,}"] for what, count in kinds.most_common()] or [["", "none", "0"]]
    return Table("Breaches", ["kind", "promise", "runs"], rows)


def _about(outcomes: Outcomes) -> Table:
    sums = {
        kind: [sum(getattr(each, name) for each in of) for name in _COUNTED]
        for kind, of in outcomes.items()
    }
    headings = [
        "kind", "runs", "arrivals", "stored exchanges", "certain results", "of them from posts",
        "kills",
    ]  # fmt: skip
    rows = [
        [kind, f"{len(outcomes[kind]):,}", *map("{:,}".format, found)]
        for kind, found in sums.items()
    ]
    return Table("What the runs were about", headings, rows)


def _planted(found: Mapping[str, tuple[str, int, str] | None]) -> Table:
    rows = []
    for name, at in found.items():
        kind, seed, breach = at or ("-", "-", "not found")
        rows.append([f"{name}: {PLANTED[name]}", kind, str(seed), breach])
    return Table("Planted mistakes", ["mistake", "kind", "found by seed", "as"], rows)


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor function-faults",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--seeds", type=int, default=300, help="runs of a kind (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; expected 1 or more")
    began = time.perf_counter()
    report = produce(options.seeds, options.jobs, options.out, options.first)
    print(report)
    print(
        f"decaysketch {ds.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}; {time.perf_counter() - began:.0f} s; tables in {options.out}"
    )
    return int(any(claim.verdict == "does not hold" for claim in report.claims))
