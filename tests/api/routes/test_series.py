"""Counters of collectors that write to a stream of the family `series`, and real servers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from faults import faulty
from ingest.messages import T0, chirpstack
from ingest.test_otlp import SERVICE, point
from service import problem
from support.debian import program

import decaysketch as ds
from benchmarks.write_requests import STALE, version_1
from decaysketch.series import SeriesParams, SeriesSketch
from quality.series import JOINS, collected
from tests.api.routes import test_otlp, test_remote_write

PARAMS = {"time_unit": "ms", "capacity": 200_000}
COUNTER = {"format": "prometheus", "metric": "jobs", "kind": "counter", "drop_labels": ["replica"]}
BASE = 1_700_000_000_000


def put(client: Any, *maps: dict[str, Any], family: str = "series") -> Any:
    form = {"family": family, "params": PARAMS, "ingest": {"map": list(maps)}}
    return client.put("/v1/streams/ward", json=form)


def write(client: Any, source: str, series: list[Any]) -> None:
    """One post of Prometheus, twice."""
    body = test_remote_write.packed(version_1(series))
    for _ in range(2):
        answer = client.post(
            f"{test_remote_write.URL}?source={source}",
            content=body,
            headers=test_remote_write.SNAPPY,
        )
        assert answer.status_code == 204, answer.text


def ask(client: Any, aggregate: str, now: int, **more: Any) -> dict[str, Any]:
    query: dict[str, Any] = {"aggregate": aggregate, "decay": "window(1h)", "now": now, **more}
    answer = client.post("/v1/streams/ward/query", json={"queries": [query]})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["answers"][0]["estimate"]
    return found


def samples(rows: Any, collector: int) -> list[Any]:
    """Series as a collector writes them."""
    own = rows[rows[:, 1] == collector]
    return [
        (
            {"__name__": "jobs", "worker": str(number), "replica": str(collector)},
            [(float(value), BASE + int(at)) for _, _, at, value in own[own[:, 0] == number]],
        )
        for number in np.unique(own[:, 0]).astype(int).tolist()
    ]


@pytest.mark.parametrize("skew", [0.0, 2.0, 28.0])
def test_a_pair_of_collectors_gives_the_right_increase(client: TestClient, skew: float) -> None:
    """Two collectors with clocks of their own, each posting everything twice."""
    assert put(client, COUNTER).status_code == 201
    rows, rates = collected(np.random.default_rng(1), skew, counters=30)
    for collector in (0, 1):
        write(client, f"prom-{collector}", samples(rows, collector))
    found = ask(client, "increase", BASE + 7_200_000)
    assert found["exact"]
    assert found["value"] == pytest.approx(3_600 * rates, rel=0.01)
    assert ask(client, "series_count", BASE + 7_200_000)["value"] == 30
    distinct = len(np.unique(rows[:, [0, 2]], axis=0))
    assert client.get("/v1/streams/ward").json()["rows"] == distinct


def test_uplinks_are_series_by_their_kind_alone(client: TestClient) -> None:
    """Each frame arrives twice. Readings of a device are one entity, and `reset` has no place."""
    maps = [
        {"format": "chirpstack", "kind": "gauge", "value": f"object.{name}",
         "attributes": {"app": "deviceInfo.applicationName"}}
        for name in ("temperature", "humidity")
    ]  # fmt: skip
    form = {"family": "series", "params": {"time_unit": "s", "attributes": "app"},
            "ingest": {"map": maps}}  # fmt: skip
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    for frame in [*range(10), *range(10)]:
        posted = client.post(
            "/v1/streams/ward/lorawan?source=lns&format=chirpstack&event=up",
            json=chirpstack(frame, T0 + 600 * frame, object={"temperature": 20, "humidity": 50}),
        )
        assert posted.status_code in (200, 204), posted.text
    assert client.get("/v1/streams/ward").json()["warnings"] == []
    found = ask(client, "series_count", T0 + 6_000, decay="none")
    assert (found["value"], found["rows"]) == (2, 1)  # of one device
    found = ask(client, "time_average", T0 + 6_000, validity=600, where="app == 'ward'")
    assert found["value"] == 35.0


def test_caveats_and_warnings_are_in_every_response(client: TestClient) -> None:
    """Five devices that do not fit, each with two writers: JSON, CSV and the stream say so."""
    form = {"family": "series", "params": {"capacity": 200, "time_unit": "s"}}
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    sketch = SeriesSketch(SeriesParams(capacity=200, time_unit="s"))
    times = np.arange(T0, T0 + 1_000)
    for series in range(5):
        ids = np.full(1_000, series)
        sketch.update(times - T0, 1, times, ids, starts=T0 - times % 2)
    posted = client.post(
        "/v1/streams/ward/sketches?source=s", content=sketch.to_bytes(),
        headers={"content-type": "application/octet-stream"},
    )  # fmt: skip
    assert posted.status_code == 200, posted.text
    query = {"queries": [{"ask": "increase", "decay": "window(15min)", "now": T0 + 1_000}]}
    found = client.post("/v1/streams/ward/query", json=query).json()
    assert found["answers"][0]["estimate"]["caveats"] == ["few-series"]
    table = client.post("/v1/streams/ward/query", json=query, headers={"accept": "text/csv"})
    assert "few-series" in table.text
    warnings = " ".join(client.get("/v1/streams/ward").json()["warnings"])
    assert "choose a resolution" in warnings
    assert "two writers use one series" in warnings


def test_groups_and_filters_by_attributes(client: TestClient) -> None:
    form = {"family": "series", "params": {"attributes": "region, job"}}
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    params = SeriesParams(attributes="region, job")
    for sensor in range(2):
        sketch = SeriesSketch(params)
        ids = np.arange(sensor, 12)
        attributes = {"job": [f"j{k % 2}" for k in ids], "region": [f"r{k % 3}" for k in ids]}
        for tick in range(5):
            sketch.update(ids * 60.0 * tick, 1, np.full(len(ids), tick), ids, attributes=attributes)
        posted = client.post(
            f"/v1/streams/ward/sketches?source=s{sensor}", content=sketch.to_bytes(),
            headers={"content-type": "application/octet-stream"},
        )  # fmt: skip
        assert posted.status_code == 200, posted.text
    query = {"ask": "increase by region where job == 'j0' order key", "decay": "window(1h)",
             "now": 100}  # fmt: skip
    answer = client.post("/v1/streams/ward/query", json={"queries": [query]})
    assert answer.status_code == 200, answer.text
    groups = answer.json()["answers"][0]["groups"]
    expected = {f"r{r}": sum(240 * k for k in range(0, 12, 2) if k % 3 == r) for r in range(3)}
    assert {each["by"]["region"]: each["estimate"]["value"] for each in groups} == expected
    plain = {"aggregate": "series_count", "decay": "window(1h)", "now": 100}
    bad = client.post(
        "/v1/streams/ward/query", json={"queries": [plain | {"where": "zone == 'a'"}]}
    )
    assert "expected one of the columns job" in str(problem(bad, 422, "invalid-request"))
    assert client.put("/v1/streams/hall", json={**form, "params": {}}).status_code == 201
    bad = client.post("/v1/streams/hall/query", json={"queries": [plain | {"by": ["job"]}]})
    assert "declares no attributes" in str(problem(bad, 422, "invalid-request"))


def test_two_streams_are_joined_by_device(client: TestClient) -> None:
    params = SeriesParams(seed=3, time_unit="ms", attributes="job")
    streams = {
        "ward": params,
        "humid": replace(params, capacity=500),
        "seeded": replace(params, seed=4),
        "rows": ds.SketchParams(),
    }
    for name, each in streams.items():
        form = {"family": "decay" if name == "rows" else "series", "params": each.to_dict()}
        assert client.put(f"/v1/streams/{name}", json=form).status_code == 201
    draw = np.random.default_rng(1)
    made: dict[str, SeriesSketch] = {}

    def post(name: str, device: int) -> None:
        sketch = made.setdefault(name, SeriesSketch(params))
        times = BASE + draw.integers(0, 1_000, 9)
        jobs = {"job": "ab"[device % 2]}
        sketch.update(draw.normal(device, 1, 9), 1, times, [device] * 9, attributes=jobs)
        url = f"/v1/streams/{name}/sketches?source=a"
        headers = {"Content-Type": "application/octet-stream"}
        assert client.post(url, content=sketch.to_bytes(), headers=headers).status_code == 200

    def response(name: str, **more: Any) -> Any:
        query = {"aggregate": name, "other": "humid", "decay": "window(1h)", "now": BASE + 999}
        return client.post("/v1/streams/ward/query", json={"queries": [query | more]})

    for name in ("ward", "humid"):
        for device in range(6):
            post(name, device)
    at: Any = {"decay": "window(1h)", "now": BASE + 999}
    for name in JOINS:
        first = response(name, validity=300)
        expected = getattr(made["ward"], name)(made["humid"], validity=300, **at)
        assert first.json()["answers"][0]["estimate"] == expected.to_dict()
        groups = response(name, by=["job"]).json()["answers"][0]["groups"]
        alone = getattr(made["ward"], name)(made["humid"], by="job", **at)
        assert [each["estimate"]["value"] for each in groups] == [row.answer.value for row in alone]
        post("humid", 5)
        assert response(name, validity=300).headers["ETag"] != first.headers["ETag"]
    problem(response("time_slope", other="none"), 404, "unknown-stream")
    problem(response("time_slope", other="rows"), 422, "invalid-request")
    found = problem(response("time_slope", other="seeded"), 409, "incompatible-sketch")
    assert "again with the other's seed" in found["detail"]


def test_labels_of_every_protocol_name_one_device(client: TestClient) -> None:
    """A mapping's `entity` gives a device one identity in streams of different protocols."""
    eui = chirpstack(0, T0)["deviceInfo"]["devEui"]
    gauge = {"kind": "gauge", "entity": ["dev"]}
    maps: dict[str, Any] = {
        "prometheus": {"format": "prometheus", "metric": "load", **gauge},
        "influx": {"format": "influx", "measurement": "heat", "value": "c", **gauge},
        "otlp": {"format": "otlp", "metric": "heat", **gauge},
        "lorawan": {"format": "chirpstack", "value": "object.t", "kind": "gauge",
                    "entity": ["deviceInfo.devEui"]},
    }  # fmt: skip
    for name, mapping in maps.items():
        form = {"family": "series", "params": {}, "ingest": {"map": [mapping]}}
        assert client.put(f"/v1/streams/{name}", json=form).status_code == 201, name
    url = "/v1/streams/{}/{}?source=a".format
    for step in range(4):
        at = T0 + 60 * step
        labels = {"__name__": "load", "dev": eui, "port": str(step)}
        body = test_remote_write.packed(version_1([(labels, [(step * 2.0, at * 1_000)])]))
        written = client.post(
            url("prometheus", "prometheus/write"), content=body, headers=test_remote_write.SNAPPY
        )
        lines = f"heat,dev={eui},room=a c={step * 3} {at}\nheat,room=a c=1 {at}\n"
        lined = client.post(url("influx", "influx/write") + "&precision=s", content=lines)
        assert "has no label 'dev' in the series id" in lined.text, lined.text
        dev = [{"key": "dev", "value": {"stringValue": eui}}]
        reading = point(step * 5, at * 10**9) | {"attributes": dev}
        metric = {"name": "heat", "gauge": {"dataPoints": [reading]}}
        told = client.post(url("otlp", "otlp/v1/metrics"), json=test_otlp.request(metric))
        frame = chirpstack(step, at, object={"t": step * 7})
        sent = client.post(url("lorawan", "lorawan") + "&format=chirpstack&event=up", json=frame)
        assert [each.status_code for each in (written, told, sent)] == [204, 200, 200]
    for other, slope in (("influx", 2 / 3), ("otlp", 2 / 5), ("lorawan", 2 / 7)):
        query = {"aggregate": "time_slope", "other": other, "decay": "window(1h)", "now": at + 60,
                 "validity": 60}  # fmt: skip
        answer = client.post("/v1/streams/prometheus/query", json={"queries": [query]}).json()
        found = answer["answers"][0]["estimate"]
        assert (found["value"], found["rows"]) == (pytest.approx(slope), 1), other


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([{}, {"metric": "b", "entity": ["pod"]}], "expected the same labels in both"),
        ([{"drop_labels": ["dev"]}], "expected labels that duplicates agree on"),
        ([{"kind": None}], "and kind is missing"),
    ],
)
def test_labels_that_name_no_device_are_refused(
    client: TestClient, given: list[dict[str, Any]], text: str
) -> None:
    maps = [{**COUNTER, "drop_labels": [], "entity": ["dev"], **each} for each in given]
    assert text in problem(put(client, *maps), 422, "invalid-request")["detail"]


