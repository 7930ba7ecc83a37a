"""Calls of the range hash, under hash functions as builders draw them, and awkward ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from native.recording import Call, column, hash_of, room

from decaysketch.core.params import SketchParams
from decaysketch.minhit import HashPlan, _native, plan, plan_for


def plans(rng: random.Random) -> Iterator[tuple[HashPlan, int, int]]:
    """Hash functions with the bounds of weights and ids."""
    for max_weight, id_bits in [(1, 56), (999, 46), (1_000, 32), (2**20, 36), (2**31, 25)]:
        params = SketchParams(
            max_weight=max_weight, id_bits=id_bits, capacity=100, seed=rng.randrange(1 << 32)
        )
        yield plan(params), max_weight, id_bits
    prime = 2**61 - 1  # just too large
    while not all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11)) or prime >> 61:
        prime -= 2
    for multiplier in (0, 1, prime - 1, prime // 3, prime // 1_000 + 1, rng.randrange(prime)):
        awkward = plan_for(
            prime=prime, multiplier=multiplier, offset=rng.randrange(prime), max_weight=999,
            id_bits=46, mix=plan(SketchParams(999, 46, capacity=1)).mix[:0], top=50,
        )  # fmt: skip
        yield awkward, 999, 46


def calls() -> Iterator[Call]:
    rng = random.Random(1)
    for of, max_weight, id_bits in plans(rng):
        n = rng.choice([1, 31, 40])
        ids = column(
            rng.choice([0, (1 << id_bits) - 1, rng.randrange(1 << id_bits)]) for _ in range(n)
        )
        weights = column(rng.choice([1, max_weight, rng.randint(1, max_weight)]) for _ in range(n))
        levels = column(rng.randint(0, of.top) for _ in range(n)).astype(np.int8)
        given = [hash_of(of), ids, weights]
        tops, minima, hits, positions = room(n, np.int8), room(n), room(n), room(n)
        _native.top_levels(of.native, ids, weights, tops)
        _native.minimum_hashes(of.native, ids, weights, minima)
        _native.range_samples(of.native, ids, weights, levels, hits)
        _native.min_hits(of.native, ids, weights, levels, positions)
        yield Call("top_levels", given, [tops])
        yield Call("minimum_hashes", given, [minima])
        yield Call("range_samples", [*given, levels], [hits])
        yield Call("min_hits", [*given, levels], [positions])
        few = np.zeros((len(ids[:5]), of.top + 1), np.int64)
        _native.min_hits_all_levels(of.native, ids[:5], weights[:5], few)
        yield Call("min_hits_all_levels", [given[0], ids[:5], weights[:5]], [few])
