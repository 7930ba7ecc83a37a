"""Query parts: arguments and their domains, and the result's shape.

Code that forwards queries (HTTP, SQL, the command line, the dashboard) reads these. Models, types,
signatures, options and tables in the documentation are derived from them, so that a query is
defined once (:mod:`decaysketch.query.catalog`). This module depends on none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

from decaysketch.errors import ParameterError

__all__ = [
    "REQUIRED",
    "SCALAR",
    "Argument",
    "Column",
    "Combine",
    "Held",
    "Question",
    "Rows",
    "Shape",
    "check_combine",
    "held_of",
]

A = TypeVar("A")

Arguments = Mapping[str, Any]

Combine = Literal["average", "median"]
"""How the results of several hash functions make one, see :mod:`decaysketch.query.ensemble`."""

Held = Literal["rows", "keys", "extremes", "series", "sources"]
"""What a question is asked of: a sample of rows, or what a sketch has in place of one."""

_OWN: tuple[Held, ...] = ("keys", "extremes", "series", "sources")

#: Default of an argument that must be given.
REQUIRED: Any = object()


ServedKind: TypeAlias = Literal[
    "number", "share", "integer", "predicate", "keys", "flag", "sketch", "set", "column"
]
"""Kinds of arguments that another process can give."""

ColumnKind: TypeAlias = Literal["estimate", "number", "float", "time", "integer", "key", "flag"]


@dataclass(frozen=True)
class Argument:
    """A query argument.

    Attributes:
        name: name in Python.
        kind: "number", "share" (in 0..1), "integer", "flag", or one of these. A "predicate" is a
            text over ``v`` and ``w`` (:mod:`decaysketch.core.text.predicate`), or in Python a
            function of their columns. A "function" takes them and does not leave the process.
            "keys" are integers or texts, in Python also bytes or tuples, as ``update`` accepts
            them. A "sketch" is a sketch
            of another stream: in Python itself, elsewhere its substitute. A "set" is an expression
            over sources (:mod:`decaysketch.sources.expression`). A "column" is an expression over
            the columns (:mod:`decaysketch.core.text.expression`).
        doc: a sentence that describes it.
        many: whether it accepts several entries. "either" accepts a single one as well.
        least, most, below: bounds of each entry, if it has any. ``below`` is exclusive.
        fewest, longest: minimum and maximum number of entries.
        default: value if omitted.
        served: the default where results must be bounded, as in a service.
        leading: it precedes the decay.
        json: its name in JSON.
        example: an example that any stream accepts.
    """

    name: str
    kind: ServedKind | Literal["function"]
    doc: str
    many: Literal["no", "yes", "either"] = "no"
    least: float | None = None
    most: float | None = None
    below: float | None = None
    fewest: int = 1
    longest: int = 1000
    default: Any = REQUIRED
    served: Any = REQUIRED
    leading: bool = False
    json: str = ""
    example: Any = None

    def __post_init__(self) -> None:
        if not self.json:
            object.__setattr__(self, "json", self.name)
        if self.served is REQUIRED:
            object.__setattr__(self, "served", self.default)

    @property
    def required(self) -> bool:
        """Whether a query must give it."""
        return self.default is REQUIRED

    @property
    def travels(self) -> bool:
        """Whether another process can give it. For a sketch, its substitute."""
        return self.kind != "function"


@dataclass(frozen=True)
class Column:
    """A named value in a result.

    Attributes:
        name: name in JSON.
        kind: "estimate"; "number" in the type of the stream's values; a plain "float", "time" or
            "integer"; "key", as requested or found; "flag".
        doc: its description, if the name is not enough.
        label: for an estimate in a row, the name of the row, from its other columns.
        sql: its name in SQL.
        nullable: it may be missing.
    """

    name: str
    kind: ColumnKind
    doc: str | None = None
    label: str = ""
    sql: str = ""
    nullable: bool = False

    def __post_init__(self) -> None:
        if not self.sql:
            object.__setattr__(self, "sql", self.name)


@dataclass(frozen=True)
class Rows:
    """A row list in a result.

    Attributes:
        name: name of the list, in JSON.
        row: name of a row's schema.
        doc: description of a row.
        columns: columns of each row.
        each: the argument for which every entry has a row, in order. None if rows are found.
        single: there is at most one row, and no list around it.
    """

    name: str
    row: str
    doc: str
    columns: tuple[Column, ...]
    each: str | None = None
    single: bool = False

    @property
    def keys(self) -> tuple[Column, ...]:
        """Columns that identify a row."""
        return tuple(column for column in self.columns if column.kind != "estimate")

    @property
    def estimates(self) -> tuple[Column, ...]:
        """Columns that are estimated."""
        return tuple(column for column in self.columns if column.kind == "estimate")


@dataclass(frozen=True)
class Shape:
    """Parts of a result: rows, and single columns next to them.

    Attributes:
        name: name of its schema, ``<name>Answer``.
        doc: a sentence that describes it.
        rows: the rows, if there are any.
        beside: single columns.
    """

    name: str
    doc: str
    rows: Rows | None = None
    beside: tuple[Column, ...] = ()


#: One estimate.
SCALAR = Shape("Scalar", "One number.", beside=(Column("estimate", "estimate"),))


@dataclass(frozen=True, eq=False)
class Question(Generic[A]):
    """One aggregate.

    Attributes:
        name: its name, everywhere.
        doc: a sentence that describes it, in Markdown.
        answer: returns the result, from the samples for one decay and time, one for each hash
            function or their pool. Keyword arguments are ``confidence`` and the query's own. For
            keys, extremes and series it reads the view, for sources the view with ``combine``.
        cost_s: approximate processor time to read it from one sample, or such a view, with
            its arguments, ``combine`` among them.
        shape: shape of the result.
        parts: the parts of a result as its shape names them: estimates, numbers and lists of rows.
        arguments: arguments of the query. At most one is leading.
        needs: features that a family must have: "values" of observations in addition to their
            "weights", "numbers" if labels will not do, a "chosen decay", counters of "keys",
            "extremes", a sample of "series", one sketch for each of several "sources".
        check: returns why arguments that are valid by themselves are not valid together, or None.
        most: maximum number of estimates in the result.
        sql: its name in SQL.
        compared: whether it can compare two moments, see :mod:`decaysketch.query.difference`.
        by_group: returns the results for all groups in a sample at once. Keyword arguments are the
            query's own. None if it is computed for one group after the other.
    """

    name: str
    doc: str
    answer: Callable[..., A]
    cost_s: Callable[[Any, Arguments], float]
    shape: Shape
    parts: Callable[[A, Arguments], dict[str, Any]]
    arguments: tuple[Argument, ...] = ()
    needs: frozenset[str] = frozenset()
    check: Callable[[Arguments], str | None] = lambda _arguments: None
    most: Callable[[Arguments], int] = lambda _arguments: 1
    sql: str = ""
    compared: bool = False
    by_group: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not self.sql:
            object.__setattr__(self, "sql", f"decayed_{self.name}")

    @property
    def leading(self) -> Argument | None:
        """The argument before the decay, if there is one."""
        return next((each for each in self.arguments if each.leading), None)

    def check_labels(self, given: Arguments) -> None:
        """Reject a stream whose values are labels.

        Raises:
            ParameterError: the query needs numbers, or an argument does.
        """
        if "numbers" in self.needs:
            raise ParameterError(
                f"{self.name} needs numbers, and these values are texts; query a number column, "
                "or use count, sum, heavy_hitters, group_by, selectivity or last"
            )
        for argument in self.arguments:
            value = given.get(argument.name)
            if argument.kind == "number" and value is not None:
                raise ParameterError(
                    f"{argument.name} is {value!r}, and these values are texts without an order; "
                    "expected a predicate, such as v == 'E42'"
                )

    @property
    def asked_of(self) -> Held:
        """The object that the query reads."""
        return held_of(self.needs)

    @property
    def of_keys(self) -> bool:
        """Whether the query reads key counters instead of row samples."""
        return self.asked_of == "keys"

    def columns(self, given: Arguments) -> list[str]:
        """Return the expressions over columns among its arguments."""
        named = (each.name for each in self.arguments if each.kind == "column")
        return [text for name in named for text in given[name]]

    @property
    def travelling(self) -> Sequence[Argument]:
        """Arguments that another process can give."""
        return [each for each in self.arguments if each.travels]


def held_of(needs: frozenset[str]) -> Held:
    """Return the object that queries with these needs read. If it is none of the others, it is a
    row sample.
    """
    return next((each for each in _OWN if each in needs), "rows")


def check_combine(combine: Combine) -> None:
    """Reject an unknown ``combine``.

    Raises:
        ParameterError: it is not one of :data:`Combine`.
    """
    if combine not in get_args(Combine):
        raise ParameterError(
            f"combine is {combine!r}; expected one of {', '.join(get_args(Combine))}"
        )
