"""A joint sample of several sources, with the sources that heard each message.

Sketches of one stream share their hash. So a message has the same top level ``l`` in each sketch.
A source ``s`` that heard it at time ``t_s`` stores it if and only if ``t_s`` exceeds its watermark
at that level, ``t_s > M_s[l]``. With ``T`` the latest time, and ``d_s`` a bound on ``T - t_s``:

    if T > M_s[l] + d_s for every source s, then each source that heard the message stores it.

*Proof.* ``t_s >= T - d_s > M_s[l]``. So the sources that store the message are the sources that
heard it. Such messages are the rows of a joint sample, a state in the family with the watermarks
``max_s (M_s + d_s)``. Its own estimator draws it. In the band at level ``i`` the inclusion
probability is ``p_i``, so ``sum f(h) g(now - T) RS / p`` is unbiased for ``sum f(h) g w``, for
every function ``f`` of the history ``h``, the set of sources that heard a message. The estimate is
exactly unbiased with ``d = 0``. With a guard, the measured bias is below 1 %. A level that
discarded nothing needs no guard.

The *guard* ``d`` is a bound that the user knows, or twice the longest observed lag between
duplicates, or unbounded. With an unbounded guard, only levels answer that discarded nothing in any
source.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT
from decaysketch.core.params import SketchParams
from decaysketch.core.records import Records
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.query.sample import Sample
from decaysketch.sources import _native

__all__ = ["UNBOUNDED", "Guards", "Incidences", "Joint", "Match", "guards_of"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

Guards = Int64Array
"""int64[sources]: bound on how far a source's duplicate lies before the latest one."""

UNBOUNDED = TIME_LIMIT
"""Guard of a source whose duplicates may lie anywhere."""

FEW = 64
"""With more sources, messages are only roughly sorted by time."""

ROW_BITS = 32
"""A row number in the samples of a joint is ``copy << ROW_BITS | row``."""

_SALT = secrets.randbits(64) | 1  # the hash table is fed from the network


class Held(Protocol):
    """The state of a source, rows latest first."""

    @property
    def params(self) -> SketchParams: ...
    @property
    def ids(self) -> Int64Array: ...
    @property
    def weights(self) -> Int64Array: ...
    @property
    def times(self) -> Int64Array: ...
    @property
    def value_keys(self) -> Int64Array: ...
    @property
    def levels(self) -> npt.NDArray[np.int8]: ...
    @property
    def watermarks(self) -> Int64Array: ...
    def __len__(self) -> int: ...


