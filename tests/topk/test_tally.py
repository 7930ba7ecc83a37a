"""A tally's counts are those of going through all events."""

from __future__ import annotations

import numpy as np
import pytest

import decaysketch as ds
from decaysketch.errors import DecaySketchError
from decaysketch.topk import Tally


@pytest.mark.parametrize("decay", [ds.decay.window(30), ds.decay.exponential(half_life=9)])
def test_counts_at_any_time_are_exact_and_reading_changes_nothing(decay: ds.Decay) -> None:
    rng = np.random.default_rng(3)
    items, times = rng.integers(0, 9, 300), rng.integers(-50, 150, 300)
    tally = Tally(decay)
    for part in range(0, 300, 100):
        tally.update(items[part : part + 100], times[part : part + 100])
    for as_of in (200, -60, 0, 75, 149):
        true: dict[int, float] = {}
        for item, time in zip(items.tolist(), times.tolist(), strict=True):
            if time <= as_of and (weight := float(decay([as_of - time])[0])):
                true[item] = true.get(item, 0) + weight
        assert tally.at(as_of) == pytest.approx(true)
    assert len(tally) == 300
    before = tally.at(140)
    tally.advance(140)
    assert tally.at(140) == pytest.approx(before)
    assert len(tally) < 300 or decay.support == np.inf


def test_windows_count_in_whole_numbers() -> None:
    tally = Tally(ds.decay.window(5))
    assert tally.at(0) == {}
    tally.update(["x", "x", 3], [1, 2, 2])
    assert tally.at(6) == {"x": 2, 3: 1}
    assert all(type(count) is int for count in tally.at(6).values())
    assert tally.at(7) == {"x": 1, 3: 1}


@pytest.mark.parametrize(
    ("items", "times"),
    [(["a"], [1, 2]), ([1.5], [1]), ([None], [1]), (["a"], [1 << 63]), (["a"], ["b"])],
)
def test_what_is_no_event_is_refused_and_nothing_is_taken(items: list, times: list) -> None:  # type: ignore[type-arg]
    tally = Tally(ds.decay.none())
    with pytest.raises(DecaySketchError):
        tally.update(items, times)
    assert len(tally) == 0
    assert tally.at(5) == {}
