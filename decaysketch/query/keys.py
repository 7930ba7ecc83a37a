"""Every query about keys: how often each came, how skewed they are, and the heaviest keys.

They read counters that all keys share, and no row sample. A result may therefore have a
guaranteed bound: :attr:`~decaysketch.query.estimate.Estimate.sure_upper`. Entries have the form
used in :mod:`~decaysketch.query.catalog`. A family's :class:`KeyView` answers them.

To add a query, add a method to :class:`KeyView`, its entry here, and a method to
:class:`AskedOfKeys`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypedDict, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from decaysketch.core.time_units import Instant
from decaysketch.decay import Decay
from decaysketch.query.dispatch import OwnView, Views, asked_by, check_how
from decaysketch.query.estimate import Estimate, as_of
from decaysketch.query.shapes import SCALAR, Argument, Column, Combine, Question, Rows, Shape

__all__ = [
    "KEY_QUESTIONS",
    "AskedOfKeys",
    "Estimates",
    "HeavyKey",
    "HeavyKeys",
    "HeavyPrefix",
    "HeavyPrefixes",
    "HowOfKeys",
    "Key",
    "KeyView",
    "is_key",
]

F = TypeVar("F", bound=Callable[..., Any])
Float64Array = npt.NDArray[np.float64]

Key = str | bytes | int | tuple[str | bytes | int, ...]
"""What events are counted by."""


def is_key(keys: Any) -> bool:
    """Return whether the argument is one key, not columns of keys."""
    if isinstance(keys, tuple):
        return all(map(is_key, keys))
    return isinstance(keys, (str, bytes)) or not hasattr(keys, "__len__")


class Estimates(Protocol):
    """Estimates as columns, float64[m] each. An entry is an :class:`Estimate`."""

    @property
    def value(self) -> Float64Array: ...
    @property
    def lower(self) -> Float64Array: ...
    @property
    def upper(self) -> Float64Array: ...
    @property
    def stderr(self) -> Float64Array: ...
    @property
    def sure_upper(self) -> Float64Array: ...
    @overload
    def __getitem__(self, item: int) -> Estimate: ...
    @overload
    def __getitem__(
        self, item: slice | npt.NDArray[np.bool_] | npt.NDArray[np.intp]
    ) -> Estimates: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Estimate]: ...


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key whose count may reach a threshold.

    Attributes:
        key: the integer.
        count: its decayed count.
        certain: the count reaches the threshold, too, at the confidence that holds for all certain
            keys of a result together. So the lower bound of ``count``, whose confidence is for this
            key alone, may reach it although this is False.
    """

    key: int
    count: Estimate
    certain: bool


@dataclass(frozen=True, eq=False, repr=False)
class HeavyKeys:
    """Every key whose count may reach a threshold, largest estimate first.

    Attributes:
        threshold: decayed count.
        keys: uint64[m].
        counts: their decayed counts.
        certain: bool[m].
    """

    threshold: float
    keys: npt.NDArray[np.uint64]
    counts: Estimates
    certain: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[HeavyKey]:
        return map(HeavyKey, self.keys.tolist(), self.counts, self.certain.tolist())

    def __repr__(self) -> str:
        found = f"{len(self)} keys, {np.count_nonzero(self.certain)} of them certain"
        return f"HeavyKeys({found}, threshold={self.threshold:.6g})"

    def first(self, limit: int | None) -> HeavyKeys:
        """Return this many keys, heaviest first."""
        if limit is None or limit >= len(self):
            return self
        part = slice(limit)
        return HeavyKeys(self.threshold, self.keys[part], self.counts[part], self.certain[part])