def test_a_stale_marker_ends_a_value(client: TestClient) -> None:
    gauge = {**COUNTER, "kind": "gauge"}
    assert put(client, gauge).status_code == 201
    labels = {"__name__": "jobs", "worker": "1"}
    write(client, "a", [(labels, [(4.0, BASE), (STALE, BASE + 10_000), (8.0, BASE + 30_000)])])
    found = ask(client, "time_average", BASE + 40_000, validity=60_000)
    assert found["value"] == pytest.approx((4 * 10 + 8 * 10) / 20)
    assert ask(client, "availability", BASE + 40_000, validity=60_000)["value"] == 0.5


def test_a_few_series_say_so(client: TestClient) -> None:
    form = {"family": "series", "params": {"time_unit": "ms", "capacity": 20},
            "ingest": {"map": [COUNTER]}}  # fmt: skip
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    for worker in range(3):
        labels = {"__name__": "jobs", "worker": str(worker)}
        write(client, "a", [(labels, [(float(n), BASE + 1_000 * n) for n in range(60)])])
    found = ask(client, "increase", BASE + 60_000)
    assert found["caveats"] == ["few-series"]
    assert "choose a capacity" in str(client.get("/v1/streams/ward").json()["warnings"])
    assert not found["exact"]


def test_mappings_that_mean_nothing_to_a_stream_are_refused(client: TestClient) -> None:
    kind = problem(put(client, COUNTER, family="decay"), 422, "invalid-parameter")
    assert "map[0].kind is 'counter', and the family is 'decay'" in str(kind)
    frames = {"format": "chirpstack", "value": "object.level"}
    frame = problem(put(client, frames), 422, "invalid-parameter")
    assert "map[0].id has '$lorawan', which names a frame" in str(frame)
    assert put(client, {**frames, "id": ["deviceInfo.devEui"]}).status_code == 201


