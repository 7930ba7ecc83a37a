"""Several streams queried as one: whether they may be joined, and their join."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from api.errors import Fault, IncompatibleStreamsError, InvalidRequestError
from api.service.budget import Memory
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.families import Recipe

__all__ = ["Joins", "common_recipe"]


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
    """Joins of sketches from several streams. A few are kept. Thread-safe.

    A join depends only on the joined sketches, so it is kept by their digests. A repeated query
    finds the result parts that depend on the sketch alone.

    Args:
        kept: the number of joins to keep.
        memory: where their rows are counted.
    """

    def __init__(self, kept: int, memory: Memory | None = None) -> None:
        self._kept = kept
        self._memory = memory or Memory()
        self._joins: OrderedDict[tuple[str, ...], _Join] = OrderedDict()
        self._lock = threading.Lock()

    def snapshot(self, streams: Sequence[Stream], sources: Collection[str] | None) -> Snapshot:
        """Return the join of all sources, or of some, for streams that :func:`common_recipe` has
        checked.

        Raises:
            UnknownSourceError: nothing came from a source in ``sources`` to one stream.
            InvalidRequestError: they hold more rows together than one request may read.
            RowsAskedError: other queries leave no space.
        """
        if len(streams) == 1:
            return streams[0].snapshot(sources)
        reading = self._memory.reading
        together = sum(stream.joined_rows for stream in streams)
        if together > reading.limit:
            raise InvalidRequestError(
                f"the streams hold {together} rows together; at most {reading.limit} are looked at "
                "by one request (max_read_rows)",
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
