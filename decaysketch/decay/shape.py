"""Proof that a term does not rise: bounds and direction of every part, from the leaves up.

For each part of a term on an interval of ages, this module computes a lower bound, an upper bound,
and whether the part rises, falls or is level. The rules for sums, products, powers, exponentials,
logarithms, roundings, minima, maxima and alternatives combine them for the complete term. One pass
is linear in the term's size. The rules are sound and not complete: a proved property holds for
every real age in the interval, and a term they cannot decide may still fall.

Bounds are exact fractions where arithmetic is rational and outward-rounded floats where it is not,
so that ``1 - x / 60`` is known to end at 0, not near it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import sympy  # type: ignore[import-untyped]

from decaysketch.decay.normal import Term

__all__ = ["Shape", "falls", "is_decay", "rises", "shape_of"]

Bound: TypeAlias = Fraction | float  # a float only where it is infinite

_FALLS, _LEVEL, _RISES = -1, 0, 1
_INF = math.inf
_MAX_BITS = 1000  # of an exact bound, which then fits a float; beyond, it is rounded outwards
_ULPS = 4  # libraries' exp, log and pow are right to fewer


class _UndecidedError(Exception):
    """A part may be undefined somewhere."""


@dataclass(frozen=True)
class Shape:
    """Known properties of a term on an interval.

    Attributes:
        low, high: bounds on all values, infinite if unbounded.
        trend: -1 does not rise, 0 constant, 1 does not fall, None unknown.
    """

    low: Bound
    high: Bound
    trend: int | None


def is_decay(term: Term) -> bool:
    """True if it is proved that a term in x is finite, >= 0 and non-increasing for all x >= 0."""
    try:
        shape = shape_of(term, Fraction(0), _INF)
    except _UndecidedError:
        return False
    return shape.trend in (_FALLS, _LEVEL) and shape.low >= 0 and shape.high < _INF


def falls(term: Term) -> bool:
    """True if it is proved that a term in x is defined and does not rise for all x >= 0."""
    return _trend(term) in (_FALLS, _LEVEL)


def rises(term: Term) -> bool:
    """True if it is proved that a term in x is defined and does not fall for all x >= 0."""
    return _trend(term) in (_RISES, _LEVEL)


def _trend(term: Term) -> int | None:
    try:
        return shape_of(term, Fraction(0), _INF).trend
    except _UndecidedError:
        return None


def shape_of(term: Term, youngest: Bound, oldest: Bound) -> Shape:
    """Shape of a term in one variable on ``[youngest, oldest]``.

    Raises:
        _UndecidedError: it cannot be shown that the term is defined everywhere.
    """
    if term.is_Rational:
        value = Fraction(int(term.p), int(term.q))
        return Shape(value, value, _LEVEL)
    if term.is_Symbol:
        return Shape(youngest, oldest, _RISES)
    if term is sympy.E or term is sympy.pi:
        value = Fraction(float(term))
        return Shape(_float(value, -_INF), _float(value, _INF), _LEVEL)
    if isinstance(term, sympy.Piecewise):
        return _alternatives(term, youngest, oldest)
    parts = [shape_of(each, youngest, oldest) for each in term.args]
    if isinstance(term, sympy.Pow):
        exponent = term.args[1]
        if exponent.is_Rational:
            return _power(parts[0], Fraction(int(exponent.p), int(exponent.q)))
        return _rising(_product(parts[1], _log(parts[0])), _exp)
    if isinstance(term, sympy.log):
        return _log(parts[0])
    if isinstance(term, sympy.exp):
        return _rising(parts[0], _exp)
    if isinstance(term, sympy.floor):
        return _rising(parts[0], lambda bound, _: _rounded(bound, math.floor))
    if isinstance(term, sympy.ceiling):
        return _rising(parts[0], lambda bound, _: _rounded(bound, math.ceil))
    if isinstance(term, (sympy.Min, sympy.Max)):
        pick = min if isinstance(term, sympy.Min) else max
        return Shape(
            pick(each.low for each in parts), pick(each.high for each in parts), _common(parts)
        )
    whole = parts[0]
    for part in parts[1:]:
        whole = _product(whole, part) if isinstance(term, sympy.Mul) else _sum(whole, part)
    return whole


# ------------------------------------------------------------------------------------------ rules


def _common(parts: list[Shape]) -> int | None:
    """The direction that all parts share, except level parts."""
    trends = {part.trend for part in parts} - {_LEVEL}
    return trends.pop() if len(trends) == 1 else (None if trends else _LEVEL)


def _negated(shape: Shape) -> Shape:
    return Shape(-shape.high, -shape.low, None if shape.trend is None else -shape.trend)


def _sum(left: Shape, right: Shape) -> Shape:
    low, high = _outward(left.low + right.low, left.high + right.high)
    return Shape(low, high, _common([left, right]))


def _product(left: Shape, right: Shape) -> Shape:
    ends = [_times(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    low, high = _outward(min(ends), max(ends))
    if left.high <= 0 and left.low < 0:
        return _negated(_product(_negated(left), right))
    if right.high <= 0 and right.low < 0:
        return _negated(_product(left, _negated(right)))
    if left.low >= 0 and right.low >= 0:
        trend = _common([left, right])
    elif left.low >= 0 and left.trend == _LEVEL:
        trend = right.trend
    elif right.low >= 0 and right.trend == _LEVEL:
        trend = left.trend
    else:
        trend = _LEVEL if left.trend == right.trend == _LEVEL else None
    return Shape(low, high, trend)


def _power(base: Shape, exponent: Fraction) -> Shape:
    if exponent < 0:
        positive = _power(base, -exponent)
        if positive.low > 0:
            return _rising(_negated(positive), _minus_reciprocal)
        if positive.high < 0:
            return _negated(_power(_negated(positive), Fraction(-1)))
        raise _UndecidedError
    if base.low >= 0:
        return _rising(base, lambda bound, away: _raised(bound, exponent, away))
    if exponent.denominator != 1:
        raise _UndecidedError
    if exponent.numerator % 2:
        return _rising(base, lambda bound, away: _raised(bound, exponent, away))
    if base.high <= 0:
        return _power(_negated(base), exponent)
    widest = Shape(Fraction(0), max(-base.low, base.high), None)
    return _power(widest, exponent)


def _log(argument: Shape) -> Shape:
    if argument.low <= 0:
        raise _UndecidedError
    return _rising(argument, _log_bound)


def _rising(argument: Shape, function: Callable[[Bound, float], Bound]) -> Shape:
    """Shape of a non-decreasing function. The function receives a bound and the infinity to
    round to.
    """
    low, high = function(argument.low, -_INF), function(argument.high, _INF)
    return Shape(*_outward(low, high), argument.trend)


def _alternatives(term: Term, youngest: Bound, oldest: Bound) -> Shape:
    (then, condition), (otherwise, _) = term.args
    left, right = condition.args
    if isinstance(condition, (sympy.GreaterThan, sympy.StrictGreaterThan)):
        left, right = right, left
    difference = _sum(shape_of(left, youngest, oldest), _negated(shape_of(right, youngest, oldest)))
    strict = isinstance(condition, (sympy.StrictLessThan, sympy.StrictGreaterThan))
    if difference.high < 0 or (difference.high == 0 and not strict):  # holds at every age
        return shape_of(then, youngest, oldest)
    if difference.low > 0 or (difference.low == 0 and strict):
        return shape_of(otherwise, youngest, oldest)
    # The condition, left <= right, holds first if the difference rises, and last if it falls.
    young, old = (then, otherwise) if difference.trend == _RISES else (otherwise, then)
    turn_high, turn_low = oldest, youngest
    for side, other in ((left, right), (right, left)):
        coefficient, rest = side.as_coeff_Mul()
        if rest.is_Symbol and other.is_Rational and coefficient > 0:
            turn = other / coefficient
            turn_high = turn_low = Fraction(int(turn.p), int(turn.q))
    first = shape_of(young, youngest, turn_high)
    last = shape_of(old, turn_low, oldest)
    trend = None
    if difference.trend == _LEVEL:  # one of the two at every age, not known which
        trend = _common([first, last])
    elif difference.trend is not None:
        trends = {first.trend, last.trend}
        if trends <= {_FALLS, _LEVEL} and first.low >= last.high:
            trend = _FALLS
        elif trends <= {_RISES, _LEVEL} and first.high <= last.low:
            trend = _RISES
    return Shape(min(first.low, last.low), max(first.high, last.high), trend)


# ----------------------------------------------------------------------------------------- bounds


def _times(a: Bound, b: Bound) -> Bound:
    return Fraction(0) if a == 0 or b == 0 else a * b  # values are finite: 0 * inf is 0


def _outward(low: Bound, high: Bound) -> tuple[Bound, Bound]:
    """Short bounds that enclose these."""
    return _coarse(low, -_INF), _coarse(high, _INF)


def _coarse(bound: Bound, away: float) -> Bound:
    if isinstance(bound, float):
        return bound
    bits = max(bound.numerator.bit_length(), bound.denominator.bit_length())
    return bound if bits <= _MAX_BITS else _float(bound, away)


def _float(bound: Bound, away: float) -> Bound:
    """A short bound, rounded towards ``away``."""
    return _library(lambda value: value, bound, away)


def _library(function: Callable[[float], float], bound: Bound, away: float) -> Bound:
    """A non-decreasing float function at a bound, rounded towards ``away``."""
    try:
        argument = float(bound)
    except OverflowError:
        argument = _INF if bound > 0 else -_INF
    if not isinstance(bound, float):
        argument = math.nextafter(argument, away)
    try:
        value = function(argument)
    except OverflowError:
        value = _INF
    except ValueError:  # the logarithm of a bound that is positive and below every float
        return away
    for _ in range(_ULPS):
        value = math.nextafter(value, away)
    if math.isinf(value):
        return value
    return Fraction(value)


def _exp(bound: Bound, away: float) -> Bound:
    if bound == 0:
        return Fraction(1)
    return max(Fraction(0), _library(math.exp, bound, away))


def _log_bound(bound: Bound, away: float) -> Bound:
    if bound == 1:
        return Fraction(0)
    return _library(math.log, bound, away)


def _minus_reciprocal(bound: Bound, away: float) -> Bound:
    """``-1 / bound``, rising if the bound is negative."""
    return Fraction(0) if isinstance(bound, float) else -1 / Fraction(bound)


def _rounded(bound: Bound, rounding: Callable[[Bound], int]) -> Bound:
    return bound if isinstance(bound, float) else Fraction(rounding(bound))


def _raised(bound: Bound, exponent: Fraction, away: float) -> Bound:
    """``bound ** exponent``. The exponent is positive, and odd if the bound is negative."""
    if bound == 0 or isinstance(bound, float):
        return bound
    assert isinstance(bound, Fraction)
    bits = max(bound.numerator.bit_length(), bound.denominator.bit_length())
    if exponent.denominator == 1 and bits * exponent <= _MAX_BITS:
        return bound**exponent.numerator
    if bound < 0:
        return -_raised(-bound, exponent, -away)
    raised = _library(lambda value: max(value, 0.0) ** float(exponent), bound, away)
    return max(Fraction(0), raised)
