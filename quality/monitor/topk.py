"""``python -m quality.monitor topk``: certified top-k rounds beside TOPiCo, as in its section 5.2.

    python -m quality.monitor topk [--logs NAME ...] [--rounds 60]

Each round every site knows its exact counts of a window. Four ways to the 20 largest counts of all
sites together are run on the same counts:

* TOPiCo *as printed*; with a *gentle start* (T4 corrected: the first k, where the print sends
  everything); *corrected* (``quality.papers.topico``);
* *certified* rounds over a hub, by the messages of the library.

Communication takes no time and loses nothing; so all sites of TOPiCo hold one list, which is kept
once. Counted are entries (item and count) that a site sends in a round. TOPiCo sends them to every
other site, the hub's sites to the hub alone; the hub sends down the items that it watches.

*Right* is a list that has the k largest counts; of two that tie either may be in it. Kendall's tau
is that of Fagin, Kumar and Sivakumar for two lists of k (p = 0) over the pairs of their union.
Between rounds lists grow old: figures 8 to 10 look at them several times in each.

Writes pictures (.png), the table and claims (.txt) and every round (.csv) to ``out/quality``. Logs
that are not on this machine are skipped, and it is said.
"""

from __future__ import annotations

import argparse
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console

import decaysketch as ds
from decaysketch.topk import TopKHub, TopKSite
from decaysketch.topk.ranking import Item, top
from quality.ecm.logs import FOLDER
from quality.figures.claims import Claim, Figure, share
from quality.figures.draw import COLOURS, INK, Page, legend
from quality.figures.report import Report, Table
from quality.papers.topico import Erratum, Topico

__all__ = ["LOGS", "METHODS", "Log", "Round", "kendall", "main", "measure", "produce"]

K: Final = 20
PAPER: Final = "paper's window"  # of 15 seconds, about 1,000 events, on 29 sites
_LOOKS: Final = 5  # at a list, in each round

Int64Array = npt.NDArray[np.int64]
Counts = dict[Item, int]


@dataclass(frozen=True, eq=False)
class Log:
    """Events in order of time, each at one site.

    Attributes:
        name: as in tables.
        sites: how many.
        times, where, items: of each event: its time, site and item.
        window, delta: what is counted, and the time between rounds.
    """

    name: str
    sites: int
    times: npt.NDArray[np.float64]
    where: Int64Array
    items: Int64Array
    window: float
    delta: float

    def looks(self, rounds: int, each: int) -> Iterator[tuple[float, bool, Int64Array]]:
        """Times, whether a round begins, and counts: int64[sites, items], which is reused."""
        counts = np.zeros((self.sites, int(self.items.max()) + 1), np.int64)
        old = new = 0
        for look in range(rounds * each):
            now = self.times[0] + self.window + look * self.delta / each
            if now > self.times[-1]:
                return
            to_new, to_old = np.searchsorted(self.times, [now, now - self.window], side="right")
            np.add.at(counts, (self.where[new:to_new], self.items[new:to_new]), 1)
            np.subtract.at(counts, (self.where[old:to_old], self.items[old:to_old]), 1)
            new, old = int(to_new), int(to_old)
            yield float(now), look % each == 0, counts


