"""Answers that follow the stream: what is sent, when it ends, and how many may listen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from service import LOCAL, NOW, OCTETS, PARAMS, build, problem

from api.access import keys
from api.access.keys import Role, mint
from api.app import create_app
from api.http import server_sent
from api.queries import answering
from api.settings import Settings

SUM: dict[str, Any] = {"aggregate": "sum", "decay": {"kind": "window", "width": 600}, "now": NOW}
MOVING: dict[str, Any] = {"aggregate": "sum", "decay": {"kind": "none"}}
LIVE = "/v1/streams/s/live"
HANGS_S = 600  # only what hangs takes so long


def asked(*queries: Any, **fields: Any) -> str:
    return json.dumps({"queries": list(queries)} | fields)


class Listener:
    """One live connection to an application in this process."""

    def __init__(self, app: FastAPI, query: str, headers: dict[str, str] | None = None) -> None:
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": LIVE,
            "raw_path": LIVE.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.encode(), value.encode())
                for name, value in {"host": "127.0.0.1", **(headers or {})}.items()
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        self.app = app
        self.left = asyncio.Event()
        self.ended = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.started: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.blocks: asyncio.Queue[str | None] = asyncio.Queue()
        self._text = ""
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started.set_result(message)
            return
        await self.reads.wait()
        self._text += message.get("body", b"").decode()
        while "\n\n" in self._text:
            block, _, self._text = self._text.partition("\n\n")
            self.blocks.put_nowait(block)
        if not message.get("more_body"):
            self.blocks.put_nowait(None)

    async def run(self) -> None:
        await self.app(self.scope, self.receive, self.send)
        self.ended.set()

    async def block(self) -> str | None:
        """The next event or comment as it was sent; None at the end."""
        async with asyncio.timeout(HANGS_S):
            return await self.blocks.get()

    async def event(self) -> dict[str, str] | None:
        """The next event, by field; None at the end."""
        while (block := await self.block()) is not None:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if line[0] != ":")
            if "event" in fields:
                return fields
        return None

    async def silent(self) -> bool:
        """No event comes for more than three intervals."""
        try:
            async with asyncio.timeout(0.7):
                await self.event()
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def listening(
    app: FastAPI, request: str, interval_s: float = 0.2, **headers: str
) -> AsyncIterator[Listener]:
    query = str(httpx2.QueryParams({"request": request, "interval_s": interval_s}))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    listener = Listener(app, query, named)
    task = asyncio.create_task(listener.run())
    try:
        yield listener
    finally:
        listener.left.set()
        async with asyncio.timeout(HANGS_S):
            await task


@asynccontextmanager
async def aggregator(
    data: Path, **settings: Any
) -> AsyncIterator[tuple[FastAPI, httpx2.AsyncClient]]:
    app = create_app(Settings(data=str(data), **settings))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1"
        ) as client,
    ):
        created = await client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
        assert created.status_code == 201
        yield app, client


async def posted(client: httpx2.AsyncClient, seed: int) -> str:
    response = await client.post(
        "/v1/streams/s/sketches",
        params={"source": "a"},
        content=build(seed, first_id=1_000 * seed).to_bytes(),
        headers=OCTETS,
    )
    assert response.status_code == 200, response.text
    token: str = response.json()["token"]
    return token


@pytest.fixture
def play(data: Path) -> Callable[..., None]:
    """Run a scene with an application and a client of it."""

    def play_it(
        scene: Callable[[FastAPI, httpx2.AsyncClient], Awaitable[None]], **settings: Any
    ) -> None:
        async def whole() -> None:
            async with asyncio.timeout(HANGS_S), aggregator(data, **settings) as (app, client):
                await scene(app, client)

        asyncio.run(whole())

    return play_it


def test_the_first_answer_is_that_of_a_query(play: Callable[..., None]) -> None:
    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        await posted(client, 1)
        request = {"queries": [SUM, SUM | {"aggregate": "quantile", "q": [0.5]}]}
        expected = await client.post("/v1/streams/s/query", json=request)
        async with listening(app, json.dumps(request)) as listener:
            start = await listener.started
            headers = {name.decode(): value.decode() for name, value in start["headers"]}
            assert start["status"] == 200
            assert headers["content-type"] == "text/event-stream; charset=utf-8"
            assert headers["cache-control"] == "no-store"
            assert await listener.block() == "retry: 3000"
            event = await listener.event()
            assert event is not None
            assert event["event"] == "answer"
            assert event["id"] == expected.headers["etag"]
            assert event["data"] == expected.text

    play(scene)


def test_an_answer_is_sent_when_it_is_another(play: Callable[..., None]) -> None:
    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        await posted(client, 1)
        async with listening(app, asked(SUM)) as listener:
            first = await listener.event()
            assert await listener.silent()
            await posted(client, 1)  # changes nothing
            assert await listener.silent()
            token = await posted(client, 2)
            second = await listener.event()
            body = {"queries": [SUM], "after": token}
            expected = await client.post("/v1/streams/s/query", json=body)
            assert first is not None
            assert second is not None
            assert first["id"] != second["id"] == expected.headers["etag"]
            assert second["data"] == expected.text

    play(scene)


def test_without_now_it_follows_the_clock(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: Iterator[int] = iter(range(5 * 10**9, 10**12, 10**9))
    monkeypatch.setattr(answering, "now_ns", lambda: next(ticks))

    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(MOVING, SUM)) as listener:
            for second in range(5, 9):
                event = await listener.event()
                assert event is not None
                moving, fixed = json.loads(event["data"])["answers"]
                assert (moving["now"], fixed["now"]) == (second, NOW)

    play(scene)


def test_who_has_the_answers_is_not_sent_them_again(play: Callable[..., None]) -> None:
    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        await posted(client, 1)
        known = (await client.post("/v1/streams/s/query", json={"queries": [SUM]})).headers["etag"]
        async with listening(app, asked(SUM), last_event_id=known) as listener:
            assert await listener.block() == "retry: 3000"
            assert await listener.silent()
            await posted(client, 2)
            event = await listener.event()
            assert event is not None
            assert event["id"] != known

    play(scene)


def test_comments_show_that_it_lives(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent, "BEAT_S", 0.05)

    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(SUM), interval_s=3600) as listener:
            await listener.event()
            assert [await listener.block() for _ in range(3)] == [":", ":", ":"]

    play(scene)


def test_it_ends_when_the_server_stops(play: Callable[..., None]) -> None:
    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(SUM), interval_s=3600) as listener:
            await listener.event()
            app.state.closing.set()
            assert await listener.block() is None

    play(scene)


def test_it_ends_after_a_while(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent, "LIFETIME_S", 0.3)

    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(SUM)) as listener:
            await listener.event()
            assert await listener.event() is None

    play(scene)


def test_it_says_why_there_are_no_more(play: Callable[..., None]) -> None:
    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(SUM)) as listener:
            await listener.event()
            assert (await client.delete("/v1/streams/s")).status_code < 300
            event = await listener.event()
            assert event is not None
            assert event["event"] == "problem"
            assert "id" not in event
            content = json.loads(event["data"])
            assert (content["status"], content["type"]) == (
                404,
                "urn:decaysketch:problem:unknown-stream",
            )
            assert await listener.event() is None

    play(scene)


def test_places_are_bounded_and_given_back(play: Callable[..., None]) -> None:
    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(SUM)) as first, listening(app, asked(SUM)) as second:
            await first.event()
            await second.event()
            refused = await client.get(LIVE, params={"request": asked(SUM)})
            problem(refused, 429)
            assert refused.headers["retry-after"] == "3"
            assert app.state.live_places.taken == 2
        assert app.state.live_places.taken == 0
        for _ in range(3):
            bad = await client.get(LIVE, params={"request": asked(SUM | {"now": 1.5})})
            problem(bad, 422, "invalid-request")
        assert app.state.live_places.taken == 0
        async with listening(app, asked(SUM)) as third:
            assert await third.event() is not None

    play(scene, live_clients=2)


def test_a_client_that_does_not_read_is_left(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent, "READER_S", 0.1)

    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(SUM)) as listener:
            listener.reads.clear()
            assert app.state.live_places.taken == 0
            await listener.started
            assert app.state.live_places.taken == 1
            async with asyncio.timeout(HANGS_S):
                await listener.ended.wait()
            assert app.state.live_places.taken == 0
            assert listener.blocks.empty()

    play(scene)


def test_live_clients_are_counted(play: Callable[..., None]) -> None:
    async def scene(app: FastAPI, client: httpx2.AsyncClient) -> None:
        async with listening(app, asked(SUM)) as listener:
            await listener.event()
            assert "decaysketch_live_clients 1.0" in (await client.get("/metrics")).text
        assert "decaysketch_live_clients 0.0" in (await client.get("/metrics")).text

    play(scene)


# -------------------------------------------------------------------------------------------- keys


@asynccontextmanager
async def guarded(
    data: Path, **settings: Any
) -> AsyncIterator[tuple[FastAPI, httpx2.AsyncClient, Callable[..., Awaitable[tuple[str, str]]]]]:
    """An application that asks for keys, a client with one, and how to mint others."""
    app = create_app(Settings(data=str(data), auth="keys", **settings))
    async with app.router.lifespan_context(app):
        cache = app.state.keys

        async def minted(role: Role = Role.READ, life_s: float = 3600) -> tuple[str, str]:
            now = time.time_ns() // 1000
            row, token = mint(
                role=role, scope=["*"], now_us=now, expires_us=now + int(life_s * 1e6)
            )
            await cache.store.put(row)
            await cache.reload()
            return row.prefix, f"Bearer {token}"

        _, token = await minted(Role.ADMIN)
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app),
            base_url=LOCAL,
            headers={"Authorization": token},
        ) as client:
            created = await client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
            assert created.status_code == 201
            yield app, client, minted


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_it_ends_with_the_key(data: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with asyncio.timeout(HANGS_S), guarded(data) as (app, client, minted):
            prefix, token = await minted(life_s=3600)
            _, other = await minted(life_s=10**6)
            async with (
                listening(app, asked(SUM), authorization=token) as listener,
                listening(app, asked(SUM), authorization=other) as lasting,
            ):
                assert (await listener.event() or {})["event"] == "answer"
                assert (await lasting.event() or {})["event"] == "answer"
                if how == "revoked":
                    assert (await client.delete(f"/v1/keys/{prefix}")).status_code < 300
                else:
                    now_us = keys.now_us() + 3600 * 10**6
                    monkeypatch.setattr(keys, "now_us", lambda: now_us)
                event = await listener.event()
                assert event is not None
                assert event["event"] == "problem"
                assert json.loads(event["data"])["status"] == 401
                assert await listener.event() is None
                assert await lasting.silent()

    asyncio.run(scene())


def test_one_key_has_a_quarter_of_the_places(data: Path) -> None:
    async def scene() -> None:
        async with asyncio.timeout(HANGS_S), guarded(data, live_clients=8) as (app, client, minted):
            (_, greedy), (_, modest) = await minted(), await minted()
            async with (
                listening(app, asked(SUM), authorization=greedy) as first,
                listening(app, asked(SUM), authorization=greedy) as second,
            ):
                await first.event()
                await second.event()
                headers = {"Authorization": greedy}
                refused = await client.get(LIVE, params={"request": asked(SUM)}, headers=headers)
                assert "2 live connections of this key" in problem(refused, 429)["detail"]
                async with listening(app, asked(SUM), authorization=modest) as third:
                    assert await third.event() is not None
            assert not app.state.live_places.taken_by
            async with listening(app, asked(SUM), authorization=greedy) as again:
                assert await again.event() is not None

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("query", "field", "named"),
    [
        ({}, "request", "missing"),
        ({"request": "{"}, "body", "not JSON"),
        ({"request": asked()}, "queries", "at least 1"),
        ({"request": asked(SUM | {"decay": None})}, "queries[0].decay", "missing"),
        ({"request": asked(SUM), "interval_s": 0.1}, "interval_s", "or equal to 0.2"),
        ({"request": asked(SUM), "interval_s": 3601}, "interval_s", "or equal to 3600"),
        ({"request": asked(SUM), "interval_s": "nan"}, "interval_s", "3600"),
        ({"request": asked(SUM), "interval_s": "often"}, "interval_s", "valid number"),
    ],
)
def test_what_is_refused_before_it_begins(
    stream: TestClient, query: dict[str, Any], field: str, named: str
) -> None:
    (fault,) = problem(stream.get(LIVE, params=query), 422, "invalid-request")["errors"]
    assert fault["field"] == field
    assert named in fault["reason"]


def test_an_unknown_stream(client: TestClient) -> None:
    refused = client.get("/v1/streams/nope/live", params={"request": asked(SUM)})
    problem(refused, 404, "unknown-stream")


def test_over_a_real_connection(
    server: Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]], data: Path
) -> None:
    """The client leaves, and its place is free again; the process is told to stop, and it does."""
    with server(data) as (process, client):
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
        query = {"request": asked(SUM), "interval_s": "0.2"}
        for _ in range(2):
            with client.stream("GET", LIVE, params=query) as response:
                lines = response.iter_lines()
                assert response.status_code == 200
                assert next(line for line in lines if line.startswith("event:")) == "event: answer"
        with client.stream("GET", LIVE, params=query | {"interval_s": "3600"}) as response:
            lines = response.iter_lines()
            next(line for line in lines if line.startswith("event:"))
            process.terminate()
            list(lines)
            process.wait(timeout=HANGS_S)  # of the 3600 s until the next event
