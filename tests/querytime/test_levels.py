"""The part of a sketch at high levels is the sketch of those observations, for every reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sources.streams import Heard, drawn

import decaysketch as ds
from decaysketch import minhit
from decaysketch.errors import ParameterError

LEVEL = 2
COLUMNS = {"columns": {"site": "text", "v": "float64"}}


def observations(trial: int) -> dict[str, Any]:
    rng = np.random.default_rng(trial)
    n = int(rng.integers(0, 500))
    return {
        "weights": rng.integers(1, 6, n), "timestamps": np.sort(rng.integers(0, 300, n)),
        "ids": rng.permutation(n), "values": rng.normal(size=n),
    }  # fmt: skip


def sketch(params: ds.SketchParams, given: dict[str, Any], rows: Any) -> ds.DecaySketch:
    made = ds.DecaySketch(params)
    values: Any = given["values"][rows]
    if params.value_type == "label":
        values = [f"{value:.1f}" for value in values]
    elif params.columns:
        values = {"site": [f"{value:.0f}" for value in values], "v": values}
    elif params.value_type == "int64":
        values = (10 * values).astype(np.int64)
    made.update(values, *(given[name][rows] for name in ("weights", "timestamps", "ids")))
    return made


@pytest.mark.parametrize(
    "more", [{"value_type": "int64"}, {"value_type": "label"}, COLUMNS], ids=str
)
def test_a_part_is_the_sketch_of_its_observations(more: dict[str, Any]) -> None:
    for trial in range(12):
        params = ds.SketchParams(capacity=20, seed=trial, max_weight=5, id_bits=16, **more)
        given = observations(trial)
        levels = minhit.top_levels(params, given["ids"], given["weights"])
        first = np.arange(len(levels)) % 3 > 0
        expected = sketch(params, given, levels >= LEVEL).snapshot()
        found = sketch(params, given, np.ones(len(levels), np.bool_)).snapshot().part(LEVEL)
        assert found.digest == expected.digest
        assert found.to_bytes() == expected.to_bytes()
        halves = [sketch(params, given, half).snapshot().part(LEVEL) for half in (first, ~first)]
        assert ds.merge([half.thaw() for half in halves]).to_bytes() == expected.to_bytes()


def _sources(capacity: int) -> tuple[Heard, dict[str, ds.DecaySketch]]:
    stream = drawn(np.random.default_rng(7), 900, np.array([0.9, 0.5, 0.2]), span=1000, lag=3)
    return stream, stream.sketches(capacity, seed=5)


def _results(view: Any) -> list[Any]:
    return [
        view.count("any"), view.count("a - b"), view.count("a"), view.share("a & b", of="b"),
        view.exclusive(), view.overlaps(), view.heard_by(), view.missing("a - b", 9),
        view.histories(), view.cover(1.0), view.where("a & c").ask("mean"),
        view.versus("a", of="b | c", then=("window(300)", 400)), view.silences(),
    ]  # fmt: skip


@pytest.mark.parametrize("decay", ["none", "exponential(half_life=200)", "window(300)"])
def test_results_from_parts_are_those_of_whole_sketches_from_that_level(decay: str) -> None:
    _, sketches = _sources(60)
    parts = {name: each.snapshot().part(LEVEL).to_bytes() for name, each in sketches.items()}
    of_parts = ds.SourceSet(parts, from_level=LEVEL).at(decay, 1000)
    of_all = ds.SourceSet(sketches, from_level=LEVEL).at(decay, 1000)
    assert _results(of_parts) == _results(of_all)


def test_a_message_stands_for_those_that_its_level_left_out() -> None:
    """Nothing is discarded here, so each row of a part is 2^level messages."""
    stream, sketches = _sources(10_000)
    levels = minhit.top_levels(sketches["a"].params, np.arange(900), np.ones(900, np.int64))
    view = ds.SourceSet(sketches, from_level=LEVEL).at("none", 1000)
    a, b, _ = stream.heard.T
    for text, rows in (("a", a), ("a & b", a & b), ("a - b", a & ~b), ("a | b", a | b)):
        found = view.count(text)
        assert found.value == pytest.approx((rows & (levels >= LEVEL)).sum() << LEVEL, rel=1e-3)
        assert not found.exact


@pytest.mark.parametrize(
    "more", [{"copies": 3}, {"max_weight": 9, "objectives": ("weight", "count")}]
)
def test_several_samples_have_no_part(more: dict[str, Any]) -> None:
    made = ds.DecaySketch(ds.SketchParams(capacity=20, **more)).snapshot()
    with pytest.raises(ParameterError, match=r"^from_level is 1 and (copies|objectives)"):
        made.part(1)


@pytest.mark.parametrize("level", [-1, 999])
def test_a_level_that_is_not_there_is_refused(level: int) -> None:
    made = ds.DecaySketch(ds.SketchParams(capacity=20))
    with pytest.raises(ParameterError, match=rf"^from_level is {level}; expected 0 to"):
        ds.SourceSet({"a": made}, from_level=level)
