"""From messages to readings by stream; no I/O and no clock of its own.

A message is read by every map whose topics it has. What is refused of it makes it a *dead letter*,
as a whole: what of it was sound is counted all the same, and again changes nothing when the letter
is replayed with a mended map. A message that no map wants is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from decaysketch.ingest.documents import ARRIVAL, DocumentMap, Message, Opened, opened_or_told
from decaysketch.ingest.formats import DOCUMENTS
from decaysketch.ingest.paths import numbers_in
from decaysketch.ingest.readings import Parsed, Reading

__all__ = ["Arrived", "Translated", "Translator", "matches"]

_TOPICS_REMEMBERED = 1 << 14


class Arrived(NamedTuple):
    """A message as a broker gave it.

    Attributes:
        message: its body, topic and time of arrival.
        retained: whether the broker had kept it and sent it to a new subscriber.
        tag: whatever the caller acknowledges it by.
    """

    message: Message
    retained: bool = False
    tag: object = None


@dataclass
class Translated:
    """What became of some messages.

    Attributes:
        readings: of each stream.
        owners: beside them, of which message each is.
        dead: reasons, by the place of the message.
        skipped: how many times something was skipped, by word.
        untouched: messages that no map wanted anything of.
        absent: where maps look for a value, with the numbers that there are in the first message
            that has nothing there; see :func:`~decaysketch.ingest.paths.numbers_in`.
        clocks: gateways, what they said the time was and when the message came here.
    """

    readings: dict[str, list[Reading]] = field(default_factory=dict)
    owners: dict[str, list[int]] = field(default_factory=dict)
    dead: dict[int, list[str]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    untouched: set[int] = field(default_factory=set)
    absent: dict[str, list[str]] = field(default_factory=dict)
    clocks: list[tuple[str, int, int]] = field(default_factory=list)

    def refuse(self, place: int, reason: str) -> None:
        """Make a message a dead letter."""
        self.dead.setdefault(place, []).append(reason)


class Translator:
    """Reads messages by maps.

    Args:
        maps: each with its stream.
        max_message_bytes: longer messages are dead letters, unread.
    """

    def __init__(self, maps: Sequence[DocumentMap], max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes

        @lru_cache(_TOPICS_REMEMBERED)
        def of_topic(topic: str) -> Mapping[str, list[DocumentMap]]:
            found: dict[str, list[DocumentMap]] = {}
            for each in maps:
                if not each.topics or not topic or any(matches(f, topic) for f in each.topics):
                    found.setdefault(each.format, []).append(each)
            return found

        self._of_topic = of_topic

    def translate(self, arrived: Sequence[Arrived]) -> Translated:
        """Readings of messages. O(their length), for any bytes."""
        out = Translated()
        for place, each in enumerate(arrived):
            self._one(place, each, out)
        return out

    def _one(self, place: int, arrived: Arrived, out: Translated) -> None:
        message = arrived.message
        if len(message.body) > self._max_message_bytes:
            out.refuse(
                place, f"{len(message.body)} bytes; at most {self._max_message_bytes} are read"
            )
            return
        formats = self._of_topic(message.topic)
        if not formats:
            out.skipped["topic"] += 1
        took = False
        for format, maps in formats.items():
            parsed = Parsed()
            opened = opened_or_told(DOCUMENTS[format], message, parsed)
            if opened is not None:
                self._clocks(opened, out)
                for each in maps:
                    took |= self._read(place, arrived, each, opened, out)
            took |= _tell(place, parsed, out)
        if not took:
            out.untouched.add(place)

    def _read(
        self, place: int, arrived: Arrived, map: DocumentMap, opened: Opened, out: Translated
    ) -> bool:
        """Whether the map had anything to do with the message."""
        if arrived.retained and map.time == ARRIVAL:  # which came to the broker long ago
            out.skipped["retained"] += 1
            return False
        parsed = Parsed()
        map.read(opened, parsed)
        took = _tell(place, parsed, out)
        if "no value" in parsed.skipped and map.place_of_value not in out.absent:
            out.absent[map.place_of_value] = numbers_in(opened.root)
        if parsed.readings:
            assert map.stream is not None
            out.readings.setdefault(map.stream, []).extend(parsed.readings)
            out.owners.setdefault(map.stream, []).extend([place] * len(parsed.readings))
            took = True
        return took

    def _clocks(self, opened: Opened, out: Translated) -> None:
        arrival_ns = opened.message.arrival_ns
        if arrival_ns is not None:
            out.clocks += [(gateway, at, arrival_ns) for gateway, at in opened.clocks]


def _tell(place: int, parsed: Parsed, out: Translated) -> bool:
    """Whether something was refused."""
    out.skipped.update(parsed.skipped)
    for where, reason in parsed.refused:
        out.refuse(place, f"{where}: {reason}")
    return bool(parsed.refused)


def matches(filter: str, topic: str) -> bool:
    """Whether a topic is one of those that a filter of MQTT means.

    Example:
        >>> matches("a/+/c", "a/b/c"), matches("a/#", "a"), matches("#", "$SYS/x")
        (True, True, False)
    """
    if topic.startswith("$") != filter.startswith("$"):
        return False
    levels, asked = topic.split("/"), filter.split("/")
    for place, each in enumerate(asked):
        if each == "#":
            return True
        if place == len(levels) or each not in ("+", levels[place]):
            return False
    return len(levels) == len(asked)
