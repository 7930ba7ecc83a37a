"""ExtremesSketch: the smallest and the largest value in any window that ends now.

Contents
    The rows (time, value) that no later row rules out: the *highs*, larger than all rows after
    them, and the *lows*. A log of any length usually has some dozens, since a row stays only until
    its value is reached again. If values fall, or rise, for as long as the log lasts, the sketch
    keeps one row for each of some time spans that grow with their age. See ``state.py`` for the
    definition.
Guarantees
    The state, and its bytes, are a function of the parameters and the set of accepted rows, by
    whichever paths they arrived. Results are exact, or two guaranteed bounds. No probability is
    involved.
Unsupported queries
    Queries as of a time before the newest row: a row that a later one rules out is gone, even if it
    was the largest the day before. Counts, means and all other aggregates that need every row: feed
    a :class:`~decaysketch.DecaySketch` as well, with the same columns.
When rows disagree
    Every row counts as it is: a correction does not remove the value that it corrects.
Limits
    A sketch is not safe to use from two threads at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import ENOUGH, PendingRows, Sketch, Stats
from decaysketch.core.observations import MISSING_KEY, Observations, prepare
from decaysketch.core.plausible_times import span
from decaysketch.core.row_check import Identified, compare
from decaysketch.core.time_units import Instant, in_units
from decaysketch.decay import Decay
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.extremes import wire
from decaysketch.extremes.params import ExtremesParams
from decaysketch.extremes.rows import Staircases
from decaysketch.extremes.snapshot import ExtremesSnapshot
from decaysketch.extremes.state import ExtremesState
from decaysketch.extremes.view import StairView
from decaysketch.query.catalog import questions_of
from decaysketch.query.extremes import AskedOfExtremes

__all__ = ["ExtremesSketch"]


class ExtremesSketch(AskedOfExtremes, Sketch):
    """A mergeable sketch for the smallest and largest values; see the module.

    Args:
        params: build parameters. Every sketch in one stream shares them (capacity may differ).

    Raises:
        ParameterError: parameters of another family.

    Example:
        >>> import decaysketch as ds
        >>> from decaysketch.extremes import ExtremesParams, ExtremesSketch
        >>> sketch = ExtremesSketch(ExtremesParams())
        >>> sketch.update([20.5, 24.0, 19.0], 1, [100, 130, 160])
        >>> sketch.max("window(60)", now=160).value, sketch.min("window(60)", now=160).value
        (24.0, 19.0)
    """

    questions = questions_of("extremes", "chosen decay")
    snapshot_type = ExtremesSnapshot

    _bags: tuple[Staircases]
    _pending: PendingRows

    if TYPE_CHECKING:

        @property
        def params(self) -> ExtremesParams: ...

        def snapshot(self) -> ExtremesSnapshot: ...

    def __init__(self, params: ExtremesParams) -> None:
        if not isinstance(params, ExtremesParams):
            raise ParameterError(f"params are {params!r}; an ExtremesSketch takes ExtremesParams")
        self._bags = (Staircases(params),)
        self._pending = PendingRows(params)
        self._changed()

    def _empty(self) -> Self:
        return type(self)(self.params)

    # ------------------------------------------------------------------------------------- update

    def update(
        self,
        values: npt.ArrayLike,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike | None = None,
        *,
        not_after: Instant | None = None,
    ) -> None:
        """Add observations: columns, or one observation as plain numbers.

        Any order and any repetition, now or later, here or in a sketch that is merged with this
        one, gives the same state.

        Args:
            values: numbers in the stream's ``value_type``. None may be missing.
            weights: integers 0..max_weight. One number may serve a complete batch. Weight 0 is a
                no-op, and all other weights are alike.
            timestamps: integers in the stream's ``time_unit``, at most 2^62 in magnitude.
            ids: integers in ``[0, 2^id_bits)``, checked and not stored. None: there are none.
            not_after: reject, and count, rows with a later timestamp. Rows from a clock that runs
                ahead hide all smaller values until their time has come.

        Raises:
            ObservationError: the first row that is out of bounds, or columns with unequal lengths
                or a wrong type. Nothing in the batch was accepted.
            ParameterError: ``not_after`` is not a time.

        Complexity: amortised O(1) for each row in a batch ordered by time, else O(log rows). A
            late batch also takes O(stored rows that are later).
        """
        if self.looks_at_times:
            self._look_at(timestamps)
        if not_after is None:
            named = 0 if ids is None and type(timestamps) is int else ids
            if gathered := self._pending.take(values, weights, timestamps, named):
                if gathered >= ENOUGH:
                    self._flush()
                return
            if self._rows.admit(values, weights, timestamps, ids):
                self._fed += len(timestamps)  # type: ignore[arg-type]  # an array
                self._changed()
                return
        # Columns that have to be converted, or a row that is at fault.
        batch = self._prepared(values, weights, timestamps, ids)
        limit = in_units(not_after, self.params.time_unit, name="not_after")
        taken = batch.not_after(limit)
        self._fed += len(batch.ids)
        self._too_late += len(batch.ids) - len(taken.ids)
        self._rows.take(*_weighty(taken), in_order=False)
        self._changed()

    @property
    def _rows(self) -> Staircases:
        return self._bags[0]

    def _prepared(self, values: Any, weights: Any, timestamps: Any, ids: Any) -> Observations:
        if ids is None:
            ids = np.zeros(np.size(timestamps), np.int64)
        batch = prepare(self.params, values, weights, timestamps, ids)
        missing = batch.value_keys == MISSING_KEY
        if missing.any():
            row = int(missing.argmax())
            raise ObservationError(
                f"values[{row}] is missing; expected a number: an extreme is one of values",
                column="values", row=row,
            )  # fmt: skip
        return batch

    def verdicts(
        self,
        values: npt.ArrayLike,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike | None = None,
    ) -> npt.NDArray[np.int8]:
        """Return the row status that :meth:`update` would give each row in this batch. Nothing
        changes.

        Returns:
            int8[n]: a :class:`~decaysketch.core.row_check.Verdict` per row. A row that a later
            one rules out, or with weight 0, is below the watermark.

        Raises:
            ObservationError: as :meth:`update`.

        Complexity: that of merging a sketch of the batch.
        """
        batch = self._prepared(values, weights, timestamps, ids)
        after = self.copy()
        after._rows.take(*_weighty(batch), in_order=False)
        after._changed()
        times, keys = batch.timestamps, batch.value_keys
        offered = Identified(times, keys, times, keys)
        return compare(self.snapshot().identified, after.snapshot().identified, offered)

    def _fold(self, *columns: Any) -> None:
        taken = self._rows.admit(*columns)
        assert taken, "single observations are validated when they are given"
        self._changed()

    # --------------------------------------------------------------------------- state and bytes

    def state(self) -> ExtremesState:
        """The canonical state. O(rows log rows) after a change, else O(1)."""
        return self.snapshot().state

    def _freeze(self) -> ExtremesSnapshot:
        return ExtremesSnapshot(self._rows.state(), type(self).from_state)

    @classmethod
    def from_state(cls, state: ExtremesState) -> Self:
        """Return a sketch with ``state``, which must be a result of :meth:`state`."""
        sketch = cls(state.params)
        sketch._bags = (Staircases.from_state(state),)
        sketch._snapshot = ExtremesSnapshot(state, cls.from_state)
        return sketch

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """Return canonical bytes: equal states give equal bytes on every platform.

        Args:
            embed_params: False identifies the parameters by their fingerprint, for exchange where
                both sides know them.
        """
        return self.snapshot().to_bytes(embed_params=embed_params)

    @classmethod
    def from_bytes(
        cls,
        blob: bytes | bytearray | memoryview,
        *,
        params: ExtremesParams | None = None,
        id_key: bytes | None = None,
    ) -> Self:
        """Read a sketch. Nothing in the bytes is trusted.

        Args:
            blob: bytes from :meth:`to_bytes`.
            params: the stream's parameters. Required if the bytes contain only their fingerprint.
            id_key: the secret id key, if the bytes were built with one and ``params`` is None.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch with other parameters than ``params``, or they are
                required and missing.
        """
        return cls.from_state(wire.decode(blob, params=params, id_key=id_key))

    def stats(self) -> Stats:
        return Stats(**self._counted())

    def _summary(self) -> dict[str, Any]:
        held, params = self.snapshot(), self.params
        fields: dict[str, Any] = {"rows": f"{len(held):,}", "capacity": f"{params.capacity:,}"}
        if held.oldest is not None and held.newest is not None:
            fields["times"] = span(params.time_unit, held.oldest, held.newest)
        return fields

    # -------------------------------------------------------------------------------------- query

    def at(
        self, decay: Decay | str | None, now: Instant | None = None, *, estimator: Any = "stairs"
    ) -> StairView:
        """Return a view for queries under a decay, at a time, over the rows with weight under the
        decay.

        Args:
            decay: ``decay.window(w)`` is the window [now - w, now]. A decay that never reaches 0
                gives weight to all rows.
            now: time of the query, in the stream's unit or a moment. None: the newest stored time.
            estimator: "stairs", the only one.

        Raises:
            UnanswerableQueryError: ``now`` is before the newest row.
            ParameterError: an invalid decay, time or estimator.
        """
        if estimator != "stairs":
            raise ParameterError(f"estimator is {estimator!r}; expected 'stairs'")
        return self.snapshot().at(decay, now)


def _weighty(batch: Observations) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Times and keys of the rows with weight."""
    counts = batch.weights > 0
    if counts.all():
        return batch.timestamps, batch.value_keys
    return batch.timestamps[counts], batch.value_keys[counts]
