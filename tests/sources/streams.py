"""Streams of several sources, and what is true of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import decaysketch as ds

NAMES = tuple("abcdefghijkl")


@dataclass(frozen=True)
class Heard:
    """Messages of a stream.

    Attributes:
        heard: bool[n, k], whether a source heard a message.
        times: int64[n, k], the time of its duplicate.
        weights: int64[n].
        values: float64[n, k], or None.
    """

    heard: npt.NDArray[np.bool_]
    times: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[: self.heard.shape[1]]

    @property
    def latest(self) -> npt.NDArray[np.int64]:
        """The latest time of each message; the least int64 where nobody heard it."""
        least = np.iinfo(np.int64).min
        return np.where(self.heard, self.times, least).max(axis=1)

    def sketches(self, capacities: Any = 60, **params: Any) -> dict[str, ds.DecaySketch]:
        """One sketch for each source."""
        made = {}
        for source, name in enumerate(self.names):
            rows = np.flatnonzero(self.heard[:, source])
            capacity = capacities if isinstance(capacities, int) else int(capacities[source])
            made[name] = ds.DecaySketch(ds.SketchParams(capacity=capacity, **params))
            values = None if self.values is None else self.values[rows, source]
            made[name].update(values, self.weights[rows], self.times[rows, source], rows)
        return made

    def mass(self, decay: Callable[[Any], Any], now: int, rows: npt.NDArray[np.bool_]) -> float:
        """The decayed number of some messages."""
        counted = rows & self.heard.any(axis=1) & (self.latest <= now)
        return float(np.sum(decay(np.int64(now) - self.latest[counted])))


def drawn(
    rng: np.random.Generator, n: int, rates: Any, *, span: int = 100_000, lag: int = 0,
    max_weight: int = 1,
) -> Heard:  # fmt: skip
    """Messages at uniform times, heard independently; duplicates differ by up to ``lag``."""
    heard = rng.random((n, len(rates))) < np.asarray(rates)
    heard[~heard.any(axis=1), 0] = True
    base = np.sort(rng.integers(0, span, n))
    times = base[:, np.newaxis] + rng.integers(0, lag + 1, heard.shape)
    return Heard(heard, times, rng.integers(1, max_weight + 1, n))
