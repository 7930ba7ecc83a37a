"""``python -m quality.states``: a digest of the bytes of many sketches, built at random.

What a sketch's bytes are is a function of its observations alone, so this digest is the same for
every release, processor and level of instruction set (``DECAYSKETCH_LEVEL``): run it in two
environments and compare. Each build draws parameters and a stream (in order or not, of equal times,
over a wide span, with copies and values missing), takes it in batches and one by one, splits it
over sketches that are merged, and reads every one of the bytes back. A few are refused: where
observations of one time are few ids with many weights each, chance does not explain what is left
(``querytime/wire.py``). Then the sentence is part of the digest.
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from rich.progress import track

import decaysketch as ds
from decaysketch import decay
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.errors import CorruptSketchError
from decaysketch.tables import ColumnMapping, sketches_by_key

__all__ = ["main"]

_MOST_ROWS = 3_000
_WEIGHTS = 30  # that are drawn; more than 32 of one id are not believed when bytes are read
_REFUSED = b"refused: "


def _times(draw: np.random.Generator, rows: int) -> Any:
    span = int(2 ** draw.uniform(0, 61))
    times = draw.integers(-span, span, rows)
    match draw.integers(6):
        case 0:
            times = np.sort(times)
        case 1:
            times = -np.sort(times)
        case 2:
            times[:] = times[0]
        case 3:  # long runs of equal times
            times = times[draw.integers(0, max(1, rows // 50), rows)]
        case 4:  # nearly in order, as a log is
            times = np.sort(times) - draw.integers(0, max(1, span // rows), rows)
        case _:
            pass
    return times


def _rows(draw: np.random.Generator, most: int) -> int:
    return int(np.exp(draw.uniform(0, np.log(most))))


def _values(draw: np.random.Generator, rows: int, value_type: str) -> Any:
    if value_type == "int64":
        return draw.integers(-(1 << 40), 1 << 40, rows)
    values = draw.normal(0, 10.0 ** draw.integers(-3, 12), rows)
    return values if draw.integers(2) else np.round(values, int(draw.integers(0, 6)))


def _params(draw: np.random.Generator) -> ds.SketchParams:
    id_bits = int(draw.integers(4, 49))
    weight_bits = draw.uniform(0, min(24, 55 - id_bits))
    return ds.SketchParams(
        max_weight=int(2**weight_bits),
        id_bits=id_bits,
        capacity=int(2 ** draw.uniform(0, 11)),
        seed=int(draw.integers(1 << 40)),
        value_type="int64" if draw.integers(4) == 0 else "float64",
        id_mix="none" if draw.integers(4) == 0 else "keyed",
    )


def _columns(draw: np.random.Generator, params: ds.SketchParams, rows: int) -> list[Any]:
    different = _rows(draw, 1 << min(params.id_bits, 20))
    ids = draw.integers(0, 1 << params.id_bits, different)[draw.integers(0, different, rows)]
    weights = draw.integers(1, params.max_weight + 1, _WEIGHTS)[draw.integers(0, _WEIGHTS, rows)]
    return [_values(draw, rows, params.value_type), weights, _times(draw, rows), ids]


def _fed(draw: np.random.Generator, empty: Callable[[], Any], columns: list[Any]) -> list[Any]:
    """Sketches that took the rows between them, in pieces of any length."""
    sketches = [empty() for _ in range(draw.integers(1, 5))]
    start, rows = 0, len(columns[0])
    while start < rows:
        sketch = sketches[draw.integers(len(sketches))]
        stop = start + _rows(draw, rows - start)
        if draw.integers(8) == 0:
            stop = min(start + 3, rows)
            for row in range(start, stop):
                sketch.update(*(column[row].item() for column in columns))
        else:
            sketch.update(*(column[start:stop] for column in columns))
        start = stop
    return sketches


def _bytes(sketches: list[Any]) -> list[bytes]:
    """Of each and of their merged state, which are read back; behind them, why some cannot be."""
    merged = sketches[0].copy()
    for sketch in sketches[1:]:
        merged.merge(sketch)
    blobs = [each.to_bytes() for each in (*sketches, merged)]
    refusals = []
    for blob in blobs:
        try:
            again = type(merged).from_bytes(blob).to_bytes()
        except CorruptSketchError as refusal:
            refusals.append(_REFUSED + str(refusal).encode())
        else:
            if again != blob:
                raise AssertionError("what was read has other bytes than were read")
    return blobs + refusals


def _query_time(draw: np.random.Generator) -> list[bytes]:
    params = _params(draw)
    columns = _columns(draw, params, _rows(draw, _MOST_ROWS))
    return _bytes(_fed(draw, lambda: ds.DecaySketch(params), columns))


def _integral(draw: np.random.Generator) -> list[bytes]:
    params = _params(draw)
    chosen: Any = decay.integral.window(int(draw.integers(1, 10_000)))
    if params.max_weight < 1_000 and draw.integers(3):
        chosen = decay.integral.exponential(half_life=int(draw.integers(1, 300)))
    columns = _columns(draw, params, _rows(draw, _MOST_ROWS))
    return _bytes(_fed(draw, lambda: ds.IntegralDecaySketch(params, chosen), columns))


def _sums(draw: np.random.Generator) -> list[bytes]:
    capacity, seed = int(2 ** draw.uniform(0, 8)), int(draw.integers(1 << 40))
    params = SumParams(capacity=capacity, max_sum=int(2 ** draw.uniform(10, 50)), seed=seed)
    largest = min(1_000, params.max_sum)
    return _sampled(draw, SumSampler, params, lambda rows: draw.integers(0, largest, rows))


def _medians(draw: np.random.Generator) -> list[bytes]:
    capacity, seed = int(2 ** draw.uniform(3, 8)), int(draw.integers(1 << 40))
    params = MedianParams(capacity=capacity, max_count=int(2 ** draw.uniform(10, 50)), seed=seed)
    return _sampled(draw, MedianSampler, params, lambda rows: _values(draw, rows, "float64"))


def _sampled(
    draw: np.random.Generator, sampler: Any, params: Any, values: Callable[[int], Any]
) -> list[bytes]:
    rows = _rows(draw, _MOST_ROWS)
    times = np.abs(_times(draw, rows))
    sketches, start = [], 0
    for source in range(int(draw.integers(1, 5))):
        sketch, stop = sampler(params), start + _rows(draw, max(1, rows - start))
        stop = min(stop, rows)
        sketch.update(
            values(stop - start),
            times[start:stop],
            source=f"s{source}",
            sequence=range(stop - start),
        )
        sketches.append(sketch)
        start = stop
    return _bytes(sketches)


def _by_key(draw: np.random.Generator) -> list[bytes]:
    params = _params(draw)
    rows = _rows(draw, _MOST_ROWS)
    value, weight, time, id_ = _columns(draw, params, rows)
    key = draw.integers(0, _rows(draw, 200), rows)
    log = pa.table({"key": key, "value": value, "weight": weight, "time": time, "id": id_})
    mapping = ColumnMapping(time="time", ids=("id",), value="value", weight="weight")
    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # of times so far apart
        sketches = sketches_by_key(log, params, mapping, ["key"])
    return [sketches[each].to_bytes() for each in sorted(sketches)]


_KINDS = {
    "query time": _query_time,
    "integral": _integral,
    "sum sampler": _sums,
    "median sampler": _medians,
    "many keys": _by_key,
}


def digest(
    build: Callable[[np.random.Generator], list[bytes]], builds: int, seed: int
) -> tuple[str, int]:
    """One digest of the bytes of so many builds, and how many of them were refused."""
    hashed, refused = hashlib.sha256(), 0
    for number in track(range(builds), build.__name__.strip("_"), transient=True):
        for blob in build(np.random.default_rng((seed, number))):
            hashed.update(len(blob).to_bytes(8, "little"))
            hashed.update(blob)
            refused += blob.startswith(_REFUSED)
    return hashed.hexdigest(), refused


def main(arguments: list[str] | None = None) -> None:
    """Print a digest for each kind of sketch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--builds", type=int, default=2_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    for kind, build in _KINDS.items():
        hashed, refused = digest(build, options.builds, options.seed)
        print(f"{kind:15} {hashed}  {refused} refused", flush=True)


if __name__ == "__main__":
    main()
