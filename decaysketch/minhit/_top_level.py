"""How many observations the coarsest level can have, which bytes are held against."""

from __future__ import annotations

from decaysketch.core.params import SketchParams

__all__ = ["observations_of_top_level"]


def observations_of_top_level(params: SketchParams, copy: int, weights: int) -> int:
    """How many (id, weight) can reach level M at all, with so many weights of an id at most.

    The hash values below ``floor(p / 2^M)``, at most 20 of them, are each taken by one integer
    ``max_weight * id + j``; it belongs to the observations of that id with a weight above ``j``.
    """
    inverse = pow(params.multipliers[copy], -1, params.prime)
    first: dict[int, int] = {}  # (mixed) id -> its least j
    for value in range(params.prime >> params.levels):
        x = (value - params.offsets[copy]) * inverse % params.prime
        if x < params.universe:
            id_, j = divmod(x, params.max_weight)
            first[id_] = min(j, first.get(id_, j))
    return sum(min(params.max_weight - j, weights) for j in first.values())
