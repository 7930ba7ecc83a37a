"""First hits and hit counts for an observation's range of integers under the pairwise hash.

An observation with weight ``w`` represents ``w`` integers. Level ``i`` selects those with a hash
below ``floor(p / 2^i)``. The functions below take ``O(log w)`` arithmetic steps each, and do not
visit the integers one by one:

* :func:`top_levels`: the largest level at which any integer is selected.
* :func:`range_samples`: how many are selected at a level (RangeSample of Pavan and Tirthapura).
* :func:`min_hits`: the first integer selected at a level (MinHit, Algorithm 5 of Cormode,
  Tirthapura and Xu). :func:`min_hits_all_levels` finds it for every level in one walk.
* :func:`expiry_times`: when the last one selected at a level is gone, as an integral decay removes
  the integers from the upper bound of the range (ExpiryTime, Algorithm 4, corrected).

:func:`range_sample`, :func:`min_hit` and :func:`expiry_time` handle one observation. The functions
here check their input and run vectorised kernels over tables that are fixed for a hash function.
``reference.py`` contains the paper's procedures in plain integers, and ``README.md`` works an
example by hand. The argument ``copy`` of every function selects one of the parameters' hash
functions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from decaysketch.core._native import are_within
from decaysketch.core.arrays import read_only
from decaysketch.core.params import SketchParams
from decaysketch.decay.integral import IntegralDecay
from decaysketch.errors import ParameterError
from decaysketch.minhit import _native
from decaysketch.minhit._plan import HashPlan, plan, plan_for

__all__ = [
    "HashPlan",
    "expiry_time",
    "expiry_times",
    "min_hit",
    "min_hits",
    "min_hits_all_levels",
    "minimum_hashes",
    "plan",
    "plan_for",
    "range_sample",
    "range_samples",
    "top_levels",
]

Int64Array = npt.NDArray[np.int64]

# ------------------------------------------------------------------------------- public functions


def _columns(params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike) -> list[Int64Array]:
    columns = []
    for name, given, low, high in (
        ("ids", ids, 0, (1 << params.id_bits) - 1),
        ("weights", weights, 1, params.max_weight),
    ):
        if are_within(given, low, high):
            columns.append(read_only(np.asarray(given)))
            continue
        column = np.ascontiguousarray(given)
        if column.dtype.kind not in "iu" or column.ndim != 1:
            raise ParameterError(
                f"{name} has dtype {column.dtype} and shape {column.shape}; "
                "expected one column of integers"
            )
        if column.size and (column.min() < low or column.max() > high):
            row = int(((column < low) | (column > high)).argmax())
            raise ParameterError(f"{name}[{row}] is {column[row]}; expected {low} to {high}")
        column = column.astype(np.int64, copy=False).view()
        column.setflags(write=False)
        columns.append(column)
    if len(columns[0]) != len(columns[1]):
        raise ParameterError(f"ids has {len(columns[0])} rows, weights has {len(columns[1])}")
    return columns


def _level_column(params: SketchParams, levels: npt.ArrayLike, rows: int) -> npt.NDArray[np.int8]:
    column = np.asarray(levels)
    if column.dtype.kind not in "iu" and column.size:
        raise ParameterError(f"levels has dtype {column.dtype}; expected integers")
    if column.shape not in ((), (rows,)):
        raise ParameterError(f"levels has shape {column.shape}, ids has {rows} rows")
    column = np.broadcast_to(column, (rows,))
    if column.size and (column.min() < 0 or column.max() > params.levels):
        raise ParameterError(f"levels must be 0 to {params.levels}")
    column = np.ascontiguousarray(column, dtype=np.int8).view()
    column.setflags(write=False)
    return column


def top_levels(
    params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike, *, copy: int = 0
) -> npt.NDArray[np.int8]:
    """Return the largest level at which any integer of each observation is selected.

    Args:
        params: fixes the hash.
        ids: int64[n], as given to the sketch (not mixed), in ``[0, 2^id_bits)``.
        weights: int64[n], 1..max_weight.

    Returns:
        int8[n], 0..M. O(log max_weight) each.

    Raises:
        ParameterError: a column with the wrong type, length or range.
    """
    id_column, weight_column = _columns(params, ids, weights)
    levels = np.empty(len(id_column), dtype=np.int8)
    _native.top_levels(plan(params, copy).native, id_column, weight_column, levels)
    return levels


def minimum_hashes(
    params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike, *, copy: int = 0
) -> Int64Array:
    """Return the smallest hash value among each observation's integers: int64[n]. See
    :func:`top_levels`.
    """
    id_column, weight_column = _columns(params, ids, weights)
    minima = np.empty(len(id_column), dtype=np.int64)
    _native.minimum_hashes(plan(params, copy).native, id_column, weight_column, minima)
    return minima


def range_samples(
    params: SketchParams,
    ids: npt.ArrayLike,
    weights: npt.ArrayLike,
    levels: npt.ArrayLike,
    *,
    copy: int = 0,
) -> Int64Array:
    """Return how many of each observation's integers its level selects.

    Args:
        params: fixes the hash.
        ids: int64[n], in ``[0, 2^id_bits)``.
        weights: int64[n], 1..max_weight.
        levels: int8[n] or one level, 0..M.

    Returns:
        int64[n], 0..weight. O(log max_weight) each.

    Raises:
        ParameterError: a column with the wrong type, length or range.
    """
    id_column, weight_column = _columns(params, ids, weights)
    level_column = _level_column(params, levels, len(id_column))
    hits = np.empty(len(id_column), dtype=np.int64)
    hash_ = plan(params, copy).native
    _native.range_samples(hash_, id_column, weight_column, level_column, hits)
    return hits


def min_hits(
    params: SketchParams,
    ids: npt.ArrayLike,
    weights: npt.ArrayLike,
    levels: npt.ArrayLike,
    *,
    copy: int = 0,
) -> Int64Array:
    """Return the position of each observation's first integer that its level selects.

    Returns:
        int64[n]: the least ``j`` with ``h(max_weight * id + j) < floor(p / 2^level)``, or -1
        (``Delta`` of the paper, section 3.3). Arguments and errors as :func:`range_samples`.
    """
    id_column, weight_column = _columns(params, ids, weights)
    level_column = _level_column(params, levels, len(id_column))
    positions = np.empty(len(id_column), dtype=np.int64)
    hash_ = plan(params, copy).native
    _native.min_hits(hash_, id_column, weight_column, level_column, positions)
    return positions


def min_hits_all_levels(
    params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike, *, copy: int = 0
) -> Int64Array:
    """Return the position of each observation's first selected integer, at every level.

    One walk along the record minima of the hash serves all levels.

    Returns:
        int64[n, M + 1]: column ``i`` is :func:`min_hits` at level ``i``, -1 if no integer is
        selected. Arguments and errors as :func:`top_levels`. O(M + log max_weight) each.
    """
    id_column, weight_column = _columns(params, ids, weights)
    positions = np.empty((len(id_column), params.levels + 1), dtype=np.int64)
    _native.min_hits_all_levels(plan(params, copy).native, id_column, weight_column, positions)
    return positions


def expiry_times(
    params: SketchParams,
    decay: IntegralDecay,
    ids: npt.ArrayLike,
    weights: npt.ArrayLike,
    times: npt.ArrayLike,
    levels: npt.ArrayLike,
    *,
    copy: int = 0,
) -> Int64Array:
    """Return the earliest time at which a level selects none of each observation's integers any
    more.

    At age ``x`` an observation represents the ``f(weight, x)`` first integers in its range, so it
    expires at the age ``min{x : f(weight, x) <= Delta}``, with Delta as :func:`min_hits` among the
    ``f(weight, 0)`` integers it begins with (section 3.3, Lemma 3.5).

    Args:
        params: fixes the hash.
        decay: the integral decay f.
        ids: int64[n], in ``[0, 2^id_bits)``.
        weights: int64[n], 1..max_weight.
        times: int64[n] or one timestamp, from -2^62 to 2^62.
        levels: int8[n] or one level, 0..M.

    Returns:
        int64[n]. The timestamp itself if no integer is selected in the first place, or if
        f(weight, 0) is 0. O(log max_weight) each, and a binary search over the decay's steps
        if it has no closed form.

    Raises:
        ParameterError: a column with the wrong type, length or range, or a decay that does not
            support max_weight, see :meth:`IntegralDecay.steps`.
    """
    id_column, weight_column = _columns(params, ids, weights)
    time_column = _time_column(times, len(id_column))
    level_column = _level_column(params, levels, len(id_column))
    whole = decay.steps(params.max_weight).at(weight_column, np.zeros_like(weight_column))
    first = min_hits(params, id_column, np.maximum(whole, 1), level_column, copy=copy)
    expires = (whole > 0) & (first >= 0)
    ages = np.zeros(len(id_column), dtype=np.int64)
    ages[expires] = decay.expiry_ages(weight_column[expires], first[expires], params.max_weight)
    return time_column + ages


def _time_column(times: npt.ArrayLike, rows: int) -> Int64Array:
    column = np.asarray(times)
    if column.dtype.kind not in "iu" and column.size:
        raise ParameterError(f"times has dtype {column.dtype}; expected integers")
    if column.shape not in ((), (rows,)):
        raise ParameterError(f"times has shape {column.shape}, ids has {rows} rows")
    limit = 1 << 62
    if column.size and (column.min() < -limit or column.max() > limit):
        raise ParameterError(f"times must be {-limit} to {limit}")
    return np.broadcast_to(column.astype(np.int64, copy=False), (rows,))


def range_sample(params: SketchParams, id: int, weight: int, level: int, *, copy: int = 0) -> int:
    """:func:`range_samples` for one observation."""
    return int(range_samples(params, [id], [weight], level, copy=copy)[0])


def min_hit(params: SketchParams, id: int, weight: int, level: int, *, copy: int = 0) -> int:
    """:func:`min_hits` for one observation."""
    return int(min_hits(params, [id], [weight], level, copy=copy)[0])


def expiry_time(
    params: SketchParams,
    decay: IntegralDecay,
    id: int,
    weight: int,
    time: int,
    level: int,
    *,
    copy: int = 0,
) -> int:
    """:func:`expiry_times` for one observation."""
    return int(expiry_times(params, decay, [id], [weight], [time], level, copy=copy)[0])
