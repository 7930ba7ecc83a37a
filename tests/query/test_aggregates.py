"""Samples and queries: exact answers against brute force, estimates against their definitions.

Statistical tests run fixed seeds, so that they pass or fail for good; each says with which
probability a correct library would fail it on fresh seeds.
"""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch import decay, minhit
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.query import aggregates
from decaysketch.query.estimate import Estimate
from decaysketch.querytime.stratified import bands_of, draw
from quality import intervals

DECAYS = [
    decay.none(),
    decay.window(30),
    decay.exponential(half_life=20),
    decay.polynomial(1.5, scale=4),
    decay.piecewise([(10, 1.0), (25, 0.5)]),
]


class Stream:
    """Distinct observations in columns, some without a value."""

    def __init__(self, seed: int, rows: int, *, max_weight: int = 9, missing: float = 0.2) -> None:
        rng = np.random.default_rng(seed)
        self.values = np.ma.masked_array(
            np.round(rng.normal(0, 3, rows), 1), rng.random(rows) < missing
        )
        self.weights = rng.integers(1, max_weight + 1, rows)
        self.times = np.arange(rows)
        self.ids = rng.permutation(rows * 7)[:rows]
        self.max_weight = max_weight

    def sketch(self, *, capacity: int, seed: int = 1, **fields: Any) -> ds.DecaySketch:
        params = ds.SketchParams(
            max_weight=self.max_weight, id_bits=40, capacity=capacity, seed=seed, **fields
        )
        sketch = ds.DecaySketch(params)
        sketch.update(self.values, self.weights, self.times, self.ids)
        return sketch

    def decayed(self, decay_: ds.Decay, now: int) -> Any:
        """``g`` of each row, 0 for what is later than ``now``."""
        counted = self.times <= now
        return np.where(counted, decay_(np.where(counted, now - self.times, 0)), 0.0)


# ------------------------------------------------------------------------------------------- exact


@pytest.mark.parametrize("now", [99, 120, 70, -1])
@pytest.mark.parametrize("decay_", DECAYS, ids=repr)
def test_exact_answers_are_those_of_brute_force(decay_: ds.Decay, now: int) -> None:
    stream = Stream(1, 100)
    sketch = stream.sketch(capacity=100)
    g = stream.decayed(decay_, now)
    w, present = stream.weights, ~np.ma.getmaskarray(stream.values) & (g > 0)
    v, mass = np.asarray(stream.values)[present], (g * w)[present]

    def check(estimate: Estimate, truth: float, rows: int) -> None:
        assert estimate.exact
        assert estimate.value == pytest.approx(truth, rel=1e-12, abs=1e-12)
        assert estimate.lower == estimate.value == estimate.upper
        assert (estimate.stderr, estimate.rows) == (0.0, rows)

    counted = int((g > 0).sum())
    check(sketch.sum(decay_, now=now), float((g * w).sum()), counted)
    check(sketch.count(decay_, now=now), float(g.sum()), counted)
    check(sketch.total(decay_, now=now), float((g[present] * v).sum()), len(v))
    tail = sketch.total(lambda v, w: v * v + w, decay_, now=now)
    check(tail, float((g[present] * (v * v + w[present])).sum()), len(v))
    if not len(v):
        return
    weight = float(mass.sum())
    mean = float((mass * v).sum()) / weight
    check(sketch.mean(decay_, now=now), mean, len(v))
    spread = float((mass * (v - mean) ** 2).sum()) / weight
    check(sketch.variance(decay_, now=now), spread, len(v))
    for value in (-100, -1.0, 0, 2.5, 100):
        share = float(mass[v <= value].sum()) / weight
        check(sketch.rank(value, decay_, now=now), share, len(v))
    chosen = sketch.selectivity(lambda v, w: (v > 0) & (w < 5), decay_, now=now)
    check(chosen, float(mass[(v > 0) & (w[present] < 5)].sum()) / weight, len(v))
    ranks = [0.0, 0.1, 0.5, 0.9, 1.0]
    for q, found in zip(ranks, sketch.quantile(ranks, decay_, now=now), strict=True):
        reached = [u for u in np.unique(v) if mass[v <= u].sum() / weight >= q - 1e-12]
        check(found, min(reached), len(v))
        assert sketch.quantile(q, decay_, now=now) == found

    by_value = {u: float(mass[v == u].sum()) for u in np.unique(v).tolist()}
    hitters = sketch.heavy_hitters(0.03, decay_, now=now)
    assert {hit.value for hit in hitters} == {u for u, m in by_value.items() if m / weight > 0.03}
    assert [float(h.frequency) for h in hitters] == sorted(
        (float(h.frequency) for h in hitters), reverse=True
    )
    for hit in hitters:
        check(hit.frequency, by_value[hit.value] / weight, len(v))
    groups = sketch.group_by(decay_, now=now)
    assert {group.value for group in groups} == set(by_value)
    for group in groups:
        inside = v == group.value
        check(group.sum, by_value[group.value], int(inside.sum()))
        check(group.count, float(g[present][inside].sum()), int(inside.sum()))
    assert [float(g.sum) for g in groups] == sorted((float(g.sum) for g in groups), reverse=True)


