"""The last readings of devices, against a dictionary that is fed the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from delivery_logs import REAL_LOGS
from hypothesis import given, settings
from hypothesis import strategies as st

import decaysketch as ds
from decaysketch import Device, Devices

PARAMS = ds.SketchParams(capacity=50, seed=3)
NAMES = ds.SketchParams(capacity=50, seed=3, value_type="label")


def fed(rows: list[tuple[Any, float | None, int]], params: ds.SketchParams = PARAMS) -> Devices:
    """Of (device, value, time)."""
    readings = ds.DecaySketch(params)
    names = ds.DecaySketch(ds.SketchParams(capacity=params.capacity, seed=3, value_type="label"))
    for device, value, time in rows:
        parts = device if isinstance(device, tuple) else (device,)
        ids = ds.observation_ids(*([part] for part in parts), params=params)
        readings.update([value], 1, [time], ids)
        names.update([Devices.name_of(device)], 1, [time], ids)
    return Devices(readings, names)


ROWS = [("a", 1.0, 100), ("b", 2.0, 150), ("a", 5.0, 160), ("c", None, 90), (("site", 7), 3.0, 155)]


def test_the_last_reading_of_each_by_hand() -> None:
    devices = fed(ROWS + ROWS[::-1])
    assert len(devices) == 4
    assert (devices.newest, devices.complete_since) == (160, None)
    last = devices.last("a")
    assert last is not None
    assert (last.name, last.value, last.time) == ("a", 5.0, 160)
    missing = devices.last("c")
    assert missing is not None
    assert (missing.value, missing.time) == (None, 90)
    pair = devices.last(("site", 7))
    assert pair is not None
    assert (pair.name, pair.value) == ('["site", 7]', 3.0)
    assert devices.last("z") is None
    assert [(each.name, each.time) for each in devices.silent(20, 175)] == [
        ("c", 90), ("b", 150),
    ]  # fmt: skip
    assert [each.name for each in devices.silent(10, 175, limit=2)] == ["c", "b"]
    assert [each.name for each in devices.listed()] == ["a", '["site", 7]', "b", "c"]
    assert devices.active(10, 160).value == 3
    assert devices.active(10).exact
    assert devices.silent_count(20, 175).value == 2
    assert devices.mean(10, 160).value == pytest.approx((5 + 2 + 3) / 3)
    assert devices.mean().value == pytest.approx((5 + 2 + 3) / 3)


def test_earlier_than_the_newest_reading_is_refused() -> None:
    """Who spoke again since has left no row of the time before."""
    devices = fed(ROWS)
    for ask in (devices.active, devices.silent, devices.silent_count, devices.mean):
        with pytest.raises(ds.UnanswerableQueryError, match="now is 159, and the newest reading"):
            ask(10, 159)


def test_what_was_discarded_is_not_said_to_be_silent() -> None:
    """The longest silent are discarded first."""
    many = fed([(n, float(n), 1_000 + n) for n in range(400)])
    assert many.complete_since is not None
    with pytest.raises(ds.UnanswerableQueryError, match="the longest silent ones"):
        many.silent(10)
    with pytest.raises(ds.UnanswerableQueryError, match="'0' has no stored reading: it never"):
        many.last(0)
    held = many.last(399)
    assert held == Device("399", held.id if held else 0, 399.0, 1_399)
    assert many.active(40).exact
    counted = many.silent_count(200)
    assert not counted.exact
    assert counted.lower < 199 < counted.upper


def test_labels_and_devices_without_names() -> None:
    sketch = ds.DecaySketch(NAMES)
    sketch.update(["on", "off"], 1, [5, 9], ds.observation_ids(["a", "b"], params=NAMES))
    devices = Devices(sketch)
    last = devices.last("b")
    assert last is not None
    assert (last.name, last.value) == ("b", "off")
    assert [(each.name, each.value) for each in devices.listed()] == [(None, "off"), (None, "on")]
    with pytest.raises(ds.ParameterError, match="needs numbers"):
        devices.mean()


def test_what_is_no_table_of_devices_is_refused() -> None:
    sums = ds.IntegralDecaySketch(PARAMS, ds.decay.integral.halving(60))
    readings = ds.DecaySketch(PARAMS)
    for fault, given_ in (
        ("readings are a IntegralDecaySketch", (sums,)),
        ("readings have max_weight 9", (ds.DecaySketch(ds.SketchParams(max_weight=9)),)),
        ("copies 2", (ds.DecaySketch(ds.SketchParams(copies=2)),)),
        ("names are of value_type 'float64'", (readings, readings)),
    ):
        with pytest.raises(ds.ParameterError, match=fault):
            Devices(*given_)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(-5, 5), st.integers(0, 60)), max_size=80
    ),
    st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_order_repetition_and_tree_is_the_table_of_last_readings(
    rows: list[tuple[int, int, int]], seed: int
) -> None:
    draw = random.Random(seed)
    copies = draw.sample(rows * 2, 2 * len(rows))
    parts: list[list[Any]] = [[], [], []]
    for row in copies:
        draw.choice(parts).append(row)
    found = []
    for some in ([copies], parts, parts[::-1]):
        sketches = []
        for part in some:
            sketch = ds.DecaySketch(PARAMS)
            if part:
                device, value, time = map(list, zip(*part, strict=True))
                ids = ds.observation_ids(device, params=PARAMS)
                sketch.update(np.array(value, float), 1, time, ids)
            sketches.append(sketch)
        found.append(ds.merge(sketches))
    assert len({each.to_bytes() for each in found}) == 1
    last: dict[int, tuple[int, int]] = {}
    for device_, value_, time_ in rows:
        last[device_] = max(last.get(device_, (-1, 0)), (time_, value_))
    devices = Devices(found[0])
    for device_, (time_, value_) in last.items():
        one = devices.last(device_)
        assert one is not None
        assert (one.time, one.value) == (time_, value_)
    if last:
        newest = max(time_ for time_, _ in last.values())
        width = draw.randint(0, 60)
        active = sum(time_ >= newest - width for time_, _ in last.values())
        assert devices.active(width).value == active
        assert len(devices.silent(width)) == len(last) - active


@pytest.mark.skipif(not list(REAL_LOGS.glob("*.parquet")), reason="the logs are absent")
def test_devices_of_a_real_log() -> None:
    """Of LoRaWAN: who spoke within an hour, a day and a week of the end, as the log says."""
    table = pq.read_table(REAL_LOGS / "lorawan_tourperret.parquet").drop_null()
    times, sources = table["event_us"].to_numpy(), table["source"].to_numpy()
    params = ds.SketchParams(capacity=1_000, time_unit="us")
    sketch = ds.DecaySketch(params)
    values = table["value"].to_numpy().astype(float)
    sketch.update(values, 1, times, ds.observation_ids(sources, params=params))
    devices = Devices(sketch)
    newest = int(times.max())
    for width in ("1h", "1d", "7d"):
        since = newest - int(ds.duration(width, "us"))
        expected = len(np.unique(sources[times >= since]))
        assert devices.active(width).value == expected
        heard = {source: int(times[sources == source].max()) for source in np.unique(sources)}
        silent = sorted(time for time in heard.values() if time < since)
        assert [each.time for each in devices.silent(width)] == silent
