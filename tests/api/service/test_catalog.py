"""A change of one stream costs the same, however many others there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import NOW, PARAMS

from api.journal import changes, sql
from api.service.aggregator import Aggregator, Limits
from api.service.streams import Streams

pytestmark = pytest.mark.usefixtures("data")  # a new aggregator for each test

FORM = {"params": PARAMS.to_dict()}
Start = Callable[..., TestClient]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the streams whose rows were read from the database."""
    seen: list[str] = []
    of_row = sql._stream

    def counted(row: Any) -> Any:
        seen.append(row.name)
        return of_row(row)

    monkeypatch.setattr(sql, "_stream", counted)
    return seen


def post(client: TestClient, name: str, source: str = "a") -> None:
    body = {"observations": [{"value": 1, "time": NOW, "id": 1}]}
    answer = client.post(f"/v1/streams/{name}/observations?source={source}", json=body)
    assert answer.status_code == 200, answer.text


def test_a_change_reads_its_own_stream_alone(client: TestClient, read: list[str]) -> None:
    for number in range(60):
        assert client.put(f"/v1/streams/s{number}", json=FORM).status_code == 201
    assert len(read) < 60 * 4
    post(client, "s7")
    read.clear()
    assert client.put("/v1/streams/one-more", json=FORM).status_code == 201
    json: Any = {"content-type": "application/json"}
    assert client.post("/v1/streams/s7/sources/a/revoke", headers=json).status_code == 204
    assert client.get("/v1/streams/s7").json()["revoked"] == ["a"]
    assert client.post("/v1/streams/s7/sources/a/reinstate", headers=json).status_code == 204
    assert client.delete("/v1/streams/s9").status_code == 204
    assert client.get("/v1/streams/s9").status_code == 404
    assert set(read) <= {"one-more", "s7", "s9"}
    assert len(client.get("/v1/streams?limit=1000").json()["streams"]) == 60


@pytest.mark.parametrize("kept", [1000, 2])
def test_another_process_sees_every_change(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is further behind than changes are kept."""
    monkeypatch.setattr(changes, "KEPT", kept)

    async def scenario() -> None:
        url = f"sqlite:///{tmp_path / 'a.sqlite3'}"
        limits = Limits(poll_s=3600.0, compact_every_s=3600.0, replacing_every_s=None)
        here, there = [
            Aggregator(await sql.SqlStorage.open(url), _at_once, limits=limits) for _ in range(2)
        ]
        form = {"family": "decay", "params": PARAMS.to_dict()}
        await here.catalog.create("first", form)
        await there.start()
        await here.start()
        for name in ("b", "a", "c"):
            await here.catalog.create(name, form)
        await here.catalog.delete("b")
        await here.catalog.revoke("a", "x")
        await here.catalog.create("b", form)
        assert (await there.find("b")).row.incarnation == here.stream("b").row.incarnation
        assert [each.name for each in there.streams()] == ["a", "b", "c", "first"]
        assert there.stream("a").revoked == ["x"]
        await here.catalog.delete("first")
        await there.catalog.create("d", form)
        assert [each.name for each in there.streams()] == ["a", "b", "c", "d"]
        await asyncio.gather(here.close(), there.close())

    asyncio.run(scenario())


async def _at_once(function: Any, /, *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def test_streams_of_a_scope_follow_each_change(client: TestClient) -> None:
    for name in ("a-1", "b-1", "a-2"):
        assert client.put(f"/v1/streams/{name}", json=FORM).status_code == 201
    streams: Streams = client.app.state.aggregator._streams  # type: ignore[attr-defined]
    asked: list[str] = []

    def sees(name: str) -> bool:
        asked.append(name)
        return name.startswith("a")

    caller: Any = SimpleNamespace(scope=("a*",), sees=sees, prefix="k")
    assert sorted(each.name for each in streams.in_scope(caller)) == ["a-1", "a-2"]
    asked.clear()
    client.put("/v1/streams/a-3", json=FORM)
    client.delete("/v1/streams/a-1")
    assert sorted(each.name for each in streams.in_scope(caller)) == ["a-2", "a-3"]
    assert asked == ["a-3"]
    assert [each.name for each in streams.named_after("a-2")] == ["a-3", "b-1"]
    assert [each.name for each in streams.named_after("", caller)] == ["a-2", "a-3"]
    assert [each.name for each in streams.named_after("a-2", caller)] == ["a-3"]


def test_counts_of_all_streams_are_sums_after_each_change(start: Start) -> None:
    """They are kept and not summed, so that their cost does not depend on the streams."""
    client = start()
    aggregator: Any = client.app.state.aggregator  # type: ignore[attr-defined]
    streams: Streams = aggregator._streams
    caller: Any = SimpleNamespace(scope=("a*",), sees=lambda name: name.startswith("a"))
    json: Any = {"content-type": "application/json"}

    def check() -> None:
        every = list(streams)
        seen = [each for each in every if caller.sees(each.name)]
        assert aggregator.stream_count == len(every)
        assert aggregator.source_count == sum(each.source_count for each in every)
        assert streams.rows_in_scope(caller) == sum(each.rows for each in seen)
        assert aggregator.last_received_us >= max(each.last_received_us for each in every)
        for each in every:
            assert each.source_names_after("") == sorted(each.source_names)
            rest = [name for name in sorted(each.source_names) if name > "x"]
            assert each.source_names_after("x", 1) == rest[:1]

    for name in ("a-1", "b", "a-2"):
        client.put(f"/v1/streams/{name}", json=FORM)
        for source in "yxz":
            post(client, name, source)
            check()
    client.post("/v1/streams/a-1/sources/y/revoke", headers=json)
    check()
    client.delete("/v1/streams/b")
    check()
    client.delete("/v1/streams/a-1")
    check()
    assert (aggregator.stream_count, aggregator.source_count) == (1, 3)
    for number in range(300):  # more scopes than are kept
        streams.rows_in_scope(SimpleNamespace(scope=(str(number),), sees=lambda _: True))  # type: ignore[arg-type]
    (stream,) = streams
    assert len(stream.tally._within) <= 1 + 256


def test_totals_are_those_of_all_sources(start: Start) -> None:
    client = start()
    client.put("/v1/streams/s", json=FORM)
    for source in "abc":
        post(client, "s", source)
    stream = client.app.state.aggregator.stream("s")  # type: ignore[attr-defined]
    client.portal.call(client.app.state.aggregator.compact)  # type: ignore[union-attr,attr-defined]
    json: Any = {"content-type": "application/json"}
    client.post("/v1/streams/s/sources/b/revoke", headers=json)
    before = stream.totals()
    assert (before.posts, before.rows) == (2, 2)
    again = start()
    assert again.app.state.aggregator.stream("s").totals() == before  # type: ignore[attr-defined]