def test_cumulative_sums_of_opentelemetry_are_counters(client: TestClient) -> None:
    mapping = {"format": "otlp", "metric": "jobs", "kind": "counter"}
    assert put(client, mapping).status_code == 201
    nanoseconds = 10**9

    def posted(temporality: int, *given: tuple[int, float]) -> Any:
        points = [test_otlp.point(value, test_otlp.T + at * nanoseconds) for at, value in given]
        metric = {
            "name": "jobs",
            "sum": {"dataPoints": points, "aggregationTemporality": temporality,
                    "isMonotonic": True},
        }  # fmt: skip
        body = test_otlp.binary(test_otlp.request(metric))
        return client.post(test_otlp.URL, content=body, headers=test_otlp.PROTOBUF)

    assert posted(2, (0, 10), (60, 25), (120, 5)).status_code == 200
    assert posted(2, (60, 25), (180, 9)).status_code == 200
    now = test_otlp.T // 10**6 + 180_000
    assert ask(client, "increase", now, guard=0)["value"] == 15 + 5 + 4
    delta = posted(1, (240, 3))
    assert delta.status_code == 200  # of which nothing is taken, and the response says why
    assert ask(client, "increase", now + 60_000, guard=0)["value"] == 24


def test_starts_of_opentelemetry_end_guessing(client: TestClient) -> None:
    """A restart that no value shows, a histogram by bucket, and attributes of both places."""
    mapping = {"format": "otlp", "kind": "counter"}
    params = {"time_unit": "ms", "attributes": "le,route,service.name"}
    both = [mapping | {"metric": "jobs"}, mapping | {"metric": "lag"}]
    form = {"family": "series", "params": params, "ingest": {"map": both}}
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    s = 10**9

    def posted(metric: dict[str, Any]) -> None:
        body = test_otlp.binary(test_otlp.request(metric, resource=[SERVICE]))
        answer = client.post(test_otlp.URL, content=body, headers=test_otlp.PROTOBUF)
        assert (answer.status_code, answer.content) == (200, b"")

    jobs = [
        point(value, test_otlp.T + at * s) | {"startTimeUnixNano": str(test_otlp.T + start * s)}
        for at, start, value in ((60, 0, 10), (120, 0, 25), (180, 150, 40))
    ]
    sums = {"dataPoints": jobs, "aggregationTemporality": 2, "isMonotonic": True}
    posted({"name": "jobs", "sum": sums})
    posted({"name": "jobs", "sum": sums})
    lags = [
        {"timeUnixNano": str(test_otlp.T + at * s), "startTimeUnixNano": str(test_otlp.T),
         "explicitBounds": [1, 2.5], "bucketCounts": counts, "count": str(sum(map(int, counts))),
         "attributes": [{"key": "route", "value": {"stringValue": "/a"}}]}
        for at, counts in ((60, ["1", "2", "0"]), (120, ["4", "5", "1"]))
    ]  # fmt: skip
    posted({"name": "lag", "histogram": {"dataPoints": lags, "aggregationTemporality": 2}})
    now = test_otlp.T // 10**6 + 200_000
    jobs_only = ask(client, "increase", now, where="le is null")
    assert jobs_only["value"] == 10 + 15 + 40
    query = {"ask": "increase by le, route, field('service.name') where le is not null order key",
             "decay": "window(1h)", "now": now}  # fmt: skip
    answer = client.post("/v1/streams/ward/query", json={"queries": [query]})
    assert answer.status_code == 200, answer.text
    groups = answer.json()["answers"][0]["groups"]
    assert [(*each["by"].values(), each["estimate"]["value"]) for each in groups] == [
        ("+Inf", "/a", "ward", 10), ("1", "/a", "ward", 4), ("2.5", "/a", "ward", 9)
    ]  # fmt: skip
    state = SeriesSketch.from_bytes(client.get("/v1/streams/ward/sketch").content).state()
    assert len(np.unique(state.entities)) == 2  # the buckets are sampled together


