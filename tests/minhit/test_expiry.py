"""Expiry times: the reference by enumeration, the public functions by the reference.

The definition (section 3.1): the smallest time kappa >= t at which f(w, kappa - t) is 0 or none of
the f(w, kappa - t) first integers of the range is selected.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from decaysketch import SketchParams, minhit
from decaysketch.core import hashing
from decaysketch.decay import integral
from decaysketch.decay.integral import IntegralDecay
from decaysketch.errors import ParameterError
from decaysketch.minhit import reference

Decay = Callable[[int, int], int]

PRIMES = [p for p in range(2, 60) if all(p % d for d in range(2, p))]

PLAIN: dict[str, Decay] = {
    "window": lambda w, x: w if x <= 6 else 0,
    "exponential": lambda w, x: math.floor(w * math.exp(-0.3 * x)),
    "polynomial": lambda w, x: w // (x + 1),
    "halving": lambda w, x: w >> x,
    "not decomposable": lambda w, x: max(w - 2 - x, 0),  # and 0 at once for small weights
}


def by_definition(hashes: list[int], L: int, weight: int, time: int, f: Decay) -> int:
    now = time
    while f(weight, now - time) > 0 and any(h <= L for h in hashes[: f(weight, now - time)]):
        now += 1
    return now


@pytest.mark.parametrize("name", PLAIN)
def test_reference_is_the_definition(name: str) -> None:
    f, rng = PLAIN[name], random.Random(name)
    at_once = later = 0
    for _ in range(10_000):
        p = rng.choice(PRIMES)
        a, u, weight, time = (
            rng.randrange(p), rng.randrange(p), rng.randint(1, 40), rng.randint(-50, 50)
        )  # fmt: skip
        L = reference.level_limit(p, rng.randrange(p.bit_length() + 2))
        hashes = [(u + j * a) % p for j in range(weight)]
        expected = by_definition(hashes, L, weight, time, f)
        assert reference.expiry_time(p, a, u, L, weight, time, f, t_max=40) == expected
        at_once += expected == time
        later += expected > time + 1
    assert at_once > 1000
    assert later > 1000


DECAYS: list[tuple[IntegralDecay, int]] = [
    (integral.window(200), 999),
    (integral.window(integral.MAX_AGE - 1), 2**31),
    (integral.exponential(rate=0.01), 999),
    (integral.exponential(half_life=30), 2**31),
    (integral.polynomial(1), 999),
    (integral.polynomial(1.5, scale=20), 2**20),
    (integral.halving(), 999),
    (integral.halving(60), 2**31),
    (integral.fractions([(9, 10), (3, 4), (1, 100)]), 1000),
    (integral.function(lambda w, x: np.maximum(w - 2 - x, 0), max_weight=100, ages=99), 100),
]


def observations(params: SketchParams, rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sizes = 2.0 ** (rng.random(rows) * math.log2(params.max_weight))
    return {
        "ids": rng.integers(0, 2**params.id_bits, rows),
        "weights": np.clip(sizes.astype(np.int64) + 1, 1, params.max_weight),
        "times": rng.integers(-(2**62), 2**62, rows, endpoint=True),
        "levels": rng.integers(0, min(params.levels, 16) + 1, rows),
    }


@pytest.mark.parametrize(("decay", "max_weight"), DECAYS, ids=repr)
def test_public_functions_equal_the_reference(decay: IntegralDecay, max_weight: int) -> None:
    params = SketchParams(max_weight=max_weight, id_bits=25, seed=max_weight)
    given = observations(params, rows=300, seed=3)
    found = minhit.expiry_times(params, decay, **given)
    assert found.dtype == np.int64
    p, a, b = params.prime, params.multipliers[0], params.offsets[0]
    t_max = int(decay.steps(max_weight).ages[-1])
    cache: dict[tuple[int, int], int] = {}

    def f(weight: int, age: int) -> int:
        if (weight, age) not in cache:
            cache[weight, age] = int(decay(weight, age))
        return cache[weight, age]

    rows = zip(hashing.mix_ids(params, given["ids"]).tolist(), *(
        given[name].tolist() for name in ("weights", "times", "levels")
    ), strict=True)  # fmt: skip
    expected = [
        reference.expiry_time(
            p, a, reference.hash_start(p, a, b, max_weight, id), reference.level_limit(p, level),
            weight, time, f, t_max,
        )
        for id, weight, time, level in rows
    ]  # fmt: skip
    assert found.tolist() == expected
    assert (found > given["times"]).sum() > 20
    assert (found == given["times"]).sum() > 20
    for row in range(5):
        one = {name.removesuffix("s"): int(column[row]) for name, column in given.items()}
        assert minhit.expiry_time(params, decay, **one) == expected[row]


@pytest.mark.parametrize(("decay", "max_weight"), DECAYS, ids=repr)
def test_expiry_falls_with_the_level_and_rises_with_the_weight(
    decay: IntegralDecay, max_weight: int
) -> None:
    params = SketchParams(max_weight=max_weight, id_bits=25, seed=1)
    given = observations(params, rows=200, seed=4)
    by_level = np.array([
        minhit.expiry_times(params, decay, **{**given, "levels": level})
        for level in range(params.levels + 1)
    ])  # fmt: skip
    assert (np.diff(by_level, axis=0) <= 0).all()
    heavier = np.minimum(given["weights"] * 2, max_weight)
    more = minhit.expiry_times(params, decay, **{**given, "weights": heavier})
    assert (more >= minhit.expiry_times(params, decay, **given)).all()


def test_at_level_0_an_observation_lives_as_long_as_its_decay() -> None:
    params = SketchParams(max_weight=999, id_bits=20)
    for decay, last in ((integral.window(60), 60), (integral.polynomial(1), 998)):
        assert minhit.expiry_time(params, decay, 5, 999, 1000, 0) == 1000 + last + 1


def test_one_observation_is_a_column_of_one() -> None:
    params = SketchParams(max_weight=999, id_bits=20, seed=2)
    for id in range(30):
        for level in (0, 5, 9):
            assert minhit.min_hit(params, id, 700, level) == minhit.min_hits(
                params, [id], [700], [level]
            )
            assert minhit.range_sample(params, id, 700, level) == minhit.range_samples(
                params, [id], [700], [level]
            )
            assert (minhit.min_hit(params, id, 700, level) < 0) == (
                minhit.range_sample(params, id, 700, level) == 0
            )


def test_every_copy_has_its_own_hash() -> None:
    params = SketchParams(max_weight=999, id_bits=20, seed=2, copies=3)
    ids, weights = np.arange(200), np.full(200, 999)
    decay = integral.exponential(half_life=60)
    mixed = hashing.mix_ids(params, ids).tolist()
    p, limit = params.prime, reference.level_limit(params.prime, 8)
    for copy, (a, b) in enumerate(zip(params.multipliers, params.offsets, strict=True)):
        starts = [reference.hash_start(p, a, b, params.max_weight, id) for id in mixed]
        minima = [reference.min_value(p, a, u, 998) for u in starts]
        tops = [reference.top_level(p, a, u, 998, params.levels) for u in starts]
        first = [reference.min_hit(p, a, u, 998, limit) for u in starts]
        hits = [reference.range_sample(p, a, u, 998, limit) for u in starts]
        assert minhit.plan(params, copy).multiplier == a
        assert minhit.minimum_hashes(params, ids, weights, copy=copy).tolist() == minima
        assert minhit.top_levels(params, ids, weights, copy=copy).tolist() == tops
        assert minhit.min_hits(params, ids, weights, 8, copy=copy).tolist() == first
        assert minhit.range_samples(params, ids, weights, 8, copy=copy).tolist() == hits
        every = minhit.min_hits_all_levels(params, ids, weights, copy=copy)
        assert every[:, 8].tolist() == first
        ages = minhit.expiry_times(params, decay, ids, weights, 0, 8, copy=copy)
        assert ((ages > 0) == (np.array(first) >= 0)).all()
        assert minhit.min_hit(params, 7, 999, 8, copy=copy) == first[7]
        assert minhit.range_sample(params, 7, 999, 8, copy=copy) == hits[7]
        assert minhit.expiry_time(params, decay, 7, 999, 0, 8, copy=copy) == ages[7]
    with pytest.raises(ParameterError, match="copy is 3; expected 0 to 2"):
        minhit.plan(params, 3)
    with pytest.raises(ParameterError, match="copy is -1; expected 0 to 2"):
        minhit.min_hits(params, ids, weights, 8, copy=-1)


def test_nothing_in_nothing_out() -> None:
    params = SketchParams(max_weight=9, id_bits=4)
    none = np.empty(0, dtype=np.int64)
    assert minhit.expiry_times(params, integral.window(3), *[none] * 4).shape == (0,)
    assert minhit.min_hits_all_levels(params, none, none).shape == (0, params.levels + 1)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1.5, 2.0], "times has dtype float64"),
        ([1, 2, 3], r"times has shape \(3,\), ids has 2 rows"),
        ([0, 2**62 + 1], "times must be -4611686018427387904 to 4611686018427387904"),
    ],
)
def test_times_outside_the_domain_are_refused(times: Any, message: str) -> None:
    params = SketchParams(max_weight=9, id_bits=4)
    with pytest.raises(ParameterError, match=message):
        minhit.expiry_times(params, integral.window(3), [1, 2], [1, 1], times, 0)


def test_a_decay_for_smaller_weights_is_refused() -> None:
    params = SketchParams(max_weight=9, id_bits=4)
    decay = integral.table([[0, 0], [1, 0]])
    with pytest.raises(ParameterError, match="max_weight is 9; expected at most 1"):
        minhit.expiry_times(params, decay, [1], [1], [0], 0)
