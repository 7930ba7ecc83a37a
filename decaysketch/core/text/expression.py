"""Conditions and numbers over named, typed columns, from a text: ``v > 3 and hour(time) == 9``.

Texts arrive over networks. :mod:`decaysketch.core.text.grammar` reads them and never executes them.
A text is *bound* to a :class:`Schema`, the names and types of the available columns. Binding checks
every type, and gives a function on a :class:`Table`, the columns for some rows. So the same text
works for every table with this schema, and a mistake raises an error before any row is read.

=======  ===================================================================================
names    columns; dots as in ``service.name``; ``field('any name')``
numbers  decimal numbers, ``+ - * / // % **``, ``abs exp log sqrt sin cos``, ``min max``
times    ``hour minute weekday month(time[, 'Europe/Paris'])``, where Monday is 0;
         ``bucket(time, '15min')``, the beginning of its bucket. A time is compared with another
         time, a number of the stream's unit, or a date with its zone in quotes, and ``age`` also
         with a length such as ``'1h'``
texts    in quotes, ``lower(text)``, ``date(time[, zone])`` as ``'2026-01-31'``
truths   ``< <= > >= == !=``, also in chains; ``in``, ``not in``; ``between(x, a, b)``;
         ``startswith(text, 'a')``; ``is null``, ``is not null``; ``and or not``, ``true false``
=======  ===================================================================================

*Null.* A column may have no entry in a row. Arithmetic with null is null, as is a result without a
real value, such as a division by 0. A comparison with null is false, ``!=`` as well. Only ``is
null`` is true for it.

Limits: 1,000 characters, 50 operations within each other, 64 operations.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from decaysketch.core.text import calendar
from decaysketch.core.text.grammar import MAX_DEPTH, Formula
from decaysketch.core.text.operations import (
    EXTREMES,
    FUNCTIONS,
    MAX_EXPONENT,
    OPERATORS,
    RELATIONS,
    folded,
    power,
)
from decaysketch.core.time_units import NANOSECONDS, duration, instant
from decaysketch.errors import ParameterError

__all__ = [
    "MAX_EXPRESSION",
    "MAX_OPERATIONS",
    "NULL_TIME",
    "WORDS",
    "Bound",
    "Column",
    "Kind",
    "Schema",
    "Table",
    "bind",
]

MAX_EXPRESSION = 1000
"""Maximum characters in a text."""

MAX_OPERATIONS = 64
"""Maximum operations in a text. Each is a pass over the columns."""

Kind = Literal["number", "truth", "time", "text"]

NULL_TIME = np.iinfo(np.int64).min
"""Null in time columns."""

BoolArray = npt.NDArray[np.bool_]

#: Functions and words of the language, for completion.
WORDS: tuple[str, ...] = (
    *FUNCTIONS, *EXTREMES, *calendar.FIELDS, "date", "bucket", "between", "startswith", "lower",
    "field", "and", "or", "not", "in", "is", "null", "true", "false",
)  # fmt: skip

_SAID: Mapping[Kind, str] = {
    "number": "number", "truth": "condition", "time": "time", "text": "text",
}  # fmt: skip
_CONSTANTS = {"true": True, "false": False}
_NULL = re.compile(r"\bnull\b")
_QUOTED = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_NUMBERS: tuple[Kind, ...] = ("number", "time")


class Schema(NamedTuple):
    """Columns by name, and their time unit.

    Attributes:
        kinds: each column's name and type, ``time`` (a time) and ``age`` (a number) among them.
        unit: the time unit.
    """

    kinds: tuple[tuple[str, Kind], ...]
    unit: str

    def named(self) -> str:
        """The columns as a sentence lists them."""
        return ", ".join(f"{name} ({kind})" for name, kind in self.kinds)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column in a table.

    Attributes:
        data: n entries: numbers (int64 or float64), times (int64), truths (bool), or for texts
            their indices into ``texts`` (integers, -1 if null).
        null: bool[n], true if there is no entry. None if all rows have one.
        texts: distinct texts.
    """

    data: npt.NDArray[Any]
    null: BoolArray | None = None
    texts: Sequence[str] = ()
    _floats: list[npt.NDArray[np.float64]] = field(default_factory=list, repr=False)

    @property
    def floats(self) -> npt.NDArray[np.float64]:
        """Numbers, NaN where null."""
        if not self._floats:
            found = self.data.astype(np.float64, copy=False)
            if self.null is not None:
                found = np.where(self.null, np.nan, found)
            self._floats.append(found)
        return self._floats[0]


