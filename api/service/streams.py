"""All streams in the memory of this process: a merged sketch per source, and their join.

The state depends only on the set of acknowledged posts, not on their order and repetition. Reading
the journal gives the same state. Each source is stored separately, because a joined sketch cannot
be removed again, and an operator may have to revoke a source.

Sketches here are immutable ``Snapshot`` objects, and merging makes new ones. So a reader can
continue to read an old one. One thread, the event loop's, calls the methods that change a stream.
Reading and merging may happen on any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from api.errors import (
    CapacityTooSmallError,
    Fault,
    InvalidRequestError,
    ObservationsOnlyError,
    RevokedSourceError,
    TooManyStrataError,
    UnknownSourceError,
    UnknownStreamError,
)
from api.journal.log import Post, Revocation, StreamRow, Totals
from api.service.budget import BUFFER_ROWS, ROW_BYTES, Memory, Tally
from api.service.join_check import Accepted, LeftOut
from api.service.merging import MergeBuffer
from api.service.source_stats import Notes
from decaysketch import Snapshot
from decaysketch.core.params import Form
from decaysketch.core.row_check import Compared
from decaysketch.core.strata import Stratum, told
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.families import Recipe, recipe_from_dict
from decaysketch.ingest.formats import Mappings, mappings_of
from decaysketch.ingest.series import SeriesIndex
from decaysketch.ingest.views import ViewOf

__all__ = ["Scoped", "SourceInfo", "Stream", "Streams", "latest_time", "table_rows"]

_SCOPES_KEPT = 256
_JOINS_KEPT = 16  # recently used joins of some sources


@dataclass(slots=True)
class _Source:
    buffer: MergeBuffer
    totals: Totals = field(default_factory=Totals)
    upto: int = 0  # its snapshot held the rows up to here
    gathered: MergeBuffer | None = None  # see Stream.gather_of
    generation: int = 0  # rises with each post
    strata: set[Stratum] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Information about one source of a stream."""

    source: str
    digest: str
    rows: int
    totals: Totals


