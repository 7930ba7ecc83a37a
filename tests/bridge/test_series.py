"""A bridge feeds series with starts, devices and attributes, whichever rows are rejected."""

from __future__ import annotations

import json
from pathlib import Path

from decaysketch.client import Sensor
from decaysketch.families import recipe_of
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.running import Taker
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.documents import Message
from decaysketch.series import SeriesParams

PARAMS = SeriesParams(attributes="line", time_unit="s", id_bits=48)
MAP = {
    "format": "json", "stream": "machines", "kind": "counter", "value": "parts", "time": "at",
    "time_unit": "s", "id": ["topic[1]"], "start": "since", "attributes": {"line": "topic[0]"},
    "check_units": False,
}  # fmt: skip


def test_messages_fill_starts_and_attributes(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "server": {"url": "http://localhost:1"},
            "mqtt": {"broker": "mqtt://localhost", "client_id": "b", "topics": ["#"]},
            "map": [MAP],
            "spool": str(tmp_path),
        }
    )
    spool = tmp_path / "machines"
    fed = Sensor("http://localhost:1", "machines", "b", spool=spool, recipe=recipe_of(PARAMS))
    rows = [(f"l{k % 2}/m{k % 4}", 10 * (k // 4), 100_000 * (k // 4), 0) for k in range(40)]
    late = ("l0/m0", 7, 50, 60)  # a start after the time
    metrics = Metrics()
    try:
        taker = Taker(config, {"machines": fed.start()}, metrics, None)
        found = taker.take(
            [
                Arrived(Message(json.dumps({"parts": n, "at": at, "since": since}).encode(), topic))
                for topic, n, at, since in [*rows, late]
            ]
        )
    finally:
        fed.close(0)
    assert list(found.dead) == [len(rows)]
    assert "start after the time" in found.dead[len(rows)][0]
    # A series has many readings with one id, far apart, and none replaces another.
    labels = {"stream": "machines", "kind": "replaced"}
    name = "decaysketch_bridge_suspicious_total"
    assert not metrics.registry.get_sample_value(name, labels)
    [delta] = spool.glob("deltas/*")
    groups = (
        recipe_of(PARAMS)
        .decode(delta.read_bytes())
        .increase("window(900000)", now=900_000, by="line", order="key")
    )
    assert [(each.by["line"], each.answer.value) for each in groups] == [("l0", 180), ("l1", 180)]
