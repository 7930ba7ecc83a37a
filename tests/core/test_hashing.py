"""The specification of everything random: fixed vectors, bijections, independence of structure."""

from __future__ import annotations

import random
import uuid
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import sympy
from support.rows import for_each

import decaysketch as ds
from decaysketch.core import hashing

FIRST_KEY_WORDS = [4214147691571294794, 10658333105868532544]
FIRST_MIXED_IDS = [779979645, 938396104, 541089154]
FIRST_KEYED_IDS = [888702986, 201074346]
FIRST_SECRET_IDS = [924664636, 669878090]
UUID_1 = uuid.UUID(int=1)
FIRST_UUID_ID = 807633044584338
KEY_CHECK = "6794b5a81c56e71e"


def test_mix64_is_the_published_finaliser_and_a_bijection() -> None:
    # Inverting each step gives the argument back.
    inverse_1 = pow(0x3C79AC492BA7B653, -1, 1 << 64)
    inverse_2 = pow(0x1C69B3F74AC4AE35, -1, 1 << 64)

    def unshift(word: int, shift: int) -> int:
        result = word
        for _ in range(64 // shift + 1):
            result = word ^ result >> shift
        return result

    for word in [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]:
        mixed = hashing.mix64(word)
        back = unshift(mixed, 27) * inverse_2 % 2**64
        back = unshift(back, 33) * inverse_1 % 2**64
        assert unshift(back, 27) == word


def test_derived_numbers_never_change() -> None:
    """Sketches in the field hash by these numbers: a change here is a new format."""
    params = ds.SketchParams(max_weight=999, id_bits=30, seed=42)
    assert params.prime == 18010008594793
    assert params.multipliers == (15023616303869,)
    assert params.fingerprint.hex() == "c470ac670b316dbc"
    assert [hashing.derive(42, 4, k) for k in range(2)] == FIRST_KEY_WORDS
    assert hashing.mix_ids(params, np.arange(3)).tolist() == FIRST_MIXED_IDS
    assert ds.observation_ids([1, 2], ["a", "ü"], params=params).tolist() == FIRST_KEYED_IDS
    secret = ds.SketchParams(max_weight=999, id_bits=30, seed=42, id_key=bytes(range(32)))
    assert secret.key_check.hex() == KEY_CHECK
    assert hashing.mix_ids(secret, np.arange(2)).tolist() == FIRST_SECRET_IDS


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
@pytest.mark.parametrize(
    ("max_weight", "id_bits"), [(1, 0), (1, 1), (999, 30), (1, 56), (2**31, 25)]
)
def test_the_prime_lies_between_10_and_20_universes(
    seed: int, max_weight: int, id_bits: int
) -> None:
    params = ds.SketchParams(max_weight=max_weight, id_bits=id_bits, seed=seed)
    assert sympy.isprime(params.prime)
    assert 10 * params.universe < params.prime < 20 * params.universe
    assert 1 <= params.multipliers[0] < params.prime
    assert 0 <= params.offsets[0] < params.prime
    assert params.levels == (params.universe - 1).bit_length()


def test_primes_are_those_that_sympy_knows() -> None:
    rng = random.Random(5)
    assert [n for n in range(3_000) if hashing.is_prime(n)] == list(sympy.primerange(3_000))
    # Strong pseudoprimes to the first 2, 3, ... prime bases, each the least one; Carmichael
    # numbers; squares and products of primes that lie close together.
    deceivers = [1_373_653, 25_326_001, 3_215_031_751, 2_152_302_898_747, 3_474_749_660_383]
    deceivers += [341_550_071_728_321, 3_825_123_056_546_413_051, 561, 1_105, 1_729]
    primes = [sympy.nextprime(rng.randrange(1 << 30)) for _ in range(50)]
    deceivers += [prime**2 for prime in primes] + [p * sympy.nextprime(p) for p in primes]
    assert not any(map(hashing.is_prime, deceivers))
    near = [rng.randrange(1 << rng.randrange(4, 62)) for _ in range(3_000)]
    assert [hashing.is_prime(n) for n in near] == [sympy.isprime(n) for n in near]


@pytest.mark.parametrize("universe", [1, 2, 3, 7, 999, 999 << 40, (1 << 61) // 20])
def test_the_prime_is_the_first_after_a_derived_point(universe: int) -> None:
    for seed in range(20):
        low = 10 * universe
        point = low + hashing.uniform_below(low, seed, hashing.PURPOSE_PRIME)
        expected = sympy.nextprime(point)
        expected = expected if expected < 2 * low else sympy.nextprime(low)
        assert hashing.choose_prime(universe, seed) == expected


@pytest.mark.parametrize("id_bits", [0, 1, 2, 3, 7, 12])
@pytest.mark.parametrize("key", [None, b"s" * 16])
def test_id_mixing_is_a_bijection(id_bits: int, key: bytes | None) -> None:
    params = ds.SketchParams(max_weight=3, id_bits=id_bits, seed=id_bits, id_key=key)
    mixed = hashing.mix_ids(params, np.arange(1 << id_bits))
    assert sorted(mixed.tolist()) == list(range(1 << id_bits))


def test_unmixed_ids_are_the_ids() -> None:
    params = ds.SketchParams(max_weight=3, id_bits=8, id_mix="none")
    assert hashing.mix_ids(params, np.arange(256)).tolist() == list(range(256))


@pytest.mark.parametrize("id_bits", [20, 30, 41, 56])
def test_each_input_bit_moves_half_of_the_output_bits(id_bits: int) -> None:
    """Avalanche over 64 seeds: each pair (input bit, output bit) flips with probability near 1/2.

    A pair's share over 64 seeds x 64 ids has standard deviation 1/128 if all were independent;
    the mean over pairs must be within 0.01 and no pair outside 0.5 +- 0.1.
    """
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 1 << id_bits, 64)
    flips = np.zeros((id_bits, id_bits))
    for seed in range(64):
        params = ds.SketchParams(max_weight=1, id_bits=id_bits, seed=seed)
        base = hashing.mix_ids(params, ids)
        for bit in range(id_bits):
            change = hashing.mix_ids(params, ids ^ (1 << bit)) ^ base
            flips[bit] += [(change >> out & 1).sum() for out in range(id_bits)]
    share = flips / (64 * 64)
    assert abs(share.mean() - 0.5) < 0.01
    assert share.min() > 0.4
    assert share.max() < 0.6


def test_keys_of_different_type_order_or_split_have_different_hashes() -> None:
    word = ds.SketchParams(max_weight=1, seed=9).key_word
    keys = [
        [[1], [2]],
        [[2], [1]],
        [["1"], ["2"]],
        [[b"1"], [b"2"]],
        [["12"], [""]],
        [["1"], ["2\0"]],
        [[""], ["12"]],
        [["12"]],
        [[12]],
    ]
    hashes = [int(hashing.hash_keys(columns, word)[0]) for columns in keys]
    assert len(set(hashes)) == len(hashes)


def test_key_hashing_is_the_same_in_any_company() -> None:
    params = ds.SketchParams(max_weight=1, id_bits=50, seed=9)
    names = [f"sensor-{k}" * (1 + k % 7) for k in range(40_000)]
    numbers = np.arange(40_000)
    together = ds.observation_ids(names, numbers, params=params)
    assert len(set(together.tolist())) == 40_000
    for k in (0, 1, 16_383, 16_384, 39_999):
        assert ds.observation_ids([names[k]], [k], params=params)[0] == together[k]
    assert (
        ds.observation_ids(np.array(names), numbers.astype(np.uint32), params=params).tolist()
        == together.tolist()
    )


def definition_of_hashes(columns: list[list[Any]], word: Any) -> list[int]:
    """What the module says, one key at a time in plain integers."""
    rows = []
    for keys in zip(*columns, strict=True):
        row = word(999)
        for c, key in enumerate(keys):
            first = 1000 + 4 * c
            if isinstance(key, int):
                hashed = hashing.mix64(key % 2**64 ^ word(first))
            else:
                data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
                hashed = hashing.mix64(len(data) ^ word(first + 2 - isinstance(key, str)))
                for at in range(0, len(data), 8):
                    hashed = hashing.mix64(hashed ^ int.from_bytes(data[at : at + 8], "little"))
            row = hashing.mix64((row + 0x9E3779B97F4A7C15) % 2**64 ^ hashed)
        rows.append(row)
    return rows


def encoded(keys: list[Any]) -> hashing.EncodedKeys:
    """Behind a few bytes that belong to no key."""
    kind = type(keys[0])
    parts = [key.encode() if kind is str else key for key in keys]
    offsets = np.fromiter(accumulate(map(len, parts), initial=3), np.int64)
    return hashing.EncodedKeys(
        kind, offsets, np.frombuffer(b"...".join([b"", b"".join(parts)]), "u1")
    )


def test_hashes_are_those_of_the_definition() -> None:
    rng = random.Random(3)
    word = ds.SketchParams(max_weight=1, seed=9).key_word
    lengths = [*range(40), 1_023, 1_024] * 3
    blobs = [rng.randbytes(length) for length in lengths]
    texts = [
        "".join(rng.choices("aé€😀", k=length // 4)) + "z" * (length % 4) for length in lengths
    ]
    texts[7] = "a\0\0"
    integers = [rng.randrange(-(1 << 63), 1 << 64) for _ in lengths]
    small = [rng.randrange(-128, 128) for _ in lengths]
    columns: list[list[Any]] = [blobs, texts, integers, small]
    expected = definition_of_hashes(columns, word)
    narrow = [np.array(small, dtype) for dtype in (np.int8, ">i4", np.int64)]
    for number, texts_given in enumerate((texts, np.array(texts, object), encoded(texts))):
        blobs_given = (blobs, tuple(blobs), encoded(blobs))[number]
        given = [blobs_given, texts_given, np.array(integers, object), narrow[number]]
        assert hashing.hash_keys(given, word).tolist() == expected
    unsigned = np.array([each % 2**64 for each in integers], np.uint64)
    codes = np.arange(len(lengths))[::-1].copy()
    repeated = [hashing.RepeatedKeys(encoded(column), codes) for column in (blobs, texts)]
    given = [*repeated, np.repeat(unsigned[::-1], 2)[::2], np.array(small[::-1])]
    assert hashing.hash_keys(given, word)[::-1].tolist() == expected
    assert encoded(texts).to_objects().tolist() == texts
    assert encoded(blobs).to_objects().tolist() == blobs
    lone = ["\ud800", "a\udfff"]
    assert hashing.hash_keys([lone], word).tolist() == definition_of_hashes([lone], word)


def test_a_uuid_is_the_key_that_its_text_is() -> None:
    """However it is given, alone or in a column; its bytes are another key."""
    params = ds.SketchParams(max_weight=1, id_bits=50, seed=9)
    uuids = [uuid.uuid5(uuid.NAMESPACE_DNS, str(k)) for k in range(20_000)]
    texts = [str(each) for each in uuids]
    expected = ds.observation_ids(texts, params=params)
    for column in (uuids, tuple(uuids), np.array(uuids), np.array(uuids, dtype=object)):
        assert ds.observation_ids(column, params=params).tolist() == expected.tolist()
    assert ds.observation_ids(uuids[7], params=params).tolist() == [expected[7]]
    codes = np.array([3, 3, 0])
    repeated = hashing.RepeatedKeys(np.array(uuids[:4]), codes)
    assert ds.observation_ids(repeated, params=params).tolist() == expected[codes].tolist()
    assert (
        ds.observation_ids(uuids, range(20_000), params=params).tolist()
        == ds.observation_ids(texts, range(20_000), params=params).tolist()
    )
    as_bytes = ds.observation_ids([each.bytes for each in uuids], params=params)
    assert not (as_bytes == expected).any()
    sketches = [ds.DecaySketch(params), ds.DecaySketch(params)]
    for sketch, column in zip(sketches, (uuids, texts), strict=True):
        sketch.update(1.0, 1, 1, ds.observation_ids(column[5], params=params))
    assert sketches[0].digest() == sketches[1].digest()
    fixed = uuid.UUID("{6BA7B810-9DAD-11D1-80B4-00C04FD430C8}")
    assert ds.observation_ids(fixed, params=params).tolist() == [FIRST_UUID_ID]


@for_each(
    "columns, message",
    [
        (([UUID_1, str(UUID_1)],), r"key column 0\[1\] is '.*', of type str; .* here UUID"),
        (([str(UUID_1), UUID_1],), r"key column 0\[1\] is UUID\(.*here str"),
        (([UUID_1, None],), r"key column 0\[1\] is None"),
        (([1, 2], [1]), "unequal lengths"),
        ((), "at least one key column"),
        (([1.5],), "float64"),
        ((["a", 1],), r"key column 0\[1\]|one type|dtype"),
        ((["a", None],), r"key column 0\[1\]"),
        ((["x" * 2000],), "2000 bytes"),
        (([[1, 2]],), "2 dimensions"),
        ((["a", ["b"]],), r"key column 0\[1\] is \['b'\], of type list"),
        ((encoded(["a", "x" * 1_025]),), r"key column 0\[1\] is a key of 1025 bytes"),
        ((hashing.EncodedKeys(str, np.array([0, 5, 3]), np.zeros(5, "u1")),), "offsets .* fall"),
        ((np.array([1, 1.5], dtype=object),), r"key column 0\[1\] is 1.5"),
        ((np.array([1, True], dtype=object),), r"key column 0\[1\] is True"),
        ((["a"] * 20_000 + [b"a"],), r"key column 0\[20000\]"),
    ],
)
def test_bad_keys_are_refused(columns: tuple[object, ...], message: str) -> None:
    with pytest.raises(ds.ObservationError, match=message):
        ds.observation_ids(*columns, params=ds.SketchParams(max_weight=1))
