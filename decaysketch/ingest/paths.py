"""Paths into a JSON document: ``object.temperature``, ``rxInfo[0].rssi``, ``["pm_2.5"].value``.

Names are separated by dots. Array positions stand in brackets, and so does a name with dots or
brackets, in quotes. A path begins at the place that its mapping documents. These begin elsewhere:

``$``, ``$.name``, ``$[0]``
    the document
``@``, ``@.name``, ``@[0]``
    the element of ``each``
``@key``
    the position of the element in its array, or its name in its object
``topic``, ``topic[1]``
    the topic of the message, and its second level. A member with that name is ``$.topic``.

Two conveniences follow from messages of real devices, and are unambiguous. A name that is absent
may be the beginning of a longer name with dots: ``data.temp`` also finds the member
``"data.temp"``. A path that continues in a text reads the text as JSON, once for each message
(:class:`Texts`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from decaysketch.ingest.json_text import Repeated, parse
from decaysketch.ingest.readings import RefusedError

__all__ = ["ABSENT", "Here", "Path", "numbers_in"]

ABSENT: Final = object()
"""A path finds this where the document has nothing; null is found as None."""

_NUMBERS_SHOWN = 20
_MOST_PARTS = 32  # of a path
_TEXT_PARTS = 10_000  # brackets and commas of the JSON texts in a message
_STEP = re.compile(
    r'(?P<name>[^.\[\]@$"][^.\[\]"]{0,199})|\[(?P<place>[0-9]{1,4})\]|\["(?P<quoted>[^"]{1,200})"\]'
)
_PLAIN_NAME = re.compile(r'[^.\[\]@$"][^.\[\]"]*')
_TOPIC = "topic"
_EXPECTED = (
    "expected names separated by dots, with places of arrays in brackets, such as "
    "'object.temperature', 'rxInfo[0].rssi', '[\"pm_2.5\"]' for a name with dots, or '$' for the "
    "complete message"
)


class Here:
    """The place in a message where paths begin.

    Attributes:
        root: the document.
        element: of ``each``; without one, the document.
        key: place or name of the element; ABSENT without one.
        topic: of the message; empty: it has none.
        texts: JSON texts of the message that were read, by their text.
    """

    __slots__ = ("element", "key", "parts", "root", "texts", "topic")

    def __init__(self, root: Any, topic: str) -> None:
        self.root = self.element = root
        self.key: Any = ABSENT
        self.topic = topic
        self.texts: dict[str, Any] = {}
        self.parts = 0  # brackets and commas of these texts

    def document_in(self, text: str, path: str) -> Any:
        """Return the document that a text contains. O(length), and O(1) if it was read before.

        Raises:
            RefusedError: it contains none, or the texts of the message have too many values.
        """
        found = self.texts.get(text, ABSENT)
        if found is not ABSENT:
            return found
        if text.lstrip()[:1] not in ("{", "["):
            raise RefusedError(f"on the path {path} is a text that is not JSON: {text[:60]!r}")
        self.parts += text.count("[") + text.count("{") + text.count(",")
        if self.parts > _TEXT_PARTS:
            raise RefusedError(
                f"{self.parts} brackets and commas in texts; at most {_TEXT_PARTS} are read"
            )
        try:
            found = parse(text)
        except ValueError as fault:
            raise RefusedError(f"on the path {path} is a text that is not JSON: {fault}") from None
        self.texts[text] = found
        return found


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path.

    Attributes:
        text: as it was given.
        begins: at the document, at the element of ``each``, at the key of the element, in the
            topic, or at the place that the mapping documents.
        parts: names and positions.
        rests: for each part the rest of the path as one name with dots; empty: it is none.
    """

    text: str
    begins: Literal["root", "element", "key", "topic", ""]
    parts: tuple[str | int, ...]
    rests: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a path. O(length).

        Raises:
            ValueError: it is none.
        """
        if text == "@key":
            return cls(text, "key", (), ())
        begins: Any = {"$": "root", "@": "element"}.get(text[:1], "")
        rest = text[1:] if begins else text
        if begins and rest.startswith("."):
            rest = rest[1:]
            parts, quoted = _parts(text, rest, may_be_empty=False)
        else:
            parts, quoted = _parts(text, rest, may_be_empty=bool(begins))
            if begins and rest and type(parts[0]) is str and not quoted[0]:  # "$name"
                raise _fault(text)
        is_topic = not begins and parts[0] == _TOPIC and not quoted[0]
        if is_topic and (len(parts) == 1 or (len(parts) == 2 and type(parts[1]) is int)):
            return cls(text, "topic", parts[1:], ("",) * (len(parts) - 1))
        return cls(text, begins, parts, tuple(_rests(parts, quoted)))

    @property
    def of_element(self) -> bool:
        """Whether it begins at an element of ``each``."""
        return self.begins in ("element", "key")

    def find(self, here: Here, *, at_root: bool = False) -> Any:
        """Return the part of the document at this path. ABSENT if there is none.

        Args:
            here: the message.
            at_root: a path without a start of its own begins at the document.

        Raises:
            RefusedError: the path leads through an object that has a name twice, or through a text
                that is no JSON.
        """
        if self.begins == "topic":
            return self._of_topic(here.topic)
        if self.begins == "key":
            return here.key
        root = self.begins == "root" or (at_root and not self.begins)
        found = here.root if root else here.element
        for number, part in enumerate(self.parts):
            if type(found) is str:
                found = here.document_in(found, self.text)
            kind = type(found)
            if kind is dict and type(part) is str:
                after = found.get(part, ABSENT)
                if after is ABSENT and self.rests[number]:
                    return found.get(self.rests[number], ABSENT)
                found = after
            elif kind is list and type(part) is int:
                found = found[part] if part < len(found) else ABSENT
            elif kind is Repeated:
                raise RefusedError(f"on the path {self.text} an object has a repeated name")
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


def _fault(text: str) -> ValueError:
    return ValueError(f"path is {text!r:.100}; {_EXPECTED}")


def _parts(
    text: str, rest: str, *, may_be_empty: bool
) -> tuple[tuple[str | int, ...], tuple[bool, ...]]:
    """Return names and positions, and for each whether it stands in brackets."""
    parts: list[str | int] = []
    bracketed: list[bool] = []
    at, dotted = 0, True
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None or len(text) > 1000 or len(parts) == _MOST_PARTS:
            raise _fault(text)
        if step["name"] is not None and not dotted:  # "a[0]b"
            raise _fault(text)
        name = step["quoted"] if step["name"] is None else step["name"]
        parts.append(int(step["place"]) if name is None else name)
        bracketed.append(step["name"] is None)
        at = step.end()
        dotted = rest[at : at + 1] == "."
        if dotted and at + 1 == len(rest):
            raise _fault(text)
        at += dotted
    if not parts and not may_be_empty:
        raise _fault(text)
    return tuple(parts), tuple(bracketed)


def _rests(parts: tuple[str | int, ...], bracketed: tuple[bool, ...]) -> list[str]:
    rests = [""] * len(parts)
    for number in range(len(parts) - 2, -1, -1):
        if not any(bracketed[number:]):
            rests[number] = ".".join(str(part) for part in parts[number:])
    return rests


def numbers_in(root: Any) -> list[str]:
    """Return the paths of the first numbers in a document, as a mapping writes them. O(length)."""
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting and len(found) < _NUMBERS_SHOWN:
        path, here = waiting.pop()
        if type(here) is dict:
            waiting += reversed([(_joined(path, name), each) for name, each in here.items()])
        elif type(here) is list:
            waiting += reversed([(f"{path or '$'}[{place}]", each)
                                 for place, each in enumerate(here)])  # fmt: skip
        elif type(here) in (int, float):
            found.append(path or "$")
        elif type(here) is str and here[:1] in ("{", "["):
            found.append(f"{path or '$'} (a text with JSON in it)")
    return found


def _joined(path: str, name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
