"""Queries and answers as they travel, and the call into the library that each one is.

A query names its aggregate, its decay and its time; nothing is declared beforehand. A new aggregate
is one class here: what it asks, and ``read``, which turns weighted samples, one for each hash
function, into its answer; which families have it is said in ``families``. Domains of decays are the
library's business: their models build the library's decay, and what it refuses is reported at the
place in the request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from api.errors import (
    Fault,
    InvalidRequestError,
    UnanswerableQueriesError,
    UnsupportedAggregateError,
)
from api.families import AGGREGATES, Snapshot, fixed_decay
from api.schemas import RequestModel, SourceText
from api.streams import Stream
from decaysketch import decay as decays
from decaysketch import ensemble, query
from decaysketch.decay.parse import MAX_TEXT
from decaysketch.ensemble import Combine
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.estimate import Estimate
from decaysketch.observations import TIME_LIMIT
from decaysketch.sample import Sample, pool

__all__ = ["QueryRequest", "QueryResponse", "answer", "check"]


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
    "median": partial(query.quantile, q=0.5),
}


class _Query(RequestModel):
    aggregate: str
    decay: AnyDecay | None = Field(
        default=None,
        description="Needed, but for a stream whose decay is fixed: leave it out there.",
    )
    now: int = Field(
        ge=-TIME_LIMIT,
        le=TIME_LIMIT,
        description="Time of the question, in the stream's `time_unit`; may lie in the past. "
        "Later observations are not counted.",
    )
    confidence: float = Field(default=0.95, gt=0, lt=1, description="Of the intervals.")
    combine: Combine = Field(
        default="average",
        description="How the answers of several hash functions (`copies`) make one.",
    )

    def _scalar(self, samples: Sequence[Sample], ask: Callable[..., Estimate]) -> ScalarAnswer:
        ask = partial(ask, confidence=self.confidence)
        estimate = ensemble.estimate(samples, ask, self.combine)
        return ScalarAnswer(
            aggregate=self.aggregate,  # type: ignore[arg-type]  # of those that are numbers
            now=self.now,
            estimate=EstimateModel.of(estimate),
        )


class ScalarQuery(_Query):
    """`sum` of weights, `count` of observations, `total` of values; `mean`, `variance` and `median`
    of values, weighted by decayed weight."""

    aggregate: Literal["sum", "count", "total", "mean", "variance", "median"]

    def read(self, samples: Sequence[Sample]) -> ScalarAnswer:
        return self._scalar(samples, _SCALARS[self.aggregate])


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

    def read(self, samples: Sequence[Sample]) -> QuantileAnswer:
        def ask(sample: Sample) -> list[Estimate]:
            return query.quantile(sample, self.q, confidence=self.confidence)

        estimates = ensemble.estimates(samples, ask, self.combine)
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

    def read(self, samples: Sequence[Sample]) -> ScalarAnswer:
        return self._scalar(samples, partial(query.rank, value=self.v))


class SelectivityQuery(_Query):
    """Share of the decayed weight whose value is `at_least` and `at_most` so much: give one of the
    two, or both."""

    aggregate: Literal["selectivity"]
    at_least: AnyNumber | None = None
    at_most: AnyNumber | None = None

    @model_validator(mode="after")
    def _one_is_given(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise PydanticCustomError("no_bound", "give at_least, at_most or both")
        return self

    def read(self, samples: Sequence[Sample]) -> ScalarAnswer:
        return self._scalar(samples, partial(query.selectivity, predicate=self._holds))

    def _holds(self, values: npt.NDArray[Any], _weights: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        held = np.ones(len(values), np.bool_)
        if self.at_least is not None:
            held &= np.asarray(values >= self.at_least)
        if self.at_most is not None:
            held &= np.asarray(values <= self.at_most)
        return held


class HeavyHittersQuery(_Query):
    """Values with more than the share `phi` of the decayed weight."""

    aggregate: Literal["heavy_hitters"]
    phi: float = Field(ge=0, lt=1)

    def read(self, samples: Sequence[Sample]) -> HeavyHittersAnswer:
        hitters = ensemble.heavy_hitters(
            samples, self.phi, confidence=self.confidence, combine=self.combine
        )
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

    def read(self, samples: Sequence[Sample]) -> GroupByAnswer:
        groups = ensemble.group_by(samples, confidence=self.confidence, combine=self.combine)
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
    ScalarQuery | QuantileQuery | RankQuery | SelectivityQuery | HeavyHittersQuery | GroupByQuery,
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


def check(stream: Stream, request: QueryRequest) -> None:
    """Whether the family of the stream has every aggregate asked for, and every query a decay
    exactly where it is the query that chooses.

    Raises:
        UnsupportedAggregateError, InvalidRequestError: naming every query that is refused.
    """
    family = stream.recipe.family
    known, asked = AGGREGATES[family], enumerate(request.queries)
    unknown = {i: each.aggregate for i, each in asked if each.aggregate not in known}
    if unknown:
        raise UnsupportedAggregateError(stream.name, family, known, unknown)
    decay = fixed_decay(stream.recipe)
    fixed = None if decay is None else decay.to_dict()
    faults = [
        fault
        for position, each in enumerate(request.queries)
        for fault in _decay_faults(fixed, f"queries[{position}].decay", each.decay)
    ]
    if faults:
        first = faults[0]
        detail = f"{first.field}: {first.reason}"
        if len(faults) > 1:
            detail += f"; and {len(faults) - 1} more"
        raise InvalidRequestError(detail, faults)


def _decay_faults(
    fixed: Mapping[str, Any] | None, field: str, asked: DecayModel | None
) -> Iterator[Fault]:
    if fixed is None:
        if asked is None:
            yield Fault(field=field, reason="missing")
    elif asked is not None and (given := asked.model_dump(exclude_none=True)) != fixed:
        reason = "the decay of this stream is fixed, and another one: leave it out"
        yield Fault(field=field, reason=reason, value=str(given), expected=str(fixed))


def answer(stream: Stream, sketch: Snapshot, request: QueryRequest) -> QueryResponse:
    """Answer every query of a request that passed :func:`check`, or none.

    Neighbouring queries of one decay and time are read from one sample.

    Raises:
        UnanswerableQueriesError: naming every query that asks for what was discarded.
        InvalidRequestError: a decay that reaches further back than the sketch was built for.
    """
    fixed = fixed_decay(stream.recipe) is not None
    asked: tuple[decays.Decay | None, int] | None = None
    samples: list[Sample] = []
    pooled: list[Sample] = []
    answers: list[SomeAnswer] = []
    refused: dict[int, UnanswerableQueryError] = {}
    for position, each in enumerate(request.queries):
        decay = None if fixed or each.decay is None else each.decay.to_library()
        wanted = decay, each.now
        try:
            if wanted != asked:
                samples = sketch.samples(*wanted)
                asked, pooled = wanted, [pool(samples)]
            answers.append(each.read(samples if each.combine == "median" else pooled))
        except UnanswerableQueryError as error:
            refused[position] = error
        except ParameterError as error:
            field = f"queries[{position}].decay"
            raise InvalidRequestError(
                f"{field}: {error}", [Fault(field=field, reason=str(error))]
            ) from None
    if refused:
        raise UnanswerableQueriesError(len(request.queries), refused)
    return QueryResponse(stream=stream.name, digest=sketch.digest, answers=answers)
