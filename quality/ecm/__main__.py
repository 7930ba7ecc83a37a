"""``python -m quality.ecm``: the ECM-sketch on the paper's parameters, one command for each study.

    python -m quality.ecm                     lists what there is
    python -m quality.ecm cells figure-5      these
    python -m quality.ecm all [--full]        all of them

Each writes a picture (.png), its tables and claims (.txt) and the numbers of every trial (.csv) to
``out/quality``, and prints the tables. Seeds are 0, 1, 2, ... and streams are fixed. Logs that are
not on this machine are skipped, and it is said; the short run takes half an hour on one core.
"""

from __future__ import annotations

import argparse
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich.console import Console

import decaysketch as ds
from quality.ecm import accuracy, cells, choice, promises, ranges, rates, sites, trees
from quality.ecm.logs import FOLDER, LOGS, Log, load
from quality.figures.report import Report

__all__ = ["main"]

STUDIES: Final = {
    "cells": "single cells of hard streams: sure ends, errors and their bounds",
    "table-3": "updates and point queries a second",
    "figure-5": "errors against memory at one site",
    "figure-6": "errors against network of 16 sites, and table 4",
    "figure-7": "errors and network of 2 to 256 sites",
    "heavy-hitters": "random trees and logs: none is missed",
    "promises": "accuracy, intervals, sure ends and debiased answers over seeds",
    "ranges": "ranges and quantiles of integer keys: whether their intervals hold",
    "which-sketch": "counts of keys, per byte, beside a DecaySketch",
}
_WINDOWS: Final = 100_000
_TREES: Final = 10_000
_SEEDS: Final = {
    "figure-5": (3, 20),
    "figure-6": (3, 20),
    "figure-7": (2, 10),
    "ranges": (60, 300),
    "which-sketch": (3, 20),
}
_PROMISES: Final = (100, 500)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.ecm", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="'all', or any of: " + ", ".join(STUDIES)
    )
    parser.add_argument("--full", action="store_true", help="more seeds, some hours")
    parser.add_argument("--windows", type=int, default=_WINDOWS, help="of cells (%(default)s)")
    parser.add_argument("--trees", type=int, default=_TREES, help="random ones (%(default)s)")
    parser.add_argument("--seeds", type=int, help="hash seeds of each study")
    parser.add_argument("--logs", nargs="+", choices=list(LOGS), default=list(LOGS))
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the real logs")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - {"all", *STUDIES})
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of: all, {', '.join(STUDIES)}")
    for name, least in (("windows", 5_000), ("trees", 10), ("seeds", 2), ("jobs", 1)):
        given = getattr(options, name)
        if given is not None and given < least:
            parser.error(f"--{name} is {given}; expected {least} or more")
    if not options.names:
        for name, text in STUDIES.items():
            print(f"{name:<13} {text}")
        print(f"{'all':<13} all of these")
        return 0

    names = [name for name in STUDIES if "all" in options.names or name in options.names]
    console, start, kept = Console(stderr=True), time.perf_counter(), True
    logs = _logs(options.logs, options.data, console) if set(names) - {"cells", "ranges"} else []
    for name in names:
        for report in _run(name, logs, options):
            print(f"{report}\n", flush=True)
            kept &= all(claim.verdict != "does not hold" for claim in report.claims)
    print(
        f"decaysketch {ds.__version__}, NumPy {version('numpy')}, Python "
        f"{platform.python_version()}, {platform.machine()}; {time.perf_counter() - start:.0f} s "
        f"with {options.jobs} processes; pictures in {options.out}"
    )
    return 0 if kept else 1


def _logs(names: list[str], folder: Path, console: Console) -> list[Log]:
    found = []
    for name in names:
        log = load(name, folder)
        if log is None:
            console.print(f"{name}: the log is not in {folder}, skipped")
        else:
            found.append(log)
    return found


def _run(name: str, logs: list[Log], options: argparse.Namespace) -> list[Report]:
    jobs, folder = options.jobs, options.out
    if name == "cells":
        return [cells.produce(options.windows, jobs, folder)]
    if name == "heavy-hitters":
        return [trees.produce(options.trees, logs, jobs, folder)]
    if name == "ranges":
        seeds = options.seeds or _SEEDS[name][options.full]
        return [ranges.produce(seeds, jobs, folder, options.data)]
    if not logs:
        return []
    if name == "table-3":
        return [rates.produce(logs, folder)]
    if name == "promises":
        return [promises.produce(logs, options.seeds or _PROMISES[options.full], jobs, folder)]
    seeds = options.seeds or _SEEDS[name][options.full]
    if name == "figure-5":
        return accuracy.produce(logs, seeds, jobs, folder)
    if name == "which-sketch":
        return [choice.produce(logs, seeds, jobs, folder)]
    if name == "figure-6":
        return sites.produce_figure_6(logs, seeds, jobs, folder)
    return sites.produce_figure_7(logs, seeds, jobs, folder)


if __name__ == "__main__":
    raise SystemExit(main())