@dataclass(frozen=True, slots=True)
class HeavyPrefix:
    """A key prefix whose count, apart from heavy prefixes below it, may reach a threshold.

    Attributes:
        prefix: the smallest key that has it: the prefix, followed by zeros.
        bits: its length, from 0 (all keys) to ``key_bits`` (one key). For addresses,
            ``ipaddress.ip_network((prefix, bits))`` is the network.
        count: decayed count of the keys that have it.
        discounted: ``count``, less the counts of the shortest heavy prefixes below it.
        certain: the lower bound of ``discounted`` reaches the threshold, too.
    """

    prefix: int
    bits: int
    count: Estimate
    discounted: Estimate
    certain: bool


@dataclass(frozen=True, repr=False)
class HeavyPrefixes:
    """Every prefix whose discounted count may reach a threshold, largest estimate first.

    Attributes:
        threshold: decayed count.
        prefixes: the prefixes.
    """

    threshold: float
    prefixes: tuple[HeavyPrefix, ...]

    def __len__(self) -> int:
        return len(self.prefixes)

    def __iter__(self) -> Iterator[HeavyPrefix]:
        return iter(self.prefixes)

    def __repr__(self) -> str:
        certain = sum(each.certain for each in self.prefixes)
        found = f"{len(self)} prefixes, {certain} of them certain"
        return f"HeavyPrefixes({found}, threshold={self.threshold:.6g})"


# --------------------------------------------------------------------------------------- the view


class KeyView(OwnView):
    """Queries to key counters. Immutable, safe to read from any thread."""

    asked_of: ClassVar = "keys"

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of counters."""

    @abstractmethod
    def counts(self, keys: Any, *, confidence: float) -> Estimates:
        """Return decayed counts for keys, given as for ``update``. One key gives a column with
        one entry.
        """

    @abstractmethod
    def shares(self, keys: Any, *, confidence: float) -> list[Estimate]:
        """Return each key's share in the total."""

    @abstractmethod
    def total(self, *, confidence: float) -> Estimate:
        """Return the decayed count for all keys together."""

    @abstractmethod
    def self_join(self, *, confidence: float) -> Estimate:
        """Return the sum of the squared decayed counts."""

    @abstractmethod
    def inner_product(self, other: Any, *, confidence: float) -> Estimate:
        """Return the inner product with the decayed counts in another stream. The argument is a
        view of it, or a sketch or snapshot. This method queries a sketch or snapshot under the same
        decay and time.
        """

    @abstractmethod
    def heavy_keys(
        self, phi: float | None, threshold: float | None, *, confidence: float
    ) -> HeavyKeys:
        """Return all keys that may have a share, or a decayed count."""

    @abstractmethod
    def heavy_prefixes(
        self, phi: float | None, threshold: float | None, limit: int | None, *, confidence: float
    ) -> HeavyPrefixes:
        """Return the prefixes that may have a share, or a decayed count, apart from heavy ones
        below them.
        """

    @abstractmethod
    def range(self, low: int, high: int, *, confidence: float) -> Estimate:
        """Return the decayed count of integer keys from ``low`` to ``high``, both inclusive."""

    @abstractmethod
    def rank(self, key: int, *, confidence: float) -> Estimate:
        """Return the share of integer keys up to ``key``, inclusive."""

    @abstractmethod
    def quantile(self, q: float, *, confidence: float) -> Estimate:
        """Return approximately the least integer key with relative rank ``q`` or more."""


# ------------------------------------------------------------------------------------------ entries

# Processor seconds, measured on one core, rounded: a result, an estimate for each of many keys as
# JSON, a cell in a join, the descents for a rank, a cell in them, a child that is checked.
_ANSWER_S = 2e-4
_KEY_S = 15e-6
_JOINED_S = 60e-9
_RANK_S, _RANKED_S = 2e-3, 4e-7
_CHILD_S = 20e-9
_MOST_CHILDREN = 1 << 20  # that a usual question looks at

_KEYS = frozenset({"keys", "chosen decay"})
_MOST_ROWS = 10_000

#: The entries, in the order of documents.
KEY_QUESTIONS: list[Question[Any]] = []


