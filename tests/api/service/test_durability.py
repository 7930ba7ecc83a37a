"""What was acknowledged is on disk: restarts, kills and a disk that fails."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from service import LOCAL, NOW, OCTETS, PARAMS, build, posted, problem

import decaysketch
from api.journal.log import StorageError
from api.service.follower import ReplayError

pytestmark = pytest.mark.usefixtures("data")  # a new aggregator for each test

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]
QUERY = {
    "queries": [
        {"aggregate": aggregate, "decay": decay, "now": NOW}
        for decay in ({"kind": "window", "width": 700}, {"kind": "exponential", "half_life": 90})
        for aggregate in ("sum", "count", "total", "mean")
    ]
}


def everything(client: TestClient | httpx2.Client, name: str = "s") -> tuple[Any, ...]:
    return (
        client.get("/v1/streams").json(),
        client.get(f"/v1/streams/{name}").json(),
        client.get(f"/v1/streams/{name}/sketch").content,
        client.post(f"/v1/streams/{name}/query", json=QUERY).json(),
    )


def post(client: TestClient | httpx2.Client, body: bytes, source: str = "a") -> httpx2.Response:
    return client.post(
        "/v1/streams/s/sketches", params={"source": source}, content=body, headers=OCTETS
    )


def test_a_restart_answers_the_same(start: Callable[..., TestClient]) -> None:
    client = start()
    for name in ("s", "t"):
        client.put(f"/v1/streams/{name}", json={"params": PARAMS.to_dict()})
    for seed in range(12):
        post(client, build(seed, first_id=30 * seed).to_bytes(), "abc"[seed % 3])
    before = everything(client)
    for _ in range(2):
        client = start()
        assert everything(client) == before
        assert posted(post(client, build(0).to_bytes(), "a"))["duplicate"] is True
        assert everything(client) == before


def test_a_long_journal_is_folded_in_parts(
    start: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    for seed in range(12):
        post(client, build(seed, first_id=30 * seed).to_bytes(), "abc"[seed % 3])
    before = everything(client)
    monkeypatch.setattr("api.service.follower._CHUNK_BYTES", 3_000)
    assert everything(start()) == before


def test_the_journal_holds_each_body_once(start: Callable[..., TestClient], data: Path) -> None:
    client = start()
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    blobs = [build(seed).to_bytes() for seed in range(3)]
    for source in ("a", "b", "a"):
        for blob in blobs:
            post(client, blob, source)
    with sqlite3.connect(data) as database:
        rows = database.execute("select source, body from journal order by seq").fetchall()
        modes = [database.execute(f"pragma {name}").fetchone() for name in ("journal_mode",)]
    database.close()
    assert rows == [(source, blob) for source in ("a", "b") for blob in blobs]
    assert modes == [("wal",)]


def test_nothing_is_acknowledged_or_folded_that_is_not_on_disk(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(stream, build(1).to_bytes())
    before = everything(stream)

    def fail(*_: Any) -> None:
        raise StorageError("a secret of the disk")

    with monkeypatch.context() as patch:
        patch.setattr("api.journal.sql._FileWriter.insert_rows", fail)
        refused = post(stream, build(2).to_bytes())
        patch.setattr("api.journal.sql._Writer.insert_stream", fail)
        no_stream = stream.put("/v1/streams/t", json={"params": PARAMS.to_dict()})
    for response in (refused, no_stream):
        detail = problem(response, 503, "journal-unavailable")["detail"]
        assert "secret" not in detail
        assert response.headers["retry-after"] == "1"
    assert everything(stream) == before
    assert posted(post(stream, build(2).to_bytes()))["duplicate"] is False


def test_an_error_of_our_own_says_nothing_of_the_inside(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.service.streams.Stream.decode_post", lambda *_: 1 / 0)
    quiet = TestClient(stream.app, base_url=LOCAL, raise_server_exceptions=False)
    quiet.portal = stream.portal  # the event loop of what commits
    refused = post(quiet, build(1).to_bytes())
    assert "division" not in problem(refused, 500)["detail"]


def test_an_unreadable_journal_entry_stops_the_start(
    start: Callable[..., TestClient], data: Path
) -> None:
    client = start()
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    post(client, build(1).to_bytes())
    client.__exit__()
    with sqlite3.connect(data) as database:
        database.execute("update journal set body = substr(body, 1, 40)")
    database.close()
    with pytest.raises(ReplayError, match=r"row 1 of the journal \(stream 's', source 'a'\)"):
        start()


def test_posts_from_many_threads(stream: TestClient) -> None:
    sketches = [build(seed, 100, first_id=60 * seed) for seed in range(24)]
    bodies = [sketch.to_bytes() for sketch in sketches]
    failures = []

    def sender(number: int) -> None:
        for k in range(len(bodies)):
            body = bodies[(k + 7 * number) % len(bodies)]
            if post(stream, body, "ab"[k % 2]).status_code != 200:
                failures.append(k)
            if k % 6 == 0 and stream.post("/v1/streams/s/query", json=QUERY).status_code != 200:
                failures.append(-k)

    threads = [threading.Thread(target=sender, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert stream.get("/v1/streams/s/sketch").content == decaysketch.merge(sketches).to_bytes()


# -------------------------------------------------------------------------------- a real process


def test_an_endless_body_is_answered_while_it_is_still_being_sent(
    data: Path, server: Server
) -> None:
    with server(data) as (_, client):
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
        answered = threading.Event()
        with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=30) as raw:
            raw.sendall(
                b"POST /v1/streams/s/sketches?source=a HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )

            def send() -> None:
                with suppress(OSError):
                    while not answered.is_set():
                        raw.sendall(b"10000\r\n" + bytes(0x10000) + b"\r\n")

            sender = threading.Thread(target=send)
            sender.start()
            answer = raw.recv(100)
            answered.set()
            sender.join()
        assert answer.startswith(b"HTTP/1.1 413")
        assert client.get("/v1/streams/s").json()["posts"] == 0


def test_a_start_that_cannot_be(
    start: Callable[..., TestClient], data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError):
        start()
    assert f"cannot start from {data}" in caplog.text
    assert "not a database" in caplog.text
