"""OpenTelemetry metrics (OTLP), protobuf or JSON: data points become readings.

================================ ===================================================================
gauge                            a reading
sum, delta                       a reading: the increment
histogram, delta                 a reading for each bucket that is not empty: its range,
                                 cut by min and max, with the count as its weight; a count
                                 above the largest weight is split, and the parts are numbered
sum, cumulative                  a reading with its start, by a mapping whose kind is "counter", in
                                 a series stream
histogram, cumulative            likewise, a counter per bound, which counts the values up to it.
                                 The attribute ``le`` contains the bound
the same for other mappings      rejected: without state, and with duplicates and disorder, their
                                 differences cannot be computed
exponential histogram, summary   rejected
================================ ===================================================================

With ``value = "attr:..."`` the value is an attribute, a label. A gauge then has the weight 1, a sum
its increment and a histogram its count.

Three parts identify a reading:

    some attributes of the resource (``resource_keys``) and the attributes of the data point, as one
    text; the metric, with the bucket number and the part number if there are such; and the time
    in nanoseconds.

In a stream with columns, a data point is one observation. Its columns are its attributes,
else resource attributes, ``metric`` and ``value``. The reader rejects histograms there, because
a column has numbers and no ranges.

So data that an exporter sends again are the same reading. An exporter sends a gauge again at every
interval with a new time, so it is another reading.

Replicas of a service that no attribute in their ids distinguishes are one source of readings. The
reader counts data points of resources that have a distinguishing attribute (:data:`INSTANCES`), if
the ids contain none.

Untrusted input raises only :class:`~decaysketch.ingest.readings.UnreadableError`, for a complete
body. A count may have any size. So the reader counts the rows of a data point, and bounds them by
``most``, before it makes any. It accepts all rows of a data point or none.
"""

from __future__ import annotations

import json
import math
import struct
from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from decaysketch.core.ranges import Range
from decaysketch.ingest._native import Samples
from decaysketch.ingest.mapping import Texts
from decaysketch.ingest.otlp_json import from_json
from decaysketch.ingest.points import Points, codes_of
from decaysketch.ingest.protobuf import varint
from decaysketch.ingest.readings import RefusedError, Steps, UnreadableError, finished
from decaysketch.ingest.record_columns import METRIC, Layout
from decaysketch.ingest.series import (
    Name,
    Plans,
    Readers,
    SeriesIndex,
    SeriesMap,
    SeriesTexts,
    plans_of,
    read_by_one,
    size_of,
    text_of,
)
from decaysketch.ingest.series_rows import bucket_text

__all__ = ["INSTANCES", "OtlpMap", "parse", "steps"]

INSTANCES = (
    "service.instance.id", "k8s.pod.uid", "k8s.pod.name", "container.id", "container.name",
    "host.id", "host.name", "faas.instance", "device.id", "process.pid",
)  # fmt: skip
"""Attributes of resources that distinguish the replicas of a service, the best one first."""

_DELTA, _CUMULATIVE = 1, 2
_NO_RECORDED_VALUE = 1
_MOST_COUNTED = 1 << 63
_POINTS_A_STEP = 64
_LEAST_TOGETHER, _MOST_TOGETHER = 1 << 8, 1 << 12  # data points; arrays for them take memory
_FEWEST_TOGETHER = 24  # data points that are worth it
# A number as protobuf writes it: the time and a double, after its start and before its attributes.
_PLAIN_POINT = struct.Struct("<BQBd")
_POINT_TAG, _ATTRIBUTE_TAG = 1 << 3 | 2, 7 << 3 | 2
_START_TAG, _TIME_TAG, _VALUE_TAG = 2 << 3 | 1, 3 << 3 | 1, 4 << 3 | 1
_START_SIZE = 9
_START = struct.Struct("<Q")
_Number = tuple[int, float, bytes, int]  # nanoseconds, value, attributes as written, start or 0
_CURE = "set OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta at the exporter"


