"""What becomes of observations that are offered to a sketch: a verdict on each row of a batch.

With the *merged* state, the one after the whole batch is folded in, the verdict on a row is

``RETAINED``
    The merged state holds this copy of its (id, weight) and the state before did not. Of equal
    copies in one batch, the first.
``ALREADY_RETAINED``
    Else, the state before or the merged one holds an equal or later copy, by (time, value).
``BELOW_WATERMARK``
    Neither: at every level that the observation belongs to, it is not later than the watermark (it
    does not expire later, for an integral sketch). A row of weight 0 belongs to no level.

Verdicts are exact, by this definition; nothing is changed by asking for them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core import _verdict_kernels as kernels
from decaysketch.core._sort_kernels import MAX_ROWS
from decaysketch.core.arrays import read_only
from decaysketch.errors import ParameterError

__all__ = [
    "Batch",
    "Identified",
    "Verdict",
    "VerdictArray",
    "VerdictCounts",
    "compare",
    "count_replacing",
]

Int64Array = npt.NDArray[np.int64]
VerdictArray = npt.NDArray[np.int8]

_SALTS = tuple(np.uint64(secrets.randbits(64) | 1) for _ in range(2))


class Verdict(IntEnum):
    """What becomes of one row; see the module."""

    RETAINED = 0
    ALREADY_RETAINED = 1
    BELOW_WATERMARK = 2


class VerdictCounts(NamedTuple):
    """How many rows there are of each verdict."""

    retained: int
    already_retained: int
    below_watermark: int

    @classmethod
    def of(cls, verdicts: VerdictArray) -> VerdictCounts:
        """Count a column of verdicts."""
        return cls(*np.bincount(verdicts, minlength=len(Verdict)).tolist())


class Identified(NamedTuple):
    """Rows by identity, int64[n] each: two columns that identify, then what orders copies."""

    first: Int64Array
    second: Int64Array
    times: Int64Array
    values: Int64Array


class Batch:
    """A batch with its copies found."""

    def __init__(self, rows: Identified) -> None:
        n = len(rows.times)
        if n >= MAX_ROWS:
            raise ParameterError(f"{n} rows at once; expected less than {MAX_ROWS}")
        self.rows = Identified(*map(read_only, rows))
        self._bits = max(4, (2 * n).bit_length())  # a quarter to half of the slots are taken
        self._table = np.zeros(1 << self._bits, np.uint32)
        self.group, self.latest = np.empty(n, np.int64), np.empty(n, np.int64)
        self.groups = kernels.group_copies(
            *self.rows, *_SALTS, self._table, self._bits, self.group, self.latest
        )

    def find_in(self, first: Int64Array, second: Int64Array) -> Int64Array:
        """For each identity, the row of a state that has it, or -1."""
        held = np.full(self.groups, kernels.NONE, np.int64)
        kernels.find_held(
            first, second, self.rows.first, self.rows.second, self.latest, *_SALTS, self._table,
            self._bits, held,
        )  # fmt: skip
        return held


def compare(before: Identified, merged: Identified, batch: Identified) -> VerdictArray:
    """Verdicts on a batch, where the state that it is merged into is known before and after.

    Args:
        before, merged: the rows of both states, at most one of each identity.
        batch: the rows that were folded in, with any repetition.

    Returns:
        int8[n], :class:`Verdict` of each row of the batch. O(rows of all).
    """
    judged, verdicts = Batch(batch), np.empty(len(batch.times), np.int8)
    old, new = (Identified(*map(read_only, state)) for state in (before, merged))
    kernels.judge_by_states(
        judged.rows.times, judged.rows.values, judged.group, judged.latest,
        judged.find_in(old.first, old.second), old.times, old.values,
        judged.find_in(new.first, new.second), new.times, new.values, verdicts,
    )  # fmt: skip
    return verdicts


def count_replacing(parts: Sequence[Identified]) -> list[int]:
    """How many rows of each part stand in place of what another part holds: of an identity that
    another one has as well, and later than its copy there, by (time, value). Copies that are equal
    stand in place of nothing.

    Args:
        parts: what each of several sketches holds; no part has an identity twice.

    Complexity: O(n log n) for n rows in all; those of an identity that one part alone has are only
    hashed.
    """
    hashes = [_hashes(part) for part in parts]
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))
    shared = np.unique(every[1:][every[1:] == every[:-1]])
    if not len(shared):
        return [0] * len(parts)
    found = [_among(shared, each) for each in hashes]
    rows = Identified(
        *(
            np.concatenate([column[places] for column, places in zip(columns, found, strict=True)])
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


def _hashes(rows: Identified) -> npt.NDArray[np.uint64]:
    """64 bits of each identity; that two of them have the same costs a little time."""
    with np.errstate(over="ignore"):
        hashed = rows.first.view(np.uint64) * _SALTS[0]
        hashed ^= hashed >> np.uint64(32)
        hashed += rows.second.view(np.uint64)
        hashed *= _SALTS[1]
    return hashed


def _among(shared: npt.NDArray[np.uint64], hashed: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    places = np.minimum(np.searchsorted(shared, hashed), len(shared) - 1)
    return np.flatnonzero(shared[places] == hashed)
