"""``python -m benchmarks``: our rates, bytes and errors, beside those of others, in one command.

Everything runs on one core unless a table says otherwise. Repetitions of what is compared are
interleaved. With ``--write`` the run becomes a document; every figure in it is of that run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import (
    asyncwindow,
    ecm,
    error,
    exact,
    finished,
    integral,
    machine,
    paper,
    rivals,
    start,
    updates,
)
from benchmarks.report import Section, document, show
from benchmarks.streams import web_log

SECTIONS = (
    "updates", "finished", "integral", "asyncwindow", "ecm", "start", "paper", "exact", "rivals",
    "error",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--only", default=",".join(SECTIONS), help="sections, by comma")
    options.add_argument("--rows", type=int, default=1_200_000, help="rows of the web-log stream")
    options.add_argument("--exact-rows", type=int, default=5_000_000, help="rows of section exact")
    options.add_argument("--repetitions", type=int, default=3)
    options.add_argument("--seeds", type=int, default=60, help="of sections rivals and error")
    options.add_argument("--write", type=Path, metavar="FILE.md", help="write the document, too")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the sections, print them, and write the document where that is asked for."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(given)
    wanted = options.only.split(",")
    if unknown := sorted(set(wanted) - set(SECTIONS)):
        parser().error(f"--only has {unknown[0]!r}; sections are {', '.join(SECTIONS)}")
    if options.seeds < 2:
        parser().error(f"--seeds is {options.seeds}; a standard error needs 2")
    if options.write is not None and not options.write.parent.is_dir():
        parser().error(f"--write: there is no folder {options.write.parent}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    machine.one_core()
    about = machine.describe()
    console.print("\n".join(about) + "\n", highlight=False)
    stream = web_log(options.rows)
    repetitions, seeds = options.repetitions, options.seeds
    picture = None if options.write is None else options.write.with_name("error-at-equal-bytes.png")
    measures: dict[str, Callable[[], Section]] = {
        "updates": lambda: updates.measure(stream, repetitions),
        "finished": lambda: finished.measure(stream, repetitions),
        "integral": lambda: integral.measure(stream, repetitions),
        "asyncwindow": lambda: asyncwindow.measure(stream, repetitions),
        "ecm": lambda: ecm.measure(repetitions),
        "start": lambda: start.measure(repetitions),
        "paper": lambda: paper.measure(stream, repetitions),
        "exact": lambda: exact.measure(options.exact_rows, repetitions),
        "rivals": lambda: rivals.measure(stream, repetitions, seeds),
        "error": lambda: error.measure(seeds, picture),
    }
    sections = []
    for name in SECTIONS:
        if name in wanted:
            sections.append(measures[name]())
            show(sections[-1], console)
    if options.write is not None:
        command = " ".join(("python -m benchmarks", *given))
        options.write.write_text(document(sections, about, command), encoding="utf-8")


if __name__ == "__main__":
    main()
