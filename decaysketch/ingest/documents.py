"""Readings of a JSON document: the common parts of the ChirpStack, The Things Stack and JSON
mappings.

The format *opens* a message once, to an :class:`Opened`: the document, and the facts that the
format has for every message of its kind. Then each mapping *reads* it. A mapping skips the message
if its ``where`` or ``has`` does not match, or if the message has no value. It rejects any other
fault.

In a stream with columns, a mapping makes one observation from the message, or from each element.
``columns`` are paths by column name, or ``object.*``: all members, with dots between nested names.
In a mapping by name, ``"*"`` has such a path too.

A number may be written in quotes. :mod:`decaysketch.core.text_values` reads it, as in files, and
also reads times. A time without a zone is rejected unless the mapping names the zone, because a
wrong zone could not be corrected later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from decaysketch.core.column_types import MAX_COLUMN_NAME_BYTES, MAX_COLUMNS, ColumnTypes
from decaysketch.core.text_values import (
    Numerals,
    TextError,
    check_time_format,
    number_of,
    zone_of,
)
from decaysketch.core.time_units import NANOSECONDS, length_of
from decaysketch.ingest.document_values import Clock, attribute_text, integer, key_part, moment
from decaysketch.ingest.json_text import Repeated, parse, without_mark
from decaysketch.ingest.mapping import Map, Text, Texts, shown
from decaysketch.ingest.paths import ABSENT, Here, Path
from decaysketch.ingest.readings import (
    Parsed,
    Reading,
    RefusedError,
    SeriesPart,
    SkippedError,
)
from decaysketch.ingest.record_columns import EVERY, MAX_MEMBERS, ColumnValues, Filling

__all__ = [
    "ARRIVAL",
    "DEVICE",
    "LORAWAN",
    "DocumentMap",
    "Frame",
    "Message",
    "Opened",
    "document_of",
    "object_of",
    "opened_or_told",
]

LORAWAN = "$lorawan"
"""In an id: device, session and counter of a LoRaWAN frame."""
DEVICE = "$device"
"""In an id or entity: the device of a LoRaWAN frame."""
ARRIVAL = "arrival"
"""As a time: when the message came here."""

_EACH_AT_MOST = 1000  # rows of one message
_MEMBERS = ".*"
_HERE = "@"
_Scalar = Annotated[str, Field(max_length=1000)] | bool | int | float
_Scalars = Annotated[tuple[_Scalar, ...], Field(strict=False, min_length=1, max_length=100)]


class Message(NamedTuple):
    """A message as it arrived.

    Attributes:
        body: its bytes.
        topic: its topic; empty: there was none.
        arrival_ns: arrival time, since 1970-01-01 UTC; None: it has no meaning, as in a file.
    """

    body: bytes
    topic: str = ""
    arrival_ns: int | None = None


class Frame(NamedTuple):
    """The parts that name a LoRaWAN frame for ever. The counter begins again with each session."""

    device: str
    session: str
    counter: int


class Opened(NamedTuple):
    """A message that its format has recognised.

    Attributes:
        here: the document and the topic.
        message: the message itself.
        frame: of LoRaWAN.
        time_ns: of the frame; None: there is none.
        clocks: the times that gateways reported, by their names.
        off: gateways whose time was not used, with the time as they wrote it.
    """

    here: Here
    message: Message
    frame: Frame | None = None
    time_ns: int | None = None
    clocks: tuple[tuple[str, int], ...] = ()
    off: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> Any:
        """The document."""
        return self.here.root


def document_of(body: bytes) -> Any:
    """Parse a body as a JSON document. O(length).

    Raises:
        RefusedError: it is none.
    """
    try:
        return parse(without_mark(body).decode("utf-8"))
    except ValueError as error:
        raise RefusedError(f"not JSON: {error}") from None


def object_of(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object. O(length).

    Raises:
        RefusedError: it is none.
    """
    root = document_of(body)
    if type(root) is not dict:  # nor one that has a name twice
        raise RefusedError(f"is {shown(root)}; expected a JSON object without repeated names")
    return root


