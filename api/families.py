"""The kinds of sketch that a stream may be of: what the service asks of any of them.

What the sketches of a stream share is a library's ``Recipe``, which reads bodies and merges them.
Here is what it takes to answer: a :class:`Snapshot` is one sketch, immutable, to be read from any
thread, with what its answers have in common computed once. All algorithms are the library's.
Another family is one subclass, and a line in the table at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch import DecaySketch, IntegralDecaySketch
from decaysketch.answers.questions import View
from decaysketch.asyncwindow import MedianSampler, SumSampler, WindowState, estimators
from decaysketch.asyncwindow import wire as window_wire
from decaysketch.core.verdicts import Identified
from decaysketch.decay import Decay
from decaysketch.decay.integral import IntegralDecay
from decaysketch.families import IntegralRecipe, Params, Recipe, Sketch
from decaysketch.integral import sampling
from decaysketch.integral import wire as integral_wire
from decaysketch.integral.state import NO_CLOCK, IntegralState

__all__ = ["Snapshot", "fixed_decay", "join", "snapshot_of"]


class Snapshot(ABC):
    """One sketch as it was at one moment."""

    _given_up: Sketch | None = None  # it, if nobody changes it any more

    @property
    @abstractmethod
    def params(self) -> Params:
        """Parameters, of which the capacity is the one in force."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows held."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of the state, in hex."""

    @property
    @abstractmethod
    def watermarks(self) -> list[int | None]:
        """For each level, the time that tells what it still answers for; None: everything."""

    @property
    def clock(self) -> int | None:
        """The latest time that the sketch was told; None where there is none."""
        return None

    @property
    @abstractmethod
    def newest(self) -> int | None:
        """The latest time of a row; None where there are none."""

    @property
    @abstractmethod
    def oldest(self) -> int | None:
        """The earliest time of a row; None where there are none."""

    @property
    def reach(self) -> int:
        """How far past the time of an observation a watermark may lie."""
        return 0

    @property
    def horizon(self) -> int | None:
        """In how long a clock makes it forget half or more of what an observation weighed; None
        where it forgets nothing by a clock."""
        return None

    @property
    @abstractmethod
    def identified(self) -> Identified:
        """Its rows by identity, each at most once; of several hash functions those of one."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """The sketch on the wire."""

    @cached_property
    def size_bytes(self) -> int:
        """Length on the wire: written once to be counted, however often it is asked for."""
        return len(self.to_bytes())

    @abstractmethod
    def thaw(self) -> Sketch:
        """A sketch of its own with this state."""

    def to_merge(self) -> Sketch:
        """A sketch with this state, to be merged into others and not to be changed."""
        return self.thaw() if self._given_up is None else self._given_up

    @abstractmethod
    def at(self, decay: Decay | None, now: int) -> View:
        """What can be asked under a decay, at a time.

        Args:
            decay: chosen by the query; None where the stream's is fixed.
            now: time of the query.

        Raises:
            UnanswerableQueryError: what has weight then was discarded at every level, or the time
                lies before the clock of a fixed decay.
            ParameterError: a decay that reaches further back than the sketch was built for.
        """


class _ChosenDecay(Snapshot):
    """Of a ``DecaySketch``."""

    def __init__(self, sketch: DecaySketch) -> None:
        self._held = sketch.snapshot()

    @property
    def params(self) -> Params:
        return self._held.params

    def __len__(self) -> int:
        return len(self._held)

    @property
    def digest(self) -> str:
        return self._held.digest

    @property
    def watermarks(self) -> list[int | None]:
        return list(self._held.complete_since)

    @property
    def newest(self) -> int | None:
        held = [state.times for state in self._held.states if len(state)]
        return max((int(times[0]) for times in held), default=None)

    @property
    def identified(self) -> Identified:
        state = self._held.states[0]
        return Identified(state.ids, state.weights, state.times, state.value_keys)

    @property
    def oldest(self) -> int | None:
        held = [state.times for state in self._held.states if len(state)]
        return min((int(times[-1]) for times in held), default=None)

    def to_bytes(self) -> bytes:
        return self._held.to_bytes()

    def thaw(self) -> DecaySketch:
        return DecaySketch.from_state(self._held.states)

    def at(self, decay: Decay | None, now: int) -> View:
        return self._held.at(decay, now)


class _OfState(Snapshot):
    """Of a sketch of one state, with a clock."""

    _state: IntegralState | WindowState

    @property
    def params(self) -> Params:
        return self._state.params

    def __len__(self) -> int:
        return len(self._state)

    @cached_property
    def digest(self) -> str:
        return self._state.digest()

    @property
    def clock(self) -> int | None:
        return None if self._state.clock == NO_CLOCK else self._state.clock

    @property
    def newest(self) -> int | None:
        return int(self._state.times[0]) if len(self) else None

    @property
    def oldest(self) -> int | None:
        return int(self._state.times[-1]) if len(self) else None


class _FixedDecay(_OfState):
    """Of an ``IntegralDecaySketch``."""

    def __init__(self, sketch: IntegralDecaySketch) -> None:
        self._state: IntegralState = sketch.state()

    @property
    def reach(self) -> int:
        """Watermarks are times of expiry."""
        return int(self._state.decay.steps(self._state.params.max_weight).ages[-1])

    @property
    def horizon(self) -> int:
        """Of an observation of the largest weight."""
        largest = self._state.params.max_weight
        table = self._state.decay.steps(largest)
        half = table.at(np.array([largest]), np.array([0])) // 2
        return int(self._state.decay.expiry_ages([largest], half, largest)[0])

    @property
    def watermarks(self) -> list[int | None]:
        return _times(self._state.watermarks)

    @property
    def identified(self) -> Identified:
        state = self._state
        return Identified(state.ids, state.weights, state.times, state.value_keys)

    def to_bytes(self) -> bytes:
        return integral_wire.encode(self._state)

    def thaw(self) -> IntegralDecaySketch:
        return IntegralDecaySketch.from_state(self._state)

    def at(self, decay: Decay | None, now: int) -> View:
        return View([sampling.draw(self._state, now)])


class _Window(_OfState):
    """Of a ``SumSampler`` or a ``MedianSampler``."""

    def __init__(self, sampler: SumSampler | MedianSampler) -> None:
        self._type = type(sampler)
        self._state: WindowState = sampler.state()

    @property
    def watermarks(self) -> list[int | None]:
        return _times(self._state.complete_since)

    @property
    def horizon(self) -> int | None:
        """All of it, in the largest window."""
        return self._state.params.max_window

    @property
    def identified(self) -> Identified:
        """The value is part of the identity in a sum alone."""
        state = self._state
        second = state.value_keys if state.params.weighted else np.zeros(len(state), np.int64)
        return Identified(state.keys.view(np.int64), second, state.times, state.value_keys)

    @cached_property
    def _strata(self) -> estimators.Strata:
        return estimators.strata_of(self._state)

    def to_bytes(self) -> bytes:
        return window_wire.encode(self._state)

    def thaw(self) -> SumSampler | MedianSampler:
        return self._type.from_state(self._state)

    def at(self, decay: Decay | None, now: int) -> View:
        return View([estimators.stratified(self._state, decay, now, strata=self._strata)])


def _times(column: npt.NDArray[np.int64]) -> list[int | None]:
    return [None if time == NO_CLOCK else time for time in column.tolist()]


_SNAPSHOTS: dict[type[Any], type[Any]] = {
    DecaySketch: _ChosenDecay,
    IntegralDecaySketch: _FixedDecay,
    SumSampler: _Window,
    MedianSampler: _Window,
}


def snapshot_of(sketch: Sketch, *, given_up: bool = False) -> Snapshot:
    """What a sketch holds now.

    Args:
        sketch: of any family.
        given_up: nobody will change it any more, so that it can be merged as it is.
    """
    snapshot: Snapshot = _SNAPSHOTS[type(sketch)](sketch)
    if given_up:
        snapshot._given_up = sketch
    return snapshot


def join(recipe: Recipe[Any], snapshots: Iterable[Snapshot]) -> Snapshot:
    """Everything that any of them saw; the smallest of their capacities. At least one."""
    merged = recipe.empty()
    for each in snapshots:  # one after the other: each is as large as its sketch once more
        merged.merge(each.to_merge())
    return snapshot_of(merged)


def fixed_decay(recipe: Recipe[Any]) -> IntegralDecay | None:
    """The decay of every query, where that is fixed."""
    return recipe.decay if isinstance(recipe, IntegralRecipe) else None
