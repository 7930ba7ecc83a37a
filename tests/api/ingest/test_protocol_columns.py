"""Columns by protocol over HTTP: what a mapping may be, and where dropped values are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
from fastapi.testclient import TestClient
from ingest.messages import T0, chirpstack
from service import LOCAL

from api.app import create_app
from api.settings import Settings
from benchmarks.write_requests import version_1

T = T0 * 1000
PARAMS = {"time_unit": "ms", "columns": {"value": "float64", "site": "text", "temp": "float64"}}
SNAPPY = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    data = tmp_path_factory.mktemp("columns") / "data.sqlite3"
    with TestClient(create_app(Settings(data=str(data))), base_url=LOCAL) as client:
        yield client


def put(client: TestClient, name: str, *maps: dict[str, Any], params: Any = PARAMS) -> Any:
    form = {"params": params} | ({"ingest": {"map": list(maps)}} if maps else {})
    return client.put(f"/v1/streams/{name}", json=form)


def test_dropped_values_are_in_responses_warnings_and_metrics(client: TestClient) -> None:
    maps = [
        {"format": "chirpstack", "columns": {"*": "object.*", "site": "devAddr"}},
        {"format": "prometheus", "columns": "*"},
        {"format": "influx", "columns": "*"},
        {"format": "otlp", "columns": "*"},
    ]
    assert put(client, "fleet", *maps).status_code == 201
    message = chirpstack(object={"temp": "hot", "hum": 3})
    found = client.post("/v1/streams/fleet/lorawan?format=chirpstack", json=message).json()
    assert found["rows"] == 1
    assert [warning.partition(" were")[0] for warning in found["warnings"]] == [
        "values without a declared column",
        "values of another type than their column",
    ]
    series = {"__name__": "up", "job": "node", "site": "a"}
    body = bytes(cramjam.snappy.compress_raw(version_1([(series, [(float("inf"), T)])])))
    posted = client.post("/v1/streams/fleet/prometheus/write", content=body, headers=SNAPPY)
    assert posted.status_code == 204
    line = f"m,rack=7 temp=1,hum=2 {T}"
    assert client.post("/api/v2/write?bucket=fleet&precision=ms", content=line).status_code == 204
    point = {"asDouble": 2.0, "timeUnixNano": str(T * 10**6),
             "attributes": [{"key": "site", "value": {"intValue": "7"}}]}  # fmt: skip
    metric = {"name": "m", "gauge": {"dataPoints": [point]}}
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    told = client.post("/v1/streams/fleet/otlp/v1/metrics", json=metrics).json()
    assert told["partialSuccess"]["rejectedDataPoints"] == "0"
    assert "site (1)" in told["partialSuccess"]["errorMessage"]
    warnings = " ".join(client.get("/v1/streams/fleet").json()["warnings"])
    for name in ("hum (2)", "job (1)", "rack (1)", "temp (1)", "value (1)", "site (1)"):
        assert name in warnings
    page = client.get("/metrics").text
    for column, reason, count in [("temp", "type", 1), ("site", "type", 1), ("", "undeclared", 4),
                                  ("value", "not-finite", 1)]:  # fmt: skip
        labels = f'column="{column}",reason="{reason}",stream="fleet"'
        assert f"decaysketch_dropped_values_total{{{labels}}} {count}.0" in page


@pytest.mark.parametrize(
    ("params", "mapping", "reason"),
    [
        (PARAMS, {"format": "influx", "measurement": "m", "value": "temp"}, "has no columns"),
        ({"time_unit": "ms"}, {"format": "influx", "columns": "*"}, "declares no columns"),
        (PARAMS, {"format": "influx", "columns": ["tmep"]}, "did you mean 'temp'"),
    ],
)
def test_a_mapping_that_does_not_suit_creates_nothing(
    client: TestClient, params: Any, mapping: Any, reason: str
) -> None:
    found = put(client, "none", mapping, params=params)
    assert found.status_code == 422
    assert reason in found.json()["detail"]
    assert client.get("/v1/streams/none").status_code == 404


@pytest.mark.parametrize(
    ("before", "after", "warns"),
    [
        ({"format": "influx", "columns": "*"},
         {"format": "influx", "columns": "*", "drop_tags": ["host"]}, True),
        ({"format": "influx", "columns": "*"},
         {"format": "influx", "measurement": "m", "columns": "*", "dedup": "10s"}, True),
        ({"format": "influx", "columns": "*"},
         {"format": "influx", "measurement": "m", "columns": ["temp"]}, False),
        ({"format": "json", "id": ["n"], "time": "t", "time_unit": "ms", "columns": "*"},
         {"format": "json", "id": ["n"], "time": "t", "time_unit": "ms", "columns": "*",
          "field": "x"}, True),
    ],
)  # fmt: skip
def test_a_mapping_that_renames_stored_observations_warns(
    client: TestClient, before: Any, after: Any, warns: bool, request: pytest.FixtureRequest
) -> None:
    name = f"s{abs(hash(request.node.name))}"
    put(client, name, before)
    row = {"time": T, "id": 1, "columns": {"temp": 1.0}}
    posted = client.post(f"/v1/streams/{name}/observations?source=a", json={"observations": [row]})
    assert posted.status_code == 200
    found = put(client, name, after).json()["warnings"]
    assert any("ids are made" in warning for warning in found) is warns
    assert json.dumps(found)
