"""Every query about extremes: the least and the largest value in a window, and its time.

They read the rows that no later row rules out. A sample seldom contains the largest of all
values. A result is therefore exact, or has two guaranteed bounds. Entries have the form used in
:mod:`~decaysketch.query.catalog`. A family's :class:`ExtremeView` answers them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, Unpack

from decaysketch.decay import Decay
from decaysketch.query.dispatch import How, OwnView, OwnViews, asked_of_own
from decaysketch.query.estimate import Estimate
from decaysketch.query.shapes import SCALAR, Column, Question, Rows, Shape

__all__ = ["EXTREME_QUESTIONS", "AskedOfExtremes", "ExtremeView", "Observed"]

F = TypeVar("F", bound=Callable[..., Any])


class Observed(NamedTuple):
    """A row: its value and its time."""

    value: float
    time: int


class ExtremeView(OwnView):
    """Queries to highs and lows. Immutable, safe to read from any thread.

    There is no hash function.
    """

    asked_of: ClassVar = "extremes"

    @abstractmethod
    def extreme(self, largest: bool, *, confidence: float) -> Estimate:
        """Return the largest value, or the least. Both bounds are guaranteed, for any
        confidence.
        """

    @abstractmethod
    def observed(self, largest: bool) -> Observed | None:
        """Return the latest row with this value, or None.

        Raises:
            UnanswerableQueryError: it is not known exactly.
        """


# ------------------------------------------------------------------------------------------ entries

_ANSWER_S = 2e-4  # processor seconds: an answer written as JSON

_NEEDS = frozenset({"extremes", "chosen decay"})

#: The entries, in the order of documents.
EXTREME_QUESTIONS: list[Question[Any]] = []


def _enter(name: str, doc: str, answer: Callable[..., Any], **more: Any) -> Question[Any]:
    question = Question(name, doc, answer, lambda _view, _given: _ANSWER_S, needs=_NEEDS, **more)
    EXTREME_QUESTIONS.append(question)
    return question


def _scalar(name: str, doc: str, largest: bool) -> Question[Any]:
    return _enter(
        name,
        doc,
        lambda view, *, confidence: view.extreme(largest, confidence=confidence),
        shape=SCALAR,
        parts=lambda found, _: {"estimate": found},
    )


def _row(name: str, doc: str, said: str, largest: bool) -> Question[Any]:
    shape = Shape(
        name.title(),
        said,
        Rows(
            name,
            f"{name.title()}Model",
            "A value and the latest time that it was observed.",
            (Column("value", "number"), Column("time", "time")),
            single=True,
        ),
    )
    return _enter(
        name,
        doc,
        lambda view, *, confidence: view.observed(largest),
        shape=shape,
        parts=lambda found, _: {name: [] if found is None else [found._asdict()]},
    )


_BOTH_BOUNDS = (
    "with decay weight, such as those in a window. Exact, or both bounds are guaranteed. Only at "
    "the time of the newest observation or later."
)
_MAX = _scalar("max", f"The largest value among the observations {_BOTH_BOUNDS}", True)
_MIN = _scalar("min", f"The smallest value among the observations {_BOTH_BOUNDS}", False)
_HIGHEST = _row(
    "highest",
    "The latest observation with the largest value among those with decay weight. Always exact: "
    "the query is rejected if the sketch does not know it.",
    "The observation with the largest value.",
    True,
)
_LOWEST = _row(
    "lowest",
    "The latest observation with the smallest value among those with decay weight. Always exact: "
    "the query is rejected if the sketch does not know it.",
    "The observation with the smallest value.",
    False,
)


# ----------------------------------------------------------------------------------------- methods


_ESTIMATOR: Final = "stairs"


def _asks(question: Question[Any]) -> Callable[[F], F]:
    return asked_of_own(question, _ESTIMATOR)


class AskedOfExtremes(OwnViews):
    """Queries to every sketch that keeps the rows which no later row rules out."""

    estimator: ClassVar[str] = _ESTIMATOR

    @_asks(_MAX)
    def max(self, decay: Decay | str, **how: Unpack[How]) -> Estimate:
        found: Estimate = self._ask(_MAX, decay, how)
        return found

    @_asks(_MIN)
    def min(self, decay: Decay | str, **how: Unpack[How]) -> Estimate:
        found: Estimate = self._ask(_MIN, decay, how)
        return found

    @_asks(_HIGHEST)
    def highest(self, decay: Decay | str, **how: Unpack[How]) -> Observed | None:
        found: Observed | None = self._ask(_HIGHEST, decay, how)
        return found

    @_asks(_LOWEST)
    def lowest(self, decay: Decay | str, **how: Unpack[How]) -> Observed | None:
        found: Observed | None = self._ask(_LOWEST, decay, how)
        return found
