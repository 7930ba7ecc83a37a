"""``alerts``: posts that an alert on a decayed count costs, on logs of deliveries with copies.

All sites of a log take what they hear, and one monitor watches the count of the union, under an
exponential decay. Sites and hub are those of the product (:class:`~decaysketch.monitor.BudgetSite`,
:class:`~decaysketch.monitor.Monitor`) over a network that loses nothing and takes no time; the
count is exact. After every delivery the state is held to what is true of all that was heard.

Beside it: ``static``, where a site posts once it holds its equal part of the tolerance, and
``timer``, where it posts at fixed times, half as far apart as the tolerance is of the decay's mean
life, which promises nothing. Costs are shares of a post for every delivery; 300 bytes each way, as
over HTTP, and 9 a row.
"""

from __future__ import annotations

import argparse
import heapq
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.contract.family import Recipe
from decaysketch.families import recipe_of
from decaysketch.monitor import Account, Answer, BudgetSite, Monitor, Reading
from decaysketch.monitor.spec import Threshold
from quality.ecm.logs import FOLDER
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.draw import COLOURS, MARKERS, MUTED, Page, legend, line
from quality.figures.report import Report, Table

__all__ = ["LINES", "METHODS", "Deliveries", "Found", "deliveries", "main", "measure", "produce"]

METHODS: Final = ("budgets", "static", "timer")
LINES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "2 max": None}
"""Thresholds: percentiles of the count at the log's messages, or twice the largest."""

_LEASE: Final = 1.0  # mean lives of the decay
_OVERHEAD_BYTES: Final = 300
_ROW_BYTES: Final = 9
_ROUNDING: Final = 1e-9
_DRAWN: Final = 400_000

# Mean life of the decay, in seconds, and what is to be saved at least: (line, within) -> posts for
# each one of ours.
_LOGS: Final[dict[str, tuple[float, dict[tuple[str, float], float]]]] = {
    "ble_set2": (1800.0, {("p90", 0.05): 20, ("p90", 0.1): 35, ("2 max", 0.1): 160}),
    "wifi_two_receivers": (
        600.0,
        {("p50", 0.05): 74, ("p50", 0.1): 114, ("p99", 0.05): 582, ("p99", 0.1): 682},
    ),
    "lorawan_tourperret": (30 * 86400.0, {("p90", 0.05): 6, ("p90", 0.1): 9}),
    "drawn": (100_000.0, {}),
}

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Deliveries:
    """What sites heard, in the order of arrival.

    Attributes:
        name: of the log.
        life: mean life of the decay, in seconds.
        times: float64[n], of arrival, in seconds.
        sites: int64[n], from 0 on.
        messages: int64[n], from 0 on; copies have the same.
        stamps: float64[messages]: the message's time, which is that of its first arrival.
    """

    name: str
    life: float
    times: Float64Array
    sites: Int64Array
    messages: Int64Array
    stamps: Float64Array

    @property
    def copies(self) -> float:
        """Share of the deliveries that are not the first of their message."""
        return 1.0 - len(self.stamps) / len(self.times)

    def line(self, name: str) -> float:
        """A threshold by its name in :data:`LINES`."""
        counts = _counts(np.sort(self.stamps), self.life)
        percentile = LINES[name]
        if percentile is None:
            return 2.0 * float(counts.max())
        return float(np.percentile(counts, percentile))


class Found(NamedTuple):
    """One run.

    Attributes:
        log, sites, line, threshold, within, method: of what.
        deliveries, posts, renewals, bytes: counts.
        fired: how often the state came to be firing.
        uncertain: share of the looks at which it was neither calm nor firing.
        missed: looks at which the threshold was reached and the state was calm.
        false: looks at which it fired, below the threshold by more than the tolerance.
        lowest: the least that the hub knew when the threshold was reached, as a share of it.
    """

    log: str
    sites: int
    line: str
    threshold: float
    within: float
    method: str
    deliveries: int
    posts: int
    renewals: int
    bytes: int
    fired: int
    uncertain: float
    missed: int
    false: int
    lowest: float

    @property
    def saved(self) -> float:
        """Deliveries for each post, and each report without rows."""
        return self.deliveries / max(self.posts + self.renewals, 1)


def _counts(stamps: Float64Array, life: float) -> Float64Array:
    """The decayed count just after each message."""
    shares = np.exp(-np.diff(stamps, prepend=stamps[0]) / life).tolist()
    count, counts = 0.0, []
    for share in shares:
        count = count * share + 1.0
        counts.append(count)
    return np.array(counts)


