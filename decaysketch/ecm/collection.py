"""ECMCollection: the newest state of every source of a stream, and answers from all of them.

What it keeps
    A map from (source, epoch) to the newest state that was seen of it. An epoch is a source's new
    beginning, when it has lost its state: what it had counted before stays, under the old one.
What it promises
    Joining is idempotent, commutative and associative: any order, repetition, partition and tree of
    joins of the same states gives the same map and the same bytes. So states may be posted again,
    late, by several ways, and replicas agree. With a ``horizon`` entries whose clock is before the
    newest clock less the horizon are left out; as that clock only grows, that too is a function of
    the set. Two states of one name of which neither can have become the other, a *fork*, are
    refused with both named, and nothing is chosen.
Answers
    Cells are added over sources: that adds no error, where the order-preserving merge of the paper
    (section 5.1) adds some at each level. :meth:`ECMCollection.compact` merges, to send one state
    upstream that stands for many: k-way, at one go, so the result depends on the set alone. It
    carries ``slack``, by which sure ends are widened. What was compacted goes upstream *instead* of
    its parts, under one name, never beside them: nobody could tell that they are the same.
Limits
    Count-based windows are not added or merged: how many arrivals of one source are among the last
    N of all depends on how the sources interleave, which their sketches do not keep (figure 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from decaysketch.core.plausible_times import told
from decaysketch.core.view import Summarized
from decaysketch.ecm import sizing, wire
from decaysketch.ecm.cells import Cells, compact
from decaysketch.ecm.late import Events
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.questions import AskedOfCells
from decaysketch.ecm.sketch import ECMSketch, check_identity
from decaysketch.ecm.snapshot import ECMSnapshot
from decaysketch.ecm.state import ECMState, Lane, Source
from decaysketch.errors import (
    CapacityError,
    ConflictingSketchError,
    IncompatibleSketchError,
    ParameterError,
)

__all__ = ["ECMCollection"]

Entries = dict[tuple[Source, int], ECMState]


class ECMCollection(AskedOfCells, Summarized):
    """The newest states of the sources of a stream.

    Args:
        params: build parameters, which all sources share.
        members: sketches, snapshots or collections to begin with.

    Raises:
        ParameterError, IncompatibleSketchError, ConflictingSketchError: as :meth:`merge`.

    Not safe to use from two threads at once; its snapshots are.

    Example:
        >>> import decaysketch as ds
        >>> from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
        >>> params = ECMParams(width=55, depth=3, slots=10)
        >>> north, south = (ECMSketch(params, source=s, epoch=1) for s in ("north", "south"))
        >>> north.update(["ada", "bob"], [100, 130])
        >>> south.update(["ada"], [120])
        >>> both = ECMCollection(params, [north, south])
        >>> both.merge(north)  # posted again: nothing changes
        >>> both.count("ada", ds.decay.window(60)).value
        2.0
    """

    def __init__(
        self,
        params: ECMParams,
        members: Iterable[ECMSketch | ECMCollection | ECMSnapshot[Any]] = (),
    ) -> None:
        super().__init__()
        if not isinstance(params, ECMParams):
            raise ParameterError(f"params are {params!r}; an ECMCollection takes ECMParams")
        self._params = params
        self._entries: Entries = {}
        self._snapshot: ECMSnapshot[ECMCollection] | None = None
        self.merge(*members)

    # ----------------------------------------------------------------------------------- what it is

    @property
    def params(self) -> ECMParams:
        return self._params

    @property
    def clock(self) -> int | None:
        return _newest(self._entries.values())

    @property
    def newest(self) -> int | None:
        """The latest time of an event; None where there is none."""
        return self.snapshot().newest

    @property
    def seen(self) -> int:
        """Weight of all that the sources counted."""
        return self.snapshot().seen

    @property
    def too_late(self) -> int:
        """Weight of all that was older than every lane of its source, and refused."""
        return self.snapshot().too_late

    @property
    def entries(self) -> Mapping[tuple[Source, int], ECMState]:
        """States by (source, epoch), in their order."""
        return self.snapshot().entries

    @property
    def sources(self) -> tuple[Source, ...]:
        """Names, each once, in their order."""
        return tuple(dict.fromkeys(source for source, _ in self.entries))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes now; asking of sources builds their cells."""
        return sum(state.nbytes for state in self._entries.values())

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries)

    def _summary(self) -> dict[str, Any]:
        params = self._params
        fields: dict[str, Any] = {
            "sources": f"{len(self.sources):,}",
            "entries": f"{len(self):,}",
            "seen": f"{self.seen:,}",
            "cells": f"{params.depth} x {params.width}",
            "slots": params.slots,
            "kind": params.kind,
        }
        if self.clock is not None:
            fields["clock"] = told(params.time_unit, self.clock)
        return fields

    # ----------------------------------------------------------------------------------------- join

    def merge(self, *others: ECMSketch | ECMCollection | ECMSnapshot[Any]) -> None:
        """Take in the states of ``others``, of which each is kept where it is the newest of its
        source and epoch. None of them is changed, nor what they go on to count.

        The smallest of the capacities holds afterwards.

        Raises:
            IncompatibleSketchError: naming all parameters that differ.
            ConflictingSketchError: two states of one source and epoch that are a fork.
            CapacityError: more entries than the capacity.
            ParameterError: count-based sketches of several sources.
            TypeError: one of them is nothing of an ECM-sketch.
            In any case this collection is as it was.

        Complexity: O(entries), and O(times) for each pair of states that could be a fork.
        """
        entries, capacity = dict(self._entries), self._params.capacity
        for other in others:
            if not isinstance(other, (ECMSketch, ECMCollection, ECMSnapshot)):
                raise TypeError(f"cannot merge a {type(other).__name__} into an ECMCollection")
            if other.params.fingerprint != self._params.fingerprint:
                raise IncompatibleSketchError(self._params.differences(other.params))
            capacity = min(capacity, other.params.capacity)
            for state in other._states():
                _join(entries, state)
        entries = _within(entries, self._params.horizon)
        if len(entries) > capacity:
            raise CapacityError(len(entries), capacity)
        if self._params.clock == "arrivals" and len(entries) > 1:
            names = list(entries)[:2]
            raise ParameterError(
                f"entries {names[0]} and {names[1]} count arrivals; expected one: how many of one "
                "are among the last of both depends on how they interleave, which neither keeps"
            )
        if capacity < self._params.capacity:
            self._params = self._params.with_capacity(capacity)
        self._entries = entries
        self._touched()

    def __or__(self, other: ECMSketch | ECMCollection) -> ECMCollection:
        """A new collection of the states of both."""
        if not isinstance(other, (ECMSketch, ECMCollection)):
            return NotImplemented
        return ECMCollection(self._params, [self, other])

    def drop(self, source: Source) -> int:
        """Leave out all that came from a source, as where it is revoked; a state of it that is
        merged again is back.

        Returns:
            How many entries that were.
        """
        left = {name: state for name, state in self._entries.items() if name[0] != source}
        gone = len(self._entries) - len(left)
        self._entries = left
        self._touched()
        return gone

    # -------------------------------------------------------------------------------------- compact

    def compact(
        self,
        slots: int | None = None,
        steps: int = 0,
        *,
        source: Source = 0,
        epoch: int = 0,
    ) -> ECMSketch:
        """One sketch that stands for all entries: the order-preserving merge, k-way.

        To be sent upstream instead of the entries, always under the same name: the later one
        replaces the one before. What it goes on to count itself, if anything, is counted as by any
        other sketch.

        Args:
            slots: of its cells, at least 2; None for those of the parameters. Others make it a
                sketch of other parameters, which no collection of these takes.
            steps: in how many steps the ones of a gap are spread over it beyond the two ends that
                the paper has; 0 (default) to 64. 8 makes trees of many levels closer by a third, at
                ten times the cost.
            source, epoch: its name.

        Returns:
            A sketch of one lane. Its sure ends allow for ``slack``, the product over levels of
            ``1 + merge_error``, less 1; its bytes are a function of the set of entries.

        Raises:
            ParameterError: arguments outside of their domains; count-based windows.

        Complexity: O(times log sources).
        """
        params = self._params if slots is None else replace(self._params, slots=slots)
        check_identity(source, epoch)
        if params.clock == "arrivals":
            raise ParameterError(
                "clock is 'arrivals': count-based windows are not merged, as how many arrivals of "
                "one source are among the last of all depends on how they interleave"
            )
        states = self._states()
        lanes = [lane for state in states for lane in _lanes_of(state)]
        merges, slack = 0, 0.0
        merged: tuple[Lane, ...] = ()
        if lanes:
            merges = 1 + max(state.merges for state in states)
            error = sizing.merge_error(self._params.kind, self._params.slots)
            slack = sizing.slack((max(state.slack for state in states), error))
            cells = tuple(
                compact(parts, slots=layer.slots, steps=steps)
                for parts, layer in zip(zip(*lanes, strict=True), params.layers, strict=True)
            )
            merged = (Lane(params, _edge(params, self.clock), cells=cells),)
        return ECMSketch.from_state(
            ECMState(
                params=params, source=source, epoch=epoch, clock=self.clock, lanes=merged,
                too_late=sum(state.too_late for state in states),
                moved=sum(state.moved for state in states),
                merges=merges, slack=slack,
            )
        )  # fmt: skip

    # ------------------------------------------------------------------------------ state and bytes

    def _touched(self) -> None:
        self._snapshot = None
        self._changed()

    def _states(self) -> Sequence[ECMState]:
        return list(self.entries.values())

    def snapshot(self) -> ECMSnapshot[ECMCollection]:
        """What is held now, immutable, to be read from any thread. O(entries) after a change."""
        if self._snapshot is None:
            self._snapshot = ECMSnapshot(self._params, list(self._entries.values()), _thaw)
        return self._snapshot

    @classmethod
    def from_snapshot(cls, snapshot: ECMSnapshot[Any]) -> Self:
        """A collection of its own of the states of a snapshot. O(entries)."""
        return cls(snapshot.params, [snapshot])

    def sketch(self, source: Source, epoch: int) -> ECMSketch:
        """A sketch that goes on from one entry, as its source may that lost its own state.

        Raises:
            ParameterError: there is no such entry.
        """
        state = self._entries.get((source, epoch))
        if state is None:
            raise ParameterError(f"entry is {(source, epoch)!r}, which there is none of")
        return ECMSketch.from_state(state)

    def to_bytes(self) -> bytes:
        """Canonical bytes: equal sets of states give equal bytes on every platform. O(times)."""
        return self.snapshot().to_bytes()

    @classmethod
    def from_bytes(
        cls, blob: bytes | bytearray | memoryview, *, params: ECMParams | None = None
    ) -> Self:
        """Read a collection, or the one entry that the bytes of a sketch are.

        Raises:
            CorruptSketchError, IncompatibleSketchError: see :func:`decaysketch.ecm.wire.decode`.
        """
        found, states = wire.decode(blob, params=params)
        collection = cls(found)
        collection._entries = {state.identity: state for state in states}
        return collection

    def digest(self) -> str:
        """SHA-256 of all states, in hex: equal for equal collections, whatever the wire version."""
        return self.snapshot().digest

    def copy(self) -> Self:
        """An independent collection of the same states."""
        return type(self)(self._params, [self])

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[ECMParams, bytes]]:
        return type(self)._unpickled, (self._params, self.to_bytes())

    @classmethod
    def _unpickled(cls, params: ECMParams, blob: bytes) -> Self:
        return cls.from_bytes(blob, params=params)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same states, with equal parameters."""
        if not isinstance(other, ECMCollection):
            return NotImplemented
        return self.params == other.params and self.digest() == other.digest()

    __hash__ = None  # type: ignore[assignment]  # mutable


def _thaw(snapshot: ECMSnapshot[ECMCollection]) -> ECMCollection:
    return ECMCollection.from_snapshot(snapshot)


def _join(entries: Entries, state: ECMState) -> None:
    """Keep the newest state of each name."""
    held = entries.get(state.identity)
    if held is None:
        entries[state.identity] = state
        return
    if held is state:
        return
    if state.forked_from(held):
        raise ConflictingSketchError(state.identity, _told(held), _told(state))
    if state.version > held.version:
        entries[state.identity] = state


def _told(state: ECMState) -> str:
    return f"clock {state.clock}, seen {state.seen}, digest {state.digest[:16]}"


def _within(entries: Entries, horizon: int | None) -> Entries:
    """Without those whose clock is past the horizon."""
    newest = _newest(entries.values())
    if horizon is None or newest is None:
        return entries
    return {
        name: state
        for name, state in entries.items()
        if state.clock is None or state.clock >= newest - horizon
    }


def _newest(states: Iterable[ECMState]) -> int | None:
    clocks = [state.clock for state in states if state.clock is not None]
    return max(clocks, default=None)


def _edge(params: ECMParams, clock: int | None) -> int | None:
    """The first time that is no older than the horizon."""
    return None if params.horizon is None or clock is None else clock - params.horizon


def _lanes_of(state: ECMState) -> list[tuple[Cells, ...]]:
    """Its lanes, and one of what it holds back."""
    lanes = [lane.cells for lane in state.lanes]
    if len(held := state.held):
        lanes.append(_counted(state.params, held))
    return lanes


def _counted(params: ECMParams, events: Events) -> tuple[Cells, ...]:
    """A lane of events in order of time."""
    lane = tuple(Cells(layer, params.kind, params.seed) for layer in params.layers)
    for cells in lane:
        cells.update(events.words, events.times, events.weights)
    return lane
