"""Bytes of extremes in plain Python integers, written from ``docs/wire-format.md`` alone.

An oracle for :mod:`decaysketch.extremes.wire`; it shares nothing with it. It also writes what no
encoder would, with a right checksum around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wire.reference import MISSING, rows_to_bytes, varint, with_checksum, zigzag

Row = tuple[int, int]  # time and value key


@dataclass(frozen=True)
class Blob:
    """Bytes field by field; those of the parameters as family 1 has them."""

    opening: bytes  # up to the capacity
    capacity: int
    rows: Sequence[Row]
    family: int = 6
    count: int | None = None
    first_time: int | None = None
    packed: Sequence[tuple[int, int, int, int]] | None = None
    rest: bytes = b""

    def to_bytes(self) -> bytes:
        out = self.opening[:5] + bytes((self.family,)) + self.opening[6:]
        out += varint(self.capacity)
        out += varint(len(self.rows) if self.count is None else self.count)
        first = self.rows[0][0] if self.rows and self.first_time is None else self.first_time
        if first is not None:
            out += varint(zigzag(first))
        packed = [(time, key, 1, MISSING) for time, key in self.rows]
        rows = packed if self.packed is None else self.packed
        return with_checksum(out + rows_to_bytes(rows, False) + self.rest)

    def but(self, **changes: Any) -> bytes:
        """The bytes with some fields replaced."""
        return replace(self, **changes).to_bytes()


def blob_of(state: Any, empty: bytes) -> Blob:
    """What the format makes of a state, as fields that can still be changed.

    Args:
        empty: bytes of a sketch of the same parameters that holds nothing.
    """
    capacity = varint(state.params.capacity)
    behind = len(capacity) + 1 + 4  # a count of 0, and the checksum
    rows = list(zip(state.times.tolist(), state.value_keys.tolist(), strict=True))
    return Blob(empty[: len(empty) - behind], state.params.capacity, rows)
