"""Cells that forget nothing, and grids of them: what answers are, when only keys share cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from decaysketch.decay import Decay
from decaysketch.ecm.cells import Cells
from decaysketch.ecm.hashing import columns_of
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.matrix import Counters, Grid, read

__all__ = ["ExactCells", "Stream", "counters", "flat", "read_exactly", "tree"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

ROOT = Layer(shift=64, width=1, depth=1, slots=64, hashed=False)


class Stream:
    """Events in order of time, and what is true of them."""

    def __init__(self, keys: Any, times: Any, weights: Any = None) -> None:
        self.words = np.array(keys, np.uint64)
        self.times = np.array(times, np.int64)
        ones = np.ones(len(self.times), np.int64)
        self.weights = ones if weights is None else np.array(weights, np.int64)

    def __len__(self) -> int:
        return len(self.times)

    def decayed(self, decay: Decay, now: int) -> Float64Array:
        """float64[m], what each event weighs."""
        ages = now - self.times
        return np.where(ages < 0, 0.0, decay(np.maximum(ages, 0))) * self.weights

    def counts(self, decay: Decay, now: int) -> tuple[UInt64Array, Float64Array]:
        """Every key, and its decayed count."""
        keys, number = np.unique(self.words, return_inverse=True)
        return keys, np.bincount(number, self.decayed(decay, now), len(keys))

    def parts(self, into: int) -> list[Stream]:
        """In turns, each in order of time."""
        return [
            Stream(self.words[k::into], self.times[k::into], self.weights[k::into])
            for k in range(into)
        ]


class ExactCells:
    """Every event of a layer of cells, counted by going through all of them."""

    def __init__(self, layer: Layer, kind: str, seed: int) -> None:
        self.layer, self.kind, self.seed = layer, kind, seed
        self._columns = np.zeros((layer.depth, 0), np.uint32)
        self._times = self._weights = np.zeros(0, np.int64)

    def update(self, words: UInt64Array, times: Int64Array, weights: Int64Array) -> None:
        columns = columns_of(words, self.layer, self.seed)
        self._columns = np.hstack([self._columns, columns])
        self._times = np.append(self._times, times)
        self._weights = np.append(self._weights, weights)

    @property
    def clock(self) -> int | None:
        return int(self._times[-1]) if len(self._times) else None

    @property
    def first(self) -> int | None:
        return int(self._times[0]) if len(self._times) else None

    @property
    def seen(self) -> int:
        return int(self._weights.sum())

    @property
    def n(self) -> Int64Array:
        return self._summed(self._weights.astype(np.float64)).astype(np.int64)

    def grid(self, start: int) -> tuple[Int64Array, Int64Array]:
        counted = self._summed(np.where(self._times >= start, self._weights, 0).astype(np.float64))
        return counted.astype(np.int64), counted.astype(np.int64)

    def values(self, start: int) -> Float64Array:
        return self.grid(start)[0].astype(np.float64)

    def decayed(
        self, weight_of_age: Callable[[Int64Array], Float64Array], now: int
    ) -> tuple[Float64Array, Float64Array]:
        weights = np.where(self._times > now, 0.0, weight_of_age(now - self._times))
        counted = self._summed(weights * self._weights)
        return counted, counted.copy()

    def _summed(self, each: Float64Array) -> Float64Array:
        return np.array([np.bincount(row, each, self.layer.width) for row in self._columns])


def flat(width: int, depth: int, slots: int = 10) -> tuple[Layer, ...]:
    """Of a sketch of hashed keys."""
    return ROOT, Layer(shift=0, width=width, depth=depth, slots=slots, hashed=True)


def tree(bits: int, fanout_bits: int, width: int, depth: int, slots: int = 10) -> tuple[Layer, ...]:
    """Of a sketch of integer keys: every prefix that is ``fanout_bits`` longer than the last."""
    shifts = [*range(bits - fanout_bits, 0, -fanout_bits), 0]
    layers = [ROOT]
    for shift in shifts:
        nodes = 1 << (bits - shift)
        hashed = nodes > width * depth or shift == 0
        shape = (width, depth) if hashed else (nodes, 1)
        layers.append(Layer(shift, *shape, slots, hashed))
    return tuple(layers)


def counters(
    stream: Stream, layers: Sequence[Layer], seed: int, kind: str = "wave", *, exact: bool = False
) -> Counters:
    """One lane of a stream."""
    lane = []
    for layer in layers:
        cells: Any = (ExactCells if exact else Cells)(layer, kind, seed)  # type: ignore[arg-type]
        if len(stream):
            cells.update(stream.words, stream.times, stream.weights)
        lane.append(cast(Cells, cells))
    return Counters([lane])


def read_exactly(
    stream: Stream, layers: Sequence[Layer], decay: Decay, now: int, *, seed: int = 1,
    key_bits: int | None = None,
) -> Grid:  # fmt: skip
    """What a question reads where every cell knows its count."""
    source = counters(stream, layers, seed, exact=True)
    return read([source], layers, seed, decay, now, key_bits=key_bits)
