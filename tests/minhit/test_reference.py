"""Enumeration checks the plain-Python reference: every progression over every small modulus.

The oracle is the definition, read off the progression itself. Primes below 60 are taken with every
multiplier and every start; larger moduli, composite ones too (Algorithm 5 recurses on moduli that
are not prime), are drawn at random.
"""

from __future__ import annotations

import random
from itertools import accumulate, product

import pytest

from decaysketch.minhit import reference

SMALL_PRIMES = [p for p in range(2, 60) if all(p % d for d in range(2, p))]
MODULI_PER_RUN = 8_000


def progression(p: int, a: int, u: int, n: int) -> list[int]:
    return [(u + j * a) % p for j in range(n + 1)]


def first_hit(values: list[int], limit: int) -> int:
    return next((j for j, value in enumerate(values) if value <= limit), -1)


def levels_of(p: int) -> range:
    """All levels that select anything, and two that do not (2^i > p)."""
    return range(p.bit_length() + 2)


def check_everything(p: int, a: int, u: int, n: int) -> None:
    values = progression(p, a, u, n)
    limits = [p // 2**i - 1 for i in levels_of(p)]
    first_hits = [first_hit(values, limit) for limit in limits]
    where = f"p={p}, a={a}, u={u}, n={n}"
    for limit, expected in zip(limits, first_hits, strict=True):
        assert reference.min_hit(p, a, u, n, limit) == expected, f"{where}, L={limit}"
        hits = sum(value <= limit for value in values)
        assert reference.range_sample(p, a, u, n, limit) == hits, f"{where}, L={limit}"
    assert reference.all_levels(p, a, u, n, len(limits) - 1) == first_hits, where
    assert reference.min_value(p, a, u, n) == min(values), where
    top = max(i for i, j in enumerate(first_hits) if j >= 0)
    assert reference.top_level(p, a, u, n, len(limits) - 1) == top, where


@pytest.mark.parametrize("p", SMALL_PRIMES)
def test_every_progression_of_a_small_prime(p: int) -> None:
    lengths = sorted({0, 1, p // 3, p - 1})
    for a, u, n in product(range(p), range(p), lengths):
        check_everything(p, a, u, n)


def test_random_moduli_to_a_few_hundred() -> None:
    rng = random.Random(1)
    for _ in range(MODULI_PER_RUN):
        p = rng.randint(1, 400)
        a, u = rng.randrange(p), rng.randrange(p)
        check_everything(p, a, u, rng.choice([0, 1, rng.randrange(30), rng.randrange(2 * p + 3)]))


def test_any_limit_not_only_those_of_levels() -> None:
    rng = random.Random(2)
    for _ in range(MODULI_PER_RUN):
        p = rng.randint(1, 300)
        a, u, n = rng.randrange(p), rng.randrange(p), rng.randrange(60)
        limit = rng.randrange(-3, p + 3)
        values = progression(p, a, u, n)
        assert reference.min_hit(p, a, u, n, limit) == first_hit(values, limit)
        assert reference.range_sample(p, a, u, n, limit) == sum(v <= limit for v in values)


def test_record_runs_are_the_record_minima_in_order() -> None:
    rng = random.Random(3)
    for _ in range(5_000):
        p = rng.randint(2, 500)
        a, u, n = rng.randrange(p), rng.randrange(p), rng.randrange(2 * p)
        values = progression(p, a, u, n)
        minima = list(accumulate(values, min))
        expected = [(j, minima[j]) for j in range(1, n + 1) if minima[j] < minima[j - 1]]
        runs = list(reference.record_runs(p, a, u, n))
        records = [
            (run.start + i * run.step, run.value - i * run.drop)
            for run in runs
            for i in range(1, run.repeats + 1)
        ]
        assert records == expected
        assert len(runs) <= 2 * p.bit_length() + 2  # a walk of O(log p) runs


def test_floor_sum_by_enumeration() -> None:
    rng = random.Random(4)
    for _ in range(5_000):
        count, modulus = rng.randrange(40), rng.randint(1, 50)
        slope, offset = rng.randrange(120), rng.randrange(120)
        expected = sum((slope * j + offset) // modulus for j in range(count))
        assert reference.floor_sum(count, modulus, slope, offset) == expected


# ---------------------------------------------------------------------------------- named edges


@pytest.mark.parametrize("p", [2, 3, 7, 59, 2**61 - 1])
def test_level_zero_selects_every_integer(p: int) -> None:
    """L = p - 1: the first integer is a hit, all n + 1 are."""
    limit = reference.level_limit(p, 0)
    assert limit == p - 1
    for a, u, n in product({0, 1, p // 2, p - 1}, {0, p // 2, p - 1}, (0, 1, 5)):
        assert reference.min_hit(p, a, u, n, limit) == 0
        assert reference.range_sample(p, a, u, n, limit) == n + 1
        assert reference.all_levels(p, a, u, n, 0) == [0]


@pytest.mark.parametrize("p", [2, 3, 7, 59, 2**61 - 1])
def test_no_hit_once_the_level_passes_the_modulus(p: int) -> None:
    """L < 0 once 2^i > p: not even a hash of 0 is selected."""
    level = p.bit_length()
    limit = reference.level_limit(p, level)
    assert limit == -1
    for a, u, n in product({0, 1, p // 2, p - 1}, {0, p // 2, p - 1}, (0, 1, 5)):
        assert reference.min_hit(p, a, u, n, limit) == -1
        assert reference.range_sample(p, a, u, n, limit) == 0
        assert reference.all_levels(p, a, u, n, level + 3)[level:] == [-1] * 4
        assert reference.top_level(p, a, u, n, level + 3) < level


def test_multiplier_zero_is_constant() -> None:
    assert reference.min_hit(101, 0, 30, 10**6, 29) == -1
    assert reference.min_hit(101, 0, 30, 10**6, 30) == 0
    assert reference.range_sample(101, 0, 30, 10**6, 30) == 10**6 + 1
    assert reference.min_value(101, 0, 30, 10**6) == 30


def test_multiplier_one_counts_up_to_the_wrap() -> None:
    p = 2**61 - 1
    assert reference.min_hit(p, 1, p - 1000, 999, 5) == -1
    assert reference.min_hit(p, 1, p - 1000, 1000, 5) == 1000
    assert reference.range_sample(p, 1, p - 1000, 1003, 5) == 4
    assert reference.min_value(p, 1, p - 1000, 1003) == 0


def test_multiplier_minus_one_counts_down() -> None:
    p = 2**61 - 1
    assert reference.min_hit(p, p - 1, 1000, 994, 5) == -1
    assert reference.min_hit(p, p - 1, 1000, 995, 5) == 995
    assert reference.range_sample(p, p - 1, 1000, 2000, 5) == 6
    assert reference.min_value(p, p - 1, 1000, 999) == 1


def test_single_integer() -> None:
    """n = 0 (a weight of 1): the hash of one integer, whatever the multiplier."""
    for p, a in product((7, 2**61 - 1), (0, 1, 3, 6)):
        for u in (0, 1, 3, 6):
            assert reference.min_value(p, a, u, 0) == u
            for level in range(5):
                limit = reference.level_limit(p, level)
                assert reference.min_hit(p, a, u, 0, limit) == (0 if u <= limit else -1)
                assert reference.range_sample(p, a, u, 0, limit) == (u <= limit)


def test_top_level_is_capped() -> None:
    assert reference.top_level(2**61 - 1, 12345, 0, 0, 60) == 60
    assert reference.top_level(2**61 - 1, 12345, 0, 0, 7) == 7
    assert reference.top_level(2**61 - 1, 12345, 0, 0, 0) == 0


def test_hash_start_is_the_hash_of_the_first_integer_of_the_range() -> None:
    p, a, b, max_weight = 1009, 77, 500, 9
    for id in range(12):
        u = reference.hash_start(p, a, b, max_weight, id)
        hashes = [(a * (max_weight * id + j) + b) % p for j in range(max_weight)]
        assert hashes == progression(p, a, u, max_weight - 1)


# ------------------------------------------------------------------------- full size, by agreement


def test_full_size_functions_agree_with_each_other() -> None:
    """Where enumeration cannot go, three algorithms that share no code must tell one story."""
    rng = random.Random(5)
    for _ in range(3_000):
        p = rng.randrange(2**60, 2**61) | 1
        a = rng.choice(
            [0, 1, p - 1, rng.randrange(2**20), p // rng.randint(2, 9), rng.randrange(p)]
        )
        u, n = rng.randrange(p), rng.getrandbits(rng.randint(1, 31))
        max_level = 60
        first_hits = reference.all_levels(p, a, u, n, max_level)
        top = reference.top_level(p, a, u, n, max_level)
        assert [j >= 0 for j in first_hits] == [i <= top for i in range(max_level + 1)]
        for i in {0, 1, rng.randrange(max_level), top, min(top + 1, max_level)}:
            limit = reference.level_limit(p, i)
            j = reference.min_hit(p, a, u, n, limit)
            assert j == first_hits[i]
            assert (reference.range_sample(p, a, u, n, limit) > 0) == (j >= 0)
            if j >= 0:  # the first j + 1 integers hold one hit, and it is the last of them
                assert (u + j * a) % p <= limit
                assert reference.range_sample(p, a, u, j, limit) == 1
