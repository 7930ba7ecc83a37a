"""Prometheus remote write, versions 1 and 2: samples of series become readings.

The labels, without dropped ones, and the time in milliseconds identify a reading. The two servers
of a pair scrape at different moments and differ in a label (``replica``). Their samples are
duplicates only if a mapping drops the label and keeps one reading for each scrape period
(``drop_labels``, ``dedup``). An empty label is the same as none, as in Prometheus.

Stale markers and NaN are no values. They are skipped, or become rows without a value if the mapping
has a ``kind``. Native histograms are rejected. Untrusted input raises only
:class:`~decaysketch.ingest.readings.UnreadableError`, for a complete body. Time is linear in the
length of the decompressed body, which is bounded before it is made. In version 2, labels are
numbers of texts that the body contains once. The label count of a series is bounded, and so is its
text.

In a stream with columns, each sample is one observation: its labels are texts, ``value`` is its
number, and ``metric`` its name. So one mapping reads all metrics of a server.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from decaysketch.ingest._native import BROKEN, FOREIGN, Samples
from decaysketch.ingest.mapping import Texts
from decaysketch.ingest.points import Points, codes_of
from decaysketch.ingest.protobuf import BYTES, FIXED64, VARINT, fields, varint
from decaysketch.ingest.readings import RefusedError, Steps, UnreadableError, finished
from decaysketch.ingest.record_columns import METRIC, Layout
from decaysketch.ingest.series import (
    Name,
    Plans,
    SeriesIndex,
    SeriesMap,
    SeriesTexts,
    plans_of,
    read_by_one,
    size_of,
)

__all__ = ["REPLICAS", "RemoteWriteMap", "most_samples", "parse", "plain_length", "steps"]

_NS = 1_000_000  # of a millisecond
_PLAN_BYTES, _TARGET_BYTES = 200, 120  # without texts
_SERIES_A_STEP = 64
_FEWEST_TOGETHER, _MOST_TOGETHER = 1 << 7, 1 << 12  # series; arrays for them take memory
_MOST_LABELS = 1000  # of a series
_NAME = "__name__"

REPLICAS = frozenset({"__replica__", "prometheus_replica"})
"""Labels by which Mimir and the Prometheus operator distinguish the servers in a pair. A plain
``replica`` may name a target, such as a database, so a mapping has to drop it explicitly."""
_DOUBLE = struct.Struct("<d")

Int64Array = npt.NDArray[np.int64]


class _Layout(NamedTuple):
    """Field tags of a version: their numbers and encodings."""

    series: int
    labels: tuple[int, ...]
    samples: int
    histograms: int
    foreign: tuple[int, ...]  # of the other version


_SAMPLES = 2 << 3 | BYTES
_LABEL_NAME, _LABEL_TEXT = 1 << 3 | BYTES, 2 << 3 | BYTES
_SYMBOLS = 4 << 3 | BYTES  # of version 2: texts, which labels have by their number
_LAYOUTS = {
    1: _Layout(
        1 << 3 | BYTES,
        (1 << 3 | BYTES,),
        _SAMPLES,
        4 << 3 | BYTES,
        (_SYMBOLS, 5 << 3 | BYTES),
    ),
    2: _Layout(
        5 << 3 | BYTES,
        (1 << 3 | BYTES, 1 << 3 | VARINT),  # packed, or single
        _SAMPLES,
        3 << 3 | BYTES,
        (1 << 3 | BYTES,),
    ),
}


class RemoteWriteMap(SeriesMap):
    """A reading of Prometheus remote write."""

    reads: ClassVar = ("metric",)
    named_by: ClassVar = ("drop_labels", "dedup", "entity")

    format: Literal["prometheus"] = Field(description="Prometheus remote write.")
    measured: ClassVar = "value"

    metric: Name | None = Field(
        default=None,
        description="Name of the metric. With `columns` it may be absent: all metrics that no "
        "other mapping names.",
    )
    drop_labels: Texts = Field(
        default=(),
        description="Labels that are not part of an id, such as `replica` of a server pair.",
    )

    @model_validator(mode="after")
    def _names_its_metric(self) -> Self:
        if self.metric is None and self.columns is None:
            raise ValueError("metric is missing; expected its name, or columns")
        return self

    @property
    def series_name(self) -> str | None:
        """The metric."""
        return self.metric

    @property
    def columns_omitted(self) -> frozenset[str]:
        """``drop_labels``."""
        return self.dropped

    @cached_property
    def dropped(self) -> frozenset[str]:
        """``drop_labels``, and with a kind the labels that only name one server in a pair."""
        return frozenset(self.drop_labels) | (REPLICAS if self.kind else frozenset())


def plain_length(body: bytes) -> int:
    """Return the decompressed length that a body in Snappy's block format declares.

    Raises:
        UnreadableError: it declares none.
    """
    try:
        return varint(body, 0)[0]
    except IndexError:
        raise UnreadableError("the body is not a Snappy block") from None


def most_samples(body: bytes) -> int:
    """Return an upper bound on the samples in a readable body. Each sample begins with the same
    byte.
    """
    return body.count(bytes([_SAMPLES]))


def parse(
    body: bytes,
    maps: Iterable[RemoteWriteMap] | SeriesIndex[RemoteWriteMap],
    *,
    version: int = 1,
    most: int | None = None,
) -> Points:
    """Return the readings in a body, by mappings of one stream. O(length).

    Args:
        body: any bytes: a ``WriteRequest``, or in version 2 a ``Request``, decompressed.
        maps: the stream's mappings; as an index, if there are several bodies.
        version: 1 or 2.
        most: beyond this number of readings, some are dropped, and the result still has more than
            this.

    Raises:
        UnreadableError: it is none.
    """
    return finished(steps(body, maps, version=version, most=most))


def steps(
    body: bytes,
    maps: Iterable[RemoteWriteMap] | SeriesIndex[RemoteWriteMap],
    *,
    version: int = 1,
    most: int | None = None,
) -> Steps[Points]:
    """Do the same in steps with some series each."""
    try:
        return (yield from _read(body, SeriesIndex.of(maps), version, most))
    except (IndexError, struct.error, UnicodeDecodeError):
        raise UnreadableError("the body is not a protobuf remote write request") from None


def _read(
    body: bytes, index: SeriesIndex[RemoteWriteMap], version: int, most: int | None
) -> Steps[Points]:
    symbols = None
    if version == 2:
        symbols = [str(text, "utf-8") for tag, text in fields(body) if tag == _SYMBOLS]
    read = _Reader(index, symbols)
    if version == 1:
        yield from _read_plain(read, body, most)
    else:
        yield from _read_each(read, body, version, most)
    return read.points


def _read_plain(read: _Reader, body: bytes, most: int | None) -> Steps[None]:
    """Read version 1, some thousand series together."""
    at, place, together = 0, 0, _FEWEST_TOGETHER
    while at < len(body):
        yield
        samples = Samples(body, at, together)
        yield from read.prepare(body, samples)
        kept = read.take_plain(body, samples, place)
        odd = np.flatnonzero(~kept).tolist()
        for begin in range(0, len(odd), _SERIES_A_STEP):
            for row in odd[begin : begin + _SERIES_A_STEP]:
                read.take_series(body[slice(*samples.bodies[:, row])], place + row + 1, 1)
                if most is not None and len(read.points) > most:
                    break
            yield
        if most is not None and len(read.points) > most:
            break
        if samples.code == FOREIGN:
            raise _foreign(1)
        if samples.code == BROKEN:
            raise IndexError
        at, place = samples.at, place + len(samples)
        together = min(2 * together, _MOST_TOGETHER) if kept.all() else _FEWEST_TOGETHER
    read.points.sort()


def _read_each(read: _Reader, body: bytes, version: int, most: int | None) -> Steps[None]:
    layout, place = _LAYOUTS[version], 0
    for tag, series in fields(body):
        if tag in layout.foreign:
            raise _foreign(version)
        if tag != layout.series:
            continue
        if place % _SERIES_A_STEP == 0:
            yield
        place += 1
        read.take_series(series, place, version)
        if most is not None and len(read.points) > most:
            break


def _foreign(version: int) -> UnreadableError:
    return UnreadableError(
        f"the body has fields that remote write version {version} does not have; give the version "
        "in content-type"
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """A series that a mapping reads.

    Attributes:
        series: text of the id.
        metric: the last text of the id.
        layout: the columns that the series fills, if the stream has columns.
    """

    map: RemoteWriteMap
    series: str
    metric: str
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The instructions for a series.

    Attributes:
        name: of the metric.
        named: number of mappings that name it.
        targets: of mappings that read the series.
        faults: reasons why other matching mappings cannot.
        plain: whether every mapping of the metric reads the series, and values as they are sent.
        only: the target if there is one, which reads every finite number unchanged.
        bytes: memory, about.
    """

    name: str = "a series"
    named: int = 0
    targets: tuple[_Target, ...] = ()
    faults: tuple[str, ...] = ()
    plain: bool = False
    only: _Target | None = None
    bytes: int = 0

    @property
    def group(self) -> int:
        """By the mapping of ``only``."""
        return 0 if self.only is None else id(self.only.map)