def _enter(
    name: str,
    doc: str,
    answer: Callable[..., Any],
    *arguments: Argument,
    cost_s: Callable[[KeyView, Mapping[str, Any]], float] = lambda _view, _given: _ANSWER_S,
    shape: Shape = SCALAR,
    parts: Callable[[Any, Mapping[str, Any]], dict[str, Any]] = lambda found, _: {
        "estimate": found
    },
    **more: Any,
) -> Question[Any]:
    """Enter a query. Its SQL function has its name."""
    question = Question(name, doc, answer, cost_s, shape, parts, arguments, _KEYS, sql=name, **more)
    KEY_QUESTIONS.append(question)
    return question


def _listed(entries: Any) -> Sequence[Any]:
    return [entries] if is_key(entries) else entries


_ASKED_KEYS = Argument(
    "keys",
    "keys",
    "A key, or a list of them: integers, or texts.",
    "either",
    leading=True,
    example=[1, 2, 3],
)


def _by_key(name: str, doc: str, ask: Callable[..., Any], rows: Rows, shape: str, said: str) -> Any:
    """Enter a query that has an estimate for each key."""
    return _enter(
        name,
        doc,
        ask,
        _ASKED_KEYS,
        cost_s=lambda _, given: _ANSWER_S + len(_listed(given["keys"])) * _KEY_S,
        shape=Shape(shape, said, rows),
        parts=lambda found, given: {
            rows.name: [
                {"key": key, "estimate": each}
                for key, each in zip(_listed(given["keys"]), found, strict=True)
            ]
        },
        most=lambda given: len(_listed(given["keys"])),
    )


_KEY_COUNT = _by_key(
    "key_count",
    "Decayed count of a key, or of several. `sure_upper` is a guaranteed upper bound.",
    lambda view, keys, *, confidence: view.counts(keys, confidence=confidence),
    Rows(
        "counts",
        "KeyCount",
        "The decayed count of one key.",
        (Column("key", "key"), Column("estimate", "estimate", label="count of {key}")),
        each="keys",
    ),
    "KeyCounts",
    "Counts, in the order of the keys in the query.",
)
_KEY_SHARE = _by_key(
    "key_share",
    "Share of a key, or of several, in the total decayed count.",
    lambda view, keys, *, confidence: view.shares(keys, confidence=confidence),
    Rows(
        "shares",
        "KeyShare",
        "The share of one key.",
        (Column("key", "key"), Column("estimate", "estimate", label="share of {key}")),
        each="keys",
    ),
    "KeyShares",
    "Shares, in the order of the query.",
)
_KEY_TOTAL = _enter(
    "key_total",
    "Decayed count of all keys together. Both bounds are guaranteed.",
    lambda view, *, confidence: view.total(confidence=confidence),
)
_SELF_JOIN = _enter(
    "self_join",
    "Sum of the squared decayed counts of all keys. It measures their skew.",
    lambda view, *, confidence: view.self_join(confidence=confidence),
    cost_s=lambda view, _: _ANSWER_S + view.cells * _JOINED_S,
)
_INNER_PRODUCT = _enter(
    "inner_product",
    "Sum, over keys, of the product of the decayed counts here and in another stream: the number "
    "of pairs with equal keys.",
    lambda view, other, *, confidence: view.inner_product(other, confidence=confidence),
    Argument(
        "other",
        "sketch",
        "A sketch of the other stream. All parameters of the cells must agree.",
        leading=True,
    ),
    cost_s=lambda view, _: _ANSWER_S + view.drawn_s + 3 * view.cells * _JOINED_S,
)


def _one_threshold(given: Mapping[str, Any]) -> str | None:
    if (given["phi"] is None) == (given["threshold"] is None):
        return "give either phi or threshold"
    return None


def _heavy_s(view: KeyView, given: Mapping[str, Any]) -> float:
    phi, limit = given["phi"], given["limit"]
    found = _MOST_ROWS if phi is None or phi * _MOST_ROWS <= 1 else 2 / phi
    listed = found if limit is None else min(found, limit)
    children = min(256 * found + view.cells, _MOST_CHILDREN)
    return _ANSWER_S + children * _CHILD_S + listed * _KEY_S