def _zipf(exponent: float, sites: int, window: float = 60_000) -> Log:
    """5,000 items whose order shifts by three, six times; ten rounds a window."""
    rng, events, items = np.random.default_rng(2), 600_000, 5_000
    shares = 1 / np.arange(1, items + 1) ** exponent
    drawn = rng.choice(items, events, p=shares / shares.sum())
    drawn = (drawn + np.arange(events) // (events // 6) * 3) % items
    times = np.sort(rng.random(events)) * events
    where = rng.integers(0, sites, events)
    delta = window / 10 if window > 1_000 else window / 3
    name = f"zipf {exponent}, n={sites}" + ("" if window > 1_000 else f", {PAPER}")
    return Log(name, sites, times, where, drawn, window, delta)


def _flights(folder: Path) -> Log | None:
    """Airports of departure, at the site of the airport of arrival; a day, in minutes."""
    columns = ("sched_min", "delay_min", "origin", "destination")
    table = _read(folder / "plain" / "flights3m.parquet", *columns)
    if table is None:
        return None
    scheduled, delay, origin, destination = (column[:400_000] for column in table)
    times = scheduled.astype(np.float64) + np.nan_to_num(delay.astype(np.float64))
    items, where = (np.unique(each, return_inverse=True)[1] for each in (origin, destination))
    return _log("flights, n=16", 16, times, where % 16, items, 1440.0, 144.0)


def _wifi(folder: Path) -> Log | None:
    """Probe requests by device; each of the two receivers as four sites. Half an hour, in s."""
    path = folder / "deliveries" / "wifi_two_receivers.parquet"
    table = _read(path, "arrival_us", "source", "path")
    if table is None:
        return None
    arrival, source, receiver = table
    order = np.argsort(arrival, kind="stable")
    part = (np.arange(len(order)) * 2_654_435_761 >> 7) % 4
    where = (receiver[order].astype(np.int64) * 4 + part) % 8
    items = np.unique(source[order], return_inverse=True)[1]
    return _log("wifi, n=8", 8, arrival[order] / 1e6, where, items, 1800.0, 180.0)


def _log(name: str, sites: int, times: Any, where: Any, items: Any, *spans: float) -> Log:
    order = np.argsort(times, kind="stable")
    columns = (times[order], where[order].astype(np.int64), items[order].astype(np.int64))
    return Log(name, sites, *columns, *spans)


def _read(path: Path, *columns: str) -> list[Any] | None:
    if not path.exists():
        return None
    import pyarrow.parquet as pq

    return [column.to_numpy() for column in pq.read_table(path, columns=list(columns)).columns]


LOGS: Final[dict[str, Callable[[Path], Log | None]]] = {
    "zipf-1.1-4": lambda _: _zipf(1.1, 4),
    "zipf-1.1-16": lambda _: _zipf(1.1, 16),
    "zipf-1.1-32": lambda _: _zipf(1.1, 32),
    "zipf-0.8-16": lambda _: _zipf(0.8, 16),
    "zipf-1.5-16": lambda _: _zipf(1.5, 16),
    "flights": _flights,
    "wifi": _wifi,
    "paper-29": lambda _: _zipf(0.8, 29, 1_000),
}
_DRAWN: Final = ("zipf 0.8, n=29, " + PAPER, "zipf 1.1, n=16")


# ------------------------------------------------------------------------------------- the methods


class Sent(NamedTuple):
    """What a round cost, and what its list is worth.

    Attributes:
        entries: that all sites sent at once.
        more: that they sent in further exchanges.
        named: items that went down, to all sites.
        exchanges: 1 or more.
        at_once, certain: whether a certificate came with the first exchange; with any.
    """

    entries: int
    more: int = 0
    named: int = 0
    exchanges: int = 1
    at_once: bool = False
    certain: bool = False


class Method(ABC):
    """A way to a list.

    Attributes:
        items: the list held, in its order.
        counts: what it says of them.
    """

    items: list[Item]
    counts: list[int | float]

    @abstractmethod
    def round(self, sites: Sequence[Counts], now: int) -> Sent:
        """Exchange, and hold a new list."""


class Broadcast(Method):
    """TOPiCo."""

    def __init__(self, sites: int, printed: Sequence[Erratum]) -> None:
        self._view = Topico(sites, K, printed)  # that of every site: all of them hear the same

    def round(self, sites: Sequence[Counts], now: int) -> Sent:
        lists = [self._view.disseminate(counts) for counts in sites]
        for site, each in enumerate(lists):
            self._view.update(site, each)
        held = self._view.top()
        self.items, self.counts = [x for x, _ in held], [c for _, c in held]  # type: ignore[misc]
        return Sent(sum(len(each.primary) + len(each.echo) for each in lists))


class Certified(Method):
    """Rounds over a hub."""

    def __init__(self, sites: int) -> None:
        names = [f"site {number:02}" for number in range(sites)]
        self._hub, self._sites = TopKHub(K, names), [TopKSite(name, 1) for name in names]

    def round(self, sites: Sequence[Counts], now: int) -> Sent:
        hub, ask = self._hub, self._hub.begin(now)
        named = len(ask.watched) * len(sites)
        entries = more = 0
        for site, counts in zip(self._sites, sites, strict=True):
            site.take(ask)
            post = site.post(counts, now)
            entries += len(post.entries)
            hub.take(post)
        at_once, exchanges = hub.top().certain, 1
        while (again := hub.refine()) is not None:
            exchanges += 1
            named += (len(again.watched) - len(ask.watched)) * len(sites)
            ask = again
            for site in self._sites:
                added = site.take(hub.ask(site.name))
                assert added is not None
                more += len(added.entries)
                hub.take(added)
        found = hub.top()
        self.items = [row.item for row in found.rows]
        self.counts = [row.lower for row in found.rows]
        return Sent(entries, more, named, exchanges, at_once, found.certain)


METHODS: Final[dict[str, Callable[[int], Method]]] = {
    "printed": lambda sites: Broadcast(sites, ("T1", "T2", "T3", "T4")),
    "gentle": lambda sites: Broadcast(sites, ("T1", "T2", "T3")),
    "corrected": lambda sites: Broadcast(sites, ()),
    "certified": Certified,
}
_TITLES: Final = {
    "printed": "TOPiCo as printed",
    "gentle": "printed, gentle start",
    "corrected": "TOPiCo corrected",
    "certified": "certified rounds",
}
_WIDTHS: Final = (3.2, 2.2, 1.4, 0.8)  # of lines, so that one upon another is seen

#: Entries that a site sent in a round when certified rounds were first measured, by log.
FIRST_MEASURED: Final = {
    "zipf 1.1, n=4": 23.0, "zipf 1.1, n=16": 25.0, "zipf 1.1, n=32": 27.0, "zipf 0.8, n=16": 28.0,
    "zipf 1.5, n=16": 23.0, "flights, n=16": 32.7, "wifi, n=8": 24.0,
}  # fmt: skip


class Round(NamedTuple):
    """One round of one method, numbers of sites as means over them."""

    log: str
    method: str
    round: int
    entries: float
    more: float
    named: float
    exchanges: int
    all: float
    at_once: bool
    certain: bool
    right: bool
    exact: bool
    recall: float
    tau: float


class Look(NamedTuple):
    """At a list that is held: Kendall's tau to what is true now, and since when it is not."""

    log: str
    method: str
    deltas: float  # time since the first round
    tau: float
    delay: float  # since its items were last the right ones


def measure(log: Log, rounds: int, looks: int) -> tuple[list[Round], list[Look]]:
    """All methods on one log."""
    methods = {name: make(log.sites) for name, make in METHODS.items()}
    found: list[Round] = []
    seen: list[Look] = []
    past: dict[frozenset[Item], float] = {}  # when these items were the right ones last
    began = log.times[0] + log.window
    for number, (now, opens, counts) in enumerate(log.looks(rounds, looks)):
        true = _counts(counts.sum(axis=0))
        right = top(true, K)
        past[frozenset(x for x, _ in right)] = now
        for name, method in methods.items():
            if opens:
                sites = [_counts(row) for row in counts]
                sent = method.round(sites, number)
                found.append(_round(log, name, number // looks, sites, sent, method, true, right))
            tau = kendall(method.items, [x for x, _ in right])
            delay = now - past.get(frozenset(method.items), began - log.window)
            at = (now - began) / log.delta
            seen.append(Look(log.name, name, at, tau, delay / log.delta))
    return found, seen


def _counts(row: Int64Array) -> Counts:
    some = np.flatnonzero(row)
    return dict(zip(some.tolist(), row[some].tolist(), strict=True))


def _round(
    log: Log, name: str, number: int, sites: Sequence[Counts], sent: Sent, method: Method,
    true: Counts, right: list[tuple[Item, int]],
) -> Round:  # fmt: skip
    held, best = [true.get(x, 0) for x in method.items], [count for _, count in right]
    n = len(sites)
    return Round(
        log.name, name, number, sent.entries / n, sent.more / n, sent.named / n, sent.exchanges,
        sum(map(len, sites)) / n, sent.at_once, sent.certain,
        sorted(held) == sorted(best), list(method.counts) == best,
        len({x for x, _ in right} & set(method.items)) / max(len(right), 1),
        kendall(method.items, [x for x, _ in right]),
    )  # fmt: skip


def kendall(one: Sequence[Item], two: Sequence[Item]) -> float:
    """Share of pairs that two lists surely order differently, of all pairs of their union."""
    at, of = ({item: place for place, item in enumerate(each)} for each in (one, two))
    far = len(one) + len(two)  # of an item that a list does not have
    pairs = list(combinations({**at, **of}, 2))
    wrong = sum(
        (at.get(x, far) - at.get(y, far)) * (of.get(x, far) - of.get(y, far)) < 0 for x, y in pairs
    )
    return wrong / len(pairs) if pairs else 0.0


# ----------------------------------------------------------------------------------------- the page


def produce(logs: Sequence[Log], rounds: int, folder: Path) -> Report:
    """Run all of it."""
    found: list[Round] = []
    seen: list[Look] = []
    for log in logs:
        some, looks = measure(log, rounds, _LOOKS if log.name in _DRAWN else 1)
        found += some
        seen += looks
    drawn = [log for log in logs if log.name in _DRAWN]
    if drawn:
        _draw_cost(folder / "monitor-topk-figure-6.png", drawn, found)
        _draw_lists(folder / "monitor-topk-figures-8-10.png", drawn, seen)
    report = Report(
        "monitor-topk",
        "Top-k over many sites: certified rounds beside TOPiCo",
        f"k = {K}, up to {rounds} rounds, ten to a window (three of the {PAPER}). Entries that a "
        "site sends in a round: TOPiCo's go to all other sites, those of certified rounds to the "
        "hub. Every round of every method is in the CSV file.",
        tables=[_costs(logs, found), _lists(logs, found)],
        claims=_claims(found),
        headings=list(Round._fields),
        raw=found,
    )
    report.write(folder)
    return report


def _of(found: Sequence[Round], log: str, method: str) -> list[Round]:
    return [each for each in found if (each.log, each.method) == (log, method)]


def _mean(found: Sequence[Round], name: str) -> float:
    return float(np.mean([getattr(each, name) for each in found]))


def _costs(logs: Sequence[Log], found: Sequence[Round]) -> Table:
    rows = []
    for log in logs:
        mine = _of(found, log.name, "certified")
        row = [log.name, f"{_mean(mine, 'all'):,.0f}"]
        row += [f"{_mean(_of(found, log.name, name), 'entries'):,.1f}" for name in METHODS]
        row += [f"+{_mean(mine, 'more'):.1f}", f"{_mean(mine, 'named'):.1f}"]
        row += [f"{_mean(mine, name):.2f}" for name in ("exchanges", "at_once", "certain")]
        rows.append(row)
    headings = ["log", "all of L_i", *METHODS, "asked again", "named down", "exchanges",
                "certain at once", "certain"]  # fmt: skip
    return Table("Entries per site and round", headings, rows)


def _lists(logs: Sequence[Log], found: Sequence[Round]) -> Table:
    rows = []
    for log in logs:
        for name, title in _TITLES.items():
            part = _of(found, log.name, name)
            row = [f"{log.name}, {title}"]
            row += [f"{_mean(part, each):.3f}" for each in ("right", "exact", "recall")]
            taus = [each.tau for each in part]
            rows.append([*row, f"{np.mean(taus):.4f}", f"{np.max(taus):.3f}"])
    headings = ["list", "right", "with counts", "recall", "tau, mean", "tau, most"]
    return Table("Lists, just after a round", headings, rows)


def _claims(found: Sequence[Round]) -> list[Claim]:
    certified = [each for each in found if each.method == "certified"]
    lied = sum(each.certain and not (each.right and each.exact) for each in certified)
    by_round = {(each.log, each.round): each for each in found if each.method == "corrected"}
    cheaper = [
        each.entries + each.more <= by_round[each.log, each.round].entries for each in certified
    ]
    dearest = [
        (_mean(mine, "entries") + _mean(mine, "more")) / stated
        for log, stated in FIRST_MEASURED.items()
        if (mine := _of(certified, log, "certified"))
    ]
    claims = [
        Claim("certificates that lied", Figure(lied, 0.0), 0.0, "at most"),
        Claim(
            "rounds without a certificate in the end",
            Figure(sum(not each.certain for each in certified), 0.0), 0.0, "at most",
        ),
        Claim(
            "rounds in which certified ones send no more than TOPiCo corrected", share(cheaper),
            0.5, "at least", percent=True,
        ),
    ]  # fmt: skip
    if dearest:
        text = (
            "entries of a site and round, as a share of what was first measured, on the worst of "
        )
        most = Figure(max(dearest), 0.0)
        claims.append(Claim(f"{text}{len(dearest)} logs", most, 1.3, "at most"))
    return claims


def _setting(log: Log) -> str:
    return f"{log.name}\ndelta = window / {log.window / log.delta:.0f}"


def _draw_cost(path: Path, logs: Sequence[Log], found: Sequence[Round]) -> None:
    title = "Figure 6: entries that a site sends, as a share of all it has, and beyond k"
    setting = f"k = {K}; mean over sites, further exchanges included"
    with Page(path, title, setting, 2 * len(logs), gap=0.36) as (figure, all_axes):
        for log, axes, beyond in zip(logs, all_axes[::2], all_axes[1::2], strict=True):
            axes.set_title(_setting(log), fontsize=8.5)
            beyond.set_title(_setting(log), fontsize=8.5)
            for (name, label), colour, width in zip(
                _TITLES.items(), COLOURS, _WIDTHS, strict=False
            ):
                part = _of(found, log.name, name)
                sent = np.array([each.entries + each.more for each in part])
                full = np.array([each.all for each in part])
                line: dict[str, Any] = {"color": colour, "linewidth": width}
                axes.plot(sent / full, label=label, **line)
                beyond.plot(sent - K, **line)
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.set_ylim(0.01, 1.3)
            axes.set_ylabel("entries sent / all of them")
            beyond.set_yscale("symlog", linthresh=10)
            beyond.set_ylabel("D = entries sent - k")
            for each in (axes, beyond):
                each.set_xlabel("round")
        legend(figure, all_axes[0], len(_TITLES))


def _draw_lists(path: Path, logs: Sequence[Log], seen: Sequence[Look]) -> None:
    title = "Figures 8, 9 and 10: how far lists are from what is true now, and how old they are"
    setting = f"k = {K}; lists are looked at {_LOOKS} times a round"
    with Page(path, title, setting, 2 * len(logs), gap=0.36) as (figure, all_axes):
        for log, axes, delays in zip(logs, all_axes[::2], all_axes[1::2], strict=True):
            axes.set_title(_setting(log), fontsize=8.5)
            delays.set_title(_setting(log), fontsize=8.5)
            for (name, label), colour, width in zip(
                _TITLES.items(), COLOURS, _WIDTHS, strict=False
            ):
                part = [look for look in seen if (look.log, look.method) == (log.name, name)]
                axes.plot(
                    [look.deltas for look in part], [look.tau for look in part], label=label,
                    color=colour, linewidth=width,
                )  # fmt: skip
                sorted_delays = np.sort([look.delay for look in part])
                shares = np.arange(1, len(part) + 1) / len(part)
                delays.step(sorted_delays, shares, where="post", color=colour, linewidth=width)
            axes.set_xlabel("time / delta")
            axes.set_ylabel("Kendall's tau, normalised")
            axes.set_ylim(bottom=0)
            delays.axvline(1, color=INK, linewidth=0.8, linestyle=":")
            delays.set_xlim(0, 6)
            delays.set_ylim(0, 1.02)
            delays.set_xlabel("since its items were right / delta")
            delays.set_ylabel("share of looks")
        legend(figure, all_axes[0], len(_TITLES))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor topk", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--logs", nargs="+", choices=list(LOGS), default=list(LOGS))
    parser.add_argument("--rounds", type=int, default=60, help="of each log (%(default)s)")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the real logs")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error(f"--rounds is {options.rounds}; expected 2 or more")
    console, began = Console(stderr=True), time.perf_counter()
    logs = []
    for name in options.logs:
        if (log := LOGS[name](options.data)) is None:
            console.print(f"{name}: the log is not in {options.data}, skipped")
        else:
            logs.append(log)
    if not logs:
        return 0
    report = produce(logs, options.rounds, options.out)
    print(report)
    print(
        f"decaysketch {ds.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}; {time.perf_counter() - began:.0f} s; pictures in {options.out}"
    )
    return int(any(claim.verdict == "does not hold" for claim in report.claims))
