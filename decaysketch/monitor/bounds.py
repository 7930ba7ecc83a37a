"""Bounds on an aggregate while sources hold back some weight, and limits on that weight.

**The law.** Let S(A) be the decayed weight of the distinct observations in A. It is monotone and
subadditive in A. So with P, the hub's observations, and Q_i, the unposted ones at source i,

    S(P) <= S(P u Q_1 u .. u Q_n) <= S(P) + sum S(Q_i)

for any duplicates between sources. With ``u >= sum S(Q_i)`` each aggregate lies in:

=========================  ======================================================================
:class:`Monotone`          count, sum: ``[S, S + u]``
:class:`Signed`            a total of signed values, u a bound of the positive and of the negative
                           values each: ``[S - u, S + u]``
:class:`Mean`              a mean m, over the weight D, of numbers in [least, most]:
                           ``[(m D + least u) / (D + u), (m D + most u) / (D + u)]``; a share, a
                           rank, a selectivity is the mean of an indicator, in [0, 1]
:class:`AnyForm`           every other aggregate: itself where u is 0, else unbounded
=========================  ======================================================================

These are exact: some Q reaches each bound (``tests/monitor/test_bounds.py`` checks them against
all small sets). An :class:`Aim` is a line through one of them. ``rises`` tells for certain on which
side of it the aggregate is. :func:`room` is the largest u with which that can be decided at all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Aim", "AnyForm", "Form", "Mean", "Monotone", "Reading", "Room", "Signed", "room"]


class Reading(NamedTuple):
    """An aggregate as the hub's sketch estimates it.

    Attributes:
        value: the estimate. NaN if it is undefined (the mean over no rows).
        lower, upper: bounds of its interval.
        weight: for a mean, a lower bound on the weight that it covers; else 0.
        exact: whether nothing was sampled.
    """

    value: float
    lower: float
    upper: float
    weight: float = 0.0
    exact: bool = True

    @classmethod
    def of(cls, value: float, weight: float = 0.0) -> Reading:
        """Return the reading for an exactly known aggregate."""
        return cls(value, value, value, weight)

    @property
    def empty(self) -> bool:
        """Whether there are no data for a result."""
        return math.isnan(self.value)


class Room(NamedTuple):
    """The weight that all sources together may hold back.

    Attributes:
        total: with the current reading.
        least: with any reading at this weight: the part that the tolerance alone leaves.
    """

    total: float
    least: float


class Form(ABC):
    """How an aggregate moves with weight that has not arrived yet."""

    @abstractmethod
    def low(self, value: float, weight: float, u: float) -> float:
        """The aggregate's minimum. u may be infinite."""

    @abstractmethod
    def high(self, value: float, weight: float, u: float) -> float:
        """The aggregate's maximum. u may be infinite."""

    @abstractmethod
    def up_to(self, line: float, value: float, weight: float) -> float:
        """The u that puts the maximum on the line. Negative if it is beyond."""

    @abstractmethod
    def down_to(self, line: float, value: float, weight: float) -> float:
        """The u that puts the minimum on the line. Negative if it is beyond."""

    @abstractmethod
    def between(self, lower: float, upper: float, weight: float) -> float:
        """The u that leaves any value certainly above ``lower`` or below ``upper``."""


class Monotone(Form):
    """A decayed count, or sum of weights."""

    def low(self, value: float, weight: float, u: float) -> float:
        return value

    def high(self, value: float, weight: float, u: float) -> float:
        return value + u

    def up_to(self, line: float, value: float, weight: float) -> float:
        return line - value

    def down_to(self, line: float, value: float, weight: float) -> float:
        return value - line  # any u would do; so much that it still does when the value has fallen

    def between(self, lower: float, upper: float, weight: float) -> float:
        return upper - lower


class Signed(Form):
    """A decayed sum of signed values."""

    def low(self, value: float, weight: float, u: float) -> float:
        return value - u

    def high(self, value: float, weight: float, u: float) -> float:
        return value + u

    def up_to(self, line: float, value: float, weight: float) -> float:
        return line - value

    def down_to(self, line: float, value: float, weight: float) -> float:
        return value - line

    def between(self, lower: float, upper: float, weight: float) -> float:
        return (upper - lower) / 2


