"""The routes: what HTTP says, handed to the aggregator, and its answer as HTTP.

Functions that decode, merge or answer are plain ``def``: they run on the thread pool and leave the
event loop free.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response

import decaysketch
from api import queries, schemas
from api.errors import PROBLEM_JSON, Fault, InvalidRequestError, UnsupportedMediaTypeError
from api.settings import Settings
from api.store import Interval
from api.streams import Aggregator, Stream

__all__ = ["TAGS", "router"]

TAGS = [
    {"name": "streams", "description": "Parameters that the sketches of a stream share."},
    {"name": "sketches", "description": "Sketches in, the merged sketch out."},
    {"name": "queries", "description": "Answers, each with an interval."},
    {"name": "service", "description": "The process itself."},
]

SKETCH_MEDIA_TYPE = "application/octet-stream"

router = APIRouter()


# ---------------------------------------------------------------------------- what routes depend on


async def _aggregator(request: Request) -> Aggregator:
    aggregator: Aggregator = request.app.state.aggregator
    return aggregator


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _json_only(request: Request) -> None:
    _require_media_type(request, "application/json")


async def _sketch_body(request: Request) -> bytes:
    _require_media_type(request, SKETCH_MEDIA_TYPE)
    return await request.body()


async def _interval(
    first: schemas.IntervalFirst = None, one_past: schemas.IntervalNext = None
) -> Interval | None:
    if first is None and one_past is None:
        return None
    for name, other, given in (("first", "next", first), ("next", "first", one_past)):
        if given is None:
            raise InvalidRequestError(
                f"{other} is given and {name} is not: an interval is given by both",
                [Fault(field=name, reason=f"missing, beside {other}")],
            )
    assert first is not None
    assert one_past is not None
    if first >= one_past:
        raise InvalidRequestError(
            f"the interval [{first}, {one_past}) is empty",
            [Fault(field="next", reason=f"expected more than first, {first}", value=one_past)],
        )
    return Interval(first, one_past)


def _require_media_type(request: Request, expected: str) -> None:
    encoding = request.headers.get("content-encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise UnsupportedMediaTypeError("content-encoding", encoding, "identity")
    given = request.headers.get("content-type")
    if given is None or given.partition(";")[0].strip().lower() != expected:
        raise UnsupportedMediaTypeError("content-type", given, expected)


TheAggregator = Annotated[Aggregator, Depends(_aggregator)]
TheSettings = Annotated[Settings, Depends(_settings)]
SketchBody = Annotated[bytes, Depends(_sketch_body)]
TheInterval = Annotated[Interval | None, Depends(_interval)]


def _problems(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """``_problems(s404="no such stream")``: what the description says of refusals."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        int(status[1:]): {"description": text, "content": {PROBLEM_JSON: {"schema": schema}}}
        for status, text in reasons.items()
    }


# ------------------------------------------------------------------------------------------ streams


@router.put(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Create a stream",
    dependencies=[Depends(_json_only)],
    status_code=HTTPStatus.OK,
    response_description="The stream existed with equal parameters.",
    responses={
        201: {"model": schemas.StreamState, "description": "The stream was created."},
        **_problems(
            s409="The stream exists with another family or other parameters; every differing field "
            "is named.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="The name, a parameter or the decay is outside its domain.",
        ),
    },
)
def put_stream(
    name: schemas.StreamName,
    creation: schemas.StreamCreation,
    aggregator: TheAggregator,
    response: Response,
) -> schemas.StreamState:
    """Idempotent: the same parameters again are answered with 200 and change nothing."""
    stream, created = aggregator.create(name, creation.root.to_recipe())
    if created:
        response.status_code = HTTPStatus.CREATED
        response.headers["Location"] = f"/v1/streams/{name}"
    return _state(stream)


@router.get("/v1/streams", tags=["streams"], summary="List the streams")
def list_streams(aggregator: TheAggregator) -> schemas.StreamList:
    """Every stream at a glance."""
    return schemas.StreamList(streams=[_summary(stream) for stream in aggregator.streams()])


@router.get(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Read a stream",
    responses=_problems(s404="No such stream.", s422="The name is outside its domain."),
)
def get_stream(name: schemas.StreamName, aggregator: TheAggregator) -> schemas.StreamState:
    """The parameters to build sketches with, and what the stream holds."""
    return _state(aggregator.stream(name))


def _summary(stream: Stream) -> schemas.StreamSummary:
    sources = stream.sources()
    merged = stream.snapshot()
    return schemas.StreamSummary(
        name=stream.name,
        family=stream.recipe.family,
        created=_utc(stream.created_us),
        digest=merged.digest,
        rows=len(merged),
        sources=len(sources),
        posts=sum(source.posts for source in sources),
    )


