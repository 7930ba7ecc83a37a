"""One face of the two sketches that are compared, and the estimates that are read from them.

``integral``: :class:`decaysketch.IntegralDecaySketch`, the paper's section 3: the decay is fixed
when the sketch is built. It is read in two ways: from one level, as the paper does ("paper"), and
stratified, its default ("integral"). ``query-time``: :class:`decaysketch.DecaySketch`, section 4,
built without a decay and asked with any; read stratified, its default.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np

import decaysketch as ds
from quality.figures.decays import PaperDecay
from quality.sources import Source
from quality.stream import Columns

__all__ = [
    "BATCH",
    "KINDS",
    "SERIES",
    "Built",
    "Kind",
    "Series",
    "build",
    "empty",
    "feed",
]

Kind: TypeAlias = Literal["integral", "query-time"]
KINDS: Final[tuple[Kind, ...]] = ("integral", "query-time")

Series: TypeAlias = Literal["paper", "integral", "query-time"]
SERIES: Final[dict[Kind, tuple[Series, ...]]] = {
    "integral": ("paper", "integral"),
    "query-time": ("query-time",),
}

BATCH: Final = 50_000  # elements in an update


class Built(Protocol):
    """A sketch together with its decay."""

    def update(self, batch: tuple[Any, Any, Any, Any], clock: int) -> None:
        """Fold in columns that were processed up to ``clock``."""

    def resize(self, capacity: int) -> None:
        """Shrink to what building with a smaller capacity would have given."""

    def samples(self, now: int) -> dict[Series, ds.Sample]:
        """What queries at ``now`` read, for each series of this kind of sketch."""

    def state(self) -> Any:
        """The canonical state."""

    def entries(self) -> int:
        """Entries over all levels: the paper's number of nodes."""

    def size_bytes(self) -> int:
        """Length on the wire."""


class _Integral:
    def __init__(self, params: ds.SketchParams, decay: PaperDecay) -> None:
        self._sketch = ds.IntegralDecaySketch(params, decay.integral())

    def update(self, batch: tuple[Any, Any, Any, Any], clock: int) -> None:
        self._sketch.update(*batch, now=clock)

    def resize(self, capacity: int) -> None:
        self._sketch.resize(capacity)

    def samples(self, now: int) -> dict[Series, ds.Sample]:
        return {
            "paper": self._sketch.sample(now=now, estimator="level"),
            "integral": self._sketch.sample(now=now),
        }

    def state(self) -> Any:
        return self._sketch.state()

    def entries(self) -> int:
        state = self._sketch.state()
        params, marks = state.params, state.watermarks
        count = 0
        for level in range(params.levels + 1):
            hits = ds.minhit.min_hits(params, state.ids, state.weights, level)
            hit = hits >= 0  # f(w, 0) = w for all decays here
            ages = state.decay.expiry_ages(state.weights[hit], hits[hit], params.max_weight)
            count += int((state.times[hit] + ages > marks[level]).sum())
        return count

    def size_bytes(self) -> int:
        return len(self._sketch.to_bytes())


class _QueryTime:
    def __init__(self, params: ds.SketchParams, decay: PaperDecay) -> None:
        self._sketch, self._decay = ds.DecaySketch(params), decay.real()

    def update(self, batch: tuple[Any, Any, Any, Any], clock: int) -> None:
        self._sketch.update(*batch)

    def resize(self, capacity: int) -> None:
        self._sketch.resize(capacity)

    def samples(self, now: int) -> dict[Series, ds.Sample]:
        return {"query-time": self._sketch.sample(self._decay, now=now)}

    def state(self) -> Any:
        return self._sketch.state()

    def entries(self) -> int:
        state = self._sketch.state()
        # Watermarks fall along the levels: the first level with an earlier one holds the row, and
        # so do all from there to its top level.
        rising = -state.watermarks.astype(np.float64)
        first = np.searchsorted(rising, -state.times.astype(np.float64), side="right")
        return int((state.levels - first + 1).sum())

    def size_bytes(self) -> int:
        return len(self._sketch.to_bytes())


def empty(kind: Kind, decay: PaperDecay, params: ds.SketchParams) -> Built:
    """A sketch that has seen nothing."""
    return _Integral(params, decay) if kind == "integral" else _QueryTime(params, decay)


def feed(sketch: Built, columns: Columns, *, batch: int = BATCH) -> None:
    """Fold in all elements in their order, in batches."""
    total = len(columns.ids)
    for start in range(0, total, batch):
        stop = min(start + batch, total)
        sketch.update(columns.rows(start, stop), int(columns.clocks[stop - 1]))


def build(kind: Kind, decay: PaperDecay, source: Source, capacity: int, seed: int) -> Built:
    """A sketch of the whole stream."""
    sketch = empty(kind, decay, source.params(capacity, seed))
    feed(sketch, source.columns())
    return sketch
