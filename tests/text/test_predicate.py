"""Predicates: the meaning of each text, held against plain Python, and what is refused."""

from __future__ import annotations

import copy
import math
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch.core.text.predicate import MAX_DEPTH, MAX_OPERATIONS, MAX_TEXT, Predicate
from decaysketch.errors import ParameterError

# --------------------------------------------------------------------- meaning, by plain Python

Row = dict[str, float]
Sides = tuple[str, Callable[[Row], Any]]


def defined(compute: Callable[..., float], *numbers: float) -> float:
    """NaN where Python has no result, and where an operand has none."""
    if any(math.isnan(number) for number in numbers):
        return math.nan
    try:
        return compute(*numbers)
    except ZeroDivisionError:
        return math.nan


OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
POWERS: dict[str, Callable[[float], float]] = {
    "0": lambda _a: 1.0,
    "1": lambda a: a,
    "2": lambda a: a * a,
    "-1": lambda a: 1.0 / a,
}
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b and not math.isnan(a) and not math.isnan(b),
}


@st.composite
def literals(draw: st.DrawFn) -> Sides:
    text = draw(
        st.one_of(
            st.integers(0, 30).map(str),
            st.sampled_from(["0.5", ".25", "2.", "1e3", "7E-2", "1e300", "0.0"]),
        )
    )
    return text, lambda _row: float(text)


def names() -> st.SearchStrategy[Sides]:
    return st.sampled_from(["v", "w"]).map(lambda name: (name, lambda row: row[name]))


def arithmetic(inner: st.SearchStrategy[Sides]) -> st.SearchStrategy[Sides]:
    def binary(left: Sides, operator: str, right: Sides) -> Sides:
        compute = OPERATORS[operator]
        return (
            f"({left[0]}) {operator} ({right[0]})",
            lambda row: defined(compute, left[1](row), right[1](row)),
        )

    def power(base: Sides, exponent: str) -> Sides:
        compute = POWERS[exponent]
        return f"({base[0]}) ** {exponent}", lambda row: defined(compute, base[1](row))

    def extreme(name: str, parts: list[Sides]) -> Sides:
        choose = {"min": min, "max": max}[name]
        return (
            f"{name}({', '.join(text for text, _ in parts)})",
            lambda row: defined(
                lambda *numbers: choose(numbers), *(part(row) for _, part in parts)
            ),
        )

    return st.one_of(
        st.builds(binary, inner, st.sampled_from(sorted(OPERATORS)), inner),
        st.builds(
            extreme, st.sampled_from(["min", "max"]), st.lists(inner, min_size=1, max_size=3)
        ),
        st.builds(power, inner, st.sampled_from(sorted(POWERS))),
        inner.map(lambda side: (f"-({side[0]})", lambda row: -side[1](row))),
        inner.map(lambda side: (f"abs({side[0]})", lambda row: abs(side[1](row)))),
        inner.map(lambda side: (f"+({side[0]})", side[1])),
    )


numbers = st.recursive(st.one_of(literals(), names()), arithmetic, max_leaves=5)


@st.composite
def comparisons(draw: st.DrawFn) -> Sides:
    sides = draw(st.lists(numbers, min_size=2, max_size=3))
    relations = draw(
        st.lists(
            st.sampled_from(sorted(RELATIONS)), min_size=len(sides) - 1, max_size=len(sides) - 1
        )
    )
    text = sides[0][0] + "".join(
        f" {relation} ({side[0]})" for relation, side in zip(relations, sides[1:], strict=True)
    )

    def holds(row: Row) -> bool:
        values = [side(row) for _, side in sides]
        return all(
            RELATIONS[relation](a, b)
            for relation, a, b in zip(relations, values, values[1:], strict=False)
        )

    return text, holds


def conditions(inner: st.SearchStrategy[Sides]) -> st.SearchStrategy[Sides]:
    return st.one_of(
        inner.map(lambda part: (f"not ({part[0]})", lambda row: not part[1](row))),
        st.builds(
            lambda a, b: (f"({a[0]}) and ({b[0]})", lambda row: a[1](row) and b[1](row)),
            inner,
            inner,
        ),
        st.builds(
            lambda a, b: (f"({a[0]}) or ({b[0]})", lambda row: a[1](row) or b[1](row)),
            inner,
            inner,
        ),
    )


VALUES = [0.0, 1.0, -1.0, 2.0, 3.5, -7.25, 1e308, -1e-300, 30.0]
ROWS = [(v, w) for v in VALUES for w in (1, 2, 999)]


@settings(max_examples=300, deadline=None)
@given(st.recursive(comparisons(), conditions, max_leaves=4))
def test_every_text_means_what_it_says_in_python(case: Sides) -> None:
    text, holds = case
    if len(text) > MAX_TEXT:
        return
    values, weights = (np.array(column) for column in zip(*ROWS, strict=True))
    expected = [holds({"v": float(v), "w": float(w)}) for v, w in ROWS]
    found = Predicate(text)(values, weights)
    assert found.dtype == np.bool_
    assert found.tolist() == expected, text


