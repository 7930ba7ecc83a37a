"""What may be asked: a class for each aggregate, and the call into the library that it is.

A query names its aggregate, its decay and its time or times; nothing is declared beforehand. A new
aggregate is one class here: what it asks, and ``read``, which turns weighted samples, one for each
hash function, into its answer; which families have it is said in ``api.families``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from api.queries.answers import (
    EstimateModel,
    GroupByAnswer,
    GroupModel,
    HeavyHitterModel,
    HeavyHittersAnswer,
    PointAnswer,
    QuantileAnswer,
    QuantileEstimate,
    ScalarAnswer,
)
from api.queries.decays import AnyDecay, AnyNumber
from api.schemas import RequestModel, SourceText
from decaysketch.answers import ensemble, query
from decaysketch.answers.ensemble import Combine
from decaysketch.answers.estimate import Estimate
from decaysketch.answers.sample import Sample
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.text.predicate import MAX_OPERATIONS, MAX_TEXT, Predicate

__all__ = [
    "MOST_QUERIES",
    "MOST_TIMES",
    "AnyQuery",
    "GroupRequest",
    "QueryRequest",
    "SelectivityQuery",
    "Times",
]

Share = Annotated[float, Field(ge=0, le=1)]
Time = Annotated[int, Field(ge=-TIME_LIMIT, le=TIME_LIMIT)]
StreamText = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]

MOST_QUERIES = 2000
"""Queries of a request; the setting ``max_queries`` is at most this."""

MOST_TIMES = 10_000
"""Times of a list; the setting ``max_points`` is at most this."""

_MOST_SOURCES = 1000
_MOST_HITTERS = 10_000

# Processor seconds, measured on one core with 1,000 to 100,000 rows, rounded: of
# an answer; of a row that it reads; of a row put in the order of values; of a row and operation of
# a predicate; of a sampled quantile; of an estimate for each of many values.
_ANSWER_S = 2e-4
_ROW_S = 30e-9
_RANKED_ROW_S = 150e-9
_OPERATION_S = 4e-9
_QUANTILE_S = 1.7e-3
_VALUE_S = 15e-6

_SCALARS: dict[str, Callable[..., Estimate]] = {
    "sum": query.sum,
    "count": query.count,
    "total": query.total,
    "mean": query.mean,
    "variance": query.variance,
    "median": partial(query.quantile, q=0.5),
}


class Range(RequestModel):
    """`start`, `start + step`, ... up to `stop`, which is one of them if a step meets it."""

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
        """How many times these are."""
        return (self.stop - self.start) // self.step + 1


Times = Annotated[
    Annotated[list[Time], Field(min_length=1, max_length=MOST_TIMES, fail_fast=True), Tag("list")]
    | Annotated[Range, Tag("range")],
    Discriminator(lambda times: "list" if isinstance(times, list) else "range"),
]


class _Query(RequestModel):
    aggregate: str
    decay: AnyDecay | None = Field(
        default=None,
        description="Needed, but for a stream whose decay is fixed: leave it out there.",
    )
    now: Time | None = Field(
        default=None,
        description="Time of the question, in the stream's `time_unit`; in the past, it is asked "
        "as of then. Later observations are not counted. Left out: the clock of the server, if the "
        "unit has one.",
    )
    times: Times | None = Field(
        default=None,
        description="In place of `now`: several times, as a list or as a range, for a time series.",
    )
    confidence: float = Field(default=0.95, gt=0, lt=1, description="Of the intervals.")
    combine: Combine = Field(
        default="average",
        description="How the answers of several hash functions (`copies`) make one.",
    )

    @model_validator(mode="after")
    def _one_kind_of_time(self) -> Self:
        if self.now is not None and self.times is not None:
            raise PydanticCustomError("two_times", "give now or times, not both")
        return self

    @property
    def point_count(self) -> int:
        """At how many times it is to be answered."""
        if isinstance(self.times, Range):
            return self.times.count
        return 1 if self.times is None else len(self.times)

    @property
    def points(self) -> Sequence[int] | None:
        """The times of a series; None where one time is asked about."""
        if isinstance(self.times, Range):
            return range(self.times.start, self.times.stop + 1, self.times.step)
        return self.times

    @property
    def estimates(self) -> int:
        """So many estimates may one answer hold."""
        return 1

    def work_s(self, sample: Sample) -> float:
        """About so long the processor needs to read the answer from a sample."""
        return _ANSWER_S + len(sample) * _ROW_S

    @abstractmethod
    def read(self, samples: Sequence[Sample], now: int) -> PointAnswer:
        """The answer at a time."""

    def _scalar(
        self, samples: Sequence[Sample], now: int, ask: Callable[..., Estimate]
    ) -> ScalarAnswer:
        ask = partial(ask, confidence=self.confidence)
        estimate = ensemble.estimate(samples, ask, self.combine)
        return ScalarAnswer(
            aggregate=self.aggregate,  # type: ignore[arg-type]  # of those that are numbers
            now=now,
            verified=samples[0].verified,
            estimate=EstimateModel.of(estimate),
        )


class ScalarQuery(_Query):
    """`sum` of weights, `count` of observations, `total` of values; `mean`, `variance` and `median`
    of values, weighted by decayed weight."""

    aggregate: Literal["sum", "count", "total", "mean", "variance", "median"]

    def work_s(self, sample: Sample) -> float:
        if self.aggregate == "median":
            return _quantiles_work_s(sample, 1)
        return super().work_s(sample)

    def read(self, samples: Sequence[Sample], now: int) -> ScalarAnswer:
        return self._scalar(samples, now, _SCALARS[self.aggregate])


def _quantiles_work_s(sample: Sample, count: int) -> float:
    each = _ROW_S if sample.exact else _QUANTILE_S
    return _ANSWER_S + len(sample) * _RANKED_ROW_S + count * each


class QuantileQuery(_Query):
    """The least value whose relative rank is `q` or more, for one `q` or several."""

    aggregate: Literal["quantile"]
    q: list[Share] = Field(
        min_length=1,
        max_length=1000,
        fail_fast=True,
        description="A number in [0, 1], or a list of them.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_is_a_list(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("q"), (int, float)):
            return fields | {"q": [fields["q"]]}
        return fields

    @property
    def estimates(self) -> int:
        return len(self.q)

    def work_s(self, sample: Sample) -> float:
        return _quantiles_work_s(sample, len(self.q))

    def read(self, samples: Sequence[Sample], now: int) -> QuantileAnswer:
        def ask(sample: Sample) -> list[Estimate]:
            return query.quantile(sample, self.q, confidence=self.confidence)

        estimates = ensemble.estimates(samples, ask, self.combine)
        return QuantileAnswer(
            aggregate=self.aggregate,
            now=now,
            verified=samples[0].verified,
            quantiles=[
                QuantileEstimate(q=q, estimate=EstimateModel.of(estimate))
                for q, estimate in zip(self.q, estimates, strict=True)
            ],
        )


class RankQuery(_Query):
    """Share of the decayed weight whose value is `v` or less."""

    aggregate: Literal["rank"]
    v: AnyNumber

    def read(self, samples: Sequence[Sample], now: int) -> ScalarAnswer:
        return self._scalar(samples, now, partial(query.rank, value=self.v))


class SelectivityQuery(_Query):
    """Share of the decayed weight whose value is `at_least` and `at_most` so much (give one of the
    two, or both), or for which a `predicate` holds."""

    aggregate: Literal["selectivity"]
    at_least: AnyNumber | None = None
    at_most: AnyNumber | None = None
    predicate: str | None = Field(
        default=None,
        max_length=MAX_TEXT,
        description="Of the value `v` and the weight `w`: decimal numbers, `+ - * / // % **`, "
        "`abs min max`, `< <= > >= == !=`, `and or not`. It is read, never executed.",
        examples=["v / w > 2 and not v > 100"],
    )

    @model_validator(mode="after")
    def _one_is_given(self) -> Self:
        bounded = self.at_least is not None or self.at_most is not None
        if bounded == (self.predicate is not None):
            raise PydanticCustomError(
                "no_bound", "give at_least, at_most or both, or else a predicate"
            )
        return self

    def work_s(self, sample: Sample) -> float:
        operations = min(MAX_OPERATIONS, len(self.predicate or ""))
        return super().work_s(sample) + len(sample) * operations * _OPERATION_S

    def read(self, samples: Sequence[Sample], now: int) -> ScalarAnswer:
        return self._scalar(samples, now, partial(query.selectivity, predicate=self.holds))

    @property
    def holds(self) -> query.Predicate:
        """What is asked, as a function of the columns of values and weights.

        Raises:
            ParameterError: the text of the predicate cannot be read.
        """
        return self._is_within if self.predicate is None else _predicate(self.predicate)

    def _is_within(
        self, values: npt.NDArray[Any], _weights: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        held = np.ones(len(values), np.bool_)
        if self.at_least is not None:
            held &= np.asarray(values >= self.at_least)
        if self.at_most is not None:
            held &= np.asarray(values <= self.at_most)
        return held


@lru_cache(maxsize=256)
def _predicate(text: str) -> Predicate:
    """The same text is read once, however many queries of a request have it."""
    return Predicate(text)


class HeavyHittersQuery(_Query):
    """Values with more than the share `phi` of the decayed weight."""

    aggregate: Literal["heavy_hitters"]
    phi: float = Field(ge=0, lt=1)
    limit: int = Field(
        default=_MOST_HITTERS, ge=1, le=_MOST_HITTERS, description="The heaviest so many of them."
    )

    @property
    def estimates(self) -> int:
        return self.limit if self.phi * self.limit <= 1 else int(1 / self.phi)

    def work_s(self, sample: Sample) -> float:
        values = len(sample) if self.phi * len(sample) <= 1 else int(1 / self.phi)
        return _ANSWER_S + len(sample) * _RANKED_ROW_S + values * _VALUE_S

    def read(self, samples: Sequence[Sample], now: int) -> HeavyHittersAnswer:
        hitters = ensemble.heavy_hitters(
            samples, self.phi, confidence=self.confidence, combine=self.combine
        )
        return HeavyHittersAnswer(
            aggregate=self.aggregate,
            now=now,
            verified=samples[0].verified,
            heavy_hitters=[
                HeavyHitterModel(value=each.value, frequency=EstimateModel.of(each.frequency))
                for each in hitters[: self.limit]
            ],
        )


class GroupByQuery(_Query):
    """Decayed sum and count of each distinct value, the heaviest `limit` of them."""

    aggregate: Literal["group_by"]
    limit: int = Field(default=100, ge=1, le=10_000)

    @property
    def estimates(self) -> int:
        return 2 * self.limit

    def work_s(self, sample: Sample) -> float:
        values = len(sample) if self.combine == "median" else min(len(sample), self.limit)
        return _ANSWER_S + 2 * (len(sample) * _RANKED_ROW_S + values * _VALUE_S)

    def read(self, samples: Sequence[Sample], now: int) -> GroupByAnswer:
        groups, total = self._groups(samples)
        return GroupByAnswer(
            aggregate=self.aggregate,
            now=now,
            verified=samples[0].verified,
            groups=[
                GroupModel(
                    value=group.value,
                    sum=EstimateModel.of(group.sum),
                    count=EstimateModel.of(group.count),
                )
                for group in groups
            ],
            total_groups=total,
        )

    def _groups(self, samples: Sequence[Sample]) -> tuple[list[query.Group], int]:
        if len(samples) > 1:
            groups = ensemble.group_by(samples, confidence=self.confidence, combine=self.combine)
            return groups[: self.limit], len(groups)
        (sample,) = samples
        groups = query.group_by(sample, limit=self.limit, confidence=self.confidence)
        return groups, len(sample.ranking.values)


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


class _Request(RequestModel):
    queries: list[AnyQuery] = Field(min_length=1, max_length=MOST_QUERIES)
    sources: list[SourceText] | None = Field(
        default=None,
        min_length=1,
        max_length=_MOST_SOURCES,
        fail_fast=True,
        description="Ask the join of these sources, not of all.",
    )
    after: str | None = Field(
        default=None,
        max_length=200,
        description="The `token` of a post: wait until that is in what is asked.",
    )


class QueryRequest(_Request):
    """Questions, all to be answered from one and the same sketch."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})


class GroupRequest(_Request):
    """Questions to the join of several streams."""

    streams: list[StreamText] = Field(
        min_length=1,
        max_length=100,
        fail_fast=True,
        description="Of one family and equal parameters; the capacity may differ, and the smallest "
        "is in force.",
        examples=[["ward-7", "ward-8"]],
    )
