"""Special functions for intervals and sizes.

SciPy has them. Its import takes more time and memory than this complete library, and code that
builds, merges and encodes sketches needs none of them. So the first result imports SciPy. A program
without results need not install it. Call :func:`load` before, if the first result must not wait for
the import. Untrusted bytes only lead to :func:`binomial_at_most`, which does not use SciPy.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["binomial_at_most", "gammaincinv", "gammaln", "load", "log_ndtr", "ndtri", "stdtrit"]

Float64Array = npt.NDArray[np.float64]

_NEGLIGIBLE = 1e-17  # of a sum
_MANY = 32  # shapes from which on a curve is faster than SciPy's search
_DEGREE = 20  # of a curve
_LARGE = 1e5  # shapes from which on the series needs no step
_LEAST_SHAPE = 0.4  # of a curve
_SERIES_FROM = 0.15  # shapes over the squared normal quantile from which on the series is close
_STEP = 4e-4  # in standard deviations
_UPPER = 0.9


@cache
def _scipy() -> Any:
    try:
        from scipy import special
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "queries and for_accuracy need scipy: pip install scipy", name=error.name
        ) from error
    return special


def load() -> None:
    """Import the modules that these functions need. It takes half a second, once.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    _scipy()


def ndtri(probability: float) -> float:
    """Return the standard normal quantile."""
    return float(_scipy().ndtri(probability))


def stdtrit(freedom: Float64Array, probability: float) -> Float64Array:
    """Return a quantile for Student's t distribution, for each entry."""
    return _scipy().stdtrit(freedom, probability)  # type: ignore[no-any-return]


def log_ndtr(x: Float64Array) -> Float64Array:
    """Return the logarithm of the standard normal cumulative distribution, for each entry."""
    return _scipy().log_ndtr(x)  # type: ignore[no-any-return]


def gammaln(x: float) -> float:
    """Return the logarithm of the gamma function at ``x > 0``."""
    return float(_scipy().gammaln(x))


def gammaincinv(shape: Float64Array, probability: float) -> Float64Array:
    """Return the quantile for the gamma distribution with scale 1, for each shape.

    For many shapes, one Chebyshev polynomial per probability gives the quantiles, with a relative
    error below 1e-9. It approximates ``cbrt(quantile / shape)`` as a smooth function of
    ``1 / sqrt(shape)`` (Wilson and Hilferty 1931), and is ten times as fast as SciPy's search.
    SciPy computes the quantiles for few shapes, and for shapes too small for the polynomial.

    Complexity: O(n). The first call for a probability computes its polynomial in about 1 ms.
    """
    special = _scipy()
    shape = np.asarray(shape, dtype=np.float64)
    if shape.size < _MANY:
        return special.gammaincinv(shape, probability)  # type: ignore[no-any-return]
    least, curve = _curve(probability)
    with np.errstate(all="ignore"):
        root = 1.0 / (3.0 * np.sqrt(shape))
        slope = np.polynomial.chebyshev.chebval((6.0 * math.sqrt(least)) * root - 1.0, curve)
        found = np.asarray(shape * (1.0 + root * slope) ** 3)
    rest = ~(shape >= least)
    if rest.any():
        found[rest] = special.gammaincinv(shape[rest], probability)
    return found


@lru_cache(maxsize=256)
def _curve(probability: float) -> tuple[float, Float64Array]:
    """Return the least shape of a probability's curve, and its Chebyshev coefficients: of the slope
    ``((quantile / shape)^(1/3) - 1) / root`` over ``root = 1 / (3 sqrt(shape))``.
    """
    z = ndtri(probability)
    least = _LEAST_SHAPE if z > 0.0 else max(_LEAST_SHAPE, _SERIES_FROM * z * z)
    points = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    root = (points + 1.0) / (6.0 * math.sqrt(least))
    shape = 1.0 / (9.0 * root * root)
    slope = (np.cbrt(_from_series(shape, probability) / shape) - 1.0) / root
    curve: Float64Array = np.polynomial.chebyshev.chebfit(points, slope, _DEGREE)  # type: ignore[assignment]  # of float64
    return least, curve


def _from_series(shape: Float64Array, probability: float) -> Float64Array:
    """Return quantiles. It starts from the quantile's cube root as a series in ``c = 1 / (9
    shape)`` up to ``c^2`` (Cornish and Fisher), and makes one Halley step, or two if the first was
    long. In a far lower tail this is closer than SciPy's search, the fallback.
    """
    z = ndtri(probability)
    with np.errstate(all="ignore"):
        c = 1.0 / (9.0 * shape)
        root = np.sqrt(c)
        cube = root * (z / 4 - z**3 / 12) + c * ((z**4 + 4 * z * z - 7) / 15)
        start = shape * (1.0 - c + z * root + c * cube) ** 3
        found, near = _halley(shape, start, probability)
        again = ~near
        found[again], near[again] = _halley(shape[again], found[again], probability)
    large = shape > _LARGE  # the series is closer than SciPy's distribution function
    found[large], near[large] = start[large], True
    rest = ~(near & (shape > _SERIES_FROM * z * z))
    found[rest] = _scipy().gammaincinv(shape[rest], probability)
    return found


def _halley(
    shape: Float64Array, start: Float64Array, probability: float
) -> tuple[Float64Array, npt.NDArray[np.bool_]]:
    """Return closer quantiles, and whether they are close enough."""
    special = _scipy()
    if probability < _UPPER:
        excess = special.gammainc(shape, start) - probability
    else:  # without cancellation
        excess = (1.0 - probability) - special.gammaincc(shape, start)
    newton = excess * np.exp(start + special.gammaln(shape) - (shape - 1.0) * np.log(start))
    bend = newton * ((shape - 1.0) / start - 1.0)
    step = newton / (1.0 - 0.5 * np.clip(bend, -1.0, 1.0))
    # The error after the step is its third power.
    return start - step, np.abs(step) * np.sqrt(shape) < _STEP * start


def binomial_at_most(k: int, n: int, p: float) -> float:
    """Return ``P[Bin(n, p) <= k]``, with a relative error of about 1e-9. 1.0 from the mean on.

    Args:
        k, n: ``0 <= k < n``.
        p: ``0 <= p < 1``.

    Returns:
        The sum over terms, from the last back to where they no longer matter. There are O(sqrt(n))
        terms: below the mean each is smaller than the one after it.

    Example:
        >>> round(binomial_at_most(1, 4, 0.5), 12)  # 5 of 16
        0.3125
    """
    if k >= n * p:  # and so not below the median
        return 1.0
    last = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    term = total = math.exp(last + k * math.log(p) + (n - k) * math.log1p(-p))
    odds = (1.0 - p) / p
    for j in range(k, 0, -1):
        term *= odds * j / (n - j + 1)
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return total
