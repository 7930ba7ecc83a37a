"""Streams with columns over HTTP: created, filled, queried as the library does it."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from service import OCTETS, posted

import decaysketch as ds

TYPES = {"temp": "float64", "site": "text", "ok": "bool", "level": "int64"}
PARAMS = ds.SketchParams(id_bits=40, capacity=50, seed=5, columns=TYPES)
URL = "/v1/streams/fleet"
T0 = 1_700_000_000
ROWS = [
    {
        "time": T0 + k,
        "id": k,
        "columns": {"temp": 20.0 + k % 5, "site": f"s{k % 3}", "ok": k % 2 == 0, "level": k},
    }
    for k in range(120)
]


@pytest.fixture
def fleet(client: TestClient) -> TestClient:
    params = {"id_bits": 40, "capacity": 50, "seed": 5, "columns": TYPES}
    assert client.put(URL, json={"params": params}).status_code == 201
    return client


def built(rows: list[dict[str, Any]]) -> ds.DecaySketch:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(
        [row.get("columns") or {} for row in rows], 1,
        [row["time"] for row in rows], [row["id"] for row in rows],
    )  # fmt: skip
    return sketch


def post(client: TestClient, content: Any, kind: str, source: str = "a") -> Any:
    headers = {"content-type": kind}
    return client.post(f"{URL}/observations?source={source}", content=content, headers=headers)


def arrow(rows: list[dict[str, Any]]) -> bytes:
    site = pa.array([row["columns"]["site"] for row in rows]).dictionary_encode()
    columns = {name: pa.array([row["columns"][name] for row in rows]) for name in TYPES}
    table = pa.table(
        {name: pa.array([row[name] for row in rows]) for name in ("time", "id")}
        | columns
        | {"site": site}
    )
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def test_every_way_in_gives_the_librarys_state(fleet: TestClient) -> None:
    state = fleet.get(URL).json()
    assert ds.SketchParams.from_dict(state["params"]) == PARAMS
    lines = "\n".join(map(json.dumps, ROWS[30:60])).encode()
    for content, kind in (
        (json.dumps({"observations": ROWS[:40]}), "application/json"),
        (lines, "application/x-ndjson"),
        (arrow(ROWS[50:90]), "application/vnd.apache.arrow.stream"),
        (arrow(ROWS[50:90]), "application/vnd.apache.arrow.stream"),
    ):
        found = post(fleet, content, kind)
        assert found.status_code == 200, found.text
        assert found.json()["refused"] == 0
    blob = built(ROWS[80:]).to_bytes()
    posted(fleet.post(f"{URL}/sketches?source=b", content=blob, headers=OCTETS))
    expected = built(ROWS)
    assert fleet.get(URL).json()["digest"] == expected.digest()
    text = "mean(temp) by site where ok and level > 20"
    body = {"queries": [{"ask": text, "decay": "none", "now": T0 + 200}]}
    (answer,) = fleet.post(f"{URL}/query", json=body).json()["answers"]
    view = expected.at("none", T0 + 200).given(where="ok and level > 20", of="temp").by("site")
    table = view.ask("mean")
    assert [each["by"]["site"] for each in answer["groups"]] == table.values[0]
    estimates = [each["estimate"]["value"] for each in answer["groups"]]
    assert estimates == pytest.approx(table.answers.value.tolist())


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"temp": "hot"}, "columns.temp"),
        ({"temp": 2**53 + 1}, "columns.temp"),
        ({"level": 1.5}, "columns.level"),
        ({"ok": 1}, "columns.ok"),
        ({"site": "x" * 1025}, "columns.site"),
        ({"tmp": 3}, "columns"),
        ([1], "columns"),
    ],
)
def test_a_bad_column_rejects_its_row(fleet: TestClient, columns: Any, field: str) -> None:
    rows = [ROWS[0], {"time": T0, "id": 7, "columns": columns}, {"time": T0, "id": 9}]
    for content, kind in (
        (json.dumps({"observations": rows}), "application/json"),
        ("\n".join(map(json.dumps, rows)), "application/x-ndjson"),
    ):
        found = post(fleet, content, kind).json()
        assert [(each["row"], each["field"]) for each in found["refusals"]] == [(1, field)]
    assert fleet.get(URL).json()["digest"] == built([rows[0], rows[2]]).digest()


def test_what_a_stream_with_columns_is_not(fleet: TestClient) -> None:
    found = post(fleet, json.dumps({"observations": [{"time": T0, "id": 1, "value": 3}]}),
                 "application/json")  # fmt: skip
    assert found.status_code == 422
    table = pa.table({"time": [T0], "id": [1], "temp": [float("inf")], "ok": [True]})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    found = post(fleet, out.getvalue(), "application/vnd.apache.arrow.stream")
    assert found.json()["refusals"][0]["field"] == "columns.temp"
    body = {"queries": [{"aggregate": "mean", "decay": "none", "now": T0 + 200}]}
    post(fleet, json.dumps({"observations": ROWS}), "application/json")
    answer = fleet.post(f"{URL}/query", json=body)
    assert answer.status_code == 422
    assert "name one with of" in answer.text
    fixed = {
        "family": "integral",
        "decay": "exponential(half_life=60)",
        "params": {"columns": TYPES},
    }
    taken = {"params": {"columns": {"time": "text"}}}
    for creation in (fixed, taken, {"params": {"columns": TYPES}, "views": {"devices": 1}}):
        assert fleet.put("/v1/streams/other", json=creation).status_code == 422
