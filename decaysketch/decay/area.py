"""The integral of a decay over ages: the time that a count covers, at full weight.

A decayed count divided by this integral is a rate. If a stream has ``r`` observations per time
unit, the expected decayed count is ``r`` times the decay's integral.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from decaysketch.decay.functions import Decay, Exponential, NoDecay, Piecewise, Polynomial, Window

__all__ = ["area", "integral"]

Float64Array = npt.NDArray[np.float64]

_OLDEST = 2.0**63  # ages are at most this
_TOLERANCE = 1e-10  # error of an interval, relative to the total area
_UNSEEN = 1e-8  # likewise, of the area between the bounds of an interval and its nodes
_HALVINGS = 70  # a step of any age is then within one float of it
_CHUNK = 1 << 13  # intervals integrated at a time
_INFINITE = 1e-6  # of the whole, in the older half of all ages


@lru_cache(maxsize=256)
def area(decay: Decay) -> float:
    """Return the integral of a decay over the ages from 0 to its support.

    Named decays use their formula. Other decays are integrated over all possible ages, up to 2^63,
    to about nine digits. If the older half of these ages adds more than a millionth to the
    integral, the result would depend on the stream's age, and counts as infinite.

    Args:
        decay: weight by age.

    Returns:
        A number >= 0; infinite for ``none()``, and for polynomials with exponent 1 or less.

    Complexity: some milliseconds, once, for a decay without a name.
    """
    match decay:
        case Window():
            return float(decay.width)
        case NoDecay():
            return math.inf
        case Exponential(half_life=None):
            assert decay.rate is not None
            return 1.0 / float(decay.rate)
        case Exponential():
            assert decay.half_life is not None
            return float(decay.half_life) / math.log(2.0)
        case Polynomial():
            beyond = float(decay.exponent) - 1.0
            return float(decay.scale) / beyond if beyond > 0.0 else math.inf
        case Piecewise():
            if decay.beyond > 0:
                return math.inf
            ages = [0.0, *(float(age) for age, _ in decay.steps)]
            return math.fsum(
                float(weight) * (old - young)
                for young, old, (_, weight) in zip(ages, ages[1:], decay.steps, strict=False)
            )
    return _integrated(decay)


def _integrated(decay: Decay) -> float:
    """By Gauss-Legendre in every doubling of the age, halved where the halves disagree."""
    oldest = min(decay.support, _OLDEST)
    doublings = 2.0 ** np.arange(64)
    ends = np.append(doublings[doublings < oldest], oldest)
    starts = np.append(0.0, ends[:-1])
    coarse = _gauss(decay, starts, ends)
    whole = float(np.sum(coarse))
    if oldest == _OLDEST and coarse[-1] > _INFINITE * whole:
        return math.inf
    total = 0.0
    for _ in range(_HALVINGS):
        middles = 0.5 * (starts + ends)
        left, right = _gauss(decay, starts, middles), _gauss(decay, middles, ends)
        fine = left + right
        settled = np.abs(fine - coarse) <= _TOLERANCE * whole
        settled &= _unseen(decay, starts, ends) <= _UNSEEN * whole
        total += float(np.sum(fine[settled]))
        open_ = ~settled
        if not open_.any():
            return total
        starts, ends = (
            np.concatenate([starts[open_], middles[open_]]),
            np.concatenate([middles[open_], ends[open_]]),
        )
        coarse = np.concatenate([left[open_], right[open_]])
        whole = max(whole, total + float(np.sum(coarse)))
    return total + float(np.sum(coarse))


def integral(
    decay: Decay, young: Float64Array, old: Float64Array, reference: int = 0
) -> Float64Array:
    """Return the integral of a decay between two ages, over ``2^magnitude(reference)``.

    Named decays use their formula, exact to float rounding even where the ages are close together.
    Other decays use twelve nodes per interval (Gauss-Legendre). This is exact to nine digits
    unless the decay steps or bends inside the interval.

    Args:
        decay: weight by age.
        young, old: float64[n] ages, ``0 <= young <= old``.
        reference: an age at which weights are of the order 1; see :meth:`Decay.scaled`.

    Returns:
        float64[n]. O(1) each.
    """
    match decay:
        case Window():
            return np.maximum(np.minimum(old, float(decay.width)) - young, 0.0)
        case NoDecay():
            return old - young
        case Exponential():
            rate = decay.rate if decay.half_life is None else math.log(2.0) / decay.half_life
            assert rate is not None
            length = old - young
            return decay.scaled(young, reference) * length * _relative(-float(rate) * length)
        case Polynomial():
            # In x = log(scale + age) the decay is exponential.
            scale, beyond = float(decay.scale) + young, 1.0 - float(decay.exponent)
            length = np.log1p((old - young) / scale)
            found = decay.scaled(young, reference) * scale * length
            return found * _relative(beyond * length)
        case Piecewise():
            ages = [0.0, *(float(age) for age, _ in decay.steps), math.inf]
            weights = [*(float(weight) for _, weight in decay.steps), float(decay.beyond)]
            total = np.zeros_like(young)
            for first, last, weight in zip(ages, ages[1:], weights, strict=False):
                total += weight * np.maximum(np.minimum(old, last) - np.maximum(young, first), 0.0)
            return total
    total = np.empty_like(young)
    for start in range(0, len(young), _CHUNK):
        part = slice(start, start + _CHUNK)
        total[part] = _gauss(decay, young[part], np.minimum(old[part], decay.support), reference)
    return np.maximum(total, 0.0)


def _relative(exponents: Float64Array) -> Float64Array:
    """``(exp(x) - 1) / x``, and 1 at 0."""
    small = exponents == 0.0
    with np.errstate(over="ignore"):
        found: Float64Array = np.expm1(exponents) / np.where(small, 1.0, exponents)
    return np.where(small, 1.0, found)


@cache
def _rule() -> tuple[Float64Array, Float64Array]:
    """Nodes and weights on (-1, 1). The eigenvalue code takes 3 MB once it has run."""
    return np.polynomial.legendre.leggauss(12)


def _gauss(
    decay: Decay, starts: Float64Array, ends: Float64Array, reference: int = 0
) -> Float64Array:
    nodes, weights = _rule()
    half = 0.5 * (ends - starts)
    ages = np.maximum(starts[:, None] + half[:, None] * (nodes + 1.0), 0.0)
    found: Float64Array = half * (decay.scaled(ages, reference) @ weights)
    return found


def _unseen(decay: Decay, starts: Float64Array, ends: Float64Array) -> Float64Array:
    """The part of the integral that no node can see if the decay steps down beyond the last
    nodes.
    """
    nodes, _ = _rule()
    gap = 0.25 * (nodes[0] + 1.0) * (ends - starts)  # from an end to the nearest node of the halves
    first, last = (decay(x) - decay(y) for x, y in ((starts, starts + gap), (ends - gap, ends)))
    found: Float64Array = gap * np.maximum(first, last)
    return found
