"""Tables that the kernels need for a hash function, computed once.

The multiplier ``a`` and the prime ``p`` of a sketch are fixed, so Euclid's algorithm on ``(p, a)``
is too. This module stores its course, in plain integers: the list of steps that can reach a new
minimum of ``(u + j a) mod p``, and the chain for the floor sum. The kernels then run the same short
list for every observation (their derivations (3) and (4)).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.params import SketchParams
from decaysketch.errors import ParameterError
from decaysketch.minhit._native import Hash

__all__ = ["HashPlan", "down_steps", "plan", "plan_for"]

Int64Array = npt.NDArray[np.int64]

# Kinds of row in the table of steps, and how many numbers a row has; see hash.h.
REPEATABLE = 0  # (kind, q, d, base q, 0, 0): take (q, d) if possible
GROUP = 1  # (kind, q0, d0, e, qe, length): take the first possible (q0 + k qe, d0 - k e)
STEP_FIELDS = 6

_LONGEST_UNROLLED = 8  # steps of a group that are listed; a longer group is one division


class HashPlan(NamedTuple):
    """Tables that the kernels need for one hash function, computed once."""

    id_bits: int
    mix: Int64Array
    multiplier: int  # a
    start_multiplier: int  # a1 = a max_weight mod p
    offset: int  # b
    prime: int  # p
    top: int  # M
    steps: Int64Array  # down steps, see derivation (3) of the kernels
    chain: Int64Array  # floor-sum chain, derivation (4)
    native: Hash  # all of it, as the native kernels take it


@lru_cache(maxsize=512)
def plan(params: SketchParams, copy: int = 0) -> HashPlan:
    """Return the tables for one of the samples that ``params`` fix.

    The sample by count has the first hash function, but sees the first integer of an observation
    alone: its walk has no steps. So an observation has the level that weight 1 would give it.

    Raises:
        ParameterError: ``copy`` is not one of 0..samples - 1.
    """
    if not 0 <= copy < params.samples:
        raise ParameterError(f"copy is {copy!r}; expected 0 to {params.samples - 1}")
    by_count = copy >= params.copies
    return plan_for(
        prime=params.prime,
        multiplier=params.multipliers[0 if by_count else copy],
        offset=params.offsets[0 if by_count else copy],
        max_weight=params.max_weight,
        id_bits=params.id_bits,
        mix=params.mix_constants,
        top=params.levels,
        longest=0 if by_count else None,
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
    longest: int | None = None,
) -> HashPlan:
    """Return the tables for a hash function with these numbers.

    ``longest`` is the last position that the walk may reach. None: ``max_weight - 1``.
    """
    start_multiplier = multiplier * max_weight % prime
    steps = down_steps(prime, multiplier, max_weight - 1 if longest is None else longest)
    chain = _floor_sum_chain(prime, multiplier)
    native = Hash(
        id_bits=id_bits, mix=mix.tolist(), multiplier=multiplier,
        start_multiplier=start_multiplier, offset=offset, prime=prime, top=top, steps=steps,
        chain=chain.tolist(),
    )  # fmt: skip
    return HashPlan(
        id_bits, mix, multiplier, start_multiplier, offset, prime, top, steps, chain, native
    )


def down_steps(p: int, a: int, longest: int) -> Int64Array:
    """Return every step that can reach a new minimum within ``longest`` positions, ordered by
    length.

    Follows the one-sided best approximations of ``a / p``: ``(d, qd)`` is the smallest down step so
    far, ``(e, qe)`` the smallest up step (``e = qe a mod p``). A group with more than 8
    steps, not counting the last, is listed as one row.
    """
    rows: list[tuple[int, ...]] = []
    d, qd, e, qe = p, 0, a % p, 1
    while e > 0 and qd + qe <= longest:
        length = min((d - 1) // e, (longest - qd) // qe)
        if length:
            # All steps of a group except the last are repeated at most once.
            if length - 1 <= _LONGEST_UNROLLED:
                for k in range(1, length):
                    q = qd + k * qe
                    rows.append((REPEATABLE, q, d - k * e, q, 0, 0))
            else:
                rows.append((GROUP, qd, d, e, qe, length - 1))
            value_before = d - (length - 1) * e
            d, qd = d - length * e, qd + length * qe
            repeats = min((value_before - 1) // d, longest // qd)
            rows += [
                (REPEATABLE, qd << power, d << power, qd, 0, 0)
                for power in reversed(range(repeats.bit_length()))
            ]
        if d == 1:
            break
        if e > d:
            m = (e - 1) // d
            e, qe = e - m * d, qe + m * qd
        elif not length:
            break
    return np.array(rows, dtype=np.int64).reshape(-1, STEP_FIELDS)


def _floor_sum_chain(p: int, a: int) -> Int64Array:
    """Rows (modulus, multiplier, modulus // multiplier) from Euclid's algorithm on (p, a)."""
    rows = []
    modulus, multiplier = p, a % p
    while multiplier:
        rows.append((modulus, multiplier, modulus // multiplier))
        modulus, multiplier = multiplier, modulus % multiplier
    if not rows:
        rows.append((p, 0, 0))
    return np.array(rows, dtype=np.int64)
