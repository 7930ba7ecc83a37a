"""The definition of a monitor: a frozen spec, checked when it is made, in JSON by its ``kind``.

A :class:`Spec` has the fields that all kinds share: tolerance, decay, sources, lease, alert times.
Its kinds are the classes in :data:`SPECS`. This module defines :class:`Threshold`. Another kind is
a frozen subclass under :func:`kind`, with its own fields, :meth:`Spec.check_fields` and
:meth:`Spec.check_recipe`. Every field has a reader in ``_READERS`` or in the class's own
``readers``, so that JSON from strangers is read as strictly as arguments are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

from decaysketch.contract.family import Family, Recipe
from decaysketch.core.text.expression import MAX_EXPRESSION
from decaysketch.decay import Decay
from decaysketch.decay.area import area
from decaysketch.decay.read import decay_of
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.monitor.bounds import Aim, AnyForm, Form, Mean, Monotone, Signed
from decaysketch.monitor.fields import (
    MAX_SITES,
    mapping_of,
    number,
    sequence_of,
    take_known,
    text_of,
    url_of,
    whole,
)
from decaysketch.query.columns import schema_of
from decaysketch.query.dispatch import read_predicate
from decaysketch.query.modifiers import MAX_KEYS, SOURCE_KEYS, Modifiers, bound_to

__all__ = ["QUESTIONS", "SPECS", "Question", "Spec", "Threshold", "kind", "spec_from_dict"]

Question = Literal[
    "count", "rate", "sum", "total", "mean", "share", "rank", "quantile", "median", "variance",
    "stddev", "max", "min", "key_count", "key_share", "key_total", "top_key_share", "self_join",
]  # fmt: skip

S = TypeVar("S", bound="type[Spec]")

#: Every kind of spec, by its name in JSON.
SPECS: dict[str, type[Spec]] = {}

_SHORTEST_LEASE_S, _LONGEST_LEASE_S = 1.0, 30 * 86_400.0
_LONGEST_S = 366 * 86_400.0
_SITE = r"[^\x00-\x1f\x7f-\x9f]{1,200}"


def kind(name: str) -> Callable[[S], S]:
    """Register a class in :data:`SPECS`."""

    def entered(spec: S) -> S:
        spec.kind = name
        SPECS[name] = spec
        return spec

    return entered


@dataclass(frozen=True, kw_only=True)
class Spec(ABC):
    """The common fields of every monitor.

    Attributes:
        within: tolerance eps, relative to the threshold, between 0 and 1. It applies while sources
            take part in the monitor. Without such sources a plain query decides the state.
        decay: weight by age. None if the stream's decay is fixed. Any spelling is accepted
            (:mod:`decaysketch.decay.read`).
        lease_s: how long the hub vouches for a source that it does not hear from.
        for_s: how long the condition must hold before the alert fires.
        keep_firing_s: how long the alert continues after the condition is gone.
        webhook: URL that receives the alert. The service decides whether it is permitted.
        sites: names of the sources that may take part in the monitor, so that they may hold rows
            back. None: every source that reports. Empty: no source.
    """

    kind: ClassVar[str]
    #: Readers of the fields that only one kind has: from the JSON value to the stored one.
    readers: ClassVar[Mapping[str, Callable[[str, Any], Any]]] = {}

    within: float = 0.05
    decay: Decay | None = None
    lease_s: float = 30.0
    for_s: float = 0.0
    keep_firing_s: float = 0.0
    webhook: str | None = None
    sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            given = getattr(self, each.name)
            if given is not None or each.default is not None:
                read = {**_READERS, **self.readers}[each.name]
                object.__setattr__(self, each.name, read(each.name, given))
        self.check_fields()

    @abstractmethod
    def check_fields(self) -> None:
        """Reject fields that exclude each other, or are None and required."""

    @abstractmethod
    def check_recipe(self, recipe: Recipe) -> None:
        """Reject a stream whose sketches do not support the query, or not with the guarantee.

        Raises:
            ParameterError: with the stream's and the required parameters.
        """

    def check_decay(self, recipe: Recipe) -> None:
        """The part of :meth:`check_recipe` about the decay."""
        family = recipe.kind
        if family.input.decay == "fixed":
            if self.decay is not None:
                raise ParameterError(
                    f"decay is {self.decay!r}; family {family.name!r} has one that is fixed: "
                    "expected none"
                )
            return
        if self.decay is None:
            raise ParameterError(f"decay is None; family {family.name!r} needs one")
        bound = family.input.age_bound
        widest = None if bound is None else getattr(recipe.params, bound)
        if widest is not None and self.decay.support > widest:
            raise ParameterError(
                f"decay {self.decay!r} reaches back {self.decay.support:g}; {bound} of the stream "
                f"is {widest}"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with ``kind``, without fields at their defaults."""
        form: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.default is not MISSING and value == each.default:
                continue
            if isinstance(value, Decay):
                value = value.to_dict()
            form[each.name] = list(value) if isinstance(value, tuple) else value
        return form

    @classmethod
    def from_dict(cls, form: object, *, time_unit: str | None = None) -> Self:
        """Inverse of :meth:`to_dict`. Nothing in the form is trusted.

        Args:
            time_unit: the stream's unit, if its decay may be a text with units.

        Raises:
            ParameterError: a field that is unknown, missing or outside its domain.
        """
        given = dict(mapping_of("monitor", form))
        if given.pop("kind", cls.kind) != cls.kind:
            raise ParameterError(f"kind is {form['kind']!r}; expected {cls.kind!r}")  # type: ignore[index]
        needed = [f.name for f in fields(cls) if f.default is MISSING]
        take_known(f"a {cls.kind}", given, needed, [f.name for f in fields(cls)])
        if given.get("decay") is not None:
            given["decay"] = decay_of(given["decay"], time_unit)
        return cls(**given)