class OtlpMap(SeriesMap):
    """A reading from OpenTelemetry metrics."""

    reads: ClassVar = ("metric", "value")
    named_by: ClassVar = ("resource_keys", "drop_attributes", "dedup", "entity")

    format: Literal["otlp"] = Field(description="Metrics of OpenTelemetry.")
    measured: ClassVar = "value"

    metric: Name | None = Field(
        default=None,
        description="Name of the metric. With `columns` it may be absent: all metrics that no "
        "other mapping names.",
    )
    resource_keys: Texts = Field(
        default=("service.name", "service.instance.id", "host.name"),
        description="Attributes of the resource that are part of an id.",
    )
    drop_attributes: Texts = Field(
        default=(), description="Attributes of data points that are not part of an id."
    )
    value: Annotated[str, Field(pattern=r"^attr:.{1,1000}$")] | None = Field(
        default=None,
        description="`attr:error.code`: the value is the attribute of this name (of the resource "
        "with the prefix `resource.`), a label, and sums and histograms give its "
        "count. Default: the measured number.",
    )

    @model_validator(mode="after")
    def _names_its_metric(self) -> Self:
        if self.columns is None and self.metric is None:
            raise ValueError("metric is missing; expected its name, or columns")
        if self.columns is not None and self.value is not None:
            raise ValueError(f"value is {self.value!r}, and columns is given; expected one")
        return self

    @property
    def series_name(self) -> str | None:
        """The metric."""
        return self.metric

    @property
    def columns_omitted(self) -> frozenset[str]:
        """``drop_attributes``."""
        return frozenset(self.drop_attributes)

    @property
    def attribute(self) -> str | None:
        """Name of the attribute that is the value."""
        return None if self.value is None else self.value.removeprefix("attr:")

    def series(self, attributes: dict[str, Any], resource: str) -> tuple[str, ...]:
        """Return the parts of the id's text, including the resource. No two series have the
        same.
        """
        named = text_of(
            {key: value for key, value in attributes.items() if key not in self.drop_attributes}
        )
        return '{"attributes":', named, ',"resource":', resource, "}"


def parse(
    body: bytes,
    maps: Iterable[OtlpMap] | SeriesIndex[OtlpMap],
    *,
    as_json: bool = False,
    max_weight: int = 1,
    most: int | None = None,
) -> Points:
    """Return the readings in a body, by mappings of one stream. O(length), plus the rows that it
    gives.

    Args:
        body: any bytes: an ``ExportMetricsServiceRequest``.
        maps: the stream's mappings; as an index, if there are several bodies.
        as_json: in JSON, not in protobuf.
        max_weight: largest weight for a reading.
        most: beyond this number of readings, some are dropped, and the result still has more than
            this.

    Raises:
        UnreadableError: it is none.
        ModuleNotFoundError: the extra ``otlp`` is not installed.
    """
    return finished(steps(body, maps, as_json=as_json, max_weight=max_weight, most=most))


def steps(
    body: bytes,
    maps: Iterable[OtlpMap] | SeriesIndex[OtlpMap],
    *,
    as_json: bool = False,
    max_weight: int = 1,
    most: int | None = None,
) -> Steps[Points]:
    """Do the same in steps: protobuf is read in one, JSON in several, and then some data points in
    each step.
    """
    request = (yield from from_json(body)) if as_json else _from_protobuf(body)
    index = SeriesIndex.of(maps)
    read = _Reader(index, max_weight, most)
    yield from _read(read, index, request)
    read.points.sort()
    return read.points


def _read(read: _Reader, index: SeriesIndex[OtlpMap], request: Any) -> Steps[None]:
    for group in request.resource_metrics:
        resource: _Resource | None = None
        for scope in group.scope_metrics:
            yield
            for metric in scope.metrics:
                readers = index.readers(metric.name)
                kind = metric.WhichOneof("data")
                data = None if kind is None else getattr(metric, kind)
                points = () if data is None else data.data_points
                if not points:
                    continue
                if readers is None:
                    read.points.told.skip("metric", len(points))
                    continue
                if (reason := _fault_of_kind(kind, data, readers.maps)) is not None:
                    read.points.told.refuse(metric.name, reason, len(points))
                    continue
                if resource is None:
                    resource = _Resource(group.resource)
                of_resource = resource.readers(metric.name, readers)
                yield from read.metric(metric.name, of_resource, resource, data, kind)
                if read.full:
                    return


