"""Decays: their values and edges, what they refuse, and that they are plain values."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch import decay

OLDEST = 2**63  # of two times within 2^62 of 0

EXAMPLES: list[decay.Decay] = [
    decay.window(60),
    decay.window(0),
    decay.window(59.5),
    decay.exponential(rate=0.01),
    decay.exponential(half_life=3600),
    decay.polynomial(1),
    decay.polynomial(2.5, scale=60),
    decay.none(),
    decay.piecewise([(60, 1.0), (3600, 0.25)]),
    decay.piecewise([(10, 2)], beyond=0.5),
]


def identify(example: decay.Decay) -> str:
    return repr(example)


# ------------------------------------------------------------------------------------------ values


def test_a_window_is_inclusive() -> None:
    assert decay.window(60)([0, 59, 60, 61]).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert decay.window(0)([0, 1]).tolist() == [1.0, 0.0]
    assert decay.window(59.5)([59, 60]).tolist() == [1.0, 0.0]
    assert decay.window(59.5)([59.4, 59.5, 59.6]).tolist() == [1.0, 1.0, 0.0]


def test_a_window_compares_integer_ages_exactly_beyond_the_integers_of_a_float() -> None:
    width = 2**53 + 1  # rounds to 2^53 as a float
    assert decay.window(width)(np.array([width, width + 1])).tolist() == [1.0, 0.0]
    assert decay.piecewise([(width, 1)])(np.array([width, width + 1])).tolist() == [1.0, 0.0]
    assert decay.window(10**30)(np.array([2**63 - 1])).tolist() == [1.0]


def test_exponential_by_rate_and_by_half_life_agree() -> None:
    ages = np.arange(1000)
    by_rate = decay.exponential(rate=math.log(2) / 60)(ages)
    np.testing.assert_allclose(decay.exponential(half_life=60)(ages), by_rate, rtol=1e-12)
    assert decay.exponential(half_life=60)([0, 60, 120]).tolist() == [1.0, 0.5, 0.25]
    np.testing.assert_allclose(decay.exponential(rate=0.5)([1.0, 2.0]), np.exp([-0.5, -1.0]))


def test_polynomial_and_piecewise_by_hand() -> None:
    assert decay.polynomial(1)([0, 1, 3]).tolist() == [1.0, 0.5, 0.25]
    np.testing.assert_allclose(decay.polynomial(2, scale=10)([0, 10, 30]), [1.0, 0.25, 0.0625])
    steps = decay.piecewise([(10, 3), (20, 1)], beyond=0.5)
    assert steps([0, 10, 11, 20, 21, 10**9]).tolist() == [3.0, 3.0, 1.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize("example", EXAMPLES, ids=identify)
def test_any_age_of_any_kind_of_column_gives_a_finite_weight(example: decay.Decay) -> None:
    as_integers = np.array([0, 1, 10**6, 2**62, 2**63 - 1])
    columns: list[Any] = [
        as_integers,
        as_integers.astype(np.float64),
        [0, 1, 2],
        5,
        np.empty(0, int),
    ]
    columns.append(np.array([0, 2**63 - 1, OLDEST], dtype=np.uint64))
    for column in columns:
        weights = example(column)  # a warning would be an error here
        assert weights.dtype == np.float64
        assert weights.shape == np.shape(column)
        assert np.isfinite(weights).all()
        assert (weights >= 0).all()
    np.testing.assert_array_equal(example(as_integers[:3]), example(as_integers[:3].astype(float)))


positive = st.floats(1e-300, 1e300, allow_subnormal=False)
steps = st.lists(st.tuples(st.integers(0, 2**62), st.floats(0, 1e9)), min_size=1, max_size=5).map(
    lambda pairs: list(
        zip(
            sorted({age for age, _ in pairs}),
            sorted((weight for _, weight in pairs), reverse=True),
            strict=False,
        )
    )
)
any_decay = st.one_of(
    st.floats(0, 1e300).map(decay.window),
    positive.map(lambda rate: decay.exponential(rate=rate)),
    positive.map(lambda half_life: decay.exponential(half_life=half_life)),
    st.tuples(positive, positive).map(lambda pair: decay.polynomial(*pair)),
    st.just(decay.none()),
    steps.map(decay.piecewise),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(any_decay, st.lists(st.integers(0, OLDEST), min_size=2, max_size=20))
def test_weights_do_not_rise_with_age_and_stop_at_the_support(
    example: decay.Decay, ages: list[int]
) -> None:
    column = np.array(sorted(ages), dtype=np.uint64)
    weights = example(column)
    # Libraries' exponentials are right to a unit in the last place, not exactly monotone.
    assert (np.diff(weights) <= 4e-16 * weights[:-1]).all()
    beyond = np.array([float(age) > example.support * (1 + 1e-15) for age in sorted(ages)])
    assert (weights[beyond] == 0).all()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(any_decay)
def test_a_decay_survives_json_and_is_a_value(example: decay.Decay) -> None:
    copy = decay.from_dict(json.loads(json.dumps(example.to_dict())))
    assert copy == example
    assert hash(copy) == hash(example)
    assert eval(repr(example), vars(decay)) == example
    assert isinstance(copy, ds.Decay)


def test_different_decays_differ() -> None:
    assert len(set(EXAMPLES)) == len(EXAMPLES)
    assert decay.window(60) == decay.window(60.0) == decay.window(np.int64(60))


@pytest.mark.parametrize("example", EXAMPLES, ids=identify)
def test_a_decay_is_frozen(example: decay.Decay) -> None:
    for name in example.to_dict().keys() - {"kind"}:
        with pytest.raises(AttributeError):
            setattr(example, name, 1)


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, -1, "60", None, True, [60], 10**400]
)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("width", decay.window),
        ("rate", lambda bad: decay.exponential(rate=bad)),
        ("half_life", lambda bad: decay.exponential(half_life=bad)),
        ("exponent", decay.polynomial),
        ("scale", lambda bad: decay.polynomial(1, scale=bad)),
        ("beyond", lambda bad: decay.piecewise([(1, 1)], beyond=bad)),
        (r"steps\[0\] age", lambda bad: decay.piecewise([(bad, 1)])),
        (r"steps\[1\] weight", lambda bad: decay.piecewise([(1, 9), (2, bad)])),
    ],
)
def test_what_is_no_number_of_the_domain_is_refused_by_name(name: str, make: Any, bad: Any) -> None:
    with pytest.raises(ds.ParameterError, match=name):
        make(bad)


@pytest.mark.parametrize("make", [lambda: decay.exponential(rate=0), lambda: decay.polynomial(0)])
def test_a_rate_or_exponent_of_zero_is_refused(make: Any) -> None:
    with pytest.raises(ds.ParameterError, match="expected a finite number > 0"):
        make()


@for_each(
    "fields, message",
    [
        ({"kind": "sliding"}, "kind is 'sliding'; expected one of exponential"),
        ({"kind": ["window"]}, "kind is"),
        ({"width": 3}, "kind is None"),
        ({"kind": "window"}, "width of decay 'window' is missing"),
        ({"kind": "polynomial", "scale": 2}, "exponent of decay 'polynomial' is missing"),
        ({"kind": "piecewise"}, "steps of decay 'piecewise' is missing"),
        ({"kind": "window", "width": 3, "widht": 4}, "unknown field 'widht' of decay 'window'"),
        ({"kind": "none", "rate": 1}, "unknown field 'rate'"),
        ({"kind": "exponential"}, "rate is None and half_life is None"),
        ({"kind": "exponential", "rate": 1, "half_life": 2}, "expected one of them"),
        ({"kind": "piecewise", "steps": []}, "expected one or more pairs"),
        ({"kind": "piecewise", "steps": "ab"}, "expected one or more pairs"),
        ({"kind": "piecewise", "steps": [[1]]}, r"steps\[0\] is \[1\]; expected a pair"),
        ({"kind": "piecewise", "steps": ["ab"]}, r"steps\[0\] is 'ab'; expected a pair"),
        ({"kind": "piecewise", "steps": [[2, 1], [2, 1]]}, r"steps\[1\] age is 2; expected more"),
        ({"kind": "piecewise", "steps": [[1, 1], [2, 3]]}, r"steps\[1\] weight is 3; expected at"),
        ({"kind": "piecewise", "steps": [[1, 1]], "beyond": 2}, "beyond is 2; expected at most 1"),
    ],
)
def test_a_dictionary_that_is_no_decay_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ds.ParameterError, match=message):
        decay.from_dict(fields)


# ------------------------------------------------------------------------------------- extension


class Linear(decay.Decay):
    """1 at age 0, falling to 0 at an age of 100."""

    def __call__(self, ages: Any) -> Any:
        return np.maximum(0.0, 1.0 - np.asarray(ages) / 100.0)

    @property
    def support(self) -> float:
        return 100.0

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "linear"}


class Rising(Linear):
    def __call__(self, ages: Any) -> Any:
        return np.asarray(ages) * 1.0


class Wild(Linear):
    def __call__(self, ages: Any) -> Any:
        return np.full(np.shape(ages), np.nan)


def test_a_decay_of_the_users_own_is_asked_like_any_other() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1))
    sketch.update([1.0, 2.0, 3.0], 1, [100, 150, 0], [1, 2, 3])
    assert sketch.count(Linear(), now=150).value == 1.5
    for wrong in (Rising(), Wild()):
        with pytest.raises(ds.ParameterError, match="expected finite numbers >= 0"):
            sketch.count(wrong, now=150)
