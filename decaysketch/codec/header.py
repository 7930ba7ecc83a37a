"""What the bytes of every family say in front of the rows, read by itself.

For routing, and for refusing by size, by capacity or by time before any memory is spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from decaysketch.codec import fields
from decaysketch.codec.fields import Opening, refuse

__all__ = ["CopyHeader", "Header"]


@dataclass(frozen=True, slots=True)
class CopyHeader:
    """What the header says of one copy.

    Attributes:
        watermarks: those that are written, in the order of their levels.
        rows: number of retained observations.
        newest: time of the most recent row, None without rows.
    """

    watermarks: tuple[int, ...]
    rows: int
    newest: int | None

    def check(self, capacity: int, levels: int) -> None:
        """Refuse more than sketches of so many levels hold."""
        if len(self.watermarks) > levels:
            refuse(f"{len(self.watermarks)} watermarks; there are {levels} levels")
        fields.check_row_count(self.rows, capacity, levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Everything in front of the columns.

    Attributes:
        version: of the wire format.
        family: byte of the kind of sketch.
        optional_flags: one bit for each optional section behind the columns.
        fingerprint: 8 bytes, that of the parameters.
        params: the parameters as ``SketchParams.to_dict()`` gives them, or None where the bytes do
            not carry them as families 1 and 2 do.
        capacity: observations kept for each level.
        clock: the latest time that the sketch was told, or None.
        copies: one entry for each hash function.
        columns_at: offset of the first byte of the columns.
    """

    version: int
    family: int
    optional_flags: int
    fingerprint: bytes
    params: dict[str, Any] | None
    capacity: int
    clock: int | None
    copies: tuple[CopyHeader, ...]
    columns_at: int

    @classmethod
    def behind(
        cls,
        opening: Opening,
        copies: Sequence[CopyHeader],
        *,
        clock: int | None = None,
        **own: Any,  # attributes that a family adds
    ) -> Self:
        """Of an opening whose reader has arrived at the columns."""
        return cls(
            version=opening.version,
            family=opening.family,
            optional_flags=opening.optional_flags,
            fingerprint=opening.fingerprint,
            params=opening.params,
            capacity=opening.capacity,
            clock=clock,
            copies=tuple(copies),
            columns_at=opening.reader.at,
            **own,
        )

    @property
    def rows(self) -> int:
        """Number of retained observations, of all copies together."""
        return sum(copy.rows for copy in self.copies)

    @property
    def newest(self) -> int | None:
        """Time of the most recent row of any copy, None without rows."""
        return max((copy.newest for copy in self.copies if copy.newest is not None), default=None)
