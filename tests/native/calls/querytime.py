"""Calls of the rows that a sketch holds, and of those of many sketches.

What is kept, and what watermarks are then, is said by ``definition.py``: by sets and counting.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import definition
from definition import NO_WATERMARK, Row
from native.recording import FIRST, LAST, Call, Column, column, hash_of
from wire.reference import key_of

from decaysketch import minhit
from decaysketch.core.params import SketchParams
from decaysketch.minhit import plan

TIME_LIMIT = 1 << 62
BLOCK = 512  # rows that are admitted together, the last ones first

Level = Callable[[int, int], int]  # of an id and a weight


def columns_of(rows: Sequence[Row], level: Level) -> list[list[int]]:
    """Value keys, weights, times, ids, levels."""
    columns = [list(numbers) for numbers in zip(*rows, strict=True)] or [[] for _ in range(4)]
    return [*columns, [level(row.id, row.weight) for row in rows]]


def canonical(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.time, row.id, row.weight), reverse=True)


def state(
    rows: Sequence[Row], level: Level, capacity: int, before: Sequence[int]
) -> tuple[list[int], list[Row]]:
    """Watermarks and rows, where watermarks were there before."""
    found = definition.state(rows, level, capacity, len(before) - 1)
    marks = [max(pair) for pair in zip(found.watermarks, before, strict=True)]
    kept = [row for row in definition.representatives(rows)
            if row.time > marks[level(row.id, row.weight)]]  # fmt: skip
    return marks, canonical(kept)


def drawn(rng: random.Random, n: int, span: int, max_weight: int, ids: int) -> list[Row]:
    """Rows with copies."""
    known = [(rng.choice([1, max_weight, rng.randint(1, max_weight)]),
              rng.choice([0, ids - 1, rng.randrange(ids)])) for _ in range(n // 2 + 1)]  # fmt: skip
    return [Row(rng.randrange(9), weight, rng.randint(-span, span), id_)
            for weight, id_ in (rng.choice(known) for _ in range(n))]  # fmt: skip


def falling(rng: random.Random, levels: int, span: int) -> list[int]:
    """Watermarks, of which some are not set."""
    marks = [rng.randint(-span, 0) for _ in range(rng.randint(0, levels))]
    return [*sorted(marks, reverse=True), *[NO_WATERMARK] * (levels - len(marks))]


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
            rows = [row._replace(weight=rng.choice([0, row.weight])) if rng.random() < 0.1 else row
                    for row in rows]  # fmt: skip
            blocks = [rows[max(0, stop - BLOCK) : stop] for stop in range(n, 0, -BLOCK)]
            zeros = sum(not row.weight for row in rows)
            for marks in ([NO_WATERMARK if n < BLOCK else span - 2] * levels,
                          falling(rng, levels, span)):  # fmt: skip
                taken = [row for block in blocks for row in block
                         if row.weight and row.time > marks[level(row.id, row.weight)]]  # fmt: skip
                given = columns_of(rows, level)[:4]
                yield Call(
                    "admit",
                    [of, *given, [0, max_weight, (1 << id_bits) - 1, TIME_LIMIT], marks],
                    [[1, 1, zeros, zeros], *columns_of(taken, level)],
                )
    of, level, levels = hashed(9, 6)
    numbers = [0.0, -0.0, -0.1, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308]
    keys = columns_of([Row(key_of(x), 3, 4, 5) for x in numbers], level)
    yield Call(
        "admit",
        [of, numbers, *keys[1:4], [1, 9, 63, TIME_LIMIT], [NO_WATERMARK] * levels],
        [[1, 1, 0, 0], *keys],
    )
    infinite = float("inf")
    for fault in (
        Row(FIRST, 1, 0, 0), Row(0, -1, 0, 0), Row(0, 10, 0, 0), Row(0, 1, TIME_LIMIT + 1, 0),
        Row(0, 1, FIRST, 0), Row(0, 1, 0, 64), Row(0, 1, 0, -1),
    ):  # fmt: skip
        columns = columns_of([*drawn(rng, 9, 9, 9, 64), fault], lambda *_: 0)[:4]
        limits = [0, 9, 63, TIME_LIMIT]
        yield Call("admit", [of, *columns, limits, [LAST] * levels], [[0, 0]])
    for number in (infinite, -infinite, float("nan")):
        given: list[Column] = [[1.0, number, 2.0], [1] * 3, [0] * 3, [0] * 3]
        limits = [1, 9, 63, TIME_LIMIT]
        yield Call("admit", [of, *given, limits, [LAST] * levels], [[0, 0]])


def compactions(rng: random.Random) -> Iterator[Call]:
    for n, span in ((1, TIME_LIMIT), (15, 2), (30, 0), (60, 3), (50, 900), (30, TIME_LIMIT)):
        # Identities go up to 2^58, and weights to where quotients are hardest.
        for max_weight, ids in ((3, 40), ((1 << 25) - 1, 1 << 32), (1 << 12, 1 << 45)):
            rows = drawn(rng, n, span, max_weight, ids)
            kept = canonical(definition.representatives(rows[: rng.randint(0, n)]))
            rows = kept + rows[-(n // 2) :]
            capacity = rng.choice([1, 3, n // 4 + 1])
            before = rng.choice([[NO_WATERMARK] * 4, falling(rng, 4, span)])
            marks, left = state(rows, coin, capacity, before)
            results = [marks, *columns_of(left, coin)]
            given = [*columns_of(rows, coin), before, [max_weight, capacity, len(kept)]]
            yield Call("compact", given, results * 2)
        latest_first = canonical(rows)
        later = [row for row in latest_first if row.time > before[coin(row.id, row.weight)]]
        yield Call(
            "append",
            [*columns_of(latest_first, coin), before, [max_weight]],
            columns_of(later, coin) * 2,
        )


def hits(rng: random.Random) -> Iterator[Call]:
    for n, span in ((0, 1), (1, 1), (30, 4)):
        rows = canonical(definition.representatives(drawn(rng, n, span, 9, 64)))
        old = canonical(
            [rng.choice([row, row._replace(time=row.time - 1)]) for row in rows if rng.randrange(3)]
        )
        columns, old_columns = columns_of(rows, coin), columns_of(old, coin)
        for k in range(0, len(old), 5):
            old_columns[4][k] += 1  # of another level
        known = {(*row[1:], level): place
                 for place, (row, level) in enumerate(zip(old, old_columns[4], strict=True))}  # fmt: skip
        places = [known.get((*row[1:], level), -1)
                  for row, level in zip(rows, columns[4], strict=True)]  # fmt: skip
        old_hits = [rng.randrange(1 << 20) for _ in old]
        unknown = [row for row, place in enumerate(places) if place < 0]
        found = [old_hits[place] if place >= 0 else 0 for place in places]
        yield Call("known_hits", [*columns, *old_columns, old_hits], [found, unknown])


# ------------------------------------------------------------------------------------ many sketches


def taken(rng: random.Random) -> Iterator[Call]:
    of, level, levels = hashed(9, 6)
    for n, keys, marked in ((0, 1, 1), (1, 1, 0), (40, 4, 0), (40, 6, 4)):
        rows = drawn(rng, n, 5, 9, 64)
        rows[::9] = [row._replace(weight=0) for row in rows[::9]]
        codes = [rng.randrange(keys) for _ in rows]
        marks = [falling(rng, rng.choice([0, levels]), 5) for _ in range(marked)]
        marks = [[mark for mark in each if mark != NO_WATERMARK] for each in marks]
        records = []
        for key, row in zip(codes, rows, strict=True):
            top = level(row.id, row.weight)
            own = marks[key] if key < marked else []
            if row.weight and (top >= len(own) or row.time > own[top]):
                tag = key | (top + 1 if marked else 0) << 32
                records += [tag, row.value_key, row.id * 9 + row.weight - 1, row.time]
        offsets = list(accumulate(map(len, marks), initial=0))
        yield Call(
            "take",
            [of, codes, *columns_of(rows, level)[:4], [9], offsets, sum(marks, [])],
            [records],
        )


def built(rng: random.Random) -> Iterator[Call]:
    for n, keys, shift, capacity, max_weight, id_bits in (
        (1, 1, 0, 1, 9, 6), (40, 3, 1, 2, 9, 6), (60, 40, 3, 1, 9, 6), (70, 2, 0, 20, 1 << 20, 30),
        (60, 2, 4, 3, 1 << 31, 25),
    ):  # fmt: skip
        of, level, levels = hashed(max_weight, id_bits)
        rows = drawn(rng, n, rng.choice([3, 900]), max_weight, 1 << id_bits)
        codes = [rng.randrange(keys) for _ in rows]
        first = rng.randint(0, n)
        results: list[Column] = []
        for come in (first, n):
            states = []
            for key in range(keys):
                own = [row for row, code in zip(rows[:come], codes, strict=False) if code == key]
                marks, left = state(own, level, capacity, [NO_WATERMARK] * levels)
                states.append(([mark for mark in marks if mark != NO_WATERMARK], left))
            for counts in ([len(left) for _, left in states], [len(marks) for marks, _ in states]):
                results.append(list(accumulate(counts, initial=0)))
            results.append(sum((marks for marks, _ in states), []))
            values, weights, times, ids, _ = columns_of(sum((left for _, left in states), []), level)
            results += [times, ids, weights, values]
        given = columns_of(rows, level)[:4]
        yield Call(
            "build",
            [of, codes, *given, [max_weight, capacity, keys, shift, first]],
            results,
        )


def calls() -> Iterator[Call]:
    rng = random.Random(7)
    for kind in (admissions, compactions, hits, taken, built):
        yield from kind(rng)
