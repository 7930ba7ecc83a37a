"""Rows of a table that no sketch can accept, found column by column, each with the first reason.

The checks have two modes. *Raise*: the first fault raises an
:class:`~decaysketch.errors.ObservationError`, and the complete table is rejected. *Count*: faults
are collected, the faulty rows are dropped, and the others are accepted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from decaysketch.core.row_check import RowCheck
from decaysketch.errors import ObservationError

__all__ = ["Refusals"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Refusals(RowCheck):
    """The row check of one table. A column may also have an invalid type.

    Attributes:
        zoneless: bool[rows], times without a zone that were read as UTC, because none was given.
    """

    def __init__(self, rows: int, places: Int64Array | None = None, *, raises: bool) -> None:
        super().__init__(rows, places, raises=raises)
        self.zoneless: BoolArray = np.zeros(rows, dtype=bool)

    def refuse_column(self, column: str, text: str, present: BoolArray | None = None) -> None:
        """Reject all rows, or those with an entry in the column, because of the column's type."""
        if self.raises:
            raise ObservationError(f"{column} {text}", column=column)
        bad = np.ones(len(self.rejected), dtype=bool) if present is None else present
        self.refuse(bad, column, lambda row: (text, None))