def test_the_sdk_of_opentelemetry_with_cumulative_temporality(client: TestClient) -> None:
    """Its default: two processes, one of them restarted, each export sent twice. The increase is
    what was counted, without a reset that is guessed."""
    metrics = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    resources = pytest.importorskip("opentelemetry.sdk.resources")
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.metrics_encoder")
    mapping = {"format": "otlp", "kind": "counter"}
    both = [mapping | {"metric": "jobs"}, mapping | {"metric": "lag"}]
    params = {"time_unit": "ms", "attributes": "route,le"}
    form = {"family": "series", "params": params, "ingest": {"map": both}}
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    counted = 0
    for name, exports in (("a", 2), ("b", 1), ("b", 3)):  # the process b twice
        reader = export.InMemoryMetricReader()
        resource = resources.Resource({"service.name": "shop", "service.instance.id": name})
        provider = metrics.MeterProvider([reader], resource)
        meter = provider.get_meter("test")
        jobs, lag = meter.create_counter("jobs"), meter.create_histogram("lag")
        for number in range(exports):
            for route in ("/a", "/b"):
                jobs.add(5 + number, {"route": route})
                lag.record(7.0, {"route": route})
            counted += 2 * (5 + number)
            time.sleep(0.002)  # the SDK's start is the first measurement; the export is later
            body = encoder.encode_metrics(reader.get_metrics_data()).SerializeToString()
            for _ in range(2):
                answer = client.post(test_otlp.URL, content=body, headers=test_otlp.PROTOBUF)
                assert (answer.status_code, answer.content) == (200, b"")
        provider.shutdown()
    now = time.time_ns() // 10**6 + 1
    assert ask(client, "increase", now, where="le is null")["value"] == counted
    assert ask(client, "increase", now, where="le == '10'")["value"] == 2 * (2 + 1 + 3)
    assert ask(client, "increase", now, where="le == '5'")["value"] == 0
    half = ask(client, "increase", now, where="le is null and route == '/a'")
    assert half["value"] == counted / 2
    assert ask(client, "series_count", now, where="le is null")["value"] == 4


