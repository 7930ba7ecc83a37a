"""A body's rows on their way into one stream: read, check, sketch.

The other two stages, commit and apply, are in :mod:`api.service`.

**Times that are no dates in the stream's unit are rejected**: a stream with times in two units
answers no query. In a new stream, few such times are enough. In a stream that already has dates,
nearly all times must be such, so that a device without a clock does not block others. A stream that
counts from its own beginning accepts all times: after a week its milliseconds would be dates in
seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from api.errors import Fault, InvalidRequestError, TooManyRowsError
from api.ingest.arrow import read_arrow
from api.ingest.json_rows import json_steps, line_steps
from api.journal.log import Interval, Post
from api.service.local_sources import Site
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.contract.snapshot import Rowed
from decaysketch.core.duplicates import between, joined, replaced_between, within
from decaysketch.core.hashing import HashedKeys
from decaysketch.core.plausible_times import dated, doubt, in_another_unit
from decaysketch.core.row_check import Refusal, Verdict, count_undated
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.families import Sketch
from decaysketch.ingest.columns import (
    INT64_LIMIT,
    Batch,
    Columns,
    Form,
    check,
    of_devices,
    points_to_columns,
    refuse_new_strata,
)
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError, Steps

__all__ = [
    "READERS",
    "REJECTED",
    "Ingestion",
    "ReadSeries",
    "Reader",
    "SeriesIngestion",
    "build",
    "count",
    "read_series",
    "refuse_other_unit",
]

Reader = Callable[[bytes, Form], Batch | Steps[Batch]]
"""Reads a body. A slow reader does it in steps."""

#: Body readers by media type.
READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "application/json": json_steps,
        "application/x-ndjson": line_steps,
        "application/vnd.apache.arrow.stream": read_arrow,
    }
)
REJECTED = len(Verdict)  # the code of a row that was rejected

_ROWS_A_STEP = 1 << 12  # of a derived stream: about 10 ms where names are long
_OF = 100  # observations of a post, at either end one may have a clock that says anything

Int8Array = npt.NDArray[np.int8]


@dataclass(eq=False)
class Ingestion:
    """A body's rows on their way into one stream, and into its derived streams.

    Args:
        stream: the destination.
        reader: reads the body. A reader in READERS, or the reader for a protocol. None: another
            stage reads it.
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
    """

    stream: Stream
    reader: Reader | None
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

    def steps(self, body: bytes) -> Steps[None]:
        """Read a body, check its rows, and build the sketches of the accepted ones, in steps.

        Raises:
            InvalidRequestError: the body cannot be read at all.
            TooManyRowsError: more rows than one post may have.
            ServiceError: the rejection by ``check_times``.
        """
        yield from self.check(body)
        if len(self.batch.positions):
            yield
            yield from self._sketch()
            for view in self.views:
                yield from self._derive(view)
        self.batch.drop_read()

    def check(self, body: bytes) -> Steps[None]:
        """Read a body and check its rows, in steps. Raises likewise."""
        found = self.read(body)
        batch = found if isinstance(found, Batch) else (yield from found)
        yield
        self.batch = check(batch, self.form)
        if self.stream.recipe.params.strata:
            refuse_new_strata(batch, self.form, self.stream.strata)
        self.statuses = np.full(self.batch.rows, REJECTED, dtype=np.int8)
        if self.check_times is not None:
            self.check_times(self.batch.columns.times)

    def read(self, body: bytes) -> Batch | Steps[Batch]:
        """Return the body's rows."""
        assert self.reader is not None
        return self.reader(body, self.form)

    def _sketch(self) -> Steps[None]:
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
        if not self.batch.polled:
            self.disagreeing = _disagreeing(before, snapshot, columns)
            self.joined = joined(columns.ids, columns.weights, columns.times)

    def _derive(self, view: Stream) -> Steps[None]:
        """Sketch the rows for a derived stream, ``_ROWS_A_STEP`` at a time. O(rows)."""
        form, accepted = self.form, len(self.batch.positions)
        of_view = Form(
            view.recipe, form.source, form.latest, form.max_rows, view.row.bind_keys, form.lead
        )
        sketch = view.recipe.empty()
        rows = 0
        for begin in range(0, accepted, _ROWS_A_STEP):
            yield
            some = np.arange(begin, min(begin + _ROWS_A_STEP, accepted))
            part = of_devices(self.batch, some, view.view, of_view)
            rows += len(part.positions)
            yield
            _feed(sketch.update, view, form.source, part.columns)
        yield
        self.without_device[view] = accepted - rows
        if rows:
            body, snapshot = sketch.to_bytes(), sketch.snapshot()
            self.derived[view] = Post(view.id, form.source, body, snapshot=snapshot)


