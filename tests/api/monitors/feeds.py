"""Every way to feed a stream, as one function each: readings of now into a stream of milliseconds.

A feed is a context. It prepares what the stream needs (a mapping, a program), and gives a function
that sends readings: a list of values, each with an id of its own and the time of the call.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import cramjam
import httpx2
from ingest.messages import chirpstack
from ingest.test_otlp import gauge, point, request

import decaysketch as ds
from benchmarks.write_requests import version_1
from decaysketch.client import Sensor

__all__ = ["FEEDS", "PARAMS", "STREAM", "Feed", "Send"]

PARAMS = ds.SketchParams(
    max_weight=1, id_bits=48, capacity=4000, seed=7, time_unit="ms", value_type="float64"
)
STREAM = "ward"
PATH = f"/v1/streams/{STREAM}"
Send = Callable[[list[float]], None]
Feed = Callable[[httpx2.Client, str, Path], AbstractContextManager[Send]]

_ids = itertools.count(1)
_PROGRAM = Path(sys.executable).with_name("decaysketch")


def _now() -> int:
    return time.time_ns() // 10**6


def _posting(
    path: str, pack: Callable[[list[float]], tuple[Any, dict[str, str]]], **mapping: Any
) -> Feed:
    """A feed that is one request."""

    @contextmanager
    def feed(http: httpx2.Client, _url: str, _folder: Path) -> Iterator[Send]:
        form = {"params": PARAMS.to_dict()} | ({"ingest": {"map": [mapping]}} if mapping else {})
        http.put(PATH, json=form).raise_for_status()

        def send(values: list[float]) -> None:
            content, headers = pack(values)
            answer = http.post(path, content=content, headers=headers)
            assert answer.status_code in (200, 204), answer.text

        yield send

    return feed


def _rows(values: list[float]) -> list[dict[str, Any]]:
    return [{"value": value, "time": _now(), "id": ["r", next(_ids)]} for value in values]


def _observations(values: list[float]) -> tuple[Any, dict[str, str]]:
    content = json.dumps({"observations": _rows(values)})
    return content, {"content-type": "application/json"}


def _ndjson(values: list[float]) -> tuple[Any, dict[str, str]]:
    return "\n".join(map(json.dumps, _rows(values))), {"content-type": "application/x-ndjson"}


def _webhook(values: list[float]) -> tuple[Any, dict[str, str]]:
    (value,) = values
    uplink = chirpstack(next(_ids), time.time(), object={"temperature": value})
    return json.dumps(uplink), {"content-type": "application/json"}


def _lines(values: list[float]) -> tuple[Any, dict[str, str]]:
    lines = [f"weather,n={next(_ids)} temp={value} {_now()}000000" for value in values]
    return "\n".join(lines), {"content-type": "text/plain"}


def _otlp(values: list[float]) -> tuple[Any, dict[str, str]]:
    points = [point(value, _now() * 10**6, n={"stringValue": str(next(_ids))}) for value in values]
    return json.dumps(request(gauge(*points))), {"content-type": "application/json"}


def _samples(values: list[float]) -> tuple[Any, dict[str, str]]:
    series = [({"__name__": "temp", "n": str(next(_ids))}, [(value, _now())]) for value in values]
    packed = bytes(cramjam.snappy.compress_raw(version_1(series)))
    return packed, {"content-type": "application/x-protobuf", "content-encoding": "snappy"}


def _sketch(values: list[float]) -> tuple[Any, dict[str, str]]:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(values, 1, [_now()] * len(values), [next(_ids) for _ in values])
    return sketch.to_bytes(), {"content-type": "application/octet-stream"}


def _sensor(**options: Any) -> Feed:
    @contextmanager
    def feed(http: httpx2.Client, url: str, folder: Path) -> Iterator[Send]:
        http.put(PATH, json={"params": PARAMS.to_dict()}).raise_for_status()
        with Sensor(
            url,
            STREAM,
            "gateway",
            spool=folder / "spool",
            trust_env=False,
            timeout_s=600,
            **options,
        ) as sensor:

            def send(values: list[float]) -> None:
                ids = [next(_ids) for _ in values]
                sensor.update(values, 1, [_now()] * len(values), ids)
                if "monitors" not in options:
                    sensor.flush(timeout_s=600)

            yield send

    return feed


@contextmanager
def _bridge(http: httpx2.Client, url: str, folder: Path) -> Iterator[Send]:
    """``decaysketch bridge tail``: the bridge with a file in place of a broker."""
    http.put(PATH, json={"params": PARAMS.to_dict()}).raise_for_status()
    log, config = folder / "uplinks.log", folder / "bridge.toml"
    log.touch()
    config.write_text(
        f'spool = "{folder}/spool"\n[server]\nurl = "{url}"\nsource = "bridge-1"\n'
        f'[[map]]\nformat = "chirpstack"\nstream = "{STREAM}"\nvalue = "object.temperature"\n'
    )
    topic = "application/app/device/70b3d54990000001/event/up"
    command = [_PROGRAM, "bridge", "tail", log, "--config", config, "--topic", topic]
    with (folder / "bridge.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:

        def send(values: list[float]) -> None:
            uplinks = [chirpstack(next(_ids), time.time(), object={"temperature": each})
                       for each in values]  # fmt: skip
            with log.open("a") as file:
                file.write("".join(f"{json.dumps(each)}\n" for each in uplinks))

        yield send
    finally:
        process.kill()
        process.wait()


def _one_by_one(feed: Feed) -> Feed:
    """A feed whose requests carry one reading each."""

    @contextmanager
    def each(http: httpx2.Client, url: str, folder: Path) -> Iterator[Send]:
        with feed(http, url, folder) as send:
            yield lambda values: [send([value]) for value in values] and None

    return each


FEEDS: dict[str, Feed] = {
    "observations": _posting(f"{PATH}/observations?source=a", _observations),
    "ndjson": _posting(f"{PATH}/observations?source=a", _ndjson),
    "webhook": _one_by_one(
        _posting(
            f"{PATH}/lorawan?format=chirpstack&event=up",
            _webhook,
            format="chirpstack",
            value="object.temperature",
        )
    ),
    "line protocol": _posting(
        "/api/v2/write?bucket=ward", _lines, format="influx", measurement="weather", value="temp"
    ),
    "otlp": _posting(f"{PATH}/otlp/v1/metrics", _otlp, format="otlp", metric="temp"),
    "remote write": _posting(
        f"{PATH}/prometheus/write", _samples, format="prometheus", metric="temp"
    ),
    "sketches": _posting(f"{PATH}/sketches?source=a", _sketch),
    "sensor": _sensor(),
    "sensor with monitors": _sensor(monitors=True),
    "bridge": _bridge,
}
