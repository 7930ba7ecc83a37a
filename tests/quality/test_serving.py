"""The aggregator as studies start it."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from quality.serving import NotServingError, Server


def test_it_serves_is_measured_and_is_gone_when_it_is_killed(tmp_path: Path) -> None:
    server = Server(tmp_path, {"DECAYSKETCH_DATA": str(tmp_path / "a.sqlite3")})
    try:
        assert server.start() > 0
        assert httpx2.get(f"{server.url}/healthz", trust_env=False, timeout=60).status_code == 200
        assert 0 < server.resident_bytes() <= server.peak_bytes()
    finally:
        server.kill()
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{server.url}/healthz", trust_env=False)


def test_a_process_that_ends_at_once_says_why(tmp_path: Path) -> None:
    server = Server(
        tmp_path, {"DECAYSKETCH_DATA": str(tmp_path / "no" / "such" / "folder.sqlite3")}
    )
    with pytest.raises(NotServingError, match=r"(?s)it ended with [1-9].*cannot start from"):
        server.start()
