"""From messages to readings by stream. It does no I/O and has no clock of its own.

Every mapping with a matching topic reads a message. A rejected reading makes the complete message
a *dead letter*. Its sound readings count all the same. They change nothing when a corrected
mapping replays the letter. A message that matches no mapping is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from decaysketch.ingest.documents import ARRIVAL, DocumentMap, Message, Opened, opened_or_told
from decaysketch.ingest.message_formats import MESSAGE_FORMATS
from decaysketch.ingest.paths import numbers_in
from decaysketch.ingest.readings import Parsed, Reading

__all__ = ["Arrived", "Translated", "Translator", "matches"]

_TOPICS_REMEMBERED = 1 << 14


class Arrived(NamedTuple):
    """A message as a broker delivered it.

    Attributes:
        message: its body, topic and time of arrival.
        retained: whether the broker had retained it and sent it to a new subscriber.
        tag: any value by which the caller acknowledges it.
    """

    message: Message
    retained: bool = False
    tag: object = None


@dataclass
class Translated:
    """The result for some messages.

    Attributes:
        readings: of each stream.
        owners: the message of each reading.
        dead: reasons, by the position of the message.
        skipped: how many times something was skipped, by word.
        untouched: messages that match no mapping.
        absent: paths at which mappings expect a value, with the numbers in the first message that
            has nothing there; see :func:`~decaysketch.ingest.paths.numbers_in`.
        clocks: gateways, the time that they reported and the arrival time of the message.
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
    """Reads messages by mappings.

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
        """Return the readings in messages. O(their length), for any bytes."""
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
            opened = opened_or_told(MESSAGE_FORMATS[format].open_message, message, parsed)
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
        """Return whether the message matched the mapping."""
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
    """Return whether something was rejected."""
    out.skipped.update(parsed.skipped)
    for where, reason in parsed.refused:
        out.refuse(place, f"{where}: {reason}")
    return bool(parsed.refused)


def matches(filter: str, topic: str) -> bool:
    """Return whether a topic matches an MQTT topic filter.

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
