"""The library's own answers: every aggregate of every sketch class, states, bytes and refusals."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

import decaysketch as ds
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from tests.recorded.entries import Entry, plain
from tests.recorded.material import (
    DECAYS,
    FIXED,
    NOW,
    PARAMS,
    QUESTIONS,
    STREAMS,
    decays_of,
    overflowing,
    rows,
)

__all__ = ["record"]


def _holds(values: Any, weights: Any) -> Any:
    return (values > 3) & (weights >= 2)


# What a method is given before the decay; as over HTTP.
_LEADING: dict[str, tuple[Any, ...]] = {
    "quantile": (QUESTIONS["quantile"]["q"],),
    "rank": (QUESTIONS["rank"]["v"],),
    "selectivity": (_holds,),
    "heavy_hitters": (QUESTIONS["heavy_hitters"]["phi"],),
}
# What each class is asked, and what of it in the paper's own way. Said here, not found out: a
# method that is new is no difference.
_OF_SKETCHES = tuple(name for name in QUESTIONS if name != "median")
_METHODS = {
    "decay": _OF_SKETCHES,
    "integral": _OF_SKETCHES,
    "sum": ("sum", "count", "selectivity"),
    "median": tuple(name for name in QUESTIONS if name != "sum"),
}
_SINGLE_LEVEL = {
    "sum": ("sum", "count", "selectivity"),
    "median": ("count", "median", "quantile", "rank", "selectivity"),
}


def record() -> list[Entry]:
    """All of them."""
    return [
        {"case": f"python: {case}", "answered": plain(_outcome(ask))}
        for cases in (_answers(), _states(), _refusals())
        for case, ask in cases
    ]


def _outcome(ask: Callable[[], Any]) -> Any:
    """What is returned, or what is raised."""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = _presented(ask())
    except (ds.DecaySketchError, TypeError) as fault:
        return {"raises": type(fault).__name__, "says": str(fault)}
    return {"warns": [str(each.message) for each in said], "gives": found} if said else found


def _presented(found: Any) -> Any:
    if isinstance(found, ds.Estimate):
        return found.to_dict()
    if is_dataclass(found) and not isinstance(found, type):
        return {each.name: _presented(getattr(found, each.name)) for each in fields(found)}
    if isinstance(found, tuple) and hasattr(found, "_asdict"):
        return {name: _presented(value) for name, value in found._asdict().items()}
    if isinstance(found, (list, tuple)):
        return [_presented(each) for each in found]
    return found


# ----------------------------------------------------------------------------------------- answers


def _answers() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every aggregate that a class has, under every decay; and in every other manner."""
    for name, stream in STREAMS.items():
        sketch = stream.build(0) | stream.build(1, 150)
        decays = {
            title: (ds.decay.from_dict(decay),) if decay else ()
            for title, decay in decays_of(stream).items()
        }
        window = decays.get("window", ())
        for aggregate in _METHODS[stream.family]:
            method = getattr(sketch, aggregate)

            def ask(*arguments: Any, method: Any = method, **named: Any) -> Callable[[], Any]:
                leading = _LEADING.get(method.__name__, ())
                return lambda: method(*leading, *arguments, **({"now": NOW} | named))

            for title, decay in decays.items():
                yield f"{name}.{aggregate}, {title}", ask(*decay)
            yield f"{name}.{aggregate}, confidence", ask(*window, confidence=0.8)
            yield f"{name}.{aggregate}, before", ask(*window, now=NOW - 300)
            if name == "thrice":
                yield f"{name}.{aggregate}, median of copies", ask(*window, combine="median")
            if aggregate in _SINGLE_LEVEL.get(stream.family, ()):
                yield f"{name}.{aggregate}, single level", ask(*window, estimator="single-level")
        for estimator in ("stratified", "cohen-strauss", "single-level", "other"):
            yield (
                f"{name}.sample, {estimator}",
                lambda sketch=sketch, decay=window, estimator=estimator: _sample(
                    sketch.sample(*decay, now=NOW, estimator=estimator)
                ),
            )
        if stream.family in ("decay", "integral"):
            yield (
                f"{name}.total of a function",
                lambda sketch=sketch, decay=window: sketch.total(_product, *decay, now=NOW),
            )


def _product(values: Any, weights: Any) -> Any:
    return values * weights


