"""Figures 8a to 8c: the self-join size of all sites' window, as watched by five protocols.

What each sends, as a share of a message for every arrival, against the number of sites and theta;
and how far its answer is from the truth, looked at after every arrival and departure. The error is
``|f(e) - f| / f``, which theta speaks of; the paper's figure 8b divides by the square of all
events, which is much less (E8). Counters are exact, so all of the error is the protocols'.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from decaysketch.monitor.safe import SelfJoinZone
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.draw import COLOURS, INK, MARKERS, MUTED, Page, legend, line
from quality.figures.report import Report, Table
from quality.monitor.protocols import NAIVE, Budgets, Functional, Geometric, Protocol
from quality.monitor.windows import Stream, flights, zipf
from quality.papers.geometric import NormBounds, SafeZone, Sphere

__all__ = ["METHODS", "Measured", "main", "measure", "produce", "watch"]

DEPTH: Final = 2
WIDTH: Final = 21  # epsilon = delta = 0.15 by theorem 2
SHAPE: Final = (1, DEPTH, WIDTH)
THETA: Final = 0.15
THETAS: Final = (0.05, 0.15, 0.30)
SITES: Final = (4, 8, 16, 32)
AT: Final = 16  # sites of figure 8c

METHODS: Final[dict[str, Callable[[int, Callable[..., SelfJoinZone]], Protocol]]] = {
    "allowances": lambda n, zone: Budgets(n, zone, SHAPE),
    "functional": lambda n, zone: Functional(n, zone, SHAPE),
    "paper, corrected": lambda n, zone: Geometric(n, lambda e: NormBounds(zone(e)), SHAPE),
    "safe zone": lambda n, zone: Geometric(n, lambda e: SafeZone(zone(e)), SHAPE),
    "sphere": lambda n, zone: Geometric(n, lambda e: Sphere(zone(e)), SHAPE),
}


class Measured(NamedTuple):
    """One run.

    Attributes:
        stream, method, sites, theta: of what.
        messages, sent: as shares of a message of 48 bytes for each arrival.
        first, second: phases without and with all counters.
        steps, bad: looked at; of them, those at which theta was exceeded.
        worst, mean: relative errors.
        arrivals: counted.
    """

    stream: str
    method: str
    sites: int
    theta: float
    messages: float
    sent: float
    first: int
    second: int
    steps: int
    bad: int
    worst: float
    mean: float
    arrivals: int


def watch(stream: Stream, protocol: Protocol, theta: float, sites: int) -> tuple[float, ...]:
    """Run a protocol over a stream; (steps, bad, worst, mean error, arrivals)."""
    columns = stream.columns(DEPTH, WIDTH)
    counters = [0] * (DEPTH * WIDTH)
    squares = [0] * DEPTH
    begun = False
    steps = bad = arrivals = 0
    worst = total = 0.0
    for move in stream.moves():
        if move.counts and not begun:
            protocol.begin()
            begun = True
        for row, cell in enumerate(columns[move.key]):
            protocol.add(move.site, cell, move.by)
            before = counters[cell]
            counters[cell] = before + move.by
            squares[row] += (2 * before + move.by) * move.by
        if not begun:
            continue
        protocol.settle(move.site)
        truth = min(squares) / sites**2
        error = abs(protocol.value - truth) / truth if truth else float(protocol.value > 0.0)
        steps += 1
        arrivals += move.by > 0
        total += error
        worst = max(worst, error)
        bad += error > theta * (1 + 1e-9)
    return steps, bad, worst, total / max(steps, 1), arrivals


def stream_of(name: str, events: int, window: int, sites: int) -> Stream | None:
    """By name; None where it is not on this machine."""
    return flights(events, sites) if name == "flights" else zipf(events, window, sites)


def measure(name: str, method: str, events: int, window: int, sites: int, theta: float) -> Measured:
    """One run."""
    stream = stream_of(name, events, window, sites)
    assert stream is not None, "asked for where it is"
    protocol = METHODS[method](sites, partial(SelfJoinZone, theta=theta))
    steps, bad, worst, mean, arrivals = watch(stream, protocol, theta, sites)
    arrivals = max(arrivals, 1)
    return Measured(
        name, method, sites, theta, protocol.messages / arrivals,
        protocol.sent / (NAIVE * arrivals), protocol.first_phases, protocol.second_phases,
        int(steps), int(bad), worst, mean, int(arrivals),
    )  # fmt: skip


def produce(
    name: str, events: int, window: int, sites: Iterable[int], thetas: Iterable[float], jobs: int,
    folder: Path,
) -> Report:  # fmt: skip
    """Figures 8a to 8c of one stream."""
    settings = dict.fromkeys(
        [*((each, THETA) for each in sites), *((AT, theta) for theta in thetas)]
    )
    tasks = [
        (name, method, events, window, each, theta)
        for each, theta in settings
        for method in METHODS
    ]
    measured = pool.run(f"self-join, {name}", measure, tasks, jobs)
    stream = stream_of(name, events, window, 4)
    assert stream is not None
    setting = (
        f"{stream.title}: {events:,} events, {stream.inside:,} in the first window, which is not "
        f"counted; {DEPTH} x {WIDTH} exact counters; 40 bytes a message and its payload"
    )
    title = "Figure 8: self-join size watched over many sites"
    _draw(folder / f"monitor-selfjoin-{name}.png", f"{title}: {name}", setting, measured)
    report = Report(
        f"monitor-selfjoin-{name}",
        f"{title}: {name}",
        f"{setting}. Shares are of a message of 8 bytes for every arrival. Errors are relative to "
        "the true self-join of the counters, looked at after every arrival and departure.",
        tables=_tables(measured),
        claims=_claims(name, measured),
        headings=list(Measured._fields),
        raw=measured,
    )
    report.write(folder)
    return report


def _tables(measured: list[Measured]) -> list[Table]:
    rows = [
        [
            f"{each.sites} sites, theta {each.theta:.2f}, {each.method}",
            f"{each.messages:.4f}",
            f"{each.sent:.4f}",
            str(each.first),
            str(each.second),
            f"{each.mean:.4f}",
            f"{each.worst:.4f}",
            f"{each.bad} of {each.steps:,}",
        ]
        for each in measured
    ]
    headings = ["", "messages", "bytes", "first", "second", "mean error", "worst", "above theta"]
    return [Table("What is sent, and errors", headings, rows)]


def _claims(name: str, measured: list[Measured]) -> list[Claim]:
    claims = [
        Claim(
            "steps at which theta was exceeded, of all methods",
            Figure(float(sum(each.bad for each in measured)), 0.0), 0.0, "at most",
        )
    ]  # fmt: skip
    by = {(m.method, m.sites, m.theta): m for m in measured}
    ours, paper = (by.get((each, AT, THETA)) for each in ("allowances", "paper, corrected"))
    if ours is not None and name == "zipf":
        text = f"{AT} sites, theta {THETA}: bytes of allowances, as a share of naive"
        claims.append(Claim(text, Figure(ours.sent, 0.0), 0.03, "at most"))
    if ours is not None and paper is not None:
        text = f"{AT} sites, theta {THETA}: bytes of allowances, as a share of the paper's protocol"
        claims.append(Claim(text, Figure(ours.sent / paper.sent, 0.0), 0.5, "at most"))
    return claims


def _draw(path: Path, title: str, setting: str, measured: list[Measured]) -> None:
    panels: list[tuple[str, str, str, Callable[[Measured], bool]]] = [
        ("8a: bytes, theta 0.15", "sites", "sent", lambda m: m.theta == THETA),
        ("8b: mean error, theta 0.15", "sites", "mean", lambda m: m.theta == THETA),
        (f"8c: bytes, {AT} sites", "theta", "sent", lambda m: m.sites == AT),
    ]
    with Page(path, title, setting, 3) as (figure, all_axes):
        for (heading, x, y, of), axes in zip(panels, all_axes, strict=True):
            axes.set_title(heading)
            for method, colour, marker in zip(METHODS, COLOURS, MARKERS, strict=True):
                part = sorted(
                    (m for m in measured if of(m) and m.method == method),
                    key=lambda m: float(getattr(m, x)),
                )
                across, up = ([getattr(m, each) for m in part] for each in (x, y))
                line(axes, across, up, colour, marker, method)
            ticks = sorted({getattr(m, x) for m in measured if of(m)})
            if x == "sites":
                axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
            axes.set_xlabel(x)
            if y == "sent":
                axes.set_yscale("log")
                axes.axhline(1.0, color=MUTED, linewidth=1, linestyle=":")
                axes.set_ylabel("share of a message for each arrival (dotted)")
            else:
                axes.axhline(THETA, color=INK, linewidth=1, linestyle=":")
                axes.set_ylim(bottom=0)
                axes.set_ylabel("|f(e) - f| / f; dotted: theta")
        legend(figure, all_axes[0], len(METHODS))


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.monitor selfjoin", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=100_000, help="of a stream (%(default)s)")
    parser.add_argument("--window", type=int, default=40_000, help="of the drawn one, in events")
    parser.add_argument("--sites", type=int, nargs="+", default=list(SITES))
    parser.add_argument("--thetas", type=float, nargs="+", default=list(THETAS))
    parser.add_argument("--streams", nargs="+", choices=["zipf", "flights"],
                        default=["zipf", "flights"])  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="folder")
    options = parser.parse_args(arguments)
    for name, least in (("events", 1_000), ("window", 100), ("jobs", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} is {getattr(options, name)}; expected {least} or more")
    if "zipf" in options.streams and options.events <= options.window:
        parser.error(
            f"--events is {options.events}; expected more than --window, {options.window}: no site "
            "sends before the first window is full"
        )
    for each in options.thetas:
        if not 0.0 < each < 1.0 or math.isnan(each):
            parser.error(f"--thetas has {each}; expected numbers above 0 and below 1")
    kept, start = True, time.perf_counter()
    for name in options.streams:
        if stream_of(name, 10, options.window, 4) is None:
            print(f"{name}: the log is not on this machine, skipped")
            continue
        report = produce(
            name, options.events, options.window, options.sites, options.thetas, options.jobs,
            options.out,
        )  # fmt: skip
        print(f"{report}\n", flush=True)
        kept &= all(claim.verdict != "does not hold" for claim in report.claims)
    print(f"{time.perf_counter() - start:.0f} s; pictures in {options.out}")
    return 0 if kept else 1
