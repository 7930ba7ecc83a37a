"""Calls of what all families share: hashes of keys, distinct numbers, verdicts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
from native.recording import FIRST, LAST, Call, column, columns, room, watermarks, words

from decaysketch.core import _native

SALTS = (3, 5)  # which no result depends on


# ------------------------------------------------------------------------------------------- hashes


def hashes(rng: random.Random) -> Iterator[Call]:
    for n in (0, 1, 37):
        word = column([rng.choice([0, FIRST, LAST, *words(rng, 1)])]).view(np.uint64)
        keys = column(rng.choice([0, -1, FIRST, LAST, *words(rng, 3)]) for _ in range(n))
        hashed = room(n, np.uint64)
        _native.hash_integers(keys.view(np.uint64), int(word[0]), hashed)
        yield Call("hash_integers", [word, keys], [hashed])
        rows = column(words(rng, n)).view(np.uint64)
        absorbed = rows.copy()
        _native.absorb(absorbed, hashed)
        yield Call("absorb", [rows, hashed], [absorbed])
    for lengths in ([], [0], [1, 2, 3, 4, 5, 6, 7], [8, 9, 15, 0, 16, 17, 64, 0]):
        texts = [rng.randbytes(length) for length in lengths]
        offsets = column(accumulate(lengths, initial=0))
        one_by_one, hashed = room(len(texts), np.uint64), room(len(texts), np.uint64)
        data = b"".join(texts)
        _native.hash_encoded(np.frombuffer(data, np.uint8), offsets, int(word[0]), hashed)
        _native.hash_objects(texts, bytes, 100, int(word[0]), one_by_one)
        yield Call("hash_encoded", [word, offsets, data], [hashed, one_by_one])


# --------------------------------------------------------------------------------- distinct numbers


def numbered(rng: random.Random) -> Iterator[Call]:
    for n, different, bits, most in ((0, 1, 4, 8), (1, 1, 4, 8), (60, 9, 4, 8), (50, 90, 6, 32)):
        known = [0, FIRST, LAST, *words(rng, different)]
        keys = column(rng.choice(known) for _ in range(n))
        results: list[Any] = []
        distinct, count = room(4 * most), 0
        left_out = rng.choice([-1, 0, 2])
        for size, free in ((1 << bits, most), (4 << bits, 4 * most)):
            slots, codes = np.zeros((size, 2), np.int64), room(n, np.int32)
            if results:
                _native.fill_table(slots, SALTS[0], distinct, count, left_out)
            count, done = _native.number_keys(
                keys, 0, slots, SALTS[0], distinct[:free], count, codes
            )
            results += [codes[:done], distinct[:count].copy()]
        yield Call("number_keys", [keys, [bits, most, left_out]], results)


# ----------------------------------------------------------------------------------------- verdicts


Copy = tuple[int, int, int, int]  # two numbers that identify it, time, value


def copies(rng: random.Random, n: int, span: int) -> list[Copy]:
    known = [(rng.choice([0, LAST, *words(rng, 1)]), rng.randint(0, 2)) for _ in range(n // 2 + 1)]
    return [
        (
            *rng.choice(known),
            rng.choice([span, rng.randint(-span, span)]),
            rng.choice([FIRST, LAST, 0, 1]),
        )
        for _ in range(n)
    ]


def some_of(rng: random.Random, rows: list[Copy]) -> list[Copy]:
    """A state: at most one row of each identity, latest first."""
    one_each = {row[:2]: row for row in rows if rng.randrange(3)}
    return sorted(one_each.values(), key=lambda row: -row[2])


def levels_of(rows: list[Copy]) -> Any:
    return column(random.Random(row[0]).randrange(4) for row in rows).astype(np.int8)


def verdicts(rng: random.Random) -> Iterator[Call]:
    for n, span in ((0, 1), (1, 0), (6, 1), (25, 3), (30, LAST), (60, 20)):
        rows = copies(rng, 2 * n, span)
        batch, before, after = rows[:n], some_of(rng, rows), some_of(rng, rows)
        given, old, new = (columns(each, 4) for each in (batch, before, after))
        offered = _native.Offered(*given, salts=SALTS)
        found = offered.judge_by_states(old, new)
        yield Call("judge_by_states", [*given, *old, *new], [found])
        levels, state_levels = levels_of(batch), levels_of(before)
        for capacity in (1, 4, 1_000):
            marks = column(watermarks(rng, 4, span))
            raised = marks.copy()
            found = offered.judge_by_marks(levels, old, state_levels, raised, capacity)
            given_too = [*old, levels, state_levels, marks, [capacity]]
            yield Call("judge_by_marks", [*given, *given_too], [found, raised])


def calls() -> Iterator[Call]:
    rng = random.Random(5)
    yield from hashes(rng)
    yield from numbered(rng)
    yield from verdicts(rng)
