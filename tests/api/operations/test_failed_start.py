"""A process that cannot start says what, where, and what to do, in one line, and ends."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from service import PARAMS, build, posted
from support import fork_server

from api.app import create_app
from api.settings import Settings


def start(*options: object) -> subprocess.CompletedProcess[str]:
    return fork_server.run(options)


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why it did not start; every other is none of an error's inside."""
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert 'File "' not in done.stderr.replace("\\", "")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    (line,) = [each["message"] for each in lines if each["level"] == "critical"]
    assert "\n" not in line
    return str(line)


def no_folder(tmp_path: Path) -> Path:
    return tmp_path / "nowhere" / "data.sqlite3"


def no_database(tmp_path: Path) -> Path:
    file = tmp_path / "data.sqlite3"
    file.write_bytes(b"a text of some length that is no database at all\n" * 100)
    return file


def a_folder(tmp_path: Path) -> Path:
    return tmp_path


def out_of_reach(_tmp_path: Path) -> str:
    return "postgresql://somebody:secret-word@127.0.0.1:1/x"


@pytest.mark.parametrize("data", [no_folder, no_database, a_folder, out_of_reach])
def test_a_database_that_cannot_be_opened(
    tmp_path: Path, data: Callable[[Path], Path | str]
) -> None:
    place = data(tmp_path)
    line = told(start("--port", 0, "--data", place, "--log-format", "json"))
    assert line.startswith("cannot start from ")
    assert "check its path or address and its permissions (--data" in line
    assert str(place).replace("secret-word", "***").rpartition("://")[2] in line
    assert "secret-word" not in line


def test_a_journal_that_cannot_be_read(
    data: Path, server: Callable[..., AbstractContextManager[tuple[Any, Any]]]
) -> None:
    with server(data) as (_, client):
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        headers = {"content-type": "application/octet-stream"}
        body = build(1).to_bytes()
        posted(client.post("/v1/streams/s/sketches?source=a", content=body, headers=headers))
    with sqlite3.connect(data) as database:
        database.execute("UPDATE journal SET body = x'00'")
    line = told(start("--port", 0, "--data", data, "--log-format", "json"))
    assert "row 1 of the journal (stream 's', source 'a') cannot be read" in line
    assert "`python -m api check` lists what cannot be read" in line


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_that_is_taken(data: Path, workers: int) -> None:
    """Told before the database is opened, which may take minutes to read."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = start(
            "--port", port, "--data", data, "--workers", workers, "--log-format", "json"
        )  # fmt: skip
    assert told(done) == (
        f"cannot listen on 127.0.0.1:{port}: address already in use; stop the program that "
        "listens there, or choose another --host or --port"
    )
    assert not data.exists()


def test_a_host_that_is_not_of_this_machine(data: Path) -> None:
    line = told(start("--host", "192.0.2.1", "--port", 0, "--data", data, "--log-format", "json"))
    assert line.startswith("cannot listen on 192.0.2.1:0: cannot assign requested address; ")


def test_a_setting_outside_its_domain(data: Path) -> None:
    done = start("--port", 99_999, "--data", data)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: Invalid value: port is '99999'; expected an integer from 0 to 65535"
    )
    assert "Traceback" not in done.stderr


def test_what_nobody_foresaw_is_shown_with_its_frames(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, by the log, and not again by the server in front."""

    def broken(threads: int) -> None:
        raise ZeroDivisionError("of our own")

    monkeypatch.setattr("api.app.pools", broken)
    app = create_app(Settings(data=str(data)))
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    with pytest.raises(ZeroDivisionError):
        asyncio.run(app({"type": "lifespan", "state": {}}, receive, send))  # type: ignore[arg-type]
    assert sent == [{"type": "lifespan.startup.failed"}]
    (record,) = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert record.exc_info is not None
    assert record.getMessage() == f"cannot start from {data}"
