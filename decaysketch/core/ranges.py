"""Values that are known only to lie in a range, such as histogram buckets.

A range is a *value key* above the keys for all finite float64 numbers, where the bit patterns for
infinity and NaN lie. So no number has such a key. Every kernel, merge and byte format carries a
range as it carries a number, without a parameter, setting or column. Queries decode a range as its
middle, and widen the interval to its bounds (:mod:`decaysketch.query.buckets`).

The lower 52 bits are two bounds with 26 bits each, the lower bound first. A bound has a sign (1
bit), whether it is open (1 bit, for lower bounds), a decimal exponent plus 64 (7 bits) and up to
five decimal digits (17 bits). So bounds such as 0.005 or 2,500 are stored as they are. Any other is
rounded outward, by a relative error up to 1e-4. Each bound has one form: digits without trailing
zeros, except at the largest exponent, and 0 for 0.

A mean with unknown spread, as from a histogram without buckets, has ``+inf`` as its lower bound,
and the mean as its upper one. It ranges over all numbers.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ParameterError

__all__ = [
    "ENDLESS",
    "Decoded",
    "EncodedValues",
    "Range",
    "are_ranges",
    "decoded",
    "illegal",
    "key_of",
]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_FIRST = 0x7FF << 52  # below every range; the key for infinity has equal bounds
_BOUND_BITS, _DIGIT_BITS, _BIAS = 26, 17, 64
_EXPONENTS = 127
_LARGEST_EXPONENT = _EXPONENTS - _BIAS
_BOUND, _DIGITS = (1 << _BOUND_BITS) - 1, (1 << _DIGIT_BITS) - 1
_MOST_DIGITS, _INFINITE = 99_999, _DIGITS  # digits for infinity
_NEGATIVE, _OPEN = 1 << (_BOUND_BITS - 1), 1 << (_BOUND_BITS - 2)
_POSITIVE_INFINITY = _INFINITE
_POWERS = np.array([float(f"1e{k}") for k in range(_BIAS + 1)])
ENDLESS = 1e300
"""The number that replaces an infinite bound, so that expressions over it stay finite."""


class Range(NamedTuple):
    """A value between two bounds, either of which may be infinite.

    Attributes:
        low, high: the bounds, ``low < high``.
        open: whether no value equals the lower bound, as in a bucket.
        mean: the mean, if the values may be any. The bounds are then infinite.
    """

    low: float
    high: float
    open: bool = True
    mean: float | None = None

    def scaled(self, by: float) -> Range:
        """Return the range times a number."""
        low, high = sorted((self.low * by, self.high * by))
        mean = None if self.mean is None else self.mean * by
        return Range(low, high, self.open and by > 0.0, mean)

    @property
    def middle(self) -> float:
        """The number that represents it, as :func:`decoded` gives it."""
        return float(decoded(np.array([key_of(self)])).values[0])


class EncodedValues:
    """A column with value keys, some for ranges. ``update`` accepts it as values.

    Args:
        keys: int64[n].
    """

    ndim = 1

    def __init__(self, keys: Int64Array) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: npt.NDArray[np.generic] | slice) -> EncodedValues:
        return EncodedValues(self.keys[rows])


@lru_cache(maxsize=4096)
def key_of(given: Range) -> int:
    """Return the value key for a range.

    Raises:
        ParameterError: the bounds are not numbers, or the lower one is not below the upper one.
    """
    if given.mean is not None and math.isfinite(given.mean):
        return _FIRST | _POSITIVE_INFINITY << _BOUND_BITS | _bound(given.mean, ROUND_HALF_EVEN)
    if not given.low < given.high or (math.isinf(given.low) and math.isinf(given.high)):
        raise ParameterError(
            f"range is {given.low:g} to {given.high:g}; expected a lower bound below an upper one, "
            "one of them finite"
        )
    low, high = _bound(given.low, ROUND_FLOOR), _bound(given.high, ROUND_CEILING)
    if given.open and math.isfinite(given.low):
        low |= _OPEN
    return _FIRST | low << _BOUND_BITS | high


def _bound(number: float, rounding: str) -> int:
    """Return the 26 bits for a bound, rounded to five digits."""
    if math.isinf(number):
        return _INFINITE | (_NEGATIVE if number < 0.0 else 0)
    shown = Decimal(repr(float(number)))
    exponent = max(shown.adjusted() - 4, -_BIAS)
    digits = int((shown.scaleb(-exponent)).to_integral_value(rounding))
    size = abs(digits)
    while size and size % 10 == 0 and exponent < _LARGEST_EXPONENT:
        size, exponent = size // 10, exponent + 1
    if exponent > _LARGEST_EXPONENT:
        outward = (rounding == ROUND_FLOOR) == (number < 0.0)
        size, exponent = (_INFINITE, -_BIAS) if outward else (_MOST_DIGITS, _LARGEST_EXPONENT)
    if not size:
        return 0
    sign = _NEGATIVE if digits < 0 else 0
    return sign | (exponent + _BIAS) << _DIGIT_BITS | size


class Decoded(NamedTuple):
    """Ranges as numbers: float64[n] each, finite."""

    lows: Float64Array
    highs: Float64Array
    values: Float64Array


def are_ranges(keys: Int64Array) -> BoolArray:
    """Return which value keys encode ranges. The values are float64."""
    return keys >= _FIRST


def decoded(keys: Int64Array) -> Decoded:
    """Return bounds, and the number that represents each range: the middle. An infinite
    bound is :data:`ENDLESS`, and takes no part in the middle: an endless last bucket has
    its lower bound, and an endless first one begins at 0, if it reaches there.
    No number equals an open bound: it is the next float64.

    Args:
        keys: int64[n], all for ranges.
    """
    first, second = (keys >> _BOUND_BITS) & _BOUND, keys & _BOUND
    lows, highs = _numbers(first), _numbers(second)
    below = np.where(np.isinf(lows), np.minimum(0.0, highs), lows)
    above = np.where(np.isinf(highs), lows, highs)
    values = below / 2 + above / 2
    lows = np.where(first & _OPEN, np.nextafter(lows, np.inf), lows)
    values = np.maximum(values, lows)
    loose = first == _POSITIVE_INFINITY
    values[loose] = highs[loose]
    lows[loose], highs[loose] = -ENDLESS, ENDLESS
    return Decoded(np.clip(lows, -ENDLESS, None), np.clip(highs, None, ENDLESS), values)


def _numbers(codes: Int64Array) -> Float64Array:
    digits = (codes & _DIGITS).astype(np.float64)
    exponents = ((codes >> _DIGIT_BITS) & _EXPONENTS) - _BIAS
    powers = _POWERS[np.abs(exponents)]
    # Digits over a power of ten are rounded once: the float64 nearest to the decimal number.
    size = np.where(exponents < 0, digits / powers, digits * powers)
    size[digits == _INFINITE] = np.inf
    signed: Float64Array = np.where(codes & _NEGATIVE, -size, size)
    return signed


def illegal(keys: Int64Array) -> BoolArray:
    """Return which keys above all numbers encode no range. O(keys)."""
    first, second = (keys >> _BOUND_BITS) & _BOUND, keys & _BOUND
    loose = first == _POSITIVE_INFINITY
    low, high = _numbers(first), _numbers(second)
    bad = ~_canonical(first & ~_OPEN) | ~_canonical(second)
    bad |= (first & _OPEN > 0) & (np.isinf(low) | loose)
    bad |= np.isinf(high) & (np.isinf(low) | loose)
    bad |= ~loose & ~(low < high)
    return bad


def _canonical(codes: Int64Array) -> BoolArray:
    digits, exponents = codes & _DIGITS, (codes >> _DIGIT_BITS) & _EXPONENTS
    shortest = (digits % 10 != 0) | (exponents == _LARGEST_EXPONENT + _BIAS)
    number = (digits > 0) & (digits <= _MOST_DIGITS) & shortest
    good: BoolArray = number | (codes == 0) | ((digits == _INFINITE) & (exponents == 0))
    return good
