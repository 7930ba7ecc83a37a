"""What newcomers type: it works, or one message says what works."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.core.sizing import DEFAULT_CAPACITY, accuracy_of, capacity_for
from decaysketch.core.time_units import length_meant, length_of, unit_meant


def test_an_accuracy_stands_where_a_capacity_does() -> None:
    for accuracy in (0.05, "5%"):
        assert ds.SketchParams(accuracy=accuracy).capacity == capacity_for(0.05)
        assert ds.DecaySketch(accuracy=accuracy).params == ds.SketchParams(accuracy=accuracy)
    assert ds.DecaySketch().params.capacity == DEFAULT_CAPACITY
    assert ds.SketchParams(accuracy=0.05).to_dict() == ds.SketchParams(capacity=3074).to_dict()
    assert accuracy_of(capacity_for(0.05)) == pytest.approx(0.05, rel=1e-3)
    with pytest.raises(ds.ParameterError, match="expected one of them"):
        ds.SketchParams(accuracy=0.05, capacity=100)
    with pytest.raises(ds.ParameterError, match="expected one of them"):
        ds.DecaySketch(ds.SketchParams(), accuracy=0.05)
    with pytest.raises(ds.ParameterError, match="accuracy"):
        ds.SketchParams(accuracy="2 pc")


def test_one_value_serves_a_batch_as_one_weight_does() -> None:
    times, ids = np.array([100, 160, 220]), np.array([1, 2, 3])
    one, each = ds.DecaySketch(), ds.DecaySketch()
    one.update(21.5, 1, times, ids)
    each.update([21.5] * 3, 1, times, ids)
    assert one == each
    with pytest.raises(ds.ObservationError, match="unequal lengths"):
        one.update([21.5], 1, times, ids)


def test_a_rate_may_be_a_fraction_as_in_json() -> None:
    exact = ds.decay.integral.exponential(rate=Fraction(1, 3))
    assert ds.decay.integral.exponential(rate="1/3") == exact
    for wrong in ("1/0", "1 / 3", "x", "1/3/4"):
        with pytest.raises(ds.ParameterError, match="such as '1/3'"):
            ds.decay.integral.exponential(rate=wrong)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("halflife(1h)", "did you mean exponential(half_life=1h)?"),
        ("half_life(15min)", "did you mean exponential(half_life=15min)?"),
        ("window(1 hour)", "did you mean 1h?"),
        ("window(2 days)", "did you mean 2d?"),
        ("exponential(half_life=30 minutes)", "did you mean 30min?"),
    ],
)
def test_a_decay_that_is_nearly_one(text: str, meant: str) -> None:
    with pytest.raises(ds.ParameterError) as fault:
        ds.decay.parse(text, "s")
    assert meant in str(fault.value)


def test_a_length_that_is_nearly_one() -> None:
    assert unit_meant("Hours") == "h"
    assert length_meant("soon") == length_meant("1 parsec") == ""
    with pytest.raises(ds.ParameterError, match="did you mean '1h'"):
        length_of("now", "1 hour")
