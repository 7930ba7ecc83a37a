"""DecaySketch: duplicate-insensitive aggregates under any decay chosen at query time.

Stored rows
    For each of the levels 0..M, the most recent ``capacity`` distinct observations among those that
    the level's hash selects. Level ``i`` selects about ``2^-i`` of all units of weight. Each
    observation is stored once. See ``state.py`` for the definition. Parameters with several
    repetitions (independent hash functions) give as many such sets. Queries answer by their
    average or median.
Guarantee
    The state, and its bytes, are a function of the parameters and of the set of observations that
    were fed, by any path: order, repetition, batching and the merge tree do not matter. The
    relative standard error of a decayed sum is about ``1 / sqrt(capacity)``. Every result comes
    with its interval. The sketch stores about ``capacity (1 + log2(n / capacity) / 2)`` rows after
    ``n`` distinct observations, and never more than ``(M + 1) capacity``.
Paper
    Cormode, Tirthapura and Xu, "Time-decaying sketches for robust aggregation of sensor data",
    sections 3.1, 3.2, 4.1 and 4.2. Departures:

    * An observation is stored once instead of once for each level.
    * All ties at a cut are discarded together. Otherwise the state would depend on the order of
      arrival.
    * Ids are mixed before hashing (``hashing.py``).
    * Duplicates may disagree. Then the latest one represents the observation.
    * Estimates are stratified (``docs/estimators.md``).
Limits
    A sketch is not safe to use from two threads at once. A :meth:`~DecaySketch.snapshot` of it may
    be read from any thread. Duplicates that a relay stamps with its own, later time look recent.
    Timestamp an observation at its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import ENOUGH, PendingRows, Sketch, Stats
from decaysketch.core.labels import LabelBook, codes_of
from decaysketch.core.observations import Observations, prepare
from decaysketch.core.params import SketchParams
from decaysketch.core.plausible_times import span, told
from decaysketch.core.records import Dictionaries, prepare_records
from decaysketch.core.row_check import Compared
from decaysketch.core.time_units import Instant, in_units
from decaysketch.core.withdrawals import revised, withdrawn_rows
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.query import aggregates
from decaysketch.query.catalog import AskedOfValues, AskedOfWeights, View, questions_of
from decaysketch.query.sample import Sample
from decaysketch.querytime import wire
from decaysketch.querytime.rows import (
    Retained,
    RetainedRecords,
    RetainedRows,
    compared_in_place,
    rows_like,
    rows_of,
)
from decaysketch.querytime.snapshot import Estimator, QueryTimeSnapshot
from decaysketch.querytime.state import SketchState, params_of_copies
from decaysketch.querytime.strata_rows import RetainedStrata
from decaysketch.querytime.strata_state import StrataState

__all__ = ["DecaySketch", "SketchStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchStats(Stats):
    """Figures about ingested and stored rows. See :class:`~decaysketch.contract.sketch.Stats`.

    Attributes:
        zero_weight: fed rows of weight 0, which contribute nothing.
        ids_with_several_weights: ids stored with more than one weight. Identity is (id, weight), so
            each counts as several observations. In most streams a message has one weight.
        label_collisions: labels that arrived, here or in merged sketches, with the code of another
            label. The two are one, by the smaller name.
        withdrawn: stored tombstones of withdrawn observations.
        strata: strata stored. 0 in a stream without strata.
        ids_in_several_strata: ids stored in more than one stratum. Each counts as an observation in
            each of them, as where duplicates disagree on the stratum.
        warnings: reasons to trust results less than they state, as far as the stored rows show:
            ids that fill their space, weights too unequal for counts and totals of old times.
        advice: parameters that would make results accurate, see
            :attr:`~decaysketch.contract.snapshot.Snapshot.advice`.
    """

    zero_weight: int
    ids_with_several_weights: int
    label_collisions: int = 0
    withdrawn: int = 0
    strata: int = 0
    ids_in_several_strata: int = 0
    warnings: tuple[str, ...] = ()
    advice: str | None = None


class DecaySketch(AskedOfValues, AskedOfWeights, Sketch):
    """A mergeable sketch of timestamped, weighted observations.

    Args:
        params: build parameters. Every sketch in one stream shares them (capacity may differ).
            Default: ``SketchParams()``, or the parameters for ``accuracy``.
        accuracy: accuracy of a sum in 19 of 20 results, as 0.02 or "2%", without ``params``.

    Raises:
        ParameterError: both are given, or the accuracy is invalid.

    Example:
        >>> import decaysketch as ds
        >>> sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40))
        >>> sketch.update([21.5, 22.0, 21.5], 1, [100, 160, 100], [7, 8, 7])
        >>> round(sketch.count(ds.decay.window(3600), now=200).value)
        2
    """

    questions = questions_of("values", "numbers", "weights", "chosen decay")
    snapshot_type = QueryTimeSnapshot

    _bags: Sequence[Retained]
    _pending: PendingRows

    if TYPE_CHECKING:

        @property
        def params(self) -> SketchParams: ...

        def snapshot(self) -> QueryTimeSnapshot: ...

    def __init__(
        self, params: SketchParams | None = None, *, accuracy: float | str | None = None
    ) -> None:
        if params is None:
            params = SketchParams(accuracy=accuracy)
        elif accuracy is not None:
            raise ParameterError(f"accuracy is {accuracy!r} beside params; expected one of them")
        self._bags = tuple(rows_like(params, copy) for copy in range(params.samples))
        self._zero_weight = 0
        self._columns = bool(params.columns)
        self._pending = PendingRows(params)
        self._dictionaries = Dictionaries() if params.columns else None
        # An attribute of each object, also if it is None: reading it is faster for each row.
        self._labels = LabelBook(params.id_key) if params.value_type == "label" else None

    def _empty(self) -> Self:
        return type(self)(self.params)

    # ------------------------------------------------------------------------------------- update

    def update(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
        *,
        not_after: Instant | None = None,
    ) -> None:
        """Ingest observations: columns, or one observation as plain numbers.

        Any order and any repetition, now or later, here or in a sketch that is merged with this
        one, gives the same state.

        Args:
            values: numbers of the stream's ``value_type``, or its labels, texts of at most 1,024
                bytes. None (or masked) where missing. One number may serve a complete batch. In a
                stream with columns: columns by name (a mapping, a data frame, an Arrow table), or
                one mapping for each row. An absent column is null.
            weights: integers 0..max_weight. One number may serve a complete batch. Weight 0 is a
                no-op. :func:`~decaysketch.scale_weights` converts real weights into these.
            timestamps: integers in the stream's ``time_unit``, at most 2^62 in magnitude.
            ids: integers in ``[0, 2^id_bits)``. :func:`~decaysketch.observation_ids` makes them
                from any key. Rows with equal (id, weight) are duplicates of one observation. The
                latest represents it, the maximum by (timestamp, value).
            not_after: reject, and count, rows with a later timestamp: a clock that runs ahead
                would keep its place in the sketch. An integer or a moment
                (:func:`decaysketch.instant`).

        Raises:
            ObservationError: the first row that is out of bounds, or columns of unequal length or
                of a wrong type. No row in the batch was stored.
            ParameterError: ``not_after`` is no time.

        Complexity: O(log max_weight) arithmetic steps for each row and repetition, amortised.
        """
        if self.looks_at_times:
            self._look_at(timestamps)
        if self._labels is not None:
            values = self._codes(values)
        if self._columns:
            self._update_records(values, weights, timestamps, ids, not_after)
            return
        if not_after is None:
            if gathered := self._pending.take(values, weights, timestamps, ids):
                if gathered == ENOUGH:
                    self._flush()
                return
            zero_weight = self._admit(values, weights, timestamps, ids)
            if zero_weight >= 0:
                self._fed += len(ids)  # type: ignore[arg-type]
                self._zero_weight += zero_weight
                return
        # Columns that have to be converted, or a row that is at fault.
        batch = prepare(self.params, values, weights, timestamps, ids)
        taken = self._in_time(batch, not_after)
        for bag in self._bags:
            cast(RetainedRows, bag).admit(*taken, checked=True)
        self._changed()

    def _in_time(self, batch: Observations, not_after: Instant | None) -> Observations:
        """Return the rows that are not later, and count all."""
        taken = batch.not_after(in_units(not_after, self.params.time_unit, name="not_after"))
        self._fed += len(batch.ids)
        self._too_late += len(batch.ids) - len(taken.ids)
        self._zero_weight += int((taken.weights == 0).sum())
        return taken

    def _update_records(
        self, values: Any, weights: Any, timestamps: Any, ids: Any, not_after: Instant | None
    ) -> None:
        """See :meth:`update`, for a stream with columns."""
        records, batch = prepare_records(
            self.params, values, weights, timestamps, ids, self._dictionaries
        )
        records = revised(self.params, records)
        for bag in self._record_bags:
            bag.check_texts(records)
        taken = self._in_time(batch, not_after)
        if len(taken.ids) < len(batch.ids):
            records = records[taken.value_keys]
        for bag in self._record_bags:
            bag.admit_records(records, taken.weights, taken.timestamps, taken.ids)
        self._changed()

    @property
    def _record_bags(self) -> Sequence[RetainedRecords | RetainedStrata]:
        return cast("Sequence[RetainedRecords | RetainedStrata]", self._bags)

    def _admit(self, values: Any, weights: Any, timestamps: Any, ids: Any) -> int:
        """See ``Rows.admit``: every repetition admits the same rows."""
        first, *others = cast("Sequence[RetainedRows]", self._bags)
        zero_weight = first.admit(values, weights, timestamps, ids)
        if zero_weight >= 0:
            for bag in others:
                bag.admit(values, weights, timestamps, ids)
            if self._snapshot is not None:
                self._changed()
        return zero_weight

    def _fold(self, *columns: Any) -> None:
        zero_weight = self._admit(*columns)
        assert zero_weight == 0, "single observations are validated when they are given"

    def withdraw(
        self, ids: npt.ArrayLike | None = None, *, where: str | Sequence[str] | None = None
    ) -> int:
        """Withdraw stored observations. No query reads them again, and no duplicate, late or
        merged, brings them back.

        Args:
            ids: their ids. Ids that are not stored have no effect.
            where: a condition over the columns, ``w``, ``time`` and ``age``, instead of ids, or
                several, of which one must hold.

        Returns:
            How many observations were withdrawn.

        Raises:
            ParameterError: the stream has no revision column, or not exactly one argument is given,
                or the condition cannot be read.

        Complexity: O(rows * columns).
        """
        made: DecaySketch = self.snapshot().withdrawal(ids, where=where)
        self.merge(made)
        return made.stats().withdrawn

    def verdicts(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
    ) -> npt.NDArray[np.int8]:
        """Return the status that :meth:`update` would give to each row in this batch. Changes
        nothing.

        Returns:
            int8[n]: a :class:`~decaysketch.core.row_check.Verdict` for each row.

        Raises:
            ObservationError: as :meth:`update`.

        Complexity: O(rows stored + rows of the batch).
        """
        return self.snapshot().verdicts(values, weights, timestamps, ids)

    def compared(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
    ) -> Compared | None:
        """See :meth:`Sketch.compared`. None if the stream has columns. No row is copied."""
        if self._columns:
            return None
        self._flush()
        if self._labels is not None:
            values = codes_of(values, self.params.id_key)
        batch = prepare(self.params, values, weights, timestamps, ids)
        return compared_in_place(cast("Sequence[RetainedRows]", self._bags), batch)

    # --------------------------------------------------------------------------- state and bytes

    def _freeze(self) -> QueryTimeSnapshot:
        states = [bag.state() for bag in self._bags]
        if self._labels is not None:
            labels = self._labels.held(state.value_keys for state in states)
            states = [replace(state, labels=labels) for state in states]
        before = cast("QueryTimeSnapshot | None", self._before)
        return QueryTimeSnapshot(states, type(self).from_state, before=before)

    def states(self) -> tuple[SketchState, ...]:
        """The canonical state for each repetition, in order. O(rows) after a change, else O(1)."""
        return self.snapshot().states

    def state(self, copy: int = 0) -> SketchState:
        """Return the canonical state for one repetition, see :meth:`states`.

        Raises:
            ParameterError: there is no repetition with that number.
        """
        if (
            isinstance(copy, bool)
            or not isinstance(copy, int)
            or not 0 <= copy < self.params.samples
        ):
            raise ParameterError(
                f"copy is {copy!r}; expected an integer from 0 to {self.params.samples - 1}"
            )
        return self.states()[copy]

    @classmethod
    def from_state(cls, states: SketchState | Sequence[SketchState]) -> Self:
        """Return a sketch with the states that :meth:`states` returned.

        Args:
            states: one for each repetition, in order, or a single one if there is one repetition.

        Raises:
            ParameterError: not exactly the repetitions of one sketch.
        """
        given = (states,) if isinstance(states, SketchState) else tuple(states)
        sketch = cls(params_of_copies(given))
        sketch._bags = tuple(map(rows_of, given))
        sketch._know(given[0].labels)
        sketch._snapshot = QueryTimeSnapshot(given, cls.from_state)
        return sketch

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """Return canonical bytes: equal states give equal bytes on every platform.

        Args:
            embed_params: False stores the parameters by their 8-byte fingerprint, for exchange
                where both sides know them.
        """
        return self.snapshot().to_bytes(embed_params=embed_params)

    @classmethod
    def from_bytes(
        cls,
        blob: bytes | bytearray | memoryview,
        *,
        params: SketchParams | None = None,
        id_key: bytes | None = None,
    ) -> Self:
        """Read a sketch. Nothing in the bytes is trusted.

        Args:
            blob: the bytes that :meth:`to_bytes` wrote.
            params: the stream's parameters. Needed if the bytes contain only their fingerprint.
            id_key: the secret id key, if the bytes were built with one and ``params`` is None.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch with other parameters than ``params``.
            ParameterError: a secret id key is needed, or does not match the check value.
        """
        return cls.from_state(wire.decode(blob, params=params, id_key=id_key))

    def stats(self) -> SketchStats:
        snapshot = self.snapshot()
        held = [state for state in snapshot.states if len(state)]
        weights = np.int64(self.params.max_weight)
        pairs = [np.empty(0, np.int64), *(s.ids * weights + (s.weights - 1) for s in held)]
        ids = np.unique(np.concatenate(pairs)) // weights
        state = snapshot.states[0]
        several = state.ids_in_several() if isinstance(state, StrataState) else 0
        return SketchStats(
            **self._counted(),
            zero_weight=self._zero_weight,
            ids_with_several_weights=len(np.unique(ids[1:][ids[1:] == ids[:-1]])),
            label_collisions=self._collisions,
            withdrawn=max(map(_withdrawn, snapshot.states)),
            strata=len(state.strata) if isinstance(state, StrataState) else 0,
            ids_in_several_strata=several,
            warnings=(
                *aggregates.warnings(snapshot.everything),
                *_in_several(self.params, several),
            ),
            advice=snapshot.advice,
        )

    # -------------------------------------------------------------------------------------- query

    def sample(
        self,
        decay: Decay | str,
        *,
        now: Instant | None = None,
        estimator: Estimator = "stratified",
    ) -> Sample:
        """Return the weighted sample that every query reads, see :mod:`decaysketch.query.sample`.

        Args:
            decay: weight of an observation as a function of its age ``now - timestamp``, or a text
                that spells one (:mod:`decaysketch.decay.read`).
            now: query time, in the stream's unit or as a moment (:func:`decaysketch.instant`). It
                may lie in the past. None: the newest stored time. Observations with a later
                timestamp are kept but not counted.
            estimator: "stratified" (default), or "cohen-strauss", the paper's: larger variance
                and several times slower. See ``docs/estimators.md``.

        Raises:
            UnanswerableQueryError: the sketch has discarded, at every level, observations that
                the decay gives weight to.
            ParameterError: ``now`` is no integer time, ``decay`` no decay, or another estimator.
        """
        return self.snapshot().sample(decay, now, estimator=estimator)

    def at(
        self,
        decay: Decay | str | None,
        now: Instant | None = None,
        *,
        estimator: Estimator = "stratified",
    ) -> View:
        """Return the view under a decay, at a time. Arguments and errors are as in :meth:`sample`.

        A query's ``combine`` selects how several repetitions give one result. With one repetition
        it has no effect. "average" reads the pooled sample (most accurate). "median" takes the
        median over the repetitions' own results, for which the paper gives its guarantee. See
        :mod:`decaysketch.query.ensemble`.
        """
        return self.snapshot().at(decay, now, estimator=estimator)

    # --------------------------------------------------------------------------------------- view

    def _summary(self) -> dict[str, Any]:
        stats, params = self.stats(), self.params
        held = [mark is None for mark in stats.complete_since]
        summary: dict[str, Any] = {"rows": f"{stats.rows:,}", "capacity": f"{params.capacity:,}"}
        if stats.rows:
            summary["times"] = span(params.time_unit, stats.oldest, stats.newest)
        if not held[0]:
            summary["exact after"] = told(params.time_unit, stats.complete_since[0])
        summary["levels in use"] = held.index(True) + 1 if any(held) else len(held)
        if params.strata:
            summary["strata"] = ", ".join(params.strata)
        if params.copies > 1:
            summary["copies"] = params.copies
        if len(params.objectives) > 1:
            summary["objectives"] = ", ".join(params.objectives)
        summary["max_weight"] = params.max_weight
        summary["id_bits"] = params.id_bits
        summary["seed"] = params.seed if params.id_key is None else "(secret id key)"
        return summary


def _withdrawn(state: SketchState) -> int:
    found = withdrawn_rows(state.params, state.records)
    return 0 if found is None else int(found.sum())


def _in_several(params: SketchParams, ids: int) -> tuple[str, ...]:
    """Return the warning about ids in several strata."""
    if not ids:
        return ()
    one = "1 id is" if ids == 1 else f"{ids:,} ids are"
    return (
        f"{one} stored in several strata, and count in each: duplicates disagree on "
        f"{', '.join(params.strata)}, or one id names different messages; add the column to the id",
    )
