"""From an observation body to a sketch of its accepted rows, and a row status for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from api.ingest.arrow import read_arrow
from api.ingest.json_rows import json_steps, line_steps
from api.journal.model import Interval
from api.service.local_sources import Site
from api.service.posts import Incoming
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.contract.snapshot import Rowed
from decaysketch.core.conflicting_duplicates import between, joined, replaced_between, within
from decaysketch.core.hashing import HashedKeys
from decaysketch.core.plausible_times import count_undated, dated
from decaysketch.core.row_status import Verdict
from decaysketch.families import Sketch
from decaysketch.ingest.columns import Batch, Columns, Form, Raw, check
from decaysketch.ingest.readings import Steps

__all__ = ["READERS", "REFUSED", "Reader", "Taken", "add", "build", "count", "read", "take"]

Reader = Callable[[bytes, Form], Raw | Steps[Raw]]
"""Reads a body; one that takes long does it in steps."""

#: What reads a body of each media type.
READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "application/json": json_steps,
        "application/x-ndjson": line_steps,
        "application/vnd.apache.arrow.stream": read_arrow,
    }
)
REFUSED = len(Verdict)  # the code of a row that was refused


@dataclass(frozen=True)
class Taken:
    """What became of a body.

    Attributes:
        batch: its rows.
        verdicts: of each row of the body, a ``Verdict`` or REFUSED.
        incoming: the sketch of the rows that are taken, to be posted; None where there are none.
        disagreeing: rows of the identity and the time of another one, of the body or of what the
            source has posted, and of another value.
        replaced: readings that replaced, or were replaced by, another reading of their id, of the
            body or of what the source has posted.
        undated: rows outside the years 1990 to 2100, of a source or a body that has others.
        joined: how many different times of identities, and how many identities the body has.
    """

    batch: Batch
    verdicts: npt.NDArray[np.int8]
    incoming: Incoming | None
    disagreeing: int = 0
    joined: tuple[int, int] = (0, 0)
    replaced: int = 0
    undated: int = 0


def read(reader: Reader, body: bytes, form: Form) -> Steps[Raw]:
    """What a reader reads, in steps. Raises what it raises."""
    found = reader(body, form)
    return found if isinstance(found, Raw) else (yield from found)


def take(stream: Stream, reader: Reader, body: bytes, form: Form) -> Steps[tuple[Taken, Raw]]:
    """Read a body, check its rows against the source's earlier posts, and build their sketch, in
    steps.

    Args:
        stream: the destination.
        reader: one of READERS.
        body: plain bytes.
        form: the required form of rows.

    Returns:
        The outcome, and the rows read.

    Raises:
        InvalidRequestError: the body cannot be read at all.
        TooManyRowsError: more rows than one post may have.
    """
    raw = yield from read(reader, body, form)
    yield
    batch = check(raw, form)
    yield
    verdicts = np.full(batch.rows, REFUSED, dtype=np.int8)
    if not len(batch.positions):
        return Taken(batch, verdicts, None), raw
    before = stream.posted(form.source)
    verdicts[batch.positions] = _feed(before.verdicts, stream, form.source, batch.columns)
    yield
    sketch = build(stream, form.source, batch.columns)
    yield
    snapshot = sketch.snapshot()
    kind = stream.recipe.kind.input
    incoming = Incoming(sketch.to_bytes(), snapshot)
    undated = _undated(before, batch.columns, stream)
    if kind.named_by != "ids" or kind.series:
        return Taken(batch, verdicts, incoming, undated=undated), raw
    replaced = sketch.replaced
    if isinstance(before, Rowed) and isinstance(snapshot, Rowed):
        unit = stream.recipe.params.time_unit
        replaced += replaced_between(before.identified, snapshot.identified, unit)
    if raw.polled:
        found = Taken(batch, verdicts, incoming, replaced=replaced, undated=undated)
        return found, raw
    disagreeing = _disagreeing(before, snapshot, batch.columns)
    several = joined(batch.columns.ids, batch.columns.weights, batch.columns.times)
    found = Taken(batch, verdicts, incoming, disagreeing, several, replaced, undated)
    return found, raw


def _undated(before: Snapshot, columns: Columns, stream: Stream) -> int:
    """Rows outside the years 1990 to 2100; 0 where all of them are, as in a simulation."""
    unit = stream.recipe.params.time_unit
    found = count_undated(unit, columns.times)
    if found < len(columns.times) or (before.newest is not None and dated(unit, before.newest)):
        return found
    return 0


def _disagreeing(before: Snapshot, taken: Snapshot, columns: Columns) -> int:
    found = within(columns.ids, columns.weights, columns.times, columns.values)
    if isinstance(before, Rowed) and isinstance(taken, Rowed):
        found += between(before.identified, taken.identified)
    return found


def count(
    batch: Batch, site: Site, interval: Interval, request: bytes
) -> tuple[Taken, Sketch | None]:
    """Count rows, of a family that counts for a site, on top of what the site has counted.

    Args:
        batch: the rows.
        site: whose sketch is not changed.
        interval: of their numbers.
        request: SHA-256 of what was sent.

    Returns:
        What became of them, with the whole new state to be posted; and the sketch of that, None
        where there is nothing to count.
    """
    verdicts = np.full(batch.rows, REFUSED, dtype=np.int8)
    if not len(batch.positions):
        return Taken(batch, verdicts, None), None
    keys, times, weights = HashedKeys(batch.columns.ids), batch.columns.times, batch.columns.weights
    name = {"source": site.source, "epoch": site.epoch}
    sketch = site.sketch.copy()
    verdicts[batch.positions] = sketch.verdicts(keys, times, weights, **name)
    sketch.update(keys, times, weights, **name)
    incoming = Incoming(sketch.to_bytes(), sketch.snapshot(), interval, request)
    return Taken(batch, verdicts, incoming), sketch


def build(stream: Stream, source: str, columns: Columns) -> Sketch:
    """Return the complete sketch of observations: the same as from a sensor that has seen only
    them.

    Elements that have numbers are named by the source and their number.
    """
    sketch = stream.recipe.empty()
    add(sketch, stream, source, columns)
    return sketch


def add(sketch: Sketch, stream: Stream, source: str, columns: Columns) -> None:
    """Add observations to a sketch for this stream. Its bytes depend on all rows, and not on
    their division into calls.
    """
    _feed(sketch.update, stream, source, columns)


def _feed(method: Callable[..., Any], stream: Stream, source: str, columns: Columns) -> Any:
    values, weights, times, ids = columns
    read = stream.recipe.kind.input
    weighed = () if read.weight_bound is None else (weights,)
    if read.named_by == "ids":
        return method(values, *weighed, times, ids)
    return method(values, *weighed, times, ids, source=source)
