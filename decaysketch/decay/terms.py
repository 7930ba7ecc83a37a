"""Text to term: the permitted syntax of an expression.

Texts arrive over networks. :mod:`decaysketch.core.text.grammar` reads them and never executes them.
Only the tree nodes listed here are accepted. Powers are limited as well as length, depth and
digits, so time and memory are too.

=====================================  ============================================================
``x`` (the age), numbers, ``e, pi``    numbers in decimals, ``0.25`` or ``1e-3``, are kept exactly
``+  -  *  /  //  **``                 ``//`` rounds the quotient down
``exp  log  ln  sqrt  floor  ceil``    of one argument; ``ln`` is ``log``
``min  max``                           of one argument or more
``where(condition, then, otherwise)``  the condition is one comparison: ``<  <=  >  >=``
=====================================  ============================================================

:func:`term_of` keeps the meaning of the complete text. :mod:`decaysketch.decay.symbolic` decides
whether it is a decay.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from decaysketch.core.text.grammar import MAX_DEPTH, MAX_DIGITS, MAX_TEXT, Formula

if TYPE_CHECKING:
    from decaysketch.decay.normal import Term

__all__ = ["FUNCTIONS", "MAX_DEPTH", "MAX_TEXT", "term_of"]

FUNCTIONS = {  # least and largest number of arguments
    "ceil": (1, 1),
    "exp": (1, 1),
    "floor": (1, 1),
    "ln": (1, 1),
    "log": (1, 1),
    "max": (1, MAX_TEXT),
    "min": (1, MAX_TEXT),
    "sqrt": (1, 1),
    "where": (3, 3),
}
_SPELLED = {"ln": "log", "max": "maximum", "min": "minimum"}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.FloorDiv: "floor_divide",
    ast.Pow: "power",
}
_RELATIONS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def term_of(text: str, names: Sequence[str] = ("x",)) -> Term:
    """Return a text as a term: a sympy expression in normal form, with exact numbers.

    Args:
        text: at most :data:`MAX_TEXT` characters, at most :data:`MAX_DEPTH` operations deep.
        names: the variables it may name. All are non-negative, see
            :func:`~decaysketch.decay.normal.symbol`.

    Returns:
        sympy.Expr, not evaluated by sympy; see :mod:`decaysketch.decay.normal`.

    Raises:
        ParameterError: the text contains anything else than the syntax in this module's table. The
            message names it.

    Complexity: O(length * depth).

    Example:
        >>> term_of("2 * x / 120 + 1")
        x/60 + 1
    """
    reader = _Reader(text, names)
    return reader.read(reader.tree(), MAX_DEPTH)


class _Reader(Formula):
    """Converts Python's tree, node by node, to a term."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        super().__init__("the expression", text, [*names, "e", "pi", *FUNCTIONS])
        from decaysketch.decay import normal  # brings sympy

        self.normal = normal
        self.leaves = {"e": normal.exp(normal.number(1)), "pi": normal.pi()}
        self.leaves |= {name: normal.symbol(name) for name in names}

    def read(self, node: ast.expr, depth: int) -> Term:
        """Convert one node and its children, at most ``depth`` operations deep."""
        self.enter(node, depth)
        match node:
            case ast.Constant():
                return self._exact(node)
            case ast.Name(id=name) if name in self.leaves:
                return self.leaves[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.normal.multiply(self.normal.number(-1), self.read(operand, depth - 1))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand, depth - 1)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                negated, operands = self._chain(node, ast.Add, ast.Sub, depth - 1)
                minus = self.normal.number(-1)
                negated = [self.normal.multiply(minus, each) for each in negated]
                return self.normal.add(*operands, *negated)
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                below, operands = self._chain(node, ast.Mult, ast.Div, depth - 1)
                minus = self.normal.number(-1)
                below = [self.normal.power(each, minus) for each in below]
                return self.normal.multiply(*operands, *below)
            case ast.BinOp(op=operator) if type(operator) in _OPERATORS:
                left, right = self.read(node.left, depth - 1), self.read(node.right, depth - 1)
                return getattr(self.normal, _OPERATORS[type(operator)])(left, right)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
                return self._call(node, name, depth - 1)
        raise self.unexpected(
            node,
            f"numbers, variables, + - * / // **, and calls of {', '.join(FUNCTIONS)}",
        )

    def _chain(
        self, node: ast.expr, same: type[ast.operator], inverse: type[ast.operator], depth: int
    ) -> tuple[list[Term], list[Term]]:
        """Return the operands of ``a + b - c ...``, the subtracted ones first, and likewise for
        products.

        It collects them at once, because a sum is sorted in one pass, and a longer sum is no
        deeper.
        """
        inverted: list[Term] = []
        others: list[Term] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, (same, inverse)):
            operand = self.read(node.right, depth)
            (inverted if isinstance(node.op, inverse) else others).append(operand)
            node = node.left
        return inverted, [*others, self.read(node, depth)]

    def _exact(self, node: ast.Constant) -> Term:
        digits, _, power = self.number(node).lower().partition("e")
        whole, _, part = digits.partition(".")
        shift = int(power or "0") - len(part)
        if abs(shift) > MAX_DIGITS:
            raise self.unexpected(
                node, f"a number of at most {MAX_DIGITS} digits on either side of the point"
            )
        return self.normal.number(int(whole + part) * 10 ** max(shift, 0), 10 ** max(-shift, 0))

    def _call(self, node: ast.Call, name: str, depth: int) -> Term:
        arguments = node.args
        least, most = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            wanted = f"{least}" if least == most else f"{least} or more"
            raise self.unexpected(node, f"{name} of {wanted}")
        if name == "where":
            condition = self._condition(arguments[0], depth)
            return self.normal.where(condition, *(self.read(each, depth) for each in arguments[1:]))
        operands = [self.read(each, depth) for each in arguments]
        return getattr(self.normal, _SPELLED.get(name, name))(*operands)

    def _condition(self, node: ast.expr, depth: int) -> Term:
        match node:
            case ast.Compare(left=left, ops=[relation], comparators=[right]) if (
                type(relation) in _RELATIONS
            ):
                return self.normal.compare(
                    self.read(left, depth), _RELATIONS[type(relation)], self.read(right, depth)
                )
        raise self.unexpected(node, "one comparison by <, <=, > or >=")
