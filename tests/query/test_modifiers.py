"""``where``, ``of`` and ``weight``: the aggregate of the rows that remain, against brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decaysketch.errors import ParameterError

from .test_groups import DECAY, ROWS, START, build

TIMES = START + 30 * np.arange(ROWS)
EXACT = build(capacity=ROWS, max_weight=5)
ALL = EXACT.sample("none")
V = np.where(ALL.missing, np.nan, ALL.values)
W, T = ALL.weights, ALL.times
AGE = T.max() - T
G = 0.5 ** (AGE / (12 * 3600))
CONDITIONS: list[tuple[str, Any]] = [
    ("v > 1", V > 1),
    ("not v > 1", ~(V > 1)),
    ("v != 1", ~np.isnan(V)),
    ("v is null", np.isnan(V)),
    ("v is not null and w in (2, 3)", ~np.isnan(V) & ((W == 2) | (W == 3))),
    ("w not in (2, 3)", (W != 2) & (W != 3)),
    ("1 < v <= 2", (V > 1) & (V <= 2)),
    ("between(v, 1, 2) or w == 5", ((V >= 1) & (V <= 2)) | (W == 5)),
    ("hour(time) == 9", T // 3600 % 24 == 9),
    ("hour(time, 'Asia/Kolkata') == 9", (T + 19800) // 3600 % 24 == 9),
    ("weekday(time) in (5, 6)", (T // 86400 + 3) % 7 >= 5),
    ("age < '6h'", AGE < 6 * 3600),
    ("age >= 3600 and age < 7200", (AGE >= 3600) & (AGE < 7200)),
    ("time >= '2026-05-29T12:00Z'", T >= 1_780_056_000),
    ("date(time) == '2026-05-29'", T // 86400 == 1_780_012_800 // 86400),
    ("v / (w - 1) > 1", np.where(W > 1, V / np.maximum(W - 1, 1), np.nan) > 1),
    ("min(v, w) == w and true", np.where(np.isnan(V), np.nan, np.minimum(V, W)) == W),
]


@pytest.mark.parametrize(("where", "mask"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_a_filter_keeps_the_rows_that_it_means(where: str, mask: Any) -> None:
    found = EXACT.count("none", where=where)
    assert found.exact
    assert found.value == mask.sum()
    assert 0 < mask.sum() < ROWS
    valued = mask & ~np.isnan(V)
    mean = EXACT.mean(DECAY, where=where)
    if valued.any():
        assert mean.value == pytest.approx(np.average(V[valued], weights=(G * W)[valued]))


@pytest.mark.parametrize(
    ("of", "column"),
    [
        ("v * 2 - w", V * 2 - W),
        ("v > 1", np.where(np.isnan(V), 0.0, V > 1)),
        ("w", W.astype(float)),
        ("exp(-v)", np.exp(-V)),
        ("log(v) ** 2", np.log(V) ** 2),
        ("hour(time)", T // 3600 % 24.0),
        ("age / 3600", AGE / 3600),
    ],
)
def test_any_expression_is_a_column(of: str, column: Any) -> None:
    known = ~np.isnan(column)
    weight = (G * W)[known]
    assert EXACT.mean(DECAY, of=of).value == pytest.approx(
        np.average(column[known], weights=weight)
    )
    total = EXACT.sum(DECAY, of=of)
    assert total.value == pytest.approx(float((G[known] * column[known]).sum()))
    assert total == EXACT.total(DECAY, of=of)
    assert EXACT.quantile(0.5, "none", of=of).value in column[known]


def test_a_text_is_a_column_of_labels() -> None:
    found = EXACT.heavy_hitters(0.0, "none", of="date(time)")
    days = np.unique(T // 86400)
    assert sorted(hitter.value for hitter in found) == [
        str(np.datetime64(int(day), "D")) for day in days
    ]
    with pytest.raises(ParameterError, match="needs numbers"):
        EXACT.mean("none", of="date(time)")


def test_a_weight_multiplies_the_decay() -> None:
    known = ~np.isnan(V)
    rising = AGE / AGE.max()
    found = EXACT.mean(DECAY, weight="age / 179970")
    weight = (G * W * rising)[known]
    assert found.value == pytest.approx(np.average(V[known], weights=weight))
    assert EXACT.count("none", weight="v").value == pytest.approx(np.nansum(V))  # null weighs 0
    with pytest.raises(ParameterError, match="-1 for a row"):
        EXACT.count("none", weight="-1")
    with pytest.raises(ParameterError, match="omit it"):
        EXACT.rate("window(1h)", weight="2")


def test_a_weight_of_time_knows_the_largest_hit_of_each_band() -> None:
    sketch = build()
    full = sketch.sample("none")
    half = sketch.at("none").given(weight="0.5").samples[0]
    assert half.step == pytest.approx(full.step / 2)
    recent = sketch.at("none").given(weight="exp(-age / 3600)").samples[0]
    assert recent.step < full.step / 10  # the coarsest bands are old
    found = sketch.count("none", weight="exp(-age / 3600)")
    assert "weight-on-grid" in found.caveats
    assert found.lower <= 120 / (1 - np.exp(-1)) * 0.64 <= found.upper * 1.2


def test_times_of_a_filter_are_exact_where_nothing_was_sampled() -> None:
    sketch = build()
    assert sketch.count("none", where="age < '1h'").exact
    assert sketch.count("none", where="age < '1h' and v > 1").exact
    assert not sketch.count("none", where="hour(time) == 9").exact
    assert not sketch.count("none", where="age < '1h' or v > 1").exact
    nothing = sketch.count("none", where="v < 0")
    assert (nothing.value, nothing.exact) == (0.0, False)
    assert nothing.upper > 1.0


def test_modifiers_of_ranges_and_of_views_together() -> None:
    start, stop = int(T[3000]), int(T[100])
    between = EXACT.between(start, stop)
    inside = (start <= T) & (stop > T) & (V > 1)
    assert between.count(where="v > 1").value == inside.sum()
    assert between.rate(where="v > 1").value == pytest.approx(inside.sum() / (stop - start))
    table = between.rate(by="v > 1", order="key")
    assert table[1].answer.value == pytest.approx(inside.sum() / (stop - start))
    view = EXACT.at("none").given(where="v > 1").given(where="w == 5", weight="2")
    assert view.ask("count").value == 2 * ((V > 1) & (W == 5)).sum()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "v >"}, "where 'v >' cannot be read"),
        ({"where": "v"}, "expected a condition; it is a number"),
        ({"where": "x > 1"}, "expected one of the columns v"),
        ({"of": "v > 'a'"}, "a number compared with numbers"),
        ({"weight": "v > 1"}, "expected a number"),
        ({"of": 3}, "expected a text"),
        ({"of": "1 / 0 + exp(1000)"}, None),
        ({"of": "exp(v * 1000)"}, "is inf for a row"),
    ],
)
def test_what_cannot_be_read_is_named(options: dict[str, Any], said: str | None) -> None:
    if said is None:
        assert EXACT.mean("none", **options).rows == 0
        return
    with pytest.raises(ParameterError, match=said):
        EXACT.mean("none", **options)


def test_aggregates_without_a_column_have_no_of() -> None:
    for question in ("count", "rate"):
        with pytest.raises(ParameterError, match="has no of"):
            getattr(EXACT, question)("window(1h)", of="v")
    with pytest.raises(ParameterError, match="no argument 'wher'"):
        EXACT.count("none", wher="v > 1")
