"""Rows of one identity and time that have different values: all pairs as a witness."""

from __future__ import annotations

import numpy as np
from support.rows import for_each

from decaysketch import DecaySketch, SketchParams
from decaysketch.core.duplicates import between, within
from decaysketch.core.row_check import Identified


def test_copies_agree_and_others_do_not() -> None:
    ids = np.array([1, 1, 1, 2, 2, 3])
    weights, times = np.ones(6, np.int64), np.array([5, 5, 5, 6, 7, 8])
    values = np.array([20.0, 20.0, 98.9, 1.0, 2.0, 4.0])
    assert within(ids, weights, times, values) == 2  # both that are not 98.9
    assert within(ids, weights, times, np.full(6, 20.0)) == 0
    assert within(ids, weights, np.arange(6), values) == 0  # stamped anew
    assert within(ids, np.arange(6), times, values) == 0
    assert within(ids[:0], weights[:0], times[:0], values[:0]) == 0


@for_each("seed", range(30))
def test_within_is_what_all_pairs_say(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n = 60
    ids, weights, times = draw.integers(0, 6, n), draw.integers(1, 3, n), draw.integers(0, 4, n)
    values = np.ma.masked_array(draw.integers(0, 3, n).astype(float), mask=draw.random(n) < 0.2)
    rows = [
        (*key, -1.0 if value is None else value)
        for *key, value in zip(
            ids.tolist(), weights.tolist(), times.tolist(), values.tolist(), strict=True
        )
    ]
    expected = sum(
        any(row[:3] == other[:3] and row[3] < other[3] for other in rows) for row in rows
    )
    assert within(ids, weights, times, values) == expected
    labels = np.array(["abc"[int(value)] for value in values.data], object)
    whole = np.ma.getdata(values)
    assert within(ids, weights, times, labels) == within(ids, weights, times, whole)


@for_each("seed", range(30))
def test_between_is_what_all_pairs_say(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def part(n: int) -> Identified:
        identities = np.array(sorted({(int(a), int(b)) for a, b in draw.integers(0, 9, (n, 2))}))
        rest = draw.integers(0, 3, (2, len(identities)))
        return Identified(*identities.reshape(-1, 2).T.copy(), *rest)

    held, offered = part(int(draw.integers(0, 60))), part(int(draw.integers(0, 60)))
    pairs = [
        (mine, theirs)
        for mine in zip(*held, strict=True)
        for theirs in zip(*offered, strict=True)
        if mine[:3] == theirs[:3] and mine[3] != theirs[3]
    ]
    assert between(held, offered) == len(pairs)


def test_rows_of_two_sketches() -> None:
    params = SketchParams(time_unit="s", max_weight=1, capacity=100)
    before, after = DecaySketch(params), DecaySketch(params)
    before.update([1.0, 2.0, 3.0], 1, [5, 6, 7], [1, 2, 3])
    after.update([1.0, 9.0, 9.0], 1, [5, 6, 8], [1, 2, 3])  # a copy, another, one stamped anew
    assert between(before.snapshot().identified, after.snapshot().identified) == 1