def _prefixes_s(view: KeyView, given: Mapping[str, Any]) -> float:
    """Every heavy key has a prefix of each length, and every row two estimates."""
    return 4 * _heavy_s(view, given)


_HEAVY_KEYS = _enter(
    "heavy_keys",
    "Integer keys that may have the share `phi` of the decayed count, heaviest first. No key "
    "with this share is missing. Needs `key_bits`.",
    lambda view, phi, threshold, limit, *, confidence: view.heavy_keys(
        phi, threshold, confidence=confidence
    ).first(limit),
    Argument(
        "phi",
        "share",
        "A share above 0 and at most 1. Give this or `threshold`.",
        least=0.0,
        most=1.0,
        default=None,
        leading=True,
        example=0.05,
    ),
    Argument("threshold", "number", "A decayed count, above 0, instead of a share.", default=None),
    Argument(
        "limit",
        "integer",
        "Maximum number of entries, heaviest first.",
        least=1,
        most=_MOST_ROWS,
        default=None,
        served=1000,
    ),
    cost_s=_heavy_s,
    shape=Shape(
        "HeavyKeys",
        "The keys with a count that may reach the threshold, heaviest first.",
        Rows(
            "heavy_keys",
            "HeavyKeyModel",
            "A key and its decayed count. `certain`: the count reaches the threshold. All "
            "certain keys together do, with the stated confidence.",
            (
                Column("key", "key"),
                Column("count", "estimate", label="count of {key}"),
                Column("certain", "flag"),
            ),
        ),
        (Column("threshold", "float", "The smallest decayed count that is a share of phi."),),
    ),
    parts=lambda found, _: {
        "heavy_keys": [
            {"key": each.key, "count": each.count, "certain": each.certain} for each in found
        ],
        "threshold": found.threshold,
    },
    check=_one_threshold,
    most=lambda given: given["limit"],
)


_HEAVY_PREFIXES = _enter(
    "heavy_prefixes",
    "Prefixes of integer keys (networks, topics, time slices) that may have the share `phi` of "
    "the decayed count without their heavy parts: the count minus the counts of heavy prefixes "
    "below. No prefix with this share is missing. Needs `key_bits`, and finds prefixes whose "
    "lengths differ by `fanout_bits`.",
    lambda view, phi, threshold, limit, *, confidence: view.heavy_prefixes(
        phi, threshold, limit, confidence=confidence
    ),
    *_HEAVY_KEYS.arguments,
    cost_s=_prefixes_s,
    shape=Shape(
        "HeavyPrefixes",
        "The prefixes with a discounted count that may reach the threshold, largest first.",
        Rows(
            "heavy_prefixes",
            "HeavyPrefixModel",
            "A prefix: its smallest key, and its length. `count` is its decayed count, "
            "`discounted` the part outside heavy prefixes below it. `certain`: the lower bound "
            "of `discounted` reaches the threshold.",
            (
                Column("prefix", "key"),
                Column("bits", "integer"),
                Column("count", "estimate", label="count of {prefix}/{bits}"),
                Column("discounted", "estimate", label="discounted count of {prefix}/{bits}"),
                Column("certain", "flag"),
            ),
        ),
        (Column("threshold", "float", "The smallest decayed count that is a share of phi."),),
    ),
    parts=lambda found, _: {
        "heavy_prefixes": [
            {name: getattr(each, name) for name in HeavyPrefix.__slots__} for each in found
        ],
        "threshold": found.threshold,
    },
    check=_one_threshold,
    most=lambda given: None if given["limit"] is None else 2 * given["limit"],
)


def _no_range(given: Mapping[str, Any]) -> str | None:
    return None if len(given["bounds"]) == 2 else "bounds are two integers, both inclusive"


def _ranked_s(view: KeyView, answers: int = 1) -> float:
    return _ANSWER_S + answers * (_RANK_S + view.cells * _RANKED_S)


