"""Every query about series: queries that need a row and the next row in its series.

They read a sample of series, each with all its rows. A row sample lacks neighbours. Entries
have the form used in :mod:`~decaysketch.query.catalog`. A family's :class:`SeriesView` answers
them. All lengths (validity, gap, guard) are in the stream's time unit.

To add a query, add a method to :class:`SeriesView`, its entry here, and a method to
:class:`AskedOfSeries`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from decaysketch.decay import Decay
from decaysketch.query.aggregates import Predicate
from decaysketch.query.dispatch import How, OwnView, OwnViews, asked_of_own, check_how
from decaysketch.query.estimate import Estimate, as_of
from decaysketch.query.modifiers import Modifiers, Order
from decaysketch.query.series_groups import SeriesTable, restricted
from decaysketch.query.shapes import SCALAR, Argument, Question

__all__ = ["SERIES_QUESTIONS", "AskedOfSeries", "SeriesView"]

F = TypeVar("F", bound=Callable[..., Any])


class SeriesView(OwnView):
    """Queries to a sample of series. Immutable, safe to read from any thread.

    There is one hash function. An estimate's ``rows`` counts the entities read.
    """

    asked_of: ClassVar = "series"

    @property
    @abstractmethod
    def read_s(self) -> float:
        """Approximate processor time for one query, in seconds."""

    @abstractmethod
    def joined_s(self, rows: int) -> float:
        """Approximate processor time for a join with so many rows, in seconds."""

    @property
    @abstractmethod
    def attributes(self) -> Sequence[str]:
        """Names of declared attributes."""

    @property
    @abstractmethod
    def time_unit(self) -> str:
        """The stream's time unit."""

    @property
    @abstractmethod
    def entities(self) -> int:
        """Count of entities with retained rows."""

    @property
    @abstractmethod
    def least_probability(self) -> float:
        """The smallest probability that an entity is retained, over all ages except those with the
        last 1 % weight. 1 if nothing there was discarded.
        """

    @abstractmethod
    def series_table(self) -> SeriesTable:
        """Return all series with their attributes, if the stream declares any."""

    @abstractmethod
    def of_series(self, chosen: npt.NDArray[np.bool_]) -> SeriesView:
        """Return a view restricted to some series.

        Args:
            chosen: bool[series], ordered as :meth:`series_table`.
        """

    def modified(self, modifiers: Modifiers) -> Any:
        return restricted(self, modifiers) if modifiers else self

    @abstractmethod
    def increase(self, *, wrap: float | None, guard: float | None, confidence: float) -> Estimate:
        """Return the counter increase."""

    @abstractmethod
    def increase_rate(
        self, *, wrap: float | None, guard: float | None, confidence: float
    ) -> Estimate:
        """Return the increase over the decay's integral."""

    @abstractmethod
    def time_average(self, validity: float | None, *, linear: bool, confidence: float) -> Estimate:
        """Return the mean value, each value weighted by its valid time."""

    @abstractmethod
    def time_in_state(
        self, predicate: Predicate, *, validity: float | None, confidence: float
    ) -> Estimate:
        """Return the time share in which a predicate holds."""

    @abstractmethod
    def state_time(
        self, predicate: Predicate, *, validity: float | None, confidence: float
    ) -> Estimate:
        """Return the time during which a predicate holds."""

    @abstractmethod
    def transitions(self, *, validity: float | None, confidence: float) -> Estimate:
        """Return how many times values change."""

    @abstractmethod
    def gaps(self, longer_than: float, *, confidence: float) -> Estimate:
        """Return how many intervals are longer than a length."""

    @abstractmethod
    def availability(self, validity: float, *, forget: float | None, confidence: float) -> Estimate:
        """Return the share of a series' life in which it had a valid value. The life begins with
        the first row.
        """

    @abstractmethod
    def interval_quantile(self, q: float, *, confidence: float) -> Estimate:
        """Return a quantile of the time between a row and the next row."""

    @abstractmethod
    def sessions(self, gap: float, *, confidence: float) -> Estimate:
        """Return how many sessions began."""

    @abstractmethod
    def session_length(self, gap: float, *, q: float | None, confidence: float) -> Estimate:
        """Return the mean session length, or a quantile."""

    @abstractmethod
    def series_count(self, *, confidence: float) -> Estimate:
        """Return the series count, by the weight of each latest row."""

    @abstractmethod
    def silent_series(self, silence: float, *, confidence: float) -> Estimate:
        """Return how many series have a latest row older than a length."""

    @abstractmethod
    def average_quantile(self, q: float, *, validity: float | None, confidence: float) -> Estimate:
        """Return a quantile over the time-weighted averages of series."""

    @abstractmethod
    def time_correlation(
        self, other: Any, *, validity: float | None, confidence: float
    ) -> Estimate:
        """Return the correlation with another stream, each pair of values by its valid time."""

    @abstractmethod
    def time_covariance(self, other: Any, *, validity: float | None, confidence: float) -> Estimate:
        """Return the covariance with another stream."""

    @abstractmethod
    def time_slope(self, other: Any, *, validity: float | None, confidence: float) -> Estimate:
        """Return the slope for this stream, given another."""

    @abstractmethod
    def increase_quantile(
        self, q: float, *, wrap: float | None, guard: float | None, confidence: float
    ) -> Estimate:
        """Return a quantile over the increases of series."""