@dataclass(eq=False, kw_only=True)
class SeriesIngestion(Ingestion):
    """The same for time series, by the stream's mappings, for every protocol.

    :func:`read_series` reads the body, once for all streams.

    Args:
        unit: the time unit in the body.
        check_unit: raises where a body's times are unlikely in this unit. None: no check.
        place: the name for a place in the body, such as "line".
        polled: whether one reading per period stays, by the stream's mappings.

    Attributes:
        points: the readings. ``points.told`` has the body's other content.
    """

    reader: Reader | None = None
    unit: str
    check_unit: Callable[[npt.NDArray[np.int64]], None] | None
    place: str
    polled: bool
    points: Points = field(default_factory=Points)

    def read(self, body: bytes) -> Batch:
        """Return the readings' columns.

        Raises:
            TooManyRowsError: more readings than one post may have.
            InvalidRequestError: times are dates in another unit.
        """
        if len(self.points) > self.form.max_rows:
            raise TooManyRowsError(len(self.points), self.form.max_rows)
        if self.check_unit is not None:
            self.check_unit(self._stamps())
        batch = points_to_columns(self.points, self.form)
        batch.polled = self.polled
        return batch

    def _stamps(self) -> npt.NDArray[np.int64]:
        """Return the times that fit in 64 bits, in the body's unit."""
        length_ns, times_ns = NANOSECONDS[self.unit], self.points.columns().times_ns
        if isinstance(times_ns, np.ndarray):
            return times_ns // length_ns
        stamps = [time // length_ns for time in times_ns]
        sound = [stamp for stamp in stamps if -INT64_LIMIT <= stamp < INT64_LIMIT]
        return np.array(sound, dtype=np.int64)

    def count_rejected(self) -> int:
        """Return the number of points, lines or samples that the parser rejected, or with a row
        that the stream rejected.
        """
        points = self.points
        places = {(points.places[each.row], points.times_ns[each.row]) for each in
                  self.batch.refusals}  # fmt: skip
        return points.told.refusals + len(places)

    def rejected(self, most: int) -> list[str]:
        """Return the rejections by the parser and by the stream, with place and reason: the first
        ``most`` from each.
        """
        points = self.points
        return [f"{where}: {reason}" for where, reason in points.told.refused[:most]] + [
            f"{self.place} {points.places[each.row]} {points.fields[points.codes[each.row]]}: "
            f"{each.field} {each.reason}{self._unit_of(each)}"
            for each in self.batch.refusals[:most]
        ]

    def _unit_of(self, refusal: Refusal) -> str:
        """Return an addition for a rejected time that would be a date in a unit other than the
        body's.
        """
        if refusal.field != "time":
            return ""
        stamp = self.points.times_ns[refusal.row] // NANOSECONDS[self.unit]
        other = in_another_unit(self.unit, stamp)
        return f"{other}, and this request says {self.unit}" if other else ""


ReadSeries = Callable[[bytes], Steps[Sequence[Points]]]
"""Reads a body, and returns its readings for each stream. It may stop after so many."""


def read_series(
    ingestions: Sequence[SeriesIngestion], body: bytes, read: ReadSeries
) -> Steps[None]:
    """Read a body once for several streams, in steps.

    Raises:
        InvalidRequestError: it cannot be read.
    """
    try:
        found = yield from read(body)
    except RefusedError as error:
        raise InvalidRequestError(str(error)) from None
    for each, points in zip(ingestions, found, strict=True):
        each.points = points
    yield


def refuse_other_unit(
    stream: Stream,
    unit: str,
    times: npt.NDArray[np.int64],
    *,
    cure: str = "check_units=false, which takes them as they are",
) -> None:
    """Reject observations with times that are unlikely in the unit, by the module's rule. O(times).
    A suspicious post also takes the time to join the stream's content.

    Args:
        stream: their destination.
        unit: the declared unit of the times.
        times: the observations' times.
        cure: the remedy that the message names.

    Raises:
        InvalidRequestError: they are dates in another unit.
    """
    if not len(times) or not count_undated(unit, times):
        return
    few = (len(times) - 1) // _OF, len(times) - 1 - len(times) // _OF
    oldest, newest = np.partition(times, few)[[*few]].tolist()
    if (found := doubt(unit, oldest, newest)) is None:
        return
    if (held := stream.snapshot().newest) is not None:
        nearly_all = doubt(unit, oldest, oldest) and doubt(unit, newest, newest)
        if not nearly_all or not dated(stream.recipe.params.time_unit, held):
            return
    expected = f"times in {unit}, or {cure}"
    raise InvalidRequestError(
        f"times are probably not in {unit}: {found}; expected {expected}",
        [Fault(field="time", reason=str(found), value=found.time, expected=expected)],
    )


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
