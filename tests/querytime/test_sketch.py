"""DecaySketch as its users meet it: input in every form, faults, limits, views."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from support.rows import for_each

import decaysketch as ds

PARAMS = ds.SketchParams(max_weight=9, id_bits=20, capacity=50, seed=3)
FOREVER = ds.decay.none()


def sketch_of(*rows: tuple[Any, int, int, int], params: ds.SketchParams = PARAMS) -> ds.DecaySketch:
    sketch = ds.DecaySketch(params)
    for row in rows:
        sketch.update(*row)
    return sketch


def test_the_tutorial_in_the_class_docstring_counts_each_reading_once() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40))
    sketch.update([21.5, 22.0, 21.5], 1, [100, 160, 100], [7, 8, 7])
    answer = sketch.count(ds.decay.window(3600), now=200)
    assert answer.exact
    assert (answer.value, answer.lower, answer.upper) == (2.0, 2.0, 2.0)


def test_scalars_arrays_lists_and_numpy_scalars_are_the_same_input() -> None:
    rows = [(1.5, 2, 10, 100), (-0.0, 1, 11, 101), (7, 9, 12, 102)]
    values, weights, times, ids = (list(column) for column in zip(*rows, strict=True))
    one_by_one = sketch_of(*rows)
    forms: list[tuple[Any, ...]] = [
        (values, weights, times, ids),
        tuple(np.array(c) for c in (values, weights, times, ids)),
        (np.float32(values), np.uint8(weights), np.int32(times), np.uint64(ids)),
        (np.array(values)[::-1], *(np.array(c)[::-1] for c in (weights, times, ids))),
        (np.array(values, dtype=object), np.array(weights, dtype=object), times, ids),
    ]
    for form in forms:
        sketch = ds.DecaySketch(PARAMS)
        sketch.update(*form)
        assert sketch == one_by_one
    numpy_scalars = ds.DecaySketch(PARAMS)
    for value, weight, time, id_ in rows:
        numpy_scalars.update(np.float64(value), np.int64(weight), np.int32(time), np.uint16(id_))
    assert numpy_scalars == one_by_one


def test_read_only_and_strided_arrays_are_taken_as_they_are() -> None:
    table = np.arange(40, dtype=np.int64).reshape(10, 4) % 9 + 1
    table.setflags(write=False)
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(*table.T)
    copied = ds.DecaySketch(PARAMS)
    copied.update(*(np.ascontiguousarray(column) for column in table.T))
    assert sketch == copied


def test_the_latest_copy_represents_an_observation() -> None:
    early, late, tied = (5.0, 1, 10, 7), (3.0, 1, 20, 7), (4.0, 1, 20, 7)
    sketch = sketch_of(late, early, tied)
    assert len(sketch) == 1
    assert sketch.total(FOREVER, now=30).value == 4.0
    assert sketch.count(ds.decay.window(10), now=30).value == 1.0
    assert sketch_of(early, (5.0, 2, 10, 7)).count(FOREVER, now=30).value == 2.0


def test_of_copies_of_one_time_the_larger_value_wins_also_over_what_was_asked_for() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update([5.0] * 8, 1, [10] * 8, list(range(8)))
    sketch.state()
    sketch.update([3.0, 7.0, 1.0, 9.0, 9.0, 1.0], 1, [10] * 6, [0, 1, 2, 2, 3, 3])
    state = sketch.state()
    values = ds.DecaySketch.from_state([state]).sample(FOREVER, now=10).values
    assert dict(zip(state.ids.tolist(), values.tolist(), strict=True)) == {
        0: 5.0, 1: 7.0, 2: 9.0, 3: 9.0, 4: 5.0, 5: 5.0, 6: 5.0, 7: 5.0,
    }  # fmt: skip
    sketch.update([2.0, 2.0], 1, [9, 11], [4, 5])
    sketch.state()
    sketch.update([1.0, 8.0], 1, [10, 10], [8, 8])
    assert sketch.total(FOREVER, now=11).value == 5 + 7 + 9 + 9 + 5 + 2 + 5 + 5 + 8


def test_missing_values_are_counted_and_absent_from_value_aggregates() -> None:
    sketch = sketch_of((None, 2, 10, 1), (4.0, 2, 10, 2))
    assert sketch.count(FOREVER, now=10).value == 2.0
    assert sketch.sum(FOREVER, now=10).value == 4.0
    assert sketch.total(FOREVER, now=10).value == 4.0
    assert sketch.mean(FOREVER, now=10).value == 4.0
    replaced = sketch_of((None, 2, 10, 1), (-9.0, 2, 10, 1))  # at one time, any value beats none
    assert replaced.total(FOREVER, now=10).value == -9.0


def test_weight_zero_is_a_counted_no_op() -> None:
    sketch = sketch_of((1.0, 0, 10, 1), (1.0, 1, 10, 2))
    sketch.update([1.0, 1.0], [0, 0], [10, 10], [3, 4])
    stats = sketch.stats()
    assert (stats.fed, stats.zero_weight, stats.rows) == (4, 3, 1)


def test_not_after_refuses_and_counts_what_is_too_late() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update([1.0, 2.0, 3.0], 1, [10, 11, 12], [1, 2, 3], not_after=11)
    sketch.update(4.0, 1, 13, 4, not_after=11)
    stats = sketch.stats()
    assert (stats.fed, stats.too_late, stats.rows) == (4, 2, 2)
    with pytest.raises(ds.ParameterError, match=r"not_after is 1\.5"):
        sketch.update(4.0, 1, 13, 4, not_after=1.5)  # type: ignore[arg-type]


def test_observations_after_now_are_kept_and_not_counted() -> None:
    sketch = sketch_of((1.0, 1, 10, 1), (1.0, 1, 99, 2))
    assert sketch.count(FOREVER, now=10).value == 1.0
    assert sketch.count(FOREVER, now=99).value == 2.0


@for_each(
    "column, bad, message",
    [
        ("values", float("nan"), r"values\[1\] is nan"),
        ("values", float("-inf"), r"values\[1\] is -inf"),
        ("values", "warm", "values has dtype|expected a number"),
        ("weights", -1, r"weights\[1\] is -1; expected 0 to 9"),
        ("weights", 10, r"weights\[1\] is 10; expected 0 to 9 \(max_weight\)"),
        ("weights", 1.5, "weights has dtype float64|expected an integer"),
        ("timestamps", (1 << 62) + 1, r"timestamps\[1\] is 4611686018427387905"),
        ("timestamps", -(1 << 62) - 1, r"timestamps\[1\] is -4611686018427387905"),
        ("timestamps", None, r"timestamps\[1\] is None; expected an integer"),
        ("ids", 1 << 20, r"ids\[1\] is 1048576; expected 0 to 1048575 \(2\^20 - 1\)"),
        ("ids", -1, r"ids\[1\] is -1"),
        ("ids", 1 << 64, r"ids(\[1\])? "),
    ],
)
def test_a_bad_row_is_named_and_nothing_changes(column: str, bad: Any, message: str) -> None:
    sketch = sketch_of((1.0, 1, 10, 1))
    before = sketch.to_bytes()
    good = {"values": 1.0, "weights": 1, "timestamps": 10, "ids": 5}
    rows = {name: [value] * 3 for name, value in good.items()}
    rows[column][1] = bad
    with pytest.raises(ds.ObservationError, match=message) as caught:
        sketch.update(*(rows[name] for name in good))
    assert caught.value.column == column
    single = {**good, column: bad}
    with pytest.raises(ds.ObservationError):
        sketch.update(*(single[name] for name in good))
    typed = rows[column]
    if all(isinstance(cell, (int, float)) and -(1 << 63) <= cell < 1 << 63 for cell in typed):
        arrays = {name: np.array(cells) for name, cells in rows.items()}
        if column != "values":
            arrays["values"] = arrays["values"].astype(np.float64)
        with pytest.raises(ds.ObservationError):
            sketch.update(*(arrays[name] for name in good))
    assert sketch.to_bytes() == before
    assert sketch.stats().fed == 1


def test_integers_that_float64_cannot_hold_and_bools_are_refused() -> None:
    sketch = ds.DecaySketch(PARAMS)
    for values in ((1 << 53) + 1, [1, (1 << 53) + 1], np.array([1, (1 << 53) + 1])):
        with pytest.raises(ds.ObservationError, match="9007199254740993, not exact as float64"):
            sketch.update(values, *(np.ones(np.shape(values), int) for _ in range(3)))
    for bad in (True, [True, False]):
        with pytest.raises(ds.ObservationError, match="ids has dtype bool"):
            sketch.update(np.ones(np.shape(bad)), 1, np.ones(np.shape(bad), int), bad)
    assert len(sketch) == 0


@pytest.mark.parametrize("time", [1 << 62, -(1 << 62), (1 << 62) - 1, 0, -1])
@pytest.mark.parametrize("weight", [1, 9])
@pytest.mark.parametrize("id_", [0, (1 << 20) - 1])
def test_the_bounds_themselves_are_taken_in_every_form(time: int, weight: int, id_: int) -> None:
    for value in (np.finfo(float).max, -np.finfo(float).max, 5e-324):
        single = sketch_of((float(value), weight, time, id_))
        listed, typed = ds.DecaySketch(PARAMS), ds.DecaySketch(PARAMS)
        listed.update([float(value)], [weight], [time], [id_])
        typed.update(*(np.array([cell]) for cell in (value, weight, time, id_)))
        assert single == listed == typed
        assert len(single) == 1


def test_columns_of_unequal_length_or_several_dimensions_are_refused() -> None:
    sketch = ds.DecaySketch(PARAMS)
    with pytest.raises(ds.ObservationError, match="timestamps has 1 rows, ids has 2"):
        sketch.update([1.0, 2.0], [1, 1], [10], [1, 2])
    with pytest.raises(ds.ObservationError, match="values has 3 rows, ids has 2"):
        sketch.update(np.ones(3), np.ones(2, int), np.ones(2, int), np.ones(2, int))
    with pytest.raises(ds.ObservationError, match="ids has 2 dimensions"):
        sketch.update([1.0], [1], [10], [[1, 2]])
    assert len(sketch) == 0


def test_an_int64_stream_refuses_floats_and_the_key_of_missing_values() -> None:
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=8, value_type="int64"))
    with pytest.raises(ds.ObservationError, match="value_type is 'int64'"):
        sketch.update([1.5], 1, [1], [1])
    for value in (-(1 << 63), np.array([-(1 << 63)])):
        with pytest.raises(ds.ObservationError, match="marks a missing value"):
            sketch.update(value, *([1] * np.size(value) for _ in range(3)))
    sketch.update((1 << 63) - 1, 1, 1, 1)
    assert sketch.state().value_keys.tolist() == [(1 << 63) - 1]


def test_a_merge_of_other_parameters_names_every_field_and_changes_nothing() -> None:
    ours = sketch_of((1.0, 1, 10, 1))
    other = ds.SketchParams(max_weight=8, id_bits=20, seed=4, time_unit="ms", value_type="int64")
    before = ours.to_bytes()
    for attempt in (ours.merge, lambda theirs: ours | theirs):
        with pytest.raises(ds.IncompatibleSketchError) as caught:
            attempt(ds.DecaySketch(other))
        assert caught.value.fields == {
            "max_weight": (9, 8),
            "seed": (3, 4),
            "time_unit": ("s", "ms"),
            "value_type": ("float64", "int64"),
        }
        assert "seed: 3 != 4" in str(caught.value)
    assert ours.to_bytes() == before


def test_secret_keys_must_agree() -> None:
    key, other = b"k" * 32, b"o" * 32
    keyed = ds.SketchParams(max_weight=1, id_bits=40, id_key=key)
    sketch = ds.DecaySketch(keyed)
    sketch.update(np.arange(100.0), np.ones(100, int), np.arange(100), np.arange(100))
    wrong = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, id_key=other))
    with pytest.raises(ds.IncompatibleSketchError, match="key_check"):
        sketch.merge(wrong)
    with pytest.raises(ds.IncompatibleSketchError, match="keyed_by"):
        sketch.merge(ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40)))


def test_what_was_discarded_at_every_level_is_never_answered_with_zero() -> None:
    for seed in range(100):  # the coarsest level selects a handful of ids: find one of them twice
        tiny = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=10, capacity=1, seed=seed))
        tiny.update(np.zeros(1_000), np.ones(1_000, int), np.arange(1_000), np.arange(1_000))
        if tiny.stats().complete_since[-1] is not None:
            break
    with pytest.raises(ds.UnanswerableQueryError, match="window"):
        tiny.count(ds.decay.window(999), now=999)
    assert tiny.count(ds.decay.window(0), now=999).value > 0


def test_stats_report_ids_with_several_weights_and_watermarks() -> None:
    sketch = sketch_of((1.0, 1, 10, 1), (1.0, 2, 12, 1), (1.0, 2, 11, 2))
    stats = sketch.stats()
    assert stats.ids_with_several_weights == 1
    assert (stats.oldest, stats.newest) == (10, 12)
    assert set(stats.complete_since) == {None}


def test_views_of_empty_and_full_sketches() -> None:
    empty = ds.DecaySketch(PARAMS)
    assert "rows=0" in repr(empty)
    assert "<table>" in empty._repr_html_()
    full = ds.DecaySketch(PARAMS)
    full.update(np.zeros(5_000), np.ones(5_000, int), np.arange(5_000), np.arange(5_000))
    assert "times=" in repr(full)
    assert "exact after" in full._repr_html_()
    assert full != "something else"
    with pytest.raises(TypeError):
        hash(full)


def test_merging_large_sketches_from_bytes_stays_within_its_memory() -> None:
    """The joined rows exceed what is gathered before a compaction, and survive it."""
    params = ds.SketchParams(max_weight=1, id_bits=40, capacity=100_000, seed=1)
    blobs = []
    for part in range(3):
        ids = np.arange(part * 300_000, (part + 1) * 300_000)
        sketch = ds.DecaySketch(params)
        sketch.update(None, 1, ids, ids)
        blobs.append(sketch.to_bytes())
    whole = ds.DecaySketch(params)
    whole.update(None, 1, np.arange(900_000), np.arange(900_000))
    parts = [ds.DecaySketch.from_bytes(blob) for blob in blobs]
    assert ds.merge(parts).to_bytes() == whole.to_bytes()
    parts[0].merge(parts[1])
    assert (parts[0] | parts[2]).to_bytes() == whole.to_bytes()


def test_threads_that_come_first_all_succeed() -> None:
    program = """
