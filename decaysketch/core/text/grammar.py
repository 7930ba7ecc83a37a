"""The only reader for texts from others: decays, predicates, filters.

Texts arrive over networks, from any client that may query. No text is executed, by no ``eval``, and
no library's own expression parser sees one. There are three readers:

- :class:`Formula`, for arithmetic: it checks the text against a list of characters and words, then
  reads Python's grammar without running it (``ast.parse``). From the resulting tree, a reader
  accepts the nodes that it lists and rejects all others.
- :class:`Tokens`, for everything else: words, numbers, quoted texts and signs in a row, and a
  position among them. A reader goes forward and never back.
- :func:`json_object`.

The number of characters is limited, before anything else is checked. Nested operations, all
operations, and digits per number are limited too. So time and memory are at most proportional to
the characters, times the depth. An error has one form, the text, the fault and its place, and the
permitted input there: ``the predicate has 'q' at character 6; expected one of v, w``.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from decaysketch.errors import ParameterError

__all__ = [
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_TEXT",
    "NUMBER",
    "PIECE",
    "Formula",
    "Text",
    "Token",
    "Tokens",
    "json_object",
    "shortened",
    "split_commas",
]

MAX_TEXT = 500
"""Maximum characters in a formula."""

MAX_DEPTH = 50
"""Maximum depth of nested operations in a formula."""

MAX_DIGITS = 78
"""Maximum digits in a number in a formula. 2^256 has as many."""

NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""Regular expression for a decimal number without a sign."""

PIECE = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[(),]|[A-Za-z_][0-9A-Za-z_]*|[^'"(),A-Za-z_]+|.""",
    re.DOTALL,
)
"""Regular expression for a quoted text, a bracket, a comma, a word, or the text between them."""

_NUMBER = re.compile(NUMBER)
_UNLISTED = re.compile(r"[^0-9A-Za-z.+\-*/%(),<>=! ]")
_UNLISTED_IN_NAMES = re.compile(r"[^0-9A-Za-z_.+\-*/%(),<>=! ]")
_QUOTED = re.compile(
    r"'(?:[^'\\\x00-\x1f\x7f]|\\['\"\\])*'" + "|" + r'"(?:[^"\\\x00-\x1f\x7f]|\\[\'"\\])*"'
)
_WORD = re.compile(r"[A-Za-z_][0-9A-Za-z_]*")
_KEYWORDS = {"and", "or", "not", "in", "is", "None"}  # of Python, in formulas over named columns
_SHORT = re.compile(r"[^eE]{1,400}(?:[eE][+-]?[0-9]{1,3})?")  # every float, and 10^308 in full


class Text:
    """A text that is neither too long nor empty, and the remaining budget for reading it.

    Args:
        name: its name in error messages, "the predicate".
        text: anything.
        max_text: characters.
        budget: maximum count of ``units``.
        units: name of the counted units.
    """

    def __init__(
        self, name: str, text: object, max_text: int, budget: int, units: str = "operations"
    ) -> None:
        if not isinstance(text, str):
            raise ParameterError(f"{name} is of type {type(text).__name__}; expected a text")
        if len(text) > max_text:
            raise ParameterError(f"{name} has {len(text)} characters; expected at most {max_text}")
        if not text.strip():
            raise ParameterError(f"{name} is empty")
        self.name = name
        self.text = text
        self._budget, self._left, self._units = budget, budget, units

    def count(self, units: int = 1) -> None:
        """Deduct from the budget.

        Raises:
            ParameterError: it is used up.
        """
        self._left -= units
        if self._left < 0:
            raise ParameterError(
                f"{self.name} has more than {self._budget} {self._units}; expected at most that"
            )

    def refusal(self, at: int, found: str, expected: str) -> ParameterError:
        """Return the error for a fault at a character, with the permitted input there."""
        return ParameterError(f"{self.name} has {found} at character {at}; expected {expected}")