@dataclass(frozen=True)
class Mean(Form):
    """A mean. Values that have not arrived are from ``least`` to ``most``, and lines lie strictly
    between.

    Values that have arrived may be anything: a source posts values outside the range at once.
    """

    least: float = 0.0
    most: float = 1.0

    def low(self, value: float, weight: float, u: float) -> float:
        return self.least if math.isnan(value) else min(value, _mixed(value, weight, u, self.least))

    def high(self, value: float, weight: float, u: float) -> float:
        return self.most if math.isnan(value) else max(value, _mixed(value, weight, u, self.most))

    def up_to(self, line: float, value: float, weight: float) -> float:
        return (line - value) * weight / (self.most - line)

    def down_to(self, line: float, value: float, weight: float) -> float:
        return (value - line) * weight / (line - self.least)

    def between(self, lower: float, upper: float, weight: float) -> float:
        return (upper - lower) * weight / (self.most - upper + lower - self.least)


class AnyForm(Form):
    """An aggregate without bounds, so sources may hold back nothing."""

    def low(self, value: float, weight: float, u: float) -> float:
        return value if u == 0.0 else -math.inf

    def high(self, value: float, weight: float, u: float) -> float:
        return value if u == 0.0 else math.inf

    def up_to(self, line: float, value: float, weight: float) -> float:
        return 0.0

    def down_to(self, line: float, value: float, weight: float) -> float:
        return 0.0

    def between(self, lower: float, upper: float, weight: float) -> float:
        return 0.0


def _mixed(value: float, weight: float, u: float, end: float) -> float:
    """The mean over a weight with one value and a weight u with another."""
    if u == 0.0 or math.isinf(value):
        return value
    share = 1.0 if math.isinf(u) or weight <= 0.0 else u / (weight + u)
    return value + (end - value) * share


class Aim(NamedTuple):
    """A line that an aggregate may cross, with its tolerance.

    Attributes:
        form: how the aggregate moves.
        above: whether the condition means at the line or above it, or else below.
        line: the threshold T. Short of it the condition certainly does not hold.
        fires: the line with its tolerance, on the near side. Beyond it the alert fires.
    """

    form: Form
    above: bool
    line: float
    fires: float

    def bounds(self, reading: Reading, u: float) -> tuple[float, float]:
        """Return bounds on the aggregate, with the sketch's interval; u as above.

        Without data there are no bounds except the form's.
        """
        if reading.empty:
            return self.form.low(math.nan, 0.0, u), self.form.high(math.nan, 0.0, u)
        low = self.form.low(reading.lower, reading.weight, u)
        return low, self.form.high(reading.upper, reading.weight, u)

    def fires_at(self, reading: Reading, u: float) -> bool:
        """Whether the estimate is beyond ``fires`` for any rows held back."""
        if reading.empty:
            return False
        if self.above:
            return self.form.low(reading.value, reading.weight, u) >= self.fires
        return self.form.high(reading.value, reading.weight, u) <= self.fires

    def calm_at(self, reading: Reading, u: float) -> bool:
        """Whether the interval does not reach the line for any rows held back. Without data,
        whether nothing is held back.
        """
        if reading.empty:
            return u == 0.0
        low, high = self.bounds(reading, u)
        return high < self.line if self.above else low > self.line


def room(aim: Aim, reading: Reading) -> Room:
    """Return the weight that all sources together may hold back while the state can be decided.

    Complexity: O(1).
    """
    lower, upper = sorted((aim.line, aim.fires))
    least = aim.form.between(lower, upper, reading.weight)
    if reading.empty:
        return Room(0.0, 0.0)
    if aim.above:
        to_calm = aim.form.up_to(aim.line, reading.upper, reading.weight)
        to_fire = aim.form.down_to(aim.fires, reading.value, reading.weight)
    else:
        to_calm = aim.form.down_to(aim.line, reading.lower, reading.weight)
        to_fire = aim.form.up_to(aim.fires, reading.value, reading.weight)
    total = max(least, *(each for each in (to_calm, to_fire) if math.isfinite(each)), 0.0)
    return Room(total, least)
