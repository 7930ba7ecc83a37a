"""What is asked about: sketches of every family, and the questions and decays to ask them.

Everything is drawn by :meth:`random.Random.random`, whose numbers Python promises never to change,
and rounded to integers and halves: no library decides what the observations are. A sketch holds a
part of its rows only, so that most answers are estimates; of a short window it holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

import numpy as np

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

NOW = 1_700_000_000
SPAN = 4_500  # how far back the rows lie
ROWS = 200

PARAMS = ds.SketchParams(max_weight=99, id_bits=40, capacity=60, seed=2**63 + 11)
THRICE = ds.SketchParams(
    max_weight=99, id_bits=30, capacity=40, copies=3, seed=4, value_type="int64"
)
FIXED = ds.decay.integral.exponential(half_life=900)
SUMS = SumParams(max_sum=10**6, capacity=40, max_window=5_000, seed=5)
MEDIANS = MedianParams(max_count=10**6, capacity=40, max_window=5_000, seed=6)


class Rows(NamedTuple):
    """Observations as columns."""

    values: Any  # masked where missing
    weights: Any
    times: Any
    numbers: Any


def rows(seed: int, first: int = 0, count: int = ROWS, *, missing: bool = True) -> Rows:
    """Few distinct values, halves among them; small ones are more frequent."""
    draw = Random(seed).random
    table = [[draw() for _ in range(count)] for _ in range(4)]
    values = np.array([1 + int(40 * x * x) / 2 for x in table[0]])
    if missing:
        values = np.ma.masked_array(values, mask=[x < 0.05 for x in table[3]])
    return Rows(
        values,
        np.array([1 + int(99 * x * x) for x in table[1]]),
        np.array([NOW - int(SPAN * x * x) for x in table[2]]),
        first + np.arange(count),
    )


def chosen(seed: int, first: int = 0, *, params: ds.SketchParams = PARAMS) -> ds.DecaySketch:
    """Of the family ``decay``."""
    found, sketch = rows(seed, first), ds.DecaySketch(params)
    sketch.update(found.values, found.weights, found.times, found.numbers)
    return sketch


def thrice(seed: int, first: int = 0, *, params: ds.SketchParams = THRICE) -> ds.DecaySketch:
    """The same under three hash functions, with integer values."""
    found, sketch = rows(seed, first), ds.DecaySketch(params)
    values = np.ma.masked_array((2 * found.values.data).astype(np.int64), found.values.mask)
    sketch.update(values, found.weights, found.times, found.numbers)
    return sketch


def fixed(seed: int, first: int = 0, *, decay: Any = FIXED) -> ds.IntegralDecaySketch:
    """Of the family ``integral``."""
    found, sketch = rows(seed, first), ds.IntegralDecaySketch(PARAMS, decay)
    sketch.update(found.values, found.weights, found.times, found.numbers, now=NOW - 500 + seed)
    return sketch


def summed(seed: int, first: int = 0, *, params: SumParams = SUMS) -> SumSampler:
    """Of the family ``sum``."""
    found, sampler = rows(seed), SumSampler(params, source="tap-7", next_number=first)
    sampler.update(found.weights, found.times)
    sampler.advance(NOW - 100 + seed)
    return sampler


def middling(seed: int, first: int = 0, *, params: MedianParams = MEDIANS) -> MedianSampler:
    """Of the family ``median``."""
    found = rows(seed, missing=False)
    sampler = MedianSampler(params, source="tap-7", next_number=first)
    sampler.update(found.values, found.times)
    sampler.advance(NOW - 100 + seed)
    return sampler


def overflowing() -> ds.DecaySketch:
    """One that has discarded observations at every level."""
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=4, capacity=1, seed=2))
    sketch.update(np.zeros(16), 1, NOW - 15 + np.arange(16), np.arange(16))
    return sketch


class Stream(NamedTuple):
    """A stream of one family.

    Attributes:
        creation: what it is created by.
        build: (seed, first number) -> a sketch of it.
        coarser, other: likewise, of a smaller capacity and of other parameters.
    """

    creation: dict[str, Any]
    build: Callable[..., Any]
    coarser: Callable[..., Any]
    other: Callable[..., Any]

    @property
    def family(self) -> str:
        return str(self.creation["family"])

    @property
    def chooses(self) -> bool:
        """Whether the query chooses the decay."""
        return "decay" not in self.creation


def _coarser(build: Callable[..., Any]) -> Callable[..., Any]:
    def small(*arguments: int) -> Any:
        sketch = build(*arguments)
        sketch.resize(9)
        return sketch

    return small


def _stream(creation: dict[str, Any], build: Callable[..., Any], **other: Any) -> Stream:
    return Stream(creation, build, _coarser(build), partial(build, **other))


#: By name: one of each family, and one of several hash functions.
STREAMS = {
    "decay": _stream(
        {"family": "decay", "params": PARAMS.to_dict()},
        chosen,
        params=replace(PARAMS, seed=1, max_weight=100),
    ),
    "thrice": _stream(
        {"family": "decay", "params": THRICE.to_dict()},
        thrice,
        params=replace(THRICE, copies=1),
    ),
    "integral": _stream(
        {"family": "integral", "params": PARAMS.to_dict(), "decay": FIXED.to_dict()},
        fixed,
        decay=ds.decay.integral.window(60),
    ),
    "sum": _stream(
        {"family": "sum", "params": SUMS.to_dict()}, summed, params=replace(SUMS, max_window=60)
    ),
    "median": _stream(
        {"family": "median", "params": MEDIANS.to_dict()},
        middling,
        params=replace(MEDIANS, seed=7),
    ),
}

#: What is asked, as a query over HTTP says it, without decay and time.
QUESTIONS: dict[str, dict[str, Any]] = {
    "sum": {},
    "count": {},
    "total": {},
    "mean": {},
    "variance": {},
    "median": {},
    "quantile": {"q": [0.1, 0.5, 0.99]},
    "rank": {"v": 5},
    "selectivity": {"predicate": "v > 3 and w >= 2"},
    "heavy_hitters": {"phi": 0.06, "limit": 5},
    "group_by": {"limit": 3},
}

#: Decays of ages in seconds.
DECAYS: dict[str, dict[str, Any]] = {
    "window": {"kind": "window", "width": 2_000},
    "short window": {"kind": "window", "width": 20},
    "half-life": {"kind": "exponential", "half_life": 300},
    "rate": {"kind": "exponential", "rate": 0.01},
    "polynomial": {"kind": "polynomial", "exponent": 1.5, "scale": 120},
    "steps": {"kind": "piecewise", "steps": [[60, 1], [600, 0.25]], "beyond": 0.0625},
    "expression": {"kind": "expression", "text": "1/(1 + log(1 + x/60))"},
    "none": {"kind": "none"},
}
#: Enough of them for one family twice.
FEW = {name: DECAYS[name] for name in ("window", "short window", "half-life")}
#: Those that end within the samplers' longest window.
ENDING: dict[str, dict[str, Any]] = {
    "window": DECAYS["window"],
    "short window": DECAYS["short window"],
    "ending steps": {"kind": "piecewise", "steps": [[60, 1], [600, 0.25]]},
    "ending expression": {"kind": "expression", "text": "where(x <= 4000, 1 - x/8000, 0)"},
}


def decays_of(stream: Stream) -> dict[str, dict[str, Any]]:
    """Decays that a stream may be asked under, by name; a single nothing where its own is fixed."""
    if not stream.chooses:
        return {"its own": {}}
    if stream is STREAMS["thrice"]:
        return FEW
    return ENDING if stream.family in ("sum", "median") else DECAYS
