"""Predicates over value and weight, from a text: ``v > 3 and w >= 2``, ``v in ('E42', 'E43')``.

Texts arrive over networks. :mod:`decaysketch.core.text.grammar` reads them and never executes them.
Only the tree nodes listed here are accepted, each as an operation on NumPy columns. Operations and
exponents are limited as well as length and depth, so time and memory are too.

=======================================  =========================================================
``v``, ``w``, decimal numbers            the value and the weight of an observation
``+  -  *  /  //  %  **``                ``//`` and ``%`` round down, as Python's do; an exponent is
                                         a number of at most 64 in magnitude
``abs  min  max``                        of one number; of one or more
``<  <=  >  >=  ==  !=``                 also in chains, ``2 <= v < 5``
``and  or  not``                         of truth values
``v == 'a'``  ``v != 'a'``               of labels, texts in single or double quotes, in which a
                                         backslash stands before a quote or a backslash
``v in ('a', 'b')``  ``v not in (..)``   one of them, or none
``startswith(v, 'a')``                   the label begins so
=======================================  =========================================================

Numbers and truth values are distinct: ``v and w``, ``1 + (v > 2)`` and ``v + 1`` as a complete text
are rejected. A stream's values are numbers or labels. A predicate about the other type is rejected
when it is evaluated.

Every text has a result for every observation. Arithmetic is float64, and values that are too large
are infinite. Division by zero (``/``, ``//``, ``%``, and 0 to a negative power) gives no number.
Neither does an expression without a real value, ``(-8) ** 0.5``, nor anything computed from it. A
comparison without a number is false, ``!=`` as well. So ``not (v / w > 2)`` holds where ``v / w``
is not a number. If values are integers, comparing ``v`` or ``w`` itself with an integer is exact,
even beyond 2^53.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.grammar import MAX_DEPTH, MAX_TEXT, Formula
from decaysketch.core.text.operations import (
    EXTREMES,
    MAX_EXPONENT,
    OPERATORS,
    RELATIONS,
    Number,
    Truth,
    folded,
    power,
)
from decaysketch.errors import ParameterError

__all__ = ["MAX_DEPTH", "MAX_EXPONENT", "MAX_OPERATIONS", "MAX_TEXT", "Predicate"]

MAX_OPERATIONS = 64
"""Maximum operations in a text. Each is a pass over the columns."""

_WORDS = ("v", "w", "and", "or", "not", "abs", "min", "max", "in", "startswith")

Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class _Columns:
    """Columns as given, and in float64, or labels instead of values."""

    def __init__(self, values: npt.ArrayLike, weights: npt.ArrayLike) -> None:
        self._exact = {"v": np.asarray(values), "w": np.asarray(weights)}
        self._floats = {
            name: column.astype(np.float64, copy=False)
            for name, column in self._exact.items()
            if column.dtype.kind not in "OUT"
        }

    def exact(self, name: str) -> npt.NDArray[Any]:
        self.floats(name)
        return self._exact[name]

    def floats(self, name: str) -> Float64Array:
        if name not in self._floats:
            raise ParameterError(
                "the predicate uses v as a number, and this stream's values are labels; expected "
                "v == 'a', v in ('a', 'b') or startswith(v, 'a')"
            )
        return self._floats[name]

    def labels(self, label: str) -> npt.NDArray[Any]:
        """Return the values. ``label``: the label to compare them with."""
        if "v" in self._floats:
            raise ParameterError(
                f"the predicate compares v with {label!r}, and this stream's values are numbers"
            )
        return self._exact["v"]


_Arithmetic = Callable[[_Columns], Number]
_Condition = Callable[[_Columns], Truth]


class Predicate:
    """A text over ``v`` and ``w`` as a function on value and weight columns.

    Two predicates are equal if their texts are. A predicate may be pickled, and called from any
    thread.

    Args:
        text: at most :data:`MAX_TEXT` characters, with the syntax in this module's table.

    Raises:
        ParameterError: anything else. The message names it, and the character where it begins.

    Example:
        >>> Predicate("2 <= v / w < 5 or not v > 0")([6.0, 20.0, -1.0], [3, 2, 1]).tolist()
        [True, False, True]
    """

    __slots__ = ("_holds", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._holds = _Reader(text).whole()

    def __call__(self, values: npt.ArrayLike, weights: npt.ArrayLike) -> BoolArray:
        """Return where it holds. O(operations * n).

        Args:
            values, weights: integers or real numbers, with one shape, or labels.

        Raises:
            ParameterError: it is about numbers and the values are labels, or the other way round.
        """
        columns = _Columns(values, weights)
        with np.errstate(all="ignore"):
            held = self._holds(columns)
        return np.array(np.broadcast_to(held, np.shape(values)), dtype=np.bool_)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and self.text == other.text

    def __hash__(self) -> int:
        return hash((Predicate, self.text))

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"

    def __reduce__(self) -> tuple[type[Predicate], tuple[str]]:
        return Predicate, (self.text,)


# ----------------------------------------------------------------------------------------- reading


class _Reader(Formula):
    """Converts Python's tree, node by node, to functions on columns."""

    def __init__(self, text: str) -> None:
        super().__init__("the predicate", text, _WORDS, MAX_OPERATIONS, quoted=True)

    def whole(self) -> _Condition:
        return self._condition(self.tree(), MAX_DEPTH)

    def _condition(self, node: ast.expr, depth: int) -> _Condition:
        """Read a truth value, at most ``depth`` operations deep."""
        self.enter(node, depth)
        match node:
            case ast.BoolOp(op=operator, values=parts):
                self.count(len(parts) - 2)
                conditions = [self._condition(part, depth - 1) for part in parts]
                join = np.logical_and if isinstance(operator, ast.And) else np.logical_or
                return lambda columns: folded(join, [each(columns) for each in conditions])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                negated = self._condition(operand, depth - 1)
                return lambda columns: np.logical_not(negated(columns))
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if (
                isinstance(operator, (ast.In, ast.NotIn)) or _is_label(left) or _is_label(right)
            ):
                return self._of_labels(node, left, operator, right)
            case ast.Compare():
                return self._comparison(node, depth - 1)
            case ast.Call(
                func=ast.Name(id="startswith"), args=[ast.Name(id="v"), start], keywords=[]
            ) if _is_label(start):
                beginning = self._label(start)
                return lambda columns: _each(
                    columns.labels(beginning), lambda label: label.startswith(beginning)
                )
        raise self.unexpected(node, "a truth value, such as a comparison")

    def _of_labels(
        self, node: ast.Compare, left: ast.expr, operator: ast.cmpop, right: ast.expr
    ) -> _Condition:
        """Read a condition on ``v`` and labels. With == or !=, ``v`` may also be on the right."""
        if isinstance(operator, (ast.Eq, ast.NotEq)) and isinstance(right, ast.Name):
            left, right = right, left
        listed = [right]
        if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(right, ast.Tuple):
            listed = right.elts
        wanted = isinstance(operator, (ast.Eq, ast.NotEq, ast.In, ast.NotIn))
        if not (wanted and isinstance(left, ast.Name) and left.id == "v" and listed):
            raise self.unexpected(
                node, "v == 'a', v != 'a', v in ('a', 'b') or v not in ('a', 'b')"
            )
        self.count(len(listed) - 1)
        labels = frozenset(self._label(each) for each in listed)
        some, without = next(iter(labels)), isinstance(operator, (ast.NotEq, ast.NotIn))
        return lambda columns: _each(
            columns.labels(some), lambda label: (label in labels) is not without
        )

    def _label(self, node: ast.expr) -> str:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            raise self.unexpected(node, "a label in quotes")
        return node.value

    def _comparison(self, node: ast.Compare, depth: int) -> _Condition:
        self.count(len(node.ops) - 1)
        for operator in node.ops:
            if type(operator) not in RELATIONS:
                raise self.unexpected(node, "a comparison by <, <=, >, >=, == or !=")
        parts = [node.left, *node.comparators]
        sides = [self._side(part, depth) for part in parts]
        relations = [RELATIONS[type(operator)] for operator in node.ops]

        def holds(columns: _Columns) -> Truth:
            numbers = [side(columns) for side in sides]
            pairs = zip(relations, numbers, numbers[1:], strict=False)
            return folded(np.logical_and, [relation(a, b) for relation, a, b in pairs])

        return holds

    def _side(self, node: ast.expr, depth: int) -> _Arithmetic:
        """Read one side of a comparison. Columns and integers stay unconverted, which is exact."""
        match node:
            case ast.Name(id=("v" | "w") as name):
                return lambda columns: columns.exact(name)
            case ast.Constant(value=int() as whole) if not isinstance(whole, bool):
                self.number(node)
                return lambda _columns: whole
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as whole)) if (
                not isinstance(whole, bool)
            ):
                self.number(node.operand)
                return lambda _columns: -whole
        return self._number(node, depth)

    def _number(self, node: ast.expr, depth: int) -> _Arithmetic:
        """Read a number, at most ``depth`` operations deep."""
        self.enter(node, depth)
        match node:
            case ast.Constant():
                number = float(self.number(node))
                return lambda _columns: number
            case ast.Name(id=("v" | "w") as name):
                return lambda columns: columns.floats(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                negated = self._number(operand, depth - 1)
                return lambda columns: np.negative(negated(columns))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._number(operand, depth - 1)
            case ast.BinOp(op=ast.Pow()):
                base, exponent = self._number(node.left, depth - 1), self._exponent(node.right)
                return lambda columns: power(base(columns), exponent)
            case ast.BinOp(op=operator) if type(operator) in OPERATORS:
                apply = OPERATORS[type(operator)]
                left, right = (self._number(each, depth - 1) for each in (node.left, node.right))
                return lambda columns: apply(left(columns), right(columns))
            case ast.Call(func=ast.Name(id="abs"), args=[operand], keywords=[]):
                signed = self._number(operand, depth - 1)
                return lambda columns: np.abs(signed(columns))
            case ast.Call(func=ast.Name(id=name), args=[_, *_] as parts, keywords=[]) if (
                name in EXTREMES
            ):
                self.count(len(parts) - 2)
                join, operands = EXTREMES[name], [self._number(each, depth - 1) for each in parts]
                return lambda columns: folded(join, [each(columns) for each in operands])
        raise self.unexpected(node, "a number, v, w, arithmetic, abs of one number, min or max")

    def _exponent(self, node: ast.expr) -> float:
        sign, digits = 1.0, node
        while isinstance(digits, ast.UnaryOp) and isinstance(digits.op, (ast.USub, ast.UAdd)):
            sign = -sign if isinstance(digits.op, ast.USub) else sign
            digits = digits.operand
        number = float(self.number(digits)) if isinstance(digits, ast.Constant) else math.inf
        if number > MAX_EXPONENT:
            raise self.unexpected(
                node, f"an exponent that is a number from -{MAX_EXPONENT} to {MAX_EXPONENT}"
            )
        return sign * number


def _is_label(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _each(labels: npt.NDArray[Any], holds: Callable[[str], bool]) -> BoolArray:
    return np.fromiter(map(holds, labels.tolist()), np.bool_, len(labels))
