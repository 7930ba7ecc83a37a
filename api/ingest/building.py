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
from dataclasses import dataclass
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
    drop_read,
    of_devices,
    points_to_columns,
    refuse_new_strata,
)
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import Steps

__all__ = [
    "READERS",
    "REJECTED",
    "UNCHECKED",
    "Ingestion",
    "Reader",
    "SeriesIngestion",
    "build",
    "count",
    "read_body",
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
#: The remedy that every request has for times in a suspicious unit.
UNCHECKED = "check_units=false to accept them unchanged"

REJECTED = len(Verdict)  # the code of a row that was rejected

_ROWS_A_STEP = 1 << 12  # of a derived stream: about 10 ms where names are long
_OF = 100  # observations of a post, at either end one may have a clock that says anything


def read_body(body: bytes, *, reader: Reader, form: Form) -> Steps[list[Batch]]:
    """Read a body for one stream, in steps.

    Raises:
        InvalidRequestError: the body cannot be read at all.
        TooManyRowsError: more rows than one post may have.
    """
    found = reader(body, form)
    return [found if isinstance(found, Batch) else (yield from found)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Ingestion:
    """How rows come into one stream, and into its derived streams. It keeps nothing of a body.

    Args:
        stream: the destination.
        form: the required row form.
        views: the derived streams that the stream feeds.
        check_times: raises the body's rejection for the times of its sound rows.
        polled: whether rows stand for periods, of which each keeps one row: others with the same
            time may have other values.
    """

    stream: Stream
    form: Form
    views: Sequence[Stream] = ()
    check_times: Callable[[npt.NDArray[np.int64]], None] | None = None
    polled: bool = False

    def posts(self, batch: Batch) -> Steps[dict[Stream, Post]]:
        """Check a body's rows, and sketch the accepted ones, in steps.

        Returns:
            The posts to the stream and to its derived streams, except those without rows.

        Raises:
            ServiceError: the rejection by ``check_times``.
        """
        posts: dict[Stream, Post] = {}
        yield from self.check(batch)
        if len(batch.positions):
            yield
            posts[self.stream] = yield from self._sketch(batch)
            for view in self.views:
                derived = yield from self._derive(batch, view)
                if derived is not None:
                    posts[view] = derived
        drop_read(batch)
        return posts

    def check(self, batch: Batch) -> Steps[None]:
        """Check a body's rows, in steps. Raises likewise."""
        yield
        check(batch, self.form)
        if self.stream.recipe.params.strata:
            refuse_new_strata(batch, self.form, self.stream.strata)
        batch.statuses = np.full(batch.rows, REJECTED, dtype=np.int8)
        if self.check_times is not None:
            self.check_times(batch.columns.times)

    def _sketch(self, batch: Batch) -> Steps[Post]:
        """Sketch the accepted rows, and compare them with the source's earlier posts."""
        stream, columns, source = self.stream, batch.columns, self.form.source
        more = batch.more
        found = _feed(partial(stream.compared, source), stream, source, columns, more)
        batch.statuses[batch.positions] = found.verdicts
        yield
        sketch = build(stream, source, columns, more)
        yield
        snapshot = sketch.snapshot()
        post = Post(stream.id, source, sketch.to_bytes(), snapshot=snapshot)
        batch.undated = _undated(stream, source, columns)
        kind = stream.recipe.kind.input
        if kind.named_by != "ids" or kind.series or not found.shares:
            return post
        before = stream.posted(source)
        batch.replaced = sketch.replaced
        if isinstance(before, Rowed) and isinstance(snapshot, Rowed):
            unit = stream.recipe.params.time_unit
            batch.replaced += replaced_between(before.identified, snapshot.identified, unit)
        if not self.polled:
            batch.disagreeing = _disagreeing(before, snapshot, columns)
            batch.joined = joined(columns.ids, columns.weights, columns.times)
        return post

    def _derive(self, batch: Batch, view: Stream) -> Steps[Post | None]:
        """Sketch the rows for a derived stream, ``_ROWS_A_STEP`` at a time. O(rows)."""
        form, accepted = self.form, len(batch.positions)
        of_view = Form(
            view.recipe, form.source, form.latest, form.max_rows, view.row.bind_keys, form.lead
        )
        sketch = view.recipe.empty()
        rows = 0
        for begin in range(0, accepted, _ROWS_A_STEP):
            yield
            some = np.arange(begin, min(begin + _ROWS_A_STEP, accepted))
            have, columns = of_devices(batch, some, view.view, of_view)
            rows += len(have)
            yield
            _feed(sketch.update, view, form.source, columns)
        yield
        batch.without_device[view.name] = accepted - rows
        if not rows:
            return None
        return Post(view.id, form.source, sketch.to_bytes(), snapshot=sketch.snapshot())


@dataclass(frozen=True, eq=False, kw_only=True)
class SeriesIngestion(Ingestion):
    """The same for time series, by the stream's mappings, for every protocol.

    Args:
        unit: the time unit in the body.
        check_unit: raises where a body's times are unlikely in this unit. None: no check.
        place: the name for a place in the body, such as "line".
    """

    unit: str
    check_unit: Callable[[npt.NDArray[np.int64]], None] | None
    place: str

    def check(self, batch: Batch) -> Steps[None]:
        """Convert readings to the stream's unit, and check them, in steps.

        Raises:
            TooManyRowsError: more readings than one post may have.
            InvalidRequestError: times are dates in another unit.
        """
        assert isinstance(batch, Points)
        if batch.rows > self.form.max_rows:
            raise TooManyRowsError(batch.rows, self.form.max_rows)
        if self.check_unit is not None:
            self.check_unit(self._stamps(batch))
        yield from super().check(points_to_columns(batch, self.form))

    def _stamps(self, points: Points) -> npt.NDArray[np.int64]:
        """Return the times that fit in 64 bits, in the body's unit."""
        length_ns, times_ns = NANOSECONDS[self.unit], points.readings().times_ns
        if isinstance(times_ns, np.ndarray):
            return times_ns // length_ns
        stamps = [time // length_ns for time in times_ns]
        sound = [stamp for stamp in stamps if -INT64_LIMIT <= stamp < INT64_LIMIT]
        return np.array(sound, dtype=np.int64)

    def count_rejected(self, points: Points) -> int:
        """Return the number of points, lines or samples that the parser rejected, or with a row
        that the stream rejected.
        """
        if not points.refusals:
            return points.told.refusals
        lines, times_ns = points.listed("places"), points.listed("times_ns")
        rejected = {(lines[each.row], times_ns[each.row]) for each in points.refusals}
        return points.told.refusals + len(rejected)

    def rejected(self, points: Points, most: int) -> list[str]:
        """Return the rejections by the parser and by the stream, with place and reason: the first
        ``most`` from each.
        """
        return [f"{where}: {reason}" for where, reason in points.told.refused[:most]] + [
            self._rejection(points, each) for each in points.refusals[:most]
        ]

    def _rejection(self, points: Points, refusal: Refusal) -> str:
        """Return a row's rejection. A rejected time may be a date in another unit than the
        body's.
        """
        number, code = points.listed("places")[refusal.row], points.listed("codes")[refusal.row]
        where, note = f"{self.place} {number} {points.fields[code]}", ""
        if refusal.field == "time":
            stamp = points.listed("times_ns")[refusal.row] // NANOSECONDS[self.unit]
            other = in_another_unit(self.unit, stamp)
            note = f"{other}, and this request says {self.unit}" if other else ""
        return f"{where}: {refusal.field} {refusal.reason}{note}"


def refuse_other_unit(
    stream: Stream,
    unit: str,
    times: npt.NDArray[np.int64],
    *,
    cure: str = UNCHECKED,
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
) -> tuple[Post | None, Sketch | None]:
    """Add rows to a source's present counts, in a family that counts per source.

    Args:
        batch: the rows. They receive their statuses.
        site: the source's present counts. They do not change.
        interval: the row numbers' interval.
        request: the request's SHA-256.

    Returns:
        The post of the new state, and its sketch. None where there is nothing to count.
    """
    batch.statuses = np.full(batch.rows, REJECTED, dtype=np.int8)
    if not len(batch.positions):
        return None, None
    keys, times, weights = HashedKeys(batch.columns.ids), batch.columns.times, batch.columns.weights
    name = {"source": site.source, "epoch": site.epoch}
    sketch = site.sketch.copy()
    batch.statuses[batch.positions] = sketch.verdicts(keys, times, weights, **name)
    sketch.update(keys, times, weights, **name)
    post = Post(
        site.stream.id, site.source, sketch.to_bytes(), interval=interval, request=request,
        snapshot=sketch.snapshot(),
    )  # fmt: skip
    return post, sketch


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
