"""Joint samples from several sources' sketches, drawn by the stratified estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from decaysketch.core.params import DEFAULT_STRATA, SketchParams
from decaysketch.core.records import Records, concatenated
from decaysketch.decay import Decay
from decaysketch.query.bands import Bands
from decaysketch.query.sample import Aged, Sample, check_answerable, reach
from decaysketch.querytime import stratified
from decaysketch.querytime.snapshot import QueryTimeSnapshot
from decaysketch.querytime.state import SketchState
from decaysketch.querytime.withdrawing import without_withdrawn
from decaysketch.sources.joint import Guards, Joint, Match

__all__ = ["QueryTimeJoint", "joint_of", "matches"]


class QueryTimeJoint(Joint):
    """See :class:`~decaysketch.sources.joint.Joint`."""

    @cached_property
    def params(self) -> SketchParams:
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
            self.params, self.numbers, rows.weights, rows.times, rows.ids, rows.levels,
            rows.watermarks, self.copy,
        )  # fmt: skip

    @cached_property
    def _bands(self) -> Bands:
        return stratified.bands_of(self._state)

    def draw(self, decay: Decay | None, now: int) -> Sample:
        return stratified.draw(self._state, decay, now, bands=self._bands)

    def counted(self, decay: Decay | None, now: int) -> slice:
        fading = check_answerable(self, decay, now)
        start, stop = reach(self, fading)
        if stop > start and not fading(self.times[stop - 1 : stop])[0] > 0.0:
            rows, _ = Aged.of(self, fading)
            start, stop = rows.start, rows.stop
        return slice(stop - 1, start - 1 if start else None, -1) if stop > start else slice(0, 0)


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
    found = [Match(states, every) for states in numbered]
    for match in found:
        _choose_larger(match, every)
    return found


def _choose_larger(match: Match, every: Records) -> None:
    """Represent each message by the larger columns among its latest duplicates, as a merge does.

    Complexity: O(rows * columns), and a sort of the rows that differ.
    """
    keys = [column.keys for column in every.columns]
    times, rows = (
        np.concatenate([getattr(state, name) for state in match.states])
        for name in ("times", "value_keys")
    )
    late, chosen = times == match.latest[match.groups], match.value_keys[match.groups]
    differs = np.logical_or.reduce([column[rows] != column[chosen] for column in keys])
    if not (late & differs).any():
        return
    disputed = np.zeros(len(match), np.bool_)
    disputed[match.groups[late & differs]] = True
    some = np.flatnonzero(late & disputed[match.groups])
    rows, messages = rows[some], match.groups[some]
    order = np.lexsort([*(column[rows] for column in keys[::-1]), messages])
    last = order[np.diff(messages[order], append=-1) != 0]
    match.value_keys[messages[last]] = rows[last]


def joint_of(match: Match, guards: Guards, copy: int) -> Joint:
    """Return the joint sample for matched sources."""
    return QueryTimeJoint(match, guards, copy)