class Match:
    """Rows of several sources by message: each message once, with all its sources.

    Args:
        states: for one hash function, with parameters that are equal except for the capacity, at
            least one.
        records: the columns, if the stream has columns. Value keys are row numbers in them.

    Attributes:
        states, records: the same.
        groups: int32[rows of all sources], the message of each row.
        ids, levels: of each message. With up to :data:`FEW` sources they are sorted by time.
        latest: the latest time of its duplicates.
        degrees: int32, the number of sources that store it.
        histories: uint64, these sources as bits. None for more than :data:`FEW` sources.
        scattered: whether duplicates of a message differ in time.

    Complexity: O(rows), about 15 ns each.
    """

    def __init__(self, states: Sequence[Held], records: Records | None = None) -> None:
        self.states = states
        self.records = records
        self._heard = _native.Heard(
            [(s.ids, s.weights, s.times, s.value_keys, s.levels) for s in states]
        )
        few = len(states) <= FEW
        columns, groups, scattered = _native.match(
            self._heard, _SALT, states[0].params.max_weight, few
        )
        self.groups: Int32Array = groups
        self.scattered = scattered
        self.ids, self._weights, self.latest, self.levels, self.degrees, self.histories = columns

    def __len__(self) -> int:
        """Number of messages."""
        return len(self.ids)

    @property
    def rows(self) -> int:
        """Number of rows in all sources."""
        return len(self.groups)

    @cached_property
    def offsets(self) -> Int64Array:
        """int64[sources + 1], the first row for each source among all rows."""
        return np.cumsum([0, *map(len, self.states)])

    @cached_property
    def ranks(self) -> Int32Array:
        """int32[messages], their places by time, latest first."""
        ranks = np.arange(len(self), dtype=np.int32)
        if len(self.states) > FEW:
            ranks[np.argsort(-self.latest, kind="stable")] = ranks.copy()
        return ranks

    def misses(self, messages: Int64Array) -> Int64Array:
        """Return int64[3, sources]: messages that a source heard with others, messages that it
        heard alone, and the longest run that others heard, between two that it heard.

        Args:
            messages: latest first.
        """
        groups, degrees = self.groups, self.degrees
        if len(self.states) > FEW:
            groups, messages = self.ranks[groups], self.ranks[messages].astype(np.int64)
            degrees = np.empty_like(degrees)
            degrees[self.ranks] = self.degrees
        if self.scattered or len(self.states) > FEW:
            groups = groups.copy()
            for source in range(len(self.states)):
                groups[self.offsets[source] : self.offsets[source + 1]].sort()
        found: Int64Array = _native.misses(groups, self.offsets, degrees, messages)
        return found

    def messages_of(self, source: int) -> Int32Array:
        """Return the messages that a source stores, in row order."""
        return self.groups[self.offsets[source] : self.offsets[source + 1]]

    @cached_property
    def start(self) -> Int64Array:
        """int64[messages + 1], the first incidence for each message."""
        start = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.degrees, out=start[1:])
        return start

    @cached_property
    def weights(self) -> Int64Array:
        """int64[messages]."""
        return np.ones(len(self), np.int64) if self._weights is None else self._weights

    @cached_property
    def value_keys(self) -> Int64Array:
        """int64[messages], from the latest duplicate. Among equally late ones, the largest."""
        return _native.values(self._heard, self.latest, self.groups)

    @cached_property
    def _lags(self) -> tuple[Int64Array, Int64Array]:
        if not self.scattered:
            return np.zeros(len(self.states), np.int64), self.latest
        return _native.lags(self._heard, self.latest, self.groups)

    @property
    def lags(self) -> Int64Array:
        """int64[sources], the longest time by which a source's duplicate lies before the latest
        one. O(rows).
        """
        return self._lags[0]

    @property
    def earliest(self) -> Int64Array:
        """int64[messages], the time for each message's earliest duplicate."""
        return self._lags[1]

    @cached_property
    def squared_degrees(self) -> int:
        """Cost of the overlaps for all pairs, in steps of about 2 ns."""
        degrees = self.degrees.astype(np.int64)
        return int(degrees @ degrees)

    @cached_property
    def weights_disagree(self) -> bool:
        """Whether an id came with several weights, so that it looks like several messages."""
        if self.states[0].params.max_weight == 1:
            return False
        return len(np.unique(self.ids)) < len(self.ids)

    def gather(self, marks: Int64Array) -> Incidences:
        """Return sources by message under watermarks, int64[sources, levels]. O(rows)."""
        found = _native.gather(self._heard, marks, self.groups, self.start, self.scattered)
        return Incidences(self.start, *found)


class Incidences(NamedTuple):
    """Sources by message. The sources for message ``j`` stand from ``start[j]`` to ``start[j +
    1]``.
    """

    start: Int64Array
    sources: Int32Array
    times: Int64Array  # of each duplicate; empty where all duplicates agree
    bands: npt.NDArray[np.int8]  # the level from which its source is complete at that time


