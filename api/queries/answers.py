"""Results in a response: a model for each result shape in :data:`QUESTIONS`.

A request names the form of its response in the ``Accept`` header or the URL. A cache keeps results,
and drops the least recently used ones for others.

A result depends on the sketch (its digest), the queries and the query time. Its name contains
nothing else, and never means another result. So no cached result is ever out of date, and the name
is a strong entity tag.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, Union

from pydantic import BaseModel, ConfigDict, Field, create_model

import decaysketch
from decaysketch.query.catalog import QUESTIONS, View
from decaysketch.query.estimate import CAVEATS, Estimate
from decaysketch.query.shapes import Column, Question, Shape
from decaysketch.query.tables import GroupTable

__all__ = [
    "AnswerCache",
    "EstimateModel",
    "Form",
    "GroupResponse",
    "GroupedAnswer",
    "PointAnswer",
    "QueryResponse",
    "SeriesAnswer",
    "etag",
    "is_known",
    "media_type_of",
    "preferred",
    "tag_of",
]


class EstimateModel(BaseModel):
    """An estimate and its interval. A number that is not finite is null, because JSON has no
    infinity.
    """

    value: float | None = Field(description="The estimate. Null if there is none.")
    lower: float | None = Field(description="Lower bound of the interval.")
    upper: float | None = Field(description="Upper bound of the interval.")
    stderr: float | None = Field(description="Standard error.")
    confidence: float = Field(description="Probability that the interval contains the true value.")
    exact: bool = Field(description="No sampling error: the value is exact.")
    rows: int = Field(description="Number of retained observations behind the estimate.")
    collision_bias: float | None = Field(
        description="Share of observations lost to collisions, if ids are hashed keys (expected)."
    )
    sure_upper: float | None = Field(
        default=None,
        exclude_if=lambda end: end is None,
        description="A guaranteed upper bound. Absent if there is none.",
    )
    changed: bool | None = Field(
        default=None,
        exclude_if=lambda changed: changed is None,
        description="For a comparison: 0, or 1 for a ratio, lies outside the interval. Absent "
        "otherwise.",
    )
    caveats: list[str] = Field(
        default_factory=list,
        exclude_if=lambda caveats: not caveats,
        description="Reasons to trust the interval less than it states, or for a missing bound. "
        "Absent if there are none. "
        + " ".join(f"`{name}`: {meaning}." for name, meaning in CAVEATS.items()),
    )

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        return cls(**estimate.to_dict())


class PointAnswer(BaseModel):
    """Base of results at one time: a model for each result shape."""

    now: int = Field(description="Query time.")
    verified: Literal["proof", "grid"] = Field(
        default="proof",
        description="Evidence that the decay never rises: proved, or checked on a grid of ages.",
    )
    aggregate: str

    @staticmethod
    def of(question: Question[Any], found: Any, arguments: Mapping[str, Any], view: View) -> Any:
        """Convert a result from the library.

        Args:
            question: the query.
            found: the result.
            arguments: the query's arguments.
            view: the queried view.
        """
        parts = question.parts(found, arguments)
        rows = question.shape.rows
        if rows is not None:
            listed = [_estimates_of(rows.columns, row) for row in parts[rows.name]]
            parts[rows.name] = next(iter(listed), None) if rows.single else listed
        parts = _estimates_of(question.shape.beside, parts)
        model = _MODELS[question.shape.name]
        return model(aggregate=question.name, now=view.now, verified=view.verified, **parts)


_Key = bool | int | float | str | None


class GroupRowModel(BaseModel):
    """A group: its keys, and the fields that the aggregate has without groups."""

    model_config = ConfigDict(extra="allow")

    by: dict[str, _Key] = Field(description="The value of each key. Null is a separate group.")
    rows: int = Field(description="Retained rows of the group.")
    small: bool = Field(
        description="Fewer than 20 retained rows, and not exact: use the interval, not the value."
    )
    certain: bool | None = Field(
        default=None,
        exclude_if=lambda certain: certain is None,
        description="With the stated confidence, no unlisted group is larger, seen or not. "
        "Absent if unknown.",
    )


class GroupedAnswer(PointAnswer):
    """A result per group. The intervals of all groups hold at once."""

    by: list[str] = Field(description="Expressions of the keys.")
    kinds: list[Literal["number", "truth", "time", "text"]] = Field(
        description="Their types. A time is an integer in the stream's `time_unit`."
    )
    groups: list[GroupRowModel]
    total_groups: int = Field(description="Groups with a retained row, listed or not.")
    unseen_at_most: float | None = Field(
        description="With the stated confidence, no group without a retained row has a larger "
        "decayed count. For series, no more entities. Null if there is no bound."
    )

    @classmethod
    def of_table(cls, table: GroupTable, view: View) -> GroupedAnswer:
        """Convert a table from the library."""
        columns = table.question.shape.beside
        rows = table.question.shape.rows
        groups = []
        for parts in table.parts():
            if rows is not None:
                listed = [_estimates_of(rows.columns, row) for row in parts[rows.name]]
                parts[rows.name] = next(iter(listed), None) if rows.single else listed
            groups.append(GroupRowModel(**_estimates_of(columns, parts)))
        unseen = table.unseen_at_most
        return cls(
            aggregate=table.question.name, now=view.now, verified=view.verified,
            by=list(table.names), kinds=list(table.kinds), groups=groups,
            total_groups=table.total_groups,
            unseen_at_most=unseen if math.isfinite(unseen) else None,
        )  # fmt: skip


def _estimates_of(columns: Iterable[Column], parts: dict[str, Any]) -> dict[str, Any]:
    estimates = {
        each.name: EstimateModel.of(parts[each.name]) for each in columns if each.kind == "estimate"
    }
    return parts | estimates


_TYPES: dict[str, Any] = {
    "estimate": EstimateModel,
    "number": int | float | str,
    "float": float,
    "time": int,
    "integer": int,
    "key": int | str | list[int | str],
    "flag": bool,
}


def _fields(columns: Iterable[Column]) -> dict[str, Any]:
    return {
        each.name: (
            Annotated[
                _TYPES[each.kind] | None if each.nullable else _TYPES[each.kind],
                Field(description=each.doc),
            ],
            ...,
        )
        for each in columns
    }


def _model(shape: Shape) -> type[PointAnswer]:
    """Return the model for results with one shape, for all queries."""
    names = tuple(name for name, each in QUESTIONS.items() if each.shape.name == shape.name)
    fields: dict[str, Any] = {"aggregate": (Literal[names], ...)}
    if shape.rows is not None:
        row: Any = create_model(
            shape.rows.row,
            __doc__=shape.rows.doc,
            __module__=__name__,
            **_fields(shape.rows.columns),
        )
        fields[shape.rows.name] = (row | None if shape.rows.single else list[row], ...)
    return create_model(
        f"{shape.name}Answer",
        __base__=PointAnswer,
        __doc__=shape.doc,
        __module__=__name__,
        **fields,
        **_fields(shape.beside),
    )


_MODELS = {each.shape.name: _model(each.shape) for each in QUESTIONS.values()}

_AnyPoint: Any = Annotated[Union[*_MODELS.values()], Field(discriminator="aggregate")]


class SeriesAnswer(BaseModel):
    """Results at several times."""

    aggregate: str
    points: list[GroupedAnswer | _AnyPoint] = Field(
        description="In the order of the times. Each equals the result of a single query."
    )


class _Response(BaseModel):
    digest: str = Field(
        description="Digest of the queried sketch. Equal digests give equal results."
    )
    answers: list[SeriesAnswer | GroupedAnswer | _AnyPoint] = Field(
        description="In the order of the queries. A query with `times` has a series."
    )
    warnings: list[str] = Field(
        default=[],
        description="Why results probably do not fit the query, such as a `now` in another unit. "
        "Often empty.",
    )


class QueryResponse(_Response):
    """Results from one stream."""

    stream: str


class GroupResponse(_Response):
    """Results from the join of several streams."""

    streams: list[str]


class Form(StrEnum):
    """An output form for results."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


