"""One check of rows: columns and limits in, accepted rows and reasons for the others out.

:class:`RowCheck` is below every interface that takes rows, so that each limit is stated once and is
worded alike everywhere. Three presenters use it:

- *raise*: the first fault raises an :class:`~decaysketch.errors.ObservationError`, and the complete
  batch is rejected: sketches (:mod:`decaysketch.core.observations`) and tables
  (:mod:`decaysketch.tables.rejections`)
- *status of each row*: the faults of a body, which rejects only these rows: HTTP and messages
  (:mod:`decaysketch.ingest.columns`)
- *quarantine*: the rejected rows of a table, each with a sentence (:mod:`decaysketch.tables`)

An accepted row may have a time that no device clock shows once it is set. Such rows are counted
(:func:`count_undated`).

An accepted row has a status, a :class:`Verdict`, in the sketch that it is offered to. The *merged*
state is the state after the complete batch is merged. With it, a row's status is

``RETAINED`` The merged state contains this duplicate for its (id, weight) and the state before did
    not. Among equal duplicates in one batch, the first.
``ALREADY_RETAINED``
    Else, the state before or the merged one contains an equal or later duplicate, by (time, value).
``BELOW_WATERMARK``
    Neither: at every level that the observation belongs to, it is not later than the watermark (it
    does not expire later, for an integral sketch). A row with weight 0 belongs to no level.

The status is exact, by this definition. Reading it changes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from decaysketch.core import _native
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ObservationError, ParameterError

__all__ = [
    "BEYOND_64_BITS",
    "EXACT_IN_FLOAT",
    "FINITE",
    "INT64",
    "MISSING",
    "NOT_EXACT",
    "NOT_FINITE",
    "NO_INTEGER",
    "NO_NUMBER",
    "OUT_OF_BOUNDS",
    "RESERVED",
    "SINCE_NS",
    "TIMES",
    "TIME_LIMIT",
    "UNTIL_NS",
    "Batch",
    "Compared",
    "Identified",
    "Limit",
    "Refusal",
    "RowCheck",
    "Verdict",
    "VerdictArray",
    "compare",
    "count_undated",
    "ids_of_bits",
    "undated",
]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
VerdictArray = npt.NDArray[np.int8]

TIME_LIMIT: Final = 1 << 62  # |timestamp| <= TIME_LIMIT: ages fit an unsigned 64-bit integer
EXACT_IN_FLOAT: Final = 1 << 53
SINCE_NS: Final = 631_152_000 * 1_000_000_000  # 1990
UNTIL_NS: Final = 4_102_444_800 * 1_000_000_000  # 2100

# Reasons. They are the same words in every interface, and never change.
OUT_OF_BOUNDS: Final = "out of bounds"
NOT_FINITE: Final = "not finite"
NO_INTEGER: Final = "no integer"
NO_NUMBER: Final = "no number"
BEYOND_64_BITS: Final = "beyond 64 bits"
NOT_EXACT: Final = "not exact as float64"
RESERVED: Final = "marks a missing value"
MISSING: Final = "missing"

_SEEN = frozenset({OUT_OF_BOUNDS, NOT_FINITE, NO_INTEGER, NO_NUMBER})  # by the value itself
_LONGEST_SHOWN = 80  # characters
FINITE: Final = "a finite number, or None if missing"

#: Of tables of identities, which are fed from the network.
SALTS: Final = secrets.randbits(64) | 1, secrets.randbits(64) | 1
_MAX_ROWS = 1 << 26  # the number of a row has to fit the kernels' words


class Refusal(NamedTuple):
    """A rejected row, with its first fault.

    Attributes:
        row: its number in the batch, body or table.
        field: the column at fault.
        reason: one of the reasons above, or a text.
        value: the entry, if there is one.
        expected: the limit, in words.
    """

    row: int
    field: str
    reason: str
    value: Any = None
    expected: Any = None

    @property
    def sentence(self) -> str:
        """The fault in words, behind the column and the row."""
        if self.reason == MISSING:
            return "is missing"
        if self.expected is None:
            return self.reason
        is_number = isinstance(self.value, int | float | np.number)
        shown = str(self.value) if is_number else f"{self.value!r:.{_LONGEST_SHOWN}}"
        because = "" if self.reason in _SEEN else f", {self.reason}"
        if self.reason == RESERVED:
            because = f", which {RESERVED}"
        return f"is {shown}{because}; expected {self.expected}"

    def throw(self) -> NoReturn:
        """Raise it, with the column, the row and the value."""
        raise ObservationError(
            f"{self.field}[{self.row}] {self.sentence}",
            column=self.field, row=self.row, value=self.value,
        ) from None  # fmt: skip


class Limit(NamedTuple):
    """The integers that a column may have: ``low`` to ``high``, and the same in words."""

    low: int
    high: int
    words: str

    @classmethod
    def named(cls, low: int, high: int, name: str) -> Limit:
        """Return a limit with the name of its parameter or its power of two."""
        return cls(low, high, f"{low} to {high} ({name})")

    def outside(self, column: npt.NDArray[Any]) -> BoolArray | None:
        """Return bool[column]: beyond the limit. None if no entry is. O(column)."""
        within = _native.are_within(column, self.low, self.high)
        if within is None:  # other numbers than contiguous int64
            within = not column.size or (column.min() >= self.low and column.max() <= self.high)
        if within:
            return None
        found: BoolArray = (column < self.low) | (column > self.high)
        return found


TIMES: Final = Limit(-TIME_LIMIT, TIME_LIMIT, "at most 2^62 in magnitude")
INT64: Final = Limit(-(1 << 63), (1 << 63) - 1, "an integer of 64 bits")
_ABOVE_RESERVED: Final = Limit(-(1 << 63) + 1, (1 << 63) - 1, "above -2^63")
_EXACT: Final = Limit(-EXACT_IN_FLOAT, EXACT_IN_FLOAT, "at most 2^53 in magnitude")


def ids_of_bits(bits: int) -> Limit:
    """Return the limit for ids of so many bits."""
    return Limit.named(0, (1 << bits) - 1, f"2^{bits} - 1")


Parts = tuple[str, Any] | tuple[str, Any, Any]
"""Reason, value and expected words."""


class _Found(NamedTuple):
    rows: Int64Array
    field: str
    describe: Callable[[int], Parts]


class RowCheck:
    """Rejected rows of one batch, body or table, found column by column.

    Only a row's first fault is kept. Faults are put in words when they are read.

    Args:
        rows: number of rows.
        places: each row's number in faults, if it is another.
        raises: whether the first fault raises at once.

    Attributes:
        rejected: bool[rows], rejected rows so far.
    """

    def __init__(
        self, rows: int, places: Int64Array | None = None, *, raises: bool = False
    ) -> None:
        self.rejected: BoolArray = np.zeros(rows, dtype=bool)
        self.raises = raises
        self._places = places
        self._found: list[_Found] = []

    @property
    def accepted(self) -> BoolArray:
        """bool[rows], the rows without a fault."""
        return ~self.rejected

    def refuse(self, bad: BoolArray, field: str, describe: Callable[[int], Parts]) -> None:
        """Reject the rows that are ``bad``, except rows that were rejected before.

        Args:
            bad: bool[rows].
            field: the column at fault.
            describe: returns a row's reason, value and the expected words.

        Raises:
            ObservationError: the first of them, if faults raise.
        """
        if not bad.any():
            return
        if self.raises:
            self._refusal(int(bad.argmax()), field, describe).throw()
        self._found.append(_Found(np.flatnonzero(bad & ~self.rejected), field, describe))
        self.rejected |= bad

    def within(
        self, column: npt.NDArray[Any], field: str, limit: Limit, reason: str = OUT_OF_BOUNDS
    ) -> BoolArray | None:
        """Reject the rows with an entry beyond a limit. Return them, or None if there are none.
        O(rows).
        """
        bad = limit.outside(column)
        if bad is not None:
            self.refuse(bad, field, lambda row: (reason, column[row].item(), limit.words))
        return bad

    def finite(self, column: npt.NDArray[Any], field: str) -> None:
        """Reject the rows with NaN or an infinity."""
        self.refuse(
            ~np.isfinite(column), field, lambda row: (NOT_FINITE, column[row].item(), FINITE)
        )

    def exact(self, column: npt.NDArray[Any], field: str, wider: str = "") -> BoolArray | None:
        """Reject the rows with an integer that float64 cannot represent.

        Args:
            column: integers.
            field: the column.
            wider: the declaration that accepts it.
        """
        words = _EXACT.words + (f" (or {wider})" if wider else "")
        return self.within(column, field, _EXACT._replace(words=words), NOT_EXACT)

    def not_reserved(self, column: Int64Array, field: str) -> BoolArray | None:
        """Reject the rows with the integer that marks a missing value."""
        return self.within(column, field, _ABOVE_RESERVED, RESERVED)

    def refusals(self) -> list[Refusal]:
        """Return every rejected row with its fault, in order. O(rejected rows)."""
        return sorted(
            self._refusal(row, found.field, found.describe)
            for found in self._found
            for row in found.rows.tolist()
        )

    def place(self, row: int) -> int:
        """Return a row's number in faults."""
        return row if self._places is None else int(self._places[row])

    def _refusal(self, row: int, field: str, describe: Callable[[int], Parts]) -> Refusal:
        return Refusal(self.place(row), field, *describe(row))