def _sample(sample: ds.Sample) -> dict[str, Any]:
    """What every aggregate is read from; masses are computed."""
    return {
        "rows": len(sample), "exact": sample.exact, "exact_rows": sample.exact_rows,
        "verified": sample.verified, "levels": sample.levels, "times": sample.times,
        "weights": np.asarray(sample.masses, np.float64),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------ states


def _states() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What sketches hold: bytes and digests after everything that may happen to them."""
    for name, stream in STREAMS.items():
        one, two = stream.build(0), stream.build(1, 150)
        both = one | two
        small = copy.deepcopy(both)
        small.resize(10)
        read = type(both).from_bytes(both.to_bytes())
        for title, sketch in {
            "one": one,
            "two": two,
            "both": both,
            "merged": ds.merge([two, one, two]),
            "copied": both.copy(),
            "pickled": pickle.loads(pickle.dumps(both)),
            "read": read,
            "decoded": ds.families.decode(both.to_bytes()),
            "resized": small,
            "resized and merged": small | two,
        }.items():
            yield f"{name}, {title}", lambda sketch=sketch: _held(sketch)
        yield f"{name}, stats", both.stats
        yield f"{name}, shown", lambda both=both: [repr(both), str(both), repr(both.params)]
        yield (
            f"{name}, equality",
            lambda one=one, both=both, read=read: [both == read, both == one, one | both == both],
        )
        yield (
            f"{name}, family",
            lambda both=both: [
                ds.families.family_of(both.to_bytes()),
                ds.families.recipe_of(both.params, getattr(both, "decay", None)).to_dict(),
                both.params.fingerprint.hex(),
            ],
        )
        yield f"{name}, verdicts", lambda both=both, family=stream.family: _verdicts(both, family)
    decays = {title: ds.decay.from_dict(decay) for title, decay in DECAYS.items()}
    ages = np.array([0.0, 0.5, 1, 20, 60, 599.5, 2_000, 1e6, 2.0**62])
    for title, decay in decays.items():
        yield (
            f"decay {title}",
            lambda decay=decay: {
                "shown": repr(decay), "form": decay.to_dict(), "weights": decay(ages)
            },
        )  # fmt: skip
    yield (
        "decay its own",
        lambda: [
            repr(FIXED),
            FIXED.to_dict(),
            [int(FIXED(90, age)) for age in (0, 60, 899, 9_000)],
        ],
    )
    yield (
        "ids of keys",
        lambda: ds.observation_ids(["a", "b", "", "ü"], [1, 2, 3, -4], params=PARAMS),
    )
    yield "weights scaled", lambda: ds.scale_weights([0.25, 1.5], 8.0, max_weight=99)


def _held(sketch: Any) -> dict[str, Any]:
    return {"rows": len(sketch), "digest": sketch.digest(), "blob": sketch.to_bytes()}


def _verdicts(sketch: Any, family: str) -> Any:
    found = rows(1, 150, missing=False)
    again, late = slice(0, 30), found.times[30:60] - 3_000
    times = np.concatenate([found.times[again], late])
    if family in ("sum", "median"):
        values = (found.weights if family == "sum" else found.values)[:60]
        return sketch.verdicts(values, times, found.numbers[:60], source="tap-7")
    values = found.values[:60]
    if sketch.params.value_type == "int64":
        values = (2 * values).astype(np.int64)
    return sketch.verdicts(values, found.weights[:60], times, found.numbers[:60])


# ---------------------------------------------------------------------------------------- refusals


def _refusals() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is refused, by which error and in which words."""
    window = ds.decay.window(2_000)
    for name, stream in STREAMS.items():
        sketch, other = stream.build(0), stream.other(0)
        blob, chosen = sketch.to_bytes(), (window,) if stream.chooses else ()
        columns = 2 if stream.family in ("sum", "median") else 3  # beside the values

        def ask(name: str, *arguments: Any, sketch: Any = sketch, **named: Any) -> Any:
            return lambda: getattr(sketch, name)(*arguments, **named)

        yield f"{name} refuses other parameters", ask("merge", other)
        yield f"{name} refuses another family", ask("merge", object())
        yield f"{name} refuses a growing capacity", ask("resize", 10**6)
        yield f"{name} refuses no capacity", ask("resize", 0)
        yield f"{name} refuses a time", ask("count", *chosen, now=1.5)
        yield f"{name} refuses a confidence", ask("count", *chosen, now=NOW, confidence=1)
        if stream.chooses:
            yield f"{name} refuses a decay", ask("count", 5, now=NOW)
        if stream.family != "sum":
            yield f"{name} refuses a share", ask("quantile", 1.5, *chosen, now=NOW)
        yield f"{name} refuses columns", ask("update", [1, 2], *[[1, 2, 3]] * columns)
        for case, corrupt in {
            "nothing": b"", "less": blob[:-1], "more": blob + b"\0", "another": b"x" * 40
        }.items():  # fmt: skip
            yield (
                f"{name} refuses bytes, {case}",
                lambda sketch=sketch, corrupt=corrupt: type(sketch).from_bytes(corrupt),
            )
    yield (
        "merge refuses two families",
        lambda: ds.merge([STREAMS["sum"].build(0), STREAMS["median"].build(0)]),
    )
    yield "merge refuses nothing", lambda: ds.merge([])
    for case, given in {
        "weight": {"max_weight": 0}, "ids": {"max_weight": 1, "id_bits": 99},
        "capacity": {"max_weight": 1, "capacity": 0}, "seed": {"max_weight": 1, "seed": -1},
        "copies": {"max_weight": 1, "copies": 0}, "type": {"max_weight": 1, "value_type": "text"},
    }.items():  # fmt: skip
        yield f"params refuse {case}", lambda given=given: ds.SketchParams(**given)
    yield "params of sums refuse", lambda: SumParams(max_sum=0, capacity=1)
    yield "params of medians refuse", lambda: MedianParams(max_count=10, capacity=0)
    for case, make in {
        "window": lambda: ds.decay.window(-1),
        "half-life": lambda: ds.decay.exponential(half_life=0),
        "two rates": lambda: ds.decay.exponential(half_life=1, rate=1),
        "steps": lambda: ds.decay.piecewise([(1, 1), (2, 2)]),
        "expression that rises": lambda: ds.decay.expression("x"),
        "expression that calls": lambda: ds.decay.expression("exit()"),
        "form": lambda: ds.decay.from_dict({"kind": "gaussian"}),
        "integral form": lambda: ds.decay.integral.from_dict({"kind": "window", "width": -1}),
    }.items():
        yield f"decay refuses {case}", make
    sums = SumSampler(SumParams(max_sum=9, capacity=1))
    medians = MedianSampler(MedianParams(max_count=9, capacity=1))
    yield "sums refuse a value", lambda: sums.update([10], [1], [1], source="a")
    yield "medians refuse a value", lambda: medians.update([float("nan")], [1], [1], source="a")
    yield "what was discarded", lambda: overflowing().count(ds.decay.none(), now=NOW)
    fixed = STREAMS["integral"].build(0)
    yield "before the clock", lambda: fixed.sum(now=NOW - 4_000)