# ------------------------------------------------------------------------------------------ entries

_NEEDS = frozenset({"series", "chosen decay"})

#: The entries, in the order of documents.
SERIES_QUESTIONS: list[Question[Any]] = []


def _scalar(name: str, doc: str, *arguments: Argument) -> Question[Estimate]:
    """Enter a query that returns one estimate, by the view method with its name."""
    leading = [each.name for each in arguments if each.leading]

    def answer(view: SeriesView, *, confidence: float, **given: Any) -> Estimate:
        first = [given.pop(each) for each in leading]
        with np.errstate(over="ignore", invalid="ignore"):  # huge values: the result is infinite
            found: Estimate = getattr(view, name)(*first, confidence=confidence, **given)
        return found

    question = Question(
        name, doc, answer, _cost_s, SCALAR,
        lambda found, _: {"estimate": found}, arguments, _NEEDS,
    )  # fmt: skip
    SERIES_QUESTIONS.append(question)
    return question


def _cost_s(view: SeriesView, given: Mapping[str, Any]) -> float:
    other: Any = given.get("other")
    return view.joined_s(len(other)) if hasattr(other, "__len__") else view.read_s


_WRAP = Argument(
    "wrap",
    "number",
    "The number at which counters wrap around to 0, such as 2^32. Default: they do not.",
    least=2,
    default=None,
)
_GUARD = Argument(
    "guard",
    "number",
    "Maximum difference between two collectors' clocks. A fall that such a difference explains "
    "is not a reset. Default: six usual intervals, or three if a resolution thins rows. 0: every "
    "fall is a reset.",
    least=0,
    most=1 << 60,
    default=None,
)
_VALIDITY = Argument(
    "validity",
    "number",
    "Time for which a value is valid, unless the next one comes first. Default: until the next "
    "one.",
    least=1,
    default=None,
)
_STATE = Argument(
    "predicate",
    "predicate",
    "The state, of the value `v` and the weight `w`, such as `v == 2`.",
    leading=True,
    example="v >= 1",
)
_Q = Argument("q", "share", "A number in [0, 1].", least=0.0, most=1.0, leading=True, example=0.5)


def _length(name: str, doc: str) -> Argument:
    return Argument(name, "number", doc, least=1, most=1 << 60, leading=True, example=60)


