"""Monitors over HTTP: reports in headers, hostile ones too, and events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from service import LOCAL, OCTETS, PARAMS, build, problem

from api.access.keys import ANYONE
from api.app import create_app
from api.routes import monitors as routes
from api.settings import Settings
from decaysketch.ecm import ECMParams

SPEC: dict[str, Any] = {
    "kind": "threshold",
    "question": "count",
    "above": 5000,
    "decay": "exponential(half_life=30min)",
    "sites": ["a"],
}
POST = "/v1/streams/s/sketches"
HOSTILE = [
    ("1", ""),
    ("-1.2", ""),
    ("1.2.3", ""),
    ("9999999999999999.1", ""),
    ("1" * 100_000, ""),
    ("1.1", "m"),
    ("1.1", "m:1"),
    ("1.1", "m:1.1,,"),
    ("1.1", "m:1.1,m:1.2"),
    ("1.1", "m:1.9999999999999999"),
    ("1.1", "../m:1.1"),
    ("1.1", ",".join(f"m{number}:1.1" for number in range(33))),
    ("1.1", "m:1.1," * 20_000),
]


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[tuple[Any, httpx2.AsyncClient]]:
    app = create_app(Settings(data=str(data)))
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url=LOCAL) as client,
    ):
        created = await client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
        assert created.status_code == 201
        yield app, client


async def events(app: Any, source: str | None, name: str = "s") -> AsyncIterator[tuple[str, Any]]:
    """The events that a connection receives."""
    stream = app.state.aggregator.stream(name)
    request: Any = SimpleNamespace(app=app)
    async for text in routes._events(stream, request, ANYONE, app.state.monitors, source):
        fields = dict(
            line.split(": ", 1) for line in text.splitlines() if line[:1] not in ("", ":")
        )
        if "event" in fields:
            yield fields["event"], json.loads(fields["data"])


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_life_of_a_monitor(tmp_path: Path) -> None:
    async with serving(tmp_path / "data.sqlite3") as (app, client):
        path = "/v1/streams/s/monitors/m"
        made = await client.put(path, json=SPEC)
        assert (made.status_code, made.json()["state"]) == (201, "uncertain")
        assert made.json()["silent"] == ["a"]
        assert (await client.put(path, json=SPEC)).status_code == 200
        site, person = events(app, "a"), events(app, None)
        kind, data = await anext(site)
        assert (kind, data["epoch"]) == ("define", made.json()["epoch"])
        assert (await anext(person))[1]["reason"] == "silent"

        content = build(1).to_bytes()
        plain = await client.post(f"{POST}?source=a", content=content, headers=OCTETS)
        assert not {"grants", "gone"} & plain.json().keys()
        for inc_seq, held in HOSTILE:
            headers = OCTETS | {"Decaysketch-Site": inc_seq, "Decaysketch-Grants": held}
            refused = await client.post(f"{POST}?source=a", content=content, headers=headers)
            assert len(problem(refused, 422, "invalid-parameter")["detail"]) < 500
        headers = OCTETS | {"Decaysketch-Site": "1.1", "Decaysketch-Grants": "old:1.1"}
        answer = (await client.post(f"{POST}?source=a", content=content, headers=headers)).json()
        assert answer["gone"] == ["old"]
        other = await client.post(f"{POST}?source=b", content=content, headers=headers)
        assert other.json()["grants"] == []  # it is none of the sites
        (grant,) = answer["grants"]
        report = {"inc": 1, "seq": 2, "held": {"m": [grant["epoch"], grant["serial"]]}}
        reports = "/v1/streams/s/reports"
        renewed = await client.post(reports, params={"source": "a"}, json=report)
        assert renewed.json()["grants"][0]["serial"] > grant["serial"]
        for wrong in ({}, {"inc": 1, "seq": -1, "held": {}}, [], {**report, "more": 1}):
            refused = await client.post(reports, params={"source": "a"}, json=wrong)
            problem(refused, 422, "invalid-parameter")
        for wrong in ({"above": None}, {"question": "mode"}, {"within": 2}, {"sites": [1]}):
            problem(await client.put(path, json=SPEC | wrong), 422, "invalid-parameter")
        hook = await client.put(path, json=SPEC | {"webhook": "http://169.254.169.254/"})
        assert "webhook_origins" in problem(hook, 422, "invalid-request")["detail"]

        assert (await client.delete(path)).status_code == 204
        assert [kind async for kind, _ in _until(site, "gone")][-1] == "gone"
        assert [kind async for kind, _ in _until(person, "gone")][-1] == "gone"
        problem(await client.get(path), 404, "unknown-monitor")
        assert (await client.get("/v1/streams/s/monitors")).json() == {"monitors": []}
        await client.delete("/v1/streams/s")
        assert (await anext(site))[0] == "problem"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_follower_begins_with_the_present_functions(tmp_path: Path) -> None:
    async with serving(tmp_path / "data.sqlite3") as (app, client):
        params = ECMParams(width=20, depth=2, slots=8, key_bits=20, time_unit="s")
        form = {"family": "ecm", "params": params.to_dict()}
        await client.put("/v1/streams/keys", json=form)
        path, epochs = "/v1/streams/keys/functions/", {}
        for name, source in (("f", "a"), ("g", "b")):
            spec = {"kind": "self_join", "decay": "window(1h)", "theta": 0.2, "sites": [source]}
            epochs[name] = (await client.put(path + name, json=spec)).json()["epoch"]
        await app.state.functions.look()
        site, other, person = (events(app, source, "keys") for source in ("a", "b", None))
        assert await anext(site) == ("function", {"function": "f", "epoch": epochs["f"]})
        assert await anext(other) == ("function", {"function": "g", "epoch": epochs["g"]})
        for name, source in (("f", "a"), ("g", "b")):
            kind, said = await anext(person)
            assert (kind, said["function"], said["silent"]) == ("function", name, [source])
        await client.delete(path + "f")
        await app.state.functions.look()
        assert await anext(person) == ("gone", {"function": "f"})


async def _until(sent: AsyncIterator[tuple[str, Any]], last: str) -> AsyncIterator[tuple[str, Any]]:
    async for kind, data in sent:
        yield kind, data
        if kind == last:
            return
