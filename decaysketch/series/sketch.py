"""SeriesSketch: increase of counters, time-weighted averages, time in states, gaps and sessions.

Stored rows
    For sampled entities (devices, instances) every row later than a watermark, so that each row
    still has its successor. See ``state.py`` for the definition.
Guarantee
    The state, and its bytes, are a function of the parameters and the set of rows that were fed,
    in any order, any number of times, in any parts, merged by any tree.
Queries
    Everything that needs a row and the next row in its series, under any decay, with an interval:
    see :mod:`decaysketch.query.series`. For counts, sums and quantiles over rows, feed a
    :class:`~decaysketch.DecaySketch` with the same columns.
Accuracy
    The number of entities decides the accuracy, not the number of rows. If few entities have many
    rows each, set a ``resolution``. :meth:`SeriesSketch.stats` advises.
Limits
    A sketch is not safe to use from two threads at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from decaysketch.contract.sketch import ENOUGH, PendingRows, Sketch, Stats
from decaysketch.core.observations import (
    Observations,
    check_within,
    integer_column,
    prepare,
)
from decaysketch.core.plausible_times import span
from decaysketch.core.row_check import TIMES, compare, ids_of_bits
from decaysketch.core.time_units import Instant, in_units
from decaysketch.decay import Decay
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.query.catalog import questions_of
from decaysketch.query.series import AskedOfSeries
from decaysketch.series import _native, wire
from decaysketch.series.attributes import GivenAttributes, read_attributes
from decaysketch.series.params import SeriesParams
from decaysketch.series.rows import SeriesRows, identified
from decaysketch.series.snapshot import SeriesSnapshot
from decaysketch.series.state import NO_START, SeriesState
from decaysketch.series.view import PieceView

__all__ = ["SeriesSketch", "SeriesStats"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStats(Stats):
    """Figures about ingested and retained rows.

    Attributes:
        entities: entities with retained rows.
        complete: per level, the number of entities at that level or above. All their rows since
            the time in ``complete_since`` are retained.
        advice: a sentence on parameters that would make results accurate, or None.
        warnings: sentences on retained rows that contradict each other, such as counter starts of
            two writers.
    """

    entities: int
    complete: tuple[int, ...]
    advice: str | None
    warnings: tuple[str, ...]


class SeriesSketch(AskedOfSeries, Sketch):
    """A mergeable sample of series; see the module.

    Args:
        params: build parameters. All sketches of one stream share them (capacity may differ).

    Raises:
        ParameterError: parameters of another family.

    Example:
        >>> import decaysketch as ds
        >>> from decaysketch.series import SeriesParams, SeriesSketch
        >>> one, two = SeriesSketch(SeriesParams()), SeriesSketch(SeriesParams())
        >>> one.update([10, 40, 5], 1, [0, 30, 60], [7, 7, 7])  # a counter, restarted
        >>> two.update([25, 40, 20], 1, [15, 30, 75], [7, 7, 7])  # the same, by another collector
        >>> (one | two).increase("window(75)", guard=0).value
        50.0
    """

    questions = questions_of("series", "chosen decay")
    snapshot_type = SeriesSnapshot

    _bags: tuple[SeriesRows]
    _pending: PendingRows

    if TYPE_CHECKING:

        @property
        def params(self) -> SeriesParams: ...

        def snapshot(self) -> SeriesSnapshot: ...

    def __init__(self, params: SeriesParams) -> None:
        if not isinstance(params, SeriesParams):
            raise ParameterError(f"params are {params!r}; a SeriesSketch takes SeriesParams")
        self._bags = (SeriesRows(params),)
        self._pending = PendingRows(params)
        self._changed()

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
        entities: npt.ArrayLike | None = None,
        starts: npt.ArrayLike | None = None,
        attributes: Any = None,
        not_after: Instant | None = None,
    ) -> None:
        """Ingest rows: columns, or one row as plain numbers.

        Any order and any repetition, now or later, here or in a sketch that is merged with this
        one, gives the same state.

        Args:
            values: numbers of the stream's ``value_type``, missing where masked or None. A missing
                value ends the validity of the preceding value. Counters are read across it.
            weights: of the entity, integers 0..max_weight, rounded down to a power of two. One
                number may serve a complete batch. Rows of weight 0 are ignored. An entity with two
                weights is two entities, so declare a weight that lasts.
            timestamps: integers in the stream's ``time_unit``, at most 2^62 in magnitude.
            ids: of the series, integers in ``[0, 2^id_bits)``, see
                :func:`decaysketch.observation_ids`.
            entities: of the entity of each series, likewise. None: each series is an entity.
            starts: when the row's counter began to count, in the stream's ``time_unit`` and
                not after the row, or :data:`decaysketch.series.NO_START` if unknown.
            attributes: texts by name, each one text for all rows or a column, or one mapping for
                each row, in a stream that declares attributes. A missing one is null.
            not_after: reject, and count, rows with a later timestamp. A clock that runs ahead
                raises watermarks and discards older rows.

        Raises:
            ObservationError: the first row that is out of bounds, or columns of unequal length or
                of a wrong type. The sketch is unchanged.
            ParameterError: ``not_after`` is no time.

        Complexity: amortised O(1) for each row.
        """
        if self.looks_at_times:
            self._look_at(timestamps)
        given = (values, weights, timestamps, ids, entities, starts)
        named = bool(self.params.attributes) or attributes is not None
        if not_after is None and not named and self._took(*given):
            return
        # Columns that have to be converted, or a row that is at fault.
        rows = prepare(self.params, values, weights, timestamps, ids)
        more = self._prepared(rows, entities, starts)
        limit = in_units(not_after, self.params.time_unit, name="not_after")
        late = np.zeros(len(rows.ids), np.bool_)
        if limit is not None:
            late = rows.timestamps > limit
        self._too_late += int(np.count_nonzero(late))
        self._fed += int(np.count_nonzero(late))
        keys, weight, times, series = (column[~late] for column in rows)
        entity, start = (None if column is None else column[~late] for column in more)
        found = None
        if named:
            read = self._named(rows.ids, attributes)
            entity = series if entity is None else entity
            found = replace(read, numbers=read.numbers[~late], ids=read.ids[~late])
            series = found.ids
        batch = _native.Batch(keys, False, weight, times, series, entity, start)
        self._admit(batch, len(batch), found)

    def _took(self, *given: Any) -> bool:
        """Ingest one row of plain numbers, or columns that need no conversion. Return False for
        others.
        """
        *row, entities, starts = given
        if entities is None and starts is None and (gathered := self._pending.take(*row)):
            if gathered >= ENOUGH:
                self._flush()
            return True
        batch = self._rows.check(*given)
        if batch is not None:
            self._admit(batch, len(batch))
        return batch is not None

    @property
    def _rows(self) -> SeriesRows:
        return self._bags[0]

    def _named(self, ids: Int64Array, attributes: Any) -> GivenAttributes:
        params = self.params
        return read_attributes(attributes, params.attributes, ids, params.id_bits, params.id_key)

    def _admit(
        self, batch: _native.Batch, rows: int, attributes: GivenAttributes | None = None
    ) -> None:
        self._rows.admit(batch, attributes)
        self._fed += rows
        if self._snapshot is not None:
            self._changed()

    def _prepared(
        self, rows: Observations, entities: Any, starts: Any
    ) -> tuple[Int64Array | None, Int64Array | None]:
        """Return entities and starts in the form that kernels accept."""
        found: list[Int64Array | None] = []
        for name, given in (("entities", entities), ("starts", starts)):
            column = None if given is None else integer_column(name, given)
            if column is not None and len(column) != len(rows.ids):
                raise ObservationError(
                    f"columns have unequal lengths: {name} has {len(column)} rows, ids has "
                    f"{len(rows.ids)}",
                    column=name,
                )
            found.append(column)
        entity, start = found
        if entity is not None:
            check_within("entities", entity, ids_of_bits(self.params.id_bits))
        if start is not None:
            given = start != NO_START
            check_within("starts", start[given], TIMES)
            if (bad := given & (start > rows.timestamps)).any():
                row = int(bad.argmax())
                raise ObservationError(
                    f"starts[{row}] is {int(start[row])}; expected at most the time of the row, "
                    f"{int(rows.timestamps[row])}",
                    column="starts", row=row, value=int(start[row]),
                )  # fmt: skip
        return entity, start

    def _fold(self, *columns: Any) -> None:
        values, weights, times, ids = columns
        batch = self._rows.check(values, weights, times, ids, None, None)
        assert batch is not None, "single rows are validated when they are given"
        self._rows.admit(batch)
        self._changed()

    def verdicts(
        self,
        values: npt.ArrayLike | None,
        weights: npt.ArrayLike,
        timestamps: npt.ArrayLike,
        ids: npt.ArrayLike,
        *,
        entities: npt.ArrayLike | None = None,
        starts: npt.ArrayLike | None = None,
        attributes: Any = None,
    ) -> npt.NDArray[np.int8]:
        """Return the status that :meth:`update` would give to each row. Changes nothing.

        Returns:
            int8[n]: a :class:`~decaysketch.core.row_check.Verdict` for each row. A row is a
            duplicate of another one in the same cell of ``resolution``.

        Raises:
            ObservationError: as :meth:`update`.

        Complexity: that of merging a sketch of the batch.
        """
        rows = prepare(self.params, values, weights, timestamps, ids)
        after = self.copy()
        after.looks_at_times = False
        after.update(
            values, weights, timestamps, ids, entities=entities, starts=starts,
            attributes=attributes,
        )  # fmt: skip
        entity, _ = self._prepared(rows, entities, starts)
        series = self._named(rows.ids, attributes).ids if self.params.attributes else rows.ids
        offered = identified(
            self.params, rows.ids if entity is None else entity, _rounded(rows.weights), series,
            rows.timestamps, rows.value_keys,
        )  # fmt: skip
        return compare(self.snapshot().identified, after.snapshot().identified, offered)

    # --------------------------------------------------------------------------- state and bytes

    def state(self) -> SeriesState:
        """The canonical state. O(rows) after a change, else O(1)."""
        return self.snapshot().state

    def _freeze(self) -> SeriesSnapshot:
        return SeriesSnapshot(self._rows.state(), type(self).from_state)

    @classmethod
    def from_state(cls, state: SeriesState) -> Self:
        """Make a sketch from a state that :meth:`state` returned."""
        sketch = cls(state.params)
        sketch._bags = (SeriesRows.from_state(state),)
        sketch._snapshot = SeriesSnapshot(state, cls.from_state)
        return sketch

    def to_bytes(self, *, embed_params: bool = True) -> bytes:
        """Canonical bytes: equal states give equal bytes on every platform.

        Args:
            embed_params: False names the parameters by their fingerprint, for exchange where both
                sides know them.
        """
        return self.snapshot().to_bytes(embed_params=embed_params)

    @classmethod
    def from_bytes(
        cls,
        blob: bytes | bytearray | memoryview,
        *,
        params: SeriesParams | None = None,
        id_key: bytes | None = None,
    ) -> Self:
        """Read a sketch from bytes that may come from anywhere.

        Args:
            blob: bytes from :meth:`to_bytes`.
            params: the stream's parameters. Required if the bytes have only their fingerprint.
            id_key: the secret id key, if the bytes use one and ``params`` is None.

        Raises:
            CorruptSketchError: no builder could have written the bytes.
            IncompatibleSketchError: the parameters differ from ``params``, or are required and not
                given.
        """
        return cls.from_state(wire.decode(blob, params=params, id_key=id_key))

    def stats(self) -> SeriesStats:
        held = self.snapshot()
        return SeriesStats(
            **self._counted(),
            entities=held.entities,
            complete=held.complete,
            advice=held.advice,
            warnings=held.warnings,
        )

    def _summary(self) -> dict[str, Any]:
        held, params = self.snapshot(), self.params
        fields: dict[str, Any] = {
            "rows": f"{len(held):,}",
            "entities": f"{held.entities:,}",
            "capacity": f"{params.capacity:,}",
        }
        if params.resolution != 1:
            fields["resolution"] = f"{params.resolution:,}"
        if params.attributes:
            fields["attributes"] = ", ".join(params.attributes)
        if held.oldest is not None and held.newest is not None:
            fields["times"] = span(params.time_unit, held.oldest, held.newest)
        if held.advice is not None:
            fields["advice"] = held.advice
        if held.warnings:
            fields["warnings"] = " ".join(held.warnings)
        return fields

    # -------------------------------------------------------------------------------------- query

    def at(
        self, decay: Decay | str | None, now: Instant | None = None, *, estimator: Any = "pieces"
    ) -> PieceView:
        """Return a view for queries under a decay, at a time.

        Args:
            decay: weight of an instant as a function of its age.
            now: query time, in the stream's unit or a moment. None: the newest time.
            estimator: "pieces", the only one.

        Raises:
            UnanswerableQueryError: the sketch has discarded, at every level, rows that the decay
                gives weight to.
            ParameterError: the decay, time or estimator does not exist.
        """
        if estimator != "pieces":
            raise ParameterError(f"estimator is {estimator!r}; expected 'pieces'")
        return self.snapshot().at(decay, now)


def _rounded(weights: Int64Array) -> Int64Array:
    """Return weights rounded down to powers of two. 0 stays."""
    powers = np.int64(1) << np.maximum(np.frexp(weights.astype(np.float64))[1] - 1, 0)
    return np.where(weights > 0, powers, 0)
