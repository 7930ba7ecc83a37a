"""Queries and answers as they travel, and the call into the library that each one is.

A query names its aggregate, its decay and its time; nothing is declared beforehand. A new aggregate
is one class here: what it asks, and ``read``, which turns the weighted sample into its answer.
Domains of decays are the library's business: their models build the library's decay, and what it
refuses is reported at the place in the request.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from api.errors import UnanswerableQueriesError
from api.schemas import RequestModel, SourceText
from api.streams import Snapshot
from decaysketch import decay as decays
from decaysketch import query
from decaysketch.decay.parse import MAX_TEXT
from decaysketch.errors import UnanswerableQueryError
from decaysketch.estimate import Estimate
from decaysketch.observations import TIME_LIMIT
from decaysketch.sample import Sample

__all__ = ["QueryRequest", "QueryResponse", "answer"]


def _number(value: Any) -> int | float:
    """A finite JSON number, an integer kept as one: ages may need all 63 bits."""
    if not isinstance(value, bool) and isinstance(value, (int, float)):
        with suppress(OverflowError):  # an integer beyond every double
            if math.isfinite(value):
                return value
    raise PydanticCustomError("finite_number", "Input should be a finite number")


def _number_of(**schema: Any) -> Any:
    return WithJsonSchema({"type": "number"} | schema)


AnyNumber = Annotated[int | float, PlainValidator(_number), _number_of()]
NonNegative = Annotated[int | float, PlainValidator(_number), _number_of(minimum=0)]
Positive = Annotated[int | float, PlainValidator(_number), _number_of(exclusiveMinimum=0)]
Share = Annotated[float, Field(ge=0, le=1)]

# ------------------------------------------------------------------------------------------- decays


class DecayModel(RequestModel):
    """Base of the decays."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.to_library()
        return self

    def to_library(self) -> decays.Decay:
        """The library's decay, which checks the domain of every field."""
        return decays.from_dict(self.model_dump(exclude_none=True))


class WindowDecay(DecayModel):
    """Weight 1 up to an age of `width`, inclusive, then 0."""

    kind: Literal["window"]
    width: NonNegative


class ExponentialDecay(DecayModel):
    """`exp(-rate * age)`, or `2^(-age / half_life)`: give one of the two."""

    kind: Literal["exponential"]
    rate: Positive | None = None
    half_life: Positive | None = None


class PolynomialDecay(DecayModel):
    """`(1 + age / scale)^-exponent`."""

    kind: Literal["polynomial"]
    exponent: Positive
    scale: Positive = 1


class NoDecay(DecayModel):
    """Weight 1 at every age."""

    kind: Literal["none"]


class PiecewiseDecay(DecayModel):
    """The weight of the first step whose age is not exceeded; `beyond` after the last."""

    kind: Literal["piecewise"]
    steps: list[Annotated[list[NonNegative], Field(min_length=2, max_length=2)]] = Field(
        min_length=1, max_length=1000, description="`[age, weight]`, ages rising, weights not."
    )
    beyond: NonNegative = 0


class ExpressionDecay(DecayModel):
    """What a text says of the age `x`: finite, >= 0, and not rising. It is read, never executed."""

    kind: Literal["expression"]
    text: str = Field(
        min_length=1,
        max_length=MAX_TEXT,
        description="`+ - * / // **`, decimal numbers, `e`, `pi`; `exp log ln sqrt floor ceil min "
        "max`; `where(x <= 60, then, otherwise)`.",
        examples=["1/(1 + log(1 + x/60))"],
    )


AnyDecay = Annotated[
    WindowDecay | ExponentialDecay | PolynomialDecay | NoDecay | PiecewiseDecay | ExpressionDecay,
    Field(discriminator="kind", description="How the weight of an observation falls with its age."),
]

# ------------------------------------------------------------------------------------------ answers


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

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        return cls(**estimate.to_dict())


class _Answer(BaseModel):
    now: int = Field(description="The time asked about.")


class ScalarAnswer(_Answer):
    """One number."""

    aggregate: Literal["sum", "count", "total", "mean", "variance", "rank"]
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


AnyAnswer = Annotated[
    ScalarAnswer | QuantileAnswer | HeavyHittersAnswer | GroupByAnswer,
    Field(discriminator="aggregate"),
]
SomeAnswer: TypeAlias = ScalarAnswer | QuantileAnswer | HeavyHittersAnswer | GroupByAnswer

# ------------------------------------------------------------------------------------------ queries

_SCALARS: dict[str, Callable[..., Estimate]] = {
    "sum": query.sum,
    "count": query.count,
    "total": query.total,
    "mean": query.mean,
    "variance": query.variance,
}


class _Query(RequestModel):
    decay: AnyDecay
    now: int = Field(
        ge=-TIME_LIMIT,
        le=TIME_LIMIT,
        description="Time of the question, in the stream's `time_unit`; may lie in the past. "
        "Later observations are not counted.",
    )
    confidence: float = Field(default=0.95, gt=0, lt=1, description="Of the intervals.")


class ScalarQuery(_Query):
    """`sum` of weights, `count` of observations, `total` of values; `mean` and `variance` of
    values, weighted by decayed weight."""

    aggregate: Literal["sum", "count", "total", "mean", "variance"]

    def read(self, sample: Sample) -> ScalarAnswer:
        estimate = _SCALARS[self.aggregate](sample, confidence=self.confidence)
        return ScalarAnswer(
            aggregate=self.aggregate, now=self.now, estimate=EstimateModel.of(estimate)
        )


