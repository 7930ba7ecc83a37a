"""Laws of the public API: the state is a function of the set of copies; reading changes nothing.

Every law is stated on bytes, so that nothing of a state can hide from it.
"""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import definition
import numpy as np
import pytest
import streams
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import minhit
from decaysketch.core import bags, observations

LAW = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(autouse=True, scope="module")
def small_bags() -> Any:
    """Let bags overflow early, so that compaction runs in the middle of feeds."""
    before = bags._SMALLEST_LIMIT, bags._MERGE_LIMIT
    bags._SMALLEST_LIMIT, bags._MERGE_LIMIT = 40, 60
    yield
    bags._SMALLEST_LIMIT, bags._MERGE_LIMIT = before


@st.composite
def cases(draw: Any) -> tuple[ds.SketchParams, streams.Rows]:
    params = draw(streams.params())
    return params, draw(streams.rows(params))


sizes = st.lists(st.sampled_from([1, 2, 7, 50]), min_size=1, max_size=4)
shuffles = st.randoms(use_true_random=False)


@LAW
@given(cases())
def test_state_equals_the_definition(case: tuple[ds.SketchParams, streams.Rows]) -> None:
    params, rows = case
    sketch = streams.fed(params, rows)
    batch = observations.prepare(params, *streams.columns(params, rows))
    copies = list(zip(*(column.tolist() for column in batch), strict=True))
    real = [(id_, weight) for _, weight, _, id_ in copies if weight]
    ids, weights = zip(*real, strict=True) if real else ((), ())
    for copy_ in range(params.copies):
        tops = minhit.top_levels(
            params, np.array(ids, np.int64), np.array(weights, np.int64), copy=copy_
        )
        levels = dict(zip(real, tops.tolist(), strict=True))
        expected = definition.state(
            copies, lambda id_, w, of=levels: of[id_, w], params.capacity, params.levels
        )
        state = sketch.state(copy_)
        columns = (state.value_keys, state.weights, state.times, state.ids)
        assert list(zip(*(c.tolist() for c in columns), strict=True)) == [
            tuple(r) for r in expected.rows
        ]
        assert tuple(state.watermarks.tolist()) == expected.watermarks
        assert tuple(state.levels.tolist()) == expected.levels
        assert state.copy == copy_


@LAW
@given(cases(), sizes, shuffles)
def test_any_order_duplication_and_batching_gives_the_same_bytes(
    case: tuple[ds.SketchParams, streams.Rows], batches: list[int], rng: random.Random
) -> None:
    params, rows = case
    expected = streams.fed(params, rows).to_bytes()
    again = rows + [rng.choice(rows) for _ in range(len(rows))] if rows else rows
    rng.shuffle(again)
    assert streams.fed(params, again, batches).to_bytes() == expected


@LAW
@given(cases(), st.integers(1, 6), sizes, shuffles)
def test_any_partition_and_merge_tree_gives_the_same_bytes(
    case: tuple[ds.SketchParams, streams.Rows], parts: int, batches: list[int], rng: random.Random
) -> None:
    params, rows = case
    expected = streams.fed(params, rows).to_bytes()
    pieces: list[streams.Rows] = [[] for _ in range(parts)]
    for row in rows:
        for _ in range(rng.choice([1, 1, 2])):
            rng.choice(pieces).append(row)
    sketches = [streams.fed(params, piece, batches) for piece in pieces]
    while len(sketches) > 1:
        rng.shuffle(sketches)
        if rng.random() < 0.5:
            together = sketches[: rng.randint(2, len(sketches))]
            sketches = [*sketches[len(together) :], ds.merge(together)]
        else:
            other = sketches.pop()
            sketches[0].merge(other)
    assert sketches[0].to_bytes() == expected


@LAW
@given(cases(), st.data())
def test_merge_is_commutative_associative_idempotent_and_leaves_its_argument(
    case: tuple[ds.SketchParams, streams.Rows], data: st.DataObject
) -> None:
    params, rows_a = case
    a = streams.fed(params, rows_a)
    b = streams.fed(params, data.draw(streams.rows(params, max_size=40)))
    c = streams.fed(params, data.draw(streams.rows(params, max_size=40)))
    before = [sketch.to_bytes() for sketch in (a, b, c)]
    assert (a | b).to_bytes() == (b | a).to_bytes()
    assert ((a | b) | c).to_bytes() == (a | (b | c)).to_bytes() == ds.merge([c, a, b]).to_bytes()
    assert (a | a).to_bytes() == before[0]
    assert (a | ds.DecaySketch(params)).to_bytes() == before[0]
    merged = a.copy()
    merged.merge(b)
    merged.merge(merged)
    assert merged.to_bytes() == (a | b).to_bytes()
    assert [sketch.to_bytes() for sketch in (a, b, c)] == before


