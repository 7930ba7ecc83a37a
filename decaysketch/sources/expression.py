"""Set expressions over sources, from a text: ``gw1 & ~"gw 2"``, ``exactly(2)``.

A text arrives over a network and is read by :mod:`decaysketch.core.text.grammar`, never executed.
Its characters, its operations and its depth are limited, so time and memory are too.

=========================  ======================================================================
``gw1``  ``"gw-1"``        messages that this source heard; a name in quotes where it is no
                           identifier, with a backslash before a quote or a backslash
``a & b``  ``a | b``       heard by both; by either
``a - b``  ``~a``          heard by ``a`` and not by ``b``; by another source and not by ``a``
``any``  ``all``           heard by one source at least; by every source
``exactly(j)``             heard by ``j`` sources
``at_least(j)``            heard by ``j`` sources or more
=========================  ======================================================================

As in Python, ``~`` binds before ``-``, ``-`` before ``&``, ``&`` before ``|``. Only messages that
some source heard exist here. So ``~a`` depends on which sources are read, and so do the words of
the last three lines: they read every source. An expression that is empty where none of its names
heard a message reads only the sources that it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.grammar import MAX_DEPTH, MAX_TEXT, Tokens
from decaysketch.errors import ParameterError

__all__ = ["Expression", "Histories", "quoted", "read_expression"]

BoolArray = npt.NDArray[np.bool_]

MAX_OPERATIONS = 64
"""Operations of a text: each is a pass over a column."""

_TOKEN = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<quoted>'(?:[^'\\\x00-\x1f\x7f]|\\['\"\\])*'|\"(?:[^\"\\\x00-\x1f\x7f]|\\['\"\\])*\")"
    r"|(?P<number>[0-9]{1,9})"
    r"|(?P<sign>[&|~()\-])"
)
_ESCAPE = re.compile(r"\\(.)")
_WORDS = ("any", "all", "exactly", "at_least")
_EXPECTED = (
    'a source (in quotes if its name is no identifier, such as "gw-1"), ~, (, any, all, exactly(j) '
    "or at_least(j)"
)


class Histories(Protocol):
    """The sources that heard each of n messages."""

    @property
    def sources(self) -> int:
        """Number of sources."""

    @property
    def degrees(self) -> npt.NDArray[np.int32]:
        """int32[n], the number of sources that heard each message."""

    def heard(self, name: str) -> BoolArray:
        """Return bool[n], the messages that a source heard."""


class _Node(Protocol):
    def holds(self, of: Histories) -> BoolArray: ...
    def empty(self) -> bool:
        """Return whether it holds for no message that none of its names heard."""
        ...

    def implied(self) -> frozenset[str]:
        """Return the sources that heard every message for which it holds."""
        ...


@dataclass(frozen=True, slots=True)
class _Name:
    name: str

    def holds(self, of: Histories) -> BoolArray:
        return of.heard(self.name)

    def empty(self) -> bool:
        return True

    def implied(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True, slots=True)
class _Degree:
    """Heard by this number of sources. None: by all sources."""

    least: int | None
    most: int | None

    def holds(self, of: Histories) -> BoolArray:
        found: BoolArray = of.degrees >= (of.sources if self.least is None else self.least)
        if self.most is not None:
            found &= of.degrees <= self.most
        return found

    def empty(self) -> bool:
        return False

    def implied(self) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True, slots=True)
class _Not:
    inner: _Node

    def holds(self, of: Histories) -> BoolArray:
        return ~self.inner.holds(of)

    def empty(self) -> bool:
        return not self.inner.empty()

    def implied(self) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True, slots=True)
class _Both:
    first: _Node
    second: _Node

    def holds(self, of: Histories) -> BoolArray:
        return self.first.holds(of) & self.second.holds(of)

    def empty(self) -> bool:
        return self.first.empty() or self.second.empty()

    def implied(self) -> frozenset[str]:
        return self.first.implied() | self.second.implied()


@dataclass(frozen=True, slots=True)
class _Either:
    first: _Node
    second: _Node

    def holds(self, of: Histories) -> BoolArray:
        return self.first.holds(of) | self.second.holds(of)

    def empty(self) -> bool:
        return self.first.empty() and self.second.empty()

    def implied(self) -> frozenset[str]:
        return self.first.implied() & self.second.implied()


@dataclass(frozen=True)
class Expression:
    """A set of messages, by the sources that heard them.

    Attributes:
        text: the text as given.
        names: the source names, in text order.
        reads_all: it depends on every source, not only on the named ones.
        inside: sources that heard each of its messages. Empty if that is not certain.
        is_union: it is every message that one of the sources read heard.
        is_positive: it has no ``~``, ``-``, ``exactly`` and so on.
    """

    text: str
    names: tuple[str, ...]
    reads_all: bool
    inside: frozenset[str]
    is_union: bool
    is_positive: bool
    _root: _Node

    def holds(self, of: Histories) -> BoolArray:
        """Return bool[n], for each message whether it is in the set. O(n operations)."""
        return self._root.holds(of)


@lru_cache(maxsize=256)
def read_expression(text: str, name: str = "set") -> Expression:
    """Return the set that a text describes.

    Args:
        text: at most 500 characters and 64 operations.
        name: field name for errors.

    Raises:
        ParameterError: the text is no expression. The error gives the character where the fault
            begins.
    """
    reader = _Reader(text, name)
    root = reader.whole()
    nodes = list(_walk(root))
    degrees = [node for node in nodes if isinstance(node, _Degree)]
    names = tuple(dict.fromkeys(node.name for node in nodes if isinstance(node, _Name)))
    union = {_Name, _Either} >= {type(node) for node in nodes}
    return Expression(
        text=text,
        names=names,
        reads_all=bool(degrees) or not root.empty(),
        inside=root.implied(),
        is_union=union or root == _Degree(1, None),
        is_positive={_Name, _Both, _Either} >= {type(node) for node in nodes},
        _root=root,
    )


def _walk(node: _Node) -> Sequence[_Node]:
    if isinstance(node, _Not):
        return [node, *_walk(node.inner)]
    if isinstance(node, _Both | _Either):
        return [node, *_walk(node.first), *_walk(node.second)]
    return [node]


def quoted(name: str) -> str:
    """Return a source name in the form that expressions use."""
    found = _TOKEN.fullmatch(name)
    if found is not None and found.lastgroup == "name" and name not in _WORDS:
        return name
    escaped = re.sub(r'(["\\])', r"\\\1", name)
    return f'"{escaped}"'


class _Reader:
    """Reads a text from left to right, by recursive descent."""

    def __init__(self, text: str, name: str) -> None:
        self._tokens = Tokens(_TOKEN, name, text, MAX_TEXT, MAX_OPERATIONS, "operations")
        self._depth = 0

    def whole(self) -> _Node:
        found = self._either()
        self._tokens.want("&, |, -, ) or its end", "end")
        return found

    def _either(self) -> _Node:
        return self._series("|", self._both, _Either)

    def _both(self) -> _Node:
        return self._series("&", self._difference, _Both)

    def _difference(self) -> _Node:
        return self._series("-", self._single, lambda first, second: _Both(first, _Not(second)))

    def _series(
        self, sign: str, part: Callable[[], _Node], joined: Callable[[_Node, _Node], _Node]
    ) -> _Node:
        found = part()
        while self._tokens.take("sign", sign):
            self._tokens.count()
            found = joined(found, part())
        return found

    def _single(self) -> _Node:
        tokens = self._tokens
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise tokens.unexpected(f"at most {MAX_DEPTH} operations within each other")
        try:
            if tokens.take("sign", "~"):
                tokens.count()
                return _Not(self._single())
            if tokens.take("sign", "("):
                found = self._either()
                tokens.want(")", "sign", ")")
                return found
            return self._named()
        finally:
            self._depth -= 1

    def _named(self) -> _Node:
        tokens = self._tokens
        if token := tokens.take("quoted"):
            return _Name(_ESCAPE.sub(r"\1", token.text[1:-1]))
        token = tokens.want(_EXPECTED, "name")
        if token.text not in _WORDS:
            return _Name(token.text)
        tokens.count()
        if token.text in ("any", "all"):
            return _Degree(1, None) if token.text == "any" else _Degree(None, None)
        tokens.want("(", "sign", "(")
        j = int(tokens.want("a number of sources", "number").text)
        tokens.want(")", "sign", ")")
        if j < 1:
            raise ParameterError(f"{tokens.name} has {token.text}({j}); expected 1 or more sources")
        return _Degree(j, j if token.text == "exactly" else None)
