"""Heavy hitters in random trees and on logs: is none ever missed, and how many are found beyond?

A key that reaches the threshold is passed by the descent with certainty, whatever the hash
functions do (see :mod:`decaysketch.ecm.dyadic`); so one that is missed is a fault. Random trees are
small and narrow, that nodes collide: of 6 to 12 bits, fan-outs of 2 to 16, rows of 2 to 19 cells,
both kinds of cells, every kind of decay, the query up to four units after the last event. On logs
keys are numbers of 32 bits, scattered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.decay import Decay
from decaysketch.ecm import ECMParams, ECMSketch
from decaysketch.ecm.sizing import Kind
from quality.ecm.logs import Log
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.draw import COLOURS, Page
from quality.figures.report import Report, Table

__all__ = ["Searched", "produce", "trial"]

DECAYS: Final[tuple[Decay, ...]] = (
    ds.decay.window(0),
    ds.decay.window(40),
    ds.decay.none(),
    ds.decay.exponential(half_life=15),
    ds.decay.exponential(rate=3.0),
    ds.decay.polynomial(1, scale=10),
    ds.decay.piecewise([(10, 2.0), (30, 0.5)]),
)
KINDS: Final[tuple[Kind, ...]] = ("wave", "eh")
PHIS: Final = (0.002, 0.01)  # of logs
_BATCH: Final = 100  # trees of a task
_EVENTS: Final = 300_000  # of a log
_SCATTER: Final = 2_654_435_761  # odd: a bijection of 32 bits
_WIDTHS: Final = ((2, 5), (5, 8), (8, 11), (11, 14), (14, 17), (17, 20))


class Searched(NamedTuple):
    """One question for heavy hitters.

    Attributes:
        name: "tree", or the log.
        width: cells of a row.
        fanout_bits, phi, decay: what was asked.
        there: keys that reached the threshold.
        missed: of these, how many were not found.
        beyond: keys that were found and did not reach it.
        unfounded: of these, how many were called certain.
    """

    name: str
    width: int
    fanout_bits: int
    phi: float
    decay: str
    there: int
    missed: int
    beyond: int
    unfounded: int


def produce(trees: int, logs: list[Log], jobs: int, folder: Path) -> Report:
    """Search so many trees, and the logs; report and picture."""
    tasks = [(start, min(_BATCH, trees - start)) for start in range(0, trees, _BATCH)]
    searched = [found for batch in pool.run("trees", batch_of, tasks, jobs) for found in batch]
    for log in logs:
        searched += search_log(log)
    setting = f"{trees:,} random trees"
    if logs:
        setting += f", and {', '.join(log.title for log in logs)}"
    _draw(folder / "ecm-heavy-hitters.png", setting, searched)
    report = Report(
        "ecm-heavy-hitters",
        "Heavy hitters by sure upper ends: none is missed",
        setting + ".",
        tables=[_tree_table(searched), *([_log_table(searched)] if logs else [])],
        claims=_claims(searched),
        headings=list(Searched._fields),
        raw=searched,
    )
    report.write(folder)
    return report


def batch_of(start: int, count: int) -> list[Searched]:
    """Some trees, by their numbers."""
    return [trial(number) for number in range(start, start + count)]


def trial(number: int) -> Searched:
    """One random tree."""
    rng = np.random.default_rng([8, number])
    bits, fanout_bits = int(rng.choice([6, 8, 12])), int(rng.choice([1, 2, 4]))
    width, depth, slots = (int(rng.integers(*span)) for span in ((2, 20), (1, 4), (2, 6)))
    size = int(rng.integers(5, 300))
    keys = rng.zipf(rng.uniform(1.1, 2.5), size).astype(np.uint64) * np.uint64(40_503)
    keys &= np.uint64((1 << bits) - 1)
    times = np.cumsum(rng.integers(0, 4, size))
    params = ECMParams(
        width, depth, slots, kind=KINDS[number % 2], seed=number, key_bits=bits,
        fanout_bits=fanout_bits,
    )  # fmt: skip
    decay = DECAYS[number % len(DECAYS)]
    now = int(times[-1]) + int(rng.integers(0, 5))
    phi = float(rng.choice([0.02, 0.05, 0.2]))
    return _search("tree", params, keys, times, decay, now, [phi])[0]


def search_log(log: Log) -> list[Searched]:
    """A log under three decays."""
    part = log.head(_EVENTS)
    keys = part.keys.astype(np.uint64) * np.uint64(_SCATTER) & np.uint64(2**32 - 1)
    params = ECMParams(2000, 3, 10, seed=1, key_bits=32, fanout_bits=8, time_unit="s")
    decays = (
        ds.decay.window(part.window),
        ds.decay.exponential(half_life=part.window / 8),
        ds.decay.polynomial(1.0, scale=part.window / 100),
    )
    return [
        found
        for decay in decays
        for found in _search(log.name, params, keys, part.times, decay, part.now, PHIS)
    ]


def _search(
    name: str, params: ECMParams, keys: npt.NDArray[np.uint64], times: npt.NDArray[np.int64],
    decay: Decay, now: int, phis: tuple[float, ...] | list[float],
) -> list[Searched]:  # fmt: skip
    sketch = ECMSketch(params)
    sketch.update(keys, times)
    distinct, number = np.unique(keys, return_inverse=True)
    truth = np.bincount(number, decay(now - times))
    searched = []
    for phi in phis:
        found = sketch.heavy_keys(phi, decay, now=now)
        # What sums of float64 may differ by is no miss.
        reached = distinct[truth > phi * truth.sum() * (1 + 1e-12)]
        surely = np.isin(found.keys, distinct[truth >= phi * truth.sum() * (1 - 1e-12)])
        searched.append(
            Searched(
                name, params.width, params.fanout_bits, phi, repr(decay),
                there=len(reached),
                missed=int((~np.isin(reached, found.keys)).sum()),
                beyond=int((~surely).sum()),
                unfounded=int((~surely & found.certain).sum()),
            )
        )  # fmt: skip
    return searched


# ---------------------------------------------------------------------------------------- the page


def _claims(searched: list[Searched]) -> list[Claim]:
    missed = float(sum(each.missed for each in searched))
    there = sum(each.there for each in searched)
    certain = sum(each.unfounded for each in searched)
    return [
        Claim(f"heavy hitters missed, of {there:,}", Figure(missed, 0.0), 0.0, "at most"),
        Claim(
            "keys called certain at 95 % that did not reach the threshold, of all found",
            Figure(certain / max(there + sum(each.beyond for each in searched), 1), 0.0),
            0.05,
            "at most",
            percent=True,
        ),
    ]


def _tree_table(searched: list[Searched]) -> Table:
    rows = []
    for low, high in _WIDTHS:
        part = [s for s in searched if s.name == "tree" and low <= s.width < high]
        rows.append([f"{low} to {high - 1}", f"{len(part):,}", *_sums(part)])
    headings = ["cells of a row", "trees", "there", "missed", "found beyond", "certain of these"]
    return Table("Random trees, by width", headings, rows)


def _log_table(searched: list[Searched]) -> Table:
    rows = [
        [f"{s.name}, {s.decay}", f"{s.phi:g}", *_sums([s])] for s in searched if s.name != "tree"
    ]
    headings = ["log", "phi", "there", "missed", "found beyond", "certain of these"]
    return Table("Logs: 32-bit keys, 2,000 x 3 cells a layer, fan-out 256", headings, rows)


def _sums(part: list[Searched]) -> list[str]:
    names = ("there", "missed", "beyond", "unfounded")
    return [f"{sum(getattr(each, name) for each in part):,}" for name in names]


def _draw(path: Path, setting: str, searched: list[Searched]) -> None:
    title = "Heavy hitters found beyond those that there are"
    with Page(path, title, setting, 1) as (_, all_axes):
        axes = all_axes[0]
        for (low, high), place in zip(_WIDTHS, range(len(_WIDTHS)), strict=True):
            part = [s for s in searched if s.name == "tree" and low <= s.width < high]
            there = max(sum(s.there for s in part), 1)
            axes.bar(place, sum(s.beyond for s in part) / there, color=COLOURS[0], width=0.7)
        axes.set_xticks(range(len(_WIDTHS)), [f"{low}–{high - 1}" for low, high in _WIDTHS])
        axes.set_xlabel("cells of a row, random trees")
        axes.set_ylabel("found beyond, for each that there is")