class _Reader:
    """Readings so far. ``symbols`` are the texts of labels, in version 2."""

    def __init__(self, index: SeriesIndex[RemoteWriteMap], symbols: Sequence[str] | None) -> None:
        self.points = Points(form="prometheus", entity=index.entity)
        self._symbols = symbols
        self._texts = SeriesTexts()
        self._faults: dict[str, str] = {}
        self._index = index
        # In version 2 the same bytes are other labels in another body.
        shared = symbols is None
        self._plans: Plans[Any, _Plan] = plans_of("prometheus", [index]) if shared else Plans()
        self._codes: dict[_Target, int] = {}

    def plan(self, parts: tuple[bytes, ...]) -> _Plan:
        """Return the plan for the labels of a series, as they are written."""
        found = self._plans.get(parts)
        if found is None:
            found = self._planned(parts)
        return found

    def take_plain(self, body: bytes, samples: Samples, before: int) -> npt.NDArray[np.bool_]:
        """Add the samples that one mapping reads as they are. Return which these are.

        Args:
            before: series before the first one.
        """
        plans, of_row, rows = read_by_one(self._plans, body, samples)
        if not len(rows):
            return samples.plain
        targets = [each.only for each in plans if each.only is not None]
        codes = codes_of(targets, self._codes, self._enter)[of_row]
        times = samples.times[rows]
        periods = np.array([each.map.period_ns for each in targets], np.int64)
        numbers = times if (periods == 1).all() else times // periods[of_row]
        self.points.extend(codes, numbers, times, samples.values[rows], rows + before + 1)
        return samples.plain

    def prepare(self, body: bytes, samples: Samples) -> Steps[None]:
        """Make missing plans for plain series, in steps."""
        begins, ends = samples.labels[:, samples.plain]
        _, numbers = self._plans.numbers(body, begins, ends)
        for count, row in enumerate(np.flatnonzero(numbers < 0).tolist()):
            if count % _SERIES_A_STEP == 0:
                yield
            key = body[begins[row] : ends[row]]
            if self._plans.named(key) is None:
                self._planned(tuple(content for _, content in fields(key)), key)

    def take_series(self, series: bytes, place: int, version: int) -> None:
        """Add the readings of any series."""
        layout = _LAYOUTS[version]
        labels: list[bytes] = []
        samples: list[bytes] = []
        histograms = 0
        for tag, content in fields(series):
            if tag in layout.labels:
                labels.append(content)
            elif tag == layout.samples:
                samples.append(content)
            elif tag == layout.histograms:
                histograms += 1
        self.take(self.plan(tuple(labels)), samples, histograms, place)

    def _enter(self, targets: Sequence[_Target]) -> range:
        return self.points.enter_all(
            [each.series for each in targets],
            [each.metric for each in targets],
            [each.layout for each in targets],
        )

    def _planned(self, parts: tuple[bytes, ...], key: bytes | None = None) -> _Plan:
        """Make a plan and store it."""
        plan = self._made(parts)
        if not self._texts.full:
            if key is None:
                self._plans.keep(parts, plan)
            else:
                self._plans.keep_named(key, plan)
        return plan

    def _made(self, parts: tuple[bytes, ...]) -> _Plan:
        size = _PLAN_BYTES + size_of(parts)
        try:
            labels = self._labels(parts)
        except RefusedError as fault:
            return _Plan(named=1, faults=(str(fault),), bytes=size)
        name = labels.pop(_NAME, "")
        readers = self._index.readers(name)
        if readers is None:
            return _Plan(name, bytes=size)
        targets: list[_Target] = []
        faults: list[str] = []
        for each in readers.wanting(labels):
            try:
                text = self._texts.of(labels, each.dropped)
                targets.append(_Target(each, text, name, self._layout(each, name, labels)))
            except RefusedError as fault:
                faults.append(self._faults.setdefault(str(fault), str(fault)))
        size += size_of(each.series for each in targets) + _TARGET_BYTES * len(targets)
        size += sum(each.layout.bytes for each in targets if each.layout is not None)
        named = len(readers.maps)
        plain = len(targets) == named and not any(each.map.changes for each in targets)
        only = targets[0] if plain and named == 1 and not targets[0].map.labels else None
        return _Plan(name, named, tuple(targets), tuple(faults), plain, only, size)

    def _layout(self, of: RemoteWriteMap, name: str, labels: dict[str, str]) -> Layout | None:
        filling = self._index.filling(of)
        if filling is None:
            return None
        kept = {label: text for label, text in labels.items() if label not in of.dropped}
        return filling.layout(kept, {METRIC: name}, value=of.measured)

    def take(self, plan: _Plan, samples: Sequence[bytes], histograms: int, place: int) -> None:
        """Add the readings of a series."""
        told = self.points.told
        if not plan.named:
            told.skip("metric", len(samples) + histograms)
            return
        where = f"series {place} {plan.name}"
        for fault in plan.faults:
            told.refuse(where, fault, len(samples) + histograms)
        if missing := plan.named - len(plan.targets) - len(plan.faults):
            told.skip("where", missing * (len(samples) + histograms))
        if not plan.targets:
            return
        if histograms:
            told.refuse(where, "is a native histogram; expected samples", histograms)
        for sample in samples:
            value, time_ms = _sample(sample)
            missing = value != value
            wanting = [each for each in plan.targets if each.map.kind] if missing else plan.targets
            if len(wanting) < len(plan.targets):
                told.skip("no value", len(plan.targets) - len(wanting))
            if not time_ms:
                told.refuse(where, "there is no time", min(len(wanting), 1))
                continue
            for target in wanting:
                try:
                    self._add(target, None if missing else value, time_ms * _NS, place)
                except RefusedError as fault:
                    told.refuse(where, str(fault))

    def _add(self, target: _Target, value: float | None, time_ns: int, place: int) -> None:
        """Raises RefusedError: it is no reading."""
        points, each = self.points, target.map
        given = each.value_of(value) if target.layout is None else each.present(value)
        code = self._codes.get(target)
        if code is None:
            code = self._codes[target] = points.enter(target.series, target.metric, target.layout)
        points.add(code, time_ns // each.period_ns, time_ns, given, 1, place)

    def _labels(self, parts: Sequence[bytes]) -> dict[str, str]:
        """Raises RefusedError: there are too many, or one is there twice."""
        labels: dict[str, str] = {}
        pairs = _pairs(parts) if self._symbols is None else _referred(parts, self._symbols)
        for number, (name, text) in enumerate(pairs):
            if number >= _MOST_LABELS:
                raise RefusedError(f"there are more than {_MOST_LABELS} labels")
            if name in labels:
                raise RefusedError("a label is repeated")
            labels[name] = text
        return {name: text for name, text in labels.items() if text}


def _pairs(parts: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    for part in parts:
        given = dict(fields(part))
        yield str(given.get(_LABEL_NAME, b""), "utf-8"), str(given.get(_LABEL_TEXT, b""), "utf-8")


def _referred(parts: Iterable[bytes], symbols: Sequence[str]) -> Iterator[tuple[str, str]]:
    numbers = _numbers(parts)
    for name in numbers:
        text = next(numbers, None)
        if text is None:
            raise IndexError
        yield symbols[name], symbols[text]


def _numbers(parts: Iterable[bytes]) -> Iterator[int]:
    for part in parts:
        at = 0
        while at < len(part):
            number, at = varint(part, at)
            yield number


def _sample(sample: bytes) -> tuple[float, int]:
    """Return value and time in ms. Writers omit a 0."""
    value, time = 0.0, 0
    for tag, content in fields(sample):
        if tag == 1 << 3 | FIXED64:
            (value,) = _DOUBLE.unpack(content)
        elif tag == 2 << 3 | VARINT:
            time = varint(content, 0)[0]
            time -= (time >> 63) << 64
    return value, time
