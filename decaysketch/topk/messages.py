"""The messages between sources and the hub of a top-k list, and their JSON.

The hub sends an :class:`Ask`, and a source sends a :class:`Post`. Both contain the current state,
not changes, so any message may be lost, repeated or overtaken. Among a source's posts the largest
``(inc, seq)`` counts, among requests the largest ``(epoch, serial)``. A post that only adds to
another names it, and a receiver without that one ignores the addition.

Bytes from others are hostile. Every message is checked when it is made, in time and memory
proportional to its text, and the text's length is bounded. Unknown fields are rejected, as are
numbers that JSON readers disagree about: integers are below 2^53, and other numbers are finite.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from decaysketch.core.text.grammar import json_object
from decaysketch.errors import ParameterError
from decaysketch.topk.ranking import Item

__all__ = [
    "MAX_ENTRIES",
    "MAX_ITEM_BYTES",
    "MAX_JSON",
    "MAX_K",
    "MAX_NUMBER",
    "MAX_SITE_BYTES",
    "MAX_WATCHED",
    "Ask",
    "Post",
    "check_count",
    "check_item",
    "check_site",
    "check_whole",
    "fields_of",
]

MAX_NUMBER: Final = (1 << 53) - 1
"""Of counters, times and counts: what every reader of JSON takes as it is."""

MAX_ENTRIES: Final = 10_000
"""Entries that a site has at the hub in one round."""

MAX_WATCHED: Final = 4_000
"""Items that an ask names."""

MAX_K: Final = 1_000
"""Items of a list."""

MAX_ITEM_BYTES: Final = 500
"""UTF-8 bytes of an item that is a text."""

MAX_SITE_BYTES: Final = 200
"""UTF-8 bytes of a site's name."""

MAX_JSON: Final = 1 << 23
"""Characters of a message."""


