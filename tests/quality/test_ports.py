"""Ports that are given out are free, and no two who ask are given the same."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from quality.ports import free_port

ROOT = Path(__file__).parents[2]
ASKED = 50


def test_processes_that_ask_at_the_same_time_are_given_different_ports() -> None:
    text = f"from quality.ports import free_port\nfor _ in range({ASKED}): print(free_port())"
    asking = [
        subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    ports = [port for process in asking for port in process.communicate()[0].split()]
    assert len(ports) == len(set(ports)) == 3 * ASKED


def test_a_port_that_is_taken_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = free_port()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    free_port()
    [next_one] = tmp_path.iterdir()
    next_one.write_text(str(taken))
    with socket.create_server(("127.0.0.1", taken)):
        assert free_port() != taken
