"""What the kernels need of one hash function and one decay, computed once.

A first hit at position ``j`` of an observation of weight ``w`` expires at the first step ``s`` with
``f(w, s) <= j``. Where ``f(w, s) = floor(w g_s)``, that is ``g_s < (j + 1) / w``: one number, the
ratio, decides. Its leading bits, the exponent and some of the mantissa, select one of the
*guesses*: for the interval of ratios that share those bits, with upper end ``r``, the first step
with ``g_s <= r``. No ratio of the interval has an earlier answer. How far a later one can be is
known for all intervals, which fixes the number of comparisons that follow.

Ratios and ``g_s`` are rounded to float64. Both are fractions with denominators up to
``max_weight``. Different ones differ by ``1 / max_weight^2`` of their size or more; up to 2^25 that
is more than two roundings, so comparing the rounded numbers is exact. Above, a comparison of
integers follows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch import minhit
from decaysketch.core.params import SketchParams
from decaysketch.decay.integral import IntegralDecay, StepTable
from decaysketch.errors import ParameterError
from decaysketch.integral import _kernels
from decaysketch.minhit._kernels import REPEATABLE, STEP_FIELDS
from decaysketch.minhit._plan import down_steps

__all__ = ["IntegralPlan", "forget_plans", "integral_plan"]

Int64Array = npt.NDArray[np.int64]

_TOLD_APART = 1 << 25  # weights up to this: different fractions are different float64 numbers
_SHORT_UNROLLED = 3  # then every walk of 31 bits has at most 62 rows, see _walk_table
_MANTISSA_BITS = 52
_FIRST_BITS = 6  # of the mantissa, by which guesses are selected at least
_MOST_GUESSES = 1 << 16
_MANY_STEPS = 1 << 14  # from here on a plan takes megabytes


class IntegralPlan(NamedTuple):
    """Arguments of the kernels, in their order."""

    hash: tuple[int, Int64Array, int, int, int, int, Int64Array]
    ages: Int64Array
    decay: tuple[Int64Array, Int64Array, Int64Array, npt.NDArray[np.float64], Int64Array, int, int,
                 int, bool]  # fmt: skip


def integral_plan(params: SketchParams, decay: IntegralDecay) -> IntegralPlan:
    """The tables of the hash function of ``params`` and of a decay; those used last are kept, long
    ones few.

    Raises:
        ParameterError: the decay has too many steps at this ``max_weight``, or was made for
            another.
    """
    is_long = len(decay.steps(params.max_weight)) > _MANY_STEPS
    return (_long_plan if is_long else _short_plan)(params, decay)


def forget_plans() -> None:
    """Keep none of them."""
    _short_plan.cache_clear()
    _long_plan.cache_clear()


def _plan(params: SketchParams, decay: IntegralDecay) -> IntegralPlan:
    table = decay.steps(params.max_weight)
    if len(table) > 1 << _kernels.STEP_BITS:
        raise ParameterError(
            f"{decay!r} has {len(table)} steps at max_weight {params.max_weight}; expected at most "
            f"{1 << _kernels.STEP_BITS}"
        )
    p = minhit.plan(params)
    steps = p.steps if len(table) == 2 else _walk_table(p, params.max_weight)
    values = np.empty((0, 0), dtype=np.int64) if table.values is None else table.values
    return IntegralPlan(
        (p.id_bits, p.mix, p.start_multiplier, p.offset, p.prime, p.top, steps),
        table.ages,
        (table.numerators, table.denominators, values, *_guesses(table)),
    )


_short_plan = lru_cache(maxsize=64)(_plan)
_long_plan = lru_cache(maxsize=4)(_plan)


def _walk_table(plan: minhit.HashPlan, max_weight: int) -> Int64Array:
    """The table of down steps in a form that a mask can note.

    One row for each single step is best where these are few enough: then every bit is a record.
    Else rows stay multiples and groups, and long groups are one row. With short lists unrolled, the
    rows of a group of Euclid's algorithm are at most 1.75 for each bit by which the length of a
    step grows, hence below 62 for weights of 31 bits.
    """
    counts = [
        q // other if kind == REPEATABLE else length
        for kind, q, _, other, _, length in plan.steps.tolist()
    ]
    if sum(counts) <= _kernels.MASK_BITS:
        rows: list[tuple[int, ...]] = []
        for (kind, q, d, other, qe, _), count in zip(plan.steps.tolist(), counts, strict=True):
            if kind == REPEATABLE:
                rows += [(REPEATABLE, other, d // count, other, 0, 0)] * count
            else:
                lengths = [q + k * qe for k in range(1, count + 1)]
                rows += [
                    (REPEATABLE, length, d - k * other, length, 0, 0)
                    for k, length in enumerate(lengths, start=1)
                ]
        return np.array(rows, dtype=np.int64).reshape(-1, STEP_FIELDS)
    if len(plan.steps) <= _kernels.MASK_BITS:
        return plan.steps
    return down_steps(plan.prime, plan.multiplier, max_weight - 1, unrolled=_SHORT_UNROLLED)


def _guesses(
    table: StepTable,
) -> tuple[npt.NDArray[np.float64], Int64Array, int, int, int, bool]:
    """What finds a step by its ratio.

    Returns:
        (rounded ``g_s``, guesses, comparisons by halving, bits of a ratio to drop, what is left of
        the least ratio, whether integers must be compared).
    """
    if table.values is not None:
        return np.empty(0), np.empty(0, dtype=np.int64), 0, 0, 0, False
    rounded = table.numerators / table.denominators
    bits = _FIRST_BITS
    while True:
        shift = _MANTISSA_BITS - bits
        least, most = (
            int(np.float64(ratio).view(np.int64)) >> shift for ratio in (1 / table.max_weight, 1.0)
        )
        ends = (np.arange(least, most + 2, dtype=np.int64) << shift).view(np.float64)
        # Fractions fall, so search their negatives: the first g <= the upper end, and the first g
        # below the lower end, which is the last answer of an interval.
        guesses = np.searchsorted(-rounded, -ends[1:], side="left").astype(np.int64)
        answers = np.searchsorted(-rounded, -ends[:-1], side="right")
        # The kernel looks one step further at once; what is left is halved.
        halvings = max(0, int((answers - guesses).max()) - 1).bit_length()
        if not halvings or 2 * len(guesses) > _MOST_GUESSES:
            break
        bits += 1
    padded = np.concatenate([rounded, np.zeros(1 + (1 << halvings))])
    return padded, guesses, halvings, shift, least, table.max_weight > _TOLD_APART
