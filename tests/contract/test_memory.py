"""How much memory a sketch takes: known before it is decoded, given back when not needed."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from decaysketch import DecaySketch, IntegralDecaySketch, SketchParams
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.decay import integral
from decaysketch.families import peek, release_scratch

ROWS = 60_000
PARAMS = SketchParams(max_weight=1, id_bits=40, id_mix="none", capacity=1 << 20)
FIXED = integral.exponential(half_life=900)


def _decay(rows: int, params: SketchParams = PARAMS) -> DecaySketch:
    sketch = DecaySketch(params)
    sketch.update(None, np.ones(rows, np.int64), np.full(rows, 1000), np.arange(rows))
    return sketch


def _integral(rows: int) -> IntegralDecaySketch:
    sketch = IntegralDecaySketch(SketchParams(max_weight=9, id_bits=40, capacity=1 << 20), FIXED)
    sketch.update(None, np.full(rows, 9), np.full(rows, 1000), np.arange(rows))
    return sketch


def _sum(rows: int) -> SumSampler:
    sampler = SumSampler(SumParams(max_sum=1 << 40, capacity=1 << 20))
    sampler.update(np.full(rows, 7), np.full(rows, 1000), np.arange(rows), source="a")
    return sampler


def _median(rows: int) -> MedianSampler:
    sampler = MedianSampler(MedianParams(max_count=1 << 40, capacity=1 << 20))
    sampler.update(np.full(rows, 7.5), np.full(rows, 1000), np.arange(rows), source="a")
    return sampler


FAMILIES = pytest.mark.parametrize(
    "build", [_decay, _integral, _sum, _median], ids=["decay", "integral", "sum", "median"]
)


def test_the_head_counts_every_copy() -> None:
    params = SketchParams(max_weight=1, id_bits=40, capacity=100, copies=3)
    sketch = _decay(50, params)
    assert peek(sketch.to_bytes()).rows == (50, 50, 50)
    assert peek(sketch.to_bytes(embed_params=False)).total == len(sketch) == 150


@FAMILIES
def test_reading_the_head_takes_no_memory_for_rows(build: Any) -> None:
    body = build(ROWS).to_bytes()
    peek(body)
    tracemalloc.start()
    try:
        assert peek(body).total == ROWS
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < ROWS  # a byte a row; decoded, one takes 33 and more


@FAMILIES
def test_trimming_changes_no_state_and_gives_room_back(build: Any) -> None:
    sketch = build(ROWS)
    sketch.merge(build(ROWS))  # copies wait to be dropped
    before, digest = sketch.nbytes, build(ROWS).to_bytes()
    sketch.trim()
    assert sketch.nbytes < before
    fresh = build(ROWS)
    fresh.trim()
    assert sketch.nbytes <= 1.2 * fresh.nbytes
    assert sketch.to_bytes() == digest
    sketch.merge(build(ROWS + 5))
    assert sketch.to_bytes() == build(ROWS + 5).to_bytes()


def test_scratch_is_given_back_and_made_anew() -> None:
    release_scratch()
    tracemalloc.start()
    try:
        sketch = _decay(ROWS)
        sketch.merge(_decay(ROWS))
        sketch.trim()
        held, _ = tracemalloc.get_traced_memory()
        release_scratch()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < held - 20 * ROWS
    sketch.merge(_decay(ROWS + 1))
    assert sketch.to_bytes() == _decay(ROWS + 1).to_bytes()
