"""ECMCollection: the newest state per source in a stream, and queries over all sources.

Contents
    A map from (source, epoch) to the newest state seen. A source begins a new epoch when it has
    lost its state. Earlier counts stay, under the old epoch.
Guarantees
    Joining is idempotent, commutative and associative: any order, repetition, partition and join
    tree over the same states gives the same map and the same bytes. So states may be posted again,
    late, by several paths, and replicas agree. With a ``horizon``, entries with a clock before the
    newest clock less the horizon are dropped. That clock only grows, so this too is a function of
    the set. If two states have one name and neither can have become the other, they are a *fork*.
    It is rejected with both named, and neither is chosen.
Rows
    A collection also counts rows itself. It alone must count all events of such a source and epoch.
    They wait until a query, or until there are 2^22 of them, and are counted in time order. So
    their order and batches do not matter. With a horizon, an entry begins again if its next event
    is later than its clock by more than the horizon: no query can reach its contents any more.
Queries
    Cells are added over sources. That adds no error, while the paper's order-preserving merge
    (section 5.1) adds some at each level. :meth:`ECMCollection.compact` merges, to send one state
    upstream that represents many: k-way, at once, so the result depends on the set alone. It
    carries ``slack``, which widens guaranteed bounds. Send a compacted state *instead* of its
    parts, under one name, never in addition to them: the receiver cannot detect the overlap.
Limits
    Count-based windows are not added or merged. How many arrivals from one source are among the
    last N overall depends on how the sources interleave, and their sketches do not store that
    (figure 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import Sketch, Stats
from decaysketch.contract.snapshot import Snapshot
from decaysketch.core.observations import TIME_LIMIT, check_time, check_within
from decaysketch.core.plausible_times import told
from decaysketch.core.row_check import TIMES, Verdict, VerdictArray
from decaysketch.core.time_units import Instant, in_units
from decaysketch.ecm import sizing, wire
from decaysketch.ecm.cells import Cells, compact
from decaysketch.ecm.key_queries import AskedOfCells
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.reorder import Events
from decaysketch.ecm.sketch import (
    ENOUGH,
    ECMSketch,
    check_identity,
    check_sum,
    fits,
    plain_kind,
    read_events,
)
from decaysketch.ecm.snapshot import ECMSnapshot
from decaysketch.ecm.state import CollectionState, ECMState, Lane, Source
from decaysketch.errors import (
    CapacityError,
    ConflictingSketchError,
    ObservationError,
    ParameterError,
)

__all__ = ["ECMCollection"]

Name = tuple[Source, int]
Entries = dict[Name, ECMState]

_MOST_WAITING = 1 << 22  # rows
_ONE = (str, bytes, int)
_SMALL = 1 << 13  # pieces up to this many rows are copied together


class ECMCollection(Sketch, AskedOfCells):
    """The newest states of a stream's sources.

    Args:
        params: build parameters, which all sources share.
        members: sketches, snapshots or collections to begin with.

    Raises:
        ParameterError, IncompatibleSketchError, ConflictingSketchError: as :meth:`merge`.

    Not safe to use from two threads at once. Its snapshots are.

    Example:
        >>> import decaysketch as ds
        >>> from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
        >>> params = ECMParams(width=55, depth=3, slots=10)
        >>> north, south = (ECMSketch(params, source=s, epoch=1) for s in ("north", "south"))
        >>> north.update(["ada", "bob"], [100, 130])
        >>> south.update(["ada"], [120])
        >>> both = ECMCollection(params, [north, south])
        >>> both.merge(north)  # posted again: nothing changes
        >>> both.key_count("ada", ds.decay.window(60)).value
        2.0
    """

    snapshot_type = ECMSnapshot

    def __init__(
        self,
        params: ECMParams,
        members: Iterable[ECMSketch | ECMCollection | ECMSnapshot] = (),
    ) -> None:
        if not isinstance(params, ECMParams):
            raise ParameterError(f"params are {params!r}; an ECMCollection takes ECMParams")
        self._params = params
        self._bags = ()
        self._told: int | None = None
        self._entries: Entries = {}
        self._builders: dict[Name, ECMSketch] = {}  # for the sources that are counted here
        self._rows: dict[Name, list[Events]] = {}  # waiting events
        self._waiting = 0  # number of waiting events
        self._weights: dict[Name, int] = {}  # of waiting events, and counted before them
        self._singles: list[tuple[Any, int, int, Source, int]] = []
        self.merge(*members)

    # ----------------------------------------------------------------------------------- properties

    @property
    def params(self) -> ECMParams:
        return self._params

    @property
    def clock(self) -> int | None:
        return self.snapshot().clock

    @property
    def newest(self) -> int | None:
        """The latest event time. None if there is none."""
        return self.snapshot().newest

    @property
    def seen(self) -> int:
        """Weight of all events that the sources counted."""
        return self.snapshot().seen

    @property
    def too_late(self) -> int:
        """Weight of all rejected events, which were older than every lane of their source."""
        return self.snapshot().too_late

    @property
    def entries(self) -> Mapping[Name, ECMState]:
        """States by (source, epoch), in their order."""
        return self.snapshot().entries

    @property
    def sources(self) -> tuple[Source, ...]:
        """Names, each once, in their order."""
        return tuple(dict.fromkeys(source for source, _ in self.entries))

    @property
    def nbytes(self) -> int:
        """Current memory in bytes. Queries on sources build their cells."""
        held = sum(state.nbytes for state in self._entries.values())
        return held + sum(each.nbytes for each in self._builders.values()) + 24 * self._waiting

    def __len__(self) -> int:
        """Number of stored times and buffered events. O(times) after a change."""
        return len(self.snapshot())

    def stats(self) -> Stats:
        return Stats(**self._counted())

    def _summary(self) -> dict[str, Any]:
        held, params = self.snapshot(), self._params
        fields: dict[str, Any] = {
            "sources": f"{len(self.sources):,}",
            "entries": f"{len(held.entries):,}",
            "seen": f"{held.seen:,}",
            "cells": f"{params.depth} x {params.width}",
            "slots": params.slots,
            "kind": params.kind,
        }
        if held.clock is not None:
            fields["clock"] = told(params.time_unit, held.clock)
        return fields

    # ----------------------------------------------------------------------------------------- rows

    def update(
        self,
        keys: Any,
        timestamps: npt.ArrayLike | None = None,
        weights: npt.ArrayLike = 1,
        *,
        source: Source | Sequence[Source] = 0,
        epoch: int | Sequence[int] | npt.NDArray[np.integer[Any]] = 0,
        not_after: Instant | None = None,
    ) -> None:
        """Count events from sources: columns, or one event as a key and a plain time.

        One collection, or sketch, must count all events of a source and epoch: states that count
        parts conflict, or replace each other.

        Args:
            keys, timestamps, weights: as in :meth:`ECMSketch.update
                <decaysketch.ecm.ECMSketch.update>`.
            source: the events' source, or a column of sources.
            epoch: the source's epoch, or a column of epochs.
            not_after: rows later than this are rejected and counted in ``stats().too_late``.

        Raises:
            ObservationError: as in the sketch. Nothing in the batch was accepted.
            CapacityError: more entries than the capacity. Nothing was accepted.
            ParameterError: an invalid source, epoch or time, times if arrivals are counted, or
                arrivals from several sources.

        Complexity: O(depth) for each event and layer, and sorting, when they are counted.
        """
        if self._params.clock == "arrivals":
            if not_after is not None:
                raise ParameterError(
                    f"not_after is {not_after!r} and clock is 'arrivals'; arrivals have no times"
                )
            self._count_arrivals(keys, timestamps, weights, source, epoch)
            return
        if self.looks_at_times:
            self._look_at(timestamps)
        if not_after is None and self._gather(keys, timestamps, weights, source, epoch):
            return
        self._count_singles()
        given = read_events(self._params, keys, timestamps, weights)
        check_within("timestamps", given.times, TIMES)
        parts = self._by_name(given, source, epoch)
        if not_after is not None:
            moment = in_units(not_after, self._params.time_unit, name="not_after")
            limit = check_time("not_after", moment)
            parts = {name: part.part(part.times <= limit) for name, part in parts.items()}
        taken = sum(map(len, parts.values()))
        self._wait({name: found for name, each in parts.items() if len(found := each.counted())})
        self._fed += len(given)
        self._too_late += len(given) - taken
        self._changed()
        if self._waiting >= _MOST_WAITING:
            self._flush()

    def _gather(self, key: Any, time: Any, weight: Any, source: Any, epoch: Any) -> bool:
        """Buffer a single plain event, from the source of the waiting events. Return False, with
        nothing accepted, for others.
        """
        singles = self._singles
        if (
            type(time) is not int
            or type(weight) is not int
            or type(epoch) is not int
            or type(key) is not (type(singles[0][0]) if singles else plain_kind(key))
            or type(source) not in (str, int)
            or not -TIME_LIMIT <= time <= TIME_LIMIT
            or not 0 < weight < 1 << 32
            or not fits(self._params, key)
            or self._weights.get((source, epoch), 1 << 61) >= 1 << 61
            or len(self._entries) + len(self._rows) > self._params.capacity
        ):
            return False
        singles.append((key, time, weight, source, epoch))
        if len(singles) >= ENOUGH:
            self._count_singles()
        self._fed += 1
        self._changed()
        return True

    def _count_singles(self) -> None:
        """Move single events, each validated on arrival, to the waiting batches."""
        if not self._singles:
            return
        keys, times, weights, sources, epochs = map(list, zip(*self._singles, strict=True))
        self._singles = []
        given = read_events(self._params, keys, times, weights)
        self._wait(self._by_name(given, sources, epochs))

    def _wait(self, parts: Mapping[Name, Events]) -> None:
        """Buffer validated events until they are counted."""
        self._check_taken(parts)
        for name, part in parts.items():
            _append(self._rows.setdefault(name, []), part)
            self._weights[name] = self._weights.get(name, self._seen_of(name)) + part.weight
            self._waiting += len(part)

    def _count_arrivals(
        self, keys: Any, timestamps: Any, weights: Any, source: Any, epoch: Any
    ) -> None:
        """Count events by their order, which is the order of updates."""
        check_identity(source, epoch)
        self._check_one([*self._entries, (source, epoch)])
        builder = self._builder((source, epoch))
        before = builder.seen
        builder.update(keys, timestamps, weights)
        self._builders[source, epoch] = builder
        self._entries[source, epoch] = builder.state()
        self._fed += builder.seen - before
        self._changed()

    @staticmethod
    def _by_name(given: Events, source: Any, epoch: Any) -> dict[Name, Events]:
        """Group events by source and epoch."""
        named = {"source": _plain(source), "epoch": _plain(epoch)}
        if all(isinstance(each, _ONE) for each in named.values()):
            whose = named["source"], named["epoch"]
            check_identity(*whose)
            return {whose: given}
        columns = []
        for name, column in named.items():
            entries = [column] * len(given) if isinstance(column, _ONE) else list(column)
            if len(entries) != len(given):
                raise ObservationError(
                    f"columns have unequal lengths: {name} has {len(entries)} rows, keys has "
                    f"{len(given)}",
                    column=name,
                )
            columns.append(entries)
        rows: dict[Name, list[int]] = {}
        for row, whose in enumerate(zip(*columns, strict=True)):
            rows.setdefault(whose, []).append(row)
        for whose in rows:
            check_identity(*whose)
        return {whose: given.part(np.array(of, np.intp)) for whose, of in rows.items()}

    def _check_taken(self, parts: Mapping[Name, Events]) -> None:
        """Reject events that would bring a source's seen weight to 2^62, or exceed the capacity."""
        for name, part in parts.items():
            check_sum(self._weights.get(name, self._seen_of(name)), part.weights)
        if len(self._entries) + len(self._rows) + len(parts) <= self._params.capacity:
            return
        clocks = {name: state.clock for name, state in self._entries.items()}
        waiting = [(name, each) for name, of in self._rows.items() for each in of]
        for name, part in [*waiting, *parts.items()]:
            newest, before_ = int(part.times.max()), clocks.get(name)
            clocks[name] = newest if before_ is None else max(before_, newest)
        count = len(_young(clocks, self._told, self._params.horizon))
        if count > self._params.capacity:
            raise CapacityError(count, self._params.capacity)

    def _seen_of(self, name: Name) -> int:
        """Weight of all events from a source that are not waiting."""
        if (builder := self._builders.get(name)) is not None:
            return builder.seen + builder.too_late
        state = self._entries.get(name)
        return 0 if state is None else state.seen + state.too_late

    def _builder(self, name: Name) -> ECMSketch:
        """The sketch that counts for a source here, and continues from its known state."""
        if (builder := self._builders.get(name)) is not None:
            return builder
        if (state := self._entries.get(name)) is not None:
            return ECMSketch.from_state(state)
        source, epoch = name
        return ECMSketch(self._params, source=source, epoch=epoch)

    def _flush(self) -> None:
        """Count the waiting rows. They were validated on arrival."""
        self._count_singles()
        if not self._rows:
            return
        for name, parts in self._rows.items():
            events, builder = Events.joined(parts).by_time(), self._builder(name)
            if (begun := self._begins(builder.clock, events)) is not None:
                builder = ECMSketch(self._params, source=name[0], epoch=name[1])
                events = events.part(slice(begun, None))
            builder.take(events)
            self._builders[name] = builder
            self._entries[name] = builder.state()
        self._rows, self._weights, self._waiting = {}, {}, 0
        self._forget()

    def _forget(self) -> None:
        """Drop entries that are two horizons behind the clock: they would begin again at any
        event that a query could reach.
        """
        horizon, newest = self._params.horizon, _newest(self._entries.values(), self._told)
        if horizon is None:
            return
        for name, state in list(self._entries.items()):
            if _is_past(state.clock, newest, 2 * horizon):
                del self._entries[name]
                self._builders.pop(name, None)

    def _begins(self, clock: int | None, events: Events) -> int | None:
        """The index of the last event that is so late that no query can reach anything before
        it.
        """
        if self._params.horizon is None:
            return None
        before = events.times[:-1]
        first = events.times[:1]
        if clock is not None:
            before, first = np.maximum(before, clock), np.array([clock])
        gaps = events.times - np.concatenate([first, before])
        begun = np.flatnonzero(gaps > self._params.horizon)
        return int(begun[-1]) if len(begun) else None

    def verdicts(
        self,
        keys: Any,
        timestamps: npt.ArrayLike | None = None,
        weights: npt.ArrayLike = 1,
        *,
        source: Source | Sequence[Source] = 0,
        epoch: int | Sequence[int] | npt.NDArray[np.integer[Any]] = 0,
    ) -> VerdictArray:
        """Return for each row whether it is counted (``RETAINED``), or is no event or older than
        every lane of its source (``BELOW_WATERMARK``). Arguments as :meth:`update`.
        """
        self._flush()
        given = read_events(self._params, keys, timestamps, weights)
        found = np.full(len(given), Verdict.RETAINED, np.int8)
        numbered = replace(given, weights=np.arange(len(given)), unit=False)
        for name, part in self._by_name(numbered, source, epoch).items():
            counted = self._builder(name).accepts(part)
            found[part.weights[~counted]] = Verdict.BELOW_WATERMARK
        found[given.weights == 0] = Verdict.BELOW_WATERMARK
        return found

    def advance(self, now: Instant) -> None:
        """Set the collection's own clock, in addition to the sources' clocks. It never falls. With
        a horizon, entries past it are dropped.

        Raises:
            ParameterError: not a time, or a time if arrivals are counted.
        """
        now = check_time("now", in_units(now, self._params.time_unit))
        if self._params.clock == "arrivals":
            raise ParameterError(f"now is {now} and clock is 'arrivals'; only events advance that")
        if self._told is None or now > self._told:
            self._told = now
            self._changed()

    # ----------------------------------------------------------------------------------------- join

    def merge(self, *others: ECMSketch | ECMCollection | Snapshot) -> None:
        """Join the states of ``others``. Each is kept if it is the newest for its source and epoch.
        The others do not change, and continue to count independently.

        The smallest capacity applies afterwards. States past the horizon of the latest clock
        overall are dropped first.

        Raises:
            IncompatibleSketchError: with all parameters that differ.
            ConflictingSketchError: two states with one source and epoch that are a fork.
            CapacityError: more entries than the capacity.
            ParameterError: count-based sketches from several sources.
            TypeError: one argument is not an ECM-sketch. In any case this collection does not
                change.

        Complexity: O(entries), and O(times) for each pair of states that could be a fork.
        """
        super().merge(*others)  # type: ignore[arg-type]  # also sketches of one source

    def _takes(self, other: object) -> bool:
        return isinstance(other, ECMSketch) or self._is_like(other)

    def _take(self, others: Sequence[Any], capacity: int) -> None:
        held = [each if isinstance(each, ECMSnapshot) else each.snapshot() for each in others]
        theirs = [each.state for each in held]
        clocks = [each.told for each in theirs if each.told is not None]
        told = max(clocks if self._told is None else [*clocks, self._told], default=None)
        states = [*self._entries.values(), *(one for each in theirs for one in each.entries)]
        newest = _newest(states, told)
        entries = _joined(
            [each for each in states if not _is_past(each.clock, newest, self._params.horizon)]
        )
        if len(entries) > capacity:
            raise CapacityError(len(entries), capacity)
        self._check_one(list(entries))
        if capacity < self._params.capacity:
            self._params = self._params.with_capacity(capacity)
        self._builders = {
            name: builder
            for name, builder in self._builders.items()
            if entries.get(name, self._entries[name]) is self._entries[name]
        }
        self._entries, self._told = entries, told

    def _check_one(self, names: Sequence[Name]) -> None:
        if self._params.clock == "arrivals" and len({*names}) > 1:
            raise ParameterError(
                f"entries {names[0]} and {names[1]} count arrivals; expected one: how many of one "
                "are among the last of both depends on how they interleave, which neither keeps"
            )

    def _empty(self) -> Self:
        return type(self)(self._params)

    def _fold(self, *columns: Any) -> None:
        raise AssertionError("rows wait by source")

    def _lower_capacity(self, capacity: int) -> None:
        count = len(self.entries)
        if count > capacity:
            raise CapacityError(count, capacity)
        self._params = self._params.with_capacity(capacity)

    def trim(self) -> None:
        """Release memory that no state needs: sketches that count for sources here, the snapshot
        and cached query results. Changes no state. O(1).
        """
        self._flush()
        self._builders = {}
        self._changed()

    def drop(self, source: Source) -> int:
        """Drop all entries from a source, for example when it is revoked. Merging one of its states
        again brings it back.

        Returns:
            The number of dropped entries.
        """
        self._flush()
        left = {name: state for name, state in self._entries.items() if name[0] != source}
        gone = len(self._entries) - len(left)
        self._entries = left
        self._builders = {n: each for n, each in self._builders.items() if n[0] != source}
        self._changed()
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
        """Return one sketch that represents all entries: the order-preserving merge, k-way.

        Send it upstream instead of the entries, always under the same name: the later one
        replaces the one before. It may count further events itself, as any other sketch does.

        Args:
            slots: slots of its cells, at least 2. None for the parameters' slots. Other slots make
                it a sketch with other parameters, which no collection with these accepts.
            steps: number of steps over which a gap's ones are spread, beyond the two ends in
                the paper: 0 (default) to 64. 8 makes trees with many levels closer by a third, at
                ten times the cost.
            source, epoch: its name.

        Returns: A sketch with one lane. Its guaranteed bounds allow for ``slack``, the product over
            levels of ``1 + merge_error``, less 1. Its bytes are a function of the set of entries.

        Raises:
            ParameterError: arguments outside their domains, or count-based windows.

        Complexity: O(times log sources).
        """
        params = self._params if slots is None else replace(self._params, slots=slots)
        check_identity(source, epoch)
        if params.clock == "arrivals":
            raise ParameterError(
                "clock is 'arrivals': count-based windows are not merged, as how many arrivals of "
                "one source are among the last of all depends on how they interleave"
            )
        states = list(self.entries.values())
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

    def snapshot(self) -> ECMSnapshot:
        """The current contents, immutable. Any thread may read it. O(entries) after a change."""
        found = super().snapshot()
        assert isinstance(found, ECMSnapshot)
        return found

    def _freeze(self) -> ECMSnapshot:
        horizon, states = self._params.horizon, self._entries.values()
        newest = _newest(states, self._told)
        young = [state for state in states if not _is_past(state.clock, newest, horizon)]
        if len(young) > self._params.capacity:
            raise CapacityError(len(young), self._params.capacity)
        state = CollectionState.of(self._params, young, self._told)
        return ECMSnapshot(state, type(self).from_state)

    def state(self) -> CollectionState:
        """The current contents as defined in :mod:`decaysketch.ecm.state`."""
        return self.snapshot().state

    @classmethod
    def from_state(cls, state: CollectionState) -> Self:
        """Build a collection from a state. O(entries)."""
        collection = cls(state.params)
        collection._entries = {each.identity: each for each in state.entries}
        collection._told = state.told
        return collection

    def sketch(self, source: Source, epoch: int) -> ECMSketch:
        """Return a sketch that continues from one entry, for a source that lost its own state.

        Raises:
            ParameterError: there is no such entry.
        """
        state = self.entries.get((source, epoch))
        if state is None:
            raise ParameterError(f"entry is {(source, epoch)!r}, which there is none of")
        return ECMSketch.from_state(state)

    @classmethod
    def from_bytes(
        cls, blob: bytes | bytearray | memoryview, *, params: ECMParams | None = None
    ) -> Self:
        """Read a collection, or a single sketch's bytes as one entry.

        Raises:
            CorruptSketchError, IncompatibleSketchError: see :func:`decaysketch.ecm.wire.decode`.
        """
        return cls.from_state(wire.decode(blob, params=params))


