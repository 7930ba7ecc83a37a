"""Laws of the integral sketch, stated on digests: order, merging, clocks, shrinking, copies.

The digest covers rows, watermarks, clock, decay and parameters: nothing of a state hides from it.
"""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
import streams
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from integral import cases

import decaysketch as ds
from decaysketch.core import bags
from decaysketch.decay import integral

LAW = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
sizes = st.lists(st.sampled_from([1, 2, 7, 50]), min_size=1, max_size=4)


@pytest.fixture(autouse=True, scope="module")
def small_bags() -> Any:
    """Let bags overflow early, so that compaction runs in the middle of feeds and merges."""
    before = bags._SMALLEST_LIMIT, bags._MERGE_LIMIT
    bags._SMALLEST_LIMIT, bags._MERGE_LIMIT = 40, 20
    yield
    bags._SMALLEST_LIMIT, bags._MERGE_LIMIT = before


@LAW
@given(cases.cases(), st.integers(1, 6), sizes, st.randoms(use_true_random=False))
def test_any_partition_and_merge_tree_gives_the_same_state(
    case: Any, parts: int, batches: list[int], rng: random.Random
) -> None:
    of, decay, rows, told = case
    expected = cases.fed(of, decay, rows, told).digest()
    pieces: list[cases.Rows] = [[] for _ in range(parts)]
    clocks: list[list[int]] = [[] for _ in range(parts)]
    for row in rows:
        for _ in range(rng.choice([1, 1, 2])):
            rng.choice(pieces).append(row)
    for now in told:
        rng.choice(clocks).append(now)
    sketches = [
        cases.fed(of, decay, piece, clock, batches)
        for piece, clock in zip(pieces, clocks, strict=True)
    ]
    while len(sketches) > 1:
        rng.shuffle(sketches)
        if rng.random() < 0.5:
            count = rng.randint(2, len(sketches))
            together, sketches = sketches[:count], sketches[count:]
            sketches.append(ds.merge(together))
        else:
            other = sketches.pop()
            sketches[0].merge(other)
    assert sketches[0].digest() == expected


@LAW
@given(cases.cases(), st.data())
def test_merge_is_commutative_associative_idempotent_and_leaves_its_argument(
    case: Any, data: st.DataObject
) -> None:
    of, decay, rows, told = case
    a = cases.fed(of, decay, rows, told)
    b = cases.fed(of, decay, data.draw(streams.rows(of, max_size=40)), [])
    c = cases.fed(of, decay, data.draw(streams.rows(of, max_size=40)), [7])
    before = [sketch.digest() for sketch in (a, b, c)]
    assert (a | b) == (b | a)
    assert ((a | b) | c) == (a | (b | c))
    assert (a | a).digest() == before[0]
    assert (a | ds.IntegralDecaySketch(of, decay)).digest() == before[0]
    merged = a.copy()
    merged.merge(b)
    merged.merge(merged)
    assert merged == a | b
    assert [sketch.digest() for sketch in (a, b, c)] == before


@LAW
@given(cases.cases(), st.integers(1, 40))
def test_shrinking_equals_building_small(case: Any, capacity: int) -> None:
    of, decay, rows, told = case
    capacity = min(capacity, of.capacity)
    small = cases.fed(of.with_capacity(capacity), decay, rows, told)
    shrunk = cases.fed(of, decay, rows, told)
    shrunk.resize(capacity)
    assert shrunk == small
    half = len(rows) // 2
    joined = cases.fed(of, decay, rows[:half], told) | cases.fed(
        small.params, decay, rows[half:], []
    )
    assert joined == small


@LAW
@given(cases.cases(), st.data())
def test_a_copy_goes_on_like_the_original(case: Any, data: st.DataObject) -> None:
    of, decay, rows, told = case
    sketch = cases.fed(of, decay, rows, told)
    twins = [pickle.loads(pickle.dumps(sketch)), copy.copy(sketch), copy.deepcopy(sketch)]
    more = data.draw(streams.rows(of, max_size=40))
    for each in (sketch, *twins):
        each.update(*streams.columns(of, more), now=3)
    expected = cases.fed(of, decay, rows + more, [*told, 3])
    assert all(each == expected for each in (sketch, *twins))


