"""Queries on sketches and collections: the same as on their snapshots."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from decaysketch.core.time_units import Instant
from decaysketch.decay import Decay
from decaysketch.ecm.matrix import Estimator, Grid
from decaysketch.ecm.per_key_windows import WindowCounts
from decaysketch.ecm.state import Source
from decaysketch.ecm.view import CellView
from decaysketch.query.catalog import questions_of
from decaysketch.query.keys import AskedOfKeys

if TYPE_CHECKING:
    from decaysketch.ecm.snapshot import ECMSnapshot

__all__ = ["AskedOfCells"]


class AskedOfCells(AskedOfKeys):
    """An object whose snapshot contains source states with cells that can be added."""

    questions = questions_of("keys", "chosen decay")

    @abstractmethod
    def snapshot(self) -> ECMSnapshot:
        """The current contents."""

    def grid(
        self,
        decay: Decay | str | None,
        *,
        now: Instant | None = None,
        sources: Iterable[Source] | None = None,
    ) -> Grid:
        """Return the cells of every layer under a decay and at a time, as arrays; see
        :meth:`~decaysketch.ecm.snapshot.ECMSnapshot.grid`.
        """
        return self.snapshot().grid(decay, now=now, sources=sources)

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        sources: Iterable[Source] | None = None,
        estimator: Estimator = "debiased",
    ) -> CellView:
        return self.snapshot().at(decay, now, sources=sources, estimator=estimator)

    def key_count_each(
        self,
        keys: Any,
        windows: npt.ArrayLike,
        *,
        now: Instant | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
    ) -> WindowCounts:
        """Return counts of keys, each in its own window; see
        :meth:`~decaysketch.ecm.snapshot.ECMSnapshot.key_count_each`.
        """
        return self.snapshot().key_count_each(
            keys, windows, now=now, sources=sources, confidence=confidence
        )
