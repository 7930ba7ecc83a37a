"""Two objectives: a sample by weight and a coordinated sample by count.

A sample by weight selects light observations rarely. Where weights differ by large factors, a
few such rows decide every count. With ``objectives=("weight", "count")`` a sketch keeps a second
sample under the same hash function. There an observation has the level that weight 1 would give it:
the level of its first integer.

State
    Two states by the definition in :mod:`decaysketch.querytime.state`, with the levels
    ``l_w(id, weight)`` and ``l_c(id)`` and the same capacity. Either is a function of the
    observations that were fed, so both together are, for any merge tree.
Union
    A sample stores an observation exactly if its latest time is later than the watermark for its
    level there. So the stored rows are a union ``U``, and either state is the part of U that is
    later than its own watermarks. The wire format writes U once. An observation contains its first
    integer, so ``l_c <= l_w``: the two samples are coordinated and share many rows.
Estimate
    In a time band, let ``i`` and ``k`` be the lowest complete levels by weight and by count. An
    observation with weight ``w`` is expected to have ``w p_i`` hits in one sample and ``p_k`` in
    the other. It is read from the sample where that is more, a rule that depends on its weight and
    time alone. So each estimate is unbiased, and a row's inclusion probability is about the maximum
    in either (Cohen, "Multi-objective weighted sampling", 2015). No hit then adds more than
    ``1 / p_k`` observations to a count, and none more than ``1 / p_i`` units to a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.records import concatenated
from decaysketch.query.bands import Bands, SampledBands
from decaysketch.querytime.state import SketchState
from decaysketch.querytime.stratified import RowEstimates, bands_from, estimates_of

__all__ = ["BY_COUNT", "BY_WEIGHT", "bands_of_both", "joined", "parted", "top_levels"]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

BY_WEIGHT, BY_COUNT = 0, 1
"""Sample numbers."""

_COLUMNS = ("value_keys", "weights", "times", "ids", "levels")


def joined(by_weight: SketchState, by_count: SketchState) -> SketchState:
    """Return the rows that either sample stores, each once, in canonical order.

    The result has the levels and watermarks by weight. O(n log n).
    """
    levels = top_levels(by_count, BY_WEIGHT)
    alone = by_count.times <= by_weight.watermarks[levels]
    return _merged(by_weight, _taken(replace(by_count, levels=levels), alone))[0]


def parted(union: SketchState, watermarks: Sequence[Int64Array]) -> list[SketchState]:
    """Undo :func:`joined`. A row that neither sample can store is in neither result.

    Args:
        union: the rows.
        watermarks: int64[M + 1], by weight and by count.
    """
    found = []
    for copy, marks in enumerate(watermarks):
        levels = top_levels(union, copy)
        state = replace(union, levels=levels, watermarks=marks, copy=copy)
        found.append(_taken(state, union.times > marks[levels]))
    return found


def top_levels(state: SketchState, copy: int) -> npt.NDArray[np.int8]:
    """Return each row's level in one sample."""
    return minhit.top_levels(state.params, state.ids, state.weights, copy=copy)


def _taken(state: SketchState, rows: BoolArray | npt.NDArray[np.intp]) -> SketchState:
    """Return some rows."""
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(getattr(state, name)[rows]) for name in _COLUMNS
    }
    if state.records is None:
        return replace(state, **columns)
    records = state.records[columns["value_keys"]].canonical()
    columns["value_keys"] = np.arange(len(records), dtype=np.int64)
    return replace(state, **columns, records=records)


def _merged(first: SketchState, second: SketchState) -> tuple[SketchState, npt.NDArray[np.intp]]:
    """Return both states' rows in canonical order, and that order."""
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in _COLUMNS}
    columns: dict[str, Any] = {name: np.concatenate(pair) for name, pair in pairs.items()}
    records = first.records
    if first.records is not None and second.records is not None:
        records = concatenated([first.records[first.value_keys], second.records[second.value_keys]])
        columns["value_keys"] = np.arange(len(records), dtype=np.int64)
    order = np.lexsort((columns["weights"], columns["ids"], columns["times"]))[::-1]
    return _taken(replace(first, **columns, records=records), order), order


# ------------------------------------------------------------------------------------- estimates


def bands_of_both(by_weight: SketchState, by_count: SketchState) -> tuple[SketchState, Bands]:
    """Return the rows that queries read, and their bands. O(n log n).

    Args:
        by_weight, by_count: a sketch's two states.
    """
    heavy = _taken(by_weight, ~_is_read_by_count(by_weight, by_count, by_weight))
    light = _taken(by_count, _is_read_by_count(by_weight, by_count, by_count))
    pairs: Any = zip(estimates_of(heavy), _counted(light), strict=True)
    union, order = _merged(heavy, light)
    found = RowEstimates(*(np.concatenate(pair)[order] for pair in pairs))
    # A time that either sample has discarded at every level cannot be answered for.
    marks = by_weight.watermarks.copy()
    marks[-1] = max(marks[-1], by_count.watermarks[-1])
    union = replace(union, watermarks=marks)
    bands = SampledBands.of(by_count.watermarks, by_count.params.level_probabilities)
    return union, bands_from(union, found, by_count=bands)


def _is_read_by_count(
    by_weight: SketchState, by_count: SketchState, rows: SketchState
) -> BoolArray:
    """Return the rows with fewer expected hits by weight than by count."""
    p = rows.params.level_probabilities
    first, second = (
        p[_lowest_complete(rows.times, state.watermarks)] for state in (by_weight, by_count)
    )
    return np.asarray(rows.weights * first < second)


def _lowest_complete(times: Int64Array, watermarks: Int64Array) -> npt.NDArray[np.intp]:
    """Return the lowest level that is complete at each time. Watermarks never rise."""
    levels = len(watermarks) - np.searchsorted(watermarks[::-1], times, side="left")
    return np.minimum(levels, len(watermarks) - 1)


def _counted(state: SketchState) -> RowEstimates:
    """Return the estimates for rows in a sample by count: each represents ``1 / p`` observations
    with its weight.
    """
    levels = _lowest_complete(state.times, state.watermarks)
    p = state.params.level_probabilities[levels]
    units = state.weights / p
    ones = np.ones(len(state), np.int64)
    return RowEstimates(levels.astype(np.int8), ones, units, units * units * (1.0 - p), units)
