"""Hits of an observation's range of integers under the pairwise hash: where, and how many.

An observation of weight ``w`` stands for ``w`` integers; level ``i`` selects those whose hash is
below ``floor(p / 2^i)``. Three questions are answered in ``O(log w)`` arithmetic steps each,
without looking at the integers one by one:

* :func:`top_levels`: the largest level at which any integer is selected;
* :func:`range_samples`: how many are selected at a level (RangeSample of Pavan and Tirthapura);
* :func:`min_hits`: which is the first one selected at a level (MinHit, Algorithm 5 of Cormode,
  Tirthapura and Xu).

The functions here check their input and run vectorised kernels over tables that are fixed for a
hash function; ``reference.py`` holds the paper's procedures in plain integers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ParameterError
from decaysketch.minhit import _kernels
from decaysketch.params import SketchParams

__all__ = ["HashPlan", "min_hits", "minimum_hashes", "plan", "range_samples", "top_levels"]

Int64Array = npt.NDArray[np.int64]

_LONGEST_UNROLLED = 8  # steps of a group that are listed; a longer group is one division


class HashPlan(NamedTuple):
    """What the kernels need of one hash function, computed once."""

    id_bits: int
    mix: Int64Array
    multiplier: int  # a
    start_multiplier: int  # a1 = a max_weight mod p
    offset: int  # b
    prime: int  # p
    top: int  # M
    steps: Int64Array  # down steps, see derivation (3) of the kernels
    chain: Int64Array  # floor-sum chain, derivation (4)


@lru_cache(maxsize=64)
def plan(params: SketchParams) -> HashPlan:
    """The tables of the hash function that ``params`` fix."""
    return plan_for(
        prime=params.prime,
        multiplier=params.multipliers[0],
        offset=params.offsets[0],
        max_weight=params.max_weight,
        id_bits=params.id_bits,
        mix=params.mix_constants,
        top=params.levels,
    )


def plan_for(
    *,
    prime: int,
    multiplier: int,
    offset: int,
    max_weight: int,
    id_bits: int,
    mix: Int64Array,
    top: int,
) -> HashPlan:
    """Tables for a hash function that is given by its numbers."""
    return HashPlan(
        id_bits=id_bits,
        mix=mix,
        multiplier=multiplier,
        start_multiplier=multiplier * max_weight % prime,
        offset=offset,
        prime=prime,
        top=top,
        steps=_down_steps(prime, multiplier, max_weight - 1),
        chain=_floor_sum_chain(prime, multiplier),
    )


def _down_steps(p: int, a: int, longest: int) -> Int64Array:
    """Every step that can reach a new minimum within ``longest`` positions, in order of length.

    Follows the one-sided best approximations of ``a / p``: ``(d, qd)`` is the smallest down step
    so far, ``(e, qe)`` the smallest up step (``e = qe a mod p``).
    """
    rows: list[tuple[int, ...]] = []
    d, qd, e, qe = p, 0, a % p, 1
    while e > 0 and qd + qe <= longest:
        length = min((d - 1) // e, (longest - qd) // qe)
        if length:
            # All steps of a group but the last are taken at most once.
            if length - 1 <= _LONGEST_UNROLLED:
                for k in range(1, length):
                    q = qd + k * qe
                    rows.append((_kernels.REPEATABLE, q, d - k * e, q, 0, 0))
            else:
                rows.append((_kernels.GROUP, qd, d, e, qe, length - 1))
            value_before = d - (length - 1) * e
            d, qd = d - length * e, qd + length * qe
            repeats = min((value_before - 1) // d, longest // qd)
            rows += [
                (_kernels.REPEATABLE, qd << power, d << power, qd, 0, 0)
                for power in reversed(range(repeats.bit_length()))
            ]
        if d == 1:
            break
        if e > d:
            m = (e - 1) // d
            e, qe = e - m * d, qe + m * qd
        elif not length:
            break
    return np.array(rows, dtype=np.int64).reshape(-1, _kernels.STEP_FIELDS)


def _floor_sum_chain(p: int, a: int) -> Int64Array:
    """Rows (modulus, multiplier, modulus // multiplier) of Euclid's algorithm on (p, a)."""
    rows = []
    modulus, multiplier = p, a % p
    while multiplier:
        rows.append((modulus, multiplier, modulus // multiplier))
        modulus, multiplier = multiplier, modulus % multiplier
    if not rows:
        rows.append((p, 0, 0))
    return np.array(rows, dtype=np.int64)


# ------------------------------------------------------------------------------- public functions


def _columns(params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike) -> list[Int64Array]:
    columns = []
    for name, given, low, high in (
        ("ids", ids, 0, (1 << params.id_bits) - 1),
        ("weights", weights, 1, params.max_weight),
    ):
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
    params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike
) -> npt.NDArray[np.int8]:
    """Largest level at which any integer of each observation is selected.

    Args:
        params: fixes the hash.
        ids: int64[n], as given to the sketch (not mixed), in ``[0, 2^id_bits)``.
        weights: int64[n], 1..max_weight.

    Returns:
        int8[n], 0..M. O(log max_weight) each.

    Raises:
        ParameterError: a column of the wrong type, length or range.
    """
    p = plan(params)
    id_column, weight_column = _columns(params, ids, weights)
    levels = np.empty(len(id_column), dtype=np.int8)
    _kernels.top_levels(
        id_column, weight_column, p.id_bits, p.mix, p.start_multiplier, p.offset, p.prime, p.top,
        p.steps, levels,
    )  # fmt: skip
    return levels


def minimum_hashes(params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike) -> Int64Array:
    """Least hash value among the integers of each observation; int64[n]. See :func:`top_levels`."""
    p = plan(params)
    id_column, weight_column = _columns(params, ids, weights)
    minima = np.empty(len(id_column), dtype=np.int64)
    _kernels.minimum_hashes(
        id_column, weight_column, p.id_bits, p.mix, p.start_multiplier, p.offset, p.prime, p.steps,
        minima,
    )  # fmt: skip
    return minima


def range_samples(
    params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike, levels: npt.ArrayLike
) -> Int64Array:
    """Number of integers of each observation that are selected at the level beside it.

    Args:
        params: fixes the hash.
        ids: int64[n], in ``[0, 2^id_bits)``.
        weights: int64[n], 1..max_weight.
        levels: int8[n] or one level, 0..M.

    Returns:
        int64[n], 0..weight. O(log max_weight) each.

    Raises:
        ParameterError: a column of the wrong type, length or range.
    """
    p = plan(params)
    id_column, weight_column = _columns(params, ids, weights)
    level_column = _level_column(params, levels, len(id_column))
    hits = np.empty(len(id_column), dtype=np.int64)
    _kernels.range_samples(
        id_column, weight_column, level_column, p.id_bits, p.mix, p.start_multiplier, p.offset,
        p.prime, p.chain, hits,
    )  # fmt: skip
    return hits


def min_hits(
    params: SketchParams, ids: npt.ArrayLike, weights: npt.ArrayLike, levels: npt.ArrayLike
) -> Int64Array:
    """Position of the first integer of each observation selected at the level beside it.

    Returns:
        int64[n]: the least ``j`` with ``h(max_weight * id + j) < floor(p / 2^level)``, or -1
        (``Delta`` of the paper, section 3.3). Arguments and errors as :func:`range_samples`.
    """
    p = plan(params)
    id_column, weight_column = _columns(params, ids, weights)
    level_column = _level_column(params, levels, len(id_column))
    positions = np.empty(len(id_column), dtype=np.int64)
    _kernels.min_hits(
        id_column, weight_column, level_column, p.id_bits, p.mix, p.multiplier, p.start_multiplier,
        p.offset, p.prime, positions,
    )  # fmt: skip
    return positions
