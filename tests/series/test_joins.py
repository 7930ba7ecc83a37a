"""Joins of two series streams: against a direct computation, laws, intervals, rejected pairs."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.errors import IncompatibleSketchError, ParameterError, UnanswerableQueryError
from decaysketch.query.cluster_relations import TwoColumns
from decaysketch.query.clusters import Clusters, Reach
from decaysketch.series import SeriesParams, SeriesSketch
from quality.series import JOINS, joined

NOW = 1_000
PARAMS = SeriesParams(capacity=1 << 14, seed=7)
Rows = list[tuple[int, int, float | None, str]]  # entity, time, value, attribute


def rows_of(draw: random.Random, count: int, sign: float) -> Rows:
    """Of 8 devices with up to two series each. One value in ten is missing."""
    found = {
        (draw.randrange(8), draw.randrange(1_200), draw.choice("ab")): None for _ in range(count)
    }
    return [
        (entity, time, None if draw.random() < 0.1 else sign * entity + draw.gauss(0, 1), text)
        for entity, time, text in found
    ]


def sketch_of(rows: Rows, params: SeriesParams = PARAMS, weights: Any = 1) -> SeriesSketch:
    """A sketch of these rows, where a series is an entity and its text."""
    sketch = SeriesSketch(params)
    entities, times, values, texts = zip(*rows, strict=True)
    ids = [2 * entity + (text == "b") for entity, text in zip(entities, texts, strict=True)]
    more = {"attributes": {"part": list(texts)}} if params.attributes else {}
    sketch.update(list(values), weights, list(times), ids, entities=list(entities), **more)
    return sketch


def directly(ours: Rows, theirs: Rows, now: int, validity: float, by_text: bool) -> Any:
    """Covariance, correlation and slope under a half-life of 300, from every instant's values."""
    sums = np.zeros(6)
    for entity, a, b in itertools.product(range(8), "ab", "ab"):
        if by_text and a != b:
            continue
        sides = [
            {t: v for e, t, v, text in rows if (e, text) == (entity, wanted)}
            for rows, wanted in ((ours, a), (theirs, b))
        ]
        edges = sorted({*sides[0], *sides[1]})
        for begin, end in itertools.pairwise([*edges, 10**9]):
            pair = []
            for side in sides:
                since = max((t for t in side if t <= begin), default=None)
                if since is not None and side[since] is not None:
                    pair.append(side[since])
                    end = min(end, since + validity, now)
            if len(pair) < 2 or end <= begin:
                continue
            mass = math.exp2(-(now - end) / 300) - math.exp2(-(now - begin) / 300)
            x, y = pair
            sums += mass * np.array([1, x, y, x * y, x * x, y * y])
    _, x, y, xy, xx, yy = sums / sums[0]
    covariance, x_spread, y_spread = xy - x * y, xx - x * x, yy - y * y
    return covariance / math.sqrt(x_spread * y_spread), covariance, covariance / y_spread


def asked(ours: SeriesSketch, theirs: Any, **more: Any) -> list[ds.Estimate]:
    more.setdefault("decay", "exponential(half_life=300)")
    return [getattr(ours, name)(theirs, now=NOW, **more) for name in JOINS]


@pytest.mark.parametrize("attributes", ["", "part", "part, other"])
def test_all_rows_give_what_a_direct_computation_gives(attributes: str) -> None:
    draw = random.Random(attributes)
    ours, theirs = rows_of(draw, 150, 1.0), rows_of(draw, 90, -1.0)
    one = sketch_of(ours, SeriesParams(seed=7, attributes=attributes))
    other = sketch_of(theirs, SeriesParams(seed=7, capacity=900, attributes=attributes[:4]))
    for validity in (None, 90):
        expected = directly(ours, theirs, NOW, validity or math.inf, bool(attributes))
        found = asked(one, other, validity=validity)
        assert [each.value for each in found] == pytest.approx(expected, rel=1e-9)
        assert all(each.exact and each.lower == each.value == each.upper for each in found)
        assert [each.rows for each in found] == [8] * 3


