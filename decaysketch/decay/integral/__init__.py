"""Integral decays ``f(w, x)``: the remaining weight at age ``x`` for an initial weight ``w``.

An integral decay maps a weight 1..max_weight and an integer age to an integer >= 0, non-increasing
in the age, non-decreasing in the weight, with ``f(w, 0) <= max_weight`` and 0 from some finite age
on (Cormode, Tirthapura and Xu, definitions 1.1 and 1.2). It is fixed when a sketch is built: an
observation represents ``f(w, x)`` integers at age ``x``. It expires, level by level, when none of
them is selected any more. It need not be decomposable, which decays chosen at query time must be.

=========================================  ====================================================
``window(width)``                          ``w`` up to an age of ``width``, inclusive, then 0
``exponential(rate=)``, ``(half_life=)``   ``floor(w e^(-rate x))``, ``floor(w 2^(-x/half_life))``
``polynomial(exponent, scale=1)``          ``floor(w (1 + x / scale)^-exponent)``
``halving(period=1)``                      ``floor(w / 2^floor(x / period))``
``fractions(g)``                           ``floor(w g[x])``, a fraction for each age
``table(values)``                          ``values[w][x]``
``function(f, max_weight=, ages=)``        a table of ``f``, evaluated once
``expression(text, max_weight=None)``      a formula, ``"floor(w / (1 + x/60))"``
=========================================  ====================================================

Every value is the mathematical one, the same on every platform: parameters are taken as exact
rational numbers and the floor is decided by enclosures (``_exact.py``), never by a library's
``exp`` or ``pow``. A plain floating-point closed form can differ from its own definition, and two
builders that disagree about one expiry no longer merge to the same state. So closed forms are only
a first guess here, corrected against the step table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.grammar import shortened
from decaysketch.decay.integral._base import IntegralDecay, check_integer
from decaysketch.decay.integral._expression import (
    MAX_OPERATIONS,
    Expression,
    ExpressionTable,
)
from decaysketch.decay.integral._expression import expression as _expression
from decaysketch.decay.integral._expression import normal_text as _normal_text
from decaysketch.decay.integral._listed import Fractions, Halving, Table, Window, check_table
from decaysketch.decay.integral._smooth import Exponential, Polynomial
from decaysketch.decay.integral._steps import MAX_AGE, MAX_STEPS, MAX_WEIGHT, StepTable
from decaysketch.decay.integral._work import Allowance, at_most
from decaysketch.decay.read import Kind, built, did_you_mean, fields_of, kind_of
from decaysketch.errors import ParameterError

__all__ = [
    "MAX_AGE",
    "MAX_OPERATIONS",
    "MAX_STEPS",
    "MAX_WEIGHT",
    "Allowance",
    "Exponential",
    "Expression",
    "ExpressionTable",
    "Fractions",
    "Halving",
    "IntegralDecay",
    "Polynomial",
    "StepTable",
    "Table",
    "Window",
    "at_most",
    "exponential",
    "expression",
    "fractions",
    "from_dict",
    "function",
    "halving",
    "normal_form",
    "parse",
    "polynomial",
    "table",
    "window",
]

Int64Array = npt.NDArray[np.int64]
Number = int | float | Fraction | str

_MAX_CELLS = 1 << 24  # of a table
_RATIONAL = re.compile(r"([0-9]{1,60})/([0-9]{1,60})")


def window(width: int) -> Window:
    """Sliding window: ``f(w, x) = w`` up to an age of ``width``, inclusive, then 0.

    Args:
        width: integer from 0 to 2^62 - 2, in the stream's time unit.

    Example:
        >>> window(60)(5, [0, 60, 61]).tolist()
        [5, 5, 0]
    """
    return Window(width)


def exponential(*, rate: Number | None = None, half_life: Number | None = None) -> Exponential:
    """Exponential decay: ``floor(w e^(-rate x))`` or ``floor(w 2^(-x / half_life))``.

    Args:
        rate: int, float, Fraction or "1/3" from 2^-64 to 2^64, per time unit; its exact value is
            used.
        half_life: likewise, in time units; give this or ``rate``.

    Example:
        >>> exponential(half_life=60)(100, [0, 60, 61, 600]).tolist()
        [100, 50, 49, 0]
    """
    return Exponential(rate, half_life)  # type: ignore[arg-type]  # they become Fractions there


def polynomial(exponent: Number, scale: int = 1) -> Polynomial:
    """Polynomial decay: ``floor(w (1 + x / scale)^-exponent)``.

    Args:
        exponent: int, float, Fraction or "1/3" from 2^-64 to 2^64; its exact value is used.
        scale: integer > 0, in time units.

    Example:
        >>> polynomial(1, scale=60)(100, [0, 60, 61, 180]).tolist()
        [100, 50, 49, 25]
    """
    return Polynomial(exponent, scale)  # type: ignore[arg-type]  # likewise


def halving(period: int = 1) -> Halving:
    """The weight halves, rounded down, once in a period: ``floor(w / 2^floor(x / period))``.

    Args:
        period: integer > 0, in time units; 1 is the paper's ``floor(w / 2^x)``.

    Example:
        >>> halving(10)(5, [0, 9, 10, 20, 30]).tolist()
        [5, 5, 2, 1, 0]
    """
    return Halving(period)


def fractions(values: Sequence[int | Fraction | Sequence[int]]) -> Fractions:
    """Decomposable decay given age by age: ``f(w, x) = floor(w values[x])``, 0 after the last.

    Args:
        values: fewer than 2^20 exact fractions from 0 to 1, not rising: each an int, a Fraction
            or a pair ``(p, q)``.

    Example:
        >>> fractions([1, (2, 3), (1, 3)])(10, [0, 1, 2, 3]).tolist()
        [10, 6, 3, 0]
    """
    return Fractions(values)  # type: ignore[arg-type]  # they become a tuple of Fractions there


def table(values: npt.ArrayLike) -> Table:
    """Any integral decay, value by value: ``f(w, x) = values[w][x]``.

    Args:
        values: integers of shape (max_weight + 1, ages), at most 2^24 of them: row 0 all 0,
            rows not rising with the age, columns not falling with the weight, no value above
            max_weight, the last column all 0.

    Raises:
        ParameterError: one of these is broken; the message names the cell.

    Example:
        >>> table([[0, 0, 0], [1, 1, 0], [2, 1, 0]])(2, [0, 1, 2]).tolist()
        [2, 1, 0]
    """
    return check_table("values", values, _MAX_CELLS)


def function(
    f: Callable[[Int64Array, Int64Array], npt.ArrayLike], *, max_weight: int, ages: int
) -> Table:
    """The table of a function of integers.

    Args:
        f: called once as ``f(weights, ages)``, int64 of the shapes (max_weight, 1) and (1, ages),
            for the weights 1..max_weight and the ages 0..ages - 1; gives integers.
        max_weight: largest weight.
        ages: number of ages; the function is 0 at the last. ``(max_weight + 1) ages <= 2^24``.

    Raises:
        ParameterError: as :func:`table`.

    Example:
        >>> function(lambda w, x: w - x, max_weight=3, ages=4)(3, [0, 1])
        Traceback (most recent call last):
        decaysketch.errors.ParameterError: f[1][2] is -1; expected 0 to 3, the largest weight
        >>> function(lambda w, x: (w - x).clip(0), max_weight=3, ages=4)(3, [0, 1, 2, 3]).tolist()
        [3, 2, 1, 0]
    """
    check_integer("max_weight", max_weight, 1, _MAX_CELLS)
    check_integer("ages", ages, 1, _MAX_CELLS)
    if (max_weight + 1) * ages > _MAX_CELLS:
        raise ParameterError(
            f"f has {(max_weight + 1) * ages} cells for max_weight {max_weight} and {ages} ages; "
            f"expected at most {_MAX_CELLS}"
        )
    weights = np.arange(1, max_weight + 1, dtype=np.int64)[:, None]
    found = np.asarray(f(weights, np.arange(ages, dtype=np.int64)[None, :]))
    if found.dtype.kind not in "iu" or found.ndim > 2:
        raise ParameterError(
            f"f gave dtype {found.dtype} and shape {found.shape}; expected integers of shape "
            f"{(max_weight, ages)}"
        )
    grid = np.zeros((max_weight + 1, ages), dtype=found.dtype)
    grid[1:] = found
    return check_table("f", grid, _MAX_CELLS)


def expression(text: str, *, max_weight: int | None = None) -> Expression | ExpressionTable:
    """Return the decay for a text over the weight w and the age x. ``floor`` rounds down.

    Args:
        text: ``floor(w g(x))``, or any other text with integer values. The functions are in
            :mod:`decaysketch.decay.terms`.
        max_weight: largest weight; needed where the text is not ``floor(w g(x))`` with a g that is
            proved to be a decay. Then the values of all weights are tabulated, to the first age at
            which the text is 0 for max_weight; it is 0 from there on. If these are too many, and
            the text is of the form ``max(min(w - a(x), b(x)), 0)``, ``a`` and ``b`` are tabulated.

    Raises:
        ParameterError: a text that cannot be read, takes more than :data:`MAX_OPERATIONS`
            operations (also when its steps are asked for) or is no integral decay, or a value that
            equals a fraction in a way that is not found; the message says which.

    Example:
        >>> expression("floor(w / (1 + x/60))")(100, [0, 60, 61, 180]).tolist()
        [100, 50, 49, 25]
        >>> expression("max(w - 2*x, 0)", max_weight=9)(9, [0, 1, 4, 5]).tolist()
        [9, 7, 1, 0]
    """
    return _expression(text, max_weight, _MAX_CELLS)


_KINDS = {
    "exponential": Kind(exponential, (), ("half_life", "rate")),
    "expression": Kind(expression, ("text",), ("max_weight",)),
    "halving": Kind(halving, (), ("period",)),
    "polynomial": Kind(polynomial, ("exponent",), ("scale",)),
    "window": Kind(window, ("width",)),
}
_GIVEN_APART = ("fractions", "table")  # too large for a header: named by their digest


def parse(text: str | Mapping[str, Any], time_unit: str | None = None) -> IntegralDecay:
    """Return the integral decay for a text or a dictionary. See :mod:`decaysketch.decay.read`.

    Args:
        text: such as ``"exponential(half_life=15min)"``, ``"floor(w / (1 + x/60))"``, JSON, or
            ``str`` of an integral decay. No text names tables and fractions.
        time_unit: of the stream; None: the text may have no units.

    Raises:
        ParameterError: as :func:`decaysketch.decay.parse`, and :func:`from_dict`.

    Example:
        >>> parse("halving(10min)", "s")
        integral.halving(600)
    """
    try:
        return from_dict(fields_of(text, time_unit, fixed=True))
    except ParameterError as fault:
        if isinstance(text, str) and kind_of(text) is None and (hint := did_you_mean(text, _KINDS)):
            raise ParameterError(f"decay {shortened(text)} is none{hint}: {fault}") from None
        raise


def from_dict(fields: Mapping[str, Any], *, table: IntegralDecay | None = None) -> IntegralDecay:
    """Inverse of :meth:`IntegralDecay.to_dict`.

    Args:
        fields: the result of ``to_dict``.
        table: the decay itself, if the kind is "table" or "fractions". The fields have only its
            digest.

    Raises:
        ParameterError: an unknown kind or field, a missing field, a field outside its domain, or a
            table that is missing or another one; the message names it.

    Example:
        >>> from_dict({"kind": "polynomial", "exponent": 0.5, "scale": 60})
        integral.polynomial(0.5, scale=60)
    """
    kind = fields.get("kind")
    if kind in _GIVEN_APART:
        if table is None:
            raise ParameterError(f"decay {kind!r} is named by its digest; give the decay as table")
        if table.to_dict() != dict(fields):
            raise ParameterError(f"table is {table.to_dict()}; expected {dict(fields)}")
        return table
    if kind != "expression":
        fields = {name: _rational(value) for name, value in fields.items()}
    decay: IntegralDecay = built(fields, _KINDS, _GIVEN_APART)
    return decay


def _rational(value: Any) -> Any:
    match = _RATIONAL.fullmatch(value) if isinstance(value, str) else None
    return Fraction(int(match[1]), int(match[2])) if match and int(match[2]) else value


def normal_form(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``from_dict(fields).to_dict()``, without computing the values of a text: milliseconds.

    Raises:
        ParameterError: as :func:`from_dict`, except for faults that only the values show.

    Example:
        >>> normal_form({"kind": "expression", "text": "max(w - 2*x, 0)", "max_weight": 9})
        {'kind': 'expression', 'text': 'max(-2*x + w, 0)', 'max_weight': 9}
    """
    if fields.get("kind") != "expression" or not isinstance(fields.get("text"), str):
        return from_dict(fields).to_dict()
    text, is_table = _normal_text(fields["text"])
    return dict(fields) | {"text": text} if is_table else {"kind": "expression", "text": text}
