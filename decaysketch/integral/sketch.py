"""IntegralDecaySketch: duplicate-insensitive aggregates under one decay, fixed when built.

Contents
    Each level 0..M keeps the ``capacity`` observations that take longest to expire, among those
    that the level's hash selects. Level ``i`` selects about ``2^-i`` of all units of weight. An
    observation expires at a level once the decay has left none of its selected units. Observations
    that the *clock* has seen expire at every level are dropped. Each observation is stored once.
    See ``state.py`` for the definition.
Guarantees
    The state, and its bytes, are a function of the parameters, the decay, the set of accepted
    observations and the clock, by whichever paths they arrived. The relative standard error of a
    decayed sum is about ``1 / sqrt(capacity)``. Every result has an interval.
When to use it instead of a ``DecaySketch``
    The decay may be any integral decay, such as a table of values by weight and age. The sketch
    drops observations that no longer count. It keeps the observations that matter most under this
    decay, while a ``DecaySketch`` keeps the most recent ones for any decay. But it answers queries
    for one decay only, and only from the clock on.
Paper
    Cormode, Tirthapura and Xu, "Time-decaying sketches for robust aggregation of sensor data",
    section 3. Departures:

    * The clock is part of the state. Without it the state would depend on the order of arrival.
    * All ties at a cut are discarded together.
    * Merging first drops everything that either sketch could not answer for.
    * An observation that expires at a query's time has expired (algorithm 6: the levels with
      ``t_l <= c`` answer).
    * An observation is stored once.
    * Ids are mixed.
    * Duplicates may disagree. Then the latest one represents the observation.
    * Estimates are stratified (``sampling.py``).
Limits
    A sketch is not safe to use from two threads at once. One hash function (``copies=1``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import ENOUGH, PendingRows, Sketch, Stats
from decaysketch.core.labels import LabelBook, codes_of
from decaysketch.core.observations import check_time, prepare
from decaysketch.core.params import Differences, SketchParams
from decaysketch.core.plausible_times import span, told
from decaysketch.core.row_check import Identified, compare
from decaysketch.core.time_units import Instant, in_units
from decaysketch.decay import Decay
from decaysketch.decay.integral import IntegralDecay, parse
from decaysketch.errors import ParameterError
from decaysketch.integral import wire
from decaysketch.integral.rows import IntegralRows
from decaysketch.integral.sampling import Estimator, draw
from decaysketch.integral.snapshot import IntegralSnapshot
from decaysketch.integral.state import IntegralState, spec_of
from decaysketch.query import aggregates
from decaysketch.query.catalog import AskedOfItsDecay, SampleView, questions_of
from decaysketch.query.sample import Sample

__all__ = ["IntegralDecaySketch", "IntegralStats", "check_build"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegralStats(Stats):
    """Counts of accepted and stored rows; see :class:`~decaysketch.contract.sketch.Stats`.

    Attributes:
        zero_weight: accepted rows with weight 0, which contribute nothing.
        already_expired: accepted rows that no longer had any weight at the clock.
        label_collisions: as in :class:`~decaysketch.querytime.sketch.SketchStats`.
        warnings: as in :class:`~decaysketch.querytime.sketch.SketchStats`.
    """

    zero_weight: int
    already_expired: int
    label_collisions: int = 0
    warnings: tuple[str, ...] = ()


def check_build(params: SketchParams) -> None:
    """Reject parameters that only sketches with a decay chosen by the query have."""
    if params.columns:
        raise ParameterError(
            f"columns is {dict(params.columns)!r:.80}; only the family 'decay' has columns"
        )
    if len(params.objectives) > 1:
        raise ParameterError(
            f"objectives is {params.objectives}; only the family 'decay' samples by two objectives"
        )


class IntegralDecaySketch(AskedOfItsDecay, Sketch):
    """A mergeable sketch of timestamped, weighted observations for one integral decay.

    Args:
        params: build parameters. Every sketch in one stream shares them (capacity may differ).
        decay: a decay from :mod:`decaysketch.decay.integral`, or a text that spells one, such as
            "halving(10min)". Every sketch in one stream shares it.

    Raises:
        ParameterError: no integral decay, a decay with too many steps at ``max_weight``, or
            ``params`` with several repetitions.

    Example:
        >>> import decaysketch as ds
        >>> params = ds.SketchParams(max_weight=100, id_bits=40)
        >>> sketch = ds.IntegralDecaySketch(params, ds.decay.integral.exponential(half_life=60))
        >>> sketch.update([21.5, 22.0, 21.5], [8, 100, 8], [100, 160, 100], [7, 8, 7], now=160)
        >>> sketch.sum(now=160).value
        104.0
    """

    questions = questions_of("values", "numbers", "weights")
    snapshot_type = IntegralSnapshot

    _bags: tuple[IntegralRows]
    _pending: PendingRows

    if TYPE_CHECKING:

        @property
        def params(self) -> SketchParams: ...

        def snapshot(self) -> IntegralSnapshot: ...

    def __init__(
        self, params: SketchParams, decay: IntegralDecay | str | Mapping[str, Any]
    ) -> None:
        if isinstance(decay, str | Mapping):
            decay = parse(decay, params.time_unit)
        if not isinstance(decay, IntegralDecay):
            raise ParameterError(
                f"decay is {decay!r}; expected an integral decay, such as "
                "decay.integral.exponential(rate=0.01)"
            )
        if params.copies != 1:
            raise ParameterError(f"copies is {params.copies}; expected 1, for an integral decay")
        check_build(params)
        self._bags = (IntegralRows(params, decay),)
        self._zero_weight = 0
        self._pending = PendingRows(params)
        # An attribute of each object, also if it is None: reading it is faster for each row.
        self._labels = LabelBook(params.id_key) if params.value_type == "label" else None
        self._changed()

    def _empty(self) -> Self:
        return type(self)(self.params, self.decay)

    def _changed(self) -> None:
        super()._changed()
        # The last view, with its key.
        self._view: tuple[tuple[int, Estimator], SampleView] | None = None

    @property
    def _rows(self) -> IntegralRows:
        return self._bags[0]

    @property
    def decay(self) -> IntegralDecay:
        """The decay that the sketch was built for."""
        return self._rows.decay

    # ------------------------------------------------------------------------------------- update

    def update(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
        *,
        now: Instant | None = None,
        not_after: Instant | None = None,
    ) -> None:
        """Add observations: columns, or one observation as plain numbers.

        Any order and any repetition, now or later, here or in a sketch that is merged with this
        one, gives the same state.

        Args:
            values: numbers in the stream's ``value_type``, or its labels, texts with at most 1,024
                bytes. None (or masked) if missing.
            weights: integers 0..max_weight. One number may serve a complete batch. Weight 0 is a
                no-op. :func:`~decaysketch.scale_weights` turns real weights into these.
            timestamps: integers in the stream's ``time_unit``, at most 2^62 in magnitude. Later
                than the clock is allowed.
            ids: integers in ``[0, 2^id_bits)``. :func:`~decaysketch.observation_ids` makes them
                from any key. Rows with equal (id, weight) are duplicates of one observation,
                represented by the latest, the maximum by (timestamp, value).
            now: first :meth:`advance` to this time.
            not_after: reject, and count, rows with a later timestamp.

        Raises:
            ObservationError: the first row that is out of bounds, or columns with unequal lengths
                or a wrong type. Nothing in the batch was accepted, and the clock did not change.
            ParameterError: ``now`` or ``not_after`` is not a time.

        Complexity: O(log max_weight) arithmetic steps per row, amortised.
        """
        if self.looks_at_times:
            self._look_at(timestamps)
        if self._labels is not None:
            values = self._codes(values)
        unit = self.params.time_unit
        told = None if now is None else check_time("now", in_units(now, unit))
        if not_after is None and (gathered := self._pending.take(values, weights, timestamps, ids)):
            if told is not None:
                self._tell(told)
            if gathered >= ENOUGH:
                self._flush()
            return
        if not_after is None and (checked := self._rows.check(values, weights, timestamps, ids)):
            columns, zero_weight = checked
            if told is not None:
                self._tell(told)
            self._fed += len(columns)
            self._zero_weight += zero_weight
            self._rows.admit(columns)
            self._changed()
            return
        # Columns that have to be converted, or a row that is at fault.
        batch = prepare(self.params, values, weights, timestamps, ids)
        taken = batch.not_after(in_units(not_after, unit, name="not_after"))
        if told is not None:
            self._tell(told)
        self._fed += len(batch.ids)
        self._too_late += len(batch.ids) - len(taken.ids)
        self._zero_weight += int((taken.weights == 0).sum())
        self._rows.admit(taken)
        self._changed()

    def verdicts(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
    ) -> npt.NDArray[np.int8]:
        """Return the row status that :meth:`update` would give each row in this batch. Nothing
        changes.

        Returns:
            int8[n]: a :class:`~decaysketch.core.row_check.Verdict` per row. A row that
            expired before the clock's time, or begins with weight 0, has the status of a row below
            the watermark.

        Raises:
            ObservationError: as :meth:`update`.

        Complexity: that of merging a sketch of the batch.
        """
        if self._labels is not None:
            values = codes_of(values, self.params.id_key)
        batch = prepare(self.params, values, weights, timestamps, ids)
        self._flush()
        merged = IntegralRows(self.params, self.decay)
        merged.absorb([self._rows])
        merged.admit(batch)
        rows = Identified(batch.ids, batch.weights, batch.timestamps, batch.value_keys)
        return compare(self._rows.identified(), merged.identified(), rows)

    def _fold(self, *columns: Any) -> None:
        checked = self._rows.check(*columns)
        assert checked, "single observations are validated when they are given"
        self._rows.admit(checked[0])
        self._changed()

    def advance(self, now: Instant) -> None:
        """Set the clock: everything that has expired by ``now`` may be dropped. O(M).

        The clock never goes back: an earlier time than the clock changes nothing.

        Raises:
            ParameterError: ``now`` is not an integer, or more than 2^62 in magnitude.
        """
        self._tell(check_time("now", in_units(now, self.params.time_unit)))

    def _tell(self, now: int) -> None:
        if now > self._rows.clock:
            self._rows.advance(now)
            self._changed()

    def _differences(self, other: Any) -> Differences:
        differences = super()._differences(other)
        if spec_of(self.decay) != spec_of(other.decay):
            differences["decay"] = (self.decay, other.decay)
        return differences

    # --------------------------------------------------------------------------- state and bytes

    def state(self) -> IntegralState:
        """The canonical state. O(rows log rows) after a change, else O(1)."""
        return self.snapshot().state

    def _freeze(self) -> IntegralSnapshot:
        state = self._rows.state()
        if self._labels is not None:
            state = replace(state, labels=self._labels.held([state.value_keys]))
        return IntegralSnapshot(state, type(self).from_state)

    @classmethod
    def from_state(cls, state: IntegralState) -> Self:
        """Return a sketch with ``state``, which must be a result of :meth:`state`."""
        sketch = cls(state.params, state.decay)
        sketch._bags = (IntegralRows.from_state(state),)
        sketch._know(state.labels)
        sketch._snapshot = IntegralSnapshot(state, cls.from_state)
        return sketch

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """Return canonical bytes: equal states give equal bytes on every platform.

        Args:
            embed_params: False identifies parameters and decay by digests, for exchange where both
                sides know them.
        """
        return self.snapshot().to_bytes(embed_params=embed_params)

    @classmethod
    def from_bytes(
        cls,
        blob: bytes | bytearray | memoryview,
        *,
        params: SketchParams | None = None,
        decay: IntegralDecay | None = None,
        id_key: bytes | None = None,
    ) -> Self:
        """Read a sketch. Nothing in the bytes is trusted except the clock.

        Args:
            blob: bytes from :meth:`to_bytes`.
            params: the stream's parameters. Required if the bytes contain only their fingerprint.
            decay: the stream's decay. Required likewise, and if it is a table.
            id_key: the secret id key, if the bytes were built with one and ``params`` is None.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch with other parameters than ``params``, or another
                ``decay``, or one of them is required and missing.
        """
        return cls.from_state(wire.decode(blob, params=params, decay=decay, id_key=id_key))

    def stats(self) -> IntegralStats:
        return IntegralStats(
            **self._counted(),
            zero_weight=self._zero_weight,
            already_expired=self._rows.expired,
            label_collisions=self._collisions,
            warnings=self._warnings(self.state()),
        )

    def _warnings(self, state: IntegralState) -> tuple[str, ...]:
        if not len(state):
            return ()
        now = max(int(state.times[0]), state.clock)
        if not int(state.watermarks[-1]) <= now < int(state.watermarks[0]):
            return ()  # cannot be answered, or is exact
        return aggregates.warnings(self.at(None, now).samples)

    # -------------------------------------------------------------------------------------- query

    def sample(self, *, now: Instant | None = None, estimator: Estimator = "stratified") -> Sample:
        """Return the weighted sample that every query reads; see
        :mod:`decaysketch.integral.sampling`.

        Args:
            now: time of the query, in the stream's unit or as a moment
                (:func:`decaysketch.instant`), not before the clock. None: the latest known time.
                Observations with a later timestamp are kept but not counted. A query does not move
                the clock.
            estimator: "stratified" (default), or "level" as in the paper: larger variance.

        Raises:
            UnanswerableQueryError: ``now`` lies before the clock, or observations that count at
                that time were discarded at every level.
            ParameterError: ``now`` is not an integer time, or the estimator is unknown.
        """
        return draw(self.state(), self._asked(now), estimator)

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        estimator: Estimator = "stratified",
    ) -> SampleView:
        """Return a view for queries at a time. Arguments and errors are as for :meth:`sample`, and

        Args:
            decay: None: it was fixed when the sketch was built.
        """
        if decay is not None:
            raise ParameterError(
                f"decay is {decay!r}; expected None, because this sketch was built with a fixed "
                "decay"
            )
        self._flush()
        asked = (self._asked(now), estimator)
        if self._view is None or self._view[0] != asked:
            self._view = asked, SampleView([self.sample(now=asked[0], estimator=estimator)])
        return self._view[1]

    def _asked(self, now: Any) -> Any:
        return self.snapshot().latest if now is None else in_units(now, self.params.time_unit)

    # --------------------------------------------------------------------------------------- view

    def _summary(self) -> dict[str, Any]:
        stats, params = self.stats(), self.params
        summary: dict[str, Any] = {
            "decay": self.decay,
            "rows": f"{stats.rows:,}",
            "capacity": f"{params.capacity:,}",
        }
        if stats.clock is not None:
            summary["clock"] = told(params.time_unit, stats.clock)
        if stats.rows:
            summary["times"] = span(params.time_unit, stats.oldest, stats.newest)
        if stats.complete_since[0] is not None and stats.complete_since[0] != stats.clock:
            summary["exact from"] = told(params.time_unit, stats.complete_since[0])
        summary["max_weight"] = params.max_weight
        summary["id_bits"] = params.id_bits
        summary["seed"] = params.seed if params.id_key is None else "(secret id key)"
        return summary
