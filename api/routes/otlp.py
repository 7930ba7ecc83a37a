"""OpenTelemetry metrics, as exporters and the collector post them (OTLP/HTTP).

The protocol decides the status: senders repeat 503 with Retry-After, and some exporters drop 429,
so this module never returns 429. They do not repeat 400. If the server rejects some data points, it
stores the rest and returns 200 with ``partial_success``. The same field reports values that fill no
column, with 0 rejected data points. Responses have the encoding of the
request, problems in protobuf too (``google.rpc.Status``).
"""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.exceptions import HTTPException

from api import schemas
from api.http.caller import writes
from api.http.json_body import MOST_PARTS, TooManyPartsError
from api.http.middleware import require_media_type
from api.http.problems import ProblemResponse, problems
from api.http.refusals import BodyTooLargeError
from api.ingest.building import SeriesIngestion
from api.ingest.json_weight import parts
from api.routes.common import TheAggregator, TheSettings, TheStream
from api.routes.ingest import (
    BAD,
    BUSY,
    as_understood,
    form_of,
    index_of,
    ingest_series,
    precision_check,
    translated,
    understood_by,
)
from api.service.source_stats import warnings_of_columns
from decaysketch.ingest.columns import Form
from decaysketch.ingest.otlp import OtlpMap, steps
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import Steps
from decaysketch.ingest.series import SeriesIndex

__all__ = ["router"]

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_EXAMPLE = '"metric": ...'
_POINTS_TOLD = 10

_GROWTH = 60  # of a body of empty attributes, when protobuf has read it; of JSON 30
_JSON_GROWTH = 30


def _answer(request: Request, answer: ProblemResponse) -> Response:
    problem, status, headers = translated(answer, BAD | BUSY)
    if request.headers.get("content-type", "").lower().startswith(_PROTOBUF):
        text = problem["detail"].encode("utf-8", "backslashreplace")
        return Response(_field(2, text), status, headers, media_type=_PROTOBUF)
    return as_understood(answer, BAD | BUSY, message=problem["detail"])


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*text, number])


router = APIRouter(route_class=understood_by(_answer))


@router.post(
    "/v1/streams/{name}/otlp/v1/metrics",
    tags=["observations"],
    summary="Post OpenTelemetry metrics",
    dependencies=[Depends(writes)],
    response_class=Response,
    responses={
        200: {
            "description": "The server has stored all data points that the stream's mappings "
            "select, except those counted in `partial_success`.",
            "content": {
                _PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
                _JSON: {"schema": {"type": "object"}},
            },
        },
        **problems(
            s400="The body cannot be read, or the stream has no mapping for the format.",
            s403="The source was revoked.",
            s404="No such stream.",
            s413="The body is too long, or has too many readings.",
            s415="The body is neither protobuf nor JSON.",
            s501="The package `opentelemetry-proto` is not installed here.",
            s503="Too many posts wait to be written, or the journal is unreachable. Send the "
            "request again after Retry-After.",
            s507="There is no capacity for its rows, or for another source.",
        ),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "An `ExportMetricsServiceRequest`.",
            "content": {
                _PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
                _JSON: {"schema": {"type": "object"}},
            },
        }
    },
)
async def post_metrics(
    name: schemas.StreamName,
    request: Request,
    aggregator: TheAggregator,
    stream: TheStream,
    settings: TheSettings,
    source: Annotated[
        str, Query(pattern=schemas.SOURCE, description="Name of the source. Default: `otlp`.")
    ] = "otlp",
    check_units: Annotated[
        bool,
        Query(
            description="Reject a body if its times are not nanoseconds: nearly all times, or "
            "some times in the first post to a stream."
        ),
    ] = True,
) -> Response:
    """Give an exporter this URL as `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, the key in
    `OTEL_EXPORTER_OTLP_HEADERS`, and `delta` as the preference of temporality.
    """
    as_json = require_media_type(request, _PROTOBUF, _JSON) == _JSON
    stream.admit(source)
    maps: SeriesIndex[OtlpMap] = index_of(stream, "otlp", _EXAMPLE)
    body = await request.body()
    if not as_json and (most := settings.max_json_bytes * _JSON_GROWTH // _GROWTH) < len(body):
        raise BodyTooLargeError(most)
    # Buckets are rows as well, each of a byte or more.
    form = form_of(aggregator, stream, source, settings, 1 + len(maps) * len(body))
    ingestion = SeriesIngestion(
        stream=stream, form=form, views=aggregator.views_of(stream), unit="ns", place="data point",
        check_unit=precision_check(stream, "ns", check_units=check_units), polled=maps.polled,
    )  # fmt: skip
    read = partial(_read, maps=maps, form=form, as_json=as_json)
    refused, told, [points] = await ingest_series(request, [ingestion], body, read, _POINTS_TOLD)
    told += warnings_of_columns(points.dropped)
    if as_json:
        counts = {"rejectedDataPoints": str(refused), "errorMessage": "; ".join(told)}
        return Response(json.dumps({"partialSuccess": counts} if told else {}), media_type=_JSON)
    message = _field(2, "; ".join(told).encode("utf-8", "backslashreplace"))
    content = _field(1, b"\x08" + _varint(refused) + message) if told else b""
    return Response(content, media_type=_PROTOBUF)


def _read(
    body: bytes, maps: SeriesIndex[OtlpMap], form: Form, *, as_json: bool
) -> Steps[list[Points]]:
    if as_json and (found := parts(body, MOST_PARTS)) > MOST_PARTS:
        raise TooManyPartsError(found, MOST_PARTS)
    weight = form.weights.high
    try:
        points = yield from steps(
            body, maps, as_json=as_json, max_weight=weight, most=form.max_rows
        )
    except ModuleNotFoundError as error:
        raise HTTPException(
            HTTPStatus.NOT_IMPLEMENTED,
            f"{error.name} is not installed on this server: install the extra `otlp` "
            "(opentelemetry-proto)",
        ) from None
    return [points]
