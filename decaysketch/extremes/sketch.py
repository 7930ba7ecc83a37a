"""ExtremesSketch: the least and the largest value of any window that ends now.

What it keeps
    Of the rows (time, value) those that no later row rules out: the *highs*, larger than all that
    came after them, and the *lows*. Of a log of any length there are usually some dozens, since a
    row stays only until its value is reached again; of values that fall, or rise, for as long as
    the log lasts, one for each of some spans of time that grow with their age. See ``state.py`` for
    the definition.
What it promises
    The state, and its bytes, are a function of the parameters and of the set of rows that were fed,
    by whichever paths. Answers are exact, or two ends of which both are sure; no probability is in
    them.
What it does not answer
    Anything as of a time before the newest row: a row that a later one rules out is gone, though it
    was the largest the day before. Counts, means and all else that needs every row: feed a
    :class:`~decaysketch.DecaySketch` beside it, by the same columns.
When rows disagree
    Rows are what they say: a correction does not take back the value that it corrects.
Limits
    A sketch is not safe to use from two threads at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.answers.extremes import AskedOfExtremes
from decaysketch.answers.questions import questions_of
from decaysketch.contract.sketch import Sketch, Stats
from decaysketch.core.observations import MISSING_KEY, Observations, prepare
from decaysketch.core.pending import ENOUGH, PendingRows
from decaysketch.core.plausible_times import span
from decaysketch.core.time_units import Instant, in_units
from decaysketch.core.verdicts import Identified, compare
from decaysketch.decay import Decay
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.extremes import wire
from decaysketch.extremes.params import ExtremesParams
from decaysketch.extremes.rows import Staircases
from decaysketch.extremes.snapshot import ExtremesSnapshot
from decaysketch.extremes.state import ExtremesState
from decaysketch.extremes.view import StairView

__all__ = ["ExtremesSketch"]


class ExtremesSketch(AskedOfExtremes, Sketch):
    """A mergeable sketch of the least and largest values; see the module.

    Args:
        params: build parameters; every sketch of one stream shares them (capacity may differ).

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
        """Fold in observations: columns, or one observation as plain numbers.

        Any order and any repetition, now or later, here or in a sketch that is merged with this
        one, gives the same state.

        Args:
            values: numbers of the stream's ``value_type``; none may be missing.
            weights: integers 0..max_weight; one number may serve a whole batch. Weight 0 is a
                no-op, and all others are alike.
            timestamps: integers in the stream's ``time_unit``, at most 2^62 in magnitude.
            ids: integers in ``[0, 2^id_bits)``, checked and not kept; None: there are none.
            not_after: refuse, and count, rows with a later timestamp. A clock that runs ahead hides
                all that is smaller until its time has come.

        Raises:
            ObservationError: the first row that is out of bounds, or columns of unequal length or
                of a wrong type. Nothing of the batch was taken.
            ParameterError: ``not_after`` is no time.

        Complexity: amortised O(1) for each row of a batch in order of time, else O(log rows); for a
            late batch also O(rows held that are later).
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
        """What :meth:`update` with this batch would do with each row; nothing is changed.

        Returns:
            int8[n]: a :class:`~decaysketch.core.verdicts.Verdict` for each row. A row that a later
            one rules out, or of weight 0, is below the watermark.

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
        """A sketch that holds ``state``, which must be one that :meth:`state` returned."""
        sketch = cls(state.params)
        sketch._bags = (Staircases.from_state(state),)
        sketch._snapshot = ExtremesSnapshot(state, cls.from_state)
        return sketch

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """Canonical bytes: equal states give equal bytes on every platform.

        Args:
            embed_params: False names the parameters by their fingerprint, for exchange where both
                sides hold them.
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
        """Read a sketch; nothing in the bytes is trusted.

        Args:
            blob: what :meth:`to_bytes` wrote.
            params: the stream's parameters; needed where the bytes hold only their fingerprint.
            id_key: the secret id key, where the bytes were built with one and ``params`` is None.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch of other parameters than ``params``; or they are
                needed and were not given.
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
        """What can be asked under a decay, at a time: of the rows that the decay gives weight to.

        Args:
            decay: ``decay.window(w)`` is the window [now - w, now]; one that never reaches 0 gives
                weight to all rows.
            now: time of the question, in the stream's unit or a moment; None: the newest time held.
            estimator: "stairs", the only one.

        Raises:
            UnanswerableQueryError: ``now`` is before the newest row.
            ParameterError: no such decay, time or estimator.
        """
        if estimator != "stairs":
            raise ParameterError(f"estimator is {estimator!r}; expected 'stairs'")
        return self.snapshot().at(decay, now)


def _weighty(batch: Observations) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Times and keys of the rows that count."""
    counts = batch.weights > 0
    if counts.all():
        return batch.timestamps, batch.value_keys
    return batch.timestamps[counts], batch.value_keys[counts]
