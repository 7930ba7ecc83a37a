"""Views of streams that a bridge feeds: the same as by any other road, whatever they may be."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from ingest.messages import chirpstack
from typer.testing import CliRunner

import decaysketch as ds
from api.operations.keys import keys as key_commands
from decaysketch.client import ClientError
from decaysketch.errors import ParameterError
from decaysketch.ingest.bridge.checking import checks
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.dead_letters import DeadLetters
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.opening import open_streams
from decaysketch.ingest.bridge.running import Taker
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.documents import Message

PARAMS = {"max_weight": 1, "id_bits": 50, "time_unit": "ms", "capacity": 500, "seed": 5}
MAP = {"format": "chirpstack", "value": "object.temperature"}
VIEWS = ("devices", "devices.names")
Serve = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]


def create(client: httpx2.Client, name: str, part: int | list[int] = 0, **more: Any) -> None:
    form = {
        "params": PARAMS,
        "views": {"devices": {"id": part, "capacity": 50}},
        "ingest": {"map": [MAP]},
    }
    client.put(f"/v1/streams/{name}", json=form | more).raise_for_status()


def config_of(folder: Path, client: httpx2.Client, *streams: str, **server: Any) -> Config:
    return Config.model_validate(
        {
            "server": {"url": str(client.base_url), "source": "b"} | server,
            "map": [MAP | {"stream": each} for each in streams],
            "spool": folder,
        }
    )


def bring(config: Config, *batches: Sequence[dict[str, Any]], metrics: Any = None) -> list[str]:
    """Take messages as a bridge does that lives as long; names of what is not delivered."""
    streams = open_streams(config, timeout_s=300.0)
    letters = DeadLetters(config.spool / "dead", 1 << 20)
    taker = Taker(config, streams.sensors, metrics or Metrics(), letters, streams.views)
    for batch in batches:
        taker.take([Arrived(Message(json.dumps(each).encode())) for each in batch])
    undone = streams.undone()
    streams.close(0.0)
    return undone


def uplinks(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Frames of some devices, of which some join again, and some say nothing."""
    begin_s = int(time.time()) - 3600
    found = []
    for number in range(count):
        device = draw.randrange(7)
        found.append(
            chirpstack(
                number,
                begin_s + draw.randrange(1000),  # also two at the same moment
                devAddr=f"01ab000{draw.randrange(2)}",
                deviceInfo={"devEui": f"70B3D5499000{device:04x}"},
                object={"temperature": draw.choice([20.5, 21.0, 22.25, None])},
                rxInfo=[],
            )
        )
    return found


def row_of(uplink: dict[str, Any]) -> dict[str, Any]:
    """The observation that an uplink is, by hand."""
    device = uplink["deviceInfo"]["devEui"].lower()
    key = [device, uplink["devAddr"], uplink.get("fCnt", 0), "object.temperature"]
    at = round(datetime.fromisoformat(uplink["time"]).timestamp()) * 1000
    return {"id": key, "time": at, "value": uplink["object"]["temperature"]}


