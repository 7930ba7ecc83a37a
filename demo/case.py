"""One delivery log, with all queries to it and their exact results."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import polars as pl

from demo.clocks import Clock, clocks
from demo.exact import Observations, every_copy, latest_copies
from demo.questions import Cell, Decay, ask_about, middle_of
from demo.reading import DeliveryLog, read_log
from demo.replicas import Truths
from demo.report import Advance
from demo.scores import Answer, Reading, Truth, truths

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """A log with the exact and the naive results of all queries.

    Attributes:
        given: the log as it was read.
        log: its rows, without those that were refused.
        clocks: of its paths, the worst first.
        middle_us: from when to when nearly everything happened.
    """

    given: DeliveryLog
    log: pl.DataFrame
    weighted: bool
    exact: Observations
    naive: Observations
    truths: Truths
    clocks: list[Clock]
    middle_us: tuple[int, int]

    @classmethod
    def read(cls, path: Path, times: int) -> Case:
        """Of a log with the usual columns."""
        return cls.of(read_log(path), times)

    @classmethod
    def of(cls, given: DeliveryLog, times: int, advance: Advance = lambda share: None) -> Case:
        log = given.rows
        weighted = bool((log["weight"] != 1).any())
        exact, naive = latest_copies(log), every_copy(log)
        by_path = clocks(log)
        middle_us = _middle(log, exact, by_path)
        cells = ask_about(exact.times_us, times, middle_us)
        found: dict[Cell, Mapping[str, tuple[Truth, float]]] = {}
        for done, cell in enumerate(cells, start=1):
            counted = truths(naive.at(cell), weighted=weighted)
            found[cell] = {
                name: (truth, counted[name].value)
                for name, truth in truths(exact.at(cell), weighted=weighted).items()
                if name in counted
            }
            advance(done / len(cells))
        return cls(given, log, weighted, exact, naive, found, by_path, middle_us)

    @property
    def path(self) -> Path:
        """The file that was given."""
        return self.given.given

    @cached_property
    def exact_bytes(self) -> int:
        """Bytes of every message once, with its time and value, as Parquet."""
        buffer = io.BytesIO()
        newest = self.log.sort("time", "value", nulls_last=False)
        kept = newest.unique(["source", "msg", "weight"], keep="last", maintain_order=True)
        columns = ["time", "source", "msg", "value", *(["weight"] if self.weighted else [])]
        kept.select(columns).write_parquet(buffer, compression="zstd")
        return buffer.tell()

    @property
    def last_us(self) -> int:
        """The newest message that is not far after all others."""
        return max(cell.now_us for cell in self.truths)

    @property
    def outside(self) -> tuple[int, int]:
        """How many messages happened before and after the middle."""
        times, (first, last) = self.exact.times_us, self.middle_us
        return int((times < first).sum()), int((times > last).sum())

    @property
    def max_weight(self) -> int:
        return int(self.log["weight"].max())  # type: ignore[arg-type]

    @property
    def decays(self) -> list[Decay]:
        """All decays, in the order of the queries."""
        return [decay for decay, _ in groupby(cell.decay for cell in self.truths)]

    def beside_truth(self, readings: Mapping[Cell, Mapping[str, Reading]]) -> list[Answer]:
        """A sketch's results for all queries, next to the exact and the naive results."""
        return [
            Answer(cell, name, readings[cell][name], truth, naive)
            for cell, expected in self.truths.items()
            for name, (truth, naive) in expected.items()
        ]


def _middle(log: pl.DataFrame, exact: Observations, by_path: Sequence[Clock]) -> tuple[int, int]:
    """From when to when nearly everything happened, by the clocks that nobody suspects where these
    stamped half of the log or more: one of three that is wrong stamps too much to be an outlier."""
    suspects = [clock.path for clock in by_path if clock.suspect]
    suspected = pl.col("path").cast(pl.String, strict=False).is_in(suspects)
    trusted = log.filter(~suspected & (pl.col("weight") > 0))
    if not suspects or 2 * trusted.height < log.height:
        return middle_of(exact.times_us)
    first, last = middle_of(trusted["time"])
    kept = exact.times_us.filter(exact.times_us.is_between(first, last))
    return (int(kept.min()), int(kept.max())) if len(kept) else middle_of(exact.times_us)  # type: ignore[arg-type]