class Stream:
    """One stream: its sketch configuration and its sources' posts.

    Args:
        row: its database row.
        memory: where its rows are counted.

    Attributes:
        accepted: the joinable content, where two sketches of the stream may contradict each other.
        replacing: per source, the rows that replaced another source's rows at the last count. None:
            not counted yet, or there are too many rows.
        disagreeing: how many observations shared identity and time with another one and had another
            value, since this process started, or since the stream's mappings changed.
        missed, missed_for: for a derived stream, how many rows of its stream it did not accept
            since this process started, and the reason for the last ones.
        notes: counts of other suspicious readings, likewise.
        last_received_us: when the last post came, from any source. 0: there was none.

    Raises:
        DecaySketchError: the sketch configuration cannot be read.
    """

    def __init__(self, row: StreamRow, memory: Memory | None = None) -> None:
        self.row = row
        self.id = row.id
        self.name = row.name
        self.recipe: Recipe = recipe_from_dict(dict(row.recipe), id_key=row.id_key)
        self._memory = memory or Memory()
        self._tally = Tally(self._memory.resident)
        self._tally.change(table_rows(self.recipe))
        conflicts = self.recipe.kind.promises.conflicts
        self.accepted = Accepted(self.recipe) if conflicts else None
        self._left_out: list[LeftOut] = []
        self._sources: dict[str, _Source] = {}
        self.strata: set[Stratum] = set()
        self._source_names: list[str] = []  # in order
        self._totals = Totals()
        self._all = self._new_buffer()
        self._large: set[MergeBuffer] = set()  # of single sources, to be merged
        self._revoked: dict[str, Revocation] = {}
        self._partial_joins: dict[tuple[tuple[str, int], ...], _Join] = {}
        self._joining = threading.Lock()  # held for a moment
        self._making = threading.Lock()  # held for as long as a join of some sources takes
        self._gathered: MergeBuffer | None = None
        self.replacing: Mapping[str, int] | None = None
        self.disagreeing = 0
        self.missed = 0
        self.missed_for = ""
        self.notes = Notes()
        self.last_received_us = 0
        self._mappings: tuple[Mapping[str, Any] | None, Mappings | None] = (None, None)
        self._indexed: Mappings | None = None  # of these mappings are:
        self._indexes: Mapping[str, SeriesIndex[Any]] = {}
        self.generation = 0
        """Changes whenever the stream's described state may have changed."""

    def told(self, row: StreamRow) -> None:
        """Set the variable attributes from the row."""
        if (row.ingest, row.about, row.standing) == (
            self.row.ingest, self.row.about, self.row.standing
        ):  # fmt: skip
            return
        if row.ingest != self.row.ingest:
            self.disagreeing = 0
            self.notes = Notes()
        self.row = row
        self.generation += 1

    @property
    def mappings(self) -> Mappings | None:
        """Return its mappings from other formats, or None if it has none. They are validated
        once, which takes milliseconds at the limit ``max_query_bytes``.
        """
        ingest, mappings = self._mappings
        if ingest is not self.row.ingest:
            mappings = mappings_of(self.row.ingest)
            self._mappings = self.row.ingest, mappings
        return mappings

    @cached_property
    def view(self) -> ViewOf:
        """Return the definition of a derived stream."""
        return ViewOf.from_dict(self.row.view)

    def series_index(self, format: str) -> SeriesIndex[Any] | None:
        """Return its mappings for a time-series format, compiled once. None: there are none."""
        mappings = self.mappings
        if mappings is not self._indexed:
            types = getattr(self.recipe.params, "columns", ())
            self._indexes = {} if mappings is None else mappings.indexes(types)
            self._indexed = mappings
        return self._indexes.get(format)

    @property
    def replaced(self) -> int:
        """Return how many readings a later reading with the same id replaced, since this process
        started, over all protocols. O(1) after :meth:`snapshot`.
        """
        return self._all.replaced

    def decode(self, body: bytes) -> Snapshot:
        """Return the sketch in a body, checked against this stream.

        Raises:
            CorruptSketchError: not bytes that an honest builder could have written.
            IncompatibleSketchError: it has another family or other parameters.
            CapacityTooSmallError: coarser than this stream.
        """
        sketch = self.recipe.decode_snapshot(body)
        ours, theirs = self.recipe.params.capacity, sketch.params.capacity
        if theirs < ours:
            raise CapacityTooSmallError(self.name, ours, theirs)
        return sketch

    def decode_post(self, body: bytes) -> Snapshot:
        """Return the same for a body that comes from outside.

        Raises:
            ObservationsOnlyError: the ids are keyed by a secret that only this service has.
        """
        if self.row.id_key is not None:
            raise ObservationsOnlyError(self.name)
        return self.decode(body)

    def peek_post(self, body: bytes) -> int:
        """Return how many rows a body from outside declares, and its overhead as rows. Decodes no
        row.

        Raises:
            ObservationsOnlyError: see :meth:`decode_post`.
            CorruptSketchError: not the head of a sketch, or the row count is impossible.
            IncompatibleSketchError: a sketch in another family.
        """
        if self.row.id_key is not None:
            raise ObservationsOnlyError(self.name)
        return self.recipe.peek(body).cost

    # --------------------------------------------------------------------- events from the journal

    def check_strata(self, post: Snapshot) -> None:
        """Reject a post with a new stratum if the stream has no space for it.

        Raises:
            TooManyStrataError: naming the first new stratum.
        """
        new = [name for name in post.strata if name not in self.strata]
        if not new:
            return
        params: Any = self.recipe.params
        if len(self.strata) + len(new) > params.max_strata:
            name = told(params, new[max(params.max_strata - len(self.strata), 0)])
            raise TooManyStrataError(self.name, name, len(new), params.max_strata)

    def take(self, post: Post, sketch: Snapshot) -> None:
        """Add a journaled post. Nothing is merged yet."""
        source = self._source(post.source)
        if post.seq > source.upto:
            # This may be done twice, should it fail, and is not to be counted so.
            self._add(post.source, source, sketch)
            source.totals = source.totals.plus(post)
            self._totals = self._totals.plus(post)
            self.last_received_us = max(self.last_received_us, post.received_us)

    def load(self, source: str, merged: Snapshot, totals: Totals, upto: int) -> None:
        """Load a snapshot that contains every row from one source up to ``upto``."""
        entry = self._source(source)
        self._totals = self._totals.replaced(entry.totals, totals)
        entry.totals, entry.upto = totals, upto
        self.last_received_us = max(self.last_received_us, totals.last_received_us)
        self._add(source, entry, merged)

    def left_out(self) -> Sequence[LeftOut]:
        """Return the parts added since the last call that contradict earlier content. They are
        not in the stream.
        """
        out, self._left_out = self._left_out, []
        return out

    def holds(self, source: str, seq: int) -> bool:
        """Return whether a loaded snapshot contains this row."""
        entry = self._sources.get(source)
        return entry is not None and seq <= entry.upto

    def apply(self, revocation: Revocation) -> bool:
        """Revoke or admit a source. If the revocation is new, drop the source's posts. Return
        whether it had any.
        """
        known = self._revoked.get(revocation.source)
        self._revoked[revocation.source] = revocation
        unknown = known is None or known.number != revocation.number
        gone = self._sources.pop(revocation.source, None) if unknown else None
        dropped = gone is not None
        if gone is not None:
            del self._source_names[bisect_left(self._source_names, revocation.source)]
            self._memory.sources.change(-1)
            self._totals = Totals()
            for each in self._sources.values():
                self._totals = self._totals.replaced(Totals(), each.totals)
            if gone.buffer is not self._all:
                gone.buffer.discard()
            self._large.discard(gone.buffer)
            if self.accepted is None:
                self._join_again()
            else:  # the join contains the source, so build it again
                parts, out = self.accepted.drop(revocation.source)
                self._left_out += out
                self._join_again(parts)
            with self._joining:
                self._partial_joins.clear()
            self.gather(None)  # some of it may have come from there
            self.strata = set().union(*(each.strata for each in self._sources.values()))
        self.generation += known != revocation
        return dropped

    def gather(self, buffer: MergeBuffer | None) -> MergeBuffer | None:
        """Also put all later posts into this buffer, or into none. Return the previous buffer,
        or None if a source was dropped since.
        """
        before, self._gathered = self._gathered, buffer
        return before

    @property
    def gathered(self) -> MergeBuffer | None:
        """Return the additional buffer."""
        return self._gathered

    def gather_of(self, source: str, buffer: MergeBuffer | None) -> MergeBuffer | None:
        """Also put the posts from one source into this buffer, as :meth:`gather` does for all
        posts.
        """
        entry = self._sources.get(source)
        if entry is None:
            return None
        before, entry.gathered = entry.gathered, buffer
        return before

    def gathered_of(self, source: str) -> MergeBuffer | None:
        """Return a source's additional buffer."""
        entry = self._sources.get(source)
        return None if entry is None else entry.gathered

    def generation_of(self, source: str) -> int:
        """Return a number that rises with each post from a source. -1 if there is none."""
        entry = self._sources.get(source)
        return -1 if entry is None else entry.generation

    def _add(self, name: str, source: _Source, sketch: Snapshot) -> None:
        parts: Sequence[Snapshot] = [sketch]
        if self.accepted is not None:
            parts, out = self.accepted.take(name, sketch)
            self._left_out += out
        for part in parts:
            for gathered in (self._gathered, source.gathered):
                if gathered is not None:
                    gathered.add(part)
            source.buffer.add(part)
            if source.buffer is not self._all:
                self._all.add(part)
                if source.buffer.is_large:
                    self._large.add(source.buffer)
        source.strata.update(sketch.strata)
        self.strata.update(sketch.strata)
        self.generation += 1
        source.generation += 1

    def _source(self, name: str) -> _Source:
        if name not in self._sources:
            # The content of a single source is the stream's content.
            buffer = self._new_buffer() if self._sources else self._all
            if len(self._sources) == 1:
                self._join_again()
            self._sources[name] = _Source(buffer)
            insort(self._source_names, name)
            self._memory.sources.change(1)
        return self._sources[name]

    def _join_again(self, parts: Sequence[Snapshot] | None = None) -> None:
        """Make a separate buffer for the stream, with its sources' content or with these parts."""
        if all(source.buffer is not self._all for source in self._sources.values()):
            self._all.discard()
        self._all = self._new_buffer()
        held = [source.buffer for source in self._sources.values()]
        for part in held if parts is None else parts:
            self._all.add(part)

    def _new_buffer(self) -> MergeBuffer:
        return MergeBuffer(self.recipe, self._memory, self._tally)

    # ----------------------------------------------------------------------------------- memory

    @property
    def rows(self) -> int:
        """Return the counted rows in memory, for every source and for their join."""
        return self._tally.rows

    @property
    def tally(self) -> Tally:
        """Return their tally."""
        return self._tally

    @property
    def joined_rows(self) -> int:
        """Return the row count of the join alone."""
        return self._all.counted_rows

    def held(self, source: str) -> tuple[int, int]:
        """Return the counted rows of a source's merged sketch and of the complete join. In a
        stream with one source, that source's sketch is the join.
        """
        entry = self._sources.get(source)
        own = 0 if entry is None else entry.buffer.counted_rows
        return own, 0 if entry is None and len(self._sources) == 1 else self._all.counted_rows

    def most_growth(self, source: str, rows: int) -> tuple[int, int]:
        """Return a bound on the growth of both if a source sends so many rows."""
        entry = self._sources.get(source)
        if entry is not None:
            return rows, 0 if entry.buffer is self._all else rows
        if not self._sources:
            return rows, 0
        # The first source is the join; with the second one the stream gets a sketch of its own.
        joined = self._all.counted_rows if len(self._sources) == 1 else 0
        return rows + BUFFER_ROWS, rows + joined

    def growth(self, source: str, posts: Sequence[Snapshot]) -> tuple[int, int]:
        """Return how much both grow if a source sends these sketches. O(rows of both)."""
        entry = self._sources.get(source)
        rows = sum(map(len, posts))
        own = self.most_growth(source, rows)[0] if entry is None else entry.buffer.growth(posts)
        if not self._sources or (entry is not None and entry.buffer is self._all):
            return own, 0
        joined = self._all.counted_rows if entry is None and len(self._sources) == 1 else 0
        return own, self._all.growth(posts) + joined

    def settle(self, source: str | None = None) -> None:
        """Merge the waiting sketches of a source and the join, or of all. Return unused space."""
        entry = None if source is None else self._sources.get(source)
        some = {self._all} if entry is None else {self._all, entry.buffer}
        for buffer in self._buffers() if source is None else some:
            buffer.settle()

    def discard(self) -> None:
        """Stop counting its rows: it was deleted."""
        self._tally.change(-table_rows(self.recipe))
        self._memory.sources.change(-len(self._sources))
        for buffer in self._buffers():
            buffer.discard()

    def _buffers(self) -> set[MergeBuffer]:
        return {self._all, *(source.buffer for source in list(self._sources.values()))}

    # ---------------------------------------------------------------------------------- reading

    def admit(self, source: str) -> None:
        """Raise RevokedSourceError if the source is revoked."""
        revocation = self._revoked.get(source)
        if revocation is not None and revocation.active:
            raise RevokedSourceError(self.name, source)

    def revocation(self, source: str) -> int | None:
        """Return the number of a source's last revocation, or None if there was none."""
        revocation = self._revoked.get(source)
        return None if revocation is None else revocation.number

    @property
    def revoked(self) -> list[str]:
        """Return the names of revoked sources, in order."""
        return sorted(name for name, each in self._revoked.items() if each.active)

    def snapshot(self, sources: Collection[str] | None = None) -> Snapshot:
        """Return the join of all sources, or of some. It contains at least all posts added before
        the call.

        Raises:
            UnknownSourceError: nothing came from one source in ``sources``.
        """
        if sources is None:
            return self._all.merged()
        wanted = sorted(set(sources))
        entries = {name: self._sources.get(name) for name in wanted}
        if unknown := [name for name, entry in entries.items() if entry is None]:
            raise UnknownSourceError(self.name, unknown)
        buffers = {name: entry.buffer for name, entry in entries.items() if entry is not None}
        if len(buffers) == 1:
            return buffers[wanted[0]].merged()
        return self._join_of(buffers)

    def posted(self, source: str) -> Snapshot:
        """Return what one source has posted, empty at first. The caller has reserved space for its
        rows among those in flight, so no query can keep a post out.
        """
        entry = self._sources.get(source)
        return (
            self.recipe.empty().snapshot() if entry is None else entry.buffer.merged(has_room=True)
        )

    def compared(self, source: str, /, *columns: Any, **options: Any) -> Compared:
        """Return how a batch compares with what one source has posted, as for :meth:`posted`."""
        entry = self._sources.get(source)
        if entry is None:
            return self.recipe.empty().snapshot().compared(*columns, **options)
        return entry.buffer.compared(*columns, **options)

    def snapshots(self, sources: Collection[str] | None = None) -> dict[str, Snapshot]:
        """Return the sketch of each source by name, without joining them. They cover all sources
        that are not revoked, or some.

        Raises:
            UnknownSourceError: nothing came from one source in ``sources``, or it is revoked.
            InvalidRequestError: the stream binds ids to sources, so no two sources hear one
                message.
        """
        self.check_comparable()
        revoked = set(self.revoked)
        wanted = sorted({*self._sources} - revoked if sources is None else {*sources})
        unknown = [name for name in wanted if name not in self._sources or name in revoked]
        if unknown:
            raise UnknownSourceError(self.name, unknown)
        found = {name: self._sources.get(name) for name in wanted}
        return {name: each.buffer.merged() for name, each in found.items() if each is not None}

    def check_comparable(self) -> None:
        """Reject a stream that binds ids to sources: no two sources hear one message.

        Raises:
            InvalidRequestError: it does.
        """
        if self.row.bind_keys:
            reason = "the stream has `bind_keys`, so no two sources have an id in common"
            raise InvalidRequestError(
                f"the sources of stream {self.name!r} cannot be compared: {reason}",
                [Fault(field="name", reason=reason, value=self.name)],
            )

    def _join_of(self, buffers: Mapping[str, MergeBuffer]) -> Snapshot:
        """Return the join of some sources. The stream keeps a few joins, as long as there is
        space.
        """
        with self._making:
            key = tuple((name, buffer.version()) for name, buffer in buffers.items())
            with self._joining:
                kept = self._partial_joins.get(key)
            if kept is not None:
                self._memory.reading.asked(kept)
                return kept.sketch
            rows = sum(buffer.counted_rows for buffer in buffers.values())
            most = self._memory.reading.limit
            joined = min(rows, self._all.counted_rows)
            self._memory.reading.make_room(min(joined, most))
            sketch = self.recipe.empty()
            with self._memory.merging(rows):
                for buffer in buffers.values():
                    buffer.merge_into(sketch)
                snapshot = sketch.snapshot()
            del sketch
            kept = _Join(self._memory.reading.track(snapshot, len(snapshot)), key, self)
            with self._joining:
                self._partial_joins[key] = kept
                if len(self._partial_joins) > _JOINS_KEPT:
                    self._partial_joins.pop(next(iter(self._partial_joins)))
        self._memory.reading.keep(kept, len(snapshot))
        return snapshot

    def sources(self, after: str = "", limit: int | None = None) -> Iterator[SourceInfo]:
        """Yield information about each source, sorted by name: at most ``limit``, with names
        that come after ``after``. Merges each source's waiting sketches on the way.
        """
        for name in self.source_names_after(after, limit):
            entry = self._sources.get(name)
            if entry is not None:
                yield SourceInfo(name, *entry.buffer.summary(), entry.totals)

    def totals(self) -> Totals:
        """Return the totals over all sources. O(1)."""
        return self._totals

    def summary(self) -> tuple[str, int]:
        """Return the digest and row count of the complete join, with at least all posts added
        before the call. Keeps no snapshot.
        """
        return self._all.summary()

    def to_bytes(self) -> bytes:
        """Return the complete join as encoded bytes, with at least the same posts as in
        :meth:`summary`.
        """
        return self._all.to_bytes()

    @property
    def source_count(self) -> int:
        """Return how many sources have posted."""
        return len(self._sources)

    @property
    def source_names(self) -> list[str]:
        """Return the names of sources that have posted, in no order."""
        return list(self._sources)

    def source_names_after(self, name: str, limit: int | None = None) -> list[str]:
        """Return the names after a given one, in order, at most ``limit``. O(result)."""
        begin = bisect_right(self._source_names, name)
        return self._source_names[begin : None if limit is None else begin + limit]

    def source(self, name: str) -> tuple[MergeBuffer, Totals] | None:
        """Return a source's buffer as it is now. The buffer may grow."""
        entry = self._sources.get(name)
        return None if entry is None else (entry.buffer, entry.totals)

    @property
    def unmerged(self) -> tuple[int, int]:
        """Return how many posts wait to be merged into the join, and how many rows they hold."""
        return self._all.waiting, self._all.waiting_rows

    def waiting(self) -> Iterator[MergeBuffer]:
        """Return the buffers to merge: the stream's own, and the source buffers that have grown
        large since the last call.
        """
        if self._all.waiting:
            yield self._all
        large, self._large = self._large, set()
        yield from large

    def merges(self, buffer: MergeBuffer) -> bool:
        """Return whether the buffer is one that is merged here."""
        return buffer is self._all or any(each.buffer is buffer for each in self._sources.values())

    def postpone(self, buffer: MergeBuffer) -> None:
        """Include the buffer in the next result of :meth:`waiting`."""
        if buffer is not self._all:
            self._large.add(buffer)

    def all_waiting(self) -> Iterator[MergeBuffer]:
        """Yield every buffer with sketches that wait to be merged, large or not."""
        yield from (buffer for buffer in self._buffers() if buffer.waiting)


