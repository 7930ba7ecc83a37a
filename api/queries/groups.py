"""Several streams asked as one: whether they may be joined, and their join."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

from api.errors import IncompatibleStreamsError
from api.families import Snapshot, join
from api.streams import Stream
from decaysketch.families import Recipe

__all__ = ["Joins", "common_recipe"]


def common_recipe(streams: Sequence[Stream]) -> Recipe[Any]:
    """What the sketches of all streams share, but for the capacity.

    Raises:
        IncompatibleStreamsError: a stream that cannot be joined with the first one, and in what
            they differ.
    """
    first, *others = streams
    for other in others:
        if different := first.recipe.differences(other.recipe):
            raise IncompatibleStreamsError(first.name, other.name, different)
    recipe: Recipe[Any] = min((each.recipe for each in streams), key=lambda r: r.params.capacity)
    return recipe


class Joins:
    """Joins of the sketches of several streams, a few of them kept. Thread-safe.

    A join is a function of what is joined, so it is kept by the digests of that. Whoever asks for
    the same one again has the parts of its answers that depend on the sketch alone.

    Args:
        kept: how many.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._joins: OrderedDict[tuple[str, ...], Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def snapshot(self, streams: Sequence[Stream], sources: Collection[str] | None) -> Snapshot:
        """The join of all sources of streams that :func:`common_recipe` has seen, or of some.

        Raises:
            UnknownSourceError: nothing came from one of ``sources`` to one of the streams.
        """
        parts = [stream.snapshot(sources) for stream in streams]
        if len(parts) == 1:
            return parts[0]
        key = tuple(sorted({part.digest for part in parts}))
        with self._lock:
            if key in self._joins:
                self._joins.move_to_end(key)
                return self._joins[key]
        joined = join(common_recipe(streams), parts)
        with self._lock:
            self._joins[key] = joined
            if len(self._joins) > self._kept:
                self._joins.popitem(last=False)
        return joined
