"""``python -m quality.kill``: an aggregator is killed under load, again and again.

Ten clients post distinct sketches to five streams, one of each family, while compaction runs all
the time; where a family counts for sites, each posts the growing state of a site of its own. At a
random moment every process is killed without warning (SIGKILL), sometimes a single worker first,
sometimes the PostgreSQL server as well. Then all is started again over the same database, and each
client sends again the one post whose answer never came. From then on it is known exactly what was
acknowledged, and asked for exactly that:

- the merged sketch of each stream is, byte for byte, the library's merge of all acknowledged ones;
- each stream counts as many posts, and as many bytes, as were acknowledged. (A post that was on
  disk, and compacted away before it came again, is rightly counted twice.)

A round is: start, send again, compare, load, kill. Rounds go on over one database. The moments come
from the seed; what the machine does at them does not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from rich.console import Console
from rich.table import Table

import decaysketch as ds
from decaysketch import families
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
from quality.postgres import Database, PostgresServer
from quality.serving import Server, descendants

__all__ = ["LostPostError", "Outcome", "main", "run"]

_CLIENTS = 10
_SOURCES = ("gateway-1", "gateway-2", "gateway-3")
_ROWS = 60  # of a post
_NOW = 1_700_000_000
_START_S = 1800
_LONGEST_LOAD_S = 4.0
_AFTER = "Decaysketch-After"

_PARAMS = ds.SketchParams(
    max_weight=99, id_bits=40, capacity=3_000, seed=2**63 + 5, time_unit="s", value_type="float64"
)
_DECAY = ds.decay.integral.exponential(half_life=5_000)
_SUM = SumParams(max_sum=10**9, capacity=3_000, max_window=100_000, seed=5)
_ECM = ECMParams(width=30, depth=3, slots=5, seed=7)
_MEDIAN = MedianParams(max_count=10**9, capacity=3_000, max_window=100_000, seed=6)


class LostPostError(AssertionError):
    """A stream does not hold what was acknowledged; the message says which and how."""


# ------------------------------------------------------------------------------------------- posts


def _columns(number: int) -> tuple[Any, Any, Any, Any]:
    draw = np.random.default_rng(number)
    return (
        np.round(draw.normal(20, 5, _ROWS)),
        draw.integers(1, 100, _ROWS),
        draw.integers(_NOW - 50_000, _NOW, _ROWS),
        number * _ROWS + np.arange(_ROWS),
    )


def _decay(number: int) -> ds.DecaySketch:
    sketch = ds.DecaySketch(_PARAMS)
    sketch.update(*_columns(number))
    return sketch


def _integral(number: int) -> ds.IntegralDecaySketch:
    sketch = ds.IntegralDecaySketch(_PARAMS, _DECAY)
    sketch.update(*_columns(number), now=_NOW)
    return sketch


def _sum(number: int) -> SumSampler:
    _, weights, times, ids = _columns(number)
    sampler = SumSampler(_SUM, source="meter", next_number=int(ids[0]))
    sampler.update(weights, times)
    sampler.advance(_NOW)
    return sampler


def _median(number: int) -> MedianSampler:
    values, _, times, ids = _columns(number)
    sampler = MedianSampler(_MEDIAN, source="meter", next_number=int(ids[0]))
    sampler.update(values, times)
    sampler.advance(_NOW)
    return sampler


_counted: dict[int, ECMSketch] = {}  # by site, as far as it has counted


def _keys(number: int) -> ECMCollection:
    """The state of a site, one of those of the clients: each goes on from the one before."""
    _, weights, times, _ = _columns(number)
    site = number % _CLIENTS
    sketch = _counted.setdefault(site, ECMSketch(_ECM, source=f"tap-{site}", epoch=1))
    sketch.update(np.random.default_rng(number).zipf(1.5, _ROWS) % 1000, np.sort(times), weights)
    return ECMCollection(_ECM, [sketch])


_FAMILIES: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "chosen": (_decay, {"params": _PARAMS.to_dict()}),
    "fixed": (_integral, families.recipe_of(_integral(0).params, _DECAY).to_dict()),
    "sums": (_sum, families.recipe_of(_SUM).to_dict()),
    "medians": (_median, families.recipe_of(_MEDIAN).to_dict()),
    "keys": (_keys, families.recipe_of(_ECM).to_dict()),
}


@dataclass
class _Stream:
    """What the clients know of a stream."""

    name: str
    build: Callable[[int], Any]
    merged: Any = None
    fresh: list[Any] = field(default_factory=list)  # acknowledged, not in ``merged`` yet
    posts: int = 0
    posted_bytes: int = 0
    posts_twice: int = 0  # sent again, and not known to be duplicates
    bytes_twice: int = 0
    token: str = ""

    def acknowledge(self, sketch: Any, size: int, token: str, *, twice: bool) -> None:
        self.fresh.append(sketch)
        self.posts += 1
        self.posted_bytes += size
        if twice:
            self.posts_twice += 1
            self.bytes_twice += size
        if _number(token) >= _number(self.token):
            self.token = token

    def expected(self) -> bytes:
        """The bytes of everything acknowledged."""
        known = [] if self.merged is None else [self.merged]
        self.merged = families.merge([*known, *self.fresh])
        self.fresh.clear()
        blob: bytes = self.merged.to_bytes()
        return blob


def _number(token: str) -> int:
    return int(token.rpartition(":")[2] or 0)


@dataclass
class _Client:
    """Posts one sketch after another; at most one is in flight."""

    number: int
    stream: _Stream
    built: int = 0
    in_flight: tuple[str, Any] | None = None  # source and sketch
    tried: bool = False  # it was sent, and no answer came

    async def post(self, http: httpx2.AsyncClient) -> bool:
        """Post what is in flight, or the next, until it is acknowledged; whether it was on disk."""
        if self.in_flight is None:
            sketch = self.stream.build(self.built * _CLIENTS + self.number)
            self.in_flight = _SOURCES[self.built % len(_SOURCES)], sketch
            self.built += 1
            self.tried = False
        source, sketch = self.in_flight
        body = sketch.to_bytes()
        while True:
            first, self.tried = not self.tried, True
            answer = await http.post(
                f"/v1/streams/{self.stream.name}/sketches",
                params={"source": source},
                content=body,
                headers={"content-type": "application/octet-stream"},
            )
            if answer.status_code == 200:
                break
            if answer.status_code not in (429, 503) or "retry-after" not in answer.headers:
                raise LostPostError(f"a post was answered {answer.status_code}: {answer.text}")
            await asyncio.sleep(0.1)
        (posted,) = answer.json()["sketches"]
        duplicate = bool(posted["duplicate"])
        if first and duplicate:
            raise LostPostError("a sketch that was never sent is said to be a duplicate")
        self.stream.acknowledge(
            sketch, len(body), answer.json()["token"], twice=not first and not duplicate
        )
        self.in_flight = None
        return duplicate


# ----------------------------------------------------------------------------------------- service


class _Service(Server):
    """``python -m api`` over a database, compacting all the time."""

    def __init__(self, directory: Path, database: Database, workers: int) -> None:
        super().__init__(
            directory,
            {
                "DECAYSKETCH_DATA": database.url,
                "DECAYSKETCH_WORKERS": str(workers),
                "DECAYSKETCH_COMPACT_ROWS": "5",
                "DECAYSKETCH_COMPACT_BYTES": "1",
                "DECAYSKETCH_POLL_MS": "20",
                "DECAYSKETCH_LOG_FORMAT": "json",
            },
        )

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=60)

    def kill_one_worker(self) -> None:
        """Kill the newest of several workers; the others go on."""
        with suppress(ProcessLookupError):
            os.kill(descendants(self.process)[-1], signal.SIGKILL)


# ------------------------------------------------------------------------------------------ rounds


@dataclass
class Outcome:
    """Of all rounds together."""

    kind: str
    workers: int
    seed: int
    rounds: int = 0
    posts: int = 0
    worker_kills: int = 0
    database_kills: int = 0
    in_flight: int = 0
    in_flight_on_disk: int = 0
    generation: int = 0
    deleted: int = 0
    seconds: float = 0.0


class _Study:
    def __init__(
        self, directory: Path, database: Database, server: PostgresServer | None, outcome: Outcome
    ) -> None:
        self._database = database
        self._server = server
        self._outcome = outcome
        self._draw = random.Random(outcome.seed)
        self._service = _Service(directory, database, outcome.workers)
        self._streams = [_Stream(name, build) for name, (build, _) in _FAMILIES.items()]
        self._clients = [
            _Client(number, self._streams[number % len(self._streams)])
            for number in range(_CLIENTS)
        ]

    async def rounds(
        self,
        count: int,
        told: Callable[[Outcome], None],
        while_down: Callable[[Database], None],
    ) -> None:
        began = time.monotonic()
        try:
            for _ in range(count):
                self._service.start()
                async with self._service.client() as http:
                    await self._create(http)
                    await self._send_again(http)
                    await self._compare(http)
                await self._load_and_kill()
                self._outcome.rounds += 1
                self._outcome.posts = sum(stream.posts for stream in self._streams)
                self._outcome.seconds = time.monotonic() - began
                told(self._outcome)
                while_down(self._database)
            self._service.start()
            async with self._service.client() as http:
                await self._send_again(http)
                await self._compare(http)
            ((self._outcome.generation, self._outcome.deleted),) = self._database.execute(
                "SELECT generation, deleted FROM head"
            )
        finally:
            self._service.kill()

    async def _create(self, http: httpx2.AsyncClient) -> None:
        for name, (_, creation) in _FAMILIES.items():
            answer = await http.put(f"/v1/streams/{name}", json=creation)
            if answer.status_code not in (200, 201):
                raise LostPostError(f"stream {name!r} was answered {answer.text}")

    async def _send_again(self, http: httpx2.AsyncClient) -> None:
        for client in self._clients:
            if client.in_flight is not None:
                self._outcome.in_flight += 1
                self._outcome.in_flight_on_disk += await client.post(http)

    async def _compare(self, http: httpx2.AsyncClient) -> None:
        for stream in self._streams:
            if not stream.posts:
                continue
            after = {_AFTER: stream.token}
            answer = await http.get(f"/v1/streams/{stream.name}/sketch", headers=after)
            if answer.status_code != 200:
                raise LostPostError(f"stream {stream.name!r} was answered {answer.text}")
            if answer.content != stream.expected():
                found = families.decode(answer.content)
                raise LostPostError(
                    f"stream {stream.name!r} after {stream.posts} acknowledged posts: the merged "
                    f"sketch has {len(found)} rows, the merge of all posts {len(stream.merged)}"
                )
            await self._compare_counts(http, stream)

    async def _compare_counts(self, http: httpx2.AsyncClient, stream: _Stream) -> None:
        deadline = time.monotonic() + 600  # another worker may answer, a little behind
        while True:
            state = (await http.get(f"/v1/streams/{stream.name}")).json()
            found = state["posts"], state["posted_bytes"]
            if (
                0 <= found[0] - stream.posts <= stream.posts_twice
                and 0 <= found[1] - stream.posted_bytes <= stream.bytes_twice
            ):
                return
            if time.monotonic() > deadline:
                raise LostPostError(
                    f"stream {stream.name!r} counts {found} (posts, bytes); acknowledged were "
                    f"{(stream.posts, stream.posted_bytes)}"
                )
            await asyncio.sleep(0.05)

    async def _load_and_kill(self) -> None:
        load = [asyncio.create_task(self._post_on(client)) for client in self._clients]
        try:
            if self._draw.random() < 0.8:  # else it may be killed before it did anything
                await self._some_are_acknowledged()
            await asyncio.sleep(self._draw.uniform(0.0, _LONGEST_LOAD_S))
            if self._outcome.workers > 1 and self._draw.random() < 0.3:
                self._service.kill_one_worker()
                self._outcome.worker_kills += 1
                await asyncio.sleep(self._draw.uniform(0.05, 1.0))
            both = self._server is not None and self._draw.random() < 0.25
            database_first = self._draw.random() < 0.5
            if self._server is not None and both and database_first:
                self._server.kill()
                await asyncio.sleep(self._draw.uniform(0.0, 0.2))
            self._service.kill()
            if self._server is not None and both:
                if not database_first:
                    self._server.kill()
                self._server.start()
                self._outcome.database_kills += 1
        finally:
            self._service.kill()
            await asyncio.gather(*load)

    async def _some_are_acknowledged(self) -> None:
        before = sum(stream.posts for stream in self._streams)
        deadline = time.monotonic() + _START_S
        while sum(stream.posts for stream in self._streams) < before + _CLIENTS:
            if time.monotonic() > deadline:
                raise LostPostError(f"fewer than {_CLIENTS} posts were taken in {_START_S} s")
            await asyncio.sleep(0.01)

    async def _post_on(self, client: _Client) -> None:
        """Post until the service is gone."""
        async with self._service.client() as http:
            while True:
                try:
                    await client.post(http)
                except httpx2.ConnectError:
                    return
                except httpx2.TransportError:
                    pass  # one worker of several, or all: the next attempt tells


def run(
    rounds: int,
    kind: str,
    *,
    workers: int = 1,
    seed: int = 1,
    told: Callable[[Outcome], None] = lambda _outcome: None,
    while_down: Callable[[Database], None] = lambda _database: None,
) -> Outcome:
    """Kill an aggregator ``rounds`` times.

    Args:
        rounds: kills.
        kind: "sqlite" or "postgresql".
        workers: processes that serve.
        seed: of the moments.
        told: called after each round.
        while_down: called after each kill; a test of this study takes something away.

    Raises:
        LostPostError: something acknowledged is missing, or something else is there. The database
            and the log stay where the message says.
        ServerUnavailableError: there is no PostgreSQL here.
    """
    outcome = Outcome(kind, workers, seed)
    directory = Path(tempfile.mkdtemp(prefix="decaysketch-kill-"))
    server = PostgresServer() if kind == "postgresql" else None
    try:
        if server is not None:
            server.start()
            database = server.create()
        else:
            database = Database("sqlite", f"sqlite:///{directory / 'aggregator.sqlite3'}")
        study = _Study(directory, database, server, outcome)
        asyncio.run(study.rounds(rounds, told, while_down))
    except LostPostError as error:
        raise LostPostError(f"{error} (round {outcome.rounds + 1}, {directory})") from error
    else:
        shutil.rmtree(directory)
        return outcome
    finally:
        if server is not None:
            server.remove()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.kill", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    console = Console()

    def tell(outcome: Outcome) -> None:
        console.print(
            f"round {outcome.rounds}: {outcome.posts} posts acknowledged, "
            f"{outcome.in_flight} in flight when killed, {outcome.in_flight_on_disk} of them on "
            f"disk, {outcome.seconds:.0f} s",
            highlight=False,
        )

    try:
        outcome = run(
            options.rounds,
            options.database,
            workers=options.workers,
            seed=options.seed,
            told=tell,
        )
    except LostPostError as error:
        console.print(f"LOST: {error}", style="bold red", highlight=False)
        return 1
    table = Table("figure", "value", title="kill -9 under load: nothing acknowledged is missing")
    for name, value in vars(outcome).items():
        table.add_row(name.replace("_", " "), f"{value:.0f}" if name == "seconds" else str(value))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
