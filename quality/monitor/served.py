"""``served``: figures 8a to 8c over HTTP, with real processes that are killed.

An aggregator (``python -m api``) and a process with a
:class:`~decaysketch.client.functions.FunctionSensor` for each source play the generated stream of
:mod:`quality.monitor.windows`. In a turn all sources accept their part of the next events at the
same time, and step once. Then they poll until no report is under way, as they would when the
aggregator's events reach them. The first window is not counted.

*Kills.* In some turns the aggregator or a source is killed (SIGKILL) while the exchanges of that
turn are under way. A new process reads the source's events again.

*Checks.* After each turn a certain result is compared with the function of the sources' counters.
It is false if it is off by more than theta, outside its range, or if frequent items are wrong by
more than theta and the counters' own error. A turn is late if no result is certain in
:data:`_PASSES` polls.

*Costs.* Messages by kind, as a share of a message for every arrival, and bytes in the accounting of
the authors' public code (:mod:`.protocols`), next to the same protocol in process and the paper's.
The bytes on the wire are those of HTTP/1.1 requests and responses with their headers. There the
naive protocol is a request without messages for each arrival.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.client.functions import FunctionSensor
from decaysketch.ecm import ECMParams, ECMSketch
from decaysketch.monitor.function_messages import from_site, to_site
from decaysketch.monitor.functions import FunctionSpec
from quality.figures.claims import Claim, Figure
from quality.figures.report import Report, Table
from quality.monitor import frequent, selfjoin
from quality.monitor.protocols import HEADER, NAIVE, payload_of
from quality.monitor.windows import zipf
from quality.serving import Server

__all__ = ["Served", "main", "measure", "produce"]

AT: Final = 16  # sources of figure 8c
_THETA: Final = 0.15
_FREQUENT: Final = 0.02  # of a window's events
_SLOTS: Final = 64
_PASSES: Final = 1_000
_CONTEXT: Final = multiprocessing.get_context("forkserver")
_KINDS: Final = ("report", "answer", "poll", "collect", "offer", "start")

Counters = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Setting = tuple[str, int, float]


def _params(kind: str) -> ECMParams:
    """Return the counters of the studies in process, with times instead of exact counts."""
    of: Any = frequent if kind == "frequent" else selfjoin
    return ECMParams(width=of.WIDTH, depth=of.DEPTH, slots=_SLOTS, key_bits=20, time_unit="s")


class Served(NamedTuple):
    """One run.

    Attributes:
        kind, sites, theta: of the function.
        arrivals: counted.
        kinds: messages by kind.
        sent: their bytes, as the authors count them.
        requests, polls: with messages in either direction, and without any.
        wire, empty: bytes on the wire, and those of one request without messages.
        turns, false, late: as above.
        worst, mean: relative errors of the value, 0 for frequent items.
        killed: aggregators and sources.
        processor_s: of the aggregators' processes, without the killed ones.
    """

    kind: str
    sites: int
    theta: float
    arrivals: int
    kinds: dict[str, int]
    sent: int
    requests: int
    polls: int
    wire: int
    empty: float
    turns: int
    false: int
    late: int
    worst: float
    mean: float
    killed: tuple[int, int]
    processor_s: float

    @property
    def messages(self) -> float:
        """Messages for each arrival."""
        return sum(self.kinds.values()) / self.arrivals


# ---------------------------------------------------------------------------------------- a source


@dataclass(slots=True)
class _Tally:
    """What a source sent and received since the study asked last."""

    kinds: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    requests: int = 0
    polls: int = 0
    wire: int = 0
    empty: int = 0  # bytes of the polls

    def add(self, shape: tuple[int, int, int], response: httpx2.Response) -> None:
        """Count a request and its response."""
        request = response.request
        up, down = request.read(), response.read()
        size = len(request.method) + len(request.url.raw_path) + len(up) + len(down) + 45
        headers = [*request.headers.raw, *response.headers.raw]
        size += sum(len(name) + len(value) + 4 for name, value in headers)
        messages: list[Any] = [from_site(each) for each in _messages(request.method, up)]
        messages += [to_site(each, shape) for each in _messages(request.method, down)]
        self.wire += size
        for each in messages:
            self.kinds[type(each).__name__.lower()] += 1
            self.sent += HEADER + payload_of(each, int(np.prod(shape)))
        if messages:
            self.requests += 1
        else:
            self.polls += 1
            self.empty += size


def _messages(method: str, body: bytes) -> list[Any]:
    found: list[Any] = json.loads(body).get("messages", []) if method == "POST" else []
    return found


class _Turn(NamedTuple):
    to: int  # time of the last event
    poll: bool


class _Reply(NamedTuple):
    settled: bool
    counters: Counters  # [matrices, depth, width]
    tally: _Tally


@dataclass(frozen=True, slots=True)
class _Part:
    """The events of one source.

    Attributes:
        times: int64[m], rising.
        keys: uint64[m].
        of: int64[m], the stream of each, 0 or 1.
    """

    times: Int64Array
    keys: npt.NDArray[np.uint64]
    of: Int64Array


def _source(pipe: Connection, url: str, name: str, spec: FunctionSpec, part: _Part) -> None:
    """A source's process: play turns until there are no more."""
    params = _params(spec.kind)
    sketches = [ECMSketch(params, source=name) for _ in range(1 + (spec.other is not None))]
    tally, done = _Tally(), 0
    shape = spec.shape(params.depth, params.width)

    def hook(response: httpx2.Response) -> None:
        tally.add(shape, response)

    with httpx2.Client(
        base_url=url, trust_env=False, timeout=60, event_hooks={"response": [hook]}
    ) as client:
        sensor = FunctionSensor(
            client, "a", "f", name, sketches[0], other=sketches[1] if len(sketches) == 2 else None
        )
        while True:
            turn: _Turn = pipe.recv()
            stop = int(np.searchsorted(part.times, turn.to, "right"))
            for of in range(len(sketches)):
                mine = done + np.flatnonzero(part.of[done:stop] == of)
                if len(mine):
                    sensor.update(part.keys[mine], part.times[mine], of=of)
            done = stop
            heard = sensor.step(turn.to, poll=turn.poll)
            grids = [each.grid(spec.decay, now=turn.to) for each in sketches]
            counters = np.stack([grid.leaf.value for grid in grids])
            pipe.send(_Reply(heard and sensor.settled, counters, tally))
            tally = _Tally()


