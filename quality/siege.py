"""``python -m quality.siege``: an aggregator under attack by its own clients, key and all.

Each attack is what a client of one role, for streams of its own, can send, repeated from several
connections for as long as is asked: bodies of a few bytes that stand for millions of rows,
expressions that take long to read, lists and downloads in a loop, JSON that is cheap to send and
dear to parse, the heaviest questions at a time, and a foreign web page at a server without keys.
Others are attacks on what all keys share (:mod:`quality.sharing`).
Meanwhile others go on: ``/healthz`` is asked, a neighbour with a key of its own posts sketches and
observations of 10 KB and of 5,000 rows, and asks small questions. At the end the process is killed
and started again over what the attack has left.

Printed are what was sent, how it was answered, the most memory beside the bound that
``api.resources`` computes from the settings, the worst answers that the others had, and what
the start took. The status is 1 if memory passed the bound, an answer to the others took a second,
or something was answered 500.

``--attempts N`` sends N bodies drawn at random from the first kind instead: families, parameters,
compressions, several sketches in one body, raw rows.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import itertools
import json
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import numpy as np
from rich.console import Console
from rich.table import Table

import decaysketch as ds
from api.resources import bound_bytes
from api.settings import Settings
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.families import recipe_of
from quality import sharing
from quality.besieging import REQUEST_S, Attack, Request, send
from quality.serving import ROOT, Server

__all__ = ["ATTACKS", "Attack", "Outcome", "besiege", "main"]

_SKETCH = "application/octet-stream"
_SKETCHES = "application/vnd.decaysketch.sketches"
_NDJSON = "application/x-ndjson"
_JSON = "application/json"
_NEIGHBOUR = "neighbour"
_NEIGHBOUR_ROWS, _NEIGHBOUR_LINES = 1_400, 300  # bodies of about 10 KB
_NEIGHBOUR_MANY = 5_000  # rows of a longer one
_PARAMS = ds.SketchParams(
    max_weight=99, id_bits=40, capacity=14_000, seed=7, time_unit="s", value_type="float64"
)
_TOLD_EVERY = 5_000  # requests
_WAIT_S = 0.1  # between two requests of the others
_LONGEST_S = 1.0  # an answer to the others
_BUSY_S = 0.5  # of a second, a second after the attack
_LONGEST_BODY = 16 << 20


# ----------------------------------------------------------------------------------------- bodies


def _now() -> int:
    return int(time.time()) - 10


def _typed(media: str, coding: str | None = None) -> tuple[tuple[str, str], ...]:
    typed = (("Content-Type", media),)
    return typed if coding is None else (*typed, ("Content-Encoding", coding))


def _several(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "little") + body for body in bodies)


def _copies(body: bytes, count: int) -> list[bytes]:
    """As many as a request may hold, at most ``count``."""
    return [body] * min(count, max(1, _LONGEST_BODY // len(body)))


def _dense(family: str, rows: int) -> tuple[dict[str, Any], bytes]:
    """A stream, and a sound sketch of so many rows that takes as few bytes as it can."""
    times = np.full(rows, _now() // 1000 * 1000)  # the same for as long as a study takes
    if family == "sum":
        sums = SumParams(max_sum=1 << 40, capacity=rows, max_window=10**6, seed=5)
        summed = SumSampler(sums, source="s", next_number=0)
        summed.update(np.ones(rows, dtype=np.int64), times)
        return recipe_of(sums).to_dict(), summed.to_bytes()
    if family == "median":
        counts = MedianParams(max_count=1 << 40, capacity=rows, max_window=10**6, seed=6)
        ranked = MedianSampler(counts, source="s", next_number=0)
        ranked.update(np.zeros(rows), times)
        return recipe_of(counts).to_dict(), ranked.to_bytes()
    params = ds.SketchParams(
        max_weight=1, id_bits=24, id_mix="none", capacity=rows, seed=3, time_unit="s"
    )
    nothing = np.ma.masked_array(np.zeros(rows), mask=True)
    if family == "integral":
        decay = ds.decay.integral.window(10**6)
        fixed = ds.IntegralDecaySketch(params, decay)
        fixed.update(nothing, 1, times, np.arange(rows))
        return recipe_of(params, decay).to_dict(), fixed.to_bytes()
    chosen = ds.DecaySketch(params)
    chosen.update(nothing, 1, times, np.arange(rows))
    return recipe_of(params).to_dict(), chosen.to_bytes()


@cache
def _lines(rows: int) -> bytes:
    now = _now()
    return b"\n".join(b'{"time":%d,"id":%d}' % (now, number) for number in range(rows))


def _posts(stream: str, source: str, media: str, body: bytes, coding: str | None) -> Request:
    kind = "observations" if media in (_NDJSON, _JSON) else "sketches"
    if coding == "gzip":
        body = _gzipped(body)
    path = f"/v1/streams/{stream}/{kind}?source={source}"
    return Request("POST", path, body, _typed(media, coding))


@lru_cache(maxsize=32)
def _gzipped(body: bytes) -> bytes:
    return gzip.compress(body, 9)


# ---------------------------------------------------------------------------------------- attacks


def _no_preparation(_http: httpx2.Client) -> None:
    pass


def _stream(http: httpx2.Client, name: str) -> None:
    http.put(f"/v1/streams/{name}", json={"params": _PARAMS.to_dict()}).raise_for_status()


def _creates(stream: str, form: dict[str, Any]) -> Request:
    return Request("PUT", f"/v1/streams/{stream}", json.dumps(form).encode(), _typed(_JSON))


def _rows(connection: int, _draw: random.Random) -> Iterator[Request]:
    """A few KB that stand for millions of rows, under ever new sources."""
    family = ("decay", "integral", "sum", "median")[connection % 4]
    stream = f"siege-rows-{family}"
    form, body = _dense(family, 1 << 20)
    yield _creates(stream, form)
    for number in itertools.count():
        source = f"{connection}-{number}"
        yield _posts(stream, source, _SKETCH, body, "gzip")
        if number % 10 == 3:
            yield _posts(stream, source, _SKETCHES, _several(_copies(body, 40)), "gzip")
        if number % 10 == 6 and family == "decay":
            yield _posts(stream, source, _NDJSON, _lines(100_000), "gzip")
        if number % 10 == 9:
            yield _posts(stream, source, _SKETCH, body[: len(body) // 2], None)  # torn


_SCALES = (601, 607, 613, 617, 619, 631, 641, 643, 647, 653, 659, 661, 673, 677, 683)
_ROOTS = (31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def _expressions(connection: int, draw: random.Random) -> Iterator[Request]:
    """Decays whose text takes long to read, each another one."""
    params = ds.SketchParams(max_weight=999, id_bits=30, capacity=100, seed=1, time_unit="s")
    for number in itertools.count():
        factors = (
            f"(1+x/{scale + draw.randrange(99)})**(-1/{root})"
            for scale, root in zip(_SCALES, _ROOTS, strict=True)
        )
        text = f"floor(w*{'*'.join(factors)})"
        form = {
            "family": "integral",
            "params": params.to_dict(),
            "decay": {"kind": "expression", "text": text},
        }
        yield _creates(f"siege-expression-{connection}-{number}", form)


def _many_streams(http: httpx2.Client) -> None:
    """Forty streams of 100,000 rows."""
    for number in range(40):
        name = f"siege-{number}"
        _stream(http, name)
        body = _neighbours_sketch(number, 100_000)
        http.post(
            f"/v1/streams/{name}/sketches",
            params={"source": "a"},
            content=body,
            headers=dict(_typed(_SKETCH)),
        ).raise_for_status()


def _readers(connection: int, draw: random.Random) -> Iterator[Request]:
    """Lists, states, downloads and curves, in a loop."""
    while True:
        name = f"siege-{draw.randrange(40)}"
        scale = draw.randrange(1, 10**6)
        curve = {
            "decay": {"kind": "expression", "text": f"1/(1 + log(1 + sqrt(x)/{scale}))"},
            "ages": {"stop": 10**6, "points": 2000},
        }
        yield from (
            Request("GET", "/v1/streams"),
            Request("GET", f"/v1/streams/{name}"),
            Request("GET", f"/v1/streams/{name}/sketch"),
            Request("POST", "/v1/decays/curve", json.dumps(curve).encode(), _typed(_JSON)),
        )


def _json_bombs(connection: int, draw: random.Random) -> Iterator[Request]:
    """JSON of a few KB that is megabytes once inflated, and dear to parse."""
    objects = (b"{}," * 200 + b'{"%x":0},' % draw.getrandbits(32) for _ in range(6_400))
    empty = b'{"streams":["siege-json"],"queries":[' + b"".join(objects) + b"{}]}"  # 3.9 MiB
    nested = b"\n".join(b"[" * 900 + b"%x" % draw.getrandbits(64) for _ in range(4_000))
    while True:
        yield Request("POST", "/v1/query", _gzipped(empty), _typed(_JSON, "gzip"))
        path = "/v1/streams/siege-json/query"
        yield Request("POST", path, _gzipped(empty), _typed(_JSON, "gzip"))
        yield Request(
            "PUT", f"/v1/streams/siege-json-{connection}", _gzipped(empty), _typed(_JSON, "gzip")
        )
        yield _posts("siege-json", "a", _NDJSON, nested, "gzip")
        yield _posts("siege-json", "a", _NDJSON, b"[" * 99_999 + b"\n" + nested, "gzip")


def _json_stream(http: httpx2.Client) -> None:
    _stream(http, "siege-json")


def _heavy_queries(_connection: int, draw: random.Random) -> Iterator[Request]:
    """The heaviest questions there are."""
    while True:
        name = f"siege-{draw.randrange(40)}"
        scale = draw.randrange(1, 10**6)
        ask = {
            "queries": [
                {
                    "aggregate": "quantile",
                    "q": [draw.random() for _ in range(20)],
                    "decay": {"kind": "exponential", "half_life": scale + number},
                    "now": _now(),
                }
                for number in range(50)
            ]
        }
        body = json.dumps(ask).encode()
        yield Request("POST", f"/v1/streams/{name}/query", body, _typed(_JSON))


def _abandoned(connection: int, draw: random.Random) -> Iterator[Request]:
    """The heaviest questions and downloads, by clients that hang up."""
    asked = _readers if connection % 2 else _heavy_queries
    for each in asked(connection, draw):
        yield replace(each, way="hang-up", hold_s=0.3)


def _foreign_page(_connection: int, _draw: random.Random) -> Iterator[Request]:
    """What the script of another site can send to a server on this machine."""
    revoke = f"/v1/streams/{_NEIGHBOUR}/sources/a/revoke"
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    foreign = ("Origin", "https://elsewhere.example")
    while True:
        yield from (
            Request("POST", revoke, b"", (foreign,)),
            Request("POST", revoke, b"", (("Sec-Fetch-Site", "cross-site"),)),
            Request("POST", revoke, b"", (("Sec-Fetch-Site", "same-site"),)),
            Request("POST", revoke, b"", ()),
            Request("POST", revoke, b"a=b", (foreign, *form)),
            Request("POST", revoke, b"a=b", form),
            Request("POST", revoke, b"{}", (*_typed(_JSON), ("X-Forwarded-For", "10.0.0.1"))),
            Request("POST", revoke, b"{}", (*_typed(_JSON), ("Via", "1.1 proxy"))),
            Request("DELETE", f"/v1/streams/{_NEIGHBOUR}", b"", (foreign,)),
        )


_FAMILIES = ("decay", "integral", "sum", "median")
_BITS = (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20)  # of the rows of a sketch


@cache
def _of_any_size() -> list[tuple[str, dict[str, Any], bytes]]:
    """Streams, each with a sketch that is as full as it can be."""
    return [
        (f"siege-any-{family}-{bits}", *_dense(family, 1 << bits))
        for family in _FAMILIES
        for bits in _BITS
    ]


def _any_body(connection: int, draw: random.Random) -> Iterator[Request]:
    """Of all that may stand for many rows, at random."""
    made = _of_any_size()
    if connection == 0:
        for stream, form, _ in made:
            yield _creates(stream, form)
    # Of few rows and few sketches mostly, or a large one would take up the time of a thousand.
    weights = [2.0 ** (-bits / 2) for _ in _FAMILIES for bits in _BITS]
    while True:
        ((stream, _, body),) = draw.choices(made, weights)
        source = f"{draw.randrange(draw.choice((3, 10**6)))}"
        coding = draw.choice((None, "gzip", "gzip"))
        choice = draw.random()
        if choice < 0.1 and "decay" in stream:
            rows = 10 ** draw.choice((1, 1, 1, 2, 2, 3, 4, 5))
            yield _posts(stream, source, _NDJSON, _lines(rows), coding)
        elif choice < 0.4:
            (count,) = draw.choices((2, 10, 40, 1000), (64, 16, 4, 1))
            bodies = _copies(body, count)
            yield _posts(stream, source, _SKETCHES, _several(bodies), "gzip")
        elif choice < 0.5:
            cut = body[: draw.randrange(len(body))]
            yield _posts(stream, source, _SKETCH, cut, coding)
        else:
            yield _posts(stream, source, _SKETCH, body, coding)


ATTACKS: dict[str, Attack] = {
    "rows": Attack("write", _no_preparation, _rows, connections=4),
    "foreign": Attack(None, _no_preparation, _foreign_page, connections=2, refused=True),
    "expressions": Attack("write", _no_preparation, _expressions),
    "readers": Attack("read", _many_streams, _readers, connections=16),
    "json": Attack("write", _json_stream, _json_bombs),
    "queries": Attack("read", _many_streams, _heavy_queries, connections=48),
    "abandoned": Attack("read", _many_streams, _abandoned, connections=16, leaves=True),
}
ATTACKS |= sharing.ATTACKS
_ATTEMPTS = Attack("write", _no_preparation, _any_body)


# --------------------------------------------------------------------------------------- attackers


@dataclass
class Sent:
    """What the attackers sent, and how it was answered."""

    requests: int = 0
    sent_bytes: int = 0
    answers: Counter[int] = field(default_factory=Counter)


def _attackers(
    attack: Attack, port: int, key: str | None, seconds: float, attempts: int, seed: int, told: Any
) -> None:
    """A process of clients; tells what they did by a pipe."""
    sent, lock = Sent(), threading.Lock()
    streams = [attack.requests(n, random.Random(seed + n)) for n in range(attack.connections)]
    first = [next(requests) for requests in streams]  # bodies are made before time counts
    told.send("ready")
    end = time.monotonic() + seconds

    def client(begin: Request, requests: Iterator[Request]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_S)
        for request in itertools.chain([begin], requests):
            with lock:
                if time.monotonic() > end or (attempts and sent.requests >= attempts):
                    return
                sent.requests += 1
                sent.sent_bytes += len(request.body)
                if not sent.requests % _TOLD_EVERY:
                    told.send(sent.requests)
            status = send(connection, request, key)
            with lock:
                sent.answers[status] += 1

    threads = [
        threading.Thread(target=client, args=each) for each in zip(first, streams, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.send(sent)


# ------------------------------------------------------------------------------------------ others


def _neighbours_sketch(seed: int, rows: int) -> bytes:
    draw = np.random.default_rng(seed)
    sketch = ds.DecaySketch(_PARAMS)
    sketch.update(
        np.round(draw.normal(20, 5, rows), 1),
        draw.integers(1, 100, rows),
        _now() - draw.integers(0, 5_000, rows),
        draw.integers(0, 1 << _PARAMS.id_bits, rows),
    )
    return sketch.to_bytes()


@dataclass
class Worst:
    """Longest answers, in seconds, and those that were none."""

    health_s: float = 0.0
    post_s: float = 0.0
    long_post_s: float = 0.0
    query_s: float = 0.0
    faults: list[str] = field(default_factory=list)


async def _others(url: str, key: str | None, worst: Worst, stopped: Callable[[], bool]) -> None:
    """Who goes on meanwhile."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    sketches = itertools.cycle([_neighbours_sketch(n, _NEIGHBOUR_ROWS) for n in range(50)])
    lines = itertools.repeat(_lines(_NEIGHBOUR_LINES))
    many = itertools.repeat(_lines(_NEIGHBOUR_MANY))
    decay = {"kind": "exponential", "half_life": 600}
    ask = json.dumps({"queries": [{"aggregate": "sum", "decay": decay}]}).encode()

    # Let go of before the server does, or a request may meet a connection that it is closing.
    limits = httpx2.Limits(keepalive_expiry=1.0)
    async with httpx2.AsyncClient(
        base_url=url, trust_env=False, timeout=REQUEST_S, headers=headers, limits=limits
    ) as http:

        async def timed(
            what: str,
            path: str,
            bodies: Iterator[bytes] | None = None,
            headers: tuple[tuple[str, str], ...] = (),
        ) -> None:
            while not stopped():
                method = "GET" if bodies is None else "POST"
                body = None if bodies is None else next(bodies)
                began = time.monotonic()
                answer = await http.request(method, path, content=body, headers=dict(headers))
                took = time.monotonic() - began
                setattr(worst, what, max(getattr(worst, what), took))
                if answer.status_code != 200:
                    worst.faults.append(f"{method} {path}: {answer.status_code} {answer.text}")
                await asyncio.sleep(_WAIT_S)

        path = f"/v1/streams/{_NEIGHBOUR}"
        await asyncio.gather(
            timed("health_s", "/healthz"),
            timed("post_s", f"{path}/sketches?source=a", sketches, _typed(_SKETCH)),
            timed("post_s", f"{path}/observations?source=b", lines, _typed(_NDJSON)),
            timed("long_post_s", f"{path}/observations?source=c", many, _typed(_NDJSON)),
            timed("query_s", f"{path}/query", itertools.repeat(ask), _typed(_JSON)),
        )


