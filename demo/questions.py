"""The demonstration's queries: decays that suit the span of the log, times spread over it.

Times are in microseconds since 1970 throughout, exactly as the log has them: which copy is the
latest must not depend on a rounding. Durations in a decay are rounded to ones that a person would
choose (half an hour, six hours, a week).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

__all__ = [
    "QUANTILES",
    "Cell",
    "Decay",
    "ask_about",
    "duration_text",
    "middle_of",
    "suitable_decays",
    "suitable_times",
]

Kind = Literal["none", "window", "exponential", "polynomial"]

QUANTILES: Final = (0.1, 0.5, 0.9)

_UNITS_US: Final = {"ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6, "d": 86400e6}
_NICE: Final = tuple(
    int(n * _UNITS_US[unit])
    for unit, numbers in (
        ("ms", (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        ("s", (1, 2, 5, 10, 15, 30)),
        ("min", (1, 2, 5, 10, 15, 30)),
        ("h", (1, 2, 3, 6, 12)),
        ("d", (1, 2, 4, 7, 14, 28, 56, 91, 182, 365, 730, 1825)),
        ("d", tuple(365 * n for n in (10, 25, 50, 100, 250, 500, 1000, 2500, 5000))),
    )
    for n in numbers
)

_LEAST_SPAN_US: Final = 10 * int(_UNITS_US["min"])


def duration_text(duration_us: float) -> str:
    """``90_000_000`` -> ``"1.5 min"``."""
    unit = "ms"
    for name, size in _UNITS_US.items():
        if duration_us >= size:
            unit = name
    return f"{duration_us / _UNITS_US[unit]:.4g} {unit}"


def nice_duration(duration_us: float) -> int:
    """The duration that a person would choose instead, nearest in ratio."""
    return min(_NICE, key=lambda nice: abs(math.log(nice / duration_us)))


@dataclass(frozen=True)
class Decay:
    """A decay as a function of age, in microseconds: its JSON, its exact values and its label.

    ``length_us`` is the width of a window (inclusive), the half-life of an exponential decay, or
    the scale s of a polynomial decay (1 + age / s)^-exponent.
    """

    kind: Kind
    length_us: int = 0
    exponent: float = 0.0

    @property
    def label(self) -> str:
        match self.kind:
            case "none":
                return "no decay"
            case "window":
                return f"window {duration_text(self.length_us)}"
            case "exponential":
                return f"half-life {duration_text(self.length_us)}"
            case "polynomial":
                return f"(1 + age / {duration_text(self.length_us)})^-{self.exponent:g}"

    def to_json(self) -> dict[str, str | float]:
        """The decay as the aggregator's query takes it."""
        match self.kind:
            case "none":
                return {"kind": "none"}
            case "window":
                return {"kind": "window", "width": self.length_us}
            case "exponential":
                return {"kind": "exponential", "half_life": self.length_us}
            case "polynomial":
                return {
                    "kind": "polynomial",
                    "exponent": self.exponent,
                    "scale": self.length_us,
                }

    def weight(self, age: pl.Expr) -> pl.Expr:
        """The decayed weight as a polars expression of the age (>= 0)."""
        match self.kind:
            case "none":
                return pl.lit(1.0)
            case "window":
                return (age <= self.length_us).cast(pl.Float64)
            case "exponential":
                return (age * (-math.log(2) / self.length_us)).exp()
            case "polynomial":
                return (1.0 + age / self.length_us) ** -self.exponent


@dataclass(frozen=True)
class Cell:
    """One query time under one decay, for all aggregates."""

    decay: Decay
    now_us: int


def middle_of(times_us: pl.Series) -> tuple[int, int]:
    """From when to when nearly all of it happened.

    From the 1st to the 99th percentile of the times, and a thirtieth of that on either side; but no
    farther from the middle half of the times than three times its length, for one clock of several
    that is years behind may stamp more than a hundredth of all messages. Of an ordinary log that is
    all of it.
    """
    first, last = int(times_us.min()), int(times_us.max())  # type: ignore[arg-type]
    low, early, late, high = (
        int(times_us.quantile(q, "nearest"))  # type: ignore[arg-type]
        for q in (0.01, 0.25, 0.75, 0.99)
    )
    margin = (high - low) // 30
    first, last = max(first, low - margin), min(last, high + margin)
    if reach := 3 * (late - early):
        first, last = max(first, early - reach), min(last, late + reach)
    kept = times_us.filter(times_us.is_between(first, last))
    return int(kept.min()), int(kept.max())  # type: ignore[arg-type]


def suitable_decays(span_us: int) -> list[Decay]:
    """Three windows, two half-lives, two polynomials and no decay, to suit the span of the log."""
    span_us = max(span_us, _LEAST_SPAN_US)  # or else several of them would be the same
    part = {n: nice_duration(max(1e3, span_us / n)) for n in (6, 12, 40, 60, 150)}
    return [
        Decay("window", part[60]),
        Decay("window", part[12]),
        Decay("window", part[6] * 2),
        Decay("exponential", part[150]),
        Decay("exponential", part[12]),
        Decay("polynomial", part[150], exponent=1.0),
        Decay("polynomial", part[40], exponent=2.5),
        Decay("none"),
    ]


def suitable_times(times_us: pl.Series, count: int) -> list[int]:
    """Times at which something has just happened: half spread over all messages, half over the
    newest fifth, where people look. Sorted, distinct, the last one at the newest message."""
    ordered = times_us.sort()
    spread = (count + 1) // 2
    shares = [0.15 + 0.65 * k / spread for k in range(spread)]
    shares += [1.0 - 0.2 * k / (count - spread) for k in range(count - spread)]
    last = len(ordered) - 1
    return sorted({int(ordered[round(share * last)]) for share in shares})


def ask_about(
    times_us: pl.Series, count: int = 14, middle_us: tuple[int, int] | None = None
) -> list[Cell]:
    """The cells of the demonstration for messages at these times, in the order of the queries.

    They suit the time in which nearly everything happened; see :func:`middle_of`.
    """
    first, last = middle_us or middle_of(times_us)
    nows = suitable_times(times_us.filter(times_us.is_between(first, last)), count)
    return [Cell(decay, now) for decay in suitable_decays(last - first) for now in nows]