@pytest.mark.parametrize("media", ["json", "ndjson", "arrow"])
def test_observations_have_starts_entities_and_attributes(client: TestClient, media: str) -> None:
    form = {"family": "series", "params": {"attributes": "job,region"}}
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    rows = [
        {"time": 60 * tick + 100, "start": 90, "id": f"s{k}", "entity": "host", "value": 6.0 * tick,
         "attributes": {"job": f"j{k}", "region": None}}
        for k in range(3)
        for tick in range(4)
    ]  # fmt: skip
    bad: list[Any] = [rows[0] | {"start": 101}, rows[0] | {"id": "s9", "entity": -1}]
    if media == "arrow":
        bad[1] = rows[0] | {"id": "s9", "entity": ""}
        listed = rows + bad
        table = pa.table(
            {
                name: [row[name] for row in listed]
                for name in ("time", "start", "id", "entity", "value")
            }
            | {"job": [row["attributes"]["job"] for row in listed]}
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content, kind = sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream"
    elif media == "json":
        content, kind = json.dumps({"observations": rows + bad}).encode(), "application/json"
    else:
        content, kind = "\n".join(map(json.dumps, rows + bad)).encode(), "application/x-ndjson"
    for again in range(2):
        answer = client.post(
            "/v1/streams/ward/observations?source=a&verdicts=rows", content=content,
            headers={"content-type": kind},
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        assert [each["field"] for each in answer.json()["refusals"]] == ["start", "entity"]
        statuses = answer.json()["verdicts"]
        assert statuses[:12] == ["already_retained" if again else "retained"] * 12
    found = ask(client, "increase", 280, decay="window(180s)", where="job == 'j1'")
    assert found["value"] == 18
    assert client.get("/v1/streams/ward").json()["rows"] == 12
    params = SeriesParams(attributes="job,region")
    ids = ds.observation_ids([row["id"] for row in rows], params=params)
    expected = SeriesSketch(params)
    expected.update(
        [row["value"] for row in rows], 1, [row["time"] for row in rows], ids, starts=[90] * 12,
        entities=ds.observation_ids(["host"] * 12, params=params),
        attributes={"job": [row["attributes"]["job"] for row in rows]},
    )  # fmt: skip
    assert client.get("/v1/streams/ward/sketch").content == expected.to_bytes()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"attributes": {"jib": "x"}}, "attributes"),
        ({"attributes": {"job": 7}}, "attributes.job"),
        ({"attributes": {"job": "x" * 1024, "region": "y"}}, "attributes"),
        ({"attributes": ["job"]}, "attributes"),
        ({"start": 1.5}, "start"),
        ({"entity": []}, "entity"),
        ({"unit": 1}, "observation"),
    ],
)
def test_rows_of_series_at_fault_are_named(client: TestClient, given: Any, field: str) -> None:
    form = {"family": "series", "params": {"attributes": "job,region"}}
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    row = {"time": 1, "id": "s", "value": 1} | given
    answer = client.post(
        "/v1/streams/ward/observations?source=a", json={"observations": [row, row | given]}
    )
    assert [each["field"] for each in answer.json()["refusals"]] == [field] * 2, answer.text


