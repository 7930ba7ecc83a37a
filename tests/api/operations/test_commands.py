"""``python -m api``: what the command line makes of its words."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from service import LOCAL, OCTETS, PARAMS, build

from api import __main__ as commands
from api.app import create_app
from api.settings import Settings

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What uvicorn was asked to serve, instead of serving it."""
    calls: list[dict[str, Any]] = []

    def run(app: FastAPI | str, **options: Any) -> None:
        settings = app.state.settings if isinstance(app, FastAPI) else Settings.from_environment()
        calls.append(options | {"app": app, "settings": settings, "environment": dict(os.environ)})

    monkeypatch.setattr("uvicorn.run", run)
    monkeypatch.setattr("api.logs.configure", lambda settings: None)
    monkeypatch.setattr("api.__main__.check_address", lambda settings: None)
    return calls


def status_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        commands.main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


@pytest.mark.parametrize("command", [[], ["serve"]])
def test_without_a_command_it_serves(
    served: list[dict[str, Any]], command: list[str], tmp_path: Path
) -> None:
    data = tmp_path / "x.sqlite3"
    assert status_of(*command, "--port", 8123, "--data", data, "--log-level", "error") == 0
    (call,) = served
    assert (call["host"], call["port"]) == ("127.0.0.1", 8123)
    assert (call["access_log"], call["log_config"]) == (False, None)
    assert call["timeout_graceful_shutdown"] == 20
    assert call["settings"] == Settings(port=8123, data=str(data), log_level="error")


