"""The Cohen-Strauss estimator equals the sum over windows that defines it, and is unbiased."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch import decay
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.minhit import reference
from decaysketch.query import aggregates
from decaysketch.query.sample import pool
from decaysketch.querytime import cohen_strauss, stratified

NOW = 400
DECAYS = [
    decay.none(),
    decay.window(150),
    decay.window(390),
    decay.exponential(rate=0.02),
    decay.exponential(half_life=200),
    decay.polynomial(1, scale=10),
    decay.piecewise([(20, 1.0), (120, 0.6), (300, 0.1)], beyond=0.05),
]
Answer = Callable[[ds.Decay], float]


def a_sketch(seed: int, *, capacity: int = 25, max_weight: int = 60) -> ds.DecaySketch:
    """900 observations, several at a time, some after ``NOW``; ids as they are."""
    rng = np.random.default_rng(seed)
    params = ds.SketchParams(
        max_weight=max_weight, id_bits=20, capacity=capacity, seed=seed, id_mix="none"
    )
    sketch = ds.DecaySketch(params)
    times = rng.integers(0, NOW + 30, 900)
    weights = rng.integers(1, max_weight + 1, 900)
    sketch.update(rng.normal(size=900), weights, times, rng.choice(1 << 20, 900, replace=False))
    return sketch


class Windows:
    """Estimates of sliding windows by the paper's section 4.1, in plain integers."""

    def __init__(self, sketch: ds.DecaySketch) -> None:
        state, params = sketch.state(), sketch.params
        self.marks = state.watermarks.tolist()
        p, a, b = params.prime, params.multipliers[0], params.offsets[0]
        self.p_i = [(p >> level) / p for level in range(params.levels + 1)]
        self.rows = []  # time, top level, hits at each level up to it
        columns = (state.times, state.weights, state.ids, state.levels)
        for time, weight, id_, top in zip(*(c.tolist() for c in columns), strict=True):
            u = reference.hash_start(p, a, b, params.max_weight, id_)
            hits = [
                reference.range_sample(p, a, u, weight - 1, reference.level_limit(p, level))
                for level in range(top + 1)
            ]
            if time <= NOW:
                self.rows.append((time, top, hits))
        self.oldest = min(time for time, _, _ in self.rows)

    def level(self, start: int) -> int:
        """The lowest level that has discarded nothing at or after a start."""
        return next(i for i, mark in enumerate(self.marks) if mark < start)

    def sum(self, start: int, level: int | None = None) -> float:
        """V(b): the estimated sum of the weights from a start on, up to ``NOW``."""
        i = self.level(start) if level is None else level
        return sum(h[i] for time, top, h in self.rows if time >= start and top >= i) / self.p_i[i]

    def combined(self, decay_: ds.Decay, breakpoints: list[int]) -> float:
        """g(c - b_1) V(b_1) + sum over j > 1 of [g(c - b_j) - g(c - b_{j-1})] V(b_j)."""

        def g(start: int) -> float:
            return float(decay_(np.array([NOW - start]))[0])

        total = g(breakpoints[0]) * self.sum(breakpoints[0])
        for before, start in pairwise(breakpoints):
            total += (g(start) - g(before)) * self.sum(start)
        return total

    @property
    def stored_times(self) -> list[int]:
        return sorted({time for time, _, _ in self.rows})

    @property
    def breakpoints(self) -> list[int]:
        """Stored times, and the first start of each level: just after the next one's watermark."""
        switches = {mark for mark in self.marks if self.oldest <= mark <= NOW}
        return sorted({*self.stored_times, *switches})


@pytest.mark.parametrize("decay_", DECAYS, ids=repr)
@pytest.mark.parametrize("seed", range(8))
def test_equals_the_sum_over_all_window_starts(seed: int, decay_: ds.Decay) -> None:
    sketch = a_sketch(seed)
    windows = Windows(sketch)
    assert len([mark for mark in windows.marks if mark != NO_WATERMARK]) > 3
    estimate = aggregates.sum(sketch.sample(decay_, now=NOW, estimator="cohen-strauss"))
    by_definition = windows.combined(decay_, list(range(windows.oldest, NOW + 1)))
    assert estimate.value == pytest.approx(by_definition, rel=1e-9)
    # The same over the breakpoints alone: stored times and watermarks.
    assert windows.combined(decay_, windows.breakpoints) == pytest.approx(by_definition, rel=1e-9)