def _path(text: str) -> str:
    Path.of(text)
    return text


_PathText = Annotated[str, Field(max_length=1000)]


class DocumentMap(Map):
    """The part of a JSON document that is a reading.

    :mod:`decaysketch.ingest.paths` defines paths. They begin at the root. With ``each``, the paths
    of value, id, time and weight begin at an element of that array or object.
    """

    reads: ClassVar = ("value", "each")
    named_by: ClassVar = ("id", "field", "reset", "entity")
    default_id: ClassVar[tuple[str, ...]] = ()
    has_frames: ClassVar[bool] = False

    value: _PathText | None = Field(
        default=None,
        description="Path of the value, such as `object.temperature`. Absent if `columns` is "
        "given: paths by column name, or `object.*`, the members of an object.",
    )
    each: _PathText | None = Field(
        default=None,
        description="Path of an array or object: each of its elements is a reading. `$`: the "
        "message itself.",
    )
    id: Texts = Field(
        default=(),
        description="Paths of the values that identify a message, the same in all its "
        "duplicates. `$lorawan`: device, session and counter of a frame, the default "
        "for frames. `$device`: its device, the default if `kind` is given.",
    )
    entity: Texts = Field(
        default=(),
        description="In the family `series`: paths that name the device to which several series "
        "belong. Default: a frame's device, otherwise each series.",
    )
    start: _PathText | None = Field(
        default=None,
        description="In the family `series`: path of the time at which the counter began, in the "
        "form of `time`. Absent or null: unknown.",
    )
    attributes: dict[Text, _PathText] = Field(
        default={},
        max_length=MAX_COLUMNS,
        description="In the family `series`: paths of texts, by attribute name.",
    )
    field: str | None = Field(
        default=None,
        max_length=200,
        description="The last part of every id. Default: the path of the value. Empty: none. Two "
        "mappings of one stream that read the same message need different ones.",
    )
    time: _PathText | None = Field(
        default=None,
        description="Path of the time, or `arrival`. Default for a frame: the earliest time from "
        "a gateway with a clock, else the network server's time.",
    )
    time_unit: Literal["ns", "us", "ms", "s"] | None = Field(
        default=None, description="Unit of a number in `time`. Other times are texts."
    )
    time_zone: str | None = Field(
        default=None,
        max_length=100,
        description="Zone of times without one, such as `Europe/Berlin` or `UTC`. Without it, "
        "such times are rejected.",
    )
    time_format: str | None = Field(
        default=None,
        max_length=100,
        description="Format of times that are not ISO 8601, in strptime directives.",
    )
    check_units: bool = Field(
        default=True,
        description="Reject a number that would be a date in another unit than `time_unit`.",
    )
    decimal: Literal[".", ","] = Field(
        default=".", description="Decimal mark in numbers that are texts."
    )
    thousands: Literal["", ".", ",", " ", "'", "_"] = Field(
        default="", description="Thousands separator in numbers that are texts."
    )
    texts: dict[Annotated[str, Field(max_length=1000)], int | float | None] = Field(
        default={},
        max_length=100,
        description='Texts that are numbers, such as `{"ON": 1, "OFF": 0}`; null: no value.',
    )
    weight: _PathText | None = Field(
        default=None, description="Path of the weight. Default: weight 1."
    )
    where: dict[_PathText, _Scalar | _Scalars] = Field(
        default={},
        max_length=20,
        description="Paths from the root with their required values, one or a list. A path that "
        "begins with `@` starts at the element of `each`.",
    )
    has: Texts = Field(
        default=(),
        description="Paths, from the root or from `@`, that must exist. A message without one of "
        "them is from another device or firmware, and is skipped.",
    )
    topics: Texts = Field(
        default=(),
        description="For a bridge: MQTT topic filters. The topic must match one of them.",
    )
    reset: str | None = Field(
        default=None,
        description="For devices without sessions (ABP) whose counters restart now and then: the "
        "session includes the number of the period of this length, such as `30d`. "
        "Duplicates on both sides of a period's end count twice.",
    )

    @field_validator("value", "each", "time", "weight", "start")
    @classmethod
    def _is_a_path(cls, text: str | None) -> str | None:
        return None if text is None else _path(text)

    @field_validator("id", "entity")
    @classmethod
    def _are_paths(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            if text not in _OF_FRAMES:
                _path(text)
        return texts

    @field_validator("attributes")
    @classmethod
    def _leads_to_texts(cls, paths: dict[str, str]) -> dict[str, str]:
        for text in paths.values():
            _path(text)
        return paths

    @field_validator("has")
    @classmethod
    def _has_only_paths(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            _path(text)
        return texts

    @field_validator("time_zone")
    @classmethod
    def _is_a_zone(cls, text: str | None) -> str | None:
        if text is not None:
            zone_of(text)
        return text

    @field_validator("time_format")
    @classmethod
    def _is_a_format(cls, text: str | None) -> str | None:
        return None if text is None else check_time_format(text)

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
            raise ValueError(f"reset is {text!r}; expected at least an hour")
        return text

    @model_validator(mode="after")
    def _reads_values_or_columns(self) -> Self:
        if self.columns is None:
            if self.place is None:
                raise ValueError("value is missing; expected its path, or columns")
            return self
        if self.value is not None:
            raise ValueError(f"value is {self.value!r}, and columns is given; expected one")
        if not isinstance(self.columns, str | Mapping):
            raise ValueError(
                f"columns is {list(self.columns)!r:.80}; expected paths by column name, or the "
                "members of an object, such as 'object.*'"
            )
        for text in self.column_paths.values():
            _path(text)
        if self.members is not None and self.members != EVERY:
            if not self.members.endswith(_MEMBERS):
                raise ValueError(
                    f"columns is {self.members!r:.80}; expected paths by column name, or the "
                    "members of an object, such as 'object.*'"
                )
            _path(self.members.removesuffix(_MEMBERS))
        return self

    @property
    def place(self) -> str | None:
        """The path of the value, if the mapping reads one."""
        return self.value

    @property
    def column_paths(self) -> Mapping[str, str]:
        """Paths by column name."""
        given = self.columns if isinstance(self.columns, Mapping) else {}
        return {name: text for name, text in given.items() if name != EVERY}

    @property
    def members(self) -> str | None:
        """The object with members that are columns, such as ``object.*``."""
        if isinstance(self.columns, Mapping):
            return self.columns.get(EVERY)
        return self.columns if isinstance(self.columns, str) else None

    def check_fills(self, types: ColumnTypes) -> None:
        """Raises ParameterError: likewise."""
        Filling(tuple(self.column_paths), types)

    @property
    def id_paths(self) -> tuple[str, ...]:
        """Paths in the id: the given ones, or those of the format."""
        if self.id or self.kind is None or not self.has_frames:
            return self.id or self.default_id
        return (DEVICE,)

    @property
    def entity_paths(self) -> tuple[str, ...]:
        """Paths that name the entity. None: each series is one."""
        framed = self.has_frames and DEVICE in self.id_paths
        return self.entity or ((DEVICE,) if framed else ())

    @property
    def of_series(self) -> Mapping[str, Any]:
        """Likewise."""
        names = ("kind", "start", "entity", "attributes")
        return {name: given for name in names if (given := getattr(self, name))}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.id_paths:
            raise ValueError(
                "id is missing; expected the paths of the values that identify a message"
            )
        if LORAWAN in self.entity:
            raise ValueError(f"entity has {LORAWAN!r}, which names a frame; expected {DEVICE!r}")
        if not self.has_frames:
            for name, given in (("id", self.id), ("entity", self.entity)):
                for text in _OF_FRAMES.intersection(given):
                    raise ValueError(
                        f"{name} has {text!r}, and messages of this format have no frames"
                    )
            if self.time is None:
                raise ValueError(
                    "time is missing; expected its path, or 'arrival' if messages have no time"
                )
        if self.reset is not None and LORAWAN not in self.id_paths:
            raise ValueError(f"reset is {self.reset!r}, and the id has no {LORAWAN!r}")
        if self.time_unit is not None and self.time in (None, ARRIVAL) and self.start is None:
            raise ValueError(f"time_unit is {self.time_unit!r}, and time names no path")
        Numerals(self.decimal, self.thousands).check()
        if self.labels and self.texts:
            raise ValueError("texts is given, and values are labels; expected no texts")
        if len(self.id_paths) + 3 > _PARTS:
            raise ValueError(f"id has {len(self.id)} parts; expected at most {_PARTS - 3}")
        return self

    @cached_property
    def _paths(self) -> _Paths:
        where: list[_Condition] = [
            (Path.of(text), _options(given)) for text, given in self.where.items()
        ]
        where += [(Path.of(text), None) for text in self.has]
        place, members = self.place, self.members
        inside = None if members is None else members.removesuffix(EVERY).removesuffix(".")
        return _Paths(
            None if place is None else Path.of(place),
            tuple((name, Path.of(text)) for name, text in self.column_paths.items()),
            None if inside is None else Path.of(inside or _HERE),
            None if self.each is None else Path.of(self.each),
            tuple(text if text in _OF_FRAMES else Path.of(text) for text in self.id_paths),
            None if self.time in (None, ARRIVAL) else Path.of(self.time),
            None if self.weight is None else Path.of(self.weight),
            tuple(each for each in where if not each[0].of_element),
            tuple(each for each in where if each[0].of_element),
            (place or "") if self.field is None else self.field,
            0 if self.reset is None else int(length_of("reset", self.reset)),
            None if self.start is None else Path.of(self.start),
            tuple(text if text in _OF_FRAMES else Path.of(text) for text in self.entity_paths),
            tuple((name, Path.of(text)) for name, text in self.attributes.items()),
        )

    @cached_property
    def _clock(self) -> Clock:
        zone = None if self.time_zone is None else zone_of(self.time_zone)
        return Clock(self.time_unit, zone, self.time_format, self.check_units)

    def value_of(self, given: Any) -> Any:
        """:meth:`Map.value_of`, also for numbers written as text."""
        if type(given) is not str or self.labels or given in self.missing:
            return super().value_of(given)
        if given in self.texts:
            return super().value_of(self.texts[given])
        try:
            return super().value_of(number_of(given, Numerals(self.decimal, self.thousands)))
        except TextError as fault:
            raise RefusedError(
                f"{fault}; `decimal`, `texts` and `missing` of the mapping describe other number "
                "formats"
            ) from None

    @property
    def place_of_value(self) -> str:
        """The path of the value, or values, in a message."""
        return self._named(self._place, "")

    @cached_property
    def _place(self) -> str:
        """The paths that it reads, for messages."""
        if self.place is not None:
            return self.place
        return self.members or next(iter(self.column_paths.values()))

    def _named(self, path: str, key: Any) -> str:
        return path if self.each is None else f"{self.each}[{key}].{path}"

    def read(self, opened: Opened, parsed: Parsed) -> None:
        """Add the readings in a message. O(its length)."""
        paths, here = self._paths, opened.here
        try:
            _check_root(here.root, paths)
            if not all(_holds(path, options, here) for path, options in paths.where):
                parsed.skip("where")
                return
            elements = self._elements(here)
        except RefusedError as fault:
            parsed.refuse("where", str(fault))
            return
        if elements is None:
            parsed.skip("no value")
            return
        for key, element in elements:
            here.element, here.key = element, key
            where = self._named(self._place, key)
            try:
                word, reading = self._reading(opened, where)
            except RefusedError as fault:
                parsed.refuse(where, str(fault))
                continue
            if reading is None:
                parsed.skip(word)
            else:
                parsed.readings.append(reading)

    def _elements(self, here: Here) -> Iterable[tuple[Any, Any]] | None:
        """Return elements with their keys. None: there are none."""
        each = self._paths.each
        here.element, here.key = here.root, ABSENT
        if each is None:
            return [(ABSENT, here.root)]
        found = each.find(here)
        if type(found) is str:
            found = here.document_in(found, each.text)
        if found is ABSENT or found is None:
            return None
        if type(found) not in (list, dict) or len(found) > _EACH_AT_MOST:
            raise RefusedError(
                f"{self.each} is {shown(found)}; expected an array or object of at most "
                f"{_EACH_AT_MOST}"
            )
        return found.items() if type(found) is dict else enumerate(found)

    def _reading(self, opened: Opened, where: str) -> tuple[str, Reading | None]:
        """Return a reading, or the word under which the element is skipped."""
        paths, here = self._paths, opened.here
        if not all(_holds(path, options, here) for path, options in paths.where_element):
            return "where", None
        value = self._columns(here) if paths.value is None else paths.value.find(here)
        if value is ABSENT:
            return "no value", None
        if paths.value is not None:
            value = self.value_of(value)
        weight = 1
        if paths.weight is not None:
            weight = integer(paths.weight.find(here), paths.weight.text)
        time_ns = self._time(opened)
        key = [*self._key(paths.id, opened, time_ns), *([paths.field] if paths.field else [])]
        return "", Reading(tuple(key), value, time_ns, weight, where, self._series(opened, time_ns))

    def _key(
        self, parts: Sequence[Path | str], opened: Opened, time_ns: int
    ) -> Iterable[str | int]:
        """Yield the parts of a key, at paths and from the frame."""
        for path in parts:
            if isinstance(path, Path):
                yield key_part(path.find(opened.here), path.text)
                continue
            assert opened.frame is not None
            device, session, counter = opened.frame
            yield device
            if path == LORAWAN:
                period = self._paths.reset_ns
                yield f"{session}/{time_ns // period}" if period else session
                yield counter

    def _series(self, opened: Opened, time_ns: int) -> SeriesPart | None:
        """Return the columns that only series have. None: the mapping reads none."""
        paths, here = self._paths, opened.here
        if paths.start is None and not paths.entity and not paths.attributes:
            return None
        start_ns = None
        if paths.start is not None:
            given = paths.start.find(here)
            if given is not ABSENT and given is not None:
                start_ns = moment(given, paths.start.text, self._clock)
        entity = tuple(self._key(paths.entity, opened, time_ns)) if paths.entity else None
        texts = {
            name: attribute_text(path.find(here), path.text) for name, path in paths.attributes
        }
        found = {name: text for name, text in texts.items() if text is not None}
        return SeriesPart(start_ns, entity, found)

    def _columns(self, here: Here) -> Any:
        """Return values by column. ABSENT if the message has none."""
        paths = self._paths
        values: dict[str, Any] = {}
        beyond = 0
        if paths.members is not None:
            found = paths.members.find(here)
            if type(found) is str:
                found = here.document_in(found, paths.members.text)
            if type(found) is Repeated:
                raise RefusedError("is an object with a repeated name")
            if type(found) is dict:
                beyond = _flatten(found, "", values)
        for name, path in paths.columns:
            if (given := path.find(here)) is not ABSENT:
                values[name] = given
        if not values:
            return ABSENT
        if self.missing:
            values = {name: self.present(given) for name, given in values.items()}
        return ColumnValues(values, self._number_of, beyond)

    def _number_of(self, text: str) -> Any:
        """Return a number that is written as text. None: there is none.

        Raises:
            TextError: it is no number.
        """
        if text in self.texts:
            return self.texts[text]
        return number_of(text, Numerals(self.decimal, self.thousands))

    def _time(self, opened: Opened) -> int:
        path = self._paths.time
        if path is not None:
            given = path.find(opened.here)
            if given is ABSENT or given is None:
                raise RefusedError(f"there is no {path.text}, which is the time")
            return moment(given, path.text, self._clock)
        if self.time is not None:  # of arrival
            if opened.message.arrival_ns is None:
                raise RefusedError("has no time of arrival; give the path of a time")
            return opened.message.arrival_ns
        if opened.time_ns is None:
            raise RefusedError("no gateway and no server gives a time for the frame")
        return opened.time_ns


_PARTS = 8  # of a key, of which a frame is three
_OF_FRAMES = frozenset({LORAWAN, DEVICE})


_Condition = tuple[Path, frozenset[tuple[bool, Any]] | None]  # None: anything but null


class _Paths(NamedTuple):
    value: Path | None  # None: it reads columns
    columns: tuple[tuple[str, Path], ...]
    members: Path | None  # of an object with members that are columns
    each: Path | None
    id: tuple[Path | str, ...]  # a text: of the frame
    time: Path | None
    weight: Path | None
    where: tuple[_Condition, ...]
    where_element: tuple[_Condition, ...]
    field: str
    reset_ns: int
    start: Path | None
    entity: tuple[Path | str, ...]
    attributes: tuple[tuple[str, Path], ...]


def _options(given: Any) -> frozenset[tuple[bool, Any]]:
    """Return scalars in the form that :func:`_holds` expects: 1 and 1.0 are equal, and true equals
    neither.
    """
    return frozenset(
        (type(each) is bool, each) for each in (given if type(given) is tuple else (given,))
    )


def _flatten(given: dict[str, Any], before: str, values: dict[str, Any]) -> int:
    """Add members to values, nested ones by names with dots. Count members that are too many, or
    too long to name a column. O(members).
    """
    beyond = 0
    waiting = [(before, given)]
    while waiting:
        prefix, here = waiting.pop()
        for name, value in here.items():
            if len(values) >= MAX_MEMBERS or len(prefix) + len(name) > MAX_COLUMN_NAME_BYTES:
                beyond += 1
            elif type(value) is dict:
                waiting.append((f"{prefix}{name}.", value))
            else:
                values[f"{prefix}{name}"] = value
    return beyond


def _check_root(root: Any, paths: _Paths) -> None:
    """Raises RefusedError: the mapping reads members, and the message has none."""
    first = paths.value if paths.each is None else paths.each
    if first is None:
        first = paths.members or paths.columns[0][1]
    if type(root) is dict or first.begins not in ("", "root") or not first.parts:
        return
    if type(root) is list:
        if type(first.parts[0]) is str:
            raise RefusedError('the message is an array; set `each = "$"` to read its elements')
    elif type(root) is not str or root.lstrip()[:1] not in ("{", "["):
        raise RefusedError(
            f'the message is {shown(root)}, not an object; set `value = "$"` to read it'
        )


def _holds(path: Path, options: frozenset[tuple[bool, Any]] | None, here: Here) -> bool:
    found = path.find(here, at_root=True)
    if options is None:
        return found is not ABSENT and found is not None
    return type(found) in _SCALARS and (type(found) is bool, found) in options


_SCALARS = frozenset({str, bool, int, float})


def opened_or_told(
    opening: Callable[[Message], Opened], message: Message, parsed: Parsed
) -> Opened | None:
    """Return an opened message. None: ``parsed`` contains the reason."""
    try:
        return opening(message)
    except SkippedError as kind:
        parsed.skip(str(kind))
    except RefusedError as fault:
        parsed.refuse("message", str(fault))
    return None
