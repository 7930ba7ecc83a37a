"""Calls of the asynchronous samplers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from native.recording import FIRST, LAST, TIME_LIMIT, Call, column, room, words

from decaysketch.asyncwindow import _native

FLOATS = [0, FIRST, 1, FIRST + 1, LAST >> 10, 0x3FF0000000000000, -0x4010000000000000]
NOT_FINITE = 0x7FF0000000000000

Elements = tuple[Any, Any, Any, Any]  # values, times, keys, levels


def stream_of(weighted: bool, levels: int, first_nested: int) -> tuple[list[int], _native.Stream]:
    """As the adapters read it, and as the layer has it."""
    lowest, highest = (0, 1 << levels) if weighted else (FIRST + 1, LAST)
    return [lowest, highest, TIME_LIMIT, levels, first_nested, int(weighted)], _native.Stream(
        weighted=weighted, lowest=lowest, highest=highest, time_limit=TIME_LIMIT, levels=levels,
        first_nested=first_nested,
    )  # fmt: skip


def unsigned(numbers: Any) -> Any:
    return column(numbers).view(np.uint64)


def empty(n: int) -> Elements:
    return room(n), room(n), room(n, np.uint64), room(n, np.int8)


def bag(rng: random.Random, n: int, span: int, weighted: bool, levels: int) -> Elements:
    """Elements with copies, of which a level follows from the identity."""
    columns: list[list[int]] = [[], [], [], []]
    known = words(rng, max(1, n // rng.choice([1, 1, 3])))
    for _ in range(n):
        key, value = rng.choice(known), rng.randint(1, 3)
        coin = random.Random(key + value * weighted).randrange(1 << 20)
        row = value, rng.randint(-span, span), key, min(levels, 20 - coin.bit_length())
        for to, number in zip(columns, row, strict=True):
            to.append(number)
    values, times, keys, tops = map(column, columns)
    return values, times, keys.view(np.uint64), tops.astype(np.int8)


def hashes(rng: random.Random) -> Iterator[Call]:
    for n in (1, 7, 67):
        for sources in (1, n):
            given = unsigned(words(rng, sources)), unsigned(words(rng, n))
            keys = room(n, np.uint64)
            _native.element_keys(*given, keys)
            yield Call("keys", given, [keys])
        values = column(rng.choice([1, 2, 3, 1 << 53, rng.randint(1, 1 << 53)]) for _ in range(n))
        keys = unsigned(
            key if rng.random() < 0.9 else rng.randrange(1 << 12) for key in words(rng, n)
        )
        for weighted in (False, True):
            levels = room(n, np.int8)
            _native.top_levels(values, keys, weighted, 53, levels)
            yield Call("top_levels", [values, keys, [weighted, 53]], [levels])


def admissions(rng: random.Random) -> Iterator[Call]:
    for span in (5, 10**6, TIME_LIMIT):
        for kind in ("sum", "int64", "float64", "refused"):
            weighted, floats = kind == "sum", kind in ("float64", "refused")
            n = rng.choice([3, 19, 61])
            fields, stream = stream_of(weighted, 20, 4 if weighted else 0)
            values = column(rng.randrange(0, 1 << 20) if weighted else w for w in words(rng, n))
            if weighted:
                values[n // 2] = 0
            elif kind != "int64":
                values = column(rng.choice(FLOATS) for _ in range(n))
            if kind == "refused":
                values[-1] = NOT_FINITE
            times = column(rng.randint(-span, span) for _ in range(n))
            marks = sorted((rng.randint(-span, span) for _ in range(21)), reverse=True)
            of = [rng.randrange(1 << 60), int(floats), -span // 2, n]
            sequence = unsigned(words(rng, n)) if rng.random() < 0.5 else None
            source = unsigned(words(rng, 1))
            batch = values, floats, times, source, sequence, of[0]
            good = _native.in_bounds(stream, *batch)
            for later_than in (column(max(mark, of[2]) for mark in marks), column([FIRST] * 21)):
                to = empty(n)
                done = _native.admit(stream, *batch, 0, later_than, of[2], *to, 0)
                given = [fields, values, times, source, [] if sequence is None else sequence]
                results: list[Any] = [[good, done is None]]
                if done:
                    results = [[good, False, *done], *(each[: done[1]] for each in to)]
                yield Call("admit", [*given, of, later_than], results)


def compactions(rng: random.Random) -> Iterator[Call]:
    for span in (0, 6, 40, 10**4, 1 << 33, TIME_LIMIT):
        for weighted, first_nested in ((True, 6), (True, 2), (False, 0)):
            n = rng.choice([2, 40, 100])
            fields, stream = stream_of(weighted, 6, first_nested)
            columns = bag(rng, n, span, weighted, 6)
            marks = column([rng.choice([FIRST, rng.randint(-span, span)])] * 7)
            few = columns[0][:26], columns[1][:26], columns[2][:26], columns[3][:26]
            m = len(few[0])
            to = empty(m + 1)
            taken = _native.append(stream, *few, m, marks, *to, 0)
            yield Call("append", [*few, marks], [each[:taken] for each in to])
            capacity = rng.choice([1, 4, n // 8 + 1])
            salts = rng.randrange(FIRST, LAST) | 1, rng.randrange(LAST) | 1
            given = [fields, *columns, [capacity, capacity + 1, *salts], marks]
            kept: Any = [each.copy() for each in columns]
            raised = marks.copy()
            left, many = _native.compact(
                stream, *kept, n, capacity, capacity + 1, raised,
                tuple(salt % (1 << 64) for salt in salts), np.empty((2, n), np.uint64),
                np.empty((2, n), np.uint32), np.empty(n, np.uint32), np.empty(n, np.uint16),
                np.empty(7 * _native.BUCKETS, np.uint32),
                np.empty(_native.slots_for(n), np.uint32),
            )  # fmt: skip
            yield Call("compact", given, [[many], raised, *(each[:left] for each in kept)])
            for canonical in (False, True):
                to = empty(m)
                _native.arrange(
                    *few, canonical, weighted, np.empty((2, m), np.uint64),
                    np.empty((2, m), np.uint32), *to,
                )  # fmt: skip
                yield Call("arrange", [*few, [canonical, weighted]], to)


def calls() -> Iterator[Call]:
    rng = random.Random(2)
    yield from hashes(rng)
    yield from admissions(rng)
    yield from compactions(rng)
