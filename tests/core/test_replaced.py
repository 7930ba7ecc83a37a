"""Readings that a later one of their id replaced are counted, by every family that has ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import tables
from decaysketch.core.duplicates import far_apart, replaced_readings
from decaysketch.errors import DisagreeingCopiesWarning, TimeZoneWarning, UnlikelyClockWarning
from decaysketch.tables import ColumnMapping, KeyedBuilder

FAMILIES: dict[str, Callable[..., Any]] = {
    "decay": lambda **more: ds.DecaySketch(ds.SketchParams(time_unit="s", max_weight=1000, **more)),
    "integral": lambda **more: ds.IntegralDecaySketch(
        ds.SketchParams(time_unit="s", max_weight=1000, **more), ds.decay.integral.halving(10**6)
    ),
}
START = 1_780_000_000


def _fed(family: str, times: Any, values: Any, ids: Any, **more: Any) -> Any:
    sketch = FAMILIES[family](**more)
    sketch.update(
        np.asarray(values, float), np.full(len(ids), 1000), START + np.asarray(times, np.int64),
        np.asarray(ids, np.int64),
    )  # fmt: skip
    return sketch


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("times", "values", "replaced"),
    [
        ((0, 61), (1, 2), 1), ((0, 60), (1, 2), 0), ((0, 0), (1, 2), 0), ((0, 3600), (1, 1), 0),
        ((0, 86_401), (1, 1), 1), ((86_401, 0), (1, 1), 1), ((0, 600, 1200), (1, 2, 3), 2),
        ((0, 600, 600), (1, 2, 2), 1), ((0,), (1,), 0),
    ],
)  # fmt: skip
def test_far_away_and_another_reading(
    family: str, times: tuple[int, ...], values: tuple[int, ...], replaced: int
) -> None:
    ids = [7] * len(times)
    assert _fed(family, times, values, ids).stats().replaced == replaced
    one_by_one = FAMILIES[family]()
    for time, value in zip(times, values, strict=True):
        one_by_one.update(value, 1000, START + time, 7)
        one_by_one.snapshot()  # each is compacted alone
    assert one_by_one.stats().replaced == replaced


@pytest.mark.parametrize("family", FAMILIES)
def test_merging_counts_what_it_drops(family: str) -> None:
    before = _fed(family, range(1000), range(1000), range(1000))
    after = _fed(family, range(90_000, 91_000), range(1000), range(1000))
    assert before.replaced == after.replaced == 0
    merged = before.copy()
    merged.merge(after)
    assert merged.replaced == 1000
    assert merged.copy().replaced == 0  # of each object its own
    again = merged.copy()
    again.merge(after)
    assert again.replaced == 0  # duplicates of what is there


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_a_counter_that_restarts_shows_in_any_order(family: str, order: str) -> None:
    weeks, per_week, capacity = 4, 20_000, 1000
    times = np.arange(weeks * per_week) * 30
    ids = np.tile(np.arange(per_week), weeks)
    values = np.random.default_rng(5).normal(20, 3, len(times))
    chosen = {"rising": slice(None), "falling": slice(None, None, -1)}.get(order)
    if chosen is None:
        chosen = np.random.default_rng(6).permutation(len(times))
    sketch = FAMILIES[family](capacity=capacity)
    for part in np.array_split(np.arange(len(times))[chosen], 40):
        sketch.update(values[part], np.full(len(part), 1000), START + times[part], ids[part])
    assert replaced_readings(sketch.replaced, len(sketch)) is not None


@pytest.mark.parametrize("family", FAMILIES)
def test_duplicates_and_corrections_are_not_counted(family: str) -> None:
    rng = np.random.default_rng(3)
    times, ids = rng.integers(0, 10**6, 5000), np.arange(5000)
    values = rng.normal(size=5000)
    sketch = _fed(family, times, values, ids, capacity=500)
    for late in (0, 5, 59, 40_000):  # stamped again by relays
        sketch.update(values, np.full(5000, 1000), START + times + late, ids)
    assert sketch.replaced == 0
    sketch.update(values + 1, np.full(5000, 1000), START + times + 40_001, ids)
    assert sketch.replaced == 0 or replaced_readings(sketch.replaced, len(sketch)) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 300), st.integers(0, 2)), max_size=60))
def test_the_count_is_that_of_the_definition(rows: list[tuple[int, int, int]]) -> None:
    """Where nothing is discarded and rows come one by one, in order of time."""
    sketch, held, expected = FAMILIES["decay"](), {}, 0  # type: ignore[var-annotated]
    for id, time, value in sorted(rows, key=lambda row: row[1]):
        sketch.update(value, 1000, START + time, id)
        sketch.snapshot()
        if id in held:
            other_time, other_value = held[id]
            expected += time - other_time > 60 and value != other_value
        held[id] = max(held.get(id, (-1, -1)), (time, value))
    assert sketch.replaced == expected


def test_keys_that_are_held_together_count_as_well() -> None:
    n = 3000
    table = pa.table(
        {
            "time": np.concatenate([np.arange(n), np.arange(n) + 10**6]) + START,
            "id": np.tile(np.arange(n), 2), "key": np.tile(np.arange(n) % 7, 2),
            "value": np.arange(2 * n, dtype=float),
        }
    )  # fmt: skip
    mapping = ColumnMapping(time="time", ids=("id",), value="value")
    for capacity in (100, 10_000):
        params = ds.SketchParams(time_unit="s", capacity=capacity)
        for keys in (("key",), ()):
            builder = KeyedBuilder(params, mapping, keys)
            builder.add(table)
            assert DisagreeingCopiesWarning in builder.warnings()
            clean = KeyedBuilder(params, mapping, keys)
            clean.add(table.slice(n))
            clean.add(table.slice(n))
            assert not clean.warnings()


@pytest.mark.parametrize("copies", [1, 2])  # one is merged for many keys at once, two one by one
@pytest.mark.parametrize("keys", [(), ("key",)])
def test_partial_sketches_count_in_themselves_and_when_they_are_merged(
    keys: tuple[str, ...], copies: int
) -> None:
    rows = np.arange(4000)
    times = np.append(START + 600 * rows[:-1], 0)
    table = pa.table(
        {
            "time": pa.array(times, pa.timestamp("s")), "key": rows % 2,
            "id": rows % 1000, "value": rows * 1.0,
        }
    )  # fmt: skip
    mapping = ColumnMapping(time="time", ids=("id",), value="value")
    params = ds.SketchParams(time_unit="s", capacity=2000, copies=copies)
    whole = KeyedBuilder(params, mapping, keys)
    whole.add(table)
    build = tables.partial_builder(params, mapping, keys)
    parts = [row for k in range(4) for row in build(iter(table[k * 1000 :][:1000].to_batches()))]
    partials = pa.Table.from_batches(parts)
    partials = partials.sort_by("key") if keys else partials
    merged = tables.partition_merger(keys)(iter(partials.combine_chunks().to_batches()))
    for rows_of in (whole.batches(), merged):
        found = [row for each in rows_of for row in each.to_pylist()]
        assert len(found) == (2 if keys else 1)
        assert sum(row["replaced"] for row in found) == 3000
        assert sum(row["undated"] for row in found) == 1
        assert sum(row["zoneless"] for row in found) == 4000
    said = [DisagreeingCopiesWarning, TimeZoneWarning, UnlikelyClockWarning]
    assert list(whole.warnings()) == said


def test_units_and_the_sentence() -> None:
    assert far_apart("ticks")[0] == far_apart("ticks")[1] == (1 << 64) - 1
    assert far_apart("d") == (0, 1)
    assert replaced_readings(0, 0) is None
    said = replaced_readings(12, 1000, ["dev", "seq"])
    assert said is not None
    assert "'dev', 'seq'" in said
