"""How large a sketch has to be: arithmetic, limits, and that small sketches keep the promise."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm
from support.rows import for_each

import decaysketch as ds
from decaysketch.core import sizing

WANTED = {"epsilon": 0.05, "delta": 0.05, "max_weight": 999, "expected": 10_000_000}


def wanted(**changes: Any) -> ds.SketchParams:
    fields: dict[str, Any] = WANTED | changes
    return ds.SketchParams.for_accuracy(fields.pop("epsilon"), fields.pop("delta"), **fields)


def test_practical_sizes_are_kappa_z_squared_over_epsilon_squared() -> None:
    for aggregate, kappa in sizing.KAPPA.items():
        for epsilon, delta in ((0.05, 0.05), (0.1, 0.01), (0.3, 0.5)):
            params = wanted(epsilon=epsilon, delta=delta, aggregate=aggregate)
            z = norm.ppf(1 - delta / 2)
            assert params.capacity == math.ceil(kappa * (z / epsilon) ** 2)
            assert params.copies == 1


@pytest.mark.parametrize(
    ("aggregate", "epsilon", "capacity"),
    [("sum", 0.05, 24_000), ("sum", 0.1, 6_000), ("share", 0.05, 196_800), ("share", 0.3, 5467)],
)
def test_proven_sizes_are_those_of_the_theorems(
    aggregate: str, epsilon: float, capacity: int
) -> None:
    assert wanted(epsilon=epsilon, aggregate=aggregate, mode="proven").capacity == capacity


def test_proven_copies_are_the_fewest_whose_median_fails_rarely_enough() -> None:
    for delta in (0.4, 0.33, 0.2, 0.1, 0.05, 0.01, 0.005):
        copies = wanted(delta=delta, mode="proven").copies
        assert copies % 2 == 1
        assert binom.sf((copies - 1) // 2, copies, 1 / 3) <= delta + 1e-12
        if copies > 1:
            assert binom.sf((copies - 3) // 2, copies - 2, 1 / 3) > delta
    assert sizing.median_failure(1) == Fraction(1, 3)
    assert sizing.median_failure(3) == Fraction(7, 27)
    assert wanted(delta=0.34, mode="proven").copies == 1
    assert wanted(delta=0.3, mode="proven").copies == 3


def test_ids_get_all_the_bits_that_weights_leave() -> None:
    for max_weight in (1, 2, 999, 10**6, 2**31):
        params = wanted(max_weight=max_weight, expected=1)
        assert 20 * max_weight * 2**params.id_bits <= 2**61
        assert params.id_bits == 56 or 20 * max_weight * 2 ** (params.id_bits + 1) > 2**61
        assert params.prime < 2**61


def test_the_other_fields_are_passed_on() -> None:
    params = wanted(seed=7, time_unit="ms", value_type="int64", id_key=b"k" * 16)
    assert (params.seed, params.time_unit, params.value_type) == (7, "ms", "int64")
    assert params.id_key == b"k" * 16
    assert params == ds.SketchParams.from_dict(params.to_dict(), id_key=params.id_key)


@for_each(
    "changes, message",
    [
        ({"epsilon": 0}, "epsilon is 0; expected a number between 0 and 1"),
        ({"epsilon": 1.0}, "epsilon is 1.0"),
        ({"epsilon": "0.1"}, "epsilon is '0.1'"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": True}, "delta is True"),
        ({"mode": "paper"}, "mode is 'paper'; expected one of practical, proven"),
        ({"aggregate": "mean"}, "aggregate is 'mean'; expected one of sum, share"),
        ({"expected": 0}, "expected is 0; expected an integer of 1 or more"),
        ({"expected": 1e6}, "expected is 1000000.0"),
        ({"max_weight": 0}, "max_weight is 0"),
        ({"max_weight": 2**60}, "max_weight is 1152921504606846976; expected at most"),
        ({"max_weight": 2**32, "expected": 1}, "max_weight is 4294967296; expected an integer"),
    ],
)
def test_what_is_outside_its_domain_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ds.ParameterError, match=message):
        wanted(**changes)


def test_an_accuracy_that_no_capacity_gives_names_the_one_that_can_be_had() -> None:
    with pytest.raises(ds.ParameterError, match=r"epsilon is 0.001, .* at most 1048576") as caught:
        wanted(epsilon=0.001)
    smallest = float(str(caught.value).split("epsilon of ")[1].split()[0])
    assert wanted(epsilon=smallest * 1.05).capacity <= 1 << 20
    with pytest.raises(ds.ParameterError, match=r"60 / epsilon\^2 of Theorem 3.11"):
        wanted(epsilon=0.007, mode="proven")
    assert wanted(epsilon=0.0076, mode="proven").capacity <= 1 << 20


def test_a_delta_that_no_number_of_copies_gives_is_refused() -> None:
    with pytest.raises(ds.ParameterError, match=r"delta is 0.001; expected 0.0031 or more"):
        wanted(delta=0.001, mode="proven")
    assert wanted(delta=0.0032, mode="proven").copies == 63


def test_ids_that_would_collide_too_often_are_refused() -> None:
    """A tenth of the standard error, and both numbers are named."""
    bits, z = 25, norm.ppf(0.975)
    most = int(0.1 * 0.05 / z * 2 ** (bits + 1))
    assert wanted(max_weight=2**31, expected=most).id_bits == bits
    with pytest.raises(ds.ParameterError, match=r"expected is .* of 25-bit ids") as caught:
        wanted(max_weight=2**31, expected=most + 1)
    for number in ("0.0026", "epsilon 0.05", "delta 0.05", "2147483648"):
        assert number in str(caught.value)


@pytest.mark.parametrize(("mode", "copies"), [("practical", 1), ("proven", 7)])
def test_small_sketches_keep_what_is_promised(mode: str, copies: int) -> None:
    """Of 150 hashes no more miss than 1e-6 of the time, had each missed with probability delta."""
    epsilon, delta, hashes = 0.25, 0.2, 150
    rows = 20_000
    rng = np.random.default_rng(8)
    weights, times = rng.integers(1, 100, rows), np.arange(rows) // 7
    decay, now = ds.decay.polynomial(1.0, scale=100), int(times[-1])
    truth = float(np.sum(weights * decay(now - times)))
    missed = 0
    for seed in range(hashes):
        params = ds.SketchParams.for_accuracy(
            epsilon,
            delta,
            max_weight=99,
            expected=rows,
            mode=mode,
            seed=seed,  # type: ignore[arg-type]
        )
        assert params.copies == copies
        sketch = ds.DecaySketch(params)
        sketch.update(np.zeros(rows), weights, times, rng.permutation(rows))
        combine = "average" if mode == "practical" else "median"
        answer = sketch.sum(decay, now=now, combine=combine)  # type: ignore[arg-type]
        missed += abs(answer.value - truth) > epsilon * truth
    assert missed <= binom.ppf(1 - 1e-6, hashes, delta)
