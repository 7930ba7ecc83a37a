"""Where the printed text of the paper is wrong: each test implements it and shows that it fails.

The paper is Cormode, Tirthapura, Xu, *Time-decaying sketches for robust aggregation of sensor
data*. Every test writes down the printed form, finds a case in which it breaks a promise of the
paper itself, and checks that the form this library builds keeps the promise in every case tried.

======================================= ===========================================================
place                                   what is wrong as printed
======================================= ===========================================================
section 3.3, Def. 3.13, Lemma 3.16      hit test h <= floor(p / 2^i); E[x_i] = floor(p / 2^i)
section 3.3, sub-sequences              a sub-sequence ends at r > m + 1
section 3.4, M                          M = ceil(log w_max + log id_max)
Algorithm 5                             the length of S_0, k, f_1, f_(d+1) unstated; L < 0
Algorithm 4                             returns t + l, the last time that is not expired
Algorithm 4, first line                 w f(0) - 1
section 3.3, faster expiry              min{x : f(w, x) = w'}
section 3.3, sliding window             expiry t + W
Theorem 4.1, update                     "fewer than tau: retain", "eject the oldest"
Algorithm 3, with timestamps as expiry  merge can lower t_i
section 4.1, window                     x < W
Algorithm 6, for windows                level with t_l <= c
Lemma 4.2                               "tracking the sum of w exactly"
======================================= ===========================================================
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations, product
from typing import NamedTuple

import definition
import numpy as np
import pytest
from definition import NO_WATERMARK, Row

from decaysketch import DecaySketch, SketchParams, decay, minhit
from decaysketch.minhit import reference


def progression(p: int, a: int, u: int, n: int) -> list[int]:
    return [(u + j * a) % p for j in range(n + 1)]


def first_hit(values: list[int], limit: int) -> int:
    return next((j for j, value in enumerate(values) if value <= limit), -1)


# ----------------------------------------------------------------------------- hash and levels


@pytest.mark.parametrize("p", [7, 13, 31, 101])
def test_hit_test_with_floor_p_over_2_i_included_does_not_have_probability_p_i(p: int) -> None:
    """Printed: hit <=> h <= floor(p / 2^i). Only "- 1" gives p_i = floor(p / 2^i) / p."""
    last = p.bit_length()  # the first level with 2^i > p, which selects nothing
    for level in range(last + 1):
        p_i = Fraction(p // 2**level, p)
        printed = Fraction(sum(h <= p // 2**level for h in range(p)), p)
        limit = reference.level_limit(p, level)
        assert Fraction(sum(h <= limit for h in range(p)), p) == p_i
        assert Fraction(reference.range_sample(p, 1, 0, p - 1, limit), p) == p_i
        assert printed == (p_i + Fraction(1, p) if level else 1)
    assert printed > p_i == 0


def test_lemma_3_16_expectation_misses_the_division_by_p() -> None:
    """Printed: E[x_i] = Pr[..] = floor(p 2^-i) = p_i. Over all (a, b), hits have mean w p_i."""
    p, weight, max_weight, id = 31, 5, 6, 3
    for level in range(p.bit_length() + 1):
        limit = reference.level_limit(p, level)
        hits = 0
        for a, b in product(range(p), repeat=2):
            u = reference.hash_start(p, a, b, max_weight, id)
            hits += reference.range_sample(p, a, u, weight - 1, limit)
        mean = Fraction(hits, p * p)
        assert mean == weight * Fraction(p >> level, p)
        if p >> level:
            assert mean != weight * (p >> level)


def ascending_runs(values: list[int], least_gap: int) -> list[int]:
    """Start indices of S_0 S_1 .. S_k. S_j = <S[m+1], .., S[r]> for the least r >= m + least_gap
    with S[r] > S[r+1]; the built form has least_gap = 1, the printed one (r > m + 1) has 2."""
    falls = [i for i in range(len(values) - 1) if values[i] > values[i + 1]]
    starts, m = [0], falls[0] if falls else len(values) - 1
    while m < len(values) - 1:
        starts.append(m + 1)
        m = next((r for r in falls if r >= m + least_gap), len(values) - 1)
    return starts


def test_sub_sequences_that_end_at_r_greater_than_m_plus_1_lose_the_first_hit() -> None:
    """Printed: "r is the smallest number such that r > m + 1". Runs of one element exist once
    a > p / 2; glued to the next run, they hide its first element, which may be the first hit."""
    lost = 0
    for p in (7, 13, 23):
        for a, u, level in product(range(p), range(p), range(1, p.bit_length())):
            values = progression(p, a, u, 2 * p)
            hit = first_hit(values, reference.level_limit(p, level))
            if hit < 0:
                continue
            assert hit in ascending_runs(values, least_gap=1)  # Lemma 3.6
            if hit not in ascending_runs(values, least_gap=2):
                lost += 1
                assert a > p / 2
    assert lost > 100
    # By hand, p = 5 and a = 4: five runs of one element; glued to <1>, the hit 0 leads none.
    assert ascending_runs([4, 3, 2, 1, 0], least_gap=1) == [0, 1, 2, 3, 4]
    assert ascending_runs([4, 3, 2, 1, 0], least_gap=2) == [0, 1, 3]


def test_number_of_levels_at_id_max_0() -> None:
    """Printed: M = ceil(log w_max + log id_max). Id 0 alone is a legal id space and has no log; and
    with ids 0 and 1, 2^M falls short of the sum V < 2^M that Lemma 3.20 relies on."""

    def printed(max_weight: int, id_max: int) -> int:
        return math.ceil(math.log2(max_weight) + math.log2(id_max))

    with pytest.raises(ValueError, match=r"math domain error|positive"):
        printed(1000, id_max=0)
    assert 2 ** printed(1000, id_max=1) < 1000 * 2
    for max_weight, id_bits in product((1, 2, 3, 999, 1000, 1024, 2**31), (0, 1, 2, 7, 24)):
        params = SketchParams(max_weight=max_weight, id_bits=id_bits)
        universe = max_weight * 2**id_bits  # Y, the largest sum there can be
        assert 2**params.levels >= universe > 2**params.levels // 2
        assert params.level_probabilities[-1] * universe <= 1  # E[X_M] <= 1, Lemma 3.20


# ----------------------------------------------------------------------------------- Algorithm 5


class Quantities(NamedTuple):
    """What Algorithm 5 computes without saying how; as `min_hit` does it, unless told otherwise."""

    first_run: Callable[[int, int, int, int], int] = lambda p, a, u, n: min(n + 1, -((u - p) // a))
    first: Callable[[int, int, int, int], int] = lambda p, a, u, s0: u + s0 * a - p
    runs: Callable[[int, int, int, int], int] = lambda p, a, u, n: (u + n * a) // p
    hit_value: Callable[[int, int, int, int, int], int] = lambda a, r, f1, d, L: (
        (f1 + d * (a - r)) % a
    )


AS_BUILT = Quantities()


def algorithm_5(p: int, a: int, u: int, n: int, L: int, quantities: Quantities = AS_BUILT) -> int:
    """Algorithm 5 line by line."""
    if p <= L or u <= L:
        return 0
    if a == 0:
        return -1
    s0 = quantities.first_run(p, a, u, n)
    if s0 == n + 1:
        return -1
    if a == 1:
        return p - u
    r = p % a
    k, f1 = quantities.runs(p, a, u, n), quantities.first(p, a, u, s0)
    if a - r <= a / 2:
        d = algorithm_5(a, a - r, f1, k - 1, L, quantities)
    else:
        d = algorithm_5(a, r, (a - f1 + L) % a, k - 1, L, quantities)
    if d != -1:
        d = ((d + 1) * p - u + quantities.hit_value(a, r, f1, d, L)) // a
    return d


def mirrored_where_line_10_ran(a: int, r: int, f1: int, d: int, L: int) -> int:
    """f_(d+1) read off the progression that was handed to the recursive call."""
    if a - r <= a / 2:
        return (f1 + d * (a - r)) % a
    return ((a - f1 + L) % a + d * r) % a


READINGS = {
    "length of S_0 not rounded up": Quantities(
        first_run=lambda p, a, u, n: min(n + 1, (p - u) // a)
    ),
    "length of S_0 not capped at n + 1": Quantities(first_run=lambda p, a, u, n: -((u - p) // a)),
    "k counted from 0 instead of u": Quantities(runs=lambda p, a, u, n: n * a // p),
    "k counts S_0 as well": Quantities(runs=lambda p, a, u, n: (u + n * a) // p + 1),
    "f_1 not reduced by p": Quantities(first=lambda p, a, u, s0: u + s0 * a),
    "f_1 from the last element of S_0": Quantities(first=lambda p, a, u, s0: (u + s0 * a - a) % a),
    "f_(d+1) one step too far": Quantities(
        hit_value=lambda a, r, f1, d, L: (f1 + (d + 1) * (a - r)) % a
    ),
    "f_(d+1) mirrored on line 10": Quantities(hit_value=mirrored_where_line_10_ran),
}


@pytest.mark.parametrize("reading", READINGS)
def test_algorithm_5_unstated_quantities(reading: str) -> None:
    """Printed: "Compute |S_0|", "Compute k, f_1", "Compute f_(d+1)", without saying how.

    Exactly: |S_0| = min(n + 1, ceil((p - u) / a)); f_1 = u + |S_0| a - p; k = floor((u + n a) / p);
    f_(d+1) = (f_1 + d (a - r)) mod a, not mirrored, on both lines 9 and 10. Any other reading is
    wrong somewhere; a reading may also fail to terminate or leave the domain, which counts.
    """
    wrong = 0
    for p in (11, 23):
        for a, u, n, level in product(range(p), range(p), (0, 1, 4, p - 1), range(1, 4)):
            limit = reference.level_limit(p, level)
            if limit < 0:
                continue
            expected = first_hit(progression(p, a, u, n), limit)
            assert algorithm_5(p, a, u, n, limit) == expected
            assert reference.min_hit(p, a, u, n, limit) == expected
            try:
                wrong += algorithm_5(p, a, u, n, limit, READINGS[reading]) != expected
            except (RecursionError, ZeroDivisionError):
                wrong += 1
    assert wrong > 0


def test_algorithm_5_reports_hits_where_nothing_is_selected() -> None:
    """Printed: input L >= 0, yet the caller passes floor(p / 2^i) - 1, which is -1 once 2^i > p."""
    p, a, u, n = 7, 1, 5, 6
    level = 3
    limit = reference.level_limit(p, level)
    assert limit == -1
    assert algorithm_5(p, a, u, n, limit) == p - u  # line 6
    assert reference.min_hit(p, a, u, n, limit) == -1
    assert reference.all_levels(p, a, u, n, level)[level] == -1


# ------------------------------------------------------------------------------------ expiry times

Decay = Callable[[int, int], int]

DECAYS: dict[str, Decay] = {
    "window": lambda w, x: w if x <= 5 else 0,
    "exponential": lambda w, x: math.floor(w * math.exp(-0.3 * x)),
    "polynomial": lambda w, x: w // (x + 1),
    "halving": lambda w, x: w >> x,
}
T_MAX = 40  # every decay of these tests is 0 there


def first_expired(hashes: list[int], L: int, time: int, f: Decay) -> int:
    """expiry(e, i) by definition, for w = len(hashes): no integer, or no selected one."""
    now = time
    while first_hit(hashes[: f(len(hashes), now - time)], L) >= 0:
        now += 1
    return now


def algorithm_4(
    p: int, a: int, u: int, L: int, w: int, t: int, f: Decay, *, n: int, last: bool
) -> int:
    """Algorithm 4 line by line, with the MinHit call of ``n`` and t + l or t + r in line 6."""
    delta = reference.min_hit(p, a, u, n, L)
    if delta < 0:
        return t
    left, right = 0, T_MAX
    middle = (left + right) // 2
    while middle != left:
        if f(w, middle) > delta:
            left = middle
        else:
            right = middle
        middle = (left + right) // 2
    return t + (left if last else right)


class Element(NamedTuple):
    p: int
    a: int
    u: int
    L: int
    w: int
    t: int

    @property
    def hashes(self) -> list[int]:
        return progression(self.p, self.a, self.u, self.w - 1)


def elements(seed: int, count: int) -> list[Element]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        p = rng.choice((31, 37, 41, 101))
        L = reference.level_limit(p, rng.randrange(5))
        found.append(
            Element(p, rng.randrange(p), rng.randrange(p), L, rng.randint(1, 30), rng.randrange(99))
        )
    return found


@pytest.mark.parametrize("name", DECAYS)
def test_algorithm_4_returns_the_last_unexpired_time(name: str) -> None:
    """Printed: "return t + t'" where the loop ends with t' = l. At t + l the observation is still
    selected: wrong whenever there is a hit at all. The first expired time is t + r."""
    f, hits = DECAYS[name], 0
    for e in elements(1, 2000):
        truth = first_expired(e.hashes, e.L, e.t, f)
        assert algorithm_4(*e, f, n=f(e.w, 0) - 1, last=False) == truth
        assert reference.expiry_time(*e, f, T_MAX) == truth
        if truth > e.t:
            hits += 1
            assert algorithm_4(*e, f, n=f(e.w, 0) - 1, last=True) == truth - 1
    assert hits > 500


def test_algorithm_4_looks_for_hits_among_integers_that_are_not_there() -> None:
    """Printed: n = w f(0) - 1, which has a meaning for decomposable decays only and is w - 1 where
    f(0) = 1. The range holds f(w, 0) integers: a hit beyond them expires at t, not at t + 1. And
    f(w, 0) = 0 asks MinHit for the length 0, which it answers with a hit: this needs a guard."""

    def f(w: int, x: int) -> int:
        return max(w - 4 - x, 0)

    beyond = nothing = 0
    for e in elements(2, 2000):
        truth = first_expired(e.hashes, e.L, e.t, f)
        assert reference.expiry_time(*e, f, T_MAX) == truth
        if truth != algorithm_4(*e, f, n=e.w - 1, last=False):
            beyond += 1
            assert truth == e.t
        if truth != algorithm_4(*e, f, n=f(e.w, 0) - 1, last=False):
            nothing += 1
            assert f(e.w, 0) == 0
    assert beyond > 100
    assert nothing > 50


def test_faster_expiry_looks_for_an_age_that_need_not_exist() -> None:
    """Printed: min{x : f(w, x) = w'}, and w' = Delta + 1. Integral decays skip values: for
    floor(w / 2^x) and w = 7, which takes the values 7 3 1 0, w' = 2, 4, 5 and 6 have no age.
    min{x : f(w, x) <= Delta} always has one."""
    for name, f in DECAYS.items():
        missing = 0
        for w in range(1, 31):
            values = [f(w, x) for x in range(T_MAX + 1)]
            for delta in range(w):
                assert min(values) <= delta
                missing += delta + 1 not in values
        assert missing > 100, name
    values = [DECAYS["halving"](7, x) for x in range(4)]
    assert values == [7, 3, 1, 0]
    halving = decay.integral.halving()
    found = halving.expiry_ages(np.full(7, 7), np.arange(7), max_weight=7)
    assert found.tolist() == [3, 2, 2, 1, 1, 1, 1]


def test_window_expires_after_its_edge() -> None:
    """Printed: expiry(e, i) = t + W. A window holds its edge (x <= W in 1.1 and 5), so at t + W the
    observation still counts in full; it expires at t + W + 1."""
    width = 5
    window = decay.integral.window(width)
    params = SketchParams(max_weight=30, id_bits=10, seed=3)
    assert window(30, width) == 30
    for e in elements(3, 500):
        truth = first_expired(e.hashes, e.L, e.t, DECAYS["window"])
        assert truth in (e.t, e.t + width + 1)
        assert truth != e.t + width
    expiry = [minhit.expiry_time(params, window, id, 30, 100, 0) for id in range(20)]
    assert expiry == [100 + width + 1] * 20


# ------------------------------------------------------------------ Theorem 4.1: the kept sample

Sample = tuple[frozenset[Row], int]  # S_i and t_i of one level


def theorem_4_1(rows: list[Row], capacity: int, *, all_ties: bool, check_first: bool) -> Sample:
    """One level fed in order. As printed: ``all_ties`` and ``check_first`` both False."""
    kept: list[Row] = []
    mark = NO_WATERMARK  # t_i
    for row in rows:
        if check_first and row.time <= mark:
            continue
        if len(kept) >= capacity and row.time <= mark:
            continue
        kept.append(row)
        if len(kept) > capacity:
            oldest = min(kept, key=lambda r: r.time)
            mark = max(mark, oldest.time)
            if all_ties:
                kept = [r for r in kept if r.time > oldest.time]
            else:
                kept.remove(oldest)
    return frozenset(kept), mark


@pytest.mark.parametrize(
    ("all_ties", "check_first"),
    [
        pytest.param(False, False, id="as printed"),
        pytest.param(True, False, id="fewer than tau: retain"),
        pytest.param(False, True, id="eject the oldest"),
    ],
)
def test_theorem_4_1_update_depends_on_the_order_of_arrival(
    all_ties: bool, check_first: bool
) -> None:
    """Printed: "If there are fewer than tau items at the level, we retain it. Otherwise, we either
    reject the new item if t <= t_i, or else retain it, eject the oldest item".

    Lemma 3.2 promises a sample that permuting the stream does not change. That needs both repairs:
    refuse t <= t_i also where there is room, and eject every item tied at the cut.
    """
    times = [5, 5, 5, 4, 6]
    rows = [Row(0, 1, time, id) for id, time in enumerate(times)]
    orders = [list(order) for order in permutations(rows)]
    printed = {theorem_4_1(rows, 2, all_ties=all_ties, check_first=check_first) for rows in orders}
    assert len(printed) > 1
    repaired = {theorem_4_1(rows, 2, all_ties=True, check_first=True) for rows in orders}
    state = definition.state(rows, lambda id, weight: 0, capacity=2, max_level=0)
    assert repaired == {(frozenset(state.rows), state.watermarks[0])}

    params = SketchParams(max_weight=1, id_bits=3, capacity=2)
    assert len({fed(params, order).to_bytes() for order in orders}) == 1


def fed(params: SketchParams, rows: list[Row]) -> DecaySketch:
    """A sketch fed the rows one at a time, in order; value keys serve as values."""
    sketch = DecaySketch(params)
    for row in rows:
        sketch.update(float(row.value_key), row.weight, row.time, row.id)
        _ = sketch.digest()  # settle: nothing may wait in a buffer
    return sketch


def algorithm_3(ours: Sample, theirs: Sample, capacity: int, *, refuse_first: bool) -> Sample:
    """Merge of one level, timestamps in the part of expiry times. As printed: not refuse_first."""
    (kept, mark), (other, other_mark) = ours, theirs
    kept, mark = kept | other, max(mark, other_mark)
    if refuse_first:
        kept = frozenset(row for row in kept if row.time > mark)
    while len(kept) > capacity:
        mark = min(row.time for row in kept)
        kept = frozenset(row for row in kept if row.time > mark)
    return kept, mark


def test_algorithm_3_merge_by_timestamp_lowers_the_watermark() -> None:
    """Printed: S_i := S_i + S'_i, t_i := max(t_i, t'_i), then truncate. Items at or before the new
    t_i must go first: left in, they can be cut in its place and t_i sinks below what one side had
    discarded, so that an incomplete level answers."""
    capacity = 2
    left = [Row(0, 1, time, id) for id, time in enumerate([10, 9, 8])]
    right = [Row(0, 1, time, 10 + id) for id, time in enumerate([3, 2])]

    def level_0(rows: list[Row]) -> Sample:
        state = definition.state(rows, lambda id, weight: 0, capacity, 0)
        return frozenset(state.rows), state.watermarks[0]

    truth = level_0(left + right)
    assert truth[1] == 8
    printed = algorithm_3(level_0(left), level_0(right), capacity, refuse_first=False)
    assert printed[1] == 3  # "complete after 3", although time 8 is lost
    assert algorithm_3(level_0(left), level_0(right), capacity, refuse_first=True) == truth

    params = SketchParams(max_weight=1, id_bits=5, capacity=capacity)
    merged = fed(params, left)
    merged.merge(fed(params, right))
    assert merged.state().watermarks[0] == truth[1]
    assert merged.to_bytes() == fed(params, left + right).to_bytes()


# ------------------------------------------------------------------------------ windows and sums


def test_window_includes_its_edge() -> None:
    """Printed: f_W(w, x) = w if x < W (section 4.1), but x <= W in sections 1.1 and 5. The window
    [c - W, c] of the asynchronous papers is the inclusive one."""
    now, width = 100, 10
    ages = np.array([0, width - 1, width, width + 1])
    in_window = np.array([now - width <= now - age <= now for age in ages])
    printed = ages < width
    assert not np.array_equal(printed, in_window)
    assert np.array_equal(decay.window(width)(ages) > 0, in_window)
    assert decay.window(width).support == width

    sketch = DecaySketch(SketchParams(max_weight=9, id_bits=4))
    sketch.update(np.zeros(4), np.array([1, 2, 4, 8]), now - ages, np.arange(4))
    assert sketch.sample(decay.window(width), now=now).masses.sum() == 1 + 2 + 4


def small_stream(seed: int, params: SketchParams, rows: int, span: int) -> list[Row]:
    rng = random.Random(seed)
    return [
        Row(
            0,
            rng.randint(1, params.max_weight),
            rng.randrange(span),
            rng.randrange(2**params.id_bits),
        )
        for _ in range(rows)
    ]


def level_by_reference(params: SketchParams) -> Callable[[int, int], int]:
    """Top level of an observation whose ids are not mixed (id_mix="none")."""
    assert params.id_mix == "none"
    p, a, b = params.prime, params.multipliers[0], params.offsets[0]

    def level(id: int, weight: int) -> int:
        u = reference.hash_start(p, a, b, params.max_weight, id)
        return reference.top_level(p, a, u, weight - 1, params.levels)

    return level


def test_query_level_of_a_window_that_begins_at_a_watermark() -> None:
    """Printed: the lowest level with t_l <= c, t_l an expiry time; for a window fixed at the query,
    t_l + W <= c. An item at t_l = c - W was discarded, yet it is in the (inclusive) window: the
    level to read is the lowest with t_i < c - W."""
    params = SketchParams(max_weight=4, id_bits=6, capacity=8, id_mix="none", seed=3)
    level = level_by_reference(params)
    incomplete = 0
    for seed in range(12):
        rows = small_stream(seed, params, rows=60, span=30)
        distinct = definition.representatives(rows)
        state = definition.state(rows, level, params.capacity, params.levels)
        marks = state.watermarks

        for start in range(30):  # c - W
            # whether the sample of a level holds all that the level selects in the window
            complete = [
                {r for r in distinct if level(r.id, r.weight) >= i and r.time >= start}
                == {r for r in state.sample(i) if r.time >= start}
                for i in range(params.levels + 1)
            ]
            printed = next(i for i, mark in enumerate(marks) if mark <= start)
            built = next(i for i, mark in enumerate(marks) if mark < start)
            assert complete[built]
            assert not any(complete[:built])  # no level is wasted
            incomplete += not complete[printed]
    assert incomplete > 20


def test_window_that_begins_at_the_watermark_is_not_called_exact() -> None:
    """The same, seen from outside: of four items at time 50, all were discarded."""
    params = SketchParams(max_weight=1, id_bits=10, capacity=6, seed=1)
    times = np.array([90, 80, 70, 50, 50, 50, 50])
    sketch = DecaySketch(params)
    sketch.update(np.zeros(7), np.ones(7, dtype=np.int64), times, np.arange(7))
    assert sketch.state().watermarks[0] == 50
    inside = sketch.sample(decay.window(100 - 51), now=100)
    assert inside.exact
    assert inside.masses.sum() == 3
    assert not sketch.sample(decay.window(100 - 50), now=100).exact


def test_tracking_the_sum_exactly_counts_duplicates() -> None:
    """Printed: "by tracking sum of w_i exactly" (Lemma 4.2). A running sum counts every copy; the
    estimate of the lowest level that has discarded nothing is a function of the set of rows."""
    params = SketchParams(max_weight=4, id_bits=6, capacity=12, id_mix="none", seed=5)
    level = level_by_reference(params)
    p, a, b = params.prime, params.multipliers[0], params.offsets[0]

    def estimate(rows: list[Row]) -> Fraction:
        state = definition.state(rows, level, params.capacity, params.levels)
        i = state.watermarks.index(NO_WATERMARK)
        limit = reference.level_limit(p, i)
        hits = 0
        for row in state.sample(i):
            u = reference.hash_start(p, a, b, params.max_weight, row.id)
            hits += reference.range_sample(p, a, u, row.weight - 1, limit)
        return Fraction(hits * p, p >> i)

    for size in (8, 100):  # nothing discarded; most of level 0 discarded
        rows = definition.representatives(small_stream(7, params, rows=size, span=30))
        twice = rows + rows[::-1]
        true_sum = sum(row.weight for row in rows)
        assert sum(row.weight for row in twice) == 2 * true_sum  # the printed tracker
        assert estimate(twice) == estimate(rows)
        sketches = [fed(params, stream) for stream in (rows, twice)]
        once_sum, twice_sum = (s.sample(decay.none(), now=30).masses.sum() for s in sketches)
        assert once_sum == twice_sum
        if size <= params.capacity:
            assert estimate(rows) == once_sum == true_sum
