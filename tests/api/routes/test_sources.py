"""What an operator sees of the sources of a stream, and of the service."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import OCTETS, PARAMS, build, posted

import decaysketch as ds

PATH = "/v1/streams/s/sources"


def sources(client: TestClient, **query: Any) -> dict[str, dict[str, Any]]:
    content = client.get(PATH, params=query).json()
    return {each["source"]: each for each in content["sources"]}


def late(age_s: int) -> bytes:
    sketch = ds.DecaySketch(PARAMS)
    now = int(time.time())
    sketch.update([1.0, 2.0], 1, [now - age_s, now - age_s - 500], [1, 2])
    return sketch.to_bytes()


def post(client: TestClient, source: str, body: bytes) -> Any:
    return client.post(
        "/v1/streams/s/sketches", params={"source": source}, content=body, headers=OCTETS
    )


def test_a_source_is_as_late_as_the_newest_of_its_posts(stream: TestClient) -> None:
    for age_s in (30, 7000):
        posted(post(stream, "a", late(age_s)))
    held = sources(stream)["a"]
    lateness = held["lateness"]
    assert lateness["posts"] == [0, 0, 1, 0, 0, 1, 0, 0]
    assert lateness["least_s"] == pytest.approx(30, abs=20)
    assert lateness["latest_s"] == pytest.approx(7000, abs=20)
    assert (held["posts"], held["posted_rows"], held["revoked"]) == (2, 4, False)
    assert held["silent"] is None  # how often it posts is not known yet
    assert held["usual_gap_s"] < 60


def test_what_came_before_is_no_post(stream: TestClient) -> None:
    body = late(5)
    posted(post(stream, "a", body))
    posted(post(stream, "a", body))
    assert sum(sources(stream)["a"]["lateness"]["posts"]) == 1


def test_what_is_refused_is_told_of_its_source_by_reason(stream: TestClient) -> None:
    posted(post(stream, "a", late(5)))
    assert post(stream, "a", b"nothing").status_code == 422
    assert post(stream, "b", b"nothing").status_code == 422
    assert post(stream, "b", late(-90_000)).status_code == 422
    assert post(stream, "\x07", b"nothing").status_code == 422
    assert stream.post("/v1/streams/s/sketches", content=b"x", headers=OCTETS).status_code == 422
    rows = [{"time": int(time.time()), "id": 5, "value": 1.0}, {"time": "soon", "id": 6}]
    taken = stream.post(
        "/v1/streams/s/observations", params={"source": "c"}, json={"observations": rows}
    )
    assert (taken.status_code, taken.json()["refused"]) == (200, 1)
    assert stream.post(f"{PATH}/a/revoke", json={}).status_code == 204
    assert post(stream, "a", late(5)).status_code == 403

    content = stream.get(PATH).json()
    refused = {each["source"]: each["refused"] for each in content["sources"]}
    assert refused == {
        "a": {"corrupt-sketch": 1, "revoked-source": 1},
        "b": {"corrupt-sketch": 1, "clock-ahead": 1},
        "c": {"observation-time": 1},
    }
    assert content["refused_unnamed"] == {"invalid-request": 2}
    words = {
        "clock-ahead": "Times lie in the future",
        "corrupt-sketch": "The body is not a valid sketch",
        "invalid-request": "The request is malformed",
        "observation-time": "An observation with an invalid time",
        "revoked-source": "The source was revoked",
    }
    assert content["reasons"] == stream.get("/v1/service").json()["reasons"] == words
    held = {each["source"]: each for each in content["sources"]}
    assert (held["b"]["posts"], held["b"]["last_received"]) == (0, None)
    assert held["b"]["last_refused"] is not None
    assert (held["a"]["revoked"], held["a"]["silent"], held["a"]["posts"]) == (True, None, 0)
    assert stream.get("/v1/service").json()["refused"] == {
        "corrupt-sketch": 2, "clock-ahead": 1, "observation-time": 1, "revoked-source": 1,
        "invalid-request": 2,
    }  # fmt: skip


def test_sources_are_told_a_page_at_a_time(stream: TestClient) -> None:
    for name in "abc":
        posted(post(stream, name, build(1).to_bytes()))
    first = stream.get(PATH, params={"limit": 2}).json()
    assert [each["source"] for each in first["sources"]] == ["a", "b"]
    rest = stream.get(PATH, params={"after": first["next"]}).json()
    assert ([each["source"] for each in rest["sources"]], rest["next"]) == (["c"], None)


def test_a_restart_forgets_what_was_seen_and_nothing_that_was_posted(
    start: Callable[..., TestClient],
) -> None:
    client = start()
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    posted(post(client, "a", late(5)))
    post(client, "a", b"nothing")
    before = client.get(PATH).json()
    last_post = client.get("/v1/service").json()["last_post"]
    again = start()
    after = again.get(PATH).json()
    assert after["since"] > before["since"]
    (held,) = after["sources"]
    assert (held["posts"], held["last_received"]) == (1, before["sources"][0]["last_received"])
    assert (held["lateness"], held["silent"], held["refused"]) == (None, None, {})
    assert again.get("/v1/service").json()["last_post"] == last_post == held["last_received"]


def test_a_stream_without_a_clock_has_no_lateness(client: TestClient) -> None:
    params = PARAMS.to_dict() | {"time_unit": "frames"}
    client.put("/v1/streams/s", json={"params": params})
    sketch = ds.DecaySketch(ds.SketchParams.from_dict(params))
    sketch.update([1.0], 1, [5], [1])
    posted(post(client, "a", sketch.to_bytes()))
    held = sources(client)["a"]
    assert (held["lateness"], held["posts"]) == (None, 1)


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_the_state_of_the_service(stream: TestClient) -> None:
    empty = stream.get("/v1/service").json()
    assert (empty["last_post"], empty["sources"], empty["refused"]) == (None, 0, {})
    for name in "ab":
        posted(post(stream, name, build(1).to_bytes()))
    while (state := stream.get("/v1/service").json())["backlog_rows"]:
        time.sleep(0.01)
    assert (state["streams"], state["sources"], state["ready"]) == (1, 2, True)
    assert (state["backlog_posts"], state["lag_rows"]) == (0, 0)
    assert state["last_post"] == max(
        each["last_received"] for each in stream.get(PATH).json()["sources"]
    )
    assert state["versions"]["decaysketch"] == ds.__version__
    assert state["versions"]["database"] == "sqlite"
    assert 0 < state["disk"]["database_bytes"] < state["disk"]["total_bytes"]
    assert 0 < state["resident_rows"] < state["resident_rows_limit"]


def test_monitors_of_all_streams_and_what_the_caller_may_do(
    start: Callable[..., TestClient],
) -> None:
    client = start()
    spec = {"kind": "threshold", "question": "count", "above": 9, "decay": "none", "sites": ["x"]}
    for name in ("t", "s"):
        client.put(f"/v1/streams/{name}", json={"params": PARAMS.to_dict()})
        assert client.put(f"/v1/streams/{name}/monitors/m", json=spec).status_code == 201
    listed = client.get("/v1/monitors").json()["monitors"]
    assert [(each["stream"], each["monitor"], each["silent"]) for each in listed] == [
        ("s", "m", 1), ("t", "m", 1),
    ]  # fmt: skip
    assert {(each["state"], each["threshold"]) for each in listed} == {("uncertain", 9)}
    assert client.get("/v1/caller").json() == {"prefix": None, "role": "admin", "scope": ["*"]}
    key = client.post("/v1/keys", json={"role": "read", "scope": ["t"]}).json()
    own = {"Authorization": f"Bearer {key['key']}"}
    again = start(auth="keys")
    again.get("/v1/streams/t/monitors/m", headers=own).raise_for_status()  # it has looked by now
    seen = again.get("/v1/monitors", headers=own).json()["monitors"]
    assert [each["stream"] for each in seen] == ["t"]
    assert again.get("/v1/caller", headers=own).json() == {
        "prefix": key["prefix"], "role": "read", "scope": ["t"],
    }  # fmt: skip
