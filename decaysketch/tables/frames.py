"""Data frames from any library: the core of ``from_frame`` and ``update_frame`` in every sketch.

A data frame is any object with ``__arrow_c_stream__``. pandas (2.2 or newer), polars, DuckDB, Arrow
and ibis have it. So this module depends on none of them. Arguments name the columns, and
:class:`~decaysketch.tables.mapping.ColumnMapping` reads them. Equal observations give equal
sketches, for any library and any types. Peculiarities of data frames are resolved first: a NaN in a
value column is a missing value, as a null is. Rows without a time or an id are rejected with the
row and the remedy, and the complete data frame is rejected. Rows with one id that are not
duplicates are accepted, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.duplicates import replaced_readings
from decaysketch.core.params import BuildParams, SketchParams
from decaysketch.core.plausible_times import dated, left_out_by_age, likely_unit, of_another_clock
from decaysketch.core.row_check import undated
from decaysketch.core.sizing import DEFAULT_ACCURACY, capacity_for
from decaysketch.core.text_values import Numerals
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.core.warning_location import warn_caller
from decaysketch.decay.integral import IntegralDecay, parse
from decaysketch.errors import (
    DisagreeingCopiesWarning,
    FewSeriesWarning,
    NewestOnlyWarning,
    ObservationError,
    OtherUnitError,
    ParameterError,
    TimeZoneWarning,
    UnlikelyClockWarning,
)
from decaysketch.families import FAMILIES, Sketch, recipe_of
from decaysketch.tables.columns import column_of, holds_text, in_plain_text, is_text, nulls_of
from decaysketch.tables.duplicates import doubt_of_ids
from decaysketch.tables.log_reader import LogColumns, declared_columns
from decaysketch.tables.log_times import refuse_other_unit, zoneless
from decaysketch.tables.mapping import ColumnMapping
from decaysketch.tables.records import types_of
from decaysketch.tables.texts import holds_numbers, looks_like_numbers

__all__ = ["Columns", "build", "feed", "names_of", "table_of", "unit_of"]

Columns = str | Sequence[str]
"""The name of a column, or of several."""

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # of pandas, where rows are shuffled or chosen


def build(
    kind: type[Sketch],
    frame: Any,
    *,
    params: BuildParams | None,
    accuracy: float | str | None,
    time_unit: str,
    decay: IntegralDecay | str | Mapping[str, Any] | None,
    mapping: ColumnMapping | None,
    arguments: Mapping[str, Any],
    **options: Any,
) -> Sketch:
    """Build a sketch from a data frame. See its ``from_frame``."""
    mapping = ColumnMapping.of(mapping, arguments)
    time = mapping.time
    if params is None:
        family = next(each for each in FAMILIES.values() if each.sketch is kind)
        if family.params is not SketchParams:
            raise ParameterError(f"params is None; expected a {family.params.__name__}")
        params = SketchParams(
            capacity=capacity_for(DEFAULT_ACCURACY if accuracy is None else accuracy),
            time_unit=unit_of(frame, time) if time_unit == "auto" else time_unit,
            value_type="label" if _is_of_texts(frame, mapping) else "float64",
            columns=_declared(frame, mapping),
        )
    elif accuracy is not None:
        raise ParameterError(f"accuracy is {accuracy!r} beside params; expected one of them")
    elif time_unit not in ("auto", params.time_unit):
        raise ParameterError(
            f"time_unit is {time_unit!r} and that of params is {params.time_unit!r}; give the "
            "unit of the frame's numbers with column_unit"
        )
    if isinstance(decay, str | Mapping):
        decay = parse(decay, params.time_unit)
    sketch = recipe_of(params, decay).empty()
    if not isinstance(sketch, kind):
        raise ParameterError(
            f"params are those of a {type(sketch).__name__}; expected a {kind.__name__}'s"
            + ("" if decay is not None else ", with its decay where that is fixed")
        )
    log = feed(sketch, frame, mapping=mapping, **options)
    if isinstance(decay, IntegralDecay) and log is not None:
        _look_at_weights(decay, log, params.time_unit)
    if recipe_of(sketch).kind.input.series and (advice := sketch.snapshot().advice) is not None:
        warn_caller(advice, FewSeriesWarning)
    return sketch


def _look_at_weights(decay: IntegralDecay, log: LogColumns, unit: str) -> None:
    """Warn if a fixed decay makes integer weights 0 after the first instant."""
    weights = np.asarray(log.columns["weights"])
    times = np.unique(log.columns["timestamps"][weights > 0])[::-1]
    if not len(times):
        return
    most = int(weights.max())
    found = left_out_by_age(lambda ages: decay([most] * len(ages), ages), times, times[0], unit)
    if found is not None:
        warn_caller(
            f"under {decay!r} {found}: weights under a fixed decay are whole numbers, of which "
            f"the largest is {most} (params with a max_weight of 1,000, and weight=1000, fade "
            f"in a thousand steps), and a length without a unit is in {unit}",
            NewestOnlyWarning,
        )


def _declared(frame: Any, mapping: ColumnMapping) -> ColumnTypes:
    """Return a declaration of the mapping's columns, from the data frame."""
    if not mapping.columns:
        return ()
    table = table_of(frame, [column for _, column in mapping.columns])
    texts = {name: "text" for name, column in mapping.columns if (column, "text") in mapping.casts}
    return types_of(table, dict(mapping.columns), texts, None)


