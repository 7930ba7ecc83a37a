"""ECMSketch: parameters, keys, disorder, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from delivery_logs import real_log
from ecm.events import SMALL, Event, built, feed
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

import decaysketch as ds
from decaysketch.core.hashing import EncodedKeys, RepeatedKeys
from decaysketch.ecm import ECMParams, ECMSketch
from decaysketch.ecm.sketch import new_epoch
from decaysketch.errors import (
    IncompatibleSketchError,
    ObservationError,
    ParameterError,
    UnanswerableQueryError,
)

FEW = settings(max_examples=40, deadline=None)
EVER = ds.decay.none()


class TestParams:
    @for_each(
        "change, message",
        [
            ({"width": 0}, "width is 0"),
            ({"width": 1 << 16}, "width is 65536"),
            ({"depth": 17}, "depth is 17"),
            ({"slots": 1}, "slots is 1"),
            ({"width": 65535, "depth": 16, "slots": 16}, "width \\* depth \\* slots"),
            ({"kind": "rw"}, "kind is 'rw'"),
            ({"clock": "wall"}, "clock is 'wall'"),
            ({"seed": -1}, "seed is -1"),
            ({"time_unit": "S"}, "time_unit is 'S'"),
            ({"horizon": -1}, "horizon is -1"),
            ({"lanes": 0}, "lanes is 0"),
            ({"hold": -1}, "hold is -1"),
            ({"hold": 5, "clock": "arrivals"}, "hold is 5 and clock is 'arrivals'"),
            ({"key_bits": 65}, "key_bits is 65"),
            ({"fanout_bits": 0}, "fanout_bits is 0"),
            ({"capacity": 0}, "capacity is 0"),
            ({"width": True}, "width is True"),
        ],
    )
    def test_outside_their_domain_are_refused(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            replace(SMALL, **change)

    def test_are_a_dictionary_and_back(self) -> None:
        params = ECMParams.for_accuracy(0.1, 0.1, horizon=5, key_bits=20, hold=3)
        assert ECMParams.from_dict(params.to_dict()) == params
        assert pickle.loads(pickle.dumps(params)) == params
        with pytest.raises(ParameterError, match="unknown parameter 'widht'"):
            ECMParams.from_dict({"widht": 3})
        with pytest.raises(ParameterError, match="slots is missing"):
            ECMParams.from_dict({"width": 3, "depth": 1})

    def test_of_every_other_stream_have_another_fingerprint(self) -> None:
        others: list[dict[str, Any]] = [
            {"width": 6}, {"depth": 3}, {"slots": 3}, {"kind": "eh"}, {"clock": "arrivals"},
            {"seed": 8}, {"time_unit": "ms"}, {"horizon": 0}, {"lanes": 3}, {"hold": 1},
            {"key_bits": 8}, {"fanout_bits": 4},
        ]  # fmt: skip
        prints = {replace(SMALL, **other).fingerprint for other in others}
        assert len(prints) == len(others)
        assert SMALL.fingerprint not in prints
        assert SMALL.with_capacity(7).fingerprint == SMALL.fingerprint

    def test_have_a_root_and_a_leaf(self) -> None:
        root, leaf = SMALL.layers
        assert (root.shift, root.cells, root.hashed) == (64, 1, False)
        assert (leaf.shift, leaf.depth, leaf.width, leaf.hashed) == (0, 2, 5, True)

    def test_have_layers_of_prefixes(self) -> None:
        params = ECMParams(width=50, depth=3, slots=5, key_bits=20, fanout_bits=8)
        assert [(each.shift, each.hashed, each.cells) for each in params.layers] == [
            (64, False, 1), (16, False, 16), (8, True, 150), (0, True, 150),
        ]  # fmt: skip
        wide = replace(params, key_bits=64, fanout_bits=16)
        assert [each.shift for each in wide.layers] == [64, 48, 32, 16, 0]
        tiny = replace(params, key_bits=7)
        assert [(each.shift, each.hashed, each.cells) for each in tiny.layers[1:]] == [
            (0, False, 128)
        ]

    def test_for_accuracy_are_within_it(self) -> None:
        for kind in ("wave", "eh"):
            params = ECMParams.for_accuracy(0.05, 0.1, kind=kind)  # type: ignore[arg-type]
            cell = 1 / (2 * params.slots) if kind == "wave" else 1 / (2 * params.slots - 1)
            assert cell <= 0.05 + 1e-12
            assert np.exp(-params.depth) <= 0.1 or params.width >= np.e / 0.05


class TestKeys:
    def counted(self, keys: Any, asked: Any, params: ECMParams = SMALL) -> list[float]:
        sketch = ECMSketch(replace(params, width=4000, slots=2), source=0, epoch=0)
        sketch.update(keys, [10] * sketch_length(keys))
        found = sketch.key_count(asked, EVER, estimator="minimum")
        return found.value.tolist()

    def test_are_integers_text_bytes_or_tuples(self) -> None:
        assert self.counted([1, 2, 1, -5], [1, 2, 3, -5]) == [2, 1, 0, 1]
        assert self.counted(np.array([1, 2, 1]), [1, 2]) == [2, 1]
        assert self.counted(["ä", "b", "ä"], ["ä", "b", "c"]) == [2, 1, 0]
        assert self.counted(np.array(["x", "y", "x"]), ["x"]) == [2]
        assert self.counted([b"a", b"a"], [b"a", b""]) == [2, 0]
        pairs = [("JFK", 1), ("LAX", 1), ("JFK", 1)]
        assert self.counted(pairs, [("JFK", 1), ("JFK", 2)]) == [2, 0]
        columns = (["JFK", "LAX", "JFK"], np.array([1, 1, 1]))
        assert self.counted(columns, pairs[:2]) == [2, 1]
        encoded = EncodedKeys(str, np.array([0, 1, 2]), np.frombuffer(b"xy", np.uint8))
        assert self.counted(encoded, ["x", "y"]) == [1, 1]
        repeated = RepeatedKeys(["x", "y"], np.array([0, 1, 1]))
        assert self.counted(repeated, ["x", "y"]) == [1, 2]

    def test_of_other_types_are_other_keys(self) -> None:
        sketch = ECMSketch(replace(SMALL, width=4000), source=0, epoch=0)
        for key in ("1", b"1", 1):
            sketch.update(key, 10)
        assert [sketch.key_count(key, EVER).value for key in ("1", b"1", 1, ("1", "1"))] == [
            1,
            1,
            1,
            0,
        ]

    @pytest.mark.parametrize(
        "keys", [[1, "a"], [1.5], [None], [("a",), ("a", "b")], ["x" * 1025], [True]]
    )
    def test_of_no_type_are_refused(self, keys: list[Any]) -> None:
        sketch = ECMSketch(SMALL, source=0, epoch=0)
        with pytest.raises(ObservationError):
            sketch.update(keys, [1] * len(keys))
        assert sketch.seen == 0

    @pytest.mark.parametrize("bits", [8, 64])
    def test_of_bits_are_integers_below_their_power(self, bits: int) -> None:
        sketch = ECMSketch(replace(SMALL, key_bits=bits), source=0, epoch=0)
        largest = (1 << bits) - 1
        sketch.update([0, largest, largest], [1, 2, 3])
        assert sketch.key_count(largest, EVER).sure_upper >= 2  # type: ignore[operator]
        for key in (-1, 1 << bits, "a", 1.0):
            with pytest.raises(ObservationError):
                sketch.update([key], [4])
        assert sketch.seen == 3

    @pytest.mark.parametrize("key", ["x" * 1025, "\u20ac" * 342, 1.5, None, [1, 2]])
    def test_that_are_none_are_refused_one_by_one(self, key: Any) -> None:
        """At once, and what waits to be counted is not lost."""
        sketch = ECMSketch(SMALL, source=0, epoch=0)
        sketch.update("a", 10)
        with pytest.raises(ObservationError):
            sketch.update(key, 10)
        assert sketch.seen == 1

    def test_one_by_one_are_those_of_a_batch(self) -> None:
        keys = [
            "a",
            "b",
            7,
            b"c",
            "a",
            ("a", 1),
            "x" * 900,
            "\u20ac",
            np.int64(7),
            1 << 64,
            "\ud800",
        ]
        single, batches = (ECMSketch(SMALL, source=0, epoch=0) for _ in range(2))
        for time, key in enumerate(keys):
            single.update(key, time)
            batches.update([key], [time])
        assert single == batches


def sketch_length(keys: Any) -> int:
    return len(keys[0]) if type(keys) is tuple else len(keys.codes) if hasattr(
        keys, "codes"
    ) else len(keys)  # fmt: skip


class TestUpdate:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([1, 2], [1]), "timestamps has 1 rows, keys has 2"),
            (([1, 2], [1, 2], [1]), "weights has 1 rows, keys has 2"),
            (([1], [1.5]), "timestamps has dtype float64"),
            (([1], [(1 << 62) + 1]), "timestamps\\[0\\] is"),
            (([1], [1], [-1]), "weights\\[0\\] is -1"),
            (([1, 1], [1, 1], [1 << 61, 1 << 61]), "weights sum up to"),
        ],
    )
    def test_refuses_the_whole_of_a_bad_batch(
        self, arguments: tuple[Any, ...], message: str
    ) -> None:
        sketch = built(SMALL, [Event(1, 5)])
        before = sketch.to_bytes()
        with pytest.raises(ObservationError, match=message):
            sketch.update(*arguments)
        assert sketch.to_bytes() == before

    def test_needs_times_where_they_are_counted(self) -> None:
        with pytest.raises(ParameterError, match="timestamps are None"):
            ECMSketch(SMALL).update(["a"])

    def test_of_weight_0_is_no_event(self) -> None:
        sketch = built(SMALL, [Event(1, 5, 0), Event(1, 9, 0)])
        assert sketch.seen == 0
        assert sketch.clock is None
        assert built(SMALL, [Event(1, 5), Event(2, 7, 0)]) == built(SMALL, [Event(1, 5)])

    def test_takes_extreme_times(self) -> None:
        sketch = built(SMALL, [Event(1, -(1 << 62)), Event(1, 0), Event(1, 1 << 62)])
        assert ECMSketch.from_bytes(sketch.to_bytes()) == sketch
        assert sketch.key_total(ds.decay.window(0)).value == 1
        assert sketch.key_total(EVER).value == 3

    @FEW
    @given(
        st.lists(st.builds(Event, st.integers(0, 5), st.integers(0, 30), st.integers(1, 3)),
                 min_size=1, max_size=40),
        st.sampled_from([0, 6]), st.integers(0, 40), st.integers(0, 30),
    )  # fmt: skip
    def test_in_any_order_is_answered_within_sure_ends(
        self, events: list[Event], hold: int, now: int, width: int
    ) -> None:
        """Too late ones, too, which upper ends allow for."""
        sketch = ECMSketch(replace(SMALL, lanes=2, hold=hold), source=0, epoch=0)
        for event in events:
            feed(sketch, [event])
        for decay in (ds.decay.window(width), ds.decay.exponential(half_life=width + 1), EVER):
            weight = decayed(events, decay, now)
            total = sketch.key_total(decay, now=now)
            assert total.lower <= sum(weight.values()) * (1 + 1e-12)
            assert sum(weight.values()) <= total.upper * (1 + 1e-12)
            for key in range(6):
                upper = sketch.key_count(key, decay, now=now).sure_upper
                assert upper is not None
                assert weight[key] <= upper * (1 + 1e-12)


def decayed(events: list[Event], decay: ds.Decay, now: int) -> dict[int, float]:
    """True decayed counts of keys 0 to 5."""
    found = dict.fromkeys(range(6), 0.0)
    for key, time, weight in events:
        if time <= now:
            found[key] += weight * float(decay(np.array([now - time]))[0])
    return found


class TestLateEvents:
    def test_go_to_the_lane_with_the_latest_clock_before_them(self) -> None:
        sketch = ECMSketch(replace(SMALL, lanes=3), source=0, epoch=0)
        for time in (10, 5, 7, 12, 3, 4, 11):
            sketch.update([1], [time])
        # 10 12 | 5 7 11 | 3 4
        assert sketch.stats().lanes == ((12, 2), (11, 3), (4, 2))
        sketch.update([1], [1])
        assert sketch.too_late == 1
        assert sketch.seen == 7

    def test_of_one_batch_need_no_lane(self) -> None:
        sketch = built(SMALL, [Event(1, time) for time in (9, 3, 7, 1, 5)])
        assert sketch.stats().lanes == ((9, 5),)

    def test_never_lower_another_answer(self) -> None:
        """One event an hour late: the published implementations lose everything before it."""
        rng = np.random.default_rng(2)
        keys, times = rng.integers(0, 20, 3000), np.sort(rng.integers(0, 100_000, 3000))
        sketch = ECMSketch(replace(SMALL, width=60), source=0, epoch=0)
        sketch.update(keys, times)
        asked, decays = list(range(20)), [ds.decay.window(w) for w in (50, 5000, 100_000)]
        decays.append(ds.decay.exponential(half_life=900))
        before = [sketch.key_count(asked, decay, now=100_000) for decay in decays]
        sketch.update(99, 60_000)
        sketch.update(98, 96_000)
        for decay, old in zip(decays, before, strict=True):
            new = sketch.key_count(asked, decay, now=100_000, estimator="minimum")
            minimum = new.value
            assert (new.sure_upper >= old.sure_upper).all()
            sketch_before = old._grid
            assert (minimum >= sketch_before.leaf.least(
                sketch_before.leaf.value, old._words) - 1e-9).all()  # fmt: skip

    def test_that_are_refused_change_no_cell(self) -> None:
        sketch = ECMSketch(replace(SMALL, lanes=1), source=0, epoch=0)
        sketch.update([1, 2], [10, 20])
        grid = sketch.grid(EVER)
        sketch.update([3, 3], [5, 30], [4, 1])
        assert sketch.too_late == 4
        assert sketch.seen == 3
        after = sketch.grid(EVER, now=20)
        assert (after.leaf.hi == grid.leaf.hi).all()
        assert sketch.key_count(3, ds.decay.window(0), now=5).sure_upper >= 4  # type: ignore[operator]

    def test_may_be_counted_at_the_time_of_a_lane(self) -> None:
        sketch = ECMSketch(replace(SMALL, lanes=1), source=0, epoch=0)
        sketch.update([1], [20], [5])
        sketch.update([2], [3], [4], late="now")
        assert (sketch.moved, sketch.too_late, sketch.seen) == (4, 0, 9)
        total = sketch.key_total(ds.decay.window(0))
        assert (total.lower, total.upper) == (5, 9)
        assert ECMSketch.from_bytes(sketch.to_bytes()) == sketch
        with pytest.raises(ParameterError, match="late is 'drop'"):
            sketch.update([2], [3], late="drop")  # type: ignore[arg-type]

    @pytest.mark.parametrize("log", ["ooo_umts_d1", "lorawan_tourperret"])
    def test_of_real_networks_fit_into_four_lanes(self, log: str) -> None:
        table = parquet.read_table(real_log(log), columns=["arrival_us", "event_us"])
        arrival, event = (table[name].to_numpy() for name in ("arrival_us", "event_us"))
        known = ~np.isnan(event)
        order = np.argsort(arrival[known], kind="stable")
        times = event[known][order].astype(np.int64)
        assert (np.diff(times) < 0).any(), "a log in order shows nothing"
        sketch = ECMSketch(ECMParams(width=10, depth=1, slots=5, time_unit="us"), source=0, epoch=0)
        for time in times.tolist():
            sketch.update(0, time)
        assert sketch.too_late == 0
        assert len(sketch.stats().lanes) > 1
        assert sketch.seen == len(times)


class TestHold:
    PARAMS = replace(SMALL, hold=10, lanes=1)

    def test_counts_what_it_holds_back_exactly(self) -> None:
        sketch = built(self.PARAMS, [Event(1, 100), Event(2, 95), Event(1, 91, 5)])
        assert sketch.stats().held == 3
        assert sketch.stats().lanes == ()
        assert sketch.key_total(ds.decay.window(6)).value == 2
        assert sketch.key_count(1, ds.decay.window(9)).sure_upper >= 6  # type: ignore[operator]

    def test_puts_in_order_what_is_older(self) -> None:
        sketch = built(self.PARAMS, [Event(1, 100), Event(2, 95), Event(1, 91)])
        sketch.advance(105)
        assert sketch.state().lanes[0].clock == 91
        assert sketch.stats().held == 2
        sketch.update([1], [94])  # later than it may be, and there is no lane for it but the first
        assert sketch.too_late == 0
        sketch.update([1], [90])
        assert sketch.too_late == 1

    def test_is_what_a_clock_moves_on(self) -> None:
        sketch = built(self.PARAMS, [Event(1, 100)])
        sketch.advance(50)
        assert sketch.clock == 100
        sketch.advance(111)
        assert (sketch.clock, sketch.stats().held) == (111, 1)
        assert len(sketch.state().held) == 0
        with pytest.raises(ParameterError, match="now is 'x'"):
            sketch.advance("x")  # type: ignore[arg-type]


class TestArrivals:
    PARAMS = replace(SMALL, clock="arrivals", width=100)

    def test_are_windows_of_the_last_ones(self) -> None:
        sketch = ECMSketch(self.PARAMS, source=0, epoch=0)
        sketch.update(["a"] * 50 + ["b"] * 10)
        assert sketch.clock == 60
        assert sketch.key_total(ds.decay.window(9)).value == 10  # ages 0 to 9
        assert sketch.key_count("b", ds.decay.window(9)).upper >= 10
        assert sketch.key_count("a", ds.decay.window(9)).sure_upper <= 4  # type: ignore[operator]
        sketch.update("a")
        assert sketch.clock == 61
        assert ECMSketch.from_bytes(sketch.to_bytes()) == sketch

    def test_have_no_times_and_no_weights(self) -> None:
        sketch = ECMSketch(self.PARAMS)
        with pytest.raises(ParameterError, match="timestamps are given"):
            sketch.update(["a"], [3])
        with pytest.raises(ObservationError, match="weights\\[0\\] is 2"):
            sketch.update(["a"], weights=2)
        with pytest.raises(ParameterError, match="only events advance"):
            sketch.advance(5)


class TestQuestions:
    def test_beyond_the_horizon_are_refused(self) -> None:
        sketch = built(replace(SMALL, horizon=50), [Event(1, 100), Event(1, 200)])
        assert sketch.key_count(1, ds.decay.window(50)).value >= 0
        with pytest.raises(ParameterError, match="horizon is 50"):
            sketch.key_count(1, ds.decay.window(51))
        with pytest.raises(ParameterError, match="horizon is 50"):
            sketch.key_count(1, ds.decay.exponential(half_life=3))
        with pytest.raises(UnanswerableQueryError, match="reaches back to 149"):
            sketch.key_count(1, ds.decay.window(50), now=199)
        assert sketch.key_total(ds.decay.window(0), now=199).value == 0

    def test_of_decays_that_rise_are_refused(self) -> None:
        with pytest.raises(ParameterError):
            built(SMALL, [Event(1, 1)]).key_total("window")  # type: ignore[arg-type]

    def test_of_an_empty_sketch_are_answered(self) -> None:
        sketch = ECMSketch(SMALL)
        assert sketch.key_total(EVER).value == 0
        assert sketch.key_count("a", EVER).sure_upper == 0
        assert sketch.self_join(EVER).value == 0
        assert ECMSketch.from_bytes(sketch.to_bytes()) == sketch

    def test_inner_takes_streams_of_equal_hashes(self) -> None:
        ours, theirs = built(SMALL, [Event(1, 5, 3)]), built(SMALL, [Event(1, 7, 2)])
        found = ours.inner_product(theirs, EVER)
        assert found.sure_upper is not None
        assert found.sure_upper >= 6
        with pytest.raises(IncompatibleSketchError, match="seed"):
            ours.inner_product(built(replace(SMALL, seed=1), []), EVER)

    def test_of_prefixes_find_heavy_keys_and_quantiles(self) -> None:
        sketch = ECMSketch(replace(SMALL, width=60, depth=3, key_bits=12, fanout_bits=2))
        rng = np.random.default_rng(4)
        keys = np.concatenate([rng.integers(0, 4096, 2000), np.full(900, 1234)])
        sketch.update(keys, np.arange(2900))
        found = sketch.heavy_keys(0.2, EVER)
        assert 1234 in found.keys.tolist()
        assert sketch.key_range(0, 4095, EVER).value == pytest.approx(2900, rel=0.05)
        assert 0 <= sketch.key_quantile(0.5, EVER).value < 4096
        assert sketch.key_rank(4095, EVER).value == pytest.approx(1, abs=0.05)
        with pytest.raises(ParameterError, match="key_bits"):
            ECMSketch(SMALL).heavy_keys(0.1, EVER)

    def test_of_prefixes_that_counted_nothing_are_answered(self) -> None:
        """However many there are: none of them is looked at."""
        sketch = ECMSketch(replace(SMALL, key_bits=32))
        assert sketch.key_range(0, 1 << 31, EVER).value == 0
        assert len(sketch.heavy_keys(0.1, EVER)) == 0

    def test_of_prefixes_whose_total_may_be_nothing_are_answered(self) -> None:
        """A moment long ago, of which is only known how much came around it."""
        sketch = ECMSketch(replace(SMALL, key_bits=8))
        keys, times = np.arange(5000) % 250, np.arange(5000) // 2
        sketch.update(keys, times)
        unknown = 0
        for now in range(0, 1200, 37):
            decay = ds.decay.window(0)
            total = sketch.key_total(decay, now=now)
            unknown += total.lower == 0 < total.upper
            found = sketch.heavy_keys(0.5, decay, now=now)
            assert set(keys[times == now].tolist()) <= set(found.keys.tolist())
        assert unknown > 10


class TestObject:
    def test_copies_are_equal_and_apart(self) -> None:
        sketch = built(replace(SMALL, hold=7), [Event(1, 5), Event(2, 30), Event(1, 28)])
        for other in (sketch.copy(), copy.deepcopy(sketch), pickle.loads(pickle.dumps(sketch))):
            assert other == sketch
            assert (other.source, other.epoch, other.params) == (0, 0, sketch.params)
            other.update([3], [40])
            assert other != sketch
        assert sketch != object()
        assert sketch.snapshot().thaw() == sketch

    def test_names_are_texts_or_numbers(self) -> None:
        for source in ("", "x" * 256, -1, 1 << 64, True, 1.5, None, "\ud800"):
            with pytest.raises(ParameterError, match="source is"):
                ECMSketch(SMALL, source=source)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="epoch is -1"):
            ECMSketch(SMALL, epoch=-1)
        with pytest.raises(ParameterError, match="ECMSketch takes ECMParams"):
            ECMSketch("params")  # type: ignore[arg-type]

    def test_epochs_are_new_and_tell_the_time(self) -> None:
        first, second = new_epoch(), new_epoch()
        assert first != second
        assert abs((first >> 24) - (second >> 24)) <= 2
        assert 1_600_000_000 < first >> 24 < 1 << 40

    def test_reads_as_what_it_is(self) -> None:
        sketch = ECMSketch(replace(SMALL, lanes=1), source="tap")
        sketch.update([1, 1], [10, 20])
        sketch.update([1], [5])
        assert repr(sketch).startswith("ECMSketch(source=tap, seen=2, too_late=1, cells=2 x 5")
        assert "<table>" in sketch._repr_html_()

    def test_snapshots_are_read_while_it_is_updated(self) -> None:
        """From another thread; what is read is what was there."""
        rng = np.random.default_rng(9)
        sketch = ECMSketch(replace(SMALL, width=40, hold=5), source=0, epoch=0)
        sketch.update(rng.integers(0, 9, 500), np.sort(rng.integers(0, 1000, 500)))
        snapshot = sketch.snapshot()
        expected = sketch.copy()
        wrong: list[object] = []

        def read() -> None:
            for width in range(0, 400, 4):
                decay = ds.decay.window(width)
                ours, theirs = (
                    each.key_count(range_, decay, now=1000)
                    for each in (snapshot, expected.snapshot())
                )
                if (ours.value != theirs.value).any() or len(snapshot.to_bytes()) < 100:
                    wrong.append(width)

        range_ = list(range(9))
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for start in range(1000, 3000, 10):
            sketch.update(rng.integers(0, 9, 50), np.arange(start, start + 50) // 2 * 2)
        for thread in threads:
            thread.join()
        assert not wrong
        assert snapshot.digest == expected.digest()
        assert sketch.digest() != expected.digest()
