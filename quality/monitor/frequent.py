"""Frequent items of all sites' window: budgets on local estimates beside the geometric method.

An item is to be called frequent from ``phi`` of the window on, give or take theta. Looked at after
every arrival and departure, of the item that moved: *missed*, not called although it was counted
``threshold (1 + theta)`` times or more; *false*, called although it was counted less than
``threshold (1 - theta)`` times less what collisions may add, ``e / width`` of all events. Counters
are exact.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
from pathlib import Path
from typing import Any, Final, NamedTuple

from decaysketch.monitor.frequent import FrequentHub, FrequentSite, ItemBegin, ItemPoll
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.draw import COLOURS, MARKERS, MUTED, Page, legend, line
from quality.figures.report import Report, Table
from quality.monitor.protocols import HEADER, NAIVE
from quality.monitor.windows import zipf
from quality.papers.geometric_items import GeometricItemsHub, GeometricItemsSite

__all__ = ["METHODS", "Found", "main", "measure", "produce"]

DEPTH: Final = 3
WIDTH: Final = 547
METHODS: Final = ("budgets", "geometric")
SITES: Final = (4, 8, 16, 32)
KEYS: Final = 5_000


class Found(NamedTuple):
    """One run.

    Attributes:
        method, sites, phi, theta: of what.
        messages, sent: as shares of a message of 48 bytes for each arrival.
        polls: how often all sites were asked of an item.
        steps, missed, false: looked at; wrong.
        frequent: items called so at the end.
    """

    method: str
    sites: int
    phi: float
    theta: float
    messages: float
    sent: float
    polls: int
    steps: int
    missed: int
    false: int
    frequent: int


class _Links:
    """Hub and sites over links that lose nothing and take no time."""

    def __init__(self, method: str, sites: int, threshold: float, theta: float) -> None:
        names = [str(i) for i in range(sites)]
        size = DEPTH * WIDTH
        self.messages = self.payload = 0
        self.hub: FrequentHub | GeometricItemsHub
        self.sites: list[Any]
        if method == "budgets":
            self.hub = FrequentHub(names, threshold, theta)
            self.sites = [FrequentSite(name, size, self.hub.default) for name in names]
        else:
            self.hub = GeometricItemsHub(names, threshold, theta)
            self.sites = [GeometricItemsSite(name, size, threshold, theta, sites) for name in names]

    def settle(self, site: int, cells: list[tuple[int, ...]]) -> None:
        """All that a site's move has in its wake."""
        up = deque(self._due(site))
        while up:
            message = up.popleft()
            if isinstance(self.hub, FrequentHub):
                self._count(16)
                known = () if isinstance(message, ItemBegin) else cells[message.item]
                down: Any = self.hub.receive(message, known, 0.0)
            else:
                self._count(8 + 4 * DEPTH)
                down = self.hub.receive(message)
            for to, answer in down:
                polls = isinstance(answer, ItemPoll) or not hasattr(answer, "inc")
                self._count(8 if polls else 16)
                reply = self._receive(int(to), answer)
                up.extend(reply)

    def _count(self, payload: int) -> None:
        self.messages += 1
        self.payload += payload

    def _due(self, site: int) -> list[Any]:
        at = self.sites[site]
        return list(at.due(0.0) if isinstance(at, FrequentSite) else at.due())

    def _receive(self, site: int, message: Any) -> list[Any]:
        at = self.sites[site]
        if isinstance(at, FrequentSite):
            at.receive(message, 0.0)
            return at.due(0.0)
        reply = at.receive(message)
        return [] if reply is None else [reply]


def measure(method: str, events: int, window: int, sites: int, phi: float, theta: float) -> Found:
    """One run over the drawn stream, of one law all the time."""
    stream = zipf(events, window, sites, keys=KEYS, seed=2, shifts=False)
    cells = stream.columns(DEPTH, WIDTH)
    threshold = phi * window
    links = _Links(method, sites, threshold, theta)
    counts = [0] * KEYS
    most, least = threshold * (1 + theta), threshold * (1 - theta) - window * math.e / WIDTH
    messages = payload = steps = missed = false = 0
    for move in stream.moves():
        site = links.sites[move.site]
        for cell in cells[move.key]:
            site.add(cell, move.by)
        counts[move.key] += move.by
        if move.by > 0:
            site.arrived(move.key, cells[move.key])
        links.settle(move.site, cells)
        if not move.counts:
            messages, payload = links.messages, links.payload
            continue
        steps += 1
        if move.key in links.hub.frequent:
            false += counts[move.key] < least
        else:
            missed += counts[move.key] > most
    arrivals = max(stream.counted, 1)
    messages, payload = links.messages - messages, links.payload - payload
    return Found(
        method, sites, phi, theta, messages / arrivals,
        (payload + HEADER * messages) / (NAIVE * arrivals), links.hub.polls, steps, missed, false,
        len(links.hub.frequent),
    )  # fmt: skip


