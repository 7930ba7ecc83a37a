"""``replay``: logs of deliveries over real processes and HTTP, which are killed.

An aggregator (``python -m api``) and a process with a :class:`~decaysketch.client.Sensor` for each
site; every site takes what it heard in the log, at the moments at which it did. Sites and the
aggregator are killed (SIGKILL) at moments that the seed draws, and started again over what they had
on disk.

*Faster than the log.* All times of the log, and the decay's mean life, are divided by one number,
so that the decayed count is that of the log at every moment; the life is then ``--life`` seconds.
Leases are of the clock, and as long as the decay's life, as in ``alerts``. What is not divided is
what machines need: a round trip, the second in which a state is found out, the second of a
``Date``. The replay is thus harsher than the log: more arrives in a round trip by that number.

*What is held.* Each site writes when it began to take rows and when it had; so at every moment the
count is known from both sides. A state that is read was found out in the ``STATE_S`` before.

* firing: the count was at ``(1 - within) T`` at some moment of these;
* calm: not all these moments, and those of a lease and ``REPORT_S`` before, were beyond T.

Besides: how long it takes from an update that crosses the line to the webhook, and whether an alert
that waits in the outbox is told after the aggregator was killed.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import struct
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import numpy as np

import decaysketch as ds
from decaysketch.client import Admin, Sensor
from decaysketch.monitor import Threshold
from quality.figures.claims import Claim, Figure
from quality.figures.report import Report, Table
from quality.monitor.alerts import Deliveries, deliveries
from quality.serving import Server

__all__ = ["main", "produce"]

STATE_S: Final = 2.5
REPORT_S: Final = 5.0
_TICK_S: Final = 0.05
_POLL_S: Final = 0.1
_RECORD: Final = struct.Struct("<dqq")  # moment; rows from, to: negative while they are taken
_PARAMS: Final = ds.SketchParams(
    max_weight=1, id_bits=40, seed=1, time_unit="us", capacity=1_000_000
)
_CONTEXT: Final = multiprocessing.get_context("forkserver")


class Replayed(NamedTuple):
    """One run.

    Attributes:
        log, line, within, sites, deliveries: of what.
        posts: with rows, as the aggregator counted.
        kills: of sites and of the aggregator.
        looks, uncertain: states that were read, and the share that were neither.
        fired: how often it came to be firing.
        missed, false: states that were not as promised.
        lag_s: the longest that the count was beyond T and the state calm.
        highest: the largest count at a look, as a share of T: where it is below 1, nothing could be
            missed.
    """

    log: str
    line: str
    within: float
    sites: int
    deliveries: int
    posts: int
    kills: int
    looks: int
    uncertain: float
    fired: int
    missed: int
    false: int
    lag_s: float
    highest: float

    @property
    def saved(self) -> float:
        """Deliveries for each post."""
        return self.deliveries / max(self.posts, 1)


@dataclass(frozen=True)
class _Part:
    """What one site hears: seconds from the beginning, and ids of the messages."""

    times: Any
    stamps: Any
    ids: Any


# ------------------------------------------------------------------------------------------ a site


def _site(url: str, name: str, folder: Path, begin: float, end: float) -> None:
    """Take what is heard until the end, from where the last process came to."""
    rows = np.load(folder / f"{name}.npz")
    times, stamps, ids = rows["times"], rows["stamps"], rows["ids"]
    notes = folder / f"{name}.notes"
    done = max((to for _, _, to in _records(notes) if to > 0), default=0)
    with (
        notes.open("ab", buffering=0) as file,
        Sensor(
            url, "log", name, spool=folder / name, monitors=True, flush_age_s=3600,
            flush_rows=10**6, trust_env=False, backoff_s=0.1, max_backoff_s=1.0, timeout_s=20,
        ) as sensor,
    ):  # fmt: skip
        while (now := time.time()) < end:
            to = int(np.searchsorted(times, now - begin, "right"))
            if to > done:
                file.write(_RECORD.pack(time.time(), done, -to))
                moments = ((begin + stamps[done:to]) * 1e6).astype(np.int64)
                sensor.update(None, 1, moments, ids[done:to], durable=True)
                file.write(_RECORD.pack(time.time(), done, to))
                done = to
            time.sleep(_TICK_S)


def _records(path: Path) -> list[tuple[float, int, int]]:
    content = path.read_bytes() if path.exists() else b""
    whole = len(content) // _RECORD.size * _RECORD.size
    return list(_RECORD.iter_unpack(content[:whole]))


# --------------------------------------------------------------------------------------- the truth


class _Truth:
    """The decayed count at any moment, of the messages that were taken for certain by then, or
    that may have been."""

    def __init__(self, parts: dict[str, _Part], folder: Path, begin: float, life: float) -> None:
        self._life = life
        self._sides = [self._columns(parts, folder, begin, taken) for taken in (True, False)]

    def _columns(
        self, parts: dict[str, _Part], folder: Path, begin: float, taken: bool
    ) -> tuple[Any, Any]:
        first: dict[int, float] = {}
        stamps: dict[int, float] = {}
        for name, part in parts.items():
            for at, start, to in _records(folder / f"{name}.notes"):
                if (to > 0) != taken:
                    continue
                for row in range(start, abs(to)):
                    message = int(part.ids[row])
                    first[message] = min(first.get(message, math.inf), at)
                    stamps[message] = begin + float(part.stamps[row])
        order = sorted(first, key=lambda message: first[message])
        moments = np.array([first[message] for message in order])
        return moments, np.array([stamps[message] for message in order])

    def count(self, now: float, *, certain: bool) -> float:
        at, stamps = self._sides[0 if certain else 1]
        held = int(np.searchsorted(at, now, "right"))
        ages = np.maximum(now - stamps[:held], 0.0)
        return float(np.exp(-ages / self._life).sum())


# ------------------------------------------------------------------------------------------ a run


def _service(folder: Path, port: int) -> Server:
    return Server(
        folder,
        {
            "DECAYSKETCH_DATA": str(folder / "data.sqlite3"),
            "DECAYSKETCH_AUTH": "off",
            "DECAYSKETCH_WEBHOOK_ORIGINS": f"http://127.0.0.1:{port}",
            "DECAYSKETCH_WEBHOOK_NETWORKS": "127.0.0.0/8",
            "DECAYSKETCH_WEBHOOK_SECRET": "a secret of the study, long enough for it",
        },
    )


def _parts(log: Deliveries, seconds: float, life: float, sites: int | None) -> dict[str, _Part]:
    """What each site hears in the densest stretch of so many seconds."""
    speed = log.life / life
    times, stamps = np.asarray(log.times / speed), log.stamps / speed
    ends = np.searchsorted(times, times + seconds)
    start = int(np.argmax(ends - np.arange(len(times))))
    chosen = slice(start, int(ends[start]))
    zero = float(times[start])
    parts: dict[str, _Part] = {}
    heard = log.sites if sites is None else log.sites % sites
    for site in range(int(heard.max()) + 1):
        mine = np.flatnonzero(heard[chosen] == site) + start
        messages = log.messages[mine]
        parts[f"site-{site}"] = _Part(times[mine] - zero, stamps[messages] - zero, messages)
    return parts


def _line(parts: dict[str, _Part], line: str, life: float) -> float:
    stamps = np.unique(np.concatenate([part.stamps for part in parts.values()]))
    count, counts, before = 0.0, [], float(stamps[0])
    for stamp in stamps.tolist():
        count = count * math.exp((before - stamp) / life) + 1.0
        before = stamp
        counts.append(count)
    known = np.array(counts)
    return (
        2.0 * float(known.max()) if line == "2 max" else float(np.percentile(known, int(line[1:])))
    )


def measure(
    name: str, log: Deliveries, line: str, within: float, seconds: float, life: float, kills: int,
    seed: int, sites: int | None = None,
) -> Replayed:  # fmt: skip
    """One run over a new aggregator."""
    draw = random.Random(seed)
    parts = _parts(log, seconds, life, sites)
    threshold = _line(parts, line, life)
    half_life = life * math.log(2.0) * 1e6
    spec = Threshold(
        "count", above=threshold, within=within, lease_s=max(life, 2.0),
        decay=ds.decay.exponential(half_life=half_life), sites=tuple(parts),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        service = _service(folder, 9)
        service.start()
        with httpx2.Client(base_url=service.url, trust_env=False, timeout=60) as http:
            http.put("/v1/streams/log", json={"params": _PARAMS.to_dict()}).raise_for_status()
        with Admin(service.url, trust_env=False) as admin:
            admin.put_monitor("log", "m", spec)
        for site, part in parts.items():
            np.savez(folder / f"{site}.npz", times=part.times, stamps=part.stamps, ids=part.ids)
        run = _Run(service, folder, parts, seconds)
        try:
            run.play(sorted(draw.uniform(0.2, 0.9) * seconds for _ in range(kills)), draw)
            posts = run.posts()
        finally:
            run.end()
        truth = _Truth(parts, folder, run.begin, life)
        return _judge(name, line, spec, parts, run, truth, posts, kills)


class _Run:
    """The processes of one run, and what was read of the monitor."""

    def __init__(
        self, service: Server, folder: Path, parts: dict[str, _Part], seconds: float
    ) -> None:
        self.service, self._folder, self._parts, self._seconds = service, folder, parts, seconds
        self.begin = time.time() + 5.0 + 0.5 * len(parts)
        self.looks: list[tuple[float, float, str]] = []
        self._sites = {name: self._started(name) for name in parts}

    def _started(self, name: str) -> Any:
        # The address stays: where an aggregator is started again it listens where it did.
        arguments = (self.service.url, name, self._folder, self.begin, self.begin + self._seconds)
        process = _CONTEXT.Process(target=_site, args=arguments, daemon=True)
        process.start()
        return process

    def play(self, kills: list[float], draw: random.Random) -> None:
        """Read the state until the end; kill the aggregator once in three times, or else a site."""
        with httpx2.Client(trust_env=False, timeout=5.0) as http:
            while (now := time.time()) < self.begin + self._seconds:
                if kills and now - self.begin > kills[0]:
                    kills.pop(0)
                    if len(kills) % 3 == 0:
                        self.service.kill()
                        self.service.start(again=True)
                    else:
                        name = draw.choice(list(self._sites))
                        self._sites[name].kill()
                        self._sites[name].join()
                        self._sites[name] = self._started(name)
                sent = time.time()
                with suppress(httpx2.TransportError):
                    answer = http.get(f"{self.service.url}/v1/streams/log/monitors/m")
                    if answer.status_code == 200:
                        self.looks.append((sent, time.time(), answer.json()["state"]))
                time.sleep(_POLL_S)

    def posts(self) -> int:
        with httpx2.Client(base_url=self.service.url, trust_env=False, timeout=60) as http:
            listed = http.get("/v1/streams/log", params={"sources": 1000}).json()["sources"]
        return sum(int(each["posts"]) for each in listed)

    def end(self) -> None:
        for process in self._sites.values():
            process.kill()
            process.join()
        self.service.kill()


def _judge(
    name: str, line: str, spec: Threshold, parts: dict[str, _Part], run: _Run, truth: _Truth,
    posts: int, kills: int,
) -> Replayed:  # fmt: skip
    aim = spec.aim
    looks = [look for look in run.looks if look[0] > run.begin]
    missed = false = fired = uncertain = 0
    lag_s, short, before, highest = 0.0, run.begin, "calm", 0.0
    for sent, got, state in looks:
        fired += state == "firing" != before
        before = state
        uncertain += state == "uncertain"
        highest = max(highest, truth.count(sent, certain=True))
        moments = np.arange(sent - STATE_S, got + 0.05, 0.05)
        if state == "firing":
            false += max(truth.count(at, certain=False) for at in moments) < aim.fires
        beyond = min(truth.count(at, certain=True) for at in moments) >= aim.line
        if state == "calm" and beyond:
            lag_s = max(lag_s, got - short)
            missed += got - short > spec.lease_s + REPORT_S + STATE_S
        else:
            short = got
    return Replayed(
        name, line, spec.within, len(parts), sum(len(part.ids) for part in parts.values()), posts,
        kills, len(looks), uncertain / max(len(looks), 1), fired, missed, false, lag_s,
        highest / aim.line,
    )  # fmt: skip


# -------------------------------------------------------------------------------------- the webhook


class _Receiver:
    """Takes alerts on loopback; notes when, and answers 503 while it is told to."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, dict[str, Any]]] = []
        self.refuses = False
        self.arrived = threading.Condition()
        receiver = self

        class _Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                with receiver.arrived:
                    receiver.heard.append((time.time(), json.loads(body)))
                    receiver.arrived.notify_all()
                self.send_response(503 if receiver.refuses else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing: the study prints what came."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, count: int, within_s: float) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: len(self.heard) >= count, within_s)


def latency(times: int) -> tuple[list[float], bool]:
    """Seconds from an update that crosses the line to the webhook, and whether an alert that was
    refused is told after the aggregator was killed."""
    receiver = _Receiver()
    found: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        service = _service(folder, receiver.port)
        service.start()
        try:
            with (
                Admin(service.url, trust_env=False) as admin,
                httpx2.Client(base_url=service.url, trust_env=False, timeout=60) as http,
            ):
                for number in range(times + 1):
                    stream, last = f"alert-{number}", number == times
                    form = {"params": _PARAMS.to_dict()}
                    http.put(f"/v1/streams/{stream}", json=form).raise_for_status()
                    decay = ds.decay.exponential(half_life=600e6)
                    hook = f"http://127.0.0.1:{receiver.port}/"
                    spec = Threshold("count", above=100, decay=decay, webhook=hook)
                    admin.put_monitor(stream, "m", spec)
                    with Sensor(
                        service.url, stream, "a", spool=folder / stream, monitors=True,
                        flush_age_s=3600, trust_env=False,
                    ) as sensor:  # fmt: skip
                        while not any(each.allowance > 0 for each in sensor.status().monitors):
                            time.sleep(0.02)
                        time.sleep(1.5)  # it is calm
                        heard, receiver.refuses = len(receiver.heard), last
                        began = time.time()
                        now = int(began * 1e6)
                        sensor.update(None, 1, [now] * 200, list(range(200)))
                        if receiver.wait(heard + 1, 60) and not last:
                            found.append(receiver.heard[heard][0] - began)
            refused = receiver.heard[-1][1]
            service.kill()
            receiver.refuses = False
            heard = len(receiver.heard)
            service.start()
            told = receiver.wait(heard + 1, 60) and receiver.heard[heard][1] == refused
        finally:
            service.kill()
            receiver.server.shutdown()
            receiver.server.server_close()
    return found, told


# ------------------------------------------------------------------------------------------- report


def produce(
    runs: list[Replayed], seconds: list[float], told: bool, folder: Path, about: str
) -> Report:
    """Tables and claims."""
    rows = [
        [f"{r.log}, {r.line}, {r.within:g}", str(r.sites), f"{r.deliveries:,}", f"{r.posts:,}",
         f"1/{r.saved:.0f}", str(r.kills), str(r.looks), f"{r.uncertain:.3f}", str(r.fired),
         str(r.missed), str(r.false), f"{r.lag_s:.1f}", f"{r.highest:.2f}"]
        for r in runs
    ]  # fmt: skip
    headings = ["log, T, within", "sites", "deliveries", "posts", "saved", "kills", "states",
                "uncertain", "fired", "missed", "false", "lag, s", "highest / T"]  # fmt: skip
    median = float(np.median(seconds)) if seconds else math.inf
    report = Report(
        "monitor-replay",
        "Monitors over real processes that are killed",
        about,
        [
            Table("What was posted, and what was said", headings, rows),
            Table("From an update to the webhook, s", ["median", "longest"],
                  [[f"{median:.3f}", f"{max(seconds, default=math.inf):.3f}"]]),
        ],
        [
            Claim("states that were calm for longer than promised",
                  Figure(float(sum(r.missed for r in runs)), 0.0), 0.0, "at most"),
            Claim("states that fired below the tolerance",
                  Figure(float(sum(r.false for r in runs)), 0.0), 0.0, "at most"),
            Claim("seconds to the webhook, median", Figure(median, 0.0), 1.0, "at most"),
            Claim("alerts that outlive a kill, of 1", Figure(float(told), 0.0), 1.0, "at least"),
        ],
        list(Replayed._fields),
        [list(r) for r in runs],
    )  # fmt: skip
    report.write(folder)
    return report


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor replay", description=(__doc__ or "").partition("\n")[0]
    )
    names = ["ble_set2", "wifi_two_receivers", "drawn"]
    parser.add_argument("--logs", nargs="+", choices=names, default=names[:2])
    parser.add_argument("--lines", nargs="+", default=["p90", "2 max"], help="p1 to p99, 2 max")
    parser.add_argument("--within", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each run")
    parser.add_argument("--life", type=float, default=30.0, help="mean life of the decay, seconds")
    parser.add_argument("--kills", type=int, default=6, help="of each run")
    parser.add_argument("--alerts", type=int, default=5, help="times that an alert is timed")
    parser.add_argument("--rows", type=int, help="of a log's beginning; all if not given")
    parser.add_argument("--sites", type=int, help="as many, however many the log has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    runs = []
    for name in options.logs:
        log = deliveries(name, options.rows)
        if log is None:
            print(f"{name}: the log is not on this machine, skipped")
            continue
        for line in options.lines:
            found = measure(
                name, log, line, options.within, options.seconds, options.life, options.kills,
                options.seed, options.sites,
            )  # fmt: skip
            print(found, flush=True)
            runs.append(found)
    seconds, told = latency(options.alerts)
    about = (
        f"{options.seconds:g} s each, mean life {options.life:g} s, {options.kills} kills, seed "
        f"{options.seed}; a lease is a mean life."
    )
    report = produce(runs, seconds, told, options.out, about)
    print(report)
    return int(any(claim.verdict == "does not hold" for claim in report.claims))
