"""Estimated row counts for predicates and joins, as a query planner needs them to choose a plan.

A planner chooses between index and scan, and the join order, by estimated rows. The planner of the
LEADS platform (D3.4, section 3.1) keeps a Count-Min sketch over indexed columns for that, updates
it in batches and lets it lag, since a stale one costs a worse plan and never a wrong result. Here
the sketches exist already, and report two things more: an estimate's interval, and its time.

For keys, the rows equal to one key are its count (Papapetrou, Garofalakis and Deligiannakis 2015,
section 4.1: an ECM-sketch). The rows in an equi-join are the inner product of two streams (4.2).
Both have one guaranteed bound. For observations with values, the sample answers any predicate
(Cormode, Tirthapura and Xu 2009, section 3.4), and counts duplicates once.

A sketch supports the statistics that follow from its queries. This module is no planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import Held
from decaysketch.contract.snapshot import Snapshot
from decaysketch.decay import Decay, none, window
from decaysketch.errors import ParameterError
from decaysketch.query.aggregates import Predicate
from decaysketch.query.dispatch import QUESTIONS, View, Views, read_predicate
from decaysketch.query.estimate import Estimate, Interval, check_confidence, share_interval

__all__ = ["Selection", "Statistics"]

_CHOSEN, _KEYS = "chosen decay", "keys"  # needs of queries


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that a predicate or a join selects.

    Attributes:
        rows: estimated rows, decayed.
        selectivity: their share of all rows that could be selected. NaN if there are none.
    """

    rows: Estimate
    selectivity: Estimate


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics for a stream at one time. Immutable, safe to read from any thread.

    A row is a distinct observation. Where keys are counted, it is an event, counted by its weight,
    and as often as it came.

    Attributes:
        view: the queried view.
        questions: names of the queries that it answers.
        confidence: confidence of every interval.
    """

    view: View
    questions: frozenset[str]
    confidence: float = 0.95

    @classmethod
    def of(
        cls,
        held: Held | Snapshot,
        decay: Decay | None = None,
        now: int | None = None,
        *,
        confidence: float = 0.95,
    ) -> Self:
        """Return statistics for a sketch, a collection or a snapshot.

        Args:
            held: the sketch.
            decay: weight of a row by its age, such as ``decay.window(w)`` for the rows in that
                time. None for the decay that the sketch was built with. Without one, all rows count
                in full, as far back as the sketch guarantees.
            now: query time. None for the latest that was seen or given.
            confidence: confidence of every interval.

        Raises:
            ParameterError: a decay for a sketch that was built with one, a decay or time that the
                sketch does not accept, or an invalid confidence.
            UnanswerableQueryError: the rows that the decay reaches were discarded.
        """
        snapshot = held if isinstance(held, Snapshot) else held.snapshot()
        asked = snapshot if isinstance(snapshot, Views) else snapshot.thaw()
        if decay is None and any(_CHOSEN in QUESTIONS[name].needs for name in asked.questions):
            decay = none() if snapshot.horizon is None else window(snapshot.horizon)
        if now is None:
            times = (snapshot.clock, snapshot.newest)
            now = max((time for time in times if time is not None), default=0)
        return cls(asked.at(decay, now), asked.questions, check_confidence(confidence))

    def rows(self) -> Estimate:
        """Return the number of all rows.

        Raises:
            ParameterError: the sketch does not support it.
        """
        found: Estimate = self._ask("rows", "key_total" if self._counts_keys else "count")
        return found

    def equal(self, key: Any) -> Selection:
        """Return the rows with one key, or with one value.

        Raises:
            ParameterError: the sketch does not support it, or cannot have the key.
        """
        if self._counts_keys:
            (rows,) = self._ask("equal", "key_count", keys=[key])
            return self._of_total(rows)
        if not isinstance(key, (int, float, np.integer, np.floating)):
            raise ParameterError(f"key is {key!r}; expected a number: values are sampled")
        return self._where("equal", lambda values, _: values == key)

    def range(self, low: float, high: float) -> Selection:
        """Return the rows with integer keys, or with values, between two bounds, both inclusive.

        Raises:
            ParameterError: as :meth:`equal`, or the sketch was not built for ranges over integer
                keys.
        """
        if self._counts_keys:
            return self._of_total(self._ask("range", "key_range", bounds=(low, high)))
        return self._where("range", lambda values, _: (values >= low) & (values <= high))

    def where(self, predicate: Predicate | str) -> Selection:
        """Return the rows that satisfy a predicate: a text over the value ``v`` and the weight
        ``w``, or a function over their columns. A row without a value does not satisfy it, and the
        selectivity is a share in the rows that have one.

        Raises:
            ParameterError: the sketch does not support it, the text cannot be parsed, or the
                function gave no truth values.
        """
        return self._where(
            "where", read_predicate(predicate) if isinstance(predicate, str) else predicate
        )

    def join(self, other: Statistics) -> Selection:
        """Return the rows in the join with another stream on equal keys: pairs, among all row
        pairs.

        Raises:
            ParameterError: one of the two does not support it.
            IncompatibleSketchError: the sketches have different parameters for their cells.
        """
        ours, theirs = self._ask("join", "key_total"), other._ask("join", "key_total")
        rows = self._ask("join", "inner_product", other=other.view)
        pairs = replace(
            ours,
            value=ours.value * theirs.value,
            lower=ours.lower * theirs.lower,
            upper=ours.upper * theirs.upper,
            exact=ours.exact and theirs.exact,
        )
        return Selection(rows, _over(rows, pairs))

    # ----------------------------------------------------------------------------------------------

    @property
    def _counts_keys(self) -> bool:
        return any(_KEYS in QUESTIONS[name].needs for name in self.questions)

    def _ask(self, what: str, question: str, **arguments: Any) -> Any:
        if question not in self.questions:
            raise ParameterError(
                f"{what} needs the query {question!r}; this sketch supports "
                f"{', '.join(sorted(self.questions))}"
            )
        return self.view.ask(question, confidence=self.confidence, **arguments)

    def _of_total(self, rows: Estimate) -> Selection:
        return Selection(rows, _over(rows, self.rows()))

    def _where(self, what: str, predicate: Predicate) -> Selection:
        rows = self._ask(what, "total", function=_truths(predicate))
        others = self._ask(what, "total", function=_truths(predicate, negated=True))
        return Selection(rows, _share(rows, others))


def _truths(
    predicate: Predicate, *, negated: bool = False
) -> Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
    """Return a function that is true for rows that satisfy a predicate, or for the others. Its sum
    is their number.
    """

    def holds(values: npt.NDArray[Any], weights: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = np.asarray(predicate(values, weights))
        if found.dtype != np.bool_ or found.shape != values.shape:
            raise ParameterError(
                f"predicate gave {found.dtype} of shape {found.shape}; "
                f"expected a truth value for each of {len(values)} observations"
            )
        return ~found if negated else found

    return holds


def _share(rows: Estimate, others: Estimate) -> Estimate:
    """Return the share that sampled rows have in all rows. The other rows are another part of
    the sample.
    """
    found = share_interval(
        Interval(rows.value, rows.lower, rows.upper),
        Interval(others.value, others.lower, others.upper),
    )
    total = rows.value + others.value
    stderr = math.nan
    if total > 0.0:
        stderr = math.hypot(others.value * rows.stderr, rows.value * others.stderr) / total**2
    return replace(
        rows,
        value=float(found.value),
        lower=float(found.lower),
        upper=float(found.upper),
        stderr=stderr,
        exact=rows.exact and others.exact,
        caveats=tuple(sorted({*rows.caveats, *others.caveats})),
    )


def _over(rows: Estimate, whole: Estimate) -> Estimate:
    """Return the share that counted rows have in all rows. Both bounds on the number of all rows
    are guaranteed.
    """
    value, stderr = math.nan, math.nan
    lower, upper, surely = 0.0, 1.0, rows.sure_upper
    if whole.upper > 0.0:
        lower, upper = rows.lower / whole.upper, _ratio(rows.upper, whole.lower)
    if whole.value > 0.0:
        value = min(max(rows.value / whole.value, lower), upper)
        stderr = rows.stderr / whole.value
    return replace(
        rows,
        value=value,
        lower=lower,
        upper=upper,
        stderr=stderr,
        exact=rows.exact and whole.exact,
        sure_upper=None if surely is None else _ratio(surely, whole.lower),
    )


def _ratio(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole > 0.0 else 1.0
