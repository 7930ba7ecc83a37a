"""Readings of a JSON document: what the maps of ChirpStack, The Things Stack and plain JSON share.

A message is *opened* once, by its format, to an :class:`Opened`: the document, and what the format
knows of every message of its kind. Then each map *reads* it. A map whose ``where`` does not hold,
or whose value is nowhere in the message, skips it; whatever else is amiss is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from decaysketch.core.time_units import NANOSECONDS, instant, length_of
from decaysketch.errors import ParameterError
from decaysketch.ingest.json_text import parse
from decaysketch.ingest.mapping import Map, Texts, shown
from decaysketch.ingest.paths import ABSENT, Path
from decaysketch.ingest.readings import Parsed, Reading, RefusedError, SkippedError

__all__ = ["ARRIVAL", "LORAWAN", "DocumentMap", "Frame", "Message", "Opened", "document_of"]

LORAWAN = "$lorawan"
"""In an id: device, session and counter of a LoRaWAN frame."""
ARRIVAL = "arrival"
"""As a time: when the message came here."""

_EACH_AT_MOST = 1000  # rows of one message
_EXACT = 1 << 53
_Scalar = Annotated[str, Field(max_length=1000)] | bool | int | float
_Scalars = Annotated[tuple[_Scalar, ...], Field(strict=False, min_length=1, max_length=100)]


class Message(NamedTuple):
    """What came.

    Attributes:
        body: its bytes.
        topic: under which; empty: there was none.
        arrival_ns: when, since 1970-01-01 UTC; None: that says nothing, as of a file.
    """

    body: bytes
    topic: str = ""
    arrival_ns: int | None = None


class Frame(NamedTuple):
    """What names a LoRaWAN frame for ever: the counter begins anew with each session."""

    device: str
    session: str
    counter: int


class Opened(NamedTuple):
    """A message whose format knows it.

    Attributes:
        root: the document.
        message: whose it is.
        frame: of LoRaWAN.
        time_ns: of the frame, a text or ABSENT to be read when a map needs it.
        clocks: what gateways said the time was, by their names.
    """

    root: dict[str, Any]
    message: Message
    frame: Frame | None = None
    time_ns: int | None = None
    clocks: tuple[tuple[str, int], ...] = ()


def document_of(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. O(length).

    Raises:
        RefusedError: it is none.
    """
    try:
        root = parse(body.decode("utf-8"))
    except ValueError as error:
        raise RefusedError(f"not JSON: {error}") from None
    if type(root) is not dict:  # nor one that has a name twice
        raise RefusedError(f"is {shown(root)}; expected a JSON object that has no name twice")
    return root


