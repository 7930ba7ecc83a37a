"""Laws of the ECM-sketch: what its state and bytes depend on, and what they do not."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from ecm.events import SMALL, Event, batches, built, events_in_order, feed, one_by_one, params
from hypothesis import given, settings
from hypothesis import strategies as st

from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
from decaysketch.errors import ConflictingSketchError

SIZES = st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4)
EVENTS = st.builds(Event, st.integers(0, 5), st.integers(0, 30), st.just(1))
SHUFFLES = st.randoms(use_true_random=False)
FEW = settings(max_examples=40, deadline=None)


class TestState:
    @FEW
    @given(params(), events_in_order(), SIZES)
    def test_does_not_depend_on_batches(
        self, params: ECMParams, events: list[Event], sizes: list[int]
    ) -> None:
        whole = built(params, events)
        parts = ECMSketch(params, source=0, epoch=0)
        for batch in batches(events, sizes):
            feed(parts, batch)
        assert parts.to_bytes() == whole.to_bytes() == one_by_one(params, events).to_bytes()
        assert parts == whole

    @FEW
    @given(params(), events_in_order(), SHUFFLES)
    def test_does_not_depend_on_the_order_of_ties(
        self, params: ECMParams, events: list[Event], shuffle: random.Random
    ) -> None:
        tied = [*events]
        shuffle.shuffle(tied)
        tied.sort(key=lambda event: event.time)
        assert one_by_one(params, tied) == built(params, events)

    @FEW
    @given(params(), events_in_order())
    def test_does_not_depend_on_how_weights_are_cut(
        self, params: ECMParams, events: list[Event]
    ) -> None:
        cut = [
            Event(e.key, e.time, weight)
            for e in events
            for weight in (e.weight // 3, e.weight - e.weight // 3)
        ]
        assert built(params, cut) == built(params, events)

    @FEW
    @given(params(), events_in_order(), st.sampled_from([1, 8, 1100]), SIZES, SHUFFLES)
    def test_does_not_depend_on_order_within_hold(
        self, params: ECMParams, events: list[Event], hold: int, sizes: list[int],
        shuffle: random.Random,
    ) -> None:  # fmt: skip
        holding = replace(params, hold=hold)
        # Each arrives up to `hold` later than it happened.
        arrived = [(event.time + shuffle.randint(0, hold), event) for event in events]
        arrived.sort(key=lambda pair: pair[0])
        sketch = ECMSketch(holding, source=0, epoch=0)
        for batch in batches([event for _, event in arrived], sizes):
            feed(sketch, batch)
            if shuffle.random() < 0.3:
                sketch.to_bytes()  # reading changes nothing
        whole = built(holding, events)
        assert sketch.too_late == 0
        assert sketch.to_bytes() == whole.to_bytes()

    @FEW
    @given(params(), st.lists(EVENTS, max_size=40), st.sampled_from([0, 4]), SIZES)
    def test_is_not_changed_by_reading(
        self, params: ECMParams, events: list[Event], hold: int, sizes: list[int]
    ) -> None:
        """However late events are, and wherever between them somebody asks."""
        holding = replace(params, hold=hold)
        silent, read = (ECMSketch(holding, source=0, epoch=0) for _ in range(2))
        for batch in batches(events, sizes):
            feed(silent, batch)
            feed(read, batch)
            read.digest()
            assert ECMSketch.from_bytes(read.to_bytes()) == read
        assert silent.to_bytes() == read.to_bytes()
        assert silent.too_late == read.too_late

    @FEW
    @given(params(), events_in_order(), st.integers(0, 60), SIZES)
    def test_goes_on_from_bytes_as_if_nothing_had_happened(
        self, params: ECMParams, events: list[Event], at: int, sizes: list[int]
    ) -> None:
        """With a horizon, too: what bytes leave out nobody needs."""
        sketch = built(params, events[:at])
        restored = ECMSketch.from_bytes(sketch.to_bytes())
        assert restored == sketch
        for batch in batches(events[at:], sizes):
            restored = ECMSketch.from_bytes(feed(restored, batch).to_bytes())
        assert restored.to_bytes() == built(params, events).to_bytes()


def states_of(events: list[Event], params: ECMParams, shuffle: random.Random) -> list[ECMSketch]:
    """Of three sources, each at several of its moments, and one of them begun anew."""
    found = []
    names = [("north", 1), ("south", 1), (17, 2), ("south", 3)]
    sketches = [ECMSketch(params, source=source, epoch=epoch) for source, epoch in names]
    for event in events:
        sketch = shuffle.choice(sketches)
        feed(sketch, [event])
        if shuffle.random() < 0.4:
            found.append(sketch.copy())
    return found + sketches


class TestCollections:
    @FEW
    @given(params(), events_in_order(), SHUFFLES)
    def test_do_not_depend_on_order_repetition_partition_or_tree(
        self, params: ECMParams, events: list[Event], shuffle: random.Random
    ) -> None:
        states = states_of(events, params, shuffle)
        expected = ECMCollection(params, states)
        posted = states + shuffle.choices(states, k=5)
        shuffle.shuffle(posted)
        forest = [ECMCollection(params, [state]) for state in posted]
        while len(forest) > 1:
            first, second = (forest.pop(shuffle.randrange(len(forest))) for _ in range(2))
            if shuffle.random() < 0.3:
                second = ECMCollection.from_bytes(second.to_bytes(), params=params)
            before = second.digest()
            first.merge(second)
            assert second.digest() == before
            forest.append(first)
        assert forest[0].to_bytes() == expected.to_bytes()
        assert forest[0] == expected

    @FEW
    @given(events_in_order(), SHUFFLES, st.integers(0, 1500))
    def test_leave_out_what_is_past_the_horizon_whatever_the_order(
        self, events: list[Event], shuffle: random.Random, horizon: int
    ) -> None:
        params = replace(SMALL, horizon=horizon)
        states = states_of(events, params, shuffle)
        whole = ECMCollection(params, states)
        newest = max((s.clock for s in states if s.clock is not None), default=0)
        latest: dict[Any, int] = {}
        for state in states:
            if state.clock is not None:
                name = state.source, state.epoch
                latest[name] = max(latest.get(name, state.clock), state.clock)
        kept = {name for name, clock in latest.items() if clock >= newest - horizon}
        assert {name for name, state in whole.entries.items() if state.clock is not None} == kept

    @FEW
    @given(params(), events_in_order(), SHUFFLES)
    def test_compact_to_bytes_that_depend_on_the_set_alone(
        self, params: ECMParams, events: list[Event], shuffle: random.Random
    ) -> None:
        states = states_of(events, params, shuffle)
        one = ECMCollection(params, states).compact(source="region", epoch=1)
        shuffle.shuffle(states)
        other = ECMCollection(params, states).compact(source="region", epoch=1)
        assert one.to_bytes() == other.to_bytes()
        assert ECMSketch.from_bytes(one.to_bytes()) == one


class TestForks:
    def test_of_equal_numbers_are_refused_by_name(self) -> None:
        ours = built(SMALL, [Event(1, 10), Event(2, 20)], source="tap", epoch=5)
        theirs = built(SMALL, [Event(1, 10), Event(3, 20)], source="tap", epoch=5)
        collection = ECMCollection(SMALL, [ours])
        before = collection.to_bytes()
        with pytest.raises(ConflictingSketchError, match=r"\('tap', 5\)") as caught:
            collection.merge(theirs)
        for sketch in (ours, theirs):
            assert sketch.state().digest[:16] in str(caught.value)
        assert collection.to_bytes() == before

    def test_of_which_neither_is_a_prefix_are_refused(self) -> None:
        """One saw more, the other is later."""
        ours = built(SMALL, [Event(1, 10), Event(2, 10), Event(2, 11)])
        theirs = built(SMALL, [Event(1, 10), Event(2, 30)])
        for one, other in ((ours, theirs), (theirs, ours)):
            with pytest.raises(ConflictingSketchError):
                ECMCollection(SMALL, [one, other])

    def test_are_none_where_a_source_goes_on(self) -> None:
        early = built(SMALL, [Event(1, 10)])
        late = feed(early.copy(), [Event(1, 10)])
        later = late.copy()
        later.advance(50)
        for order in ([early, late, later], [later, early, late]):
            assert ECMCollection(SMALL, order).entries[0, 0].version == later.state().version

    def test_are_none_where_merged_sources_become_fewer(self) -> None:
        params = replace(SMALL, horizon=100)
        region = ECMCollection(
            params, [built(params, [Event(1, 10, 7)], source="a"), built(params, [Event(1, 60)])]
        )
        before = region.compact(source="region")
        region.merge(built(params, [Event(1, 60), Event(1, 150)]))  # and "a" is past the horizon
        after = region.compact(source="region")
        assert after.seen < before.seen
        for order in ([before, after], [after, before]):
            upstream = ECMCollection(params, order)
            assert upstream.seen == after.seen
