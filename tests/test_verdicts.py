"""Verdicts against the states before and after, which their definition is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import streams
from asyncwindow import elements
from hypothesis import given, settings
from hypothesis import strategies as st
from integral import cases as integral_cases

import decaysketch as ds
from decaysketch.asyncwindow import SumParams, SumSampler, WindowState, element_keys
from decaysketch.core.observations import prepare
from decaysketch.core.verdicts import Identified, Verdict, VerdictCounts, count_replacing
from decaysketch.querytime.verdicts import count_verdicts

RETAINED, ALREADY, BELOW = Verdict.RETAINED, Verdict.ALREADY_RETAINED, Verdict.BELOW_WATERMARK

Copy = tuple[int, int]  # what orders copies: time, value key
Held = dict[tuple[int, int], Copy]  # by identity


def by_definition(
    before: Sequence[Held], after: Sequence[Held], batch: Sequence[tuple[tuple[int, int], Copy]]
) -> list[Verdict]:
    """Of each row of ``batch``, the best of the verdicts of the hash functions."""
    verdicts = []
    seen: set[tuple[tuple[int, int], Copy]] = set()
    for identity, copy in batch:
        best = BELOW
        for old, new in zip(before, after, strict=True):
            held = [state[identity] for state in (old, new) if identity in state]
            is_new = new.get(identity) == copy and old.get(identity) != copy
            if is_new and (identity, copy) not in seen:
                best = RETAINED
            elif any(each >= copy for each in held):
                best = min(best, ALREADY)
        seen.add((identity, copy))
        verdicts.append(best)
    return verdicts


def held(state: Any) -> Held:
    columns = (state.ids, state.weights, state.times, state.value_keys)
    return {(i, w): (t, v) for i, w, t, v in zip(*(c.tolist() for c in columns), strict=True)}


def rows_of(params: ds.SketchParams, columns: Iterable[Any]) -> list[tuple[tuple[int, int], Copy]]:
    keys, weights, times, ids = (column.tolist() for column in prepare(params, *columns))
    return [((i, w), (t, v)) for v, w, t, i in zip(keys, weights, times, ids, strict=True)]


@st.composite
def decay_cases(draw: Any) -> tuple[ds.SketchParams, streams.Rows, streams.Rows]:
    params = draw(streams.params())
    rows = draw(streams.rows(params, max_size=160))
    cut = draw(st.integers(0, len(rows)))
    batch = rows[cut:]
    # Of what is held already, copies; of these, some with another time or value.
    for value, weight, time, id_ in (
        draw(st.lists(st.sampled_from(rows), max_size=20)) if rows else []
    ):
        moved = np.clip(time + draw(st.sampled_from([-1, 0, 0, 1])), -(1 << 62), 1 << 62).item()
        batch.append((draw(st.sampled_from([value, 2])), weight, moved, id_))
    return params, rows[:cut], draw(st.permutations(batch))


class TestOfADecaySketch:
    @settings(max_examples=300, deadline=None)
    @given(decay_cases())
    def test_are_what_the_states_before_and_after_say(self, case: Any) -> None:
        params, first, batch = case
        sketch = streams.fed(params, first)
        before, digest = sketch.states(), sketch.digest()
        columns = streams.columns(params, batch)
        verdicts = sketch.verdicts(*columns)
        assert sketch.digest() == digest
        sketch.update(*columns)
        expected = by_definition(
            list(map(held, before)), list(map(held, sketch.states())), rows_of(params, columns)
        )
        assert verdicts.tolist() == expected

    @settings(max_examples=200, deadline=None)
    @given(decay_cases(), st.integers(0, 1))
    def test_of_a_posted_sketch_count_its_observations(self, case: Any, smaller: int) -> None:
        params, first, batch = case
        sketch = streams.fed(params, first)
        post = streams.fed(params.with_capacity(max(1, params.capacity - smaller)), batch)
        before, merged = list(map(held, sketch.states())), list(map(held, (sketch | post).states()))
        best: dict[tuple[int, int], Verdict] = {}
        for copy, state in enumerate(map(held, post.states())):
            found = by_definition(before[copy : copy + 1], merged[copy : copy + 1], state.items())  # type: ignore[arg-type]
            for identity, verdict in zip(state, found, strict=True):
                best[identity] = min(best.get(identity, BELOW), verdict)
        expected = [list(best.values()).count(verdict) for verdict in Verdict]
        assert count_verdicts(sketch.states(), post.states()) == VerdictCounts(*expected)

    def test_of_copies_in_one_batch_go_to_the_first_of_the_latest(self) -> None:
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=10))
        rows = [(1.0, 5), (2.0, 7), (2.0, 7), (3.0, 7), (3.0, 7), (None, 7)]
        values, times = zip(*rows, strict=True)
        verdicts = sketch.verdicts(list(values), 1, list(times), [4] * 6)
        assert verdicts.tolist() == [ALREADY, ALREADY, ALREADY, RETAINED, ALREADY, ALREADY]
        sketch.update(list(values), 1, list(times), [4] * 6)
        assert sketch.verdicts([3.0, 4.0], 1, [7, 7], [4, 4]).tolist() == [ALREADY, RETAINED]
        assert sketch.verdicts(3.0, 2, 7, 4).tolist() == [RETAINED], "another weight is another one"

    def test_follow_the_watermarks_that_the_batch_itself_raises(self) -> None:
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=0, capacity=1))
        assert sketch.params.levels == 0
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=2, id_bits=0, capacity=1, seed=1))
        both = sketch.verdicts([1.0, 1.0], [1, 2], [10, 10], [0, 0])
        sketch.update([1.0, 1.0], [1, 2], [10, 10], [0, 0])
        kept = held(sketch.state())
        assert both.tolist() == [RETAINED if (0, w) in kept else BELOW for w in (1, 2)]
        assert BELOW in both.tolist(), "ties beyond the capacity are discarded together"

    def test_of_weight_0_are_below_the_watermark(self) -> None:
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=10))
        assert sketch.verdicts(None, [0, 1, 0], [1, 2, 3], [1, 1, 1]).tolist() == [
            BELOW, RETAINED, BELOW
        ]  # fmt: skip
        assert sketch.verdicts([], [], [], []).tolist() == []
        assert sketch.verdicts(None, 0, 1, 1).tolist() == [BELOW]

    def test_are_refused_where_update_is(self) -> None:
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=10))
        with pytest.raises(ds.ObservationError, match=r"weights\[1\] is 10"):
            sketch.verdicts(None, [1, 10], [1, 1], [1, 1])

    def test_of_a_sketch_of_other_parameters_are_not_counted(self) -> None:
        one, other = (
            ds.DecaySketch(ds.SketchParams(max_weight=9, id_bits=10, seed=seed)) for seed in (1, 2)
        )
        with pytest.raises(ds.IncompatibleSketchError, match="seed"):
            count_verdicts(one.states(), other.states())

    def test_of_many_rows_are_the_same(self) -> None:
        params = ds.SketchParams(max_weight=99, id_bits=40, capacity=300, copies=2, seed=5)
        draw = np.random.default_rng(1)

        def batch(rows: int) -> list[Any]:
            return [
                draw.normal(size=rows).round(),
                draw.integers(1, 3, rows),
                draw.integers(0, 2_000, rows),
                draw.integers(0, 8_000, rows),
            ]

        sketch = ds.DecaySketch(params)
        sketch.update(*batch(20_000))
        before, columns = list(map(held, sketch.states())), batch(30_000)
        verdicts = sketch.verdicts(*columns)
        sketch.update(*columns)
        after = list(map(held, sketch.states()))
        assert verdicts.tolist() == by_definition(before, after, rows_of(params, columns))
        assert set(verdicts.tolist()) == set(Verdict)


class TestOfAnIntegralSketch:
    @settings(max_examples=150, deadline=None)
    @given(integral_cases.cases(), st.data())
    def test_are_what_the_states_before_and_after_say(self, case: Any, data: Any) -> None:
        params, decay, rows, clocks = case
        cut = data.draw(st.integers(0, len(rows)))
        batch = rows[cut:] + (data.draw(st.lists(st.sampled_from(rows))) if rows else [])
        sketch = ds.IntegralDecaySketch(params, decay)
        sketch.update(*streams.columns(params, rows[:cut]))
        if clocks:
            sketch.advance(clocks[0])
        before, columns = sketch.state(), streams.columns(params, batch)
        verdicts = sketch.verdicts(*columns)
        assert sketch.copy().state().digest() == before.digest()
        sketch.update(*columns)
        expected = by_definition([held(before)], [held(sketch.state())], rows_of(params, columns))
        assert verdicts.tolist() == expected

    def test_of_what_has_expired_are_below_the_watermark(self) -> None:
        params = ds.SketchParams(max_weight=9, id_bits=10)
        sketch = ds.IntegralDecaySketch(params, ds.decay.integral.window(5))
        sketch.advance(100)
        assert sketch.verdicts(None, 1, [90, 96], [1, 2]).tolist() == [BELOW, RETAINED]


class TestOfASampler:
    @settings(max_examples=150, deadline=None)
    @given(elements.cases(), st.data())
    def test_are_what_the_states_before_and_after_say(self, case: Any, data: Any) -> None:
        params, rows = case
        cut = data.draw(st.integers(0, len(rows)))
        batch = rows[cut:] + (data.draw(st.lists(st.sampled_from(rows))) if rows else [])
        sampler = elements.feed(elements.sampler_of(params), rows[:cut])
        if rows:
            sampler.advance(data.draw(st.sampled_from(rows))[1])
        before = sampler.state()
        values, times, sequence, source = elements.columns(params, batch)
        if not batch:
            return
        verdicts = sampler.verdicts(values, times, sequence, source=source)
        assert sampler.state().digest() == before.digest()
        keys = element_keys(params, source, sequence).tolist()
        value_keys = sampler._value_keys(values).tolist()
        offered = [
            ((key, value if params.weighted else 0), (time, value))
            for key, value, time in zip(keys, value_keys, np.asarray(times).tolist(), strict=True)
        ]
        sampler.update(values, times, sequence, source=source)
        expected = by_definition([_elements(before)], [_elements(sampler.state())], offered)
        assert verdicts.tolist() == expected

    def test_of_a_sum_take_other_values_for_other_elements(self) -> None:
        sampler = SumSampler(SumParams(max_sum=100, capacity=8, max_window=50))
        sampler.advance(100)
        verdicts = sampler.verdicts(
            [3, 4, 3, 0, 3], [90, 90, 91, 95, 40], [1, 1, 1, 2, 3], source="tap"
        )
        assert verdicts.tolist() == [ALREADY, RETAINED, RETAINED, BELOW, BELOW]


def _elements(state: WindowState) -> Held:
    columns = (state.keys, state.value_keys, state.times)
    return {
        (key, value if state.params.weighted else 0): (time, value)
        for key, value, time in zip(*(column.tolist() for column in columns), strict=True)
    }


HELD = st.dictionaries(
    st.tuples(st.integers(-2, 2), st.integers(1, 2)),
    st.tuples(st.integers(0, 2), st.integers(-1, 1)),
    max_size=8,
)


@given(st.lists(HELD, max_size=5))
def test_rows_that_stand_in_place_of_another_part_s(parts: list[Held]) -> None:
    def stands(part: Held, identity: tuple[int, int]) -> bool:
        copies = [each[identity] for each in parts if identity in each]
        return part[identity] == max(copies) and part[identity] != min(copies)

    columns = []
    for part in parts:
        rows = np.array([(*each, *part[each]) for each in part], np.int64).reshape(-1, 4)
        columns.append(Identified(*(column.copy() for column in rows.T)))
    assert count_replacing(columns) == [
        sum(stands(part, identity) for identity in part) for part in parts
    ]
