"""An aggregator for an example: a process of its own over a file that is gone afterwards."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

__all__ = ["answer", "free_port", "serving"]

_ROOT = Path(__file__).resolve().parents[1]


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serving(stream: str, form: Mapping[str, Any]) -> Iterator[tuple[httpx2.Client, Path]]:
    """A client of a fresh aggregator that has this stream, and a folder for whatever else."""
    with TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        command = ["-m", "api", "--port", str(port), "--data", str(folder / "data.sqlite3")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=_ROOT, stdout=log, stderr=log
            )
        url = f"http://127.0.0.1:{port}"
        try:
            with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
                while True:
                    try:
                        client.get("/readyz").raise_for_status()
                        break
                    except httpx2.HTTPError:
                        if process.poll() is not None:
                            raise SystemExit((folder / "log").read_text()) from None
                        time.sleep(0.05)
                client.put(f"/v1/streams/{stream}", json=dict(form)).raise_for_status()
                yield client, folder
        finally:
            process.terminate()
            process.wait()


def answer(client: httpx2.Client, stream: str, **query: Any) -> dict[str, Any]:
    """The estimate that a query is answered with."""
    asked = client.post(f"/v1/streams/{stream}/query", json={"queries": [query]})
    asked.raise_for_status()
    found: dict[str, Any] = asked.json()["answers"][0]
    return found