@for_each(
    "text, expected",
    [
        ("v > 1", [False, True, True]),
        ("v / w >= 2", [False, False, True]),
        ("1 < v <= 2", [False, True, False]),
        ("v % 2 == 1 and not w == 2", [False, False, False]),
        ("v % 2 == 1 or w == 1", [True, False, False]),
        ("v ** 2 == v + 2", [False, True, False]),
        ("-v ** 2 < 0", [False, True, True]),
        ("v ** -1 > 0", [False, True, True]),
        ("1 / v > -1", [False, True, True]),  # 1 / 0 is no number
        ("1 / v != 1", [False, True, True]),
        ("not 1 / v > -1", [True, False, False]),
        ("v // 0 == v // 0", [False, False, False]),
        ("v % 0 < 1 or v % 0 >= 1", [False, False, False]),
        ("(-8 - v) ** 0.5 < 0 or (-8 - v) ** 0.5 >= 0", [False, False, False]),
        ("v ** 0 == 1", [True, True, True]),
        ("1e308 * 10 > 1e308", [True, True, True]),
        ("v == 0 or v == 6", [True, False, True]),
        ("1 < 2", [True, True, True]),
        ("  w==2  ", [False, True, False]),
    ],
)
def test_by_example(text: str, expected: list[bool]) -> None:
    for dtype in (np.int64, np.float64):
        found = Predicate(text)(np.array([0, 2, 6], dtype), np.array([1, 2, 3]))
        assert found.tolist() == expected


def test_a_power_binds_as_in_python() -> None:
    found = Predicate("v ** 0.5 > 1.5")(np.array([2.0, 3.0, 4.0]), np.ones(3, np.int64))
    assert found.tolist() == [False, True, True]


def test_large_whole_numbers_are_compared_exactly() -> None:
    big = 2**53 + 1
    values, weights = np.array([big - 1, big, big + 1]), np.ones(3, np.int64)
    assert Predicate(f"v == {big}")(values, weights).tolist() == [False, True, False]
    assert Predicate(f"-v == {big}")(values, weights).tolist() == [False, False, False]
    assert Predicate(f"{big} < v")(values, weights).tolist() == [False, False, True]
    assert Predicate(f"v > -{10**70}")(values, weights).all()
    assert Predicate(f"v < {10**70} and {10**70} > {10**69}")(values, weights).all()
    assert Predicate(f"v < {10**70}")(values.astype(np.float64), weights).all()


def test_no_rows_have_no_answer() -> None:
    assert Predicate("v > 1")(np.empty(0), np.empty(0, np.int64)).shape == (0,)
    assert Predicate("1 > 0")(np.empty(0), np.empty(0, np.int64)).shape == (0,)


def test_a_sketch_takes_one_as_its_predicate() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=40))
    values = np.ma.masked_array([1.0, 2.0, 3.0, 0.0], mask=[False, False, False, True])
    sketch.update(values, [1, 2, 3, 4], [0, 0, 0, 0], [1, 2, 3, 4])
    found = sketch.selectivity(Predicate("v >= 2 and w < 3"), ds.decay.none(), now=0)
    assert found.value == pytest.approx(2 / 6)
    assert found.exact


def test_the_columns_are_left_as_they_are() -> None:
    values, weights = np.array([-1.0, 2.0]), np.array([1, 2])
    values.setflags(write=False)
    held = Predicate("abs(v) > 1")(values, weights)
    held[:] = True  # its own memory
    assert values.tolist() == [-1.0, 2.0]


def test_equal_texts_are_equal_predicates() -> None:
    one = Predicate("v > 1")
    assert one == Predicate("v > 1") != Predicate("v > 2")
    assert len({one, Predicate("v > 1")}) == 1
    for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert again == one
        assert again([2.0], [1]).tolist() == [True]
    assert repr(one) == "Predicate('v > 1')"


# ---------------------------------------------------------------------------------- what is refused


