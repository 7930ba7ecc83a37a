r"""Influx line protocol: ``weather,site=ward temp=21.5,hum=40i 1700000000000000000``.

A line has a measurement, tags, fields and a time. A mapping names the measurement, and the field
whose values are readings. Three parts identify such a reading:

    the series (the measurement and the tags in name order, written as the protocol writes
    them, without dropped tags), the name of the field, and the time in nanoseconds,

before any rounding. A line that is sent again is the same reading. Two collectors of one source
add tags of their own, and the mapping has to drop these (``drop_tags``). A tag that names the
measured machine, such as ``host`` in Telegraf's cpu, has to stay. If collectors add the time
themselves, ``dedup`` keeps one reading for each period, the latest.

In a stream with columns a mapping makes one observation from each line, without a field in its id.
Tags are texts, fields have the protocol's types, and ``measurement`` is a source too. A field
goes before a tag with the same name. A line without a field that fills a column is skipped.

Grammar
    In names and tags a backslash before a comma, a space or (but for a measurement) ``=`` escapes
    it. Any other backslash is literal. A quoted text may have line ends in it. The parser does not
    inspect fields that no mapping names, nor lines whose measurement no mapping names.
Two ways
    A scanner in C splits plain lines, some thousand together, and NumPy makes readings from them
    (:func:`_plain`). The grammar reads all other lines (:func:`_careful`), to the same readings.

One pass reads a body for several streams (:func:`steps`). Plans for series stay from body to body
(:class:`~decaysketch.ingest.series.Plans`).

Time is linear. A line with more than MAX_LINE_BYTES is rejected, and the texts of series are
counted before they are made (:class:`~decaysketch.ingest.series.SeriesTexts`). Untrusted input
raises only :class:`~decaysketch.ingest.readings.UnreadableError`, for a body that is almost
completely faulty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from decaysketch.ingest._native import FLOAT, INTEGER, OTHER, Lines, Names
from decaysketch.ingest.json_text import MARK, UTF16, UTF16_MARKS
from decaysketch.ingest.mapping import Texts, shown
from decaysketch.ingest.points import Points, Values, codes_of
from decaysketch.ingest.readings import RefusedError, Steps, UnreadableError, finished
from decaysketch.ingest.record_columns import MEASUREMENT, Filling, Layout, drop
from decaysketch.ingest.series import (
    MOST_TEXT_BYTES,
    Generation,
    Name,
    Plans,
    SeriesIndex,
    SeriesMap,
    SeriesTexts,
    plans_of,
    size_of,
)

__all__ = ["MAX_LINE_BYTES", "PRECISIONS", "LineMap", "parse", "steps"]

Int64Array = npt.NDArray[np.int64]

MAX_LINE_BYTES = 1 << 16

#: Nanoseconds of the units in which senders may have their times.
PRECISIONS = {
    "n": 1, "ns": 1, "u": 1_000, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000,
    "m": 60_000_000_000, "h": 3_600_000_000_000,
}  # fmt: skip

_LARGEST, _SMALLEST = 128 << 10, 16 << 10  # bytes of lines that are read together
_MOST_FEW = 64  # lines that the grammar reads between scans that find too few
_FEWEST = 16  # lines that are worth it
_PLANS_A_STEP = 100  # series
_MOST_BATCHES = 64  # kinds of lines that are read together
_MOST_REFUSED = 100_000  # of one body
_PLAN_BYTES, _TARGET_BYTES = 300, 250  # without texts
_SHAPES_KEPT = 1000  # of a body


class LineMap(SeriesMap):
    """A reading of line protocol."""

    reads: ClassVar = ("measurement", "value")
    named_by: ClassVar = ("drop_tags", "id_tags", "id_fields", "dedup", "entity")

    format: Literal["influx"] = Field(description="Influx line protocol.")
    measurement: Name | None = Field(
        default=None,
        description="Measurement of the lines. With `columns` it may be absent: all measurements "
        "that no other mapping names.",
    )
    value: Name | None = Field(
        default=None,
        description="Name of the field with the values. Absent if `columns` is given.",
    )
    id_tags: Texts | None = Field(
        default=None, description="The only tags that are part of an id. Default: all."
    )
    drop_tags: Texts = Field(
        default=(),
        description="Tags that are not part of an id, because they name the collector and not "
        "the measured device. In Telegraf's cpu, mem and disk, `host` names the "
        "measured device: without it, all machines are one.",
    )
    id_fields: Texts = Field(
        default=(),
        description="Fields that identify a reading instead of its time, such as a message "
        "number. With `dedup`, they identify it together with the period.",
    )
    weight: Name | None = Field(
        default=None, description="Name of the field with the weight. Default: weight 1."
    )

    @model_validator(mode="after")
    def _chooses_tags_once(self) -> Self:
        if self.id_tags is not None and self.drop_tags:
            raise ValueError(
                f"id_tags is {list(self.id_tags)} and drop_tags {list(self.drop_tags)}; "
                "expected one of them"
            )
        return self

    @model_validator(mode="after")
    def _names_values_or_columns(self) -> Self:
        if self.columns is not None:
            if self.value is not None:
                raise ValueError(f"value is {self.value!r}, and columns is given; expected one")
        elif self.measurement is None or self.value is None:
            absent = "measurement" if self.measurement is None else "value"
            raise ValueError(f"{absent} is missing; expected its name, or columns")
        return self

    @property
    def series_name(self) -> str | None:
        """The measurement."""
        return self.measurement

    @property
    def columns_omitted(self) -> frozenset[str]:
        """``drop_tags``."""
        return self.dropped

    @cached_property
    def field(self) -> bytes:
        """``value`` as a body has it."""
        return (self.value or "").encode("utf-8")

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

    def __init__(self, measurement: str, tags: Mapping[str, str]) -> None:
        self._begin = _MEASUREMENT_SPECIAL.sub(r"\\\g<0>", measurement)
        self._written = {name: f",{_escaped(name)}={_escaped(tags[name])}" for name in sorted(tags)}
        self._length = sum(map(len, self._written.values()))

    def series(self, of: LineMap, texts: SeriesTexts) -> str:
        """Return the id's text for a mapping. No two series have the same.

        Raises:
            RefusedError: it is too long, or the texts in the body are together.
        """
        written = self._written
        if of.kept is not None:
            kept = [written[name] for name in of.kept if name in written]
            return texts.checked(self._begin, *kept)
        left_out = sum(len(written[name]) for name in of.dropped if name in written)
        texts.check(len(self._begin) + self._length - left_out)
        kept = [text for name, text in written.items() if name not in of.dropped]
        return texts.checked(self._begin, *kept)


def parse(
    body: bytes,
    maps: Iterable[LineMap] | SeriesIndex[LineMap],
    precision_ns: int = 1,
    most: int | None = None,
) -> Points:
    """Return the readings in a body, by mappings of one stream. O(length).

    Args:
        body: any bytes.
        maps: the stream's mappings; as an index, if there are several bodies.
        precision_ns: nanoseconds in a unit of the times.
        most: beyond this number of readings, some are dropped, and the result still has more than
            this.

    Raises:
        UnreadableError: more lines are rejected than the list of reasons may have, or the series
            have too much text.
    """
    return finished(steps(body, [SeriesIndex.of(maps)], precision_ns, most))[0]


def steps(
    body: bytes,
    streams: Sequence[SeriesIndex[LineMap]],
    precision_ns: int = 1,
    most: int | None = None,
) -> Steps[list[Points]]:
    """Parse for several streams in one pass, in steps that take a few milliseconds. All their
    readings together are at most ``most``. An unreadable line is rejected once, in the readings
    of the first stream.
    """
    if body.startswith(UTF16_MARKS):
        raise UnreadableError(f"the body is not line protocol: {UTF16}")
    read = _Reader(streams, precision_ns)
    found = [Points(form="influx", entity=each.entity) for each in streams]
    at = len(MARK) if body.startswith(MARK) else 0
    number, size, few = 1, _SMALLEST, 1
    while at < len(body) and (most is None or sum(map(len, found)) <= most):
        yield
        end = body.find(b"\n", at + size) + 1 or len(body)
        lines = Lines(body, at, end, precision=precision_ns, longest=MAX_LINE_BYTES)
        stop = end if lines.at == end else lines.at + 1  # for the grammar
        if len(lines) >= _FEWEST or lines.at == end:
            yield from read.prepare(body, lines)
            if _plain(read, found, body, lines, number):
                at, number, few = lines.at, number + lines.ends, 1
                size = min(2 * size, _LARGEST)
            elif size > _SMALLEST:
                size = _SMALLEST
                continue
        if lines.at < end:
            size = _SMALLEST
        left, few = few, min(2 * few, _MOST_FEW)
        while at < stop or (left > 0 and at < end):
            begin, at = at, _careful(read, found, body, at, number)
            number += body.count(b"\n", begin, at)
            read.check_texts()
            left -= 1
        read.check_texts()
        if sum(points.told.refusals for points in found) > _MOST_REFUSED:
            first = next(points.told.refused[0] for points in found if points.told.refused)
            raise UnreadableError(
                f"more than {_MOST_REFUSED} lines are rejected, the first because: "
                f"{': '.join(first)}"
            )
    read.tell_skipped(found)
    for points in found:
        if not points.cells:  # which name rows
            points.sort()
    return found


@dataclass(slots=True, frozen=True, eq=False)
class _Target:
    """A field of a series that a mapping reads, or the columns that it fills.

    Attributes:
        stream: number of the mapping's stream.
        series: text of the id.
        fault: reason why no reading can be named.
        layout: the columns that the tags fill.
        filling: the columns that the mapping fills.
    """

    map: LineMap
    stream: int
    series: str
    fault: str = ""
    layout: Layout | None = None
    filling: Filling | None = None

    @property
    def is_plain(self) -> bool:
        """Whether :func:`_plain` can read its lines."""
        return not (self.map.id_fields or self.map.weight or self.fault)


_Skip = tuple[int, str, int]  # stream, word, number
_Group = tuple[bool, tuple[tuple[int, int], ...], tuple[_Skip, ...]]


@dataclass(slots=True, frozen=True, eq=False)
class _Plan:
    """The instructions for the lines of a series.

    Attributes:
        values: the fields that mappings read.
        records: for mappings that fill columns.
        plain: whether :func:`_plain` can read them.
        skips: parts skipped in each line, with any fields: stream, word and number.
        group: equal for series that the same mappings read.
        bytes: memory, about.
    """

    values: tuple[_Target, ...]
    records: tuple[_Target, ...]
    plain: bool
    skips: tuple[_Skip, ...]
    group: Hashable
    bytes: int

    @property
    def unread(self) -> bool:
        """Whether no mapping reads its lines."""
        return not (self.values or self.records)


class _Shape:
    """The columns that lines with the same field names fill, by one mapping.

    Attributes:
        map: the mapping.
        stream: its stream number.
        columns: column names.
        positions: numbers of their fields.
        undeclared: columns, reasons and counts that each line drops.
    """

    __slots__ = ("columns", "map", "positions", "stream", "undeclared")

    def __init__(self, target: _Target, names: tuple[bytes, ...]) -> None:
        filling = target.filling
        assert filling is not None
        self.map, self.stream = target.map, target.stream
        self.columns: list[str] = []
        self.positions: list[int] = []
        texts = [_text(name, "a field") for name in names]
        for place, text in enumerate(texts):
            for number in filling.of_source.get(text, ()):
                self.columns.append(filling.types[number][0])
                self.positions.append(place)
        open_ = filling.undeclared(texts) if filling.open else Counter[tuple[str, str]]()
        self.undeclared = [(*key, count) for key, count in open_.items()]


class _Reader:
    """How to read a body's lines: plans for their series, and the columns that they fill.

    Readings go to one :class:`Points` per stream. ``codes`` are the targets' codes there.
    """

    def __init__(self, indexes: Sequence[SeriesIndex[LineMap]], precision_ns: int) -> None:
        self.precision_ns = precision_ns
        self.plans: Plans[bytes, _Plan] = plans_of("influx", indexes)
        self.codes: dict[_Target, int] = {}
        self.shapes: dict[tuple[int, tuple[bytes, ...]], _Shape] = {}
        self.field_names = Names()  # of each shape, with commas between them
        self._indexes = indexes
        self._texts = SeriesTexts()
        self._faults: dict[str, str] = {}
        self._groups: dict[_Group, _Group] = {}
        self._skipped: Counter[tuple[_Skip, ...]] = Counter()

    def check_texts(self) -> None:
        """Raises UnreadableError: the texts of the series are too long together. The reader would
        otherwise reject every line that follows, at a cost for each mapping.
        """
        if self._texts.full:
            raise UnreadableError(
                f"the series names in the body take more than {MOST_TEXT_BYTES} bytes of memory "
                "together; send fewer lines at a time"
            )

    def plan(self, head: bytes) -> _Plan:
        """Return the plan for a measurement with its tags, as they are written.

        Raises:
            RefusedError: it is none.
        """
        found = self.plans.named(head)
        if found is None:
            found = self._planned(head)
            if not self._texts.full:
                self.plans.keep_named(head, found)
        return found

    def prepare(self, body: bytes, lines: Lines) -> Steps[None]:
        """Make the plans of lines that have none, in steps. A line without a series has none."""
        begins, ends = lines.lines[:2, :-1]
        for _ in range(2):  # a plan may be moved to the older generation for the last of these
            _, numbers = self.plans.numbers(body, begins, ends)
            for count, row in enumerate(np.flatnonzero(numbers < 0).tolist()):
                if count % _PLANS_A_STEP == 0:
                    yield
                try:
                    self.plan(body[begins[row] : ends[row]])
                except RefusedError:
                    return  # and the grammar says why

    def _planned(self, head: bytes) -> _Plan:
        name = _MEASUREMENT.match(head)
        if name is None or head.startswith(b"#"):
            raise RefusedError("there is no measurement")
        measurement = _MEASUREMENT_ESCAPE.sub(r"\1", _text(name[0], "the measurement"))
        readers = [index.readers(measurement) for index in self._indexes]
        tags = _tags(head, name.end()) if any(readers) else {}
        written: _Tags | None = None
        skips: list[_Skip] = []
        values: list[_Target] = []
        records: list[_Target] = []
        for stream, each in enumerate(readers):
            if each is None:
                skips.append((stream, "measurement", 1))
                continue
            chosen = each.wanting(tags)
            if elsewhere := len(each.maps) - len(chosen):
                skips.append((stream, "where", elsewhere))
            if chosen and written is None:
                written = _Tags(measurement, tags)
            for map in chosen:
                assert written is not None
                filling = self._indexes[stream].filling(map)
                if filling is not None:
                    kept = {name: tags[name] for name in tags if name not in map.dropped}
                    layout = filling.layout(kept, {MEASUREMENT: measurement})
                    records.append(self._target(map, stream, written, layout, filling))
                    continue
                values.append(self._target(map, stream, written))
        every = [*values, *records]
        plain = all(each.is_plain for each in every)
        texts = {each.series: None for each in every}
        size = _PLAN_BYTES + size_of([head, *texts]) + _TARGET_BYTES * len(every)
        size += sum(each.layout.bytes for each in records if each.layout is not None)
        group = plain, tuple((each.stream, id(each.map)) for each in every), tuple(skips)
        group = self._groups.setdefault(group, group)  # plans share equal ones
        return _Plan(tuple(values), tuple(records), plain, group[-1], group, size)

    def _target(
        self,
        map: LineMap,
        stream: int,
        written: _Tags,
        layout: Layout | None = None,
        filling: Filling | None = None,
    ) -> _Target:
        try:
            text, fault = written.series(map, self._texts), ""
        except RefusedError as refused:
            text, fault = "", self._faults.setdefault(str(refused), str(refused))
        return _Target(map, stream, text, fault, layout, filling)

    def shape(self, target: _Target, names: tuple[bytes, ...]) -> _Shape:
        """Return the columns that a line's fields fill. O(names) for the first such line.

        Raises:
            RefusedError: a name is no UTF-8.
        """
        key = id(target.filling), names
        found = self.shapes.get(key)
        if found is None:
            found = _Shape(target, names)
            if len(self.shapes) < _SHAPES_KEPT:
                self.shapes[key] = found
        return found

    def skip(self, plan: _Plan, lines: int = 1) -> None:
        """Count the parts that are skipped in equal lines, with any fields."""
        if plan.skips:
            self._skipped[plan.skips] += lines

    def tell_skipped(self, streams: Sequence[Points]) -> None:
        """Tell each stream which parts were skipped."""
        for skips, lines in self._skipped.items():
            for stream, word, count in skips:
                streams[stream].told.skip(word, count * lines)

    def code(self, points: Points, target: _Target) -> int:
        """Return the code of a target among the readings of its stream."""
        found = self.codes.get(target)
        if found is None:
            found = points.enter(target.series, target.map.value or "", target.layout)
            self.codes[target] = found
        return found

    def codes_of(self, points: Points, targets: Sequence[_Target]) -> Int64Array:
        """Do the same for distinct targets in one stream, by one mapping."""

        def enter(new: list[_Target]) -> range:
            series, layouts = [each.series for each in new], [each.layout for each in new]
            names = [new[0].map.value or ""] * len(new)
            return points.enter_all(series, names, layouts)

        return codes_of(targets, self.codes, enter)


def _tags(head: bytes, at: int) -> dict[str, str]:
    """Return a line's tags, which begin at this byte.

    Raises:
        RefusedError: they are none, or one is there twice.
    """
    tags: dict[str, str] = {}
    while at < len(head):
        tag = _TAG.match(head, at)
        if tag is None:
            raise RefusedError(f"is not a tag: {shown(head[at:])}; expected ',name=value'")
        key = _unescaped(tag[1], "a tag")
        if key in tags:
            raise RefusedError(f"tag {shown(key)} is repeated")
        tags[key] = _unescaped(tag[2], "a tag")
        at = tag.end()
    return tags


# ------------------------------------------------------------------------------------- many lines


class _Batch(NamedTuple):
    """Lines that the same mappings read, with the same fields.

    Attributes:
        plans: of their series, all in one group.
        of_line: position in ``plans``, for each line.
        names: field names.
        fields: number of the first field.
        times: in nanoseconds.
        places: line numbers.
    """

    plans: list[_Plan]
    of_line: Int64Array
    names: tuple[bytes, ...]
    fields: Int64Array
    times: Int64Array
    places: Int64Array


class _Read(NamedTuple):
    """The readings of a target in a batch. ``values`` are None if there are ``cells``."""

    batch: _Batch
    target: _Target
    targets: list[_Target]
    values: Values
    shape: _Shape | None = None
    cells: Sequence[Any] = ()


def _plain(
    read: _Reader, streams: Sequence[Points], body: bytes, lines: Lines, number: int
) -> bool:
    """Add the readings in plain lines. Return False, and add no reading, if some do not fit.

    Args:
        streams: the readings so far, by stream.
        number: line number of the first.
    """
    found: list[_Read] = []
    absent: list[tuple[int, int]] = []
    try:
        generation, numbers = read.plans.numbers(body, *lines.lines[:2, :-1])
        if numbers.min(initial=0) < 0:
            return False
        groups = generation.groups[numbers]
        for batch in _batches(read, body, lines, generation, numbers, groups, number):
            for each in _read_batch(read, body, lines, batch):
                if isinstance(each, _Read):
                    found.append(each)
                else:
                    absent.append((each.stream, len(batch.times)))
    except (ValueError, RefusedError):  # of a head, of a value
        return False
    for each in found:
        _append(read, streams[each.target.stream], each)
    for stream, count in absent:
        streams[stream].told.skip("no value", count)
    for group, count in enumerate(np.bincount(groups).tolist()):
        if count:
            read.skip(generation.of_group[group], count)
    return True


def _batches(
    read: _Reader,
    body: bytes,
    lines: Lines,
    generation: Generation[bytes, _Plan],
    numbers: Int64Array,
    groups: Int64Array,
    number: int,
) -> Iterator[_Batch]:
    """Yield the batches of lines that a mapping reads.

    Raises:
        ValueError: there are too many, or their fields are not plain.
    """
    shapes = lines.shapes(body, read.field_names, _SHAPES_KEPT)
    unread = np.array([each.unread for each in generation.of_group], np.bool_)
    kinds = groups * (_SHAPES_KEPT + 1) + shapes + 1
    kinds[unread[groups]] = -1
    distinct = np.unique(kinds).tolist()
    if len(distinct) > _MOST_BATCHES:
        raise ValueError
    _, _, fields, times, places = lines.lines[:, :-1]
    for kind in distinct:
        if kind < 0:
            continue
        group, shape = divmod(kind, _SHAPES_KEPT + 1)
        plan = generation.of_group[group]
        rows = slice(None) if len(distinct) == 1 else np.flatnonzero(kinds == kind)
        first = int(np.argmax(kinds == kind))
        of_first = slice(fields[first], int(lines.lines[2, first + 1]))
        names = tuple(body[begin:end] for begin, end in lines.fields[:2, of_first].T.tolist())
        if not (plan.plain and shape) or len(set(names)) < len(names):
            raise ValueError
        series, of_line = np.unique(numbers[rows], return_inverse=True)
        plans = [generation.plans[each] for each in series.tolist()]
        yield _Batch(plans, of_line, names, fields[rows], times[rows], places[rows] + number)


def _read_batch(
    read: _Reader, body: bytes, lines: Lines, batch: _Batch
) -> Iterator[_Read | _Target]:
    """Yield the readings of each target, or the target if it has no field.

    Raises:
        ValueError, RefusedError: a value is not plain.
    """
    plan = batch.plans[0]
    position = {name: place for place, name in enumerate(batch.names)}
    for place, target in enumerate(plan.values):
        field = position.get(target.map.field)
        if field is None:
            yield target
            continue
        values = _numbers(lines, batch.fields + field)
        if target.map.changes:
            values = [target.map.value_of(value) for value in _listed(values)]
        yield _Read(batch, target, [each.values[place] for each in batch.plans], values)
    for place, target in enumerate(plan.records):
        shape = read.shape(target, batch.names)
        if not shape.columns:
            yield target
            continue
        cells = [_cells(body, lines, batch.fields + each, shape.map) for each in shape.positions]
        targets = [each.records[place] for each in batch.plans]
        yield _Read(batch, target, targets, None, shape, cells)


def _append(read: _Reader, points: Points, found: _Read) -> None:
    """Add readings to their stream's."""
    batch = found.batch
    codes = read.codes_of(points, found.targets)[batch.of_line]
    times, period_ns = batch.times, found.target.map.period_ns
    begin, numbers = len(points), times if period_ns == 1 else times // period_ns
    points.extend(codes, numbers, times, found.values, batch.places)
    if found.shape is not None:
        points.fill(begin, found.shape.columns, found.cells)
        for name, reason, each in found.shape.undeclared:
            drop(points.told.dropped, name, reason, each * len(times))


