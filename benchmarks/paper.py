"""Beside a program of the paper: its algorithms line by line in C++ (``paper.cpp``).

Like for like: the same rows in the same order from a binary file or array, the same prime,
multiplier and offset (ids unmixed, so the same elements are kept), the same capacity, the same
core, and processor time of the updates alone, once the sketches are full. The program's answers and
samples are checked against ours in ``tests/benchmarks``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import decaysketch as ds
from benchmarks import integral, machine
from benchmarks.report import Comparison, Section, Table
from benchmarks.streams import Stream
from benchmarks.timing import processor_seconds_of
from benchmarks.updates import feed, feed_singly, plain_rows

__all__ = ["build", "integral_decay", "measure", "run", "write_rows"]

SOURCE = Path(__file__).with_name("paper.cpp")
FLAGS = ("-O2", "-std=c++17")
EPSILON = 0.05
BATCH = 10_000
WINDOW = 200  # seconds, the window that the general sketch is asked for and the integral one keeps
INTEGRAL = {"window": 200.0, "exponential": 0.01, "polynomial": 1.0}
GOALS = {60: 150.0, 2: 40.0}  # of the general sketch, by the paper's C: capacity = C / epsilon^2
INTEGRAL_GOAL = 30.0


def build(folder: Path) -> Path | None:
    """Compile the program into a folder; None where there is no compiler."""
    compiler = machine.compiler()
    if compiler is None:
        return None
    program = folder / "paper"
    command = [compiler, *FLAGS, str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def write_rows(stream: Stream, path: Path) -> None:
    """Write the rows of a stream as the program reads them."""
    np.column_stack((stream.values, stream.weights, stream.timestamps, stream.ids)).tofile(path)


def run(
    program: Path,
    file: Path,
    params: ds.SketchParams,
    *,
    decay: str,
    parameter: float,
    now: int,
    **more: object,
) -> dict[str, Any]:
    """Run the program on a file of rows.

    Args:
        program: what :func:`build` made.
        file: what :func:`write_rows` wrote.
        params: of a sketch with unmixed ids; its hash, capacity and levels are taken.
        decay: "general", "window", "exponential" or "polynomial".
        parameter: width of the window, rate or exponent.
        now: time of the query.
        more: further arguments of the program.
    """
    if params.id_mix != "none":
        raise ValueError(f"id_mix is {params.id_mix!r}; the program does not mix ids")
    arguments = {
        "file": file, "decay": decay, "parameter": parameter, "capacity": params.capacity,
        "levels": params.levels, "max_weight": params.max_weight, "p": params.prime,
        "a": params.multipliers[0], "b": params.offsets[0], "now": now, **more,
    }  # fmt: skip
    command = [str(program), *(f"{name}={value}" for name, value in arguments.items())]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer: dict[str, Any] = json.loads(printed)
    return answer


def integral_decay(name: str, parameter: float) -> ds.decay.integral.IntegralDecay:
    """The library's integral decay of one of the program's names."""
    if name == "window":
        return ds.decay.integral.window(int(parameter))
    if name == "exponential":
        return ds.decay.integral.exponential(rate=parameter)
    return ds.decay.integral.polynomial(parameter)


_Sketch = ds.DecaySketch | ds.IntegralDecaySketch


@dataclass(frozen=True)
class _Case:
    """One sketch that both sides build."""

    decay: str
    parameter: float
    constant: int  # C
    params: ds.SketchParams

    def make(self, *, mixed: bool) -> _Sketch:
        """Ours, empty."""
        params = replace(self.params, id_mix="keyed") if mixed else self.params
        if self.decay == "general":
            return ds.DecaySketch(params)
        return ds.IntegralDecaySketch(params, integral_decay(self.decay, self.parameter))

    @property
    def goal(self) -> float:
        """What the ratio is to be at least."""
        return GOALS[self.constant] if self.decay == "general" else INTEGRAL_GOAL

    @property
    def label(self) -> list[str]:
        return [self.decay, str(self.constant), f"{self.params.capacity:,}"]


@dataclass(frozen=True)
class _Rows:
    """The rows of the comparison: the first fill the sketches, the others are timed."""

    stream: Stream
    file: Path
    filling: int
    program_stop: int  # the program is two orders slower: it is timed on fewer
    singles: int  # that many are timed one by one

    @property
    def total(self) -> int:
        return len(self.stream.ids)


def _time_program(program: Path, case: _Case, rows: _Rows, expiry: str) -> dict[str, Any]:
    """A run, with expiry times by "search" (Algorithm 4) or "closed" form."""
    return run(
        program, rows.file, case.params, decay=case.decay, parameter=case.parameter,
        now=int(rows.stream.timestamps.max()), warm=rows.filling, rows=rows.program_stop,
        expiry=expiry,
    )  # fmt: skip


def _feed(sketch: _Sketch, stream: Stream, start: int, stop: int, batch: int) -> None:
    """Update in batches; the clock of an integral sketch is the latest timestamp, as theirs."""
    if isinstance(sketch, ds.DecaySketch):
        feed(sketch, stream, start, stop, batch)
    else:
        integral.feed(sketch, stream, start, stop, batch)


def _feed_singly(sketch: _Sketch, rows: list[tuple[int, int, int, int]]) -> None:
    if isinstance(sketch, ds.DecaySketch):
        feed_singly(sketch, rows)
    else:
        integral.feed_singly_told(sketch, rows)


def _time_ours(case: _Case, way: str, rows: _Rows) -> float:
    """Our rate, in rows a second."""
    sketch = case.make(mixed=way == "mixed")
    _feed(sketch, rows.stream, 0, rows.filling, 100_000)
    if way == "one by one":
        singles = plain_rows(rows.stream, rows.filling, rows.filling + rows.singles)
        return rows.singles / processor_seconds_of(lambda: _feed_singly(sketch, singles))
    seconds = processor_seconds_of(
        lambda: _feed(sketch, rows.stream, rows.filling, rows.total, BATCH)
    )
    return (rows.total - rows.filling) / seconds


WAYS = ("unmixed", "mixed", "one by one")


class _Measured:
    """Rates of one case, a repetition after the other."""

    def __init__(self, program: Path, case: _Case, rows: _Rows, turns: int) -> None:
        self.case = case
        ways = ("search",) if case.decay == "general" else ("search", "closed")
        self.theirs: dict[str, list[float]] = {way: [] for way in ways}
        self.ours: dict[str, list[float]] = {way: [] for way in WAYS}
        _feed(case.make(mixed=True), rows.stream, 0, rows.filling, BATCH)  # compile
        for _ in range(turns):
            for way, rates in self.theirs.items():
                self.result = _time_program(program, case, rows, way)
                rates.append(self.result["rows"] / self.result["seconds"])
            for way, rates in self.ours.items():
                rates.append(_time_ours(case, way, rows))

    def ratio(self, ours: str, theirs: str = "search") -> str:
        if theirs not in self.theirs:
            return ""
        pairs = zip(self.ours[ours], self.theirs[theirs], strict=True)
        return f"{statistics.median(our / their for our, their in pairs):.3g}"

    def rates(self) -> list[str]:
        closed = self.theirs.get("closed")
        return [
            *self.case.label,
            _millions(self.theirs["search"]), _millions(closed) if closed else "",
            *(_millions(self.ours[way]) for way in WAYS),
        ]  # fmt: skip

    def ratios(self) -> list[str]:
        return [
            *self.case.label, f"{self.case.goal:.0f}", *(self.ratio(way) for way in WAYS),
            self.ratio("unmixed", "closed"),
        ]  # fmt: skip

    def comparisons(self) -> list[Comparison]:
        """What users get, beside the fastest form of the program."""
        fastest = max(max(rates) for rates in self.theirs.values())
        return [
            Comparison(
                f"updates {name}, {self.case.decay} decay, capacity {self.case.params.capacity:,}",
                "the paper in C++", "rows a second", max(self.ours[way]), fastest, "more",
            )
            for way, name in (("mixed", "in batches"), ("one by one", "one by one"))
        ]  # fmt: skip


def _millions(rates: list[float]) -> str:
    return f"{max(rates) / 1e6:.3g}"


def _compare(section: Section, program: Path, rows: _Rows, cases: list[_Case], turns: int) -> None:
    measured = [_Measured(program, case, rows, turns) for case in cases]
    section.comparisons = [c for one in measured for c in one.comparisons()]
    compiler = Path(machine.compiler() or "").name
    section.tables += [
        Table(
            "Ratio to the program, median over repetitions",
            ("decay", "C", "capacity", "aimed at", *WAYS, "unmixed to closed"),
            [one.ratios() for one in measured],
            notes=["Aimed at: for the unmixed ratio to the program with Algorithm 4."],
        ),
        Table(
            "Million rows a second, best",
            ("decay", "C", "capacity", "C++", "C++ closed", *WAYS),
            [one.rates() for one in measured],
            notes=[
                f"The program is compiled by `{compiler} {' '.join(FLAGS)}`. {rows.filling:,} rows "
                f"fill every sketch. Then it is timed on {rows.program_stop - rows.filling:,} rows "
                f"and ours on {rows.total - rows.filling:,} in batches of {BATCH:,} or, one by "
                f"one, on {rows.singles:,} as plain Python numbers. {turns} interleaved "
                "repetitions."
            ],
        ),
        Table(
            "What is held after the same rows",
            ("decay", "C", "capacity", "C++ entries", "C++ MB", "our rows", "our bytes, MB"),
            [_held(one.case, rows, one.result) for one in measured],
            notes=["The program's megabytes are the resident memory that it gained."],
        ),
    ]  # fmt: skip


def _held(case: _Case, rows: _Rows, result: dict[str, Any]) -> list[str]:
    sketch = case.make(mixed=False)
    _feed(sketch, rows.stream, 0, rows.program_stop, 100_000)
    kilobytes = result["kilobytes"]
    return [
        *case.label, f"{result['entries']:,}", f"{kilobytes / 1024:.1f}" if kilobytes else "?",
        f"{len(sketch):,}", f"{len(sketch.to_bytes()) / 1e6:.2f}",
    ]  # fmt: skip


def measure(stream: Stream, repetitions: int) -> Section:
    """Ratio of our rates to the program's, by decay and capacity."""
    section = Section(
        "Beside the paper's program in C++",
        "The program follows Algorithms 1, 2, 4, 5 and 6 of Cormode, Tirthapura and Xu on std::set "
        "and std::unordered_set, an element at a time, one entry for each level. "
        "`benchmarks/paper.cpp` names its corrections. Both use the same rows, hash, capacity and "
        "core. Figures are processor time for the updates alone, on full sketches. C is the "
        f'paper\'s: capacity = C / epsilon², at epsilon = {EPSILON}. "General" is the sketch with '
        'a decay chosen at query time (section 4.1). The others have an integral decay. "C++" '
        'finds expiry times by the binary search in Algorithm 4, "C++ closed" by solving the decay '
        "for the age (section 3.3), where that is possible. Our ids are unmixed here, like the "
        'program\'s. "Mixed" is the default that you get.',
    )
    decays = {"general": float(WINDOW)} | INTEGRAL
    unmixed = replace(stream.params, id_mix="none")
    cases = [
        _Case(decay, parameter, constant, replace(unmixed, capacity=round(constant / EPSILON**2)))
        for decay, parameter in decays.items()
        for constant in GOALS
    ]
    filling = len(stream.ids) // 3
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        if program is None:
            section.skipped.append("the comparison with the paper's program: no C++ compiler here")
            return section
        rows = _Rows(
            stream,
            Path(folder) / "rows",
            filling,
            program_stop=filling + max(1, (len(stream.ids) - filling) // 10),
            singles=min(filling, 50_000),
        )
        write_rows(stream, rows.file)
        _compare(section, program, rows, cases, repetitions)
    return section