_MEDIA_TYPES = {
    Form.JSON: "application/json",
    Form.CSV: "text/csv",
    Form.ARROW: "application/vnd.apache.arrow.stream",
}

_MOST_ACCEPTED = 50  # types of an Accept header that are read


def media_type_of(form: Form) -> str:
    """Return the media type with its parameters, as the response declares it."""
    return f"{_MEDIA_TYPES[form]}; charset=utf-8" if form is Form.CSV else _MEDIA_TYPES[form]


def preferred(accept: str | None) -> Form:
    """Return the form that an Accept header prefers, or JSON where it prefers none."""
    best, quality = Form.JSON, 0.0
    for given in (accept or "").split(",")[:_MOST_ACCEPTED]:
        name, *parameters = (part.strip().lower() for part in given.split(";"))
        form = next((form for form, media in _MEDIA_TYPES.items() if media == name), None)
        weight = _quality(parameters)
        if form is not None and (weight > quality or (weight == quality and form is Form.JSON)):
            best, quality = form, weight
    return best


def _quality(parameters: Sequence[str]) -> float:
    text = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


_LARGEST_SHARE = 8  # an answer longer than this part of the room would displace too many others


def etag(*parts: str) -> str:
    """Return the entity tag that these texts, and the release, determine."""
    name = hashlib.sha256()
    for part in (decaysketch.__version__, *parts):
        encoded = part.encode()
        name.update(len(encoded).to_bytes(8, "little"))
        name.update(encoded)
    return f'"{name.hexdigest()[:32]}"'


def tag_of(tag: str, form: Form) -> str:
    """Return the entity tag of results in a form, from the tag of the results as JSON."""
    return tag if form is Form.JSON else f'{tag[:-1]}-{form}"'


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Return whether a request's ``If-None-Match`` contains ``tag``."""
    known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
    return tag in known or "*" in known


class AnswerCache:
    """Bodies by their entity tag. Thread-safe. Every operation is O(1), except for the bodies that
    it displaces.

    Args:
        limit_bytes: limit for all bodies together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def held_bytes(self) -> int:
        """Return the total bytes of cached bodies."""
        return self._held_bytes

    def get(self, tag: str) -> bytes | None:
        """Return the body with this tag, if it is cached."""
        with self._lock:
            body = self._bodies.get(tag)
            if body is not None:
                self._bodies.move_to_end(tag)
            return body

    def put(self, tag: str, body: bytes) -> None:
        """Keep a body, unless it is very long."""
        if len(body) > self._limit_bytes // _LARGEST_SHARE:
            return
        with self._lock:
            displaced = self._bodies.pop(tag, b"")
            self._bodies[tag] = body
            self._held_bytes += len(body) - len(displaced)
            while self._held_bytes > self._limit_bytes:
                _, oldest = self._bodies.popitem(last=False)
                self._held_bytes -= len(oldest)
