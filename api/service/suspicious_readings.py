"""Readings that were accepted and are suspicious, counted for each post and each stream.

A post may be sound and still lose something: a reading replaces another one, a clock is wrong,
nothing distinguishes two replicas. The server stores such readings, because nothing in one post
tells a fault from a choice. Values may also fill no column, and are dropped. It
counts them, reports them in the response where the protocol has a
place for it, and repeats the sum in ``warnings`` of the stream and in the metric
``decaysketch_suspicious_total``, since the process started or the mappings changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from decaysketch.core.replaced import replaced_readings
from decaysketch.ingest.documents import LORAWAN, DocumentMap
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.record_columns import Dropped, drop

__all__ = ["Notes", "notes_of", "warnings_of", "warnings_of_columns"]

_NAMES_KEPT = 20  # gateways and attributes of a stream
_REPLACED, _UNDATED, _CLOCK, _INSTANCE = "replaced", "undated", "gateway-clock", "instance"


@dataclass
class Notes:
    """Counts of suspicious readings.

    Attributes:
        counts: by kind: ``replaced``, ``undated``, ``gateway-clock``, ``instance``.
        gateways: gateways with an untrusted clock, with their last reported time.
        attributes: attributes that would distinguish replicas and are in no id.
        dropped: values that fill no column, by column name and reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    gateways: dict[str, str] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    dropped: Dropped = field(default_factory=Counter)

    def add(self, other: Notes) -> None:
        """Add the counts of a post."""
        self.counts.update(other.counts)
        for name, said in other.gateways.items():
            if name in self.gateways or len(self.gateways) < _NAMES_KEPT:
                self.gateways[name] = said
        self.attributes |= other.attributes
        for (column, reason), count in other.dropped.items():
            drop(self.dropped, column, reason, count)


def notes_of(
    *,
    replaced: int = 0,
    undated: int = 0,
    off: Iterable[tuple[str, str]] = (),
    unnamed: Mapping[str, int] | None = None,
    dropped: Mapping[tuple[str, str], int] | None = None,
) -> Notes:
    """Return the counts of a post.

    Args:
        replaced: readings that a reading of the same id and a time far away replaced.
        undated: readings outside the years 1990 to 2100.
        off: gateways with an untrusted clock, with their reported time.
        unnamed: readings that nothing distinguishes from those of other replicas, by the attribute
            that would.
        dropped: values that fill no column, by column name and reason.
    """
    off = list(off)
    unnamed = unnamed or {}
    found = {
        _REPLACED: replaced, _UNDATED: undated, _CLOCK: len(off), _INSTANCE: sum(unnamed.values()),
    }  # fmt: skip
    counts = Counter({kind: count for kind, count in found.items() if count})
    gateways = {name or "without a name": said for name, said in off[:_NAMES_KEPT]}
    return Notes(counts, gateways, set(unnamed), Counter(dropped))


def warnings_of(notes: Notes, held: int, mappings: Mappings | None) -> list[str]:
    """Return sentences for people.

    Args:
        notes: of a post or a stream.
        held: rows that are left of them.
        mappings: of the stream.
    """
    said = []
    if (replaced := replaced_readings(notes.counts[_REPLACED], held)) is not None:
        said.append(replaced + _reset(mappings))
    if undated := notes.counts[_UNDATED]:
        said.append(
            f"{_many(undated, 'reading')} outside the years 1990 to 2100: the clock of the device "
            "is wrong, or the times are in another unit; windows that end now do not contain them"
        )
    if notes.gateways:
        each = ", ".join(f"{name!r} ({said})" for name, said in notes.gateways.items())
        said.append(
            f"the times of {_many(notes.counts[_CLOCK], 'reception')} were not used, because the "
            f"clocks of these gateways are wrong: {each}; set their clocks"
        )
    if notes.attributes:
        names = ", ".join(sorted(notes.attributes))
        said.append(
            f"{_many(notes.counts[_INSTANCE], 'data point')} of resources whose replicas nothing "
            f"in the id distinguishes, so that replicas count as one: set {names} on each replica "
            "and add it to `resource_keys` of the mapping"
        )
    return [*said, *warnings_of_columns(notes.dropped)]


def warnings_of_columns(dropped: Mapping[tuple[str, str], int]) -> list[str]:
    """Return a sentence for each reason, with the columns and their counts."""
    said = []
    for reason, (sentence, remedy) in _REASONS.items():
        counts = {name: count for (name, why), count in dropped.items() if why == reason}
        if counts:
            listed = sorted(counts.items(), key=lambda each: (not each[0], -each[1]))
            named = ", ".join(f"{name or 'others'} ({count:,})" for name, count in listed[:20])
            said.append(f"values {sentence} were dropped, by column: {named}; {remedy}")
    return said


_REASONS = {
    "undeclared": (
        "without a declared column",
        "list the wanted columns in `columns` of the mapping, or declare these in a new stream",
    ),
    "type": ("of another type than their column", "declare the column with the type that is sent"),
    "not-finite": ("that are not finite", "null replaces them"),
    "range": ("beyond their number type", "declare the column as int64 or text"),
    "too-long": ("longer than 1,024 bytes", "drop the column, or send shorter texts"),
    "too-many": (
        "beyond 256 members of an object, or with names longer than 128 bytes",
        "name the wanted paths in `columns` of the mapping",
    ),
}


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _reset(mappings: Mappings | None) -> str:
    """Return the remedy for devices without sessions."""
    for each in () if mappings is None else mappings.map:
        if not isinstance(each, DocumentMap) or each.reset is not None:
            continue
        if LORAWAN in each.id_paths:
            return (
                "; for devices with ABP set `reset` in the mapping, no longer than the shortest "
                "time between two restarts"
            )
    return ""
