"""Deltas: complete sketches of the observations that were not acknowledged yet.

A delta is never a difference of two states: it stands for itself, so it may be sent twice, late, in
any order, or merged with others, and the stream ends the same. Only what a sampler numbered itself
is bound to its interval.

Where rows are counted for a site, a delta is the whole state of that, since only a whole state may
come twice: the next one goes on from it, and takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from decaysketch import families
from decaysketch.client.spool import Interval
from decaysketch.families import Recipe

__all__ = ["Delta"]


@dataclass(slots=True)
class Delta:
    """A sketch that is being filled.

    Attributes:
        sketch: of these observations alone.
        rows: how many were given.
        told: whether its clock was told a time, which is worth sending by itself.
        first: number of its first element, where the sensor numbers them; else None.
        next: number after its last one.
    """

    sketch: Any
    rows: int = 0
    told: bool = False
    first: int | None = None
    next: int | None = None

    @classmethod
    def empty(cls, recipe: Recipe, source: str, next_number: int | None) -> Delta:
        """Of nothing; ``next_number`` where the sensor numbers its elements."""
        if next_number is None:
            return cls(recipe.empty())
        sampler = recipe.sketch_type(recipe.params, source=source, next_number=next_number)
        return cls(sampler, first=next_number, next=next_number)

    def onward(self) -> Delta:
        """Of no rows yet, that goes on from this one."""
        return Delta(self.sketch.copy())

    @property
    def interval(self) -> Interval | None:
        """The numbers of its elements."""
        if self.first is None or self.next is None:
            return None
        return Interval(self.first, self.next)

    def __bool__(self) -> bool:
        """Whether there is anything to send: a numbered delta needs a number."""
        return self.rows > 0 or (self.told and self.first is None)

    @staticmethod
    def join(parts: Iterable[Delta | None]) -> Delta | None:
        """One delta of several, whose intervals follow each other; None of nothing."""
        some = [part for part in parts if part is not None and (part.rows or part.told)]
        if len(some) < 2:
            return some[0] if some else None
        return Delta(
            families.merge([part.sketch for part in some]),
            rows=sum(part.rows for part in some),
            told=any(part.told for part in some),
            first=some[0].first,
            next=some[-1].next,
        )