@dataclass(eq=False)
class _Join:
    """A join of some sources in a stream, by name and version."""

    sketch: Snapshot
    key: tuple[tuple[str, int], ...]
    stream: Stream

    def forget(self) -> None:
        """Release it."""
        with self.stream._joining:
            self.stream._partial_joins.pop(self.key, None)


class Scoped(Protocol):
    """A key, and the stream scope that it permits."""

    @property
    def prefix(self) -> str | None: ...

    @property
    def scope(self) -> tuple[str, ...]: ...

    def sees(self, stream: str) -> bool: ...


class _Seen:
    """The streams in one scope.

    Args:
        sees: whether the scope holds a name.
        streams: all existing streams.

    Attributes:
        streams: by id.
        names: in order.
        rows: in all of them.
    """

    def __init__(self, sees: Callable[[str], bool], streams: Iterable[Stream]) -> None:
        self._sees = sees
        self.streams: dict[int, Stream] = {}
        self.names: list[str] = []
        self.rows = Tally()
        for stream in streams:
            self.add(stream)

    def add(self, stream: Stream) -> None:
        """Add a stream, if the scope holds its name."""
        if self._sees(stream.name):
            self.streams[stream.id] = stream
            insort(self.names, stream.name)
            stream.tally.join(self.rows)

    def remove(self, stream: Stream) -> None:
        """Remove a stream, if it is there."""
        if self.streams.pop(stream.id, None) is not None:
            del self.names[bisect_left(self.names, stream.name)]
            stream.tally.leave(self.rows)

    def close(self) -> None:
        """Remove every stream."""
        for stream in self.streams.values():
            stream.tally.leave(self.rows)


