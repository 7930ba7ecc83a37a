"""A body's rows on their way into one stream: read, check, sketch.

The other two stages, commit and apply, are in :mod:`api.service`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from api.ingest.arrow import read_arrow
from api.ingest.json_rows import json_steps, line_steps
from api.journal.model import Interval, Post
from api.service.local_sources import Site
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.contract.snapshot import Rowed
from decaysketch.core.duplicates import between, joined, replaced_between, within
from decaysketch.core.hashing import HashedKeys
from decaysketch.core.plausible_times import count_undated, dated
from decaysketch.core.row_status import Verdict
from decaysketch.families import Sketch
from decaysketch.ingest.columns import (
    Batch,
    Columns,
    Form,
    Raw,
    check,
    without_new_strata,
)
from decaysketch.ingest.readings import Steps
from decaysketch.ingest.record_columns import Dropped
from decaysketch.ingest.views import ViewOf, of_devices

__all__ = ["READERS", "REJECTED", "Ingestion", "Reader", "build", "count"]

Reader = Callable[[bytes, Form], Raw | Steps[Raw]]
"""Reads a body. A slow reader does it in steps."""

#: What reads a body of each media type.
READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "application/json": json_steps,
        "application/x-ndjson": line_steps,
        "application/vnd.apache.arrow.stream": read_arrow,
    }
)
REJECTED = len(Verdict)  # the code of a row that was rejected

_ROWS_A_STEP = 1 << 12  # of a derived stream: about 10 ms where names are long

Int8Array = npt.NDArray[np.int8]


@dataclass(eq=False)
class Ingestion:
    """A body's rows on their way into one stream, and into its derived streams.

    Args:
        stream: the destination.
        reader: reads the body. A reader in READERS, or the reader for a protocol.
        form: the required row form.
        views: the derived streams that the stream feeds.
        check_times: raises the body's rejection for the times of its sound rows.

    Attributes:
        batch: the rows, once checked.
        statuses: a ``Verdict`` or REJECTED for each row in the body.
        post: the accepted rows, as a sketch. None: there are none.
        derived: the posts to derived streams.
        without_device: how many accepted rows have no device, by derived stream.
        disagreeing: rows that share identity and time with another row, in the body or in the
            source's earlier posts, and have another value.
        replaced: readings that replaced, or were replaced by, another reading with their id,
            likewise.
        undated: rows outside the years 1990 to 2100, if others are inside.
        joined: how many different times the identities have, and how many identities there are.
        dropped: values that fill no column, by column name and reason.
    """

    stream: Stream
    reader: Reader
    form: Form
    views: Sequence[Stream] = ()
    check_times: Callable[[npt.NDArray[np.int64]], None] | None = None
    batch: Batch = field(init=False)
    statuses: Int8Array = field(init=False)
    post: Post | None = field(default=None, init=False)
    derived: dict[Stream, Post] = field(default_factory=dict, init=False)
    without_device: dict[Stream, int] = field(default_factory=dict, init=False)
    disagreeing: int = field(default=0, init=False)
    replaced: int = field(default=0, init=False)
    undated: int = field(default=0, init=False)
    joined: tuple[int, int] = field(default=(0, 0), init=False)
    dropped: Dropped = field(default_factory=Counter, init=False)

    def steps(self, body: bytes) -> Steps[None]:
        """Read a body, check its rows, and build the sketches of the accepted ones, in steps.

        Raises:
            InvalidRequestError: the body cannot be read at all.
            TooManyRowsError: more rows than one post may have.
            ServiceError: the rejection by ``check_times``.
        """
        raw = yield from self.check(body)
        if len(self.batch.positions):
            yield
            yield from self._sketch(raw)
            for view in self.views:
                yield from self._derive(view, raw)

    def check(self, body: bytes) -> Steps[Raw]:
        """Read a body and check its rows, in steps. Return the rows read. Raises likewise."""
        found = self.reader(body, self.form)
        raw = found if isinstance(found, Raw) else (yield from found)
        yield
        self.batch, self.dropped = check(raw, self.form), raw.dropped
        if self.stream.recipe.params.strata:
            self.batch = without_new_strata(self.batch, self.form, self.stream.strata)
        self.statuses = np.full(self.batch.rows, REJECTED, dtype=np.int8)
        if self.check_times is not None:
            self.check_times(self.batch.columns.times)
        return raw

    def _sketch(self, raw: Raw) -> Steps[None]:
        """Sketch the accepted rows, and compare them with the source's earlier posts."""
        stream, columns, source = self.stream, self.batch.columns, self.form.source
        more = self.batch.more
        found = _feed(partial(stream.compared, source), stream, source, columns, more)
        self.statuses[self.batch.positions] = found.verdicts
        yield
        sketch = build(stream, source, columns, more)
        yield
        snapshot = sketch.snapshot()
        self.post = Post(stream.id, source, sketch.to_bytes(), snapshot=snapshot)
        self.undated = _undated(stream, source, columns)
        kind = stream.recipe.kind.input
        if kind.named_by != "ids" or kind.series or not found.shares:
            return
        before = stream.posted(source)
        self.replaced = sketch.replaced
        if isinstance(before, Rowed) and isinstance(snapshot, Rowed):
            unit = stream.recipe.params.time_unit
            self.replaced += replaced_between(before.identified, snapshot.identified, unit)
        if not raw.polled:
            self.disagreeing = _disagreeing(before, snapshot, columns)
            self.joined = joined(columns.ids, columns.weights, columns.times)

    def _derive(self, view: Stream, raw: Raw) -> Steps[None]:
        """Sketch the rows for a derived stream, ``_ROWS_A_STEP`` at a time. O(rows)."""
        form, accepted = self.form, self.batch.positions
        of_view = Form(
            view.recipe, form.source, form.latest, form.max_rows, view.row.bind_keys, form.lead
        )
        definition, sketch = ViewOf.from_dict(view.row.view), view.recipe.empty()
        rows = 0
        for begin in range(0, len(accepted), _ROWS_A_STEP):
            yield
            part = of_devices(raw, accepted[begin : begin + _ROWS_A_STEP], definition, of_view)
            rows += len(part.positions)
            yield
            _feed(sketch.update, view, form.source, part.columns)
        yield
        self.without_device[view] = len(accepted) - rows
        if rows:
            body, snapshot = sketch.to_bytes(), sketch.snapshot()
            self.derived[view] = Post(view.id, form.source, body, snapshot=snapshot)


