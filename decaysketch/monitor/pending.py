"""An upper bound on the decayed weight that a source has not posted yet.

For an exponential decay it is one number that falls as time passes. For any other decay an
observation counts with its weight on arrival and keeps it. That is an upper bound, since no decay
rises. Duplicates within the source count each time. Both only make the source post earlier than
necessary.

It allows for two clock errors. A steady clock measures elapsed time, and its rate may
be off by :data:`CLOCK_RATE`. Ages use the stream's time as the caller passes it, which must not
be later than the hub's: an age that is too small only overstates. Under an exponential decay, a row
dated in the future has the weight that falls to 1 when its time has come.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from decaysketch.core.time_units import NANOSECONDS
from decaysketch.decay import Decay, Exponential
from decaysketch.decay.integral import IntegralDecay
from decaysketch.monitor.spec import QUESTIONS, Threshold
from decaysketch.query.dispatch import read_predicate

if TYPE_CHECKING:
    from decaysketch.contract.family import Recipe

__all__ = ["CLOCK_RATE", "Pending", "unit_s"]

CLOCK_RATE = 1e-3
"""By this share of a time that has passed may two steady clocks disagree."""

Float64Array = npt.NDArray[np.float64]


class Pending:
    """The weight that one source holds back for one monitor: rows that no report carries yet,
    sealed or not, and rows in the last report that carries any, until it is answered.

    Args:
        spec: the monitor's spec.
        recipe: the stream's sketch configuration.
        clock: the source's steady time, in seconds.
        known: whether the source holds nothing yet. Otherwise the weight is infinite until all rows
            have been posted, for example when a new monitor reaches a source that has rows.
    """

    def __init__(self, spec: Threshold, recipe: Recipe, clock: float, *, known: bool) -> None:
        self._spec = spec
        # A condition over labels or columns is not evaluated: all rows count, an upper bound.
        self._reads_values = recipe.params.value_type not in ("label", "record")
        self._fixed = recipe.decay
        self._unit_s = unit_s(recipe)
        self._per_s = _rate(spec.decay) / self._unit_s if spec.decay is not None else 0.0
        self._at = clock
        parts = 2 if spec.question == "total" else 1
        self._open = np.full(parts, 0.0 if known else math.inf)
        self._sealed = np.zeros(parts)
        self._sent = np.zeros(parts)
        self._seq: int | None = None

    def weight(self, clock: float) -> float:
        """Maximum weight held back. For a total, the larger of its two sides. O(1)."""
        self._fall(clock)
        return float((self._open + self._sealed + self._sent).max())

    @property
    def vouched(self) -> bool:
        """Whether all rows that no report carries have a known weight, and so arrived after the
        monitor.
        """
        return bool(np.isfinite(self._open + self._sealed).all())

    def observe(
        self, times: npt.ArrayLike, values: npt.ArrayLike | None, weights: npt.ArrayLike | None,
        now: float, clock: float,
    ) -> None:  # fmt: skip
        """Add rows that the source has accepted; see
        :meth:`~decaysketch.monitor.site.BudgetSite.observe`. O(rows).
        """
        self._fall(clock)
        ages = now - np.asarray(times, np.float64)
        held = np.ones(ages.shape) if weights is None else np.asarray(weights, np.float64)
        wanted = np.ones(ages.shape, np.bool_)
        numbers = np.full(ages.shape, math.nan)
        if self._spec.modified:
            self._open += self._decayed(ages, held).sum()
            return
        where = self._spec.where if self._reads_values else None
        if self._reads_values and (QUESTIONS[self._spec.question].valued or where is not None):
            # Values keep their type, because a predicate compares integers exactly. If no
            # monitor reads them, they may be labels.
            column = numbers if values is None else np.asarray(values)
            numbers = column.astype(np.float64)
            wanted &= ~np.isnan(numbers)
        if where is not None:
            wanted &= read_predicate(where)(column, held)
        if wanted.any():
            self._open += self._weighed(ages[wanted], numbers[wanted], held[wanted])

    def _weighed(
        self, ages: Float64Array, values: Float64Array, weights: Float64Array
    ) -> Float64Array:
        """Decayed weight of rows, on each side."""
        spec = self._spec
        decayed = self._decayed(ages, weights)
        if spec.question == "count":
            return np.array([decayed.sum()])
        if spec.question == "total":
            masses = values * decayed
            return np.array([masses[masses > 0].sum(), -masses[masses < 0].sum()])
        if spec.range is not None:
            least, most = spec.range
            if not ((least <= values) & (values <= most)).all():
                return np.array([math.inf])
        if self._fixed is not None:
            return np.array([decayed.sum()])
        return np.array([(weights * decayed).sum()])

    def _decayed(self, ages: Float64Array, weights: Float64Array) -> Float64Array:
        """The remaining share of a row. For a fixed decay, its remaining weight as a number."""
        young = np.maximum(ages, 0.0)
        if isinstance(self._fixed, IntegralDecay):
            if self._spec.question in ("count", "total"):
                return np.ones(ages.shape)
            whole = np.floor(young).astype(np.int64)
            return self._fixed(weights.astype(np.int64), whole).astype(np.float64)
        decay = self._spec.decay
        assert decay is not None, "checked with the recipe"
        share = decay(young)
        if self._per_s > 0.0:
            early = np.minimum(ages, 0.0) * self._unit_s
            with np.errstate(over="ignore"):
                share = share * np.exp(-early * self._per_s)
        return share

    def seal(self, clock: float) -> None:
        """The rows so far have been packed, and later rows have not."""
        self._fall(clock)
        self._sealed = self._sealed + self._open
        self._open = np.zeros_like(self._open)

    def send(self, seq: int, clock: float) -> None:
        """All sealed rows travel with a report."""
        self._fall(clock)
        self._sent = self._sent + self._sealed
        self._sealed = np.zeros_like(self._sealed)
        self._seq = seq

    def posted(self, seq: int) -> None:
        """The hub has the rows of a report. Nothing happens if a later one carries them again."""
        if seq == self._seq:
            self._sent = np.zeros_like(self._sent)
            self._seq = None

    def _fall(self, clock: float) -> None:
        passed = max(clock - self._at, 0.0) * (1.0 - CLOCK_RATE)
        self._at = max(clock, self._at)
        share = math.exp(-passed * self._per_s)
        if share < 1.0:
            with np.errstate(invalid="ignore"):
                self._open, self._sealed, self._sent = (
                    _fallen(each, share) for each in (self._open, self._sealed, self._sent)
                )


def unit_s(recipe: Recipe) -> float:
    """Seconds in the stream's unit. 1 if it is not a time unit."""
    return NANOSECONDS.get(recipe.params.time_unit, NANOSECONDS["s"]) / NANOSECONDS["s"]


def _fallen(parts: Float64Array, share: float) -> Float64Array:
    return np.where(np.isinf(parts), parts, parts * share)


def _rate(decay: Decay) -> float:
    """Rate of an exponential decay, per unit of time. 0 for other decays."""
    if not isinstance(decay, Exponential):
        return 0.0
    if decay.rate is not None:
        return float(decay.rate)
    assert decay.half_life is not None
    return math.log(2.0) / float(decay.half_life)
