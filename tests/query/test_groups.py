"""Groups: the table of all at once is that of each restricted sample, and its bounds are joint."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.tables import GroupTable

HOUR = 3600
START = 1_780_000_000 // HOUR * HOUR
ROWS = 6000
DECAY = "exponential(half_life=12h)"


def build(*, max_weight: int = 1, capacity: int = 300, copies: int = 1, **more: Any) -> Any:
    rng = np.random.default_rng(3)
    params = ds.SketchParams(
        max_weight=max_weight, id_bits=40, capacity=capacity, copies=copies, **more
    )
    sketch = ds.DecaySketch(params)
    values = np.ma.masked_array(rng.lognormal(0, 1, ROWS), rng.random(ROWS) < 0.1)
    weights = rng.integers(1, max_weight + 1, ROWS)
    sketch.update(values, weights, START + 30 * np.arange(ROWS), rng.permutation(9 * ROWS)[:ROWS])
    return sketch


KEYS = ("weekday(time)", "hour(time, 'Europe/Paris')", "v // 1", "bucket(time, '3h')", "v is null")
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("count", {}), ("sum", {}), ("rate", {}), ("total", {}), ("mean", {}),
    ("selectivity", {"predicate": "v > 1 and v < 5"}), ("selectivity", {"at_least": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize("max_weight", [1, 9])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: str(asked[0]))
def test_all_groups_at_once_are_each_restricted_sample(
    asked: tuple[str, dict[str, Any]], key: str, max_weight: int
) -> None:
    question, arguments = asked
    view = build(max_weight=max_weight).at(DECAY)
    table: GroupTable = view.by(key, order="key").ask(question, **arguments)
    assert len(table) == table.total_groups
    level = 1.0 - 0.05 / len(table)
    for row in list(table)[:: max(1, len(table) // 12)]:
        value = row.by[key]
        where = (
            f"({key}) is null"
            if value is None
            else f"({key}) == {value}".replace("True", "true").replace("False", "false")
        )
        if "bucket" in key:
            where = f"time >= {value} and time < {value + 3 * HOUR}"
        one = view.given(where=where).ask(question, confidence=level, **arguments)
        assert row.answer.value == pytest.approx(one.value, rel=1e-12, nan_ok=True), row
        if max_weight > 1 and question in ("count", "rate", "total"):
            # Light weights that the part has not shown are those of all rows.
            assert row.answer.upper >= row.answer.value >= row.answer.lower
            continue
        names = ("lower", "upper", "stderr")
        assert [getattr(row.answer, name) for name in names] == pytest.approx(
            [getattr(one, name) for name in names], rel=1e-9, nan_ok=True
        ), row
        assert (row.answer.exact, row.answer.rows) == (one.exact, one.rows)
        assert {*row.answer.caveats} - {"small-group"} == {*one.caveats}
        assert row.small is (row.rows < 20 and not one.exact)


RATIO = {"how": "ratio"}
COMPARED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(("ratio", {"columns": columns}, {}) for columns in (["v", "age"], ["v", "w"])),
    ("covariance", {"columns": ["v", "age"]}, {}),
    ("correlation", {"columns": ["v", "time"]}, {}),
    ("regression", {"columns": ["v", "age", "w"]}, {}),
    *(
        (name, {"value": 2.0} if name == "rank" else {}, {"where": where, "versus": "v > 1"} | how)
        for name in ("count", "rate", "sum", "total", "mean", "rank")
        for where, how in (("v <= 1", {}), ("v <= 1", RATIO), ("v > 0.5", RATIO))
    ),
]  # fmt: skip


@pytest.mark.parametrize("max_weight", [1, 9])
@pytest.mark.parametrize("asked", COMPARED, ids=lambda asked: f"{asked[0]} {asked[2].get('how')}")
def test_relations_and_comparisons_of_groups_are_those_of_each(
    asked: tuple[str, dict[str, Any], dict[str, Any]], max_weight: int
) -> None:
    question, arguments, modifiers = asked
    view = build(max_weight=max_weight).at(DECAY)
    for key in ("weekday(time)", "hour(time)"):
        table = view.modified(Modifiers(by=(key,), order="key", **modifiers)).ask(
            question, **arguments
        )
        level = 1.0 - 0.05 / len(table)
        for row in list(table)[:: max(1, len(table) // 5)]:
            part = view.given(where=f"{key} == {row.by[key]}")
            one = part.modified(Modifiers(**modifiers)).ask(question, confidence=level, **arguments)
            pairs = (
                zip(row.answer, one, strict=True) if isinstance(one, list) else [(row.answer, one)]
            )
            for found, alone in pairs:
                names = ("value", "lower", "upper", "stderr")
                assert [getattr(found, name) for name in names] == pytest.approx(
                    [getattr(alone, name) for name in names], rel=1e-7, nan_ok=True
                ), row
                assert (found.exact, found.rows) == (alone.exact, alone.rows)
                assert found.changed is alone.changed


def test_relations_have_more_than_100_groups() -> None:
    table = build().ratio("v", "age", DECAY, by="time // 30 % 500")
    assert len(table) == table.total_groups > 100
    values = [row.answer.value for row in table if not math.isnan(row.answer.value)]
    assert values == sorted(values, reverse=True)


def test_recent_buckets_of_time_are_exact() -> None:
    table = build().count("none", by="bucket(time, '1h')", order="key")
    exact = [row.answer.exact for row in table]
    assert exact == sorted(exact)
    assert sum(exact) >= 2
    assert [row.answer.value for row in table][-2:] == [120.0, 120.0]
    assert not exact[0]
    days = build().count("none", by="date(time)", order="key")
    assert [row.by["date(time)"] for row in days] == sorted(row.by["date(time)"] for row in days)


def test_the_largest_groups_are_listed_and_those_that_are_certain_named() -> None:
    sketch = build()
    everything = sketch.count(DECAY, by="v // 1")
    table = sketch.count(DECAY, by="v // 1", groups=3)
    assert [row.by for row in table] == [row.by for row in everything][:3]
    assert (len(table), table.total_groups) == (3, len(everything))
    bar = max(table.unseen_at_most, *(row.answer.upper for row in list(everything)[3:]))
    assert [row.certain for row in table] == [row.answer.lower > bar for row in table]
    assert table[0].certain
    assert not any(row.certain for row in sketch.mean(DECAY, by="v // 1", groups=3))
    smallest = sketch.count(DECAY, by="v // 1", groups=3, order="smallest")
    assert [row.answer.value for row in smallest] == sorted(row.answer.value for row in everything)[
        :3
    ]
    assert smallest[0].certain is None


def test_unseen_groups_are_bounded_all_at_once() -> None:
    sketch = build()
    table = sketch.count("none", by="time % 1009")
    whole = sketch.sum("none")  # of weights of 1: the count
    step = sketch.sample("none").step
    u = table.unseen_at_most
    assert u == pytest.approx(step * math.log(whole.upper / u / 0.05), rel=1e-6)
    # Without a row: at least 48 of 1,009 remainders, of 6 observations each.
    assert step < u < 20 * step
    assert build(capacity=ROWS).count("none", by="v // 1").unseen_at_most == 0.0


@pytest.mark.parametrize("combine", ["average", "median"])
@pytest.mark.parametrize(
    "asked",
    [("median", ()), ("quantile", ([0.1, 0.9],)), ("histogram", ([0, 1, 3],)), ("stddev", ()),
     ("rank", (2.0,)), ("heavy_hitters", (0.2,)), ("group_by", ()), ("mean", ())],
    ids=lambda asked: asked[0],
)  # fmt: skip
def test_other_aggregates_are_computed_group_by_group(asked: Any, combine: Any) -> None:
    question, arguments = asked
    sketch = build(copies=3, capacity=100)
    ask = getattr(sketch, question)
    options = {"of": "v // 1"} if question in ("heavy_hitters", "group_by") else {}
    table = ask(*arguments, DECAY, by="weekday(time)", combine=combine, order="key", **options)
    level = 1.0 - 0.05 / len(table)
    for row in table:
        where = f"weekday(time) == {row.by['weekday(time)']}"
        one = ask(*arguments, DECAY, where=where, combine=combine, confidence=level, **options)
        found = row.answer.groups if question == "group_by" else row.answer
        assert _numbers(found) == pytest.approx(_numbers(one), rel=1e-9), row


def _numbers(found: Any) -> list[float]:
    if isinstance(found, ds.Estimate):
        return [found.value, found.lower, found.upper]
    if isinstance(found, list | tuple):
        return [number for each in found for number in _numbers(each)]
    if hasattr(found, "count") and hasattr(found, "sum"):
        return [found.value, *_numbers(found.sum), *_numbers(found.count)]
    return [float(found)]


def test_faint_groups_are_scaled_for_themselves() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, capacity=100))
    ids = np.arange(100)
    sketch.update(np.where(ids < 50, 5.0 + ids % 2, 2.0), 1, np.where(ids < 50, ids, 600 + ids),
                  ids)  # fmt: skip
    table = sketch.mean("exponential(half_life=1)", by="time > 500", order="key")
    assert [row.by["time > 500"] for row in table] == [False, True]
    alone = sketch.mean("exponential(half_life=1)", now=49)
    assert table[0].answer.value == pytest.approx(alone.value)


@pytest.mark.parametrize("how", ["difference", "ratio"])
def test_faint_groups_are_compared_by_their_own_scale(how: Any) -> None:
    """Parts name their rows, so a newer row in neither part does not hide that both are faint. In a
    stream with several number columns, this rejected the query.
    """
    ids = np.arange(300)
    params = ds.SketchParams(max_weight=1, id_bits=40, capacity=100, columns="x float64, z int64")
    sketch = ds.DecaySketch(params)
    columns: Any = {"x": 5.0 + ids % 4, "z": np.where(ids < 200, ids % 2, 2)}
    sketch.update(columns, 1, np.where(ids < 200, ids, 2_000 + ids), ids)
    decay = "exponential(half_life=2)"
    asked: dict[str, Any] = {"of": "x", "where": "z == 1", "versus": "z == 0", "how": how}
    table = sketch.at(decay).modified(Modifiers(**asked, by=("z >= 0",))).ask("mean")
    alone = sketch.at(decay, 199).modified(Modifiers(**asked)).ask("mean")
    found = table[0].answer
    assert (found.value, found.lower, found.upper) == pytest.approx(
        (alone.value, alone.lower, alone.upper), rel=1e-9
    )
    assert (found.changed, found.rows) == (alone.changed, alone.rows)
    assert not math.isnan(alone.value)


def test_a_group_of_null_is_one_of_its_own() -> None:
    sketch = build(capacity=ROWS)
    for keys in (["v", "w"], "v, w"):
        table = sketch.count("none", by=keys, where="v is null or v < 0")
        assert [row.by for row in table] == [{"v": None, "w": 1}]
    assert sketch.mean("none", by="v is null", order="key")[1].rows > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "time"}, "expected at most 10000"),
        ({"by": ["v", "w", "time", "age", "v"]}, "at most 4"),
        ({"by": "hr(time)"}, "did you mean 'hour'"),
        ({"by": "v // 1", "groups": 0}, "limit is 0"),
        ({"by": "v // 1", "order": "best"}, "largest, smallest, key"),
        ({"by": "+".join("v" * 40), "where": "-".join("v" * 30) + " > 0"}, "together"),
    ],
)
def test_explosions_are_rejected_before_any_estimate(options: dict[str, Any], said: str) -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, capacity=20_000))
    numbers = np.arange(12_000)
    sketch.update(numbers * 1.0, 1, numbers, numbers)
    with pytest.raises(ParameterError, match=said):
        sketch.mean("none", **options)


def test_aggregates_one_by_one_have_a_limit() -> None:
    sketch = build()
    with pytest.raises(ParameterError, match="at most 100"):
        sketch.stddev(DECAY, by="time // 30 % 500")
    table = sketch.stddev(DECAY, by="time // 30 % 500", groups=5)
    assert len(table) == 5
    assert table.total_groups > 100
    assert min(row.rows for row in table) >= 2


def test_the_latest_row_of_a_group_may_have_been_discarded() -> None:
    sketch = build()
    with pytest.raises(UnanswerableQueryError, match="weekday"):
        sketch.last("none", by="weekday(time)")
    recent = sketch.last("none", by="w", where="age < '1h'")
    assert recent[0].answer.time == START + 30 * (ROWS - 1)