import threading
import numpy as np
import decaysketch as ds
params = ds.SketchParams(max_weight=1, id_bits=20)
barrier, counts = threading.Barrier(6), []
def work():
    barrier.wait()
    sketch = ds.DecaySketch(params)
    sketch.update(np.ones(10), np.ones(10, int), np.arange(10), np.arange(10))
    counts.append(len(sketch))
threads = [threading.Thread(target=work) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert counts == [10] * 6, counts
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=1800)


def test_arrays_without_a_dimension_and_empty_batches_are_input_too() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(np.array(1.0), np.array(1), np.array(5), np.array(7))
    sketch.update([], 1, [], [])
    sketch.update(np.empty(0), np.empty(0, int), np.empty(0, int), np.empty(0, int))
    assert len(sketch) == 1


def test_a_state_stays_read_only_through_pickle() -> None:
    sketch = pickle.loads(pickle.dumps(sketch_of((1.0, 1, 10, 1))))
    state = sketch.state()
    for column in (state.times, state.ids, state.watermarks, sketch.params.mix_constants):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 99


def test_sketches_of_several_threads_do_not_share_state() -> None:
    def build(seed: int, into: list[bytes]) -> None:
        rng = np.random.default_rng(seed)
        sketch = ds.DecaySketch(PARAMS)
        for _ in range(30):
            rows = 2_000
            sketch.update(
                rng.random(rows),
                rng.integers(0, 10, rows),
                rng.integers(0, 10_000, rows),
                rng.integers(0, 1 << 20, rows),
            )
        into.append(sketch.to_bytes())

    alone: list[list[bytes]] = [[], []]
    for seed in (0, 1):
        build(seed, alone[seed])
    together: list[list[bytes]] = [[], []]
    threads = [threading.Thread(target=build, args=(seed, together[seed])) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


@pytest.mark.parametrize("asked", ["window(10)", "none"])
def test_before_the_oldest_there_is_nothing_or_nothing_that_was_retained(asked: str) -> None:
    """The interval tells the two apart, so that it needs no caveat."""
    times = np.arange(1_000, 2_000)
    for capacity, whole in ((2_000, True), (10, False)):
        sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, capacity=capacity))
        sketch.update(times * 1.0, 1, times, times)
        oldest = sketch.stats().oldest
        assert oldest is not None
        for now in (oldest - 1, 900):
            count, mean = sketch.count(asked, now=now), sketch.mean(asked, now=now)
            assert (count.value, count.rows, count.exact, mean.rows) == (0.0, 0, whole, 0)
            assert np.isnan(mean.value)
            assert (count.upper > 0) != whole
            assert count.upper >= (min(10, now - 999) if asked == "window(10)" else now - 999)
            assert count.caveats == mean.caveats == ()