# ------------------------------------------------------------------------------------------- a run


class _Sources:
    """The processes of all sources."""

    def __init__(self, url: str, spec: FunctionSpec, parts: dict[str, _Part]) -> None:
        self._url, self._spec, self._parts = url, spec, parts
        self._running: dict[str, tuple[Any, Connection]] = {}
        self.tally, self.replies = _Tally(), dict[str, _Reply]()
        for name in parts:
            self.start(name)

    def start(self, name: str) -> None:
        mine, its = _CONTEXT.Pipe()
        arguments = (its, self._url, name, self._spec, self._parts[name])
        process = _CONTEXT.Process(target=_source, args=arguments, daemon=True)
        process.start()
        its.close()
        self._running[name] = process, mine

    def send(self, turn: _Turn, names: Iterable[str] = ()) -> None:
        for name in names or self._running:
            self._running[name][1].send(turn)

    def receive(self) -> bool:
        """Receive all replies. Return whether all sources are settled."""
        for name, (_, pipe) in self._running.items():
            reply: _Reply = pipe.recv()
            self.replies[name] = reply
            self.tally.kinds += reply.tally.kinds
            for each in ("sent", "requests", "polls", "wire", "empty"):
                setattr(self.tally, each, getattr(self.tally, each) + getattr(reply.tally, each))
        return all(each.settled for each in self.replies.values())

    def kill(self, name: str) -> None:
        process, pipe = self._running.pop(name)
        process.kill()
        process.join()
        pipe.close()

    def end(self) -> None:
        for name in list(self._running):
            self.kill(name)


