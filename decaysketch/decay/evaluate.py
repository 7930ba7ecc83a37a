"""Terms as functions on NumPy columns: one ufunc call per operation, no generated code.

A rational factor ``p / q`` multiplies by ``p`` and divides by ``q``, so that ``x / 60`` is exactly
3 at 180. Negative powers share one division. Overflow and undefined values pass through as infinity
and NaN, and the caller handles them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import sympy  # type: ignore[import-untyped]

from decaysketch.decay.normal import Term

__all__ = ["Column", "Evaluate", "evaluator"]

Column: TypeAlias = npt.NDArray[np.float64]
Evaluate: TypeAlias = Callable[[Column], Column]

_ONE: Column = np.array(1.0)
_FUNCTIONS: dict[object, Callable[..., Column]] = {
    sympy.Add: np.add,
    sympy.Max: np.maximum,
    sympy.Min: np.minimum,
    sympy.ceiling: np.ceil,
    sympy.exp: np.exp,
    sympy.floor: np.floor,
    sympy.log: np.log,
}
_RELATIONS: dict[object, Callable[..., npt.NDArray[np.bool_]]] = {
    sympy.GreaterThan: np.greater_equal,
    sympy.LessThan: np.less_equal,
    sympy.StrictGreaterThan: np.greater,
    sympy.StrictLessThan: np.less,
}


def evaluator(term: Term) -> Evaluate:
    """Return a term in one variable as a function on a column of values.

    Returns:
        A function from float64[n] to float64[n], or to one number if the term is constant.
        O(n) per operation in the term.
    """
    if term.is_Symbol:
        return lambda column: column
    if not term.args:
        constant = np.array(float(term))
        return lambda column: constant
    if isinstance(term, (sympy.Mul, sympy.Pow)):
        return _product(term)
    if isinstance(term, sympy.Piecewise):
        (then, condition), (otherwise, _) = term.args
        holds = _RELATIONS[condition.func]
        left, right = (evaluator(each) for each in condition.args)
        one, two = evaluator(then), evaluator(otherwise)
        return lambda column: np.where(holds(left(column), right(column)), one(column), two(column))
    if isinstance(term, sympy.log) and isinstance(term.args[0], sympy.Add):
        first, *others = term.args[0].args
        if first == 1:  # log(1 + small) keeps the digits of the small
            beyond = evaluator(sympy.Add(*others, evaluate=False))
            return lambda column: np.log1p(beyond(column))
    function = _FUNCTIONS[term.func]
    parts = [evaluator(each) for each in term.args]
    if len(parts) == 1:
        (only,) = parts
        return lambda column: function(only(column))
    return lambda column: reduce(function, (part(column) for part in parts))


def _product(term: Term) -> Evaluate:
    above, below = [], []
    for factor in term.args if isinstance(term, sympy.Mul) else [term]:
        if factor.is_Rational:
            above.append(evaluator(sympy.Integer(factor.p)))
            below.extend([evaluator(sympy.Integer(factor.q))] * (factor.q != 1))
            continue
        base, exponent = factor.args if isinstance(factor, sympy.Pow) else (factor, sympy.S.One)
        if exponent.is_Rational and exponent < 0:
            below.append(_power(base, -exponent))
        else:
            above.append(_power(base, exponent))

    def evaluate(column: Column) -> Column:
        numerator = reduce(np.multiply, (part(column) for part in above), _ONE)
        if not below:
            return numerator
        return np.divide(numerator, reduce(np.multiply, (part(column) for part in below)))

    return evaluate


def _power(base: Term, exponent: Term) -> Evaluate:
    of_base = evaluator(base)
    if exponent == 1:
        return of_base
    if exponent == sympy.S.Half:
        return lambda column: np.sqrt(of_base(column))
    of_exponent = evaluator(exponent)
    return lambda column: np.power(of_base(column), of_exponent(column))
