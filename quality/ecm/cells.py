"""Single cells against exact counts: are the ends sure, and is the error below its bound?

Streams of five laws, each of its own length and slots, are fed to the kernels in batches of random
sizes. Windows start at times of events, beside them and anywhere between. Of each is checked that

* the truth lies between the ends,
* the ends are the best that follow from the kept times,
* ``(hi - lo) / (hi + lo)`` is below ``1 / (2 q)``, or ``1 / (2 B - 1)``,
* the one number that is answered is as close,

and of each stream that the kept times are those of the ranks that the reference says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.ecm import reference, sizing
from decaysketch.ecm.cells import Cells
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.sizing import Kind
from quality.figures import pool
from quality.figures.claims import Claim, Figure
from quality.figures.draw import COLOURS, MARKERS, Page
from quality.figures.report import Report, Table

__all__ = ["LAWS", "produce", "trial"]

LAWS: Final = {
    "steady": "gaps of a few units",
    "heavy": "gaps of a Pareto law without a mean",
    "log-uniform": "ages from 1 to 2^40",
    "spiky": "few times, many events at each",
    "old": "nearly all long ago, a handful recently",
}
KINDS: Final[tuple[Kind, ...]] = ("wave", "eh")
SLOTS: Final = (2, 3, 5, 10, 20)
WINDOWS: Final = 100  # of each stream
_LONGEST: Final = 60_000
_RANKS = {"wave": reference.wave_ranks, "eh": reference.histogram_ranks}
_NAMES: Final = {"wave": "wave", "eh": "exponential histogram"}


class Checked(NamedTuple):
    """One stream.

    Attributes:
        law, kind, slots, n: what it was.
        broken: windows whose truth was not between the ends.
        loose: windows whose ends were not the best possible.
        misplaced: kept times that are not those of their ranks.
        worst: largest ``(hi - lo) / (hi + lo)`` over its bound.
        off: largest relative error of the number that is answered, over the bound.
        middle: mean relative error of ``2 lo hi / (lo + hi)``.
        spread: that of the number that is answered, interpolated.
    """

    law: str
    kind: Kind
    slots: int
    n: int
    broken: int
    loose: int
    misplaced: int
    worst: float
    off: float
    middle: float
    spread: float


def produce(windows: int, jobs: int, folder: Path) -> Report:
    """Check so many windows at least; report and picture."""
    cases = [(law, kind, slots) for law in LAWS for kind in KINDS for slots in SLOTS]
    each = -(-windows // (WINDOWS * len(cases)))
    arguments = [(*case, seed) for case in cases for seed in range(each)]
    checked = pool.run("cells", trial, arguments, jobs)
    return _page(checked, folder)


def trial(law: str, kind: Kind, slots: int, seed: int) -> Checked:
    """One stream and its windows."""
    rng = np.random.default_rng([2015, list(LAWS).index(law), KINDS.index(kind), slots, seed])
    n = int(np.exp(rng.uniform(0, np.log(_LONGEST))))
    times = _times(law, n, rng)
    cells = Cells(Layer(64, 1, 1, slots, hashed=False), kind, seed)
    at = 0
    while at < n:
        size = int(np.exp(rng.uniform(0, np.log(n))))
        part = times[at : at + size]
        cells.update(np.zeros(len(part), np.uint64), part)
        at += size
    ranks, kept, _ = cells.kept()
    expected = np.array(_RANKS[kind](n, slots))
    misplaced = int((ranks != expected).sum() + (kept != times[expected - 1]).sum())
    error = sizing.cell_error(kind, slots)
    broken = loose = 0
    worst = off = 0.0
    means = []
    for start in _starts(times, rng):
        truth = n - int(np.searchsorted(times, start))
        lo, hi = (int(end[0, 0]) for end in cells.grid(start))
        broken += not lo <= truth <= hi
        loose += (lo, hi) != _best(n, times, expected, start)
        if truth:
            worst = max(worst, (hi - lo) / (hi + lo) / error)
            value = float(cells.values(start)[0, 0])
            off = max(off, round(abs(value - truth) / truth / error, 12))  # may be reached
            means.append((abs(2 * lo * hi / (lo + hi) - truth) / truth, abs(value - truth) / truth))
    middle, spread = np.mean(means, axis=0) if means else (0.0, 0.0)
    return Checked(
        law, kind, slots, n, broken, loose, misplaced, worst, off, float(middle), float(spread)
    )


def _times(law: str, n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    if law == "steady":
        times = np.cumsum(rng.choice([0, 1, 1, 2, 5], n))
    elif law == "heavy":
        times = np.cumsum(np.minimum(rng.pareto(0.7, n), 1e9).astype(np.int64))
    elif law == "log-uniform":
        times = np.sort((1 << 40) - np.exp2(rng.uniform(0, 40, n)).astype(np.int64))
    elif law == "spiky":
        times = np.sort(rng.choice(rng.integers(0, 1_000, max(1, n // 40)), n))
    else:
        recent = min(n, int(rng.integers(1, 8)))
        old, new = rng.integers(0, 50, n - recent), 10**6 + rng.integers(0, 50, recent)
        times = np.sort(np.concatenate([old, new]))
    return times.astype(np.int64) - int(rng.integers(0, 10**6))


def _starts(times: npt.NDArray[np.int64], rng: np.random.Generator) -> list[int]:
    """Two in three at a time of an event or beside it, by rank, half of them on a log scale."""
    n = len(times)
    ranks = np.where(
        rng.random(WINDOWS) < 0.5,
        rng.integers(0, n, WINDOWS),
        n - np.exp(rng.uniform(0, np.log(n + 1), WINDOWS)).astype(np.int64),
    ).clip(0, n - 1)
    near = times[ranks] + rng.choice([-1, 0, 0, 1], WINDOWS)
    far = rng.integers(times[0] - 2, times[-1] + 3, WINDOWS)
    starts: list[int] = np.where(rng.random(WINDOWS) < 2 / 3, near, far).tolist()
    return starts


def _best(
    n: int, times: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64], start: int
) -> tuple[int, int]:
    """The ends that follow from the kept ranks, and from when the first event was."""
    if start <= times[0]:
        return n, n
    inside = times[ranks - 1] >= start
    after = int(ranks[inside].min(initial=n + 1))
    before = int(ranks[~inside].max(initial=0))
    return n - after + 1, n - before


# ---------------------------------------------------------------------------------------- the page


def _page(checked: list[Checked], folder: Path) -> Report:
    windows = WINDOWS * len(checked)
    events = sum(stream.n for stream in checked)
    setting = (
        f"{len(checked):,} streams of five laws, {events:,} events, {windows:,} windows; batches "
        "of random sizes; every window against the exact count"
    )
    _draw(folder / "ecm-cells.png", setting, checked)
    report = Report(
        "ecm-cells",
        "Cells that know time: sure ends and errors",
        setting + ".",
        tables=[_law_table(checked), _slot_table(checked)],
        claims=_claims(checked),
        headings=list(Checked._fields),
        raw=checked,
    )
    report.write(folder)
    return report


def _law_table(checked: list[Checked]) -> Table:
    rows = []
    for law, text in LAWS.items():
        for kind in KINDS:
            part = [stream for stream in checked if (stream.law, stream.kind) == (law, kind)]
            rows.append(
                [
                    f"{law} ({text}), {kind}",
                    f"{WINDOWS * len(part):,}",
                    *(f"{sum(getattr(s, name) for s in part)}" for name in _COUNTS),
                    f"{max(s.worst for s in part):.4f}",
                    f"{max(s.off for s in part):.4f}",
                ]
            )
    headings = ["stream", "windows", *_COUNTS, "gap / bound", "error / bound"]
    return Table("By law: what was broken, and the largest of each over its bound", headings, rows)


_COUNTS: Final = ("broken", "loose", "misplaced")


def _slot_table(checked: list[Checked]) -> Table:
    rows: list[list[str]] = []
    for kind in KINDS:
        for slots in SLOTS:
            part = _long(checked, kind, slots)
            bound = sizing.cell_error(kind, slots)
            middle, spread = (float(np.mean([getattr(s, f) for s in part])) for f in _MEANS)
            rows.append(
                [
                    f"{kind}, {slots} slots",
                    f"{bound:.4f}",
                    f"{bound * max(s.worst for s in part):.4f}",
                    f"{middle:.4f}",
                    f"{spread:.4f}",
                    f"{middle / spread:.2f}",
                ]
            )
    headings = ["cell", "bound", "largest", "mean, middle", "mean, interpolated", "ratio"]
    return Table("By slots, the longer half of the streams: relative error", headings, rows)


_MEANS: Final = ("middle", "spread")


def _long(checked: list[Checked], kind: Kind, slots: int) -> list[Checked]:
    """The longer half of the streams of a cell: short ones are exact."""
    part = [stream for stream in checked if (stream.kind, stream.slots) == (kind, slots)]
    return sorted(part, key=lambda stream: -stream.n)[: (len(part) + 1) // 2]


def _claims(checked: list[Checked]) -> list[Claim]:
    def total(name: str) -> Figure:
        return Figure(float(sum(getattr(stream, name) for stream in checked)), 0.0)

    return [
        Claim("sure ends that were broken", total("broken"), 0.0, "at most"),
        Claim("ends that were not the best of what is kept", total("loose"), 0.0, "at most"),
        Claim("kept times that are not of their ranks", total("misplaced"), 0.0, "at most"),
        *(
            Claim(
                f"{_NAMES[kind]}: largest {text}, over the bound",
                Figure(max(getattr(s, name) for s in checked if s.kind == kind), 0.0),
                1.0,
                "at most",
            )
            for kind in KINDS
            for name, text in (("worst", "(hi - lo) / (hi + lo)"), ("off", "error of the answer"))
        ),
    ]


def _draw(path: Path, setting: str, checked: list[Checked]) -> None:
    with Page(path, "Cells that know time: errors against slots", setting, len(KINDS),
              share_y=True) as (figure, all_axes):  # fmt: skip
        for kind, axes in zip(KINDS, all_axes, strict=True):
            axes.set_title(_NAMES[kind])
            bounds = [sizing.cell_error(kind, slots) for slots in SLOTS]
            axes.plot(SLOTS, bounds, color=COLOURS[4], linewidth=1.4, label="bound")
            lines: list[tuple[str, Any]] = [
                ("largest gap", lambda s: s.worst),
                ("mean error, middle", lambda s: s.middle),
                ("mean error, interpolated", lambda s: s.spread),
            ]
            for (label, read), colour, marker in zip(lines, COLOURS, MARKERS, strict=False):
                values = []
                for slots, bound in zip(SLOTS, bounds, strict=True):
                    part = [read(s) for s in _long(checked, kind, slots)]
                    values.append(bound * max(part) if label == "largest gap" else np.mean(part))
                axes.plot(
                    SLOTS, values, color=colour, marker=marker, markersize=5, linewidth=1.4,
                    linestyle="--" if label == "largest gap" else "-", label=label,
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.set_xticks(SLOTS, [str(slots) for slots in SLOTS])
            axes.set_xlabel("slots of a level: q of a wave, B of a histogram")
        all_axes[0].set_ylabel("relative error")
        figure.legend(
            *all_axes[0].get_legend_handles_labels(), loc="upper left",
            bbox_to_anchor=(0.006, 0.885), ncols=4, fontsize=9, columnspacing=1.2,
        )  # fmt: skip
