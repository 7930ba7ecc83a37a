"""Build parameters: domains, identity, exchange; weights that are scaled to integers."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.core.sizing import (
    CAPACITY_BY_KEY,
    DEFAULT_ACCURACY,
    DEFAULT_BY_KEY,
    DEFAULT_CAPACITY,
    capacity_for,
    read_accuracy,
)


@for_each(
    "field, value, message",
    [
        ("max_weight", 0, "max_weight is 0; expected an integer from 1 to 2147483648"),
        ("max_weight", 2**31 + 1, "max_weight is 2147483649"),
        ("max_weight", True, "max_weight is True"),
        ("id_bits", 57, "id_bits is 57; expected an integer from 0 to 56"),
        ("id_bits", -1, "id_bits is -1"),
        ("capacity", 0, "capacity is 0"),
        ("capacity", 1.5, "capacity is 1.5"),
        ("capacity", (1 << 20) + 1, "capacity is 1048577; expected an integer from 1 to 1048576"),
        ("copies", 65, "copies is 65; expected an integer from 1 to 64"),
        ("seed", -1, "seed is -1"),
        ("seed", 1 << 64, "seed is 18446744073709551616"),
        ("time_unit", "S", "time_unit is 'S'"),
        ("time_unit", "", "time_unit is ''"),
        ("value_type", "int32", "value_type is 'int32'; expected one of int64, float64"),
        ("id_mix", "some", "id_mix is 'some'; expected one of keyed, none"),
        ("id_key", b"short", "id_key must be 16 to 64 secret bytes"),
    ],
)
def test_a_field_outside_its_domain_is_named_with_its_value(
    field: str, value: object, message: str
) -> None:
    with pytest.raises(ds.ParameterError, match=message):
        ds.SketchParams(**{"max_weight": 1, field: value})  # type: ignore[arg-type]


def test_the_universe_must_fit_the_kernels() -> None:
    ds.SketchParams(max_weight=999, id_bits=46)
    ds.SketchParams(max_weight=2**31, id_bits=25)
    with pytest.raises(ds.ParameterError, match="20 times it must not exceed 2\\^61"):
        ds.SketchParams(max_weight=999, id_bits=47)
    with pytest.raises(ds.ParameterError, match="id_key cannot be combined"):
        ds.SketchParams(max_weight=1, id_mix="none", id_key=b"k" * 16)


def test_only_the_capacity_may_differ_between_sketches_that_merge() -> None:
    base = ds.SketchParams(max_weight=9, id_bits=20, seed=1)
    assert base.with_capacity(7).fingerprint == base.fingerprint
    assert base.differences(base.with_capacity(7)) == {}
    others = [
        ds.SketchParams(max_weight=8, id_bits=20, seed=1),
        ds.SketchParams(max_weight=9, id_bits=21, seed=1),
        ds.SketchParams(max_weight=9, id_bits=20, seed=2),
        ds.SketchParams(max_weight=9, id_bits=20, seed=1, time_unit="ms"),
        ds.SketchParams(max_weight=9, id_bits=20, seed=1, value_type="int64"),
        ds.SketchParams(max_weight=9, id_bits=20, seed=1, id_mix="none"),
        ds.SketchParams(max_weight=9, id_bits=20, seed=1, id_key=b"k" * 16),
        ds.SketchParams(max_weight=9, id_bits=20, seed=1, id_key=b"l" * 16),
    ]
    assert len({params.fingerprint for params in [base, *others]}) == len(others) + 1
    assert all(base.differences(other) for other in others)


def test_exchange_by_json_and_pickle() -> None:
    key = b"k" * 16
    for params in (
        ds.SketchParams(max_weight=9, id_bits=20, seed=2**64 - 1, time_unit="us"),
        ds.SketchParams(max_weight=9, id_key=key, value_type="int64"),
    ):
        fields = json.loads(json.dumps(params.to_dict()))
        assert ds.SketchParams.from_dict(fields, id_key=params.id_key) == params
        assert pickle.loads(pickle.dumps(params)) == params
        assert key.decode() not in json.dumps(fields) + repr(params)


def test_what_is_left_out_is_as_large_as_an_accuracy_takes() -> None:
    assert ds.SketchParams() == ds.SketchParams(1, 56, 19_208) == ds.SketchParams.from_dict({})
    assert ds.SketchParams.from_dict({"accuracy": 0.05}).capacity == CAPACITY_BY_KEY
    assert capacity_for(DEFAULT_ACCURACY) == DEFAULT_CAPACITY == ds.SketchParams().capacity
    assert capacity_for(DEFAULT_BY_KEY) == CAPACITY_BY_KEY
    assert ds.SketchParams.for_accuracy(0.05, max_weight=999) == ds.SketchParams(999, 46, 3_074)
    assert capacity_for("2%") == capacity_for("0.02") == DEFAULT_CAPACITY
    assert ds.SketchParams.from_dict({"accuracy": "2%"}) == ds.SketchParams()
    assert read_accuracy("2%") == read_accuracy(" 0.02 ") == 0.02
    for text in ("2", "two", "0%", "100%", "nan", ""):
        with pytest.raises(ds.ParameterError, match=r"expected such as '2%' or 0\.02"):
            read_accuracy(text)


@pytest.mark.parametrize("capacity", [1, 20, 800, 19_208, 1 << 20])
@pytest.mark.parametrize("expected", [1, 10, 999, 10**6, 2**33, 10**10])
def test_an_expected_volume_gives_the_fewest_bits_that_collide_little(
    expected: int, capacity: int
) -> None:
    params = ds.SketchParams(expected=expected, capacity=capacity)
    allowed = min(0.1 * (2.0 / capacity) ** 0.5, 0.125)
    assert expected / 2.0 ** (params.id_bits + 1) <= allowed
    assert params.id_bits == 0 or expected / 2.0**params.id_bits > allowed
    assert params == ds.SketchParams(id_bits=params.id_bits, capacity=capacity)
    assert params == ds.SketchParams.from_dict({"expected": expected, "capacity": capacity})


def test_an_expected_volume_that_does_not_fit_is_refused_with_what_fits() -> None:
    with pytest.raises(ds.ParameterError, match="expected at most 68478: ids have at most 25"):
        ds.SketchParams(expected=10**6, max_weight=1 << 31)
    assert ds.SketchParams(expected=68_478, max_weight=1 << 31).id_bits == 25
    for given in (0, -1, True, 1.5, "9"):
        with pytest.raises(ds.ParameterError, match="expected is"):
            ds.SketchParams(expected=given)  # type: ignore[arg-type]
    with pytest.raises(ds.ParameterError, match="expected is 9 and id_bits is 30"):
        ds.SketchParams(expected=9, id_bits=30)


def test_a_short_id_is_the_beginning_of_a_long_one() -> None:
    """So any builder recognises duplicates, and collisions depend on keys and seed alone."""
    short, long = ds.SketchParams(expected=10_000), ds.SketchParams()
    keys = [f"device-{k}" for k in range(500)]
    ids = [ds.observation_ids(keys, range(500), params=each) for each in (short, long)]
    np.testing.assert_array_equal(ids[0], ids[1] >> (long.id_bits - short.id_bits))
    with pytest.raises(ds.IncompatibleSketchError, match="id_bits"):
        ds.DecaySketch(short).merge(ds.DecaySketch(long))


def test_exchange_refuses_what_it_does_not_know() -> None:
    fields = ds.SketchParams(max_weight=9).to_dict()
    with pytest.raises(ds.ParameterError, match="unknown parameter 'colour'"):
        ds.SketchParams.from_dict({**fields, "colour": 1})
    with pytest.raises(ds.ParameterError, match=r"accuracy is 0.1 and capacity is 19208; expected"):
        ds.SketchParams.from_dict({**fields, "accuracy": 0.1})
    with pytest.raises(ds.ParameterError, match="'secret' but id_key is not given"):
        ds.SketchParams.from_dict({**fields, "keyed_by": "secret"})
    secret = ds.SketchParams(max_weight=9, id_key=b"k" * 16)
    with pytest.raises(ds.ParameterError, match=f"expected '{secret.key_check.hex()}'"):
        ds.SketchParams.from_dict(secret.to_dict(), id_key=b"l" * 16)


def test_level_probabilities_are_those_of_whole_thresholds() -> None:
    params = ds.SketchParams(max_weight=3, id_bits=5, seed=8)
    expected = [(params.prime >> i) / params.prime for i in range(params.levels + 1)]
    assert params.level_probabilities.tolist() == expected
    with pytest.raises(ValueError, match="read-only"):
        params.level_probabilities[0] = 1


def test_real_weights_are_scaled_and_stay_positive() -> None:
    scaled = ds.scale_weights([0.0, 1e-9, 0.26, 1.0], 100, max_weight=100)
    assert scaled.tolist() == [0, 1, 26, 100]
    for weights, scale, error in (
        ([0.5, -0.1], 10, r"weights\[1\] is -0.1"),
        ([0.5, float("nan")], 10, r"weights\[1\] is nan"),
        ([0.5, 11.0], 10, r"weights\[1\] is 11.0, 110.0 after scaling"),
        ([1.0], 0, "scale is 0"),
        ([1.0], float("inf"), "scale is inf"),
    ):
        with pytest.raises(ValueError, match=error):
            ds.scale_weights(weights, scale, max_weight=100)
    assert scaled.dtype == np.int64