@lru_cache(1)
def deliveries(name: str, rows: int | None = None, folder: Path = FOLDER) -> Deliveries | None:
    """A log by its name; None where it is not on this machine.

    Args:
        rows: of its beginning; None: all.
    """
    life = _LOGS[name][0]
    if name == "drawn":
        times, sites, keys = _drawn(rows or _DRAWN)
    else:
        path = folder / "deliveries" / f"{name}.parquet"
        if not path.exists():
            return None
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=["arrival_us", "source", "msg", "path"]).slice(0, rows)
        times = table["arrival_us"].to_numpy() / 1e6
        keys = table["source"].to_numpy().astype(np.int64) << 32 | table["msg"].to_numpy()
        sites = np.unique(table["path"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    order = np.argsort(times, kind="stable")
    times = times[order]
    first, messages = np.unique(keys[order], return_index=True, return_inverse=True)[1:]
    return Deliveries(name, life, times, sites[order], messages.astype(np.int64), times[first])


def _drawn(
    rows: int, sites: int = 32, copies: float = 0.3
) -> tuple[Float64Array, Int64Array, Int64Array]:
    """A delivery a second, two in the middle fifth; of sites whose shares fall as 1 / rank; a share
    of the deliveries are copies of one of the 200 before."""
    rng = np.random.default_rng(1)
    gaps = np.ones(rows)
    gaps[2 * rows // 5 : 3 * rows // 5] = 0.5
    keys = np.arange(rows)
    again = rng.random(rows) < copies
    keys[again] = np.maximum(keys[again] - rng.integers(1, 200, int(again.sum())), 0)
    shares = 1.0 / np.arange(1, sites + 1)
    chosen = rng.choice(sites, rows, p=shares / shares.sum())
    return np.cumsum(gaps), chosen.astype(np.int64), keys


class _Union:
    """The decayed count of distinct messages, as time passes."""

    def __init__(self, log: Deliveries) -> None:
        self._stamps = log.stamps.tolist()
        self._life = log.life
        self._held = bytearray(len(log.stamps))
        self._at = float(log.times[0])
        self.count = 0.0

    def fall(self, now: float) -> None:
        self.count *= math.exp((self._at - now) / self._life)
        self._at = now

    def add(self, message: int) -> None:
        if not self._held[message]:
            self._held[message] = 1
            self.count += math.exp((self._stamps[message] - self._at) / self._life)


class _Run:
    """Deliveries over sites and a hub: what both methods with allowances, and the timer, share."""

    def __init__(self, log: Deliveries, threshold: float, within: float) -> None:
        self.log, self.threshold, self.within = log, threshold, within
        self.fires = (1.0 - within) * threshold
        self.known, self.true = _Union(log), _Union(log)
        self.waiting: list[list[int]] = [[] for _ in range(int(log.sites.max()) + 1)]
        self.posts = self.renewals = self.bytes = 0

    def begin(self) -> None:
        """Before the first delivery."""

    def pass_to(self, now: float) -> None:
        """What happens until then, if nothing is heard."""

    def hear(self, now: float, site: int, stamp: float) -> None:
        """After a message was heard, and waits at the site."""
        raise NotImplementedError

    def verdict(self, now: float) -> str:
        """What is said now; what promises nothing says no more than what it knows."""
        return "firing" if self.known.count >= self.fires else "calm"

    def post(self, now: float, site: int) -> int:
        """All that waits at a site goes to the hub; how many rows."""
        rows, self.waiting[site] = self.waiting[site], []
        self.known.fall(now)
        for message in rows:
            self.known.add(message)
        self.posts += 1
        self.bytes += 2 * _OVERHEAD_BYTES + _ROW_BYTES * len(rows)
        return len(rows)

    def looks(self) -> Iterator[tuple[str, float]]:
        """What is said, and the truth, after each delivery."""
        log = self.log
        stamps = log.stamps.tolist()
        columns = (log.times.tolist(), log.sites.tolist(), log.messages.tolist())
        self.begin()
        for now, site, message in zip(*columns, strict=True):
            self.pass_to(now)
            self.true.fall(now)
            self.true.add(message)
            self.waiting[site].append(message)
            self.hear(now, site, stamps[message])
            self.known.fall(now)
            yield self.verdict(now), self.true.count


class _Static(_Run):
    """A site posts once it holds more than its equal part of the tolerance."""

    def begin(self) -> None:
        self.allowance = self.within * self.threshold / len(self.waiting)
        self.held = [(0.0, 0.0)] * len(self.waiting)  # weight at a time

    def hear(self, now: float, site: int, stamp: float) -> None:
        weight, at = self.held[site]
        life = self.log.life
        weight = weight * math.exp((at - now) / life) + math.exp((stamp - now) / life)
        if weight > self.allowance:
            self.post(now, site)
            weight = 0.0
        self.held[site] = weight, now


class _Timer(_Run):
    """A site posts at fixed times."""

    def begin(self) -> None:
        self.due = [float(self.log.times[0])] * len(self.waiting)

    def hear(self, now: float, site: int, stamp: float) -> None:
        if now >= self.due[site]:
            self.post(now, site)
            self.due[site] = now + 0.5 * self.within * self.log.life


@lru_cache(1)
def _recipe() -> Recipe:
    return recipe_of(ds.SketchParams(max_weight=1, id_bits=32, seed=1, time_unit="s"))


class _Budgets(_Run):
    """The product's sites and its hub."""

    def begin(self) -> None:
        life = self.log.life
        decay = ds.decay.exponential(half_life=life * math.log(2.0))
        spec = Threshold(
            "count", above=self.threshold, within=self.within, decay=decay, lease_s=_LEASE * life
        )
        self.monitor = Monitor.of("alert", 1, spec, _recipe())
        self.names = [f"s{site}" for site in range(len(self.waiting))]
        self.numbers = {name: site for site, name in enumerate(self.names)}
        self.engines = [BudgetSite(_recipe(), inc=1) for _ in self.waiting]
        self.accounts = dict.fromkeys(self.names, Account())
        self.wakes: list[tuple[float, int]] = []
        self.wake = [math.inf] * len(self.waiting)
        self.act(float(self.log.times[0]), *self.numbers.values())

    def pass_to(self, now: float) -> None:
        while self.wakes and self.wakes[0][0] <= now:
            at, site = heapq.heappop(self.wakes)
            if at == self.wake[site]:
                self.act(at, site)

    def hear(self, now: float, site: int, stamp: float) -> None:
        self.engines[site].observe([stamp], now=now, clock=now)
        self.act(now, site)

    def act(self, now: float, *sites: int) -> None:
        """Everything that sites are due to do, and those that are recalled for it; each does one
        thing in its turn."""
        turns = deque(sites)
        while turns:
            site = turns.popleft()
            engine = self.engines[site]
            if (due := engine.due(now)) is not None:
                turns.append(site)
                turns.extend(self.report(now, site, posting=due == "post"))
                continue
            self.wake[site] = engine.wake(now)
            if math.isfinite(self.wake[site]):
                heapq.heappush(self.wakes, (self.wake[site], site))

    def report(self, now: float, site: int, *, posting: bool) -> list[int]:
        """To the hub and back; which sites it recalls."""
        engine, name = self.engines[site], self.names[site]
        report = engine.report(now, posting=posting)
        rows = 0
        if posting:
            rows = self.post(now, site)
        else:
            self.known.fall(now)
            self.renewals += 1
            self.bytes += 2 * _OVERHEAD_BYTES
        reading = Reading.of(self.known.count)
        granted = self.monitor.grant(self.accounts, name, report, reading, now=now, rows=rows)
        assert granted is not None, "nothing overtakes it"
        self.accounts[name] = granted.account
        engine.answered(report.seq, Answer((granted.grant,)), now)
        return self.recall(granted.recall)

    def recall(self, names: Sequence[str]) -> list[int]:
        sites = [self.numbers[name] for name in names]
        for site in sites:
            self.engines[site].recall("alert", 1)
        return sites

    def verdict(self, now: float) -> str:
        state = self.monitor.state(self.accounts, Reading.of(self.known.count), now)
        if state.recall:
            self.act(now, *self.recall(state.recall))
            state = self.monitor.state(self.accounts, Reading.of(self.known.count), now)
        return state.verdict


_RUNS: Final[dict[str, type[_Run]]] = {"budgets": _Budgets, "static": _Static, "timer": _Timer}


def measure(name: str, line: str, within: float, method: str, rows: int | None = None) -> Found:
    """One run over a log that is on this machine."""
    log = deliveries(name, rows)
    assert log is not None, "asked for where it is"
    threshold = log.line(line)
    run = _RUNS[method](log, threshold, within)
    fired = missed = false = uncertain = 0
    lowest, before = math.inf, "calm"
    for verdict, truth in run.looks():
        fired += verdict == "firing" != before
        before = verdict
        uncertain += verdict == "uncertain"
        if truth >= threshold * (1 + _ROUNDING):
            missed += verdict == "calm"
            lowest = min(lowest, run.known.count / threshold)
        false += verdict == "firing" and truth < run.fires * (1 - _ROUNDING)
    return Found(
        name, len(run.waiting), line, threshold, within, method, len(log.times), run.posts,
        run.renewals, run.bytes, fired, uncertain / len(log.times), missed, false, lowest,
    )  # fmt: skip


def produce(
    names: Sequence[str], withins: Sequence[float], rows: int | None, jobs: int, folder: Path
) -> Report:
    """All lines and tolerances on each log."""
    tasks = [
        (name, line, within, method, rows)
        for name in names
        for line in LINES
        for within in withins
        for method in METHODS
    ]
    found = pool.run("alerts", measure, tasks, jobs)
    settings = []
    for name in names:
        log = deliveries(name, rows)
        assert log is not None
        sites = int(log.sites.max()) + 1
        settings.append(
            f"{name}: {len(log.times):,} deliveries at {sites} sites, {log.copies:.0%} copies, "
            f"mean life {log.life:,.0f} s"
        )
    title = "Alerts on a decayed count over many sites"
    report = Report(
        "monitor-alerts",
        title,
        f"{'; '.join(settings)}. Leases of {_LEASE:g} mean life. Looked at after every delivery.",
        [_table(found)],
        _claims(found, rows),
        list(Found._fields),
        found,
    )
    _draw(folder / "monitor-alerts.png", title, found)
    report.write(folder)
    return report


def _table(found: Sequence[Found]) -> Table:
    naive = 2 * _OVERHEAD_BYTES + _ROW_BYTES
    rows = [
        [
            f"{each.log}, {each.line}, {each.within:g}, {each.method}",
            f"{each.threshold:,.0f}",
            f"1/{each.deliveries / max(each.posts, 1):,.0f}",
            f"{each.renewals:,}",
            f"1/{each.deliveries * naive / max(each.bytes, 1):,.0f}",
            str(each.fired),
            f"{each.uncertain:.4f}",
            str(each.missed),
            str(each.false),
            f"{each.lowest:.4f}" if math.isfinite(each.lowest) else "-",
        ]
        for each in found
    ]
    headings = ["", "T", "posts", "renewals", "bytes", "fired", "uncertain", "missed", "false",
                "known at T"]  # fmt: skip
    return Table("What is sent, and what is said", headings, rows)


def _claims(found: Sequence[Found], rows: int | None) -> list[Claim]:
    ours = [each for each in found if each.method == "budgets"]
    claims = [
        Claim("looks at which budgets were calm and the threshold was reached",
              Figure(sum(each.missed for each in ours), 0.0), 0.0, "at most"),
        Claim("looks at which budgets fired below the tolerance",
              Figure(sum(each.false for each in ours), 0.0), 0.0, "at most"),
    ]  # fmt: skip
    if rows is not None:  # what is to be saved is of whole logs
        return claims
    for each in ours:
        least = _LOGS[each.log][1].get((each.line, each.within))
        if least is not None:
            text = f"{each.log}, {each.line}, within {each.within:g}: deliveries for each post"
            claims.append(
                Claim(text, Figure(each.deliveries / max(each.posts, 1), 0.0), least, "at least")
            )
    return claims


def _draw(path: Path, title: str, found: Sequence[Found]) -> None:
    logs = list(dict.fromkeys(each.log for each in found))
    setting = "deliveries for each post, by threshold; filled: the smaller tolerance"
    with Page(path, title, setting, len(logs), share_y=True) as (figure, all_axes):
        for name, axes in zip(logs, all_axes, strict=True):
            axes.set_title(name, fontsize=9)
            part = [each for each in found if each.log == name]
            withins = sorted({each.within for each in part})
            for method, colour, marker in zip(METHODS, COLOURS, MARKERS, strict=False):
                for within in withins:
                    chosen = {m.line: m for m in part if (m.method, m.within) == (method, within)}
                    saved = [chosen[each].saved for each in LINES]
                    hollow, label = within != withins[0], f"{method}, {within:g}"
                    line(axes, range(len(LINES)), saved, colour, marker, label, hollow=hollow)
            axes.set_yscale("log")
            axes.set_xticks(range(len(LINES)), list(LINES))
            axes.axhline(1.0, color=MUTED, linewidth=1, linestyle=":")
        all_axes[0].set_ylabel("deliveries for each report")
        legend(figure, all_axes[0], len(METHODS) * 2)


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor alerts", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--logs", nargs="+", choices=list(_LOGS), default=list(_LOGS))
    parser.add_argument("--within", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--rows", type=int, help="of a log's beginning; all if not given")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    if options.rows is not None and options.rows < 1_000:
        parser.error(f"--rows is {options.rows}; expected 1000 or more")
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; expected 1 or more")
    for within in options.within:
        if not 0.0 < within < 1.0:
            parser.error(f"--within has {within}; expected numbers above 0 and below 1")
    start = time.perf_counter()
    names = []
    for name in options.logs:
        if deliveries(name, options.rows) is None:
            print(f"{name}: the log is not on this machine, skipped")
        else:
            names.append(name)
    report = produce(names, options.within, options.rows, options.jobs, options.out)
    print(f"{report}\n\n{time.perf_counter() - start:.0f} s; pictures in {options.out}")
    return int(any(claim.verdict == "does not hold" for claim in report.claims))
