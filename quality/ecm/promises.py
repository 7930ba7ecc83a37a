"""What an ECM-sketch promises, over hash seeds: accuracy, intervals, sure ends, debiased answers.

Of each log, epsilon and decay, over many seeds:

* how often the paper's estimate is off by more than epsilon: of counts (all keys, and the worst of
  the 50 heaviest), of the self-join, of the inner product of the events of even and odd number; to
  be at most delta (theorems 1 and 2, which hold for every decay that does not rise);
* how often intervals of 90 % hold the truth, and how often a sure end was broken;
* mean errors of the debiased estimate and of the paper's: over keys, over events (keys weighted by
  their counts), and of joins.

Sizes are those of ``ECMParams.for_accuracy``. Answers of one seed are dependent: standard errors
are over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from decaysketch.decay import Decay
from decaysketch.ecm import ECMParams, ECMSketch
from decaysketch.ecm.sizing import Query
from quality.ecm.logs import Log
from quality.figures import pool
from quality.figures.claims import Claim, Figure, mean
from quality.figures.draw import COLOURS, INK, MARKERS, Page
from quality.figures.report import Report, Table, percent

__all__ = ["DECAYS", "EPSILONS", "produce"]

Float64Array = npt.NDArray[np.float64]

DELTA: Final = 0.1
CONFIDENCE: Final = 0.9
EPSILONS: Final = (0.05, 0.15)
_EVENTS: Final = 200_000
_HEAVY: Final = 50
_TOP: Final = 20
DECAYS: Final[dict[str, Callable[[int], Decay]]] = {
    "window": ds.decay.window,
    "exponential": lambda width: ds.decay.exponential(half_life=width / 8),
    "polynomial": lambda width: ds.decay.polynomial(1.0, scale=width / 100),
}


class Trial(NamedTuple):
    """One seed of a log, an epsilon and a decay.

    Attributes:
        log, epsilon, decay, seed: what it was.
        beyond: share of keys whose minimum is off by more than epsilon.
        join_beyond, inner_beyond: whether that of the self-join, the inner product is.
        covered, covered_top: share of keys, and of the 20 heaviest, that intervals hold.
        join_covered, inner_covered: whether theirs do.
        broken: sure ends that were broken.
        minimum, debiased: mean error over keys, relative to all events.
        minimum_by_event, debiased_by_event: the same, keys weighted by their counts.
        join_minimum, join_debiased: relative errors of the self-join.
        inner_minimum, inner_debiased: errors of the inner product over both totals.
    """

    log: str
    epsilon: float
    decay: str
    seed: int
    beyond: float
    join_beyond: bool
    inner_beyond: bool
    covered: float
    covered_top: float
    join_covered: bool
    inner_covered: bool
    broken: int
    minimum: float
    debiased: float
    minimum_by_event: float
    debiased_by_event: float
    join_minimum: float
    join_debiased: float
    inner_minimum: float
    inner_debiased: float


class Measured(NamedTuple):
    """All decays of one seed, and which of the heaviest keys were off by more than epsilon."""

    trials: list[Trial]
    heavy_beyond: dict[str, npt.NDArray[np.bool_]]


def measure(log: Log, epsilon: float, seed: int) -> Measured:
    """One seed."""
    point = _fed(log, _params(epsilon, "point", seed), slice(None))
    wide = _params(epsilon, "inner", seed)
    whole, even, odd = (_fed(log, wide, part) for part in _PARTS)
    found = Measured([], {})
    for name, make in DECAYS.items():
        decay = make(log.window)
        exact, left, right = _exact(log, name)
        keys = np.flatnonzero(exact > 0.0)
        f, total = exact[keys], float(exact.sum())
        counts = point.key_count(keys, decay, confidence=CONFIDENCE)
        least = point.key_count(keys, decay, estimator="minimum").value
        covered = (counts.lower <= f) & (f <= counts.upper)
        heavy = np.argsort(-f, kind="stable")
        beyond = np.abs(least - f) > epsilon * total
        found.heavy_beyond[name] = beyond[heavy[:_HEAVY]]
        errors = [np.abs(value - f) / total for value in (least, counts.value)]
        join, product = float(exact @ exact), float(left @ right)
        joined = whole.self_join(decay, confidence=CONFIDENCE)
        inner = even.inner_product(odd, decay, now=log.now, confidence=CONFIDENCE)
        paper_join = whole.self_join(decay, estimator="minimum").value
        paper_inner = even.inner_product(odd, decay, now=log.now, estimator="minimum").value
        both = float(left.sum() * right.sum())
        assert joined.sure_upper is not None
        assert inner.sure_upper is not None
        found.trials.append(
            Trial(
                log.name, epsilon, name, seed,
                beyond=float(beyond.mean()),
                join_beyond=abs(paper_join - join) > epsilon * total**2,
                inner_beyond=abs(paper_inner - product) > epsilon * both,
                covered=float(covered.mean()),
                covered_top=float(covered[heavy[:_TOP]].mean()),
                join_covered=joined.lower <= join <= joined.upper,
                inner_covered=inner.lower <= product <= inner.upper,
                broken=int((counts.sure_upper < f * _ROUNDED).sum())
                + (joined.sure_upper < join * _ROUNDED) + (inner.sure_upper < product * _ROUNDED),
                minimum=float(errors[0].mean()),
                debiased=float(errors[1].mean()),
                minimum_by_event=float(errors[0] @ f) / total,
                debiased_by_event=float(errors[1] @ f) / total,
                join_minimum=abs(paper_join - join) / join,
                join_debiased=abs(joined.value - join) / join,
                inner_minimum=abs(paper_inner - product) / both,
                inner_debiased=abs(inner.value - product) / both,
            )
        )  # fmt: skip
    return found


_PARTS: Final = (slice(None), slice(0, None, 2), slice(1, None, 2))
_ROUNDED: Final = 1.0 - 1e-12  # the truth is a sum of float64, too


def _params(epsilon: float, query: Query, seed: int) -> ECMParams:
    return ECMParams.for_accuracy(epsilon, DELTA, query=query, seed=seed, lanes=1)


def _fed(log: Log, params: ECMParams, part: slice) -> ECMSketch:
    sketch = ECMSketch(params, source=0, epoch=1)
    sketch.update(log.keys[part], log.times[part])
    return sketch


@lru_cache(maxsize=len(DECAYS))
def _exact(log: Log, decay: str) -> list[Float64Array]:
    """Decayed counts of each key, of all events and of those of even and odd number."""
    weights = DECAYS[decay](log.window)(log.now - log.times)
    most = int(log.keys.max()) + 1
    return [
        np.bincount(log.keys[part], weights[part], minlength=most).astype(np.float64)
        for part in _PARTS
    ]


def produce(
    logs: Sequence[Log],
    seeds: int,
    jobs: int,
    folder: Path,
    epsilons: Sequence[float] = EPSILONS,
) -> Report:
    """All logs on one page."""
    parts = [log.head(_EVENTS) for log in logs]
    tasks = [(log, epsilon, seed) for log in parts for epsilon in epsilons for seed in range(seeds)]
    measured = pool.run("promises", measure, tasks, jobs)
    return _page(measured, seeds, folder)


# ---------------------------------------------------------------------------------------- the page


class _Case(NamedTuple):
    """All seeds of a log, an epsilon and a decay."""

    log: str
    epsilon: float
    decay: str
    trials: list[Trial]
    heavy: npt.NDArray[np.bool_]  # [seeds, 50]

    def mean(self, name: str) -> Figure:
        """Over seeds; of a share, with the standard error of one more hit and one more miss."""
        values = np.array([float(getattr(trial, name)) for trial in self.trials])
        figure = mean(values)
        smoothed = (values.sum() + 1.0) / (len(values) + 2.0)
        floor = float(np.sqrt(max(smoothed * (1.0 - smoothed), 0.0)) / (len(values) + 2.0))
        return Figure(
            figure.value, max(figure.stderr, floor) if values.max() <= 1.0 else figure.stderr
        )

    def worst(self) -> float:
        """Of the heaviest keys the one that was beyond epsilon most often."""
        return float(self.heavy.mean(axis=0).max())

    def gain(self, name: str) -> float:
        """Mean error of the paper's estimate over that of the debiased one."""
        paper, ours = _PAIRS[name]
        return self.mean(paper).value / self.mean(ours).value


