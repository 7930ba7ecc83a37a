"""The merged sketches, in memory: one for each (stream, source), and their join when asked.

The state is a function of the set of acknowledged posts, whatever their order and however often
each came: it is what replaying the journal gives. A post is therefore folded *after* it is on disk,
and a crash between the two loses nothing. What kind of sketch it is, its recipe knows.

A sketch is not thread-safe and requests run on several threads. So nothing here is ever changed in
place: folding makes a new ``Snapshot``, and whoever reads the old one goes on reading it. The
lock of a stream is held while a post is folded, not while it is decoded, written or queried.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.errors import (
    CapacityTooSmallError,
    StreamConflictError,
    UnknownSourceError,
    UnknownStreamError,
)
from api.families import Snapshot, join, snapshot_of
from api.store import Entry, Interval, Journal, StreamRow
from decaysketch import DecaySketchError, SketchParams, decay
from decaysketch.asyncwindow import MedianParams, SumParams
from decaysketch.families import Recipe, recipe_from_dict, recipe_of

__all__ = ["Aggregator", "Posted", "ReplayError", "SourceInfo", "Stream", "warm_up"]

_REPLAY_ROWS = 2_000_000  # decoded rows that wait, at start-up, to be folded together
_UNJOINED_KEPT = 64  # posts that wait for the next question, to be joined together
_JOINS_KEPT = 16  # joins of some of the sources, kept until the stream changes


class ReplayError(RuntimeError):
    """A stream or an acknowledged post can no longer be read; starting without it would lose it
    silently."""


@dataclass(slots=True)
class _Source:
    merged: Snapshot
    posts: int = 0
    posted_bytes: int = 0
    last_received_us: int = 0
    waiting: list[Snapshot] = field(default_factory=list)

    def count(self, posted_bytes: int, received_us: int) -> None:
        self.posts += 1
        self.posted_bytes += posted_bytes
        self.last_received_us = max(self.last_received_us, received_us)


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What is known of one source of a stream."""

    source: str
    merged: Snapshot
    posts: int
    posted_bytes: int
    last_received_us: int


@dataclass(frozen=True, slots=True)
class Posted:
    """What became of one post."""

    rows: int
    duplicate: bool
    changed: bool
    merged: Snapshot


class Stream:
    """One stream: its recipe and the merged sketches of its sources. Thread-safe."""

    def __init__(self, row: StreamRow) -> None:
        self.id = row.id
        self.name = row.name
        self.created_us = row.created_us
        # Journals of releases that knew one family hold its parameters alone.
        form = row.params if "family" in row.params else {"params": row.params}
        self.recipe = recipe_from_dict(form)
        self._lock = threading.Lock()
        self._nothing = snapshot_of(self.recipe.empty())
        self._sources: dict[str, _Source] = {}
        self._join = self._nothing
        self._unjoined: list[Snapshot] = []  # folded into a source, not yet into the join
        self._partial_joins: dict[frozenset[str], Snapshot] = {}

    def decode(self, body: bytes) -> Snapshot:
        """The sketch in a body, checked against this stream.

        Raises:
            CorruptSketchError: not bytes that an honest builder could have written.
            IncompatibleSketchError: of another family, or built with other parameters.
            CapacityTooSmallError: coarser than this stream.
        """
        sketch = self.recipe.decode(body)
        ours, theirs = self.recipe.params.capacity, sketch.params.capacity
        if theirs < ours:
            raise CapacityTooSmallError(self.name, ours, theirs)
        return snapshot_of(sketch)

    def fold(
        self, source: str, post: Snapshot, posted_bytes: int, received_us: int | None
    ) -> Posted:
        """Fold in a post that is on disk. ``received_us`` is None for a duplicate, which is folded
        as well: that changes nothing, and whoever brought it first may not have come this far."""
        with self._lock:
            entry = self._source(source)
            before = entry.merged
            after = join(self.recipe, [before, post])
            changed = after.digest != before.digest
            if received_us is not None:
                entry.count(posted_bytes, received_us)
            if changed:
                entry.merged = after
                self._unjoined.append(post)
                self._partial_joins.clear()
                if len(self._unjoined) >= _UNJOINED_KEPT:
                    self._join_all()
            return Posted(len(post), received_us is None, changed, entry.merged)

    def wait(self, source: str, post: Snapshot, posted_bytes: int, received_us: int) -> None:
        """Take a post of the journal, to be folded by :meth:`settle`."""
        with self._lock:
            entry = self._source(source)
            entry.waiting.append(post)
            entry.count(posted_bytes, received_us)

    def settle(self) -> None:
        """Fold in everything that waits, each source by one k-way merge."""
        with self._lock:
            for entry in self._sources.values():
                if entry.waiting:
                    entry.merged = join(self.recipe, [entry.merged, *entry.waiting])
                    entry.waiting.clear()
                    self._unjoined.append(entry.merged)
            self._partial_joins.clear()
            self._join_all()

    def snapshot(self, sources: Collection[str] | None = None) -> Snapshot:
        """The join of all sources, or of some.

        Raises:
            UnknownSourceError: nothing came from one of ``sources``.
        """
        with self._lock:
            if sources is None:
                return self._join_all()
            wanted = frozenset(sources)
            if unknown := wanted - self._sources.keys():
                raise UnknownSourceError(self.name, unknown)
            if wanted not in self._partial_joins:
                if len(self._partial_joins) >= _JOINS_KEPT:
                    self._partial_joins.pop(next(iter(self._partial_joins)))
                self._partial_joins[wanted] = join(
                    self.recipe, (self._sources[name].merged for name in wanted)
                )
            return self._partial_joins[wanted]

    def sources(self) -> list[SourceInfo]:
        """What is known of each source, in order of name."""
        with self._lock:
            return [
                SourceInfo(
                    name, entry.merged, entry.posts, entry.posted_bytes, entry.last_received_us
                )
                for name, entry in sorted(self._sources.items())
            ]

    def _source(self, name: str) -> _Source:
        if name not in self._sources:
            self._sources[name] = _Source(self._nothing)
        return self._sources[name]

    def _join_all(self) -> Snapshot:
        if self._unjoined:
            self._join = join(self.recipe, [self._join, *self._unjoined])
            self._unjoined.clear()
        return self._join


