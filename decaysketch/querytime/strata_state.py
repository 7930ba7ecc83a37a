"""The canonical state for a sketch with strata: one state per stratum.

A stream may declare one or two text columns as its *strata*. An observation belongs to the stratum
that these columns name. Each stratum has the state (``state.py``) that a sketch with
the same capacity has after its observations alone. So the state is a function of the set of
observations, and sketches merge stratum by stratum.

Rows from all strata stand together, latest first, so code that reads only rows need not know about
strata. ``watermarks`` contains the latest watermark in any stratum for each level. Every stratum is
complete after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.column_types import ColumnTypes
from decaysketch.core.observations import MISSING_KEY
from decaysketch.core.params import DEFAULT_STRATA, SketchParams
from decaysketch.core.records import Record, Records
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime.many import ManySketches
from decaysketch.querytime.state import SketchState

__all__ = [
    "StrataState",
    "by_stratum",
    "columns_of",
    "empty_state",
    "level_of_mark",
    "no_strata",
    "plain_params",
    "strata_state",
]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class StrataState(SketchState):
    """Rows in the order (time, descending, then stratum, rising, then id and weight, descending).

    Attributes:
        stratum: int32[n], each row's stratum number.
        strata: the stratum columns, one row per stratum, rising. Null is the least.
        mark_offsets: int64[strata + 1] into ``marks``.
        marks: int64, each stratum's set watermarks, from level 0 up.
    """

    stratum: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))
    strata: Records = None  # type: ignore[assignment]  # always there
    mark_offsets: Int64Array = field(default_factory=lambda: np.zeros(1, np.int64))
    marks: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def own_records(self) -> Records | None:
        """The columns without stratum columns. None if there are no others."""
        types = self.params.own_columns
        return None if self.records is None or not types else columns_of(self.records, types)

    def digest_parts(self) -> list[Any]:
        """Return bytes that differ if the strata differ."""
        parts = list(self.strata.digest_parts())
        parts += [
            np.ascontiguousarray(each, "<i8").data for each in (self.mark_offsets, self.marks)
        ]
        return [*parts, np.ascontiguousarray(self.stratum, "<i4").data]

    def names(self, number: int) -> tuple[str | None, ...]:
        """Return the texts that name a stratum."""
        keys = ((each.texts, int(each.keys[number])) for each in self.strata.columns)
        return tuple(None if key == MISSING_KEY else texts[key] for texts, key in keys)

    def ids_in_several(self) -> int:
        """Return how many ids are stored in more than one stratum. O(n log n)."""
        order = np.lexsort((self.stratum, self.ids))
        ids, strata = self.ids[order], self.stratum[order]
        both = (ids[1:] == ids[:-1]) & (strata[1:] != strata[:-1])
        return len(np.unique(ids[1:][both]))


def columns_of(records: Records, types: ColumnTypes) -> Records:
    """Return some columns."""
    return Records(types, tuple(records.column(name) for name, _ in types))


def plain_params(params: SketchParams) -> SketchParams:
    """Return the parameters for one stratum, without columns."""
    return replace(
        params, strata=(), max_strata=DEFAULT_STRATA, columns=(), revision=None, value_type="int64"
    )


def empty_state(params: SketchParams) -> SketchState:
    """Return an empty state for one stratum."""
    none = np.empty(0, np.int64)
    marks = np.full(params.levels + 1, NO_WATERMARK, np.int64)
    return SketchState(params, none, none, none, none, np.empty(0, np.int8), marks)


def no_strata(params: SketchParams) -> Records:
    """Return an empty table for stratum columns."""
    kinds = dict(params.columns)
    none = Record(np.empty(0, np.int64))
    types = tuple((name, kinds[name]) for name in params.strata)
    return Records(types, tuple(none for _ in types))


def _ordered(strata: Records) -> tuple[Records, npt.NDArray[np.intp]]:
    """Return keys in order, canonical, and the number that each has among the given keys."""
    canonical = strata.canonical()
    order = np.lexsort([each.keys for each in canonical.columns][::-1])
    return canonical[order], order


def strata_state(
    params: SketchParams, sketches: ManySketches, strata: Records, own: Records | None
) -> StrataState:
    """Return the state for all strata together.

    Args:
        params: sketch parameters.
        sketches: one state per stratum. Value keys are places in ``own``.
        strata: their keys, in any order. A stratum without rows and watermarks is none.
        own: the other columns. None if there are none.

    Complexity: O(rows * (columns + log strata)).
    """
    held = (np.diff(sketches.offsets) > 0) | (np.diff(sketches.mark_offsets) > 0)
    keys, order = _ordered(strata[held])
    order = np.flatnonzero(held)[order]
    rows, offsets = _ranges(sketches.offsets, order)
    marks, mark_offsets = _ranges(sketches.mark_offsets, order)
    stratum = np.repeat(np.arange(len(order), dtype=np.int32), np.diff(offsets))
    latest = np.argsort(-sketches.times[rows], kind="stable")  # times are below 2^62
    rows, stratum = rows[latest], stratum[latest]
    ids, weights = sketches.ids[rows], sketches.weights[rows]
    columns = {name: Record(np.empty(0, np.int64)) for name, _ in params.own_columns}
    if own is not None:
        named = own[sketches.value_keys[rows]].canonical()
        columns |= dict(zip((name for name, _ in own.types), named.columns, strict=True))
    kept = keys.canonical()
    for (name, _), column in zip(kept.types, kept.columns, strict=True):
        columns[name] = column._replace(keys=column.keys[stratum])
    records = Records(params.columns, tuple(columns[name] for name, _ in params.columns))
    marks = sketches.marks[marks]
    return StrataState(
        params, np.arange(len(rows), dtype=np.int64), weights, sketches.times[rows], ids,
        minhit.top_levels(params, ids, weights, copy=0), _latest(params, mark_offsets, marks),
        records=records.canonical(), stratum=stratum, strata=kept, mark_offsets=mark_offsets,
        marks=marks,
    )  # fmt: skip


def _ranges(offsets: Int64Array, order: npt.NDArray[np.intp]) -> tuple[Int64Array, Int64Array]:
    """Return the places in some ranges, one after the other, and the range offsets."""
    lengths = np.diff(offsets)[order]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    starts = np.repeat(offsets[:-1][order] - ends[:-1], lengths)
    return np.arange(ends[-1]) + starts, ends


def level_of_mark(mark_offsets: Int64Array) -> Int64Array:
    """Return each watermark's level."""
    counts = np.diff(mark_offsets)
    return np.arange(mark_offsets[-1]) - np.repeat(mark_offsets[:-1], counts)


def _latest(params: SketchParams, mark_offsets: Int64Array, marks: Int64Array) -> Int64Array:
    found = np.full(params.levels + 1, NO_WATERMARK, np.int64)
    np.maximum.at(found, level_of_mark(mark_offsets), marks)
    return found


def by_stratum(state: StrataState) -> tuple[ManySketches, npt.NDArray[np.intp]]:
    """Return one canonical state per stratum without value keys, one after the other, and for each
    row its number in the given state.
    """
    order = np.argsort(state.stratum, kind="stable")
    offsets = np.concatenate(
        [[0], np.cumsum(np.bincount(state.stratum, minlength=len(state.strata)))]
    )
    values = np.full(len(state), MISSING_KEY, np.int64)
    sketches = ManySketches(
        offsets.astype(np.int64), state.times[order], state.ids[order], state.weights[order],
        values, state.mark_offsets, state.marks,
    )  # fmt: skip
    return sketches, order
