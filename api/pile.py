"""Sketches that are to be one: what is on top grows at once, and is merged in when there is time.

One sketch is kept and merged into in place, so merging costs what the newcomers hold and not what
is there. An immutable snapshot of it, which costs a pass over everything, is made when somebody
asks. Thread-safe: adding never waits for a merge.
"""

from __future__ import annotations

import threading
from typing import Any

from api.families import Snapshot, snapshot_of
from decaysketch.families import Recipe

__all__ = ["Pile"]

_MANY_ROWS = 50_000
_MANY_SKETCHES = 64


class Pile:
    """The join of everything added; nothing at first.

    Args:
        recipe: of all of it.
    """

    def __init__(self, recipe: Recipe[Any]) -> None:
        self._sketch = recipe.empty()
        self._snapshot: Snapshot | None = None  # of the sketch, until it grows
        self._waiting: list[Snapshot | Pile] = []
        self._waiting_rows = 0
        self._adding = threading.Lock()  # held for a moment
        self._merging = threading.Lock()  # held for as long as a merge takes

    def add(self, part: Snapshot | Pile) -> None:
        """Add a sketch, or all that another pile holds, to be merged in later."""
        with self._adding:
            self._waiting.append(part)
            self._waiting_rows += _rows(part)

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
        """Whether what waits takes much memory."""
        return self._waiting_rows >= _MANY_ROWS or len(self._waiting) >= _MANY_SKETCHES

    def fold(self) -> None:
        """Merge in what waits."""
        with self._merging:
            self._fold()

    def merged(self) -> Snapshot:
        """All of it: everything that was added before the call, or more."""
        with self._merging:
            self._fold()
            if self._snapshot is None:
                self._snapshot = snapshot_of(self._sketch)
            return self._snapshot

    def _fold(self) -> None:
        with self._adding:
            parts = list(self._waiting)
        if not parts:
            return
        self._sketch.merge(
            *((part.merged() if isinstance(part, Pile) else part).to_merge() for part in parts)
        )
        self._snapshot = None
        with self._adding:
            del self._waiting[: len(parts)]
            self._waiting_rows -= sum(map(_rows, parts))


def _rows(part: Snapshot | Pile) -> int:
    return 0 if isinstance(part, Pile) else len(part)
