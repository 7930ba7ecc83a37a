"""Laws of the samplers: the state is a function of elements and clock; reading changes nothing.

Every law is stated on bytes, so that nothing of a state can hide from it.
"""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest
from asyncwindow import elements
from asyncwindow.elements import Params, Row, fed, feed, sampler_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.asyncwindow import reference as paper
from decaysketch.core import bags
from decaysketch.core.observations import decode_values
from decaysketch.families import merge

LAW = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
CLOCKS = st.none() | st.integers(-310, 310)
sizes = st.lists(st.sampled_from([1, 2, 7, 50]), min_size=1, max_size=4)
shuffles = st.randoms(use_true_random=False)
Case = tuple[Params, list[Row]]


@pytest.fixture(autouse=True, scope="module")
def small_bags() -> Any:
    """Let bags overflow early, so that compaction runs in the middle of feeds."""
    before = bags._SMALLEST_LIMIT, bags._MERGE_LIMIT
    bags._SMALLEST_LIMIT, bags._MERGE_LIMIT = 40, 60
    yield
    bags._SMALLEST_LIMIT, bags._MERGE_LIMIT = before


@LAW
@given(elements.cases(), CLOCKS)
def test_state_equals_the_definition(case: Case, clock: int | None) -> None:
    params, rows = case
    state = fed(params, rows, clock=clock).state()
    assert elements.described(state) == elements.definition(params, rows, clock)


@LAW
@given(elements.cases(), CLOCKS)
def test_samples_are_those_of_the_papers_procedures(case: Case, clock: int | None) -> None:
    params, rows = case
    state = fed(params, rows, clock=clock).state()
    sketch = elements.reference_of(params, elements.keyed(params, rows), clock)
    assert elements.samples_of(state) == elements.reference_samples(sketch)


@LAW
@given(elements.cases(), CLOCKS, st.data())
def test_merging_is_the_papers_union(case: Case, clock: int | None, data: st.DataObject) -> None:
    params, rows = case
    cut = data.draw(st.integers(0, len(rows)))
    parts = rows[:cut], rows[cut:]
    merged: Any = fed(params, parts[0], clock=clock)
    merged.merge(fed(params, parts[1]))
    sketches = (
        elements.reference_of(params, elements.keyed(params, part), c)
        for part, c in zip(parts, (clock, None), strict=True)
    )
    assert elements.samples_of(merged.state()) == elements.reference_samples(paper.union(*sketches))


@LAW
@given(elements.cases(), CLOCKS, sizes, shuffles)
def test_any_order_duplication_batching_and_moment_of_the_clock_gives_the_same_bytes(
    case: Case, clock: int | None, batches: list[int], rng: random.Random
) -> None:
    params, rows = case
    expected = fed(params, rows, clock=clock).to_bytes()
    again = rows + [rng.choice(rows) for _ in range(len(rows))] if rows else rows
    rng.shuffle(again)
    cut = rng.randint(0, len(again))
    sampler = feed(sampler_of(params), again[:cut], batches)
    if clock is not None:
        sampler.advance(clock)
        sampler.advance(clock - 50)  # an earlier time has no effect
    assert feed(sampler, again[cut:], batches).to_bytes() == expected


@LAW
@given(elements.cases(), CLOCKS, st.integers(1, 6), sizes, shuffles)
def test_any_partition_and_merge_tree_gives_the_same_bytes(
    case: Case, clock: int | None, parts: int, batches: list[int], rng: random.Random
) -> None:
    """Lemma 23, and more: copies in several parts, parts that know the clock and parts that do
    not."""
    params, rows = case
    expected = fed(params, rows, clock=clock).to_bytes()
    pieces: list[list[Row]] = [[] for _ in range(parts)]
    for row in rows:
        for _ in range(rng.choice([1, 1, 2])):
            rng.choice(pieces).append(row)
    samplers: list[Any] = [feed(sampler_of(params), piece, batches) for piece in pieces]
    if clock is not None:
        for sampler in samplers:
            if rng.random() < 0.5:
                sampler.advance(clock - rng.choice([0, 20]))
        rng.choice(samplers).advance(clock)
    while len(samplers) > 1:
        rng.shuffle(samplers)
        if rng.random() < 0.5:
            together = samplers[: rng.randint(2, len(samplers))]
            samplers = [*samplers[len(together) :], merge(together)]
        else:
            other = samplers.pop()
            samplers[0].merge(other)
    assert samplers[0].to_bytes() == expected


