"""``python -m benchmarks.aggregator``: what one worker of the aggregator takes and answers.

Sixteen clients of a process of their own post sketches, every one another, over connections that
stay open; meanwhile ten queries a second are answered, of a sum and of quantiles in turn. The
figure to compare with is a floor: bare FastAPI that does what no service of this promise can do
without, and nothing else. It decodes each body once by the library, and commits those that wait
together to SQLite, with every commit synced. Both serve at the same time and are posted to in
turns, and so does another checkout of this project, with an environment of its own, where one is
named (``--beside``). ``--stages`` says what each stage of a post takes of the processor, of the two
checkouts side by side. All cores are used.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from rich.console import Console
from rich.table import Table

import decaysketch as ds
from benchmarks import machine
from benchmarks.stages import FILE_VARIABLE, ORDER

__all__ = ["main"]

ROOT = Path(__file__).parents[1]
NOW = 1_700_000_000

_CLIENTS = 16
_REQUESTS_PER_S = 10  # with queries
_LARGE, _SMALL = 14_000, 1_400  # rows of bodies of about 100 and 10 KB
_ROWS_OF_A_POST = 1_000  # raw observations
_START_S = 1800
_DECODERS = 2

PARAMS = ds.SketchParams(
    max_weight=99, id_bits=40, capacity=_LARGE, seed=7, time_unit="s", value_type="float64"
)


def _columns(number: int, rows: int) -> tuple[Any, ...]:
    draw = np.random.default_rng(number)
    return (
        np.round(draw.normal(20, 5, rows), 1),
        draw.integers(1, 100, rows),
        NOW - draw.integers(0, 5_000, rows),
        draw.integers(0, 1 << PARAMS.id_bits, rows),
    )


def _sketch(number: int, rows: int) -> bytes:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(*_columns(number, rows))
    return sketch.to_bytes()


def _lines(number: int) -> bytes:
    rows = zip(*(column.tolist() for column in _columns(number, _ROWS_OF_A_POST)), strict=True)
    return b"\n".join(
        json.dumps({"value": value, "weight": weight, "time": when, "id": key}).encode()
        for value, weight, when, key in rows
    )


@dataclass(frozen=True)
class _Kind:
    """What is posted."""

    make: Callable[[int], bytes]
    path: str
    media: str = "application/octet-stream"


_KINDS = {
    "large": _Kind(lambda number: _sketch(number, _LARGE), "sketches"),
    "small": _Kind(lambda number: _sketch(number, _SMALL), "sketches"),
    "lines": _Kind(_lines, "observations", "application/x-ndjson"),
}


# ------------------------------------------------------------------------------------------- floor


def floor(path: str) -> FastAPI:
    """Decode, commit together with what waits, acknowledge."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE journal (seq INTEGER PRIMARY KEY, source TEXT, digest BLOB, body BLOB)",
    ):
        database.execute(statement)
    decoders, writer = ThreadPoolExecutor(_DECODERS), ThreadPoolExecutor(1)
    waiting: deque[tuple[tuple[str, bytes, bytes], asyncio.Future[None]]] = deque()
    arrived = asyncio.Event()

    def write(rows: Sequence[tuple[str, bytes, bytes]]) -> None:
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO journal (source, digest, body) VALUES (?, ?, ?)", rows)
        database.execute("COMMIT")

    async def commit() -> None:
        while True:
            await arrived.wait()
            batch = list(waiting)
            waiting.clear()
            arrived.clear()
            rows = [row for row, _ in batch]
            await asyncio.get_running_loop().run_in_executor(writer, write, rows)
            for _, done in batch:
                done.set_result(None)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        committing = asyncio.create_task(commit())
        yield
        committing.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {}

    @app.post("/v1/streams/{name}/sketches")
    async def post(name: str, source: str, request: Request) -> dict[str, object]:
        body = await request.body()
        loop = asyncio.get_running_loop()
        sketch = await loop.run_in_executor(decoders, ds.DecaySketch.from_bytes, body)
        done: asyncio.Future[None] = loop.create_future()
        waiting.append(((source, sha256(body).digest(), body), done))
        arrived.set()
        await done
        return {"stream": name, "rows": len(sketch)}

    return app


