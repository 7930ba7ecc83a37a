"""The C++ program that we are measured against is right: a slow or wrong rival proves nothing.

Its samples and answers are compared with the library's on the same hash and, for integral decays,
with the definition of the paper by enumeration: every integer of every element is hashed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import decaysketch as ds
from benchmarks import paper
from benchmarks.streams import Stream

NEVER = -(2**63)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = paper.build(tmp_path_factory.mktemp("paper"))
    if built is None:
        pytest.skip("no C++ compiler on this machine")
    return built


def make_stream(
    seed: int, rows: int, max_weight: int, capacity: int, span: int, id_bits: int = 12
) -> Stream:
    """Rows with copies (of ids drawn again) and ties (of times); copies of an id agree."""
    rng = np.random.default_rng(seed)
    params = ds.SketchParams(
        max_weight=max_weight, id_bits=id_bits, capacity=capacity, seed=seed,
        value_type="int64", id_mix="none",
    )  # fmt: skip
    universe = rng.choice(1 << id_bits, rows // 2 + 1, replace=False)
    which = rng.integers(0, len(universe), rows)
    columns = (
        rng.integers(-50, 50, len(universe)),
        rng.integers(1, max_weight + 1, len(universe)),
        rng.integers(0, span, len(universe)),
        universe,
    )
    return Stream(params, *(column[which] for column in columns))


def run(program: Path, folder: Path, stream: Stream, **arguments: Any) -> dict[str, Any]:
    paper.write_rows(stream, folder / "rows")
    return paper.run(program, folder / "rows", stream.params, dump=1, **arguments)


# --------------------------------------------------------------------- the general sketch (4.1)


@pytest.mark.parametrize("arithmetic", ["narrow", "wide"])
@pytest.mark.parametrize("seed", range(6))
def test_general_samples_are_those_of_the_library(
    program: Path, tmp_path: Path, seed: int, arithmetic: str
) -> None:
    max_weight = (1, 7, 40, 999, 999, 5000)[seed]
    stream = make_stream(seed, 3_000, max_weight, (1, 3, 20, 50, 200, 50)[seed], span=400)
    sketch = ds.DecaySketch(stream.params)
    sketch.update(*stream.rows(0, len(stream.ids)))
    state = sketch.state()
    result = run(
        program, tmp_path, stream, decay="general", parameter=30, now=399, arithmetic=arithmetic
    )
    for level, (watermark, sample) in enumerate(result["samples"]):
        assert watermark == state.watermarks[level]
        inside = (state.levels >= level) & (state.times > watermark)
        expected = zip(
            state.value_keys[inside], state.weights[inside], state.times[inside],
            state.ids[inside], strict=True,
        )  # fmt: skip
        assert sorted(tuple(entry[1:]) for entry in sample) == sorted(expected)
        assert all(entry[0] == entry[3] for entry in sample)  # a time stands for the expiry
    assert result["entries"] == sum(len(sample) for _, sample in result["samples"])


@pytest.mark.parametrize("width", [0, 3, 40, 399])
def test_general_answer_is_that_of_the_librarys_sample(
    program: Path, tmp_path: Path, width: int
) -> None:
    stream = make_stream(11, 3_000, 99, 100, span=400)
    sketch = ds.DecaySketch(stream.params)
    sketch.update(*stream.rows(0, len(stream.ids)))
    state, now = sketch.state(), 399
    result = run(program, tmp_path, stream, decay="general", parameter=width, now=now)
    level = int(np.flatnonzero(state.watermarks < now - width)[0])
    rows = (state.levels >= level) & (state.times >= now - width)
    levels = np.full(int(rows.sum()), level, np.int8)
    hits = ds.minhit.range_samples(stream.params, state.ids[rows], state.weights[rows], levels)
    assert result["level"] == level
    assert result["sum"] == pytest.approx(
        hits.sum() / stream.params.level_probabilities[level], rel=1e-12
    )


def test_a_large_universe_needs_wide_products(program: Path, tmp_path: Path) -> None:
    stream = make_stream(3, 2_000, 900_000, 30, span=300, id_bits=30)
    sketch = ds.DecaySketch(stream.params)
    sketch.update(*stream.rows(0, len(stream.ids)))
    state = sketch.state()
    assert stream.params.prime * stream.params.max_weight > 2**63
    result = run(program, tmp_path, stream, decay="general", parameter=10, now=299)
    assert [watermark for watermark, _ in result["samples"]] == state.watermarks.tolist()
    ids = {entry[4] for _, sample in result["samples"] for entry in sample}
    assert ids == set(state.ids.tolist())


# ------------------------------------------------------------------- integral decays (section 3)


class Integral(NamedTuple):
    """An integral decay by its definition."""

    name: str
    parameter: float
    value: Callable[[int, int], int]


DECAYS = [
    Integral("window", 60, lambda w, x: w if x <= 60 else 0),
    Integral("exponential", 0.05, lambda w, x: math.floor(w * math.exp(-0.05 * x))),
    Integral("polynomial", 1.0, lambda w, x: w // (x + 1)),
]


def samples_by_definition(
    stream: Stream, decay: Integral, now: int
) -> tuple[list[tuple[int, set[tuple[int, ...]]]], list[dict[int, int]]]:
    """Of each level t_i (at least the clock) and S_i with expiries; and the hits of each id."""
    params = stream.params
    p, a, b = params.prime, params.multipliers[0], params.offsets[0]
    elements = sorted(set(zip(*(column.tolist() for column in stream[1:]), strict=True)))
    samples, counts = [], []
    for level in range(params.levels + 1):
        expiries, hits_now = [], {}
        for value, weight, time, id_ in elements:
            start = params.max_weight * id_
            hits = [j for j in range(decay.value(weight, 0))
                    if (a * (start + j) + b) % p <= (p >> level) - 1]  # fmt: skip
            hits_now[id_] = sum(j < decay.value(weight, now - time) for j in hits)
            if hits:
                age = 0
                while decay.value(weight, age) > hits[0]:
                    age += 1
                expiries.append((time + age, value, weight, time, id_))
        ranked = sorted((entry[0] for entry in expiries), reverse=True)
        watermark = ranked[params.capacity] if len(ranked) > params.capacity else NEVER
        watermark = max(watermark, now)
        samples.append((watermark, {entry for entry in expiries if entry[0] > watermark}))
        counts.append(hits_now)
    return samples, counts


@pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: decay.name)
@pytest.mark.parametrize("seed", range(3))
def test_integral_samples_and_answers_are_those_of_the_definition(
    program: Path, tmp_path: Path, decay: Integral, seed: int
) -> None:
    stream = make_stream(seed, 500, (9, 30, 60)[seed], (2, 12, 40)[seed], span=150, id_bits=10)
    now = 160
    samples, hits = samples_by_definition(stream, decay, now)
    result = run(program, tmp_path, stream, decay=decay.name, parameter=decay.parameter, now=now)
    found = [
        (max(watermark, now), {tuple(entry) for entry in sample})
        for watermark, sample in result["samples"]
    ]
    assert found == samples
    level = next(i for i, (watermark, _) in enumerate(samples) if watermark <= now)
    estimate = sum(hits[level].values()) / stream.params.level_probabilities[level]
    assert result["level"] == level
    assert result["sum"] == pytest.approx(estimate, rel=1e-12)


@pytest.mark.parametrize("decay", DECAYS[:2], ids=lambda decay: decay.name)
def test_the_closed_form_of_expiry_keeps_the_same_samples(
    program: Path, tmp_path: Path, decay: Integral
) -> None:
    """(Not so for the polynomial: its rounded root misses by one where the root is whole.)"""
    stream = make_stream(5, 4_000, 300, 60, span=200)
    results = [
        run(program, tmp_path, stream, decay=decay.name, parameter=decay.parameter, now=210,
            expiry=expiry)
        for expiry in ("search", "closed")
    ]  # fmt: skip
    assert results[0]["samples"] == results[1]["samples"]


@pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: decay.name)
@pytest.mark.parametrize("seed", range(3))
def test_integral_samples_and_answers_are_those_of_the_library(
    program: Path, tmp_path: Path, decay: Integral, seed: int
) -> None:
    stream = make_stream(seed, 4_000, (9, 300, 999)[seed], (5, 60, 300)[seed], span=200)
    now = 210
    fixed = ds.IntegralDecaySketch(stream.params, paper.integral_decay(decay.name, decay.parameter))
    fixed.update(*stream.rows(0, len(stream.ids)), now=now)
    state = fixed.state()
    result = run(program, tmp_path, stream, decay=decay.name, parameter=decay.parameter, now=now)
    watermarks = [max(watermark, now) for watermark, _ in result["samples"]]
    assert watermarks == state.watermarks.tolist()
    kept = {
        tuple(entry[1:])
        for (_, sample), watermark in zip(result["samples"], watermarks, strict=True)
        for entry in sample
        if entry[0] > watermark
    }
    columns = (state.value_keys, state.weights, state.times, state.ids)
    assert kept == set(zip(*(column.tolist() for column in columns), strict=True))
    answer = fixed.sample(now=now, estimator="level").masses.sum()
    assert result["sum"] == pytest.approx(answer, rel=1e-12)


# ------------------------------------------------------------------------------------ arguments


def test_mixed_ids_are_refused(program: Path, tmp_path: Path) -> None:
    stream = make_stream(1, 10, 5, 5, span=10)
    with pytest.raises(ValueError, match="id_mix is 'keyed'"):
        paper.run(
            program, tmp_path, ds.SketchParams(max_weight=5), decay="general", parameter=1, now=1
        )
    assert len(stream.ids) == 10
