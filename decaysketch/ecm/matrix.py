"""The counters that queries read, for every layer, under one decay and at one time.

For every decay, a cell has guaranteed bounds ``lo`` and ``hi``, and an estimate
``value``. All three add: over a source's lanes, over sources, and over buffered
events. So a :class:`Grid` is the same thing whether it was read from one sketch or from a
collection of a thousand sources. Adding cells keeps the relative error of the sources' cells, while
merging them would add to it (Papapetrou, Garofalakis and Deligiannakis 2015, theorem 4, does that).

Windows count in integers. Every other decay reads times, and merged counts are divided. Then the
bounds are widened by more than float64 sums can be off by rounding, so they stay guaranteed.

Events that a source did not count at their place widen results, not cells, because this noise
belongs to no key: ``refused`` may be missing from any result, ``moved`` may be counted too much
(see :class:`Counters`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT, check_time
from decaysketch.decay import (
    Decay,
    Exponential,
    Expression,
    NoDecay,
    Piecewise,
    Polynomial,
    Window,
)
from decaysketch.decay.functions import check_decay
from decaysketch.ecm import collision_error
from decaysketch.ecm.cells import Cells, minimum
from decaysketch.ecm.hashing import columns_of
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.sizing import cell_error
from decaysketch.errors import IncompatibleSketchError, ParameterError

__all__ = [
    "Counters",
    "Estimator",
    "Grid",
    "Held",
    "LayerGrid",
    "add",
    "check_alike",
    "check_estimator",
    "is_exact",
    "read",
]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

Estimator = Literal["debiased", "minimum"]
"""What an answer is: with the noise of other keys taken off, or the paper's minimum of the rows."""

_EXACT = 2.0**53  # whole numbers beyond are rounded as float64
_ROUNDING = 2.0**-40  # relative; sums of the times of a cell, of at most 2^12, round by less
_HEAVIEST = 2.0**480  # of all weight at age 0: squares of sums are float64
_FALLING = (Exponential, Expression, NoDecay, Piecewise, Polynomial, Window)  # checked when made


class Held(NamedTuple):
    """Events that a source buffers for sorting. They are counted exactly.

    Attributes:
        words: uint64[m], of the keys.
        times: int64[m], in any order.
        weights: int64[m].
    """

    words: UInt64Array
    times: Int64Array
    weights: Int64Array


