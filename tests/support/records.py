"""Rows with columns, as plain values."""

from __future__ import annotations

from typing import Any

from decaysketch.core.observations import MISSING_KEY, decode_values
from decaysketch.core.records import Records

__all__ = ["column_values", "tuples_of"]


def column_values(records: Records, name: str) -> list[Any]:
    """The values of a column, None where null."""
    keys, texts = records.column(name)
    kind = dict(records.types)[name]
    if kind == "text":
        found: list[Any] = [texts[key] if key >= 0 else "" for key in keys.tolist()]
    elif kind == "bool":
        found = [key == 1 for key in keys.tolist()]
    else:
        found = decode_values(keys, kind)[0].tolist()
    return [None if key == MISSING_KEY else v for key, v in zip(keys.tolist(), found, strict=True)]


def tuples_of(records: Records) -> list[tuple[Any, ...]]:
    """The rows."""
    return list(zip(*(column_values(records, name) for name, _ in records.types), strict=True))