@for_each(
    "text, named",
    [
        ("", "is empty"),
        ("   ", "is empty"),
        (7, "is of type int"),
        ("v", "'v' at character 0; expected a truth value"),
        ("v + 1", "expected a truth value"),
        ("1", "expected a truth value"),
        ("v and w > 1", "'v' at character 0; expected a truth value"),
        ("w > 1 and not v", "'v' at character 14; expected a truth value"),
        ("1 + (v > 2) > 1", "'v > 2' at character 5; expected a number"),
        ("(v > 1) > (w > 1)", "'v > 1' at character 1; expected a number"),
        ("not v + 1", "'v + 1' at character 4"),
        ("  v > q", "'q' at character 6; expected one of v, w"),
        ("v if v > 1 else w", "'if' at character 2"),
        ("v in w", "'w' at character 5; expected a label in quotes"),
        ("v in ()", "'v in ()' at character 0; expected v == 'a'"),
        ("v in (1,)", "'1' at character 6; expected a label in quotes"),
        ("w in ('a',)", "at character 0; expected v == 'a'"),
        ("f'a' == v", "'f' at character 0"),
        ("v == 'a", '"\'" at character 5'),
        ("v == 'a\\x41'", '"\'" at character 5'),
        ("v == 'é' == 'é'", "at character 5; expected a decimal number"),
        ("v == 'ééé' and q > 1", "'q' at character 15"),
        ("startswith(w, 'a')", "at character 0; expected a truth value"),
        ("v is w", "'is' at character 2"),
        ("lambda > 1", "'lambda' at character 0"),
        ("True", "'True' at character 0"),
        ("v.real > 1", "'real' at character 2"),
        ("v[0] > 1", "'[' at character 1"),
        ("v > 'a'", "at character 0; expected v == 'a'"),
        ("v; w", "';' at character 1"),
        ("v > 1 # w", "'#' at character 6"),
        ("v\n> 1", r"'\n' at character 1"),
        ("v := 1", "':' at character 2"),
        ("v & w > 1", "'&' at character 2"),
        ("v > \u0661", "'\u0661' at character 4"),
        ("\uff56 > 1", "'\uff56' at character 0"),
        ("v > 1\x00", r"'\x00' at character 5"),
        ("\ud800 > 1", r"'\ud800' at character 0"),
        ("v > 0x10", "'0x' at character 4"),
        ("v > 1_0", "'_' at character 5"),
        ("v > 1j", "'1j' at character 4"),
        ("v > 1or w > 1", "'1o' at character 4"),
        ("v > 1.2.3", "'1.2.' at character 4"),
        ("v > 01", "cannot be read at character 4"),
        ("v >", "cannot be read at character 3"),
        ("v > (1", "cannot be read at character 4"),
        ("v > 1 2", "cannot be read at character 6"),
        ("v = 1", "cannot be read at character 2"),
        ("v <> 1", "cannot be read"),
        ("(v, w) > 1", "'(v, w)' at character 0; expected a number"),
        ("() > 1", "'()' at character 0; expected a number"),
        ("min() > 1", "'min()' at character 0; expected a number"),
        ("abs(v, w) > 1", "'abs(v, w)' at character 0"),
        ("max(v=1) > 1", "'max(v=1)' at character 0"),
        ("max(*v) > 1", "'*v' at character 4; expected a number"),
        ("v(1) > 1", "'v(1)' at character 0"),
        ("abs > 1", "'abs' at character 0"),
        ("(abs)(v)(w) > 1", "'(abs)(v)(w)' at character 0"),
        ("v ** w > 1", "'w' at character 5; expected an exponent that is a number from -64 to 64"),
        ("v ** 65 > 1", "'65' at character 5; expected an exponent"),
        ("v ** -64.5 > 1", "'-64.5' at character 5; expected an exponent"),
        ("9 ** 9 ** 9 > 1", "expected an exponent"),
        ("v ** (1 + 1) > 1", "expected an exponent"),
        ("v > 1e400", "'1e400' at character 4; expected a number of at most 78 digits"),
        ("v > 1e99999", "expected a number of at most 78 digits"),
        ("v > " + "9" * 400, "expected a number of at most 78 digits"),
        ("-" + "9" * 79 + " < v", "expected a number of at most 78 digits"),
        ("v > " + "1" * MAX_TEXT, "has 504 characters; expected at most 500"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_name(text: Any, named: str) -> None:
    with pytest.raises(ParameterError) as refused:
        Predicate(text)
    assert named in str(refused.value)


@for_each(
    "text",
    [
        "(" * 200 + "v" + ")" * 200 + " > 1",
        "(" * 249 + ")" * 249,
        "not " * 120 + "v > 1",
        "-" * 400 + "v > 1",
        "v" + "+v" * 240 + " > 1",
        "v > 1" + " and v > 1" * 49,
        "v" + " < v" * 120,
        "max(" * 90 + "v" + ")" * 90 + " > 1",
        "max(" + "v," * 240 + "v) > 1",
        "v" + "**9" * 160 + " > 1",
        "v" + "**-9" * 120 + " > 1",
        "v>1e" + "9" * 490,
        "v>" + "1e999," * 80,
        "1" * 499 + ">v"[:1],
        "**" * 250,
        "v>" * 250,
    ],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    values, weights = np.linspace(-1e9, 1e9, 1_000), np.ones(1_000, np.int64)
    begun = time.process_time()
    with suppress(ParameterError):
        Predicate(text)(values, weights)
    assert time.process_time() - begun < 0.5


def test_limits_are_as_stated() -> None:
    deepest = "-" * MAX_DEPTH + "v > 1"
    with pytest.raises(ParameterError, match="more than 50 operations within each other"):
        Predicate(deepest + "0 and v > 1")
    Predicate("-" * (MAX_DEPTH - 1) + "v > 1")
    most = "v > 1" + " or v > 1" * (MAX_OPERATIONS // 2 - 1)
    Predicate(most)
    with pytest.raises(ParameterError, match=f"more than {MAX_OPERATIONS} operations"):
        Predicate(most + " or v > 1 or v > 1")
