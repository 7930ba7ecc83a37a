"""``b - a``: the comparison of both queries from one sketch, or a refusal with the remedy."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.errors import ParameterError

DECAY = "exponential(half_life=900)"


def build(seed: int = 1) -> Any:
    rng = np.random.default_rng(2)
    params = ds.SketchParams(
        max_weight=1, id_bits=40, capacity=200, time_unit="s", seed=seed,
        columns="x float64, variant text",
    )  # fmt: skip
    sketch = ds.DecaySketch(params)
    variant = np.array(["A", "B"])[rng.integers(0, 2, 4_000)]
    rows = {"x": rng.lognormal(size=4_000) + (variant == "B"), "variant": variant}
    sketch.update(rows, 1, np.arange(4_000), np.arange(4_000))
    return sketch


SKETCH = build()
A, B = ({"of": "x", "where": f"variant == '{each}'"} for each in "AB")


def same(one: ds.Estimate, other: ds.Estimate) -> bool:
    return one == other and one.changed is not None


def test_a_difference_of_parts_is_their_comparison() -> None:
    found = SKETCH.mean(DECAY, **B) - SKETCH.mean(DECAY, **A)
    parts: dict[str, Any] = {"of": "x", "where": B["where"], "versus": A["where"]}
    assert same(found, SKETCH.compare("mean", DECAY, **parts))
    all_rows = SKETCH.mean(DECAY, of="x")
    rest = SKETCH.mean(DECAY, **B) - all_rows
    assert rest.value == pytest.approx(SKETCH.mean(DECAY, **B).value - all_rows.value)
    assert (all_rows - all_rows).exact
    separate = SKETCH.mean(DECAY, **B).upper - all_rows.lower - rest.value
    assert rest.upper - rest.value < separate  # the shared rows cancel


def test_a_difference_of_moments_is_their_comparison() -> None:
    later, earlier = (SKETCH.count("window(500)", now=now) for now in (3_999, 3_700))
    moments: dict[str, Any] = {"now": ("window(500)", 3_999), "then": ("window(500)", 3_700)}
    assert same(later - earlier, SKETCH.compare("count", **moments))
    b, a = (SKETCH.mean(ds.decay.window(500), now=now, **B) for now in (3_999, 3_700))
    assert same(b - a, SKETCH.compare("mean", **moments, **B))


def test_a_number_moves_the_interval() -> None:
    mean = SKETCH.mean(DECAY, of="x")
    moved = mean - 1
    ends = ("value", "lower", "upper")
    assert [getattr(moved, end) for end in ends] == [getattr(mean, end) - 1 for end in ends]
    with pytest.raises(TypeError):
        mean - "1"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (lambda s: s.mean(DECAY, **B), lambda s: s.count(DECAY), "one is mean, the other count"),
        (lambda s: s.mean(DECAY, **B), lambda s: build(2).mean(DECAY, **A), "two sketches"),
        (lambda s: s.median(DECAY, **B), lambda s: s.median(DECAY, **A), "Compare the rank"),
        (
            lambda s: s.mean(DECAY, of="x"),
            lambda s: s.mean(DECAY, of="2 * x"),
            "of is 'x' for one, '2 \\* x' for the other",
        ),
        (
            lambda s: s.mean(DECAY, **B),
            lambda s: s.mean(DECAY, confidence=0.9, **A),
            "confidence is 0.95 for one, 0.9",
        ),
        (
            lambda s: s.mean(DECAY, **B),
            lambda s: s.mean(DECAY, by="variant", of="x")[0].answer,
            "compare",
        ),
        (lambda s: s.mean(DECAY, **B), lambda s: copy.deepcopy(s.mean(DECAY, **A)), "compare"),
    ],
)
def test_others_are_refused_with_the_remedy(one: Any, other: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said) as refused:
        one(SKETCH) - other(SKETCH)
    assert "float(b)" in str(refused.value) or "median" in str(refused.value)


def test_a_sketch_that_has_changed_is_not_read_again() -> None:
    sketch = build()
    before = sketch.count(DECAY)
    sketch.update({"x": [1.0], "variant": ["A"]}, 1, [4_000], [4_000])
    with pytest.raises(ParameterError, match="changed between them"):
        sketch.count(DECAY) - before


def test_an_estimate_is_stored_without_its_query() -> None:
    mean = SKETCH.mean(DECAY, of="x")
    loaded = pickle.loads(pickle.dumps(mean))
    assert loaded == mean
    assert loaded.asked is None
    assert "asked" not in mean.to_dict()
    assert "asked" not in repr(mean)
