"""Every query about observations, each defined once. With its neighbour modules, these are all.

An entry in :data:`QUESTIONS` defines an aggregate's arguments, the shape and cost of its
result, and its function in :mod:`~decaysketch.query.aggregates` or
:mod:`~decaysketch.query.ensemble`. HTTP request and response models, SQL functions, the command
``query``, the dashboard fields and the tables in the documentation are derived from it.

A :class:`View` accepts queries: here, the samples for one decay and time. See
:mod:`~decaysketch.query.keys` for counters of keys, :mod:`~decaysketch.query.extremes` for
extremes, and :mod:`~decaysketch.query.series` for series. :class:`Asked` and its neighbours give
sketches a method for each query, so that help and type checkers know them.

To add a query, add its function to ``query.py``, its entry here, and a method next to the similar
ones. Its needs decide which families answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, Unpack, cast, overload
from weakref import ref

import numpy as np

from decaysketch.core.text.predicate import MAX_OPERATIONS, MAX_TEXT
from decaysketch.core.text.predicate import Predicate as ReadPredicate
from decaysketch.core.time_units import Instant
from decaysketch.decay import Decay, parse, window
from decaysketch.errors import ParameterError
from decaysketch.query import aggregates, ensemble, relations
from decaysketch.query.aggregates import Function, HeavyHitter, Histogram, Last, Predicate
from decaysketch.query.buckets import ENDS, as_far_apart, reads_ranges, widened
from decaysketch.query.comparisons import against
from decaysketch.query.covering import SOURCE_QUESTIONS
from decaysketch.query.difference import Comparison
from decaysketch.query.dispatch import (
    QUESTIONS,
    View,
    Views,
    asked_by,
    check_compared,
    check_how,
    given_to,
    modified_question,
    questions_of,
    read_predicate,
)
from decaysketch.query.estimate import Estimate, as_of
from decaysketch.query.extremes import EXTREME_QUESTIONS
from decaysketch.query.keys import KEY_QUESTIONS
from decaysketch.query.modifiers import (
    Modifiers,
    Order,
    modified,
    revalued,
    schema_of_sample,
)
from decaysketch.query.over_time import TimeTable
from decaysketch.query.pair_view import PairView, RangeView, range_moment
from decaysketch.query.sample import EndOfRange, Sample, pool
from decaysketch.query.series import SERIES_QUESTIONS
from decaysketch.query.shapes import (
    SCALAR,
    Argument,
    Column,
    Combine,
    Question,
    Rows,
    Shape,
    check_combine,
)
from decaysketch.query.subtraction import Asked as Remembered
from decaysketch.query.tables import GroupedView, GroupTable

__all__ = [
    "QUESTIONS",
    "Asked",
    "AskedOfItsDecay",
    "AskedOfSamples",
    "AskedOfValues",
    "AskedOfWeights",
    "Groups",
    "How",
    "SampleView",
    "View",
    "Views",
    "questions_of",
    "read_predicate",
]

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])

# --------------------------------------------------------------------------------------- the view


class SampleView(View):
    """Queries to samples.

    Args:
        samples: one for each hash function, at least one.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self._drawn: Sequence[Sample] = samples  # without modifiers
        self._modifiers = Modifiers()

    @cached_property
    def _pooled(self) -> Sequence[Sample]:
        return [pool(self.samples)]

    @property
    def now(self) -> int:
        return self.samples[0].now

    @property
    def verified(self) -> Literal["proof", "grid"]:
        return self.samples[0].verified

    @property
    def rows(self) -> int:
        """Observations in the samples."""
        return sum(map(len, self.samples))

    @property
    def drawn_s(self) -> float:
        return len(self.samples) * _DRAW_S + self.rows * _DRAW_ROW_S

    def ask(
        self,
        question: Question[Any] | str,
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        **arguments: Any,
    ) -> Any:
        question, given = given_to(question, arguments)
        self._modifiers.check(question)
        if self.samples[0].labels is not None and not self._compares_a_column:
            question.check_labels(given)
        samples = self._read(combine)
        found = self._compared(question).answer(samples, confidence=confidence, **given)
        if not self._reads_ranges(question, given):
            return found
        how: dict[str, Any] = {"confidence": confidence, "combine": combine}
        if self._modifiers.versus is not None:
            return self._far_apart(found, question, how | given)
        return widened(found, lambda bound: self._at_bound(bound).ask(question, **how, **given))

    @property
    def _compares_a_column(self) -> bool:
        return self._modifiers.versus is not None and self._modifiers.of is not None

    def _compared(self, question: Question[Any]) -> Question[Any]:
        """Return the query that compares the parts of the modifiers, if they have any."""
        if self._modifiers.versus is None:
            return question
        return against(question, self._modifiers, schema_of_sample(self._drawn[0]))

    def _far_apart(
        self, found: Estimate, question: Question[Any], asked: dict[str, Any]
    ) -> Estimate:
        """Return a comparison with bounds for the ranges in either part."""
        modifiers = self._modifiers
        bounds: tuple[EndOfRange, ...] = ("middle", *ENDS)
        first, second = (
            [
                SampleView([sample.at_bound(bound) for sample in self._drawn])
                .modified(replace(modifiers, where=side, versus=None))
                .ask(question, **asked)
                for bound in bounds
            ]
            for side in (modifiers.where, modifiers.versus)
        )
        return as_far_apart(found, modifiers.how, first, second)

    def _reads_ranges(self, question: Question[Any], given: Mapping[str, Any]) -> bool:
        """Return whether a query reads values that are ranges."""
        if not any(sample.ranged for sample in self._drawn):
            return False
        return reads_ranges(question, [*self._modifiers.texts, *question.columns(given)])

    def _at_bound(self, bound: EndOfRange) -> SampleView:
        """Return the same view with every range at its lower or upper bound."""
        view: SampleView = SampleView([sample.at_bound(bound) for sample in self._drawn])
        return view.modified(self._modifiers) if self._modifiers else view

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        question, given = given_to(question, arguments)
        given |= {"combine": combine}
        asked = self._compared(question)
        cost_s = sum(asked.cost_s(sample, given) for sample in self._read(combine))
        times = 3 if self._reads_ranges(question, given) else 1
        return times * cost_s

    def modified(self, modifiers: Modifiers) -> Any:
        if not modifiers:
            return self
        if modifiers.of_sources:
            raise ParameterError(
                "set, and by source, other or hearers, need one sketch for each source: query a "
                "decaysketch.SourceSet, or an aggregator's stream"
            )
        together = self._modifiers.with_more(modifiers)
        schema = schema_of_sample(self._drawn[0])
        found = modified(self._drawn, together, schema)
        if together.by:
            return GroupedView(found, together, schema, self._drawn)
        if together.versus is None:  # parts are read from the stream's own values
            found = [revalued(sample, together, schema) for sample in found]
        view = SampleView(found)
        view._drawn, view._modifiers = self._drawn, together
        return view

    def _read(self, combine: Combine) -> Sequence[Sample]:
        """Read each hash function by itself only where its own result counts."""
        check_combine(combine)
        return self._pooled if combine == "average" else self.samples


