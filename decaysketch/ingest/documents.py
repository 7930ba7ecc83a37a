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

from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo
from functools import cached_property
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from decaysketch.core.column_types import MAX_COLUMN_NAME_BYTES, ColumnTypes
from decaysketch.core.plausible_times import in_another_unit
from decaysketch.core.text_values import (
    Numerals,
    TextError,
    check_time_format,
    epoch_nanoseconds,
    integer_of,
    moment_of,
    number_of,
    zone_of,
)
from decaysketch.core.time_units import NANOSECONDS, length_of
from decaysketch.ingest.json_text import Repeated, parse, without_mark
from decaysketch.ingest.mapping import Map, Texts, shown
from decaysketch.ingest.paths import ABSENT, Here, Path
from decaysketch.ingest.readings import Parsed, Reading, RefusedError, SkippedError
from decaysketch.ingest.record_columns import EVERY, MAX_MEMBERS, ColumnValues, Filling

__all__ = [
    "ARRIVAL",
    "LORAWAN",
    "DocumentMap",
    "Frame",
    "Message",
    "Opened",
    "document_of",
    "moment",
    "object_of",
    "opened_or_told",
]

LORAWAN = "$lorawan"
"""In an id: device, session and counter of a LoRaWAN frame."""
ARRIVAL = "arrival"
"""As a time: when the message came here."""

_EACH_AT_MOST = 1000  # rows of one message
_EXACT = 1 << 53
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
        raise RefusedError(f"is {shown(root)}; expected a JSON object that has no name twice")
    return root


class Clock(NamedTuple):
    """The format of a mapping's times.

    Attributes:
        unit: of numbers; None: times are texts.
        zone: of texts that name none.
        format: of ``strptime``.
        check_units: whether a number that would be a date in another unit is rejected.
    """

    unit: str | None = None
    zone: tzinfo | None = None
    format: str | None = None
    check_units: bool = True


_ANY_CLOCK = Clock()


def moment(given: Any, name: str, clock: Clock = _ANY_CLOCK) -> int:
    """Return the nanoseconds since 1970-01-01 UTC for a time in a message.

    Args:
        given: a number or a text.
        name: for error messages.
        clock: the format of times.

    Raises:
        RefusedError: it is no time, or it has no zone.
    """
    kind = type(given)
    try:
        if clock.unit is not None:
            if kind is int or (kind is float and isfinite(given)):
                return _checked(given, name, clock)
            if kind is str and not _is_date(given):
                return _checked(number_of(given), name, clock, given)
        if kind is not str:
            wanted = (
                f"a number of {clock.unit}" if clock.unit else f"a text such as {_SUCH}; a number "
                "needs `time_unit` in the mapping"
            )  # fmt: skip
            raise RefusedError(f"{name} is {shown(given)}; expected {wanted}")
        found = moment_of(given, clock.zone, clock.format)
    except TextError as fault:
        raise RefusedError(f"{name} {fault}") from None
    if not found.zoned:
        raise RefusedError(
            f"{name} is {shown(given)}, which has no zone; expected a time with its zone, such as "
            f"{_SUCH}, or set `time_zone` in the mapping, such as 'Europe/Berlin' or 'UTC'"
        )
    return found.ns


def _is_date(text: str) -> bool:
    """Return whether a text is a date and not a number."""
    return any(each in text for each in "-:/") and "e-" not in text.lower()


