"""Integral decays from a text: the same values as the named decays, and as multiprecision."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from decaysketch.decay import integral
from decaysketch.decay.integral import IntegralDecay, _evaluate, _exact
from decaysketch.decay.terms import term_of
from decaysketch.errors import ParameterError

DIGITS = mpmath.MPContext()
DIGITS.dps = 250


def floor_of(value: mpmath.mpf) -> int:
    nearest = int(DIGITS.nint(value))
    if abs(value - nearest) < DIGITS.mpf(10) ** -100:
        return nearest
    return int(DIGITS.floor(value))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("floor(w*exp(-x/100))", integral.exponential(rate=Fraction(1, 100))),
        ("floor(w*exp(-0.01*x))", integral.exponential(rate=Fraction(1, 100))),
        ("floor(w*2**(-x/60))", integral.exponential(half_life=60)),
        ("floor(w/2**(x/60))", integral.exponential(half_life=60)),
        ("floor(w*exp(-log(2)*x/60))", integral.exponential(half_life=60)),
        ("floor(w/(1+x))", integral.polynomial(1)),
        ("w//(1+x)", integral.polynomial(1)),
        ("floor(w/sqrt(1+x/4))", integral.polynomial(0.5, scale=4)),
        ("floor(w*(1+x/8)**(-2/3))", integral.polynomial(Fraction(2, 3), scale=8)),
        ("w//2**floor(x/10)", integral.halving(10)),
        ("where(x <= 60, w, 0)", integral.window(60)),
    ],
)
def test_named_decays_as_texts_are_the_same_tables(text: str, named: IntegralDecay) -> None:
    decay = integral.expression(text)
    for max_weight in (1, 2, 60, 200):
        assert decay.steps(max_weight) == named.steps(max_weight)
    rng = np.random.default_rng(1)
    weights, ages = rng.integers(0, 2**31, 50), rng.integers(0, 200, 50)
    assert (decay(weights, ages) == named(weights, ages)).all()
    weights = rng.integers(1, 201, 10_000)
    deltas = (weights * rng.random(10_000) ** 2).astype(np.int64)
    expected = named.expiry_ages(weights, deltas, 200)
    assert (decay.expiry_ages(weights, deltas, 200) == expected).all()


@pytest.mark.parametrize(
    ("text", "g", "closed"),
    [
        ("floor(w/(1 + log(1 + x/60)))", lambda x: 1 / (1 + DIGITS.log(1 + x / 60)), True),
        ("floor(w*exp(-(x/60)**2))", lambda x: DIGITS.exp(-((x / 60) ** 2)), True),
        ("floor(w*max(0, 1 - x/500))", lambda x: max(DIGITS.mpf(0), 1 - x / 500), False),
        ("floor(w*exp(-sqrt(x)/pi))", lambda x: DIGITS.exp(-DIGITS.sqrt(x) / DIGITS.pi), True),
        ("floor(w*where(x < 30, 1, 1/e))", None, False),
    ],
)
def test_values_are_the_mathematical_ones(
    text: str, g: Callable[[mpmath.mpf], mpmath.mpf] | None, closed: bool
) -> None:
    decay, max_weight = integral.expression(text), 7
    if g is None:
        with pytest.raises(ParameterError, match="is still positive"):
            decay.steps(max_weight)
        assert decay([5, 5], [29, 30]).tolist() == [5, 1]
        return
    assert decay.has_closed_form == closed
    steps = decay.steps(max_weight)
    ages = {0, *steps.ages.tolist(), *(steps.ages[1:] - 1).tolist(), int(steps.ages[-1]) + 9}
    for age in ages:
        values = [floor_of(weight * g(DIGITS.mpf(age))) for weight in range(max_weight + 1)]
        assert decay(np.arange(max_weight + 1), age).tolist() == values
        step = np.searchsorted(steps.ages, age, side="right") - 1
        assert steps.at(np.arange(max_weight + 1), step).tolist() == values
    for weight in range(1, max_weight + 1):
        for delta in range(weight + 1):
            age = int(decay.expiry_ages(weight, delta, max_weight))
            assert decay(weight, age) <= delta
            assert age == 0 or decay(weight, age - 1) > delta


@pytest.mark.parametrize(
    ("text", "f"),
    [
        ("max(w - 2*x, 0)", lambda w, x: max(w - 2 * x, 0)),
        ("max(w - floor(x**2/3), 0)", lambda w, x: max(w - x * x // 3, 0)),
        ("floor(w*(1 - x/50))", lambda w, x: w * (50 - x) // 50 if x <= 50 else 0),
        (
            "floor(sqrt(w)*exp(-x/10))",
            lambda w, x: floor_of(DIGITS.sqrt(w) * DIGITS.exp(-x / DIGITS.mpf(10))),
        ),
        (
            "ceil(w/2 - x)*where(2*x < w, 1, 0)",
            lambda w, x: -((2 * x - w) // 2) if 2 * x < w else 0,
        ),
    ],
)
def test_other_texts_become_tables(text: str, f: Callable[[int, int], int]) -> None:
    decay = integral.expression(text, max_weight=30)
    last = int(decay.steps(30).ages[-1])
    for weight in range(31):
        expected = [f(weight, age) if age < last else 0 for age in range(60)]
        assert decay(weight, np.arange(60)).tolist() == expected
    assert f(30, last) == 0
    assert decay.steps(20).max_weight == 20


def test_dictionaries_and_pickles() -> None:
    rng = random.Random(2)
    for decay in (
        integral.expression("floor(w*exp(-x/7))"),
        integral.expression("max(w - x, 0)", max_weight=12),
    ):
        fields = decay.to_dict()
        again = integral.from_dict(fields)
        assert again == decay
        assert hash(again) == hash(decay)
        assert again.to_dict() == fields
        assert pickle.loads(pickle.dumps(decay)) == decay
        weights = [rng.randint(0, 12) for _ in range(50)]
        assert (again(weights, 3) == decay(weights, 3)).all()
    assert integral.expression("floor(w*exp(-x/7))") == integral.expression("floor(w/exp(x/7))")
    with pytest.raises(ParameterError, match="text of decay 'expression' is missing"):
        integral.from_dict({"kind": "expression"})


@pytest.mark.parametrize(
    ("text", "max_weight", "message"),
    [
        ("floor(w*)", None, "expression"),
        ("__import__('os')", None, "expression"),
        ("max(w - x, 0)", None, "max_weight is None; expected an integer"),
        ("max(w - x, 0)", 0, "max_weight is 0"),
        ("w*exp(-x)", 5, "is no integer; expected floor"),
        ("max(w/2 - x, 0)", 5, r"f\(1, 0\) is no integer; expected floor"),
        ("floor(w/(1 + x)) + 1", 5, r"f\(5, 0\) is 6; expected 0 to 5"),
        ("floor(2*w/(1 + x))", 5, r"g\(\d+\) is 2; expected 0 to 1"),
        ("x", 5, r"f\(5, 0\) of .* is 0; expected more"),
        ("max(6 - w - x, 0)", 5, r"expected at least the value of the weight before"),
        ("min(w, 1 + x)*where(x < 9, 1, 0)", 5, r"at most the value one age earlier"),
        ("floor(w*(1 - x/10**9)) + 0*x", 5, "takes more than 262144 operations"),
        ("floor(sqrt(w)/(1 + x))", 90_000, "takes more than 262144 operations"),
    ],
)
def test_faults_are_named(text: str, max_weight: int | None, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        integral.expression(text, max_weight=max_weight).steps(max_weight or 5)


def test_what_could_not_be_read_again_is_refused() -> None:
    """The normal form is what is written to bytes: it has to be a text that may be said."""
    deep = "x"
    for _ in range(26):
        deep = f"({deep})//2"
    for text in (
        f"floor(w/(1 + {deep}))",
        "floor(w/(1 + x/7))*where(" + "x < 1 + " * 60 + "9, 1, 0)",
    ):
        try:
            decay = integral.expression(text, max_weight=5)
        except ParameterError:
            continue
        assert integral.from_dict(decay.to_dict()) == decay
    with pytest.raises(ParameterError, match="in normal form, which is refused"):
        integral.expression(f"floor(w/(1 + {deep}))")


@pytest.mark.parametrize("text", [[], {}, 7, None, b"floor(w)"])
def test_a_text_is_a_text(text: object) -> None:
    with pytest.raises(ParameterError, match="expected a text"):
        integral.expression(text)  # type: ignore[arg-type]


def test_readings_of_many_bits_cost_more() -> None:
    """Undecided at 128 bits, an age costs up to 1,024 times as much; of all ages there is a sum."""
    text = "floor(w*(1-exp(-1400-x*(1+1/7)**sqrt(x))))"
    with pytest.raises(ParameterError, match="operations"):
        integral.expression(text, max_weight=1000).steps(1000)


def test_an_operation_that_takes_long_counts_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """e^2000 is computed with 6,000 bits at every weight and age, in milliseconds."""
    squares, allowed, exp = [0], 1 << 15, _exact.exp_of_negative

    def counted(low: int, high: int, bits: int) -> tuple[int, int]:
        squares[0] += (bits // 128) ** 2
        assert squares[0] < 4 * allowed
        return exp(low, high, bits)

    monkeypatch.setattr(_exact, "exp_of_negative", counted)
    text = "min(floor(w*exp(-x/1000)), floor(exp(2000) + x))"
    with (
        integral.at_most(allowed),
        pytest.raises(ParameterError, match=f"takes more than {allowed} operations"),
    ):
        integral.expression(text, max_weight=999)


def test_a_root_of_a_long_fraction_counts_for_more() -> None:
    """It is found by bisection, in milliseconds where the fraction has thousands of bits."""
    root = _evaluate.compiled(term_of("((1 + x)**60 + 1)**(1/3)"))
    with integral.at_most(1 << 18) as short:
        root(0, 5, 128)
    with integral.at_most(1 << 18) as long:
        root(0, 1 << 61, 128)
    assert long.spent > 50 * short.spent


class TestAllowance:
    """Whoever reads texts of others allows fewer operations."""

    TEXT = "floor(w/(1 + x/50))"

    def test_it_bounds_what_is_computed(self) -> None:
        with integral.at_most(1000) as allowed, pytest.raises(ParameterError) as refused:
            integral.expression(self.TEXT).steps(400)
        assert "takes more than 1000 operations to compute here" in str(refused.value)
        assert 1000 < allowed.spent < 1100

    def test_it_is_the_same_whatever_was_computed_before(self) -> None:
        with integral.at_most(1 << 18) as fresh:
            integral.expression(self.TEXT).steps(300)
        with integral.at_most(1 << 18) as again:
            integral.expression(self.TEXT).steps(300)
        assert again.spent == fresh.spent > 1000
        with integral.at_most(1000), pytest.raises(ParameterError, match="operations"):
            integral.expression(self.TEXT).steps(300)

    def test_it_bounds_the_memory_of_a_table(self) -> None:
        text = "floor(w*where(x < 6, 1 - (x - x**2/9)/10**9, 0))"
        integral.expression(text, max_weight=1 << 17)
        with integral.at_most(1 << 16), pytest.raises(ParameterError, match="operations"):
            integral.expression(text, max_weight=1 << 17)

    def test_pauses_are_taken_again_and_again(self) -> None:
        for decay in (integral.expression("floor(w/(1 + x/40))"), integral.polynomial(1.25, 70)):
            pauses = []
            with integral.at_most(1 << 18, lambda: pauses.append(1)):  # noqa: B023
                table = decay.steps(200)
            assert len(pauses) >= len(table) - 2

    def test_who_computes_may_be_told_to_stop(self) -> None:
        def stop() -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError), integral.at_most(1 << 18, stop):
            integral.exponential(half_life=12345).steps(500)


def test_a_decay_keeps_its_steps_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream reads them with every sketch that comes."""
    computed = []
    table = integral.Polynomial._table

    def counted(self: integral.Polynomial, max_weight: int) -> integral.StepTable:
        computed.append(self)
        return table(self, max_weight)

    monkeypatch.setattr(integral.Polynomial, "_table", counted)
    decays = [integral.polynomial(2, 3000 + k) for k in range(20)]
    for _ in range(3):
        for decay in decays:
            decay.steps(10)
    assert len(computed) == 20
    assert len(pickle.dumps(decays[0])) < 500


