"""Streams of every family, and sketches to post to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pytest
from service import NOW, PARAMS

from decaysketch import DecaySketch, IntegralDecaySketch, decay
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

WINDOW = decay.window(3_000)
FIXED = decay.integral.exponential(half_life=900)
SUM = SumParams(max_sum=10**6, capacity=60, max_window=5_000, seed=5)
MEDIAN = MedianParams(max_count=10**6, capacity=60, max_window=5_000, seed=6)


@dataclass(frozen=True)
class Case:
    """A stream of one family."""

    creation: dict[str, Any]
    build: Callable[[int, int], Any]  # (seed, first number) -> a sketch of 200 observations
    asked: Sequence[dict[str, Any]]  # queries without decay and time
    chooses: bool = True  # the query chooses the decay

    @property
    def name(self) -> str:
        return str(self.creation["family"])

    def join(self, sketches: Sequence[Any]) -> Any:
        return reduce(or_, sketches)

    def query(self, now: int = NOW) -> dict[str, Any]:
        """A request that asks everything of this family."""
        chosen: dict[str, Any] = {"decay": WINDOW.to_dict()} if self.chooses else {}
        return {"queries": [each | chosen | {"now": now} for each in self.asked]}

    def expected(self, sketch: Any, now: int = NOW) -> list[dict[str, Any]]:
        """The library's own answers to that request."""
        found = [self._expected(sketch, dict(each), now) for each in self.asked]
        return [each | {"verified": "proof"} for each in found]

    def _expected(self, sketch: Any, asked: dict[str, Any], now: int) -> dict[str, Any]:
        name = asked["aggregate"]
        chosen = (WINDOW,) if self.chooses else ()
        if name == "selectivity":
            low, high = asked.get("at_least", -np.inf), asked.get("at_most", np.inf)
            found = sketch.selectivity(lambda v, w: (v >= low) & (v <= high), *chosen, now=now)
        elif name == "rank":
            found = sketch.rank(asked["v"], *chosen, now=now)
        elif name == "quantile":
            found = sketch.quantile(asked["q"], *chosen, now=now)
            quantiles = [
                {"q": q, "estimate": estimate.to_dict()}
                for q, estimate in zip(asked["q"], found, strict=True)
            ]
            return {"now": now, "aggregate": name, "quantiles": quantiles}
        elif name == "median":
            found = sketch.quantile(0.5, *chosen, now=now)
        elif name == "heavy_hitters":
            hitters = [
                {"value": each.value, "frequency": each.frequency.to_dict()}
                for each in sketch.heavy_hitters(asked["phi"], *chosen, now=now)
            ]
            return {"now": now, "aggregate": name, "heavy_hitters": hitters}
        elif name == "group_by":
            groups = [
                {"value": each.value, "sum": each.sum.to_dict(), "count": each.count.to_dict()}
                for each in sketch.group_by(*chosen, now=now)
            ]
            return {
                "now": now, "aggregate": name, "groups": groups, "total_groups": len(groups)
            }  # fmt: skip
        else:
            found = getattr(sketch, name)(*chosen, now=now)
        return {"now": now, "aggregate": name, "estimate": found.to_dict()}


def _columns(seed: int) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng(seed)
    values = np.round(draw.normal(20, 5, 200)).clip(1)
    return values, draw.integers(1, 100, 200), draw.integers(NOW - 4_500, NOW + 1, 200)


def _decay(seed: int, first: int) -> DecaySketch:
    values, weights, times = _columns(seed)
    sketch = DecaySketch(PARAMS)
    sketch.update(values, weights, times, first + np.arange(200))
    return sketch


def _integral(seed: int, first: int) -> IntegralDecaySketch:
    values, weights, times = _columns(seed)
    sketch = IntegralDecaySketch(PARAMS, FIXED)
    sketch.update(values, weights, times, first + np.arange(200), now=NOW - 2_000 + seed)
    return sketch


def _sum(seed: int, first: int) -> SumSampler:
    _, weights, times = _columns(seed)
    sampler = SumSampler(SUM, source="tap-7", next_number=first)
    sampler.update(weights, times)
    sampler.advance(NOW - 100 + seed)
    return sampler


def _median(seed: int, first: int) -> MedianSampler:
    values, _, times = _columns(seed)
    sampler = MedianSampler(MEDIAN, source="tap-7", next_number=first)
    sampler.update(values, times)
    sampler.advance(NOW - 100 + seed)
    return sampler


_OF_VALUES: list[dict[str, Any]] = [
    {"aggregate": name} for name in ("count", "total", "mean", "variance", "median")
] + [
    {"aggregate": "quantile", "q": [0.1, 0.5]},
    {"aggregate": "rank", "v": 20},
    {"aggregate": "selectivity", "at_least": 15, "at_most": 22},
    {"aggregate": "heavy_hitters", "phi": 0.05},
]


def same(given: Any, expected: Any) -> bool:
    """Whether answers are equal, up to the order in which a sum of floats was taken."""
    if isinstance(given, dict):
        return given.keys() == expected.keys() and all(same(given[k], expected[k]) for k in given)
    if isinstance(given, list):
        return len(given) == len(expected) and all(map(same, given, expected))
    if isinstance(given, float):
        return bool(given == pytest.approx(expected, rel=1e-12))
    return bool(given == expected)


CASES = {
    case.name: case
    for case in (
        Case(
            {"family": "decay", "params": PARAMS.to_dict()},
            _decay,
            [{"aggregate": "sum"}, *_OF_VALUES, {"aggregate": "group_by"}],
        ),
        Case(
            {"family": "integral", "params": PARAMS.to_dict(), "decay": FIXED.to_dict()},
            _integral,
            [{"aggregate": "sum"}, *_OF_VALUES, {"aggregate": "group_by"}],
            chooses=False,
        ),
        Case(
            {"family": "sum", "params": SUM.to_dict()},
            _sum,
            [
                {"aggregate": "sum"},
                {"aggregate": "count"},
                {"aggregate": "selectivity", "at_most": 50},
            ],
        ),
        Case({"family": "median", "params": MEDIAN.to_dict()}, _median, _OF_VALUES),
    )
}
