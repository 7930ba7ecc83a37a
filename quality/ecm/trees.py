"""Heavy keys and prefixes in random trees and on logs: is none missed, how many are found beyond?

A key that reaches the threshold is passed by the descent with certainty, whatever the hash
functions do (see :mod:`decaysketch.ecm.dyadic`); so one that is missed is a fault. Random trees are
small and narrow, that nodes collide: of 6 to 12 bits, fan-outs of 2 to 16, rows of 2 to 19 cells,
both kinds of cells, every kind of decay, the query up to four units after the last event. On logs
keys are numbers of 32 bits, scattered. Prefixes are those of a flight's origin and destination, and
of a device's number. A tree's prefix that is called certain may be wrong with all others of its
result in 5 % of the trees, by the union bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

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
FOUND: Final = ("keys", "prefixes")
_ROUNDED: Final = 1e-12  # relative
_BATCH: Final = 100  # trees of a task
_EVENTS: Final = 300_000  # of a log
_SCATTER: Final = 2_654_435_761  # odd: a bijection of 32 bits
_WIDTHS: Final = ((2, 5), (5, 8), (8, 11), (11, 14), (14, 17), (17, 20))


class Searched(NamedTuple):
    """One question for heavy hitters.

    Attributes:
        name: "tree", or the log.
        found: "keys" or "prefixes".
        width: cells of a row.
        fanout_bits, phi, decay: what was asked.
        there: keys or prefixes that reached the threshold.
        missed: of these, how many were not found.
        beyond: those that were found and did not reach it.
        unfounded: of these, how many were called certain.
    """

    name: str
    found: str
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
        "Heavy keys and prefixes by sure upper ends: none is missed",
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
    return [found for number in range(start, start + count) for found in trial(number)]


def trial(number: int) -> list[Searched]:
    """One random tree: its heavy keys, and its heavy prefixes."""
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
    return _search("tree", params, keys, times, decay, now, [phi], FOUND)


def search_log(log: Log) -> list[Searched]:
    """A log under three decays."""
    part = log.head(_EVENTS)
    keys = part.keys.astype(np.uint64) * np.uint64(_SCATTER) & np.uint64(2**32 - 1)
    streams = [(keys, 32, ("keys",))]
    if part.paths is not None:
        streams.append((part.paths, part.path_bits, ("prefixes",)))
    decays = (
        ds.decay.window(part.window),
        ds.decay.exponential(half_life=part.window / 8),
        ds.decay.polynomial(1.0, scale=part.window / 100),
    )
    return [
        found
        for words, bits, asked in streams
        for decay in decays
        for found in _search(
            log.name,
            ECMParams(2000, 3, 10, seed=1, key_bits=bits, fanout_bits=8, time_unit="s"),
            words, part.times, decay, part.now, PHIS, asked,
        )
    ]  # fmt: skip


def _search(
    name: str, params: ECMParams, keys: npt.NDArray[np.uint64], times: npt.NDArray[np.int64],
    decay: Decay, now: int, phis: Sequence[float], asked: Sequence[str],
) -> list[Searched]:  # fmt: skip
    sketch = ECMSketch(params)
    sketch.update(keys, times)
    truth = Truth(keys, decay(now - times), params)
    return [
        _judged(name, found, params, phi, decay, *_ASKED[found](sketch, truth, phi, decay, now))
        for phi in phis
        for found in asked
    ]


def _judged(
    name: str, found: str, params: ECMParams, phi: float, decay: Decay,
    reached: set[Any], surely: set[Any], answer: dict[Any, bool],
) -> Searched:  # fmt: skip
    """The figures of a result, with whether each entry is certain, next to the truth."""
    beyond = answer.keys() - surely
    return Searched(
        name, found, params.width, params.fanout_bits, phi, repr(decay),
        there=len(reached),
        missed=len(reached - answer.keys()),
        beyond=len(beyond),
        unfounded=sum(answer[each] for each in beyond),
    )  # fmt: skip


class Truth:
    """The decayed counts of keys, and the heavy prefixes by their definition.

    Args:
        keys, weights: each event's key and decayed weight.
        params: for the prefixes that a sketch counts.
    """

    def __init__(
        self, keys: npt.NDArray[np.uint64], weights: npt.NDArray[np.float64], params: ECMParams
    ) -> None:
        self.keys, number = np.unique(keys, return_inverse=True)
        self.counts = np.bincount(number, weights)
        self.total = float(self.counts.sum())
        assert params.key_bits is not None
        self.bits = params.key_bits
        self.shifts = [min(layer.shift, self.bits) for layer in params.layers]

    def heavy_keys(self, threshold: float) -> set[int]:
        """Keys that reach a threshold above 0."""
        return set(self.keys[(self.counts >= threshold) & (self.counts > 0.0)].tolist())

    def heavy_prefixes(self, threshold: float) -> set[tuple[int, int]]:
        """Prefixes, with their lengths, whose count without heavy parts reaches a threshold: from
        the keys upwards, where a heavy prefix takes its count away.
        """
        found: set[tuple[int, int]] = set()
        rest = dict(zip(self.keys.tolist(), self.counts.tolist(), strict=True))
        for shift in reversed(self.shifts):
            left: dict[int, float] = {}
            for key, count in rest.items():
                left[key >> shift << shift] = left.get(key >> shift << shift, 0.0) + count
            heavy = {key for key, count in left.items() if count >= threshold and count > 0.0}
            found |= {(key, self.bits - shift) for key in heavy}
            rest = {key: count for key, count in left.items() if key not in heavy}
        return found


_Judged = tuple[set[Any], set[Any], dict[Any, bool]]


def _keys(sketch: ECMSketch, truth: Truth, phi: float, decay: Decay, now: int) -> _Judged:
    found = sketch.heavy_keys(phi, decay, now=now)
    # What sums of float64 may differ by is no miss.
    least, most = phi * truth.total * (1 - _ROUNDED), phi * truth.total * (1 + _ROUNDED)
    return truth.heavy_keys(most), truth.heavy_keys(least), {x.key: x.certain for x in found}


def _prefixes(sketch: ECMSketch, truth: Truth, phi: float, decay: Decay, now: int) -> _Judged:
    found = sketch.heavy_prefixes(phi, decay, now=now)
    answer = {(each.prefix, each.bits): each.certain for each in found}
    # At a threshold that rounding decides, a part that is heavy or not changes what is above it:
    # prefixes that are heavy at both thresholds next to it are there, those at either may be.
    ends = [truth.heavy_prefixes(phi * truth.total * (1 + s * _ROUNDED)) for s in (-1, 0, 1)]
    return set.intersection(*ends), set.union(*ends), answer


_ASKED: Final = {"keys": _keys, "prefixes": _prefixes}


# ---------------------------------------------------------------------------------------- the page


def _claims(searched: list[Searched]) -> list[Claim]:
    return [claim for found in FOUND for claim in _claims_of(found, searched)]


def _claims_of(found: str, searched: list[Searched]) -> list[Claim]:
    part = [each for each in searched if each.found == found]
    missed = float(sum(each.missed for each in part))
    there = sum(each.there for each in part)
    certain = sum(each.unfounded for each in part)
    beyond = sum(each.beyond for each in part)
    return [
        Claim(f"heavy {found} missed, of {there:,}", Figure(missed, 0.0), 0.0, "at most"),
        Claim(
            f"{found} called certain at 95 % that did not reach the threshold, of all found",
            Figure(certain / max(there + beyond, 1), 0.0),
            0.05,
            "at most",
            percent=True,
        ),
    ]


def _tree_table(searched: list[Searched]) -> Table:
    rows = []
    for found in FOUND:
        for low, high in _WIDTHS:
            part = [
                s
                for s in searched
                if (s.name, s.found) == ("tree", found) and low <= s.width < high
            ]
            rows.append([found, f"{low} to {high - 1}", f"{len(part):,}", *_sums(part)])
    headings = ["heavy", "cells of a row", "trees", *_SUMS]
    return Table("Random trees, by width", headings, rows)


def _log_table(searched: list[Searched]) -> Table:
    rows = [
        [s.found, f"{s.name}, {s.decay}", f"{s.phi:g}", *_sums([s])]
        for s in searched
        if s.name != "tree"
    ]
    headings = ["heavy", "log", "phi", *_SUMS]
    return Table("Logs: 2,000 x 3 cells a layer, fan-out 256", headings, rows)


_SUMS: Final = ("there", "missed", "found beyond", "certain of these")


def _sums(part: list[Searched]) -> list[str]:
    names = ("there", "missed", "beyond", "unfounded")
    return [f"{sum(getattr(each, name) for each in part):,}" for name in names]


def _draw(path: Path, setting: str, searched: list[Searched]) -> None:
    title = "Heavy keys found beyond those that there are"
    with Page(path, title, setting, 1) as (_, all_axes):
        axes = all_axes[0]
        for (low, high), place in zip(_WIDTHS, range(len(_WIDTHS)), strict=True):
            part = [
                s
                for s in searched
                if (s.name, s.found) == ("tree", "keys") and low <= s.width < high
            ]
            there = max(sum(s.there for s in part), 1)
            axes.bar(place, sum(s.beyond for s in part) / there, color=COLOURS[0], width=0.7)
        axes.set_xticks(range(len(_WIDTHS)), [f"{low}–{high - 1}" for low, high in _WIDTHS])
        axes.set_xlabel("cells of a row, random trees")
        axes.set_ylabel("found beyond, for each that there is")