_INCREASE = _scalar(
    "increase",
    "Total increase of counters: the rises between neighbouring rows of a series, and after a "
    "reset the complete counter. Each rise is spread evenly over its time, so windows add up.",
    _WRAP,
    _GUARD,
)
_INCREASE_RATE = _scalar(
    "increase_rate",
    "The increase of counters per unit of time, divided by the integral of the decay.",
    _WRAP,
    _GUARD,
)
_TIME_AVERAGE = _scalar(
    "time_average",
    "Time-weighted mean: each value counts for as long as it is valid.",
    _length("validity", "Time for which a value is valid, unless the next one comes first."),
    Argument(
        "linear",
        "flag",
        "Whether to interpolate: a value counts as the mean of itself and the next one, if that "
        "arrives in time.",
        default=False,
    ),
)
_TIME_IN_STATE = _scalar(
    "time_in_state",
    "Share of the valid time in which the value was in a state.",
    _STATE,
    _VALIDITY,
)
_STATE_TIME = _scalar(
    "state_time",
    "Time during which the value was in a state, in units of time.",
    _STATE,
    _VALIDITY,
)
_TRANSITIONS = _scalar(
    "transitions",
    "Number of times that a value differed from the previous one in its series.",
    _VALIDITY,
)
_GAPS = _scalar(
    "gaps",
    "Number of intervals between two neighbouring rows that are longer than a length.",
    _length("longer_than", "The length."),
)
_AVAILABILITY = _scalar(
    "availability",
    "Share of the time since the first row of a series in which it had a valid value. The share "
    "of a silent series falls.",
    _length("validity", "Time for which a value is valid, unless the next one comes first."),
    Argument(
        "forget",
        "number",
        "The time without rows after which a series counts as ended. Default: never.",
        least=1,
        default=None,
    ),
)
_INTERVAL_QUANTILE = _scalar(
    "interval_quantile",
    "Quantile of the time between neighbouring rows of a series.",
    _Q,
)
_SESSIONS = _scalar(
    "sessions",
    "Number of sessions that began: rows without an earlier row of their series within a gap.",
    _length("gap", "The time without rows that ends a session."),
)
_SESSION_LENGTH = _scalar(
    "session_length",
    "Mean length of the sessions that began, or a quantile of their lengths.",
    _length("gap", "The time without rows that ends a session."),
    Argument(
        "q", "share", "A number in [0, 1]. Default: the mean.", least=0.0, most=1.0, default=None
    ),
)
_SERIES_COUNT = _scalar(
    "series_count",
    "Number of series, each by the weight of its latest row. Under a window: active series.",
)
_SILENT_SERIES = _scalar(
    "silent_series",
    "Number of series whose latest row is older than a length. Each counts by the weight of that "
    "row.",
    _length("silence", "The length."),
)
_AVERAGE_QUANTILE = _scalar(
    "average_quantile",
    "Quantile of the time-weighted means of all series. Only under a window.",
    _Q,
    _VALIDITY,
)
_OTHER = Argument(
    "other",
    "sketch",
    "A sketch of the other stream, with the same seed, `id_bits` and time unit.",
    leading=True,
)
_PAIRS = (
    "the same entity's values in another stream at the same times. Each pair counts for as long as "
    "both values are valid."
)


def _joining(name: str, doc: str) -> Question[Estimate]:
    return _scalar(name, f"{doc} {_PAIRS}", _OTHER, _VALIDITY)


_TIME_CORRELATION = _joining("time_correlation", "Pearson's correlation of series values with")
_TIME_COVARIANCE = _joining("time_covariance", "Covariance of series values with")
_TIME_SLOPE = _joining("time_slope", "Slope of the least-squares line for series values, given")
_INCREASE_QUANTILE = _scalar(
    "increase_quantile",
    "Quantile of the increases of all series that increased. Only under a window.",
    _Q,
    _WRAP,
    _GUARD,
)


# ----------------------------------------------------------------------------------------- methods


_ESTIMATOR: Final = "pieces"
_MORE: Final = (
    ("where", None, "str | None"),
    ("by", None, "str | Sequence[str] | None"),
    ("groups", None, "int | None"),
    ("order", "largest", "Order"),
)
_SAID: Final = (
    "``where`` selects series by a condition over attributes. ``by`` (keys), ``groups`` (how many\n"
    "are listed) and ``order``: see :meth:`decaysketch.query.dispatch.View.by`. With ``by`` the\n"
    "result is a :class:`decaysketch.GroupTable`."
)


def _asks(question: Question[Any]) -> Callable[[F], F]:
    return asked_of_own(question, _ESTIMATOR, _MORE, _SAID)


class SeriesHow(How, total=False):
    """Keywords that every query to series accepts. See :meth:`View.given` and :meth:`View.by`."""

    where: str | None
    by: str | Sequence[str] | None
    groups: int | None
    order: Order


