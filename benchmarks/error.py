"""Error at equal bytes: decayed sums of skewed weights, beside sketches of Apache DataSketches.

*Tuple*: the do-it-yourself rival, a tuple sketch whose summary is (time, weight). It keeps a
uniform sample of distinct ids; a windowed or decayed sum is that over the retained, divided by
theta. *VarOpt* samples in proportion to weight, with the time as the item. It does not know a copy
from another observation, so it is a rival only for streams without any, as these are.

Bytes of the tuple sketch are those of its own serialisation, the summary packed as tightly as fixed
widths allow; of VarOpt and of ours, the largest sketch is taken whose bytes do not exceed them.

Streams are of distinct observations, one in a unit of time; each seed makes a stream of random ids
and a hash of ours (VarOpt draws from a source that cannot be seeded). Weights of the sum are
Pareto 1.2 (capped), lognormal, uniform or constant, and once more Pareto 1.2 but as *values* of
observations of weight 1, where ours cannot sample in proportion to what is summed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import decaysketch as ds
from benchmarks import machine
from benchmarks.report import Comparison, Section, Table
from benchmarks.streams import Int64Array

try:
    from datasketches import PyObjectSerDe, TuplePolicy
except ImportError:  # then the section is skipped
    PyObjectSerDe = TuplePolicy = object

__all__ = ["LatestTuple", "PackedBytes", "RootMeanSquare", "fit", "measure"]

ROWS = 100_000
MAX_WEIGHT = 99_999
LG_K = 12
_ROUNDING = 1e-9
SHARES = (0.01, 0.1, 0.5, 1.0)  # of the history: windows, and half-lives


class LatestTuple(TuplePolicy):  # type: ignore[misc]
    """A summary is the latest (time, weight) of an id."""

    def create_summary(self) -> Any:
        return None

    def update_summary(self, summary: Any, update: Any) -> Any:
        return update if summary is None else max(summary, update)

    def __call__(self, summary: Any, update: Any) -> Any:
        return max(summary, update)


class PackedBytes(PyObjectSerDe):  # type: ignore[misc]
    """The first numbers of a tuple, packed; ``form`` is that of :mod:`struct`."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._struct = struct.Struct(form)
        self._numbers = len(form) - 1

    def get_size(self, item: Any) -> int:
        return self._struct.size

    def to_bytes(self, item: Any) -> bytes:
        return self._struct.pack(*item[: self._numbers])

    def from_bytes(self, data: bytes, offset: int) -> tuple[Any, int]:
        return self._struct.unpack_from(data, offset), self._struct.size


@dataclass
class RootMeanSquare:
    """Root of the mean square of errors, and the standard error of it."""

    squares: list[float] = field(default_factory=list)

    def add(self, error: float) -> None:
        self.squares.append(error * error)

    @property
    def value(self) -> float:
        """0 where all that is left is rounding."""
        root = math.sqrt(float(np.mean(self.squares)))
        return root if root > _ROUNDING else 0.0

    @property
    def stderr(self) -> float:
        if not self.value:
            return 0.0
        spread = float(np.std(self.squares, ddof=1)) / math.sqrt(len(self.squares))
        return spread / (2 * self.value)

    def __format__(self, form: str) -> str:
        """With "%", as percentages."""
        if not self.value:
            return "exact"
        return f"{100 * self.value:.3g} ± {100 * self.stderr:.1g} %"


def fit(sketch: ds.DecaySketch, limit: int) -> int:
    """Shrink a sketch to the largest capacity whose bytes do not exceed a limit; the capacity."""
    low, high = 1, sketch.params.capacity
    while low < high:
        middle = (low + high + 1) // 2
        trial = sketch.copy()
        trial.resize(middle)
        if len(trial.to_bytes()) <= limit:
            low = middle
        else:
            high = middle - 1
    sketch.resize(low)
    return low


@dataclass(frozen=True)
class _Law:
    """How the numbers that are summed are drawn; ``form`` packs a summary of the rival."""

    name: str
    draw: Callable[[np.random.Generator], Int64Array]
    max_weight: int
    form: str = "<II"
    as_values: bool = False


def _pareto(rng: np.random.Generator) -> Int64Array:
    return np.minimum(MAX_WEIGHT, 10 * (1 + rng.pareto(1.2, ROWS))).astype(np.int64)


def _lognormal(rng: np.random.Generator) -> Int64Array:
    return np.clip(100 * rng.lognormal(0, 1, ROWS), 1, MAX_WEIGHT).astype(np.int64)


