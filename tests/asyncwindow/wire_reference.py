"""Bytes of a sampler in plain Python integers, written from ``docs/wire-format.md`` alone.

An oracle for :mod:`decaysketch.asyncwindow.wire`; it shares nothing with it. It also writes what no
encoder would, with a right checksum around it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wire.reference import MISSING, rows_to_bytes, varint, with_checksum, zigzag

NO_TIME = -(2**63)

Row = tuple[int, int, int]  # time, key, value key


@dataclass(frozen=True)
class Blob:
    """Bytes field by field."""

    kind: str
    seed: int
    time_unit: str
    bound: int
    max_window: int | None
    choice: int  # first nested level, or value type
    capacity: int
    clock: int | None
    watermarks: dict[int, int]  # of the levels whose watermark is later than the floor
    rows: Sequence[Row]
    family: int | None = None
    required: int = 0
    fingerprint: bytes | None = None
    has_clock: int | None = None
    marked: int | None = None
    count: int | None = None
    first_time: int | None = None
    columns: bytes | None = None

    @property
    def floats(self) -> bool:
        return self.kind == "median" and self.choice == 1

    def right_fingerprint(self) -> bytes:
        choice = str(self.choice)
        if self.kind == "median":
            choice = ("int64", "float64")[min(self.choice, 1)]
        window = "none" if self.max_window is None else str(self.max_window)
        fields = (self.kind, str(self.bound), choice, window, str(self.seed), self.time_unit)
        text = "\0".join(fields).encode("ascii")
        return hashlib.blake2b(text, digest_size=8, person=b"ds-async-1").digest()

    def to_bytes(self) -> bytes:
        family = {"sum": 3, "median": 4}[self.kind] if self.family is None else self.family
        out = b"\xd5DSK" + bytes((1, family, self.required, 0))
        out += self.right_fingerprint() if self.fingerprint is None else self.fingerprint
        out += varint(self.capacity) + self.seed.to_bytes(8, "little")
        out += bytes((len(self.time_unit),)) + self.time_unit.encode()
        out += varint(self.bound)
        out += varint(0 if self.max_window is None else self.max_window + 1)
        out += bytes((self.choice,))
        present = int(self.clock is not None) if self.has_clock is None else self.has_clock
        out += bytes((present,))
        if self.clock is not None:
            out += varint(zigzag(self.clock))
        marked = sum(1 << i for i in self.watermarks) if self.marked is None else self.marked
        out += varint(marked)
        for _, mark in sorted(self.watermarks.items()):
            out += varint(zigzag(mark))
        out += varint(len(self.rows) if self.count is None else self.count)
        first = self.rows[0][0] if self.rows and self.first_time is None else self.first_time
        if first is not None:
            out += varint(zigzag(first))
        return with_checksum(out + (self.packed() if self.columns is None else self.columns))

    def packed(self) -> bytes:
        if self.kind == "sum":
            rows = [(time, key - 2**63, value, MISSING) for time, key, value in self.rows]
        else:
            rows = [(time, key - 2**63, 1, value) for time, key, value in self.rows]
        return rows_to_bytes(rows, self.floats)

    def but(self, **changes: Any) -> bytes:
        """The bytes with some fields replaced."""
        return replace(self, **changes).to_bytes()


def blob_of(state: Any) -> Blob:
    """What the format makes of a state, as fields that can still be changed."""
    params = state.params
    of_sum = params.kind == "sum"
    floor = NO_TIME
    if state.clock != NO_TIME and params.max_window is not None:
        floor = state.clock - params.max_window - 1
    columns = (state.times.tolist(), state.keys.tolist(), state.value_keys.tolist())
    return Blob(
        kind=params.kind,
        seed=params.seed,
        time_unit=params.time_unit,
        bound=params.max_sum if of_sum else params.max_count,
        max_window=params.max_window,
        choice=params.first_nested if of_sum else ("int64", "float64").index(params.value_type),
        capacity=params.capacity,
        clock=None if state.clock == NO_TIME else state.clock,
        watermarks={i: t for i, t in enumerate(state.watermarks.tolist()) if t > floor},
        rows=list(zip(*columns, strict=True)),
    )
