"""The face of the samplers: what they take, refuse, count, and how they number elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds
from decaysketch.asyncwindow import (
    AsyncParams,
    MedianParams,
    MedianSampler,
    SumParams,
    SumSampler,
    coins,
    element_keys,
    reference,
)
from decaysketch.query import aggregates

SUM = SumParams(max_sum=1 << 30, capacity=500, max_window=100_000, seed=3)
MEDIAN = MedianParams(max_count=1 << 24, capacity=500, max_window=100_000, seed=3)
WINDOW = ds.decay.window(50_000)


def stream(n: int = 30_000, seed: int = 0) -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(seed)
    return rng.integers(1, 1000, n), np.arange(n) - rng.integers(0, 3000, n), np.arange(n)


class TestInput:
    def test_a_column_of_sources_equals_one_by_one(self) -> None:
        values, times, numbers = stream(100)
        together, apart = SumSampler(SUM), SumSampler(SUM)
        sources = [f"node {i % 3}" for i in range(100)]
        together.update(values, times, numbers, source=sources)
        for i in range(3):
            apart.update(values[i::3], times[i::3], numbers[i::3], source=f"node {i}")
        assert together == apart

    def test_columns_of_the_caller_stay_writable(self) -> None:
        values, times, numbers = stream(10)
        keys = numbers.astype(np.uint64)
        SumSampler(SUM).update(values, times, keys, source="s")
        for column in (values, times, keys):
            column[0] = 1

    @pytest.mark.parametrize(
        ("values", "times", "sequence", "column"),
        [
            ([1, -1], [1, 2], [1, 2], "values"),
            ([1, (1 << 30) + 1], [1, 2], [1, 2], "values"),
            ([1, 2.5], [1, 2], [1, 2], "values"),
            ([1, 2], [1, (1 << 62) + 1], [1, 2], "timestamps"),
            ([1, 2], [1.5, 2], [1, 2], "timestamps"),
            ([1, 2], [1, 2], [1, 2.5], "sequence"),
            ([1, 2], [1, 2], [[1, 2]], "sequence"),
            ([1, 2, 3], [1, 2], [1, 2], "values"),
            ([1, 2], [1, 2], [1, 2, 3], "sequence"),
        ],
    )
    def test_faults_name_the_column_and_take_nothing(
        self, values: Any, times: Any, sequence: Any, column: str
    ) -> None:
        sampler = SumSampler(SUM)
        before = sampler.to_bytes()
        for given in ((values, times, sequence), map(np.array, (values, times, sequence))):
            with pytest.raises(ds.ObservationError) as fault:
                sampler.update(*given, source="s")
            assert fault.value.column == column
        assert sampler.to_bytes() == before
        assert sampler.stats().fed == 0

    def test_unequal_sources(self) -> None:
        with pytest.raises(ds.ObservationError, match="source has 3 rows, timestamps has 2"):
            SumSampler(SUM).update([1, 2], [1, 2], [1, 2], source=["a", "b", "c"])
        with pytest.raises(ds.ObservationError, match="source has 3 rows, sequence has 2"):
            element_keys(SUM, ["a", "b", "c"], [1, 2])

    @pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "1"])
    def test_a_median_refuses_what_is_no_number(self, value: Any) -> None:
        with pytest.raises(ds.ObservationError, match="values"):
            MedianSampler(MEDIAN).update([1.0, value], [1, 2])

    def test_arrays_of_any_layout(self) -> None:
        values, times, numbers = stream(3000)
        plain, other = SumSampler(SUM), SumSampler(SUM)
        plain.update(values[::3], times[::3].copy(), numbers[::3].copy(), source="s")
        other.update(
            values[::3].astype(np.int32), times[::3].astype(">i8"), numbers[::3].astype(np.uint16),
            source=["s"] * 1000,
        )  # fmt: skip
        assert plain == other

    def test_floats_of_an_array_are_those_of_a_list(self) -> None:
        numbers = [0.0, -0.0, 1.5, -1.5, 1e-300, -1e300, 5e-324]
        array, listed = (MedianSampler(MEDIAN, source="s") for _ in range(2))
        array.update(np.array(numbers), np.arange(7))
        listed.update(numbers, list(range(7)))
        assert array == listed
        for number in (np.nan, np.inf, -np.inf):
            with pytest.raises(ds.ObservationError, match="values"):
                array.update(np.array([1.0, number]), np.array([1, 2]))
        integers = MedianSampler(MedianParams(max_count=9, capacity=9, value_type="int64"))
        with pytest.raises(ds.ObservationError, match="2\\^63"):
            integers.update(np.array([-(1 << 63)]), np.array([1]))

    def test_a_name_needs_its_number(self) -> None:
        with pytest.raises(ds.ParameterError, match="sequence without source"):
            SumSampler(SUM).update(1, 2, 3)
        with pytest.raises(ds.ParameterError, match="source without sequence"):
            SumSampler(SUM).update(1, 2, source="s")

    def test_not_after_refuses_and_counts(self) -> None:
        sampler = SumSampler(SUM)
        sampler.update([1, 2, 4], [10, 99, 20], not_after=50)
        assert sampler.stats().too_late == 1
        assert sampler.sum(WINDOW, now=100).value == 5
        with pytest.raises(ds.ParameterError, match="not_after"):
            sampler.update([1], [1], not_after=1.5)  # type: ignore[arg-type]

    def test_zeros_count_for_nothing(self) -> None:
        sampler = SumSampler(SUM)
        sampler.update([0, 3, 0], [1, 2, 3])
        sampler.update(0, 4)
        assert sampler.sum(WINDOW, now=9).value == 3
        assert (sampler.stats().zero, sampler.stats().fed) == (3, 4)

    def test_empty_batch(self) -> None:
        sampler = MedianSampler(MEDIAN)
        sampler.update([], [])
        sampler.update([], [], [], source="s")
        assert len(sampler) == 0
        assert sampler.count(WINDOW, now=0).value == 0
        assert np.isnan(sampler.median(WINDOW, now=0).value)
        assert np.isnan(sampler.median(WINDOW, now=0, estimator="single-level").value)


class TestNumbering:
    def test_a_sampler_counts_what_it_is_fed(self) -> None:
        sampler = SumSampler(SUM)
        for _ in range(2):
            sampler.update([5, 6], [1, 1])
        sampler.update(5, 1)
        assert sampler.sum(WINDOW, now=1).value == 27
        assert sampler.next_number == 5

    def test_is_that_of_explicit_numbers_under_its_source(self) -> None:
        values, times, numbers = stream(2000)
        own, explicit = SumSampler(SUM, source="log 7"), SumSampler(SUM)
        own.update(values[:1200], times[:1200])
        for value, time in zip(values[1200:].tolist(), times[1200:].tolist(), strict=True):
            own.update(value, time)
        explicit.update(values, times, numbers, source="log 7")
        assert own == explicit

    def test_goes_on_where_another_stopped(self) -> None:
        values, times, numbers = stream(2000)
        first = SumSampler(SUM, source="log 7")
        first.update(values[:900], times[:900])
        rest = SumSampler.from_bytes(
            first.to_bytes(), source=first.source, next_number=first.next_number
        )
        rest.update(values[900:], times[900:])
        explicit = SumSampler(SUM)
        explicit.update(values, times, numbers, source="log 7")
        assert rest == explicit

    def test_two_samplers_do_not_share_names(self) -> None:
        a, b = SumSampler(SUM), SumSampler(SUM)
        twin = a.copy()
        for sampler in (a, b, twin):
            sampler.update([1, 1], [1, 1])
        assert ds.merge([a, b, twin]).sum(WINDOW, now=1).value == 6

    def test_filters_do_not_shift_numbers(self) -> None:
        a, b = SumSampler(SUM, source="x"), SumSampler(SUM, source="x")
        a.update([1, 2, 0, 3], [1, 900, 2, 3], not_after=10)
        b.update([1, 0, 0, 3], [1, 2, 2, 3])
        assert a == b

    def test_arguments(self) -> None:
        with pytest.raises(ds.ParameterError, match="next_number"):
            SumSampler(SUM, next_number=-1)
        with pytest.raises(ds.ParameterError, match="MedianParams"):
            MedianSampler(SUM)  # type: ignore[arg-type]


class TestClock:
    def test_late_rows_are_discarded_and_counted(self) -> None:
        sampler = SumSampler(SUM)
        sampler.advance(200_000)
        sampler.update([1, 2, 4], [99_999, 100_000, 150_000])
        assert sampler.stats().late == 1
        assert sampler.sum(ds.decay.window(100_000), now=200_000).value == 6
        assert sampler.clock == 200_000

    def test_only_advancing_moves_it(self) -> None:
        sampler = SumSampler(SUM)
        sampler.update([1, 1], [0, 1 << 60])  # a clock that runs ahead wipes nothing
        assert sampler.clock is None
        assert sampler.sum(WINDOW, now=10).value == 1

    def test_the_forgotten_is_not_answered_about(self) -> None:
        sampler = SumSampler(SUM)
        sampler.update([1, 2], [10, 150_000])
        sampler.advance(200_000)
        with pytest.raises(ds.UnanswerableQueryError, match="up to time 50"):
            sampler.sum(ds.decay.window(50), now=50)
        assert sampler.sum(ds.decay.window(100_000), now=200_000).value == 2

    def test_without_a_largest_window_it_forgets_nothing(self) -> None:
        sampler = SumSampler(SumParams(max_sum=100, capacity=5))
        sampler.update([1], [-(1 << 62)])
        sampler.advance(1 << 62)
        assert sampler.sum(ds.decay.none(), now=1 << 62).value == 1


class TestQueries:
    def test_a_decay_must_end_within_the_largest_window(self) -> None:
        sampler = SumSampler(SUM)
        for decay in (ds.decay.window(100_001), ds.decay.exponential(rate=1.0), ds.decay.none()):
            for estimator in ("stratified", "single-level"):
                with pytest.raises(ds.ParameterError, match="max_window = 100000"):
                    sampler.sum(decay, now=0, estimator=estimator)  # type: ignore[arg-type]
        with pytest.raises(ds.ParameterError, match="expected a Decay"):
            sampler.sum(3600, now=0)  # type: ignore[arg-type]

    def test_single_level_answers_windows_only(self) -> None:
        sampler = SumSampler(SumParams(max_sum=100, capacity=5))
        with pytest.raises(ds.ParameterError, match="answers windows"):
            sampler.sum(ds.decay.exponential(rate=1.0), now=0, estimator="single-level")
        with pytest.raises(ds.ParameterError, match="stratified, single-level"):
            sampler.sum(ds.decay.none(), now=0, estimator="best")  # type: ignore[arg-type]

    def test_a_decayed_sum_is_near_the_truth(self) -> None:
        values, times, numbers = stream(100_000)
        sampler = SumSampler(SumParams(max_sum=1 << 30, capacity=2000, seed=5))
        sampler.update(values, times, numbers, source="s")
        now = 100_000
        for decay in (ds.decay.exponential(half_life=20_000), ds.decay.polynomial(1, scale=5000)):
            true = float(np.sum(values * decay(now - times)))
            found = sampler.sum(decay, now=now)
            assert not found.exact
            assert abs(found.value - true) < 5 * found.stderr
            assert found.stderr < 0.03 * true
            count = sampler.count(decay, now=now)
            assert abs(count.value - decay(now - times).sum()) < 5 * count.stderr

    def test_shares_of_a_sum(self) -> None:
        values, times, numbers = stream(100_000)
        sampler = SumSampler(SumParams(max_sum=1 << 30, capacity=2000, seed=5))
        sampler.update(values, times, numbers, source="s")
        found = sampler.selectivity(lambda v, w: v > 800, ds.decay.none(), now=200_000)
        true = values[values > 800].sum() / values.sum()
        assert abs(found.value - true) < 5 * found.stderr

    @pytest.mark.parametrize("width", [5, 300, 5_000, 40_000])
    def test_selection_equals_sorting(self, width: int) -> None:
        values, times, numbers = stream(60_000)
        sampler = MedianSampler(MEDIAN)
        sampler.update(np.round(values / 10), times, numbers, source="s")
        ranks = [0.0, 0.01, 0.5, 0.9, 1.0]
        decay = ds.decay.window(width)
        sample = sampler.sample(decay, now=60_000, estimator="single-level")
        selected = sampler.quantile(ranks, decay, now=60_000, estimator="single-level")
        assert [repr(e) for e in selected] == [repr(e) for e in aggregates.quantile(sample, ranks)]
        with pytest.raises(ds.ParameterError, match="q is"):
            sampler.quantile(1.5, decay, now=60_000, estimator="single-level")

    def test_other_aggregates_of_a_median_sampler(self) -> None:
        values, times, numbers = stream(60_000)
        sampler = MedianSampler(MedianParams(max_count=1 << 24, capacity=4000, seed=3))
        sampler.update(values, times, numbers, source="s")
        ask = {"decay": ds.decay.none(), "now": 60_000}
        for found, true in (
            (sampler.rank(500, **ask), (values <= 500).mean()),  # type: ignore[arg-type]
            (sampler.mean(**ask), values.mean()),  # type: ignore[arg-type]
            (sampler.total(**ask), values.sum()),  # type: ignore[arg-type]
            (sampler.variance(**ask), values.var()),  # type: ignore[arg-type]
            (sampler.count(**ask), 60_000),  # type: ignore[arg-type]
        ):
            assert abs(found.value - true) < 5 * found.stderr
        assert sampler.heavy_hitters(0.5, ds.decay.none(), now=60_000) == []
        groups = sampler.group_by(ds.decay.none(), now=60_000, limit=3)
        assert len(groups) == 3
        assert groups[0].count.value == groups[0].sum.value
        assert groups[0].count.value >= groups[1].count.value

    def test_repr_and_stats(self) -> None:
        values, times, numbers = stream(60_000)
        sampler = SumSampler(SUM)
        sampler.update(values, times, numbers, source="s")
        sampler.update(values[:5] + 1, times[:5] + 60_000, numbers[:5], source="s")
        stats = sampler.stats()
        assert stats.rows == len(sampler) == len(sampler.state())
        assert stats.keys_with_several_values <= 5
        assert stats.fed == 60_005
        assert stats.complete_since[0] is not None
        assert stats.complete_since[-1] is None
        assert f"rows={stats.rows:,}" in repr(sampler)
        assert "exact after" in repr(sampler)
        assert f"<td>{stats.rows:,}</td>" in sampler._repr_html_()


class TestParams:
    @for_each(
        "fields",
        [
            {"max_sum": 0}, {"max_sum": (1 << 53) + 1}, {"capacity": 0}, {"capacity": 1 << 21},
            {"max_window": -1}, {"max_window": 1.5}, {"seed": -1}, {"time_unit": "S"},
            {"eager_from_level": 31}, {"eager_from_level": -1},
        ],
    )  # fmt: skip
    def test_refuse_what_is_outside_the_domain(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ds.ParameterError, match=next(iter(fields))):
            SumParams(**{"max_sum": 1 << 30, "capacity": 10, **fields})

    def test_value_type(self) -> None:
        with pytest.raises(ds.ParameterError, match="value_type"):
            MedianParams(max_count=5, capacity=5, value_type="int32")  # type: ignore[arg-type]

    @pytest.mark.parametrize("params", [SUM, MEDIAN])
    def test_round_trip_through_a_dict(self, params: Any) -> None:
        assert AsyncParams.from_dict(params.to_dict()) == params
        for damaged in ({"kind": "mode"}, {"colour": 1}):
            with pytest.raises(ds.ParameterError, match=next(iter(damaged))):
                AsyncParams.from_dict({**params.to_dict(), **damaged})
        with pytest.raises(ds.ParameterError, match="capacity is missing"):
            AsyncParams.from_dict({k: v for k, v in params.to_dict().items() if k != "capacity"})

    def test_fingerprint_knows_all_but_the_capacity(self) -> None:
        assert SUM.fingerprint == SUM.with_capacity(9).fingerprint
        other = {"max_sum": 9, "max_window": None, "seed": 4, "time_unit": "ms"}
        prints = {SUM.fingerprint, MEDIAN.fingerprint}
        for name, value in other.items():
            prints.add(AsyncParams.from_dict({**SUM.to_dict(), name: value}).fingerprint)
        assert len(prints) == 6

    def test_sizing(self) -> None:
        assert SumParams.for_accuracy(0.05, 0.05, max_sum=9, mode="proven").capacity == 24_361
        median = MedianParams.for_accuracy(0.05, 0.05, max_count=9, mode="proven")
        assert median.capacity == 194_887
        assert SumParams.for_accuracy(0.05, 0.05, max_sum=9).capacity == 1537
        assert SumParams.for_accuracy(0.05, 0.05, max_sum=9, eager_from_level=0).capacity == 3074
        assert MedianParams.for_accuracy(0.05, 0.05, max_count=9).capacity == 769
        for epsilon, delta, mode in ((0.0, 0.1, "proven"), (0.1, 1.0, "proven"), (0.1, 0.1, "x")):
            with pytest.raises(ds.ParameterError):
                SumParams.for_accuracy(epsilon, delta, max_sum=9, mode=mode)  # type: ignore[arg-type]
        with pytest.raises(ds.ParameterError, match="mode='practical'"):
            MedianParams.for_accuracy(0.01, 0.05, max_count=9, mode="proven")


class TestCoins:
    def test_keys_are_the_stated_function(self) -> None:
        word = int(coins.source_words(SUM, "node-7")[0])
        for number in (0, 1, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)):
            expected = reference.mix64((word + (number + 1) * 0x9E3779B97F4A7C15) & (1 << 64) - 1)
            assert element_keys(SUM, "node-7", [number]).tolist() == [expected]
        assert element_keys(SUM, "node-7", np.array([1 << 63], np.uint64)).tolist() == [
            int(element_keys(SUM, "node-7", [-(1 << 63)])[0])
        ]

    def test_golden_keys(self) -> None:
        """For ever: other keys would be other samples."""
        keys = element_keys(SumParams(max_sum=9, capacity=9, seed=42), "node-7", [0, 1])
        assert keys.tolist() == GOLDEN_KEYS
        again = element_keys(MedianParams(max_count=9, capacity=9, seed=42), b"node-7", [0, 1])
        assert again.tolist() != GOLDEN_KEYS  # text and bytes are different names

    def test_levels_equal_the_definition_at_the_edges(self) -> None:
        rng = np.random.default_rng(0)
        coins_ = {0, 1, 2, 3, (1 << 53) - 1, (1 << 53) - 2}
        for bit in range(53):
            coins_ |= {1 << bit, (1 << bit) - 1, (1 << bit) + 1, 3 << bit >> 1, 5 << bit >> 2}
        coins_ |= set(rng.integers(0, 1 << 53, 200).tolist())
        keys = np.array([(c << 11) + 7 for c in sorted(coins_) if c < 1 << 53], np.uint64)
        for value in (1, 2, 3, 4, 5, 7, 8, 1000, (1 << 31) - 1, (1 << 53) - 1, 1 << 53):
            for bound in (value, 1 << 53):
                params = SumParams(max_sum=bound, capacity=1)
                found = coins.top_levels(params, np.full(len(keys), value), keys)
                expected = [reference.top_level(int(k), value, params.levels) for k in keys]
                assert found.tolist() == expected

    def test_coins_are_fair(self) -> None:
        n = 1 << 20
        for source in ("a", "b"):
            keys = element_keys(MEDIAN, source, np.arange(n))
            levels = coins.top_levels(MEDIAN, keys.view(np.int64), keys)
            for i in range(1, 12):
                p = 0.5**i
                seen = np.count_nonzero(levels >= i)
                assert abs(seen - n * p) < 5 * (n * p * (1 - p)) ** 0.5


GOLDEN_KEYS = [117007438533029068, 14732302126786893978]