# ------------------------------------------------------------------------------------------- costs

# Processor seconds, measured on one core with 1,000 to 100,000 rows, rounded: of a sample, and of a
# row in it; of an answer; of a row that it reads; of a row put in the order of values; of a row and
# operation of a predicate; of a sampled quantile; of an estimate for each of many values.
_DRAW_S, _DRAW_ROW_S = 1e-4, 10e-9
_ANSWER_S = 2e-4
_ROW_S = 30e-9
_RANKED_ROW_S = 150e-9
_OPERATION_S = 4e-9
_COLUMN_ROW_S = 15e-9
_QUANTILE_S = 1.7e-3
_VALUE_S = 15e-6


def _by_row_s(sample: Sample, _given: Mapping[str, Any]) -> float:
    return _ANSWER_S + len(sample) * _ROW_S


def _relation_s(sample: Sample, columns: int) -> float:
    return 2 * _ANSWER_S + len(sample) * (10 + columns * columns) * _COLUMN_ROW_S


def _quantiles_s(sample: Sample, count: int) -> float:
    each = _ROW_S if sample.exact else _QUANTILE_S
    return _ANSWER_S + len(sample) * _RANKED_ROW_S + count * each


def _selectivity_s(sample: Sample, given: Mapping[str, Any]) -> float:
    predicate = given["predicate"]
    length = len(predicate.text) if isinstance(predicate, ReadPredicate) else 0
    operations = min(MAX_OPERATIONS, length)
    return _by_row_s(sample, given) + len(sample) * operations * _OPERATION_S


def _shares_s(sample: Sample, shares: int) -> float:
    return _ANSWER_S + len(sample) * _RANKED_ROW_S + shares * _VALUE_S


def _hitters_s(sample: Sample, given: Mapping[str, Any]) -> float:
    phi = given["phi"]
    return _shares_s(sample, len(sample) if phi * len(sample) <= 1 else int(1 / phi))


def _groups_s(sample: Sample, given: Mapping[str, Any]) -> float:
    values, limit = len(sample), given["limit"]
    if given["combine"] != "median" and limit is not None:
        values = min(values, limit)
    return _ANSWER_S + 2 * (len(sample) * _RANKED_ROW_S + values * _VALUE_S)


# ------------------------------------------------------------------------------------------ entries

_VALUES = frozenset({"values"})
_NUMBERS = _VALUES | {"numbers"}
_MOST_ROWS = 10_000


def _enter(question: Question[A]) -> Question[A]:
    QUESTIONS[question.name] = question
    return question


def _of_each(samples: Sequence[Sample], ask: Callable[[Sample], A]) -> A:
    """Return a sample's result, or the median of the results of several hash functions."""
    found = [ask(sample) for sample in samples]
    return found[0] if len(found) == 1 else ensemble.median(found)


def _scalar(
    name: str, doc: str, ask: Callable[..., Estimate], *arguments: Argument,
    needs: frozenset[str] = frozenset(), cost_s: Any = _by_row_s, **more: Any,
) -> Question[Estimate]:  # fmt: skip
    """Enter a query that returns one estimate, from one sample."""

    def answer(samples: Sequence[Sample], *, confidence: float, **given: Any) -> Estimate:
        return _of_each(samples, partial(ask, confidence=confidence, **given))

    return _enter(
        Question(
            name,
            doc,
            answer,
            cost_s,
            SCALAR,
            lambda found, _: {"estimate": found},
            arguments,
            needs,
            **more,
        )
    )


