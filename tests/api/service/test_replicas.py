"""Several processes over one database: each answers from what any of them has acknowledged."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import LOCAL, NOW, OCTETS, PARAMS, build, posted, problem

import decaysketch
from api.app import create_app
from api.service.follower import Follower
from api.settings import Settings
from decaysketch import DecaySketch

JSON = {"content-type": "application/json"}
SKETCHES = {"content-type": "application/vnd.decaysketch.sketches"}
Start = Callable[..., TestClient]


@pytest.fixture
def replicas(data: Path) -> Iterator[Start]:
    """Start one more aggregator over the data file."""
    with ExitStack() as running:

        def start(**settings: Any) -> TestClient:
            return running.enter_context(
                TestClient(create_app(Settings(data=str(data), **settings)), base_url=LOCAL)
            )

        yield start


def create(client: TestClient) -> None:
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})


def post(client: TestClient, body: bytes, source: str = "a", **options: Any) -> Any:
    options = {"params": {"source": source}, "headers": OCTETS} | options
    return client.post("/v1/streams/s/sketches", content=body, **options)


def merged(client: TestClient, token: str | None = None) -> bytes:
    headers = {} if token is None else {"Decaysketch-After": token}
    response = client.get("/v1/streams/s/sketch", headers=headers)
    assert response.status_code == 200, response.text
    return response.content


def test_what_one_acknowledged_another_answers(replicas: Start) -> None:
    one, other = replicas(), replicas()
    create(one)
    held = DecaySketch(PARAMS)
    for seed, client in enumerate([one, other, other, one, other]):
        sketch = build(seed, first_id=90 * seed)
        held.merge(sketch)
        token = post(client, sketch.to_bytes(), "ab"[seed % 2]).json()["token"]
        for reader in (one, other):
            assert merged(reader, token) == held.to_bytes()


def test_without_a_token_it_arrives_soon(replicas: Start) -> None:
    one, other = replicas(), replicas(poll_ms=50)
    create(one)
    sketch = build(1)
    post(one, sketch.to_bytes())
    deadline = time.monotonic() + 1800
    while other.get("/v1/streams/s").json()["digest"] != sketch.digest():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_query_waits_for_its_token_too(replicas: Start) -> None:
    one, other = replicas(), replicas(poll_ms=60_000)
    create(one)
    sketch = build(1)
    token = post(one, sketch.to_bytes()).json()["token"]
    query = {"aggregate": "count", "decay": {"kind": "none"}, "now": NOW}
    answer = other.post("/v1/streams/s/query", json={"queries": [query], "after": token}).json()
    expected = sketch.count(decaysketch.decay.none(), now=NOW)
    assert answer["answers"][0]["estimate"] == expected.to_dict()


def test_tokens_that_are_none(replicas: Start) -> None:
    client = replicas()
    create(client)
    token = post(client, build(1).to_bytes()).json()["token"]
    name, incarnation, number = token.split(":")

    def ask(token: str) -> Any:
        return client.get("/v1/streams/s/sketch", headers={"Decaysketch-After": token})

    for text in ("", "s", "s:1", f"s:{incarnation}:-1", f"s:{incarnation}:x", "s:" + "9" * 40):
        assert "token" in problem(ask(text), 422, "invalid-request")["detail"]
    assert "'nope'" in problem(ask(f"nope:{incarnation}:1"), 422, "invalid-request")["detail"]
    problem(ask(f"{name}:0123456789abcdef:{number}"), 409, "stale-token")


@pytest.mark.parametrize("beyond", [1, 10**17])
def test_a_token_that_no_post_has_is_refused_without_waiting(
    replicas: Start, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    client = replicas()
    create(client)
    token = post(client, build(1).to_bytes()).json()["token"]
    assert merged(client, token) == build(1).to_bytes()
    name, incarnation, number = token.split(":")
    impossible = f"{name}:{incarnation}:{int(number) + beyond}"

    async def waits(_follower: Any, _number: int) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(Follower, "reached", waits)
    query = {"aggregate": "count", "decay": {"kind": "none"}, "now": NOW}
    asked = [
        client.get("/v1/streams/s/sketch", headers={"Decaysketch-After": impossible}),
        client.post("/v1/streams/s/query", json={"queries": [query], "after": impossible}),
        client.post("/v1/query", json={"streams": ["s"], "queries": [query], "after": impossible}),
    ]
    for answer in asked:
        content = problem(answer, 409, "unknown-token")
        assert content["errors"][0]["expected"] == f"at most {number}"


def test_a_post_that_does_not_arrive_in_time(
    replicas: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = replicas(), replicas()
    create(one)
    token = post(one, build(1).to_bytes()).json()["token"]
    other.get("/v1/streams/s").raise_for_status()

    async def never(_follower: Any, _number: int) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(Follower, "reached", never)
    app: Any = other.app
    limits = app.state.aggregator._limits
    monkeypatch.setattr(app.state.aggregator, "_limits", replace(limits, wait_s=0.05))
    answer = other.get("/v1/streams/s/sketch", headers={"Decaysketch-After": token})
    problem(answer, 503, "not-caught-up")


def test_a_stream_made_anew_is_another_one(replicas: Start) -> None:
    one, other = replicas(), replicas()
    create(one)
    token = post(one, build(1).to_bytes()).json()["token"]
    assert merged(other, token) == build(1).to_bytes()
    first = other.get("/v1/streams/s").json()["incarnation"]
    assert other.delete("/v1/streams/s").status_code == 204
    problem(other.delete("/v1/streams/s"), 404, "unknown-stream")
    create(other)
    assert one.get("/v1/streams/s", headers={}).status_code == 200
    token = post(other, build(2).to_bytes()).json()["token"]
    for client in (one, other):
        assert merged(client, token) == build(2).to_bytes()
        assert client.get("/v1/streams/s").json()["incarnation"] != first


def test_a_post_to_a_stream_that_another_replica_deleted(replicas: Start) -> None:
    one, other = replicas(poll_ms=60_000), replicas(poll_ms=60_000)
    create(one)
    assert merged(other) == DecaySketch(PARAMS).to_bytes()
    one.delete("/v1/streams/s")
    assert "'s'" in problem(post(other, build(1).to_bytes()), 404, "unknown-stream")["detail"]


# ------------------------------------------------------------------------------------ revocation


def test_a_source_is_revoked_everywhere(replicas: Start) -> None:
    one, other = replicas(poll_ms=60_000), replicas(poll_ms=60_000)
    create(one)
    good, poison, later = (build(seed, first_id=100 * seed) for seed in range(3))
    tokens = [
        post(client, sketch.to_bytes(), source).json()["token"]
        for client, sketch, source in ((one, good, "a"), (other, poison, "gate/1 b"))
    ]
    assert merged(one, tokens[1]) == (good | poison).to_bytes()
    assert one.post("/v1/streams/s/sources/gate%2F1%20b/revoke", headers=JSON).status_code == 204
    assert merged(one) == good.to_bytes()
    assert one.get("/v1/streams/s").json()["revoked"] == ["gate/1 b"]
    # The other replica has not looked since; its next write finds out.
    refused = post(other, later.to_bytes(), "gate/1 b")
    assert "'gate/1 b'" in problem(refused, 403, "revoked-source")["detail"]
    assert merged(other) == good.to_bytes()
    problem(post(one, poison.to_bytes(), "gate/1 b"), 403, "revoked-source")
    # The same sketch from a source that is trusted is welcome.
    assert posted(post(other, poison.to_bytes(), "a"))["duplicate"] is False


def test_a_source_is_reinstated_empty(replicas: Start) -> None:
    one, other = replicas(poll_ms=60_000), replicas(poll_ms=60_000)
    create(one)
    problem(one.post("/v1/streams/s/sources/a/reinstate", headers=JSON), 404, "unknown-source")
    token = post(one, build(1).to_bytes()).json()["token"]
    assert merged(other, token) == build(1).to_bytes()
    for action in ("revoke", "reinstate"):
        done = one.post(f"/v1/streams/s/sources/a/{action}", headers=JSON)
        assert done.status_code == 204
    token = post(one, build(2).to_bytes()).json()["token"]
    # The other replica has seen neither, and holds what was dropped.
    for client in (other, one):
        assert merged(client, token) == build(2).to_bytes()
        assert client.get("/v1/streams/s").json()["posts"] == 1


def test_a_revocation_survives_compaction_and_restarts(replicas: Start) -> None:
    first = replicas(compact_rows=1)
    create(first)
    kept = [build(seed, 50, first_id=40 * seed) for seed in range(4)]
    for seed, sketch in enumerate(kept):
        post(first, sketch.to_bytes())
        post(first, build(50 + seed, 50).to_bytes(), "b")
    first.post("/v1/streams/s/sources/b/revoke", headers=JSON)
    expected = decaysketch.merge(kept).to_bytes()
    assert merged(first) == expected
    assert merged(replicas()) == expected


# ------------------------------------------------------------------------------------ compaction


def compact(client: TestClient) -> int:
    """Compact now; how many rows were deleted."""
    app: Any = client.app
    assert client.portal is not None
    deleted: int = client.portal.call(app.state.aggregator.compact)
    return deleted


def rows_of(data: Path, table: str) -> int:
    with sqlite3.connect(data) as database:
        (count,) = database.execute(f"select count(*) from {table}").fetchone()
    database.close()
    return int(count)


def test_compaction_changes_no_answer(replicas: Start, data: Path) -> None:
    one, other = replicas(), replicas(poll_ms=60_000)
    create(one)
    behind = replicas(poll_ms=60_000)
    sketches = [build(seed, 100, first_id=60 * seed) for seed in range(12)]
    held = DecaySketch(PARAMS)
    for seed, sketch in enumerate(sketches):
        held.merge(sketch)
        token = post((one, other)[seed % 2], sketch.to_bytes(), "ab"[seed % 2]).json()["token"]
        if seed in (3, 7):
            assert compact((one, other)[seed % 2]) >= 0
    assert compact(one) > 0  # what the snapshots of the last time hold
    assert compact(other) > 0  # and what these hold
    assert compact(one) == 0  # there is nothing left
    assert rows_of(data, "journal") == 0
    assert rows_of(data, "snapshots") == 4  # two of each source
    state = one.get("/v1/streams/s").json()
    assert (state["posts"], [each["posts"] for each in state["sources"]]) == (12, [6, 6])
    for client in (one, other, behind, replicas()):
        assert merged(client, token) == held.to_bytes()
        assert client.get("/v1/streams/s").json() == state


def test_a_torn_snapshot_loses_nothing(
    replicas: Start, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sketches = [build(seed, 100, first_id=60 * seed) for seed in range(9)]
    held = decaysketch.merge(sketches)
    with ExitStack() as running:
        client = running.enter_context(
            TestClient(create_app(Settings(data=str(data))), base_url=LOCAL)
        )
        create(client)
        for seed, sketch in enumerate(sketches):
            post(client, sketch.to_bytes())
            if seed % 3 == 2:
                compact(client)
        state = client.get("/v1/streams/s").json()
    with sqlite3.connect(data) as database:
        database.execute(
            "update snapshots set body = zeroblob(length(body)) "
            "where generation = (select max(generation) from snapshots)"
        )
    database.close()
    client = replicas()
    assert "snapshot 3 of stream 's', source 'a' has other bytes than were written" in caplog.text
    assert merged(client) == held.to_bytes()
    assert client.get("/v1/streams/s").json() == state
    for _ in range(3):
        compact(client)
    caplog.clear()
    assert merged(replicas()) == held.to_bytes()
    assert "other bytes than were written" not in caplog.text


# -------------------------------------------------------------------------------- many in one body


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(body)) + body for body in bodies)


def test_many_sketches_in_one_body(replicas: Start) -> None:
    client = replicas()
    create(client)
    sketches = [build(seed, 50, first_id=30 * seed) for seed in range(20)]
    bodies = [sketch.to_bytes() for sketch in sketches]
    random.Random(1).shuffle(bodies)
    answer = post(client, framed(*bodies, bodies[0]), headers=SKETCHES).json()
    assert [each["duplicate"] for each in answer["sketches"]] == [False] * 20 + [True]
    assert [each["bytes"] for each in answer["sketches"]] == [*map(len, bodies), len(bodies[0])]
    assert merged(client, answer["token"]) == decaysketch.merge(sketches).to_bytes()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "no sketch"),
        (b"\x05\0\0\0ab", "sketch 0 of the body ends at byte 9; the body ends at 6"),
        (b"\xff\xff\xff\xff", "ends at byte 4294967299"),
        (b"\x01", "ends at byte 5"),
    ],
)
def test_bodies_that_hold_no_sketches(replicas: Start, body: bytes, named: str) -> None:
    client = replicas()
    create(client)
    refused = post(client, body, headers=SKETCHES)
    assert named in problem(refused, 422, "invalid-request")["detail"]


def test_one_damaged_sketch_refuses_the_body(replicas: Start) -> None:
    client = replicas()
    create(client)
    good = build(1).to_bytes()
    refused = post(client, framed(good, good[:-1]), headers=SKETCHES)
    problem(refused, 422, "corrupt-sketch")
    assert client.get("/v1/streams/s").json()["posts"] == 0


def test_an_interval_is_of_one_sketch(replicas: Start) -> None:
    client = replicas()
    create(client)
    body = framed(build(1).to_bytes(), build(2).to_bytes())
    params = {"source": "a", "first": 0, "next": 2}
    refused = post(client, body, headers=SKETCHES, params=params)
    assert "several" in problem(refused, 422, "invalid-request")["detail"]


# -------------------------------------------------------------------------------- too much at once


def test_a_full_queue_says_when_to_come_again(replicas: Start, data: Path) -> None:
    client = replicas(queue_posts=1)
    create(client)
    bodies = [build(seed).to_bytes() for seed in (1, 2)]
    with ThreadPoolExecutor() as senders:
        with closing(sqlite3.connect(data)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            sent = [senders.submit(post, client, body) for body in bodies]
            answered, waiting = wait(sent, return_when=FIRST_COMPLETED)
            ((refused,), (taken,)) = answered, waiting
        assert posted(taken.result())["duplicate"] is False
    problem(refused.result(), 429, "busy")
    assert refused.result().headers["retry-after"] == "1"
    again = post(client, bodies[sent.index(refused)])
    assert posted(again)["duplicate"] is False


def test_who_is_told_to_stop_takes_nothing_more(replicas: Start) -> None:
    client = replicas()
    create(client)
    app: Any = client.app
    app.state.aggregator.stop()
    problem(post(client, build(1).to_bytes()), 503, "stopping")
    assert client.get("/readyz").status_code == 503
