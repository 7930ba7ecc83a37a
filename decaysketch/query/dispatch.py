"""Queries to a view: a sketch under one decay and at one time.

A view reads one of five objects:

* row samples (:class:`~decaysketch.query.catalog.SampleView`)
* key counters (:class:`~decaysketch.query.keys.KeyView`)
* the rows that no later row rules out (:class:`~decaysketch.query.extremes.ExtremeView`)
* series with all their rows (:class:`~decaysketch.query.series.SeriesView`)
* samples from several sources (:class:`~decaysketch.sources.view.CoverageView`)

Code that forwards queries needs only :class:`View` and :data:`QUESTIONS`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, overload

import numpy as np

from decaysketch.core.text.predicate import Predicate as ReadPredicate
from decaysketch.core.time_units import Instant
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.query.aggregates import Predicate
from decaysketch.query.estimate import as_of
from decaysketch.query.modifiers import Modifiers, Order
from decaysketch.query.other_names import meant, remedy_of
from decaysketch.query.shapes import Combine, Held, Question, check_combine, held_of

__all__ = [
    "QUESTIONS",
    "How",
    "OwnView",
    "OwnViews",
    "View",
    "Views",
    "asked_by",
    "asked_of_own",
    "check_compared",
    "check_how",
    "given_to",
    "modified_question",
    "needed_by",
    "questions_of",
    "read_argument",
    "read_predicate",
]

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])

#: Every question by its name, in the order of documents.
QUESTIONS: dict[str, Question[Any]] = {}


def questions_of(*provided: str) -> frozenset[str]:
    """Return the names of the queries that a family can answer.

    Args:
        provided: some of "values", "numbers" (the values may be numbers), "weights" (apart from
            values) and "chosen decay". A sketch without a row sample instead provides "keys" (it
            has counters for them), "extremes" or "series", and answers only the queries about
            these.
    """
    held = held_of(frozenset(provided))
    return frozenset(
        name
        for name, each in QUESTIONS.items()
        if each.needs <= {*provided} and each.asked_of == held
    )


class View(ABC):
    """Queries to a sketch under one decay and at one time."""

    @property
    @abstractmethod
    def now(self) -> int:
        """The query time."""

    @property
    @abstractmethod
    def verified(self) -> Literal["proof", "grid"]:
        """How the falling decay was verified: by proof, or on a grid of ages."""

    @property
    @abstractmethod
    def drawn_s(self) -> float:
        """Approximate processor time to make the view, in seconds."""

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
        """Answer a query.

        Args:
            question: an entry of :data:`QUESTIONS`, or its name.
            confidence: confidence of every interval.
            combine: how to combine the results of several hash functions, see
                :mod:`decaysketch.query.ensemble`.
            arguments: arguments of the query.

        Raises:
            ParameterError: the query does not exist, or an argument is unknown, missing or outside
                its domain.
            UnanswerableQueryError: the sketch has discarded the observations that the query needs.
        """

    @abstractmethod
    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        """Approximate processor time to answer, in seconds."""

    def given(
        self, where: str | None = None, of: str | None = None, weight: str | None = None,
        set: str | None = None,
    ) -> View:  # fmt: skip
        """Return a view with some of the rows, with another column, or under another weight.

        Args:
            where: a condition over the columns. The view keeps the rows for which it holds.
            of: the aggregated values, an expression over the columns.
            weight: a number of 0 or more for each row, by which its decay weight is multiplied.
            set: a source set such as ``a & ~b``, for a view with several sources.

        Raises:
            ParameterError: an expression cannot be parsed, or the sketch stores no rows.
        """
        view: View = self.modified(Modifiers(of=of, where=where, weight=weight, set=set))
        return view

    def by(
        self, keys: str | Sequence[str], limit: int | None = None, order: Order = "largest"
    ) -> Any:
        """Return a view that groups rows with equal keys.

        Args:
            keys: an expression over the columns, or several, at most 4.
            limit: the maximum number of listed groups. None: all.
            order: "largest" or "smallest" result first, or "key" for key order. With a limit, the
                first groups in this order are listed.

        Returns:
            A :class:`~decaysketch.query.tables.GroupedView`.

        Raises:
            ParameterError: an expression cannot be parsed, there are more than 10,000 groups, or
                the sketch stores no rows.
        """
        return self.modified(
            Modifiers(by=tuple([keys] if isinstance(keys, str) else keys), limit=limit, order=order)
        )

    def modified(self, modifiers: Modifiers) -> Any:
        """Return a view with modifiers, grouped if they have keys. See :meth:`given` and
        :meth:`by`.
        """
        if modifiers:
            raise ParameterError(
                f"{', '.join(modifiers.to_dict())}: this sketch stores no sample of rows to filter "
                "or group; a sketch of the family 'decay' or 'integral', or a sampler, does"
            )
        return self


class OwnView(View):
    """A view that answers without samples. There is nothing to combine, so ``combine`` is checked
    and has no effect.
    """

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
        check_combine(combine)
        return question.answer(self, confidence=confidence, **given)

    def cost_s(
        self, question: Question[Any] | str, *, combine: Combine = "average", **arguments: Any
    ) -> float:
        question, given = given_to(question, arguments, of=self.asked_of)
        check_combine(combine)
        return question.cost_s(self, given)


_HELD: Mapping[Held, str] = {
    "rows": "a sample of rows",
    "keys": "key counters, as a sketch of the family 'ecm' has",
    "extremes": "extremes of windows, as a sketch of the family 'extremes' has",
    "series": "a sample of series, as a sketch of the family 'series' has",
    "sources": "one sketch for each of several sources",
}


def needed_by(question: Question[Any]) -> str:
    """Return a description of the data that a query reads."""
    return _HELD[question.asked_of]


def check_how(question: Question[Any], how: Mapping[str, Any], known: Iterable[str]) -> None:
    """Reject unknown keywords: a misspelt ``now`` would give the result at another time.

    Args:
        question: the query.
        how: the keywords as given.
        known: the accepted keywords.

    Raises:
        ParameterError: a keyword is unknown.
    """
    takes = list(known)
    for name in how:
        if name not in takes:
            raise ParameterError(
                f"{question.name} has no argument {name!r}; expected one of {', '.join(takes)}. "
                "compare queries two times"
            )


def given_to(
    question: Question[Any] | str, arguments: Mapping[str, Any], *, of: Held = "rows"
) -> tuple[Question[Any], dict[str, Any]]:
    """Return a query and all its arguments, with predicates parsed.

    Args:
        question: an entry of :data:`QUESTIONS`, or its name.
        arguments: some of them.
        of: the object that is queried.

    Raises:
        ParameterError: see :meth:`View.ask`.
    """
    if not isinstance(question, Question):
        question = _named(question)
    if question.asked_of != of:
        raise ParameterError(
            f"{question.name} needs {needed_by(question)}; this sketch has {_HELD[of]}"
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
        near = meant(question) if isinstance(question, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise ParameterError(
            f"aggregate is {question!r}; expected one of {', '.join(QUESTIONS)}{hint}"
        ) from None


def _predicate(name: str, given: Any) -> Predicate:
    """Parse a text. Return a function over columns unchanged."""
    if callable(given):
        function: Predicate = given
        return function
    if not isinstance(given, str):
        raise ParameterError(f"{name} is {given!r}; expected a text")
    return read_argument(given)


@lru_cache(maxsize=256)
def read_predicate(text: str) -> ReadPredicate:
    """Parse a text over ``v`` and ``w``. The same text is parsed once, however many queries use it.

    Raises:
        ParameterError: the text is no predicate.
    """
    return ReadPredicate(text)


def read_argument(text: str) -> ReadPredicate:
    """Parse a predicate that is a query's argument.

    Raises:
        ParameterError: the text is no predicate. If it is a condition over columns, the message has
            the query for it.
    """
    try:
        return read_predicate(text)
    except ParameterError as fault:
        raise ParameterError(f"{fault}{remedy_of(text)}") from None


_QUANTILES = ("median", "quantile")


def check_compared(question: Question[Any] | str) -> Question[Any]:
    """Return a query that can compare two moments, or two parts of the rows.

    Raises:
        ParameterError: the query cannot be compared. The message gives the reason and the remedy.
    """
    found = question if isinstance(question, Question) else _named(question)
    if found.compared:
        return found
    if found.name in _QUANTILES:
        raise ParameterError(
            f"{found.name} cannot be compared: it is not a sum over a sample. Compare the rank of "
            "a fixed value, or query both, each with confidence 1 - (1 - confidence) / 2"
        )
    listed = ", ".join(name for name, each in QUESTIONS.items() if each.compared)
    raise ParameterError(f"{found.name} cannot be compared; {listed} can")


def modified_question(question: Question[Any] | str, modifiers: Modifiers) -> Question[Any]:
    """Return the aggregate that a query with modifiers computes. ``sum`` with ``of`` is ``total``.

    Raises:
        ParameterError: the aggregate does not exist, or does not accept these modifiers.
    """
    found = question if isinstance(question, Question) else _named(question)
    if found.name == "sum" and modifiers.of is not None:
        found = QUESTIONS["total"]
    if modifiers:
        modifiers.check(found)
    if modifiers.versus is not None:
        check_compared(found)
    return found


# ----------------------------------------------------------------------------------------- methods


def asked_by(
    question: Question[Any], how: Sequence[tuple[str, Any, str]], said: str
) -> Callable[[F], F]:
    """Give a method its query's description and explicit keywords.

    Args:
        question: the query that the method asks.
        how: keywords that replace ``**how``: the name, default and type of each.
        said: text about them.
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
    """A sketch that returns views."""

    #: Names of the questions that it answers.
    questions: ClassVar[frozenset[str]]

    def __getattr__(self, name: str) -> Any:
        """Name the family whose sketches answer a query that this sketch does not have."""
        found = QUESTIONS.get(name)
        hint = "" if found is None else f": {name} needs {needed_by(found)}"
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    @abstractmethod
    def at(
        self, decay: Decay | str | None, now: Instant | None = None, *, estimator: Any = ...
    ) -> View:
        """Return the view under a decay, at a time.

        Args:
            decay: weight of an observation as a function of its age ``now - timestamp``, or a text
                that spells one. None if it was fixed when the sketch was built.
            now: query time, in the stream's unit or a moment (:func:`decaysketch.instant`). It may
                lie in the past. None: the newest stored time. Later observations stay in the
                sketch, but do not count.
            estimator: an estimator of the family.

        Raises:
            UnanswerableQueryError: the sketch has discarded, at every level, observations that the
                decay gives weight to.
            ParameterError: the decay, time or estimator does not exist.
        """

    def moment(self, at: Instant) -> int:
        """Return a time in the stream's unit.

        Raises:
            ParameterError: the argument is no time.
        """
        raise NotImplementedError

    def against(self, now: Any, then: Any) -> Any:
        """Return the view for two moments, each a decay and a time. See
        :class:`~decaysketch.query.pair_view.PairView`.

        Raises:
            UnanswerableQueryError: the sketch cannot answer at one of the moments.
            ParameterError: the sketch does not support comparisons.
        """
        raise NotImplementedError


