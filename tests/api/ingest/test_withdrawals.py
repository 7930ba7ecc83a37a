"""Withdrawals over HTTP: nothing that was withdrawn returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient
from service import OCTETS, posted

import decaysketch as ds

URL = "/v1/streams/fleet"
T0 = 1_700_000_000
CREATION = {
    "id_bits": 40, "capacity": 500, "seed": 5, "revision": "rev",
    "columns": {"rev": "int64", "temp": "float64", "device": "text"},
}  # fmt: skip
PARAMS = ds.SketchParams.from_dict(CREATION)
ROWS = [
    {"time": T0 + k, "id": k, "columns": {"temp": 20.0 + k % 5, "device": f"d{k % 3}"}}
    for k in range(60)
]


def post(client: TestClient, rows: list[dict[str, Any]], source: str) -> Any:
    body = "\n".join(map(json.dumps, rows))
    headers = {"content-type": "application/x-ndjson"}
    return client.post(f"{URL}/observations?source={source}", content=body, headers=headers)


def count(client: TestClient, where: str) -> float:
    asked = {"queries": [{"aggregate": "count", "where": where, "decay": "none", "now": T0 + 99}]}
    (answer,) = client.post(f"{URL}/query", json=asked).json()["answers"]
    value: float = answer["estimate"]["value"]
    return value


def test_withdrawn_rows_do_not_return(start: Callable[..., TestClient]) -> None:
    client = start()
    assert client.put(URL, json={"params": CREATION}).status_code == 201
    assert post(client, ROWS, "a").json()["refusals"] == []
    answer = client.post(f"{URL}/withdrawals", json={"where": "device == 'd1'"}).json()
    assert answer["withdrawn"] == 20
    assert answer["token"]
    older = ds.DecaySketch(PARAMS)
    older.update([row["columns"] for row in ROWS], 1, [row["time"] for row in ROWS],
                 [row["id"] for row in ROWS])  # fmt: skip
    posted(client.post(f"{URL}/sketches?source=b", content=older.to_bytes(), headers=OCTETS))
    post(client, ROWS, "c")  # late duplicates, by another way
    for again in (False, True):
        client = start() if again else client
        assert count(client, "device == 'd1'") == 0.0
        assert count(client, "device != 'd1'") == 40.0
    correction = {"time": T0, "id": 0, "columns": {"rev": 1, "temp": 99.0, "device": "d0"}}
    post(client, [correction], "a")
    assert count(client, "temp == 99") == 1.0
    assert count(client, "device == 'd0'") == 20.0
    assert client.post(f"{URL}/withdrawals", json={"ids": [0, 3, 12345]}).json()["withdrawn"] == 2
    nothing = client.post(f"{URL}/withdrawals", json={"ids": [0]}).json()
    assert (nothing["withdrawn"], nothing["token"]) == (0, None)


def test_bad_withdrawals_are_one_clear_error(stream: TestClient) -> None:
    assert stream.put(URL, json={"params": CREATION}).status_code == 201
    post(stream, ROWS, "a")
    for url, body, says in (
        (URL, {}, "expected ids or where"),
        (URL, {"ids": [1], "where": "device == 'a'"}, "expected ids or where"),
        (URL, {"where": "devise == 'a'"}, "devise"),
        ("/v1/streams/s", {"ids": [1]}, "no revision column"),
    ):
        answer = stream.post(f"{url}/withdrawals", json=body)
        assert (answer.status_code, says in answer.text) == (422, True), answer.text
    rejected = post(stream, [{"time": T0, "id": 5, "columns": {"rev": 255}}], "a")
    assert [each["field"] for each in rejected.json()["refusals"]] == ["columns.rev"]
