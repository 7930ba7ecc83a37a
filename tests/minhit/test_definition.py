"""The oracle `definition` against the sentences it writes down, taken literally."""

from __future__ import annotations

import random

import definition
from definition import NO_WATERMARK, Row


def test_watermark_is_the_largest_time_that_more_than_capacity_reach() -> None:
    rng = random.Random(11)
    for _ in range(500):
        times = [rng.randrange(-6, 7) for _ in range(rng.randrange(15))]
        capacity = rng.randrange(1, 6)
        reached = [T for T in range(-8, 9) if sum(t >= T for t in times) > capacity]
        assert definition.watermark(times, capacity) == max(reached, default=NO_WATERMARK)


def test_latest_copy_represents_and_weight_is_part_of_the_identity() -> None:
    copies = [(5, 2, 10, 7), (9, 2, 8, 7), (6, 2, 10, 7), (1, 3, 1, 7), (4, 0, 99, 8)]
    assert definition.representatives(copies) == [Row(6, 2, 10, 7), Row(1, 3, 1, 7)]


def check_samples(tops: list[int], copies: list[tuple[int, int, int, int]], capacity: int) -> None:
    state = definition.state(copies, lambda id, weight: tops[id], capacity, 3)
    distinct = definition.representatives(copies)
    assert list(state.watermarks) == sorted(state.watermarks, reverse=True)
    assert len(state.rows) == len(set(state.rows))
    for i, mark in enumerate(state.watermarks):
        everything = [row for row in distinct if tops[row.id] >= i]
        assert set(state.sample(i)) == {row for row in everything if row.time > mark}
        assert len(state.sample(i)) <= capacity
        if mark == NO_WATERMARK:
            assert len(everything) <= capacity


def test_samples_of_a_state_are_the_paper_s() -> None:
    """S_i = {level >= i, time > t_i}: never more than capacity, all of T_i after t_i."""
    rng = random.Random(12)
    for _ in range(200):
        tops = [min(3, rng.getrandbits(8).bit_count() // 2) for _ in range(40)]
        copies = [(rng.randrange(5), 1, rng.randrange(12), rng.randrange(40)) for _ in range(60)]
        check_samples(tops, copies, capacity=rng.randrange(1, 12))


def test_worked_example() -> None:
    tops = {1: 0, 2: 1, 3: 0, 4: 2, 5: 0}
    copies = [(0, 1, 10, 1), (0, 1, 20, 2), (0, 1, 20, 3), (0, 1, 5, 4), (0, 1, 30, 5)]
    state = definition.state(copies, lambda id, weight: tops[id], capacity=2, max_level=2)
    # Times of level >= 0 in order: 30 20 20 10 5; more than two reach 20. Level >= 1: 20 5.
    assert state.watermarks == (20, NO_WATERMARK, NO_WATERMARK)
    assert [row.id for row in state.rows] == [5, 2, 4]
    assert state.levels == (0, 1, 2)
