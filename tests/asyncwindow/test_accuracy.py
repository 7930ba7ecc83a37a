"""Estimates are unbiased, intervals hold, and the promise is kept; seeds are fixed.

Small versions of ``python -m quality.asyncwindow``, which has the figures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

N, NOW, SEEDS = 6_000, 6_000, 200


def stream() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(7)
    values = np.minimum(1.0 / rng.random(N), 1e4).astype(np.int64)
    return values, rng.integers(0, NOW, N), np.arange(N)


@pytest.mark.parametrize("eager", [None, 0, 3])
@pytest.mark.parametrize("estimator", ["stratified", "single-level"])
def test_sums_and_counts_are_unbiased_with_the_stated_variance(
    estimator: Any, eager: int | None
) -> None:
    values, times, numbers = stream()
    decays = [ds.decay.window(4_000)]
    if estimator == "stratified":
        decays.append(ds.decay.exponential(half_life=1_500))  # type: ignore[arg-type]
    errors: dict[Any, list[float]] = {}
    for seed in range(SEEDS):
        sampler = SumSampler(
            SumParams(max_sum=1 << 20, capacity=150, seed=seed, eager_from_level=eager)
        )
        sampler.update(values, times, numbers, source="s")
        for decay in decays:
            weights = decay(NOW - times)
            for what, found, true in (
                ("sum", sampler.sum(decay, now=NOW, estimator=estimator), values @ weights),
                ("count", sampler.count(decay, now=NOW, estimator=estimator), weights.sum()),
            ):
                errors.setdefault((what, decay), []).append(found.value - true)
                errors.setdefault((what, decay, "stderr"), []).append(found.stderr**2)
    for name, each in errors.items():
        if "stderr" in name:
            continue
        assert abs(np.mean(each)) < 4 * np.std(each) / SEEDS**0.5, name
        stated = np.mean(errors[*name, "stderr"]) ** 0.5
        assert 0.8 < np.std(each) / stated < 1.25, name


@pytest.mark.parametrize("estimator", ["stratified", "single-level"])
def test_ranks_are_unbiased(estimator: Any) -> None:
    values, times, numbers = stream()
    decay = ds.decay.window(4_000)
    inside = values[times >= NOW - 4_000]
    errors: dict[float, list[float]] = {}
    for seed in range(SEEDS):
        sampler = MedianSampler(
            MedianParams(max_count=1 << 20, capacity=300, seed=seed, value_type="int64")
        )
        sampler.update(values, times, numbers, source="s")
        for q in (1, 2, 10):
            rank = sampler.rank(q, decay, now=NOW, estimator=estimator).value
            errors.setdefault(q, []).append(rank - np.mean(inside <= q))
    for each in errors.values():
        assert abs(np.mean(each)) < 4 * np.std(each) / SEEDS**0.5


@pytest.mark.parametrize("estimator", ["stratified", "single-level"])
@pytest.mark.parametrize("mode", ["proven", "practical"])
def test_the_promise(mode: Any, estimator: Any) -> None:
    """epsilon = 0.2, delta = 0.1: failures stay below delta, by three standard errors of luck."""
    epsilon, delta, seeds, n = 0.2, 0.1, 60, 30_000
    rng = np.random.default_rng(8)
    values, times = rng.integers(1, 100, n), rng.permutation(n)
    widths = (10, 500, 5_000, 20_000)
    wrong = dict.fromkeys([(what, w) for what in ("sum", 0.1, 0.5, 0.9) for w in widths], 0)
    covered = asked = 0
    for seed in range(seeds):
        sums = SumSampler(
            SumParams.for_accuracy(
                epsilon, delta, max_sum=1 << 24, max_window=20_000, mode=mode, seed=seed
            )
        )
        ranks = MedianSampler(
            MedianParams.for_accuracy(
                epsilon, delta, max_count=1 << 16, max_window=20_000, mode=mode, seed=seed,
                value_type="int64",
            )
        )  # fmt: skip
        for sampler in (sums, ranks):
            sampler.advance(n)
            sampler.update(values, times, np.arange(n), source="s")
        for width in widths:
            inside = np.sort(values[times >= n - width])
            how: dict[str, Any] = {"now": n, "estimator": estimator}
            found = sums.sum(ds.decay.window(width), **how)
            wrong["sum", width] += abs(found.value / inside.sum() - 1) > epsilon
            covered += found.lower <= inside.sum() <= found.upper
            asked += 1
            for q in (0.1, 0.5, 0.9):
                value = ranks.quantile(q, ds.decay.window(width), **how).value
                low, high = (
                    np.searchsorted(inside, value, s) / len(inside) for s in ("left", "right")
                )
                wrong[q, width] += not low - epsilon <= q <= high + epsilon
    limit = delta + 3 * (delta * (1 - delta) / seeds) ** 0.5
    assert all(count < limit * seeds for count in wrong.values()), wrong
    assert covered / asked > 0.9
    if mode == "proven":
        assert sum(wrong.values()) == 0
