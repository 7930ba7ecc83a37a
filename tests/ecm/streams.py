"""Streams of one cell: times in order, of laws that are hard on it."""

from __future__ import annotations

import random

LAWS = ("steady", "heavy", "log-uniform", "spiky", "old")


def times_of(law: str, n: int, rng: random.Random) -> list[int]:
    """``n`` times that do not fall.

    ``steady``: gaps of a few units. ``heavy``: gaps of a Pareto law without a mean.
    ``log-uniform``: ages from one unit to 2^40. ``spiky``: few times, many ones at each. ``old``:
    nearly all long ago, a handful recently.
    """
    if law == "steady":
        gaps = [rng.choice((0, 1, 1, 2, 5)) for _ in range(n)]
    elif law == "heavy":
        gaps = [int(rng.paretovariate(0.7)) - 1 for _ in range(n)]
    elif law == "log-uniform":
        now = 1 << 40
        return sorted(now - int(2 ** rng.uniform(0, 40)) for _ in range(n))
    elif law == "spiky":
        moments = sorted(rng.randrange(1_000) for _ in range(max(1, n // 40)))
        return sorted(rng.choice(moments) for _ in range(n))
    else:
        recent = min(n, rng.randrange(1, 8))
        return sorted(
            [rng.randrange(50) for _ in range(n - recent)]
            + [10**6 + rng.randrange(50) for _ in range(recent)]
        )
    times, clock = [], rng.randrange(-100, 100)
    for gap in gaps:
        clock += gap
        times.append(clock)
    return times


def starts_of(times: list[int], count: int, rng: random.Random) -> list[int]:
    """Starts of windows: at times of ones, just beside them, and anywhere."""
    low, high = times[0] - 2, times[-1] + 3
    return [
        rng.choice(times) + rng.choice((-1, 0, 0, 1))
        if rng.random() < 0.6
        else rng.randrange(low, high)
        for _ in range(count)
    ]