def _undated(stream: Stream, source: str, columns: Columns) -> int:
    """Return the rows outside the years 1990 to 2100, or 0 where all rows of the source are, as in
    a simulation.
    """
    unit = stream.recipe.params.time_unit
    found = count_undated(unit, columns.times)
    if found < len(columns.times):
        return found
    newest = stream.posted(source).newest
    return found if newest is not None and dated(unit, newest) else 0


def _disagreeing(before: Snapshot, taken: Snapshot, columns: Columns) -> int:
    found = within(columns.ids, columns.weights, columns.times, columns.values)
    if isinstance(before, Rowed) and isinstance(taken, Rowed):
        found += between(before.identified, taken.identified)
    return found


def count(
    batch: Batch, site: Site, interval: Interval, request: bytes
) -> tuple[Int8Array, Post | None, Sketch | None]:
    """Add rows to a source's present counts, in a family that counts per source.

    Args:
        batch: the rows.
        site: the source's present counts. They do not change.
        interval: the row numbers' interval.
        request: the request's SHA-256.

    Returns:
        The status of each row, the post of the new state, and its sketch. None where there is
        nothing to count.
    """
    statuses = np.full(batch.rows, REJECTED, dtype=np.int8)
    if not len(batch.positions):
        return statuses, None, None
    keys, times, weights = HashedKeys(batch.columns.ids), batch.columns.times, batch.columns.weights
    name = {"source": site.source, "epoch": site.epoch}
    sketch = site.sketch.copy()
    statuses[batch.positions] = sketch.verdicts(keys, times, weights, **name)
    sketch.update(keys, times, weights, **name)
    post = Post(
        site.stream.id, site.source, sketch.to_bytes(), interval=interval, request=request,
        snapshot=sketch.snapshot(),
    )  # fmt: skip
    return statuses, post, sketch


def build(
    stream: Stream, source: str, columns: Columns, more: Mapping[str, Any] | None = None
) -> Sketch:
    """Return the complete sketch for these observations, equal to the sketch from a sensor that has
    seen only them.

    Elements that have numbers are named by the source and their number. ``more`` are further
    keywords for ``update``.
    """
    sketch = stream.recipe.empty()
    _feed(sketch.update, stream, source, columns, more)
    return sketch


def _feed(
    method: Callable[..., Any],
    stream: Stream,
    source: str,
    columns: Columns,
    more: Mapping[str, Any] | None = None,
) -> Any:
    values, weights, times, ids = columns
    read = stream.recipe.kind.input
    weighed = () if read.weight_bound is None else (weights,)
    if read.named_by == "ids":
        return method(values, *weighed, times, ids, **(more or {}))
    return method(values, *weighed, times, ids, source=source)