def test_order_duplicates_and_parts_change_nothing() -> None:
    draw = random.Random(5)
    params = SeriesParams(capacity=30, seed=7)
    ours, theirs = rows_of(draw, 400, 1.0), rows_of(draw, 300, -1.0)
    other = sketch_of(theirs, params)
    expected = asked(sketch_of(ours, params), other)
    assert not any(each.exact for each in expected)
    parts = [sketch_of(ours[start::3] + ours[:50], params) for start in range(3)]
    for tree in (ds.merge([*parts, parts[1]]), parts[2] | (parts[0] | parts[1]) | parts[2]):
        assert asked(tree, other) == expected
        assert asked(tree, other.snapshot()) == asked(tree, SeriesSketch.from_bytes(
            other.to_bytes())) == expected  # fmt: skip


def test_an_entity_with_another_weight_in_each_stream_is_one_entity() -> None:
    draw = random.Random(6)
    ours, theirs = rows_of(draw, 100, 1.0), rows_of(draw, 100, -1.0)
    params, level = (SeriesParams(seed=7, id_bits=40, max_weight=most) for most in (64, 1))
    plain = asked(sketch_of(ours, level), sketch_of(theirs, level))
    weighted = asked(sketch_of(ours, params, 8), sketch_of(theirs, level))
    assert [each.value for each in weighted] == pytest.approx([each.value for each in plain])


def test_samples_are_unbiased_and_intervals_contain_the_result() -> None:
    """20 hashes, of which 95 % are 19: 16 or more have a chance of .997. About 1 s."""
    for _, name, truth, cell in joined("uneven", 20, capacities=(500,), devices=400):
        held, _, _, missed, error, bias = cell.figures
        assert held >= 16 / 20, name
        assert missed <= 0.1, name
        assert abs(bias) < 4 * error / math.sqrt(20) + 0.02, (name, truth)


@pytest.mark.parametrize(("far", "probability"), [(False, 0.1), (True, 0.1), (True, 1.0)])
def test_an_entity_that_decides_a_deviation_is_reported(far: bool, probability: float) -> None:
    """Its products show nothing, since its other value is the mean. It may be sampled or exact."""
    draw = np.random.default_rng(4)
    x, y = draw.normal(0, 1, (2, 400))
    x[0], y[0] = (50.0, 0.0) if far else (0.0, 0.0)
    probabilities = np.full(400, 0.1)
    probabilities[0] = probability
    clusters = Clusters(np.arange(400), np.zeros(400, int), probabilities, Reach(False, 0.1, 400))
    columns = TwoColumns.of(clusters, x, y, np.ones(400))
    for ask in (columns.covariance, columns.correlation, columns.slope):
        assert ask(0.95).caveats == (("few-series",) if far else ())


def test_a_decay_of_each_kind_a_where_and_groups_apply() -> None:
    draw = random.Random(8)
    params = SeriesParams(seed=7, attributes="part")
    ours, theirs = rows_of(draw, 200, 1.0), rows_of(draw, 200, -1.0)
    one, other = sketch_of(ours, params), sketch_of(theirs, params)
    for decay in ("window(500)", "polynomial(2, scale=90)"):
        alone = {
            text: one.time_slope(other, decay, now=NOW, where=f"part == '{text}'").value
            for text in "ab"
        }
        table = one.time_slope(other, decay, now=NOW, by="part")
        assert {row.by["part"]: row.answer.value for row in table} == alone
        by_hand = [
            sketch_of([row for row in rows if row[3] == "a"], params) for rows in (ours, theirs)
        ]
        assert by_hand[0].time_slope(by_hand[1], decay, now=NOW).value == alone["a"]


