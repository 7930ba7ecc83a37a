"""Errors of the decayed sum and of selectivity against C: figures 4.2 to 4.5.

Each trial is a hash seed of its own, ``0, 1, 2, ...``, over one stream; all series and all C take
the same seeds, so that they can be compared in pairs. A sketch is built with the largest capacity
and shrunk through the others, which gives what building with each would have given. The errors are
those of the estimates against the exact answers of the same decay: rounded down for the integral
sketch, not rounded for the query-time one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.query import aggregates
from quality.figures import pool
from quality.figures.decays import EXPONENTIAL, POLYNOMIAL, WINDOW, PaperDecay
from quality.figures.sketches import KINDS, SERIES, Kind, Series, build
from quality.sources import Source

__all__ = ["DECAYS", "EPSILON", "FACTORS", "Errors", "capacity_of", "exact_answers", "measure"]

Float64Array = npt.NDArray[np.float64]

EPSILON: Final = 0.05
FACTORS: Final = (1, 2, 5, 20, 40, 60)  # C
DECAYS: Final = (EXPONENTIAL, POLYNOMIAL, WINDOW)


def capacity_of(factor: float, epsilon: float = EPSILON) -> int:
    """Sample size ``tau = C / epsilon^2``."""
    return round(factor / epsilon**2)


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of one decay over one stream.

    Attributes:
        source, decay: what of.
        exact: the decayed sum, rounded down, and its selectivities.
        errors: for each series, float64[seeds, C, 1 + predicates]: the relative error of the sum,
            then the additive errors of the selectivities.
    """

    source: Source
    decay: PaperDecay
    exact: Float64Array
    errors: dict[Series, Float64Array]

    @property
    def seeds(self) -> int:
        return len(next(iter(self.errors.values())))


def measure(source: Source, decays: Sequence[PaperDecay], seeds: int, jobs: int) -> list[Errors]:
    """All trials of one stream, decay by decay."""
    cells = [(decay, kind) for decay in decays for kind in KINDS]
    exact = {
        (decay, kind): exact_answers(source, decay, rounded=kind == "integral")
        for decay, kind in cells
    }
    work = [
        (source, decay, kind, seed, exact[decay, kind])
        for decay, kind in cells
        for seed in range(seeds)
    ]
    results = iter(pool.run(f"accuracy, {source.name}", trial, work, jobs))
    measured = {decay: Errors(source, decay, exact[decay, "integral"], {}) for decay in decays}
    for decay, kind in cells:
        errors = np.stack([next(results) for _ in range(seeds)])
        for position, series in enumerate(SERIES[kind]):
            measured[decay].errors[series] = errors[:, position]
    return list(measured.values())


def exact_answers(source: Source, decay: PaperDecay, *, rounded: bool) -> Float64Array:
    """The decayed sum and the selectivities, from every distinct observation."""
    values, weights, timestamps = source.truth()
    decayed = decay.weights(weights, source.now - timestamps, rounded=rounded)
    total = float(decayed.sum())
    shares = [
        float(decayed[predicate(values, weights)].sum()) / total for predicate in source.predicates
    ]
    return np.array([total, *shares])


def trial(
    source: Source, decay: PaperDecay, kind: Kind, seed: int, exact: Float64Array
) -> Float64Array:
    """Errors of one seed, float64[series of the kind, C, 1 + predicates]."""
    sketch = build(kind, decay, source, capacity_of(max(FACTORS)), seed)
    rows = []
    for factor in sorted(FACTORS, reverse=True):
        sketch.resize(capacity_of(factor))
        samples = sketch.samples(source.now)
        rows.append([_errors(samples[series], source, exact) for series in SERIES[kind]])
    return np.array(rows[::-1]).swapaxes(0, 1)


def _errors(sample: ds.Sample, source: Source, exact: Float64Array) -> list[float]:
    shares = [aggregates.selectivity(sample, predicate).value for predicate in source.predicates]
    return [aggregates.sum(sample).value / exact[0] - 1, *(np.array(shares) - exact[1:])]
