"""The status for observations offered to a sketch: a row status for each row in a batch.

The *merged* state is the state after the complete batch is merged. With it, a row's status is

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
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core import _native
from decaysketch.core.records import comparable
from decaysketch.errors import ParameterError

__all__ = [
    "Batch",
    "Compared",
    "Identified",
    "Verdict",
    "VerdictArray",
    "compare",
    "count_replacing",
    "hashes_of",
    "matching",
    "may_match",
]

Int64Array = npt.NDArray[np.int64]
VerdictArray = npt.NDArray[np.int8]

_SALTS = (secrets.randbits(64) | 1, secrets.randbits(64) | 1)  # key tables fed from the network
_MARK_BITS = 17
_MARK_MASK = (1 << _MARK_BITS) - 1
_MAX_ROWS = 1 << 26  # the number of a row has to fit the kernels' words


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
        super().__init__(first, second, np.ascontiguousarray(times), values, salts=_SALTS)


def compare(before: Identified, merged: Identified, batch: Identified) -> VerdictArray:
    """Return the row status for a batch, from the known states before and after the merge.

    Args:
        before, merged: the rows in both states, at most one per identity.
        batch: the merged rows, with any repetition.

    Returns:
        int8[n], :class:`Verdict` for each row in the batch. O(rows of all).
    """
    return Batch(batch).judge_by_states(before.contiguous(), merged.contiguous())


def count_replacing(parts: Sequence[Identified]) -> list[int]:
    """Return for each part how many of its rows replace another part's row: a row with the same
    identity, and later than its duplicate there, by (time, value). Equal duplicates replace
    nothing.

    Args:
        parts: the rows of several sketches. No part has an identity twice.

    Complexity: O(n log n) for n rows in all. Rows with an identity that one part alone has are only
    hashed.
    """
    hashes = [hashes_of(part) for part in parts]
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))
    shared = np.unique(every[1:][every[1:] == every[:-1]])
    if not len(shared):
        return [0] * len(parts)
    found = [_among(shared, each) for each in hashes]
    rows = Identified(
        *(
            np.concatenate([comparable(*each) for each in zip(columns, found, strict=True)])
            for columns in zip(*parts, strict=True)
        )
    )
    owners = np.repeat(np.arange(len(parts)), [len(places) for places in found])
    order = np.lexsort((rows.values, rows.times, rows.second, rows.first))
    first, second, times, values = (column[order] for column in rows)
    last = np.ones(len(order), np.bool_)  # of its identity: the latest
    last[:-1] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    ends = np.flatnonzero(last)
    latest = np.repeat(ends, np.diff(ends, prepend=-1))
    stands = (times == times[latest]) & (values == values[latest])
    replaced = np.zeros(len(order), np.bool_)
    replaced[latest[~stands]] = True
    counts = np.bincount(owners[order][stands & replaced[latest]], minlength=len(parts))
    return [int(count) for count in counts]


def may_match(held: Int64Array, offered: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the positions of the numbers that may be in both parts: all of these, and of hashed
    numbers few others. O(rows), without sorting.

    Args:
        held, offered: int64[n] each, with any repetition.
    """
    mine = np.flatnonzero(_marks(offered)[held & _MARK_MASK])
    mine = mine[_marks(offered >> _MARK_BITS)[held[mine] >> _MARK_BITS & _MARK_MASK]]
    return mine, np.flatnonzero(_marks(held[mine])[offered & _MARK_MASK])


def matching(held: Int64Array, offered: Int64Array) -> Int64Array:
    """Return the positions in ``held`` of the numbers that ``offered`` has too. O(rows), without
    sorting if few match.
    """
    mine, theirs = may_match(held, offered)
    return mine[np.isin(held[mine], offered[theirs])]


def _marks(numbers: Int64Array) -> npt.NDArray[np.bool_]:
    marks = np.zeros(1 << _MARK_BITS, np.bool_)
    marks[numbers & _MARK_MASK] = True
    return marks


def hashes_of(rows: Identified) -> npt.NDArray[np.uint64]:
    """Return 64 hash bits for each identity. A collision costs a little time."""
    with np.errstate(over="ignore"):
        hashed = rows.first.view(np.uint64) * np.uint64(_SALTS[0])
        hashed ^= hashed >> np.uint64(32)
        hashed += rows.second.view(np.uint64)
        hashed *= np.uint64(_SALTS[1])
    return hashed


def _among(shared: npt.NDArray[np.uint64], hashed: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    places = np.minimum(np.searchsorted(shared, hashed), len(shared) - 1)
    return np.flatnonzero(shared[places] == hashed)