# ---------------------------------------------------------------------------------------- services


@dataclass
class _Service:
    """A process that serves on a port of this machine."""

    process: subprocess.Popen[bytes]
    port: int

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request with JSON; the answer, or its text where that is not JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
            method=method,
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def resident_mb(self) -> float:
        """Resident memory in 10^6 bytes; Linux."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024 / 1e6

    def processor_s(self) -> float:
        """Seconds of processor time so far; Linux."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def backlog(self) -> int:
        """Posts that are committed and not folded."""
        for line in self.ask("GET", "/metrics").splitlines():
            if line.startswith("decaysketch_backlog_posts"):
                return int(float(line.split()[-1]))
        raise RuntimeError("the metrics say nothing of a backlog")


@contextmanager
def _serving(
    directory: Path,
    *command: str,
    checkout: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> Iterator[_Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    python = sys.executable if checkout == ROOT else str(checkout / ".venv/bin/python")
    with (directory / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(
            [python, *command, "--port", str(port)],
            cwd=checkout,
            env={**os.environ, **(environment or {})},
            stdout=log,
            stderr=log,
        )
    service = _Service(process, port)
    deadline = time.monotonic() + _START_S
    try:
        while True:
            try:
                service.ask("GET", "/readyz")
                break
            except urllib.error.URLError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    said = (directory / f"{port}.log").read_text()[-2000:]
                    raise RuntimeError(f"{command} does not serve: {error}\n{said}") from error
                time.sleep(0.05)
        yield service
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ----------------------------------------------------------------------------------------- clients


@dataclass
class Load:
    """What clients saw in some seconds."""

    seconds: float = 0.0
    posts: int = 0
    refused: int = 0
    posted_bytes: int = 0
    client_processor_s: float = 0.0
    post_ms: list[float] = field(default_factory=list)
    query_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.posts / self.seconds


async def _request(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], head: bytes, body: bytes
) -> int:
    """Status of the answer to one request on a connection that stays open."""
    reader, writer = streams
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body))
    writer.write(body)
    await writer.drain()
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(answer.split(maxsplit=2)[1])