# ------------------------------------------------------------------------------------------- siege


@dataclass
class Outcome:
    """Of one attack."""

    name: str
    seconds: float
    sent: Sent
    worst: Worst
    idle_bytes: int
    peak_bytes: int
    bound_bytes: int
    restart_s: float
    restart_peak_bytes: int
    database_bytes: int
    busy_s: float = 0.0  # of processor time, in the second after the first when nobody asks
    faults: list[str] = field(default_factory=list)


def besiege(
    name: str,
    attack: Attack,
    *,
    seconds: float,
    attempts: int = 0,
    seed: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Serve, attack, kill, and start again.

    Args:
        name: of the attack, to be printed.
        attack: what is sent.
        seconds: how long.
        attempts: end after so many requests; 0: whatever their number.
        seed: of what is random in it.
        settings: of the service, as variables of its environment; else its defaults.
    """
    with tempfile.TemporaryDirectory(prefix="decaysketch-siege-") as folder:
        data = Path(folder) / "aggregator.sqlite3"
        auth = "auto" if attack.role is None else "keys"
        environment = {**settings, "DECAYSKETCH_DATA": str(data), "DECAYSKETCH_AUTH": auth}
        keys = dict.fromkeys(("owner", "neighbour", "attacker"))
        if attack.role is not None:
            keys = {
                "owner": _mint("admin", "*", environment),
                "neighbour": _mint("write", _NEIGHBOUR, environment),
                "attacker": _mint(attack.role, "siege-*", environment),
            }
        server = Server(Path(folder), environment)
        try:
            server.start()
            owner = {} if keys["owner"] is None else {"Authorization": f"Bearer {keys['owner']}"}
            with httpx2.Client(
                base_url=server.url, trust_env=False, timeout=REQUEST_S, headers=owner
            ) as http:
                _stream(http, _NEIGHBOUR)
                attack.prepare(http)
            idle = server.resident_bytes()
            sent, worst, took = _attacked(server, attack, keys, seconds, attempts, seed)
            peak = server.peak_bytes()
            time.sleep(1)
            busy = -server.processor_s()
            time.sleep(1)
            busy += server.processor_s()
            server.kill()
            restart_s = server.start()
            restart_peak = server.peak_bytes()
            with closing(sqlite3.connect(data)) as database:
                ((pages,),) = database.execute("PRAGMA page_count").fetchall()
                ((size,),) = database.execute("PRAGMA page_size").fetchall()
        finally:
            server.kill()
        bound = bound_bytes(Settings.from_environment(environment))
        outcome = Outcome(
            name, took, sent, worst, idle, peak, bound, restart_s, restart_peak,
            pages * size, busy,
        )  # fmt: skip
        outcome.faults = list(_faults(outcome, attack))
        return outcome


def _mint(role: str, scope: str, environment: Mapping[str, str]) -> str:
    """A key, made by the command that operators use."""
    made = subprocess.run(
        [sys.executable, "-m", "api", "keys", "mint", "--role", role, "--scope", scope],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return next(word for word in made.stdout.split() if word.startswith("ds_"))


def _attacked(
    server: Server,
    attack: Attack,
    keys: dict[str, str | None],
    seconds: float,
    attempts: int,
    seed: int,
) -> tuple[Sent, Worst, float]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    port = int(server.url.rpartition(":")[2])
    process = context.Process(
        target=_attackers,
        args=(attack, port, keys["attacker"], seconds, attempts, seed, theirs),
    )
    process.start()
    try:
        assert ours.recv() == "ready"
        began = time.monotonic()
        worst, last = Worst(), list[Sent]()

        def over() -> bool:
            while not last and ours.poll():
                said = ours.recv()
                if isinstance(said, Sent):
                    last.append(said)
                else:
                    print(f"{said} requests, {server.peak_bytes() >> 20} MiB at most", flush=True)
            return bool(last) or not process.is_alive()

        asyncio.run(_others(server.url, keys["neighbour"], worst, over))
        if not over() or not last:
            raise RuntimeError("the attackers have ended without a word")
        return last[0], worst, time.monotonic() - began
    finally:
        process.kill()
        process.join()


def _faults(outcome: Outcome, attack: Attack) -> Iterator[str]:
    worst = outcome.worst
    if outcome.peak_bytes > outcome.bound_bytes:
        yield f"memory reached {outcome.peak_bytes}; the bound is {outcome.bound_bytes}"
    if outcome.restart_peak_bytes > outcome.bound_bytes:
        yield (
            f"the start took {outcome.restart_peak_bytes} bytes; the bound is {outcome.bound_bytes}"
        )
    for what, took in (
        ("/healthz", worst.health_s),
        ("a post of another", worst.post_s),
        (f"a post of {_NEIGHBOUR_MANY} rows of another", worst.long_post_s),
    ):
        if took >= _LONGEST_S:
            yield f"{what} waited {took:.2f} s"
    if attack.leaves and outcome.busy_s >= _BUSY_S:
        yield f"a second after the last client had left the server was busy for {outcome.busy_s} s"
    if failed := {status for status in outcome.sent.answers if status >= 500} - {503, 507}:
        yield f"answered {sorted(failed)}; expected 503 or 507 at the most"
    if attack.refused and (taken := [each for each in outcome.sent.answers if each < 400]):
        yield f"answered {taken}; expected refusals alone"
    yield from worst.faults[:5]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.siege", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("attacks", nargs="*", help=f"of {', '.join(ATTACKS)}; all if none is named")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each attack")
    parser.add_argument("--attempts", type=int, default=0, help="bodies at random, instead")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if unknown := set(options.attacks) - ATTACKS.keys():
        parser.error(f"{sorted(unknown)} are no attacks; expected some of {', '.join(ATTACKS)}")
    if options.attempts:
        wanted = {"attempts": _ATTEMPTS}
    else:
        wanted = {name: ATTACKS[name] for name in options.attacks or ATTACKS}
    console = Console(width=140)
    outcomes = []
    for name, attack in wanted.items():
        seconds = float("inf") if options.attempts else options.seconds
        console.print(f"{name}: begins", style="dim")
        outcomes.append(
            besiege(name, attack, seconds=seconds, attempts=options.attempts, seed=options.seed)
        )
        _tell(console, outcomes[-1], leaves=attack.leaves)
    console.print(_table(outcomes))
    return 1 if any(outcome.faults for outcome in outcomes) else 0


def _tell(console: Console, outcome: Outcome, *, leaves: bool) -> None:
    answers = ", ".join(f"{count} x {status}" for status, count in outcome.sent.answers.items())
    console.print(
        f"{outcome.name}: {outcome.sent.requests} requests, {outcome.sent.sent_bytes} bytes in "
        f"{outcome.seconds:.0f} s: {answers}; database {outcome.database_bytes >> 20} MiB"
    )
    if leaves:
        console.print(f"  busy for {outcome.busy_s:.2f} s of the second second without clients")
    for fault in outcome.faults:
        console.print(f"  FAULT {fault}", markup=False)


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Memory in MiB; worst answers to others in seconds")
    for column in ("attack", "requests", "KB sent", "before", "peak", "bound", "/healthz", "post",
                   "5,000 rows", "query", "start s", "start peak"):  # fmt: skip
        table.add_column(column, justify="left" if column == "attack" else "right")
    for each in outcomes:
        table.add_row(
            each.name,
            str(each.sent.requests),
            f"{each.sent.sent_bytes / 1000:.0f}",
            str(each.idle_bytes >> 20),
            str(each.peak_bytes >> 20),
            str(each.bound_bytes >> 20),
            f"{each.worst.health_s:.2f}",
            f"{each.worst.post_s:.2f}",
            f"{each.worst.long_post_s:.2f}",
            f"{each.worst.query_s:.2f}",
            f"{each.restart_s:.1f}",
            str(each.restart_peak_bytes >> 20),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
