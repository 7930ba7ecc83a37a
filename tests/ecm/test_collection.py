"""ECMCollection: what it joins, what it answers, and what it compacts to."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from ecm.events import SMALL, Event, built, feed

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch, sizing
from decaysketch.errors import (
    CapacityError,
    ConflictingSketchError,
    IncompatibleSketchError,
    ObservationError,
    ParameterError,
)

EVER = ds.decay.none()
PARAMS = ECMParams(width=40, depth=3, slots=5, seed=3)


def sites(count: int, params: ECMParams = PARAMS, rows: int = 4000) -> list[ECMSketch]:
    """A skewed stream, each event at a site of its own choice."""
    rng = np.random.default_rng(8)
    keys = rng.zipf(1.5, rows) % 1000
    times = np.sort(rng.integers(0, 50_000, rows))
    site = rng.integers(0, count, rows)
    found = []
    for number in range(count):
        sketch = ECMSketch(params, source=f"site-{number}", epoch=1)
        sketch.update(keys[site == number], times[site == number])
        found.append(sketch)
    return found


class TestJoin:
    def test_keeps_the_newest_state_of_each_source_and_epoch(self) -> None:
        source = built(SMALL, [Event(1, 10)], source="a", epoch=1)
        early = source.copy()
        feed(source, [Event(2, 20)])
        again = built(SMALL, [Event(1, 30)], source="a", epoch=2)
        collection = ECMCollection(SMALL, [source, again])
        collection.merge(early)
        assert list(collection.entries) == [("a", 1), ("a", 2)]
        assert (collection.seen, len(collection.entries), collection.sources) == (3, 2, ("a",))
        assert collection.entries["a", 1].digest == source.state().digest

    def test_takes_a_state_again_without_counting_it_twice(self) -> None:
        collection = ECMCollection(PARAMS, sites(3))
        before = collection.to_bytes()
        for sketch in sites(3):
            collection.merge(sketch, sketch.snapshot(), ECMCollection(PARAMS, [sketch]))
        assert collection.to_bytes() == before

    def test_leaves_what_it_takes_apart(self) -> None:
        sketch = built(SMALL, [Event(1, 10)])
        collection = ECMCollection(SMALL, [sketch])
        before = collection.to_bytes()
        feed(sketch, [Event(1, 20)])
        assert collection.to_bytes() == before
        copies = [collection.copy(), copy.deepcopy(collection), collection.snapshot().thaw()]
        for other in [*copies, pickle.loads(pickle.dumps(collection)), collection | collection]:
            assert other == collection
            other.merge(sketch)
            assert other != collection
        assert collection.to_bytes() == before

    def test_of_other_parameters_is_refused_with_all_that_differ(self) -> None:
        collection = ECMCollection(SMALL, [built(SMALL, [Event(1, 10)])])
        before = collection.to_bytes()
        other = replace(SMALL, width=6, hold=1)
        with pytest.raises(IncompatibleSketchError) as caught:
            collection.merge(built(SMALL, [Event(1, 20)]), built(other, []))
        assert caught.value.fields == {"width": (5, 6), "hold": (0, 1)}
        assert collection.to_bytes() == before
        with pytest.raises(TypeError, match="cannot merge a dict"):
            collection.merge({})  # type: ignore[arg-type]

    def test_has_no_more_entries_than_its_capacity(self) -> None:
        small = SMALL.with_capacity(2)
        collection = ECMCollection(SMALL, [built(SMALL, [], source=k) for k in range(2)])
        collection.merge(ECMCollection(small))
        assert collection.params == small
        with pytest.raises(ParameterError, match="3 entries; the capacity is 2"):
            collection.merge(built(SMALL, [], source=2))
        assert len(collection.entries) == 2

    def test_of_arrivals_is_of_one_source(self) -> None:
        """Figure 2: the last N of both depend on how they interleave."""
        params = replace(SMALL, clock="arrivals")
        first, second = (ECMSketch(params, source=source, epoch=1) for source in "ab")
        first.update([1, 2])
        early = first.copy()
        first.update([1])
        second.update([3])
        collection = ECMCollection(params, [first, early])
        assert collection.key_total(EVER).value == 3
        with pytest.raises(ParameterError, match="interleave"):
            collection.merge(second)
        with pytest.raises(ParameterError, match="interleave"):
            collection.compact()

    def test_forgets_a_source_that_is_dropped(self) -> None:
        collection = ECMCollection(SMALL, [built(SMALL, [Event(1, 5)], source=s) for s in "ab"])
        assert collection.drop("a") == 1
        assert collection.drop("a") == 0
        assert collection.sources == ("b",)
        assert collection.key_total(EVER).value == 1

    def test_gives_a_source_its_state_back(self) -> None:
        sketch = built(SMALL, [Event(1, 5)], source="a", epoch=9)
        collection = ECMCollection.from_bytes(ECMCollection(SMALL, [sketch]).to_bytes())
        found = collection.sketch("a", 9)
        assert found == sketch
        collection.merge(feed(found, [Event(1, 6)]))
        assert collection.seen == 2
        with pytest.raises(ParameterError, match="which there is none of"):
            collection.sketch("a", 8)


class TestRows:
    """Events that a collection counts itself."""

    COLUMNS = ([1, 2, 1, 3], [40, 10, 30, 20], [1, 2, 3, 4])
    WHOSE: ClassVar[dict[str, Any]] = {"source": ["a", "b", "a", "b"], "epoch": [1, 1, 1, 2]}

    def test_are_those_of_sketches_of_their_sources(self) -> None:
        collection = ECMCollection(SMALL)
        collection.update(*self.COLUMNS, **self.WHOSE)
        expected = ECMCollection(
            SMALL,
            [
                built(SMALL, [Event(1, 30, 3), Event(1, 40)], source="a", epoch=1),
                built(SMALL, [Event(2, 10, 2)], source="b", epoch=1),
                built(SMALL, [Event(3, 20, 4)], source="b", epoch=2),
            ],
        )
        assert collection == expected
        assert collection.stats().fed == 4
        assert (collection.newest, collection.stats().oldest, collection.seen) == (40, 10, 10)

    def test_wait_until_somebody_reads_so_that_their_order_says_nothing(self) -> None:
        rng = np.random.default_rng(4)
        keys, times = rng.integers(0, 9, 500), rng.permutation(500)
        whole, single = ECMCollection(SMALL), ECMCollection(SMALL)
        whole.update(keys, times, source="a")
        for key, time in zip(keys.tolist(), times.tolist(), strict=True):
            single.update(key, time, source="a")
        assert single == whole
        assert whole.too_late == 0
        assert len(whole.entries["a", 0].lanes) == 1

    def test_that_come_after_a_reading_go_on_from_it(self) -> None:
        collection = ECMCollection(SMALL)
        for time in range(0, 100, 10):
            collection.update([1, 2], [time, time + 5], source="a")
            assert collection.seen == 2 * (time // 10 + 1)
            if time == 50:
                collection = ECMCollection.from_bytes(collection.to_bytes())
        whole = ECMCollection(SMALL)
        whole.update([1, 2] * 10, range(0, 100, 5), source="a")
        assert collection == whole

    def test_are_refused_whole(self) -> None:
        collection = ECMCollection(SMALL.with_capacity(2))
        collection.update(*self.COLUMNS, source="a")
        before = collection.to_bytes()
        faults: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (ObservationError, "source has 3 rows, keys has 4", {"source": ["a", "b", "a"]}),
            (ObservationError, "epoch has 1 rows", {"source": "a", "epoch": [1]}),
            (ParameterError, "epoch is -1", {"source": "a", "epoch": -1}),
            (ParameterError, "source is ''", {"source": ["a", "", "a", "a"]}),
            (CapacityError, "3 entries; the capacity is 2", {"source": ["b", "c", "b", "c"]}),
        ]
        for error, match, whose in faults:
            with pytest.raises(error, match=match):
                collection.update(*self.COLUMNS, **whose)
        for bad in ([40, 10, 30, (1 << 62) + 1], [40, 10, 30]):
            with pytest.raises(ObservationError):
                collection.update([1, 2, 1, 3], bad, source="a")
        with pytest.raises(ObservationError, match="less than 2"):
            collection.update([1, 1], [50, 50], [(1 << 62) - 1, 1], source="a")
        assert collection.to_bytes() == before

    def test_after_a_time_are_refused_and_counted(self) -> None:
        collection = ECMCollection(SMALL)
        collection.update(*self.COLUMNS, source="a", not_after=25)
        assert (collection.seen, collection.stats().fed, collection.stats().too_late) == (6, 4, 2)

    def test_of_one_source_counted_apart_are_a_fork(self) -> None:
        here, there = ECMCollection(SMALL), ECMCollection(SMALL)
        here.update([1, 1], [10, 20], source="a")
        there.update([2, 2], [10, 20], source="a")
        before = here.to_bytes()
        for attempt in (lambda: here.merge(there), lambda: here | there):
            with pytest.raises(ConflictingSketchError, match="'a', 0"):
                attempt()
        assert here.to_bytes() == before
        assert here.copy().params == SMALL

    def test_that_a_newer_one_has_passed_are_no_fork_in_any_order(self) -> None:
        here, there = ECMCollection(SMALL), ECMCollection(SMALL)
        here.update([1, 1], [10, 20], source="a")
        there.update([2, 2], [10, 20], source="a")
        later = here.copy()
        later.update(1, 30, source="a")
        for order in itertools.permutations((here, there, later)):
            assert ECMCollection(SMALL, order) == later
        with pytest.raises(ConflictingSketchError, match="'a', 0"):
            ECMCollection(SMALL, (here, there))

    def test_that_find_a_newer_state_merged_go_on_from_that(self) -> None:
        here, source = ECMCollection(SMALL), ECMSketch(SMALL, source="a", epoch=0)
        here.update(1, 10, source="a")
        source.update([1, 2], [10, 20])
        here.merge(source)
        here.update(3, 30, source="a")
        source.update(3, 30)
        assert here == ECMCollection(SMALL, [source])

    def test_past_the_horizon_begin_anew(self) -> None:
        params = replace(SMALL, horizon=100)
        one, several = ECMCollection(params), ECMCollection(params)
        one.update([1, 1, 2, 3], [0, 50, 150, 260], source="a")
        for key, time in ((1, 0), (1, 50), (2, 150), (3, 260)):
            several.update(key, time, source="a")
            several.update(9, time, source="b")
            assert several.seen
        assert one.entries["a", 0].digest == several.entries["a", 0].digest
        assert one.seen == 1  # that of 150 is 110 before that of 260
        several.drop("b")
        assert several == one
        old = ECMCollection(params)
        old.update([1, 1], [0, 50], source="a")
        for order in ((one, old), (old, one)):
            assert ECMCollection(params, order) == one  # and no fork

    def test_that_are_too_late_have_a_verdict(self) -> None:
        params = replace(SMALL, lanes=1)
        collection = ECMCollection(params)
        collection.update([1], [100], source="a")
        before = collection.to_bytes()
        rows = ([1, 2, 3, 4], [99, 100, 101, 50], [1, 1, 0, 1])
        found = collection.verdicts(*rows, source=["a", "a", "a", "b"])
        assert found.tolist() == [2, 0, 2, 0]
        assert collection.to_bytes() == before
        collection.update(*rows, source=["a", "a", "a", "b"])
        assert (collection.seen, collection.too_late) == (3, 1)
        held = ECMCollection(replace(params, hold=10))
        held.update([1, 1], [100, 120], source="a")
        assert held.seen == 2
        assert held.verdicts([1, 1], [99, 115], source="a").tolist() == [2, 0]

    def test_of_arrivals_are_counted_as_they_come(self) -> None:
        collection = ECMCollection(replace(SMALL, clock="arrivals"))
        collection.update([1, 2], source="a")
        collection.update(1, source="a")
        assert collection.key_total(ds.decay.window(1)).value == 2
        assert collection.stats().fed == 3
        with pytest.raises(ParameterError, match="interleave"):
            collection.update(1, source="b")
        with pytest.raises(ParameterError, match="only events advance"):
            collection.advance(9)


class TestClock:
    def test_that_is_told_is_kept_beside_those_of_sources(self) -> None:
        collection = ECMCollection(SMALL, [built(SMALL, [Event(1, 10)])])
        collection.advance(7)
        assert collection == ECMCollection(SMALL, [built(SMALL, [Event(1, 10)])])
        collection.advance(30)
        assert collection.clock == 30
        assert collection.newest == 10
        assert ECMCollection.from_bytes(collection.to_bytes()).clock == 30
        merged = ECMCollection(SMALL)
        merged.merge(collection)
        assert merged == collection
        merged.merge(built(SMALL, [Event(2, 40)], source=1))
        assert merged.state().told is None

    def test_leaves_out_what_is_past_the_horizon(self) -> None:
        params = replace(SMALL, horizon=20)
        collection = ECMCollection(params, [built(params, [Event(1, 10)])])
        collection.advance(30)
        assert collection.seen == 1
        collection.advance(31)
        assert (collection.seen, len(collection), collection.clock) == (0, 0, 31)
        collection.merge(built(params, [Event(1, 10)]))
        assert not collection.entries


class TestAnswers:
    DECAYS = (
        ds.decay.window(5000), ds.decay.exponential(half_life=2000), ds.decay.polynomial(1, 900),
        EVER,
    )  # fmt: skip

    def test_add_the_cells_of_all_sources(self) -> None:
        each = sites(5)
        collection = ECMCollection(PARAMS, each)
        now = collection.clock
        for decay in self.DECAYS:
            grid = collection.grid(decay)
            hi = sum(sketch.grid(decay, now=now).leaf.hi for sketch in each)
            assert grid.now == now
            np.testing.assert_allclose(grid.leaf.hi, hi, rtol=1e-9)
            lo = sum(sketch.grid(decay, now=now).leaf.lo for sketch in each)
            np.testing.assert_allclose(grid.leaf.lo, lo, rtol=1e-9)

    def test_are_those_of_the_sources_that_are_named(self) -> None:
        collection = ECMCollection(PARAMS, sites(4))
        total = collection.key_total(EVER).value
        parts = [collection.key_total(EVER, sources=[name]).value for name in collection.sources]
        assert sum(parts) == total == 4000
        assert collection.key_total(EVER, sources=[]).value == 0
        assert collection.key_total(EVER, sources=collection.sources[:2]).value == sum(parts[:2])
        with pytest.raises(ParameterError, match="'nowhere', which there is none of"):
            collection.key_total(EVER, sources=["site-1", "nowhere"])

    def test_are_those_of_a_snapshot(self) -> None:
        collection = ECMCollection(PARAMS, sites(3))
        snapshot = collection.snapshot()
        collection.drop("site-0")
        assert snapshot.key_total(EVER).value == 4000
        assert snapshot.clock == snapshot.newest
        assert snapshot.size_bytes == len(snapshot.to_bytes())
        assert (snapshot.horizon, snapshot.too_late, len(snapshot.entries)) == (None, 0, 3)

    def test_are_asked_again_for_nothing(self) -> None:
        collection = ECMCollection(PARAMS, sites(2))
        decay = ds.decay.window(100)
        assert collection.grid(decay) is collection.grid(ds.decay.window(100))
        before = collection.grid(decay)
        collection.merge(built(PARAMS, [Event(1, 49_990)]))
        assert collection.grid(decay) is not before


class TestCompact:
    @pytest.mark.parametrize("kind", ["wave", "eh"])
    @pytest.mark.parametrize("steps", [0, 8])
    def test_is_within_its_sure_ends(self, kind: str, steps: int) -> None:
        """Over two levels, for every cell of every layer and many windows."""
        params = replace(PARAMS, kind=kind, key_bits=10, hold=300)  # type: ignore[arg-type]
        each = sites(6, params)
        regions = [
            ECMCollection(params, part).compact(steps=steps, source=name, epoch=1)
            for name, part in (("east", each[:2]), ("west", each[2:]))
        ]
        top = ECMCollection(params, regions).compact(steps=steps, source="top", epoch=1)
        error = sizing.merge_error(params.kind, params.slots)
        assert top.state().merges == 2
        assert top.state().slack == pytest.approx((1 + error) ** 2 - 1)
        exact = replace(params, slots=1 << 12, kind="wave", hold=0)  # cells keep every time
        whole = ECMCollection(exact, sites(6, exact))
        assert top.seen == 4000
        now = top.clock
        assert now is not None
        for width in range(0, 50_000, 1717):
            decay = ds.decay.window(width)
            truth = whole.grid(decay, now=now)
            for ours, true in zip(top.grid(decay).layers, truth.layers, strict=True):
                assert (ours.lo <= true.lo + 1e-6).all()
                assert (ours.hi >= true.hi - 1e-6).all()

    def test_is_of_one_lane_that_goes_on(self) -> None:
        collection = ECMCollection(PARAMS, sites(3))
        region = collection.compact(source="region", epoch=1)
        assert len(region.stats().lanes) == 1
        assert (region.seen, region.clock) == (collection.seen, collection.clock)
        region.update([1], [60_000])
        assert region.seen == 4001
        assert ECMSketch.from_bytes(region.to_bytes()) == region

    def test_with_other_slots_is_of_another_stream(self) -> None:
        region = ECMCollection(PARAMS, sites(2)).compact(slots=9)
        assert region.params == replace(PARAMS, slots=9)
        assert region.params.layers[-1].slots == 9
        with pytest.raises(IncompatibleSketchError, match="slots"):
            ECMCollection(PARAMS, [region])

    def test_of_nothing_is_nothing(self) -> None:
        assert ECMCollection(SMALL).compact() == ECMSketch(SMALL, source=0, epoch=0)

    def test_reads_as_what_it_is(self) -> None:
        collection = ECMCollection(PARAMS, sites(2))
        assert repr(collection).startswith("ECMCollection(sources=2, entries=2, seen=4,000")
        assert collection.nbytes > 0
