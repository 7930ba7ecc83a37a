"""The possible queries: a model for each query in :data:`QUESTIONS`.

A query names its aggregate, its decay and its time or times. Nothing is declared beforehand. The
library's definition sets its arguments, their types and domains, its cost and its result. This
module defines no aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, Union

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from api.queries.answers import GroupedAnswer, PointAnswer
from api.queries.decays import AnyDecay, AnyNumber
from api.schemas import MAX_KEY_PARTS, RequestModel, SourceText
from decaysketch import Snapshot
from decaysketch.core.hashing import MAX_KEY_BYTES
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.text.expression import MAX_EXPRESSION
from decaysketch.core.text.grammar import MAX_TEXT, split_commas
from decaysketch.core.time_units import duration, instant
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.query.catalog import QUESTIONS, View
from decaysketch.query.difference import Comparison
from decaysketch.query.dispatch import check_compared
from decaysketch.query.modifiers import MAX_GROUPS, MAX_KEYS, SOURCE_KEYS, Modifiers, Order
from decaysketch.query.pair_view import PairView, RangeView, range_moment
from decaysketch.query.query_syntax import query_of
from decaysketch.query.shapes import REQUIRED, SCALAR, Argument, Combine, Question
from decaysketch.query.tables import GroupTable
from decaysketch.sources import CoverageView

__all__ = [
    "MOST_QUERIES",
    "MOST_TIMES",
    "AnyQuery",
    "GroupRequest",
    "Query",
    "QueryRequest",
    "Time",
    "Times",
    "spelled_out",
]

Time = Annotated[int, Field(ge=-TIME_LIMIT, le=TIME_LIMIT)]
StreamText = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]

QueryName = Annotated[str, Field(min_length=1, max_length=100)]

MOST_QUERIES = 2000
"""Maximum queries in a request. The setting ``max_queries`` is at most this."""

MOST_TIMES = 10_000
"""Maximum times in a list. The setting ``max_points`` is at most this."""

_MOST_SOURCES = 1000


class Range(RequestModel):
    """`start`, `start + step`, ... up to `stop`. It includes `stop` if a step meets it."""

    start: Time
    stop: Time
    step: int = Field(ge=1)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.stop < self.start:
            raise PydanticCustomError(
                "no_range",
                "stop is {stop}, before start, {start}",
                {"stop": self.stop, "start": self.start},
            )
        return self

    @property
    def count(self) -> int:
        """Return the number of times."""
        return (self.stop - self.start) // self.step + 1


Times = Annotated[
    Annotated[list[Time], Field(min_length=1, max_length=MOST_TIMES, fail_fast=True), Tag("list")]
    | Annotated[Range, Tag("range")],
    Discriminator(lambda times: "list" if isinstance(times, list) else "range"),
]


_INTEGER, _LENGTH, _DATE = "integer", "length of time", "date"

Moment = Annotated[
    Annotated[Time, Tag(_INTEGER)]
    | Annotated[str, Field(max_length=40, examples=["2026-01-31T12:00:00Z"]), Tag(_DATE)],
    Discriminator(lambda moment: _DATE if isinstance(moment, str) else _INTEGER),
]
"""A time, or a date with its zone. The date is read once the stream's unit is known."""

Ago = Annotated[
    Annotated[int, Field(ge=0, le=TIME_LIMIT), Tag(_INTEGER)]
    | Annotated[str, Field(max_length=100, examples=["1h30m", "90s"]), Tag(_LENGTH)],
    Discriminator(lambda ago: _LENGTH if isinstance(ago, str) else _INTEGER),
]
"""A length, such as 2h. It is read once the stream's unit is known."""


_Expression = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION)]
_Set = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
_SourceName = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
_Length = Annotated[
    Annotated[int, Field(ge=0, le=TIME_LIMIT), Tag("integer")]
    | Annotated[str, Field(min_length=1, max_length=40), Tag("length of time")],
    Discriminator(lambda length: "length of time" if isinstance(length, str) else "integer"),
]


