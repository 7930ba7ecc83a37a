"""A bridge and a sensor feed a stream with columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ingest.messages import T0, chirpstack

import decaysketch as ds
from decaysketch.client import Sensor
from decaysketch.families import recipe_of
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.running import Taker
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.documents import Message

PARAMS = ds.SketchParams(
    max_weight=1, id_bits=48, seed=7, time_unit="ms", columns="temp float64, site text"
)
MAP = {"format": "chirpstack", "stream": "fleet",
       "columns": {"*": "object.*", "site": "deviceInfo.applicationName"}}  # fmt: skip
UP = "application/app/device/70b3d54990000001/event/up"


def sensor(folder: Path) -> Sensor:
    return Sensor("http://localhost:1", "fleet", "b", spool=folder, recipe=recipe_of(PARAMS))


def test_messages_fill_columns_and_dropped_values_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config.model_validate(
        {
            "server": {"url": "http://localhost:1"},
            "mqtt": {"broker": "mqtt://localhost", "client_id": "b", "topics": ["#"]},
            "map": [MAP],
            "spool": str(tmp_path),
        }
    )
    metrics, fed = Metrics(), sensor(tmp_path / "fleet").start()
    try:
        taker = Taker(config, {"fleet": fed}, metrics, None)
        messages = [chirpstack(n, T0 + n, object={"temp": 20 + n, "hum": 1}) for n in range(3)]
        messages.append(chirpstack(9, T0, object={"temp": "hot"}))
        found = taker.take([Arrived(Message(json.dumps(each).encode(), UP)) for each in messages])
    finally:
        fed.close(0)
    assert not found.dead
    for column, reason, count in (("", "undeclared", 3), ("temp", "type", 1)):
        labels = {"stream": "fleet", "column": column, "reason": reason}
        name = "decaysketch_bridge_dropped_values_total"
        assert metrics.registry.get_sample_value(name, labels) == count
    assert "are dropped" in caplog.text


def test_a_sensor_takes_columns(tmp_path: Path) -> None:
    with sensor(tmp_path) as fed:
        rows = {"temp": [1.0, None], "site": "a"}
        assert fed.update(rows, 1, [T0 * 1000] * 2, [1, 2], durable=True) == 2
        with pytest.raises(ds.ObservationError, match="tmp"):
            fed.update({"tmp": [1.0]}, 1, [T0 * 1000], [3])
        fed.close(0)
