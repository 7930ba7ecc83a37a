"""Enumeration checks the plain-Python cells, and the paper's procedures check what they keep.

Ranks are counted out for every n up to a few thousand; answers are compared with the exact counts
of streams of five laws.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import accumulate, pairwise

import pytest
from ecm.streams import LAWS, starts_of, times_of

from decaysketch.ecm import paper, reference
from decaysketch.ecm.reference import EH, Cell, Wave

KINDS = (Wave, EH)
SLOTS = range(2, 8)
MOST = 1_200  # ones, where everything is enumerated


def filled(cell: Cell, times: list[int]) -> Cell:
    for time in times:
        cell.add(time)
    return cell


def counted(times: list[int], start: int) -> int:
    return sum(time >= start for time in times)


def gaps(kind: type[Cell], n: int, slots: int) -> list[tuple[int, int]]:
    """(lo, hi) of every answer that a cell of n ones at different times can give."""
    ranks = kind.ranks(n, slots)
    return [(n - rank + 1, n - before) for rank, before in pairwise([*ranks, 0])]


# -------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("slots", SLOTS)
def test_a_wave_keeps_the_last_odd_multiples_of_each_power(slots: int) -> None:
    for n in [*range(300), *range(300, MOST, 7)]:
        expected = set()
        for level in range(n.bit_length()):
            odd = [rank for rank in range(1, n + 1) if rank & -rank == 1 << level]
            expected.update(odd[-slots:])
        assert reference.wave_ranks(n, slots) == sorted(expected, reverse=True)


@pytest.mark.parametrize("slots", SLOTS)
def test_a_histogram_keeps_the_ends_of_the_buckets_of_the_procedure(slots: int) -> None:
    procedure = paper.ExponentialHistogram(slots, slots)
    for n in range(1, MOST):
        procedure.add(n)  # so that times are ranks
        buckets = procedure.buckets()
        assert [bucket.end for bucket in buckets] == reference.histogram_ranks(n, slots)
        sums = accumulate(bucket.size for bucket in reversed(buckets))
        assert [bucket.end for bucket in reversed(buckets)] == list(sums)


@pytest.mark.parametrize("slots", SLOTS)
def test_queues_of_the_deterministic_wave_are_levels_of_the_cell(slots: int) -> None:
    levels = 12
    procedure = paper.DeterministicWave(slots, levels)
    for n in range(1, MOST):
        procedure.add(n)
        kept = reference.wave_ranks(n, slots)
        for level in range(min(levels - 1, n.bit_length())):
            queue = [rank for rank, _ in procedure.queue(level)]
            assert queue == [rank for rank in kept if rank & -rank == 1 << level]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", SLOTS)
def test_nothing_that_was_forgotten_is_needed_again(kind: type[Cell], slots: int) -> None:
    kept = set(kind.ranks(0, slots))
    for n in range(1, 3 * MOST):
        now = set(kind.ranks(n, slots))
        assert n in now
        assert now - {n} <= kept
        kept = now


@pytest.mark.parametrize("kind", KINDS)
def test_state_is_a_function_of_the_multiset_of_times(kind: type[Cell]) -> None:
    rng = random.Random(1)
    for law in LAWS * 4:
        times = times_of(law, rng.randrange(1, 800), rng)
        one_by_one = filled(kind(rng.choice(SLOTS)), times)
        weighted = kind(one_by_one.slots)
        at = 0
        while at < len(times):  # runs of ties, cut anywhere
            same = sum(time == times[at] for time in times[at:])
            take = rng.randrange(1, same + 1)
            weighted.add(times[at], take)
            at += take
        assert weighted.kept() == one_by_one.kept()
        assert (weighted.n, weighted.first) == (one_by_one.n, one_by_one.first)
        assert one_by_one.kept() == [(rank, times[rank - 1]) for rank, _ in one_by_one.kept()]


def test_a_weight_of_any_size_costs_no_more() -> None:
    for kind in KINDS:
        cell = kind(3)
        cell.add(5, 10**18)
        cell.add(9, 1)
        assert cell.lo_hi(9) == (1, 1)
        assert cell.lo_hi(10) == (0, 0)
        lo, hi = cell.lo_hi(5)
        assert lo <= 10**18 + 1 == hi
        assert len(cell.kept()) < 3 * 61


# ---------------------------------------------------------------------------- what is answered


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", SLOTS)
def test_the_error_is_below_its_bound_and_comes_near(kind: type[Cell], slots: int) -> None:
    error, worst = kind(slots).error, Fraction(0)
    for n in range(1, 3 * MOST):
        for lo, hi in gaps(kind, n, slots):
            worst = max(worst, Fraction(hi - lo, hi + lo))
    assert 0.97 * error < worst < error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("law", LAWS)
def test_the_truth_is_between_the_ends(kind: type[Cell], law: str) -> None:
    rng = random.Random(f"{law} {kind.__name__}")
    for _ in range(30):
        times = times_of(law, rng.randrange(1, 1_500), rng)
        cell = filled(kind(rng.choice(SLOTS)), times)
        for start in starts_of(times, 60, rng):
            truth = counted(times, start)
            lo, hi = cell.lo_hi(start)
            assert lo <= truth <= hi
            assert hi - lo <= cell.error * (hi + lo)
            assert abs(cell.value(start) - truth) <= float(cell.error) * truth * (1 + 1e-12)
            assert lo * (1 - 1e-12) <= cell.value(start) <= hi * (1 + 1e-12)


def test_interpolation_halves_the_mean_error_of_a_steady_stream() -> None:
    rng = random.Random(3)
    times = list(accumulate(rng.randrange(1, 10) for _ in range(20_000)))
    for kind, slots in ((Wave, 5), (EH, 6)):
        cell = filled_at_once(kind(slots), times)
        middle = spread = 0.0
        for start in range(times[0], times[-1], 97):
            truth = len(times) - next_at(times, start)
            lo, hi = cell.lo_hi(start)
            middle += abs(2 * lo * hi / (lo + hi) - truth) / truth
            spread += abs(cell.value(start) - truth) / truth
        assert spread < 0.6 * middle


def filled_at_once(cell: Cell, times: list[int]) -> Cell:
    """The definition itself, for long streams."""
    cell.n, cell.first = len(times), times[0]
    cell._times = {rank: times[rank - 1] for rank in cell.ranks(len(times), cell.slots)}
    return cell


def next_at(times: list[int], start: int) -> int:
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if times[middle] < start else (low, middle)
    return low


DECAYS = {
    "exponential": lambda age: math.exp(-0.01 * age),
    "polynomial": lambda age: 1.0 / (age + 1.0),
    "window": lambda age: float(age <= 37),
    "none": lambda age: 1.0,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decay", DECAYS)
def test_decayed_ends_hold_the_truth_at_any_time(kind: type[Cell], decay: str) -> None:
    rng = random.Random(f"{decay} {kind.__name__}")
    weight_of_age = DECAYS[decay]
    for law in LAWS * 4:
        times = times_of(law, rng.randrange(1, 700), rng)
        cell = filled(kind(rng.choice(SLOTS)), times)
        for now in (*starts_of(times, 12, rng), times[-1], times[-1] + 40):
            truth = math.fsum(weight_of_age(now - time) for time in times if time <= now)
            lo, hi = cell.decayed(weight_of_age, now)
            assert lo <= truth * (1 + 1e-9) + 1e-300
            assert truth <= hi * (1 + 1e-9) + 1e-300
            if now >= times[-1]:
                assert hi - lo <= float(cell.error) * (hi + lo) * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_is_a_decay(kind: type[Cell]) -> None:
    rng = random.Random(4)
    for law in LAWS:
        times = times_of(law, 400, rng)
        cell = filled(kind(3), times)
        for width in (0, 1, 17, 1000, 10**6):
            now = times[-1] + rng.randrange(3)
            ends = cell.decayed(lambda age, width=width: float(age <= width), now)
            # The first gap starts at the first one, which the ends of a window do not look at.
            lo, hi = cell.lo_hi(now - width)
            assert ends == ((lo, hi) if now - width > times[0] else (len(times), len(times)))


# ------------------------------------------------------------------------------------- merging


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", SLOTS)
def test_whole_splits_are_within_the_merge_error_which_is_reached(
    kind: type[Cell], slots: int
) -> None:
    allowed, worst = kind(slots).merge_error, Fraction(0)
    for n in range(1, 2 * MOST):
        for lo, hi in gaps(kind, n, slots):
            e = reference.split(lo, hi)
            assert lo <= e <= hi
            worst = max(worst, Fraction(hi - e, hi), Fraction(e - lo, lo))
    assert worst <= allowed
    assert worst > 0.85 * allowed
    if kind is EH:
        assert worst == allowed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 8])
def test_pieces_are_a_stream_within_the_merge_error(kind: type[Cell], steps: int) -> None:
    rng = random.Random(steps)
    for law in LAWS * 4:
        times = times_of(law, rng.randrange(1, 900), rng)
        cell = filled(kind(rng.choice(SLOTS)), times)
        stream = reference.pieces(cell, times[0], steps)
        assert sum(ones for _, ones in stream) == len(times)
        assert [time for time, _ in stream] == sorted(time for time, _ in stream)
        assert all(ones > 0 for _, ones in stream)
        for start in starts_of(times, 40, rng):
            truth = counted(times, start)
            found = sum(ones for time, ones in stream if time >= start)
            if start > times[0]:
                assert abs(found - truth) <= cell.merge_error * truth


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("height", [1, 2, 3, 4])
def test_trees_of_merges_stay_within_their_slack(kind: type[Cell], steps: int, height: int) -> None:
    rng = random.Random(f"{kind.__name__} {steps} {height}")
    for _ in range(6):
        slots = rng.choice(SLOTS)
        sites = [
            times_of(rng.choice(LAWS[:2]), rng.randrange(1, 300), rng) for _ in range(2**height)
        ]
        everything = sorted(time for times in sites for time in times)
        cells = [filled(kind(slots), times) for times in sites]
        while len(cells) > 1:
            cells = [
                reference.merged(cells[at : at + 2], slots, steps=steps)
                for at in range(0, len(cells), 2)
            ]
        slack = (1 + cells[0].merge_error) ** height - 1
        assert cells[0].n == len(everything)
        for start in starts_of(everything, 60, rng):
            truth = counted(everything, start)
            lo, hi = cells[0].lo_hi(start)
            if start > everything[0]:
                assert lo <= (1 + slack) * truth
                assert hi >= (1 - slack) * truth


@pytest.mark.parametrize("kind", KINDS)
def test_merging_is_symmetric_and_of_one_cell_changes_nothing(kind: type[Cell]) -> None:
    rng = random.Random(6)
    cells = [filled(kind(4), times_of(law, 500, rng)) for law in LAWS]
    whole = reference.merged(cells, 4)
    for _ in range(5):
        rng.shuffle(cells)
        assert reference.merged(cells, 4).kept() == whole.kept()
    for cell in cells:
        assert reference.merged([cell], 4).kept() == cell.kept()
        assert reference.merged([cell, kind(4)], 4).kept() == cell.kept()
    assert reference.merged([kind(4)], 4).kept() == []


# ------------------------------------------------------------------------ the paper's procedures


@pytest.mark.parametrize("epsilon", [0.3, 0.2, 0.1, 0.05])
def test_the_exponential_histogram_keeps_invariant_1_and_its_error(epsilon: float) -> None:
    rng = random.Random(7)
    for law in LAWS:
        procedure, times = paper.ExponentialHistogram.for_accuracy(epsilon), []
        for time in times_of(law, 1_500, rng):
            procedure.add(time)
            times.append(time)
            if len(times) % 31 == 0:
                assert procedure.ratio() <= Fraction(epsilon).limit_denominator(100)
                for start in starts_of(times, 8, rng):
                    truth = counted(times, start)
                    assert abs(procedure.estimate(start) - truth) <= epsilon * truth * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.3, 0.2, 0.1, 0.05])
def test_the_deterministic_wave_keeps_its_error_up_to_its_bound(epsilon: float) -> None:
    rng, most = random.Random(8), 900
    for law in LAWS:
        procedure, times = paper.DeterministicWave.for_accuracy(epsilon, most), []
        for time in times_of(law, 2_500, rng):
            procedure.add(time)
            times.append(time)
            if len(times) % 53 == 0:
                for start in starts_of(times, 8, rng):
                    truth, found = counted(times, start), procedure.estimate(start)
                    if truth <= most:
                        assert found is not None
                        assert abs(found - truth) <= epsilon * truth * (1 + 1e-12)


def test_a_deterministic_wave_that_was_made_too_small_says_so() -> None:
    procedure = paper.DeterministicWave.for_accuracy(0.2, 50)
    for time in range(5_000):
        procedure.add(time)
    assert procedure.estimate(0) is None
    assert procedure.estimate(4_990) is not None
    cell = filled_at_once(Wave(3), list(range(5_000)))
    assert cell.lo_hi(0)[1] == 5_000  # what is built needs no bound


@pytest.mark.parametrize("epsilon", [0.3, 0.2, 0.1])
def test_merged_histograms_are_within_theorem_4(epsilon: float) -> None:
    rng = random.Random(9)
    for sites in (2, 3, 8):
        streams = [
            times_of(rng.choice(LAWS[:2]), rng.randrange(50, 700), rng) for _ in range(sites)
        ]
        histograms = []
        for times in streams:
            histograms.append(paper.ExponentialHistogram.for_accuracy(epsilon))
            for time in times:
                histograms[-1].add(time)
        whole = paper.merge_histograms(histograms, paper.ExponentialHistogram.for_accuracy(epsilon))
        everything = sorted(time for times in streams for time in times)
        assert whole.n == len(everything)
        allowed = 2 * epsilon + epsilon**2
        for start in starts_of(everything, 200, rng):
            truth = counted(everything, start)
            assert abs(whole.estimate(start) - truth) <= allowed * truth * (1 + 1e-12)


def halving(seed: int, levels: int) -> list[int]:
    """Levels of ids from 0 to 3,999: one more with probability 1/2 each time."""
    rng = random.Random(seed)
    words = (rng.getrandbits(64) for _ in range(4_000))
    return [min(levels - 1, (word ^ (word + 1)).bit_length() - 1) for word in words]


def test_randomized_waves_merge_without_loss() -> None:
    rng, levels = random.Random(10), 12
    level = halving(1, levels)

    def wave() -> paper.RandomizedWave:
        return paper.RandomizedWave(40, levels, level.__getitem__)

    for _ in range(4):
        events = [(rng.randrange(500), rng.randrange(1_200)) for _ in range(2_000)]
        whole = wave()
        for event in events:
            whole.add(*event)
        parts = [wave() for _ in range(3)]
        shuffled = events + rng.sample(events, 700)
        rng.shuffle(shuffled)
        for event in shuffled:
            rng.choice(parts).add(*event)
        for event in events:  # whatever chance left out
            parts[0].add(*event)
        union = paper.merge_randomized(parts, wave())
        assert union.samples == whole.samples
        assert union.dropped == whole.dropped


def test_the_randomized_wave_counts_distinct_ids() -> None:
    """Exact while the lowest level holds all; beyond, within five standard errors (1e-6 each)."""
    capacity, levels = 200, 12
    errors = []
    for seed in range(20):
        level = halving(seed, levels)
        wave = paper.RandomizedWave(capacity, levels, level.__getitem__)
        for identity in range(1_500):
            wave.add(identity, identity)
            wave.add(identity // 2, identity)  # an older copy
        assert wave.estimate(1_350) == 150
        found = wave.estimate(0)
        assert found is not None
        errors.append(found / 1_500 - 1)
    deviation = math.sqrt(2 / capacity)
    assert all(abs(error) < 5 * deviation for error in errors)
    assert abs(sum(errors) / len(errors)) < 5 * deviation / math.sqrt(len(errors))
