"""The toy format through HTTP, the bridge and hostile bodies. ``test_toy_family.py`` runs it in a
process in which ``sitecustomize.py`` has registered the format. Nothing else names it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from ingest.messages import parsed_of
from pydantic import ValidationError

from api.app import create_app
from api.settings import Settings
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.translating import Arrived, Translator
from decaysketch.ingest.documents import Message
from decaysketch.ingest.formats import Mappings
from quality import messages

T0 = 1_750_000_000
READING = {"format": "senml", "id": ["device", "time"], "time": "time", "time_unit": "s"}
COLUMNS = {
    **READING,
    "each": "readings",
    "columns": {"*": "values.*", "device": "device"},
    "field": "",
}
VOLTS = {**READING, "each": "records", "value": "value", "where": {"@.unit": "V"}}
PACK: list[dict[str, Any]] = [
    {"bn": "urn:dev:1", "bt": T0, "bu": "Cel", "n": "temp", "v": 21.5},
    {"n": "battery", "u": "mV", "v": 3100},
    {"n": "temp", "t": 60, "v": 22.5},
    {"bn": "urn:dev:2", "n": "battery", "u": "V", "v": 2.9},
    {"n": "temp", "t": 60, "v": "warm"},
    {"n": "temp", "t": "noon", "v": 20},
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    data = tmp_path_factory.mktemp("senml") / "data.sqlite3"
    with TestClient(create_app(Settings(data=str(data))), base_url="http://localhost") as client:
        yield client


def put(client: TestClient, name: str, mapping: dict[str, Any], **params: Any) -> None:
    body = {
        "params": {"max_weight": 1, "id_bits": 48, "time_unit": "ms", **params},
        "ingest": {"map": [mapping]},
    }
    put = client.put(f"/v1/streams/{name}", json=body)
    assert put.status_code == 201, put.text


def post(client: TestClient, name: str, pack: Any = PACK) -> Any:
    return client.post(f"/v1/streams/{name}/lorawan?format=senml", json=pack)


def mean(client: TestClient, name: str, of: str | None = None, **more: Any) -> float:
    query = {"aggregate": "mean", "decay": "none", "now": (T0 + 1000) * 1000, **more}
    query |= {"of": of} if of else {}
    response = client.post(f"/v1/streams/{name}/query", json={"queries": [query]})
    (found,) = response.json()["answers"]
    assert "estimate" in found, found
    value: float = found["estimate"]["value"]
    return value


def test_toy_rows_fill_columns_and_faults_name_their_row(client: TestClient) -> None:
    types = {"temp": "float64", "battery": "float64", "device": "text"}
    put(client, "fleet", COLUMNS, columns=types)
    found = post(client, "fleet").json()
    assert (found["source"], found["rows"], found["retained"]) == ("senml", 4, 4)
    (fault,) = found["refused"]
    assert fault.startswith("readings[4]."), fault
    assert "noon" in fault
    assert any("temp" in each for each in found["warnings"]), found["warnings"]  # "warm"
    assert post(client, "fleet").json()["retained"] == 0  # a duplicate
    assert mean(client, "fleet", "temp") == 22.0
    assert mean(client, "fleet", "battery", where="device == 'urn:dev:1'") == 3.1


def test_toy_units_select_and_scale_values(client: TestClient) -> None:
    put(client, "volts", VOLTS)
    found = post(client, "volts").json()
    assert (found["rows"], found["skipped"], found["refused"]) == (2, {"where": 4}, [])
    assert mean(client, "volts") == 3.0
    refused = post(client, "volts", {"v": 1})
    assert refused.status_code == 422
    assert "an array of records" in refused.json()["detail"]


def test_toy_messages_pass_through_the_bridge(client: TestClient) -> None:
    config = Config.model_validate(
        {
            "server": {"url": "http://localhost:1"},
            "mqtt": {"broker": "mqtt://localhost", "client_id": "b", "topics": ["#"]},
            "map": [{**VOLTS, "stream": "volts", "topics": ["+/senml"]}],
        }
    )
    body = json.dumps(PACK).encode()
    message = Message(body, "a/senml", T0 * 10**9)
    found = Translator(config.map, 10_000).translate([Arrived(message)])
    assert found.readings["volts"] == parsed_of(PACK, VOLTS).readings
    assert not found.dead
    late = [{"bn": "d", "n": "battery", "t": -5, "u": "V", "v": 1}]  # relative to its arrival
    message = message._replace(body=json.dumps(late).encode())
    (reading,) = Translator(config.map, 10_000).translate([Arrived(message)]).readings["volts"]
    assert reading.time_ns == (T0 - 5) * 10**9


def test_toy_format_is_one_of_those_that_errors_list(client: TestClient) -> None:
    refused = client.post("/v1/streams/volts/lorawan?format=senmll", json=PACK)
    assert "'chirpstack', 'tts' or 'senml'" in refused.text
    with pytest.raises(ValidationError, match="'senml'"):
        Mappings.model_validate({"map": [{"format": "senmll"}]})


def test_toy_hostile_bodies_raise_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(messages.SOUND, "senml", PACK)  # type: ignore[arg-type]
    monkeypatch.setitem(
        messages._PREPARED, "senml", Mappings.model_validate({"map": [COLUMNS, VOLTS]}).map
    )  # type: ignore[arg-type]
    draw = random.Random(1)
    found = {messages.outcome(messages.changed(draw, "senml"), "senml") for _ in range(300)}
    assert {"partly refused", "refused"} <= found
