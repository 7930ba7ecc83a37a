"""The programs of ``docs/http-clients.md`` run against a real aggregator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from quality.serving import Server

from .pages import DOCS

_PROGRAMS = {"javascript": ("client.mjs", ["node"]), "go": ("client.go", ["go", "run"])}


@pytest.mark.parametrize("language", _PROGRAMS)
def test_a_program_without_the_library_posts_and_queries(language: str, tmp_path: Path) -> None:
    name, command = _PROGRAMS[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    page = (DOCS / "http-clients.md").read_text(encoding="utf-8")
    [program] = re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / name).write_text(program, encoding="utf-8")
    server = Server(tmp_path, {"DECAYSKETCH_DATA": str(tmp_path / "data.sqlite3")})
    try:
        server.start()
        created = httpx2.put(
            f"{server.url}/v1/streams/temperature",
            json={"params": {"time_unit": "ms"}},
            timeout=60,
        )
        assert created.status_code == 201
        done = subprocess.run(
            [*command, name], cwd=tmp_path, capture_output=True, text=True, timeout=1800,
            env=os.environ | {"DECAYSKETCH_URL": server.url, "GOCACHE": str(tmp_path / "cache")},
        )  # fmt: skip
    finally:
        server.kill()
    assert done.returncode == 0, done.stderr
    assert "already stored: 1" in done.stdout
    assert "mean: 21.5" in done.stdout
