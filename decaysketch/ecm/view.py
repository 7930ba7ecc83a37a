"""Key queries on cells under one decay and at one time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from decaysketch.ecm import dyadic, hierarchy, joins, point_queries
from decaysketch.ecm.matrix import Estimator, Grid
from decaysketch.ecm.point_queries import Counts
from decaysketch.errors import ParameterError
from decaysketch.query.dispatch import Views
from decaysketch.query.estimate import Estimate
from decaysketch.query.keys import HeavyKeys, HeavyPrefixes, KeyView, is_key

__all__ = ["CellView"]

_DRAW_S, _CELL_S = 1e-4, 1.5e-6  # processor seconds, measured, of a grid and of a cell in it


@dataclass(frozen=True, slots=True, eq=False)
class CellView(KeyView):
    """Queries on a grid. Immutable. Any thread may read it.

    Attributes:
        grid: the counters for one decay and time.
        words_of: converts keys; see :meth:`~decaysketch.ecm.params.ECMParams.words_of`.
        estimator: "debiased", or "minimum" as in the paper.
        lanes: number of cell sets that were added.
    """

    grid: Grid
    words_of: Callable[[Any], npt.NDArray[np.uint64]]
    estimator: Estimator = "debiased"
    lanes: int = 1

    @property
    def now(self) -> int:
        return self.grid.now

    @property
    def verified(self) -> Literal["proof", "grid"]:
        return self.grid.verified

    @property
    def cells(self) -> int:
        return sum(each.layer.depth * each.layer.width for each in self.grid.layers)

    @property
    def drawn_s(self) -> float:
        return _DRAW_S + self.lanes * self.cells * _CELL_S

    def counts(self, keys: Any, *, confidence: float) -> Counts:
        words = self._words([keys] if is_key(keys) else keys)
        return point_queries.counts(
            self.grid, words, confidence=confidence, estimator=self.estimator
        )

    def _words(self, keys: Any) -> npt.NDArray[np.uint64]:
        """Words for keys. A list may contain several types."""
        if not isinstance(keys, list):
            return self.words_of(keys)
        kinds: dict[object, list[int]] = {}
        for place, key in enumerate(keys):
            kind = tuple(map(type, key)) if isinstance(key, tuple) else type(key)
            kinds.setdefault(kind, []).append(place)
        if len(kinds) < 2:
            return self.words_of(keys)
        words = np.empty(len(keys), np.uint64)
        for places in kinds.values():
            words[places] = self.words_of([keys[place] for place in places])
        return words

    def shares(self, keys: Any, *, confidence: float) -> list[Estimate]:
        whole = point_queries.total(self.grid)
        return [
            point_queries.share_of(each, whole) for each in self.counts(keys, confidence=confidence)
        ]

    def total(self, *, confidence: float) -> Estimate:
        return point_queries.total(self.grid, confidence=confidence)

    def self_join(self, *, confidence: float) -> Estimate:
        return joins.self_join(self.grid, confidence=confidence, estimator=self.estimator)

    def inner_product(self, other: Any, *, confidence: float) -> Estimate:
        theirs = other.at(self.grid.decay, self.now) if isinstance(other, Views) else other
        if not isinstance(theirs, CellView):
            raise ParameterError(
                f"other is {other!r}; expected a sketch, a collection or a view of an ECM-sketch"
            )
        return joins.inner(self.grid, theirs.grid, confidence=confidence, estimator=self.estimator)

    def heavy_keys(
        self, phi: float | None, threshold: float | None, *, confidence: float
    ) -> HeavyKeys:
        return dyadic.heavy_hitters(
            self.grid, phi, threshold=threshold, confidence=confidence, estimator=self.estimator
        )

    def heavy_prefixes(
        self, phi: float | None, threshold: float | None, limit: int | None, *, confidence: float
    ) -> HeavyPrefixes:
        return hierarchy.heavy_prefixes(
            self.grid, phi, threshold=threshold, limit=limit, confidence=confidence,
            estimator=self.estimator,
        )  # fmt: skip

    def range(self, low: int, high: int, *, confidence: float) -> Estimate:
        return dyadic.range_count(self.grid, low, high, confidence=confidence)

    def rank(self, key: int, *, confidence: float) -> Estimate:
        return dyadic.rank(self.grid, key, confidence=confidence)

    def quantile(self, q: float, *, confidence: float) -> Estimate:
        return dyadic.quantile(self.grid, q, confidence=confidence)
