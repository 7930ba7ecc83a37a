"""Accept only joinable sketches, in families where two sketches may contradict each other.

In most families every acknowledged sketch can be merged. In a family whose joins may conflict
(``Promises.conflicts``) this does not hold, and a conflict would leave the stream's content
undefined. So the server first joins such a post with all sketches in its stream, on a copy, and
then journals it. It joins the posts in one transaction one after the other (:class:`Trial`). The
transaction ensures that no other process has journaled anything meanwhile. A rejected client
receives the reason. The server has acknowledged nothing to it.

A journal may still contain a conflict: it was written without a trial, or an operator dropped a
source that connected two others. Every process reads the rows in order. From each row, it keeps the
parts that can be joined with all earlier rows. The result depends on the journal alone. The process
skips the other parts one by one, and reports and counts them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from api.journal.log import Post
from decaysketch import Snapshot
from decaysketch.errors import DecaySketchError
from decaysketch.families import Recipe, Sketch

__all__ = ["Accepted", "LeftOut", "Trial"]


class LeftOut(NamedTuple):
    """A part that cannot be joined with the existing content: its source, and the reason."""

    source: str
    error: DecaySketchError


class Accepted:
    """All content in one stream, always merged: per source, and joined. Thread-safe.

    Every sketch in such a family refers to its state without copying it, so the rows are stored
    once. Merging inspects each entry.

    Args:
        recipe: the stream's sketch configuration.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._whole: Sketch = recipe.empty()
        self._sources: dict[str, Sketch] = {}
        self._lock = threading.Lock()

    def take(self, source: str, sketch: Snapshot) -> tuple[Sequence[Snapshot], list[LeftOut]]:
        """Join a source's sketch. Return the joined part, and the conflicting parts."""
        with self._lock:
            own = self._sources.get(source)
            if own is None:
                own = self._sources[source] = self._recipe.empty()
            return _joined(source, sketch, (self._whole, own))

    def drop(self, source: str) -> tuple[Sequence[Snapshot], list[LeftOut]]:
        """Drop all sketches from a source. Return the rest, and the parts that cannot be joined
        without that source.
        """
        with self._lock:
            self._sources.pop(source, None)
            self._whole = self._recipe.empty()
            left: list[Snapshot] = []
            out: list[LeftOut] = []
            for name in sorted(self._sources):
                held = self._sources[name].snapshot()
                some, others = _joined(name, held, (self._whole,))
                left += some
                out += others
            return left, out

    def whole(self) -> Sketch:
        """Return a separate sketch over all sources."""
        with self._lock:
            return self._whole.copy()

    def of(self, source: str) -> Sketch:
        """Return a separate sketch for one source."""
        with self._lock:
            own = self._sources.get(source)
            return self._recipe.empty() if own is None else own.copy()


class Trial:
    """Joins on copies, before posts are journaled. Used by one thread at a time.

    Args:
        streams: the accepted content per stream, for streams with joins that may conflict.
        upto: the last journal row that they contain.
    """

    def __init__(self, streams: Mapping[int, Accepted], upto: int) -> None:
        self._streams = streams
        self._wholes: dict[int, Sketch] = {}
        self._owns: dict[tuple[int, str], Sketch] = {}
        self.upto = upto

    def concerns(self, posts: Iterable[Post]) -> bool:
        """Return whether the join with one post may conflict."""
        return any(post.stream_id in self._streams for post in posts)

    def take(self, posts: Sequence[Post]) -> None:
        """Join the posts in one request, all or none.

        Raises:
            ConflictingSketchError: a post contradicts the content of the stream.
            CapacityError: there would be too many entries.
            ParameterError: the posts cannot be joined for another reason.
        """
        wholes: dict[int, Sketch] = {}
        owns: dict[tuple[int, str], Sketch] = {}
        for post in posts:
            if (accepted := self._streams.get(post.stream_id)) is None:
                continue
            of, source = post.stream_id, (post.stream_id, post.source)
            if of not in wholes:
                whole = self._wholes.get(of)
                wholes[of] = accepted.whole() if whole is None else whole.copy()
            if source not in owns:
                own = self._owns.get(source)
                owns[source] = accepted.of(post.source) if own is None else own.copy()
            wholes[of].merge(post.decode())
            owns[source].merge(post.decode())
        self._wholes |= wholes
        self._owns |= owns


def _joined(
    source: str, sketch: Snapshot, into: Sequence[Sketch]
) -> tuple[Sequence[Snapshot], list[LeftOut]]:
    """Merge a sketch into others, or its mergeable parts. If only the second sketch rejects a
    part, the part is older than the first sketch's content and has not changed it.
    """
    try:
        for each in into:
            each.merge(sketch)
    except DecaySketchError as error:
        parts = sketch.parts()
        if len(parts) < 2:
            return [], [LeftOut(source, error)]
    else:
        return [sketch], []
    taken: list[Snapshot] = []
    out: list[LeftOut] = []
    for part in parts:
        some, others = _joined(source, part, into)
        taken += some
        out += others
    return taken, out
