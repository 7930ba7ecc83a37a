"""The result of a parser: readings, rejected parts and skipped parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from decaysketch.errors import DecaySketchError
from decaysketch.ingest.record_columns import ColumnValues, Dropped, drop

__all__ = [
    "REFUSALS_KEPT",
    "Parsed",
    "Reading",
    "RefusedError",
    "SeriesPart",
    "SkippedError",
    "Steps",
    "UnreadableError",
    "finished",
]

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Long work that may be suspended between two of its steps, and what it returns."""


def finished(steps: Steps[T]) -> T:
    """Run the work without a pause, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


REFUSALS_KEPT = 1000
"""Of one body; of the others it is known how many they are."""


class SeriesPart(NamedTuple):
    """Columns that only readings for series have.

    Attributes:
        start_ns: when its counter began to count, since 1970-01-01 UTC; None: unknown.
        entity: its device, as parts of a key; None: the series.
        attributes: texts by name.
    """

    start_ns: int | None = None
    entity: tuple[str | int, ...] | None = None
    attributes: Mapping[str, str] = {}


class Reading(NamedTuple):
    """One observation, not yet in the units of a stream.

    Attributes:
        key: its name, one to eight parts, texts that are not empty or integers of 64 bits:
            their hash is the id (``observation_ids(part, part, ...)``).
        value: a number, or a label, or columns; None: the observation has no value.
        time_ns: since 1970-01-01 UTC. Any integer: the columns check bounds.
        weight: an integer.
        where: position in its body, for messages, such as "line 7".
        series: further columns, for series.
    """

    key: tuple[str | int, ...]
    value: float | int | str | ColumnValues | None
    time_ns: int
    weight: int = 1
    where: str = ""
    series: SeriesPart | None = None


class RefusedError(DecaySketchError, ValueError):
    """Untrusted input matches the mapping and has a fault. The message gives the reason."""


class UnreadableError(RefusedError):
    """A body does not have its declared format."""


class SkippedError(DecaySketchError):
    """Untrusted input does not match the mapping. The message is one word, its kind."""


@dataclass
class Parsed:
    """The result for a body.

    Attributes:
        readings: in their order.
        refused: place and reason of each rejected part, REFUSALS_KEPT of them at most.
        refusals: number of rejected parts.
        skipped: numbers of skipped parts, by word. The words come from the parser, never from the
            body: they are metric labels.
        off: gateways whose time was not used, with the time as they wrote it.
        unnamed: readings of resources that nothing in their ids distinguishes, by the attribute
            that would.
        dropped: values that fill no column, by column name and reason.
    """

    readings: list[Reading] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    refusals: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    off: list[tuple[str, str]] = field(default_factory=list)
    unnamed: dict[str, int] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=Counter)

    def refuse(self, where: str, reason: str, count: int = 1) -> None:
        """Reject this number of parts for one reason."""
        self.refusals += count
        if len(self.refused) < REFUSALS_KEPT:
            self.refused.append((where, reason))

    def skip(self, word: str, count: int = 1) -> None:
        self.skipped[word] = self.skipped.get(word, 0) + count

    def add(self, other: Parsed) -> None:
        """Append the result for another part of the body."""
        self.readings += other.readings
        self.refused += other.refused[: REFUSALS_KEPT - len(self.refused)]
        self.refusals += other.refusals
        self.off += other.off
        self.count(other.skipped)
        for (column, reason), count in other.dropped.items():
            drop(self.dropped, column, reason, count)

    def count(self, skipped: Mapping[str, int]) -> None:
        for word, count in skipped.items():
            self.skip(word, count)
