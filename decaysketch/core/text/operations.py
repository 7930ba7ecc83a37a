"""Arithmetic and comparisons on columns, with the semantics of formulas in text.

Numbers are float64. An undefined result is NaN, and a comparison with NaN is false.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = [
    "EXTREMES",
    "FUNCTIONS",
    "MAX_EXPONENT",
    "OPERATORS",
    "RELATIONS",
    "Number",
    "Truth",
    "folded",
    "power",
]

MAX_EXPONENT = 64
"""Maximum magnitude of an exponent."""

Number = Any  # a float, or float64 for each row
Truth = Any  # a bool, or bool for each row


def _or_none(result: Number, defined: Truth) -> Number:
    """Return NaN, which is not a number, where a result is undefined."""
    return np.where(defined, result, np.nan)


def power(base: Number, exponent: float) -> Number:
    """Return the power. NaN for 0 to a negative power, and where there is no real value."""
    return _or_none(np.power(base, exponent), np.not_equal(base, 0.0) | (exponent >= 0.0))


OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: lambda a, b: _or_none(np.divide(a, b), np.not_equal(b, 0.0)),
    ast.FloorDiv: lambda a, b: _or_none(np.floor_divide(a, b), np.not_equal(b, 0.0)),
    ast.Mod: lambda a, b: _or_none(np.remainder(a, b), np.not_equal(b, 0.0)),
}
RELATIONS: Mapping[type[ast.cmpop], Callable[[Number, Number], Truth]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: lambda a, b: np.less(a, b) | np.greater(a, b),  # false where one is no number
}
EXTREMES: Mapping[str, Callable[[Number, Number], Number]] = {"max": np.maximum, "min": np.minimum}
#: Of one number; NaN outside of their domain.
FUNCTIONS: Mapping[str, Callable[[Number], Number]] = {
    "abs": np.abs,
    "exp": np.exp,
    "log": lambda a: _or_none(np.log(a), np.greater(a, 0.0)),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
}


def folded(join: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
    """Apply one operation over several parts, from the left."""
    result = parts[0]
    for part in parts[1:]:
        result = join(result, part)
    return result