class QuantileQuery(_Query):
    """The least value whose relative rank is `q` or more, for one `q` or several."""

    aggregate: Literal["quantile"]
    q: list[Share] = Field(
        min_length=1, max_length=1000, description="A number in [0, 1], or a list of them."
    )

    @model_validator(mode="before")
    @classmethod
    def _one_is_a_list(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("q"), (int, float)):
            return fields | {"q": [fields["q"]]}
        return fields

    def read(self, sample: Sample) -> QuantileAnswer:
        estimates = query.quantile(sample, self.q, confidence=self.confidence)
        return QuantileAnswer(
            aggregate=self.aggregate,
            now=self.now,
            quantiles=[
                QuantileEstimate(q=q, estimate=EstimateModel.of(estimate))
                for q, estimate in zip(self.q, estimates, strict=True)
            ],
        )


class RankQuery(_Query):
    """Share of the decayed weight whose value is `v` or less."""

    aggregate: Literal["rank"]
    v: AnyNumber

    def read(self, sample: Sample) -> ScalarAnswer:
        estimate = query.rank(sample, self.v, confidence=self.confidence)
        return ScalarAnswer(
            aggregate=self.aggregate, now=self.now, estimate=EstimateModel.of(estimate)
        )


class HeavyHittersQuery(_Query):
    """Values with more than the share `phi` of the decayed weight."""

    aggregate: Literal["heavy_hitters"]
    phi: float = Field(ge=0, lt=1)

    def read(self, sample: Sample) -> HeavyHittersAnswer:
        hitters = query.heavy_hitters(sample, self.phi, confidence=self.confidence)
        return HeavyHittersAnswer(
            aggregate=self.aggregate,
            now=self.now,
            heavy_hitters=[
                HeavyHitterModel(value=each.value, frequency=EstimateModel.of(each.frequency))
                for each in hitters
            ],
        )


class GroupByQuery(_Query):
    """Decayed sum and count of each distinct value, the heaviest `limit` of them."""

    aggregate: Literal["group_by"]
    limit: int = Field(default=100, ge=1, le=10_000)

    def read(self, sample: Sample) -> GroupByAnswer:
        groups = query.group_by(sample, confidence=self.confidence)
        return GroupByAnswer(
            aggregate=self.aggregate,
            now=self.now,
            groups=[
                GroupModel(
                    value=group.value,
                    sum=EstimateModel.of(group.sum),
                    count=EstimateModel.of(group.count),
                )
                for group in groups[: self.limit]
            ],
            total_groups=len(groups),
        )


AnyQuery = Annotated[
    ScalarQuery | QuantileQuery | RankQuery | HeavyHittersQuery | GroupByQuery,
    Field(discriminator="aggregate"),
]

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
            "now": 1_700_000_000_000_000,
        },
        {
            "aggregate": "heavy_hitters",
            "phi": 0.02,
            "decay": {"kind": "polynomial", "exponent": 1.5, "scale": 60_000_000},
            "now": 1_700_000_000_000_000,
            "confidence": 0.9,
        },
    ]
}


_MAX_EXPRESSIONS = 32


class QueryRequest(RequestModel):
    """Questions, all to be answered from one and the same sketch."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    queries: list[AnyQuery] = Field(min_length=1)
    sources: list[SourceText] | None = Field(
        default=None, min_length=1, description="Ask the join of these sources, not of all."
    )

    @model_validator(mode="before")
    @classmethod
    def _few_expressions(cls, fields: Any) -> Any:
        """Counted before the first is read: reading and checking one may take 50 ms."""
        queries = fields.get("queries") if isinstance(fields, dict) else None
        asked = queries if isinstance(queries, list) else []
        chosen = [each.get("decay") for each in asked if isinstance(each, dict)]
        given = [each.get("text") for each in chosen if isinstance(each, dict)]
        texts = {text for text in given if isinstance(text, str)}
        if len(texts) > _MAX_EXPRESSIONS:
            raise PydanticCustomError(
                "too_many_expressions",
                "{given} different expressions in one request; at most {most} are taken",
                {"given": len(texts), "most": _MAX_EXPRESSIONS},
            )
        return fields


class QueryResponse(BaseModel):
    """Answers, in the order of the queries."""

    stream: str
    digest: str = Field(description="Of the sketch that was asked: equal digests, equal answers.")
    answers: list[AnyAnswer]


def answer(stream: str, sketch: Snapshot, request: QueryRequest) -> QueryResponse:
    """Answer every query, or none.

    Neighbouring queries of one decay and time are read from one sample.

    Raises:
        UnanswerableQueriesError: naming every query that asks for what was discarded.
    """
    asked: tuple[decays.Decay, int] | None = None
    sample: Sample | None = None
    answers: list[SomeAnswer] = []
    refused: dict[int, UnanswerableQueryError] = {}
    for position, each in enumerate(request.queries):
        wanted = each.decay.to_library(), each.now
        try:
            if sample is None or wanted != asked:
                asked, sample = wanted, sketch.sample(*wanted)
            answers.append(each.read(sample))
        except UnanswerableQueryError as error:
            refused[position] = error
    if refused:
        raise UnanswerableQueriesError(len(request.queries), refused)
    return QueryResponse(stream=stream, digest=sketch.digest, answers=answers)
