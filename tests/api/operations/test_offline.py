"""A database that has grown too large to be served is made smaller without a server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from service import OCTETS, PARAMS, build, problem

from api import __main__ as commands
from api.service.aggregator import Aggregator
from api.service.streams import Stream

Start = Callable[..., TestClient]


def status_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        commands.main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


def post(client: Any, sketch: Any, source: str) -> Any:
    return client.post(
        "/v1/streams/s/sketches", params={"source": source}, content=sketch.to_bytes(),
        headers=OCTETS,
    )  # fmt: skip


@pytest.fixture
def filled(start: Start, data: Path) -> Path:
    """A database with a stream of two sources, compacted, and posts after that."""
    client = start()
    assert client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).status_code == 201
    for seed, source in enumerate("ab"):
        assert post(client, build(seed), source).status_code == 200
    aggregator: Aggregator = client.app.state.aggregator  # type: ignore[attr-defined]
    client.portal.call(aggregator.compact)  # type: ignore[union-attr]
    for seed, source in enumerate("ab"):
        assert post(client, build(10 + seed, first_id=5_000), source).status_code == 200
    return data


@pytest.fixture
def unread(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sketch may be decoded."""

    def decode(self: Stream, body: bytes) -> Any:
        raise AssertionError("a sketch was decoded")

    monkeypatch.setattr(Stream, "decode", decode)


@pytest.mark.usefixtures("unread")
def test_a_source_is_revoked_on_the_database_alone(
    filled: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("revoke", "s", "a", "--data", filled) == 0
    assert "revoked source 'a' of stream 's'" in capsys.readouterr().out
    monkeypatch.undo()
    client = start()
    expected = build(1) | build(11, first_id=5_000)
    assert client.get("/v1/streams/s/sketch").content == expected.to_bytes()
    problem(post(client, build(0), "a"), 403, "revoked-source")


@pytest.mark.usefixtures("unread")
def test_a_stream_is_deleted_on_the_database_alone(
    filled: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("delete", "s", "--data", filled) == 0
    assert "deleted stream 's'" in capsys.readouterr().out
    assert start().get("/v1/streams").json()["streams"] == []


@pytest.mark.parametrize("command", [["revoke", "t", "a"], ["delete", "t"]])
def test_a_stream_that_is_not_there_is_one_line(
    filled: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*command, "--data", filled) == 1
    assert capsys.readouterr().err == "Error: there is no stream 't'\n"


@pytest.mark.parametrize("command", [["revoke", "s", "a"], ["delete", "s"]])
def test_a_path_that_was_mistyped_makes_no_database(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nothing.sqlite3"
    assert status_of(*command, "--data", path) == 1
    assert "there is no database" in capsys.readouterr().err
    assert not path.exists()


def test_a_running_server_follows(
    server: Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]], data: Path
) -> None:
    with server(data) as (_, client):
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        for seed, source in enumerate("ab"):
            assert post(client, build(seed), source).status_code == 200
        assert status_of("revoke", "s", "a", "--data", data) == 0
        problem(post(client, build(5), "a"), 403, "revoked-source")
        assert client.get("/v1/streams/s/sketch").content == build(1).to_bytes()
        assert status_of("delete", "s", "--data", data) == 0
        problem(post(client, build(5), "b"), 404, "unknown-stream")


def test_the_bound_on_memory_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("max_resident_rows = 1000000\n")
    assert status_of("memory") == 0
    usual = capsys.readouterr().out
    assert status_of("memory", "--config", file) == 0
    assert capsys.readouterr().out != usual
    assert usual in (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