def feed(
    sketch: Sketch,
    frame: Any,
    *,
    mapping: ColumnMapping | None,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    drop_nulls: bool,
    check_units: bool,
) -> LogColumns | None:
    """Merge a data frame into a sketch, and return the columns that were read. See its
    ``update_frame``.
    """
    recipe = recipe_of(sketch)
    mapping = ColumnMapping.of(mapping, arguments)
    weighed = recipe.kind.input.weight_bound is not None or recipe.kind.input.weighted
    if mapping.weight == 1:
        mapping = replace(mapping, weight=None)
    if isinstance(mapping.weight, int) and not weighed:
        raise ParameterError(f"weight is {mapping.weight!r}; expected none: elements have none")
    if declared_columns(recipe.params) and not mapping.columns:
        frame = table_of(frame)
        mapping = mapping.complete(recipe, frame.column_names)
    mapping.check(recipe)
    table = table_of(frame, mapping.names)
    if mapping.value is not None:
        table = _without_nan(table, mapping.value)
    optional = {mapping.value, mapping.start, *(column for _, column in mapping.columns)}
    needed = [name for name in mapping.names if name not in optional]
    if mapping.fallback_time is not None:
        needed = [name for name in needed if name not in (mapping.time, mapping.fallback_time)]
    rows = len(table)
    table = _whole(table, needed, drop_nulls)
    left_out = rows - len(table)
    if not len(table):
        sketch.left_out += left_out
        return None
    log = mapping.read(table, recipe)
    if check_units:
        try:
            refuse_other_unit(log, mapping, table.schema, recipe.params)
        except OtherUnitError as fault:
            raise OtherUnitError(
                f"{fault}; give the unit with time_unit (with params, column_unit), or accept "
                "them with check_units=False"
            ) from None
    found = doubt_of_ids(log, mapping, recipe)
    before = sketch.replaced
    sketch.looks_at_times = False  # they were looked at, or are not to be
    log.update(sketch, slice(None))
    sketch.left_out += left_out
    if found is None and (replaced := sketch.replaced - before):  # of rows that came before, too
        found = replaced_readings(replaced, len(sketch), mapping.ids)
    if found is not None:
        warn_caller(found, DisagreeingCopiesWarning)
    _warn_of_clocks(log, mapping.time, recipe.params.time_unit)
    return log


def _warn_of_clocks(log: LogColumns, time: str, unit: str) -> None:
    """Warn about times without a zone, and about times from clocks that were not set."""
    if log.zoneless.any():
        warn_caller(f"{zoneless(time)}; give the zone with time_zone", TimeZoneWarning)
    times = log.columns["timestamps"]
    outside = undated(unit, times)
    if outside.any():
        found = times[outside]
        ends = int(found.min()), int(found.max())
        said = of_another_clock(unit, len(times), len(found), ends)
        if said is not None:
            warn_caller(said, UnlikelyClockWarning)


