"""``python -m quality``: the paper's figures 4.2 to 4.8 again, one command for each.

    python -m quality                        lists what there is
    python -m quality figure-4.2 figure-4.6  these
    python -m quality all [--full]           all of them

Each writes a picture (.png), its tables and claims (.txt) and the numbers of every trial (.csv) to
``out/quality``, and prints the tables. Seeds are 0, 1, 2, ... and streams are fixed: a run can be
repeated and nothing of it was chosen. The short run takes a few minutes on two cores, ``--full``,
over a day of 32.4 million elements, about an hour.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich.console import Console

import decaysketch as ds
from quality.figures.catalogue import FIGURES, FULL, SHORT, produce

__all__ = ["main"]

_OTHERS: Final = (
    "Studies with commands of their own: python -m quality.intervals, quality.sizing, "
    "quality.asyncwindow, quality.coverage, quality.deltas, quality.ecm, quality.extremes, "
    "quality.gateway, "
    "quality.hostile, quality.kill, quality.messages, quality.monitor, quality.node_bytes, "
    "quality.relays, "
    "quality.scale, quality.scanners, quality.siege, quality.simulation, quality.soak, "
    "quality.spool, quality.streaming, quality.traces"
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m quality",
        description=(__doc__ or "").partition("\n")[0],
        epilog=_OTHERS,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="'all', or any of: " + ", ".join(FIGURES)
    )
    parser.add_argument("--full", action="store_true", help="the whole day, and more trials")
    parser.add_argument("--rows", type=int, help="elements of the simulated stream")
    parser.add_argument("--seeds", type=int, help="hash seeds, and pairs of the estimators")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - {"all", *FIGURES})
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of: all, {', '.join(FIGURES)}")
    for name, least in (("rows", 1000), ("seeds", 2), ("jobs", 1)):
        given = getattr(options, name)
        if given is not None and given < least:
            parser.error(f"--{name} is {given}; expected {least} or more")
    if not options.names:
        for name, text in FIGURES.items():
            print(f"{name:<12} {text}")
        print(f"{'all':<12} all of these\n\n{_OTHERS}")
        return 0

    size = FULL if options.full else SHORT
    if options.rows:
        size = replace(size, rows=options.rows, speed_rows=options.rows)
    if options.seeds:
        seeds = options.seeds
        size = replace(size, seeds=seeds, log_seeds=seeds, trials=seeds)
    names = list(FIGURES) if "all" in options.names else options.names
    console = Console(stderr=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="quality-") as scratch:
        reports = produce(
            names, size, jobs=options.jobs, folder=options.out, scratch=Path(scratch),
            say=console.print,
        )  # fmt: skip
    machine = (
        f"decaysketch {ds.__version__}, NumPy {version('numpy')}, Python "
        f"{platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    )
    seconds = time.perf_counter() - start
    for report in reports:
        print(f"{report}\n")
    print(f"{machine}; {seconds:.0f} s with {options.jobs} processes; pictures in {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