def test_workers_read_their_settings_from_the_environment(
    served: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECAYSKETCH_MAX_QUERIES", "7")
    file = tmp_path / "settings.toml"
    file.write_text('workers = 3\nmax_clock_skew_s = "off"\n')
    before = dict(os.environ)
    assert status_of("--config", file, "--host", "0.0.0.0") == 0
    (call,) = served
    assert call["app"] == "api.__main__:application"
    assert (call["workers"], call["factory"]) == (3, True)
    assert call["settings"] == Settings(
        workers=3, host="0.0.0.0", max_queries=7, max_clock_skew_s=None
    )
    assert call["environment"]["PROMETHEUS_MULTIPROC_DIR"]
    assert dict(os.environ) == before


def test_outside_their_domain(
    served: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("--port", 99999) == 2
    assert "port is '99999'; expected an integer from 0 to 65535" in capsys.readouterr().err
    assert status_of("check", "--config", "absent.toml") == 2
    assert "config is 'absent.toml'; expected a readable file" in capsys.readouterr().err
    assert served == []


def test_a_word_that_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("sevre") == 2
    assert "No such command 'sevre'" in capsys.readouterr().err


def fill(client: httpx2.Client) -> bytes:
    """A stream with two posts; its merged sketch."""
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
    for seed in (1, 2):
        posted = post(client, seed)
        posted.raise_for_status()
    return merged(client, {"decaysketch-after": posted.json()["token"]})


def wait_for(times: int, message: str, log: Path) -> None:
    deadline = time.monotonic() + 1800
    while log.read_text().count(message) < times:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def post(client: httpx2.Client, seed: int) -> httpx2.Response:
    return client.post(
        "/v1/streams/s/sketches",
        params={"source": f"a{seed}"},
        content=build(seed, rows=50).to_bytes(),
        headers=OCTETS,
    )


def merged(client: httpx2.Client, headers: dict[str, str] | None = None) -> bytes:
    answer = client.get("/v1/streams/s/sketch", headers=headers or {})
    answer.raise_for_status()
    return answer.content


def test_a_backup_of_a_running_aggregator_restored(
    client: TestClient, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "backup", tmp_path / "other.sqlite3"
    sketch = fill(client)
    assert status_of("backup", path, "--data", data) == 0
    said = capsys.readouterr().out
    assert "journal: 2 rows" in said
    assert f"wrote {path}, {path.stat().st_size} bytes" in said
    assert status_of("restore", path, "--data", other) == 0
    assert f"restored {other} from {path}" in capsys.readouterr().out
    assert status_of("check", "--data", other) == 0
    assert capsys.readouterr().out.startswith("s: 0 snapshots, 2 posts, ")
    with TestClient(create_app(Settings(data=str(other))), base_url=LOCAL) as restored:
        assert merged(restored) == sketch
    assert status_of("restore", path, "--data", data) == 1
    assert "the database is not empty" in capsys.readouterr().err


def test_damage_is_found(
    start: Callable[..., TestClient], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(start())
    with sqlite3.connect(data) as connection:
        connection.execute("UPDATE journal SET body = zeroblob(10) WHERE seq = 2")
    connection.close()
    assert status_of("check", "--data", data) == 1
    assert "damaged: journal row 2 of s, source 'a2': the body has" in capsys.readouterr().err


def test_told_to_stop_while_posts_come(server: Server, data: Path) -> None:
    """What was acknowledged is there; what was not was told so, or found the door closed; the
    process leaves within its time, and has written JSON since nobody looked on."""
    acknowledged: list[int] = []
    refused: list[int] = []

    def keep_posting(first: int, url: httpx2.URL) -> None:
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
            for seed in range(first, first + 10_000):
                try:
                    status = post(client, seed).status_code
                except httpx2.TransportError:
                    return
                (acknowledged if status == 200 else refused).append(status)

    with server(data) as (process, client):
        fill(client)
        with ThreadPoolExecutor(3) as pool:
            for number in range(3):
                pool.submit(keep_posting, 10_000 * (number + 1), client.base_url)
            deadline = time.monotonic() + 1800
            while len(acknowledged) < 20 and time.monotonic() < deadline:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert process.wait(1800) in (0, -signal.SIGTERM)
    assert set(refused) <= {503}
    with sqlite3.connect(data) as connection:
        ((rows,),) = connection.execute("SELECT count(*) FROM journal")
    connection.close()
    assert rows >= 2 + len(acknowledged) >= 22
    lines = [json.loads(line) for line in data.with_suffix(".log").read_text().splitlines()]
    assert "Application shutdown complete." in [line["message"] for line in lines]
    assert not any("exception" in line for line in lines)
    posts = [
        line
        for line in lines
        if line.get("route") == "/v1/streams/{name}/sketches" and line["status"] == 200
    ]
    assert len(posts) >= 2 + len(acknowledged)


def test_two_workers(server: Server, data: Path) -> None:
    """A post that one has taken, the other answers from; their counters are added."""
    with server(data, "--workers", "2", real=True) as (process, client):
        try:
            wait_for(2, "Application startup complete.", data.with_suffix(".log"))
            sketch = fill(client)
            token = post(client, 2).json()["token"]
            for _ in range(20):
                asked = {"connection": "close", "decaysketch-after": token}
                assert merged(client, asked) == sketch
            # A request is counted once its answer has ended, which its client may see before that.
            asked_for = 'method="GET",route="/v1/streams/{name}/sketch",status="200"'
            counted = f"decaysketch_http_requests_total{{{asked_for}}} 21.0"
            deadline = time.monotonic() + 1800
            while counted not in (text := client.get("/metrics").text):
                assert time.monotonic() < deadline, text
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(1800) == 0
    resident = [line for line in text.splitlines() if "resident_memory_bytes{" in line]
    assert len(resident) == 2
    assert 'decaysketch_posts_total{stream="s"} 2.0' in text
    with TestClient(create_app(Settings(data=str(data))), base_url=LOCAL) as again:
        assert merged(again) == sketch


def test_workers_end_with_the_process_that_started_them(server: Server, data: Path) -> None:
    """However it ended; what was posted is acknowledged before, and they let go of the port."""
    with server(data, "--workers", "2", real=True) as (process, client):
        log = data.with_suffix(".log")
        wait_for(2, "Application startup complete.", log)
        fill(client)
        workers = children_of(process.pid)
        assert len(workers) >= 2
        process.kill()
        process.wait()
        try:
            deadline = time.monotonic() + 1800
            while any(map(runs, workers)):
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
        finally:
            for worker in filter(runs, workers):
                os.kill(worker, signal.SIGKILL)
        with pytest.raises(httpx2.TransportError):
            client.get("/healthz")
    said = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    gone = f"process {process.pid}, which started this worker, is gone: stopping"
    assert said.count(gone) == 2
    assert said.count("Application shutdown complete.") == 2


def children_of(process: int) -> list[int]:
    return [
        int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"  # ended, and nobody has asked how
