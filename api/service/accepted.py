"""What of a stream can be joined, where two sketches of it may contradict each other.

Of most families whatever was acknowledged can be merged. Of one whose joins may conflict
(``Promises.conflicts``) it may not, and then nobody could say what the stream holds. So a post of
such a family is joined with all that its stream holds, on a copy, before it is journaled, and those
of one transaction one after the other (:class:`Trial`); the transaction sees to it that nobody else
has journaled anything meanwhile. Who is refused is told why, and nothing was promised to him.

A journal may hold a conflict all the same: it was written without a trial, or a source was dropped
that stood between two others. Every process takes the rows in their order and keeps of each what
can be joined with all before it, which is a function of the journal alone. The rest is left out
part by part, said and counted, and nothing else with it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from decaysketch import Snapshot
from decaysketch.errors import DecaySketchError
from decaysketch.families import Recipe, Sketch

__all__ = ["Accepted", "LeftOut", "Trial"]


class LeftOut(NamedTuple):
    """A part that cannot be joined with what is there: who had sent it, and why."""

    source: str
    error: DecaySketchError


class Accepted:
    """All that one stream holds, always merged: of each source, and their join. Thread-safe.

    A state of such a family is referred to by every sketch that holds it, and copied by none: the
    rows are there once. Merging looks at as many entries as there are.

    Args:
        recipe: of the stream.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._whole: Sketch = recipe.empty()
        self._sources: dict[str, Sketch] = {}
        self._lock = threading.Lock()

    def take(self, source: str, sketch: Snapshot) -> tuple[Sequence[Snapshot], list[LeftOut]]:
        """Join in what a source has sent; what could be of it, and what could not."""
        with self._lock:
            own = self._sources.get(source)
            if own is None:
                own = self._sources[source] = self._recipe.empty()
            return _joined(source, sketch, (self._whole, own))

    def drop(self, source: str) -> tuple[Sequence[Snapshot], list[LeftOut]]:
        """Let go of all that a source has sent; what is left, and what of that cannot be joined
        without it."""
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
        """A sketch of its own, of all."""
        with self._lock:
            return self._whole.copy()

    def of(self, source: str) -> Sketch:
        """A sketch of its own, of one source."""
        with self._lock:
            own = self._sources.get(source)
            return self._recipe.empty() if own is None else own.copy()


class Trial:
    """Joins on copies, before something is journaled. Used by one thread at a time.

    Args:
        streams: what is accepted, of those streams whose joins may conflict.
        upto: number of the row of the journal up to which they hold everything.
    """

    def __init__(self, streams: Mapping[int, Accepted], upto: int) -> None:
        self._streams = streams
        self._wholes: dict[int, Sketch] = {}
        self._owns: dict[tuple[int, str], Sketch] = {}
        self.upto = upto

    def concerns(self, stream_id: int) -> bool:
        """Whether joins of the stream may conflict."""
        return stream_id in self._streams

    def take(self, stream_id: int, source: str, posts: Iterable[Snapshot]) -> None:
        """Join in the posts of one request, all or none.

        Raises:
            ConflictingSketchError: one contradicts what the stream holds.
            CapacityError: there would be too many entries.
            ParameterError: what else keeps them from being joined.
        """
        if not self.concerns(stream_id):
            return
        accepted = self._streams[stream_id]
        whole, own = self._wholes.get(stream_id), self._owns.get((stream_id, source))
        whole = accepted.whole() if whole is None else whole.copy()
        own = accepted.of(source) if own is None else own.copy()
        for post in posts:
            whole.merge(post)
            own.merge(post)
        self._wholes[stream_id], self._owns[stream_id, source] = whole, own


def _joined(
    source: str, sketch: Snapshot, into: Sequence[Sketch]
) -> tuple[Sequence[Snapshot], list[LeftOut]]:
    """Merge a sketch into others, or those of its parts that can be. A part that only the second of
    them refuses is older than what the first one holds, and has changed nothing in it."""
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