def _head(path: str, media: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n".encode()


async def _load(
    port: int, kind: str, numbers: range, seconds: float, rate: float, queries: int
) -> Load:
    """Post, for some seconds, at most ``rate`` posts a second, and ask ``queries`` in a request."""
    load = Load()
    posted = _KINDS[kind]
    paced = rate > 0
    made = (posted.make(number) for number in numbers)
    bodies = made if paced else iter(list(made))
    began = time.perf_counter()
    processor_began = time.process_time()
    end = began + seconds

    async def post(client: int) -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        target = f"/v1/streams/s/{posted.path}?source=gateway-{client}&verdicts=counts"
        head = _head(target, posted.media)
        due = began + client / rate if paced else 0.0
        while time.perf_counter() < end and (body := next(bodies, None)) is not None:
            if paced:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                due += _CLIENTS / rate
            asked = time.perf_counter()
            status = await _request(streams, head, body)
            if status == 429:
                load.refused += 1
                await asyncio.sleep(0.1)
                continue
            if status != 200:
                raise RuntimeError(f"a post was answered {status}")
            load.post_ms.append((time.perf_counter() - asked) * 1e3)
            load.posted_bytes += len(body)
            load.posts += 1
        streams[1].close()

    async def query() -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        head = _head("/v1/streams/s/query", "application/json")
        decay = {"kind": "exponential", "half_life": 900}
        wanted = itertools.cycle(
            (
                {"aggregate": "sum", "decay": decay, "now": NOW},
                {"aggregate": "quantile", "q": [0.5, 0.99], "decay": decay, "now": NOW},
            )
        )
        while True:
            asked = time.perf_counter()
            body = {"queries": list(itertools.islice(wanted, queries))}
            status = await _request(streams, head, json.dumps(body).encode())
            if status != 200:
                raise RuntimeError(f"a query was answered {status}")
            load.query_ms.append((time.perf_counter() - asked) * 1e3)
            await asyncio.sleep(max(0.0, asked + 1 / _REQUESTS_PER_S - time.perf_counter()))

    asking = asyncio.create_task(query()) if queries else None
    await asyncio.gather(*(post(client) for client in range(_CLIENTS)))
    load.seconds = time.perf_counter() - began
    load.client_processor_s = time.process_time() - processor_began
    if asking is not None:
        if asking.done():
            asking.result()
        asking.cancel()
    return load


def _in_process(pipe: Any, *arguments: Any) -> None:
    pipe.send(asyncio.run(_load(*arguments)))


def _post(
    service: _Service,
    kind: str,
    numbers: range,
    *,
    seconds: float = 1e9,
    rate: float = 0.0,
    queries: int = 0,
) -> Load:
    """Post bodies of these numbers from another process."""
    ours, theirs = multiprocessing.Pipe()
    client = multiprocessing.get_context("spawn").Process(
        target=_in_process, args=(theirs, service.port, kind, numbers, seconds, rate, queries)
    )
    client.start()
    theirs.close()
    load: Load = ours.recv()
    client.join()
    return load


def _percentiles(milliseconds: Sequence[float]) -> str:
    if not milliseconds:
        return "-"
    return f"{np.percentile(milliseconds, 50):.1f} / {np.percentile(milliseconds, 99):.1f}"


# ---------------------------------------------------------------------------------------- measures


class _Numbers:
    """Ranges of numbers that were never given out before."""

    def __init__(self) -> None:
        self._next = 1

    def take(self, count: int) -> range:
        taken = range(self._next, self._next + count)
        self._next += count
        return taken


@dataclass
class _Side:
    """What is posted to in turns with others.

    Attributes:
        floor: it answers no questions, and folds nothing.
        told: file that it writes what its stages took into, where it counts that.
    """

    name: str
    service: _Service
    floor: bool = False
    told: Path | None = None
    loads: list[Load] = field(default_factory=list)
    processor_s: float = 0.0
    stages_s: dict[str, float] = field(default_factory=dict)
    backlogs: list[int] = field(default_factory=list)
    folding_s: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """Forget what earlier bodies took."""
        self.loads, self.backlogs, self.folding_s = [], [], []
        self.processor_s, self.stages_s = 0.0, {}

    def turn(self, kind: str, numbers: range, queries: int) -> None:
        """Post once; what comes of it later is waited for."""
        before, stages = self.service.processor_s(), self._stages()
        self.loads.append(_post(self.service, kind, numbers, queries=0 if self.floor else queries))
        if not self.floor:
            self.backlogs.append(self.service.backlog())
            waited = time.perf_counter()
            while self.service.backlog():
                time.sleep(0.02)
            self.folding_s.append(time.perf_counter() - waited)
        self.processor_s += self.service.processor_s() - before
        for stage, took_s in self._stages().items():
            took_s -= stages.get(stage, 0.0)
            self.stages_s[stage] = self.stages_s.get(stage, 0.0) + took_s

    def _stages(self) -> dict[str, float]:
        if self.told is None:
            return {}
        self.told.unlink(missing_ok=True)
        self.service.process.send_signal(signal.SIGUSR1)
        while not self.told.exists():
            time.sleep(0.01)
        stages: dict[str, float] = json.loads(self.told.read_text())
        return stages

    @property
    def posts(self) -> int:
        return sum(load.posts for load in self.loads)

    @property
    def post_ms(self) -> list[float]:
        return [ms for load in self.loads for ms in load.post_ms]

    @property
    def query_ms(self) -> list[float]:
        return [ms for load in self.loads for ms in load.query_ms]


def _compare(
    console: Console, sides: Sequence[_Side], turns: int, posts: int, queries: int
) -> None:  # fmt: skip
    numbers = _Numbers()
    floor, ours, *others = sides
    for kind in ("large", "small"):
        most = posts if kind == "large" else 3 * posts
        for side in sides:
            _post(side.service, kind, numbers.take(_CLIENTS))
            side.begin()
        for turn in range(turns):
            for side in sides if turn % 2 == 0 else sides[::-1]:
                side.turn(kind, numbers.take(most), queries)
        size = statistics.mean(load.posted_bytes / load.posts for load in ours.loads)
        table = Table(
            "", "posts/s", "MB/s", "CPU ms a post", "post ms p50 / p99", "query ms p50 / p99",
            title=f"{_CLIENTS} clients, bodies of {size / 1e3:.0f} KB, {turns} turns of {most} "
            "posts each",
        )  # fmt: skip
        for side in sides:
            rate = statistics.median(load.rate for load in side.loads)
            table.add_row(
                side.name,
                f"{rate:.0f}",
                f"{rate * size / 1e6:.1f}",
                f"{1e3 * side.processor_s / side.posts:.2f}",
                _percentiles(side.post_ms),
                _percentiles(side.query_ms),
            )
        console.print(table)
        for other in (floor, *others):
            _say_ratios(console, ours, other)
        client_s = sum(load.client_processor_s for load in ours.loads)
        console.print(
            f"backlog at the end of a turn {max(ours.backlogs)} posts at most, folded "
            f"{max(ours.folding_s):.2f} s later; refused (429) "
            f"{sum(load.refused for load in ours.loads)}; the clients used "
            f"{1e3 * client_s / ours.posts:.2f} ms a post",
            highlight=False,
        )
        _say_stages(console, sides[1:], "post")


def _say_ratios(console: Console, ours: _Side, other: _Side) -> None:
    pairs = zip(ours.loads, other.loads, strict=True)
    ratios = sorted(mine.rate / theirs.rate for mine, theirs in pairs)
    cost = (other.processor_s / other.posts) / (ours.processor_s / ours.posts)
    console.print(
        f"{ours.name} / {other.name} by turn: {', '.join(f'{ratio:.2f}' for ratio in ratios)}, "
        f"median {statistics.median(ratios):.2f}; by processor time a post {cost:.2f}",
        highlight=False,
    )


def _say_stages(console: Console, sides: Sequence[_Side], what: str) -> None:
    """Of those that count them: earlier code first."""
    told = [side for side in reversed(sides) if side.told is not None]
    if not told:
        return
    table = Table(
        "stage", *(side.name for side in told), title=f"us of processor a {what}, by stage"
    )
    for stage in (*ORDER, "together"):
        each = [
            sum(side.stages_s.values()) if stage == "together" else side.stages_s.get(stage, 0.0)
            for side in told
        ]
        each = [1e6 * took / side.posts for took, side in zip(each, told, strict=True)]
        table.add_row(stage, *(f"{us:.0f}" for us in each))
    console.print(table)


def _raw(console: Console, sides: Sequence[_Side], turns: int, posts: int, queries: int) -> None:
    numbers = _Numbers()
    for side in sides:
        _post(side.service, "lines", numbers.take(_CLIENTS))
        side.begin()
    for turn in range(turns):
        for side in sides if turn % 2 == 0 else sides[::-1]:
            side.turn("lines", numbers.take(posts), queries)
    for side in sides:
        rate = statistics.median(load.rate for load in side.loads) * _ROWS_OF_A_POST
        console.print(
            f"{side.name}: raw observations, NDJSON, {_ROWS_OF_A_POST} a post: {rate:,.0f} rows/s, "
            f"{1e6 * side.processor_s / side.posts / _ROWS_OF_A_POST:.2f} us of processor a row, "
            f"post ms p50 / p99 {_percentiles(side.post_ms)}, query ms p50 / p99 "
            f"{_percentiles(side.query_ms)}",
            highlight=False,
        )
    for other in sides[1:]:
        _say_ratios(console, sides[0], other)
    _say_stages(console, sides, "post of rows")


def _convergence(console: Console, ours: _Service, other: _Service, times: int) -> None:
    seconds = []
    for number in range(times):
        _post(ours, "small", range(10**9 + number, 10**9 + number + 1))
        began = time.perf_counter()
        wanted = ours.ask("GET", "/v1/streams/s")["digest"]
        while other.ask("GET", "/v1/streams/s")["digest"] != wanted:
            time.sleep(0.002)
        seconds.append(time.perf_counter() - began)
    console.print(
        f"two replicas over one file: {times} posts to one were in the digest of the other after "
        f"{1e3 * statistics.median(seconds):.0f} ms (median), {1e3 * max(seconds):.0f} ms at most",
        highlight=False,
    )


def _steady(console: Console, service: _Service, log: Path, *, minutes: float, rate: float) -> None:
    """Memory and backlog of a service that is posted to for long; ``log`` is SQLite's."""
    numbers = _Numbers()
    numbers.take(1 << 30)
    table = Table(
        "minute", "posts/s", "post ms p50 / p99", "query ms p50 / p99", "backlog", "RSS MB",
        "log of SQLite MB", title=f"at {rate:g} posts of 100 KB a second",
    )  # fmt: skip
    step_s = min(60.0, 60 * minutes)
    for step in range(max(1, round(60 * minutes / step_s))):
        load = _post(service, "large", numbers.take(1 << 20), seconds=step_s, rate=rate, queries=1)
        table.add_row(
            f"{(step + 1) * step_s / 60:.1f}",
            f"{load.rate:.0f}",
            _percentiles(load.post_ms),
            _percentiles(load.query_ms),
            str(service.backlog()),
            f"{service.resident_mb():.0f}",
            f"{log.stat().st_size / 1e6:.0f}",
        )
    console.print(table)


def _run(options: argparse.Namespace) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    machine.all_cores()
    for line in machine.describe():
        console.print(line, highlight=False)
    names = ("fastapi", "starlette", "uvicorn", "sqlalchemy", "pydantic")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    console.print(f"{found}, SQLite {sqlite3.sqlite_version}", highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="decaysketch-benchmark-", dir=options.directory))
    checkouts = {"aggregator": ROOT} | (
        {options.beside.name: options.beside} if options.beside else {}
    )
    try:
        with ExitStack() as running:
            floor_file = str(directory / "floor.sqlite3")
            floor_service = running.enter_context(
                _serving(directory, "-m", "benchmarks.aggregator", "--floor", floor_file)
            )
            sides = [_Side("floor", floor_service, floor=True)]
            for name, checkout in checkouts.items():
                sides.append(_started(running, name, checkout, directory, stages=options.stages))
            _compare(console, sides, options.turns, options.posts, options.queries)
            _raw(console, sides[1:], options.turns, options.posts // 4, 0)
            service, data = sides[1].service, _data(directory, "aggregator")
            if options.minutes:
                log = Path(f"{data}-wal")
                _steady(console, service, log, minutes=options.minutes, rate=options.rate)
            with _serving(directory, "-m", "api", environment=_settings(data)) as other:
                _convergence(console, service, other, 20)
    finally:
        shutil.rmtree(directory)


def _data(directory: Path, name: str) -> str:
    return str(directory / f"{name}.sqlite3")


def _settings(data: str) -> dict[str, str]:
    return {"DECAYSKETCH_DATA": data, "DECAYSKETCH_COMPUTE_THREADS": str(_DECODERS)}


def _started(
    running: ExitStack, name: str, checkout: Path, directory: Path, *, stages: bool
) -> _Side:
    """The aggregator of a checkout, by the interpreter of its environment, with the stream."""
    settings = _settings(_data(directory, name))
    told = directory / f"{name}.stages" if stages else None
    command = ["-m", "api"]
    if told is not None:
        command = [str(Path(__file__).with_name("stages.py"))]
        settings[FILE_VARIABLE] = str(told)
    service = running.enter_context(
        _serving(directory, *command, checkout=checkout, environment=settings)
    )
    service.ask("PUT", "/v1/streams/s", {"params": PARAMS.to_dict()})
    return _Side(name, service, told=told)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.aggregator", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--turns", type=int, default=5, help="of each, interleaved")
    parser.add_argument("--posts", type=int, default=1000, help="of 100 KB in a turn")
    parser.add_argument(
        "--queries", type=int, default=1, help="in each of the ten requests a second that ask"
    )
    parser.add_argument("--minutes", type=float, default=0.0, help="of steady load; 0: none")
    parser.add_argument("--rate", type=float, default=50.0, help="posts a second of steady load")
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="another one, posted to in turns with this"
    )
    parser.add_argument(
        "--stages", action="store_true", help="of a post: what each takes of the processor"
    )
    parser.add_argument("--directory", type=Path, help="where the databases are; a real disk")
    parser.add_argument("--floor", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.floor is None:
        _run(options)
    else:
        uvicorn.run(floor(options.floor), port=options.port, access_log=False)


if __name__ == "__main__":
    main()
