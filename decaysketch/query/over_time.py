"""An aggregate at several times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decaysketch.query.shapes import Question

__all__ = ["TimeTable"]


@dataclass(frozen=True, eq=False)
class TimeTable:
    """Results at several times. Iterate for the results, one for each time.

    Attributes:
        question: the query.
        arguments: its arguments.
        times: the query times, in the stream's unit.
        answers: the result at each time. With ``by``, each is a :class:`decaysketch.GroupTable`.
        time_unit: the stream's unit.
    """

    question: Question[Any]
    arguments: Mapping[str, Any]
    times: Sequence[int]
    answers: Sequence[Any]
    time_unit: str

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, number: int) -> Any:
        return self.answers[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.answers)

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each estimate: ``time`` (UTC if the unit has a
        clock), a column for each key, then ``value``, ``lower``, ``upper``, ``stderr``, ``exact``,
        ``rows`` and ``caveats``.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        from decaysketch.query.frames import frame_of_times

        return frame_of_times(self)

    def plot(self, axes: Any = None) -> Any:
        """Draw a line with its interval band. See :func:`decaysketch.query.plots.times`."""
        from decaysketch.query import plots

        return plots.times(self, axes)
