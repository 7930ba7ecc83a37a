"""The difference between two estimates from one sketch: ``b - a``, with a joint interval.

Two separate intervals do not show how far two results differ: rows that both read make the same
error in both. So an estimate remembers its query, and a difference is a comparison of both queries
from one sample (:mod:`~decaysketch.query.difference`). It refers to its sketch weakly: an estimate
keeps no rows alive, and a sketch that has changed is not read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ReferenceType

from decaysketch.errors import ParameterError
from decaysketch.query.dispatch import check_compared
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.shapes import Question

if TYPE_CHECKING:
    from decaysketch.query.estimate import Estimate

__all__ = ["Asked"]


@dataclass(frozen=True, eq=False)
class Asked:
    """The query that an estimate answers.

    Attributes:
        sketch: the immutable sketch.
        question, arguments, modifiers: the query.
        decay, now: its moment.
        how: ``confidence``, ``combine`` and ``estimator``.
    """

    sketch: ReferenceType[Any]
    question: Question[Any]
    arguments: Mapping[str, Any]
    modifiers: Modifiers
    decay: Any
    now: int
    how: Mapping[str, Any]

    def less(self, other: Asked) -> Estimate:
        """Return this result less another, from one sample.

        Raises:
            ParameterError: the queries have no joint interval. The message gives the remedy.
        """
        sketch = self.sketch()
        if sketch is None or sketch is not other.sketch():
            _refuse("they are from two sketches, or the sketch changed between them")
        if self.question is not other.question or dict(self.arguments) != dict(other.arguments):
            _refuse(f"one is {self.question.name}, the other {other.question.name}")
        check_compared(self.question)
        for name, one, two in self._differences(other):
            if one != two:
                _refuse(f"{name} is {one!r} for one, {two!r} for the other")
        if (self.decay, self.now) == (other.decay, other.now):
            return self._of_parts(sketch, other)
        return self._of_moments(sketch, other)

    def _differences(self, other: Asked) -> list[tuple[str, Any, Any]]:
        names = ("of", "weight", "set", "by", "versus")
        found = [
            (name, getattr(self.modifiers, name), getattr(other.modifiers, name)) for name in names
        ]
        return found + [(name, self.how[name], other.how[name]) for name in self.how]

    def _of_parts(self, sketch: Any, other: Asked) -> Estimate:
        where, versus = _conditions(self, other)
        modifiers = replace(self.modifiers, where=where, versus=versus, how="difference")
        view = sketch.at(self.decay, self.now, estimator=self.how["estimator"]).modified(modifiers)
        found: Estimate = view.ask(self.question, **self._asked)
        return found

    def _of_moments(self, sketch: Any, other: Asked) -> Estimate:
        if self.modifiers.weight is not None:
            _refuse("they have a weight and two times")
        pair = sketch.against((self.decay, self.now), (other.decay, other.now))
        where, versus = _conditions(self, other)
        found: Estimate = pair.ask(
            self.question, where=where, versus=versus, of=self.modifiers.of, **self._asked
        )
        return found

    @property
    def _asked(self) -> dict[str, Any]:
        how = {name: self.how[name] for name in ("confidence", "combine")}
        return how | dict(self.arguments)


def _conditions(*asked: Asked) -> list[str]:
    """Return the condition of each query."""
    return ["true" if each.modifiers.where is None else each.modifiers.where for each in asked]


def _refuse(because: str) -> NoReturn:
    raise ParameterError(
        f"these estimates have no joint interval: {because}. Query both from one sketch, with one "
        "aggregate, column and confidence, or use its method compare. float(b) - float(a) is the "
        "difference of the values alone"
    )
