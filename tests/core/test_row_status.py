"""Verdicts against the states before and after, which their definition is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES, Case, law, states_of

import decaysketch as ds
from decaysketch.asyncwindow import SumParams, SumSampler, element_keys
from decaysketch.core.duplicates import count_replacing
from decaysketch.core.labels import codes_of
from decaysketch.core.observations import encode_values, prepare
from decaysketch.core.row_check import Identified, Verdict
from decaysketch.extremes import ExtremesState
from decaysketch.series import SeriesState
from quality.examples import Row

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
    if hasattr(state, "keys"):
        second = state.value_keys if state.params.weighted else np.zeros_like(state.value_keys)
        columns = (state.keys, second, state.times, state.value_keys)
    elif isinstance(state, ExtremesState):
        columns = (state.times, state.value_keys, state.times, state.value_keys)
    elif isinstance(state, SeriesState):
        cells = state.times // state.params.resolution
        columns = (state.ids * (1 << 32) + state.weights, cells, state.times, state.value_keys)
    else:
        columns = (state.ids, state.weights, state.times, state.value_keys)
    return {(i, w): (t, v) for i, w, t, v in zip(*(c.tolist() for c in columns), strict=True)}


def rows_of(params: ds.SketchParams, columns: Iterable[Any]) -> list[tuple[tuple[int, int], Copy]]:
    if params.value_type == "label":
        values, *others = columns
        columns = (codes_of(values, params.id_key), *others)
    keys, weights, times, ids = (column.tolist() for column in prepare(params, *columns))
    return [((i, w), (t, v)) for v, w, t, i in zip(keys, weights, times, ids, strict=True)]


def offered(case: Case, batch: Sequence[Row]) -> list[tuple[tuple[int, int], Copy]]:
    """Identity and order of every row."""
    given_, named = case.columns(batch)
    if case.recipe.family == "extremes":  # whose rows are what they say
        return [((copy[0], copy[1]), copy) for _, copy in rows_of(case.params, given_)]
    if case.recipe.family == "series":  # a row is known by its series and its cell of time
        return [
            (
                (id_ * (1 << 32) + (weight and 1 << weight.bit_length() - 1),
                 copy[0] // case.params.resolution),
                copy,
            )
            for (id_, weight), copy in rows_of(case.params, given_)
        ]  # fmt: skip
    if case.example.named_by == "id":
        return rows_of(case.params, given_)
    values, times, numbers = given_
    keys = element_keys(case.params, named["source"], numbers).tolist()
    weighted = case.example.weight is not None
    copies = values if weighted else encode_values(values, case.params.value_type)
    return [
        ((key, value if weighted else 0), (time, value))
        for key, value, time in zip(keys, copies.tolist(), times.tolist(), strict=True)
    ]


def cut(case: Case, data: Any) -> tuple[list[Row], list[Row]]:
    """Some of the rows, and the others with copies, of which some have another time or value."""
    at = data.draw(st.integers(0, len(case.rows)))
    batch = case.rows[at:]
    for row in data.draw(st.lists(st.sampled_from(case.rows), max_size=20)) if case.rows else []:
        moved = row.time + data.draw(st.sampled_from([-1, 0, 0, 1]))
        value = row.value
        if case.example.value is not None:
            other = "E2" if getattr(case.params, "value_type", "") == "label" else 2
            value = data.draw(st.sampled_from([row.value, other]))
        batch.append(row._replace(time=min(max(moved, -(1 << 62)), 1 << 62), value=value))
    return case.rows[:at], data.draw(st.permutations(batch))


# An event of a key has no identity, and is no copy: of those see tests/ecm/test_collection.py.
NAMED = [name for name, each in EXAMPLES.items() if each.named_by != "key"]


@partial(law, examples=80, families=NAMED)
def test_verdicts_are_what_the_states_before_and_after_say(case: Case, data: Any) -> None:
    first, batch = cut(case, data)
    if not batch:
        return
    sketch = case.fed(first)
    before, digest = states_of(sketch), sketch.digest()
    given_, named = case.columns(batch)
    verdicts = sketch.verdicts(*given_, **named)
    identities = [each for each, _ in offered(case, batch) if each[1]]
    known = {identity for state in before for identity in held(state)}
    shares = len({*identities} - known) < len(identities)
    for found in (sketch.compared(*given_, **named), sketch.snapshot().compared(*given_, **named)):
        if found is not None:  # the family can do it
            np.testing.assert_array_equal(found.verdicts, verdicts)
            assert found.shares >= shares
    assert sketch.copy().digest() == sketch.digest() == digest
    sketch.update(*given_, **named)
    states = list(map(held, before)), list(map(held, states_of(sketch)))
    assert verdicts.tolist() == by_definition(*states, offered(case, batch))


class TestOfADecaySketch:
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
    def test_of_what_has_expired_are_below_the_watermark(self) -> None:
        params = ds.SketchParams(max_weight=9, id_bits=10)
        sketch = ds.IntegralDecaySketch(params, ds.decay.integral.window(5))
        sketch.advance(100)
        assert sketch.verdicts(None, 1, [90, 96], [1, 2]).tolist() == [BELOW, RETAINED]


class TestOfASampler:
    def test_of_a_sum_take_other_values_for_other_elements(self) -> None:
        sampler = SumSampler(SumParams(max_sum=100, capacity=8, max_window=50))
        sampler.advance(100)
        verdicts = sampler.verdicts(
            [3, 4, 3, 0, 3], [90, 90, 91, 95, 40], [1, 1, 1, 2, 3], source="tap"
        )
        assert verdicts.tolist() == [ALREADY, RETAINED, RETAINED, BELOW, BELOW]


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
