"""The part of a row filter that Spark can apply while it reads.

Spark's part keeps every row that the library would accept, and the library checks each row again.
If the meaning of a filter part might differ (collations, decimals, times with other types), only
the library applies it.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any

from decaysketch.core.time_units import NANOSECONDS
from decaysketch.families import Params
from decaysketch.spark._names import quoted
from decaysketch.tables import ColumnMapping, Comparison, RowFilter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["where"]

_INTEGERS = {"byte", "short", "integer", "long"}
_COMPARE = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_INT64 = 1 << 63


def where(
    log: DataFrame, params: Params, mapping: ColumnMapping, only: RowFilter | None
) -> DataFrame:
    """Return the log rows that a filter may accept."""
    if only is None:
        return log
    types = {field.name: field.dataType.typeName() for field in log.schema.fields}
    conditions = [_compared(each, types) for each in only.where]
    conditions.append(_in_range(types, params, mapping, only))
    found = [condition for condition in conditions if condition is not None]
    return log.where(reduce(and_, found)) if found else log


def _compared(comparison: Comparison, types: dict[str, str]) -> Column | None:
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(quoted(comparison.column))
    if comparison.op == "is null":
        return column.isNull()
    if comparison.op == "is not null":
        return column.isNotNull()
    kind, value = types.get(comparison.column), comparison.value
    same = (
        kind == "boolean"
        if isinstance(value, bool)
        else (kind in _INTEGERS and isinstance(value, int) and -_INT64 <= value < _INT64)
        or (kind == "double" and isinstance(value, float))
    )
    compared: Column | None = _COMPARE[comparison.op](column, F.lit(value)) if same else None
    return compared


def _in_range(
    types: dict[str, str], params: Params, mapping: ColumnMapping, only: RowFilter
) -> Column | None:
    """``since <= time < until``, by the time that counts."""
    from pyspark.sql import functions as F  # noqa: N812

    def bounds(name: str) -> list[Column] | None:
        """Return the bounds in the column's own unit. None if they are unknown."""
        column: Any = F.col(quoted(name))
        unit = mapping.time_unit or params.time_unit
        if types.get(name) == "timestamp":
            column, unit = F.unix_micros(column), "us"
        elif types.get(name) not in _INTEGERS:
            return None
        have, want = NANOSECONDS.get(unit), NANOSECONDS.get(params.time_unit)
        if unit == params.time_unit:
            have = want = 1
        if have is None or want is None:
            return None
        # Times are rounded down to the stream's unit, so t < until there is t < until here as well.
        edges = [
            None if edge is None else -(-edge * want // have) for edge in (only.since, only.until)
        ]
        if any(edge is not None and not -_INT64 <= edge < _INT64 for edge in edges):
            return None
        since, until = edges
        return [
            *([] if since is None else [column >= F.lit(since)]),
            *([] if until is None else [column < F.lit(until)]),
        ]

    own = bounds(mapping.time)
    if not own:
        return None
    in_range = reduce(and_, own)
    if mapping.fallback_time is None:
        return in_range
    fallback = bounds(mapping.fallback_time)
    if fallback is None:
        return None
    missing = F.col(quoted(mapping.time)).isNull()
    return (~missing & in_range) | (missing & reduce(and_, fallback))
