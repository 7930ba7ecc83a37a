"""Rows that no sketch can accept, found column by column, each with the first reason.

The checks have two modes. *Raise*: the first fault raises an
:class:`~decaysketch.errors.ObservationError`, and the complete table is rejected. *Count*: faults
are collected, the faulty rows are dropped, and the others are accepted.
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
    """A rejected row."""

    row: int
    column: str
    reason: str


class _Found(NamedTuple):
    rows: Int64Array
    column: str
    describe: Describe


class Refusals:
    """Rejected rows of one table.

    Args:
        rows: number of rows in the table.
        places: the log's row number of each of them, if it differs.
        raises: whether the first fault raises at once.

    Attributes:
        mask: bool[rows], rejected rows so far.
        zoneless: bool[rows], times without a zone that were read as UTC, because none was given.
    """

    def __init__(self, rows: int, places: Int64Array | None = None, *, raises: bool) -> None:
        self.mask: BoolArray = np.zeros(rows, dtype=bool)
        self.raises = raises
        self.zoneless: BoolArray = np.zeros(rows, dtype=bool)
        self._places = places
        self._found: list[_Found] = []

    def refuse(self, bad: BoolArray, column: str, describe: Describe) -> None:
        """Reject the rows that are ``bad``, except rows that were rejected before."""
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
        """Reject all rows, or those with an entry in the column, because of the column's type."""
        if self.raises:
            raise ObservationError(f"{column} {text}", column=column)
        bad = np.ones(len(self.mask), dtype=bool) if present is None else present
        self.refuse(bad, column, lambda row: (text, None))

    def listing(self) -> list[Refusal]:
        """Return every rejected row, in order."""
        refusals = [
            Refusal(self.place(row), found.column, found.describe(row)[0])
            for found in self._found
            for row in found.rows.tolist()
        ]
        return sorted(refusals)

    def place(self, row: int) -> int:
        """Return the log's row number for a row of the table."""
        return row if self._places is None else int(self._places[row])
