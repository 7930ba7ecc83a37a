"""Counts of the files, functions and objects that one request passes.

``python -m quality.traces`` runs the application in this process under a profiler, and traces four
paths: a posted sketch, line protocol with two derived streams, a query with a named decay, and an
MQTT message up to the bridge's spool. Every path runs a few times before, so that no import, no
cache and no first source counts. A file or function counts if each of ``--repeat`` runs passes it.
Alerts are evaluated by the clock, and do not count. Files and functions belong to ``api/`` and
``decaysketch/``. Work after the response to a post counts as well,
until the post is merged. A query leaves no work.

An object *carries* the post if one of its attributes is the request body, the stored bytes or their
digest, the token, a decoded sketch, a column with one entry per line, or another such object. The
table has the classes of these objects, those of ``api/service`` and ``api/journal`` first. It
leaves out the sketches themselves, and tuples. A transaction counts if it added rows to the
journal.

The status is 1 if a path passes more files than ``--most`` allows, such as ``sketch=30``, or if a
post becomes objects of more than ``--objects`` classes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np
from fastapi.testclient import TestClient
from rich.console import Console
from rich.table import Table

import api.app
import decaysketch as ds
from api.settings import Settings

__all__ = ["PATHS", "Trace", "main", "traced"]

_ROOT = Path(ds.__file__).parents[1]
_PRODUCT = tuple(f"{_ROOT / name}/" for name in ("api", "decaysketch"))
_BY_CLOCK = "/api/monitors/"
_CARRIERS = ("api.", "decaysketch.ingest.", "decaysketch.ingest.bridge.", "decaysketch.client.")
_STORING = ("api.service.", "api.journal.")
_TOKEN = re.compile(r".+:[0-9a-f]{16}:[0-9]+")
_LINES = 13  # a number of lines that no other column of a request has as its length
_WARM = 3
_STREAM: Final[dict[str, Any]] = {
    "params": {"capacity": 1000, "time_unit": "s", "max_weight": 10, "id_bits": 40}
}
_VIEWED = _STREAM | {
    "views": {"devices": {"id": 0, "capacity": 100}},
    "ingest": {"map": [{"format": "influx", "measurement": "m", "value": "v"}]},
}


@dataclass
class Trace:
    """What one request passed.

    Attributes:
        files: of the product, relative to the repository.
        until_response: those passed before the response was there.
        functions: each with its file.
        objects: names of the classes whose instances carried the post.
        transactions: number of transactions that stored a post.
    """

    files: set[str] = field(default_factory=set)
    until_response: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    objects: list[str] = field(default_factory=list)
    transactions: int = 0


class _Profiler:
    """Records the product's calls and new objects on every thread while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.codes: set[CodeType] = set()
        self.made: list[Any] = []
        self.inserts = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.on or event not in ("call", "return"):
            return
        code = frame.f_code
        if event == "call":
            if code.co_filename.startswith(_PRODUCT) and _BY_CLOCK not in code.co_filename:
                self.codes.add(code)
                self.inserts += code.co_name == "insert_rows"
        elif code.co_name == "__init__" and code.co_varnames:
            self.made.append(frame.f_locals.get(code.co_varnames[0]))

    def clear(self) -> None:
        self.codes, self.made, self.inserts = set(), [], 0

    def files(self) -> set[str]:
        codes = set(self.codes)  # other threads go on
        return {str(Path(code.co_filename).relative_to(_ROOT)) for code in codes}

    def trace(self, until_response: set[str], body: bytes) -> Trace:
        functions = {
            (str(Path(code.co_filename).relative_to(_ROOT)), code.co_qualname)
            for code in self.codes
        }
        carriers = {type(each) for each in _carriers(self.made, body)}
        stored = [each for each in carriers if each.__module__.startswith(_STORING)]
        names = [each.__name__ for each in (*stored, *(carriers - set(stored)))]
        return Trace(self.files(), until_response, functions, names, self.inserts)


