"""``python -m examples.frame``: readings of machines in a frame, some of them twice.

How warm is each machine now, and how much warmer than two hours ago? Each has a sketch
of its own, whatever the frame is of: pandas here, polars, DuckDB and Arrow alike.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import decaysketch as ds

__all__ = ["main"]

_HOURS, _PER_HOUR = 6, 6000


def readings() -> pd.DataFrame:
    """Of three machines, a third of them twice; the second gets warmer in the last hour."""
    draw = np.random.default_rng(1)
    rows = _HOURS * _PER_HOUR
    begin = pd.Timestamp("2026-06-01 06:00", tz="Europe/Berlin")
    frames = []
    for machine in ("press", "mill", "saw"):
        celsius = draw.normal(40, 3, rows)
        if machine == "mill":
            celsius[-_PER_HOUR:] += 8
        at = begin + pd.to_timedelta(np.arange(rows) * 3600 / _PER_HOUR, unit="s")
        frames.append(
            pd.DataFrame({"machine": machine, "seq": range(rows), "at": at, "celsius": celsius})
        )
    once = pd.concat(frames)
    return pd.concat([once, once.sample(frac=1 / 3, random_state=2)]).sample(frac=1, random_state=3)


def main() -> None:
    """Print what each machine is like."""
    frame = readings()
    print(f"{len(frame):,} deliveries of {3 * _HOURS * _PER_HOUR:,} readings")
    for machine, rows in frame.groupby("machine"):
        sketch = ds.DecaySketch.from_frame(
            rows, value="celsius", time="at", id=["machine", "seq"], accuracy=0.05
        )
        now = sketch.snapshot().latest
        fresh = ds.decay.parse("exponential(half_life=20min)", sketch.params.time_unit)
        earlier = now - int(ds.duration("2h", sketch.params.time_unit))
        mean = sketch.mean(fresh, now=now)
        change = sketch.compare("mean", now=(fresh, now), then=(fresh, earlier))
        print(
            f"{machine:5s} {mean.value:5.1f} °C ({mean.lower:.1f} to {mean.upper:.1f}), "
            f"{change.value:+5.1f} against two hours ago "
            f"({change.lower:+.1f} to {change.upper:+.1f})"
        )


if __name__ == "__main__":
    main()