LAWS = (
    _Law("Pareto 1.2", _pareto, MAX_WEIGHT),
    _Law("lognormal", _lognormal, MAX_WEIGHT),
    _Law("uniform 1..999", lambda rng: rng.integers(1, 1_000, ROWS), 999),
    _Law("constant", lambda rng: np.ones(ROWS, np.int64), 1, form="<I"),
    _Law("Pareto 1.2 as values", _pareto, 1, as_values=True),
)


def _decays() -> list[tuple[str, float, ds.Decay]]:
    return [
        *(("window", share, ds.decay.window(round(share * ROWS))) for share in SHARES),
        *(("half-life", s, ds.decay.exponential(half_life=s * ROWS)) for s in SHARES),
    ]


def _build(law: _Law, seed: int, numbers: Int64Array, ids: Int64Array, capacity: int) -> Any:
    params = ds.SketchParams(
        max_weight=law.max_weight, id_bits=32, capacity=capacity, seed=seed, value_type="int64"
    )
    sketch = ds.DecaySketch(params)
    times = np.arange(ROWS)
    if law.as_values:
        sketch.update(numbers, 1, times, ids)
    else:
        sketch.update(None, numbers, times, ids)
    return sketch


RIVALS = ("tuple", "VarOpt")
Errors = dict[tuple[str, str, float], dict[str, RootMeanSquare]]  # by law, decay, share; by sketch


def _var_opt(numbers: Int64Array, size: int) -> Any:
    import datasketches

    sketch = datasketches.var_opt_sketch(size)
    for time, number in enumerate(numbers.tolist()):
        sketch.update((time,), float(number))
    return sketch


