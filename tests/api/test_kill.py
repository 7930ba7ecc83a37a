"""What was acknowledged is there: after kills, with a full disk, a database that is gone, and a
snapshot that is torn."""

from __future__ import annotations

import hashlib
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from databases import KINDS, Database, new_database, postgres_server
from fastapi.testclient import TestClient
from service import LOCAL, NOW, OCTETS, PARAMS, build, problem

import decaysketch
from api.app import create_app
from api.settings import Settings
from quality import kill

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]
QUERY = {"queries": [{"aggregate": "sum", "decay": {"kind": "none"}, "now": NOW}]}


def post(client: TestClient | httpx2.Client, seed: int, source: str = "a") -> httpx2.Response:
    return client.post(
        "/v1/streams/s/sketches",
        params={"source": source},
        content=build(seed, first_id=30 * seed).to_bytes(),
        headers=OCTETS,
    )


def create(client: TestClient | httpx2.Client) -> None:
    assert client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).status_code == 201


def merged(client: TestClient | httpx2.Client, token: str) -> bytes:
    found = client.get("/v1/streams/s/sketch", headers={"Decaysketch-After": token})
    assert found.status_code == 200
    content: bytes = found.content
    return content


def merge_of(seeds: range) -> bytes:
    return decaysketch.merge([build(seed, first_id=30 * seed) for seed in seeds]).to_bytes()


# ------------------------------------------------------------------------------------------- kills


@pytest.mark.parametrize(("kind", "workers"), [("sqlite", 1), ("postgresql", 2)])
def test_killed_under_load(kind: str, workers: int) -> None:
    if kind == "postgresql":
        postgres_server()  # or the test is skipped
    outcome = kill.run(2, kind, workers=workers, seed=3)
    assert outcome.rounds == 2
    assert outcome.posts > 8


def test_the_study_finds_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where it leaves what it found

    def lose(database: Database) -> None:
        database.execute("DELETE FROM snapshots")
        database.execute("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)")

    with pytest.raises(kill.LostPostError, match=r"stream '\w+' .*acknowledged"):
        kill.run(3, "sqlite", seed=5, while_down=lose)


# ------------------------------------------------------------------------------- a database's ills


@pytest.fixture
def serve() -> Iterator[Callable[[Database], TestClient]]:
    """Serve a database in this process; once more is a restart."""
    running: list[TestClient] = []

    def serve_one(database: Database) -> TestClient:
        while running:
            running.pop().__exit__()
        client = TestClient(create_app(Settings(data=database.url, poll_ms=20)), base_url=LOCAL)
        client.__enter__()
        running.append(client)
        return client

    yield serve_one
    while running:
        running.pop().__exit__()


def refused(response: httpx2.Response) -> None:
    problem(response, 503, "journal-unavailable")
    assert int(response.headers["retry-after"]) > 0


def test_a_full_disk(tmp_path: Path, server: Server) -> None:
    data = tmp_path / "aggregator.sqlite3"
    with server(data, real=True) as (process, client):
        create(client)
        token = post(client, 0).json()["token"]
        longest = max(path.stat().st_size for path in tmp_path.iterdir())
        unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (longest, unlimited[1]))
        for _ in range(2):
            refused(post(client, 1))
            assert merged(client, token) == merge_of(range(1))
            assert client.post("/v1/streams/s/query", json=QUERY).status_code == 200
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        token = post(client, 1).json()["token"]
        assert merged(client, token) == merge_of(range(2))
    with server(data, real=True) as (_, client):
        assert merged(client, token) == merge_of(range(2))


def test_a_file_that_another_program_holds(
    tmp_path: Path, serve: Callable[[Database], TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.journal.engines.LOCK_S", 0.3)
    client = serve(new_database("sqlite", tmp_path))
    create(client)
    token = post(client, 0).json()["token"]
    (path,) = tmp_path.glob("*.sqlite3")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        refused(post(client, 1))
        assert merged(client, token) == merge_of(range(1))
        holder.execute("ROLLBACK")
    assert merged(client, post(client, 1).json()["token"]) == merge_of(range(2))


def test_a_server_that_is_gone_for_a_while(
    tmp_path: Path, serve: Callable[[Database], TestClient]
) -> None:
    client = serve(new_database("postgresql", tmp_path))
    create(client)
    token = post(client, 0).json()["token"]
    postgres_server().stop()
    try:
        for _ in range(3):
            refused(post(client, 1))
            assert merged(client, token) == merge_of(range(1))
        assert client.get("/readyz").status_code == 503
    finally:
        postgres_server().start()
    assert merged(client, post(client, 1).json()["token"]) == merge_of(range(2))
    give_up = time.monotonic() + 1800
    while client.get("/readyz").status_code != 200:  # an answer is kept for a second
        assert time.monotonic() < give_up
        time.sleep(0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_torn_snapshot(
    kind: str,
    tmp_path: Path,
    serve: Callable[[Database], TestClient],
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = new_database(kind, tmp_path)
    client = serve(database)
    create(client)

    def post_and_compact(seeds: range) -> str:
        token = ""
        for seed in seeds:
            token = post(client, seed, "ab"[seed % 2]).json()["token"]
        assert client.portal is not None
        client.portal.call(client.app.state.aggregator.compact)
        return token

    for seeds in (range(6), range(6, 9), range(9, 12)):
        token = post_and_compact(seeds)
    assert merged(client, token) == merge_of(range(12))
    (newest,) = database.execute("SELECT max(generation), count(*) FROM snapshots WHERE source='a'")
    assert newest[1] == 2
    ((body,),) = database.execute(
        "SELECT body FROM snapshots WHERE source = 'a' AND generation = :newest",
        {"newest": newest[0]},
    )
    torn = bytes(body[: len(body) // 2]) + bytes(len(body) - len(body) // 2)
    client = serve(database)  # the last one is not to write a good one over it
    database.execute(
        "UPDATE snapshots SET body = :torn WHERE source = 'a' AND generation = :newest",
        {"torn": torn, "newest": newest[0]},
    )
    assert intact(database) == [False, True, True, True]
    client = serve(database)
    assert merged(client, token) == merge_of(range(12))
    assert "'a' has other bytes than were written" in caplog.text
    post_and_compact(range(12, 13))
    assert all(intact(database))
    client = serve(database)
    assert merged(client, token) == merge_of(range(13))


def intact(database: Database) -> list[bool]:
    found = database.execute("SELECT body, digest FROM snapshots")
    return sorted(hashlib.sha256(body).digest() == bytes(digest) for body, digest in found)
