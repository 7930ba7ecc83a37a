"""How a question is asked: of a view, which is a sketch under one decay and at one time.

What a view reads is its own: samples of rows (:class:`~decaysketch.answers.questions.SampleView`),
counters of keys (:class:`~decaysketch.answers.keys.KeyView`), or the rows that no later one rules
out (:class:`~decaysketch.answers.extremes.ExtremeView`), or series with all of their rows
(:class:`~decaysketch.answers.series.SeriesView`). Whoever hands questions on knows
:class:`View` alone, and :data:`QUESTIONS`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from decaysketch.answers import ensemble
from decaysketch.answers.ensemble import Combine
from decaysketch.answers.modifiers import Modifiers, Order
from decaysketch.answers.query import Predicate
from decaysketch.answers.shapes import Held, Question, held_of
from decaysketch.core.time_units import Instant
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.text.predicate import Predicate as ReadPredicate

__all__ = [
    "QUESTIONS",
    "OwnView",
    "View",
    "Views",
    "asked_by",
    "check_how",
    "given_to",
    "modified_question",
    "questions_of",
    "read_predicate",
]

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])

#: Every question by its name, in the order of documents.
QUESTIONS: dict[str, Question[Any]] = {}


def questions_of(*provided: str) -> frozenset[str]:
    """Names of the questions that need nothing but what a family provides.

    Args:
        provided: of "values", "numbers" (which values may be), "weights" (apart from values) and
            "chosen decay"; or, in place of values and weights, "keys", of which a sketch has
            counters, "extremes" or "series", and no sample of rows: then the questions about these,
            and no others.
    """
    held = held_of(frozenset(provided))
    return frozenset(
        name
        for name, each in QUESTIONS.items()
        if each.needs <= {*provided} and each.asked_of == held
    )


class View(ABC):
    """What can be asked of a sketch under one decay and at one time."""

    @property
    @abstractmethod
    def now(self) -> int:
        """The time that is asked about."""

    @property
    @abstractmethod
    def verified(self) -> Literal["proof", "grid"]:
        """How it is known that the decay falls: proved, or looked at on a grid of ages."""

    @property
    @abstractmethod
    def drawn_s(self) -> float:
        """About so long the processor needed to make the view, in seconds."""

    @overload
    def ask(
        self, question: Question[A], *, confidence: float = ..., combine: Combine = ...,
        **arguments: Any,
    ) -> A: ...  # fmt: skip

    @overload
    def ask(
        self, question: str, *, confidence: float = ..., combine: Combine = ..., **arguments: Any
    ) -> Any: ...

    @abstractmethod
    def ask(
        self,
        question: Question[Any] | str,
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        **arguments: Any,
    ) -> Any:
        """The answer to a question.

        Args:
            question: an entry of :data:`QUESTIONS`, or its name.
            confidence: of every interval.
            combine: how the answers of several hash functions make one; see
                :mod:`decaysketch.answers.ensemble`.
            arguments: of the question.

        Raises:
            ParameterError: there is no such question; an argument that it does not have, that is
                missing or outside of its domain.
            UnanswerableQueryError: what is asked for was discarded.
        """

    @abstractmethod
    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        """About so long the processor needs to answer, in seconds."""

    def given(
        self, where: str | None = None, of: str | None = None, weight: str | None = None
    ) -> View:
        """What can be asked of a part of the rows, of another column, or under another weight.

        Args:
            where: a condition over the columns; rows for which it holds are kept.
            of: the values that are aggregated, an expression over the columns.
            weight: a number of 0 or more for each row, which its decay weight is multiplied by.

        Raises:
            ParameterError: an expression that cannot be read, or a sketch that stores no rows.
        """
        view: View = self.modified(Modifiers(of=of, where=where, weight=weight))
        return view

    def by(
        self, keys: str | Sequence[str], limit: int | None = None, order: Order = "largest"
    ) -> Any:
        """What can be asked of each group of rows with equal keys.

        Args:
            keys: an expression over the columns, or several, at most 4.
            limit: list so many groups; None: all.
            order: "largest" or "smallest" result first, which are then those that are listed, or
                by "key".

        Returns:
            A :class:`~decaysketch.answers.tables.GroupedView`.

        Raises:
            ParameterError: an expression that cannot be read, more groups than 10,000, or a sketch
                that stores no rows.
        """
        return self.modified(
            Modifiers(by=tuple([keys] if isinstance(keys, str) else keys), limit=limit, order=order)
        )

    def modified(self, modifiers: Modifiers) -> Any:
        """A view with modifiers, grouped where they have keys; see :meth:`given`, :meth:`by`."""
        if modifiers:
            raise ParameterError(
                f"{', '.join(modifiers.to_dict())}: this sketch stores no sample of rows to filter "
                "or group; a sketch of the family 'decay' or 'integral', or a sampler, does"
            )
        return self


class OwnView(View):
    """A view that answers by itself, and not from samples: there is nothing to combine, so
    ``combine`` is checked and says nothing."""

    asked_of: ClassVar[Held]

    def ask(
        self,
        question: Question[Any] | str,
        *,
        confidence: float = 0.95,
        combine: Combine = "average",
        **arguments: Any,
    ) -> Any:
        question, given = given_to(question, arguments, of=self.asked_of)
        ensemble.check_combine(combine)
        return question.answer(self, confidence=confidence, **given)

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        question, given = given_to(question, arguments, of=self.asked_of)
        ensemble.check_combine(combine)
        return question.cost_s(self, given)


_HELD: Mapping[Held, str] = {
    "rows": "a sample of rows",
    "keys": "counters of keys",
    "extremes": "the rows that no later one rules out, as a sketch of the family 'extremes' has",
    "series": "a sample of series, as a sketch of the family 'series' has",
}


def check_how(question: Question[Any], how: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse what a method does not take: a misspelt ``now`` would be answered as of another time.

    Args:
        question: what is asked.
        how: as it was given.
        known: what may be.

    Raises:
        ParameterError: something else is there.
    """
    takes = list(known)
    for name in how:
        if name not in takes:
            raise ParameterError(
                f"{question.name} has no argument {name!r}; how it is answered is said by "
                f"{', '.join(takes)}, and two moments are compared by compare"
            )


