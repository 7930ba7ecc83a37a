"""Streams of every family, and sketches to post to them."""

from __future__ import annotations

import json
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
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.extremes import ExtremesParams, ExtremesSketch
from decaysketch.families import FAMILIES, Family, recipe_from_dict
from decaysketch.query.catalog import QUESTIONS, View
from decaysketch.query.shapes import Question
from decaysketch.series import SeriesParams, SeriesSketch

WINDOW = decay.window(3_000)
FIXED = decay.integral.exponential(half_life=900)
SUM = SumParams(max_sum=10**6, capacity=60, max_window=5_000, seed=5)
ECM = ECMParams(width=40, depth=3, slots=4, horizon=5_000, key_bits=16, fanout_bits=4, seed=8)
EXTREMES = ExtremesParams(max_weight=99, capacity=60, seed=9)
SERIES = SeriesParams(max_weight=99, capacity=60, resolution=5, seed=9)
MEDIAN = MedianParams(max_count=10**6, capacity=60, max_window=5_000, seed=6)


def asked(question: Question[Any]) -> dict[str, Any]:
    """Arguments that the question can be asked with: those of its examples."""
    return {each.name: each.example for each in question.travelling if each.example is not None}


def has_examples(question: Question[Any]) -> bool:
    """Whether they are all that it needs: another sketch is nobody's example, nor are others of
    several sources."""
    return question.asked_of != "sources" and all(
        each.example is not None or not each.required for each in question.arguments
    )


@dataclass(frozen=True)
class Case:
    """A stream of one family."""

    creation: dict[str, Any]
    build: Callable[[int, int], Any]  # (seed, first number) -> a sketch of 200 observations

    @property
    def name(self) -> str:
        return str(self.creation["family"])

    @property
    def family(self) -> Family:
        return FAMILIES[self.name]

    @property
    def chooses(self) -> bool:
        """Whether the query chooses the decay."""
        return self.family.input.decay == "query"

    def fed(self, values: Any, times: Any, *, weight: int = 1, first: int = 0) -> Any:
        """A sketch of rows that are numbered from ``first``, of one source; where nothing numbers
        them, of keys that are their values, and ``first`` says which beginning that is."""
        sketch: Any = recipe_from_dict(self.creation).empty()
        numbers = first + np.arange(len(times))
        if self.family.input.named_by == "key":
            keys = np.asarray(values, np.int64).ravel() + np.zeros(len(times), np.int64)
            sketch.update(np.abs(keys), times, weight, source="tap-7", epoch=first)
        elif self.family.input.named_by == "sequence":
            sketch.update(values, times, numbers, source="tap-7")
        else:
            sketch.update(values, weight, times, numbers)
        return sketch

    def join(self, sketches: Sequence[Any]) -> Any:
        return reduce(or_, sketches)

    def view(self, sketch: Any, now: int = NOW) -> View:
        found: View = sketch.at(WINDOW if self.chooses else None, now)
        return found

    def asks(self, name: str, now: int = NOW, confidence: float = 0.95) -> dict[str, Any]:
        """One query, in JSON."""
        question, decay = QUESTIONS[name], {"decay": WINDOW.to_dict()} if self.chooses else {}
        given = asked(question)
        body = {each.json: given[each.name] for each in question.travelling if each.name in given}
        return {"aggregate": name, "now": now, "confidence": confidence, **decay, **body}

    def query(self, now: int = NOW) -> dict[str, Any]:
        """A request that asks everything of this family that is always answered."""
        return {"queries": [self.asks(name, now) for name in self._answered]}

    def answer(self, sketch: Any, name: str, confidence: float = 0.95) -> dict[str, Any]:
        """The library's own answer to a query, as the service says it."""
        question = QUESTIONS[name]
        served = {each.name: each.served for each in question.travelling if not each.required}
        arguments = served | asked(question)
        found = self.view(sketch).ask(question, confidence=confidence, **arguments)
        parts = question.parts(found, arguments)
        parts = json.loads(json.dumps(parts, default=lambda each: each.to_dict()))
        if question.shape.rows is not None and question.shape.rows.single:
            (parts[question.shape.rows.name],) = parts[question.shape.rows.name]
        return {"aggregate": name, "now": NOW, "verified": "proof"} | parts

    def expected(self, sketch: Any) -> list[dict[str, Any]]:
        """The library's own answers to :meth:`query`."""
        return [self.answer(sketch, name) for name in self._answered]

    @property
    def _answered(self) -> list[str]:
        """What can be asked from outside; the last may have been discarded."""
        asked_of = {name for name in self.family.questions if has_examples(QUESTIONS[name])}
        return sorted(asked_of - {"last"})


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


def _ecm(seed: int, first: int) -> ECMCollection:
    values, weights, times = _columns(seed)
    collection = ECMCollection(ECM)
    keys = values.astype(np.int64)
    collection.update(keys, times, weights, source="tap-7", epoch=1_000 * first + seed)
    collection.advance(NOW - 100 + seed)
    return collection


def _extremes(seed: int, first: int) -> ExtremesSketch:
    values, weights, times = _columns(seed)
    sketch = ExtremesSketch(EXTREMES)
    sketch.update(values, weights, times, first + np.arange(200))
    return sketch


def _series(seed: int, first: int) -> SeriesSketch:
    values, weights, times = _columns(seed)
    sketch = SeriesSketch(SERIES)
    sketch.update(values, weights, times, (first + np.arange(200)) % 40)
    return sketch


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
        Case({"family": "decay", "params": PARAMS.to_dict()}, _decay),
        Case(
            {"family": "integral", "params": PARAMS.to_dict(), "decay": FIXED.to_dict()}, _integral
        ),
        Case({"family": "sum", "params": SUM.to_dict()}, _sum),
        Case({"family": "median", "params": MEDIAN.to_dict()}, _median),
        Case({"family": "ecm", "params": ECM.to_dict()}, _ecm),
        Case({"family": "extremes", "params": EXTREMES.to_dict()}, _extremes),
        Case({"family": "series", "params": SERIES.to_dict()}, _series),
    )
}
