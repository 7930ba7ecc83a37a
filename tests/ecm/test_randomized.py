"""The randomized sketch: lossless, insensitive to copies, and the paper's wave in every cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch.core import hashing
from decaysketch.ecm import paper, randomized
from decaysketch.ecm.randomized import RandomizedParams, RandomizedSketch
from decaysketch.errors import (
    IncompatibleSketchError,
    ObservationError,
    ParameterError,
    UnanswerableQueryError,
)

SMALL = RandomizedParams(width=7, depth=2, capacity=12)


def fed(params: RandomizedParams, events: list[tuple[int, int, int]]) -> RandomizedSketch:
    """Of events (key, time, id)."""
    sketch = RandomizedSketch(params)
    if events:
        keys, times, ids = (list(column) for column in zip(*events, strict=True))
        sketch.update(keys, times, ids)
    return sketch


def drawn(seed: int, n: int, keys: int = 30, span: int = 200) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    columns = (rng.integers(0, keys, n), rng.integers(0, span, n), rng.integers(0, n, n))
    return list(zip(*(column.tolist() for column in columns), strict=True))


events_of = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 60)), max_size=120
)


@settings(max_examples=60, deadline=None)
@given(events=events_of, data=st.data())
def test_any_order_copies_and_parts_have_the_state_of_the_whole(
    events: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    params = RandomizedParams(width=3, depth=2, capacity=4, copies=3)
    whole = fed(params, events)
    copies = data.draw(st.lists(st.sampled_from(events), max_size=30)) if events else []
    shuffled = data.draw(st.permutations(events + copies))
    cut = data.draw(st.integers(0, len(shuffled)))
    left, right = fed(params, shuffled[:cut]), RandomizedSketch(params)
    for event in shuffled[cut:]:
        right.update([event[0]], [event[1]], [event[2]])
    before = right.copy()
    left.merge(right)
    assert left == whole
    assert right == before
    right.merge(left, whole, right)
    assert right == whole


def test_a_long_stream_shuffled_duplicated_split_and_merged() -> None:
    rng, events = np.random.default_rng(1), drawn(1, 20_000, keys=400, span=5_000)
    params = RandomizedParams(width=20, depth=2, capacity=50)
    whole = fed(params, events)
    order = rng.permutation(np.r_[0:20_000, rng.integers(0, 20_000, 8_000)]).tolist()
    parts = [fed(params, [events[i] for i in order[k::4]]) for k in range(4)]
    union = RandomizedSketch(params)
    for k in (2, 0, 3, 1, 2):
        union.merge(parts[k])
    assert union == whole
    assert 0 < len(whole) < 20_000 * params.sheets
    assert whole != fed(params, [*events[:-1], (1, 10**6, 1)])


def test_a_cell_is_the_randomized_wave_of_the_paper() -> None:
    events = drawn(2, 3_000, span=100)
    sketch = fed(SMALL, events)
    identities = hashing.hash_keys(
        ([key for key, _, _ in events], [i for _, _, i in events]), SMALL.key_word
    )
    words = hashing.hash_keys(([key for key, _, _ in events],), SMALL.key_word)
    for row in range(SMALL.depth):
        level = dict(zip(identities.tolist(), SMALL.levels(row, identities).tolist(), strict=True))
        waves = [
            paper.RandomizedWave(SMALL.capacity, randomized.LEVELS, level.__getitem__)
            for _ in range(SMALL.width)
        ]
        columns = SMALL.columns(row, words).tolist()
        for column, (_, time, _), identity in zip(
            columns, events, identities.tolist(), strict=True
        ):
            waves[column].add(time, identity)
        for window in (0, 1, 10, 50, 98, 99, 500):
            found = sketch.grid(window, now=99)[row].tolist()
            assert found == [wave.estimate(99 - window) for wave in waves]


def test_small_windows_are_exact_and_both_their_ends_count() -> None:
    params = RandomizedParams(width=64, depth=3, capacity=100)
    sketch = RandomizedSketch(params)
    sketch.update(["ann", "bob", "ann", "ann"], [10, 10, 15, 20], ids=[1, 1, 2, 3])
    assert sketch.counts(["ann", "bob", "eve"], 10).tolist() == [3, 1, 0]
    assert sketch.counts(["ann"], ds.decay.window(5)).tolist() == [2]
    assert sketch.counts(["ann"], 4).tolist() == [1]
    assert sketch.counts(["ann"], 5, now=15).tolist() == [2]  # what is later does not count
    assert sketch.counts(["ann"], 10**30).tolist() == [3]
    sketch.update(["ann", "ann"], [11, 30], ids=[2, 1])  # an older copy, and a later one
    assert sketch.counts(["ann"], 14, now=25).tolist() == [2]
    assert sketch.counts(["ann"], 20, now=30).tolist() == [3]


def test_every_key_of_several_columns_and_any_ids() -> None:
    sketch = RandomizedSketch(SMALL)
    sketch.update((["a", "a"], [1, 2]), [5, 6], ids=["x", "x"])
    assert sketch.counts((["a", "a", "a"], [1, 2, 3]), 3).max() == 1


def test_errors_are_within_epsilon_as_often_as_promised() -> None:
    """Theorem 3: 40 sketches, each of 400 keys. Failures of one sketch are dependent; the mean
    share of them over sketches is far below delta."""
    epsilon, delta, n = 0.15, 0.2, 6_000
    rng = np.random.default_rng(3)
    shares = []
    for seed in range(40):
        params = RandomizedParams.for_accuracy(epsilon, delta, seed=seed)
        keys = np.minimum(rng.zipf(1.3, n), 400) - 1
        times = np.sort(rng.integers(0, 1_000, n))
        sketch = RandomizedSketch(params)
        sketch.update(keys, times, np.arange(n))
        for window in (999, 300):
            exact = np.bincount(keys[times >= times[-1] - window], minlength=400)
            found = sketch.counts(np.arange(400), window)
            shares.append(np.mean(np.abs(found - exact) > epsilon * exact.sum()))
    assert np.mean(shares) <= delta
    assert max(shares) <= delta


def test_the_median_of_copies_is_closer_than_one() -> None:
    errors = {}
    for copies in (1, 9):
        found = []
        for seed in range(60):
            sketch = RandomizedSketch(
                RandomizedParams(width=1, depth=1, capacity=30, copies=copies, seed=seed)
            )
            sketch.update(np.zeros(1_000, int), np.arange(1_000), np.arange(1_000))
            found.append(abs(float(sketch.counts([0], 10_000)[0]) / 1_000 - 1))
        errors[copies] = np.mean(found)
    assert errors[9] < 0.6 * errors[1]


def test_sizes_for_an_accuracy() -> None:
    practical = RandomizedParams.for_accuracy(0.15, 0.1)
    proven = RandomizedParams.for_accuracy(0.15, 0.1, mode="proven")
    assert (practical.width, practical.depth, practical.copies) == (21, 3, 1)
    low = 0.1 / 2 / 3  # of each row: the minimum is low where any is
    assert proven.copies == math.ceil(36 * math.log(1 / low)) | 1
    assert proven.capacity == math.ceil(36 / 0.15**2) > practical.capacity > 240


def test_columns_are_even_and_levels_halve() -> None:
    """Chi-square and binomial bounds at five standard deviations."""
    params = RandomizedParams(width=40, depth=3, capacity=1)
    words = np.arange(40_000, dtype=np.uint64)
    for row in range(3):
        counts = np.bincount(params.columns(row, words), minlength=40)
        assert len(counts) == 40
        chi = float(((counts - 1_000) ** 2 / 1_000).sum())
        assert abs(chi - 39) < 5 * math.sqrt(78)
        levels = params.levels(row, words)
        for level in range(8):
            share = (levels >= level).mean()
            assert abs(share - 2.0**-level) < 5 * math.sqrt(2.0**-level / 40_000)
    assert (params.columns(0, words) == params.columns(1, words)).mean() < 0.05


@for_each(
    "call, error, words",
    [
        (lambda: RandomizedParams(0, 1, 1), ParameterError, ["width is 0", "65535"]),
        (lambda: RandomizedParams(1, 17, 1), ParameterError, ["depth is 17", "16"]),
        (lambda: RandomizedParams(1, 1, 0), ParameterError, ["capacity is 0"]),
        (lambda: RandomizedParams(1, 1, 1, copies=2), ParameterError, ["copies is 2", "odd"]),
        (lambda: RandomizedParams(1, 1, 1, seed=-1), ParameterError, ["seed is -1"]),
        (lambda: RandomizedParams(1, 1, 1, time_unit="S"), ParameterError, ["time_unit is 'S'"]),
        (lambda: RandomizedParams.for_accuracy(2, 0.1), ParameterError, ["epsilon is 2"]),
        (
            lambda: RandomizedParams.for_accuracy(0.1, 0.1, mode="any"),  # type: ignore[arg-type]
            ParameterError,
            ["mode is 'any'", "practical, proven"],
        ),
        (lambda: RandomizedParams.for_accuracy(0.001, 0.1), ParameterError, ["capacity is"]),
        (
            lambda: RandomizedSketch(SMALL).update([1, 2], [3], [4, 5]),
            ObservationError,
            ["timestamps has 1", "keys has 2"],
        ),
        (lambda: RandomizedSketch(SMALL).update([1], [0.5], [1]), ObservationError, ["timestamps"]),
        (lambda: RandomizedSketch(SMALL).counts([1], 5), UnanswerableQueryError, ["now is None"]),
        (lambda: RandomizedSketch(SMALL).counts([1], -1, now=3), ParameterError, ["window is -1"]),
        (
            lambda: RandomizedSketch(SMALL).counts([1], ds.decay.none(), now=3),  # type: ignore[arg-type]
            ParameterError,
            ["window is", "DecaySketch"],
        ),
        (
            lambda: RandomizedSketch(SMALL).merge(
                RandomizedSketch(RandomizedParams(7, 2, 12, seed=1))
            ),
            IncompatibleSketchError,
            ["seed: 0 != 1"],
        ),
    ],
)
def test_refusals(call: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as refusal:
        call()
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_a_window_beyond_all_levels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomized, "LEVELS", 2)
    sketch = fed(RandomizedParams(1, 1, 4), [(0, time, time) for time in range(100)])
    assert sketch.counts([0], 1)[0] == 2
    with pytest.raises(UnanswerableQueryError, match="window is 99"):
        sketch.counts([0], 99)


def test_a_refused_batch_changes_nothing_and_reading_neither() -> None:
    sketch = fed(SMALL, drawn(4, 500))
    before = sketch.copy()
    with pytest.raises(ObservationError):
        sketch.update([1, 2], [3, 1 << 63], [4, 5])
    sketch.counts([1, 2], 7, now=10**6)
    sketch.update(np.empty(0, int), [], np.empty(0, int))
    assert sketch == before
    assert "capacity=12" in repr(sketch)
    assert sketch.nbytes > 0