def test_formula_4_2_as_printed_has_the_sign_and_the_index_wrong() -> None:
    """Printed: sum over levels i and stored times t_j^i < t_min^{i-1} of
    (g(c - t_j^i) - g(c - t_{j+1}^i)) V^{c - t_j^i}, times ascending."""
    for seed in range(8):
        windows = Windows(a_sketch(seed))
        for decay_ in DECAYS[3:6]:

            def g(start: int, decay_: ds.Decay = decay_) -> float:
                return float(decay_(np.array([NOW - start]))[0])

            printed, newest = 0.0, NOW + 1
            for level, mark in enumerate(windows.marks):
                times = sorted({t for t, top, _ in windows.rows if top >= level and t > mark})
                for time, following in pairwise(times):
                    if time < newest:
                        printed += (g(time) - g(following)) * windows.sum(time)
                newest = min(times, default=newest)
                if mark == NO_WATERMARK:
                    break
            truth = windows.combined(decay_, list(range(windows.oldest, NOW + 1)))
            assert printed < 0 < truth


def test_breakpoints_at_stored_times_alone_miss_the_switch_of_levels() -> None:
    """Printed in section 4.2: between two stored times "we will get the same answer for both
    queries". At a watermark the level changes, and V with it; a start there is not a stored time
    where every observation of that time was discarded."""
    differ = 0
    for seed in range(20):
        windows = Windows(a_sketch(seed, capacity=12, max_weight=4))
        for decay_ in DECAYS[3:6]:
            truth = windows.combined(decay_, list(range(windows.oldest, NOW + 1)))
            stored = windows.combined(decay_, windows.stored_times)
            differ += stored != pytest.approx(truth, rel=1e-9)
            assert windows.combined(decay_, windows.breakpoints) == pytest.approx(truth, rel=1e-9)
    assert differ > 30


def test_the_same_answer_for_starts_on_either_side_of_a_watermark_is_false() -> None:
    """Section 4.2 as printed gives one answer to windows that hold the same stored times."""
    changed = 0
    for seed in range(20):
        windows = Windows(a_sketch(seed))
        for mark in windows.marks:
            if windows.oldest < mark < NOW and mark not in windows.stored_times:
                changed += windows.sum(mark) != windows.sum(mark + 1)
    assert changed > 3


# ------------------------------------------------------------------------------------- as a sample


def test_is_exact_where_the_decay_reaches_no_sampled_band() -> None:
    sketch, latest = a_sketch(1), NOW + 30
    edge = int(sketch.state().watermarks[0])
    recent = decay.window(latest - edge - 1)
    sample = sketch.sample(recent, now=latest, estimator="cohen-strauss")
    other = sketch.sample(recent, now=latest)
    assert len(sample) > 10
    assert sample.exact
    assert other.exact
    assert (sample.masses == other.masses).all()
    assert aggregates.sum(sample) == aggregates.sum(other)


def test_a_window_is_estimated_from_one_level() -> None:
    """A single window needs no combination: the paper's section 4.1 itself."""
    sketch = a_sketch(2)
    windows = Windows(sketch)
    for width in (50, 100, 200, 350):
        estimate = aggregates.sum(
            sketch.sample(decay.window(width), now=NOW, estimator="cohen-strauss")
        )
        assert estimate.value == pytest.approx(windows.sum(NOW - width), rel=1e-12)


def test_a_ladder_may_be_kept_and_the_sketch_is_left_alone() -> None:
    sketch = a_sketch(3)
    before = sketch.to_bytes()
    ladder = cohen_strauss.ladder_of(sketch.state())
    for decay_ in DECAYS:
        kept = cohen_strauss.draw(sketch.state(), decay_, NOW, ladder=ladder)
        fresh = cohen_strauss.draw(sketch.state(), decay_, NOW)
        asked = sketch.sample(decay_, now=NOW, estimator="cohen-strauss")
        assert (kept.masses == fresh.masses).all()
        assert (kept.masses == asked.masses).all()
    assert sketch.to_bytes() == before