def spec_from_dict(form: object, *, time_unit: str | None = None) -> Spec:
    """Return a spec of any kind from its JSON form; see :meth:`Spec.from_dict`.

    Raises:
        ParameterError: an unknown kind, or a field that is unknown, missing or outside its domain.
    """
    form = mapping_of("monitor", form)
    named = form.get("kind")
    if not isinstance(named, str) or named not in SPECS:
        raise ParameterError(f"kind is {named!r:.100}; expected one of {', '.join(sorted(SPECS))}")
    return SPECS[named].from_dict(form, time_unit=time_unit)


# ----------------------------------------------------------------------------------------- fields


def _sites(name: str, given: Any) -> tuple[str, ...]:
    listed = sequence_of(name, given, MAX_SITES)
    names = tuple(text_of(f"a name of {name}", each, _SITE, "a source") for each in listed)
    if len(set(names)) < len(names):
        raise ParameterError(
            f"{name} has {len(names) - len(set(names))} repeated; expected each once"
        )
    return names


def _predicate(name: str, given: Any) -> str:
    return read_predicate(_text(name, given)).text


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > MAX_EXPRESSION:
        shown = (
            f"{len(given)} characters" if isinstance(given, str) else f"a {type(given).__name__}"
        )
        raise ParameterError(
            f"{name} is {shown}; expected a text of 1 to {MAX_EXPRESSION} characters"
        )
    return given


def _condition(name: str, given: Any) -> str:
    """A condition over the columns. One over ``v`` and ``w`` alone has its normal form."""
    text = _text(name, given)
    try:
        return read_predicate(text).text
    except ParameterError:
        return text  # which is bound to the columns when the stream is known


def _keys(name: str, given: Any) -> tuple[str, ...]:
    listed = sequence_of(name, [given] if isinstance(given, str) else given, MAX_KEYS)
    keys = tuple(_text(f"a key of {name}", each) for each in listed)
    if not keys or len(set(keys)) < len(keys):
        raise ParameterError(f"{name} is {list(keys)}; expected 1 to {MAX_KEYS} different keys")
    return keys


def _limit(name: str, given: Any) -> int:
    return int(number(name, whole(name, given), 1, MAX_WATCHED_GROUPS))


def _real(name: str, given: Any) -> float:
    return number(name, given)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "within": lambda name, given: number(name, given, above=0.0, below=1.0),
    "decay": lambda name, given: decay_of(given),
    "lease_s": lambda name, given: number(name, given, _SHORTEST_LEASE_S, _LONGEST_LEASE_S),
    "for_s": lambda name, given: number(name, given, 0.0, _LONGEST_S),
    "keep_firing_s": lambda name, given: number(name, given, 0.0, _LONGEST_S),
    "webhook": url_of,
    "sites": _sites,
}


# -------------------------------------------------------------------------------------- threshold


@dataclass(frozen=True)
class _Asked:
    """The arguments of a threshold's query.

    Attributes:
        needs: its own required argument.
        may: its optional arguments.
        asks: the family's queries that the hub sends for it.
        valued: whether an observation without a value is excluded.
    """

    needs: str | None
    may: tuple[str, ...]
    asks: tuple[str, ...]
    valued: bool


