"""The maximum number of observations at the coarsest level, for checking bytes."""

from __future__ import annotations

from decaysketch.core.params import SketchParams

__all__ = ["observations_of_top_level"]


def observations_of_top_level(params: SketchParams, copy: int, weights: int) -> int:
    """How many (id, weight) can reach level M at all, with a maximum number of weights per id.

    The hash values below ``floor(p / 2^M)``, at most 20, each belong to one integer
    ``max_weight * id + j``. It belongs to that id's observations with a weight above ``j``.
    The sample by count sees ``j = 0`` alone.
    """
    by_count = copy >= params.copies
    copy = 0 if by_count else copy
    inverse = pow(params.multipliers[copy], -1, params.prime)
    first: dict[int, int] = {}  # (mixed) id -> its least j
    for value in range(params.prime >> params.levels):
        x = (value - params.offsets[copy]) * inverse % params.prime
        if x < params.universe:
            id_, j = divmod(x, params.max_weight)
            if j == 0 or not by_count:
                first[id_] = min(j, first.get(id_, j))
    return sum(min(params.max_weight - j, weights) for j in first.values())