def unit_of(frame: Any, time: str) -> str:
    """Return the unit that a data frame's time column has by its type.

    Raises:
        ParameterError: its type has none.
    """
    column = table_of(frame, [time]).column(time)
    kind = column.type
    if holds_text(kind):
        texts = in_plain_text(column_of(table_of(frame, [time]), time))
        if not holds_numbers(texts):
            return "us"
    if pa.types.is_timestamp(kind):
        unit: str = kind.unit
        return unit
    if pa.types.is_date(kind):
        return "d"
    guess = ""
    if pa.types.is_integer(kind) and len(column) > column.null_count:
        newest = int(pc.max(column).as_py())
        likely = "s" if dated("s", newest) is not None else likely_unit("s", newest)
        if likely is not None:
            guess = f"; in {likely!r} the newest would be {dated(likely, newest)}"
    raise ParameterError(
        f"time_unit is 'auto', and the column {time!r} is of type {kind}, which has no unit; "
        f"expected one of {', '.join(NANOSECONDS)}{guess}"
    )


def _is_of_texts(frame: Any, mapping: ColumnMapping) -> bool:
    """Return whether values are labels, by their column type."""
    value = mapping.value
    if value is None:
        return False
    table = table_of(frame, [value])
    if not holds_text(table.schema.field(value).type):
        return False
    texts = in_plain_text(column_of(table, value))
    if holds_numbers(texts, Numerals(mapping.decimal, mapping.thousands)):
        return False
    if (found := looks_like_numbers(texts)) is not None:
        raise ParameterError(
            f"column {value!r} has {found!r}, which looks like a number; convert the column, or "
            "keep its texts with params=SketchParams(value_type='label')"
        )
    return True


def names_of(given: Columns) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def table_of(frame: Any, names: Sequence[str] | None = None) -> pa.Table:
    """Return a data frame's columns. None: all of them, as they are."""
    if not hasattr(frame, "__arrow_c_stream__") and not isinstance(frame, pa.RecordBatch):
        raise ParameterError(
            f"frame is a {type(frame).__name__}; expected something with __arrow_c_stream__: a "
            "frame of pandas 2.2 or newer, polars, DuckDB, Arrow or ibis"
        )
    table = pa.table(frame)
    if names is None:
        return table
    if missing := [name for name in names if name not in table.column_names]:
        named = [name for name in table.column_names if not _UNNAMED_INDEX.fullmatch(name)]
        raise ParameterError(f"no column {missing[0]!r}; there are {', '.join(named)}")
    table = table.select(list(dict.fromkeys(names)))
    plain = [_plain(column) for column in table.columns]
    return pa.Table.from_arrays(plain, names=table.column_names).unify_dictionaries()


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without text views. polars has these, and few Arrow functions accept them."""
    kind = column.type
    encoded = pa.types.is_dictionary(kind)
    if (kind.value_type if encoded else kind) not in (pa.string_view(), pa.binary_view()):
        return column
    if not encoded:
        return pa.chunked_array(
            [in_plain_text(each) for each in column.chunks or [pa.array([], kind)]]
        )
    chunks = [
        pa.DictionaryArray.from_arrays(each.indices, in_plain_text(each.dictionary))
        for each in column.chunks
    ]
    return pa.chunked_array(chunks or [pa.array([], pa.large_string())])


def _without_nan(table: pa.Table, name: str) -> pa.Table:
    """Return missing values as nulls, for any representation in the data frame."""
    kind = table.schema.field(name).type
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        return table
    column = column_of(table, name)
    if pa.types.is_null(column.type) or pa.types.is_temporal(column.type):  # nothing but NaT
        if column.null_count == len(column):
            column = pa.nulls(len(column), pa.float64())
    elif pa.types.is_floating(column.type):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            column = pc.if_else(nan, pa.scalar(None, column.type), column)
    return table.set_column(table.column_names.index(name), name, column)


def _whole(table: pa.Table, names: Sequence[str], drop: bool) -> pa.Table:
    """Return the rows that have all required entries."""
    lacking = {name: _lacks(table, name) for name in names}
    bad = np.logical_or.reduce(list(lacking.values()))
    if not bad.any():
        return table
    if drop:
        return table.filter(pa.array(~bad))
    row = int(bad.argmax())
    name = next(name for name, each in lacking.items() if each[row])
    others = int(bad.sum()) - 1
    beside = f" (and so are {others:,} rows more)" if others else ""
    raise ObservationError(
        f"{name}[{row}] is missing{beside}; an observation needs a time and all of its id: fill "
        "it, or drop_nulls=True leaves such rows out",
        column=name,
        row=row,
    )


def _lacks(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    column = column_of(table, name)
    lacks = nulls_of(column)
    if pa.types.is_floating(column.type):  # integers with gaps, as pandas has them
        lacks = lacks | np.isnan(column.to_numpy(zero_copy_only=False))
    return lacks
