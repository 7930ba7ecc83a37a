"""Ranges and quantiles of integer keys, over hash seeds: do their intervals hold what they say?

40,000 events of 16-bit keys, of laws that crowd keys in different ways: a normal one (all near each
other, none heavy), Zipf's, a log-uniform one, a spiky one (12 keys have 60 %, the others are even),
and the delays of flights, where they are on this machine. Of each law, epsilon, fan-out, decay and
seed:

* counts of six ranges: of three widths, each around two keys drawn from the stream;
* the quantiles 0.1, 0.5 and 0.9.

Told are the shares of intervals of 90 % that hold the truth, the mean error in standard errors of
the answer (what is left of a bias), and the error over all events. Answers of one seed are
dependent: standard errors are over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.ecm import ECMParams, ECMSketch
from quality.ecm.promises import CONFIDENCE, DECAYS, DELTA
from quality.figures import pool
from quality.figures.claims import Claim, Figure, mean
from quality.figures.draw import COLOURS, INK, MARKERS, Page
from quality.figures.report import Report, Table, percent, plain

__all__ = ["EPSILONS", "FANOUTS", "LAWS", "keys_of", "measure", "produce"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

EPSILONS: Final = (0.02, 0.05, 0.15)
FANOUTS: Final = (1, 2)
_BITS: Final = 16
_EVENTS: Final = 40_000
_WINDOW: Final = _EVENTS // 2
_QUANTILES: Final = (0.1, 0.5, 0.9)
_PLACES: Final = 2
_LEAST_DELAY: Final = -1_000  # minutes; flights that are earlier, or later than a day, are cut off


def _spiky(rng: np.random.Generator) -> Int64Array:
    keys = rng.integers(0, 1 << _BITS, _EVENTS)
    spikes = rng.integers(0, 1 << _BITS, 12)
    return np.where(rng.random(_EVENTS) < 0.6, rng.choice(spikes, _EVENTS), keys)


class Law(NamedTuple):
    """How keys are drawn, and how wide ranges are."""

    draw: Callable[[np.random.Generator], Int64Array] | None  # None: delays, read
    widths: tuple[int, int, int]


_WIDTHS: Final = (200, 2_000, 20_000)
LAWS: Final[dict[str, Law]] = {
    "normal": Law(lambda rng: rng.normal(30_000, 4_000, _EVENTS).astype(np.int64), _WIDTHS),
    "Zipf 1.2": Law(lambda rng: rng.zipf(1.2, _EVENTS) % (1 << _BITS), _WIDTHS),
    "log-uniform": Law(
        lambda rng: np.exp(rng.uniform(0.0, _BITS * np.log(2.0), _EVENTS)).astype(np.int64), _WIDTHS
    ),
    "spiky": Law(_spiky, _WIDTHS),
    "delays": Law(None, (5, 30, 200)),
}


def keys_of(name: str, folder: Path) -> Int64Array | None:
    """int64[events] of a law; None where the delays are not on this machine."""
    draw = LAWS[name].draw
    if draw is not None:
        drawn: Int64Array = np.clip(draw(np.random.default_rng(1)), 0, (1 << _BITS) - 1)
        return drawn
    path = folder / "plain" / "flights3m.parquet"
    if not path.exists():
        return None
    import pyarrow.parquet as pq

    delays = pq.read_table(path, columns=["delay_min"])["delay_min"][:_EVENTS]
    cut: Int64Array = np.clip(delays.to_numpy().astype(np.int64), _LEAST_DELAY, 1_440)
    return cut - _LEAST_DELAY


class Trial(NamedTuple):
    """One range or quantile.

    Attributes:
        law, epsilon, fanout_bits, decay, seed: what it was.
        asked: width of the range; 0 for a quantile.
        held: whether the interval holds the truth.
        broken: whether a sure end was.
        off: error in standard errors; 0 for a quantile, whose interval is one of keys.
        error: of the count, or of the rank of the quantile, over the total.
    """

    law: str
    epsilon: float
    fanout_bits: int
    decay: str
    seed: int
    asked: int
    held: bool
    broken: bool
    off: float
    error: float


class _Truth(NamedTuple):
    """A stream under a decay."""

    keys: Int64Array  # rising
    upto: Float64Array  # float64[m + 1]: counts of the first so many

    def between(self, low: int, high: int) -> float:
        """Count of keys from ``low`` to ``high``."""
        first, last = self.keys.searchsorted(low), self.keys.searchsorted(high, side="right")
        return float(self.upto[last] - self.upto[first])

    def quantile(self, q: float) -> int:
        """The least key whose rank is ``q`` or more."""
        return int(self.keys[self.upto[1:].searchsorted(q * self.upto[-1])])


def measure(law: str, keys: Int64Array, epsilon: float, fanout_bits: int, seed: int) -> list[Trial]:
    """All questions under all decays to one sketch."""
    params = ECMParams.for_accuracy(
        epsilon, DELTA, seed=seed, lanes=1, key_bits=_BITS, fanout_bits=fanout_bits
    )
    sketch = ECMSketch(params, source=0, epoch=1)
    sketch.update(keys, np.arange(len(keys)))
    trials = []
    for name, make in DECAYS.items():
        decay, truth = make(_WINDOW), _truth(law, name, keys.tobytes())
        total = float(truth.upto[-1])
        for low, high in _ranges(law, keys.tobytes()):
            exact = truth.between(low, high)
            found = sketch.key_range(low, high, decay, confidence=CONFIDENCE)
            assert found.sure_upper is not None
            error = found.value - exact
            trials.append(
                Trial(
                    law, epsilon, fanout_bits, name, seed, high - low + 1,
                    held=found.lower - _ROUNDED * total <= exact <= found.upper + _ROUNDED * total,
                    broken=bool(found.sure_upper < exact - _ROUNDED * total),
                    off=error / found.stderr if found.stderr else 0.0,
                    error=abs(error) / total,
                )
            )  # fmt: skip
        for q in _QUANTILES:
            found = sketch.key_quantile(q, decay, confidence=CONFIDENCE)
            below, upto = truth.between(0, int(found.value) - 1), truth.between(0, int(found.value))
            error = max(below / total - q, q - upto / total, 0.0)
            held = found.lower <= truth.quantile(q) <= found.upper
            trials.append(Trial(law, epsilon, fanout_bits, name, seed, 0, held, False, 0.0, error))
    return trials


_ROUNDED: Final = 1e-12  # of the total: the truth is a difference of sums of float64


@lru_cache(maxsize=len(DECAYS))
def _truth(law: str, decay: str, keys: bytes) -> _Truth:
    column = np.frombuffer(keys, np.int64)
    weights = DECAYS[decay](_WINDOW)(np.arange(len(column))[::-1])
    order = np.argsort(column, kind="stable")
    return _Truth(column[order], np.concatenate([[0.0], np.cumsum(weights[order])]))


@lru_cache(maxsize=1)
def _ranges(law: str, keys: bytes) -> list[tuple[int, int]]:
    rng = np.random.default_rng(7)
    found = []
    for width in LAWS[law].widths:
        for middle in rng.choice(np.frombuffer(keys, np.int64), _PLACES).tolist():
            low = min(max(middle - width // 3, 0), (1 << _BITS) - width)
            found.append((low, low + width - 1))
    return found


def produce(
    seeds: int,
    jobs: int,
    folder: Path,
    data: Path,
    laws: Sequence[str] = tuple(LAWS),
    epsilons: Sequence[float] = EPSILONS,
) -> Report:
    """All laws on one page."""
    streams = {law: keys for law in laws if (keys := keys_of(law, data)) is not None}
    tasks = [
        (law, keys, epsilon, fanout, seed)
        for law, keys in streams.items()
        for epsilon in epsilons
        for fanout in FANOUTS
        for seed in range(seeds)
    ]
    measured = pool.run("ranges", measure, tasks, jobs)
    return _page([trial for each in measured for trial in each], seeds, folder)


# ---------------------------------------------------------------------------------------- the page


class _Case(NamedTuple):
    """Trials of all seeds."""

    name: str
    ranges: list[Trial]
    quantiles: list[Trial]

    @classmethod
    def of(cls, name: str, trials: list[Trial]) -> _Case:
        return cls(name, [t for t in trials if t.asked], [t for t in trials if not t.asked])


def _mean(trials: list[Trial], name: str) -> Figure:
    """Over seeds."""
    seeds = sorted({trial.seed for trial in trials})
    of = {seed: [float(getattr(t, name)) for t in trials if t.seed == seed] for seed in seeds}
    return mean(np.array([np.mean(of[seed]) for seed in seeds]))


def _cases(trials: list[Trial], by: Callable[[Trial], str]) -> list[_Case]:
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(by(trial), []).append(trial)
    return [_Case.of(name, group) for name, group in groups.items()]


def _page(trials: list[Trial], seeds: int, folder: Path) -> Report:
    title = "Ranges and quantiles of integer keys"
    setting = (
        f"{_EVENTS:,} events of {_BITS}-bit keys; delta = {DELTA}, intervals of {CONFIDENCE:.0%}; "
        f"{seeds} hash seeds"
    )
    cases = _cases(trials, lambda t: f"{t.law}, epsilon {t.epsilon}, fanout_bits {t.fanout_bits}")
    _draw(folder / "ecm-ranges.png", title, setting, cases)
    widths = _cases(
        [trial for trial in trials if trial.asked], lambda t: f"{t.law}, {t.asked:,} keys"
    )
    decays = _cases(trials, lambda t: f"{t.law}, {t.decay}")
    report = Report(
        "ecm-ranges",
        title,
        f"{setting}. Sizes by ECMParams.for_accuracy; standard errors over seeds.",
        tables=[
            _table("By law, epsilon and fan-out", cases),
            _table("By law and decay", decays),
            _table("By law and width of the range", widths),
        ],
        claims=_claims(trials, cases),
        headings=list(Trial._fields),
        raw=trials,
    )
    report.write(folder)
    return report


def _table(title: str, cases: list[_Case]) -> Table:
    rows = []
    for case in cases:
        row = [
            case.name,
            percent(_mean(case.ranges, "held"), 1),
            plain(_mean(case.ranges, "off")),
            f"{_mean(case.ranges, 'error').value:.5f}",
        ]
        if case.quantiles:
            row += [
                percent(_mean(case.quantiles, "held"), 1),
                f"{_mean(case.quantiles, 'error').value:.5f}",
            ]
        rows.append(row + ["-"] * (6 - len(row)))
    headings = ["stream", "ranges held, %", "off, standard errors", "error / total",
                "quantiles held, %", "error of rank"]  # fmt: skip
    return Table(title, headings, rows)


def _claims(trials: list[Trial], cases: list[_Case]) -> list[Claim]:
    def fewest(groups: list[list[Trial]]) -> Figure:
        return min((_mean(group, "held") for group in groups), key=lambda figure: figure.value)

    broken = float(sum(trial.broken for trial in trials))
    least = CONFIDENCE - 0.015
    return [
        Claim(f"intervals of {text} that hold the truth, the fewest of all",
              fewest(groups), least, "at least", percent=True)
        for text, groups in (
            ("ranges", [case.ranges for case in cases]),
            ("quantiles", [case.quantiles for case in cases]),
        )
    ] + [Claim("sure ends that were broken", Figure(broken, 0.0), 0.0, "at most")]  # fmt: skip


def _draw(path: Path, title: str, setting: str, cases: list[_Case]) -> None:
    with Page(path, title, setting, 2, height=1.9 + 0.3 * len(cases), left=0.22) as (_, all_axes):
        places = np.arange(len(cases), dtype=np.float64)[::-1]
        held, off = all_axes
        held.set_title("intervals hold the truth, % (line: promised)")
        held.axvline(100 * CONFIDENCE, color=INK, linewidth=1.2)
        off.set_title("ranges off, in standard errors (line: on neither side)")
        off.axvline(0.0, color=INK, linewidth=1.2)
        for axes, part, name, scale, colour, marker, shift in (
            (held, "ranges", "held", 100.0, COLOURS[0], MARKERS[0], -0.1),
            (held, "quantiles", "held", 100.0, COLOURS[1], MARKERS[1], 0.1),
            (off, "ranges", "off", 1.0, COLOURS[0], MARKERS[0], 0.0),
        ):
            figures = [_mean(getattr(case, part), name) for case in cases]
            axes.errorbar(
                [scale * figure.value for figure in figures], places - shift,
                xerr=[2 * scale * figure.stderr for figure in figures], color=colour,
                marker=marker, markersize=4.5, linestyle="", elinewidth=1, label=part,
            )  # fmt: skip
        held.set_xlim(100 * CONFIDENCE - 10, 100.5)
        off.set_xlim(-1.0, 1.0)
        for axes in all_axes:
            names = [case.name for case in cases] if axes is held else []
            axes.set_yticks(places, names, fontsize=8)
        held.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.25 / (0.3 * len(cases))), ncols=2,
            fontsize=8,
        )  # fmt: skip
