"""The parts of a query: its arguments and their domains, and the shape of its result.

Code that forwards queries (HTTP, SQL, the command line, the dashboard) reads these. Models, types,
signatures, options and tables in the documentation are derived from them, so that a query is
defined once (:mod:`decaysketch.query.catalog`). This module depends on none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from decaysketch.errors import ParameterError

__all__ = [
    "REQUIRED",
    "SCALAR",
    "Argument",
    "Column",
    "Held",
    "Question",
    "Rows",
    "Shape",
    "held_of",
]

A = TypeVar("A")

Arguments = Mapping[str, Any]

Held = Literal["rows", "keys", "extremes", "series", "sources"]
"""What a question is asked of: a sample of rows, or what a sketch has in place of one."""

_OWN: tuple[Held, ...] = ("keys", "extremes", "series", "sources")

#: Default of an argument that must be given.
REQUIRED: Any = object()


@dataclass(frozen=True)
class Argument:
    """What a question is asked with.

    Attributes:
        name: in Python.
        kind: a "number", a "share" (of 0..1), an "integer"; a "predicate", a text over ``v`` and
            ``w`` (:mod:`decaysketch.core.text.predicate`), or in Python a function of their
            columns; a "function" of them, which does not leave the process; "keys", each an integer
            or a text, in Python also bytes or a tuple, and all as ``update`` takes them; a "flag";
            or a "sketch" of another stream, in Python itself, elsewhere whatever stands for it
            there; a "set" expression over sources (:mod:`decaysketch.sources.expression`).
        doc: what it is, a sentence.
        many: whether several may be given; "either" takes one as well.
        least, most, below: bounds of each, where it has such; ``below`` is not one of them.
        fewest, longest: how many may be given.
        default: what it is where it is left out.
        served: the default where answers have to be bounded, as those of a service.
        leading: it stands before the decay.
        json: its name in JSON.
        example: one that any stream can be asked with.
    """

    name: str
    kind: Literal[
        "number", "share", "integer", "predicate", "function", "keys", "flag", "sketch", "set"
    ]
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
        """Whether it must be given."""
        return self.default is REQUIRED

    @property
    def travels(self) -> bool:
        """Whether another process can give it. For a sketch, its substitute."""
        return self.kind != "function"


@dataclass(frozen=True)
class Column:
    """A named part of an answer.

    Attributes:
        name: in JSON.
        kind: an "estimate"; a "number" in the type of the stream's values; a plain "float", "time"
            or "integer"; a "key", as it was asked for or found; a "flag".
        doc: what it is, where the name does not say so.
        label: of an estimate in a row: how the row is named, of its other columns.
        sql: its name in SQL.
        nullable: it may be missing.
    """

    name: str
    kind: Literal["estimate", "number", "float", "time", "integer", "key", "flag"]
    doc: str | None = None
    label: str = ""
    sql: str = ""
    nullable: bool = False

    def __post_init__(self) -> None:
        if not self.sql:
            object.__setattr__(self, "sql", self.name)


@dataclass(frozen=True)
class Rows:
    """A part of an answer that is a list of rows.

    Attributes:
        name: of the list, in JSON.
        row: name of a row's schema.
        doc: what a row is.
        columns: of each row.
        each: the argument of which every entry has a row, in order; None where rows are found.
        single: there is at most one row, which stands for itself.
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
    """The parts of an answer: rows, and what stands beside them.

    Attributes:
        name: of its schema, ``<name>Answer``.
        doc: what it is, a sentence.
        rows: where there are such.
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
        name: of it, everywhere.
        doc: what it is, a sentence; in the words of Markdown.
        answer: the answer, from the samples of one decay and time, one for each hash function or
            their pool; keyword arguments are ``confidence``, ``combine`` and those of the question.
            Of keys, extremes and series: from the view, without ``combine``.
        cost_s: about so long the processor needs to read it from one sample, or such a view, with
            its arguments, ``combine`` among them.
        shape: of the answer.
        parts: the parts of an answer as its shape names them: estimates, numbers and lists of rows.
        arguments: what it is asked with; one of them at most is leading.
        needs: what a family must provide to be asked: "values" of observations, apart from their
            "weights", and whether these must be "numbers", as those of a stream of labels are not;
            a "chosen decay"; counters of "keys"; "extremes"; a sample of "series"; one
            sketch for each of several "sources".
        check: why arguments that are each in their domain are none together, or None.
        most: so many estimates may the answer hold.
        sql: its name in SQL.
        compared: whether two moments can be compared by it, see
            :mod:`decaysketch.query.difference`.
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

    def __post_init__(self) -> None:
        if not self.sql:
            object.__setattr__(self, "sql", f"decayed_{self.name}")

    @property
    def leading(self) -> Argument | None:
        """The argument before the decay, where there is one."""
        return next((each for each in self.arguments if each.leading), None)

    def check_labels(self, given: Arguments) -> None:
        """Reject a stream whose values are labels.

        Raises:
            ParameterError: the query needs numbers, or an argument does.
        """
        if "numbers" in self.needs:
            raise ParameterError(
                f"{self.name} is of numbers, and the values of this stream are labels; ask for "
                "count, sum, heavy_hitters, group_by, selectivity or last"
            )
        for argument in self.arguments:
            value = given.get(argument.name)
            if argument.kind == "number" and value is not None:
                raise ParameterError(
                    f"{argument.name} is {value!r}, and the values of this stream are labels, "
                    "which have no order; expected a predicate, such as v == 'E42'"
                )

    @property
    def asked_of(self) -> Held:
        """The object that the query reads."""
        return held_of(self.needs)

    @property
    def of_keys(self) -> bool:
        """Whether the query reads counters of keys, not samples of rows."""
        return self.asked_of == "keys"

    @property
    def travelling(self) -> Sequence[Argument]:
        """Arguments that another process can give."""
        return [each for each in self.arguments if each.travels]


def held_of(needs: frozenset[str]) -> Held:
    """Return the object that queries with these needs read. If it is none of the others, it is a
    sample of rows.
    """
    return next((each for each in _OWN if each in needs), "rows")