def _numbers(lines: Lines, fields: Int64Array) -> Any:
    """Return the numbers in some fields. Raises ValueError: some are none."""
    kinds = lines.kinds[fields]
    if (kinds == FLOAT).all():
        return lines.floats[fields]
    integers = lines.fields[4][fields]
    if (kinds == INTEGER).all():
        return integers
    if (kinds == OTHER).any():
        raise ValueError
    floats = lines.floats[fields].tolist()
    for place in np.flatnonzero(kinds == INTEGER).tolist():
        floats[place] = int(integers[place])
    return floats


def _cells(body: bytes, lines: Lines, fields: Int64Array, map: LineMap) -> Any:
    """Return the values in some fields, for a column.

    Raises:
        RefusedError: one is not a valid value.
    """
    try:
        values = _numbers(lines, fields)
    except ValueError:
        begins, ends = lines.fields[2:4, fields].tolist()
        values = [_value(body[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return [map.present(value) for value in _listed(values)] if map.missing else values


def _listed(values: Any) -> list[Any]:
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


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


def _careful(read: _Reader, streams: Sequence[Points], body: bytes, at: int, number: int) -> int:
    """Read, reject or skip one line. Return the start of the next one."""
    limit = min(len(body), at + MAX_LINE_BYTES)
    line_end = body.find(b"\n", at)
    line_end = len(body) if line_end < 0 else line_end
    if body.startswith(MARK, at):  # of a file that was appended to another
        at += len(MARK)
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
        if plan.unread:
            read.skip(plan)
            return _end(body, head.end(), limit, line_end) + 1
        fields, line_end, stamp = _fields(body, head.end(), limit)
        read.skip(plan)
    except RefusedError as fault:
        streams[0].told.refuse(where, str(fault))
        return line_end + 1
    for each in plan.values:
        points, given = streams[each.stream], fields.get(each.map.field)
        if given is None:
            points.told.skip("no value")
            continue
        try:
            _add(read, points, each, fields, given, stamp, number)
        except RefusedError as fault:
            points.told.refuse(f"{where} {each.map.value}", str(fault))
    for each in plan.records:
        points = streams[each.stream]
        try:
            _add_columns(read, points, each, fields, stamp, number)
        except RefusedError as fault:
            points.told.refuse(where, str(fault))
    return line_end + 1


def _end(body: bytes, at: int, limit: int, line_end: int) -> int:
    """Return where a line ends that no mapping reads. ``line_end`` may be in a text."""
    if body.find(b'"', at, line_end) < 0:
        return line_end
    try:
        return _fields(body, at, limit)[1]
    except RefusedError:
        return line_end


def _fields(body: bytes, at: int, limit: int) -> tuple[dict[bytes, bytes], int, bytes]:
    """Return a line's fields by name, its end, and the time's text."""
    fields: dict[bytes, bytes] = {}
    begin = at
    while at < limit and body[at] == 0x20:
        at += 1
    while True:
        found = _FIELD.match(body, at, limit)
        if found is None:
            if limit < len(body) and body.find(b"\n", begin, limit) < 0:
                raise RefusedError(f"the line is longer than {MAX_LINE_BYTES} bytes")
            raise RefusedError(f"is not a field: {shown(_rest(body, at))}; expected 'name=value'")
        name = _ESCAPE_BYTES.sub(rb"\1", found[1])
        if name in fields:
            raise RefusedError(f"field {shown(name)} is repeated")
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
    """Return some text from there on, for an error message."""
    return body[at : at + 100].partition(b"\n")[0]


def _add(
    read: _Reader,
    points: Points,
    target: _Target,
    fields: dict[bytes, bytes],
    given: bytes,
    stamp: bytes,
    number: int,
) -> None:
    """Add the reading in a field."""
    time_ns = _time(read, target, stamp)
    _enter(read, points, target, fields, target.map.value_of(_value(given)), time_ns, number)


def _add_columns(
    read: _Reader,
    points: Points,
    target: _Target,
    fields: dict[bytes, bytes],
    stamp: bytes,
    number: int,
) -> None:
    """Add a line's observation."""
    shape = read.shape(target, tuple(fields))
    if not shape.columns:
        points.told.skip("no value")
        return
    texts = list(fields.values())
    values = [target.map.present(_value(texts[place])) for place in shape.positions]
    row = len(points)
    _enter(read, points, target, fields, None, _time(read, target, stamp), number)
    points.fill(row, shape.columns, [[value] for value in values])
    for name, reason, count in shape.undeclared:
        drop(points.told.dropped, name, reason, count)


def _time(read: _Reader, target: _Target, stamp: bytes) -> int:
    """Return a line's time in nanoseconds.

    Raises:
        RefusedError: there is none, or no id.
    """
    if target.fault:
        raise RefusedError(target.fault)
    if not stamp:
        raise RefusedError(
            "there is no time; with the server's time, a repeated line would count as another "
            "reading"
        )
    if _TIME.fullmatch(stamp) is None:
        raise RefusedError(f"the time is {shown(stamp)}; expected an integer")
    return int(stamp) * read.precision_ns


def _enter(
    read: _Reader,
    points: Points,
    target: _Target,
    fields: dict[bytes, bytes],
    value: Any,
    time_ns: int,
    number: int,
) -> None:
    """Add a reading by its series, or by the fields that name it."""
    each = target.map
    weight = 1
    if each.weight is not None:
        found = fields.get(each.weight.encode("utf-8"))
        read_weight = None if found is None else _integral(_value(found))
        if type(read_weight) is not int:
            reason = "there is none" if found is None else f"it is {shown(found)}"
            raise RefusedError(f"{each.weight} is the weight, and {reason}; expected an integer")
        weight = read_weight
    period = time_ns // each.period_ns
    if each.id_fields:
        names = [_part(name, fields) for name in each.id_fields]
        field = each.value or ""
        code = points.enter(f"{target.series} {','.join(names)}", field, target.layout)
        period = period if each.dedup is not None else 0
    else:
        code = read.code(points, target)
    points.add(code, period, time_ns, value, weight, number)


def _part(name: str, fields: dict[bytes, bytes]) -> str:
    given = fields.get(name.encode("utf-8"))
    if given is None:
        raise RefusedError(f"there is no field {shown(name)}, which the id needs")
    value = _integral(_value(given))
    if type(value) not in (int, str):
        raise RefusedError(f"{name} is {shown(given)}; expected an integer or a text as an id part")
    text = str(value)
    if type(value) is str:
        text = '"' + _QUOTED.sub(r"\\\g<0>", text) + '"'
    return f"{_escaped(name)}={text}"


_QUOTED = re.compile(r'["\\]')
_QUOTED_ESCAPE = re.compile(r'\\(["\\])')
_EXACT = 1 << 53


def _value(given: bytes) -> float | int | bool | str:
    """Return a field's value.

    Raises:
        RefusedError: it is not a valid value.
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
    """Parse a number as the protocol writes it. Raises ValueError: it is none."""
    if _FLOAT.fullmatch(given) and isfinite(number := float(given)):
        return number
    if (integer := _INTEGER.fullmatch(given)) is not None:
        return int(integer[1])
    raise ValueError


def _integral(value: float | int | bool | str) -> float | int | bool | str:
    """Return an integral float as an integer, because clients differ in that."""
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
