"""One sketch at one moment: the reads that all families share, and those for samples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.bags import Bag
from decaysketch.core.labels import Labels
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.params import BuildParams
from decaysketch.core.row_check import Compared, Identified
from decaysketch.core.time_units import Instant, in_units, moment_before
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay, none, window
from decaysketch.decay.read import decay_in
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query import aggregates
from decaysketch.query.catalog import SampleView, View
from decaysketch.query.difference import Moment, Pair
from decaysketch.query.pair_view import PairView
from decaysketch.query.sample import Sample, pool

if TYPE_CHECKING:
    from decaysketch.contract.sketch import Sketch

__all__ = ["Fed", "OneState", "Rowed", "Sampled", "Snapshot", "State", "Tally", "marks_of"]

Int64Array = npt.NDArray[np.int64]

NO_PART = "only sketches of the family 'decay' have a part by level"

State = Any
"""The content of a sketch. Only its family reads it."""


class Fed(NamedTuple):
    """How many distinct observations a sketch was fed, as far as it knows.

    A sketch that was given the time has forgotten expired rows, and does not report here. The
    family defines an observation: rows of weight 0 are none, nor are rows that lack a required
    part.

    Attributes:
        observations: their number. None if unknown.
        exact: whether that is a count, not an estimate.
    """

    observations: float | None
    exact: bool


class Tally(NamedTuple):
    """How many observations a sketch stores and was fed, their times, and advice.

    Attributes:
        held: rows.
        observations, exact: as in :class:`Fed`.
        oldest, newest: the earliest and the latest time of a row. None if there are none.
        advice: parameters that would make results accurate, see :attr:`Snapshot.advice`.
    """

    held: int
    observations: float | None
    exact: bool
    oldest: int | None
    newest: int | None
    advice: str | None = None


class Snapshot(ABC):
    """One sketch at one moment. Immutable, safe to read from any thread.

    Args:
        held: the state, or the states for all hash functions.
        thaw: makes a sketch from it.

    Attributes:
        held: the same.
    """

    def __init__(self, held: State, thaw: Callable[[State], Sketch]) -> None:
        self.held = held
        self._thaw = thaw

    @property
    @abstractmethod
    def params(self) -> BuildParams:
        """Parameters, with the capacity in force."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of stored rows."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of the state, in hex: equal for equal sketches. O(rows), once."""

    @property
    @abstractmethod
    def complete_since(self) -> tuple[int | None, ...]:
        """For each level, the time since which it is complete. None: it is complete for all
        times.
        """

    @property
    def was_read(self) -> bool:
        """Whether something was computed that a later snapshot can use."""
        return False

    @property
    def clock(self) -> int | None:
        """The latest time reported to the sketch. None if there is none."""
        return None

    @property
    def advice(self) -> str | None:
        """Return a sentence on parameters that would make results accurate, or None."""
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on stored rows that contradict each other."""
        return ()

    @property
    def labels(self) -> Labels | None:
        """The labels of the rows, if values are labels."""
        return None

    @property
    def strata(self) -> Sequence[tuple[str | None, ...]]:
        """The strata with rows or watermarks, each by its texts. None if the stream has none."""
        return ()

    @property
    @abstractmethod
    def newest(self) -> int | None:
        """The latest time of a row. None if there are none."""

    @property
    @abstractmethod
    def oldest(self) -> int | None:
        """The earliest time of a row. None if there are none."""

    @property
    def latest(self) -> int:
        """The latest known time, by rows and clock: the default ``now`` of a query.

        Raises:
            ParameterError: there is none.
        """
        known = [time for time in (self.newest, self.clock) if time is not None]
        if not known:
            raise ParameterError("now is not given, and the sketch is empty; expected a time")
        return max(known)

    def doubt_of_length(self, text: str | Mapping[str, Any], decay: Decay, now: int) -> str | None:
        """Return the reason why a decay's length is unlikely in the stream's time unit, such as a
        number that leaves only the newest instant. None: the length is likely, has a unit, or the
        family does not check it.

        Args:
            text: the decay as given.
            decay: its meaning.
            now: the query time.
        """
        return None

    def asked(self, decay: Any, now: Any) -> tuple[Any, Any]:
        """Return the decay and the time of a query in the stream's unit. Both may be texts
        (:mod:`decaysketch.decay.read`, :func:`decaysketch.instant`). None as the time is
        :attr:`latest`. Other objects are returned unchanged, and the caller checks them.

        Raises:
            ParameterError: a text cannot be parsed or converted.
        """
        unit = self.params.time_unit
        return decay_in(decay, unit), self.latest if now is None else in_units(now, unit)

    @property
    def reach(self) -> int:
        """Return how far a watermark may lie past an observation's time."""
        return 0

    @property
    def horizon(self) -> int | None:
        """Return the time in which an advancing clock removes half of an observation's weight or
        more. None if a clock removes nothing.
        """
        return None

    @property
    @abstractmethod
    def fed(self) -> Fed:
        """Return how many distinct observations the sketch was fed. O(1) if nothing was
        discarded.
        """

    def tally(self) -> Tally:
        """Return the figures on stored and fed observations together, with the advice."""
        return Tally(len(self), *self.fed, self.oldest, self.newest, self.advice)

    @abstractmethod
    def at(self, decay: Decay | str | None, now: Instant | None = None) -> View:
        """Return the view under a decay, at a time.

        Args:
            decay: chosen by the query. None if the stream's decay is fixed.
            now: query time. None: :attr:`latest`.

        Raises:
            UnanswerableQueryError: observations with weight at that time were discarded, or the
                time lies before the clock of a fixed decay.
            ParameterError: a decay that reaches further back than the sketch was built for, or that
                the family does not accept.
        """

    def against(
        self,
        now: tuple[Decay | str, Instant | None],
        then: tuple[Decay | str, Instant | timedelta | None],
    ) -> PairView:
        """Return the view that compares two moments, each a decay and a time. None as a time is
        :attr:`latest`. The second time may be a length, back from the first.

        Raises:
            UnanswerableQueryError: observations with weight at one moment were discarded.
            ParameterError: the sketch does not support the decay, stores no rows to compare, or
                has a fixed decay.
        """
        raise ParameterError("only sketches with a decay per query can be compared")

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the sketch in wire format."""

    @cached_property
    def size_bytes(self) -> int:
        """Return the wire length. The sketch is encoded once, for any number of calls."""
        return len(self.to_bytes())

    def thaw(self) -> Sketch:
        """Return an independent sketch with this state."""
        return self._thaw(self.held)

    def part(self, from_level: int) -> Self:
        """Return the sketch for observations with this top level or above: see
        :mod:`decaysketch.querytime.levels`. O(rows).

        Raises:
            ParameterError: the family has no such part, or there is no such level.
        """
        raise ParameterError(f"from_level is {from_level!r}; {NO_PART}")

    def complete_from(self, level: int) -> Self:
        """Return a :meth:`part` for queries: it claims nothing about lower levels, and cannot be
        encoded. Errors as :meth:`part`.
        """
        return self.part(level)

    def parts(self) -> Sequence[Snapshot]:
        """Return the snapshots whose union this is, each merged or rejected without the others.
        Most families return this snapshot alone.
        """
        return (self,)

    def verdicts(self, *columns: Any, **options: Any) -> npt.NDArray[np.int8]:
        """Return the status that ``update`` with this state would give to each row in a batch. See
        ``verdicts`` of the sketch.
        """
        return self.thaw().verdicts(*columns, **options)

    def compared(self, *columns: Any, **options: Any) -> Compared:
        """Return the same with the identities that the batch has in common. Their duplicates need
        a closer look.
        """
        return Compared(self.verdicts(*columns, **options), True)

    def bags(self) -> Sequence[Any]:
        """Return the input for a sketch's bags, one entry for each hash function. Do not change it.
        Empty if the family has no bags.
        """
        return ()


class Rowed(Snapshot):
    """A snapshot of a sketch that stores rows."""

    @property
    @abstractmethod
    def identified(self) -> Identified:
        """Return its rows by identity, each at most once. With several hash functions, use one."""


class Sampled(Rowed):
    """A snapshot of a sketch that stores rows for samples."""

    @abstractmethod
    def samples(self, decay: Decay | None, now: int) -> list[Sample]:
        """Return the weighted sample for each hash function, which answers every query. Arguments
        and errors as :meth:`at`.
        """

    def at(self, decay: Decay | str | None, now: Instant | None = None) -> View:
        return SampleView(self.samples(*self.asked(decay, now)))

    def against(
        self,
        now: tuple[Decay | str, Instant | None],
        then: tuple[Decay | str, Instant | timedelta | None],
    ) -> PairView:
        first = Moment(*self.asked(*now))
        decay, at = then
        before = moment_before(at, first.now, self.params.time_unit, name="then")
        second = Moment(*self.asked(decay, before))
        if not (isinstance(first.decay, Decay) and isinstance(second.decay, Decay)):
            return super().against(now, then)
        return PairView(self.pairs(first, second), first, second)

    def pairs(self, now: Moment, then: Moment) -> list[Pair]:
        """Return the input of a comparison between two moments, for each hash function.

        Raises:
            UnanswerableQueryError: observations with weight at one moment were discarded.
            ParameterError: the sketch does not support the decay.
        """
        sides = [self.samples(*moment) for moment in (now, then)]
        latest = max(now.now, then.now)
        oldest = min(
            at - int(decay.support) if decay.support < math.inf else -TIME_LIMIT
            for decay, at in (now, then)
        )
        # Rows discarded at every level have no weight, or a side would have been rejected.
        mark = self.complete_since[-1]
        if mark is not None:
            oldest = max(oldest, mark + 1)
        reach = none() if oldest <= -TIME_LIMIT else window(latest - oldest)
        return [Pair(*three) for three in zip(self.samples(reach, latest), *sides, strict=True)]

    def _estimated(self) -> Fed:
        """Return the estimated count without decay over all stored rows."""
        assert self.newest is not None, "what discarded something holds something"
        try:
            sample = pool(self.samples(none(), self.newest))
        except UnanswerableQueryError:
            return Fed(None, False)
        estimate = aggregates.count(sample)
        return Fed(estimate.value, estimate.exact)


class OneState(Rowed):
    """A snapshot of a sketch with one state and a clock.

    Args:
        state: rows by time, latest first, with watermarks, clock and parameters.
        thaw: makes a sketch from it.
    """

    bag_type: ClassVar[type[Bag]]

    def __init__(self, state: State, thaw: Callable[[State], Sketch]) -> None:
        super().__init__(state, thaw)
        self.state = state

    def bags(self) -> Sequence[Any]:
        return [self.bag_type.frozen(self.state)]

    @property
    def params(self) -> BuildParams:
        params: BuildParams = self.state.params
        return params

    def __len__(self) -> int:
        return len(self.state)

    @cached_property
    def digest(self) -> str:
        digest: str = self.state.digest()
        return digest

    @property
    def clock(self) -> int | None:
        return None if self.state.clock == NO_WATERMARK else int(self.state.clock)

    @property
    def newest(self) -> int | None:
        return int(self.state.times[0]) if len(self.state) else None

    @property
    def oldest(self) -> int | None:
        return int(self.state.times[-1]) if len(self.state) else None


def marks_of(column: Int64Array) -> tuple[int | None, ...]:
    """Return watermarks as numbers, None where nothing was discarded."""
    return tuple(None if mark == NO_WATERMARK else mark for mark in column.tolist())
