"""Calls of the rows that a sketch holds, and of those of many sketches.

What is kept, and what watermarks are then, is said by ``definition.py``: by sets and counting.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain

import definition
import numpy as np
from definition import Row
from native.recording import (
    FIRST,
    LAST,
    NO_WATERMARK,
    TIME_LIMIT,
    Call,
    Column,
    Int64Array,
    column,
    columns,
    hash_of,
    observations,
    watermarks,
)  # fmt: skip
from wire.reference import key_of

from decaysketch import minhit
from decaysketch.core.params import SketchParams
from decaysketch.minhit import plan

BLOCK = 512  # rows that are admitted together, the last ones first

Level = Callable[[int, int], int]  # of an id and a weight


def columns_of(rows: Sequence[Row], level: Level) -> list[Int64Array]:
    """Value keys, weights, times, ids, levels."""
    return [*columns(rows, 4), column(level(row.id, row.weight) for row in rows)]


def later(rows: Sequence[Row], level: Level, marks: Sequence[int]) -> list[Row]:
    """Those that are later than the watermark of their level."""
    return [row for row in rows if row.time > marks[level(row.id, row.weight)]]


def canonical(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.time, row.id, row.weight), reverse=True)


def state(
    rows: Sequence[Row], level: Level, capacity: int, before: Sequence[int]
) -> tuple[list[int], list[Row]]:
    """Watermarks and rows, where watermarks were there before."""
    found = definition.state(rows, level, capacity, len(before) - 1)
    marks = [max(pair) for pair in zip(found.watermarks, before, strict=True)]
    return marks, canonical(later(definition.representatives(rows), level, marks))


def drawn(rng: random.Random, n: int, span: int, max_weight: int, ids: int) -> list[Row]:
    return [Row(*row) for row in observations(rng, n, span, max_weight, ids)]


def coin(id_: int, weight: int) -> int:
    """A level from 0 to 3, in place of a hash."""
    return min(3, 10 - random.Random(id_ * 7 + weight).randrange(1 << 10).bit_length())


# --------------------------------------------------------------------------------------- one sketch


def hashed(max_weight: int, id_bits: int) -> tuple[list[int], Level, int]:
    """A hash function as adapters read it, the level of an observation, and how many there are."""
    params = SketchParams(max_weight, id_bits, capacity=4, seed=7)

    def level(id_: int, weight: int) -> int:
        return int(minhit.top_levels(params, column([id_]), column([weight]))[0]) if weight else 0

    return hash_of(plan(params)), level, params.levels + 1


def admissions(rng: random.Random) -> Iterator[Call]:
    for max_weight, id_bits in ((9, 6), (1 << 20, 36), (1, 56)):
        of, level, levels = hashed(max_weight, id_bits)
        for n, span in ((0, 1), (1, TIME_LIMIT), (12, 6), (BLOCK + 9 if max_weight == 9 else 5, 4)):
            rows = drawn(rng, n, span, max_weight, 1 << id_bits)
            rows[::9] = [row._replace(weight=0) for row in rows[::9]]
            zeros = sum(not row.weight for row in rows)
            blocks = [rows[max(0, stop - BLOCK) : stop] for stop in range(n, 0, -BLOCK)]
            counted = [row for block in blocks for row in block if row.weight]
            equal = NO_WATERMARK if n < BLOCK else span - 2
            for checked, marks in enumerate(([equal] * levels, watermarks(rng, levels, span))):
                limits = [0, max_weight, (1 << id_bits) - 1, TIME_LIMIT, checked]
                given = [of, *columns(rows, 4), limits, marks]
                taken = columns_of(later(counted, level, marks), level)
                yield Call("admit", given, [[1], [zeros], *taken])


def bounds(rng: random.Random) -> Iterator[Call]:
    """Values that are floats, and rows that are out of bounds."""
    of, level, levels = hashed(9, 6)
    limits = [9, 63, TIME_LIMIT]
    numbers = [0.0, -0.0, -0.1, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308]
    taken = columns_of([Row(key_of(x), 3, 4, 5) for x in numbers], level)
    given = [of, numbers, *taken[1:4], [1, *limits, 0], [NO_WATERMARK] * levels]
    yield Call("admit", given, [[1], [0], *taken])
    good = drawn(rng, 9, 9, 9, 64)
    for fault in (
        Row(FIRST, 1, 0, 0), Row(0, -1, 0, 0), Row(0, 10, 0, 0), Row(0, 1, TIME_LIMIT + 1, 0),
        Row(0, 1, FIRST, 0), Row(0, 1, 0, 64), Row(0, 1, 0, -1),
    ):  # fmt: skip
        given = [of, *columns([*good, fault], 4)]
        for checked in (0, 1):
            yield Call("admit", [*given, [0, *limits, checked], [LAST] * levels], [[0]])
    for number in (float("inf"), -float("inf"), float("nan")):
        given = [of, [1.0, number, 2.0], [1] * 3, [0] * 3, [0] * 3]
        for checked in (0, 1):
            yield Call("admit", [*given, [1, *limits, checked], [LAST] * levels], [[0]])


def compacted(
    rows: list[Row], level: Level, kept: int, capacity: int, before: list[int], max_weight: int
) -> Call:
    """Rows of which the first ones are in canonical order, without copies."""
    marks, left = state(rows, level, capacity, before)
    given = [*columns_of(rows, level), before, [max_weight, capacity, kept]]
    return Call("compact", given, [marks, *columns_of(left, level)] * 2)


def compactions(rng: random.Random) -> Iterator[Call]:
    for n, span in ((1, TIME_LIMIT), (15, 2), (30, 0), (60, 3), (50, 900), (30, TIME_LIMIT)):
        # Identities go up to 2^58, and weights to where quotients are hardest.
        for max_weight, ids in ((3, 40), ((1 << 25) - 1, 1 << 32), (1 << 12, 1 << 45)):
            rows = drawn(rng, n, span, max_weight, ids)
            if n == 60:
                rows[-1] = rows[-1]._replace(time=-TIME_LIMIT)  # the others are close together
            kept = canonical(definition.representatives(rows[: rng.randint(0, n)]))
            rows = kept + rows[-(n // 2) :]
            capacity = rng.choice([1, 3, n // 4 + 1])
            before = rng.choice([[NO_WATERMARK] * 4, watermarks(rng, 4, span)])
            yield compacted(rows, coin, len(kept), capacity, before, max_weight)
        latest_first, marks = canonical(rows), watermarks(rng, 4, span // 2)
        given = [*columns_of(latest_first, coin), marks, [max_weight]]
        yield Call("append", given, columns_of(later(latest_first, coin, marks), coin) * 2)
    many = [Row(0, 1, 0, id_) for id_ in range(780)]  # more than the table is opened for
    yield compacted(many, lambda *_: 0, 0, 1_000, [NO_WATERMARK], 1)


def hits(rng: random.Random) -> Iterator[Call]:
    for n, span in ((0, 1), (1, 1), (30, 4)):
        rows = canonical(definition.representatives(drawn(rng, n, span, 9, 64)))
        moved = [row._replace(time=row.time - rng.randrange(2)) for row in rows if rng.randrange(3)]
        old = canonical(moved)
        given, before = columns_of(rows, coin), columns_of(old, coin)
        before[4][::5] += 1  # of another level
        old_hits = [rng.randrange(1 << 20) for _ in old]
        known = {
            (row[1:], level): hit
            for row, level, hit in zip(old, before[4].tolist(), old_hits, strict=True)
        }
        found = [known.get((row[1:], coin(row.id, row.weight)), -1) for row in rows]
        unknown = [k for k, hit in enumerate(found) if hit < 0]
        yield Call("known_hits", [*given, *before, old_hits], [np.maximum(found, 0), unknown])


# ------------------------------------------------------------------------------------ many sketches


def set_of(marks: Iterable[int]) -> list[int]:
    return [mark for mark in marks if mark != NO_WATERMARK]


def taken(rng: random.Random) -> Iterator[Call]:
    of, level, levels = hashed(9, 6)
    for n, keys, marked in ((0, 1, 1), (1, 1, 0), (40, 4, 0), (40, 6, 4)):
        rows = drawn(rng, n, 2, 9, 64)
        rows[::9] = [row._replace(weight=0) for row in rows[::9]]
        codes = [rng.randrange(keys) for _ in rows]
        marks = [watermarks(rng, rng.choice([1, levels]), 2) for _ in range(marked)]
        records = []
        for key, row in zip(codes, rows, strict=True):
            top = level(row.id, row.weight)
            own = set_of(marks[key]) if key < marked else []
            if row.weight and (top >= len(own) or row.time > own[top]):
                tag = key | (top + 1 if marked else 0) << 32
                records += [tag, row.value_key, row.id * 9 + row.weight - 1, row.time]
        offsets = list(accumulate(map(len, map(set_of, marks)), initial=0))
        given = [of, codes, *columns(rows, 4), [9], offsets, set_of(chain(*marks))]
        yield Call("take", given, [records])


def built(rng: random.Random) -> Iterator[Call]:
    for n, keys, shift, capacity, max_weight, id_bits in (
        (1, 1, 0, 1, 9, 6), (40, 3, 1, 2, 9, 6), (50, 40, 3, 1, 9, 6), (50, 2, 0, 20, 1 << 20, 30),
        (40, 2, 4, 3, 1 << 31, 25),
    ):  # fmt: skip
        of, level, levels = hashed(max_weight, id_bits)
        rows = drawn(rng, n, rng.choice([3, 900]), max_weight, 1 << id_bits)
        codes = [rng.randrange(keys) for _ in rows]
        first = rng.randint(0, n)
        results: list[Column] = []
        for come in (first, n):
            marks, held = [], []
            for key in range(keys):
                own = [row for row, code in zip(rows[:come], codes, strict=False) if code == key]
                found, kept = state(own, level, capacity, [NO_WATERMARK] * levels)
                marks.append(set_of(found))
                held.append(kept)
            results += [list(accumulate(map(len, each), initial=0)) for each in (held, marks)]
            values, weights, times, ids = columns(chain(*held), 4)
            results += [list(chain(*marks)), times, ids, weights, values]
        given = [of, codes, *columns(rows, 4), [max_weight, capacity, keys, shift, first]]
        yield Call("build", given, results)


def calls() -> Iterator[Call]:
    rng = random.Random(7)
    for kind in (admissions, bounds, compactions, hits, taken, built):
        yield from kind(rng)