_SUM = _scalar(
    "sum", "Decayed sum of weights. In the family `sum`, decayed sum of values.", aggregates.sum,
    needs=frozenset({"weights"}), compared=True,
)  # fmt: skip
_COUNT = _scalar(
    "count", "Decayed number of distinct observations, with or without a value.", aggregates.count,
    compared=True,
)  # fmt: skip
_RATE = _scalar(
    "rate",
    "Observations per unit of time: the decayed count divided by the integral of the decay over "
    "all its ages.",
    aggregates.rate,
    needs=frozenset({"chosen decay"}),
    compared=True,
)
_TOTAL = _scalar(
    "total",
    "Decayed sum of values, without missing ones.",
    aggregates.total,
    Argument(
        "function",
        "function",
        "Any real function of the columns of values and weights. It replaces the values in the "
        "sum.",
        default=None,
        leading=True,
    ),
    needs=_NUMBERS,
    compared=True,
)
_MEAN = _scalar(
    "mean", "Mean of the values, by decayed weight.", aggregates.mean, needs=_NUMBERS,
    compared=True,
)  # fmt: skip
_VARIANCE = _scalar(
    "variance", "Variance of the values, by decayed weight.", aggregates.variance,
    needs=_NUMBERS,
)  # fmt: skip
_STDDEV = _scalar(
    "stddev",
    "Standard deviation of the values, by decayed weight: the root of the variance.",
    aggregates.stddev,
    needs=_NUMBERS,
)
_MEDIAN = _scalar(
    "median", "The smallest value with a relative rank of 1/2 or more.",
    partial(aggregates.quantile, q=0.5), needs=_NUMBERS,
    cost_s=lambda sample, _: _quantiles_s(sample, 1),
)  # fmt: skip


def _relating(name: str, doc: str, of: Callable[..., Any], said: str) -> Question[Estimate]:
    """Enter a query about two columns."""
    return _scalar(
        name, doc, relations.alone(of),
        Argument(
            "columns", "column", said, "yes", fewest=2, longest=2, leading=True,
            example=["v", "age"],
        ),
        cost_s=lambda sample, _: _relation_s(sample, 2),
        check=lambda given: relations.fault_of_columns(given["columns"], 2, 2),
    )  # fmt: skip


_RATIO = _relating(
    "ratio", "Decayed sum of one column divided by the decayed sum of another.", relations.ratio,
    "Two columns, or expressions over columns: the numerator and the denominator.",
)  # fmt: skip
_COVARIANCE = _relating(
    "covariance", "Covariance of two columns, weighted by decayed weight.", relations.covariance,
    "Two columns, or expressions over columns.",
)  # fmt: skip
_CORRELATION = _relating(
    "correlation", "Pearson's correlation of two columns, weighted by decayed weight.",
    relations.correlation, "Two columns, or expressions over columns.",
)  # fmt: skip


def _terms(found: list[Estimate], given: Mapping[str, Any]) -> dict[str, Any]:
    terms = ["intercept", *given["columns"][1:]]
    return {
        "coefficients": [
            {"term": term, "estimate": each} for term, each in zip(terms, found, strict=True)
        ]
    }


_REGRESSION = _enter(
    Question(
        "regression",
        "Linear regression of a column on others by least squares, weighted by decayed weight: the "
        "intercept, then the slope of each other column.",
        lambda samples, columns, *, confidence: _of_each(
            samples,
            lambda s: relations.alone(relations.regression)(s, columns, confidence=confidence),
        ),
        lambda sample, given: _relation_s(sample, len(given["columns"])),
        Shape(
            "Regression",
            "The intercept, then the coefficients in the order of the columns.",
            Rows(
                "coefficients",
                "CoefficientEstimate",
                "One coefficient.",
                (
                    Column("term", "key", "`intercept`, or the column."),
                    Column("estimate", "estimate", label="coefficient of {term}"),
                ),
                each="columns",
            ),
        ),
        _terms,
        (
            Argument(
                "columns",
                "column",
                "The explained column, then the columns that explain it.",
                "yes",
                fewest=2,
                longest=relations.MOST_COLUMNS,
                leading=True,
                example=["v", "age", "age ** 2"],
            ),
        ),
        check=lambda given: relations.fault_of_columns(given["columns"], 2, relations.MOST_COLUMNS),
        most=lambda given: len(given["columns"]),
    )
)


def _each(ask: Callable[..., list[Estimate]], name: str) -> Callable[..., list[Estimate]]:
    """Return the result for a query that has an estimate for each entry in an argument."""

    def answer(samples: Sequence[Sample], *, confidence: float, **given: Any) -> list[Estimate]:
        entries = given[name]
        return _of_each(samples, lambda s: ask(s, entries, confidence=confidence))

    return answer


def _by_entry(
    name: str,
    doc: str,
    ask: Callable[..., list[Estimate]],
    argument: Argument,
    cost_s: Callable[[Sample, int], float],
    shape: str,
    said: str,
    rows: Rows,
) -> Question[list[Estimate]]:
    """Enter a query about values that has an estimate for each entry in its one argument. The first
    column of ``rows`` is the entry.
    """
    entries, (entry, estimate) = argument.name, rows.columns
    return _enter(
        Question(
            name,
            doc,
            _each(ask, entries),
            lambda sample, given: cost_s(sample, len(given[entries])),
            Shape(shape, said, rows),
            lambda found, given: {
                rows.name: [
                    {entry.name: asked, estimate.name: each}
                    for asked, each in zip(given[entries], found, strict=True)
                ]
            },
            (argument,),
            _NUMBERS,
            most=lambda given: len(given[entries]),
        )
    )


_QUANTILE = _by_entry(
    "quantile",
    "The smallest value with a relative rank of `q` or more, for one `q` or several.",
    aggregates.quantile,
    Argument(
        "q", "share", "A number in [0, 1], or a list of them.", "either", 0.0, 1.0,
        leading=True, example=[0.1, 0.5, 0.9],
    ),
    _quantiles_s,
    "Quantile",
    "Quantiles, in the order of the query.",
    Rows(
        "quantiles",
        "QuantileEstimate",
        "One quantile.",
        (Column("q", "float"), Column("estimate", "estimate", label="quantile {q}")),
        each="q",
    ),
)  # fmt: skip

