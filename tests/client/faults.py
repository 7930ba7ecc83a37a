"""An aggregator that is killed, a bad network, and sensors in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from support import fork_server

from decaysketch import DecaySketch, SketchParams
from decaysketch.asyncwindow import SumParams, SumSampler
from decaysketch.client import AsyncSensor, Sensor, StreamUnknownError
from quality.ports import free_port

ROOT = Path(__file__).parents[2]
PARAMS = SketchParams(max_weight=99, id_bits=40, capacity=150, seed=11, time_unit="s")
SUM = SumParams(max_sum=10**6, capacity=150, max_window=5_000, seed=5)
QUICK: dict[str, Any] = {
    "flush_rows": 400, "flush_age_s": 0.05, "timeout_s": 1.0, "backoff_s": 0.01,
    "max_backoff_s": 0.1, "trust_env": False,
}  # fmt: skip


class Aggregator:
    """``python -m api`` over one file, to be killed and started again at the same address."""

    def __init__(self, folder: Path, real: bool = False) -> None:
        self._start = _start_program if real else fork_server.start
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx2.Client(base_url=self.url, trust_env=False, timeout=60)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | fork_server.Forked | None = None

    def start(self) -> None:
        log = self._folder / "aggregator.log"
        data = str(self._folder / "aggregator.sqlite3")
        self._process = self._start(["--port", str(self.port), "--data", data], log)
        deadline = time.monotonic() + 1800
        while True:
            try:
                if self.client.get("/healthz").status_code == 200:
                    return
            except httpx2.TransportError:
                assert self._process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def create(self, stream: str, **form: Any) -> None:
        assert self.client.put(f"/v1/streams/{stream}", json=form).status_code == 201

    def sketch(self, stream: str) -> bytes:
        return self.client.get(f"/v1/streams/{stream}/sketch").content


def _start_program(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "api", *arguments], cwd=ROOT, stdout=sink, stderr=sink
        )


@contextmanager
def aggregator(folder: Path, real: bool = False) -> Iterator[Aggregator]:
    one = Aggregator(folder, real)
    one.start()
    try:
        yield one
    finally:
        one.kill()
        one.client.close()


# ------------------------------------------------------------------------------------- the network

FAULTS = (
    "refused", "cut request", "cut answer", "no answer", "slow", "drip", "503", "429", "portal"
)  # fmt: skip


class Proxy:
    """Stands before a server; ``choose`` names what happens to each request, None lets it pass.

    Attributes:
        seen: how often each fault happened; requests that passed are under None.
    """

    def __init__(self, port: int, choose: Callable[[], str | None]) -> None:
        self.choose = choose
        self.seen: dict[str | None, int] = {}
        self._upstream = port
        self._loop = asyncio.new_event_loop()
        self._server: Any = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0)
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            self._server.close()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self.choose()
        self.seen[fault] = self.seen.get(fault, 0) + 1
        try:
            await self._treat(fault, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # either side has gone: what this is for
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _treat(self, fault: str | None, reader: Any, writer: Any) -> None:
        if fault == "refused":
            return
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        if fault == "cut request":
            half = await reader.readexactly(length // 2)
            _, upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
            upstream.write(head + half)
            await upstream.drain()
            upstream.close()
            return
        body = await reader.readexactly(length)
        if fault == "503":
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n")
            writer.write(b"connection: close\r\n\r\n")
            return
        if fault == "429":
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n")
            writer.write(b"retry-after: 0.2\r\nconnection: close\r\n\r\n")
            return
        if fault == "portal":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n")
            writer.write(b"<html></html>")
            return
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
        upstream.write(head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1) + body)
        answer = await upstream_reader.read(-1)
        upstream.close()
        if fault == "no answer":
            return
        if fault == "slow":
            await asyncio.sleep(QUICK["timeout_s"] + 0.2)
        if fault == "drip":
            for place in range(0, len(answer), 8):
                writer.write(answer[place : place + 8])
                await writer.drain()
                await asyncio.sleep(0.05)
            return
        writer.write(answer[: len(answer) - 20] if fault == "cut answer" else answer)
        await writer.drain()


def at_random(seed: int, share: float) -> Callable[[], str | None]:
    """A fault, any of them, with so large a probability."""
    draw = random.Random(seed)
    return lambda: draw.choice(FAULTS) if draw.random() < share else None


# ------------------------------------------------------------------------------ what sensors feed

BATCHES = 60
ROWS = 50


def batch(number: int, source: str) -> tuple[Any, Any, Any, Any]:
    """Columns of one batch of a source's log; a tenth of it came in the batch before as well."""
    draw = np.random.default_rng([number, len(source), source.encode()[-1]])
    ids = ROWS * number + np.arange(ROWS) + 10**6 * source.encode()[-1]
    return draw.normal(20, 5, ROWS), draw.integers(1, 99, ROWS), 10 * number + ids % 10, ids