def _joined(states: Sequence[ECMState]) -> Entries:
    """Return the newest state per name.

    Each other state is compared with the newest alone, so that nothing depends on the order: a fork
    that history has passed contradicts data that no longer exist.
    """
    entries: Entries = {}
    for state in states:
        held = entries.setdefault(state.identity, state)
        if held is not state and state.version > held.version:
            entries[state.identity] = state
    for state in states:
        held = entries[state.identity]
        if held is not state and state.forked_from(held):
            raise ConflictingSketchError(state.identity, _told(held), _told(state))
    return entries


def _told(state: ECMState) -> str:
    return f"clock {state.clock}, seen {state.seen}, digest {state.digest[:16]}"


def _plain(names: Any) -> Any:
    """A name, or a column of names, without NumPy types."""
    return names.tolist() if isinstance(names, (np.ndarray, np.generic)) else names


def _append(parts: list[Events], part: Events) -> None:
    """Append to a list. Small neighbours are joined. O(log) copies per row."""
    parts.append(part)
    while len(parts) > 1 and len(parts[-2]) <= len(parts[-1]) < _SMALL:
        parts[-2:] = [Events.joined(parts[-2:])]


def _newest(states: Iterable[ECMState], told: int | None) -> int | None:
    """The latest clock overall."""
    clocks = [state.clock for state in states if state.clock is not None]
    return max(clocks if told is None else [*clocks, told], default=None)


