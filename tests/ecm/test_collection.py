"""ECMCollection: what it joins, what it answers, and what it compacts to."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from ecm.events import SMALL, Event, built, feed

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch, sizing
from decaysketch.errors import IncompatibleSketchError, ParameterError

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
