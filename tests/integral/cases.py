"""Integral sketches of rows, and what they must hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from integral import definition

import decaysketch as ds
from decaysketch.core import hashing, labels, observations
from decaysketch.decay import integral
from decaysketch.families import IntegralRecipe
from decaysketch.minhit import reference
from quality.examples import EXAMPLES, Row, columns, feed

Rows = Sequence[Row]


def fed(
    of: ds.SketchParams,
    decay: integral.IntegralDecay,
    rows: Rows,
    told: Sequence[int] = (),
    sizes: list[int] | None = None,
) -> ds.IntegralDecaySketch:
    """A sketch fed in batches of the given sizes, cyclically, and told the times in between."""
    recipe = IntegralRecipe(of, decay)
    return feed(recipe.empty(), EXAMPLES["integral"], recipe, rows, sizes, told)


def expected(
    of: ds.SketchParams, decay: integral.IntegralDecay, rows: Rows, told: Sequence[int]
) -> definition.State:
    """The state by definition."""
    (values, *others), _ = columns(EXAMPLES["integral"], IntegralRecipe(of, decay), rows)
    if of.value_type == "label":
        values = labels.codes_of(values, of.id_key)
    batch = observations.prepare(of, values, *others)
    steps = decay.steps(of.max_weight)
    mixed = dict(zip(batch.ids.tolist(), hashing.mix_ids(of, batch.ids).tolist(), strict=True))
    prime, a, b = of.prime, of.multipliers[0], of.offsets[0]

    ages = steps.ages.tolist()

    def f(weight: int, age: int) -> int:
        step = bisect_right(ages, age) - 1
        if steps.values is not None:
            return int(steps.values[weight, step])
        if steps.losses is not None and steps.caps is not None:
            return max(min(weight - int(steps.losses[step]), int(steps.caps[step])), 0)
        return weight * int(steps.numerators[step]) // int(steps.denominators[step])

    def first_hits(id_: int, length: int) -> list[int]:
        if length > 2000:  # too many to look at
            u = reference.hash_start(prime, a, b, of.max_weight, mixed[id_])
            limits = (reference.level_limit(prime, level) for level in range(of.levels + 1))
            return [reference.min_hit(prime, a, u, length - 1, limit) for limit in limits]
        hits = [-1] * (of.levels + 1)
        for j in range(length):
            value = (a * (of.max_weight * mixed[id_] + j) + b) % prime
            for level in range(of.levels + 1):
                if value >= prime >> level:
                    break
                if hits[level] < 0:
                    hits[level] = j
        return hits

    return definition.state(
        zip(*(column.tolist() for column in batch), strict=True), f, first_hits, of.capacity,
        of.levels, max(told, default=definition.NO_CLOCK),
    )  # fmt: skip
