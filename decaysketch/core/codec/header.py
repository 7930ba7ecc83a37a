"""Read the header of any family without the rows.

Use it to route bytes, and to reject them by size, capacity or time before any allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from decaysketch.core.codec import fields
from decaysketch.core.codec.fields import Opening, refuse

__all__ = ["CopyHeader", "Header"]


@dataclass(frozen=True, slots=True)
class CopyHeader:
    """Header of one repetition.

    Attributes:
        watermarks: as written, by level.
        rows: retained observations.
        newest: time of the most recent row, or None without rows.
    """

    watermarks: tuple[int, ...]
    rows: int
    newest: int | None

    def check(self, capacity: int, levels: int) -> None:
        """Reject more rows than so many levels can store."""
        if len(self.watermarks) > levels:
            refuse(f"{len(self.watermarks)} watermarks; there are {levels} levels")
        fields.check_row_count(self.rows, capacity, levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Everything before the columns.

    Attributes:
        version: wire format version.
        family: family byte.
        optional_flags: one bit per optional section after the columns.
        fingerprint: 8-byte parameter fingerprint.
        params: as in ``SketchParams.to_dict()``, or None if the bytes do not embed them as families
            1 and 2 do.
        capacity: observations kept per level.
        clock: the sketch's clock, or None.
        copies: one entry per hash function.
        columns_at: offset of the first column byte.
        by_count: whether the second entry of ``copies`` is a sample by count, of rows that are
            written once for both.
        strata: number of strata, or None in a sketch without them.
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
    by_count: bool = False
    strata: int | None = None

    @classmethod
    def behind(
        cls,
        opening: Opening,
        copies: Sequence[CopyHeader],
        *,
        clock: int | None = None,
        **own: Any,  # attributes that a family adds
    ) -> Self:
        """Build from an opening whose reader has reached the columns."""
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
            by_count=opening.by_count,
            **own,
        )

    @property
    def rows(self) -> int:
        """Retained observations over all repetitions."""
        return sum(copy.rows for copy in self.copies)

    @property
    def newest(self) -> int | None:
        """Time of the most recent row in any repetition, or None without rows."""
        return max((copy.newest for copy in self.copies if copy.newest is not None), default=None)
