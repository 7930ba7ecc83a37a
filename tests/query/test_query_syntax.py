"""Queries as one text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

from decaysketch.errors import ParameterError
from decaysketch.query.query_syntax import query_of


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
        ("avg(v)", "did you mean 'mean'"), ("p95(v)", "did you mean 'quantile'"),
        ("meen(v)", "did you mean 'mean'"), ("", "begins with ''"), ("mean(v", "begins with"),
        ("count(v)", r"expected count\(\)"), ("quantile(v, a)", "quantile has q 'a'"),
        ("rank(v, 1, 2)", "expected one number"), ("mean(v) by", "nothing after 'by'"),
        ("mean(v) by hour(time),", "none empty"), ("mean(v) limit x", "expected a whole number"),
        ("mean(v) limit 0", "limit is 0"), ("mean(v) order best", "order is 'best'"),
        ("mean(v) where v by w", "each at most once and in this order"),
        ("x" * 1001, "at most 1000"), ("rate() weight 2", "leave it out"),
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
