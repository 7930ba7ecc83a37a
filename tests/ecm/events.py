"""Streams for tests of the ECM-sketch, and what is true of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from decaysketch.ecm import ECMParams, ECMSketch

SMALL = ECMParams(width=5, depth=2, slots=2, seed=7)


class Event(NamedTuple):
    """One event."""

    key: int
    time: int
    weight: int = 1


def feed(sketch: ECMSketch, events: Sequence[Event], **options: Any) -> ECMSketch:
    """Count a batch."""
    if events:
        keys, times, weights = zip(*events, strict=True)
        sketch.update(list(keys), list(times), list(weights), **options)
    return sketch


def built(params: ECMParams, events: Sequence[Event], **name: Any) -> ECMSketch:
    """A sketch of one batch."""
    return feed(ECMSketch(params, **{"source": 0, "epoch": 0} | name), events)


def one_by_one(params: ECMParams, events: Sequence[Event]) -> ECMSketch:
    """A sketch that was given its events singly."""
    sketch = ECMSketch(params, source=0, epoch=0)
    for key, time, weight in events:
        sketch.update(key, time, weight)
    return sketch


def events_in_order(most: int = 60, keys: int = 6) -> st.SearchStrategy[list[Event]]:
    """In order of time, with ties, heavy weights and long pauses."""
    gaps = st.sampled_from([0, 0, 0, 1, 1, 2, 7, 1000])
    weights = st.sampled_from([1, 1, 1, 2, 3, 50, 10_000])
    row = st.tuples(st.integers(0, keys - 1), gaps, weights)

    def laid(rows: list[tuple[int, int, int]]) -> list[Event]:
        times = np.cumsum([gap for _, gap, _ in rows], dtype=np.int64).tolist()
        return [Event(row[0], time - 50, row[2]) for row, time in zip(rows, times, strict=True)]

    return st.lists(row, max_size=most).map(laid)


def params() -> st.SearchStrategy[ECMParams]:
    """Small parameters of every sort."""
    return st.builds(
        lambda kind, slots, width, depth, horizon, lanes, key_bits: replace(
            SMALL, kind=kind, slots=slots, width=width, depth=depth, horizon=horizon, lanes=lanes,
            key_bits=key_bits, fanout_bits=2,
        ),
        st.sampled_from(["wave", "eh"]),
        st.sampled_from([2, 3, 5]),
        st.sampled_from([1, 4, 9]),
        st.sampled_from([1, 3]),
        st.sampled_from([None, 0, 5, 1500]),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([None, 3, 6]),
    )  # fmt: skip


def batches(events: Sequence[Event], sizes: Sequence[int]) -> list[Sequence[Event]]:
    """Cut into batches of these sizes, over and over."""
    cut, at, turn = [], 0, 0
    while at < len(events):
        size = sizes[turn % len(sizes)]
        cut.append(events[at : at + size])
        at, turn = at + size, turn + 1
    return cut
