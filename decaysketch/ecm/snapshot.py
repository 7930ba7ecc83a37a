"""Source states, frozen at one moment: immutable. Any thread may read them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from decaysketch.contract.snapshot import Fed, Snapshot
from decaysketch.core.observations import check_time
from decaysketch.core.time_units import Instant
from decaysketch.decay import Decay, Window
from decaysketch.ecm import matrix, wire
from decaysketch.ecm.matrix import Estimator, Grid, check_estimator
from decaysketch.ecm.params import ECMParams
from decaysketch.ecm.per_key_windows import WindowCounts, starts_of, widths_of, window_counts
from decaysketch.ecm.state import CollectionState, ECMState, Source
from decaysketch.ecm.view import CellView
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query.catalog import questions_of
from decaysketch.query.estimate import check_confidence
from decaysketch.query.keys import AskedOfKeys, is_key

__all__ = ["ECMSnapshot"]

_REMEMBERED = 8  # grids


class ECMSnapshot(AskedOfKeys, Snapshot):
    """An immutable :class:`~decaysketch.ecm.ECMCollection`, or sketch, with the same queries.

    Args:
        held: the state of a collection, or of a sketch as its only entry.
        thaw: builds a mutable one from it.

    Attributes:
        state: the state of a collection.
    """

    questions = questions_of("keys", "chosen decay")

    def __init__(self, held: CollectionState | ECMState, thaw: Callable[[Any], Any]) -> None:
        super().__init__(held, thaw)
        if isinstance(held, ECMState):
            held = CollectionState.of(held.params, [held])
        self.state = held
        self._grids: dict[tuple[Decay, int, frozenset[Source] | None], Grid] = {}
        self._asking = threading.Lock()

    # ----------------------------------------------------------------------------------- properties

    @property
    def params(self) -> ECMParams:
        return self.state.params

    @cached_property
    def entries(self) -> Mapping[tuple[Source, int], ECMState]:
        """States by (source, epoch), in their order."""
        return MappingProxyType({state.identity: state for state in self.state.entries})

    def __len__(self) -> int:
        """Number of stored times and buffered events. O(times), once."""
        return len(self.state)

    @property
    def clock(self) -> int | None:
        return self.state.clock

    @cached_property
    def newest(self) -> int | None:
        times = [state.newest for state in self.state.entries if state.newest is not None]
        return max(times, default=None)

    @cached_property
    def oldest(self) -> int | None:
        times = [state.oldest for state in self.state.entries if state.oldest is not None]
        return min(times, default=None)

    @cached_property
    def seen(self) -> int:
        """Weight of all counted events."""
        return sum(state.seen for state in self.state.entries)

    @property
    def too_late(self) -> int:
        """Weight of all rejected events, which were older than every lane of their source."""
        return sum(state.too_late for state in self.state.entries)

    @property
    def horizon(self) -> int | None:
        """How far back queries may reach."""
        return self.params.horizon

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        """Queries reach times later than this: the clock less the horizon. None for any."""
        if self.horizon is None or self.clock is None:
            return (None,)
        return (self.clock - self.horizon - 1,)

    @property
    def fed(self) -> Fed:
        """All counted events, if no horizon drops any."""
        return Fed(None, False) if self.horizon is not None else Fed(self.seen, True)

    @cached_property
    def digest(self) -> str:
        return self.state.digest()

    def parts(self) -> Sequence[Snapshot]:
        """One snapshot per entry. The first also has this collection's clock."""
        if len(self.state.entries) < 2:
            return (self,)
        of_entries = [CollectionState.of(self.params, [each]) for each in self.state.entries]
        of_entries[0] = CollectionState.of(self.params, of_entries[0].entries, self.state.told)
        return [ECMSnapshot(each, self._thaw) for each in of_entries]

    def to_bytes(self) -> bytes:
        """Return canonical bytes: equal states give equal bytes on every platform. O(times)."""
        return wire.encode(self.state)

    # ---------------------------------------------------------------------------------------- grids

    def grid(
        self,
        decay: Decay | str | None,
        *,
        now: Instant | None = None,
        sources: Iterable[Source] | None = None,
    ) -> Grid:
        """Return the cells of every layer under a decay and at a time, as arrays; see
        :class:`~decaysketch.ecm.matrix.Grid`.

        Raises:
            ParameterError: ``decay`` is not a decay that falls with the age, or reaches back
                further than the stream's horizon; ``now`` is not a time; an unknown source.
            UnanswerableQueryError: at that time the decay reaches back beyond the horizon.

        Complexity: O(cells log n) for each lane and source under a window, O(times) under
        another decay. O(1) for a repeated query.
        """
        return self._grid(decay, now, None if sources is None else frozenset(sources))

    def _grid(self, decay: Any, now: Any, chosen: frozenset[Source] | None) -> Grid:
        decay, time = self._moment(decay, now)
        if decay is None:
            raise ParameterError("decay is None; expected one, chosen by the query")
        states = self._of(chosen)
        self._check_reach(decay, time)
        with self._asking:
            known, key = self._grids, (decay, time, chosen)
            try:
                found = known.get(key)
            except TypeError:  # a decay from another class may have no hash
                return self._read(states, decay, time)
            if found is None:
                found = self._read(states, decay, time)
                if len(known) >= _REMEMBERED:
                    known.pop(next(iter(known)))
                known[key] = found
            return found

    def _moment(self, decay: Any, now: Any) -> tuple[Any, int]:
        """A decay in the stream's unit, and a time. The clock if no time is given."""
        if now is None:
            now = 0 if self.clock is None else self.clock
        decay, now = self.asked(decay, now)
        return decay, check_time("now", now)

    def _of(self, chosen: frozenset[Source] | None) -> Iterable[ECMState]:
        """The states of sources."""
        if chosen is None:
            return self.state.entries
        states = [state for state in self.state.entries if state.source in chosen]
        if missing := sorted(map(repr, chosen - {state.source for state in states})):
            raise ParameterError(f"sources name {', '.join(missing)}, which there is none of")
        return states

    def _read(self, states: Iterable[ECMState], decay: Decay, now: int) -> Grid:
        params = self.params
        counters = [state.counters for state in states]
        return matrix.read(
            counters, params.layers, params.seed, decay, now, key_bits=params.key_bits
        )

    def _check_reach(self, decay: Decay, now: int) -> None:
        """Reject a query that reaches back beyond the horizon."""
        horizon, clock = self.params.horizon, self.clock
        if horizon is None or not isinstance(decay, Decay):
            return
        if decay.support > horizon:
            raise ParameterError(
                f"{decay!r} gives weight to ages up to {decay.support}; the stream's horizon is "
                f"{horizon}"
            )
        if clock is not None and now - int(decay.support) < clock - horizon:
            raise UnanswerableQueryError(
                f"{decay!r} reaches back to {now - int(decay.support)} at {now}; expected at least "
                f"{clock - horizon}, the clock less the horizon"
            )

    def key_count_each(
        self,
        keys: Any,
        windows: npt.ArrayLike,
        *,
        now: Instant | None = None,
        sources: Iterable[Source] | None = None,
        confidence: float = 0.95,
    ) -> WindowCounts:
        """Return counts of keys, each in its own window ``[now - width, now]``.

        Results are the paper's minimum, its guaranteed upper bound and Markov's lower one. If keys
        share a window, ``key_count`` is more accurate: it subtracts the counts of other keys.

        Args:
            keys: a key column, as in ``update``.
            windows: widths, integers from 0; one for each key, or one for all.
            now: time of the query, no earlier than the clock. None for the clock.
            sources: names of the sources whose events are counted. None for all.
            confidence: of the lower bounds.

        Returns:
            Columns. An entry is an :class:`~decaysketch.Estimate`. O(depth log n) for each
            key and lane. After an update O(times) as well.

        Raises:
            ParameterError: an invalid time, source or confidence; another number of windows; a
                window longer than the horizon.
            ObservationError: invalid keys or widths.
            UnanswerableQueryError: a time before the clock; a window that reaches back beyond the
                horizon.
        """
        confidence = check_confidence(confidence)
        words = self.params.words_of([keys] if is_key(keys) else keys)
        widths = widths_of(windows, len(words))
        longest, time = self._moment(Window(int(widths.max(initial=0))), now)
        if self.clock is not None and time < self.clock:
            raise UnanswerableQueryError(
                f"now is {time}; expected at least {self.clock}, the clock: windows of many widths "
                "are searched for from there"
            )
        self._check_reach(longest, time)
        states = self._of(None if sources is None else frozenset(sources))
        return window_counts(
            [state.counters for state in states], self.params.layers[-1], words,
            starts_of(widths, time), confidence=confidence,
        )  # fmt: skip

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        sources: Iterable[Source] | None = None,
        estimator: Estimator = "debiased",
    ) -> CellView:
        """Return a view for queries under a decay at a time. Arguments and errors as :meth:`grid`,
        and

        Args:
            estimator: "debiased" (default), or "minimum" as in the paper.
        """
        check_estimator(estimator)
        chosen = None if sources is None else frozenset(sources)
        found = self._grid(decay, now, chosen)
        lanes = sum(1 + len(state.lanes) for state in self._of(chosen))
        return CellView(found, self.params.words_of, estimator, lanes)
