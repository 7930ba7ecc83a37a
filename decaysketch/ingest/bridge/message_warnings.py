"""Suspicious readings that a bridge forwards, counted by stream and kind.

``replaced``
    A reading has the id of an earlier one, far away in time
    (:mod:`decaysketch.core.duplicates`). It replaces the earlier one, as after a counter restart.
    The bridge compares it with recently forwarded readings. The aggregator has all readings and
    counts, too, but does not see a reading that another one replaced in the same delta.
``undated``
    Its time lies outside the years 1990 to 2100.

The spool contains a file with the counts (:class:`StoredCounts`), because ``--check`` runs in
another process.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decaysketch.client.files import write_whole
from decaysketch.core.duplicates import REMEDY, far_apart
from decaysketch.core.records import Records
from decaysketch.core.row_check import count_undated
from decaysketch.families import Recipe
from decaysketch.ingest.columns import Batch
from decaysketch.ingest.documents import LORAWAN, DocumentMap

__all__ = ["StoredCounts", "Suspicions", "remedy"]

_REMEMBERED = 1 << 17  # ids in all streams together
_FILE = "suspicious.json"
_EVERY_S = 1.0  # between two writes
_LONGEST = 1 << 20  # bytes of the file


def remedy(maps: Sequence[DocumentMap]) -> str:
    """Return the parts that distinguish readings with one id, for the mappings of a stream."""
    framed = [each for each in maps if LORAWAN in each.id_paths]
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
        kind = recipe.kind.input
        if kind.named_by == "ids" and not kind.series:  # ids of series name no reading
            found["replaced"] = self._replaced(stream, unit, batch)
        return +found

    def _replaced(self, stream: str, unit: str, batch: Batch) -> int:
        other, any_value = far_apart(unit)
        values, _, times, ids = batch.columns
        plain: Any = values.hashes() if isinstance(values, Records) else np.ma.getdata(values)
        listed = plain.tolist()
        replaced = 0
        for id_, at, value in zip(ids.tolist(), times.tolist(), listed, strict=True):
            before = self._last.get((stream, id_))
            if before is not None:
                apart = abs(at - before[0])
                replaced += apart > any_value or (apart > other and value != before[1])
            elif len(self._last) >= _REMEMBERED:  # drop the oldest one
                del self._last[next(iter(self._last))]
            self._last[stream, id_] = at, value
        return replaced


class StoredCounts:
    """Counts per stream since its mappings changed, on disk.

    Args:
        spool: the folder that contains the file.
        maps: all mappings. A stream whose mappings changed begins at 0.
    """

    def __init__(self, spool: Path, maps: Sequence[DocumentMap]) -> None:
        self._path = spool / _FILE
        self._maps = {
            stream: hashlib.sha256(
                "\n".join(each.identity for each in maps if each.stream == stream).encode()
            ).hexdigest()
            for stream in sorted({each.stream or "" for each in maps})
        }
        self._written_at = 0.0
        self.counts = self._read()

    def _read(self) -> dict[str, Counter[str]]:
        """Return the counts from an earlier process. None if the file is absent or damaged."""
        try:
            with self._path.open("rb") as file:
                form = json.loads(file.read(_LONGEST))
            return {
                stream: Counter({kind: int(count) for kind, count in form[stream][1].items()})
                for stream, digest in self._maps.items()
                if stream in form and form[stream][0] == digest
            }
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
            return {}

    def add(self, stream: str, found: Mapping[str, int]) -> None:
        """Add counts, and write them about once a second.

        Raises:
            OSError: a disk error.
        """
        self.counts.setdefault(stream, Counter()).update(found)
        if time.monotonic() - self._written_at >= _EVERY_S:
            self.write()

    def write(self) -> None:
        """Write all counts.

        Raises:
            OSError: a disk error.
        """
        form = {name: [self._maps.get(name, ""), each] for name, each in self.counts.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(form).encode())
        self._written_at = time.monotonic()
