"""Every way to feed a stream of key counts: events of now, as one function each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from decaysketch.client import Sensor
from decaysketch.ecm import ECMParams, ECMSketch

from .feeds import Feed, Send

__all__ = ["KEY_FEEDS", "KEY_PATH", "KEY_STREAM"]

KEY_STREAM = "keys"
KEY_PATH = f"/v1/streams/{KEY_STREAM}"
_PARAMS = ECMParams(width=80, depth=3, slots=6, seed=4, time_unit="ms", key_bits=20, fanout_bits=4)


def _created(http: httpx2.Client) -> None:
    form = {"family": "ecm", "params": _PARAMS.to_dict()}
    http.put(KEY_PATH, json=form).raise_for_status()


def _now() -> int:
    return time.time_ns() // 10**6


@contextmanager
def _observations(http: httpx2.Client, _url: str, _folder: Path) -> Iterator[Send]:
    _created(http)
    sent = 0

    def send(keys: list[float]) -> None:
        nonlocal sent
        rows = [{"key": int(key), "time": _now()} for key in keys]
        numbers = {"source": "a", "first": sent, "next": sent + len(rows)}
        answer = http.post(
            f"{KEY_PATH}/observations", params=numbers, content=json.dumps({"observations": rows}),
            headers={"content-type": "application/json"},
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        sent += len(rows)

    yield send


@contextmanager
def _sketches(http: httpx2.Client, _url: str, _folder: Path) -> Iterator[Send]:
    _created(http)
    sketch = ECMSketch(_PARAMS, source="a", epoch=time.time_ns() // 1000)

    def send(keys: list[float]) -> None:
        sketch.update([int(key) for key in keys], [_now()] * len(keys))
        answer = http.post(
            f"{KEY_PATH}/sketches?source=a", content=sketch.to_bytes(),
            headers={"content-type": "application/octet-stream"},
        )  # fmt: skip
        assert answer.status_code == 200, answer.text

    yield send


def _sensor(*, monitors: bool) -> Feed:
    @contextmanager
    def feed(http: httpx2.Client, url: str, folder: Path) -> Iterator[Send]:
        _created(http)
        with Sensor(
            url,
            KEY_STREAM,
            "gateway",
            spool=folder / "spool",
            trust_env=False,
            timeout_s=600,
            monitors=monitors,
        ) as sensor:

            def send(keys: list[float]) -> None:
                sensor.update_keys([int(key) for key in keys], [_now()] * len(keys))
                if not monitors:
                    sensor.flush(timeout_s=600)

            yield send

    return feed


KEY_FEEDS: dict[str, Feed] = {
    "observations": _observations,
    "sketches": _sketches,
    "sensor": _sensor(monitors=False),
    "sensor with monitors": _sensor(monitors=True),
}
