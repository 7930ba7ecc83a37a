"""One sketch for each key in a relation: the ``build`` of DuckDB and polars."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import pyarrow as pa

from decaysketch.errors import (
    DisagreeingCopiesWarning,
    ObservationError,
    ParameterError,
    TimeZoneWarning,
)
from decaysketch.families import BuiltWith, recipe_of
from decaysketch.tables.frames import Columns, names_of, table_of
from decaysketch.tables.keyed import RESULT_FIELDS, KeyedBuilder, key_fields
from decaysketch.tables.mapping import ColumnMapping

__all__ = ["build_relation"]


def build_relation(
    relation: Any,
    stream: BuiltWith,
    mapping: ColumnMapping,
    by: Columns,
    *,
    refused: Literal["raise", "count"],
    check_units: bool,
    **options: Any,
) -> pa.Table:
    """Return the key columns, then :data:`~decaysketch.tables.keyed.RESULT_FIELDS`.

    Args:
        relation: anything with ``__arrow_c_stream__``. It is read once, in batches.
        stream: parameters, or a sketch configuration.
        mapping: the meaning of the columns.
        by: columns of the keys.
        refused, check_units, options: see :class:`decaysketch.tables.KeyedBuilder`.

    Warnings are those of two calls above: the engine's ``build`` and its caller.

    Raises:
        ObservationError: the first rejected row, counted from the first row in the relation.
        ParameterError: a column does not exist, or the mapping does not fit the stream.
        OtherUnitError: the times are dates in another unit.
    """
    keys = names_of(by)
    if not hasattr(relation, "__arrow_c_stream__"):
        raise ParameterError(
            f"relation is a {type(relation).__name__}; expected something with __arrow_c_stream__"
        )
    first = 0
    with pa.RecordBatchReader.from_stream(relation) as batches:
        mapping = mapping.complete(recipe_of(stream), batches.schema.names)
        builder = KeyedBuilder(
            stream, mapping, keys, refused=refused, check_units=check_units, check_ids=True,
            **options,
        )  # fmt: skip
        nothing = table_of(batches.schema.empty_table(), builder.columns)
        typed = builder.mapping.typed_schema(nothing.schema)
        schema = pa.schema([*key_fields(typed, keys), *RESULT_FIELDS])
        for batch in batches:
            try:
                builder.add(table_of(batch, builder.columns))
            except ObservationError as fault:
                raise _counted_from(first, fault) from None
            first += batch.num_rows
    found = builder.warnings()
    if builder.doubt_of_ids is not None:
        found[DisagreeingCopiesWarning] = builder.doubt_of_ids
    for category, said in found.items():
        remedy = "; give the zone with time_zone" if category is TimeZoneWarning else ""
        warnings.warn(said + remedy, category, stacklevel=3)
    return pa.Table.from_batches(builder.batches(), schema)


def _counted_from(first: int, fault: ObservationError) -> ObservationError:
    """Return a batch's error with the row number in the relation."""
    if fault.row is None:
        return fault
    row = first + fault.row
    said = str(fault).replace(f"[{fault.row}]", f"[{row}]", 1)
    return ObservationError(said, column=fault.column, row=row, value=fault.value)
