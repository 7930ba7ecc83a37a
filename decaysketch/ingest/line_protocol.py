r"""Influx line protocol: ``weather,site=ward temp=21.5,hum=40i 1700000000000000000``.

A measurement, tags, fields and a time. A map names the measurement and the field whose values are
readings. Such a reading is known by

    the series (the measurement and the tags in order of their names, written as the protocol writes
    them, but for tags that are left out), the name of the field, and the time in nanoseconds,

before it is rounded to anything: a line that is sent again is the same reading. Two collectors of
one source add tags of their own, and these have to be left out (``drop_tags``); a tag that says
which machine a reading is of, as ``host`` does of Telegraf's cpu, has to stay. What collectors
stamp by themselves is one reading for each period (``dedup``), the latest of it.

Grammar
    In names and tags a backslash before a comma, a space or (but for a measurement) ``=`` takes its
    meaning from it; any other backslash is one. A quoted text may have line ends in it. Fields that
    no map names are not looked into, nor are lines of measurements that no map names.
Two ways
    Lines without backslashes and quotes are split by the functions of bytes, some hundred of them
    together (:func:`_plain`). Whatever they do not fit is read by the grammar (:func:`_careful`),
    to the same readings.

Time is linear, a line of more than MAX_LINE_BYTES is refused, what is known of series is let go of
where there are very many, and the texts of series are counted before they are made
(:class:`~decaysketch.ingest.series.SeriesTexts`). Nothing raises for what a stranger sends but
:class:`~decaysketch.ingest.readings.UnreadableError`, of a body of which nearly nothing is sound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from math import isfinite
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from decaysketch.ingest.mapping import Texts, shown
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError, Steps, UnreadableError, finished
from decaysketch.ingest.series import (
    MOST_TEXT_BYTES,
    Name,
    Plans,
    SeriesIndex,
    SeriesMap,
    SeriesTexts,
)

__all__ = ["MAX_LINE_BYTES", "PRECISIONS", "LineMap", "parse", "steps"]

MAX_LINE_BYTES = 1 << 16

#: Nanoseconds of the units in which senders may have their times.
PRECISIONS = {
    "n": 1, "ns": 1, "u": 1_000, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000,
    "m": 60_000_000_000, "h": 3_600_000_000_000,
}  # fmt: skip

_TOGETHER = 8 << 10  # bytes of lines that are split together
_MOST_REFUSED = 100_000  # of one body


class LineMap(SeriesMap):
    """A reading of line protocol."""

    reads: ClassVar = ("measurement", "value")
    named_by: ClassVar = ("drop_tags", "id_tags", "id_fields", "dedup")

    format: Literal["influx"] = Field(description="Influx line protocol.")
    measurement: Name = Field(description="Of the lines that are read.")
    value: Name = Field(description="Name of the field whose values these are.")
    id_tags: Texts | None = Field(
        default=None, description="The only tags that are part of an id; all, if not given."
    )
    drop_tags: Texts = Field(
        default=(),
        description="Tags that are no part of an id: those that name the collector and not what is "
        "measured. In the cpu, mem and disk of Telegraf `host` is what is measured: without it all "
        "machines are one.",
    )
    id_fields: Texts = Field(
        default=(),
        description="Fields that name a reading in place of the time, such as the number of a "
        "message; with `dedup` beside the period.",
    )
    weight: Name | None = Field(default=None, description="Name of a field; else 1.")

    @model_validator(mode="after")
    def _chooses_tags_once(self) -> Self:
        if self.id_tags is not None and self.drop_tags:
            raise ValueError(
                f"id_tags is {list(self.id_tags)} and drop_tags {list(self.drop_tags)}; "
                "expected one of them"
            )
        return self

    @property
    def series_name(self) -> str:
        """The measurement."""
        return self.measurement

    @cached_property
    def begin(self) -> str:
        """How the text of every id begins: the measurement, as the protocol writes it."""
        return _MEASUREMENT_SPECIAL.sub(r"\\\g<0>", self.measurement)

    @cached_property
    def dropped(self) -> frozenset[str]:
        """``drop_tags``."""
        return frozenset(self.drop_tags)

    @cached_property
    def kept(self) -> tuple[str, ...] | None:
        """``id_tags`` in order."""
        return None if self.id_tags is None else tuple(sorted(set(self.id_tags)))


class _Tags:
    """The tags of a line, written once as the protocol writes them, for all mappings."""

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._written = {name: f",{_escaped(name)}={_escaped(tags[name])}" for name in sorted(tags)}
        self._length = sum(map(len, self._written.values()))

    def series(self, of: LineMap, texts: SeriesTexts) -> str:
        """The text of the id for a mapping: no two series have the same.

        Raises:
            RefusedError: it is too long, or those of the body are together.
        """
        written = self._written
        if of.kept is not None:
            return texts.checked(of.begin, *[written[name] for name in of.kept if name in written])
        left_out = sum(len(written[name]) for name in of.dropped if name in written)
        texts.check(len(of.begin) + self._length - left_out)
        kept = [text for name, text in written.items() if name not in of.dropped]
        return texts.checked(of.begin, *kept)


def parse(
    body: bytes,
    maps: Iterable[LineMap] | SeriesIndex[LineMap],
    precision_ns: int = 1,
    most: int | None = None,
) -> Points:
    """The readings of a body, by maps of one stream. O(length).

    Args:
        body: any bytes.
        maps: of the stream; as an index, where there are several bodies.
        precision_ns: of the unit that times are in.
        most: where there are more readings than this, some are left out and still more are given
            than this.

    Raises:
        UnreadableError: more is refused than any list is made of, or series have more text than
            may be.
    """
    return finished(steps(body, maps, precision_ns, most))


def steps(
    body: bytes,
    maps: Iterable[LineMap] | SeriesIndex[LineMap],
    precision_ns: int = 1,
    most: int | None = None,
) -> Steps[Points]:
    """The same, in steps of a few milliseconds."""
    read = _Reader(SeriesIndex.of(maps), precision_ns)
    at, number = 0, 1
    while at < len(body) and (most is None or len(read.points) <= most):
        end = len(body)
        if at + _TOGETHER < end:
            end = body.rfind(b"\n", at, at + _TOGETHER)
            if end < 0:
                end = body.find(b"\n", at)
            if end < 0:
                end = len(body)
        yield
        if _plain(read, body[at:end], number):
            number += body.count(b"\n", at, end) + 1
            at = end + 1
            read.check_texts()
            continue
        while at <= end and at < len(body):
            begin, at = at, _careful(read, body, at, number)
            number += body.count(b"\n", begin, at)
            read.check_texts()
        if read.points.told.refusals > _MOST_REFUSED:
            raise UnreadableError(
                f"more than {_MOST_REFUSED} lines are refused, the first for this: "
                f"{': '.join(read.points.told.refused[0])}"
            )
    return read.points


@dataclass(slots=True)
class _Wanted:
    """A field of a series that a map reads.

    Attributes:
        map: of the stream.
        series: text of the id.
        period_ns: of which there is one reading.
        code: among the readings; -1: it has none yet.
        fault: why the map cannot read the series; empty: it can.
    """

    map: LineMap
    series: str
    period_ns: int
    code: int = -1
    fault: str = ""

    def coded(self, points: Points) -> int:
        """Its code."""
        if self.code < 0:
            self.code = points.enter(self.series, self.map.value)
        return self.code


@dataclass
class _Plan:
    """What to do with the lines of a series.

    Attributes:
        wanted: by the name of the field.
        plain: whether :func:`_plain` can.
        named: whether a map names the measurement.
        elsewhere: so many maps want other tags.
    """

    wanted: dict[bytes, list[_Wanted]] = field(default_factory=dict)
    plain: bool = True
    named: bool = False
    elsewhere: int = 0


class _Reader:
    """Readings so far, and what is known of the series that were seen."""

    def __init__(self, index: SeriesIndex[LineMap], precision_ns: int) -> None:
        self.points = Points()
        self.precision_ns = precision_ns
        self.plans: Plans[bytes, _Plan] = Plans()
        self._faults: dict[str, str] = {}
        self._index = index
        self._texts = SeriesTexts()

    def check_texts(self) -> None:
        """Raises UnreadableError: the texts of the series are too long together. To go on would
        refuse every line that follows, at a cost for each mapping."""
        if self._texts.full:
            raise UnreadableError(
                f"the names of the series of the body take more than {MOST_TEXT_BYTES} bytes of "
                "memory together; send fewer lines at a time"
            )

    def plan(self, head: bytes) -> _Plan:
        """Of a measurement with its tags, as they are written.

        Raises:
            RefusedError: it is none.
        """
        found = self.plans.get(head)
        if found is None:
            found = self._planned(head)
            self.plans.keep(head, found, sum(map(len, found.wanted.values())))
        return found

    def _planned(self, head: bytes) -> _Plan:
        name = _MEASUREMENT.match(head)
        if name is None or head.startswith(b"#"):
            raise RefusedError("there is no measurement")
        readers = self._index.readers(
            _MEASUREMENT_ESCAPE.sub(r"\1", _text(name[0], "the measurement"))
        )
        plan = _Plan(named=readers is not None)
        if readers is None:
            return plan
        tags = _tags(head, name.end())
        chosen = readers.wanting(tags)
        plan.elsewhere = len(readers.maps) - len(chosen)
        written = _Tags(tags) if chosen else None
        for each in chosen:
            assert written is not None
            wanted = _Wanted(each, "", each.period_ns)
            try:
                wanted.series = written.series(each, self._texts)
            except RefusedError as fault:
                wanted.fault = self._faults.setdefault(str(fault), str(fault))
            plan.wanted.setdefault(each.value.encode("utf-8"), []).append(wanted)
            plan.plain &= not (each.id_fields or each.weight or wanted.fault)
        return plan

    def skip(self, plan: _Plan, lines: int = 1) -> None:
        """Count what is skipped of lines of a series whatever fields they have."""
        if not plan.named:
            self.points.told.skip("measurement", lines)
        if plan.elsewhere:
            self.points.told.skip("where", plan.elsewhere * lines)


def _tags(head: bytes, at: int) -> dict[str, str]:
    """The tags of a line, which begin at a byte of its head.

    Raises:
        RefusedError: they are none, or one is there twice.
    """
    tags: dict[str, str] = {}
    while at < len(head):
        tag = _TAG.match(head, at)
        if tag is None:
            raise RefusedError(f"is no tag: {shown(head[at:])}; expected ',name=value'")
        key = _unescaped(tag[1], "a tag")
        if key in tags:
            raise RefusedError(f"tag {shown(key)} is there twice")
        tags[key] = _unescaped(tag[2], "a tag")
        at = tag.end()
    return tags


# ------------------------------------------------------------------------------------- many lines

_NEVER_PLAIN = (b"\\", b'"', b"\r", b"=,", b",=", b"= ", b" =", b"=\n", b", ", b" ,", b",,")
_DIGITS = b"0123456789"
_LONGEST_TIME = 20


def _plain(read: _Reader, text: bytes, number: int) -> bool:
    """Add the readings of lines, the last one without its end; False, and nothing is changed, where
    they do not fit."""
    if len(text) > MAX_LINE_BYTES or any(each in text for each in _NEVER_PLAIN):
        return False
    rows: list[_Wanted] = []
    texts: list[bytes] = []
    stamps: list[bytes] = []
    places: list[int] = []
    lines: dict[bytes, int] = {}
    plans: dict[bytes, _Plan] = {}
    absent = 0
    try:
        for place, line in enumerate(text.split(b"\n"), number):
            if not line:
                continue
            head, pairs, stamp = line.split(b" ")
            plan = read.plan(head)
            lines[head] = lines.get(head, 0) + 1
            plans[head] = plan
            if not plan.wanted:
                continue
            if not plan.plain:
                return False
            if b"," in pairs:
                split = [pair.split(b"=") for pair in pairs.split(b",")]
                given: dict[bytes, bytes] = dict(split)
                if len(given) != len(split):
                    return False
            else:
                name, value = pairs.split(b"=")
                given = {name: value}
            for name, wanted in plan.wanted.items():
                if name not in given:
                    absent += len(wanted)
                    continue
                for each in wanted:
                    rows.append(each)
                    texts.append(given[name])
                    stamps.append(stamp)
                    places.append(place)
        values = _numbers(texts)
        if values is None or b"".join(stamps).translate(None, _DIGITS + b"-"):
            return False
        if max(map(len, stamps), default=0) > _LONGEST_TIME:
            return False
        times = list(map(int, stamps))
        maps = {id(each.map): each.map for each in rows}.values()
        if any(each.changes for each in maps):
            values = [each.map.value_of(value) for each, value in zip(rows, values, strict=True)]
    except (ValueError, RefusedError):  # of unpacking, of int and float, of a head, of a value
        return False
    if read.precision_ns != 1:
        times = [time * read.precision_ns for time in times]
    points = read.points
    points.codes += [each.coded(points) if each.code < 0 else each.code for each in rows]
    points.values += values
    points.times_ns += times
    if any(each.dedup is not None for each in maps):
        points.numbers += [time // each.period_ns for each, time in zip(rows, times, strict=True)]
    else:
        points.numbers += times
    points.weights += repeat(1, len(rows))
    points.places += places
    for head, count in lines.items():
        read.skip(plans[head], count)
    if absent:
        points.told.skip("no value", absent)
    return True


def _numbers(texts: list[bytes]) -> list[float | int | None] | None:
    """Numbers of fields, finite; None where some are none. Raises ValueError likewise."""
    left = b"".join(texts).translate(None, b"+-.eE" + _DIGITS)
    if left.strip(b"iu"):
        return None
    if left:
        return [_number(text) for text in texts]
    floats = list(map(float, texts))
    return list(floats) if isfinite(sum(floats)) else None


# --------------------------------------------------------------------------------------- one line

_MEASUREMENT = re.compile(rb"(?:[^, \n\\]++|\\[, ]?+)++")
_NAME = rb"((?:[^,= \n\\]++|\\[,= ]?+)++)"
_TAG = re.compile(rb"," + _NAME + rb"=" + _NAME)
_HEAD = re.compile(rb"(?:[^ \n\\]++|\\[,= ]?+)++")
_FIELD = re.compile(_NAME + rb'=("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^,= \n\r"\\]++)', re.DOTALL)
_STAMP = re.compile(rb" *([^ \n\r]*+) *\r?(?=\n|\Z)")
_ESCAPE = re.compile(r"\\([,= ])")
_MEASUREMENT_ESCAPE = re.compile(r"\\([, ])")
_SPECIAL = re.compile(r"[,= ]")
_MEASUREMENT_SPECIAL = re.compile(r"[, ]")
_FLOAT = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(rb"([+-]?[0-9]{1,20})[iu]")
_TIME = re.compile(rb"-?[0-9]{1,19}|[0-9]{20}")
_TRUE = frozenset({b"t", b"T", b"true", b"True", b"TRUE"})
_FALSE = frozenset({b"f", b"F", b"false", b"False", b"FALSE"})


def _careful(read: _Reader, body: bytes, at: int, number: int) -> int:
    """Read one line, refuse or skip it; where the next one begins."""
    told = read.points.told
    limit = min(len(body), at + MAX_LINE_BYTES)
    line_end = body.find(b"\n", at)
    line_end = len(body) if line_end < 0 else line_end
    while at < limit and body[at] == 0x20:
        at += 1
    if body[at : at + 1] in (b"", b"\n", b"#") or body[at : at + 2] == b"\r\n":
        return line_end + 1
    where = f"line {number}"
    try:
        head = _HEAD.match(body, at, limit)
        if head is None:
            raise RefusedError("there is no measurement")
        plan = read.plan(head[0])
        if not plan.wanted:
            read.skip(plan)
            return _end(body, head.end(), limit, line_end) + 1
        fields, line_end, stamp = _fields(body, head.end(), limit)
        read.skip(plan)
    except RefusedError as fault:
        told.refuse(where, str(fault))
        return line_end + 1
    for name, wanted in plan.wanted.items():
        given = fields.get(name)
        for each in wanted:
            if given is None:
                told.skip("no value")
                continue
            try:
                _add(read, each, fields, given, stamp, number)
            except RefusedError as fault:
                told.refuse(f"{where} {each.map.value}", str(fault))
    return line_end + 1


def _end(body: bytes, at: int, limit: int, line_end: int) -> int:
    """Where a line ends that is not ours; ``line_end`` may be in a text."""
    if body.find(b'"', at, line_end) < 0:
        return line_end
    try:
        return _fields(body, at, limit)[1]
    except RefusedError:
        return line_end


def _fields(body: bytes, at: int, limit: int) -> tuple[dict[bytes, bytes], int, bytes]:
    """What the fields of a line are, by their names, where the line ends, and the time's text."""
    fields: dict[bytes, bytes] = {}
    begin = at
    while at < limit and body[at] == 0x20:
        at += 1
    while True:
        found = _FIELD.match(body, at, limit)
        if found is None:
            if limit < len(body) and body.find(b"\n", begin, limit) < 0:
                raise RefusedError(f"the line is longer than {MAX_LINE_BYTES} bytes")
            raise RefusedError(f"is no field: {shown(_rest(body, at))}; expected 'name=value'")
        name = _ESCAPE_BYTES.sub(rb"\1", found[1])
        if name in fields:
            raise RefusedError(f"field {shown(name)} is there twice")
        fields[name] = found[2]
        at = found.end()
        if at == limit < len(body):  # cut off in the middle
            raise RefusedError(f"the line is longer than {MAX_LINE_BYTES} bytes")
        if body[at : at + 1] != b",":
            break
        at += 1
    stamp = _STAMP.match(body, at)
    if stamp is None or (stamp[1] and body[at : at + 1] != b" "):
        raise RefusedError(f"after a field is {shown(_rest(body, at))}; expected a time")
    return fields, stamp.end(), stamp[1]