def test_another_estimator_is_refused() -> None:
    with pytest.raises(ds.ParameterError, match="'paper'; expected one of stratified, cohen-strau"):
        a_sketch(0).sample(decay.none(), now=NOW, estimator="paper")  # type: ignore[arg-type]


def answers(sample: ds.Sample) -> list[ds.Estimate]:
    return [
        aggregates.sum(sample),
        aggregates.count(sample),
        aggregates.total(sample, lambda v, w: w * v),
    ]


def truths(decay_: ds.Decay, values: Any, weights: Any, times: Any) -> list[float]:
    g = decay_(np.arange(2000)[::-1])
    return [float((weights * g).sum()), float(g.sum()), float((weights * values * g).sum())]


@pytest.mark.parametrize(("hashes", "within"), [(150, 0.5), (600, 0.25)])
def test_estimates_and_variances_are_unbiased(hashes: int, within: float) -> None:
    """One stream. The mean error of each answer is within 4 standard errors of 0 and the mean of
    its stated variances within 25 % (4 standard errors) of the variance that is measured, whose
    relative standard error is about sqrt(2 / 600) = 6 % with 600 hashes and twice that with 150.
    Under the null all of these fail together with a probability below 2 %."""
    rng = np.random.default_rng(11)
    values, weights = rng.normal(3, 1, 2000), rng.integers(1, 100, 2000)
    decays = [decay.none(), decay.exponential(rate=0.004), decay.window(900)]
    errors: list[list[float]] = [[] for _ in range(9)]
    stated: list[list[float]] = [[] for _ in range(9)]
    for seed in range(hashes):
        params = ds.SketchParams(max_weight=100, capacity=120, seed=seed)
        sketch = ds.DecaySketch(params)
        sketch.update(values, weights, np.arange(2000), np.arange(2000))
        for k, decay_ in enumerate(decays):
            sample = sketch.sample(decay_, now=1999, estimator="cohen-strauss")
            x = [np.ones(len(sample)), 1.0 / sample.weights, sample.values]
            for j, truth in enumerate(truths(decay_, values, weights, None)):
                errors[3 * k + j].append(float((sample.masses * x[j]).sum()) - truth)
                stated[3 * k + j].append(float((sample.variances * x[j] ** 2).sum()))
    for error, variance in zip(errors, stated, strict=True):
        spread = float(np.std(error))
        assert abs(np.mean(error)) < 4 * spread / np.sqrt(hashes)
        assert float(np.mean(variance)) == pytest.approx(spread**2, rel=within)


# ------------------------------------------------------------------------------- pooling of samples


@pytest.mark.parametrize("draw", [stratified.draw, cohen_strauss.draw])
@pytest.mark.parametrize("decay_", DECAYS, ids=repr)
def test_a_pooled_sample_answers_by_the_average(draw: Any, decay_: ds.Decay) -> None:
    rng = np.random.default_rng(5)
    columns = (rng.normal(size=900), rng.integers(1, 50, 900), rng.integers(0, NOW, 900))
    samples = []
    for seed in range(4):  # the same observations under four hashes
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=60, id_bits=40, capacity=30, seed=seed))
        sketch.update(*columns, np.arange(900))
        samples.append(draw(sketch.state(), decay_, NOW))
    pooled = pool(samples)
    each = [answers(sample) for sample in samples]
    for k, answer in enumerate(answers(pooled)):
        assert answer.value == pytest.approx(np.mean([row[k].value for row in each]), rel=1e-12)
        variance = np.mean([row[k].stderr ** 2 for row in each]) / 4
        assert answer.stderr == pytest.approx(np.sqrt(variance), rel=0.2)
        assert answer.lower <= answer.value <= answer.upper
    assert pooled.exact == samples[0].exact
    assert pool(samples[:1]) is samples[0]