class Streams:
    """Every stream, by name and by id.

    Args:
        memory: where their rows are counted.

    Attributes:
        version: changes when a stream is created or deleted.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._by_id: dict[int, Stream] = {}
        self._by_name: dict[str, Stream] = {}
        self._names: list[str] = []  # in order
        self._views: dict[str, list[Stream]] = {}
        self._scopes: dict[tuple[str, ...], _Seen] = {}  # that were asked for
        self.version = 0

    def open(self, rows: Iterable[StreamRow]) -> dict[int, Stream]:
        """Open these streams, empty, by id. May be called on any thread.

        Raises:
            DecaySketchError: a sketch configuration cannot be read.
        """
        return {row.id: Stream(row, self._memory) for row in rows}

    def replace(
        self,
        rows: Sequence[StreamRow],
        revocations: Iterable[Revocation],
        opened: Mapping[int, Stream],
        among: Collection[int] | None = None,
    ) -> list[Stream]:
        """Set the streams and revocations. Known streams stay. Return the streams in which a source
        was dropped: they must be merged again. O(streams in the arguments).

        Args:
            rows: the stream rows.
            revocations: the revoked sources.
            opened: result of :meth:`open` for the unknown streams.
            among: ids of all streams that may have changed. None: any stream.
        """
        there = {row.id for row in rows}
        for gone in (self._by_id.keys() if among is None else set(among)) - there:
            if gone in self._by_id:
                self._remove(self._by_id[gone])
        for row in rows:
            if row.id in self._by_id:
                self._by_id[row.id].told(row)
            else:
                self._add(opened[row.id])
        changed = {
            each.stream_id: self._by_id[each.stream_id]
            for each in revocations
            if self._by_id[each.stream_id].apply(each)
        }
        return list(changed.values())

    def _add(self, stream: Stream) -> None:
        self._by_id[stream.id] = self._by_name[stream.name] = stream
        insort(self._names, stream.name)
        if stream.row.view is not None:
            insort(self._views.setdefault(stream.row.view["of"], []), stream, key=_name)
        for seen in self._scopes.values():
            seen.add(stream)
        self.version += 1

    def _remove(self, stream: Stream) -> None:
        stream.discard()
        del self._by_id[stream.id]
        for seen in self._scopes.values():
            seen.remove(stream)
        self.version += 1
        if stream.row.view is not None:
            of = stream.row.view["of"]
            self._views[of].remove(stream)
            if not self._views[of]:
                del self._views[of]
        if self._by_name[stream.name] is stream:  # else it was created again at the same time
            del self._by_name[stream.name]
            del self._names[bisect_left(self._names, stream.name)]

    def in_scope(self, of: Scoped) -> Collection[Stream]:
        """Return the streams that a key permits, in no order. O(streams) for a scope that was not
        used lately, else O(1).
        """
        return self._seen(of).streams.values()

    def rows_in_scope(self, of: Scoped) -> int:
        """Return the row count over all streams that a key permits. The same complexity applies."""
        return self._seen(of).rows.rows

    def _seen(self, of: Scoped) -> _Seen:
        found = self._scopes.get(of.scope)
        if found is None:
            found = self._scopes[of.scope] = _Seen(of.sees, self._by_id.values())
            if len(self._scopes) > _SCOPES_KEPT:
                self._scopes.pop(next(iter(self._scopes))).close()
        return found

    def named_after(self, name: str, of: Scoped | None = None) -> Iterator[Stream]:
        """Yield the streams whose names come after a given name, in order: all, or those that a key
        permits. Streams may change during the iteration.
        """
        names = self._names if of is None else self._seen(of).names
        while (place := bisect_right(names, name)) < len(names):
            name = names[place]
            if (stream := self._by_name.get(name)) is not None:
                yield stream

    def __iter__(self) -> Iterator[Stream]:
        return iter([self._by_name[name] for name in self._names])

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, name: str) -> Stream:
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownStreamError(name) from None

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def views_of(self, name: str) -> Sequence[Stream]:
        """Return the derived streams that a stream's observations feed, sorted by name."""
        return self._views.get(name, ())

    def by_id(self, stream_id: int) -> Stream | None:
        """Return the stream with this id, if there is one."""
        return self._by_id.get(stream_id)


