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
from service import OCTETS, build, problem

import decaysketch
from api.routes import service
from api.stopping import told_to_stop


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
    assert answer.json()["checks"] == {"answered": "no answer within 0.05 s"}
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


def test_counters_name_streams_so_they_need_a_key(start: Callable[..., TestClient]) -> None:
    client = start(auth="keys", host="0.0.0.0")
    problem(client.get("/metrics"), 401)
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 200


def test_a_signal_is_told_and_handled_as_before() -> None:
    heard: list[Any] = []
    earlier = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:

        async def run() -> None:
            told = asyncio.Event()
            with told_to_stop(told.set):
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(10):
                    await told.wait()
            heard.append("left")
            os.kill(os.getpid(), signal.SIGTERM)

        asyncio.run(run())
        assert heard == [signal.SIGTERM, "left", signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, earlier)
