"""Histories of a joint sample are the true ones: by enumeration, by the reference, and as a law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources.streams import Heard, drawn

import decaysketch as ds
from decaysketch import minhit
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.querytime.joint import joint_of, matches
from decaysketch.sources import reference
from decaysketch.sources.joint import UNBOUNDED, Joint

TRIALS = 150


def small(trial: int) -> tuple[Heard, dict[str, ds.DecaySketch], int]:
    """A small stream of unequal sources, their sketches, and the largest lag."""
    rng = np.random.default_rng(trial)
    n, k = int(rng.integers(20, 400)), int(rng.integers(2, 6))
    lag, heaviest = int(rng.integers(0, 60)), int(rng.choice([1, 1, 5]))
    stream = drawn(rng, n, rng.uniform(0.1, 0.9, k), span=1000, lag=lag, max_weight=heaviest)
    sketches = stream.sketches(rng.integers(2, 40, k), seed=trial, max_weight=heaviest)
    return stream, sketches, lag


def joint(sketches: dict[str, ds.DecaySketch], guard: int) -> Joint:
    (match,) = matches([each.snapshot() for each in sketches.values()])
    return joint_of(match, np.full(len(sketches), guard, np.int64), 0)


def wrong(stream: Heard, found: Joint) -> int:
    held = np.stack([found.heard(source) for source in range(len(stream.names))], axis=1)
    return int((held != stream.heard[found.columns.ids]).any(axis=1).sum())


def test_no_history_is_wrong_with_a_guard_and_some_are_without() -> None:
    rows = {"none": 0, "known": 0, "unbounded": 0}
    mistakes = dict.fromkeys(rows, 0)
    for trial in range(TRIALS):
        stream, sketches, lag = small(trial)
        for name, guard in (("none", 0), ("known", lag), ("unbounded", UNBOUNDED)):
            found = joint(sketches, guard)
            rows[name] += len(found)
            mistakes[name] += wrong(stream, found)
    assert mistakes["known"] == mistakes["unbounded"] == 0
    assert min(rows.values()) > 1000
    assert mistakes["none"] > 100  # the enumeration can fail


def test_every_message_is_there_that_the_watermarks_leave_known() -> None:
    for trial in range(TRIALS):
        stream, sketches, lag = small(trial)
        found = joint(sketches, lag)
        params = found.match.states[0].params
        levels = minhit.top_levels(params, np.arange(len(stream.weights)), stream.weights)
        known = stream.heard.any(axis=1) & (stream.latest > found.watermarks[levels])
        assert sorted(found.columns.ids.tolist()) == np.flatnonzero(known).tolist()
        assert found.columns.times.tolist() == stream.latest[found.columns.ids].tolist()
        assert (np.diff(found.columns.times) <= 0).all()


def test_the_kernels_agree_with_the_reference() -> None:
    for trial in range(60):
        _, sketches, lag = small(trial)
        found = joint(sketches, lag)
        states = found.match.states
        sources = [
            list(zip(s.ids.tolist(), s.weights.tolist(), s.times.tolist(), s.levels.tolist(),
                     strict=True))
            for s in states
        ]  # fmt: skip
        expected = reference.histories(sources, found.marks.tolist())
        columns = found.columns
        heard = np.stack([found.heard(source) for source in range(len(states))], axis=1)
        rows = zip(columns.ids.tolist(), columns.weights.tolist(), columns.times.tolist(),
                   heard, strict=True)  # fmt: skip
        held = {
            (id_, weight): (time, frozenset(np.flatnonzero(row).tolist()))
            for id_, weight, time, row in rows
        }
        assert held == expected
        assert found.degrees.tolist() == heard.sum(axis=1).tolist()


def test_lags_and_latest_duplicates_are_those_of_the_rows() -> None:
    _, sketches, _ = small(4)
    (match,) = matches([each.snapshot() for each in sketches.values()])
    for source, state in enumerate(match.states):
        times = match.latest[match.messages_of(source)]
        assert match.ids[match.messages_of(source)].tolist() == state.ids.tolist()
        assert match.lags[source] == (times - state.times).max(initial=0)
    assert match.rows == sum(map(len, match.states))
    assert match.scattered


def test_a_guard_of_its_own_is_safe_and_needs_no_more_than_the_lag_of_a_source() -> None:
    """Only a source that lags behind needs a guard."""
    rng = np.random.default_rng(5)
    stream = drawn(rng, 600, (0.8, 0.8), span=1000)
    late = stream.times + np.array([0, 50])
    stream = Heard(stream.heard, late, stream.weights)
    (match,) = matches([each.snapshot() for each in stream.sketches(20, seed=1).values()])
    assert match.lags.tolist() == [50, 0]
    found = joint_of(match, np.array([50, 0]), 0)
    assert wrong(stream, found) == 0
    assert len(found) > len(joint_of(match, np.array([50, 50]), 0))


def test_a_level_that_discarded_nothing_needs_no_guard() -> None:
    found = joint(small(3)[1], UNBOUNDED)
    marks = np.stack([state.watermarks for state in found.match.states])
    assert ((found.marks == NO_WATERMARK) == (marks == NO_WATERMARK)).all()
    assert (found.marks[marks != NO_WATERMARK] == UNBOUNDED).all()


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Posts of sources, each of (time, id, weight); a source may post several times."""
    row = st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(1, 3))
    post = st.tuples(st.sampled_from(["a", "b", "c"]), st.lists(row, max_size=25))
    posts: list[tuple[str, list[tuple[int, int, int]]]] = draw(st.lists(post, max_size=8))
    return posts


