"""Strata: parts of a stream that each keep their own sample.

Each stratum has its own bands, and so its own largest hit: a query for one stratum, or for each, is
exact where the stratum is, and as accurate as its own sample. For any other query the largest hit
in any stratum counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.expression import Bound, Column
from decaysketch.query.unseen_rows import Reach

__all__ = ["Hits", "Strata"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Within = Callable[[Int64Array, Int64Array], tuple[Float64Array, Float64Array]]


class Hits(Protocol):
    """The largest hits in strata under a decay, at a time."""

    def by_stratum(self, first: int | None, last: int | None) -> tuple[Float64Array, Float64Array]:
        """Return ``step`` and ``thinning`` for each stratum, over the sampled bands that meet the
        times ``first..last``.
        """

    def within(self, active: BoolArray | None) -> Within:
        """Return ``hits_within`` for some strata. None: all."""

    def reach(self, active: BoolArray | None) -> Reach:
        """Return the sampled bands in some strata."""


@dataclass(frozen=True, eq=False)
class Strata:
    """The strata in a sample.

    Attributes:
        columns: the key columns, with an entry for each stratum.
        size: their number.
        now: the query time.
        hits: their largest hits.
        active: bool[size], strata that may have rows in the sample. None: all.
        first, last: times that the rows may have. None: any.
    """

    columns: Mapping[str, Column]
    size: int
    now: int
    hits: Hits
    active: BoolArray | None = None
    first: int | None = None
    last: int | None = None

    # The table that expressions over the key columns read.

    def __len__(self) -> int:
        return self.size

    def column(self, name: str) -> Column:
        return self.columns[name]

    # ------------------------------------------------------------------------------- restriction

    def restricted(
        self, first: int | None, last: int | None, active: BoolArray | None = None
    ) -> Strata:
        """Return the strata for a sample with fewer rows."""
        if active is not None and self.active is not None:
            active = active & self.active
        starts = [time for time in (first, self.first) if time is not None]
        ends = [time for time in (last, self.last) if time is not None]
        return replace(
            self, active=self.active if active is None else active,
            first=max(starts, default=None), last=min(ends, default=None),
        )  # fmt: skip

    def that_may(self, where: Bound) -> BoolArray | None:
        """Return the strata in which a condition may hold. None: any."""
        parts = [part for part in where.conjuncts if part.names and part.names <= set(self.columns)]
        if not parts:
            return None
        found = np.ones(self.size, np.bool_)
        for part in parts:
            found &= part.holds(self)
        return found

    def largest(self) -> tuple[float, float]:
        """Return ``step`` and ``thinning`` for the sample."""
        steps, thinning = self.steps()
        if not len(steps):
            return 0.0, 1.0
        place = int(steps.argmax())
        return float(steps[place]), float(thinning[place])

    def steps(self) -> tuple[Float64Array, Float64Array]:
        """Return ``step`` and ``thinning`` for each stratum, 0 and 1 if it is not active."""
        steps, thinning = self.hits.by_stratum(self.first, self.last)
        if self.active is None:
            return steps, thinning
        return np.where(self.active, steps, 0.0), np.where(self.active, thinning, 1.0)

    # ------------------------------------------------------------------------------------ groups

    def by_group(self, by: Sequence[Bound], values: Sequence[Sequence[Any]]) -> Groups | None:
        """Return the strata that may have rows in each group.

        Args:
            by: the keys.
            values: for each key, its value in each group.

        Returns:
            None if no key depends on the strata alone.
        """
        keys = [k for k, key in enumerate(by) if key.names and key.names <= set(self.columns)]
        if not keys:
            return None
        mine = list(zip(*(_values(by[k], self) for k in keys), strict=True))
        theirs = list(zip(*(values[k] for k in keys), strict=True))
        number = {name: k for k, name in enumerate(dict.fromkeys(theirs))}
        unknown = len(number)
        of_stratum = np.array([number.get(name, unknown) for name in mine], np.intp)
        of_group = np.array([number[name] for name in theirs], np.intp)
        return Groups(self, of_stratum, of_group, unknown, complete=len(keys) == len(by))


@dataclass(frozen=True, eq=False)
class Groups:
    """Strata by table group.

    Attributes:
        strata: the strata.
        of_stratum: intp[strata], each stratum's key combination. ``unknown`` if no group has it.
        of_group: intp[groups], each group's key combination.
        unknown: the combination count.
        complete: whether the stratum alone determines a row's group.
    """

    strata: Strata
    of_stratum: npt.NDArray[np.intp]
    of_group: npt.NDArray[np.intp]
    unknown: int
    complete: bool

    def steps(self) -> tuple[Float64Array, Float64Array]:
        """Return ``step`` and ``thinning`` for each group."""
        steps, thinning = self.strata.steps()
        largest = np.zeros(self.unknown + 1)
        np.maximum.at(largest, self.of_stratum, steps)
        there = (steps > 0.0) & (steps == largest[self.of_stratum])
        of_largest = np.ones(self.unknown + 1)
        of_largest[self.of_stratum[there]] = thinning[there]
        return largest[self.of_group], of_largest[self.of_group]

    def unseen(self) -> tuple[float, float]:
        """Return ``step`` and ``thinning`` for the strata without a group."""
        steps, thinning = self.strata.steps()
        steps = np.where(self.of_stratum == self.unknown, steps, 0.0)
        place = int(steps.argmax())
        return float(steps[place]), float(thinning[place])

    def of(self, number: int) -> BoolArray:
        """Return the strata that may have rows in a group."""
        return np.asarray(self.of_stratum == self.of_group[number])


def _values(key: Bound, table: Strata) -> list[Any]:
    """Return a key's value for each stratum, None where null, as group tables have them."""
    column = key(table)
    if key.kind == "text":
        texts = [*column.texts, None]
        return [texts[number] for number in column.data.tolist()]
    null = np.zeros(len(table), np.bool_) if column.null is None else column.null
    return [None if none else each for each, none in zip(column.data.tolist(), null, strict=True)]
