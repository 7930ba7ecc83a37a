"""What is taken and hardly meant: times that are no dates in the unit of their stream."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from decaysketch import Snapshot
from decaysketch.core.plausible_times import doubt

__all__ = ["doubts_of_columns", "doubts_of_sketches"]


def doubts_of_columns(unit: str, times: npt.NDArray[np.int64]) -> list[str]:
    """Of observations that were taken."""
    if not len(times):
        return []
    return _said(unit, int(times.min()), int(times.max()))


def doubts_of_sketches(unit: str, sketches: Iterable[Snapshot]) -> list[str]:
    """Of what sketches hold, all together."""
    spans = [(each.oldest, each.newest) for each in sketches]
    oldest = min((first for first, _ in spans if first is not None), default=None)
    newest = max((last for _, last in spans if last is not None), default=None)
    return _said(unit, oldest, newest)


def _said(unit: str, oldest: int | None, newest: int | None) -> list[str]:
    found = doubt(unit, oldest, newest)
    return [] if found is None else [f"times are hardly in {unit}: {found}"]