class AskedOfSeries(OwnViews):
    """Queries to every sketch that samples series."""

    estimator: ClassVar[str] = _ESTIMATOR

    def _ask_series(
        self, question: Question[Estimate], decay: Decay | str, how: SeriesHow, **arguments: Any
    ) -> Estimate:
        check_how(question, how, SeriesHow.__annotations__)
        by: Any = how.get("by") or ()
        modifiers = Modifiers(
            by=by, where=how.get("where"),
            limit=how.get("groups"), order=how.get("order", "largest"),
        )  # fmt: skip
        view = self.at(decay, how.get("now"), estimator=how.get("estimator", self.estimator))
        found: Any = view.modified(modifiers).ask(
            question, confidence=how.get("confidence", 0.95),
            combine=how.get("combine", "average"), **arguments,
        )  # fmt: skip
        dated: Estimate = as_of(view.now, found) if how.get("now") is None else found
        return dated

    @_asks(_INCREASE)
    def increase(
        self, decay: Decay | str, *, wrap: float | None = None, guard: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_INCREASE, decay, how, wrap=wrap, guard=guard)

    @_asks(_INCREASE_RATE)
    def increase_rate(
        self, decay: Decay | str, *, wrap: float | None = None, guard: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_INCREASE_RATE, decay, how, wrap=wrap, guard=guard)

    @_asks(_TIME_AVERAGE)
    def time_average(
        self, validity: float, decay: Decay | str, *, linear: bool = False,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_TIME_AVERAGE, decay, how, validity=validity, linear=linear)

    @_asks(_TIME_IN_STATE)
    def time_in_state(
        self, predicate: Predicate | str, decay: Decay | str, *, validity: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_TIME_IN_STATE, decay, how, predicate=predicate, validity=validity)

    @_asks(_STATE_TIME)
    def state_time(
        self, predicate: Predicate | str, decay: Decay | str, *, validity: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_STATE_TIME, decay, how, predicate=predicate, validity=validity)

    @_asks(_TRANSITIONS)
    def transitions(
        self, decay: Decay | str, *, validity: float | None = None, **how: Unpack[SeriesHow]
    ) -> Estimate:
        return self._ask_series(_TRANSITIONS, decay, how, validity=validity)

    @_asks(_GAPS)
    def gaps(self, longer_than: float, decay: Decay | str, **how: Unpack[SeriesHow]) -> Estimate:
        return self._ask_series(_GAPS, decay, how, longer_than=longer_than)

    @_asks(_AVAILABILITY)
    def availability(
        self, validity: float, decay: Decay | str, *, forget: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_AVAILABILITY, decay, how, validity=validity, forget=forget)

    @_asks(_INTERVAL_QUANTILE)
    def interval_quantile(self, q: float, decay: Decay | str, **how: Unpack[SeriesHow]) -> Estimate:
        return self._ask_series(_INTERVAL_QUANTILE, decay, how, q=q)

    @_asks(_SESSIONS)
    def sessions(self, gap: float, decay: Decay | str, **how: Unpack[SeriesHow]) -> Estimate:
        return self._ask_series(_SESSIONS, decay, how, gap=gap)

    @_asks(_SESSION_LENGTH)
    def session_length(
        self, gap: float, decay: Decay | str, *, q: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_SESSION_LENGTH, decay, how, gap=gap, q=q)

    @_asks(_SERIES_COUNT)
    def series_count(self, decay: Decay | str, **how: Unpack[SeriesHow]) -> Estimate:
        return self._ask_series(_SERIES_COUNT, decay, how)

    @_asks(_SILENT_SERIES)
    def silent_series(
        self, silence: float, decay: Decay | str, **how: Unpack[SeriesHow]
    ) -> Estimate:
        return self._ask_series(_SILENT_SERIES, decay, how, silence=silence)

    @_asks(_AVERAGE_QUANTILE)
    def average_quantile(
        self, q: float, decay: Decay | str, *, validity: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_AVERAGE_QUANTILE, decay, how, q=q, validity=validity)

    @_asks(_INCREASE_QUANTILE)
    def increase_quantile(
        self, q: float, decay: Decay | str, *, wrap: float | None = None,
        guard: float | None = None, **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_series(_INCREASE_QUANTILE, decay, how, q=q, wrap=wrap, guard=guard)

    @_asks(_TIME_CORRELATION)
    def time_correlation(
        self, other: AskedOfSeries, decay: Decay | str, *, validity: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_joined(_TIME_CORRELATION, other, decay, how, validity)

    @_asks(_TIME_COVARIANCE)
    def time_covariance(
        self, other: AskedOfSeries, decay: Decay | str, *, validity: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_joined(_TIME_COVARIANCE, other, decay, how, validity)

    @_asks(_TIME_SLOPE)
    def time_slope(
        self, other: AskedOfSeries, decay: Decay | str, *, validity: float | None = None,
        **how: Unpack[SeriesHow],
    ) -> Estimate:  # fmt: skip
        return self._ask_joined(_TIME_SLOPE, other, decay, how, validity)

    def _ask_joined(
        self, question: Question[Estimate], other: Any, decay: Decay | str, how: SeriesHow,
        validity: float | None,
    ) -> Estimate:  # fmt: skip
        """Ask at the later newest time, unless the query names a time."""
        if how.get("now") is not None or not isinstance(other, AskedOfSeries):
            return self._ask_series(question, decay, how, other=other, validity=validity)
        how["now"] = now = max(each.at(decay).now for each in (self, other))
        found = self._ask_series(question, decay, how, other=other, validity=validity)
        return replace(found, now=now)
