"""Integral decays: every value against multiprecision, and every promise the kernels rely on.

The oracle here is mpmath with hundreds of digits, which the library does not use: it computes
``w g(x)`` and rounds down, taking a value within 10^-100 of an integer as that integer.
"""

from __future__ import annotations

import math
import pickle
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from hashlib import blake2b

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import for_each

from decaysketch.decay import integral
from decaysketch.decay.integral import IntegralDecay, StepTable, _exact
from decaysketch.errors import ParameterError

Real = Callable[[int], "mpmath.mpf"]

DIGITS = mpmath.MPContext()
DIGITS.dps = 250


def floor_of(value: mpmath.mpf) -> int:
    nearest = int(DIGITS.nint(value))
    if abs(value - nearest) < DIGITS.mpf(10) ** -100:
        return nearest
    return int(DIGITS.floor(value))


def real(number: float | Fraction) -> mpmath.mpf:
    exact = Fraction(number)
    return DIGITS.mpf(exact.numerator) / exact.denominator


def e_to(rate: float | Fraction) -> Real:
    return lambda x: DIGITS.exp(-real(rate) * x)


def two_to(half_life: float | Fraction) -> Real:
    return lambda x: DIGITS.power(2, -x / real(half_life))


def power(exponent: float | Fraction, scale: int = 1) -> Real:
    return lambda x: DIGITS.power(1 + DIGITS.mpf(x) / scale, -real(exponent))


SMOOTH: list[tuple[IntegralDecay, Real, int]] = [
    (integral.exponential(rate=0.01), e_to(0.01), 999),
    (integral.exponential(rate=1), e_to(1), 100_000),
    (integral.exponential(rate=Fraction(1, 3)), e_to(Fraction(1, 3)), 2**31),
    (integral.exponential(rate=0.7), e_to(0.7), 1),
    (integral.exponential(half_life=60), two_to(60), 999),
    (integral.exponential(half_life=2.5), two_to(2.5), 1024),
    (integral.exponential(half_life=0.1), two_to(0.1), 7),
    (integral.exponential(half_life=Fraction(7, 3)), two_to(Fraction(7, 3)), 2**20),
    (integral.exponential(half_life=86_400), two_to(86_400), 20),  # fewer fractions than ages
    (integral.polynomial(1), power(1), 999),
    (integral.polynomial(2), power(2), 1000),
    (integral.polynomial(0.5), power(0.5), 60),
    (integral.polynomial(1.5, scale=4), power(1.5, 4), 1000),
    (integral.polynomial(Fraction(2, 3), scale=8), power(Fraction(2, 3), 8), 100),
    (integral.polynomial(1.1), power(1.1), 300),
    (integral.polynomial(5, scale=100), power(5, 100), 2**31),
    (integral.polynomial(1, scale=3600), power(1, 3600), 15),
]
NAMES = [f"{decay!r} {max_weight}" for decay, _, max_weight in SMOOTH]