def shuffled(draw: random.Random, uplinks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    some = uplinks + draw.choices(uplinks, k=len(uplinks) // 3)
    draw.shuffle(some)
    return some


def digests(client: httpx2.Client, name: str) -> list[str]:
    found = [client.get(f"/v1/streams/{name}.{view}").json() for view in VIEWS]
    assert all(each["rows"] for each in found)
    return [each["digest"] for each in found]


def by_hand(client: httpx2.Client, name: str, rows: list[dict[str, Any]], part: Any) -> list[str]:
    """The digests of sketches whose ids are devices, as one builds them without a view."""
    parts = part if isinstance(part, list) else [part]
    columns = [[row["id"][each] for row in rows] for each in parts]
    texts = [json.dumps(list(each)) for each in zip(*columns, strict=True)]
    names = texts if len(parts) > 1 else list(map(str, columns[0]))
    readings = np.ma.masked_invalid(
        [np.nan if row["value"] is None else row["value"] for row in rows]
    )
    found = []
    for view, values in zip(VIEWS, (readings, names), strict=True):
        told = client.get(f"/v1/streams/{name}.{view}").json()
        sketch = ds.DecaySketch(ds.SketchParams.from_dict(told["params"]))
        ids = ds.observation_ids(*columns, params=sketch.params)
        sketch.update(values, 1, [row["time"] for row in rows], ids)
        found.append(sketch.snapshot().digest)
    return found


def devices(client: httpx2.Client, name: str = "ward") -> dict[str, Any]:
    asked = {"listed": "latest", "width": "1d"}
    told = client.get(f"/v1/streams/{name}/devices", params=asked).json()
    return {each["device"]: each["value"] for each in told["devices"]}


@pytest.fixture(scope="module")
def shared(one_server: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with one_server(tmp_path_factory.mktemp("views") / "data.sqlite3") as (_, client):
        yield client


@pytest.mark.parametrize(("seed", "part"), [(1, 0), (2, 0), (3, [2, 0]), (4, [1])])
def test_views_are_those_of_every_other_road(
    shared: httpx2.Client, tmp_path: Path, seed: int, part: Any
) -> None:
    draw = random.Random(seed)
    sent = uplinks(draw, 60)
    for road in ("bridge", "hook", "raw"):
        create(shared, f"{road}-{seed}", part)
    first, second = shuffled(draw, sent), shuffled(draw, sent)
    config = config_of(tmp_path, shared, f"bridge-{seed}")
    assert bring(config, first[:30], first[30:]) == []
    assert bring(config, second) == []
    for each in shuffled(draw, sent):
        url = f"/v1/streams/hook-{seed}/lorawan?format=chirpstack&event=up"
        shared.post(url, json=each).raise_for_status()
    rows = [row_of(each) for each in shuffled(draw, sent)]
    url = f"/v1/streams/raw-{seed}/observations?source=a"
    answer = shared.post(url, json={"observations": rows})
    assert answer.status_code == 200, answer.text
    assert len(devices(shared, f"raw-{seed}")) >= 2
    expected = by_hand(shared, f"raw-{seed}", rows, part)
    assert digests(shared, f"raw-{seed}") == expected
    assert digests(shared, f"hook-{seed}") == expected
    assert digests(shared, f"bridge-{seed}") == expected


def test_a_map_of_the_file_may_feed_the_view_too(shared: httpx2.Client, tmp_path: Path) -> None:
    """As one had to before bridges fed views."""
    create(shared, "by-hand")
    sent = uplinks(random.Random(9), 20)
    for each in sent:
        each["deviceInfo"]["devEui"] = each["deviceInfo"]["devEui"].lower()
    config = config_of(tmp_path, shared, "by-hand")
    assert bring(config, sent) == []
    expected = digests(shared, "by-hand")
    own = MAP | {"stream": "by-hand.devices", "id": ["deviceInfo.devEui"], "field": ""}
    maps = [each.model_dump(exclude_unset=True) for each in config.map]
    both = config.model_dump(exclude={"map"}) | {"map": [*maps, own]}
    assert bring(Config.model_validate(both), sent) == []
    assert digests(shared, "by-hand") == expected


def test_readings_of_no_device_are_in_the_stream_alone_and_counted(
    shared: httpx2.Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create(shared, "few-parts", 5)
    sent = uplinks(random.Random(3), 20)
    metrics = Metrics()
    assert bring(config_of(tmp_path, shared, "few-parts"), sent, sent, metrics=metrics) == []
    assert shared.get("/v1/streams/few-parts").json()["rows"] == 20
    for view in VIEWS:
        assert shared.get(f"/v1/streams/few-parts.{view}").json()["rows"] == 0
        labels = {"stream": f"few-parts.{view}"}
        name = "decaysketch_bridge_no_device_total"
        assert metrics.registry.get_sample_value(name, labels) == 40
        said = f"20 readings have no device in derived stream few-parts.{view}:"
        assert sum(each.startswith(said) for each in caplog.messages) == 1


def test_a_source_that_is_revoked_is_gone_from_the_views_and_posts_no_more(
    shared: httpx2.Client, tmp_path: Path
) -> None:
    create(shared, "revoked")
    sent = uplinks(random.Random(4), 20)
    config = config_of(tmp_path, shared, "revoked")
    assert bring(config, sent[:10]) == []
    assert all(digests(shared, "revoked"))
    shared.post("/v1/streams/revoked/sources/b/revoke", json={}).raise_for_status()
    assert shared.get("/v1/streams/revoked.devices").json()["rows"] == 0
    names = ["revoked", *(f"revoked.{view}" for view in VIEWS)]
    assert sorted(bring(config, sent[10:])) == names  # it waits, since it may be reinstated
    assert shared.get("/v1/streams/revoked.devices").json()["rows"] == 0
    shared.post("/v1/streams/revoked/sources/b/reinstate", json={}).raise_for_status()
    assert bring(config, sent) == []
    expected = {each["deviceInfo"]["devEui"].lower() for each in sent}
    assert devices(shared, "revoked").keys() == expected


def test_a_view_out_of_the_scope_of_the_key_is_said_and_the_rest_fed(
    server: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data.sqlite3"
    with server(data, "--auth", "keys") as (_, client):
        tokens = {
            role: CliRunner()
            .invoke(key_commands, ["mint", "--data", str(data), "--role", role, *scope])
            .stdout.strip()
            for role, scope in {
                "admin": [],
                "write": ["--scope", "ward", "--scope", "ward.devices"],
            }.items()
        }
        client.headers["authorization"] = f"Bearer {tokens['admin']}"
        create(client, "ward")
        key_file = tmp_path / "key"
        key_file.write_text(tokens["write"])
        config = config_of(tmp_path / "spool", client, "ward", key_file=str(key_file))
        sent = uplinks(random.Random(5), 20)
        assert bring(config, sent[:10], sent[10:]) == []
        assert client.get("/v1/streams/ward").json()["rows"] == 20
        expected = {each["deviceInfo"]["devEui"].lower() for each in sent}
        told = client.get("/v1/streams/ward/devices?listed=latest").json()
        assert told["held"] == len(expected)
        assert client.get("/v1/streams/ward.devices.names").json()["rows"] == 0
        reason = "403: stream 'ward.devices.names' is not in the scope of this key"
        said = [each for each in caplog.messages if "ward.devices.names is not fed" in each]
        assert len(said) == 1
        assert reason in said[0]
        looked = dict(checks(config))
        assert looked["stream ward"] is looked["view ward.devices"] is None
        assert reason in str(looked["view ward.devices.names"])


def test_what_was_learned_is_kept_for_a_start_without_the_aggregator(
    server: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, spool = tmp_path / "data.sqlite3", tmp_path / "spool"
    sent = uplinks(random.Random(6), 30)
    with server(data) as (_, client):
        port = client.base_url.port
        create(client, "ward")
        config = config_of(spool, client, "ward")
        assert bring(config, sent[:10]) == []
    streams = open_streams(config, timeout_s=5.0)
    taker = Taker(config, streams.sensors, Metrics(), None, streams.views)
    taker.take([Arrived(Message(json.dumps(each).encode())) for each in sent[10:]])
    assert streams.sensors["ward.devices.names"].status().synced_rows == 20
    streams.close(0.0)
    assert (
        sum("the list of derived streams is not available" in each for each in caplog.messages) == 1
    )
    with server(data, port=port) as (_, client):
        assert bring(config) == []
        found = devices(client)
        assert found.keys() == {each["deviceInfo"]["devEui"].lower() for each in sent}

        # The stream is made anew, without views: what it had is said to be gone, once.
        client.delete("/v1/streams/ward").raise_for_status()
        client.put("/v1/streams/ward", json={"params": PARAMS}).raise_for_status()
        caplog.clear()
        for _ in range(2):
            assert bring(config, sent) == []
        assert client.get("/v1/streams/ward").json()["rows"] == 30
        gone = [each for each in caplog.messages if "no longer exists" in each]
        assert sorted(gone) == [
            f"derived stream ward.{view} no longer exists; its waiting rows stay in the spool"
            for view in VIEWS
        ]

        # Views of another unit, while their spools are of those that were there before.
        client.delete("/v1/streams/ward").raise_for_status()
        create(client, "ward", params=PARAMS | {"time_unit": "s"})
        shutil.rmtree(spool / "streams" / "ward")
        with pytest.raises(ClientError, match=r"view 'ward.devices' is built with .* move it away"):
            bring(config)
    (spool / "views.json").write_text('{"ward": {"ward.devices": {"of": "ward"}}}')
    with pytest.raises(ParameterError, match="does not list the derived streams"):
        bring(config)
