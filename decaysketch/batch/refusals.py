"""Rows that no sketch can take, found column by column, each with the first reason found.

The same checks serve two wishes. *Raise*: the first fault ends the reading of a table with an
:class:`~decaysketch.errors.ObservationError`, and nothing of the table is taken. *Count*: faults
are gathered, the rows at fault are left out, and the others are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ObservationError

__all__ = ["Refusal", "Refusals"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Describe = Callable[[int], tuple[str, object]]  # row -> what it is and should be, and its value


class Refusal(NamedTuple):
    """A row that is refused."""

    row: int
    column: str
    reason: str


class _Found(NamedTuple):
    rows: Int64Array
    column: str
    describe: Describe


class Refusals:
    """Rows of one table that are refused.

    Args:
        rows: how many rows the table has.
        places: the row of the log that each of them is, where that is not the same.
        raises: whether the first fault is raised at once.

    Attributes:
        mask: bool[rows], those refused so far.
        zoneless: times that named no zone where none was given, so that they were read as UTC.
    """

    def __init__(self, rows: int, places: Int64Array | None = None, *, raises: bool) -> None:
        self.mask: BoolArray = np.zeros(rows, dtype=bool)
        self.raises = raises
        self.zoneless = 0
        self._places = places
        self._found: list[_Found] = []

    def refuse(self, bad: BoolArray, column: str, describe: Describe) -> None:
        """Refuse the rows that are ``bad``, but for those that were refused before."""
        if not bad.any():
            return
        if self.raises:
            row = int(bad.argmax())
            text, value = describe(row)
            place = self.place(row)
            raise ObservationError(
                f"{column}[{place}] {text}", column=column, row=place, value=value
            )
        self._found.append(_Found(np.flatnonzero(bad & ~self.mask), column, describe))
        self.mask |= bad

    def refuse_column(self, column: str, text: str, present: BoolArray | None = None) -> None:
        """Refuse all rows, or those with something in the column, for what the column is."""
        if self.raises:
            raise ObservationError(f"{column} {text}", column=column)
        bad = np.ones(len(self.mask), dtype=bool) if present is None else present
        self.refuse(bad, column, lambda row: (text, None))

    def listing(self) -> list[Refusal]:
        """Every refused row, in their order."""
        refusals = [
            Refusal(self.place(row), found.column, found.describe(row)[0])
            for found in self._found
            for row in found.rows.tolist()
        ]
        return sorted(refusals)

    def place(self, row: int) -> int:
        """The row of the log that a row of the table is."""
        return row if self._places is None else int(self._places[row])