class Formula(Text):
    """Arithmetic as Python's tree, for a reader that defines the permitted nodes.

    Args:
        name, text: see :class:`Text`. At most ``max_text`` characters.
        words: permitted words. None: any that Python reads as a name.
        max_operations: maximum number of operations in total.
        quoted: whether texts in quotes are permitted, with any printable characters.
        max_text: characters.
    """

    def __init__(
        self, name: str, text: object, words: Sequence[str] | None, max_operations: int = MAX_TEXT,
        *, quoted: bool = False, max_text: int = MAX_TEXT,
    ) -> None:  # fmt: skip
        super().__init__(name, text, max_text, max_operations)
        self._indent = len(self.text) - len(self.text.lstrip(" "))
        self.text = self.text.strip(" ")
        self._check_words(words, quoted)

    def tree(self) -> ast.expr:
        """The complete tree, with no node checked yet.

        Raises:
            ParameterError: it does not follow Python's grammar.
        """
        try:
            return ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason, place = "too deep", ""
            if isinstance(error, SyntaxError):
                reason = error.msg
                place = f" at character {self._indent + (error.offset or len(self.text) + 1) - 1}"
            raise ParameterError(
                f"{self.name} {self.text!r} cannot be read{place}: {reason}"
            ) from None

    def enter(self, node: ast.expr, depth: int) -> None:
        """Count a node before it is read. ``depth``: how many levels may still be nested from here.

        Raises:
            ParameterError: it is too deep, or one operation too many.
        """
        if depth < 0:
            raise self.refusal(
                self._at(node), f"more than {MAX_DEPTH} operations within each other", "fewer"
            )
        if not isinstance(node, (ast.Constant, ast.Name)):
            self.count()

    def number(self, node: ast.expr) -> str:
        """Return a decimal number as it was written, not the float that Python reads: 0.1 is a
        tenth.

        Raises:
            ParameterError: it is not a number, does not fit in a float, or has too many digits.
        """
        source = self._source(node)
        if _NUMBER.fullmatch(source) is None:
            raise self.unexpected(node, "a decimal number")
        digits, _, power = source.lower().partition("e")
        if len(digits) > MAX_DIGITS or len(power) > 4 or not math.isfinite(float(source)):
            raise self.unexpected(node, f"a number of at most {MAX_DIGITS} digits, below 1e308")
        return source

    def unexpected(self, node: ast.expr, expected: str) -> ParameterError:
        """Return the error for a node that is not permitted."""
        return self.refusal(self._at(node), repr(self._source(node)), expected)

    def refusal(self, at: int, found: str, expected: str) -> ParameterError:
        return super().refusal(self._indent + at, found, expected)

    def _at(self, node: ast.expr) -> int:
        """Return the character where a node begins. Python counts bytes."""
        return len(self.text.encode()[: node.col_offset].decode())

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def _check_words(self, words: Sequence[str] | None, quoted: bool) -> None:
        """Check characters and words, before Python's own reader sees them.

        Python's reader warns about numbers that run into words, and reads 0x10, 1_0 and 1j as
        numbers.
        """
        text, at = self.text, 0
        if quoted:  # ignore quoted text
            text = _QUOTED.sub(lambda found: " " * len(found.group()), text)
        listed = _UNLISTED if words is not None else _UNLISTED_IN_NAMES
        if bad := listed.search(text):
            raise self.refusal(
                bad.start(),
                repr(bad.group()),
                "letters, digits, spaces and + - * / % ( ) , . < > = !"
                + (" ' \"" if quoted else "")
                + (" _" if words is None else ""),
            )
        while at < len(text):
            start = at
            if number := _NUMBER.match(text, at):
                at = number.end()
                if at < len(text) and (text[at].isalnum() or text[at] == "."):
                    raise self.refusal(
                        start, repr(text[start : at + 1]), "a decimal number, then an operator"
                    )
            elif word := _WORD.match(text, at):
                at = word.end()
                self._check_word(word.group(), start, words)
            else:
                at += 1

    def _check_word(self, word: str, at: int, words: Sequence[str] | None) -> None:
        if words is not None and word not in words:
            raise self.refusal(at, repr(word), f"one of {', '.join(words)}")
        if words is None and keyword.iskeyword(word) and word not in _KEYWORDS:
            raise self.refusal(at, repr(word), "a name, a number or an operator")


class Token(NamedTuple):
    """A word, number, quoted text or sign, and its start."""

    kind: str  # the group of the pattern; "end" after the last
    text: str
    at: int

    @property
    def number(self) -> int | float:
        """The value of a number, as an integer if it is written as one."""
        return int(self.text) if self.text.lstrip("+-").isdigit() else float(self.text)


class Tokens(Text):
    """A text as tokens, and a position among them.

    Args:
        pattern: a named group per token kind, and no other group. No two alternatives may begin
            alike.
        name, text, max_text, budget, units: see :class:`Text`.

    Complexity: O(characters).
    """

    def __init__(
        self,
        pattern: re.Pattern[str],
        name: str,
        text: object,
        max_text: int,
        budget: int,
        units: str,
    ) -> None:
        super().__init__(name, text, max_text, budget, units)
        self._listed: list[Token] = []
        self._place = 0
        at, end = 0, len(self.text.rstrip())
        while at < end:
            if self.text[at].isspace():
                at += 1
                continue
            found = pattern.match(self.text, at)
            if found is None or found.lastgroup is None:
                raise self.refusal(at, repr(self.text[at : at + 20]), "a word, number or sign")
            token = Token(found.lastgroup, found.group(), at)
            if token.kind == "number" and not _SHORT.fullmatch(token.text):
                raise self.refusal(
                    at, shortened(token.text), "at most 400 digits, and 3 of an exponent"
                )
            self._listed.append(token)
            at = found.end()
        self._listed.append(Token("end", "", end))

    @property
    def next(self) -> Token:
        """The token that is read next."""
        return self._listed[self._place]

    def take(self, kind: str, *texts: str) -> Token | None:
        """Return the next token if it has a given kind and, if texts are given, is one of them in
        any case. Then the position moves behind it.
        """
        token = self.next
        if token.kind != kind or (texts and token.text.lower() not in texts):
            return None
        self._place += kind != "end"
        return token

    def want(self, expected: str, kind: str, *texts: str) -> Token:
        """As :meth:`take`. ``expected``: the permitted input, for the error message.

        Raises:
            ParameterError: the next token is another one.
        """
        if (token := self.take(kind, *texts)) is None:
            raise self.unexpected(expected)
        return token

    def unexpected(self, expected: str) -> ParameterError:
        """Return the error for a next token that is not permitted."""
        found = repr(self.next.text) if self.next.text else "its end"
        return self.refusal(self.next.at, found, expected)


def split_commas(text: str) -> list[str]:
    """Return the parts between commas outside quotes and brackets. O(characters)."""
    parts, depth = [""], 0
    for piece in PIECE.findall(text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def json_object(name: str, text: str, max_text: int) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ParameterError: it is too long, not JSON, nested too deep, or not an object.
    """
    Text(name, text, max_text, 0)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as fault:
        reason = fault if isinstance(fault, ValueError) else "nested too deep"
        raise ParameterError(f"{name} {shortened(text)} is not JSON: {reason}") from None
    if not isinstance(fields, dict):
        raise ParameterError(f"{name} is {shortened(text)}; expected a JSON object")
    return fields


def shortened(text: str) -> str:
    """Return a text as error messages show it."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
