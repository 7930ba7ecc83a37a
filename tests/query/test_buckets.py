"""Results of histogram buckets: never exact, and wide enough for any values within them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.cli import app
from decaysketch.core.ranges import EncodedValues, Range, key_of
from decaysketch.errors import UnanswerableQueryError
from decaysketch.query.estimate import Estimate

EDGES = (5.0, 10.0, 25.0, 50.0, 100.0)
PARAMS = ds.SketchParams(max_weight=1, id_bits=24, capacity=400, seed=5)
NONE, RECENT = ds.decay.none(), ds.decay.window(150)
QUERIES: dict[str, dict[str, Any]] = {
    "total": {}, "mean": {}, "median": {}, "quantile": {"q": [0.0, 0.2, 0.97, 1.0]},
    "rank": {"value": 30.0}, "cdf": {"points": [5.0, 12.0, 60.0]},
    "histogram": {"edges": [0.0, 10.0, 30.0, 200.0]}, "selectivity": {"predicate": "v > 30"},
}  # fmt: skip


def drawn(rng: np.random.Generator, rows: int) -> tuple[Any, list[Range]]:
    """Values, and the bucket that each falls into; the last one is open."""
    values = rng.exponential(30.0, rows)
    edges = (0.0, *EDGES, math.inf)
    buckets = [Range(edges[k], edges[k + 1]) for k in np.searchsorted(EDGES, values)]
    return values, buckets


def sketches(rows: int = 300, seed: int = 1) -> tuple[ds.DecaySketch, ds.DecaySketch]:
    """A sketch of buckets, and one of the values themselves."""
    rng = np.random.default_rng(seed)
    values, buckets = drawn(rng, rows)
    found = []
    for column in (EncodedValues(np.array([key_of(each) for each in buckets])), values):
        sketch = ds.DecaySketch(PARAMS)
        sketch.update(column, 1, np.arange(rows), np.arange(rows))
        found.append(sketch)
    return found[0], found[1]


def estimates(found: Any) -> list[Estimate]:
    if isinstance(found, Estimate):
        return [found]
    if isinstance(found, list):
        return [part for each in found for part in estimates(each)]
    return [*estimates(found.below), *(b.share for b in found.bins), *estimates(found.above)]


@pytest.mark.parametrize("name", QUERIES)
def test_the_interval_contains_the_result_of_the_values(name: str) -> None:
    buckets, values = sketches()
    decayed = name in ("total", "mean")
    for decay in (NONE, RECENT):
        found = buckets.at(decay).ask(name, **QUERIES[name])
        truth = values.at(decay).ask(name, **QUERIES[name])
        for each, exact in zip(estimates(found), estimates(truth), strict=True):
            assert exact.exact
            assert not each.exact
            assert each.caveats == ("bucket-values",)
            assert each.lower <= exact.value <= each.upper
            assert not decayed or each.upper == math.inf
    modified = {"where": "time < 200", "of": "v + 1"}
    given = [each.at(NONE).given(**modified).ask("mean") for each in (buckets, values)]
    assert given[0].lower <= given[1].value <= given[0].upper
    assert "bucket-values" in given[0].caveats


def test_an_open_bucket_has_no_upper_bound_and_a_rank_at_an_edge_is_tight() -> None:
    buckets, values = sketches()
    top = buckets.quantile(0.99, NONE)
    assert (top.value, top.lower, top.upper) == (100.0, 100.0, math.inf)
    for edge in EDGES:
        found, truth = buckets.rank(edge, NONE), values.rank(edge, NONE)
        assert found.lower == pytest.approx(truth.value) == found.upper
        assert not found.exact


def test_what_reads_no_value_stays_exact() -> None:
    buckets, values = sketches()
    for name in ("count", "sum"):
        assert buckets.at(NONE).ask(name) == values.at(NONE).ask(name)
    found = buckets.at(NONE).given(where="v > 30").ask("count")
    truth = values.at(NONE).given(where="v > 30").ask("count").value
    assert found.lower <= truth <= found.upper
    assert found.caveats == ("bucket-values",)


def test_groups_have_the_bounds_of_their_buckets() -> None:
    buckets, values = sketches()
    found = buckets.at(NONE).by("time > 150").ask("mean")
    truth = {
        row.by["time > 150"]: row.answer for row in values.at(NONE).by("time > 150").ask("mean")
    }
    for row in found:
        value = truth[row.by["time > 150"]].value
        assert row.answer.lower <= value <= row.answer.upper
        assert not row.answer.exact
        assert row.certain is None
        assert "bucket-values" in row.answer.caveats


@pytest.mark.parametrize(("name", "more"), [("mean", {}), ("total", {}), ("rank", {"value": 30.0})])
def test_a_comparison_is_wide_enough_for_both_sides(name: str, more: dict[str, Any]) -> None:
    buckets, values = sketches()
    moments: dict[str, Any] = {"now": (RECENT, 299), "then": (RECENT, 180)}
    found = buckets.compare(name, **moments, **more)
    truth = values.compare(name, **moments, **more)
    assert found.lower <= truth.value <= found.upper
    assert not found.exact
    assert "bucket-values" in found.caveats
    assert found.changed == (not found.lower <= 0.0 <= found.upper)
    counted = buckets.compare("count", **moments)
    assert counted == values.compare("count", **moments)


def test_sampled_buckets_keep_the_sampling_error() -> None:
    buckets, _ = sketches(rows=4000)
    found = buckets.rank(25.0, NONE)
    assert found.lower < found.value < found.upper
    assert found.stderr > 0.0
    integral = ds.IntegralDecaySketch(PARAMS, ds.decay.integral.window(10**6))
    integral.update(EncodedValues(np.array([key_of(Range(5.0, 10.0))])), 1, [1], [1])
    assert integral.mean().caveats == ("bucket-values",)


def test_the_latest_bucket_is_no_value() -> None:
    with pytest.raises(UnanswerableQueryError, match="histogram bucket"):
        sketches()[0].last(NONE)


def test_the_command_line_shows_the_caveat(tmp_path: Any) -> None:
    path = tmp_path / "buckets.dsk"
    path.write_bytes(sketches()[0].to_bytes())
    found = CliRunner().invoke(app, ["query", str(path), "quantile:0.99", "--decay", "none"])
    assert found.exit_code == 0, found.output
    assert "bucket-values" in found.output
