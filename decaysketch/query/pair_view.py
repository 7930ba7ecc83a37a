"""Queries to a time range, and comparisons between two moments.

A range ``[a, b)`` needs no window difference: it is ``window(b - 1 - a)`` at time ``b - 1``.
Every query therefore has a result for it that is no worse than any other. Two moments are compared
by contrasts from one sample (:mod:`~decaysketch.query.difference`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from decaysketch.core.text.expression import bind
from decaysketch.errors import ParameterError
from decaysketch.query import ensemble
from decaysketch.query.buckets import ENDS, as_far_apart, reads_ranges
from decaysketch.query.difference import Comparison, Moment, Pair, compare
from decaysketch.query.dispatch import QUESTIONS, View, given_to
from decaysketch.query.ensemble import Combine
from decaysketch.query.estimate import Estimate
from decaysketch.query.modifiers import Modifiers, modified, schema_of_sample
from decaysketch.query.sample import pool
from decaysketch.query.shapes import Question

__all__ = ["PairView", "RangeView", "check_compared", "range_moment"]

_ROW_S, _RATIO_ROW_S = 400e-9, 10e-6  # a ratio is about a hundred passes
_QUANTILES = ("median", "quantile")


def range_moment(start: int, stop: int) -> tuple[int, int]:
    """Return the window width and the query time that represent a range.

    Raises:
        ParameterError: the range is empty.
    """
    if not stop > start:
        raise ParameterError(f"range is [{start}, {stop}); expected an end after its beginning")
    return stop - 1 - start, stop - 1


class RangeView(View):
    """Queries to ``[a, b)``: as of the window that represents it, with rates over ``b - a``.

    Args:
        view: under that window.
        length: ``b - a``.
    """

    def __init__(self, view: View, length: int) -> None:
        self._view = view
        self._length = length

    @property
    def now(self) -> int:
        return self._view.now

    @property
    def verified(self) -> Literal["proof", "grid"]:
        return self._view.verified

    @property
    def drawn_s(self) -> float:
        return self._view.drawn_s

    def ask(
        self,
        question: Question[Any] | str,
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        **arguments: Any,
    ) -> Any:
        name = question if isinstance(question, str) else question.name
        if name != "rate":
            return self._view.ask(question, confidence=confidence, combine=combine, **arguments)
        count = self._view.ask("count", confidence=confidence, combine=combine, **arguments)
        ends = ("value", "lower", "upper", "stderr")
        return replace(count, **{end: getattr(count, end) / self._length for end in ends})

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        return self._view.cost_s(question, combine=combine, **arguments)

    def modified(self, modifiers: Modifiers) -> Any:
        found = self._view.modified(modifiers)
        return found.over(self._length) if modifiers.by else RangeView(found, self._length)


def check_compared(question: Question[Any] | str) -> Question[Any]:
    """Return a query that can compare two moments.

    Raises:
        ParameterError: the query cannot be compared. The message gives the reason and the remedy.
    """
    found = question if isinstance(question, Question) else _named(question)
    if found.compared:
        return found
    if found.name in _QUANTILES:
        raise ParameterError(
            f"{found.name} cannot be compared: it is no sum over a sample. Compare the rank of a "
            "fixed value, or ask for both, each at confidence 1 - (1 - confidence) / 2"
        )
    listed = ", ".join(name for name, each in QUESTIONS.items() if each.compared)
    raise ParameterError(f"{found.name} cannot be compared; {listed} can")


def _named(name: str) -> Question[Any]:
    if name not in QUESTIONS:
        raise ParameterError(f"aggregate is {name!r}; expected one of {', '.join(QUESTIONS)}")
    return QUESTIONS[name]


class PairView:
    """Queries to two moments.

    Args:
        pairs: one for each hash function, at least one.
        now, then: the moment to compare, and the moment to compare it with.
    """

    def __init__(self, pairs: Sequence[Pair], now: Moment, then: Moment) -> None:
        self._pairs = pairs
        self._moments = now, then

    @property
    def rows(self) -> int:
        """Observations in the samples."""
        return sum(len(sample) for pair in self._pairs for sample in pair)

    def cost_s(self, how: Comparison = "difference") -> float:
        """Approximate processor time to draw the samples and to answer, in seconds."""
        return self.rows * (_RATIO_ROW_S if how == "ratio" else _ROW_S)

    def ask(
        self,
        question: Question[Any] | str,
        how: Comparison = "difference",
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        where: str | None = None,
        versus: str | None = None,
        **arguments: Any,
    ) -> Estimate:
        """Compare the result now with the result then, and set ``changed``.

        Args:
            question: count, rate, sum, total, mean or rank.
            how: "difference" (now less then) or "ratio" (now over then).
            confidence: confidence of the interval.
            combine: see :mod:`decaysketch.query.ensemble`.
            where: a condition for the rows of the first side. None: all.
            versus: the condition for the rows of the second side. None: the same.
            arguments: arguments of the query.

        Raises:
            ParameterError: a condition cannot be parsed, the query is not in the list, the ratio is
                of means, ranks or values that may be negative, or the total is of a function.
        """
        ensemble.check_combine(combine)
        found, given = given_to(check_compared(question), arguments)
        if self._pairs[0][0].labels is not None:
            found.check_labels(given)
        if given.pop("function", None) is not None:
            raise ParameterError("function cannot be compared; totals of values can")
        schema = schema_of_sample(self._pairs[0][0])
        sides = (where, where if versus is None else versus)
        one, other = (
            None if text is None else bind("where", text, schema, "truth") for text in sides
        )
        filters = one, other
        asked = given | {"confidence": confidence}
        pairs = [Pair.pooled(self._pairs)] if combine == "average" else self._pairs
        answers = [
            compare(pair, found.name, *self._moments, how, filters=filters, **asked)
            for pair in pairs
        ]
        texts = [text for text in sides if text is not None]
        if reads_ranges(found, [pair.both for pair in self._pairs], texts):
            first, second = (
                self._at_bounds(found, given, name, text)
                for name, text in zip(("first", "second"), sides, strict=True)
            )
            answers = [as_far_apart(answer, how, first, second) for answer in answers]
        if len(answers) == 1:
            return answers[0]
        middle, neutral = ensemble.median_estimate(answers), 1.0 if how == "ratio" else 0.0
        return replace(middle, changed=not middle.lower <= neutral <= middle.upper)

    def _at_bounds(
        self, question: Question[Any], given: dict[str, Any], side: str, where: str | None
    ) -> list[Estimate]:
        """Return one side's result for middles and for both bounds."""
        found = []
        for bound in ("middle", *ENDS):
            samples = [getattr(pair, side).at_bound(bound) for pair in self._pairs]
            if where is not None:
                samples = modified(samples, Modifiers(where=where), schema_of_sample(samples[0]))
            found.append(
                question.answer([pool(samples)], confidence=0.95, combine="average", **given)
            )
        return found
