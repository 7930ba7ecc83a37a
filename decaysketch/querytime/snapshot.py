"""A sketch's data at one moment, readable from any thread.

A :class:`QueryTimeSnapshot` keeps the states for all repetitions. Once a query needs them, it also
keeps the parts of a sample that depend on the states alone (bands, hits). After that only values
that were not yet computed change in it. So threads may share it while the sketch continues to
ingest observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.contract.snapshot import Fed, Sampled, marks_of
from decaysketch.core.labels import Labels, codes_of
from decaysketch.core.observations import prepare
from decaysketch.core.params import SketchParams
from decaysketch.core.plausible_times import left_out_by_age
from decaysketch.core.records import prepare_records
from decaysketch.core.row_check import Compared, Identified
from decaysketch.core.sizing import most_id_bits
from decaysketch.core.time_units import Instant
from decaysketch.core.warning_location import warn_caller
from decaysketch.core.withdrawals import revised
from decaysketch.decay import Decay, none, window
from decaysketch.decay.read import has_units
from decaysketch.errors import NewestOnlyWarning, ParameterError
from decaysketch.query import aggregates
from decaysketch.query.bands import Bands
from decaysketch.query.catalog import SampleView
from decaysketch.query.sample import Sample, pool
from decaysketch.querytime import cohen_strauss, objectives, stratified, wire
from decaysketch.querytime.levels import complete_from, part
from decaysketch.querytime.state import SketchState, digest_of, with_joint_records
from decaysketch.querytime.strata_bands import StrataBands, bands_of_strata, draw_strata
from decaysketch.querytime.strata_state import StrataState
from decaysketch.querytime.verdicts import compared
from decaysketch.querytime.withdrawing import check_standing, present, tombstones

__all__ = ["Estimator", "QueryTimeSnapshot"]

Estimator = Literal["stratified", "cohen-strauss"]

_UNEQUAL = 2.0  # times the error that a sample by count of half the capacity has


class _Copy:
    """One state, with the sample parts that are worth keeping between queries."""

    def __init__(self, state: SketchState, before: _Copy | None) -> None:
        self.state = state
        self._earlier = None if before is None else before.known

    @cached_property
    def bands(self) -> Bands:
        earlier, self._earlier = self._earlier, None
        return stratified.bands_of(self.state, earlier=earlier)

    @property
    def known(self) -> tuple[SketchState, Bands] | None:
        """The latest state with requested bands: this one, or an earlier one."""
        if "bands" in self.__dict__:
            return self.state, self.bands
        return self._earlier

    @cached_property
    def ladder(self) -> cohen_strauss.Ladder:
        return cohen_strauss.ladder_of(self.state, bands=self.bands)

    @cached_property
    def strata(self) -> StrataBands:
        assert isinstance(self.state, StrataState)
        return bands_of_strata(self.state)

    def sample(self, decay: Decay | None, now: int, estimator: Estimator) -> Sample:
        if isinstance(self.state, StrataState):
            if estimator != "stratified":
                raise ParameterError(
                    f"estimator is {estimator!r} and the stream has strata; expected 'stratified'"
                )
            return draw_strata(self.state, decay, now, bands=self.strata)
        if estimator == "stratified":
            return stratified.draw(self.state, decay, now, bands=self.bands)
        return cohen_strauss.draw(self.state, decay, now, ladder=self.ladder)


class _Both(_Copy):
    """The states by weight and by count, read as one sample.

    The estimator "cohen-strauss" reads the state by weight alone.
    """

    def __init__(self, by_weight: SketchState, by_count: SketchState) -> None:
        super().__init__(by_weight, None)
        self._by_count = by_count

    @cached_property
    def known(self) -> None:
        return None

    @cached_property
    def _read(self) -> tuple[SketchState, Bands]:
        return objectives.bands_of_both(self.state, self._by_count)

    def sample(self, decay: Decay | None, now: int, estimator: Estimator) -> Sample:
        if estimator != "stratified":
            return super().sample(decay, now, estimator)
        state, bands = self._read
        return stratified.draw(state, decay, now, bands=bands)


class QueryTimeSnapshot(Sampled):
    """An immutable :class:`~decaysketch.DecaySketch`: the canonical state for each repetition.

    Args:
        states: one for each repetition, in order, at least one.
        thaw: makes a sketch from them.
        before: an earlier snapshot of the same sketch. Query results for rows that both contain are
            not computed again.
    """

    def __init__(
        self,
        states: Sequence[SketchState],
        thaw: Callable[[Sequence[SketchState]], Any],
        *,
        before: QueryTimeSnapshot | None = None,
    ) -> None:
        super().__init__(tuple(states), thaw)
        earlier = repeat(None) if before is None else before._copies
        self._rows = sum(map(len, states))
        read = with_joint_records(states)
        self._copies: tuple[_Copy, ...] = (
            (_Both(*read),)
            if len(states[0].params.objectives) > 1
            else tuple(map(_Copy, read, earlier))
        )

    @property
    def states(self) -> tuple[SketchState, ...]:
        """One for each repetition, in order."""
        return cast(tuple[SketchState, ...], self.held)

    @property
    def params(self) -> SketchParams:
        """Parameters, with the current capacity."""
        return self._copies[0].state.params

    @property
    def labels(self) -> Labels | None:
        return self.states[0].labels

    def __len__(self) -> int:
        """Number of stored observations, each as often as samples store it."""
        return self._rows

    @property
    def was_read(self) -> bool:
        return any(copy.known is not None for copy in self._copies)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the states, in hex: equal for equal sketches. O(rows), once."""
        return digest_of(self.states)

    @property
    def complete_since(self) -> tuple[int | None, ...]:
        """For each level, a time. Every repetition stores all rows later than it that the level
        selects. None where nothing was discarded.
        """
        marks = [state.watermarks for state in self.states]
        return marks_of(marks[0] if len(marks) == 1 else np.max(marks, axis=0))

    def part(self, from_level: int) -> Self:
        return type(self)([part(each, from_level) for each in self.states], self._thaw)

    def complete_from(self, level: int) -> Self:
        return type(self)(complete_from(self.states, level), self._thaw)

    def withdrawal(
        self, ids: npt.ArrayLike | None = None, *, where: str | Sequence[str] | None = None
    ) -> Any:
        """Return a sketch with a tombstone for each stored observation that the arguments select.
        Merge it to withdraw them. See :meth:`DecaySketch.withdraw`.
        """
        return self._thaw(tombstones(self.states, self.newest or 0, ids, where))

    def check_standing(self, where: str) -> None:
        """Reject a condition that cannot be applied to rows yet to come, with :meth:`without`.

        Raises:
            ParameterError: the stream has no revision column, or the condition cannot be read, or
                it reads the age, which changes meanwhile.
        """
        check_standing(self.params, where)

    def without(self, where: Sequence[str]) -> Self:
        """Return the snapshot with the rows withdrawn for which one of some conditions holds. It is
        the snapshot itself if there are none.
        """
        made = self.withdrawal(where=where)
        if not len(made):
            return self
        made.merge(self)
        found: Self = made.snapshot()
        return found

    @property
    def strata(self) -> Sequence[tuple[str | None, ...]]:
        state = self.states[0]
        if not isinstance(state, StrataState):
            return ()
        return [state.names(number) for number in range(len(state.strata))]

    @cached_property
    def newest(self) -> int | None:
        return max((int(s.times[0]) for s in self.states if len(s)), default=None)

    @cached_property
    def oldest(self) -> int | None:
        return min((int(s.times[-1]) for s in self.states if len(s)), default=None)

    @property
    def fed(self) -> Fed:
        """The number of stored observations, if nothing was discarded. Otherwise a count without
        decay.
        """
        if self.complete_since[0] is None:
            return Fed(len(self.states[0]), True)
        return self._estimated()

    @cached_property
    def everything(self) -> list[Sample]:
        """The samples of all times that the sketch can answer for, without decay. None if nothing
        was discarded, or nothing can be answered.
        """
        exact, since = self.complete_since[0], self.complete_since[-1]
        if self.newest is None or exact is None:
            return []
        newest = max(self.newest, exact)
        if since is not None and since >= newest:
            return []
        return self.samples(none() if since is None else window(newest - since - 1), newest)

    @cached_property
    def advice(self) -> str | None:
        """More id bits, if collisions cost as much as sampling. Or the second objective, if counts
        then err by less than half in the same space.
        """
        for sample in self.everything:
            found = _on_ids(self.params, sample.collision_bias)
            if found is None:
                found = _on_objectives(self.params, sample)
            if found is not None:
                return found
        return None

    @property
    def identified(self) -> Identified:
        state = self.states[0]
        values = state.value_keys if state.records is None else state.records
        return Identified(state.ids, state.weights, state.times, values)

    def verdicts(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
    ) -> npt.NDArray[np.int8]:
        """See :meth:`DecaySketch.verdicts`. Nothing is copied."""
        return self.compared(values, weights, timestamps, ids).verdicts

    def compared(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
    ) -> Compared:
        """See :meth:`Snapshot.compared`. Nothing is copied."""
        if self.params.value_type == "label":
            values = codes_of(values, self.params.id_key)
        if self.params.columns:
            records, batch = prepare_records(self.params, values, weights, timestamps, ids)
            records = revised(self.params, records)
            return compared(self.states, batch, records)
        batch = prepare(self.params, values, weights, timestamps, ids)
        return compared(self.states, batch)

    def bags(self) -> Sequence[SketchState]:
        return self.states

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """Return the sketch's wire format, see :func:`decaysketch.querytime.wire.encode`."""
        return wire.encode(*self.states, embed_params=embed_params)

    def asked(self, decay: Any, now: Any) -> tuple[Any, Any]:
        given, at = super().asked(decay, now)
        if isinstance(decay, str | Mapping) and isinstance(at, int | np.integer):
            self._look_at_length(decay, given, int(at))
        return given, at

    def doubt_of_length(self, text: str | Mapping[str, Any], decay: Decay, now: int) -> str | None:
        """See :meth:`Snapshot.doubt_of_length`. O(log rows)."""
        times, unit = self.states[0].times, self.params.time_unit
        found = left_out_by_age(decay, times, now, unit)
        if found is None or has_units(text):
            return None
        return (
            f"under {decay!r} {found}: a length without a unit is in {unit}, that of the times; "
            "others have one, such as window(1h)"
        )

    def _look_at_length(self, text: str | Mapping[str, Any], decay: Decay, now: int) -> None:
        if (found := self.doubt_of_length(text, decay, now)) is not None:
            warn_caller(found, NewestOnlyWarning)

    def samples(
        self, decay: Decay | None, now: int, *, estimator: Estimator = "stratified"
    ) -> list[Sample]:
        """Return the weighted sample for each repetition. Arguments and errors are as in
        :meth:`sample`.
        """
        if estimator not in get_args(Estimator):
            raise ParameterError(
                f"estimator is {estimator!r}; expected one of {', '.join(get_args(Estimator))}"
            )
        assert decay is not None, "chosen by each query"
        found = [copy.sample(decay, now, estimator) for copy in self._copies]
        return found if self.params.revision is None else present(found)

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        estimator: Estimator = "stratified",
    ) -> SampleView:
        """Return the view under a decay, at a time. Arguments and errors are as in
        :meth:`sample`.
        """
        return SampleView(self.samples(*self.asked(decay, now), estimator=estimator))

    def sample(
        self,
        decay: Decay | str,
        now: Instant | None = None,
        *,
        estimator: Estimator = "stratified",
    ) -> Sample:
        """Return the weighted sample that every query reads: the average over the repetitions'
        samples.

        Args:
            decay: weight of an observation as a function of its age ``now - timestamp``.
            now: query time, in the stream's unit or a moment. It may lie in the past. None:
                the newest stored time.
            estimator: "stratified" (default), or "cohen-strauss", the paper's.

        Raises:
            UnanswerableQueryError: observations that the decay gives weight to were discarded at
                every level.
            ParameterError: ``now`` is no integer time, ``decay`` no decay, or another estimator.
        """
        return pool(self.samples(*self.asked(decay, now), estimator=estimator))


def _on_ids(params: SketchParams, bias: float) -> str | None:
    error = math.sqrt(1.0 / params.capacity)
    more = params.id_bits < most_id_bits(params.max_weight)
    if bias <= error or not more:
        return None
    seen = bias * 2.0 ** (params.id_bits + 1)
    return (
        f"hashed keys with {params.id_bits} bits lose {bias:.1%} of about {seen:,.0f} observations "
        f"to collisions, more than the standard error of {error:.1%}; give a new stream more "
        "id_bits, or expected with that many observations or more"
    )


def _on_objectives(params: SketchParams, sample: Sample) -> str | None:
    if params.max_weight == 1 or params.samples > 1 or params.strata or params.capacity < 2:
        return None
    half = params.capacity // 2
    expected = 1.0 / math.sqrt(half)
    found = aggregates.count(sample)
    if not found.value > 0.0 or found.stderr <= _UNEQUAL * expected * found.value:
        return None
    return (
        "weights are unequal, so counts and totals over all times have a standard error of "
        f"{found.stderr / found.value:.1%}; with objectives 'weight,count' and capacity {half} it "
        f"would be about {expected:.1%} in the same space"
    )
