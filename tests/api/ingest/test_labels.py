"""Streams of labels over HTTP: posted in every form, asked in every form, never shown as codes."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from service import NOW, OCTETS, problem

import decaysketch as ds

PARAMS = ds.SketchParams(max_weight=9, id_bits=40, capacity=200, value_type="label")
ROWS: list[dict[str, Any]] = [
    {"value": "E42", "time": NOW - 3, "id": 1},
    {"value": 'it "is" é, \\', "time": NOW - 2, "id": 2, "weight": 2},
    {"value": None, "time": NOW - 1, "id": "t-7"},
    {"value": "E42", "time": NOW, "id": ["t", 8]},
]
WINDOW = {"kind": "window", "width": 100}


def expected() -> ds.DecaySketch:
    sketch = ds.DecaySketch(PARAMS)
    keys = [
        1,
        2,
        *(int(ds.observation_ids(*key, params=PARAMS)[0]) for key in ([["t-7"]], (["t"], [8]))),
    ]
    sketch.update([row["value"] for row in ROWS], [1, 2, 1, 1], [row["time"] for row in ROWS], keys)
    return sketch


def forms() -> dict[str, tuple[str, bytes, int]]:
    sink = pa.BufferOutputStream()
    table = pa.table({
        name: [row.get(name, 1) for row in ROWS[:2]] for name in ("value", "weight", "time", "id")
    })  # fmt: skip
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    lines = [json.dumps(row, ensure_ascii=number % 2 > 0) for number, row in enumerate(ROWS)]
    return {
        "json": ("application/json", json.dumps({"observations": ROWS}).encode(), 4),
        "lines": ("application/x-ndjson", "\n".join(lines).encode(), 4),
        "arrow": ("application/vnd.apache.arrow.stream", sink.getvalue().to_pybytes(), 2),
    }


@pytest.fixture
def labels(client: TestClient) -> TestClient:
    assert client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).status_code == 201
    return client


def post(client: TestClient, media_type: str, body: bytes) -> Any:
    return client.post(
        "/v1/streams/s/observations?source=a", content=body, headers={"content-type": media_type}
    )


def test_every_form_gives_the_sketch_that_a_sensor_would_have_built(labels: TestClient) -> None:
    for media_type, body, rows in forms().values():
        answer = post(labels, media_type, body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["rows"] == rows
        assert answer.json()["refusals"] == []
    headers = {"decaysketch-after": answer.json()["token"]}
    held = labels.get("/v1/streams/s/sketch", headers=headers)
    assert held.headers["etag"].strip('"') == expected().digest()
    assert ds.decode(held.content) == expected()
    posted = labels.post(
        "/v1/streams/s/sketches?source=b", content=expected().to_bytes(), headers=OCTETS
    )
    assert posted.status_code == 200, posted.text


@pytest.mark.parametrize("form", ["json", "lines"])
def test_a_row_is_refused_with_its_reason(labels: TestClient, form: str) -> None:
    values = [42, "E1", True, ["a"], "é" * 513, "\ud800", "E2"]
    rows = [{"value": value, "time": NOW, "id": n} for n, value in enumerate(values)]
    body = (
        json.dumps({"observations": rows}) if form == "json" else "\n".join(map(json.dumps, rows))
    )
    media_type = "application/json" if form == "json" else "application/x-ndjson"
    answer = post(labels, media_type, body.encode()).json()
    said = {each["row"]: each["reason"] for each in answer["refusals"]}
    assert said.pop(5, "").startswith(("is '", "not JSON"))
    assert said == {
        0: "no text", 2: "no text", 3: "no text",
        4: "has 1026 bytes; a label has at most 1024",
    }  # fmt: skip
    assert answer["retained"] == 2


def test_columns_of_numbers_are_refused_and_texts_of_a_stream_of_numbers(
    labels: TestClient,
) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"value": [1.5], "time": [NOW], "id": [1]})
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    media_type, *_ = forms()["arrow"]
    said = problem(post(labels, media_type, sink.getvalue().to_pybytes()), 422, "invalid-request")
    assert "value: of another type" in said["detail"]
    labels.put("/v1/streams/t", json={"params": ds.SketchParams().to_dict()})
    row = {"observations": [{"value": "E42", "time": NOW, "id": 1}]}
    answer = labels.post("/v1/streams/t/observations?source=a", json=row).json()
    assert answer["refusals"][0]["reason"] == "no number"


def test_answers_show_texts(labels: TestClient) -> None:
    post(labels, *forms()["json"][:2])
    queries = [
        {"aggregate": "heavy_hitters", "phi": 0.1, "decay": WINDOW, "now": NOW},
        {"aggregate": "group_by", "limit": 1, "decay": WINDOW, "now": NOW},
        {"aggregate": "last", "decay": WINDOW, "now": NOW},
        {"aggregate": "selectivity", "predicate": "v in ('E42', 'E1')", "decay": WINDOW,
         "now": NOW},
    ]  # fmt: skip
    answer = labels.post("/v1/streams/s/query", json={"queries": queries})
    assert answer.status_code == 200, answer.text
    hitters, groups, last, share = answer.json()["answers"]
    assert [each["value"] for each in hitters["heavy_hitters"]] == ["E42", 'it "is" é, \\']
    assert groups["groups"][0]["value"] in ("E42", 'it "is" é, \\')
    assert last["last"]["value"] == "E42"
    assert share["estimate"]["value"] == 0.5
    in_csv = labels.post(
        "/v1/streams/s/query", json={"queries": queries}, headers={"accept": "text/csv"}
    )
    rows = list(csv.DictReader(io.StringIO(in_csv.text, newline="")))
    assert [row["key"] for row in rows[:2]] == ["E42", 'it "is" é, \\']
    assert [row["of"] for row in rows if row["aggregate"] == "last"] == ["E42"]
    in_arrow = labels.post(
        "/v1/streams/s/query", json={"queries": queries},
        headers={"accept": "application/vnd.apache.arrow.stream"},
    )  # fmt: skip
    assert pa.ipc.open_stream(in_arrow.content).read_all()["key"][:2].to_pylist() == [
        "E42",
        'it "is" é, \\',
    ]
    for refused in (
        {"aggregate": "mean"},
        {"aggregate": "quantile", "q": [0.5]},
        {"aggregate": "selectivity", "predicate": "v > 3"},
        {"aggregate": "selectivity", "at_least": 3},
    ):
        asked = {"queries": [{**refused, "decay": WINDOW, "now": NOW}]}
        said = problem(labels.post("/v1/streams/s/query", json=asked), 422, "invalid-request")
        assert "labels" in said["detail"] or "texts" in said["detail"], said


def test_a_webhook_takes_texts_where_its_map_says_so(labels: TestClient) -> None:
    made = {"format": "chirpstack", "labels": True, "value": "object.door", "time": "time"}
    params = PARAMS.to_dict() | {"time_unit": "ms"}
    for name, wanted in (("doors", made), ("plain", {**made, "labels": False})):
        answer = labels.put(
            f"/v1/streams/{name}", json={"params": params, "ingest": {"map": [wanted]}}
        )
        assert answer.status_code == 201, answer.text
    uplink = {
        "deviceInfo": {"devEui": "0011223344556677"}, "devAddr": "01020304", "fCnt": 7,
        "time": "2026-01-31T12:00:00Z", "object": {"door": "open"},
    }  # fmt: skip
    up = "/v1/streams/{}/lorawan?format=chirpstack&event=up"
    assert labels.post(up.format("doors"), json=uplink).status_code == 200
    refused = labels.post(up.format("plain"), json=uplink)
    assert "is 'open'; expected a number" in refused.text
    number = labels.post(up.format("doors"), json=uplink | {"object": {"door": 1}})
    assert "is 1; expected a text" in number.text
    asked = {"aggregate": "last", "decay": "none", "now": 1_769_864_400_000}
    answer = labels.post("/v1/streams/doors/query", json={"queries": [asked]})
    assert answer.json()["answers"][0]["last"]["value"] == "open", answer.text
    scaled = labels.put(
        "/v1/streams/doors", json={"params": params, "ingest": {"map": [{**made, "scale": 2}]}}
    )
    assert "scale is 2.0, and values are labels" in scaled.text
