"""A sketch for one integral decay, frozen at one moment."""

from __future__ import annotations

import numpy as np

from decaysketch.contract.snapshot import Fed, OneState, Sampled, marks_of
from decaysketch.core.labels import Labels
from decaysketch.core.row_check import Identified
from decaysketch.decay import Decay
from decaysketch.decay.integral import IntegralDecay
from decaysketch.integral import sampling, wire
from decaysketch.integral.rows import IntegralRows
from decaysketch.integral.state import IntegralState
from decaysketch.query.sample import Sample

__all__ = ["IntegralSnapshot"]


class IntegralSnapshot(OneState, Sampled):
    """An immutable :class:`~decaysketch.IntegralDecaySketch`."""

    bag_type = IntegralRows

    state: IntegralState

    @property
    def decay(self) -> IntegralDecay:
        """The weight of an observation as a function of its age."""
        return self.state.decay

    @property
    def labels(self) -> Labels | None:
        return self.state.labels

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        """For each level, the earliest query time that it supports. None: any."""
        return marks_of(self.state.watermarks)

    @property
    def reach(self) -> int:
        """Watermarks are times of expiry."""
        return int(self.state.decay.steps(self.state.params.max_weight).ages[-1])

    @property
    def horizon(self) -> int:
        """The horizon for an observation with the largest weight."""
        largest = self.state.params.max_weight
        table = self.state.decay.steps(largest)
        half = table.at(np.array([largest]), np.array([0])) // 2
        return int(self.state.decay.expiry_ages([largest], half, largest)[0])

    @property
    def fed(self) -> Fed:
        """The number of stored observations, if nothing was discarded. Expired ones leave no
        trace.
        """
        if self.clock is None and self.complete_since[0] is None:
            return Fed(len(self), True)
        return Fed(None, False)

    @property
    def identified(self) -> Identified:
        state = self.state
        return Identified(state.ids, state.weights, state.times, state.value_keys)

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """The sketch on the wire; see :func:`decaysketch.integral.wire.encode`."""
        return wire.encode(self.state, embed_params=embed_params)

    def samples(self, decay: Decay | None, now: int) -> list[Sample]:
        return [sampling.draw(self.state, now)]