_ROWS = ("where", "by")
_VALUES = (*_ROWS, "of")

#: The arguments of each threshold query.
QUESTIONS: Mapping[str, _Asked] = {
    "count": _Asked(None, _ROWS, ("count",), False),
    "rate": _Asked(None, _ROWS, ("rate",), False),
    "sum": _Asked(None, _ROWS, ("sum",), False),
    "total": _Asked(None, _VALUES, ("total",), True),
    "mean": _Asked(None, (*_VALUES, "range"), ("mean", "total"), True),
    "share": _Asked("predicate", _ROWS, ("selectivity", "total"), True),
    "rank": _Asked("value", _VALUES, ("selectivity", "total"), True),
    "quantile": _Asked("q", _VALUES, ("quantile", "selectivity", "total"), True),
    "median": _Asked(None, _VALUES, ("median",), True),
    "variance": _Asked(None, _VALUES, ("variance",), True),
    "stddev": _Asked(None, _VALUES, ("stddev",), True),
    "max": _Asked(None, (), ("max",), True),
    "min": _Asked(None, (), ("min",), True),
    "key_count": _Asked("key", (), ("key_count",), False),
    "key_share": _Asked("key", (), ("key_share",), False),
    "key_total": _Asked(None, (), ("key_total",), False),
    "top_key_share": _Asked(None, (), ("heavy_keys", "key_share"), False),
    "self_join": _Asked(None, (), ("self_join",), False),
}
_COUNTS = ("count", "rate", "sum", "key_count", "key_total", "self_join")
_SHARES = ("share", "rank", "key_share", "top_key_share")
_OWN = ("where", "of", "by", "predicate", "value", "q", "range", "key")
_COUNTABLE = ("count", "sum", "total")  # a source can weigh their rows under a ``where``

MAX_WATCHED_GROUPS = 100
"""Maximum ``groups`` of a threshold."""
_LONGEST_KEY = 1000


