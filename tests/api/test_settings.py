"""Settings: the environment, the command line, and what is outside their domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from api.__main__ import main
from api.settings import Settings, SettingsError


def test_defaults_are_safe() -> None:
    settings = Settings.from_environment({})
    assert settings == Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.database_url == "sqlite:///aggregator.sqlite3"


def test_the_environment_and_what_wins_over_it() -> None:
    environment = {
        "DECAYSKETCH_PORT": "9000",
        "DECAYSKETCH_DATA": "postgresql://db/x",
        "DECAYSKETCH_MAX_BODY_BYTES": "1000",
        "PORT": "1",
    }
    settings = Settings.from_environment(environment, port=9001, host=None)
    assert settings == Settings(port=9001, data="postgresql://db/x", max_body_bytes=1000)
    assert settings.database_url == "postgresql://db/x"


@pytest.mark.parametrize(
    ("environment", "options", "message"),
    [
        ({"DECAYSKETCH_PORT": "http"}, {}, "DECAYSKETCH_PORT is 'http'; expected an integer"),
        ({"DECAYSKETCH_PORT": "65536"}, {}, "port is 65536; expected an integer from 0 to 65535"),
        ({"DECAYSKETCH_DATA": ""}, {}, "data is empty"),
        ({}, {"max_body_bytes": 0}, "max_body_bytes is 0"),
        ({}, {"max_queries": -1}, "max_queries is -1"),
    ],
)
def test_outside_their_domain(
    environment: dict[str, str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings.from_environment(environment, **options)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What uvicorn was asked to serve, instead of serving it."""
    calls: list[dict[str, Any]] = []

    def run(app: FastAPI, **options: Any) -> None:
        calls.append(options | {"settings": app.state.settings})

    monkeypatch.setattr("uvicorn.run", run)
    return calls


def test_the_command_line(
    served: list[dict[str, Any]], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    data = str(tmp_path / "x.sqlite3")
    assert main(["--port", "8123", "--data", data]) == 0
    (call,) = served
    assert (call["host"], call["port"]) == ("127.0.0.1", 8123)
    assert call["settings"] == Settings(port=8123, data=data)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("host", "warned"),
    [("localhost", False), ("::1", False), ("0.0.0.0", True), ("sensors.example", True)],
)
def test_listening_beyond_this_machine_is_warned_of(
    served: list[dict[str, Any]], caplog: pytest.LogCaptureFixture, host: str, warned: bool
) -> None:
    main(["--host", host])
    assert ("no authentication" in caplog.text) is warned


def test_a_command_line_outside_its_domain(
    served: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--port", "99999"])
    assert "port is 99999; expected an integer from 0 to 65535" in capsys.readouterr().err
    assert served == []
