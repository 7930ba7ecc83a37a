"""Functions across sources over a network and processes that fail in every way, one seed a run.

A seed draws sources, a stream with a window, and faults: requests and responses that are lost, late
or repeated, crashes of sources (their counters are durable, all else is lost), a service that is
killed before or after it stores a state, definitions that are replaced, and costs at which sources
post their sketches. Every exchange is served by a process that knows nothing but the stored state.
After each event :class:`Run` compares a result that is called certain with the truth, unless a
report is under way:

* (a) *self-join, inner product*: within theta of the function of the present counters, and within
  the range from ``low`` to ``high``;
* (b) *missed*: an item that is not called frequent has at most ``threshold (1 + theta)`` arrivals;
* (c) *false*: an item that is called frequent has ``threshold (1 - theta)`` at least, summed over
  the sources' counters;
* (d) *late*: once the network is well, the result is certain.

:data:`PLANTED` are mistakes, each of which some seed must find.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.monitor.function_costs import Costs
from decaysketch.monitor.functions import FunctionHub, FunctionSource, FunctionSpec, FunctionState

__all__ = ["KINDS", "PLANTED", "FunctionOutcome", "Run", "run"]

KINDS: Final = ("self_join", "inner_product", "frequent")

PLANTED: Final = {
    "respond before storing": "the service responds with a state that it does not store",
    "reuse an epoch": "a hub that lost its state goes on in the same epoch",
    "exchange before posting": "a source exchanges before its post is accepted",
    "forget a charge": "the hub charges a source with what it reports, and not with its bound",
}

_DEPTH, _WIDTH = 2, 7
_KEYS = 24
_THRESHOLD = 5.0
_THETAS = (0.2, 0.5)
_STEP_S = 0.5
_LATE_S = 6.0
_EVENTS = (35, 70)
_ROUNDING = 1e-9

Counters = npt.NDArray[np.float64]

_CELLS: Final = np.array(
    [[random.Random(100 * key + row).randrange(_WIDTH) for row in range(_DEPTH)]
     for key in range(_KEYS)]
)  # fmt: skip


@dataclass(frozen=True)
class FunctionOutcome:
    """What one run came to.

    Attributes:
        breaches: promises that were not kept, each once, with the event.
        arrivals: events that sources counted.
        exchanges: that the service stored.
        vouched: results that were certain and compared with the truth.
        posted: of these, how many came from posts.
        kills: processes of the service that were killed.
    """

    breaches: tuple[str, ...]
    arrivals: int
    exchanges: int
    vouched: int
    posted: int
    kills: int


def _least(cells: Counters) -> Counters:
    """Each key's estimate, float64[keys]."""
    found: Counters = cells[np.arange(_DEPTH)[:, None], _CELLS.T].min(axis=0)
    return found


