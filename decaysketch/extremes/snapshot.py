"""A sketch for extremes, frozen at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from decaysketch.contract.snapshot import Fed, OneState, marks_of
from decaysketch.core.observations import check_time
from decaysketch.core.row_check import Identified
from decaysketch.core.time_units import Instant
from decaysketch.decay import Decay
from decaysketch.decay.functions import check_decay
from decaysketch.errors import UnanswerableQueryError
from decaysketch.extremes import wire
from decaysketch.extremes.rows import Staircases
from decaysketch.extremes.state import ExtremesState
from decaysketch.extremes.view import StairView

__all__ = ["ExtremesSnapshot"]


class ExtremesSnapshot(OneState):
    """An immutable :class:`~decaysketch.extremes.ExtremesSketch`."""

    state: ExtremesState

    @cached_property
    def _stairs(self) -> Staircases:
        return Staircases.from_state(self.state)

    def bags(self) -> Sequence[Staircases]:
        return [self._stairs]

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        """The sketch supports all times."""
        return marks_of(self.state.watermarks)

    @property
    def fed(self) -> Fed:
        """Most rows leave no trace."""
        return Fed(None, False) if len(self) else Fed(0, True)

    @property
    def identified(self) -> Identified:
        state = self.state
        return Identified(state.times, state.value_keys, state.times, state.value_keys)

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """The sketch on the wire; see :func:`decaysketch.extremes.wire.encode`."""
        return wire.encode(self.state, embed_params=embed_params)

    def at(self, decay: Decay | str | None, now: Instant | None = None) -> StairView:
        given, at = self.asked(decay, now)
        given = check_decay(given)
        at = check_time("now", at)
        if self.newest is not None and at < self.newest:
            raise UnanswerableQueryError(
                f"now is {at}, and the newest row is of time {self.newest} "
                f"({self.state.params.time_unit}); expected that or a later one: what is held are "
                "the rows that no later one rules out, so what ruled the day before is not"
            )
        return StairView(self.state, self._stairs.highs, self._stairs.lows, given, at)