_RANK = _scalar(
    "rank",
    "Share of the decayed weight with values up to a given one.",
    aggregates.rank,
    Argument("value", "number", "A value.", leading=True, json="v", example=20),
    needs=_NUMBERS,
    compared=True,
)

_CDF = _by_entry(
    "cdf",
    "The rank of each of several values. All intervals hold at once with the stated confidence.",
    aggregates.cdf,
    Argument("points", "number", "Values.", "yes", leading=True, json="v", example=[10, 20, 30]),
    _shares_s,
    "Cdf",
    "Ranks, in the order of the query.",
    Rows(
        "ranks",
        "RankEstimate",
        "The rank of one value.",
        (Column("v", "number"), Column("estimate", "estimate", label="rank of {v}")),
        each="points",
    ),
)


def _selected(
    sample: Sample, predicate: Predicate | None, at_least: float | None, at_most: float | None,
    *, confidence: float,
) -> Estimate:  # fmt: skip
    holds = aggregates.within(at_least, at_most) if predicate is None else predicate
    return aggregates.selectivity(sample, holds, confidence=confidence)


def _one_kind_of_bound(given: Mapping[str, Any]) -> str | None:
    bounded = given["at_least"] is not None or given["at_most"] is not None
    if bounded == (given["predicate"] is not None):
        return "give at_least, at_most or both, or a predicate"
    return None


_SELECTIVITY = _scalar(
    "selectivity",
    "Share of the decayed weight with a value within bounds, or that satisfies a predicate.",
    _selected,
    Argument(
        "at_least",
        "number",
        "The smallest value. Give this, `at_most`, or both, or a predicate.",
        default=None,
    ),
    Argument("at_most", "number", "The largest value.", default=None),
    Argument(
        "predicate",
        "predicate",
        "A condition on the value `v` and the weight `w`: decimal numbers, `+ - * / // % **`, "
        "`abs min max`, `< <= > >= == !=`, `and or not`. It is parsed, never executed.",
        longest=MAX_TEXT,
        default=None,
        leading=True,
        example="v / w > 2 and not v > 100",
    ),
    cost_s=_selectivity_s,
    check=_one_kind_of_bound,
    sql="selectivity",
)


def _hitters(
    samples: Sequence[Sample], phi: float, limit: int | None, *, confidence: float
) -> list[HeavyHitter]:
    if len(samples) > 1:
        return ensemble.heavy_hitters(samples, phi, confidence=confidence)[:limit]
    return aggregates.heavy_hitters(samples[0], phi, confidence=confidence)[:limit]


_HEAVY_HITTERS = _enter(
    Question(
        "heavy_hitters",
        "Values with more than the share `phi` of the decayed weight, heaviest first.",
        _hitters,
        _hitters_s,
        Shape(
            "HeavyHitters",
            "The values with a share above phi, heaviest first.",
            Rows(
                "heavy_hitters",
                "HeavyHitterModel",
                "A value and its share of the decayed weight.",
                (
                    Column("value", "number", sql="item"),
                    Column("frequency", "estimate", label="share of {value}", sql="share"),
                ),
            ),
        ),
        lambda found, _: {"heavy_hitters": [each._asdict() for each in found]},
        (
            Argument(
                "phi",
                "share",
                "A share, at least 0 and below 1.",
                least=0.0,
                below=1.0,
                leading=True,
                example=0.05,
            ),
            Argument(
                "limit",
                "integer",
                "Maximum number of entries, heaviest first.",
                least=1,
                most=_MOST_ROWS,
                default=None,
                served=_MOST_ROWS,
            ),
        ),
        _VALUES,
        most=lambda given: (
            given["limit"] if given["phi"] * given["limit"] <= 1 else int(1 / given["phi"])
        ),
        sql="heavy_hitters",
    )
)


class Groups(NamedTuple):
    """The heaviest groups, and the number of distinct values in the sample."""

    groups: list[aggregates.Group]
    total: int


def _groups(samples: Sequence[Sample], limit: int | None, *, confidence: float) -> Groups:
    if len(samples) > 1:
        groups = ensemble.group_by(samples, confidence=confidence)
        return Groups(groups[:limit], len(groups))
    (sample,) = samples
    groups = aggregates.group_by(sample, limit=limit, confidence=confidence)
    return Groups(groups, len(sample.of_values.ranking.values))


_GROUP_BY = _enter(
    Question(
        "group_by",
        "Decayed sum and count of each distinct value, heaviest first.",
        _groups,
        _groups_s,
        Shape(
            "GroupBy",
            "The heaviest values, heaviest first.",
            Rows(
                "groups",
                "GroupModel",
                "A value, the decayed sum of the weights of its observations, and their decayed "
                "count.",
                (
                    Column("value", "number", sql="item"),
                    Column("sum", "estimate", label="sum of {value}"),
                    Column("count", "estimate", label="count of {value}"),
                ),
            ),
            (Column("total_groups", "integer", "Distinct values in the sample, listed or not."),),
        ),
        lambda found, _: {
            "groups": [
                {"value": each.value, "sum": each.sum, "count": each.count} for each in found.groups
            ],
            "total_groups": found.total,
        },
        (
            Argument(
                "limit",
                "integer",
                "Maximum number of entries, heaviest first.",
                least=1,
                most=_MOST_ROWS,
                default=None,
                served=100,
            ),
        ),
        _VALUES,
        most=lambda given: 2 * given["limit"],
    )
)


