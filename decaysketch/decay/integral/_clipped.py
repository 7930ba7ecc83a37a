"""Integral decays ``max(min(w - a(x), b(x)), 0)``: a weight loses ``a`` and keeps at most ``b``.

``max(w - x, 0)`` and ``min(w, floor(600 / (1 + x)))`` are no ``floor(w g(x))``, so no fraction
describes a step. Two integers do, the *loss* ``a`` and the *cap* ``b``, for all weights together: a
table has a row per step and none per weight. A weight ``w`` has at most ``k`` left where the loss
reaches ``w - k`` or the cap falls to ``k``, whichever is first. Both are monotone, so bisection
finds that age.

:func:`split` recognises a text by its form. Losses and caps are exact, for an age column at once
if they are rational functions (:func:`columns`). If both are proved to be monotone, it is not
necessary to try all ages one by one: after the first ages, each value is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import sympy  # type: ignore[import-untyped]

from decaysketch.decay.integral import _work
from decaysketch.decay.integral._steps import MAX_AGE, MAX_STEPS, StepTable
from decaysketch.decay.normal import Term, add, ceil, floor, maximum, minimum, multiply, number
from decaysketch.decay.shape import falls, rises
from decaysketch.errors import ParameterError

__all__ = [
    "Clipped",
    "Curves",
    "LongNumberError",
    "UnclippedError",
    "columns",
    "is_rational",
    "split",
]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Evaluate = Callable[[Int64Array], Int64Array]

_LARGEST = 1 << 62  # of the integers in a column
_MOST_FACTORS = 32  # of a power that is multiplied out
_CELLS_OF_AN_OPERATION = 512  # integers of a column, computed in the time of an operation


_CHUNK = 1 << 16  # ages computed together
_NEAR = tuple(1 << k for k in range(21))  # ages that may be tried singly
_SEARCH = 8  # ages that are computed to find the first one of a value


class LongNumberError(Exception):
    """A column has integers beyond 64 bits."""


class UnclippedError(Exception):
    """A loss is negative, so weights grow."""


class Clipped(NamedTuple):
    """``min(w - loss, cap)``.

    Attributes:
        loss: a term in x. None: the part does not depend on w.
        cap: a term in x. None: there is none.
        floored: negative values are 0.
    """

    loss: Term | None
    cap: Term | None
    floored: bool = False

    @property
    def terms(self) -> list[Term]:
        """Its terms in x."""
        return [each for each in (self.loss, self.cap) if each is not None]

    @property
    def rational(self) -> bool:
        """Whether columns of its values can be computed."""
        return all(map(is_rational, self.terms))

    @property
    def proved(self) -> bool:
        """Whether its loss is proved not to fall, and its cap not to rise."""
        return (self.loss is None or rises(self.loss)) and (self.cap is None or falls(self.cap))


def split(term: Term) -> Clipped | None:
    """Return a term in w and x in this form. None if the rules here do not lead to it."""
    if "w" not in {symbol.name for symbol in term.free_symbols}:
        return Clipped(None, term)
    if term.is_Symbol:
        return Clipped(number(0), None)
    if isinstance(term, sympy.Max):
        others = [each for each in term.args if each != 0]
        inner = split(others[0]) if len(others) == 1 < len(term.args) else None
        return None if inner is None else inner._replace(floored=True)
    if isinstance(term, (sympy.floor, sympy.ceiling)):
        inner = split(term.args[0])
        return None if inner is None else _rounded(inner, up=isinstance(term, sympy.ceiling))
    if isinstance(term, (sympy.Min, sympy.Add)):
        parts = [split(each) for each in term.args]
        if any(part is None or part.floored for part in parts):
            return None
        found = [part for part in parts if part is not None]
        return _least(found) if isinstance(term, sympy.Min) else _sum(found)
    return None


def _rounded(part: Clipped, *, up: bool) -> Clipped:
    of_loss, of_cap = (floor, ceil) if up else (ceil, floor)
    loss = None if part.loss is None else of_loss(part.loss)
    return Clipped(loss, None if part.cap is None else of_cap(part.cap), part.floored)


def _least(parts: list[Clipped]) -> Clipped:
    losses = [part.loss for part in parts if part.loss is not None]
    caps = [part.cap for part in parts if part.cap is not None]
    return Clipped(
        maximum(*losses) if len(losses) > 1 else next(iter(losses), None),
        minimum(*caps) if len(caps) > 1 else next(iter(caps), None),
    )


def _sum(parts: list[Clipped]) -> Clipped | None:
    """One part with w, and terms in x."""
    weighed = [part for part in parts if part.loss is not None]
    if len(weighed) != 1:
        return None
    (part,), rest = weighed, [each.cap for each in parts if each.loss is None]
    assert part.loss is not None
    loss = add(part.loss, *(multiply(number(-1), each) for each in rest))
    return Clipped(loss, None if part.cap is None else add(part.cap, *rest))


# ------------------------------------------------------------------------------------------ columns


def is_rational(term: Term) -> bool:
    """Whether a term in x is made of rational arithmetic, roundings, minima and maxima."""
    if term.is_Rational or term.is_Symbol:
        return True
    if isinstance(term, sympy.Pow):
        exponent = term.args[1]
        whole = exponent.is_Integer and abs(int(exponent)) <= _MOST_FACTORS
        return bool(whole) and is_rational(term.args[0])
    known = (sympy.Add, sympy.Mul, sympy.Min, sympy.Max, sympy.floor, sympy.ceiling)
    return isinstance(term, known) and all(map(is_rational, term.args))


class _Ratio(NamedTuple):
    """Fractions ``above / below``, int64[n] each, ``below > 0``."""

    above: Int64Array
    below: Int64Array


def columns(term: Term) -> Evaluate:
    """Return a function that computes a rational term, with integers as values, for a column of
    ages.

    Raises (the function):
        LongNumberError: an intermediate number needs more than 62 bits.
        ZeroDivisionError: the term has no value at an age.
        ValueError: a value is no integer.
    """

    def evaluate(ages: Int64Array) -> Int64Array:
        ratio = _evaluate(term, ages)
        if (ratio.above % ratio.below).any():
            raise ValueError("a value is no integer")
        return ratio.above // ratio.below

    return evaluate


def _evaluate(term: Term, ages: Int64Array) -> _Ratio:
    _work.spend(1 + len(ages) // _CELLS_OF_AN_OPERATION)
    one = np.ones(len(ages), np.int64)
    if term.is_Symbol:
        return _Ratio(ages, one)
    if term.is_Rational:
        above, below = int(term.p), int(term.q)
        _check_product(above, below)
        return _Ratio(one * above, one * below)
    if isinstance(term, sympy.Pow):
        return _power(_evaluate(term.args[0], ages), int(term.args[1]))
    parts = [_evaluate(each, ages) for each in term.args]
    if isinstance(term, sympy.floor):
        return _Ratio(parts[0].above // parts[0].below, one)
    if isinstance(term, sympy.ceiling):
        return _Ratio(-(-parts[0].above // parts[0].below), one)
    found = parts[0]
    for part in parts[1:]:
        found = _OF_TWO[term.func](found, part)
    return found


def _power(base: _Ratio, exponent: int) -> _Ratio:
    if exponent < 0:
        if not base.above.all():
            raise ZeroDivisionError
        sign = np.sign(base.above)
        base = _Ratio(base.below * sign, base.above * sign)
    found = base
    for _ in range(abs(exponent) - 1):
        found = _product(found, base)
    return found


def _product(left: _Ratio, right: _Ratio) -> _Ratio:
    return _Ratio(_times(left.above, right.above), _times(left.below, right.below))


def _added(left: _Ratio, right: _Ratio) -> _Ratio:
    one, two = _times(left.above, right.below), _times(right.above, left.below)
    return _Ratio(one + two, _times(left.below, right.below))


def _lesser(left: _Ratio, right: _Ratio) -> _Ratio:
    first = _times(left.above, right.below) <= _times(right.above, left.below)
    return _Ratio(
        np.where(first, left.above, right.above), np.where(first, left.below, right.below)
    )


def _greater(left: _Ratio, right: _Ratio) -> _Ratio:
    found = _lesser(_Ratio(-left.above, left.below), _Ratio(-right.above, right.below))
    return _Ratio(-found.above, found.below)


def _times(left: Int64Array, right: Int64Array) -> Int64Array:
    _check_product(_largest(left), _largest(right))
    return left * right


def _largest(column: Int64Array) -> int:
    return max(abs(int(column.min(initial=0))), abs(int(column.max(initial=0))))


def _check_product(left: int, right: int) -> None:
    # A sum of two products stays below 2^63.
    if abs(left) >= _LARGEST or abs(right) >= _LARGEST or abs(left) * abs(right) >= _LARGEST:
        raise LongNumberError


_OF_TWO = {sympy.Add: _added, sympy.Mul: _product, sympy.Min: _lesser, sympy.Max: _greater}


# ------------------------------------------------------------------------------------------- steps


class Curves(NamedTuple):
    """A clipped decay, as functions of columns of ages.

    Attributes:
        loss, cap: int64 for ages as int64. A cap of None leaves ``w - loss``.
        max_weight: largest weight.
        floored: whether negative values are 0. Else they are errors.
        proved: the loss does not fall, and the cap does not rise.
        name: for errors.
    """

    loss: Evaluate
    cap: Evaluate | None
    max_weight: int
    floored: bool
    proved: bool
    name: str

    def at(self, ages: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Losses from 0 and caps from 0, of which no other gives the same values. A cap of 0 has
        the loss ``max_weight``.
        """
        losses = self.loss(ages)
        caps = self.cap(ages) if self.cap else np.full(len(ages), self.max_weight)
        least = np.minimum(1 - losses, caps)
        if (losses < 0).any():
            raise UnclippedError
        if not self.floored and (least < 0).any():
            wrong = int((least < 0).argmax())
            raise ParameterError(
                f"f(1, {ages[wrong]}) is {least[wrong]}; expected 0 to {self.max_weight}"
            )
        losses = np.minimum(losses, self.max_weight)
        caps = np.clip(caps, 0, self.max_weight - losses)
        return np.where(caps > 0, losses, self.max_weight), caps

    def ends_by(self, age: int) -> bool:
        """Whether no weight is left at some age up to this one."""
        if self.proved:
            return not self.at(np.array([age], np.int64))[1].any()
        return any(not caps.all() for _, _, caps in self._chunks(age))

    def _chunks(self, last: int) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
        for start in range(0, last + 1, _CHUNK):
            ages = np.arange(start, min(start + _CHUNK, last + 1), dtype=np.int64)
            yield ages, *self.at(ages)

    def steps(self) -> StepTable:
        """The step table.

        Raises:
            ParameterError: the values rise with the age, there are too many steps, or one is no
                integer.
        """
        ages, losses, caps = self._proved_rows() if self.proved else self._dense_rows(MAX_STEPS)
        self._check_falling(ages, losses, caps)
        table = StepTable.of_clipped(self.max_weight, ages, losses, caps)
        if len(table) > MAX_STEPS:
            raise self._too_many()
        return table

    def _dense_rows(self, last: int) -> tuple[Int64Array, ...]:
        """Rows for every age up to the first at which no weight is left."""
        parts = []
        for part in self._chunks(last):
            self._check_falling(*part)
            parts.append(part)
            if not part[2].all():
                break
        else:
            raise self._too_many()
        ages, losses, caps = (np.concatenate(column) for column in zip(*parts, strict=True))
        end = int((caps == 0).argmax()) + 1
        return ages[:end], losses[:end], caps[:end]

    def _proved_rows(self) -> tuple[Int64Array, ...]:
        """Rows for the first ages, and for the age at which each later value begins."""
        end = self._end()
        if end <= MAX_STEPS:
            return self._dense_rows(end)
        # Where values fall fast, each age is tried. Later ages are searched for each value.
        later = {near: self._later_values(near, end) for near in _NEAR}
        if min(later.values()) > MAX_STEPS:
            raise self._too_many()
        near = min(later, key=lambda near: near + _SEARCH * later[near])
        begin = [self._begin(lambda ages: self.at(ages)[0], near, end - 1)]
        if self.cap:
            begin.append(self._begin(lambda ages: -self.at(ages)[1], near, end - 1))
        ages = np.unique(np.concatenate([np.arange(near + 1), *begin, [end]]))
        parts = [self.at(part) for part in _chunked(ages)]
        losses, caps = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ages, losses, caps

    def _end(self) -> int:
        """The first age at which no weight is left."""
        last = 1
        while not self.ends_by(last - 1):
            if last > MAX_AGE:
                raise ParameterError(
                    f"{self.name} is still positive at age {MAX_AGE}; expected 0 from some earlier "
                    "age on: take a coarser time unit, a smaller max_weight or another decay"
                )
            last *= 2
        before, end = last // 2 - 1, last - 1
        while end - before > 1:
            middle = (before + end) // 2
            before, end = (before, middle) if self.ends_by(middle) else (middle, end)
        return end

    def _later_values(self, near: int, end: int) -> int:
        """A bound on the steps after an age."""
        losses, caps = self.at(np.array([near, end - 1], np.int64))
        falls = int(caps[0] - caps[1]) if self.cap else 0
        return min(end - near, int(losses[1] - losses[0]) + falls)

    def _begin(self, rising: Evaluate, near: int, last: int) -> Int64Array:
        """The first age of each value of a rising function of the age, between two ages: by
        bisection, from as many ages as there are values.
        """
        first, final = rising(np.array([near, last], np.int64)).tolist()
        values = np.arange(first + 1, final + 1, dtype=np.int64)
        tried = np.linspace(near, last, len(values) + 2).astype(np.int64)
        reached = np.concatenate([rising(part) for part in _chunked(tried)])
        place = np.searchsorted(reached, values)
        low, high = tried[np.maximum(place - 1, 0)] + 1, tried[place]
        while (low < high).any():
            middle = (low + high) >> 1
            reached = np.concatenate([rising(part) for part in _chunked(middle)]) >= values
            high = np.where(reached, middle, high)
            low = np.where(reached, low, np.minimum(middle + 1, high))
        return low

    def _check_falling(self, ages: Int64Array, losses: Int64Array, caps: Int64Array) -> None:
        rising = (np.diff(losses) < 0) | (np.diff(caps) > 0)
        if rising.any():
            row = int(rising.argmax())
            weight = int(losses[row]) if losses[row + 1] < losses[row] else self.max_weight
            value = min(weight - int(losses[row + 1]), int(caps[row + 1]))
            raise ParameterError(
                f"f[{weight}][{ages[row + 1]}] is {value}; expected at most the value one age "
                "earlier"
            )

    def _too_many(self) -> ParameterError:
        return ParameterError(
            f"{self.name} has more than {MAX_STEPS} steps for weights to {self.max_weight}; "
            "expected fewer: take a coarser time unit, a smaller max_weight or another decay"
        )


def _chunked(column: Int64Array) -> list[Int64Array]:
    return np.array_split(column, 1 + len(column) // _CHUNK)
