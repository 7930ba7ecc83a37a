"""Aggregates that compare two parts of the rows: ``mean(v) where ... versus ...``.

A query with ``versus`` is the same query with another function: the difference or the ratio of the
aggregate in both parts (:func:`~decaysketch.query.difference.compare_parts`). So groups,
repetitions and every interface treat it as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from decaysketch.core.text.expression import Bound, Schema, bind
from decaysketch.errors import ParameterError
from decaysketch.query import ensemble
from decaysketch.query.difference import Comparison, Parts, compare_parts
from decaysketch.query.dispatch import check_compared
from decaysketch.query.estimate import Estimate
from decaysketch.query.modifiers import Modifiers, bound_to
from decaysketch.query.relations import KINDS
from decaysketch.query.sample import Sample
from decaysketch.query.shapes import Question

__all__ = ["ROW_S", "against", "of_repetitions"]

#: Processor seconds for a row. A ratio takes about a hundred passes.
ROW_S: Mapping[Comparison, float] = {"difference": 400e-9, "ratio": 10e-6}


def against(
    question: Question[Any], modifiers: Modifiers, schema: Schema, span: float | None = None
) -> Question[Any]:
    """Return the query that compares the modifiers' parts, or the query itself without them.

    Args:
        question: the query.
        modifiers: its modifiers.
        schema: columns of the stream.
        span: the divisor of a rate. None: the integral of the decay.

    Raises:
        ParameterError: the query cannot be compared. The message gives the remedy.
    """
    if modifiers.versus is None:
        return question
    check_compared(question)
    found = bound_to(modifiers, schema)
    of = None if modifiers.of is None else bind("of", modifiers.of, schema, *KINDS)
    where, versus = found.get("where"), found["versus"]
    assert where is None or isinstance(where, Bound)
    assert isinstance(versus, Bound)
    parts, how = Parts(where, versus, of), modifiers.how

    def answer(samples: Sequence[Sample], *, confidence: float, **given: Any) -> Estimate:
        check_given(given)
        value = given.get("value")
        answers = [
            compare_parts(
                each, question.name, parts, how, confidence=confidence, value=value, span=span
            )
            for each in samples
        ]
        return of_repetitions(answers, how)

    def cost_s(sample: Sample, _given: Mapping[str, Any]) -> float:
        return question.cost_s(sample, _given) + len(sample) * ROW_S[how]

    return replace(question, answer=answer, cost_s=cost_s)


def check_given(given: Mapping[str, Any]) -> None:
    """Reject arguments that a comparison has no meaning for.

    Raises:
        ParameterError: a function is given.
    """
    if given.get("function") is not None:
        raise ParameterError("function cannot be compared; totals of values can: give of")


def of_repetitions(answers: Sequence[Estimate], how: Comparison) -> Estimate:
    """Return the comparison from those of several hash functions."""
    if len(answers) == 1:
        return answers[0]
    middle, neutral = ensemble.median_estimate(answers), 1.0 if how == "ratio" else 0.0
    return replace(middle, changed=not middle.lower <= neutral <= middle.upper)