def test_a_tie_that_is_not_seen_is_an_error_not_a_guess() -> None:
    """exp(-x/60)**log(2) is 1/2 at 60; its form does not show it."""
    with pytest.raises(ParameterError, match=r"g\(60\) cannot be told from a number it may be"):
        integral.expression("floor(w*(exp(-x/60)**log(2)))", max_weight=4)


class TestEvaluation:
    TEXTS = (
        ("exp(x/7 - 3)", lambda x: DIGITS.exp(x / DIGITS.mpf(7) - 3)),
        ("log(1 + x/7)", lambda x: DIGITS.log(1 + x / DIGITS.mpf(7))),
        ("log(1/(2 + x))", lambda x: -DIGITS.log(2 + x)),
        ("pi - e", lambda x: DIGITS.pi - DIGITS.e),
        ("sqrt(2 + x)", lambda x: DIGITS.sqrt(2 + x)),
        ("(2 + x)**pi", lambda x: DIGITS.power(2 + x, DIGITS.pi)),
        ("(pi + x)**-3", lambda x: (DIGITS.pi + x) ** -3),
        ("(pi - x)**3", lambda x: (DIGITS.pi - x) ** 3),
        ("2**(-x/7)*3**(1/3)", lambda x: 2 ** (-x / DIGITS.mpf(7)) * DIGITS.cbrt(3)),
        ("min(pi, x, e)", lambda x: min(DIGITS.pi, DIGITS.mpf(x), DIGITS.e)),
        ("max(pi, x/2)", lambda x: max(DIGITS.pi, x / DIGITS.mpf(2))),
        ("floor(pi*x)", lambda x: DIGITS.floor(DIGITS.pi * x)),
        ("ceil(e*x)", lambda x: DIGITS.ceil(DIGITS.e * x)),
        ("where(x > 3*pi, 1/x, sqrt(x))", lambda x: 1 / DIGITS.mpf(x) if x > 9 else DIGITS.sqrt(x)),
        ("1/(exp(-x) + 1)", lambda x: 1 / (DIGITS.exp(-x) + 1)),
    )  # fmt: skip

    @pytest.mark.parametrize(("text", "oracle"), TEXTS, ids=[text for text, _ in TEXTS])
    def test_enclosures_hold_the_value(
        self, text: str, oracle: Callable[[int], mpmath.mpf]
    ) -> None:
        evaluate = _evaluate.compiled(term_of(text, ("w", "x")))
        for x in (0, 1, 2, 7, 49, 343, 1000):
            for bits in (96, 256):
                value, expected = evaluate(0, x, bits), oracle(x)
                if isinstance(value, Fraction):
                    exact = DIGITS.mpf(value.numerator) / value.denominator
                    assert abs(exact - expected) < abs(expected) * DIGITS.mpf(10) ** -200 + 1e-200
                else:
                    scaled = expected * DIGITS.mpf(2) ** bits
                    assert value[0] <= scaled <= value[1]
                    assert value[1] - value[0] <= 64 + abs(scaled) * DIGITS.mpf(2) ** (20 - bits)

    @pytest.mark.parametrize(
        ("text", "x", "value"),
        [
            ("sqrt(x)", 49, 7),
            ("x**(2/3)", 27, 9),
            ("2**(-x/60)", 120, Fraction(1, 4)),
            ("(4/9)**(x/2)", 3, Fraction(8, 27)),
            ("log(x)*exp(x - 5)", 1, 0),
            ("exp(x - 5)", 5, 1),
        ],
    )
    def test_rational_values_stay_fractions(self, text: str, x: int, value: Fraction) -> None:
        assert _evaluate.compiled(term_of(text, ("w", "x")))(0, x, 64) == value

    @pytest.mark.parametrize(
        ("text", "x", "message"),
        [
            ("1/x", 0, "divides by 0"),
            ("log(x)", 0, "logarithm of a number <= 0"),
            ("sqrt(1 - x)", 3, "root of a number < 0"),
            ("exp(x)", 5000, "a power above"),
        ],
    )
    def test_undefined_values_are_errors(self, text: str, x: int, message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            _evaluate.compiled(term_of(text, ("w", "x")))(0, x, 64)
