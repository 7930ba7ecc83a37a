"""Ranges as value keys: enclosed, unique, and rejected where they are none."""

from __future__ import annotations

import math

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.core.observations import MISSING_KEY, decode_values, encode_values, no_values
from decaysketch.core.ranges import ENDLESS, EncodedValues, Range, decoded, illegal, key_of
from decaysketch.errors import ObservationError, ParameterError

INF = math.inf
ABOVE = math.nextafter(2500.0, INF)


@pytest.mark.parametrize(
    ("given", "low", "high", "value"),
    [
        (Range(0.0, 0.005, open=False), 0.0, 0.005, 0.0025),
        (Range(0.005, 0.01), math.nextafter(0.005, 1.0), 0.01, 0.0075),
        (Range(2500.0, INF), ABOVE, ENDLESS, ABOVE),
        (Range(-INF, 5.0), -ENDLESS, 5.0, 2.5),
        (Range(-INF, -5.0), -ENDLESS, -5.0, -5.0),
        (Range(0.123456, 0.987654, open=False), 0.12345, 0.98766, 0.555555),
        (Range(1e-200, 1.0, open=False), 0.0, 1.0, 0.5),
        (Range(1.0, 1e300, open=False), 1.0, ENDLESS, 1.0),
        (Range(-INF, INF, mean=12.5), -ENDLESS, ENDLESS, 12.5),
    ],
)
def test_a_range_has_its_bounds_and_its_middle(
    given: Range, low: float, high: float, value: float
) -> None:
    keys = np.array([key_of(given)])
    assert [float(column[0]) for column in decoded(keys)] == [low, high, value]
    assert decode_values(keys, "float64")[0].tolist() == [given.middle] == [value]
    assert not illegal(keys).any()
    assert not no_values(keys).any()


def test_stored_bounds_enclose_the_given_ones() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        low, high = sorted(rng.normal() * 10.0 ** rng.integers(-9, 9) for _ in range(2))
        found = decoded(np.array([key_of(Range(low, high, open=False))]))
        assert low - 1.001e-4 * abs(low) <= found.lows[0] <= low
        assert high <= found.highs[0] <= high + 1.001e-4 * abs(high)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (-INF, INF), (math.nan, 1.0)])
def test_what_is_no_range_has_no_key(low: float, high: float) -> None:
    with pytest.raises(ParameterError, match="lower bound below"):
        key_of(Range(low, high))


def test_keys_that_no_range_has_are_rejected() -> None:
    good = key_of(Range(5.0, 10.0))
    spread = key_of(Range(10.0, 5e3))
    bits = [int(np.float64(x).view(np.int64)) for x in (INF, math.nan)]
    mask = (1 << 26) - 1
    closed = key_of(Range(5.0, 10.0, open=False))
    swapped = closed & ~((1 << 52) - 1) | (closed & mask) << 26 | closed >> 26 & mask
    keys = np.array([*bits, swapped, good + 9, np.iinfo(np.int64).max])
    assert no_values(keys).all()
    assert not no_values(np.array([good, spread])).any()
    params = ds.SketchParams(max_weight=1, capacity=10)
    for values in (EncodedValues(keys[:1]), np.array([math.inf])):
        with pytest.raises(ObservationError):
            ds.DecaySketch(params).update(values, 1, [1], [1])
    with pytest.raises(ObservationError, match="value_type is 'int64'"):
        encode_values(EncodedValues(np.array([good])), "int64")


def test_bytes_carry_ranges_in_any_order() -> None:
    params = ds.SketchParams(max_weight=9, id_bits=16, capacity=40)
    keys = np.array([key_of(Range(5.0, 10.0)), key_of(Range(10.0, INF)), MISSING_KEY])
    sketch = ds.DecaySketch(params)
    sketch.update(EncodedValues(keys), [1, 2, 3], [1, 2, 3], [4, 5, 6])
    sketch.update([7.25], [1], [2], [9])
    data = sketch.to_bytes()
    again = ds.DecaySketch.from_bytes(data)
    assert again.to_bytes() == data
    other = ds.DecaySketch(params)
    other.update([7.25], [1], [2], [9])
    other.update(EncodedValues(keys[::-1].copy()), [3, 2, 1], [3, 2, 1], [6, 5, 4])
    assert other.to_bytes() == data
