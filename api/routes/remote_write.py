"""Prometheus remote write, versions 1 and 2.

A sender repeats 5xx without limit and drops a batch at 400. It also drops a batch at 429 by
default, so a busy server returns 503. Version 2 requires the number of written samples, and treats
fewer than sent as a failure. So the number includes skipped samples and duplicates, since none of
them is lost.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated

import cramjam
from fastapi import APIRouter, Depends, Query, Request, Response

from api import schemas
from api.errors import InvalidRequestError, PartialWriteError
from api.http.caller import writes
from api.http.middleware import require_media_type
from api.http.problems import ProblemResponse, problems
from api.http.refusals import BodyTooLargeError, UnsupportedMediaTypeError
from api.ingest.building import SeriesIngestion
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
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import Steps, UnreadableError
from decaysketch.ingest.remote_write import RemoteWriteMap, most_samples, plain_length, steps
from decaysketch.ingest.series import SeriesIndex

__all__ = ["router"]

_PROTOBUF = "application/x-protobuf"
_VERSIONS = {"prometheus.WriteRequest": 1, "io.prometheus.write.v2.Request": 2}
_SAMPLES_TOLD = 10


def _answer(request: Request, answer: ProblemResponse) -> Response:
    problem, _, _ = translated(answer, {})
    told = as_understood(answer, BAD | BUSY, message=problem["detail"])
    told.headers.update(getattr(request.state, "written", {}))
    return told


router = APIRouter(route_class=understood_by(_answer))


@router.post(
    "/v1/streams/{name}/prometheus/write",
    tags=["observations"],
    summary="Write Prometheus samples",
    dependencies=[Depends(writes)],
    status_code=HTTPStatus.NO_CONTENT,
    response_class=Response,
    response_description="The server has stored all samples that the stream's mappings select.",
    responses=problems(
        s400="Some samples were rejected and the others stored. Or the body cannot be read, or "
        "the stream has no mapping for the format.",
        s403="The source was revoked.",
        s404="No such stream.",
        s413="The body is too long, or has too many samples.",
        s415="The body is not protobuf, or has another message type.",
        s503="Too many posts wait to be written, or the journal is unreachable. Send the request "
        "again after Retry-After.",
        s507="There is no capacity for its rows, or for another source.",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A `prometheus.WriteRequest`, or an `io.prometheus.write.v2.Request` "
            "with that media type, in Snappy's block format.",
            "content": {_PROTOBUF: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def write_samples(
    name: schemas.StreamName,
    request: Request,
    aggregator: TheAggregator,
    stream: TheStream,
    settings: TheSettings,
    source: Annotated[
        str, Query(pattern=schemas.SOURCE, description="Name of the source. Default: `prometheus`.")
    ] = "prometheus",
    check_units: Annotated[
        bool,
        Query(
            description="Reject a body if its times are not milliseconds: nearly all times, or "
            "some times in the first post to a stream."
        ),
    ] = True,
) -> Response:
    """Give a Prometheus server this URL under `remote_write`."""
    version = _version(request)
    stream.admit(source)
    maps: SeriesIndex[RemoteWriteMap] = index_of(stream, "prometheus", '"metric": ...')
    body = await request.body()
    if request.headers.get("content-encoding", "").strip().lower() == "snappy":
        body = await aggregator.compute(_plain, body, settings.max_json_bytes)
    form = form_of(aggregator, stream, source, settings, 1 + len(maps) * most_samples(body))
    ingestion = SeriesIngestion(
        stream=stream, form=form, views=aggregator.views_of(stream), unit="ms", place="series",
        check_unit=precision_check(stream, "ms", check_units=check_units), polled=maps.polled,
    )  # fmt: skip
    read = partial(_read, maps=maps, version=version, most=form.max_rows)
    refused, told, [points] = await ingest_series(request, [ingestion], body, read, _SAMPLES_TOLD)
    written = len(points) + sum(points.told.skipped.values()) + points.told.refusals - refused
    headers = {f"X-Prometheus-Remote-Write-{kind}-Written": "0"
               for kind in ("Histograms", "Exemplars")}  # fmt: skip
    headers["X-Prometheus-Remote-Write-Samples-Written"] = str(written)
    if not refused:
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
    request.state.written = headers
    raise PartialWriteError(f"{'; '.join(told)}; {refused} rejected, {written} written")


def _read(
    body: bytes, maps: SeriesIndex[RemoteWriteMap], version: int, most: int
) -> Steps[list[Points]]:
    return [(yield from steps(body, maps, version=version, most=most))]


def _version(request: Request) -> int:
    """The version that the media type names, if this module reads it."""
    require_media_type(request, _PROTOBUF)
    given = request.headers["content-type"]
    for parameter in given.split(";")[1:]:
        name, _, message = parameter.partition("=")
        if name.strip().lower() == "proto":
            version = _VERSIONS.get(message.strip().strip('"'))
            if version is None:
                raise UnsupportedMediaTypeError(
                    "content-type", given, f"proto to be one of {', '.join(_VERSIONS)}"
                )
            return version
    return 1


def _plain(body: bytes, most: int) -> bytes:
    """The decompressed body, rejected before decompression if its declared length exceeds the
    limit.
    """
    try:
        if plain_length(body) > most:
            raise BodyTooLargeError(most)
        return bytes(cramjam.snappy.decompress_raw(body))
    except (UnreadableError, cramjam.DecompressionError):
        raise InvalidRequestError("the body is not a Snappy block") from None
