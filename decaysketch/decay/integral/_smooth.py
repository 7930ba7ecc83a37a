"""Integral decays with a smooth g: exponential and polynomial.

``g`` and its inverse are known by enclosures of any width. An enclosure decides on which side of a
fraction ``g(x)`` lies unless the two are equal. Arithmetic detects that case beforehand:

* ``e`` to a rational power other than 0 is irrational.
* 2 to a rational power is rational for integers only.
* ``(s / m)^(n / d)`` in lowest terms is rational only if ``s`` and ``m`` are perfect ``d``-th
  powers.

So every loop that requests more bits ends.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.decay.integral import _exact, _work
from decaysketch.decay.integral._base import Decomposable, check_integer, check_last_age
from decaysketch.decay.integral._steps import MAX_AGE, MAX_STEPS, StepTable
from decaysketch.errors import ParameterError

__all__ = ["Exponential", "Polynomial"]

Float64Array = npt.NDArray[np.float64]

_LARGEST = 1 << 64  # of a rate, half-life or exponent, and of its inverse
_FRACTION = re.compile(r"([0-9]{1,40})/([0-9]{1,40})")
_LARGEST_DENOMINATOR = 1 << 128  # holds every float64 in that range


class Smooth(Decomposable):
    """A strictly decreasing g with g(0) = 1. Enclosures describe it and its inverse."""

    @abstractmethod
    def _known(self, age: int, order: int) -> tuple[int, int] | None:
        """Return g(age) if it is a fraction with denominator <= order: no enclosure decides
        that.
        """

    @abstractmethod
    def _enclosure(self, age: int, bits: int) -> tuple[int, int]:
        """Integers (low, high) with low <= g(age) 2^bits <= high."""

    @abstractmethod
    def _inverse(self, p: int, q: int) -> int:
        """Largest x with g(x) >= p / q (a fraction > 0 in lowest terms), at most MAX_AGE."""

    def _fraction(self, age: int, order: int) -> tuple[int, int]:
        known = self._known(age, order)
        if known is not None:
            return known
        bits = 2 * order.bit_length() + 64
        while True:
            low, high = self._enclosure(age, bits)
            one = 1 << bits
            p, q, r, s = _exact.farey_floor(min(low, one - 1), one, order)
            if high * s < r << bits:  # all of the enclosure is below the next fraction
                return p, q
            bits *= 2

    def _table(self, max_weight: int) -> StepTable:
        zero_age = self._inverse(1, max_weight) + 1
        check_last_age(self, zero_age)
        bound = self._bound(max_weight, zero_age)
        if bound > MAX_STEPS:
            raise ParameterError(
                f"{self!r} has up to {bound} steps for weights to {max_weight}; expected at most "
                f"{MAX_STEPS}: take a coarser time unit, a smaller max_weight or another decay"
            )
        age, p, q = 0, 1, 1
        rows = [(0, 1, 1)]
        while p:
            _work.spend(0)  # bounded by the steps
            # Many fractions for each age: look at the next age.
            age += 1
            found = self._fraction(age, max_weight)
            if found != (p, q):
                p, q = found
                rows.append((age, p, q))
                continue
            # Many ages for each fraction: go along the fractions for as long as none is skipped.
            age = self._inverse(p, q) + 1
            while p:
                _work.spend(0)
                next_p, next_q = _previous_fraction(p, q, max_weight)
                next_age = self._inverse(next_p, next_q) + 1 if next_p else MAX_AGE + 1
                if next_age <= age:
                    p, q = self._fraction(age, max_weight)
                    rows.append((age, p, q))
                    break
                p, q = next_p, next_q
                rows.append((age, p, q))
                age = next_age
        return StepTable.of_fractions(max_weight, rows)

    def step_bound(self, max_weight: int) -> int:
        """See the base class."""
        return self._bound(max_weight, self._inverse(1, max_weight) + 1)

    def _bound(self, max_weight: int, zero_age: int) -> int:
        """Bound the number of steps.

        Up to any age there are at most as many steps as ages. After it, there are at most as many
        steps as fractions of that order below g, fewer than g N (N + 1) / 2.
        """
        bound, age = zero_age + 1, 0
        while age < zero_age:
            _, high = self._enclosure(age, 64)
            bound = min(bound, age + 2 + (high * max_weight * (max_weight + 1) >> 65))
            age = 2 * age + 1
        return bound


def _previous_fraction(p: int, q: int, order: int) -> tuple[int, int]:
    """The fraction before p / q > 0 in the Farey sequence of an order."""
    # The neighbours (a, b) below satisfy p b - q a = 1; the one of the largest b <= order.
    b = pow(p, -1, q) if q > 1 else 0
    b += (order - b) // q * q
    return (p * b - 1) // q, b


@dataclass(frozen=True)
class Exponential(Smooth):
    """See :func:`exponential`. Exactly one of the two fields is set."""

    rate: Fraction | None = None
    half_life: Fraction | None = None

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.half_life is None):
            raise ParameterError(
                f"rate is {self.rate!r} and half_life is {self.half_life!r}; expected one of them"
            )
        name = "rate" if self.half_life is None else "half_life"
        object.__setattr__(self, name, _rational(name, getattr(self, name)))

    def _exponent(self, age: int, bits: int) -> tuple[int, int]:
        """Enclose -ln g(age)."""
        if self.rate is not None:
            low = (age * self.rate.numerator << bits) // self.rate.denominator
            return low, low + 1
        assert self.half_life is not None
        low, high = _exact.log_of_two(bits)
        n, d = age * self.half_life.denominator, self.half_life.numerator
        return low * n // d, high * n // d + 1

    def _known(self, age: int, order: int) -> tuple[int, int] | None:
        # e to a rational power, or 2 to one that is not an integer, is irrational.
        if age == 0:
            return 1, 1
        if self.half_life is None or age * self.half_life.denominator % self.half_life.numerator:
            return None
        halvings = age * self.half_life.denominator // self.half_life.numerator
        return (1, 1 << halvings) if halvings < order.bit_length() else (0, 1)

    def _enclosure(self, age: int, bits: int) -> tuple[int, int]:
        return _exact.exp_of_negative(*self._exponent(age, bits), bits)

    def _inverse(self, p: int, q: int) -> int:
        if p == q:
            return 0
        if self.half_life is not None and p == 1 and q & (q - 1) == 0:
            return min(math.floor((q.bit_length() - 1) * self.half_life), MAX_AGE)
        bits = 96
        while True:
            low, high = _log_of_ratio(p, q, bits)
            if self.rate is not None:
                low = low * self.rate.denominator // self.rate.numerator
                high = high * self.rate.denominator // self.rate.numerator + 1
            else:
                assert self.half_life is not None
                n, d = self.half_life.numerator, self.half_life.denominator
                two_low, two_high = _exact.log_of_two(bits)
                low = (low * n << bits) // (two_high * d)
                high = (high * n << bits) // (two_low * d) + 1
            if low >> bits >= MAX_AGE:
                return MAX_AGE
            if low >> bits == high >> bits:
                return low >> bits
            bits *= 2

    def _guess(self, ratios: Float64Array) -> Float64Array:
        if self.rate is not None:
            return np.floor(np.log(ratios) / float(self.rate)) + 1.0
        assert self.half_life is not None
        return np.floor(np.log2(ratios) * float(self.half_life)) + 1.0

    def to_dict(self) -> dict[str, Any]:
        name = "rate" if self.half_life is None else "half_life"
        return {"kind": "exponential", name: json_number(getattr(self, name))}

    def __repr__(self) -> str:
        name = "rate" if self.half_life is None else "half_life"
        return f"integral.exponential({name}={json_number(getattr(self, name))!r})"


@dataclass(frozen=True)
class Polynomial(Smooth):
    """See :func:`polynomial`."""

    exponent: Fraction
    scale: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponent", _rational("exponent", self.exponent))
        object.__setattr__(self, "scale", check_integer("scale", self.scale, 1, MAX_AGE))

    def _known(self, age: int, order: int) -> tuple[int, int] | None:
        # (s / m)^(n / d) in lowest terms is rational exactly when s and m are d-th powers.
        if age == 0:
            return 1, 1
        n, d = self.exponent.numerator, self.exponent.denominator
        if n >= order.bit_length() or d >= 64:  # m >= 2, so m^n > order, or no d-th power
            return None
        common = math.gcd(self.scale, age)
        m = _exact.root((self.scale + age) // common, d)
        if m is None or m**n > order:
            return None
        s = _exact.root(self.scale // common, d)
        return None if s is None else (s**n, m**n)

    def _enclosure(self, age: int, bits: int) -> tuple[int, int]:
        n, d = self.exponent.numerator, self.exponent.denominator
        s, m = self.scale, self.scale + age
        if n <= 4 and d <= 2:
            power = (s**n << d * bits) // m**n
            low = power if d == 1 else math.isqrt(power)
            return low, low + 1
        low, high = _log_of_ratio(s, m, bits)
        return _exact.exp_of_negative(low * n // d, high * n // d + 1, bits)

    def _inverse(self, p: int, q: int) -> int:
        if p == q:
            return 0
        n, d = self.exponent.numerator, self.exponent.denominator
        bits = 160
        low, _ = _log_of_ratio(p, q, bits)
        if low * d // n >> bits > 44:  # (q / p)^(d / n) > 2^63
            return MAX_AGE
        p_root, q_root = _exact.root(p, n), _exact.root(q, n)
        if p_root is not None and q_root is not None:
            age: int = self.scale * q_root**d // p_root**d - self.scale
            return min(age, MAX_AGE)
        while True:
            low, high = _log_of_ratio(p, q, bits)
            low, high = _exact.exp_of_negative(low * d // n, high * d // n + 1, bits)
            low, high = (self.scale << 2 * bits) // high, (self.scale << 2 * bits) // low + 1
            if low >> bits >= MAX_AGE + self.scale:
                return MAX_AGE
            if low >> bits == high >> bits:
                return (low >> bits) - self.scale
            bits *= 2

    def _guess(self, ratios: Float64Array) -> Float64Array:
        with np.errstate(over="ignore"):
            powers = np.power(ratios, 1.0 / float(self.exponent))
            return np.floor((powers - 1.0) * self.scale) + 1.0

    def to_dict(self) -> dict[str, Any]:
        exponent = json_number(self.exponent)
        return {"kind": "polynomial", "exponent": exponent, "scale": self.scale}

    def __repr__(self) -> str:
        scale = "" if self.scale == 1 else f", scale={self.scale!r}"
        return f"integral.polynomial({json_number(self.exponent)!r}{scale})"


def _log_of_ratio(p: int, q: int, bits: int) -> tuple[int, int]:
    """Enclose ln(q / p) for q >= p >= 1."""
    p_low, p_high = _exact.log_of_integer(p, bits)
    q_low, q_high = _exact.log_of_integer(q, bits)
    return max(q_low - p_high, 0), q_high - p_low


def _rational(name: str, value: object) -> Fraction:
    """Return a parameter's exact rational value."""
    if isinstance(value, (np.integer, np.floating)):
        value = value.item()
    domain = "an int, float, Fraction or text such as '1/3' from 2^-64 to 2^64"
    if isinstance(value, str) and (parts := _FRACTION.fullmatch(value)) and int(parts[2]):
        value = Fraction(int(parts[1]), int(parts[2]))
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        raise ParameterError(f"{name} is {value!r}; expected {domain}")
    if not 1 / _LARGEST <= value <= _LARGEST:  # refuses NaN as well
        raise ParameterError(f"{name} is {value!r}; expected {domain}")
    exact = Fraction(value)
    if exact.denominator > _LARGEST_DENOMINATOR:
        raise ParameterError(f"{name} is {value!r}; expected a denominator of at most 2^128")
    return exact


def json_number(value: Fraction) -> int | float | str:
    """Return an int or float that equals the value exactly, if there is one, else "n/d"."""
    if value.denominator == 1:
        return value.numerator
    return float(value) if Fraction(float(value)) == value else str(value)
