"""Sketches that are to be one: merged by k-way merges, when somebody asks or when many wait.

What is on top of the pile grows without merging anything; a merge of k sketches costs little more
than one of two. Thread-safe: adding never waits for a merge.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from api.families import Snapshot, join
from decaysketch.families import Recipe

__all__ = ["Pile"]

_MANY_ROWS = 20_000
_MANY_SKETCHES = 64


class Pile:
    """The join of ``merged`` and of everything added.

    Args:
        recipe: of all of them.
        merged: what it begins with.
    """

    def __init__(self, recipe: Recipe[Any], merged: Snapshot) -> None:
        self._recipe = recipe
        self._merged = merged
        self._waiting: list[Snapshot] = []
        self._waiting_rows = 0
        self._state = threading.Lock()  # held for a moment
        self._merging = threading.Lock()  # held for as long as a merge takes

    def add(self, sketches: Iterable[Snapshot]) -> None:
        """Add sketches, to be merged later."""
        with self._state:
            for each in sketches:
                self._waiting.append(each)
                self._waiting_rows += len(each)

    @property
    def waiting(self) -> int:
        """How many sketches wait."""
        return len(self._waiting)

    @property
    def waiting_rows(self) -> int:
        """How many rows they hold together."""
        return self._waiting_rows

    @property
    def is_high(self) -> bool:
        """Whether so much waits that merging it costs little more than reading it did, or takes
        much memory."""
        return len(self._waiting) >= _MANY_SKETCHES or self._waiting_rows > max(
            _MANY_ROWS, len(self._merged)
        )

    def parts(self) -> list[Snapshot]:
        """Sketches whose join this is, as of now."""
        with self._state:
            return [self._merged, *self._waiting]

    def merged(self) -> Snapshot:
        """All of it as one sketch: everything that was added before the call, or more."""
        with self._merging:
            with self._state:
                parts = [self._merged, *self._waiting]
            if len(parts) == 1:
                return self._merged
            merged = join(self._recipe, parts)
            with self._state:
                # What waits is taken off only now: at no moment is anything in neither place.
                self._merged = merged
                del self._waiting[: len(parts) - 1]
                self._waiting_rows -= sum(len(each) for each in parts[1:])
            return merged