_KEY_RANGE = _enter(
    "key_range",
    "Decayed count of the integer keys between two, both inclusive. Needs `key_bits`.",
    lambda view, bounds, *, confidence: view.range(*bounds, confidence=confidence),
    Argument(
        "bounds",
        "integer",
        "The smallest and the largest key.",
        "yes",
        least=0,
        fewest=2,
        longest=2,
        leading=True,
        example=[0, 9],
    ),
    cost_s=lambda view, _: _ranked_s(view),
    check=_no_range,
)
_KEY_RANK = _enter(
    "key_rank",
    "Share of the integer keys up to a given one, inclusive, in the decayed count. Needs "
    "`key_bits`.",
    lambda view, key, *, confidence: view.rank(key, confidence=confidence),
    Argument("key", "integer", "A key.", least=0, leading=True, example=9),
    cost_s=lambda view, _: _ranked_s(view),
)
_KEY_QUANTILE = _enter(
    "key_quantile",
    "The smallest integer key with a relative rank of approximately `q` or more, for one `q` or "
    "several. Needs `key_bits`.",
    lambda view, q, *, confidence: [view.quantile(each, confidence=confidence) for each in q],
    Argument(
        "q", "share", "A number in [0, 1], or a list of them.", "either", 0.0, 1.0,
        leading=True, example=[0.1, 0.5, 0.9],
    ),
    cost_s=lambda view, given: _ranked_s(view, len(given["q"])),
    shape=Shape(
        "KeyQuantile",
        "Quantiles, in the order of the query.",
        Rows(
            "quantiles",
            "KeyQuantileEstimate",
            "One quantile.",
            (Column("q", "float"), Column("estimate", "estimate", label="quantile {q}")),
            each="q",
        ),
    ),
    parts=lambda found, given: {
        "quantiles": [
            {"q": asked, "estimate": each} for asked, each in zip(given["q"], found, strict=True)
        ]
    },
    most=lambda given: len(given["q"]),
)  # fmt: skip


# ----------------------------------------------------------------------------------------- methods


class HowOfKeys(TypedDict, total=False):
    """Keywords that every query accepts. See :meth:`AskedOfKeys.at`."""

    now: Instant | None
    sources: Iterable[Any] | None
    confidence: float
    combine: Combine
    estimator: Any


_HOW = (
    ("now", None, "Instant | None"),
    ("sources", None, "Iterable | None"),
    ("confidence", 0.95, "float"),
    ("combine", "average", "Combine"),
    ("estimator", "debiased", "str"),
)


def _asks(question: Question[Any]) -> Callable[[F], F]:
    said = (
        "``now``, ``sources`` and ``estimator``: see :meth:`at`; ``confidence`` and ``combine``:\n"
        ":meth:`decaysketch.query.dispatch.View.ask`."
    )
    return asked_by(question, _HOW, said)


