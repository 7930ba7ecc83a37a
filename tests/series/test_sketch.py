"""What is asked of samples of series: cases counted by hand, laws, and bias against full data."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.cli import app as program
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.query.clusters import Clusters, Reach
from decaysketch.series import NO_START, SeriesParams, SeriesSketch
from quality.series import ALL, collected, population

ALL_TIME = ds.decay.window(10**9)
RESET: Any = [(0, 10), (10, 20), (20, 5), (30, 9)]
HOLDING: Any = [(18, 5), (21, 3), (23, 10), (24, 8), (29, 12), (30, 14)]


def sketch_of(rows: list[tuple[int, float | None]], **more: Any) -> SeriesSketch:
    """Of one series: (time, value)."""
    starts = more.pop("starts", None)
    sketch = SeriesSketch(SeriesParams(**more))
    times, values = zip(*rows, strict=True)
    sketch.update(list(values), 1, list(times), [1] * len(rows), starts=starts)
    return sketch


def increase(rows: list[tuple[int, float | None]], guard: float = 0, **more: Any) -> float:
    wrap = more.pop("wrap", None)
    found = sketch_of(rows, **more).increase(ALL_TIME, now=10**6, guard=guard, wrap=wrap)
    assert found.exact
    return found.value


class TestCounters:
    """Cases that were counted by hand."""

    def test_a_reset_counts_all_that_is_shown_since_0(self) -> None:
        assert increase(RESET) == 10 + 5 + 4
        assert increase(RESET[::-1]) == increase(RESET * 3) == 19
        assert increase([*RESET[:2], RESET[3]]) == 10 + 9  # and then the late one

    @pytest.mark.parametrize(
        ("rows", "expected"),
        [
            ([(0, 2**32 - 5), (10, 7)], 12),
            ([(0, 2**31), (10, 7)], 7),  # further than half of the way round: a reset
        ],
    )
    def test_a_wrap_is_the_shorter_way_round(self, rows: Any, expected: int) -> None:
        for value_type in ("float64", "int64"):
            assert increase(rows, wrap=2**32, value_type=value_type) == expected

    def test_integers_are_subtracted_exactly(self) -> None:
        rows: Any = [(0, 2**60 + 1), (10, 2**60 + 8)]
        assert increase(rows, value_type="int64") == 7

    @pytest.mark.parametrize(
        ("rows", "guard", "expected"),
        [
            # A clock that is 2 ahead.
            ([(0, 100), (15, 115), (16, 114), (30, 130), (31, 129), (45, 145)], 30, 45),
            # A true reset stays one.
            ([(0, 100), (15, 115), (20, 3), (35, 18), (50, 33)], 30, 15 + 3 + 30),
            # The other clock is 28 behind, over a reset.
            (
                [
                    (-15, 970),
                    (0, 1000),
                    (10, 985),
                    (15, 10),
                    (25, 995),
                    (30, 25),
                    (40, 4),
                    (45, 40),
                ],
                60,
                30 + 25 + 15,
            ),
            # A true reset between inverted rows.
            ([(0, 985), (15, 1000), (16, 999), (30, 15), (31, 14), (45, 30)], 60, 15 + 15 + 15),
            # Rows of both lives mixed.
            (
                [(0, 985), (15, 1000), (17, 1), (18, 1000), (32, 16), (33, 15), (47, 31)],
                60,
                15 + 16 + 15,
            ),
        ],
    )
    def test_the_guard_tells_clocks_from_resets(self, rows: Any, guard: int, expected: int) -> None:
        assert increase(rows, guard) == expected

    def test_a_fall_by_rounding_is_no_reset_under_the_guard(self) -> None:
        rows: Any = [(0, 0.1), (1, 0.1 + 0.2), (2, 0.3), (3, 0.4)]
        assert increase(rows) > 0.59
        assert increase(rows, 5) < 0.31

    def test_of_one_time_the_largest_value_counts(self) -> None:
        assert increase([(5, 7), (5, 9), (9, 12)]) == 3

    def test_counters_are_read_across_missing_values(self) -> None:
        assert increase([(0, 5), (10, None), (20, 9)]) == 4

    @pytest.mark.parametrize(
        ("rows", "starts", "expected"),
        [
            ([(10, 5), (20, 9), (30, 4)], [0, 0, 25], 5 + 4 + 4),
            ([(10, 5), (20, 9), (30, 40)], [0, 0, 25], 5 + 4 + 40),  # which no value shows
            ([(10, 5), (20, 4), (30, 0)], [0, 10, 20], 9),  # deltas
            ([(10, 5), (20, 9)], [NO_START, NO_START], 4),
            ([(10, 5), (11, 4), (20, 9)], [0, 0, 0], 9),  # a clock that is behind, in one life
        ],
    )
    def test_start_times_end_guessing(self, rows: Any, starts: list[int], expected: int) -> None:
        for guard in (0, 30):
            assert increase(rows, guard, starts=starts) == expected
            assert increase(rows * 2, guard, starts=starts * 2) == expected

    @pytest.mark.parametrize(
        ("rows", "starts", "resolution", "expected"),
        [
            ([(10, 900), (20, 904), (30, 909)], [10, 10, 10], 1, 9),  # first seen at 10
            ([(15, 900), (25, 904), (35, 909)], [11, 11, 11], 10, 9),
            ([(10, 900), (20, 904), (35, 909)], [5, 5, 35], 1, 900 + 4 + 5),  # seen by another
            ([(10, 900), (20, 904), (35, 3)], [5, 5, 35], 1, 900 + 4 + 3),
        ],
    )
    def test_a_start_in_the_cell_of_its_row_is_unknown(
        self, rows: Any, starts: list[int], resolution: int, expected: int
    ) -> None:
        assert increase(rows, starts=starts, resolution=resolution) == expected

    def test_windows_add_up(self) -> None:
        draw = np.random.default_rng(0)
        times = np.unique(draw.integers(0, 1000, 60))
        values = np.cumsum(draw.poisson(5, len(times)))
        values[30:] -= values[30]
        sketch = sketch_of(list(zip(times.tolist(), values.tolist(), strict=True)))

        def until(now: int, width: int) -> float:
            return sketch.increase(ds.decay.window(width), now=now, guard=0).value

        assert until(900, 800) == pytest.approx(until(437, 337) + until(900, 463), rel=1e-9)

    def test_a_rate_is_over_the_integral_of_the_decay(self) -> None:
        sketch = sketch_of([(0, 0), (100, 50)])
        assert sketch.increase_rate("window(100)", now=100).value == pytest.approx(0.5)
        with pytest.raises(ParameterError, match="integral"):
            sketch.increase_rate("none", now=100)


class TestGaugesAndStates:
    def test_the_worked_example_of_influxdb_7445(self) -> None:
        found = sketch_of(HOLDING).time_average(4, ds.decay.window(10), now=30)
        assert found.value == pytest.approx(65 / 9, rel=1e-12)

    def test_linear_takes_the_middle_of_neighbours(self) -> None:
        sketch = sketch_of([(0, 0), (10, 20)])
        assert sketch.time_average(10, "window(10)", now=10).value == 0
        assert sketch.time_average(10, "window(10)", now=10, linear=True).value == 10

    def test_states_add_up_to_the_valid_time(self) -> None:
        draw = np.random.default_rng(4)
        times = np.unique(draw.integers(0, 1000, 80)).tolist()
        sketch = sketch_of([(time, float(draw.integers(0, 3))) for time in times])
        for decay in ("window(700)", "exponential(half_life=90)", "polynomial(2, scale=30)"):
            shares = [
                sketch.time_in_state(f"v == {state}", decay, validity=20, now=1000)
                for state in range(3)
            ]
            seconds = [
                sketch.state_time(f"v == {state}", decay, validity=20, now=1000)
                for state in range(3)
            ]
            every = sketch.state_time("v >= 0", decay, validity=20, now=1000).value
            assert sum(each.value for each in shares) == pytest.approx(1.0)
            assert sum(each.value for each in seconds) == pytest.approx(every)

    def test_transitions_gaps_and_intervals(self) -> None:
        sketch = sketch_of([(0, 1), (10, 1), (20, 2), (50, 1), (60, None), (70, 2)])
        assert sketch.transitions(ALL_TIME, now=70).value == 2
        assert sketch.transitions(ALL_TIME, now=70, validity=20).value == 1
        assert sketch.gaps(10, ALL_TIME, now=70).value == 1
        assert sketch.gaps(9, ALL_TIME, now=70).value == 5
        assert sketch.interval_quantile(1.0, ALL_TIME, now=70).value == 30

    def test_a_silent_series_keeps_losing_availability(self) -> None:
        sketch = sketch_of([(0, 1), (10, 1)])
        assert sketch.availability(10, ALL_TIME, now=20).value == 1
        assert sketch.availability(10, ALL_TIME, now=40).value == 0.5
        assert sketch.availability(10, ALL_TIME, now=400, forget=20).value == pytest.approx(2 / 3)

    def test_sessions(self) -> None:
        sketch = sketch_of([(time, 1) for time in (0, 10, 20, 100, 110, 300)])
        assert sketch.sessions(30, ALL_TIME, now=300).value == 3
        assert sketch.session_length(30, ALL_TIME, now=300).value == pytest.approx((20 + 10) / 3)
        assert sketch.session_length(30, ALL_TIME, now=300, q=1.0).value == 20

    def test_as_of_the_past_later_rows_are_not_known(self) -> None:
        sketch = sketch_of([(0, 1), (10, 5), (20, 9)])
        assert sketch.increase(ALL_TIME, now=15, guard=0).value == pytest.approx(4 + 2)
        assert sketch.gaps(5, ALL_TIME, now=15).value == 1
        assert sketch.series_count(ALL_TIME, now=15).value == 1
        assert sketch.silent_series(4, ALL_TIME, now=15).value == 1
        assert sketch.silent_series(5, ALL_TIME, now=15).value == 0

    def test_quantiles_over_series(self) -> None:
        sketch = SeriesSketch(SeriesParams())
        for series in range(10):
            sketch.update([series, 2 * series], 1, [0, 100], [series, series])
        averages = sketch.average_quantile(0.5, "window(100)", now=100)
        assert (averages.value, averages.exact, averages.rows) == (4, True, 10)
        assert sketch.increase_quantile(1.0, "window(100)", now=100).value == 9
        with pytest.raises(ParameterError, match="needs a window"):
            sketch.average_quantile(0.5, "exponential(half_life=9)", now=100)

    def test_old_weights_do_not_vanish(self) -> None:
        sketch = sketch_of([(0, 3), (10, 5)])
        far = 10**6
        found = sketch.time_average(10, "exponential(half_life=1)", now=far)
        assert found.value == pytest.approx(4.998, abs=1e-3)
        faded = sketch.increase("exponential(half_life=1)", now=far)
        assert faded.value == 0
        assert "faded" in faded.caveats


def test_a_pair_of_collectors_needs_no_argument() -> None:
    """Clocks 2 s apart, one collector posted twice."""
    for skew in (0.0, 2.0, 28.0):
        rows, rates = collected(np.random.default_rng(3), skew, counters=40)
        params = SeriesParams(time_unit="ms", capacity=ALL)
        parts = [SeriesSketch(params), SeriesSketch(params)]
        for collector, sketch in enumerate(parts):
            own = rows[rows[:, 1] == collector]
            sketch.update(own[:, 3], 1, own[:, 2].astype(int), own[:, 0].astype(int))
        found = ds.merge([*parts, parts[1]]).increase("window(1h)", now=7_200_000)
        assert found.value == pytest.approx(3_600 * rates, rel=0.01)


class TestEstimates:
    """Against all rows, over hash functions; the seeds are fixed."""

    def test_totals_are_unbiased_across_watermarks(self) -> None:
        stream, _ = population("even", series=400, mean_rows=20)
        whole = stream.sketch(stream.counters, ALL, 0)
        for decay in ("window(15000)", "exponential(half_life=5000)"):
            truth = whole.increase(decay, guard=0).value
            errors = [
                stream.sketch(stream.counters, 300, 50 + seed).increase(decay, guard=0).value
                / truth
                - 1
                for seed in range(150)
            ]
            assert abs(np.mean(errors)) < 4 * np.std(errors) / math.sqrt(len(errors))
            assert np.std(errors) > 0.02

    def test_intervals_cover(self) -> None:
        stream, _ = population("even", series=400, mean_rows=20)
        whole = stream.sketch(stream.gauges, ALL, 0)
        truth = whole.time_average(1800, "window(15000)").value
        found = [
            stream.sketch(stream.gauges, 2_000, 50 + seed).time_average(1800, "window(15000)")
            for seed in range(100)
        ]
        assert sum(each.lower <= truth <= each.upper for each in found) >= 89

    def test_what_the_guard_says_does_not_depend_on_what_was_discarded(self) -> None:
        """Pieces that are complete two guards before have the increase that they have among all
        rows."""
        rows, _ = collected(np.random.default_rng(5), 28.0, counters=25, seconds=2_400)
        times, ids = rows[:, 2].astype(int), rows[:, 0].astype(int)

        def said(capacity: int) -> dict[tuple[int, int], float]:
            sketch = SeriesSketch(SeriesParams(time_unit="ms", capacity=capacity, seed=2))
            sketch.update(rows[:, 3], 1, times, ids)
            pieces, state = sketch.snapshot().pieces, sketch.state()
            found = pieces.increases(60_000, None)
            levels = pieces.levels[pieces.entity[found.rows]]
            read = levels >= pieces.bands(found.begins - found.back)
            return {
                (int(state.ids[row]), int(begin)): float(amount)
                for row, begin, amount in zip(
                    found.rows[read], found.begins[read], found.amounts[read], strict=True
                )
            }

        every = said(ALL)
        for capacity in (100, 400, 1_500):
            some = said(capacity)
            assert some
            assert all(every[name] == amount for name, amount in some.items())

    def test_the_variance_is_unbiased_across_bands(self) -> None:
        """An entity with pieces in three bands, over all of its levels."""
        amounts = np.array([3.0, -2.0, 5.0])
        bands = np.array([0, 1, 3])
        total, mean_variance = [], 0.0
        for level in range(4):
            chance = 2.0**-level - (2.0 ** -(level + 1) if level < 3 else 0.0)
            seen = bands <= level
            reach = Reach(False, 0.125, 100)
            clusters = Clusters(
                np.zeros(int(seen.sum()), np.int64), bands[seen], 2.0 ** -bands[seen], reach
            )
            cells = clusters._by_cell(amounts[seen])
            estimates, variances = clusters._spread(cells)
            exact = float(amounts[seen & (bands == 0)].sum())
            total.append((chance, exact + float(estimates.sum())))
            mean_variance += chance * float(variances.sum())
        mean = sum(chance * value for chance, value in total)
        assert mean == pytest.approx(amounts.sum())
        variance = sum(chance * (value - mean) ** 2 for chance, value in total)
        assert mean_variance == pytest.approx(variance)

    def test_declared_weights_reduce_the_error_of_heavy_counters(self) -> None:
        draw = np.random.default_rng(1)
        rates = np.round(draw.pareto(1.2, 500) * 100) + 1
        times, ids = np.repeat(np.arange(20) * 60, 500), np.tile(np.arange(500), 20)
        values = rates[ids] * times / 60
        powers = np.int64(1) << np.floor(np.log2(rates)).astype(np.int64)
        errors: dict[bool, list[float]] = {True: [], False: []}
        for seed in range(40):
            for declared in errors:
                params = SeriesParams(capacity=400, seed=seed, max_weight=1 << 24, id_bits=30)
                sketch = SeriesSketch(params)
                sketch.update(values, powers[ids] if declared else 1, times, ids)
                found = sketch.increase("window(900)", guard=0).value
                errors[declared].append(found / (rates.sum() * 15) - 1)
        assert np.std(errors[True]) < 0.4 * np.std(errors[False])


class TestFewSeries:
    def sketch(self, series: int, **more: Any) -> SeriesSketch:
        sketch = SeriesSketch(SeriesParams(capacity=200, **more))
        times = np.arange(1_000)
        for number in range(series):
            sketch.update(times, 1, times, np.full(1_000, number))
        return sketch

    def test_a_small_fleet_gets_advice_and_a_caveat(self) -> None:
        for series in (3, 30):
            sketch = self.sketch(series)
            assert "resolution" in str(sketch.stats().advice)
            assert "advice" in repr(sketch)
            assert sketch.increase("window(900)").caveats == ("few-series",)
        thinned = self.sketch(3, resolution=60)
        assert thinned.stats().advice is None
        assert thinned.increase("window(900)").exact

    def test_of_too_few_nothing_bounds_the_others(self) -> None:
        found = self.sketch(3).increase("window(900)")
        assert math.isinf(found.upper)

    def test_an_even_fleet_has_no_caveat(self) -> None:
        sketch = SeriesSketch(SeriesParams(capacity=2_000))
        for tick in range(20):
            sketch.update(np.full(500, tick), 1, np.full(500, 60 * tick), np.arange(500))
        found = sketch.increase("window(600)", guard=0)
        assert not found.exact
        assert found.caveats == ()
        assert found.lower <= 500 * 10 <= found.upper
        assert sketch.stats().advice is None
        assert sketch.stats().complete[3] < 500
        for decay in ("window(600)", "exponential(half_life=100)"):  # recent pieces weigh more
            counted = sketch.gaps(30, decay)
            assert not counted.exact
            assert counted.caveats == ()


class TestRefusals:
    def test_a_start_after_its_row(self) -> None:
        sketch = SeriesSketch(SeriesParams())
        with pytest.raises(ObservationError, match=r"starts\[1\] is 30; expected at most"):
            sketch.update([1, 2], 1, [10, 20], [1, 1], starts=[5, 30])
        with pytest.raises(ObservationError, match="entities has 1 rows"):
            sketch.update([1, 2], 1, [10, 20], [1, 1], entities=[5])
        with pytest.raises(ObservationError, match=r"entities\[0\] is -1"):
            sketch.update([1, 2], 1, [10, 20], [1, 1], entities=[-1, 2])
        assert len(sketch) == 0

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"resolution": 0}, "resolution is 0"),
            ({"copies": 2}, "copies is 2"),
            ({"value_type": "label"}, "value_type is 'label'"),
            ({"id_mix": "none"}, "id_mix is 'none'"),
        ],
    )
    def test_parameters(self, fields: Any, message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            SeriesParams(**fields)

    def test_a_size_that_none_has(self) -> None:
        with pytest.raises(ParameterError, match="choose a resolution"):
            SeriesParams.for_series(0.001, rows_per_series=10_000)

    def test_rows_after_a_limit_are_counted_and_refused(self) -> None:
        sketch = SeriesSketch(SeriesParams())
        sketch.update([1, 2, 3], 1, [10, 20, 30], [1, 1, 1], not_after=20, starts=[0, 0, 0])
        stats = sketch.stats()
        assert (stats.fed, stats.too_late, stats.rows) == (3, 1, 2)


def test_other_resolutions_do_not_merge() -> None:
    one, other = SeriesSketch(SeriesParams()), SeriesSketch(SeriesParams(resolution=60))
    with pytest.raises(ds.IncompatibleSketchError, match="resolution: 1 != 60"):
        one.merge(other)
    with pytest.raises(ds.IncompatibleSketchError, match="resolution"):
        SeriesSketch.from_bytes(other.to_bytes(), params=one.params)


def test_a_weight_is_rounded_down_to_a_power_of_two() -> None:
    sketch = SeriesSketch(SeriesParams(max_weight=100))
    sketch.update([1, 1, 1], [63, 64, 100], [1, 2, 3], [1, 1, 1])
    assert sketch.state().weights.tolist() == [32, 64, 64]


def test_series_of_one_entity_are_sampled_together() -> None:
    sketch = SeriesSketch(SeriesParams(capacity=50))
    series = np.arange(400)
    for tick in range(3):
        sketch.update(series, 1, np.full(400, tick), series, entities=series // 4)
    state = sketch.state()
    _, counts = np.unique(state.entities, return_counts=True)
    assert set(counts.tolist()) <= {4, 8, 12}


def test_every_interface_gives_the_advice(tmp_path: Path) -> None:
    """A build from a file, and a stream over HTTP."""
    log = tmp_path / "log.csv"
    rows = [f"{second},{device},{second}" for device in range(3) for second in range(1_000)]
    log.write_text("time,device,value\n" + "\n".join(rows) + "\n", encoding="utf-8")
    command = ["build", str(log), "--family", "series", "--id-columns", "device", "--time-column",
               "time", "--value-column", "value", "--capacity", "200", "--time-unit", "s",
               "--any-time", "--out", str(tmp_path / "log.sketch"), "--json"]  # fmt: skip
    ran = CliRunner().invoke(program, command)
    assert ran.exit_code == 0, ran.output
    assert "choose a resolution" in json.loads(ran.stdout)["advice"]


def test_two_writers_of_one_series_count_apart_and_are_named() -> None:
    """Two processes with a start each write to one series in turn, and one restarts."""
    sketch, entity = SeriesSketch(SeriesParams(attributes="job")), [7, 7]
    for tick in range(1, 9):
        times, shown = [10 * tick, 10 * tick + 5], [10.0 * tick, 20.0 * tick]
        starts = [0, 2]
        if tick > 4:
            shown[1], starts[1] = 20.0 * (tick - 4), 46
        sketch.update(shown, 1, times, [1, 1], entities=entity, starts=starts)
    assert sketch.increase("none").value == 80 + 80 + 80
    [said] = sketch.stats().warnings
    assert said.startswith("15 rows have a start before")
    assert "warnings" in repr(sketch)
    assert "attributes: job" in repr(sketch) or "attributes=job" in repr(sketch)


def test_a_small_fleet_without_a_beginning_has_no_upper_bound() -> None:
    """No device is retained from the beginning of the window on, and nothing shows that the stream
    began later. Five hash functions, most of which retain two devices for a while.
    """
    for seed in range(5):
        sketch = SeriesSketch(SeriesParams(capacity=500, seed=seed))
        for series in range(24):
            times = np.arange(series, 40_000, 20)
            sketch.update(times, 1, times, np.full(len(times), series))
        for decay in ("window(15000)", "polynomial(2, scale=6000)"):
            found = sketch.increase(decay)
            assert math.isinf(found.upper)
            assert "few-series" in found.caveats
        assert math.isfinite(sketch.increase("window(1000)").upper)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("capacity", [30, 1_000])
def test_averages_of_huge_values_are_finite(sign: int, capacity: int) -> None:
    sketches = [SeriesSketch(SeriesParams(seed=7, capacity=capacity)) for _ in range(2)]
    for device in range(6):
        values = sign * (1.0 + np.arange(40) * device / 1_000)
        for sketch, scale in zip(sketches, (1.0, 2.0**1023), strict=True):
            sketch.update(values * scale, 1, np.arange(40) * 25, [device] * 40)
    for average in (
        lambda each: each.time_average(None, "window(90)", now=975),
        lambda each: each.time_average(None, "window(90)", linear=True, now=975),
        lambda each: each.average_quantile(0.5, "window(90)", now=975),
    ):
        one, huge = map(average, sketches)
        assert huge == one.over(1023)
        assert math.isfinite(huge.value)


def test_intervals_of_huge_values_are_those_of_small_ones() -> None:
    """No variance or skewness overflows, and no difference is infinite."""
    draw = np.random.default_rng(0)
    times, series = draw.integers(0, 200, 400), draw.integers(0, 30, 400)
    window, fading = ds.decay.window(150), ds.decay.exponential(half_life=50)
    for capacity in (20, 1_000):
        small, huge = (SeriesSketch(SeriesParams(capacity=capacity)) for _ in range(2))
        for sketch, exponent in ((small, 0), (huge, 1015)):
            sketch.update(np.ldexp(np.sin(times), exponent), 1, times, series)
        for name, arguments in (
            ("increase", (window,)), ("increase", (fading,)), ("increase_quantile", (0.5, window)),
            ("time_average", (9, window)), ("average_quantile", (0.5, window)),
        ):  # fmt: skip
            one, other = (getattr(each, name)(*arguments, now=200) for each in (small, huge))
            assert one.over(1015) == other, name
    assert increase([(0, -1.7e308), (10, 1.7e308), (15, None)]) == sys.float_info.max