class Counters(NamedTuple):
    """One source's counters.

    Attributes:
        lanes: for each lane, its cells in every layer, root first.
        slack: the relative error from merging, 0 without it: a count of
            ``x`` may be one of ``x / (1 + slack)`` to ``x / (1 - slack)``.
        held: the buffered events.
        refused: weight that arrived too late, and was not counted. It may belong to any key and
            time.
        moved: weight that was counted at a later time than its own.
    """

    lanes: Sequence[Sequence[Cells]]
    slack: float = 0.0
    held: Held | None = None
    refused: int = 0
    moved: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class LayerGrid:
    """The cells of one layer: guaranteed ``lo <= count <= hi``, and an estimate ``value``.

    Attributes:
        layer: the layer.
        seed: seed of its hash functions.
        lo, hi, value: float64[depth, width], ``lo <= value <= hi``. Do not change them.
    """

    layer: Layer
    seed: int
    lo: Float64Array
    hi: Float64Array
    value: Float64Array

    def least(self, cells: Float64Array, words: UInt64Array) -> Float64Array:
        """float64[m], the minimum over each word's cells, one per row. O(depth) each."""
        return minimum(cells, words, self.layer, self.seed)

    def columns(self, words: UInt64Array) -> npt.NDArray[np.uint32]:
        """uint32[depth, m], each word's column in every row."""
        return columns_of(words, self.layer, self.seed)

    @cached_property
    def ranked(self) -> Float64Array:
        """``value``, each row rising."""
        return np.sort(self.value, axis=1)

    @cached_property
    def median_noise(self) -> float:
        """The median count that other keys add to a key's smallest cell."""
        return collision_error.most(self.ranked, 0.5) if self.layer.hashed else 0.0

    @cached_property
    def debiased(self) -> Float64Array:
        """``value`` less the noise, so that a key's smallest cell estimates its count. Subtracting
        from every cell is the same as subtracting from the smallest.
        """
        return np.maximum(self.value - self.median_noise, 0.0) if self.layer.hashed else self.value

    @cached_property
    def gap_deviation(self) -> Float64Array:
        """float64[depth, width], standard deviation of a count anywhere between its bounds."""
        return (self.hi - self.lo) / math.sqrt(12.0)


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """The counters of all layers, under one decay and at one time.

    Attributes:
        layers: root first, leaf last.
        decay, now: decay and time of the query.
        key_bits: keys are integers below ``2^key_bits``, counted by prefix too. None if they are
            hashed.
        refused: decayed weight that may be missing from any result.
        moved: decayed weight that may be too much in any result.
    """

    layers: tuple[LayerGrid, ...]
    decay: Decay
    now: int
    key_bits: int | None = None
    refused: float = 0.0
    moved: float = 0.0

    def __repr__(self) -> str:
        shapes = ", ".join(f"{each.layer.depth} x {each.layer.width}" for each in self.layers)
        return f"Grid({shapes}, {self.decay!r}, now={self.now})"

    @property
    def root(self) -> LayerGrid:
        """One cell: the total."""
        return self.layers[0]

    @property
    def leaf(self) -> LayerGrid:
        """The cells for keys."""
        return self.layers[-1]

    @property
    def most(self) -> float:
        """Upper bound on the counted total."""
        return float(self.root.hi[0, 0])

    @property
    def verified(self) -> Literal["proof", "grid"]:
        """How the decay was verified to fall: proved, or checked on a grid of ages."""
        return "grid" if getattr(self.decay, "verified", None) == "grid" else "proof"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats of every result; see :data:`~decaysketch.query.estimate.CAVEATS`."""
        return ("decay-on-grid",) if self.verified == "grid" else ()

    def interval(
        self, confidence: float, estimator: Estimator
    ) -> tuple[Float64Array, Float64Array]:
        """Return leaf cells whose minimum over a key's cells is a bound of the interval for its
        count.

        The debiased estimator's interval follows from the spread of the cells, with half the risk
        at each bound. If a row has too few cells to lower the upper bound, that is the guaranteed
        one, and all the risk is at the lower bound. If it has too few for that, and for the paper's
        estimator, the lower bound is Markov's.

        Returns:
            Two float64[depth, width], computed once for a confidence and estimator.
        """
        found = self._intervals.get((confidence, estimator))
        if found is None:
            found = self._intervals[confidence, estimator] = self._spread(confidence, estimator)
        return found

    @cached_property
    def _intervals(
        self,
    ) -> dict[tuple[float, Estimator], tuple[Float64Array, Float64Array]]:
        return {}

    def _spread(self, confidence: float, estimator: Estimator) -> tuple[Float64Array, Float64Array]:
        leaf, risk = self.leaf, 1.0 - confidence
        if not leaf.layer.hashed:
            return leaf.lo, leaf.hi
        if estimator == "minimum":
            return np.minimum(self._above_markov(risk), leaf.value), leaf.hi
        floors = collision_error.least(np.sort(leaf.lo, axis=1), 0.5 * risk)
        above = collision_error.most(np.sort(leaf.hi, axis=1), 0.5 * risk if floors.any() else risk)
        lower = np.maximum(leaf.lo - above, 0.0) if above < math.inf else self._above_markov(risk)
        upper = leaf.hi - floors[:, None]
        # A key's least value lies between the least of these ends, too.
        return np.minimum(lower, leaf.debiased), np.maximum(upper, leaf.debiased)

    def _above_markov(self, risk: float) -> Float64Array:
        """``f >= lo - share (||a|| - f)``, solved for f."""
        layer = self.leaf.layer
        share = collision_error.markov(layer.depth, layer.width, risk)
        if share >= 1.0 or not self.most < math.inf:
            return np.zeros_like(self.leaf.lo)
        return np.maximum((self.leaf.lo - share * self.most) / (1.0 - share), 0.0)


def is_exact(lower: Any, upper: Any) -> Any:
    """Whether guaranteed bounds, numbers or arrays, are equal except for rounding."""
    return upper * (1.0 - 4.0 * _ROUNDING) <= lower


def check_estimator(estimator: Estimator) -> None:
    """Reject an unknown estimator.

    Raises:
        ParameterError: it is not in :data:`Estimator`.
    """
    if estimator not in get_args(Estimator):
        raise ParameterError(
            f"estimator is {estimator!r}; expected one of {', '.join(get_args(Estimator))}"
        )


# ------------------------------------------------------------------------------------------ reading


def read(
    sources: Iterable[Counters],
    layers: Sequence[Layer],
    seed: int,
    decay: Decay,
    now: int,
    *,
    key_bits: int | None = None,
) -> Grid:
    """Return the sum of the sources' counters under a decay.

    Args:
        sources: sources with the same layers and seed.
        layers: root first, leaf last.
        seed: seed of the hash functions.
        decay: an event's weight as a function of its age ``now - time``. It does not rise with age.
            A window includes the age that equals its width.
        now: time of the query. Later events are not counted.
        key_bits: keys are integers with this number of bits.

    Returns: A :class:`Grid`. O(d w log n) for each lane and layer under a window. Otherwise O(1)
        for every stored time.

    Raises:
        ParameterError: ``decay`` is not a decay of the age, or gives negative or infinite weights,
            or more weight at a higher age, or so much that squared sums exceed float64; ``now`` is
            not a time.
    """
    fading = _Fading.of(decay, now)
    sums = [_Sum(layer) for layer in layers]
    refused = moved = seen = 0
    early = False  # something was counted at a time after now
    for source in sources:
        for lane in source.lanes:
            early |= lane[0].clock is not None and lane[0].clock > fading.now
            for cells, into in zip(lane, sums, strict=True):
                into.take(cells, fading, source.slack)
            seen += lane[0].seen
        if source.held is not None:
            for into in sums:
                into.count(source.held, fading, seed)
            seen += int(source.held.weights.sum())
        refused += source.refused
        moved += source.moved
    fading.check_heavy(seen + refused + moved)
    # Weight that was counted too late, after now, is missing.
    missing = refused + moved if early else refused
    root = sums[0].grid(seed, math.inf)
    most = float(root.hi[0, 0])
    return Grid(
        (root, *(each.grid(seed, most) for each in sums[1:])),
        decay,
        fading.now,
        key_bits,
        missing * fading.heaviest,
        moved * fading.heaviest,
    )


def add(grids: Sequence[Grid]) -> Grid:
    """The sum of grids with one decay and time, as if their sources had been read together.

    Raises:
        IncompatibleSketchError: other layers, seeds, key bits, decays or times.
    """
    first = grids[0]
    for other in grids[1:]:
        check_alike(first, other)
        fields: dict[str, tuple[object, object]] = {
            name: (getattr(first, name), getattr(other, name))
            for name in ("decay", "now")
            if getattr(first, name) != getattr(other, name)
        }
        if fields:
            raise IncompatibleSketchError(fields)
    most = math.inf
    layers = []
    for parts in zip(*(grid.layers for grid in grids), strict=True):
        lo, hi, value = (sum(getattr(p, name) for p in parts) for name in ("lo", "hi", "value"))
        hi = np.minimum(hi, most)
        layers.append(LayerGrid(parts[0].layer, parts[0].seed, lo, hi, np.minimum(value, hi)))
        most = float(layers[0].hi[0, 0])
    return Grid(
        tuple(layers),
        first.decay,
        first.now,
        first.key_bits,
        math.fsum(grid.refused for grid in grids),
        math.fsum(grid.moved for grid in grids),
    )


def check_alike(ours: Grid, theirs: Grid) -> None:
    """Reject grids with cells for different keys.

    Raises:
        IncompatibleSketchError: other layers, seeds or key bits.
    """
    pairs: dict[str, tuple[object, object]] = {
        "layers": (
            tuple(tuple(each.layer) for each in ours.layers),
            tuple(tuple(each.layer) for each in theirs.layers),
        ),
        "seed": (ours.root.seed, theirs.root.seed),
        "key_bits": (ours.key_bits, theirs.key_bits),
    }
    fields = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if fields:
        raise IncompatibleSketchError(fields)


class _Fading(NamedTuple):
    """A decay at a time."""

    decay: Decay
    now: int
    start: int | None  # the first time of the window, where it is one
    heaviest: float  # weight at age 0

    @classmethod
    def of(cls, decay: Decay, now: int) -> _Fading:
        decay = check_decay(decay)
        now = check_time("now", now)
        start = None
        if isinstance(decay, NoDecay):
            start = -TIME_LIMIT
        elif isinstance(decay, Window):
            start = max(now - math.floor(min(decay.width, 2 * TIME_LIMIT)), -TIME_LIMIT)
        fading = cls(decay, now, start, 1.0)
        if start is not None:
            return fading
        return fading._replace(heaviest=float(fading.weigh(np.zeros(1, np.int64))[0]))

    def weigh(self, ages: npt.NDArray[np.integer[Any]]) -> Float64Array:
        """Weights by age. Below 0, the weight at 0.

        Raises:
            ParameterError: weights that are not finite, negative, or rising with the age.
        """
        ages = np.maximum(ages, 0)
        weights = np.asarray(self.decay(ages), np.float64)
        if not isinstance(self.decay, _FALLING):
            by_age = weights[np.argsort(ages, kind="stable")]
            if len(by_age) and not (
                (by_age[1:] <= by_age[:-1]).all() and 0.0 <= by_age[-1] <= by_age[0] < np.inf
            ):
                raise ParameterError(
                    f"{self.decay!r} gives weights from {by_age.min()} to {by_age.max()} as ages "
                    "rise; expected finite numbers >= 0 that do not rise"
                )
        return weights

    def weigh_events(self, times: Int64Array) -> Float64Array:
        """The count of events with weight 1, and 0 after now."""
        if self.start is not None:
            return ((times >= self.start) & (times <= self.now)).astype(np.float64)
        weights = np.zeros(len(times))
        there = times <= self.now
        ages = np.int64(self.now) - times[there]
        weights[there] = self.weigh(ages.view(np.uint64))  # an age of 2^63 has wrapped around
        return weights

    def check_heavy(self, seen: int) -> None:
        """Reject weights whose squared sums would exceed float64."""
        if not self.heaviest * float(seen) <= _HEAVIEST:
            raise ParameterError(
                f"{self.decay!r} weighs {self.heaviest} at age 0, and {seen} were counted; "
                f"expected a product of at most {_HEAVIEST:.3g}"
            )


class _Sum:
    """A layer's cells, added up."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._lo, self._hi, self._value = np.zeros((3, layer.depth, layer.width))
        self._rounded = False

    def take(self, cells: Cells, fading: _Fading, slack: float) -> None:
        """Add cells with this possible error."""
        if cells.clock is None:
            return
        ends = _decayed if fading.start is None else _window
        lo, hi, value = ends(cells, fading, slack)
        self._rounded |= slack > 0.0 or fading.start is None
        self._lo += lo
        self._hi += hi
        self._value += value

    def count(self, held: Held, fading: _Fading, seed: int) -> None:
        """Add events, exactly."""
        self._rounded |= fading.start is None
        counted = held.weights * fading.weigh_events(held.times)
        width = self._layer.width
        for row, columns in enumerate(columns_of(held.words, self._layer, seed)):
            summed = np.bincount(columns, counted, width)
            self._lo[row] += summed
            self._hi[row] += summed
            self._value[row] += summed

    def grid(self, seed: int, most: float) -> LayerGrid:
        """The sums, with guaranteed bounds. No cell contains more than the total."""
        lo, hi = self._lo, self._hi
        if self._rounded or float(hi.max(initial=0.0)) >= _EXACT:
            lo, hi = lo * (1.0 - _ROUNDING), hi * (1.0 + _ROUNDING)
        hi = np.minimum(hi, most)
        value = np.minimum(np.maximum(self._value, lo), hi)
        for cells in (lo, hi, value):
            cells.setflags(write=False)
        return LayerGrid(self._layer, seed, lo, hi, value)


