"""Posting sketches: what is taken, what is refused, and that re-posting changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import NOW, OCTETS, PARAMS, build, posted, problem

import decaysketch
from decaysketch import DecaySketch, SketchParams


def post(
    client: TestClient, body: bytes, source: str = "a", headers: dict[str, str] = OCTETS
) -> Response:
    return client.post(
        "/v1/streams/s/sketches", params={"source": source}, content=body, headers=headers
    )


def everything(client: TestClient) -> tuple[object, ...]:
    """All that a refused post must leave as it was."""
    query = {
        "queries": [
            {"aggregate": aggregate, "decay": {"kind": "exponential", "half_life": 500}, "now": NOW}
            for aggregate in ("sum", "count", "mean")
        ]
    }
    return (
        client.get("/v1/streams").json(),
        client.get("/v1/streams/s").json(),
        client.get("/v1/streams/s/sketch").content,
        client.post("/v1/streams/s/query", json=query).json(),
    )


def test_a_post_is_folded_in(stream: TestClient) -> None:
    sketch = build(1)
    blob = sketch.to_bytes()
    answer = post(stream, blob).json()
    state = stream.get("/v1/streams/s").json()
    assert answer == {
        "stream": "s",
        "source": "a",
        "token": f"s:{state['incarnation']}:1",
        "sketches": [
            {"rows": len(sketch), "bytes": len(blob), "duplicate": False, "interval": None}
        ],
        "warnings": [],
    }
    assert (state["digest"], state["rows"]) == (sketch.digest(), len(sketch))
    assert (state["posts"], state["posted_bytes"]) == (1, len(blob))
    assert state["watermarks"] == list(sketch.stats().complete_since)
    (source,) = state["sources"]
    assert (source["source"], source["rows"], source["posts"]) == ("a", len(sketch), 1)
    assert stream.get("/v1/streams/s/sketch").content == blob


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("source=a", 200),
        ("source=%61", 200),
        ("source=a&odd=1", 200),
        ("odd=1&source=a", 200),
        ("source=a&first=1&next=9", 200),
        ("source=a&%66irst=1&next=9", 200),
        ("source=a&first=1", 422),
        ("source=a&next=x", 422),
        ("source=a&source=", 422),
        ("source=", 422),
        ("odd=a", 422),
    ],
)
def test_parameters_mean_the_same_however_they_are_written(
    stream: TestClient, query: str, status: int
) -> None:
    """What is plain goes another way than what has to be looked at."""
    media = {"content-type": "application/octet-stream"}
    url = "/v1/streams/s/sketches"
    answer = stream.post(f"{url}?{query}", content=build(1).to_bytes(), headers=media)
    assert answer.status_code == status, answer.text
    if status == 200:
        interval = {"first": 1, "next": 9} if "next" in query else None
        assert answer.json()["source"] == "a"
        assert answer.json()["sketches"][0]["interval"] == interval
    url = "/v1/streams/-/sketches"  # no name of a stream
    assert stream.post(f"{url}?{query}", content=b"", headers=media).status_code == 422


def test_the_same_bytes_again_change_nothing(stream: TestClient) -> None:
    blob = build(1).to_bytes()
    post(stream, blob)
    before = everything(stream)
    assert posted(post(stream, blob))["duplicate"] is True
    assert everything(stream) == before


def test_what_was_there_already_changes_nothing_but_is_journaled(stream: TestClient) -> None:
    first, second = build(1), build(2)
    post(stream, (first | second).to_bytes())
    before = everything(stream)
    assert posted(post(stream, first.to_bytes()))["duplicate"] is False
    assert everything(stream)[2:] == before[2:]
    assert stream.get("/v1/streams/s").json()["posts"] == 2


def test_a_stream_is_the_join_of_its_sources(stream: TestClient) -> None:
    sketches = {name: build(seed, first_id=100 * seed) for seed, name in enumerate("abc")}
    for name, sketch in sketches.items():
        post(stream, sketch.to_bytes(), name)
    join = decaysketch.merge(sketches.values())
    assert stream.get("/v1/streams/s/sketch").content == join.to_bytes()
    for name, sketch in sketches.items():
        one = stream.get("/v1/streams/s/sketch", params={"source": name})
        assert one.content == sketch.to_bytes()
    listed = stream.get("/v1/streams/s").json()["sources"]
    assert [each["source"] for each in listed] == ["a", "b", "c"]
    assert [each["digest"] for each in listed] == [each.digest() for each in sketches.values()]


def test_any_order_any_repetition_the_same_bytes_and_answers(
    start: Callable[..., TestClient], data: object
) -> None:
    posts = [
        (name, build(10 * k + ord(name), 150, first_id=70 * k)) for k in range(6) for name in "ab"
    ]
    blobs = [(name, sketch.to_bytes()) for name, sketch in posts]
    client = start()
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    for name, blob in blobs:
        post(client, blob, name)
    merged = everything(client)[2]
    assert merged == decaysketch.merge(sketch for _, sketch in posts).to_bytes()
    for seed in range(3):
        name = f"s{seed}"
        client.put(f"/v1/streams/{name}", json={"params": PARAMS.to_dict()})
        shuffled = blobs * 2
        random.Random(seed).shuffle(shuffled)
        for k, (source, blob) in enumerate(shuffled):
            client.post(
                f"/v1/streams/{name}/sketches",
                params={"source": source},
                content=blob,
                headers=OCTETS,
            )
            if k % 5 == seed:  # reading in between must not matter
                client.get(f"/v1/streams/{name}")
        assert client.get(f"/v1/streams/{name}/sketch").content == merged
    before = everything(client)
    for name, blob in random.Random(9).sample(blobs * 2, 24):
        assert posted(post(client, blob, name))["duplicate"] is True
    assert everything(client) == before


def test_many_posts_without_a_question(stream: TestClient) -> None:
    sketches = [build(seed, 20, first_id=15 * seed) for seed in range(70)]
    for sketch in sketches:
        post(stream, sketch.to_bytes())
    assert stream.get("/v1/streams/s/sketch").content == decaysketch.merge(sketches).to_bytes()


def test_parameters_by_fingerprint_are_enough(stream: TestClient) -> None:
    sketch = build(1)
    short = sketch.to_bytes(embed_params=False)
    assert len(short) < len(sketch.to_bytes())
    assert posted(post(stream, short))["duplicate"] is False
    assert stream.get("/v1/streams/s/sketch").content == sketch.to_bytes()


def test_an_empty_sketch_is_a_sketch(stream: TestClient) -> None:
    assert posted(post(stream, DecaySketch(PARAMS).to_bytes()))["rows"] == 0
    assert stream.get("/v1/streams/s").json()["rows"] == 0


def test_a_larger_capacity_is_taken_and_shrunk(stream: TestClient) -> None:
    large = build(1, 2_000, params=PARAMS.with_capacity(1_000))
    post(stream, large.to_bytes())
    small = build(1, 2_000)
    assert stream.get("/v1/streams/s/sketch").content == small.to_bytes()


# ------------------------------------------------------------------------------------- refusals


def test_a_smaller_capacity_is_refused(stream: TestClient) -> None:
    post(stream, build(1).to_bytes())
    before = everything(stream)
    tiny = build(2, params=PARAMS.with_capacity(10)).to_bytes()
    content = problem(post(stream, tiny), 409, "capacity-too-small")
    assert content["errors"] == [
        {
            "field": "capacity",
            "reason": "smaller than the stream's",
            "value": 10,
            "expected": 200,
        }
    ]
    assert "10" in content["detail"]
    assert "200" in content["detail"]
    assert everything(stream) == before


@pytest.mark.parametrize(
    ("changes", "embed"),
    [
        ({"seed": 1}, True),
        ({"time_unit": "ms", "max_weight": 100}, True),
        ({"value_type": "int64", "id_bits": 41}, True),
        ({"id_mix": "none"}, True),
        ({"id_key": bytes(16)}, True),
        ({"seed": 1}, False),
    ],
)
def test_other_parameters_are_refused_naming_every_field(
    stream: TestClient, changes: dict[str, Any], embed: bool
) -> None:
    post(stream, build(1).to_bytes())
    before = everything(stream)
    other = replace(PARAMS, **changes)
    sketch = DecaySketch(other)
    sketch.update([1, 2], 1, [NOW, NOW], [1, 2])
    content = problem(post(stream, sketch.to_bytes(embed_params=embed)), 409, "incompatible-sketch")
    named = {
        fault["field"]: (fault.get("expected"), fault.get("value")) for fault in content["errors"]
    }
    if embed:
        assert named == PARAMS.differences(other)
    else:
        assert named == {"fingerprint": (PARAMS.fingerprint.hex(), other.fingerprint.hex())}
    assert everything(stream) == before


def test_damaged_bytes_are_refused(stream: TestClient) -> None:
    post(stream, build(1).to_bytes())
    before = everything(stream)
    blob = build(2, 60).to_bytes()
    damaged = [blob[:cut] for cut in (0, 1, 4, 5, 19, 20, len(blob) // 2, len(blob) - 1)]
    draw = random.Random(4)
    for _ in range(60):
        flipped = bytearray(blob)
        bit = draw.randrange(8 * len(blob))
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    damaged += [blob + b"\0", b"\0" * 100, b"{}", blob * 2]
    for body in damaged:
        problem(post(stream, body), 422, "corrupt-sketch")
    assert everything(stream) == before


def test_another_wire_version_is_named(stream: TestClient) -> None:
    blob = bytearray(build(1).to_bytes())
    blob[4] = 9
    detail = problem(post(stream, bytes(blob)), 422, "corrupt-sketch")["detail"]
    assert "version 9" in detail
    assert "version 1" in detail


@pytest.mark.parametrize(
    ("headers", "field", "given"),
    [
        ({"content-type": "application/json"}, "content-type", "application/json"),
        (
            {"content-type": "text/plain; charset=utf-8"},
            "content-type",
            "text/plain; charset=utf-8",
        ),
        ({}, "content-type", None),
    ],
)
def test_other_media_types_are_refused(
    stream: TestClient, headers: dict[str, str], field: str, given: str | None
) -> None:
    before = everything(stream)
    refused = post(stream, build(1).to_bytes(), headers=headers)
    (fault,) = problem(refused, 415, "unsupported-media-type")["errors"]
    assert (fault["field"], fault.get("value")) == (field, given)
    assert everything(stream) == before


def test_parameters_of_the_media_type_do_not_matter(stream: TestClient) -> None:
    headers = {"content-type": "Application/Octet-Stream; q=1", "content-encoding": "identity"}
    assert post(stream, build(1).to_bytes(), headers=headers).status_code == 200


@pytest.mark.parametrize("source", [None, "", "x" * 201, "a\nb", "a\x00", "\x7f"])
def test_sources_outside_their_domain(stream: TestClient, source: str | None) -> None:
    refused = stream.post(
        "/v1/streams/s/sketches",
        params={} if source is None else {"source": source},
        content=build(1).to_bytes(),
        headers=OCTETS,
    )
    (fault,) = problem(refused, 422, "invalid-request")["errors"]
    assert fault["field"] == "source"
    assert stream.get("/v1/streams/s").json()["sources"] == []


@pytest.mark.parametrize("source", ["x" * 200, "ble/aa:bb:cc", "Öffnung 7", "a&b=c", "'; drop--"])
def test_sources_may_be_any_text(stream: TestClient, source: str) -> None:
    sketch = build(1)
    assert post(stream, sketch.to_bytes(), source).json()["source"] == source
    one = stream.get("/v1/streams/s/sketch", params={"source": source})
    assert one.content == sketch.to_bytes()


def test_a_declared_length_beyond_the_limit(start: Callable[..., TestClient]) -> None:
    client = start(max_body_bytes=1_000)
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    before = everything(client)
    detail = problem(post(client, bytes(1_001)), 413)["detail"]
    assert "1000 bytes" in detail
    problem(post(client, bytes(1_000)), 422, "corrupt-sketch")
    problem(client.put("/v1/streams/t", json={"params": {"x": "y" * 1_000}}), 413)
    assert everything(client) == before


def test_a_body_without_a_length_is_counted(start: Callable[..., TestClient]) -> None:
    client = start(max_body_bytes=1_000)
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    blob = build(1, 60).to_bytes()
    assert len(blob) < 1_000
    for body, status in ((blob, 200), (bytes(1_001), 413)):
        chunks = (body[at : at + 100] for at in range(0, len(body), 100))
        response = client.post(
            "/v1/streams/s/sketches", params={"source": "a"}, content=chunks, headers=OCTETS
        )
        assert response.status_code == status


# ------------------------------------------------------------------------------------- download


def test_the_etag_is_the_digest(stream: TestClient) -> None:
    sketch = build(1)
    post(stream, sketch.to_bytes())
    response = stream.get("/v1/streams/s/sketch")
    etag = f'"{sketch.digest()}"'
    assert response.headers["etag"] == etag
    assert response.headers["content-type"] == "application/octet-stream"
    assert DecaySketch.from_bytes(response.content) == sketch
    for tag, status in ((etag, 304), (f'"x", W/{etag}', 304), ("*", 304), ('"x"', 200)):
        again = stream.get("/v1/streams/s/sketch", headers={"if-none-match": tag})
        assert (again.status_code, bool(again.content)) == (status, status == 200)
    post(stream, build(2, first_id=1_000).to_bytes())
    changed = stream.get("/v1/streams/s/sketch", headers={"if-none-match": etag})
    assert changed.status_code == 200


def test_an_unknown_source(stream: TestClient) -> None:
    post(stream, build(1).to_bytes(), "a")
    content = problem(
        stream.get("/v1/streams/s/sketch", params={"source": "b"}), 404, "unknown-source"
    )
    assert content["errors"] == [{"field": "source", "reason": "unknown source", "value": "b"}]


def test_posts_to_an_unknown_stream(client: TestClient) -> None:
    refused = client.post(
        "/v1/streams/s/sketches",
        params={"source": "a"},
        content=build(1).to_bytes(),
        headers=OCTETS,
    )
    problem(refused, 404, "unknown-stream")


def test_streams_do_not_mix(stream: TestClient) -> None:
    other = SketchParams(max_weight=99, capacity=300)
    stream.put("/v1/streams/t", json={"params": other.to_dict()})
    post(stream, build(1).to_bytes())
    assert stream.get("/v1/streams/t").json()["rows"] == 0