class Versus(RequestModel):
    """The other side of a comparison: the same aggregate at another time."""

    now: Moment | None = Field(default=None, description="The other time. Or give `ago`.")
    ago: Ago | None = Field(
        default=None,
        description="Time before the query time: `1h`, or an integer in the stream's `time_unit`.",
    )
    decay: AnyDecay | None = Field(
        default=None, description="Another decay. Default: the decay of the query."
    )
    where: _Expression | None = Field(
        default=None,
        description="Compare with other rows, instead of another time or in addition: the rows "
        "for which this condition holds. Default: the `where` of the query.",
        examples=["v <= 3"],
    )

    @property
    def is_of_rows(self) -> bool:
        """Return whether it is of other rows at the same moment."""
        return self.now is None and self.ago is None and self.decay is None

    @model_validator(mode="after")
    def _is_one_moment(self) -> Self:
        given = [self.now, self.ago].count(None)
        if given == 0 or (given == 2 and self.where is None):
            raise PydanticCustomError("no_moment", "give now, ago or where")
        return self

    def moment(self, time_unit: str) -> Callable[[int], int]:
        """Return a function that gives the moment for a query time.

        Args:
            time_unit: the stream's unit.

        Raises:
            ParameterError: `now` is no date with its zone, or `ago` is no length of time in whole
                units.
        """
        if self.now is not None:
            then = instant(self.now, time_unit, name="now")
            return lambda _: then
        if self.ago is None:  # other rows at the same time
            return lambda now: now
        ago = duration(self.ago, time_unit, name="ago")
        if not isinstance(ago, int) or ago > TIME_LIMIT:
            raise ParameterError(
                f"ago is {self.ago!r}, {ago} {time_unit}; expected a whole number of {time_unit}, "
                "at most 2^62"
            )
        return lambda now: max(now - ago, -TIME_LIMIT)


_COLUMNS = "`v` (the value), `w` (the weight), `time` and `age`"

MOST_GROUPS = 100
"""Groups in a result, if the query names no number."""


class Modified(RequestModel):
    """Row modifiers before the aggregate: filter, column, weight and groups."""

    where: _Expression | None = Field(
        default=None,
        description=f"Only rows that satisfy this condition over {_COLUMNS}.",
        examples=["v > 3 and hour(time, 'Europe/Paris') == 9"],
    )
    of: _Expression | None = Field(
        default=None,
        description="The aggregated expression over the columns. Default: `v`.",
        examples=["v * 2"],
    )
    weight: _Expression | None = Field(
        default=None,
        description="An expression for a number of 0 or more. It multiplies the decay weight of "
        "each row.",
        examples=["exp(-v)"],
    )
    set: _Set | None = Field(
        default=None,
        description="Only messages in this source set: names, quoted unless they are "
        "identifiers, `&`, `|`, `-`, `~`, `any`, `all`, `exactly(j)`, `at_least(j)`. With "
        "`streams`, names are streams.",
        examples=['"gw-1" - "gw-2"'],
    )
    by: list[_Expression] = Field(
        default=[],
        max_length=MAX_KEYS,
        description="Groups: an expression over the columns for each key. Or `source` (a group "
        "for each source, with every message that it heard), `source` and `other` "
        "(pairs), `hearers` (the number of sources that heard a message). The "
        "intervals of all groups hold at once.",
        examples=[["bucket(time, '15min')"]],
    )
    groups: int | None = Field(
        default=None,
        ge=1,
        le=MAX_GROUPS,
        description=f"With `by`: maximum number of groups. Default: {MOST_GROUPS}.",
    )
    order: Order = Field(
        default="largest",
        description="With `by`: order of the groups, by the largest or the smallest result, or "
        "by key. The first `limit` groups are listed.",
    )

    @property
    def modifiers(self) -> Modifiers:
        """Return the modifiers as library objects."""
        groups = self.groups if self.groups is not None or not self.by else MOST_GROUPS
        found = Modifiers(
            self.of, tuple(self.by), self.where, self.weight, groups, self.order, self.set
        )
        versus = getattr(self, "versus", None)
        if versus is None or not versus.is_of_rows:
            return found
        return replace(found, versus=versus.where, how=getattr(self, "how", "difference"))

    @property
    def at_another_moment(self) -> bool:
        """Return whether it compares two moments."""
        versus = getattr(self, "versus", None)
        return versus is not None and not versus.is_of_rows

    @property
    def sets(self) -> dict[str, str]:
        """Return set expressions by JSON field."""
        given = {name: getattr(self, name, None) for name in ("set", "among")}
        return {name: text for name, text in given.items() if text is not None}

    @property
    def expressions(self) -> dict[str, str]:
        """Return texts by their place in JSON."""
        given = {name: getattr(self, name) for name in ("where", "of", "weight")}
        keys = {f"by[{place}]": key for place, key in enumerate(self.by)}
        given |= {place: key for place, key in keys.items() if key not in SOURCE_KEYS}
        if (versus := getattr(self, "versus", None)) is not None:
            given["versus.where"] = versus.where
        given |= {f"columns[{place}]": text for place, text in enumerate(self._columns)}
        return {name: text for name, text in given.items() if text is not None}

    @property
    def _columns(self) -> list[str]:
        """Return the columns of a query about several."""
        return list(getattr(self, "columns", ()))

    @model_validator(mode="before")
    @classmethod
    def _one_key_is_a_list(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("by"), str):
            return fields | {"by": [key.strip() for key in split_commas(fields["by"])]}
        return fields


