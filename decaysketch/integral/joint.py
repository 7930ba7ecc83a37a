"""Joint samples from several sources' sketches for one integral decay.

Watermarks are expiry times here. An observation with latest time ``T`` is known at level ``i`` if

    expiry_i(T) > max_s (E_s[i] + d_s)

with ``E_s`` the watermarks and ``d_s`` a bound on how far the duplicate in source ``s`` lies before
the latest one: a duplicate expires earlier by that difference at most, so every source that heard
the observation stores it. The rows that are known at some level, under the largest watermarks and
the latest clock, are a state in the family, and its own estimator draws it.

Levels that keep an observation need not be adjacent, so a row has no single own level per source.
Pairs and unions are therefore read from joint samples alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from decaysketch.core.params import MAX_CAPACITY, SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.integral import sampling
from decaysketch.integral.rows import IntegralRows
from decaysketch.integral.snapshot import IntegralSnapshot
from decaysketch.integral.state import IntegralState
from decaysketch.query.sample import Sample
from decaysketch.sources.joint import Columns, Guards, Incidences, Joint, Match

__all__ = ["IntegralJoint", "joint_of", "matches"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Held:
    """A state, with a level per row as matching wants it."""

    state: IntegralState
    levels: npt.NDArray[np.int8]

    @property
    def params(self) -> SketchParams:
        return self.state.params

    @property
    def ids(self) -> Int64Array:
        return self.state.ids

    @property
    def weights(self) -> Int64Array:
        return self.state.weights

    @property
    def times(self) -> Int64Array:
        return self.state.times

    @property
    def value_keys(self) -> Int64Array:
        return self.state.value_keys

    @property
    def watermarks(self) -> Int64Array:
        return self.state.watermarks

    def __len__(self) -> int:
        return len(self.state)


class IntegralJoint(Joint):
    """See :class:`~decaysketch.sources.joint.Joint`."""

    @cached_property
    def _known(self) -> IntegralState:
        """The state with the rows that some level knows. Their values are message numbers."""
        match = self.match
        states = [_state(held) for held in match.states]
        params = replace(states[0].params, capacity=MAX_CAPACITY, value_type="int64")
        everything = IntegralState(
            params, states[0].decay, max(state.clock for state in states),
            np.arange(len(match), dtype=np.int64), match.weights, match.latest, match.ids,
            self.marks.max(axis=0),
        )  # fmt: skip
        return IntegralRows.from_state(everything).state()

    @cached_property
    def watermarks(self) -> Int64Array:
        """int64[levels], the latest expiry among all sources."""
        return self._known.watermarks

    @cached_property
    def messages(self) -> Int64Array:
        return self._known.value_keys

    @cached_property
    def columns(self) -> Columns:
        """The rows, without levels."""
        state = self._known
        levels = np.zeros(len(state), np.int8)
        return Columns(state.ids, state.weights, state.times, levels, state.watermarks)

    @cached_property
    def incidences(self) -> Incidences:
        """Sources by message."""
        return self.match.gather(np.full_like(self.marks, NO_WATERMARK))

    def draw(self, decay: Decay | None, now: int) -> Sample:
        return sampling.draw(replace(self._known, value_keys=self.numbers), now)


def _state(held: object) -> IntegralState:
    assert isinstance(held, _Held)
    return held.state


def matches(snapshots: Sequence[IntegralSnapshot]) -> list[Match]:
    """Return source rows by message."""
    return [Match([_Held(each.state, np.zeros(len(each), np.int8)) for each in snapshots])]


def joint_of(match: Match, guards: Guards, copy: int) -> Joint:
    """Return the joint sample for matched sources."""
    return IntegralJoint(match, guards, copy)