@kind("threshold")
@dataclass(frozen=True, kw_only=True)
class Threshold(Spec):
    """An alert when an aggregate reaches a threshold.

    ``Threshold("count", above=5_000, within=0.05, decay=ds.decay.exponential(half_life=1800))``

    Without sources that take part it fires if the query's complete interval has reached the
    threshold, is calm if the complete interval has not, and is uncertain in between.

    With sources that take part it fires only if the aggregate is at ``(1 - within)`` of the
    threshold or above it, and is calm only if it is below. For ``below`` the sides are exchanged
    and the factor is ``1 + within``. For a quantile ``within`` is in rank: it fires only if some
    quantile from ``q - within`` to ``q + within`` has reached the threshold. A tolerance that would
    leave the aggregate's range is narrowed to half the distance to the bound.

    Attributes:
        question: "count", "rate" (count per time unit), "sum" of weights, "total" of signed
            values, "mean", "share" of the weight that satisfies a predicate, "rank" of a value,
            "quantile", "median", "variance", "stddev", "max" or "min". In a stream of key counts:
            "key_count", "key_share", "key_total", "top_key_share" (the largest share that one key
            has) or "self_join". Sources that take part hold rows back for "count", "sum", "total",
            "share", "rank", "quantile" and a mean with ``range``, and for no other aggregate.
        above, below: the threshold; one of them. Above 0 for counts, rate, sum and self-join.
            Between 0 and 1, exclusive, for shares and rank.
        where: a condition over the columns: the aggregate covers these rows alone. Sources that
            take part hold rows back only for count, sum and total, and only if the condition uses
            ``v`` and ``w`` alone.
        of: the aggregated column, or an expression over the columns. Aggregates that need values
            require it if the stream has declared columns. Sources hold nothing back for it.
        by: 1 to 4 keys. Each group has its own state and alert. Sources hold nothing back for it.
        groups: maximum groups with a state, 1 to 100.
        group_retention_s: a group without rows is dropped after so long, and its alert ends.
        predicate: for a share.
        value: for a rank: the share of the weight with this value or less.
        q: for a quantile, between 0 and 1.
        range: for a mean, optional: values lie from the first number to the second. A source that
            takes part may then hold rows back, and posts a value outside the range at once.
        key: for a key's count or share: an integer or a text.

    Raises:
        ParameterError: a field outside its domain, or one that the query does not have.
    """

    question: Question = field(kw_only=False)
    above: float | None = None
    below: float | None = None
    where: str | None = None
    of: str | None = None
    by: tuple[str, ...] | None = None
    groups: int = 20
    group_retention_s: float = 86_400.0
    predicate: str | None = None
    value: float | None = None
    q: float | None = None
    range: tuple[float, float] | None = None
    key: int | str | None = None

    readers: ClassVar[Mapping[str, Callable[[str, Any], Any]]] = {
        "question": lambda name, given: _question(name, given),
        "above": _real,
        "below": _real,
        "where": lambda name, given: _condition(name, given),
        "of": lambda name, given: _text(name, given),
        "by": lambda name, given: _keys(name, given),
        "groups": lambda name, given: _limit(name, given),
        "group_retention_s": lambda name, given: number(name, given, 0.0, _LONGEST_S),
        "predicate": _predicate,
        "value": _real,
        "q": lambda name, given: number(name, given, above=0.0, below=1.0),
        "range": lambda name, given: _range(name, given),
        "key": lambda name, given: _key(name, given),
    }

    def check_fields(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ParameterError(
                f"above is {self.above} and below is {self.below}; expected one of them"
            )
        asked = QUESTIONS[self.question]
        for name in _OWN:
            given = getattr(self, name)
            if name == asked.needs and given is None:
                raise ParameterError(f"{name} is None; a threshold with {self.question} needs it")
            if given is not None and name != asked.needs and name not in asked.may:
                raise ParameterError(
                    f"{name} is {given!r}; a threshold with {self.question} has none"
                )
        self._check_groups()
        side, line = "above" if self.below is None else "below", self.threshold
        if self.question in _COUNTS:
            number(side, line, above=0.0)
        elif self.question in _SHARES or self.range is not None:
            least, most = self.range or (0.0, 1.0)
            number(side, line, above=least, below=most)

    def _check_groups(self) -> None:
        for each in fields(self):
            given = getattr(self, each.name)
            if self.by is None and each.name.startswith("group") and given != each.default:
                raise ParameterError(f"{each.name} is {given!r}; a threshold has it only with by")
        if self.by is not None and (sources := [k for k in self.by if k in SOURCE_KEYS]):
            raise ParameterError(
                f"by is {list(self.by)}; a threshold has no groups by {', '.join(sources)}: "
                "expected expressions over the columns"
            )
        if self.range is not None and self.modified:
            raise ParameterError(
                f"range is {list(self.range)}; expected none with where, of or by, because "
                "sources hold back no rows for them"
            )

    def check_recipe(self, recipe: Recipe) -> None:
        family = recipe.kind
        of_values = QUESTIONS[self.question].valued and self.of is None
        if recipe.params.value_type == "label" and of_values:
            raise ParameterError(
                f"question is {self.question!r}, and the values of the stream are labels; expected "
                "count, rate or sum, or of with a number"
            )
        if family.questions.isdisjoint(("max", "key_count")):
            _check_promises(family)
        for name in (*QUESTIONS[self.question].asks, *(("total",) if self.where else ())):
            if name not in family.questions:
                raise ParameterError(
                    f"question is {self.question!r}, which asks {name!r}; family {family.name!r} "
                    f"answers {', '.join(sorted(family.questions))}"
                )
        self.check_decay(recipe)
        self._check_columns(recipe)
        if self.question in ("key_count", "key_share", "top_key_share"):
            _check_keys(self.question, self.key, recipe.params)
        if self.question == "rate" and self.decay is not None:
            span = area(self.decay)
            if not 0.0 < span < math.inf:
                raise ParameterError(
                    f"decay is {self.decay!r}, whose integral is {span:g}; a rate needs "
                    "a decay with a finite integral, such as window(1h)"
                )

    def _check_columns(self, recipe: Recipe) -> None:
        """Bind the expressions to the stream's columns."""
        params: Any = recipe.params
        columns = getattr(params, "columns", ())
        if columns and QUESTIONS[self.question].valued and self.of is None:
            names = ", ".join(name for name, _ in columns)
            number_column = next(
                (n for n, k in columns if k in ("float64", "int64")), columns[0][0]
            )
            needs = f"of={number_column!r}, or an expression"
            if self.question == "share":
                needs = "question='mean' with the condition as of, such as of='x > 3'"
            raise ParameterError(
                f"question is {self.question!r}, and the stream has the columns {names}; expected "
                f"{needs}"
            )
        if self.modifiers:
            bound_to(self.modifiers, schema_of(params.value_type, params.time_unit, columns))

    @property
    def aggregate(self) -> str:
        """The query's name."""
        return "selectivity" if self.question == "share" else self.question

    @property
    def arguments(self) -> dict[str, Any]:
        """The query's arguments."""
        if self.question == "share":
            return {"predicate": self.predicate}
        if self.question == "rank":
            return {"value": self.value}
        if self.question == "quantile":
            return {"q": [self.q]}
        return {} if self.key is None else {"keys": [self.key]}

    @cached_property
    def modifiers(self) -> Modifiers:
        """The query's rows, values and groups."""
        return Modifiers(of=self.of, where=self.where, by=self.by or ())

    def restricts(self, recipe: Recipe) -> bool:
        """Whether the query needs its modifiers: its condition is no predicate over numbers."""
        named = self.where is not None and recipe.params.value_type in ("label", "record")
        return self.modified or named

    @cached_property
    def modified(self) -> bool:
        """Whether sources cannot weigh their rows for it, and so hold nothing back."""
        if self.by is not None or self.of is not None:
            return True
        if self.where is None:
            return False
        if self.question not in _COUNTABLE:
            return True
        try:
            read_predicate(self.where)
        except ParameterError:
            return True
        return False

    @property
    def threshold(self) -> float:
        """The number given as ``above`` or ``below``."""
        line = self.above if self.above is not None else self.below
        assert line is not None
        return line

    @property
    def form(self) -> Form:
        """How the aggregate moves with weight that has not arrived yet."""
        if self.modified:
            return AnyForm()
        if self.question in ("count", "sum"):
            return Monotone()
        if self.question == "total":
            return Signed()
        if self.question in ("share", "rank", "quantile"):
            return Mean()
        return AnyForm() if self.range is None else Mean(*self.range)

    @cached_property
    def aim(self) -> Aim:
        """The line, as a bound on the aggregate that :meth:`~decaysketch.monitor.hub.Monitor.read`
        reads.

        A quantile reaches T from below if the share of values below T falls to q, and from above
        if the share of values at T and less rises to q.
        """
        above = self.above is not None
        if self.q is not None and not self.modified:
            slack = _narrowed(self.within, self.q, 0.0, 1.0)
            return Aim(Mean(), not above, self.q, self.q + (slack if above else -slack))
        form, slack = self.form, self.within * abs(self.threshold)
        if isinstance(form, Mean):
            slack = _narrowed(slack, self.threshold, form.least, form.most)
        return Aim(form, above, self.threshold, self.threshold + (-slack if above else slack))


def _narrowed(slack: float, line: float, least: float, most: float) -> float:
    """A tolerance that stays within the aggregate's range."""
    return min(slack, (line - least) / 2, (most - line) / 2)


def _check_promises(family: Family) -> None:
    kept = family.promises
    if not (kept.idempotent and kept.lossless):
        raise ParameterError(
            f"family {family.name!r} promises idempotent={kept.idempotent} and "
            f"lossless={kept.lossless}; a threshold needs results of a union: expected both True"
        )


def _check_keys(question: str, key: int | str | None, params: Any) -> None:
    if question == "top_key_share":
        if params.key_bits is None:
            raise ParameterError(
                "question is 'top_key_share', and key_bits of the stream is None; expected a "
                "stream with key_bits"
            )
        return
    try:
        params.words_of([key])
    except ObservationError as fault:
        raise ParameterError(f"key is {key!r:.100}: {fault}") from None


def _key(name: str, given: Any) -> int | str:
    if isinstance(given, str) and 0 < len(given) <= _LONGEST_KEY:
        return given
    if isinstance(given, int) and not isinstance(given, bool) and -(1 << 63) <= given < 1 << 64:
        return given
    raise ParameterError(
        f"{name} is {given!r:.100}; expected a 64-bit integer, or a text of 1 to {_LONGEST_KEY} "
        "characters"
    )


def _question(name: str, given: Any) -> Question:
    if not isinstance(given, str) or given not in get_args(Question):
        raise ParameterError(
            f"{name} is {given!r:.100}; expected one of {', '.join(get_args(Question))}"
        )
    return given  # type: ignore[return-value]


def _range(name: str, given: Any) -> tuple[float, float]:
    pair = sequence_of(name, given, 2)
    if len(pair) != 2:
        raise ParameterError(f"{name} has {len(pair)} numbers; expected 2")
    least, most = (number(name, each) for each in pair)
    number(f"the second of {name}", most, above=least)
    return least, most
