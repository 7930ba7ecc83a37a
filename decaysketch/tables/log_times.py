"""The times of a log: any column type in the stream's unit, and the fault of a wrong unit."""

from __future__ import annotations

from datetime import tzinfo
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.plausible_times import dated, doubt, unit_in_name
from decaysketch.core.row_check import TIME_LIMIT, Limit
from decaysketch.core.text_values import zone_of
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import OtherUnitError, ParameterError
from decaysketch.families import Params
from decaysketch.tables.columns import (
    column_of,
    integers_of,
    is_text,
    nulls_of,
    refuse_nulls,
    without_gaps,
)
from decaysketch.tables.rejections import Refusals
from decaysketch.tables.texts import TimeTexts, cast_clean, local_to_utc, texts_of_floats
from decaysketch.tables.texts import ticks as ticks_of_texts

if TYPE_CHECKING:
    from decaysketch.tables.log_reader import LogColumns
    from decaysketch.tables.mapping import ColumnMapping

__all__ = ["doubt_of_log", "refuse_other_unit", "ticks_of", "times_of", "zoneless"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def times_of(
    mapping: ColumnMapping, table: pa.Table, params: Params, refusals: Refusals
) -> tuple[Int64Array, BoolArray]:
    """Return a table's times in the stream's unit, and a mask for rows with the fallback time."""
    column = column_of(table, mapping.time)
    fallback = nulls_of(column)
    if mapping.fallback_time is None or not fallback.any():
        return ticks_of(mapping, column, mapping.time, params, refusals), fallback
    other = column_of(table, mapping.fallback_time)
    refusals.refuse(
        fallback & nulls_of(other), mapping.time,
        lambda row: (f"is missing, and so is {mapping.fallback_time}[{refusals.place(row)}]", None),
    )  # fmt: skip
    # Do not check unused entries: a row must not depend on other rows.
    other = pc.if_else(pa.array(fallback), other, pa.scalar(None, other.type))
    own = ticks_of(mapping, without_gaps(column), mapping.time, params, refusals)
    of_own = refusals.zoneless & ~fallback
    refusals.zoneless[:] = False
    instead = ticks_of(mapping, without_gaps(other), mapping.fallback_time, params, refusals)
    np.copyto(refusals.zoneless, of_own, where=~fallback)
    return np.where(fallback, instead, own), fallback


def ticks_of(
    mapping: ColumnMapping, column: pa.Array, name: str, params: Params, refusals: Refusals
) -> Int64Array:
    """Return a time column in the stream's unit.

    Raises:
        ObservationError: an invalid time, if faults raise.
        ParameterError: the units cannot be converted.
    """
    kind = column.type
    unit = mapping.time_unit or params.time_unit
    clocked = {unit, params.time_unit} <= NANOSECONDS.keys()
    zone = None if mapping.time_zone is None else zone_of(mapping.time_zone)
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
        unit, column = "ms", column.cast(pa.int64())
    elif pa.types.is_timestamp(kind):
        column = _in_utc(mapping, column, name, zone, refusals)
        unit, column = kind.unit, column.cast(pa.int64())
    elif clocked and (is_text(kind) or (pa.types.is_floating(kind) and unit != params.time_unit)):
        how = TimeTexts(unit, params.time_unit, zone, mapping.time_format)
        column = refuse_nulls(column, name, refusals)
        clean = None if mapping.time_format else cast_clean(column, integers=True)
        if clean is None:
            texts = column if is_text(kind) else texts_of_floats(column)
            return ticks_of_texts(texts, name, how, refusals)
        column = clean
    ticks = integers_of(column, name, refusals)
    if unit == params.time_unit:
        return ticks
    if params.time_unit not in NANOSECONDS or unit not in NANOSECONDS:
        raise ParameterError(
            f"{name} is of type {kind} in unit {unit!r} and cannot be converted to the "
            f"stream's unit {params.time_unit!r}; known are {', '.join(NANOSECONDS)}"
        )
    return _converted(ticks, name, unit, params.time_unit, refusals)


def _converted(
    ticks: Int64Array, name: str, unit: str, wanted: str, refusals: Refusals
) -> Int64Array:
    """Return times in another unit, rounded down."""
    have, want = NANOSECONDS[unit], NANOSECONDS[wanted]
    if have < want:
        return ticks // np.int64(want // have)
    factor = have // want
    most = TIME_LIMIT // factor
    limit = Limit(-most, most, f"at most 2^62 {wanted} in magnitude")
    bad = refusals.within(ticks, name, limit)
    if bad is not None:
        ticks = np.where(bad, 0, ticks)
    return ticks * np.int64(factor)


def _in_utc(
    mapping: ColumnMapping, column: pa.Array, name: str, zone: tzinfo | None, refusals: Refusals
) -> pa.Array:
    """Return timestamps in UTC. Timestamps without a zone are in the mapping's zone, or
    counted.
    """
    if column.type.tz is not None:
        return column
    if zone is None:
        refusals.zoneless |= ~nulls_of(column)
        return column
    moments, there = local_to_utc(column, zone)
    refusals.refuse(
        ~there, name,
        lambda row: (f"is {column[row]}, which clocks in {mapping.time_zone} skip", None),
    )  # fmt: skip
    return moments


_FEW = 0.01  # share of rows at either end that may have a wrong clock


def refuse_other_unit(
    log: LogColumns, mapping: ColumnMapping, schema: pa.Schema, params: Params
) -> None:
    """Reject a log whose plain numbers are unlikely times in their unit, except few at either end.

    Args:
        log, mapping, schema, params: as in :func:`doubt_of_log`.

    Raises:
        OtherUnitError: they are dates in another unit.
    """
    if found := doubt_of_log(log, mapping, schema, params, but=_FEW):
        raise OtherUnitError(found)


def doubt_of_log(
    log: LogColumns,
    mapping: ColumnMapping,
    schema: pa.Schema,
    params: Params,
    *,
    but: float | None = None,
) -> str | None:
    """Return the reason why a log's times are unlikely in their unit. None: no fault.

    The numbers themselves show it or, if they are not dates, the name of their column.

    Args:
        log: the columns that the mapping read.
        mapping: the mapping that read it.
        schema: the log's schema.
        params: the sketch's parameters.
        but: a share of the numbers at either end to ignore. Then column types and names are ignored
            too.
    """
    times = log.columns["timestamps"][~log.refused]
    if not len(times):
        return None
    oldest, newest = int(times.min()), int(times.max())
    if but is not None:
        inner = np.quantile(times, [but, 1.0 - but], method="inverted_cdf")
        oldest, newest = (int(each) for each in inner)
    unit, kind = params.time_unit, schema.field(mapping.time).type
    numbers = not (pa.types.is_timestamp(kind) or pa.types.is_date(kind))
    if numbers and mapping.time_unit not in (None, unit):  # as they stand in the column
        read_in = str(mapping.time_unit)
        have, want = NANOSECONDS[read_in], NANOSECONDS[unit]
        oldest, newest, unit = oldest * want // have, newest * want // have, read_in
    if but is not None and not numbers:
        return None
    source = f"the times of column {mapping.time!r}"
    if (found := doubt(unit, oldest, newest)) is not None:
        return f"{source} are probably not in {unit}: {found}"
    named = unit_in_name(mapping.time) if numbers and but is None else None
    if named in (None, unit) or mapping.time_unit is not None or dated(unit, newest) is not None:
        return None
    return f"{source} are read in {unit}, but the column's name ends like one in {named}"


def zoneless(time: str) -> str:
    """Return the warning for times without a zone, if no zone was given."""
    return f"times without a time zone in column {time!r} are read as UTC"
