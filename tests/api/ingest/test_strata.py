"""Streams with strata over HTTP: rows, sketches, restarts, and the limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import OCTETS, posted

import decaysketch as ds

URL = "/v1/streams/fleet"
CREATION = {
    "id_bits": 40, "capacity": 8, "seed": 5, "columns": {"host": "text", "ms": "float64"},
    "strata": ["host"], "max_strata": 4,
}  # fmt: skip
T0 = 1_700_000_000
PARAMS = ds.SketchParams(
    id_bits=40, capacity=8, seed=5, columns="host text, ms float64", strata="host", max_strata=4
)


def rows(hosts: str, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"time": T0 + first + k, "id": first + k, "columns": {"host": host, "ms": 1.0 + k % 9}}
        for k, host in enumerate(hosts)
    ]


def built(given: list[dict[str, Any]]) -> ds.DecaySketch:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(
        [row["columns"] for row in given], 1, [row["time"] for row in given],
        [row["id"] for row in given],
    )  # fmt: skip
    return sketch


def send(client: TestClient, sketch: ds.DecaySketch) -> Any:
    return client.post(f"{URL}/sketches?source=b", content=sketch.to_bytes(), headers=OCTETS)


def post(client: TestClient, given: list[dict[str, Any]], source: str = "a") -> Any:
    body = "\n".join(map(json.dumps, given))
    headers = {"content-type": "application/x-ndjson"}
    return client.post(f"{URL}/observations?source={source}", content=body, headers=headers)


def test_rows_sketches_and_restarts_keep_the_strata(start: Callable[..., TestClient]) -> None:
    client = start()
    created = client.put(URL, json={"params": CREATION})
    assert created.status_code == 201, created.text
    first, second = rows("aabbb" * 20), rows("cab" * 10, 1_000)
    assert post(client, first).json()["refusals"] == []
    posted(send(client, built(second)))
    expected = built(first + second)
    for again in (False, True):
        client = start() if again else client
        assert client.get(URL).json()["digest"] == expected.digest()
        asked = {"queries": [{"ask": "quantile(ms, 0.95) by host", "decay": "none"}]}
        (answer,) = client.post(f"{URL}/query", json=asked).json()["answers"]
        table = expected.quantile([0.95], "none", of="ms", by="host")
        assert [group["by"]["host"] for group in answer["groups"]] == [r.by["host"] for r in table]
        assert answer["unseen_at_most"] == 0.0


def test_a_new_stratum_beyond_the_limit_is_rejected_counted_and_named(client: TestClient) -> None:
    assert client.put(URL, json={"params": CREATION}).status_code == 201
    assert post(client, rows("abc")).json()["refusals"] == []
    answer = post(client, rows("adeae", 100)).json()
    assert [(each["row"], each["reason"], each["value"]) for each in answer["refusals"]] == [
        (2, "too many strata", "e"), (4, "too many strata", "e"),
    ]  # fmt: skip
    refused = send(client, built(rows("abxy", 200)))
    assert refused.status_code == 507
    assert refused.json()["type"].endswith("too-many-strata")
    assert "host = 'x'" in refused.json()["detail"]
    posted(send(client, built(rows("abcd", 200))))
    # The strata of revoked sources leave space for others.
    assert post(client, rows("d", 300), "other").json()["refusals"] == []
    headers = {"content-type": "application/json"}
    for source in "ab":
        assert client.post(f"{URL}/sources/{source}/revoke", headers=headers).status_code == 204
    refused = post(client, rows("wxyz", 400), "other").json()["refusals"]
    assert [each["value"] for each in refused] == ["z"]
    named = client.put("/v1/streams/bad", json={"params": CREATION | {"strata": ["ms"]}})
    assert named.status_code == 422
    assert "strata" in named.text


@pytest.mark.parametrize("family", ["integral"])
def test_other_families_have_no_strata(client: TestClient, family: str) -> None:
    creation = {"family": family, "params": CREATION, "decay": "exponential(half_life=9)"}
    answer = client.put(URL, json=creation)
    assert answer.status_code == 422
    assert "columns" in answer.text
