"""A series sample at one moment."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from decaysketch.contract.snapshot import Fed, OneState, marks_of
from decaysketch.core.observations import check_time
from decaysketch.core.row_check import Identified
from decaysketch.core.time_units import Instant
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.decay import Decay
from decaysketch.decay.functions import check_decay
from decaysketch.errors import UnanswerableQueryError
from decaysketch.series import wire
from decaysketch.series._native import TOP
from decaysketch.series.pieces import Pieces
from decaysketch.series.rows import SeriesRows, identified
from decaysketch.series.state import SeriesState
from decaysketch.series.view import FEW, PieceView

__all__ = ["SeriesSnapshot"]

_MANY_ROWS = 30
"""Intervals in the retained times from which a resolution helps."""


class SeriesSnapshot(OneState):
    """An immutable :class:`~decaysketch.series.SeriesSketch`."""

    bag_type = SeriesRows
    state: SeriesState

    @cached_property
    def newest(self) -> int | None:
        return int(self.state.times.max()) if len(self.state) else None

    @cached_property
    def oldest(self) -> int | None:
        return int(self.state.times.min()) if len(self.state) else None

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        """Per level, the watermark. All later rows are retained."""
        return marks_of(self.state.watermarks)

    @cached_property
    def pieces(self) -> Pieces:
        """The rows prepared for queries. O(rows), once."""
        return Pieces(self.state)

    @property
    def entities(self) -> int:
        """Number of entities with retained rows."""
        return self.pieces.count

    @cached_property
    def complete(self) -> tuple[int, ...]:
        """Per level, how many entities are complete since its watermark."""
        levels = np.bincount(self.pieces.levels, minlength=len(self.state.watermarks))
        return tuple(np.cumsum(levels[::-1])[::-1].tolist())

    @cached_property
    def advice(self) -> str | None:
        """Parameters to change. None if the sketch discarded nothing, or if enough entities are
        complete for the later half of the retained times."""
        discarded = self.state.watermarks[0] != NO_WATERMARK
        if self.newest is None or self.oldest is None or not discarded:
            return None  # before the pieces are computed: a table may have many small sketches
        half = np.array([(self.newest + self.oldest) // 2])
        complete = self.complete[min(int(self.pieces.bands(half)[0]), TOP)]
        if complete >= FEW:
            return None
        params, interval = self.state.params, max(self.pieces.usual_interval, 1)
        few = f"entities that are complete for half of the retained times: {complete}"
        if (self.newest - self.oldest) // interval < _MANY_ROWS:
            return f"{few}; choose a capacity above {params.capacity}"
        longer = max(2 * params.resolution, 10 * interval)
        return (
            f"{few}; choose a resolution, such as {longer} {params.time_unit}, or a capacity above "
            f"{params.capacity}"
        )

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        rows = self.pieces.foreign_starts
        if not rows:
            return ()
        return (
            f"{rows:,} rows have a start before the latest row of another start in their series: "
            "two writers use one series, so the values of gauges and states mix; give each writer "
            "a series of its own, by a label or an id",
        )

    @cached_property
    def fed(self) -> Fed:
        """Number of distinct rows, or cells if there is a resolution."""
        marks = self.state.watermarks
        if marks[0] == NO_WATERMARK:
            return Fed(len(self), True)
        if marks[-1] != NO_WATERMARK or not len(self):
            return Fed(None, False)
        return Fed(float((1.0 / self.pieces.probability).sum()), False)

    @property
    def identified(self) -> Identified:
        state = self.state
        return identified(
            state.params, state.entities, state.weights, state.ids, state.times, state.value_keys
        )

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """Return the sketch in wire format. See :func:`decaysketch.series.wire.encode`."""
        return wire.encode(self.state, embed_params=embed_params)

    def at(self, decay: Decay | str | None, now: Instant | None = None) -> PieceView:
        given, at = self.asked(decay, now)
        given = check_decay(given)
        at = check_time("now", at)
        last = int(self.state.watermarks[-1])
        if last != NO_WATERMARK and at - min(given.support, 2.0**63) <= last:
            raise UnanswerableQueryError(
                f"the decay gives weight to times up to {last} ({self.state.params.time_unit}), of "
                "which rows were discarded at every level; choose a shorter window or a larger "
                "capacity"
            )
        return PieceView(self.state, self.pieces, given, at)
