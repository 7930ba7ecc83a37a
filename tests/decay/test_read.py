"""Spellings of decays: one reader, units converted exactly, hostile texts at a bounded cost."""

from __future__ import annotations

import json
import re
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch import decay
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.decay import integral
from decaysketch.decay.read import MAX_TEXT, fields_of, kind_of

ROOT = Path(__file__).parents[2]

# ------------------------------------------------------------------------------------ spelled again

positive = st.one_of(
    st.integers(1, 10**308), st.floats(min_value=5e-324, allow_infinity=False, allow_nan=False)
)
at_least_0 = st.one_of(st.just(0), positive)


@st.composite
def steps(draw: st.DrawFn) -> decay.Decay:
    ages = sorted(set(draw(st.lists(at_least_0, min_size=1, max_size=5))))
    size = len(ages)
    weights = sorted(draw(st.lists(at_least_0, min_size=size + 1, max_size=size + 1)))[::-1]
    return decay.piecewise([*zip(ages, weights, strict=False)], beyond=weights[-1])


FORMULAS = ["1/(1 + x/60)", "exp(-x/0.3)", "where(x <= 60, 1, 0.5)", "w * max(1 - x/7, 0)"]
named = st.one_of(
    at_least_0.map(decay.window),
    positive.map(lambda rate: decay.exponential(rate=rate)),
    positive.map(lambda half_life: decay.exponential(half_life=half_life)),
    st.builds(decay.polynomial, positive, positive),
    st.just(decay.none()),
    steps(),
    st.sampled_from(FORMULAS).map(decay.expression),
)
ratio = st.builds(Fraction, st.integers(1, 2**60), st.integers(1, 2**60))
fixed = st.one_of(
    st.integers(0, 2**62 - 2).map(integral.window),
    ratio.map(lambda rate: integral.exponential(rate=rate)),
    ratio.map(lambda half_life: integral.exponential(half_life=half_life)),
    st.builds(integral.polynomial, ratio, st.integers(1, 2**40)),
    st.integers(1, 2**40).map(integral.halving),
    st.sampled_from(["floor(w / (1 + x/60))", "floor(w * exp(-x/7))"]).map(integral.expression),
    st.integers(1, 9).map(lambda most: integral.expression("max(w - 2*x, 0)", max_weight=most)),
)


@settings(max_examples=300, deadline=None)
@given(chosen=named, unit=st.sampled_from(["s", "us", "ticks", None]))
@example(decay.window(5e-324), None)
@example(decay.piecewise([(10**308, 1.7976931348623157e308)]), None)
def test_str_of_a_decay_is_a_spelling_of_it(chosen: decay.Decay, unit: str | None) -> None:
    for text in (str(chosen), f"  {chosen}\n", json.dumps(chosen.to_dict())):
        assert decay.parse(text, unit) == chosen
        assert str(decay.parse(text, unit)) == str(chosen)
    assert decay.parse(chosen.to_dict(), unit) == chosen


@settings(max_examples=200, deadline=None)
@given(chosen=fixed)
def test_so_is_str_of_a_fixed_decay(chosen: integral.IntegralDecay) -> None:
    for text in (str(chosen), str(chosen).removeprefix("integral."), json.dumps(chosen.to_dict())):
        assert integral.parse(text) == chosen


def test_every_kind_is_spelled_here() -> None:
    from decaysketch.decay import read

    kinds = {decay.parse(text, "s").to_dict()["kind"] for text, _ in documented()}
    assert kinds == set(read._KINDS)
    assert set(read._PLACED) == {*read._KINDS, *integral._KINDS}


# -------------------------------------------------------------------------------------------- units


@settings(max_examples=300, deadline=None)
@given(
    length=st.one_of(st.integers(0, 10**20), st.decimals(0, 10**6, places=3).map(str)),
    unit=st.sampled_from(sorted(NANOSECONDS)),
    stream=st.sampled_from(sorted(NANOSECONDS)),
)
def test_a_length_of_time_is_converted_exactly_or_refused(
    length: Any, unit: str, stream: str
) -> None:
    exact, text = Fraction(str(length)) * NANOSECONDS[unit] / NANOSECONDS[stream], f"{length}{unit}"
    if exact.denominator == 1 or Fraction(repr(float(exact))) == exact:
        width = decay.parse(f"window({text})", stream).to_dict()["width"]
        assert Fraction(repr(width)) == exact
        assert isinstance(width, int) == (exact.denominator == 1)
    else:
        refused = f"'{text}' at character 7; expected a decimal number"
        with pytest.raises(ds.ParameterError, match=refused):
            decay.parse(f"window({text})", stream)
    said = fields_of(f"exponential(half_life={length} {unit})", stream, fixed=True)["half_life"]
    assert Fraction(said) == exact


