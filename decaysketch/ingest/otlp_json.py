"""OTLP metrics as JSON, converted to the protobuf message in steps.

``json_format.ParseDict`` is written in Python, and takes half a second for a large body. Here it
converts resources, scopes and metrics one by one, and data points in groups. The message equals the
one that it makes from the complete document.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from decaysketch.ingest.json_text import without_mark
from decaysketch.ingest.mapping import shown
from decaysketch.ingest.readings import Steps, UnreadableError

__all__ = ["from_json"]

_POINTS_A_STEP = 64
_LISTS = ("resource_metrics", "scope_metrics", "metrics")
"""Repeated fields on the path to a metric, from the outside in."""

_DATA = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
_CAMEL = {
    "resource_metrics": "resourceMetrics", "scope_metrics": "scopeMetrics",
    "exponential_histogram": "exponentialHistogram", "data_points": "dataPoints",
}  # fmt: skip
"""Names that JSON may spell in two ways."""

_OLD = {
    "instrumentationLibraryMetrics": "scopeMetrics",
    "instrumentation_library_metrics": "scopeMetrics",
    "intGauge": "gauge", "doubleGauge": "gauge", "intSum": "sum", "doubleSum": "sum",
    "intHistogram": "histogram", "doubleHistogram": "histogram", "doubleSummary": "summary",
}  # fmt: skip
"""Names of OTLP before version 0.19, with those that replaced them."""

_TIMES = frozenset({"timeUnixNano", "time_unix_nano"})
_METRICS = frozenset({"resourceMetrics", "resource_metrics"})


def from_json(body: bytes) -> Steps[Any]:
    """Return an ``ExportMetricsServiceRequest``. O(length).

    Raises:
        UnreadableError: it is none.
        ModuleNotFoundError: the extra ``otlp`` is not installed.
    """
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

    request = metrics_service_pb2.ExportMetricsServiceRequest()
    try:
        # Exemplars are not used. Their ids are hexadecimal, and protobuf expects base64.
        document = json.loads(without_mark(body), object_hook=_modern)
        _check_kind(document)
        yield
        if b"\\ud" in body.lower():  # perhaps half of a pair, which protobuf stumbles over
            json.dumps(document, ensure_ascii=False).encode("utf-8")
            yield
        yield from _fill(request, document, _LISTS)
    except UnreadableError:
        raise
    except (json_format.ParseError, json.JSONDecodeError, UnicodeError) as error:
        raise UnreadableError(f"the body is not a JSON metrics export: {error}") from None
    except (ArithmeticError, RecursionError, ValueError):
        raise UnreadableError("the body is too deep, or has a number that is too long") from None
    return request


def _fill(message: Any, fields: dict[str, Any], lists: Sequence[str]) -> Steps[None]:
    """Add fields to a message: those outside the list first, then each of its members."""
    if not lists:
        yield from _fill_metric(message, fields)
        return
    name, *inner = lists
    members = _taken(fields, name)
    _convert(fields, message)
    for number, each in enumerate(members):
        _check_object(each, name, number)
        yield
        yield from _fill(getattr(message, name).add(), each, inner)


def _fill_metric(metric: Any, fields: dict[str, Any]) -> Steps[None]:
    points = {
        name: _taken(fields[spelled], "data_points")
        for name in _DATA
        for spelled in _spelled(fields, name)
        if isinstance(fields[spelled], dict)
    }
    _convert(fields, metric)
    for name, given in points.items():
        data = getattr(metric, name)
        for begin in range(0, len(given), _POINTS_A_STEP):
            part = type(data)()  # a conversion replaces the list that is there
            _convert({"dataPoints": given[begin : begin + _POINTS_A_STEP]}, part)
            data.data_points.extend(part.data_points)
            yield


def _taken(fields: dict[str, Any], name: str) -> list[Any]:
    """Remove a list from fields, and return it. Anything else stays, and protobuf judges it."""
    spelled = _spelled(fields, name)
    if len(spelled) != 1 or not isinstance(fields[spelled[0]], list):
        return []
    found: list[Any] = fields.pop(spelled[0])
    return found


def _spelled(fields: dict[str, Any], name: str) -> list[str]:
    return [each for each in dict.fromkeys((_CAMEL.get(name, name), name)) if each in fields]


def _convert(fields: dict[str, Any], message: Any) -> None:
    from google.protobuf import json_format

    json_format.ParseDict(fields, message, ignore_unknown_fields=True)


def _check_object(given: Any, name: str, number: int) -> None:
    if not isinstance(given, dict):
        raise UnreadableError(f"{name}[{number}] is {shown(given)}; expected an object")


def _check_kind(document: Any) -> None:
    """Raises UnreadableError: it is no export of metrics."""
    if not isinstance(document, dict):
        raise UnreadableError("the body is not an object")
    if document and _METRICS.isdisjoint(document):
        raise UnreadableError(
            f"the body has {shown(next(iter(document)))}; expected 'resourceMetrics': traces and "
            "logs have other endpoints"
        )


def _modern(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields without exemplars.

    Raises:
        UnreadableError: they are from an obsolete version, and would be ignored.
    """
    fields.pop("exemplars", None)
    if "labels" in fields and not _TIMES.isdisjoint(fields):
        raise UnreadableError(
            "a data point has 'labels', of OTLP before version 0.19; expected 'attributes'"
        )
    for old in _OLD.keys() & fields.keys():
        raise UnreadableError(
            f"the body has {old!r}, of OTLP before version 0.19; expected {_OLD[old]!r}: update "
            "the exporter, or send through a current OpenTelemetry collector"
        )
    return fields
