"""Influx line protocol in, for programs that write to InfluxDB: Telegraf, its clients, scripts.

A bucket (``db`` in version 1) is a stream name, or several with commas between them. Each stream
reads the lines that its mappings name. Sound lines are stored even if others are rejected, as in
InfluxDB (400, ``partial write``). Its clients do not send such a body again. A repeated body, also
because one stream was busy, changes nothing.

The clients' reaction determines the status. They repeat after 503, and some cut the body in halves
after 413. Some repeat for ever after 500, and some give up for good after 422, so a fault in a body
is 400. Problems also have the members ``code`` and ``message``, because these clients read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial as bound
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Query, Request, Response

from api import schemas
from api.errors import Fault, InvalidRequestError, PartialWriteError, TooManyRowsError
from api.http.caller import writes, writes_buckets
from api.http.problems import ProblemResponse, problems
from api.ingest.building import SeriesIngestion
from api.routes.ingest import (
    BAD,
    as_understood,
    form_of,
    index_of,
    ingest_series,
    precision_check,
    translated,
    understood_by,
)
from api.service.aggregator import Aggregator
from api.settings import Settings
from decaysketch.ingest.line_protocol import PRECISIONS, LineMap, steps
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import Steps, UnreadableError
from decaysketch.ingest.series import SeriesIndex

__all__ = ["router"]

_LEAST_BYTES = 6  # of a line with its end: "m f=1 "
_MOST_STREAMS = 20  # of one write
_MOST_LINES = 10  # per observation that a post may have, because skipped lines are read, too
_MOST_PARTS = 4  # tags and fields, of each of these lines
_LINES_TOLD = 10
_UNITS = {"n": "ns", "u": "us", "m": "min"} | {name: name for name in ("ns", "us", "ms", "s", "h")}
_CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not found",
    413: "request too large",
    429: "too many requests",
    503: "unavailable",
}
_CREATION = re.compile(r"\s*create\s+database\b", re.IGNORECASE)


def _answer(_request: Request, answer: ProblemResponse) -> Response:
    problem, status, _ = translated(answer, BAD)
    code = _CODES.get(status, "internal error")
    return as_understood(answer, BAD, code=code, message=problem["detail"])


router = APIRouter(route_class=understood_by(_answer))

_Bucket = Annotated[
    str,
    Query(
        min_length=1,
        max_length=_MOST_STREAMS * 101,
        description="Name of the stream, or several names separated by commas.",
    ),
]
_Precision = Annotated[
    Literal["n", "ns", "u", "us", "ms", "s", "m", "h"],
    Query(description="Unit of the times in the lines. Version 1 also accepts `n`, `u`, `m`."),
]
_Precision3 = Annotated[
    Literal[
        "auto",
        "nanosecond",
        "microsecond",
        "millisecond",
        "second",
        "n",
        "ns",
        "u",
        "us",
        "ms",
        "s",
    ],
    Query(description="Unit of the times in the lines. `auto`: by the size of the first time."),
]
_AcceptPartial = Annotated[
    bool,
    Query(description="Store the valid lines if others are rejected. `false`: all or none."),
]
_Source = Annotated[
    str | None,
    Query(pattern=schemas.SOURCE, description="Name of the source. Default: `influx`."),
]
_CheckUnits = Annotated[
    bool,
    Query(
        description="Reject a body if its times are dates in another unit: nearly all times, or "
        "some times in the first post to a stream."
    ),
]
_WRITE: dict[str, Any] = {
    "tags": ["observations"],
    "status_code": HTTPStatus.NO_CONTENT,
    "response_class": Response,
    "response_description": "The server has stored all lines that the stream's mappings select.",
    "responses": problems(
        s400="Some lines were rejected and the others stored (`partial write`). Or the stream "
        "has no mapping for the format, or a parameter is missing or outside its domain.",
        s403="The source was revoked, or a stream is outside the key's scope.",
        s404="No such stream.",
        s413="The body is too long, or has too many readings.",
        s503="Too many posts wait to be written, or the journal is unreachable. Send the request "
        "again after Retry-After.",
        s507="There is no capacity for its rows, or for another source.",
    ),
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "description": "Lines: `weather,site=ward temp=21.5 1700000000000000000`.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
}


@router.post(
    "/api/v2/write",
    summary="Write line protocol to a bucket",
    dependencies=[Depends(writes_buckets)],
    **_WRITE,
)
async def write_lines_of_bucket(
    bucket: _Bucket,
    request: Request,
    precision: _Precision = "ns",
    source: _Source = None,
    check_units: _CheckUnits = True,
) -> Response:
    """As in InfluxDB 2. The key is the token: `Authorization: Token ds_...`."""
    return await _write(request, bucket, precision, source, check_units=check_units)


@router.post(
    "/write",
    summary="Write line protocol to a database",
    dependencies=[Depends(writes_buckets)],
    **_WRITE,
)
async def write_lines_of_database(
    db: _Bucket,
    request: Request,
    precision: _Precision = "ns",
    source: _Source = None,
    check_units: _CheckUnits = True,
) -> Response:
    """As in InfluxDB 1. The key is the password, in Basic authentication or as `p`."""
    return await _write(request, db, precision, source, check_units=check_units)


@router.post(
    "/api/v3/write_lp",
    summary="Write line protocol to a database, version 3",
    dependencies=[Depends(writes_buckets)],
    **_WRITE,
)
async def write_lines_of_database_3(
    db: _Bucket,
    request: Request,
    precision: _Precision3 = "auto",
    accept_partial: _AcceptPartial = True,
    no_sync: Annotated[
        bool, Query(description="Ignored. Stored lines are always on disk.")
    ] = False,
    source: _Source = None,
    check_units: _CheckUnits = True,
) -> Response:
    """As in InfluxDB 3. The key is the token: `Authorization: Bearer ds_...`."""
    return await _write(
        request, db, await _precision(request, precision), source,
        check_units=check_units, partial=accept_partial,
    )  # fmt: skip


@router.post(
    "/v1/streams/{name}/influx/api/v3/write_lp",
    summary="Write line protocol to a stream, version 3",
    dependencies=[Depends(writes)],
    **_WRITE,
)
async def write_lines_3(
    name: schemas.StreamName,
    request: Request,
    precision: _Precision3 = "auto",
    accept_partial: _AcceptPartial = True,
    no_sync: Annotated[
        bool, Query(description="Ignored. Stored lines are always on disk.")
    ] = False,
    source: _Source = None,
    check_units: _CheckUnits = True,
) -> Response:
    """For version 3 clients with the URL `/v1/streams/NAME/influx`."""
    return await _write(
        request, name, await _precision(request, precision), source,
        check_units=check_units, partial=accept_partial,
    )  # fmt: skip


@router.post(
    "/v1/streams/{name}/influx/api/v2/write",
    summary="Write line protocol to a stream",
    dependencies=[Depends(writes)],
    **_WRITE,
)
@router.post(
    "/v1/streams/{name}/influx/write",
    summary="Write line protocol to a stream, as to a database",
    dependencies=[Depends(writes)],
    name="write_lines_as_to_a_database",
    **_WRITE,
)
async def write_lines(
    name: schemas.StreamName,
    request: Request,
    precision: _Precision = "ns",
    source: _Source = None,
    check_units: _CheckUnits = True,
) -> Response:
    """For clients with the URL `/v1/streams/NAME/influx`. The lines go to this stream, for any
    bucket or database name.
    """
    return await _write(request, name, precision, source, check_units=check_units)


async def _write(
    request: Request,
    names: str,
    precision: str,
    source: str | None,
    *,
    check_units: bool,
    partial: bool = True,
) -> Response:
    aggregator: Aggregator = request.app.state.aggregator
    settings: Settings = request.app.state.settings
    source = source or "influx"
    chosen = list(dict.fromkeys(names.split(",")))
    if len(chosen) > _MOST_STREAMS:
        reason = f"{len(chosen)} streams; expected at most {_MOST_STREAMS} in a request"
        raise InvalidRequestError(reason, [Fault(field="bucket", reason=reason)])
    # Check everything before storing anything.
    streams = [await aggregator.find(name) for name in chosen]
    read = [(stream, index_of(stream, "influx", _EXAMPLE)) for stream in streams]
    for stream in streams:
        stream.admit(source)
    body = await request.body()
    lines, most_lines = body.count(b"\n"), _MOST_LINES * settings.max_rows // len(chosen)
    if lines > most_lines:
        raise TooManyRowsError(lines, most_lines, "lines")
    if (commas := body.count(b",")) > _MOST_PARTS * most_lines:
        raise TooManyRowsError(commas, _MOST_PARTS * most_lines, "tags and fields")
    unit = _UNITS[precision]
    possible = [1 + len(maps) * min(lines + 1, len(body) // _LEAST_BYTES) for _, maps in read]
    forms = [
        form_of(aggregator, stream, source, settings, most)
        for (stream, _), most in zip(read, possible, strict=True)
    ]
    most = min(sum(form.max_rows for form in forms), settings.max_post_rows)
    indexes, precision_ns = [maps for _, maps in read], PRECISIONS[precision]
    parse = bound(_read, maps=indexes, precision_ns=precision_ns, most=most, partial=partial)
    ingestions = [
        SeriesIngestion(
            stream=stream, form=form, views=aggregator.views_of(stream), unit=unit, place="line",
            check_unit=precision_check(stream, unit, check_units=check_units, may_choose=True),
            polled=maps.polled,
        )
        for (stream, maps), form in zip(read, forms, strict=True)
    ]  # fmt: skip
    refused, told, _ = await ingest_series(request, ingestions, body, parse, _LINES_TOLD)
    if not refused:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    raise PartialWriteError(f"partial write: {'; '.join(told[:_LINES_TOLD])}; dropped={refused}")


_NAMES_3 = {"nanosecond": "ns", "microsecond": "us", "millisecond": "ms", "second": "s"}
_STAMP = re.compile(rb" (-?[0-9]{1,19})[ \t]*\r?(?:\n|\Z)")
_LARGEST = {"s": 5_000_000_000, "ms": 5_000_000_000_000, "us": 5_000_000_000_000_000}
_LOOKED_AT = 1 << 16  # bytes


async def _precision(request: Request, given: str) -> str:
    """Return the time unit in a body. `auto` infers it from the size of the first time, as
    InfluxDB 3 does.
    """
    if given != "auto":
        return _NAMES_3.get(given, given)
    found = _STAMP.search((await request.body())[:_LOOKED_AT])
    time = 0 if found is None else abs(int(found[1]))
    return next((unit for unit, most in _LARGEST.items() if time < most), "ns") if time else "ns"


_EXAMPLE = '"measurement": ..., "value": ...'


def _read(
    body: bytes,
    maps: Sequence[SeriesIndex[LineMap]],
    precision_ns: int,
    most: int,
    *,
    partial: bool,
) -> Steps[list[Points]]:
    """Read a body once for all streams in a bucket, in steps.

    Args:
        body: plain bytes.
        maps: mappings by stream.
        precision_ns: nanoseconds in the body's time unit.
        most: maximum readings for all streams together. Each stream has its own limit as well.
        partial: whether sound lines are stored if others are rejected.

    Raises:
        UnreadableError: see :func:`~decaysketch.ingest.line_protocol.parse`.
        TooManyRowsError: there are more readings. No stream has stored anything then.
    """
    found = yield from steps(body, maps, precision_ns, most)
    if (rows := sum(map(len, found))) > most:
        raise TooManyRowsError(rows, most)
    if not partial and (told := [each.told for each in found if each.told.refusals]):
        where, reason = told[0].refused[0]
        raise UnreadableError(f"{where}: {reason}; nothing is stored, as accept_partial is false")
    return found


@router.post(
    "/query",
    tags=["observations"],
    summary="Accept a client's request to create its database",
    dependencies=[Depends(writes)],
    responses=problems(s400="The request has any other query."),
    openapi_extra={
        "requestBody": {
            "description": "The form `q=CREATE DATABASE ...`. It may also be in the URL.",
            "content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}},
        }
    },
)
@router.post(
    "/v1/streams/{name}/influx/query",
    dependencies=[Depends(writes)],
    name="create_database_of_stream",
    include_in_schema=False,
)
async def create_database(request: Request) -> dict[str, Any]:
    """Telegraf's output for version 1 requests it. Nothing is created. Create streams with `PUT
    /v1/streams/{name}`.
    """
    asked = request.query_params.get("q")
    if asked is None:
        text = (await request.body()).decode("utf-8", "replace")
        asked = parse_qs(text, max_num_fields=20).get("q", [""])[0] if "q=" in text else ""
    if _CREATION.match(asked) is None:
        raise InvalidRequestError(
            f"q is {asked[:100]!r}; expected CREATE DATABASE: send queries to POST "
            "/v1/streams/{name}/query"
        )
    return {"results": [{"statement_id": 0}]}


@router.get(
    "/ping",
    tags=["service"],
    summary="Respond to an InfluxDB client's ping",
    status_code=HTTPStatus.NO_CONTENT,
    response_class=Response,
)
@router.get(
    "/v1/streams/{name}/influx/ping",
    status_code=HTTPStatus.NO_CONTENT,
    response_class=Response,
    name="ping_of_stream",
    include_in_schema=False,
)
async def ping() -> Response:
    """The response contains no stream information. `/readyz` shows whether the server accepts
    posts.
    """
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={"X-Influxdb-Version": "2.7"})


@router.get("/health", tags=["service"], summary="The same, for its second version")
@router.get("/v1/streams/{name}/influx/health", name="health_of_stream", include_in_schema=False)
async def health() -> dict[str, str]:
    """The response contains no stream information. `/readyz` shows whether the server accepts
    posts.
    """
    return {"name": "influxdb", "status": "pass", "message": "ready for writes"}
