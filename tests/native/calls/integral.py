"""Calls of the integral sketch, under decays that take every way to find a step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from native.recording import (
    FIRST,
    LAST,
    TIME_LIMIT,
    Call,
    Column,
    column,
    columns,
    hash_of,
    observations,
    room,
    watermarks,
)  # fmt: skip

from decaysketch.core.params import SketchParams
from decaysketch.decay import integral
from decaysketch.decay.integral import IntegralDecay
from decaysketch.integral import _native, tables
from decaysketch.minhit import HashPlan, plan

Bag = Any  # values, weights, times, ids, first, events


class Plan(NamedTuple):
    """A hash function and a decay: what every call begins with."""

    max_weight: int
    steps: int
    columns: list[Column]  # as the adapters read them
    hash: HashPlan
    decay: _native.Decay


def plan_of(rng: random.Random, max_weight: int, decay: IntegralDecay) -> Plan:
    params = SketchParams(max_weight, 10, capacity=4, seed=rng.randrange(1 << 32))
    table = decay.steps(max_weight)
    guess = tables._guesses_of_ratios if table.values is None else tables._guesses_of_positions
    small = {"_MOST_GUESSES_OF_VALUES": 1, "_MOST_GUESSES": 1}  # or there is too much to record
    with patch.multiple(tables, **small):
        found = guess(table)
    native = _native.Decay(
        ages=table.ages, numerators=table.numerators, denominators=table.denominators,
        values=table.values, **found._asdict(),
    )  # fmt: skip
    values: Column = [] if table.values is None else table.values
    columns: list[Column] = [hash_of(plan(params))]
    columns += [[found.shift, found.first, found.halvings, found.wide], table.ages]
    columns += [table.numerators, table.denominators, values]
    columns += [found.rounded, found.guesses, found.offsets]
    return Plan(max_weight, len(table), columns, plan(params), native)


def plans(rng: random.Random) -> Iterator[Plan]:
    for max_weight, decay in (
        (20, integral.window(9)),
        (20, integral.exponential(half_life=5)),
        (1 << 26, integral.fractions([1, (2, 3), (1, 3), (1, 1 << 20)])),  # integers are compared
        (5, integral.function(lambda w, x: (w - x).clip(0), max_weight=5, ages=6)),
        # a guess is of several positions
        (60, integral.function(lambda w, x: w * (3 - x) // 3, max_weight=60, ages=4)),
        # some steps have one guess
        (1_000, integral.fractions([(k, 1_000) for k in (1_000, *range(999, 992, -1), 1)])),
    ):
        yield plan_of(rng, max_weight, decay)


def bag_of(held: Bag, native: _native.Room) -> Bag:
    rows, events = native.rows, native.event_count
    *four, first, words = held
    return *(each[:rows].copy() for each in four), first[: rows + 1].copy(), words[:events].copy()


def bag_room(rows: int, events: int) -> Bag:
    return *(room(rows) for _ in range(4)), room(rows + 1), room(events, np.uint32)


def sketches(rng: random.Random) -> Iterator[Call]:
    for of in plans(rng):
        sizes = [(1, TIME_LIMIT), (16, 12), (4, TIME_LIMIT)]
        sizes += [(0, 1), (9, 0), (90, 20)] if of.steps == 2 else []
        for n, span in sizes:
            batch: list[Any] = columns(observations(rng, n, span, of.max_weight, 1 << 10), 4)
            if n == 16:
                batch[0] = np.array([rng.choice([0.0, -0.0, -0.1, 1e308]) for _ in range(n)])
                batch[1][5] = 0
            clock = FIRST if span == TIME_LIMIT else 0
            marks = column(max(clock, mark) for mark in watermarks(rng, of.hash.top + 1, span))
            none = column([clock] * len(marks))
            rows, events = n + _native.ADMITTED_ROWS, 64 * n + _native.ADMITTED_EVENTS
            given = _native.Batch(*batch)
            for later_than in (marks, none):
                to = bag_room(rows, events)
                native = _native.Room(*to)
                told = _native.admit(of.hash.native, of.decay, native, later_than, clock, given, 0)
                bag = bag_of(to, native)
                limits = [batch[0].dtype.kind == "f", clock, rows, events]
                yield Call("admit", [*of.columns, *batch, limits, later_than], [told, *bag])
            yield from held(rng, of, bag, marks, none)
            until = rng.randint(0, span)
            seen = column(rng.choice([0, rng.randint(0, 3)]) for _ in range(n))
            yield stratum(of, batch[1], np.minimum(batch[2], until), seen, until)


def held(rng: random.Random, of: Plan, bag: Bag, marks: Any, none: Any) -> Iterator[Call]:
    """What is made of a bag."""
    n, events = len(bag[0]), len(bag[5])
    later, tied = room(len(marks)), room(len(marks))
    compacted = _native.Room(*bag, n, events)
    if n:
        _native.held_by_level(of.decay, compacted, marks, later, tied)
        yield Call("held_by_level", [*of.columns, *bag, marks], [later, tied])
    to = bag_room(n + 1, events + 1)
    native = _native.Room(*to)
    _native.append_alive(of.decay, compacted, marks, native)
    yield Call("append_alive", [*of.columns, *bag, marks], bag_of(to, native))
    for capacity, before in ((1, none), (max(6, n // 2), marks)) if n else ():
        copies: Bag = [each.copy() for each in bag]
        raised = before.copy()
        native = _native.Room(*copies, n, events)
        _native.compact(
            of.decay, native, raised, of.max_weight, capacity, rng.randrange(1 << 64) | 1,
            room(n, np.uint8), room(4 * n, np.uint32), np.empty((2, events), np.uint64), 0, 0,
        )  # fmt: skip
        yield Call(
            "compact",
            [*of.columns, *bag, before, [of.max_weight, capacity]],
            [raised, *bag_of(copies, native)],
        )


def stratum(of: Plan, weights: Any, times: Any, seen: Any, until: int) -> Call:
    raised, found = seen.copy(), [room(len(weights) + 1) for _ in range(3)]
    count = _native.stratum(of.decay, weights, times, until, raised, *found)
    given = [*of.columns, weights, times, seen, [until]]
    return Call("stratum", given, [*(each[:count] for each in found), raised])


def bounds(rng: random.Random) -> Iterator[Call]:
    """Rows of which one, or none, is out of bounds."""
    infinite, largest = float("inf"), 1.7976931348623157e308
    for row, fault in (
        (1, (0, 1, 0, 0)), (1, (0, 0, TIME_LIMIT, 1023)), (1, (LAST, 20, -TIME_LIMIT, 0)),
        (1, (largest, 1, 0, 0)), (1, (-0.0, 1, 0, 0)),
        (0, (FIRST, 1, 0, 0)), (0, (0, -1, 0, 0)), (0, (0, 21, 0, 0)), (0, (0, 1, 0, 1024)),
        (0, (0, 1, 0, -1)), (0, (0, 1, TIME_LIMIT + 1, 0)), (0, (0, 1, FIRST, 0)),
        (0, (infinite, 1, 0, 0)), (0, (-infinite, 1, 0, 0)), (0, (float("nan"), 1, 0, 0)),
    ):  # fmt: skip
        for n in (1, 11):
            batch: list[Any] = columns(observations(rng, n, 9, 20, 1 << 10), 4)
            batch[1][0] = 0
            if isinstance(fault[0], float):
                batch[0] = batch[0].astype(np.float64)
            for each, number in zip(batch, fault, strict=True):
                each[n // 2] = number
            zeros = _native.Batch(*batch).check(20, 1024)
            assert (zeros >= 0) == bool(row)
            yield Call("validate", [*batch, [batch[0].dtype.kind == "f", 20, 1024]], [[zeros]])


def calls() -> Iterator[Call]:
    rng = random.Random(6)
    yield from bounds(rng)
    yield from sketches(rng)
