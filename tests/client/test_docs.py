"""What docs/client.md shows is run, and its figures are of the study that it names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from client.faults import Aggregator
from typer.testing import CliRunner

from decaysketch import SketchParams
from decaysketch.cli import app
from quality.deltas import measure

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "client.md").read_text(encoding="utf-8")
MONITORS = (DOCS / "monitors.md").read_text(encoding="utf-8")
PARAMS = SketchParams(max_weight=9, id_bits=40, capacity=500, seed=7, time_unit="s")


def blocks(language: str, url: str, text: str = TEXT) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    return [block.replace("http://localhost:8000", url) for block in found]


@pytest.fixture
def ward(served: Aggregator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Aggregator:
    monkeypatch.chdir(tmp_path)
    form = {"params": PARAMS.to_dict()}
    assert served.client.put("/v1/streams/ward-7", json=form).is_success
    return served


def test_sensors(ward: Aggregator, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python", ward.url):
        exec(compile(block, "docs/client.md", "exec"), names)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("True 0 ")
    assert (second, third) == ("True", "[]")
    sources = ward.client.get("/v1/streams/ward-7").json()["sources"]
    assert {each["source"]: each["rows"] for each in sources} == {
        "gateway-3": 3, "gateway-4": 1, "gateway-5": 1,
    }  # fmt: skip
    [block] = blocks("sh", ward.url)
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "decaysketch"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output


def test_commands(ward: Aggregator) -> None:
    rows = [
        f"{1_700_000_000 + 60 * k},t-{k % 3},{k},{20 + k % 5},{1 + k % 9},p{k % 2}"
        for k in range(40)
    ]
    Path("log.csv").write_text("\n".join(["time,source,msg,value,weight,path", *rows]))
    [block] = blocks("console", ward.url)
    lines = block.splitlines()
    assert len(lines) == 10
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "decaysketch"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert Path("merged.sketch").read_bytes() == Path("all.sketch").read_bytes()


def test_deltas_save_what_they_are_said_to() -> None:
    saving = measure(10, 4_000)
    assert saving.posts == 400
    assert saving.whole_bytes > 50 * saving.delta_bytes
    assert saving.deflated_bytes >= saving.delta_bytes


def test_monitors(ward: Aggregator, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python", ward.url, MONITORS):
        exec(compile(block, "docs/monitors.md", "exec"), names)
    question, event, states = capsys.readouterr().out.splitlines()
    assert (question, event.startswith("too-many ")) == ("count", True)
    assert "'uncertain'" in states
    Path("alert.json").write_text(json.dumps(names["alert"].to_dict()))
    [block] = blocks("console", ward.url, MONITORS)
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "decaysketch"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
