"""Answers as they travel: a model for each shape that :data:`QUESTIONS` knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self, Union

from pydantic import BaseModel, Field, create_model

from decaysketch.answers.estimate import CAVEATS, Estimate
from decaysketch.answers.questions import QUESTIONS, View
from decaysketch.answers.shapes import Column, Question, Shape

__all__ = [
    "EstimateModel",
    "GroupResponse",
    "PointAnswer",
    "QueryResponse",
    "SeriesAnswer",
]


class EstimateModel(BaseModel):
    """An estimate and its interval. What is not finite is null: JSON has no infinity."""

    value: float | None = Field(description="The estimate; null where there is nothing to tell of.")
    lower: float | None = Field(description="Lower end of the interval.")
    upper: float | None = Field(description="Upper end of the interval.")
    stderr: float | None = Field(description="Standard error.")
    confidence: float = Field(description="Probability with which the interval holds the truth.")
    exact: bool = Field(description="Nothing was sampled: the value is the answer itself.")
    rows: int = Field(description="Retained observations that it was read from.")
    collision_bias: float | None = Field(
        description="Share of observations lost to collisions, if ids are hashed keys (expected)."
    )
    sure_upper: float | None = Field(
        default=None,
        exclude_if=lambda end: end is None,
        description="The answer is no larger, with certainty; left out where there is no such end.",
    )
    changed: bool | None = Field(
        default=None,
        exclude_if=lambda changed: changed is None,
        description="Of two moments compared: 0, or 1 of a ratio, lies outside of the interval; "
        "else left out.",
    )
    caveats: list[str] = Field(
        default_factory=list,
        exclude_if=lambda caveats: not caveats,
        description="Reasons to trust the interval less than it says, or for an end without a "
        "bound; left out where there are none. "
        + " ".join(f"`{name}`: {meaning}." for name, meaning in CAVEATS.items()),
    )

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        return cls(**estimate.to_dict())


class PointAnswer(BaseModel):
    """Base of the answers at one time: a model for each shape that answers have."""

    now: int = Field(description="The time asked about.")
    verified: Literal["proof", "grid"] = Field(
        default="proof",
        description="How it is known that the decay falls: proved, or looked at on a grid of ages.",
    )
    aggregate: str

    @staticmethod
    def of(question: Question[Any], found: Any, arguments: Mapping[str, Any], view: View) -> Any:
        """An answer of the library, on its way.

        Args:
            question: what was asked.
            found: the answer.
            arguments: of the question.
            view: what was asked.
        """
        parts = question.parts(found, arguments)
        rows = question.shape.rows
        if rows is not None:
            listed = [_estimates_of(rows.columns, row) for row in parts[rows.name]]
            parts[rows.name] = next(iter(listed), None) if rows.single else listed
        parts = _estimates_of(question.shape.beside, parts)
        model = _MODELS[question.shape.name]
        return model(aggregate=question.name, now=view.now, verified=view.verified, **parts)


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
    """Of the answers of one shape, whatever they are to."""
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
    """The answer at each of several times."""

    aggregate: str
    points: list[_AnyPoint] = Field(
        description="In the order of the times; each as if it had been asked alone."
    )


class _Response(BaseModel):
    digest: str = Field(description="Of the sketch that was asked: equal digests, equal answers.")
    answers: list[SeriesAnswer | _AnyPoint] = Field(
        description="In the order of the queries; a query with `times` has a series."
    )
    warnings: list[str] = Field(
        default=[],
        description="Why answers are hardly what was asked for, such as a `now` of another unit; "
        "often none.",
    )


class QueryResponse(_Response):
    """What a stream answers."""

    stream: str


class GroupResponse(_Response):
    """What the join of several streams answers."""

    streams: list[str]
