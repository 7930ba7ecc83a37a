"""Cold start: a fresh process imports the library and answers its first query.

Nothing is kept from one start to the next. Beside it, the imports of the rivals.
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks import machine
from benchmarks.report import Comparison, Section, Table

__all__ = ["measure"]

_LIBRARY = """
import json, time
from benchmarks.machine import resident
start = time.perf_counter()
import decaysketch as ds
imported = time.perf_counter()
sketch = ds.DecaySketch(ds.SketchParams(max_weight=999, id_bits=30))
sketch.update([1.0, 2.0], [3, 4], [100, 200], [5, 6])
updated = time.perf_counter()
sketch.sum(ds.decay.window(60), now=200)
answered = time.perf_counter()
ds.DecaySketch.from_bytes((sketch | sketch).to_bytes())
done = time.perf_counter()
seconds = [imported - start, updated - imported, answered - updated, done - answered]
print(json.dumps([seconds, resident()]))
"""
_RIVAL = """
import json, time
from benchmarks.machine import resident
start = time.perf_counter()
import {name}
print(json.dumps([[time.perf_counter() - start], resident()]))
"""


def _start(program: str) -> tuple[list[float], int | None]:
    """Seconds of the steps of a program, and the memory of its process at the end."""
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    seconds, resident = json.loads(printed)
    return seconds, resident


def _megabytes(resident: int | None) -> str:
    return "unknown" if resident is None else f"{resident / 1e6:.0f}"


def measure(repetitions: int) -> Section:
    """Seconds from import to answer, and memory."""
    section = Section(
        "Cold start",
        "Seconds in a fresh process. Memory is the complete process at the end, including the "
        "interpreter.",
    )
    runs = [_start(_LIBRARY) for _ in range(repetitions)]
    ours = [min(column) for column in zip(*(seconds for seconds, _ in runs), strict=True)]
    memory = runs[-1][1]
    section.tables.append(
        Table(
            "decaysketch: seconds of the first",
            ("import", "update", "query", "merge and bytes", "all", "memory, MB"),
            [(*(f"{s:.2f}" for s in ours), f"{sum(ours):.2f}", _megabytes(memory))],
            notes=[f"Best of {repetitions} starts."],
        )
    )
    imports = []
    for name in ("datasketches", "polars", "duckdb"):
        if machine.installed(name) is None:
            section.skipped.append(f"import of {name}: not installed")
            continue
        starts = [_start(_RIVAL.format(name=name)) for _ in range(repetitions)]
        seconds = min(steps[0] for steps, _ in starts)
        held = starts[-1][1]
        imports.append((name, f"{seconds:.2f}", _megabytes(held)))
        task = "from import to first answer (rival: import alone)"
        section.comparisons.append(Comparison(task, name, "seconds", sum(ours), seconds, "less"))
        if memory and held:
            task = "memory of a process that has just started (rival: import alone)"
            section.comparisons.append(Comparison(task, name, "bytes", memory, held, "less"))
    columns = ("package", "import", "memory, MB")
    section.tables.append(Table("Rivals: seconds of the import", columns, imports))
    return section
