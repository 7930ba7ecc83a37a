"""Items, their total order, and lists by count.

A larger count comes first. Among equal counts, the smaller item comes first: integers before texts,
integers by size, texts by code points. So equal counts always give the same list. TOPiCo's lemma 2
requires an item that no other precedes. Because integers and texts are bounded, there is one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

__all__ = ["Count", "Item", "order", "ranked", "top"]

Item = str | int
Count = int | float | Fraction
C = TypeVar("C", int, int | float, int | Fraction, int | float | Fraction)


def order(item: Item) -> tuple[bool, Item]:
    """The sort key of an item."""
    return isinstance(item, str), item


def ranked(counts: Mapping[Item, C]) -> list[tuple[Item, C]]:
    """All items with their counts, in rank order. O(n log n)."""
    return sorted(counts.items(), key=_place)


def top(counts: Mapping[Item, C], k: int) -> list[tuple[Item, C]]:
    """The first k items in :func:`ranked` with a count above 0. O(n log k)."""
    return heapq.nsmallest(k, (entry for entry in counts.items() if entry[1] > 0), key=_place)


def _place(entry: tuple[Item, Count]) -> tuple[Count, tuple[bool, Item]]:
    return -entry[1], order(entry[0])
