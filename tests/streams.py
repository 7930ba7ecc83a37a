"""Hypothesis strategies for parameters and observations that make sketches work hard.

Few ids and few instants, so that copies, conflicting copies and ties at a cut are common; small
capacities, so that watermarks rise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import decaysketch as ds

Rows = list[tuple[float | int | None, int, int, int]]


@st.composite
def params(draw: Any) -> ds.SketchParams:
    max_weight = draw(st.sampled_from([1, 2, 5, 999, 1 << 20]))
    return ds.SketchParams(
        max_weight=max_weight,
        id_bits=draw(st.sampled_from([3, 6, 10, 30])),
        capacity=draw(st.sampled_from([1, 2, 3, 10, 40])),
        copies=draw(st.sampled_from([1, 1, 2, 3])),
        seed=draw(st.integers(0, (1 << 64) - 1)),
        value_type=draw(st.sampled_from(["int64", "float64"])),
        id_mix=draw(st.sampled_from(["keyed", "none"])),
    )


@st.composite
def rows(draw: Any, of: ds.SketchParams, max_size: int = 120) -> Rows:
    """Observations (value, weight, timestamp, id) with copies, conflicting copies and ties."""
    ids = draw(st.lists(st.integers(0, (1 << of.id_bits) - 1), min_size=1, max_size=60))
    weights = draw(st.lists(st.integers(0, of.max_weight), min_size=1, max_size=3))
    span = draw(st.sampled_from([0, 5, 300, 1 << 40, 1 << 62]))
    value: st.SearchStrategy[Any] = (
        st.integers(-(1 << 62), 1 << 62)
        if of.value_type == "int64"
        else st.floats(allow_nan=False, allow_infinity=False)
    )
    row = st.tuples(
        st.none() | st.sampled_from([0, 1, -3]) | value,
        st.sampled_from(weights),
        st.integers(-span, span),
        st.sampled_from(ids),
    )
    return draw(st.lists(row, max_size=max_size))


def columns(of: ds.SketchParams, batch: Rows) -> tuple[Any, ...]:
    """The columns of a batch, as arrays (values masked where they are missing)."""
    dtype = np.int64 if of.value_type == "int64" else np.float64
    missing = [value is None for value, *_ in batch]
    values = np.array([0 if value is None else value for value, *_ in batch], dtype=dtype)
    masked: npt.NDArray[Any] = np.ma.MaskedArray(values, mask=missing) if any(missing) else values
    rest = (np.array([row[c] for row in batch], dtype=np.int64) for c in (1, 2, 3))
    return masked, *rest


def fed(of: ds.SketchParams, batch: Rows, sizes: list[int] | None = None) -> ds.DecaySketch:
    """A sketch fed with the rows in batches of the given sizes, cyclically (None: one batch)."""
    sketch = ds.DecaySketch(of)
    start = turn = 0
    while start < len(batch):
        size = sizes[turn % len(sizes)] if sizes else len(batch)
        part = batch[start : start + size]
        if size == 1:
            sketch.update(*part[0])
        else:
            sketch.update(*columns(of, part))
        start, turn = start + size, turn + 1
    return sketch
