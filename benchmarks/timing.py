"""Clocks.

Of repetitions the best is reported together with the median: on a machine that others use as well,
the best is the nearer to what the code costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Timing", "clock", "processor_seconds_of", "seconds_of", "summary"]


class Timing(NamedTuple):
    """Seconds of one call: best and median of the repetitions."""

    best: float
    median: float


def seconds_of(action: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def processor_seconds_of(action: Callable[[], object]) -> float:
    """Seconds of processor time that one call takes; what else runs on the machine is left out."""
    start = time.process_time()
    action()
    return time.process_time() - start


def summary(seconds: Sequence[float]) -> Timing:
    """Best and median of some repetitions."""
    return Timing(min(seconds), statistics.median(seconds))


def clock(action: Callable[[], object], repetitions: int) -> Timing:
    """Best and median of some calls."""
    return summary([seconds_of(action) for _ in range(repetitions)])