class _Message:
    """A frozen dataclass with a JSON form."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form, with tuples as lists."""
        return {each.name: _listed(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_dict(cls, form: Any) -> Self:
        """Read a JSON form.

        Raises:
            ParameterError: the form is invalid. The message names the field. O(size of the form).
        """
        name = cls.__name__.lower()
        known = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        given = fields_of(name, form, known, known)
        return cls(**{each: _frozen(given[each]) for each in known})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a text with at most MAX_JSON characters.

        Raises:
            ParameterError: as :meth:`from_dict`, or the text is not JSON, or too long.
        """
        return cls.from_dict(json_object(f"the {cls.__name__.lower()}", text, MAX_JSON))


@dataclass(frozen=True, slots=True, kw_only=True)
class Post(_Message):
    """A source's report about its counts as of one time.

    Attributes:
        site: the source's name.
        inc: its incarnation, larger after each restart.
        seq: number of this post within the incarnation.
        as_of: the round's time.
        asked: (epoch, serial) of the request that it follows, or None without one. The source has
            no count for an item that this request watches and that is not among the entries.
        base: None if the entries are the complete post. Otherwise the ``seq`` of a post with the
            same incarnation and time, and the entries here are added to the entries there.
        entries: (item, count), each item once, counts above 0.
        rest: the largest count of an item that is not among the entries, or the entries they are
            added to. 0 if there is none.

    Raises:
        ParameterError: a field is invalid.
    """

    site: str
    inc: int
    seq: int
    as_of: int
    asked: tuple[int, int] | None
    base: int | None
    entries: tuple[tuple[Item, int | float], ...]
    rest: int | float

    def __post_init__(self) -> None:
        check_site("site", self.site)
        check_whole("inc", self.inc)
        check_whole("seq", self.seq)
        check_whole("as_of", self.as_of, -MAX_NUMBER)
        _check_pair("asked", self.asked)
        if self.base is not None:
            check_whole("base", self.base, 0, self.seq - 1)
        _check_length("entries", self.entries, MAX_ENTRIES)
        for entry in self.entries:
            if not isinstance(entry, tuple) or len(entry) != 2:
                raise ParameterError(f"an entry is {shown(entry)}; expected an item and its count")
            check_item(entry[0])
            check_count(f"the count of {entry[0]!r}", entry[1])
            if not entry[1]:
                raise ParameterError(f"the count of {entry[0]!r} is 0; expected more")
        if len({item for item, _ in self.entries}) < len(self.entries):
            raise ParameterError(
                f"entries has {len(self.entries)} items with repetitions; expected each once"
            )
        check_count("rest", self.rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(_Message):
    """The hub's request: the same for every source, except ``have``.

    Attributes:
        epoch: the hub's epoch, larger after each restart.
        serial: number of this request within the epoch.
        as_of: time of the open round. None before the first.
        floor: the hub requests all items with a count above this. None: no such request.
        least: number of a source's largest counts that the hub requests in any case.
        watched: items whose counts the hub requests, however small.
        have: (inc, seq) of the source's data at the hub in this round. None: nothing.

    Raises:
        ParameterError: a field is invalid.
    """

    epoch: int
    serial: int
    as_of: int | None
    floor: int | float | None
    least: int
    watched: tuple[Item, ...]
    have: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_whole("epoch", self.epoch)
        check_whole("serial", self.serial)
        if self.as_of is not None:
            check_whole("as_of", self.as_of, -MAX_NUMBER)
        if self.floor is not None:
            check_count("floor", self.floor)
        check_whole("least", self.least, 0, 2 * MAX_K)
        _check_length("watched", self.watched, MAX_WATCHED)
        for item in self.watched:
            check_item(item)
        if len(set(self.watched)) < len(self.watched):
            raise ParameterError(
                f"watched has {len(self.watched)} items with repetitions; expected each once"
            )
        _check_pair("have", self.have)

    @property
    def number(self) -> tuple[int, int]:
        """(epoch, serial)."""
        return self.epoch, self.serial


# ----------------------------------------------------------------------------------------- checks


def check_whole(name: str, value: object, low: int = 0, high: int = MAX_NUMBER) -> None:
    """Reject anything except an integer from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name} is {shown(value)}; expected an integer from {low} to {high}")


def check_count(name: str, value: object) -> None:
    """Reject anything except a finite number from 0 on, below 2^53."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MAX_NUMBER  # false for NaN, too
    ):
        raise ParameterError(
            f"{name} is {shown(value)}; expected a finite number from 0 to {MAX_NUMBER}"
        )


def check_item(item: object) -> None:
    """Reject anything except an integer within 2^53 or a text with 1 to MAX_ITEM_BYTES bytes."""
    if isinstance(item, str):
        _check_text("an item", item, MAX_ITEM_BYTES)
    else:
        check_whole("an item (if it is not a text)", item, -MAX_NUMBER)


def check_site(name: str, site: object) -> None:
    """Reject anything except a text with 1 to MAX_SITE_BYTES bytes."""
    if not isinstance(site, str):
        raise ParameterError(f"{name} is {shown(site)}; expected a text")
    _check_text(name, site, MAX_SITE_BYTES)


def _check_text(name: str, text: str, most: int) -> None:
    try:
        size = len(text.encode()) if len(text) <= most else len(text)
    except UnicodeEncodeError:
        raise ParameterError(f"{name} is {shown(text)}; expected valid UTF-8") from None
    if not 0 < size <= most:
        raise ParameterError(f"{name} is {shown(text)}, {size} bytes; expected 1 to {most}")


def _check_pair(name: str, pair: object) -> None:
    if pair is None:
        return
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ParameterError(f"{name} is {shown(pair)}; expected two numbers, or null")
    for each in pair:
        check_whole(name, each)


def _check_length(name: str, column: object, most: int) -> None:
    if not isinstance(column, tuple):
        raise ParameterError(f"{name} is {shown(column)}; expected a list")
    if len(column) > most:
        raise ParameterError(f"{name} has {len(column)} entries; expected at most {most}")


def fields_of(
    name: str, form: object, known: Sequence[str], needed: Sequence[str]
) -> Mapping[str, Any]:
    """Return a JSON object, which has all needed fields and no unknown one."""
    if not isinstance(form, Mapping):
        raise ParameterError(f"{name} is {shown(form)}; expected a JSON object")
    if unknown := [each for each in form if each not in known]:
        raise ParameterError(f"{name} has a field {shown(unknown[0])}; expected {known}")
    if missing := [each for each in needed if each not in form]:
        raise ParameterError(f"{name} has no field {missing[0]!r}; expected {needed}")
    return form


def shown(value: object) -> str:
    """Return a value as error messages show it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; lists within lists
        return "something too long to show"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _listed(value: Any) -> Any:
    """Tuples as lists."""
    return [_listed(each) for each in value] if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    """Return lists, and lists in them, as tuples. The code that reads deeper levels rejects
    them.
    """
    if not isinstance(value, list):
        return value
    return tuple(tuple(each) if isinstance(each, list) else each for each in value)
