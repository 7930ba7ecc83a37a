"""The compiled kernels against the plain-Python reference, at full size.

More than 10^5 random observations under hash functions chosen to be awkward: moduli just
below 2^61, the multipliers 0, 1, p - 1, small ones and those near p / k (long groups and many
repeats in the Euclidean chain), weights to 2^31 and ids to 2^56. Values are compared for equality.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from sympy import nextprime, prevprime

from decaysketch import minhit
from decaysketch.core import hashing
from decaysketch.core.params import SketchParams
from decaysketch.errors import ParameterError
from decaysketch.minhit import HashPlan, _native, reference
from decaysketch.minhit._plan import GROUP, REPEATABLE

Int64Array = npt.NDArray[np.int64]

NO_MIX = np.empty(0, dtype=np.int64)
ROWS = 280  # for each hash function
BLOCK = 32  # rows that kernels look at together, at the most
# Where kernels take another way: see hash.h and minhit.c.
NARROW_ID_BITS = 50
EXACT_DIVISION = 1 << 49
LARGEST_PRIME = prevprime(2**61)

SHAPES = [  # (max_weight, id_bits): the universe is max_weight * 2^id_bits < 2^56.6
    (1, 56),
    (1, 51),
    (1, 50),
    (2, 55),
    (7, 53),
    (999, 46),
    (1000, 40),
    (2**16, 40),
    (2**20, 36),
    (2**31 - 1, 25),
    (2**31, 25),
    (2**31, 0),
    (3, 1),
]


class Case(NamedTuple):
    plan: HashPlan
    max_weight: int
    ids: Int64Array
    weights: Int64Array


def moduli(rng: random.Random, universe: int) -> Iterator[int]:
    """The largest prime the kernels allow, the least of this universe, and one as builders draw."""
    yield LARGEST_PRIME
    yield nextprime(10 * universe)
    yield nextprime(rng.randrange(10 * universe, 19 * universe + 1))


def multipliers(rng: random.Random, p: int) -> list[int]:
    """Edges of the range, edges of the Euclidean chain, and the ordinary."""
    edges = [0, 1, p - 1, rng.randrange(2, 1000), p - rng.randrange(2, 1000), p // 2, p // 2 + 1]
    near = p // rng.randrange(3, 50)
    return [a % p for a in (*edges, near, near + 1, *(rng.randrange(p) for _ in range(3)))]


def observations(
    rng: random.Random, max_weight: int, id_bits: int, rows: int
) -> tuple[Int64Array, Int64Array]:
    """Ids and weights, both ends of either range among them, weights of every size."""
    ids = [0, 2**id_bits - 1, *(rng.randrange(2**id_bits) for _ in range(rows - 2))]
    weights = [max_weight, 1]
    while len(weights) < rows:
        size = 2 ** rng.randint(0, max_weight.bit_length())
        weights.append(min(max_weight, rng.randint(1, size)))
    rng.shuffle(weights)
    return np.array(ids, dtype=np.int64), np.array(weights, dtype=np.int64)


def cases(shape: tuple[int, int]) -> Iterator[Case]:
    max_weight, id_bits = shape
    universe = max_weight << id_bits
    rng = random.Random(f"kernels {shape}")
    for p in moduli(rng, universe):
        for a in multipliers(rng, p):
            plan = minhit.plan_for(
                prime=p,
                multiplier=a,
                offset=rng.choice([0, p - 1, rng.randrange(p)]),
                max_weight=max_weight,
                id_bits=id_bits,
                mix=NO_MIX,
                top=(universe - 1).bit_length(),
            )
            yield Case(plan, max_weight, *observations(rng, max_weight, id_bits, ROWS))


def run(case: Case, levels: npt.NDArray[np.int8] | None = None) -> dict[str, list[Any]]:
    """Every kernel on one case; those that ask about a level only where levels are given."""
    plan, ids, weights = case.plan, case.ids, case.weights
    out = np.empty(len(ids), dtype=np.int64)
    results = {}
    if levels is None:
        _native.minimum_hashes(plan.native, ids, weights, out)
        results["minimum"] = out.tolist()
        tops = np.empty(len(ids), dtype=np.int8)
        _native.top_levels(plan.native, ids, weights, tops)
        results["top"] = tops.tolist()
        every = np.empty((len(ids), plan.top + 1), dtype=np.int64)
        _native.min_hits_all_levels(plan.native, ids, weights, every)
        results["all"] = every.tolist()
        return results
    _native.range_samples(plan.native, ids, weights, levels, out)
    results["hits"] = out.tolist()
    _native.min_hits(plan.native, ids, weights, levels, out)
    results["first"] = out.tolist()
    return results


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_equal_the_reference(shape: tuple[int, int]) -> None:
    rng = random.Random(f"levels {shape}")
    for case in cases(shape):
        plan = case.plan
        p, a = plan.prime, plan.multiplier
        pairs = list(zip(case.ids.tolist(), case.weights.tolist(), strict=True))
        starts = [reference.hash_start(p, a, plan.offset, case.max_weight, id) for id, _ in pairs]
        minima = [
            reference.min_value(p, a, u, weight - 1)
            for u, (_, weight) in zip(starts, pairs, strict=True)
        ]
        # A single integer is its own minimum: top_level of it is the level of that hash value.
        tops = [reference.top_level(p, 0, minimum, 0, plan.top) for minimum in minima]
        where = f"p={p}, a={a}, b={plan.offset}, max_weight={case.max_weight}"
        every = [
            reference.all_levels(p, a, u, weight - 1, plan.top)
            for u, (_, weight) in zip(starts, pairs, strict=True)
        ]
        assert run(case) == {"minimum": minima, "top": tops, "all": every}, where

        levels = [  # the last level with a hit, the first without, and any
            rng.choice((top, min(top + 1, plan.top), rng.randint(0, plan.top))) for top in tops
        ]
        hits, first = [], []
        for u, (_, weight), level in zip(starts, pairs, levels, strict=True):
            limit = reference.level_limit(p, level)
            hits.append(reference.range_sample(p, a, u, weight - 1, limit))
            first.append(reference.min_hit(p, a, u, weight - 1, limit))
        assert run(case, np.array(levels, dtype=np.int8)) == {"hits": hits, "first": first}, where


def test_enough_cases_and_every_branch_of_the_tables() -> None:
    """What the comparison above covers: the number of cases, and each kind of table row."""
    total, kinds, ratios, most_repeats = 0, set(), set(), 0
    for shape in SHAPES:
        for case in cases(shape):
            total += len(case.ids)
            steps = case.plan.steps
            kinds |= set(steps[:, 0].tolist())
            repeatable = steps[steps[:, 0] == REPEATABLE]
            most_repeats = max(most_repeats, *(repeatable[:, 1] // repeatable[:, 3]).tolist(), 0)
            ratios |= set((case.plan.chain[:, 2] >= EXACT_DIVISION).tolist())
    assert total >= 100_000
    assert kinds == {REPEATABLE, GROUP}
    assert ratios == {False, True}  # estimated and exact division in the floor sum
    assert most_repeats == 2**30  # the longest repeat, of 2^31 - 1 steps, as binary multiples
    narrow = {id_bits <= NARROW_ID_BITS for _, id_bits in SHAPES}
    assert narrow == {False, True}


def test_small_moduli_exhaustively() -> None:
    """The same kernels where enumeration reaches: every start and level of small primes."""
    id_bits, max_weight = 5, 11
    for p in (11, 37, 59):
        ids = np.repeat(np.arange(2**id_bits), max_weight)
        weights = np.tile(np.arange(1, max_weight + 1), 2**id_bits)
        for a in range(p):
            plan = minhit.plan_for(
                prime=p, multiplier=a, offset=a // 2, max_weight=max_weight, id_bits=id_bits,
                mix=NO_MIX, top=p.bit_length() - 1,
            )  # fmt: skip
            case = Case(plan, max_weight, ids, weights)
            integers = (max_weight * ids)[:, None] + np.arange(max_weight)
            hashes = (a * integers + plan.offset) % p
            hashes[np.arange(max_weight) >= weights[:, None]] = p  # beyond the range: no hit
            minima = hashes.min(axis=1)
            limits = np.array([p // 2**i - 1 for i in range(plan.top + 1)])
            tops = (minima[:, None] <= limits).sum(axis=1) - 1
            every = np.empty((len(ids), plan.top + 1), dtype=np.int64)
            for level, limit in enumerate(limits.tolist()):
                selected = hashes <= limit
                expected = np.where(selected.any(axis=1), selected.argmax(axis=1), -1)
                every[:, level] = expected
                assert run(case, np.full(len(ids), level, dtype=np.int8)) == {
                    "hits": selected.sum(axis=1).tolist(),
                    "first": expected.tolist(),
                }
            assert run(case) == {
                "minimum": minima.tolist(),
                "top": tops.tolist(),
                "all": every.tolist(),
            }


def test_rows_do_not_affect_each_other() -> None:
    """Kernels work in blocks and stop early on what a whole block has in common."""
    rng = random.Random(21)
    params = SketchParams(max_weight=2**20, id_bits=30, seed=9)
    ids, weights = observations(rng, params.max_weight, params.id_bits, 3 * BLOCK + 7)
    weights[:BLOCK] = 1  # a block that needs no steps at all
    levels = np.array([rng.randint(0, 12) for _ in ids], dtype=np.int8)
    levels[BLOCK : 2 * BLOCK] = 0  # a block where everything is selected
    order = np.array(rng.sample(range(len(ids)), len(ids)))
    of_rows: list[Callable[..., npt.NDArray[np.integer]]] = [
        minhit.top_levels,
        minhit.minimum_hashes,
        minhit.min_hits_all_levels,
    ]
    for function in of_rows:
        together = function(params, ids, weights)
        assert np.array_equal(function(params, ids[order], weights[order]), together[order])
    of_levels: list[Callable[..., Int64Array]] = [minhit.range_samples, minhit.min_hits]
    for function in of_levels:
        together = function(params, ids, weights, levels)
        shuffled = function(params, ids[order], weights[order], levels[order])
        assert np.array_equal(shuffled, together[order])


# ---------------------------------------------------------------------------- the public functions


def mixed(params: SketchParams, id: int) -> int:
    """The id mixing as specified, in plain integers."""
    constants = params.mix_constants.tolist()
    for key, multiplier in zip(constants[::2], constants[1::2], strict=True):
        id = ((id ^ key) * multiplier) % 2**params.id_bits
        id ^= id >> -(-params.id_bits // 2)
    return id


@pytest.mark.parametrize("id_mix", ["keyed", "none"])
@pytest.mark.parametrize(
    "shape", [(1, 56), (999, 46), (7, 3), (5, 1), (5, 0), (2**31, 25)], ids=str
)
def test_public_functions_hash_as_specified(
    shape: tuple[int, int], id_mix: Literal["keyed", "none"]
) -> None:
    max_weight, id_bits = shape
    for seed in range(3):
        params = SketchParams(max_weight=max_weight, id_bits=id_bits, seed=seed, id_mix=id_mix)
        rng = random.Random(seed)
        ids, weights = observations(rng, max_weight, id_bits, 200)
        given = ids.copy(), weights.copy()
        p, a, b = params.prime, params.multipliers[0], params.offsets[0]
        wanted = [mixed(params, id) for id in ids.tolist()]
        assert hashing.mix_ids(params, ids).tolist() == wanted
        starts = [reference.hash_start(p, a, b, max_weight, id) for id in wanted]
        levels = [rng.randint(0, params.levels) for _ in wanted]
        limits = [reference.level_limit(p, level) for level in levels]
        lengths = (weights - 1).tolist()
        rows = list(zip(starts, lengths, strict=True))
        asked = list(zip(starts, lengths, limits, strict=True))

        minima = minhit.minimum_hashes(params, ids, weights)
        tops = minhit.top_levels(params, ids, weights)
        hits = minhit.range_samples(params, ids, weights, levels)
        first = minhit.min_hits(params, ids, weights, levels)
        every = minhit.min_hits_all_levels(params, ids, weights)
        assert minima.tolist() == [reference.min_value(p, a, u, n) for u, n in rows]
        assert tops.tolist() == [reference.top_level(p, a, u, n, params.levels) for u, n in rows]
        assert hits.tolist() == [reference.range_sample(p, a, u, n, limit) for u, n, limit in asked]
        assert first.tolist() == [reference.min_hit(p, a, u, n, limit) for u, n, limit in asked]
        assert every.tolist() == [reference.all_levels(p, a, u, n, params.levels) for u, n in rows]
        assert (tops.dtype.name, hits.dtype.name) == ("int8", "int64")
        assert np.array_equal(ids, given[0])
        assert np.array_equal(weights, given[1])


def test_sampled_at_a_level_means_top_level_reaches_it() -> None:
    """Levels are nested, and the three questions agree on every level."""
    params = SketchParams(max_weight=999, id_bits=46, seed=4)
    ids, weights = observations(random.Random(22), 999, 46, 500)
    tops = minhit.top_levels(params, ids, weights)
    for level in range(params.levels + 1):
        sampled = tops >= level
        assert np.array_equal(minhit.range_samples(params, ids, weights, level) > 0, sampled)
        assert np.array_equal(minhit.min_hits(params, ids, weights, level) >= 0, sampled)
    assert np.array_equal(minhit.range_samples(params, ids, weights, 0), weights)


def test_weights_beyond_31_bits_are_refused() -> None:
    """The kernels square the number of terms in 64 bits, and convert it to float64 exactly."""
    assert SketchParams(max_weight=2**31, id_bits=0).max_weight == 2**31
    with pytest.raises(ParameterError, match="max_weight"):
        SketchParams(max_weight=2**31 + 1, id_bits=0)


def test_empty_columns() -> None:
    params = SketchParams(max_weight=9)
    none = np.empty(0, dtype=np.int64)
    assert len(minhit.top_levels(params, none, none)) == 0
    assert len(minhit.minimum_hashes(params, none, none)) == 0
    assert len(minhit.range_samples(params, none, none, 0)) == 0
    assert len(minhit.min_hits(params, none, none, 0)) == 0


@pytest.mark.parametrize(
    ("ids", "weights", "fault"),
    [
        ([0, 16], [1, 1], r"ids\[1\] is 16"),
        ([-1, 0], [1, 1], r"ids\[0\] is -1"),
        ([0, 1], [1, 0], r"weights\[1\] is 0"),
        ([0, 1], [10, 1], r"weights\[0\] is 10"),
        ([0, 1], [1], "rows"),
        ([0.0, 1.0], [1, 1], "float64"),
        ([[0], [1]], [1, 1], "shape"),
        (np.array([0, 2**63], dtype=np.uint64), [1, 1], r"ids\[1\]"),
    ],
)
def test_columns_outside_the_domain_are_refused(ids: Any, weights: Any, fault: str) -> None:
    """The message names the column, the row and the value."""
    params = SketchParams(max_weight=9, id_bits=4)
    with pytest.raises(ParameterError, match=fault):
        minhit.top_levels(params, ids, weights)
    with pytest.raises(ParameterError, match=fault):
        minhit.range_samples(params, ids, weights, 0)


@pytest.mark.parametrize("level", [-1, 99, 300])
def test_levels_outside_the_domain_are_refused(level: int) -> None:
    params = SketchParams(max_weight=9, id_bits=4)
    with pytest.raises(ParameterError, match="levels"):
        minhit.range_samples(params, [1], [1], level)
    with pytest.raises(ParameterError, match="levels"):
        minhit.min_hits(params, [1], [1], level)


def test_levels_that_are_not_integers_are_refused() -> None:
    params = SketchParams(max_weight=9, id_bits=4)
    with pytest.raises(ParameterError, match="levels"):
        minhit.range_samples(params, [1], [1], 1.5)
