"""Bytes and error with ids of the fewest bits, beside the default.

    python -m quality.short_ids [--seeds 40] [--capacity 3074] [--logs ble wifi ...]

Logs of ``../shared/data``, cut to 400,000 messages. Each message has a hashed key. *default* is
``SketchParams()``, *short* has ``expected`` with the number of messages, and *equal* has the same
ids and the capacity at which its bytes equal the default's. Errors are relative root-mean-square
errors of the count under a half-life of an eighth of the log, and of the median value's rank there.
*Bias* is the share of observations that collisions lose, as stated with each result and as counted.
A log that is absent is skipped.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

import decaysketch as ds

__all__ = ["LOGS", "main", "measured"]

_DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
_ROWS = 400_000

#: File, time column, units of it in a second, value column.
LOGS = {
    "ble": ("deliveries/ble_set2.parquet", "event_us", 1_000_000, "value"),
    "wifi": ("deliveries/wifi_two_receivers.parquet", "event_us", 1_000_000, "value"),
    "flights": ("plain/flights3m.parquet", "sched_min", 1, "delay_min"),
    "air": ("plain/beijing_air.parquet", "ts", 1_000_000, "temp"),
    "nab": ("plain/nab_real.parquet", "ts", 1_000_000, "value"),
}


class Log(NamedTuple):
    """Times in seconds, or in minutes, and values."""

    times: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


class Measured(NamedTuple):
    """Means over the seeds."""

    capacity: int
    id_bits: int
    row_bytes: float
    size: float
    count_error: float
    rank_error: float
    bias: float
    lost: float


def log_of(name: str) -> Log | None:
    """Return a log, or None if it is absent."""
    file, time, unit, value = LOGS[name]
    if not (_DATA / file).is_file():
        return None
    table = pq.read_table(_DATA / file, columns=[time, value]).slice(0, _ROWS)
    times = table[time].to_numpy(zero_copy_only=False).astype(np.int64) // unit
    values = table[value].to_numpy(zero_copy_only=False)
    single = values.dtype == np.float32  # of decimals, which float64 would not show
    values = np.round(values.astype(np.float64), 3) if single else values.astype(np.float64)
    kept = np.isfinite(values)
    return Log(times[kept], values[kept])


def measured(log: Log, params: ds.SketchParams, seeds: int) -> Measured:
    """Build a sketch per seed, and compare with the truth."""
    now = int(log.times.max())
    half_life = max(1, int(np.ptp(log.times)) // 8)
    decay = ds.decay.exponential(half_life=half_life)
    g = 0.5 ** ((now - log.times) / half_life)
    middle = float(np.median(log.values))
    rank = float(g[log.values <= middle].sum() / g.sum())
    found = []
    for seed in range(seeds):
        sketch = ds.DecaySketch(replace(params, seed=seed))
        ids = ds.observation_ids(np.arange(len(log.times)), params=sketch.params)
        sketch.update(log.values, 1, log.times, ids)
        view = sketch.at(decay, now)
        count, at = view.ask("count"), view.ask("rank", value=middle)
        size = len(sketch.to_bytes())
        lost = 1.0 - len(np.unique(ids)) / len(ids)
        found.append(
            (size / len(sketch), size, count.value / g.sum() - 1.0, at.value - rank,
             count.collision_bias, lost)
        )  # fmt: skip
    row, size, count, at, bias, lost = np.array(found).T
    rms = [float(np.sqrt(np.mean(np.square(each)))) for each in (count, at)]
    return Measured(
        params.capacity,
        params.id_bits,
        row.mean(),
        size.mean(),
        rms[0],
        rms[1],
        bias.mean(),
        lost.mean(),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(prog="python -m quality.short_ids", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--capacity", type=int, default=3074)
    parser.add_argument("--logs", nargs="+", default=list(LOGS))
    options = parser.parse_args(arguments)
    for name in options.logs:
        log = log_of(name)
        if log is None:
            print(f"{name}: absent, skipped")
            continue
        default = ds.SketchParams(capacity=options.capacity)
        short = ds.SketchParams(capacity=options.capacity, expected=len(log.times))
        before = measured(log, default, options.seeds)
        after = measured(log, short, options.seeds)
        equal, size = short, after.size
        for _ in range(2):
            equal = equal.with_capacity(round(equal.capacity * before.size / size))
            size = measured(log, equal, 1).size
        for kind, each in (
            ("default", before), ("short", after),
            ("equal", measured(log, equal, options.seeds)),
        ):  # fmt: skip
            print(
                f"{name:8} {kind:8} capacity {each.capacity:6} id bits {each.id_bits:3} "
                f"{each.row_bytes:5.2f} B a row {each.size:9.0f} B "
                f"count {100 * each.count_error:5.2f} % rank {100 * each.rank_error:5.2f} points "
                f"bias {100 * each.bias:.4f} % counted {100 * each.lost:.4f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
