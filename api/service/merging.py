"""A merge buffer: sketches are added at once, and merged into one when there is time.

One sketch is kept and merged into in place, so merging costs what the newcomers hold and not what
is there. An immutable snapshot of it, which costs a pass over everything and as much memory again,
is made when somebody asks, and kept as long as there is room for it. Thread-safe: adding never
waits for a merge.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

from api.service.budget import BUFFER_ROWS, PART_ROWS, ROW_BYTES, Memory, Tally
from decaysketch import Snapshot
from decaysketch.families import Recipe, Sketch

__all__ = ["MergeBuffer"]

_MANY_ROWS = 50_000
_MANY_SKETCHES = 64
_ROOM_BYTES = 1 << 18  # that a sketch may have besides twice what it had when it was trimmed last

_versions = itertools.count()


class MergeBuffer:
    """The join of everything added; nothing at first.

    Args:
        recipe: of all of it.
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
        self._parts_rows = 0  # as counted, of what waits
        self._discarded = False
        self._tally.change(BUFFER_ROWS)
        self._adding = threading.Lock()  # held for a moment
        self._merging = threading.Lock()  # held for as long as a merge takes; after memory.merging

    def add(self, part: Snapshot | MergeBuffer) -> None:
        """Add a sketch, or all that another buffer holds, to be merged in later."""
        with self._adding:
            self._waiting.append(part)
            self._waiting_rows += _rows(part)
            self._count(waiting=self._parts_rows + _counted(part))

    @property
    def waiting(self) -> int:
        """How many sketches wait."""
        return len(self._waiting)

    @property
    def waiting_rows(self) -> int:
        """How many rows they hold together."""
        return self._waiting_rows

    @property
    def counted_rows(self) -> int:
        """Rows as they are counted: with room for more, and what waits."""
        return self._sketch_rows + self._parts_rows

    @property
    def is_large(self) -> bool:
        """Whether what waits takes much memory."""
        return self._waiting_rows >= _MANY_ROWS or len(self._waiting) >= _MANY_SKETCHES

    def discard(self) -> None:
        """Count it no more; nobody asks it any more."""
        with self._adding:
            self._count(sketch=0, waiting=0)
            self._discarded = True

    def fold(self) -> None:
        """Merge in what waits."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()

    def merged(self) -> Snapshot:
        """All of it: everything that was added before the call, or more.

        Raises:
            RowsAskedError: it is to be made, and what others ask leaves no room for it.
        """
        if self._kept and not self._waiting:
            with self._merging:
                if self._kept:
                    self._memory.reading.asked(self)
                    return self._sketch.snapshot()
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

    def summary(self) -> tuple[str, int]:
        """Digest and number of rows of all of it; keeps no snapshot that was not there."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            if self._summary is None:
                snapshot = self._sketch.snapshot()
                self._summary = snapshot.digest, len(snapshot)
                if not self._kept:
                    self._trim()
            return self._summary

    def version(self) -> int:
        """Another number whenever it holds something else, and of every buffer."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            return self._version

    @property
    def replaced(self) -> int:
        """Readings that a later one of their id replaced, far away in time, since it was made; see
        :mod:`decaysketch.core.replaced`."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            return self._sketch.replaced

    def merge_into(self, sketch: Sketch) -> None:
        """Merge all of it into a sketch of somebody else."""
        with self._merging:
            self._fold()
            sketch.merge(self._sketch)

    def forget(self) -> None:
        """Let go of the snapshot; another one is made when somebody asks."""
        with self._merging:
            self._kept = False
            self._trim()

    def settle(self) -> None:
        """Merge in what waits, and give back what no row needs. A snapshot that is kept goes only
        where the sketch has grown since it was trimmed last."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            if self._kept and self._sketch.nbytes > self._trimmed_bytes:
                self._memory.reading.gave_up(self)
                self._kept = False
            if not self._kept:
                self._trim()

    def to_bytes(self) -> bytes:
        """All of it on the wire, as :meth:`merged`; keeps no snapshot that was not there."""
        with self._memory.merging(self.work_rows), self._merging:
            self._fold()
            body = self._sketch.to_bytes()
            if not self._kept:
                self._trim()
            return body

    def growth(self, sketches: Sequence[Snapshot]) -> int:
        """By how many rows it would grow, as they are counted; it does not."""
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
        """Rows that a merge looks at."""
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
        ):  # at once: two that contradict each other do not beside what passed both
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
        """What it holds by now, as rows; ``_adding`` is held."""
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
    """As rows, labels included."""
    if isinstance(part, MergeBuffer):
        return 0
    return len(part) + PART_ROWS + -(-_text_bytes(part) // ROW_BYTES)


def _text_bytes(sketch: Snapshot) -> int:
    """What the texts of labels take. O(labels)."""
    return 0 if sketch.labels is None else sketch.labels.nbytes