class Query(Modified):
    """Base of all queries, with their common fields."""

    aggregate: str
    name: QueryName | None = Field(
        default=None, description="Name of its rows in a table. Default: the aggregate."
    )
    decay: AnyDecay | None = Field(
        default=None,
        description="Required, except for a stream with a fixed decay. Omit it there.",
    )
    now: Moment | None = Field(
        default=None,
        description="Query time, in the stream's `time_unit` or as a date with its zone. A past "
        "time gives the result as of then: later observations are not counted. "
        "Default: the server's clock, if the unit has one.",
    )
    times: Times | None = Field(
        default=None,
        description="Several times instead of `now`, as a list or as a range, for a time series.",
    )
    start: Moment | None = Field(
        default=None,
        alias="from",
        description="With `to`, replaces decay and time: all observations from this time, before "
        "`to`.",
    )
    stop: Moment | None = Field(default=None, alias="to", description="See `from`.")
    versus: Versus | None = Field(
        default=None,
        description="Compare the result with the result at another time, or with the result for "
        "other rows. The estimate is then the difference or the ratio. For count, "
        "rate, sum, total, mean and rank.",
    )
    how: Comparison = Field(
        default="difference",
        description="With `versus`: this minus that, or this divided by that (for values that "
        "are not negative).",
    )
    confidence: float = Field(default=0.95, gt=0, lt=1, description="Confidence of the intervals.")
    combine: Combine = Field(
        default="average",
        description="Rule to combine the results of several hash functions (`copies`).",
    )
    guard: _Length = Field(
        default="auto",
        description="With `set` and groups by source: bound on the time difference between "
        "duplicates of a message, in the stream's unit or such as `2s`. `auto`: "
        "twice the largest observed difference. `unbounded`: no bound.",
    )
    settle: _Length | None = Field(
        default=None,
        description="With `set` and groups by source: query this time ago, so that late posts "
        "are included. Default: the largest usual gap of a source that is not "
        "silent, plus its delay behind other sources.",
    )
    without_silence: bool = Field(
        default=False,
        description="With `set` and groups by source: skip periods in which a source heard "
        "nothing.",
    )
    values_from: _SourceName | None = Field(
        default=None,
        description="With `set` and groups by source: read the values that this source reported. "
        "A message that it did not hear has no value. Default: the value of the "
        "latest duplicate.",
    )

    @model_validator(mode="after")
    def _one_kind_of_time(self) -> Self:
        if self.now is not None and self.times is not None:
            raise PydanticCustomError("two_times", "give now or times, not both")
        return self

    @property
    def point_count(self) -> int:
        """Return the number of query times."""
        if isinstance(self.times, Range):
            return self.times.count
        return 1 if self.times is None else len(self.times)

    @property
    def is_of_now(self) -> bool:
        """Return whether it names no time."""
        return self.now is None and self.times is None and self.start is None

    @property
    def points(self) -> Sequence[int] | None:
        """Return the times of a series. None for a query at one time."""
        if isinstance(self.times, Range):
            return range(self.times.start, self.times.stop + 1, self.times.step)
        return self.times

    @model_validator(mode="before")
    @classmethod
    def _one_is_a_list(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and (name := fields.get("aggregate")) in QUESTIONS:
            for each in QUESTIONS[name].arguments:
                kinds = (int, str) if each.kind == "keys" else (int, float)
                if each.many == "either" and isinstance(fields.get(each.json), kinds):
                    fields = fields | {each.json: [fields[each.json]]}
        return fields

    @model_validator(mode="before")
    @classmethod
    def _range_is_a_window(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or not {"from", "to"} & fields.keys():
            return fields
        excluded = {"decay", "now", "times", "versus"}
        if isinstance(versus := fields.get("versus"), dict) and versus.keys() == {"where"}:
            excluded.remove("versus")
        if beside := excluded & fields.keys():
            raise PydanticCustomError(
                "range_and_more",
                "from and to select the observations: omit {beside}",
                {"beside": ", ".join(sorted(beside))},
            )
        start: Any = fields.get("from")
        stop: Any = fields.get("to")
        if isinstance(start, str) or isinstance(stop, str):
            if None in (start, stop):
                raise PydanticCustomError("half_range", "give both from and to")
            return fields  # and see :meth:`at`
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in (start, stop))
        if not (whole and start < stop):
            raise PydanticCustomError(
                "no_range",
                "from is {start} and to is {stop}; expected two times, rising",
                {"start": start, "stop": stop},
            )
        width, now = range_moment(start, stop)
        return fields | {"decay": {"kind": "window", "width": width}, "now": now}

    @model_validator(mode="after")
    def _is_compared_by_what_can_be(self) -> Self:
        if self.versus is None:
            if "how" in self.model_fields_set:
                raise PydanticCustomError("how_alone", "how needs versus, which is missing")
            return self
        try:
            check_compared(self.question)
        except ParameterError as error:
            raise PydanticCustomError("compared", "{fault}", {"fault": str(error)}) from None
        return self

    @property
    def dates(self) -> dict[str, str]:
        """Return times that are dates, by their JSON names."""
        given = {"now": self.now, "from": self.start, "to": self.stop}
        return {name: each for name, each in given.items() if isinstance(each, str)}

    def at(self, moments: Mapping[str, int]) -> Self:
        """Return the same query, with each date as a number in the stream's unit.

        Raises:
            ParameterError: a range contains no time.
        """
        start, stop = moments.get("from", self.start), moments.get("to", self.stop)
        if isinstance(start, int) and isinstance(stop, int) and start >= stop:
            raise ParameterError(
                f"from is {self.start!r} and to is {self.stop!r}; expected two times, rising"
            )
        fields = self.model_dump(by_alias=True, exclude_unset=True)
        return type(self).model_validate(fields | dict(moments))

    @property
    def decays(self) -> list[AnyDecay]:
        """Return all decays that it names."""
        named = [self.decay, None if self.versus is None else self.versus.decay]
        return [decay for decay in named if decay is not None]

    @model_validator(mode="after")
    def _arguments_agree(self) -> Self:
        fault = QUESTIONS[self.aggregate].check(self.arguments)
        if not fault:
            try:
                self.modifiers.check(self.question)
                if self.at_another_moment and (self.by or self.weight):
                    fault = "a comparison of two times has no by or weight: omit them"
            except ParameterError as error:
                fault = str(error)
        if fault:
            raise PydanticCustomError("arguments", "{fault}", {"fault": fault})
        return self

    @property
    def of_sources(self) -> bool:
        """Return whether it reads a sketch per source, not their join."""
        return self.modifiers.of_sources or self.question.asked_of == "sources"

    @model_validator(mode="after")
    def _asks_of_sources(self) -> Self:
        own = {each.json for each in self.question.travelling}  # increase has a guard of its own
        ways = {"guard", "settle", "without_silence", "values_from"}
        named = (ways & self.model_fields_set) - own
        if named and not self.of_sources:
            raise PydanticCustomError(
                "no_sources",
                "{named} needs a query with set, or by source: add one, or omit it",
                {"named": ", ".join(sorted(named))},
            )
        return self

    @property
    def question(self) -> Question[Any]:
        """Return the question. For a column sum it is the total."""
        named = self.aggregate == "sum" and self.of is not None
        return QUESTIONS["total" if named else self.aggregate]

    @property
    def arguments(self) -> dict[str, Any]:
        """Return its arguments. For another stream's sketch, the argument is the stream's name."""
        given = {}
        for each in self.question.travelling:
            value = getattr(self, each.json)
            given[each.name] = _tuples(value) if each.kind == "keys" else value
        return given

    @property
    def others(self) -> dict[str, str]:
        """Return the stream names among the arguments, by the arguments' JSON names."""
        return {
            each.json: getattr(self, each.json)
            for each in self.question.travelling
            if each.kind == "sketch"
        }

    @property
    def predicates(self) -> dict[str, str]:
        """Return the texts among the arguments, by their JSON names."""
        texts = {
            each.json: getattr(self, each.json)
            for each in self.question.travelling
            if each.kind == "predicate"
        }
        return {name: text for name, text in texts.items() if text is not None}

    @property
    def estimates(self) -> int:
        """Return the maximum number of estimates in one result."""
        groups = self.modifiers.limit if self.by else 1
        return self.question.most(self.arguments) * (groups or 1)

    def prepared(self, view: View) -> Any:
        """Return the question with modifiers."""
        if isinstance(self.start, int) and isinstance(self.stop, int):
            view = RangeView(view, self.stop - self.start)
        return view.modified(self.modifiers)

    def work_s(self, prepared: Any, others: Mapping[str, Snapshot]) -> float:
        """Return the estimated CPU seconds for the result. Arguments as in :meth:`read`."""
        arguments = self._with(others)
        cost: float = prepared.cost_s(self.question, combine=self.combine, **arguments)
        return cost

    def _with(self, others: Mapping[str, Snapshot]) -> dict[str, Any]:
        """Return the arguments, with sketches in place of stream names."""
        sketches = {name: others[self.arguments[name]] for name in self.others}
        return self.arguments | sketches

    def read(self, view: View, prepared: Any, others: Mapping[str, Snapshot]) -> PointAnswer:
        """Return the result at a view's time.

        Args:
            view: the queried view.
            prepared: the question with modifiers.
            others: sketches for the stream names in the arguments, by name.
        """
        arguments = self._with(others)
        found = prepared.ask(
            self.question, confidence=self.confidence, combine=self.combine, **arguments
        )
        if isinstance(found, GroupTable):
            return GroupedAnswer.of_table(found, view)
        answer: PointAnswer = PointAnswer.of(self.question, found, arguments, view)
        return answer

    def compare_sources(self, view: CoverageView, then: tuple[Decay, int]) -> PointAnswer:
        """Compare the result from source sketches with the result at another moment."""
        if self.question.asked_of != "sources":
            return self.compare(view.against(then, self.set or "any"), view)
        if self.how != "difference":
            raise ParameterError(f"how is {self.how!r}; expected 'difference' for {self.aggregate}")
        found = view.versus(
            self.set or "any", self.arguments["among"], then=then, confidence=self.confidence,
            combine=self.combine,
        )  # fmt: skip
        answer: PointAnswer = PointAnswer.of(self.question, found, self.arguments, view)
        return answer

    def compare(self, pair: PairView, view: View) -> PointAnswer:
        """Compare the result at a view's time with the result at another moment."""
        found = pair.ask(
            self.question, self.how, confidence=self.confidence, combine=self.combine,
            where=self.where, versus=None if self.versus is None else self.versus.where,
            of=self.of, **self.arguments,
        )  # fmt: skip
        answer: PointAnswer = PointAnswer.of(self.question, found, self.arguments, view)
        return answer


_KeyPart = (
    Annotated[int, Field(strict=True, ge=-(1 << 63), lt=1 << 64)]
    | Annotated[str, Field(min_length=1, max_length=MAX_KEY_BYTES)]
)
_AnyKey = _KeyPart | Annotated[list[_KeyPart], Field(min_length=1, max_length=MAX_KEY_PARTS)]


def _tuples(keys: Sequence[Any]) -> list[Any]:
    """Return keys as the library has them: keys with several parts are tuples."""
    return [tuple(key) if isinstance(key, list) else key for key in keys]


def _field(argument: Argument) -> Any:
    """Return the request field for an argument: type, domain and default."""
    bounds = {"ge": argument.least, "le": argument.most, "lt": argument.below}
    kinds: dict[str, Any] = {
        "number": AnyNumber, "share": float, "integer": int, "predicate": str, "keys": _AnyKey,
        "flag": bool, "sketch": StreamText, "set": _Set, "column": _Expression,
    }  # fmt: skip
    bounded: dict[str, Any] = {name: each for name, each in bounds.items() if each is not None}
    kind: Any = kinds[argument.kind]
    more: dict[str, Any] = {"description": argument.doc}
    if argument.kind == "predicate":
        more |= {"max_length": argument.longest, "examples": [argument.example]}
    if argument.many != "no":
        kind = list.__class_getitem__(Annotated[kind, Field(**bounded)] if bounded else kind)
        more |= {"min_length": argument.fewest, "max_length": argument.longest, "fail_fast": True}
    else:
        more |= bounded
    if argument.served is None:
        kind = kind | None
    default = ... if argument.served is REQUIRED else argument.served
    return Annotated[kind, Field(**more)], default


def _model(name: str, doc: str, names: tuple[str, ...], arguments: Iterable[Argument]) -> Any:
    literal: Any = Literal[names]
    return create_model(
        f"{name}Query",
        __base__=Query,
        __doc__=doc,
        __module__=__name__,
        aggregate=(literal, ...),
        **{each.json: _field(each) for each in arguments},
    )


def _models() -> Iterator[Any]:
    """Return the query models: one for all questions without arguments and with a single number
    as result, one for questions about keys, and one for each other question.
    """
    plain: dict[str, dict[str, str]] = {"Scalar": {}, "KeyScalar": {}}
    for name, each in QUESTIONS.items():
        if each.shape is SCALAR and not each.travelling:
            plain["KeyScalar" if each.of_keys else "Scalar"][name] = each.doc
    for model, named in plain.items():
        doc = "\n\n".join(f"`{name}`: {text}" for name, text in named.items())
        yield _model(model, doc, tuple(named), ())
    for name, each in QUESTIONS.items():
        if not any(name in named for named in plain.values()):
            camel = name.title().replace("_", "")
            yield _model(camel, each.doc, (name,), each.travelling)


_AnyQuery: Any = Annotated[Union[*_models()], Field(discriminator="aggregate")]
if TYPE_CHECKING:
    AnyQuery: TypeAlias = Query
else:
    AnyQuery = _AnyQuery

_EXAMPLE: JsonDict = {
    "queries": [
        {
            "aggregate": "mean",
            "decay": {"kind": "exponential", "half_life": 60_000_000},
            "now": 1_700_000_000_000_000,
        },
        {
            "aggregate": "quantile",
            "q": [0.5, 0.99],
            "decay": {"kind": "window", "width": 3_600_000_000},
            "times": {
                "start": 1_700_000_000_000_000,
                "stop": 1_700_000_600_000_000,
                "step": 60_000_000,
            },
        },
        {
            "aggregate": "heavy_hitters",
            "phi": 0.02,
            "decay": {"kind": "polynomial", "exponent": 1.5, "scale": 60_000_000},
            "confidence": 0.9,
        },
        {
            "aggregate": "selectivity",
            "predicate": "v > 30 and w >= 2",
            "decay": {"kind": "window", "width": 3_600_000_000},
        },
    ]
}


def spelled_out(fields: Any) -> Any:
    """Return a query's fields. The text in ``ask`` contains aggregate, arguments and modifiers.

    Raises:
        PydanticCustomError: the text cannot be read, or repeats a field.
    """
    if not isinstance(fields, dict) or "ask" not in fields:
        return fields
    rest = {name: value for name, value in fields.items() if name != "ask"}
    try:
        question, arguments, modifiers = query_of(fields["ask"])
    except ParameterError as error:
        raise PydanticCustomError("ask", "ask: {fault}", {"fault": str(error)}) from None
    named = {argument.name: argument.json for argument in question.arguments}
    said: dict[str, Any] = {"aggregate": question.name} | modifiers.to_dict()
    if "limit" in said:
        said["groups"] = said.pop("limit")
    if "versus" in said:
        said["versus"] = {"where": said["versus"]}
    for name, value in arguments.items():
        said[named[name]] = getattr(value, "text", value)
    if both := sorted(said.keys() & rest.keys()):
        raise PydanticCustomError(
            "ask_twice", "ask contains {both}, too: omit one of them", {"both": ", ".join(both)}
        )
    return said | rest


class _Request(RequestModel):
    @model_validator(mode="before")
    @classmethod
    def _asks_are_spelled_out(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("queries"), list):
            return fields | {"queries": [spelled_out(each) for each in fields["queries"]]}
        return fields

    @model_validator(mode="before")
    @classmethod
    def _is_no_bare_query(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "aggregate" in fields and "queries" not in fields:
            raise PydanticCustomError(
                "bare_query", 'is one query; expected a list of them: {"queries": [{...}]}'
            )
        return fields

    queries: list[AnyQuery] = Field(min_length=1, max_length=MOST_QUERIES)
    sources: list[SourceText] | None = Field(
        default=None,
        min_length=1,
        max_length=_MOST_SOURCES,
        fail_fast=True,
        description="Query these sources alone instead of all.",
    )
    after: str | None = Field(
        default=None,
        max_length=200,
        description="The `token` of a post. The server waits until the queried content includes "
        "the post.",
    )

    @property
    def others(self) -> set[str]:
        """Return the names of other streams that queries compare with."""
        return {name for each in self.queries for name in each.others.values()}


class QueryRequest(_Request):
    """Queries that all read one sketch."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})


class GroupRequest(_Request):
    """Queries to the join of several streams."""

    streams: list[StreamText] = Field(
        min_length=1,
        max_length=100,
        fail_fast=True,
        description="All must have one family and equal parameters. Capacities may differ, and "
        "the smallest applies.",
        examples=[["ward-7", "ward-8"]],
    )
