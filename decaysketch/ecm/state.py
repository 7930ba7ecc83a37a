"""The state of one source: counted events, buffered events, and events that it could not place.

A *lane* is a stream in time order. It contains its first and last time, the weight it saw, and for
every layer of cells the number ``n`` of ones per cell and the times of the ranks that a cell with
``n`` ones keeps. These ranks are a function of ``n`` alone. So a lane is a function of the multiset
of its events. If no event was later than ``hold``, a source's state is a function of all its
events. Otherwise it depends on which events were late, and by how much.

``horizon``. If queries reach back no further than ``horizon``, times before the *edge*,
``clock - horizon``, are only needed to show that they are before it, and to interpolate up to the
time after. Among the times that a cell keeps, the state stores, for every ``l``, the newest with a
rank that ``2^l`` divides (:mod:`decaysketch.ecm.retention`). The others read as the next newer
stored one. Nothing later depends on more times. As a cell fills up, it drops an old rank no later
than any older one that a lower power of two divides, so the newest one before any later edge is
among these. A cell evolves in the same way with or without the others.

*Versions*. A source only moves on: one of its states is a prefix of each later one, in which no
count (the clock, seen, refused or moved weight) is smaller. Among two states with one source and
epoch, the newer one has the later clock or, with equal clocks, has seen more. If neither is a
prefix of the other, two states have that name: a *fork*, which is rejected. The numbers in a merge
of several sources fall when one of them leaves. There the clock decides.

*Collections*. A collection's contents are a function of the set of joined states and the latest
clock that the collection itself received. They are the newest state per source and epoch, without
states whose clock is before the latest clock overall less the horizon.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from decaysketch.ecm.cells import Cells
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.matrix import Counters, Held
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.reorder import NOTHING, Events
from decaysketch.ecm.retention import chained, kept_ranks

__all__ = ["CellColumns", "CollectionState", "ECMState", "Lane", "LaneColumns", "Source", "name_of"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
T = TypeVar("T")

Source = str | int
"""Name of a source: text, or a number below 2^64."""


class CellColumns(NamedTuple):
    """A layer's cells as columns.

    Attributes:
        n: int64[depth, width], ones per cell.
        old: int64[cells], newest kept rank in each cell that lies before the horizon, 0 if none
            does.
        times: int64[m], cell by cell, newest first: times of kept ranks after ``old``, and of the
            ranks that remain of ``old`` when its lowest ones are removed.
    """

    n: Int64Array
    old: Int64Array
    times: Int64Array

    @classmethod
    def of(cls, cells: Cells, edge: int | None) -> CellColumns:
        """Build from cells. Times before ``edge`` are old, none if it is None. O(kept)."""
        ranks, times, offsets = cells.kept()
        counts = np.diff(offsets)
        old = np.zeros(len(counts), np.int64)
        if edge is not None:
            young = np.zeros(len(times) + 1, np.int64)
            np.cumsum(times >= edge, out=young[1:])
            first_old = offsets[:-1] + np.diff(young[offsets])
            some = first_old < offsets[1:]
            old[some] = ranks[first_old[some]]
            times = times[_has(ranks, np.repeat(old, counts))]
        return cls(cells.n.copy(), old, times)

    def restored(self, layer: Layer, params: ECMParams, first: int, clock: int) -> Cells:
        """Inverse of :meth:`of`, except for times beyond the reach of queries. O(kept log kept)."""
        times = self.times
        if self.old.any():
            ranks, offsets = kept_ranks(params.kind, layer.slots, self.n.ravel())
            has = _has(ranks, np.repeat(self.old, np.diff(offsets)))
            times = times[np.cumsum(has) - 1]
        return Cells.restore(layer, params.kind, params.seed, self.n, times, first, clock)


def _has(ranks: Int64Array, old: Int64Array) -> BoolArray:
    """Which kept ranks have their time in the state."""
    return (ranks > old) | chained(ranks, old)


@dataclass(frozen=True, slots=True)
class LaneColumns:
    """A lane as columns, in one array: there may be very many tiny ones.

    Attributes:
        first, clock: times of its first and last event.
        numbers: int64[layers + 2 cells + m]: for each layer, root first, the index after its times;
            the ones in each cell, all layers; their old ranks; and m times.
    """

    first: int
    clock: int
    numbers: Int64Array

    @classmethod
    def of(cls, first: int, clock: int, layers: Sequence[CellColumns]) -> LaneColumns:
        """Build from the columns of each layer, root first. O(times)."""
        ends = np.cumsum([len(each.times) for each in layers], dtype=np.int64)
        columns = zip(*((each.n.ravel(), each.old, each.times) for each in layers), strict=True)
        numbers = np.concatenate([ends, *(part for parts in columns for part in parts)])
        numbers.setflags(write=False)
        return cls(first, clock, numbers)

    def layers(self, params: ECMParams) -> Iterator[CellColumns]:
        """Columns for each layer, root first: views. O(layers)."""
        shapes, numbers = params.layers, self.numbers
        cells, start, at = sum(layer.cells for layer in shapes), 0, len(shapes)
        times = numbers[at + 2 * cells :]
        for layer, end in zip(shapes, numbers[: len(shapes)].tolist(), strict=True):
            n = numbers[at : at + layer.cells].reshape(layer.depth, layer.width)
            old = numbers[at + cells : at + cells + layer.cells]
            yield CellColumns(n, old, times[start:end])
            start, at = end, at + layer.cells


class Lane:
    """A lane, immutable: as cells, for queries, and as columns, for bytes.

    Each is built from the other when it is first needed, from any thread.

    Args:
        params: the stream's parameters.
        edge: the first time that is not older than the horizon. None if there is none.
        cells: cells for every layer, root first, which nobody may change; or
        columns: the same as columns.
    """

    __slots__ = ("_cells", "_columns", "_edge", "_lock", "_params")

    def __init__(
        self,
        params: ECMParams,
        edge: int | None,
        *,
        cells: tuple[Cells, ...] | None = None,
        columns: LaneColumns | None = None,
    ) -> None:
        assert (cells is None) != (columns is None)
        self._params = params
        self._edge = edge
        self._cells = cells
        self._columns = columns
        self._lock = threading.Lock()

    @property
    def cells(self) -> tuple[Cells, ...]:
        """Cells for every layer, root first. Do not change them."""
        with self._lock:
            if self._cells is None:
                self._cells = self._restored()
            return self._cells

    @property
    def columns(self) -> LaneColumns:
        """The same as columns. O(times)."""
        with self._lock:
            if self._columns is None:
                self._columns = self._listed()
            return self._columns

    @property
    def clock(self) -> int:
        """Time of the last event."""
        if self._columns is not None:
            return self._columns.clock
        assert self._cells is not None
        return _known(self._cells[0].clock)

    @property
    def seen(self) -> int:
        """Weight of its events."""
        if self._columns is not None:
            return int(self._columns.numbers[len(self._params.layers)])
        assert self._cells is not None
        return self._cells[0].seen

    def __reduce__(self) -> tuple[Callable[..., Lane], tuple[Any, ...]]:
        return _lane_of, (self._params, self._edge, self.columns)

    @property
    def kept(self) -> int:
        """Number of stored times, over all cells. O(times), once."""
        return int(self.columns.numbers[len(self._params.layers) - 1])

    @property
    def nbytes(self) -> int:
        """Current memory in bytes."""
        held = 0 if self._cells is None else sum(each.nbytes for each in self._cells)
        return held + (0 if self._columns is None else self._columns.numbers.nbytes)

    def _restored(self) -> tuple[Cells, ...]:
        columns, params = self._columns, self._params
        assert columns is not None
        return tuple(
            each.restored(layer, params, columns.first, columns.clock)
            for layer, each in zip(params.layers, columns.layers(params), strict=True)
        )

    def _listed(self) -> LaneColumns:
        assert self._cells is not None
        root = self._cells[0]
        layers = [CellColumns.of(cells, self._edge) for cells in self._cells]
        return LaneColumns.of(_known(root.first), _known(root.clock), layers)


def _lane_of(params: ECMParams, edge: int | None, columns: LaneColumns) -> Lane:
    return Lane(params, edge, columns=columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class ECMState:
    """One source at one moment. Immutable. Any thread may read it.

    Attributes:
        params: the stream's parameters.
        source: the source's name, a text, or a number below 2^64.
        epoch: 64 bits, new whenever a source starts without its state.
        clock: the latest time seen or received. None before the first.
        lanes: by falling clock.
        held: buffered events, by time and word.
        too_late: weight of rejected events, which were older than every lane.
        moved: weight of such events that were counted at a lane's time instead.
        merges: compaction levels that the counters went through. 0 for a single source.
        slack: relative error that these add to a count.
        written: its entry's bytes, once they were read or written; a cache.
    """

    params: ECMParams
    source: Source
    epoch: int
    clock: int | None = None
    lanes: tuple[Lane, ...] = ()
    held: Events = field(default=NOTHING)
    too_late: int = 0
    moved: int = 0
    merges: int = 0
    slack: float = 0.0
    written: bytes | None = field(default=None, init=False, repr=False)

    @property
    def identity(self) -> tuple[Source, int]:
        """(source, epoch): the name under which a newer state replaces this one."""
        return self.source, self.epoch

    @cached_property
    def seen(self) -> int:
        """Weight of all counted and buffered events."""
        return sum(lane.seen for lane in self.lanes) + self.held.weight

    @property
    def newest(self) -> int | None:
        """The latest event time. None if there is none."""
        if len(self.held):
            return int(self.held.times[-1])
        return self.lanes[0].clock if self.lanes else None

    @property
    def oldest(self) -> int | None:
        """The earliest event time. None if there is none."""
        times = [lane.columns.first for lane in self.lanes]
        if len(self.held):
            times.append(int(self.held.times[0]))
        return min(times, default=None)

    def __len__(self) -> int:
        """Number of stored times and buffered events. O(times), once."""
        return sum(lane.kept for lane in self.lanes) + len(self.held)

    @property
    def counters(self) -> Counters:
        """The counters that queries read."""
        held = self.held
        return Counters(
            [lane.cells for lane in self.lanes],
            self.slack,
            Held(held.words, held.times, held.weights) if len(held) else None,
            self.too_late,
            self.moved,
        )

    @property
    def nbytes(self) -> int:
        """Current memory in bytes."""
        written = 0 if self.written is None else len(self.written)
        return sum(lane.nbytes for lane in self.lanes) + 24 * len(self.held) + written

    # ------------------------------------------------------------------------------------ versions

    @property
    def version(self) -> tuple[int, int, int, int]:
        """A key that is larger for the newer of two states with one source and epoch."""
        clock = -(1 << 63) if self.clock is None else self.clock
        return clock, self.seen, self.too_late, self.moved

    def forked_from(self, other: ECMState) -> bool:
        """Whether two states with one source and epoch cannot have one history."""
        if self.version == other.version:
            return self.digest != other.digest
        if self.merges and other.merges:
            return False
        pairs = list(zip(self.version, other.version, strict=True))
        return any(a < b for a, b in pairs) and any(a > b for a, b in pairs)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the complete state, in hex: equal for equal states. O(times), once."""
        digest = hashlib.sha256(self.params.fingerprint)
        told = () if self.clock is None else (self.clock,)
        digest.update(repr((name_of(self.source), self.epoch, told)).encode("ascii"))
        digest.update(repr((self.too_late, self.moved, self.merges, self.slack)).encode("ascii"))
        for lane in self.lanes:
            columns = lane.columns
            digest.update(repr((columns.first, columns.clock)).encode("ascii"))
            for layer in columns.layers(self.params):
                for column in layer:
                    digest.update(column.astype("<i8", copy=False).tobytes())
        held = self.held
        digest.update(b"held")
        digest.update(held.words.astype("<u8", copy=False).tobytes())
        for column in (held.times, held.weights):
            digest.update(column.astype("<i8", copy=False).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True)