class Table(Protocol):
    """Columns for some rows."""

    @property
    def now(self) -> int:
        """The reference time for ages."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Column:
        """One of the schema's columns."""


class Texts(NamedTuple):
    """Texts per row, each text stored once. -1: null."""

    codes: npt.NDArray[Any]
    texts: Sequence[str]


_Function = Callable[[Table], Any]


Within = Callable[[Sequence[Any]], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


class _Typed(NamedTuple):
    """Part of a text: its type, and its value for a table.

    Attributes:
        kind: its type.
        of: float64 (NaN is null) or int64 for numbers, int64 for times, bool for truths,
            :class:`Texts` for texts. A single number if it is the same for all rows.
        null: where it is null, if ``of`` does not show it.
        constant: the number, text or truth, or None if it depends on the row.
        name: the column's name, if it is a column.
        within: the first and the last time for a row with given values. None: any.
    """

    kind: Kind
    of: _Function
    null: Callable[[Table], BoolArray | None] = lambda _table: None
    constant: Any = None
    name: str = ""
    within: Within | None = None


class _Hull(NamedTuple):
    """Bounds on the times that satisfy a condition, for a query at a time. They are numbers that
    are added to 0 or, for ages, to ``now``, and infinite if there is no bound.
    """

    first: Callable[[int], float]
    last: Callable[[int], float]


_ANY_TIME = _Hull(lambda _now: -math.inf, lambda _now: math.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A text bound to a schema.

    Attributes:
        text: the text as given.
        kind: type of its result.
        operations: number of operations.
        names: names of the columns that it reads.
        within: the first and the last time, int64[k] each, of a row for which the result is one of
            k values. None: any time.
        conjuncts: conditions that all hold wherever this one does.
    """

    text: str
    kind: Kind
    operations: int
    names: frozenset[str]
    within: Within | None
    _typed: _Typed
    _hull: _Hull
    conjuncts: tuple[Bound, ...] = ()

    @property
    def column(self) -> str:
        """The name of the column that the text is, else empty."""
        return self._typed.name

    def __call__(self, table: Table) -> Any:
        """Return the result for each row in a table. O(operations * n).

        Returns:
            A :class:`Column`: numbers as float64 or int64, NaN or ``null`` if there is none,
            times, truths, or texts.
        """
        with np.errstate(all="ignore"):
            found = self._typed.of(table)
            null = self._typed.null(table)
        if isinstance(found, Texts):
            return Column(found.codes, found.codes < 0, found.texts)
        data = np.broadcast_to(np.asarray(found), (len(table),))
        if null is None and data.dtype.kind == "f":
            lost = np.isnan(data)
            null = lost if lost.any() else None
        return Column(data, null)

    def holds(self, table: Table) -> BoolArray:
        """Return where a condition is true. Call it for conditions only."""
        with np.errstate(all="ignore"):
            found = self._typed.of(table)
        return np.array(np.broadcast_to(found, (len(table),)), dtype=np.bool_)

    def times(self, now: int) -> tuple[int | None, int | None]:
        """Return the first and the last time of a row for which a condition may be true, for a
        query at a time. None: any.
        """
        first, last = self._hull.first(now), self._hull.last(now)
        return (
            None if math.isinf(first) or math.isnan(first) else math.ceil(first),
            None if math.isinf(last) or math.isnan(last) else math.floor(last),
        )


@lru_cache(maxsize=512)
def bind(role: str, text: str, schema: Schema, *kinds: Kind) -> Bound:
    """Bind a text to a schema's columns.

    Args:
        role: its role in a query, "where", "of", "by" or "weight": for errors.
        text: at most :data:`MAX_EXPRESSION` characters.
        schema: the columns.
        kinds: permitted types. Empty: any.

    Raises:
        ParameterError: it cannot be read, names no column, or has another type. The message names
            the character, and the permitted input there.
    """
    return _Reader(role, text, schema).bound(kinds)


class _Reader(Formula):
    """Converts Python's tree, node by node, to typed functions on a table."""

    def __init__(self, role: str, text: str, schema: Schema) -> None:
        self.given, self._schema, self._kinds = text, schema, dict(schema.kinds)
        self._used: set[str] = set()
        if isinstance(text, str):  # a place that is null, of the same length in Python
            parts = _QUOTED.split(text)
            parts[::2] = [_NULL.sub("None", part) for part in parts[::2]]
            text = "".join(parts)
        super().__init__(role, text, None, MAX_OPERATIONS, quoted=True, max_text=MAX_EXPRESSION)

    def bound(self, kinds: Sequence[Kind]) -> Bound:
        tree = self.tree()
        typed = self._typed(tree, MAX_DEPTH, *kinds) if kinds else self._read(tree, MAX_DEPTH)
        hull = self._hull(tree) if typed.kind == "truth" else _ANY_TIME
        found = Bound(
            self.given, typed.kind, MAX_OPERATIONS - self._left, frozenset(self._used),
            typed.within, typed, hull,
        )  # fmt: skip
        return replace(found, conjuncts=self._conjuncts(tree, found))

    def _conjuncts(self, tree: ast.expr, whole: Bound) -> tuple[Bound, ...]:
        """Return the parts of a condition that are joined by ``and``, or the condition itself."""
        if whole.kind != "truth":
            return ()
        if not (isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)):
            return (whole,)
        found: list[Bound] = []
        for part in tree.values:
            self._left, self._used = MAX_OPERATIONS, set()  # they were counted with the whole
            typed = self._typed(part, MAX_DEPTH, "truth")
            bound = replace(whole, names=frozenset(self._used), _typed=typed, _hull=_ANY_TIME)
            found += self._conjuncts(part, bound)
        return tuple(found)

    # ------------------------------------------------------------------------------------- types

    def _typed(self, node: ast.expr, depth: int, *kinds: Kind) -> _Typed:
        """Return a part that has one of some types."""
        found = self._read(node, depth)
        if found.kind not in kinds:
            wanted = " or a ".join(_SAID[kind] for kind in kinds)
            raise self.unexpected(node, f"a {wanted}; it is a {_SAID[found.kind]}")
        return found

    @staticmethod
    def _floats(typed: _Typed) -> _Function:
        """Return a number or time as float64 with NaN for null."""

        def floats(table: Table) -> Any:
            found, null = typed.of(table), typed.null(table)
            found = np.asarray(found, np.float64)
            return found if null is None else np.where(null, np.nan, found)

        return floats

    def unexpected(self, node: ast.expr, expected: str) -> ParameterError:
        source = self._source(node)
        at = self._at(node)
        whole = source if len(source) <= 60 else f"{source[:57]}..."
        shown = whole.replace("None", "null")
        return self.refusal(at, repr(shown), expected)

    # ------------------------------------------------------------------------------------ reading

    def _read(self, node: ast.expr, depth: int) -> _Typed:
        self.enter(node, depth)
        match node:
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case ast.Constant(value=str() as text):
                return _Typed("text", lambda _t: text, constant=text)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                written = self.number(node)
                number = value if isinstance(value, int) else float(written)
                return _Typed("number", lambda _t: number, constant=number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._negated(operand, depth - 1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._typed(operand, depth - 1, "number")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                denied = self._typed(operand, depth - 1, "truth").of
                return _Typed("truth", lambda t: np.logical_not(denied(t)))
            case ast.BoolOp(op=operator, values=parts):
                self.count(len(parts) - 2)
                truths = [self._typed(part, depth - 1, "truth").of for part in parts]
                join = np.logical_and if isinstance(operator, ast.And) else np.logical_or
                return _Typed("truth", lambda t: folded(join, [each(t) for each in truths]))
            case ast.BinOp():
                return self._arithmetic(node, depth - 1)
            case ast.Compare():
                return self._compared(node, depth - 1)
            case ast.Call(func=ast.Name(id=name), args=[_, *_] as given, keywords=[]):
                return self._called(node, name, given, depth - 1)
        raise self.unexpected(
            node, "a column, a number, a text in quotes, a condition or a function"
        )

    def _named(self, node: ast.Name | ast.Attribute) -> _Typed:
        name = self._dotted(node)
        if name in _CONSTANTS and name not in self._kinds:
            truth = _CONSTANTS[name]
            return _Typed("truth", lambda _t: truth, constant=truth)
        return self._column(node, name)

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        raise self.unexpected(node, "a name")

    def _column(self, node: ast.expr, name: str) -> _Typed:
        kind = self._kinds.get(name)
        if kind is None:
            known = [*self._kinds, *WORDS]
            near = difflib.get_close_matches(name[:100], known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise self.unexpected(node, f"one of the columns {self._schema.named()}{hint}")
        self._used.add(name)
        if kind == "text":
            return _Typed(kind, lambda t: _texts_of(t.column(name)), name=name)
        if kind == "truth":
            return _Typed(kind, lambda t: _true(t.column(name)), lambda t: t.column(name).null,
                          name=name)  # fmt: skip
        return _Typed(
            kind,
            lambda t: t.column(name).data,
            lambda t: t.column(name).null,
            name=name,
            within=_instants if name == "time" else None,
        )

    def _negated(self, operand: ast.expr, depth: int) -> _Typed:
        found = self._typed(operand, depth, "number")
        if found.constant is not None:
            number = -found.constant
            return _Typed("number", lambda _t: number, constant=number)
        floats = self._floats(found)
        return _Typed("number", lambda t: np.negative(floats(t)))

    def _arithmetic(self, node: ast.BinOp, depth: int) -> _Typed:
        left = self._floats(self._typed(node.left, depth, *_NUMBERS))
        if isinstance(node.op, ast.Pow):
            return self._power(node, left, depth)
        if type(node.op) not in OPERATORS:
            raise self.unexpected(node, "arithmetic by + - * / // % or **")
        apply = OPERATORS[type(node.op)]
        right = self._floats(self._typed(node.right, depth, *_NUMBERS))
        return _Typed("number", lambda t: apply(left(t), right(t)))

    def _power(self, node: ast.BinOp, base: _Function, depth: int) -> _Typed:
        """Accept a number as the exponent, or a positive number as the base: both cases are
        bounded.
        """
        exponent = self._typed(node.right, depth, *_NUMBERS)
        if exponent.constant is not None and abs(exponent.constant) <= MAX_EXPONENT:
            number = float(exponent.constant)
            return _Typed("number", lambda t: power(base(t), number))
        raised = self._floats(exponent)
        if isinstance(node.left, ast.Constant):
            return _Typed("number", lambda t: np.power(base(t), raised(t)))
        raise self.unexpected(
            node, f"an exponent that is a number from -{MAX_EXPONENT} to {MAX_EXPONENT}, or a base "
            "that is a number"
        )  # fmt: skip

    # ------------------------------------------------------------------------------------ functions

    def _called(self, node: ast.Call, name: str, given: list[ast.expr], depth: int) -> _Typed:
        if name in FUNCTIONS and len(given) == 1:
            apply, floats = FUNCTIONS[name], self._floats(self._typed(given[0], depth, *_NUMBERS))
            return _Typed("number", lambda t: apply(floats(t)))
        if name in EXTREMES:
            self.count(len(given) - 1)
            each = [self._floats(self._typed(part, depth, *_NUMBERS)) for part in given]
            join = EXTREMES[name]
            return _Typed("number", lambda t: folded(join, [one(t) for one in each]))
        if name in calendar.FIELDS or name == "date":
            return self._calendar(node, name, given, depth)
        if name == "bucket" and len(given) == 2:
            return self._bucket(given, depth)
        if name == "between" and len(given) == 3:
            value, low, high = given
            chain = ast.Compare(low, [ast.LtE(), ast.LtE()], [value, high])
            return self._compared(ast.copy_location(chain, node), depth)
        if name == "startswith" and len(given) == 2:
            texts, start = self._typed(given[0], depth, "text"), self._text(given[1])
            return _Typed("truth", lambda t: _each(texts.of(t), lambda s: s.startswith(start)))
        if name == "lower" and len(given) == 1:
            texts = self._typed(given[0], depth, "text")
            return _Typed("text", lambda t: _lowered(texts.of(t)))
        if name == "field" and len(given) == 1:
            return self._column(node, self._text(given[0]))
        raise self._unknown_function(node, name, len(given))

    def _unknown_function(self, node: ast.Call, name: str, given: int) -> ParameterError:
        if name in WORDS:
            return self.unexpected(
                node,
                f"{name} as docs/filters-and-groups.md lists it; it is given {given} arguments",
            )
        near = difflib.get_close_matches(name[:100], WORDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(WORDS[: WORDS.index("and")])
        return self.unexpected(node, f"one of {listed}{hint}")

    def _text(self, node: ast.expr) -> str:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            raise self.unexpected(node, "a text in quotes")
        return node.value

    def _clocked(self, node: ast.expr) -> str:
        if self._schema.unit not in NANOSECONDS:
            raise self.unexpected(
                node, f"a stream whose time_unit is one of {', '.join(NANOSECONDS)}; it is "
                f"{self._schema.unit!r}"
            )  # fmt: skip
        return self._schema.unit

    def _calendar(self, node: ast.Call, name: str, given: list[ast.expr], depth: int) -> _Typed:
        time, zone, unit = self._typed(given[0], depth, "time"), None, self._clocked(node)
        if len(given) > 2:
            raise self._unknown_function(node, name, len(given))
        if len(given) == 2:
            zone = self._text(given[1])
            try:
                calendar.check_zone(zone)
            except ParameterError as fault:
                raise self.unexpected(
                    given[1], f"the name of a time zone, such as 'Europe/Paris': {fault}"
                ) from None
        if name == "date":

            def day(table: Table) -> Texts:
                found = calendar.dates(calendar.seconds_of(np.asarray(time.of(table)), unit, zone))
                null = time.null(table)
                codes = found[0] if null is None else np.where(null, -1, found[0])
                return Texts(codes, found[1])

            return _Typed("text", day, within=_days_within(unit) if time.name == "time" else None)
        apply = calendar.FIELDS[name]
        return _Typed(
            "number",
            lambda t: apply(calendar.seconds_of(np.asarray(time.of(t)), unit, zone)),
            time.null,
        )

    def _bucket(self, given: list[ast.expr], depth: int) -> _Typed:
        time, span = self._typed(given[0], depth, "time"), self._span(given[1])

        def beginning(table: Table) -> npt.NDArray[np.int64]:
            times = np.asarray(time.of(table))
            return np.asarray(times // span * span)

        def within(values: Sequence[Any]) -> tuple[Any, Any]:
            first = np.array(values, np.int64)
            return first, first + (span - 1)

        return _Typed("time", beginning, time.null, within=within if time.name == "time" else None)

    def _span(self, node: ast.expr) -> int:
        """Return a time length: a text with a unit, or a number in the stream's unit."""
        wanted = "a whole length of time of 1 or more, such as '15min' or '1h'"
        match node:
            case ast.Constant(value=str() as text):
                try:
                    found = duration(text, self._schema.unit, name="the length")
                except ParameterError as fault:
                    raise self.unexpected(node, f"{wanted}: {fault}") from None
            case ast.Constant(value=int() as found) if not isinstance(found, bool):
                self.number(node)
            case _:
                raise self.unexpected(node, wanted)
        if not isinstance(found, int) or not 1 <= found < 1 << 62:
            raise self.unexpected(node, f"{wanted}; it is {found:g} {self._schema.unit}")
        return found

    # ---------------------------------------------------------------------------------- comparisons

    def _compared(self, node: ast.Compare, depth: int) -> _Typed:
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]):
                return self._null(node.left, depth, isinstance(op, ast.IsNot))
            case ast.Compare(ops=[ast.In() | ast.NotIn() as op], comparators=[listed]):
                return self._among(node, listed, depth, isinstance(op, ast.NotIn))
        self.count(len(node.ops) - 1)
        if any(type(each) not in RELATIONS for each in node.ops):
            raise self.unexpected(node, "a comparison by < <= > >= == != in or is null")
        nodes = [node.left, *node.comparators]
        sides = [self._read(each, depth) for each in nodes]
        sides = self._moments(nodes, sides)
        kinds = {side.kind for side in sides}
        relations = [RELATIONS[type(each)] for each in node.ops]
        if kinds == {"text"} and len(sides) == 2:
            return _text_relation(relations[0], *sides)
        if kinds == {"truth"} and len(sides) == 2 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            return _truth_relation(relations[0], *sides)
        if not kinds <= set(_NUMBERS):
            said = ", ".join(
                f"{self._source(each)} is a {_SAID[side.kind]}"
                for each, side in zip(nodes, sides, strict=True)
            )
            raise self.unexpected(
                node, f"a number compared with numbers, or a text with one text; {said}"
            )
        return _number_relation(relations, sides)

    def _moments(self, nodes: list[ast.expr], sides: list[_Typed]) -> list[_Typed]:
        """Convert dates compared with times, and lengths compared with ages, to numbers in the
        stream's unit.
        """
        times = any(side.kind == "time" for side in sides)
        ages = any(side.name == "age" for side in sides)
        if not (times or ages):
            return sides
        read = instant if times else duration
        return [
            self._moment(node, read, side.constant) if isinstance(side.constant, str) else side
            for node, side in zip(nodes, sides, strict=True)
        ]

    def _moment(self, node: ast.expr, read: Callable[..., Any], text: str) -> _Typed:
        try:
            found = read(text, self._schema.unit, name="the text")
        except ParameterError as fault:
            wanted = (
                "a date with its zone, such as '2026-01-31T12:00Z'"
                if read is instant
                else "a length of time, such as '1h'"
            )
            raise self.unexpected(node, f"{wanted}: {fault}") from None
        return _Typed("number", lambda _t: found, constant=found)

    def _null(self, node: ast.expr, depth: int, there: bool) -> _Typed:
        found = self._read(node, depth)

        def null(table: Table) -> BoolArray:
            of = found.of(table)
            where = found.null(table)
            if isinstance(of, Texts):
                where = of.codes < 0
            elif where is None and np.asarray(of).dtype.kind == "f":
                where = np.isnan(of)
            held = np.zeros(len(table), np.bool_) if where is None else where
            return ~held if there else np.asarray(held)

        return _Typed("truth", null)

    def _among(self, node: ast.Compare, listed: ast.expr, depth: int, without: bool) -> _Typed:
        entries = listed.elts if isinstance(listed, ast.Tuple) else [listed]
        self.count(max(len(entries) - 1, 0))
        found = self._typed(node.left, depth, "number", "time", "text")
        wanted = [self._read(entry, depth).constant for entry in entries]
        texts = found.kind == "text"
        if not wanted or any(isinstance(each, str) is not texts or each is None for each in wanted):
            kind = "a text in quotes" if texts else "a number"
            raise self.unexpected(
                listed, f"{kind}, or several in brackets; {self._source(node.left)} is a "
                f"{found.kind}"
            )  # fmt: skip
        if texts:
            some = frozenset(wanted)
            return _Typed("truth", lambda t: _each(found.of(t), lambda s: (s in some) ^ without))
        relation = RELATIONS[ast.NotEq if without else ast.Eq]
        join = np.logical_and if without else np.logical_or
        each = [_number_relation([relation], [found, _constant(n)]) for n in wanted]
        return _Typed("truth", lambda t: folded(join, [one.of(t) for one in each]))

    # -------------------------------------------------------------------------------- hull of times

    def _hull(self, node: ast.expr) -> _Hull:
        """Return bounds on the times that satisfy a condition. All times, if it is not
        understood.
        """
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                each = [self._hull(part) for part in parts]
                return _Hull(
                    lambda now: max(one.first(now) for one in each),
                    lambda now: min(one.last(now) for one in each),
                )
            case ast.BoolOp(op=ast.Or(), values=parts):
                each = [self._hull(part) for part in parts]
                return _Hull(
                    lambda now: min(one.first(now) for one in each),
                    lambda now: max(one.last(now) for one in each),
                )
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                pairs = [
                    self._pair_hull(a, op, b)
                    for a, op, b in zip(sides, ops, sides[1:], strict=False)
                ]
                return _Hull(
                    lambda now: max(one.first(now) for one in pairs),
                    lambda now: min(one.last(now) for one in pairs),
                )
            case ast.Call(func=ast.Name(id="between"), args=[value, low, high]):
                chain = ast.Compare(low, [ast.LtE(), ast.LtE()], [value, high])
                return self._hull(chain)
        return _ANY_TIME

    def _pair_hull(self, a: ast.expr, op: ast.cmpop, b: ast.expr) -> _Hull:
        flipped: dict[type[ast.cmpop], type[ast.cmpop]] = {
            ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq,
        }  # fmt: skip
        kind = type(op)
        if kind not in flipped:
            return _ANY_TIME
        if not (isinstance(a, ast.Name) and a.id in ("time", "age")):
            a, b, kind = b, a, flipped[kind]
        if not (isinstance(a, ast.Name) and a.id in ("time", "age")):
            return _ANY_TIME
        bound = self._constant(b, instant if a.id == "time" else duration)
        if bound is None:
            return _ANY_TIME
        if a.id == "age":  # a smaller age is a later time
            kind = flipped[kind]
        whole = isinstance(bound, int)
        later = bound + 1 if kind is ast.Gt and whole else bound
        sooner = bound - 1 if kind is ast.Lt and whole else bound
        if a.id == "age":
            later = bound - 1 if kind is ast.Gt and whole else bound
            sooner = bound + 1 if kind is ast.Lt and whole else bound
            return _Hull(
                (lambda now: now - later) if kind in (ast.Gt, ast.GtE, ast.Eq) else _ANY_TIME.first,
                (lambda now: now - sooner) if kind in (ast.Lt, ast.LtE, ast.Eq) else _ANY_TIME.last,
            )
        return _Hull(
            (lambda _now: later) if kind in (ast.Gt, ast.GtE, ast.Eq) else _ANY_TIME.first,
            (lambda _now: sooner) if kind in (ast.Lt, ast.LtE, ast.Eq) else _ANY_TIME.last,
        )

    def _constant(self, node: ast.expr, read: Callable[..., Any]) -> float | None:
        """Return the number that a node contains, or that its date or length converts to. None: the
        node is no constant.
        """
        match node:
            case ast.Constant(value=str() as text):
                found: int | float = read(text, self._schema.unit)
                return found
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._constant(operand, read)
                return None if inner is None else -inner
        return None


# ---------------------------------------------------------------------------------- times of values


def _instants(values: Sequence[Any]) -> tuple[Any, Any]:
    found = np.array(values, np.int64)
    return found, found


def _days_within(unit: str) -> Within:
    """Return bounds for dates: no zone is a day or more away from UTC."""
    day = 86_400 * NANOSECONDS["s"]

    def within(values: Sequence[Any]) -> tuple[Any, Any]:
        days = np.array(values, "datetime64[D]").astype(np.int64)
        size = max(day // NANOSECONDS[unit], 1)
        return (days - 1) * size - 1, (days + 2) * size + 1

    return within


# ------------------------------------------------------------------------------------------ columns


def _constant(number: float) -> _Typed:
    return _Typed("number", lambda _table: number, constant=number)


def _true(column: Column) -> BoolArray:
    """Return where a truth column is true. Null is not."""
    held = np.asarray(column.data, np.bool_)
    return held if column.null is None else held & ~column.null


def _texts_of(column: Column) -> Texts:
    return Texts(column.data, column.texts)


def _each(found: Any, holds: Callable[[str], bool]) -> Any:
    """Evaluate a text condition once per distinct text. Null is false."""
    if isinstance(found, str):
        return holds(found)
    of_text = np.array([*(bool(holds(text)) for text in found.texts), False])
    return of_text[found.codes]  # the last place is that of null, -1


def _lowered(found: Any) -> Any:
    if isinstance(found, str):
        return found.lower()
    texts = [text.lower() for text in found.texts]
    distinct = sorted(set(texts))
    place = {text: k for k, text in enumerate(distinct)}
    number = np.array([*(place[text] for text in texts), -1])
    return Texts(number[found.codes], distinct)


def _text_relation(relation: Callable[[Any, Any], Any], left: _Typed, right: _Typed) -> _Typed:
    def holds(table: Table) -> Any:
        a, b = left.of(table), right.of(table)
        if isinstance(b, str):
            return _each(a, lambda text: _by_place(relation, text, b))
        if isinstance(a, str):
            return _each(b, lambda text: _by_place(relation, a, text))
        every = sorted({*a.texts, *b.texts})
        place = {text: k for k, text in enumerate(every)}
        first, second = (
            np.array([*(place[text] for text in one.texts), -1])[one.codes] for one in (a, b)
        )
        return relation(first, second) & (first >= 0) & (second >= 0)

    return _Typed("truth", holds)


def _by_place(relation: Callable[[Any, Any], Any], a: str, b: str) -> bool:
    """Compare two texts by their ranks in order."""
    return bool(relation(np.int8((a > b) - (a < b)), np.int8(0)))


def _truth_relation(relation: Callable[[Any, Any], Any], left: _Typed, right: _Typed) -> _Typed:
    def holds(table: Table) -> Any:
        found = relation(np.asarray(left.of(table), np.int8), np.asarray(right.of(table), np.int8))
        for side in (left, right):
            if (null := side.null(table)) is not None:
                found = found & ~null
        return found

    return _Typed("truth", holds)


def _number_relation(
    relations: Sequence[Callable[[Any, Any], Any]], sides: Sequence[_Typed]
) -> _Typed:
    """Evaluate a comparison chain. Integer columns and integers are compared unconverted, which
    is exact.
    """

    def holds(table: Table) -> Any:
        numbers = [side.of(table) for side in sides]
        pairs = zip(relations, numbers, numbers[1:], strict=False)
        found = folded(np.logical_and, [relation(a, b) for relation, a, b in pairs])
        for side in sides:
            if (null := side.null(table)) is not None:
                found = found & ~null
        return found

    return _Typed("truth", holds)