def test_a_window_is_inclusive_and_what_is_later_than_now_is_not_counted() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1))
    sketch.update([1.0, 2.0, 3.0, 4.0], 1, [0, 40, 100, 101], [1, 2, 3, 4])
    assert sketch.count(decay.window(60), now=100).value == 2
    assert sketch.count(decay.window(59), now=100).value == 1
    assert sketch.count(decay.window(0), now=101).value == 1
    assert sketch.count(decay.none(), now=101).value == 4
    assert sketch.count(decay.none(), now=-1).value == 0


def test_extreme_times_have_ages() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1))
    sketch.update([1.0, 2.0], 1, [-(2**62), 2**62], [1, 2])
    assert sketch.count(decay.none(), now=2**62).value == 2
    assert sketch.count(decay.window(2**63), now=2**62).value == 2
    assert sketch.count(decay.window(2**63 - 1), now=2**62).value == 1
    half = sketch.count(decay.exponential(half_life=2.0**63), now=2**62)
    assert half.value == 1.5
    assert sketch.count(decay.polynomial(1), now=2**62).value == pytest.approx(1.0)


def test_int64_values_stay_integers() -> None:
    params = ds.SketchParams(max_weight=1, value_type="int64")
    sketch = ds.DecaySketch(params)
    sketch.update([2**60 + 1, 7, 7], 1, [1, 2, 3], [1, 2, 3])
    groups = sketch.group_by(decay.none(), now=3)
    assert [group.value for group in groups] == [7, 2**60 + 1]
    assert all(type(group.value) is int for group in groups)
    assert sketch.rank(2**60, decay.none(), now=3).value == pytest.approx(2 / 3)
    assert sketch.heavy_hitters(0.5, decay.none(), now=3)[0].value == 7
    assert sketch.mean(decay.none(), now=3).value == pytest.approx((2**60 + 15) / 3)


def test_ties_in_rank_do_not_hang_on_rounding() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1))
    sketch.update(np.arange(1.0, 11.0), 1, np.zeros(10, int), np.arange(10))
    for tenth in range(1, 11):
        for q in (tenth / 10, 1 - (10 - tenth) / 10):
            assert sketch.quantile(q, decay.exponential(rate=0.1), now=7).value == tenth


# --------------------------------------------------------------------------------- the definition


@pytest.mark.parametrize("decay_", DECAYS, ids=repr)
def test_masses_are_those_of_the_definition(decay_: ds.Decay) -> None:
    """Bands, hits and masses again, one row at a time, from the watermarks and RangeSample."""
    sketch = Stream(2, 3000, max_weight=200).sketch(capacity=40)
    state, now = sketch.state(), 2990
    marks, p = state.watermarks, state.params.level_probabilities
    expected = []
    columns = (c.tolist() for c in (state.weights, state.times, state.ids))
    for weight, time, id_ in zip(*columns, strict=True):
        if time > now:
            continue
        level = next(i for i, mark in enumerate(marks) if mark < time)
        hits = int(minhit.range_samples(state.params, [id_], [weight], [level])[0])
        g = float(decay_(np.array([now - time]))[0])
        assert hits >= 1
        if g > 0:
            expected.append((weight, time, id_, level, hits, g, g * hits / p[level]))
    sample = sketch.sample(decay_, now=now)
    found = zip(
        sample.weights, sample.times, sample.ids, sample.levels, sample.hits, sample.decayed,
        sample.masses, strict=True,
    )  # fmt: skip
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[:5] == theirs[:5]
        assert ours[5:] == pytest.approx(theirs[5:], rel=1e-12)
    assert sketch.sum(decay_, now=now).value == pytest.approx(sum(row[-1] for row in expected))
    assert len(sample) == len(expected)
    assert (sample.variances[sample.levels == 0] == 0).all()