class AskedOfKeys(Views):
    """Queries to every sketch that counts keys. You choose the decay per query: any that does not
    rise with the age. ``decay.window(w)`` is the window [now - w, now].
    """

    @property
    @abstractmethod
    def clock(self) -> int | None:
        """The latest time that was seen or given. None before the first."""

    @abstractmethod
    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        sources: Iterable[Any] | None = None,
        estimator: Any = "debiased",
    ) -> KeyView:
        """Return the view under a decay, at a time.

        Args:
            decay: weight of an event as a function of its age, which does not rise with it.
            now: query time, in the stream's unit. None for the clock. Later events are not counted.
            sources: names of the sources whose events are counted. None for all.
            estimator: "debiased" (default), or "minimum", the paper's.

        Raises:
            ParameterError: the decay, time, source or estimator does not exist.
            UnanswerableQueryError: the decay reaches back further than the stored data.
        """

    def _ask(
        self, question: Question[Any], decay: Decay | str, how: HowOfKeys, **arguments: Any
    ) -> Any:
        check_how(question, how, HowOfKeys.__annotations__)
        view = self.at(
            decay, how.get("now"), sources=how.get("sources"),
            estimator=how.get("estimator", "debiased"),
        )  # fmt: skip
        confidence, combine = how.get("confidence", 0.95), how.get("combine", "average")
        found = view.ask(question, confidence=confidence, combine=combine, **arguments)
        return as_of(view.now, found) if how.get("now") is None else found

    @overload
    def key_count(self, keys: Key, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Estimate: ...

    @overload
    def key_count(self, keys: Any, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Estimates: ...

    @_asks(_KEY_COUNT)
    def key_count(self, keys: Any, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Any:
        found = self._ask(_KEY_COUNT, decay, how, keys=keys)
        return found[0] if is_key(keys) else found

    @overload
    def key_share(self, keys: Key, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Estimate: ...

    @overload
    def key_share(
        self, keys: Any, decay: Decay | str, **how: Unpack[HowOfKeys]
    ) -> list[Estimate]: ...

    @_asks(_KEY_SHARE)
    def key_share(self, keys: Any, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Any:
        found = self._ask(_KEY_SHARE, decay, how, keys=keys)
        return found[0] if is_key(keys) else found

    @_asks(_KEY_TOTAL)
    def key_total(self, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Estimate:
        found: Estimate = self._ask(_KEY_TOTAL, decay, how)
        return found

    @_asks(_SELF_JOIN)
    def self_join(self, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Estimate:
        found: Estimate = self._ask(_SELF_JOIN, decay, how)
        return found

    @_asks(_INNER_PRODUCT)
    def inner_product(
        self, other: AskedOfKeys, decay: Decay | str, **how: Unpack[HowOfKeys]
    ) -> Estimate:
        if how.get("now") is None:  # the later of both clocks
            clocks = [each for each in (self.clock, other.clock) if each is not None]
            how["now"] = max(clocks, default=None)
        found: Estimate = self._ask(_INNER_PRODUCT, decay, how, other=other)
        return found

    @_asks(_HEAVY_KEYS)
    def heavy_keys(
        self,
        phi: float | None,
        decay: Decay | str,
        *,
        threshold: float | None = None,
        limit: int | None = None,
        **how: Unpack[HowOfKeys],
    ) -> HeavyKeys:
        found: HeavyKeys = self._ask(
            _HEAVY_KEYS, decay, how, phi=phi, threshold=threshold, limit=limit
        )
        return found

    @_asks(_HEAVY_PREFIXES)
    def heavy_prefixes(
        self,
        phi: float | None,
        decay: Decay | str,
        *,
        threshold: float | None = None,
        limit: int | None = None,
        **how: Unpack[HowOfKeys],
    ) -> HeavyPrefixes:
        found: HeavyPrefixes = self._ask(
            _HEAVY_PREFIXES, decay, how, phi=phi, threshold=threshold, limit=limit
        )
        return found

    @_asks(_KEY_RANGE)
    def key_range(
        self, low: int, high: int, decay: Decay | str, **how: Unpack[HowOfKeys]
    ) -> Estimate:
        found: Estimate = self._ask(_KEY_RANGE, decay, how, bounds=(low, high))
        return found

    @_asks(_KEY_RANK)
    def key_rank(self, key: int, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Estimate:
        found: Estimate = self._ask(_KEY_RANK, decay, how, key=key)
        return found

    @overload
    def key_quantile(self, q: float, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Estimate: ...

    @overload
    def key_quantile(
        self, q: Sequence[float], decay: Decay | str, **how: Unpack[HowOfKeys]
    ) -> list[Estimate]: ...

    @_asks(_KEY_QUANTILE)
    def key_quantile(self, q: Any, decay: Decay | str, **how: Unpack[HowOfKeys]) -> Any:
        found = self._ask(_KEY_QUANTILE, decay, how, q=q)
        return found[0] if np.ndim(q) == 0 else found