_PAIRS: Final = {
    "by key": ("minimum", "debiased"),
    "by event": ("minimum_by_event", "debiased_by_event"),
    "self-join": ("join_minimum", "join_debiased"),
    "inner": ("inner_minimum", "inner_debiased"),
}


def _cases(measured: list[Measured]) -> list[_Case]:
    groups: dict[tuple[str, float, str], tuple[list[Trial], list[npt.NDArray[np.bool_]]]] = {}
    for each in measured:
        for trial in each.trials:
            trials, heavy = groups.setdefault((trial.log, trial.epsilon, trial.decay), ([], []))
            trials.append(trial)
            heavy.append(each.heavy_beyond[trial.decay])
    return [_Case(*name, trials, np.array(heavy)) for name, (trials, heavy) in groups.items()]


def _page(measured: list[Measured], seeds: int, folder: Path) -> Report:
    cases = _cases(measured)
    title = "What an ECM-sketch promises"
    setting = (
        f"up to {_EVENTS:,} events of each log; delta = {DELTA}, intervals of {CONFIDENCE:.0%}; "
        f"{seeds} hash seeds"
    )
    _draw(folder / "ecm-promises.png", title, setting, cases)
    report = Report(
        "ecm-promises",
        title,
        f"{setting}. Sizes by ECMParams.for_accuracy; standard errors over seeds.",
        tables=[_beyond_table(cases), _coverage_table(cases), _error_table(cases)],
        claims=_claims(cases),
        headings=list(Trial._fields),
        raw=[trial for each in measured for trial in each.trials],
    )
    report.write(folder)
    return report