def _histogram(
    samples: Sequence[Sample], edges: Sequence[float], *, confidence: float
) -> Histogram:
    def shares(sample: Sample) -> list[Estimate]:
        found = aggregates.histogram(sample, edges, confidence=confidence)
        return [found.below, *(each.share for each in found.bins), found.above]

    below, *inside, above = _of_each(samples, shares)
    bins = map(aggregates.Bin, edges[:-1], edges[1:], inside)
    return Histogram(list(bins), below, above)


_HISTOGRAM = _enter(
    Question(
        "histogram",
        "Shares of the decayed weight by value: for each bin between `edges`, with its lower "
        "edge and without its upper one (the last bin has both), and for values below and above "
        "all bins. All intervals hold at once with the stated confidence.",
        _histogram,
        lambda sample, given: _shares_s(sample, len(given["edges"]) + 1),
        Shape(
            "Histogram",
            "Shares of bins, in rising order.",
            Rows(
                "bins",
                "BinModel",
                "The share of the decayed weight of values in a bin.",
                (
                    Column("low", "number"),
                    Column("high", "number"),
                    Column("share", "estimate", label="share of {low} to {high}"),
                ),
            ),
            (
                Column("below", "estimate", "Share of values below the first edge.", "share below"),
                Column("above", "estimate", "Share of values above the last edge.", "share above"),
            ),
        ),
        lambda found, _: {
            "bins": [each._asdict() for each in found.bins],
            "below": found.below,
            "above": found.above,
        },
        (
            Argument(
                "edges",
                "number",
                "Two or more numbers, rising.",
                "yes",
                fewest=2,
                leading=True,
                example=[0, 10, 20, 30],
            ),
        ),
        _NUMBERS,
        check=lambda given: aggregates.unordered(given["edges"]),
        most=lambda given: len(given["edges"]) + 1,
    )
)

_LAST = _enter(
    Question(
        "last",
        "The latest observation that counts, by time and then by value. Always exact: the query "
        "is rejected if the observation may have been discarded.",
        lambda samples, *, confidence: aggregates.last(pool(samples)),
        _by_row_s,
        Shape(
            "Last",
            "The latest observation.",
            Rows(
                "last",
                "ObservationModel",
                "A value, or null if it is missing, and its time.",
                (Column("value", "number", nullable=True), Column("time", "time")),
                single=True,
            ),
        ),
        lambda found, _: {"last": [] if found is None else [found._asdict()]},
        needs=frozenset(),
    )
)

for _of_others in (*KEY_QUESTIONS, *EXTREME_QUESTIONS, *SERIES_QUESTIONS, *SOURCE_QUESTIONS):
    _enter(_of_others)


# ----------------------------------------------------------------------------------------- methods


class How(TypedDict, total=False):
    """Keywords that every query accepts. See :meth:`View.ask`."""

    confidence: float
    combine: Combine
    estimator: str
    where: str | None
    of: str | None
    by: str | Sequence[str] | None
    weight: str | None
    groups: int | None
    order: Order
    versus: str | None
    how: Comparison


_HOW = (
    ("confidence", 0.95, "float"),
    ("combine", "average", "Combine"),
    ("estimator", "stratified", "str"),
    ("where", None, "str | None"),
    ("of", None, "str | None"),
    ("by", None, "str | Sequence[str] | None"),
    ("weight", None, "str | None"),
    ("groups", None, "int | None"),
    ("order", "largest", "Order"),
    ("versus", None, "str | None"),
    ("how", "difference", "Comparison"),
)


def modifiers_of(how: Mapping[str, Any]) -> Modifiers:
    """Return the modifiers among a query's keywords.

    Raises:
        ParameterError: see :class:`~decaysketch.query.modifiers.Modifiers`.
    """
    by = how.get("by") or ()
    return Modifiers(
        of=how.get("of"), by=by, where=how.get("where"),
        weight=how.get("weight"), limit=how.get("groups"), order=how.get("order", "largest"),
        versus=how.get("versus"), how=how.get("how", "difference"),
    )  # fmt: skip


def _asks(question: Question[Any]) -> Callable[[F], F]:
    said = (
        "``now``, ``confidence``, ``combine`` and ``estimator``: see ``at`` and\n"
        ":meth:`decaysketch.query.dispatch.View.ask`. ``where``, ``of`` and ``weight``: see\n"
        ":meth:`decaysketch.query.dispatch.View.given`. ``by`` (keys), ``groups`` (how many are\n"
        "listed) and ``order``: see :meth:`decaysketch.query.dispatch.View.by`. With ``by`` the\n"
        "result is a :class:`decaysketch.GroupTable`. ``versus`` (a condition) and ``how``\n"
        "compare two parts: see :meth:`decaysketch.query.dispatch.View.versus`."
    )
    return asked_by(question, _HOW, said)