@LAW
@given(cases(), sizes, shuffles)
def test_a_sketch_that_is_asked_in_between_goes_on_as_if_it_was_not(
    case: tuple[ds.SketchParams, streams.Rows], batches: list[int], rng: random.Random
) -> None:
    params, rows = case
    # Copies that disagree, far from one another and next to one another.
    mixed = rng.sample(rows, len(rows)) + rng.sample(rows, len(rows))
    again = [(rng.choice(rows)[0], *row[1:]) for row in mixed for _ in range(2)]
    asked = streams.fed(params, again[: len(again) // 2])
    at = len(again) // 2
    while at < len(again):
        asked.state()  # what is there now stands in order, and what comes is merged into it
        piece = again[at : at + rng.choice(batches)]
        at += len(piece)
        if rng.random() < 0.5:
            asked.update(*streams.columns(params, piece))
        else:
            asked.merge(streams.fed(params, piece))
        if rng.random() < 0.1:
            asked.resize(rng.randint(1, asked.params.capacity))
    expected = streams.fed(params.with_capacity(asked.params.capacity), again)
    assert asked.to_bytes() == expected.to_bytes()


@LAW
@given(cases(), st.integers(1, 60))
def test_shrinking_equals_building_small(
    case: tuple[ds.SketchParams, streams.Rows], capacity: int
) -> None:
    params, rows = case
    capacity = min(capacity, params.capacity)
    small = streams.fed(params.with_capacity(capacity), rows)
    shrunk = streams.fed(params, rows)
    shrunk.resize(capacity)
    assert shrunk.to_bytes() == small.to_bytes()
    half = len(rows) // 2
    joined = streams.fed(params, rows[:half]) | streams.fed(small.params, rows[half:])
    assert joined.to_bytes() == small.to_bytes()


@LAW
@given(cases())
def test_encode_decode_encode_is_identical(case: tuple[ds.SketchParams, streams.Rows]) -> None:
    params, rows = case
    sketch = streams.fed(params, rows)
    blob = sketch.to_bytes()
    back = ds.DecaySketch.from_bytes(blob)
    assert back.to_bytes() == blob
    assert back == sketch
    assert back.digest() == sketch.digest()
    short = sketch.to_bytes(embed_params=False)
    assert ds.DecaySketch.from_bytes(short, params=params).to_bytes() == blob
    for twin in (pickle.loads(pickle.dumps(sketch)), copy.copy(sketch), copy.deepcopy(sketch)):
        assert twin.to_bytes() == blob


@LAW
@given(cases(), st.data())
def test_a_decoded_sketch_goes_on_like_the_original(
    case: tuple[ds.SketchParams, streams.Rows], data: st.DataObject
) -> None:
    params, rows = case
    sketch = streams.fed(params, rows)
    back = ds.DecaySketch.from_bytes(sketch.to_bytes())
    more = data.draw(streams.rows(params, max_size=40))
    for each in (sketch, back):
        each.update(*streams.columns(params, more))
    assert back.to_bytes() == sketch.to_bytes() == streams.fed(params, rows + more).to_bytes()


@LAW
@given(cases(), st.integers(-(1 << 62), 1 << 62))
def test_queries_leave_the_sketch_untouched_and_repeat_exactly(
    case: tuple[ds.SketchParams, streams.Rows], now: int
) -> None:
    params, rows = case
    sketch = streams.fed(params, rows)
    blob = sketch.to_bytes()
    for decay in (ds.decay.window(100), ds.decay.exponential(half_life=50), ds.decay.none()):
        answers = []
        for each in (sketch, sketch, ds.DecaySketch.from_bytes(blob)):
            try:
                answers.append(
                    repr(
                        (
                            each.sum(decay, now=now),
                            each.count(decay, now=now),
                            each.total(decay, now=now),
                            each.mean(decay, now=now),
                            each.quantile([0.1, 0.5], decay, now=now),
                            each.heavy_hitters(0.1, decay, now=now),
                            each.group_by(decay, now=now),
                        )
                    )
                )
            except ds.UnanswerableQueryError as refusal:
                answers.append(str(refusal))
        assert answers[0] == answers[1] == answers[2]
    assert sketch.to_bytes() == blob
