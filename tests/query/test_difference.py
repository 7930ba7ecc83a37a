"""Two moments compared by one sample, and ranges of times."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decaysketch as ds
from decaysketch.asyncwindow import SumParams, SumSampler
from decaysketch.query.difference import Moment, Pair, compare

ROWS = 5_000
DRAW = np.random.default_rng(8)
VALUES = np.round(20.0 + DRAW.normal(0.0, 2.0, ROWS), 3)
TIMES = np.arange(ROWS)
WINDOW = ds.decay.window(999)


def sketch(capacity: int, seed: int = 3, weights: Any = 1, copies: int = 1) -> ds.DecaySketch:
    params = ds.SketchParams(
        max_weight=99, id_bits=24, capacity=capacity, seed=seed, copies=copies, time_unit="s"
    )
    made = ds.DecaySketch(params)
    made.update(VALUES, weights, TIMES, TIMES)
    return made


WHOLE = sketch(10_000)
SAMPLED = sketch(200)
PAIRS = {
    "apart": ((WINDOW, 4_999), (WINDOW, 3_999)),
    "shared": ((WINDOW, 4_999), (WINDOW, 4_600)),
    "fading": (
        (ds.decay.exponential(half_life=300), 4_999),
        ("exponential(half_life=10min)", 4_000),
    ),
}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("count", {}), ("rate", {}), ("sum", {}), ("total", {}), ("mean", {}),
    ("rank", {"value": 20.0}),
]  # fmt: skip


def alone(held: ds.DecaySketch, aggregate: str, moment: Any, given: dict[str, Any]) -> Any:
    return held.at(*moment).ask(aggregate, **given)


@pytest.mark.parametrize("moments", PAIRS.values(), ids=list(PAIRS))
@pytest.mark.parametrize(("aggregate", "given"), ASKED, ids=[name for name, _ in ASKED])
def test_where_all_is_held_the_difference_is_that_of_the_answers(
    aggregate: str, given: dict[str, Any], moments: Any
) -> None:
    now, then = moments
    found = WHOLE.compare(aggregate, now=now, then=then, **given)
    first, second = (alone(WHOLE, aggregate, moment, given).value for moment in moments)
    assert found.exact
    assert found.value == pytest.approx(first - second, rel=1e-9, abs=1e-9)
    assert found.lower == found.value == found.upper
    assert found.changed == (found.value != 0.0)
    if aggregate in ("count", "rate", "sum", "total"):
        ratio = WHOLE.compare(aggregate, now=now, then=then, how="ratio", **given)
        assert ratio.value == pytest.approx(first / second)
        assert ratio.exact


@pytest.mark.parametrize("moments", PAIRS.values(), ids=list(PAIRS))
@pytest.mark.parametrize(("aggregate", "given"), ASKED, ids=[name for name, _ in ASKED])
def test_of_a_sample_the_value_is_that_of_the_answers_and_what_is_shared_cancels(
    aggregate: str, given: dict[str, Any], moments: Any
) -> None:
    """The estimates are those of one sample, so the value is their difference; the interval is that
    of what is not shared."""
    now, then = moments
    found = SAMPLED.compare(aggregate, now=now, then=then, **given)
    first, second = (alone(SAMPLED, aggregate, moment, given) for moment in moments)
    assert not found.exact
    assert found.value == pytest.approx(first.value - second.value, rel=1e-9, abs=1e-9)
    assert found.lower < found.value < found.upper
    assert found.changed == (not found.lower <= 0.0 <= found.upper)
    if moments == PAIRS["shared"] and aggregate in ("count", "sum"):
        assert found.stderr < 0.8 * math.hypot(first.stderr, second.stderr)


def test_the_interval_of_a_ratio_holds_what_the_contrast_may_be_0_for() -> None:
    now, then = (Moment(*moment) for moment in PAIRS["apart"])
    (pair,) = SAMPLED.snapshot().pairs(now, then)  # type: ignore[attr-defined]
    found = compare(pair, "count", now, then, "ratio")
    times = pair.both.beside(pair.both.times, valued=False)
    columns = pair.both.columns
    one, other = (
        float((columns.masses * (times <= at) * (times > at - 1_000)).sum())
        for at in (4_999, 3_999)
    )
    assert found.value == pytest.approx(one / other)
    assert found.lower < found.value < found.upper
    difference = compare(pair, "count", now, then)
    assert found.changed == difference.changed


@pytest.mark.parametrize("ago", ["1000s", "16m40s", timedelta(seconds=1000), pd.Timedelta("1000s")])
@pytest.mark.parametrize("at", [None, 4_500])
def test_then_may_be_so_long_before_now(ago: Any, at: int | None) -> None:
    before = (at or SAMPLED.stats().newest) - 1000
    found = SAMPLED.compare("mean", now=(WINDOW, at), then=(WINDOW, ago))
    assert found == SAMPLED.compare("mean", now=(WINDOW, at), then=(WINDOW, before))
    assert found != SAMPLED.compare("mean", now=(WINDOW, at), then=(WINDOW, at))


@pytest.mark.parametrize("at", ["soon", "2026-01-01T12:00", datetime(2026, 1, 1)])
def test_the_fault_of_a_time_is_that_of_the_moment_whose_it_is(at: Any) -> None:
    with pytest.raises(ds.ParameterError, match="then is "):
        SAMPLED.compare("mean", now=(WINDOW, None), then=(WINDOW, at))
    with pytest.raises(ds.ParameterError, match="now is "):
        SAMPLED.compare("mean", now=(WINDOW, at), then=(WINDOW, None))


def test_the_same_moment_twice_is_no_change() -> None:
    moment = PAIRS["apart"][0]
    same = SAMPLED.compare("mean", now=moment, then=moment)
    assert (same.value, same.lower, same.upper, same.changed) == (0.0, 0.0, 0.0, False)
    assert SAMPLED.compare("count", now=moment, then=moment, how="ratio").value == 1.0


def test_a_change_is_seen() -> None:
    made = ds.DecaySketch(SAMPLED.params)
    made.update(VALUES + np.where(TIMES >= 4_000, 3.0, 0.0), 1, TIMES, TIMES)
    found = made.compare("mean", now=(WINDOW, None), then=(WINDOW, 3_999))
    assert found.changed
    assert found.lower > 1.0
    assert made.compare("count", now=(WINDOW, None), then=(WINDOW, 3_999)).changed is False


def test_of_a_side_without_a_hit_something_may_have_been_missed() -> None:
    """No row of the first window is retained: its count may be above 0."""
    made = ds.DecaySketch(SAMPLED.params)
    made.update(VALUES, 1, np.where(TIMES < 4_000, TIMES, 20_000), TIMES)
    narrow = ds.decay.window(2)
    found = made.compare("count", now=(narrow, 1_001), then=(WINDOW, 900))
    assert found.upper > found.value
    flag = SAMPLED.compare("rank", now=PAIRS["apart"][0], then=PAIRS["apart"][1], value=1e9)
    assert (flag.value, flag.caveats) == (0.0, ()) or flag.upper > 0.0


def test_a_total_of_negative_values_is_the_mirror_of_that_of_positive_ones() -> None:
    """What the first side may have missed is then below 0."""
    moments: dict[str, Any] = {"now": (ds.decay.window(3), 3_000), "then": (WINDOW, 4_999)}
    for seed in range(5):
        held = sketch(200, seed)
        mirrored = ds.DecaySketch(held.params)
        mirrored.update(-VALUES, 1, TIMES, TIMES)
        one, other = (each.compare("total", **moments) for each in (held, mirrored))
        assert one.lower < one.value < one.upper
        assert (one.value, one.lower, one.upper) == pytest.approx(
            (-other.value, -other.upper, -other.lower)
        )


@pytest.mark.parametrize("combine", ["average", "median"])
def test_copies_make_one_comparison(combine: Any) -> None:
    held = sketch(200, copies=3)
    now, then = PAIRS["apart"]
    found = held.compare("mean", now=now, then=then, combine=combine)
    assert found.lower < 0.0 < found.upper
    assert found.changed is False


@pytest.mark.parametrize(
    ("aggregate", "more", "said"),
    [
        ("median", {}, "Compare the rank of a fixed value"),
        ("quantile", {}, "each with confidence"),
        ("variance", {}, "sum, count, rate, total, mean, rank, share can"),
        ("nothing", {}, "expected one of"),
        ("rank", {}, "rank needs value"),
        ("count", {"how": "sum"}, "how is 'sum'; expected one of difference, ratio"),
        ("total", {"function": lambda v, w: v}, "function cannot be compared"),
        ("count", {"confidence": 1.0}, "confidence is 1.0"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_cure(
    aggregate: str, more: dict[str, Any], said: str
) -> None:
    now, then = PAIRS["apart"]
    with pytest.raises(ds.ParameterError) as refused:
        SAMPLED.compare(aggregate, now=now, then=then, **more)
    assert said in str(refused.value)


def test_a_ratio_of_what_may_be_negative_is_refused() -> None:
    made = ds.DecaySketch(SAMPLED.params)
    made.update(VALUES - 30.0, 1, TIMES, TIMES)
    now, then = PAIRS["apart"]
    for aggregate, more in (("total", {}), ("mean", {}), ("rank", {"value": 5.0})):
        with pytest.raises(ds.ParameterError, match=f"is negative: a ratio of {aggregate}s"):
            made.compare(aggregate, now=now, then=then, how="ratio", **more)


def test_what_either_moment_cannot_answer_is_not_answered() -> None:
    for seed in range(100):
        params = ds.SketchParams(max_weight=1, id_bits=4, capacity=1, seed=seed)
        made = ds.DecaySketch(params)
        made.update(np.zeros(16), 1, np.arange(16), np.arange(16))
        if made.stats().complete_since[-1] is not None:
            break
    narrow = (ds.decay.window(0), 15)
    for now, then in ((narrow, (ds.decay.none(), 15)), ((ds.decay.none(), 15), narrow)):
        with pytest.raises(ds.UnanswerableQueryError):
            made.compare("count", now=now, then=then)


def test_many_half_lives_later_means_are_compared_and_counts_are_nothing() -> None:
    fading = ds.decay.exponential(half_life=1)
    late, later = (fading, 4_999 + 5_000), (fading, 4_999 + 6_000)
    assert WHOLE.compare("mean", now=later, then=late).value == pytest.approx(0.0)
    ratio = WHOLE.compare("count", now=(fading, 10_000), then=(fading, 9_999), how="ratio")
    assert ratio.value == pytest.approx(0.5)
    assert WHOLE.compare("count", now=later, then=late).value == pytest.approx(0.0)


def test_other_families_compare_where_the_query_chooses_the_decay() -> None:
    params = SumParams(capacity=100, max_sum=1 << 20, seed=1, time_unit="s")
    sums = SumSampler(params, source="a")
    sums.update(np.full(2_000, 3), np.arange(2_000))
    assert sums.compare("sum", now=("window(99)", None), then=("window(999)", None)).upper < 0
    fixed = ds.IntegralDecaySketch(
        ds.SketchParams(max_weight=1, id_bits=20, capacity=50), ds.decay.integral.window(10)
    )
    fixed.update([1.0], 1, [5], [1])
    with pytest.raises(ds.ParameterError, match="only sketches with a decay per query"):
        fixed.against((None, 5), (None, 5))  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------- range


def test_a_range_holds_its_beginning_and_not_its_end() -> None:
    of = WHOLE.between(1_000, 1_500)
    inside = (TIMES >= 1_000) & (TIMES < 1_500)
    assert of.count().value == 500.0
    assert of.rate().value == 1.0
    assert of.mean().value == pytest.approx(VALUES[inside].mean())
    assert of.total().value == pytest.approx(VALUES[inside].sum())
    assert of.median().value == np.sort(VALUES[inside])[249]
    assert [each.share.value for each in of.histogram([0.0, 100.0]).bins] == [1.0]
    assert WHOLE.between(1_000, 1_001).last() == (VALUES[1_000], 1_000)
    day = WHOLE.between("1970-01-01T00:16:40Z", "1970-01-01T00:25:00Z")
    assert day.count().value == 500.0
    assert SAMPLED.between(1_000, 1_500).count() == SAMPLED.count(ds.decay.window(499), now=1_499)


def test_a_range_of_no_time_and_a_time_beside_it_are_refused() -> None:
    for start, stop in ((5, 5), (6, 5)):
        with pytest.raises(ds.ParameterError, match="expected an end after its beginning"):
            WHOLE.between(start, stop)
    with pytest.raises(ds.ParameterError, match="a range replaces the time"):
        WHOLE.between(1, 5).mean(now=4)
    with pytest.raises(ds.ParameterError):
        WHOLE.between(1.5, 5)  # type: ignore[arg-type]
    sums = SumSampler(SumParams(capacity=100, max_sum=1 << 20, seed=1), source="a")
    sums.update([3, 4], [1, 2])
    assert sums.between(1, 3).sum().value == 7.0
    with pytest.raises(ds.ParameterError, match="has no mean"):
        sums.between(1, 3).mean()


def test_a_pair_of_copies_is_pooled() -> None:
    held = sketch(200, copies=3).snapshot()
    moments = [Moment(*moment) for moment in PAIRS["apart"]]
    pairs = held.pairs(*moments)  # type: ignore[attr-defined]
    pooled = Pair.pooled(pairs)
    assert len(pooled.both) > max(len(pair.both) for pair in pairs)