@pytest.mark.parametrize("decay_", [*DECAYS, decay.window(2_500)], ids=repr)
@pytest.mark.parametrize("now", [5_999, 5_300])
def test_rows_whose_masses_are_known_come_first_and_every_column_follows(
    decay_: ds.Decay, now: int
) -> None:
    stream = Stream(21, 6_000, max_weight=1 << 16)
    octaves = np.random.default_rng(21).uniform(0, 16, 6_000)
    stream.weights = np.floor(2.0**octaves).astype(np.int64)
    sketch = stream.sketch(capacity=60)
    sample = sketch.sample(decay_, now=now)
    known = sample.known_rows
    assert known >= sample.exact_rows
    assert (sample.variances[:known] == 0).all()
    assert (sample.variances[known:] > 0).all()
    if now == 5_999 and decay_.support > 2_000:  # reaches bands that are sampled
        assert sample.exact_rows < known < len(sample)
    state = sketch.state()
    counted = (state.times <= now) & (stream.decayed(decay_, now)[state.times] > 0)
    assert sorted(sample.ids.tolist()) == sorted(state.ids[counted].tolist())
    # Row number and time of an observation are one.
    assert (sample.ids == stream.ids[sample.times]).all()
    assert (sample.weights == stream.weights[sample.times]).all()
    assert (sample.missing == stream.values.mask[sample.times]).all()
    assert (sample.values == np.where(sample.missing, 0, stream.values.data[sample.times])).all()
    assert (sample.decayed == decay_(now - sample.times)).all()
    for level in np.unique(sample.levels):
        rows = sample.levels == level
        given = sample.ids[rows], sample.weights[rows], sample.levels[rows]
        assert (minhit.range_samples(state.params, *given) == sample.hits[rows]).all()
    values, columns = sample.valued
    assert (values == sample.values[~sample.missing]).all()
    assert columns.exact == int(np.count_nonzero(~sample.missing[:known]))


def test_a_sample_that_was_asked_is_given_back_without_a_collection_of_garbage() -> None:
    """One that holds itself keeps megabytes, and makes the next query write on fresh memory."""
    sketch = Stream(22, 3_000).sketch(capacity=50)
    gc.collect()
    gc.disable()
    try:
        for ask in ASKS.values():
            sample = sketch.sample(DECAYS[2], now=2_999)
            ask(sample)
            alive = weakref.ref(sample)
            del sample
            assert alive() is None
    finally:
        gc.enable()


def test_the_step_is_the_largest_hit_of_the_bands_reached_rows_or_not() -> None:
    sketch = Stream(3, 2000, max_weight=1).sketch(capacity=50)
    state = sketch.state()
    marks, p = state.watermarks.tolist(), state.params.level_probabilities
    for decay_ in DECAYS:
        for now in (1999, 1990, marks[0] + 1, marks[0], marks[1], 5000):
            steps = [
                float(decay_(np.array([now - min(marks[i - 1], now)]))[0]) / p[i]
                for i in range(1, len(marks))
                if marks[i] < min(marks[i - 1], now)
            ]
            sample = sketch.sample(decay_, now=now)
            assert sample.step == pytest.approx(max(steps, default=0.0))
            assert sample.exact == (sample.step == 0)


def test_only_what_reaches_a_sampled_band_is_not_exact() -> None:
    stream = Stream(4, 1000, max_weight=1)
    sketch = stream.sketch(capacity=60)
    edge = int(sketch.state().watermarks[0])  # the newest time of the first sampled band
    inside, outside = decay.window(999 - edge - 1), decay.window(999 - edge)
    assert sketch.sum(inside, now=999).exact
    reaching = sketch.sum(outside, now=999)
    assert not reaching.exact
    assert reaching.lower <= 61 <= reaching.upper
    assert reaching.upper > 60
    assert reaching.stderr > 0