def _fit_var_opt(numbers: Int64Array, limit: int) -> tuple[int, int]:
    """Size and bytes of the largest VarOpt sketch within a limit of bytes, to a few."""
    size = limit // 4  # an item of average weight takes its 4 bytes alone
    while True:
        used = len(_var_opt(numbers, size).serialize(PackedBytes("<I")))
        if used <= limit:
            return size, used
        size -= max(1, (used - limit) // 12)  # a heavy item takes its weight, too


@dataclass(frozen=True)
class _Sizes:
    """Bytes of each sketch, and what makes ours and VarOpt that large."""

    used: dict[str, int]
    capacity: int
    var_opt: int


def _tuple_sketch(ids: Int64Array) -> Any:
    import datasketches

    sketch = datasketches.update_tuple_sketch(LatestTuple(), LG_K)
    for time, id_ in enumerate(ids.tolist()):
        sketch.update(id_, (time, 1))
    sketch.trim()
    return sketch


def _fit_all(law: _Law, tuples: Any, numbers: Int64Array, ids: Int64Array) -> _Sizes:
    limit = len(tuples.compact().serialize(PackedBytes(law.form)))
    ours = _build(law, 0, numbers, ids, 4 << LG_K)
    capacity = fit(ours, limit)
    size, used = _fit_var_opt(numbers, limit)
    sizes = {"tuple": limit, "VarOpt": used, "ours": len(ours.to_bytes())}
    return _Sizes(sizes, capacity, size)


def _study(seeds: int) -> tuple[Errors, dict[str, _Sizes]]:
    """Errors of every sketch, and their sizes by law."""
    now = ROWS - 1
    ages = now - np.arange(ROWS)
    decays = [(kind, share, decay, decay(ages)) for kind, share, decay in _decays()]
    errors: Errors = {
        (law.name, kind, share): {name: RootMeanSquare() for name in (*RIVALS, "ours")}
        for law in LAWS
        for kind, share, _, _ in decays
    }
    sizes: dict[str, _Sizes] = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        ids = rng.permutation(np.unique(rng.integers(0, 1 << 32, ROWS + 1_000))[:ROWS])
        # Which ids a tuple sketch retains depends on nothing else: one serves every law.
        tuples = _tuple_sketch(ids)
        kept = np.array([time for _, (time, _) in tuples])
        for law in LAWS:
            numbers = law.draw(rng)
            if law.name not in sizes:
                sizes[law.name] = _fit_all(law, tuples, numbers, ids)
            sketch = _build(law, seed, numbers, ids, sizes[law.name].capacity)
            ask = sketch.total if law.as_values else sketch.sum
            sampled = list(_var_opt(numbers, sizes[law.name].var_opt))
            times = np.array([time for (time,), _ in sampled])
            adjusted = np.array([weight for _, weight in sampled])
            for kind, share, decay, decayed in decays:
                truth = float(numbers @ decayed)
                found = errors[law.name, kind, share]
                uniform = float(numbers[kept] @ decayed[kept]) / tuples.theta
                found["tuple"].add(uniform / truth - 1)
                found["VarOpt"].add(float(adjusted @ decayed[times]) / truth - 1)
                found["ours"].add(ask(decay, now=now).value / truth - 1)
    return errors, sizes


def _plot(errors: Errors, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for panel, kind in zip(panels, ("window", "half-life"), strict=True):
        for color, law in enumerate(LAWS):
            for sketch, style in (("tuple", "--"), ("ours", "-")):
                found = {share: errors[law.name, kind, share][sketch].value for share in SHARES}
                shown = {share: 100 * value for share, value in found.items() if value > 0}
                label = law.name if sketch == "ours" and kind == "window" else None
                panel.plot(
                    list(shown), list(shown.values()), style, color=f"C{color}", marker=".",
                    label=label,
                )  # fmt: skip
        panel.set(xscale="log", yscale="log", xlabel=f"{kind}, share of the history")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("RMSE of the sum, %")
    title = "solid: ours (where not exact)\ndashed: tuple sketch"
    figure.legend(loc="outside right upper", fontsize=8, title=title, title_fontsize=8)
    figure.savefig(path, dpi=76)
    pyplot.close(figure)


def measure(seeds: int, picture: Path | None = None) -> Section:
    """Error of windowed and decayed sums at equal bytes, by law of the weights."""
    section = Section(
        "Error at equal bytes: windowed and decayed sums",
        "The tuple sketch, with (time, weight) as summary, is a uniform sample of ids. VarOpt "
        "samples in proportion to weight, over the whole history, and counts copies (there are "
        "none here). Ours keeps all recent observations and samples older ones in proportion to "
        'their weight. "As values" sums the values of observations with weight 1. For these, ours '
        "is a uniform sample within each time span.",
    )
    if machine.installed("datasketches") is None:
        section.skipped.append("datasketches: not installed")
        return section
    errors, sizes = _study(seeds)
    rows = [
        (law, kind, f"{share:.0%}", *(f"{found[name]:%}" for name in (*RIVALS, "ours")),
         *(_ratio(found[name], found["ours"]) for name in RIVALS))
        for (law, kind, share), found in errors.items()
    ]  # fmt: skip
    held = ". ".join(
        f"{law[0].upper()}{law[1:]}: "
        f"{', '.join(f'{name} {used:,}' for name, used in size.used.items())} "
        f"(capacity {size.capacity:,})"
        for law, size in sizes.items()
    )
    section.tables.append(
        Table(
            "Root of the mean square relative error",
            (
                "weights", "decay", "share of the history", "tuple", "VarOpt", "ours",
                "tuple / ours", "VarOpt / ours",
            ),
            rows,
            labels=3,
            notes=[
                f"{ROWS:,} distinct observations, {seeds} seeds. ± is the standard error. Pareto "
                f"and lognormal weights are capped at {MAX_WEIGHT:,}. Bytes: {held}."
            ],
        )
    )  # fmt: skip
    section.comparisons = _worst_cells(errors)
    if picture is not None:
        if machine.installed("matplotlib") is None:
            section.skipped.append("the picture: matplotlib is not installed")
        else:
            _plot(errors, picture)
            section.picture = (picture.name, "Error at equal bytes, ours and a tuple sketch")
    return section


def _ratio(theirs: RootMeanSquare, ours: RootMeanSquare) -> str:
    return f"{theirs.value / ours.value:.2f}" if ours.value else "ours exact"


def _worst_cells(errors: Errors) -> list[Comparison]:
    """Of each law, kind of decay and rival, the share of the history that suits us least."""
    worst: dict[tuple[str, str, str], Comparison] = {}
    for (law, kind, share), found in errors.items():
        for rival in RIVALS:
            if not found["ours"].value:
                continue
            cell = Comparison(
                f"decayed sum at equal bytes, {law}, our worst {kind}: {share:.0%} of the history",
                "tuple sketch" if rival == "tuple" else "VarOpt, which counts copies", "RMSE",
                found["ours"].value, found[rival].value, "less",
            )  # fmt: skip
            known = worst.setdefault((law, kind, rival), cell)
            worst[law, kind, rival] = min(cell, known, key=lambda c: c.advantage)
    return list(worst.values())
