"""``decaysketch bridge mqtt --print``, without a broker: what is said while nothing comes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ingest.messages import UP, chirpstack
from typer.testing import CliRunner

from decaysketch.cli import app
from decaysketch.ingest.bridge import broker
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.documents import Message

FILE = """
spool = "{folder}/spool"
[server]
url = "http://127.0.0.1:1"
[mqtt]
broker = "mqtt://127.0.0.1:1"
client_id = "b"
topics = ["application/+/device/+/up"]
[[map]]
format = "chirpstack"
stream = "temperature"
value = "object.temprature"
"""


class Connection:
    """One message, after a while."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.asked = 0

    def open(self, timeout_s: float) -> None:
        pass

    def gather(self, stopped: Any) -> list[Arrived]:
        self.asked += 1
        body = json.dumps(chirpstack()).encode()
        return [] if self.asked < 4 else [Arrived(Message(body, UP))]

    def close(self) -> None:
        pass


def test_silence_is_said_once_and_a_value_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "Connection", Connection)
    monkeypatch.setattr(sys.modules["decaysketch.cli.bridge"], "_SILENT_S", 0.0)
    path = tmp_path / "b.toml"
    path.write_text(FILE.format(folder=tmp_path))
    looked = CliRunner().invoke(app, ["bridge", "mqtt", "--config", str(path), "--print", "1"])
    assert looked.exit_code == 0, looked.output
    silence = "no message yet on application/+/device/+/up"
    assert looked.stderr.count(silence) == 1
    told = looked.stderr.replace("\n", " ")
    assert "no value at object.temprature; numbers in such a message:" in told
    assert "object.temperature" in told
