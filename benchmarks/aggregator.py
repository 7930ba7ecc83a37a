"""``python -m benchmarks.aggregator``: what one worker of the aggregator takes and answers.

Sixteen clients of a process of their own post sketches, every one another, over connections that
stay open; meanwhile ten queries a second are answered, of a sum and of quantiles in turn. The
figure to compare with is a floor: bare FastAPI that does what no service of this promise can do
without, and nothing else. It decodes each body once by the library, and commits those that wait
together to SQLite, with every commit synced. Both serve at the same time and are posted to in
turns. All cores are used.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import shutil
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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
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
def _serving(directory: Path, *command: str, **environment: str) -> Iterator[_Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (directory / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, **environment},
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


def _compare(
    console: Console, floor_service: _Service, service: _Service, turns: int, posts: int,
    queries: int,
) -> None:  # fmt: skip
    numbers = _Numbers()
    for kind in ("large", "small"):
        most = posts if kind == "large" else 3 * posts
        _post(floor_service, kind, numbers.take(_CLIENTS))
        _post(service, kind, numbers.take(_CLIENTS))
        floors: list[Load] = []
        ours: list[Load] = []
        costs: dict[str, float] = {"floor": 0.0, "aggregator": 0.0}
        backlogs: list[int] = []
        folding_s: list[float] = []
        for _ in range(turns):
            for name, each, loads in (
                ("floor", floor_service, floors),
                ("aggregator", service, ours),
            ):
                before = each.processor_s()
                asked = queries if each is service else 0
                loads.append(_post(each, kind, numbers.take(most), queries=asked))
                if each is service:
                    backlogs.append(each.backlog())
                    waited = time.perf_counter()
                    while each.backlog():
                        time.sleep(0.02)
                    folding_s.append(time.perf_counter() - waited)
                costs[name] += each.processor_s() - before
        size = statistics.mean(load.posted_bytes / load.posts for load in ours)
        table = Table(
            "", "posts/s", "MB/s", "CPU ms a post", "post ms p50 / p99", "query ms p50 / p99",
            title=f"{_CLIENTS} clients, bodies of {size / 1e3:.0f} KB, {turns} turns of {most} "
            "posts each",
        )  # fmt: skip
        for name, loads in (("floor", floors), ("aggregator", ours)):
            total = sum(load.posts for load in loads)
            rate = statistics.median(load.rate for load in loads)
            table.add_row(
                name,
                f"{rate:.0f}",
                f"{rate * size / 1e6:.1f}",
                f"{1e3 * costs[name] / total:.2f}",
                _percentiles([ms for load in loads for ms in load.post_ms]),
                _percentiles([ms for load in loads for ms in load.query_ms]),
            )
        console.print(table)
        ratios = sorted(mine.rate / bare.rate for mine, bare in zip(ours, floors, strict=True))
        client_cost = sum(load.client_processor_s for load in ours) / sum(
            load.posts for load in ours
        )
        console.print(
            f"aggregator / floor by turn: {', '.join(f'{ratio:.2f}' for ratio in ratios)}, median "
            f"{statistics.median(ratios):.2f}; backlog at the end of a turn {max(backlogs)} posts "
            f"at most, folded {max(folding_s):.2f} s later; refused (429) "
            f"{sum(load.refused for load in ours)}; the clients used {1e3 * client_cost:.2f} ms a "
            "post",
            highlight=False,
        )


def _raw(console: Console, service: _Service, turns: int, posts: int) -> None:
    numbers = _Numbers()
    _post(service, "lines", numbers.take(_CLIENTS))
    before = service.processor_s()
    loads = [_post(service, "lines", numbers.take(posts)) for _ in range(turns)]
    cost = service.processor_s() - before
    rows = _ROWS_OF_A_POST * sum(load.posts for load in loads)
    rate = statistics.median(load.rate for load in loads) * _ROWS_OF_A_POST
    console.print(
        f"raw observations, NDJSON, {_ROWS_OF_A_POST} a post: {rate:,.0f} rows/s, "
        f"{1e6 * cost / rows:.2f} us of processor a row, post ms p50 / p99 "
        f"{_percentiles([ms for load in loads for ms in load.post_ms])}",
        highlight=False,
    )


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
    names = ("fastapi", "starlette", "uvicorn", "sqlalchemy", "aiosqlite", "pydantic")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    console.print(f"{found}, SQLite {sqlite3.sqlite_version}", highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="decaysketch-benchmark-", dir=options.directory))
    data = str(directory / "aggregator.sqlite3")
    ours = {"DECAYSKETCH_DATA": data, "DECAYSKETCH_COMPUTE_THREADS": str(_DECODERS)}
    try:
        with (
            _serving(
                directory, "benchmarks.aggregator", "--floor", str(directory / "floor.sqlite3")
            ) as floor_service,
            _serving(directory, "api", **ours) as service,
        ):
            service.ask("PUT", "/v1/streams/s", {"params": PARAMS.to_dict()})
            _compare(console, floor_service, service, options.turns, options.posts, options.queries)
            _raw(console, service, options.turns, options.posts // 4)
            if options.minutes:
                log = Path(f"{data}-wal")
                _steady(console, service, log, minutes=options.minutes, rate=options.rate)
            with _serving(directory, "api", **ours) as other:
                _convergence(console, service, other, 20)
    finally:
        shutil.rmtree(directory)


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
