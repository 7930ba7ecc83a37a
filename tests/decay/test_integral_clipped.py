"""Integral decays that take a loss from a weight and cap the rest, for weights up to 10^6."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from decaysketch.decay import integral
from decaysketch.errors import ParameterError

TOP = 1_000_000
WITHIN = 1 << 16  # operations, as the aggregator allows

Values = Callable[[int, int], int]

KINDS: tuple[tuple[str, int, Values, int], ...] = (
    ("max(w - x, 0)", TOP, lambda w, x: max(w - x, 0), TOP + 1),
    ("min(w, floor(600/(1 + x)))", TOP, lambda w, x: min(w, 600 // (1 + x)), 49),
    ("min(w, floor(6*10**8/(1 + x)))", TOP, lambda w, x: min(w, 6 * 10**8 // (1 + x)), 48_390),
    ("max(w - 3*x**2, 0)", TOP, lambda w, x: max(w - 3 * x * x, 0), 579),
    ("max(w - ceil(x/60), 0)", 20_000, lambda w, x: max(w + -x // 60, 0), 20_001),
    ("max(floor(w - x/7), 0)", 20_000, lambda w, x: max(w - -(-x // 7), 0), 20_001),
    (
        "max(min(w - 2*x, 900) - floor(x/3), 0)", TOP,
        lambda w, x: max(min(w - 2 * x, 900) - x // 3, 0), 2_701,
    ),
    (
        "min(w, floor(1000*exp(-x/60)))", TOP,
        lambda w, x: min(w, int(mpmath.floor(1000 * mpmath.exp(-mpmath.mpf(x) / 60)))), 229,
    ),
    # 3 x^5 has no 62 bits at all ages that are tried
    ("max(w - 3*x**5, 0)", TOP, lambda w, x: max(w - 3 * x**5, 0), 14),
)  # fmt: skip


@pytest.mark.parametrize(("text", "top", "f", "steps"), KINDS, ids=[kind[0] for kind in KINDS])
def test_values_and_expiries_are_those_of_the_definition(
    text: str, top: int, f: Values, steps: int
) -> None:
    with integral.at_most(WITHIN):
        decay = integral.expression(text, max_weight=top)
        table = decay.steps(top)
    assert table.losses is not None
    assert len(table) == steps <= integral.MAX_STEPS
    rng = np.random.default_rng(steps)
    last = int(table.ages[-1])
    weights = np.exp(rng.uniform(0, math.log(top), 10_000)).astype(np.int64)
    ages = np.exp(rng.uniform(0, math.log(last + 2), 10_000)).astype(np.int64) - 1
    expected = [f(w, x) for w, x in zip(weights.tolist(), ages.tolist(), strict=True)]
    assert decay(weights, ages).tolist() == expected
    left = (weights * rng.random(10_000)).astype(np.int64)
    found = decay.expiry_ages(weights, left, top).tolist()
    some = list(zip(weights.tolist(), left.tolist(), found, strict=True))[:2_000]
    assert all(f(w, age) <= k and (age == 0 or f(w, age - 1) > k) for w, k, age in some)
    assert (decay(0, [0, 1]) == 0).all()


def test_smaller_weights_and_other_forms_of_a_table() -> None:
    decay = integral.expression("max(w - 2*x, 0)", max_weight=5_000)
    for top in (1, 999, 5_000):
        table = decay.steps(top)
        assert table.max_weight == top
        values = [max(top - 2 * x, 0) for x in range(len(table))]
        assert table.at(np.int64(top), np.arange(len(table))).tolist() == values
        assert values[-1] == 0 < values[-2]
    again = integral.from_dict(decay.to_dict())
    assert again == decay == pickle.loads(pickle.dumps(decay))
    assert again.steps(5_000).digest == decay.steps(5_000).digest
    # A text whose values fit a table of all is one, as before: its bytes say so.
    assert integral.expression("max(w - 2*x, 0)", max_weight=200).steps(200).losses is None


@pytest.mark.parametrize(
    ("text", "top", "message"),
    [
        ("w - x", 90_000, r"f\(1, 3\) is -2; expected 0 to 90000"),
        ("min(w, x + 1)", 90_000, r"f\[90000\]\[1\] is 2; expected at most the value one age"),
        (
            "max(w - (9 - x)**2, 0)",
            90_000,
            r"f\[81\]\[1\] is 17; expected at most the value one age",
        ),
        ("max(w - x*(9 - x), 0)", 90_000, "takes more than"),  # it rises above w
        ("max(w - x/2, 0)", 90_000, r"f\(0, 1\) is no integer; expected floor"),
        ("max(w - floor(1/x), 0)", 90_000, "divides by 0"),
        ("min(w, 5)", 90_000, "still positive at age"),
        ("max(w - x, 0)", 1 << 23, "has more than 1048576 steps"),
        ("max(w - floor(x/10**6), 0)", 1_000_000, "takes more than 65536 operations"),
        ("max(w - floor(log(1 + x)), 0)", 90_000, "operations|still positive"),
        ("max(w - floor((1 + x)**e**9), 0)*min(x, 1)", 90_000, "takes more than"),
    ],
)
def test_faults_are_named_within_the_operations_of_a_server(
    text: str, top: int, message: str
) -> None:
    with pytest.raises(ParameterError, match=message), integral.at_most(WITHIN):
        integral.expression(text, max_weight=top).steps(top)