def moment(given: Any, unit: str | None, what: str) -> int:
    """Nanoseconds since 1970-01-01 UTC of what a message has for a time.

    Args:
        given: a number of ``unit``; where that is None, a text of RFC 3339.
        what: for sentences.

    Raises:
        RefusedError: it is none.
    """
    if unit is None:
        if type(given) is not str:
            raise RefusedError(f"{what} is {shown(given)}; expected a text such as {_SUCH}")
        try:
            return instant(given, "ns", name=what)
        except (ParameterError, OverflowError):
            raise RefusedError(
                f"{what} is {shown(given)}; expected a time with its zone, such as {_SUCH}"
            ) from None
    if type(given) is int:
        return given * NANOSECONDS[unit]
    if type(given) is float and isfinite(given):  # as the decimal that was written
        return int(Fraction(repr(given)) * NANOSECONDS[unit] // 1)
    raise RefusedError(f"{what} is {shown(given)}; expected a number of {unit}")


_SUCH = "'2026-01-31T12:00:00Z'"


def _path(text: str) -> str:
    Path.of(text)
    return text


_PathText = Annotated[str, Field(max_length=1000)]


class DocumentMap(Map):
    """What of a JSON document is a reading.

    Paths are of :mod:`decaysketch.ingest.paths`. They begin at the root, and with ``each`` those of
    value, id, time and weight in an element of that array.
    """

    reads: ClassVar = ("value", "each")
    named_by: ClassVar = ("id", "field", "reset")
    default_id: ClassVar[tuple[str, ...]] = ()
    has_frames: ClassVar[bool] = False

    value: _PathText = Field(description="Path of the value, such as `object.temperature`.")
    each: _PathText | None = Field(
        default=None, description="Path of an array: each of its elements is a reading."
    )
    id: Texts = Field(
        default=(),
        description="Paths of what names a message, the same in all copies of it. `$lorawan`: "
        "device, session and counter of a frame, the default where there are frames.",
    )
    field: str | None = Field(
        default=None,
        max_length=200,
        description="The last part of every id: the path of the value, if not given; empty: none. "
        "Two maps of one stream that read the same message need different ones.",
    )
    time: _PathText | None = Field(
        default=None,
        description="Path of the time, or `arrival`. Of a frame, if not given: the earliest that a "
        "gateway with a clock says, else the network server's.",
    )
    time_unit: Literal["ns", "us", "ms", "s"] | None = Field(
        default=None, description="Of `time` if it is a number; otherwise it is text of RFC 3339."
    )
    weight: _PathText | None = Field(default=None, description="Path of the weight; else 1.")
    where: dict[_PathText, _Scalar | _Scalars] = Field(
        default={},
        max_length=20,
        description="Paths, from the root, and what must stand there, or one of what.",
    )
    topics: Texts = Field(
        default=(), description="Of a bridge: filters of MQTT, of which the topic matches one."
    )
    reset: str | None = Field(
        default=None,
        description="Of devices without sessions (ABP) whose counters begin anew now and then: the "
        "session has the number of the period of this length, such as `30d`, in it. Copies to "
        "either side of the end of a period count twice.",
    )

    @field_validator("value", "each", "time", "weight")
    @classmethod
    def _is_a_path(cls, text: str | None) -> str | None:
        return None if text is None else _path(text)

    @field_validator("id")
    @classmethod
    def _are_paths(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            if text != LORAWAN:
                _path(text)
        return texts

    @field_validator("where")
    @classmethod
    def _has_paths(cls, where: dict[str, Any]) -> dict[str, Any]:
        for text in where:
            _path(text)
        return where

    @field_validator("reset")
    @classmethod
    def _is_a_length(cls, text: str | None) -> str | None:
        if text is not None and length_of("reset", text) < NANOSECONDS["h"]:
            raise ValueError(f"reset is {text!r}; expected an hour at the least")
        return text

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.id and not self.default_id:
            raise ValueError("id is missing; expected the paths of what names a message")
        if not self.has_frames:
            if LORAWAN in self.id:
                raise ValueError(f"id has {LORAWAN!r}, and messages of this format have no frames")
            if self.time is None:
                raise ValueError(
                    "time is missing; expected its path, or 'arrival' where messages have none"
                )
        if self.reset is not None and LORAWAN not in (self.id or self.default_id):
            raise ValueError(f"reset is {self.reset!r}, and the id has no {LORAWAN!r}")
        if self.time_unit is not None and self.time in (None, ARRIVAL):
            raise ValueError(f"time_unit is {self.time_unit!r}, and time names no path")
        if len(self.id or self.default_id) + 3 > _PARTS:
            raise ValueError(f"id has {len(self.id)} parts; expected at most {_PARTS - 3}")
        return self

    @cached_property
    def _paths(self) -> _Paths:
        ids = self.id or self.default_id
        return _Paths(
            Path.of(self.value),
            None if self.each is None else Path.of(self.each),
            tuple(None if text == LORAWAN else Path.of(text) for text in ids),
            None if self.time in (None, ARRIVAL) else Path.of(self.time),
            None if self.weight is None else Path.of(self.weight),
            tuple((Path.of(text), _options(given)) for text, given in self.where.items()),
            self.value if self.field is None else self.field,
            0 if self.reset is None else int(length_of("reset", self.reset)),
        )

    @property
    def place_of_value(self) -> str:
        """Where in a message its value stands, or its values."""
        return self.value if self.each is None else f"{self.each}[].{self.value}"

    def read(self, opened: Opened, parsed: Parsed) -> None:
        """Add the readings of a message. O(its length)."""
        paths = self._paths
        try:
            if not all(_holds(path, options, opened) for path, options in paths.where):
                parsed.skip("where")
                return
            elements = self._elements(opened)
        except RefusedError as fault:
            parsed.refuse("where", str(fault))
            return
        if elements is None:
            parsed.skip("no value")
            return
        for number, here in enumerate(elements):
            where = self.value if self.each is None else f"{self.each}[{number}].{self.value}"
            try:
                reading = self._reading(opened, here, where)
            except RefusedError as fault:
                parsed.refuse(where, str(fault))
                continue
            if reading is None:
                parsed.skip("no value")
            else:
                parsed.readings.append(reading)

    def _elements(self, opened: Opened) -> list[Any] | None:
        each = self._paths.each
        if each is None:
            return [opened.root]
        found = each.find(opened.root, opened.root, opened.message.topic)
        if found is ABSENT or found is None:
            return None
        if type(found) is not list or len(found) > _EACH_AT_MOST:
            raise RefusedError(
                f"{self.each} is {shown(found)}; expected an array of at most {_EACH_AT_MOST}"
            )
        return found

    def _reading(self, opened: Opened, here: Any, where: str) -> Reading | None:
        paths, topic = self._paths, opened.message.topic
        given = paths.value.find(opened.root, here, topic)
        if given is ABSENT:
            return None
        value = self.value_of(given)
        weight = 1
        if paths.weight is not None:
            weight = _integer(paths.weight.find(opened.root, here, topic), paths.weight.text)
        time_ns = self._time(opened, here)
        key: list[str | int] = []
        for path in paths.id:
            if path is not None:
                key.append(_part(path.find(opened.root, here, topic), path.text))
                continue
            assert opened.frame is not None
            device, session, counter = opened.frame
            if paths.reset_ns:
                session = f"{session}/{time_ns // paths.reset_ns}"
            key += (device, session, counter)
        if paths.field:
            key.append(paths.field)
        return Reading(tuple(key), value, time_ns, weight, where)

    def _time(self, opened: Opened, here: Any) -> int:
        path = self._paths.time
        if path is not None:
            given = path.find(opened.root, here, opened.message.topic)
            if given is ABSENT:
                raise RefusedError(f"there is no {path.text}, which is the time")
            return moment(given, self.time_unit, path.text)
        if self.time is not None:  # of arrival
            if opened.message.arrival_ns is None:
                raise RefusedError("has no time of arrival; give the path of a time")
            return opened.message.arrival_ns
        if opened.time_ns is None:
            raise RefusedError("no gateway and no server says when the frame came")
        return opened.time_ns


_PARTS = 8  # of a key, of which a frame is three


class _Paths(NamedTuple):
    value: Path
    each: Path | None
    id: tuple[Path | None, ...]  # None: the frame
    time: Path | None
    weight: Path | None
    where: tuple[tuple[Path, frozenset[tuple[bool, Any]]], ...]
    field: str
    reset_ns: int


def _options(given: Any) -> frozenset[tuple[bool, Any]]:
    """Scalars as :func:`_holds` looks for them: 1 and 1.0 are the same, and true is neither."""
    return frozenset(
        (type(each) is bool, each) for each in (given if type(given) is tuple else (given,))
    )


def _holds(path: Path, options: frozenset[tuple[bool, Any]], opened: Opened) -> bool:
    found = path.find(opened.root, opened.root, opened.message.topic)
    return type(found) in _SCALARS and (type(found) is bool, found) in options


_SCALARS = frozenset({str, bool, int, float})


def _part(given: Any, name: str) -> str | int:
    """A part of an id; there are writers of JSON that know floats alone."""
    if type(given) is float and given.is_integer() and abs(given) <= _EXACT:
        return int(given)
    if given is ABSENT:
        raise RefusedError(f"there is no {name}, which the id needs")
    if type(given) not in (str, int) or given == "":
        raise RefusedError(f"{name} is {shown(given)}; an id is of integers and texts")
    part: str | int = given
    return part


def _integer(given: Any, name: str) -> int:
    if type(given) is float and given.is_integer() and abs(given) <= _EXACT:
        return int(given)
    if type(given) is not int:
        reason = "there is none" if given is ABSENT else f"it is {shown(given)}"
        raise RefusedError(f"{name} is the weight, and {reason}; expected an integer")
    return given


def opened_or_told(
    opening: Callable[[Message], Opened], message: Message, parsed: Parsed
) -> Opened | None:
    """A message, or None where ``parsed`` says what became of it."""
    try:
        return opening(message)
    except SkippedError as kind:
        parsed.skip(str(kind))
    except RefusedError as fault:
        parsed.refuse("message", str(fault))
    return None
