"""Calls of the sketch of extremes; what they give, but for reading, is counted in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from native.recording import FIRST, LAST, TIME_LIMIT, Call, column, room, words

from decaysketch.extremes import _native, reference

Row = tuple[int, int]  # time and key

FLOATS = [0, FIRST, 1, FIRST + 1, LAST >> 10, 0x3FF0000000000000, -0x4010000000000000]
NOT_FINITE = 0x7FF0000000000000


def readings(rng: random.Random) -> Iterator[Call]:
    for floats in (False, True):
        for fault in (None, "value", "weight", "time", "id", "order"):
            n = rng.choice([1, 7, 19, 67])
            values = column(
                rng.choice(FLOATS) if floats else max(w, FIRST + 1) for w in words(rng, n)
            )
            times = np.sort(column(rng.randint(-TIME_LIMIT, TIME_LIMIT) for _ in range(n)))
            weights, ids = column([1] * n), column(rng.randrange(1 << 40) for _ in range(n))
            row = rng.randrange(n)
            if fault == "value":
                values[row] = NOT_FINITE if floats else FIRST
            elif fault == "weight":
                weights[row] = rng.choice([0, 10])
            elif fault == "time":
                times[-1] = TIME_LIMIT + 1
            elif fault == "id":
                ids[row] = rng.choice([-1, 1 << 40])
            elif fault == "order":
                times = times[::-1].copy()
            for some in (None, weights), (weights, None), (weights, ids):
                given = [values, some[0], times, some[1]]
                keys = room(n)
                limits = _native.Limits(max_weight=9, last_id=(1 << 40) - 1, time_limit=TIME_LIMIT)
                outcome = _native.read(limits, values, floats, some[0], times, some[1], keys)
                of = [int(floats), 9, (1 << 40) - 1, TIME_LIMIT]
                results: list[Any] = [[outcome]]
                if outcome != _native.REFUSED:
                    results.append(keys)
                yield Call("read", [[] if each is None else each for each in given] + [of], results)


def rows_of(rng: random.Random, n: int, span: int) -> list[Row]:
    """By time; keys of few values, or that fall so that most are steps."""
    times = sorted(rng.randint(-span, span) for _ in range(n))
    if rng.random() < 0.5:
        return [(time, rng.randint(-3, 3)) for time in times]
    return [(time, -k if rng.random() < 0.9 else LAST) for k, time in enumerate(times)]


def steps_of(rows: list[Row]) -> list[Row]:
    """Those that no row of the same time or later is as large as, each once."""
    return sorted(
        row
        for row in {*rows}
        if all(key < row[1] for time, key in {*rows} - {row} if time >= row[0])
    )


def columns(rows: list[Row]) -> list[Any]:
    return [column(each) for each in zip(*rows, strict=True)] if rows else [column([]), column([])]


def staircases(rng: random.Random) -> Iterator[Call]:
    for span in (4, 60, TIME_LIMIT):
        for n in (1, 2, 9, 40):
            for turned in (False, True):
                held, rows = steps_of(rows_of(rng, 30, span)), rows_of(rng, n, span)
                taken = [(time, ~key if turned else key) for time, key in rows]
                found = steps_of(held + taken)
                yield Call("climb", [*columns(held), *columns(rows), [int(turned)]], columns(found))


def spans(rng: random.Random) -> Iterator[Call]:
    for span in (4, 60, 10**6, TIME_LIMIT):
        for capacity in (1, 2, 3, 100):
            steps = steps_of([(time, -k) for k, (time, _) in enumerate(rows_of(rng, 40, span))])
            newest = steps[-1][0]
            ends = [reference.span_of(time, newest, capacity)[1] for time, _ in steps]
            times = column(time for time, _ in steps)
            yield Call("end_of_span", [times, [newest, capacity]], [ends])
            first = {end: step for step, end in reversed(list(zip(steps, ends, strict=True)))}
            kept = sorted(first.values())
            yield Call("thin", [*columns(steps), [newest, capacity]], columns(kept))


def calls() -> Iterator[Call]:
    rng = random.Random(20261125)
    yield from readings(rng)
    yield from staircases(rng)
    yield from spans(rng)