def test_bands_may_be_kept_and_answers_do_not_depend_on_how_a_state_came_about() -> None:
    stream = Stream(5, 4000)
    whole = stream.sketch(capacity=80)
    parts = [ds.DecaySketch(whole.params) for _ in range(3)]
    order = np.random.default_rng(0).permutation(4000)
    for k, part in enumerate(parts):
        rows = order[k::3]
        part.update(*(c[rows] for c in (stream.values, stream.weights, stream.times, stream.ids)))
    merged = ds.merge(parts[::-1])
    bands = bands_of(whole.state())
    for decay_ in DECAYS:
        for ask in ASKS.values():
            first = ask(draw(whole.state(), decay_, 3999, bands=bands))
            assert ask(draw(whole.state(), decay_, 3999)) == first
            assert ask(merged.sample(decay_, now=3999)) == first
            assert ask(whole.sample(decay_, now=3999)) == first


@pytest.mark.parametrize("copies", [1, 2])
def test_answers_do_not_depend_on_what_was_asked_before(copies: int) -> None:
    """What was computed for rows of an earlier state serves those of a later one."""
    stream = Stream(6, 6000)
    stream.times = stream.times // 7  # several rows at a time
    columns = (stream.values, stream.weights, stream.times, stream.ids)
    asked = ds.DecaySketch(stream.sketch(capacity=90, copies=copies).params)
    order = np.random.default_rng(1).permutation(6000)
    levels_seen = set()
    for step, rows in enumerate(np.array_split(order, 12)):
        asked.update(*(column[rows] for column in columns))
        if step == 9:
            asked.resize(60)
        fresh = ds.DecaySketch.from_bytes(asked.to_bytes())
        for now in (500, 900) if step % 3 else ():  # some states are never asked
            samples = asked.snapshot().samples(DECAYS[2], now)
            for sample, expected in zip(
                samples, fresh.snapshot().samples(DECAYS[2], now), strict=True
            ):
                for name in ("times", "ids", "weights", "levels", "hits", "masses", "variances"):
                    assert np.array_equal(getattr(sample, name), getattr(expected, name)), name
                levels_seen |= set(sample.levels.tolist())
        assert asked.to_bytes() == fresh.to_bytes()
    assert len(levels_seen) >= 4


ASKS: dict[str, Callable[[ds.Sample], Any]] = {
    "sum": aggregates.sum,
    "count": aggregates.count,
    "total": aggregates.total,
    "signed": lambda sample: aggregates.total(sample, lambda v, w: w * v - 3.0),
    "mean": aggregates.mean,
    "variance": aggregates.variance,
    "rank": lambda sample: aggregates.rank(sample, 1.0),
    "selectivity": lambda sample: aggregates.selectivity(sample, lambda v, w: v > 4),
    "quantile": lambda sample: aggregates.quantile(sample, [0.05, 0.5, 0.95]),
    "heavy_hitters": lambda sample: aggregates.heavy_hitters(sample, 0.02),
    "group_by": aggregates.group_by,
}


@for_each("name", ASKS)
def test_an_estimate_lies_in_its_interval_and_more_confidence_is_wider(name: str) -> None:
    sketch = Stream(6, 5000).sketch(capacity=60)

    def estimates(answer: Any) -> list[Estimate]:
        if isinstance(answer, Estimate):
            return [answer]
        if answer and isinstance(answer[0], Estimate):
            return list(answer)
        return [e for item in answer for e in estimates_of(item)]

    def estimates_of(item: Any) -> list[Estimate]:
        if isinstance(item, aggregates.HeavyHitter):
            return [item.frequency]
        return [item.sum, item.count]

    for decay_ in (decay.none(), decay.exponential(half_life=200), decay.window(150)):
        sample = sketch.sample(decay_, now=4999)
        found = [estimates(ASKS[name](sample))]
        if name in ("sum", "count", "mean", "variance", "total", "group_by"):
            ask: Any = getattr(aggregates, name)
            found = [estimates(ask(sample, confidence=c)) for c in (0.5, 0.95, 0.999)]
        for same in zip(*found, strict=True):
            lower, upper = [e.lower for e in same], [e.upper for e in same]
            assert lower == sorted(lower, reverse=True)
            assert upper == sorted(upper)
            for e in same:
                assert e.lower <= e.value <= e.upper
                assert e.stderr > 0
                assert not e.exact
                assert 0 < e.rows <= len(sample)


