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
from decaysketch.query.buckets import ENDS, as_far_apart, reads_ranges
from decaysketch.query.comparisons import check_given, compared_s, of_repetitions
from decaysketch.query.difference import Comparison, Moment, Pair, compare
from decaysketch.query.dispatch import View, check_compared, given_to, modified_question
from decaysketch.query.estimate import Estimate
from decaysketch.query.modifiers import Modifiers, modified, revalued, schema_of_sample
from decaysketch.query.relations import KINDS
from decaysketch.query.sample import pool
from decaysketch.query.shapes import Combine, Question, check_combine

__all__ = ["PairView", "RangeView", "range_moment"]


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
        self._unitless = False  # as the ratio of two rates is

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
        if self._unitless:
            return count
        ends = ("value", "lower", "upper", "stderr")
        return replace(count, **{end: getattr(count, end) / self._length for end in ends})

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        return self._view.cost_s(question, combine=combine, **arguments)

    def modified(self, modifiers: Modifiers) -> Any:
        found = self._view.modified(modifiers)
        if modifiers.by:
            return found.over(self._length)
        view = RangeView(found, self._length)
        view._unitless = modifiers.versus is not None and modifiers.how == "ratio"
        return view


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
        return sum(compared_s(sample, how) for pair in self._pairs for sample in pair)

    def ask(
        self,
        question: Question[Any] | str,
        how: Comparison = "difference",
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        where: str | None = None,
        versus: str | None = None,
        of: str | None = None,
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
            of: the compared values, an expression over the columns. None: the stream's values.
            arguments: arguments of the query.

        Raises:
            ParameterError: an expression cannot be parsed, the query is not in the list, the ratio
                is of values that may be negative, or the total is of a function.
        """
        check_combine(combine)
        modifiers = Modifiers(of=of, where=where, versus=versus)
        asked_for = modified_question(check_compared(question), modifiers)
        found, given = given_to(asked_for, arguments)
        if self._pairs[0][0].labels is not None and of is None:
            found.check_labels(given)
        check_given(given)
        given.pop("function", None)
        schema = schema_of_sample(self._pairs[0][0])
        sides = (where, where if versus is None else versus)
        one, other = (
            None if text is None else bind("where", text, schema, "truth") for text in sides
        )
        filters = one, other
        column = None if of is None else bind("of", of, schema, *KINDS)
        asked = given | {"confidence": confidence, "of": column}
        pairs = [Pair.pooled(self._pairs)] if combine == "average" else self._pairs
        answers = [
            compare(pair, found.name, *self._moments, how, filters=filters, **asked)
            for pair in pairs
        ]
        texts = [text for text in (*sides, of) if text is not None]
        if any(pair.both.ranged for pair in self._pairs) and reads_ranges(found, texts):
            first, second = (
                self._at_bounds(found, given, name, Modifiers(of=of, where=text))
                for name, text in zip(("first", "second"), sides, strict=True)
            )
            answers = [as_far_apart(answer, how, first, second) for answer in answers]
        return of_repetitions(answers, how)

    def _at_bounds(
        self, question: Question[Any], given: dict[str, Any], side: str, modifiers: Modifiers
    ) -> list[Estimate]:
        """Return one side's result for middles and for both bounds."""
        found = []
        for bound in ("middle", *ENDS):
            samples = [getattr(pair, side).at_bound(bound) for pair in self._pairs]
            schema = schema_of_sample(samples[0])
            samples = modified(samples, modifiers, schema)
            samples = [revalued(each, modifiers, schema) for each in samples]
            found.append(question.answer([pool(samples)], confidence=0.95, **given))
        return found
