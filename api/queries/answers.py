"""Answers as they travel."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, Field

from decaysketch.answers.estimate import CAVEATS, Estimate

__all__ = [
    "EstimateModel",
    "GroupByAnswer",
    "GroupModel",
    "GroupResponse",
    "HeavyHitterModel",
    "HeavyHittersAnswer",
    "PointAnswer",
    "QuantileAnswer",
    "QuantileEstimate",
    "QueryResponse",
    "ScalarAnswer",
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


class _Answer(BaseModel):
    now: int = Field(description="The time asked about.")
    verified: Literal["proof", "grid"] = Field(
        default="proof",
        description="How it is known that the decay falls: proved, or looked at on a grid of ages.",
    )


class ScalarAnswer(_Answer):
    """One number."""

    aggregate: Literal["sum", "count", "total", "mean", "variance", "median", "rank", "selectivity"]
    estimate: EstimateModel


class QuantileEstimate(BaseModel):
    """One quantile."""

    q: float
    estimate: EstimateModel


class QuantileAnswer(_Answer):
    """Quantiles, in the order asked."""

    aggregate: Literal["quantile"]
    quantiles: list[QuantileEstimate]


class HeavyHitterModel(BaseModel):
    """A value and its share of the decayed weight."""

    value: int | float
    frequency: EstimateModel


class HeavyHittersAnswer(_Answer):
    """The values whose share exceeds phi, heaviest first."""

    aggregate: Literal["heavy_hitters"]
    heavy_hitters: list[HeavyHitterModel]


class GroupModel(BaseModel):
    """A value, the decayed sum of the weights of its observations, and their decayed count."""

    value: int | float
    sum: EstimateModel
    count: EstimateModel


class GroupByAnswer(_Answer):
    """The heaviest values, heaviest first."""

    aggregate: Literal["group_by"]
    groups: list[GroupModel]
    total_groups: int = Field(description="Distinct values in the sample, listed or not.")


PointAnswer: TypeAlias = ScalarAnswer | QuantileAnswer | HeavyHittersAnswer | GroupByAnswer


class SeriesAnswer(BaseModel):
    """The answer at each of several times."""

    aggregate: str
    points: list[Annotated[PointAnswer, Field(discriminator="aggregate")]] = Field(
        description="In the order of the times; each as if it had been asked alone."
    )


class _Response(BaseModel):
    digest: str = Field(description="Of the sketch that was asked: equal digests, equal answers.")
    answers: list[SeriesAnswer | Annotated[PointAnswer, Field(discriminator="aggregate")]] = Field(
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