def _carriers(made: list[Any], body: bytes) -> Iterator[Any]:
    """Yield the instances that carry the post, found by their attributes until no more are."""
    known: set[int] = set()
    facts = {body}
    for each in made:
        if type(each).__name__ == "Post":
            facts |= {each.body, each.digest}

    def carries(value: object, depth: int = 2) -> bool:
        if isinstance(value, bytes):
            return value in facts
        if isinstance(value, str):
            return _TOKEN.fullmatch(value) is not None
        if isinstance(value, ds.Snapshot) or id(value) in known:
            return True
        if isinstance(value, np.ndarray | list | tuple) and len(value) == _LINES:
            return True
        if depth and isinstance(value, list | tuple) and len(value) <= _LINES:
            return any(carries(each, depth - 1) for each in value)
        return False

    rest = [each for each in made if type(each).__module__.startswith(_CARRIERS)]
    while found := [each for each in rest if any(map(carries, _attributes(each)))]:
        known |= {id(each) for each in found}
        rest = [each for each in rest if id(each) not in known]
        yield from found


def _attributes(thing: object) -> Iterator[object]:
    yield from getattr(thing, "__dict__", {}).values()
    for kind in type(thing).__mro__:
        for name in getattr(kind, "__slots__", ()):
            yield getattr(thing, name, None)


Prepare = Callable[[int], tuple[bytes, Callable[[], None]]]
"""Returns the body of the request with a number, and a function that sends it."""


def traced(profiler: _Profiler, prepare: Prepare, settle: Callable[[], None], repeat: int) -> Trace:
    """Trace a request some times. Return the parts that all runs have."""
    runs: list[Trace] = []
    for number in range(_WARM + repeat):
        body, send = prepare(number)
        profiler.clear()
        profiler.on = True
        send()
        until_response = profiler.files()
        settle()
        profiler.on = False
        if number >= _WARM:
            runs.append(profiler.trace(until_response, body))
    return Trace(
        files=set.intersection(*(each.files for each in runs)),
        until_response=set.intersection(*(each.until_response for each in runs)),
        functions=set.intersection(*(each.functions for each in runs)),
        objects=runs[-1].objects,
        transactions=runs[-1].transactions,
    )


@contextmanager
def _profiling() -> Iterator[_Profiler]:
    profiler = _Profiler()
    threading.setprofile(profiler)
    sys.setprofile(profiler)
    try:
        yield profiler
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


# ------------------------------------------------------------------------------------- the requests


