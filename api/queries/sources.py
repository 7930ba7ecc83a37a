"""Sketches by source, and the join of several streams, for queries about them.

A request to one stream reads a sketch per source. A request to several streams reads each stream's
join, and a set names streams. Row counts decide whether a request costs too much, before a row is
read. Several streams are queried as one if they may be joined.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from api.errors import Fault, IncompatibleStreamsError, InvalidRequestError
from api.queries.limits import MAX_WORK_S, refusal
from api.queries.requests import Query
from api.service.aggregator import Aggregator
from api.service.budget import Memory
from api.service.source_stats import Sender
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.decay import Decay
from decaysketch.families import Recipe
from decaysketch.sources import CoverageView, SourceSet
from decaysketch.sources.view import MATCH_ROW_S

__all__ = [
    "MOST_SOURCES",
    "Asked",
    "Joins",
    "SourceSets",
    "check_work",
    "common_recipe",
    "settle_of",
    "usual_settle_s",
]

MOST_SOURCES = 1000
"""Maximum sources that one request may read."""


@dataclass(frozen=True, eq=False)
class Asked:
    """The data that a query reads.

    Attributes:
        sources: the sketches.
        without_silence: skip the spells in which a source heard nothing.
        values_from: the source whose values are read. None: that of the latest duplicate.
        digests: names and sketch digests.
    """

    sources: SourceSet
    without_silence: bool
    values_from: str | None
    digests: tuple[str, ...]

    def at(self, decay: Decay | None, now: int) -> CoverageView:
        """Return the view at a time."""
        return self.sources.at(
            decay, now, without_silence=self.without_silence, values_from=self.values_from
        )


class SourceSets:
    """The sketches by source that the queries in one request read.

    Args:
        streams: one, or those whose names the sets have.
        wanted: sources in one stream. None: all that are not revoked.
        aggregator: the streams' owner.
    """

    def __init__(
        self, streams: Sequence[Stream], wanted: Collection[str] | None, aggregator: Aggregator
    ) -> None:
        self._streams = streams
        self._wanted = wanted
        self._aggregator = aggregator
        self._read: Mapping[str, Snapshot] | None = None
        self._sets: dict[tuple[object, ...], SourceSet] = {}
        self._asked: dict[tuple[object, ...], Asked] = {}

    @property
    def rows(self) -> int:
        """Rows in the sketches that were read."""
        return sum(map(len, self._read.values())) if self._read is not None else 0

    def asked(self, query: Query) -> Asked:
        """Return the sketches that a query reads.

        Raises:
            ParameterError: the guard, the settling time, the family or the source of values is not
                possible.
            InvalidRequestError: too many sources or rows, or ids that are bound to their sources.
            UnknownSourceError: nothing came from a source, or it is revoked.
        """
        key = (query.guard, query.settle, query.start is None)
        if key not in self._sets:
            settle = query.settle
            if settle is None and len(self._streams) == 1 and query.start is None:
                settle = settle_of(self._streams[0], self._snapshots, self._aggregator)
            self._sets[key] = SourceSet(
                self._snapshots, guard=query.guard, settle=settle, from_level=self._from_level
            )
        sources, view = self._sets[key], (query.without_silence, query.values_from)
        if query.values_from is not None:
            sources.index(query.values_from, field="values_from")
        if (*key, *view) not in self._asked:
            digests = [f"{name} {each.digest}" for name, each in sorted(self._snapshots.items())]
            of_set = f"{sources.settle} {self._from_level}"
            self._asked[*key, *view] = Asked(sources, *view, (of_set, *digests))
        return self._asked[*key, *view]

    @property
    def _from_level(self) -> int:
        return max(stream.row.from_level for stream in self._streams)

    @property
    def _snapshots(self) -> Mapping[str, Snapshot]:
        if self._read is None:
            self._read = self._of_streams() if len(self._streams) > 1 else self._of_sources()
            self._aggregator.memory.reading.make_room(self.rows)
        return self._read

    def _of_sources(self) -> dict[str, Snapshot]:
        (stream,) = self._streams
        check_rows(stream, self._wanted)
        return stream.snapshots(self._wanted)

    def _of_streams(self) -> dict[str, Snapshot]:
        for stream in self._streams:
            stream.check_comparable()
        rows = sum(stream.joined_rows for stream in self._streams)
        check_work(rows * MATCH_ROW_S, rows, len(self._streams))
        return {stream.name: stream.snapshot(self._wanted) for stream in self._streams}


def check_rows(stream: Stream, wanted: Collection[str] | None) -> None:
    """Reject sources that take too long to match, by their row counts.

    Raises:
        InvalidRequestError: they do, or there is no source, or there are too many.
    """
    names = [name for name in stream.source_names if wanted is None or name in wanted]
    held = (stream.source(name) for name in names)
    rows = sum(each[0].counted_rows for each in held if each is not None)
    check_count(len(names) or 1)
    check_work(rows * MATCH_ROW_S, rows, len(names))


def check_count(count: int) -> None:
    """Reject no sources, and too many."""
    if not 0 < count <= MOST_SOURCES:
        reason = f"{count} sources would be read; expected 1 to {MOST_SOURCES}: select sources"
        raise refusal([Fault(field="source", reason=reason, value=count)])


def check_work(work_s: float, rows: int, count: int) -> None:
    """Reject work that takes longer than ``MAX_WORK_S``."""
    if work_s > MAX_WORK_S:
        reason = (
            f"takes about {work_s:.3g} s of processor time for {rows} rows of {count} sources; at "
            f"most {MAX_WORK_S:g} s are allowed: select fewer sources"
        )
        raise refusal([Fault(field="source", reason=reason, expected=MAX_WORK_S)])


def settle_of(stream: Stream, names: Collection[str], aggregator: Aggregator) -> int:
    """Return the usual settling time, in the stream's unit. 0 if it has no clock."""
    senders = aggregator.senders.of_stream(stream.id)
    seen = [sender for name, sender in senders.items() if name in names]
    size = NANOSECONDS.get(stream.recipe.params.time_unit)
    return 0 if size is None else int(usual_settle_s(seen, aggregator.now_us()) * 1e9 / size)