def _name(stream: Stream) -> str:
    return stream.name


def latest_time(unit: str, max_clock_skew_s: float | None, now_ns: int) -> int | None:
    """Return the latest accepted time: now and the allowed skew, in whole units.

    Args:
        unit: the stream's ``time_unit``.
        max_clock_skew_s: seconds. None allows any.
        now_ns: this machine's clock, in nanoseconds since 1970.

    Returns:
        None where any time is accepted: nothing is forbidden, or the unit has no wall clock.
    """
    size_ns = NANOSECONDS.get(unit)
    if max_clock_skew_s is None or size_ns is None:
        return None
    return (now_ns + round(max_clock_skew_s * NANOSECONDS["s"])) // size_ns


def table_rows(recipe: Recipe) -> int:
    """Return the size of a stream's decay tables as rows: its steps, and as many rows again for
    the computed values.
    """
    table = recipe.steps()
    if table is None:
        return 0
    return 2 * table.nbytes // ROW_BYTES


def differences(
    ours: Form, theirs: Form, within: str = ""
) -> Iterator[tuple[str, tuple[object, object]]]:
    """Return ``params.seed: (ours, theirs)`` for every field in which two forms differ."""
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(name), theirs.get(name)
        if name == "params":
            yield from differences(mine or {}, other or {}, "params.")
        elif mine != other:
            yield within + name, (mine, other)