def _state(stream: Stream) -> schemas.StreamState:
    sources = stream.sources()
    merged = stream.snapshot()
    return schemas.StreamState(
        name=stream.name,
        family=stream.recipe.family,
        created=_utc(stream.created_us),
        params=stream.recipe.params.to_dict(),
        decay=stream.recipe.to_dict().get("decay"),
        fingerprint=stream.recipe.params.fingerprint.hex(),
        digest=merged.digest,
        rows=len(merged),
        bytes=len(merged.to_bytes()),
        watermarks=merged.watermarks,
        clock=merged.clock,
        posts=sum(source.posts for source in sources),
        posted_bytes=sum(source.posted_bytes for source in sources),
        sources=[
            schemas.SourceState(
                source=source.source,
                digest=source.merged.digest,
                rows=len(source.merged),
                posts=source.posts,
                posted_bytes=source.posted_bytes,
                last_received=_utc(source.last_received_us),
            )
            for source in sources
        ],
    )


def _utc(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, tz=UTC)


# ----------------------------------------------------------------------------------------- sketches


@router.post(
    "/v1/streams/{name}/sketches",
    tags=["sketches"],
    summary="Post a sketch",
    response_description="The sketch is on disk and folded in.",
    responses=_problems(
        s404="No such stream.",
        s409="Of another family, built with other parameters, or of smaller capacity; both values "
        "are named. Or numbers of its interval came before, in another one or with other bytes.",
        s413="The body is too long.",
        s415="The body is not application/octet-stream.",
        s422="The bytes are damaged, or `source`, `first` or `next` is missing or outside its "
        "domain.",
        s503="The journal is out of reach; nothing was acknowledged, send it again.",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "`to_bytes()` of a sketch, parameters embedded or by fingerprint.",
            "content": {SKETCH_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def post_sketch(
    name: schemas.StreamName,
    source: schemas.SourceKey,
    interval: TheInterval,
    body: SketchBody,
    aggregator: TheAggregator,
) -> schemas.PostedSketch:
    """Once this is answered the sketch survives a crash. Post it as often as you like: what is
    there already changes nothing."""
    posted = aggregator.post(name, source, body, interval)
    return schemas.PostedSketch(
        stream=name,
        source=source,
        interval=None if interval is None else schemas.IntervalModel(**asdict(interval)),
        rows=posted.rows,
        duplicate=posted.duplicate,
        changed=posted.changed,
        merged=schemas.MergedSketch(rows=len(posted.merged), digest=posted.merged.digest),
    )


@router.get(
    "/v1/streams/{name}/sketch",
    tags=["sketches"],
    summary="Download the merged sketch",
    response_class=Response,
    responses={
        200: {
            "description": "`from_bytes` of the family reads it. The ETag is its digest.",
            "content": {SKETCH_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        304: {"description": "It is the one that If-None-Match names."},
        **_problems(
            s404="No such stream, or nothing came from that source.",
            s422="The name or the source is outside its domain.",
        ),
    },
)
def get_sketch(
    name: schemas.StreamName,
    aggregator: TheAggregator,
    source: schemas.SourceKey | None = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Equal bytes for equal sets of posts, whatever happened on the way. `source`: of that source
    alone, instead of the join of all."""
    merged = aggregator.stream(name).snapshot(None if source is None else [source])
    etag = f'"{merged.digest}"'
    headers = {
        "ETag": etag,
        "Content-Disposition": f'attachment; filename="{name}.sketch"',
    }
    known = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(merged.to_bytes(), media_type=SKETCH_MEDIA_TYPE, headers=headers)


# ------------------------------------------------------------------------------------------ queries


@router.post(
    "/v1/streams/{name}/query",
    tags=["queries"],
    summary="Ask for decayed aggregates",
    dependencies=[Depends(_json_only)],
    responses=_problems(
        s404="No such stream, or nothing came from one of the sources.",
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="A query is malformed, names an aggregate that the family does not have, or asks for "
        "what was discarded at every level.",
    ),
)
def post_query(
    name: schemas.StreamName,
    request: queries.QueryRequest,
    aggregator: TheAggregator,
    settings: TheSettings,
) -> queries.QueryResponse:
    """Any aggregate under any decay; nothing has to be declared beforehand. All queries of a
    request are answered from one and the same sketch, in their order, or none is."""
    if len(request.queries) > settings.max_queries:
        raise InvalidRequestError(
            f"queries has {len(request.queries)} entries; at most {settings.max_queries} are "
            "taken in one request"
        )
    stream = aggregator.stream(name)
    queries.check(stream, request)
    return queries.answer(stream, stream.snapshot(request.sources), request)


# ------------------------------------------------------------------------------------------ service


@router.get("/healthz", tags=["service"], summary="Is the process there")
async def healthz() -> schemas.Health:
    """Answers as long as the process serves."""
    return schemas.Health(version=decaysketch.__version__)
