"""Streams that the ECM-sketch is tried on: two real logs, and a stand-in for that of the paper.

``flights``: arrivals of three million flights, keyed by the pair of airports, in minutes: flat.
``wifi``: probe requests that two receivers heard, keyed by device, in tenths of a second: skewed.
Both are read from ``../shared/data``; where that folder is absent they are skipped.

``zipf``: a *stand-in* for the log of the world cup of 1998, which the paper has (1.089 billion
requests, 92 days, keyed by page) and we do not. It is drawn: a hundredth of the requests over as
many seconds, 90,000 keys whose shares fall as 1 / rank, more by day than by night and on some days
than on others. What is measured on it says how a log of that size and skew behaves, not what the
paper measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["FEWEST", "FOLDER", "LOGS", "Log", "load"]

FOLDER: Final = Path(__file__).resolve().parents[3] / "shared" / "data"

Int64Array = npt.NDArray[np.int64]

FEWEST: Final = 100  # events of a window

_DAY: Final = 86_400
_DAYS: Final = 92
_ZIPF_KEYS: Final = 90_000
_ZIPF_EVENTS: Final = 10_890_000


@dataclass(frozen=True, eq=False)
class Log:
    """Events in order of time.

    Attributes:
        name: as in names of files.
        title: as in headings.
        unit: of times.
        keys: int64[n], codes from 0 on.
        times: int64[n], not falling.
        window: the longest that is asked about.
        paths: uint64[n], the keys as numbers whose prefixes name groups of keys, if there are any.
        path_bits: bits of ``paths``.
    """

    name: str
    title: str
    unit: str
    keys: Int64Array
    times: Int64Array
    window: int
    paths: npt.NDArray[np.uint64] | None = None
    path_bits: int = 0

    @property
    def now(self) -> int:
        """Time of the last event, when questions are asked."""
        return int(self.times[-1])

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """Powers of ten, and the longest: section 7.1 of the paper. Those that hold less than 100
        events are left out: where a log falls quiet, one event more or less is all there is."""
        ages = self.now - self.times[-FEWEST:]
        powers = (10**i for i in range(2, 19))
        return (*(width for width in powers if ages[0] <= width < self.window), self.window)

    def exact(self, window: int) -> Int64Array:
        """Events of each key at ages of 0 to ``window``: int64[keys]."""
        start = int(np.searchsorted(self.times, self.now - window))
        return np.bincount(self.keys[start:], minlength=int(self.keys.max()) + 1)

    def head(self, events: int) -> Log:
        """The first so many events, with the window cut to half of what they span."""
        keys, times = self.keys[:events], self.times[:events]
        window = min(self.window, int(times[-1] - times[0]) // 2)
        paths = None if self.paths is None else self.paths[:events]
        return Log(self.name, self.title, self.unit, keys, times, window, paths, self.path_bits)


def _flights(folder: Path) -> Log | None:
    table = _read(folder / "plain" / "flights3m.parquet", "sched_min", "origin", "destination")
    if table is None:
        return None
    times, origin, destination = table[0].to_numpy().astype(np.int64), *table[1:]
    order = np.argsort(times, kind="stable")
    pairs = _codes(origin) << 16 | _codes(destination)  # the first 16 bits are the origin
    keys = np.unique(pairs, return_inverse=True)[1]
    times = times[order]
    span = int(times[-1] - times[0])
    title = "flights by pair of airports"
    paths = pairs[order].astype(np.uint64)
    return Log("flights", title, "minutes", keys[order], times, span // 2, paths, 32)


def _wifi(folder: Path) -> Log | None:
    table = _read(folder / "deliveries" / "wifi_two_receivers.parquet", "arrival_us", "source")
    if table is None:
        return None
    arrival, source = table
    times = arrival.to_numpy().astype(np.int64) // 100_000
    order = np.argsort(times, kind="stable")
    keys = _codes(source)
    times = times[order]
    span = int(times[-1] - times[0])
    return Log(
        "wifi",
        "Wi-Fi probe requests by device",
        "tenths of a second",
        keys[order],
        times,
        span // 2,
        source.to_numpy().astype(np.uint64)[order],
        24,
    )


def _zipf(_folder: Path) -> Log:
    rng = np.random.default_rng(1998)
    hours = np.arange(_DAYS * 24)
    rate = (1.2 + np.sin(2 * np.pi * (hours % 24 - 9) / 24)) * np.repeat(
        rng.lognormal(0, 0.7, _DAYS), 24
    )
    per_second = np.repeat(rate / rate.sum() / 3600, 3600)
    times = np.repeat(np.arange(_DAYS * _DAY), rng.multinomial(_ZIPF_EVENTS, per_second))
    shares = np.cumsum(1.0 / np.arange(1, _ZIPF_KEYS + 1))
    keys = np.searchsorted(shares, rng.random(_ZIPF_EVENTS) * shares[-1])
    title = "drawn, Zipf, as a stand-in for wc'98"
    return Log("zipf", title, "seconds", keys, times, 2_000_000)


def _read(path: Path, *columns: str) -> list[Any] | None:
    if not path.exists():
        return None
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(columns))
    return [table[column].combine_chunks() for column in columns]


def _codes(column: Any) -> Int64Array:
    """A number for each text, in the order of their first rows."""
    codes: Int64Array = column.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


LOGS: Final[dict[str, Callable[[Path], Log | None]]] = {
    "flights": _flights,
    "wifi": _wifi,
    "zipf": _zipf,
}


def load(name: str, folder: Path = FOLDER) -> Log | None:
    """A log by name; None where its file is not on this machine."""
    return LOGS[name](folder)
