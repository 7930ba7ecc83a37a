"""The state of every sketch is the one that its definition says, whatever the path that led there.

A definition is written down beside its family, by sets and counting; it shares nothing with the
library. A family that has none is held to the other laws only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import definition
import numpy as np
import pytest
from asyncwindow import elements
from ecm import wire_reference
from integral import cases as integral_cases
from support.examples import BATCHES, SHUFFLES, Case, law, states_of

from decaysketch import minhit
from decaysketch.core import labels, observations
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.extremes import reference as extremes
from decaysketch.series import reference as series

Described = list[tuple[list[tuple[int, ...]], list[int]]]  # (rows, watermarks) of each state


def of_a_query_time_sketch(case: Case) -> Described:
    values, *others = case.columns(case.rows)[0]
    if case.params.value_type == "label":
        values = labels.codes_of(values, case.params.id_key)
    batch = observations.prepare(case.params, values, *others)
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


def of_an_ecm_collection(case: Case) -> list[Any]:
    """Of each source: of each layer the cells, of each how many ones it saw, and by rank the times
    of those that it keeps."""
    horizon, events = case.params.horizon, [row for row in case.rows if row.weight]
    newest = max([row.time for row in events] + case.told, default=0)
    found = []
    for source in sorted({row.name[0] for row in events}):
        own = sorted((row for row in events if row.name[0] == source), key=lambda row: row.time)
        if horizon is not None:
            gaps = [after.time - before.time for before, after in pairwise(own)]
            begun = max((k + 1 for k, gap in enumerate(gaps) if gap > horizon), default=0)
            own = own[begun:]
            if own[-1].time < newest - horizon:
                continue
        edge = None if horizon is None else own[-1].time - horizon
        layers = [cells_of(case, layer, own, edge) for layer in case.params.layers]
        found.append((source, 0, own[-1].time, own[0].time, layers))
    return found


def cells_of(case: Case, layer: Any, own: list[Any], edge: int | None) -> list[Any]:
    """(ones, time by rank) of each cell of a layer."""
    params = case.params
    ones: list[list[tuple[int, int]]] = [[] for _ in range(layer.depth * layer.width)]
    words = params.words_of([row.name[2] for row in own]).tolist()
    for row, word in zip(own, words, strict=True):
        for line in range(layer.depth):
            at = word >> layer.shift
            if layer.hashed:
                at = wire_reference.column(word, layer.shift, line, layer.width, params.seed)
            cell = ones[line * layer.width + at]
            cell.append(((cell[-1][0] if cell else 0) + row.weight, row.time))
    kind = ("wave", "eh").index(params.kind)
    found = []
    for cell in ones:
        n = cell[-1][0] if cell else 0
        times = {
            rank: cell[bisect_left(cell, (rank, -(1 << 63)))][1]
            for rank in wire_reference.kept_ranks(kind, layer.slots, n)
        }
        old = max((r for r, t in times.items() if edge is not None and t < edge), default=0)
        chain = wire_reference.chain(old)
        found.append((n, {r: t for r, t in times.items() if r > old or r in chain}))
    return found


def held_by_a_collection(sketch: Any) -> list[Any]:
    """The same of a state."""
    found = []
    for entry in sketch.state().entries:
        assert not len(entry.held)
        assert (entry.too_late, entry.moved, entry.merges) == (0, 0, 0)
        (lane,) = entry.lanes
        layers = []
        for layer, (n, old, times) in zip(
            entry.params.layers, lane.columns.layers(entry.params), strict=True
        ):  # fmt: skip
            rest, cells = iter(times.tolist()), []
            kind = ("wave", "eh").index(entry.params.kind)
            for ones, before in zip(n.ravel().tolist(), old.tolist(), strict=True):
                ranks = wire_reference.kept_ranks(kind, layer.slots, ones)
                chain = wire_reference.chain(before)
                cells.append((ones, {r: next(rest) for r in ranks if r > before or r in chain}))
            assert next(rest, None) is None
            layers.append(cells)
        found.append((*entry.identity, lane.clock, lane.columns.first, layers))
        assert entry.clock == lane.clock
    return found


def of_extremes(case: Case) -> Described:
    values, weights, times, _ = case.columns(case.rows)[0]
    keys = observations.encode_values(values, case.params.value_type).tolist()
    rows = [
        row for *row, weight in zip(times.tolist(), keys, weights.tolist(), strict=True) if weight
    ]
    found = extremes.state(map(tuple, rows), case.params.capacity)
    return [(found, [NO_WATERMARK])]


def of_series(case: Case) -> Described:
    given = case.columns(case.rows)[0]
    batch = observations.prepare(case.params, *given)
    rows = [
        series.Row(id_, weight, id_, time, series.NONE, key)
        for key, weight, time, id_ in zip(*(column.tolist() for column in batch), strict=True)
    ]
    params = case.params
    found, marks = series.state(rows, params.capacity, params.resolution, params.sampling_words)
    return [([tuple(row) for row in found], marks)]


def columns(*names: str) -> Callable[[Any], Described]:
    """Of the states of a sketch: these columns, row by row, and the watermarks."""

    def described(sketch: Any) -> Described:
        states = states_of(sketch)
        assert [getattr(state, "copy", 0) for state in states] == list(range(len(states)))
        return [
            (
                list(zip(*(getattr(state, name).tolist() for name in names), strict=True)),
                state.watermarks.tolist(),
            )
            for state in states
        ]

    return described


DEFINITIONS: dict[str, tuple[Callable[[Case], Any], Callable[[Any], Any]]] = {
    "decay": (of_a_query_time_sketch, columns("value_keys", "weights", "times", "ids", "levels")),
    "integral": (of_an_integral_sketch, columns("value_keys", "weights", "times", "ids")),
    "sum": (of_a_sampler, columns("times", "keys", "value_keys", "levels")),
    "median": (of_a_sampler, columns("times", "keys", "value_keys", "levels")),
    "ecm": (of_an_ecm_collection, held_by_a_collection),
    "extremes": (of_extremes, columns("times", "value_keys")),
    "series": (
        of_series,
        columns("entities", "weights", "ids", "times", "starts", "value_keys"),
    ),
}


@law
def test_state_equals_the_definition_for_any_order_duplication_and_batching(
    case: Case, data: Any
) -> None:
    if case.recipe.family not in DEFINITIONS:
        pytest.skip("it has none")
    define, describe = DEFINITIONS[case.recipe.family]
    expected = define(case)
    copies = case.again(data.draw(SHUFFLES))
    for sketch in (case.fed(), case.fed(copies, data.draw(BATCHES), case.told[::-1])):
        assert describe(sketch) == expected


def test_no_watermark_is_earlier_than_every_time() -> None:
    assert definition.NO_WATERMARK == integral_cases.definition.NO_CLOCK == NO_WATERMARK
