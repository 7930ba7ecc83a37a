"""An aggregator in this process, over a file that outlives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import PARAMS

from api import Settings, create_app


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
                TestClient(create_app(Settings(data=str(data), **settings)))
            )

        yield start_one


@pytest.fixture
def client(start: Callable[..., TestClient]) -> TestClient:
    """A fresh aggregator."""
    return start()


@pytest.fixture
def stream(client: TestClient) -> TestClient:
    """A fresh aggregator with the stream ``s`` of PARAMS."""
    created = client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    assert created.status_code == 201
    return client