class How(TypedDict, total=False):
    """Keywords that every query to an :class:`OwnView` accepts. See :meth:`Views.at`."""

    now: Instant | None
    confidence: float
    combine: Combine
    estimator: Any


def asked_of_own(
    question: Question[Any],
    estimator: str,
    more: Sequence[tuple[str, Any, str]] = (),
    also: str = "",
) -> Callable[[F], F]:
    """Give a method of :class:`OwnViews` its query's description and keywords.

    Args:
        question: the query that the method asks.
        estimator: the family's default.
        more: further keywords, as :func:`asked_by` accepts them.
        also: text about these.
    """
    how = (
        ("now", None, "Instant | None"),
        ("confidence", 0.95, "float"),
        ("combine", "average", "Combine"),
        ("estimator", estimator, "str"),
        *more,
    )
    said = (
        "``now`` and ``estimator``: see :meth:`at`; ``confidence`` and ``combine``:\n"
        ":meth:`decaysketch.query.dispatch.View.ask`."
    )
    return asked_by(question, how, f"{said}\n{also}" if also else said)


class OwnViews(Views):
    """A sketch without row samples, whose views answer queries themselves (:class:`OwnView`)."""

    #: The estimator that queries use by default.
    estimator: ClassVar[str]

    def _ask(self, question: Question[A], decay: Decay | str, how: How, **arguments: Any) -> A:
        check_how(question, how, How.__annotations__)
        view = self.at(decay, how.get("now"), estimator=how.get("estimator", self.estimator))
        confidence, combine = how.get("confidence", 0.95), how.get("combine", "average")
        found: A = view.ask(question, confidence=confidence, combine=combine, **arguments)
        dated: A = as_of(view.now, found) if how.get("now") is None else found
        return dated