class CollectionState:
    """The newest states of a stream's sources. Immutable. Any thread may read it.

    Attributes:
        params: the stream's parameters, with the capacity in force.
        entries: in order of source and epoch. No two have both in common.
        told: the time that the caller set. None if an entry's clock is as late or later.
    """

    params: ECMParams
    entries: tuple[ECMState, ...] = ()
    told: int | None = None

    @classmethod
    def of(
        cls, params: ECMParams, entries: Iterable[ECMState], told: int | None = None
    ) -> CollectionState:
        """Build from entries in any order, and any received clock."""
        ordered = tuple(sorted(entries, key=lambda e: (name_of(e.source), e.epoch)))
        newest = max((e.clock for e in ordered if e.clock is not None), default=None)
        if told is not None and newest is not None and newest >= told:
            told = None
        return cls(params=params, entries=ordered, told=told)

    @cached_property
    def clock(self) -> int | None:
        """The latest time seen or received."""
        clocks = [state.clock for state in self.entries if state.clock is not None]
        return max(clocks, default=None) if self.told is None else self.told

    @cached_property
    def kept(self) -> int:
        """Number of stored times and buffered events. O(times)."""
        return sum(map(len, self.entries))

    def __len__(self) -> int:
        return self.kept

    def digest(self) -> str:
        """SHA-256 of the complete state, in hex: equal for equal states."""
        digest = hashlib.sha256(self.params.fingerprint)
        digest.update(self.params.capacity.to_bytes(8, "little"))
        if self.told is not None:
            digest.update(repr((self.told,)).encode("ascii"))
        for state in self.entries:
            digest.update(bytes.fromhex(state.digest))
        return digest.hexdigest()


def name_of(source: Source) -> tuple[int, bytes]:
    """The sort key for sources: numbers first, by size, then texts by their UTF-8."""
    if isinstance(source, int):
        return 0, source.to_bytes(8, "big")
    return 1, source.encode()


def _known(value: T | None) -> T:
    assert value is not None, "a lane has seen something"
    return value
