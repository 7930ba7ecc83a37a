"""Counts over the pairs of a study, and the cells that are far from the stated level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import decaysketch as ds

__all__ = [
    "CONFIDENCE",
    "FAR",
    "Cell",
    "Study",
    "Tallies",
    "Tally",
    "covered",
    "print_far",
    "silent_coverage",
]

CONFIDENCE = 0.95
Z = 1.959963984540054
FAR = 0.015  # a coverage this far from the stated level is named


@dataclass
class Tally:
    """Counts over the pairs of a cell."""

    pairs: int = 0
    below: int = 0  # the truth was below the interval
    above: int = 0
    unbounded: int = 0
    width: float = 0.0
    squares: float = 0.0
    worst_z: float = 0.0
    silent: int = 0  # answers without a caveat
    silent_misses: int = 0

    def note(self, estimate: ds.Estimate, truth: float) -> None:
        slack = 1e-9 * abs(truth)
        error = estimate.value - truth
        self.pairs += 1
        self.below += truth < estimate.lower - slack
        self.above += truth > estimate.upper + slack
        if not estimate.caveats:
            self.silent += 1
            self.silent_misses += not estimate.lower - slack <= truth <= estimate.upper + slack
        if np.isfinite(estimate.upper - estimate.lower):
            self.width += estimate.upper - estimate.lower
        else:
            self.unbounded += 1
        self.squares += error * error
        if np.isfinite(estimate.stderr) and abs(error) > slack:
            self.worst_z = max(self.worst_z, abs(error) / max(estimate.stderr, 1e-300))

    def add(self, other: Tally) -> None:
        for name in (
            "pairs", "below", "above", "unbounded", "width", "squares", "silent", "silent_misses"
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.worst_z = max(self.worst_z, other.worst_z)

    @property
    def coverage(self) -> float:
        return 1.0 - (self.below + self.above) / self.pairs

    @property
    def relative_width(self) -> float:
        bounded = self.pairs - self.unbounded
        rmse = (self.squares / self.pairs) ** 0.5
        return self.width / bounded / (2 * Z * rmse) if bounded and rmse > 0 else float("nan")


Tallies = dict[tuple[str, ...], Tally]
Cell = tuple[str, ...]
Study = Callable[[Cell, int, Tallies], None]


def print_far(tallies: Tallies) -> None:
    """Cells whose coverage is far from what was aimed at, beyond chance; of those below it, how
    many of the answers say nothing of that, and how often these hold the truth."""
    error = (CONFIDENCE * (1 - CONFIDENCE) / next(iter(tallies.values())).pairs) ** 0.5
    bound = max(FAR, 3 * error)
    far = {c: t for c, t in tallies.items() if abs(t.coverage - CONFIDENCE) > bound}
    print(
        f"\n{len(far)} of {len(tallies)} cells are more than {100 * bound:.1f} points from "
        f"{100 * CONFIDENCE:.0f} % (standard error of a cell {100 * error:.1f})"
    )
    by_aggregate: dict[str, list[Tally]] = {}
    for cell, tally in far.items():
        by_aggregate.setdefault(cell[-1], []).append(tally)
    for name, found in by_aggregate.items():
        low = [tally for tally in found if tally.coverage < CONFIDENCE]
        high = [100 * tally.coverage for tally in found if tally.coverage > CONFIDENCE]
        print(f"{name:>15}", end="")
        if low:
            print(f"  {len(low)} below, down to {100 * min(t.coverage for t in low):.1f}", end="")
            silent, pairs = sum(t.silent for t in low), sum(t.pairs for t in low)
            print(f" ({100 * silent / pairs:.0f} % of their answers without a caveat", end="")
            missed = sum(t.silent_misses for t in low)
            print(f"; {100 * (1 - missed / silent):.1f})" if silent else ")", end="")
        print(f"  {len(high)} above, up to {max(high):.1f}" if high else "")
    told = [
        (cell, tally)
        for cell, tally in far.items()
        if tally.coverage < CONFIDENCE and 2 * tally.silent > tally.pairs
    ]
    if any(tally.coverage < CONFIDENCE for tally in far.values()):
        print(f"{len(told)} of those below give half of their answers or more without a caveat")
    for cell, tally in told:
        print("  " + ", ".join(cell) + f": {100 * tally.coverage:.1f} %")


def silent_coverage(tally: Tally) -> float:
    return 1.0 - tally.silent_misses / tally.silent


def covered(tally: Tally) -> str:
    silent = f"({100 * tally.silent / tally.pairs:.0f}"
    silent += f"; {100 * silent_coverage(tally):.1f})" if tally.silent else ")"
    return f"{100 * tally.coverage:>8.1f} {silent:<13}"