def test_frequencies_ranks_and_groups_are_selectivities_and_totals() -> None:
    sample = Stream(7, 5000).sketch(capacity=60).sample(decay.exponential(rate=0.005), now=4999)
    for hit in aggregates.heavy_hitters(sample, 0.02):
        same = aggregates.selectivity(sample, lambda v, w, u=hit.value: v == u)
        assert hit.frequency.to_dict() == pytest.approx(same.to_dict())
    assert aggregates.rank(sample, 1.5) == aggregates.selectivity(sample, lambda v, w: v <= 1.5)
    groups = aggregates.group_by(sample)
    for few, listed in zip(aggregates.group_by(sample, limit=7), groups, strict=False):
        assert few.value == listed.value  # the last bit depends on how many are computed at once
        for one, other in ((few.sum, listed.sum), (few.count, listed.count)):
            ends = ([each.value, each.lower, each.upper] for each in (one, other))
            assert next(ends) == pytest.approx(next(ends))
    assert len(aggregates.group_by(sample, limit=7)) == 7
    assert aggregates.group_by(sample, limit=0) == []
    for group in groups[:20]:
        of_sum = aggregates.total(sample, lambda v, w, u=group.value: (v == u) * w)
        of_count = aggregates.total(sample, lambda v, w, u=group.value: v == u)
        assert group.sum.value == pytest.approx(of_sum.value)
        assert group.count.value == pytest.approx(of_count.value)
        assert group.count.upper == pytest.approx(of_count.upper)


def test_a_quantiles_interval_inverts_the_interval_of_ranks() -> None:
    sample = Stream(8, 5000, missing=0).sketch(capacity=100).sample(decay.none(), now=4999)
    seen = sample.ranking.values
    for q in (0.1, 0.5, 0.9):
        found = aggregates.quantile(sample, q)
        ranks = [aggregates.rank(sample, value) for value in seen.tolist()]
        possible = [v for v, r in zip(seen, ranks, strict=True) if r.upper >= q - 1e-9]
        sure = [v for v, r in zip(seen, ranks, strict=True) if r.lower >= q - 1e-9]
        assert (found.lower, found.upper) == (possible[0], sure[0])
    extreme = aggregates.quantile(sample, 1.0)
    assert (extreme.value, extreme.upper) == (seen[-1], math.inf)
    assert aggregates.quantile(sample, 0.0).lower == -math.inf


# ------------------------------------------------------------------------ no hits, nothing, limits


def test_no_hits_never_say_zero_plus_or_minus_zero() -> None:
    """A window that lies in a sampled band and happens to hold no retained row."""
    sketch = Stream(9, 3000, max_weight=1, missing=0).sketch(capacity=20)
    state = sketch.state()
    gaps = -np.diff(state.times)
    now = int(state.times[gaps.argmax()]) - 1
    sample = sketch.sample(decay.window(int(gaps.max()) - 2), now=now)
    assert len(sample) == 0
    assert not sample.exact
    for ask in (aggregates.sum, aggregates.count):
        found = ask(sample)
        assert (found.value, found.lower, found.exact) == (0.0, 0.0, False)
        assert found.upper > 1
        assert found.stderr > 0
    total = aggregates.total(sample)
    assert (total.value, total.lower, total.upper) == (0.0, -math.inf, math.inf)
    held = aggregates.total(sample, lambda v, w: v > 0)
    assert held.lower == 0.0
    assert 1 < held.upper < math.inf
    for ask in (aggregates.mean, aggregates.variance, lambda s: aggregates.quantile(s, 0.5)):
        found = ask(sample)
        assert math.isnan(found.value)
        assert not found.exact
        assert found.upper == math.inf
    share = aggregates.rank(sample, 0)
    assert (math.isnan(share.value), share.lower, share.upper) == (True, 0.0, 1.0)
    assert aggregates.heavy_hitters(sample, 0.1) == []
    assert aggregates.group_by(sample) == []


