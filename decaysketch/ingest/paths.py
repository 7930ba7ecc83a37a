"""Where in a JSON document something stands: ``object.temperature``, ``rxInfo[0].rssi``.

Names are parted by dots, places of an array stand in brackets. A path begins where its map says, or
with ``$.`` at the root of the document. ``topic`` is the topic of the message and ``topic[1]`` its
second level; a member of that name is ``$.topic``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Self

from decaysketch.ingest.json_text import Repeated
from decaysketch.ingest.readings import RefusedError

__all__ = ["ABSENT", "Path", "numbers_in"]

ABSENT: Final = object()
"""What a path finds where nothing stands; null is found as None."""

_NUMBERS_SHOWN = 20
_NAME = re.compile(r"([^.\[\]]{1,200})((?:\[[0-9]{1,4}\])*)")
_PLACE = re.compile(r"\[([0-9]+)\]")
_TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Path:
    """A path, taken apart.

    Attributes:
        text: as it was given.
        from_root: whether it begins at the root of the document, wherever it is asked.
        in_topic: whether it is of the topic.
        parts: names and places.
    """

    text: str
    from_root: bool
    in_topic: bool
    parts: tuple[str | int, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Take a path apart. O(length).

        Raises:
            ValueError: it is none.
        """
        from_root = text.startswith("$.")
        parts: list[str | int] = []
        at = 2 if from_root else 0
        while True:
            name = _NAME.match(text, at)
            if name is None or len(text) > 1000:
                raise ValueError(
                    f"path is {text!r:.100}; expected names parted by dots, with places of arrays "
                    "in brackets, such as 'object.temperature' or 'rxInfo[0].rssi'"
                )
            parts += [name[1], *map(int, _PLACE.findall(name[2]))]
            at = name.end()
            if at == len(text):
                break
            at += text[at] == "."
        in_topic = not from_root and parts[0] == _TOPIC and len(parts) <= 2
        if in_topic and len(parts) == 2 and type(parts[1]) is not int:
            in_topic = False
        return cls(text, from_root, in_topic, tuple(parts[1:] if in_topic else parts))

    def find(self, root: Any, here: Any, topic: str) -> Any:
        """What stands there; ABSENT where nothing does.

        Args:
            root: the document.
            here: where a path begins that does not begin at the root.
            topic: of the message; empty: it has none.

        Raises:
            RefusedError: the way leads through an object that has a name twice.
        """
        if self.in_topic:
            return self._of_topic(topic)
        found = root if self.from_root else here
        for part in self.parts:
            kind = type(found)
            if kind is dict and type(part) is str:
                found = found.get(part, ABSENT)
            elif kind is list and type(part) is int:
                found = found[part] if part < len(found) else ABSENT
            elif kind is Repeated:
                raise RefusedError(f"on the way to {self.text} an object has a name twice")
            else:
                return ABSENT
        return found

    def _of_topic(self, topic: str) -> str | object:
        if not topic:
            return ABSENT
        if not self.parts:
            return topic
        levels = topic.split("/")
        (place,) = self.parts
        assert type(place) is int
        return levels[place] if place < len(levels) else ABSENT


def numbers_in(root: Any) -> list[str]:
    """Paths of numbers of a document, the first of them: what a map could have meant. O(length)."""
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting and len(found) < _NUMBERS_SHOWN:
        path, here = waiting.pop()
        if type(here) is dict:
            parts = [(f"{path}.{name}" if path else name, each) for name, each in here.items()]
            waiting += reversed(parts)
        elif type(here) is list:
            waiting += reversed([(f"{path}[{place}]", each) for place, each in enumerate(here)])
        elif type(here) in (int, float):
            found.append(path)
    return found