def usual_settle_s(seen: list[Sender], now_us: int) -> float:
    """Return the usual time after a message until every source that is not silent has posted it:
    the largest gap between posts, and how much later than the least late source one is. 0 until the
    gaps of a source are known: a log that is posted at once is as late as it is old.
    """
    posting = [each for each in seen if each.is_silent(now_us) is False]
    gaps = [each.gap_s for each in posting if each.gap_s is not None]
    late = [each.latest_late_s for each in posting if each.latest_late_s is not None]
    return max(gaps, default=0.0) + (max(late) - min(late) if late else 0.0)


def common_recipe(streams: Sequence[Stream]) -> Recipe:
    """Return the streams' common sketch configuration, except for the capacity.

    Raises:
        IncompatibleStreamsError: a stream that cannot be joined with the first one, and their
            differences.
    """
    first, *others = streams
    for other in others:
        if different := first.recipe.differences(other.recipe):
            raise IncompatibleStreamsError(first.name, other.name, different)
    recipe: Recipe = min((each.recipe for each in streams), key=lambda r: r.params.capacity)
    return recipe


class Joins:
    """A cache of joins of sketches from several streams. Thread-safe.

    A join depends only on the joined sketches, so their digests are its key. A repeated query also
    finds the cached parts of its result that depend on the sketch alone.

    Args:
        kept: the number of joins to keep.
        memory: counts their rows.
    """

    def __init__(self, kept: int, memory: Memory | None = None) -> None:
        self._kept = kept
        self._memory = memory or Memory()
        self._joins: OrderedDict[tuple[str, ...], _Join] = OrderedDict()
        self._lock = threading.Lock()

    def snapshot(self, streams: Sequence[Stream], sources: Collection[str] | None) -> Snapshot:
        """Return the join of all sources, or of some, for several streams that
        :func:`common_recipe` has checked.

        Raises:
            UnknownSourceError: nothing came from a source in ``sources`` to one stream.
            InvalidRequestError: they hold more rows together than one request may read.
            RowsAskedError: other queries leave no space.
        """
        reading = self._memory.reading
        together = sum(stream.joined_rows for stream in streams)
        if together > reading.limit:
            raise InvalidRequestError(
                f"the streams hold {together} rows together; at most {reading.limit} are read by "
                "one request (max_read_rows)",
                [Fault(field="streams", reason="rows", value=together, expected=reading.limit)],
            )
        parts = [stream.snapshot(sources) for stream in streams]
        key = tuple(sorted({part.digest for part in parts}))
        with self._lock:
            known = self._joins.get(key)
            if known is not None:
                self._joins.move_to_end(key)
        if known is not None:
            reading.asked(known)
            return known.sketch
        rows = sum(map(len, parts))
        reading.make_room(rows)
        with self._memory.merging(rows):
            joined = common_recipe(streams).join(parts)
        made = _Join(reading.track(joined, len(joined)), key, self)
        with self._lock:
            self._joins[key] = made
            if len(self._joins) > self._kept:
                self._joins.popitem(last=False)
        reading.keep(made, len(joined))
        return joined

    def forget(self, key: tuple[str, ...]) -> None:
        """Release a join."""
        with self._lock:
            self._joins.pop(key, None)


@dataclass(eq=False)
class _Join:
    sketch: Snapshot
    key: tuple[str, ...]
    joins: Joins

    def forget(self) -> None:
        self.joins.forget(self.key)
