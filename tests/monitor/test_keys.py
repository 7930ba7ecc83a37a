"""Alerts on key counts: the spec, and the largest share of one key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
from decaysketch.errors import ParameterError
from decaysketch.families import recipe_of
from decaysketch.monitor import Monitor, Threshold
from decaysketch.monitor.explanation import explain

PARAMS = ECMParams(width=200, depth=4, slots=8, seed=4, key_bits=16, fanout_bits=4)
TEXTS = ECMParams(width=200, depth=4, slots=8, seed=4)
WINDOW = ds.decay.window(10_000)


def _snapshot(keys: Any, params: ECMParams = PARAMS) -> Any:
    sketch = ECMSketch(params, source="a", epoch=1)
    sketch.update(keys, np.arange(len(keys)))
    return ECMCollection(params, [sketch]).snapshot()


@pytest.mark.parametrize("law", ["one heavy", "zipf", "equal", "two", "one key"])
@pytest.mark.parametrize("line", [0.002, 0.05, 0.5])
def test_the_interval_contains_the_largest_share(law: str, line: float) -> None:
    draw = np.random.default_rng(17)
    keys = {
        "one heavy": np.where(draw.random(3000) < 0.3, 77, draw.integers(0, 1 << 16, 3000)),
        "zipf": draw.zipf(1.2, 3000) % (1 << 16),
        "equal": draw.permutation(1 << 13)[:3000],
        "two": draw.integers(5, 7, 3000),
        "one key": np.full(3000, 9),
    }[law]
    top = np.unique(keys, return_counts=True)[1].max() / len(keys)
    monitor = Monitor.of(
        "m", 1, Threshold("top_key_share", above=line, decay=WINDOW), recipe_of(PARAMS)
    )
    found = monitor.ask(_snapshot(keys).at(WINDOW, 3000))
    assert found.lower <= top <= found.upper
    state = monitor.plain(found)
    assert state.verdict in ({"firing", "uncertain"} if top >= line else {"calm", "uncertain"})


def test_nothing_is_calm_and_not_defined() -> None:
    spec = Threshold("top_key_share", above=0.5, decay=WINDOW)
    monitor = Monitor.of("m", 1, spec, recipe_of(PARAMS))
    state = monitor.plain(monitor.ask(_snapshot([1, 2]).at(WINDOW, 1_000_000)))
    assert (state.verdict, state.value) == ("calm", None)
    assert "no data counts now" in explain(spec, state)


@pytest.mark.parametrize("key", [True, "", 1.5, 1 << 64, "x" * 1001, ["ada", 7], None])
def test_a_key_is_an_integer_or_a_text(key: Any) -> None:
    form = {"kind": "threshold", "question": "key_count", "above": 5, "key": key}
    with pytest.raises(ParameterError, match="key is"):
        Threshold.from_dict(form | {"decay": "window(1h)"}, time_unit="s")


@pytest.mark.parametrize(
    ("spec", "params", "match"),
    [
        (Threshold("key_count", key="ada", above=5, decay=WINDOW), PARAMS, "key is 'ada'"),
        (Threshold("key_share", key=1 << 16, above=0.5, decay=WINDOW), PARAMS, "key is 65536"),
        (Threshold("top_key_share", above=0.5, decay=WINDOW), TEXTS, "key_bits"),
        (Threshold("mean", above=5, decay=WINDOW), PARAMS, "family 'ecm' answers .*key_count"),
    ],
)
def test_a_stream_that_cannot_answer_is_rejected_by_name(
    spec: Threshold, params: ECMParams, match: str
) -> None:
    with pytest.raises(ParameterError, match=match):
        Monitor.of("m", 1, spec, recipe_of(params))


def test_keys_of_both_kinds_survive_json() -> None:
    for key in (7, "ada"):
        spec = Threshold("key_share", key=key, below=0.5, decay=WINDOW)
        assert Threshold.from_dict(spec.to_dict()) == spec
        Monitor.of("m", 1, spec, recipe_of(TEXTS))
