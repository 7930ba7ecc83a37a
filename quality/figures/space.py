"""Space against C: figure 4.6.

Three measures. *Entries*: an observation counts once for each level that holds it, as the nodes of
the paper do. *Rows*: each observation is stored once here. *Bytes* on the wire.

The query-time sketch is one and the same for all decays. The integral sketch under a window of 25
hours, which is all of the stream, is the paper's general sketch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from quality.figures import pool
from quality.figures.accuracy import FACTORS, capacity_of
from quality.figures.decays import DAY_WINDOW, EXPONENTIAL, POLYNOMIAL, WINDOW, PaperDecay
from quality.figures.sketches import Kind, build
from quality.sources import Source

__all__ = ["CASES", "GENERAL", "MEASURES", "QUERY_TIME", "Case", "Space", "measure"]

Float64Array = npt.NDArray[np.float64]

MEASURES: Final = ("entries", "rows", "bytes")


@dataclass(frozen=True)
class Case:
    """A kind of sketch with its decay."""

    kind: Kind
    decay: PaperDecay

    def label(self, unit: str) -> str:
        """As in headings."""
        return "query-time sketch" if self.kind == "query-time" else self.decay.label(unit)


GENERAL: Final = Case("integral", DAY_WINDOW)
QUERY_TIME: Final = Case("query-time", EXPONENTIAL)
CASES: Final = (
    *(Case("integral", decay) for decay in (EXPONENTIAL, POLYNOMIAL, WINDOW)),
    GENERAL,
    QUERY_TIME,
)


@dataclass(frozen=True, eq=False)
class Space:
    """Sizes over one stream: for each case float64[seeds, C, measures]."""

    source: Source
    sizes: dict[Case, Float64Array]


def measure(sources: list[Source], seeds: int, jobs: int) -> list[Space]:
    """All cases of all streams."""
    work = [(source, case, seed) for source in sources for case in CASES for seed in range(seeds)]
    results = iter(pool.run("space", trial, work, jobs))
    return [
        Space(source, {case: np.stack([next(results) for _ in range(seeds)]) for case in CASES})
        for source in sources
    ]


def trial(source: Source, case: Case, seed: int) -> Float64Array:
    """Sizes of one seed, float64[C, measures]."""
    sketch = build(case.kind, case.decay, source, capacity_of(max(FACTORS)), seed)
    sizes = []
    for factor in sorted(FACTORS, reverse=True):
        sketch.resize(capacity_of(factor))
        sizes.append([sketch.entries(), len(sketch.state()), sketch.size_bytes()])
    return np.array(sizes[::-1], dtype=np.float64)