@LAW
@given(elements.cases(), st.data())
def test_merge_is_commutative_associative_idempotent_and_leaves_its_argument(
    case: Case, data: st.DataObject
) -> None:
    params, rows_a = case
    a: Any = fed(params, rows_a, clock=data.draw(CLOCKS))
    b: Any = fed(params, data.draw(elements.rows(params, max_size=40)), clock=data.draw(CLOCKS))
    c: Any = fed(params, data.draw(elements.rows(params, max_size=40)))
    before = [sampler.to_bytes() for sampler in (a, b, c)]
    assert (a | b).to_bytes() == (b | a).to_bytes()
    assert ((a | b) | c).to_bytes() == (a | (b | c)).to_bytes() == merge([c, a, b]).to_bytes()
    assert (a | a).to_bytes() == before[0]
    assert (a | sampler_of(params)).to_bytes() == before[0]
    merged = a.copy()
    merged.merge(b)
    merged.merge(merged)
    assert merged.to_bytes() == (a | b).to_bytes()
    assert [sampler.to_bytes() for sampler in (a, b, c)] == before


@LAW
@given(elements.cases(), CLOCKS, st.integers(1, 60))
def test_shrinking_equals_building_small(case: Case, clock: int | None, capacity: int) -> None:
    params, rows = case
    capacity = min(capacity, params.capacity)
    small = fed(params.with_capacity(capacity), rows, clock=clock)
    shrunk = fed(params, rows, clock=clock)
    shrunk.resize(capacity)
    assert shrunk.to_bytes() == small.to_bytes()
    half = len(rows) // 2
    joined: Any = fed(params, rows[:half], clock=clock)
    assert (joined | fed(small.params, rows[half:])).to_bytes() == small.to_bytes()


@LAW
@given(elements.cases(), CLOCKS)
def test_encode_decode_encode_is_identical(case: Case, clock: int | None) -> None:
    params, rows = case
    sampler = fed(params, rows, clock=clock)
    blob = sampler.to_bytes()
    back = type(sampler).from_bytes(blob)
    assert back.to_bytes() == blob
    assert back == sampler
    assert back.digest() == sampler.digest()
    assert back.params == params
    for twin in (pickle.loads(pickle.dumps(sampler)), copy.copy(sampler), copy.deepcopy(sampler)):
        assert twin.to_bytes() == blob


@LAW
@given(elements.cases(), CLOCKS, st.data())
def test_a_decoded_sampler_goes_on_like_the_original(
    case: Case, clock: int | None, data: st.DataObject
) -> None:
    params, rows = case
    sampler = fed(params, rows, clock=clock)
    back = type(sampler).from_bytes(sampler.to_bytes())
    more = data.draw(elements.rows(params, max_size=40))
    for each in (sampler, back):
        feed(each, more)
    assert back.to_bytes() == sampler.to_bytes() == fed(params, rows + more, clock=clock).to_bytes()


def answers(sampler: Any, now: int) -> list[str]:
    decays = (
        ds.decay.window(3), ds.decay.window(100), ds.decay.none(),
        ds.decay.exponential(half_life=50), ds.decay.piecewise([(0, 1.0), (3, 0.5)]),
    )  # fmt: skip
    found = []
    for decay in decays:
        for estimator in ("stratified", "single-level"):
            how: dict[str, Any] = {"now": now, "estimator": estimator}
            try:
                found.append(repr(sampler.count(decay, **how)))
                if isinstance(sampler, SumSampler):
                    found.append(repr(sampler.sum(decay, **how)))
                else:
                    found.append(repr(sampler.quantile([0, 0.5, 1], decay, **how)))
            except ds.DecaySketchError as refusal:
                found.append(str(refusal))
    return found


