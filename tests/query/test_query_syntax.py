"""Queries as one text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch.errors import ParameterError
from decaysketch.query.query_syntax import proposal, query_of


@for_each(
    "text, name, arguments, modifiers",
    [
        ("mean", "mean", {}, {}),
        ("mean(v)", "mean", {}, {}),
        ("count()", "count", {}, {}),
        ("mean(v * 2)", "mean", {}, {"of": "v * 2"}),
        ("sum()", "sum", {}, {}),
        ("sum(v)", "total", {}, {"of": "v"}),
        ("quantile(0.5)", "quantile", {"q": [0.5]}, {}),
        ("quantile(v, 0.5, 0.9)", "quantile", {"q": [0.5, 0.9]}, {}),
        ("quantile:0.5,0.9", "quantile", {"q": [0.5, 0.9]}, {}),
        ("rank(20)", "rank", {"value": 20}, {}),
        ("rank(min(v, w), 20)", "rank", {"value": 20}, {"of": "min(v, w)"}),
        ("histogram(0, 10, 20)", "histogram", {"edges": [0, 10, 20]}, {}),
        ("selectivity(at_least=3)", "selectivity", {"at_least": 3}, {}),
        ("heavy_hitters(date(time), 0.1, limit=3)", "heavy_hitters", {"phi": 0.1, "limit": 3},
         {"of": "date(time)"}),
        ("mean(v) by hour(time, 'Europe/Paris'), w where v > 3 weight exp(-v) limit 7 order key",
         "mean", {}, {"by": ["hour(time, 'Europe/Paris')", "w"], "where": "v > 3",
                      "weight": "exp(-v)", "limit": 7, "order": "key"}),
        ("count() where v == ' by where ' by w", None, "'by' at character", None),
        ("count() where startswith(v, '(')", "count", {}, {"where": "startswith(v, '(')"}),
    ],
)  # fmt: skip
def test_a_text_is_an_aggregate_with_modifiers(
    text: str, name: str | None, arguments: Any, modifiers: Any
) -> None:
    if name is None:
        with pytest.raises(ParameterError, match=arguments):
            query_of(text)
        return
    found = query_of(text)
    assert found.question.name == name
    assert found.arguments == arguments
    assert found.modifiers.to_dict() == modifiers


@for_each(
    "text, said",
    [
        ("percentile(v)", "did you mean 'quantile'"), ("topk", "did you mean 'heavy_hitters'"),
        ("", "begins with ''"), ("mean(v", "begins with"),
        ("count(v)", r"expected count\(\)"), ("quantile(v, a)", "quantile has q 'a'"),
        ("rank(v, 1, 2)", "expected one number"), ("mean(v) by", "nothing after 'by'"),
        ("mean(v) by hour(time),", "none empty"), ("mean(v) limit x", "expected a whole number"),
        ("mean(v) limit 0", "limit is 0"), ("mean(v) order best", "order is 'best'"),
        ("mean(v) where v by w", "each at most once and in this order"),
        ("x" * 1001, "at most 1000"), ("rate() weight 2", "omit it"),
        ("size_of_keys(1)", "aggregate is"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        query_of(text)


@settings(max_examples=200, deadline=None)
@given(st.text("mean(v)count by where weight limit ,'\"0.5=order key", max_size=80) | st.text())
def test_any_text_is_read_or_rejected_with_one_error(text: str) -> None:
    try:
        found = query_of(text)
    except ParameterError:
        return
    assert found.question.name


PROPOSED = {
    "selectivity(temp > 25) by region": "mean(temp > 25) by region",
    "selectivity(startswith(region, 'a') and ms > 3)": "mean(startswith(region, 'a') and ms > 3)",
    "fraction(temp > 25)": "mean(temp > 25)",
    "countif(temp > 25) where ms > 2": "count() where (ms > 2) and temp > 25",
    "p95(ms)": "quantile(ms, 0.95)",
    "p5(ms)": "quantile(ms, 0.05)",
    "p100(ms)": "quantile(ms, 1)",
    "p99.9(ms)": "quantile(ms, 0.999)",
    "p999(ms)": "quantile(ms, 0.999)",
    "P50(ms) by region limit 2": "quantile(ms, 0.5) by region limit 2",
    "quantile(0.95, ms)": "quantile(ms, 0.95)",
    "quantile(ms, 95)": "quantile(ms, 0.95)",
    "quantile(ms, p95)": "quantile(ms, 0.95)",
    "percentile(50, 95, ms)": "quantile(ms, 0.5, 0.95)",
    "avg(ms + 1)": "mean(ms + 1)",
    "Mean(ms)": "mean(ms)",
    "meen(ms)": "mean(ms)",
    "stdev(ms)": "stddev(ms)",
    "mean(ms) group by region": "mean(ms) by region",
    "count(*)": "count()",
    "COUNT(1) by region": "count() by region",
    "count(ms)": "count() where ms is not null",
    "rate(ms)": "rate() where ms is not null",
    "count(distinct region) where ms > 2": "count() by region where ms > 2",
    "uniq(region)": "count() by region",
    "topk(region)": "count() by region",
    "topk(region, 2)": "count() by region limit 2",
    "topk(2, region)": "count() by region limit 2",
}


def test_every_proposed_query_runs() -> None:
    types = "ms float64, temp float64, region text"
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, columns=types))
    rows = np.arange(100)
    columns: Any = {"ms": rows % 7.0, "temp": rows % 30.0, "region": np.array(["a", "b"])[rows % 2]}
    sketch.update(columns, 1, rows, rows)
    view = sketch.at("exponential(half_life=50)")
    for text, proposed in PROPOSED.items():
        with pytest.raises(ParameterError) as fault:
            query_of(text)
        assert str(fault.value).endswith(f"; did you mean {proposed!r}?"), text
        found = query_of(proposed)
        assert view.modified(found.modifiers).ask(found.question, **found.arguments) is not None
    assert proposal("p95") == "quantile(0.95)"
    for text in (
        "selectivity(v >)",
        "selectivity(ms > 1 and v > 2)",
        "count(x y)",
        "xy(3)",
        "max(x)",
    ):
        assert proposal(text) is None, text
    with pytest.raises(ParameterError, match=r"did you mean 'mean\(temp > 25\)'"):
        sketch.selectivity("temp > 25", "none")


@settings(max_examples=100, deadline=None)
@given(st.text("avg(p95count*distinct topk)1,. by where'", max_size=60))
def test_a_proposal_is_none_or_can_be_read(text: str) -> None:
    if (found := proposal(text)) is not None:
        query_of(found)
