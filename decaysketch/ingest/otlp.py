"""Metrics of OpenTelemetry (OTLP), protobuf or JSON: data points become readings.

================================ ===================================================================
gauge                            a reading
sum, delta                       a reading: the increment
histogram, delta                 a reading for each bucket that is not empty: the middle of the
                                 bucket, cut by min and max, with the count as its weight; a count
                                 above the largest weight is parted, and the parts are numbered
sum, histogram, cumulative       refused: without state, and with copies and disorder, nobody can
                                 take differences of them
exponential histogram, summary   refused
================================ ===================================================================

With ``value = "attr:..."`` the value is an attribute, a label; a gauge then has the weight 1, a sum
its increment and a histogram its count.

A reading is known by

    some attributes of the resource (``resource_keys``) and those of the data point, as one text;
    the metric, with the number of the bucket and of the part where there are such; and the time
    in nanoseconds.

So what an exporter sends again is the same reading. A gauge is exported again at every interval
with a new time, which makes it another one.

Nothing raises for what a stranger sends but :class:`~decaysketch.ingest.readings.UnreadableError`,
of a body as a whole. A count may be of any size, so rows that a data point gives are counted, and
bounded by ``most``, before there is one; it is taken as a whole or not at all.
"""

from __future__ import annotations

import json
import math
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from decaysketch.ingest.mapping import Texts
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError, Steps, UnreadableError, finished
from decaysketch.ingest.series import (
    Name,
    Plans,
    Readers,
    SeriesIndex,
    SeriesMap,
    SeriesTexts,
    text_of,
)

__all__ = ["OtlpMap", "parse", "steps"]

_DELTA = 1
_NO_RECORDED_VALUE = 1
_MOST_COUNTED = 1 << 63
_POINTS_A_STEP = 64
_CURE = "set OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta where it is exported"


class OtlpMap(SeriesMap):
    """A reading of OpenTelemetry's metrics."""

    reads: ClassVar = ("metric", "value")
    named_by: ClassVar = ("resource_keys", "drop_attributes", "dedup")

    format: Literal["otlp"] = Field(description="Metrics of OpenTelemetry.")
    metric: Name = Field(description="Name of the metric whose values these are.")
    resource_keys: Texts = Field(
        default=("service.name", "service.instance.id", "host.name"),
        description="Attributes of the resource that are part of an id.",
    )
    drop_attributes: Texts = Field(
        default=(), description="Attributes of data points that are no part of an id."
    )
    value: Annotated[str, Field(pattern=r"^attr:.{1,1000}$")] | None = Field(
        default=None,
        description="`attr:error.code`: the attribute of this name (of the resource with "
        "`resource.` before it) is the value, a label; sums and histograms say how many of it "
        "there are. None: the number that was measured.",
    )

    @property
    def series_name(self) -> str:
        """The metric."""
        return self.metric

    @property
    def attribute(self) -> str | None:
        """Name of the attribute that is the value."""
        return None if self.value is None else self.value.removeprefix("attr:")

    def series(self, attributes: dict[str, Any], resource: str) -> tuple[str, ...]:
        """Parts of the text of the id, of which that of the resource is one: no two series have
        the same."""
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
    """The readings of a body, by maps of one stream. O(length), beside the rows that it gives.

    Args:
        body: any bytes: an ``ExportMetricsServiceRequest``.
        maps: of the stream; as an index, where there are several bodies.
        as_json: in JSON, not in protobuf.
        max_weight: of a reading.
        most: where there are more readings than this, some are left out and still more are given
            than this.

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
    """The same, in steps: the body at once, then some data points a step."""
    request = _from_json(body) if as_json else _from_protobuf(body)
    read, index = _Reader(max_weight, most), SeriesIndex.of(maps)
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
                if (reason := _fault_of_kind(kind, data)) is not None:
                    read.points.told.refuse(metric.name, reason, len(points))
                    continue
                if resource is None:
                    resource = _Resource(_attributes(group.resource.attributes))
                yield from read.metric(
                    resource.readers(metric.name, readers), resource, points, kind
                )
                if read.full:
                    return read.points
    return read.points


def _fault_of_kind(kind: str, data: Any) -> str | None:
    if kind == "gauge":
        return None
    if kind not in ("sum", "histogram"):
        return f"is a {kind.replace('_', ' ')}, which holds no observations; expected a histogram"
    if data.aggregation_temporality != _DELTA:
        given = {0: "of no temporality", 2: "cumulative"}.get(data.aggregation_temporality, "other")
        return f"the {kind} is {given}; expected delta: {_CURE}"
    return None


class _Resource:
    """What many series have in common, read once for all of them."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.labels = {f"resource.{key}": _text(value) for key, value in attributes.items()}
        self._attributes = attributes
        self._texts: dict[tuple[str, ...], str] = {}
        self._readers: dict[str, Readers[OtlpMap]] = {}

    def readers(self, name: str, of: Readers[OtlpMap]) -> Readers[OtlpMap]:
        """Mappings of a metric, of which these attributes are known."""
        found = self._readers.get(name)
        if found is None:
            found = self._readers[name] = of.given(self.labels)
        return found

    def text(self, keys: tuple[str, ...]) -> str:
        """These of its attributes, as far as it has them."""
        found = self._texts.get(keys)
        if found is None:
            chosen = {key: self._attributes[key] for key in keys if key in self._attributes}
            found = self._texts[keys] = text_of(chosen)
        return found


