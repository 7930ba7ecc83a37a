"""Several streams asked as one: the answers are those of their join."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import NOW, OCTETS, PARAMS, build, problem

import decaysketch
from decaysketch import DecaySketch, decay

SUM: dict[str, Any] = {"aggregate": "sum", "decay": {"kind": "window", "width": 3_000}, "now": NOW}


def create(client: TestClient, name: str, **fields: Any) -> None:
    created = client.put(f"/v1/streams/{name}", json={"params": PARAMS.to_dict()} | fields)
    assert created.status_code == 201, created.text


def posted(client: TestClient, name: str, sketch: Any, source: str = "a") -> None:
    response = client.post(
        f"/v1/streams/{name}/sketches",
        params={"source": source},
        content=sketch.to_bytes(),
        headers=OCTETS,
    )
    assert response.status_code == 200, response.text


def ask(client: TestClient, streams: Any, *queries: dict[str, Any], **fields: Any) -> Response:
    return client.post("/v1/query", json={"streams": streams, "queries": queries} | fields)


@pytest.fixture
def sketches(client: TestClient) -> dict[str, DecaySketch]:
    """Of the streams x, y and z; what came to x and what came to y overlap."""
    built = {name: build(1, 600, first_id=300 * k) for k, name in enumerate("xyz")}
    built["y"] = built["y"] | build(1, 600)
    for name, sketch in built.items():
        create(client, name)
        posted(client, name, sketch)
    return built


@pytest.mark.parametrize("names", ["x", "xy", "yx", "xyz", "xxz"])
def test_they_answer_as_one(
    client: TestClient, sketches: dict[str, DecaySketch], names: str
) -> None:
    merged = decaysketch.merge([sketches[name] for name in set(names)])
    quantile = {"aggregate": "quantile", "q": [0.1, 0.9], "decay": {"kind": "none"}, "now": NOW}
    for _ in range(2):
        response = ask(client, list(names), SUM, quantile | {"confidence": 0.8})
        assert response.status_code == 200, response.text
        content = response.json()
        assert content.keys() == {"streams", "digest", "answers", "warnings"}
        assert content["streams"] == list(names)
        assert content["digest"] == merged.digest()
        total, quantiles = content["answers"]
        assert total["estimate"] == merged.sum(decay.window(3_000), now=NOW).to_dict()
        expected = merged.quantile([0.1, 0.9], decay.none(), now=NOW, confidence=0.8)
        assert [q["estimate"] for q in quantiles["quantiles"]] == [e.to_dict() for e in expected]


def test_what_was_sent_to_several_counts_once(client: TestClient) -> None:
    sketch = build(5)
    for name in "xy":
        create(client, name)
        posted(client, name, sketch)
    (group,) = ask(client, ["x", "y"], SUM).json()["answers"]
    (alone,) = client.post("/v1/streams/x/query", json={"queries": [SUM]}).json()["answers"]
    assert group == alone


def test_a_later_post_is_seen(client: TestClient, sketches: dict[str, DecaySketch]) -> None:
    before = ask(client, ["x", "y"], SUM)
    late = build(9, 50, first_id=5_000)
    posted(client, "y", late)
    after = ask(client, ["x", "y"], SUM)
    assert after.json()["digest"] == (sketches["x"] | sketches["y"] | late).digest()
    assert before.headers["etag"] != after.headers["etag"]


def test_more_joins_than_are_kept(
    client: TestClient, sketches: dict[str, DecaySketch], monkeypatch: pytest.MonkeyPatch
) -> None:
    from api.queries.sources import Joins
    from api.service.streams import Stream

    joins = Joins(2)
    streams: dict[str, Stream] = {
        name: client.app.state.aggregator.stream(name)  # type: ignore[attr-defined]
        for name in "xyz"
    }
    for _ in range(2):
        for names in ("xy", "xz", "yz"):
            held = joins.snapshot([streams[name] for name in names], None)
            assert held.digest == (sketches[names[0]] | sketches[names[1]]).digest()
    again = joins.snapshot([streams["z"], streams["y"]], None)
    assert again is joins.snapshot([streams["y"], streams["z"]], None)


def test_only_some_sources(client: TestClient, sketches: dict[str, DecaySketch]) -> None:
    late = {name: build(k, 50, first_id=9_000 + 100 * k) for k, name in enumerate("xy")}
    for name, sketch in late.items():
        posted(client, name, sketch, "b")
    content = ask(client, ["x", "y"], SUM, sources=["b"]).json()
    assert content["digest"] == (late["x"] | late["y"]).digest()
    refused = ask(client, ["x", "z"], SUM, sources=["b"])
    problem(refused, 404, "unknown-source")


def test_the_smallest_capacity_is_in_force(client: TestClient) -> None:
    sketches = {}
    for name, capacity in (("x", 200), ("y", 50)):
        params = replace(PARAMS, capacity=capacity)
        create(client, name, params=params.to_dict())
        sketches[name] = build(3, 900, params=params)
        posted(client, name, sketches[name])
    for names in (["x", "y"], ["y", "x"]):
        assert ask(client, names, SUM).json()["digest"] == (sketches["x"] | sketches["y"]).digest()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"params": replace(PARAMS, seed=1).to_dict()}, {"seed": (PARAMS.seed, 1)}),
        (
            {"params": replace(PARAMS, max_weight=7, id_bits=30).to_dict()},
            {"max_weight": (99, 7), "id_bits": (40, 30)},
        ),
        (
            {"family": "sum", "params": {"max_sum": 100, "capacity": 20}},
            {"family": ("decay", "sum")},
        ),
    ],
)
def test_streams_that_cannot_be_joined(
    client: TestClient, fields: dict[str, Any], named: dict[str, tuple[Any, Any]]
) -> None:
    create(client, "x")
    create(client, "y")
    create(client, "other", **fields)
    content = problem(ask(client, ["x", "y", "other"], SUM), 409, "incompatible-streams")
    faults = {fault["field"]: (fault["expected"], fault["value"]) for fault in content["errors"]}
    assert faults == named
    assert "'x' and 'other'" in content["detail"]
    for name, values in named.items():
        assert f"{name} is {values[0]!r} and {values[1]!r}" in content["detail"]


def test_fixed_decays_must_agree(client: TestClient) -> None:
    for name, width in (("x", 50), ("y", 60), ("z", 50)):
        fixed = {"kind": "window", "width": width}
        create(client, name, family="integral", params={"max_weight": 9}, decay=fixed)
    query = {"aggregate": "sum", "now": NOW}
    assert ask(client, ["x", "z"], query).status_code == 200
    (fault,) = problem(ask(client, ["x", "y"], query), 409, "incompatible-streams")["errors"]
    assert fault["field"] == "decay"


def test_malformed_groups(client: TestClient) -> None:
    create(client, "x")
    for streams, field in (
        ([], "streams"),
        ("x", "streams"),
        (None, "streams"),
        (["x", "no such name"], "streams[1]"),
        (["x", 7], "streams[1]"),
        (["x"] * 101, "streams"),
    ):
        fault = problem(ask(client, streams, SUM), 422, "invalid-request")["errors"][0]
        assert fault["field"] == field
    problem(ask(client, ["x", "nope"], SUM), 404, "unknown-stream")
    problem(client.post("/v1/query", json={"queries": [SUM]}), 422, "invalid-request")
    problem(ask(client, ["x"], {"aggregate": "mode"}), 422, "invalid-request")
    unsupported = {"family": "sum", "params": {"max_sum": 100, "capacity": 20}}
    create(client, "sums", **unsupported)
    refused = ask(client, ["sums"], SUM | {"aggregate": "mean"})
    assert "'sums'" in problem(refused, 422, "unsupported-aggregate")["detail"]


def test_series_of_groups(client: TestClient, sketches: dict[str, DecaySketch]) -> None:
    merged = sketches["x"] | sketches["y"]
    query = {"aggregate": "count", "decay": {"kind": "none"}, "times": [NOW - 100, NOW]}
    (series,) = ask(client, ["x", "y"], query).json()["answers"]
    expected = [merged.count(decay.none(), now=now) for now in (NOW - 100, NOW)]
    assert [point["estimate"] for point in series["points"]] == [e.to_dict() for e in expected]


def test_read_your_writes(client: TestClient, sketches: dict[str, DecaySketch]) -> None:
    response = client.post(
        "/v1/streams/y/sketches",
        params={"source": "b"},
        content=build(11, 20, first_id=7_000).to_bytes(),
        headers=OCTETS,
    )
    token = response.json()["token"]
    by_field = ask(client, ["x", "y"], SUM, after=token)
    body = {"streams": ["x", "y"], "queries": [SUM]}
    by_header = client.post("/v1/query", json=body, headers={"Decaysketch-After": token})
    assert by_field.status_code == by_header.status_code == 200
    assert (
        by_field.headers["etag"]
        == by_header.headers["etag"]
        == ask(client, ["x", "y"], SUM).headers["etag"]
    )
    for bad in ("", "y", "y:1", "y:x:1:2"):
        refused = ask(client, ["x"], SUM, after=bad)
        assert 400 <= refused.status_code < 500, bad