def _window(
    cells: Cells, fading: _Fading, slack: float
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Counts of the times from the start of the window to now."""
    assert fading.start is not None
    lo, hi = _slackened(*cells.grid(fading.start), slack)
    value = cells.values(fading.start)
    if cells.clock is None or cells.clock <= fading.now:
        return lo, hi, value
    # Less those after now. Each of both counts may be off by the slack: not their difference alone.
    later_lo, later_hi = _slackened(*cells.grid(fading.now + 1), slack)
    value = value - cells.values(fading.now + 1)
    return np.maximum(lo - later_hi, 0.0), hi - later_lo, value


def _slackened(lo: Any, hi: Any, slack: float) -> tuple[Float64Array, Float64Array]:
    """Bounds on counts from cells with this possible error."""
    lo, hi = lo.astype(np.float64), hi.astype(np.float64)
    if slack < 1.0:
        return lo / (1.0 + slack), hi / (1.0 - slack)
    return lo / (1.0 + slack), np.where(hi > 0.0, np.inf, 0.0)


def _decayed(
    cells: Cells, fading: _Fading, slack: float
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Decayed counts. The value is the middle, if that is no further from either bound than the
    relative error of a cell allows. Before the clock, nothing bounds that error.
    """
    lo, hi = cells.decayed(fading.weigh, fading.now)
    value = 0.5 * (lo + hi)
    if cells.clock is None or cells.clock <= fading.now:
        error = cell_error(cells.kind, cells.layer.slots)
        value = np.minimum(np.maximum(value, (1.0 - error) * hi), (1.0 + error) * lo)
        return *_slackened(lo, hi, slack), value
    if not slack:
        return lo, hi, value
    # A decayed count is a sum of windows up to the clock, less all after now at the weight of age
    # 0. Both may be off by the slack. In the difference, the slack of the part after now remains.
    _, most = _slackened(*cells.grid(fading.now + 1), slack)
    beyond = fading.heaviest * (most - (1.0 - slack) / (1.0 + slack) * most)
    beyond[np.isnan(beyond)] = np.inf
    lo, hi = _slackened(lo, hi, slack)
    return np.maximum(lo - beyond, 0.0), hi + beyond, value
