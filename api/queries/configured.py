"""Configured queries as they travel, and their results as Prometheus reads them.

A scrape runs queries that were defined beforehand, never free text: its cost is bounded, and its
labels are stable. Every estimate is a sample in five gauges, ``decaysketch_answer`` and the same
with ``_lower``, ``_upper``, ``_stderr`` and ``_exact``. A value that JSON has no number for is
infinite, or NaN. A query that cannot be answered now is skipped, and one more gauge reports it, so
that one bad query does not blind the scrape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from prometheus_client.core import Metric
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.queries.requests import AnyQuery, QueryRequest, spelled_out
from api.queries.tables import rows_of
from api.schemas import RequestModel
from api.service.group_labels import label_name, label_of, label_of_key
from api.service.scrape_metrics import text_of
from decaysketch.query.catalog import QUESTIONS

__all__ = ["MOST_ESTIMATES", "QuestionDefinition", "exposition", "read_query"]

MOST_ESTIMATES = 40
"""Maximum estimates in one query: 20 values with sum and count."""

MOST_GROUPS = 100
"""Maximum estimates in one query with groups."""

_GROUPS = 20  # of a question that does not say how many

_DEFAULT_SET = "default"
_GAUGES = {
    "": "Result of a saved query: the estimate.",
    "_lower": "Result of a saved query: lower bound of its interval.",
    "_upper": "Result of a saved query: upper bound of its interval.",
    "_stderr": "Result of a saved query: standard error.",
    "_exact": "Result of a saved query: 1 if exact.",
}
_CAVEAT = "decaysketch_answer_caveat"
#: Prometheus labels of row keys, by their names in the result. The label ``quantile`` is reserved
#: for summaries.
_LABELS = {"v": "value", "low": "bin"}


class QuestionDefinition(RequestModel):
    """A saved query, evaluated at the time of each scrape."""

    query: AnyQuery = Field(
        description="An entry of `queries` in a request, without `now`, `times` and `name`."
    )
    set: str = Field(
        default=_DEFAULT_SET,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Prometheus can scrape the queries of one set without the others.",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_spelled_out(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or "query" not in fields:
            return fields
        query = spelled_out(fields["query"])
        if isinstance(query, dict) and query.get("by"):
            query = {"groups": _GROUPS} | query
        return fields | {"query": query}

    @model_validator(mode="before")
    @classmethod
    def _is_no_bare_query(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "aggregate" in fields and "query" not in fields:
            raise PydanticCustomError(
                "bare_query", 'is the query alone; expected it as {"query": {...}}'
            )
        return fields

    @model_validator(mode="after")
    def _is_of_now_and_short(self) -> Self:
        if not self.query.is_of_now or self.query.name is not None:
            raise PydanticCustomError(
                "no_scrape",
                "a saved query has its own name and runs at each scrape: omit now, times and name",
            )
        most = MOST_GROUPS if self.query.by else MOST_ESTIMATES
        if (found := self.query.estimates) > most:
            raise PydanticCustomError(
                "too_long",
                "the result may have {found} estimates; expected at most {most} in a scrape: give "
                "a smaller limit, fewer values, or fewer groups",
                {"found": found, "most": most},
            )
        return self

    def text(self) -> str:
        """The query as JSON, without unset fields."""
        return self.query.model_dump_json(exclude_unset=True)


def read_query(text: str) -> AnyQuery:
    """Read the result of :meth:`QuestionDefinition.text`."""
    (query,) = QueryRequest.model_validate({"queries": [json.loads(text)]}).queries
    return query


def exposition(
    stream: str,
    answers: Sequence[tuple[str, Mapping[str, Any]]],
    errors: Sequence[tuple[str, str]],
) -> bytes:
    """Return result samples in the text format.

    Args:
        stream: its name.
        answers: name of the query and the result, as JSON.
        errors: name of a query that was not answered, and the kind of problem.
    """
    gauges = {end: Metric(f"decaysketch_answer{end}", doc, "gauge") for end, doc in _GAUGES.items()}
    caveats = Metric(_CAVEAT, "Result of a saved query: its caveats, 1 each.", "gauge")
    for name, answer in answers:
        for labels, numbers, names in _samples(name, answer):
            said = {"stream": stream, **labels}
            for end, number in numbers.items():
                gauges[end].add_sample(f"decaysketch_answer{end}", said, number)
            for each in names:
                caveats.add_sample(_CAVEAT, said | {label_name("caveat", said): each}, 1.0)
    failed = Metric("decaysketch_answer_error", "A saved query without a result.", "gauge")
    for name, reason in errors:
        labels = {"stream": stream, "query": name, "reason": reason}
        failed.add_sample("decaysketch_answer_error", labels, 1.0)
    asked = Metric("decaysketch_answer_questions", "Configured questions scraped.", "gauge")
    count = float(len(answers) + len(errors))
    asked.add_sample("decaysketch_answer_questions", {"stream": stream}, count)
    return text_of([*gauges.values(), caveats, _unseen(stream, answers), failed, asked])


def _unseen(stream: str, answers: Sequence[tuple[str, Mapping[str, Any]]]) -> Metric:
    found = Metric(
        "decaysketch_answer_unseen",
        "For a saved query with groups: no group without a retained row has a larger count.",
        "gauge",
    )
    for name, answer in answers:
        if "by" in answer:
            labels = {"stream": stream, "query": name, "aggregate": answer["aggregate"]}
            most = _end(answer["unseen_at_most"], math.inf)
            found.add_sample("decaysketch_answer_unseen", labels, most)
    return found


def _samples(
    name: str, answer: Mapping[str, Any]
) -> Iterator[tuple[dict[str, str], dict[str, float], list[str]]]:
    """Yield labels, numbers and caveats for each estimate."""
    shape = QUESTIONS[answer["aggregate"]].shape
    key = None
    if shape.rows is not None and not shape.rows.single:  # the time of the last one is no label
        column = shape.rows.keys[0].name
        key = _LABELS.get(column, column)
    for row in rows_of(name, answer):
        labels = {"query": name, "aggregate": row["aggregate"]}
        if key is not None and row.get("key") is not None:
            labels[key] = label_of_key(row["key"])
        if row.get("of") is not None:
            labels["of"] = row["of"]
        for name_of, value_of in row.get("by", {}).items():
            labels[label_name(name_of, labels)] = label_of(value_of)
        value = row["value"]
        yield (
            labels,
            {
                "": math.nan if value is None else value,
                "_lower": _end(row.get("lower", value), -math.inf),
                "_upper": _end(row.get("upper", value), math.inf),
                "_stderr": _end(row.get("stderr", 0.0), math.inf),
                "_exact": float(row["exact"]),
            },
            (row.get("caveats") or "").split(),
        )


def _end(number: float | None, unbounded: float) -> float:
    return unbounded if number is None else number