class _Leaf:
    """Exact counters, in place of a sketch's layer."""

    layer = SimpleNamespace(depth=_DEPTH, width=_WIDTH)

    def __init__(self, value: Counters) -> None:
        self.value = value

    @staticmethod
    def columns(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        columns: npt.NDArray[np.int64] = _CELLS[keys.astype(np.int64)].T
        return columns


class _Source:
    """A source: counters on disk, and a process that may die.

    Attributes:
        counts: float64[matrices, keys], the truth.
        cells: float64[matrices, depth, width].
        posted: a copy that was posted last, in this process.
    """

    def __init__(self, name: str, matrices: int) -> None:
        self.name = name
        self.counts = np.zeros((matrices, _KEYS))
        self.cells = np.zeros((matrices, _DEPTH, _WIDTH))
        self.inc = 0
        self.arrivals = 0  # that no response has confirmed
        self.arrived: list[int] = []
        self.epoch: int | None = None
        self.posts = False
        self.alive: FunctionSource | None = None
        self.dirty = True

    def add(self, matrix: int, key: int, by: int) -> None:
        self.counts[matrix, key] += by
        self.cells[matrix, range(_DEPTH), _CELLS[key]] += by
        self.dirty = True
        if by > 0:
            self.arrivals += 1
            self.arrived.append(key)
        self.look()

    def define(self, spec: FunctionSpec, epoch: int, *, posts: bool) -> None:
        self.inc += 1
        self.epoch, self.posts, self.dirty = epoch, posts, True
        self.alive = FunctionSource(spec, _Leaf(self.cells[0]), self.name, self.inc)
        self.arrived = list(range(_KEYS))  # any of these may be frequent without coming again
        self.look()

    def look(self) -> None:
        if self.alive is not None:
            grids = [SimpleNamespace(leaf=_Leaf(each)) for each in self.cells]
            self.alive.look(grids, self.arrived)
            self.arrived.clear()

    def crash(self) -> None:
        self.epoch, self.posts, self.alive = None, False, None


@dataclass(slots=True)
class _Row:
    """The service's database."""

    epoch: int
    state: str | None = None
    posted: dict[str, Counters] = field(default_factory=dict)
    counted: dict[str, Counters] = field(default_factory=dict)


def run(kind: str, seed: int, planted: str | None = None) -> FunctionOutcome:
    """One run.

    Args:
        kind: one of :data:`KINDS`.
        seed: of everything that is drawn.
        planted: a key of :data:`PLANTED`.
    """
    return Run(kind, seed, planted).outcome()


class Run:
    """One seed: draw everything, then :meth:`outcome`."""

    def __init__(self, kind: str, seed: int, planted: str | None = None) -> None:
        self.rng = rng = random.Random(seed)
        self.planted = planted
        self.loss, self.late = rng.choice([0.0, 0.2, 0.5]), rng.choice([0.0, 0.3])
        self.copies, self.kill = rng.choice([0.0, 0.2]), rng.choice([0.0, 0.1])
        self.crash, self.redefine = rng.choice([0.0, 0.03]), rng.choice([0.0, 0.02])
        names = tuple(f"s{number}" for number in range(rng.randint(1, 4)))
        self.spec = FunctionSpec(
            kind=kind,  # type: ignore[arg-type]
            decay=ds.decay.none(), theta=rng.choice(_THETAS), sites=names, lease_s=30.0,
            threshold=_THRESHOLD if kind == "frequent" else None,
            other="other" if kind == "inner_product" else None,
        )  # fmt: skip
        self.fewest = rng.choice([10, 40, 1_000, 1_000])  # with 1,000 sources never post
        self.matrices = 2 if kind == "inner_product" else 1
        self.sources = {name: _Source(name, self.matrices) for name in names}
        self.row = _Row(1_000)
        self.now = 0.0
        self.under_way: list[tuple[float, str, dict[str, Any], int | None]] = []
        self._shown: tuple[Any, FunctionHub] | None = None
        self.healthy = False
        self.breaches: dict[str, str] = {}
        self.arrivals = self.exchanges = self.vouched = self.posted = self.kills = 0

    # --------------------------------------------------------------------------------- the service

    def hub(self) -> FunctionHub:
        """A process that has read the stored state."""
        row = self.row
        saved = None if row.state is None else json.loads(row.state)
        costs = Costs(fewest=self.fewest)
        hub = FunctionHub(self.spec, _DEPTH, _WIDTH, row.epoch, saved, costs=costs)
        if self.planted == "forget a charge" and hub._rounds is not None:
            for account in hub._rounds.charges._accounts.values():
                account.charge = min(account.charge, account.phi)
        if self.planted == "forget a charge" and hub._items is not None:
            for known in hub._items._known.values():
                for account in known.charges._accounts.values():
                    account.charge = min(account.charge, account.phi)
        return hub

    def shown(self) -> FunctionHub:
        """A process that only reads, and keeps what it read until that changes."""
        key = self.row.epoch, self.row.state
        if self._shown is None or self._shown[0] != key:
            self._shown = key, self.hub()
        return self._shown[1]

    def serve(self, name: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the response to a request, or None if the process is killed."""
        hub, row = self.hub(), self.row
        if body["epoch"] != row.epoch:
            return {"epoch": row.epoch, "define": True, "posts": hub.posts}
        messages, changed = hub.exchange(
            name, body["messages"], self.now, arrivals=body["arrivals"], posts=body["posts"]
        )
        if self._killed():
            if self.planted != "respond before storing":
                return None
        elif changed:
            row.epoch, row.state = hub.epoch, json.dumps(hub.saved)
            self.exchanges += 1
            if self._killed():
                return None
        if hub.epoch != body["epoch"]:
            return {"epoch": hub.epoch, "define": True, "posts": hub.posts}
        return {"epoch": hub.epoch, "messages": json.loads(json.dumps(messages))}

    def _killed(self) -> bool:
        killed = not self.healthy and self.rng.random() < self.kill
        self.kills += killed
        return killed

    def _lost(self) -> bool:
        return not self.healthy and self.rng.random() < self.loss

    # --------------------------------------------------------------------------------- the sources

    def step(self, source: _Source) -> bool:
        """Post and exchange once. Return whether anything was said."""
        posts = 0
        if source.posts and source.dirty:
            if self._lost() and self.planted != "exchange before posting":
                return True
            if self.planted != "exchange before posting" or not self._lost():
                self.row.posted[source.name] = source.cells.copy()
                self.row.counted[source.name] = source.counts.copy()
            posts, source.dirty = 1, False
        messages: list[dict[str, Any]] = []
        if source.alive is not None and not source.posts:
            source.look()
            messages = source.alive.due(self.now)
        body = {
            "epoch": source.epoch, "messages": json.loads(json.dumps(messages)),
            "arrivals": source.arrivals, "posts": posts,
        }  # fmt: skip
        if self._lost():
            return True
        answer = self.serve(source.name, body)
        if self.copies and self.rng.random() < self.copies:
            later = self.now + self.rng.uniform(0.0, 2 * _LATE_S)
            self.under_way.append((later, source.name, body, None))
        if answer is None or self._lost():
            return True
        if not self.healthy and self.rng.random() < self.late:
            later = self.now + self.rng.uniform(0.0, _LATE_S)
            self.under_way.append((later, source.name, answer, source.inc))
            return True
        self._answered(source, answer)
        return bool(messages or posts or answer.get("messages") or answer.get("define"))

    def _answered(self, source: _Source, answer: dict[str, Any]) -> None:
        if answer.get("define"):
            if answer["epoch"] > (source.epoch or 0):
                source.define(self.spec, answer["epoch"], posts=answer["posts"])
            return
        if source.alive is None or answer["epoch"] != source.epoch:
            return
        source.arrivals = 0
        source.alive.receive(answer["messages"], self.now)

    def _arrive(self) -> None:
        """Requests that are repeated, and responses that are late."""
        due = [each for each in self.under_way if each[0] <= self.now]
        self.under_way = [each for each in self.under_way if each[0] > self.now]
        for _, name, form, inc in due:
            source = self.sources[name]
            if inc is None:
                self.serve(name, form)
            elif inc == source.inc:
                self._answered(source, form)

    # --------------------------------------------------------------------------------------- events

    def outcome(self) -> FunctionOutcome:
        """Everything that happens, and then a network that is well."""
        rng = self.rng
        events, window = rng.randint(*_EVENTS), rng.choice([15, 40])
        shares = [1 / (1 + rank) for rank in range(_KEYS)]
        past: list[tuple[_Source, int, int]] = []
        for at in range(events):
            self.now += _STEP_S
            if at >= window:
                source, matrix, key = past[at - window]
                source.add(matrix, key, -1)
            (key,) = rng.choices(range(_KEYS), shares)
            source = rng.choice(list(self.sources.values()))
            past.append(
                (source, rng.randrange(self.matrices), (key + 5 * (2 * at // events)) % _KEYS)
            )
            source.add(past[-1][1], past[-1][2], 1)
            self.arrivals += 1
            self._fail()
            self._arrive()
            for _ in range(rng.choice([1, 1, 1, 4])):
                for each in self.sources.values():
                    if each is source or rng.random() < 0.5:
                        self.step(each)
                        self.check(at)
                self.now += _STEP_S
        self._heal()
        return FunctionOutcome(
            tuple(self.breaches.values()), self.arrivals, self.exchanges, self.vouched,
            self.posted, self.kills,
        )  # fmt: skip

    def _fail(self) -> None:
        if self.rng.random() < self.crash:
            self.rng.choice(list(self.sources.values())).crash()
        if self.rng.random() < self.redefine:
            self.row.epoch += self.planted != "reuse an epoch"
            self.row.state = None

    def _heal(self) -> None:
        """From now on all is well, and longer than any wait for a response."""
        self.healthy = True
        self.now += 10_000.0
        self._arrive()
        for _ in range(60):
            self.now += 1.0
            said = [self.step(source) for source in self.sources.values()]
            if not any(said):
                break
        self.check(-1)
        if not self.state().certain:
            self._breach("(d) late", -1)

    # ------------------------------------------------------------------------------------- promises

    def state(self) -> FunctionState:
        """The result of the service now."""
        return self.shown().state(self.now)

    def _is_under_way(self, hub: FunctionHub) -> bool:
        for source in self.sources.values():
            alive = source.alive
            if source.epoch != self.row.epoch or alive is None or (source.posts and source.dirty):
                return True
            site, items = alive._site, alive._items
            if source.posts:
                continue
            if site is not None and hub._rounds is not None:
                if site.epoch != hub._rounds.epoch or site.phi > site.bound:
                    return True
            elif items is not None and (items._look or not items._begun):
                return True
        return hub._items is not None and bool(hub.waiting)

    def check(self, at: int) -> None:
        """Compare the present result with the truth."""
        hub = self.shown()
        state = hub.state(self.now)
        if not state.certain or self._is_under_way(hub):
            return
        self.vouched += 1
        self.posted += state.posts
        if self.spec.kind == "frequent":
            self._check_items(state, at)
            return
        f = self.spec.zone.of(np.sum([each.cells for each in self.sources.values()], axis=0))
        value, low, high = state.value, state.low, state.high
        if state.posts:
            value = low = high = self.spec.zone.of(self._posts(self.row.posted))
        if value is None or low is None or abs(value - f) > self.spec.theta * f * (1 + _ROUNDING):
            self._breach("(a) value", at)
        elif low > f * (1 + _ROUNDING) or (high is not None and high < f * (1 - _ROUNDING)):
            self._breach("(a) range", at)

    def _posts(self, posted: dict[str, Counters]) -> Counters:
        zero = np.zeros((self.matrices, _DEPTH, _WIDTH))
        summed: Counters = np.sum([posted.get(name, zero) for name in self.sources], axis=0)
        return summed

    def _check_items(self, state: FunctionState, at: int) -> None:
        theta = self.spec.theta
        counts = np.sum([each.counts[0] for each in self.sources.values()], axis=0)
        local = [each.cells[0] for each in self.sources.values()]
        frequent: Sequence[int] = state.frequent or ()
        if state.posts:
            cells = self._posts(self.row.posted)[0]
            local = [cells]
            frequent = np.flatnonzero(_least(cells) >= _THRESHOLD).tolist()
        called = np.isin(np.arange(_KEYS), list(frequent))
        near = np.sum([_least(cells) for cells in local], axis=0)
        if (counts[~called] > _THRESHOLD * (1 + theta) + _ROUNDING).any():
            self._breach("(b) missed", at)
        if (near[called] < _THRESHOLD * (1 - theta) - _ROUNDING).any():
            self._breach("(c) false", at)

    def _breach(self, what: str, at: int) -> None:
        self.breaches.setdefault(what, f"{what} at {at}")
