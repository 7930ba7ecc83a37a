"""How large the error of a sketch of some capacity is at worst: the constants of its size.

    python -m quality.sizing [--hashes N]

The variance of an estimate is about ``kappa / capacity`` whatever the stream; this measures
``kappa``, the capacity times the mean squared error over many hashes (relative error for sums of
weights, error itself for shares), in a grid of cells and prints the worst of each kind of stream:

* observations one at a time, asked by windows that hold 1.1 to 30 capacities, by exponential and by
  polynomial decay; or 32 to 64 capacities of them all at one time, where a level holds half a
  capacity if the one below it just overflows;
* weights 1, 1..999, or Pareto up to 10^6;
* shares of: a random tenth, third, half of the observations, the older part of the decayed weight,
  the heavier observations.

Then it asks sketches of the sizes that ``SketchParams.for_accuracy`` gives how often they are off
by more than ``epsilon``, in the worst cell. Each hash has a stream of its own, both fixed by their
number.

With 300 hashes of a cell, the default, ``kappa`` has a standard error of 8 %; the largest of many
cells is therefore a little too large.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import decaysketch as ds
from decaysketch import minhit
from decaysketch.core import sizing
from decaysketch.core.observations import decode_values
from decaysketch.querytime.state import SketchState

HASHES = 300
WEIGHTS = ("1", "1..999", "Pareto")
TIMES = ("separate", "one")
CAPACITIES = (100, 400)
SPAN = 30  # capacities of observations, one at a time
MAX_WEIGHT = {"1": 1, "1..999": 999, "Pareto": 1_000_000}
OLDER = (0.25, 0.5, 0.75)
RANDOM = (0.1, 1 / 3, 0.5)


class Cell(NamedTuple):
    """A question: stream, decay, and whether a sum (None) or the share of what."""

    stream: str
    decay: str
    share: str | None


class Stream(NamedTuple):
    """Distinct observations, latest first."""

    weights: Any
    times: Any
    ids: Any


def make_stream(rng: np.random.Generator, weights: str, times: str, rows: int) -> Stream:
    """A stream by named laws."""
    if weights == "Pareto":
        column = np.minimum(1.0 / rng.random(rows), MAX_WEIGHT[weights]).astype(np.int64)
    else:
        column = rng.integers(1, MAX_WEIGHT[weights] + 1, rows)
    clock = np.zeros(rows, np.int64) if times == "one" else -np.arange(rows)
    return Stream(column, clock, rng.permutation(rows) << 8 | rng.integers(0, 256, rows))


def decays(times: str, capacity: int) -> dict[str, ds.Decay]:
    """Decays that weigh from one to all capacities of observations."""
    if times == "one":
        return {"none": ds.decay.none()}
    found: dict[str, ds.Decay] = {}
    for held in np.geomspace(1.1, SPAN, 12):
        found[f"window of {held:.3g} capacities"] = ds.decay.window(int(held * capacity) - 1)
    for held in (0.5, 2, 8):
        found[f"half-life of {held} capacities"] = ds.decay.exponential(half_life=held * capacity)
    found["polynomial 1"] = ds.decay.polynomial(1, scale=capacity)
    return found


def rows_of(times: str, capacity: int) -> list[int]:
    """Lengths of the streams."""
    if times == "separate":
        return [SPAN * capacity]
    octave = np.geomspace(32 * capacity, 64 * capacity, 6, endpoint=False)
    return [int(rows) for rows in octave]  # levels repeat from octave to octave


def parts(stream: Stream, decayed: Any) -> dict[str, Any]:
    """Whether each observation belongs to the part whose share is asked."""
    found = {f"random {share:.2g}": stream.ids % 256 < 256 * share for share in RANDOM}
    below = np.cumsum((decayed * stream.weights)[::-1])[::-1]  # weight of this and older ones
    for share in OLDER:
        found[f"oldest {share:.2g}"] = below <= share * below[0]
    found["heavier half"] = stream.weights > np.median(stream.weights)
    return found


def errors(capacity: int, weights: str, times: str, hashes: int) -> Iterator[tuple[Cell, float]]:
    """The error of each cell, relative for sums, under one hash after the other."""
    for rows, number in product(rows_of(times, capacity), range(hashes)):
        rng = np.random.default_rng([capacity, rows, number])
        stream = make_stream(rng, weights, times, rows)
        params = ds.SketchParams(
            max_weight=MAX_WEIGHT[weights], id_bits=30, capacity=capacity, seed=number
        )
        sketch = ds.DecaySketch(params)
        sketch.update(np.arange(rows, dtype=np.float64), *stream)
        row, units = units_of(sketch.state())
        name = f"weights {weights}, times {times}"
        name += f", {rows / capacity:.3g} capacities" if times == "one" else ""
        for law, decay in decays(times, capacity).items():
            decayed = decay(-stream.times)
            truth, masses = decayed * stream.weights, decayed[row] * units
            whole, mass = float(truth.sum()), float(masses.sum())
            yield Cell(name, law, None), mass / whole - 1.0
            for part, belongs in parts(stream, decayed).items():
                share = float(masses[belongs[row]].sum()) / mass
                yield Cell(name, law, part), share - float(truth[belongs].sum()) / whole


def units_of(state: SketchState) -> tuple[Any, Any]:
    """The observation that each row is, by its number in the stream, and its estimated weight.

    What ``stratified.bands_of`` does, without the variances, which would take most of the time.
    """
    passed = np.searchsorted(state.watermarks[::-1], state.times, side="left")
    bands = (len(state.watermarks) - passed).astype(np.int8)
    hits = minhit.range_samples(state.params, state.ids, state.weights, bands)
    rows = decode_values(state.value_keys, "float64")[0].astype(np.int64)
    return rows, hits / state.params.level_probabilities[bands]


class Tally:
    """Errors by cell."""

    def __init__(self) -> None:
        self.found: dict[Cell, list[float]] = {}

    def add(self, cell: Cell, error: float) -> None:
        self.found.setdefault(cell, []).append(error)

    def worst(self, shares: bool, measure: Any) -> tuple[float, Cell]:
        """The cell of sums, or of shares, whose errors measure most."""
        cells = [cell for cell in self.found if (cell.share is not None) == shares]
        return max((float(measure(np.array(self.found[cell]))), cell) for cell in cells)


def constants(hashes: int) -> None:
    """Print the worst kappa for each capacity and kind of stream."""
    print("kappa = capacity x mean squared error, worst cell")
    worst: dict[sizing.Aggregate, float] = {"sum": 0.0, "share": 0.0}
    for capacity, times, weights in product(CAPACITIES, TIMES, WEIGHTS):
        tally = Tally()
        for cell, error in errors(capacity, weights, times, hashes):
            tally.add(cell, error)
        for kind in worst:
            kappa, cell = tally.worst(kind == "share", lambda e: np.mean(e * e))
            kappa *= capacity
            worst[kind] = max(worst[kind], kappa)
            where = f"{cell.stream}, {cell.decay}" + (f", {cell.share}" if cell.share else "")
            print(f"  {kind:5} capacity {capacity:3}: {kappa:6.3f}  ({where})", flush=True)
    for kind, kappa in worst.items():
        print(f"worst of {kind}: {kappa:.3f}; in use: {sizing.KAPPA[kind]:g}")


def promises(hashes: int) -> None:
    """Print how often sketches of the sizes that are given for an accuracy miss it."""
    print("share of answers off by more than epsilon, worst cell")
    asked: tuple[tuple[sizing.Aggregate, float, float], ...] = (
        ("sum", 0.2, 0.05),
        ("sum", 0.1, 0.05),
        ("sum", 0.1, 0.2),
        ("sum", 0.2, 0.01),
        ("share", 0.1, 0.05),
        ("share", 0.05, 0.05),
        ("share", 0.1, 0.01),
    )
    for aggregate, epsilon, delta in asked:
        size = sizing.size_for(
            epsilon,
            delta,
            max_weight=999,
            expected=1,
            aggregate=aggregate,
        )
        tally = Tally()
        for times, weights in product(TIMES, WEIGHTS):
            for cell, error in errors(size.capacity, weights, times, hashes):
                tally.add(cell, error)
        missed, cell = tally.worst(
            aggregate == "share", lambda e, limit=epsilon: np.mean(np.abs(e) > limit)
        )
        spread = math.sqrt(delta * (1 - delta) / hashes)
        where = f"{cell.stream}, {cell.decay}" + (f", {cell.share}" if cell.share else "")
        print(
            f"  {aggregate:5} epsilon {epsilon:4} delta {delta:4} capacity {size.capacity:4}: "
            f"{missed:.4f} +- {spread:.4f}  ({where})",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m quality.sizing", description=__doc__)
    parser.add_argument(
        "--hashes", type=int, default=HASHES, help="of each cell (default: %(default)s)"
    )
    options = parser.parse_args()
    print(
        f"decaysketch {ds.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}, {options.hashes} hashes"
    )
    start = time.perf_counter()
    constants(options.hashes)
    promises(options.hashes)
    print(f"sizing: {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