def test_exact_rows_alone_do_not_make_an_answer_exact() -> None:
    """All retained rows are exact, but the decay reaches a discarded one: it is allowed for."""
    stream = Stream(10, 400, max_weight=1, missing=0)
    sketches = (stream.sketch(capacity=50, seed=seed) for seed in range(20))
    sketch = next(s for s in sketches if s.state().watermarks[0] not in s.state().times)
    edge = int(sketch.state().watermarks[0])
    sample = sketch.sample(decay.window(399 - edge), now=399)
    assert sample.columns.exact == len(sample) == 50
    assert not sample.exact
    g = stream.decayed(decay.window(399 - edge), 399)
    values = np.asarray(stream.values)
    for name, truth in (
        ("sum", g.sum()),
        ("count", g.sum()),
        ("total", (g * values).sum()),
        ("signed", (g * (values - 3.0)).sum()),
        ("mean", (g * values).sum() / g.sum()),
        ("rank", g[values <= 1.0].sum() / g.sum()),
    ):
        found = ASKS[name](sample)
        assert found.lower <= truth <= found.upper, name
        assert found.lower < found.upper, name
        assert found.stderr > 0


def test_what_every_level_discarded_cannot_be_answered() -> None:
    for seed in range(100):  # the coarsest of 7 levels selects about one of 64 ids: seek two
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=6, capacity=1, seed=seed))
        sketch.update(np.arange(64.0), 1, np.arange(64), np.arange(64))
        coarsest = int(sketch.state().watermarks[-1])
        if coarsest != NO_WATERMARK:
            break
    with pytest.raises(ds.UnanswerableQueryError, match=rf"none\(\).*up to time {coarsest}"):
        sketch.sum(decay.none(), now=63)
    for now in (coarsest, coarsest - 1):
        with pytest.raises(ds.UnanswerableQueryError):
            sketch.sum(decay.window(0), now=now)
    assert sketch.sum(decay.window(63 - coarsest - 1), now=63).value > 0
    with pytest.raises(ds.UnanswerableQueryError):
        sketch.sum(decay.window(63 - coarsest), now=63)
    gone = decay.exponential(half_life=1e-3)  # its weight at that age is 0 as a float
    assert sketch.sum(gone, now=63).value > 0


def test_collision_bias_is_that_of_the_observations_fed() -> None:
    stream = Stream(11, 20_000, max_weight=1)
    for capacity in (100, 30_000):
        found = stream.sketch(capacity=capacity).sum(decay.window(10), now=19_999)
        assert found.collision_bias == pytest.approx(20_000 / 2**41, rel=0.3)


@pytest.mark.parametrize("huge", [1.7e308, 1e200])
def test_huge_values_give_unbounded_intervals_without_a_warning(huge: float) -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, capacity=10))
    sketch.update(huge * np.linspace(0.1, 1, 500), 1, np.arange(500), np.arange(500))
    for ask in (sketch.total, sketch.mean, sketch.variance):
        found = ask(decay.none(), now=499)
        assert (found.lower, found.upper) == (-math.inf, math.inf)
        ask(decay.window(5), now=499)
    assert sketch.total(decay.none(), now=499).value > huge
    assert (
        sketch.quantile(1.0, decay.none(), now=499).value
        == sketch.sample(decay.none(), now=499).values.max()
    )


# --------------------------------------------------------------------------------------- refusals


@for_each(
    "message, ask",
    [
        ("confidence is 2", lambda s: s.sum(decay.none(), now=9, confidence=2)),
        ("confidence is 95", lambda s: s.quantile(0.5, decay.none(), now=9, confidence=95)),
        (r"q is 1\.5; expected 0 to 1", lambda s: s.quantile(1.5, decay.none(), now=9)),
        ("q is nan", lambda s: s.quantile([0.5, math.nan], decay.none(), now=9)),
        ("q is '0.5'", lambda s: s.quantile("0.5", decay.none(), now=9)),
        ("phi is -1", lambda s: s.heavy_hitters(-1, decay.none(), now=9)),
        ("value is None", lambda s: s.rank(None, decay.none(), now=9)),
        ("now is 1.5; expected an integer", lambda s: s.sum(decay.none(), now=1.5)),
        ("now is True", lambda s: s.sum(decay.none(), now=True)),
        (r"now is \d+; expected at most 2\^62", lambda s: s.sum(decay.none(), now=2**63)),
        ("decay is 60; expected a Decay", lambda s: s.sum(60, now=9)),
        ("limit is -1", lambda s: aggregates.group_by(s.sample(decay.none(), now=9), limit=-1)),
        (
            r"predicate gave float64 of shape \(3,\)",
            lambda s: s.selectivity(lambda v, w: v * 1.0, decay.none(), now=9),
        ),
        (
            r"predicate gave bool of shape \(\)",
            lambda s: s.selectivity(lambda v, w: True, decay.none(), now=9),
        ),
        (
            r"function gave float64 of shape \(\)",
            lambda s: s.total(lambda v, w: 1.0, decay.none(), now=9),
        ),
        (
            "function gave <U1 of shape",
            lambda s: s.total(lambda v, w: np.array(["a", "b", "c"]), decay.none(), now=9),
        ),
        (
            r"function gave inf for value 2\.0 and weight 1",
            lambda s: s.total(lambda v, w: np.where(v == 2, np.inf, v), decay.none(), now=9),
        ),
    ],
)
def test_a_malformed_question_is_refused(message: str, ask: Callable[[Any], Any]) -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1))
    sketch.update([1.0, 2.0, 3.0], 1, [1, 2, 3], [1, 2, 3])
    before = sketch.digest()
    with pytest.raises(ds.ParameterError, match=message):
        ask(sketch)
    assert sketch.digest() == before


