"""A merge buffer: sketches are added at once, and merged into one when there is time.

The buffer keeps one sketch and merges into it in place. So a merge costs the size of the new
sketches and not that of the present one. An immutable snapshot costs a pass over everything and as
much memory again. The buffer makes it on demand, and keeps it as long as there is space for it.
Thread-safe: adding never waits for a merge.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from api.resources import LARGE_ROWS
from api.service.budget import BUFFER_ROWS, PART_ROWS, ROW_BYTES, Memory, Tally
from decaysketch import Snapshot
from decaysketch.core.row_check import Compared
from decaysketch.families import Recipe, Sketch

__all__ = ["Fold", "MergeBuffer", "fold_each", "portions"]

_MANY_ROWS = 50_000
_MANY_SKETCHES = 64
_ROOM_BYTES = 1 << 18  # growth before a trim, above twice the size at the last trim

_versions = itertools.count()


class MergeBuffer:
    """The join of all added sketches. Empty at first.

    Args:
        recipe: of all of them.
        memory: where its rows are counted, until it is discarded.
        tally: a part of ``memory.resident``.
    """

    def __init__(
        self, recipe: Recipe, memory: Memory | None = None, tally: Tally | None = None
    ) -> None:
        self._sketch = recipe.empty()
        self._conflicts = recipe.kind.promises.conflicts
        self._kept = False  # the sketch's snapshot, until it grows or room is needed
        self._summary: tuple[str, int] | None = None  # digest and rows of the sketch
        self._version = next(_versions)
        self._waiting: list[Snapshot | MergeBuffer] = []
        self._waiting_rows = 0
        self._memory = memory or Memory()
        self._tally = tally or Tally(self._memory.resident)
        self._trimmed_bytes = 0
        self._sketch_rows = BUFFER_ROWS  # as counted
        self._parts_rows = 0  # counted rows of the waiting sketches
        self._discarded = False
        self._tally.change(BUFFER_ROWS)
        self._adding = threading.Lock()  # held for a moment
        self._merging = threading.Lock()  # held for as long as a merge takes; after memory.merging

    def add(self, part: Snapshot | MergeBuffer) -> None:
        """Add a sketch, or all content of another buffer, to be merged later."""
        with self._adding:
            self._memory.unsettled.add(self)
            self._waiting.append(part)
            self._waiting_rows += _rows(part)
            self._count(waiting=self._parts_rows + _counted(part))

    @property
    def waiting(self) -> int:
        """Return how many sketches wait."""
        return len(self._waiting)

    @property
    def waiting_rows(self) -> int:
        """Return how many rows they hold together."""
        return self._waiting_rows

    @property
    def counted_rows(self) -> int:
        """Return the rows as they are counted, with spare capacity and waiting sketches."""
        return self._sketch_rows + self._parts_rows

    @property
    def is_large(self) -> bool:
        """Return whether the waiting sketches take much memory."""
        return self._waiting_rows >= _MANY_ROWS or len(self._waiting) >= _MANY_SKETCHES

    def discard(self) -> None:
        """Stop counting its rows. Nothing uses it any more."""
        with self._adding:
            self._count(sketch=0, waiting=0)
            self._discarded = True
            self._memory.unsettled.discard(self)

    def fold(self) -> None:
        """Merge the waiting sketches."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()

    def merged(self, *, has_room: bool = False) -> Snapshot:
        """Return a snapshot with at least everything that was added before the call.

        Args:
            has_room: whether the caller has reserved space for the rows among those in flight.

        Raises:
            RowsAskedError: no snapshot is stored, and other queries leave no space for a new one.
        """
        if self._kept and not self._waiting:
            with self._merging:
                if self._kept:
                    self._memory.reading.asked(self)
                    return self._sketch.snapshot()
        if not has_room:
            self._memory.reading.make_room(self.counted_rows)
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            snapshot = self._sketch.snapshot()
            made = not self._kept
            if made:
                self._memory.reading.track(snapshot, len(snapshot))
                self._kept = True
        if made:
            self._memory.reading.keep(self, len(snapshot))
        return snapshot

    def compared(self, *columns: Any, **options: Any) -> Compared:
        """Return how a batch compares with everything that was added before the call. The caller
        has reserved space for the rows.
        """
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            found = self._sketch.compared(*columns, **options)
        return found or self.merged(has_room=True).compared(*columns, **options)

    def summary(self) -> tuple[str, int]:
        """Return the digest and row count of all content. Keeps no snapshot that was not there."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            if self._summary is None:
                snapshot = self._sketch.snapshot()
                self._summary = snapshot.digest, len(snapshot)
                if not self._kept:
                    self._trim()
            return self._summary

    def part(self, from_level: int) -> Snapshot:
        """Return all content from a level on. Keeps no snapshot that was not there."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            found = self._sketch.snapshot().part(from_level)
            if not self._kept:
                self._trim()
            return found

    def version(self) -> int:
        """Return a number that differs whenever the content does, and between buffers."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            return self._version

    @property
    def replaced(self) -> int:
        """Return how many readings a later one of their id replaced, far away in time, since the
        buffer was made. See :mod:`decaysketch.core.duplicates`.
        """
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            return self._sketch.replaced

    def merge_into(self, sketch: Sketch) -> None:
        """Merge all content into a sketch of the caller."""
        with self._merging:
            self._fold()
            sketch.merge(self._sketch)

    def forget(self) -> None:
        """Release the snapshot. The next query makes another one."""
        with self._merging:
            self._kept = False
            self._trim()

    def settle(self) -> None:
        """Merge the waiting sketches, and return unused space. A kept snapshot is released only
        where the sketch has grown since it was last trimmed.
        """
        self._memory.unsettled.discard(self)
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            if self._kept and self._sketch.nbytes > self._trimmed_bytes:
                self._memory.reading.gave_up(self)
                self._kept = False
            if not self._kept:
                self._trim()

    def to_bytes(self) -> bytes:
        """Return all content as encoded bytes, as :meth:`merged`. Keeps no snapshot that was not
        there.
        """
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            body = self._sketch.to_bytes()
            if not self._kept:
                self._trim()
            return body

    def growth(self, sketches: Sequence[Snapshot]) -> int:
        """Return by how many rows the buffer would grow, as they are counted. Adds nothing."""
        rows = self.work_rows + sum(map(len, sketches))
        with self._memory.merging(rows), self._merging:
            self._fold()
            before = self._sketch.snapshot()
            grown = before.thaw()
            grown.merge(*sketches)
            after = len(grown)
            grown.trim()
            texts = _text_bytes(grown.snapshot())
            counted = max(after, -(-(grown.nbytes - texts) // ROW_BYTES))
            if not self._kept:
                self._trim()
        change = after - len(before)
        rows = change if change <= 0 else -(-change * counted // after)
        return rows - (_text_bytes(before) - texts) // ROW_BYTES

    @property
    def work_rows(self) -> int:
        """Return how many rows a merge reads."""
        with self._adding:
            parts = list(self._waiting)
        buffers = sum(part.counted_rows for part in parts if isinstance(part, MergeBuffer))
        return self.counted_rows + buffers

    def _fold(self) -> None:
        with self._adding:
            parts = list(self._waiting)
        if not parts:
            return
        self._memory.reading.gave_up(self)
        self._kept, self._summary = False, None
        self._version = next(_versions)
        buffers = [part for part in parts if isinstance(part, MergeBuffer)]
        sketches = [part for part in parts if not isinstance(part, MergeBuffer)]
        if (
            self._conflicts
        ):  # all at once, because two conflicting sketches may each fit the content
            sketches += [part._folded() for part in buffers]
            buffers = []
        self._sketch.merge(*sketches)
        for part in buffers:
            part.merge_into(self._sketch)
        if self._sketch.nbytes > 2 * self._trimmed_bytes + _ROOM_BYTES:
            self._trim()
        with self._adding:
            del self._waiting[: len(parts)]
            self._waiting_rows -= sum(map(_rows, parts))
            self._count(waiting=self._parts_rows - sum(map(_counted, parts)))
            self._count(sketch=BUFFER_ROWS + -(-self._sketch.nbytes // ROW_BYTES))

    def _folded(self) -> Snapshot:
        with self._merging:
            self._fold()
            return self._sketch.snapshot()

    def _trim(self) -> None:
        self._sketch.trim()
        self._trimmed_bytes = self._sketch.nbytes
        with self._adding:
            self._count(sketch=BUFFER_ROWS + -(-self._sketch.nbytes // ROW_BYTES))

    def _count(self, *, sketch: int | None = None, waiting: int | None = None) -> None:
        """Count the present content as rows. ``_adding`` is held."""
        if self._discarded:
            return
        if sketch is not None:
            self._tally.change(sketch - self._sketch_rows)
            self._sketch_rows = sketch
        if waiting is not None:
            self._tally.change(waiting - self._parts_rows)
            self._memory.waiting.change(waiting - self._parts_rows)
            self._parts_rows = waiting


def _rows(part: Snapshot | MergeBuffer) -> int:
    return 0 if isinstance(part, MergeBuffer) else len(part)


def _counted(part: Snapshot | MergeBuffer) -> int:
    """Return the size as rows, labels included."""
    if isinstance(part, MergeBuffer):
        return 0
    return len(part) + PART_ROWS + -(-_text_bytes(part) // ROW_BYTES)


def _text_bytes(sketch: Snapshot) -> int:
    """Return the bytes of the label texts. O(labels)."""
    return 0 if sketch.labels is None else sketch.labels.nbytes


# ------------------------------------------------------------------------------- several buffers


class Fold(NamedTuple):
    """One buffer's merge.

    Attributes:
        posts: how many waited.
        seconds: its duration.
        error: its fault. The sketches still wait.
    """

    posts: int
    seconds: float
    error: Exception | None


def portions(buffers: Iterable[MergeBuffer]) -> Iterator[list[MergeBuffer]]:
    """Yield buffers that one time slice merges: to hand over a small one takes as long as to merge
    it.
    """
    portion, rows = list[MergeBuffer](), 0
    for buffer in buffers:
        more = buffer.work_rows
        if portion and rows + more >= LARGE_ROWS:
            yield portion
            portion, rows = [], 0
        portion.append(buffer)
        rows += more
    if portion:
        yield portion


def fold_each(buffers: Sequence[MergeBuffer]) -> list[Fold]:
    """Merge the waiting sketches of each buffer, also if another one has a fault."""
    found = []
    for each in buffers:
        posts, began, error = each.waiting, time.monotonic(), None
        try:
            each.fold()
        except Exception as fault:
            error = fault
        found.append(Fold(posts, time.monotonic() - began, error))
    return found
