"""Streams of keys over sites, as arrivals and departures of a window.

Exact windowed counters stand for those of ECM-sketches: what is compared is protocols, and all see
the same. ``zipf``: keys of shares 1 / rank^1.1, drawn; every 1.25 windows another key becomes the
heaviest, and in every second such stretch a tenth of all events are of one key. ``flights``: by
airport of departure in the order of arrival, windows of a day, sites by destination; read from
``../shared/data``, and skipped where that is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quality.ecm.logs import FOLDER

__all__ = ["Move", "Stream", "flights", "zipf"]

Int64Array = npt.NDArray[np.int64]


class Move(NamedTuple):
    """A key enters the window at a site, or leaves it."""

    site: int
    key: int
    by: int  # 1 or -1
    counts: bool  # after the first window


@dataclass(frozen=True, eq=False)
class Stream:
    """Events in order of time.

    Attributes:
        name, title: as in names of files, as in headings.
        times: float64[m], not falling.
        keys, sites: int64[m].
        window: width, in the unit of times.
    """

    name: str
    title: str
    times: npt.NDArray[np.float64]
    keys: Int64Array
    sites: Int64Array
    window: float

    @property
    def counted(self) -> int:
        """Arrivals after the first window."""
        return int((self.times > self.times[0] + self.window).sum())

    @property
    def inside(self) -> int:
        """Events of the first window."""
        return len(self.times) - self.counted

    def moves(self) -> Iterator[Move]:
        """Arrivals and departures in order of time; of one time, departures first."""
        ends = self.times + self.window
        when = np.concatenate([self.times, ends])
        by = np.repeat([1, -1], len(self.times))
        order = np.lexsort((by, when))
        order = order[when[order] <= self.times[-1]]
        which = order % len(self.times)
        counts = when[order] > self.times[0] + self.window
        columns = (self.sites[which], self.keys[which], by[order], counts)
        yield from map(Move, *(column.tolist() for column in columns))

    def columns(self, depth: int, width: int, seed: int = 3) -> list[tuple[int, ...]]:
        """Cells of each key, as places in a flat list: a random one in each row."""
        drawn = np.random.default_rng(seed).integers(0, width, (int(self.keys.max()) + 1, depth))
        return [tuple(row) for row in (drawn + width * np.arange(depth)).tolist()]


def zipf(
    events: int, window: int, sites: int, *, keys: int = 10_000, seed: int = 5, shifts: bool = True
) -> Stream:
    """The drawn stream; without shifts, the same law all the time."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1.0 / np.arange(1, keys + 1) ** 1.1)
    drawn = np.searchsorted(shares, rng.random(events) * shares[-1])
    if shifts:
        stretch = np.arange(events) // max(1, 5 * window // 4)
        drawn = (drawn + 37 * stretch) % keys
        one = (stretch % 2 == 1) & (rng.random(events) < 0.1)
        drawn[one] = (91 * stretch[one]) % keys
    return Stream(
        "zipf", "drawn, Zipf 1.1 with shifts" if shifts else "drawn, Zipf 1.1",
        np.arange(events, dtype=np.float64), drawn, rng.integers(0, sites, events), float(window),
    )  # fmt: skip


def flights(events: int, sites: int, folder: Path = FOLDER) -> Stream | None:
    """Flights of the log's beginning; None where it is not on this machine."""
    path = folder / "plain" / "flights3m.parquet"
    if not path.exists():
        return None
    import pyarrow.parquet as pq

    names = ["sched_min", "delay_min", "origin", "destination"]
    table = pq.read_table(path, columns=names).slice(0, events)
    origin, destination = (
        np.unique(table[name].to_numpy(), return_inverse=True)[1].astype(np.int64)
        for name in names[2:]
    )
    delay = np.nan_to_num(table["delay_min"].to_numpy().astype(np.float64))
    times = table["sched_min"].to_numpy().astype(np.float64) + delay
    order = np.argsort(times, kind="stable")
    return Stream(
        "flights", "flights by airport of departure, a day", times[order], origin[order],
        destination[order] % sites, 1440.0,
    )  # fmt: skip