def given_to(
    question: Question[Any] | str, arguments: Mapping[str, Any], *, of: Held = "rows"
) -> tuple[Question[Any], dict[str, Any]]:
    """A question, and all of its arguments, predicates read.

    Args:
        question: an entry of :data:`QUESTIONS`, or its name.
        arguments: some of them.
        of: what it is asked of.

    Raises:
        ParameterError: see :meth:`View.ask`.
    """
    if not isinstance(question, Question):
        question = _named(question)
    if question.asked_of != of:
        raise ParameterError(
            f"{question.name} is asked of {_HELD[question.asked_of]}; this sketch has {_HELD[of]}"
        )
    known = {argument.name: argument for argument in question.arguments}
    if unknown := [name for name in arguments if name not in known]:
        raise ParameterError(f"{question.name} has no argument {unknown[0]!r}")
    given = {}
    for name, argument in known.items():
        if argument.required and name not in arguments:
            raise ParameterError(f"{question.name} needs {name}")
        value = arguments.get(name, argument.default)
        if argument.kind == "predicate" and value is not None:
            value = _predicate(name, value)
        if argument.many != "no" and argument.kind != "keys" and _is_one(value):
            value = [value]
        given[name] = value
    if fault := question.check(given):
        raise ParameterError(fault)
    return question, given


def _is_one(value: Any) -> bool:
    return np.ndim(value) == 0 or isinstance(value, str)


def _named(question: str) -> Question[Any]:
    try:
        return QUESTIONS[question]
    except KeyError:
        raise ParameterError(
            f"aggregate is {question!r}; expected one of {', '.join(QUESTIONS)}"
        ) from None


def _predicate(name: str, given: Any) -> Predicate:
    """A function of columns as it is; of a text, what it says."""
    if callable(given):
        function: Predicate = given
        return function
    if not isinstance(given, str):
        raise ParameterError(f"{name} is {given!r}; expected a text")
    return read_predicate(given)


@lru_cache(maxsize=256)
def read_predicate(text: str) -> ReadPredicate:
    """What a text over ``v`` and ``w`` says; the same one is read once, however often it is asked.

    Raises:
        ParameterError: it says nothing.
    """
    return ReadPredicate(text)


def modified_question(question: Question[Any] | str, modifiers: Modifiers) -> Question[Any]:
    """The aggregate that a query with modifiers means: a sum of a column is the total.

    Raises:
        ParameterError: no such aggregate, or one that has no such modifiers.
    """
    found = question if isinstance(question, Question) else _named(question)
    if found.name == "sum" and modifiers.of is not None:
        found = QUESTIONS["total"]
    if modifiers:
        modifiers.check(found)
    return found


# ----------------------------------------------------------------------------------------- methods


def asked_by(
    question: Question[Any], how: Sequence[tuple[str, Any, str]], said: str
) -> Callable[[F], F]:
    """Of a method: the words of its question, and its keywords one by one.

    Args:
        question: what it asks.
        how: keywords in place of ``**how``: the name, default and type of each.
        said: about them.
    """
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in how
    ]

    def described(method: F) -> F:
        parts = [inspect.getdoc(method) or question.doc.replace("`", "``"), ""]
        named = [each for each in question.arguments if each.name in method.__code__.co_varnames]
        if named:
            parts += ["Args:", *(f"    {each.name}: {each.doc}" for each in named), ""]
        method.__doc__ = "\n".join([*parts, said])
        signature = inspect.signature(method)
        own = [each for name, each in signature.parameters.items() if name != "how"]
        method.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return method

    return described


class Views(ABC):
    """A sketch that gives views."""

    #: Names of the questions that it answers.
    questions: ClassVar[frozenset[str]]

    @abstractmethod
    def at(
        self, decay: Decay | str | None, now: Instant | None = None, *, estimator: Any = ...
    ) -> View:
        """What can be asked under a decay, at a time.

        Args:
            decay: weight of an observation as a function of its age ``now - timestamp``, or a text
                that spells one; None where it was fixed when the sketch was built.
            now: time of the question, in the stream's unit or a moment
                (:func:`decaysketch.instant`); may lie in the past. None: the newest time held.
                Later observations are kept but not counted.
            estimator: one of the family's.

        Raises:
            UnanswerableQueryError: the sketch has discarded, at every level, observations that the
                decay gives weight to.
            ParameterError: no such decay, time or estimator.
        """

    def moment(self, at: Instant) -> int:
        """A time in the unit of the stream.

        Raises:
            ParameterError: it is none.
        """
        raise NotImplementedError

    def against(self, now: Any, then: Any) -> Any:
        """What can be asked of two moments, each a decay and a time; see
        :class:`~decaysketch.answers.comparing.PairView`.

        Raises:
            UnanswerableQueryError: one of them cannot be answered.
            ParameterError: the sketch cannot be asked so.
        """
        raise NotImplementedError