def test_labels_of_every_protocol_are_attributes(client: TestClient) -> None:
    """Without configuration beyond a kind."""
    maps = [COUNTER, {"format": "influx", "measurement": "jobs", "value": "n", "kind": "counter"}]
    form = {"family": "series", "params": PARAMS | {"attributes": "worker"},
            "ingest": {"map": maps}}  # fmt: skip
    assert client.put("/v1/streams/ward", json=form).status_code == 201
    labels = {"__name__": "jobs", "worker": "a,b"}
    write(client, "p", [(labels | {"replica": r}, [(4.0, BASE), (9.0, BASE + 5000)]) for r in "xy"])
    lines = "".join(f"jobs,worker=a\\,b n={n} {BASE + 5000 * n}\n" for n in range(3))
    answer = client.post("/v1/streams/ward/influx/write?precision=ms&source=t", content=lines)
    assert answer.status_code == 204, answer.text
    assert ask(client, "increase", BASE + 10_000, where="worker == 'a,b'")["value"] == 5 + 2
    assert ask(client, "series_count", BASE + 10_000)["value"] == 2


# --------------------------------------------------------------------------------- real servers


class _Target(BaseHTTPRequestHandler):
    """Counters that rise with every scrape, so that no two scrapes show the same."""

    shown = 0

    def do_GET(self) -> None:
        type(self).shown += 1
        lines = [f'jobs{{worker="{k}"}} {(k + 1) * self.shown}' for k in range(12)]
        body = ("# TYPE jobs counter\n" + "\n".join(lines) + "\n").encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def target() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Target)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_pair_of_prometheus_servers_one_of_them_restarted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_server: Callable[..., AbstractContextManager[tuple[Any, Any]]],
) -> None:
    """Both scrape one process every second and write through faults. The increase is that of the
    union of what they wrote, also where a slow scrape shows more than the one after it."""
    binary = program(("prometheus",), ("prometheus",))
    configuration = test_remote_write._CONFIGURATION.replace("/healthz", "/metrics")
    configuration = configuration.replace("regex: up", "regex: jobs")
    monkeypatch.setattr(test_remote_write, "_CONFIGURATION", configuration)
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with one_server(tmp_path / "aggregator.sqlite3") as (_process, client), target() as scraped:
        assert put(client, COUNTER).status_code == 201
        port = client.base_url.port

        def running(name: str, to: int) -> AbstractContextManager[Any]:
            return test_remote_write._prometheus(
                binary, tmp_path / f"{name}-{to}", name, to, scraped
            )

        with (
            faulty(port, b"/prometheus/write", [busy, b"", busy]) as through,
            running("a", through),
        ):
            with running("b", through):
                wait(client, {"a": 48, "b": 48})
            with running("b", port):  # restarted, with an empty disk
                wait(client, {"a": 96, "b": 96})
        sketch = SeriesSketch.from_bytes(client.get("/v1/streams/ward/sketch").content)
    state = sketch.state()
    names = np.unique(state.ids)
    values = sketch.snapshot().pieces.values
    assert len(names) == 12  # without the replica, whoever wrote it
    truth = 0.0
    for each in names:
        mine = np.flatnonzero(state.ids == each)
        truth += _rises(values[mine[np.argsort(state.times[mine])]])
    found = sketch.increase("window(1d)", now=int(state.times.max()))
    assert found.value == pytest.approx(truth, rel=1e-9)
    assert truth > 0


def _rises(values: np.ndarray) -> float:
    """The increase of a counter that began anew wherever it fell."""
    steps = np.diff(values)
    return float(np.where(steps < 0, values[1:], steps).sum())


def wait(client: Any, rows: dict[str, int]) -> None:
    """Until each source has posted so many rows."""
    began = time.time()
    while any(test_remote_write._taken(client, name) < least for name, least in rows.items()):
        assert time.time() - began < 600  # for what hangs
        time.sleep(0.2)