PARAMS = ds.SketchParams(capacity=4, seed=9, max_weight=3, time_unit="s")
EXPRESSIONS = ("a", "a & b", "a - b", "any", "exactly(1)", "~c", "(a | b) - c", "at_least(2)")


def posted(posts: Any) -> dict[str, ds.DecaySketch]:
    made = {name: ds.DecaySketch(PARAMS) for name in "abc"}
    for name, rows in posts:
        part = ds.DecaySketch(PARAMS)
        for time, id_, weight in rows:
            part.update(None, weight, time, id_)
        made[name].merge(part)
    return made


@settings(max_examples=40, deadline=None)
@given(deliveries(), st.randoms(use_true_random=False))
def test_no_result_depends_on_order_merges_or_posts_that_come_again(posts: Any, rng: Any) -> None:
    again = [*posts, *posts[:3]]
    rng.shuffle(again)
    names = list("abc")
    rng.shuffle(names)
    first, second = posted(posts), posted(again)
    decay = ds.decay.exponential(half_life=20)
    one = ds.SourceSet(first, guard=5).at(decay, 70)
    other = ds.SourceSet({name: second[name] for name in names}, guard=5).at(decay, 70)
    for expression in EXPRESSIONS:
        assert one.count(expression) == other.count(expression)
        assert repr(one.share(expression)) == repr(other.share(expression))
        assert one.missing(expression) == other.missing(expression)
    assert repr(one.exclusive()) == repr(other.exclusive())
    assert one.heard_by() == other.heard_by()
    assert one.histories() == other.histories()
    assert repr(one.cover()) == repr(other.cover())


@pytest.mark.parametrize("lag", [0, 40])
def test_cells_of_three_sources_are_unbiased(lag: int) -> None:
    rng = np.random.default_rng(1)
    stream = drawn(rng, 1500, (0.9, 0.3, 0.05), lag=lag)
    decay, now = ds.decay.exponential(half_life=20_000), 100_100
    sets = ["a-b-c", "b-a-c", "c-a-b", "(a&b)-c", "(a&c)-b", "(b&c)-a", "a&b&c"]
    masks = [
        (stream.heard == np.array([source in held for source in range(3)])).all(axis=1)
        for held in ({0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2})
    ]
    truth = np.array([stream.mass(decay, now, mask) for mask in masks])
    found = []
    for seed in range(120):
        view = ds.SourceSet(stream.sketches(60, seed=seed), guard=lag).at(decay, now)
        counts = [view.where(f"({each}) & at_least(1)").ask("count").value for each in sets]
        found.append(counts)
    cells = np.array(found)
    z = (cells.mean(axis=0) - truth) / (cells.std(axis=0) / np.sqrt(len(cells)))
    assert np.abs(z).max() < 3.5  # seven cells, two-sided: 0.3 % by chance


@pytest.mark.parametrize("lag", [0, 30])
def test_many_sources_match_as_few_do(lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = drawn(np.random.default_rng(6), 900, (0.9, 0.5, 0.2), span=500, lag=lag)
    sketches = stream.sketches(60, seed=2)
    found = []
    for few in (64, 2):
        monkeypatch.setattr("decaysketch.sources.joint.FEW", few)
        one = joint(sketches, lag)
        found.append(
            (
                one.columns.ids.tolist(),
                one.times.tolist(),
                one.degrees.tolist(),
                one.match.lags.tolist(),
                one.match.misses(one.messages[::3].copy()).tolist(),
            )
        )
    assert found[0] == found[1]
    assert one.match.scattered == bool(lag)
    assert len(one) > 100


def test_duplicates_far_apart_in_time_match_across_blocks() -> None:
    """Rows are matched block by block of time; this many rows are several blocks."""
    stream = drawn(np.random.default_rng(3), 12_000, np.array([0.9, 0.6, 0.3]), span=1000, lag=900)
    (found,) = matches([each.snapshot() for each in stream.sketches(100_000, seed=3).values()])
    states = found.states
    ids = np.concatenate([state.ids for state in states])
    assert found.rows > 20_000
    assert found.ids[found.groups].tolist() == ids.tolist()
    known, degrees = np.unique(ids, return_counts=True)
    order = np.argsort(found.ids)
    assert found.ids[order].tolist() == known.tolist()
    assert found.degrees[order].tolist() == degrees.tolist()
    assert found.latest[order].tolist() == stream.latest[known].tolist()
