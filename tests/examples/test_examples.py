"""The examples are run, and print what is right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.debian import program

ROOT = Path(__file__).resolve().parents[2]


def printed(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}"], cwd=ROOT, capture_output=True, text=True,
        timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_frame() -> None:
    pytest.importorskip("pandas")
    text = printed("frame")
    assert "144,000 deliveries of 108,000 readings" in text
    (change,) = re.findall(r"^mill .* \+([0-9.]+) against", text, re.MULTILINE)
    assert 6 < float(change) < 9


def test_an_exporter() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    text = printed("otlp")
    assert "3000 requests, each posted twice" in text
    pairs = re.findall(r"within (\d+) ms \(counted exactly: (\d+)\)", text)
    assert len(pairs) == 3
    for said, truth in pairs:  # as fine as the buckets
        assert float(said) == pytest.approx(float(truth), rel=0.16)


def test_a_broker() -> None:
    program(("mosquitto", "/usr/sbin/mosquitto"), ("mosquitto",))
    assert "600 messages were published, 300 readings are counted" in printed("broker")
