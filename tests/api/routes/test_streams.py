"""Streams: created once, read by whoever builds sketches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import NOW, OCTETS, PARAMS, build, problem

import decaysketch
from api.schemas import StreamCreation
from decaysketch import SketchParams


def test_a_sensor_reads_the_parameters_and_builds_a_sketch_that_fits(stream: TestClient) -> None:
    read = stream.get("/v1/streams/s").json()
    params = SketchParams.from_dict(read["params"])
    assert params == PARAMS
    assert read["fingerprint"] == PARAMS.fingerprint.hex()
    sketch = build(1, params=params)
    posted = stream.post(
        "/v1/streams/s/sketches", params={"source": "a"}, content=sketch.to_bytes(), headers=OCTETS
    )
    assert posted.status_code == 200


def test_creating_is_idempotent(client: TestClient) -> None:
    body = {"params": PARAMS.to_dict()}
    first = client.put("/v1/streams/s", json=body)
    second = client.put("/v1/streams/s", json=body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["location"] == "/v1/streams/s"
    assert first.json() == second.json() == client.get("/v1/streams/s").json()


def test_what_is_left_out_has_the_default_of_the_library(client: TestClient) -> None:
    created = client.put("/v1/streams/s", json={"params": {"max_weight": 7}})
    assert created.json()["params"] == SketchParams(max_weight=7).to_dict()
    read = StreamCreation.model_validate({"params": {"max_weight": 7}})
    assert read.root.params.to_library() == SketchParams(max_weight=7)


def test_an_expected_volume_replaces_the_id_bits(client: TestClient) -> None:
    created = client.put("/v1/streams/s", json={"params": {"expected": 1_000_000}})
    assert created.status_code == 201, created.text
    assert created.json()["params"] == SketchParams(id_bits=29).to_dict()


def test_a_new_stream_is_empty(stream: TestClient) -> None:
    read = stream.get("/v1/streams/s").json()
    assert (read["rows"], read["posts"], read["posted_bytes"], read["sources"]) == (0, 0, 0, [])
    assert read["watermarks"] == [None] * (PARAMS.levels + 1)
    blob = stream.get("/v1/streams/s/sketch").content
    assert read["bytes"] == len(blob)


def test_other_parameters_are_refused_naming_every_field(stream: TestClient) -> None:
    other = PARAMS.to_dict() | {"seed": 5, "capacity": 100, "time_unit": "ms"}
    before = stream.get("/v1/streams/s").json()
    content = problem(stream.put("/v1/streams/s", json={"params": other}), 409, "stream-exists")
    assert {(e["field"], e["value"], e["expected"]) for e in content["errors"]} == {
        ("params.seed", 5, PARAMS.seed),
        ("params.capacity", 100, 200),
        ("params.time_unit", "ms", "s"),
    }
    for text in ("seed", "capacity is 200, not 100", "time_unit is 's', not 'ms'"):
        assert text in content["detail"]
    assert stream.get("/v1/streams/s").json() == before


def test_streams_are_listed_by_name(client: TestClient) -> None:
    assert client.get("/v1/streams").json() == {"streams": []}
    for name in ("b", "a.1", "B-2_x"):
        client.put(f"/v1/streams/{name}", json={"params": {"max_weight": 1}})
    listed = client.get("/v1/streams").json()["streams"]
    assert [each["name"] for each in listed] == ["B-2_x", "a.1", "b"]
    assert listed[0] == {
        "name": "B-2_x",
        "family": "decay",
        "time_unit": "s",
        "created": client.get("/v1/streams/B-2_x").json()["created"],
        "digest": client.get("/v1/streams/B-2_x").json()["digest"],
        "rows": 0,
        "newest": None,
        "sources": 0,
        "posts": 0,
        "posted_bytes": 0,
        "posted_rows": 0,
        "last_received": None,
    }


def test_texts_about_a_stream_are_replaced_removed_and_outlive_a_restart(
    start: Callable[..., TestClient],
) -> None:
    form: dict[str, Any] = {"params": PARAMS.to_dict()}
    about = {"unit": "°C", "description": "Room temperature"}

    def put(texts: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = client.put("/v1/streams/s", json=form | texts).json()
        return {name: text for name, text in found.items() if name in about}

    client = start()
    assert put(about) == put({}) == about
    tag = client.get("/v1/streams").headers["etag"]
    assert put({"unit": " K "}) == about | {"unit": "K"}
    assert client.get("/v1/streams", headers={"if-none-match": tag}).status_code == 200
    client = start()
    assert put({}) == about | {"unit": "K"}
    assert client.get("/v1/streams").json()["streams"][0].items() >= (about | {"unit": "K"}).items()
    assert put({"unit": ""}) == {"description": "Room temperature"}
    for name, text in (("unit", "x" * 41), ("unit", "a\nb"), ("description", 7)):
        refused = client.put("/v1/streams/s", json=form | {name: text})
        assert problem(refused, 422, "invalid-request")["errors"][0]["field"] == name
    assert put({}) == {"description": "Room temperature"}


def test_the_list_has_pages(client: TestClient) -> None:
    names = sorted(f"s{number:03}" for number in range(105))
    for name in names:
        client.put(f"/v1/streams/{name}", json={"params": {"max_weight": 1}})
    first = client.get("/v1/streams")
    assert [each["name"] for each in first.json()["streams"]] == names[:100]
    assert first.json()["next"] == "s099"
    assert first.headers["link"] == '</v1/streams?limit=100&after=s099>; rel="next"'
    found, url = [], "/v1/streams?limit=20"
    while url:
        page = client.get(url)
        assert len(page.json()["streams"]) <= 20
        found += [each["name"] for each in page.json()["streams"]]
        url = page.links.get("next", {}).get("url")
    assert found == names
    last = client.get("/v1/streams?limit=20&after=s099")
    assert "next" not in last.json()
    assert "link" not in last.headers
    assert client.get("/v1/streams?after=z").json() == {"streams": []}


@pytest.mark.parametrize("asked", ["limit=0", "limit=1001", "limit=x", "after=" + 101 * "a"])
def test_pages_outside_their_domain(client: TestClient, asked: str) -> None:
    problem(client.get(f"/v1/streams?{asked}"), 422, "invalid-request")


@pytest.mark.parametrize("path", ["/v1/streams", "/v1/streams/s", "/v1/streams/s?sources=1"])
def test_what_has_not_changed_is_not_told_again(stream: TestClient, path: str) -> None:
    def changed(tag: str) -> str:
        """The tag now; the one before is not known any more, and the one now is."""
        answer = stream.get(path, headers={"If-None-Match": tag})
        assert answer.status_code == 200
        now: str = answer.headers["etag"]
        again = stream.get(path, headers={"If-None-Match": f'"other", {now}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == now != tag
        return now

    def post(source: str, seed: int) -> None:
        stream.post(
            "/v1/streams/s/sketches",
            params={"source": source},
            content=build(seed).to_bytes(),
            headers=OCTETS,
        ).raise_for_status()

    tag = changed('""')
    post("a", 1)
    tag = changed(tag)
    post("b", 2)
    tag = changed(tag)
    assert stream.post("/v1/streams/s/sources/b/revoke", json={}).status_code == 204
    tag = changed(tag)
    assert stream.post("/v1/streams/s/sources/b/reinstate", json={}).status_code == 204
    tag = changed(tag)
    stream.put("/v1/streams/other", json={"params": {"max_weight": 1}})
    if path == "/v1/streams":
        tag = changed(tag)
    assert stream.delete("/v1/streams/s").status_code == 204
    stream.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    changed(tag)


@pytest.mark.parametrize(
    ("params", "field", "named"),
    [
        ({"accuracy": 2}, "params", ["accuracy is 2.0; expected a number between 0 and 1"]),
        ({"expected": 9, "id_bits": 9}, "params", ["expected and id_bits are given"]),
        ({"expected": 10**12, "max_weight": 1 << 31}, "params", ["expected at most 68478"]),
        ({"accuracy": 0.1, "capacity": 9}, "params", ["expected one of them"]),
        ({"max_weight": 0}, "params", ["max_weight is 0", "1 to"]),
        ({"max_weight": "9"}, "params.max_weight", ["valid integer"]),
        ({"max_weight": 9.0}, "params.max_weight", ["valid integer"]),
        ({"max_weight": True}, "params.max_weight", ["valid integer"]),
        ({"max_weight": None}, "params.max_weight", ["valid integer"]),
        ({"max_weight": 9, "id_bits": 57}, "params", ["id_bits is 57", "56"]),
        ({"max_weight": 2**20, "id_bits": 50}, "params", ["too large"]),
        ({"max_weight": 9, "capacity": 0}, "params", ["capacity is 0"]),
        ({"max_weight": 9, "copies": 65}, "params", ["copies is 65"]),
        ({"max_weight": 9, "seed": -1}, "params", ["seed is -1"]),
        ({"max_weight": 9, "seed": 2**64}, "params", ["seed is"]),
        ({"max_weight": 9, "time_unit": "S"}, "params", ["time_unit is 'S'"]),
        ({"max_weight": 9, "time_unit": "s" * 101}, "params.time_unit", ["100"]),
        ({"max_weight": 9, "value_type": "int32"}, "params.value_type", ["'int64'"]),
        ({"max_weight": 9, "id_mix": "xor"}, "params.id_mix", ["'keyed'"]),
        ({"max_weight": 9, "keyed_by": "secret"}, "params.keyed_by", ["'seed'"]),
        ({"max_weight": 9, "key_check": "00"}, "params.key_check", ["not permitted"]),
        ({"max_weight": 9, "colour": 1}, "params.colour", ["not permitted"]),
        ([], "params", ["valid dictionary"]),
        (None, "params", ["valid dictionary"]),
    ],
)
def test_parameters_outside_their_domain(
    client: TestClient, params: Any, field: str, named: list[str]
) -> None:
    content = problem(client.put("/v1/streams/s", json={"params": params}), 422, "invalid-request")
    (fault,) = content["errors"]
    assert fault["field"] == field
    for text in named:
        assert text in fault["reason"]
    assert client.get("/v1/streams").json() == {"streams": []}


def test_the_value_that_was_refused_is_shown(client: TestClient) -> None:
    response = client.put("/v1/streams/s", json={"params": {"max_weight": "nine"}})
    assert problem(response, 422, "invalid-request")["errors"] == [
        {
            "field": "params.max_weight",
            "reason": "Input should be a valid integer",
            "value": "nine",
        }
    ]


@pytest.mark.parametrize(
    "name", ["", "%20", "-a", ".hidden", "a" * 101, "a%00b", "caf%C3%A9", "a%0A"]
)
def test_names_outside_their_domain(client: TestClient, name: str) -> None:
    response = client.put(f"/v1/streams/{name}", json={"params": {"max_weight": 1}})
    assert response.status_code == (422 if name else 404)
    assert client.get("/v1/streams").json() == {"streams": []}


def test_unknown_streams_and_paths(client: TestClient) -> None:
    assert "'nope'" in problem(client.get("/v1/streams/nope"), 404, "unknown-stream")["detail"]
    problem(client.get("/v1/streams/nope/sketch"), 404, "unknown-stream")
    problem(client.get("/v2"), 404)
    refused = client.patch("/v1/streams/nope")
    problem(refused, 405)
    assert set(refused.headers["allow"].split(", ")) <= {"GET", "HEAD", "PUT", "DELETE"}


def test_health(client: TestClient) -> None:
    assert client.get("/healthz").json()["status"] == "ok"


def test_a_stream_of_several_copies(client: TestClient) -> None:
    """Sketches are folded copy by copy; answers are the average of the copies."""
    params = replace(PARAMS, copies=3, capacity=60)
    client.put("/v1/streams/s", json={"params": params.to_dict()})
    sketches = [build(seed, params=params, first_id=500 * seed) for seed in range(3)]
    for sketch in sketches:
        posted = client.post(
            "/v1/streams/s/sketches",
            params={"source": "a"},
            content=sketch.to_bytes(),
            headers=OCTETS,
        )
        assert posted.status_code == 200
    merged = decaysketch.merge(sketches)
    assert client.get("/v1/streams/s/sketch").content == merged.to_bytes()
    read = client.get("/v1/streams/s").json()
    assert read["rows"] == len(merged)
    assert read["watermarks"] == list(merged.stats().complete_since)
    asked = {"aggregate": "sum", "decay": {"kind": "exponential", "half_life": 900}, "now": NOW}
    answers = client.post("/v1/streams/s/query", json={"queries": [asked]}).json()["answers"]
    expected = merged.sum(decaysketch.decay.exponential(half_life=900), now=NOW)
    assert answers[0]["estimate"]["value"] == expected.value


def test_a_stream_samples_by_two_objectives(client: TestClient) -> None:
    fields = {"max_weight": 1 << 20, "id_bits": 30, "capacity": 50, "objectives": "weight,count"}
    created = client.put("/v1/streams/s", json={"params": fields})
    assert created.status_code == 201, created.text
    params = SketchParams.from_dict(client.get("/v1/streams/s").json()["params"])
    assert params == SketchParams.from_dict(fields)
    sketches = [build(seed, params=params, first_id=1000 * seed) for seed in (1, 2)]
    for sketch in sketches:
        content = sketch.to_bytes(embed_params=False)
        posted = client.post(
            "/v1/streams/s/sketches", params={"source": "a"}, content=content, headers=OCTETS
        )
        assert posted.status_code == 200, posted.text
    whole = sketches[0] | sketches[1]
    assert client.get("/v1/streams/s/sketch").content == whole.to_bytes()
    query = {"aggregate": "count", "decay": "none", "now": NOW}
    answers = client.post("/v1/streams/s/query", json={"queries": [query]}).json()["answers"]
    found, expected = answers[0]["estimate"], whole.at("none", NOW).ask("count")
    assert [found[end] for end in ("value", "lower", "upper")] == [
        expected.value, expected.lower, expected.upper,
    ]  # fmt: skip
    other = client.put("/v1/streams/s", json={"params": fields | {"objectives": "weight"}})
    [error] = problem(other, 409, "stream-exists")["errors"]
    assert error["field"] == "params.objectives"