def test_functions_see_read_only_columns() -> None:
    sketch = Stream(12, 50).sketch(capacity=100)

    def spoil(values: Any, weights: Any) -> Any:
        for column in (values, weights):
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 1
        return values > 0

    sketch.selectivity(spoil, decay.none(), now=49)
    sketch.total(spoil, decay.none(), now=49)


# ------------------------------------------------------------------------------------- statistics


def test_estimates_are_unbiased() -> None:
    """Means over 300 seeds are within 4.5 standard errors of the truth.

    Fresh seeds would fail this for a correct library with probability below 12 x 7e-6.
    """
    stream = Stream(13, 600, max_weight=50, missing=0)
    now = 599
    errors: dict[tuple[int, str], list[float]] = {}
    for seed in range(300):
        sketch = stream.sketch(capacity=12, seed=seed)
        for k, decay_ in enumerate(DECAYS[:4]):
            g = stream.decayed(decay_, now)
            sample = sketch.sample(decay_, now=now)
            v, w = np.asarray(stream.values), stream.weights
            for name, truth in (
                ("sum", float((g * w).sum())),
                ("count", float(g.sum())),
                ("total", float((g * v).sum())),
            ):
                errors.setdefault((k, name), []).append(ASKS[name](sample).value - truth)
    for key, found in errors.items():
        assert abs(np.mean(found)) <= 4.5 * np.std(found) / math.sqrt(len(found)), key


@pytest.mark.parametrize(
    ("ids", "weights"), [("consecutive", "1"), ("sensor", "1..999"), ("random", "999")]
)
def test_intervals_of_the_sum_hold_the_truth_as_often_as_they_say(ids: str, weights: str) -> None:
    """A small edition of ``python -m quality.intervals``: 100 seeds and streams at capacity 100.

    Of 100 intervals that cover with probability 0.95, 15 or more miss with probability 1.4e-4: of
    18 such cells in all, one would fail on fresh seeds with probability below 1 in 390.
    """
    tallies: intervals.Tallies = {}
    for pair in range(100):
        intervals.ids_pair((ids, weights, "100", "keyed"), pair, tallies)
    for key, tally in tallies.items():
        assert tally.pairs == 100
        assert tally.below + tally.above <= 14, key
        assert tally.worst_z <= 6, key


def test_intervals_of_every_aggregate_hold_the_truth() -> None:
    """The same of all other aggregates: 60 pairs at capacity 100, values with missing ones.

    Intervals were measured to cover with probability 0.91 or more; of 60, 16 or more would miss
    with probability 6e-5, so that of 84 cells one fails on fresh seeds with probability 1 in 200.
    """
    tallies: intervals.Tallies = {}
    for pair in range(60):
        intervals.aggregates_pair(("sensor", "1..999", "100"), pair, tallies)
    assert len(tallies) == 84
    for key, tally in tallies.items():
        assert tally.below + tally.above <= 15, key


def test_the_studies_run_and_print(capsys: pytest.CaptureFixture[str]) -> None:
    for pair_of, cells, show in intervals.STUDIES.values():
        tallies: intervals.Tallies = {}
        for cell in cells():
            pair_of(cell, 0, tallies)
        show(tallies)
    printed = capsys.readouterr().out
    assert "ids NOT mixed" in printed
    assert "selectivity" in printed
