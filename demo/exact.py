"""The answers that the sketch must meet, computed by polars from every row, without the library.

The rule of identity is the product's promise, so it is spelled out here a second time:

- a message is (source, msg); with its weight it is one observation;
- its time is ``event_us``, or ``arrival_us`` where that is null;
- of several copies the latest counts, the maximum by (time, value), a missing value before every
  other; weight 0 is nothing;
- an observation after ``now`` is not counted; one of age x counts as g(x).

Decayed count = sum of g; decayed sum = sum of weight * g; total = sum of value * g; mean and
quantiles are of the values under the weights weight * g. A missing value is counted, and is absent
from total, mean and quantiles.

``every_copy`` is the naive reading of the same log: each delivery taken for a message of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from demo.questions import Cell

__all__ = ["Distribution", "Observations", "every_copy", "latest_copies"]

Floats: TypeAlias = npt.NDArray[np.float64]

KEY: Final = ("source", "msg", "weight")

# Two ways of summing the same decayed weights differ in the last bits; where the cumulated weight
# meets q times the whole exactly, either neighbour is the quantile.
TIE: Final = 1e-12


def latest_copies(log: pl.DataFrame) -> Observations:
    """Every message exactly once, represented by its latest copy."""
    newest = pl.col("time") == pl.col("time").max().over(KEY)
    messages = (
        log.lazy()
        .filter(pl.col("weight") > 0)
        .filter(newest)
        .group_by(KEY)
        .agg(pl.col("time").first(), pl.col("value").max())  # max is null only if all are
        .collect()
    )
    return Observations(messages)


def every_copy(log: pl.DataFrame) -> Observations:
    """Every delivery as if it were a message of its own."""
    return Observations(log.filter(pl.col("weight") > 0))


@dataclass(frozen=True)
class Distribution:
    """Decayed weights per distinct value: every aggregate at one time under one decay.

    Attributes:
        values: distinct values, ascending, missing ones left out.
        counts: sum of g over the observations of each value.
        weights: sum of weight * g over them.
        missing_count, missing_weight: the same of the observations without a value.
    """

    values: Floats
    counts: Floats
    weights: Floats
    missing_count: float
    missing_weight: float

    @property
    def count(self) -> float:
        return float(self.counts.sum()) + self.missing_count

    @property
    def sum(self) -> float:
        return float(self.weights.sum()) + self.missing_weight

    @property
    def total(self) -> float:
        return float(self.values @ self.counts)

    @property
    def weight_of_values(self) -> float:
        """Where this is 0 there is no mean, no quantile, no share."""
        return float(self.weights.sum())

    @property
    def mean(self) -> float:
        return float(self.values @ self.weights) / self.weight_of_values

    @property
    def total_magnitude(self) -> float:
        """The total, had no value a sign."""
        return float(np.abs(self.values) @ self.counts)

    @property
    def mean_magnitude(self) -> float:
        """The mean, had no value a sign."""
        return float(np.abs(self.values) @ self.weights) / self.weight_of_values

    def quantile(self, q: float) -> tuple[float, float]:
        """Smallest value with at least q of the weight at or below it, as [from, to]: the two
        differ only where the cumulated weight equals q of the whole up to rounding."""
        cumulated = np.cumsum(self.weights)
        aims = q * cumulated[-1] * np.array([1 - TIE, 1 + TIE])
        at = np.minimum(np.searchsorted(cumulated, aims), self.values.size - 1)
        low, high = self.values[at]
        return float(low), float(high)

    def share_of(self, value: float) -> float:
        """Share of the weight of all values that has exactly this value."""
        return float(self.weights[self.values == value].sum()) / self.weight_of_values


class Observations:
    """Observations (columns ``time``, ``weight``, ``value``) prepared for many queries."""

    def __init__(self, rows: pl.DataFrame) -> None:
        if rows["value"].is_nan().any():
            raise ValueError("the column value has a NaN; a missing value is null")
        self._rows = rows.select("time", "value", pl.col("weight").cast(pl.Float64)).sort("time")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def times_us(self) -> pl.Series:
        """Times in ascending order."""
        return self._rows["time"]

    def at(self, cell: Cell) -> Distribution:
        """One pass over the rows up to ``now``, O(n)."""
        upto = self.times_us.search_sorted(cell.now_us, side="right")
        faded = (
            self._rows.lazy()
            .head(int(upto))
            .select("value", "weight", g=cell.decay.weight(cell.now_us - pl.col("time")))
            .filter(pl.col("g") > 0)
            .group_by("value")
            .agg(count=pl.col("g").sum(), weighted=(pl.col("g") * pl.col("weight")).sum())
            .sort("value", nulls_last=False)
            .collect()
        )
        missing = faded.filter(pl.col("value").is_null())
        present = faded.filter(pl.col("value").is_not_null())
        return Distribution(
            present["value"].to_numpy(),
            present["count"].to_numpy(),
            present["weighted"].to_numpy(),
            float(missing["count"].sum()),
            float(missing["weighted"].sum()),
        )
