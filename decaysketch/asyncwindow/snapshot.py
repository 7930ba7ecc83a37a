"""A sampler, frozen at one moment."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from decaysketch.asyncwindow import estimators, wire
from decaysketch.asyncwindow.rows import RetainedElements
from decaysketch.asyncwindow.state import WindowState
from decaysketch.contract.snapshot import Fed, OneState, Sampled, marks_of
from decaysketch.core.row_check import Identified
from decaysketch.decay import Decay
from decaysketch.query.sample import Sample

__all__ = ["WindowSnapshot"]


class WindowSnapshot(OneState, Sampled):
    """An immutable :class:`~decaysketch.asyncwindow.SumSampler` or ``MedianSampler``."""

    bag_type = RetainedElements

    state: WindowState

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        return marks_of(self.state.complete_since)

    @property
    def horizon(self) -> int | None:
        """The complete contents, in the largest window."""
        return self.state.params.max_window

    @property
    def fed(self) -> Fed:
        """The number of stored elements, if nothing was discarded. Otherwise a count without decay,
        if any window is permitted. Elements dropped by the clock leave no trace.
        """
        if self.clock is not None:
            return Fed(None, False)
        if self.complete_since[0] is None:
            return Fed(len(self), True)
        return self._estimated() if self.horizon is None else Fed(None, False)

    @property
    def identified(self) -> Identified:
        """The value is part of the identity in a sum alone."""
        state = self.state
        second = state.value_keys if state.params.weighted else np.zeros(len(state), np.int64)
        return Identified(state.keys.view(np.int64), second, state.times, state.value_keys)

    @cached_property
    def _strata(self) -> estimators.Strata:
        return estimators.strata_of(self.state)

    def to_bytes(self) -> bytes:
        return wire.encode(self.state)

    def samples(self, decay: Decay | None, now: int) -> list[Sample]:
        assert decay is not None, "chosen by each query"
        return [estimators.stratified(self.state, decay, now, strata=self._strata)]