class _Service:
    """The application in this process, with one stream, and one with derived streams."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        for name, form in (("plain", _STREAM), ("viewed", _VIEWED)):
            client.put(f"/v1/streams/{name}", json=form).raise_for_status()
        self.now = int(time.time())

    def sketch(self, number: int) -> tuple[bytes, Callable[[], None]]:
        built = ds.DecaySketch(ds.SketchParams(**_STREAM["params"]))
        ids = np.arange(_LINES, dtype=np.uint64) + np.uint64(1000 * number)
        built.update(np.ones(_LINES), np.ones(_LINES, int), np.full(_LINES, self.now), ids)
        path = "/v1/streams/plain/sketches?source=a"
        return self._post(path, built.to_bytes(), "application/octet-stream")

    def line(self, number: int) -> tuple[bytes, Callable[[], None]]:
        first_ns = (self.now - 1000 + number) * 10**9
        lines = (f"m,host=h{k} v={k} {first_ns}" for k in range(_LINES))
        return self._post("/api/v2/write?bucket=viewed", "\n".join(lines).encode(), "text/plain")

    def query(self, number: int) -> tuple[bytes, Callable[[], None]]:
        decay = {"kind": "exponential", "half_life": 600 + number}
        asked = {"aggregate": "count", "decay": decay, "now": self.now + number}
        body = json.dumps({"queries": [asked]}).encode()
        return self._post("/v1/streams/plain/query", body, "application/json")

    def _post(self, path: str, body: bytes, media: str) -> tuple[bytes, Callable[[], None]]:
        def send() -> None:
            response = self.client.post(path, content=body, headers={"content-type": media})
            assert response.is_success, response.text

        return body, send

    def settle(self) -> None:
        """Wait until everything posted is merged."""
        aggregator = self.client.app.state.aggregator  # type: ignore[attr-defined]
        while aggregator.backlog:
            time.sleep(0.01)
        time.sleep(0.05)


class _Bridge:
    """A bridge without a broker, with one mapping."""

    def __init__(self, folder: Path) -> None:
        from decaysketch.client import Sensor
        from decaysketch.families import recipe_of
        from decaysketch.ingest.bridge.config import Config
        from decaysketch.ingest.bridge.metrics import Metrics
        from decaysketch.ingest.bridge.running import Taker
        from decaysketch.ingest.bridge.translating import Arrived
        from decaysketch.ingest.documents import Message

        url = "http://localhost:1"
        mapping = {"format": "json", "stream": "power", "value": "w", "id": ["n"]}
        mapping |= {"time": "t", "time_unit": "ms"}
        broker = {"broker": "mqtt://localhost", "client_id": "b", "topics": ["#"]}
        settings = {"server": {"url": url}, "mqtt": broker, "map": [mapping], "spool": folder}
        params = ds.SketchParams(max_weight=1, id_bits=48, seed=7, time_unit="ms")
        recipe = recipe_of(params)
        self.sensor = Sensor(url, "power", "b", spool=folder / "power", recipe=recipe)
        config = Config.model_validate(settings)
        self.taker = Taker(config, {"power": self.sensor}, Metrics(), None)
        self.message: Callable[[bytes], Any] = lambda body: Arrived(
            Message(body, "t", time.time_ns())
        )

    def take(self, number: int) -> tuple[bytes, Callable[[], None]]:
        body = json.dumps({"w": number, "n": number, "t": time.time_ns() // 10**6}).encode()
        arrived = self.message(body)

        def send() -> None:
            self.taker.take([arrived])

        return body, send


PATHS: Final = {
    "sketch": "a posted sketch",
    "line": f"{_LINES} lines of line protocol, two derived streams",
    "query": "a query with a named decay",
    "message": "an MQTT message up to the spool",
}


def trace_all(repeat: int, paths: Mapping[str, str] = PATHS) -> dict[str, Trace]:
    """Trace each path. Takes about four seconds of processor time."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        profiler = stack.enter_context(_profiling())
        settings = Settings(data=str(folder / "traced.sqlite3"), poll_ms=60_000)
        client = TestClient(api.app.create_app(settings), base_url="http://127.0.0.1")
        service = _Service(stack.enter_context(client))
        acts: dict[str, tuple[Prepare, Callable[[], None]]] = {
            name: (getattr(service, name), service.settle) for name in ("sketch", "line")
        }
        acts["query"] = service.query, lambda: None
        if "message" in paths:
            bridge = _Bridge(folder / "spool")
            stack.callback(bridge.sensor.close)
            acts["message"] = bridge.take, lambda: None
        return {name: traced(profiler, *acts[name], repeat) for name in paths}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m quality.traces", description=__doc__)
    parser.add_argument("--repeat", type=int, default=4, help="traced runs of each path")
    parser.add_argument("--files", action="store_true", help="list the files as well")
    parser.add_argument("--most", nargs="*", default=[], metavar="PATH=FILES", help="file limits")
    parser.add_argument("--objects", type=int, default=3, help="limit of classes that carry a post")
    given = parser.parse_args()
    traces = trace_all(given.repeat)
    console = Console(width=150)
    table = Table("path", "files", "until response", "functions", "transactions", "objects")
    for name, trace in traces.items():
        counts = len(trace.files), len(trace.until_response), len(trace.functions)
        numbers = *counts, trace.transactions
        names = f"{len(trace.objects)}: {', '.join(trace.objects)}"
        table.add_row(PATHS[name], *map(str, numbers), names)
    console.print(table)
    if given.files:
        for name, trace in traces.items():
            console.print(f"{name}: {' '.join(sorted(trace.files))}")
    limits = dict(each.split("=") for each in given.most)
    is_long = any(len(traces[name].files) > int(most) for name, most in limits.items())
    posted = [traces[name] for name in ("sketch", "line")]
    return int(is_long or any(len(each.objects) > given.objects for each in posted))


if __name__ == "__main__":
    sys.exit(main())