def _fault_of_kind(kind: str, data: Any, maps: Sequence[OtlpMap]) -> str | None:
    if kind == "gauge":
        return None
    if kind in ("sum", "histogram") and all(each.kind == "counter" for each in maps):
        if data.aggregation_temporality == _CUMULATIVE:
            return None
        return f"the {kind} is not cumulative; expected a mapping with the kind 'counter'"
    if kind not in ("sum", "histogram"):
        return f"is a {kind.replace('_', ' ')} without observations; expected a histogram"
    if data.aggregation_temporality != _DELTA:
        given = {0: "of no temporality", 2: "cumulative"}.get(data.aggregation_temporality, "other")
        return f"the {kind} is {given}; expected delta: {_CURE}"
    return None


class _Resource:
    """The common part in many series, read once for all of them.

    Attributes:
        written: the resource as protobuf; equal ones are the same resource.
        attributes: its attributes.
        labels: the same as ``where`` names them.
        instances: the members of INSTANCES that it has.
    """

    def __init__(self, given: Any) -> None:
        attributes = _attributes(given.attributes)
        self.written: bytes = given.SerializeToString()
        self.labels = {f"resource.{key}": _text(value) for key, value in attributes.items()}
        self.instances = [each for each in INSTANCES if each in attributes]
        self.attributes = attributes
        self._texts: dict[tuple[str, ...], str] = {}
        self._readers: dict[str, Readers[OtlpMap]] = {}

    def readers(self, name: str, of: Readers[OtlpMap]) -> Readers[OtlpMap]:
        """Return a metric's mappings, given these attributes."""
        found = self._readers.get(name)
        if found is None:
            found = self._readers[name] = of.given(self.labels)
        return found

    def text(self, keys: tuple[str, ...]) -> str:
        """Return those of these attributes that it has, as text."""
        found = self._texts.get(keys)
        if found is None:
            chosen = {key: self.attributes[key] for key in keys if key in self.attributes}
            found = self._texts[keys] = text_of(chosen)
        return found


@dataclass(slots=True, frozen=True, eq=False)
class _Target:
    """A series that a mapping reads, or the reason why it cannot.

    Attributes:
        series: text of the id.
        label: replaces the number.
        fault: reason why no reading can be named.
        unnamed: attribute that would distinguish replicas, and that the id does not contain.
        layout: the columns that the series fills, if the stream has columns.
    """

    map: OtlpMap
    series: str
    label: str | None = None
    fault: str = ""
    unnamed: str = ""
    layout: Layout | None = None

    @property
    def as_sent(self) -> bool:
        """Whether the mapping reads numbers unchanged, and nothing about them is counted."""
        return not (self.unnamed or self.map.labels or self.map.changes)


def _unnamed(of: OtlpMap, resource: _Resource) -> str:
    """Return the attribute that would distinguish the replicas of a resource, if the ids have
    none.
    """
    if not set(resource.instances).isdisjoint(of.resource_keys):
        return ""
    if resource.instances:
        return resource.instances[0]
    return INSTANCES[0] if of.dedup is not None else ""


@dataclass(slots=True, frozen=True, eq=False)
class _Plan:
    """The instructions for a series.

    Attributes:
        targets: for the mappings that read it.
        missing: number of mappings that require other attributes.
        fault: reason why it is no series.
        plain: whether every mapping reads its numbers.
        only: the target if there is one, which reads every finite number unchanged.
        bytes: memory, about.
    """

    targets: tuple[_Target, ...] = ()
    missing: int = 0
    fault: str = ""
    plain: bool = False
    only: _Target | None = None
    bytes: int = 0

    @property
    def group(self) -> int:
        """By the mapping of ``only``."""
        return 0 if self.only is None else id(self.only.map)


_PLAN_BYTES, _TARGET_BYTES = 200, 120  # without texts
_RESOURCE_BYTES = 1 << 12  # a longer resource makes no plan that is kept


