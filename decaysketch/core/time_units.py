"""Units of time that have a wall clock; a stream may count in any other as well."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["NANOSECONDS"]

_S = 1_000_000_000

#: Nanoseconds of each unit; times count from 1970-01-01 UTC.
NANOSECONDS: Mapping[str, int] = MappingProxyType(
    {
        "ns": 1,
        "us": 1_000,
        "ms": 1_000_000,
        "s": _S,
        "min": 60 * _S,
        "m": 60 * _S,
        "h": 3600 * _S,
        "d": 86_400 * _S,
    }
)