_ESCAPE_BYTES = re.compile(rb"\\([,= ])")


def _rest(body: bytes, at: int) -> bytes:
    """Some of the line from there, for a sentence."""
    return body[at : at + 100].partition(b"\n")[0]


def _add(
    read: _Reader,
    wanted: _Wanted,
    fields: dict[bytes, bytes],
    given: bytes,
    stamp: bytes,
    number: int,
) -> None:
    """Add the reading that a field is."""
    if wanted.fault:
        raise RefusedError(wanted.fault)
    if not stamp:
        raise RefusedError(
            "there is no time; with that of this server, a line that is sent again would be "
            "another reading"
        )
    if _TIME.fullmatch(stamp) is None:
        raise RefusedError(f"the time is {shown(stamp)}; expected an integer")
    time_ns = int(stamp) * read.precision_ns
    each, points = wanted.map, read.points
    value = each.value_of(_value(given))
    weight = 1
    if each.weight is not None:
        found = fields.get(each.weight.encode("utf-8"))
        read_weight = None if found is None else _integral(_value(found))
        if type(read_weight) is not int:
            reason = "there is none" if found is None else f"it is {shown(found)}"
            raise RefusedError(f"{each.weight} is the weight, and {reason}; expected an integer")
        weight = read_weight
    period = time_ns // wanted.period_ns
    if each.id_fields:
        names = [_part(name, fields) for name in each.id_fields]
        code = points.enter(f"{wanted.series} {','.join(names)}", each.value)
        period = period if each.dedup is not None else 0
    else:
        code = wanted.coded(points)
    points.codes.append(code)
    points.values.append(value)
    points.times_ns.append(time_ns)
    points.numbers.append(period)
    points.weights.append(weight)
    points.places.append(number)