class _Wanted(NamedTuple):
    """What a map reads of a series; or why it cannot."""

    map: OtlpMap
    series: str
    codes: dict[tuple[int, int], int]  # by bucket and part; (0, 0) where there are none
    label: str | None = None  # in place of the number
    fault: str = ""


@dataclass
class _Reader:
    """Readings so far."""

    max_weight: int
    most: int | None
    points: Points = field(default_factory=Points)
    _texts: SeriesTexts = field(default_factory=SeriesTexts)
    _faults: dict[str, str] = field(default_factory=dict)
    _place: int = 0

    @property
    def full(self) -> bool:
        return self.most is not None and len(self.points) > self.most

    def metric(
        self,
        readers: Readers[OtlpMap],
        resource: _Resource,
        data: Iterable[Any],
        kind: str,
    ) -> Steps[None]:
        """Read the data points of a metric that is a gauge, a sum or a histogram."""
        told, maps = self.points.told, readers.maps
        plans: Plans[tuple[tuple[str, str | bytes], ...], list[_Wanted] | str] = Plans()
        take = self._histogram if kind == "histogram" else self._number
        for point in data:
            if self.full:
                return
            if self._place % _POINTS_A_STEP == 0:
                yield
            self._place += 1
            # As bytes, for 1, 1.0 and true are equal in Python and not in the protocol.
            pairs = tuple(
                [(each.key, each.value.string_value or each.value.SerializeToString())
                 for each in point.attributes]
            )  # fmt: skip
            plan = plans.get(pairs)
            if plan is None:
                plan = self._planned(readers, resource, point.attributes)
                plans.keep(pairs, plan, len(plan))
            if isinstance(plan, str):
                told.refuse(self._where(maps[0]), plan)
            elif point.flags & _NO_RECORDED_VALUE:
                told.skip("no value")
            elif not point.time_unix_nano:
                told.refuse(self._where(maps[0]), "there is no time")
            else:
                if missing := len(maps) - len(plan):
                    told.skip("where", missing)
                for wanted in plan:
                    if self.full:
                        return
                    try:
                        if wanted.fault:
                            raise RefusedError(wanted.fault)
                        if wanted.label is None:
                            take(wanted, point)
                        else:
                            self._counted(wanted, point, kind)
                    except RefusedError as fault:
                        told.refuse(self._where(wanted.map), str(fault))

    def _where(self, of: OtlpMap) -> str:
        return f"{of.metric}, data point {self._place}"

    def _planned(
        self, readers: Readers[OtlpMap], resource: _Resource, given: Any
    ) -> list[_Wanted] | str:
        """What is read of a series; or why it is none."""
        attributes = _attributes(given)
        if len(attributes) != len(given):
            return "an attribute is there twice"
        labels = {key: _text(value) for key, value in attributes.items()}
        both = ChainMap(resource.labels, labels)
        return [
            self._named(each, attributes, resource, both)
            for each in readers.wanting(labels)
            if each.attribute is None or each.attribute in both
        ]

    def _named(
        self, each: OtlpMap, attributes: dict[str, Any], resource: _Resource, both: Any
    ) -> _Wanted:
        label = None if each.attribute is None else both[each.attribute]
        try:
            self._texts.check(0)
            parts = each.series(attributes, resource.text(each.resource_keys))
            return _Wanted(each, self._texts.checked(*parts), {}, label)
        except RefusedError as fault:
            told = self._faults.setdefault(str(fault), str(fault))
            return _Wanted(each, "", {}, label, told)

    def _number(self, wanted: _Wanted, point: Any) -> None:
        kind = point.WhichOneof("value")
        if kind is None:
            raise RefusedError("there is no value")
        value = point.as_double if kind == "as_double" else point.as_int
        self._add(wanted, (0, 0), wanted.map.value_of(value), point.time_unix_nano, 1)

    def _histogram(self, wanted: _Wanted, point: Any) -> None:
        """All of its buckets, or none."""
        largest = self.max_weight
        buckets = [
            (bucket, wanted.map.value_of(value), count)
            for bucket, (value, count) in enumerate(_buckets(point))
            if count
        ]
        parts = sum(-(-count // largest) for *_, count in buckets)
        self._bound(point.count, parts)
        for bucket, value, count in buckets:
            # Rows of the largest weight, and one of what is left.
            for part in range(-(-count // largest)):
                weight = min(largest, count - part * largest)
                self._add(wanted, (bucket, part), value, point.time_unix_nano, weight)

    def _counted(self, wanted: _Wanted, point: Any, kind: str) -> None:
        """A label, so many times as the data point says; all of them, or none."""
        count = 1
        if kind == "histogram":
            count = point.count
        elif kind == "sum":
            given = point.WhichOneof("value")
            value = 0 if given is None else getattr(point, given)
            if given is None or not 0 <= value < _MOST_COUNTED or value != int(value):
                raise RefusedError(f"is {value} more of a label; expected a count")
            count = int(value)
        parts = -(-count // self.max_weight)
        self._bound(count, parts)
        for part in range(parts):
            weight = min(self.max_weight, count - part * self.max_weight)
            self._add(wanted, (0, part), wanted.label, point.time_unix_nano, weight)

    def _bound(self, count: int, parts: int) -> None:
        if self.most is not None and parts > self.most:
            raise RefusedError(
                f"there is a count of {count}, which is {parts} readings of max_weight "
                f"{self.max_weight}; at most {self.most} are taken at a time"
            )

    def _add(
        self, wanted: _Wanted, which: tuple[int, int], value: Any, time_ns: int, weight: int
    ) -> None:
        points = self.points
        code = wanted.codes.get(which)
        if code is None:
            bucket, part = which
            name = wanted.map.metric
            name += f" bucket {bucket}" if bucket or part else ""
            name += f" part {part}" if part else ""
            code = wanted.codes[which] = points.enter(wanted.series, name)
        points.codes.append(code)
        points.numbers.append(time_ns // wanted.map.period_ns)
        points.times_ns.append(time_ns)
        points.values.append(value)
        points.weights.append(weight)
        points.places.append(self._place)


def _buckets(point: Any) -> Iterable[tuple[float, int]]:
    """The middle and the count of each bucket.

    Raises:
        RefusedError: it is no histogram.
    """
    bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
    if bounds or counts:
        if len(counts) != len(bounds) + 1:
            raise RefusedError(
                f"there are {len(bounds)} bounds and {len(counts)} bucket counts; expected one more"
            )
        if sum(counts) != point.count:
            raise RefusedError(
                f"count is {point.count}; those of the buckets are {sum(counts)} together"
            )
    if not point.count:
        return ()
    if not bounds:
        if not point.HasField("sum"):
            raise RefusedError("there are no bounds, and no sum")
        return [(point.sum / point.count, point.count)]
    if not (math.isfinite(point.min) and math.isfinite(point.max)) or (
        point.HasField("min") and point.HasField("max") and point.min > point.max
    ):
        raise RefusedError(f"min is {point.min}, max is {point.max}; expected min <= max")
    if not all(map(math.isfinite, bounds)) or any(low >= high for low, high in pairwise(bounds)):
        raise RefusedError("the bounds do not rise")
    lowest = point.min if point.HasField("min") else min(0.0, bounds[0])
    highest = point.max if point.HasField("max") else bounds[-1]
    lows = [lowest, *(max(each, lowest) for each in bounds)]
    highs = [*(min(each, highest) for each in bounds), max(highest, lows[-1])]
    return [
        # A half of each, so that no sum overflows. A bucket beyond min or max has no middle.
        (low / 2 + high / 2 if low <= high else low, count)
        for low, high, count in zip(lows, highs, counts, strict=True)
    ]


def _attributes(given: Iterable[Any]) -> dict[str, Any]:
    return {each.key: each.value.string_value or _value(each.value) for each in given}


def _value(given: Any) -> Any:
    """What an attribute is, as JSON has it."""
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
    """As ``where`` names it."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


# ----------------------------------------------------------------------------------------- bodies


def _from_protobuf(body: bytes) -> Any:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

    request = metrics_service_pb2.ExportMetricsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise UnreadableError("the body is no protobuf of an export of metrics") from None
    return request


def _from_json(body: bytes) -> Any:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

    try:
        # Exemplars, which nobody reads, have ids in hexadecimal, where protobuf expects base64.
        document = json.loads(body, object_hook=_without_exemplars)
        if not isinstance(document, dict):
            raise UnreadableError("the body is no object")
        if b"\\ud" in body.lower():  # perhaps half of a pair, which protobuf stumbles over
            json.dumps(document, ensure_ascii=False).encode("utf-8")
        return json_format.ParseDict(
            document,
            metrics_service_pb2.ExportMetricsServiceRequest(),
            ignore_unknown_fields=True,
        )
    except (json_format.ParseError, json.JSONDecodeError, UnicodeError) as error:
        raise UnreadableError(f"the body is no JSON of an export of metrics: {error}") from None
    except (ArithmeticError, RecursionError, ValueError):
        raise UnreadableError("the body is too deep, or has a number that is too long") from None


def _without_exemplars(fields: dict[str, Any]) -> dict[str, Any]:
    fields.pop("exemplars", None)
    return fields
