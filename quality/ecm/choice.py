"""Which sketch: counts of keys by ECM-sketches and by a ``DecaySketch``, per byte.

Both are asked for the decayed count of every key of a log, under a window, an exponential and a
polynomial decay, when the log ends. Errors are relative to the decayed count of all events: their
mean over all keys that have a count, and over the 20 heaviest. Bytes are those that are sent. A
``DecaySketch`` samples the events, each named by an id of 36 bits, and groups the sample by key; it
is told an event once, though it need not be. Two rows more are in the table: the log itself, every
event of the window, 12 bytes each; and what answers 0 for every key has as an error, which says how
much of a mean over all keys there is to be known.

Rates are of one process: batches of 10,000 events, and all keys with their intervals, just after an
update and again. The fastest slice is given, and its ratio to ``numpy.sort``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.decay import Decay
from decaysketch.ecm import ECMParams, ECMSketch, RandomizedSketch
from decaysketch.ecm.matrix import Estimator
from decaysketch.ecm.randomized import RandomizedParams
from quality.ecm.logs import Log
from quality.ecm.promises import DECAYS
from quality.ecm.rates import best, sort_rate
from quality.figures import pool
from quality.figures.claims import Claim, mean
from quality.figures.draw import COLOURS, MARKERS, Page
from quality.figures.report import Report, Table

__all__ = ["produce"]

DELTA: Final = 0.1
EPSILONS: Final = (0.02, 0.05, 0.15)
CAPACITIES: Final = (100, 400, 2_000)
_RANDOMIZED_EPSILON: Final = 0.15
_EVENTS: Final = 1_000_000
_BATCH: Final = 10_000
_TOP: Final = 20
_ID_BITS: Final = 36
_ODD: Final = 0x9E3779B97  # what consecutive numbers are multiplied by, so that ids have no order
_EVENT_BYTES: Final = 12  # time and key
_ESTIMATORS: Final[tuple[Estimator, ...]] = ("minimum", "debiased")

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class Trial(NamedTuple):
    """One seed of a sketch of a log, under one decay.

    Attributes:
        log, sketch, estimator, decay, seed: what it was; the estimator is "" where there is one.
        sent: bytes.
        mean, heaviest: error over all keys, and over the 20 heaviest.
    """

    log: str
    sketch: str
    estimator: str
    decay: str
    seed: int
    sent: int
    mean: float
    heaviest: float


def measure_ecm(log: Log, epsilon: float, seed: int) -> list[Trial]:
    """An ECM-sketch of waves, both estimators."""
    sketch = _ecm(epsilon, seed)
    sketch.update(log.keys, log.times)
    sent = len(sketch.to_bytes())
    found = []
    for name, decay in _decays(log).items():
        exact = _exact(log, decay)
        keys = np.flatnonzero(exact)
        for estimator in _ESTIMATORS:
            values = sketch.key_count(keys, decay, estimator=estimator).value
            errors = _errors(values, exact[keys])
            found.append(Trial(log.name, _ecm_name(epsilon), estimator, name, seed, sent, *errors))
    return found


def measure_sample(log: Log, capacity: int, seed: int) -> list[Trial]:
    """A ``DecaySketch`` whose values are the keys."""
    sketch = _sampling(capacity, seed)
    sketch.update(log.keys, 1, log.times, _ids(log))
    sent = len(sketch.to_bytes())
    found = []
    for name, decay in _decays(log).items():
        exact = _exact(log, decay)
        errors = _errors(_grouped(sketch, decay, log)[exact > 0.0], exact[exact > 0.0])
        found.append(Trial(log.name, _sample_name(capacity), "", name, seed, sent, *errors))
    return found


def measure_randomized(log: Log, seed: int) -> list[Trial]:
    """The paper's sketch of randomized waves, which knows windows alone; bytes are of memory."""
    sketch = _randomized(seed)
    sketch.update(log.keys, log.times, np.arange(len(log.keys)))
    exact = log.exact(log.window).astype(np.float64)
    keys = np.flatnonzero(exact)
    errors = _errors(sketch.counts(keys, log.window, now=log.now), exact[keys])
    return [Trial(log.name, _RANDOMIZED_NAME, "", "window", seed, sketch.nbytes, *errors)]


_RANDOMIZED_NAME: Final = f"ECM-RW, epsilon {_RANDOMIZED_EPSILON}"


def _ecm_name(epsilon: float) -> str:
    return f"ECMSketch, epsilon {epsilon}"


def _sample_name(capacity: int) -> str:
    return f"DecaySketch, capacity {capacity:,}"


def _ecm(epsilon: float, seed: int) -> ECMSketch:
    params = ECMParams.for_accuracy(epsilon, DELTA, seed=seed)
    return ECMSketch(params, source=0, epoch=1)


def _sampling(capacity: int, seed: int) -> ds.DecaySketch:
    params = ds.SketchParams(max_weight=1, id_bits=_ID_BITS, capacity=capacity, seed=seed)
    return ds.DecaySketch(params)