def _part(name: str, fields: dict[bytes, bytes]) -> str:
    given = fields.get(name.encode("utf-8"))
    if given is None:
        raise RefusedError(f"there is no field {shown(name)}, which the id needs")
    value = _integral(_value(given))
    if type(value) not in (int, str):
        raise RefusedError(f"{name} is {shown(given)}; an id is of integers and texts")
    text = str(value)
    if type(value) is str:
        text = '"' + _QUOTED.sub(r"\\\g<0>", text) + '"'
    return f"{_escaped(name)}={text}"


_QUOTED = re.compile(r'["\\]')
_QUOTED_ESCAPE = re.compile(r'\\(["\\])')
_EXACT = 1 << 53


def _value(given: bytes) -> float | int | bool | str:
    """What a field is.

    Raises:
        RefusedError: nothing that a field can be.
    """
    if given.startswith(b'"'):
        return _QUOTED_ESCAPE.sub(r"\1", _text(given[1:-1], "a text"))
    if given in _TRUE:
        return True
    if given in _FALSE:
        return False
    try:
        return _number(given)
    except ValueError:
        raise RefusedError(f"is {shown(given)}; expected a number") from None


def _number(given: bytes) -> float | int:
    """A number as the protocol writes it. Raises ValueError: it is none."""
    if _FLOAT.fullmatch(given) and isfinite(number := float(given)):
        return number
    if (integer := _INTEGER.fullmatch(given)) is not None:
        return int(integer[1])
    raise ValueError


def _integral(value: float | int | bool | str) -> float | int | bool | str:
    """A float that is whole as an integer: senders differ in that."""
    if type(value) is float and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value


def _text(given: bytes, what: str) -> str:
    try:
        return given.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError(f"{what} is {shown(given)}; expected UTF-8") from None


def _unescaped(given: bytes, what: str) -> str:
    return _ESCAPE.sub(r"\1", _text(given, what))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)