LISTED: list[tuple[IntegralDecay, int]] = [
    (integral.window(0), 5),
    (integral.window(200), 999),
    (integral.window(integral.MAX_AGE - 1), 2**31),
    (integral.halving(), 999),
    (integral.halving(10), 2**31),
    (integral.fractions([1, (2, 3), Fraction(1, 3), (333, 1000)]), 50),
    (integral.function(lambda w, x: w * 7 // (7 + x * x) * (x < 60), max_weight=40, ages=61), 40),
    (integral.function(lambda w, x: np.maximum(w - x, 0), max_weight=30, ages=31), 30),
    (integral.table([[0, 0], [0, 0], [2, 0], [2, 0]]), 3),
]
EVERY = [(decay, max_weight) for decay, _, max_weight in SMOOTH] + LISTED


def sample_of_ages(steps: StepTable, rng: random.Random, count: int) -> list[int]:
    """Ages at steps, right before them, and between."""
    ages = steps.ages.tolist()
    chosen = set(rng.sample(ages, min(count, len(ages)))) | {0, ages[-1], ages[-1] + 5}
    chosen |= {max(age - 1, 0) for age in chosen}
    return sorted(chosen | {rng.randrange(ages[-1] + 1) for _ in range(count)})


def sample_of_weights(max_weight: int, rng: random.Random, count: int) -> list[int]:
    chosen = {1, max_weight, *(rng.randint(1, max_weight) for _ in range(count))}
    return sorted(chosen | {min(2 ** rng.randrange(32), max_weight) for _ in range(5)})


class TestValues:
    @pytest.mark.parametrize(("decay", "g", "max_weight"), SMOOTH, ids=NAMES)
    def test_are_the_mathematical_ones(
        self, decay: IntegralDecay, g: Real, max_weight: int
    ) -> None:
        rng = random.Random(f"{decay!r}")
        steps = decay.steps(max_weight)
        weights = sample_of_weights(max_weight, rng, 12)
        ages = sample_of_ages(steps, rng, 60)
        found = decay(np.array(weights)[:, None], np.array(ages)[None, :])
        at = np.searchsorted(steps.ages, ages, side="right") - 1
        tabled = steps.at(np.array(weights)[:, None], at[None, :])
        for column, age in enumerate(ages):
            values = [floor_of(weight * g(age)) for weight in weights]
            assert found[:, column].tolist() == values
            assert tabled[:, column].tolist() == values

    @pytest.mark.parametrize(("decay", "g", "max_weight"), SMOOTH, ids=NAMES)
    def test_of_the_table_are_farey_fractions(
        self, decay: IntegralDecay, g: Real, max_weight: int
    ) -> None:
        steps = decay.steps(max_weight)
        rng = random.Random(3)
        for s in rng.sample(range(len(steps)), min(len(steps), 50)):
            p, q = int(steps.numerators[s]), int(steps.denominators[s])
            assert math.gcd(p, q) == 1
            assert 1 <= q <= max_weight
            value = g(int(steps.ages[s]))
            assert value >= DIGITS.mpf(p) / q - DIGITS.mpf(10) ** -100
            if max_weight <= 1000:  # no fraction of the order in between
                best = max(Fraction(floor_of(b * value), b) for b in range(1, max_weight + 1))
                assert best == Fraction(p, q)

    def test_ties_are_values_of_perfect_powers(self) -> None:
        cubes = integral.polynomial(Fraction(2, 3))
        for root in range(2, 40):
            age = root**3 - 1
            assert cubes(root**2, [age - 1, age, age + 1]).tolist() == [1, 1, 0]
            assert cubes(5 * root**2, age) == 5
        squares = integral.polynomial(0.5, scale=4)
        for root in range(3, 200):  # sqrt(4 / (4 + x)) = 2 / root at x = root^2 - 4
            assert squares(root, [root**2 - 4, root**2 - 3]).tolist() == [2, 1]
        halves = integral.exponential(half_life=Fraction(7, 2))
        for k in range(1, 9):
            assert halves(2**k, [7 * k // 2, 7 * k // 2 + 1]).tolist() == [1, 0]

    def test_of_halving(self) -> None:
        f = integral.halving(10)
        for w, x in ((999, 0), (999, 9), (999, 10), (7, 29), (7, 30), (2**31, 310), (2**31, 10**9)):
            assert f(w, x) == w >> min(x // 10, 32)

    def test_of_fractions(self) -> None:
        g = [Fraction(1), Fraction(997, 1009), Fraction(1, 3), Fraction(10**30, 7 * 10**30 + 1)]
        f = integral.fractions([1, (997, 1009), Fraction(1, 3), g[3]])
        steps = f.steps(100)
        for x, w in ((x, w) for x in range(6) for w in range(101)):
            value = w * g[x].numerator // g[x].denominator if x < 4 else 0
            assert f(w, x) == value
            assert steps.at(np.array(w), np.searchsorted(steps.ages, x, side="right") - 1) == value

    def test_of_a_function(self) -> None:
        def f(w: int, x: int) -> int:
            return max(w - x * x, 0)

        decay = integral.function(lambda w, x: np.maximum(w - x * x, 0), max_weight=50, ages=9)
        for w in range(51):
            assert decay(w, np.arange(20)).tolist() == [f(w, x) for x in range(20)]
        assert decay == integral.table([[f(w, x) for x in range(12)] for w in range(51)])

    def test_broadcast(self) -> None:
        f = integral.exponential(half_life=10)
        assert f([[4], [8]], [0, 10, 20]).tolist() == [[4, 2, 1], [8, 4, 2]]
        assert f(4, 10).shape == ()
        assert f([], []).dtype == np.int64
        assert f(0, 3) == 0

    @given(
        exponent=st.fractions(Fraction(1, 4), 6, max_denominator=12),
        scale=st.integers(1, 10**6),
        age=st.integers(0, 10**7),
        weight=st.integers(1, 2**31),
    )
    def test_of_any_polynomial(self, exponent: Fraction, scale: int, age: int, weight: int) -> None:
        found = integral.polynomial(exponent, scale)(weight, age)
        assert found == floor_of(weight * power(exponent, scale)(age))

    @given(
        rate=st.floats(1e-9, 40, exclude_min=True),
        age=st.integers(0, 10**9),
        weight=st.integers(1, 2**31),
    )
    def test_of_any_exponential(self, rate: float, age: int, weight: int) -> None:
        assert integral.exponential(rate=rate)(weight, age) == floor_of(weight * e_to(rate)(age))
        found = integral.exponential(half_life=1 / rate)(weight, age)
        assert found == floor_of(weight * two_to(1 / rate)(age))


class TestSteps:
    @pytest.mark.parametrize(("decay", "max_weight"), EVERY, ids=lambda v: f"{v!r}")
    def test_are_of_the_promised_form(self, decay: IntegralDecay, max_weight: int) -> None:
        steps = decay.steps(max_weight)
        k = len(steps)
        assert steps.max_weight == max_weight
        assert steps.ages[0] == 0
        assert (np.diff(steps.ages) > 0).all()
        assert steps.ages.dtype == np.int64
        assert steps.ages[-1] <= integral.MAX_AGE
        weights = np.array(sample_of_weights(max_weight, random.Random(8), 300))
        grid = steps.at(weights[:, None], np.arange(k)[None, :])
        assert (np.diff(grid, axis=1) <= 0).all()
        assert (np.diff(grid, axis=0) >= 0).all()
        assert not grid[:, -1].any()
        assert grid.max() <= max_weight
        if steps.values is None:
            assert steps.numerators.shape == steps.denominators.shape == (k,)
            pairs = np.stack([steps.numerators, steps.denominators])
            assert (pairs[:, 1:] != pairs[:, :-1]).any(axis=0).all()
        else:
            assert steps.numerators.shape == steps.denominators.shape == (0,)
            assert steps.values.shape == (max_weight + 1, k)
            assert not steps.values[0].any()
            assert (steps.values[:, 1:] != steps.values[:, :-1]).any(axis=0).all()
        for column in (steps.ages, steps.numerators, steps.denominators, steps.values):
            assert column is None or not column.flags.writeable

    def test_hold_at_every_age(self) -> None:
        """A table is built by leaps, values one by one."""
        compared = 0
        for decay, max_weight in EVERY:
            steps = decay.steps(max_weight)
            if max_weight > 1024 or steps.ages[-1] > 2000:
                continue
            compared += 1
            ages, weights = np.arange(int(steps.ages[-1]) + 2), np.arange(max_weight + 1)[:, None]
            at = np.searchsorted(steps.ages, ages, side="right") - 1
            assert np.array_equal(decay(weights, ages[None, :]), steps.at(weights, at[None, :]))
        assert compared > 15

    def test_are_computed_once(self) -> None:
        first = integral.exponential(rate=0.25).steps(100)
        assert integral.exponential(rate=Fraction(1, 4)).steps(100) is first
        assert integral.exponential(rate=0.25).steps(99) is not first

    @pytest.mark.parametrize(
        ("decay", "max_weight", "digest"),
        [
            (integral.exponential(rate=0.01), 999, "b03c9aabdb05008030f8d3b2e5ade2a7"),
            (integral.polynomial(1.5, scale=10), 999, "1136dd6bbeb8dc7b54e5efaf8d9e821d"),
            (integral.window(200), 999, "713ed12f00ff336550c005a3bde30ff9"),
            (integral.halving(), 999, "05f8caba9e5797de34635eb26f9adb0b"),
            (integral.table([[0, 0], [1, 0], [1, 0]]), 2, "c30cfc83ecc8f6637b0745b188dd474b"),
        ],
        ids=lambda v: f"{v!r}",
    )
    def test_have_a_digest_that_never_changes(
        self, decay: IntegralDecay, max_weight: int, digest: str
    ) -> None:
        steps = decay.steps(max_weight)
        assert steps.digest.hex() == digest
        packed = struct.pack("<QQQ", max_weight, len(steps), steps.values is not None)
        for column in (steps.ages, steps.numerators, steps.denominators):
            packed += struct.pack(f"<{len(column)}q", *column.tolist())
        if steps.values is not None:
            packed += struct.pack(f"<{steps.values.size}q", *steps.values.ravel().tolist())
        assert steps.digest == blake2b(packed, digest_size=16, person=b"ds-steps-1").digest()

    def test_of_a_table_serve_smaller_weights(self) -> None:
        decay = integral.table([[0, 0], [1, 0], [3, 0], [3, 0]])
        assert decay.steps(1).values is not None
        assert decay.steps(1).at(np.array([1]), np.array([0])).tolist() == [1]
        with pytest.raises(ParameterError, match=r"f\(2, 0\) is 3; expected at most 2"):
            decay.steps(2)
        with pytest.raises(ParameterError, match="max_weight is 4; expected at most 3"):
            decay.steps(4)

    @pytest.mark.parametrize(
        ("decay", "max_weight"),
        [
            (integral.exponential(rate=1e-8), 2**20),
            (integral.polynomial(1), 2**31),
            (integral.polynomial(1, scale=10**6), 2**16),
        ],
        ids=repr,
    )
    def test_too_many_are_refused_before_computing(
        self, decay: IntegralDecay, max_weight: int
    ) -> None:
        with pytest.raises(ParameterError, match=r"has up to \d+ steps .* a coarser time unit"):
            decay.steps(max_weight)

    @pytest.mark.parametrize(
        ("decay", "max_weight"),
        [
            (integral.exponential(rate=2**-64), 999),
            (integral.exponential(half_life=2**64), 2),
            (integral.polynomial(2**-64), 2),
            (integral.polynomial(0.01, scale=1), 2),
            (integral.halving(2**61), 4),
        ],
        ids=repr,
    )
    def test_ages_beyond_the_limit_are_refused(self, decay: IntegralDecay, max_weight: int) -> None:
        with pytest.raises(ParameterError, match="is still positive at age"):
            decay.steps(max_weight)


class TestExpiryAges:
    @pytest.mark.parametrize(("decay", "max_weight"), EVERY, ids=lambda v: f"{v!r}")
    def test_are_the_first_ages_of_so_little(self, decay: IntegralDecay, max_weight: int) -> None:
        rng = random.Random(5)
        weights = np.array([rng.randint(1, max_weight) for _ in range(400)])
        deltas = np.array([rng.randrange(int(w * rng.random() ** 3) + 2) for w in weights])
        ages = decay.expiry_ages(weights, deltas, max_weight)
        assert ages.dtype == np.int64
        for w, delta, age in zip(weights[:100], deltas[:100], ages[:100], strict=True):
            assert decay(w, age) <= delta
            assert age == 0 or decay(w, age - 1) > delta

    def test_of_closed_forms_equal_binary_search(self) -> None:
        """10^5 pairs for every decay of a closed form."""
        rng = np.random.default_rng(17)
        forms = [(d, n) for d, n in EVERY if d.has_closed_form]
        assert len(forms) >= 20
        for decay, max_weight in forms:
            steps = decay.steps(max_weight)
            weights = rng.integers(1, max_weight + 1, 100_000)
            deltas = (weights * rng.random(100_000) ** 3).astype(np.int64)
            found = decay.expiry_ages(weights, deltas, max_weight)
            low = np.zeros(len(weights), dtype=np.int64)
            for step in (1 << k for k in reversed(range(len(steps).bit_length()))):
                probe = np.minimum(low + step, len(steps)) - 1  # f is above delta up to there?
                low = np.where(steps.at(weights, probe) > deltas, probe + 1, low)
            assert np.array_equal(found, steps.ages[low])

    def test_of_decays_without_one(self) -> None:
        assert not integral.table([[0, 0], [1, 0]]).has_closed_form
        assert not integral.fractions([1]).has_closed_form

    def test_plain_float_forms_disagree_with_the_definition(self) -> None:
        """Why closed forms are a first guess: w * (1 / (x + 1)) in float64 falls short of ties."""
        weights = np.arange(1, 1000)[:, None]
        ages = np.arange(1000)[None, :]
        plain = np.floor(weights * np.reciprocal(ages + 1.0)).astype(np.int64)
        exact = integral.polynomial(1)(weights, ages)
        assert (exact == weights // (ages + 1)).all()
        assert exact[48, 48] == 1 != plain[48, 48]
        assert (plain != exact).sum() > 100


class TestDictionaries:
    @pytest.mark.parametrize(("decay", "max_weight"), EVERY, ids=lambda v: f"{v!r}")
    def test_round_trip(self, decay: IntegralDecay, max_weight: int) -> None:
        fields = decay.to_dict()
        assert integral.from_dict(fields, table=decay) == decay
        if fields["kind"] not in ("fractions", "table"):
            again = integral.from_dict(fields)
            assert again == decay
            assert hash(again) == hash(decay)
            assert again.to_dict() == fields
        copied = pickle.loads(pickle.dumps(decay))
        assert copied == decay
        steps = pickle.loads(pickle.dumps(decay.steps(max_weight)))
        assert copied.steps(max_weight) == steps == decay.steps(max_weight)
        assert not steps.ages.flags.writeable

    def test_equal_parameters_make_equal_decays(self) -> None:
        assert integral.exponential(rate=1) == integral.exponential(rate=1.0)
        assert integral.exponential(rate=0.5) == integral.exponential(rate=Fraction(1, 2))
        assert integral.exponential(rate=1) != integral.exponential(half_life=1)
        assert integral.exponential(rate=Fraction(1, 3)).to_dict()["rate"] == "1/3"
        assert integral.window(np.int64(5)) == integral.window(5)

    def test_equal_fractions_and_tables(self) -> None:
        assert integral.fractions([1, (2, 4)]) == integral.fractions([(3, 3), Fraction(1, 2)])
        assert integral.fractions([1, (2, 4)]) != integral.fractions([1, (2, 5)])
        assert integral.table([[0, 0], [1, 0]]) == integral.table([[0, 0, 0], [1, 0, 0]])
        assert integral.table([[0, 0], [1, 0]]) != integral.table([[0, 0, 0], [1, 1, 0]])

    @for_each(
        "fields, message",
        [
            ({}, "kind is None"),
            ({"kind": "none"}, "kind is 'none'"),
            ({"kind": ["window"]}, "kind is"),
            ({"kind": "window"}, "width of decay 'window' is missing"),
            ({"kind": "window", "width": 1, "scale": 1}, "unknown field 'scale'"),
            ({"kind": "exponential"}, "rate is None and half_life is None"),
            ({"kind": "exponential", "rate": "1/0"}, "rate is '1/0'"),
            ({"kind": "exponential", "rate": "9" * 400}, "rate is '9"),
            ({"kind": "exponential", "rate": float("nan")}, "rate is nan"),
            ({"kind": "polynomial", "exponent": True}, "exponent is True"),
            ({"kind": "table", "max_weight": 1, "steps": 2, "digest": ""}, "named by its digest"),
        ],
    )
    def test_faults_are_named(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            integral.from_dict(fields)

    def test_another_table_is_refused(self) -> None:
        one, other = integral.table([[0, 0], [1, 0]]), integral.table([[0, 0, 0], [1, 1, 0]])
        with pytest.raises(ParameterError, match="table is"):
            integral.from_dict(one.to_dict(), table=other)


class TestFaults:
    @for_each(
        "make, message",
        [
            (lambda: integral.window(-1), "width is -1"),
            (lambda: integral.window(1.5), "width is 1.5"),  # type: ignore[arg-type]
            (lambda: integral.window(2**62), "width is 4611686018427387904"),
            (lambda: integral.halving(0), "period is 0"),
            (lambda: integral.exponential(), "rate is None"),
            (lambda: integral.exponential(rate=1, half_life=1), "expected one of them"),
            (lambda: integral.exponential(rate=0), "rate is 0"),
            (lambda: integral.exponential(rate=math.inf), "rate is inf"),
            (lambda: integral.exponential(rate=1e-20), "rate is 1e-20"),
            (lambda: integral.exponential(rate=Fraction(1, 3**90)), "rate is"),
            (lambda: integral.exponential(rate=1 + Fraction(1, 3**90)), "a denominator of at most"),
            (lambda: integral.polynomial(-1), "exponent is -1"),
            (lambda: integral.polynomial(1, scale=0), "scale is 0"),
            (lambda: integral.fractions([]), "expected one or more"),
            (lambda: integral.fractions([0.5]), r"fractions\[0\] is 0.5"),  # type: ignore[list-item]
            (lambda: integral.fractions([(1, 0)]), r"fractions\[0\] is \(1, 0\)"),
            (lambda: integral.fractions([2]), r"fractions\[0\] is 2; expected 0 to 1"),
            (lambda: integral.fractions([(1, 2), 1]), r"fractions\[1\] is 1; expected 0 to 1/2"),
            (lambda: integral.table([0, 0]), "shape"),
            (lambda: integral.table([[0.0], [0.0]]), "dtype float64"),
            (lambda: integral.table([[0, 0], [2, 0]]), r"values\[1\]\[0\] is 2; expected 0 to 1"),
            (lambda: integral.table([[1, 0], [1, 0]]), r"values\[0\]\[0\] is 1; expected 0"),
            (lambda: integral.table([[0, 0], [0, 1]]), r"values\[1\]\[1\] is 1; expected at most"),
            (lambda: integral.table([[0], [1]]), r"values\[1\]\[0\] is 1; expected 0 at the last"),
            (
                lambda: integral.table([[0, 0], [1, 0], [0, 0]]),
                r"values\[2\]\[0\] is 0; expected at least",
            ),
            (
                lambda: integral.function(lambda w, x: w / (x + 1), max_weight=2, ages=3),
                "f gave dtype float64",
            ),
            (
                lambda: integral.function(lambda w, x: w, max_weight=2**20, ages=2**20),
                "f has 1099512676352 cells",
            ),
            (lambda: integral.window(5).steps(0), "max_weight is 0"),
            (lambda: integral.fractions([(1, 9)]).steps(8), r"f\(8, 0\) of .* is 0; expected more"),
            (lambda: integral.window(5)([1.5], 0), "weights has dtype float64"),
            (lambda: integral.window(5)([1], -1), "ages holds -1"),
            (lambda: integral.window(5)(2**31 + 1, 1), "weights holds 2147483649"),
            (lambda: integral.window(5).expiry_ages([3], [-1], 9), "positions holds -1"),
            (lambda: integral.window(5).expiry_ages([10], [1], 9), "weights holds 10"),
        ],
    )
    def test_are_named_with_both_values(self, make: Callable[[], object], message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            make()


class TestExactArithmetic:
    def test_neighbours_by_enumeration(self) -> None:
        for order in range(1, 13):
            farey = sorted({Fraction(p, q) for q in range(1, order + 1) for p in range(q + 1)})
            for denominator in range(1, 61):
                for numerator in range(denominator):
                    p, q, r, s = _exact.farey_floor(numerator, denominator, order)
                    value = Fraction(numerator, denominator)
                    assert (p, q) == max(f for f in farey if f <= value).as_integer_ratio()
                    assert (r, s) == min(f for f in farey if f > value).as_integer_ratio()

    @given(st.integers(20, 600), st.data())
    def test_enclosures_hold_the_value(self, bits: int, data: st.DataObject) -> None:
        y = data.draw(st.integers(0, 2 ** (bits + 8)))
        low, high = _exact.exp_of_negative(y, y, bits)
        one = DIGITS.mpf(2) ** bits
        assert low <= DIGITS.exp(-DIGITS.mpf(y) / one) * one <= high
        assert high - low <= 2
        m = data.draw(st.integers(1, 2**64))
        low, high = _exact.log_of_integer(m, bits)
        assert low <= DIGITS.log(m) * one <= high
        assert high - low <= 2
        low, high = _exact.log_of_two(bits)
        assert low <= DIGITS.ln(2) * one <= high
