"""What the samplers of asynchronous windows are measured on, and what takes it.

The log is the web log's values at its timestamps, every element distinct, nearly in order. A window
of it is a third of the time that it spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from benchmarks.sorted_window import SortedWindow
from benchmarks.streams import Int64Array, Stream
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler

__all__ = [
    "DELTA", "EPSILON", "SAMPLERS", "SOURCE", "Holder", "Kind", "Log", "Mode", "Numbering",
]  # fmt: skip

EPSILON = DELTA = 0.05
SOURCE = "log"

Kind = Literal["sum", "median"]
Mode = Literal["practical", "proven"]
Numbering = Literal["explicit", "own"]
Holder = SumSampler | MedianSampler | SortedWindow
SAMPLERS: list[tuple[Kind, Mode]] = [(k, m) for k in get_args(Kind) for m in get_args(Mode)]


@dataclass(frozen=True)
class Log:
    """Elements in order of arrival."""

    values: Int64Array
    times: Int64Array
    sequence: Int64Array

    @classmethod
    def of(cls, stream: Stream) -> Log:
        """The values and times of a stream, numbered."""
        return cls(stream.values, stream.timestamps, np.arange(len(stream.ids)))

    def __len__(self) -> int:
        return len(self.times)

    @property
    def width(self) -> int:
        """W."""
        return max(1, int(np.ptp(self.times)) // 3)

    @property
    def now(self) -> int:
        """The clock when all has arrived."""
        return int(self.times.max())

    def sampler(self, kind: Kind, mode: Mode) -> SumSampler | MedianSampler:
        """An empty sampler for this log."""
        if kind == "sum":
            bound = int(self.values.sum())
            return SumSampler(
                SumParams.for_accuracy(
                    EPSILON, DELTA, max_sum=bound, max_window=self.width, mode=mode
                )
            )
        return MedianSampler(
            MedianParams.for_accuracy(
                EPSILON, DELTA, max_count=len(self), max_window=self.width, mode=mode,
                value_type="int64",
            )
        )  # fmt: skip

    def feed(
        self,
        holder: Holder,
        start: int,
        stop: int,
        batch: int,
        numbering: Numbering = "explicit",
    ) -> None:
        """Give a stretch of the log to a sampler or an exact window, in batches."""
        for row in range(start, stop, batch):
            part = slice(row, min(stop, row + batch))
            values, times = self.values[part], self.times[part]
            if isinstance(holder, SortedWindow) or numbering == "own":
                holder.update(values, times)
            else:
                holder.update(values, times, self.sequence[part], source=SOURCE)
            holder.advance(int(times.max()))
