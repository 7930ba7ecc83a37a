"""Bounds of aggregates hold, and are reached: against every small set there is."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest

from decaysketch.monitor.bounds import Aim, Form, Mean, Monotone, Reading, Signed, room

# Of each observation its decayed weight, and its value.
ROWS = ((1.0, 0.0), (0.5, 1.0), (0.25, 1.0), (0.75, -1.0), (0.5, 0.5))
SETS = [frozenset(s) for n in range(len(ROWS) + 1) for s in combinations(range(len(ROWS)), n)]
LINES = (0.3, 0.8, 1.4)
ROUNDING = 1e-12


def weight(rows: frozenset[int]) -> float:
    return math.fsum(ROWS[i][0] for i in rows)


def total(rows: frozenset[int]) -> float:
    return math.fsum(ROWS[i][0] * ROWS[i][1] for i in rows)


def mean(rows: frozenset[int]) -> float:
    return total(rows) / weight(rows) if rows else math.nan


def held(rows: frozenset[int], form: Form) -> float:
    """What a site with these rows says that it holds back."""
    if isinstance(form, Signed):
        masses = [ROWS[i][0] * ROWS[i][1] for i in rows]
        return max(sum(m for m in masses if m > 0), -sum(m for m in masses if m < 0))
    return weight(rows)


CASES = [(Monotone(), weight), (Signed(), total), (Mean(-1.0, 1.0), mean)]


def reading(rows: frozenset[int], aggregate: object) -> Reading:
    return Reading.of(aggregate(rows), weight(rows))  # type: ignore[operator]


def test_the_law_holds_of_every_union() -> None:
    for p, q, r in product(SETS, repeat=3):
        union = weight(p | q | r)
        assert weight(p) <= union + ROUNDING
        assert union <= weight(p) + weight(q) + weight(r) + ROUNDING


@pytest.mark.parametrize(("form", "aggregate"), CASES)
def test_every_union_is_within_the_bounds(form: Form, aggregate: object) -> None:
    aim = Aim(form, True, 0.5, 0.4)
    for p, q in product(SETS, repeat=2):
        truth = aggregate(p | q)  # type: ignore[operator]
        if math.isnan(truth):
            continue
        for u in (held(q, form), held(q, form) + 0.3, math.inf):
            low, high = aim.bounds(reading(p, aggregate), u)
            assert low - ROUNDING <= truth <= high + ROUNDING


@pytest.mark.parametrize("form", [form for form, _ in CASES])
def test_the_bounds_are_reached(form: Form) -> None:
    """By one more observation of weight u: no better bounds are true."""
    low, high = Aim(form, True, 0.5, 0.4).bounds(Reading.of(0.25, 2.0), 0.5)
    ends = {"Monotone": (0.25, 0.75), "Signed": (-0.25, 0.75), "Mean": (0.0, 0.4)}
    assert (low, high) == pytest.approx(ends[type(form).__name__])


@pytest.mark.parametrize(("form", "aggregate"), CASES)
@pytest.mark.parametrize("above", [True, False])
def test_what_is_told_is_true_of_every_union(form: Form, aggregate: object, above: bool) -> None:
    for line, p, q in product(LINES, SETS, SETS):
        if isinstance(form, Mean) and line * 1.1 >= form.most:
            continue
        aim = Aim(form, above, line, line * (0.9 if above else 1.1))
        truth, u = aggregate(p | q), held(q, form)  # type: ignore[operator]
        if math.isnan(truth):
            continue
        if aim.calm_at(reading(p, aggregate), u):
            assert truth < line + ROUNDING if above else truth > line - ROUNDING
        if aim.fires_at(reading(p, aggregate), u):
            assert truth >= aim.fires - ROUNDING if above else truth <= aim.fires + ROUNDING


@pytest.mark.parametrize(("form", "aggregate"), CASES)
@pytest.mark.parametrize("above", [True, False])
def test_within_the_room_one_can_tell(form: Form, aggregate: object, above: bool) -> None:
    for line, p in product(LINES, SETS):
        found = reading(p, aggregate)
        if found.empty or (isinstance(form, Mean) and line * 1.1 >= form.most):
            continue
        aim = Aim(form, above, line, line * (0.9 if above else 1.1))
        space = room(aim, found)
        assert space.total >= space.least > 0.0
        u = space.total * (1 - 1e-9)
        assert aim.calm_at(found, u) or aim.fires_at(found, u)


def test_of_nothing_only_that_it_is_nothing() -> None:
    aim = Aim(Mean(), True, 0.5, 0.45)
    nothing = Reading.of(math.nan)
    assert aim.calm_at(nothing, 0.0)
    assert not aim.calm_at(nothing, 0.1)
    assert not aim.fires_at(nothing, 0.0)
    assert aim.bounds(nothing, 0.1) == (0.0, 1.0)
    assert room(aim, nothing) == (0.0, 0.0)


def test_an_interval_is_between_calm_and_firing() -> None:
    aim = Aim(Monotone(), True, 10.0, 9.0)
    sampled = Reading(8.0, 6.0, 10.5, exact=False)
    assert not aim.calm_at(sampled, 0.0)
    assert not aim.fires_at(sampled, 0.0)
    assert aim.calm_at(sampled._replace(upper=9.5), 0.4)
