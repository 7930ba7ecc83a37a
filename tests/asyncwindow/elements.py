"""What a sampler must hold, by two oracles: its definition, and the paper's procedures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from decaysketch.asyncwindow import (
    MedianParams,
    MedianSampler,
    SumParams,
    SumSampler,
    WindowState,
    element_keys,
    reference,
)
from decaysketch.core.observations import encode_values
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.families import recipe_of
from quality.examples import EXAMPLES, Row, columns

Params = SumParams | MedianParams
Sampler = SumSampler | MedianSampler


def sampler_of(of: Params) -> Sampler:
    return SumSampler(of) if isinstance(of, SumParams) else MedianSampler(of)


class Definition(NamedTuple):
    """The state as ``state.py`` words it, found by brute force."""

    rows: list[tuple[int, int, int, int]]  # time, key, value key, level; all descending
    watermarks: list[int]


def keyed(of: Params, batch: Sequence[Row]) -> list[tuple[int, int, int]]:
    """(key, value key, time) of every row."""
    if not batch:
        return []
    recipe = recipe_of(of)
    (values, times, numbers), named = columns(EXAMPLES[recipe.family], recipe, batch)
    keys = element_keys(of, named["source"], numbers)
    value_keys = values if of.weighted else encode_values(values, of.value_type)
    return list(zip(keys.tolist(), value_keys.tolist(), times.tolist(), strict=True))


def definition(of: Params, batch: Sequence[Row], clock: int | None = None) -> Definition:
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    for key, value, time in keyed(of, batch):
        if of.weighted and value == 0:
            continue
        identity = (key, value if of.weighted else 0)
        latest[identity] = max(latest.get(identity, (time, value)), (time, value))
    elements = []
    for (key, _), (time, value) in latest.items():
        level = reference.top_level(key, value if of.weighted else 1, of.levels)
        elements.append((time, key, value, level))
    floor = NO_WATERMARK
    if clock is not None and of.max_window is not None:
        floor = clock - of.max_window - 1
    marks = []
    for i in range(of.levels + 1):
        times = sorted(
            (t for t, _, _, level in elements if level == i or level > i >= of.first_nested),
            reverse=True,
        )
        marks.append(max(floor, times[of.capacity] if len(times) > of.capacity else floor))
    kept = [element for element in elements if element[0] > marks[element[3]]]
    return Definition(sorted(kept, reverse=True), marks)


def described(state: WindowState) -> Definition:
    """A state in the form of the definition."""
    columns_ = (state.times, state.keys, state.value_keys, state.levels)
    return Definition(
        list(zip(*(column.tolist() for column in columns_), strict=True)),
        state.watermarks.tolist(),
    )


def reference_of(
    of: Params, elements: Iterable[tuple[int, int, int]], clock: int | None = None
) -> reference.Sketch:
    """The paper's procedures fed with (key, value, time)."""
    sketch = reference.sum_init(
        of.levels, of.capacity, max_window=of.max_window, eager_from_level=of.first_nested
    )
    process = reference.sum_process if of.weighted else reference.median_process
    if clock is not None:
        sketch.advance(clock)
    for key, value, time in elements:
        if value > 0 or not of.weighted:
            process(sketch, value, time, key)
    return sketch


def samples_of(state: WindowState) -> list[tuple[int | None, set[tuple[int, int, int]]]]:
    """(t_i, S_i as a set of (t, v, key)) of every level, from elements that are stored once."""
    samples = []
    for i, mark in enumerate(state.watermarks.tolist()):
        counted = state.levels == i if i < state.params.first_nested else state.levels >= i
        rows_ = np.flatnonzero(counted & (state.times > mark))
        chosen = (c[rows_].tolist() for c in (state.times, state.value_keys, state.keys))
        samples.append((None if mark == NO_WATERMARK else mark, set(zip(*chosen, strict=True))))
    return samples


def reference_samples(sketch: reference.Sketch) -> list[tuple[int | None, set[Any]]]:
    return [
        (sample.discarded, {(t, v, identity[0]) for t, v, identity in sample})
        for sample in sketch.samples
    ]
