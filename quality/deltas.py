"""What a sensor saves by posting deltas: bytes, against posting its whole sketch each time.

    python -m quality.deltas

A sensor sees one stream of observations and posts after every so many of them, either a complete
sketch of those alone (a delta, as :class:`decaysketch.client.Sensor` does), or the sketch of
everything it ever saw. Both leave the aggregator with the same state. The last column says what a
general compressor would gain on the deltas: too little to be worth its time.
"""

from __future__ import annotations

import platform
import sys
import zlib
from dataclasses import dataclass

import numpy as np

import decaysketch as ds

__all__ = ["FLUSH_ROWS", "Saving", "measure", "table"]

FLUSH_ROWS = (10, 1_000, 20_000)
OBSERVATIONS = 200_000
PARAMS = ds.SketchParams(max_weight=1, id_bits=40, capacity=4_000, seed=1, time_unit="ms")


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes of the posts of one flush size.

    Attributes:
        flush_rows: observations between two posts.
        posts: how many posts there were.
        delta_bytes: of all posts, as deltas.
        whole_bytes: of all posts, as whole sketches (of a tenth of them, spread evenly, times ten,
            where there are more than 2,000).
        deflated_bytes: of the deltas after zlib.
    """

    flush_rows: int
    posts: int
    delta_bytes: int
    whole_bytes: int
    deflated_bytes: int


def measure(flush_rows: int, observations: int = OBSERVATIONS) -> Saving:
    """Feed one stream and add up the posts; checks that both ways end in the same bytes."""
    draw = np.random.default_rng(1)
    times = np.arange(observations) * 100 + draw.integers(-2_000, 2_000, observations)
    values = np.round(draw.normal(20, 5, observations), 1)
    whole, joined = ds.DecaySketch(PARAMS), ds.DecaySketch(PARAMS)
    starts = range(0, observations, flush_rows)
    stride = 10 if len(starts) > 2_000 else 1
    delta_bytes = whole_bytes = deflated_bytes = 0
    for post, start in enumerate(starts):
        some = slice(start, start + flush_rows)
        columns = values[some], 1, times[some], np.arange(observations)[some]
        delta = ds.DecaySketch(PARAMS)
        delta.update(*columns)
        blob = delta.to_bytes()
        delta_bytes += len(blob)
        deflated_bytes += len(zlib.compress(blob))
        joined.merge(delta)
        whole.update(*columns)
        if post % stride == 0:
            whole_bytes += stride * len(whole.to_bytes())
    assert joined.to_bytes() == whole.to_bytes()
    return Saving(flush_rows, len(starts), delta_bytes, whole_bytes, deflated_bytes)


def table(observations: int = OBSERVATIONS) -> str:
    """The savings of each flush size, as lines of text."""
    lines = [
        f"{observations:,} observations, capacity {PARAMS.capacity:,}; bytes for each post",
        f"{'rows a post':>12}{'posts':>8}{'delta':>12}{'whole':>12}{'whole/delta':>13}{'zlib':>8}",
    ]
    for rows in FLUSH_ROWS:
        saving = measure(rows, observations)
        lines.append(
            f"{rows:>12,}{saving.posts:>8,}{saving.delta_bytes / saving.posts:>12,.0f}"
            f"{saving.whole_bytes / saving.posts:>12,.0f}"
            f"{saving.whole_bytes / saving.delta_bytes:>13.1f}"
            f"{saving.deflated_bytes / saving.delta_bytes:>8.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\nPython {platform.python_version()}, NumPy {np.__version__}\n")
