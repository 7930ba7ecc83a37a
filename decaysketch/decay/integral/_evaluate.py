"""Values of an expression at integers: exact for rational arithmetic, enclosed otherwise.

A value is a Fraction, or an enclosure as in ``_exact.py``. Sums, products, powers and roots of
fractions stay fractions as long as they are rational, so that ties are detected. A decision inside
an enclosure (a floor, a comparison, a sign) raises :class:`UndecidedError`, and the caller repeats
with more bits. Some decisions never succeed: ``e**(1/2)**log(4)`` is 2, and no enclosure shows it.

Importing this module imports sympy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce

import sympy  # type: ignore[import-untyped]

from decaysketch.decay.integral import _exact, _work
from decaysketch.decay.normal import Term, multiply, text_of
from decaysketch.errors import ParameterError

__all__ = ["UndecidedError", "Value", "compiled"]

Value = Fraction | tuple[int, int]
Evaluate = Callable[[int, int, int], Value]

_MAX_FRACTION_BITS = 4096  # of a fraction; a longer one is enclosed
_MAX_EXPONENT = 2048  # of e: no decay needs a larger one
_MAX_REPEATS = 64  # factors of a power that is multiplied out


class UndecidedError(Exception):
    """An enclosure holds both sides of a decision."""


def compiled(term: Term) -> Evaluate:
    """A term in w and x as a function (w, x, bits) of two integers; enclosures have ``bits``."""
    if term.is_Symbol:
        if term.name == "w":
            return lambda w, x, bits: Fraction(w)
        return lambda w, x, bits: Fraction(x)
    if term.is_Rational:
        constant = Fraction(int(term.p), int(term.q))
        return lambda w, x, bits: constant
    if term is sympy.E:
        return lambda w, x, bits: _exp(Fraction(1), bits)
    if term is sympy.pi:
        return lambda w, x, bits: _pi(bits)
    if isinstance(term, sympy.Piecewise):
        return _compiled_choice(term)
    if isinstance(term, sympy.exp) and isinstance(term.args[0], sympy.Mul):
        factors = term.args[0].args
        logs = [each for each in factors if isinstance(each, sympy.log)]
        if logs:  # e^(a log b) is b^a, which may be rational
            others = [each for each in factors if each is not logs[0]]
            term = sympy.Pow(logs[0].args[0], multiply(*others), evaluate=False)
    parts = [compiled(each) for each in term.args]
    if term.func in _OF_ONE:
        function, (only,) = _OF_ONE[term.func], parts
        return lambda w, x, bits: function(only(w, x, bits), bits)
    if term.func in _OF_TWO:
        operation = _OF_TWO[term.func]
        return lambda w, x, bits: reduce(
            lambda left, right: operation(left, right, bits), (part(w, x, bits) for part in parts)
        )
    raise ParameterError(f"{text_of(term)} has no exact value here")


def _compiled_choice(term: Term) -> Evaluate:
    (then, condition), (otherwise, _) = term.args
    left, right = (compiled(each) for each in condition.args)
    one, two = compiled(then), compiled(otherwise)
    relation = condition.rel_op

    def evaluate(w: int, x: int, bits: int) -> Value:
        sign = _sign(_add(left(w, x, bits), _negated(right(w, x, bits)), bits))
        holds = {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[relation]
        return (one if holds else two)(w, x, bits)

    return evaluate


# -------------------------------------------------------------------------- arithmetic of values


def _enclosed(value: Value, bits: int) -> tuple[int, int]:
    if isinstance(value, tuple):
        return value
    low, rest = divmod(value.numerator << bits, value.denominator)
    return low, low + (rest > 0)


def _short(value: Fraction, bits: int) -> Value:
    longest = max(value.numerator.bit_length(), value.denominator.bit_length())
    _work.spend(longest >> 7)
    return value if longest <= _MAX_FRACTION_BITS else _enclosed(value, bits)


def _sign(value: Value) -> int:
    low, high = value if isinstance(value, tuple) else (value.numerator, value.numerator)
    if low > 0 or high < 0 or low == high:
        return (low > 0) - (high < 0)
    raise UndecidedError


def _negated(value: Value) -> Value:
    return (-value[1], -value[0]) if isinstance(value, tuple) else -value


def _add(left: Value, right: Value, bits: int) -> Value:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return _short(left + right, bits)
    a, b = _enclosed(left, bits), _enclosed(right, bits)
    return a[0] + b[0], a[1] + b[1]


def _multiply(left: Value, right: Value, bits: int) -> Value:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return _short(left * right, bits)
    if left == 0 or right == 0:
        return Fraction(0)
    a, b = _enclosed(left, bits), _enclosed(right, bits)
    products = [p * q for p in a for q in b]
    return min(products) >> bits, -(-max(products) >> bits)


def _reciprocal(value: Value, bits: int) -> Value:
    if isinstance(value, Fraction):
        if value == 0:
            raise ParameterError("the expression divides by 0")
        return 1 / value
    low, high = value
    if low <= 0 <= high:
        raise UndecidedError
    one = 1 << 2 * bits
    return one // high, -(-one // low)


def _power(base: Value, exponent: Value, bits: int) -> Value:
    if isinstance(exponent, Fraction):
        size = abs(exponent)
        found: Value | None = None
        if isinstance(base, Fraction):
            found = _power_of_fraction(base, size)
        elif size.denominator == 1 and size <= _MAX_REPEATS:
            _work.spend(int(size) >> 2)
            found = Fraction(1)
            for _ in range(int(size)):
                found = _multiply(found, base, bits)
        if found is None and size == Fraction(1, 2):
            found = _square_root(base, bits)
        if found is not None:
            return _reciprocal(found, bits) if exponent < 0 else found
    return _exp(_multiply(exponent, _log(base, bits), bits), bits)


def _power_of_fraction(base: Fraction, exponent: Fraction) -> Fraction | None:
    """The power, where it is rational and not too long."""
    if base in (0, 1) or exponent == 0:
        return Fraction(1) if base == 1 or exponent == 0 else Fraction(0)
    if exponent.denominator > 2:  # the root is found by bisection
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        _work.spend(size // exponent.denominator * (2 + (size >> 9)) >> 4)
    p = _exact.root(abs(base.numerator), exponent.denominator)
    q = _exact.root(base.denominator, exponent.denominator)
    if p is None or q is None or (base < 0 and exponent.denominator > 1):
        return None
    if max(p, q).bit_length() * exponent.numerator > _MAX_FRACTION_BITS:
        return None
    root = Fraction(p, q) if base > 0 else -Fraction(p, q)
    return Fraction(root**exponent.numerator)


def _square_root(value: Value, bits: int) -> Value:
    low, high = _enclosed(value, bits)
    if high < 0:
        raise ParameterError("the expression takes the root of a number < 0")
    if low < 0:
        raise UndecidedError
    return math.isqrt(low << bits), math.isqrt(high << bits) + 1


def _exp(value: Value, bits: int) -> Value:
    if value == 0:
        return Fraction(1)
    low, high = _enclosed(value, bits)
    if high > _MAX_EXPONENT << bits:
        raise ParameterError(f"the expression has a power above e^{_MAX_EXPONENT}")
    return _exp_of(low, bits)[0], _exp_of(high, bits)[1]


def _exp_of(y: int, bits: int) -> tuple[int, int]:
    if y <= 0:
        return _exact.exp_of_negative(-y, -y, bits)
    extra = 3 * (y >> bits) + 8  # bits that the reciprocal loses
    _work.spend((bits + extra >> 7) ** 2 >> 1)
    low, high = _exact.exp_of_negative(y << extra, y << extra, bits + extra)
    one = 1 << 2 * (bits + extra)
    return one // high >> extra, (one // low >> extra) + 1


def _log(value: Value, bits: int) -> Value:
    if value == 1:
        return Fraction(0)
    low, high = _enclosed(value, bits)
    if high <= 0:
        raise ParameterError("the expression takes the logarithm of a number <= 0")
    if low <= 0:
        raise UndecidedError
    two_low, two_high = _exact.log_of_two(bits + 16)
    return (
        _exact.log_of_integer(low, bits)[0] - (bits * two_high >> 16) - 1,
        _exact.log_of_integer(high, bits)[1] - (bits * two_low >> 16),
    )


def _floor(value: Value, bits: int) -> Value:
    if isinstance(value, Fraction):
        return Fraction(math.floor(value))
    if value[0] >> bits != value[1] >> bits:
        raise UndecidedError
    return Fraction(value[0] >> bits)


def _ceil(value: Value, bits: int) -> Value:
    return _negated(_floor(_negated(value), bits))


def _least(left: Value, right: Value, bits: int) -> Value:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return min(left, right)
    a, b = _enclosed(left, bits), _enclosed(right, bits)
    if a[1] <= b[0]:
        return left
    return right if b[1] <= a[0] else (min(a[0], b[0]), min(a[1], b[1]))


def _greatest(left: Value, right: Value, bits: int) -> Value:
    return _negated(_least(_negated(left), _negated(right), bits))


@lru_cache(maxsize=16)
def _pi(bits: int) -> tuple[int, int]:
    """Enclosure of pi = 16 atan(1/5) - 4 atan(1/239)."""
    wide = bits + 16
    total = 0
    for factor, n in ((16, 5), (-4, 239)):
        power, odd, sign = (1 << wide) // n, 1, factor
        while power:
            total += sign * (power // odd)
            power //= n * n
            odd, sign = odd + 2, -sign
    # Fewer than wide + 9 terms in all, each off by less than 2 * 16 units.
    error = 32 * (wide + 9)
    return (total - error) >> 16, ((total + error) >> 16) + 1


_OF_ONE: dict[object, Callable[[Value, int], Value]] = {
    sympy.ceiling: _ceil,
    sympy.exp: _exp,
    sympy.floor: _floor,
    sympy.log: _log,
}
_OF_TWO: dict[object, Callable[[Value, Value, int], Value]] = {
    sympy.Add: _add,
    sympy.Max: _greatest,
    sympy.Min: _least,
    sympy.Mul: _multiply,
    sympy.Pow: _power,
}