def _name(case: _Case) -> str:
    return f"{case.log}, epsilon {case.epsilon}, {case.decay}"


def _beyond_table(cases: list[_Case]) -> Table:
    rows = [
        [
            _name(case),
            percent(case.mean("beyond")),
            f"{100 * case.worst():.1f}",
            percent(case.mean("join_beyond"), 1),
            percent(case.mean("inner_beyond"), 1),
        ]
        for case in cases
    ]
    headings = ["log", "counts", f"worst of {_HEAVY} heaviest", "self-join", "inner product"]
    title = f"The paper's estimate off by more than epsilon, % (to be at most {100 * DELTA:g})"
    return Table(title, headings, rows)


def _coverage_table(cases: list[_Case]) -> Table:
    rows = [
        [
            _name(case),
            *(percent(case.mean(f"{name}"), 1) for name in _COVERED),
            str(sum(trial.broken for trial in case.trials)),
        ]
        for case in cases
    ]
    headings = ["log", "counts", f"{_TOP} heaviest", "self-join", "inner product",
                "sure ends broken"]  # fmt: skip
    title = f"Intervals of {100 * CONFIDENCE:g} % that hold the truth, %"
    return Table(title, headings, rows)


_COVERED: Final = ("covered", "covered_top", "join_covered", "inner_covered")


def _error_table(cases: list[_Case]) -> Table:
    rows = []
    for case in cases:
        cells = []
        for name, (paper, ours) in _PAIRS.items():
            cells += [
                f"{case.mean(paper).value:.5f}",
                f"{case.mean(ours).value:.5f}",
                f"{case.gain(name):.1f}",
            ]
        rows.append([_name(case), *cells])
    headings = ["log", *(h for name in _PAIRS for h in (f"{name}: minimum", "debiased", "ratio"))]
    return Table("Mean errors", headings, rows)


