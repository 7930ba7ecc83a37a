"""Where the paper's print is wrong: each printed form fails, and what is built does not.

Xu, Tirthapura and Busch, "Sketching asynchronous data streams over sliding windows". The printed
forms are written out here, as small as they are; the corrected ones are those of the library.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.asyncwindow import (
    MedianParams,
    MedianSampler,
    SumParams,
    SumSampler,
    element_keys,
    reference,
)

Element = tuple[int, int, int]  # value, time, sequence number
WIDE = ds.decay.window(10_000)


def fed(params: SumParams, elements: Iterable[Element]) -> SumSampler:
    sampler = SumSampler(params)
    for value, time, number in elements:
        sampler.update(value, time, number, source="s")
    return sampler


def sketch_of(params: SumParams, elements: Iterable[Element]) -> reference.Sketch:
    sketch = reference.sum_init(
        params.levels, params.capacity, eager_from_level=params.first_nested
    )
    for value, time, number in elements:
        key = int(element_keys(params, "s", [number])[0])
        reference.sum_process(sketch, value, time, key)
    return sketch


class TestCapacityOfSumIsOverEpsilonSquared:
    """Section 2.2 prints alpha = (12 / epsilon) ln(8 / delta)."""

    EPSILON, DELTA = 0.02, 0.05

    def test_printed_capacity_breaks_the_promise(self) -> None:
        capacity = math.ceil(12 / self.EPSILON * math.log(8 / self.DELTA))
        n, seeds, wrong = 25_000, 120, 0
        ones, times = np.ones(n, np.int64), np.arange(n)
        for seed in range(seeds):
            sampler = SumSampler(SumParams(max_sum=1 << 20, capacity=capacity, seed=seed))
            sampler.update(ones, times, times, source="s")
            found = sampler.sum(ds.decay.none(), now=n, estimator="single-level").value
            wrong += abs(found - n) > self.EPSILON * n
        assert wrong > 2 * self.DELTA * seeds

    def test_built_capacity(self) -> None:
        params = SumParams.for_accuracy(self.EPSILON, self.DELTA, max_sum=1 << 20, mode="proven")
        assert params.capacity == math.ceil(12 / self.EPSILON**2 * math.log(8 / self.DELTA))
        # Lemma 8 asks for exp(-epsilon^2 alpha / 12) <= delta / 8.
        assert math.exp(-(self.EPSILON**2) * params.capacity / 12) <= self.DELTA / 8
        printed = 12 / self.EPSILON * math.log(8 / self.DELTA)
        assert math.exp(-(self.EPSILON**2) * printed / 12) > self.DELTA


class TestUnionOfLevelsIncludesTheQueryLevel:
    """Section 2.5: "the union of all elements in levels l' + 1, ..., L"."""

    ELEMENTS = tuple((1, i, i) for i in range(20))
    PARAMS = SumParams(max_sum=1 << 10, capacity=50, eager_from_level=4)

    def test_printed_query_loses_half_of_a_complete_sample(self) -> None:
        sketch = sketch_of(self.PARAMS, self.ELEMENTS)
        read = range(0 + 1, self.PARAMS.first_nested + 1)  # l' = 0: nothing was discarded
        printed = sum(Fraction(v) for i in read for _, v, _ in sketch.samples[i])
        assert printed < len(self.ELEMENTS)

    def test_built_query_is_exact(self) -> None:
        sketch = sketch_of(self.PARAMS, self.ELEMENTS)
        assert reference.sum_query(sketch, 10_000, 20) == (len(self.ELEMENTS), 0)
        found = fed(self.PARAMS, self.ELEMENTS).sum(WIDE, now=20, estimator="single-level")
        assert (found.value, found.exact) == (len(self.ELEMENTS), True)


class TestSumProcessIsLevelMOfTheTradeOff:
    """Section 2.5: "if we choose L = M - 1, it is procedure SumProcess"."""

    M = 3
    ELEMENTS = tuple((1 << 3, i, i) for i in range(5))  # values of 2^M reach level M, all of them

    def samples(self, eager: int | None) -> list[int]:
        params = SumParams(max_sum=1 << self.M, capacity=9, eager_from_level=eager)
        return [len(sample) for sample in sketch_of(params, self.ELEMENTS).samples]

    def test_printed_level_puts_elements_into_two_samples(self) -> None:
        assert self.samples(self.M - 1) == [0, 0, 5, 5]

    def test_built_level_puts_them_into_one(self) -> None:
        assert self.samples(self.M) == self.samples(None) == [0, 0, 0, 5]
        assert SumParams(max_sum=8, capacity=9, eager_from_level=self.M) == SumParams(
            max_sum=8, capacity=9
        )


class TestTheLargestValueHasALevel:
    """Step 2 of SumProcess: the smallest l, 0 <= l <= M, such that v / 2^l < 1."""

    M = 10

    def test_printed_step_finds_none(self) -> None:
        v = 1 << self.M
        assert [level for level in range(self.M + 1) if Fraction(v, 1 << level) < 1] == []

    def test_built_level_is_m(self) -> None:
        assert reference.top_level(random.Random(1).getrandbits(64), 1 << self.M, self.M) == self.M
        sampler = SumSampler(SumParams(max_sum=1 << self.M, capacity=5))
        sampler.update(1 << self.M, 3)
        assert sampler.state().levels.tolist() == [self.M]
        assert sampler.sum(WIDE, now=3).value == 1 << self.M


class TestTiesAtACutGoTogether:
    """Step 6: "Discard the element with the lowest timestamp", of which there may be several."""

    PARAMS = SumParams(max_sum=1, capacity=2)  # one level
    ELEMENTS = ((1, 5, 0), (1, 5, 1), (1, 9, 2))

    @staticmethod
    def printed(elements: Iterable[Element], capacity: int) -> set[tuple[int, int]]:
        """One level: a heap by time, of which the first to come is the first to go."""
        heap: list[tuple[int, int, int]] = []
        for arrival, (_, time, number) in enumerate(elements):
            heapq.heappush(heap, (time, arrival, number))
            if len(heap) > capacity:
                heapq.heappop(heap)
        return {(time, number) for time, _, number in heap}

    def test_printed_form_depends_on_the_order(self) -> None:
        kept = self.printed(self.ELEMENTS, 2), self.printed(self.ELEMENTS[::-1], 2)
        assert kept[0] != kept[1]

    def test_built_form_does_not(self) -> None:
        state = fed(self.PARAMS, self.ELEMENTS).state()
        assert state.times.tolist() == [9]
        assert state.watermarks.tolist() == [5]
        backwards = fed(self.PARAMS, self.ELEMENTS[::-1])
        assert backwards.digest() == state.digest()


class TestUnionKeepsEqualElementsOfTwoStreams:
    """Union: S_A and S_B are sets of (v, t)."""

    def test_printed_set_union_loses_one(self) -> None:
        a, b = {(7, 100)}, {(7, 100)}  # two meters that read the same in the same second
        assert sum(v for v, _ in a | b) == 7

    def test_built_union_counts_both(self) -> None:
        params = SumParams(max_sum=1000, capacity=10)
        a, b = SumSampler(params), SumSampler(params)
        a.update(7, 100, 0, source="meter a")
        b.update(7, 100, 0, source="meter b")
        assert (a | b).sum(WIDE, now=100).value == 14
        assert (a | a).sum(WIDE, now=100).value == 7


class TestUnionForgetsFirst:
    """Union, step 1: S_C = S_A + S_B whenever that is not too large, t_C the later of t_A, t_B."""

    PARAMS = SumParams(max_sum=1, capacity=2)
    A = ((1, 1, 0),)
    B = ((1, 5, 1), (1, 5, 2), (1, 7, 3))

    def test_printed_union_is_not_the_sketch_of_both_streams(self) -> None:
        a, b = (fed(self.PARAMS, part).state() for part in (self.A, self.B))
        assert (b.times.tolist(), b.watermarks.tolist()) == ([7], [5])
        printed = sorted([*a.times.tolist(), *b.times.tolist()])
        assert printed == [1, 7]  # an element of time 1, in a sample whose t is 5
        assert fed(self.PARAMS, [*self.A, *self.B]).state().times.tolist() == [7]

    def test_built_union_is(self) -> None:
        merged = fed(self.PARAMS, self.A) | fed(self.PARAMS, self.B)
        assert merged.to_bytes() == fed(self.PARAMS, [*self.A, *self.B]).to_bytes()


class TestTheClockIsState:
    """Step 1: elements with t < c - W are discarded, c being the time of their arrival."""

    PARAMS = SumParams(max_sum=1000, capacity=10, max_window=100)

    def test_printed_form_depends_on_when_an_element_comes(self) -> None:
        def printed(events: Iterable[tuple[str, int]]) -> list[int]:
            clock, kept = -math.inf, []
            for what, time in events:
                if what == "clock":
                    clock = max(clock, time)
                elif time >= clock - 100:
                    kept.append(time)
            return kept

        assert printed([("element", 0), ("clock", 500)]) != printed(
            [("clock", 500), ("element", 0)]
        )

    def test_built_form_does_not(self) -> None:
        early, late = SumSampler(self.PARAMS), SumSampler(self.PARAMS)
        early.update(1, 0, 0, source="s")
        early.advance(500)
        late.advance(500)
        late.update(1, 0, 0, source="s")
        assert early.to_bytes() == late.to_bytes()
        assert (len(early), late.stats().late) == (0, 1)
        merged = fed(self.PARAMS, [(1, 0, 0)]) | late
        assert (merged.to_bytes(), merged.clock) == (late.to_bytes(), 500)


class TestLemma4WithoutItsProof:
    """Its proof says that R_w is in S_0. Elements are in one sample each; the lemma still holds."""

    ELEMENTS = tuple((1 + i % 9, i, i) for i in range(30))
    PARAMS = SumParams(max_sum=1 << 12, capacity=30)

    def test_the_window_is_not_in_s_0(self) -> None:
        assert len(sketch_of(self.PARAMS, self.ELEMENTS).samples[0]) < 10

    def test_the_answer_is_exact(self) -> None:
        found = fed(self.PARAMS, self.ELEMENTS).sum(WIDE, now=30)
        assert (found.value, found.exact) == (sum(v for v, _, _ in self.ELEMENTS), True)


class TestCoinsBelongToElements:
    """The procedures toss coins on arrival; Lemma 23 assumes they come out alike elsewhere."""

    def test_tossed_coins_do_not(self) -> None:
        a, b = random.Random(1), random.Random(2)
        assert [a.random() < 0.5 for _ in range(64)] != [b.random() < 0.5 for _ in range(64)]

    def test_built_coins_do(self) -> None:
        params = MedianParams(max_count=1 << 10, capacity=3)
        values, times = np.arange(100.0), np.arange(100)
        samplers = [MedianSampler(params) for _ in range(2)]
        samplers[0].update(values, times, times, source="s")
        samplers[1].update(values[::-1], times[::-1], times[::-1], source="s")
        assert samplers[0] == samplers[1]


@pytest.mark.parametrize("value", [1, 2, 3, 5, 8, 1000, (1 << 53) - 1, 1 << 53])
def test_steps_2_to_4_toss_the_coins_of_the_top_level(value: int) -> None:
    """P(level >= i) = min(1, v / 2^i), counted over all coins at a coarser grain."""
    levels, grain = 53, 10
    tops = [reference.top_level(coin << 64 - grain, value, levels) for coin in range(1, 1 << grain)]
    for i in range(value.bit_length() - 1, min(levels, value.bit_length() + 5)):
        expected = min(Fraction(1), Fraction(value, 1 << i)) * (1 << grain)
        assert abs(sum(top >= i for top in tops) - expected) <= 1