def produce(
    events: int, window: int, sites: list[int], thetas: list[float], jobs: int, folder: Path
) -> Report:
    """All runs, a table and a picture."""
    tasks = [
        (method, events, window, each, 0.01, theta)
        for each in sites
        for theta in thetas
        for method in METHODS
    ]
    found = pool.run("frequent items", measure, tasks, jobs)
    setting = (
        f"drawn, Zipf 1.1: {events:,} events, windows of {window:,}, frequent from 1 % on; "
        f"{DEPTH} x {WIDTH} exact counters; 40 bytes a message and its payload"
    )
    title = "Frequent items watched over many sites"
    rows = [
        [
            f"{each.sites} sites, theta {each.theta:.2f}, {each.method}",
            f"{each.messages:.4f}",
            f"{each.sent:.4f}",
            str(each.polls),
            f"{each.missed} of {each.steps:,}",
            str(each.false),
            str(each.frequent),
        ]
        for each in found
    ]
    headings = ["", "messages", "bytes", "polls", "missed", "false", "frequent"]
    claims = [
        Claim(
            "steps at which a frequent item was missed, of both methods",
            Figure(float(sum(each.missed for each in found)), 0.0), 0.0, "at most",
        )
    ]  # fmt: skip
    claims += [
        Claim(
            f"32 sites, theta {each.theta}: messages of budgets, as a share of naive",
            Figure(each.messages, 0.0), 0.11, "at most",
        )
        for each in found
        if each.method == "budgets" and each.sites == 32
    ]  # fmt: skip
    _draw(folder / "monitor-frequent.png", title, setting, found)
    report = Report(
        "monitor-frequent", title, f"{setting}. Shares are of a message for every arrival.",
        tables=[Table("What is sent, and what is wrong", headings, rows)], claims=claims,
        headings=list(Found._fields), raw=found,
    )  # fmt: skip
    report.write(folder)
    return report


def _draw(path: Path, title: str, setting: str, found: list[Found]) -> None:
    thetas = sorted({each.theta for each in found})
    with Page(path, title, setting, len(thetas), share_y=True) as (figure, all_axes):
        for theta, axes in zip(thetas, all_axes, strict=True):
            axes.set_title(f"messages, theta {theta:g}")
            for method, colour, marker in zip(METHODS, COLOURS, MARKERS, strict=False):
                part = [m for m in found if m.theta == theta and m.method == method]
                x, y = [m.sites for m in part], [m.messages for m in part]
                line(axes, x, y, colour, marker, method)
            ticks = sorted({m.sites for m in found})
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.set_xticks(ticks, [str(each) for each in ticks])
            axes.axhline(1.0, color=MUTED, linewidth=1, linestyle=":")
            axes.set_xlabel("sites")
        all_axes[0].set_ylabel("share of a message for each arrival (dotted)")
        legend(figure, all_axes[0], len(METHODS))


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor frequent", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=120_000, help="of the stream (%(default)s)")
    parser.add_argument("--window", type=int, default=60_000, help="in events (%(default)s)")
    parser.add_argument("--sites", type=int, nargs="+", default=list(SITES))
    parser.add_argument("--thetas", type=float, nargs="+", default=[0.05, 0.15])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    for name, least in (("events", 1_000), ("window", 100), ("jobs", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} is {getattr(options, name)}; expected {least} or more")
    start = time.perf_counter()
    report = produce(
        options.events, options.window, options.sites, options.thetas, options.jobs, options.out
    )
    print(f"{report}\n\n{time.perf_counter() - start:.0f} s; pictures in {options.out}")
    return int(any(claim.verdict == "does not hold" for claim in report.claims))
