"""Metrics of OpenTelemetry over HTTP: both encodings, answers as exporters look for them, and the
exporter itself."""

from __future__ import annotations

import gzip
import json
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from faults import FAULTS, faulty
from ingest.test_otlp import T, gauge, histogram, point, request
from service import problem

import decaysketch.duckdb as decaysketch_duckdb
from api.errors import BusyError
from api.service.aggregator import Aggregator
from decaysketch import DecaySketch
from decaysketch.ingest import otlp

pytest.importorskip("opentelemetry.proto")
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

PARAMS = {"max_weight": 1000, "id_bits": 40, "time_unit": "ms"}
TEMP = {"format": "otlp", "metric": "temp"}
URL = "/v1/streams/ward/otlp/v1/metrics"
PROTOBUF = {"content-type": "application/x-protobuf"}


def put(client: Any, *maps: dict[str, Any]) -> None:
    form = {"params": PARAMS} | ({"ingest": {"map": list(maps)}} if maps else {})
    assert client.put("/v1/streams/ward", json=form).status_code in (200, 201)


def binary(document: dict[str, Any]) -> bytes:
    exported: bytes = json_format.ParseDict(
        document, ExportMetricsServiceRequest()
    ).SerializeToString()
    return exported


def values(client: Any) -> tuple[float, float, float]:
    """How many readings there are, their weights and their total."""
    queries = [{"aggregate": name, "decay": "none", "now": T // 10**6 + 10**12}
               for name in ("count", "sum", "total")]  # fmt: skip
    answers = client.post("/v1/streams/ward/query", json={"queries": queries}).json()["answers"]
    return tuple(each["estimate"]["value"] for each in answers)  # type: ignore[return-value]


@pytest.fixture
def ward(client: TestClient) -> TestClient:
    put(client, TEMP)
    return client


def test_both_encodings_are_the_same_readings(ward: TestClient) -> None:
    document = request(gauge(*(point(n, T + n * 10**6) for n in range(30))), histogram())
    answer = ward.post(URL, json=document)
    assert (answer.status_code, answer.json()) == (200, {})
    packed = gzip.compress(binary(document))
    answer = ward.post(URL, content=packed, headers=PROTOBUF | {"content-encoding": "gzip"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "application/x-protobuf"
    count, weights, _ = values(ward)
    assert (count, weights) == (33, 39)


def test_results_of_buckets_are_never_exact(ward: TestClient) -> None:
    open_ended = {"min": None, "max": None, "sum": None}
    data = histogram(**open_ended)["histogram"]["dataPoints"][0]
    points = [{name: each for name, each in data.items() if each is not None}]
    metric = {"name": "temp", "histogram": {"aggregationTemporality": 1, "dataPoints": points}}
    assert ward.post(URL, json=request(metric)).json() == {}
    of_values = {
        "mean": {}, "total": {}, "median": {}, "variance": {}, "stddev": {}, "rank": {"v": 5},
        "selectivity": {"at_least": 7}, "quantile": {"q": [0.5, 0.99]},
        "cdf": {"v": [1, 5]}, "histogram": {"edges": [0, 5, 10]}, "heavy_hitters": {"phi": 0},
        "group_by": {},
    }  # fmt: skip
    how = {"decay": "none", "now": T // 10**6}
    asked = {"queries": [{"aggregate": name} | how | more for name, more in of_values.items()]}
    response = ward.post("/v1/streams/ward/query", json=asked)
    assert response.status_code == 200, response.text
    for name, found in zip(of_values, response.json()["answers"], strict=True):
        text = json.dumps(found)
        assert '"exact": true' not in text, name
        assert text.count('"exact": false') == text.count('"bucket-values"') > 0, name
    top = {"aggregate": "quantile", "q": [0.99]} | how
    (found,) = ward.post("/v1/streams/ward/query", json={"queries": [top]}).json()["answers"]
    estimate = found["quantiles"][0]["estimate"]
    assert (estimate["value"], estimate["lower"], estimate["upper"]) == (10.0, 10.0, None)
    assert values(ward)[:2] == (3, 9)  # these are exact as before
    held = DecaySketch.from_bytes(ward.get("/v1/streams/ward/sketch").content)
    assert held.mean("none", now=T // 10**6).caveats == ("bucket-values",)


def test_an_open_last_bucket_has_its_caveat_over_http_in_a_scrape_and_in_sql(
    ward: TestClient,
) -> None:
    duckdb = pytest.importorskip("duckdb")
    data = histogram()["histogram"]["dataPoints"][0]
    point = {name: each for name, each in data.items() if name not in ("min", "max", "sum")}
    metric = {"name": "temp", "histogram": {"aggregationTemporality": 1, "dataPoints": [point]}}
    assert ward.post(URL, json=request(metric)).status_code == 200
    query = {"ask": "quantile(v, 0.99)", "decay": "none"}
    answers = ward.post("/v1/streams/ward/query", json={"queries": [query]}).json()["answers"]
    (found,) = answers[0]["quantiles"]
    estimate = found["estimate"]
    assert (estimate["upper"], estimate["exact"]) == (None, False)
    assert estimate["caveats"] == ["bucket-values"]

    assert ward.put("/v1/streams/ward/questions/p99", json={"query": query}).status_code == 201
    scraped = ward.get("/v1/streams/ward/prometheus").text
    labels = r'\{[^}]*query="p99"[^}]*\}'
    assert re.search(rf"^decaysketch_answer_upper{labels} \+Inf$", scraped, re.MULTILINE)
    assert re.search(rf"^decaysketch_answer_exact{labels} 0.0$", scraped, re.MULTILINE)
    tagged = re.findall(r'^decaysketch_answer_caveat\{.*caveat="([^"]*)".*', scraped, re.MULTILINE)
    assert tagged == ["bucket-values"]

    blob = ward.get("/v1/streams/ward/sketch").content
    with duckdb.connect() as connection:
        decaysketch_duckdb.register(connection)
        call = "decayed_query(?, 'none', ?, 'quantile(v, 0.99)')"
        row = connection.execute(
            f"SELECT unnest({call}) AS found", [blob, int(T // 10**6)]
        ).fetchone()
    assert row[0]["caveats"] == ["bucket-values"]
    assert (row[0]["upper"], row[0]["exact"]) == (math.inf, False)


def test_what_is_refused_is_counted_and_the_rest_stored(ward: TestClient) -> None:
    document = request(gauge(point(1), point(2, 4 * T)), histogram(2), gauge(point(1, 0)))
    said = ward.post(URL, json=document).json()["partialSuccess"]
    assert said["rejectedDataPoints"] == "3"
    assert "cumulative; expected delta" in said["errorMessage"]
    assert "data point 2 temp: time too far in the future" in said["errorMessage"]
    answer = ExportMetricsServiceResponse()
    answer.ParseFromString(ward.post(URL, content=binary(document), headers=PROTOBUF).content)
    assert answer.partial_success.rejected_data_points == 3
    # Both name the distance from now, which may be a second more by then.
    messages = answer.partial_success.error_message, said["errorMessage"]
    assert len({re.sub(r"[0-9]+ s ahead", "", each) for each in messages}) == 1
    assert values(ward)[0] == 1


def test_problems_are_in_the_encoding_of_the_request(client: TestClient) -> None:
    put(client)
    document = request(gauge(point(1)))
    said = problem(client.post(URL, json=document), 400, "invalid-request")
    assert '"ingest": {"map": [{"format": "otlp"' in said["message"]
    answer = client.post(URL, content=binary(document), headers=PROTOBUF)
    assert answer.status_code == 400
    status = pytest.importorskip("google.rpc.status_pb2").Status()
    status.ParseFromString(answer.content)
    assert status.message == said["detail"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff", PROTOBUF, 400),
        (b"{", {"content-type": "application/json"}, 400),
        (b"[" + b"[]," * 200_000 + b"[]]", {"content-type": "application/json"}, 413),
        (b"", {"content-type": "text/plain"}, 415),
        (b"\x0a\x00" * 1_700_000, PROTOBUF, 413),
    ],
)
def test_what_cannot_be_read_is_refused(
    ward: TestClient, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert ward.post(URL, content=body, headers=headers).status_code == status
    assert values(ward)[0] == 0


def test_no_body_gives_more_rows_than_one_post_may_have(start: Callable[..., TestClient]) -> None:
    client = start(max_rows=100)
    put(client, TEMP)
    many = histogram(count="100100", bucketCounts=["0", "0", "0", "100100"])
    said = client.post(URL, json=request(many)).json()["partialSuccess"]["errorMessage"]
    assert "101 readings of max_weight 1000; at most 100" in said
    few = request(gauge(*(point(n, T + n) for n in range(101))))
    problem(client.post(URL, json=few), 413, "too-many-rows")


def test_an_exporter_is_told_503_where_all_is_busy(
    ward: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object, **__: object) -> None:
        raise BusyError

    monkeypatch.setattr(Aggregator, "post", busy)
    refused = ward.post(URL, json=request(gauge(point(1))))
    problem(refused, 503, "busy")
    assert refused.headers["Retry-After"] == "1"


def test_where_the_package_is_missing_it_is_said_what_to_install(
    ward: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_body: bytes) -> None:
        raise ModuleNotFoundError("", name="opentelemetry")

    monkeypatch.setattr(otlp, "from_json", missing)
    refused = ward.post(URL, json=request(gauge(point(1))))
    assert "install the extra `otlp`" in problem(refused, 501)["detail"]


def test_times_that_are_no_nanoseconds_are_refused_at_first(ward: TestClient) -> None:
    document = request(gauge(point(1, T // 10**9)))
    assert (
        "probably not in ns"
        in problem(ward.post(URL, json=document), 400, "invalid-request")["detail"]
    )
    assert ward.post(f"{URL}?check_units=false", json=document).status_code == 200


def test_times_that_are_no_nanoseconds_are_refused_where_dates_are_held(ward: TestClient) -> None:
    assert ward.post(URL, json=request(gauge(point(1)))).status_code == 200
    refused = ward.post(URL, json=request(gauge(point(1, T // 10**9))))
    assert "probably not in ns" in problem(refused, 400, "invalid-request")["detail"]


def _meter(reader: Any) -> tuple[Any, Any]:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    provider = sdk.MeterProvider([reader])
    return provider, provider.get_meter("test")


def _delta() -> dict[Any, Any]:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    return dict.fromkeys((sdk.Counter, sdk.Histogram), export.AggregationTemporality.DELTA)


def test_an_exporter_posts_through_faults(
    tmp_path: Path, one_server: Callable[..., AbstractContextManager[tuple[Any, Any]]]
) -> None:
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    http = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    with one_server(tmp_path / "aggregator.sqlite3") as (_process, client):
        put(client, TEMP, TEMP | {"metric": "seen", "scale": 100.0})
        with faulty(client.base_url.port, b"/otlp", FAULTS) as port:
            exporter = http.OTLPMetricExporter(
                f"http://127.0.0.1:{port}{URL}", preferred_temporality=_delta(), timeout=60
            )
            reader = export.PeriodicExportingMetricReader(exporter, export_interval_millis=10**8)
            provider, meter = _meter(reader)
            temp, seen = meter.create_histogram("temp"), meter.create_counter("seen")
            for n in range(500):
                temp.record(n % 50, {"room": f"r{n % 3}"})
            seen.add(7)
            assert reader.force_flush(60_000)
            temp.record(1, {"room": "r1"})
            provider.shutdown(60_000)
        count, weights, total = values(client)
    assert weights == 500 + 1 + 1
    assert 0 < count < weights
    assert total > 700


def test_what_the_sdk_encodes_is_the_same_in_json(ward: TestClient) -> None:
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.metrics_encoder")
    reader = export.InMemoryMetricReader(preferred_temporality=_delta())
    provider, meter = _meter(reader)
    temp = meter.create_histogram("temp")
    for n in range(100):
        temp.record(n, {"room": n % 3, "open": True})
    exported = encoder.encode_metrics(reader.get_metrics_data())
    provider.shutdown()
    answer = ward.post(URL, json=json.loads(json_format.MessageToJson(exported)))
    assert (answer.status_code, answer.json()) == (200, {})
    before = values(ward)
    assert ward.post(URL, content=exported.SerializeToString(), headers=PROTOBUF).is_success
    assert values(ward) == before
    assert before[1] == 100


def test_json_of_the_specification_is_read(ward: TestClient) -> None:
    """As its example has it: integers of 64 bits as texts, ids in hexadecimal."""
    document = request(gauge(point(1) | {"exemplars": [{"traceId": "5b8aa5a2", "asInt": "3"}]}))
    document["resourceMetrics"][0]["schemaUrl"] = "https://example.org"
    assert ward.post(URL, json=document).status_code == 200
    assert values(ward)[0] == 1


def test_an_exporter_posts_through_the_death_of_the_server(
    tmp_path: Path, one_server: Callable[..., AbstractContextManager[tuple[Any, Any]]]
) -> None:
    """Killed without warning at moments of any kind, and started again: nothing is lost, and what
    the exporter sends again counts once."""
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    http = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    data, lives, each = tmp_path / "aggregator.sqlite3", 3, 40
    with one_server(data) as (_process, client):
        put(client, TEMP)
        port = client.base_url.port
    exporter = http.OTLPMetricExporter(
        f"http://127.0.0.1:{port}{URL}", preferred_temporality=_delta(), timeout=120
    )
    reader = export.PeriodicExportingMetricReader(exporter, export_interval_millis=10**8)
    provider, meter = _meter(reader)
    temp = meter.create_histogram("temp")
    flushed = []

    def record() -> None:
        for n in range(lives * each):
            temp.record(n % 50, {"room": f"r{n % 3}"})
            flushed.append(reader.force_flush(120_000))

    recording = threading.Thread(target=record)
    recording.start()
    for life in range(lives):
        with one_server(data, port=port) as (_process, client):
            enough = lives * each if life + 1 == lives else (life + 1) * each // 2
            while len(flushed) < enough and recording.is_alive():
                time.sleep(0.01)
            if life + 1 == lives:
                recording.join()
                assert values(client)[1] == lives * each
    assert all(flushed)
    provider.shutdown(60_000)


def test_labels_are_attributes(client: TestClient) -> None:
    form = {
        "params": PARAMS | {"value_type": "label"},
        "ingest": {"map": [{"format": "otlp", "metric": "errors", "value": "attr:code"}]},
    }
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    points = [point(n, T + n, code={"stringValue": f"E{n}"}) for n in (30, 10, 60)]
    errors = {"name": "errors", "sum": {"aggregationTemporality": 1, "dataPoints": points}}
    for _ in range(2):
        assert client.post(URL, json=request(errors)).json() == {}
    query = {"aggregate": "heavy_hitters", "phi": 0.2, "decay": "none"}
    (answer,) = client.post("/v1/streams/ward/query", json={"queries": [query]}).json()["answers"]
    found = {each["value"]: each["frequency"]["value"] for each in answer["heavy_hitters"]}
    assert found == {"E60": 0.6, "E30": 0.3}


def test_data_points_are_counted_and_not_their_buckets(ward: TestClient) -> None:
    """Of two, whose buckets are seven rows, each dated far ahead."""
    ahead = [
        histogram()["histogram"]["dataPoints"][0] | {"timeUnixNano": str(T * 2 + n)} for n in (0, 1)
    ]
    metric = {"name": "temp", "histogram": {"aggregationTemporality": 1, "dataPoints": ahead}}
    answer = ward.post(f"{URL}?check_units=false", json=request(metric)).json()
    assert answer["partialSuccess"]["rejectedDataPoints"] == "2"
