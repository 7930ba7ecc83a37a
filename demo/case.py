"""One delivery log, with everything that will be asked of it and what is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from demo.exact import Observations, every_copy, latest_copies, read_log
from demo.questions import Cell, Decay, ask_about
from demo.replicas import Truths
from demo.report import Advance
from demo.scores import Answer, Reading, Truth, truths

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """A log with the exact and the naive answers to everything that will be asked."""

    path: Path
    log: pl.DataFrame
    weighted: bool
    exact: Observations
    naive: Observations
    truths: Truths

    @classmethod
    def read(cls, path: Path, times: int, advance: Advance = lambda share: None) -> Case:
        log = read_log(path)
        weighted = bool((log["weight"] != 1).any())
        exact, naive = latest_copies(log), every_copy(log)
        cells = ask_about(exact.times_us, times)
        found: dict[Cell, Mapping[str, tuple[Truth, float]]] = {}
        for done, cell in enumerate(cells, start=1):
            counted = truths(naive.at(cell), weighted=weighted)
            found[cell] = {
                name: (truth, counted[name].value)
                for name, truth in truths(exact.at(cell), weighted=weighted).items()
                if name in counted
            }
            advance(done / len(cells))
        return cls(path, log, weighted, exact, naive, found)

    @property
    def max_weight(self) -> int:
        return int(self.log["weight"].max())  # type: ignore[arg-type]

    @property
    def decays(self) -> list[Decay]:
        """In the order in which they are asked."""
        return [decay for decay, _ in groupby(cell.decay for cell in self.truths)]

    def beside_truth(self, readings: Mapping[Cell, Mapping[str, Reading]]) -> list[Answer]:
        """What a sketch answered to everything, beside the exact and the naive answers."""
        return [
            Answer(cell, name, readings[cell][name], truth, naive)
            for cell, expected in self.truths.items()
            for name, (truth, naive) in expected.items()
        ]
