"""Joint samples from several sources' sketches, drawn by the stratified estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from decaysketch.core.params import DEFAULT_STRATA, SketchParams
from decaysketch.core.records import concatenated
from decaysketch.decay import Decay
from decaysketch.query.bands import Bands
from decaysketch.query.sample import Aged, Sample, check_answerable
from decaysketch.querytime import stratified
from decaysketch.querytime.snapshot import QueryTimeSnapshot
from decaysketch.querytime.state import SketchState
from decaysketch.querytime.withdrawing import without_withdrawn
from decaysketch.sources.joint import Guards, Int64Array, Joint, Match

__all__ = ["QueryTimeJoint", "joint_of", "matches"]


class QueryTimeJoint(Joint):
    """See :class:`~decaysketch.sources.joint.Joint`."""

    @cached_property
    def _params(self) -> SketchParams:
        # Row numbers take the place of values until a view puts values there.
        return replace(
            self.match.states[0].params,
            value_type="int64",
            columns=(),
            revision=None,
            strata=(),
            max_strata=DEFAULT_STRATA,
        )

    @cached_property
    def _state(self) -> SketchState:
        rows = self.columns
        return SketchState(
            self._params, self.numbers, rows.weights, rows.times, rows.ids, rows.levels,
            rows.watermarks, self.copy,
        )  # fmt: skip

    @cached_property
    def _bands(self) -> Bands:
        return stratified.bands_of(self._state)

    def draw(self, decay: Decay | None, now: int) -> Sample:
        return stratified.draw(self._state, decay, now, bands=self._bands)

    def counted(self, decay: Decay | None, now: int) -> Int64Array:
        rows, _ = Aged.of(self._state, check_answerable(self._state, decay, now))
        return np.arange(rows.stop - 1, rows.start - 1, -1, dtype=np.int64)


def matches(snapshots: Sequence[QueryTimeSnapshot]) -> list[Match]:
    """Return source rows by message, for each hash function. With columns, the value keys are row
    numbers in the columns of all sources, one after the other. With two objectives, these are the
    samples by weight.
    """
    count = snapshots[0].params.copies
    given = without_withdrawn([each.states[:count] for each in snapshots])
    copies = zip(*given, strict=True)
    tables = [each[0].records for each in given]
    records = [table for table in tables if table is not None]
    if not records:
        return [Match(states) for states in copies]
    every = concatenated(records)
    starts = np.cumsum([0, *map(len, records)]).tolist()
    numbered = (
        [
            replace(state, value_keys=state.value_keys + start)
            for state, start in zip(states, starts, strict=False)
        ]
        for states in copies
    )
    return [Match(states, every) for states in numbered]


def joint_of(match: Match, guards: Guards, copy: int) -> Joint:
    """Return the joint sample for matched sources."""
    return QueryTimeJoint(match, guards, copy)
