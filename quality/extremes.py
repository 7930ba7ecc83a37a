"""How large a sketch of extremes is, and how many of its answers are exact.

    python -m quality.extremes [LOG.parquet ...]

Streams that were not chosen for it, of 300,000 readings, one about every second: values that fall
or rise as long as the stream lasts, walk, are heavy, log-uniform, spikes of three sizes, noise, and
noise that ends long before a last reading. Then logs, with columns ``event_us`` (or ``ts``) and
``value`` (or ``temp``); unless named, those of ``../shared/data``, skipped where that folder is
absent. Times are microseconds.

For each: the rows that no later one rules out, which a sketch without spans would hold (most of
highs or lows); rows, bytes and exact answers of sketches of two capacities, over 400 windows that
end with the stream and whose widths are log-uniform from a second on, a highest and a lowest each;
and, where answers are not exact, the widest interval over the range of all values. Every interval
is compared with the values themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

import decaysketch as ds
from decaysketch.extremes import ExtremesParams, ExtremesSketch

__all__ = ["main", "measured", "streams"]

CAPACITIES: Final = (64, 512)
WINDOWS: Final = 400
SECOND: Final = 1_000_000
BEGINS: Final = 1_700_000_000 * SECOND

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_FOLDER: Final = Path(__file__).resolve().parents[2] / "shared" / "data"
_LOGS: Final = (
    "deliveries/ble_set2", "deliveries/lorawan_tourperret", "deliveries/ooo_umts_d1",
    "deliveries/wifi_two_receivers", "plain/beijing_air", "plain/nab_real",
)  # fmt: skip
_COLUMNS: Final = (("event_us", "value"), ("ts", "temp"), ("ts", "value"))


def streams(rows: int = 300_000, seed: int = 0) -> Iterator[tuple[str, Int64Array, Float64Array]]:
    """Name, times and values of each."""
    rng = np.random.default_rng(seed)
    times = BEGINS + np.cumsum(rng.integers(1, 2 * SECOND, rows))
    noise = rng.normal(size=rows)
    old = times.copy()
    old[-1] += 10 * (times[-1] - times[0])
    yield "falls", times, -np.arange(rows) / 3.0
    yield "rises", times, np.arange(rows) / 3.0
    yield "walks", times, np.cumsum(noise)
    yield "heavy", times, rng.pareto(1.1, rows)
    yield "log-uniform", times, np.exp(rng.uniform(-9, 9, rows))
    yield (
        "spikes",
        times,
        np.where(rng.random(rows) < 1e-3, rng.choice([5e2, 5e3, 5e4], rows), noise),
    )
    yield "noise", times, noise
    yield "old", old, noise


def logs(paths: list[Path]) -> Iterator[tuple[str, Int64Array, Float64Array]]:
    """The same of Parquet files."""
    for path in paths:
        names = pq.read_schema(path).names
        time, value = next(pair for pair in _COLUMNS if set(pair) <= set(names))
        table = pq.read_table(path, columns=[time, value])
        if table.schema.field(time).type not in ("int64",):
            moments = pc.cast(table[time], "timestamp[us]")
            table = table.set_column(0, time, pc.cast(moments, "int64"))
        table = table.filter(pc.is_finite(pc.cast(table[value], "float64"))).drop_null()
        yield path.stem, table[time].to_numpy(), table[value].to_numpy().astype(np.float64)


def measured(times: Int64Array, values: Float64Array, capacity: int) -> tuple[int, int, int, float]:
    """Rows, bytes, exact answers of 100, and the widest interval over the range of values.

    Raises:
        AssertionError: an interval that does not hold the answer.
    """
    sketch = ExtremesSketch(ExtremesParams(capacity=capacity, time_unit="us"))
    sketch.update(values, 1, times)
    newest = int(times.max())
    span = max(newest - int(times.min()), SECOND + 1)
    spread = float(np.ptp(values)) or 1.0
    exact, widest = 0, 0.0
    for width in np.geomspace(SECOND, span, WINDOWS).astype(np.int64).tolist():
        inside, window = values[times >= newest - width], ds.decay.window(width)
        for found, truth in (
            (sketch.max(window), inside.max()),
            (sketch.min(window), inside.min()),
        ):
            assert found.lower <= truth <= found.upper, (width, found, truth)
            exact += found.exact
            widest = max(widest, (found.upper - found.lower) / spread)
    return len(sketch), len(sketch.to_bytes()), 100 * exact // (2 * WINDOWS), widest


def ruled_out_by_none(times: Int64Array, values: Float64Array) -> int:
    """Highs or lows, whichever are more, where spans are not looked at."""
    order = np.lexsort((values, times))[::-1]
    found = []
    for best, column in ((np.maximum, values[order]), (np.minimum, values[order])):
        record = best.accumulate(column)
        found.append(1 + int(np.count_nonzero(record[1:] != record[:-1])))
    return max(found)


def main(arguments: list[str] | None = None) -> int:
    """Print a row for each stream; returns the exit status."""
    named = [Path(each) for each in (sys.argv[1:] if arguments is None else arguments)]
    files = named or [_FOLDER / f"{name}.parquet" for name in _LOGS]
    present = [path for path in files if path.exists()]
    if absent := len(files) - len(present):
        print(f"{absent} logs are absent and left out")
    sizes = " | ".join(f"{c}: rows, bytes, exact, widest" for c in CAPACITIES)
    print(f"| stream | readings | ruled out by none | {sizes} |")
    print("|---|---|---|" + "---|" * len(CAPACITIES))
    for source in (streams(), logs(present)):
        for name, times, values in source:
            cells = []
            for capacity in CAPACITIES:
                rows, size, exact, widest = measured(times, values, capacity)
                cells.append(f"{rows:,}, {size:,} B, {exact} %, {100 * widest:.2g} %")
            most = ruled_out_by_none(times, values)
            print(f"| {name} | {len(times):,} | {most:,} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