def _randomized(seed: int) -> RandomizedSketch:
    return RandomizedSketch(RandomizedParams.for_accuracy(_RANDOMIZED_EPSILON, DELTA, seed=seed))


def _ids(log: Log) -> Int64Array:
    """A number of its own for each event, in no order."""
    numbers = np.arange(len(log.keys), dtype=np.uint64) * np.uint64(_ODD)
    return (numbers & np.uint64((1 << _ID_BITS) - 1)).astype(np.int64)


def _counted(
    sketch: ECMSketch, keys: Int64Array, decay: Decay, now: int
) -> tuple[Float64Array, ...]:
    """Its estimates, with their intervals, as groups have them."""
    counts = sketch.key_count(keys, decay, now=now)
    return counts.value, counts.lower, counts.upper


def _grouped(sketch: ds.DecaySketch, decay: Decay, log: Log) -> Float64Array:
    """Its estimate for each key."""
    found = np.zeros(int(log.keys.max()) + 1)
    groups = sketch.group_by(decay, now=log.now)
    found[[int(group.value) for group in groups]] = [group.count.value for group in groups]
    return found


def _decays(log: Log) -> dict[str, Decay]:
    return {name: make(log.window) for name, make in DECAYS.items()}


def _exact(log: Log, decay: Decay) -> Float64Array:
    return np.bincount(log.keys, weights=decay(log.now - log.times)).astype(np.float64)


def _errors(found: Float64Array, exact: Float64Array) -> tuple[float, float]:
    errors = np.abs(found - exact) / exact.sum()
    heaviest = np.argsort(-exact, kind="stable")[:_TOP]
    return float(errors.mean()), float(errors[heaviest].mean())


class Rates(NamedTuple):
    """Events and keys a second: counted, asked about just after an update, asked about again."""

    update: float
    first: float
    again: float


