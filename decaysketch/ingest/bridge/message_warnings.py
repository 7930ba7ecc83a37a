"""Suspicious readings that a bridge forwards, counted by stream and kind.

``replaced``
    A reading has the id of an earlier one, far away in time
    (:mod:`decaysketch.core.replaced`): it replaces the earlier one, as after a counter restarted.
    The bridge compares it with recently forwarded readings. The aggregator, which has all
    readings, counts too, and ``--check`` shows its count.
``undated``
    Its time lies outside the years 1990 to 2100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from decaysketch.core.plausible_times import count_undated
from decaysketch.core.replaced import REMEDY, far_apart
from decaysketch.families import Recipe
from decaysketch.ingest.columns import Batch
from decaysketch.ingest.documents import LORAWAN, DocumentMap

__all__ = ["Suspicions", "remedy"]

_REMEMBERED = 1 << 17  # ids, of all streams


def remedy(maps: Sequence[DocumentMap]) -> str:
    """Return the parts that distinguish readings with one id, for the mappings of a stream."""
    framed = [each for each in maps if LORAWAN in (each.id or each.default_id)]
    if any(each.reset is None for each in framed):
        return (
            "for devices with ABP set `reset` in the mapping, no longer than the shortest time "
            f"between two restarts; otherwise {REMEDY}"
        )
    return REMEDY


class Suspicions:
    """Facts about recently forwarded readings."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], tuple[int, Any]] = {}

    def count(self, stream: str, recipe: Recipe, batch: Batch) -> Counter[str]:
        """Count suspicious readings by kind. O(readings).

        Args:
            stream: name of the stream.
            recipe: its sketch configuration.
            batch: sound readings.
        """
        unit = recipe.params.time_unit
        found = Counter({"undated": count_undated(unit, batch.columns.times)})
        if recipe.kind.input.named_by == "ids":
            found["replaced"] = self._replaced(stream, unit, batch)
        return +found

    def _replaced(self, stream: str, unit: str, batch: Batch) -> int:
        other, whatever = far_apart(unit)
        values, _, times, ids = batch.columns
        listed = np.ma.getdata(values).tolist()
        replaced = 0
        for id_, time, value in zip(ids.tolist(), times.tolist(), listed, strict=True):
            before = self._last.get((stream, id_))
            if before is not None:
                apart = abs(time - before[0])
                replaced += apart > whatever or (apart > other and value != before[1])
            elif len(self._last) >= _REMEMBERED:  # the oldest one goes
                del self._last[next(iter(self._last))]
            self._last[stream, id_] = time, value
        return replaced