class _Run:
    """The processes of one run, and the checks of its results."""

    def __init__(self, spec: FunctionSpec, parts: dict[str, _Part], folder: Path) -> None:
        self.spec, self._parts = spec, parts
        environment = {"DECAYSKETCH_DATA": str(folder / "data.sqlite3"), "DECAYSKETCH_AUTH": "off"}
        self.service = Server(folder, environment)
        self.false = self.late = 0
        self.errors: list[float] = []
        self.killed = [0, 0]
        keys = np.unique(np.concatenate([part.keys for part in parts.values()]))
        self._keys = keys
        self._params = _params(spec.kind)
        leaf = ECMSketch(self._params).grid(spec.decay).leaf
        self._columns = leaf.columns(keys).astype(np.int64)

    @contextmanager
    def started(self) -> Iterator[_Sources]:
        """Start the aggregator and the sources."""
        self.service.start()
        sources = None
        try:
            with self._http() as http:
                for name in ("a", "b"):
                    form = {"family": "ecm", "params": self._params.to_dict()}
                    http.put(f"/v1/streams/{name}", json=form).raise_for_status()
                path = "/v1/streams/a/functions/f"
                http.put(path, json=self.spec.to_dict()).raise_for_status()
            sources = _Sources(self.service.url, self.spec, self._parts)
            yield sources
        finally:
            if sources is not None:
                sources.end()
            self.service.kill()

    def _http(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.service.url, trust_env=False, timeout=60)

    def turn(self, sources: _Sources, to: int, victim: str | None, draw: random.Random) -> bool:
        """Play the events up to a time. ``victim``: "" for the aggregator, or a source. Return
        whether all sources are settled.
        """
        sources.send(_Turn(to, poll=False))
        if victim is not None:
            time.sleep(draw.uniform(0.0, 0.01))
        if victim:
            sources.kill(victim)
            sources.start(victim)
            sources.send(_Turn(to, poll=False), [victim])
            self.killed[1] += 1
        elif victim == "":
            self.service.kill()
            self.killed[0] += 1
        settled = sources.receive()
        if victim == "":
            self.service.start(again=True)
        return settled

    def settle(self, sources: _Sources, to: int, *, settled: bool) -> None:
        """Poll until the result is certain, and check it."""
        with self._http() as http:
            for attempt in range(_PASSES):
                if settled:
                    found = http.get("/v1/streams/a/functions/f").json()["found"]
                    if found["certain"]:
                        self._check(found, sources, to)
                        return
                if attempt > 5:  # an answer was lost, and the source waits before it repeats
                    time.sleep(0.05)
                sources.send(_Turn(to, poll=True))
                settled = sources.receive()
        self.late += 1

    def empty(self, sources: _Sources, to: int) -> float:
        """Poll once, and return the bytes of a request without messages."""
        sources.tally = _Tally()
        sources.send(_Turn(to, poll=True))
        sources.receive()
        tally = sources.tally
        return tally.empty / tally.polls if tally.polls else math.nan

    def _check(self, found: dict[str, Any], sources: _Sources, to: int) -> None:
        counters = [reply.counters for reply in sources.replies.values()]
        assert not found["posts"], "messages cost more than the arrivals: choose a larger window"
        if self.spec.kind == "frequent":
            self.false += not self._are_right(found["frequent"], counters, to)
            return
        truth = self.spec.zone.of(np.sum(counters, axis=0))
        error = abs(found["value"] - truth) / truth if truth else float(found["value"] > 0.0)
        self.errors.append(error)
        high = np.inf if found["high"] is None else found["high"]
        within = found["low"] <= truth * (1 + 1e-9) and truth <= high * (1 + 1e-9)
        self.false += error > self.spec.theta * (1 + 1e-9) or not within

    def _are_right(self, items: list[int], counters: list[Counters], to: int) -> bool:
        assert self.spec.threshold is not None
        called = np.isin(self._keys, np.array(items, np.uint64))
        rows = np.arange(self._params.depth)[:, None]
        local = sum(each[0][rows, self._columns].min(axis=0) for each in counters)
        counts = np.zeros(len(self._keys))
        for part in self._parts.values():
            inside = (part.times <= to) & (to - part.times <= self.spec.decay.support)
            np.add.at(counts, np.searchsorted(self._keys, part.keys[inside]), 1)
        most = self.spec.threshold * (1 + self.spec.theta) * (1 + 1 / (2 * _SLOTS))
        least = self.spec.threshold * (1 - self.spec.theta) - 1e-9
        return bool((counts[~called] <= most).all() and (np.asarray(local)[called] >= least).all())

    def processor_s(self) -> float:
        return self.service.processor_s()