@LAW
@given(elements.cases(), CLOCKS, st.integers(-310, 310) | st.just(1 << 62))
def test_queries_leave_the_sampler_untouched_and_repeat_exactly(
    case: Case, clock: int | None, now: int
) -> None:
    params, rows = case
    sampler = fed(params, rows, clock=clock)
    blob = sampler.to_bytes()
    first = answers(sampler, now)
    assert answers(sampler, now) == first
    assert answers(type(sampler).from_bytes(blob), now) == first
    assert sampler.to_bytes() == blob


@LAW
@given(elements.cases(), CLOCKS, st.integers(0, 400), st.integers(-310, 310))
def test_single_level_answers_are_those_of_the_papers_queries(
    case: Case, clock: int | None, width: int, now: int
) -> None:
    params, rows = case
    width = width if params.max_window is None else min(width, params.max_window)
    sampler = fed(params, rows, clock=clock)
    sketch = elements.reference_of(params, elements.keyed(params, rows), clock)
    decay = ds.decay.window(width)
    ask = paper.sum_query if params.weighted else paper.median_query
    expected = ask(sketch, width, now)
    if expected is None:
        with pytest.raises(ds.UnanswerableQueryError):
            sampler.count(decay, now=now, estimator="single-level")
        return
    answer, level = expected
    if isinstance(sampler, SumSampler):
        found = sampler.sum(decay, now=now, estimator="single-level")
        assert found.value == pytest.approx(float(answer), rel=1e-12)
    else:
        found = sampler.median(decay, now=now, estimator="single-level")
        if answer is None:
            assert found.value != found.value
        else:
            value, _ = decode_values(_column(int(answer)), params.value_type)
            assert found.value == float(value[0])
    assert found.exact == (level == 0)


@LAW
@given(elements.cases(), CLOCKS, st.integers(0, 400), st.integers(-310, 310))
def test_windows_of_at_most_alpha_elements_are_exact(
    case: Case, clock: int | None, width: int, now: int
) -> None:
    """Lemmas 4 and 14, for windows that nothing is later than."""
    params, rows = case
    width = width if params.max_window is None else min(width, params.max_window)
    rows = [row for row in rows if row[1] <= now]
    clock = None if clock is None else min(clock, now)
    sampler = fed(params, rows, clock=clock)
    everything = elements.definition(params.with_capacity(1 << 20), rows, clock).rows
    window = [(t, v) for t, _, v, _ in everything if now - width <= t]
    if len(window) > params.capacity:
        return
    for estimator in ("stratified", "single-level"):
        count = sampler.count(ds.decay.window(width), now=now, estimator=estimator)
        assert (count.value, count.exact) == (len(window), True)
        if isinstance(sampler, SumSampler):
            total = sampler.sum(ds.decay.window(width), now=now, estimator=estimator)
            assert (total.value, total.exact) == (sum(v for _, v in window), True)
        elif window:
            q = sampler.median(ds.decay.window(width), now=now, estimator=estimator)
            middle = sorted(v for _, v in window)[(len(window) - 1) // 2]
            expected, _ = decode_values(_column(middle), params.value_type)
            assert (q.value, q.exact) == (float(expected[0]), True)


@LAW
@given(elements.cases(), st.integers(-(1 << 61), -400))
def test_one_late_element_never_disturbs_what_is_kept(case: Case, late: int) -> None:
    params, rows = case
    rows = [(v, t % 300, n, s) for v, t, n, s in rows]
    sampler = fed(params, rows)
    before = elements.described(sampler.state())
    one = 1 if params.value_type == "int64" else 1.0
    sampler.update(one, late, 7, source="a source of its own")
    after = elements.described(sampler.state())
    assert set(before.rows) <= set(after.rows)
    assert len(after.rows) <= len(before.rows) + 1
    # A watermark may be set at the late time itself, where its level was full; none rises further.
    assert all(
        b == a or a == late for b, a in zip(before.watermarks, after.watermarks, strict=True)
    )


def _column(value: int) -> Any:
    return np.array([value], dtype=np.int64)


def test_kinds_do_not_mix() -> None:
    of_sum = SumSampler(SumParams(max_sum=8, capacity=3))
    of_median = MedianSampler(MedianParams(max_count=8, capacity=3))
    with pytest.raises(TypeError, match="MedianSampler into a SumSampler"):
        of_sum.merge(of_median)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        of_sum | of_median  # type: ignore[operator]
    assert of_sum != of_median