class _Reader:
    """Readings so far."""

    def __init__(self, index: SeriesIndex[OtlpMap], max_weight: int, most: int | None) -> None:
        self.max_weight = max_weight
        self.most = most
        self.points = Points(form="otlp", entity=index.entity)
        self._index = index
        self._plans: Plans[tuple[Any, ...], _Plan] = plans_of("otlp", [index])
        self._codes: dict[tuple[_Target, int, int], int] = {}  # with the bucket and the part
        self._texts = SeriesTexts()
        self._faults: dict[str, str] = {}
        self._metric = ""
        self._place = self._next_step = 0

    @property
    def full(self) -> bool:
        return self.most is not None and len(self.points) > self.most

    def metric(
        self, name: str, readers: Readers[OtlpMap], resource: _Resource, data: Any, kind: str
    ) -> Steps[None]:
        """Read the data points of a metric that is a gauge, a sum or a histogram."""
        points, start = data.data_points, self._place
        self._metric = name
        read = 0
        if kind != "histogram" and len(points) >= _FEWEST_TOGETHER:
            read = yield from self._together(readers, resource, data, kind)
        if read < len(points):
            plain = kind != "histogram" and not read
            numbers = _numbers(data, len(points)) if plain else repeat(None, len(points) - read)
            yield from self._points(readers, resource, points, enumerate(numbers, read), kind)
        self._place = start + len(points)

    def _together(
        self, readers: Readers[OtlpMap], resource: _Resource, data: Any, kind: str
    ) -> Steps[int]:
        """Read data points that are numbers, some thousand together. Return how many."""
        points, start, context = data.data_points, self._place, (self._metric, resource.written)
        # A message per data point costs 2 us. So protobuf writes all of them in one piece.
        written, at, read, together = data.SerializeToString(), 0, 0, _LEAST_TOGETHER
        while read < len(points) and not self.full:
            yield
            samples = Samples(written, at, together, points=True)
            if not len(samples):  # an implementation that writes another field first
                break
            yield from self._prepare(written, samples, readers, resource, points, read)
            kept = self._bulk(written, samples, context, start + read)
            for count, row in enumerate(np.flatnonzero(~kept).tolist()):
                if self.full:
                    break
                if count % _POINTS_A_STEP == 0:
                    yield
                self._place = start + read + row + 1
                self._point(readers, resource, points[read + row], kind)
            at, read = samples.at, read + len(samples)
            together = min(2 * together, _MOST_TOGETHER) if kept.all() else _LEAST_TOGETHER
        self._place = start + read
        return read

    def _points(
        self,
        readers: Readers[OtlpMap],
        resource: _Resource,
        points: Any,
        numbers: Iterable[tuple[int, _Number | None]],
        kind: str,
    ) -> Steps[None]:
        """Read data points one by one: their positions, each with its number if it is plain."""
        context = self._metric, resource.written
        for at, number in numbers:
            if self.full:
                return
            if self._place >= self._next_step:
                self._next_step = self._place + _POINTS_A_STEP
                yield
            self._place += 1
            plan = None
            if number is not None:
                plan = self._plan_of(number[2], context, readers, resource, points[at])
            if plan is None or not plan.plain or number is None:
                self._point(readers, resource, points[at], kind)
            else:
                self._plain(plan, number)

    def _prepare(
        self,
        written: bytes,
        samples: Samples,
        readers: Readers[OtlpMap],
        resource: _Resource,
        points: Any,
        before: int,
    ) -> Steps[None]:
        """Make missing plans for plain data points, in steps."""
        context = self._metric, resource.written
        rows = np.flatnonzero(samples.plain)
        begins, ends = samples.labels[:, rows]
        _, numbers = self._plans.numbers(written, begins, ends, context)
        for count, row in enumerate(np.flatnonzero(numbers < 0).tolist()):
            if count % _POINTS_A_STEP == 0:
                yield
            text, point = written[begins[row] : ends[row]], points[before + int(rows[row])]
            self._plan_of(text, context, readers, resource, point)

    def _plan_of(
        self,
        text: bytes,
        context: tuple[str, bytes],
        readers: Readers[OtlpMap],
        resource: _Resource,
        point: Any,
    ) -> _Plan | None:
        """Return the plan for attributes as written. None: flags follow them."""
        found = self._plans.named(text, context)
        if found is None and not point.flags:
            found = self._planned((*context, text), readers, resource, point.attributes)
            if len(resource.written) <= _RESOURCE_BYTES and not self._texts.full:
                self._plans.keep_named(text, found, context)
        return found

    def _plain(self, plan: _Plan, number: _Number) -> None:
        """Add the readings of a number in the usual exporter format."""
        time_ns, value, _, start_ns = number
        for target in plan.targets:
            try:
                read = _number_of(target, value)
                self._start(target, start_ns)
                self._add(target, 0, 0, read, time_ns, 1)
            except RefusedError as fault:
                self.points.told.refuse(self._where(), str(fault))

    def _bulk(
        self, written: bytes, samples: Samples, context: tuple[str, bytes], before: int
    ) -> npt.NDArray[np.bool_]:
        """Add the numbers that one mapping reads as they are. Return which these are.

        Args:
            before: data points before the first one.
        """
        plans, of_row, rows = read_by_one(self._plans, written, samples, context)
        if not len(rows):
            return samples.plain
        targets = [each.only for each in plans if each.only is not None]
        counters = np.array([each.map.kind == "counter" for each in targets], np.bool_)[of_row]
        if len(starting := np.flatnonzero(counters & (samples.starts[rows] != 0))):
            first, starts = len(self.points), samples.starts[rows].tolist()
            self.points.starts_ns |= {first + row: starts[row] for row in starting.tolist()}
        codes = codes_of([(each, 0, 0) for each in targets], self._codes, self._enter)[of_row]
        times = samples.times[rows]
        periods = np.array([each.map.period_ns for each in targets], np.int64)
        numbers = times if (periods == 1).all() else times // periods[of_row]
        self.points.extend(codes, numbers, times, samples.values[rows], rows + before + 1)
        return samples.plain

    def _enter(self, targets: Sequence[tuple[_Target, int, int]]) -> range:
        return self.points.enter_all(
            [each.series for each, _, _ in targets],
            [self._metric] * len(targets),
            [each.layout for each, _, _ in targets],
        )

    def _point(self, readers: Readers[OtlpMap], resource: _Resource, point: Any, kind: str) -> None:
        """Read any data point."""
        told = self.points.told
        take = self._histogram if kind == "histogram" else self._number
        series: list[str | bytes] = [self._metric, resource.written]
        for each in point.attributes:
            # As bytes, for 1, 1.0 and true are equal in Python and not in the protocol.
            series += (each.key, each.value.string_value or each.value.SerializeToString())
        plan = self._plan(tuple(series), readers, resource, point.attributes)
        if plan.fault:
            told.refuse(self._where(), plan.fault)
            return
        missing = bool(point.flags & _NO_RECORDED_VALUE)
        if missing and not any(each.map.kind for each in plan.targets):
            told.skip("no value")
            return
        if not point.time_unix_nano:
            told.refuse(self._where(), "there is no time")
            return
        if missing:
            for target in plan.targets:
                if target.map.kind and not target.fault:
                    self._add(target, 0, 0, None, point.time_unix_nano, 1)
            return
        if plan.missing:
            told.skip("where", plan.missing)
        for target in plan.targets:
            if self.full:
                return
            try:
                if target.fault:
                    raise RefusedError(target.fault)
                if target.label is None:
                    take(target, point)
                else:
                    self._counted(target, point, kind)
            except RefusedError as fault:
                told.refuse(self._where(), str(fault))

    def _where(self) -> str:
        return f"{self._metric}, data point {self._place}"

    def _plan(
        self, key: tuple[Any, ...], readers: Readers[OtlpMap], resource: _Resource, given: Any
    ) -> _Plan:
        """Return the plan for a series, from earlier bodies or from its attributes."""
        found = self._plans.get(key)
        if found is None:
            found = self._planned(key, readers, resource, given)
            if len(resource.written) <= _RESOURCE_BYTES and not self._texts.full:
                self._plans.keep(key, found)
        return found

    def _planned(
        self, key: tuple[Any, ...], readers: Readers[OtlpMap], resource: _Resource, given: Any
    ) -> _Plan:
        attributes = _attributes(given)
        if len(attributes) != len(given):
            return _Plan(fault="an attribute is repeated", bytes=_PLAN_BYTES + size_of(key))
        labels = {key: _text(value) for key, value in attributes.items()}
        both = ChainMap(resource.labels, labels)
        targets = tuple(
            self._target(each, attributes, resource, both)
            for each in readers.wanting(labels)
            if each.attribute is None or each.attribute in both
        )
        texts = size_of([*key, *(each.series for each in targets)])
        size = _PLAN_BYTES + texts + _TARGET_BYTES * len(targets)
        size += sum(each.layout.bytes for each in targets if each.layout is not None)
        plain = len(targets) == len(readers.maps) and not any(
            each.fault or each.label is not None for each in targets
        )
        only = targets[0] if plain and len(targets) == 1 and targets[0].as_sent else None
        missing = len(readers.maps) - len(targets)
        return _Plan(targets, missing, plain=plain, only=only, bytes=size)

    def _target(
        self, each: OtlpMap, attributes: dict[str, Any], resource: _Resource, both: Any
    ) -> _Target:
        label = None if each.attribute is None else both[each.attribute]
        try:
            self._texts.check(0)
            parts = each.series(attributes, resource.text(each.resource_keys))
            unnamed, layout = _unnamed(each, resource), self._layout(each, attributes, resource)
            text = self._texts.checked(*parts)
            return _Target(each, text, label, unnamed=unnamed, layout=layout)
        except RefusedError as fault:
            told = self._faults.setdefault(str(fault), str(fault))
            return _Target(each, "", label, told)

    def _layout(
        self, of: OtlpMap, attributes: dict[str, Any], resource: _Resource
    ) -> Layout | None:
        filling = self._index.filling(of)
        if filling is None:
            return None
        both = {name: each for name, each in attributes.items() if name not in of.drop_attributes}
        both = resource.attributes | both
        return filling.layout(both, {METRIC: self._metric}, value=of.measured)

    def _number(self, target: _Target, point: Any) -> None:
        kind = point.WhichOneof("value")
        if kind is None:
            raise RefusedError("there is no value")
        value = point.as_double if kind == "as_double" else point.as_int
        value = _number_of(target, value)
        self._start(target, point.start_time_unix_nano)
        self._add(target, 0, 0, value, point.time_unix_nano, 1)

    def _histogram(self, target: _Target, point: Any) -> None:
        """Add all its buckets, or none."""
        if target.layout is not None:
            raise RefusedError(
                "is a histogram, whose buckets are ranges; expected a gauge or a sum in a stream "
                "with columns, or a stream without columns"
            )
        if target.map.kind == "counter":
            self._cumulative(target, point)
            return
        largest = self.max_weight
        buckets = [
            (bucket, _value_in(target.map, value), count)
            for bucket, (value, count) in enumerate(_buckets(point))
            if count
        ]
        parts = sum(-(-count // largest) for *_, count in buckets)
        self._bound(point.count, parts)
        for bucket, value, count in buckets:
            # Rows with the largest weight, and one row with the remainder.
            for part in range(-(-count // largest)):
                weight = min(largest, count - part * largest)
                self._add(target, bucket, part, value, point.time_unix_nano, weight)

    def _cumulative(self, target: _Target, point: Any) -> None:
        """Add a counter per bound, which counts the values up to it."""
        bounds, counts = _finite(list(point.explicit_bounds), list(point.bucket_counts))
        _check_buckets(bounds, counts, point.count)
        names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
        totals = list(accumulate(counts)) or [point.count]
        self._bound(point.count, len(names))
        for bucket, (bound, total) in enumerate(zip(names, totals, strict=True), 1):
            which = target, bucket, 0
            if which not in self._codes:
                text = self._texts.checked(bucket_text(target.series, bound))
                self._codes[which] = self.points.enter(text, self._metric)
            self._start(target, point.start_time_unix_nano)
            self._add(target, bucket, 0, target.map.value_of(total), point.time_unix_nano, 1)

    def _start(self, target: _Target, start_ns: int) -> None:
        """Note when the next reading's counter began."""
        if start_ns and target.map.kind == "counter":
            self.points.starts_ns[len(self.points)] = start_ns

    def _counted(self, target: _Target, point: Any, kind: str) -> None:
        """Add a label as many times as the data point counts. Add all of them, or none."""
        count = 1
        if kind == "histogram":
            count = point.count
        elif kind == "sum":
            given = point.WhichOneof("value")
            value = 0 if given is None else getattr(point, given)
            if given is None or not 0 <= value < _MOST_COUNTED or value != int(value):
                raise RefusedError(f"is {value} for a label; expected a count")
            count = int(value)
        parts = -(-count // self.max_weight)
        self._bound(count, parts)
        for part in range(parts):
            weight = min(self.max_weight, count - part * self.max_weight)
            self._add(target, 0, part, target.label, point.time_unix_nano, weight)

    def _bound(self, count: int, parts: int) -> None:
        if self.most is not None and parts > self.most:
            raise RefusedError(
                f"there is a count of {count}, which is {parts} readings of max_weight "
                f"{self.max_weight}; at most {self.most} are accepted at a time"
            )

    def _add(
        self, target: _Target, bucket: int, part: int, value: Any, time_ns: int, weight: int
    ) -> None:
        points = self.points
        if target.unnamed:
            unnamed = points.told.unnamed
            unnamed[target.unnamed] = unnamed.get(target.unnamed, 0) + 1
        which = target, bucket, part
        code = self._codes.get(which)
        if code is None:
            name = self._metric
            name += f" bucket {bucket}" if bucket or part else ""
            name += f" part {part}" if part else ""
            code = self._codes[which] = points.enter(target.series, name, target.layout)
        points.add(code, time_ns // target.map.period_ns, time_ns, value, weight, self._place)


def _numbers(data: Any, count: int) -> Iterator[_Number | None]:
    """Yield time, value and attributes for each number in the usual exporter format, and None for
    any other data point.

    A message per data point costs 2 us. So protobuf writes all of them in one piece, and this reads
    the piece.
    """
    written, at = data.SerializeToString(), 0
    for left in range(count, 0, -1):
        if written[at] != _POINT_TAG:  # an implementation that writes another field first
            yield from repeat(None, left)
            return
        begin, size = at + 2, written[at + 1]
        if size > 0x7F:
            size, begin = varint(written, at + 1)
        at = end = begin + size
        start = begin + _START_SIZE if size and written[begin] == _START_TAG else begin
        attributes = start + _PLAIN_POINT.size
        if attributes > end:
            yield None
            continue
        start_ns = _START.unpack_from(written, begin + 1)[0] if start > begin else 0
        time_tag, time_ns, value_tag, value = _PLAIN_POINT.unpack_from(written, start)
        plain = time_tag == _TIME_TAG and value_tag == _VALUE_TAG and time_ns
        plain = plain and (attributes == end or written[attributes] == _ATTRIBUTE_TAG)
        yield (time_ns, value, written[attributes:end], start_ns) if plain else None


def _number_of(target: _Target, number: float) -> Any:
    """Return a measured number by a mapping.

    Raises:
        RefusedError: it is not finite, and there is no column for it.
    """
    of = target.map
    return of.value_of(number) if target.layout is None else of.present(number)


def _value_in(of: OtlpMap, given: float | Range) -> Any:
    """Return a bucket's value by a mapping."""
    if type(given) is Range:
        return given if of.scale == 1.0 else given.scaled(of.scale)
    return of.value_of(given)


def _buckets(point: Any) -> Iterable[tuple[float | Range, int]]:
    """Return the range, or the number if it is one, and the count for each bucket.

    Raises:
        RefusedError: it is no histogram.
    """
    bounds, counts = _finite(list(point.explicit_bounds), list(point.bucket_counts))
    _check_buckets(bounds, counts, point.count)
    if not point.count:
        return ()
    if not bounds and not point.HasField("sum"):
        raise RefusedError("there are no bounds, and no sum")
    _check_extremes(point)
    if not bounds:
        return [(_whole(point), point.count)]
    _check_bounds(bounds)
    # A sum is only there if no value is negative (metrics.proto).
    least = 0.0 if point.HasField("sum") and bounds[0] > 0.0 else -math.inf
    lowest = point.min if point.HasField("min") else least
    highest = point.max if point.HasField("max") else math.inf
    edges = [-math.inf, *bounds, math.inf]
    return [
        (_between(low, high, lowest, highest), count)
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
    ]


def _check_buckets(bounds: list[float], counts: list[int], count: int) -> None:
    if not (bounds or counts):
        return
    if len(counts) != len(bounds) + 1:
        raise RefusedError(
            f"there are {len(bounds)} bounds and {len(counts)} bucket counts; expected one more"
        )
    if sum(counts) != count:
        raise RefusedError(f"count is {count}; the bucket counts add up to {sum(counts)}")


def _between(low: float, high: float, lowest: float, highest: float) -> float | Range:
    """Return a bucket's values, cut by the smallest and the largest value. A bucket beyond these
    contradicts them, and stays as wide as it is.
    """
    first, last = max(low, lowest), min(high, highest)
    if first > last:
        return Range(low, high)
    return first if first == last else Range(first, last, open=low > lowest)


def _whole(point: Any) -> float | Range:
    """Return the values without buckets: their mean, or one number."""
    if point.count == 1:
        return float(point.sum)
    low = point.min if point.HasField("min") else -math.inf
    high = point.max if point.HasField("max") else math.inf
    return float(low) if low == high else Range(low, high, mean=point.sum / point.count)


def _check_extremes(point: Any) -> None:
    if not (math.isfinite(point.min) and math.isfinite(point.max)) or (
        point.HasField("min") and point.HasField("max") and point.min > point.max
    ):
        raise RefusedError(f"min is {point.min}, max is {point.max}; expected min <= max")


def _check_bounds(bounds: list[float]) -> None:
    if not all(map(math.isfinite, bounds)):
        at = next(at for at, bound in enumerate(bounds) if not math.isfinite(bound))
        raise RefusedError(f"explicit_bounds[{at}] is {bounds[at]}; expected a finite number")
    for at, (low, high) in enumerate(pairwise(bounds)):
        if low >= high:
            raise RefusedError(
                f"explicit_bounds[{at + 1}] is {high}, after {low}; expected bounds that rise"
            )


def _finite(bounds: list[float], counts: list[int]) -> tuple[list[float], list[int]]:
    """Return bounds without an infinite first or last one. Some exporters write it although it is
    implied: the buckets to either side of it are one.
    """
    if len(counts) == len(bounds) + 1:
        if bounds and bounds[-1] == math.inf:
            bounds, counts = bounds[:-1], [*counts[:-2], counts[-2] + counts[-1]]
        if bounds and bounds[0] == -math.inf:
            bounds, counts = bounds[1:], [counts[0] + counts[1], *counts[2:]]
    return bounds, counts


def _attributes(given: Iterable[Any]) -> dict[str, Any]:
    return {each.key: each.value.string_value or _value(each.value) for each in given}


def _value(given: Any) -> Any:
    """Return an attribute's value, as in JSON."""
    kind = given.WhichOneof("value")
    match kind:
        case None:
            return None
        case "array_value":
            return [_value(each) for each in given.array_value.values]
        case "kvlist_value":
            return {each.key: _value(each.value) for each in given.kvlist_value.values}
        case "bytes_value":
            return {"bytes": given.bytes_value.hex()}
        case "double_value":
            number: float = given.double_value
            return number if math.isfinite(number) else {"double": str(number)}
    return getattr(given, kind)


def _text(value: Any) -> str:
    """Return the text that ``where`` compares."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


# ----------------------------------------------------------------------------------------- bodies


def _from_protobuf(body: bytes) -> Any:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

    request = metrics_service_pb2.ExportMetricsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise UnreadableError("the body is not a protobuf metrics export") from None
    return request