def test_units_stand_where_times_do() -> None:
    assert decay.parse("window(90s)", "min") == decay.window(1.5)
    assert decay.parse("window(100ms)", "s") == decay.window(0.1)
    assert decay.parse("polynomial(2, scale=1d)", "h") == decay.polynomial(2, scale=24)
    assert decay.parse("piecewise([[1min, 1], (1h, .5)])", "s") == decay.piecewise(
        [(60, 1), (3600, 0.5)]
    )
    assert integral.parse("halving(period=10min)", "s") == integral.halving(600)
    assert integral.parse("exponential(half_life=1min)", "h") == integral.exponential(
        half_life=Fraction(1, 60)
    )


# ------------------------------------------------------------------------------- what is documented


def documented() -> list[tuple[str, str]]:
    """Rows of the table of spellings: a text, and JSON, for a stream in seconds."""
    text = (ROOT / "docs" / "decays.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \| `(\{[^`]+\})` \|", text, re.MULTILINE)


def test_the_table_of_spellings_is_true() -> None:
    rows = documented()
    assert len(rows) >= 10
    for text, form in rows:
        assert decay.parse(text, "s") == decay.parse(form) == decay.from_dict(json.loads(form))


# ------------------------------------------------------------------------------------ hostile texts


@for_each(
    "text, named",
    [
        (5, "the decay is of type int; expected a text"),
        (None, "is of type NoneType"),
        (b"none", "is of type bytes"),
        ("", "decay '' is none of window, exponential, polynomial, none, piecewise, expression"),
        ("\0", "is none of"),
        ("halflife(60)", "'halflife' at character 0; expected one of"),
        ("window", "width of decay 'window' is missing"),
        ("window(", "its end at character 7; expected a number"),
        ("window()", "width of decay 'window' is missing"),
        ("window(60", "its end at character 9; expected a comma or )"),
        ("window(60;61)", "';61)' at character 9; expected a word, number or sign"),
        ("window(60 61)", "'61' at character 10; expected a comma or )"),
        ("window(60)(61)", "'(' at character 10; expected the end"),
        ("window(60) + 1", "'+ 1' at character 11; expected a word, number or sign"),
        ("window(60, 61)", "'61' at character 11; expected name=value"),
        ("window(60, width=61)", "'61' at character 17; expected width once"),
        ("window(width)", "')' at character 12; expected = and a value"),
        ("window(x=1)", "unknown field 'x' of decay 'window'"),
        ("window('60')", "width is '60'; expected a length of time"),
        ("window(1e999)", "width is inf"),
        ("window(1e9999s)", "expected at most 400 digits, and 3 of an exponent"),
        ("window(" + "9" * 401 + ")", "expected at most 400 digits"),
        ("window(9" + "0" * 399 + "d)", "expected a finite number"),
        ("window(1 parsec)", "'parsec' at character 9; expected a unit that can be converted"),
        ("window(-1h)", "width is -3600; expected a finite number >= 0"),
        ("exponential(60)", "'60' at character 12; expected name=value"),
        ("exponential(rate=2h)", "'h' at character 18; expected a number without a unit"),
        ("exponential(half_life=0)", "half_life is 0"),
        ("piecewise(60)", "'60' at character 10; expected ["),
        ("piecewise([60])", "'60' at character 11; expected a pair (age, weight)"),
        ("piecewise([(60, 1])", "']' at character 17; expected )"),
        ("piecewise([(60, 1h)])", "'h' at character 17; expected a number without a unit"),
        ("piecewise([(60, 1) (61, 1)])", "'(' at character 19; expected a comma or ]"),
        ("piecewise([])", "steps is []"),
        ("piecewise([" + "(1,1)," * 3_000, "more than 4096 values; expected at most that"),
        ("integral.window(60)", "'integral.window' at character 0; expected one of window"),
        ("halving(10)", "kind is 'halving'"),
        ("expression('x')", "rises"),
        ("expression('1', 2)", "'2' at character 16; expected name=value"),
        ("{", "decay '{' is not JSON"),
        ("{}", "kind is None"),
        ("[1]", "is none of"),
        ('{"a":' * 3_000, "is not JSON"),
        ('{"kind": "window", "width": ' + "9" * 5_000 + "}", "is not JSON"),
        ("window(" + " " * MAX_TEXT, "has 20007 characters; expected at most 20000"),
        ("{" + " " * MAX_TEXT, "has 20001 characters; expected at most 20000"),
        ("1" * (MAX_TEXT + 1), "characters; expected at most 500"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_place(text: Any, named: str) -> None:
    with pytest.raises(ds.ParameterError) as refused:
        decay.parse(text, "s")
    assert named in str(refused.value)
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("exp(half_life=6h)", "exponential"), ("exp(rate=2)", "exponential"),
        ("windw(1h)", "window"), ("Window(1h)", "window"), ("poly(2, scale=10s)", "polynomial"),
        ("exponential_decay(half_life=6h)", "exponential"),
        ("integral.exp(half_life=6h)", "exponential"),
    ],
)  # fmt: skip
def test_a_kind_that_is_nearly_named_is_asked_for(text: str, meant: str) -> None:
    for parse in (decay.parse, integral.parse):
        with pytest.raises(ds.ParameterError, match=rf" is none.* \(did you mean {meant}\?\)"):
            parse(text, "s")
    with pytest.raises(ds.ParameterError, match="did you mean halving"):
        integral.parse("halve(10)")


@pytest.mark.parametrize("text", ["exp(-x/6h)", "max(x)", "sliding(1h)", "1/(1 + y)", "floor(w)("])
def test_what_is_no_kind_nearly_is_not(text: str) -> None:
    for parse in (decay.parse, integral.parse):
        with pytest.raises(ds.ParameterError) as refused:
            parse(text, "s")
        assert "did you mean" not in str(refused.value)


def test_units_need_a_unit_to_be_converted_to() -> None:
    assert decay.parse("window(60)") == decay.window(60)
    with pytest.raises(ds.ParameterError, match="'h' at character 8; expected no unit"):
        decay.parse("window(1h)")
    with pytest.raises(ds.ParameterError, match="converted to the stream's unit 'ticks'"):
        decay.parse("window(1h)", "ticks")


def test_the_kind_is_told_at_a_glance() -> None:
    assert [kind_of(text) for text in ("none", " window (", "integral.halving(3)")] == [
        "none", "window", "halving",
    ]  # fmt: skip
    assert [kind_of(text) for text in ("", "{}", "exp(-x)", "nonesuch", "none such")] == [None] * 5


FRAGMENTS = [
    *("window", "piecewise", "expression", "none", "integral.", "half_life", "steps", "=", "(("),
    *("(", ")", "[", "]", ",", "'", '"', "{", "}", ":", "1", "9" * 50, "e9", ".", "-", "h", "min"),
    *(" ", "\n", "\0", "\u0661", "\ud800", "[(1,1),", "(1,", "\\", "**", "__import__", "\uff57"),
]
hostile = st.builds(
    lambda begun, parts, times: (begun + "".join(parts) * times)[:MAX_TEXT],
    st.sampled_from(["", "window(", "piecewise([", "expression('", "polynomial(1,", "none", "{"]),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12),
    st.sampled_from([1, 1, 1, 40, 2_000]),
)


@settings(max_examples=300, deadline=None)
@given(text=hostile)
@example("window(-" + "9" * 396 + ".5ns)")
@example("window(" + "(" * 19_000)
@example("window('" + "''" * 9_000)
@example("piecewise([" + "(1,1)," * 2_000)
@example("window(" + "9" * 19_000)
@example("window" + " " * 19_000 + "x")
def test_a_hostile_text_takes_calls_and_memory_in_proportion(text: str) -> None:
    calls, peak = cost(lambda: fields_of(text, "s"))
    assert calls <= 100 + 30 * len(text)
    assert peak <= 200_000 + 500 * len(text)


def cost(work: Callable[[], Any]) -> tuple[int, int]:
    """Calls, of Python's and of C functions, and the most bytes held."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    tracemalloc.start()
    sys.setprofile(count)
    try:
        with suppress(ds.ParameterError):
            work()
    finally:
        sys.setprofile(before)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return calls, peak
