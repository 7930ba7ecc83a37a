"""Update speed against C, epsilon and the degree of decay: figures 4.7 and 4.8.

One process on one core. Its own processor time is measured, which other programs disturb less than
the clock on the wall, and everything that is compared takes turns, so that what remains falls on
all alike. ``numpy.sort`` of the stream's timestamps, timed in the same turns, tells machines apart.
The integral sketch is told the processing time of each batch, as in the paper.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from quality.figures import pool
from quality.figures.accuracy import FACTORS, capacity_of
from quality.figures.decays import (
    EXPONENTIAL,
    EXPONENTS,
    POLYNOMIAL,
    RATES,
    WIDTHS,
    WINDOW,
    PaperDecay,
)
from quality.figures.sketches import KINDS, Kind, empty, feed
from quality.sources import Source

__all__ = [
    "BY_DEGREE",
    "BY_EPSILON",
    "BY_FACTOR",
    "DEGREE_FACTOR",
    "EPSILONS",
    "EPSILON_FACTOR",
    "FAMILIES",
    "Case",
    "Speeds",
    "cases",
    "measure",
]

EPSILONS: Final = (0.025, 0.05, 0.1, 0.2)
EPSILON_FACTOR: Final = 20  # C of the speeds by epsilon
DEGREE_FACTOR: Final = 60  # C of the speeds by degree, as in the paper
FAMILIES: Final = (RATES, EXPONENTS, WIDTHS)


@dataclass(frozen=True)
class Case:
    """A sketch that is timed."""

    kind: Kind
    decay: PaperDecay
    capacity: int


@dataclass(frozen=True, eq=False)
class Speeds:
    """Elements a second: for each case float64[repetitions], and those of ``numpy.sort``."""

    source: Source
    rates: dict[Case, npt.NDArray[np.float64]]
    sorts: npt.NDArray[np.float64]


def cases(decays: Iterable[PaperDecay], capacities: Iterable[int]) -> list[Case]:
    """Each decay with each capacity, and the query-time sketch, which has no decay of its own."""
    return [
        Case(kind, decay, capacity)
        for capacity in capacities
        for kind in KINDS
        for decay in (decays if kind == "integral" else [EXPONENTIAL])
    ]


BY_FACTOR: Final = cases(
    (EXPONENTIAL, POLYNOMIAL, WINDOW), [capacity_of(factor) for factor in FACTORS]
)
BY_EPSILON: Final = cases(
    (EXPONENTIAL, POLYNOMIAL, WINDOW),
    [capacity_of(EPSILON_FACTOR, epsilon) for epsilon in EPSILONS],
)
BY_DEGREE: Final = cases(
    [decay for family in FAMILIES for decay in family], [capacity_of(DEGREE_FACTOR)]
)


def measure(source: Source, timed: Iterable[Case], repetitions: int) -> Speeds:
    """Time each case once in each repetition, after one repetition that is not counted."""
    kept = list(dict.fromkeys(timed))
    turns = [(source, case, turn) for turn in range(repetitions + 1) for case in kept]
    results = pool.run("speed", clock, turns, 1)  # one process: nothing of ours runs beside it
    rates = np.array(results).reshape(repetitions + 1, len(kept), 2)[1:]
    return Speeds(
        source, {case: rates[:, i, 0] for i, case in enumerate(kept)}, rates[:, :, 1].ravel()
    )


def clock(source: Source, case: Case, seed: int) -> tuple[float, float]:
    """Elements a second of the sketch, fed with the whole stream from empty, and of numpy.sort."""
    columns = source.columns()
    sketch = empty(case.kind, case.decay, source.params(case.capacity, seed))
    start = time.process_time()
    feed(sketch, columns)
    fed = time.process_time()
    np.sort(columns.timestamps)
    return source.rows / (fed - start), source.rows / (time.process_time() - fed)
