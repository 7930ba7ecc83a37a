"""Streams and decays that make integral sketches work hard, and what they must hold."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import streams
from hypothesis import strategies as st
from integral import definition

import decaysketch as ds
from decaysketch.core import hashing, observations
from decaysketch.decay import integral
from decaysketch.minhit import reference

Rows = streams.Rows


@st.composite
def params(draw: Any) -> ds.SketchParams:
    max_weight = draw(st.sampled_from([1, 2, 5, 60, 999, 1 << 20, 1 << 31]))
    return ds.SketchParams(
        max_weight=max_weight,
        id_bits=draw(st.sampled_from([3, 6, 10, 20])),
        capacity=draw(st.sampled_from([1, 2, 3, 10, 40])),
        seed=draw(st.integers(0, (1 << 64) - 1)),
        value_type=draw(st.sampled_from(["int64", "float64"])),
        id_mix=draw(st.sampled_from(["keyed", "none"])),
    )


@st.composite
def decays(draw: Any, max_weight: int) -> integral.IntegralDecay:
    kinds = ["window", "exponential", "polynomial", "halving", "fractions"]
    kind = draw(st.sampled_from(kinds + ["table"] * (max_weight <= 60)))
    if kind == "window":
        return integral.window(draw(st.sampled_from([0, 5, 300, (1 << 62) - 2])))
    if kind == "exponential":
        return integral.exponential(rate=draw(st.sampled_from([0.02, 0.5, 3])))
    if kind == "polynomial":
        return integral.polynomial(draw(st.sampled_from([1, 2])) if max_weight < 1000 else 4)
    if kind == "halving":
        return integral.halving(draw(st.sampled_from([1, 7, 1 << 40])))
    if kind == "fractions":
        return integral.fractions([1, (3, 4), (3, 4), (1, 2), (1, 999)])
    shape = (max_weight, draw(st.integers(1, 6)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    values = np.zeros((max_weight + 1, shape[1] + 1), np.int64)
    values[1:, :-1] = rng.integers(0, max_weight + 1, shape)
    values[1:, 0] = np.maximum(values[1:, 0], 1)
    values[:, :-1] = np.maximum.accumulate(values[:, :-1], axis=0)  # rises with the weight
    values[:, :-1] = np.minimum.accumulate(values[:, :-1], axis=1)  # falls with the age
    return integral.table(np.maximum.accumulate(values, axis=0))


@st.composite
def cases(draw: Any) -> tuple[ds.SketchParams, integral.IntegralDecay, Rows, list[int]]:
    """Parameters, a decay, observations, and times that the clock is told."""
    of = draw(params())
    rows = draw(streams.rows(of))
    times = st.sampled_from([row[2] for row in rows] or [0])
    told = draw(st.lists(st.one_of(times, st.integers(-400, 400)), max_size=4))
    return of, draw(decays(of.max_weight)), rows, told


def fed(
    of: ds.SketchParams,
    decay: integral.IntegralDecay,
    rows: Rows,
    told: list[int],
    sizes: list[int] | None = None,
) -> ds.IntegralDecaySketch:
    """A sketch fed in batches of the given sizes, cyclically, and told the times in between."""
    sketch = ds.IntegralDecaySketch(of, decay)
    start = turn = 0
    while start < len(rows):
        size = sizes[turn % len(sizes)] if sizes else len(rows)
        now = told[turn] if turn < len(told) else None
        sketch.update(*streams.columns(of, rows[start : start + size]), now=now)
        start, turn = start + size, turn + 1
    for now in told[turn:]:
        sketch.advance(now)
    return sketch


def expected(
    of: ds.SketchParams, decay: integral.IntegralDecay, rows: Rows, told: list[int]
) -> definition.State:
    """The state by definition."""
    batch = observations.prepare(of, *streams.columns(of, rows))
    steps = decay.steps(of.max_weight)
    mixed = dict(zip(batch.ids.tolist(), hashing.mix_ids(of, batch.ids).tolist(), strict=True))
    prime, a, b = of.prime, of.multipliers[0], of.offsets[0]

    ages = steps.ages.tolist()

    def f(weight: int, age: int) -> int:
        step = bisect_right(ages, age) - 1
        if steps.values is not None:
            return int(steps.values[weight, step])
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
