"""Hypothesis strategies for parameters and elements that make samplers work hard, and two oracles.

Few keys and few instants, so that copies, conflicting copies and ties at a cut are common; small
capacities, so that watermarks rise; large values and few levels, so that levels M are reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

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

Row = tuple[float | int, int, int, str]  # value, time, sequence, source
Params = SumParams | MedianParams
Sampler = SumSampler | MedianSampler

SOURCES = ("north", "south")


@st.composite
def sum_params(draw: Any) -> SumParams:
    max_sum = draw(st.sampled_from([1, 2, 8, 1000, 1 << 20, 1 << 53]))
    levels = (max_sum - 1).bit_length()
    return SumParams(
        max_sum=max_sum,
        capacity=draw(st.sampled_from([1, 2, 3, 10, 40])),
        max_window=draw(st.sampled_from([None, 0, 3, 100, 1 << 40])),
        seed=draw(st.integers(0, (1 << 64) - 1)),
        eager_from_level=draw(st.none() | st.integers(0, levels)),
    )


@st.composite
def median_params(draw: Any) -> MedianParams:
    return MedianParams(
        max_count=draw(st.sampled_from([1, 2, 100, 1 << 20, 1 << 53])),
        capacity=draw(st.sampled_from([1, 2, 3, 10, 40])),
        max_window=draw(st.sampled_from([None, 0, 3, 100, 1 << 40])),
        seed=draw(st.integers(0, (1 << 64) - 1)),
        value_type=draw(st.sampled_from(["int64", "float64"])),
    )


def params() -> st.SearchStrategy[Params]:
    return st.one_of(sum_params(), median_params())


@st.composite
def rows(draw: Any, of: Params, max_size: int = 120) -> list[Row]:
    span = draw(st.sampled_from([0, 5, 300, 1 << 40, 1 << 62]))
    if of.weighted:
        some = draw(st.lists(st.integers(0, of.bound), min_size=1, max_size=4))
        value: st.SearchStrategy[Any] = st.sampled_from(some)
    elif of.value_type == "int64":
        value = st.sampled_from([0, 1, -3]) | st.integers(-(1 << 62), 1 << 62)
    else:
        value = st.sampled_from([0.0, -0.0, 1.5]) | st.floats(allow_nan=False, allow_infinity=False)
    last = draw(st.sampled_from([3, 30, (1 << 63) - 1]))
    row = st.tuples(value, st.integers(-span, span), st.integers(0, last), st.sampled_from(SOURCES))
    return draw(st.lists(row, max_size=max_size))


@st.composite
def cases(draw: Any) -> tuple[Params, list[Row]]:
    of = draw(params())
    return of, draw(rows(of))


def sampler_of(of: Params) -> Sampler:
    return SumSampler(of) if isinstance(of, SumParams) else MedianSampler(of)


def columns(of: Params, batch: Sequence[Row]) -> tuple[Any, ...]:
    dtype = np.int64 if of.value_type == "int64" else np.float64
    values, times, sequence, sources = zip(*batch, strict=True) if batch else ((), (), (), ())
    return (
        np.array(values, dtype=dtype),
        np.array(times, dtype=np.int64),
        np.array(sequence, dtype=np.int64),
        list(sources),
    )


def feed(sampler: Sampler, batch: Sequence[Row], sizes: Sequence[int] | None = None) -> Sampler:
    """Feed rows in batches of the given sizes, cyclically (None: one batch)."""
    start = turn = 0
    while start < len(batch):
        size = sizes[turn % len(sizes)] if sizes else len(batch)
        part = batch[start : start + size]
        if size == 1:
            value, time, number, source = part[0]
            sampler.update(value, time, number, source=source)
        else:
            values, times, sequence, sources = columns(sampler.params, part)
            sampler.update(values, times, sequence, source=sources)
        start, turn = start + size, turn + 1
    return sampler


def fed(
    of: Params, batch: Sequence[Row], sizes: Sequence[int] | None = None, clock: int | None = None
) -> Sampler:
    sampler = feed(sampler_of(of), batch, sizes)
    if clock is not None:
        sampler.advance(clock)
    return sampler


class Definition(NamedTuple):
    """The state as ``state.py`` words it, found by brute force."""

    rows: list[tuple[int, int, int, int]]  # time, key, value key, level; all descending
    watermarks: list[int]


def keyed(of: Params, batch: Sequence[Row]) -> list[tuple[int, int, int]]:
    """(key, value key, time) of the rows that count."""
    if not batch:
        return []
    values, times, sequence, sources = columns(of, batch)
    keys = element_keys(of, sources, sequence)
    value_keys = values if of.weighted else encode_values(values, of.value_type)
    found = zip(keys.tolist(), value_keys.tolist(), times.tolist(), strict=True)
    return [(k, v, t) for k, v, t in found if not of.weighted or v > 0]


def definition(of: Params, batch: Sequence[Row], clock: int | None = None) -> Definition:
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    for key, value, time in keyed(of, batch):
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