def _is_past(clock: int | None, newest: int | None, horizon: int | None) -> bool:
    """Whether no query can reach events counted up to a clock any more."""
    if clock is None or newest is None or horizon is None:
        return False
    return clock < newest - horizon


def _young(clocks: Mapping[Name, int | None], told: int | None, horizon: int | None) -> list[Name]:
    """The names of entries that are not past the horizon."""
    known = [clock for clock in (*clocks.values(), told) if clock is not None]
    newest = max(known, default=None)
    return [name for name, clock in clocks.items() if not _is_past(clock, newest, horizon)]


def _edge(params: ECMParams, clock: int | None) -> int | None:
    """The first time that is not older than the horizon."""
    return None if params.horizon is None or clock is None else clock - params.horizon


def _lanes_of(state: ECMState) -> list[tuple[Cells, ...]]:
    """Its lanes, plus one lane with its buffered events."""
    lanes = [lane.cells for lane in state.lanes]
    if len(held := state.held):
        lanes.append(_counted(state.params, held))
    return lanes


def _counted(params: ECMParams, events: Events) -> tuple[Cells, ...]:
    """A lane from events in time order."""
    lane = tuple(Cells(layer, params.kind, params.seed) for layer in params.layers)
    for cells in lane:
        cells.update(events.words, events.times, events.weights)
    return lane
