"""An upper bound of the decayed weight that a site has not posted yet.

Of an exponential decay it is one number that falls as time passes. Of any other decay an
observation is counted with its weight when it comes and keeps it: an upper bound, since no decay
rises. Copies within the site count each time; both only make the site post earlier than it must.

Two errors of clocks are allowed for. Time that passes is taken from a steady clock whose rate may
be off by :data:`CLOCK_RATE`. Ages are by the stream's time as the caller gives it, which must not
be later than the hub's: an age that is too small only overstates. What is dated in the future has
under an exponential decay the weight that falls to 1 when its time has come.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from decaysketch.answers.asking import read_predicate
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.decay import Decay, Exponential
from decaysketch.decay.integral import IntegralDecay
from decaysketch.monitor.spec import QUESTIONS, Threshold

if TYPE_CHECKING:
    from decaysketch.contract.recipe import Recipe

__all__ = ["CLOCK_RATE", "Pending", "unit_s"]

CLOCK_RATE = 1e-3
"""By this share of a time that has passed may two steady clocks disagree."""

Float64Array = npt.NDArray[np.float64]


class Pending:
    """What one site holds back of one monitor: rows that no report carries yet, sealed or not, and
    rows of the last report that carries some, until it is answered.

    Args:
        spec: of the monitor.
        recipe: of the stream.
        clock: steady time of the site, in seconds.
        known: whether the site holds nothing yet. Otherwise the weight is infinite until what there
            is has been posted, as it is where a monitor comes to a site that has rows.
    """

    def __init__(self, spec: Threshold, recipe: Recipe, clock: float, *, known: bool) -> None:
        self._spec = spec
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
        """What is held back, at most: of a total the larger of its two sides. O(1)."""
        self._fall(clock)
        return float((self._open + self._sealed + self._sent).max())

    @property
    def vouched(self) -> bool:
        """Whether all that no report carries is of known weight, and so came after the monitor."""
        return bool(np.isfinite(self._open + self._sealed).all())

    def observe(
        self, times: npt.ArrayLike, values: npt.ArrayLike | None, weights: npt.ArrayLike | None,
        now: float, clock: float,
    ) -> None:  # fmt: skip
        """Rows that the site has taken; see :meth:`~decaysketch.monitor.site.BudgetSite.observe`.
        O(rows)."""
        self._fall(clock)
        ages = now - np.asarray(times, np.float64)
        held = np.ones(ages.shape) if weights is None else np.asarray(weights, np.float64)
        wanted = np.ones(ages.shape, np.bool_)
        numbers = np.full(ages.shape, math.nan)
        if QUESTIONS[self._spec.question].valued or self._spec.where is not None:
            # Values keep their type: a predicate compares whole numbers exactly. Where nobody asks
            # for them they may be labels.
            column = numbers if values is None else np.asarray(values)
            numbers = column.astype(np.float64)
            wanted &= ~np.isnan(numbers)
        if self._spec.where is not None:
            wanted &= read_predicate(self._spec.where)(column, held)
        if wanted.any():
            self._open += self._weighed(ages[wanted], numbers[wanted], held[wanted])

    def _weighed(
        self, ages: Float64Array, values: Float64Array, weights: Float64Array
    ) -> Float64Array:
        """Decayed weight of rows, of each side."""
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
        """What is left of a row, as a share; of a fixed decay, of its weight as a number."""
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
        """The rows so far have been packed; those that come from now on have not."""
        self._fall(clock)
        self._sealed = self._sealed + self._open
        self._open = np.zeros_like(self._open)

    def send(self, seq: int, clock: float) -> None:
        """All rows that are sealed travel with a report."""
        self._fall(clock)
        self._sent = self._sent + self._sealed
        self._sealed = np.zeros_like(self._sealed)
        self._seq = seq

    def posted(self, seq: int) -> None:
        """The hub has the rows of a report; nothing happens if a later one carries them again."""
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
    """Seconds of the stream's unit; 1 where it is not one of time."""
    return NANOSECONDS.get(recipe.params.time_unit, NANOSECONDS["s"]) / NANOSECONDS["s"]


def _fallen(parts: Float64Array, share: float) -> Float64Array:
    return np.where(np.isinf(parts), parts, parts * share)


def _rate(decay: Decay) -> float:
    """Of an exponential decay, per unit of time; else 0."""
    if not isinstance(decay, Exponential):
        return 0.0
    if decay.rate is not None:
        return float(decay.rate)
    assert decay.half_life is not None
    return math.log(2.0) / float(decay.half_life)
