"""Sites and a hub over a network that fails in every way, in virtual time, one seed a run.

A seed draws a monitor, a stream with copies, and faults: loss and repeated messages up to one half,
delays that reorder, crashes of sites and of the hub (which forgets accounts and begins an epoch),
a site that is cut off, clocks that are late and run fast or slow, a site that joins late and one
that is revoked. After every event of the hub, and in between, :class:`Run` knows what is true and
holds the engine to it:

* (a) *firing*: the aggregate is within the tolerance of the line or beyond it;
* (b) *calm*: it is short of the line, over all rows but those of sites that are over their
  allowance;
* (c) calm although the line is crossed lasts no longer than a lease and the longest delay;
* (d) once the network is well, the hub has every row, whatever was lost;
* *budget*: no site acts on more than the hub charges it for, or for longer than the hub's lease,
  or on another epoch than it was seen to confirm.

:data:`PLANTED` are mistakes, each of which some seed must find.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.contract.family import Recipe
from decaysketch.families import recipe_of
from decaysketch.monitor import Account, Answer, BudgetSite, Grant, Monitor, Reading, Report
from decaysketch.monitor.site import _Watched
from decaysketch.monitor.spec import Question, Threshold

__all__ = ["PLANTED", "Outcome", "run"]

PLANTED: Final = {
    "forget a charge": "the hub forgets earlier grants as soon as it makes one",
    "trust an old grant": "a site takes whatever grant comes last",
    "lease by wall clock": "a site's lease runs by a clock that is set back",
    "reuse an epoch": "a hub that lost its accounts goes on in the same epoch",
}

_HORIZON_S = 30.0
_LEASE_S = 4.0
_TICK_S = 0.5
_BEGIN = 1_000_000  # the stream's time at 0
_ROUNDING = 1e-9

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Outcome:
    """What one run came to.

    Attributes:
        breaches: promises that were not kept, each once, with the time.
        rows: that sites took, copies included.
        reports: that sites sent.
        posts: of these, with rows.
        verdicts: how many checks found which state.
        lag_s: longest time that a state was calm although the line was crossed.
    """

    breaches: tuple[str, ...]
    rows: int
    reports: int
    posts: int
    verdicts: Mapping[str, int]
    lag_s: float


@cache
def _recipe() -> Recipe:
    return recipe_of(ds.SketchParams(max_weight=4, id_bits=32, seed=7, time_unit="s"))


def run(seed: int, planted: str | None = None) -> Outcome:
    """One run.

    Args:
        seed: of everything that is drawn.
        planted: a key of :data:`PLANTED`.
    """
    return Run(seed, planted).outcome()


class _Trusting(BudgetSite):
    """Takes an old grant for a new one."""

    def _take(self, grant: Grant, clock: float) -> None:
        known: _Watched | None = self._watched.get(grant.monitor)
        if known is not None and known.epoch == grant.epoch:
            known.held = None
        super()._take(grant, clock)


class _Site:
    """A gateway: rows on disk, and a process that may die."""

    def __init__(self, name: str, rows: int, rng: random.Random) -> None:
        self.name = name
        self.unposted: BoolArray = np.zeros(rows, np.bool_)
        self.shipped: dict[int, BoolArray] = {}
        self.rate = 1.0 + rng.uniform(-4e-4, 4e-4)
        self.offset = rng.uniform(0.0, 1e6)
        self.late = rng.choice([0.0, rng.uniform(0.0, 1.0)])
        self.inc = 0
        self.step = 0.0
        self.alive: BudgetSite | None = None


class Run:
    """One seed: draw everything, then :meth:`outcome`."""

    def __init__(self, seed: int, planted: str | None) -> None:
        self.rng = rng = random.Random(seed)
        self.planted = planted
        self.loss, self.copies = rng.choice([0.0, 0.2, 0.5]), rng.choice([0.0, 0.2, 0.5])
        self.delay_s = rng.choice([0.02, 0.1, 0.4])
        self.crash, self.hub_crash = rng.choice([0.0, 0.1]), rng.choice([0.0, 0.06])
        self._draw_stream()
        self.monitor = Monitor.of("m", 1, self._draw_spec(), _recipe())
        names = [f"s{i}" for i in range(rng.randint(2, 4))]
        self.sites = {name: _Site(name, len(self.stamps), rng) for name in names}
        begins, ends = sorted(rng.uniform(0, _HORIZON_S) for _ in range(2))
        self.cut = names[0], begins, ends
        self.joins = dict.fromkeys(names, 0.0)
        self.joins[names[-1]] = rng.choice([0.0, rng.uniform(0, 20)])
        self.revoked: set[str] = set()
        self.revokes_at = rng.choice([math.inf, rng.uniform(10, _HORIZON_S)])
        self.accounts: dict[str, Account] = {}
        self.seen: BoolArray = np.zeros(len(self.stamps), np.bool_)
        self.heap: list[tuple[float, int, str, Any]] = []
        self.events = 0
        self.healthy = False
        self.breaches: dict[str, str] = {}
        self.counts = {"calm": 0, "firing": 0, "uncertain": 0}
        self.rows = self.reports = self.posts = 0
        self.crossed_since: float | None = None
        self.lag_s = 0.0

    def _draw_stream(self) -> None:
        rng = self.rng
        at, times = 0.0, []
        burst = rng.uniform(0, _HORIZON_S)
        while at < _HORIZON_S:
            at += rng.expovariate(6.0 if abs(at - burst) < 5 else 2.0)
            times.append(at)
        self.arrivals = np.array(times)
        self.stamps = np.array([int(t) - rng.choice([0, 0, 0, 3]) for t in times], np.float64)
        self.values = np.array([float(rng.random() < 0.5) for _ in times])
        self.weights = np.array([float(rng.randint(1, 4)) for _ in times])

    def _draw_spec(self) -> Threshold:
        rng = self.rng
        decay = rng.choice(
            [
                ds.decay.exponential(half_life=8),
                ds.decay.window(12),
                ds.decay.polynomial(2, scale=9),
            ]
        )
        asked: list[Question] = ["count", "count", "sum", "total", "share"]
        self.question = rng.choice(asked)
        scale = {"count": 30.0, "sum": 75.0, "total": 15.0, "share": 0.6}[self.question]
        line = scale * rng.uniform(0.7, 1.3)
        side: dict[str, Any] = {rng.choice(["above", "above", "below"]): line}
        if self.question == "share":
            side |= {"predicate": "v > 0.5"}
        within = rng.choice([0.1, 0.2])
        return Threshold(self.question, within=within, decay=decay, lease_s=_LEASE_S, **side)

    # --------------------------------------------------------------------------------- the network

    def _push(self, at: float, kind: str, *what: Any) -> None:
        self.events += 1
        heapq.heappush(self.heap, (at, self.events, kind, what))

    def _send(self, now: float, kind: str, site: str, *what: Any) -> None:
        if self.healthy:
            self._push(now + 0.01, kind, site, *what)
            return
        name, begins, ends = self.cut
        if self.rng.random() < self.loss or (site == name and begins <= now < ends):
            return
        self._push(now + self._delay(), kind, site, *what)
        if self.rng.random() < self.copies:
            self._push(now + 3 * self._delay(), kind, site, *what)

    def _delay(self) -> float:
        return min(self.rng.expovariate(1 / self.delay_s), 3 * self.delay_s)

    # --------------------------------------------------------------------------------- what is true

    def _clock(self, site: _Site, now: float) -> float:
        return site.offset + now * site.rate - site.step

    def _truth(self, rows: BoolArray, now: float) -> Reading:
        """The aggregate over a set of rows."""
        decay = self.monitor.spec.decay
        assert decay is not None
        ages = now - self.stamps
        decayed = np.where(rows & (ages >= 0), decay(np.maximum(ages, 0)), 0.0)
        if self.question == "count":
            return Reading.of(float(decayed.sum()))
        if self.question == "total":
            return Reading.of(float((decayed * self._signed).sum()))
        masses = decayed * self.weights
        if self.question == "sum":
            return Reading.of(float(masses.sum()))
        weight = float(masses.sum())
        inside = float(masses[self.values > 0.5].sum())
        return Reading.of(inside / weight, weight) if weight > 0 else Reading.of(math.nan)

    @property
    def _signed(self) -> npt.NDArray[np.float64]:
        return np.where(self.values > 0.5, 2.0, -1.0)

    def _columns(self) -> npt.NDArray[np.float64]:
        return self._signed if self.question == "total" else self.values

    # --------------------------------------------------------------------------------------- events

    def outcome(self) -> Outcome:
        """Everything that happens, and then a network that is well."""
        rng = self.rng
        names = list(self.sites)
        for row, at in enumerate(self.arrivals):
            for name in {rng.choice(names), rng.choice([*names, names[0]])}:
                self._push(max(at, self.joins[name]), "observe", name, row)
        for name in names:
            self._push(self.joins[name], "start", name)
        self._push(0.1, "check")
        self._push(self.revokes_at, "revoke", names[1])
        self._push(_HORIZON_S + 0.5, "heal")
        handlers: dict[str, Callable[..., None]] = {
            "observe": self._observe, "start": self._start, "tick": self._tick,
            "post": self._post, "answer": self._answer, "recall": self._recall,
            "check": self._check, "revoke": self._revoke, "heal": self._heal, "flush": self._flush,
        }  # fmt: skip
        while self.heap:
            now, _, kind, what = heapq.heappop(self.heap)
            if now > _HORIZON_S + 6.0:
                break
            handlers[kind](now, *what)
        for site in self.sites.values():
            if site.name not in self.revoked and site.unposted.any():
                self._breach("(d) rows are lost", _HORIZON_S)
        return Outcome(
            tuple(self.breaches.values()), self.rows, self.reports, self.posts, self.counts,
            self.lag_s,
        )  # fmt: skip

    def _start(self, now: float, name: str) -> None:
        site = self.sites[name]
        site.inc += 1
        make = _Trusting if self.planted == "trust an old grant" else BudgetSite
        site.alive = make(_recipe(), inc=site.inc, answer_s=1.0)
        site.shipped = {}
        if site.inc == 1:
            self._push(now, "tick", name)

    def _observe(self, now: float, name: str, row: int) -> None:
        site = self.sites[name]
        if site.alive is None or name in self.revoked or site.unposted[row]:
            return
        self.rows += 1
        site.unposted[row] = True
        one = slice(row, row + 1)
        site.alive.observe(
            self.stamps[one] + _BEGIN, self._columns()[one], self.weights[one],
            now=_BEGIN + now - site.late, clock=self._clock(site, now),
        )  # fmt: skip
        self._act(now, site)

    def _tick(self, now: float, name: str) -> None:
        site = self.sites[name]
        if not self.healthy and self.rng.random() < self.crash * _TICK_S:
            self._start(now, name)
        if self.planted == "lease by wall clock" and self.rng.random() < 0.1:
            site.step += self.rng.uniform(0.0, 2.0)
        self._act(now, site)
        self._push(now + _TICK_S, "tick", name)

    def _act(self, now: float, site: _Site) -> None:
        alive = site.alive
        assert alive is not None
        due = alive.due(self._clock(site, now))
        if due is not None and site.name not in self.revoked:
            self._report(now, site, posting=due == "post")

    def _report(self, now: float, site: _Site, *, posting: bool) -> None:
        assert site.alive is not None
        report = site.alive.report(self._clock(site, now), posting=posting)
        self.reports += 1
        rows = site.unposted.copy() if posting else np.zeros_like(site.unposted)
        self.posts += int(posting)
        site.shipped[report.seq] = rows
        self._send(now, "post", site.name, report, rows)

    def _post(self, now: float, name: str, report: Report, rows: BoolArray) -> None:
        if name in self.revoked:
            return
        self.seen |= rows
        self.accounts.setdefault(name, Account())
        headers = report.headers()
        read = Report.from_headers(*headers.values())
        reading = self._truth(self.seen, now)
        granted = self.monitor.grant(
            self.accounts, name, read, reading, now=now, rows=int(rows.sum())
        )
        grants: tuple[Grant, ...] = ()
        if granted is not None:
            account, grants = granted.account, (granted.grant,)
            if self.planted == "forget a charge":
                account = replace(account, grants=account.grants[-1:])
            self.accounts[name] = account
            self._recalled(now, granted.recall)
        self._send(now, "answer", name, report, Answer(grants).to_dict())
        self._look(now)

    def _answer(self, now: float, name: str, report: Report, form: Mapping[str, Any]) -> None:
        site = self.sites[name]
        alive = site.alive
        assert alive is not None
        if report.inc == alive.inc:
            rows = site.shipped.pop(report.seq, None)
            if rows is not None:
                site.unposted &= ~rows
        alive.answered(report.seq, Answer.from_dict(form), self._clock(site, now))
        self._act(now, site)

    def _recalled(self, now: float, names: tuple[str, ...]) -> None:
        for name in names:
            self._send(now, "recall", name, self.monitor.epoch)

    def _recall(self, now: float, name: str, epoch: int) -> None:
        site = self.sites[name]
        if site.alive is not None:
            site.alive.recall("m", epoch)
            self._act(now, site)

    def _revoke(self, now: float, name: str) -> None:
        self.revoked.add(name)
        self.accounts.pop(name, None)

    def _heal(self, now: float) -> None:
        """From now on all is well; later, when answers under way are in, sites are shut down."""
        self.healthy = True
        for name in self.sites:
            self._push(now + 4.0, "flush", name)

    def _flush(self, now: float, name: str) -> None:
        site = self.sites[name]
        if site.alive is not None:
            self._report(now, site, posting=True)

    def _check(self, now: float) -> None:
        if not self.healthy and self.rng.random() < self.hub_crash * _TICK_S:
            self.accounts = {name: Account() for name in self.accounts}
            if self.planted != "reuse an epoch":
                self.monitor = replace(self.monitor, epoch=self.monitor.epoch + 1)
        self._recalled(now, self._look(now))
        self._push(now + _TICK_S, "check")

    # ------------------------------------------------------------------------------------- promises

    def _look(self, now: float) -> tuple[str, ...]:
        """Hold the present state to the promises; whom it recalls."""
        state = self.monitor.state(self.accounts, self._truth(self.seen, now), now)
        self.counts[state.verdict] += 1
        everything, within = self.seen.copy(), self.seen.copy()
        for name in self.accounts:
            site = self.sites[name]
            everything |= site.unposted
            if not self._over(site, now):
                within |= site.unposted
            self._check_budget(site, now)
        aim = self.monitor.spec.aim
        truth = self._truth(within, now)
        if state.verdict == "firing" and not _beyond(truth, aim.fires, aim.above, -_ROUNDING):
            self._breach("(a) firing", now)
        if state.verdict == "calm" and _beyond(truth, aim.line, aim.above):
            self._breach("(b) calm", now)
        crossed = _beyond(self._truth(everything, now), aim.line, aim.above)
        if state.verdict == "calm" and crossed:
            self.crossed_since = now if self.crossed_since is None else self.crossed_since
            self.lag_s = max(self.lag_s, now - self.crossed_since)
            if now - self.crossed_since > _LEASE_S + 3 * self.delay_s + _TICK_S:
                self._breach("(c) calm for longer than a lease", now)
        else:
            self.crossed_since = None
        return state.recall

    def _over(self, site: _Site, now: float) -> bool:
        """Whether a site holds more than it may, and so has a report under way."""
        alive, clock = site.alive, self._clock(site, now)
        if alive is None or "m" not in alive.monitors:
            return True
        return alive.pending("m", clock) > alive.allowance("m", clock)

    def _check_budget(self, site: _Site, now: float) -> None:
        alive, account = site.alive, self.accounts[site.name]
        if alive is None or "m" not in alive.monitors:
            return
        held, allowance = alive.held("m"), alive.allowance("m", self._clock(site, now))
        account = account.of(self.monitor.epoch)
        if held is None or allowance == 0.0 or alive.inc != account.inc:
            return
        if held.epoch != self.monitor.epoch:
            if account.confirmed:
                self._breach("budget: confirmed, but of another epoch", now)
            return
        if allowance > account.charge * (1 + _ROUNDING):
            self._breach("budget: more than the charge", now)
        if now >= account.until:
            self._breach("budget: longer than the lease", now)

    def _breach(self, what: str, now: float) -> None:
        self.breaches.setdefault(what, f"{what} at {now:.2f} s")


def _beyond(truth: Reading, line: float, above: bool, by: float = _ROUNDING) -> bool:
    """Whether an aggregate is beyond a line, by a share of it; of nothing, no."""
    if truth.empty:
        return False
    margin = by * max(abs(line), 1.0)
    return truth.value >= line + margin if above else truth.value <= line - margin
