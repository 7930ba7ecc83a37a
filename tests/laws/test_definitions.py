"""The state of every sketch is the one that its definition says, whatever the path that led there.

A definition is written down beside its family, by sets and counting; it shares nothing with the
library. A family that has none is held to the other laws only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import definition
import numpy as np
import pytest
from asyncwindow import elements
from integral import cases as integral_cases
from support.examples import BATCHES, SHUFFLES, Case, law, states_of

from decaysketch import minhit
from decaysketch.core import observations
from decaysketch.core.watermarks import NO_WATERMARK

Described = list[tuple[list[tuple[int, ...]], list[int]]]  # (rows, watermarks) of each state


def of_a_query_time_sketch(case: Case) -> Described:
    batch = observations.prepare(case.params, *case.columns(case.rows)[0])
    copies = list(zip(*(column.tolist() for column in batch), strict=True))
    real = [(id_, weight) for _, weight, _, id_ in copies if weight]
    ids, weights = np.array(real, np.int64).reshape(-1, 2).T.copy()
    found = []
    for copy in range(case.params.copies):
        tops = minhit.top_levels(case.params, ids, weights, copy=copy)
        levels = dict(zip(real, tops.tolist(), strict=True))
        state = definition.state(
            copies, lambda id_, w, of=levels: of[id_, w], case.params.capacity, case.params.levels
        )
        rows = [(*row, top) for row, top in zip(state.rows, state.levels, strict=True)]
        found.append((rows, list(state.watermarks)))
    return found


def of_an_integral_sketch(case: Case) -> Described:
    found = integral_cases.expected(case.params, case.recipe.decay, case.rows, case.told)
    return [([tuple(row) for row in found.rows], list(found.watermarks))]


def of_a_sampler(case: Case) -> Described:
    found = elements.definition(case.params, case.rows, max(case.told, default=None))
    return [(found.rows, found.watermarks)]


DEFINITIONS: dict[str, tuple[Callable[[Case], Described], tuple[str, ...]]] = {
    "decay": (of_a_query_time_sketch, ("value_keys", "weights", "times", "ids", "levels")),
    "integral": (of_an_integral_sketch, ("value_keys", "weights", "times", "ids")),
    "sum": (of_a_sampler, ("times", "keys", "value_keys", "levels")),
    "median": (of_a_sampler, ("times", "keys", "value_keys", "levels")),
}


@law
def test_state_equals_the_definition_for_any_order_duplication_and_batching(
    case: Case, data: Any
) -> None:
    if case.recipe.family not in DEFINITIONS:
        pytest.skip("it has none")
    define, names = DEFINITIONS[case.recipe.family]
    expected = define(case)
    copies = case.again(data.draw(SHUFFLES))
    for sketch in (case.fed(), case.fed(copies, data.draw(BATCHES), case.told[::-1])):
        states = states_of(sketch)
        columns = [[getattr(state, name).tolist() for name in names] for state in states]
        rows = [list(zip(*each, strict=True)) for each in columns]
        assert [getattr(state, "copy", 0) for state in states] == list(range(len(states)))
        assert list(zip(rows, (s.watermarks.tolist() for s in states), strict=True)) == expected


def test_no_watermark_is_earlier_than_every_time() -> None:
    assert definition.NO_WATERMARK == integral_cases.definition.NO_CLOCK == NO_WATERMARK
