"""Give a sketch columns, or more columns, without its data.

A sketch's ids, levels and watermarks do not depend on values. So a sketch of one value becomes
one whose value is a column, with constants in the other columns, and a sketch with columns gets
more columns. No row is lost. Upgrading commutes with merging: to upgrade several sketches and merge
them gives the same bytes as to merge them first, if their constants are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.params import RECORD, SketchParams
from decaysketch.core.records import Record, Records, encode_records
from decaysketch.core.withdrawals import revised
from decaysketch.errors import ParameterError
from decaysketch.querytime.sketch import DecaySketch
from decaysketch.querytime.state import SketchState

__all__ = ["upgrade"]


def upgrade(
    sketch: DecaySketch,
    columns: Any,
    *,
    value: str | None = None,
    constants: Mapping[str, Any] | None = None,
    revision: str | None = None,
) -> DecaySketch:
    """Return a sketch with the same observations and other columns.

    Args:
        sketch: a sketch with one value, or with columns.
        columns: declared columns of the result, see :class:`~decaysketch.SketchParams`. Columns of
            the sketch keep their type.
        value: the column for the values of a sketch without columns. It needs their type.
        constants: a value for all rows, by column. Other new columns are null.
        revision: the revision column of the result, if the sketch has none. Rows have revision 0.

    Raises:
        ParameterError: a column of the sketch is missing or has another type, ``value`` does not
            fit, or values are labels.
        ObservationError: a constant does not fit its column.

    Complexity: O(rows * columns).

    Example:
        >>> import decaysketch as ds
        >>> old = ds.DecaySketch(ds.SketchParams(id_bits=40))
        >>> old.update([21.5, 22.0], 1, [100, 160], [7, 8])
        >>> new = ds.upgrade(
        ...     old, "temp float64, site text", value="temp", constants={"site": "a"}
        ... )
        >>> new.at("window(1h)", 200).given(where="site == 'a'").ask("mean").value
        21.75
    """
    revision = sketch.params.revision if revision is None else revision
    params = replace(sketch.params, columns=columns, value_type=RECORD, revision=revision)
    if not params.columns:
        raise ParameterError("columns is empty; expected the columns of the result")
    _check(sketch.params, params.columns, value, constants or {})
    states = [_upgraded(state, params, value, constants or {}) for state in sketch.states()]
    return DecaySketch.from_state(states)


def _check(
    old: SketchParams, types: ColumnTypes, value: str | None, constants: Mapping[str, Any]
) -> None:
    known = dict(types)
    if old.value_type == "label":
        raise ParameterError(
            "the values are labels, and duplicates of labels are ordered by code, not by text; "
            "build the sketch again with a text column"
        )
    if (value is None) != bool(old.columns):
        raise ParameterError(
            f"value is {value!r}; expected "
            + ("None for a sketch with columns" if old.columns else "the column for the values")
        )
    kept = dict(old.columns) if value is None else {value: old.value_type}
    for name, kind in kept.items():
        if known.get(name) != kind:
            raise ParameterError(
                f"columns has {name!r} as {known.get(name, 'no column')}; the sketch has {kind}"
            )
        if name in constants:
            raise ParameterError(f"constants has {name!r}, but the sketch has values for it")
    for name in constants:
        if name not in known:
            raise ParameterError(
                f"constants has {name!r}; columns has {', '.join(map(repr, known))}"
            )


def _upgraded(
    state: SketchState, params: SketchParams, value: str | None, constants: Mapping[str, Any]
) -> SketchState:
    made = revised(params, encode_records(constants, params.columns, len(state)))
    old: dict[str, Record] = {}
    if state.records is not None:
        names = [name for name, _ in state.records.types]
        old = dict(zip(names, state.records.columns, strict=True))
    if value is not None:
        old[value] = Record(state.value_keys)
    columns = tuple(
        old.get(name, column)
        for (name, _), column in zip(params.columns, made.columns, strict=True)
    )
    return replace(
        state, params=params.with_capacity(state.params.capacity), value_keys=np.arange(len(state)),
        records=Records(params.columns, columns).canonical(),
    )  # fmt: skip
