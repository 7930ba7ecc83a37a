"""Compare the clocks of the paths: the delay of their deliveries, and wrong clocks.

*Lateness* is the arrival minus the stamp of the event. It is large where a path delivers late, and
where its clock is behind; it is negative only where one of two clocks is wrong. *Against copies* is
the path's stamp minus the other paths' stamps of the same message. A path that delivers late
agrees with them. A path with a wrong clock does not.

A stamp decides when a reading counts and how much it has faded, and the latest copy of a message is
the one that counts. So a clock that is ahead makes all of its copies win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

__all__ = ["Clock", "clocks"]

_ENOUGH_ROWS: Final = 400_000  # about so many deliveries are enough to compare copies of

_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 60 * _MINUTE_US
_MONTH_US: Final = 30 * 24 * _HOUR_US
_TIMES_THE_USUAL: Final = 100


@dataclass(frozen=True)
class Clock:
    """Evidence in the log about the clock of one path, in microseconds.

    Attributes:
        path: its name.
        rows: its deliveries.
        unstamped: how many of them have no time of the event.
        median: middle lateness; None where no row has both times.
        worst: the lateness farthest from 0.
        against: middle difference to other paths' stamps of the same messages; None where no
            message came by another path too.
        suspect: whether somebody should look at it: most deliveries are late by more than a minute
            and a hundred times as late as usual; or one is a month late, or stamped a minute after
            it arrived; or most stamps are an hour apart from those of copies.
    """

    path: str
    rows: int
    unstamped: int
    median: float | None
    worst: int | None
    against: float | None
    suspect: bool = False


def clocks(log: pl.DataFrame) -> list[Clock]:
    """A line for each path, the worst first. O(rows log rows)."""
    lateness = pl.col("arrival_us") - pl.col("event_us")
    found = (
        log.lazy()
        .select("path", "event_us", lateness=lateness)
        .group_by("path")
        .agg(
            rows=pl.len(),
            unstamped=pl.col("event_us").null_count(),
            median=pl.col("lateness").median(),
            late=pl.col("lateness").max(),
            early=pl.col("lateness").min(),
        )
        .collect()
        .join(_against_copies(log), on="path", how="left", nulls_equal=True)
    )
    usual = found["median"].abs().median()
    limit = max(_MINUTE_US, _TIMES_THE_USUAL * float(usual or 0))  # type: ignore[arg-type]
    lines = []
    for each in found.iter_rows(named=True):
        late, early, against = each["late"], each["early"], each["against"]
        worst = None if late is None else max(late, early, key=abs)
        suspect = abs(against or 0) > _HOUR_US
        if worst is not None:
            suspect |= abs(each["median"]) > limit or late > _MONTH_US or early < -_MINUTE_US
        lines.append(
            Clock(
                str(each["path"]),
                each["rows"],
                each["unstamped"],
                each["median"],
                worst,
                against,
                suspect,
            )
        )
    return sorted(lines, key=_badness, reverse=True)


def _badness(clock: Clock) -> tuple[bool, float, int]:
    return clock.suspect, abs(clock.worst or 0), clock.rows


def _against_copies(log: pl.DataFrame) -> pl.DataFrame:
    """Columns path, against: of messages that came by several paths, or of a share of them.

    Of three paths and more each is held against the middle of all; of two, against the other.
    """
    every = max(1, len(log) // _ENOUGH_ROWS)
    stamps = (
        log.lazy()
        .filter(pl.col("event_us").is_not_null())
        .filter((pl.col("source").hash() ^ pl.col("msg").hash()) % every == 0)
        .group_by("source", "msg", "path")
        .agg(stamp=pl.col("event_us").min().cast(pl.Float64))
    )
    message = ("source", "msg")
    several = stamps.with_columns(
        paths=pl.len().over(message),
        other=pl.when(pl.len().over(message) > 2)
        .then(pl.col("stamp").median().over(message))
        .otherwise(pl.col("stamp").sum().over(message) - pl.col("stamp")),
    ).filter(pl.col("paths") > 1)
    return (
        several.group_by("path").agg(against=(pl.col("stamp") - pl.col("other")).median()).collect()
    )
