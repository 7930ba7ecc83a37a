"""How large an ECM-sketch has to be: the search finds the best, ends at once, refuses the rest."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

from decaysketch.ecm import reference, sizing
from decaysketch.ecm.sizing import Kind, Query, Size
from decaysketch.errors import ParameterError

KINDS: tuple[Kind, ...] = ("wave", "eh")
QUERIES: tuple[Query, ...] = ("point", "inner")
CELLS = {"wave": reference.Wave, "eh": reference.EH}


def error_of(size: Size, delta: float, kind: Kind, query: Query, height: int, keys: int) -> float:
    """Lemmas 3 and 4 for whole numbers: the error that is kept with probability 1 - delta."""
    row_fails = (delta / keys) ** (1 / size.depth)
    colliding = 1 / (size.width * row_fails)  # epsilon_cm
    counted = 1 + sizing.cell_error(kind, size.slots)
    counted *= 1 + sizing.slack([sizing.merge_error(kind, size.slots)] * height)
    if query == "inner":
        counted *= counted
    return max(counted - 1, counted * colliding)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_cells_are_those_of_the_reference(kind: Kind) -> None:
    for slots in (2, 3, 5, 64, 16_384):
        cell = CELLS[kind](slots)
        assert sizing.cell_error(kind, slots) == float(cell.error)
        assert sizing.merge_error(kind, slots) == float(cell.merge_error)


@pytest.mark.parametrize(
    ("kind", "slots"), [("wave", [10, 5, 4, 3, 2, 2]), ("eh", [11, 6, 4, 3, 3, 3])]
)
def test_slots_are_the_fewest_that_will_do(kind: Kind, slots: list[int]) -> None:
    wanted = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert [sizing.slots_for(kind, epsilon) for epsilon in wanted] == slots
    for epsilon in (0.001, 0.0123, 0.07, 0.11, 1 / 9, 1 / 7, 0.249, 0.3, 0.99):
        fewest = sizing.slots_for(kind, epsilon)
        assert sizing.cell_error(kind, fewest) <= epsilon * (1 + 1e-9)
        assert fewest == 2 or sizing.cell_error(kind, fewest - 1) > epsilon


def test_slack_multiplies() -> None:
    assert sizing.slack([]) == 0.0
    assert sizing.slack([0.1]) == pytest.approx(0.1)
    assert sizing.slack([0.1, 0.2, 0.05]) == pytest.approx(1.1 * 1.2 * 1.05 - 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("height", [0, 1, 3])
@pytest.mark.parametrize("keys", [1, 1_000_000])
def test_sizes_keep_the_promise_and_nothing_smaller_does(
    kind: Kind, query: Query, height: int, keys: int
) -> None:
    for epsilon in (0.03, 0.05, 0.1, 0.15, 0.25, 0.6):
        for delta in (0.2, 0.1, 0.01):
            asked = (delta, kind, query, height, keys)
            size = sizing.size_for(epsilon, delta, kind=kind, query=query, height=height, keys=keys)
            assert error_of(size, *asked) <= epsilon * (1 + 1e-8)
            cells = math.prod(size)
            # Every depth and all slots up to four times as many, with the largest width that is
            # smaller: none of them keeps the promise.
            for depth in range(1, sizing.MAX_DEPTH + 1):
                for slots in range(2, 4 * size.slots):
                    width = (cells - 1) // (depth * slots)
                    if 1 <= width <= sizing.MAX_WIDTH:
                        smaller = Size(width, depth, slots)
                        assert error_of(smaller, *asked) > epsilon * (1 - 1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("query", QUERIES)
def test_the_search_is_never_worse_than_the_theorems(kind: Kind, query: Query) -> None:
    saved = []
    for epsilon in (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        for delta in (0.15, 0.1, 0.05, 0.01):
            printed = sizing.theorem_size(epsilon, delta, kind=kind, query=query)
            found = sizing.size_for(epsilon, delta, kind=kind, query=query)
            assert error_of(printed, delta, kind, query, 0, 1) <= epsilon * (1 + 1e-8)
            saved.append(1 - math.prod(found) / math.prod(printed))
    assert min(saved) >= 0
    assert 0.08 < sum(saved) / len(saved) < 0.2 < max(saved) < 0.3


def test_theorems_as_they_are_printed() -> None:
    assert sizing.theorem_size(0.05, 0.1) == (58, 3, 10)
    assert sizing.theorem_size(0.1, 0.1, kind="eh") == (30, 3, 6)
    assert sizing.theorem_size(0.15, 0.15) == (21, 2, 4)
    assert sizing.theorem_size(0.1, 0.15, query="inner") == (30, 2, 11)


def test_more_keys_take_more_rows_and_levels_more_slots() -> None:
    one = sizing.size_for(0.05, 0.1)
    many = sizing.size_for(0.05, 0.1, keys=27_000)
    assert many.depth > one.depth
    assert math.prod(many) > 3 * math.prod(one)
    tall = sizing.size_for(0.05, 0.1, height=4)
    assert tall.slots > 4 * one.slots
    # The error of the leaves of E3: (1 + epsilon)^(1 / (h + 1)) - 1.
    assert sizing.cell_error("wave", tall.slots) <= 1.05 ** (1 / 5) - 1


@for_each(
    "call, words",
    [
        (lambda: sizing.size_for(0.0, 0.1), ["epsilon is 0.0", "between 0 and 1"]),
        (lambda: sizing.size_for(1, 0.1), ["epsilon is 1", "between 0 and 1"]),
        (lambda: sizing.size_for(math.nan, 0.1), ["epsilon is nan"]),
        (lambda: sizing.size_for(True, 0.1), ["epsilon is True"]),
        (lambda: sizing.size_for("0.1", 0.1), ["epsilon is '0.1'"]),  # type: ignore[arg-type]
        (lambda: sizing.size_for(0.1, 10**5000), ["delta is an integer of 16610 bits"]),
        (lambda: sizing.size_for(0.1, 0.1, kind="dw"), ["kind is 'dw'", "wave, eh"]),  # type: ignore[arg-type]
        (lambda: sizing.size_for(0.1, 0.1, query="join"), ["query is 'join'", "point, inner"]),  # type: ignore[arg-type]
        (lambda: sizing.size_for(0.1, 0.1, height=-1), ["height is -1", "from 0 to 64"]),
        (lambda: sizing.size_for(0.1, 0.1, height=10**5000), ["height is an integer of"]),
        (lambda: sizing.size_for(0.1, 0.1, keys=0), ["keys is 0", "1 or more"]),
        (lambda: sizing.size_for(0.1, 0.1, keys=2.0), ["keys is 2.0"]),  # type: ignore[arg-type]
        (lambda: sizing.size_for(1e-9, 0.1), ["epsilon is 1e-09", "65535", "or more"]),
        (lambda: sizing.size_for(0.1, 0.1, keys=10**5000), ["an integer of 16610 bits", "delta"]),
        (lambda: sizing.size_for(5e-324, 5e-324), ["epsilon is 5e-324", "delta 5e-324"]),
        (lambda: sizing.slots_for("wave", 1e-9), ["epsilon is 1e-09", "16384", "3.1e-05"]),
        (lambda: sizing.theorem_size(5e-324, 0.1), ["slots", "16384"]),
        (lambda: sizing.cell_error("wave", 1), ["slots is 1", "from 2 to 16384"]),
        (lambda: sizing.merge_error("eh", 3.0), ["slots is 3.0"]),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_built_is_refused_with_both_values(call: Any, words: list[str]) -> None:
    with pytest.raises(ParameterError) as refusal:
        call()
    sentence = str(refusal.value)
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence


def test_the_epsilon_that_is_offered_can_be_built() -> None:
    for query in QUERIES:
        for height in (0, 64):
            with pytest.raises(ParameterError, match="or more") as refusal:
                sizing.size_for(1e-7, 0.1, query=query, height=height)
            offered = float(str(refusal.value).split("an epsilon of ")[1].split()[0])
            sizing.size_for(offered * 1.05, 0.1, query=query, height=height)
            with pytest.raises(ParameterError):
                sizing.size_for(offered * 0.9, 0.1, query=query, height=height)


_numbers = st.floats(0, 1) | st.floats(0, 1e-3) | st.floats(allow_nan=True)


@settings(max_examples=150, deadline=None)
@given(
    epsilon=_numbers,
    delta=_numbers,
    kind=st.sampled_from(KINDS),
    query=st.sampled_from(QUERIES),
    height=st.integers(-1, 70),
    keys=st.integers(0, 1 << 80) | st.just(10**5000),
)
def test_any_input_ends_after_few_steps(
    epsilon: float, delta: float, kind: Kind, query: Query, height: int, keys: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        steps = []
        growth = sizing._growth
        patch.setattr(sizing, "_growth", lambda *a: steps.append(None) or growth(*a))
        try:
            size = sizing.size_for(epsilon, delta, kind=kind, query=query, height=height, keys=keys)
        except ParameterError:
            assert len(steps) < 400_000  # the search for what would fit is forty searches
        else:
            assert len(steps) < 10_000
            assert error_of(size, delta, kind, query, height, keys) <= epsilon * (1 + 1e-8)
            assert 1 <= size.width <= sizing.MAX_WIDTH
            assert 1 <= size.depth <= sizing.MAX_DEPTH
            assert 2 <= size.slots <= sizing.MAX_SLOTS
            assert math.prod(size) <= sizing.MAX_CELLS
