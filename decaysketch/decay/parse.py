"""Text to term: what an expression may say, and nothing else.

Texts arrive over networks. A text is never executed, by no ``eval``, and no library's own parser of
expressions sees it. It is held against a list of characters, then against a list of words; then
Python's grammar is read without running it (``ast.parse``), and of the tree that this gives only
the nodes listed here are taken. Length, depth, digits and powers are limited, so time and memory
are too.

=====================================  ============================================================
``x`` (the age), numbers, ``e, pi``    numbers in decimals, ``0.25`` or ``1e-3``, are kept exactly
``+  -  *  /  //  **``                 ``//`` rounds the quotient down
``exp  log  ln  sqrt  floor  ceil``    of one argument; ``ln`` is ``log``
``min  max``                           of one argument or more
``where(condition, then, otherwise)``  the condition is one comparison: ``<  <=  >  >=``
=====================================  ============================================================

:func:`parse` keeps the meaning of the text as a whole; whether it is a decay is decided by
:mod:`decaysketch.decay.symbolic`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from decaysketch.errors import ParameterError

if TYPE_CHECKING:
    from decaysketch.decay.normal import Term

__all__ = ["MAX_DEPTH", "MAX_TEXT", "parse"]

MAX_TEXT = 500
"""Characters of a text."""

MAX_DEPTH = 50
"""Operations within operations."""

_UNLISTED = re.compile(r"[^0-9A-Za-z.+\-*/%(),<>=! ]")
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?")
_WORD = re.compile(r"[A-Za-z][0-9A-Za-z]*")
_MAX_DIGITS = 78  # 2^256 has as many

_FUNCTIONS = {  # least and largest number of arguments
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


def parse(text: str, names: Sequence[str] = ("x",)) -> Term:
    """A text as a term: a sympy expression in normal form, numbers exact.

    Args:
        text: at most :data:`MAX_TEXT` characters, at most :data:`MAX_DEPTH` operations deep.
        names: the variables it may name; all are non-negative, see
            :func:`~decaysketch.decay.normal.symbol`.

    Returns:
        sympy.Expr, not evaluated by sympy; see :mod:`decaysketch.decay.normal`.

    Raises:
        ParameterError: anything else than what this module's table lists; the message names it.

    Complexity: O(length * depth).

    Example:
        >>> parse("2 * x / 120 + 1")
        x/60 + 1
    """
    if not isinstance(text, str):
        raise ParameterError(f"the expression is of type {type(text).__name__}; expected a text")
    if len(text) > MAX_TEXT:
        raise ParameterError(
            f"the expression has {len(text)} characters; expected at most {MAX_TEXT}"
        )
    text = text.strip(" ")
    if not text:
        raise ParameterError("the expression is empty")
    _check_characters(text, names)
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "too deep"
        raise ParameterError(f"the expression {text!r} cannot be read: {reason}") from None
    return _Reader(text, names).read(body, MAX_DEPTH)


def _check_characters(text: str, names: Sequence[str]) -> None:
    """Characters and words, before Python's own reader sees them.

    It warns of numbers that run into words, and reads 0x10, 1_0 and 1j as numbers.
    """
    if bad := _UNLISTED.search(text):
        raise ParameterError(
            f"the expression has {bad.group()!r} at character {bad.start()}; expected letters, "
            "digits, spaces and + - * / ( ) , . < > ="
        )
    at = 0
    while at < len(text):
        if number := _NUMBER.match(text, at):
            at = number.end()
            if at < len(text) and (text[at].isalnum() or text[at] == "."):
                raise ParameterError(
                    f"the expression has {text[number.start() : at + 1]!r} at character "
                    f"{number.start()}; expected a decimal number, then an operator"
                )
        elif word := _WORD.match(text, at):
            at = word.end()
            if word.group() not in {*names, "e", "pi", *_FUNCTIONS}:
                raise ParameterError(
                    f"the expression names {word.group()!r}; known are "
                    f"{', '.join([*names, 'e', 'pi', *sorted(_FUNCTIONS)])}"
                )
        else:
            at += 1


class _Reader:
    """Python's tree, node by node, as a term."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        from decaysketch.decay import normal  # brings sympy

        self.normal = normal
        self.text = text
        self.leaves = {"e": normal.exp(normal.number(1)), "pi": normal.pi()}
        self.leaves |= {name: normal.symbol(name) for name in names}

    def read(self, node: ast.expr, depth: int) -> Term:
        """One node and what is under it, at most ``depth`` operations deep."""
        if depth < 0:
            raise ParameterError(
                f"the expression nests more than {MAX_DEPTH} operations; expected at most that"
            )
        match node:
            case ast.Constant():
                return self._number(node)
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
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
                return self._call(name, node.args, depth - 1)
        raise ParameterError(
            f"the expression has {self._source(node)}; expected numbers, variables, "
            f"+ - * / // **, and calls of {', '.join(sorted(_FUNCTIONS))}"
        )

    def _chain(
        self, node: ast.expr, same: type[ast.operator], inverse: type[ast.operator], depth: int
    ) -> tuple[list[Term], list[Term]]:
        """Operands of ``a + b - c ...``, the subtracted ones first; of products likewise.

        At once, for a sum is put in order in one go, and is no deeper for being longer.
        """
        inverted: list[Term] = []
        others: list[Term] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, (same, inverse)):
            operand = self.read(node.right, depth)
            (inverted if isinstance(node.op, inverse) else others).append(operand)
            node = node.left
        return inverted, [*others, self.read(node, depth)]

    def _number(self, node: ast.Constant) -> Term:
        # The text of the number, not the float that Python reads it as: 0.1 is a tenth.
        found = _NUMBER.fullmatch(self._source(node).strip("'"))
        if found is None:
            raise ParameterError(f"the expression has {self._source(node)}; expected a number")
        digits, power = found[1], found[2] or "0"
        whole, _, part = digits.partition(".")
        shift = int(power) - len(part)
        if len(digits) > _MAX_DIGITS or abs(shift) > _MAX_DIGITS:
            raise ParameterError(
                f"the expression has the number {self._source(node)}; expected at most "
                f"{_MAX_DIGITS} digits on either side of the point"
            )
        return self.normal.number(int(whole + part) * 10 ** max(shift, 0), 10 ** max(-shift, 0))

    def _call(self, name: str, arguments: list[ast.expr], depth: int) -> Term:
        least, most = _FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            wanted = f"{least}" if least == most else f"{least} or more"
            raise ParameterError(
                f"the expression gives {name} {len(arguments)} arguments; expected {wanted}"
            )
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
        raise ParameterError(
            f"the expression has the condition {self._source(node)}; expected one comparison "
            "by <, <=, > or >="
        )

    def _source(self, node: ast.expr) -> str:
        return repr(ast.get_source_segment(self.text, node))