class Aggregator:
    """All streams, over one journal.

    Args:
        journal: read once, here; written by :meth:`create` and :meth:`post`.

    Raises:
        ReplayError: the journal holds a stream or a post that cannot be read any more.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._streams = {row.name: _open_again(row) for row in journal.streams()}
        self._replay()

    def _replay(self) -> None:
        by_id = {stream.id: stream for stream in self._streams.values()}
        waiting_rows = 0
        for entry in self._journal.entries():
            stream = by_id[entry.stream_id]
            post = _decode_again(stream, entry)
            stream.wait(entry.source, post, len(entry.body), entry.received_us)
            waiting_rows += len(post)
            if waiting_rows > _REPLAY_ROWS:
                waiting_rows = 0
                for each in by_id.values():
                    each.settle()
        for stream in by_id.values():
            stream.settle()

    def create(self, name: str, recipe: Recipe[Any]) -> tuple[Stream, bool]:
        """The stream of this name, and whether it is new.

        Raises:
            StreamConflictError: it exists and is of another family, or has other parameters.
            ParameterError: no sketch can be built with this.
        """
        recipe.empty()
        with self._lock:
            if name not in self._streams:
                self._streams[name] = Stream(self._journal.create_stream(name, recipe.to_dict()))
                return self._streams[name], True
            stream = self._streams[name]
        different = dict(_differences(stream.recipe.to_dict(), recipe.to_dict()))
        if "family" in different:
            different = {"family": different["family"]}
        if different:
            raise StreamConflictError(name, different)
        return stream, False

    def stream(self, name: str) -> Stream:
        """The stream of this name.

        Raises:
            UnknownStreamError: there is none.
        """
        try:
            return self._streams[name]
        except KeyError:
            raise UnknownStreamError(name) from None

    def streams(self) -> list[Stream]:
        """Every stream, in order of name."""
        with self._lock:
            return [self._streams[name] for name in sorted(self._streams)]

    def post(self, name: str, source: str, body: bytes, interval: Interval | None = None) -> Posted:
        """Check a sketch, write it to the journal, fold it in; on return it is on disk.

        Args:
            name, source, body: where to, from whom, and the sketch.
            interval: the numbers of the source that it holds, if it says so.

        Raises:
            UnknownStreamError, CorruptSketchError, IncompatibleSketchError, CapacityTooSmallError,
            IntervalConflictError: and nothing was changed.
        """
        stream = self.stream(name)
        post = stream.decode(body)
        received_us = self._journal.append(stream.id, source, body, interval)
        return stream.fold(source, post, len(body), received_us)


def warm_up() -> None:
    """Compile, or load from the cache, what requests run, so that none of them waits for it."""
    params = SketchParams(max_weight=2, id_bits=8, capacity=8)
    values, numbers = [1.0, 2.0], [1, 2]
    examples: list[tuple[Recipe[Any], list[Any]]] = [
        (recipe_of(params), [values, numbers, numbers, numbers]),
        (recipe_of(params, decay.integral.window(5)), [values, numbers, numbers, numbers]),
        (recipe_of(SumParams(max_sum=100, capacity=8)), [numbers, numbers]),
        (recipe_of(MedianParams(max_count=100, capacity=8)), [values, numbers]),
    ]
    for recipe, columns in examples:
        sketch = recipe.empty()
        sketch.update(*columns)
        stream = Stream(StreamRow(0, "warm-up", recipe.to_dict(), 0))
        stream.fold("warm-up", stream.decode(sketch.to_bytes()), 0, 0)
        stream.snapshot().samples(decay.window(5), 2)


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], within: str = ""
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """``params.seed: (ours, theirs)`` of every field in which two forms differ."""
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(name), theirs.get(name)
        if name == "params":
            yield from _differences(mine or {}, other or {}, "params.")
        elif mine != other:
            yield within + name, (mine, other)


def _open_again(row: StreamRow) -> Stream:
    try:
        return Stream(row)
    except DecaySketchError as error:
        raise ReplayError(f"stream {row.name!r} cannot be opened: {error}") from error


def _decode_again(stream: Stream, entry: Entry) -> Snapshot:
    try:
        return stream.decode(entry.body)
    except (DecaySketchError, CapacityTooSmallError) as error:
        raise ReplayError(
            f"journal entry {entry.seq} (stream {stream.name!r}, source {entry.source!r}) cannot "
            f"be read: {error}"
        ) from error
