"""Questions suit the log: decays a person would choose, times at which something happened."""

from __future__ import annotations

import polars as pl
import pytest

from demo.questions import Decay, ask_about, duration_text, nice_duration, suitable_times

HOUR_US = 3600 * 10**6


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [(1_000, "1 ms"), (90 * 10**6, "1.5 min"), (HOUR_US, "1 h"), (36 * HOUR_US, "1.5 d")],
)
def test_duration_text(duration_us: int, text: str) -> None:
    assert duration_text(duration_us) == text


def test_nice_duration() -> None:
    assert nice_duration(1.3 * HOUR_US) == HOUR_US
    assert nice_duration(50 * 10**6) == 60 * 10**6


def test_labels_and_json() -> None:
    assert Decay("window", HOUR_US).label == "window 1 h"
    assert Decay("polynomial", HOUR_US, exponent=1.5).label == "(1 + age / 1 h)^-1.5"
    assert Decay("none").to_json() == {"kind": "none"}
    assert Decay("exponential", 7).to_json() == {"kind": "exponential", "half_life": 7}


def test_at_least_200_answers_on_a_log_of_weight_one() -> None:
    cells = ask_about(pl.Series(range(0, 10**12, 10**9)))
    assert len(cells) == len(set(cells)) == 8 * 14
    assert len(cells) * 6 >= 200


def test_times_are_those_of_messages() -> None:
    times = pl.Series([5, 1, 9, 100])
    chosen = suitable_times(times, 6)
    assert set(chosen) <= set(times)
    assert chosen == sorted(set(chosen))
    assert chosen[-1] == 100
