"""The process itself: readiness, counters, and what happens when it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from service import OCTETS, PARAMS, build, problem

import decaysketch
from api.operations.signals import told_to_stop
from api.routes import service

pytestmark = pytest.mark.usefixtures("data")  # an aggregator for each test: these change its state


def app_of(client: TestClient) -> FastAPI:
    assert isinstance(client.app, FastAPI)
    return client.app


def test_healthy(client: TestClient) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["version"]) == (200, decaysketch.__version__)


def test_ready(client: TestClient) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["ready"] is True
    assert set(answer.json()["checks"].values()) == {True}


@pytest.mark.parametrize(
    ("checks", "ready"),
    [
        ({"journal": True, "backlog": True}, True),
        ({"journal": False, "backlog": True}, False),
        ({"journal": True, "backlog": "4000 posts wait"}, False),
    ],
)
def test_every_check_must_be_passed(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    checks: dict[str, bool | str],
    ready: bool,
) -> None:
    async def found() -> dict[str, bool | str]:
        return checks

    monkeypatch.setattr(app_of(client).state.aggregator, "ready", found)
    answer = client.get("/readyz")
    if not ready:
        (failed,) = (name for name, passed in checks.items() if passed is not True)
        assert problem(answer, 503)["detail"] == f"not passed: {failed}"
        assert answer.headers["retry-after"] == "1"
    assert answer.status_code == (200 if ready else 503)
    assert (answer.json()["ready"], answer.json()["checks"]) == (ready, checks)


def test_an_aggregator_that_does_not_answer_is_not_ready(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> dict[str, bool | str]:
        await asyncio.sleep(3600)
        return {}

    monkeypatch.setattr(app_of(client).state.aggregator, "ready", never)
    monkeypatch.setattr(service, "_PATIENCE_S", 0.05)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"answered": "no response within 0.05 s"}
    assert client.get("/healthz").status_code == 200


def test_not_ready_once_told_to_stop(client: TestClient) -> None:
    app_of(client).state.aggregator.stop()
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["accepting"] is False


def test_counters(stream: TestClient) -> None:
    body = build(1).to_bytes()
    posted = stream.post(
        "/v1/streams/s/sketches", params={"source": "pump-7"}, content=body, headers=OCTETS
    )
    assert posted.status_code == 200
    answer = stream.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'decaysketch_posts_total{stream="s"} 1.0' in lines
    assert f'decaysketch_posted_bytes_total{{stream="s"}} {float(len(body))}' in lines
    assert "decaysketch_journal_commit_seconds_count 1.0" in lines
    assert "decaysketch_streams 1.0" in lines
    assert "decaysketch_sources 1.0" in lines
    route = 'method="POST",route="/v1/streams/{name}/sketches",status="200"'
    assert f"decaysketch_http_requests_total{{{route}}} 1.0" in lines
    assert "pump-7" not in answer.text


def test_readiness_is_found_out_once_however_many_ask(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def found() -> dict[str, bool | str]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.05)
        return {"journal": True}

    async def scenario(checks: service.Checks) -> None:
        aggregator = app_of(client).state.aggregator
        await asyncio.gather(*(checks.of(aggregator) for _ in range(50)))

    monkeypatch.setattr(app_of(client).state.aggregator, "ready", found)
    monkeypatch.setattr(service, "_KEPT_S", 3600.0)
    checks = service.Checks()
    asyncio.run(scenario(checks))
    assert asked == 1
    assert [client.get("/readyz").status_code for _ in range(3)] == [200] * 3
    assert asked == 2  # by the route for itself
    monkeypatch.setattr(service, "_KEPT_S", 0.0)
    assert client.get("/readyz").status_code == 200
    assert asked == 3


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_counters_name_streams_so_they_need_a_key(
    start: Callable[..., TestClient], host: str
) -> None:
    """On loopback too: a proxy may stand in front."""
    client = start(auth="keys", host=host)
    problem(client.get("/metrics"), 401)
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("path", "content", "headers", "reason"),
    [
        ("sketches?source=a", b"rubbish", OCTETS, "corrupt-sketch"),
        ("sketches?source=a", b"x", {"content-type": "text/plain"}, "unsupported-media-type"),
        ("sketches", b"x", OCTETS, "invalid-request"),
        ("sketches?source=a", b"x" * 5000, OCTETS, "http-413"),
        ("observations?source=a", b"x", {"content-type": "application/json"}, "invalid-request"),
    ],
)
def test_refused_posts_are_counted_by_reason(
    start: Callable[..., TestClient],
    path: str,
    content: bytes,
    headers: dict[str, str],
    reason: str,
) -> None:
    client = start(max_body_bytes=4000)
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
    for name in ("s", "s", "unknown"):
        answer = client.post(f"/v1/streams/{name}/{path}", content=content, headers=headers)
        assert 400 <= answer.status_code < 500
    lines = client.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("decaysketch_refused_total{")]
    assert found == [f'decaysketch_refused_total{{reason="{reason}",stream="s"}} 2.0']


def test_a_signal_is_told_and_handled_as_before() -> None:
    heard: list[Any] = []
    earlier = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:

        async def run() -> None:
            told = asyncio.Event()
            with told_to_stop(told.set):
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(1800):
                    await told.wait()
            heard.append("left")
            os.kill(os.getpid(), signal.SIGTERM)

        asyncio.run(run())
        assert heard == [signal.SIGTERM, "left", signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, earlier)