def test_a_stream_without_a_common_device_has_no_result() -> None:
    one, other = sketch_of([(1, 0, 2.0, "a"), (1, 9, 3.0, "a")]), sketch_of([(2, 0, 1.0, "a")])
    for theirs in (other, SeriesSketch(PARAMS)):
        for found in asked(one, theirs):
            assert math.isnan(found.value)
            assert found.rows == 0
    itself = asked(one, one)  # a variable with itself
    assert [each.value for each in itself] == pytest.approx([1.0, itself[1].value, 1.0])


def test_the_time_is_the_later_of_both_newest() -> None:
    one = sketch_of([(1, 0, 2.0, "a"), (1, 500, 3.0, "a")])
    other = sketch_of([(1, 10, 5.0, "a"), (1, 600, 6.0, "a")])
    for ours, theirs in ((one, other), (other, one)):
        found = ours.time_covariance(theirs, "window(1h)")
        assert found.now == 600
        assert found.value == ours.time_covariance(theirs, "window(1h)", now=600).value


@pytest.mark.parametrize("values", [[5.0] * 40, [-1e308, 1e308] * 20])
@pytest.mark.parametrize("capacity", [30, 1_000])
def test_equal_and_extreme_values(values: list[float], capacity: int) -> None:
    times = np.arange(40) * 25
    params = SeriesParams(seed=7, capacity=capacity)
    one, other = SeriesSketch(params), SeriesSketch(params)
    for device in range(6):
        one.update(values, 1, times, [device] * 40)
        other.update(np.arange(40.0) * device, 1, times + 1, [device] * 40)
    for pair in ((one, other), (other, one)):
        for found in asked(*pair, decay="window(90)"):
            assert found.rows > 0
            assert found.exact or found.caveats
            assert not found.value > found.upper
            assert not found.value < found.lower


@pytest.mark.parametrize("exact", [True, False])
def test_a_weight_that_faded_decides_nothing(exact: bool) -> None:
    """Values that differ where the weight is too small for its product with a square."""
    reach = Reach(exact, 1.0 if exact else 0.5, 2)
    one = np.arange(2)
    pieces = Clusters(one, one * 0, np.full(2, reach.probability), reach)
    columns = TwoColumns.of(pieces, one * 1.0, one * 1.0, np.array([1.0, 5e-324]))
    for found in (columns.correlation(0.95), columns.slope(0.95)):
        assert math.isnan(found.value)
        assert found.exact == exact
        assert found.caveats == (() if exact else ("few-series", "equal-values"))


def test_streams_that_cannot_be_joined_are_rejected() -> None:
    row: Rows = [(1, 0, 2.0, "a")]
    one = sketch_of(row)
    for field, params in (
        ("seed", SeriesParams(seed=8)),
        ("id_bits", SeriesParams(seed=7, id_bits=30)),
        ("time_unit", SeriesParams(seed=7, time_unit="ms")),
        ("key_check", SeriesParams(seed=7, id_key=b"k" * 16)),
    ):
        with pytest.raises(IncompatibleSketchError, match="sample the same entities") as caught:
            one.time_slope(sketch_of(row, params), "window(9)", now=5)
        assert field in caught.value.fields
        assert field in str(caught.value).partition("again with the other's ")[2]
    for other in (7, "s", ds.DecaySketch(ds.SketchParams())):
        with pytest.raises((ParameterError, UnanswerableQueryError), match="expected a sketch of"):
            one.time_slope(other, "window(9)", now=5)  # type: ignore[arg-type]


def test_many_series_of_one_entity_are_rejected_before_they_are_joined() -> None:
    params = SeriesParams(seed=7, capacity=1 << 16)
    ids = np.arange(20_000)
    one = SeriesSketch(params)
    one.update(ids * 1.0, 1, ids, ids, entities=np.zeros(20_000, np.int64))
    with pytest.raises(ParameterError, match="declare an attribute in both"):
        one.time_slope(one, "window(9)", now=20_000)