def guards_of(lags: Int64Array, guard: int | str) -> Guards:
    """Return the guard of each source.

    Args:
        lags: int64[sources], the longest observed lag of each.
        guard: a known bound, "auto" for twice the longest observed lag, or "unbounded".
    """
    if guard == "auto":
        twice: Guards = 2 * np.minimum(lags, UNBOUNDED // 2)
        return twice
    return np.full(len(lags), UNBOUNDED if guard == "unbounded" else int(guard), np.int64)


def _shifted(marks: Int64Array, guards: Guards) -> Int64Array:
    """Return watermarks later by the guards. A level that discarded nothing needs none."""
    later = np.minimum(np.maximum(marks, -TIME_LIMIT) + guards[:, np.newaxis], TIME_LIMIT)
    later[guards >= UNBOUNDED] = TIME_LIMIT
    return np.where(marks == NO_WATERMARK, marks, later)


def _ties_ordered(order: Int64Array, times: Int64Array, match: Match) -> Int64Array:
    """Return messages as a state orders its rows: latest first, then by falling ids and weights.
    Given are messages by time alone, and their times.
    """
    equal = times[1:] == times[:-1]
    if equal.any():
        tied = np.zeros(len(order), np.bool_)
        tied[1:] |= equal
        tied[:-1] |= equal
        places = np.flatnonzero(tied)
        some = order[places]
        keys = -match.weights[some], -match.ids[some], -times[places]
        order[places] = some[np.lexsort(keys)]
    return order


@dataclass(frozen=True, eq=False)
class Columns:
    """The rows of a joint sample, latest first, for the state of its family."""

    ids: Int64Array
    weights: Int64Array
    times: Int64Array
    levels: npt.NDArray[np.int8]
    watermarks: Int64Array


class Joint(ABC):
    """The messages with a known history, for one hash function.

    Args:
        match: rows of the sources by message.
        guards: see :data:`Guards`.
        copy: the number of the hash function.

    Attributes:
        match: the same.
        marks: int64[sources, levels], watermarks later by the guards.
        messages: int[n], the message of each row, latest first.
    """

    def __init__(self, match: Match, guards: Guards, copy: int = 0) -> None:
        self.match = match
        self.guards = guards
        self.copy = copy
        self.marks = _shifted(np.stack([s.watermarks for s in match.states]), guards)

    @cached_property
    def watermarks(self) -> Int64Array:
        """int64[levels], the latest among all sources."""
        latest: Int64Array = self.marks.max(axis=0)
        return latest

    @cached_property
    def messages(self) -> Int64Array:
        match = self.match
        order = _native.latest_first(match.latest, match.levels, self.watermarks)
        self.times = match.latest[order]  # ties in other order have the same times
        return _ties_ordered(order, self.times, match)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.messages)

    @cached_property
    def times(self) -> Int64Array:
        """int64[n], each row's latest time."""
        latest: Int64Array = self.match.latest[self.messages]
        return latest

    @cached_property
    def columns(self) -> Columns:
        """The rows, for the family's state."""
        match, rows = self.match, self.messages
        return Columns(
            match.ids[rows], match.weights[rows], self.times, match.levels[rows],
            self.watermarks,
        )  # fmt: skip

    @cached_property
    def value_keys(self) -> Int64Array:
        """int64[n], from the latest duplicate of each row."""
        keys: Int64Array = self.match.value_keys[self.messages]
        return keys

    @cached_property
    def degrees(self) -> Int32Array:
        """int32[n], the number of sources that heard each row."""
        found: Int32Array = self.match.degrees[self.messages]
        return found

    @cached_property
    def _places(self) -> Int64Array:
        """int64[messages], the row of each message, -1 if its history is unknown."""
        places = np.full(len(self.match), -1, np.int64)
        places[self.messages] = np.arange(len(self))
        return places

    def rows_of(self, source: int) -> Int64Array:
        """Return the rows that a source heard, in no order. O(its rows)."""
        places: Int64Array = self._places[self.match.messages_of(source)]
        return places[places >= 0]

    def heard(self, source: int) -> BoolArray:
        """Return bool[n], whether a source heard each row. O(n)."""
        found = np.zeros(len(self), np.bool_)
        found[self.rows_of(source)] = True
        return found

    def values_of(self, source: int) -> Int64Array:
        """Return int64[n], the value keys of a source's own duplicates, missing if it has none."""
        found = np.full(len(self), MISSING_KEY, np.int64)
        places = self._places[self.match.messages_of(source)]
        found[places[places >= 0]] = self.match.states[source].value_keys[places >= 0]
        return found

    def stamps(self, source: int) -> Int64Array:
        """Return int64[n], the times of a source's own duplicates, or of the latest one if it
        has none.
        """
        found = self.times.copy()
        places = self._places[self.match.messages_of(source)]
        found[places[places >= 0]] = self.match.states[source].times[places >= 0]
        return found

    @cached_property
    def incidences(self) -> Incidences:
        """Sources by message, each with its own level."""
        return self.match.gather(self.marks)

    @abstractmethod
    def draw(self, decay: Decay | None, now: int) -> Sample:
        """Return the sample of the rows under a decay. Its ``value_keys`` are row numbers, see
        :data:`ROW_BITS`.

        Raises:
            ParameterError, UnanswerableQueryError: as in the family's estimator.
        """

    def counted(self, decay: Decay | None, now: int) -> slice | npt.NDArray[np.integer]:
        """Return the rows with weight under a decay, oldest first. Errors as in :meth:`draw`."""
        _, rows = number_of(self.draw(decay, now))
        rows = np.sort(rows, kind="stable")[::-1]  # few runs; a row may be in several strata
        return rows if (rows[1:] < rows[:-1]).all() else np.unique(rows)[::-1]

    @property
    def numbers(self) -> Int64Array:
        """Return int64[n], row numbers as in the sample."""
        return np.arange(len(self), dtype=np.int64) | np.int64(self.copy << ROW_BITS)


def number_of(sample: Sample) -> tuple[int, npt.NDArray[np.intp]]:
    """Return the hash function and the rows of a sample from :meth:`Joint.draw`."""
    keys = sample.value_keys
    copy = int(keys[0]) >> ROW_BITS if len(keys) else 0
    return copy, (keys & ((1 << ROW_BITS) - 1)).astype(np.intp, copy=False)