def _claims(cases: list[_Case]) -> list[Claim]:
    def extreme(name: str, largest: bool) -> Figure:
        figures = [case.mean(name) for case in cases]
        pick = max if largest else min
        return pick(figures, key=lambda figure: figure.value)

    texts = {"beyond": "counts", "join_beyond": "self-joins", "inner_beyond": "inner products"}
    claims = [
        Claim(
            f"{text} off by more than epsilon (theorems 1 and 2), the most over logs and decays",
            extreme(name, largest=True),
            DELTA,
            "at most",
            percent=True,
        )
        for name, text in texts.items()
    ]
    worst = max(case.worst() for case in cases)
    seeds = len(cases[0].trials)
    claims.append(
        Claim(
            f"the same of any one of the {_HEAVY} heaviest keys, the worst of all",
            Figure(worst, float(np.sqrt(worst * (1.0 - worst) / seeds))),
            DELTA,
            "at most",
            percent=True,
        )
    )
    texts = dict(zip(_COVERED, ("counts", "heaviest counts", "self-joins", "inner products"),
                     strict=True))  # fmt: skip
    claims += [
        Claim(
            f"intervals of {text} that hold the truth, the fewest over logs and decays",
            extreme(name, largest=False),
            CONFIDENCE - 0.015,
            "at least",
            percent=True,
        )
        for name, text in texts.items()
    ]
    broken = sum(trial.broken for case in cases for trial in case.trials)
    claims.append(Claim("sure ends that were broken", Figure(float(broken), 0.0), 0.0, "at most"))
    claims += [
        Claim(
            f"{name}: error of the minimum over that of the debiased estimate, the least",
            Figure(min(case.gain(name) for case in cases), 0.0),
            1.0,
            "at least",
        )
        for name in _PAIRS
    ]
    return claims


def _draw(path: Path, title: str, setting: str, cases: list[_Case]) -> None:
    with Page(path, title, setting, 3, height=1.9 + 0.32 * len(cases), left=0.16) as (_, all_axes):
        places = np.arange(len(cases), dtype=np.float64)[::-1]
        beyond, holds, closer = all_axes
        beyond.set_title("off by more than epsilon, % (line: delta)")
        _dots(beyond, cases, places, ("beyond", "join_beyond", "inner_beyond"))
        beyond.axvline(100 * DELTA, color=INK, linewidth=1.2)
        beyond.set_xlim(-0.2, 110 * DELTA)
        holds.set_title("intervals hold the truth, % (line: promised)")
        _dots(holds, cases, places, ("covered", "join_covered", "inner_covered"))
        holds.axvline(100 * CONFIDENCE, color=INK, linewidth=1.2)
        holds.set_xlim(100 * CONFIDENCE - 10, 100.5)
        closer.set_title("closer than the minimum by a factor of")
        for name, colour, marker, offset in zip(
            _PAIRS, (COLOURS[0], COLOURS[3], *COLOURS[1:3]), ("o", "D", "s", "^"),
            (-0.2, -0.07, 0.07, 0.2), strict=True,
        ):  # fmt: skip
            gains = [case.gain(name) for case in cases]
            closer.plot(gains, places - offset, color=colour, marker=marker, markersize=4.5,
                        linestyle="", label=_GAINS[name])  # fmt: skip
        closer.axvline(1.0, color=INK, linewidth=1.2)
        closer.set_xscale("log")
        for axes in all_axes:
            names = [_name(case) for case in cases] if axes is beyond else []
            axes.set_yticks(places, names, fontsize=8)
            axes.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.25 / (0.32 * len(cases))), ncols=4,
                fontsize=8, columnspacing=1.0, handletextpad=0.2,
            )  # fmt: skip


_GAINS: Final = {
    "by key": "counts",
    "by event": "by event",
    "self-join": "self-join",
    "inner": "inner",
}


def _dots(axes: Any, cases: list[_Case], places: Float64Array, names: Sequence[str]) -> None:
    """Counts, self-joins and inner products, with two standard errors."""
    for name, label, colour, marker, offset in zip(
        names, ("counts", "self-join", "inner"), COLOURS, MARKERS, (-0.15, 0.0, 0.15), strict=False
    ):
        figures = [case.mean(name) for case in cases]
        axes.errorbar(
            [100 * figure.value for figure in figures], places - offset,
            xerr=[200 * figure.stderr for figure in figures], color=colour, marker=marker,
            markersize=4.5, linestyle="", elinewidth=1, label=label,
        )  # fmt: skip
