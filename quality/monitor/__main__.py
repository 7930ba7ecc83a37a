"""``python -m quality.monitor``: monitors over bad networks, one command for each study.

    python -m quality.monitor                       lists what there is
    python -m quality.monitor faults --seeds 1000   this
    python -m quality.monitor all                   all of them

Each writes its tables and claims (.txt) and the numbers of every trial (.csv) to ``out/quality``,
and prints the tables. Seeds are 0, 1, 2, ...
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import decaysketch as ds
from quality.figures.report import Report
from quality.monitor import faults

__all__ = ["STUDIES", "Study", "main"]


class Study(NamedTuple):
    """One command.

    Attributes:
        text: what it is about.
        seeds: how many, where none are asked for.
        produce: of the seeds, processes and folder.
    """

    text: str
    seeds: int
    produce: Callable[[int, int, Path], Report]


STUDIES: Final = {
    "faults": Study("promises of the budget protocol, whatever fails", 300, faults.produce),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="'all', or any of: " + ", ".join(STUDIES)
    )
    parser.add_argument("--seeds", type=int, help="of each study")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - {"all", *STUDIES}):
        parser.error(f"{unknown[0]!r} is not one of: all, {', '.join(STUDIES)}")
    for name in ("seeds", "jobs"):
        given = getattr(options, name)
        if given is not None and given < 1:
            parser.error(f"--{name} is {given}; expected 1 or more")
    if not options.names:
        for name, study in STUDIES.items():
            print(f"{name:<10} {study.text}")
        print(f"{'all':<10} all of these")
        return 0

    start, kept = time.perf_counter(), True
    for name, study in STUDIES.items():
        if "all" in options.names or name in options.names:
            report = study.produce(options.seeds or study.seeds, options.jobs, options.out)
            print(f"{report}\n", flush=True)
            kept &= all(claim.verdict != "does not hold" for claim in report.claims)
    print(
        f"decaysketch {ds.__version__}, NumPy {version('numpy')}, Python "
        f"{platform.python_version()}, {platform.machine()}; {time.perf_counter() - start:.0f} s "
        f"with {options.jobs} processes; tables in {options.out}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