def measure_rates(log: Log) -> dict[str, Rates]:
    """Of every sketch, one after the other."""
    decay, keys = DECAYS["window"](log.window), np.flatnonzero(log.exact(log.window))
    parts = [slice(at, at + _BATCH) for at in range(0, len(log.keys) - _BATCH + 1, _BATCH)]
    kept_back = max(1, min(5, len(parts) // 4))  # batches after each of which a question is asked
    ids, found = _ids(log), {}

    def rates(name: str, update: Callable[[slice], object], ask: Callable[[], object]) -> None:
        updating = best([partial(update, part) for part in parts[:-kept_back]])
        first = again = float("inf")
        for part in parts[-kept_back:]:
            update(part)
            first, again = min(first, best([ask])), min(again, best([ask] * 5))
        found[name] = Rates(_BATCH / updating, len(keys) / first, len(keys) / again)

    def count(sketch: ECMSketch, part: slice) -> None:
        sketch.update(log.keys[part], log.times[part])

    def sample(sketch: ds.DecaySketch, part: slice) -> None:
        sketch.update(log.keys[part], 1, log.times[part], ids[part])

    for epsilon in EPSILONS:
        counted = _ecm(epsilon, 0)
        ask = partial(_counted, counted, keys, decay, log.now)
        rates(_ecm_name(epsilon), partial(count, counted), ask)
    for capacity in CAPACITIES:
        sampled = _sampling(capacity, 0)
        rates(
            _sample_name(capacity), partial(sample, sampled), partial(_grouped, sampled, decay, log)
        )
    return found


def produce(logs: Sequence[Log], seeds: int, jobs: int, folder: Path) -> Report:
    """One page of all logs."""
    logs = [log.head(_EVENTS) for log in logs]
    label = "which sketch"
    ecm = [(log, eps, seed) for log in logs for eps in EPSILONS for seed in range(seeds)]
    samples = [(log, size, seed) for log in logs for size in CAPACITIES for seed in range(seeds)]
    parts = pool.run(f"{label}, ECMSketch", measure_ecm, ecm, jobs)
    parts += pool.run(f"{label}, DecaySketch", measure_sample, samples, jobs)
    parts += pool.run(f"{label}, ECM-RW", measure_randomized, [(log, 0) for log in logs], jobs)
    trials = [trial for part in parts for trial in part]
    setting = (
        f"{seeds} hash seeds, one of ECM-RW; the first {_EVENTS:,} events of each log, the longest "
        f"window; delta = {DELTA}"
    )
    title = "Which sketch: counts of keys, per byte"
    _draw(folder / "ecm-which-sketch.png", title, setting, logs, trials)
    report = Report(
        "ecm-which-sketch",
        title,
        f"{setting}. Errors are relative to the decayed count of all events. ECM-RW's bytes are "
        "those that it holds, all others' those that are sent.",
        tables=[*(_table(log, trials) for log in logs), _rates_table(logs[0])],
        claims=_claims(logs, trials),
        headings=list(Trial._fields),
        raw=trials,
    )
    report.write(folder)
    return report


def _table(log: Log, trials: Sequence[Trial]) -> Table:
    window = log.exact(log.window)
    rows = [["every event", f"{window.sum() * _EVENT_BYTES:,}", *["0"] * (2 * len(DECAYS))]]
    silence = ["0 for every key", "0"]
    for exact in (_exact(log, decay) for decay in _decays(log).values()):
        counts = exact[exact > 0.0]
        silence += [f"{error:.5f}" for error in _errors(np.zeros_like(counts), counts)]
    rows.append(silence)
    mine = [trial for trial in trials if trial.log == log.name]
    for sketch, estimator in dict.fromkeys((t.sketch, t.estimator) for t in mine):
        part = [t for t in mine if (t.sketch, t.estimator) == (sketch, estimator)]
        row = [f"{sketch}, {estimator}" if estimator else sketch]
        row.append(f"{np.mean([t.sent for t in part]):,.0f}")
        for decay in DECAYS:
            some = [t for t in part if t.decay == decay]
            row += [_mean_of([t.mean for t in some]), _mean_of([t.heaviest for t in some])]
        rows.append(row)
    headings = ["sketch", "bytes"]
    for decay in DECAYS:
        headings += [f"{decay}: all keys", f"{_TOP} heaviest"]
    title = (
        f"{log.title}: {len(log.keys):,} events, {np.count_nonzero(window):,} keys in the window"
    )
    return Table(title, headings, rows)


def _mean_of(errors: list[float]) -> str:
    return f"{np.mean(errors):.5f}" if errors else "-"


def _rates_table(log: Log) -> Table:
    sort = sort_rate()
    rows = [
        [name, *(cell for rate in rates for cell in (f"{rate / 1e6:.2f}", f"{rate / sort:.3f}"))]
        for name, rates in measure_rates(log).items()
    ]
    return Table(
        f"{log.title}: millions a second, and over those of numpy.sort ({sort / 1e6:.0f})",
        ["sketch", "events", "/ sort", "keys after an update", "/ sort", "keys again", "/ sort"],
        rows,
    )


def _claims(logs: Sequence[Log], trials: Sequence[Trial]) -> list[Claim]:
    """What ``docs/which-sketch.md`` says, with errors over seeds."""

    def errors(log: Log, sketch: str, estimator: str, name: str) -> Float64Array:
        """Mean over decays, for each seed."""
        seeds: dict[int, list[float]] = {}
        for t in trials:
            if (t.log, t.sketch, t.estimator) == (log.name, sketch, estimator):
                seeds.setdefault(t.seed, []).append(getattr(t, name))
        return np.array([np.mean(each) for each in seeds.values()])

    claims = []
    small, large = _sample_name(CAPACITIES[1]), _ecm_name(EPSILONS[1])  # of about equal bytes
    for log in logs:
        ours = errors(log, large, "debiased", "mean")
        claims.append(
            Claim(
                f"{log.name}: all keys, {small}, over {large}, debiased",
                mean(errors(log, small, "", "mean") / ours),
                1.0,
                "at most",
            )
        )
        claims.append(
            Claim(
                f"{log.name}: all keys, {large}, debiased over the paper's minimum",
                mean(ours / errors(log, large, "minimum", "mean")),
                1.0,
                "at most",
            )
        )
    return claims


_LINES: Final = (
    ("ECMSketch", "minimum", "ECMSketch, minimum (the paper's)"),
    ("ECMSketch", "debiased", "ECMSketch, debiased"),
    ("DecaySketch", "", "DecaySketch"),
)


def _draw(path: Path, title: str, setting: str, logs: Sequence[Log], trials: list[Trial]) -> None:
    with Page(path, title, setting, len(logs)) as (figure, all_axes):
        for log, axes in zip(logs, all_axes, strict=True):
            axes.set_title(f"{log.name}: all keys (solid), {_TOP} heaviest (dashed)")
            for (kind, estimator, label), colour, marker in zip(
                _LINES, COLOURS, MARKERS, strict=False
            ):
                part = [
                    t
                    for t in trials
                    if t.log == log.name and t.sketch.startswith(kind) and t.estimator == estimator
                ]
                sizes: dict[str, list[Trial]] = {}
                for trial in part:
                    sizes.setdefault(trial.sketch, []).append(trial)
                of = sorted(sizes.values(), key=lambda some: some[0].sent)
                sent = [np.mean([t.sent for t in some]) / 1024 for some in of]
                for name, style in (("mean", "-"), ("heaviest", "--")):
                    axes.plot(
                        sent, [np.mean([getattr(t, name) for t in some]) for some in of],
                        color=colour, linestyle=style, marker=marker, markersize=4.5,
                        linewidth=1.5, label=label if style == "-" else None,
                    )  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("KB sent")
        all_axes[0].set_ylabel("mean error / all events, decayed")
        figure.legend(
            *all_axes[0].get_legend_handles_labels(), loc="upper left",
            bbox_to_anchor=(0.006, 0.885), ncols=len(_LINES), fontsize=9, columnspacing=1.2,
        )  # fmt: skip
