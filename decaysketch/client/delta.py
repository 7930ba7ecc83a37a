"""Deltas: complete sketches of the observations that are not acknowledged yet.

A delta is never a difference of two states. It may arrive twice, late, in any order, or merged with
others, and the stream ends the same. Only elements that a sampler numbered itself are bound to
their interval.

For key counts, a delta is the complete state of a source, because only a complete state may arrive
twice. The next delta continues it and replaces it.
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
    """A sketch during filling.

    Attributes:
        sketch: these observations only.
        rows: number of rows added.
        told: whether its clock was set, which is worth sending by itself.
        first: number of its first element if the client numbers them, otherwise None.
        next: number after its last element.
    """

    sketch: Any
    rows: int = 0
    told: bool = False
    first: int | None = None
    next: int | None = None

    @classmethod
    def empty(cls, recipe: Recipe, source: str, next_number: int | None) -> Delta:
        """Create an empty delta, with ``next_number`` if the client numbers its elements."""
        if next_number is None:
            return cls(recipe.empty())
        sampler = recipe.sketch_type(recipe.params, source=source, next_number=next_number)
        return cls(sampler, first=next_number, next=next_number)

    def onward(self) -> Delta:
        """Create an empty delta that continues this one."""
        return Delta(self.sketch.copy())

    @property
    def interval(self) -> Interval | None:
        """The numbers of its elements."""
        if self.first is None or self.next is None:
            return None
        return Interval(self.first, self.next)

    def __bool__(self) -> bool:
        """Whether there is anything to send. A numbered delta needs a number."""
        return self.rows > 0 or (self.told and self.first is None)

    @staticmethod
    def join(parts: Iterable[Delta | None]) -> Delta | None:
        """Merge deltas with consecutive intervals into one, or return None for no delta."""
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