def measure(setting: Setting, events: int, window: int, turn: int, kills: int, seed: int) -> Served:
    """One run over a new aggregator."""
    kind, sites, theta = setting
    draw = random.Random(seed)
    stream = zipf(events, window, sites)
    base = int(time.time()) - events
    names = [f"source-{number:03}" for number in range(sites)]
    spec = FunctionSpec(
        kind=kind,  # type: ignore[arg-type]
        decay=ds.decay.window(window), theta=theta, sites=tuple(names), lease_s=600.0,
        threshold=_FREQUENT * window if kind == "frequent" else None,
        other="b" if kind == "inner_product" else None,
    )  # fmt: skip
    of = np.arange(events) % 2 if kind == "inner_product" else np.zeros(events, np.int64)
    parts = {
        name: _Part(
            base + np.flatnonzero(stream.sites == number),
            stream.keys[stream.sites == number].astype(np.uint64),
            of[stream.sites == number],
        )
        for number, name in enumerate(names)
    }
    ends = [base + end for end in range(window + turn, events, turn)]
    victims = ["" if number % 3 == 0 else draw.choice(names) for number in range(kills)]
    at = dict(zip(draw.sample(ends, kills), victims, strict=True))
    with tempfile.TemporaryDirectory() as place:
        run = _Run(spec, parts, Path(place))
        with run.started() as sources:
            for to in [base + window, *ends]:
                run.settle(sources, to, settled=run.turn(sources, to, at.get(to), draw))
                if to == base + window:
                    empty = run.empty(sources, to)
                    sources.tally, run.errors = _Tally(), []
            tally, processor_s = sources.tally, run.processor_s()
    errors = run.errors or [0.0]
    return Served(
        kind, sites, theta, turn * len(ends), dict(tally.kinds), tally.sent, tally.requests,
        tally.polls, tally.wire, empty, len(ends), run.false, run.late,
        max(errors), sum(errors) / len(errors), (run.killed[0], run.killed[1]), processor_s,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- report


def produce(
    settings: Iterable[Setting], events: int, window: int, turn: int, kills: int, seed: int,
    folder: Path,
) -> Report:  # fmt: skip
    """Run each setting. Report costs and false results."""
    runs, known = [], {}
    for setting in settings:
        runs.append(measure(setting, events, window, turn, kills, seed))
        print(runs[-1], flush=True)
        kind, sites, theta = setting
        if kind == "self_join":
            run = partial(selfjoin.measure, "zipf", events=events, window=window)
            known[setting] = [
                run(method=method, sites=sites, theta=theta)
                for method in ("allowances", "paper, corrected")
            ]
    report = Report(
        "monitor-served",
        "Functions across sources over HTTP, with processes that are killed",
        f"Drawn stream, Zipf 1.1 with shifts: {events:,} events, windows of {window:,}, turns of "
        f"{turn}, seed {seed}. ECM-sketches with {selfjoin.DEPTH} x {selfjoin.WIDTH} counters "
        f"({frequent.DEPTH} x {frequent.WIDTH} for frequent items) and {_SLOTS} slots. "
        "Shares are of a message of 8 bytes, or of a request, for every "
        "arrival.",
        [_messages_table(runs, known), _bytes_table(runs, known), _results_table(runs)],
        _claims(runs, known),
        list(Served._fields),
        runs,
    )
    report.write(folder)
    return report


Known = dict[Setting, list[selfjoin.Measured]]


def _name(run: Served) -> str:
    return f"{run.kind.replace('_', '-')}, {run.sites} sources, theta {run.theta:.2f}"


def _shares(run: Served, known: Known, name: str) -> list[str]:
    found = known.get((run.kind, run.sites, run.theta))
    return ["-", "-"] if found is None else [f"{getattr(each, name):.4f}" for each in found]


def _messages_table(runs: list[Served], known: Known) -> Table:
    other = [sum(n for kind, n in run.kinds.items() if kind not in _KINDS) for run in runs]
    rows = [
        [_name(run), f"{run.arrivals:,}", *(str(run.kinds.get(kind, 0)) for kind in _KINDS),
         str(more), f"{run.messages:.4f}", *_shares(run, known, "messages")]
        for run, more in zip(runs, other, strict=True)
    ]  # fmt: skip
    headings = ["", "arrivals", *(f"{kind}s" for kind in _KINDS), "of items", "a message each",
                "in process", "paper's"]  # fmt: skip
    return Table("Messages", headings, rows)


def _bytes_table(runs: list[Served], known: Known) -> Table:
    rows = [
        [_name(run), f"{run.sent / (NAIVE * run.arrivals):.4f}", *_shares(run, known, "sent"),
         f"{run.requests / run.arrivals:.4f}", f"{run.polls / run.arrivals:.4f}",
         f"{run.wire / (run.empty * run.arrivals):.4f}", f"{run.empty:.0f}",
         f"{run.processor_s:.1f}"]
        for run in runs
    ]  # fmt: skip
    headings = ["", "bytes", "in process", "paper's", "requests", "polls", "bytes of HTTP",
                "of one poll", "server, s"]  # fmt: skip
    return Table("Shares of the naive protocol", headings, rows)


def _results_table(runs: list[Served]) -> Table:
    rows = [
        [_name(run), str(run.turns), str(run.false), str(run.late), f"{run.mean:.4f}",
         f"{run.worst:.4f}", str(run.killed[0]), str(run.killed[1])]
        for run in runs
    ]  # fmt: skip
    headings = ["", "certain results", "false", "late", "mean error", "worst",
                "aggregators killed", "sources"]  # fmt: skip
    return Table("Results", headings, rows)


def _claims(runs: list[Served], known: Known) -> list[Claim]:
    def total(name: str) -> Figure:
        return Figure(float(sum(getattr(run, name) for run in runs)), 0.0)

    claims = [
        Claim("false results", total("false"), 0.0, "at most"),
        Claim("late results", total("late"), 0.0, "at most"),
    ]
    for run in runs:
        found = known.get((run.kind, run.sites, run.theta))
        if found and found[1].sent:
            share = run.sent / (NAIVE * run.arrivals * found[1].sent)
            text = f"{_name(run)}: bytes as a share of the paper's protocol"
            claims.append(Claim(text, Figure(share, 0.0), 1.0, "at most"))
    return claims


def main(arguments: list[str] | None = None) -> int:
    """Run the study. Return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor served", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=20_000, help="of the stream (%(default)s)")
    parser.add_argument("--window", type=int, default=8_000, help="in events (%(default)s)")
    parser.add_argument("--turn", type=int, default=20, help="events of a turn (%(default)s)")
    parser.add_argument("--kills", type=int, default=6, help="of each run (%(default)s)")
    parser.add_argument("--sites", type=int, nargs="*", default=[2, 4, 8, AT], help="figure 8a")
    parser.add_argument("--thetas", type=float, nargs="*", default=[0.05, 0.30], help="figure 8c")
    parser.add_argument("--kinds", type=int, default=4, metavar="SITES",
                        help="sources of the other kinds, 0: none (%(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of the kills (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    most = (options.events - options.window - 1) // max(options.turn, 1)
    if options.turn < 1 or options.window < 1 or not 0 <= options.kills <= most:
        parser.error(
            f"--events {options.events}, --window {options.window}, --turn {options.turn} and "
            f"--kills {options.kills}: expected at least as many turns after the window as kills"
        )
    settings: list[Setting] = [("self_join", sites, _THETA) for sites in options.sites]
    settings += [("self_join", AT, theta) for theta in options.thetas]
    if options.kinds:
        settings += [(kind, options.kinds, _THETA) for kind in ("inner_product", "frequent")]
    report = produce(
        settings, options.events, options.window, options.turn, options.kills, options.seed,
        options.out,
    )  # fmt: skip
    print(report)
    return int(any(claim.verdict == "does not hold" for claim in report.claims))
