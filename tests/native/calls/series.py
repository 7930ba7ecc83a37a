"""Calls of the sample of series; what they give is counted in plain Python, or is that of the
library where it is a number of rows in a stated order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from native.recording import FIRST, LAST, TIME_LIMIT, Call, column, words

from decaysketch.core.observations import decode_values
from decaysketch.series import _native, reference

NONE = reference.NONE
LEVELS = reference.TOP + 1
IDS = 1 << 40


def batch(rng: random.Random, n: int, span: int, floats: bool, some: str) -> list[Any]:
    """Values, weights, times, series, entities and starts; of the last, those that are in some."""
    keys = column(rng.choice([-3, 0, 1, 5]) for _ in range(n))
    values = keys
    if floats:
        values = decode_values(keys * (1 << 52), "float64")[0].view(np.int64)
    times = column(rng.randint(-span, span) for _ in range(n))
    series = column(rng.choice([0, 1, 7, IDS - 1, rng.randrange(IDS)]) for _ in range(n))
    weights = column(rng.choice([0, 1, 1, 2, 9, 200]) for _ in range(n))
    starts = column(rng.choice([NONE, max(time - 5, -TIME_LIMIT)]) for time in times.tolist())
    given = {"w": weights, "e": series // 4, "s": starts}
    return [values, *(given[each] if each in some else None for each in "w"), times, series, *(
        given[each] if each in some else None for each in "es"
    )]  # fmt: skip


def inputs(columns: list[Any]) -> list[Any]:
    return [[] if each is None else each for each in columns]


def checked(rng: random.Random) -> Iterator[Call]:
    for floats in (False, True):
        for some in ("", "w", "wes"):
            for fault in (None, "value", "weight", "late", "early", "series", "entity", "start"):
                values, weights, times, series, entities, starts = batch(rng, 9, 60, floats, some)
                row = rng.randrange(9)
                if fault == "value":
                    values[row] = 0x7FF0000000000000 if floats else FIRST
                elif fault == "weight" and weights is not None:
                    weights[row] = rng.choice([-1, 201])
                elif fault in ("late", "early"):
                    times[row] = (TIME_LIMIT + 1) * (1 if fault == "late" else -1)
                elif fault == "series":
                    series[row] = rng.choice([-1, IDS])
                elif fault == "entity" and entities is not None:
                    entities[row] = rng.choice([-1, IDS])
                elif fault == "start" and starts is not None:
                    starts[row] = times[row] + 1
                columns = [values, weights, times, series, entities, starts]
                given = _native.Batch(values, floats, *columns[1:])
                sound = given.check(200, IDS, TIME_LIMIT)
                absent = {"weight": weights, "entity": entities, "start": starts}
                assert sound == (fault is None or absent.get(fault, 0) is None)
                yield Call("check", [*inputs(columns), [floats, 200, IDS, TIME_LIMIT]], [[sound]])


def marks_of(rng: random.Random, span: int) -> list[int]:
    marks = sorted((rng.randint(-span, span) for _ in range(rng.randint(0, 4))), reverse=True)
    return [*marks, *[NONE] * (LEVELS - len(marks))]


def admitted(rng: random.Random) -> Iterator[Call]:
    for floats in (False, True):
        for some in ("", "w", "e", "wes"):
            for n in (1, 30, 200):
                given, keyed = batch(rng, n, 60, floats, some), words(rng, 2)
                marks = marks_of(rng, 60)
                yield Call(
                    "admit",
                    [*inputs(given), [int(floats), *keyed], marks],
                    expected(given, floats, [word % (1 << 64) for word in keyed], marks),
                )


def expected(given: list[Any], floats: bool, keyed: list[int], marks: list[int]) -> list[Any]:
    """Rows that are later than the watermark of their level, in order, and their series."""
    values, weights, times, series, entities, starts = (
        None if each is None else each.tolist() for each in given
    )
    if floats:
        bits = np.array(values, np.int64)
        values = (bits ^ (bits >> np.int64(63)) & np.int64(LAST)).tolist()
    known: dict[tuple[int, int, int], int] = {}
    rows = []
    for k, time in enumerate(times):
        weight = 1 if weights is None else weights[k]
        if not weight:
            continue
        entity = series[k] if entities is None else entities[k]
        shift = weight.bit_length() - 1
        level = reference.level_of(entity, 1 << shift, keyed)
        if time <= marks[level]:
            continue
        code = known.setdefault((entity, series[k], shift), len(known))
        rows.append((time, NONE if starts is None else starts[k], values[k], code, level))
    return [*columns_of(rows), *(list(each) for each in zip(*known, strict=True))] if rows else [
        *columns_of(rows), [], [], []
    ]  # fmt: skip


def columns_of(rows: list[tuple[int, ...]]) -> list[Any]:
    return [list(each) for each in zip(*rows, strict=True)] if rows else [[]] * 5


def entered(rng: random.Random) -> Iterator[Call]:
    for n in (1, 40, 300):
        keyed = words(rng, 2)
        series = [rng.choice([0, 1, IDS - 1, rng.randrange(IDS)]) for _ in range(n)]
        entities = [each // rng.choice([1, 4]) for each in series]
        shifts = [rng.choice([0, 0, 3, 31]) for _ in range(n)]
        known: dict[tuple[int, int, int], int] = {}
        codes = [
            known.setdefault(name, len(known))
            for name in zip(entities, shifts, series, strict=True)
        ]
        levels = [
            reference.level_of(entity, 1 << shift, [word % (1 << 64) for word in keyed])
            for entity, shift, _ in known
        ]
        yield Call("enter", [entities, shifts, series, keyed], [codes, levels])


def bag(rng: random.Random, n: int, span: int) -> list[Any]:
    """Rows of few series, some twice and of one time."""
    levels = [rng.choice([0, 0, 0, 1, 1, 2, 5, 40]) for _ in range(12)]
    rows = []
    for _ in range(n):
        code = rng.randrange(12)
        time = rng.randint(-span, span)
        rows.append((time, rng.choice([NONE, time - 3]), rng.randrange(5), code, levels[code]))
    return rows


def compacted(rng: random.Random) -> Iterator[Call]:
    for span in (0, 9, 300, 1 << 40):
        for n in (1, 20, 150):
            for resolution in (1, 7, 1 << 20):
                capacity, rows = rng.choice([1, 5, 30]), bag(rng, n, span)
                marks = marks_of(rng, span)
                rows = [row for row in rows if row[0] > marks[row[4]]]
                found, raised = kept(rows, marks, capacity, resolution)
                yield Call(
                    "compact",
                    [*columns_of(rows), [12, resolution, capacity], marks],
                    [*columns_of(found), raised],
                )


def kept(
    rows: list[Any], marks: list[int], capacity: int, resolution: int
) -> tuple[list[Any], list[int]]:
    """Rows that stay by their definition, latest first and otherwise as they came, and marks."""
    latest: dict[tuple[int, int], Any] = {}
    places: dict[tuple[int, int], int] = {}
    for place, row in enumerate(rows):
        name = (row[3], row[0] // resolution)
        if name not in latest or row[0] > latest[name][0]:
            places[name] = place
        latest[name] = max(latest.get(name, row), row)
    raised = []
    for level, mark in enumerate(marks):
        times = sorted((row[0] for row in latest.values() if row[4] >= level), reverse=True)
        raised.append(max(mark, times[capacity] if len(times) > capacity else NONE))
    stay = [name for name, row in latest.items() if row[0] > raised[row[4]]]
    stay.sort(key=lambda name: (-latest[name][0], places[name]))
    return [latest[name] for name in stay], raised


def appended(rng: random.Random) -> Iterator[Call]:
    for n in (1, 50):
        rows, marks = bag(rng, n, 40), marks_of(rng, 40)
        codes = [rng.randrange(1 << 20) for _ in range(12)]
        found = [(*row[:3], codes[row[3]], row[4]) for row in rows if row[0] > marks[row[4]]]
        yield Call("append", [*columns_of(rows), codes, marks], columns_of(found))


def arranged(rng: random.Random) -> Iterator[Call]:
    for n in (1, 40):
        codes = [rng.randrange(9) for _ in range(n)]
        ranks = rng.sample(range(9), 9)
        order = sorted(range(n), key=lambda row: (ranks[codes[row]], -row))
        yield Call("arrange", [codes, ranks], [order])


def settled(rng: random.Random) -> Iterator[Call]:
    for guard in (0, 5, 40, TIME_LIMIT):
        for n in (1, 12, 60):
            times, keys, begins, found = [], [], [], []
            for _ in range(3):
                own = sorted(rng.sample(range(-3 * n, 3 * n), n))
                shown = [rng.randrange(40) if rng.random() < 0.3 else 3 * k for k in range(n)]
                found += reference.settled(list(zip(own, shown, strict=True)), guard)
                begins += [1] + [0] * (n - 1)
                times += own
                keys += shown
            yield Call("settle", [keys, times, begins, [guard]], [found])


def calls() -> Iterator[Call]:
    rng = random.Random(20261127)
    yield from checked(rng)
    yield from admitted(rng)
    yield from entered(rng)
    yield from appended(rng)
    yield from compacted(rng)
    yield from arranged(rng)
    yield from settled(rng)