@LAW
@given(cases.cases(), st.integers(0, 600))
def test_queries_leave_the_sketch_untouched_and_repeat_exactly(case: Any, later: int) -> None:
    of, decay, rows, told = case
    sketch = cases.fed(of, decay, rows, told)
    digest = sketch.digest()
    now = min(max([*told, 0]) + later, 1 << 62)
    answers = []
    for each in (sketch, sketch, sketch.copy()):
        try:
            answers.append(
                repr(
                    (
                        each.sum(now=now),
                        each.count(now=now),
                        each.total(now=now),
                        each.mean(now=now),
                        each.variance(now=now),
                        each.quantile([0.1, 0.5], now=now),
                        each.rank(0.0, now=now),
                        each.selectivity(lambda v, w: v > 0, now=now),
                        each.heavy_hitters(0.1, now=now),
                        each.group_by(now=now),
                    )
                )
            )
        except ds.UnanswerableQueryError as refusal:
            answers.append(str(refusal))
    assert answers[0] == answers[1] == answers[2]
    assert sketch.digest() == digest


def test_the_clock_is_part_of_the_state() -> None:
    of = ds.SketchParams(max_weight=9, id_bits=10)
    a, b = (ds.IntegralDecaySketch(of, integral.window(10)) for _ in range(2))
    assert a == b
    b.advance(5)
    assert a != b
    assert (a.clock, b.clock) == (None, 5)
    a.advance(3)
    a.advance(5)
    a.advance(4)  # never goes back
    assert a == b
    assert (a | ds.IntegralDecaySketch(of, integral.window(10))).clock == 5


def test_other_things_are_no_sketches() -> None:
    sketch = ds.IntegralDecaySketch(ds.SketchParams(max_weight=9, id_bits=10), integral.window(10))
    assert sketch != 3
    with pytest.raises(TypeError):
        _ = sketch | 3  # type: ignore[operator]


def test_what_two_sketches_must_share() -> None:
    of = ds.SketchParams(max_weight=9, id_bits=10)
    sketch = ds.IntegralDecaySketch(of, integral.window(10))
    digest = sketch.digest()
    other = ds.IntegralDecaySketch(of, integral.window(11))
    with pytest.raises(ds.IncompatibleSketchError, match=r"decay: .*window\(10\).*window\(11\)"):
        sketch.merge(other)
    other = ds.IntegralDecaySketch(ds.SketchParams(max_weight=9, id_bits=11), integral.window(10))
    with pytest.raises(ds.IncompatibleSketchError, match="id_bits: 10 != 11"):
        sketch.merge(other)
    with pytest.raises(TypeError, match="cannot merge a DecaySketch"):
        sketch.merge(ds.DecaySketch(of))  # type: ignore[arg-type]
    assert sketch.digest() == digest
    same = integral.fractions([1] * 11)  # says window(10) in another way: other bytes
    with pytest.raises(ds.IncompatibleSketchError, match="decay: "):
        sketch.merge(ds.IntegralDecaySketch(of, same))


def test_single_observations_told_the_time_are_a_batch() -> None:
    """They are gathered; the clock is told at once, and a bad time or row changes nothing."""
    of = ds.SketchParams(max_weight=50, id_bits=20, capacity=40, seed=3)
    decay = integral.exponential(rate=0.05)
    rng = random.Random(8)
    rows = [
        (rng.random(), rng.randint(1, 50), rng.randrange(200), rng.randrange(900), k // 6)
        for k in range(1200)
    ]
    one_by_one, whole = ds.IntegralDecaySketch(of, decay), ds.IntegralDecaySketch(of, decay)
    for *row, now in rows:
        one_by_one.update(*row, now=now)
        assert one_by_one.clock == now
    whole.update(*([row[k] for row in rows] for k in range(4)))
    whole.advance(rows[-1][-1])
    assert one_by_one.stats().fed == 1200
    before = one_by_one.digest()
    assert before == whole.digest()
    with pytest.raises(ds.ParameterError, match=r"now is 1\.5"):
        one_by_one.update(1.0, 2, 300, 1, now=1.5)  # type: ignore[arg-type]
    with pytest.raises(ds.ObservationError):
        one_by_one.update(1.0, 51, 300, 1, now=400)
    assert one_by_one.digest() == before
    assert one_by_one.sum(now=250).value == whole.sum(now=250).value
    one_by_one.update(1.0, 50, 250, 1)  # waits, and is there when asked
    assert one_by_one.sum(now=250).value > whole.sum(now=250).value
