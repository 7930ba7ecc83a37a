"""What an aggregate may be while sites hold back some weight, and how much they may.

**The law.** Let S(A) be the decayed weight of the distinct observations of A. It is monotone and
subadditive in A, so with P what the hub has and Q_i what site i holds unposted

    S(P) <= S(P u Q_1 u .. u Q_n) <= S(P) + sum S(Q_i)

whatever copies there are between sites. With ``u >= sum S(Q_i)`` each aggregate lies in:

=========================  ======================================================================
:class:`Monotone`          count, sum: ``[S, S + u]``
:class:`Signed`            a total of signed values, u a bound of the positive and of the negative
                           values each: ``[S - u, S + u]``
:class:`Mean`              a mean m, over the weight D, of numbers in [least, most]:
                           ``[(m D + least u) / (D + u), (m D + most u) / (D + u)]``; a share, a
                           rank, a selectivity is the mean of an indicator, in [0, 1]
:class:`AnyForm`           every other aggregate: itself where u is 0, else unbounded
=========================  ======================================================================

These are exact: each end is reached by some Q (``tests/monitor/test_bounds.py`` holds them against
all small sets). An :class:`Aim` is a line through one of them. ``rises`` tells for certain on which
side of it the aggregate is; :func:`room` is the largest u with which that can be told at all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Aim", "AnyForm", "Form", "Mean", "Monotone", "Reading", "Room", "Signed", "room"]


class Reading(NamedTuple):
    """What the hub's sketch says of an aggregate.

    Attributes:
        value: the estimate; NaN where it is not defined (the mean of nothing).
        lower, upper: ends of its interval.
        weight: of a mean, a lower end of the weight that it is over; else 0.
        exact: whether nothing was sampled.
    """

    value: float
    lower: float
    upper: float
    weight: float = 0.0
    exact: bool = True

    @classmethod
    def of(cls, value: float, weight: float = 0.0) -> Reading:
        """Of an aggregate that is known exactly."""
        return cls(value, value, value, weight)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to answer from."""
        return math.isnan(self.value)


class Room(NamedTuple):
    """How much all sites together may hold back.

    Attributes:
        total: with the present reading.
        least: with any reading of this weight: what the tolerance alone leaves.
    """

    total: float
    least: float


class Form(ABC):
    """How an aggregate moves with weight that is not in yet."""

    @abstractmethod
    def low(self, value: float, weight: float, u: float) -> float:
        """The least that it may be; u may be infinite."""

    @abstractmethod
    def high(self, value: float, weight: float, u: float) -> float:
        """The most that it may be; u may be infinite."""

    @abstractmethod
    def up_to(self, line: float, value: float, weight: float) -> float:
        """The u with which the most that it may be is at the line; negative if it is beyond."""

    @abstractmethod
    def down_to(self, line: float, value: float, weight: float) -> float:
        """The u with which the least that it may be is at the line; negative if it is beyond."""

    @abstractmethod
    def between(self, lower: float, upper: float, weight: float) -> float:
        """The u that tells, of whatever value, that it is above ``lower`` or below ``upper``."""


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
    """A mean; what is not in yet is from ``least`` to ``most``, lines lie strictly between them.

    What is in already may be anything: a site posts at once what lies outside.
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
    """An aggregate without bounds, so that nothing may be held back."""

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
    """The mean of a weight of one value and a weight u of another."""
    if u == 0.0 or math.isinf(value):
        return value
    share = 1.0 if math.isinf(u) or weight <= 0.0 else u / (weight + u)
    return value + (end - value) * share


class Aim(NamedTuple):
    """A line that an aggregate may cross, with its tolerance.

    Attributes:
        form: how the aggregate moves.
        above: whether the condition is to be at the line or above it, or else below.
        line: the threshold T: short of it the condition does not hold, for certain.
        fires: the line with its tolerance, on the near side: beyond it the alert fires.
    """

    form: Form
    above: bool
    line: float
    fires: float

    def bounds(self, reading: Reading, u: float) -> tuple[float, float]:
        """Between which ends the aggregate is, with the sketch's interval; u as above.

        Of nothing at all there are no bounds but those of the form.
        """
        if reading.empty:
            return self.form.low(math.nan, 0.0, u), self.form.high(math.nan, 0.0, u)
        low = self.form.low(reading.lower, reading.weight, u)
        return low, self.form.high(reading.upper, reading.weight, u)

    def fires_at(self, reading: Reading, u: float) -> bool:
        """Whether the estimate is beyond ``fires`` whatever is held back."""
        if reading.empty:
            return False
        if self.above:
            return self.form.low(reading.value, reading.weight, u) >= self.fires
        return self.form.high(reading.value, reading.weight, u) <= self.fires

    def calm_at(self, reading: Reading, u: float) -> bool:
        """Whether the interval is short of the line whatever is held back; of nothing, if nothing
        is held back."""
        if reading.empty:
            return u == 0.0
        low, high = self.bounds(reading, u)
        return high < self.line if self.above else low > self.line


def room(aim: Aim, reading: Reading) -> Room:
    """How much all sites together may hold back, and one can still tell.

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
