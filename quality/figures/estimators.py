"""Is the stratified estimator never worse than Cohen and Strauss's reduction?

Both read the same sketch: what differs is how a decayed sum is put together from the levels (see
``decaysketch/query/sample.py``). The claim is that in every cell, decay by weights by capacity,
the RMSE of the stratified sum is at most that of the other, up to two standard errors of their
paired ratio. Each trial is a stream and a hash seed of its own. Decays reach beyond what level 0
holds, as inside of that both are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.query import aggregates
from quality.figures import claims, pool

__all__ = ["CAPACITIES", "DECAYS", "WEIGHTS", "Cell", "measure", "ratio", "rows_of"]

CAPACITIES: Final = (20, 100, 800, 24_000)
WEIGHTS: Final = ("1", "1..999", "999", "Pareto")
DECAYS: Final = (
    "none",
    "window 1.5",
    "window 6",
    "half-life 0.5",
    "half-life 3",
    "polynomial 1",
    "polynomial 2",
    "piecewise",
)
_MAX_WEIGHT: Final = 1 << 20
_TRIALS_IN_TASK: Final = 20

Errors = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """Where the two are compared; ages of the decay are in capacities."""

    weights: str
    capacity: int
    decay: str


def rows_of(capacity: int) -> int:
    """Observations of a stream: far more than level 0 holds."""
    return max(20_000, 12 * capacity)


def decay_of(name: str, capacity: int) -> ds.Decay:
    """A named decay, with ages in units of the capacity."""
    kind, _, degree = name.partition(" ")
    if kind == "none":
        return ds.decay.none()
    if kind == "window":
        return ds.decay.window(float(degree) * capacity)
    if kind == "half-life":
        return ds.decay.exponential(half_life=float(degree) * capacity)
    if kind == "polynomial":
        return ds.decay.polynomial(float(degree), scale=capacity / 2)
    return ds.decay.piecewise([(capacity / 2, 1.0), (3 * capacity, 0.3)], beyond=0.1)


def measure(trials: int, jobs: int) -> dict[Cell, Errors]:
    """Relative errors of every cell: float64[trials, 2], stratified first."""
    work = [
        (weights, capacity, first, min(first + _TRIALS_IN_TASK, trials))
        for capacity in sorted(CAPACITIES, reverse=True)
        for weights in WEIGHTS
        for first in range(0, trials, _TRIALS_IN_TASK)
    ]
    parts: dict[Cell, list[Errors]] = {}
    for (weights, capacity, _, _), errors in zip(
        work, pool.run("estimators", task, work, jobs), strict=True
    ):
        for column, decay in enumerate(DECAYS):
            parts.setdefault(Cell(weights, capacity, decay), []).append(errors[:, column])
    return {cell: np.concatenate(errors) for cell, errors in parts.items()}


def task(weights: str, capacity: int, first: int, last: int) -> Errors:
    """Trials first..last - 1: float64[trials, decays, 2]."""
    return np.array([trial(weights, capacity, number) for number in range(first, last)])


def trial(weights: str, capacity: int, number: int) -> list[list[float]]:
    """Relative errors of both estimators under every decay."""
    rng = np.random.default_rng([3, WEIGHTS.index(weights), capacity, number])
    rows = rows_of(capacity)
    times = np.arange(rows)
    column = weights_of(rng, weights, rows)
    params = ds.SketchParams(
        max_weight=_MAX_WEIGHT, id_bits=36, capacity=capacity, seed=int(rng.integers(1 << 63))
    )
    sketch = ds.DecaySketch(params)
    sketch.update(None, column, times, times)
    now = rows - 1
    errors = []
    for name in DECAYS:
        decay = decay_of(name, capacity)
        truth = float(np.sum(decay(now - times) * column))
        errors.append(
            [
                aggregates.sum(sketch.sample(decay, now=now, estimator=estimator)).value / truth - 1
                for estimator in ("stratified", "cohen-strauss")
            ]
        )
    return errors


def weights_of(rng: np.random.Generator, weights: str, rows: int) -> Any:
    """Weights by a named law, int64[rows]."""
    if weights == "1..999":
        return rng.integers(1, 1000, rows)
    if weights == "Pareto":  # shape 1.2: the mean exists, the variance does not
        return np.minimum(np.floor(1 + rng.pareto(1.2, rows)), _MAX_WEIGHT).astype(np.int64)
    return np.full(rows, int(weights))


def ratio(errors: Errors) -> claims.Figure:
    """RMSE of the stratified estimator over that of the other, paired."""
    return claims.rmse_ratio(errors[:, 0], errors[:, 1])
