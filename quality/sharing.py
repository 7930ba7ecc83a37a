"""Attacks of one key on what all keys share: threads, memory, budgets, names.

Each is what a client of one role can send cheaply. Nothing of it may stop a client with another
key, or take memory that no bound counts.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import time
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx2
import numpy as np

import decaysketch as ds
from quality.besieging import Attack, Request

__all__ = ["ATTACKS"]

_JSON, _NDJSON, _SKETCH = "application/json", "application/x-ndjson", "application/octet-stream"
_SMALL = {"max_weight": 1, "id_bits": 40, "capacity": 2000, "time_unit": "s"}
_HELD_S = 25.0


def _typed(media: str, coding: str | None = None) -> tuple[tuple[str, str], ...]:
    typed = (("Content-Type", media),)
    return typed if coding is None else (*typed, ("Content-Encoding", coding))


def _put(http: httpx2.Client, name: str, **form: Any) -> None:
    http.put(f"/v1/streams/{name}", json={"params": _SMALL} | form).raise_for_status()


def _lines_of_maps(http: httpx2.Client) -> None:
    maps = [{"format": "influx", "measurement": "m", "value": f"v{n}"} for n in range(20)]
    _put(http, "siege-texts", ingest={"map": maps})


def _long_texts(connection: int, draw: random.Random) -> Iterator[Request]:
    """530 kB of lines whose texts were 5 GB: a tag of 64 kB with a letter of four bytes."""
    pad, now = "a" * 63_800 + "\U0001f600", int(time.time())
    words = ("".join(draw.choices("0123456789abcdef", k=700)) for _ in range(1000))
    lines = (f"m,t={pad}{word}{n} v=1 {now}" for n, word in enumerate(words))
    body = gzip.compress("\n".join(lines).encode(), 6)
    path = "/v1/streams/siege-texts/influx/write?precision=s"
    while True:
        yield Request("POST", path, body, _typed("text/plain", "gzip"))


_NAMES = [chr(97 + number) for number in range(19)]


def _conditions(http: httpx2.Client) -> None:
    texts = [str(number) for number in range(96)] + ["x"]
    wheres = [dict.fromkeys(_NAMES, texts) | {"zz": f"no{number}"} for number in range(20)]
    influx = {"format": "influx", "measurement": "m", "value": "v"}
    _put(http, "siege-lines", ingest={"map": [influx | {"where": each} for each in wheres]})
    otlp = {"format": "otlp", "metric": "m"}
    _put(http, "siege-otlp", ingest={"map": [otlp | {"where": each} for each in wheres]})


@cache
def _lines_of_conditions(lines: int) -> bytes:
    tags, now = "".join(f",{name}=x" for name in _NAMES), int(time.time())
    return gzip.compress("".join(f"m{tags},t={n} v=1 {now}\n" for n in range(lines)).encode(), 6)


@cache
def _points_of_conditions(points: int) -> bytes:
    attributes = [{"key": name, "value": {"stringValue": "x"}} for name in _NAMES]
    point = {"timeUnixNano": str(time.time_ns()), "asDouble": 1.0, "attributes": attributes}
    metric = {"name": "m", "gauge": {"dataPoints": [point] * points}}
    document = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    return gzip.compress(json.dumps(document).encode(), 6)


def _left_behind(connection: int, _draw: random.Random) -> Iterator[Request]:
    """Series that 20 mappings of 20 conditions look at; the client hangs up at once."""
    if connection % 2:
        path, media = "/v1/streams/siege-otlp/otlp/v1/metrics", _JSON
        body = _points_of_conditions(1_000)
    else:
        path, media = "/v1/streams/siege-lines/influx/write?precision=s", "text/plain"
        body = _lines_of_conditions(200_000)
    while True:
        yield Request("POST", path, body, _typed(media, "gzip"), "hang-up", 0.3)


def _one_stream(http: httpx2.Client) -> None:
    _put(http, "siege-one")


def _writers(connection: int, _draw: random.Random) -> Iterator[Request]:
    """100,000 rows at a time, over and over."""
    now = int(time.time())
    rows = "\n".join(f'{{"value":1,"time":{now - n % 5000},"id":{n}}}' for n in range(100_000))
    body = gzip.compress(rows.encode(), 6)
    path = f"/v1/streams/siege-one/observations?source={connection}&verdicts=counts"
    while True:
        yield Request("POST", path, body, _typed(_NDJSON, "gzip"))


@cache
def _inflating(size: int, ratio: int) -> bytes:
    """A gzip body that inflates to so much and has no end."""
    deflating, draw, made = zlib.compressobj(9, zlib.DEFLATED, 31), random.Random(1), b""
    for _ in range(size >> 16):
        made += deflating.compress(draw.randbytes(65536 // ratio) + bytes(65536 - 65536 // ratio))
    return made + deflating.flush(zlib.Z_SYNC_FLUSH)


def _unfinished(_connection: int, _draw: random.Random) -> Iterator[Request]:
    """Bodies that inflate to 63 MiB, 1 MiB and 64 KiB, and do not end."""
    path, typed = "/v1/streams/siege-one/sketches?source=x", _typed(_SKETCH, "gzip")
    for size in itertools.cycle((63 << 20, 1 << 20, 64 << 10)):
        yield Request("POST", path, _inflating(size, 250), typed, "unfinished", _HELD_S)


def _asked_unfinished(_connection: int, _draw: random.Random) -> Iterator[Request]:
    """Questions of 1.4 kB that inflate to 192 KiB, and do not end: of a key that only reads."""
    path, typed = "/v1/streams/siege-one/query", _typed(_JSON, "gzip")
    while True:
        yield Request("POST", path, _inflating(3 << 16, 250), typed, "unfinished", _HELD_S)


def _large_sketch(http: httpx2.Client) -> None:
    params = ds.SketchParams(max_weight=1, id_bits=40, capacity=1 << 20, time_unit="s")
    form = {"params": params.to_dict()}
    http.put("/v1/streams/siege-big", json=form).raise_for_status()
    draw, rows = np.random.default_rng(1), 800_000
    sketch = ds.DecaySketch(params)
    times = int(time.time()) - draw.integers(0, 1 << 30, rows)
    sketch.update(draw.normal(size=rows), 1, times, draw.permutation(1 << 22)[:rows])
    path = "/v1/streams/siege-big/sketches?source=a"
    headers = {"Content-Type": _SKETCH}
    http.post(path, content=sketch.to_bytes(), headers=headers).raise_for_status()


def _unread(_connection: int, _draw: random.Random) -> Iterator[Request]:
    """A sketch of 10 MB for a line of request, and nothing of it is read."""
    while True:
        yield Request("GET", "/v1/streams/siege-big/sketch", way="unread", hold_s=_HELD_S)


def _in_the_middle(_connection: int, draw: random.Random) -> Iterator[Request]:
    """Clients that leave in the middle of a body, of every route that takes one."""
    for route in itertools.cycle(("sketches?source=a", "observations?source=a", "influx/write",
                                  "otlp/v1/metrics", "prometheus/write", "query")):  # fmt: skip
        media = _NDJSON if route.startswith("obs") else _JSON if route == "query" else _SKETCH
        body = draw.randbytes(20)
        path = f"/v1/streams/siege-one/{route}"
        yield Request("POST", path, body, _typed(media), "unfinished", 0.02)


def _derived(connection: int, _draw: random.Random) -> Iterator[Request]:
    """Derived streams that are filled with names of devices, by one source."""
    name, now = f"siege-{connection}", int(time.time())
    form = {"params": _SMALL, "views": {"devices": {"id": 0, "capacity": 180_000}}}
    yield Request("PUT", f"/v1/streams/{name}", json.dumps(form).encode(), _typed(_JSON))
    for begin in itertools.count(step=20_000):
        rows = "\n".join(
            f'{{"value":1,"time":{now},"id":["device-{n:09}{"x" * 200}",1]}}'
            for n in range(begin, begin + 20_000)
        )
        path = f"/v1/streams/{name}/observations?source=a&verdicts=counts"
        yield Request("POST", path, gzip.compress(rows.encode(), 6), _typed(_NDJSON, "gzip"))


ATTACKS: dict[str, Attack] = {
    "texts": Attack("write", _lines_of_maps, _long_texts, connections=3),
    "mappings": Attack("write", _conditions, _left_behind, connections=4, leaves=True),
    "writers": Attack("write", _one_stream, _writers, connections=40),
    "unfinished": Attack("write", _one_stream, _unfinished, connections=40),
    "questions": Attack("read", _one_stream, _asked_unfinished, connections=400),
    "unread": Attack("read", _large_sketch, _unread, connections=300),
    "hang-ups": Attack("write", _one_stream, _in_the_middle, connections=6, leaves=True),
    "derived": Attack("write", _one_stream, _derived, connections=2),
}