class AskedOfSamples(Views):
    """A sketch that samples are drawn from."""

    def _ask(
        self,
        question: Question[A],
        decay: Decay | str | None,
        now: Instant | None,
        how: How,
        **arguments: Any,
    ) -> A:
        check_how(question, how, How.__annotations__)
        estimator = how.get("estimator", "stratified")
        confidence, combine = how.get("confidence", 0.95), how.get("combine", "average")
        modifiers = modifiers_of(how)
        asked: Any = modified_question(question, modifiers)
        view = self.at(decay, now, estimator=estimator)
        found: Any = view.modified(modifiers).ask(
            asked, confidence=confidence, combine=combine, **arguments
        )
        if isinstance(found, Estimate):
            found = self._remembered(found, asked, view.now, decay, how, modifiers, arguments)
        answered: A = as_of(view.now, found) if now is None else found
        return answered

    def _remembered(
        self, found: Estimate, question: Question[Any], now: int, decay: Decay | str | None,
        how: How, modifiers: Modifiers, arguments: Mapping[str, Any],
    ) -> Estimate:  # fmt: skip
        """Return an estimate that remembers its query, for differences."""
        sketch = getattr(self, "snapshot", lambda: self)()
        options = {name: how.get(name, default) for name, default, _ in _HOW[:3]}
        if isinstance(decay, str):
            decay = parse(decay, sketch.params.time_unit)
        asked = Remembered(ref(sketch), question, dict(arguments), modifiers, decay, now, options)
        return replace(found, asked=asked)

    def _compare_parts(
        self, aggregate: str, decay: Decay | str | None, now: Instant | None, versus: str,
        how: Comparison, more: dict[str, Any],
    ) -> Any:  # fmt: skip
        """Compare an aggregate of two parts of the rows at one time."""
        question = check_compared(aggregate)
        view = {name: more.pop(name) for name in How.__annotations__ if name in more}
        return self._ask(
            question, decay, now, cast(How, view | {"versus": versus, "how": how}), **more
        )

    def over_time(
        self,
        aggregate: str,
        decay: Decay | str | None = None,
        *,
        times: Sequence[Instant],
        **more: Any,
    ) -> TimeTable:
        """Query an aggregate at several times, for a time series.

        Args:
            aggregate: the query, such as "mean".
            decay: the decay. None for a sketch with a fixed decay.
            times: the query times.
            more: keywords of the query: arguments, ``where``, ``of``, ``by``, ``confidence`` and
                others. See :meth:`decaysketch.query.dispatch.View.given`.

        Returns:
            A :class:`~decaysketch.query.over_time.TimeTable`, with ``to_frame`` and ``plot``.

        Raises:
            ParameterError, UnanswerableQueryError: see :meth:`decaysketch.query.dispatch.View.ask`.

        Example:
            >>> import decaysketch as ds
            >>> sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, capacity=100))
            >>> sketch.update([1.0, 3.0, 8.0], 1, [1, 2, 12], [1, 2, 3])
            >>> [each.value for each in sketch.over_time("mean", "window(5)", times=[5, 15])]
            [2.0, 8.0]
        """
        how = cast("How", {name: more.pop(name) for name in How.__annotations__ if name in more})
        question = modified_question(aggregate, modifiers_of(how))
        found = [
            (self.moment(time), self._ask(question, decay, time, how, **more)) for time in times
        ]
        unit: str = self.params.time_unit
        moments, answers = [time for time, _ in found], [answer for _, answer in found]
        return TimeTable(question, dict(more), moments, answers, unit)

    def _ask_each(
        self,
        question: Question[list[Estimate]],
        decay: Decay | str | None,
        now: Instant | None,
        how: How,
        **arguments: Any,
    ) -> Any:
        """Return one estimate if one was requested."""
        (given,) = arguments.values()
        found: Any = self._ask(question, decay, now, how, **arguments)
        if isinstance(found, GroupTable):
            return found
        return found[0] if np.ndim(given) == 0 else found


