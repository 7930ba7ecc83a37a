"""What a parser gives: readings, what was refused, what was skipped."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from decaysketch.errors import DecaySketchError

__all__ = [
    "REFUSALS_KEPT",
    "Parsed",
    "Reading",
    "RefusedError",
    "SkippedError",
    "Steps",
    "UnreadableError",
    "finished",
]

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Long work that may be suspended between two of its steps, and what it returns."""


def finished(steps: Steps[T]) -> T:
    """What the work returns, done without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


REFUSALS_KEPT = 1000
"""Of one body; of the others it is known how many they are."""


class Reading(NamedTuple):
    """One observation, in no stream's units yet.

    Attributes:
        key: what names it, one to eight parts, texts that are not empty or integers of 64 bits:
            their hash is the id (``observation_ids(part, part, ...)``).
        value: a number, or a label; None: the observation has no value.
        time_ns: since 1970-01-01 UTC. Any integer: bounds are looked at with the columns.
        weight: an integer.
        where: of its body, for messages, such as "line 7".
    """

    key: tuple[str | int, ...]
    value: float | int | str | None
    time_ns: int
    weight: int = 1
    where: str = ""


class RefusedError(DecaySketchError, ValueError):
    """What a stranger sent is ours and wrong; the sentence says why."""


class UnreadableError(RefusedError):
    """A body is not what it says it is."""


class SkippedError(DecaySketchError):
    """What a stranger sent is not ours; the one word says which kind of thing it is."""


@dataclass
class Parsed:
    """What became of a body.

    Attributes:
        readings: in their order.
        refused: place and reason of what was ours and wrong, REFUSALS_KEPT of them at most.
        refusals: how many were refused.
        skipped: of what was not ours, how many by word. The words are the parser's own, never a
            text of the body: they are labels of metrics.
        off: gateways whose time was not used, with the time as they wrote it.
        unnamed: readings of resources that nothing in their ids distinguishes, by the attribute
            that would.
    """

    readings: list[Reading] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    refusals: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    off: list[tuple[str, str]] = field(default_factory=list)
    unnamed: dict[str, int] = field(default_factory=dict)

    def refuse(self, where: str, reason: str, count: int = 1) -> None:
        """Refuse what is there, so many things for one reason."""
        self.refusals += count
        if len(self.refused) < REFUSALS_KEPT:
            self.refused.append((where, reason))

    def skip(self, word: str, count: int = 1) -> None:
        self.skipped[word] = self.skipped.get(word, 0) + count

    def add(self, other: Parsed) -> None:
        """Append what came of another part of the body."""
        self.readings += other.readings
        self.refused += other.refused[: REFUSALS_KEPT - len(self.refused)]
        self.refusals += other.refusals
        self.off += other.off
        self.count(other.skipped)

    def count(self, skipped: Mapping[str, int]) -> None:
        for word, count in skipped.items():
            self.skip(word, count)
