"""Hypothesis strategies that make the sketches of every family work hard, from its example alone.

Few names and few instants, so that copies, conflicting copies and ties at a cut are common; small
capacities and few levels, so that watermarks rise and levels M are reached.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from decaysketch import DecaySketchError
from decaysketch.decay import integral
from decaysketch.errors import ParameterError
from decaysketch.families import Recipe
from quality import examples
from quality.examples import EXAMPLES, Example, Row, with_fields

BATCHES = st.lists(st.sampled_from([1, 2, 7, 50]), min_size=1, max_size=4)
SHUFFLES = st.randoms(use_true_random=False)
SOURCES = ("north", "south")
#: What a parameter of this name may be, whichever family has it; a list is tried on the example.
DOMAINS: Mapping[str, list[Any] | Callable[[Any], st.SearchStrategy[Any]]] = {
    "max_weight": [1, 2, 5, 60, 999, 1 << 20, 1 << 31],
    "max_sum": [1, 2, 8, 1000, 1 << 20, 1 << 53],
    "max_count": [1, 2, 100, 1 << 20, 1 << 53],
    "id_bits": [3, 6, 10, 20, 30],
    "capacity": [1, 2, 3, 10, 40],
    "copies": [1, 1, 2, 3],
    "max_window": [None, 0, 3, 100, 1 << 40],
    "value_type": ["int64", "float64", "label"],
    "id_mix": ["keyed", "keyed", "none"],
    "id_key": [None, None, None, bytes(range(16))],
    "seed": lambda _: st.integers(0, (1 << 64) - 1),
    "eager_from_level": lambda params: st.none() | st.integers(0, params.levels),
    "width": [1, 4, 9],
    "depth": [1, 3],
    "slots": [2, 3, 5],
    "kind": ["wave", "eh"],
    "horizon": [None, None, 0, 5, 400],
    "lanes": [1, 2, 4],
    "key_bits": [None, 6, 30],
    "fanout_bits": [2, 8],
    "resolution": [1, 1, 7, 1 << 40],
}


@cache
def admitted(family: str, field: str) -> list[Any]:
    """The values of a list in `DOMAINS` that the example of a family takes."""
    domain, recipe = DOMAINS[field], EXAMPLES[family].recipe
    assert isinstance(domain, list)
    return [each for each in domain if with_fields(recipe, **{field: each}) is not None]


@st.composite
def recipes(draw: Any, example: Example) -> Recipe:
    """Recipes of a family, as different as their parameters can be."""
    recipe = example.recipe
    params = recipe.params
    for field, domain in DOMAINS.items():
        if example.has(field):
            values = admitted(recipe.family, field) if isinstance(domain, list) else None
            value = draw(st.sampled_from(values) if values else domain(params))  # type: ignore[operator]
            try:
                params = replace(params, **{field: value})
            except ParameterError:  # what does not go together stays as it was
                continue
    if recipe.kind.input.sited:  # rows of two sources need room for two entries
        params = params.with_capacity(params.capacity + 8)
    changes = {"params": params}
    if recipe.decay is not None:
        changes["decay"] = draw(decays(params.max_weight))
    found: Recipe = replace(recipe, **changes)  # type: ignore[type-var]
    try:
        found.empty()
    except ParameterError:
        reject()
    return found


@st.composite
def decays(draw: Any, max_weight: int) -> integral.IntegralDecay:
    kinds = ["window", "exponential", "polynomial", "halving", "fractions"]
    kind = draw(st.sampled_from(kinds + ["table"] * (max_weight <= 60)))
    if kind == "window":
        return integral.window(draw(st.sampled_from([0, 5, 300, (1 << 62) - 2])))
    if kind == "exponential":
        return integral.exponential(rate=draw(st.sampled_from([0.02, 0.5, 3])))
    if kind == "polynomial":
        return integral.polynomial(draw(st.sampled_from([1, 2])) if max_weight < 1000 else 4)
    if kind == "halving":
        return integral.halving(draw(st.sampled_from([1, 7, 1 << 40])))
    if kind == "fractions":
        return integral.fractions([1, (3, 4), (3, 4), (1, 2), (1, 999)])
    shape = (max_weight, draw(st.integers(1, 6)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    values = np.zeros((max_weight + 1, shape[1] + 1), np.int64)
    values[1:, :-1] = rng.integers(0, max_weight + 1, shape)
    values[1:, 0] = np.maximum(values[1:, 0], 1)
    values[:, :-1] = np.maximum.accumulate(values[:, :-1], axis=0)  # rises with the weight
    values[:, :-1] = np.minimum.accumulate(values[:, :-1], axis=1)  # falls with the age
    return integral.table(np.maximum.accumulate(values, axis=0))


@st.composite
def rows(draw: Any, example: Example, recipe: Recipe, max_size: int = 120) -> list[Row]:
    """Observations with copies, conflicting copies and ties."""
    params = recipe.params
    name: st.SearchStrategy[Any]
    if example.named_by == "key":
        bits = params.key_bits or 40
        keys = draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=1, max_size=9))
        name = st.tuples(st.sampled_from(SOURCES), st.just(0), st.sampled_from(keys))
    elif example.named_by == "id":
        ids = st.integers(0, (1 << params.id_bits) - 1)
        name = st.sampled_from(draw(st.lists(ids, min_size=1, max_size=60)))
    else:
        last = draw(st.sampled_from([3, 30, (1 << 63) - 1]))
        name = st.tuples(st.sampled_from(SOURCES), st.integers(0, last))
    value: st.SearchStrategy[Any] = st.none()
    if example.value is not None:
        known: st.SearchStrategy[Any] = st.sampled_from([0, 1, -3]) | st.integers(
            -(1 << 62), 1 << 62
        )
        if params.value_type == "float64":
            known = st.sampled_from([0, 0.0, -0.0, 1.5, -3]) | st.floats(
                allow_nan=False, allow_infinity=False
            )
        elif params.value_type == "label":
            known = st.sampled_from(["E1", "E2", "", "é"]) | st.text(max_size=9)
        value = known if example.value == "required" else st.none() | known
    weight: st.SearchStrategy[Any] = st.none()
    if example.weight is not None:
        some = st.integers(0, getattr(params, example.weight))
        weight = st.sampled_from(draw(st.lists(some, min_size=1, max_size=4)))
    elif example.weighted:
        weight = st.sampled_from([1, 1, 2, 3, 50, 10_000, 0])
    span = draw(st.sampled_from([0, 5, 300, 1 << 40, 1 << 62]))
    row = st.builds(Row, value, weight, st.integers(-span, span), name)
    return draw(st.lists(row, max_size=max_size))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Case:
    """A recipe, observations for it, and times that the clock is told."""

    example: Example
    recipe: Recipe
    rows: list[Row]
    told: list[int]

    @property
    def params(self) -> Any:
        return self.recipe.params

    def fed(
        self,
        rows: Sequence[Row] | None = None,
        batches: Sequence[int] | None = None,
        told: Sequence[int] | None = None,
        capacity: int | None = None,
    ) -> Any:
        """A sketch that was fed with these rows and told these times, or with all of the case."""
        recipe = self.recipe
        if capacity is not None:
            recipe = replace(recipe, params=self.params.with_capacity(capacity))  # type: ignore[type-var]
        return self.feed(
            recipe.empty(), self.rows if rows is None else rows, batches,
            self.told if told is None else told,
        )  # fmt: skip

    def feed(
        self,
        sketch: Any,
        rows: Sequence[Row],
        batches: Sequence[int] | None = None,
        told: Sequence[int] = (),
    ) -> Any:
        return examples.feed(sketch, self.example, self.recipe, rows, batches, told)

    def columns(self, rows: Sequence[Row]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return examples.columns(self.example, self.recipe, rows)

    def again(self, rng: random.Random) -> list[Row]:
        """The rows in another order, and some a second time where that is to change nothing."""
        copies = [rng.choice(self.rows) for _ in self.rows] if self.example.counts_once else []
        return rng.sample(self.rows + copies, len(self.rows + copies))

    @property
    def sited(self) -> bool:
        """Whether all rows of a source are to be counted by one sketch."""
        return self.recipe.kind.input.sited

    def apart(self, rows: Sequence[Row], number: int) -> list[Row]:
        """The same rows, to be counted by a sketch of their own beside others."""
        if not self.sited:
            return list(rows)
        return [row._replace(name=(row.name[0], number, *row.name[2:])) for row in rows]

    def after(self, rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
        """More rows than these, for a sketch that was read already: in order of time where that has
        to be, as all rows of a source are counted by one sketch."""
        if not self.sited:
            return list(more)
        least = max([row.time for row in rows] + self.told, default=-(1 << 62))
        later = [row._replace(time=max(row.time, least)) for row in more]
        return sorted(later, key=lambda row: row.time)

    def more(self, max_size: int = 40) -> st.SearchStrategy[list[Row]]:
        """More rows of the same stream."""
        return rows(self.example, self.recipe, max_size)


@st.composite
def cases(draw: Any, *families: str, max_size: int = 120) -> Case:
    """Cases of one of the families."""
    example = EXAMPLES[draw(st.sampled_from(families))]
    recipe = draw(recipes(example))
    observed = draw(rows(example, recipe, max_size))
    told: list[int] = []
    if example.clock:
        times = st.sampled_from([row.time for row in observed] or [0])
        told = draw(st.lists(times | st.integers(-400, 400), max_size=4))
    return Case(example, recipe, observed, told)


def law(
    test: Callable[[Case, Any], None], *, examples: int = 30, families: Iterable[str] = EXAMPLES
) -> Any:
    """Make a test of (case, data) a law of all families, or of some: of each, in small bags."""

    @pytest.mark.parametrize("family", families)
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(data=st.data())
    def of_a_family(family: str, data: st.DataObject) -> None:
        case = data.draw(cases(family))
        with small_bags():
            test(case, data)

    of_a_family.__name__ = of_a_family.__qualname__ = test.__name__
    of_a_family.__doc__ = test.__doc__
    of_a_family.__module__ = test.__module__
    return of_a_family


@contextmanager
def small_bags() -> Generator[None]:
    """Let bags overflow early, so that compaction runs in the middle of feeds and merges."""
    bags = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("decaysketch.") and hasattr(module, "_SMALLEST_LIMIT")
    ]
    assert bags
    with pytest.MonkeyPatch.context() as patch:
        for module in bags:
            patch.setattr(module, "_SMALLEST_LIMIT", 40)
            patch.setattr(module, "_MERGE_LIMIT", 20, raising=False)
        yield


def states_of(sketch: Any) -> tuple[Any, ...]:
    """The states of its hash functions."""
    return tuple(sketch.states()) if hasattr(sketch, "states") else (sketch.state(),)


_QUESTIONS: Mapping[str, tuple[Any, ...]] = {
    "sum": (),
    "count": (),
    "total": (),
    "mean": (),
    "variance": (),
    "quantile": ([0, 0.1, 0.5, 1],),
    "rank": (0.0,),
    "selectivity": (lambda v, w: v == v[:1],),
    "heavy_hitters": (0.1,),
    "group_by": (),
    "key_count": ([0, 1, 7],),
    "key_total": (),
    "self_join": (),
    "heavy_keys": (0.1,),
    "heavy_prefixes": (0.1,),
    "key_range": (0, 9),
    "key_quantile": ([0, 0.5],),
    "max": (),
    "min": (),
    "highest": (),
    "lowest": (),
    "increase": (),
    "increase_rate": (),
    "time_average": (9,),
    "time_in_state": (lambda v, w: v > 0,),
    "state_time": (lambda v, w: v > 0,),
    "transitions": (),
    "gaps": (5,),
    "availability": (9,),
    "interval_quantile": (0.5,),
    "sessions": (5,),
    "session_length": (5,),
    "series_count": (),
    "silent_series": (5,),
    "average_quantile": (0.5,),
    "increase_quantile": (0.5,),
}


def answers(sketch: Any, now: int, decays: Sequence[Any]) -> list[str]:
    """Everything that a sketch can be asked, in every way; a refusal is an answer too.

    A decay of None is none: the sketch has its own.
    """
    found = []
    for name in sorted(_QUESTIONS.keys() & set(dir(sketch))):
        ask = getattr(sketch, name)
        ways = inspect.signature(ask).parameters.keys()
        for decay in decays:
            for more in ({}, {"estimator": "single-level"}, {"combine": "median"}):
                if more.keys() <= ways:
                    chosen = () if decay is None else (decay,)
                    try:
                        given = ask(*_QUESTIONS[name], *chosen, now=now, **more)
                        answer = repr(list(given) if isinstance(given, Iterable) else given)
                    except DecaySketchError as refusal:
                        answer = str(refusal)
                    found.append(f"{name} {decay} {more}: {answer}")
    return found