class Asked(AskedOfSamples):
    """Queries to every sketch that accepts a decay per query."""

    @_asks(_COUNT)
    def count(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_COUNT, decay, now, how)

    def between(self, start: Instant, stop: Instant) -> Between:
        """Return the view for the observations in ``[start, stop)``, as in ``between(a,
        b).mean()``.

        Each query is the same as under ``window(b - 1 - a)`` at time ``b - 1``.

        Raises:
            ParameterError: an argument is no time, or the end is not after the beginning.
        """
        return Between(self, self.moment(start), self.moment(stop))

    def compare(
        self,
        aggregate: str,
        decay: Decay | str = "none",
        *,
        now: Instant | tuple[Decay | str, Instant | None] | None = None,
        then: tuple[Decay | str, Instant | timedelta | None] | None = None,
        versus: str | None = None,
        how: Comparison = "difference",
        **more: Any,
    ) -> Any:
        """Compare an aggregate of two parts of the rows, or at two moments, from one sample.

        Args:
            aggregate: "count", "rate", "sum", "total", "mean", or "rank" with a ``value``.
            decay: the decay. Default: none, all observations count.
            now: the time, or both decay and time. None is the newest time.
            then: the moment to compare with, a decay and a time. The time may be a length, "1d" or
                a ``timedelta``: that long before ``now``.
            versus: the condition for the rows to compare with, such as "variant == 'A'". None: the
                same rows.
            how: "difference" (the first less the second) or "ratio" (the first over the second, of
                values that are not negative).
            more: ``where``, a condition for the rows on the first side, ``of``, the compared
                values, ``confidence``, ``combine``, ``estimator``, and arguments of the aggregate.
                Without ``then`` also ``weight``, ``by``, ``groups`` and ``order``. See
                :meth:`decaysketch.query.dispatch.View.given`.

        Returns:
            The difference or ratio. ``changed`` is true if 0, or 1, lies outside its interval. With
            ``by`` a :class:`decaysketch.GroupTable`.

        Raises:
            ParameterError: an aggregate that cannot be compared, or neither ``then`` nor
                ``versus``. The message names an alternative.
            UnanswerableQueryError: the sketch cannot answer at one of the moments.

        Example:
            >>> import decaysketch as ds
            >>> sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, capacity=100))
            >>> sketch.update([1.0, 3.0, 8.0, 10.0], 1, [1, 2, 11, 12], [1, 2, 3, 4])
            >>> sketch.compare("mean", where="v > 5", versus="v < 5")
            Estimate(7, exact, 4 rows, now=12)
            >>> sketch.compare("mean", now=("window(5)", 12), then=("window(5)", 2))
            Estimate(7, exact, 4 rows)
        """
        first: tuple[Decay | str, Instant | None] = now if isinstance(now, tuple) else (decay, now)
        if then is not None:
            pair: PairView = self.against(first, then)
            return pair.ask(aggregate, how, versus=versus, **more)
        if versus is None:
            raise ParameterError(
                "compare has neither versus nor then: give versus, the condition of the rows to "
                "compare with, or then, a decay and a time"
            )
        return self._compare_parts(aggregate, *first, versus, how, more)

    @_asks(_RATE)
    def rate(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_RATE, decay, now, how)

    @_asks(_LAST)
    def last(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Last | None:
        return self._ask(_LAST, decay, now, how)

    @_asks(_SELECTIVITY)
    def selectivity(
        self,
        predicate: Predicate | str,
        decay: Decay | str,
        *,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> Estimate:
        return self._ask(_SELECTIVITY, decay, now, how, predicate=predicate)

    @_asks(_RATIO)
    def ratio(
        self, x: str, y: str, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_RATIO, decay, now, how, columns=[x, y])

    @_asks(_COVARIANCE)
    def covariance(
        self, x: str, y: str, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_COVARIANCE, decay, now, how, columns=[x, y])

    @_asks(_CORRELATION)
    def correlation(
        self, x: str, y: str, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_CORRELATION, decay, now, how, columns=[x, y])

    @_asks(_REGRESSION)
    def regression(
        self,
        columns: Sequence[str],
        decay: Decay | str,
        *,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> list[Estimate]:
        return self._ask(_REGRESSION, decay, now, how, columns=columns)


class AskedOfWeights(Asked):
    """Queries about weights."""

    @_asks(_SUM)
    def sum(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_SUM, decay, now, how)


class AskedOfValues(Asked):
    """Queries about values."""

    @overload
    def total(
        self, decay: Decay | str, /, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate: ...

    @overload
    def total(
        self,
        function: Function,
        decay: Decay | str,
        /,
        *,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> Estimate: ...

    @overload
    def total(
        self,
        function: Function | None = None,
        /,
        *,
        decay: Decay | str,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> Estimate: ...

    @_asks(_TOTAL)
    def total(
        self,
        first: Decay | str | Function | None = None,
        second: Decay | str | None = None,
        /,
        *,
        decay: Decay | str | None = None,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> Estimate:
        """Return a decayed sum. ``total(decay, now=)`` sums the values. ``total(function, decay,
        now=)`` sums any real function over the value and weight columns. Missing values are absent.
        """
        if isinstance(first, Decay | str) and second is None and decay is None:
            return self._ask(_TOTAL, first, now, how)
        chosen = second if decay is None else decay
        if not isinstance(chosen, Decay | str) or isinstance(first, Decay | str):
            raise ParameterError(
                f"decay is {first if chosen is None else chosen!r}; expected a Decay"
            )
        return self._ask(_TOTAL, chosen, now, how, function=first)

    @_asks(_MEAN)
    def mean(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_MEAN, decay, now, how)

    @_asks(_VARIANCE)
    def variance(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_VARIANCE, decay, now, how)

    @_asks(_STDDEV)
    def stddev(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_STDDEV, decay, now, how)

    @_asks(_MEDIAN)
    def median(
        self, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_MEDIAN, decay, now, how)

    @overload
    def quantile(
        self, q: float, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate: ...

    @overload
    def quantile(
        self,
        q: Sequence[float],
        decay: Decay | str,
        *,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> list[Estimate]: ...

    @_asks(_QUANTILE)
    def quantile(
        self, q: Any, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Any:
        return self._ask_each(_QUANTILE, decay, now, how, q=q)

    @_asks(_RANK)
    def rank(
        self, value: float, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_RANK, decay, now, how, value=value)

    @_asks(_CDF)
    def cdf(
        self,
        points: Sequence[float],
        decay: Decay | str,
        *,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> list[Estimate]:
        return self._ask(_CDF, decay, now, how, points=points)

    @_asks(_HEAVY_HITTERS)
    def heavy_hitters(
        self, phi: float, decay: Decay | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> list[HeavyHitter]:
        return self._ask(_HEAVY_HITTERS, decay, now, how, phi=phi)

    @_asks(_GROUP_BY)
    def group_by(
        self,
        decay: Decay | str,
        *,
        now: Instant | None = None,
        limit: int | None = None,
        **how: Unpack[How],
    ) -> list[aggregates.Group]:
        found: Any = self._ask(_GROUP_BY, decay, now, how, limit=limit)
        return found if isinstance(found, GroupTable) else found.groups  # type: ignore[return-value]

    @_asks(_HISTOGRAM)
    def histogram(
        self,
        edges: Sequence[float],
        decay: Decay | str,
        *,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> Histogram:
        return self._ask(_HISTOGRAM, decay, now, how, edges=edges)


class AskedOfItsDecay(AskedOfSamples):
    """Queries to a sketch whose decay was fixed when it was built."""

    @_asks(_SUM)
    def sum(self, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_SUM, None, now, how)

    @_asks(_COUNT)
    def count(self, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_COUNT, None, now, how)

    def compare(
        self,
        aggregate: str,
        *,
        now: Instant | None = None,
        versus: str | None = None,
        how: Comparison = "difference",
        **more: Any,
    ) -> Any:
        """Compare an aggregate of two parts of the rows at one time, from one sample.

        Two times cannot be compared, because rows that expired before the later time are dropped.

        Args:
            aggregate: "count", "sum", "total", "mean", or "rank" with a ``value``.
            now: the time. None is the newest time.
            versus: the condition for the rows to compare with, such as "variant == 'A'".
            how, more: as in :meth:`Asked.compare`.

        Returns:
            The difference or ratio. ``changed`` is true if 0, or 1, lies outside its interval.

        Raises:
            ParameterError: an aggregate that cannot be compared, no ``versus``, or ``then``.
            UnanswerableQueryError: a time before the clock.
        """
        if "then" in more:
            raise ParameterError(
                f"then is {more['then']!r:.80}, but the decay was fixed when this sketch was "
                "built, and the sketch has dropped observations that expired since: give versus, "
                "the condition of the rows to compare with"
            )
        if versus is None:
            raise ParameterError(
                "compare has no versus: give the condition of the rows to compare with"
            )
        return self._compare_parts(aggregate, None, now, versus, how, more)

    @_asks(_LAST)
    def last(self, *, now: Instant | None = None, **how: Unpack[How]) -> Last | None:
        return self._ask(_LAST, None, now, how)

    @_asks(_SELECTIVITY)
    def selectivity(
        self, predicate: Predicate | str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_SELECTIVITY, None, now, how, predicate=predicate)

    @_asks(_TOTAL)
    def total(
        self, function: Function | None = None, /, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_TOTAL, None, now, how, function=function)

    @_asks(_MEAN)
    def mean(self, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_MEAN, None, now, how)

    @_asks(_VARIANCE)
    def variance(self, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_VARIANCE, None, now, how)

    @_asks(_STDDEV)
    def stddev(self, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_STDDEV, None, now, how)

    @_asks(_MEDIAN)
    def median(self, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_MEDIAN, None, now, how)

    @overload
    def quantile(self, q: float, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate: ...

    @overload
    def quantile(
        self, q: Sequence[float], *, now: Instant | None = None, **how: Unpack[How]
    ) -> list[Estimate]: ...

    @_asks(_QUANTILE)
    def quantile(self, q: Any, *, now: Instant | None = None, **how: Unpack[How]) -> Any:
        return self._ask_each(_QUANTILE, None, now, how, q=q)

    @_asks(_RANK)
    def rank(self, value: float, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_RANK, None, now, how, value=value)

    @_asks(_CDF)
    def cdf(
        self, points: Sequence[float], *, now: Instant | None = None, **how: Unpack[How]
    ) -> list[Estimate]:
        return self._ask(_CDF, None, now, how, points=points)

    @_asks(_HEAVY_HITTERS)
    def heavy_hitters(
        self, phi: float, *, now: Instant | None = None, **how: Unpack[How]
    ) -> list[HeavyHitter]:
        return self._ask(_HEAVY_HITTERS, None, now, how, phi=phi)

    @_asks(_GROUP_BY)
    def group_by(
        self, *, now: Instant | None = None, limit: int | None = None, **how: Unpack[How]
    ) -> list[aggregates.Group]:
        found: Any = self._ask(_GROUP_BY, None, now, how, limit=limit)
        return found if isinstance(found, GroupTable) else found.groups  # type: ignore[return-value]

    @_asks(_HISTOGRAM)
    def histogram(
        self, edges: Sequence[float], *, now: Instant | None = None, **how: Unpack[How]
    ) -> Histogram:
        return self._ask(_HISTOGRAM, None, now, how, edges=edges)

    @_asks(_RATIO)
    def ratio(self, x: str, y: str, *, now: Instant | None = None, **how: Unpack[How]) -> Estimate:
        return self._ask(_RATIO, None, now, how, columns=[x, y])

    @_asks(_COVARIANCE)
    def covariance(
        self, x: str, y: str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_COVARIANCE, None, now, how, columns=[x, y])

    @_asks(_CORRELATION)
    def correlation(
        self, x: str, y: str, *, now: Instant | None = None, **how: Unpack[How]
    ) -> Estimate:
        return self._ask(_CORRELATION, None, now, how, columns=[x, y])

    @_asks(_REGRESSION)
    def regression(
        self,
        columns: Sequence[str],
        *,
        now: Instant | None = None,
        **how: Unpack[How],
    ) -> list[Estimate]:
        return self._ask(_REGRESSION, None, now, how, columns=columns)


class Between(AskedOfItsDecay):
    """Queries to the observations in ``[start, stop)``.

    Args:
        sketch: the sketch.
        start, stop: times in its unit.

    Raises:
        ParameterError: the end is not after the beginning.
    """

    def __init__(self, sketch: Views, start: int, stop: int) -> None:
        width, self._now = range_moment(start, stop)
        self._sketch, self._window, self._length = sketch, window(width), stop - start

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        estimator: Any = "stratified",
    ) -> View:
        if decay is not None or now not in (None, self._now):
            raise ParameterError("a range replaces decay and time: give neither")
        return RangeView(
            self._sketch.at(self._window, self._now, estimator=estimator), self._length
        )

    def _ask(
        self,
        question: Question[A],
        decay: Decay | str | None,
        now: Instant | None,
        how: How,
        **arguments: Any,
    ) -> A:
        if question.name not in self._sketch.questions:
            raise ParameterError(f"a {type(self._sketch).__name__} has no {question.name}")
        if now is not None:
            raise ParameterError(f"now is {now!r}; a range replaces the time: give none")
        return super()._ask(question, decay, self._now, how, **arguments)

    @_asks(_RATE)
    def rate(self, **how: Unpack[How]) -> Estimate:
        """Return observations per time unit: their count over the range length."""
        return self._ask(_RATE, None, None, how)
