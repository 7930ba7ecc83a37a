"""The three decays of section 5, as each kind of sketch takes them, and their exact weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

import decaysketch as ds

__all__ = [
    "DAY_WINDOW",
    "EXPONENTIAL",
    "EXPONENTS",
    "POLYNOMIAL",
    "RATES",
    "WIDTHS",
    "WINDOW",
    "PaperDecay",
]


@dataclass(frozen=True)
class PaperDecay:
    """A decay and its degree: rate beta, exponent alpha or width W."""

    kind: Literal["exponential", "polynomial", "window"]
    degree: float

    @property
    def name(self) -> str:
        return f"{self.kind} {self.degree:,g}"

    def label(self, unit: str) -> str:
        """As in headings, with the unit of time."""
        if self.kind == "exponential":
            return f"exponential, β = {self.degree:g} per {unit}"
        if self.kind == "polynomial":
            return f"polynomial, α = {self.degree:g} (x in {unit})"
        times = " × " if unit[0].isdigit() else " "
        return f"window, W = {self.degree:,g}{times}{unit}"

    def real(self) -> ds.Decay:
        """Without rounding: what a query-time sketch is asked with."""
        if self.kind == "exponential":
            return ds.decay.exponential(rate=self.degree)
        if self.kind == "polynomial":
            return ds.decay.polynomial(self.degree)
        return ds.decay.window(self.degree)

    def integral(self) -> ds.decay.integral.IntegralDecay:
        """Rounded down: what an integral sketch is built with."""
        if self.kind == "exponential":
            return ds.decay.integral.exponential(rate=self.degree)
        if self.kind == "polynomial":
            return ds.decay.integral.polynomial(self.degree)
        return ds.decay.integral.window(int(self.degree))

    def weights(self, weights: Any, ages: Any, *, rounded: bool) -> Any:
        """Decayed weights, float64, by the formulas of section 5 and nothing of the library."""
        if self.kind == "exponential":
            decayed = weights * np.exp(-self.degree * ages)
        elif self.kind == "polynomial":
            decayed = weights / np.power(ages + 1.0, self.degree)
        else:
            decayed = np.where(ages <= self.degree, weights, 0).astype(np.float64)
        return np.floor(decayed) if rounded else decayed


EXPONENTIAL: Final = PaperDecay("exponential", 0.01)
POLYNOMIAL: Final = PaperDecay("polynomial", 1.0)
WINDOW: Final = PaperDecay("window", 200)
DAY_WINDOW: Final = PaperDecay("window", 90_000)  # 25 h: all of the stream

RATES: Final = tuple(PaperDecay("exponential", rate) for rate in (0.01, 0.2, 0.4, 0.6, 0.8))
EXPONENTS: Final = tuple(PaperDecay("polynomial", alpha) for alpha in (1.0, 1.5, 2.0, 2.5, 3.0))
WIDTHS: Final = tuple(PaperDecay("window", width) for width in (200, 400, 600, 800, 1000))