def undated(unit: str, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return the times outside the years 1990 to 2099. No device clock that was set shows them.

    Args:
        unit: the times' unit. If it has no wall clock, no time is outside.
        times: int64[n].

    Returns:
        bool[n]. O(n).

    Example:
        >>> undated("s", np.array([0, 1_700_000_000])).tolist()
        [True, False]
    """
    size = NANOSECONDS.get(unit)
    if size is None:
        return np.zeros(np.shape(times), np.bool_)
    return (times < -(-SINCE_NS // size)) | (times >= -(-UNTIL_NS // size))


def count_undated(unit: str, times: npt.NDArray[np.int64]) -> int:
    """Return how many times lie outside the years 1990 to 2100. O(n). 0 if the unit has no wall
    clock.

    Example:
        >>> count_undated("s", np.array([0, 315_964_800, 1_700_000_000]))
        2
    """
    return int(np.count_nonzero(undated(unit, times)))


# ----------------------------------------------------------------------------------------- status


class Verdict(IntEnum):
    """One row's status. See the module."""

    RETAINED = 0
    ALREADY_RETAINED = 1
    BELOW_WATERMARK = 2


class Compared(NamedTuple):
    """A batch compared with a state.

    Attributes:
        verdicts: int8[n], the row status.
        shares: whether rows may have one identity, two in the batch, or one in it and one stored.
    """

    verdicts: VerdictArray
    shares: bool


class Identified(NamedTuple):
    """Rows by identity, int64[n] each: two columns that identify, then the columns that order
    duplicates. Values may be columns, which few rows need: they are hashed when they are compared.
    """

    first: Int64Array
    second: Int64Array
    times: Int64Array
    values: Any

    def contiguous(self) -> Identified:
        """Return the same rows, with contiguous columns."""
        return Identified(*map(np.ascontiguousarray, self))


class Batch(_native.Offered):
    """A batch with its duplicates found.

    Raises:
        ParameterError: there are too many rows at once.
    """

    def __init__(self, rows: Identified) -> None:
        if len(rows.times) >= _MAX_ROWS:
            raise ParameterError(f"{len(rows.times)} rows at once; expected less than {_MAX_ROWS}")
        first, second, times, values = rows
        super().__init__(first, second, np.ascontiguousarray(times), values, salts=SALTS)


def compare(before: Identified, merged: Identified, batch: Identified) -> VerdictArray:
    """Return the row status for a batch, from the known states before and after the merge.

    Args:
        before, merged: the rows in both states, at most one per identity.
        batch: the merged rows, with any repetition.

    Returns:
        int8[n], :class:`Verdict` for each row in the batch. O(rows of all).
    """
    return Batch(batch).judge_by_states(before.contiguous(), merged.contiguous())
