"""Tables that the kernels need for one decay, computed once.

A first hit at position ``j`` of an observation with weight ``w`` expires at the first step ``s``
with ``f(w, s) <= j``. Tables of *guesses* find it.

If ``f(w, s) = floor(w g_s)``, the condition is ``g_s < (j + 1) / w``: one number, the ratio,
decides. Its leading bits, the exponent and some mantissa bits, select a guess: for the interval of
ratios that share those bits, with upper bound ``r``, the first step with ``g_s <= r``. No ratio in
the interval has an earlier step. The maximum distance to a later one is known for all intervals,
and fixes the number of comparisons that follow.

Ratios and ``g_s`` are rounded to float64. Both are fractions with denominators up to
``max_weight``. Different ones differ by ``1 / max_weight^2`` of their size or more. Up to 2^25 that
is more than two roundings, so comparing the rounded numbers is exact. Above, an integer comparison
follows.

If ``f`` is a table of values, the guess for a weight and ``j >> shift`` is the step for the last
position that shares them. With the shift 0 that is the result. Otherwise the result lies between
this guess and the one before. If ``f`` has losses and caps, there is no guess: halving the steps
finds it.
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
from decaysketch.integral import _native
from decaysketch.minhit._native import Hash

__all__ = ["IntegralPlan", "forget_plans", "integral_plan"]

Int64Array = npt.NDArray[np.int64]

_TOLD_APART = 1 << 25  # weights up to this: different fractions are different float64 numbers
_MANTISSA_BITS = 52
_FIRST_BITS = 6  # of the mantissa, by which guesses are selected at least
_MOST_GUESSES = 1 << 16
_MOST_GUESSES_OF_VALUES = 1 << 20  # or as many as there are values
_MANY_STEPS = 1 << 14  # from here on a plan takes megabytes


class IntegralPlan(NamedTuple):
    """A hash function and a decay, in the form for the kernels."""

    hash: Hash
    decay: _native.Decay


def integral_plan(params: SketchParams, decay: IntegralDecay) -> IntegralPlan:
    """Return the hash function of ``params`` and a decay's tables. The last used plans are cached,
    only a few of the long ones.

    Raises:
        ParameterError: the decay has too many steps at this ``max_weight``, or was made for
            another.
    """
    is_long = len(decay.steps(params.max_weight)) > _MANY_STEPS
    return (_long_plan if is_long else _short_plan)(params, decay)


def forget_plans() -> None:
    """Clear the cache."""
    _short_plan.cache_clear()
    _long_plan.cache_clear()


def _plan(params: SketchParams, decay: IntegralDecay) -> IntegralPlan:
    table = decay.steps(params.max_weight)
    if len(table) > 1 << _native.STEP_BITS:
        raise ParameterError(
            f"{decay!r} has {len(table)} steps at max_weight {params.max_weight}; expected at most "
            f"{1 << _native.STEP_BITS}"
        )
    return IntegralPlan(
        minhit.plan(params).native,
        _native.Decay(
            ages=table.ages, numerators=table.numerators, denominators=table.denominators,
            values=table.values, losses=table.losses, caps=table.caps, **_guesses(table)._asdict(),
        ),
    )  # fmt: skip


_short_plan = lru_cache(maxsize=64)(_plan)
_long_plan = lru_cache(maxsize=4)(_plan)


class _Guesses(NamedTuple):
    """Tables that find a step; see the module docstring and ``events.h``."""

    guesses: npt.NDArray[np.int32]
    shift: int  # bits of a ratio or position that are dropped
    rounded: npt.NDArray[np.float64] = np.empty(0)  # g_s
    first: int = 0  # the least ratio, shifted
    halvings: int = 0  # comparisons by halving
    wide: bool = False  # whether integers must be compared
    offsets: Int64Array = np.empty(0, dtype=np.int64)  # where the guesses of each weight begin


def _guesses(table: StepTable) -> _Guesses:
    if table.losses is not None:
        return _Guesses(np.zeros(1, np.int32), 0)
    return (_guesses_of_ratios if table.values is None else _guesses_of_positions)(table)


def _guesses_of_ratios(table: StepTable) -> _Guesses:
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
        guesses = np.searchsorted(-rounded, -ends[1:], side="left").astype(np.int32)
        answers = np.searchsorted(-rounded, -ends[:-1], side="right")
        # The kernel checks one more step at once, then halves the rest.
        halvings = max(0, int((answers - guesses).max()) - 1).bit_length()
        if not halvings or 2 * len(guesses) > _MOST_GUESSES:
            break
        bits += 1
    padded = np.concatenate([rounded, np.zeros(1 + (1 << halvings))])
    return _Guesses(
        guesses, shift, padded, first=least, halvings=halvings,
        wide=table.max_weight > _TOLD_APART,
    )  # fmt: skip


def _guesses_of_positions(table: StepTable) -> _Guesses:
    assert table.values is not None
    initial = np.maximum(table.values[:, 0], 1)  # positions; one entry where there is none
    most = max(_MOST_GUESSES_OF_VALUES, table.values.size)
    shift = 0
    while int((((initial - 1) >> shift) + 1).sum()) > most:
        shift += 1
    parts = ((initial - 1) >> shift) + 1
    offsets = np.cumsum(parts) - parts
    weights = np.repeat(np.arange(len(parts)), parts)
    last = (np.arange(len(weights)) - offsets[weights] + 1 << shift) - 1
    # Values of a weight fall from at most the weight to 0: one rising list holds those of all.
    spread = np.arange(len(parts)) * len(parts)
    rising = (spread[:, None] - table.values).ravel()
    wanted = spread[weights] - np.minimum(last, initial[weights] - 1)
    steps = np.searchsorted(rising, wanted) - weights * len(table)
    return _Guesses(steps.astype(np.int32), shift, offsets=offsets)
