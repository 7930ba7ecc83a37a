"""An answer with its interval, and the mathematics of the intervals.

Every query returns an :class:`Estimate`. Its interval aims at covering the true answer with the
stated confidence over the choice of the hash function; ``docs/estimators.md`` derives the forms
used here and says what is a theorem and what was measured (``python -m quality.intervals``).

The functions of this module take and return plain numbers or arrays; they know nothing of sketches.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri, stdtrit

from decaysketch.errors import ParameterError

__all__ = [
    "Estimate",
    "check_confidence",
    "positive_interval",
    "proportion_interval",
    "signed_interval",
    "student_margin",
]

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated number and its interval.

    Attributes:
        value: the estimate; ``float(estimate)`` gives it too.
        lower: lower end of the interval.
        upper: upper end of the interval; infinite where the sample gives no bound.
        stderr: standard error.
        confidence: probability with which the interval is meant to hold the true answer.
        exact: nothing was sampled: value, lower and upper are the answer itself (up to
            ``collision_bias``, and to the rounding of floating point).
        rows: retained observations that the answer was read from.
        collision_bias: relative share of observations expected to be lost because two keys fell on
            one id, if ids are hashed keys (:func:`~decaysketch.observation_ids`); ids that are
            numbers of their own lose none.
    """

    value: float
    lower: float
    upper: float
    stderr: float
    confidence: float
    exact: bool
    rows: int
    collision_bias: float

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        if self.exact:
            return f"Estimate({self.value:.6g}, exact, {self.rows} rows)"
        return (
            f"Estimate({self.value:.6g}, {self.confidence:.4g} in "
            f"[{self.lower:.6g}, {self.upper:.6g}], {self.rows} rows)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; what is not finite is None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def check_confidence(confidence: float) -> float:
    """``confidence`` as a float.

    Raises:
        ParameterError: it is no number strictly between 0 and 1.
    """
    if isinstance(confidence, bool) or not isinstance(
        confidence, (int, float, np.integer, np.floating)
    ):
        raise ParameterError(f"confidence is {confidence!r}; expected a number between 0 and 1")
    if not 0.0 < confidence < 1.0:
        raise ParameterError(f"confidence is {confidence!r}; expected a number between 0 and 1")
    return float(confidence)


def positive_interval(
    sampled: npt.ArrayLike, variance: npt.ArrayLike, step: npt.ArrayLike, confidence: float
) -> tuple[Float64Array, Float64Array]:
    """Interval of a sum of non-negative masses, of which a sample was seen.

    Args:
        sampled: estimates, >= 0.
        variance: their estimated variances.
        step: the mass that one more hit of the sample would have added, > 0.
    """
    step = np.asarray(step, dtype=np.float64)
    center = np.asarray(sampled) + 0.5 * step
    scale = (np.maximum(variance, 0.0) + 0.5 * step * step) / center
    shape = center / scale
    tail = 0.5 * (1.0 - confidence)
    lower = np.where(np.asarray(sampled) > 0, gammaincinv(shape, tail) * scale, 0.0)
    return lower, gammaincinv(shape, 1.0 - tail) * scale


def signed_interval(
    value: float,
    positive: tuple[float, float, float],
    negative: tuple[float, float, float],
) -> tuple[float, float]:
    """Interval of ``value = P - N`` from those of P and N (MOVER, Zou and Donner 2008).

    Args:
        value: the estimate.
        positive: (estimate, lower, upper) of P.
        negative: the same of N.
    """
    p, p_low, p_high = positive
    n, n_low, n_high = negative
    return value - math.hypot(p - p_low, n_high - n), value + math.hypot(p_high - p, n - n_low)


def proportion_interval(
    proportion: npt.ArrayLike, effective: npt.ArrayLike, confidence: float
) -> tuple[Float64Array, Float64Array]:
    """Wilson's score interval of a proportion seen in a sample of an effective size."""
    q = np.asarray(proportion, dtype=np.float64)
    n = np.asarray(effective, dtype=np.float64)
    z2 = float(ndtri(0.5 + 0.5 * confidence)) ** 2
    center = (n * q + 0.5 * z2) / (n + z2)
    half = np.sqrt(z2 * (n * q * (1.0 - q) + 0.25 * z2)) / (n + z2)
    return np.maximum(center - half, 0.0), np.minimum(center + half, 1.0)


def student_margin(freedom: float, confidence: float) -> float:
    """Half width, in standard errors, of Student's interval."""
    return float(stdtrit(max(freedom, 1.0), 0.5 + 0.5 * confidence))
