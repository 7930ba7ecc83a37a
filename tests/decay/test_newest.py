"""A decay that leaves weight to the newest instant alone is said, where it is hardly meant."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decaysketch as ds
from decaysketch.core.plausible_times import left_out_by_age

START = 1_767_225_600  # 2026-01-01
MINUTES = START + 60 * np.arange(100)


def sketch(unit: str, size: int, times: Any = MINUTES) -> ds.DecaySketch:
    made = ds.DecaySketch(ds.SketchParams(max_weight=1, capacity=1000, time_unit=unit))
    made.update(np.ones(len(times)), 1, times * size, np.arange(len(times)))
    return made


@pytest.mark.parametrize(
    "text",
    [
        "window(3600)",
        "exponential(half_life=600)",
        {"kind": "window", "width": 600},
        "max(1 - x, 0)",
    ],
)
def test_seconds_where_microseconds_are_meant(text: Any) -> None:
    held = sketch("us", 10**6)
    for ask in (
        lambda: held.count(text),
        lambda: held.mean(text, now=START * 10**6 + 120_000_000),
        lambda: held.compare("count", now=("window(1h)", None), then=(text, "10min")),
    ):
        with pytest.warns(ds.NewestOnlyWarning, match="the next one is 1m older: .* in us") as said:
            ask()
        assert [each.filename for each in said] == [__file__]


@pytest.mark.parametrize(
    "text",
    ["window(1h)", "window(1s)", {"kind": "window", "width": "600us"}, "none", "window(7e7)"],
)
def test_what_has_a_unit_or_reaches_the_next_instant_is_meant(text: Any) -> None:
    sketch("us", 10**6).count(text)  # a warning is an error here


def test_what_is_no_date_or_has_nothing_beside_the_newest_says_nothing() -> None:
    sketch("s", 1, np.arange(0, 6000, 60)).count("window(1)")
    sketch("ticks", 1).count("window(1)")
    sketch("s", 1, MINUTES[:1]).count("window(1)")
    held = sketch("s", 1)
    held.count("window(1)", now=START - 1)  # before the oldest
    held.count("window(1)", now=int(MINUTES[-1]) + 30)  # the newest has no weight either
    held.count(ds.decay.window(1))  # nobody knows how it was written
    ds.DecaySketch(held.params).count("window(1)", now=START)


def test_the_newest_instant_of_several_rows_and_of_later_ones() -> None:
    times = np.array([9, 9, 5, 5, 1]) + START

    def found(width: int, now: int) -> str | None:
        return left_out_by_age(lambda ages: ages <= width, times, START + now, "s")

    assert found(3, 9) == "only the newest instant has weight, and the next one is 4s older"
    assert found(4, 9) is None
    assert (found(3, 5) or "").endswith("4s older")
    assert (found(3, 8) or "").endswith("4s older")
    assert found(3, 1) is None


def test_whole_weights_that_a_fixed_decay_makes_0_at_once() -> None:
    frame = pd.DataFrame(
        {"t": pd.to_datetime(MINUTES, unit="s", utc=True).astype("datetime64[us, UTC]"), "v": 1.0,
         "id": range(len(MINUTES))}
    )  # fmt: skip
    read: dict[str, Any] = {"time": "t", "value": "v", "id": "id"}

    def built(decay: str, most: int) -> ds.IntegralDecaySketch:
        params = ds.SketchParams(max_weight=most, capacity=1000, time_unit="us")
        return ds.IntegralDecaySketch.from_frame(
            frame, decay=decay, params=params, weight=most, **read
        )

    for decay, most in (("exponential(half_life=1h)", 1), ("exponential(half_life=3600)", 100)):
        with pytest.warns(
            ds.NewestOnlyWarning, match=f"1m older: .* the largest is {most} "
        ) as said:
            assert built(decay, most).count().value == 1
        assert [each.filename for each in said] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(built("exponential(half_life=1h)", 100)) == len(MINUTES)
        assert built("window(1h)", 1).count().value == 61
