"""An aggregator over a file that outlives it: in this process, or in one that is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from service import LOCAL, PARAMS
from support import fork_server

from api.app import create_app
from api.settings import Settings
from quality import ports

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "aggregator.sqlite3"


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., TestClient]]:
    """Start an aggregator over the data file; a second call is a restart."""
    with ExitStack() as running:

        def start_one(**settings: Any) -> TestClient:
            running.close()
            return running.enter_context(
                TestClient(create_app(Settings(data=str(data), **settings)), base_url=LOCAL)
            )

        yield start_one


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One aggregator for a file of tests: starting one takes longer than most of them run."""
    data = tmp_path_factory.mktemp("shared") / "aggregator.sqlite3"
    with TestClient(create_app(Settings(data=str(data))), base_url=LOCAL) as client:
        yield client


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    """An aggregator without a stream: that of the file, and for a test that restarts it or opens
    its database (by the fixtures ``start`` and ``data``) a new one.
    """
    if {"start", "data"} & set(request.fixturenames):
        yield request.getfixturevalue("start")()
        return
    shared: TestClient = request.getfixturevalue("shared")
    yield shared
    shared.cookies.clear()
    while streams := shared.get("/v1/streams").json()["streams"]:
        for each in streams:
            gone = shared.delete(f"/v1/streams/{each['name']}")
            assert gone.status_code in (204, 404)  # a derived stream goes with its stream


@pytest.fixture
def stream(client: TestClient) -> TestClient:
    """A fresh aggregator with the stream ``s`` of PARAMS."""
    created = client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    assert created.status_code == 201
    return client


@pytest.fixture
def server() -> Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]:
    """Start ``python -m api`` over a data file: a context that gives the process and a client.

    ``real=True`` starts a new program, for tests of starts, crashes, memory and workers. Otherwise
    it is forked from a process that has imported it.
    """
    return _server


@pytest.fixture(scope="session")
def one_server() -> Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]:
    """The same, for tests that share one."""
    return _server


@pytest.fixture
def free_port() -> int:
    """A port on which nobody listens."""
    return ports.free_port()


@contextmanager
def _server(
    data: Path, *options: str, port: int | None = None, real: bool = False
) -> Iterator[tuple[Any, httpx2.Client]]:
    """On a free port, or this one; killed without warning at the end."""
    port = ports.free_port() if port is None else port
    log = data.with_suffix(".log")
    start = _start_program if real else fork_server.start
    process = start(["--port", str(port), "--data", str(data), *options], log)
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
            _wait_until_it_serves(process, client, log)
            yield process, client
    finally:
        process.kill()
        process.wait()


def _start_program(arguments: list[str], log: Path) -> Any:
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "api", *arguments], cwd=ROOT, stdout=sink, stderr=sink
        )


def _wait_until_it_serves(process: Any, client: httpx2.Client, log: Path) -> None:
    deadline = time.monotonic() + 1800  # for what hangs
    while True:
        try:
            if client.get("/healthz").status_code == 200:
                return
        except httpx2.TransportError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