def _checked(number: int | float, name: str, clock: Clock, text: str | None = None) -> int:
    """Return the nanoseconds for a number in the clock's unit.

    Raises:
        RefusedError: it would be a date in another unit.
    """
    unit = clock.unit
    assert unit is not None
    found = epoch_nanoseconds(number if text is None else text, unit)
    if clock.check_units and (other := in_another_unit(unit, found // NANOSECONDS[unit])):
        raise RefusedError(
            f"{name} is {shown(number)}, which does not look like {unit}{other}; set `time_unit`, "
            "or `check_units = false` if it is right"
        )
    return found


_SUCH = "'2026-01-31T12:00:00Z'"


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
    named_by: ClassVar = ("id", "field", "reset")
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
        default=None, description="Of `time` if it is a number; otherwise it is a text."
    )
    time_zone: str | None = Field(
        default=None,
        max_length=100,
        description="Of times that name no zone, such as `Europe/Berlin` or `UTC`. Without it they "
        "are refused.",
    )
    time_format: str | None = Field(
        default=None,
        max_length=100,
        description="Of times in another form than ISO 8601, in directives of strptime.",
    )
    check_units: bool = Field(
        default=True,
        description="Refuse a number that would be a date in another unit than `time_unit`.",
    )
    decimal: Literal[".", ","] = Field(
        default=".", description="Decimal mark of numbers that are written as text."
    )
    thousands: Literal["", ".", ",", " ", "'", "_"] = Field(
        default="", description="Separator of thousands of numbers that are written as text."
    )
    texts: dict[Annotated[str, Field(max_length=1000)], int | float | None] = Field(
        default={},
        max_length=100,
        description='Texts that are numbers, such as `{"ON": 1, "OFF": 0}`; null: no value.',
    )
    weight: _PathText | None = Field(default=None, description="Path of the weight; else 1.")
    where: dict[_PathText, _Scalar | _Scalars] = Field(
        default={},
        max_length=20,
        description="Paths, from the root, and what must stand there, or one of what. A path that "
        "begins with `@` is of the element of `each`.",
    )
    has: Texts = Field(
        default=(),
        description="Paths, from the root or from `@`, that must lead to something: messages "
        "without it are of another device or firmware, and skipped.",
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
            raise ValueError(f"reset is {text!r}; expected an hour at the least")
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
        Numerals(self.decimal, self.thousands).check()
        if self.labels and self.texts:
            raise ValueError("texts is given, and values are labels; expected none")
        if len(self.id or self.default_id) + 3 > _PARTS:
            raise ValueError(f"id has {len(self.id)} parts; expected at most {_PARTS - 3}")
        return self

    @cached_property
    def _paths(self) -> _Paths:
        ids = self.id or self.default_id
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
            tuple(None if text == LORAWAN else Path.of(text) for text in ids),
            None if self.time in (None, ARRIVAL) else Path.of(self.time),
            None if self.weight is None else Path.of(self.weight),
            tuple(each for each in where if not each[0].of_element),
            tuple(each for each in where if each[0].of_element),
            (place or "") if self.field is None else self.field,
            0 if self.reset is None else int(length_of("reset", self.reset)),
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
                f"{fault}; `decimal`, `texts` and `missing` of the mapping say how else a number "
                "is written"
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
            weight = _integer(paths.weight.find(here), paths.weight.text)
        time_ns = self._time(opened)
        key: list[str | int] = []
        for path in paths.id:
            if path is not None:
                key.append(_part(path.find(here), path.text))
                continue
            assert opened.frame is not None
            device, session, counter = opened.frame
            if paths.reset_ns:
                session = f"{session}/{time_ns // paths.reset_ns}"
            key += (device, session, counter)
        if paths.field:
            key.append(paths.field)
        return "", Reading(tuple(key), value, time_ns, weight, where)

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
                raise RefusedError("is an object that has a name twice")
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
            raise RefusedError("no gateway and no server says when the frame came")
        return opened.time_ns


_PARTS = 8  # of a key, of which a frame is three


_Condition = tuple[Path, frozenset[tuple[bool, Any]] | None]  # None: anything but null


class _Paths(NamedTuple):
    value: Path | None  # None: it reads columns
    columns: tuple[tuple[str, Path], ...]
    members: Path | None  # of an object with members that are columns
    each: Path | None
    id: tuple[Path | None, ...]  # None: the frame
    time: Path | None
    weight: Path | None
    where: tuple[_Condition, ...]
    where_element: tuple[_Condition, ...]
    field: str
    reset_ns: int


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
            f'the message is {shown(root)} and no object; set `value = "$"` to read it'
        )


def _holds(path: Path, options: frozenset[tuple[bool, Any]] | None, here: Here) -> bool:
    found = path.find(here, at_root=True)
    if options is None:
        return found is not ABSENT and found is not None
    return type(found) in _SCALARS and (type(found) is bool, found) in options


_SCALARS = frozenset({str, bool, int, float})


def _part(given: Any, name: str) -> str | int:
    """Return a part of an id. JSON writers that know floats alone write 7.0 for 7. A fraction, such
    as a time in seconds, becomes its shortest decimal, as text.
    """
    if type(given) is float and isfinite(given):
        is_whole = given.is_integer() and abs(given) <= _EXACT
        return int(given) if is_whole else repr(given)
    if given is ABSENT:
        raise RefusedError(f"there is no {name}, which the id needs")
    if type(given) not in (str, int) or given == "":
        raise RefusedError(f"{name} is {shown(given)}; an id is made of numbers and texts")
    part: str | int = given
    return part


def _integer(given: Any, name: str) -> int:
    if type(given) is float and given.is_integer() and abs(given) <= _EXACT:
        return int(given)
    if type(given) is str:
        try:
            return integer_of(given)
        except TextError as fault:
            raise RefusedError(f"{name} is the weight, and {fault}") from None
    if type(given) is not int:
        reason = "there is none" if given is ABSENT else f"it is {shown(given)}"
        raise RefusedError(f"{name} is the weight, and {reason}; expected an integer")
    return given


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