def whole(sources: tuple[str, ...], batches: int = BATCHES) -> DecaySketch:
    """What a build without any fault gives."""
    sketch = DecaySketch(PARAMS)
    for source in sources:
        for number in range(batches):
            sketch.update(*batch(number, source))
    return sketch


def element(number: int) -> tuple[int, int]:
    """Value and time of one element of a numbered log."""
    return 1 + number * 7919 % 1000, 1_000 + number * 31 % 997


def whole_sum(source: str, elements: int) -> SumSampler:
    sampler = SumSampler(SUM, source=source)
    columns = np.array([element(number) for number in range(elements)])
    sampler.update(columns[:, 0], columns[:, 1])
    return sampler


# ------------------------------------------------------------- a device, in a process of its own


def _note(progress: Path, number: int) -> None:
    with progress.open("a") as file:
        file.write(f"{number}\n")
        file.flush()
        os.fsync(file.fileno())


def _noted(progress: Path) -> int:
    return int(progress.read_text().split()[-1]) if progress.exists() else 0


def _restarted(program: Callable[..., None]) -> Callable[..., None]:
    """As a supervisor does it: where no answer said in time what the stream is, it starts anew."""

    @wraps(program)
    def run(*arguments: Any) -> None:
        while True:
            try:
                return program(*arguments)
            except StreamUnknownError:
                continue

    return run


@_restarted
def run_sensor(url: str, stream: str, source: str, spool: Path, progress: Path) -> None:
    """Feed the log from the batch on that was not synced when the last process died."""
    with Sensor(url, stream, source, spool=spool, **QUICK) as sensor:
        for number in range(_noted(progress), BATCHES):
            sensor.update(*batch(number, source))
            time.sleep(0.01)
            if number % 3 == 2:
                sensor.sync()
                _note(progress, number + 1)
        while not sensor.flush(1).done:
            pass


@_restarted
def run_async_sensor(url: str, stream: str, source: str, spool: Path, progress: Path) -> None:
    async def run() -> None:
        async with AsyncSensor(url, stream, source, spool=spool, **QUICK) as sensor:
            for number in range(_noted(progress), BATCHES):
                sensor.update(*batch(number, source))
                await asyncio.sleep(0.01)
                if number % 3 == 2:
                    await sensor.sync()
                    _note(progress, number + 1)
            while not (await sensor.flush(1)).done:
                pass

    asyncio.run(run())


@_restarted
def run_numbering_sensor(url: str, stream: str, source: str, spool: Path, elements: Path) -> None:
    """The spool itself knows where to go on."""
    wanted = int(elements.read_text())
    with Sensor(url, stream, source, spool=spool, numbered=True, **QUICK) as sensor:
        while (number := sensor.next_number) is not None and number < wanted:
            sensor.update_elements(*element(number), durable=number % 5 == 0)
            if number % 10 == 0:
                time.sleep(0.005)
        while not sensor.flush(1).done:
            pass
