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

Of several hash functions (``copies``) the most favourable verdict counts. Verdicts are exact, by
this definition; nothing is changed by asking for them.

The verdicts of a ``DecaySketch`` are found without merging: the watermarks of the merged state
follow from one walk over the rows held and the new copies. For a batch of ``n`` rows and a state of
``R`` it takes O(R + n), a few nanoseconds for each row held.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import _kernels, minhit
from decaysketch import _verdict_kernels as kernels
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.observations import Observations
from decaysketch.state import SketchState

__all__ = [
    "Identified",
    "Verdict",
    "VerdictCounts",
    "compare",
    "count_replacing",
    "count_verdicts",
    "verdicts_of",
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


class _Batch:
    """A batch with its copies found."""

    def __init__(self, rows: Identified) -> None:
        n = len(rows.times)
        if n >= _kernels.MAX_ROWS:
            raise ParameterError(f"{n} rows at once; expected less than {_kernels.MAX_ROWS}")
        self.rows = Identified(*map(_read_only, rows))
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
    judged, verdicts = _Batch(batch), np.empty(len(batch.times), np.int8)
    old, new = (Identified(*map(_read_only, state)) for state in (before, merged))
    kernels.judge_by_states(
        judged.rows.times, judged.rows.values, judged.group, judged.latest,
        judged.find_in(old.first, old.second), old.times, old.values,
        judged.find_in(new.first, new.second), new.times, new.values, verdicts,
    )  # fmt: skip
    return verdicts


def verdicts_of(states: Sequence[SketchState], batch: Observations) -> VerdictArray:
    """Verdicts on a batch that is offered to a ``DecaySketch``.

    Args:
        states: of each copy, as ``DecaySketch.states`` gives them.
        batch: validated columns; rows of weight 0 are below the watermark.

    Returns:
        int8[n], :class:`Verdict` of each row.
    """
    weighted = batch.weights > 0
    verdicts = np.full(len(weighted), Verdict.BELOW_WATERMARK, np.int8)
    rows = batch if weighted.all() else Observations(*(column[weighted] for column in batch))
    if not len(rows.ids):
        return verdicts
    judged = _Batch(Identified(rows.ids, rows.weights, rows.timestamps, rows.value_keys))
    best = np.full(len(rows.ids), Verdict.BELOW_WATERMARK, np.int8)
    for state in states:
        levels = minhit.top_levels(state.params, rows.ids, rows.weights, copy=state.copy)
        found = _judge(state, judged, levels, state.watermarks, state.params.capacity)
        np.minimum(best, found, out=best)
    verdicts[weighted] = best
    return verdicts


def count_verdicts(before: Sequence[SketchState], post: Sequence[SketchState]) -> VerdictCounts:
    """How many of the observations that a sketch holds are new to another one, and so on.

    Args:
        before: states of the sketch that ``post`` is to be merged into, of each copy.
        post: states of a sketch of the same parameters (capacity may differ).

    Returns:
        Verdicts on the distinct observations held by ``post``, as of one batch that takes along the
        watermarks of ``post``.

    Raises:
        IncompatibleSketchError: sketches that do not merge.
    """
    params = before[0].params
    if params.fingerprint != post[0].params.fingerprint:
        raise IncompatibleSketchError(params.differences(post[0].params))
    capacity = min(params.capacity, post[0].params.capacity)
    columns = []
    for old, new in zip(before, post, strict=True):
        judged = _Batch(_rows_of(new))
        marks = np.maximum(old.watermarks, new.watermarks)
        columns.append(_judge(old, judged, new.levels, marks, capacity))
    if len(columns) == 1:
        return VerdictCounts.of(columns[0])
    identities = np.concatenate(
        [state.ids * np.int64(params.max_weight) + (state.weights - 1) for state in post]
    )
    distinct, position = np.unique(identities, return_inverse=True)
    best = np.full(len(distinct), Verdict.BELOW_WATERMARK, np.int8)
    np.minimum.at(best, position, np.concatenate(columns))
    return VerdictCounts.of(best)


def _read_only(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous view: one kernel signature, whoever owns the memory."""
    view = np.ascontiguousarray(column).view()
    view.setflags(write=False)
    return view


def _rows_of(state: SketchState) -> Identified:
    columns = (state.ids, state.weights, state.times, state.value_keys)
    return Identified(*map(_read_only, columns))


def _judge(
    state: SketchState,
    batch: _Batch,
    levels: npt.NDArray[np.int8],
    marks: Int64Array,
    capacity: int,
) -> VerdictArray:
    """Verdicts under one hash function; ``marks`` hold before a row of the batch is looked at."""
    rows, raised = batch.rows, marks.copy()
    old = _rows_of(state)
    held = batch.find_in(old.first, old.second)
    replaced = np.zeros(len(state), np.uint8)
    new_times, new_levels = np.empty(batch.groups, np.int64), np.empty(batch.groups, np.int8)
    levels = _read_only(levels)
    count = kernels.find_new(
        rows.times, rows.values, levels, batch.latest, batch.groups, held, old.times, old.values,
        raised, replaced, new_times, new_levels,
    )  # fmt: skip
    if count:
        keys, words = np.empty((2, count), np.uint64), np.empty((2, count), np.uint32)
        swapped, newest = _kernels.sort_by_time(
            new_times, new_levels, count, keys[0], words[0], keys[1], words[1]
        )
        kernels.raise_marks(
            old.times, _read_only(state.levels), replaced, keys[int(swapped)],
            words[int(swapped)], count, newest, capacity, raised,
            np.zeros(len(marks) + 1, np.int64),
        )  # fmt: skip
    verdicts = np.empty(len(rows.times), np.int8)
    kernels.judge_by_marks(
        rows.times, rows.values, levels, batch.group, batch.latest, held, old.times, old.values,
        raised, verdicts,
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
